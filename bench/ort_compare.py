#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""hone against onnxruntime on the CPU, float32, paired: one table for docs/performance.md.

    bench/ort_compare.py [--models DIR] [--threads 1,2] [--seconds S] [--json ROWS] [--write] [NAME...]
    bench/ort_compare.py --int8 [--batch 50]        the demo: float32, int8 and onnxruntime float32

Each engine runs in a process of its own that sleeps on a pipe. The driver wakes one at a time for a
block of calls, in the order A B B A, so blocks never overlap and both engines see the same drift of
the machine. Inside a block calls are made until 10 ms have passed (caches, spinning threads of the
other engine), then the timed ones. The speedup is the median of the paired ratios of block medians, with a
bootstrap 95 % interval. Both engines are called through their C API by ctypes (onnxruntime's library
comes in its wheel); what such a call costs is measured on an identity model and subtracted. --write
puts the table between its marks in docs/performance.md. --json keeps the rows in a file: rows that it
has already stay, so that a table can be made in several short calls (quiet minutes are rare), and
NAME - measures nothing and only prints the table of what is there.
"""
import argparse, contextlib, ctypes, datetime, glob, json, math, os, platform, random, re, statistics as st, subprocess, sys, tempfile, time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests", "field"))
WARM_NS, BLOCK_NS, SAMPLE_NS = 10_000_000, 25_000_000, 50_000
REST_LIMIT_S = 0.2
SMALL_MS = 0.2  # models faster than this are shown but not counted in the mean

ORIGIN = {
    "bert-dynamo": "BERT encoder, small (PyTorch, dynamo export)",
    "bert-ts": "BERT encoder, small (PyTorch, TorchScript export)",
    "bev-dynamo": "bird's-eye-view CNN (PyTorch, dynamo export)",
    "bev-ts": "bird's-eye-view CNN (PyTorch, TorchScript export)",
    "cifar_resnet2b": "ResNet-2B, CIFAR-10 (VNN-COMP)",
    "detect_yolox_nano": "YOLOX-Nano, 416x416",
    "dlrm-ts": "DLRM recommender (PyTorch)",
    "face_rfb320": "Ultra-Light-Fast face detector RFB-320",
    "face_rfb320_simplified": "the same RFB-320, simplified file",
    "face_yunet_dynamic": "YuNet face detector, 320x320",
    "filetype_magika": "Magika file-type classifier",
    "llama-dynamo": "Llama-style decoder, small (PyTorch)",
    "lstm_power-ts": "LSTM load forecaster (PyTorch)",
    "matrix_factorisation-ts": "matrix factorisation (PyTorch)",
    "pitch_basic": "Basic Pitch transcription",
    "speech_gtcrn": "GTCRN speech enhancement, stream step",
    "speech_gtcrn_simple": "the same GTCRN, simplified file",
    "superres10": "super-resolution-10 (ONNX model zoo)",
    "unet3d-dynamo": "3-D U-Net, small (PyTorch, dynamo export)",
    "unet3d-ts": "3-D U-Net, small (PyTorch, TorchScript export)",
    "vad_silero": "Silero VAD",
    "vad_silero_ifless": "Silero VAD without If",
    "vit_cifar_ibp": "ViT, CIFAR-10 (VNN-COMP)",
}


# ---- the two engines, called through C ---------------------------------------------------------

class Tensor(ctypes.Structure):
    _fields_ = [("dtype", ctypes.c_int), ("rank", ctypes.c_int), ("dims", ctypes.c_int64 * 8),
                ("data", ctypes.c_void_p), ("bytes", ctypes.c_size_t)]


class SessionOptions(ctypes.Structure):
    _fields_ = [("device", ctypes.c_char_p), ("threads", ctypes.c_int), ("plan_cache_bytes", ctypes.c_int64)]


def onnx_dtype(array):
    import numpy as np
    return {"float32": 1, "uint8": 2, "int8": 3, "int32": 6, "int64": 7, "bool": 9, "float64": 11}[np.dtype(array.dtype).name]


class Hone:
    def __init__(self, path, threads, arrays, names, output_names):
        lib = ctypes.CDLL(os.environ.get("HONE_LIB", f"{ROOT}/build/libhone.so"))
        self.error = ctypes.create_string_buffer(1 << 16)
        model, session = ctypes.c_void_p(), ctypes.c_void_p()
        self.check(lib.hone_model_load(path.encode(), ctypes.byref(model), self.error))
        options = SessionOptions(b"cpu", threads, 0)
        self.check(lib.hone_session_new(model, ctypes.byref(options), ctypes.byref(session), self.error))
        if lib.hone_model_input_count(model) != len(arrays):
            sys.exit(f"{path}: hone sees another number of inputs")
        inputs = (Tensor * len(arrays))()
        for t, a in zip(inputs, arrays):
            t.dtype, t.rank, t.data, t.bytes = onnx_dtype(a), a.ndim, a.ctypes.data, a.nbytes
            t.dims[:a.ndim] = a.shape
        self.outputs = (Tensor * len(output_names))()
        self.call = lib.hone_session_run
        self.args = (session, inputs, len(arrays), self.outputs, len(output_names), self.error)
        self.keep = (lib, model)

    def check(self, status):
        if status:
            sys.exit(f"hone: status {status}: {bytes(self.error.raw).replace(bytes(1), b' ').decode(errors='replace').strip()[:400]}")

    def run(self):
        self.check(self.call(*self.args))


class Ort:
    # Places in the table that OrtGetApiBase()->GetApi() returns; it only ever grows at its end.
    CALLS = {"error": 2, "env": 3, "session": 7, "run": 9, "options": 10, "level": 23, "intra": 24, "inter": 25, "tensor": 49, "cpu": 69}

    def __init__(self, path, threads, arrays, names, output_names):
        import onnxruntime
        found = glob.glob(os.path.dirname(onnxruntime.__file__) + "/capi/libonnxruntime.so.*")
        self.python = not found
        if self.python:  # older wheels link the library into the Python module
            o = onnxruntime.SessionOptions()
            o.intra_op_num_threads, o.inter_op_num_threads, o.log_severity_level = threads, 1, 3
            s = onnxruntime.InferenceSession(path, o, providers=["CPUExecutionProvider"])
            self.call, self.args = s.run, (None, dict(zip(names, arrays)))
            return
        lib = ctypes.CDLL(found[0])
        lib.OrtGetApiBase.restype = ctypes.POINTER(ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32))
        self.table = ctypes.cast(lib.OrtGetApiBase()[0](16), ctypes.POINTER(ctypes.c_void_p))
        p, ref = ctypes.c_void_p, ctypes.byref

        def call(name, *args):
            types = [p if isinstance(a, (p, ctypes.Array, bytes)) or type(a).__name__ == "CArgObject" else ctypes.c_size_t for a in args]
            self.check(ctypes.CFUNCTYPE(p, *types)(self.table[self.CALLS[name]])(*args))

        env, options, session, cpu = p(), p(), p(), p()
        call("env", 3, b"bench", ref(env))
        call("options", ref(options))
        call("level", options, 99)
        call("intra", options, threads)
        call("inter", options, 1)
        call("session", env, path.encode(), options, ref(session))
        call("cpu", 0, 0, ref(cpu))
        values = (p * len(arrays))()
        for k, a in enumerate(arrays):
            value, dims = p(), (ctypes.c_int64 * max(a.ndim, 1))(*a.shape)
            call("tensor", cpu, p(a.ctypes.data), a.nbytes, dims, a.ndim, onnx_dtype(a), ref(value))
            values[k] = value.value
        strings = lambda l: (ctypes.c_char_p * len(l))(*[s.encode() for s in l])
        outs = (p * len(output_names))()  # made by the first call, used again by later ones
        size = ctypes.c_size_t
        self.call = ctypes.CFUNCTYPE(p, p, p, p, p, size, p, size, p)(self.table[self.CALLS["run"]])
        self.keep = (lib, env, options, cpu, arrays)
        self.args = (session, None, strings(names), values, len(arrays), strings(output_names), len(output_names), outs)

    def check(self, status):
        if status:
            message = ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_void_p)(self.table[self.CALLS["error"]])(status)
            sys.exit(f"onnxruntime: {message.decode(errors='replace')}")

    def run(self):
        r = self.call(*self.args)
        if not self.python:
            self.check(r)


def worker(engine, path, threads, cpus, npz, output_names):
    """Answers each line on stdin with one on stdout: 'save FILE', or 'SAMPLES CALLS' (calls in a sample)."""
    os.sched_setaffinity(0, cpus)
    import numpy as np
    data = np.load(npz)
    names = list(data.files)
    arrays = [np.ascontiguousarray(data[n]).reshape(data[n].shape) for n in names]
    e = {"hone": Hone, "ort": Ort}[engine](path, threads, arrays, names, output_names)
    now, call, args, check = time.perf_counter_ns, e.call, e.args, getattr(e, "check")
    e.run()
    print("ready", flush=True)
    for line in sys.stdin:
        a, b = line.split(maxsplit=1)
        if a == "save":
            types = {1: np.float32, 2: np.uint8, 3: np.int8, 6: np.int32, 7: np.int64, 9: np.bool_, 11: np.float64}
            e.run()
            outs = [np.frombuffer((ctypes.c_char * t.bytes).from_address(t.data), types[t.dtype]).reshape(t.dims[:t.rank])
                    if t.bytes else np.zeros(t.dims[:t.rank], types[t.dtype]) for t in e.outputs]
            np.savez(b.strip(), **{str(k): o for k, o in enumerate(outs)})
            print("saved", flush=True)
            continue
        samples, calls = int(a), int(b)
        end = now() + WARM_NS
        call(*args)
        while now() < end:
            call(*args)
        times = []
        for _ in range(samples):
            t = now()
            for _ in range(calls):
                status = call(*args)
            times.append((now() - t) / calls)
        if not getattr(e, "python", False):
            check(status)
        print(json.dumps(times), flush=True)


# ---- the driver --------------------------------------------------------------------------------

class Side:
    def __init__(self, engine, path, threads, cpus, npz, output_names):
        self.p = subprocess.Popen([sys.executable, os.path.abspath(__file__), "--worker", json.dumps([engine, path, threads, cpus, npz, output_names])],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.what = f"{engine} on {path}"
        self.line()
        once = st.median(self.ask("5 1"))
        self.calls = max(1, math.ceil(SAMPLE_NS / once))
        self.samples = max(3, math.ceil(BLOCK_NS / (once * self.calls)))
        self.all = []

    def line(self):
        l = self.p.stdout.readline()
        if not l:
            raise RuntimeError(f"{self.what} ended: exit status {self.p.wait()}")
        return l

    def ask(self, text):
        self.p.stdin.write(text + "\n")
        self.p.stdin.flush()
        return json.loads(self.line()) if not text.startswith("save") else self.line()

    def block(self):
        t = self.ask(f"{self.samples} {self.calls}")
        self.rest()
        self.all += t
        return st.median(t)

    def cpu_ns(self):
        total = 0
        for task in os.scandir(f"/proc/{self.p.pid}/task"):
            with contextlib.suppress(OSError), open(f"{task.path}/schedstat") as f:
                total += int(f.read().split()[0])
        return total

    def rest(self):
        """Until the process uses no CPU: threads that wait for work go on spinning for a while (onnxruntime's 50 ms)."""
        before, end = self.cpu_ns(), time.monotonic() + REST_LIMIT_S
        while time.monotonic() < end:
            time.sleep(0.004)
            now = self.cpu_ns()
            if now - before < 400_000:
                return
            before = now

    def close(self):
        self.p.stdin.close()
        self.p.wait()


def interval(values, seed=1):
    rng = random.Random(seed)
    boot = sorted(st.median(rng.choices(values, k=len(values))) for _ in range(2000))
    return st.median(values), boot[50], boot[1949]


def measure(sides, overheads, seconds, min_rounds=3, max_rounds=40):
    """p50 in ms of each side, and for each side but the first (median, low, high) of its time over the first's."""
    rows, start = [], time.monotonic()
    while len(rows) < 2 * min_rounds or (time.monotonic() - start < seconds and len(rows) < 2 * max_rounds):
        for order in (sides, sides[::-1]):
            t = {s: s.block() for s in order}
            rows.append([max(t[s] - o, t[s] * 0.1) for s, o in zip(sides, overheads)])
    p50 = [max(st.median(s.all) - o, st.median(s.all) * 0.1) / 1e6 for s, o in zip(sides, overheads)]
    return p50, [interval([r[k] / r[0] for r in rows]) for k in range(1, len(sides))], len(rows)


def reference(path, feeds_of):
    import onnxruntime as ort
    o = ort.SessionOptions()
    o.log_severity_level = 3
    s = ort.InferenceSession(path, o, providers=["CPUExecutionProvider"])
    feeds = feeds_of(s)
    return feeds, [x.name for x in s.get_outputs()], s.run(None, feeds)


def identity(work):
    from onnx import TensorProto, helper, save
    io = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 8]) for n in ("x", "y")]
    model = helper.make_model(helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "identity", io[:1], io[1:]),
                              opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    save(model, f"{work}/identity.onnx")
    return f"{work}/identity.onnx"


