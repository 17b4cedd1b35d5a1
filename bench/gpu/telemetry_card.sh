#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What telemetry has to show on a card, in about three minutes: the doctor's measured ceilings beside the same measured with
# PyTorch and nvcc, what sampling costs, what exec costs and how right its joules and diagnosis are, joules of hone bench.
# Nothing of the card is set. The last lines are the table.
#
#   bench/gpu/telemetry_card.sh HONE OUT [PARTS]
#
# HONE is the built command, OUT a folder for all that is said, PARTS some of "doctor peer exec overhead ends bench cost".
# Needs PyTorch with torchvision and nvidia-ml-py; nvcc for the launch times beside the doctor's.
set -u
[ $# -ge 2 ] || { sed -n '7p' "$0" | cut -c5-; exit 2; }
hone=$(readlink -f "$1") out=$2 parts=${3:-doctor peer exec overhead ends bench cost}
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$out"
export HONE_HISTORY=none PYTHONUNBUFFERED=1
wants() { case " $parts " in *" $1 "*) true;; *) false;; esac; }
part() { # NAME LIMIT COMMAND...: its output goes to OUT/NAME.txt; how long it took and how it ended is said
    local name=$1 limit=$2 begin=$(date +%s%N) rc=0
    shift 2
    timeout "$limit" "$@" > "$out/$name.txt" 2> "$out/$name.err" || rc=$?
    awk -v n="$name" -v rc=$rc -v ns=$(($(date +%s%N) - begin)) 'BEGIN { printf "part %-14s %5.1f s, status %d\n", n, ns / 1e9, rc }'
}

cat > "$out/peer.py" << 'PY'
import time, torch
torch.backends.cuda.matmul.allow_tf32 = False
def best(f, least=0.03):
    f(); torch.cuda.synchronize()
    runs, best = 1, 1e9
    done = 0
    while done < 3:
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        a.record()
        for _ in range(runs): f()
        b.record(); b.synchronize()
        ms = a.elapsed_time(b)
        if ms < 1e3 * least: runs *= 2; continue
        best = min(best, ms / runs); done += 1
    return best * 1e-3
def say(name, value): print(f"{name}\t{value:.1f}", flush=True)
x = torch.empty(1 << 30, dtype=torch.uint8, device="cuda"); y = torch.empty_like(x)
say("device copy", 2 * x.numel() / best(lambda: y.copy_(x)) * 1e-9)
h = torch.empty(256 << 20, dtype=torch.uint8, pin_memory=True); d = x[: h.numel()]
say("host to device", h.numel() / best(lambda: d.copy_(h, non_blocking=True)) * 1e-9)
say("device to host", h.numel() / best(lambda: h.copy_(d, non_blocking=True)) * 1e-9)
n = 8192
flop = 2 * n ** 3 * 1e-12
def numbers(dtype): return (torch.rand(n, n, device="cuda") / 2 + 0.5).mul_(torch.randint(0, 2, (n, n), device="cuda") * 2 - 1).to(dtype)
for name, dtype, tf32 in (("float32", torch.float32, False), ("tf32", torch.float32, True), ("float16", torch.float16, False), ("bfloat16", torch.bfloat16, False)):
    torch.backends.cuda.matmul.allow_tf32 = tf32
    a, b = numbers(dtype), numbers(dtype)
    c = torch.empty_like(a)
    say(name + " product", flop / best(lambda: torch.matmul(a, b.t(), out=c)))
one = torch.ones((), device="cuda")
a, b = numbers(torch.float8_e4m3fn), numbers(torch.float8_e4m3fn).t()
for fast in (False, True):
    say("float8 product" + (", fast accumulation" if fast else ""),
        flop / best(lambda: torch._scaled_mm(a, b, scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=fast)))
