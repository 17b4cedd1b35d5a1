// SPDX-License-Identifier: Apache-2.0
// Einsum: the equation as labels, its shape, and a direct sum over every label.
//
// Labels are letters; the dims under an ellipsis get labels of their own, counted from the right,
// and broadcast. Without "->" the output has the ellipsis first, then the letters that occur once
// in the order A..Z a..z.
#include "ops/einsum.h"
#include "ops/nn_int.h"

#define MAX_OPERANDS HN_EINSUM_OPERANDS
#define LETTERS 52
#define MAX_LABELS HN_EINSUM_LABELS
typedef hn_einsum_term term;
typedef hn_einsum equation;

static int letter_label(char c) {
    return c >= 'A' && c <= 'Z' ? c - 'A' : c >= 'a' && c <= 'z' ? 26 + c - 'a' : -1;
}

// One operand's or the output's labels. rank -1: the rank follows from the text, with `ellipsis`
// dims under "...".
static hone_status parse_term(hone_error *err, const hn_node *node, hn_slice text, int rank,
                              int ellipsis, term *out_term) {
    term t = {0};
    int letters = 0, dots = 0;
    for (size_t i = 0; i < text.length; i++) {
        if (text.data[i] == '.') dots++;
        else if (text.data[i] != ' ') letters++;
    }
    if (dots != 0 && dots != 3)
        HN_FAIL_NODE(err, HONE_ERR_FORMAT, node, "the equation has a broken ellipsis");
    int hidden = !dots ? 0 : rank < 0 ? ellipsis : rank - letters;
    if (hidden < 0 || letters + hidden > HN_MAX_RANK || (rank >= 0 && letters + hidden != rank))
        HN_FAIL_NODE(err, HONE_ERR_FORMAT, node, "the term '%.*s' does not fit rank %d",
                     (int)text.length, text.data, rank);
    for (size_t i = 0; i < text.length; i++) {
        char c = text.data[i];
        if (c == ' ') continue;
        if (c == '.') {
            if (i + 2 >= text.length || text.data[i + 1] != '.' || text.data[i + 2] != '.')
                HN_FAIL_NODE(err, HONE_ERR_FORMAT, node, "the equation has a broken ellipsis");
            for (int d = hidden - 1; d >= 0; d--) t.labels[t.count++] = LETTERS + d;
            i += 2;
            continue;
        }
        int label = letter_label(c);
        if (label < 0)
            HN_FAIL_NODE(err, HONE_ERR_FORMAT, node, "the equation holds the character '%c'", c);
        t.labels[t.count++] = label;
    }
    *out_term = t;
    return HONE_OK;
}

static void implicit_output(equation *eq, int ellipsis) {
    int seen[MAX_LABELS] = {0};
    for (int o = 0; o < eq->operands; o++)
        for (int i = 0; i < eq->in[o].count; i++) seen[eq->in[o].labels[i]]++;
    eq->out.count = 0;
    for (int d = ellipsis - 1; d >= 0; d--) eq->out.labels[eq->out.count++] = LETTERS + d;
    for (int label = 0; label < LETTERS && eq->out.count < HN_MAX_RANK; label++)
        if (seen[label] == 1) eq->out.labels[eq->out.count++] = label;
}

static hone_status parse_equation(hone_error *err, const hn_node *node, const int *ranks,
                                  int operands, equation *out_equation) {
    equation eq = {.operands = operands};
    hn_slice text = hn_op_string(node, "equation"), left = text, right = {0};
    bool has_arrow = false;
    for (size_t i = 0; i + 1 < text.length; i++)
        if (text.data[i] == '-' && text.data[i + 1] == '>') {
            left.length = i;
            right = (hn_slice){text.data + i + 2, text.length - i - 2};
            has_arrow = true;
            break;
        }
    if (operands < 1 || operands > MAX_OPERANDS)
        HN_FAIL_NODE(err, HONE_ERR_UNSUPPORTED, node, "%d operands, the limit is %d", operands,
                     MAX_OPERANDS);
    int found = 0, ellipsis = 0;
    for (size_t start = 0, i = 0; i <= left.length; i++) {
        if (i < left.length && left.data[i] != ',') continue;
        hn_slice piece = {left.data + start, i - start};
        if (found >= operands)
            HN_FAIL_NODE(err, HONE_ERR_FORMAT, node, "the equation has more terms than inputs");
        HN_TRY(parse_term(err, node, piece, ranks[found], 0, &eq.in[found]));
        for (int d = 0; d < eq.in[found].count; d++)
            if (eq.in[found].labels[d] >= LETTERS)
                ellipsis = (int)hn_max_i64(ellipsis, eq.in[found].labels[d] - LETTERS + 1);
        found++;
        start = i + 1;
    }
    if (found != operands)
        HN_FAIL_NODE(err, HONE_ERR_FORMAT, node, "the equation has %d terms for %d inputs", found,
                     operands);
    if (has_arrow)
        HN_TRY(parse_term(err, node, right, -1, ellipsis, &eq.out));
    else
        implicit_output(&eq, ellipsis);
    *out_equation = eq;
    return HONE_OK;
}

