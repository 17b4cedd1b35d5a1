# SPDX-License-Identifier: Apache-2.0
"""Loops whose bound is known by construction, recorded one by one: the test of hone's diagnosis on a real card.

usage: python3 bench/gpu/diagnose_loops.py OUT [--hone PATH] [--seconds S] [--only NAME,...] [--parts loops,exec,kernels]
       python3 bench/gpu/diagnose_loops.py --child NAME SECONDS     (one loop, for hone exec)

Writes OUT/<loop>.hrec.gz (10 Hz, nvml+host), OUT/loops.tsv (loop, expected findings), OUT/exec-<loop>.{json,html}
and OUT/summary.txt: per loop what was found and why; the energy of hone exec beside the card's counter read by
another library in another process. Needs PyTorch and, for the exec part, nvidia-ml-py. What measuring slows down: exec_overhead.py.

Expected: the bound ("-" for none), then what must be said beside it; what has a ? may be said.
"""
import base64, json, os, re, signal, subprocess, sys, threading, time, zlib

os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
import torch

dev = os.environ.get("LOOPS_DEVICE", "cuda")
small = dev == "cpu"  # a dry run without a card: sizes shrink, nothing is learnt
POWER = ",?throttled:power limit"


def sync():
    if dev == "cuda":
        torch.cuda.synchronize()


