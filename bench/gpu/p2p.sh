#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Peer-to-peer on a machine with two cards or more: the table, the JSON, and the links for comparison.
# Nothing is set or reset; every card is used for some seconds. usage: bench/gpu/p2p.sh HONE [OUT-FOLDER]
set -uo pipefail
hone=${1:?usage: bench/gpu/p2p.sh HONE [OUT-FOLDER]}
out=${2:-.}
mkdir -p "$out"
nvidia-smi --query-gpu=index,name,pci.bus_id,driver_version --format=csv 2> /dev/null || echo "no nvidia-smi here"
nvidia-smi topo -m > "$out/topo.txt" 2> /dev/null && cat "$out/topo.txt"
"$hone" topo > "$out/hone-topo.txt" 2>&1 || true
worst=0
for mib in 1 64 256; do
    code=0
    "$hone" doctor --p2p --mib $mib --json > "$out/p2p-$mib.json" || code=$?
    "$hone" doctor --p2p --mib $mib | tee "$out/p2p-$mib.txt" || true
    echo "exit $code at $mib MiB a copy"
    [ $code -gt $worst ] && worst=$code
done
cat "$out/p2p-64.json"
exit $worst
