// SPDX-License-Identifier: Apache-2.0
// LSTM and GRU on float32 with constant weights: default activations, no clip, no peepholes, no
// sequence lengths, time-major. The rest is the reference's.
//
// The input's part of the gates is one product over all steps; each step then adds the hidden
// state's part and runs the cell. Rows of the batch and directions are independent: they are what
// threads share. Weights are packed transposed at select, so that a step reads them as rows.
#include "backends/cpu/cpu_int.h"
#include "kernels/cpu/rnn.h"
#include <stdio.h>

typedef struct rnn_kernel {
    hn_kernel base;
    const hn_k_rnn *k;
    bool gru, reset_after;
    int64_t steps, batch, in, hidden, gates; // gates: 4 or 3
    int directions;
    bool backward[2];
    int64_t ldb;         // floats of a packed row
    const float *packed; // by direction: W [in][ldb], R [hidden][ldb], bias [ldb], candidate's Rb [ldb]
    int64_t pack_floats; // of one direction
    int threads;
    int64_t grain;       // rows
    int input_h, input_c; // node inputs, -1: zeros
    bool want_y, want_h, want_c;
} rnn_kernel;

typedef struct rnn_job {
    const rnn_kernel *s;
    const hn_args *args;
} rnn_job;

// One direction over rows [b0, b0 + rows) of the batch.
static void run_rows(const rnn_kernel *s, const hn_args *args, int dir, int64_t b0, int64_t rows) {
    int64_t hidden = s->hidden, width = s->gates * hidden, batch = s->batch, steps = s->steps;
    const float *w = s->packed + dir * s->pack_floats, *r = w + s->in * s->ldb;
    const float *bias = r + hidden * s->ldb, *candidate_bias = bias + s->ldb;
    // Workspace of a row: gates of every step, the reset state, c, two h, the candidate's h part.
    int64_t row_floats = steps * width + 5 * hidden;
    float *own = (float *)args->workspace + (dir * batch + b0) * row_floats;
    float *xw = own, *c = own + rows * steps * width, *h = c + rows * hidden,
          *h2 = h + rows * hidden, *reset = h2 + rows * hidden, *part = reset + rows * hidden;
    const float *x = args->inputs[0];
    if (rows == batch) {
        s->k->gemm(x, s->in, w, s->ldb, bias, false, xw, width, steps * rows, width, s->in);
    } else {
        for (int64_t t = 0; t < steps; t++)
            s->k->gemm(x + (t * batch + b0) * s->in, s->in, w, s->ldb, bias, false,
                       xw + t * rows * width, width, rows, width, s->in);
    }
    size_t state_bytes = (size_t)(rows * hidden) * sizeof(float);
    int64_t state_at = (dir * batch + b0) * hidden;
    const float *h0 = s->input_h >= 0 ? args->inputs[s->input_h] : NULL;
    const float *c0 = s->input_c >= 0 ? args->inputs[s->input_c] : NULL;
    if (h0) memcpy(h, h0 + state_at, state_bytes);
    else memset(h, 0, state_bytes);
    if (c0) memcpy(c, c0 + state_at, state_bytes);
    else memset(c, 0, state_bytes);
    float *y = s->want_y ? args->outputs[0] : NULL;
    for (int64_t i = 0; i < steps; i++) {
        int64_t t = s->backward[dir] ? steps - 1 - i : i;
        float *gates = xw + t * rows * width;
        if (!s->gru) {
            s->k->gemm(h, hidden, r, s->ldb, NULL, true, gates, width, rows, width, hidden);
            for (int64_t b = 0; b < rows; b++)
                s->k->lstm_cell(gates + b * width, c + b * hidden, h + b * hidden, hidden);
        } else {
            s->k->gemm(h, hidden, r, s->ldb, NULL, true, gates, width, rows, 2 * hidden, hidden);
            if (s->reset_after) {
                s->k->gemm(h, hidden, r + 2 * hidden, s->ldb, candidate_bias, false, part, hidden,
                           rows, hidden, hidden);
            } else {
                for (int64_t b = 0; b < rows; b++)
                    s->k->gru_reset(gates + b * width + hidden, h + b * hidden, reset + b * hidden,
                                    hidden);
                s->k->gemm(reset, hidden, r + 2 * hidden, s->ldb, NULL, true, gates + 2 * hidden,
                           width, rows, hidden, hidden);
            }
            for (int64_t b = 0; b < rows; b++)
                s->k->gru_cell(gates + b * width, gates + b * width + 2 * hidden,
                               s->reset_after ? part + b * hidden : NULL, h + b * hidden,
                               h2 + b * hidden, hidden);
            float *swap = h;
            h = h2;
            h2 = swap;
        }
        if (y) memcpy(y + ((t * s->directions + dir) * batch + b0) * hidden, h, state_bytes);
    }
    if (s->want_h) memcpy((float *)args->outputs[1] + state_at, h, state_bytes);
    if (s->want_c) memcpy((float *)args->outputs[2] + state_at, c, state_bytes);
}

