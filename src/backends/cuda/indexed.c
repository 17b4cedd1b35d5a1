// SPDX-License-Identifier: Apache-2.0
// GatherElements, GatherND, ScatterElements, ScatterND, TensorScatter, ReverseSequence, Trilu: moves that
// numbers of the run direct. An index outside raises the device's fault flag, read at the next wait.
#include "backends/cuda/write.h"
#include "ops/common.h"
#include "ops/elementwise.h"
#include "ops/nn_int.h"

static bool index_dtype(hn_dtype dtype) { return dtype == HN_I64 || dtype == HN_I32; }

// Offsets of all dims but `axis` from number i of a tensor of shape `index`, as statements.
static void write_place(cuda_writer *w, const hn_shape *index, const int64_t *strides, int axis) {
    hn_str_append(&w->text, "#define PLACE");
    for (int d = index->rank - 1; d >= 0; d--) {
        if (d == axis) hn_str_printf(&w->text, " i /= %lldll;", (long long)index->dims[d]);
        else hn_str_printf(&w->text, " offset += i %% %lldll * %lldll; i /= %lldll;", (long long)index->dims[d], (long long)strides[d], (long long)index->dims[d]);
    }
    hn_str_append(&w->text, "\n");
}

// What names an element: one index along an axis. False where the indices reach beyond the data.
static bool write_by_element(cuda_writer *w, const hn_node *node, const cpu_value *data, const cpu_value *index) {
    int axis;
    int64_t strides[HN_MAX_RANK];
    if (data->shape.rank != index->shape.rank || !hn_axis_normalise(hn_node_int(node, "axis", 0), data->shape.rank, &axis)) return false;
    for (int d = 0; d < data->shape.rank; d++)
        if (d != axis && index->shape.dims[d] > data->shape.dims[d]) return false;
    hn_strides(&data->shape, strides);
    hn_str_append(&w->text, "#define BY_ELEMENT 1\n");
    write_place(w, &index->shape, strides, axis);
    cuda_write_number(w, "AXIS", data->shape.dims[axis]);
    cuda_write_number(w, "STEP", strides[axis]);
    return true;
}

// DEPTH indices name a piece of `inner` units: dims from `first` on.
static void write_by_piece(cuda_writer *w, const hn_shape *data, int first, int64_t depth, int64_t unit_inner) {
    int64_t step = unit_inner;
    int64_t dims[HN_MAX_RANK], strides[HN_MAX_RANK];
    for (int64_t k = depth - 1; k >= 0; k--) {
        dims[k] = data->dims[first + k];
        strides[k] = step;
        step *= dims[k];
    }
    hn_str_append(&w->text, "#define BY_ELEMENT 0\n");
    cuda_write_number(w, "DEPTH", depth);
    for (int list = 0; list < 2; list++) {
        hn_str_printf(&w->text, "#define %s(k) (", list ? "STRIDE" : "DIM");
        for (int64_t k = 0; k < depth; k++)
            hn_str_printf(&w->text, "k == %d ? %lldll : ", (int)k, (long long)(list ? strides : dims)[k]);
        hn_str_append(&w->text, "1ll)\n");
    }
}

