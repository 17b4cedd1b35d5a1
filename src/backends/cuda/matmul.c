// SPDX-License-Identifier: Apache-2.0
// MatMul and Gemm through cuBLASLt: batched, transposed, with bias, activation and residual done in the
// product's own epilogue. The algorithm is the fastest of those the library proposes, tried once a problem
// on the memory the plan has.
//
// Row-major C = A B is asked for as column-major C' = B' A': cuBLASLt's first operand is our second.
#include <stdio.h>
#include "backends/cuda/product.h"
#include "ops/nn_int.h"

#define MAX_ALGOS     12
#define MAX_WORKSPACE ((size_t)32 << 20)
#define WORKSPACE_ALIGN 256
#define PAD_LEAST ((int64_t)1 << 18) // outputs from which a copy with even rows pays
#define CHOOSE_ITSELF (-2) // none of the proposals starts: the library's own choice

typedef struct product_state {
    const hn_cublaslt *lt;
    hn_lt_desc desc;
    hn_lt_layout a, b, c;
    hn_lt_result results[MAX_ALGOS];
    int found, chosen;
    int64_t step_call_c;             // bytes between the outputs of calls
    int calls;
    int64_t at_a[CUDA_MAX_CALLS], at_b[CUDA_MAX_CALLS]; // bytes
    cuda_arg arg_a, arg_b, arg_bias, arg_residual;
    bool has_bias, has_residual, wide;
    size_t workspace_at;             // the library's part begins there
    float alpha;
    char key[160];
} product_state;

// ---- what was measured before -------------------------------------------------------------------
// By problem: number of the algorithm among the library's proposals, for the process and in the store.
#define MAX_KNOWN 512
static struct {
    char key[160];
    int chosen;
} g_known[MAX_KNOWN];
static int g_known_count;
static pthread_mutex_t g_known_lock = PTHREAD_MUTEX_INITIALIZER;

static bool known_get(const char *key, int *out_chosen) {
    bool found = false;
    pthread_mutex_lock(&g_known_lock);
    for (int i = 0; i < g_known_count && !found; i++)
        if (!strcmp(g_known[i].key, key)) {
            *out_chosen = g_known[i].chosen;
            found = true;
        }
    pthread_mutex_unlock(&g_known_lock);
    return found;
}
// The key without the card's number.
static const char *problem(const product_state *s) { return strchr(s->key, ' ') + 1; }
static void known_put(const char *key, int chosen) {
    pthread_mutex_lock(&g_known_lock);
    if (g_known_count < MAX_KNOWN) {
        snprintf(g_known[g_known_count].key, sizeof g_known[0].key, "%s", key);
        g_known[g_known_count++].chosen = chosen;
    }
    pthread_mutex_unlock(&g_known_lock);
}

// What the store keeps: how many proposals there were, the chosen one and its workspace. It counts where
// the library proposes the same again.
static bool kept_get(const cuda_device *d, product_state *s) {
    hn_str text = {0};
    int found, chosen, end = 0;
    size_t workspace;
    bool good = cuda_kept_record(d, "cuda product", "cuBLASLt", s->lt->cublasLtGetVersion(), problem(s), &text) &&
                sscanf(hn_str_get(&text), "%d %d %zu%n", &found, &chosen, &workspace, &end) == 3 &&
                (size_t)end == text.length && found == s->found && chosen < found &&
                (chosen >= 0 ? s->results[chosen].workspace_bytes == workspace && s->results[chosen].status == HN_LT_OK
                             : chosen == CHOOSE_ITSELF);
    if (good) s->chosen = chosen;
    hn_str_free(&text);
    return good;
}
static void kept_put(const cuda_device *d, const product_state *s) {
    char text[64];
    snprintf(text, sizeof text, "%d %d %zu", s->found, s->chosen, s->chosen < 0 ? (size_t)0 : s->results[s->chosen].workspace_bytes);
    cuda_keep_record(d, "cuda product", "cuBLASLt", s->lt->cublasLtGetVersion(), problem(s), text);
}

