// SPDX-License-Identifier: Apache-2.0
// hn.QConv and hn.QMatMul of signed bytes around zero: one kernel (kernels/cuda/q_gemm.cu) that ends with
// scales, bias and every fused step, residuals and QuantizeLinear among them. Data lies channels-last,
// weights are turned to rows of [output][taps][channels] once. What it does not take is left to the caller.
#include "backends/cpu/window.h"
#include "backends/cuda/cuda_int.h"
#include "ops/elementwise.h"
#include "ops/nn_int.h"
#include <math.h>

enum { X, X_SCALE, X_ZERO, W, W_SCALE, W_ZERO, BIAS };
#define PIECE       16
#define SHORT_DEPTH 256 // sums of so many numbers are done before the steps behind them
#define MAX_STEPS HN_MAX_POST

typedef struct q_layer {
    cpu_value x, w, y, w_scale;
    bool conv, has_bias;
    window win;
    int64_t rows, cols, depth, channels;
    float x_scale;
    hn_layout layout;
} q_layer;

typedef struct tile {
    int bm, bn, wm, wn, stages;
} tile;

// ---- what it takes ------------------------------------------------------------------------------
static bool around_zero(const hn_node *node, int index) {
    cpu_value v;
    if (index >= cpu_base_inputs(node) || !node->inputs[index]) return true;
    if (!cpu_in(node, index, &v) || !v.data) return false;
    for (int64_t i = 0; i < v.count; i++)
        if (hn_tensor_get_i64(v.value->constant, i)) return false;
    return true;
}

static bool read(const hn_node *node, q_layer *q) {
    cpu_value scale, bias;
    q->conv = !strcmp(node->op_type, "QConv");
    if (!cpu_in(node, X, &q->x) || !cpu_in(node, W, &q->w) || !cpu_out(node, 0, &q->y) || !cpu_in(node, X_SCALE, &scale) ||
        !cpu_in(node, W_SCALE, &q->w_scale) || q->x.dtype != HN_I8 || q->w.dtype != HN_I8 || q->x.data || !q->w.data || !scale.data ||
        scale.dtype != HN_F32 || !q->w_scale.data || q->w_scale.dtype != HN_F32 || !q->x.count || !q->y.count || !cuda_ctype(q->y.dtype) ||
        !around_zero(node, X_ZERO) || !around_zero(node, W_ZERO))
        return false;
    q->x_scale = (float)hn_tensor_get_f64(scale.value->constant, 0);
    int rank = q->x.shape.rank;
    if (q->conv) {
        if (hn_node_int(node, "group", 1) != 1 || rank < 3 || rank > 5 || q->w.shape.rank != rank ||
            !window_of(node, &q->x.shape, &q->y.shape, q->w.shape.dims + 2, &q->win))
            return false;
        q->cols = q->w.shape.dims[0];
        q->channels = q->w.shape.dims[1];
    } else {
        if (rank < 1 || q->w.shape.rank != 2) return false;
        q->cols = q->w.shape.dims[1];
        q->channels = q->w.shape.dims[0];
    }
    q->depth = q->w.count / q->cols;
    q->rows = q->y.count / q->cols;
    q->layout = q->conv ? CUDA_LAST : CUDA_PLAIN;
    q->has_bias = cpu_base_inputs(node) > BIAS && node->inputs[BIAS];
    if (q->has_bias && (!cpu_in(node, BIAS, &bias) || bias.dtype != HN_F32 || bias.count != q->cols)) return false;
    return q->channels % PIECE == 0 && q->depth < INT32_MAX && (q->w_scale.count == 1 || q->w_scale.count == q->cols) &&
           q->y.count < INT32_MAX && q->x.count < INT32_MAX;
}

// ---- weights ------------------------------------------------------------------------------------
static void turn_weights(void *user, void *out) {
    const q_layer *q = user;
    const int8_t *from = q->w.data;
    int8_t *to = out;
    int64_t taps = q->depth / q->channels;
    for (int64_t n = 0; n < q->cols; n++)
        for (int64_t t = 0; t < taps; t++)
            for (int64_t c = 0; c < q->channels; c++)
                to[(n * taps + t) * q->channels + c] = q->conv ? from[(n * q->channels + c) * taps + t] : from[c * q->cols + n];
}

