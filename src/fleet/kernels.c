// SPDX-License-Identifier: Apache-2.0
// Kernels of an export: see kernels.h.
#include "fleet/kernels.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "probe/probe.h"

#define SHOWN 20

// One row a figure: its name in the details page and as a raw metric, in per cent of peak.
static const struct figure {
    const char *token, *head, *name, *raw;
} k_figures[] = {
    {"memory_percent", "memory", "Memory Throughput", "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"},
    {"compute_percent", "compute", "Compute (SM) Throughput", "sm__throughput.avg.pct_of_peak_sustained_elapsed"},
    {"dram_percent", "DRAM", "DRAM Throughput", "dram__throughput.avg.pct_of_peak_sustained_elapsed"},
    {"l2_hit_percent", "L2 hit", "L2 Hit Rate", "lts__t_sector_hit_rate.pct"},
    {"occupancy_percent", "occup.", "Achieved Occupancy", "sm__warps_active.avg.pct_of_peak_sustained_active"},
};
enum { MEMORY, COMPUTE, FIGURES = HN_COUNT_OF(k_figures) };

typedef struct kernel {
    const char *name; // the report's
    int64_t launches;
    double ns; // of all, NAN where one tells none
    double sum[FIGURES], weight[FIGURES];
    const hn_ncu_kernel *first;
} kernel;
typedef HN_VEC(kernel) kernels;

bool hn_kernels_is_export(hn_slice head) {
    hn_slice line;
    while (hn_slice_line(&head, &line))
        if (hn_slice_starts(line, "==PROF==") || (line.length && line.data[0] == '"' && memmem(line.data, line.length, "\"Metric Name\"", 13)))
            return true;
    return false;
}

static double percent(const hn_ncu_kernel *k, const struct figure *figure) {
    for (size_t i = 0; i < k->metrics.count; i++) { // some names stand there twice, in per cent and in bytes a second
        const hn_ncu_metric *m = &k->metrics.data[i];
        if (strcmp(m->unit, "%") == 0 && (strcmp(m->name, figure->name) == 0 || strcmp(m->name, figure->raw) == 0) && isfinite(m->value))
            return m->value;
    }
    return NAN;
}

static int dearer(const void *a, const void *b) {
    const kernel *x = a, *y = b;
    double dx = isfinite(x->ns) ? x->ns : -1, dy = isfinite(y->ns) ? y->ns : -1;
    return dx != dy ? (dx < dy) - (dx > dy) : strcmp(x->name, y->name);
}

static int by_name(const void *a, const void *b) {
    const hn_ncu_kernel *const *x = a, *const *y = b;
    int order = strcmp((*x)->name, (*y)->name);
    return order ? order : (*x < *y ? -1 : *x > *y); // in the export's order
}

static hone_status gather(hone_error *err, const hn_ncu_report *report, kernels *out) {
    size_t count = report->kernels.count;
    const hn_ncu_kernel **sorted = hn_calloc(count + 1, sizeof *sorted);
    if (!sorted) HN_NOMEM(err, "kernels");
    for (size_t i = 0; i < count; i++) sorted[i] = &report->kernels.data[i];
    qsort(sorted, count, sizeof *sorted, by_name);
    hone_status status = HONE_OK;
    for (size_t i = 0; i < count && status == HONE_OK; i++) {
        const hn_ncu_kernel *k = sorted[i];
        bool same = out->count && strcmp(out->data[out->count - 1].name, k->name) == 0;
        kernel fresh = {.name = k->name, .first = k};
        if (!same && !hn_vec_push(out, fresh)) status = HN_SET(err, HONE_ERR_NOMEM, "out of memory (kernels)");
        if (status != HONE_OK) break;
        kernel *to = &out->data[out->count - 1];
        double ns = hn_ncu_duration_ns(k) * (double)k->invocations; // a summary's is the mean
        to->launches += k->invocations;
        to->ns += ns;
        for (int f = 0; f < FIGURES; f++) {
            double value = percent(k, &k_figures[f]), weight = isfinite(ns) && ns > 0 ? ns : 1;
            if (!isfinite(value)) continue;
            to->sum[f] += value * weight;
            to->weight[f] += weight;
        }
    }
    hn_free(sorted);
    if (status == HONE_OK && out->count) qsort(out->data, out->count, sizeof *out->data, dearer);
    return status;
}

static double mean(const kernel *k, int figure) { return k->weight[figure] > 0 ? k->sum[figure] / k->weight[figure] : NAN; }

