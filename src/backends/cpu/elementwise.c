// SPDX-License-Identifier: Apache-2.0
// Element-wise steps on float32 with numpy broadcasting in any layout, alone and as posts.
//
// Shapes are reduced to the fewest dims in the output's memory order; the innermost is walked by a
// vector kernel in which each operand is a run or one broadcast number. An operand that is neither
// there (rare: a broadcast across layouts) is gathered into a small buffer first.
#include "backends/cpu/cpu_int.h"

// Elements below which a second thread does not pay (2-core AVX-512 machine): plain arithmetic is
// bound by the cache, functions with an exponential take about 1 ns an element.
#define GRAIN_CHEAP 16384
#define GRAIN_COSTLY 4096

typedef struct unary_row {
    hn_op op;
    hn_k_unary fn;
    bool costly;
} unary_row;

bool cpu_ew_unary(const cpu_state *cpu, hn_op op, float alpha, float beta, cpu_ew *out) {
    const cpu_ops *o = &cpu->op;
    const unary_row rows[] = {
        {o->Relu, HN_K_UNARY_relu, false},
        {o->Clip, HN_K_UNARY_clip, false},
        {o->Sigmoid, HN_K_UNARY_sigmoid, true},
        {o->Tanh, HN_K_UNARY_tanh, true},
        {o->Gelu, alpha == 1 ? HN_K_UNARY_gelu_tanh : HN_K_UNARY_gelu_erf, true},
        {o->HardSwish, HN_K_UNARY_hard_swish, false},
        {o->HardSigmoid, HN_K_UNARY_hard_sigmoid, false},
        {o->LeakyRelu, HN_K_UNARY_leaky_relu, false},
        {o->Elu, HN_K_UNARY_elu, true},
        {o->Swish, HN_K_UNARY_swish, true},
        {o->Softplus, HN_K_UNARY_softplus, true},
        {o->Neg, HN_K_UNARY_neg, false},
        {o->Abs, HN_K_UNARY_abs, false},
        {o->Sqrt, HN_K_UNARY_sqrt, false},
        {o->Exp, HN_K_UNARY_exp, true},
        {o->Log, HN_K_UNARY_log, true},
        {o->Erf, HN_K_UNARY_erf, true},
        {o->Reciprocal, HN_K_UNARY_reciprocal, false},
        {o->Identity, HN_K_UNARY_copy, false},
    };
    if (!op) return false;
    for (size_t i = 0; i < HN_COUNT_OF(rows); i++) {
        if (rows[i].op != op) continue;
        *out = (cpu_ew){.unary = cpu->ew->unary[rows[i].fn],
                        .alpha = alpha,
                        .beta = beta,
                        .grain = rows[i].costly ? GRAIN_COSTLY : GRAIN_CHEAP,
                        .threads = 1};
        return true;
    }
    return false;
}

bool cpu_ew_binary(const cpu_state *cpu, hn_op op, cpu_ew *out) {
    const cpu_ops *o = &cpu->op;
    const struct {
        hn_op op;
        hn_k_binary fn;
    } rows[] = {
        {o->Add, HN_K_BINARY_add}, {o->Sub, HN_K_BINARY_sub}, {o->Mul, HN_K_BINARY_mul},
        {o->Div, HN_K_BINARY_div}, {o->Max, HN_K_BINARY_max}, {o->Min, HN_K_BINARY_min},
        {o->PRelu, HN_K_BINARY_prelu},
    };
    if (!op) return false;
    for (size_t i = 0; i < HN_COUNT_OF(rows); i++)
        if (rows[i].op == op) {
            *out = (cpu_ew){
                .binary = cpu->ew->binary[rows[i].fn], .grain = GRAIN_CHEAP, .threads = 1};
            return true;
        }
    return false;
}

