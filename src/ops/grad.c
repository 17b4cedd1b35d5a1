// SPDX-License-Identifier: Apache-2.0
// Gradients of element-wise ops, and what every gradient function builds with.
//
// Where an op has a kink the derivative is that of the side which the reference takes; Max and Min
// share the gradient among equal operands. Inputs that are not floating get none.
#include "ops/elementwise.h"
#include "ops/grad_int.h"

#define UN(op, a)        hn_grad_un(ctx, HN_OP_##op, a)
#define BIN(op, a, b)    hn_grad_bin(ctx, HN_OP_##op, a, b)
#define PICK(c, yes, no) hn_grad_pick(ctx, c, yes, no)
#define NUM(v)           hn_grad_num(ctx, v, ctx->node->inputs[0]->type.dtype)
// Every function starts so: dy is what flows back, nothing flows if it is absent.
#define BEGIN                                                                                      \
    hn_value *dy = hn_grad_dy(ctx);                                                                \
    if (!dy) return HONE_OK;

hn_value *hn_grad_un(hn_grad *ctx, hn_op op, hn_value *a) {
    return a ? hn_build(ctx->graph, NULL, op, &a, 1) : NULL;
}

hn_value *hn_grad_bin(hn_grad *ctx, hn_op op, hn_value *a, hn_value *b) {
    hn_value *in[] = {a, b};
    return a && b ? hn_build(ctx->graph, NULL, op, in, 2) : NULL;
}

hn_value *hn_grad_pick(hn_grad *ctx, hn_value *condition, hn_value *yes, hn_value *no) {
    hn_value *in[] = {condition, yes, no};
    return condition && yes && no ? hn_build(ctx->graph, NULL, HN_OP_WHERE, in, 3) : NULL;
}

hn_value *hn_grad_num(hn_grad *ctx, double number, hn_dtype dtype) {
    hn_tensor tensor;
    hn_shape shape = {0};
    if (hn_tensor_new(NULL, dtype, &shape, &tensor) != HONE_OK) return NULL;
    hn_tensor_set_f64(&tensor, 0, number);
    return hn_graph_add_constant(ctx->graph, "", &tensor);
}

hn_value *hn_grad_ints(hn_grad *ctx, const int64_t *values, int count) {
    return hn_graph_add_const_i64(ctx->graph, values, count, false);
}

hn_value *hn_grad_zeros(hn_grad *ctx, const hn_value *like) {
    hn_value *value = (hn_value *)(uintptr_t)like; // a new use, not a change
    return BIN(EXPAND, hn_grad_num(ctx, 0, like->type.dtype), UN(SHAPE, value));
}

hn_value *hn_grad_with(hn_grad *ctx, hn_op op, const char *attr, int64_t value, hn_value *const *in,
                       int count) {
    for (int i = 0; i < count; i++)
        if (!in[i]) return NULL;
    hn_node *node = hn_node_make(ctx->graph, NULL, op, in, count, 1);
    if (!node || !hn_node_set_int(node, attr, value)) return NULL;
    return hn_infer_node(NULL, node) == HONE_OK ? node->outputs[0] : NULL;
}

hn_status hn_grad_set(hone_error *err, hn_grad *ctx, int index, hn_value *value) {
    const hn_value *input = hn_in(ctx->node, index);
    if (!value)
        HN_FAIL_NODE(err, HONE_ERR_NOMEM, ctx->node, "its gradient could not be built");
    if (!input || !hn_dtype_is_float(input->type.dtype)) return HONE_OK;
    return hn_grad_sum_to(err, ctx, value, input, &ctx->grad_in[index]);
}

// ---- binary -------------------------------------------------------------------------------------
hone_status hn_grad_add(hone_error *err, hn_grad *ctx) {
    BEGIN
    HN_TRY(hn_grad_set(err, ctx, 0, dy));
    return hn_grad_set(err, ctx, 1, dy);
}

hone_status hn_grad_sub(hone_error *err, hn_grad *ctx) {
    BEGIN
    HN_TRY(hn_grad_set(err, ctx, 0, dy));
    return hn_grad_set(err, ctx, 1, UN(NEG, dy));
}

hone_status hn_grad_mul(hone_error *err, hn_grad *ctx) {
    BEGIN
    HN_TRY(hn_grad_set(err, ctx, 0, BIN(MUL, dy, ctx->node->inputs[1])));
    return hn_grad_set(err, ctx, 1, BIN(MUL, dy, ctx->node->inputs[0]));
}

hone_status hn_grad_div(hone_error *err, hn_grad *ctx) {
    BEGIN
    hn_value *b = ctx->node->inputs[1], *dx = BIN(DIV, dy, b);
    HN_TRY(hn_grad_set(err, ctx, 0, dx));
    return hn_grad_set(err, ctx, 1, UN(NEG, BIN(MUL, dx, ctx->node->outputs[0])));
}

