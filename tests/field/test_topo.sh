#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# TEST-TIMEOUT 120
# The thirty collected topology texts: read as their manifest says, in every variant; placed as the plain
# exhaustive search places them.
set -eu
data="$HONE_SOURCE_DIR/../shared/data/fleet/topo"
[ -d "$data" ] || { echo "no collected data here"; exit 77; }
python3 "$HONE_SOURCE_DIR/tests/field/topo_readings.py" "$HONE" "$data"
python3 "$HONE_SOURCE_DIR/tests/place/topo_variants.py" "$HONE" "$data"/*.txt | tail -3
"$HONE_BUILD_DIR/tests/t_place_place" "$data"
echo "placement equals the plain search on all of them"
