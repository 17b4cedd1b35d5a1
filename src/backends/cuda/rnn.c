// SPDX-License-Identifier: Apache-2.0
// RNN, GRU and LSTM: the input's part of all gates as one product, then the steps.
//
// A step is a launch over all units, items and directions (two for a GRU that resets before its product), so
// a layer is STEPS launches in one recording; where a block can have all units of its items, it is one launch.
// No block ever waits for another one.
#include "backends/cuda/write.h"
#include "ops/rnn.h"

#define LOOP_BYTES ((int64_t)192 << 10) // of one direction's R, read once a step by one block
#define MOST_LAUNCHES 20000

typedef struct rnn {
    hn_rnn_attrs attrs;
    cpu_value x, w, r, v;
    int64_t steps, batch, in, hidden;
    int rows, units, vector;
    bool loop;
} rnn;

static bool has(const hn_node *node, int input) { return input < node->input_count && node->inputs[input]; }

static bool read_rnn(hone_error *err, const hn_node *node, rnn *n) {
    hn_rnn_kind kind = !strcmp(node->op_type, "LSTM") ? HN_RNN_LSTM : !strcmp(node->op_type, "GRU") ? HN_RNN_GRU : HN_RNN_PLAIN;
    if (node->post_count || hn_rnn_read(err, node, kind, &n->attrs) != HONE_OK || !cpu_in(node, 0, &n->x) || !cpu_in(node, 1, &n->w) ||
        !cpu_in(node, 2, &n->r) || !hn_dtype_is_float(n->x.dtype) || !cuda_ctype(n->x.dtype) || n->x.count == 0)
        return false;
    for (int i = 1; i < node->input_count; i++)
        if (i != 4 && has(node, i) && (!cpu_in(node, i, &n->v) || n->v.dtype != n->x.dtype)) return false;
    if (has(node, 4) && (!cpu_in(node, 4, &n->v) || n->v.dtype != HN_I32)) return false;
    bool first = n->attrs.batch_first;
    n->steps = n->x.shape.dims[first];
    n->batch = n->x.shape.dims[!first];
    n->in = n->x.shape.dims[2];
    n->hidden = n->r.shape.dims[2];
    if (n->hidden < 1 || n->attrs.directions != n->w.shape.dims[0]) return false;
    n->rows = n->batch >= 8 ? 8 : n->batch >= 3 ? 4 : (int)n->batch;
    size_t item = hn_dtype_bytes(n->x.dtype);
    n->vector = cuda_vector(n->hidden, item < 4 ? 4 : item, 16); // of the state in registers, too
    while (n->vector > 1 && n->hidden / n->vector < 32)
        n->vector /= 2;
    n->loop = n->attrs.gates * n->hidden * n->hidden * (int64_t)item <= LOOP_BYTES;
    n->units = n->loop ? (int)hn_min_i64(n->hidden, 32) : 8;
    return n->steps * (n->attrs.gates + 1) < MOST_LAUNCHES || n->loop;
}

static void write_activations(cuda_writer *w, const hn_rnn_attrs *a) {
    hn_str_append(&w->text, "__device__ inline A act(i64 direction, int number, A x) {\n    typedef A T;\n    (void)direction;\n");
    for (int dir = 0; dir < a->directions; dir++)
        for (int f = 0; f < a->functions; f++) {
            const hn_activation *act = &a->act[dir][f];
            hn_str_printf(&w->text, "    if (direction == %d && number == %d) {\n        const T a = (T)", dir, f);
            cuda_print_number(&w->text, act->alpha);
            hn_str_append(&w->text, ", b = (T)");
            cuda_print_number(&w->text, act->beta);
            hn_str_printf(&w->text, ";\n        (void)a, (void)b;\n        return (T)(%s);\n    }\n", act->text);
        }
    hn_str_append(&w->text, "    return x;\n}\n");
}

