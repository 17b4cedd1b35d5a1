// SPDX-License-Identifier: Apache-2.0
// Attention as one kernel (kernels/cuda/attention.cu): hn.Attention of device graphs, and the standard
// operator where it has no cache, cap or window, in 16-bit floats with heads of at most 128 numbers.
// Heads are found by strides. float32 stays two products and a softmax: tensor cores would round it.
#include "backends/cuda/cuda_int.h"
#include "ops/nn_int.h"
#include <math.h>

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
    bool few = a->batch * a->heads * ((tiles + 7) / 8) < d->caps.sm_count;
    *out_warps = few ? (tiles > 1 ? 2 : 1) : size > 64 || size <= 32 ? 4 : 8;
    *out_tile = a->keys <= 32 || (!few && size <= 32) ? 32 : few && a->keys > 128 && size <= 64 ? 128 : 64;
}

static void define(hn_str *s, const char *name, int64_t value) { hn_str_printf(s, "#define %s %lld\n", name, (long long)value); }

// Elements that every access of these heads may take at once: 8 (16 bytes), 2 or 1.
static int together(const hn_heads *h, int64_t size) {
    const int64_t all[] = {h->offset, h->batch, h->head, h->row, size};
    int n = 8;
    for (int i = 0; i < 5; i++)
        while (n > 1 && all[i] % n)
            n /= 2;
    return n >= 8 ? 8 : n >= 2 ? 2 : 1;
}

static void print_heads(hn_str *s, const char *name, const hn_heads *h, int64_t size) {
    hn_str_printf(s, "#define %s_BATCH %lld\n#define %s_HEAD %lld\n#define %s_ROW %lld\n#define VECTOR_%s %d\n", name, (long long)h->batch, name,
                  (long long)h->head, name, (long long)h->row, name, together(h, size));
}

static void print(hn_str *s, const attention *a, int warps, int tile) {
    const hn_attention *at = &a->at;
    const char *type = cuda_ctype(a->dtype);
    hn_str_append(s, cuda_text("prelude"));
    hn_str_printf(s, "typedef %s T;\ntypedef %s M;\n", type, a->mask == 2 ? "b8" : type);
    const struct {
        const char *name;
        int64_t value;
    } numbers[] = {{"IS_BF16", a->dtype == HN_BF16}, {"HEADS", at->heads}, {"GROUP", at->heads / at->kv_heads}, {"QUERIES", at->queries},
                   {"KEYS", at->keys}, {"SIZE_K", at->size}, {"SIZE_V", at->value_size}, {"DK", (at->size + 15) / 16 * 16},
                   {"DV", (at->value_size + 15) / 16 * 16}, {"WARPS", warps}, {"BN", tile}, {"MASK", a->mask}, {"CAUSAL", a->causal},
                   {"EMPTY", a->empty_rows}, {"PLAIN_SCALE", !a->mask && a->scale > 0}, {"MASK_BATCH", at->mask[0]},
                   {"MASK_HEAD", at->mask[1]}, {"MASK_Q", at->mask[2]}, {"MASK_K", at->mask[3]}};
    for (size_t i = 0; i < HN_COUNT_OF(numbers); i++)
        define(s, numbers[i].name, numbers[i].value);
    print_heads(s, "Q", &at->q, at->size);
    print_heads(s, "K", &at->k, at->size);
    print_heads(s, "V", &at->v, at->value_size);
    print_heads(s, "Y", &at->y, at->value_size);
    hn_str_append(s, "#define SCALE ((float)");
    cuda_print_number(s, a->scale * 1.4426950408889634); // exponents of two
    hn_str_append(s, ")\n");
    hn_str_append(s, cuda_text("mma"));
    hn_str_append(s, cuda_text("attention"));
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
    int64_t wide_k = (a.at.size + 15) / 16 * 16 + 8, wide_v = (a.at.value_size + 15) / 16 * 16 + 8;
    int64_t shared = hn_max_i64(2 * tile * (wide_k + wide_v), (int64_t)warps * 16 * wide_v) * 2;
    cuda_launch launch = {.shared_bytes = (unsigned)shared};
    hn_str s = {0};
    print(&s, &a, warps, tile);
    hone_status status = s.failed ? HN_SET(err, HONE_ERR_NOMEM, "out of memory (writing a kernel)")
                                  : cuda_function_get(err, d, hn_str_get(&s), "hn_k_attention", false, &launch.function);
    hn_str_free(&s);
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
    if (status == HONE_OK) status = cuda_posts(err, k, what, 0, &y.shape, y.dtype, CUDA_PLAIN);
    return cuda_kernel_done(status, k, out_kernel);
}
