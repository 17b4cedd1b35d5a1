#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What is installed is enough for a program: examples/c/run_model.c is built against an installed
# copy, its numbers are those of the references, and its failures are sentences with the right status.
set -euo pipefail
fail() { echo "$*"; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake --install "$HONE_BUILD_DIR" --prefix "$work/usr" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
[ "$("$work/usr/bin/hone" version)" = "$("$HONE" version)" ] || fail "the installed command differs"
[ "$(ls "$work/usr/include/hone")" = "$(ls "$HONE_SOURCE_DIR/include/hone")" ] || fail "headers are missing"
lib=$(dirname "$(find "$work/usr" -name libhone.so)")
flags=
grep -q 'HONE_SANITIZE:STRING=..*' "$HONE_BUILD_DIR/CMakeCache.txt" &&
    flags=-fsanitize=$(sed -n 's/^HONE_SANITIZE:STRING=//p' "$HONE_BUILD_DIR/CMakeCache.txt")
compiler=$(sed -n 's/^CMAKE_C_COMPILER:[A-Z]*=//p' "$HONE_BUILD_DIR/CMakeCache.txt")
"$compiler" -std=c11 -Wall -Wextra -Wpedantic -Werror $flags -I"$work/usr/include" \
    "$HONE_SOURCE_DIR/examples/c/run_model.c" -L"$lib" -lhone -Wl,-rpath,"$lib" -o "$work/run_model"
model=$HONE_SOURCE_DIR/examples/fashion/fashion_resnet.onnx
"$work/run_model" "$model" >"$work/out"
[ "$(wc -l <"$work/out")" = 10 ] || fail "ten numbers were expected"
python3 - "$work" <<'PY'
import struct, sys
head = "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1, 28, 28), }"
head += " " * (-(len(head) + 11) % 64) + "\n"
with open(f"{sys.argv[1]}/zeros.npy", "wb") as f:
    f.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + bytes(4 * 784))
PY
"$HONE" run "$model" --input image="$work/zeros.npy" --reference --output-dir "$work/ref" >/dev/null
python3 - "$work" <<'PY'
import struct, sys
raw = open(f"{sys.argv[1]}/ref/0_0.npy", "rb").read()[-40:]
ref = struct.unpack("<10f", raw)
got = [float(line) for line in open(f"{sys.argv[1]}/out")]
limit = 1e-4 * max(map(abs, ref)) + 1e-5
assert all(abs(a - b) <= limit for a, b in zip(ref, got)), (ref, got)
assert len(set(got)) > 1, got
PY
code=0; "$work/run_model" "$work/none.onnx" 2>"$work/err" || code=$?
[ $code = 3 ] && grep -q "cannot open .*none.onnx" "$work/err" || fail "a missing model: exit $code, $(cat "$work/err")"
head -c 1000 "$model" >"$work/cut.onnx"
code=0; "$work/run_model" "$work/cut.onnx" 2>"$work/err" || code=$?
[ $code = 3 ] && [ "$(wc -l <"$work/err")" = 1 ] || fail "a cut model: exit $code, $(cat "$work/err")"
# The program in the README: the same numbers.
sed -n '/^```c$/,/^```$/p' "$HONE_SOURCE_DIR/README.md" | grep -v '^```' >"$work/readme.c"
[ "$(wc -l <"$work/readme.c")" -ge 15 ] || fail "the README has no C program"
"$compiler" -std=c11 -Wall -Wextra -Wpedantic -Werror $flags -I"$work/usr/include" "$work/readme.c" \
    -L"$lib" -lhone -Wl,-rpath,"$lib" -o "$work/readme"
"$work/readme" "$model" >"$work/readme.out"
cmp "$work/readme.out" "$work/out" || fail "the README's program prints other numbers"
