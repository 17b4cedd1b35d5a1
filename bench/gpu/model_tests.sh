#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The CPU's model tests on a card: every model of a folder against onnxruntime on the same inputs, with other
# shapes where dims are free, twins, and the stored outputs (tests/field/compare_models.py).
#
#   bench/gpu/model_tests.sh HONE MODELS
#
# Needs python3 with numpy, onnx and onnxruntime (its CPU provider). Ends with 1 where something differs.
set -eu
[ $# -eq 2 ] || { sed -n '6p' "$0" | cut -c5-; exit 2; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat > "$work/hone" <<END
#!/bin/sh
exec "$(realpath "$1")" "\$@" --device cuda
END
chmod +x "$work/hone"
python3 "$(dirname "$0")/../../tests/field/compare_models.py" "$work/hone" "$2"
