// SPDX-License-Identifier: Apache-2.0
// Conv and ConvTranspose through cuDNN's graph interface: channels-last, with bias, residual and
// activation in the same graph as far as an engine takes them; what is left runs as one element-wise
// kernel behind.
//
// The engine is the fastest of the first few that the heuristics propose and that can be built, tried in
// the first run on the plan's own memory. float32 without TF32 takes no engine on tensor cores. The store
// keeps the chosen plan as cuDNN's JSON; a later process builds neither graph nor engines.
#include <stdio.h>
#include "backends/cpu/window.h"
#include "backends/cuda/cuda_int.h"

#define MAX_TRIES     8
#define MAX_CONFIGS   24
#define MAX_DESCS     64
#define MAX_WORKSPACE ((size_t)256 << 20)
#define BUILD_NS      500000000 // no further engine is tried for a convolution after half a second
#define MAX_JSON      ((int64_t)64 << 20)
#define HEAVY_FLOPS   1e10      // worth more tries: tens of microseconds at least
#define WIDE          8 // channels that 16-bit engines want

enum { ID_X = 1, ID_W, ID_Y, ID_BIAS, ID_FIRST_OPERAND = 10, ID_FIRST_VIRTUAL = 100 };

typedef struct conv {
    cpu_value x, w, y;
    bool transposed, has_bias;
    window window;
    hn_layout layout;
    int fused;                // posts taken into the graph
    bool widen;               // few channels, filled up to WIDE for the tensor cores
    hn_shape graph_x, graph_w; // as cuDNN sees them
} conv;

// Plans of one problem, shared by every node that has it.
typedef struct conv_plans {
    char key[320];
    const hn_cudnn *dnn;
    int index, references;    // device
    hn_dnn_desc descs[MAX_DESCS];
    int desc_count;
    hn_dnn_desc plans[MAX_TRIES];
    int64_t workspaces[MAX_TRIES];
    int plan_count, chosen, fused;
    bool kept;                // in the store, or not to be tried again
    bool bias_apart;          // no engine takes it: it runs with the posts
    int64_t operand_ids[HN_MAX_POST];
    struct conv_plans *next;
} conv_plans;
static conv_plans *g_plans;
static pthread_mutex_t g_plans_lock = PTHREAD_MUTEX_INITIALIZER;

typedef struct conv_state {
    const hn_cudnn *dnn;
    conv_plans *shared;
    size_t workspace_at;      // where the engine's begins
    // pointers by id
    int pointer_count;
    int64_t ids[HN_MAX_POST + 5];
    cuda_arg args[HN_MAX_POST + 5];
} conv_state;

// ---- descriptors --------------------------------------------------------------------------------
typedef struct maker {
    cuda_device *d;
    conv_plans *s;
    bool failed;
} maker;

static hn_dnn_desc make(maker *m, int type) {
    hn_dnn_desc desc = NULL;
    if (m->failed || m->s->desc_count == MAX_DESCS || m->d->dnn->cudnnBackendCreateDescriptor(type, &desc) != HN_DNN_OK) {
        m->failed = true;
        return NULL;
    }
    m->s->descs[m->s->desc_count++] = desc;
    return desc;
}
static void set(maker *m, hn_dnn_desc desc, int name, int type, int64_t count, const void *values) {
    if (!m->failed && m->d->dnn->cudnnBackendSetAttribute(desc, name, type, count, values) != HN_DNN_OK) m->failed = true;
}
static void set_int(maker *m, hn_dnn_desc desc, int name, int type, int value) { set(m, desc, name, type, 1, &value); }
static void set_desc(maker *m, hn_dnn_desc desc, int name, hn_dnn_desc value) { set(m, desc, name, HN_DNN_T_DESC, 1, &value); }
static void finalize(maker *m, hn_dnn_desc desc) {
    if (!m->failed && m->d->dnn->cudnnBackendFinalize(desc) != HN_DNN_OK) m->failed = true;
}

static int dnn_type(hn_dtype dtype) { return dtype == HN_F16 ? HN_DNN_F16 : dtype == HN_BF16 ? HN_DNN_BF16 : HN_DNN_F32; }

// Dims of at least rank 4 (a 1-D image gets a height of 1) with the strides of the layout.
static hn_dnn_desc tensor(maker *m, int64_t id, hn_dtype dtype, const hn_shape *shape, hn_layout layout, bool is_virtual) {
    hn_shape wide = *shape;
    int64_t strides[HN_MAX_RANK], align = 16;
    if (wide.rank == 3) {
        wide.dims[3] = wide.dims[2];
        wide.dims[2] = 1;
        wide.rank = 4;
    }
    cpu_strides(&wide, cuda_to_host(layout), strides);
    hn_dnn_desc t = make(m, HN_DNN_TENSOR);
    set_int(m, t, HN_DNN_A_TENSOR_TYPE, HN_DNN_T_DATA_TYPE, is_virtual ? HN_DNN_F32 : dnn_type(dtype));
    set(m, t, HN_DNN_A_TENSOR_DIMS, HN_DNN_T_I64, wide.rank, wide.dims);
    set(m, t, HN_DNN_A_TENSOR_STRIDES, HN_DNN_T_I64, wide.rank, strides);
    set(m, t, HN_DNN_A_TENSOR_ID, HN_DNN_T_I64, 1, &id);
    set(m, t, HN_DNN_A_TENSOR_ALIGN, HN_DNN_T_I64, 1, &align);
    if (is_virtual) set(m, t, HN_DNN_A_TENSOR_VIRTUAL, HN_DNN_T_BOOL, 1, &is_virtual);
    finalize(m, t);
    return t;
}

