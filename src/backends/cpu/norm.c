// SPDX-License-Identifier: Apache-2.0
// Reductions, softmax and normalisations on float32.
//
// Every one of them is brought to the form [outer][count][inner] in memory order, with the reduction
// over count: rows when inner is 1, columns otherwise.
#include "backends/cpu/cpu_int.h"
#include "kernels/cpu/rows.h"

// Elements a thread should have at least: sums are bound by the cache, softmax by exp.
#define GRAIN_SUM 16384
#define GRAIN_EXP 4096

typedef struct band {
    int64_t outer, count, inner;
} band;

bool cpu_band(const hn_shape *shape, hn_layout layout, const bool *reduced, int64_t out_band[3]) {
    int order[HN_MAX_RANK], state = 0;
    cpu_physical(shape->rank, layout, order);
    int64_t sizes[3] = {1, 1, 1};
    for (int i = 0; i < shape->rank; i++) {
        int64_t dim = shape->dims[order[i]];
        if (dim == 1) continue;
        if (reduced[order[i]]) {
            if (state == 2) return false;
            state = 1;
        } else if (state == 1) {
            state = 2;
        }
        sizes[state] *= dim;
    }
    memcpy(out_band, sizes, sizeof sizes);
    return true;
}

static bool band_of(const hn_shape *shape, hn_layout layout, const bool *reduced, band *out) {
    int64_t sizes[3];
    if (!cpu_band(shape, layout, reduced, sizes)) return false;
    *out = (band){sizes[0], sizes[1], sizes[2]};
    return true;
}

typedef struct band_kernel {
    hn_kernel base;
    const hn_k_rows *rows;
    band b;
    int threads;
    int64_t grain;             // elements
    hn_k_reduce reduce;
    float factor;              // after a reduction
    int finish;                // 0: nothing, 1: square root, 2: logarithm
    bool logarithm;            // softmax
    float epsilon;
    int scale, bias;           // node inputs, -1: absent
    cpu_posts posts;
} band_kernel;

typedef struct band_job {
    const band_kernel *k;
    const float *x, *scale, *bias;
    float *out;
} band_job;

static void band_for(const band_kernel *k, int64_t total, int64_t item, hn_range_fn fn,
                     band_job *job) {
    if (k->threads <= 1 || total * item < 2 * k->grain) fn(job, 0, total);
    else hn_parallel_for(total, hn_max_i64(1, k->grain / hn_max_i64(item, 1)), fn, job);
}

static hn_status band_new(hone_error *err, cpu_state *cpu, const hn_select *what,
                          const hn_kernel_ops *ops, const band *b, band_kernel **out) {
    band_kernel *k = cpu_kernel_new(sizeof *k, ops);
    if (!k) HN_NOMEM(err, "selecting a kernel");
    k->rows = cpu->rows;
    k->b = *b;
    k->threads = what->threads > 0 ? what->threads : hn_parallel_threads();
    k->grain = GRAIN_SUM;
    k->factor = 1;
    k->scale = k->bias = -1;
    *out = k;
    return HONE_OK;
}

// Adds the posts and hands the kernel over.
static hn_status band_done(cpu_state *cpu, const hn_select *what, band_kernel *k, const hn_shape *out,
                           hn_layout layout, hn_kernel **out_kernel) {
    k->base.out_layout[0] = layout;
    if (!cpu_posts_init(cpu, what, 0, out, layout, &k->base, &k->posts)) {
        hn_free(k);
        return HONE_ERR_UNSUPPORTED;
    }
    *out_kernel = &k->base;
    return HONE_OK;
}

static hone_status band_end(const band_kernel *k, const hn_args *args) {
    if (k->posts.count) cpu_posts_run(&k->posts, args, args->outputs[0]);
    return HONE_OK;
}

