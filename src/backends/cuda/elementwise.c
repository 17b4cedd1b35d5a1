// SPDX-License-Identifier: Apache-2.0
// Element-wise kernels written from the op table: one node with the steps fused behind it becomes one
// kernel that reads each operand once and writes once.
//
// The formulas are those of the references (ops/scalar.def), in float (double where a value is), in 64
// bits for integers. Every operand has its own strides over the output's dims, so that broadcasting
// and other layouts need no copy. A thread works on a vector of up to 16 bytes of the innermost dim.
#include "backends/cuda/cuda_int.h"
#include "ops/elementwise.h"
#include <math.h>

#define MAX_OPERANDS 16
#define MAX_STEPS    32 // of one kernel; generic forms take fewer of both (kernels/forms.def)
#define FORM_OPERANDS 12
#define FORM_STEPS    24
#define FORM_RANK     6

typedef struct operand {
    cuda_arg arg;
    hn_dtype dtype;
    int64_t strides[HN_MAX_RANK]; // over the output's logical dims; then over the merged ones
} operand;

// What a step reads besides operands, by number: the value so far, nothing (0).
enum { SO_FAR = -1, NOTHING = -2 };
typedef struct step_row {
    int code; // a row of ops/scalar.def, then of kernels/steps.def: as the generic form numbers them
    const char *formula;
} step_row;
typedef struct step {
    int code, x, y;
    hn_cell a, b;
} step;

typedef struct program {
    cuda_device *d;
    cuda_kernel *k;
    const hn_select *what;
    hn_shape shape;       // of the output
    hn_dtype dtype;
    hn_layout layout;
    int count;
    operand operands[MAX_OPERANDS];
    const char *type;     // computed in: "float", "double", "i64", "u64"
    hn_class class;       // of type
    hn_str body;
    int temps;            // t0 ... are defined
    bool raw;             // the result is a stored value: no conversion
    int step_count;
    step steps[MAX_STEPS];
} program;

// ---- formulas -----------------------------------------------------------------------------------
enum {
#define HN_STEP(token, ...) OWN_##token,
#include "kernels/steps.def"
};
static const struct {
    int op, class;
    const char *formula;
} k_scalar_rows[] = {
#define HN_UNARY(class, token, ...) {HN_OP_##token, HN_CLASS_##class, #__VA_ARGS__},
#define HN_BINARY(class, token, ...) {HN_OP_##token, HN_CLASS_##class, #__VA_ARGS__},
#include "ops/scalar.def"
};
static step_row own_step(int which) {
    static const char *const k_formulas[] = {
#define HN_STEP(token, ...) #__VA_ARGS__,
#include "kernels/steps.def"
    };
    return (step_row){(int)HN_COUNT_OF(k_scalar_rows) + which, k_formulas[which]};
}
// formula NULL: the operator has no such form.
static step_row scalar_step(hn_op op, hn_class class) {
    for (size_t i = 0; i < HN_COUNT_OF(k_scalar_rows); i++)
        if (k_scalar_rows[i].op == (int)op && k_scalar_rows[i].class == (int)class) return (step_row){(int)i, k_scalar_rows[i].formula};
    return (step_row){0, NULL};
}

void cuda_print_number(hn_str *out, double value) {
    if (isnan(value)) hn_str_append(out, "HN_NAN");
    else if (isinf(value)) hn_str_append(out, value > 0 ? "HN_INF" : "(-HN_INF)");
    else hn_str_printf(out, "(%.17g)", value);
}

static const char *load_fn(const program *p) {
    return !strcmp(p->type, "float") ? "to_f32" : !strcmp(p->type, "double") ? "to_f64"
           : !strcmp(p->type, "i64") ? "to_i64" : "to_u64";
}

// ---- operands -----------------------------------------------------------------------------------
// Strides of a tensor of this shape and layout over the output's dims: aligned at the end.
static void broadcast_strides(const program *p, const hn_shape *shape, hn_layout layout, int64_t *out) {
    int64_t own[HN_MAX_RANK];
    cpu_strides(shape, cuda_to_host(layout), own);
    for (int i = 0; i < p->shape.rank; i++) {
        int at = i - (p->shape.rank - shape->rank);
        out[i] = at < 0 || shape->dims[at] == 1 ? 0 : own[at];
    }
}