def compare(args, models, work):
    """Yields (name, threads, row); name None is the identity model, measured first for each thread count."""
    import numpy as np
    from model_inputs import SHAPES, differs, make_inputs
    for threads in args.threads:
        cpus = sorted(os.sched_getaffinity(0))[:threads]
        overheads = [0, 0]
        for name, path in [(None, identity(work))] + models:
            sides = []
            try:
                feeds, outputs, refs = reference(path, lambda s: make_inputs(s, name, SHAPES.get(name, [{}])[0], 0))
                np.savez(f"{work}/in.npz", **feeds)
                sides = [Side(engine, path, threads, cpus, f"{work}/in.npz", outputs) for engine in ("hone", "ort")]
                sides[0].ask(f"save {work}/out.npz")
                got = np.load(f"{work}/out.npz")
                wrong = [f"{o}: {w}" for k, (o, r) in enumerate(zip(outputs, refs)) if (w := differs(r, got[str(k)]))]
                p50, (ratio,), pairs = measure(sides, overheads, args.seconds)
                if name is None:
                    overheads = [t * 1e6 for t in p50]
                row = {"hone_ms": p50[0], "ort_ms": p50[1], "speedup": ratio[0], "ci": ratio[1:], "pairs": pairs, "wrong": wrong,
                       "load": load(), "tiny": name is not None and min(p50[k] * 1e6 / max(overheads[k], 1) for k in (0, 1)) < 4}
            except RuntimeError as e:
                row = {"wrong": [str(e)]}
            finally:
                for s in sides:
                    s.close()
            yield name, threads, row


