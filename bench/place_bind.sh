#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The measured win of binding: two cache-bound jobs at once, each on CPUs of its own (chosen and claimed by
# `hone exec --place`) against the same two under `hone exec` alone. Pairs in the order A B B A; the median of
# the paired ratios with a bootstrap interval. usage: bench/place_bind.sh [ROUNDS] [KIB] [SECONDS] [THREADS]; needs a built build/
set -eu
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
gcc -O2 -std=gnu11 -D_GNU_SOURCE bench/place_bind.c -lpthread -o "$work/place_bind"
export HONE_CLAIMS="$work/claims"
echo "load before: $(cut -d' ' -f1-3 /proc/loadavg); $(nproc) CPUs, $(lscpu | sed -n 's/^Model name: *//p')"
"$work/place_bind" build/hone "$@" >"$work/rounds"
echo "load after:  $(cut -d' ' -f1-3 /proc/loadavg)"
python3 - "$work/rounds" <<'PY'
import random, statistics as st, sys
rows = [l.split() for l in open(sys.argv[1])]
pairs = []
for i in range(0, len(rows) - 1, 2):
    a, b = rows[i], rows[i + 1]
    bound, free = (a, b) if a[0] == "bound" else (b, a)
    pairs.append(([float(x) for x in bound[1:]], [float(x) for x in free[1:]]))
random.seed(1)
for k, (name, better) in enumerate((("requests/s", "more"), ("median us", "less"), ("99th percentile us", "less"))):
    ratio = [b[k] / f[k] for b, f in pairs]
    boot = sorted(st.median(random.choices(ratio, k=len(ratio))) for _ in range(2000))
    print(f"{name:20} bound {st.median(b[k] for b, _ in pairs):10.1f}  free {st.median(f[k] for _, f in pairs):10.1f}"
          f"  ratio {st.median(ratio):.3f} [{boot[50]:.3f}, {boot[1949]:.3f}]  ({better} is better, {len(pairs)} pairs)")
PY