// ---- GatherElements, GatherND -------------------------------------------------------------------
hone_status cuda_gather_elements_select(hone_error *err, cuda_device *d, const hn_select *what, hn_kernel **out_kernel) {
    const hn_node *node = what->node;
    cpu_value x, index, y;
    cuda_writer w;
    bool pieces = !strcmp(node->op_type, "GatherND");
    if (node->post_count || !cpu_in(node, 0, &x) || !cpu_in(node, 1, &index) || !cpu_out(node, 0, &y) || y.count == 0 ||
        !cuda_moves_dtype(x.dtype) || !index_dtype(index.dtype))
        return HONE_ERR_UNSUPPORTED;
    int batch = (int)hn_node_int(node, "batch_dims", 0), last = index.shape.rank - 1;
    int64_t depth = pieces ? index.shape.dims[last] : 1, inner = pieces ? hn_span(&x.shape, batch + (int)depth, x.shape.rank) : 1;
    int item = (int)hn_dtype_bytes(x.dtype), unit = pieces ? cuda_vector(inner * item, 1, 16) : item;
    if (unit < item) unit = item;
    inner = inner * item / unit;
    int64_t total = y.count * item / unit;
    cuda_write_begin(err, d, node, true, &w);
    cuda_write_type(&w, "I", cuda_ctype(index.dtype));
    hn_str_printf(&w.text, "#define U %s\n", cuda_unit(unit));
    cuda_write_number(&w, "COUNT", total);
    if (pieces) {
        write_by_piece(&w, &x.shape, batch, depth, inner);
        cuda_write_number(&w, "INNER", inner);
        cuda_write_number(&w, "ROWS_A_BATCH", hn_span(&index.shape, batch, last));
        cuda_write_number(&w, "BATCH_STEP", hn_span(&x.shape, batch, batch + (int)depth) * inner);
    } else if (!write_by_element(&w, node, &x, &index)) {
        if (w.status == HONE_OK) w.status = HONE_ERR_UNSUPPORTED;
    }
    cuda_write_text(&w, "gather_elements");
    cuda_arg args[] = {cuda_write_input(&w, 0), cuda_write_input(&w, 1), cuda_arg_output(0), cuda_arg_memory(d->fault_device)};
    cuda_write_launch(&w, "hn_k_gather_elements", total, 256, 4, args);
    return cuda_write_done(&w, out_kernel);
}

// ---- ScatterElements, ScatterND -----------------------------------------------------------------
typedef struct scatter {
    cpu_value data, index, updates;
    int64_t slots, block, rows;
    bool elements;
    hn_op op; // HN_OP_UNKNOWN replaces
} scatter;

static bool read_scatter(const hn_node *node, scatter *s) {
    static const struct {
        const char *name;
        hn_op op;
    } k_reductions[] = {{"none", HN_OP_UNKNOWN}, {"add", HN_OP_ADD}, {"mul", HN_OP_MUL}, {"max", HN_OP_MAX}, {"min", HN_OP_MIN}};
    hn_slice name = hn_node_string(node, "reduction", "none");
    size_t row = 0;
    while (row < HN_COUNT_OF(k_reductions) && !hn_slice_eq(name, k_reductions[row].name))
        row++;
    if (node->post_count || row == HN_COUNT_OF(k_reductions) || !cpu_in(node, 0, &s->data) || !cpu_in(node, 1, &s->index) ||
        !cpu_in(node, 2, &s->updates) || !cuda_ctype(s->data.dtype) || !index_dtype(s->index.dtype) || s->data.count == 0)
        return false;
    s->op = k_reductions[row].op;
    // Adding is or, multiplying is and.
    if (s->data.dtype == HN_BOOL) s->op = s->op == HN_OP_ADD ? HN_OP_MAX : s->op == HN_OP_MUL ? HN_OP_MIN : s->op;
    s->elements = strcmp(node->op_type, "ScatterND") != 0;
    int last = s->index.shape.rank - 1;
    int64_t depth = s->elements ? 0 : s->index.shape.dims[last];
    s->rows = s->elements ? s->index.count : hn_span(&s->index.shape, 0, last);
    s->block = s->elements ? 1 : hn_span(&s->data.shape, (int)depth, s->data.shape.rank);
    s->slots = s->data.count / s->block;
    return s->rows * s->block == s->updates.count && s->slots < INT32_MAX / 2 && s->rows < INT32_MAX && (s->elements || depth > 0);
}

