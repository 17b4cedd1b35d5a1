# SPDX-License-Identifier: Apache-2.0
# hone energy: jobs of hone exec by what they did for a joule; recordings; comparing; and hone bench's joules.
set -u
dir=$(mktemp -d); trap 'rm -rf "$dir"' EXIT
fail() { echo "FAIL: $*"; exit 1; }
export HONE_HISTORY=$dir/history.db HONE_NVML_LIB=$HONE_BUILD_DIR/fakes/libnvidia-ml.so
json() { python3 -c "import json; d=json.load(open('$dir/r.json')); print(($1))"; }
"$HONE" energy 2>/dev/null; [ $? = 5 ] || fail "no history yet: $?"

# two runs of one job at 400 W and 200 W; the second does half as many units
HONE_FAKE_NVML=power=400 "$HONE" exec --source nvml --quiet --name slow --unit sample --phases '^== (.*)' --progress 'done ([0-9]+)' -- \
    sh -c 'echo "== train"; sleep 0.6; echo done 60; echo "== validate"; sleep 0.4; echo done 100; exit 3' >/dev/null; [ $? = 3 ] || fail "exec's status"
HONE_FAKE_NVML=power=200 "$HONE" exec --source nvml --quiet --name fast --unit sample --units 50 -- sh -c 'hone=$1; [ -n "$HONE_JOB" ]; echo train >$HONE_PHASE_FILE; sleep 1' sh x || fail "second job"
HONE_HISTORY=none HONE_FAKE_NVML=power=200 "$HONE" exec --source nvml --quiet -- true || fail "history none"

"$HONE" energy --phases --json --price 0.30 --co2 400 >"$dir/r.json" || fail "--json"
got=$(json '[(r["name"], r["phase"], r["unit"], r["exit_status"]) for r in d["rows"]]')
[ "$got" = "[('slow', None, 'sample', 3), ('slow', 'train', 'sample', 3), ('slow', 'validate', 'sample', 3), ('fast', None, 'sample', 0), ('fast', 'train', 'sample', 0)]" ] || fail "rows: $got"
python3 - "$dir/r.json" <<'PY' || fail "figures: $(cat "$dir/r.json")"
import json, sys
rows = json.load(open(sys.argv[1]))["rows"]
whole, train, validate, fast, _ = rows
near = lambda a, b, share: abs(a / b - 1) < share
for r, watts in ((whole, 400), (train, 400), (validate, 400), (fast, 200)):
    assert near(r["watts"], watts, 0.02), r
    assert near(r["joules"], watts * r["seconds"], 0.25), r
    assert near(r["cost"], r["joules"] / 3.6e6 * 0.30, 1e-9) and near(r["co2_g"], r["joules"] / 3.6e6 * 400, 1e-9)
assert whole["units"] == 100 and train["units"] + validate["units"] == 100 and fast["units"] == 50
assert near(whole["units_per_joule"], 100 / whole["joules"], 1e-9) and near(whole["joules_per_unit"], whole["joules"] / 100, 1e-9)
assert near(train["joules"] + validate["joules"], whole["joules"], 0.1)
assert whole["energy_method"] == "counter" and 0.8 < whole["sm_active"] <= 1 and whole["complete"]
PY
"$HONE" energy --phases --price 0.3 >"$dir/out" || fail "table"
grep -q "^1 slow .*sample" "$dir/out" && grep -q "^  validate " "$dir/out" && grep -q "units/J" "$dir/out" && grep -q "cost" "$dir/out" || fail "table: $(cat "$dir/out")"
grep -q gCO2 "$dir/out" && fail "a column that nobody asked for"
"$HONE" energy --csv >"$dir/out" && python3 -c "
import csv
rows = list(csv.DictReader(open('$dir/out')))
assert [r['name'] for r in rows] == ['slow', 'fast'] and rows[0]['cost'] == '' and float(rows[0]['joules']) > 100 and rows[1]['command'].startswith('sh -c '), rows" || fail "CSV: $(cat "$dir/out")"
"$HONE" energy --compare slow fast >"$dir/out" || fail "--compare"
grep -q "^A: 1 slow" "$dir/out" && grep -q "mean W .*400.0 .*200.0 .*-50.0%" "$dir/out" && grep -q "^train " "$dir/out" || fail "compare: $(cat "$dir/out")"
grep -q "^validate" "$dir/out" && fail "a phase that only one has is compared"
"$HONE" energy --compare 1 2 --json >"$dir/r.json" && [ "$(json 'd["same_unit"], 0.45 < d["parts"][0]["b_by_a"]["watts"] < 0.55')" = "(True, True)" ] || fail "compare as JSON"
"$HONE" energy --like fast --json >"$dir/r.json" && [ "$(json 'len(d["rows"])')" = 1 ] || fail "--like"
"$HONE" energy --job 99 2>/dev/null; [ $? = 1 ] || fail "no such job"
for bad in "--compare 1" "x" "--price -1" "--seconds 0" "--compare 1 77"; do "$HONE" energy $bad >/dev/null 2>&1; [ $? = 2 ] || fail "usage: $bad"; done

# a command that cannot be started, and a run that never began, are over; neither runs for ever
"$HONE" exec --source none --quiet --name missing -- no-such-command-anywhere 2>/dev/null
"$HONE" exec --source none --quiet --name refused --progress '(' -- true 2>/dev/null
"$HONE" energy --json >"$dir/r.json"
got=$(json '[(r["name"], r["exit_status"], r["seconds"] is not None) for r in d["rows"][2:]]')
[ "$got" = "[('missing', 127, True), ('refused', None, True)]" ] || fail "jobs that never ran: $got"

