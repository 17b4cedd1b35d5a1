#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes every topology text in the ways people paste it and demands that hone reads the same machine
or names what it lost: a value that is read must be the right one.
usage: topo_variants.py HONE FILE...    (exit 1 and a list if any variant is read wrongly)"""
import json, os, re, subprocess, sys, textwrap


def matrix_part(text):
    """The text up to the legend: what the variants change."""
    head, sep, tail = text.partition("Legend:")
    return head, sep + tail


def per_line(fn):
    def change(text):
        head, tail = matrix_part(text)
        return "\n".join(fn(i, l) for i, l in enumerate(head.split("\n"))) + tail
    return change


def is_header(line):
    return bool(re.search(r"GPU\d.*Affinity|^\W*(\S*GPU\d+\s*)+", line)) and " X " not in line + " " \
        and not re.search(r"\b(SYS|NODE|PHB|PXB|PIX|SOC|NV\d+|HT|X)\b", line)


def hard_wrap(width):
    def fn(i, l):
        return "\n".join(l[k:k + width] for k in range(0, len(l), width)) if l else l
    return lambda text: per_line(fn)(expand(text))


def soft_wrap(width, keep):
    def fn(i, l):
        if len(l) <= width:
            return l
        lead = re.match(r"\s*", l).group()
        parts = textwrap.wrap(l.strip(), width - len(lead), drop_whitespace=not keep, break_long_words=False,
                              break_on_hyphens=False) or [""]
        return lead + "\n".join(parts)
    return lambda text: per_line(fn)(expand(text))


def expand(text):
    return "\n".join(l.expandtabs(8) for l in text.split("\n"))


def tabs(text):  # as a tool that turns runs of blanks into one tab
    return per_line(lambda i, l: re.sub(r" {2,}", "\t", l))(text)


VARIANTS = {
    "bom": lambda t: "\ufeff" + t,
    "crlf": lambda t: t.replace("\n", "\r\n"),
    "crlf-bom": lambda t: "\ufeff" + t.replace("\n", "\r\n"),
    "crcrlf": lambda t: t.replace("\n", "\r\r\n"),
    "ansi-header": per_line(lambda i, l: "\x1b[4m" + l + "\x1b[0m" if is_header(l) else l),
    "ansi-everywhere": per_line(lambda i, l: re.sub(r"(NV\d+|PIX|SYS)", "\x1b[1;32m\\1\x1b[0m", l)),
    "ansi-lost-esc": per_line(lambda i, l: "[4m" + l + "[0m" if is_header(l) else l),
    "expanded-tabs": expand,
    "two-blanks": per_line(lambda i, l: re.sub(r"[ \t]{2,}", "  ", l) if l.strip() else l),
    "one-blank": per_line(lambda i, l: re.sub(r"[ \t]+", " ", l)),
    "runs-to-tabs": tabs,
    "header-right": per_line(lambda i, l: "       " + l if is_header(l) else l),
    "header-left": per_line(lambda i, l: l.lstrip() if is_header(l) else l),
    "rows-right": per_line(lambda i, l: l if is_header(l) or not l.strip() else "      " + l),
    "indented": per_line(lambda i, l: "    " + l),
    "commented": per_line(lambda i, l: "# " + l),
    "quoted": per_line(lambda i, l: "> " + l),
    "slashes": per_line(lambda i, l: "// " + l),
    "blank-lines": per_line(lambda i, l: l + "\n"),
    "trailing-blanks": per_line(lambda i, l: l + "   \t "),
    "trimmed": per_line(lambda i, l: l.strip()),
    "prefix": per_line(lambda i, l: "node17: " + l if l.strip() else l),
    "banner": lambda t: "$ nvidia-smi topo -m\nsome text about GPU0 and GPU1\n" + t,
    "nbsp": per_line(lambda i, l: l.replace("  ", "\u00a0 ")),
    "markdown": per_line(lambda i, l: "| " + re.sub(r"(?<=\S)[ \t]{2,}(?=\S)", " | ", l.strip()) + " |" if l.strip() else l),
    "no-legend": lambda t: matrix_part(t)[0],
    "wrap-80": hard_wrap(80),
    "wrap-100": hard_wrap(100),
    "wrap-132": hard_wrap(132),
    "wrap-79": hard_wrap(79),
    "fold-80": soft_wrap(80, True),
    "textwrap-80": soft_wrap(80, False),
    "textwrap-100": soft_wrap(100, False),
    "commented-crlf-ansi": lambda t: per_line(lambda i, l: "#" + ("\x1b[4m" + l + "\x1b[0m" if is_header(l) else l))(t)
    .replace("\n", "\r\n"),
}
ENCODED = {"utf16le": lambda t: t.encode("utf-16"), "utf16be": lambda t: b"\xfe\xff" + t.encode("utf-16-be")}


def read(hone, data):
    run = subprocess.run([hone, "topo", "-", "--json"], input=data, capture_output=True, timeout=20)
    if run.returncode == 3:
        return None, run.stderr.decode()
    if run.returncode != 0:
        raise SystemExit(f"exit {run.returncode}: {run.stderr.decode()}")
    return json.loads(run.stdout), ""


def compare(want, got):
    """The first wrong value, or None; unknown is right if damage is named (or was unknown before)."""
    lost = False
    if len(got["gpus"]) != len(want["gpus"]) or len(got["nics"]) != len(want["nics"]):
        if not got["damage"]:
            return f"{len(got['gpus'])} cards and {len(got['nics'])} NICs", lost
        return ("invented devices", lost) if len(got["gpus"]) > len(want["gpus"]) else (None, True)
    for w, g in zip(want["gpus"], got["gpus"]):
        for key in ("index", "numa", "cpus"):
            if g[key] != w[key]:
                if g[key] is not None:
                    return f"GPU{w['index']} {key} {g[key]} for {w[key]}", lost
                lost = True
    for w, g in zip(want["nics"], got["nics"]):
        if g["label"] != w["label"] or g["name"] not in (w["name"], None):
            return f"NIC {g['label']} {g['name']}", lost
    for i, (w, g) in enumerate(zip(want["matrix"], got["matrix"])):
        for k, (a, b) in enumerate(zip(w, g)):
            if a != b:
                if b is not None:
                    return f"cell {i},{k} {b} for {a}", lost
                lost = True
    if lost and not got["damage"]:
        return "lost values without naming damage", lost
    return None, lost


def cuts(text, seed):
    """Texts that lost a part: cut off at the end, clipped at the right or left edge, lines or words gone."""
    import random
    rnd = random.Random(seed)
    head, tail = matrix_part(expand(text))
    lines = head.split("\n")
    for k in range(10):
        at = rnd.randrange(len(lines[0]) + 1 if len(lines[0]) < len(head) else 1, len(head) + 1)
        yield f"cut at {at}", head[:at]
    for k in range(4):
        width = rnd.randrange(20, max(len(l) for l in lines) + 1)
        yield f"right of {width} clipped", "\n".join(l[:width] for l in lines) + tail
    for k in (1, 2, 3, 5):
        yield f"left {k} clipped", "\n".join(l[k:] for l in lines) + tail
    for k in range(4):
        gone = rnd.randrange(len(lines))
        yield f"line {gone} gone", "\n".join(l for i, l in enumerate(lines) if i != gone) + tail
    for k in range(6):
        row = rnd.randrange(len(lines))
        words = list(re.finditer(r"\S+", lines[row]))
        if not words:
            continue
        word = rnd.choice(words)
        blank = " " * len(word.group()) if k % 2 else ""
        changed = lines[row][:word.start()] + blank + lines[row][word.end():]
        yield f"word {word.group()} of line {row} gone", "\n".join(changed if i == row else l for i, l in enumerate(lines)) + tail


def cut_wrong(want, got, header_changed):
    """A value that is read must be the whole text's, device by device by name; anything may be missing."""
    wg = {g["index"]: g for g in want["gpus"]}
    label = lambda m: [f"GPU{g['index']}" for g in m["gpus"]] + [n["label"] for n in m["nics"]]
    wl, gl = label(want), label(got)
    for g in got["gpus"]:
        if g["index"] not in wg:
            return f"invented GPU{g['index']}"
        for key in ("numa", "cpus"):
            if g[key] is not None and g[key] != wg[g["index"]][key]:
                # A node counted from CPU lists where the column is gone is a reading of its own.
                if key == "numa" and g["numa_from"] == "cpu lists":
                    continue
                return f"GPU{g['index']} {key} {g[key]} for {wg[g['index']][key]}"
    for i, a in enumerate(gl):
        for k, b in enumerate(gl):
            have = got["matrix"][i][k]
            if have is None:
                continue
            if a not in wl or b not in wl:
                return f"invented {a} {b}"
            true = want["matrix"][wl.index(a)][wl.index(b)]
            if have != true:
                return f"{a} {b} {have} for {true}"
    lost = got["matrix"] != want["matrix"] or [(g["numa"], g["cpus"]) for g in got["gpus"]] != \
        [(g["numa"], g["cpus"]) for g in want["gpus"]]
    # An empty CPU list beside a node is what a job's cpuset gives; columns that the header lost too are
    # columns that an older driver does not print.
    said = got["damage"] or any("is empty" in a for a in got["advice"]) or header_changed
    return "lost something and names no damage" if lost and not said else None


