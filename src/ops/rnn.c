// SPDX-License-Identifier: Apache-2.0
// Recurrent layers: RNN, GRU, LSTM in both layouts and all directions.
//
// A batch item is run on its own, so that its sequence length only bounds a loop: steps beyond it
// give zeros in Y and leave the state alone; the reverse direction starts at its last step.
#include <ctype.h>
#include <math.h>
#include "ops/nn_int.h"
#include "ops/rnn.h"

// ---- activations --------------------------------------------------------------------------------
#define HN_ACTIVATION(name, has_alpha, has_beta, alpha, beta, ...) ACTIVATION_FN(__LINE__, __VA_ARGS__)
#define ACTIVATION_FN(line, ...) ACTIVATION_FN_(line, __VA_ARGS__)
#define ACTIVATION_FN_(line, ...)                                                                  \
    static double act_##line(double x, double a, double b) {                                       \
        typedef double T;                                                                          \
        (void)sizeof(T), (void)a, (void)b;                                                         \
        return __VA_ARGS__;                                                                        \
    }
#include "ops/activations.def"
#undef HN_ACTIVATION

static const struct activation_row {
    const char *name;
    double (*fn)(double x, double a, double b);
    const char *text;
    bool has_alpha, has_beta;
    double alpha, beta; // where none are given
} k_activations[] = {
#define ACTIVATION_NAME(line) ACTIVATION_NAME_(line)
#define ACTIVATION_NAME_(line) act_##line
#define HN_ACTIVATION(name, has_alpha, has_beta, alpha, beta, ...) \
    {name, ACTIVATION_NAME(__LINE__), #__VA_ARGS__, has_alpha, has_beta, alpha, beta},
#include "ops/activations.def"
#undef HN_ACTIVATION
};

static bool same_name(hn_slice text, const char *lower) {
    if (text.length != strlen(lower)) return false;
    for (size_t i = 0; i < text.length; i++)
        if (tolower((unsigned char)text.data[i]) != lower[i]) return false;
    return true;
}

static double apply(const hn_activation *act, double x, double clip) {
    if (clip > 0) x = x > clip ? clip : x < -clip ? -clip : x;
    return act->fn(x, act->alpha, act->beta);
}

// ---- the layer ----------------------------------------------------------------------------------
static const int k_gates[] = {1, 3, 4};
static const int k_functions[] = {1, 2, 3}; // activations a direction
static const char *const k_defaults[][3] = {
    {"Tanh"}, {"Sigmoid", "Tanh"}, {"Sigmoid", "Tanh", "Tanh"}};

static hone_status read_direction(hone_error *err, const hn_node *node, hn_rnn_attrs *a) {
    hn_slice text = hn_op_string(node, "direction");
    a->directions = hn_slice_eq(text, "bidirectional") ? 2 : 1;
    a->reverse = hn_slice_eq(text, "reverse");
    if (a->directions == 1 && !a->reverse && !hn_slice_eq(text, "forward"))
        HN_FAIL_NODE(err, HONE_ERR_FORMAT, node, "direction is '%.*s'", (int)text.length, text.data);
    return HONE_OK;
}

static const float *float_list(const hn_node *node, const char *name, int64_t *out_count) {
    const hn_attr *attr = hn_node_attr(node, name);
    *out_count = attr && attr->type == HN_ATTR_FLOATS ? attr->count : 0;
    return *out_count ? attr->floats : NULL;
}

static hone_status read_activations(hone_error *err, const hn_node *node, hn_rnn_attrs *a) {
    const hn_attr *names = hn_node_attr(node, "activations");
    int64_t alphas, betas, alpha_at = 0, beta_at = 0;
    const float *alpha = float_list(node, "activation_alpha", &alphas);
    const float *beta = float_list(node, "activation_beta", &betas);
    int each = k_functions[a->kind];
    int64_t given = names && names->type == HN_ATTR_STRINGS ? names->count : 0;
    // RNN's default in the schema names one function for each of two directions.
    if (given && given < (int64_t)each * a->directions)
        HN_FAIL_NODE(err, HONE_ERR_FORMAT, node, "%lld activations, %d are needed", (long long)given,
                     each * a->directions);
    for (int i = 0; i < each * a->directions; i++) {
        const char *usual = k_defaults[a->kind][i % each];
        hn_slice name = given ? names->strings[i] : (hn_slice){usual, strlen(usual)};
        const struct activation_row *row = NULL;
        for (size_t r = 0; r < HN_COUNT_OF(k_activations); r++)
            if (same_name(name, k_activations[r].name)) row = &k_activations[r];
        if (!row)
            HN_FAIL_NODE(err, HONE_ERR_FORMAT, node, "activation '%.*s' is unknown",
                         (int)name.length, name.data);
        // The lists are consumed in order by the functions that take a parameter.
        hn_activation *act = &a->act[i / each][i % each];
        *act = (hn_activation){row->fn, row->text, row->alpha, row->beta};
        if (row->has_alpha && alpha_at < alphas) act->alpha = (double)alpha[alpha_at++];
        if (row->has_beta && beta_at < betas) act->beta = (double)beta[beta_at++];
    }
    return HONE_OK;
}

hn_status hn_rnn_read(hone_error *err, const hn_node *node, hn_rnn_kind kind, hn_rnn_attrs *out_attrs) {
    hn_rnn_attrs a = {.kind = kind, .gates = k_gates[kind], .functions = k_functions[kind]};
    HN_TRY(read_direction(err, node, &a));
    a.batch_first = hn_node_int(node, "layout", 0) != 0;
    a.input_forget = hn_node_int(node, "input_forget", 0) != 0;
    a.linear_before_reset = hn_node_int(node, "linear_before_reset", 0) != 0;
    a.clip = (double)hn_node_float(node, "clip", 0);
    HN_TRY(read_activations(err, node, &a));
    *out_attrs = a;
    return HONE_OK;
}

// ---- inference ----------------------------------------------------------------------------------
static hone_status expect_shape(hone_error *err, const hn_infer *ctx, int input, int rank,
                                const hn_dim *dims, const char *what) {
    int have;
    HN_TRY(hn_expect_rank(err, ctx, input, rank, rank, &have));
    for (int i = 0; have == rank && i < rank; i++)
        HN_TRY(hn_expect_same(err, ctx, what, hn_in_type(ctx, input)->dims[i], dims[i], NULL));
    return HONE_OK;
}

static hone_status infer_rnn(hone_error *err, hn_infer *ctx, hn_rnn_kind kind) {
    hn_rnn_attrs a;
    int rank, w_rank, r_rank;
    HN_TRY(hn_rnn_read(err, ctx->node, kind, &a));
    HN_TRY(hn_expect_rank(err, ctx, 0, 3, 3, &rank));
    HN_TRY(hn_expect_rank(err, ctx, 1, 3, 3, &w_rank));
    HN_TRY(hn_expect_rank(err, ctx, 2, 3, 3, &r_rank));
    const hn_type *x = hn_in_type(ctx, 0), *r = hn_in_type(ctx, 2);
    hn_dtype dtype = x ? x->dtype : HN_NONE;
    for (int i = 0; i < 3; i++) hn_infer_set(ctx, i, dtype, -1, NULL);
    if (rank < 0) return HONE_OK;
    int64_t attr = hn_node_int(ctx->node, "hidden_size", 0);
    hn_dim hidden = r_rank == 3 ? r->dims[2] : attr > 0 ? attr : hn_dim_fresh(ctx->dims, 0, INT64_MAX);
    if (attr > 0) HN_TRY(hn_expect_same(err, ctx, "hidden_size and R", hidden, attr, &hidden));
    hn_dim seq = x->dims[a.batch_first], batch = x->dims[!a.batch_first];
    hn_dim gates = hn_dim_mul(ctx->dims, hidden, k_gates[kind]), dirs = a.directions;
    HN_TRY(expect_shape(err, ctx, 1, 3, (hn_dim[]){dirs, gates, x->dims[2]}, "dims of W"));
    HN_TRY(expect_shape(err, ctx, 2, 3, (hn_dim[]){dirs, gates, hidden}, "dims of R"));
    HN_TRY(expect_shape(err, ctx, 3, 2, (hn_dim[]){dirs, hn_dim_mul(ctx->dims, gates, 2)},
                        "dims of B"));
    HN_TRY(expect_shape(err, ctx, 4, 1, &batch, "length of sequence_lens"));
    hn_dim state[3] = {a.batch_first ? batch : dirs, a.batch_first ? dirs : batch, hidden};
    HN_TRY(expect_shape(err, ctx, 5, 3, state, "dims of initial_h"));
    if (kind == HN_RNN_LSTM) {
        HN_TRY(expect_shape(err, ctx, 6, 3, state, "dims of initial_c"));
        HN_TRY(expect_shape(err, ctx, 7, 2, (hn_dim[]){dirs, hn_dim_mul(ctx->dims, hidden, 3)},
                            "dims of P"));
    }
    hn_dim all[2][4] = {{seq, dirs, batch, hidden}, {batch, seq, dirs, hidden}};
    hn_infer_set(ctx, 0, dtype, 4, all[a.batch_first]);
    hn_infer_set(ctx, 1, dtype, 3, state);
    if (kind == HN_RNN_LSTM) hn_infer_set(ctx, 2, dtype, 3, state);
    return HONE_OK;
}
HN_INFER_FN(hn_infer_rnn) { return infer_rnn(err, ctx, HN_RNN_PLAIN); }
HN_INFER_FN(hn_infer_gru) { return infer_rnn(err, ctx, HN_RNN_GRU); }
HN_INFER_FN(hn_infer_lstm) { return infer_rnn(err, ctx, HN_RNN_LSTM); }

// ---- reference ----------------------------------------------------------------------------------
typedef struct rnn_run {
    hn_rnn_attrs attrs;
    int64_t seq, batch, width, hidden, gates; // gates: rows of W a direction
    const double *x, *w, *r, *b, *h0, *c0, *peep;
    const int64_t *lens;
    double *y, *y_h, *y_c;
    double *pre, *rec, *h, *c, *reset; // work space of one step
} rnn_run;

static int64_t state_at(const rnn_run *run, int d, int64_t n) {
    return (run->attrs.batch_first ? n * run->attrs.directions + d : d * run->batch + n) *
           run->hidden;
}

// out[i] = sum_k m[i][k] v[k]
static void matrix_vector(const double *m, const double *v, int64_t rows, int64_t columns,
                          double *out) {
    for (int64_t i = 0; i < rows; i++) {
        double sum = 0;
        for (int64_t k = 0; k < columns; k++) sum += m[i * columns + k] * v[k];
        out[i] = sum;
    }
}

// Gate order of the standard: LSTM i o f c, GRU z r h. `pre` holds W x + both biases, `rec` R h.
static void cell_rnn(rnn_run *run, int d) {
    for (int64_t i = 0; i < run->hidden; i++)
        run->h[i] = apply(&run->attrs.act[d][0], run->pre[i] + run->rec[i], run->attrs.clip);
}

static void cell_lstm(rnn_run *run, int d) {
    const hn_activation *act = run->attrs.act[d];
    int64_t n = run->hidden;
    double clip = run->attrs.clip;
    const double *peep = run->peep ? run->peep + d * 3 * n : NULL;
    for (int64_t i = 0; i < n; i++) {
        double in = run->pre[i] + run->rec[i], out = run->pre[n + i] + run->rec[n + i];
        double forget = run->pre[2 * n + i] + run->rec[2 * n + i];
        double fresh = apply(&act[1], run->pre[3 * n + i] + run->rec[3 * n + i], clip);
        if (peep) {
            in += peep[i] * run->c[i];
            forget += peep[2 * n + i] * run->c[i];
        }
        in = apply(&act[0], in, clip);
        forget = run->attrs.input_forget ? 1 - in : apply(&act[0], forget, clip);
        run->c[i] = forget * run->c[i] + in * fresh;
        if (peep) out += peep[n + i] * run->c[i];
        // The clip is for the gates: the cell goes into its activation as it is (as in onnxruntime).
        run->h[i] = apply(&act[0], out, clip) * apply(&act[2], run->c[i], 0);
    }
}

static void cell_gru(rnn_run *run, int d) {
    const hn_activation *act = run->attrs.act[d];
    int64_t n = run->hidden;
    double clip = run->attrs.clip;
    const double *rh = run->r + (d * run->gates + 2 * n) * n;
    const double *rb = run->b ? run->b + d * 2 * run->gates + run->gates + 2 * n : NULL;
    bool linear = run->attrs.linear_before_reset;
    for (int64_t i = 0; i < n; i++) { // pre becomes z, reset the reset gate
        run->pre[i] = apply(&act[0], run->pre[i] + run->rec[i], clip);
        run->reset[i] = apply(&act[0], run->pre[n + i] + run->rec[n + i], clip);
    }
    if (!linear) {
        for (int64_t i = 0; i < n; i++) run->c[i] = run->reset[i] * run->h[i];
        matrix_vector(rh, run->c, n, n, run->rec + 2 * n);
    }
    for (int64_t i = 0; i < n; i++) {
        double bias = rb ? rb[i] : 0, hidden = run->rec[2 * n + i] + bias;
        // pre holds both biases; with linear_before_reset the recurrent one goes through the gate.
        double sum = run->pre[2 * n + i] - bias + (linear ? run->reset[i] * hidden : hidden);
        double fresh = apply(&act[1], sum, clip);
        run->h[i] = (1 - run->pre[i]) * fresh + run->pre[i] * run->h[i];
    }
}

static void run_item(rnn_run *run, int d, int64_t n) {
    static void (*const k_cells[])(rnn_run *, int) = {cell_rnn, cell_gru, cell_lstm};
    const hn_rnn_attrs *a = &run->attrs;
    int64_t length = run->lens ? run->lens[n] : run->seq, at = state_at(run, d, n);
    bool backwards = a->reverse || d == 1;
    for (int64_t i = 0; i < run->hidden; i++) {
        run->h[i] = run->h0 ? run->h0[at + i] : 0;
        run->c[i] = run->c0 ? run->c0[at + i] : 0;
    }
    const double *w = run->w + d * run->gates * run->width, *r = run->r + d * run->gates * run->hidden;
    const double *b = run->b ? run->b + d * 2 * run->gates : NULL;
    for (int64_t s = 0; s < length; s++) {
        int64_t t = backwards ? length - 1 - s : s;
        const double *x =
            run->x + (a->batch_first ? n * run->seq + t : t * run->batch + n) * run->width;
        matrix_vector(w, x, run->gates, run->width, run->pre);
        for (int64_t i = 0; b && i < run->gates; i++) run->pre[i] += b[i] + b[run->gates + i];
        matrix_vector(r, run->h, run->gates, run->hidden, run->rec);
        k_cells[a->kind](run, d);
        int64_t row = a->batch_first ? (n * run->seq + t) * a->directions + d
                                     : (t * a->directions + d) * run->batch + n;
        for (int64_t i = 0; i < run->hidden; i++) run->y[row * run->hidden + i] = run->h[i];
    }
    for (int64_t i = 0; i < run->hidden; i++) {
        run->y_h[at + i] = run->h[i];
        run->y_c[at + i] = run->c[i];
    }
}

static hone_status rnn_load(hone_error *err, const hn_call *call, hn_arena *scratch, rnn_run *run) {
    const hn_tensor *x = hn_call_in(call, 0), *r = hn_call_in(call, 2);
    bool first = run->attrs.batch_first;
    run->seq = x->shape.dims[first];
    run->batch = x->shape.dims[!first];
    run->width = x->shape.dims[2];
    run->hidden = r->shape.dims[2];
    run->gates = k_gates[run->attrs.kind] * run->hidden;
    bool lstm = run->attrs.kind == HN_RNN_LSTM;
    HN_TRY(hn_load_f64(err, scratch, x, &run->x));
    HN_TRY(hn_load_f64(err, scratch, hn_call_in(call, 1), &run->w));
    HN_TRY(hn_load_f64(err, scratch, r, &run->r));
    HN_TRY(hn_load_f64(err, scratch, hn_call_in(call, 3), &run->b));
    HN_TRY(hn_load_i64(err, scratch, hn_call_in(call, 4), &run->lens));
    HN_TRY(hn_load_f64(err, scratch, hn_call_in(call, 5), &run->h0));
    HN_TRY(hn_load_f64(err, scratch, lstm ? hn_call_in(call, 6) : NULL, &run->c0));
    HN_TRY(hn_load_f64(err, scratch, lstm ? hn_call_in(call, 7) : NULL, &run->peep));
    int64_t states = run->batch * run->attrs.directions * run->hidden;
    HN_TRY(hn_scratch_f64(err, scratch, states * run->seq, &run->y));
    HN_TRY(hn_scratch_f64(err, scratch, states, &run->y_h));
    HN_TRY(hn_scratch_f64(err, scratch, states, &run->y_c));
    HN_TRY(hn_scratch_f64(err, scratch, run->gates, &run->pre));
    HN_TRY(hn_scratch_f64(err, scratch, run->gates, &run->rec));
    HN_TRY(hn_scratch_f64(err, scratch, run->hidden, &run->h));
    HN_TRY(hn_scratch_f64(err, scratch, run->hidden, &run->c));
    HN_TRY(hn_scratch_f64(err, scratch, run->hidden, &run->reset));
    for (int64_t n = 0; run->lens && n < run->batch; n++)
        if (run->lens[n] < 0 || run->lens[n] > run->seq)
            HN_FAIL_NODE(err, HONE_ERR_INPUT, call->node, "sequence_lens holds %lld of %lld steps",
                         (long long)run->lens[n], (long long)run->seq);
    return HONE_OK;
}

static hone_status rnn_body(hone_error *err, const hn_call *call, hn_arena *scratch, hn_rnn_kind kind) {
    rnn_run run = {0};
    HN_TRY(hn_rnn_read(err, call->node, kind, &run.attrs));
    HN_TRY(rnn_load(err, call, scratch, &run));
    for (int d = 0; d < run.attrs.directions; d++)
        for (int64_t n = 0; n < run.batch; n++) run_item(&run, d, n);
    hn_store_f64(hn_call_out(call, 0), run.y);
    hn_store_f64(hn_call_out(call, 1), run.y_h);
    if (kind == HN_RNN_LSTM) hn_store_f64(hn_call_out(call, 2), run.y_c);
    return HONE_OK;
}
static hone_status plain_body(hone_error *err, const hn_call *call, hn_arena *scratch) {
    return rnn_body(err, call, scratch, HN_RNN_PLAIN);
}
static hone_status gru_body(hone_error *err, const hn_call *call, hn_arena *scratch) {
    return rnn_body(err, call, scratch, HN_RNN_GRU);
}
static hone_status lstm_body(hone_error *err, const hn_call *call, hn_arena *scratch) {
    return rnn_body(err, call, scratch, HN_RNN_LSTM);
}
HN_REF_FN(hn_ref_rnn) { return hn_ref_scratch(err, call, plain_body); }
HN_REF_FN(hn_ref_gru) { return hn_ref_scratch(err, call, gru_body); }
HN_REF_FN(hn_ref_lstm) { return hn_ref_scratch(err, call, lstm_body); }

HN_COST_FN(hn_cost_rnn) { // the two products of every step
    const hn_value *x = hn_in(node, 0), *w = hn_in(node, 1), *r = hn_in(node, 2);
    if (!x || !w || !r || x->type.rank != 3 || w->type.rank != 3 || r->type.rank != 3) return;
    double steps = (double)x->type.dims[0] * (double)x->type.dims[1];
    double rows = (double)w->type.dims[0] * (double)w->type.dims[1];
    out_cost->flops = 2 * steps * rows * ((double)w->type.dims[2] + (double)r->type.dims[2]);
}
