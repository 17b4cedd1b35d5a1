// SPDX-License-Identifier: Apache-2.0
// Diagnosis: see diagnose.h. Ratios are of the time in which a card was not idle, so that start-up and end
// of a job do not dilute them.
#include "fleet/diagnose.h"
#include "base/lang.h"
#include <stdarg.h>
#include <stdio.h>

// A bound that weighs less is none: the job is limited by no single thing.
#define BOUND_MIN 0.35
// What well-tuned code reaches of the counters' 100 %: matrix products issue on about 80 % of cycles at the
// power limit, copies within the card move data on about 90 %, the host link carries some 85 % payload.
#define PIPE_REACH 0.8
#define DRAM_REACH 0.9
#define LINK_REACH 0.85
#define SM_FULL    0.6  // below it not even the blocks for full pipes are there
#define DRAM_MIN   0.33 // a mean: layers that stream and layers that compute come in turns
#define DRAM_LOAD  0.5
#define INTEGER_MIN    0.5 // addresses are integers too: below it no sign of arithmetic
#define LINK_MIN   0.4
#define COPY_MIN   0.4  // share of time in which the driver calls the card in use and no kernel ran: copies
#define LINK_SLOW  0.08 // pageable copies crawl at a tenth of the link: far more than loaders feed
#define DUTY_LOW   0.65 // a card that runs kernels for less of the time waits for something
#define DENSE      0.4  // SM activity while kernels run: real work has more, tiny kernels less
#define STALLS_MIN 3    // pauses seen between busy times: one may be an evaluation or a checkpoint
#define INNER_MIN  0.25
#define IDLE_CARD  0.8  // start-up and end of a job that hardly used the card
#define IDLE_ALL   0.95 // so much is idle even if it came in pauses
#define TENSOR_LOW 0.1
#define FP_BUSY    0.15 // shader pipes at work: there is arithmetic that tensor cores might do
#define MEMORY_FULL 0.95

const hn_diagnosis_row hn_diagnosis_rows[HN_DIAGNOSIS_COUNT] = {
#define HN_DIAGNOSIS(token, words, bound, remedy) {#token, words, bound, remedy},
#include "fleet/diagnose.def"
#undef HN_DIAGNOSIS
};

// What the judges look at; NAN where unknown.
typedef struct view {
    const hn_span *span, *host;
    double sm, active, density, tensor, fp32, fp16, fp64, integer, pipe, dram, link, rx, tx;
    double duty, inner, idle;
    double copying; // share of time in use without a kernel
    const char *pipe_name;
} view;

static void say(hn_finding *f, const char *fmt, ...) HN_PRINTF(2, 3);
static void say(hn_finding *f, const char *fmt, ...) {
    size_t at = strlen(f->evidence);
    va_list args;
    va_start(args, fmt);
    vsnprintf(f->evidence + at, sizeof f->evidence - at, fmt, args);
    va_end(args);
}
// " name 12 %", nothing where unknown.
static void say_share(hn_finding *f, const char *name, double share) {
    if (!isnan(share)) say(f, "%s%s %.0f %%", f->evidence[0] ? ", " : "", name, 100 * share);
}

static double known_or(double value, double otherwise) { return isnan(value) ? otherwise : value; }

