#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What placing is worth to two inference servers on one machine, in pairs.

usage: bench/place_servers.py [--hone build/hone] [--pairs 24] [--seconds 1.5] [--model M.onnx]
                              [--server onnxruntime|hone] [--disturber]
Two servers run at once, each with a thread a CPU that it may use, as frameworks do by default: once under
`hone exec --place --cpus N/2`, once under `hone exec` alone, in the order A B B A. --disturber adds a third
process that computes and sleeps in turns, left to the kernel both times. Prints the median of the paired
ratios with a bootstrap interval (95 %)."""
import argparse
import json, os, random, statistics, subprocess, sys, tempfile, time

parser = argparse.ArgumentParser()
parser.add_argument("--hone", default="build/hone")
parser.add_argument("--pairs", type=int, default=24)
parser.add_argument("--seconds", type=float, default=1.5)
parser.add_argument("--model", default="examples/fashion/fashion_resnet.onnx")
parser.add_argument("--server", choices=("onnxruntime", "hone"), default="onnxruntime")
parser.add_argument("--disturber", action="store_true")
parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
o = parser.parse_args()


def serve():
    import numpy, onnxruntime
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = len(os.sched_getaffinity(0))
    session = onnxruntime.InferenceSession(o.model, settings, providers=["CPUExecutionProvider"])
    value = session.get_inputs()[0]
    feed = {value.name: numpy.random.rand(*[d if isinstance(d, int) else 1 for d in value.shape]).astype(numpy.float32)}
    for _ in range(20):
        session.run(None, feed)
    times, begin = [], time.perf_counter()
    while time.perf_counter() - begin < o.seconds:
        before = time.perf_counter()
        session.run(None, feed)
        times.append((time.perf_counter() - before) * 1e3)
    rate = len(times) / (time.perf_counter() - begin)
    times.sort()
    print(json.dumps({"throughput_per_s": rate, "latency_ms": {"p50": times[len(times) // 2], "p99": times[len(times) * 99 // 100]}}))


if o.serve:
    serve()
    sys.exit()
cpus = sorted(os.sched_getaffinity(0))
share = max(1, len(cpus) // 2)
BUSY = "import time\nwhile True:\n    until = time.monotonic() + 0.02\n    while time.monotonic() < until: pass\n    time.sleep(0.03)"


def run(placed):
    command = [o.hone, "exec", "--source", "none", "--quiet"] + (["--place", "--cpus", str(share)] if placed else [])
    server = [sys.executable, __file__, "--serve", "--model", o.model, "--seconds", str(o.seconds)]
    if o.server == "hone":
        server = [o.hone, "bench", o.model, "--json", "--seconds", str(o.seconds)]
    command += ["--"] + server
    third = subprocess.Popen([sys.executable, "-c", BUSY]) if o.disturber else None
    try:
        jobs = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(2)]
        reports = [json.loads(job.communicate()[0]) for job in jobs]
    finally:
        if third:
            third.kill()
            third.wait()
    latency = [max(r["latency_ms"][p] for r in reports) for p in ("p50", "p99")]
    return [sum(r["throughput_per_s"] for r in reports)] + latency


os.environ["HONE_CLAIMS"] = tempfile.mkdtemp()
print(f"load before {open('/proc/loadavg').read().split()[0]}; {len(cpus)} CPUs; two {o.server} servers of {o.model}"
      + (", beside a third process" if o.disturber else ""))
rounds, begin = [], time.monotonic()
for i in range(o.pairs):
    first = i % 2 == 0
    a, b = run(first), run(not first)
    rounds.append((a, b) if first else (b, a))
    if time.monotonic() - begin > 170:
        break
random.seed(1)
for k, (name, better) in enumerate((("inferences/s", "more"), ("median ms", "less"), ("99th percentile ms", "less"))):
    ratios = [placed[k] / free[k] for placed, free in rounds]
    boot = sorted(statistics.median(random.choices(ratios, k=len(ratios))) for _ in range(4000))
    print(f"{name:19} placed {statistics.median(p[k] for p, _ in rounds):9.3f}  free {statistics.median(f[k] for _, f in rounds):9.3f}"
          f"  ratio {statistics.median(ratios):.3f} [{boot[100]:.3f}, {boot[3899]:.3f}]  ({better} is better, {len(ratios)} pairs)")