static hn_dnn_desc convolution(maker *m, const conv *c) {
    window w = c->window;
    if (w.rank == 1) {
        int64_t *lists[] = {w.stride, w.dilation, w.pad_begin, w.pad_end};
        static const int64_t fill[] = {1, 1, 0, 0};
        for (int i = 0; i < 4; i++) {
            lists[i][1] = lists[i][0];
            lists[i][0] = fill[i];
        }
        w.rank = 2;
    }
    int64_t rank = w.rank;
    hn_dnn_desc desc = make(m, HN_DNN_CONVOLUTION);
    set_int(m, desc, HN_DNN_A_CONV_COMPUTE, HN_DNN_T_DATA_TYPE, HN_DNN_F32);
    set_int(m, desc, HN_DNN_A_CONV_MODE, HN_DNN_T_CONV_MODE, HN_DNN_CROSS_CORRELATION);
    set(m, desc, HN_DNN_A_CONV_DIMS, HN_DNN_T_I64, 1, &rank);
    set(m, desc, HN_DNN_A_CONV_PRE, HN_DNN_T_I64, rank, w.pad_begin);
    set(m, desc, HN_DNN_A_CONV_POST, HN_DNN_T_I64, rank, w.pad_end);
    set(m, desc, HN_DNN_A_CONV_STRIDES, HN_DNN_T_I64, rank, w.stride);
    set(m, desc, HN_DNN_A_CONV_DILATIONS, HN_DNN_T_I64, rank, w.dilation);
    finalize(m, desc);
    return desc;
}

static hn_dnn_desc conv_op(maker *m, const conv *c, hn_dnn_desc x, hn_dnn_desc w, hn_dnn_desc y) {
    float alpha = 1, beta = 0;
    bool t = c->transposed;
    hn_dnn_desc desc = convolution(m, c), op = make(m, t ? HN_DNN_OP_CONV_DATA : HN_DNN_OP_CONV);
    set_desc(m, op, t ? HN_DNN_A_DATA_CONV : HN_DNN_A_FWD_CONV, desc);
    set_desc(m, op, t ? HN_DNN_A_DATA_DY : HN_DNN_A_FWD_X, x);
    set_desc(m, op, t ? HN_DNN_A_DATA_W : HN_DNN_A_FWD_W, w);
    set_desc(m, op, t ? HN_DNN_A_DATA_DX : HN_DNN_A_FWD_Y, y);
    set(m, op, t ? HN_DNN_A_DATA_ALPHA : HN_DNN_A_FWD_ALPHA, HN_DNN_T_F32, 1, &alpha);
    set(m, op, t ? HN_DNN_A_DATA_BETA : HN_DNN_A_FWD_BETA, HN_DNN_T_F32, 1, &beta);
    finalize(m, op);
    return op;
}

// ---- fused steps --------------------------------------------------------------------------------
static int pointwise_mode(const hn_post *post) {
    static const struct {
        const char *op;
        int mode;
    } k_modes[] = {
        {"Add", HN_DNN_PW_ADD},         {"Mul", HN_DNN_PW_MUL},   {"Relu", HN_DNN_PW_RELU},   {"Clip", HN_DNN_PW_RELU},
        {"LeakyRelu", HN_DNN_PW_RELU},  {"Sigmoid", HN_DNN_PW_SIGMOID}, {"Swish", HN_DNN_PW_SWISH}, {"Elu", HN_DNN_PW_ELU},
    }; // Tanh is not among them: in float32 an engine of cuDNN 9 gives wrong numbers (seen on an H200)
    for (size_t i = 0; i < HN_COUNT_OF(k_modes); i++)
        if (!strcmp(k_modes[i].op, post->op_type)) return k_modes[i].mode;
    return -1;
}

// A step that the graph may take: its operand whole or a value a channel. False where it may not.
static bool takes_post(const hn_node *node, const hn_post *post, const conv *c, bool *out_whole) {
    cpu_value v;
    if (post->scale >= 0 || post->zero >= 0 || pointwise_mode(post) < 0) return false;
    if (!strcmp(post->op_type, "Clip") && !(post->alpha == 0 && post->beta > 0)) return false;
    *out_whole = false;
    if (post->input < 0) return true;
    if (!cpu_in(node, post->input, &v) || v.dtype != c->y.dtype || v.data) return false;
    *out_whole = hn_shape_equal(&v.shape, &c->y.shape);
    return *out_whole;
}