static void write_rnn(cuda_writer *w, const rnn *n) {
    const hn_rnn_attrs *a = &n->attrs;
    const hn_node *node = w->node;
    cuda_write_type(w, "T", cuda_ctype(n->x.dtype));
    cuda_write_compute(w, n->x.dtype);
    const struct {
        const char *name;
        int value;
    } flags[] = {{"KIND", (int)a->kind}, {"GATES", a->gates}, {"DIRS", a->directions}, {"BATCH_FIRST", a->batch_first}, {"REVERSE", a->reverse},
                 {"LINEAR_BEFORE_RESET", a->linear_before_reset}, {"INPUT_FORGET", a->input_forget}, {"HAS_B", has(node, 3)},
                 {"HAS_LENS", has(node, 4)}, {"HAS_PEEP", a->kind == HN_RNN_LSTM && has(node, 7)}, {"ROWS", n->rows}, {"UNITS", n->units},
                 {"VEC", n->vector}, {"LOOP", n->loop}};
    for (size_t i = 0; i < HN_COUNT_OF(flags); i++)
        hn_str_printf(&w->text, "#define %s %d\n", flags[i].name, flags[i].value);
    cuda_write_number(w, "STEPS", n->steps);
    cuda_write_number(w, "BATCH", n->batch);
    cuda_write_number(w, "IN", n->in);
    cuda_write_number(w, "HIDDEN", n->hidden);
    hn_str_append(&w->text, "#define CLIP ");
    cuda_print_number(&w->text, a->clip);
    hn_str_append(&w->text, "\n");
    write_activations(w, a);
    cuda_write_text(w, "rnn");
}

hone_status cuda_rnn_select(hone_error *err, cuda_device *d, const hn_select *what, hn_kernel **out_kernel) {
    rnn n = {0};
    cuda_writer w;
    if (!read_rnn(NULL, what->node, &n)) return HONE_ERR_UNSUPPORTED;
    const hn_rnn_attrs *a = &n.attrs;
    int64_t width = a->gates * n.hidden, rows = n.steps * n.batch, states = a->directions * n.batch * n.hidden;
    int64_t item = n.x.dtype == HN_F64 ? 8 : 4, sums_bytes = (a->directions * rows * width * item + 255) / 256 * 256;
    cuda_write_begin(err, d, what->node, false, &w);
    write_rnn(&w, &n);
    cuda_arg x = cuda_write_input(&w, 0), weights = cuda_write_input(&w, 1), r = cuda_write_input(&w, 2), b = cuda_write_input(&w, 3);
    cuda_arg lens = cuda_write_input(&w, 4), h0 = cuda_write_input(&w, 5);
    cuda_arg c0 = a->kind == HN_RNN_LSTM ? cuda_write_input(&w, 6) : cuda_arg_i64(0), peep = a->kind == HN_RNN_LSTM ? cuda_write_input(&w, 7) : cuda_arg_i64(0);
    cuda_arg sums = cuda_arg_workspace(0), state = cuda_arg_workspace(sums_bytes), fault = cuda_arg_memory(d->fault_device);
    if (w.k) w.k->base.workspace_bytes = (size_t)(sums_bytes + 5 * states * item);
    int64_t tiles = (rows + 63) / 64 * ((width + 63) / 64), items = (n.batch + n.rows - 1) / n.rows;
    cuda_write_launch(&w, "hn_k_rnn_input", tiles * 256, 256, 4, (cuda_arg[]){x, weights, b, sums});
    if (w.status == HONE_OK) w.k->launches.data[0].grid[1] = (unsigned)a->directions;
    cuda_write_launch(&w, "hn_k_rnn_begin", states, 256, 5, (cuda_arg[]){h0, c0, lens, state, fault});
    bool two = a->kind == HN_RNN_GRU && !a->linear_before_reset;
    int threads = n.units * 32;
    int64_t blocks = n.loop ? items : items * ((n.hidden + n.units - 1) / n.units);
    for (int64_t step = 0; step < (n.loop ? 1 : n.steps); step++)
        for (int part = two && !n.loop ? 1 : 2; part < 3; part++) {
            cuda_arg args[] = {sums, r, b, peep, lens, state, cuda_write_output(&w, 0), cuda_write_output(&w, 1), cuda_write_output(&w, 2),
                               cuda_arg_i64(step), cuda_arg_i64(part)};
            cuda_write_launch(&w, "hn_k_rnn_step", blocks * threads, threads, 11, args);
            if (w.status == HONE_OK) w.k->launches.data[w.k->launches.count - 1].grid[1] = (unsigned)a->directions;
        }
    return cuda_write_done(&w, out_kernel);
}