static void rnn_range(void *arg, int64_t begin, int64_t end) {
    const rnn_job *job = arg;
    const rnn_kernel *s = job->s;
    while (begin < end) {
        int64_t dir = begin / s->batch, b0 = begin % s->batch;
        int64_t rows = hn_min_i64(s->batch - b0, end - begin);
        run_rows(s, job->args, (int)dir, b0, rows);
        begin += rows;
    }
}

static hone_status rnn_run(hone_error *err, hn_kernel *kernel, const hn_args *args) {
    (void)err;
    rnn_kernel *s = (rnn_kernel *)kernel;
    rnn_job job = {s, args};
    int64_t total = s->directions * s->batch;
    if (s->threads <= 1) rnn_range(&job, 0, total);
    else hn_parallel_for(total, s->grain, rnn_range, &job);
    return HONE_OK;
}

static const hn_kernel_ops k_rnn_ops = {sizeof(hn_kernel_ops), NULL, rnn_run, cpu_kernel_destroy};

typedef struct pack_job {
    const rnn_kernel *s;
    const float *w, *r, *b; // b may be NULL
} pack_job;

// ONNX: W [dirs, gates * hidden, in], R [dirs, gates * hidden, hidden], B [dirs, 2 * gates * hidden].
static hone_status pack_form(hone_error *err, void *user, void *out) {
    (void)err;
    const pack_job *job = user;
    const rnn_kernel *s = job->s;
    const float *w = job->w, *r = job->r, *b = job->b;
    int64_t width = s->gates * s->hidden;
    for (int d = 0; d < s->directions; d++) {
        float *to = (float *)out + d * s->pack_floats;
        for (int64_t k = 0; k < s->in; k++)
            for (int64_t n = 0; n < width; n++)
                to[k * s->ldb + n] = w[(d * width + n) * s->in + k];
        to += s->in * s->ldb;
        for (int64_t k = 0; k < s->hidden; k++)
            for (int64_t n = 0; n < width; n++)
                to[k * s->ldb + n] = r[(d * width + n) * s->hidden + k];
        to += s->hidden * s->ldb;
        if (!b) continue;
        const float *wb = b + d * 2 * width, *rb = wb + width;
        for (int64_t n = 0; n < width; n++) {
            bool apart = s->gru && s->reset_after && n >= 2 * s->hidden;
            to[n] = wb[n] + (apart ? 0 : rb[n]);
            if (apart) to[s->ldb + n - 2 * s->hidden] = rb[n];
        }
    }
    return HONE_OK;
}

static hn_status pack(hone_error *err, const hn_select *what, rnn_kernel *s, const cpu_value *w,
                      const cpu_value *r, const cpu_value *b) {
    int64_t width = s->gates * s->hidden;
    s->ldb = (width + 63) / 64 * 64 + 64; // a panel reads up to 64 floats from any gate's start
    s->pack_floats = (s->in + s->hidden + 2) * s->ldb;
    size_t floats = (size_t)s->pack_floats * (size_t)s->directions + 64;
    char form[160];
    snprintf(form, sizeof form, "%s%s in %lld hidden %lld directions %d row %lld", s->gru ? "gru" : "lstm",
             s->gru && s->reset_after ? " reset after" : "", (long long)s->in, (long long)s->hidden,
             s->directions, (long long)s->ldb);
    pack_job job = {s, w->data, r->data, b->data};
    hn_prepared_ask ask = {.kind = "cpu recurrence",
                           .form = form,
                           .source = {cpu_source(w), cpu_source(r), cpu_source(b)},
                           .bytes = floats * sizeof(float),
                           .make = pack_form,
                           .user = &job};
    hn_prepared *prepared;
    HN_TRY(cpu_prepare(err, what, &s->base, &ask, &prepared));
    s->packed = hn_prepared_data(prepared);
    return HONE_OK;
}

