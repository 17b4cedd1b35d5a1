// SPDX-License-Identifier: Apache-2.0
// TopK, ArgMax, ArgMin, Hardmax, CumSum, CumProd: lines of a tensor, looked at in order.
//
// What decides is exact and the same in every run: an item is an element's key and its place, no two are
// equal. Sums run in double for float32, whose order of additions then does not show.
#include "backends/cuda/write.h"
#include "ops/common.h"

// Keys of up to 32 bits stand with their place in 64 bits, wider ones beside it.
static bool wide_key(hn_dtype dtype) { return hn_dtype_bits(dtype) == 64; }

static void write_keys(cuda_writer *w, hn_dtype dtype, bool largest, bool last_wins) {
    cuda_write_type(w, "T", cuda_ctype(dtype));
    hn_str_printf(&w->text, "#define KIND %d\n#define WIDE %d\n#define LARGEST %d\n#define LAST_WINS %d\n",
                  hn_dtype_is_float(dtype) ? 0 : hn_dtype_is_signed(dtype) ? 1 : 2, wide_key(dtype), largest, last_wins);
    cuda_write_text(w, "keys");
}

// ---- TopK ---------------------------------------------------------------------------------------
#define MOST_STEPS 400 // launches of one sort

typedef struct topk {
    cpu_value x;
    int64_t lines, count, inner, k, chunk, room;
    int threads;
    bool sorts; // the whole line
    size_t item;
} topk;

static bool read_topk(const hn_node *node, topk *t) {
    cpu_value y;
    int axis;
    if (node->post_count || !cpu_in(node, 0, &t->x) || !cuda_ctype(t->x.dtype) ||
        !hn_axis_normalise(hn_node_int(node, "axis", -1), t->x.shape.rank, &axis))
        return false;
    if (!(node->output_count > 0 && node->outputs[0] ? cpu_out(node, 0, &y) : cpu_out(node, 1, &y))) return false;
    t->count = t->x.shape.dims[axis];
    t->k = y.shape.dims[axis];
    t->inner = hn_span(&t->x.shape, axis + 1, t->x.shape.rank);
    if (y.count == 0 || t->k > t->count || t->count > INT32_MAX) return false;
    t->lines = y.count / t->k;
    t->item = wide_key(t->x.dtype) ? 16 : 8;
    t->chunk = 64;
    while (t->chunk < (int64_t)(32768 / t->item) && t->chunk < t->count)
        t->chunk *= 2;
    t->room = t->chunk;
    while (t->room < t->count)
        t->room *= 2;
    t->threads = (int)hn_min_i64(t->chunk / 2, 512);
    t->sorts = t->room > t->chunk && t->k > t->chunk / 2;
    return true;
}

// Chunks keep K items each until one of them holds a line.
static void topk_passes(cuda_writer *w, const topk *t, const cuda_arg *values) {
    cuda_arg x = values[0], in = cuda_arg_i64(0);
    int64_t length = t->count, used = 0, at[2] = {0, 0};
    for (int pass = 0;; pass++) {
        int64_t tiles = (length + t->chunk - 1) / t->chunk;
        bool last = tiles == 1;
        cuda_arg to = last ? cuda_arg_i64(0) : cuda_arg_workspace(at[pass % 2]);
        cuda_arg args[] = {x, in, to, values[1], values[2], cuda_arg_i64(length), cuda_arg_i64(tiles), cuda_arg_i64(t->k), cuda_arg_i64(0)};
        cuda_write_launch(w, "hn_k_topk_tile", t->lines * tiles * t->threads, t->threads, 9, args);
        if (last) return;
        if (pass < 2) { // later passes are smaller and take turns in the two
            used = at[pass] + t->lines * tiles * t->k * (int64_t)t->item;
            at[1] = pass == 0 ? used : at[1];
            w->k->base.workspace_bytes = (size_t)used;
        }
        length = tiles * t->k;
        in = to;
    }
}

