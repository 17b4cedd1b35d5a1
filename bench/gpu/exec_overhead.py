# SPDX-License-Identifier: Apache-2.0
"""How much hone exec slows a command down: blocks of fixed work, with it and without it in turn, within one process.

usage: hone exec --source S -- python3 bench/gpu/exec_overhead.py LOAD [PAIRS] [SECONDS A BLOCK]
       python3 bench/gpu/exec_overhead.py ...        (nothing stops and goes on: what the method itself shows)

LOAD: resnet50 (training, batch 256, bfloat16), gemm (8192, float16), adds (kernels of 32 x 32), host (a loop of Python
and a copy of 64 MiB, on the CPU), host-all (the same on as many processes as there are CPUs).

The process is hone exec's child. For the blocks without, it stops its parent (SIGSTOP), so that both sides share one
start, one warm card and one clock state; orders AB and BA alternate. Prints the median of the pairs' ratios, a 95 %
interval of it (order statistics) and all of them. What exec costs at start and end is not in this figure: compare
`hone exec -- true` with `true` for that.
"""
import math, os, signal, sys, time


def card(name):
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import diagnose_loops as loops
    import torch
    step = {"resnet50": lambda: loops.resnet("resnet50", 256, torch.bfloat16)(),
            "gemm": lambda: loops.gemm(8192, torch.float16)(), "adds": lambda: loops.tiny_adds()}[name]()
    return step, loops.sync


def host():
    source = bytearray(64 << 20)
    def step():
        total = 0
        for i in range(200000):
            total += i * i
        bytes(source)
    return step, lambda: None


def work(step, sync, turns):
    t = time.perf_counter()
    for _ in range(turns):
        step()
    sync()
    return time.perf_counter() - t


def interval(sorted_values):  # 95 % of the median, by order statistics
    n, low, tail = len(sorted_values), 0, 0.0
    for k in range(n // 2):
        tail += math.comb(n, k) / 2 ** n
        if tail > 0.025:
            break
        low = k + 1
    return (sorted_values[low - 1], sorted_values[n - low]) if low else (float("nan"),) * 2


def report(name, ratios, turns, block):
    ratios = sorted(100 * (r - 1) for r in ratios)
    n = len(ratios)
    median = (ratios[(n - 1) // 2] + ratios[n // 2]) / 2
    low, high = interval(ratios)
    print(f"overhead {name}: median {median:+.3f} % [{low:+.3f}, {high:+.3f}] of {n} pairs, blocks of {block:.2f} s ({turns} steps); "
          + " ".join(f"{r:+.2f}" for r in ratios), flush=True)


def main():
    name = sys.argv[1]
    pairs = int(sys.argv[2]) if len(sys.argv) > 2 else 20
    seconds = float(sys.argv[3]) if len(sys.argv) > 3 else 1.0
    parent = os.getppid()
    wrapped = "HONE_PHASE_FD" in os.environ
    children = []
    if name == "host-all":
        for _ in range(os.cpu_count() - 1):
            children.append(os.fork())
            if children[-1] == 0:
                step, _ = host()
                while os.getppid() != 1:
                    step()
                os._exit(0)
    step, sync = host() if name.startswith("host") else card(name)
    work(step, sync, 5)
    turns = 5
    while True:  # warm clocks and caches; how many steps fill a block
        took = work(step, sync, turns)
        if took > seconds:
            break
        turns = max(turns + 1, int(turns * min(4, 1.05 * seconds / took)))
    work(step, sync, turns)
    ratios, block = [], 0
    try:
        for i in range(pairs):
            took = {}
            for on in (False, True) if i % 2 == 0 else (True, False):
                if wrapped:
                    os.kill(parent, signal.SIGCONT if on else signal.SIGSTOP)
                    time.sleep(0.02)
                took[on] = work(step, sync, turns)
            ratios.append(took[True] / took[False])
            block += took[False] / pairs
    finally:
        if wrapped:
            os.kill(parent, signal.SIGCONT)
        for pid in children:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    report(name + ("" if wrapped else " (no exec: the method alone)"), ratios, turns, block)


main()
