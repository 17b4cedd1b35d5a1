// SPDX-License-Identifier: Apache-2.0
// Convolution, transposed convolution and pooling through oneDNN, channels-last.
//
// Activations are channels-last throughout: measured equal to oneDNN's blocked formats within noise
// on AVX-512 (docs/notes/cpu-layouts.md), and simple for every other kernel. Weights are packed into
// whatever form the implementation asks for.
#include "backends/cpu/window.h"

// Dims of an activation as oneDNN sees it: N, C, spatial of the (normalised) window.
static int activation_dims(const hn_shape *shape, const int64_t *spatial, int rank, int64_t *out) {
    out[0] = shape->dims[0];
    out[1] = shape->dims[1];
    memcpy(out + 2, spatial, (size_t)rank * sizeof *spatial);
    return rank + 2;
}

static hn_layout channels_last(const hn_select *what, const hn_shape *shape, int input) {
    if (!cpu_same_bytes(shape)) return HN_LAYOUT_CHANNELS_LAST;
    return input >= 0 ? what->in_layout[input] : HN_LAYOUT_PLAIN;
}

typedef struct conv_problem {
    cpu_value x, w, bias, y;
    bool has_bias;
    int64_t groups;
    window win;
    bool transposed, narrow; // narrow: computes in bf16, float32 in and out
    dnnl_memory_desc_t x_md, y_md, w_plain, w_want, bias_md;
} conv_problem;

static bool conv_read(const hn_node *node, bool transposed, conv_problem *p) {
    memset(p, 0, sizeof *p);
    p->transposed = transposed;
    if (!cpu_in(node, 0, &p->x) || !cpu_in(node, 1, &p->w) || !cpu_out(node, 0, &p->y)) return false;
    p->has_bias = cpu_base_inputs(node) > 2 && node->inputs[2];
    if (p->has_bias && (!cpu_in(node, 2, &p->bias) || p->bias.dtype != HN_F32)) return false;
    if (p->x.dtype != HN_F32 || p->w.dtype != HN_F32 || p->y.dtype != HN_F32) return false;
    if (p->x.count == 0 || p->y.count == 0 || p->w.count == 0) return false;
    p->groups = hn_node_int(node, "group", 1);
    int rank = p->x.shape.rank;
    if (rank < 3 || rank > 5 || p->w.shape.rank != rank || p->groups < 1) return false;
    // A transposed convolution is a window that slides over its output.
    const hn_shape *wide = transposed ? &p->y.shape : &p->x.shape;
    const hn_shape *narrow = transposed ? &p->x.shape : &p->y.shape;
    if (!window_of(node, wide, narrow, p->w.shape.dims + 2, &p->win)) return false;
    if (transposed && !hn_slice_eq(hn_node_string(node, "auto_pad", "NOTSET"), "NOTSET")) return false;
    window_normalise(&p->win);
    return true;
}

static double conv_flops(const conv_problem *p) {
    double flops = 2.0 * (double)(p->transposed ? p->x.count : p->y.count);
    for (int i = 0; i < p->win.rank; i++)
        flops *= (double)p->win.kernel[i];
    return flops * (double)(p->transposed ? p->y.shape.dims[1] : p->x.shape.dims[1]) /
           (double)p->groups;
}

// Weight descriptors: plain as the file has them, and left to oneDNN. ONNX has [M, C/g, k...], and
// for transposed convolutions [C, M/g, k...], which is oneDNN's with the first two dims swapped.
static void weight_mds(dnnl_build *b, conv_problem *p) {
    const hn_dnnl *api = b->cpu->dnnl;
    int rank = p->win.rank, n = 0;
    dnnl_dims_t dims, strides;
    int64_t per_out = p->transposed ? p->w.shape.dims[1] : p->w.shape.dims[0] / p->groups;
    int64_t per_in = p->transposed ? p->w.shape.dims[0] / p->groups : p->w.shape.dims[1];
    int64_t spatial = 1;
    for (int i = 0; i < rank; i++)
        spatial *= p->win.kernel[i];
    if (p->groups > 1) {
        dims[n] = p->groups;
        strides[n++] = per_out * per_in * spatial;
    }
    dims[n] = per_out;
    strides[n++] = p->transposed ? spatial : per_in * spatial;
    dims[n] = per_in;
    strides[n++] = p->transposed ? per_out * spatial : spatial;
    for (int i = 0; i < rank; i++) {
        dims[n] = p->win.kernel[i];
        spatial /= p->win.kernel[i];
        strides[n++] = spatial;
    }
    api->dnnl_memory_desc_init_by_strides(&p->w_plain, n, dims, dnnl_f32, strides);
    p->w_want = p->w_plain;
    if (p->w.data)
        api->dnnl_memory_desc_init_by_tag(&p->w_want, n, dims, p->narrow ? dnnl_bf16 : dnnl_f32,
                                          dnnl_format_tag_any);
}

