#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The right reading of each collected topology text (from its manifest), checked against hone's.
usage: topo_readings.py HONE FOLDER"""
import json, subprocess, sys


def rng(text):
    out = set()
    for part in text.split(","):
        a, _, b = part.partition("-")
        out |= set(range(int(a), int(b or a) + 1))
    return out


def halves(a, b):
    return [a] * 4 + [b] * 4


X = None
# file prefix: gpus, nics, complete, NUMA, CPUs by card (None unknown), cells {(row, column): code},
# words in damage, words in advice, NIC names (some)
R = {
    "01": (8, 4, True, halves(0, 1), halves("0-31,64-95", "32-63,96-127"),
           {("GPU0", "GPU7"): "NV8", ("GPU1", "NIC0"): "PIX", ("GPU3", "NIC1"): "PIX", ("GPU7", "NIC2"): "PIX",
            ("GPU7", "NIC3"): "PIX", ("GPU0", "NIC0"): "NODE", ("GPU4", "NIC2"): "NODE", ("GPU0", "NIC2"): "SYS"},
           None, ["400 GB/s", "A800"], {"NIC0": "mlx5_0", "NIC3": "mlx5_3"}),
    "03": (8, 4, False, halves(0, 1), [X] * 4 + ["32-63,96-127"] * 3 + [X],
           {("NIC0", "GPU1"): "PIX", ("NIC3", "GPU7"): "PIX", ("NIC0", "NIC1"): X, ("GPU0", "NIC0"): X},
           ["not square", "GPU0 to GPU3", "GPU7"], ["A800"], {"NIC0": None}),
    "04": (8, 11, True, halves(0, 1), halves("0-89", "90-179"),
           {("GPU0", "NIC1"): "PIX", ("GPU7", "NIC8"): "PIX", ("GPU0", "NIC2"): "PHB", ("NIC9", "NIC10"): "PHB"},
           None, ["NIC0, NIC9 and NIC10 are SYS", "NV8"], {"NIC10": "mlx5_10"}),
    "05": (8, 11, True, [X, X, 1, 1, X, X, X, X], ["0-14,16-30"] * 2 + ["16-30,144-158"] * 2 + ["0-14,16-30"] * 4,
           {("GPU0", "mlx5_0"): "PXB", ("GPU7", "mlx5_8"): "PXB", ("mlx5_9", "mlx5_10"): "PIX"},
           None, ["names several nodes", "mlx5_4, mlx5_9 and mlx5_10"], {"mlx5_4": "mlx5_4"}),
    "07": (8, 2, True, halves(0, 1), halves("0-63,128-191", "64-127,192-255"),
           {("GPU0", "GPU1"): "NV12", ("GPU0", "GPU2"): "NODE", ("GPU0", "GPU4"): "SYS", ("GPU1", "NIC0"): "PHB"},
           None, ["{0,1} {2,3} {4,5} {6,7}"], {"NIC0": None}),
    "08": (8, 0, True, halves(0, 1), halves("0-23", "24-47"), {("GPU0", "GPU7"): "NV12"}, None, ["A100"], {}),
    "09": (8, 10, False, [3, 3, 1, 1, 7, 7, 5, 5],
           ["24-31,88-95"] * 2 + ["8-15,72-79"] * 2 + ["56-63,120-127"] * 2 + ["40-47,104-111"] * 2,
           {("GPU0", "NIC7"): "SYS", ("GPU0", "NIC8"): "SYS", ("GPU6", "NIC7"): "PXB", ("GPU6", "NIC8"): "SYS",
            ("NIC1", "NIC2"): "SYS", ("NIC1", "NIC3"): X, ("NIC2", "GPU0"): X}, ["glued", "NIC2 to NIC9"], [], {}),
    "11": (6, 2, True, [0] * 3 + [1] * 3, ["0-47,96-143"] * 3 + ["48-95,144-191"] * 3, {("GPU0", "GPU5"): "NV18"},
           None, ["6 cards", "starves"], {}),
    "12": (8, 0, True, [0] * 3 + [1] * 5, [X] * 8, {("GPU0", "GPU5"): "NV12", ("GPU1", "GPU2"): "NV12"}, None,
           ["GPU0-GPU5", "NUMA nodes 0 and 1"], {}),
    "13": (1, 1, True, [0], ["0-251"], {("GPU0", "NIC0"): "PHB"}, None, ["virtual machine"], {"NIC0": "mlx5_0"}),
    "15": (1, 0, True, [0], ["0-23"], {("GPU0", "GPU0"): "X"}, None, ["MIG"], {}),
    "16": (8, 10, True, halves(0, 1), [X] * 4 + ["56"] * 4,
           {("GPU0", "NIC0"): "PIX", ("GPU1", "NIC3"): "PIX", ("GPU7", "NIC9"): "PIX", ("NIC1", "NIC2"): "PIX"},
           None, ["GPU0 to GPU3 is empty"], {"NIC9": "mlx5_9"}),
    "17": (8, 36, True, halves(0, 1), halves("0-55,112-167", "70-99,102-107"),
           {("GPU0", "NIC0"): "PIX", ("GPU0", "NIC35"): "PIX", ("GPU2", "NIC12"): "PIX", ("GPU2", "NIC13"): "PIX",
            ("GPU2", "NIC34"): "PIX", ("GPU4", "NIC32"): "PIX", ("NIC12", "NIC12"): "X", ("NIC35", "NIC34"): "NODE"},
           ["glued"], ["GPU1, GPU3, GPU5 and GPU7 have no NIC nearer", "virtual functions"], {}),
    "19": (8, 1, True, halves(0, 1), halves("0-11,24-35", "12-23,36-47"),
           {("GPU0", "GPU3"): "NV2", ("GPU0", "GPU1"): "NV1", ("GPU0", "GPU5"): "SYS"}, None, [], {}),
    "20": (8, 9, True, halves(0, 1), halves("0-19,40-59", "20-39,60-79"),
           {("GPU0", "mlx4_0"): "SYS", ("GPU0", "mlx5_0"): "PIX", ("GPU7", "mlx5_7"): "PIX", ("GPU4", "mlx4_0"): "NODE"},
           None, ["mlx4_0"], {}),
    "21": (4, 1, True, [X] * 4, ["0-15"] * 4, {("GPU0", "GPU3"): "NV2", ("GPU0", "GPU1"): "NV1"}, None, [], {}),
    "23": (4, 2, True, [X] * 4, [",".join(map(str, range(0, 80, 8)))] * 2 + [",".join(map(str, range(80, 160, 8)))] * 2,
           {("GPU0", "GPU1"): "NV2", ("GPU0", "GPU2"): "SOC"}, None, ["{0,1} {2,3}"], {}),
    "24": (8, 4, True, [X] * 8, ["1"] * 8,
           {("GPU0", "mlx5_0"): "PIX", ("GPU2", "mlx5_1"): "PIX", ("GPU4", "mlx5_2"): "PIX", ("GPU6", "mlx5_3"): "PIX"},
           ["glued"], ["single CPU"], {}),
    "25": (8, 1, True, [X] * 8, ["0-13"] * 8, {("GPU0", "GPU3"): "PIX", ("GPU0", "GPU4"): "PXB", ("GPU0", "mlx5_0"): "SOC"},
           None, ["no card is near a NIC"], {}),
    "27": (4, 1, True, [0, 0, 1, 1], ["0-7"] * 2 + ["8-15"] * 2, {("GPU2", "mlx5_0"): "PHB", ("GPU0", "mlx5_0"): "SOC"},
           None, ["GPU0 and GPU1 reach every NIC"], {}),
    "28": (8, 2, True, halves(0, 1), halves("0-55,112-167", "56-111,168-223"),
           {("GPU6", "NIC0"): "PHB", ("GPU0", "GPU1"): "SYS"}, None, ["chosen by NUMA node"], {}),
    "29": (4, 4, True, [0, 0, 1, 1], ["0-31"] * 2 + ["32-63"] * 2, {("GPU0", "GPU1"): "NODE"}, None, [], {"NIC2": "mlx5_2"}),
    "31": (6, 0, True, [0] * 4 + [1] * 2, ["0-23,48-71"] * 4 + ["24-47,72-95"] * 2,
           {("GPU0", "GPU1"): "PIX", ("GPU2", "GPU3"): "PIX", ("GPU4", "GPU5"): "PIX"}, None, [], {}),
    "32": (8, 0, True, [0] * 6 + [1] * 2, ["0-15,32-47"] * 6 + ["16-31,48-63"] * 2,
           {("GPU1", "GPU2"): "PHB", ("GPU6", "GPU7"): "PHB"}, None, [], {}),
    "33": (1, 0, True, [X], [X], {}, None, [], {}),
    "35": (8, 0, True, [2, 2, 3, 3, 6, 6, 7, 7], ["32-47"] * 2 + ["48-63"] * 2 + ["96-111"] * 2 + ["112-127"] * 2,
           {("GPU0", "GPU1"): "HT"}, None, ["'HT'"], {}),
    "36": (16, 10, False, [X] * 16, ["0-23,48-71"] * 4 + [X] * 12,
           {("GPU4", "mlx5_9"): "SYS", ("GPU4", "GPU15"): "NV6", ("GPU5", "GPU0"): X}, ["21 of 26 rows", "0-23,4"], [], {}),
    "37": (8, 12, False, [3, 3, 1, 1] + [X] * 4, ["48-63,176-191"] * 2 + ["16-31,144-159"] * 2 + [X] * 4,
           {("GPU4", "NIC6"): "PXB", ("GPU5", "GPU0"): X}, ["15 of 20 rows"], ["NIC4, NIC5 and NIC8 to NIC11"], {}),
    "39": (4, 0, True, [0, 0, 1, 1], ["0-27,56-83"] * 2 + ["28-55,84-111"] * 2,
           {("GPU0", "GPU1"): "PXB", ("GPU2", "GPU3"): "PIX"}, None, ["no proof that peer-to-peer works", "hone doctor --p2p"], {}),
    "40": (2, 0, True, [X, X], ["0-23"] * 2, {("GPU0", "GPU1"): "NV2"}, None, [], {}),
}
# (file, cards, NICs) -> the sets of which the best must be one, from the manifest's readings
PLACE = {
    ("07", 2, 0): ["01", "23", "45", "67"], ("07", 4, 0): ["0123", "4567"], ("12", 2, 0): ["12", "34", "67"],
    ("19", 4, 0): ["0123", "4567"], ("28", 4, 0): ["0123", "4567"], ("32", 4, 0): ["1234"], ("29", 2, 0): ["01", "23"],
    ("31", 2, 0): ["01", "23", "45"], ("23", 2, 0): ["01", "23"], ("27", 2, 1): ["23"], ("28", 1, 1): ["6"],
    ("16", 2, 2): ["01", "23", "45", "67"], ("25", 4, 0): ["0123", "4567"], ("32", 2, 0): ["12", "34", "67"],
}


def main():
    hone, folder = sys.argv[1:]
    bad, files = [], sorted(subprocess.run(["ls", folder], capture_output=True, text=True).stdout.split())
    files = [f for f in files if f.endswith(".txt")]
    for f in files:
        key = f[:2]
        if key not in R:
            bad.append(f"{f}: no reading")
            continue
        gpus, nics, complete, numa, cpus, cells, damage, advice, names = R[key]
        run = subprocess.run([hone, "topo", f"{folder}/{f}", "--json"], capture_output=True, text=True)
        if run.returncode:
            bad.append(f"{f}: exit {run.returncode}: {run.stderr}")
            continue
        j = json.loads(run.stdout)
        say = lambda what: bad.append(f"{f}: {what}")
        label = [f"GPU{g['index']}" for g in j["gpus"]] + [n["label"] for n in j["nics"]]
        if len(j["gpus"]) != gpus or len(j["nics"]) != nics: say("devices " + " ".join(label))
        if j["complete"] != complete: say(f"complete {j['complete']}")
        if [g["numa"] for g in j["gpus"]] != numa: say(f"numa {[g['numa'] for g in j['gpus']]}")
        got = [rng(g["cpus"]) if g["cpus"] else None for g in j["gpus"]]
        if got != [rng(c) if c else None for c in cpus]: say(f"cpus {[g['cpus'] for g in j['gpus']]}")
        if [len(j["matrix"])] + [len(r) for r in j["matrix"]] != [gpus + nics] * (gpus + nics + 1): say("matrix shape")
        for (a, b), code in cells.items():
            have = j["matrix"][label.index(a)][label.index(b)]
            if have != code: say(f"{a} {b} is {have}, not {code}")
        if damage is None and j["damage"]: say(f"damage {j['damage']}")
        for word in damage or []:
            if not any(word in d for d in j["damage"]): say(f"no damage '{word}' in {j['damage']}")
        for word in advice:
            if not any(word in a for a in j["advice"]): say(f"no advice '{word}'")
        for nic, name in names.items():
            have = [n["name"] for n in j["nics"] if n["label"] == nic]
            if have != [name]: say(f"{nic} is {have}")
    for (key, cards, nics), good in PLACE.items():
        f = [f for f in files if f.startswith(key)][0]
        run = subprocess.run([hone, "place", f"{folder}/{f}", "--gpus", str(cards), "--nics", str(nics), "--json"],
                             capture_output=True, text=True)
        best = "".join(str(g) for g in json.loads(run.stdout)["gpus"]) if run.returncode == 0 else run.stderr
        if best not in good: bad.append(f"{f}: {cards} cards, {nics} NICs on {best}, not {good}")
    print("\n".join(bad) if bad else f"{len(files)} texts read as their manifest says, {len(PLACE)} placements as it says")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