static void topk_sort(cuda_writer *w, const topk *t, const cuda_arg *values) {
    int64_t tiles = t->room / t->chunk, launches = 0;
    cuda_arg items = cuda_arg_workspace(0);
    w->k->base.workspace_bytes = (size_t)(t->lines * t->room) * t->item;
    cuda_arg args[] = {values[0], cuda_arg_i64(0), items, values[1], values[2], cuda_arg_i64(t->count), cuda_arg_i64(tiles), cuda_arg_i64(t->chunk),
                       cuda_arg_i64(1)};
    cuda_write_launch(w, "hn_k_topk_tile", t->lines * tiles * t->threads, t->threads, 9, args);
    for (int64_t size = 2 * t->chunk; size <= t->room; size *= 2) {
        for (int64_t step = size / 2; step >= t->chunk && launches < MOST_STEPS; step /= 2, launches++)
            cuda_write_launch(w, "hn_k_topk_step", t->lines * (t->room / 2), 256, 3,
                              (cuda_arg[]){items, cuda_arg_i64(size), cuda_arg_i64(step)});
        cuda_write_launch(w, "hn_k_topk_merge", t->lines * tiles * t->threads, t->threads, 5,
                          (cuda_arg[]){values[0], items, values[1], values[2], cuda_arg_i64(size)});
    }
    if (w->status == HONE_OK && launches >= MOST_STEPS) w->status = HONE_ERR_UNSUPPORTED;
}

hone_status cuda_topk_select(hone_error *err, cuda_device *d, const hn_select *what, hn_kernel **out_kernel) {
    const hn_node *node = what->node;
    topk t = {0};
    cuda_writer w;
    if (!read_topk(node, &t)) return HONE_ERR_UNSUPPORTED;
    cuda_write_begin(err, d, node, true, &w);
    write_keys(&w, t.x.dtype, hn_node_int(node, "largest", 1) != 0, false);
    cuda_write_number(&w, "LINES", t.lines);
    cuda_write_number(&w, "COUNT", t.count);
    cuda_write_number(&w, "INNER", t.inner);
    cuda_write_number(&w, "K", t.k);
    cuda_write_number(&w, "CHUNK", t.chunk);
    cuda_write_number(&w, "ROOM", t.room);
    hn_str_printf(&w.text, "#define THREADS %d\n", t.threads);
    cuda_write_text(&w, "topk");
    cuda_arg values[] = {cuda_write_input(&w, 0), cuda_write_output(&w, 0), cuda_write_output(&w, 1)};
    if (w.k) w.k->base.consumed |= 2; // K is the output's shape
    if (t.sorts) topk_sort(&w, &t, values);
    else topk_passes(&w, &t, values);
    return cuda_write_done(&w, out_kernel);
}

// ---- ArgMax, ArgMin, Hardmax --------------------------------------------------------------------
// Lines as [outer][count][inner]; `layout` falls back to plain where the kept dims would change order.
static bool line_band(const cpu_value *x, int axis, bool keeps, hn_layout *io_layout, int64_t *band) {
    bool reduced[HN_MAX_RANK] = {false};
    reduced[axis] = true;
    if (*io_layout == CUDA_LAST && !keeps && axis != 1) *io_layout = CUDA_PLAIN;
    return cuda_band(&x->shape, *io_layout, reduced, band) && band[1] > 0 && band[1] < INT32_MAX;
}

static hn_status arg_select(hone_error *err, cuda_device *d, const hn_select *what, bool one_hot, int axis, bool largest, bool last_wins,
                            hn_kernel **out_kernel) {
    const hn_node *node = what->node;
    cpu_value x, y;
    cuda_writer w;
    int64_t band[3];
    hn_layout layout = cuda_hint(what, 0);
    if (!cpu_in(node, 0, &x) || !cpu_out(node, 0, &y) || y.count == 0 || !cuda_ctype(x.dtype) || !line_band(&x, axis, one_hot, &layout, band))
        return HONE_ERR_UNSUPPORTED;
    if (x.data) layout = CUDA_PLAIN;
    int group = band[1] <= 1024 ? 32 : band[1] <= 8192 ? 256 : 1024, threads = group < 128 ? 128 : group;
    bool rows = band[2] == 1;
    if (!rows) threads = 128;
    if (x.data && !line_band(&x, axis, one_hot, &layout, band)) return HONE_ERR_UNSUPPORTED;
    cuda_write_begin(err, d, node, true, &w);
    write_keys(&w, x.dtype, largest, last_wins);
    cuda_write_type(&w, "D", cuda_ctype(y.dtype));
    hn_str_printf(&w.text, "#define ONE_HOT %d\n#define GROUP %d\n#define THREADS %d\n", one_hot, group, threads);
    cuda_write_number(&w, "OUTER", band[0]);
    cuda_write_number(&w, "COUNT", band[1]);
    cuda_write_number(&w, "INNER", band[2]);
    cuda_write_text(&w, "arg");
    if (w.k) w.k->base.in_layout[0] = layout;
    hn_layout out_layout = one_hot ? layout : CUDA_PLAIN;
    if (w.k) w.k->base.out_layout[0] = out_layout;
    cuda_arg args[] = {cuda_write_input(&w, 0), cuda_arg_output(0)};
    cuda_write_launch(&w, "hn_k_arg", rows ? band[0] * group : band[0] * band[2], threads, 2, args);
    if (w.status == HONE_OK && node->post_count) w.status = cuda_posts(err, w.k, what, 0, &y.shape, y.dtype, out_layout);
    return cuda_write_done(&w, out_kernel);
}

