#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# On a machine with cards: the live model must be what nvidia-smi prints there, read by hone's own reader.
set -u
command -v nvidia-smi >/dev/null && nvidia-smi -L 2>/dev/null | grep -q '^GPU' || { echo "no card here"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
nvidia-smi topo -m >"$work/smi.txt"
"$HONE" topo "$work/smi.txt" --json >"$work/text.json" && "$HONE" topo --json >"$work/live.json" || exit 1
python3 - "$work/text.json" "$work/live.json" <<'PY'
import json, sys
text, live = (json.load(open(f)) for f in sys.argv[1:])
bad = []
if len(text["gpus"]) != len(live["gpus"]): bad.append(f"{len(text['gpus'])} and {len(live['gpus'])} cards")
name = {n["label"]: n["name"] for n in text["nics"]}
def labels(m): return [f"GPU{g['index']}" for g in m["gpus"]] + [n["name"] or n["label"] for n in m["nics"]]
a, b = labels(text), labels(live)
for g, h in zip(text["gpus"], live["gpus"]):
    if g["numa"] is not None and h["numa"] is not None and g["numa"] != h["numa"]: bad.append(f"GPU{g['index']} numa {g['numa']} {h['numa']}")
for i, x in enumerate(a):
    for k, y in enumerate(a):
        if x not in b or y not in b: continue
        u, v = text["matrix"][i][k], live["matrix"][b.index(x)][b.index(y)]
        if v is not None and u != v: bad.append(f"{x} {y}: nvidia-smi {u}, live {v}")
missing = [x for x in a if x not in b]
if missing: print("not in the live model (no sysfs here?):", missing)
print("\n".join(bad) if bad else f"{len(a)} devices: live model and nvidia-smi agree")
sys.exit(bool(bad))
PY