// A value as operand; axis >= 0: a vector along that dim. HONE_ERR_UNSUPPORTED for types and shapes
// that the kernels do not know.
static hn_status add_operand(hone_error *err, program *p, int input, int axis, int *out_number) {
    cpu_value v;
    const hn_node *node = p->what->node;
    if (!cpu_in(node, input, &v) || !cuda_ctype(v.dtype) || v.shape.rank > p->shape.rank || p->count == MAX_OPERANDS)
        return HONE_ERR_UNSUPPORTED;
    operand *o = &p->operands[p->count];
    *o = (operand){.dtype = v.dtype};
    hn_layout layout = CUDA_PLAIN;
    if (!v.data && v.shape.rank == p->shape.rank && v.shape.rank >= 3) {
        hn_layout now = cuda_hint(p->what, input);
        layout = cpu_same_bytes(&v.shape) || v.count < 4096 ? now : p->layout;
    }
    HN_TRY(cuda_kernel_input(err, p->k, node, input, &o->arg));
    p->k->base.in_layout[input] = layout;
    if (axis >= 0 && v.count > 1) {
        if (axis >= p->shape.rank || v.shape.rank != 1 || v.shape.dims[0] != p->shape.dims[axis]) return HONE_ERR_UNSUPPORTED;
        o->strides[axis] = 1;
    } else {
        broadcast_strides(p, &v.shape, layout, o->strides);
    }
    *out_number = p->count++;
    return HONE_OK;
}

// Fits the whole of the output? Then it may be written in place.
static bool is_whole(const program *p, const operand *o) {
    int64_t own[HN_MAX_RANK];
    cpu_strides(&p->shape, cuda_to_host(p->layout), own);
    for (int i = 0; i < p->shape.rank; i++)
        if (p->shape.dims[i] != 1 && o->strides[i] != own[i]) return false;
    return o->dtype == p->dtype && o->arg.kind == CUDA_ARG_INPUT;
}

// ---- statements ---------------------------------------------------------------------------------

void cuda_step_text(hn_str *out, int number, const char *type, const char *formula, const char *x, const char *y, const char *a,
                    const char *b) {
    hn_str_printf(out,
                  "    %s t%d;\n    {\n        typedef %s T;\n        typedef %s U;\n        const T x = %s, y = %s;\n"
                  "        const T a = (T)%s, b = (T)%s;\n        t%d = (T)(%s);\n    }\n",
                  type, number, type, !strcmp(type, "i64") ? "u64" : type, x, y, a, b, number, formula);
}
static void print_cell(hn_str *s, hn_class class, hn_cell cell) {
    if (class == HN_CLASS_F) cuda_print_number(s, cell.f);
    else if (class == HN_CLASS_U) hn_str_printf(s, "%lluull", (unsigned long long)cell.u);
    else if (cell.i == INT64_MIN) hn_str_append(s, "(-9223372036854775807ll - 1)");
    else hn_str_printf(s, "(%lldll)", (long long)cell.i);
}
static void print_source(const program *p, hn_str *s, int source) {
    if (source == SO_FAR) hn_str_printf(s, "t%d", p->temps - 1);
    else if (source == NOTHING) hn_str_append(s, "0");
    else hn_str_printf(s, "%s(a%d)", load_fn(p), source);
}
static hn_cell real(double value) { return (hn_cell){.f = value}; }
static const hn_cell k_none;

static void note_step(program *p, int code, int x, int y, hn_cell a, hn_cell b) {
    if (p->step_count < MAX_STEPS) p->steps[p->step_count] = (step){code, x, y, a, b};
    p->step_count++;
}

static void add_step(program *p, step_row row, int x, int y, hn_cell a, hn_cell b) {
    hn_str texts[4] = {{0}};
    print_source(p, &texts[0], x);
    print_source(p, &texts[1], y);
    print_cell(&texts[2], p->class, a);
    print_cell(&texts[3], p->class, b);
    cuda_step_text(&p->body, p->temps, p->type, row.formula, hn_str_get(&texts[0]), hn_str_get(&texts[1]), hn_str_get(&texts[2]), hn_str_get(&texts[3]));
    for (int i = 0; i < 4; i++) {
        if (texts[i].failed) p->body.failed = true;
        hn_str_free(&texts[i]);
    }
    note_step(p, row.code, x, y, a, b);
    p->temps++;
}

