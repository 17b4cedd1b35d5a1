#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# TEST-TIMEOUT 120
# What a newcomer types: wrong names, folders, empty files, numbers out of range. Each gets one sentence
# on stderr, nothing on stdout, no output file, and the exit code of its kind; help always works.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
model=$HONE_SOURCE_DIR/examples/fashion/fashion_resnet.onnx
: >"$work/empty"
mkdir "$work/folder"
echo "no model, no log" >"$work/text"
bad=0
expect() { # exit code, text, arguments...
    local want=$1 text=$2 code=0
    shift 2
    "$HONE" "$@" >"$work/out" 2>"$work/err" </dev/null || code=$?
    [ $code = "$want" ] && [ ! -s "$work/out" ] && [ "$(wc -l <"$work/err")" = 1 ] && [ ! -e "$work/o.onnx" ] &&
        grep -q -- "^hone: .*$text" "$work/err" && return
    echo "hone $*: exit $code, expected $want with '$text' alone; got: $(cat "$work/err")"
    bad=1
}
commands=$("$HONE" help | sed -n 's/^  \([a-z]*\)  *[a-z].*/\1/p')
[ "$(echo "$commands" | wc -w)" -ge 12 ] || { echo "hone help lists too few commands"; exit 1; }
for command in $commands; do
    for ask in "help $command" "$command --help" "$command -h"; do
        "$HONE" $ask >"$work/out" 2>"$work/err" || { echo "hone $ask: exit $?"; bad=1; }
        grep -q "^usage: hone $command" "$work/out" && [ ! -s "$work/err" ] || { echo "hone $ask: no usage"; bad=1; }
    done
    expect 2 "unknown option '--nonsense'; 'hone help $command' shows its options" $command --nonsense
done
expect 2 "'nonsense' is no command; 'hone help' lists them" nonsense
expect 2 "'nonsense' is no command" help nonsense
"$HONE" 2>"$work/err" && bad=1
grep -q "^usage: hone COMMAND" "$work/err" || { echo "hone alone shows no usage"; bad=1; }
for command in inspect run bench; do
    expect 2 "needs a MODEL" $command
    expect 3 "cannot open '$work/none'" $command "$work/none"
    expect 3 "is a folder" $command "$work/folder"
    expect 3 "the file is empty" $command "$work/empty"
    expect 3 "$work/text" $command "$work/text"
    expect 2 "one argument too many" $command "$model" "$model"
    expect 2 "has no input 'foo'" $command "$model" --shape foo=1x2
    expect 2 "rank 4" $command "$model" --shape image=1x2
done
for command in run bench "optimize -o $work/o.onnx"; do
    expect 4 "there is no device 'tpu'" $command "$model" --device tpu
    expect 3 "there is no data at" $command "$model" --data "$work/none"
    expect 3 "neither .npz files nor" $command "$model" --data "$work/folder"
    expect 2 "batch must be" $command "$model" --batch -1
    expect 2 "--threads: 'x' is not a whole number" $command "$model" --threads x
done
expect 2 "NAME=FILE" run "$model" --input image
expect 3 "cannot open" run "$model" --input image="$work/none.npy"
for seconds in 0 -1 nan inf; do
    expect 2 "seconds" bench "$model" --seconds $seconds
    expect 2 "seconds" optimize "$model" -o "$work/o.onnx" --seconds $seconds
done
expect 3 "cannot open" bench "$model" --vs "$work/none"
expect 2 "needs MODEL and -o OUT" optimize "$model"
expect 3 "cannot open" optimize "$work/none" -o "$work/o.onnx"
expect 2 "'foo' is no strategy (graph, ties, tf32" optimize "$model" -o "$work/o.onnx" --only graph,foo
expect 2 "'foo' is no strategy" optimize "$model" -o "$work/o.onnx" --force foo
expect 5 "cannot create '$work/none/o.onnx'" optimize "$model" -o "$work/none/o.onnx"
expect 5 "cannot make the folder" optimize "$model" -o "$work/o.onnx" --report "$work/none/report"
expect 3 "is no report" optimize "$model" -o "$work/o.onnx" --replay "$work/text"
for command in topo place nccl; do
    expect 3 "cannot open '$work/none'" $command "$work/none"
    expect 3 "folder" $command "$work/folder"
    expect 3 "." $command "$work/empty"
    expect 3 "." $command "$work/text"
done
expect 2 "at least one DIR" check
# Numbers: NaN and infinity are none; each option names its own range.
expect 2 "'nan' is not a number" place "$work/none" --memory-gib nan
expect 2 "'inf' is not a number" inspect "$model" --balance inf
expect 2 "--gpus must be from 1 to 64" place "$work/none" --gpus 0
expect 2 "--top must be from 1" place "$work/none" --top 0
expect 2 "no instruction set level" run "$model" --isa sse9
HONE_ISA=sse9 expect 2 "no instruction set level" inspect "$model"
# A device, a pipe or a link in the output's place stays what it is.
mkfifo "$work/pipe"
expect 5 "device, pipe or socket" optimize "$model" -o "$work/pipe"
[ -p "$work/pipe" ] || { echo "the pipe was replaced"; bad=1; }
rm "$work/pipe"
for sink in "help" "help topo" "version"; do
    code=0
    "$HONE" $sink >/dev/full 2>"$work/err" || code=$?
    [ $code = 5 ] || { echo "hone $sink to a full disk: exit $code"; bad=1; }
done
expect 3 "cannot read the folder" check "$work/none"
expect 2 "needs -o FILE" record
expect 2 "is none of gres, check" slurm nonsense
[ "$(HONE_THREADS=x "$HONE" version 2>&1 >/dev/null)" = "hone: HONE_THREADS: 'x' is not a whole number from 0 to 1024" ] || { echo "a broken environment variable"; bad=1; }
[ -z "$(ls "$work" | grep -v -E '^(empty|folder|text|out|err)$')" ] || { echo "left behind: $(ls "$work")"; bad=1; }
exit $bad
