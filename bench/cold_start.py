#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the store does for a start: time to the first answer and resident memory of large models.

    $(scripts/peers) bench/cold_start.py [--rounds N] [--threads N] [--base HONE] [--write]

Two models are made here, with their weights beside them (external data, aligned): products of
2,048 x 2,048 and convolutions of 512 channels. Each start is a new process of `hone bench`; the ways
take turns, and the median is shown: without a store; the first start with an empty one (which also
puts the forms into it, in the background); later starts, which map them. --base names another
build's command, run the same way beside them. The files are in the page cache throughout. --write puts the table
between its marks in docs/performance.md.
"""
import argparse, json, os, shutil, statistics as st, subprocess, sys, tempfile, time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def models(work):
    import numpy as np, onnx
    from onnx import TensorProto, helper
    rng = np.random.default_rng(0)
    os.chdir(work)  # onnx looks for the external file's name here

    def chain(name, count, node, weight_shape, x_shape):
        nodes, weights, x = [], [], "x"
        for i in range(count):
            weights.append(onnx.numpy_helper.from_array((rng.standard_normal(weight_shape, dtype=np.float32) * 0.03), f"w{i}"))
            nodes += [node(x, f"w{i}", f"m{i}"), helper.make_node("Relu", [f"m{i}"], [f"r{i}"])]
            x = f"r{i}"
        value = lambda n: helper.make_tensor_value_info(n, TensorProto.FLOAT, x_shape)
        model = helper.make_model(helper.make_graph(nodes, name, [value("x")], [value(x)], weights),
                                  opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.save(model, f"{work}/{name}.onnx", save_as_external_data=True, location=f"{name}.bin", size_threshold=1024)
        return f"{work}/{name}.onnx"

    yield "8 products 2048x2048, 128 MiB", chain("products", 8, lambda x, w, y: helper.make_node("MatMul", [x, w], [y]), (2048, 2048), ["n", 2048]), "x=1x2048"
    yield "12 convolutions 512x512x3x3, 108 MiB", chain("convs", 12, lambda x, w, y: helper.make_node("Conv", [x, w], [y], pads=[1, 1, 1, 1]),
                                                       (512, 512, 3, 3), ["n", 512, "h", "w"]), "x=1x512x7x7"


def start(hone, path, shape, threads, store):
    env = {**os.environ, "HONE_STORE": store}
    before = time.monotonic()
    child = subprocess.Popen([hone, "bench", path, "--shape", shape, "--threads", str(threads), "--seconds", "0.1", "--json"],
                             stdout=subprocess.PIPE, env=env)
    out = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    if status:
        sys.exit(f"{hone} bench {path} failed")
    r = json.loads(out)
    return {"first_ms": r["load_ms"] + r["first_run_ms"], "p50_ms": r["latency_ms"]["p50"], "peak": r.get("rss_peak_bytes", float("nan")) / 2**20,
            "cpu_ms": 1e3 * (usage.ru_utime + usage.ru_stime), "anon": r.get("rss_anon_bytes", float("nan")) / 2**20,
            "file": r.get("rss_file_bytes", float("nan")) / 2**20, "wall_ms": 1e3 * (time.monotonic() - before)}


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--rounds", type=int, default=7)
    p.add_argument("--threads", type=int, default=0)
    p.add_argument("--hone", default=f"{ROOT}/build/hone")
    p.add_argument("--base")
    p.add_argument("--write", action="store_true", help="update docs/performance.md")
    args = p.parse_args()
    args.hone, args.base = os.path.abspath(args.hone), args.base and os.path.abspath(args.base)
    shown = lambda x: "" if x != x else f"{x:.0f}"
    lines = ["| Model | start | first answer ms | peak RSS MiB | afterwards: own MiB | of files MiB | p50 of later calls ms |", "|---|---|--:|--:|--:|--:|--:|"]
    with tempfile.TemporaryDirectory() as work:
        files = list(models(work))
        time.sleep(2.2)  # younger files are not trusted to stay as they are
        for title, path, shape in files:
            warm = f"{work}/warm"
            start(args.hone, path, shape, args.threads, warm)  # fills it
            start(args.hone, path, shape, args.threads, warm)  # checks it, once a boot
            ways = {"without a store": lambda: start(args.hone, path, shape, args.threads, "off"),
                    "first, empty store": lambda: start(args.hone, path, shape, args.threads, tempfile.mkdtemp(dir=work)),
                    "later, from the store": lambda: start(args.hone, path, shape, args.threads, warm)}
            if args.base:
                ways = {"before (no sharing, no store)": lambda: start(args.base, path, shape, args.threads, "off"), **ways}
            rows = {way: [] for way in ways}
            for _ in range(args.rounds):
                for way, run in ways.items():
                    rows[way].append(run())
            for way, samples in rows.items():
                m = {k: st.median(s[k] for s in samples) for k in samples[0]}
                low, high = (f(s["first_ms"] for s in samples) for f in (min, max))
                lines.append(f"| {title} | {way} | {m['first_ms']:.1f} [{low:.1f}, {high:.1f}] | {shown(m['peak'])} | {shown(m['anon'])} | {shown(m['file'])} | {m['p50_ms']:.2f} |")
                print(lines[-1], file=sys.stderr, flush=True)
            shutil.rmtree(warm)
    text = "\n".join(lines)
    print(text)
    if args.write:
        doc = f"{ROOT}/docs/performance.md"
        s = open(doc).read()
        begin, end = "<!-- start: begin, written by bench/cold_start.py -->", "<!-- start: end -->"
        a, b = s.index(begin) + len(begin), s.index(end)
        open(doc, "w").write(s[:a] + "\n" + text + "\n" + s[b:])


if __name__ == "__main__":
    main()