// ---- the node itself ----------------------------------------------------------------------------
static hn_status clip_node(hone_error *err, program *p) {
    const hn_node *node = p->what->node;
    int source, inputs = cpu_base_inputs(node), computed[2] = {NOTHING, NOTHING};
    HN_TRY(add_operand(err, p, 0, -1, &source));
    hn_cell bounds[2] = {hn_dtype_lowest(p->operands[0].dtype), hn_dtype_highest(p->operands[0].dtype)};
    for (int i = 0; i < 2; i++) {
        cpu_value v;
        if (i + 1 >= inputs || !node->inputs[i + 1]) continue;
        if (!cpu_in(node, i + 1, &v) || v.count != 1) return HONE_ERR_UNSUPPORTED;
        if (!v.data) {
            HN_TRY(add_operand(err, p, i + 1, -1, &computed[i]));
            continue;
        }
        hn_cells_load(v.value->constant, 0, 0, 1, p->class, &bounds[i]);
        p->k->base.consumed |= 1ull << (i + 1);
    }
    step_row clip = scalar_step(node->op, p->class);
    if (computed[0] >= 0) add_step(p, own_step(OWN_LIFT), source, computed[0], k_none, k_none);
    if (computed[0] < 0 || computed[1] < 0) add_step(p, clip, computed[0] >= 0 ? SO_FAR : source, NOTHING, bounds[0], bounds[1]);
    if (computed[1] >= 0) add_step(p, own_step(OWN_LIMIT), SO_FAR, computed[1], k_none, k_none);
    return HONE_OK;
}

static hn_status where_node(hone_error *err, program *p) {
    int number;
    for (int i = 0; i < 3; i++)
        HN_TRY(add_operand(err, p, i, -1, &number));
    if (p->operands[0].dtype != HN_BOOL || p->operands[1].dtype != p->operands[2].dtype) return HONE_ERR_UNSUPPORTED;
    const char *type = cuda_ctype(p->operands[1].dtype);
    if (p->what->node->post_count) {
        hn_str_printf(&p->body, "    %s t0 = %s(a0.bits ? a1 : a2);\n", p->type, load_fn(p));
    } else {
        hn_str_printf(&p->body, "    const %s t0 = a0.bits ? a1 : a2;\n", type);
        p->raw = true;
    }
    note_step(p, own_step(OWN_CHOOSE).code, 1, 2, k_none, k_none);
    p->temps = 1;
    return HONE_OK;
}

// y = (x - mean) / sqrt(variance + epsilon) * scale + bias
static hn_status batch_norm_node(hone_error *err, program *p) {
    const hn_node *node = p->what->node;
    int number;
    if (hn_node_int(node, "training_mode", 0) || p->shape.rank < 2) return HONE_ERR_UNSUPPORTED;
    HN_TRY(add_operand(err, p, 0, -1, &number));
    for (int i = 1; i < 5; i++)
        HN_TRY(add_operand(err, p, i, 1, &number));
    add_step(p, scalar_step(HN_OP_SUB, HN_CLASS_F), 0, 3, k_none, k_none);
    add_step(p, own_step(OWN_DEVIATE), SO_FAR, 4, real(hn_node_float(node, "epsilon", 1e-5f)), k_none);
    add_step(p, scalar_step(HN_OP_MUL, HN_CLASS_F), SO_FAR, 1, k_none, k_none);
    add_step(p, scalar_step(HN_OP_ADD, HN_CLASS_F), SO_FAR, 2, k_none, k_none);
    return HONE_OK;
}

static int quant_axis(const hn_node *node, int rank) {
    int axis;
    return hn_axis_normalise(hn_node_int(node, "axis", 1), rank, &axis) ? axis : 0;
}

// QuantizeLinear, DequantizeLinear with one scale or one a channel.
static hn_status quant_node(hone_error *err, program *p, bool quantise) {
    const hn_node *node = p->what->node;
    int number, axis = quant_axis(node, p->shape.rank);
    if (hn_node_int(node, "block_size", 0) || p->shape.rank < 1) return HONE_ERR_UNSUPPORTED;
    bool zero = cpu_base_inputs(node) > 2 && node->inputs[2];
    HN_TRY(add_operand(err, p, 0, -1, &number));
    HN_TRY(add_operand(err, p, 1, axis, &number));
    if (zero) HN_TRY(add_operand(err, p, 2, axis, &number));
    if (!hn_dtype_is_int(quantise ? p->dtype : p->operands[0].dtype)) return HONE_ERR_UNSUPPORTED;
    step_row add = scalar_step(HN_OP_ADD, HN_CLASS_F), sub = scalar_step(HN_OP_SUB, HN_CLASS_F), mul = scalar_step(HN_OP_MUL, HN_CLASS_F);
    if (quantise) {
        add_step(p, own_step(OWN_SCALE_ROUND), 0, 1, k_none, k_none);
        if (zero) add_step(p, add, SO_FAR, 2, k_none, k_none);
    } else {
        if (zero) add_step(p, sub, 0, 2, k_none, k_none);
        add_step(p, mul, zero ? SO_FAR : 0, 1, k_none, k_none);
    }
    return HONE_OK;
}

