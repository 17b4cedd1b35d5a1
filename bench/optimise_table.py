#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What `hone optimize` makes of real models, beside onnxruntime in float32 and in static int8.

    bench/optimise_table.py [--models DIR] [--threads 1,2] [--batch 1,8] [--seconds S] [--work DIR] [--prepare]
                            [--json ROWS] [--within S] [--again] [--write] [CELL...]

For each model: calibration data (photographs where scikit-image and scikit-learn are there, the model's own test
data, else smooth noise), the file after `--only graph`, after everything, and onnxruntime's quantize_static (QDQ, per
channel, min-max) of the same data. Five engines are then measured as in ort_compare.py, one at a time in turn: hone on
the three files, onnxruntime on the input and on its int8 file. A file that is the input's own bytes (nothing was kept)
is not measured against itself. Accuracy is the cosine of all outputs to those of the float32 file, on data that
calibration has not seen. A batch above 1 needs a model whose inputs leave their first dim free.

A table can be made in several short calls, for quiet minutes are rare: --prepare with --work does all that needs no
quiet (data, the graph rewrites, the peer's int8), --json keeps rows and passes over those that it has (--again makes
them new), each with its commit. A CELL is a model's name, or name:threads:batch; - measures nothing. --within S starts no
cell that may not end in that time; a result that was optimised but not yet measured waits in --work for the next call, as
long as the commit is the same. --write puts the table into docs/performance.md.
"""
import argparse, json, math, os, statistics as st, subprocess, sys, tempfile, time
import ort_compare as oc

ROOT = oc.ROOT
HONE = os.environ.get("HONE", f"{ROOT}/build/hone")
# Input, its shape for one sample, and what pixels are brought to (mean, deviation); "own": the model's test data.
IMAGES = {
    "face_rfb320": ("input", (3, 240, 320), 127, 128), "face_rfb320_simplified": ("input", (3, 240, 320), 127, 128),
    "face_yunet_dynamic": ("input", (3, 320, 320), 0, 1), "detect_yolox_nano": ("images", (3, 416, 416), 0, 1),
    "cifar_resnet2b": ("input.1", (3, 32, 32), 127, 64), "vit_cifar_ibp": ("input", (3, 32, 32), 127, 64),
    "superres10": ("input", (1, 224, 224), 0, 255),
}
OWN = ["bert-dynamo", "bert-ts", "llama-dynamo", "unet3d-dynamo", "unet3d-ts", "bev-dynamo", "bev-ts", "filetype_magika"]
CONV_OR_TRANSFORMER = lambda name: name not in ("dlrm-ts", "lstm_power-ts", "matrix_factorisation-ts")


def images(name, path, count=32):
    """Crops of photographs, or smooth noise where there are none."""
    import numpy as np
    inp, (c, h, w), mean, std = IMAGES[name]
    try:
        import skimage, sklearn  # noqa: F401
        subprocess.run([sys.executable, f"{ROOT}/tests/field/make_images.py", path, inp, str(h), str(w), str(count), str(mean), str(std)],
                       check=True, capture_output=True)
        if c == 1:
            x = np.load(path)[inp]
            np.savez(path, **{inp: x.mean(axis=1, keepdims=True).astype(np.float32)})
        return "photographs"
    except (ImportError, subprocess.CalledProcessError):
        rng = np.random.default_rng(5)
        a = np.kron(rng.uniform(size=(count, c, h // 8 + 1, w // 8 + 1)), np.ones((1, 1, 8, 8)))[:, :, :h, :w] * 255
        np.savez(path, **{inp: ((a + rng.normal(size=a.shape) * 8 - mean) / std).astype(np.float32)})
        return "smooth noise"


def perturbed(session, folder, path, count=32):
    """The model's own test sample, varied: float inputs by a tenth of their deviation, integers shuffled along the last axis."""
    import glob
    import numpy as np, onnx
    from onnx import numpy_helper
    rng, arrays = np.random.default_rng(5), {}
    for f in sorted(glob.glob(f"{folder}/test_data_set_0/input_*.pb")):
        t = onnx.TensorProto()
        t.ParseFromString(open(f, "rb").read())
        arrays[t.name] = numpy_helper.to_array(t)
    out = {}
    for i in session.get_inputs():
        base = arrays[i.name]
        if base.dtype.kind == "f":
            rows = [base + rng.normal(size=base.shape).astype(base.dtype) * (0.1 * base.std() if k else 0) for k in range(count)]
        else:
            rows = [base if k == 0 else rng.permuted(base, axis=-1) if base.ndim else base for k in range(count)]
        out[i.name] = np.stack(rows)
    np.savez(path, **out)
    return "its test sample, varied"


