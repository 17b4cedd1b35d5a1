// SPDX-License-Identifier: Apache-2.0
// hn.QConv and hn.QMatMul through oneDNN: 8-bit activations with a zero point, int8 weights with a
// scale a channel, posts in float32 inside the primitive, 8-bit or float32 results.
//
// oneDNN computes (acc + bias) * scale[channel] and then the post-ops. Every factor that can be moved
// into that scale is moved there: a residual with its own scale is added as plain integers after
// everything has been divided by that scale, and the result's scale goes in front of a Relu.
#include "backends/cpu/window.h"

enum { X, X_SCALE, X_ZERO, W, W_SCALE, W_ZERO, BIAS };

typedef struct quant_problem {
    cpu_value x, w, w_scale, bias, y;
    bool has_bias;
    bool run_scale; // scale or zero point of x come with each run
    double x_scale;
    int32_t x_zero;
    int64_t channels;
    int8_t *weights;      // owned: with the zero point taken off
    float *scales, *shifts; // owned, one a channel: output scale; bias in accumulator units
    dnnl_data_type_t x_type;
} quant_problem;

typedef struct quant_chain {
    double pre_scale, pre_shift; // what was folded in front of the post-ops
    double unit, offset;         // true value = unit * (value in the chain + offset)
    bool relu_seen;
    bool empty, homogeneous;     // no post-op yet; only such that commute with a positive factor
    dnnl_data_type_t out_type;
    int32_t out_zero;
} quant_chain;

static bool scalar_param(const hn_node *node, int index, double absent, double *out) {
    cpu_value v;
    *out = absent;
    if (index < 0 || index >= node->input_count || !node->inputs[index]) return true;
    if (!cpu_in(node, index, &v) || !v.data || v.count != 1) return false;
    *out = hn_tensor_get_f64(v.value->constant, 0);
    return true;
}

// Notes that an input was read at select; -1: the post has none.
static void consume(dnnl_build *b, int input) {
    if (input >= 0) b->kernel->base.consumed |= (uint64_t)1 << input;
}

static bool linear(dnnl_build *b, quant_chain *c, double alpha, double beta) {
    if (alpha == 1 && beta == 0) return true;
    if (c->empty || (c->homogeneous && beta == 0 && alpha > 0)) {
        c->pre_scale *= alpha;
        c->pre_shift = c->pre_shift * alpha + beta;
        return true;
    }
    c->homogeneous = false;
    return dnnl_append_eltwise(b, dnnl_eltwise_linear, (float)alpha, (float)beta);
}

static bool eltwise(dnnl_build *b, quant_chain *c, dnnl_alg_kind_t alg, double alpha, double beta,
                    bool homogeneous) {
    if (!dnnl_append_eltwise(b, alg, (float)alpha, (float)beta)) return false;
    c->empty = false;
    c->homogeneous = c->homogeneous && homogeneous;
    return true;
}

// A quantised residual of full shape.
static bool residual(dnnl_build *b, quant_chain *c, const hn_post *post, const hn_shape *out,
                     hn_layout layout, int rank, const int64_t *dims) {
    const hn_node *node = b->what->node;
    cpu_value v;
    double scale, zero;
    dnnl_data_type_t type;
    dnnl_memory_desc_t md;
    if (post->op != b->cpu->op.Add || !cpu_in(node, post->input, &v) ||
        !hn_shape_equal(&v.shape, out) || !dnnl_type_of(v.dtype, &type) ||
        !scalar_param(node, post->scale, 1, &scale) || !scalar_param(node, post->zero, 0, &zero) ||
        !(scale > 0))
        return false;
    // The residual's zero point goes into the bias, or waits for the next linear step.
    if (!linear(b, c, c->unit / scale, (c->empty ? -zero : 0) + c->offset * c->unit / scale)) return false;
    c->offset = c->empty ? 0 : -zero;
    dnnl_dense(b, &md, rank, dims, type, layout);
    if (!dnnl_append_binary(b, dnnl_binary_add, &md, post->input)) return false;
    b->kernel->base.in_layout[post->input] = layout;
    consume(b, post->scale);
    consume(b, post->zero);
    c->empty = c->homogeneous = false;
    c->unit = scale;
    return true;
}

