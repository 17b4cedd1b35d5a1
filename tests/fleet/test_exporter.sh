# SPDX-License-Identifier: Apache-2.0
# TEST-TIMEOUT 120
# hone exporter: pages over HTTP, health that follows the cards, counters files, ends cleanly; promtool judges.
set -u
dir=$(mktemp -d)
pids=""
trap 'for p in $pids; do kill -9 $p 2>/dev/null; done; rm -rf "$dir"' EXIT
fail() { echo "FAIL: $*"; exit 1; }
export HONE_NVML_LIB=$HONE_BUILD_DIR/fakes/libnvidia-ml.so XDG_STATE_HOME=$dir/state HONE_HISTORY=none
data=$HONE_SOURCE_DIR/tests/data/h200-mixed.hrec.gz

# start OPTIONS...: a server on a free port; sets pid and url
start() {
    "$HONE" exporter --listen 127.0.0.1:0 "$@" 2>"$dir/err" & pid=$!
    pids="$pids $pid"
    for _ in $(seq 100); do
        url=$(sed -n 's|.*at \(http://[^/]*\)/metrics.*|\1|p' "$dir/err"); [ -n "$url" ] && return
        kill -0 $pid 2>/dev/null || fail "no start: $(cat "$dir/err")"
        sleep 0.1
    done
    fail "no address: $(cat "$dir/err")"
}
stop() { # SIGTERM ends it in good order, soon
    local begin=$(date +%s%N)
    kill -TERM $pid; wait $pid; [ $? = 0 ] || fail "SIGTERM gives $?"
    [ $(($(date +%s%N) - begin)) -lt ${1:-1500}000000 ] || fail "ended after $((($(date +%s%N) - begin) / 1000000)) ms"
}
status() { curl -s -o "$dir/body" -w '%{http_code} %{content_type}' "$@"; }

# eight recorded cards: both formats, judged by promtool
HONE_HISTORY=$dir/history.db start --source "replay:$data?loop=1&cards=8" --hz 20
[ "$(status $url/metrics)" = "200 text/plain; version=0.0.4; charset=utf-8" ] || fail "plain: $(status $url/metrics)"
cp "$dir/body" "$dir/text"
[ "$(grep -c '^DCGM_FI_DEV_GPU_TEMP{' "$dir/text")" = 8 ] || fail "8 cards"
promtool check metrics <"$dir/text" >"$dir/lint" 2>&1
# It only regrets what dcgm-exporter's names are: a label in camelCase, counters without _total.
grep -v -e "'snake_case'" -e '^DCGM_.*counter metrics should have "_total"' -e "^DCGM_FI_DEV_PCIE_REPLAY_COUNTER metric name should not include type" \
    "$dir/lint" >"$dir/found" && fail "promtool: $(head -n 3 "$dir/found")"
accept='Accept: application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1'
[ "$(status -H "$accept" $url/metrics)" = "200 application/openmetrics-text; version=1.0.0; charset=utf-8" ] || fail "OpenMetrics"
[ "$(tail -n 1 "$dir/body")" = "# EOF" ] || fail "no # EOF"
[ "$(grep -c '^hone_gpu_energy_joules_total{' "$dir/body")" = 8 ] || fail "joules"
for name in DCGM_FI_DEV_POWER_USAGE DCGM_FI_PROF_PIPE_TENSOR_ACTIVE DCGM_FI_DEV_FB_USED hone_gpu_sample_age_seconds \
            hone_gpu_l2_hit_ratio hone_gpu_throttle_power_seconds_total hone_host_load1; do
    grep -q "^$name{" "$dir/body" || [ $name = hone_gpu_l2_hit_ratio ] || fail "$name is not there"
done
[ "$(status $url/health)" = "200 text/plain; charset=utf-8" ] && [ "$(cat "$dir/body")" = ok ] || fail "health: $(cat "$dir/body")"
[ "$(status $url/)" = "200 text/html; charset=utf-8" ] || fail "index"
[ "$(status $url/../../etc/passwd --path-as-is)" = "404 text/plain; charset=utf-8" ] || fail "404"
[ "$(status -X POST -d x=y $url/metrics)" = "405 text/plain; charset=utf-8" ] || fail "405"
[ "$(status -I $url/metrics | cut -c1-3)" = 200 ] || fail "HEAD"
{ printf 'X-Long: '; head -c 100000 /dev/zero | tr '\0' a; } >"$dir/long"
case "$(status -H @"$dir/long" $url/metrics)" in 4* | 000*) ;; *) fail "a header of 100 kB" ;; esac
"$HONE" exporter --source host --listen "${url#http://}" 2>"$dir/err2"; [ $? = 5 ] || fail "a port in use gives $?"
grep -q "cannot listen on" "$dir/err2" || fail "a port in use: $(cat "$dir/err2")"
# clients that say nothing hold up no other
python3 - "${url#http://}" "$url" <<'PY' || fail "idle clients"
import socket, sys, time, urllib.request
host, port = sys.argv[1].split(":")
idle = [socket.create_connection((host, int(port))) for _ in range(40)]
idle[0].sendall(b"GET /metrics HTT")
worst = 0
for _ in range(20):
    t = time.monotonic()
    assert b"DCGM_FI_DEV_GPU_TEMP{" in urllib.request.urlopen(sys.argv[2] + "/metrics", timeout=5).read()
    worst = max(worst, time.monotonic() - t)
