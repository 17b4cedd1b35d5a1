#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Data that cannot judge, attacked from the command line: NaN, infinities, wrong labels, copies, one row, too
# few rows; and runs that end early leave nothing behind. TEST-TIMEOUT 240
set -u
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
model=$HONE_SOURCE_DIR/examples/fashion/fashion_resnet.onnx
fail() { echo "FAILED: $*"; exit 1; }
PYTHONPATH=$HONE_SOURCE_DIR/tests/optimize python3 - "$dir" <<'PY' || exit 1
import array, math, npz, random, struct, sys
random.seed(3)
rows = [array.array("f", (max(0.0, random.gauss(0.3, 0.35)) for _ in range(784))) for _ in range(64)]
def write(name, rows, labels=None):
    arrays = {"image": ("<f4", (len(rows), 1, 28, 28), b"".join(r.tobytes() for r in rows))}
    if labels is not None:
        arrays["labels"] = ("<i8", (len(labels),), struct.pack(f"<{len(labels)}q", *labels))
    npz.save(f"{sys.argv[1]}/{name}.npz", **arrays)
filled = lambda value: array.array("f", [value] * 784)
write("good", rows)
write("nan", [filled(math.nan)] * 64)
write("inf", [filled(math.inf)] * 64)
write("odd", [r if k != 37 else array.array("f", [*r[:99], math.inf, *r[100:]]) for k, r in enumerate(rows)])
write("one_nan", [r if k else array.array("f", [math.nan, *r[1:]]) for k, r in enumerate(rows)])
write("some", [filled(math.nan) if k % 5 else r for k, r in enumerate(rows)])
write("scaled", [array.array("f", (x / 5000 for x in r)) for r in rows])
write("few", rows[:16])
write("copies", rows[:1] * 64)
write("one", rows[:1])
write("labels", rows, [k % 10 for k in range(64)])
PY
opt() { "$HONE" optimize "$model" -o "$dir/o.onnx" --seconds 0.05 --threads 1 --batch 16 --only int8 "$@" >"$dir/out" 2>"$dir/err"; }
refused() { # status, words
    local want=$1 words=$2
    shift 2
    rm -f "$dir/o.onnx"
    opt "$@"
    [ $? = "$want" ] || fail "not exit $want: $* ($(cat "$dir/err"))"
    [ "$(wc -l <"$dir/err")" = 1 ] && grep -q "$words" "$dir/err" || fail "$* says: $(cat "$dir/err")"
    [ ! -e "$dir/o.onnx" ] || fail "an output was left by $*"
    [ ! -e "$dir/r" ] || fail "a report folder was left by $*"
}
notes() { # words
    local words=$1
    shift
    opt "$@" || fail "$*: $(cat "$dir/err")"
    grep -q "^note: .*$words" "$dir/out" || fail "$* gives no note on '$words': $(cat "$dir/out")"
}
# Nothing but NaN would agree with itself in every row.
refused 3 'nothing but NaN and infinities' --data "$dir/nan.npz" --report "$dir/r"
refused 3 'nothing but NaN and infinities' --data "$dir/inf.npz" --report "$dir/r"
notes 'outputs are NaN or infinite in the input model itself' --data "$dir/some.npz" --report "$dir/r"
jq -e '.baseline.accuracy.not_finite > 0 and (.notes | length) >= 1' "$dir/r/report.json" >/dev/null || fail "report.json lacks the note"
grep -q 'NaN or infinite in the input model' "$dir/r/report.html" || fail "report.html lacks the note"
# Field report 44: labels of other classes; a fall from nothing is no fall, so outputs judge.
notes 'no better than a guess' --data "$dir/labels.npz"
notes '32 of the 32 rows that judge are copies' --data "$dir/copies.npz"
notes 'there is one sample' --data "$dir/one.npz" --batch 1
# Such data keep nothing that may lose accuracy: the file is the input's bytes and the verdict gives the reason.
unfit() { # words
    local words=$1
    shift
    opt "$@" || fail "$*: $(cat "$dir/err")"
    grep -q "^int8 *refused *the data cannot judge it: .*$words" "$dir/out" || fail "int8 is not refused for '$words': $(cat "$dir/out")"
    cmp -s "$model" "$dir/o.onnx" || fail "int8 was delivered though '$words'"
}
unfit 'no better than a guess' --data "$dir/labels.npz"
unfit '0 rows are left to judge without copies: with fewer than 14 .* 4[0-9]* would prove' --data "$dir/copies.npz"
unfit '8 rows are left to judge without copies' --data "$dir/few.npz" --batch 8
unfit 'there is one sample' --data "$dir/one.npz" --batch 1
unfit 'the outputs hardly change from row to row' --data "$dir/scaled.npz"
# Forced, it is kept and says so.
opt --data "$dir/labels.npz" --force int8 || fail "forced: $(cat "$dir/err")"
grep -q '^int8 *kept *forced, though the data cannot judge it' "$dir/out" || fail "a forced strategy hides why: $(cat "$dir/out")"
# Single rows that are no numbers are named and left out; the others calibrate and judge.
notes "row 37 of input 'image' (counted from 0) holds an infinity, one of 1 such rows of 64: they are left out" --data "$dir/odd.npz" --budget 50
grep -q '^int8 .*kept' "$dir/out" || fail "one infinity keeps int8 away: $(cat "$dir/out")"
notes "row 0 of input 'image' (counted from 0) holds NaN" --data "$dir/one_nan.npz"
notes 'such rows of 64: too many to leave them out' --data "$dir/some.npz"
opt --data "$dir/good.npz" || fail "good data: $(cat "$dir/err")"
! grep -q '^note:' "$dir/out" || fail "a note on good data: $(cat "$dir/out")"
# Too few rows: how many would do.
opt --data "$dir/good.npz" --force int8 || fail "good data"
grep -q '32 rows do not prove the budget, [0-9]* would' "$dir/out" || grep -q '^int8 .*forced' "$dir/out" || fail "no word on rows: $(cat "$dir/out")"