// d/da = b a^(b-1); d/db = y log a, taken as 0 where a is not positive (the limit at 0).
hone_status hn_grad_pow(hone_error *err, hn_grad *ctx) {
    BEGIN
    hn_value *a = ctx->node->inputs[0], *b = ctx->node->inputs[1], *y = ctx->node->outputs[0];
    if (b->type.dtype != a->type.dtype)
        HN_FAIL_NODE(err, HONE_ERR_UNSUPPORTED, ctx->node, "gradient with an exponent of type %s",
                     hn_dtype_name(b->type.dtype));
    hn_value *slope = BIN(MUL, b, BIN(POW, a, BIN(SUB, b, NUM(1))));
    HN_TRY(hn_grad_set(err, ctx, 0, BIN(MUL, dy, slope)));
    if (b->constant) return HONE_OK;
    hn_value *positive = BIN(GREATER, a, NUM(0));
    hn_value *log_a = UN(LOG, PICK(positive, a, NUM(1)));
    return hn_grad_set(err, ctx, 1, BIN(MUL, dy, BIN(MUL, y, log_a)));
}

hone_status hn_grad_sum(hone_error *err, hn_grad *ctx) {
    BEGIN
    for (int i = 0; i < ctx->node->input_count; i++)
        HN_TRY(hn_grad_set(err, ctx, i, dy));
    return HONE_OK;
}

hone_status hn_grad_mean(hone_error *err, hn_grad *ctx) {
    BEGIN
    hn_value *part = BIN(DIV, dy, NUM(ctx->node->input_count));
    for (int i = 0; i < ctx->node->input_count; i++)
        HN_TRY(hn_grad_set(err, ctx, i, part));
    return HONE_OK;
}

// Max and Min: equal operands share.
hone_status hn_grad_extreme(hone_error *err, hn_grad *ctx) {
    BEGIN
    const hn_node *node = ctx->node;
    hn_value *ties = NULL;
    for (int i = 0; i < node->input_count; i++) {
        hn_value *won = BIN(EQUAL, node->inputs[i], node->outputs[0]);
        hn_value *one = PICK(won, NUM(1), NUM(0));
        ties = i ? BIN(ADD, ties, one) : one;
    }
    hn_value *share = BIN(DIV, dy, ties);
    for (int i = 0; i < node->input_count; i++) {
        hn_value *won = BIN(EQUAL, node->inputs[i], node->outputs[0]);
        HN_TRY(hn_grad_set(err, ctx, i, PICK(won, share, NUM(0))));
    }
    return HONE_OK;
}

hone_status hn_grad_prelu(hone_error *err, hn_grad *ctx) {
    BEGIN
    hn_value *x = ctx->node->inputs[0], *slope = ctx->node->inputs[1];
    hn_value *below = BIN(LESS, x, NUM(0));
    HN_TRY(hn_grad_set(err, ctx, 0, PICK(below, BIN(MUL, dy, slope), dy)));
    return hn_grad_set(err, ctx, 1, PICK(below, BIN(MUL, dy, x), NUM(0)));
}

hone_status hn_grad_where(hone_error *err, hn_grad *ctx) {
    BEGIN
    hn_value *condition = ctx->node->inputs[0], *zero = hn_grad_num(ctx, 0, ctx->node->inputs[1]->type.dtype);
    HN_TRY(hn_grad_set(err, ctx, 1, PICK(condition, dy, zero)));
    return hn_grad_set(err, ctx, 2, PICK(condition, zero, dy));
}

hone_status hn_grad_clip(hone_error *err, hn_grad *ctx) {
    BEGIN
    hn_value *x = ctx->node->inputs[0], *low = hn_in(ctx->node, 1), *high = hn_in(ctx->node, 2);
    hn_value *flow = dy;
    if (low) flow = PICK(BIN(LESS, x, low), NUM(0), flow);
    if (high) flow = PICK(BIN(GREATER, x, high), NUM(0), flow);
    return hn_grad_set(err, ctx, 0, flow);
}

hone_status hn_grad_cast(hone_error *err, hn_grad *ctx) {
    BEGIN
    hn_dtype from = ctx->node->inputs[0]->type.dtype;
    if (!hn_dtype_is_float(from) || !hn_dtype_is_float(dy->type.dtype)) return HONE_OK;
    return hn_grad_set(err, ctx, 0, hn_grad_with(ctx, HN_OP_CAST, "to", from, &dy, 1));
}

// ---- unary --------------------------------------------------------------------------------------
// The slope as a value; dy is multiplied in by the caller. x, y: input and output; a, b: parameters.
typedef hn_value *(*slope_fn)(hn_grad *ctx, hn_value *x, hn_value *y, double a, double b);

static hone_status chain(hone_error *err, hn_grad *ctx, slope_fn slope) {
    BEGIN
    double a, b;
    hn_scalar_params(ctx->node, &a, &b);
    hn_value *value = slope(ctx, ctx->node->inputs[0], ctx->node->outputs[0], a, b);
    return hn_grad_set(err, ctx, 0, BIN(MUL, dy, value));
}