def samples(npz, session, which):
    """Feeds of the even samples (calibration) or the odd ones, as hone splits them."""
    import numpy as np
    data = np.load(npz)
    rank = {i.name: len(i.shape) for i in session.get_inputs()}
    count = min(len(data[n]) for n in rank)
    for k in range(which, count, 2):
        yield {n: data[n][k:k + 1] if data[n].ndim == rank[n] else data[n][k] for n in rank}


def free_batch(session):
    """Whether all inputs leave their first dim free."""
    return all(i.shape and not isinstance(i.shape[0], int) for i in session.get_inputs())


def feeds_of(npz, session, batch):
    """One call's inputs: a sample that calibration has not seen, or as many as make the batch."""
    import numpy as np
    rows, feeds = 0, []
    for f in samples(npz, session, 1):
        feeds.append(f)
        rows += len(next(iter(f.values())))
        if batch == 1 or rows >= batch:
            break
    whole = {n: np.concatenate([f[n] for f in feeds]) for n in feeds[0]}
    return whole if batch == 1 else {n: np.resize(a, (batch, *a.shape[1:])) for n, a in whole.items()}


def ort_int8(src, npz, dst, work):
    import onnx, onnx.version_converter, onnxruntime as ort
    from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process
    session = ort.InferenceSession(src, providers=["CPUExecutionProvider"])

    class Reader(CalibrationDataReader):
        def __init__(self):
            self.it = samples(npz, session, 0)

        def get_next(self):
            return next(self.it, None)

    pre = f"{work}/pre.onnx"
    try:
        quant_pre_process(src, pre, skip_symbolic_shape=True)
    except Exception:  # its shape inference gives up on some files
        onnx.save(onnx.load(src), pre)
    model = onnx.load(pre)
    if next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 13) < 13:  # QDQ per channel needs 13
        onnx.save(onnx.version_converter.convert_version(model, 13), pre)
    quantize_static(pre, dst, Reader(), quant_format=QuantFormat.QDQ, per_channel=True, activation_type=QuantType.QUInt8,
                    weight_type=QuantType.QInt8, calibrate_method=CalibrationMethod.MinMax)


def cosine(src, other, npz):
    import numpy as np, onnxruntime as ort
    a, b = (ort.InferenceSession(p, providers=["CPUExecutionProvider"]) for p in (src, other))
    x, y = [], []
    for feeds in samples(npz, a, 1):
        x += [v.ravel().astype(np.float64) for v in a.run(None, feeds) if v.dtype.kind == "f"]
        y += [v.ravel().astype(np.float64) for v in b.run(None, feeds) if v.dtype.kind == "f"]
    x, y = np.concatenate(x), np.concatenate(y)
    keep = np.isfinite(x) & np.isfinite(y)
    return float(x[keep] @ y[keep] / (np.linalg.norm(x[keep]) * np.linalg.norm(y[keep]) or 1))


def optimise(src, dst, npz, threads, extra, report):
    r = subprocess.run([HONE, "optimize", src, "-o", dst, "--data", npz, "--threads", str(threads), "--report", report, *extra],
                       capture_output=True, text=True)
    if r.returncode:
        raise RuntimeError(r.stderr.strip())
    return json.load(open(f"{report}/report.json"))


def prepare(name, args, work):
    """What needs no quiet: the data's path and name, the session; files that are there stay."""
    import onnxruntime as ort
    ort.set_default_logger_severity(3)
    src = os.path.abspath(f"{args.models}/{name}/model.onnx")
    npz, note = f"{work}/{name}.npz", f"{work}/{name}.json"
    session = ort.InferenceSession(src, providers=["CPUExecutionProvider"])
    if os.path.exists(note):
        return src, session, json.load(open(note))
    if os.path.exists(f"{args.models}/{name}/samples.npz"):
        npz, what = f"{args.models}/{name}/samples.npz", "its samples"
    elif name in OWN:
        what = perturbed(session, f"{args.models}/{name}", npz)
    else:
        what = images(name, npz)
    known = {"npz": npz, "data": what}
    optimise(src, f"{work}/{name}.graph.onnx", npz, 1, ["--only", "graph", "--force", "graph", "--seconds", "0.1"], f"{work}/{name}.g")
    theirs = f"{work}/{name}.ort8.onnx"
    try:
        ort_int8(src, npz, theirs, work)
        known["ort8_cosine"] = cosine(src, theirs, npz)
    except Exception as e:  # what the peer cannot quantise is said, not hidden
        known["ort8_why"] = f"{type(e).__name__}: {str(e)[:120]}"
    json.dump(known, open(note, "w"))
    return src, session, known


