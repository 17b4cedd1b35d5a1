// SPDX-License-Identifier: Apache-2.0
// Measured ceilings of CPU and cards: which cards may be measured, what the data sheet promises, and
// what a figure far below it means.
#include <stddef.h>
#include <stdio.h>
#include <strings.h>
#include "probe/doctor.h"

#define CARDS_MAX    64
#define CEILINGS_MAX (CARDS_MAX * 16)
#define TIMEOUT_S    20.0
#define BUSY_PERCENT 5.0
// The driver's own use of an idle card; with persistence off it is next to nothing.
#define IDLE_BYTES ((double)(1 << 30))

typedef struct kind {
    size_t sheet;       // offset of the sheet's figure, 0 none (the name is there)
    double least;       // share of the sheet below which something is wrong
    const char *id, *why, *mend;
} kind;

#define PRODUCT(field)                                                                             \
    {offsetof(hn_sheet, field), 0.5, "slow_product", "every model's large products run at this pace",                      \
     "look at power limit, heat and throttle reasons above, at the clocks (nvidia-smi -q -d CLOCK) and at who else uses the card"}
static const kind k_kinds[HN_CEILING_KINDS] = {
    [HN_CEILING_MEMORY] = {offsetof(hn_sheet, bandwidth_gb_s), 0.7, "slow_memory", "what waits for memory (most inference) runs at this pace",
                           "look at the memory clock, at remapped rows and ECC errors, and at who else uses the card"},
    [HN_CEILING_FP32] = PRODUCT(fp32),
    [HN_CEILING_TF32] = PRODUCT(tf32),
    [HN_CEILING_HALF] = PRODUCT(half),
    [HN_CEILING_FP8] = PRODUCT(fp8),
    [HN_CEILING_INT8] = PRODUCT(int8),
    [HN_CEILING_HOST_LINK] = {0, 0.6, "slow_host_link", "inputs, checkpoints and offloaded layers cross this link",
                              "check the slot's lanes and generation (above), the CPU's power saving, NUMA (bind the process near "
                              "the card: hone place), and the IOMMU"},
};

static bool same_card(const char *a, const char *b) {
    size_t la = strlen(a), lb = strlen(b);
    return la >= 12 && lb >= 12 && strcasecmp(a + la - 12, b + lb - 12) == 0;
}

static int device_of(const hn_doctor *doctor, const char *pci) {
    for (int d = 0; doctor->probe && d < hn_probe_device_count(doctor->probe); d++)
        if (hn_probe_device(doctor->probe, d)->kind == HN_DEVICE_GPU &&
            same_card(hn_probe_device(doctor->probe, d)->pci_bus_id, pci))
            return d;
    return -1;
}

// GB/s one way, after the encoding of the line; NAN unknown.
static double link_gb_s(const hn_device_info *info) {
    static const double k_lane[] = {NAN, 0.25, 0.5, 0.985, 1.969, 3.938, 7.563};
    double gen = info->pcie_gen_max, width = info->pcie_width_max;
    return gen >= 1 && gen < (double)HN_COUNT_OF(k_lane) && width >= 1 ? k_lane[(int)gen] * width : NAN;
}

static void compare(hn_doctor *doctor, hn_ceiling *item) {
    if (!item->pci[0]) return;
    item->sheet = NAN;
    int device = device_of(doctor, item->pci);
    if (device < 0) return;
    const hn_device_info *info = hn_probe_device(doctor->probe, device);
    const kind *k = &k_kinds[item->kind];
    char where[64], what[256];
    hn_device_label(info, where, sizeof where);
    if (item->kind == HN_CEILING_FAILED) {
        hn_doctor_add(doctor, HN_LEVEL_WARN, "not_measured", where, item->name, "what the card can do stays unknown",
                      "look at the kernel log (Xid) and at nvidia-smi; --timeout gives it longer");
        return;
    }
    if (item->kind == HN_CEILING_MISSING) {
        hn_doctor_add(doctor, HN_LEVEL_NOTE, "no_products", where, item->name, "no matrix products were measured",
                      "install CUDA's libcublasLt (package nvidia-cublas of PyPI has it), or name it with HONE_CUBLASLT_LIB");
        return;
    }
    bool parted = strncmp(info->mig_mode, "Enabled", 7) == 0; // an instance has a share of what the sheet says
    const hn_sheet *sheet = parted ? NULL : hn_sheet_find(info);
    double promised = NAN;
    if (item->kind == HN_CEILING_HOST_LINK) promised = link_gb_s(info);
    else if (sheet && k->sheet) memcpy(&promised, (const char *)sheet + k->sheet, sizeof promised);
    if (!(promised > 0)) return;
    item->sheet = promised;
    if (item->measured >= k->least * promised) return;
    snprintf(what, sizeof what, "%.100s reaches %.1f %.15s, %.0f %% of the %s's %.0f", item->name, item->measured, item->unit,
             100 * item->measured / promised, item->kind == HN_CEILING_HOST_LINK ? "link" : "data sheet", promised);
    hn_doctor_add(doctor, HN_LEVEL_WARN, k->id, where, what, k->why, k->mend);
}

