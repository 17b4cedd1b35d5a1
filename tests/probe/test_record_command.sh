# SPDX-License-Identifier: Apache-2.0
# hone record: writes what replay reads; phases, exit status, usage errors.
# TEST-SERIAL: it counts samples per second.
set -u
dir=$(mktemp -d); trap 'rm -rf "$dir"' EXIT
fail() { echo "FAIL: $*"; exit 1; }
export HONE_NVML_LIB=$HONE_BUILD_DIR/fakes/libnvidia-ml.so
export HONE_FAKE_NVML=cards=2,power=400

"$HONE" record -o "$dir/a.hrec.gz" --source nvml+host --hz 50 -- \
    sh -c 'echo warm >&$HONE_PHASE_FD; sleep 0.3; echo train >&$HONE_PHASE_FD; sleep 0.3; exit 7' >"$dir/out"
[ $? = 7 ] || fail "the command's exit status is passed on"
grep -q "rows of 3 devices" "$dir/out" || fail "summary: $(cat "$dir/out")"
gzip -dc "$dir/a.hrec.gz" >"$dir/a.hrec" || fail "not gzip"
grep -q '^#event [0-9]* phase -1 warm$' "$dir/a.hrec" && grep -q 'phase -1 train$' "$dir/a.hrec" || fail "phases"
grep -q '^#device 2 {"kind":"host"' "$dir/a.hrec" || fail "host device"
rows=$(grep -c '^0,' "$dir/a.hrec"); [ "$rows" -ge 5 ] && [ "$rows" -le 40 ] || fail "$rows rows in 0.6 s at 50 Hz"

# what was recorded can be recorded again, from replay, without loss of a value
"$HONE" record -o "$dir/b.hrec" --source "replay:$dir/a.hrec.gz?speed=0" --hz 100 >/dev/null || fail "re-recording"
[ "$(grep '^0,' "$dir/a.hrec" | cut -d, -f3-)" = "$(grep '^0,' "$dir/b.hrec" | cut -d, -f3-)" ] || fail "values differ"

HONE_FAKE_NVML=cards=2,lost=1@8 "$HONE" record -o "$dir/c.hrec" --source nvml --hz 50 --seconds 2 >/dev/null 2>&1 || fail "a lost card ends the recording"
grep -q '^#event [0-9]* lost 1 ' "$dir/c.hrec" || fail "loss is not recorded"

"$HONE" record 2>/dev/null; [ $? = 2 ] || fail "no -o"
"$HONE" record -o "$dir/x" --hz 1000 2>/dev/null; [ $? = 2 ] || fail "hz"
"$HONE" record -o "$dir/x" --source moon 2>"$dir/err"; [ $? = 2 ] && grep -q "'moon' is no source" "$dir/err" || fail "source"
HONE_FAKE_NVML=init=9 "$HONE" record -o "$dir/x" --source nvml 2>"$dir/err"; [ $? = 4 ] && grep -q "not loaded" "$dir/err" || fail "no driver"
"$HONE" record -o /nonexistent/x --source host 2>/dev/null; [ $? = 5 ] || fail "unwritable"
[ ! -e "$dir/x" ] || fail "a failed start left a file"

# A full disk (here a file size limit): the reason, what was written stays readable, the command ends by itself.
(trap '' XFSZ; ulimit -f 8; "$HONE" record -o "$dir/full.hrec" --source nvml+host --hz 100 -- sh -c 'sleep 3; : >"$0"' "$dir/done") >/dev/null 2>"$dir/err"
[ $? = 5 ] && grep -q "^hone: cannot write '.*full.hrec': File too large; it can be read up to its last whole line" "$dir/err" || fail "full disk: $(cat "$dir/err")"
[ -e "$dir/done" ] || fail "a full disk ended the command"
"$HONE" record -o "$dir/again.hrec" --source "replay:$dir/full.hrec?speed=0" --hz 100 >/dev/null && [ "$(grep -c '^0,' "$dir/again.hrec")" -ge 5 ] || fail "a recording cut by a full disk"
"$HONE" record -o /dev/full --source host --hz 10 --seconds 0.3 2>"$dir/err"; [ $? = 5 ] && grep -q "No space left on device" "$dir/err" || fail "/dev/full: $(cat "$dir/err")"
"$HONE" record -o "$dir" --source host 2>"$dir/err"; [ $? = 5 ] && grep -q "Is a directory" "$dir/err" || fail "a folder: $(cat "$dir/err")"

# kill -9: what was flushed is there, compressed or not.
for name in killed.hrec killed.hrec.gz; do
    "$HONE" record -o "$dir/$name" --source nvml+host --hz 50 2>/dev/null & child=$!
    sleep 2.6; kill -9 $child; wait $child 2>/dev/null
    "$HONE" record -o "$dir/again.hrec" --source "replay:$dir/$name?speed=0" --hz 100 >/dev/null || fail "$name after kill -9"
    [ "$(grep -c '^0,' "$dir/again.hrec")" -ge 20 ] || fail "$name after kill -9: $(grep -c '^0,' "$dir/again.hrec") rows"
done
echo ok
