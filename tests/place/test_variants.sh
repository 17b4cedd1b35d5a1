#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Good topology texts, pasted in thirty-odd other ways, read the same or lose values by name only.
set -eu
python3 "$HONE_SOURCE_DIR/tests/place/topo_variants.py" "$HONE" "$HONE_SOURCE_DIR"/tests/place/topo/*.txt
# The same texts with parts missing: what is read is right, what is missing is named. The one case that
# cannot be told is a list that is clipped between two numbers: the fixture with holes is left out.
ls "$HONE_SOURCE_DIR"/tests/place/topo/*.txt | grep -v holes |
    xargs python3 "$HONE_SOURCE_DIR/tests/place/topo_variants.py" "$HONE" --cuts