static hn_dnn_desc pointwise(maker *m, int mode, const hn_post *post, hn_dnn_desc x, hn_dnn_desc b, hn_dnn_desc y) {
    hn_dnn_desc desc = make(m, HN_DNN_POINTWISE), op = make(m, HN_DNN_OP_POINTWISE);
    set_int(m, desc, HN_DNN_A_POINTWISE_MODE, HN_DNN_T_POINTWISE_MODE, mode);
    set_int(m, desc, HN_DNN_A_POINTWISE_MATH, HN_DNN_T_DATA_TYPE, HN_DNN_F32);
    set_int(m, desc, HN_DNN_A_POINTWISE_NAN, HN_DNN_T_NAN, HN_DNN_NAN_PROPAGATE);
    if (post && !strcmp(post->op_type, "Clip")) {
        double low = 0, high = post->beta;
        set(m, desc, HN_DNN_A_RELU_LOWER, HN_DNN_T_F64, 1, &low);
        set(m, desc, HN_DNN_A_RELU_UPPER, HN_DNN_T_F64, 1, &high);
    }
    double alpha = post ? post->alpha : 0;
    if (post && !strcmp(post->op_type, "LeakyRelu")) set(m, desc, HN_DNN_A_RELU_SLOPE, HN_DNN_T_F64, 1, &alpha);
    if (post && !strcmp(post->op_type, "Elu")) set(m, desc, HN_DNN_A_ELU_ALPHA, HN_DNN_T_F64, 1, &alpha);
    if (post && !strcmp(post->op_type, "Swish")) set(m, desc, HN_DNN_A_SWISH_BETA, HN_DNN_T_F64, 1, &alpha);
    finalize(m, desc);
    set_desc(m, op, HN_DNN_A_PW_DESC, desc);
    set_desc(m, op, HN_DNN_A_PW_X, x);
    if (b) set_desc(m, op, HN_DNN_A_PW_B, b);
    set_desc(m, op, HN_DNN_A_PW_Y, y);
    finalize(m, op);
    return op;
}

static hn_status bind_id(hone_error *err, cuda_kernel *k, const hn_node *node, int64_t id, int input) {
    conv_state *s = k->call_state;
    s->ids[s->pointer_count] = id;
    if (input < 0) s->args[s->pointer_count] = cuda_arg_output(0);
    else HN_TRY(cuda_kernel_input(err, k, node, input, &s->args[s->pointer_count]));
    s->pointer_count++;
    return HONE_OK;
}

typedef struct turn {
    const conv *c;
} turn;
// The weights, channels last and filled up.
static void widen_weights(void *user, void *out) {
    const conv *c = ((turn *)user)->c;
    size_t bytes = hn_dtype_bytes(c->w.dtype);
    int64_t channels = c->w.shape.dims[1], positions = c->w.count / (c->w.shape.dims[0] * channels);
    memset(out, 0, (size_t)(c->w.shape.dims[0] * positions * WIDE) * bytes);
    for (int64_t k = 0; k < c->w.shape.dims[0]; k++)
        for (int64_t i = 0; i < channels; i++)
            for (int64_t p = 0; p < positions; p++)
                memcpy((char *)out + (size_t)((k * positions + p) * WIDE + i) * bytes,
                       (const char *)c->w.data + (size_t)((k * channels + i) * positions + p) * bytes, bytes);
}

// A launch that brings the input into the workspace's beginning, wider. The input may lie in either layout.
static hn_status widen_input(hone_error *err, cuda_kernel *k, const hn_select *what, const conv *c, size_t *out_bytes) {
    const hn_shape *s = &c->x.shape;
    int64_t strides[HN_MAX_RANK], positions = c->x.count / (s->dims[0] * s->dims[1]);
    hn_layout layout = cuda_hint(what, 0);
    cpu_strides(s, cuda_to_host(layout), strides);
    cuda_spec text;
    cuda_spec_begin(&text, k->device, "channels");
    cuda_spec_type(&text, "T", "u16"); // the bits of either type
    cuda_spec_int(&text, "WIDE", WIDE);
    cuda_spec_int(&text, "CHANNELS", s->dims[1]);
    cuda_spec_int(&text, "IMAGES", s->dims[0]);
    cuda_spec_int(&text, "POSITIONS", positions);
    cuda_spec_int(&text, "STRIDE_IMAGE", strides[0]);
    cuda_spec_int(&text, "STRIDE_CHANNEL", strides[1]);
    cuda_spec_int(&text, "STRIDE_POSITION", layout == CUDA_LAST ? s->dims[1] : 1);
    cuda_spec_reach(&text, s->dims[0] * positions * WIDE);
    cuda_launch launch = {0};
    hone_status status = cuda_spec_kernel(err, &text, "hn_k_channels", &launch);
    if (status == HONE_OK) status = cuda_kernel_input(err, k, what->node, 0, &launch.args[0]);
    launch.args[1] = cuda_arg_workspace(0);
    launch.arg_count = 2;
    cuda_launch_1d(&launch, s->dims[0] * positions, 256);
    if (status == HONE_OK) status = cuda_kernel_launch(err, k, &launch);
    cuda_spec_end(&text);
    HN_TRY(status);
    k->before = 1;
    k->base.in_layout[0] = layout;
    *out_bytes = (size_t)(s->dims[0] * positions * WIDE) * hn_dtype_bytes(c->x.dtype);
    return HONE_OK;
}

