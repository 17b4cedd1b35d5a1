// SPDX-License-Identifier: Apache-2.0
// Watching the copying process, judging its figures, telling them: see p2p.h.
#include "place/p2p_int.h"
#include <jansson.h>
#include <stdio.h>
#include <strings.h>
#include "base/watched.h"
#include "libs/cuda.h"

#define BYTES_DEFAULT  ((int64_t)64 << 20)
#define TIMEOUT_S      20.0
#define START_TIMES    6   // a driver without persistence wakes eight cards in up to a minute
#define SLOW_SHARE     0.5 // of the link's class: less is no measuring error
#define COPY_START_S   5e-6 // what a copy costs before its first byte; 4 us between two H200 over 18 NVLinks

static const char *const k_steps[P2P_STEPS] = {
    [P2P_START] = "starting the cards",  [P2P_ACCESS] = "switching peer access on",
    [P2P_DATA] = "copying the pattern",  [P2P_TIME] = "timed copies one way",
    [P2P_BOTH] = "timed copies both ways",
};

const char *hn_p2p_verdict_name(hn_p2p_verdict verdict) {
    static const char *const k_names[] = {"ok", "no_access", "slow", "failed", "corrupt", "stalled"};
    return k_names[verdict];
}

// ---- the process --------------------------------------------------------------------------------
typedef struct start_at {
    const hn_p2p_report *report;
    int first;
} start_at;

static void copy_in_child(int fd, void *arg) {
    const start_at *at = arg;
    hn_p2p_copy(fd, at->report, at->first);
}

static int next_record(const hn_watched *w, double timeout_s, hn_p2p_record *out) {
    int got = hn_watched_read(w, timeout_s, out, sizeof *out);
    out->name[sizeof out->name - 1] = out->pci[sizeof out->pci - 1] = '\0';
    return got;
}

// ---- judging ------------------------------------------------------------------------------------
static int find_card(const hn_place_machine *machine, const hn_p2p_report *report, int at) {
    const hn_p2p_card *card = &report->cards.data[at];
    for (size_t g = 0; g < machine->gpus.count; g++)
        if (machine->gpus.data[g].pci && card->pci[0] && strlen(card->pci) >= 12 &&
            strcasecmp(machine->gpus.data[g].pci, card->pci + strlen(card->pci) - 12) == 0)
            return (int)g;
    if (machine->gpus.count != report->cards.count) return -1;
    return machine->gpus.data[at].pci ? -1 : at;
}

// Class figures of links.def are for PCIe 4.0 x16: other generations and widths scale them.
static double pcie_scale(const hn_place_gpu *a, const hn_place_gpu *b) {
    double least = 2;
    for (int i = 0; i < 2; i++) {
        const hn_place_gpu *gpu = i ? b : a;
        int generation = gpu->pcie_generation, width = gpu->pcie_width;
        if (generation < 1 || width < 1) return 1;
        double scale = width / 16.0;
        for (int g = generation; g < 4; g++) scale /= 2;
        for (int g = 4; g < generation; g++) scale *= 2;
        if (scale < least) least = scale;
    }
    return least;
}

// What a copy of this size can reach: small ones are all start, which says nothing about the link.
static double reachable_gbs(double ceiling_gbs, int64_t bytes) {
    return (double)bytes / ((double)bytes / ceiling_gbs + COPY_START_S * 1e9);
}

static void judge(const hn_place_machine *machine, hn_p2p_report *report, hn_p2p_pair *pair) {
    bool nvlink = false;
    pair->ceiling_gbs = -1;
    int a = machine ? find_card(machine, report, pair->from) : -1;
    int b = machine ? find_card(machine, report, pair->to) : -1;
    if (a >= 0 && b >= 0 && a != b) {
        char code[8];
        hn_place_link link = hn_place_link_between(machine, a, b);
        const char *text = hn_place_link_code(machine, link, code, sizeof code);
        double gbs = hn_place_link_gbs(machine, a, b);
        nvlink = link.kind == HN_LINK_NVLINK;
        if (!nvlink) gbs *= pcie_scale(&machine->gpus.data[a], &machine->gpus.data[b]);
        if (text) pair->link = hn_arena_strdup(&report->arena, text);
        if (gbs > 0) pair->ceiling_gbs = gbs;
    }
    if (pair->verdict == HN_P2P_OK && !pair->access) pair->verdict = HN_P2P_NO_ACCESS;
    if (pair->verdict == HN_P2P_OK && pair->ceiling_gbs > 0 && pair->gbs >= 0 &&
        pair->gbs < SLOW_SHARE * reachable_gbs(pair->ceiling_gbs, report->bytes))
        pair->verdict = HN_P2P_SLOW;
    // Also where the link is unknown: the two directions of one link are equal.
    if (pair->verdict == HN_P2P_OK && pair->gbs >= 0 && pair->gbs < SLOW_SHARE * pair->back_gbs)
        pair->verdict = HN_P2P_SLOW, pair->one_sided = true;
    report->fault |= pair->verdict > HN_P2P_NO_ACCESS || (pair->verdict == HN_P2P_NO_ACCESS && nvlink);
}