// A parameter of the op table, in the class's cells.
static hn_cell parameter(const program *p, double value) {
    if (p->class == HN_CLASS_F) return real(value);
    return (hn_cell){.i = fabs(value) < 9e18 ? (int64_t)value : 0};
}

static hn_status formula_node(hone_error *err, program *p) {
    const hn_node *node = p->what->node;
    step_row row = scalar_step(node->op, p->class);
    int inputs = cpu_base_inputs(node), first, number;
    // Powers of integers by floating point need the reference's rounding.
    if (!row.formula || (p->class == HN_CLASS_F && hn_dtype_is_int(p->dtype))) return HONE_ERR_UNSUPPORTED;
    double a, b;
    hn_scalar_params(node, &a, &b);
    bool binary = hn_scalar_binary(node->op, p->class) != NULL;
    if (!binary && inputs > 1) return HONE_ERR_UNSUPPORTED;
    HN_TRY(add_operand(err, p, 0, -1, &first));
    if (!binary) add_step(p, row, first, NOTHING, parameter(p, a), parameter(p, b));
    if (binary && inputs == 1) add_step(p, own_step(OWN_TAKE), first, NOTHING, k_none, k_none); // Sum and its like of one
    for (int i = 1; i < inputs; i++) {
        HN_TRY(add_operand(err, p, i, -1, &number));
        add_step(p, row, i == 1 ? first : SO_FAR, number, parameter(p, a), parameter(p, b));
    }
    if (!strcmp(node->op_type, "Mean")) add_step(p, own_step(OWN_PART), SO_FAR, NOTHING, real(inputs), k_none);
    return HONE_OK;
}

// ---- posts --------------------------------------------------------------------------------------
static hn_status add_posts(hone_error *err, program *p, int first) {
    const hn_node *node = p->what->node;
    for (int i = first; i < node->post_count; i++) {
        const hn_post *post = &node->post[i];
        step_row row = scalar_step(post->op, HN_CLASS_F);
        int other = NOTHING;
        if (!row.formula || post->scale >= 0 || post->zero >= 0 || !hn_op_has(post->op, HN_T_ELEMENTWISE))
            return HONE_ERR_UNSUPPORTED;
        if (post->input >= 0) HN_TRY(add_operand(err, p, post->input, -1, &other));
        add_step(p, row, post->swapped ? other : SO_FAR, post->swapped ? SO_FAR : other, real(post->alpha), real(post->beta));
    }
    return HONE_OK;
}

// ---- the kernel ---------------------------------------------------------------------------------
typedef struct merged {
    int rank;
    int64_t dims[HN_MAX_RANK], total;
    int vector;
    bool wide; // 64-bit indices
} merged;

// Dims in memory order, neighbours joined where every operand walks them as one.
static void merge(program *p, merged *m) {
    int order[HN_MAX_RANK];
    cpu_physical(p->shape.rank, cuda_to_host(p->layout), order);
    m->rank = 0;
    m->total = 1;
    int64_t strides[MAX_OPERANDS][HN_MAX_RANK] = {{0}};
    for (int i = 0; i < p->shape.rank; i++) {
        int64_t dim = p->shape.dims[order[i]];
        m->total *= dim;
        if (dim == 1) continue;
        bool join = m->rank > 0;
        for (int o = 0; o < p->count && join; o++)
            join = strides[o][m->rank - 1] == p->operands[o].strides[order[i]] * dim;
        int at = join ? m->rank - 1 : m->rank++;
        m->dims[at] = join ? m->dims[at] * dim : dim;
        for (int o = 0; o < p->count; o++)
            strides[o][at] = p->operands[o].strides[order[i]];
    }
    if (m->rank == 0) {
        m->rank = 1;
        m->dims[0] = m->total;
    }
    for (int o = 0; o < p->count; o++)
        memcpy(p->operands[o].strides, strides[o], sizeof strides[o]);
}