hone_status cuda_arg_select(hone_error *err, cuda_device *d, const hn_select *what, hn_kernel **out_kernel) {
    const hn_node *node = what->node;
    int axis;
    if (node->post_count || !node->inputs[0] || node->inputs[0]->type.rank < 1 ||
        !hn_axis_normalise(hn_node_int(node, "axis", 0), node->inputs[0]->type.rank, &axis))
        return HONE_ERR_UNSUPPORTED;
    return arg_select(err, d, what, false, axis, !strcmp(node->op_type, "ArgMax"), hn_node_int(node, "select_last_index", 0) != 0, out_kernel);
}

hone_status cuda_hardmax_select(hone_error *err, cuda_device *d, const hn_select *what, hn_kernel **out_kernel) {
    const hn_node *node = what->node;
    int axis;
    // Forms before opset 13 flatten.
    if (node->version < 13 || !node->inputs[0] || node->inputs[0]->type.rank < 1 || !hn_dtype_is_float(node->inputs[0]->type.dtype) ||
        !hn_axis_normalise(hn_node_int(node, "axis", -1), node->inputs[0]->type.rank, &axis))
        return HONE_ERR_UNSUPPORTED;
    return arg_select(err, d, what, true, axis, true, false, out_kernel);
}

// ---- CumSum, CumProd ----------------------------------------------------------------------------
hone_status cuda_scan_select(hone_error *err, cuda_device *d, const hn_select *what, hn_kernel **out_kernel) {
    const hn_node *node = what->node;
    cpu_value x, y;
    cuda_writer w;
    int axis;
    int64_t given;
    if (!cpu_in(node, 0, &x) || !cpu_out(node, 0, &y) || x.count == 0 || !cuda_ctype(x.dtype) || x.dtype == HN_BOOL ||
        cpu_const_ints(node, 1, &given, 1) != 1 || !hn_axis_normalise(given, x.shape.rank, &axis))
        return HONE_ERR_UNSUPPORTED;
    int64_t count = x.shape.dims[axis], inner = hn_span(&x.shape, axis + 1, x.shape.rank), outer = x.count / count / inner;
    bool by_column = inner >= 32 && outer * inner >= (int64_t)d->caps.sm_count * 64;
    cuda_write_begin(err, d, node, true, &w);
    cuda_write_type(&w, "T", cuda_ctype(x.dtype));
    if (x.dtype == HN_F32) hn_str_append(&w.text, "typedef double A;\n#define LOAD(x) to_f64(x)\n");
    else cuda_write_compute(&w, x.dtype);
    cuda_write_type(&w, "U", hn_dtype_is_float(x.dtype) ? "A" : "u64");
    hn_str_printf(&w.text, "#define PRODUCT %d\n#define EXCLUSIVE %d\n#define REVERSE %d\n#define BY_COLUMN %d\n", !strcmp(node->op_type, "CumProd"),
                  hn_node_int(node, "exclusive", 0) != 0, hn_node_int(node, "reverse", 0) != 0, by_column);
    cuda_write_number(&w, "OUTER", outer);
    cuda_write_number(&w, "COUNT", count);
    cuda_write_number(&w, "INNER", inner);
    cuda_write_text(&w, "scan");
    if (w.k) w.k->base.consumed |= 2;
    cuda_arg args[] = {cuda_write_input(&w, 0), cuda_arg_output(0)};
    cuda_write_launch(&w, "hn_k_scan", by_column ? outer * inner : outer * inner * 256, by_column ? 128 : 256, 2, args);
    if (w.status == HONE_OK && node->post_count) w.status = cuda_posts(err, w.k, what, 0, &y.shape, y.dtype, CUDA_PLAIN);
    return cuda_write_done(&w, out_kernel);
}