static void look(const hn_span *s, const hn_span *host, view *v) {
    *v = (view){.span = s, .host = host, .pipe = NAN, .pipe_name = ""};
    v->sm = hn_span_busy_mean(s, HN_M_sm_active);
    v->active = hn_span_busy_mean(s, HN_M_gr_active);
    if (isnan(v->active)) v->active = hn_span_busy_mean(s, HN_M_gpu_util) / 100;
    v->density = v->active > 0.02 ? v->sm / v->active : NAN;
    v->tensor = hn_span_busy_mean(s, HN_M_tensor_active);
    v->fp32 = hn_span_busy_mean(s, HN_M_fp32_active);
    v->fp16 = hn_span_busy_mean(s, HN_M_fp16_active);
    v->fp64 = hn_span_busy_mean(s, HN_M_fp64_active);
    v->integer = hn_span_busy_mean(s, HN_M_int_active);
    v->dram = hn_span_busy_mean(s, HN_M_dram_active);
    const struct { const char *name; double value; } pipes[] = {
        {HN_SAY("tensor pipes"), v->tensor}, {HN_SAY("FP32 pipe"), v->fp32}, {HN_SAY("FP16 pipe"), v->fp16},
        {HN_SAY("FP64 pipe"), v->fp64}, {HN_SAY("integer pipe"), v->integer}};
    for (size_t i = 0; i < HN_COUNT_OF(pipes); i++)
        if (!isnan(pipes[i].value) && !(pipes[i].value <= v->pipe) &&
            (pipes[i].value >= INTEGER_MIN || i + 1 < HN_COUNT_OF(pipes))) {
            v->pipe = pipes[i].value;
            v->pipe_name = pipes[i].name;
        }
    v->rx = hn_span_busy_mean(s, HN_M_pcie_rx_bytes_s);
    v->tx = hn_span_busy_mean(s, HN_M_pcie_tx_bytes_s);
    v->link = fmax(known_or(v->rx, 0), known_or(v->tx, 0)) / hn_span_link_bytes_s(s);
    double busy_ns = (double)(s->judged_ns - s->idle_ns), window_ns = busy_ns + (double)s->inner_idle_ns;
    v->inner = window_ns > 0 ? (double)s->inner_idle_ns / window_ns : NAN;
    v->duty = v->active * (1 - v->inner);
    v->idle = hn_span_idle_share(s);
    v->copying = hn_span_busy_mean(s, HN_M_gpu_util) / 100 - hn_span_busy_mean(s, HN_M_gr_active);
}

// ---- the judges: 0 = not so, else how much ------------------------------------------------------

static double judge_compute(const view *v, hn_finding *f) {
    if (!(v->sm >= SM_FULL) || isnan(v->pipe)) return 0;
    say(f, "%s %.0f %% busy", v->pipe_name, 100 * v->pipe);
    say_share(f, "SM active", v->sm);
    say_share(f, "DRAM", v->dram);
    return v->pipe / PIPE_REACH * (1 - known_or(v->inner, 0));
}

static double judge_bandwidth(const view *v, hn_finding *f) {
    if (!(v->dram >= DRAM_MIN)) return 0;
    say_share(f, "DRAM", v->dram);
    say_share(f, "SM active", v->sm);
    say_share(f, v->pipe_name, v->pipe);
    say_share(f, "L2 hit", hn_span_busy_mean(v->span, HN_M_l2_hit));
    return v->dram / DRAM_REACH * (1 - known_or(v->inner, 0));
}

static double judge_launch(const view *v, hn_finding *f) {
    bool loaded = v->dram >= DRAM_LOAD || v->pipe >= 0.3 || v->link >= LINK_MIN || v->copying >= COPY_MIN;
    if (!(v->density < 0.5) || loaded) return 0;
    say(f, "kernels run %.0f %% of the time and fill %.0f %% of the SMs meanwhile", 100 * v->active,
        100 * v->density);
    say_share(f, "DRAM", v->dram);
    return (1 - v->density) * (1 - known_or(v->inner, 0));
}

static void say_host(const view *v, hn_finding *f) {
    if (!v->host) return;
    double use = hn_span_mean(v->host, HN_M_cpu_util), busiest = hn_span_mean(v->host, HN_M_cpu_busiest);
    double wait = hn_span_mean(v->host, HN_M_cpu_iowait);
    double io = hn_span_rise(v->host, HN_M_psi_io_some_ns) * 1e-9 / hn_span_seconds(v->host);
    say_share(f, "host CPUs", use / 100);
    if (busiest >= 90 && use < 90) say_share(f, "busiest CPU", busiest / 100);
    if (wait >= 10) say_share(f, "disk wait", wait / 100);
    else if (io >= 0.2) say_share(f, "tasks held up by disks", io);
}