static bool drops_nan(const dnnl_build *b, const hn_post *post) {
    const cpu_ops *op = &b->cpu->op;
    return post->op == op->Relu || post->op == op->Clip || post->op == op->Max || post->op == op->Min;
}

static bool chain_step(dnnl_build *b, quant_chain *c, const hn_post *post, const hn_shape *out,
                       hn_layout layout, int rank, const int64_t *dims) {
    const cpu_ops *op = &b->cpu->op;
    if (post->op == op->QuantizeLinear) {
        cpu_value y;
        double scale, zero;
        if (!cpu_out(b->what->node, 0, &y) || !dnnl_type_of(y.dtype, &c->out_type) ||
            !scalar_param(b->what->node, post->scale, 1, &scale) ||
            !scalar_param(b->what->node, post->zero, 0, &zero) || !(scale > 0))
            return false;
        c->out_zero = (int32_t)zero;
        consume(b, post->scale);
        consume(b, post->zero);
        if (!linear(b, c, c->unit / scale, c->offset * c->unit / scale)) return false;
        // oneDNN 2.6's AMX kernels leave the lower cut of an unsigned result out where they see a
        // Relu, even if steps behind it made negative numbers.
        return !(c->relu_seen && !c->homogeneous && c->out_type == dnnl_u8) ||
               eltwise(b, c, dnnl_eltwise_clip, -c->out_zero, 255 - c->out_zero, false);
    }
    if (post->input >= 0 && post->scale >= 0) return residual(b, c, post, out, layout, rank, dims);
    c->relu_seen = c->relu_seen || post->op == op->Relu;
    if (c->offset != 0) {
        if (!linear(b, c, 1, c->offset)) return false;
        c->offset = 0;
    }
    if (!dnnl_drops_nan(b, drops_nan(b, post))) return false;
    if (post->op == op->Relu) return eltwise(b, c, dnnl_eltwise_relu, 0, 0, true);
    if (post->op == op->LeakyRelu) return eltwise(b, c, dnnl_eltwise_relu, post->alpha, 0, true);
    if (post->op == op->Clip)
        return eltwise(b, c, dnnl_eltwise_clip, post->alpha / c->unit, post->beta / c->unit, false);
    if (!linear(b, c, c->unit, 0)) return false;
    c->unit = 1;
    bool taken = dnnl_post_step(b, post, out, layout, rank, dims);
    c->empty = c->homogeneous = false;
    return taken;
}

// Scale and shift of each run are the first two post-ops; what can be folded goes into them.
static bool scale_in_run(dnnl_build *b, const quant_problem *p, int rank) {
    dnnl_memory_desc_t md;
    int64_t dims[HN_MAX_RANK];
    for (int i = 0; i < rank; i++)
        dims[i] = i == rank - 1 ? p->channels : 1;
    dnnl_dense(b, &md, rank, dims, dnnl_f32, HN_LAYOUT_PLAIN);
    return dnnl_append_made(b, dnnl_binary_mul, &md, DNNL_FROM_SCALES) &&
           dnnl_append_made(b, dnnl_binary_add, &md, DNNL_FROM_SHIFTS);
}

static bool chain_of(dnnl_build *b, quant_chain *c, const quant_problem *p, hn_layout layout, int rank,
                     const int64_t *dims) {
    const hn_node *node = b->what->node;
    const hn_shape *out = &p->y.shape;
    *c = (quant_chain){.pre_scale = 1, .unit = 1, .empty = true, .homogeneous = true, .out_type = dnnl_f32};
    if (p->run_scale && !scale_in_run(b, p, rank)) return false;
    bool quantised =
        node->post_count && node->post[node->post_count - 1].op == b->cpu->op.QuantizeLinear;
    // Sums of products of integers are numbers: NaN comes in with a float operand only, or a run's scale.
    b->no_nan = !p->run_scale || quantised;
    for (; b->fused < node->post_count; b->fused++) {
        const hn_post *post = &node->post[b->fused];
        if (post->input >= 0 && post->scale < 0) b->no_nan = quantised;
        // The kernel that keeps NaN leaves the rest to our own posts.
        if (b->what->keep_nan && !b->no_nan && drops_nan(b, post)) break;
        if (!chain_step(b, c, post, out, layout, rank, dims)) return false;
    }
    if (quantised) return true;
    return linear(b, c, c->unit, c->offset * c->unit);
}

