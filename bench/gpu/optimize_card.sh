#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# hone optimize on a card: the checks of the 8-bit kernels, then what each precision gains.
#
#   bench/gpu/optimize_card.sh HONE OUT [kcheck] [small] [models] [float32] [batch128]
#
# kcheck needs KCHECK, the path of t_kernels_kcheck_cuda; HONE_LIBRARY_PATH says where libraries lie that are
# not installed. Prints tables; details go to OUT.
set -u
[ $# -ge 3 ] || { sed -n '5p' "$0" | cut -c5-; exit 2; }
hone=$1 out=$2
shift 2
mkdir -p "$out"
here=$(cd "$(dirname "$0")/../.." && pwd)
with_libraries() { LD_LIBRARY_PATH="${HONE_LIBRARY_PATH-}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" "$@"; }
export HONE_STORE="$out/../store"
nvidia-smi --query-gpu=name,driver_version,clocks.max.sm,clocks.sm,power.limit --format=csv,noheader
date -u +%FT%TZ
since() { echo "  [$1: $((SECONDS - began)) s]"; }
for part; do
    began=$SECONDS
    case $part in
    kcheck)
        for op in hn.QConv hn.QMatMul MaxPool QuantizeLinear DequantizeLinear; do
            HONE_KCHECK_OP=$op HONE_KCHECK_BENCH=1 with_libraries timeout 100 "$KCHECK" > "$out/kcheck-$op" 2>&1
            grep -E 'FAILED hn|FAILED [A-Z]|kernels checked' "$out/kcheck-$op" | cut -c1-300 | head -12
        done ;;
    small)
        timeout 150 python3 "$here/bench/gpu/optimize_card.py" --hone "$hone" --out "$out/small" --chain --seconds 0.3 \
            --models "$here/examples/fashion/fashion_resnet.onnx=$here/examples/fashion/sample.npz=50" 2>&1 | sed -u 's,^\(.\{700\}\).*,\1,' ;;
    models) timeout 280 python3 "$here/bench/gpu/optimize_card.py" --hone "$hone" --out "$out/models" --profile ${MODELS:+--models $MODELS} ${ONLY:+--only $ONLY} 2>&1 | sed -u 's,^\(.\{700\}\).*,\1,'
        with_libraries "$hone" bench "$out/models/bert-fp16+int8.onnx" --device cuda --data "$out/models/bert.npz" --resident --seconds 0.5 2>&1 | tail -12
        rm -f "$out"/models/*.onnx "$out"/models/*.npz ;;
    float32) timeout 200 python3 "$here/scripts/gpu-bench" --hone "$hone" --models resnet50,bert --batches 32 --torch eager --float32 --rounds 3 \
        --out "$out/float32.json" --markdown "$out/float32.md" 2>&1 | sed -u 's,^\(.\{400\}\).*,\1,' ;;
    batch128) timeout 240 python3 "$here/scripts/gpu-bench" --hone "$hone" --models resnet50 --batches 128 --profile --rounds 3 \
        --out "$out/batch128.json" --markdown "$out/batch128.md" 2>&1 | sed -u 's,^\(.\{400\}\).*,\1,' ;;
    *) echo "no part '$part'" ;;
    esac
    since "$part"
done
