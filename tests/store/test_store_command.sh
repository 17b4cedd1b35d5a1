#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# TEST-TIMEOUT 120
# Results are the same without a store, with an empty one, from it, and from a damaged one; starts find
# what earlier ones kept; hone store lists, verifies and clears it; a folder that cannot be used is one line.
set -u
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
fail() { echo "FAILED: $*"; exit 1; }
model=$HONE_SOURCE_DIR/examples/fashion/fashion_resnet.onnx
cp "$model" "$dir/model.onnx"
touch -d '1 hour ago' "$dir/model.onnx"
sleep 2.2 # younger files are not trusted to stay as they are
export HONE_STORE=$dir/store HONE_STORE_MIN_BYTES=0
run() { "$HONE" run "$dir/model.onnx" --batch 3 --output-dir "$dir/$1" >"$dir/$1.out" 2>"$dir/$1.err" || fail "$1: $(cat "$dir/$1.err")"; }
kept() { "$HONE" bench "$dir/model.onnx" --batch 3 --seconds 0.02 --json | jq ".prepared.$1"; }

HONE_STORE=off run off
[ ! -e "$dir/store" ] || fail "off makes a folder"
run cold
[ -n "$(ls "$dir/store/v1/blobs")" ] || fail "nothing was kept"
made=$(kept made)
found=$(kept from_store)
[ "$made" = 0 ] && [ "$found" -gt 3 ] || fail "a later start made $made forms and found $found"
run warm
for way in cold warm; do
    diff -r "$dir/off" "$dir/$way" || fail "results differ: $way"
    [ ! -s "$dir/$way.err" ] || fail "$way says: $(cat "$dir/$way.err")"
done

# What another number of threads, another ISA asks for is another key or the same bytes: results hold.
HONE_STORE=off HONE_THREADS=1 HONE_ISA=avx2 run off1
HONE_THREADS=1 HONE_ISA=avx2 run warm1
HONE_THREADS=1 HONE_ISA=avx2 run again1
diff -r "$dir/off1" "$dir/warm1" && diff -r "$dir/off1" "$dir/again1" || fail "results differ with other settings"

# Damage in every file: dropped with a line, results the same, then kept again.
for file in "$dir"/store/v1/blobs/*; do printf '\xff\xff\xff' | dd of="$file" bs=1 seek=4100 conv=notrunc 2>/dev/null; done
run hurt
diff -r "$dir/off" "$dir/hurt" || fail "results differ: damaged"
grep -q 'damaged: dropped' "$dir/hurt.err" || fail "damage is not told"
"$HONE" store verify >"$dir/verify" && fail "blobs that no run asked for are damaged too, verify says: $(cat "$dir/verify")"
"$HONE" store verify --json | jq -e '.dropped == 0 and .good > 0' >/dev/null || fail "verify did not set it right"

# The command.
"$HONE" store stat --json | jq -e '.path != "" and .writable and .blobs > 3 and .blob_bytes > 0' >/dev/null || fail stat
"$HONE" store list --json | jq -e 'length > 3 and (.[0].kind | startswith("cpu")) and .[0].bytes > 0' >/dev/null || fail list
"$HONE" store list | grep -q 'cpu weights' || fail "list as a table"
"$HONE" store | grep -q "path *$dir/store/v1" || fail "store alone"
"$HONE" store clear | grep -q 'blobs removed' || fail clear
[ -z "$(ls "$dir/store/v1/blobs")" ] || fail "clear leaves files"
"$HONE" store list | grep -q 'nothing is kept' || fail "list of nothing"
"$HONE" store frob 2>"$dir/err" && fail "frob is no action"
[ $? = 2 ] || grep -q "none of stat, list" "$dir/err" || fail "frob: $(cat "$dir/err")"
HONE_STORE=off "$HONE" store 2>"$dir/err"
[ $? = 4 ] || fail "off is not 'not supported here': $(cat "$dir/err")"

# A folder that cannot be: one line, and the results.
HONE_STORE=$dir/model.onnx/x run none
diff -r "$dir/off" "$dir/none" || fail "results differ: no folder"
[ "$(wc -l <"$dir/none.err")" = 1 ] && grep -q 'cannot be used' "$dir/none.err" || fail "no folder: $(cat "$dir/none.err")"

# The bound holds.
HONE_STORE_BYTES=100k run small
[ "$("$HONE" store stat --json | jq .blob_bytes)" -le 102400 ] || fail "the bound does not hold"
echo ok
