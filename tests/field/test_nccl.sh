#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# TEST-TIMEOUT 180
# The real NCCL logs of ../shared/data/fleet/nccl read as their manifest says, and so do damaged copies.
set -euo pipefail
logs="$HONE_SOURCE_DIR/../shared/data/fleet/nccl"
[ -f "$logs/MANIFEST.tsv" ] || exit 77
# Every log of the manifest has its line in the table.
while IFS=$'\t' read -r file _; do
    [ "$file" = file ] || grep -q "^$file	" "$HONE_SOURCE_DIR/tests/field/nccl_expect.tsv" || { echo "no expectation for $file"; exit 1; }
done < "$logs/MANIFEST.tsv"
python3 "$HONE_SOURCE_DIR/tests/place/nccl_check.py" "$HONE" "$HONE_SOURCE_DIR/tests/field/nccl_expect.tsv" "$logs"