// ---- parameters ---------------------------------------------------------------------------------
// Weights as int8 without zero point; false where that does not fit.
static bool plain_weights(const hn_node *node, quant_problem *p, int64_t inner) {
    cpu_value zero = {0};
    bool has_zero = node->inputs[W_ZERO] != NULL;
    if (has_zero && (!cpu_in(node, W_ZERO, &zero) || !zero.data)) return false;
    p->weights = hn_malloc((size_t)p->w.count + 1);
    if (!p->weights) return false;
    for (int64_t i = 0; i < p->w.count; i++) {
        int64_t at = zero.count > 1 ? i / inner % zero.count : 0;
        int64_t v = p->w.dtype == HN_U8 ? ((const uint8_t *)p->w.data)[i] : ((const int8_t *)p->w.data)[i];
        if (has_zero) v -= hn_tensor_get_i64(zero.value->constant, at);
        if (v < -128 || v > 127) return false;
        p->weights[i] = (int8_t)v;
    }
    return true;
}

// Scale and zero point of x as values that each run brings.
static bool run_params(const hn_node *node) {
    cpu_value scale, zero;
    if (!cpu_in(node, X_SCALE, &scale) || scale.dtype != HN_F32 || scale.count != 1) return false;
    return !node->inputs[X_ZERO] || (cpu_in(node, X_ZERO, &zero) && zero.count == 1);
}

static bool quant_read(const hn_node *node, quant_problem *p, bool conv) {
    memset(p, 0, sizeof *p);
    double scale, zero;
    if (!cpu_in(node, X, &p->x) || !cpu_in(node, W, &p->w) || !p->w.data || !cpu_out(node, 0, &p->y) ||
        !cpu_in(node, W_SCALE, &p->w_scale) || !p->w_scale.data || p->w_scale.dtype != HN_F32)
        return false;
    if ((p->w.dtype != HN_I8 && p->w.dtype != HN_U8) || !dnnl_type_of(p->x.dtype, &p->x_type) ||
        p->x.count == 0 || p->y.count == 0)
        return false;
    if (!node->inputs[X_SCALE]) return false;
    if (scalar_param(node, X_SCALE, 1, &scale) && scalar_param(node, X_ZERO, 0, &zero)) {
        p->x_scale = scale;
        p->x_zero = (int32_t)zero;
    } else if (conv || !run_params(node)) {
        return false;
    } else {
        p->run_scale = true;
        p->x_scale = 1;
    }
    p->has_bias = cpu_base_inputs(node) > BIAS && node->inputs[BIAS];
    if (p->has_bias && (!cpu_in(node, BIAS, &p->bias) || !p->bias.data || p->bias.dtype != HN_F32))
        return false;
    p->channels = conv ? p->w.shape.dims[0] : p->w.shape.dims[p->w.shape.rank - 1];
    int64_t inner = conv ? p->w.count / hn_max_i64(p->channels, 1) : 1;
    return (p->w_scale.count == 1 || p->w_scale.count == p->channels) && plain_weights(node, p, inner);
}

static void quant_drop(quant_problem *p) {
    hn_free(p->weights);
    hn_free(p->scales);
    hn_free(p->shifts);
}

