// SPDX-License-Identifier: Apache-2.0
// Resize (nearest, linear), GridSample (nearest, bilinear) and BatchNormalization on float32; Resize
// (nearest) on 8 bits too.
//
// Positions and weights that depend on shapes alone are tabulated at select. Channels-last is the
// good case: every point is then one vector of channels.
#include "backends/cpu/cpu_int.h"
#include <math.h>

#define SPATIAL_GRAIN 8192 // elements

// ---- Resize -------------------------------------------------------------------------------------
typedef struct resize_job {
    const cpu_resize *k;
    const float *x;
    float *y;
} resize_job;

// Rows of the output: outer x out[0] x out[1].
static void nearest_rows(void *arg, int64_t begin, int64_t end) {
    const resize_job *job = arg;
    const cpu_resize *k = job->k;
    int64_t inner = k->inner, width = k->out[2];
    size_t item = k->bytes ? 1 : sizeof(float), point = (size_t)inner * item;
    const int32_t *wi = k->low[2];
    for (int64_t i = begin; i < end; i++) {
        int64_t h = i % k->out[1], d = i / k->out[1] % k->out[0], o = i / (k->out[1] * k->out[0]);
        int64_t line = ((o * k->in[0] + k->low[0][d]) * k->in[1] + k->low[1][h]) * k->in[2];
        const char *from = (const char *)job->x + (size_t)line * point;
        char *to = (char *)job->y + (size_t)(i * width) * point;
        if (point == 1)
            for (int64_t w = 0; w < width; w++)
                to[w] = from[wi[w]];
        else if (inner == 1)
            for (int64_t w = 0; w < width; w++)
                ((float *)(void *)to)[w] = ((const float *)(const void *)from)[wi[w]];
        else
            for (int64_t w = 0; w < width; w++)
                memcpy(to + (size_t)w * point, from + (size_t)wi[w] * point, point);
    }
}

static void linear_rows(void *arg, int64_t begin, int64_t end) {
    const resize_job *job = arg;
    const cpu_resize *k = job->k;
    int64_t inner = k->inner, width = k->out[2], row = k->in[2] * inner;
    for (int64_t i = begin; i < end; i++) {
        int64_t h = i % k->out[1], o = i / k->out[1];
        const float *plane = job->x + o * k->in[1] * row;
        const float *top = plane + k->low[1][h] * row, *bottom = plane + k->high[1][h] * row;
        float wy = k->weight[1][h];
        float *to = job->y + i * width * inner;
        for (int64_t w = 0; w < width; w++, to += inner) {
            float wx = k->weight[2][w];
            const float *a = top + k->low[2][w] * inner, *b = top + k->high[2][w] * inner;
            const float *c = bottom + k->low[2][w] * inner, *d = bottom + k->high[2][w] * inner;
            for (int64_t e = 0; e < inner; e++) {
                float up = a[e] * (1 - wx) + b[e] * wx, down = c[e] * (1 - wx) + d[e] * wx;
                to[e] = up * (1 - wy) + down * wy;
            }
        }
    }
}

static hone_status resize_run(hone_error *err, hn_kernel *kernel, const hn_args *args) {
    (void)err;
    cpu_resize *k = (cpu_resize *)kernel;
    resize_job job = {k, args->inputs[0], args->outputs[0]};
    int64_t rows = k->outer * k->out[0] * k->out[1], row = k->out[2] * k->inner;
    hn_range_fn fn = k->linear ? linear_rows : nearest_rows;
    if (k->threads <= 1 || rows * row < 2 * SPATIAL_GRAIN) fn(&job, 0, rows);
    else hn_parallel_for(rows, hn_max_i64(1, SPATIAL_GRAIN / hn_max_i64(1, row)), fn, &job);
    if (k->posts.count) cpu_posts_run(&k->posts, args, job.y);
    return HONE_OK;
}
static const hn_kernel_ops k_resize_ops = {sizeof(hn_kernel_ops), NULL, resize_run,
                                           cpu_kernel_destroy};

// Position in the input of output index i; false where the mode is not known here.
static bool source_position(hn_slice mode, int64_t i, int64_t in, int64_t out, float scale, float *x) {
    if (hn_slice_eq(mode, "asymmetric")) *x = (float)i / scale;
    else if (hn_slice_eq(mode, "half_pixel")) *x = ((float)i + 0.5f) / scale - 0.5f;
    else if (hn_slice_eq(mode, "pytorch_half_pixel"))
        *x = out > 1 ? ((float)i + 0.5f) / scale - 0.5f : 0;
    else if (hn_slice_eq(mode, "align_corners")) {
        float length = scale * (float)in; // as ops/resize.c has it
        if (fabsf(length - (float)out) < 1e-3f) length = (float)out;
        *x = out > 1 && length != 1 ? (float)i * (float)(in - 1) / (length - 1) : 0;
    } else return false;
    return true;
}