static void note_strangers(const hn_place_machine *machine, hn_p2p_report *report) {
    int strangers = 0;
    for (size_t i = 0; i < report->cards.count; i++) strangers += find_card(machine, report, (int)i) < 0;
    if (strangers)
        report->note = hn_arena_printf(&report->arena, "The topology given names %zu cards, this machine has %zu: the "
                                       "links of %d of them are unknown.", machine->gpus.count, report->cards.count,
                                       strangers);
}

static hn_p2p_pair pair_of(const hn_p2p_record *r) {
    return (hn_p2p_pair){.from = r->a, .to = r->b, .access = r->access, .gbs = r->gbs, .both_gbs = r->both_gbs,
                         .wrong = r->wrong, .first_wrong = r->first_wrong, .result = r->result,
                         .step = r->result && r->step >= 0 && r->step < P2P_STEPS ? k_steps[r->step] : NULL,
                         .verdict = r->result  ? HN_P2P_FAILED
                                    : r->wrong ? HN_P2P_CORRUPT
                                               : HN_P2P_OK};
}

// Reads one process to its end. *io_next is the number of the next pair; *out_more: go on in a new one.
static hn_status watch(hone_error *err, const hn_p2p_options *options, hn_watched *w, hn_p2p_report *report,
                       int *io_next, bool *out_more) {
    hn_p2p_record now = {.step = P2P_START, .a = -1, .b = -1}, record;
    *out_more = false;
    for (;;) {
        double timeout = options->timeout_s * (now.step == P2P_START ? START_TIMES : 1);
        int got = next_record(w, timeout, &record);
        if (got == 1 && record.kind == P2P_DONE) return HONE_OK;
        if (got == 1 && record.kind == P2P_REFUSE)
            HN_FAIL(err, HONE_ERR_UNSUPPORTED, "%s", record.name);
        if (got == 1 && record.kind == P2P_CARD) {
            hn_p2p_card card = {.index = record.a};
            snprintf(card.name, sizeof card.name, "%.95s", record.name);
            snprintf(card.pci, sizeof card.pci, "%.31s", record.pci);
            if (!hn_vec_push(&report->cards, card)) HN_NOMEM(err, "cards");
            continue;
        }
        if (got == 1 && record.kind == P2P_STEP) {
            now = record;
            continue;
        }
        int count = (int)report->cards.count;
        if (got == 1 && record.kind == P2P_RESULT) {
            if (record.a < 0 || record.b < 0 || record.a >= count || record.b >= count)
                HN_FAIL(err, HONE_ERR_DEVICE, "the test's process answers nonsense");
            hn_p2p_pair pair = pair_of(&record);
            if (!hn_vec_push(&report->pairs, pair)) HN_NOMEM(err, "pairs");
            now = (hn_p2p_record){.step = P2P_START, .a = -1, .b = -1};
            ++*io_next;
            *out_more = *io_next < count * (count - 1);
            continue;
        }
        if (now.a < 0 && got == 0 && *out_more) return HONE_OK; // ended between pairs, after a lost context
        if (now.a < 0 || now.a >= count || now.b >= count)
            HN_FAIL(err, HONE_ERR_DEVICE, got ? "the CUDA driver did not start in %.0f s: look at the kernel log (Xid), "
                                                "nvidia-smi and the fabric manager"
                                              : "the process that started the CUDA driver ended by itself (limit %.0f s)",
                    timeout);
        // It stalled, or died: that is this pair's answer.
        hn_p2p_pair pair = {.from = now.a, .to = now.b, .gbs = -1, .both_gbs = -1, .first_wrong = -1, .access = true,
                            .verdict = got ? HN_P2P_STALLED : HN_P2P_FAILED, .step = k_steps[now.step]};
        if (!hn_vec_push(&report->pairs, pair)) HN_NOMEM(err, "pairs");
        ++*io_next;
        *out_more = *io_next < count * (count - 1);
        return HONE_OK;
    }
}