static void choose_vector(const program *p, merged *m) {
    size_t widest = hn_dtype_bytes(p->dtype);
    int last = m->rank - 1;
    int64_t reach = m->total;
    for (int o = 0; o < p->count; o++) {
        const operand *a = &p->operands[o];
        if (a->strides[last] == 1 && hn_dtype_bytes(a->dtype) > widest) widest = hn_dtype_bytes(a->dtype);
        int64_t end = 1;
        for (int i = 0; i < m->rank; i++)
            end += (m->dims[i] - 1) * a->strides[i];
        reach = hn_max_i64(reach, end);
    }
    m->wide = reach >= ((int64_t)1 << 31) - 65536;
    int v = (int)(16 / widest) > 8 ? 8 : (int)(16 / widest);
    while (v > 1 && m->rank > 1 && m->dims[last] % v)
        v /= 2;
    for (int o = 0; o < p->count; o++)
        for (int i = 0; i < last; i++)
            while (v > 1 && p->operands[o].strides[last] == 1 && p->operands[o].strides[i] % v)
                v /= 2;
    while (v > 1 && m->total / v < (int64_t)p->d->caps.sm_count * 128)
        v /= 2;
    m->vector = v;
}

static void print_element_function(program *p, hn_str *s) {
    hn_str_printf(s, "static __device__ __forceinline__ %s element(", cuda_ctype(p->dtype));
    for (int o = 0; o < p->count; o++)
        hn_str_printf(s, "%sconst %s a%d", o ? ", " : "", cuda_ctype(p->operands[o].dtype), o);
    hn_str_printf(s, ") {\n%s", hn_str_get(&p->body));
    if (p->raw) hn_str_printf(s, "    return t%d;\n}\n\n", p->temps - 1);
    else hn_str_printf(s, "    return store<%s>::of(t%d);\n}\n\n", cuda_ctype(p->dtype), p->temps - 1);
}

// Offsets of every operand at output element i.
static void print_offsets(const program *p, const merged *m, hn_str *s) {
    const char *type = m->wide ? "u64" : "u32";
    if (m->rank > 1) hn_str_printf(s, "    %s rest = i;\n", type);
    for (int d = m->rank - 1; d >= 0 && m->rank > 1; d--) {
        if (d) hn_str_printf(s, "    const %s c%d = rest %% %lldu;\n    rest /= %lldu;\n", type, d, (long long)m->dims[d], (long long)m->dims[d]);
        else hn_str_printf(s, "    const %s c0 = rest;\n", type);
    }
    for (int o = 0; o < p->count; o++) {
        hn_str_printf(s, "    const %s o%d = 0", type, o);
        for (int d = 0; d < m->rank; d++)
            if (p->operands[o].strides[d]) {
                if (m->rank == 1) hn_str_printf(s, " + i * %lldu", (long long)p->operands[o].strides[d]);
                else hn_str_printf(s, " + c%d * %lldu", d, (long long)p->operands[o].strides[d]);
            }
        hn_str_append(s, ";\n");
    }
}

static void print_body(const program *p, const merged *m, hn_str *s) {
    int v = m->vector, last = m->rank - 1;
    const char *out = cuda_ctype(p->dtype);
    print_offsets(p, m, s);
    hn_str_printf(s, "    vec<%s, %d> result;\n", out, v);
    for (int o = 0; o < p->count; o++) {
        const operand *a = &p->operands[o];
        const char *type = cuda_ctype(a->dtype);
        if (a->strides[last] == 1 && v > 1)
            hn_str_printf(s, "    const vec<%s, %d> v%d = *(const vec<%s, %d> *)(p%d + o%d);\n", type, v, o, type, v, o, o);
        else if (a->strides[last] == 0 || v == 1)
            hn_str_printf(s, "    const %s s%d = p%d[o%d];\n", type, o, o, o);
    }
    hn_str_printf(s, "#pragma unroll\n    for (int e = 0; e < %d; e++)\n        result.v[e] = element(", v);
    for (int o = 0; o < p->count; o++) {
        const operand *a = &p->operands[o];
        if (o) hn_str_append(s, ", ");
        if (a->strides[last] == 1 && v > 1) hn_str_printf(s, "v%d.v[e]", o);
        else if (a->strides[last] == 0 || v == 1) hn_str_printf(s, "s%d", o);
        else hn_str_printf(s, "p%d[o%d + e * %lldu]", o, o, (long long)a->strides[last]);
    }
    hn_str_printf(s, ");\n    *(vec<%s, %d> *)(out + i) = result;\n", out, v);
}