a = torch.randint(-128, 127, (n, n), dtype=torch.int8, device="cuda"); b = torch.randint(-128, 127, (n, n), dtype=torch.int8, device="cuda").t()
say("int8 product", flop / best(lambda: torch._int_mm(a, b)))
PY
cat > "$out/launch.cu" << 'CU'
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>
__global__ void empty() {}
static double now() { return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count(); }
int main() {
    cudaStream_t s;
    cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
    double best = 1e9;
    std::vector<double> waits;
    for (int block = 0; block < 5; block++) {
        double t = now();
        for (int i = 0; i < 1000; i++) empty<<<1, 32, 0, s>>>();
        cudaStreamSynchronize(s);
        if (block) best = std::min(best, (now() - t) / 1000);
    }
    for (int i = 0; i < 400; i++) {
        double t = now();
        empty<<<1, 32, 0, s>>>();
        cudaStreamSynchronize(s);
        waits.push_back(now() - t);
    }
    std::nth_element(waits.begin(), waits.begin() + 200, waits.end());
    printf("launch\t%.2f\nlaunch and wait\t%.2f\n", best, waits[200]);
}
CU
peer() {
    (nvcc -O2 -arch=native -o "$out/launch" "$out/launch.cu" 2>&1 || nvcc -O2 -o "$out/launch" "$out/launch.cu") > "$out/nvcc.log" 2>&1 &
    python3 "$out/peer.py"
    wait
    "$out/launch"
    rm -f "$out/launch"
}
overhead() {
    local load
    for load in "resnet50 20 0.7" "gemm 12 0.5" "adds 16 0.4"; do
        "$hone" exec --source nvml+host --quiet --json "$out/overhead-${load%% *}.json" -- python3 "$here/exec_overhead.py" $load
    done
}
# What exec takes at its start and end, in seconds: three of each in turn.
ends() {
    python3 - "$hone" << 'PY'
import subprocess, sys, time
def took(command):
    t = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - t
for source in ("nvml+host", "none"):
    plain, wrapped = [], []
    for _ in range(3):
        plain.append(took(["sleep", "0.1"]))
        wrapped.append(took([sys.argv[1], "exec", "--source", source, "--", "sleep", "0.1"]))
    print(f"exec of a command of 0.1 s, source {source}: {sorted(wrapped)[1] - sorted(plain)[1]:+.3f} s at start and end together (all: "
          + " ".join(f"{w - p:+.3f}" for w, p in zip(wrapped, plain)) + ")")
PY
}
doctor() { # JSON too, from one measurement each
    "$hone" doctor --json --source nvml > "$out/doctor.json"
    "$hone" doctor --source nvml --no-measure
}
bench() {
    for batch in 1 50; do
        "$hone" bench "$here/../../examples/fashion/fashion_resnet.onnx" --device cuda --batch $batch --seconds 2
    done
}
export -f peer overhead ends doctor bench
export hone out here

nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem,power.draw,power.limit,pcie.link.gen.current,pcie.link.width.current --format=csv > "$out/card.txt" 2>&1
if wants doctor; then part doctor 60 bash -c doctor; fi
if wants peer; then part peer 60 bash -c peer; fi
if wants exec; then part exec 90 python3 "$here/diagnose_loops.py" "$out/loops" --hone "$hone" --seconds "${LOOP_SECONDS:-3}" --parts exec; fi
if wants overhead; then part overhead 90 bash -c overhead; fi
if wants ends; then part ends 20 bash -c ends; fi
if wants bench; then part bench 30 bash -c bench; fi
if wants cost; then part cost 90 env STATES="${STATES:-load}" SOURCES="${SOURCES:-nvml}" "$here/telemetry_cost.sh" "$hone" "${COST_SECONDS:-10}"; fi

echo "--- the table"
cat "$out/card.txt"
[ ! -s "$out/doctor.json" ] || python3 - "$out" << 'PY'
import json, sys
d = json.load(open(sys.argv[1] + "/doctor.json"))
peer = {}
try: peer = dict(line.rstrip("\n").split("\t") for line in open(sys.argv[1] + "/peer.txt"))
except OSError: pass
g = d["gpu"]["devices"][0]
print(f"{'doctor':32} {'hone':>9} {'beside':>9} {'sheet':>7}  % of it")
for c in g["ceilings"]:
    s = c["sheet"]
    print(f"{c['name']:32} {c['measured']:9.2f} {peer.pop(c['name'], '-'):>9} {s if s else '-':>7}  {100 * c['measured'] / s:.0f}" if s else
          f"{c['name']:32} {c['measured']:9.2f} {peer.pop(c['name'], '-'):>9} {'-':>7}", c["unit"])
for name, value in peer.items(): print(f"{name:32} {'-':>9} {value:>9}")
print("sheet:", g["sheet"] and g["sheet"]["name"], "| host ceilings:", ", ".join(f"{c['name']} {c['measured']:.1f}" for c in d["cpu"]["ceilings"]))
for f in d["findings"]: print(f["level"], f["id"], "|", f["where"], "|", f["what"])
PY
for name in exec overhead ends bench cost; do [ ! -s "$out/$name.txt" ] || { echo "-- $name"; cat "$out/$name.txt"; }; done
for f in "$out"/*.err; do [ ! -s "$f" ] || { echo "-- ${f##*/}"; tail -5 "$f"; }; done
