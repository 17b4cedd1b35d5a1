#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# hone slurm check and hone doctor --slurm: one answer, exits, JSON; bad input in one sentence.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
printf '\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV12\t0-7\nGPU1\tNV12\t X \t0-7\n' > "$dir/topo"
printf 'GresTypes=gpu\nNodeName=n[0-1] Gres=gpu:a100:2\n' > "$dir/slurm.conf"
"$HONE" slurm gres --topo "$dir/topo" --type a100 > "$dir/gres.conf"
grep -qx 'Name=gpu Type=a100 File=/dev/nvidia1 Cores=0-7 Links=12,-1' "$dir/gres.conf"
for verb in 'slurm check' 'doctor --slurm'; do
    "$HONE" $verb --slurm-conf "$dir/slurm.conf" --topo "$dir/topo" --node n1 > "$dir/out"
    grep -qx 'node n1: slurmd will accept it' "$dir/out"
done
sed -i 's/nvidia1/nvidia0/' "$dir/gres.conf"
code=0; "$HONE" doctor --slurm --slurm-conf "$dir/slurm.conf" --topo "$dir/topo" --node n0 --json > "$dir/out" || code=$?
[ $code = 1 ] && jq -e '.good == false and ([.findings[].id] | contains(["file_twice", "count_lower"]))' "$dir/out" > /dev/null
code=0; "$HONE" slurm check --slurm-conf "$dir/slurm.conf" --node n7 > "$dir/out" 2> "$dir/err" || code=$?
[ $code = 3 ] || [ $code = 2 ]
[ ! -s "$dir/out" ] && grep -q "no NodeName line for node 'n7'" "$dir/err"
code=0; "$HONE" slurm 2> /dev/null || code=$?; [ $code = 2 ]
echo "checks agree"
