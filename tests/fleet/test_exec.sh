# SPDX-License-Identifier: Apache-2.0
# hone exec: exit status, signals, streams, commands that are not there, binding, progress, energy.
set -u
dir=$(mktemp -d); trap 'rm -rf "$dir"' EXIT
fail() { echo "FAIL: $*"; exit 1; }
export HONE_CLAIMS=$dir/claims HONE_HISTORY=$dir/history.db
json() { python3 -c "import json,sys; d=json.load(open('$dir/r.json')); print(($1))"; }
exec_none() { "$HONE" exec --source none "$@"; }

# exit status
exec_none --quiet -- true || fail "status 0"
exec_none --quiet -- sh -c 'exit 7'; [ $? = 7 ] || fail "status 7"
exec_none --quiet --json "$dir/r.json" -- sh -c 'kill -9 $$'; [ $? = 137 ] || fail "death by signal 9"
[ "$(json 'd["signal"], d["exit_status"]')" = "(9, 137)" ] || fail "signal in JSON"
exec_none -- no-such-command-anywhere 2>"$dir/err"; [ $? = 127 ] || fail "missing command"
[ "$(wc -l <"$dir/err")" = 1 ] && grep -q "'no-such-command-anywhere' cannot be run: there is no such command" "$dir/err" || fail "missing command's sentence"
exec_none -- "$dir" 2>/dev/null; [ $? = 126 ] || fail "a folder is no command"

# no shell, arguments as they are, streams untouched
[ "$(exec_none --quiet -- printf '%s|' 'a b' '$HOME' '*' -- --json)" = 'a b|$HOME|*|--|--json|' ] || fail "arguments"
head -c 300000 /dev/urandom >"$dir/in"
exec_none --quiet -- cat <"$dir/in" | cmp - "$dir/in" || fail "stdin to stdout"
exec_none --quiet --progress x -- cat <"$dir/in" | cmp - "$dir/in" || fail "stdin to stdout under --progress"
exec_none --quiet --progress x -- sh -c 'cat >&2' <"$dir/in" 2>&1 >/dev/null | cmp - "$dir/in" || fail "stderr under --progress"
exec_none --quiet --progress y -- yes | head -1 >"$dir/out"; [ "${PIPESTATUS[0]}" = 141 ] || fail "a closed reader ends the command by SIGPIPE"