static int64_t nearest_index(hn_slice mode, float x) {
    if (hn_slice_eq(mode, "floor")) return (int64_t)floorf(x);
    if (hn_slice_eq(mode, "ceil")) return (int64_t)ceilf(x);
    if (hn_slice_eq(mode, "round_prefer_ceil")) return (int64_t)floorf(x + 0.5f);
    return (int64_t)ceilf(x - 0.5f); // round_prefer_floor
}

static int32_t clamp_index(int64_t i, int64_t size) {
    return (int32_t)(i < 0 ? 0 : i >= size ? size - 1 : i);
}

static bool resize_tables(cpu_resize *k, const hn_node *node, const float *scales) {
    hn_slice position = hn_node_string(node, "coordinate_transformation_mode", "half_pixel");
    hn_slice rounding = hn_node_string(node, "nearest_mode", "round_prefer_floor");
    int64_t total = k->out[0] + k->out[1] + k->out[2];
    int32_t *ints = (int32_t *)(k + 1);
    float *floats = (float *)(ints + 2 * total);
    for (int d = 0; d < 3; d++) {
        k->low[d] = ints;
        k->high[d] = ints + k->out[d];
        k->weight[d] = floats;
        ints += 2 * k->out[d];
        floats += k->out[d];
        for (int64_t i = 0; i < k->out[d]; i++) {
            float x;
            if (!source_position(position, i, k->in[d], k->out[d], scales[d], &x)) return false;
            if (!k->linear) {
                // A dim that keeps its size is copied, whatever the mode.
                int64_t at = scales[d] == 1 ? i : nearest_index(rounding, x);
                k->low[d][i] = clamp_index(at, k->in[d]);
                continue;
            }
            float low = floorf(x);
            k->low[d][i] = clamp_index((int64_t)low, k->in[d]);
            k->high[d][i] = clamp_index((int64_t)low + 1, k->in[d]);
            k->weight[d][i] = x - low;
            if (x > low) continue;
            // On a point exactly: its neighbour must not come in, not even as infinity times 0.
            k->high[d][i] = k->low[d][i];
            k->weight[d][i] = 0.5f;
        }
    }
    return true;
}

// Scales by dim: from the input, else from the sizes. False where they are not known or leave N or C.
static bool resize_scales(const hn_node *node, const hn_shape *x, const hn_shape *y, float *scales) {
    cpu_value v;
    bool given = cpu_base_inputs(node) > 2 && node->inputs[2] && cpu_in(node, 2, &v) && v.count > 0;
    if (given && (!v.data || v.dtype != HN_F32 || v.count != x->rank)) return false;
    for (int i = 0; i < x->rank; i++) {
        scales[i] = given ? ((const float *)v.data)[i] : (float)y->dims[i] / (float)x->dims[i];
        if (i < 2 && (scales[i] != 1 || x->dims[i] != y->dims[i])) return false;
    }
    return true;
}

static hn_status resize_new(hone_error *err, const hn_node *node, const cpu_value *x, const cpu_value *y, hn_layout layout,
                            cpu_resize **out) {
    float all[HN_MAX_RANK], scales[3] = {1, 1, 1};
    hn_slice mode = hn_node_string(node, "mode", "nearest");
    bool linear = hn_slice_eq(mode, "linear");
    if (x->count == 0 || y->count == 0 || x->shape.rank < 3 || x->shape.rank > 5 || y->shape.rank != x->shape.rank ||
        (!linear && !hn_slice_eq(mode, "nearest")))
        return HONE_ERR_UNSUPPORTED;
    if (hn_node_attr(node, "axes") || hn_node_int(node, "antialias", 0) ||
        !hn_slice_eq(hn_node_string(node, "keep_aspect_ratio_policy", "stretch"), "stretch") ||
        !resize_scales(node, &x->shape, &y->shape, all))
        return HONE_ERR_UNSUPPORTED;
    int64_t tables = 2;
    for (int i = 2; i < x->shape.rank; i++)
        tables += y->shape.dims[i];
    cpu_resize *k = cpu_kernel_new(sizeof *k + (size_t)tables * 12, &k_resize_ops);
    if (!k) HN_NOMEM(err, "selecting a kernel");
    bool last = layout == HN_LAYOUT_CHANNELS_LAST;
    k->outer = last ? x->shape.dims[0] : x->shape.dims[0] * x->shape.dims[1];
    k->inner = last ? x->shape.dims[1] : 1;
    k->linear = linear;
    int lead = 5 - x->shape.rank;
    for (int d = 0; d < 3; d++) {
        k->in[d] = d < lead ? 1 : x->shape.dims[d - lead + 2];
        k->out[d] = d < lead ? 1 : y->shape.dims[d - lead + 2];
        scales[d] = d < lead ? 1 : all[d - lead + 2];
    }
    k->base.in_layout[0] = k->base.out_layout[0] = layout;
    if (!resize_tables(k, node, scales)) {
        hn_free(k);
        return HONE_ERR_UNSUPPORTED;
    }
    *out = k;
    return HONE_OK;
}

