#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# TEST-TIMEOUT 120
# Labels of pods from the kubelet, asked over real gRPC: cards, MIG instances, shared cards, names of old and of Google's
# device plugins; a kubelet that is not there, hangs, fails, talks nonsense, comes back.
set -euo pipefail
dir=$(mktemp -d)
python=
for p in python3 /usr/bin/python3; do "$p" -c 'import grpc' 2>/dev/null && { python=$p; break; }; done
[ -n "$python" ] || { rm -rf "$dir"; echo "no python3-grpcio"; exit 77; }
kubelet= exporter=
trap 'for p in $kubelet $exporter; do kill "$p" 2>/dev/null || true; done; wait; rm -rf "$dir"' EXIT
fail() { echo "FAILED: $*"; cat "$dir/page" "$dir/log" 2>/dev/null | grep -v '^#' | grep -E 'POWER_USAGE|process_gpu_run|kubelet' | head -40; exit 1; }
serve() { # the kubelet comes up
    rm -f "$dir/s"
    "$python" "$HONE_SOURCE_DIR/tests/fleet/kubelet.py" "$dir/s" "$dir/says" >"$dir/up" 2>"$dir/kubelet.err" & kubelet=$!
    for _ in $(seq 100); do grep -q serving "$dir/up" && return; sleep 0.1; done
    fail "the fake kubelet does not start: $(cat "$dir/kubelet.err")"
}
once() { HONE_NVML_LIB=$HONE_BUILD_DIR/fakes/libnvidia-ml.so HONE_DCGM_LIB=/nonexistent HONE_FAKE_NVML=$1 \
    "$HONE" exporter --once --source nvml --pod-resources-kubelet-socket "$dir/s" >"$dir/page" 2>"$dir/log" || fail "exporter $1"; }
power() { grep "^DCGM_FI_DEV_POWER_USAGE{gpu=\"$1\"" "$dir/page"; }
says() { printf '%s' "$1" >"$dir/says"; }

says '[]'
serve
once cards=3
uuid() { power "$1" | grep -v GPU_I_ID | sed 's/.*UUID="\([^"]*\)".*/\1/'; }
u0=$(uuid 0) u1=$(uuid 1) u2=$(uuid 2)
! power 0 | grep -q 'pod=' || fail "a pod from nowhere"
grep -q '^hone_kubelet_up{\?.* 1$\|^hone_kubelet_up 1$' "$dir/page" || fail "kubelet up"

