# SPDX-License-Identifier: Apache-2.0
# hone report and the page of hone exec: stands alone, shows what was read and nothing else, hostile names stay text.
set -u
dir=$(mktemp -d); trap 'rm -rf "$dir"' EXIT
fail() { echo "FAIL: $*"; exit 1; }
rec=$HONE_SOURCE_DIR/tests/data/h200-mixed.hrec.gz
check() { python3 - "$1" <<'PY' || fail "page $1"
import re, sys
from html.parser import HTMLParser
text = open(sys.argv[1], encoding="utf-8").read()
void = {"meta", "br", "img"}
class P(HTMLParser):
    stack, plots = [], 0
    def handle_starttag(self, tag, attrs):
        assert tag not in ("script", "link", "iframe", "object"), tag
        for name, value in attrs:
            assert not name.startswith("on") and not re.match(r"\s*(https?|javascript|data):", value or ""), (name, value)
        if tag not in void: self.stack.append(tag)
        self.plots += tag == "svg"
    def handle_startendtag(self, tag, attrs): pass
    def handle_endtag(self, tag): assert self.stack.pop() == tag, tag
p = P(); p.feed(text)
assert not p.stack and not re.search(r"\bnan\b|\binf\b", text.lower().replace("infer", "")), "nan or an open element"
assert "@import" not in text and "url(" not in text
print(p.plots)
PY
}
"$HONE" report "$rec" --html "$dir/a.html" --json "$dir/a.json" >"$dir/out" || fail "report"
[ "$(check "$dir/a.html")" -ge 7 ] || fail "plots"
grep -q "matmul .*compute-bound" "$dir/out" && grep -q "phase 'idle'\|phase  *seconds" "$dir/out" || fail "text: $(cat "$dir/out")"
for word in "Power" "SM clock" "Memory in use" "Temperature" "Activity" "Clocks held down" "Host link" "matmul" "Wh"; do grep -q "$word" "$dir/a.html" || fail "'$word' is not on the page"; done
[ "$(wc -c <"$dir/a.html")" -lt 300000 ] || fail "the page is large"
"$HONE" report "$rec" --phase matmul --json - >"$dir/m.json" || fail "--phase"
python3 -c "
import json; d = json.load(open('$dir/m.json')); c = d['devices'][0]
assert d['exit_status'] is None and abs(c['joules'] - 24126) < 30 and c['marks']['sm_active']['met'] and c['marks']['l2_hit'] is None and not c['marks']['dram_active']['met']
assert d['findings'][0]['class'] == 'compute' and d['findings'][1]['reason'] == 'power limit'" || fail "figures of a phase"
"$HONE" report "$rec" --from 300 --to 330 --json - | python3 -c "
import json, sys; d = json.load(sys.stdin); assert 29 < d['seconds'] < 31 and d['findings'][0]['class'] == 'bandwidth'" || fail "--from --to"
for args in "" "$rec --phase nothing" "$rec --from 5 --to 4" "$rec --from 1000" "$rec --units 0"; do "$HONE" report $args >/dev/null 2>"$dir/err"; [ $? = 2 ] || fail "usage: $args"; done
head -c 1000 /dev/urandom >"$dir/bad"; "$HONE" report "$dir/bad" 2>/dev/null; [ $? = 3 ] || fail "no recording"
"$HONE" report "$dir/none" 2>/dev/null; [ $? = 3 ] || fail "no file"

# exec writes page and recording; names are text
export HONE_HISTORY=none HONE_NVML_LIB=$HONE_BUILD_DIR/fakes/libnvidia-ml.so
HONE_FAKE_NVML=cards=3 "$HONE" exec --source nvml+host --quiet --title '<script>alert(1)</script>' --html "$dir/e.html" --record "$dir/e.hrec.gz" --json "$dir/e.json" -- \
    sh -c 'echo "<img src=x onerror=alert(1)>" >$HONE_PHASE_FILE; sleep 0.7; exit 4'; [ $? = 4 ] || fail "status"
