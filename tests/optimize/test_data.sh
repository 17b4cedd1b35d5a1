#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Data that cannot judge, attacked from the command line: NaN, infinities, wrong labels, copies, one row, too
# few rows; and runs that end early leave nothing behind. TEST-TIMEOUT 400
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
# Every field of a decision is checked, and the file must be the recorded one.
opt --data "$dir/good.npz" --force int8,threads --only int8,threads --budget 50 --report "$dir/k" || fail "a report to replay: $(cat "$dir/err")"
cp "$dir/o.onnx" "$dir/made.onnx"
[ "$(jq -r .result_sha256 "$dir/k/report.json")" = "$(sha256sum <"$dir/o.onnx" | cut -d' ' -f1)" ] || fail "the report has another sum than the file"
opt --replay "$dir/k/report.json" && cmp -s "$dir/o.onnx" "$dir/made.onnx" || fail "replay: $(cat "$dir/err")"
altered() { # words, jq program that spoils the report
    jq "$2" "$dir/k/report.json" >"$dir/bad.json" || fail "jq: $2"
    ! cmp -s "$dir/k/report.json" "$dir/bad.json" || fail "nothing was altered by $2"
    refused 3 "$1" --replay "$dir/bad.json"
}
int8='(.decisions[] | select(.strategy == "int8") | .decision)'
name=$(jq -r "$int8.values | keys[0]" "$dir/k/report.json")
for scale in '"nan"' '"inf"' '"0x0p+0"' '"-0x1p-4"' '"0x1p-1074"' '"0x1p+200"' '"junk"' '"0x1p-7junk"' '" 0x1p-7"' 5 null '[]'; do
    altered "value '.*' does not fit" "$int8.values[\"$name\"][0] = $scale"
done
for zero in 300 -1 1.5 '"a"' 1099511627776; do altered "value '.*' does not fit" "$int8.values[\"$name\"][1] = $zero"; done
altered "value '.*' does not fit" "$int8.values[\"$name\"] = []"
for most in 0 -1 128 1.5 '"a"' null; do altered "'weight_max' is no whole number from 1 to 127" "$int8.weight_max = $most"; done
for nodes in '[1.5]' '["a"]' '[99999]' '[-1]'; do altered 'which is not there or there twice' "$int8.nodes = $nodes"; done
altered 'which is not there or there twice' "$int8.nodes += [$int8.nodes[0]]"
altered 'is no way to cut ranges' "$int8.method = \"foo\""
altered 'are incomplete' "$int8.between = 1"
altered "strategy 'int8' twice" ".decisions += [.decisions[] | select(.strategy == \"int8\")]"
for batch in 0 -1 1000000000000 1.5 '"a"'; do
    altered "'batch' is no whole number from 1 to 64" ".decisions += [{strategy: \"batch\", decision: {batch: $batch}}]"
done
altered "'threads' is no whole number" '.decisions = [{strategy: "threads", decision: {threads: 100000, of: 2}}]'
altered 'are incomplete' ".decisions += [{strategy: \"batch\", decision: 4}]"
# A plausible number gives another file than the recorded one, and so does one decision less.
altered 'recorded another file than its decisions give here' "$int8.values[\"$name\"][0] = \"0x1p-3\""
altered 'recorded another file than its decisions give here' '.decisions = []'
altered 'is no SHA-256' '.result_sha256 = "abc"'
# Of a report without a sum the file is written; data that it fails on say so, and the status does.
jq "del(.result_sha256) | $int8.values |= map_values(.[0] = \"0x1p+60\")" "$dir/k/report.json" >"$dir/bad.json"
opt --replay "$dir/bad.json" --data "$dir/good.npz"
[ $? = 1 ] && [ -s "$dir/o.onnx" ] || fail "a replayed model out of budget: $(cat "$dir/err")"
grep -q '^note: the file is the recorded one, but on these data it leaves the budget' "$dir/out" || fail "no word on the budget: $(cat "$dir/out")"
grep -q '^note: the report does not say which file it made' "$dir/out" || fail "no word on the missing sum: $(cat "$dir/out")"
# What is measured again needs what judges it; what is not tried cannot be forced; reports are tried before work.
"$HONE" optimize "$model" --recheck "$dir/k/report.json" >/dev/null 2>"$dir/err"
[ $? = 2 ] && grep -q 'recheck needs --data' "$dir/err" || fail "a recheck without data: $(cat "$dir/err")"
refused 2 "force names 'int8', which --only leaves out" --only graph --force int8
"$HONE" optimize "$model" --recheck "$dir/k/report.json" --data "$dir/good.npz" --batch 16 --report /dev/null/x >/dev/null 2>"$dir/err"
[ $? = 5 ] && grep -q 'cannot make the folder' "$dir/err" || fail "a bad --report of a recheck: $(cat "$dir/err")"
# A copy is the same file: no ratio anywhere.
opt --data "$dir/copies.npz" --report "$dir/c" || fail "copies: $(cat "$dir/err")"
grep -q 'a copy of the input, the same bytes' "$dir/out" && ! grep -q '^speedup' "$dir/out" || fail "a ratio of a file to itself: $(cat "$dir/out")"
jq -e '.copied and .total.speedup == null and .total.speedup_ci == null and (.total.reason | length > 0)' "$dir/c/report.json" >/dev/null || fail "report.json has a ratio of a file to itself"
# What a killed run left goes with the next one; what lives, is young or is not a run's stays.
mkdir "$dir/.hone-Stale1" "$dir/.hone-Alive1" "$dir/.hone-Young1" && : >"$dir/.hone-Stale1/o.onnx"
touch -d '2 hours ago' "$dir/.hone-Stale1" "$dir/.hone-Alive1"
opt_in_lock() { flock "$dir/.hone-Alive1" "$HONE" optimize "$model" -o "$dir/o.onnx" --seconds 0.05 --threads 1 --only graph >"$dir/out" 2>"$dir/err"; }
opt_in_lock || fail "a run beside stale folders: $(cat "$dir/err")"
[ ! -e "$dir/.hone-Stale1" ] || fail "a killed run's folder stays"
[ -d "$dir/.hone-Alive1" ] && [ -d "$dir/.hone-Young1" ] || fail "a folder of a running process was removed"
rmdir "$dir/.hone-Alive1" "$dir/.hone-Young1"
: >"$dir/file"
opt --data "$dir/good.npz" --report "$dir/file"
[ $? = 5 ] && grep -q 'it is no folder' "$dir/err" || fail "a file as folder: $(cat "$dir/err")"
# A folder that cannot be written into is told before the work.
if [ "$(id -u)" != 0 ]; then
    mkdir "$dir/locked" && chmod 555 "$dir/locked"
    refused 5 'cannot write into' --data "$dir/good.npz" --report "$dir/locked"
fi
echo "data that cannot judge do not"