static double judge_input(const view *v, hn_finding *f) {
    bool pauses = v->inner >= INNER_MIN && v->span->stalls >= STALLS_MIN;
    bool gaps = v->duty < DUTY_LOW && !(v->density < DENSE);
    if ((!pauses && !gaps) || v->link >= LINK_SLOW || v->copying >= COPY_MIN) return 0;
    say(f, "kernels run %.0f %% of the time", 100 * v->duty);
    if (pauses) say(f, ", %d pauses make up %.0f %%", v->span->stalls, 100 * v->inner);
    if (!isnan(v->density)) say(f, ", SMs %.0f %% full while they do", 100 * fmin(v->density, 1));
    say_host(v, f);
    return 1 - v->duty;
}

static double judge_transfer(const view *v, hn_finding *f) {
    bool fast = v->link >= LINK_MIN, slow = v->link >= LINK_SLOW && v->duty < DUTY_LOW, copying = v->copying >= COPY_MIN;
    if (!fast && !slow && !copying) return 0;
    if (!isnan(v->link))
        say(f, "%.1f GB/s to the card, %.1f GB/s from it, %.0f %% of the link", known_or(v->rx, 0) * 1e-9,
            known_or(v->tx, 0) * 1e-9, 100 * v->link);
    if (slow && !fast) say(f, ", slow copies (pageable memory)");
    if (copying) say_share(f, "copies without a kernel", v->copying);
    say_share(f, "kernels run", v->duty);
    double weight = fast ? v->link / LINK_REACH : slow ? 1 - v->duty : 0;
    return copying ? fmax(weight, v->copying) : weight;
}

typedef struct throttle_row {
    hn_metric counter;
    int bit; // of the metric `reasons`, -1 = none
    double min_share;
    const char *reason, *words, *remedy;
} throttle_row;
// Worst first. Power at the limit is normal under full load: only where it costs much time.
static const throttle_row k_throttles[] = {
    {HN_M_throttle_brake_ns, 7, 0.02, HN_SAY("power brake"), HN_SAY("the rack's power brake slowed the card"),
     HN_SAY("the supply is overloaded: check power feeds, lower the power limits of the rack's cards")},
    {HN_M_throttle_hw_thermal_ns, 6, 0.02, HN_SAY("hardware thermal"), HN_SAY("the hardware slowed the card for its temperature"),
     HN_SAY("check fans, air flow and inlet temperature of this card first")},
    {HN_M_throttle_sw_thermal_ns, 5, 0.02, HN_SAY("software thermal"), HN_SAY("the driver slowed the card for its temperature"),
     HN_SAY("check air flow and inlet temperature, or lower the power limit a little")},
    {HN_M_throttle_reliability_ns, -1, 0.05, HN_SAY("reliability"), HN_SAY("the voltage limit held the clocks down"),
     HN_SAY("normal at highest clocks; where one card alone shows it, have it checked")},
    {HN_M_throttle_board_ns, -1, 0.05, HN_SAY("board limit"), HN_SAY("a limit of the board held the clocks down"),
     HN_SAY("check the card's power connectors and the power limit in force")},
    {HN_M_throttle_sync_ns, 4, 0.05, HN_SAY("sync boost"), HN_SAY("sync boost held the clocks down to those of the slowest card"),
     HN_SAY("find the slow card of the group, or switch sync boost off")},
    {HN_M_throttle_power_ns, 2, 0.2, HN_SAY("power limit"), HN_SAY("the power limit held the clocks down"),
     HN_SAY("raise the power limit if the card's maximum and the cooling allow it; else this is the card's full power")},
};