check "$dir/e.html" >/dev/null
grep -q '&lt;script&gt;alert(1)' "$dir/e.html" && grep -q 'gpu 2' "$dir/e.html" && grep -q 'exit status' "$dir/e.html" || fail "page of exec"
"$HONE" report "$dir/e.hrec.gz" --json "$dir/r.json" >/dev/null || fail "report of exec's recording"
python3 -c "
import json; a = json.load(open('$dir/e.json')); b = json.load(open('$dir/r.json'))
for x, y in zip(a['devices'][:3], b['devices'][:3]): assert abs(x['joules'] / y['joules'] - 1) < 0.02 and x['samples'] == y['samples'], (x['joules'], y['joules'])
assert a['phases'][0]['name'] == b['phases'][0]['name'].strip() and abs(a['start_wall_ns'] - b['start_wall_ns']) < 1e6" || fail "the recording says something else than exec"
HONE_FAKE_NVML=cards=1 "$HONE" exec --source nvml --quiet --record /nonexistent/x.hrec -- touch "$dir/ran" 2>/dev/null; [ $? = 5 ] && [ ! -e "$dir/ran" ] || fail "an unwritable recording"
"$HONE" exec --source none --quiet --record "$dir/x" -- true 2>/dev/null; [ $? = 2 ] || fail "a recording of nothing"
"$HONE" exec --source none --quiet --html "$dir/n.html" -- true || fail "a page without readings"
check "$dir/n.html" >/dev/null

# kernels of Nsight Compute: launches of one kernel together, units, thousands, what bounds it; hostile names stay text
cat >"$dir/k.csv" <<'CSV'
==PROF== Connected to process 1
"ID","Process Name","Kernel Name","Metric Name","Metric Unit","Metric Value"
"0","p","small<a, 2>","Duration","usecond","2"
"0","p","small<a, 2>","Memory Throughput","%","10"
"0","p","small<a, 2>","Compute (SM) Throughput","%","20"
"1","p","big~[2J","Duration","msecond","1"
"1","p","big~[2J","Memory Throughput","Gbyte/second","999"
"1","p","big~[2J","Memory Throughput","%","80"
"1","p","big~[2J","Compute (SM) Throughput","%","30"
"1","p","big~[2J","L2 Hit Rate","%","40"
"2","p","big~[2J","Duration","nsecond","3,000,000"
"2","p","big~[2J","Memory Throughput","%","88"
"2","p","big~[2J","Compute (SM) Throughput","%","30"
"2","p","big~[2J","L2 Hit Rate","%","60"
"3","p","dark","Policy","","x"
CSV
sed -i 's/~/\x1b/' "$dir/k.csv"
"$HONE" report "$dir/k.csv" --json - >"$dir/k.json" || fail "kernels"
jq -e '.kernels | length == 3 and (.[0] | .launches == 2 and .seconds == 0.004 and .memory_percent == 86 and .l2_hit_percent == 55 and .bound == "memory")
    and (.[1] | .name == "small<a, 2>" and .bound == "latency" and .l2_hit_percent == null) and (.[2] | .seconds == null and .share == null and .bound == null)' "$dir/k.json" >/dev/null ||
    fail "kernels: $(cat "$dir/k.json")"
"$HONE" report "$dir/k.csv" >"$dir/k.txt" || fail "kernels as text"
grep -q '^4 launches of 3 kernels, 4.002 ms' "$dir/k.txt" && grep -q 'big\\x1b\[2J' "$dir/k.txt" || fail "kernels: $(cat "$dir/k.txt")"
python3 -c 'import sys; t=open(sys.argv[1]).read(); open(sys.argv[1],"w",encoding="utf-16").write(t)' "$dir/k.csv"
"$HONE" report "$dir/k.csv" | cmp -s - "$dir/k.txt" || fail "kernels in UTF-16"
"$HONE" report "$dir/k.csv" --phase x >/dev/null 2>&1; [ $? = 2 ] || fail "kernels have no phases"
echo ok