static hn_status bind_weights(hone_error *err, cuda_kernel *k, const hn_node *node, const conv *c) {
    conv_state *s = k->call_state;
    k->base.in_layout[1] = c->layout;
    if (!c->w.data) return bind_id(err, k, node, ID_W, 1);
    cuda_const *weights;
    turn t = {c};
    if (!c->widen) HN_TRY(cuda_const_turned(err, k->device, &c->w, c->layout, &weights));
    else HN_TRY(cuda_const_made(err, k->device, c->w.data, c->layout + 100, c->w.value->constant->bytes / (size_t)c->w.shape.dims[1] * WIDE, widen_weights, &t, &weights));
    HN_TRY(cuda_kernel_hold(err, k, weights));
    k->base.consumed |= 2;
    s->ids[s->pointer_count] = ID_W;
    s->args[s->pointer_count++] = cuda_arg_memory(weights->memory);
    return HONE_OK;
}

// The operation graph with the first `fused` posts in it; NULL where cuDNN refuses a part of it.
static hn_dnn_desc graph(maker *m, const hn_node *node, const conv *c, int fused, int64_t *operand_ids) {
    hn_dnn_desc ops[HN_MAX_POST + 2];
    int64_t op_count = 0, next = ID_FIRST_VIRTUAL;
    int steps = c->has_bias + fused;
    hn_dnn_desc x = tensor(m, ID_X, c->x.dtype, &c->graph_x, c->layout, false);
    hn_dnn_desc w = tensor(m, ID_W, c->w.dtype, &c->graph_w, c->layout, false);
    hn_dnn_desc acc = tensor(m, steps ? next++ : ID_Y, c->y.dtype, &c->y.shape, c->layout, steps > 0);
    ops[op_count++] = conv_op(m, c, x, w, acc);
    for (int i = 0; i < steps; i++) {
        const hn_post *post = c->has_bias ? (i ? &node->post[i - 1] : NULL) : &node->post[i];
        hn_dnn_desc operand = NULL;
        if (!post) {
            hn_shape shape = c->y.shape;
            for (int k = 0; k < shape.rank; k++)
                if (k != 1) shape.dims[k] = 1;
            operand = tensor(m, ID_BIAS, c->y.dtype, &shape, c->layout, false);
        } else if (post->input >= 0) {
            operand_ids[i - c->has_bias] = ID_FIRST_OPERAND + i;
            operand = tensor(m, ID_FIRST_OPERAND + i, c->y.dtype, &c->y.shape, c->layout, false);
        }
        hn_dnn_desc out = tensor(m, i + 1 == steps ? ID_Y : next++, c->y.dtype, &c->y.shape, c->layout, i + 1 < steps);
        ops[op_count++] = pointwise(m, post ? pointwise_mode(post) : HN_DNN_PW_ADD, post, acc, operand, out);
        acc = out;
    }
    hn_dnn_desc desc = make(m, HN_DNN_GRAPH);
    set(m, desc, HN_DNN_A_GRAPH_OPS, HN_DNN_T_DESC, op_count, ops);
    set(m, desc, HN_DNN_A_GRAPH_HANDLE, HN_DNN_T_HANDLE, 1, &m->d->dnn_handle);
    finalize(m, desc);
    return m->failed ? NULL : desc;
}

// ---- engines ------------------------------------------------------------------------------------
static bool engine_rounds(maker *m, hn_dnn_desc config) {
    const hn_cudnn *dnn = m->d->dnn;
    hn_dnn_desc engine = NULL;
    int notes[16];
    int64_t count = 0, got = 0;
    bool rounds = false;
    if (dnn->cudnnBackendCreateDescriptor(HN_DNN_ENGINE, &engine) != HN_DNN_OK) return true;
    if (dnn->cudnnBackendGetAttribute(config, HN_DNN_A_CONFIG_ENGINE, HN_DNN_T_DESC, 1, &got, &engine) != HN_DNN_OK) rounds = true;
    else if (dnn->cudnnBackendGetAttribute(engine, HN_DNN_A_ENGINE_NOTES, HN_DNN_T_NOTE, 16, &count, notes) != HN_DNN_OK) rounds = true;
    for (int64_t i = 0; i < count && i < 16; i++)
        if (notes[i] == HN_DNN_NOTE_TENSOR_CORE || notes[i] == HN_DNN_NOTE_DOWN_CONVERT) rounds = true;
    dnn->cudnnBackendDestroyDescriptor(engine);
    return rounds;
}