bool cpu_operand_strides(const hn_shape *out, const hn_shape *shape, hn_layout layout,
                         int64_t *strides) {
    int64_t own[HN_MAX_RANK];
    int lead = out->rank - shape->rank;
    if (lead < 0) return false;
    cpu_strides(shape, layout, own);
    for (int i = 0; i < out->rank; i++) {
        strides[i] = 0;
        if (i < lead) continue;
        int64_t dim = shape->dims[i - lead];
        if (dim == out->dims[i]) strides[i] = dim == 1 ? 0 : own[i - lead];
        else if (dim != 1) return false;
    }
    return true;
}

bool cpu_ew_shape(cpu_ew *ew, const hn_shape *out, hn_layout layout, const hn_shape *a,
                  hn_layout a_layout, const hn_shape *b, hn_layout b_layout) {
    int64_t as[HN_MAX_RANK], bs[HN_MAX_RANK] = {0};
    int order[HN_MAX_RANK], n = 0;
    if (!cpu_operand_strides(out, a, a_layout, as)) return false;
    if (b && !cpu_operand_strides(out, b, b_layout, bs)) return false;
    if (!hn_shape_count(out, &ew->count)) return false;
    cpu_physical(out->rank, layout, order);
    for (int i = 0; i < out->rank; i++) {
        int d = order[i];
        int64_t size = out->dims[d];
        if (size == 1) continue;
        if (n > 0 && ew->a_strides[n - 1] == as[d] * size && ew->b_strides[n - 1] == bs[d] * size) {
            ew->dims[n - 1] *= size;
            ew->a_strides[n - 1] = as[d];
            ew->b_strides[n - 1] = bs[d];
            continue;
        }
        ew->dims[n] = size;
        ew->a_strides[n] = as[d];
        ew->b_strides[n++] = bs[d];
    }
    if (n == 0) {
        ew->dims[0] = 1;
        ew->a_strides[0] = ew->b_strides[0] = 0;
        n = 1;
    }
    ew->rank = n;
    return true;
}

#define GATHER 512
static const float *gather(const float *from, int64_t stride, int64_t n, float *buffer) {
    for (int64_t i = 0; i < n; i++)
        buffer[i] = from[i * stride];
    return buffer;
}

// One run of the innermost dim.
static void run_inner(const cpu_ew *ew, const float *a, const float *b, float *out, int64_t n) {
    int64_t as = ew->a_strides[ew->rank - 1], bs = ew->b_strides[ew->rank - 1];
    if (n == 1) as = bs = 1;
    float a_buffer[GATHER], b_buffer[GATHER];
    bool plain = (as == 1 || (as == 0 && !ew->unary)) && (bs == 0 || bs == 1);
    int64_t step = plain ? n : GATHER;
    for (int64_t i = 0; i < n; i += step) {
        int64_t part = n - i < step ? n - i : step;
        const float *pa = a + i * as, *pb = b + i * bs;
        if (as > 1 || as < 0 || (as == 0 && ew->unary)) pa = gather(pa, as, part, a_buffer);
        if (ew->unary) {
            ew->unary(pa, out + i, part, ew->alpha, ew->beta);
            continue;
        }
        if (bs > 1 || bs < 0) pb = gather(pb, bs, part, b_buffer);
        bool one_a = as == 0, one_b = bs == 0;
        if (one_a && one_b) pb = gather(pb, 0, part < GATHER ? part : GATHER, b_buffer), one_b = false;
        if (ew->swapped) ew->binary[one_a ? 1 : one_b ? 2 : 0](pb, pa, out + i, part);
        else ew->binary[one_b ? 1 : one_a ? 2 : 0](pa, pb, out + i, part);
    }
}

