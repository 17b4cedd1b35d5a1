#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The commands' contract: exit statuses, keys of the JSON, one sentence on stderr, nothing half-written.
set -u
t="$HONE_SOURCE_DIR/tests/place/topo"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fails=0
bad() { echo "FAILED: $*"; fails=$((fails + 1)); }
expect_exit() { # status words command...
    local want=$1 words=$2; shift 2
    "$@" >"$work/out" 2>"$work/err"; local got=$?
    [ $got = "$want" ] || bad "exit $got, not $want: $*"
    [ -z "$words" ] || grep -q -- "$words" "$work/err" || bad "no '$words' in: $(cat "$work/err")"
    [ "$want" = 0 ] || [ ! -s "$work/out" ] || bad "output beside an error: $*"
    [ "$want" = 0 ] || [ "$(wc -l <"$work/err")" = 1 ] || bad "not one line of error: $*"
}
printf 'NVIDIA-SMI has failed because it could not communicate with the NVIDIA driver.\n' >"$work/fail.txt"
expect_exit 3 "no topology matrix" "$HONE" topo "$work/fail.txt"
expect_exit 3 "no topology matrix" "$HONE" topo "$work/fail.txt" --json
: >"$work/empty.txt"
expect_exit 3 "no topology matrix" "$HONE" topo "$work/empty.txt"
expect_exit 3 "No such file" "$HONE" topo "$work/absent.txt"
expect_exit 2 "" "$HONE" topo --no-such-option
expect_exit 2 "no card 9" "$HONE" place "$t/a800-8g-6nic.txt" --only 9
expect_exit 2 "is not 8 cards" "$HONE" place "$t/a800-8g-6nic.txt" --gpus 8 --tp 3
expect_exit 1 "needs 9 cards and 8 of 8" "$HONE" place "$t/a800-8g-6nic.txt" --gpus 9
expect_exit 1 "6 in use" "$HONE" place "$t/a800-8g-6nic.txt" --gpus 4 --busy 0-5
expect_exit 3 "no topology matrix" "$HONE" topo "$work/fail.txt" --picture "$work/none.svg"
[ ! -e "$work/none.svg" ] || bad "a picture of nothing was written"
expect_exit 2 "neither .svg nor .html" "$HONE" topo "$t/a800-8g-6nic.txt" --picture "$work/none.png"
[ ! -e "$work/none.png" ] || bad "a picture with a strange name was written"
expect_exit 2 "exclude each other" "$HONE" topo "$t/a800-8g-6nic.txt" --json --picture "$work/none.svg"
expect_exit 2 "the shape 3 x 1 (tensor, pipeline) is not 8 cards" "$HONE" place "$t/a800-8g-6nic.txt" --gpus 8 --tp 3
expect_exit 2 "the shape 3 x 1 x 2 (tensor, pipeline, data) is not 1 card" "$HONE" place "$t/a800-8g-6nic.txt" --gpus 1 --tp 3 --dp 2
"$HONE" place "$t/a800-8g-6nic.txt" --gpus 2 --busy 0,5 | grep -q "in use is unknown" && bad "asks for a --busy that was given"
cat "$t/a800-8g-6nic.txt" | "$HONE" topo - --json >"$work/a.json" || bad "from standard input"
jq -e '(.gpus|length)==8 and (.nics|length)==6 and (.matrix|length)==14 and .matrix[0][1]=="NV8" and .complete==true
    and (.damage|length)==0 and (.advice|length)>0 and .gpus[4].numa==1 and .gpus[0].cpus=="0-27,56-83"
    and .nics[0].name=="mlx5_0"' "$work/a.json" >/dev/null || bad "keys of topo --json"
# The JSON is a source itself, and gives the same placement.
"$HONE" place "$t/a800-8g-6nic.txt" --gpus 2 --nics 1 --json >"$work/p1.json" || bad "place"
"$HONE" place "$work/a.json" --gpus 2 --nics 1 --json >"$work/p2.json" || bad "place from JSON"
cmp -s "$work/p1.json" "$work/p2.json" || bad "JSON and text place differently"
jq -e '.gpus==[0,1] and .cuda_visible_devices=="0,1" and .env.CUDA_DEVICE_ORDER=="PCI_BUS_ID"
    and (.ranks|length)==2 and .ranks[0].nic=="mlx5_0" and .exact==true and (.runners_up|length)==3
    and (.runners_up[0].behind|length)>0 and ([.hints[].reason|length>0]|all)' "$work/p1.json" >/dev/null ||
    bad "keys of place --json"
"$HONE" place "$t/a800-8g-6nic.txt" --gpus 2 --explain | grep -q "behind the best by" || bad "--explain"
"$HONE" topo "$t/a800-8g-6nic.txt" --picture "$work/a.svg" || bad "picture"
python3 -c "import sys, xml.dom.minidom as x; x.parse(sys.argv[1])" "$work/a.svg" || bad "the SVG is no XML"
cmp -s "$work/a.svg" "$HONE_SOURCE_DIR/docs/img/topology-a800.svg" ||
    bad "docs/img/topology-a800.svg is not what the fixture gives: hone topo tests/place/topo/a800-8g-6nic.txt --picture docs/img/topology-a800.svg"
"$HONE" topo "$t/a800-8g-6nic.txt" --picture "$work/a.html" && grep -q "<svg" "$work/a.html" || bad "html"
"$HONE" topo "$t/a800-8g-6nic.txt" | grep -q "GPU0.*mlx5_0.*PIX" || bad "table"
HONE_NVML_LIB="$HONE_BUILD_DIR/fakes/libnvidia-ml.so" HONE_FAKE_NVML=cards=8,ampere,idle "$HONE" topo --json |
    jq -e '(.gpus|length)==8 and .matrix[0][7]=="NV8" and .gpus[0].nvlinks_active==8' >/dev/null || bad "live"
exit $((fails > 0))