def main_cuts(hone, files):
    wrong, read_, refused = [], 0, 0
    for path in files:
        text = open(path, encoding="utf-8").read()
        want, why = read(hone, text.encode())
        if want is None:
            continue
        for name, changed in cuts(text, path.split("/")[-1] + os.environ.get("HONE_CUT_SEED", "")):
            got, why = read(hone, changed.encode())
            if got is None:
                refused += 1
                continue
            read_ += 1
            bad = cut_wrong(want, got, changed.split('\n')[0].rstrip() != expand(text).split('\n')[0].rstrip())
            if bad:
                wrong.append(f"{path.split('/')[-1]} {name}: {bad}")
    print("\n".join("WRONG " + w for w in wrong))
    print(f"{read_} damaged texts read in part, {refused} refused, {len(wrong)} wrong")
    return 1 if wrong else 0


def main():
    hone, files = sys.argv[1], sys.argv[2:]
    if files[0] == "--cuts":
        return main_cuts(hone, files[1:])
    wrong, same, partial, refused = [], 0, 0, 0
    for path in files:
        text = open(path, encoding="utf-8").read()
        want, why = read(hone, text.encode())
        if want is None:
            wrong.append(f"{path}: {why}")
            continue
        for name, change in list(VARIANTS.items()) + list(ENCODED.items()):
            data = change(text)
            got, why = read(hone, data if isinstance(data, bytes) else data.encode())
            if got is None:
                refused += 1
                print(f"refused {path.split('/')[-1]} {name}: {why.strip()}")
                continue
            bad, lost = compare(want, got)
            if bad:
                wrong.append(f"{path.split('/')[-1]} {name}: {bad}")
            elif lost:
                partial += 1
                print(f"partial {path.split('/')[-1]} {name}: {got['damage'][0]}")
            else:
                same += 1
    for line in wrong:
        print("WRONG", line)
    print(f"{same} read the same, {partial} in part with damage named, {refused} refused, {len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