static void print_tail(const program *p, const merged *m, hn_str *s) {
    hn_str_printf(s, "    if (i + %d > %lldu) {\n        for (%s j = i; j < %lldu; j++)\n            out[j] = element(", m->vector,
                  (long long)m->total, m->wide ? "u64" : "u32", (long long)m->total);
    for (int o = 0; o < p->count; o++)
        hn_str_printf(s, "%sp%d[j * %lldu]", o ? ", " : "", o, (long long)p->operands[o].strides[0]);
    hn_str_append(s, ");\n        return;\n    }\n");
}

int cuda_type_code(hn_dtype dtype) {
    static const hn_dtype k_types[] = {HN_F32, HN_F16, HN_BF16, HN_F64, HN_I8, HN_I16, HN_I32, HN_I64, HN_U8, HN_U16, HN_U32, HN_U64, HN_BOOL};
    for (size_t i = 0; i < HN_COUNT_OF(k_types); i++)
        if (k_types[i] == dtype) return (int)i;
    return -1;
}

// The program as numbers for the interpreting form.
static hn_status finish_form(hone_error *err, program *p, const merged *m) {
    if (p->count > FORM_OPERANDS || p->step_count > FORM_STEPS || m->rank > FORM_RANK || m->wide) return HONE_ERR_UNSUPPORTED;
    int shift = FORM_RANK - m->rank, vector = m->vector % 4 || m->total % 4 || p->class != HN_CLASS_F || !strcmp(p->type, "double") ? 1 : 4;
    int64_t dims[FORM_RANK], strides[FORM_OPERANDS * FORM_RANK] = {0}, types[FORM_OPERANDS], codes[4][FORM_STEPS], cells[2][FORM_STEPS];
    for (int d = 0; d < FORM_RANK; d++)
        dims[d] = d < shift ? 1 : m->dims[d - shift];
    for (int o = 0; o < p->count; o++) {
        types[o] = cuda_type_code(p->operands[o].dtype);
        for (int d = 0; d < m->rank; d++)
            strides[o * FORM_RANK + shift + d] = p->operands[o].strides[d];
    }
    for (int s = 0; s < p->step_count; s++) {
        codes[0][s] = p->steps[s].code;
        codes[1][s] = p->steps[s].x;
        codes[2][s] = p->steps[s].y;
        cells[0][s] = p->steps[s].a.i; // the bits
        cells[1][s] = p->steps[s].b.i;
    }
    cuda_spec s;
    cuda_spec_begin(&s, p->d, "steps");
    cuda_spec_type(&s, "A", p->type);
    cuda_spec_int(&s, "CLASS", p->class == HN_CLASS_F ? 0 : p->class == HN_CLASS_I ? 1 : 2);
    cuda_spec_int(&s, "VEC", vector);
    cuda_spec_int(&s, "TOTAL", m->total);
    cuda_spec_int(&s, "RANK", m->rank);
    cuda_spec_int(&s, "STEPS", p->step_count);
    cuda_spec_int(&s, "TYPE", cuda_type_code(p->dtype));
    cuda_spec_ints(&s, "DIMS", FORM_RANK, dims);
    cuda_spec_ints(&s, "STRIDES", FORM_OPERANDS * FORM_RANK, strides);
    cuda_spec_ints(&s, "TYPES", p->count, types);
    cuda_spec_ints(&s, "OP", p->step_count, codes[0]);
    cuda_spec_ints(&s, "X", p->step_count, codes[1]);
    cuda_spec_ints(&s, "Y", p->step_count, codes[2]);
    cuda_spec_ints(&s, "CA", p->step_count, cells[0]);
    cuda_spec_ints(&s, "CB", p->step_count, cells[1]);
    cuda_spec_reach(&s, m->total);
    cuda_launch launch = {0};
    hone_status status = cuda_spec_kernel(err, &s, "hn_k_steps", &launch);
    cuda_launch_1d(&launch, m->total / vector, 256);
    for (int o = 0; o < FORM_OPERANDS; o++)
        launch.args[launch.arg_count++] = o < p->count ? p->operands[o].arg : cuda_arg_i64(0);
    launch.args[launch.arg_count++] = cuda_arg_output(0);
    if (status == HONE_OK) status = cuda_kernel_launch(err, p->k, &launch);
    cuda_spec_end(&s);
    return status;
}