def whole_batches(npz, session, batch, path):
    """The data without the rows that make no whole batch."""
    import numpy as np
    data, rank = np.load(npz), {i.name: len(i.shape) for i in session.get_inputs()}
    rows = {n: data[n] if data[n].ndim == rank[n] else data[n].reshape(-1, *data[n].shape[2:]) for n in rank}
    count = min(len(a) for a in rows.values()) // batch * batch
    np.savez(path, **{n: a[:count] for n, a in rows.items()})
    return path


def same(a, b):
    return open(a, "rb").read() == open(b, "rb").read()


def commit():
    r = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return r.stdout.strip() or "unknown"


def optimised(args, src, best, npz, threads, extra, folder):
    """The report of the result in `best`: of this call, or of an earlier one of the same commit."""
    note = f"{best}.json"
    if os.path.exists(note) and os.path.exists(best):
        known = json.load(open(note))
        if known["commit"] == commit():
            return known["report"]
    report = optimise(src, best, npz, threads, ["--seconds", str(args.gate_seconds), *extra], folder)
    json.dump({"commit": commit(), "report": report}, open(note, "w"))
    return report


def one(name, args, threads, batch, work, left=math.inf):
    """A row; None where the model has its batch fixed or what is left of the time does not do."""
    import numpy as np
    src, session, known = prepare(name, args, work)
    if batch > 1 and not free_batch(session):
        return None
    graph, best, theirs = f"{work}/{name}.graph.onnx", f"{work}/{name}.{threads}.{batch}.onnx", f"{work}/{name}.ort8.onnx"
    extra = ["--time-limit", str(args.time_limit)] + (["--batch", str(batch)] if batch > 1 else [])
    npz = whole_batches(known["npz"], session, batch, f"{work}/batch.npz") if batch > 1 else known["npz"]
    begun = time.monotonic()
    report = optimised(args, src, best, npz, threads, extra, f"{work}/{name}.{threads}.{batch}")
    if time.monotonic() - begun + args.seconds * 1.4 + 3 > left:
        return None
    row = {k: v for k, v in known.items() if k != "npz"}
    row.update(commit=commit(), kept=[s["name"] for s in report["strategies"] if s["kept"]], cosine=report["result"]["accuracy"]["cosine"])
    # Speed-ups are of the optimised file: its side comes first, the input's where they are one file.
    sides = {"best": ("hone", best), "base": ("hone", src), "graph": ("hone", graph), "ort": ("ort", src), "ort8": ("ort", theirs)}
    alias = {}
    if same(src, best):
        alias["base"] = "best"
    for k in ("base", "best"):
        if same(graph, sides[k][1]):
            alias["graph"] = alias.get(k, k)
    keys = [k for k in sides if k not in alias and os.path.exists(sides[k][1])]
    np.savez(f"{work}/in.npz", **feeds_of(known["npz"], session, batch))
    cpus, outputs, open_sides = sorted(os.sched_getaffinity(0))[:threads], [o.name for o in session.get_outputs()], []
    try:
        for k in keys:
            open_sides.append(oc.Side(*sides[k], threads, cpus, f"{work}/in.npz", outputs))
        p50, ratios, pairs = oc.measure(open_sides, [0] * len(keys), args.seconds)
    finally:
        for s in open_sides:
            s.close()
    for i, k in enumerate(keys):
        row[k + "_ms"] = p50[i]
        if i:
            row["over_" + k] = ratios[i - 1]
    for k, of in alias.items():
        row[k + "_ms"] = row[of + "_ms"]
        row["over_" + k] = row.get("over_" + of)  # None: one file with the result
    row.update(pairs=pairs, load=oc.load())
    return row


