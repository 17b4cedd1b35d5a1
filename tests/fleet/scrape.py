#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Debian's Prometheus scrapes real exporters of hone: 8 replayed cards, and 8 scripted ones for what the
recording lacks (L2, NVLink, processes). Then every expression of our dashboard and of 12239 must give something,
no scrape may be missing, pages must be made in time and, over a long run, memory must stay flat.

    scrape.py HONE SOURCE_DIR BUILD_DIR SECONDS [--soak]
"""
import json, os, signal, socket, subprocess, sys, tempfile, time, urllib.parse, urllib.request

hone, source, build = (os.path.abspath(p) for p in sys.argv[1:4])
seconds = float(sys.argv[4])
soak = "--soak" in sys.argv
INTERVAL = 1.0  # of scrapes
PAGE_LIMIT_S = 0.005 * int(os.environ.get("HONE_TEST_SLOW", "1"))
RSS_LIMIT = 2 << 20
# What a replayed recording of one H200 of driver 580 alone cannot give.
NOT_RECORDED = ("hone_gpu_l2_hit_ratio", "hone_gpu_nvlink_", "hone_process_gpu_")
children = []


def fail(text):
    sys.exit(f"FAIL: {text}")


def start_exporter(folder, name, arguments, env):
    log = os.path.join(folder, name + ".log")
    clean = {k: v for k, v in os.environ.items() if not k.startswith("HONE_")}
    child = subprocess.Popen([hone, "exporter", "--listen", "127.0.0.1:0", "--hostname", name, *arguments],
                             stderr=open(log, "w"), env={**clean, **env})
    children.append(child)
    for _ in range(200):
        text = open(log).read()
        if "/metrics" in text:
            return text.split("http://")[1].split("/")[0]
        if child.poll() is not None:
            fail(f"{name}: {text}")
        time.sleep(0.05)
    fail(f"{name}: no address")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def start_prometheus(folder, targets):
    """Our own configuration, with these targets, ports and intervals."""
    config = open(os.path.join(source, "deploy/prometheus/prometheus.yml")).read()
    for old, new in (('["localhost:9400"]', json.dumps(targets)), ("scrape_interval: 10s", f"scrape_interval: {INTERVAL:g}s"),
                     ("scrape_timeout: 5s", f"scrape_timeout: {INTERVAL:g}s"), ("evaluation_interval: 10s", "evaluation_interval: 1s"),
                     ("- alerts.yml", "- " + os.path.join(source, "deploy/prometheus/alerts.yml"))):
        if old not in config:
            fail(f"prometheus.yml lacks '{old}'")
        config = config.replace(old, new)
    path = os.path.join(folder, "prometheus.yml")
    open(path, "w").write(config)
    port = free_port()
    child = subprocess.Popen(["prometheus", f"--config.file={path}", f"--storage.tsdb.path={folder}/tsdb",
                              f"--web.listen-address=127.0.0.1:{port}", "--storage.tsdb.retention.time=2h"],
                             stdout=open(os.path.join(folder, "prometheus.log"), "w"), stderr=subprocess.STDOUT)
    children.append(child)
    url = f"http://127.0.0.1:{port}"
    for _ in range(300):
        try:
            urllib.request.urlopen(url + "/-/ready", timeout=1).read()
            return url
        except OSError:
            if child.poll() is not None:
                break
            time.sleep(0.1)
    fail("prometheus does not start: " + open(os.path.join(folder, "prometheus.log")).read()[-2000:])


def query(url, expression):
    path = "/api/v1/query?" + urllib.parse.urlencode({"query": expression})
    try:
        answer = json.load(urllib.request.urlopen(url + path, timeout=10))
    except urllib.error.HTTPError as error:
        fail(f"{expression}: {error.read().decode()}")
    return answer["data"]["result"]


def number(url, expression):
    result = query(url, expression)
    if len(result) != 1:
        fail(f"{expression} gives {len(result)} series")
    return float(result[0]["value"][1])


def panels(tree):
    for panel in tree.get("panels", []):
        yield panel
        yield from panels(panel)


def expressions(instance):
    """(where from, expression, whether a recording has it)"""
    values = {"$instance": instance, "$gpu": ".*", "$__rate_interval": "10s", "$__interval": "5s"}
    found = []
    for line in open(os.path.join(source, "tests/fleet/dashboard_12239.txt")):
        if line.strip() and line[0] != "#":
            found.append(("12239", line.strip()))
    board = json.load(open(os.path.join(source, "deploy/grafana/dashboard.json")))
    ids = [p["id"] for p in panels(board)]
    if len(ids) != len(set(ids)):
        fail("dashboard.json: a panel's id is there twice")
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":  # label_values(EXPRESSION, label)
            found.append(("variable " + variable["name"], variable["query"][len("label_values("):].rsplit(",", 1)[0]))
    for panel in panels(board):
        for target in panel.get("targets", []):
            found.append((panel["title"], target["expr"]))
    for title, expression in found:
        for name, value in values.items():
            expression = expression.replace(name, value)
        if "$" in expression:
            fail(f"{title}: a variable is left in {expression}")
        yield title, expression, not any(name in expression for name in NOT_RECORDED)


def check_expressions(url, replayed):
    checked = 0
    for title, expression, recorded in expressions(".*"):
        if not query(url, expression):
            fail(f"{title}: {expression} gives nothing")
        checked += 1
    for title, expression, recorded in expressions(replayed.replace(".", "\\\\.")):
        if recorded and "[1h]" not in expression and not query(url, expression):
            fail(f"{title}: {expression} gives nothing for the replayed cards")
    return checked


def check_scrapes(url, replayed, window):
    span = f"[{int(window)}s]"
    only = f'instance="{replayed}"'
    ups = query(url, f"up{{{only}}}{span}")[0]["values"]
    if any(value != "1" for _, value in ups):
        fail("a scrape failed")
    gap = max(after[0] - before[0] for before, after in zip(ups, ups[1:]))
    # A short run may share the machine with anything.
    if gap > (1.5 if soak else 4) * INTERVAL or ups[-1][0] - ups[0][0] < window - 5 * INTERVAL:
        fail(f"a gap of {gap:.1f} s in {len(ups)} scrapes over {ups[-1][0] - ups[0][0]:.0f} s")
    ups = len(ups)
    for name in ("DCGM_FI_DEV_GPU_TEMP", "hone_gpu_power_watts"):  # no card is missing in any scrape
        for row in query(url, f"count_over_time({name}{{{only}}}{span})"):
            if float(row["value"][1]) < ups - 1:
                fail(f"{name} of card {row['metric']['gpu']}: {row['value'][1]} values in {ups:.0f} scrapes")
        if number(url, f"count({name}{{{only}}})") != 8:
            fail(f"{name}: not 8 cards")
    if number(url, f"min(min_over_time(hone_gpu_up{{{only}}}{span}))") != 1:
        fail("a card was not up")
    page = number(url, f"max_over_time(hone_exporter_page_seconds{{{only}}}{span})")
    mean = number(url, f"avg_over_time(hone_exporter_page_seconds{{{only}}}{span})")
    scrape = number(url, f"max_over_time(scrape_duration_seconds{{{only}}}{span})")
    low = number(url, f"min_over_time(process_resident_memory_bytes{{{only}}}{span})")
    high = number(url, f"max_over_time(process_resident_memory_bytes{{{only}}}{span})")
    cpu = number(url, f"rate(process_cpu_seconds_total{{{only}}}{span})")
    samples = number(url, f"scrape_samples_scraped{{{only}}}")
    print(f"{ups} scrapes in {window:.0f} s, none failed, at most {gap:.2f} s apart; {samples:.0f} series; page {mean * 1e3:.2f} ms, at most "
          f"{page * 1e3:.2f}; scrape at most {scrape * 1e3:.1f} ms; memory {low / 2**20:.2f} to {high / 2**20:.2f} MiB; "
          f"{cpu * 100:.2f} % of one CPU")
    # A short run is judged by the mean, since others use the machine: one page may lose its CPU.
    if (page if soak else mean) >= PAGE_LIMIT_S:
        fail(f"a page took longer than {PAGE_LIMIT_S * 1e3:.0f} ms")
    if soak and high - low > RSS_LIMIT:
        fail("memory is not flat within 2 MiB")


def alerts_of(url, instance):
    return [a["metric"]["alertname"] for a in query(url, f'ALERTS{{alertstate="firing",instance="{instance}"}}')]


def main():
    with tempfile.TemporaryDirectory(prefix="hone-scrape-") as folder:
        data = os.path.join(source, "tests/data/h200-mixed.hrec.gz")
        rate = "100" if soak else "20"
        replayed = start_exporter(folder, "replayed", ["--source", f"replay:{data}?loop=1&cards=8", "--hz", rate,
                                                       "--history", os.path.join(folder, "history.db")], {})
        scripted = start_exporter(folder, "scripted", ["--source", "nvml+host", "--hz", "10", "--history", "none"],
                                  {"HONE_NVML_LIB": os.path.join(build, "fakes/libnvidia-ml.so"), "HONE_FAKE_NVML": "cards=8,power=500"})
        url = start_prometheus(folder, [replayed, scripted])
        warm = 60 if soak else 3  # pages of the history's cache and of zlib's window are touched
        time.sleep(warm)
        begin = time.time()
        while time.time() - begin < seconds:
            time.sleep(min(30, seconds))
            if soak:
                print(f"{time.time() - begin:.0f} s", file=sys.stderr)
        checked = check_expressions(url, replayed)
        print(f"{checked} expressions of 12239 and of our dashboard, none empty")
        check_scrapes(url, replayed, seconds)
        firing = alerts_of(url, replayed)
        if firing:
            fail(f"alerts fire for healthy cards: {firing}")
        for name, child in (("replayed", children[0]), ("scripted", children[1])):
            child.send_signal(signal.SIGTERM)
            if child.wait(timeout=10) != 0:
                fail(f"the exporter {name} ended with {child.returncode}")


try:
    main()
finally:
    for child in children:
        if child.poll() is None:
            child.terminate()
    for child in children:
        try:
            child.wait(timeout=10)
        except subprocess.TimeoutExpired:
            child.kill()