#define SLOPE(name, ...)                                                                           \
    static hn_value *slope_##name(hn_grad *ctx, hn_value *x, hn_value *y, double a, double b) {    \
        (void)ctx, (void)x, (void)y, (void)a, (void)b;                                                        \
        return __VA_ARGS__;                                                                        \
    }                                                                                              \
    hone_status hn_grad_##name(hone_error *err, hn_grad *ctx) {                                    \
        return chain(err, ctx, slope_##name);                                                      \
    }

static hn_value *scaled(hn_grad *ctx, double factor, hn_value *value) {
    return BIN(MUL, value, NUM(factor));
}
static hn_value *one_minus(hn_grad *ctx, hn_value *value) { return BIN(SUB, NUM(1), value); }
static hn_value *square(hn_grad *ctx, hn_value *value) { return BIN(MUL, value, value); }
// 1 inside, 0 outside.
static hn_value *step_above(hn_grad *ctx, hn_value *x, double edge) {
    return PICK(BIN(GREATER, x, NUM(edge)), NUM(1), NUM(0));
}

SLOPE(abs, UN(SIGN, x))
SLOPE(neg, NUM(-1))
SLOPE(exp, y)
SLOPE(log, UN(RECIPROCAL, x))
SLOPE(sqrt, UN(RECIPROCAL, scaled(ctx, 2, y)))
SLOPE(reciprocal, UN(NEG, square(ctx, y)))
SLOPE(sin, UN(COS, x))
SLOPE(cos, UN(NEG, UN(SIN, x)))
SLOPE(relu, step_above(ctx, x, 0))
SLOPE(leaky_relu, PICK(BIN(LESS, x, NUM(0)), NUM(a), NUM(1)))
SLOPE(elu, PICK(BIN(LESS, x, NUM(0)), BIN(ADD, y, NUM(a)), NUM(1)))
SLOPE(sigmoid, BIN(MUL, y, one_minus(ctx, y)))
SLOPE(tanh, one_minus(ctx, square(ctx, y)))
SLOPE(softplus, UN(SIGMOID, x))
SLOPE(softsign, UN(RECIPROCAL, square(ctx, BIN(ADD, UN(ABS, x), NUM(1)))))
SLOPE(erf, scaled(ctx, 1.1283791670955126, UN(EXP, UN(NEG, square(ctx, x)))))
SLOPE(hard_sigmoid, scaled(ctx, a, BIN(MUL, step_above(ctx, y, 0), one_minus(ctx, PICK(BIN(LESS, y, NUM(1)), NUM(0), NUM(1))))))
// x + 3 over 6 between -3 and 3, so x/3 + 1/2 is its product's slope there.
SLOPE(hard_swish, PICK(BIN(GREATER, x, NUM(3)), NUM(1),
                       BIN(MUL, step_above(ctx, x, -3), BIN(ADD, BIN(DIV, x, NUM(3)), NUM(0.5)))))

static hn_value *slope_swish(hn_grad *ctx, hn_value *x, hn_value *y, double a, double b) {
    (void)b;
    hn_value *s = UN(SIGMOID, scaled(ctx, a, x));
    return BIN(ADD, s, BIN(MUL, scaled(ctx, a, y), one_minus(ctx, s)));
}
hone_status hn_grad_swish(hone_error *err, hn_grad *ctx) { return chain(err, ctx, slope_swish); }

// Parameter a: the tanh form.
static hn_value *slope_gelu(hn_grad *ctx, hn_value *x, hn_value *y, double a, double b) {
    (void)y, (void)b;
    if (a == 0) {
        hn_value *gauss = UN(EXP, scaled(ctx, -0.5, square(ctx, x)));
        hn_value *share = BIN(ADD, UN(ERF, scaled(ctx, 0.70710678118654752440, x)), NUM(1));
        return BIN(ADD, scaled(ctx, 0.5, share),
                   BIN(MUL, x, scaled(ctx, 0.39894228040143267794, gauss)));
    }
    const double k = 0.79788456080286535588, c = 0.044715;
    hn_value *cubic = BIN(ADD, scaled(ctx, c, square(ctx, x)), NUM(1));
    hn_value *t = UN(TANH, scaled(ctx, k, BIN(MUL, x, cubic)));
    hn_value *inner = scaled(ctx, k, BIN(ADD, scaled(ctx, 3 * c, square(ctx, x)), NUM(1)));
    hn_value *second = BIN(MUL, BIN(MUL, x, one_minus(ctx, square(ctx, t))), inner);
    return scaled(ctx, 0.5, BIN(ADD, BIN(ADD, t, NUM(1)), second));
}
hone_status hn_grad_gelu(hone_error *err, hn_grad *ctx) { return chain(err, ctx, slope_gelu); }
