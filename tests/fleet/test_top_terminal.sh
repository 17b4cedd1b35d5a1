# SPDX-License-Identifier: Apache-2.0
# hone top on a terminal (tmux): picture, keys, resize, a vanishing card, quitting; and where there is none.
# TEST-TIMEOUT 120
set -u
dir=$(mktemp -d); sock=$dir/tmux
fail() { echo "FAIL: $*"; [ -s "$dir/shot" ] && cat "$dir/shot"; exit 1; }
export HONE_NVML_LIB=$HONE_BUILD_DIR/fakes/libnvidia-ml.so HONE_FAKE_NVML=cards=2,power=400

# no terminal: one picture and an end, in ASCII where the locale has no more
LC_ALL=C "$HONE" top --source nvml </dev/null >"$dir/shot" || fail "no terminal"
grep -q "0 H200" "$dir/shot" && grep -q "400/700W" "$dir/shot" && grep -q "power limit" "$dir/shot" || fail "picture without a terminal"
LC_ALL=C grep -q '[^ -~]' "$dir/shot" && fail "not ASCII"
[ "$(wc -L <"$dir/shot")" -le 100 ] || fail "wider than 100"
LC_ALL=C.UTF-8 "$HONE" top --once --width 40 --source nvml >"$dir/shot" || fail "40 columns"
[ "$(LC_ALL=C.UTF-8 wc -L <"$dir/shot")" -le 40 ] || fail "wider than 40"
"$HONE" top --json --source nvml+host >"$dir/r.json" || fail "--json"
python3 - "$dir/r.json" <<'PY' || fail "JSON"
import json, sys
d = json.load(open(sys.argv[1]))
cards = d["devices"]
assert [c["device"] for c in cards] == ["gpu 0", "gpu 1", "host"] and all(c["state"] == "ok" for c in cards), cards
assert cards[0]["values"]["power_w"] == 400 and cards[0]["held_by"] == "power limit" and "int_active" not in cards[0]["values"]
assert cards[0]["processes"][0]["used_bytes"] > 0 and cards[2]["processes"] is None
PY
"$HONE" top --once --source "replay:$HONE_SOURCE_DIR/tests/data/h200-mixed.hrec.gz?speed=20" --hz 20 >"$dir/shot" || fail "replay"
grep -q "H200" "$dir/shot" || fail "replay's picture"
for bad in "--width 3" "--interval 0" "--hz 0" "--source moon" "extra"; do
    "$HONE" top $bad >/dev/null 2>"$dir/shot"; [ $? = 2 ] || fail "usage: $bad"
done
HONE_NCURSES=/nonexistent.so script -qec "$HONE top --source nvml" /dev/null >"$dir/shot" </dev/null 2>&1; rc=$?
command -v script >/dev/null && [ $rc != 4 ] && fail "without ncurses: $rc"
command -v tmux >/dev/null || { echo "tmux is missing: the terminal part is skipped"; rm -rf "$dir"; exit 77; }

t() { tmux -S "$sock" "$@"; }
trap 't kill-server 2>/dev/null; rm -rf "$dir"' EXIT
shot() { t capture-pane -p -t top >"$dir/shot"; }
wait_for() { for _ in $(seq 60); do shot; grep -q -- "$1" "$dir/shot" && return 0; sleep 0.1; done; fail "'$1' never came"; }
start() { # size, environment, command
    t kill-server 2>/dev/null
    sock=$sock+ # one that is ending may still hold the old name
    t -f /dev/null new-session -d -s top -x "$1" -y "$2" "sh -c '$3; echo status \$? >$dir/status; sleep 60'"
    rm -f "$dir/status"
}
ended() { for _ in $(seq 60); do [ -s "$dir/status" ] && break; sleep 0.1; done; [ "$(cat "$dir/status" 2>/dev/null)" = "status $1" ] || fail "$2: $(cat "$dir/status" 2>/dev/null)"; }
top="export LC_ALL=C.UTF-8; HONE_NVML_LIB=$HONE_NVML_LIB HONE_FAKE_NVML=cards=2,power=400 $HONE top --source nvml+host --interval 0.2"

start 120 30 "$top"
wait_for "F10Quit"
wait_for "host CPU"
grep -q "█" "$dir/shot" && grep -q "2 cards  800 W of 1400" "$dir/shot" && grep -q "power limit" "$dir/shot" || fail "picture"
t resize-window -t top -x 40 -y 20; sleep 0.6; shot
grep -q "0 H200" "$dir/shot" && grep -q "F10Quit" "$dir/shot" || fail "40 columns"
[ "$(LC_ALL=C.UTF-8 wc -L <"$dir/shot")" -le 40 ] || fail "a line is too long"
for size in "8 4" "1 1" "200 50" "120 30"; do t resize-window -t top -x ${size% *} -y ${size#* }; sleep 0.3; done
wait_for "driver 590"
t send-keys -t top F1; wait_for "this help"
t send-keys -t top F1; wait_for "COMMAND"
t send-keys -t top Down F6; wait_for "SM%▼"
t send-keys -t top i; wait_for "SM%▲"
t send-keys -t top F9; wait_for "start with --kill"
t send-keys -t top + ; wait_for "anew every 0.1 s"
t send-keys -t top p; wait_for "paused"
t send-keys -t top q; ended 0 "q ends it"
shot; grep -q "F10Quit" "$dir/shot" && fail "the screen is not given back"

# a card that falls off the bus, and one whose driver call never comes back, while others go on; no colours
start 100 24 "export LC_ALL=C.UTF-8 NO_COLOR=1; HONE_NVML_LIB=$HONE_NVML_LIB HONE_FAKE_NVML=cards=3,lost=1@6,hang=2@6 $HONE top --source nvml --interval 0.2 --hz 20"
wait_for "1 H200 .*fell off the bus"
wait_for "2 H200 .*no answer"
grep -q "0 H200 .*SM" "$dir/shot" || fail "the card that answers"
t send-keys -t top F10; ended 0 "F10 ends it beside a stuck driver"

# SIGTERM leaves the terminal in order; another locale; a dumb terminal; a replay to its end
start 80 24 "export LC_ALL=C; HONE_NVML_LIB=$HONE_NVML_LIB $HONE top --source nvml"
wait_for "F10Quit"
LC_ALL=C grep -q '[^ -~]' "$dir/shot" && fail "not ASCII in the C locale"
pkill -TERM -P "$(t list-panes -t top -F '#{pane_pid}')" hone; ended 0 "SIGTERM"
start 80 24 "export TERM=dumb; $HONE top --source host"
wait_for "hone top --once"; ended 4 "TERM=dumb"
printf '#hone-record 1\n#start {"wall_ns":1790000000000000000,"source":"nvml"}\n#device 0 {"kind":"gpu","name":"card","gpu_index":0}\n#columns 0 power_w,gr_active\n0,0,100,1\n0,100000,100,1\n' >"$dir/short.hrec"
start 80 24 "$HONE top --source replay:$dir/short.hrec"
wait_for "card"; t send-keys -t top q; ended 0 "a recording that is over"
echo ok
