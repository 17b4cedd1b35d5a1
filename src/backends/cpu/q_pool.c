// SPDX-License-Identifier: Apache-2.0
// hn.QAveragePool in channels-last order: sums of bytes as integers, one multiplication, rounding.
//
// The sum is exact, so a result may lie on the other side of a tie than that of the float32 operators.
#include "backends/cpu/window.h"

#define CHANNELS 512 // worked on at a time: 4 KiB of sums and numbers
#define GRAIN 32768  // bytes that a thread should read at least

typedef struct q_pool {
    hn_kernel base;
    const hn_k_quant *quant;
    window win; // three dims
    int64_t images, channels;
    float in_scale, out_scale;
    int32_t in_zero, out_zero;
    bool in_signed, out_signed, count_pads;
    int64_t grain; // points
    int threads;
} q_pool;

typedef struct q_pool_job {
    const q_pool *k;
    const uint8_t *x;
    uint8_t *y;
} q_pool_job;

// What of the window at `at` lies inside in dim d: first position and how many.
static int64_t inside(const window *w, int d, int64_t at, int64_t *first) {
    int64_t begin = at * w->stride[d] - w->pad_begin[d], end = hn_min_i64(begin + w->kernel[d], w->in[d]);
    *first = hn_max_i64(begin, 0);
    return hn_max_i64(end - *first, 0);
}

// By how many elements a window's sum is divided: pads count where asked, what lies beyond them never.
static int64_t divisor(const q_pool *k, const int64_t *at, int64_t taps) {
    const window *w = &k->win;
    if (!k->count_pads) return hn_max_i64(taps, 1);
    int64_t n = 1;
    for (int d = 0; d < WINDOW_MAX; d++) {
        int64_t begin = at[d] * w->stride[d] - w->pad_begin[d];
        n *= hn_min_i64(begin + w->kernel[d], w->in[d] + w->pad_end[d]) - begin;
    }
    return n;
}

static void point(const q_pool_job *job, int64_t image, const int64_t *at, uint8_t *to) {
    const q_pool *k = job->k;
    const window *w = &k->win;
    int64_t first[WINDOW_MAX], n[WINDOW_MAX];
    for (int d = 0; d < WINDOW_MAX; d++)
        n[d] = inside(w, d, at[d], &first[d]);
    int64_t taps = n[0] * n[1] * n[2];
    float factor = k->in_scale / (float)divisor(k, at, taps);
    for (int64_t c = 0; c < k->channels; c += CHANNELS) {
        int64_t width = hn_min_i64(CHANNELS, k->channels - c);
        int32_t sums[CHANNELS] = {0};
        float real[CHANNELS];
        for (int64_t z = first[0]; z < first[0] + n[0]; z++)
            for (int64_t y = first[1]; y < first[1] + n[1]; y++) {
                int64_t line = ((image * w->in[0] + z) * w->in[1] + y) * w->in[2] + first[2];
                k->quant->sum_rows(job->x + line * k->channels + c, n[2], k->channels, width, sums, k->in_signed);
            }
        for (int64_t i = 0; i < width; i++)
            real[i] = (float)(sums[i] - (int32_t)taps * k->in_zero) * factor;
        k->quant->quantise(real, to + c, width, k->out_scale, k->out_zero, k->out_signed);
    }
}

static void points(void *arg, int64_t begin, int64_t end) {
    const q_pool_job *job = arg;
    const window *w = &job->k->win;
    for (int64_t i = begin; i < end; i++) {
        int64_t at[WINDOW_MAX] = {i / (w->out[1] * w->out[2]) % w->out[0], i / w->out[2] % w->out[1], i % w->out[2]};
        point(job, i / (w->out[0] * w->out[1] * w->out[2]), at, job->y + i * job->k->channels);
    }
}

static hone_status q_pool_run(hone_error *err, hn_kernel *kernel, const hn_args *args) {
    (void)err;
    const q_pool *k = (const q_pool *)kernel;
    q_pool_job job = {k, args->inputs[0], args->outputs[0]};
    int64_t count = k->images * k->win.out[0] * k->win.out[1] * k->win.out[2];
    if (k->threads <= 1) points(&job, 0, count);
    else hn_parallel_for(count, k->grain, points, &job);
    return HONE_OK;
}
static const hn_kernel_ops k_q_pool_ops = {sizeof(hn_kernel_ops), NULL, q_pool_run, cpu_kernel_destroy};

static bool number(const hn_node *node, int index, double *out) {
    cpu_value v;
    if (!cpu_in(node, index, &v) || !v.data || v.count != 1) return false;
    *out = hn_tensor_get_f64(v.value->constant, 0);
    return true;
}

hone_status own_q_average_pool_select(hone_error *err, cpu_state *cpu, const hn_select *what, hn_kernel **out_kernel) {
    const hn_node *node = what->node;
    cpu_value x, y;
    window w;
    double p[4];
    if (node->post_count || !cpu_in(node, 0, &x) || !cpu_out(node, 0, &y) || x.count == 0 || y.count == 0 ||
        !window_of(node, &x.shape, &y.shape, NULL, &w))
        return HONE_ERR_UNSUPPORTED;
    for (int i = 0; i < 4; i++)
        if (!number(node, i + 1, &p[i])) return HONE_ERR_UNSUPPORTED;
    for (int d = 0; d < w.rank; d++)
        if (w.dilation[d] != 1) return HONE_ERR_UNSUPPORTED;
    // Pads that count are those that the node names; ceil_mode may ask for more of them.
    int64_t have = 0;
    const int64_t *pads = hn_node_ints(node, "pads", &have);
    if (hn_slice_eq(hn_op_string(node, "auto_pad"), "NOTSET"))
        for (int d = 0; d < w.rank; d++)
            w.pad_end[d] = pads && have == 2 * w.rank ? pads[w.rank + d] : 0;
    window_fill(&w);
    double taps = (double)w.kernel[0] * (double)w.kernel[1] * (double)w.kernel[2];
    if (taps > 1 << 22) return HONE_ERR_UNSUPPORTED; // sums are 32-bit
    q_pool *k = cpu_kernel_new(sizeof *k, &k_q_pool_ops);
    if (!k) HN_NOMEM(err, "selecting a kernel");
    k->quant = cpu->quant;
    k->win = w;
    k->images = x.shape.dims[0];
    k->channels = x.shape.dims[1];
    k->in_scale = (float)p[0];
    k->in_zero = (int32_t)p[1];
    k->out_scale = (float)p[2];
    k->out_zero = (int32_t)p[3];
    k->in_signed = x.dtype == HN_I8;
    k->out_signed = y.dtype == HN_I8;
    k->count_pads = hn_op_int(node, "count_include_pad") != 0;
    k->threads = what->threads > 0 ? what->threads : hn_parallel_threads();
    k->grain = hn_max_i64(1, (int64_t)(GRAIN / (taps * (double)k->channels)));
    k->base.in_layout[0] = cpu_same_bytes(&x.shape) ? cpu_hint(what, 0) : HN_LAYOUT_CHANNELS_LAST;
    k->base.out_layout[0] = cpu_same_bytes(&y.shape) ? HN_LAYOUT_PLAIN : HN_LAYOUT_CHANNELS_LAST;
    *out_kernel = &k->base;
    return HONE_OK;
}