// A measurement takes the whole card for seconds: not from somebody's job.
static bool idle(const hn_doctor *doctor, int d, char *what, size_t bytes) {
    const hn_sample *s = &doctor->samples[d];
    double busy = hn_sample_or(s, HN_M_gpu_util, NAN), used = hn_sample_or(s, HN_M_fb_used_bytes, NAN);
    double processes = hn_sample_or(s, HN_M_processes, NAN);
    if (busy > BUSY_PERCENT) snprintf(what, bytes, "not measured: it is at work (%.0f %% utilisation)", busy);
    else if (processes > 0) snprintf(what, bytes, "not measured: %.0f process%s on it", processes, processes == 1 ? " is" : "es are");
    else if (used > IDLE_BYTES) snprintf(what, bytes, "not measured: %.0f MiB of its memory are in use", used / 0x1p20);
    else return true;
    return false;
}

static hone_status take(hone_error *err, hn_doctor *doctor, hn_ceilings_fn fn, const hn_ceilings_wanted *wanted) {
    hn_ceiling *items = hn_calloc(CEILINGS_MAX, sizeof *items);
    if (!items) HN_NOMEM(err, "doctor");
    int count = 0;
    hone_status status = fn(err, wanted, items, CEILINGS_MAX, &count);
    for (int i = 0; i < count; i++) { // also what was measured before it failed
        compare(doctor, &items[i]);
        if (items[i].kind < HN_CEILING_FAILED && !hn_vec_push(&doctor->ceilings, items[i]))
            status = HN_SET(err, HONE_ERR_NOMEM, "out of memory (doctor)");
    }
    hn_free(items);
    return status;
}

hn_status hn_doctor_measure(hone_error *err, hn_doctor *doctor, const hn_doctor_options *options) {
    HN_TRY(hn_cpu_measure_bandwidth(err, &doctor->bandwidth));
    doctor->measured = true;
    hn_ceilings_wanted wanted = {.timeout_s = options->timeout_s > 0 ? options->timeout_s : TIMEOUT_S};
    if (options->ceilings) HN_TRY(take(err, doctor, options->ceilings, &wanted));
    const char *cards[CARDS_MAX];
    for (int d = 0; doctor->probe && d < hn_probe_device_count(doctor->probe) && wanted.count < CARDS_MAX; d++) {
        const hn_device_info *info = hn_probe_device(doctor->probe, d);
        char where[64], what[128];
        bool known = false; // MIG instances share their card's id
        for (int i = 0; i < wanted.count; i++) known |= same_card(cards[i], info->pci_bus_id);
        if (info->kind != HN_DEVICE_GPU || info->lost || !info->pci_bus_id[0] || known) continue;
        if (options->busy || idle(doctor, d, what, sizeof what)) cards[wanted.count++] = info->pci_bus_id;
        else
            hn_doctor_add(doctor, HN_LEVEL_NOTE, "busy", hn_device_label(info, where, sizeof where), what,
                          "a measurement would slow the work down, and the work the measurement",
                          "measure when it is idle, or with --busy");
    }
    if (!options->card_ceilings || !wanted.count) return HONE_OK;
    wanted.pci = cards;
    hone_error why = {0};
    hone_status status = take(&why, doctor, options->card_ceilings, &wanted);
    if (status == HONE_OK) return HONE_OK;
    if (status == HONE_ERR_NOMEM) {
        if (err) *err = why;
        return status;
    }
    hn_doctor_add(doctor, HN_LEVEL_NOTE, "no_ceilings", "cards", why.text, "what the cards can do stays unknown",
                  "mend what the sentence names; the rest of this report does not depend on it");
    return HONE_OK;
}

// ---- showing ----------------------------------------------------------------------------------
static bool belongs(const hn_ceiling *item, const char *pci) {
    if (!pci) return false;
    return *pci ? same_card(item->pci, pci) : !item->pci[0];
}

void hn_doctor_ceilings_text(hn_str *out, const hn_doctor *doctor, const char *pci) {
    for (size_t i = 0; i < doctor->ceilings.count; i++) {
        const hn_ceiling *c = &doctor->ceilings.data[i];
        if (!belongs(c, pci)) continue;
        hn_str_printf(out, "  %-24s %10.1f %s", c->name, c->measured, c->unit);
        if (isfinite(c->sheet)) hn_str_printf(out, "  (%.0f %% of %.0f)", 100 * c->measured / c->sheet, c->sheet);
        hn_str_append(out, "\n");
    }
}

void hn_doctor_ceilings_json(hn_str *out, const hn_doctor *doctor, const char *pci) {
    bool first = true;
    hn_str_append(out, "[");
    for (size_t i = 0; i < doctor->ceilings.count; i++) {
        const hn_ceiling *c = &doctor->ceilings.data[i];
        char text[2][HN_METRIC_TEXT_BYTES];
        if (!belongs(c, pci)) continue;
        hn_str_append(out, first ? "{\"name\":" : ",{\"name\":");
        hn_json_string(out, c->name, strlen(c->name));
        hn_str_append(out, ",\"unit\":");
        hn_json_string(out, c->unit, strlen(c->unit));
        hn_str_printf(out, ",\"measured\":%s,\"sheet\":%s}", isfinite(c->measured) ? hn_metric_text(c->measured, text[0]) : "null",
                      isfinite(c->sheet) ? hn_metric_text(c->sheet, text[1]) : "null");
        first = false;
    }
    hn_str_append(out, "]");
}
