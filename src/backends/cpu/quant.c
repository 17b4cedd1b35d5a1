// SPDX-License-Identifier: Apache-2.0
// QuantizeLinear and DequantizeLinear between float32 and 8 bits, one constant scale and zero point.
// The layout passes through. Other forms (per axis, blocked, other types) are the reference's. And tables
// of 256 entries, which read and write 8 bits (hn.Lookup).
// DynamicQuantizeLinear: the same behind a search for the range.
#include "backends/cpu/cpu_int.h"
#include "kernels/cpu/quant.h"
#include <math.h>

#define QUANT_GRAIN 16384

typedef struct quant_kernel {
    hn_kernel base;
    const hn_k_quant *k;
    int64_t count;
    float scale;
    int32_t zero;
    bool quantise, is_signed;
    int threads;
} quant_kernel;

typedef struct quant_job {
    const quant_kernel *k;
    const char *x;
    char *y;
} quant_job;

static void quant_range(void *arg, int64_t begin, int64_t end) {
    const quant_job *job = arg;
    const quant_kernel *k = job->k;
    if (k->quantise)
        k->k->quantise((const float *)job->x + begin, job->y + begin, end - begin, k->scale, k->zero,
                       k->is_signed);
    else
        k->k->dequantise(job->x + begin, (float *)job->y + begin, end - begin, k->scale, k->zero,
                         k->is_signed);
}

static hone_status quant_run(hone_error *err, hn_kernel *kernel, const hn_args *args) {
    (void)err;
    quant_kernel *k = (quant_kernel *)kernel;
    quant_job job = {k, args->inputs[0], args->outputs[0]};
    if (k->threads <= 1 || k->count < 2 * QUANT_GRAIN) quant_range(&job, 0, k->count);
    else hn_parallel_for(k->count, QUANT_GRAIN, quant_range, &job);
    return HONE_OK;
}
static const hn_kernel_ops k_quant_ops = {sizeof(hn_kernel_ops), NULL, quant_run,
                                          cpu_kernel_destroy};

hone_status own_quant_select(hone_error *err, cpu_state *cpu, const hn_select *what,
                             hn_kernel **out_kernel) {
    const hn_node *node = what->node;
    cpu_value x, y, scale, zero = {0};
    bool quantise = node->op == cpu->op.QuantizeLinear;
    if (node->post_count || !cpu_in(node, 0, &x) || !cpu_in(node, 1, &scale) || !cpu_out(node, 0, &y) ||
        !scale.data || scale.count != 1 || scale.dtype != HN_F32)
        return HONE_ERR_UNSUPPORTED;
    bool has_zero = node->input_count > 2 && node->inputs[2];
    if (has_zero && (!cpu_in(node, 2, &zero) || !zero.data || zero.count != 1)) return HONE_ERR_UNSUPPORTED;
    hn_dtype real = quantise ? x.dtype : y.dtype, small = quantise ? y.dtype : x.dtype;
    if (real != HN_F32 || (small != HN_U8 && small != HN_I8)) return HONE_ERR_UNSUPPORTED;
    quant_kernel *k = cpu_kernel_new(sizeof *k, &k_quant_ops);
    if (!k) HN_NOMEM(err, "selecting a kernel");
    k->k = cpu->quant;
    k->count = x.count;
    k->scale = *(const float *)scale.data;
    k->zero = has_zero ? (int32_t)hn_tensor_get_i64(zero.value->constant, 0) : 0;
    k->quantise = quantise;
    k->is_signed = small == HN_I8;
    k->threads = what->threads > 0 ? what->threads : hn_parallel_threads();
    k->base.in_layout[0] = k->base.out_layout[0] = cpu_hint(what, 0);
    *out_kernel = &k->base;
    return HONE_OK;
}

// ---- tables -------------------------------------------------------------------------------------
#define LOOKUP_GRAIN 65536

typedef struct lookup_kernel {
    hn_kernel base;
    void (*lookup)(const uint8_t *x, const uint8_t *table, uint8_t *out, int64_t n);
    int64_t count;
    int threads;
} lookup_kernel;

typedef struct lookup_job {
    const lookup_kernel *k;
    const uint8_t *x, *table;
    uint8_t *y;
} lookup_job;

static void lookup_range(void *arg, int64_t begin, int64_t end) {
    const lookup_job *job = arg;
    job->k->lookup(job->x + begin, job->table, job->y + begin, end - begin);
}

static hone_status lookup_run(hone_error *err, hn_kernel *kernel, const hn_args *args) {
    (void)err;
    lookup_kernel *k = (lookup_kernel *)kernel;
    lookup_job job = {k, args->inputs[0], args->inputs[1], args->outputs[0]};
    if (k->threads <= 1 || k->count < 2 * LOOKUP_GRAIN) lookup_range(&job, 0, k->count);
    else hn_parallel_for(k->count, LOOKUP_GRAIN, lookup_range, &job);
    return HONE_OK;
}
static const hn_kernel_ops k_lookup_ops = {sizeof(hn_kernel_ops), NULL, lookup_run, cpu_kernel_destroy};

