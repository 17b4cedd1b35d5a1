# SPDX-License-Identifier: Apache-2.0
# Pages made from real dumps of other tools: promtool takes each, no sentinel and no error text gets through.
set -u
fail() { echo "FAIL: $*"; exit 1; }
data=$HONE_SOURCE_DIR/../shared/data/fleet
[ -d "$data" ] || { echo "SKIP: no $data"; exit 77; }
command -v promtool >/dev/null || { echo "SKIP: no promtool"; exit 77; }
dir=$(mktemp -d); trap 'rm -rf "$dir"' EXIT
count=0
for file in "$data"/dcgm/*.prom "$data"/dcgm/*.metrics "$data"/smi/*.xml "$data"/smi/*-q-*.txt "$data"/smi/*.csv; do
    "$HONE" exporter --once --source "text:$file" >"$dir/page" 2>"$dir/err" || fail "$file: $(cat "$dir/err")"
    promtool check metrics <"$dir/page" >"$dir/lint" 2>&1
    grep -v -e "'snake_case'" -e '^DCGM_.*should have "_total"' -e '^DCGM_FI_DEV_PCIE_REPLAY_COUNTER metric name should not' \
        "$dir/lint" >"$dir/found" && fail "$file: $(head -n 3 "$dir/found")"
    grep -v '^#' "$dir/page" >"$dir/lines"
    grep -qE '(ERR|N/A|<<<| ([nN]a[nN]|[+-]?[iI]nf|140737488355328.*|214748363[2-5]|92233720368547757.*)$)' "$dir/lines" && fail "$file: a sentinel"
    [ "$(wc -l <"$dir/lines")" -ge 10 ] || fail "$file: $(wc -l <"$dir/lines") lines"
    count=$((count + 1))
done
echo "$count dumps"