hn_status hn_p2p_run(hone_error *err, const hn_p2p_options *options, const hn_place_machine *machine,
                     hn_p2p_report *out_report) {
    hn_p2p_options o = *options;
    if (o.bytes <= 0) o.bytes = BYTES_DEFAULT;
    if (!(o.timeout_s > 0)) o.timeout_s = TIMEOUT_S;
    o.bytes &= ~(int64_t)7;
    hn_p2p_report report = {.bytes = o.bytes};
    hone_status status = HONE_OK;
    int next = 0;
    bool more = true;
    while (more && status == HONE_OK) {
        hn_watched w = {-1, -1};
        start_at at = {&report, next};
        status = hn_watched_start(err, copy_in_child, &at, &w);
        if (status != HONE_OK) break;
        status = watch(err, &o, &w, &report, &next, &more);
        if (!hn_watched_end(&w)) report.left_behind = true;
    }
    if (status != HONE_OK) {
        hn_p2p_report_free(&report);
        return status;
    }
    for (size_t i = 0; i < report.pairs.count; i++)
        for (size_t k = 0; k < i; k++) {
            hn_p2p_pair *p = &report.pairs.data[k], *q = &report.pairs.data[i];
            if (p->from != q->to || p->to != q->from) continue;
            p->both_gbs = q->both_gbs; // measured in the second direction, true of both
            p->back_gbs = q->gbs, q->back_gbs = p->gbs;
        }
    for (size_t i = 0; i < report.pairs.count; i++) judge(machine, &report, &report.pairs.data[i]);
    if (o.topology_given && machine) note_strangers(machine, &report);
    *out_report = report;
    return HONE_OK;
}

void hn_p2p_report_free(hn_p2p_report *report) {
    hn_vec_free(&report->cards);
    hn_vec_free(&report->pairs);
    hn_arena_free(&report->arena);
}

// ---- telling ------------------------------------------------------------------------------------
static void sentence(const hn_p2p_report *report, const hn_p2p_pair *p, hn_str *out) {
    int from = report->cards.data[p->from].index, to = report->cards.data[p->to].index;
    switch (p->verdict) {
    case HN_P2P_OK: break;
    case HN_P2P_NO_ACCESS:
        hn_str_printf(out, "GPU%d to GPU%d: the driver allows no peer access%s; copies go through the host's memory", from,
                      to, p->link && strncmp(p->link, "NV", 2) == 0
                              ? " although NVLink joins them (link down, fabric manager, or a container without the other card)"
                              : "");
        break;
    case HN_P2P_SLOW:
        if (p->one_sided) {
            hn_str_printf(out, "GPU%d to GPU%d: %.1f GB/s, and %.1f GB/s the other way", from, to, p->gbs, p->back_gbs);
            break;
        }
        hn_str_printf(out, "GPU%d to GPU%d: %.1f GB/s, %.0f %% of the %.0f GB/s that %s gives", from, to, p->gbs,
                      100 * p->gbs / p->ceiling_gbs, p->ceiling_gbs, p->link ? p->link : "the link");
        break;
    case HN_P2P_FAILED:
        if (p->result)
            hn_str_printf(out, "GPU%d to GPU%d: %s failed: %s (%d)", from, to, p->step ? p->step : "a call",
                          hn_cuda_result_text(p->result), p->result);
        else
            hn_str_printf(out, "GPU%d to GPU%d: the test's process died in %s", from, to, p->step ? p->step : "a call");
        break;
    case HN_P2P_CORRUPT:
        hn_str_printf(out, "GPU%d to GPU%d: %lld of %lld bytes arrived wrong, the first at offset %lld", from, to,
                      (long long)p->wrong, (long long)report->bytes, (long long)p->first_wrong);
        break;
    case HN_P2P_STALLED:
        hn_str_printf(out, "GPU%d to GPU%d: %s did not end in time", from, to, p->step ? p->step : "a call");
        break;
    }
}

static const char *advice(const hn_p2p_report *report) {
    bool broken = false, slow = false, closed = false;
    for (size_t i = 0; i < report->pairs.count; i++) {
        hn_p2p_verdict v = report->pairs.data[i].verdict;
        broken |= v == HN_P2P_CORRUPT || v == HN_P2P_STALLED;
        slow |= v == HN_P2P_SLOW;
        closed |= v == HN_P2P_NO_ACCESS;
    }
    return broken ? "An IOMMU that translates, or ACS on the PCI bridges, does this: boot with iommu=pt (or off in the "
                    "firmware), switch ACS off between the cards ('hone doctor' shows both). Until then "
                    "NCCL_P2P_DISABLE=1 keeps jobs right and slow."
           : slow ? "Look at ACS ('hone doctor'), the links ('hone topo', 'nvidia-smi nvlink -s'), the PCIe width, and "
                    "whether other jobs use the cards now."
           : closed ? "NCCL will stage between these cards through shared memory. Cards of the GeForce line have no "
                      "peer access; others lose it by MIG, by a virtual machine, or where no path joins them."
                    : NULL;
}