// ---- reductions ---------------------------------------------------------------------------------
static void finish(const band_kernel *k, float *out, int64_t n) {
    if (k->factor == 1 && !k->finish) return;
    for (int64_t i = 0; i < n; i++) {
        float v = out[i] * k->factor;
        out[i] = k->finish == 1 ? __builtin_sqrtf(v) : k->finish == 2 ? __builtin_logf(v) : v;
    }
}
static void reduce_rows(void *arg, int64_t begin, int64_t end) {
    const band_job *job = arg;
    const band_kernel *k = job->k;
    for (int64_t i = begin; i < end; i++)
        job->out[i] = k->rows->reduce_row[k->reduce](job->x + i * k->b.count, k->b.count);
    finish(k, job->out + begin, end - begin);
}
static void reduce_outer(void *arg, int64_t begin, int64_t end) {
    const band_job *job = arg;
    const band_kernel *k = job->k;
    int64_t inner = k->b.inner;
    for (int64_t i = begin; i < end; i++) {
        k->rows->reduce_columns[k->reduce](job->x + i * k->b.count * inner, k->b.count, inner, inner,
                                           job->out + i * inner);
        finish(k, job->out + i * inner, inner);
    }
}
static void reduce_inner(void *arg, int64_t begin, int64_t end) {
    const band_job *job = arg;
    const band_kernel *k = job->k;
    k->rows->reduce_columns[k->reduce](job->x + begin, k->b.count, k->b.inner, end - begin,
                                       job->out + begin);
    finish(k, job->out + begin, end - begin);
}

static hone_status reduce_run(hone_error *err, hn_kernel *kernel, const hn_args *args) {
    (void)err;
    band_kernel *k = (band_kernel *)kernel;
    band_job job = {k, args->inputs[0], NULL, NULL, args->outputs[0]};
    if (k->b.inner == 1) band_for(k, k->b.outer, k->b.count, reduce_rows, &job);
    else if (k->b.outer > 1) band_for(k, k->b.outer, k->b.count * k->b.inner, reduce_outer, &job);
    else band_for(k, k->b.inner, k->b.count, reduce_inner, &job);
    return band_end(k, args);
}
static const hn_kernel_ops k_reduce_ops = {sizeof(hn_kernel_ops), NULL, reduce_run,
                                           cpu_kernel_destroy};

// Axes from the second input or the attribute; all where none are given. False: not known now.
bool cpu_reduce_axes(const hn_node *node, int rank, bool *reduced) {
    int64_t axes[HN_MAX_RANK], have = 0;
    int count = 0;
    const int64_t *attr = hn_node_ints(node, "axes", &have);
    if (cpu_base_inputs(node) > 1 && node->inputs[1]) {
        count = cpu_const_ints(node, 1, axes, HN_MAX_RANK);
        if (count < 0) return false;
    } else if (attr) {
        for (; count < have && count < HN_MAX_RANK; count++)
            axes[count] = attr[count];
    }
    if (count == 0 && hn_node_int(node, "noop_with_empty_axes", 0)) return false;
    for (int i = 0; i < rank; i++)
        reduced[i] = count == 0;
    for (int i = 0; i < count; i++) {
        int axis;
        if (!hn_axis_normalise(axes[i], rank, &axis)) return false;
        reduced[axis] = true;
    }
    return true;
}

static const struct {
    const char *op;
    hn_k_reduce reduce;
    bool mean;
    int finish;
} k_reductions[] = {
    {"ReduceSum", HN_K_REDUCE_SUM, false, 0},
    {"ReduceMean", HN_K_REDUCE_SUM, true, 0},
    {"ReduceMax", HN_K_REDUCE_MAX, false, 0},
    {"ReduceMin", HN_K_REDUCE_MIN, false, 0},
    {"ReduceSumSquare", HN_K_REDUCE_SUM_SQUARE, false, 0},
    {"ReduceL1", HN_K_REDUCE_SUM_ABS, false, 0},
    {"ReduceL2", HN_K_REDUCE_SUM_SQUARE, false, 1},
    {"ReduceLogSum", HN_K_REDUCE_SUM, false, 2},
    {"GlobalAveragePool", HN_K_REDUCE_SUM, true, 0},
    {"GlobalMaxPool", HN_K_REDUCE_MAX, false, 0},
};

