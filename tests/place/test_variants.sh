#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Good topology texts, pasted in thirty-odd other ways, read the same or lose values by name only.
set -eu
python3 "$HONE_SOURCE_DIR/tests/place/topo_variants.py" "$HONE" "$HONE_SOURCE_DIR"/tests/place/topo/*.txt