// A plan from an engine's configuration, or from the JSON of one that was built before.
static bool plan_from(conv_plans *s, const cuda_device *d, int name, int type, int64_t count, const void *values) {
    const hn_cudnn *dnn = d->dnn;
    hn_dnn_desc plan = NULL;
    int64_t workspace = 0, got = 0;
    if (dnn->cudnnBackendCreateDescriptor(HN_DNN_PLAN, &plan) != HN_DNN_OK) return false;
    bool good = dnn->cudnnBackendSetAttribute(plan, HN_DNN_A_PLAN_HANDLE, HN_DNN_T_HANDLE, 1, &d->dnn_handle) == HN_DNN_OK &&
                dnn->cudnnBackendSetAttribute(plan, name, type, count, values) == HN_DNN_OK &&
                dnn->cudnnBackendFinalize(plan) == HN_DNN_OK &&
                dnn->cudnnBackendGetAttribute(plan, HN_DNN_A_PLAN_WORKSPACE, HN_DNN_T_I64, 1, &got, &workspace) == HN_DNN_OK &&
                workspace >= 0 && (size_t)workspace <= MAX_WORKSPACE;
    if (!good) {
        dnn->cudnnBackendDestroyDescriptor(plan);
        return false;
    }
    s->plans[s->plan_count] = plan;
    s->workspaces[s->plan_count++] = workspace;
    return true;
}

// Plans for a graph, best guess first. `exact`: no engine that rounds operands.
static void build_plans(maker *m, hn_dnn_desc operation_graph, bool exact, int tries) {
    static const int k_modes[] = {HN_DNN_HEUR_A, HN_DNN_HEUR_FALLBACK};
    const hn_cudnn *dnn = m->d->dnn;
    int64_t begin = hn_clock_ns();
    for (size_t mode = 0; mode < HN_COUNT_OF(k_modes) && m->s->plan_count == 0 && !m->failed; mode++) {
        hn_dnn_desc heuristic = NULL, configs[MAX_CONFIGS] = {0};
        int64_t found = 0;
        int made = 0;
        if (dnn->cudnnBackendCreateDescriptor(HN_DNN_HEURISTIC, &heuristic) != HN_DNN_OK) return;
        bool good = dnn->cudnnBackendSetAttribute(heuristic, HN_DNN_A_HEUR_GRAPH, HN_DNN_T_DESC, 1, &operation_graph) == HN_DNN_OK &&
                    dnn->cudnnBackendSetAttribute(heuristic, HN_DNN_A_HEUR_MODE, HN_DNN_T_HEUR_MODE, 1, &k_modes[mode]) == HN_DNN_OK &&
                    dnn->cudnnBackendFinalize(heuristic) == HN_DNN_OK;
        for (; good && made < MAX_CONFIGS; made++)
            if (dnn->cudnnBackendCreateDescriptor(HN_DNN_ENGINE_CONFIG, &configs[made]) != HN_DNN_OK) break;
        if (good && dnn->cudnnBackendGetAttribute(heuristic, HN_DNN_A_HEUR_RESULTS, HN_DNN_T_DESC, made, &found, configs) != HN_DNN_OK) found = 0;
        for (int64_t i = 0; i < found && i < made && m->s->plan_count < tries && m->s->plan_count < MAX_TRIES; i++) {
            // Engines compiled at run time take up to seconds each: what there is then has to do.
            if (m->s->plan_count && hn_clock_ns() - begin > BUILD_NS) break;
            if (!exact || !engine_rounds(m, configs[i])) plan_from(m->s, m->d, HN_DNN_A_PLAN_CONFIG, HN_DNN_T_DESC, 1, &configs[i]);
        }
        for (int i = 0; i < made; i++)
            dnn->cudnnBackendDestroyDescriptor(configs[i]);
        dnn->cudnnBackendDestroyDescriptor(heuristic);
    }
}

static void drop_descs(conv_plans *s) {
    for (int i = 0; i < s->plan_count; i++)
        s->dnn->cudnnBackendDestroyDescriptor(s->plans[i]);
    for (int i = s->desc_count - 1; i >= 0; i--)
        s->dnn->cudnnBackendDestroyDescriptor(s->descs[i]);
    s->plan_count = s->desc_count = 0;
}

static void plans_release(conv_plans *plans) {
    if (!plans) return;
    pthread_mutex_lock(&g_plans_lock);
    if (--plans->references == 0) {
        conv_plans **at = &g_plans;
        while (*at && *at != plans)
            at = &(*at)->next;
        if (*at) *at = plans->next;
        drop_descs(plans);
        hn_free(plans);
    }
    pthread_mutex_unlock(&g_plans_lock);
}

static conv_plans *plans_find(const char *key) {
    conv_plans *found;
    pthread_mutex_lock(&g_plans_lock);
    for (found = g_plans; found && strcmp(found->key, key) != 0;)
        found = found->next;
    if (found) found->references++;
    pthread_mutex_unlock(&g_plans_lock);
    return found;
}

static void plans_keep(conv_plans *plans) {
    pthread_mutex_lock(&g_plans_lock);
    plans->next = g_plans;
    g_plans = plans;
    pthread_mutex_unlock(&g_plans_lock);
}

