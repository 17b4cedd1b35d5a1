#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# TEST-TIMEOUT 120
# References of convolutions, pools, recurrent layers, resizing, sampling, quantisation and
# normalisations on random attributes and sizes, against onnxruntime where that is installed.
set -euo pipefail
python=$("$HONE_SOURCE_DIR/scripts/peers") || exit 77
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for seed in ${SEEDS:-1 2}; do
    "$python" "$(dirname "$0")/ort_cases.py" "$folder/$seed" "$seed"
    status=0
    "$HONE" check --reference "$folder/$seed" > "$folder/log" || status=1
    tail -1 "$folder/log"
    if [ $status != 0 ] || ! grep -q "^311 passed, 0 failed, 0 skipped" "$folder/log"; then
        cat "$folder/log"
        cat $(sed -n "s#^FAILED \([^:]*\):.*#\1/attrs.txt#p" "$folder/log")
        echo "seed $seed"
        exit 1
    fi
done