static void make_scales(void *user, void *out) {
    const q_layer *q = user;
    for (int64_t n = 0; n < q->cols; n++)
        ((float *)out)[n] = q->x_scale * ((const float *)q->w_scale.data)[q->w_scale.count == 1 ? 0 : n];
}

// ---- the epilogue -------------------------------------------------------------------------------
typedef struct epilogue {
    cuda_kernel *k;
    const hn_select *what;
    const q_layer *q;
    cuda_launch *launch;
    hn_str args, names, scalars, loads, call, body;
    int operands, temps;
    bool stored;      // the last step gives what is stored
} epilogue;

// An operand of a step: whole, a value a column, or one for all. *out_text reads it as a float.
static hn_status add_operand(hone_error *err, epilogue *e, int input, char *out_text, size_t size) {
    cpu_value v;
    const hn_node *node = e->what->node;
    if (!cpu_in(node, input, &v) || !cuda_ctype(v.dtype) || e->launch->arg_count == CUDA_MAX_ARGS) return HONE_ERR_UNSUPPORTED;
    const char *type = cuda_ctype(v.dtype), *at;
    const hn_shape *y = &e->q->y.shape;
    int axis = e->q->conv ? 1 : y->rank - 1, from = v.shape.rank - (y->rank - axis);
    if (v.count == 1) at = NULL;
    else if (hn_shape_equal(&v.shape, y) && !v.data) at = "at";
    else if (v.shape.rank <= y->rank && from >= 0 && v.shape.dims[from] == e->q->cols && v.count == e->q->cols) at = "col";
    else return HONE_ERR_UNSUPPORTED;
    HN_TRY(cuda_kernel_input(err, e->k, node, input, &e->launch->args[e->launch->arg_count++]));
    if (at && !strcmp(at, "at")) e->k->base.in_layout[input] = e->q->layout;
    int n = e->operands++;
    hn_str_printf(&e->args, ", const %s *p%d", type, n);
    hn_str_printf(&e->names, ", p%d", n);
    hn_str_printf(&e->scalars, ", const %s a%d", type, n);
    if (!at) hn_str_printf(&e->loads, "    const %s v%d = p%d[0];\n", type, n, n);
    else hn_str_printf(&e->loads, "    const vec<%s, VEC> v%d = *(const vec<%s, VEC> *)(p%d + %s);\n", type, n, type, n, at);
    hn_str_printf(&e->call, at ? ", v%d.v[e]" : ", v%d", n);
    snprintf(out_text, size, "to_f32(a%d)", n);
    return HONE_OK;
}

// Scale or zero point of a step: a number, since it is constant.
static bool constant_text(const hn_node *node, int input, hn_str *out) {
    cpu_value v;
    if (!cpu_in(node, input, &v) || !v.data || v.count != 1) return false;
    hn_str_append(out, "(float)");
    cuda_print_number(out, hn_tensor_get_f64(v.value->constant, 0));
    return !out->failed;
}

// By the reciprocal and in integers: what lies halfway between two of them may go to either. NaN becomes the
// zero point, as in the reference.
static hn_status quantise_text(epilogue *e, const hn_post *post, const char *acc) {
    const hn_node *node = e->what->node;
    const hn_tensor *scale = node->inputs[post->scale]->constant, *zero = post->zero >= 0 ? node->inputs[post->zero]->constant : NULL;
    hn_dtype dtype = e->q->y.dtype;
    int low = dtype == HN_I8 ? -128 : 0, high = dtype == HN_I8 ? 127 : 255, z = zero ? (int)hn_tensor_get_i64(zero, 0) : 0;
    if (dtype != HN_I8 && dtype != HN_U8) return HONE_ERR_UNSUPPORTED;
    hn_str_printf(&e->body, "    int t%d = __float2int_rn(%s * (float)", e->temps, acc);
    cuda_print_number(&e->body, 1 / hn_tensor_get_f64(scale, 0));
    hn_str_printf(&e->body, ");\n    t%d = (t%d < %d ? %d : t%d > %d ? %d : t%d) + %d;\n", e->temps, e->temps, low - z, low - z, e->temps, high - z,
                  high - z, e->temps, z);
    e->temps++;
    e->stored = true;
    return HONE_OK;
}