hn_status hn_einsum_read(hone_error *err, const hn_node *node, hn_einsum *out_equation) {
    int ranks[MAX_OPERANDS];
    for (int i = 0; i < node->input_count && i < MAX_OPERANDS; i++) {
        if (!node->inputs[i] || node->inputs[i]->type.rank < 0) return HONE_ERR_UNSUPPORTED;
        ranks[i] = node->inputs[i]->type.rank;
    }
    return parse_equation(err, node, ranks, node->input_count, out_equation);
}

// A label's dims are equal or 1; between two unknown ones that differ nothing can be said.
static hone_status merge_dims(hone_error *err, const hn_infer *ctx, hn_dim a, hn_dim b,
                              hn_dim *out_dim) {
    bool a_const = hn_dim_is_const(a), b_const = hn_dim_is_const(b);
    if (a == b || b == 1) *out_dim = a;
    else if (a == 1) *out_dim = b;
    else if (a_const && b_const) return hn_expect_same(err, ctx, "dims of one label", a, b, NULL);
    else *out_dim = a_const ? a : b_const ? b : hn_dim_fresh(ctx->dims, 0, INT64_MAX);
    return HONE_OK;
}

static hone_status label_dims(hone_error *err, const hn_infer *ctx, const equation *eq,
                              hn_dim *out_dims, bool *out_known) {
    for (int o = 0; o < eq->operands; o++)
        for (int i = 0; i < eq->in[o].count; i++) {
            int label = eq->in[o].labels[i];
            hn_dim dim = hn_in_type(ctx, o)->dims[i];
            if (out_known[label])
                HN_TRY(merge_dims(err, ctx, out_dims[label], dim, &out_dims[label]));
            else
                out_dims[label] = dim;
            out_known[label] = true;
        }
    for (int i = 0; i < eq->out.count; i++) {
        for (int j = 0; j < i; j++)
            if (eq->out.labels[i] == eq->out.labels[j])
                HN_FAIL_NODE(err, HONE_ERR_FORMAT, ctx->node, "the output repeats a label");
        if (!out_known[eq->out.labels[i]])
            HN_FAIL_NODE(err, HONE_ERR_FORMAT, ctx->node,
                         "the output has a label that no operand has");
    }
    return HONE_OK;
}

HN_INFER_FN(hn_infer_einsum) {
    const hn_type *first = hn_in_type(ctx, 0);
    hn_dtype dtype = first ? first->dtype : HN_NONE;
    int ranks[MAX_OPERANDS], count = ctx->node->input_count;
    hn_infer_set(ctx, 0, dtype, -1, NULL);
    for (int i = 0; i < count && i < MAX_OPERANDS; i++) {
        const hn_type *type = hn_in_type(ctx, i);
        if (!type || type->rank < 0) return HONE_OK;
        ranks[i] = type->rank;
    }
    equation eq;
    hn_dim dims[MAX_LABELS] = {0}, out[HN_MAX_RANK];
    bool known[MAX_LABELS] = {0};
    HN_TRY(parse_equation(err, ctx->node, ranks, count, &eq));
    HN_TRY(label_dims(err, ctx, &eq, dims, known));
    for (int i = 0; i < eq.out.count; i++) out[i] = dims[eq.out.labels[i]];
    hn_infer_set(ctx, 0, dtype, eq.out.count, out);
    return HONE_OK;
}

// The loops: output labels first, then those summed over; a step an operand and label.
typedef struct loops {
    int count, outer; // outer: labels of the output
    int64_t dims[MAX_LABELS];
    int64_t step[MAX_OPERANDS][MAX_LABELS];
} loops;