// What the two post-ops are made of in each run.
static bool run_attributes(dnnl_build *b, quant_problem *p, const quant_chain *c) {
    const hn_node *node = b->what->node;
    dnnl_scaled *s = &b->kernel->scaled;
    int64_t n = p->channels, rows = p->w.count / hn_max_i64(n, 1);
    s->unit = hn_calloc((size_t)n, 3 * sizeof(float));
    if (!s->unit) return false;
    s->sum = s->unit + n;
    s->fixed = s->sum + n;
    for (int64_t i = 0; i < n; i++) {
        int64_t sum = 0;
        for (int64_t k = 0; k < rows; k++)
            sum += p->weights[k * n + i];
        double bias = p->has_bias ? ((const float *)p->bias.data)[i] : 0;
        s->unit[i] = (float)(((const float *)p->w_scale.data)[p->w_scale.count == 1 ? 0 : i] * c->pre_scale);
        s->sum[i] = (float)sum;
        s->fixed[i] = (float)(bias * c->pre_scale + c->pre_shift);
    }
    s->channels = n;
    s->scale = X_SCALE;
    s->zero = node->inputs[X_ZERO] ? X_ZERO : -1;
    s->is_signed = p->x.dtype == HN_I8;
    p->has_bias = false; // it is in the second
    return true;
}

// Output scales, bias and zero points, after the chain is known.
static bool quant_attributes(dnnl_build *b, quant_problem *p, const quant_chain *c, int channel_dim) {
    const hn_dnnl *api = b->cpu->dnnl;
    size_t n = (size_t)p->channels;
    if (c->out_zero && api->dnnl_primitive_attr_set_zero_points(b->attr, DNNL_ARG_DST, 1, 0,
                                                                &c->out_zero) != dnnl_success)
        return false;
    if (p->run_scale) return run_attributes(b, p, c);
    p->scales = hn_calloc(n, sizeof(float));
    p->shifts = hn_calloc(n, sizeof(float));
    if (!p->scales || !p->shifts) return false;
    bool shifted = p->has_bias || c->pre_shift != 0;
    for (size_t i = 0; i < n; i++) {
        double w = ((const float *)p->w_scale.data)[p->w_scale.count == 1 ? 0 : i];
        double s = p->x_scale * w * c->pre_scale;
        double bias = p->has_bias ? ((const float *)p->bias.data)[i] : 0;
        p->scales[i] = (float)s;
        p->shifts[i] = s != 0 ? (float)((bias * c->pre_scale + c->pre_shift) / s) : 0;
        if (s == 0 && bias * c->pre_scale + c->pre_shift != 0) return false; // dead channel with bias
    }
    p->has_bias = shifted;
    if (api->dnnl_primitive_attr_set_output_scales(b->attr, p->channels, 1 << channel_dim, p->scales) !=
        dnnl_success)
        return false;
    return !p->x_zero || api->dnnl_primitive_attr_set_zero_points(b->attr, DNNL_ARG_SRC, 1, 0,
                                                                  &p->x_zero) == dnnl_success;
}

static hn_status quant_args(hone_error *err, dnnl_build *b, quant_problem *p,
                            const dnnl_memory_desc_t *x_md, const dnnl_memory_desc_t *y_md,
                            const dnnl_memory_desc_t *w_plain, const dnnl_memory_desc_t *bias_md) {
    const dnnl_memory_desc_t *want =
        b->cpu->dnnl->dnnl_primitive_desc_query_md(b->pd, dnnl_query_weights_md, 0);
    HN_TRY(dnnl_arg(err, b, DNNL_ARG_SRC, x_md, DNNL_FROM_INPUT, X));
    HN_TRY(dnnl_arg(err, b, DNNL_ARG_DST, y_md, DNNL_FROM_OUTPUT, 0));
    hn_prepared_source weights = {p->weights, (size_t)p->w.count, false};
    hn_prepared_source shifts = {p->shifts, (size_t)p->channels * sizeof(float), false};
    HN_TRY(dnnl_arg_packed(err, b, DNNL_ARG_WEIGHTS, w_plain, weights, false, want));
    if (p->has_bias)
        HN_TRY(dnnl_arg_packed(err, b, DNNL_ARG_BIAS, bias_md, shifts, false, bias_md));
    b->kernel->base.consumed |= p->run_scale ? 0x7eu & ~(1u << X_SCALE | 1u << X_ZERO)
                                             : 0x7eu; // all base inputs but x
    return HONE_OK;
}

