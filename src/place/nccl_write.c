// SPDX-License-Identifier: Apache-2.0
// A report as JSON and as text for people.
#include <jansson.h>
#include <math.h>
#include "place/machine.h"
#include "place/nccl.h"

static json_t *text_or_null(const char *text) {
    return text ? json_string(text) : json_null();
}
static json_t *int_or_null(int64_t value) {
    return value >= 0 ? json_integer(value) : json_null();
}
// Two decimals: what the tables print.
static json_t *real_or_null(double value) {
    return value >= 0 && isfinite(value) ? json_real(round(value * 100) / 100) : json_null();
}

static json_t *evidence_json(const hn_nccl_evidence *evidence) {
    return json_pack(
        "{s:o, s:s, s:s}", "line", evidence->line > 0 ? json_integer(evidence->line) : json_null(),
        "text", evidence->text ? evidence->text : "", "file", evidence->file ? evidence->file : "");
}

static json_t *causes_json(const hn_nccl_report *report) {
    json_t *list = json_array();
    for (size_t i = 0; i < report->cause_count; i++) {
        const hn_nccl_cause *c = &report->causes[i];
        json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:o, s:s, s:f, s:I}", "id", c->id,
                                              "severity", hn_nccl_severity_name(c->severity), "why",
                                              c->why, "evidence", evidence_json(&c->evidence),
                                              "mend", c->mend, "confidence", c->confidence, "count",
                                              (json_int_t)c->count));
    }
    return list;
}

static json_t *bench_json(const hn_nccl_report *report) {
    if (!report->has_bench) return json_null();
    const hn_nccl_bench *b = &report->bench;
    json_t *rows = json_array();
    for (size_t i = 0; i < b->row_count; i++) {
        const hn_nccl_bench_row *r = &b->rows[i];
        json_array_append_new(
            rows,
            json_pack("{s:I, s:o, s:o, s:o, s:o, s:I}", "bytes", (json_int_t)r->bytes, "time_us",
                      real_or_null(r->time_us), "algbw_gbs", real_or_null(r->algbw_gbs),
                      "busbw_gbs", real_or_null(r->busbw_gbs), "printed_busbw_gbs",
                      real_or_null(r->printed_busbw_gbs), "line", (json_int_t)r->line));
    }
    return json_pack("{s:o, s:o, s:o, s:I, s:o, s:o, s:o, s:o, s:o, s:o}", "collective",
                     text_or_null(b->collective), "ranks", int_or_null(b->ranks), "busbw_gbs",
                     real_or_null(b->peak_busbw_gbs), "bytes", (json_int_t)b->peak_bytes,
                     "ceiling_gbs", real_or_null(b->ceiling_gbs), "ceiling_of",
                     text_or_null(b->ceiling_gbs > 0 ? b->ceiling_of : NULL), "share",
                     real_or_null(b->share), "explained_by", text_or_null(b->explained_by), "why",
                     text_or_null(b->sentence), "rows", rows);
}

hn_status hn_nccl_report_json(hone_error *err, const hn_nccl_report *report, hn_str *out_text) {
    json_t *pairs = json_array(), *hosts = json_array(), *settings = json_object();
    for (size_t i = 0; i < report->pair_count; i++) {
        const hn_nccl_pair *p = &report->pairs[i];
        json_array_append_new(pairs,
                              json_pack("{s:i, s:i, s:s, s:o, s:i, s:o}", "from", p->from, "to",
                                        p->to, "via", p->via, "expected", text_or_null(p->expected),
                                        "channels", p->channels, "pxn", int_or_null(p->pxn)));
    }
    for (size_t i = 0; i < report->host_count; i++)
        json_array_append_new(hosts, json_string(report->hosts[i]));
    for (size_t i = 0; i < report->setting_count; i++)
        json_object_set_new(settings, report->settings[i].name,
                            json_string(report->settings[i].value));
    const hn_nccl_failure *f = &report->failure;
    json_t *failure =
        report->failed
            ? json_pack("{s:o, s:o, s:o, s:o, s:o}", "rank", int_or_null(f->rank), "host",
                        text_or_null(f->host), "pid", int_or_null(f->pid), "device",
                        int_or_null(f->device), "evidence", evidence_json(&f->evidence))
            : json_null();
    json_t *root = json_pack(
        "{s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:I, s:I}",
        "healthy", report->healthy, "transport", text_or_null(report->transport),
        "expected_transport", text_or_null(report->expected_transport), "causes",
        causes_json(report), "first_rank", int_or_null(report->first_rank), "first_failure",
        failure, "network", text_or_null(report->network), "nccl_version",
        text_or_null(report->version), "ranks", int_or_null(report->ranks), "nodes",
        int_or_null(report->nodes), "hosts", hosts, "pairs", pairs, "performance",
        bench_json(report), "lines", (json_int_t)report->lines, "records",
        (json_int_t)report->records, "torn_lines", (json_int_t)report->torn);
    if (root) json_object_set_new(root, "settings", settings);
    hn_place_json_append(root, out_text);
    json_decref(root);
    if (out_text->failed) HN_NOMEM(err, "the report as JSON");
    return HONE_OK;
}