hone_status own_reduce_select(hone_error *err, cpu_state *cpu, const hn_select *what,
                              hn_kernel **out_kernel) {
    const hn_node *node = what->node;
    cpu_value x, y;
    bool reduced[HN_MAX_RANK] = {false};
    if (!cpu_in(node, 0, &x) || !cpu_out(node, 0, &y) || x.dtype != HN_F32 || x.count == 0)
        return HONE_ERR_UNSUPPORTED;
    bool global = !strncmp(node->op_type, "Global", 6);
    if (global) {
        for (int i = 2; i < x.shape.rank; i++)
            reduced[i] = true;
    } else if (!cpu_reduce_axes(node, x.shape.rank, reduced)) {
        return HONE_ERR_UNSUPPORTED;
    }
    // The kept dims stay in their order only in the plain layout, or where the channels are reduced
    // or all of the rest is.
    hn_layout layout = cpu_hint(what, 0);
    if (layout == HN_LAYOUT_CHANNELS_LAST && !cpu_same_bytes(&x.shape) && !reduced[1])
        for (int i = 2; i < x.shape.rank; i++)
            if (!reduced[i] && x.shape.dims[i] > 1) layout = HN_LAYOUT_PLAIN;
    band b;
    if (!band_of(&x.shape, layout, reduced, &b)) return HONE_ERR_UNSUPPORTED;
    band_kernel *k = NULL;
    HN_TRY(band_new(err, cpu, what, &k_reduce_ops, &b, &k));
    for (size_t i = 0; i < HN_COUNT_OF(k_reductions); i++) {
        if (strcmp(k_reductions[i].op, node->op_type)) continue;
        k->reduce = k_reductions[i].reduce;
        k->finish = k_reductions[i].finish;
        if (k_reductions[i].mean) k->factor = 1.f / (float)b.count;
    }
    k->base.in_layout[0] = layout;
    return band_done(cpu, what, k, &y.shape, HN_LAYOUT_PLAIN, out_kernel);
}

// ---- softmax ------------------------------------------------------------------------------------
static void softmax_rows(void *arg, int64_t begin, int64_t end) {
    const band_job *job = arg;
    const band_kernel *k = job->k;
    for (int64_t i = begin; i < end; i++)
        k->rows->softmax_row(job->x + i * k->b.count, job->out + i * k->b.count, k->b.count,
                             k->logarithm);
}
static void softmax_outer(void *arg, int64_t begin, int64_t end) {
    const band_job *job = arg;
    const band_kernel *k = job->k;
    int64_t inner = k->b.inner, step = k->b.count * inner;
    for (int64_t i = begin; i < end; i++)
        k->rows->softmax_columns(job->x + i * step, job->out + i * step, k->b.count, inner, inner,
                                 k->logarithm);
}
static hone_status softmax_run(hone_error *err, hn_kernel *kernel, const hn_args *args) {
    (void)err;
    band_kernel *k = (band_kernel *)kernel;
    band_job job = {k, args->inputs[0], NULL, NULL, args->outputs[0]};
    band_for(k, k->b.outer, k->b.count * k->b.inner, k->b.inner == 1 ? softmax_rows : softmax_outer,
             &job);
    return band_end(k, args);
}
static const hn_kernel_ops k_softmax_ops = {sizeof(hn_kernel_ops), NULL, softmax_run,
                                            cpu_kernel_destroy};

hone_status own_softmax_select(hone_error *err, cpu_state *cpu, const hn_select *what,
                               hn_kernel **out_kernel) {
    const hn_node *node = what->node;
    cpu_value x, y;
    bool reduced[HN_MAX_RANK] = {false};
    if (!cpu_in(node, 0, &x) || !cpu_out(node, 0, &y) || x.dtype != HN_F32 || x.count == 0)
        return HONE_ERR_UNSUPPORTED;
    int axis;
    if (!hn_axis_normalise(hn_node_int(node, "axis", node->version < 13 ? 1 : -1), x.shape.rank,
                           &axis))
        return HONE_ERR_UNSUPPORTED;
    // Before opset 13 the input counts as a matrix, split at the axis.
    for (int i = axis; i < x.shape.rank; i++)
        reduced[i] = i == axis || node->version < 13;
    hn_layout layout = cpu_hint(what, 0);
    band b;
    if (!band_of(&x.shape, layout, reduced, &b)) {
        layout = HN_LAYOUT_PLAIN;
        if (!band_of(&x.shape, layout, reduced, &b)) return HONE_ERR_UNSUPPORTED;
    }
    band_kernel *k = NULL;
    HN_TRY(band_new(err, cpu, what, &k_softmax_ops, &b, &k));
    k->grain = GRAIN_EXP;
    k->logarithm = !strcmp(node->op_type, "LogSoftmax");
    k->base.in_layout[0] = layout;
    k->base.inplace_input[0] = 0;
    return band_done(cpu, what, k, &y.shape, layout, out_kernel);
}

