#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# TEST-TIMEOUT 120
# hone doctor --p2p on a scripted driver: right, corrupt, stalled, refused, slow, lost; and on no driver.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export HONE_CUDA_LIB=$HONE_BUILD_DIR/fakes/libcuda.so HONE_NVML_LIB=$dir/none.so
fail() { echo "FAILED: $*"; cat "$dir/out" "$dir/err"; exit 1; }
# run SCRIPT WANTED-EXIT [options]: output in $dir/out
run() {
    local script=$1 want=$2 code=0
    shift 2
    HONE_FAKE_CUDA=$script "$HONE" doctor --p2p --mib 1 --timeout "${timeout:-8}" "$@" > "$dir/out" 2> "$dir/err" || code=$?
    [ $code = "$want" ] || fail "$script: exit $code, not $want"
}
is() { jq -e "$1" "$dir/out" > /dev/null || fail "$1"; }
printf '      GPU0  GPU1  GPU2\nGPU0   X    PIX  SYS\nGPU1  PIX    X   SYS\nGPU2  SYS  SYS   X\n' > "$dir/topo.txt"

run cards=3,gbs=20 0 --json --topo "$dir/topo.txt"
is '.healthy and (.pairs | length == 6) and (.cards | length == 3) and .advice == null'
is 'all(.pairs[]; .verdict == "ok" and .wrong_bytes == 0 and .gbs > 19.9 and .gbs < 20.1 and .both_ways_gbs > 19 and .peer_access)'
is '.pairs[0].link == "PIX" and .pairs[0].ceiling_gbs == 24 and .pairs[1].link == "SYS"'
is '.note == null'
run cards=2 0
grep -q 'Every copy arrived as it was sent' "$dir/out" || fail "no verdict in words"

# A file of another machine is no comparison, and that is said once.
run cards=2 0 --topo "$dir/topo.txt"
[ "$(grep -c 'names 3 cards, this machine has 2: the links of 2' "$dir/out")" = 1 ] || fail "no note"
run cards=2 0 --json --topo "$dir/topo.txt"
is '(.note | test("names 3 cards")) and all(.pairs[]; .link == null)'

# Bytes that stay old: 4096 of them, in one direction of one pair.
run cards=3,corrupt=1-2 1 --json
is '.healthy == false and (.advice | test("iommu=pt")) and ([.pairs[] | select(.verdict == "corrupt")] | length == 1)'
is '.pairs[] | select(.from == 1 and .to == 2) | .verdict == "corrupt" and .wrong_bytes > 4000 and (.finding | test("first at offset 409"))'

# A stall ends by its deadline and takes no other pair along.
begin=$SECONDS
timeout=2 run cards=3,hang=0-1 1 --json
[ $((SECONDS - begin)) -lt 30 ] || fail "the stall held the test for $((SECONDS - begin)) s"
is '([.pairs[] | .verdict] | sort) == ["ok","ok","ok","ok","ok","stalled"] and .pairs[0].gbs == null'
is '.pairs[0].finding | test("copying the pattern did not end in time")'

# No access: data goes through the host and arrives; a finding only where NVLink joins the cards.
run cards=3,noaccess=0-1 0 --json
is '([.pairs[] | select(.verdict == "no_access")] | length == 2) and .healthy'
printf '      GPU0  GPU1\nGPU0   X    NV8\nGPU1  NV8    X\n' > "$dir/nv.txt"
run noaccess=1-0 1 --json --topo "$dir/nv.txt"
is '.healthy == false and (.pairs[0].finding | test("although NVLink joins them"))'

run cards=3,slow=2-0,gbs=9 1 --json --topo "$dir/topo.txt"
is '[.pairs[] | select(.verdict == "slow")] | map([.from, .to]) | contains([[2,0]])'
# Without a link to compare with, one direction shows against the other.
run cards=3,slow=2-0,gbs=9 1 --json
is '[.pairs[] | select(.verdict == "slow")] | map([.from, .to]) == [[2,0]]'
is '.pairs[] | select(.verdict == "slow") | .finding | test("GPU2 to GPU0: 0.9 GB/s, and 9.0 GB/s the other way")'
run gbs=150 0 --json --topo "$dir/nv.txt" # of 200
is 'all(.pairs[]; .verdict == "ok" and .ceiling_gbs == 200)'
run gbs=90 0 --json --topo "$dir/nv.txt" # of 102 that copies of 1 MiB can reach
is 'all(.pairs[]; .verdict == "ok")'
run gbs=90 1 --mib 64 --topo "$dir/nv.txt"
grep -q 'GPU0 to GPU1: 90.0 GB/s, 45 % of the 200 GB/s that NV8 gives' "$dir/out" || fail "slow in words"

# A lost context or a dead process: that pair has failed, the others are tested.
run cards=3,error=0-2 1 --json
is '(.pairs | length == 6) and ([.pairs[] | select(.verdict == "failed")] | map([.from, .to]) == [[0,2]])'
run cards=3,crash=2-1 1 --json
is '(.pairs | length == 6) and (.pairs[] | select(.verdict == "failed") | .finding | test("process died"))'

# Nothing to test: one line, exit 4.
for script in cards=0 cards=1 init=100 init=803; do
    run $script 4
    [ ! -s "$dir/out" ] && [ "$(wc -l < "$dir/err")" = 1 ] || fail "$script is not one line"
done
HONE_CUDA_LIB=$dir/none.so run cards=2 4
unset HONE_CUDA_LIB
run cards=2 4
grep -q 'libcuda' "$dir/err" || fail "the missing driver is not named"
for bad in "--mib 0" "--timeout 0" "--timeout nan"; do
    code=0; "$HONE" doctor --p2p $bad > /dev/null 2>&1 || code=$?; [ $code = 2 ] || fail "$bad: exit $code"
done
for alone in "--mib 8" "--topo $dir/topo.txt"; do
    code=0; "$HONE" doctor --no_measure $alone > "$dir/out" 2> "$dir/err" || code=$?
    [ $code = 2 ] && [ ! -s "$dir/out" ] && grep -q -- "${alone%% *} belongs to --p2p" "$dir/err" || fail "$alone alone: exit $code"
done
echo "peer-to-peer verdicts hold"