static hn_status finish(hone_error *err, program *p) {
    merged m = {0};
    merge(p, &m);
    if (m.total == 0) return HONE_OK; // nothing to do
    choose_vector(p, &m);
    if (cuda_is_generic(p->d)) return finish_form(err, p, &m);
    int64_t threads = (m.total + m.vector - 1) / m.vector;
    int block = threads >= (int64_t)p->d->caps.sm_count * 256 ? 256 : 128;
    hn_str s = {0};
    hn_str_append(&s, cuda_text("prelude"));
    print_element_function(p, &s);
    hn_str_printf(&s, "extern \"C\" __global__ void __launch_bounds__(%d) hn_k_elementwise(", block);
    for (int o = 0; o < p->count; o++)
        hn_str_printf(&s, "const %s *p%d, ", cuda_ctype(p->operands[o].dtype), o);
    hn_str_printf(&s, "%s *out) {\n    const %s i = ((%s)blockIdx.x * %d + threadIdx.x) * %d;\n    if (i >= %lldu) return;\n",
                  cuda_ctype(p->dtype), m.wide ? "u64" : "u32", m.wide ? "u64" : "u32", block, m.vector, (long long)m.total);
    if (m.total % m.vector) print_tail(p, &m, &s);
    print_body(p, &m, &s);
    hn_str_append(&s, "}\n");
    cuda_launch launch = {0};
    hone_status status = s.failed ? HN_SET(err, HONE_ERR_NOMEM, "out of memory (writing a kernel)")
                                  : cuda_function_get(err, p->d, hn_str_get(&s), "hn_k_elementwise", true, &launch.function);
    hn_str_free(&s);
    if (status != HONE_OK) return status;
    cuda_launch_1d(&launch, threads, block);
    for (int o = 0; o < p->count; o++)
        launch.args[launch.arg_count++] = p->operands[o].arg;
    launch.args[launch.arg_count++] = cuda_arg_output(0);
    return cuda_kernel_launch(err, p->k, &launch);
}

// ---- select -------------------------------------------------------------------------------------
// The layout of the largest operand that is no constant.
static hn_layout output_layout(const hn_select *what, const hn_shape *shape) {
    int64_t most = -1;
    hn_layout layout = CUDA_PLAIN;
    for (int i = 0; i < what->node->input_count; i++) {
        cpu_value v;
        if (!cpu_in(what->node, i, &v) || v.data || v.shape.rank != shape->rank || v.count <= most || cpu_same_bytes(&v.shape)) continue;
        most = v.count;
        layout = cuda_hint(what, i);
    }
    return layout;
}

static hn_status build(hone_error *err, program *p) {
    const hn_node *node = p->what->node;
    const char *op = node->op_type;
    bool standard = !*node->domain || !strcmp(node->domain, "com.microsoft");
    hn_class class = HN_CLASS_U;
    bool wide = p->dtype == HN_F64;
    for (int i = 0; i < cpu_base_inputs(node); i++) {
        if (!node->inputs[i]) continue;
        hn_dtype dtype = node->inputs[i]->type.dtype;
        hn_class own = hn_dtype_class(dtype);
        if (own == HN_CLASS_F || (own == HN_CLASS_I && class != HN_CLASS_F)) class = own;
        wide = wide || dtype == HN_F64;
    }
    bool quantise = !strcmp(op, "QuantizeLinear"), dequantise = !strcmp(op, "DequantizeLinear");
    bool cast = !strcmp(op, "Cast") || !strcmp(op, "CastLike");
    if (quantise || dequantise || !strcmp(op, "BatchNormalization") || !strcmp(op, "Mean")) class = HN_CLASS_F;
    if (!strcmp(op, "Where")) class = hn_dtype_class(p->dtype);
    if (cast) class = hn_dtype_class(node->inputs[0]->type.dtype);
    p->class = class;
    p->type = class == HN_CLASS_F ? (wide ? "double" : "float") : class == HN_CLASS_I ? "i64" : "u64";
    if (node->post_count && class != HN_CLASS_F) return HONE_ERR_UNSUPPORTED;
    if (!standard) return HONE_ERR_UNSUPPORTED;
    if (quantise || dequantise) HN_TRY(quant_node(err, p, quantise));
    else if (!strcmp(op, "BatchNormalization")) HN_TRY(batch_norm_node(err, p));
    else if (!strcmp(op, "Where")) HN_TRY(where_node(err, p));
    else if (!strcmp(op, "Clip")) HN_TRY(clip_node(err, p));
    else if (cast) {
        int number;
        HN_TRY(add_operand(err, p, 0, -1, &number));
        add_step(p, own_step(OWN_TAKE), number, NOTHING, k_none, k_none);
    } else {
        HN_TRY(formula_node(err, p));
    }
    return add_posts(err, p, 0);
}