// ---- shapes -------------------------------------------------------------------------------------
static bool product_shape(product *p) {
    hn_shape a = p->a.shape, b = p->b.shape;
    if (!hn_product_shape(&a, &b, p->trans_a, p->trans_b, &p->m, &p->k, &p->n) || p->m < 1 || p->n < 1 || p->k < 1)
        return false;
    int64_t a_batch = 1, b_batch = 1;
    for (int i = 0; i + 2 < a.rank; i++)
        a_batch *= a.dims[i];
    for (int i = 0; i + 2 < b.rank; i++)
        b_batch *= b.dims[i];
    p->calls = 1;
    p->batch = 1;
    if (b_batch == 1 && (!p->trans_a || a_batch == 1)) { // all rows of A make one matrix
        p->m *= a_batch;
        return true;
    }
    int rank = (a.rank > b.rank ? a.rank : b.rank) - 2;
    if (rank < 1) return false; // not with one batch on both sides
    int64_t dims[HN_MAX_RANK], sa[HN_MAX_RANK], sb[HN_MAX_RANK], step_a = p->m * p->k, step_b = p->k * p->n;
    for (int i = rank - 1; i >= 0; i--) {
        int ai = i - (rank - (a.rank - 2)), bi = i - (rank - (b.rank - 2));
        int64_t da = ai >= 0 ? a.dims[ai] : 1, db = bi >= 0 ? b.dims[bi] : 1;
        dims[i] = da > db ? da : db;
        sa[i] = da == 1 ? 0 : step_a;
        sb[i] = db == 1 ? 0 : step_b;
        step_a *= da;
        step_b *= db;
    }
    // The innermost batch dims that both sides walk evenly are one call's batch.
    int64_t batch = dims[rank - 1];
    int outer = rank - 1;
    while (outer > 0 && sa[outer - 1] == sa[rank - 1] * batch && sb[outer - 1] == sb[rank - 1] * batch)
        batch *= dims[--outer];
    int64_t calls = 1;
    for (int i = 0; i < outer; i++)
        calls *= dims[i];
    if (calls > CUDA_MAX_CALLS || batch > INT32_MAX) return false;
    p->batch = batch;
    p->step_a = sa[rank - 1];
    p->step_b = sb[rank - 1];
    p->step_c = p->m * p->n;
    p->calls = (int)calls;
    for (int64_t c = 0; c < calls; c++) {
        int64_t rest = c;
        p->at_a[c] = p->at_b[c] = 0;
        for (int i = outer - 1; i >= 0; i--) {
            p->at_a[c] += rest % dims[i] * sa[i];
            p->at_b[c] += rest % dims[i] * sb[i];
            rest /= dims[i];
        }
    }
    return true;
}

// ---- the epilogue -------------------------------------------------------------------------------
// A vector over the columns of the output?
static bool is_row_vector(const hn_node *node, int input, const product *p) {
    cpu_value v;
    if (!cpu_in(node, input, &v) || v.dtype != p->c.dtype || v.count != p->n) return false;
    return v.shape.rank >= 1 && v.shape.dims[v.shape.rank - 1] == p->n;
}

