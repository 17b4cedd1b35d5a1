# SPDX-License-Identifier: Apache-2.0
# TEST-TIMEOUT 120
# TEST-SERIAL: scrapes have a second each.
# What lies in deploy/ with Debian's own Prometheus: configuration, rules, alerts, dashboards over real scrapes.
# `make soak` runs the same for ten minutes at 100 Hz.
set -u
fail() { echo "FAIL: $*"; exit 1; }
for tool in prometheus promtool python3; do command -v $tool >/dev/null || { echo "SKIP: no $tool"; exit 77; }; done
deploy=$HONE_SOURCE_DIR/deploy
promtool check config "$deploy/prometheus/prometheus.yml" >/tmp/hone-promtool.$$ 2>&1 || fail "$(cat /tmp/hone-promtool.$$)"
promtool check rules "$deploy/prometheus/alerts.yml" >/tmp/hone-promtool.$$ 2>&1 || fail "$(cat /tmp/hone-promtool.$$)"
promtool test rules "$HONE_SOURCE_DIR/tests/fleet/alerts_test.yml" >/tmp/hone-promtool.$$ 2>&1 || fail "$(cat /tmp/hone-promtool.$$)"
rm -f /tmp/hone-promtool.$$
# every alert has a test
for alert in $(sed -n 's/.*- alert: //p' "$deploy/prometheus/alerts.yml"); do
    grep -q "alertname=\"$alert\"" "$HONE_SOURCE_DIR/tests/fleet/alerts_test.yml" || fail "$alert has no test"
done
# every metric that alerts and dashboard name is in the tables
names=$(sed -n 's/^HN_FAMILY([a-z_0-9]*, "\([^"]*\)".*/\1/p' "$HONE_SOURCE_DIR/src/fleet/page.def"; grep -o '"hone_[a-z0-9_]*"' "$HONE_SOURCE_DIR/src/probe/metrics.def" | tr -d '"')
for name in $(cat "$deploy/prometheus/alerts.yml" "$deploy/grafana/dashboard.json" | grep -o 'hone_[a-z0-9_]*' | sort -u); do
    echo "$names" | grep -qx "$name" || fail "$name is no metric"
done
python3 "$HONE_SOURCE_DIR/tests/fleet/scrape.py" "$HONE" "$HONE_SOURCE_DIR" "$HONE_BUILD_DIR" 20 || fail "scrape.py"
