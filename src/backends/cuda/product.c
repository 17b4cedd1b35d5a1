// SPDX-License-Identifier: Apache-2.0
// Products and convolutions by kernels of our own (product.cu, product_float.cu): what runs on a card whose
// machine has neither cuBLASLt nor cuDNN, and the shapes that these refuse.
//
// A convolution is a product over what each output position sees, channels-last; its weights are turned to
// [outputs][taps][channels of a group] on the way to the card.
#include "backends/cpu/window.h"
#include "backends/cuda/product.h"
#include <stdio.h>

typedef struct shape {
    int64_t m, n, k, batch, lda, ldb, ldc, step_a, step_b, step_c, step_bias;
    bool turn_a, turn_b, wide_a, wide_b, has_bias, has_rest;
    float alpha;
    hn_dtype dtype;
    // of a convolution
    bool gather;
    int64_t channels, x_strides[3], x_image;
    window window;
} shape;

static void tell_window(cuda_spec *s, const shape *p) {
    static const char *const k_dims[] = {"D", "H", "W"};
    cuda_spec_int(s, "CHANNELS", p->channels);
    cuda_spec_int(s, "X_IMAGE", p->x_image);
    const window *w = &p->window;
    for (int i = 0; i < 3; i++) { // dims that an image has not are of one
        int d = i - (3 - w->rank);
        const struct {
            const char *name;
            int64_t value;
        } numbers[] = {{"X", d < 0 ? 0 : p->x_strides[d]},         {"IN", d < 0 ? 1 : w->in[d]},         {"OUT", d < 0 ? 1 : w->out[d]},
                       {"TAPS", d < 0 ? 1 : w->kernel[d]},         {"STRIDE", d < 0 ? 1 : w->stride[d]}, {"PAD", d < 0 ? 0 : w->pad_begin[d]},
                       {"DILATION", d < 0 ? 1 : w->dilation[d]}};
        for (size_t n = 0; n < HN_COUNT_OF(numbers); n++) {
            char name[24];
            snprintf(name, sizeof name, "%s_%s", numbers[n].name, k_dims[i]);
            cuda_spec_int(s, name, numbers[n].value);
        }
    }
}

static void tell(cuda_spec *s, const shape *p, bool half) {
    cuda_spec_type(s, "T", cuda_ctype(p->dtype));
    if (half) cuda_spec_int(s, "IS_BF16", p->dtype == HN_BF16);
    else cuda_spec_type(s, "A", p->dtype == HN_F64 ? "double" : "float");
    const struct {
        const char *name;
        int64_t value;
    } numbers[] = {{"M", p->m}, {"N", p->n}, {"K", p->k}, {"LDA", p->lda}, {"LDB", p->ldb}, {"LDC", p->ldc}, {"STEP_BIAS", p->step_bias},
                   {"WIDE_A", p->wide_a}, {"WIDE_B", p->wide_b}, {"HAS_BIAS", p->has_bias}, {"HAS_REST", p->has_rest}, {"TURN_A", p->turn_a},
                   {"TURN_B", p->turn_b}, {"GATHER", p->gather}, {"STEP_A", p->step_a}, {"STEP_B", p->step_b}, {"STEP_C", p->step_c}};
    for (size_t i = 0; i < HN_COUNT_OF(numbers); i++)
        cuda_spec_int(s, numbers[i].name, numbers[i].value);
    cuda_spec_real(s, "ALPHA", p->alpha);
    if (p->gather) tell_window(s, p);
}