void hn_p2p_text(const hn_p2p_report *report, hn_str *out) {
    int bad = 0;
    hn_str_printf(out, "peer-to-peer among %zu cards: %zu directed pairs, %lld MiB a copy, every byte compared\n\n",
                  report->cards.count, report->pairs.count, (long long)(report->bytes >> 20));
    for (size_t i = 0; i < report->cards.count; i++)
        hn_str_printf(out, "  GPU%d  %s  %s\n", report->cards.data[i].index, report->cards.data[i].pci,
                      report->cards.data[i].name);
    hn_str_printf(out, "\n  %-14s %-6s %10s %12s %9s  %s\n", "pair", "link", "GB/s", "both ways", "ceiling", "verdict");
    for (size_t i = 0; i < report->pairs.count; i++) {
        const hn_p2p_pair *p = &report->pairs.data[i];
        char name[40], figures[3][24];
        double values[] = {p->gbs, p->both_gbs, p->ceiling_gbs};
        for (int k = 0; k < 3; k++) {
            if (values[k] < 0) snprintf(figures[k], sizeof figures[k], "-");
            else snprintf(figures[k], sizeof figures[k], "%.1f", values[k]);
        }
        snprintf(name, sizeof name, "GPU%d > GPU%d", report->cards.data[p->from].index, report->cards.data[p->to].index);
        hn_str_printf(out, "  %-14s %-6s %10s %12s %9s  %s\n", name, p->link ? p->link : "?", figures[0], figures[1],
                      figures[2], hn_p2p_verdict_name(p->verdict));
    }
    for (size_t i = 0; i < report->pairs.count; i++) {
        if (report->pairs.data[i].verdict == HN_P2P_OK) continue;
        hn_str_append(out, bad++ ? "  " : "\n  ");
        sentence(report, &report->pairs.data[i], out);
        hn_str_append(out, "\n");
    }
    const char *text = advice(report);
    if (text) hn_str_printf(out, "\n%s\n", text);
    else hn_str_append(out, "\nEvery copy arrived as it was sent.\n");
    if (report->note) hn_str_printf(out, "%s\n", report->note);
    if (report->left_behind)
        hn_str_append(out, "A process of this test hangs in the driver and could not be ended: the cards need a reset.\n");
}

static json_t *figure(double value) { return value < 0 ? json_null() : json_real(value); }

hn_status hn_p2p_json(hone_error *err, const hn_p2p_report *report, hn_str *out) {
    json_t *root = json_object(), *cards = json_array(), *pairs = json_array();
    for (size_t i = 0; i < report->cards.count; i++) {
        const hn_p2p_card *c = &report->cards.data[i];
        json_array_append_new(cards, json_pack("{s:i,s:s,s:s}", "index", c->index, "name", c->name, "pci", c->pci));
    }
    for (size_t i = 0; i < report->pairs.count; i++) {
        const hn_p2p_pair *p = &report->pairs.data[i];
        hn_str text = {0};
        sentence(report, p, &text);
        json_t *item = json_pack("{s:i,s:i,s:s,s:s?}", "from", report->cards.data[p->from].index, "to",
                                 report->cards.data[p->to].index, "verdict", hn_p2p_verdict_name(p->verdict),
                                 "link", p->link);
        json_object_set_new(item, "peer_access", p->verdict == HN_P2P_STALLED || p->verdict == HN_P2P_FAILED
                                                     ? json_null() : json_boolean(p->access));
        json_object_set_new(item, "gbs", figure(p->gbs));
        json_object_set_new(item, "both_ways_gbs", figure(p->both_gbs));
        json_object_set_new(item, "ceiling_gbs", figure(p->ceiling_gbs));
        json_object_set_new(item, "wrong_bytes", p->verdict == HN_P2P_STALLED || p->verdict == HN_P2P_FAILED
                                                     ? json_null() : json_integer(p->wrong));
        json_object_set_new(item, "finding", text.length ? json_string(hn_str_get(&text)) : json_null());
        json_array_append_new(pairs, item);
        hn_str_free(&text);
    }
    const char *text = advice(report);
    json_object_set_new(root, "healthy", json_boolean(!report->fault));
    json_object_set_new(root, "copy_bytes", json_integer(report->bytes));
    json_object_set_new(root, "cards", cards);
    json_object_set_new(root, "pairs", pairs);
    json_object_set_new(root, "advice", text ? json_string(text) : json_null());
    json_object_set_new(root, "note", report->note ? json_string(report->note) : json_null());
    hn_place_json_append(root, out);
    json_decref(root);
    if (out->failed) HN_NOMEM(err, "the report");
    return HONE_OK;
}