static hn_status add_post(hone_error *err, epilogue *e, const hn_post *post) {
    const hn_node *node = e->what->node;
    hn_str scale = {0}, zero = {0}, a = {0}, b = {0};
    char acc[32], operand[48] = "0", other[160];
    snprintf(acc, sizeof acc, "t%d", e->temps - 1);
    hone_status status = e->stored ? HONE_ERR_UNSUPPORTED : HONE_OK;
    if ((post->scale >= 0 && !constant_text(node, post->scale, &scale)) || (post->zero >= 0 && !constant_text(node, post->zero, &zero)))
        status = HONE_ERR_UNSUPPORTED;
    for (int i = 0; status == HONE_OK && i < 2; i++) // constants: no pointer is needed
        if ((i ? post->zero : post->scale) >= 0) e->k->base.consumed |= 1ull << (i ? post->zero : post->scale);
    if (status == HONE_OK && post->op == hn_op_find("", "QuantizeLinear")) {
        status = quantise_text(e, post, acc);
    } else if (status == HONE_OK && post->op != hn_op_find("", "Cast")) { // a Cast is what the store does
        // What is quantised right behind, or stored in 16 bits, does not show which form of Gelu it was.
        bool coarse = !strcmp(post->op_type, "Gelu") && (hn_dtype_is_int(e->q->y.dtype) || cuda_is_float16(e->q->y.dtype)) &&
                      post + 1 < node->post + node->post_count && post[1].input < 0;
        const char *formula = coarse ? "gelu_coarse(x)" : hn_scalar_text(post->op, HN_CLASS_F);
        if (!formula || !hn_op_has(post->op, HN_T_ELEMENTWISE)) status = HONE_ERR_UNSUPPORTED;
        if (status == HONE_OK && post->input >= 0) status = add_operand(err, e, post->input, operand, sizeof operand);
        if (post->scale >= 0) snprintf(other, sizeof other, "((%s - (%s)) * (%s))", operand, zero.length ? hn_str_get(&zero) : "0.f", hn_str_get(&scale));
        else snprintf(other, sizeof other, "%s", operand);
        cuda_print_number(&a, post->alpha);
        cuda_print_number(&b, post->beta);
        if (status == HONE_OK) {
            cuda_step_text(&e->body, e->temps, "float", formula, post->swapped ? other : acc, post->swapped ? acc : other, hn_str_get(&a), hn_str_get(&b));
            e->temps++;
        }
    }
    hn_str *const texts[] = {&scale, &zero, &a, &b};
    for (size_t i = 0; i < HN_COUNT_OF(texts); i++)
        hn_str_free(texts[i]);
    return status;
}

static hn_status print_epilogue(hone_error *err, epilogue *e, hn_str *out) {
    const hn_node *node = e->what->node;
    const char *type = cuda_ctype(e->q->y.dtype);
    hn_str_printf(&e->body, "    const float t0 = (float)sum * scale%s;\n", e->q->has_bias ? " + bias" : "");
    e->temps = 1;
    for (int i = 0; i < node->post_count; i++)
        HN_TRY(add_post(err, e, &node->post[i]));
    hn_str_printf(out, "static __device__ __forceinline__ OUT element(int sum, float scale, float bias%s) {\n%s    return %s%s%s(t%d);\n}\n",
                  hn_str_get(&e->scalars), hn_str_get(&e->body), e->stored ? "" : "store<", e->stored ? "(OUT)" : type,
                  e->stored ? "" : ">::of", e->temps - 1);
    hn_str_printf(out,
                  "static __device__ __forceinline__ void finish(const int *sums, i64 at, int col, const float *scale, const float *bias, OUT *y%s) {\n"
                  "    const vec<float, VEC> s = *(const vec<float, VEC> *)(scale + col);\n",
                  hn_str_get(&e->args));
    if (e->q->has_bias) hn_str_append(out, "    const vec<float, VEC> b = *(const vec<float, VEC> *)(bias + col);\n");
    hn_str_printf(out,
                  "%s    vec<OUT, VEC> result;\n#pragma unroll\n    for (int e = 0; e < VEC; e++)\n"
                  "        result.v[e] = element(sums[e], s.v[e], %s%s);\n    *(vec<OUT, VEC> *)(y + at) = result;\n}\n",
                  hn_str_get(&e->loads), e->q->has_bias ? "b.v[e]" : "0.f", hn_str_get(&e->call));
    hn_str_printf(out, "#define OPERAND_ARGS %s\n#define OPERAND_NAMES %s\n", hn_str_get(&e->args), hn_str_get(&e->names));
    return HONE_OK;
}