def markdown(rows):
    mean = lambda v: math.exp(st.fmean(math.log(x) for x in v)) if v else float("nan")
    pair = lambda r: f"{r[0]:.2f} [{r[1]:.2f}, {r[2]:.2f}]" if r else ""
    over_input = lambda r: pair(r["over_base"]) or "the same file"
    loads = [r["load"] for r in rows.values()]
    out = [f"{oc.conditions()}. Load average {min(loads):.1f} to {max(loads):.1f}.", "",
           "| Model | T | B | hone ms | after graph | after all | onnxruntime | its int8 | kept | over the input | over onnxruntime float32 | over its int8 | cosine | its int8's | at |",
           "|---|--:|--:|--:|--:|--:|--:|--:|---|:--|:--|:--|--:|--:|---|"]
    for (n, t, b), r in sorted(rows.items()):
        ms = [oc.us(r[k]) if k in r else r.get("ort8_why", "")[:24] for k in ("base_ms", "graph_ms", "best_ms", "ort_ms", "ort8_ms")]
        out.append(f"| {oc.ORIGIN.get(n, n)} | {t} | {b} | " + " | ".join(ms) + f" | {', '.join(r['kept']) or 'nothing'} | {over_input(r)} | {pair(r['over_ort'])} | "
                   f"{pair(r.get('over_ort8'))} | {r['cosine']:.5f} | " + (f"{r['ort8_cosine']:.5f}" if "ort8_cosine" in r else "") + f" | {r.get('commit', '')} |")
    out.append("")
    for t, b in sorted({k[1:] for k in rows}):
        mine = {k[0]: r for k, r in rows.items() if k[1:] == (t, b) and CONV_OR_TRANSFORMER(k[0])}
        graph = [r["over_ort"][0] * r["best_ms"] / r["graph_ms"] for r in mine.values()]
        least, name = min(((r["over_base"] or [1])[0], n) for n, r in mine.items())
        out += [f"{t} thread{'s'[:t > 1]}, batch {b}, {len(mine)} models: after `graph` {mean(graph):.2f} x onnxruntime float32 (geometric mean), after all "
                f"**{mean([r['over_ort'][0] for r in mine.values()]):.2f} x** its float32 and **{mean([r['over_ort8'][0] for r in mine.values() if 'over_ort8' in r]):.2f} x** its int8; "
                f"the least over the own input {least:.2f}" + (f" ({oc.ORIGIN.get(name, name)})." if least < 1 else "."), ""]
    return "\n".join(out)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--models", default=f"{ROOT}/../shared/data/models")
    numbers = lambda s: [int(x) for x in s.split(",")]
    p.add_argument("--threads", default=[1, 2], type=numbers)
    p.add_argument("--batch", default=[1, 8], type=numbers, help="1 is the model's own where that is fixed")
    p.add_argument("--seconds", type=float, default=6, help="time to measure a model's five sides")
    p.add_argument("--gate-seconds", type=float, default=1, help="--seconds of hone optimize")
    p.add_argument("--time-limit", type=float, default=60, help="--time-limit of hone optimize")
    p.add_argument("--work", help="keep files here, and take those that are there")
    p.add_argument("--prepare", action="store_true", help="only what needs no quiet, into --work")
    p.add_argument("--json", help="keep rows here, beside those of earlier calls")
    p.add_argument("--within", type=float, default=math.inf, help="start no cell that may not end in so many seconds")
    p.add_argument("--again", action="store_true", help="measure cells that --json has once more")
    p.add_argument("--write", action="store_true", help="update docs/performance.md")
    p.add_argument("names", nargs="*", metavar="CELL", help="name or name:threads:batch; - : only print")
    args = p.parse_args()
    rows = {}
    if args.json and os.path.exists(args.json):
        rows = {(r.pop("model"), r.pop("threads"), r.pop("batch")): r for r in json.load(open(args.json))}
    names, begun = [] if args.names == ["-"] else args.names or sorted(set(OWN) | set(IMAGES)), time.monotonic()
    cells = []
    for name in names:
        name, *numbers = name.split(":")
        t, b = ([int(n)] for n in numbers) if len(numbers) == 2 else (args.threads, args.batch)
        cells += [(name, threads, batch) for batch in b for threads in t]
    with tempfile.TemporaryDirectory() as scratch:
        work = os.path.abspath(args.work) if args.work else scratch
        os.makedirs(work, exist_ok=True)
        for name, t, b in cells:
            left = args.within - (time.monotonic() - begun)
            try:
                if args.prepare:
                    prepare(name, args, work)
                wanted = not args.prepare and (args.again or (name, t, b) not in rows) and left > args.seconds
                r = one(name, args, t, b, work, left) if wanted else None
            except (RuntimeError, KeyError, ValueError) as e:
                print(f"{name:24} {t}T B{b} failed: {type(e).__name__} {e}", file=sys.stderr, flush=True)
                continue
            if r is None:
                continue
            rows[name, t, b] = r
            print(f"{name:24} {t}T B{b} {', '.join(r['kept'])}: over input {(r['over_base'] or [1])[0]:.2f}, onnxruntime {r['over_ort'][0]:.2f}, its int8 "
                  f"{r.get('over_ort8', [float('nan')])[0]:.2f}, cosine {r['cosine']:.5f}", file=sys.stderr, flush=True)
            if args.json:
                json.dump([{"model": n, "threads": t, "batch": b, **r} for (n, t, b), r in rows.items()], open(args.json, "w"), indent=1)
    if args.prepare:
        return
    text = markdown(rows)
    print(text)
    if args.write:
        path = f"{ROOT}/docs/performance.md"
        s = open(path).read()
        begin, end = "<!-- optimise: begin, written by bench/optimise_table.py -->", "<!-- optimise: end -->"
        a, b = s.index(begin) + len(begin), s.index(end)
        open(path, "w").write(s[:a] + "\n" + text.rstrip() + "\n" + s[b:])


if __name__ == "__main__":
    main()