void cuda_product_posts(const hn_node *node, bool library, product *p) {
    int at = 0;
    bool half = cuda_is_float16(p->c.dtype);
    cpu_value factor; // a scale right behind the product is its alpha
    if (node->post_count && node->post[0].op == hn_op_find("", "Mul") && p->bias < 0 && p->residual < 0 && node->post[0].input >= 0 &&
        cpu_in(node, node->post[0].input, &factor) && factor.data && factor.count == 1 && p->c.dtype != HN_F64) {
        p->alpha *= (float)hn_tensor_get_f64(factor.value->constant, 0);
        p->scale_post = at++;
    }
    p->epilogue = p->bias >= 0 ? HN_LT_EPILOGUE_BIAS : HN_LT_EPILOGUE_DEFAULT;
    p->posts_done = at;
    if (p->c.dtype == HN_F64) return; // no epilogues
    if (at < node->post_count && node->post[at].op == hn_op_find("", "Add") && p->bias < 0 && p->calls == 1 &&
        node->post[at].input >= 0 && is_row_vector(node, node->post[at].input, p)) {
        p->bias = node->post[at++].input;
        p->epilogue = HN_LT_EPILOGUE_BIAS;
    }
    // What is added comes before the activation in the library's epilogue, too.
    cpu_value v;
    if (at < node->post_count && node->post[at].op == hn_op_find("", "Add") && node->post[at].input >= 0 && p->residual < 0 &&
        cpu_in(node, node->post[at].input, &v) && v.dtype == p->c.dtype && hn_shape_equal(&v.shape, &p->c.shape))
        p->residual = node->post[at++].input;
    int activation = 0;
    // Its Relu makes 0 of NaN with some algorithms; ours, behind, does not.
    // The library has the tanh form only; the two differ by less than a rounding of 16-bit floats.
    if (library && at < node->post_count && node->post[at].op == hn_op_find("", "Gelu") && (node->post[at].alpha != 0 || half))
        activation = HN_LT_EPILOGUE_GELU;
    if (activation) {
        p->epilogue = p->epilogue == HN_LT_EPILOGUE_DEFAULT ? activation : p->epilogue | activation;
        at++;
    }
    p->posts_done = at;
}

// ---- running ------------------------------------------------------------------------------------
static int start(const cuda_kernel *k, const product_state *s, const hn_args *args, const hn_lt_result *result) {
    char *a = cuda_arg_pointer(&s->arg_a, args), *b = cuda_arg_pointer(&s->arg_b, args), *c = args->outputs[0];
    char *residual = s->has_residual ? cuda_arg_pointer(&s->arg_residual, args) : c;
    // The library wants a workspace that begins at 256 bytes; slabs align to 64.
    size_t workspace_bytes = k->base.workspace_bytes > s->workspace_at ? k->base.workspace_bytes - s->workspace_at - WORKSPACE_ALIGN : 0;
    void *workspace = workspace_bytes ? cuda_pointer((cuda_address(args->workspace) + s->workspace_at + WORKSPACE_ALIGN - 1) / WORKSPACE_ALIGN * WORKSPACE_ALIGN) : NULL;
    double alpha_wide = s->alpha, beta_wide = s->has_residual;
    float alpha = s->alpha, beta = s->has_residual;
    for (int i = 0; i < s->calls; i++) {
        int status = s->lt->cublasLtMatmul(k->device->lt_handle, s->desc, s->wide ? (void *)&alpha_wide : &alpha, b + s->at_b[i], s->b,
                                           a + s->at_a[i], s->a, s->wide ? (void *)&beta_wide : &beta, residual + i * s->step_call_c, s->c,
                                           c + i * s->step_call_c, s->c, result ? &result->algo : NULL, workspace, workspace_bytes,
                                           k->device->stream);
        if (status != HN_LT_OK) return status;
    }
    return HN_LT_OK;
}

