#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The build's tool for embedded machine code: without NVRTC an empty file (AUTO) or one sentence (ON); what the cache
# has is not made again, and what it gives is the same file.
set -eu
embed=$HONE_BUILD_DIR/cuda_embed
[ -x "$embed" ] || { echo "this build carries no machine code"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export HONE_NVRTC_LIB=/nonexistent/libnvrtc.so
"$embed" AUTO "$work/out" "$HONE_SOURCE_DIR/src" "$work/cache" 80 > "$work/text"
[ -f "$work/out" ] && [ ! -s "$work/out" ] && grep -q 'no NVRTC' "$work/text"
rc=0
"$embed" ON "$work/other" "$HONE_SOURCE_DIR/src" "$work/cache" 80 2> "$work/text" || rc=$?
[ $rc = 4 ] && [ ! -e "$work/other" ] && grep -q 'NVRTC' "$work/text"
rc=0
"$embed" 2> /dev/null || rc=$?
[ $rc = 2 ]
# A scripted compiler makes sixteen bytes of every text.
export HONE_NVRTC_LIB=$HONE_BUILD_DIR/fakes/libnvrtc.so
"$embed" ON "$work/a" "$HONE_SOURCE_DIR/src" "$work/cache" 80,90,ptx > "$work/text"
forms=$(grep -c '^HN_CUDA_FORM' "$HONE_SOURCE_DIR/src/kernels/forms.def")
[ "$(ls "$work/cache" | wc -l)" = $((forms * 3)) ]
[ "$(head -c 4 "$work/a")" = HNF1 ]
touch -d '2 hours ago' "$work"/cache/*
touch -d '1 hour ago' "$work/before" # stamps have the clock's tick: nothing is newer within it
"$embed" ON "$work/b" "$HONE_SOURCE_DIR/src" "$work/cache" 80,90,ptx > /dev/null
cmp "$work/a" "$work/b"
[ "$(find "$work/cache" -newer "$work/before" | wc -l)" -ge $((forms * 3)) ] # used, so that they stay
touch -d '40 days ago' "$work"/cache/*-80-*
"$embed" ON "$work/b" "$HONE_SOURCE_DIR/src" "$work/cache" ptx > /dev/null
[ "$(ls "$work/cache" | wc -l)" = $((forms * 2)) ] # not used for a month: gone
FAKE_NVRTC_ERROR=hn_g_ "$embed" ON "$work/c" "$HONE_SOURCE_DIR/src" "$work/none" 80 2> "$work/text" && exit 1
grep -q "does not compile" "$work/text" && grep -q "a scripted error" "$work/text" && [ ! -e "$work/c" ]