// Neither pipe nor memory half busy: too few or too short blocks, or waiting.
static const char *bound(const kernel *k) {
    double memory = mean(k, MEMORY), compute = mean(k, COMPUTE);
    if (!isfinite(memory) || !isfinite(compute)) return "";
    if (memory < 50 && compute < 50) return "latency";
    return memory > compute ? "memory" : "compute";
}

static double total_ns(const kernels *all) {
    double sum = 0;
    for (size_t i = 0; i < all->count; i++)
        if (isfinite(all->data[i].ns)) sum += all->data[i].ns;
    return sum;
}

hn_status hn_kernels_text(hone_error *err, const hn_ncu_report *report, hn_str *out) {
    kernels all = {0};
    hone_status status = gather(err, report, &all);
    int64_t launches = 0;
    double total = total_ns(&all);
    for (size_t i = 0; i < all.count; i++) launches += all.data[i].launches;
    hn_str_printf(out, "%lld launch%s of %zu kernel%s, %.3f ms, as Nsight Compute measured them\n  share launches    us each", (long long)launches,
                  launches == 1 ? "" : "es", all.count, all.count == 1 ? "" : "s", total * 1e-6);
    for (int f = 0; f < FIGURES; f++) hn_str_printf(out, " %7s", k_figures[f].head);
    hn_str_append(out, "  bound    kernel\n");
    for (size_t i = 0; i < all.count && i < SHOWN && status == HONE_OK; i++) {
        const kernel *k = &all.data[i];
        if (isfinite(k->ns) && total > 0)
            hn_str_printf(out, " %5.1f%% %8lld %10.2f", 100 * k->ns / total, (long long)k->launches, k->ns * 1e-3 / (double)k->launches);
        else hn_str_printf(out, "      - %8lld          -", (long long)k->launches);
        for (int f = 0; f < FIGURES; f++) {
            double value = mean(k, f);
            if (isfinite(value)) hn_str_printf(out, " %6.1f%%", value);
            else hn_str_append(out, "       -");
        }
        hn_str_printf(out, "  %-8s ", *bound(k) ? bound(k) : "-");
        hn_str_append_clean(out, k->name, strlen(k->name) < 120 ? strlen(k->name) : 120, HN_CLEAN_LINE);
        hn_str_append(out, "\n");
    }
    if (all.count > SHOWN) hn_str_printf(out, "  and %zu more (--json - has all)\n", all.count - SHOWN);
    hn_vec_free(&all);
    return status;
}

static void json_number(hn_str *out, const char *key, double value) {
    if (isfinite(value)) hn_str_printf(out, ",\"%s\":%.9g", key, value);
    else hn_str_printf(out, ",\"%s\":null", key);
}

static void json_text(hn_str *out, const char *text) { // bytes that are no UTF-8 written out
    hn_str clean = {0};
    hn_str_append_clean(&clean, text, strlen(text), HN_CLEAN_UTF8);
    hn_json_string(out, hn_str_get(&clean), clean.length);
    out->failed |= clean.failed;
    hn_str_free(&clean);
}

hn_status hn_kernels_json(hone_error *err, const hn_ncu_report *report, hn_str *out) {
    kernels all = {0};
    hone_status status = gather(err, report, &all);
    double total = total_ns(&all);
    hn_str_append(out, "{\"source\":\"Nsight Compute\",\"kernels\":[");
    for (size_t i = 0; i < all.count && status == HONE_OK; i++) {
        const kernel *k = &all.data[i];
        hn_str_append(out, i ? ",\n{\"name\":" : "\n{\"name\":");
        json_text(out, k->name);
        json_number(out, "launches", (double)k->launches);
        json_number(out, "seconds", k->ns * 1e-9);
        json_number(out, "share", total > 0 ? k->ns / total : NAN);
        for (int f = 0; f < FIGURES; f++) json_number(out, k_figures[f].token, mean(k, f));
        hn_str_printf(out, *bound(k) ? ",\"bound\":\"%s\"" : ",\"bound\":%s", *bound(k) ? bound(k) : "null");
        hn_str_append(out, ",\"remarks\":[");
        for (size_t r = 0; r < k->first->remarks.count; r++) {
            if (r) hn_str_append(out, ",");
            json_text(out, k->first->remarks.data[r]);
        }
        hn_str_append(out, "]}");
    }
    hn_str_append(out, "]}\n");
    hn_vec_free(&all);
    return status;
}