// ---- convolution --------------------------------------------------------------------------------
static hn_status q_conv_build(hone_error *err, dnnl_build *b, quant_problem *p, hn_kernel **out_kernel) {
    const hn_dnnl *api = b->cpu->dnnl;
    const hn_node *node = b->what->node;
    window w;
    int64_t groups = hn_node_int(node, "group", 1), dims[HN_MAX_RANK];
    if (p->x.shape.rank < 3 || groups < 1 ||
        !window_of(node, &p->x.shape, &p->y.shape, p->w.shape.dims + 2, &w))
        return HONE_ERR_UNSUPPORTED;
    window_normalise(&w);
    b->no_spatial_operands = window_leans_out(&w); // see dnnl_conv.c
    int rank = w.rank + 2, n = 0;
    dnnl_memory_desc_t x_md, y_md, w_plain, w_want, bias_md;
    dims[0] = p->x.shape.dims[0];
    dims[1] = p->x.shape.dims[1];
    memcpy(dims + 2, w.in, (size_t)w.rank * sizeof *dims);
    dnnl_dense(b, &x_md, rank, dims, p->x_type, HN_LAYOUT_CHANNELS_LAST);
    dims[1] = p->y.shape.dims[1];
    memcpy(dims + 2, w.out, (size_t)w.rank * sizeof *dims);
    quant_chain c;
    if (!chain_of(b, &c, p, HN_LAYOUT_CHANNELS_LAST, rank, dims) ||
        !quant_attributes(b, p, &c, 1))
        return HONE_ERR_UNSUPPORTED;
    dnnl_dense(b, &y_md, rank, dims, c.out_type, HN_LAYOUT_CHANNELS_LAST);
    int64_t wd[HN_MAX_RANK], flops = 2 * p->y.count * p->w.shape.dims[1];
    if (groups > 1) wd[n++] = groups;
    wd[n++] = p->w.shape.dims[0] / groups;
    wd[n++] = p->w.shape.dims[1];
    for (int i = 0; i < w.rank; i++) {
        wd[n++] = w.kernel[i];
        flops *= w.kernel[i];
    }
    dnnl_dense(b, &w_plain, n, wd, dnnl_s8, HN_LAYOUT_PLAIN);
    dnnl_dims_t any_dims, stride, dilate, begin, end;
    for (int i = 0; i < n; i++)
        any_dims[i] = wd[i];
    api->dnnl_memory_desc_init_by_tag(&w_want, n, any_dims, dnnl_s8, dnnl_format_tag_any);
    dnnl_dense(b, &bias_md, 1, &p->channels, dnnl_f32, HN_LAYOUT_PLAIN);
    for (int i = 0; i < w.rank; i++) {
        stride[i] = w.stride[i];
        dilate[i] = w.dilation[i] - 1;
        begin[i] = w.pad_begin[i];
        end[i] = w.pad_end[i];
    }
    dnnl_threads(b, (double)flops / 4);
    dnnl_convolution_desc_t desc;
    if (api->dnnl_dilated_convolution_forward_desc_init(
            &desc, dnnl_forward_inference, dnnl_convolution_direct, &x_md, &w_want,
            p->has_bias ? &bias_md : NULL, &y_md, stride, dilate, begin, end) != dnnl_success)
        return HONE_ERR_UNSUPPORTED;
    HN_TRY(dnnl_make(err, b, &desc));
    // oneDNN 2.6 packs weights of groups wrongly for its gemm kernel where the input has a zero point,
    // in some sizes (8 channels in 2 or 4 groups, 8 taps).
    if (groups > 1 && p->x_zero && strstr(b->kernel->base.variant, "gemm")) return HONE_ERR_UNSUPPORTED;
    hn_kernel *k = &b->kernel->base;
    k->in_layout[X] = cpu_same_bytes(&p->x.shape) ? cpu_hint(b->what, X) : HN_LAYOUT_CHANNELS_LAST;
    k->out_layout[0] = cpu_same_bytes(&p->y.shape) ? HN_LAYOUT_PLAIN : HN_LAYOUT_CHANNELS_LAST;
    HN_TRY(quant_args(err, b, p, &x_md, &y_md, &w_plain, &bias_md));
    return dnnl_finish(err, b, &p->y.shape, HN_LAYOUT_CHANNELS_LAST, out_kernel);
}