hn_status cpu_resize_new(hone_error *err, const hn_node *node, hn_layout layout, cpu_resize **out_resize) {
    cpu_value x, y;
    if (!cpu_in(node, 0, &x) || !cpu_out(node, 0, &y)) return HONE_ERR_UNSUPPORTED;
    return resize_new(err, node, &x, &y, layout, out_resize);
}

hone_status own_resize_select(hone_error *err, cpu_state *cpu, const hn_select *what,
                              hn_kernel **out_kernel) {
    cpu_value x, y;
    if (!cpu_in(what->node, 0, &x) || !cpu_out(what->node, 0, &y)) return HONE_ERR_UNSUPPORTED;
    bool bytes = x.dtype == HN_U8 || x.dtype == HN_I8;
    if (x.dtype != HN_F32 &&
        !(bytes && !what->node->post_count && hn_slice_eq(hn_node_string(what->node, "mode", "nearest"), "nearest")))
        return HONE_ERR_UNSUPPORTED;
    if (x.shape.rank == 5 && hn_slice_eq(hn_node_string(what->node, "mode", "nearest"), "linear"))
        return HONE_ERR_UNSUPPORTED; // three dims at once
    cpu_resize *k;
    hn_layout layout = cpu_hint(what, 0);
    HN_TRY(resize_new(err, what->node, &x, &y, layout, &k));
    k->bytes = bytes;
    k->threads = what->threads > 0 ? what->threads : hn_parallel_threads();
    if (!cpu_posts_init(cpu, what, 0, &y.shape, layout, &k->base, &k->posts)) {
        hn_free(k);
        return HONE_ERR_UNSUPPORTED;
    }
    *out_kernel = &k->base;
    return HONE_OK;
}

// ---- GridSample ---------------------------------------------------------------------------------
typedef struct grid_kernel {
    hn_kernel base;
    int64_t images, channels, in_h, in_w, points; // points of one image
    bool nearest, border, corners;
    int threads;
    float zeros[]; // of one point
} grid_kernel;

typedef struct grid_job {
    const grid_kernel *k;
    const float *x, *grid;
    float *y;
} grid_job;

// Position of a grid coordinate. Infinities become numbers far outside, which have no NaN for a
// fraction.
static float unnormalise(float g, int64_t size, bool corners) {
    float x = corners ? (g + 1) / 2 * (float)(size - 1) : ((g + 1) * (float)size - 1) / 2;
    return x > 1e9f ? 1e9f : x < -1e9f ? -1e9f : x;
}

// The channels of a point; zeros where it counts as outside or has no weight, so that a NaN there
// (and NaN times 0 is NaN) stays out.
static const float *corner(const grid_kernel *k, const float *image, float fx, float fy, float weight) {
    if (weight == 0) return k->zeros;
    if (k->border) {
        fx = fx < 0 ? 0 : fx > (float)(k->in_w - 1) ? (float)(k->in_w - 1) : fx;
        fy = fy < 0 ? 0 : fy > (float)(k->in_h - 1) ? (float)(k->in_h - 1) : fy;
    }
    // NaN and far positions fail the comparison and count as outside.
    if (!(fx >= 0 && fx < (float)k->in_w && fy >= 0 && fy < (float)k->in_h)) return k->zeros;
    return image + ((int64_t)fy * k->in_w + (int64_t)fx) * k->channels;
}