// The fastest proposal: a warm-up and the best of three rounds of four each, by the device's clock.
static hn_status measure(hone_error *err, cuda_kernel *k, product_state *s, const hn_args *args) {
    cuda_device *d = k->device;
    const hn_cuda *api = d->api;
    hn_cu_event begin, end;
    float best = 0;
    int last = HN_LT_OK;
    s->chosen = -1;
    CUDA_TRY(err, d, api->cuEventCreate(&begin, 0), "timing");
    CUDA_TRY(err, d, api->cuEventCreate(&end, 0), "timing");
    for (int i = 0; i < s->found; i++) {
        if (s->results[i].status != HN_LT_OK) continue;
        int status = start(k, s, args, &s->results[i]);
        if (status != HN_LT_OK) {
            last = status;
            continue;
        }
        for (int round = 0; round < 3; round++) {
            float ms;
            CUDA_TRY(err, d, api->cuEventRecord(begin, d->stream), "timing");
            for (int repeat = 0; repeat < 4; repeat++)
                start(k, s, args, &s->results[i]);
            CUDA_TRY(err, d, api->cuEventRecord(end, d->stream), "timing");
            CUDA_TRY(err, d, api->cuEventSynchronize(end), "timing a product");
            CUDA_TRY(err, d, api->cuEventElapsedTime(&ms, begin, end), "timing");
            if (s->chosen < 0 || ms < best) {
                best = ms;
                s->chosen = i;
            }
        }
    }
    api->cuEventDestroy_v2(begin);
    api->cuEventDestroy_v2(end);
    if (s->chosen < 0) s->chosen = CHOOSE_ITSELF;
    if (s->chosen == CHOOSE_ITSELF && start(k, s, args, NULL) != HN_LT_OK)
        HN_FAIL(err, HONE_ERR_DEVICE, "%s: cuBLASLt starts none of the %d algorithms it proposes (%d)", k->label, s->found, last);
    return HONE_OK;
}

static hone_status product_run(hone_error *err, cuda_kernel *k, const hn_args *args) {
    product_state *s = k->call_state;
    if (s->has_bias && s->arg_bias.kind != CUDA_ARG_MEMORY) { // moves with the caller's memory only
        void *bias = cuda_arg_pointer(&s->arg_bias, args);
        s->lt->cublasLtMatmulDescSetAttribute(s->desc, HN_LT_DESC_BIAS_POINTER, &bias, sizeof bias);
    }
    if (s->chosen == -1 && !known_get(s->key, &s->chosen)) {
        if (kept_get(k->device, s)) {
            known_put(s->key, s->chosen);
        } else if (k->device->recording) {
            s->chosen = 0;
        } else {
            HN_TRY(measure(err, k, s, args));
            known_put(s->key, s->chosen);
            kept_put(k->device, s);
        }
    }
    int status = start(k, s, args, s->chosen == CHOOSE_ITSELF ? NULL : &s->results[s->chosen]);
    if (status != HN_LT_OK) HN_FAIL(err, HONE_ERR_DEVICE, "%s: cuBLASLt fails (%d)", k->label, status);
    return HONE_OK;
}

static void product_free(cuda_kernel *k) {
    product_state *s = k->call_state;
    if (!s) return;
    if (s->desc) s->lt->cublasLtMatmulDescDestroy(s->desc);
    hn_lt_layout layouts[] = {s->a, s->b, s->c};
    for (int i = 0; i < 3; i++)
        if (layouts[i]) s->lt->cublasLtMatrixLayoutDestroy(layouts[i]);
    hn_free(s);
}

// ---- building -----------------------------------------------------------------------------------
static int data_type(hn_dtype dtype) {
    return dtype == HN_F32 ? HN_CUDA_R_32F : dtype == HN_F16 ? HN_CUDA_R_16F : dtype == HN_BF16 ? HN_CUDA_R_16BF : HN_CUDA_R_64F;
}

static bool layout_make(const product_state *s, hn_lt_layout *out, int type, int64_t rows, int64_t columns, int64_t batch,
                        int64_t step) {
    const hn_cublaslt *lt = s->lt;
    int32_t count = (int32_t)batch;
    if (lt->cublasLtMatrixLayoutCreate(out, type, (uint64_t)rows, (uint64_t)columns, rows) != HN_LT_OK) return false;
    return batch == 1 ||
           (lt->cublasLtMatrixLayoutSetAttribute(*out, HN_LT_LAYOUT_BATCH_COUNT, &count, sizeof count) == HN_LT_OK &&
            lt->cublasLtMatrixLayoutSetAttribute(*out, HN_LT_LAYOUT_BATCH_STRIDE, &step, sizeof step) == HN_LT_OK);
}