// ---- matrix product -----------------------------------------------------------------------------
static hn_status q_matmul_build(hone_error *err, dnnl_build *b, quant_problem *p,
                                hn_kernel **out_kernel) {
    const hn_dnnl *api = b->cpu->dnnl;
    if (p->w.shape.rank != 2 || p->x.shape.rank < 1) return HONE_ERR_UNSUPPORTED;
    int64_t k = p->w.shape.dims[0], n = p->channels;
    if (p->x.shape.dims[p->x.shape.rank - 1] != k || k == 0) return HONE_ERR_UNSUPPORTED;
    int64_t xd[] = {p->x.count / k, k}, wd[] = {k, n}, yd[] = {p->x.count / k, n}, bd[] = {1, n};
    dnnl_memory_desc_t x_md, y_md, w_plain, w_want, bias_md;
    quant_chain c;
    if (!chain_of(b, &c, p, HN_LAYOUT_PLAIN, 2, yd) || !quant_attributes(b, p, &c, 1))
        return HONE_ERR_UNSUPPORTED;
    dnnl_dense(b, &x_md, 2, xd, p->x_type, HN_LAYOUT_PLAIN);
    dnnl_dense(b, &y_md, 2, yd, c.out_type, HN_LAYOUT_PLAIN);
    dnnl_dense(b, &w_plain, 2, wd, dnnl_s8, HN_LAYOUT_PLAIN);
    dnnl_dense(b, &bias_md, 2, bd, dnnl_f32, HN_LAYOUT_PLAIN);
    dnnl_dims_t any_dims = {k, n};
    api->dnnl_memory_desc_init_by_tag(&w_want, 2, any_dims, dnnl_s8, dnnl_format_tag_any);
    dnnl_threads(b, (double)p->x.count * (double)n / 2);
    dnnl_matmul_desc_t desc;
    if (api->dnnl_matmul_desc_init(&desc, &x_md, &w_want, p->has_bias ? &bias_md : NULL, &y_md) !=
        dnnl_success)
        return HONE_ERR_UNSUPPORTED;
    HN_TRY(dnnl_make(err, b, &desc));
    HN_TRY(quant_args(err, b, p, &x_md, &y_md, &w_plain, &bias_md));
    return dnnl_finish(err, b, &p->y.shape, HN_LAYOUT_PLAIN, out_kernel);
}

static hone_status select_quant(hone_error *err, cpu_state *cpu, const hn_select *what, bool conv,
                                hn_kernel **out_kernel) {
    quant_problem p;
    hone_status status = HONE_ERR_UNSUPPORTED;
    if (quant_read(what->node, &p, conv)) {
        dnnl_build b;
        status = dnnl_begin(err, cpu, what, &b);
        if (status == HONE_OK) {
            status = conv ? q_conv_build(err, &b, &p, out_kernel)
                          : q_matmul_build(err, &b, &p, out_kernel);
            if (status != HONE_OK) dnnl_abandon(&b);
        }
    }
    quant_drop(&p);
    return status;
}

hone_status dnnl_q_conv_select(hone_error *err, cpu_state *cpu, const hn_select *what,
                               hn_kernel **out_kernel) {
    return select_quant(err, cpu, what, true, out_kernel);
}

hone_status dnnl_q_matmul_select(hone_error *err, cpu_state *cpu, const hn_select *what,
                                 hn_kernel **out_kernel) {
    return select_quant(err, cpu, what, false, out_kernel);
}