# signals to the wrapper reach the command, and its answer comes back
for sig in INT TERM HUP USR1; do
    ( trap - INT; exec "$HONE" exec --source none --quiet -- python3 -c "
import signal, sys, time
signal.signal(signal.SIG$sig, lambda *_: sys.exit(40))
open('$dir/ready', 'w').close()
time.sleep(20)" ) & pid=$!
    for _ in $(seq 200); do [ -e "$dir/ready" ] && break; sleep 0.05; done
    kill -$sig $pid; wait $pid; rc=$?
    [ $rc = 40 ] || fail "SIG$sig: $rc"
    rm "$dir/ready"
done
"$HONE" exec --source none --json "$dir/r.json" -- sleep 20 2>"$dir/err" & pid=$!
for _ in $(seq 200); do pgrep -P $pid sleep >/dev/null && break; sleep 0.05; done
kill -TERM $pid; wait $pid; [ $? = 143 ] || fail "a command that does not catch SIGTERM"
grep -q "ended by signal 15 (SIGTERM)" "$dir/err" || fail "the report comes after SIGTERM too: $(cat "$dir/err")"

# Ctrl-C on a terminal reaches the command once, and its output is all that the terminal shows
python3 - "$HONE" <<'PY' || fail "terminal"
import os, pty, sys
code = """import signal, sys, time
hits = []
signal.signal(signal.SIGINT, lambda *_: hits.append(1))
print('ready', flush=True)
end = time.time() + 1.2
while time.time() < end: time.sleep(0.05)
sys.stdout.write('hits %d, tty %s' % (len(hits), sys.stdout.isatty()))
sys.exit(5)"""
pid, fd = pty.fork()
if pid == 0: os.execv(sys.argv[1], [sys.argv[1], "exec", "--source", "none", "--quiet", "--", "python3", "-c", code])
out, sent = b"", False
while True:
    try: part = os.read(fd, 1000)
    except OSError: break
    if not part: break
    out += part
    if b"ready" in out and not sent: sent = os.write(fd, b"\x03") == 1
status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
if (status, out.replace(b"^C", b"")) != (5, b"ready\r\nhits 1, tty True"): sys.exit("%r" % [status, out])
PY

# usage
for args in "" "--" "--hz 0 -- true" "--cpus 1 -- true" "--units 0 -- true" "--units 3 --progress x -- true" \
            "--progress ( -- true" "--source moon -- true" "true"; do
    "$HONE" exec $args >/dev/null 2>"$dir/err"; [ $? = 2 ] || fail "usage: '$args' gives $?"
    [ "$(wc -l <"$dir/err")" = 1 ] || fail "usage: '$args' is not one sentence"
done

# what was measured of the process: all descendants count
exec_none --quiet --json "$dir/r.json" -- sh -c '
    python3 -c "
import time
x = bytearray(200 << 20)
end = time.process_time() + 0.3
while time.process_time() < end: pass" & wait'
[ "$(json 'd["user_seconds"] + d["system_seconds"] >= 0.3, d["peak_process_bytes"] >= 200 << 20, d["peak_tree_bytes"] >= 200 << 20')" = "(True, True, True)" ] || fail "CPU time and memory: $(cat "$dir/r.json")"
keys=$(json '" ".join(sorted(d))')
[ "$keys" = "command devices exit_status findings joules_per_unit own_cpu_seconds peak_process_bytes peak_tree_bytes phases phases_found place seconds signal source start_wall_ns system_seconds telemetry_stuck total units units_per_joule units_per_second user_seconds" ] || fail "keys: $keys"
[ "$(json 'd["source"], d["total"]["joules"], d["place"], d["devices"]')" = "(None, None, None, [])" ] || fail "unknown is null"

# progress: a group counts up and starts anew; CR ends a line; without a group lines are counted
exec_none --quiet --json "$dir/r.json" --progress '([0-9]+)/100' -- sh -c 'printf "5/100\r10/100\r"; echo 100/100; echo 4/100 >&2; printf 6/100 >&2' >/dev/null 2>&1
got=$(json 'd["units"]'); [ "$got" = 106.0 ] || fail "progress with a group: $got"
exec_none --quiet --json "$dir/r.json" --progress '^step' -- sh -c 'echo step a; echo no step; echo step b' >/dev/null
[ "$(json 'd["units"]')" = 2.0 ] || fail "progress by lines"

# phases: by descriptor, by file (a process that inherited no descriptor), by the command hone phase, by the output
exec_none --quiet --json "$dir/r.json" -- sh -c 'echo train >&$HONE_PHASE_FD; sleep 0.3; "$HONE" phase validate; sleep 0.2
    python3 -c "import subprocess; subprocess.run([\"sh\", \"-c\", \"echo train > \$HONE_PHASE_FILE\"])"; sleep 0.1'
got=$(json '[x["name"] for x in d["phases"]], d["phases_found"], [len(x["stretches"]) for x in d["phases"]]')
[ "$got" = "(['train', 'validate'], False, [2, 1])" ] || fail "phases: $got"
[ "$(json '0.35 <= d["phases"][0]["seconds"] < d["seconds"] and 0.2 <= d["phases"][1]["seconds"], d["phases"][0]["joules"]')" = "(True, None)" ] || fail "phases' times: $(cat "$dir/r.json")"
exec_none --quiet --json "$dir/r.json" --phases '^== (.*)' --progress 'step ([0-9]+)' -- sh -c '
    echo "== infer"; echo step 10; echo step 30; sleep 0.1; echo "== idle"; sleep 0.1; echo "== infer"; echo step 35' >/dev/null
got=$(json '[(x["name"], x["units"]) for x in d["phases"]]')
[ "$got" = "[('infer', 35.0), ('idle', 0.0)]" ] || fail "units by phase: $got"
"$HONE" phase train 2>"$dir/err"; [ $? = 1 ] && grep -q "nobody asks for phases" "$dir/err" || fail "hone phase outside"
exec_none --quiet --phases 'no group' -- true 2>"$dir/err"; [ $? = 2 ] || fail "--phases without a group"
# a descriptor that somebody handed to the command stays its own
exec_none --quiet -- sh -c 'echo kept >&9; [ "$HONE_PHASE_FD" != 9 ]' 9>"$dir/nine" || fail "descriptor 9 is taken"
[ "$(cat "$dir/nine")" = kept ] || fail "descriptor 9"

# energy: a recording with a known integral; 2 cards, 100 W and 300 W rising to 500 W, 2 s at 20 Hz, row by row
python3 - "$dir/e.hrec" <<'PY'
import sys
with open(sys.argv[1], "w") as f:
    f.write('#hone-record 1\n#start {"wall_ns":1790000000000000000,"source":"nvml"}\n')
    for d in (0, 1): f.write(f'#device {d} {{"kind":"gpu","name":"card","gpu_index":{d},"memory_bytes":1000}}\n')
    f.write("#columns 0 power_w,energy_mj,gr_active,fb_used_bytes\n#columns 1 power_w,gr_active\n")
    for i in range(41):
        t = i * 50000
        f.write(f"0,{t},100,{5000 + i * 5000},{1 if i > 20 else 0},{100 + i}\n1,{t},{300 + 5 * i},1\n")
PY
"$HONE" exec --source "replay:$dir/e.hrec?speed=0" --hz 100 --units 50 --json "$dir/r.json" -- sleep 2 2>"$dir/err" || fail "replay"
[ "$(json 'round(d["devices"][0]["joules"], 6), d["devices"][0]["energy_method"]')" = "(200.0, 'energy counter')" ] || fail "energy by counter: $(cat "$dir/r.json")"
[ "$(json 'abs(d["devices"][1]["joules"] - 800) < 1e-6, d["devices"][1]["energy_method"]')" = "(True, 'power readings integrated')" ] || fail "energy by power"
[ "$(json 'abs(d["total"]["joules"] - 1000) < 1e-6, abs(d["joules_per_unit"] - 20) < 1e-6, abs(d["units_per_joule"] * d["joules_per_unit"] - 1) < 1e-9')" = "(True, True, True)" ] || fail "total"
[ "$(json 'abs(d["devices"][0]["idle_share"] - 0.5) < 1e-6, d["devices"][1]["idle_share"], d["devices"][0]["peak_memory_bytes"]')" = "(True, 0.0, 140)" ] || fail "idle share"
[ "$(json 'd["devices"][0]["sm_active"]')" = None ] || fail "SM activity that was never read is not 0"
grep -q "2 cards together: 1000.* J" "$dir/err" && grep -q "J a unit" "$dir/err" || fail "text: $(cat "$dir/err")"

# a card that the command cannot see is not its own
export HONE_NVML_LIB=$HONE_BUILD_DIR/fakes/libnvidia-ml.so HONE_FAKE_NVML=cards=3,power=400
CUDA_VISIBLE_DEVICES=2 "$HONE" exec --source nvml --quiet --json "$dir/r.json" -- sleep 0.2
[ "$(json '[x["device"] for x in d["devices"]]')" = "['gpu 2']" ] || fail "visible cards: $(json '[x["device"] for x in d["devices"]]')"
HONE_FAKE_NVML=init=9 "$HONE" exec --source nvml -- touch "$dir/ran" 2>/dev/null; [ $? = 4 ] && [ ! -e "$dir/ran" ] || fail "a source that was asked for must be there"
HONE_FAKE_NVML=init=9 "$HONE" exec --quiet -- true || fail "no telemetry is no failure"

# threads of the driver's library take no signal that is meant for us or for the command
for i in 1 2 3 4 5 6; do
    HONE_FAKE_NVML=thread timeout 20 "$HONE" exec --source nvml+host --quiet -- sh -c 'sleep 0.05; exit 6'; [ $? = 6 ] || fail "the command's end is missed ($i)"
done
for i in 1 2 3; do
    rm -f "$dir/ready"
    ( export HONE_FAKE_NVML=thread; exec "$HONE" exec --source nvml --quiet -- sh -c 'trap "exit 41" TERM; : >"$1"; for i in 1 2 3 4 5 6 7 8 9; do sleep 0.3; done' sh "$dir/ready" ) & pid=$!
    for _ in $(seq 200); do [ -e "$dir/ready" ] && break; sleep 0.05; done
    kill -TERM $pid; wait $pid; rc=$?; [ $rc = 41 ] || fail "SIGTERM beside a driver's thread: $rc"
done

# a driver call that hangs costs that card, not the others, nor the exit status; a lost card is named
HONE_FAKE_NVML=cards=2,hang=1@3 "$HONE" exec --source nvml --json "$dir/r.json" -- sh -c 'sleep 0.8; exit 3' 2>"$dir/err"; [ $? = 3 ] || fail "status beside a stuck card"
[ "$(json '[x["stuck"] for x in d["devices"]], d["devices"][0]["seconds"] >= 0.7, d["total"]["complete"]')" = "([False, True], True, False)" ] || fail "a stuck card: $(cat "$dir/r.json")"
grep -q "gpu 1: .*the driver stopped answering" "$dir/err" || fail "a stuck card is not named"
HONE_FAKE_NVML=cards=2,lost=1@3 "$HONE" exec --source nvml -- sleep 0.5 2>"$dir/err" || fail "a lost card"
grep -q "gpu 1: .*fell off the bus" "$dir/err" || fail "a lost card is not named: $(cat "$dir/err")"

# cards: the environment is set, a second job gets others, a third is refused, a rank takes them as given
export HONE_FAKE_NVML=cards=4,idle
visible='echo $CUDA_VISIBLE_DEVICES'
cat >"$dir/job" <<EOF2
$visible
"$HONE" exec --quiet --place --gpus 1 -- sh -c '$visible'
"$HONE" exec --quiet --place --gpus 3 -- true || echo full
EOF2
"$HONE" exec --quiet --place --gpus 2 -- sh -c "$visible; exec sleep 30" >"$dir/first" & first=$!
for _ in $(seq 400); do [ -s "$dir/first" ] && break; sleep 0.05; done
# the second job is inside of nobody's; a job inside of it takes from what it has
got=$("$HONE" exec --quiet --place --gpus 2 -- sh "$dir/job" 2>/dev/null | tr '\n' ' ')
[ "$(cat "$dir/first") $got" = "0,1 2,3 2 full " ] || fail "cards of three jobs: $(cat "$dir/first") $got"
"$HONE" exec --quiet --place --gpus 3 -- true 2>"$dir/err"; [ $? = 1 ] && grep -q "2 in use" "$dir/err" || fail "a third job: $(cat "$dir/err")"
kill $first; wait $first 2>/dev/null
got=$(CUDA_VISIBLE_DEVICES=3,2 OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=2 "$HONE" exec --place --gpus 2 -- sh -c "$visible" 2>"$dir/err")
[ "$got" = 3,2 ] && grep -q "mpirun (Open MPI) has set CUDA_VISIBLE_DEVICES=3,2: left as it is" "$dir/err" || fail "mpirun's cards: $got, $(cat "$dir/err")"
unset HONE_NVML_LIB HONE_FAKE_NVML

# binding, seen from inside; two jobs at a time do not meet
show='import os, time; print(sorted(os.sched_getaffinity(0)), flush=True); time.sleep(float("%s"))'
allowed=$(python3 -c 'import os; print(len(os.sched_getaffinity(0)))')
exec_none --quiet --place --cpus 1 --json "$dir/r.json" -- python3 -c "${show/\%s/0}" >"$dir/a" || fail "--place"
[ "$(python3 -c "print(len($(cat "$dir/a")))")" = 1 ] || fail "one CPU: $(cat "$dir/a")"
[ "[$(json 'd["place"]["cpus"]')]" = "$(cat "$dir/a")" ] || fail "JSON of the place"
if [ "$allowed" -ge 2 ]; then
    "$HONE" exec --source none --quiet --place --cpus 1 -- python3 -c "${show/\%s/30}" >"$dir/one" & one=$!
    for _ in $(seq 400); do [ -s "$dir/one" ] && break; sleep 0.05; done
    exec_none --quiet --place --cpus 1 -- python3 -c "${show/\%s/0}" >"$dir/b" || fail "second job"
    [ -s "$dir/one" ] && [ -s "$dir/b" ] && [ "$(cat "$dir/one")" != "$(cat "$dir/b")" ] || fail "two jobs on $(cat "$dir/one" "$dir/b")"
    exec_none --quiet --place --cpus "$allowed" -- touch "$dir/ran" 2>"$dir/err"; [ $? = 1 ] && [ ! -e "$dir/ran" ] || fail "a machine too full"
    kill $one; wait $one 2>/dev/null
    # a job inside of a job shares its CPUs, not those of others
    exec_none --quiet --place --cpus 2 -- "$HONE" exec --source none --quiet --place --cpus 1 -- python3 -c "${show/\%s/0}" >"$dir/b" || fail "a job inside of a job"
    [ "$(python3 -c "print(len($(cat "$dir/b")))")" = 1 ] || fail "a job inside of a job: $(cat "$dir/b")"
fi
for bad in "--cpus -1" "--gpus 65" "--gpus 0 --nics 1" "--tp 2" "--memory-gib 3"; do
    exec_none --place $bad -- true 2>"$dir/err"; [ $? = 2 ] && grep -q -- "--" "$dir/err" || fail "$bad: $(cat "$dir/err")"
done
[ -z "$(ls "$dir/claims" | grep job-)" ] || fail "claims are left: $(ls "$dir/claims")"

# a launcher's rank is left where it is
LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 TORCHELASTIC_RUN_ID=x exec_none --place -- python3 -c "${show/\%s/0}" >"$dir/a" 2>"$dir/err" || fail "under torchrun"
grep -q "local rank 1 of torchrun" "$dir/err" || fail "torchrun is not reported: $(cat "$dir/err")"
[ "$(python3 -c "print(len($(cat "$dir/a")))")" = "$allowed" ] || fail "torchrun's rank was bound"
echo ok
