// SPDX-License-Identifier: Apache-2.0
// Attention as one kernel (kernels/cuda/attention.cu): hn.Attention of device graphs, and the standard
// operator where it has no cache, cap or window, in 16-bit floats with heads of at most 128 numbers.
// Heads are found by strides. float32 stays two products and a softmax: tensor cores would round it.
#include "backends/cuda/cuda_int.h"
#include "ops/nn_int.h"
#include <math.h>
#include <stdio.h>

#define MAX_SIZE 128

typedef struct attention {
    hn_attention at;
    hn_dtype dtype;
    int mask; // 0 none, 1 added, 2 truth
    bool causal;
    int empty_rows;
    double scale;
} attention;

// Warps of a block (16 queries each) and keys of a tile. Measured on an H200 for 128 to 1,024 tokens: eight
// warps share what is loaded; where that leaves SMs without a block, two with long tiles are faster (197
// tokens, 12 heads: 4.6 us instead of 6); wide heads leave no registers for eight.
static void shape_of(const cuda_device *d, const hn_attention *a, int *out_warps, int *out_tile) {
    int64_t tiles = (a->queries + 15) / 16, size = hn_max_i64(a->size, a->value_size);
    if (cuda_is_generic(d)) {
        *out_warps = 4;
        *out_tile = 64;
        return;
    }
    bool few = a->batch * a->heads * ((tiles + 7) / 8) < d->caps.sm_count;
    *out_warps = few ? (tiles > 1 ? 2 : 1) : size > 64 || size <= 32 ? 4 : 8;
    *out_tile = a->keys <= 32 || (!few && size <= 32) ? 32 : few && a->keys > 128 && size <= 64 ? 128 : 64;
}

// Elements that every access of these heads may take at once: 8 (16 bytes), 2 or 1.
static int together(const hn_heads *h, int64_t size) {
    const int64_t all[] = {h->offset, h->batch, h->head, h->row, size};
    int n = 8;
    for (int i = 0; i < 5; i++)
        while (n > 1 && all[i] % n)
            n /= 2;
    return n >= 8 ? 8 : n >= 2 ? 2 : 1;
}

static void print_heads(cuda_spec *s, const char *name, const hn_heads *h, int64_t size) {
    const struct {
        const char *form;
        int64_t value;
    } numbers[] = {{"%s_BATCH", h->batch}, {"%s_HEAD", h->head}, {"%s_ROW", h->row}};
    char text[32];
    for (size_t i = 0; i < HN_COUNT_OF(numbers); i++) {
        snprintf(text, sizeof text, numbers[i].form, name);
        cuda_spec_int(s, text, numbers[i].value);
    }
    snprintf(text, sizeof text, "VECTOR_%s", name);
    cuda_spec_int(s, text, together(h, size));
}

// Head sizes as the kernel holds them. Generic forms have two.
static int64_t padded(const cuda_device *d, int64_t size) {
    return !cuda_is_generic(d) ? (size + 15) / 16 * 16 : size <= 64 ? 64 : 128;
}

static void print(cuda_spec *s, const attention *a, int warps, int tile) {
    const hn_attention *at = &a->at;
    const char *type = cuda_ctype(a->dtype);
    bool generic = cuda_is_generic(s->d);
    int64_t dk = padded(s->d, at->size), dv = padded(s->d, at->value_size);
    cuda_spec_type(s, "T", type);
    cuda_spec_type(s, "M", a->mask == 2 ? "b8" : type);
    const struct {
        const char *name;
        int64_t value;
    } numbers[] = {{"IS_BF16", a->dtype == HN_BF16}, {"HEADS", at->heads}, {"GROUP", at->heads / at->kv_heads}, {"QUERIES", at->queries},
                   {"KEYS", at->keys}, {"SIZE_K", at->size}, {"SIZE_V", at->value_size}, {"DK", generic ? hn_max_i64(dk, dv) : dk},
                   {"DV", generic ? hn_max_i64(dk, dv) : dv}, {"WARPS", warps}, {"BN", tile}, {"MASK", a->mask}, {"CAUSAL", a->causal},
                   {"EMPTY", a->empty_rows}, {"PLAIN_SCALE", !a->mask && a->scale > 0}, {"MASK_BATCH", at->mask[0]},
                   {"MASK_HEAD", at->mask[1]}, {"MASK_Q", at->mask[2]}, {"MASK_K", at->mask[3]}};
    for (size_t i = 0; i < HN_COUNT_OF(numbers); i++)
        cuda_spec_int(s, numbers[i].name, numbers[i].value);
    print_heads(s, "Q", &at->q, at->size);
    print_heads(s, "K", &at->k, at->size);
    print_heads(s, "V", &at->v, at->value_size);
    print_heads(s, "Y", &at->y, at->value_size);
    cuda_spec_real(s, "SCALE", a->scale * 1.4426950408889634); // exponents of two
}