static void add_loop(loops *l, const hn_call *call, const equation *eq, int label) {
    l->dims[l->count] = 1;
    for (int o = 0; o < eq->operands; o++) {
        const hn_shape *shape = &call->inputs[o]->shape;
        int64_t step = 1, sum = 0;
        for (int i = eq->in[o].count - 1; i >= 0; i--) {
            if (eq->in[o].labels[i] == label && shape->dims[i] != 1) {
                sum += step; // repeated labels walk the diagonal
                l->dims[l->count] = shape->dims[i];
            }
            step *= shape->dims[i];
        }
        l->step[o][l->count] = sum;
    }
    l->count++;
}

static void make_loops(const hn_call *call, const equation *eq, loops *l) {
    bool used[MAX_LABELS] = {0};
    for (int i = 0; i < eq->out.count; i++) {
        add_loop(l, call, eq, eq->out.labels[i]);
        used[eq->out.labels[i]] = true;
    }
    l->outer = l->count;
    for (int o = 0; o < eq->operands; o++)
        for (int i = 0; i < eq->in[o].count; i++) {
            int label = eq->in[o].labels[i];
            if (used[label]) continue;
            used[label] = true;
            add_loop(l, call, eq, label);
        }
}

static hone_status einsum_body(hone_error *err, const hn_call *call, hn_arena *scratch) {
    int ranks[MAX_OPERANDS];
    for (int i = 0; i < call->input_count && i < MAX_OPERANDS; i++)
        ranks[i] = call->inputs[i]->shape.rank;
    equation eq;
    loops l = {0};
    HN_TRY(parse_equation(err, call->node, ranks, call->input_count, &eq));
    make_loops(call, &eq, &l);
    bool floats = hn_dtype_is_float(call->inputs[0]->dtype);
    const double *f[MAX_OPERANDS];
    const int64_t *n[MAX_OPERANDS];
    for (int o = 0; o < eq.operands; o++) {
        if (floats) HN_TRY(hn_load_f64(err, scratch, call->inputs[o], &f[o]));
        else HN_TRY(hn_load_i64(err, scratch, call->inputs[o], &n[o]));
    }
    hn_tensor *ty = hn_call_out(call, 0);
    double *y;
    int64_t *yi;
    HN_TRY(hn_scratch_f64(err, scratch, floats ? hn_tensor_count(ty) : 0, &y));
    HN_TRY(hn_scratch_i64(err, scratch, floats ? 0 : hn_tensor_count(ty), &yi));
    if (hn_dims_product(l.dims, 0, l.count) > 0) {
        int64_t index[MAX_LABELS] = {0};
        do {
            int64_t out = 0, at[MAX_OPERANDS] = {0};
            for (int i = 0; i < l.outer; i++) out = out * l.dims[i] + index[i];
            for (int o = 0; o < eq.operands; o++)
                for (int i = 0; i < l.count; i++) at[o] += index[i] * l.step[o][i];
            double product = 1;
            uint64_t whole = 1;
            for (int o = 0; o < eq.operands; o++) {
                if (floats) product *= f[o][at[o]];
                else whole *= (uint64_t)n[o][at[o]];
            }
            if (floats) y[out] += product;
            else yi[out] = (int64_t)((uint64_t)yi[out] + whole);
        } while (hn_index_next(index, l.dims, l.count));
    }
    if (floats) hn_store_f64(ty, y);
    else hn_store_i64(ty, yi);
    return HONE_OK;
}
HN_REF_FN(hn_ref_einsum) { return hn_ref_scratch(err, call, einsum_body); }

HN_COST_FN(hn_cost_einsum) {
    equation eq;
    if (hn_einsum_read(NULL, node, &eq) != HONE_OK) return;
    double dims[MAX_LABELS] = {0}, flops = eq.operands > 1 ? 2 * (eq.operands - 1) : 1;
    for (int o = 0; o < eq.operands; o++)
        for (int i = 0; i < eq.in[o].count; i++) {
            double dim = (double)node->inputs[o]->type.dims[i];
            if (dim > dims[eq.in[o].labels[i]]) dims[eq.in[o].labels[i]] = dim;
        }
    for (int i = 0; i < MAX_LABELS; i++)
        if (dims[i] > 0) flops *= dims[i];
    out_cost->flops = flops;
}