// Short inner runs (channels of a small net) against a repeated vector: the vector is repeated in a
// buffer so that many rows go in one call.
static bool run_repeated(const cpu_ew *ew, const float *a, const float *b, float *out,
                         int64_t begin, int64_t end) {
    int64_t n = ew->dims[1];
    if (ew->rank != 2 || ew->unary || n > GATHER / 4 || ew->a_strides[0] != n ||
        ew->a_strides[1] != 1 || ew->b_strides[0] != 0 || ew->b_strides[1] != 1)
        return false;
    float buffer[GATHER];
    int64_t rows = GATHER / n;
    for (int64_t r = 0; r < rows; r++)
        memcpy(buffer + r * n, b, (size_t)n * sizeof *b);
    for (int64_t r = begin; r < end; r += rows) {
        int64_t count = (end - r < rows ? end - r : rows) * n;
        if (ew->swapped) ew->binary[0](buffer, a + r * n, out + r * n, count);
        else ew->binary[0](a + r * n, buffer, out + r * n, count);
    }
    return true;
}

typedef struct ew_job {
    const cpu_ew *ew;
    const float *a, *b;
    float *out;
} ew_job;

static void run_rows(void *arg, int64_t begin, int64_t end) {
    const ew_job *job = arg;
    const cpu_ew *ew = job->ew;
    int last = ew->rank - 1;
    int64_t n = ew->dims[last], at[HN_MAX_RANK] = {0}, a = 0, b = 0, rest = begin;
    if (run_repeated(ew, job->a, job->b, job->out, begin, end)) return;
    for (int d = last - 1; d >= 0; d--) {
        at[d] = rest % ew->dims[d];
        rest /= ew->dims[d];
        a += at[d] * ew->a_strides[d];
        b += at[d] * ew->b_strides[d];
    }
    for (int64_t i = begin; i < end; i++) {
        run_inner(ew, job->a + a, job->b + b, job->out + i * n, n);
        for (int d = last - 1; d >= 0; d--) {
            a += ew->a_strides[d];
            b += ew->b_strides[d];
            if (++at[d] < ew->dims[d]) break;
            a -= ew->dims[d] * ew->a_strides[d];
            b -= ew->dims[d] * ew->b_strides[d];
            at[d] = 0;
        }
    }
}

static void run_flat(void *arg, int64_t begin, int64_t end) {
    const ew_job *job = arg;
    const cpu_ew *ew = job->ew;
    run_inner(ew, job->a + begin * ew->a_strides[0], job->b + begin * ew->b_strides[0],
              job->out + begin, end - begin);
}

void cpu_ew_run(const cpu_ew *ew, const float *a, const float *b, float *out) {
    if (ew->count == 0) return;
    ew_job job = {ew, a, b ? b : a, out};
    bool serial = ew->threads <= 1 || ew->count < 2 * ew->grain;
    if (ew->rank == 1) {
        if (serial) run_inner(ew, job.a, job.b, out, ew->count);
        else hn_parallel_for(ew->count, ew->grain, run_flat, &job);
        return;
    }
    int64_t n = ew->dims[ew->rank - 1], rows = ew->count / n;
    if (serial) run_rows(&job, 0, rows);
    else hn_parallel_for(rows, hn_max_i64(1, ew->grain / n), run_rows, &job);
}

// ---- posts --------------------------------------------------------------------------------------
bool cpu_posts_init(cpu_state *cpu, const hn_select *what, int first, const hn_shape *out,
                    hn_layout layout, hn_kernel *kernel, cpu_posts *posts) {
    const hn_node *node = what->node;
    memset(posts, 0, sizeof *posts);
    int threads = what->threads > 0 ? what->threads : hn_parallel_threads();
    for (int p = first; p < node->post_count; p++) {
        const hn_post *post = &node->post[p];
        cpu_ew *ew = &posts->step[posts->count];
        posts->input[posts->count] = -1;
        if (post->scale >= 0 || post->zero >= 0) return false;
        if (post->input < 0) {
            if (!cpu_ew_unary(cpu, post->op, post->alpha, post->beta, ew) ||
                !cpu_ew_shape(ew, out, layout, out, layout, NULL, 0))
                return false;
        } else {
            cpu_value v;
            if (!cpu_in(node, post->input, &v) || v.dtype != HN_F32) return false;
            if (!cpu_ew_binary(cpu, post->op, ew)) return false;
            hn_layout held = cpu_hint(what, post->input);
            if (hn_shape_equal(&v.shape, out) && !cpu_same_bytes(out)) held = layout;
            if (!cpu_ew_shape(ew, out, layout, out, layout, &v.shape, held)) return false;
            ew->swapped = post->swapped;
            kernel->in_layout[post->input] = held;
            posts->input[posts->count] = post->input;
        }
        ew->threads = threads;
        posts->count++;
    }
    return true;
}

