# SPDX-License-Identifier: Apache-2.0
# hone doctor: exit status, JSON, usage, and that no blank number or error word comes through.
set -u
dir=$(mktemp -d); trap 'rm -rf "$dir"' EXIT
fail() { echo "FAIL: $*"; exit 1; }
export HONE_NVML_LIB=$HONE_BUILD_DIR/fakes/libnvidia-ml.so HONE_DCGM_LIB=/nonexistent

HONE_NVML_LIB=/nonexistent "$HONE" doctor --no-measure --json >"$dir/none" || [ $? = 1 ] || fail "no card"
python3 - "$dir/none" <<'PY' || fail "JSON without card"
import json, sys
d = json.load(open(sys.argv[1]))
assert d["gpu"]["devices"] == [] and "does not load" in d["gpu"]["none_because"]
assert d["cpu"]["isa"] in ("ref", "avx2", "avx512", "vnni", "amx") and d["cpu"]["copy_bytes_per_s"] is None
PY
HONE_FAKE_NVML=cards=2,ecc "$HONE" doctor --no-measure --json >"$dir/ecc"; [ $? = 1 ] || fail "a fault must give exit status 1"
python3 - "$dir/ecc" <<'PY' || fail "JSON of cards"
import json, sys
d = json.load(open(sys.argv[1]))
one = [f for f in d["findings"] if f["id"] == "ecc_uncorrected"]
assert len(one) == 1 and one[0]["where"] == "gpu 0" and one[0]["level"] == "fault" and one[0]["why"] and one[0]["do"]
assert d["gpu"]["devices"][1]["sheet"]["name"] == "H200 SXM 141GB"
assert d["gpu"]["devices"][0]["info"]["absent"]["fan_percent"] == "not supported"
PY
cat >"$dir/leak.prom" <<'PROM'
DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-a"} 55
DCGM_FI_DEV_MEMORY_TEMP{gpu="0",UUID="GPU-a"} 9223372036854775794
DCGM_FI_DEV_SM_CLOCK{gpu="0",UUID="GPU-a"} 2147483634
DCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="GPU-a"} 140737488355330
DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-a"} ERROR - FAILED TO CONVERT TO STRING
PROM
for form in "" --json; do
    "$HONE" doctor $form --source "text:$dir/leak.prom" >"$dir/out" || fail "text source"
    grep -qE '922337|2147483|1407374|ERROR' "$dir/out" && fail "a sentinel came through: $(cat "$dir/out")"
done
"$HONE" doctor --source "text:$dir/none" 2>"$dir/err"; [ $? = 3 ] || fail "a text nobody knows is exit 3"
"$HONE" doctor --isa avx9 --no-measure 2>"$dir/err"; [ $? = 2 ] && grep -q "avx9" "$dir/err" || fail "isa"
"$HONE" doctor --isa ref --no-measure | grep -q "kernels use ref" || fail "cap"
"$HONE" doctor --config | grep -q "^threads = " || fail "config"
echo ok