# Card 0 is a container's, card 1 is shared by two, card 2 is nobody's; the pod without a card has no line.
says "[[\"train-0\",\"team-a\",[[\"side\",\"cpu\",[]],[\"main\",\"nvidia.com/gpu\",[\"$u0\"]]]],
       [\"s1\",\"b\",[[\"c\",\"nvidia.com/gpu.shared\",[\"$u1::0\"]]]],[\"s2\",\"b\",[[\"c\",\"nvidia.com/gpu.shared\",[\"$u1::1\"]]]],
       [\"web\",\"b\",[[\"c\",\"x/y\",[\"eth0\"]]]]]"
once cards=3
power 0 | grep -q 'DCGM_FI_DRIVER_VERSION="[^"]*",container="main",namespace="team-a",pod="train-0"' || fail "card 0: $(power 0)"
! power 1 | grep -q 'pod=' || fail "a shared card has one container: $(power 1)"
! power 2 | grep -q 'pod=' || fail "nobody's card"
[ "$(grep -c '^DCGM_FI_DEV_POWER_USAGE{' "$dir/page")" = 3 ] || fail "a card twice"
promtool check metrics <"$dir/page" >"$dir/judged" 2>&1 || ! grep -q error "$dir/judged" || fail "promtool: $(cat "$dir/judged")"
# All replicas of a card in one container are its own; names of cards by minor number.
says "[[\"p\",\"n\",[[\"c\",\"r\",[\"$u1::0\",\"$u1::1\"]]]],[\"g\",\"n\",[[\"c\",\"r\",[\"nvidia2\"]]]]]"
once cards=3
power 1 | grep -q 'container="c",namespace="n",pod="p"' || fail "replicas of one: $(power 1)"
power 2 | grep -q 'pod="g"' || fail "by number: $(power 2)"
# A card that is split: each instance is its own container's, the card nobody's.
says '[]'
once cards=1,mig=0
gis=$(grep '^hone_gpu_memory_used_bytes{' "$dir/page" | sed -n 's/.*GPU_I_ID="\([0-9]*\)".*/\1/p' | sort -u)
gi() { echo "$gis" | sed -n "$1p"; }
[ "$(echo "$gis" | wc -l)" = 2 ] || fail "no two instances: $gis"
says "[[\"half\",\"n\",[[\"c1\",\"nvidia.com/mig\",[\"nvidia0/gi$(gi 1)\"]]]],[\"rest\",\"n\",[[\"c2\",\"nvidia.com/mig\",[\"MIG-$u0/$(gi 2)/0\"]]]]]"
once cards=1,mig=0
grep '^hone_gpu_memory_used_bytes{' "$dir/page" | grep "GPU_I_ID=\"$(gi 1)\"" | grep -q 'pod="half"' || fail "instance $(gi 1)"
grep '^hone_gpu_memory_used_bytes{' "$dir/page" | grep "GPU_I_ID=\"$(gi 2)\"" | grep -q 'pod="rest"' || fail "instance $(gi 2)"
! grep -v GPU_I_ID "$dir/page" | grep -q 'pod="\(half\|rest\)"' || fail "the split card has a pod"

# What a kubelet may do wrong: the page comes all the same, without pods, and says so once.
for word in fail garbage big hang; do
    says "$word"
    begin=$SECONDS
    once cards=1
    [ $((SECONDS - begin)) -le 6 ] || fail "$word: the page took $((SECONDS - begin)) s"
    ! power 0 | grep -q 'pod=' || fail "$word: a pod"
    grep -q '^hone_kubelet_up 0$' "$dir/page" || fail "$word: the kubelet is up"
    [ "$(grep -c "kubelet's pod resources cannot be read" "$dir/log")" = 1 ] || fail "$word: not said once"
done
kill "$kubelet"; wait "$kubelet" 2>/dev/null || true; kubelet=
rm -f "$dir/s"
once cards=1
grep -q "cannot connect to '$dir/s'" "$dir/log" || fail "no socket"

# A live exporter: the kubelet comes, and its labels with it.
says "[[\"late\",\"n\",[[\"c\",\"r\",[\"$u0\"]]]]]"
HONE_NVML_LIB=$HONE_BUILD_DIR/fakes/libnvidia-ml.so HONE_DCGM_LIB=/nonexistent HONE_FAKE_NVML=cards=1 \
    "$HONE" exporter --source nvml --history none --listen 127.0.0.1:0 --pod-resources-kubelet-socket "$dir/s" 2>"$dir/log" & exporter=$!
for _ in $(seq 100); do url=$(sed -n 's/.*at \(http[^ ]*\).*/\1/p' "$dir/log"); [ -n "$url" ] && break; sleep 0.1; done
[ -n "$url" ] || fail "no exporter"
serve
for _ in $(seq 120); do curl -s "$url" >"$dir/page"; power 0 | grep -q 'pod="late"' && break; sleep 0.1; done
power 0 | grep -q 'container="c",namespace="n",pod="late"' || fail "the label does not come"
grep -q "can be read again" "$dir/log" || fail "nothing said"
# It ends at once, also while the kubelet hangs.
says hang
sleep 5.5
begin=$(date +%s%N)
kill "$exporter"; wait "$exporter" || true; exporter=
[ $(($(date +%s%N) - begin)) -lt 1500000000 ] || fail "ends late"
# Only where it is asked for, or in its usual place.
HONE_NVML_LIB=$HONE_BUILD_DIR/fakes/libnvidia-ml.so HONE_FAKE_NVML=cards=1 "$HONE" exporter --once --source nvml >"$dir/page" 2>"$dir/log"
[ -e /var/lib/kubelet/pod-resources/kubelet.sock ] || ! grep -q kubelet "$dir/page" "$dir/log" || fail "a kubelet from nowhere"
echo ok
