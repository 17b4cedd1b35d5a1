// SPDX-License-Identifier: Apache-2.0
// GroupNormalization on float32 in both layouts.
//
// Plain: a group is one run; its moments, then one multiply-add a channel, while the run is in a cache.
// Channels-last: sums of all channels side by side, put together by group, then one multiply-add an
// element over the pixels.
#include "backends/cpu/cpu_int.h"

#define GRAIN 16384

typedef struct group_kernel {
    hn_kernel base;
    const hn_k_rows *rows;
    hn_k_unary_fn linear;
    int64_t images, channels, groups, size; // size: elements of a channel
    bool last;      // channels last
    bool by_group;  // a scale and an offset a group (before opset 21)
    int threads;
    float epsilon, slope; // slope of a fused leaky activation, 1: none
    cpu_posts posts;
} group_kernel;

typedef struct group_job {
    const group_kernel *k;
    const float *x, *scale, *bias;
    float *out;
    float *mean, *factor; // channels-last: by channel of one image
} group_job;

static int64_t parameter(const group_kernel *k, int64_t channel) {
    return k->by_group ? channel / (k->channels / k->groups) : channel;
}

// Plain: groups of all images.
static void group_runs(void *arg, int64_t begin, int64_t end) {
    const group_job *job = arg;
    const group_kernel *k = job->k;
    int64_t each = k->channels / k->groups, run = each * k->size;
    for (int64_t i = begin; i < end; i++) {
        const float *x = job->x + i * run;
        float *out = job->out + i * run, mean, variance;
        k->rows->moments_row(x, run, &mean, &variance);
        float inverse = 1.f / __builtin_sqrtf(variance + k->epsilon);
        for (int64_t c = 0; c < each; c++) {
            int64_t p = parameter(k, i % k->groups * each + c);
            float factor = inverse * job->scale[p];
            k->linear(x + c * k->size, out + c * k->size, k->size, factor, job->bias[p] - mean * factor);
        }
    }
}

static void channel_sums(void *arg, int64_t begin, int64_t end) {
    const group_job *job = arg;
    const group_kernel *k = job->k;
    k->rows->reduce_columns[HN_K_REDUCE_SUM](job->x + begin, k->size, k->channels, end - begin, job->mean + begin);
}
static void channel_deviations(void *arg, int64_t begin, int64_t end) {
    const group_job *job = arg;
    const group_kernel *k = job->k;
    k->rows->deviation_columns(job->x + begin, k->size, k->channels, end - begin, job->mean + begin,
                               job->factor + begin);
}
static void pixels(void *arg, int64_t begin, int64_t end) {
    const group_job *job = arg;
    const group_kernel *k = job->k;
    k->rows->scale_shift_columns(job->x + begin * k->channels, job->factor, job->mean,
                                 job->out + begin * k->channels, end - begin, k->channels, k->slope);
}

// Every channel gets the sum of its group over the elements of the group.
static void share(const group_kernel *k, float *sums) {
    int64_t each = k->channels / k->groups;
    for (int64_t g = 0; g < k->groups; g++) {
        double total = 0;
        for (int64_t c = g * each; c < (g + 1) * each; c++)
            total += (double)sums[c];
        for (int64_t c = g * each; c < (g + 1) * each; c++)
            sums[c] = (float)(total / (double)(each * k->size));
    }
}

static void image(group_job *job) {
    const group_kernel *k = job->k;
    // Fewer channels than a vector are one job: the columns share cache lines.
    int64_t grain = hn_max_i64(16, GRAIN / k->size);
    hn_parallel_for(k->channels, grain, channel_sums, job);
    share(k, job->mean);
    hn_parallel_for(k->channels, grain, channel_deviations, job);
    share(k, job->factor);
    for (int64_t c = 0; c < k->channels; c++) { // to factor and offset
        int64_t p = parameter(k, c);
        job->factor[c] = job->scale[p] / __builtin_sqrtf(job->factor[c] + k->epsilon);
        job->mean[c] = job->bias[p] - job->mean[c] * job->factor[c];
    }
    hn_parallel_for(k->size, hn_max_i64(1, GRAIN / k->channels), pixels, job);
}

static hone_status group_run(hone_error *err, hn_kernel *kernel, const hn_args *args) {
    (void)err;
    const group_kernel *k = (const group_kernel *)kernel;
    group_job job = {k, args->inputs[0], args->inputs[1], args->inputs[2], args->outputs[0], args->workspace, NULL};
    if (!k->last) {
        int64_t run = k->channels / k->groups * k->size;
        hn_parallel_for(k->images * k->groups, hn_max_i64(1, GRAIN / run), group_runs, &job);
    } else {
        job.factor = job.mean + k->channels;
        for (int64_t n = 0; n < k->images; n++) {
            image(&job);
            job.x += k->size * k->channels;
            job.out += k->size * k->channels;
        }
    }
    if (k->posts.count) cpu_posts_run(&k->posts, args, args->outputs[0]);
    return HONE_OK;
}
static const hn_kernel_ops k_group_ops = {sizeof(hn_kernel_ops), NULL, group_run, cpu_kernel_destroy};

hone_status own_group_norm_select(hone_error *err, cpu_state *cpu, const hn_select *what, hn_kernel **out_kernel) {
    const hn_node *node = what->node;
    cpu_value x, y, s, b;
    if (!cpu_in(node, 0, &x) || !cpu_in(node, 1, &s) || !cpu_in(node, 2, &b) || !cpu_out(node, 0, &y) ||
        x.dtype != HN_F32 || s.dtype != HN_F32 || b.dtype != HN_F32 || x.shape.rank < 2 || x.count == 0)
        return HONE_ERR_UNSUPPORTED;
    group_kernel *k = cpu_kernel_new(sizeof *k, &k_group_ops);
    if (!k) HN_NOMEM(err, "selecting a kernel");
    k->rows = cpu->rows;
    k->linear = cpu->ew->unary[HN_K_UNARY_linear];
    k->images = x.shape.dims[0];
    k->channels = x.shape.dims[1];
    k->groups = hn_op_int(node, "num_groups");
    k->size = x.count / (k->images * k->channels);
    k->by_group = node->version < 21;
    k->epsilon = hn_op_float(node, "epsilon");
    k->slope = 1;
    hn_layout layout = cpu_hint(what, 0);
    k->last = layout == HN_LAYOUT_CHANNELS_LAST && x.shape.rank >= 3;
    k->base.in_layout[0] = k->base.out_layout[0] = layout;
    k->base.inplace_input[0] = 0;
    int first = 0;
    if (k->last) {
        k->base.workspace_bytes = (size_t)k->channels * 2 * sizeof(float);
        first = cpu_slope_post(cpu, node, &k->slope);
    }
    if (!cpu_posts_init(cpu, what, first, &y.shape, layout, &k->base, &k->posts)) {
        hn_free(k);
        return HONE_ERR_UNSUPPORTED;
    }
    *out_kernel = &k->base;
    return HONE_OK;
}