// Launches over a, b, bias, rest (absent: number 0) and output 0; several with outer batches.
static hn_status launches(hone_error *err, cuda_kernel *k, const shape *p, const cuda_arg *args, int calls, const int64_t *at_a, const int64_t *at_b) {
    cuda_device *d = k->device;
    bool half = cuda_is_float16(p->dtype);
    // Large tiles where they fill the card.
    int64_t big = ((p->m + 127) / 128) * ((p->n + 127) / 128) * p->batch, item = (int64_t)hn_dtype_bytes(p->dtype);
    int tile = half && big >= d->caps.sm_count && !(p->turn_a && cuda_is_generic(d)) ? 128 : 64;
    int64_t blocks = ((p->m + tile - 1) / tile) * ((p->n + tile - 1) / tile);
    if (p->m > INT32_MAX / 2 || p->n > INT32_MAX / 2 || blocks > INT32_MAX || p->batch > 65535) return HONE_ERR_UNSUPPORTED;
    cuda_spec s;
    cuda_spec_begin(&s, d, half ? "product" : "product_float");
    tell(&s, p, half);
    if (half) {
        cuda_spec_int(&s, "BM", tile);
        cuda_spec_int(&s, "BN", tile);
    }
    cuda_launch launch = {.grid = {(unsigned)blocks, (unsigned)p->batch, 1}, .block = {half ? (unsigned)(2 * tile) : 256, 1, 1}, .arg_count = 5};
    // Three stages of both tiles, rows of them 16 bytes apart from the next.
    int64_t a_piece = p->turn_a ? 32 * (tile + 8) : tile * (32 + 8), b_piece = p->turn_b ? tile * (32 + 8) : 32 * (tile + 8);
    if (half) launch.shared_bytes = (unsigned)(3 * (a_piece + b_piece) * 2);
    hone_status status = cuda_spec_kernel(err, &s, half ? "hn_k_product" : "hn_k_product_float", &launch);
    if (status == HONE_OK && launch.shared_bytes > 48 << 10)
        status = cuda_check(err, d, d->api->cuFuncSetAttribute(launch.function.handle, HN_CU_FUNC_MAX_DYNAMIC_SHARED, (int)launch.shared_bytes), "taking shared memory");
    for (int i = 0; i < calls && status == HONE_OK; i++) {
        memcpy(launch.args, args, 5 * sizeof *args);
        launch.args[0].offset += at_a ? at_a[i] * item : 0;
        launch.args[1].offset += at_b ? at_b[i] * item : 0;
        launch.args[4].offset += i * p->batch * p->m * p->n * item;
        if (p->has_rest) launch.args[3].offset += i * p->batch * p->m * p->n * item;
        status = cuda_kernel_launch(err, k, &launch);
    }
    cuda_spec_end(&s);
    return status;
}

// ---- MatMul, Gemm -------------------------------------------------------------------------------
static hn_status build(hone_error *err, cuda_kernel *k, const hn_select *what, const product *p) {
    const hn_node *node = what->node;
    shape s = {.m = p->m, .n = p->n, .k = p->k, .batch = p->batch, .lda = p->trans_a ? p->m : p->k, .ldb = p->trans_b ? p->k : p->n, .ldc = p->n,
               .step_a = p->batch > 1 ? p->step_a : 0, .step_b = p->batch > 1 ? p->step_b : 0, .step_c = p->m * p->n, .turn_a = p->trans_a,
               .turn_b = p->trans_b, .has_bias = p->bias >= 0, .has_rest = p->residual >= 0, .alpha = p->alpha, .dtype = p->c.dtype};
    s.wide_a = s.lda % 8 == 0 && s.step_a % 8 == 0;
    s.wide_b = s.ldb % 8 == 0 && s.step_b % 8 == 0;
    for (int i = 0; i < p->calls; i++) {
        s.wide_a = s.wide_a && p->at_a[i] % 8 == 0;
        s.wide_b = s.wide_b && p->at_b[i] % 8 == 0;
    }
    cuda_arg args[5] = {[2] = cuda_arg_i64(0), [3] = cuda_arg_i64(0), [4] = cuda_arg_output(0)};
    HN_TRY(cuda_kernel_input(err, k, node, 0, &args[0]));
    HN_TRY(cuda_kernel_input(err, k, node, 1, &args[1]));
    if (p->scale_post >= 0) k->base.consumed |= 1ull << node->post[p->scale_post].input;
    if (s.has_bias) HN_TRY(cuda_kernel_input(err, k, node, p->bias, &args[2]));
    if (s.has_rest) HN_TRY(cuda_kernel_input(err, k, node, p->residual, &args[3]));
    HN_TRY(launches(err, k, &s, args, p->calls, p->at_a, p->at_b));
    return cuda_posts(err, k, what, p->posts_done, &p->c.shape, p->c.dtype, CUDA_PLAIN);
}