def demo_int8(args, work):
    import numpy as np
    from model_inputs import make_inputs
    f32, int8 = f"{ROOT}/examples/fashion/fashion_resnet.onnx", f"{ROOT}/build/demo/optimized.onnx"
    if not os.path.exists(int8):
        sys.exit("build/demo/optimized.onnx is not there: run scripts/demo first")
    rows = []
    for threads in args.threads:
        cpus = sorted(os.sched_getaffinity(0))[:threads]
        shape = lambda s: {i.name: (args.batch, *i.shape[1:]) for i in s.get_inputs()}
        feeds, outputs, _ = reference(f32, lambda s: make_inputs(s, "fashion", shape(s), 0))
        np.savez(f"{work}/in.npz", **feeds)
        sides = [Side(e, p, threads, cpus, f"{work}/in.npz", outputs) for e, p in (("hone", int8), ("hone", f32), ("ort", f32), ("ort", int8))]
        p50, ratios, pairs = measure(sides, [0] * 4, args.seconds)
        for s in sides:
            s.close()
        rows.append((threads, p50, ratios, pairs))
    return rows


def conditions():
    import onnxruntime
    cpuinfo = open("/proc/cpuinfo").read()
    field = lambda k: (re.search(rf"^{k}\s*: (.*)$", cpuinfo, re.M) or [None, platform.machine()])[1]
    flags = set(field("flags").split())
    isa = [i for i in ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile") if i in flags]
    version = subprocess.run([f"{ROOT}/build/hone", "--version"], capture_output=True, text=True).stdout.strip() or "hone"
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    gnu = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", "libdnnl2"], capture_output=True, text=True).stdout.strip()
    return (f"{field('model name')}, {os.cpu_count()} CPUs, {' '.join(isa)}; {version} ({commit}), oneDNN {gnu or '?'}, onnxruntime {onnxruntime.__version__}; "
            f"{datetime.date.today().isoformat()}")


def load():
    return float(open("/proc/loadavg").read().split()[0])


def us(ms):
    return f"{ms:.2f}" if ms >= 1 else f"{ms:.3f}" if ms >= 0.1 else f"{ms:.4f}"


def markdown(rows, threads_list):
    loads = [r["load"] for r in rows.values() if "load" in r]
    out = [f"{conditions()}. Load average (which counts the benchmark) {min(loads):.1f} to {max(loads):.1f}"
           + (" (**not quiet**: other jobs ran on the same CPUs)." if max(loads) > 1.5 + max(threads_list) else "."), ""]
    head = " | ".join(f"hone {t}T ms | onnxruntime {t}T ms | speedup {t}T" for t in threads_list)
    out += [f"| Model | {head} |", "|---|" + "--:|--:|:--|" * len(threads_list)]
    names = list(dict.fromkeys(n for n, _ in rows))
    for n in names:
        cells = []
        for t in threads_list:
            r = rows.get((n, t), {})
            if "hone_ms" not in r:
                cells += ["failed", "", ""]
                continue
            mark = "~" if r["tiny"] else ""
            cells += [us(r["hone_ms"]), us(r["ort_ms"]), f"{mark}{r['speedup']:.2f} [{r['ci'][0]:.2f}, {r['ci'][1]:.2f}]" + (" (outputs differ)" if r["wrong"] else "")]
        out.append(f"| {ORIGIN.get(n, n) if n else '*identity, the cost of a call (subtracted below)*'} | " + " | ".join(cells) + " |")
    out.append("")
    for t in threads_list:
        big = {n: rows[n, t] for n in names if n and "hone_ms" in rows.get((n, t), {}) and max(rows[n, t]["hone_ms"], rows[n, t]["ort_ms"]) >= SMALL_MS}
        if not big:
            continue
        mean = math.exp(st.fmean(math.log(r["speedup"]) for r in big.values()))
        worst = sorted(big, key=lambda n: big[n]["speedup"])
        out.append(f"{t} thread{'s'[:t > 1]}: geometric mean **{mean:.2f}** over the {len(big)} models above {SMALL_MS} ms on either side, minimum "
                   f"**{big[worst[0]]['speedup']:.2f}**; the three lowest: " + ", ".join(f"{ORIGIN.get(n, n)} {big[n]['speedup']:.2f}" for n in worst[:3]) + ".")
        out.append("")
    return "\n".join(out)


def put(mark, text):
    path = f"{ROOT}/docs/performance.md"
    s = open(path).read()
    begin, end = f"<!-- {mark}: begin, written by bench/ort_compare.py -->", f"<!-- {mark}: end -->"
    a, b = s.index(begin) + len(begin), s.index(end)
    open(path, "w").write(s[:a] + "\n" + text.rstrip() + "\n" + s[b:])


def main():
    if len(sys.argv) == 3 and sys.argv[1] == "--worker":
        return worker(*json.loads(sys.argv[2]))
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--models", default=f"{ROOT}/../shared/data/models", help="folder of NAME/model.onnx")
    p.add_argument("--threads", default="1,2", type=lambda s: [int(x) for x in s.split(",")])
    p.add_argument("--seconds", type=float, default=4, help="time for each model and thread count")
    p.add_argument("--int8", action="store_true", help="the demo's comparison instead")
    p.add_argument("--batch", type=int, default=50)
    p.add_argument("--json", help="keep the rows here, beside those of earlier calls")
    p.add_argument("--write", action="store_true", help="update docs/performance.md")
    p.add_argument("names", nargs="*")
    args = p.parse_args()
    before = load()
    with tempfile.TemporaryDirectory() as work:
        if args.int8:
            out = [f"{conditions()}; batch {args.batch}; load average {before:.1f}.", "",
                   "| Threads | hone int8 ms | hone float32 ms | onnxruntime float32 ms | onnxruntime int8 ms | int8 over our float32 | int8 over onnxruntime float32 |", "|--:|--:|--:|--:|--:|:--|:--|"]
            for t, p50, ratios, pairs in demo_int8(args, work):
                out.append(f"| {t} | " + " | ".join(us(x) for x in p50) + " | " + " | ".join(f"{m:.2f} [{lo:.2f}, {hi:.2f}]" for m, lo, hi in ratios[:2]) + " |")
            text = "\n".join(out) + "\n"
        else:
            names = args.names or sorted(os.listdir(args.models))
            rows = {}
            if args.json and os.path.exists(args.json):
                rows = {(r.pop("model"), r.pop("threads")): r for r in json.load(open(args.json))}
            for name, t, r in compare(args, [(n, os.path.abspath(f"{args.models}/{n}/model.onnx")) for n in names], work) if names != ["-"] else ():
                rows[name, t] = r
                print(f"{name or 'identity':24} {t}T " + (f"hone {us(r['hone_ms']):>8} ort {us(r['ort_ms']):>8} ms  x{r['speedup']:.2f} [{r['ci'][0]:.2f}, {r['ci'][1]:.2f}] {r['pairs']} pairs"
                      if "hone_ms" in r else "failed") + ("; ".join(["", *r["wrong"]])), file=sys.stderr, flush=True)
                if args.json:  # after each, since the call may be ended early
                    json.dump([{"model": n, "threads": t, **r} for (n, t), r in rows.items()], open(args.json, "w"), indent=1)
            rows = dict(sorted(rows.items(), key=lambda kv: (kv[0][0] or "", kv[0][1])))
            text = markdown(rows, args.threads)
    print(text)
    if args.write:
        put("int8" if args.int8 else "float32", text)


if __name__ == "__main__":
    main()
