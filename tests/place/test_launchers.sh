#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# TEST-TIMEOUT 120
# hone exec --place inside real launchers: what they bound stays, what they left open is bound, and both
# are said. Open MPI's mpirun, and a launcher that sets what torchrun sets; srun is in tests/slurm/test_e2e.sh.
set -euo pipefail
cpus=($(taskset -cp $$ | sed 's/.*: //' | tr ',' '\n' | awk -F- '{for (i = $1; i <= ($2 == "" ? $1 : $2); i++) print i}'))
[ ${#cpus[@]} -ge 2 ] || { echo "skipped: one CPU, nothing to bind"; exit 77; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
fail() { echo "FAILED: $*"; cat "$dir"/out* "$dir"/err* 2> /dev/null; exit 1; }
export HONE_CLAIMS=$dir/claims HONE_NVML_LIB=$HONE_BUILD_DIR/fakes/libnvidia-ml.so HONE_FAKE_NVML=cards=2,idle
export HONE_SYS_ROOT=$dir/root
unset CUDA_VISIBLE_DEVICES OMP_NUM_THREADS CUDA_DEVICE_ORDER
# Two cards, one local to the first CPU, one to the second.
for i in 0 1; do
    card=$dir/root/sys/bus/pci/devices/0000:1$i:00.0
    mkdir -p "$card"
    echo 0x030200 > "$card/class"; echo 0x10de > "$card/vendor"; echo 0 > "$card/numa_node"; echo "${cpus[$i]}" > "$card/local_cpulist"
done
cat > "$dir/show" << 'SHOW'
#!/bin/sh
echo "rank ${OMPI_COMM_WORLD_RANK:-$LOCAL_RANK} cpus $(taskset -cp $$ | sed 's/.*: //') threads ${OMP_NUM_THREADS:--} cards ${CUDA_VISIBLE_DEVICES:--}"
SHOW
chmod +x "$dir/show"
place="$HONE exec --source none --place"

# ---- a launcher as torchrun is: its variables, OMP_NUM_THREADS=1 of its own, one process a rank ----
cat > "$dir/torchrun" << 'RUN'
import os, subprocess, sys
jobs = [subprocess.Popen(sys.argv[1:], env=dict(os.environ, TORCHELASTIC_RUN_ID="none", RANK=str(r), LOCAL_RANK=str(r), WORLD_SIZE="2",
        LOCAL_WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT="29500", OMP_NUM_THREADS="1")) for r in range(2)]
sys.exit(max(j.wait() for j in jobs))
RUN
run_torch() { python3 "$dir/torchrun" "$@" > "$dir/out" 2> "$dir/err" || fail "torchrun-like: exit $?"; sort -o "$dir/out" "$dir/out"; }
run_torch $place --gpus 2 -- "$dir/show"
[ "$(cat "$dir/out")" = "rank 0 cpus ${cpus[0]} threads 1 cards 0,1
rank 1 cpus ${cpus[1]} threads 1 cards 0,1" ] || fail "each rank takes its own share"
grep -q "under torchrun" "$dir/err" || fail "torchrun is not named"
run_torch $place -- "$dir/show"
grep -q "local rank 1 of torchrun: without --gpus its place is left as it is" "$dir/err" || fail "a rank without cards is left alone"
code=0; python3 "$dir/torchrun" $place --gpus 1 -- "$dir/show" > "$dir/out" 2> "$dir/err" || code=$?
[ $code = 2 ] && grep -q 'local rank 1 (from torchrun) and the placement has 1 card' "$dir/err" || fail "two ranks, one card: exit $code"

# ---- the process that made the claim is killed alone: its command runs on, and keeps what it has ----
all=--cpus=${#cpus[@]}
$place $all -- sh -c 'echo $$ > "$0"; exec sleep 30' "$dir/child" 2> "$dir/err" &
owner=$!
until [ -s "$dir/child" ]; do sleep 0.05; done
kill -9 $owner; wait $owner 2> /dev/null || true
code=0; $place $all -- true > "$dir/out" 2> "$dir/err" || code=$?
[ $code != 0 ] && grep -q "CPUs" "$dir/err" || fail "what an orphaned command holds was given away: exit $code"
kill -9 "$(cat "$dir/child")"
for i in $(seq 100); do kill -0 "$(cat "$dir/child")" 2> /dev/null || break; sleep 0.05; done
$place $all -- true > "$dir/out" 2> "$dir/err" || fail "the dead command's CPUs are not free"
# A job in a job shares its CPUs, also when the outer one's maker is gone.
$place $all -- sh -c 'kill -9 $PPID; sleep 0.2; '"$place $all"' -- true; echo "inner $?" > "$0"' "$dir/inner" > "$dir/out" 2> "$dir/err" || true
for i in $(seq 100); do [ -s "$dir/inner" ] && break; sleep 0.05; done
grep -q "^inner 0" "$dir/inner" || fail "a job inside of an orphaned job finds no CPUs: $(cat "$dir/inner")"

# ---- mpirun itself, loopback only ----
if ! command -v mpirun > /dev/null; then echo "torchrun's way holds; mpirun is not installed"; exit 0; fi
export OMPI_MCA_btl=self,vader OMPI_MCA_oob_tcp_if_include=lo OMPI_MCA_plm=isolated OMPI_MCA_btl_base_warn_component_unused=0
run_mpi() { # BIND ...
    local bind=$1
    shift
    timeout 60 mpirun --allow-run-as-root --oversubscribe -n 2 --bind-to "$bind" "$@" > "$dir/out" 2> "$dir/err" || fail "mpirun --bind-to $bind: exit $?"
    grep '^rank' "$dir/out" | sort > "$dir/out.ranks"
}
run_mpi none $place --gpus 2 -- "$dir/show"
[ "$(cat "$dir/out.ranks")" = "rank 0 cpus ${cpus[0]} threads 1 cards 0,1
rank 1 cpus ${cpus[1]} threads 1 cards 0,1" ] || fail "unbound ranks take their own shares"
grep -q 'under mpirun (Open MPI)' "$dir/err" || fail "mpirun is not named"
run_mpi core "$dir/show"
cp "$dir/out.ranks" "$dir/out.alone"
run_mpi core $place --gpus 2 -- "$dir/show"
[ "$(sed 's/ cpus.*//' "$dir/out.ranks")" = "rank 0
rank 1" ] || fail "two ranks"
[ "$(sed 's/ threads.*//' "$dir/out.ranks")" = "$(sed 's/ threads.*//' "$dir/out.alone")" ] || fail "mpirun's own binding was changed"
[ "$(sed 's/.*threads //' "$dir/out.ranks" | sort -u)" = "- cards 0,1" ] || fail "bound ranks agree on the cards and keep their threads"
[ "$(grep -c 'has bound the CPUs of this process: they are left as they are' "$dir/err")" = 2 ] || fail "the binding is not reported"
# Ranks bound crosswise to their cards are told so.
cat > "$dir/rankfile" << RANKS
rank 0=localhost slot=1
rank 1=localhost slot=0
RANKS
if [ "${cpus[0]}" = 0 ] && [ "${cpus[1]}" = 1 ]; then
    timeout 60 mpirun --allow-run-as-root --oversubscribe -n 2 --rankfile "$dir/rankfile" $place --gpus 2 -- "$dir/show" > "$dir/out" 2> "$dir/err" || fail "mpirun --rankfile"
    [ "$(grep -c 'not local to its card' "$dir/err")" = 2 ] || fail "crosswise binding is not reported"
fi
echo "launchers keep what they bound"