void cpu_posts_run(const cpu_posts *posts, const hn_args *args, float *out) {
    for (int p = 0; p < posts->count; p++)
        cpu_ew_run(&posts->step[p], out, posts->input[p] >= 0 ? args->inputs[posts->input[p]] : NULL,
                   out);
}

// ---- nodes --------------------------------------------------------------------------------------
typedef struct ew_kernel {
    hn_kernel base;
    cpu_ew ew;
    int a, b; // node inputs, b -1: unary
    cpu_posts posts;
} ew_kernel;

static hone_status ew_run(hone_error *err, hn_kernel *kernel, const hn_args *args) {
    (void)err;
    ew_kernel *self = (ew_kernel *)kernel;
    cpu_ew_run(&self->ew, args->inputs[self->a], self->b >= 0 ? args->inputs[self->b] : NULL,
               args->outputs[0]);
    if (self->posts.count) cpu_posts_run(&self->posts, args, args->outputs[0]);
    return HONE_OK;
}
static const hn_kernel_ops k_ew_ops = {sizeof(hn_kernel_ops), NULL, ew_run, cpu_kernel_destroy};

// The function of a node with its attributes; false where it has no fast form.
static bool unary_of_node(const cpu_state *cpu, const hn_node *node, cpu_ew *ew) {
    const cpu_ops *o = &cpu->op;
    float alpha = 0, beta = 0;
    if (node->op == o->Clip) {
        alpha = -__builtin_inff();
        beta = __builtin_inff();
        int inputs = cpu_base_inputs(node);
        if (inputs > 1 && node->inputs[1] && !cpu_const_f32(node, 1, &alpha)) return false;
        if (inputs > 2 && node->inputs[2] && !cpu_const_f32(node, 2, &beta)) return false;
        if (!(alpha <= beta)) return false;
    } else if (node->op == o->Gelu) {
        alpha = hn_slice_eq(hn_op_string(node, "approximate"), "tanh") ? 1.f : 0.f;
    } else {
        const char *schema = hn_op_get(node->op)->attrs;
        if (strstr(schema, "alpha:f")) alpha = hn_op_float(node, "alpha");
        if (strstr(schema, "beta:f")) beta = hn_op_float(node, "beta");
    }
    return cpu_ew_unary(cpu, node->op, alpha, beta, ew);
}

static hone_status ew_finish(hone_error *err, cpu_state *cpu, const hn_select *what,
                             const cpu_value *out, hn_layout layout, ew_kernel *made,
                             hn_kernel **out_kernel) {
    ew_kernel *k = cpu_kernel_new(sizeof *k, &k_ew_ops);
    if (!k) HN_NOMEM(err, "selecting a kernel");
    made->base = k->base;
    *k = *made;
    k->ew.threads = what->threads > 0 ? what->threads : hn_parallel_threads();
    k->base.out_layout[0] = layout;
    if (!cpu_posts_init(cpu, what, 0, &out->shape, layout, &k->base, &k->posts)) {
        hn_free(k);
        return HONE_ERR_UNSUPPORTED;
    }
    *out_kernel = &k->base;
    return HONE_OK;
}

