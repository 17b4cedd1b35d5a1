#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What each precision of `hone optimize --device cuda` gains on a card: one row a model and precision, each
against the float32 baseline, from the reports that the runs write.

    optimize_card.py --hone HONE --out FOLDER [--models resnet50,bert,FILE.onnx=DATA.npz=BATCH] [--seconds S]

resnet50 and bert (base, 128 tokens) are built with PyTorch and random weights, batch 32; a pair of files brings
its own data, with labels if it has any. Needs python3 with torch, torchvision and onnx for the first two."""
import argparse, json, os, subprocess, sys, time

p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
p.add_argument("--hone", default="build/hone")
p.add_argument("--out", required=True)
p.add_argument("--models", default="resnet50,bert")
p.add_argument("--only", default="tf32,fp16,bf16,int8,fp16+int8", help="precisions, each alone; a+b: b on top of a")
p.add_argument("--seconds", type=float, default=0.4)
p.add_argument("--samples", type=int, default=4, help="of data for the models built here")
p.add_argument("--batch", type=int, default=32)
p.add_argument("--chain", action="store_true", help="also all strategies in one run, kept by its own verdicts, then --replay of them")
p.add_argument("--profile", action="store_true", help="also the slowest steps of every result")
a = p.parse_args()
os.makedirs(a.out, exist_ok=True)


def hone(*args, timeout=120):
    env = dict(os.environ)
    if "HONE_LIBRARY_PATH" in env:
        env["LD_LIBRARY_PATH"] = env["HONE_LIBRARY_PATH"]
    begin = time.time()
    r = subprocess.run([a.hone, *map(str, args)], capture_output=True, text=True, timeout=timeout, env=env)
    return r, time.time() - begin


def export(name):
    """The model and its data as files; a list of further arguments."""
    import numpy as np, torch
    from torch import nn

    class Bert(nn.Module):
        class Layer(nn.Module):
            def __init__(self, d=768, h=12):
                super().__init__()
                self.h = h
                self.q, self.k, self.v, self.o = (nn.Linear(d, d) for _ in range(4))
                self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
                self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

            def forward(self, x):
                b, s, d = x.shape
                q, k, v = (f(x).view(b, s, self.h, d // self.h).transpose(1, 2) for f in (self.q, self.k, self.v))
                w = torch.softmax(q @ k.transpose(-1, -2) * (d // self.h) ** -0.5, -1)
                x = self.n1(x + self.o((w @ v).transpose(1, 2).reshape(b, s, d)))
                return self.n2(x + self.down(nn.functional.gelu(self.up(x))))

        def __init__(self):
            super().__init__()
            self.words, self.places, self.norm = nn.Embedding(30522, 768), nn.Embedding(512, 768), nn.LayerNorm(768)
            self.layers = nn.ModuleList(self.Layer() for _ in range(12))

        def forward(self, ids):
            x = self.norm(self.words(ids) + self.places.weight[: ids.shape[1]])
            for layer in self.layers:
                x = layer(x)
            return x

    torch.manual_seed(0)
    b, n = a.batch, a.samples
    if name == "resnet50":
        import torchvision
        net, x = torchvision.models.resnet50(), torch.randn(b * n, 3, 224, 224)
    else:
        net, x = Bert(), torch.randint(0, 30522, (b * n, 128))
    path, data = os.path.join(a.out, name + ".onnx"), os.path.join(a.out, name + ".npz")
    torch.onnx.export(net.eval(), (x[:b],), path, input_names=["in0"], output_names=["out"], dynamo=False, opset_version=17)
    np.savez(data, in0=x.numpy())
    return path, data, []


def side(s, key, scale=1.0, form="{:.4g}"):
    return form.format(s[key] * scale) if s.get(key) is not None else "-"


def row(label, what, report):
    v = next((x for x in report["strategies"] if x["name"] == what.split("+")[-1]), None)
    b, r, t = report["baseline"], report["result"], report["total"]
    acc = r["accuracy"]
    metric = f"top-1 {100 * b['accuracy']['metric']:.2f} -> {100 * acc['metric']:.2f} %" if acc.get("metric") is not None else (
        f"agreement {acc['top1_agreement']:.4f}" if acc.get("top1_agreement") is not None else "")
    ratio = "the same file" if t["speedup"] is None else f"{t['speedup']:.3f} [{t['speedup_ci'][0]:.3f}, {t['speedup_ci'][1]:.3f}]"
    return (f"| {label} | {what} | {t['a_ms']:.4g} | {t['b_ms']:.4g} | {ratio} | "
            f"{acc['cosine']:.6f} | {acc['max_abs']:.3g} | {metric} | {side(b, 'energy_j_per_sample', 1e3)} -> {side(r, 'energy_j_per_sample', 1e3)} | "
            f"{b['peak_memory_bytes'] / 2**20:.1f} -> {r['peak_memory_bytes'] / 2**20:.1f} | {b['start_ms']:.0f} -> {r['start_ms']:.0f} | "
            f"{v['reason'] if v else ''} |")


def both_sides(path, data, batch):
    """The same file on the card and by the C references of a CPU, on the first rows of the data."""
    import numpy as np
    names = [n for n in np.load(data).files if not n.startswith("label")]
    out, args = [], []
    for n in names:
        np.save(os.path.join(a.out, n + ".npy"), np.load(data)[n][:batch].astype(np.float32))
        args += ["--input", f"{n}={os.path.join(a.out, n + '.npy')}"]
    for how in (["--device", "cuda"], ["--reference"]):
        folder = os.path.join(a.out, "answers" + how[0])
        r, _ = hone("run", path, *how, *args, "--output-dir", folder)
        if r.returncode:
            return f"hone run {how}: {r.stderr.strip()[-200:]}"
        out.append(np.load(os.path.join(folder, "0_0.npy")).astype(np.float64).ravel())
    x, y = out
    return f"card against CPU references: cosine {x @ y / np.sqrt(x @ x * (y @ y)):.7f}, largest difference {np.abs(x - y).max():.3g} of {np.abs(y).max():.3g}"


HEAD = ("| model | precision | float32 ms | ms | ratio | cosine | largest difference | answers | mJ a sample | memory MiB | start ms | verdict |\n"
        "|---|---|---|---|---|---|---|---|---|---|---|---|")


def main():
    print(HEAD, flush=True)
    for spec in a.models.split(","):
        if "=" in spec:
            path, data, batch = spec.split("=")
            label, more = os.path.basename(path).replace(".onnx", ""), ["--batch", batch]
        else:
            (path, data, more), label = export(spec), f"{spec}, batch {a.batch}"
        name = label.split(",")[0]
        for what in a.only.split(",") + (["chain"] if a.chain else []):
            report, result = os.path.join(a.out, f"{name}-{what}"), os.path.join(a.out, f"{name}-{what}.onnx")
            strategies = what.replace("+", ",")
            choice = [] if what == "chain" else ["--only", strategies, "--force", strategies]
            r, seconds = hone("optimize", path, "-o", result, "--device", "cuda", "--data", data, "--seconds", a.seconds, "--budget", 2,
                              "--report", report, *choice, *more)
            if r.returncode:
                print(f"| {label} | {what} | failed after {seconds:.0f} s: {r.stderr.strip()[-300:]} |", flush=True)
                continue
            text = json.load(open(report + "/report.json"))
            print(row(label, what, text), flush=True)
            print(f"  ({seconds:.1f} s; fresh process {json.dumps(text.get('fresh'))[:160]})", file=sys.stderr, flush=True)
            if what == "chain":
                for s in text["strategies"]:
                    print(f"  {s['name']}: {'kept' if s['kept'] else 'refused'}: {s['reason']}", file=sys.stderr)
                for how, args in (("replay", ["-o", result + ".again", "--replay", report + "/report.json"]),
                                  ("recheck", ["--recheck", report + "/report.json"])):
                    r, seconds = hone("optimize", path, "--device", "cuda", "--data", data, "--seconds", a.seconds, "--budget", 2, *args, *more)
                    same = how == "replay" and r.returncode == 0 and open(result, "rb").read() == open(result + ".again", "rb").read()
                    print(f"  {how}: ends with {r.returncode} after {seconds:.0f} s{', the same file' if same else ''} {r.stderr.strip()[-200:]}", file=sys.stderr)
            if "=" in spec:
                print("  " + both_sides(result, data, int(batch)), file=sys.stderr, flush=True)
            if a.profile:
                r, _ = hone("bench", result, "--device", "cuda", "--data", data, "--resident", "--profile", "--json", "--seconds", "0.2", *more)
                open(report + "/profile.json", "w").write(r.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
