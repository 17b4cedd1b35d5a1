#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""hone optimize on real models with real data; the written INT8 model is run by onnxruntime and
compared with hone's own run of the same file, and with the float model.

    optimize_models.py HONE MODELS_DIR WORK_DIR
"""
import json, os, subprocess, sys
import numpy as np, onnx, onnxruntime as ort

hone, models, work = sys.argv[1:4]
here = os.path.dirname(os.path.abspath(__file__))
ort.set_default_logger_severity(3)
failed = 0


def say(ok, text):
    global failed
    failed += not ok
    print(("ok     " if ok else "FAILED ") + text, flush=True)


def hone_outputs(model, data, count):
    out = f"{work}/out"
    os.makedirs(out, exist_ok=True)
    subprocess.run([hone, "run", model, "--data", data, "--output-dir", out], check=True, capture_output=True)
    return [np.load(f"{out}/{k}_0.npy") for k in range(count)]


def case(name, data, rows, extra, agreement, strategy="int8"):
    src, dst = f"{models}/{name}/model.onnx", f"{work}/{name}.onnx"
    r = subprocess.run([hone, "optimize", src, "-o", dst, "--data", data, "--seconds", "0.5", "--force", strategy,
                        "--only", strategy, "--report", f"{work}/{name}", *extra], capture_output=True, text=True)
    if r.returncode:
        return say(False, f"{name}: {r.stderr.strip()}")
    verdict = json.load(open(f"{work}/{name}/report.json"))["strategies"][0]
    print(f"       {name}: {verdict['reason']}")
    onnx.checker.check_model(dst)
    feeds = np.load(data)
    s8, s32 = ort.InferenceSession(dst), ort.InferenceSession(src)
    ours = hone_outputs(dst, data, rows)
    names = [i.name for i in s8.get_inputs()]
    theirs = [s8.run(None, {n: feeds[n][k:k + 1] for n in names})[0] for k in range(rows)]
    plain = [s32.run(None, {n: feeds[n][k:k + 1] for n in names})[0] for k in range(rows)]
    flat = lambda xs: np.concatenate([x.ravel() for x in xs]).astype(np.float64)
    cos = lambda a, b: float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))
    top = lambda a, b: float(np.mean([x.reshape(-1).argmax() == y.reshape(-1).argmax() for x, y in zip(a, b)]))
    c, t = cos(flat(ours), flat(theirs)), top(ours, theirs)
    say(t >= 0.99 or c >= 0.999, f"{name}: INT8 in onnxruntime against hone: cosine {c:.6f}, top-1 agreement {t:.4f} of {rows}")
    t, c = top(ours, plain), cos(flat(ours), flat(plain))
    lo = (t + 1.92 / rows - 1.96 * np.sqrt(t * (1 - t) / rows + 0.96 / rows ** 2)) / (1 + 3.84 / rows)
    say(t >= agreement or c >= 0.999, f"{name}: INT8 against float32: cosine {c:.6f}, agreement {t:.4f} (95 % from {lo:.4f})")


case("filetype_magika", f"{models}/filetype_magika/samples.npz", 76, ["--budget", "3"], 0.97)
try:
    import skimage, sklearn  # noqa: F401
    for name, inp, h, w, n, mean, std in (("cifar_resnet2b", "input.1", 32, 32, 300, 127, 64), ("face_rfb320", "input", 240, 320, 32, 127, 128)):
        subprocess.run([sys.executable, f"{here}/make_images.py", f"{work}/{name}.npz", inp, str(h), str(w), str(n), str(mean), str(std)], check=True)
        case(name, f"{work}/{name}.npz", n, ["--budget", "3"], 0.99)
except ImportError:
    print("       the vision models are left out: scikit-image and scikit-learn are not there")

# Transformers by the range of the call: all layers (size), whether faster here or not.
rng = np.random.default_rng(5)
mask = np.ones((64, 24), np.int64)
mask[::2, 16:] = 0
np.savez(f"{work}/bert-ts.npz", ids=rng.integers(0, 50, (64, 24)), mask=mask)
np.savez(f"{work}/vit_cifar_ibp.npz", input=rng.standard_normal((64, 3, 32, 32)).astype(np.float32))
for name in ("bert-ts", "vit_cifar_ibp"):
    case(name, f"{work}/{name}.npz", 64, ["--objective", "size", "--budget", "5"], 0.95, "int8-dynamic")
    kinds = [n.op_type for n in onnx.load(f"{work}/{name}.onnx").graph.node]
    say(kinds.count("MatMulInteger") >= 12, f"{name}: {kinds.count('MatMulInteger')} products by the range of the call")
print(f"{failed} failed")
sys.exit(failed > 0)