hone_status own_unary_select(hone_error *err, cpu_state *cpu, const hn_select *what,
                             hn_kernel **out_kernel) {
    cpu_value x, y;
    ew_kernel k = {.b = -1};
    if (!cpu_in(what->node, 0, &x) || !cpu_out(what->node, 0, &y) || x.dtype != HN_F32 ||
        y.dtype != HN_F32 || !unary_of_node(cpu, what->node, &k.ew))
        return HONE_ERR_UNSUPPORTED;
    hn_layout layout = cpu_hint(what, 0);
    if (!cpu_ew_shape(&k.ew, &y.shape, layout, &x.shape, layout, NULL, 0)) return HONE_ERR_UNSUPPORTED;
    HN_TRY(ew_finish(err, cpu, what, &y, layout, &k, out_kernel));
    (*out_kernel)->in_layout[0] = layout;
    (*out_kernel)->inplace_input[0] = 0;
    return HONE_OK;
}

// Output layout of an element-wise node: channels-last as soon as one operand of full shape has it.
static hn_layout joint_layout(const hn_select *what, const hn_shape *out, const cpu_value *v, int n) {
    if (cpu_same_bytes(out)) return HN_LAYOUT_PLAIN;
    for (int i = 0; i < n; i++)
        if (cpu_hint(what, i) == HN_LAYOUT_CHANNELS_LAST && hn_shape_equal(&v[i].shape, out))
            return HN_LAYOUT_CHANNELS_LAST;
    return HN_LAYOUT_PLAIN;
}

// Pow by a constant that has a direct form.
static bool pow_form(const cpu_state *cpu, const hn_node *node, cpu_ew *ew) {
    float e;
    if (!cpu_const_f32(node, 1, &e)) return false;
    hn_k_unary fn = e == 2      ? HN_K_UNARY_square
                    : e == 3    ? HN_K_UNARY_cube
                    : e == 0.5f ? HN_K_UNARY_pow_half
                    : e == 1    ? HN_K_UNARY_copy
                    : e == -1   ? HN_K_UNARY_reciprocal
                                : HN_K_UNARY_END;
    if (fn == HN_K_UNARY_END) return false;
    *ew = (cpu_ew){.unary = cpu->ew->unary[fn], .grain = GRAIN_CHEAP, .threads = 1};
    return true;
}

hone_status own_binary_select(hone_error *err, cpu_state *cpu, const hn_select *what,
                              hn_kernel **out_kernel) {
    const hn_node *node = what->node;
    cpu_value v[2], y;
    ew_kernel k = {.a = 0, .b = 1};
    if (cpu_base_inputs(node) != 2 || !cpu_in(node, 0, &v[0]) || !cpu_in(node, 1, &v[1]) ||
        !cpu_out(node, 0, &y) || v[0].dtype != HN_F32 || v[1].dtype != HN_F32)
        return HONE_ERR_UNSUPPORTED;
    hn_layout layout = joint_layout(what, &y.shape, v, 2), held[2];
    for (int i = 0; i < 2; i++)
        held[i] = hn_shape_equal(&v[i].shape, &y.shape) && !cpu_same_bytes(&y.shape)
                      ? layout
                      : cpu_hint(what, i);
    if (node->op == cpu->op.Pow) {
        if (!pow_form(cpu, node, &k.ew)) return HONE_ERR_UNSUPPORTED;
        k.b = -1;
        if (!cpu_ew_shape(&k.ew, &y.shape, layout, &v[0].shape, held[0], NULL, 0))
            return HONE_ERR_UNSUPPORTED;
    } else if (!cpu_ew_binary(cpu, node->op, &k.ew) ||
               !cpu_ew_shape(&k.ew, &y.shape, layout, &v[0].shape, held[0], &v[1].shape, held[1])) {
        return HONE_ERR_UNSUPPORTED;
    }
    HN_TRY(ew_finish(err, cpu, what, &y, layout, &k, out_kernel));
    hn_kernel *made = *out_kernel;
    for (int i = 0; i < 2; i++) {
        made->in_layout[i] = held[i];
        if (hn_shape_equal(&v[i].shape, &y.shape) && made->inplace_input[0] < 0)
            made->inplace_input[0] = i;
    }
    return HONE_OK;
}