static hn_status conv_descriptor(hone_error *err, dnnl_build *b, conv_problem *p) {
    const hn_dnnl *api = b->cpu->dnnl;
    const window *w = &p->win;
    dnnl_dims_t stride, dilate, begin, end;
    for (int i = 0; i < w->rank; i++) {
        stride[i] = w->stride[i];
        dilate[i] = w->dilation[i] - 1;
        begin[i] = w->pad_begin[i];
        end[i] = w->pad_end[i];
    }
    const dnnl_memory_desc_t *bias = p->has_bias ? &p->bias_md : NULL;
    if (p->transposed) {
        dnnl_deconvolution_desc_t desc;
        if (api->dnnl_dilated_deconvolution_forward_desc_init(
                &desc, dnnl_forward_inference, dnnl_deconvolution_direct, &p->x_md, &p->w_want, bias,
                &p->y_md, stride, dilate, begin, end) != dnnl_success)
            return HONE_ERR_UNSUPPORTED;
        return dnnl_make(err, b, &desc);
    }
    dnnl_convolution_desc_t desc;
    if (api->dnnl_dilated_convolution_forward_desc_init(
            &desc, dnnl_forward_inference, dnnl_convolution_direct, &p->x_md, &p->w_want, bias,
            &p->y_md, stride, dilate, begin, end) != dnnl_success)
        return HONE_ERR_UNSUPPORTED;
    return dnnl_make(err, b, &desc);
}

static hn_status conv_build(hone_error *err, dnnl_build *b, conv_problem *p, hn_kernel **out_kernel) {
    int64_t dims[HN_MAX_RANK];
    const int64_t *x_sizes = p->transposed ? p->win.out : p->win.in;
    const int64_t *y_sizes = p->transposed ? p->win.in : p->win.out;
    int rank = activation_dims(&p->x.shape, x_sizes, p->win.rank, dims);
    p->narrow = dnnl_wants_bf16(b->cpu, b->what->node) && p->w.data && !p->transposed;
    dnnl_dense(b, &p->x_md, rank, dims, p->narrow ? dnnl_bf16 : dnnl_f32, HN_LAYOUT_CHANNELS_LAST);
    activation_dims(&p->y.shape, y_sizes, p->win.rank, dims);
    dnnl_dense(b, &p->y_md, rank, dims, dnnl_f32, HN_LAYOUT_CHANNELS_LAST);
    weight_mds(b, p);
    if (p->has_bias) dnnl_dense(b, &p->bias_md, 1, p->bias.shape.dims, dnnl_f32, HN_LAYOUT_PLAIN);
    hn_kernel *k = &b->kernel->base;
    // oneDNN 2.6's brgconv then reads operands at wrong places: found at random, no rule was.
    b->no_spatial_operands = window_leans_out(&p->win);
    k->in_layout[0] = channels_last(b->what, &p->x.shape, 0);
    k->out_layout[0] = channels_last(b->what, &p->y.shape, -1);
    dnnl_posts(b, &p->y.shape, HN_LAYOUT_CHANNELS_LAST, rank, dims);
    dnnl_threads(b, conv_flops(p));
    HN_TRY(conv_descriptor(err, b, p));
    if (p->narrow) HN_TRY(dnnl_arg_narrow(err, b, &p->x_md, p->x.count));
    else HN_TRY(dnnl_arg(err, b, DNNL_ARG_SRC, &p->x_md, DNNL_FROM_INPUT, 0));
    HN_TRY(dnnl_arg(err, b, DNNL_ARG_DST, &p->y_md, DNNL_FROM_OUTPUT, 0));
    if (p->w.data) {
        const dnnl_memory_desc_t *want =
            b->cpu->dnnl->dnnl_primitive_desc_query_md(b->pd, dnnl_query_weights_md, 0);
        HN_TRY(dnnl_arg_packed(err, b, DNNL_ARG_WEIGHTS, &p->w_plain, cpu_source(&p->w), true, want));
        k->consumed |= 1u << 1;
    } else {
        HN_TRY(dnnl_arg(err, b, DNNL_ARG_WEIGHTS, &p->w_plain, DNNL_FROM_INPUT, 1));
    }
    if (p->has_bias) HN_TRY(dnnl_arg(err, b, DNNL_ARG_BIAS, &p->bias_md, DNNL_FROM_INPUT, 2));
    return dnnl_finish(err, b, &p->y.shape, HN_LAYOUT_CHANNELS_LAST, out_kernel);
}

static hone_status select_conv(hone_error *err, cpu_state *cpu, const hn_select *what,
                               bool transposed, hn_kernel **out_kernel) {
    conv_problem p;
    if (!conv_read(what->node, transposed, &p)) return HONE_ERR_UNSUPPORTED;
    dnnl_build b;
    HN_TRY(dnnl_begin(err, cpu, what, &b));
    hone_status status = conv_build(err, &b, &p, out_kernel);
    if (status != HONE_OK) dnnl_abandon(&b);
    return status;
}