# An interrupted run leaves neither output nor folders, whenever it is hit.
rm -rf "$dir/r" "$dir/o.onnx"
for after in 0.05 0.3 0.8 1.6; do
    "$HONE" optimize "$model" -o "$dir/o.onnx" --data "$dir/good.npz" --batch 16 --seconds 30 --report "$dir/r" >/dev/null 2>&1 &
    pid=$!
    sleep $after
    kill -TERM $pid # a shell starts background jobs deaf to INT
    wait $pid
    [ $? != 0 ] || fail "an interrupted run ends with 0"
    [ ! -e "$dir/r" ] || fail "interrupted after $after s: an empty report folder"
    [ ! -e "$dir/o.onnx" ] || fail "interrupted after $after s: an output"
    [ -z "$(find "$dir" -name '.hone*')" ] || fail "interrupted after $after s: $(find "$dir" -name '.hone*')"
done
# A report that names what this build lacks, or has nothing to measure again, is no silent success.
model_sha=$(sha256sum "$model" | cut -d' ' -f1)
echo "{\"model\":{\"sha256\":\"$model_sha\"},\"decisions\":[{\"strategy\":\"magic\",\"decision\":{}}],\"strategies\":[]}" >"$dir/magic.json"
refused 3 "strategy 'magic', which is not known here" --replay "$dir/magic.json"
"$HONE" optimize "$model" --recheck "$dir/magic.json" --data "$dir/good.npz" --batch 16 >/dev/null 2>"$dir/err"
[ $? = 3 ] && grep -q 'nothing can be measured again' "$dir/err" || fail "an empty report is rechecked: $(cat "$dir/err")"
: >"$dir/file"
opt --data "$dir/good.npz" --report "$dir/file"
[ $? = 5 ] && grep -q 'it is no folder' "$dir/err" || fail "a file as folder: $(cat "$dir/err")"
# A folder that cannot be written into is told before the work.
if [ "$(id -u)" != 0 ]; then
    mkdir "$dir/locked" && chmod 555 "$dir/locked"
    refused 5 'cannot write into' --data "$dir/good.npz" --report "$dir/locked"
fi
echo "data that cannot judge do not"