// ---- layer and RMS normalisation ----------------------------------------------------------------
static void layer_norm_rows(void *arg, int64_t begin, int64_t end) {
    const band_job *job = arg;
    const band_kernel *k = job->k;
    int64_t n = k->b.count;
    for (int64_t i = begin; i < end; i++)
        k->rows->layer_norm_row(job->x + i * n, job->scale, job->bias, job->out + i * n, n,
                                k->epsilon);
}
static void rms_norm_rows(void *arg, int64_t begin, int64_t end) {
    const band_job *job = arg;
    const band_kernel *k = job->k;
    int64_t n = k->b.count;
    for (int64_t i = begin; i < end; i++)
        k->rows->rms_norm_row(job->x + i * n, job->scale, job->out + i * n, n, k->epsilon);
}
static hone_status row_norm_run(const band_kernel *k, const hn_args *args, hn_range_fn fn) {
    band_job job = {k, args->inputs[0], k->scale >= 0 ? args->inputs[k->scale] : NULL,
                    k->bias >= 0 ? args->inputs[k->bias] : NULL, args->outputs[0]};
    band_for(k, k->b.outer, k->b.count, fn, &job);
    return band_end(k, args);
}
static hone_status layer_norm_run(hone_error *err, hn_kernel *kernel, const hn_args *args) {
    (void)err;
    return row_norm_run((band_kernel *)kernel, args, layer_norm_rows);
}
static hone_status rms_norm_run(hone_error *err, hn_kernel *kernel, const hn_args *args) {
    (void)err;
    return row_norm_run((band_kernel *)kernel, args, rms_norm_rows);
}
static const hn_kernel_ops k_layer_norm_ops = {sizeof(hn_kernel_ops), NULL, layer_norm_run,
                                               cpu_kernel_destroy};
static const hn_kernel_ops k_rms_norm_ops = {sizeof(hn_kernel_ops), NULL, rms_norm_run,
                                             cpu_kernel_destroy};

hone_status own_layer_norm_select(hone_error *err, cpu_state *cpu, const hn_select *what,
                                  hn_kernel **out_kernel) {
    const hn_node *node = what->node;
    cpu_value x, y, v;
    bool rms = !strcmp(node->op_type, "RMSNormalization");
    if (!cpu_in(node, 0, &x) || !cpu_out(node, 0, &y) || x.dtype != HN_F32 || x.count == 0)
        return HONE_ERR_UNSUPPORTED;
    for (int i = 1; i < node->output_count; i++)
        if (node->outputs[i]) return HONE_ERR_UNSUPPORTED;
    int axis;
    if (!hn_axis_normalise(hn_node_int(node, "axis", -1), x.shape.rank, &axis))
        return HONE_ERR_UNSUPPORTED;
    band b = {1, 1, 1};
    for (int i = 0; i < x.shape.rank; i++)
        *(i < axis ? &b.outer : &b.count) *= x.shape.dims[i];
    int given = cpu_base_inputs(node);
    for (int i = 1; i < given && i < 3; i++)
        if (node->inputs[i] && (!cpu_in(node, i, &v) || v.dtype != HN_F32 || v.count != b.count))
            return HONE_ERR_UNSUPPORTED;
    band_kernel *k = NULL;
    HN_TRY(band_new(err, cpu, what, rms ? &k_rms_norm_ops : &k_layer_norm_ops, &b, &k));
    k->epsilon = hn_node_float(node, "epsilon", 1e-5f);
    k->scale = given > 1 && node->inputs[1] ? 1 : -1;
    k->bias = !rms && given > 2 && node->inputs[2] ? 2 : -1;
    k->grain = GRAIN_SUM / 2;
    k->base.inplace_input[0] = 0;
    return band_done(cpu, what, k, &y.shape, HN_LAYOUT_PLAIN, out_kernel);
}

// ---- sum and normalisation in one step ----------------------------------------------------------
typedef struct add_norm_kernel {
    band_kernel band; // first: base
    hn_k_binary_fn add;
    int64_t other_rows; // of the second summand, repeated
    bool rms, keeps_sum;
} add_norm_kernel;

typedef struct add_norm_job {
    const add_norm_kernel *k;
    const float *x, *r, *scale, *bias;
    float *out, *sum; // sum NULL: not wanted, made where the result goes
} add_norm_job;