// ---- building -----------------------------------------------------------------------------------
// The least time by tiles that run one after the other on a multiprocessor. Large tiles feed the tensor cores
// best (an H200: 401 TOP/s of 8,192 numbers a warp against 298 of half of them, each with its steps); where sums
// are short the steps behind count, and several blocks side by side hide their memory.
static tile choose_tile(const cuda_device *d, const q_layer *q) {
    static const struct {
        tile t;
        double deep, flat; // outputs in a unit of time, relative, for long sums and for short ones
    } k_tiles[] = {{{128, 256, 64, 64, 4}, 1.0, 0.5},
                   {{128, 128, 64, 32, 4}, 0.65, 0.8},
                   {{128, 64, 32, 32, 4}, 0.5, 1.0},
                   {{64, 64, 32, 32, 4}, 0.4, 0.9},
                   {{64, 32, 32, 16, 4}, 0.25, 0.6}};
    double least = INFINITY;
    size_t best = HN_COUNT_OF(k_tiles) - 1;
    for (size_t i = 0; i < HN_COUNT_OF(k_tiles); i++) {
        const tile *t = &k_tiles[i].t;
        int64_t shared = (int64_t)t->stages * (t->bm + t->bn) * 64, blocks = (q->rows + t->bm - 1) / t->bm * ((q->cols + t->bn - 1) / t->bn);
        int64_t rounds = (blocks + d->caps.sm_count - 1) / d->caps.sm_count;
        double time = (double)rounds * t->bm * t->bn / (q->depth > SHORT_DEPTH ? k_tiles[i].deep : k_tiles[i].flat);
        if (shared > d->caps.shared_optin_bytes || time >= least) continue;
        least = time;
        best = i;
    }
    return k_tiles[best].t;
}

static void print_numbers(hn_str *s, const q_layer *q, const tile *t) {
    static const char *const k_dims[] = {"0", "1", "2"};
    bool flat = q->conv;
    for (int i = 0; q->conv && i < q->win.rank; i++)
        flat = flat && q->win.kernel[i] == 1 && q->win.stride[i] == 1 && q->win.pad_begin[i] == 0 && q->win.in[i] == q->win.out[i];
    int vec = q->cols % 8 == 0 ? 8 : q->cols % 4 == 0 ? 4 : 1;
    hn_str_printf(s, "#define BM %d\n#define BN %d\n#define WM %d\n#define WN %d\n#define STAGES %d\n", t->bm, t->bn, t->wm, t->wn, t->stages);
    hn_str_printf(s, "#define ROWS %lldll\n#define COLS %lld\n#define DEPTH %lld\n#define C %lld\n#define VEC %d\n#define CONV %d\ntypedef %s OUT;\n",
                  (long long)q->rows, (long long)q->cols, (long long)q->depth, (long long)q->channels, vec, q->conv && !flat, cuda_ctype(q->y.dtype));
    for (int i = 0; q->conv && i < 3; i++) { // dims that an image has not are of one
        int d = i - (3 - q->win.rank);
        const struct {
            const char *name;
            int64_t value;
        } numbers[] = {{"K", d < 0 ? 1 : q->win.kernel[d]},    {"D", d < 0 ? 1 : q->win.dilation[d]}, {"S", d < 0 ? 1 : q->win.stride[d]},
                       {"P", d < 0 ? 0 : q->win.pad_begin[d]}, {"IN", d < 0 ? 1 : q->win.in[d]},      {"OUT", d < 0 ? 1 : q->win.out[d]}};
        for (size_t n = 0; n < HN_COUNT_OF(numbers); n++)
            hn_str_printf(s, "#define %s%s %lld\n", numbers[n].name, k_dims[i], (long long)numbers[n].value);
    }
}