hone_status dnnl_conv_select(hone_error *err, cpu_state *cpu, const hn_select *what,
                             hn_kernel **out_kernel) {
    return select_conv(err, cpu, what, false, out_kernel);
}

hone_status dnnl_deconv_select(hone_error *err, cpu_state *cpu, const hn_select *what,
                               hn_kernel **out_kernel) {
    return select_conv(err, cpu, what, true, out_kernel);
}

// ---- pooling ------------------------------------------------------------------------------------
static hn_status pool_build(hone_error *err, dnnl_build *b, const cpu_value *x, const cpu_value *y,
                            const window *w, dnnl_alg_kind_t alg, hn_kernel **out_kernel) {
    const hn_dnnl *api = b->cpu->dnnl;
    dnnl_data_type_t type;
    if (!dnnl_type_of(x->dtype, &type)) return HONE_ERR_UNSUPPORTED;
    int64_t dims[HN_MAX_RANK];
    dnnl_memory_desc_t x_md, y_md;
    int rank = activation_dims(&x->shape, w->in, w->rank, dims);
    dnnl_dense(b, &x_md, rank, dims, type, HN_LAYOUT_CHANNELS_LAST);
    activation_dims(&y->shape, w->out, w->rank, dims);
    dnnl_dense(b, &y_md, rank, dims, type, HN_LAYOUT_CHANNELS_LAST);
    dnnl_dims_t stride, kernel, dilate, begin, end;
    double work = (double)y->count;
    for (int i = 0; i < w->rank; i++) {
        stride[i] = w->stride[i];
        kernel[i] = w->kernel[i];
        dilate[i] = w->dilation[i] - 1;
        begin[i] = w->pad_begin[i];
        end[i] = w->pad_end[i];
        work *= (double)w->kernel[i];
    }
    dnnl_pooling_v2_desc_t desc;
    if (api->dnnl_pooling_v2_forward_desc_init(&desc, dnnl_forward_inference, alg, &x_md, &y_md,
                                               stride, kernel, dilate, begin, end) != dnnl_success)
        return HONE_ERR_UNSUPPORTED;
    b->kernel->base.in_layout[0] = channels_last(b->what, &x->shape, 0);
    b->kernel->base.out_layout[0] = channels_last(b->what, &y->shape, -1);
    dnnl_threads(b, work * 4);
    HN_TRY(dnnl_make(err, b, &desc));
    HN_TRY(dnnl_arg(err, b, DNNL_ARG_SRC, &x_md, DNNL_FROM_INPUT, 0));
    HN_TRY(dnnl_arg(err, b, DNNL_ARG_DST, &y_md, DNNL_FROM_OUTPUT, 0));
    return dnnl_finish(err, b, &y->shape, HN_LAYOUT_CHANNELS_LAST, out_kernel);
}

hone_status dnnl_pool_select(hone_error *err, cpu_state *cpu, const hn_select *what,
                             hn_kernel **out_kernel) {
    const hn_node *node = what->node;
    cpu_value x, y;
    window w;
    if (!cpu_in(node, 0, &x) || !cpu_out(node, 0, &y) || x.count == 0 || y.count == 0)
        return HONE_ERR_UNSUPPORTED;
    if (node->output_count > 1 && node->outputs[1]) return HONE_ERR_UNSUPPORTED; // indices
    bool bytes = (x.dtype == HN_U8 || x.dtype == HN_I8) && !node->post_count;
    if (!(x.dtype == HN_F32 || (bytes && node->op == cpu->op.MaxPool)) ||
        !window_of(node, &x.shape, &y.shape, NULL, &w))
        return HONE_ERR_UNSUPPORTED;
    bool max = node->op == cpu->op.MaxPool || node->op == cpu->op.GlobalMaxPool;
    bool padded_counts = hn_node_int(node, "count_include_pad", 0) != 0;
    // What lies beyond the declared padding does not count.
    if (!max && padded_counts && w.leaves_pads) return HONE_ERR_UNSUPPORTED;
    window_normalise(&w);
    dnnl_alg_kind_t alg = max             ? dnnl_pooling_max
                          : padded_counts ? dnnl_pooling_avg_include_padding
                                          : dnnl_pooling_avg_exclude_padding;
    dnnl_build b;
    HN_TRY(dnnl_begin(err, cpu, what, &b));
    hone_status status = HONE_ERR_UNSUPPORTED;
    if (dnnl_drops_nan(&b, max && x.dtype == HN_F32))
        status = pool_build(err, &b, &x, &y, &w, alg, out_kernel);
    if (status != HONE_OK) dnnl_abandon(&b);
    return status;
}