static void add_norm_rows(void *arg, int64_t begin, int64_t end) {
    const add_norm_job *job = arg;
    const add_norm_kernel *k = job->k;
    int64_t n = k->band.b.count;
    for (int64_t i = begin; i < end; i++) {
        float *out = job->out + i * n, *sum = job->sum ? job->sum + i * n : out;
        k->add(job->x + i * n, job->r + i % k->other_rows * n, sum, n);
        if (k->rms) k->band.rows->rms_norm_row(sum, job->scale, out, n, k->band.epsilon);
        else k->band.rows->layer_norm_row(sum, job->scale, job->bias, out, n, k->band.epsilon);
    }
}
static hone_status add_norm_run(hone_error *err, hn_kernel *kernel, const hn_args *args) {
    (void)err;
    const add_norm_kernel *k = (const add_norm_kernel *)kernel;
    const band_kernel *norm = &k->band;
    add_norm_job job = {k, args->inputs[0], args->inputs[1], norm->scale >= 0 ? args->inputs[2] : NULL,
                        norm->bias >= 0 ? args->inputs[3] : NULL, args->outputs[0],
                        k->keeps_sum ? args->outputs[1] : NULL};
    if (norm->threads <= 1 || norm->b.outer * norm->b.count < 2 * norm->grain)
        add_norm_rows(&job, 0, norm->b.outer);
    else
        hn_parallel_for(norm->b.outer, hn_max_i64(1, norm->grain / norm->b.count), add_norm_rows, &job);
    return HONE_OK;
}
static const hn_kernel_ops k_add_norm_ops = {sizeof(hn_kernel_ops), NULL, add_norm_run, cpu_kernel_destroy};

hone_status own_add_norm_select(hone_error *err, cpu_state *cpu, const hn_select *what, hn_kernel **out_kernel) {
    const hn_node *node = what->node;
    cpu_value x, r, v;
    int axis;
    cpu_ew add;
    if (node->post_count || !node->outputs[0] || !cpu_in(node, 0, &x) || !cpu_in(node, 1, &r) || x.count == 0 ||
        !hn_axis_normalise(hn_op_int(node, "axis"), x.shape.rank, &axis) ||
        !cpu_ew_binary(cpu, cpu->op.Add, &add))
        return HONE_ERR_UNSUPPORTED;
    band b = {1, 1, 1};
    for (int i = 0; i < x.shape.rank; i++)
        *(i < axis ? &b.outer : &b.count) *= x.shape.dims[i];
    // The second summand has the last dims of the first one, whole rows at least.
    int64_t same = 1;
    for (int i = x.shape.rank - 1, j = r.shape.rank - 1; j >= 0 && r.shape.dims[j] == x.shape.dims[i]; i--, j--)
        same *= r.shape.dims[j];
    if (same != r.count || same < b.count) return HONE_ERR_UNSUPPORTED;
    for (int i = 2; i < node->input_count; i++)
        if (node->inputs[i] && (!cpu_in(node, i, &v) || v.count != b.count)) return HONE_ERR_UNSUPPORTED;
    add_norm_kernel *k = cpu_kernel_new(sizeof *k, &k_add_norm_ops);
    if (!k) HN_NOMEM(err, "selecting a kernel");
    k->band.rows = cpu->rows;
    k->band.b = b;
    k->band.threads = what->threads > 0 ? what->threads : hn_parallel_threads();
    k->band.grain = GRAIN_SUM / 2;
    k->band.epsilon = hn_op_float(node, "epsilon");
    k->band.scale = hn_in(node, 2) ? 2 : -1;
    k->band.bias = hn_in(node, 3) ? 3 : -1;
    k->add = add.binary[0];
    k->other_rows = r.count / b.count;
    k->rms = hn_op_int(node, "rms") != 0;
    k->keeps_sum = hn_out(node, 1) != NULL;
    k->band.base.inplace_input[0] = 0;
    *out_kernel = &k->band.base;
    return HONE_OK;
}

// ---- instance normalisation ---------------------------------------------------------------------
typedef struct instance_kernel {
    hn_kernel base;
    const hn_k_rows *rows;
    int64_t images, channels, size;
    bool last; // channels last
    int threads;
    float epsilon, slope; // slope of a fused leaky activation, 1: none
    cpu_posts posts;
} instance_kernel;