static hn_status operands(hone_error *err, cuda_kernel *k, const hn_node *node, q_layer *q, cuda_launch *launch) {
    cuda_const *weights, *scales;
    uint32_t bits;
    memcpy(&bits, &q->x_scale, sizeof bits);
    k->base.in_layout[X] = k->base.out_layout[0] = q->layout;
    HN_TRY(cuda_const_made(err, k->device, q->w.data, q->conv ? 301 : 302, (size_t)q->w.count, turn_weights, q, &weights));
    HN_TRY(cuda_kernel_hold(err, k, weights));
    HN_TRY(cuda_const_made(err, k->device, q->w_scale.data, (uint64_t)bits << 32 | 303, (size_t)q->cols * 4, make_scales, q, &scales));
    HN_TRY(cuda_kernel_hold(err, k, scales));
    HN_TRY(cuda_kernel_input(err, k, node, X, &launch->args[0]));
    launch->args[1] = cuda_arg_memory(weights->memory);
    launch->args[2] = cuda_arg_memory(scales->memory);
    launch->args[3] = cuda_arg_i64(0);
    if (q->has_bias) HN_TRY(cuda_kernel_input(err, k, node, BIAS, &launch->args[3]));
    launch->args[4] = cuda_arg_output(0);
    launch->arg_count = 5;
    for (int i = X_SCALE; i <= W_ZERO; i++)
        if (i < cpu_base_inputs(node) && node->inputs[i]) k->base.consumed |= 1ull << i;
    return HONE_OK;
}

// The tanh form by the unit for it: within 5e-4 of the exact one, at a sixth of its instructions.
static const char k_gelu[] =
    "__device__ __forceinline__ float gelu_coarse(float x) {\n"
    "    float t;\n"
    "    asm(\"tanh.approx.f32 %0, %1;\" : \"=f\"(t) : \"f\"(x * (0.7978845608f + 0.0356774081f * x * x)));\n"
    "    return 0.5f * x * (1.f + t);\n"
    "}\n";

static hn_status build(hone_error *err, cuda_kernel *k, const hn_select *what, q_layer *q) {
    cuda_launch launch = {0};
    epilogue e = {.k = k, .what = what, .q = q, .launch = &launch};
    hn_str s = {0}, end = {0};
    tile t = choose_tile(k->device, q);
    hone_status status = operands(err, k, what->node, q, &launch);
    if (status == HONE_OK) status = print_epilogue(err, &e, &end);
    hn_str *const parts[] = {&e.args, &e.names, &e.scalars, &e.loads, &e.call, &e.body};
    for (size_t i = 0; i < HN_COUNT_OF(parts); i++) {
        end.failed = end.failed || parts[i]->failed;
        hn_str_free(parts[i]);
    }
    hn_str_append(&s, cuda_text("prelude"));
    print_numbers(&s, q, &t);
    hn_str_append(&s, k_gelu);
    hn_str_append(&s, hn_str_get(&end));
    hn_str_append(&s, cuda_text("q_gemm"));
    int warps = t.bm / t.wm * (t.bn / t.wn);
    int64_t shared = hn_max_i64((int64_t)t.stages * (t.bm + t.bn) * 64, (int64_t)warps * 16 * (t.wn + 4) * 4);
    if (status == HONE_OK && (s.failed || end.failed)) status = HN_SET(err, HONE_ERR_NOMEM, "out of memory (writing a kernel)");
    if (status == HONE_OK) status = cuda_function_get(err, k->device, hn_str_get(&s), "hn_k_q_gemm", true, &launch.function);
    hn_str_free(&s);
    hn_str_free(&end);
    if (status == HONE_OK && shared > 48 << 10)
        status = cuda_check(err, k->device, k->device->api->cuFuncSetAttribute(launch.function.handle, HN_CU_FUNC_MAX_DYNAMIC_SHARED, (int)shared), "taking shared memory");
    if (status != HONE_OK) return status;
    launch.shared_bytes = (unsigned)shared;
    int64_t blocks = (q->rows + t.bm - 1) / t.bm * ((q->cols + t.bn - 1) / t.bn);
    cuda_launch_1d(&launch, blocks * warps * 32, warps * 32);
    return cuda_kernel_launch(err, k, &launch);
}

hone_status cuda_q_layer_select(hone_error *err, cuda_device *d, const hn_select *what, hn_kernel **out_kernel) {
    q_layer q = {0};
    if (!read(what->node, &q)) return HONE_ERR_UNSUPPORTED;
    cuda_kernel *k = cuda_kernel_new(d, what->node);
    if (!k) HN_NOMEM(err, "selecting a kernel");
    return cuda_kernel_done(build(err, k, what, &q), k, out_kernel);
}
