#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs `hone nccl` on logs listed in a table and compares; then does the same on damaged copies.

usage: nccl_check.py HONE EXPECT.tsv FOLDER
The table: file, healthy, transport, first_rank, causes (id:line, in order; line may be absent).
Every copy (respaced, coloured, CRLF, BOM, launcher prefixes, wrapped, torn, interleaved with another
rank's lines) must read the same, but for line numbers. A folded copy may also be refused, with the
reason, where its lines can be joined in more ways than one."""
import json, os, random, re, subprocess, sys, tempfile

hone, table, folder = sys.argv[1:4]
bad, runs = [], 0


def read(path):
    global runs
    runs += 1
    out = subprocess.run([hone, "nccl", path, "--json"], capture_output=True, text=True)
    if out.returncode:
        return None, out.stderr.strip()
    return json.loads(out.stdout), ""


HEAD = re.compile(r"[\w.-]+:\d+:\d+ .*NCCL (INFO|WARN) ")
ROW = re.compile(r"^\s*\d+\s+\d+\s+[a-z]")


def respaced(lines, rng):
    return [re.sub(r" +", lambda m: " " * rng.randint(1, 3), l) for l in lines]


def tabbed(lines, rng):
    return [re.sub(r" (?=NCCL|INFO|WARN|\[)", "\t", l) for l in lines]


def coloured(lines, rng):
    return ["\x1b[0m\x1b[32m" + l.replace("NCCL", "\x1b[1mNCCL\x1b[0m\x1b[33m") + "\x1b[m\x1b[K" for l in lines]


def prefixed(prefix):
    return lambda lines, rng: [prefix + l for l in lines]


def wrapped(width):
    def change(lines, rng):
        out = []
        for l in lines:
            while len(l) > width:
                out.append(l[:width])
                l = l[width:]
            out.append(l)
        return out

    return change


def folded(lines, rng):
    """At blanks, which stay at the line's end."""
    out = []
    for l in lines:
        while len(l) > 100 and " " in l[1:100].strip():
            cut = l.rindex(" ", 0, 100) + 1
            out.append(l[:cut])
            l = l[cut:]
        out.append(l)
    return out


def at_blanks(width, kept):
    def change(lines, rng):
        out = []
        for l in lines:
            while len(l) > width:
                cut = l.rfind(" ", 1, width + 1)
                if cut <= 0 or not l[:cut].strip():
                    out.append(l[:width])
                    l = l[width:]
                else:
                    out.append(l[: cut + kept])
                    l = l[cut + 1 :]
            out.append(l)
        return out

    return change


def indented(change, blanks):
    return lambda lines, rng: [" " * blanks + l for l in change(lines, rng)]


def timed(change):
    """A collector's time stamp before every line, then folded."""
    return lambda lines, rng: change(["2026-01-02T03:04:05.123456789Z stdout F " + l for l in lines], rng)


FOLDS = {f"{name}{width}": make(width) for width in (40, 47, 60, 72, 80, 96, 110, 132, 160) for name, make in {
    "hard": wrapped, "soft": lambda w: at_blanks(w, 0), "fold-s": lambda w: at_blanks(w, 1),
    "quoted": lambda w: indented(wrapped(w), 4), "ranked": lambda w: lambda l, r: wrapped(w)(["0: " + x for x in l], r),
    "timed": lambda w: timed(wrapped(w))}.items()}
NOISE = ["nodezz:77:78 [0] NCCL INFO Setting affinity for GPU 0 to ffff", "nodezz:77:79 [0] NCCL INFO P2P Chunksize set to 524288"]


def noise_of(lines):
    # a host that the log knows, so that the number of hosts stays what it was
    for l in lines:
        m = re.search(r"([\w.-]+:\d+:\d+) +\[(\d+)\] .*NCCL", l)
        if m:
            return [n.replace("nodezz:77:78 [0]", f"{m[1]} [{m[2]}]").replace("nodezz:77:79 [0]", f"{m[1]} [{m[2]}]") for n in NOISE]
    return []


def interleaved(lines, rng):
    noise, out = noise_of(lines), []
    for l in lines:
        out.append(l)
        if noise and rng.random() < 0.5 and not l.startswith(("#", " ")) and HEAD.search(l):
            out.append(rng.choice(noise))
    return out


def torn_by_record(lines, rng):
    """Another record lands in the middle of a line; the tail follows on the next line."""
    noise, out = noise_of(lines), []
    for l in lines:
        m = HEAD.search(l)
        if noise and m and "Channel" not in l and "Init " not in l and len(l) - m.end() > 14 and rng.random() < 0.6:
            cut = rng.randint(m.end() + 4, len(l) - 4)
            if "=" in l or "set " in l or "Using network" in l or "version" in l:
                out.append(l)
                continue
            out += [l[:cut] + rng.choice(noise), l[cut:]]
        else:
            out.append(l)
    return out


def glued(lines, rng):
    """Two records on one line, the line end lost."""
    out = []
    for l in lines:
        if out and HEAD.search(l) and HEAD.search(out[-1]) and "->" not in out[-1] and rng.random() < 0.3 and "[" not in l.split(":")[0]:
            out[-1] += l
        else:
            out.append(l)
    return out


def docker_json(lines, rng):
    return [json.dumps({"log": l + "\n", "stream": "stdout", "time": "2026-01-01T00:00:00.0Z"}) if HEAD.search(l) else l for l in lines]


VARIANTS = {
    "respaced": respaced, "tabbed": tabbed, "coloured": coloured, "wrapped80": wrapped(80), "wrapped100": wrapped(100), "wrapped132": wrapped(132), "folded": folded, "interleaved": interleaved,
    "torn": torn_by_record, "glued": glued, "docker": docker_json,
    "torchrun": prefixed("[default0]:"), "deepspeed": prefixed("worker-9: "), "compose": prefixed("trainer-1  | "),
    "kubectl": prefixed("[pod/train-0-abcde/main] "), "cri": prefixed("2026-01-02T03:04:05.123456789Z stdout F "),
    "ray": prefixed("(TrainWorker pid=411, ip=192.0.2.1) "), "journal": prefixed("Jan 02 03:04:05 host app[41]: "),
}


def ids(report):
    return [c["id"] for c in report["causes"]]


folds = refused = 0


def same(name, variant, want, got, error):
    global folds, refused
    folding = variant[:-1] in FOLDS or variant.startswith(("wrapped", "folded"))
    folds += folding
    if got is None and folding and ("folded" in error or "holds no NCCL" in error):
        refused += 1
        return
    if got is None:
        bad.append(f"{name} [{variant}]: refused: {error}")
        return
    for key in ("healthy", "transport", "first_rank"):
        if key == "first_rank" and want[key] is None and variant.startswith("ranked"):
            continue  # the prefix tells it
        if want[key] != got[key]:
            bad.append(f"{name} [{variant}]: {key} is {got[key]!r}, not {want[key]!r}")
    if ids(want) != ids(got) and not (folding and sorted(ids(want)) == sorted(ids(got))):
        bad.append(f"{name} [{variant}]: causes {ids(got)}, not {ids(want)}")


seen = set()
with tempfile.TemporaryDirectory() as scratch:
    for line in open(table, encoding="utf-8"):
        if line.startswith("#") or not line.strip():
            continue
        name, healthy, transport, first, causes = line.rstrip("\n").split("\t")[:5]
        seen.add(name)
        path = os.path.join(folder, name)
        report, error = read(path)
        if report is None:
            bad.append(f"{name}: {error}")
            continue
        text = open(path, encoding="utf-8", errors="replace").read()
        lines = text.split("\n")
        checks = {"healthy": (report["healthy"], healthy == "yes"), "transport": (report["transport"], None if transport == "-" else transport),
                  "first_rank": (report["first_rank"], None if first == "-" else int(first))}
        for key, (got, want) in checks.items():
            if got != want:
                bad.append(f"{name}: {key} is {got!r}, not {want!r}")
        want = [c.split(":") for c in causes.split(",")] if causes != "-" else []
        got = [(c["id"], c["evidence"]["line"]) for c in report["causes"]]
        if [w[0] for w in want] != [g[0] for g in got]:
            bad.append(f"{name}: causes {[g[0] for g in got]}, not {[w[0] for w in want]}")
        else:
            for w, g in zip(want, got):
                if len(w) > 1 and int(w[1]) != g[1]:
                    bad.append(f"{name}: {w[0]} rests on line {g[1]}, not {w[1]}")
        for c in report["causes"]:
            e = c["evidence"]
            if not (c["why"] and c["mend"] and 0 < c["confidence"] <= 1):
                bad.append(f"{name}: {c['id']} lacks why, mend or confidence")
            if e["line"] and e["text"] not in lines[e["line"] - 1]:
                bad.append(f"{name}: {c['id']}: line {e['line']} does not hold its evidence")
            elif not e["line"] and c["id"] not in ():
                bad.append(f"{name}: {c['id']} has no evidence line")
        if name.endswith(".json"):
            continue
        for variant, change in (VARIANTS | FOLDS).items():
            for seed in range(4 if variant in ("torn", "glued", "interleaved", "respaced") else 1):
                copy = os.path.join(scratch, f"{variant}{seed}-{name}")
                if variant.startswith(("ranked", "timed")) and name.startswith("ras-"):
                    continue  # RAS reports come over a socket, behind no prefix
                changed = change(text.split("\n"), random.Random(seed))
                if changed == text.split("\n"):
                    continue
                with open(copy, "w", encoding="utf-8") as f:
                    f.write("\n".join(changed))
                same(name, f"{variant}{seed}", report, *read(copy))
        for variant, data in {"crlf": text.replace("\n", "\r\n").encode(), "bom": b"\xef\xbb\xbf" + text.encode(),
                              "no-final-newline": text.rstrip("\n").encode(), "nul": text.replace(" NCCL", "\0NCCL").encode(),
                              "latin1": b"\xe9\xff start\n" + text.encode()}.items():
            copy = os.path.join(scratch, f"{variant}-{name}")
            open(copy, "wb").write(data)
            same(name, variant, report, *read(copy))
if refused * 12 > folds:
    bad.append(f"{refused} of {folds} folded copies are refused: more than are open to doubt")
print("\n".join(bad) if bad else f"{len(seen)} logs, {runs} readings agree; {refused} of {folds} folded copies are refused")
sys.exit(1 if bad else 0)