hone_status cuda_scatter_select(hone_error *err, cuda_device *d, const hn_select *what, hn_kernel **out_kernel) {
    const hn_node *node = what->node;
    scatter s = {.op = HN_OP_UNKNOWN};
    cuda_writer w;
    if (!read_scatter(node, &s)) return HONE_ERR_UNSUPPORTED;
    bool replace = s.op == HN_OP_UNKNOWN, floats = hn_dtype_is_float(s.data.dtype);
    cuda_write_begin(err, d, node, true, &w);
    cuda_write_type(&w, "T", cuda_ctype(s.data.dtype));
    cuda_write_type(&w, "I", cuda_ctype(s.index.dtype));
    cuda_write_compute(&w, s.data.dtype);
    cuda_write_type(&w, "U", floats ? "A" : "u64");
    hn_class class = floats ? HN_CLASS_F : hn_dtype_is_signed(s.data.dtype) ? HN_CLASS_I : HN_CLASS_U;
    // The formulas of the op table call the type computed in T.
    hn_str_printf(&w.text, "#define REPLACE %d\n", replace);
    hn_str_append(&w.text, "#define COMBINE ");
    const char *formula = replace ? "y" : hn_scalar_text(s.op, class);
    for (const char *c = formula; *c; c++)
        hn_str_printf(&w.text, "%s", (char[2]){*c == 'T' ? 'A' : *c, 0});
    hn_str_append(&w.text, "\n");
    cuda_write_number(&w, "SLOTS", s.slots);
    cuda_write_number(&w, "BLOCK", s.block);
    cuda_write_number(&w, "ROWS", s.rows);
    if (!s.elements) write_by_piece(&w, &s.data.shape, 0, s.index.shape.dims[s.index.shape.rank - 1], 1);
    else if (!write_by_element(&w, node, &s.data, &s.index) && w.status == HONE_OK) w.status = HONE_ERR_UNSUPPORTED;
    cuda_write_text(&w, "scatter");
    cuda_arg args[] = {cuda_write_input(&w, 0), cuda_write_input(&w, 1), cuda_write_input(&w, 2), cuda_arg_output(0),
                       cuda_arg_workspace(0), cuda_arg_memory(d->fault_device), cuda_arg_i64(0)};
    if (w.k) {
        w.k->base.workspace_bytes = (size_t)(replace ? s.slots : 2 * s.slots + 1 + s.rows) * 4;
        w.k->base.inplace_input[0] = 0;
    }
    int64_t begin = replace ? s.data.count : hn_max_i64(s.data.count, 2 * s.slots + 1);
    int64_t items[] = {begin, s.rows, s.slots, s.rows, s.slots, replace ? s.updates.count : s.data.count};
    for (int phase = 0; phase < 6; phase++) {
        if ((replace && phase >= 2 && phase <= 4) || (phase > 0 && s.updates.count == 0)) continue;
        args[6] = cuda_arg_i64(phase);
        cuda_write_launch(&w, "hn_k_scatter", items[phase], 256, 7, args);
    }
    return cuda_write_done(&w, out_kernel);
}

// ---- copies whose source depends on few numbers of the run ---------------------------------------
typedef struct placed {
    int index;      // node input with the numbers, -1: none
    int second;     // node input of a second source, -1: none
    int64_t count;  // output elements
    hn_dtype dtype, index_dtype;
} placed;

// `from`: statements that set `from` and perhaps `source` and `bad` from i, all in elements.
static hn_status place_kernel(hone_error *err, cuda_device *d, const hn_node *node, const placed *p, const char *from, hn_kernel **out_kernel) {
    cuda_writer w;
    cuda_write_begin(err, d, node, true, &w);
    cuda_write_type(&w, "I", p->index >= 0 ? cuda_ctype(p->index_dtype) : "i64");
    hn_str_printf(&w.text, "#define U %s\n", cuda_unit((int)hn_dtype_bytes(p->dtype)));
    cuda_write_number(&w, "COUNT", p->count);
    hn_str_printf(&w.text, "#define FROM %s\n", from);
    cuda_write_text(&w, "place");
    cuda_arg none = cuda_arg_i64(0);
    cuda_arg args[] = {cuda_write_input(&w, 0), p->second >= 0 ? cuda_write_input(&w, p->second) : none,
                       p->index >= 0 ? cuda_write_input(&w, p->index) : none, cuda_arg_output(0), cuda_arg_memory(d->fault_device)};
    cuda_write_launch(&w, "hn_k_place", p->count, 256, 5, args);
    return cuda_write_done(&w, out_kernel);
}

hone_status cuda_trilu_select(hone_error *err, cuda_device *d, const hn_select *what, hn_kernel **out_kernel) {
    const hn_node *node = what->node;
    cpu_value x, k = {.dtype = HN_I64};
    char from[400];
    if (node->post_count || !cpu_in(node, 0, &x) || !cuda_moves_dtype(x.dtype) || x.shape.rank < 2 || x.count == 0) return HONE_ERR_UNSUPPORTED;
    bool given = node->input_count > 1 && node->inputs[1];
    if (given && (!cpu_in(node, 1, &k) || k.count != 1 || !index_dtype(k.dtype))) return HONE_ERR_UNSUPPORTED;
    int64_t columns = x.shape.dims[x.shape.rank - 1], rows = x.shape.dims[x.shape.rank - 2];
    // The diagonal's number comes from a file: its sum with a row must not run over.
    snprintf(from, sizeof from,
             "const i64 column = i %% %lldll, row = i / %lldll %% %lldll, given = %s; const i64 k = given > %lldll ? %lldll : given < -%lldll ? -%lldll : given;"
             " from = (column - row) %s k ? i : -1;",
             (long long)columns, (long long)columns, (long long)rows, given ? "index[0]" : "0", (long long)(columns + rows), (long long)(columns + rows),
             (long long)(columns + rows), (long long)(columns + rows), hn_node_int(node, "upper", 1) ? ">=" : "<=");
    return place_kernel(err, d, node, &(placed){given ? 1 : -1, -1, x.count, x.dtype, k.dtype}, from, out_kernel);
}