static bool descriptors(product_state *s, const product *p, bool tf32) {
    const hn_cublaslt *lt = s->lt;
    hn_dtype dtype = p->c.dtype;
    int type = data_type(dtype), yes = 1, compute = dtype == HN_F64 ? HN_LT_COMPUTE_64F : tf32 && dtype == HN_F32 ? HN_LT_COMPUTE_32F_TF32 : HN_LT_COMPUTE_32F;
    if (lt->cublasLtMatmulDescCreate(&s->desc, compute, dtype == HN_F64 ? HN_CUDA_R_64F : HN_CUDA_R_32F) != HN_LT_OK) return false;
    if (p->trans_b && lt->cublasLtMatmulDescSetAttribute(s->desc, HN_LT_DESC_TRANSA, &yes, sizeof yes) != HN_LT_OK) return false;
    if (p->trans_a && lt->cublasLtMatmulDescSetAttribute(s->desc, HN_LT_DESC_TRANSB, &yes, sizeof yes) != HN_LT_OK) return false;
    if (lt->cublasLtMatmulDescSetAttribute(s->desc, HN_LT_DESC_EPILOGUE, &p->epilogue, sizeof p->epilogue) != HN_LT_OK) return false;
    return layout_make(s, &s->b, type, p->trans_b ? p->k : p->n, p->trans_b ? p->n : p->k, p->batch, p->step_b) &&
           layout_make(s, &s->a, type, p->trans_a ? p->m : p->k, p->trans_a ? p->k : p->m, p->batch, p->step_a) &&
           layout_make(s, &s->c, type, p->n, p->m, p->batch, p->step_c);
}

static bool propose(cuda_device *d, product_state *s) {
    const hn_cublaslt *lt = s->lt;
    hn_lt_preference preference;
    size_t workspace = MAX_WORKSPACE;
    if (lt->cublasLtMatmulPreferenceCreate(&preference) != HN_LT_OK) return false;
    lt->cublasLtMatmulPreferenceSetAttribute(preference, HN_LT_PREF_WORKSPACE, &workspace, sizeof workspace);
    // Slabs align to 64 bytes, matrices inside of a value to their elements only.
    for (int which = HN_LT_PREF_ALIGN_A; which <= HN_LT_PREF_ALIGN_D; which++) {
        uint32_t bytes = s->calls > 1 ? 2 : 16;
        lt->cublasLtMatmulPreferenceSetAttribute(preference, which, &bytes, sizeof bytes);
    }
    int status = lt->cublasLtMatmulAlgoGetHeuristic(d->lt_handle, s->desc, s->b, s->a, s->c, s->c, preference, MAX_ALGOS, s->results, &s->found);
    lt->cublasLtMatmulPreferenceDestroy(preference);
    return status == HN_LT_OK && s->found > 0;
}

// ---- rows of odd length -------------------------------------------------------------------------
static bool wants_padding(const product *p) {
    return cuda_is_float16(p->c.dtype) && p->calls == 1 && p->batch == 1 && !p->trans_a && p->k % 8 && p->b.data && !p->a.data &&
           p->b.count == p->k * p->n && p->m * p->n >= PAD_LEAST;
}

static void pad_weights(void *user, void *out) {
    const product *p = user;
    size_t item = hn_dtype_bytes(p->c.dtype), rows = (size_t)(p->trans_b ? p->n : p->narrow), row = (size_t)(p->trans_b ? p->narrow : p->n) * item;
    size_t step = p->trans_b ? (size_t)p->k * item : row;
    memset(out, 0, (size_t)(p->k * p->n) * item);
    for (size_t i = 0; i < rows; i++)
        memcpy((char *)out + i * step, (const char *)p->b.data + i * row, row);
}