# a job that is killed with its exec is one that still runs, not one without joules
HONE_FAKE_NVML=power=200 "$HONE" exec --source nvml --quiet --name killed -- sleep 30 & pid=$!
for _ in $(seq 100); do "$HONE" energy --like killed --json >"$dir/r.json" 2>/dev/null && break; sleep 0.05; done
child=$(pgrep -P $pid sleep); kill -9 $pid; wait $pid 2>/dev/null; [ -n "$child" ] && kill "$child"
"$HONE" energy --like killed --json >"$dir/r.json"; [ "$(json 'd["rows"][0]["joules"], d["rows"][0]["seconds"], d["rows"][0]["exit_status"]')" = "(None, None, None)" ] || fail "killed"

# recordings and live sources
"$HONE" energy --source "replay:$HONE_SOURCE_DIR/tests/data/h200-mixed.hrec.gz?speed=7" --json >"$dir/r.json" || fail "replay"
python3 - "$dir/r.json" <<'PY' || fail "recording: $(cat "$dir/r.json")"
import json, sys
rows = json.load(open(sys.argv[1]))["rows"]
whole, phases = rows[0], {r["phase"]: r for r in rows[1:]}
assert len(phases) == 10 and abs(whole["joules"] - 134343) < 2, whole
assert abs(sum(r["joules"] for r in phases.values()) / whole["joules"] - 1) < 0.03
assert phases["idle"]["watts"] < 130 < 600 < phases["matmul"]["watts"]
PY
HONE_FAKE_NVML=power=300 "$HONE" energy --source nvml --seconds 0.6 --json >"$dir/r.json" && [ "$(json '290 < d["rows"][0]["watts"] < 310')" = True ] || fail "live"
"$HONE" energy --source text:/etc/hostname 2>/dev/null; [ $? = 3 ] || fail "no text of a tool"
# texts whose rows tell times: 2 cards, 100 W rising to 200 W and 300 W, 4 s at 1 Hz; a row out of order counts for nothing
{
    echo 'timestamp, index, uuid, power.draw [W]'
    for i in 0 1 2 3 4; do
        echo "2026/01/02 03:04:0$i.500, 0, GPU-a, $((100 + 25 * i)).00 W"
        echo "2026/01/02 03:04:0$i.500, 1, GPU-b, 300.00 W"
    done
    echo '2026/01/02 03:04:01.500, 1, GPU-b, 9999.00 W'
} >"$dir/smi.csv"
"$HONE" energy --source "text:$dir/smi.csv" --json >"$dir/r.json" || fail "a text with times"
[ "$(json 'round(d["rows"][0]["joules"], 6), d["rows"][0]["seconds"], d["rows"][0]["watts"]')" = "(1800.0, 4.0, 450.0)" ] || fail "joules of a text: $(cat "$dir/r.json")"
head -3 "$dir/smi.csv" >"$dir/one.csv"
"$HONE" energy --source "text:$dir/one.csv" >"$dir/out" 2>"$dir/err"; [ $? = 4 ] && grep -q 'different times' "$dir/err" && [ ! -s "$dir/out" ] || fail "one moment has no joules"

# joules of a model's runs, idle subtracted: the fake card draws 1000 W more for each CPU that works; unknown is null
model=$HONE_SOURCE_DIR/examples/fashion/fashion_resnet.onnx
HONE_ENERGY_SOURCE=nvml HONE_FAKE_NVML=cards=1,power=100,work=1000 "$HONE" bench "$model" --threads 1 --seconds 0.5 --json >"$dir/r.json" || fail "bench"
got=$(json '0.3 < d["energy_j_per_sample"] * d["throughput_per_s"] / 1000 < 1.5'); [ "$got" = True ] || fail "joules of bench: $(cat "$dir/r.json")"
HONE_ENERGY_SOURCE=nvml HONE_FAKE_NVML=cards=1,power=100,work=1000 "$HONE" bench "$model" --threads 1 --seconds 0.5 | grep -q "energy .*J a sample" || fail "joules of bench as text"
HONE_ENERGY_SOURCE=nvml HONE_FAKE_NVML=cards=1,power=100,work=-50 "$HONE" bench "$model" --threads 1 --seconds 0.2 --json >"$dir/r.json" && [ "$(json 'd["energy_j_per_sample"]')" = None ] || fail "less than at rest is unknown: $(cat "$dir/r.json")"
HONE_ENERGY_SOURCE=none "$HONE" bench "$model" --seconds 0.2 --json >"$dir/r.json" && [ "$(json 'd["energy_j_per_sample"]')" = None ] || fail "unknown joules"
HONE_ENERGY_SOURCE=nvml HONE_FAKE_NVML=cards=1,power=100,work=1000 "$HONE" optimize "$model" -o "$dir/out.onnx" --threads 1 --report "$dir/report" --only graph >/dev/null 2>"$dir/err" ||
    HONE_ENERGY_SOURCE=nvml HONE_FAKE_NVML=cards=1,power=100,work=1000 "$HONE" optimize "$model" -o "$dir/out.onnx" --threads 1 --report "$dir/report" >/dev/null 2>"$dir/err" || fail "optimize: $(cat "$dir/err")"
cp "$dir/report/report.json" "$dir/r.json"
[ "$(json 'd["baseline"]["energy_j_per_sample"] > 0, d["result"]["energy_j_per_sample"] > 0')" = "(True, True)" ] || fail "joules of optimize"
echo ok