hone_status own_lookup_select(hone_error *err, cpu_state *cpu, const hn_select *what, hn_kernel **out_kernel) {
    cpu_value x, table;
    if (what->node->post_count || !cpu_in(what->node, 0, &x) || !cpu_in(what->node, 1, &table) || table.count != 256)
        return HONE_ERR_UNSUPPORTED;
    lookup_kernel *k = cpu_kernel_new(sizeof *k, &k_lookup_ops);
    if (!k) HN_NOMEM(err, "selecting a kernel");
    // Byte permutations came with VNNI or one generation after it.
    bool vbmi = cpu->isa >= HN_ISA_VNNI && hn_cpu_get()->avx512_vbmi;
    k->lookup = vbmi ? hn_k_lookup_vbmi : cpu->quant->lookup;
    k->count = x.count;
    k->threads = what->threads > 0 ? what->threads : hn_parallel_threads();
    k->base.in_layout[0] = k->base.out_layout[0] = cpu_hint(what, 0);
    k->base.inplace_input[0] = 0;
    *out_kernel = &k->base;
    return HONE_OK;
}

// ---- DynamicQuantizeLinear ----------------------------------------------------------------------
#define RANGE_PARTS 64

typedef struct dynamic_kernel {
    quant_kernel quant; // scale and zero point are those of the run
    const hn_k_rows *rows;
} dynamic_kernel;

typedef struct range_job {
    const dynamic_kernel *k;
    const float *x;
    int64_t parts;
    float low[RANGE_PARTS], high[RANGE_PARTS];
} range_job;

static void range_parts(void *arg, int64_t begin, int64_t end) {
    range_job *job = arg;
    int64_t count = job->k->quant.count;
    for (int64_t part = begin; part < end; part++) {
        int64_t from = count * part / job->parts, n = count * (part + 1) / job->parts - from;
        const float *x = job->x + from;
        float low = n ? job->k->rows->reduce_row[HN_K_REDUCE_MIN](x, n) : 0;
        float high = n ? job->k->rows->reduce_row[HN_K_REDUCE_MAX](x, n) : 0;
        if (isnan(low) || isnan(high)) { // a NaN has no place in the range
            low = high = 0;
            for (int64_t i = 0; i < n; i++) {
                low = x[i] < low ? x[i] : low;
                high = x[i] > high ? x[i] : high;
            }
        }
        job->low[part] = low < 0 ? low : 0;
        job->high[part] = high > 0 ? high : 0;
    }
}

static hone_status dynamic_run(hone_error *err, hn_kernel *kernel, const hn_args *args) {
    (void)err;
    dynamic_kernel *k = (dynamic_kernel *)kernel;
    range_job job = {.k = k, .x = args->inputs[0], .parts = 1};
    bool wide = k->quant.threads > 1 && k->quant.count >= 2 * QUANT_GRAIN;
    if (wide) job.parts = hn_min_i64(k->quant.threads, RANGE_PARTS);
    if (wide) hn_parallel_for(job.parts, 1, range_parts, &job);
    else range_parts(&job, 0, 1);
    float low = 0, high = 0;
    for (int64_t i = 0; i < job.parts; i++) {
        low = job.low[i] < low ? job.low[i] : low;
        high = job.high[i] > high ? job.high[i] : high;
    }
    float scale = (high - low) / 255.0f, zero = 0;
    if (scale == 0) scale = 1; // all zeros
    else zero = fminf(fmaxf(nearbyintf(-low / scale), 0), 255);
    if (args->outputs[1]) *(float *)args->outputs[1] = scale;
    if (args->outputs[2]) *(uint8_t *)args->outputs[2] = (uint8_t)zero;
    k->quant.scale = scale;
    k->quant.zero = (int32_t)zero;
    quant_job quant = {&k->quant, args->inputs[0], args->outputs[0]};
    if (wide) hn_parallel_for(k->quant.count, QUANT_GRAIN, quant_range, &quant);
    else quant_range(&quant, 0, k->quant.count);
    return HONE_OK;
}
static const hn_kernel_ops k_dynamic_ops = {sizeof(hn_kernel_ops), NULL, dynamic_run,
                                            cpu_kernel_destroy};

hone_status own_dynamic_quant_select(hone_error *err, cpu_state *cpu, const hn_select *what,
                                     hn_kernel **out_kernel) {
    cpu_value x, y;
    if (what->node->post_count || !cpu_in(what->node, 0, &x) || !cpu_out(what->node, 0, &y) ||
        x.dtype != HN_F32)
        return HONE_ERR_UNSUPPORTED;
    dynamic_kernel *k = cpu_kernel_new(sizeof *k, &k_dynamic_ops);
    if (!k) HN_NOMEM(err, "selecting a kernel");
    k->rows = cpu->rows;
    k->quant.k = cpu->quant;
    k->quant.count = x.count;
    k->quant.quantise = true;
    k->quant.threads = what->threads > 0 ? what->threads : hn_parallel_threads();
    k->quant.base.in_layout[0] = k->quant.base.out_layout[0] = cpu_hint(what, 0);
    *out_kernel = &k->quant.base;
    return HONE_OK;
}