static bool read(const hn_node *node, attention *a) {
    cpu_value v;
    bool step = *node->domain != '\0';
    if (!cpu_out(node, 0, &v) || !cuda_is_float16(v.dtype) || v.count == 0) return false;
    a->dtype = v.dtype;
    if (!hn_attention_read(node, cpu_base_inputs(node), &a->at)) return false;
    for (int i = 0; i < 3; i++)
        if (!cpu_in(node, i, &v) || v.dtype != a->dtype || v.count == 0 || v.count > INT32_MAX) return false;
    if (a->at.has_mask) {
        if (!cpu_in(node, 3, &v) || (v.dtype != a->dtype && v.dtype != HN_BOOL)) return false;
        a->mask = v.dtype == HN_BOOL ? 2 : 1;
    }
    a->causal = !step && hn_node_int(node, "is_causal", 0);
    a->empty_rows = step ? (int)hn_op_int(node, "empty_rows") : 2;
    a->scale = hn_node_attr(node, "scale") ? (double)hn_node_float(node, "scale", 1) : 1 / sqrt((double)a->at.size);
    return a->at.size <= MAX_SIZE && a->at.value_size <= MAX_SIZE && a->at.batch * a->at.heads < INT32_MAX / 4096;
}

hone_status cuda_attention_select(hone_error *err, cuda_device *d, const hn_select *what, hn_kernel **out_kernel) {
    const hn_node *node = what->node;
    attention a = {0};
    cpu_value y;
    if (!read(node, &a) || !cpu_out(node, 0, &y)) return HONE_ERR_UNSUPPORTED;
    cuda_kernel *k = cuda_kernel_new(d, node);
    if (!k) HN_NOMEM(err, "selecting a kernel");
    int warps, tile;
    shape_of(d, &a.at, &warps, &tile);
    int64_t wide_k = padded(d, a.at.size) + 8, wide_v = padded(d, a.at.value_size) + 8;
    if (cuda_is_generic(d)) wide_k = wide_v = hn_max_i64(wide_k, wide_v);
    int64_t shared = hn_max_i64(2 * tile * (wide_k + wide_v), (int64_t)warps * 16 * wide_v) * 2;
    cuda_launch launch = {.shared_bytes = (unsigned)shared};
    cuda_spec s;
    cuda_spec_begin(&s, d, "attention");
    print(&s, &a, warps, tile);
    hone_status status = cuda_spec_kernel(err, &s, "hn_k_attention", &launch);
    if (status == HONE_OK && shared > 48 << 10)
        status = cuda_check(err, d, d->api->cuFuncSetAttribute(launch.function.handle, HN_CU_FUNC_MAX_DYNAMIC_SHARED, (int)shared), "taking shared memory");
    const hn_heads *heads[] = {&a.at.q, &a.at.k, &a.at.v};
    int64_t item = (int64_t)hn_dtype_bytes(a.dtype);
    launch.args[3] = cuda_arg_i64(0);
    for (int i = 0; i < (a.mask ? 4 : 3) && status == HONE_OK; i++) {
        status = cuda_kernel_input(err, k, node, i, &launch.args[i]);
        if (i < 3) launch.args[i].offset += heads[i]->offset * item;
    }
    launch.args[4] = cuda_arg_output(0);
    launch.arg_count = 5;
    int64_t blocks = a.at.batch * a.at.heads * ((a.at.queries + warps * 16 - 1) / (warps * 16));
    if (status == HONE_OK && blocks > INT32_MAX) status = HONE_ERR_UNSUPPORTED;
    cuda_launch_1d(&launch, blocks * warps * 32, warps * 32);
    if (status == HONE_OK) status = cuda_kernel_launch(err, k, &launch);
    cuda_spec_end(&s);
    if (status == HONE_OK) status = cuda_posts(err, k, what, 0, &y.shape, y.dtype, CUDA_PLAIN);
    return cuda_kernel_done(status, k, out_kernel);
}