// Both operands with zeros up to whole 16 bytes: ours on the way, the weights once.
static hn_status pad(hone_error *err, cuda_kernel *k, const hn_node *node, product *p, product_state *s) {
    p->narrow = p->k;
    p->k = (p->k + 7) / 8 * 8;
    cuda_const *weights;
    size_t item = hn_dtype_bytes(p->c.dtype);
    HN_TRY(cuda_const_made(err, k->device, p->b.data, 200 + (uint64_t)p->k * 2 + p->trans_b, (size_t)(p->k * p->n) * item, pad_weights, p, &weights));
    HN_TRY(cuda_kernel_hold(err, k, weights));
    k->base.consumed |= 2;
    s->arg_b = cuda_arg_memory(weights->memory);
    cuda_spec text;
    cuda_spec_begin(&text, k->device, "pad_rows");
    cuda_spec_type(&text, "T", "u16"); // the bits of either type
    cuda_spec_int(&text, "ROWS", p->m);
    cuda_spec_int(&text, "COUNT", p->narrow);
    cuda_spec_int(&text, "WIDE", p->k);
    cuda_spec_reach(&text, p->m * p->k);
    cuda_launch launch = {0};
    hone_status status = cuda_spec_kernel(err, &text, "hn_k_pad_rows", &launch);
    if (status == HONE_OK) status = cuda_kernel_input(err, k, node, 0, &launch.args[0]);
    launch.args[1] = cuda_arg_workspace(0);
    launch.arg_count = 2;
    cuda_launch_1d(&launch, p->m * (p->k / 8), 256);
    if (status == HONE_OK) status = cuda_kernel_launch(err, k, &launch);
    cuda_spec_end(&text);
    HN_TRY(status);
    k->before = 1;
    s->arg_a = cuda_arg_workspace(0);
    s->workspace_at = (size_t)(p->m * p->k) * item;
    return HONE_OK;
}

static hn_status product_build(hone_error *err, cuda_kernel *k, const hn_select *what, product *p) {
    cuda_device *d = k->device;
    const hn_node *node = what->node;
    size_t item = hn_dtype_bytes(p->c.dtype);
    product_state *s = hn_calloc(1, sizeof *s);
    if (!s) HN_NOMEM(err, "selecting a kernel");
    k->call_state = s;
    k->call_free = product_free;
    k->call = product_run;
    s->lt = d->lt;
    s->chosen = -1;
    s->alpha = p->alpha;
    s->wide = p->c.dtype == HN_F64;
    if (wants_padding(p)) {
        HN_TRY(pad(err, k, node, p, s));
    } else {
        HN_TRY(cuda_kernel_input(err, k, node, 0, &s->arg_a));
        HN_TRY(cuda_kernel_input(err, k, node, 1, &s->arg_b));
    }
    if (p->scale_post >= 0) k->base.consumed |= 1ull << node->post[p->scale_post].input;
    s->has_bias = p->bias >= 0;
    s->has_residual = p->residual >= 0;
    if (s->has_bias) HN_TRY(cuda_kernel_input(err, k, node, p->bias, &s->arg_bias));
    if (s->has_residual) HN_TRY(cuda_kernel_input(err, k, node, p->residual, &s->arg_residual));
    s->calls = p->calls;
    s->step_call_c = p->calls > 1 ? p->batch * p->m * p->n * (int64_t)item : 0;
    for (int i = 0; i < p->calls; i++) {
        s->at_a[i] = p->at_a[i] * (int64_t)item;
        s->at_b[i] = p->at_b[i] * (int64_t)item;
    }
    bool tf32 = cuda_tf32(what);
    snprintf(s->key, sizeof s->key, "%d %d%d%d %lldx%lldx%lld %lld %lld,%lld e%d%d c%d", d->index, (int)p->c.dtype, p->trans_a, p->trans_b,
             (long long)p->m, (long long)p->n, (long long)p->k, (long long)p->batch, (long long)p->step_a, (long long)p->step_b,
             p->epilogue | tf32 << 16, s->has_residual, p->calls > 1);
    if (!descriptors(s, p, tf32)) return HONE_ERR_UNSUPPORTED;
    if (s->has_bias && s->arg_bias.kind == CUDA_ARG_MEMORY) {
        void *bias = cuda_pointer(s->arg_bias.value);
        s->lt->cublasLtMatmulDescSetAttribute(s->desc, HN_LT_DESC_BIAS_POINTER, &bias, sizeof bias);
    } else if (s->has_bias) { // any aligned address will do for the proposals
        void *bias = cuda_pointer(d->fault_device);
        s->lt->cublasLtMatmulDescSetAttribute(s->desc, HN_LT_DESC_BIAS_POINTER, &bias, sizeof bias);
    }
    if (!propose(d, s)) return HONE_ERR_UNSUPPORTED;
    for (int i = 0; i < s->found; i++)
        if (s->results[i].workspace_bytes > k->base.workspace_bytes) k->base.workspace_bytes = s->results[i].workspace_bytes;
    if (k->base.workspace_bytes) k->base.workspace_bytes += WORKSPACE_ALIGN;
    k->base.workspace_bytes += s->workspace_at;
    return cuda_posts(err, k, what, p->posts_done, &p->c.shape, p->c.dtype, CUDA_PLAIN);
}