hone_status cuda_product_select(hone_error *err, cuda_device *d, const hn_select *what, hn_kernel **out_kernel) {
    product *p = hn_calloc(1, sizeof *p);
    if (!p) HN_NOMEM(err, "selecting a kernel");
    hone_status status = cuda_product_read(what, p) ? HONE_OK : HONE_ERR_UNSUPPORTED;
    if (status == HONE_OK) cuda_product_posts(what->node, false, p);
    cuda_kernel *k = status == HONE_OK ? cuda_kernel_new(d, what->node) : NULL;
    if (status == HONE_OK && !k) status = HN_SET(err, HONE_ERR_NOMEM, "out of memory (selecting a kernel)");
    if (status == HONE_OK && p->turned) k->base.in_layout[1] = CUDA_LAST;
    if (status == HONE_OK) status = build(err, k, what, p);
    hn_free(p);
    return cuda_kernel_done(status, k, out_kernel);
}

// ---- Conv ---------------------------------------------------------------------------------------
hone_status cuda_conv_product_select(hone_error *err, cuda_device *d, const hn_select *what, hn_kernel **out_kernel) {
    const hn_node *node = what->node;
    cpu_value x, w, y, bias;
    shape s = {.alpha = 1, .gather = true, .turn_b = true};
    if (!cpu_in(node, 0, &x) || !cpu_in(node, 1, &w) || !cpu_out(node, 0, &y) || x.data || !w.data || !y.count || !x.count ||
        (x.dtype != HN_F32 && x.dtype != HN_F64 && !cuda_is_float16(x.dtype)) || w.dtype != x.dtype || y.dtype != x.dtype ||
        x.shape.rank < 3 || x.shape.rank > 5 || w.shape.rank != x.shape.rank ||
        !window_of(node, &x.shape, &y.shape, w.shape.dims + 2, &s.window) || x.count > INT32_MAX || y.count > INT32_MAX)
        return HONE_ERR_UNSUPPORTED;
    int64_t groups = x.shape.dims[1] / w.shape.dims[1], outputs = y.shape.dims[1], strides[HN_MAX_RANK];
    s.has_bias = cpu_base_inputs(node) > 2 && node->inputs[2];
    if (groups < 1 || groups * w.shape.dims[1] != x.shape.dims[1] || outputs % groups) return HONE_ERR_UNSUPPORTED;
    if (s.has_bias && (!cpu_in(node, 2, &bias) || bias.dtype != x.dtype)) return HONE_ERR_UNSUPPORTED;
    cpu_strides(&x.shape, HN_LAYOUT_CHANNELS_LAST, strides);
    s.dtype = x.dtype;
    s.m = y.count / outputs;
    s.n = outputs / groups;
    s.k = w.count / outputs;
    s.batch = groups;
    s.channels = s.step_a = w.shape.dims[1];
    s.ldb = s.k;
    s.ldc = outputs;
    s.step_b = s.n * s.k;
    s.step_c = s.step_bias = s.n;
    s.x_image = strides[0];
    memcpy(s.x_strides, strides + 2, (size_t)s.window.rank * sizeof *strides);
    s.wide_a = s.channels % 8 == 0 && x.shape.dims[1] % 8 == 0;
    s.wide_b = s.k % 8 == 0;
    cuda_kernel *k = cuda_kernel_new(d, node);
    if (!k) HN_NOMEM(err, "selecting a kernel");
    k->base.in_layout[0] = k->base.out_layout[0] = CUDA_LAST;
    k->base.consumed |= 2;
    cuda_arg args[5] = {{CUDA_ARG_INPUT, 0, 0, 0}, {0}, cuda_arg_i64(0), cuda_arg_i64(0), cuda_arg_output(0)};
    cuda_const *weights = NULL;
    hone_status status = cuda_const_turned(err, d, &w, CUDA_LAST, &weights);
    if (status == HONE_OK) status = cuda_kernel_hold(err, k, weights);
    if (status == HONE_OK) args[1] = cuda_arg_memory(weights->memory);
    if (status == HONE_OK && s.has_bias) status = cuda_kernel_input(err, k, node, 2, &args[2]);
    if (status == HONE_OK) status = launches(err, k, &s, args, 1, NULL, NULL);
    if (status == HONE_OK) status = cuda_posts(err, k, what, 0, &y.shape, y.dtype, CUDA_LAST);
    return cuda_kernel_done(status, k, out_kernel);
}