static void grid_points(void *arg, int64_t begin, int64_t end) {
    const grid_job *job = arg;
    const grid_kernel *k = job->k;
    int64_t channels = k->channels;
    for (int64_t i = begin; i < end; i++) {
        const float *image = job->x + i / k->points * k->in_h * k->in_w * channels;
        float x = unnormalise(job->grid[2 * i], k->in_w, k->corners);
        float y = unnormalise(job->grid[2 * i + 1], k->in_h, k->corners);
        float *to = job->y + i * channels;
        if (x != x || y != y) {
            for (int64_t c = 0; c < channels; c++)
                to[c] = NAN;
            continue;
        }
        if (k->nearest) {
            memcpy(to, corner(k, image, rintf(x), rintf(y), 1), (size_t)channels * sizeof *to);
            continue;
        }
        if (k->border) {
            x = x < 0 ? 0 : x > (float)(k->in_w - 1) ? (float)(k->in_w - 1) : x;
            y = y < 0 ? 0 : y > (float)(k->in_h - 1) ? (float)(k->in_h - 1) : y;
        }
        float x0 = floorf(x), y0 = floorf(y), fx = x - x0, fy = y - y0;
        float w00 = (1 - fx) * (1 - fy), w01 = fx * (1 - fy), w10 = (1 - fx) * fy, w11 = fx * fy;
        const float *a = corner(k, image, x0, y0, w00), *b = corner(k, image, x0 + 1, y0, w01);
        const float *c = corner(k, image, x0, y0 + 1, w10);
        const float *d = corner(k, image, x0 + 1, y0 + 1, w11);
        for (int64_t e = 0; e < channels; e++)
            to[e] = a[e] * w00 + b[e] * w01 + c[e] * w10 + d[e] * w11;
    }
}

static hone_status grid_run(hone_error *err, hn_kernel *kernel, const hn_args *args) {
    (void)err;
    grid_kernel *k = (grid_kernel *)kernel;
    grid_job job = {k, args->inputs[0], args->inputs[1], args->outputs[0]};
    int64_t total = k->images * k->points;
    if (k->threads <= 1 || total * k->channels < SPATIAL_GRAIN) grid_points(&job, 0, total);
    else hn_parallel_for(total, hn_max_i64(1, SPATIAL_GRAIN / 2 / k->channels), grid_points, &job);
    return HONE_OK;
}
static const hn_kernel_ops k_grid_ops = {sizeof(hn_kernel_ops), NULL, grid_run, cpu_kernel_destroy};

hone_status own_grid_sample_select(hone_error *err, cpu_state *cpu, const hn_select *what,
                                   hn_kernel **out_kernel) {
    (void)cpu;
    const hn_node *node = what->node;
    cpu_value x, grid, y;
    hn_slice mode = hn_node_string(node, "mode", "linear");
    hn_slice padding = hn_node_string(node, "padding_mode", "zeros");
    bool nearest = hn_slice_eq(mode, "nearest");
    bool linear = hn_slice_eq(mode, "linear") || hn_slice_eq(mode, "bilinear");
    bool zeros = hn_slice_eq(padding, "zeros"), border = hn_slice_eq(padding, "border");
    if (node->post_count || !cpu_in(node, 0, &x) || !cpu_in(node, 1, &grid) ||
        !cpu_out(node, 0, &y) || x.dtype != HN_F32 || grid.dtype != HN_F32 || x.shape.rank != 4 ||
        x.count == 0 || y.count == 0 || !(nearest || linear) || !(zeros || border))
        return HONE_ERR_UNSUPPORTED;
    grid_kernel *k =
        cpu_kernel_new(sizeof *k + (size_t)x.shape.dims[1] * sizeof(float), &k_grid_ops);
    if (!k) HN_NOMEM(err, "selecting a kernel");
    k->images = x.shape.dims[0];
    k->channels = x.shape.dims[1];
    k->in_h = x.shape.dims[2];
    k->in_w = x.shape.dims[3];
    k->points = grid.shape.dims[1] * grid.shape.dims[2];
    k->nearest = nearest;
    k->border = border;
    k->corners = hn_node_int(node, "align_corners", 0) != 0;
    k->threads = what->threads > 0 ? what->threads : hn_parallel_threads();
    k->base.in_layout[0] = cpu_same_bytes(&x.shape) ? cpu_hint(what, 0) : HN_LAYOUT_CHANNELS_LAST;
    k->base.out_layout[0] = cpu_same_bytes(&y.shape) ? HN_LAYOUT_PLAIN : HN_LAYOUT_CHANNELS_LAST;
    *out_kernel = &k->base;
    return HONE_OK;
}

// ---- BatchNormalization -------------------------------------------------------------------------
typedef struct batch_norm_kernel {
    hn_kernel base;
    const hn_k_rows *rows;
    const hn_k_elementwise *ew;
    int64_t images, channels, size;
    bool last;
    int threads;
    cpu_posts posts;
    float scale_shift[]; // scales, then shifts
} batch_norm_kernel;