// Everything the plans depend on.
static void plans_key(const cuda_device *d, const hn_node *node, const conv *c, bool exact, int most, char *out, size_t size) {
    hn_str s = {0};
    hn_str_printf(&s, "%d t%d b%d x%d l%u d%d n%d m%d ", d->index, c->transposed, c->has_bias, exact, c->layout, (int)c->y.dtype, d->tries, most);
    const hn_shape *shapes[] = {&c->graph_x, &c->graph_w, &c->y.shape};
    for (int i = 0; i < 3; i++) {
        hn_shape_print(&s, shapes[i]);
        hn_str_append(&s, " ");
    }
    for (int i = 0; i < c->window.rank; i++)
        hn_str_printf(&s, "%lld,%lld,%lld,%lld ", (long long)c->window.stride[i], (long long)c->window.dilation[i],
                      (long long)c->window.pad_begin[i], (long long)c->window.pad_end[i]);
    for (int i = 0; i < node->post_count; i++)
        hn_str_printf(&s, "%s%d %.9g %.9g;", node->post[i].op_type, node->post[i].input >= 0, (double)node->post[i].alpha, (double)node->post[i].beta);
    snprintf(out, size, "%s", hn_str_get(&s));
    if (s.failed || s.length >= size) out[0] = 0; // too long to be told: not shared
    hn_str_free(&s);
}

// ---- kept plans ---------------------------------------------------------------------------------
// A line (steps in the graph, bias apart, bytes of JSON), then the JSON. By the key without the card's number.
#define KIND "cuda convolution"
static const char *problem(const char *key) { return strchr(key, ' ') + 1; }

static void plans_store(const cuda_device *d, conv_plans *s) {
    const hn_cudnn *dnn = s->dnn;
    hn_dnn_desc plan = s->plans[s->chosen];
    int64_t bytes = 0, got = 0;
    char head[64];
    s->kept = true;
    if (!s->key[0] || dnn->cudnnBackendGetAttribute(plan, HN_DNN_A_PLAN_JSON, HN_DNN_T_CHAR, 0, &bytes, NULL) != HN_DNN_OK ||
        bytes <= 0 || bytes > MAX_JSON)
        return;
    int at = snprintf(head, sizeof head, "%d %d %lld\n", s->fused, s->bias_apart, (long long)bytes);
    char *data = hn_calloc(1, (size_t)at + (size_t)bytes);
    if (!data) return;
    memcpy(data, head, (size_t)at);
    if (dnn->cudnnBackendGetAttribute(plan, HN_DNN_A_PLAN_JSON, HN_DNN_T_CHAR, bytes, &got, data + at) == HN_DNN_OK && got == bytes)
        cuda_keep_blob(d, KIND, "cuDNN", dnn->cudnnGetVersion(), problem(s->key), data, (size_t)(at + bytes));
    else hn_free(data);
}

// False where there is none, or what cuDNN does not take: then it is made.
static bool plans_load(const cuda_device *d, const hn_node *node, const conv *c, int most, conv_plans *s) {
    hn_blob *blob = s->key[0] ? cuda_kept_blob(d, KIND, "cuDNN", s->dnn->cudnnGetVersion(), problem(s->key)) : NULL;
    const char *data = blob ? hn_blob_data(blob) : NULL;
    size_t bytes = blob ? hn_blob_bytes(blob) : 0;
    char head[64] = "";
    const char *line = data ? memchr(data, '\n', bytes < sizeof head ? bytes : sizeof head - 1) : NULL;
    int fused, apart;
    long long json;
    if (line) memcpy(head, data, (size_t)(line - data));
    bool good = line && sscanf(head, "%d %d %lld", &fused, &apart, &json) == 3 && fused >= 0 && fused <= most &&
                (apart == 0 || (apart == 1 && c->has_bias && !fused)) && json == (long long)(bytes - (size_t)(line + 1 - data)) &&
                plan_from(s, d, HN_DNN_A_PLAN_JSON, HN_DNN_T_CHAR, json, line + 1);
    hn_blob_unref(blob);
    if (!good) return false;
    s->kept = true;
    s->chosen = 0;
    s->fused = fused;
    s->bias_apart = apart;
    for (int i = 0; i < fused; i++) // as graph() numbers them
        if (node->post[i].input >= 0) s->operand_ids[i] = ID_FIRST_OPERAND + i + c->has_bias;
    return true;
}

// ---- running ------------------------------------------------------------------------------------
static int start(const cuda_kernel *k, conv_state *s, int plan, const hn_args *args) {
    const hn_cudnn *dnn = s->dnn;
    void *pointers[HN_MAX_POST + 5], *workspace = args->workspace ? (char *)args->workspace + s->workspace_at : NULL;
    hn_dnn_desc pack = NULL;
    for (int i = 0; i < s->pointer_count; i++)
        pointers[i] = cuda_arg_pointer(&s->args[i], args);
    int status = dnn->cudnnBackendCreateDescriptor(HN_DNN_PACK, &pack);
    if (status == HN_DNN_OK)
        status = dnn->cudnnBackendSetAttribute(pack, HN_DNN_A_PACK_POINTERS, HN_DNN_T_POINTER, s->pointer_count, pointers);
    if (status == HN_DNN_OK) status = dnn->cudnnBackendSetAttribute(pack, HN_DNN_A_PACK_IDS, HN_DNN_T_I64, s->pointer_count, s->ids);
    if (status == HN_DNN_OK) status = dnn->cudnnBackendSetAttribute(pack, HN_DNN_A_PACK_WORKSPACE, HN_DNN_T_POINTER, 1, &workspace);
    if (status == HN_DNN_OK) status = dnn->cudnnBackendFinalize(pack);
    if (status == HN_DNN_OK) status = dnn->cudnnBackendExecute(k->device->dnn_handle, s->shared->plans[plan], pack);
    if (pack) dnn->cudnnBackendDestroyDescriptor(pack);
    return status;
}

