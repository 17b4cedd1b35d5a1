#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# TEST-TIMEOUT 240
# hone doctor's measured ceilings of cards, on a scripted driver: figures and their share of the data sheet, cards
# that somebody uses, that hang, fail, die or are hidden, too little memory, no driver, no cuBLASLt.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
fakes=$HONE_BUILD_DIR/fakes
export HONE_NVML_LIB=$fakes/libnvidia-ml.so HONE_DCGM_LIB=/nonexistent HONE_CUDA_LIB=$fakes/libcuda.so
export HONE_CUBLASLT_LIB=$fakes/libcublasLt.so FAKE_LT_MS=0.8
fail() { echo "FAILED: $*"; cat "$dir/out" "$dir/err"; exit 1; }
# run CARDS CUDA [options]: JSON in $dir/out; 1 is a machine with a fault
run() {
    local nvml=$1 cuda=$2 code=0
    shift 2
    HONE_FAKE_NVML=$nvml HONE_FAKE_CUDA=$cuda "$HONE" doctor --json --busy "$@" > "$dir/out" 2> "$dir/err" || code=$?
    [ $code -le 1 ] || fail "exit $code"
}
is() { jq -e "$1" "$dir/out" > /dev/null || fail "$1"; }
figure='def figure(n): .gpu.devices[0].ceilings[] | select(.name == n);'

# An 8192 product in 0.8 ms is 1374 TFLOP/s; the scripted copies run at membw and link.
run cards=2,idle cards=2,cc=90,membw=4100,link=52
is "$figure"' figure("device copy") | .measured > 4099 and .measured < 4101 and .sheet == 4815'
is "$figure"' figure("host to device") | .measured > 51 and .measured < 53 and .sheet > 63 and .sheet < 63.1'
is "$figure"' figure("float16 product") | .measured > 1374 and .measured < 1375 and .sheet == 989 and .unit == "TFLOP/s"'
is "$figure"' figure("launch") | .measured >= 0 and .sheet == null and .unit == "us"'
is '[.gpu.devices[0].ceilings[].name] | index("float8 product") and index("int8 product") and index("tf32 product") and index("device to host")'
is '.gpu.devices[1].ceilings | length == 11'
is '[.findings[] | select(.id | test("slow|not_measured|busy"))] == []'
run cards=1,idle cards=1
is '[.gpu.devices[0].ceilings[].name] | index("float8 product") == null and index("bfloat16 product")'

# Far below the sheet: each says what it means.
FAKE_LT_MS=20 run cards=1,idle cards=1,membw=500,link=3
is '[.findings[] | select(.id == "slow_memory")] | length == 1 and (.[0].what | test("device copy reaches 500.0 GB/s, 10 %"))'
is '[.findings[] | select(.id == "slow_product") | .what] | length >= 3 and any(test("float16 product reaches 55"))'
is '[.findings[] | select(.id == "slow_host_link" and .where == "gpu 0")] | length == 2'

# Somebody's card is left alone, unless asked.
code=0
HONE_FAKE_NVML=cards=1 HONE_FAKE_CUDA=cards=1 "$HONE" doctor --json > "$dir/out" 2> "$dir/err" || code=$?
[ $code -le 1 ] || fail "busy: exit $code"
is '.gpu.devices[0].ceilings == [] and ([.findings[] | select(.id == "busy")] | length == 1 and (.[0].what | test("at work .91 %")))'
HONE_FAKE_NVML=cards=1 HONE_FAKE_CUDA=cards=1 "$HONE" doctor --json --no-measure > "$dir/out" 2> "$dir/err" || true
is '.gpu.devices[0].ceilings == [] and ([.findings[] | select(.id == "busy")] == [])'

# One card hangs: its figures until then and the reason stay, the other card has all, and it ends in time.
begin=$SECONDS
run cards=2,idle cards=2,stall=0 --timeout 4
[ $((SECONDS - begin)) -lt 40 ] || fail "took $((SECONDS - begin)) s"
is '.gpu.devices[0].ceilings == [] and (.gpu.devices[1].ceilings | length == 10)'
is '[.findings[] | select(.id == "not_measured" and .where == "gpu 0") | .what] == ["it did not answer in 4 s while measuring '"'device copy'"'"]'
run cards=2,idle cards=2,lost=1
is '(.gpu.devices[0].ceilings | length == 10) and (.gpu.devices[1].ceilings | length == 3)'
is '[.findings[] | select(.id == "not_measured" and .where == "gpu 1") | .what | test("failed at .launch.: .*719")] == [true]'
run cards=1,idle cards=1,die=0
is '[.findings[] | select(.id == "not_measured") | .what | test("measured .device to host. ended by itself")] == [true]'
run cards=1,idle cards=1,free=200
is '[.findings[] | select(.id == "not_measured") | .what | test("175 MiB of its memory are free")] == [true]'
run cards=2,idle cards=1
is '[.findings[] | select(.id == "not_measured" and .where == "gpu 1") | .what | test("CUDA does not show this card")] == [true]'

# Without libraries there are fewer figures and one sentence, and the rest of the report is whole.
HONE_CUBLASLT_LIB=/nonexistent run cards=1,idle cards=1
is '(.gpu.devices[0].ceilings | length == 5) and ([.findings[] | select(.id == "no_products")] | length == 1)'
HONE_CUDA_LIB=/nonexistent run cards=1,idle cards=1
is '.gpu.devices[0].ceilings == [] and ([.findings[] | select(.id == "no_ceilings")] | length == 1 and (.[0].what | test("libcuda")))'
FAKE_LT_ALGOS=0 run cards=1,idle cards=1
is '.gpu.devices[0].ceilings | length == 5'
HONE_FAKE_NVML=cards=1 HONE_FAKE_CUDA=cards=1 "$HONE" doctor --busy > "$dir/out" 2> "$dir/err" || true
grep -q '^  device copy  *1000.0 GB/s  (21 % of 4815)' "$dir/out" || fail "no table"
"$HONE" doctor --timeout 0 > "$dir/out" 2> "$dir/err" && fail "timeout 0"
grep -q -- '--timeout must be from 0.1' "$dir/err" || fail "timeout sentence"
echo ok