bool cuda_product_read(const hn_select *what, product *p) {
    const hn_node *node = what->node;
    bool gemm = !strcmp(node->op_type, "Gemm");
    p->alpha = gemm ? hn_node_float(node, "alpha", 1) : 1;
    p->trans_a = gemm && hn_node_int(node, "transA", 0);
    p->trans_b = gemm && hn_node_int(node, "transB", 0);
    p->bias = p->residual = p->scale_post = -1;
    // A transpose of the last two dims may have come as the other layout.
    p->turned = !gemm && cuda_hint(what, 1) == CUDA_LAST && !node->inputs[1]->constant && node->inputs[1]->type.rank == 3;
    if (!cpu_in(node, 0, &p->a) || !cpu_in(node, 1, &p->b) || !cpu_out(node, 0, &p->c) || p->a.dtype != p->c.dtype || p->b.dtype != p->c.dtype ||
        (p->c.dtype != HN_F32 && p->c.dtype != HN_F64 && !cuda_is_float16(p->c.dtype)) || !p->c.count || !product_shape(p))
        return false;
    if (gemm && cpu_base_inputs(node) > 2 && node->inputs[2]) {
        cpu_value c;
        if (hn_node_float(node, "beta", 1) != 1 || !cpu_in(node, 2, &c) || c.dtype != p->c.dtype || p->c.dtype == HN_F64) return false;
        if (is_row_vector(node, 2, p)) p->bias = 2;
        else if (hn_shape_equal(&c.shape, &p->c.shape)) p->residual = 2;
        else return false;
    }
    if (p->turned) p->trans_b = true; // steps between matrices stay
    return true;
}

hone_status cuda_matmul_select(hone_error *err, cuda_device *d, const hn_select *what, hn_kernel **out_kernel) {
    product *p = hn_calloc(1, sizeof *p);
    if (!p) HN_NOMEM(err, "selecting a kernel");
    hone_status status = cuda_product_read(what, p) ? cuda_lt(err, d) : HONE_ERR_UNSUPPORTED;
    if (status == HONE_OK) cuda_product_posts(what->node, true, p);
    cuda_kernel *k = status == HONE_OK ? cuda_kernel_new(d, what->node) : NULL;
    if (status == HONE_OK && !k) status = HN_SET(err, HONE_ERR_NOMEM, "out of memory (selecting a kernel)");
    if (status == HONE_OK && p->turned) k->base.in_layout[1] = CUDA_LAST;
    if (status == HONE_OK) status = product_build(err, k, what, p);
    hn_free(p);
    return cuda_kernel_done(status, k, out_kernel);
}