static hn_status measure(hone_error *err, cuda_kernel *k, conv_state *s, const hn_args *args) {
    cuda_device *d = k->device;
    const hn_cuda *api = d->api;
    hn_cu_event begin, end;
    float best = 0;
    CUDA_TRY(err, d, api->cuEventCreate(&begin, 0), "timing");
    CUDA_TRY(err, d, api->cuEventCreate(&end, 0), "timing");
    conv_plans *plans = s->shared;
    for (int i = 0; i < plans->plan_count; i++) {
        if (start(k, s, i, args) != HN_DNN_OK) continue;
        for (int round = 0; round < 3; round++) {
            float ms;
            CUDA_TRY(err, d, api->cuEventRecord(begin, d->stream), "timing");
            for (int repeat = 0; repeat < 3; repeat++)
                start(k, s, i, args);
            CUDA_TRY(err, d, api->cuEventRecord(end, d->stream), "timing");
            CUDA_TRY(err, d, api->cuEventSynchronize(end), "timing a convolution");
            CUDA_TRY(err, d, api->cuEventElapsedTime(&ms, begin, end), "timing");
            if (plans->chosen < 0 || ms < best) {
                best = ms;
                plans->chosen = i;
            }
        }
    }
    api->cuEventDestroy_v2(begin);
    api->cuEventDestroy_v2(end);
    if (plans->chosen < 0) HN_FAIL(err, HONE_ERR_DEVICE, "%s: cuDNN runs none of the engines it proposes", k->label);
    return HONE_OK;
}

static hone_status conv_run(hone_error *err, cuda_kernel *k, const hn_args *args) {
    conv_state *s = k->call_state;
    if (s->shared->chosen < 0 && s->shared->plan_count == 1) s->shared->chosen = 0;
    if (s->shared->chosen < 0) HN_TRY(measure(err, k, s, args));
    if (!s->shared->kept) plans_store(k->device, s->shared);
    int status = start(k, s, s->shared->chosen, args);
    if (status != HN_DNN_OK) HN_FAIL(err, HONE_ERR_DEVICE, "%s: cuDNN fails: %s", k->label, s->dnn->cudnnGetErrorString(status));
    return HONE_OK;
}

static void conv_free(cuda_kernel *k) {
    conv_state *s = k->call_state;
    if (s) plans_release(s->shared);
    hn_free(s);
}

// ---- building -----------------------------------------------------------------------------------
static hn_status bind_pointers(hone_error *err, cuda_kernel *k, const hn_node *node, const conv *c, bool bias_apart, const int64_t *operand_ids) {
    if (c->widen) {
        conv_state *s = k->call_state;
        s->ids[s->pointer_count] = ID_X;
        s->args[s->pointer_count++] = cuda_arg_workspace(0);
    } else {
        HN_TRY(bind_id(err, k, node, ID_X, 0));
    }
    HN_TRY(bind_weights(err, k, node, c));
    HN_TRY(bind_id(err, k, node, ID_Y, -1));
    if (c->has_bias && !bias_apart) HN_TRY(bind_id(err, k, node, ID_BIAS, 2));
    for (int i = 0; i < c->fused; i++) {
        if (node->post[i].input < 0) continue;
        k->base.in_layout[node->post[i].input] = c->layout;
        HN_TRY(bind_id(err, k, node, operand_ids[i], node->post[i].input));
    }
    return HONE_OK;
}

// With as many posts in the graph as an engine takes; at last without the bias, which no engine for 3-D
// transposed convolutions takes.
static hn_status make_plans(hone_error *err, cuda_device *d, const hn_node *node, const conv *c, bool exact, int most, const char *key,
                            conv_plans **out_plans) {
    conv_plans *plans = hn_calloc(1, sizeof *plans);
    if (!plans) HN_NOMEM(err, "selecting a kernel");
    const cpu_value *many = c->transposed ? &c->x : &c->y;
    double flops = 2.0 * (double)many->count * (double)c->w.count / (double)many->shape.dims[1];
    plans->dnn = d->dnn;
    plans->chosen = -1;
    plans->references = 1;
    snprintf(plans->key, sizeof plans->key, "%s", key);
    bool kept = plans_load(d, node, c, most, plans);
    for (int fused = most; !kept && fused >= (c->has_bias ? -1 : 0) && !plans->plan_count; fused--) {
        conv bare = *c;
        drop_descs(plans);
        maker m = {d, plans, false};
        plans->bias_apart = fused < 0;
        if (fused < 0) bare.has_bias = false;
        plans->fused = fused < 0 ? 0 : fused;
        hn_dnn_desc operations = graph(&m, node, &bare, plans->fused, plans->operand_ids);
        if (operations) build_plans(&m, operations, exact, d->tries > 1 && flops > HEAVY_FLOPS ? MAX_TRIES : d->tries);
    }
    if (!plans->plan_count) {
        drop_descs(plans);
        hn_free(plans);
        return HONE_ERR_UNSUPPORTED;
    }
    plans_keep(plans);
    *out_plans = plans;
    return HONE_OK;
}