typedef struct instance_job {
    const instance_kernel *k;
    const float *x, *scale, *bias;
    float *out;
    float *mean, *inverse; // channels-last: of one image
} instance_job;

static void instance_rows(void *arg, int64_t begin, int64_t end) {
    const instance_job *job = arg;
    const instance_kernel *k = job->k;
    for (int64_t i = begin; i < end; i++)
        k->rows->standardise_row(job->x + i * k->size, job->scale[i % k->channels],
                                 job->bias[i % k->channels], job->out + i * k->size, k->size,
                                 k->epsilon);
}
static void instance_moments(void *arg, int64_t begin, int64_t end) {
    const instance_job *job = arg;
    const instance_kernel *k = job->k;
    k->rows->moments_columns(job->x + begin, k->size, k->channels, end - begin, k->epsilon,
                             job->mean + begin, job->inverse + begin);
    for (int64_t c = begin; c < end; c++) { // to scale and shift
        float s = job->inverse[c] * job->scale[c];
        job->mean[c] = job->bias[c] - job->mean[c] * s;
        job->inverse[c] = s;
    }
}
static void instance_apply(void *arg, int64_t begin, int64_t end) {
    const instance_job *job = arg;
    const instance_kernel *k = job->k;
    k->rows->scale_shift_columns(job->x + begin * k->channels, job->inverse, job->mean,
                                 job->out + begin * k->channels, end - begin, k->channels, k->slope);
}
static hone_status instance_run(hone_error *err, hn_kernel *kernel, const hn_args *args) {
    (void)err;
    instance_kernel *k = (instance_kernel *)kernel;
    instance_job job = {k, args->inputs[0], args->inputs[1], args->inputs[2], args->outputs[0],
                        args->workspace, NULL};
    if (!k->last) {
        hn_parallel_for(k->images * k->channels, hn_max_i64(1, GRAIN_SUM / k->size), instance_rows, &job);
    } else {
        job.inverse = job.mean + k->channels;
        for (int64_t n = 0; n < k->images; n++) {
            // Fewer channels than a vector are one job: the columns share cache lines.
            hn_parallel_for(k->channels, hn_max_i64(16, GRAIN_SUM / k->size), instance_moments, &job);
            hn_parallel_for(k->size, hn_max_i64(1, GRAIN_SUM / k->channels), instance_apply, &job);
            job.x += k->size * k->channels;
            job.out += k->size * k->channels;
        }
    }
    if (k->posts.count) cpu_posts_run(&k->posts, args, args->outputs[0]);
    return HONE_OK;
}
static const hn_kernel_ops k_instance_ops = {sizeof(hn_kernel_ops), NULL, instance_run,
                                             cpu_kernel_destroy};

int cpu_slope_post(const cpu_state *cpu, const hn_node *node, float *io_slope) {
    const hn_post *post = node->post_count ? &node->post[0] : NULL;
    if (!post || !post->op || (post->op != cpu->op.LeakyRelu && post->op != cpu->op.Relu)) return 0;
    *io_slope = post->op == cpu->op.Relu ? 0 : post->alpha;
    return 1;
}

hone_status own_instance_norm_select(hone_error *err, cpu_state *cpu, const hn_select *what,
                                     hn_kernel **out_kernel) {
    const hn_node *node = what->node;
    cpu_value x, y, s, b;
    if (!cpu_in(node, 0, &x) || !cpu_in(node, 1, &s) || !cpu_in(node, 2, &b) ||
        !cpu_out(node, 0, &y) || x.dtype != HN_F32 || x.shape.rank < 3 || x.count == 0)
        return HONE_ERR_UNSUPPORTED;
    instance_kernel *k = cpu_kernel_new(sizeof *k, &k_instance_ops);
    if (!k) HN_NOMEM(err, "selecting a kernel");
    k->rows = cpu->rows;
    k->images = x.shape.dims[0];
    k->channels = x.shape.dims[1];
    k->size = x.count / (k->images * k->channels);
    k->threads = what->threads;
    k->epsilon = hn_node_float(node, "epsilon", 1e-5f);
    k->slope = 1;
    hn_layout layout = cpu_hint(what, 0);
    k->last = layout == HN_LAYOUT_CHANNELS_LAST;
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