typedef struct batch_norm_job {
    const batch_norm_kernel *k;
    const float *x;
    float *y;
} batch_norm_job;

static void batch_norm_columns(void *arg, int64_t begin, int64_t end) {
    const batch_norm_job *job = arg;
    const batch_norm_kernel *k = job->k;
    k->rows->scale_shift_columns(job->x + begin * k->channels, k->scale_shift,
                                 k->scale_shift + k->channels, job->y + begin * k->channels,
                                 end - begin, k->channels, 1);
}
static void batch_norm_rows(void *arg, int64_t begin, int64_t end) {
    const batch_norm_job *job = arg;
    const batch_norm_kernel *k = job->k;
    for (int64_t i = begin; i < end; i++) {
        int64_t c = i % k->channels;
        k->ew->unary[HN_K_UNARY_linear](job->x + i * k->size, job->y + i * k->size, k->size,
                                        k->scale_shift[c], k->scale_shift[k->channels + c]);
    }
}
static hone_status batch_norm_run(hone_error *err, hn_kernel *kernel, const hn_args *args) {
    (void)err;
    batch_norm_kernel *k = (batch_norm_kernel *)kernel;
    batch_norm_job job = {k, args->inputs[0], args->outputs[0]};
    int64_t total = k->images * (k->last ? k->size : k->channels);
    int64_t item = k->last ? k->channels : k->size;
    hn_range_fn fn = k->last ? batch_norm_columns : batch_norm_rows;
    if (k->threads <= 1 || total * item < 2 * SPATIAL_GRAIN) fn(&job, 0, total);
    else hn_parallel_for(total, hn_max_i64(1, SPATIAL_GRAIN / hn_max_i64(1, item)), fn, &job);
    if (k->posts.count) cpu_posts_run(&k->posts, args, job.y);
    return HONE_OK;
}
static const hn_kernel_ops k_batch_norm_ops = {sizeof(hn_kernel_ops), NULL, batch_norm_run,
                                               cpu_kernel_destroy};

hone_status own_batch_norm_select(hone_error *err, cpu_state *cpu, const hn_select *what,
                                  hn_kernel **out_kernel) {
    const hn_node *node = what->node;
    cpu_value x, y, p[4];
    if (!cpu_in(node, 0, &x) || !cpu_out(node, 0, &y) || x.dtype != HN_F32 || x.shape.rank < 2 ||
        x.count == 0 || hn_node_int(node, "training_mode", 0))
        return HONE_ERR_UNSUPPORTED;
    for (int i = 1; i < node->output_count; i++)
        if (node->outputs[i]) return HONE_ERR_UNSUPPORTED;
    int64_t channels = x.shape.dims[1];
    for (int i = 0; i < 4; i++)
        if (!cpu_in(node, i + 1, &p[i]) || !p[i].data || p[i].dtype != HN_F32 || p[i].count != channels)
            return HONE_ERR_UNSUPPORTED;
    batch_norm_kernel *k =
        cpu_kernel_new(sizeof *k + 2 * (size_t)channels * sizeof(float), &k_batch_norm_ops);
    if (!k) HN_NOMEM(err, "selecting a kernel");
    const float *scale = p[0].data, *bias = p[1].data, *mean = p[2].data, *var = p[3].data;
    float epsilon = hn_node_float(node, "epsilon", 1e-5f);
    for (int64_t c = 0; c < channels; c++) {
        double s = scale[c] / sqrt((double)var[c] + epsilon);
        k->scale_shift[c] = (float)s;
        k->scale_shift[channels + c] = (float)(bias[c] - mean[c] * s);
    }
    k->rows = cpu->rows;
    k->ew = cpu->ew;
    k->images = x.shape.dims[0];
    k->channels = channels;
    k->size = x.count / (k->images * channels);
    hn_layout layout = cpu_hint(what, 0);
    k->last = layout == HN_LAYOUT_CHANNELS_LAST || k->size == 1;
    k->threads = what->threads > 0 ? what->threads : hn_parallel_threads();
    k->base.in_layout[0] = k->base.out_layout[0] = layout;
    k->base.inplace_input[0] = 0;
    k->base.consumed = 15u << 1;
    if (!cpu_posts_init(cpu, what, 0, &y.shape, layout, &k->base, &k->posts)) {
        hn_free(k);
        return HONE_ERR_UNSUPPORTED;
    }
    *out_kernel = &k->base;
    return HONE_OK;
}