def n(size):
    return max(8, size // 64) if small else size


def half(*shape, dtype=torch.float16):
    return torch.randn(*[n(s) for s in shape], device=dev, dtype=torch.float32 if small else dtype)


def tf32(on):
    torch.backends.cuda.matmul.allow_tf32 = on
    torch.backends.cudnn.allow_tf32 = on


# ---- the loops: each function sets up and returns one step --------------------------------------------------

def gemm(size, dtype, allow=True):
    def make():
        tf32(allow)
        a, b = half(size, size, dtype=dtype), half(size, size, dtype=dtype)
        c = torch.empty_like(a)
        return lambda: torch.matmul(a, b, out=c)
    return make


def bmm_fp32():
    tf32(False)
    a, b = half(256, 1024, 1024, dtype=torch.float32), half(256, 1024, 1024, dtype=torch.float32)
    return lambda: torch.bmm(a, b)


def conv_fp16():
    net = torch.nn.Conv2d(n(512), n(512), 3, padding=1).to(dev, torch.float32 if small else torch.float16)
    net = net.to(memory_format=torch.channels_last)
    x = half(256, 512, 56, 56).to(memory_format=torch.channels_last)
    def step():
        with torch.no_grad():
            net(x)
    return step


def transformer():
    d = 64 if small else 4096
    layer = torch.nn.TransformerEncoderLayer(d, 32 if not small else 4, 4 * d, batch_first=True).to(dev)
    layer = layer.eval() if small else layer.half().eval()
    x = half(8, 2048, d) if not small else torch.randn(2, 8, d)
    def step():
        with torch.no_grad():
            layer(x)
    return step


def resnet(name, batch, dtype, size=224, train=True, allow=True):
    def make():
        import torchvision
        tf32(allow)
        torch.backends.cudnn.benchmark = not small
        net = getattr(torchvision.models, name)().to(dev, memory_format=torch.channels_last).train(train)
        opt = torch.optim.SGD(net.parameters(), 0.01, momentum=0.9)
        b, s = (2, 32) if small else (batch, size)
        x = torch.randn(b, 3, s, s, device=dev).contiguous(memory_format=torch.channels_last)
        y = torch.randint(0, 1000, (b,), device=dev)
        def step(data=None):
            with torch.autocast(dev, dtype or torch.bfloat16, enabled=dtype is not None):
                loss = torch.nn.functional.cross_entropy(net(x if data is None else data), y)
            loss.backward()
            opt.step()
            opt.zero_grad(set_to_none=True)
        return step
    return make


def triad():
    a, b, c = (torch.randn(n(1 << 29), device=dev, dtype=torch.bfloat16) for _ in range(3))
    out = torch.empty_like(a)
    return lambda: torch.addcmul(a, b, c, out=out)


def layer_norm():
    x = half(65536, 8192)
    norm = torch.nn.LayerNorm(x.shape[-1], device=dev, dtype=x.dtype)
    def step():
        with torch.no_grad():
            norm(x)
    return step


def gather():
    table = half(1 << 23, 512)
    rows = torch.randint(0, table.shape[0], (n(1 << 22),), device=dev)
    return lambda: torch.nn.functional.embedding(rows, table)


def adam():
    params = [torch.nn.Parameter(torch.randn(n(1 << 28), device=dev)) for _ in range(2)]
    for p in params:
        p.grad = torch.randn_like(p)
    opt = torch.optim.AdamW(params, fused=not small)
    return opt.step


def decode_batch4():
    w = [half(8192, 28672) for _ in range(4)]
    x = half(4, 28672)
    x = torch.randn(4, w[0].shape[1], device=dev, dtype=w[0].dtype)
    return lambda: [torch.matmul(x, m.T) for m in w]


def tiny_mlp():
    net = torch.nn.Sequential(*[m for _ in range(10) for m in (torch.nn.Linear(64, 64), torch.nn.ReLU())]).to(dev)
    x = torch.randn(8, 64, device=dev)
    def step():
        with torch.no_grad():
            net(x)
    return step


def lstm_cells():
    cell = torch.nn.LSTMCell(128, 128).to(dev)
    state = [torch.zeros(1, 128, device=dev), torch.zeros(1, 128, device=dev)]
    x = torch.randn(1, 128, device=dev)
    def step():
        with torch.no_grad():
            for _ in range(20):
                state[:] = cell(x, tuple(state))
    return step


def optimiser_per_tensor():
    params = [torch.nn.Parameter(torch.randn(64, 64, device=dev)) for _ in range(160)]
    for p in params:
        p.grad = torch.randn_like(p)
    opt = torch.optim.Adam(params, foreach=False)
    return opt.step


def resnet18_one_image():
    import torchvision
    net = torchvision.models.resnet18().to(dev).eval()
    x = torch.randn(1, 3, 64, 64, device=dev)
    def step():
        with torch.no_grad():
            net(x)
    return step


def tiny_adds():
    x = torch.zeros(32, 32, device=dev)
    return lambda: [x.add_(1.0) for _ in range(50)]


def fed(prepare, batch=96):
    """A training step behind a loader that is too slow."""
    def make():
        train = resnet("resnet50", batch, torch.bfloat16)()
        def step():
            prepare()
            train()
            sync()
        return step
    return make


def sleep_loader():
    time.sleep(0.1)


def numpy_augment():
    import numpy
    images = numpy.random.randint(0, 255, (24, 256, 256, 3), dtype=numpy.uint8)
    images = images[:, ::-1].astype(numpy.float32) / 255
    (images - images.mean((1, 2), keepdims=True)) / (images.std((1, 2), keepdims=True) + 1e-3)


blob = base64.b64encode(zlib.compress(os.urandom(1 << 20) * 2))


def python_decode():
    for _ in range(3):
        zlib.decompress(base64.b64decode(blob))
        sum(blob[i] for i in range(0, len(blob), 3))


waits = iter(range(1 << 30))


def shards():  # works off a shard, then waits for the next one
    if next(waits) % 8 == 0:
        time.sleep(0.5)


def copy(direction, pinned, mib=512):
    def make():
        host = torch.empty(n(mib << 20), dtype=torch.uint8)
        host = host.pin_memory() if pinned and not small else host
        card = torch.empty(n(mib << 20), dtype=torch.uint8, device=dev)
        pair = (card, host) if direction == "in" else (host, card)
        return lambda: pair[0].copy_(pair[1], non_blocking=pinned)
    return make


def copy_and_normalise():  # float32 images from pinned memory, little work with them
    host = torch.empty(n(128 << 20), dtype=torch.float32)
    host = host if small else host.pin_memory()
    return lambda: host.to(dev, non_blocking=True).sub_(0.5).mul_(2)


def nothing():
    return lambda: time.sleep(0.05)


def heartbeat():
    x = torch.zeros(1024, device=dev)
    def step():
        x.add_(1)
        sync()
        time.sleep(0.5)
    return step


def host_only():
    import numpy
    a = numpy.random.rand(600, 600)
    return lambda: a @ a


def full(make_inner):
    """Fills the card's memory to 98.5 % of what is free once the inner loop has its own."""
    def make():
        inner = make_inner()
        inner()
        sync()
        held = []
        if dev == "cuda":
            free, total = torch.cuda.mem_get_info()
            held.append(torch.empty(max(free - int(total * 0.015), 1), dtype=torch.uint8, device=dev))
        def step():
            inner()
            return held
        return step
    return make


def timed(step):
    step()
    sync()
    t, count = time.time(), 0
    while time.time() - t < 0.25:
        step()
        sync()
        count += 1
    return (time.time() - t) / count


def both(make_a, make_b, share_a):
    """A for `share_a` of the time, B for the rest, in turns."""
    def make():
        a, b = make_a(), make_b()
        ta, tb = timed(a), timed(b)
        turns_a = max(1, round(0.05 * share_a / ta))
        turns_b = max(1, round(turns_a * ta / share_a * (1 - share_a) / tb))
        def step():
            for _ in range(turns_a):
                a()
            for _ in range(turns_b):
                b()
        return step
    return make


LOOPS = [  # name, expected, function
    ("gemm-fp16", "compute" + POWER, gemm(8192, torch.float16)),
    ("gemm-tf32", "compute" + POWER, gemm(8192, torch.float32)),
    ("gemm-fp64", "compute" + POWER, gemm(6144, torch.float64)),
    ("conv3x3-fp16", "compute" + POWER, conv_fp16),
    ("transformer-prefill", "compute" + POWER, transformer),
    ("triad-bf16", "bandwidth" + POWER, triad),
    ("layer-norm", "bandwidth" + POWER, layer_norm),
    ("embedding-gather", "bandwidth" + POWER, gather),
    ("adamw-fused", "bandwidth" + POWER, adam),
    ("decode-batch4", "bandwidth" + POWER, decode_batch4),
    ("tiny-adds", "launch", tiny_adds),
    ("eager-mlp", "launch", tiny_mlp),
    ("lstm-cells", "launch", lstm_cells),
    ("optimiser-per-tensor", "launch", optimiser_per_tensor),
    ("resnet18-one-image", "launch", resnet18_one_image),
    ("loader-sleeps", "input", fed(sleep_loader)),
    ("numpy-augment", "input", fed(numpy_augment, 64)),
    ("python-decode", "input", fed(python_decode)),
    ("waits-for-shards", "input", fed(shards, 64)),
    ("pinned-in", "transfer", copy("in", True)),
    ("pageable-in", "transfer", copy("in", False)),
    ("pinned-out", "transfer", copy("out", True)),
    ("pageable-out", "transfer", copy("out", False)),
    ("images-in-fp32", "transfer", copy_and_normalise),
    ("context-only", "-,idle", nothing),
    ("heartbeat", "-,idle", heartbeat),
    ("host-work", "-,idle", host_only),
    ("gemm-fp32", "compute,tensor" + POWER, gemm(8192, torch.float32, False)),
    ("bmm-fp32", "compute,tensor" + POWER, bmm_fp32),
    ("resnet18-train-fp32", "compute,tensor" + POWER, resnet("resnet18", 256, None, allow=False)),
    ("full-gemm", "compute,memory" + POWER, full(gemm(8192, torch.bfloat16))),
    ("full-triad", "bandwidth,memory" + POWER, full(triad)),
    ("full-idle", "-,idle,memory", full(nothing)),
    ("mixed-gemm75-triad25", "compute" + POWER, both(gemm(8192, torch.bfloat16), triad, 0.75)),
    ("mixed-triad75-gemm25", "bandwidth" + POWER, both(triad, gemm(8192, torch.bfloat16), 0.75)),
    ("mixed-starved-full", "input,memory", full(fed(sleep_loader))),
    ("mixed-fp32-in-turns", "compute,tensor" + POWER, both(gemm(6144, torch.float32, False), triad, 0.7)),
]
EXEC = ["resnet50-train", "tiny-adds", "loader-sleeps", "pinned-in", "gemm-fp16"]
CHILD_ONLY = [("resnet50-train", "", resnet("resnet50", 256, torch.bfloat16))]


def run(step, seconds):
    end, count = time.time() + seconds, 0
    while time.time() < end:
        for _ in range(2):
            step()
            count += 1
        sync()
    return count


def forget():
    import gc
    gc.collect()
    if dev == "cuda":
        torch.cuda.synchronize()
        torch.cuda.empty_cache()


# ---- recording ---------------------------------------------------------------------------------------------------

def record(hone, path, source, step, seconds):
    recorder = subprocess.Popen([hone, "record", "-o", path, "--hz", "10", "--source", source],
                                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    end = time.time() + 5
    while not os.path.exists(path) and time.time() < end and recorder.poll() is None:
        time.sleep(0.01)
    count = run(step, seconds)
    recorder.send_signal(signal.SIGINT)
    _, err = recorder.communicate()
    if recorder.returncode != 0:
        raise RuntimeError("hone record: " + err.decode())
    return count


def tokens(report):
    found = json.loads(report)["findings"]
    bound = [x["class"] for x in found if x["bound"]]
    extras = [x["class"] + (":" + x["reason"] if x["reason"] else "") for x in found if not x["bound"]]
    return bound or ["-"], extras, [x["class"] + ": " + x["evidence"] for x in found]


def judged(expected, bound, extras):
    want = expected.split(",")
    must = [e for e in want[1:] if e[0] != "?"]
    return bound == [want[0]] and all(e in extras for e in must) and all(e in must or "?" + e in want for e in extras)


# ---- the card's counter, by another library in a thread of its own ---------------------------------------------

class Counter(threading.Thread):
    def __init__(self):
        super().__init__(daemon=True)
        import pynvml
        pynvml.nvmlInit()
        self.card, self.nvml = pynvml.nvmlDeviceGetHandleByIndex(0), pynvml
        self.rows, self.stop = [], False

    def run(self):
        while not self.stop:
            self.rows.append((time.time(), self.nvml.nvmlDeviceGetTotalEnergyConsumption(self.card) / 1000))
            time.sleep(0.05)

    def at(self, t):  # interpolated
        for (t0, j0), (t1, j1) in zip(self.rows, self.rows[1:]):
            if t0 <= t <= t1:
                return j0 + (j1 - j0) * (t - t0) / (t1 - t0)
        return float("nan")


def exec_runs(hone, out, seconds, say):
    say("\nhone exec on a real command: what it found, its joules beside the counter read with nvidia-ml-py\n")
    for name in EXEC:
        counter = Counter()
        counter.start()
        base = os.path.join(out, "exec-" + name)
        done = subprocess.run([hone, "exec", "--source", "nvml+host", "--json", base + ".json", "--html", base + ".html",
                               "--record", base + ".hrec.gz", "--progress", "^units ([0-9]+)", "--",
                               sys.executable, os.path.abspath(__file__), "--child", name, str(seconds)],
                              capture_output=True, text=True)
        time.sleep(0.3)
        counter.stop = True
        counter.join()
        report = open(base + ".json").read()
        d = json.loads(report)
        card = [x for x in d["devices"] if x["device"].startswith("gpu")][0]
        t0 = d["start_wall_ns"] * 1e-9
        own = counter.at(t0 + card["last_seconds"]) - counter.at(t0 + card["first_seconds"])
        bound, extras, why = tokens(report)
        work = [x for x in d["phases"] if x["name"] == "work"][0]
        say(f"{name}: status {done.returncode}, {work['bound']} in phase work, {bound[0]} {' '.join(extras)} in all; {card['joules']:.1f} J against {own:.1f} J "
            f"({100 * (card['joules'] / own - 1):+.2f} %); CPU time of hone {100 * d['own_cpu_seconds'] / d['seconds']:.2f} % "
            f"of {d['seconds']:.1f} s; units/J {d['units_per_joule']}")
        for line in why:
            say("    " + line)


def kernel_shares(say):
    """What the ResNet training spends its kernels' time on: an answer that does not come from hone's counters."""
    step = resnet("resnet50", 256, torch.bfloat16)()
    run(step, 1)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as prof:
        for _ in range(4):
            step()
        sync()
    maths = other = 0
    for item in prof.key_averages():
        t = item.self_device_time_total
        dense = re.search("gemm|conv|fprop|dgrad|wgrad|xmma|cutlass|sm[89]0_|implicit", item.key) and not re.search("elementwise|batch|norm", item.key)
        maths, other = (maths + t, other) if dense else (maths, other + t)
    say(f"resnet50-train: {100 * maths / (maths + other):.0f} % of kernel time in convolutions and matrix products, "
        f"{100 * other / (maths + other):.0f} % in kernels that only move data (normalisation, activation, sums, optimiser)")
    forget()


def main():
    args = sys.argv[1:]
    if args and args[0] == "--child":
        tell = lambda phase: os.write(int(os.environ["HONE_PHASE_FD"]), (phase + "\n").encode())
        tell("set-up")
        step = [m for name, _, m in LOOPS + CHILD_ONLY if name == args[1]][0]()
        run(step, 0.5)
        tell("work")
        print("units", run(step, float(args[2])), flush=True)
        return
    option = lambda name, default: args[args.index(name) + 1] if name in args else default
    out, hone, seconds = args[0], option("--hone", "build/hone"), float(option("--seconds", "6"))
    only = option("--only", "")
    source = option("--source", "nvml+host")
    parts = option("--parts", "loops,exec,kernels").split(",")
    os.makedirs(out, exist_ok=True)
    summary = open(os.path.join(out, "summary.txt"), "w")
    def say(text):
        print(text, flush=True)
        print(text, file=summary, flush=True)
    right = total = 0
    with open(os.path.join(out, "loops.tsv"), "w") as table:
        for name, expected, make in LOOPS:
            if "loops" not in parts or (only and name not in only.split(",")):
                continue
            path = os.path.join(out, name + ".hrec.gz")
            try:
                t = time.time()
                step = make()
                run(step, 0.3)
                ready = time.time() - t
                count = record(hone, path, source, step, seconds)
                step = None
                forget()
                report = subprocess.run([hone, "report", path, "--json", "-"], capture_output=True, text=True)
                bound, extras, why = tokens(report.stdout)
                good = judged(expected, bound, extras)
                right += good
                total += 1
                table.write(f"{name}\t{expected}\n")
                say(f"{'ok   ' if good else 'WRONG'} {name:22} expected {expected:38} found {' '.join(bound + extras):30} "
                    f"{count} steps, set up in {ready:.1f} s")
                for line in why:
                    say("        " + line)
            except Exception as e:
                say(f"FAILED {name}: {type(e).__name__}: {e}"[:400])
                step = None
                forget()
    if total:
        say(f"{right} of {total} as expected")
    for name, part in (("exec", lambda: exec_runs(hone, out, seconds, say)), ("kernels", lambda: kernel_shares(say))):
        try:
            if name in parts:
                part()
        except Exception as e:
            say(f"FAILED: {type(e).__name__}: {e}"[:400])


if __name__ == "__main__":
    main()