static bool plain_attributes(const hn_node *node) {
    static const char *const none[] = {"clip", "activation_alpha", "activation_beta"};
    for (size_t i = 0; i < HN_COUNT_OF(none); i++)
        if (hn_node_attr(node, none[i])) return false;
    const hn_attr *names = hn_node_attr(node, "activations");
    if (names) {
        static const char *const lstm[] = {"Sigmoid", "Tanh", "Tanh"};
        int64_t period = !strcmp(node->op_type, "LSTM") ? 3 : 2;
        if (names->type != HN_ATTR_STRINGS) return false;
        for (int64_t i = 0; i < names->count; i++)
            if (!hn_slice_eq(names->strings[i], lstm[i % period])) return false;
    }
    return hn_node_int(node, "layout", 0) == 0 && hn_node_int(node, "input_forget", 0) == 0;
}

hone_status own_rnn_select(hone_error *err, cpu_state *cpu, const hn_select *what,
                           hn_kernel **out_kernel) {
    const hn_node *node = what->node;
    cpu_value x, w, r, b = {0}, v;
    bool gru = !strcmp(node->op_type, "GRU");
    if (node->post_count || !plain_attributes(node) || !cpu_in(node, 0, &x) ||
        !cpu_in(node, 1, &w) || !cpu_in(node, 2, &r) || !w.data || !r.data || x.dtype != HN_F32 ||
        x.count == 0)
        return HONE_ERR_UNSUPPORTED;
    if (node->input_count > 3 && node->inputs[3] && (!cpu_in(node, 3, &b) || !b.data))
        return HONE_ERR_UNSUPPORTED;
    if (node->input_count > 4 && node->inputs[4]) return HONE_ERR_UNSUPPORTED; // lengths
    if (node->input_count > 7 && node->inputs[7]) return HONE_ERR_UNSUPPORTED; // peepholes
    for (int i = 5; i < node->input_count && i < 7; i++)
        if (node->inputs[i] && (!cpu_in(node, i, &v) || v.dtype != HN_F32)) return HONE_ERR_UNSUPPORTED;
    rnn_kernel *s = cpu_kernel_new(sizeof *s, &k_rnn_ops);
    if (!s) HN_NOMEM(err, "selecting a kernel");
    s->k = cpu->rnn;
    s->gru = gru;
    s->gates = gru ? 3 : 4;
    s->reset_after = hn_node_int(node, "linear_before_reset", 0) != 0;
    s->steps = x.shape.dims[0];
    s->batch = x.shape.dims[1];
    s->in = x.shape.dims[2];
    s->hidden = r.shape.dims[2];
    hn_slice direction = hn_node_string(node, "direction", "forward");
    s->directions = (int)w.shape.dims[0];
    s->backward[0] = hn_slice_eq(direction, "reverse");
    s->backward[1] = true;
    s->input_h = node->input_count > 5 && node->inputs[5] ? 5 : -1;
    s->input_c = !gru && node->input_count > 6 && node->inputs[6] ? 6 : -1;
    s->want_y = node->output_count > 0 && node->outputs[0];
    s->want_h = node->output_count > 1 && node->outputs[1];
    s->want_c = !gru && node->output_count > 2 && node->outputs[2];
    if (w.shape.dims[1] != s->gates * s->hidden || s->directions > 2) {
        hn_free(s);
        return HONE_ERR_UNSUPPORTED;
    }
    hone_status status = pack(err, what, s, &w, &r, &b);
    if (status != HONE_OK) {
        hn_free(s);
        return status;
    }
    s->base.consumed = 7u << 1;
    s->base.workspace_bytes = (size_t)(s->directions * s->batch) *
                              (size_t)(s->steps * s->gates * s->hidden + 5 * s->hidden) * sizeof(float);
    double row = 2.0 * (double)(s->steps * s->gates * s->hidden * (s->in + s->hidden));
    s->threads = what->threads > 0 ? what->threads : hn_parallel_threads();
    s->grain = (int64_t)(4e5 / row) + 1;
    *out_kernel = &s->base;
    return HONE_OK;
}