hone_status cuda_reverse_sequence_select(hone_error *err, cuda_device *d, const hn_select *what, hn_kernel **out_kernel) {
    const hn_node *node = what->node;
    cpu_value x, lengths;
    int64_t strides[HN_MAX_RANK];
    char from[500];
    if (node->post_count || !cpu_in(node, 0, &x) || !cpu_in(node, 1, &lengths) || !cuda_moves_dtype(x.dtype) || !index_dtype(lengths.dtype) ||
        x.shape.rank < 2 || x.count == 0)
        return HONE_ERR_UNSUPPORTED;
    int batch = (int)hn_node_int(node, "batch_axis", 1), time = 1 - batch;
    if (batch < 0 || batch > 1 || lengths.count != x.shape.dims[batch]) return HONE_ERR_UNSUPPORTED;
    hn_strides(&x.shape, strides);
    snprintf(from, sizeof from,
             "const i64 b = i / %lldll %% %lldll, t = i / %lldll %% %lldll, n = index[b]; bad = n < 0 || n > %lldll;"
             " from = t < n ? i + (n - 1 - 2 * t) * %lldll : i;",
             (long long)strides[batch], (long long)x.shape.dims[batch], (long long)strides[time], (long long)x.shape.dims[time],
             (long long)x.shape.dims[time], (long long)strides[time]);
    return place_kernel(err, d, node, &(placed){1, -1, x.count, x.dtype, lengths.dtype}, from, out_kernel);
}

hone_status cuda_tensor_scatter_select(hone_error *err, cuda_device *d, const hn_select *what, hn_kernel **out_kernel) {
    const hn_node *node = what->node;
    cpu_value past, update, starts = {.dtype = HN_I64};
    int axis;
    char from[900];
    if (node->post_count || !cpu_in(node, 0, &past) || !cpu_in(node, 1, &update) || !cuda_moves_dtype(past.dtype) || past.count == 0 ||
        past.shape.rank < 2 || !hn_axis_normalise(hn_node_int(node, "axis", -2), past.shape.rank, &axis) || axis == 0)
        return HONE_ERR_UNSUPPORTED;
    bool given = node->input_count > 2 && node->inputs[2], circular = hn_slice_eq(hn_node_string(node, "mode", "linear"), "circular");
    if (given && (!cpu_in(node, 2, &starts) || !index_dtype(starts.dtype) || starts.count != past.shape.dims[0])) return HONE_ERR_UNSUPPORTED;
    int64_t room = past.shape.dims[axis], length = update.shape.dims[axis], inner = hn_span(&past.shape, axis + 1, past.shape.rank);
    int64_t item = past.count / past.shape.dims[0];
    if (length > room || update.count == 0) return HONE_ERR_UNSUPPORTED;
    snprintf(from, sizeof from,
             "const i64 b = i / %lldll, place = i / %lldll %% %lldll, start = %s; bad = start < 0 || start > %lldll;"
             " i64 at = place - start; if (%d && at < 0) at += %lldll; from = i;"
             " if (at >= 0 && at < %lldll) { source = x2; from = (i / %lldll * %lldll + at) * %lldll + i %% %lldll; }",
             (long long)item, (long long)inner, (long long)room, given ? "index[b]" : "0",
             (long long)(circular ? room - 1 : room - length), circular, (long long)room,
             (long long)length, (long long)(room * inner), (long long)length, (long long)inner, (long long)inner);
    return place_kernel(err, d, node, &(placed){given ? 2 : -1, 1, past.count, past.dtype, starts.dtype}, from, out_kernel);
}
