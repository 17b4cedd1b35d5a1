#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# TEST-SERIAL
# TEST-TIMEOUT 170
# A real slurmctld and two slurmd on this host with pretend cards: submit, bind, energy line, a DAG, a gang
# over two nodes, hone exec --place in srun, a crash and a hang of the plug-in's helper with the job
# unharmed. Loopback only; all in one temporary folder, ended by process id.
set -euo pipefail
ulimit -c 0 # a helper crashes on purpose
for tool in slurmctld slurmd munged srun sbatch setpriv taskset; do
    PATH=$PATH:/usr/sbin command -v "$tool" > /dev/null || { echo "skipped: $tool is not installed"; exit 77; }
done
export PATH=$PATH:/usr/sbin:/sbin
[ "$(id -u)" = 0 ] || { echo "skipped: slurmd needs root"; exit 77; }
[ -f "$HONE_BUILD_DIR/hone_spank.so" ] || { echo "skipped: built without Slurm's headers"; exit 77; }
cpus=($(taskset -cp $$ | sed 's/.*: //' | tr ',' '\n' | awk -F- '{for (i = $1; i <= ($2 == "" ? $1 : $2); i++) print i}'))
[ ${#cpus[@]} -ge 2 ] || { echo "skipped: one CPU, nothing to bind"; exit 77; }
first=${cpus[0]} last=${cpus[-1]}

dir=$(mktemp -d /tmp/hone-slurm.XXXXXX)
chmod 755 "$dir"
pids=()
finish() {
    code=$?
    if [ $code != 0 ] && [ $code != 77 ]; then tail -n 15 "$dir"/log/*.log 2> /dev/null || true; fi
    SLURM_CONF=$dir/slurm.conf timeout 5 scancel -u root 2> /dev/null || true
    for pid in "${pids[@]}"; do kill "$pid" 2> /dev/null || true; done
    for pid in "${pids[@]}"; do
        for _ in 1 2 3 4 5 6 7 8 9 10; do kill -0 "$pid" 2> /dev/null || break; sleep 0.3; done
        kill -KILL "$pid" 2> /dev/null || true
    done
    # A step whose controller is gone would ask for it for ever: those that log into our folder.
    for pid in $(pgrep -x slurmstepd || true); do
        if ls -l "/proc/$pid/fd" 2> /dev/null | grep -q "$dir/"; then kill -KILL "$pid" 2> /dev/null || true; fi
    done
    wait 2> /dev/null || true
    rm -rf "$dir"
    exit $code
}
trap finish EXIT
fail() { echo "FAILED: $*"; exit 1; }
mkdir "$dir"/{dev,log,state,munge,out}
cp "$HONE" "$dir/hone"
cp "$HONE_BUILD_DIR/hone_spank.so" "$dir/hone_spank.so"
for i in 0 1 2 3; do mknod "$dir/dev/nvidia$i" c 195 "$i" 2> /dev/null || touch "$dir/dev/nvidia$i"; done

# ---- the pretend machine: four cards, two near the first CPU, two near the last ----
{
    printf '\tGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity\tNUMA Affinity\n'
    for i in 0 1 2 3; do
        printf 'GPU%d' $i
        for j in 0 1 2 3; do [ $i = $j ] && printf '\t X ' || printf '\tNV8'; done
        [ $i -lt 2 ] && printf '\t%d\t0\n' "$first" || printf '\t%d\t0\n' "$last"
    done
} > "$dir/topo.txt"
# Card i draws 100 + 50 i watts; a sample every 100 ms for 20 s, then over again.
awk -v OFS=, 'BEGIN {
    print "#hone-record 1"; print "#start {\"wall_ns\":1790000000000000000,\"source\":\"nvml\"}"
    for (d = 0; d < 4; d++) print "#device " d " {\"kind\":\"gpu\",\"name\":\"NVIDIA A800-SXM4-80GB\",\"gpu_index\":" d "}"
    for (d = 0; d < 4; d++) print "#columns " d " power_w,energy_mj,sm_active,gpu_util"
    for (t = 0; t <= 20000; t += 100) for (d = 0; d < 4; d++) print d, t * 1000, 100 + 50 * d, 5000 + (100 + 50 * d) * t, 0.5, 90
}' > "$dir/power.rec"

# ---- configuration, made by hone where hone can ----
host=$(hostname -s)
port=$((20000 + RANDOM % 20000))
hone=$dir/hone
"$hone" slurm gres --topo "$dir/topo.txt" --type a800 --file "$dir/dev/nvidia%d" > "$dir/gres.conf"
cat > "$dir/slurm.conf" << CONF
ClusterName=hone
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$dir/munge/socket
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool-%n
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd-%n.pid
SlurmctldLogFile=$dir/log/slurmctld.log
SlurmdLogFile=$dir/log/slurmd-%n.log
SlurmdDebug=info
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
SlurmdParameters=config_overrides
ReturnToService=2
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=1,batch_sched_delay=0
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
PlugStackConfig=$dir/plugstack.conf
MailProg=/bin/true
NodeName=n[0-1] NodeAddr=127.0.0.1 NodeHostname=$host Port=[$((port + 1))-$((port + 2))] Sockets=1 CoresPerSocket=$((last + 5)) ThreadsPerCore=1 Gres=gpu:a800:4 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
CONF
plugin() { echo "optional $dir/hone_spank.so log=$dir/steps.log topo=$dir/topo.txt source=replay:$dir/power.rec?speed=1&loop=1 interval-ms=200 $*" > "$dir/plugstack.conf"; }
plugin "hone=$hone"
export SLURM_CONF=$dir/slurm.conf

# ---- hone's check sees what slurmd would drain for ----
"$hone" slurm check --slurm-conf "$dir/slurm.conf" --node n0 --topo "$dir/topo.txt" > "$dir/out/check" || { cat "$dir/out/check"; fail "a good configuration is refused"; }
mkdir "$dir/bad"
grep -v nvidia3 "$dir/gres.conf" > "$dir/bad/gres.conf"
code=0; "$hone" slurm check --slurm-conf "$dir/slurm.conf" --gres-conf "$dir/bad/gres.conf" --node n1 --topo "$dir/topo.txt" > "$dir/out/check" || code=$?
[ $code = 1 ] && grep -q 'count_lower.*3 < 4' "$dir/out/check" || fail "three files for four cards are not reported"

# ---- daemons ----
head -c 1024 /dev/urandom > "$dir/munge/key"
chmod 400 "$dir/munge/key"
munged -F --force --key-file "$dir/munge/key" --socket "$dir/munge/socket" --pid-file "$dir/munge/pid" \
    --log-file "$dir/log/munged.log" --seed-file "$dir/munge/seed" > "$dir/log/munged.out" 2>&1 &
pids+=($!)
for _ in $(seq 50); do [ -S "$dir/munge/socket" ] && break; sleep 0.1; done
slurmctld -D -f "$SLURM_CONF" > "$dir/log/ctld.out" 2>&1 &
pids+=($!)
for n in n0 n1; do
    mkdir -p "$dir/spool-$n"
    slurmd -D -N $n -f "$SLURM_CONF" > "$dir/log/$n.out" 2>&1 &
    pids+=($!)
done
idle() { [ "$(sinfo -h -N -o %T 2> /dev/null | grep -c '^idle$')" = 2 ]; }
for _ in $(seq 150); do
    idle && break
    if grep -qs 'Unable to initialize cgroup plugin' "$dir"/log/slurmd-*.log; then
        echo "skipped: slurmd finds no control groups (a bare chroot or container)"
        exit 77
    fi
    sleep 0.2
done
idle || { sinfo -N; fail "the nodes did not come up"; }

# ---- bind ----
probe='echo node=$SLURMD_NODENAME gpus=${CUDA_VISIBLE_DEVICES:-none} cpus=$(sed -n "s/Cpus_allowed_list:[[:space:]]*//p" /proc/self/status)'
cpu_of() { [ "$1" -lt 2 ] && echo "$first" || echo "$last"; }
line=$(srun -w n0 --gres=gpu:a800:1 sh -c "$probe")
card=$(sed 's/.*gpus=\([0-9]*\).*/\1/' <<< "$line")
[ "$line" = "node=n0 gpus=$card cpus=$(cpu_of "$card")" ] || fail "one card: $line"
line=$(srun -w n1 --gres=gpu:a800:4 sh -c "$probe")
grep -Eqx "node=n1 gpus=0,1,2,3 cpus=($first[,-]$last)" <<< "$line" || fail "four cards: $line"
all=$(srun -w n1 --gres=gpu:a800:1 --hone=off sh -c "$probe")
grep -q "cpus=$(sed -n 's/Cpus_allowed_list:[[:space:]]*//p' /proc/self/status)\$" <<< "$all" || fail "--hone=off still binds: $all"
srun -w n1 sh -c "$probe" | grep -q gpus=none || fail "a step without cards"

# ---- hone exec --place inside srun: the cards that Slurm gave, each rank its share; one binding, not two ----
for i in 0 1 2 3; do
    pci=$dir/root/sys/bus/pci/devices/0000:1$i:00.0
    mkdir -p "$pci"
    echo 0x030200 > "$pci/class"; echo 0x10de > "$pci/vendor"; echo 0 > "$pci/numa_node"
    [ $i -lt 2 ] && echo "$first" > "$pci/local_cpulist" || echo "$last" > "$pci/local_cpulist"
done
placed() { # SRUN-OPTIONS -- PLACE-OPTIONS
    local options=()
    while [ "$1" != -- ]; do options+=("$1"); shift; done
    shift
    HONE_CLAIMS=$dir/claims HONE_SYS_ROOT=$dir/root HONE_NVML_LIB=$HONE_BUILD_DIR/fakes/libnvidia-ml.so HONE_FAKE_NVML=cards=4,idle \
        srun -w n1 "${options[@]}" "$hone" exec --source none --place "$@" -- sh -c "line=\$($probe); echo rank=\$SLURM_LOCALID \$line" 2> "$dir/out/placed.err" | sort
}
line=$(placed -n4 --gres=gpu:a800:4 --hone=off -- --gpus 4)
[ "$line" = "$(for i in 0 1 2 3; do echo "rank=$i node=n1 gpus=0,1,2,3 cpus=$(cpu_of $i)"; done)" ] ||
    fail "four ranks placed inside srun: $line; $(cat "$dir/out/placed.err")"
grep -q 'under srun' "$dir/out/placed.err" || fail "srun is not named: $(cat "$dir/out/placed.err")"
line=$(placed -n1 --gres=gpu:a800:1 -- --gpus 1)
card=$(sed 's/.*gpus=\([0-9]*\).*/\1/' <<< "$line")
[ "$line" = "rank=0 node=n1 gpus=$card cpus=$(cpu_of "$card")" ] || fail "the plug-in's binding and exec's agree: $line; $(cat "$dir/out/placed.err")"

# ---- energy line ----
field() { sed -n "s/.* $2=\([^ ]*\).*/\1/p" <<< "$1"; }
near() { awk -v a="$1" -v b="$2" -v share="$3" 'BEGIN { exit !(a > b * (1 - share) && a < b * (1 + share)) }'; }
wait_lines() { for _ in $(seq 40); do [ "$(grep -c "$1" "$dir/steps.log" 2> /dev/null || true)" -ge "$2" ] && return 0; sleep 0.1; done; fail "no $2 line(s) '$1' in the step log"; }
srun -w n0 -J energy --gres=gpu:a800:4 sh -c 'echo $SLURM_JOB_ID; sleep 2' > "$dir/out/job"
job=$(cat "$dir/out/job")
wait_lines " job=$job step=0 node=n0 gpus=0,1,2,3 " 1
line=$(grep " job=$job step=0 " "$dir/steps.log")
near "$(field "$line" energy_j)" "$(awk -v s="$(field "$line" seconds)" 'BEGIN { print 700 * s }')" 0.35 || fail "energy: $line"
[ "$(field "$line" devices)" = 4 ] && [ "$(field "$line" gpu_util)" = 90.0 ] && [ "$(field "$line" sm_active)" = 0.500 ] || fail "activity: $line"
grep -q ' gpus=none ' "$dir/steps.log" && fail "a step without cards has a line"

# ---- a user who is not root: root's log gets the line, the step runs as the user ----
if line=$(cd / && setpriv --reuid=nobody --regid=nogroup --clear-groups srun -w n0 --gres=gpu:a800:2 sh -c 'echo $SLURM_JOB_ID $(id -un)' 2> "$dir/out/nobody.err"); then
    [ "${line#* }" = nobody ] || fail "the user's step: $line"
    wait_lines " job=${line% *} step=0 " 1
else
    fail "the user's step: $(cat "$dir/out/nobody.err")"
fi
[ "$(stat -c %U:%a "$dir/steps.log")" = root:644 ] || fail "the log's owner or mode changed"

# ---- a DAG with afterok ----
submit() { sbatch --parsable -o "$dir/out/%x.out" "$@"; }
a=$(submit -J a --gres=gpu:a800:1 --wrap 'sleep 1; date +%s%N')
b=$(submit -J b --gres=gpu:a800:1 --dependency=afterok:$a --wrap 'date +%s%N')
c=$(submit -J c --gres=gpu:a800:1 --dependency=afterok:$a --wrap 'date +%s%N')
d=$(submit -J d --gres=gpu:a800:1 --dependency=afterok:$b:$c --wrap 'date +%s%N')
f=$(submit -J f --wrap 'exit 3')
g=$(submit -J g --dependency=afterok:$f --kill-on-invalid-dep=yes --wrap 'echo never')
for _ in $(seq 200); do [ -z "$(squeue -h -j "$a,$b,$c,$d,$f,$g" 2> /dev/null)" ] && [ -s "$dir/out/d.out" ] && break; sleep 0.2; done
for n in a b c d; do [ -s "$dir/out/$n.out" ] || fail "job $n of the DAG did not run"; done
[ "$(cat "$dir/out/a.out")" -lt "$(cat "$dir/out/b.out")" ] && [ "$(cat "$dir/out/a.out")" -lt "$(cat "$dir/out/c.out")" ] &&
    [ "$(cat "$dir/out/b.out")" -lt "$(cat "$dir/out/d.out")" ] && [ "$(cat "$dir/out/c.out")" -lt "$(cat "$dir/out/d.out")" ] || fail "the DAG's order"
[ ! -e "$dir/out/g.out" ] || fail "a job ran after a failed one"
wait_lines " job=$a step=batch " 1

# ---- a gang over two nodes: both or none, one line a node ----
srun -N2 --ntasks-per-node=1 --gres=gpu:a800:3 sh -c 'echo $SLURM_JOB_ID $SLURMD_NODENAME; sleep 1' | sort > "$dir/out/gang"
job=$(head -1 "$dir/out/gang" | cut -d' ' -f1)
[ "$(cut -d' ' -f2 "$dir/out/gang" | xargs)" = "n0 n1" ] || fail "the gang: $(cat "$dir/out/gang")"
wait_lines " job=$job step=0 " 2
[ "$(grep -c " job=$job step=0 node=n[01] " "$dir/steps.log")" = 2 ] || fail "the gang's lines"

# ---- the helper crashes, hangs, is missing: the job is unharmed ----
printf '#!/bin/sh\nkill -SEGV $$\n' > "$dir/crash"
printf '#!/bin/sh\nexec sleep 8\n' > "$dir/hang"
chmod 755 "$dir/crash" "$dir/hang"
for helper in crash hang missing; do
    plugin "hone=$dir/$helper"
    code=0; line=$(srun -w n0 --gres=gpu:a800:1 sh -c 'sleep 0.5; echo unharmed; exit 7' 2> /dev/null) || code=$?
    [ "$line" = unharmed ] && [ $code = 7 ] || fail "helper $helper: '$line', exit $code"
done
grep -q 'hone: the recorder ended before its step did' "$dir/log/slurmd-n0.log" || fail "the crash is not in slurmd's log"
grep -q 'hone: no plan within' "$dir/log/slurmd-n0.log" || fail "the hang is not in slurmd's log"
echo "optional $dir/absent.so" > "$dir/plugstack.conf"
[ "$(srun -w n0 --gres=gpu:a800:1 echo fine 2> /dev/null)" = fine ] || fail "an optional plug-in that is missing"
for _ in $(seq 100); do idle && break; sleep 0.1; done
idle || { sinfo -N; fail "a node is not idle at the end"; }
pgrep -f "sleep 8" -u root > "$dir/out/left" || true
while read -r pid; do
    grep -qs "$dir" "/proc/$pid/environ" && fail "a helper that hung is still there"
done < "$dir/out/left"
echo "bind, energy, user, DAG, gang, crash: all as they should be"