static double judge_throttled(const view *v, hn_finding *f) {
    const hn_span *s = v->span;
    double best = 0;
    for (size_t i = 0; i < HN_COUNT_OF(k_throttles); i++) {
        const throttle_row *row = &k_throttles[i];
        double share = hn_span_rise(s, row->counter) * 1e-9 / hn_span_seconds(s);
        if (row->bit >= 0 && s->reason_known_ns > 0)
            share = fmax(known_or(share, 0), (double)s->reason_ns[row->bit] / (double)s->reason_known_ns);
        if (!(share >= row->min_share)) continue;
        say(f, "%s%s for %.0f %% of the time", best > 0 ? "; " : "", row->words, 100 * fmin(share, 1));
        if (best > 0) continue;
        best = fmin(share, 1);
        f->reason = row->reason;
        f->remedy = row->remedy;
    }
    double clock = hn_span_busy_mean(s, HN_M_sm_clock_mhz), hot = hn_span_max(s, HN_M_gpu_temp_c);
    if (best > 0 && !isnan(clock) && s->info.max_sm_clock_mhz > 0)
        say(f, "; SM clock %.0f of %.0f MHz", clock, s->info.max_sm_clock_mhz);
    if (best > 0 && !isnan(hot)) say(f, ", at most %.0f C", hot);
    return best;
}

// A loop with long pauses is not idle but waits for something.
static bool is_idle(const view *v) {
    return v->idle >= IDLE_ALL || (v->idle >= IDLE_CARD && v->span->stalls < STALLS_MIN);
}

static double judge_idle(const view *v, hn_finding *f) {
    if (!is_idle(v)) return 0;
    say(f, "no kernel and no copy ran for %.0f %% of the time", 100 * v->idle);
    return v->idle;
}

static double judge_tensor(const view *v, hn_finding *f) {
    double shader = fmax(known_or(v->fp32, 0), known_or(v->fp16, 0));
    if (!(v->sm >= 0.5 && v->tensor < TENSOR_LOW && shader >= FP_BUSY)) return 0;
    say_share(f, "tensor", v->tensor);
    say_share(f, "FP32 pipe", v->fp32);
    say_share(f, "FP16 pipe", v->fp16);
    say_share(f, "SM active", v->sm);
    return 1 - v->tensor;
}

static double judge_memory(const view *v, hn_finding *f) {
    double share = hn_span_memory_share(v->span);
    if (!(share >= MEMORY_FULL)) return 0;
    say(f, "%.1f GiB in use at the peak, %.1f %% of what programs can get",
        hn_span_max(v->span, HN_M_fb_used_bytes) / 0x1p30, 100 * share);
    return share;
}

// ---- all of them --------------------------------------------------------------------------------

static double (*const k_judges[HN_DIAGNOSIS_COUNT])(const view *, hn_finding *) = {
#define HN_DIAGNOSIS(token, ...) judge_##token,
#include "fleet/diagnose.def"
#undef HN_DIAGNOSIS
};

static bool judge(const view *v, int span, int what, hn_finding *out) {
    *out = (hn_finding){.what = (hn_diagnosis)what, .span = span, .reason = "",
                        .remedy = hn_diagnosis_rows[what].remedy};
    out->weight = k_judges[what](v, out);
    return out->weight >= (hn_diagnosis_rows[what].bound ? BOUND_MIN : 1e-9);
}

int hn_diagnose(const hn_span *spans, int count, hn_finding *out_findings, int max) {
    const hn_span *host = NULL;
    int found = 0;
    for (int i = 0; i < count; i++)
        if (spans[i].info.kind == HN_DEVICE_HOST) host = &spans[i];
    for (int i = 0; i < count; i++) {
        hn_finding best = {.weight = 0}, now;
        view v;
        if (spans[i].info.kind == HN_DEVICE_HOST || spans[i].samples < 2) continue;
        look(&spans[i], host, &v);
        bool idle = is_idle(&v); // then nothing bound it
        for (int what = 0; what < HN_DIAGNOSIS_COUNT && !idle; what++)
            if (hn_diagnosis_rows[what].bound && judge(&v, i, what, &now) && now.weight > best.weight) best = now;
        if (best.weight > 0 && found < max) out_findings[found++] = best;
        for (int what = 0; what < HN_DIAGNOSIS_COUNT; what++)
            if (!hn_diagnosis_rows[what].bound && judge(&v, i, what, &now) && found < max)
                out_findings[found++] = now;
    }
    return found;
}
