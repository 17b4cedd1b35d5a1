// SPDX-License-Identifier: Apache-2.0
// What the page shows beyond verdicts: the process's memory over the run, the result's heaviest steps and
// what this machine could do at best.
#include "backends/cpu/ceilings.h"
#include "optimize/optimize_int.h"
#include "probe/cpu.h"
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#define MEMORY_POINTS 4000
#define PROFILE_RUNS  20

void hn_optimizer_note_memory(const hn_optimizer *o) {
    char text[128], *rest;
    char *data;
    size_t bytes;
    if (o->result->memory.count >= MEMORY_POINTS) return;
    if (hn_file_read(NULL, "/proc/self/statm", sizeof text, &data, &bytes) != HONE_OK) return;
    snprintf(text, sizeof text, "%.*s", (int)bytes, data);
    hn_free(data);
    strtoll(text, &rest, 10);
    hn_memory_point point = {(double)(hn_clock_ns() - o->start_ns) * 1e-9,
                             (double)strtoll(rest, NULL, 10) * (double)sysconf(_SC_PAGESIZE)};
    // Many calls a second say the same.
    size_t n = o->result->memory.count;
    if (n && point.seconds - o->result->memory.data[n - 1].seconds < 0.02) return;
    (void)!hn_vec_push(&o->result->memory, point);
}

static int by_time(const void *a, const void *b) {
    double x = ((const hn_step_info *)a)->total_ns, y = ((const hn_step_info *)b)->total_ns;
    return x < y ? 1 : x > y ? -1 : 0;
}

static void keep_steps(hn_optimize_result *r, hn_step_info *steps, int count) {
    qsort(steps, (size_t)count, sizeof *steps, by_time);
    for (int i = 0; i < count; i++) {
        const hn_step_info *s = &steps[i];
        if (!s->runs) continue;
        double ns = s->total_ns / (double)s->runs;
        r->steps_ns += ns;
        if (r->step_count == HN_HEAVY_STEPS) continue;
        hn_heavy_step *h = &r->steps[r->step_count++];
        *h = (hn_heavy_step){.ns = ns, .flops = s->cost.flops,
                             .bytes = s->cost.read_bytes + s->cost.write_bytes};
        snprintf(h->name, sizeof h->name, "%s", s->name ? s->name : "");
        snprintf(h->op, sizeof h->op, "%s", s->op_type);
        snprintf(h->kernel, sizeof h->kernel, "%s", s->variant ? s->variant : "");
    }
}

static void measure_ceilings(hn_optimize_result *r) {
    hn_ceiling rows[8];
    hn_memory_bandwidth bandwidth;
    int count = 0;
    r->peak_flops = r->peak_bytes = NAN;
    if (hn_cpu_ceilings(NULL, NULL, rows, (int)HN_COUNT_OF(rows), &count) == HONE_OK)
        for (int i = 0; i < count; i++) // in GFLOP/s or GOP/s; float32 is the first row
            if (i == 0) r->peak_flops = rows[i].measured * (strstr(rows[i].unit, "T") ? 1e12 : 1e9);
    if (hn_cpu_measure_bandwidth(NULL, &bandwidth) == HONE_OK) r->peak_bytes = bandwidth.read_bytes_s;
}

hn_status hn_optimizer_steps(hone_error *err, hn_optimizer *o) {
    const hn_gate *gate = &o->gate;
    hn_tensor in[HN_MAX_KERNEL_IO], out[HN_MAX_KERNEL_IO];
    hn_session *session = NULL;
    hn_session_options options = {.backend = o->backend, .profile = true};
    hone_status status = hn_session_new(err, o->current, &options, &session);
    if (status == HONE_OK)
        status = hn_gate_inputs(err, gate, hn_gate_sample(gate, HN_SPLIT_GATE, 0), in);
    for (int i = 0; i < PROFILE_RUNS + 2 && status == HONE_OK; i++) {
        if (i == 2) hn_session_reset_profile(session);
        status = hn_session_run(err, session, in, gate->input_count, out, gate->output_count);
    }
    int count = status == HONE_OK ? hn_session_steps(session, NULL, 0) : 0;
    hn_step_info *steps = hn_calloc((size_t)count + 1, sizeof *steps);
    if (steps && count) {
        hn_session_steps(session, steps, count);
        keep_steps(o->result, steps, count);
    }
    hn_free(steps);
    hn_session_free(session);
    if (status == HONE_OK) measure_ceilings(o->result);
    return status;
}