sys.exit(0 if worst < 2 else "%.3f s" % worst)
PY
stop
[ "$(python3 -c "import sqlite3; print(sqlite3.connect('$dir/history.db').execute('SELECT count(DISTINCT device) FROM seconds').fetchone()[0])")" = 9 ] || fail "history"

# what our own reader makes of our own page: the values come back
"$HONE" exporter --once --source "replay:$data?cards=2" >"$dir/page" || fail "--once"
"$HONE" exporter --once --source "text:$dir/page" --window 0 >"$dir/page2" 2>"$dir/err" || fail "reading a page: $(cat "$dir/err")"
for name in DCGM_FI_DEV_SM_CLOCK hone_gpu_energy_joules_total DCGM_FI_DEV_FB_FREE hone_gpu_power_watts; do
    [ "$(sed -n "s/^$name{gpu=\"1\".*} //p" "$dir/page")" = "$(sed -n "s/^$name{gpu=\"1\".*} //p" "$dir/page2")" ] || fail "$name differs"
done
"$HONE" exporter --once --openmetrics --source "replay:$data" | tail -n 1 | grep -q '^# EOF$' || fail "--once --openmetrics"

# health follows the cards: one hangs, the page goes on without its values; SIGTERM still ends it
HONE_FAKE_NVML=cards=3,hang=1@15 start --source nvml --hz 20
for _ in $(seq 100); do [ "$(status $url/health | cut -c1-3)" = 503 ] && break; sleep 0.1; done
[ "$(status $url/health | cut -c1-3)" = 503 ] && grep -q '^gpu 1: ' "$dir/body" && ! grep -q 'gpu 0' "$dir/body" || fail "503: $(cat "$dir/body")"
status $url/metrics >/dev/null
grep -q '^hone_gpu_up{gpu="1".*} 0$' "$dir/body" && grep -q '^hone_gpu_up{gpu="2".*} 1$' "$dir/body" || fail "hone_gpu_up"
grep -q '^DCGM_FI_DEV_GPU_TEMP{gpu="1"' "$dir/body" && fail "stale values are served"
grep -q '^DCGM_FI_DEV_GPU_TEMP{gpu="2"' "$dir/body" || fail "the others' values are gone"
stop 4000

# and the history: where it cannot be written, metrics go on
mkdir "$dir/full"
(trap '' XFSZ; ulimit -f 300; HONE_HISTORY=$dir/full/h.db exec "$HONE" exporter --listen 127.0.0.1:0 --source "replay:$data?loop=1&cards=8" --hz 20) 2>"$dir/err" & pid=$!
pids="$pids $pid"; url=
for _ in $(seq 100); do url=$(sed -n 's|.*at \(http://[^/]*\)/metrics.*|\1|p' "$dir/err"); [ -n "$url" ] && break; sleep 0.1; done
for _ in $(seq 400); do [ "$(status $url/health | cut -c1-3)" = 503 ] && break; sleep 0.1; done
grep -q "history" "$dir/body" || fail "a full disk: $(cat "$dir/body" "$dir/err")"
status $url/metrics >/dev/null; grep -q '^hone_history_up 0$' "$dir/body" && grep -q '^hone_gpu_up{gpu="7".*} 1$' "$dir/body" || fail "metrics beside a full disk"
[ "$(grep -c 'history.*full.*readings go on' "$dir/err")" = 1 ] || fail "told $(grep -c 'readings go on' "$dir/err") times: $(cat "$dir/err")"
stop

# counters files of dcgm-exporter
printf '# Clocks\nDCGM_FI_DEV_SM_CLOCK,  gauge, SM clock frequency (in MHz).\nDCGM_FI_DEV_VGPU_LICENSE_STATUS, gauge, vGPU License status\nDCGM_FI_DEV_SERIAL, label, Serial\nhone_gpu_power_watts, gauge, W\n' >"$dir/c.csv"
HONE_FAKE_NVML=cards=2 "$HONE" exporter --once --source nvml --counters "$dir/c.csv" >"$dir/page" 2>"$dir/err" || fail "--counters: $(cat "$dir/err")"
grep -q '^# HELP DCGM_FI_DEV_SM_CLOCK SM clock frequency (in MHz).$' "$dir/page" || fail "help of the file"
[ "$(grep -c '^DCGM_' "$dir/page")" = 2 ] && [ "$(grep -c '^hone_gpu_power_watts{' "$dir/page")" = 2 ] || fail "what the file names"
grep -q 'DCGM_FI_DEV_SERIAL="16500' "$dir/page" && ! grep -q hone_gpu_temperature "$dir/page" || fail "labels of the file"
grep -q "1 fields are not measured here.*DCGM_FI_DEV_VGPU_LICENSE_STATUS" "$dir/err" || fail "what is left out is told: $(cat "$dir/err")"
printf 'DCGM_FI_DEV_SM_CLOCK, gauge, x\nDCGM_FI_DEV_MEM_CLOCK gauge\n' >"$dir/bad.csv"
"$HONE" exporter --once --source host --counters "$dir/bad.csv" >"$dir/page" 2>"$dir/err"; [ $? = 3 ] || fail "a bad counters file gives $?"
[ "$(wc -l <"$dir/err")" = 1 ] && grep -q "bad.csv: line 2" "$dir/err" && [ ! -s "$dir/page" ] || fail "bad line: $(cat "$dir/err")"
"$HONE" exporter --once --counters "$dir/none.csv" 2>/dev/null; [ $? = 3 ] || fail "a counters file that is not there"

# job mapping folder of dcgm-exporter
mkdir "$dir/map"; printf '4711\n4712\n' >"$dir/map/1"
HONE_FAKE_NVML=cards=2,idle start --source nvml --hpc-job-mapping-dir "$dir/map"
for _ in $(seq 50); do status $url/metrics >/dev/null; grep -q 'gpu="1".*hpc_job="4711,4712"' "$dir/body" && break; sleep 0.1; done
grep -q '^DCGM_FI_DEV_GPU_TEMP{gpu="1".*hpc_job="4711,4712"' "$dir/body" || fail "hpc_job"
grep -q '^DCGM_FI_DEV_GPU_TEMP{gpu="0".*hpc_job' "$dir/body" && fail "hpc_job of another card"
stop

# the history alone, without HTTP and its library
HONE_MICROHTTPD=/nonexistent.so HONE_HISTORY=$dir/alone.db "$HONE" exporter --listen none --source host 2>"$dir/err" & pid=$!
pids="$pids $pid"; sleep 2.5; stop
[ "$(wc -l <"$dir/err")" = 1 ] && grep -q "keeping history in $dir/alone.db" "$dir/err" || fail "--listen none: $(cat "$dir/err")"
[ "$(python3 -c "import sqlite3; print(sqlite3.connect('$dir/alone.db').execute('SELECT count(*) >= 1 FROM seconds WHERE load1 IS NOT NULL').fetchone()[0])")" = 1 ] || fail "the history alone"

# kill -9 takes the last second at most, and the next start goes on with the same file
HONE_HISTORY=$dir/killed.db start --source "replay:$data?loop=1&cards=8" --hz 20
sleep 4; kill -9 $pid; wait $pid 2>/dev/null; ended=$(date +%s)
python3 - "$dir/killed.db" $ended <<'PY' || fail "after kill -9"
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
last = db.execute("SELECT max(t) FROM seconds").fetchone()[0]
ragged = db.execute("SELECT count(*) FROM (SELECT t FROM seconds GROUP BY t HAVING count(*) < 8 AND t > (SELECT min(t) FROM seconds))").fetchone()[0]
sound = db.execute("PRAGMA integrity_check").fetchone()[0]
# A second of grace for a machine that is busy with other things.
sys.exit(0 if last >= int(sys.argv[2]) - 3 and ragged <= 1 and sound == "ok" else "%r" % [last, sys.argv[2], ragged, sound])
PY
HONE_HISTORY=$dir/killed.db start --source "replay:$data?loop=1&cards=8" --hz 20
sleep 1.5; stop
ls "$dir"/killed.db.corrupt-* >/dev/null 2>&1 && fail "kill -9 damaged the history"

# usage and absence
for args in "--hz 0" "--listen nowhere:1" "--listen 127.0.0.1" "--listen 127.0.0.1:99999" "--window 11" "--listen none" "--keep-hours 0" "--history-mib 0" "--openmetrics" "--source moon" "x"; do
    "$HONE" exporter $args >/dev/null 2>"$dir/err"; [ $? = 2 ] || fail "usage: '$args' gives $?"
    [ "$(wc -l <"$dir/err")" = 1 ] || fail "usage: '$args': $(cat "$dir/err")"
done
HONE_FAKE_NVML=init=9 "$HONE" exporter --source nvml --once 2>/dev/null; [ $? = 4 ] || fail "no driver"
HONE_MICROHTTPD=/nonexistent.so "$HONE" exporter --source host --listen 127.0.0.1:0 2>"$dir/err"; [ $? = 4 ] || fail "without libmicrohttpd: $?"
grep -q "HONE_MICROHTTPD names" "$dir/err" || fail "libmicrohttpd: $(cat "$dir/err")"
HONE_HISTORY=/proc/nothing/h.db "$HONE" exporter --source host --listen 127.0.0.1:0 2>"$dir/err"; [ $? = 5 ] || fail "a history that was asked for and cannot be"
echo ok