static void pairs_text(const hn_nccl_report *report, hn_str *out) {
    size_t shown = 0;
    for (size_t i = 0; i < report->pair_count; i++) {
        const hn_nccl_pair *p = &report->pairs[i];
        bool good = p->expected && strcmp(p->expected, p->via) == 0;
        if (good && report->pair_count > 16) continue;
        if (shown++ == 32) {
            hn_str_printf(out, "  ... %zu pairs in all, see --json\n", report->pair_count);
            break;
        }
        hn_str_printf(out, "  %4d -> %-4d %-28s", p->from, p->to, p->via);
        if (good)
            hn_str_append(out, " as it should be");
        else
            hn_str_printf(out, " should be %s", p->expected ? p->expected : "unknown");
        if (p->pxn >= 0) hn_str_printf(out, ", through the NIC of card %d (PXN)", p->pxn);
        hn_str_append(out, "\n");
    }
}

static void bench_text(const hn_nccl_report *report, hn_str *out) {
    const hn_nccl_bench *b = &report->bench;
    hn_str_printf(out, "\nbandwidth: %.2f GB/s bus bandwidth at %lld bytes (%s, ",
                  b->peak_busbw_gbs, (long long)b->peak_bytes,
                  b->collective ? b->collective : "collective unknown");
    if (b->ranks > 0)
        hn_str_printf(out, "%d ranks)\n", b->ranks);
    else
        hn_str_append(out, "ranks unknown)\n");
    if (b->ceiling_gbs > 0)
        hn_str_printf(out, "  ceiling %.0f GB/s: %s\n", b->ceiling_gbs, b->ceiling_of);
    if (b->sentence) hn_str_printf(out, "  explained by %s: %s\n", b->explained_by, b->sentence);
}

void hn_nccl_report_text(const hn_nccl_report *report, hn_str *out) {
    hn_str_printf(out, "%s", report->healthy ? "healthy" : "not healthy");
    if (report->ranks > 0) hn_str_printf(out, ", %d ranks", report->ranks);
    if (report->nodes > 0)
        hn_str_printf(out, " on %d node%s", report->nodes, report->nodes > 1 ? "s" : "");
    if (report->version) hn_str_printf(out, ", NCCL %s", report->version);
    hn_str_printf(out, " (%lld lines, %lld records)\ntransport: %s", (long long)report->lines,
                  (long long)report->records,
                  report->transport ? report->transport : "not in the log");
    if (report->expected_transport &&
        (!report->transport || strcmp(report->transport, report->expected_transport) != 0))
        hn_str_printf(out, "; expected %s", report->expected_transport);
    hn_str_append(out, "\n");
    pairs_text(report, out);
    if (report->failed || report->first_rank >= 0) {
        hn_str_append(out, "first to fail: ");
        if (report->first_rank >= 0)
            hn_str_printf(out, "rank %d", report->first_rank);
        else
            hn_str_append(out, "rank not in the log");
        if (report->failure.host) hn_str_printf(out, ", host %s", report->failure.host);
        if (report->failed && report->failure.device >= 0)
            hn_str_printf(out, ", device %d", report->failure.device);
        hn_str_append(out, "\n");
    }
    for (size_t i = 0; i < report->cause_count; i++) {
        const hn_nccl_cause *c = &report->causes[i];
        hn_str_printf(out, "\n%s: %s (%.0f %% sure)\n  why:  %s\n",
                      hn_nccl_severity_name(c->severity), c->id, 100 * c->confidence, c->why);
        if (c->evidence.line > 0)
            hn_str_printf(out, "  line: %s:%lld: %s\n", c->evidence.file,
                          (long long)c->evidence.line, c->evidence.text);
        hn_str_printf(out, "  mend: %s\n", c->mend);
    }
    if (report->has_bench) bench_text(report, out);
}