static hn_status conv_build(hone_error *err, cuda_kernel *k, const hn_select *what, conv *c) {
    cuda_device *d = k->device;
    const hn_node *node = what->node;
    int most = 0;
    bool whole;
    while (most < node->post_count && takes_post(node, &node->post[most], c, &whole))
        most++;
    conv_state *s = hn_calloc(1, sizeof *s);
    if (!s) HN_NOMEM(err, "selecting a kernel");
    s->dnn = d->dnn;
    k->call_state = s;
    k->call_free = conv_free;
    k->call = conv_run;
    bool exact = c->y.dtype == HN_F32 && !cuda_tf32(what);
    char key[sizeof s->shared->key];
    plans_key(d, node, c, exact, most, key, sizeof key);
    s->shared = key[0] ? plans_find(key) : NULL;
    if (!s->shared) HN_TRY(make_plans(err, d, node, c, exact, most, key, &s->shared));
    c->fused = s->shared->fused;
    k->base.in_layout[0] = k->base.out_layout[0] = c->layout;
    if (c->widen) HN_TRY(widen_input(err, k, what, c, &s->workspace_at));
    for (int i = 0; i < s->shared->plan_count; i++)
        if ((size_t)s->shared->workspaces[i] > k->base.workspace_bytes) k->base.workspace_bytes = (size_t)s->shared->workspaces[i];
    k->base.workspace_bytes += s->workspace_at;
    HN_TRY(bind_pointers(err, k, node, c, s->shared->bias_apart, s->shared->operand_ids));
    return cuda_posts_after(err, k, what, s->shared->bias_apart ? 2 : -1, c->fused, &c->y.shape, c->y.dtype, c->layout);
}

// For a transposed convolution the window is that of the convolution it is the gradient of.
static bool conv_window(const hn_node *node, conv *c) {
    int rank = c->x.shape.rank - 2;
    if (c->w.shape.rank != c->x.shape.rank || rank < 1 || rank > 3) return false;
    if (!c->transposed) return window_of(node, &c->x.shape, &c->y.shape, c->w.shape.dims + 2, &c->window);
    return window_of(node, &c->y.shape, &c->x.shape, c->w.shape.dims + 2, &c->window) &&
           hn_slice_eq(hn_node_string(node, "auto_pad", "NOTSET"), "NOTSET");
}

hone_status cuda_conv_select(hone_error *err, cuda_device *d, const hn_select *what, hn_kernel **out_kernel) {
    const hn_node *node = what->node;
    conv c = {.transposed = !strcmp(node->op_type, "ConvTranspose")};
    cpu_value bias;
    if (!cpu_in(node, 0, &c.x) || !cpu_in(node, 1, &c.w) || !cpu_out(node, 0, &c.y) || c.x.data || !c.y.count || !c.x.count ||
        (c.x.dtype != HN_F32 && !cuda_is_float16(c.x.dtype)) || c.w.dtype != c.x.dtype || c.y.dtype != c.x.dtype ||
        !conv_window(node, &c) || (!c.transposed && cuda_conv_few_takes(node)))
        return HONE_ERR_UNSUPPORTED;
    c.has_bias = cpu_base_inputs(node) > 2 && node->inputs[2];
    if (c.has_bias && (!cpu_in(node, 2, &bias) || bias.dtype != c.x.dtype)) return HONE_ERR_UNSUPPORTED;
    HN_TRY(cuda_dnn(err, d));
    static const hn_layout k_layouts[] = {CUDA_LAST, CUDA_PLAIN};
    hone_status status = HONE_ERR_UNSUPPORTED;
    for (size_t i = 0; i < HN_COUNT_OF(k_layouts) && status == HONE_ERR_UNSUPPORTED; i++) {
        c.layout = k_layouts[i];
        c.graph_x = c.x.shape;
        c.graph_w = c.w.shape;
        c.widen = c.layout == CUDA_LAST && cuda_is_float16(c.x.dtype) && !c.transposed && c.w.data && c.x.shape.dims[1] < WIDE &&
                  c.w.shape.dims[1] == c.x.shape.dims[1] && c.y.shape.dims[1] >= WIDE;
        if (c.widen) c.graph_x.dims[1] = c.graph_w.dims[1] = WIDE;
        cuda_kernel *k = cuda_kernel_new(d, node);
        if (!k) HN_NOMEM(err, "selecting a kernel");
        status = cuda_kernel_done(conv_build(err, k, what, &c), k, out_kernel);
    }
    return status;
}
