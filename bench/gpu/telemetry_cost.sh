#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What watching one card costs: CPU time a second of `hone exporter` (sampler, history, no HTTP clients) at 10 and
# 100 Hz, idle and under load, and which metrics are there. Needs a card and its driver; nothing is set.
#
#   bench/gpu/telemetry_cost.sh HONE [SECONDS] [LOAD COMMAND...]
#
# SECONDS (60) a figure. STATES ("idle load") and SOURCES ("nvml nvml+host") choose. LOAD runs beside the measurement and is ended by its pid; by default a matrix product in
# PyTorch where that is there, else there is no load.
set -eu
hone=$1; seconds=${2:-60}; shift; [ $# -gt 0 ] && shift
folder=$(mktemp -d)
pid=; load=
trap '[ -z "$pid" ] || kill "$pid" 2>/dev/null || true; [ -z "$load" ] || kill "$load" 2>/dev/null || true; rm -rf "$folder"' EXIT

# CPU time of all threads of PID in nanoseconds
cpu_ns() { cat /proc/"$1"/task/*/schedstat | awk '{ sum += $1 } END { printf "%.0f", sum }'; }

measure() { # NAME SOURCE HZ
    rm -f "$folder/h.db"*
    "$hone" exporter --listen none --source "$2" --hz "$3" --history "$folder/h.db" 2>"$folder/err" & pid=$!
    sleep 5 # started, first readings of every kind are made
    kill -0 $pid 2>/dev/null || { cat "$folder/err" >&2; exit 1; }
    local before after begin end
    before=$(cpu_ns $pid); begin=$(date +%s%N)
    sleep "$seconds"
    after=$(cpu_ns $pid); end=$(date +%s%N)
    kill -TERM $pid; wait $pid || true; pid=
    awk -v name="$1" -v source="$2" -v hz="$3" -v cpu=$((after - before)) -v ns=$((end - begin)) \
        'BEGIN { printf "%-6s %-10s %4d Hz  %6.3f %% of one CPU\n", name, source, hz, 100 * cpu / ns }'
}

"$hone" exporter --once --source nvml+host >"$folder/page"
metrics() { sed -n "s/^\\($1[a-z0-9_]*\\){.*/\\1/p" "$folder/page" | sort -u; }
echo "hone_gpu_*: $(metrics hone_gpu_ | wc -l) metrics of the card, $(metrics hone_host_ | wc -l) of the host are there:"
metrics hone_gpu_ | tr '\n' ' ' | fold -s -w 110; echo

for state in ${STATES:-idle load}; do
    if [ $state = load ]; then
        if [ $# -gt 0 ]; then "$@" >/dev/null 2>&1 & load=$!
        elif python3 -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null; then
            python3 -c '
import torch
a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16); b = a.clone()
while True:
    for _ in range(50): torch.matmul(a, b)
    torch.cuda.synchronize()' & load=$!
        else echo "no load: neither a command nor PyTorch with a card"; break; fi
        sleep 10
    fi
    for hz in 10 100; do
        for source in ${SOURCES:-nvml nvml+host}; do measure $state "$source" $hz; done
    done
done