hone_status cuda_elementwise_select(hone_error *err, cuda_device *d, const hn_select *what, hn_kernel **out_kernel) {
    const hn_node *node = what->node;
    cpu_value y;
    if (!cpu_out(node, 0, &y) || !cuda_ctype(y.dtype)) return HONE_ERR_UNSUPPORTED;
    for (int i = 1; i < node->output_count; i++)
        if (node->outputs[i]) return HONE_ERR_UNSUPPORTED;
    bool listed = hn_op_has(node->op, HN_T_ELEMENTWISE) || !strcmp(node->op_type, "QuantizeLinear") ||
                  !strcmp(node->op_type, "DequantizeLinear") || !strcmp(node->op_type, "BatchNormalization");
    if (!listed || cpu_base_inputs(node) < 1) return HONE_ERR_UNSUPPORTED;
    program p = {.d = d, .what = what, .shape = y.shape, .dtype = y.dtype};
    p.layout = output_layout(what, &y.shape);
    p.k = cuda_kernel_new(d, node);
    if (!p.k) HN_NOMEM(err, "selecting a kernel");
    p.k->base.out_layout[0] = p.layout;
    hone_status status = build(err, &p);
    for (int o = p.count - 1; o >= 0 && status == HONE_OK; o--)
        if (is_whole(&p, &p.operands[o])) p.k->base.inplace_input[0] = p.operands[o].arg.index;
    if (status == HONE_OK) status = finish(err, &p);
    hn_str_free(&p.body);
    return cuda_kernel_done(status, p.k, out_kernel);
}

hn_status cuda_posts_after(hone_error *err, cuda_kernel *k, const hn_select *what, int bias, int first, const hn_shape *shape,
                           hn_dtype dtype, hn_layout layout) {
    if (bias < 0 && first >= what->node->post_count) return HONE_OK;
    if (!hn_dtype_is_float(dtype) || !cuda_ctype(dtype)) return HONE_ERR_UNSUPPORTED;
    program p = {.d = k->device, .k = k, .what = what, .shape = *shape, .dtype = dtype, .layout = layout};
    p.type = dtype == HN_F64 ? "double" : "float";
    p.count = 1;
    p.operands[0] = (operand){.arg = cuda_arg_output(0), .dtype = dtype};
    cpu_strides(shape, cuda_to_host(layout), p.operands[0].strides);
    p.class = HN_CLASS_F;
    int number;
    add_step(&p, own_step(OWN_TAKE), 0, NOTHING, k_none, k_none);
    hone_status status = bias >= 0 ? add_operand(err, &p, bias, 1, &number) : HONE_OK;
    if (bias >= 0 && status == HONE_OK) add_step(&p, scalar_step(HN_OP_ADD, HN_CLASS_F), SO_FAR, number, k_none, k_none);
    if (status == HONE_OK) status = add_posts(err, &p, first);
    if (status == HONE_OK) status = finish(err, &p);
    hn_str_free(&p.body);
    return status;
}

hn_status cuda_posts(hone_error *err, cuda_kernel *k, const hn_select *what, int first, const hn_shape *shape,
                     hn_dtype dtype, hn_layout layout) {
    return cuda_posts_after(err, k, what, -1, first, shape, dtype, layout);
}

int cuda_posts_text(const hn_select *what, const char *type, hn_str *out) {
    const hn_node *node = what->node;
    program p = {.what = what, .type = type, .class = HN_CLASS_F};
    int done = 0;
    hn_str_printf(&p.body, "    const %s t0 = value;\n", type);
    p.temps = 1;
    hone_error err = {0};
    hn_node unary = *node; // as far as no other operand is needed
    while (done < node->post_count && node->post[done].input < 0) {
        unary.post_count = done + 1;
        hn_select one = {.node = &unary};
        p.what = &one;
        if (add_posts(&err, &p, done) != HONE_OK) break;
        done++;
    }
    hn_str_printf(out, "__device__ __forceinline__ A after(A value) {\n%s    return t%d;\n}\n", hn_str_get(&p.body), p.temps - 1);
    if (p.body.failed) out->failed = true;
    hn_str_free(&p.body);
    return done;
}

int cuda_posts_spec(const hn_select *what, const char *type, cuda_spec *spec) {
    return cuda_is_generic(spec->d) ? 0 : cuda_posts_text(what, type, &spec->text);
}
