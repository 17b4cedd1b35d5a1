// SPDX-License-Identifier: Apache-2.0
// Ops that only move elements: Transpose, Concat, Split, Slice, Pad, Expand, Tile, DepthToSpace,
// SpaceToDepth, Gather. Each becomes a list of strided copies between one input and one output.
//
// Layouts: an op whose dims keep their meaning works in the layout its input has; the others are
// plain on the side where the logical order counts.
#include "backends/cpu/cpu_int.h"

static void fill(const cpu_moves *k, void *out) {
    int64_t n = k->fill_count;
    switch (k->fill_bytes) {
    case 1: memset(out, (int)k->fill_bits, (size_t)n); break;
    case 2:
        for (int64_t i = 0; i < n; i++)
            ((uint16_t *)out)[i] = (uint16_t)k->fill_bits;
        break;
    case 4:
        for (int64_t i = 0; i < n; i++)
            ((uint32_t *)out)[i] = (uint32_t)k->fill_bits;
        break;
    default:
        for (int64_t i = 0; i < n; i++)
            ((uint64_t *)out)[i] = k->fill_bits;
    }
}

static hone_status moves_run(hone_error *err, hn_kernel *kernel, const hn_args *args) {
    (void)err;
    cpu_moves *k = (cpu_moves *)kernel;
    if (k->fill_output >= 0) fill(k, args->outputs[k->fill_output]);
    for (int i = 0; i < k->count; i++)
        cpu_move_run(&k->part[i].move, args->inputs[k->part[i].input],
                     args->outputs[k->part[i].output]);
    return HONE_OK;
}
static const hn_kernel_ops k_moves_ops = {sizeof(hn_kernel_ops), NULL, moves_run,
                                          cpu_kernel_destroy};

static bool movable(hn_dtype dtype) {
    int bits = hn_dtype_bits(dtype);
    return bits >= 8 && bits <= 64;
}

static hn_status moves_new(hone_error *err, int parts, cpu_moves **out) {
    cpu_moves *k = cpu_kernel_new(sizeof *k + (size_t)parts * sizeof(cpu_move_part), &k_moves_ops);
    if (!k) HN_NOMEM(err, "selecting a kernel");
    k->fill_output = -1;
    *out = k;
    return HONE_OK;
}

// One box of elements: `dims` logical sizes with strides on both sides, walked in `order`.
static void add_part(const hn_select *what, cpu_moves *k, int input, int output, int rank,
                     const int *order, const int64_t *dims, const int64_t *in_strides,
                     int64_t in_offset, const int64_t *out_strides, int64_t out_offset,
                     size_t bytes) {
    int64_t d[HN_MAX_RANK], is[HN_MAX_RANK], os[HN_MAX_RANK];
    for (int i = 0; i < rank; i++) {
        d[i] = dims[order[i]];
        is[i] = in_strides[order[i]];
        os[i] = out_strides[order[i]];
    }
    cpu_move_part *part = &k->part[k->count++];
    part->input = input;
    part->output = output;
    cpu_move_init(&part->move, rank, d, is, os, bytes);
    part->move.in_offset = in_offset;
    part->move.out_offset = out_offset;
    part->move.threads = what->threads > 0 ? what->threads : hn_parallel_threads();
}

// Common start: input 0 and output 0 of one movable type, no posts.
static bool read_pair(const hn_node *node, cpu_value *x, cpu_value *y) {
    return !node->post_count && cpu_in(node, 0, x) && cpu_out(node, 0, y) && movable(x->dtype) &&
           x->dtype == y->dtype;
}

// ---- Transpose ----------------------------------------------------------------------------------
// Strides of the input along the output's dims.
static bool is_dense(const hn_shape *shape, hn_layout layout, const int64_t *strides) {
    int64_t want[HN_MAX_RANK];
    cpu_strides(shape, layout, want);
    for (int i = 0; i < shape->rank; i++)
        if (shape->dims[i] != 1 && want[i] != strides[i]) return false;
    return true;
}

hone_status own_transpose_select(hone_error *err, cpu_state *cpu, const hn_select *what,
                                 hn_kernel **out_kernel) {
    (void)cpu;
    cpu_value x, y;
    if (!read_pair(what->node, &x, &y)) return HONE_ERR_UNSUPPORTED;
    int rank = x.shape.rank, order[HN_MAX_RANK];
    int64_t have = 0, own[HN_MAX_RANK], is[HN_MAX_RANK], os[HN_MAX_RANK];
    const int64_t *perm = hn_node_ints(what->node, "perm", &have);
    if (perm && have != rank) return HONE_ERR_UNSUPPORTED;
    hn_layout in = cpu_hint(what, 0), out = HN_LAYOUT_PLAIN;
    cpu_strides(&x.shape, in, own);
    for (int i = 0; i < rank; i++)
        is[i] = own[perm ? perm[i] : rank - 1 - i];
    // A transposition to channels-first is free when its result is kept channels-last.
    if (is_dense(&y.shape, HN_LAYOUT_CHANNELS_LAST, is) && !is_dense(&y.shape, HN_LAYOUT_PLAIN, is))
        out = HN_LAYOUT_CHANNELS_LAST;
    cpu_moves *k = NULL;
    HN_TRY(moves_new(err, 1, &k));
    cpu_physical(rank, out, order);
    cpu_strides(&y.shape, out, os);
    add_part(what, k, 0, 0, rank, order, y.shape.dims, is, 0, os, 0, hn_dtype_bytes(x.dtype));
    k->base.in_layout[0] = in;
    k->base.out_layout[0] = out;
    if (k->part[0].move.is_copy) k->base.inplace_input[0] = 0;
    *out_kernel = &k->base;
    return HONE_OK;
}

// ---- Concat, Split ------------------------------------------------------------------------------
hone_status own_concat_select(hone_error *err, cpu_state *cpu, const hn_select *what,
                              hn_kernel **out_kernel) {
    (void)cpu;
    const hn_node *node = what->node;
    cpu_value x, y;
    if (!read_pair(node, &x, &y)) return HONE_ERR_UNSUPPORTED;
    int axis, order[HN_MAX_RANK], rank = y.shape.rank;
    if (!hn_axis_normalise(hn_node_int(node, "axis", 0), rank, &axis)) return HONE_ERR_UNSUPPORTED;
    hn_layout layout = HN_LAYOUT_PLAIN;
    for (int i = 0; i < node->input_count; i++)
        if (cpu_in(node, i, &x) && cpu_hint(what, i) == HN_LAYOUT_CHANNELS_LAST &&
            !cpu_same_bytes(&x.shape))
            layout = HN_LAYOUT_CHANNELS_LAST;
    cpu_moves *k = NULL;
    HN_TRY(moves_new(err, node->input_count, &k));
    int64_t is[HN_MAX_RANK], os[HN_MAX_RANK], at = 0;
    cpu_strides(&y.shape, layout, os);
    cpu_physical(rank, layout, order);
    for (int i = 0; i < node->input_count; i++) {
        if (!cpu_in(node, i, &x) || x.dtype != y.dtype || x.shape.rank != rank) {
            hn_free(k);
            return HONE_ERR_UNSUPPORTED;
        }
        k->base.in_layout[i] = cpu_same_bytes(&x.shape) ? cpu_hint(what, i) : layout;
        if (x.count == 0) continue;
        cpu_strides(&x.shape, layout, is);
        add_part(what, k, i, 0, rank, order, x.shape.dims, is, 0, os, at * os[axis],
                 hn_dtype_bytes(x.dtype));
        at += x.shape.dims[axis];
    }
    k->base.out_layout[0] = layout;
    *out_kernel = &k->base;
    return HONE_OK;
}

hone_status own_split_select(hone_error *err, cpu_state *cpu, const hn_select *what,
                             hn_kernel **out_kernel) {
    (void)cpu;
    const hn_node *node = what->node;
    cpu_value x, y;
    if (node->post_count || !cpu_in(node, 0, &x) || !movable(x.dtype)) return HONE_ERR_UNSUPPORTED;
    int axis, order[HN_MAX_RANK], rank = x.shape.rank;
    if (!hn_axis_normalise(hn_node_int(node, "axis", 0), rank, &axis)) return HONE_ERR_UNSUPPORTED;
    // Where each part begins: absent outputs have no type, so their sizes come from the input.
    int64_t sizes[HN_MAX_KERNEL_IO];
    int given = node->input_count > 1 && node->inputs[1]
                    ? cpu_const_ints(node, 1, sizes, HN_MAX_KERNEL_IO)
                    : 0;
    if (given < 0 || (given && given != node->output_count)) return HONE_ERR_UNSUPPORTED;
    int64_t even = hn_ceil_div_i64(x.shape.dims[axis], node->output_count);
    hn_layout layout = cpu_hint(what, 0);
    cpu_moves *k = NULL;
    HN_TRY(moves_new(err, node->output_count, &k));
    int64_t is[HN_MAX_RANK], os[HN_MAX_RANK], at = 0;
    cpu_strides(&x.shape, layout, is);
    cpu_physical(rank, layout, order);
    for (int i = 0; i < node->output_count; i++) {
        int64_t size = given ? sizes[i] : hn_min_i64(even, x.shape.dims[axis] - at);
        if (cpu_out(node, i, &y) && y.count > 0) {
            cpu_strides(&y.shape, layout, os);
            add_part(what, k, 0, i, rank, order, y.shape.dims, is, at * is[axis], os, 0,
                     hn_dtype_bytes(x.dtype));
        }
        k->base.out_layout[i] = layout;
        at += size;
    }
    k->base.in_layout[0] = layout;
    *out_kernel = &k->base;
    return HONE_OK;
}

// ---- Slice, Pad ---------------------------------------------------------------------------------
hone_status own_slice_select(hone_error *err, cpu_state *cpu, const hn_select *what,
                             hn_kernel **out_kernel) {
    (void)cpu;
    const hn_node *node = what->node;
    cpu_value x, y;
    if (!read_pair(node, &x, &y)) return HONE_ERR_UNSUPPORTED;
    int rank = x.shape.rank, order[HN_MAX_RANK];
    int64_t starts[HN_MAX_RANK], axes[HN_MAX_RANK], steps[HN_MAX_RANK];
    int count = cpu_const_ints(node, 1, starts, HN_MAX_RANK), n = 0;
    if (count < 0) return HONE_ERR_UNSUPPORTED;
    for (int i = 0; i < count; i++) {
        axes[i] = i;
        steps[i] = 1;
    }
    if (node->input_count > 3 && node->inputs[3]) n = cpu_const_ints(node, 3, axes, HN_MAX_RANK);
    if (n < 0) return HONE_ERR_UNSUPPORTED;
    n = 0;
    if (node->input_count > 4 && node->inputs[4]) n = cpu_const_ints(node, 4, steps, HN_MAX_RANK);
    if (n < 0) return HONE_ERR_UNSUPPORTED;
    hn_layout layout = cpu_hint(what, 0);
    int64_t is[HN_MAX_RANK], os[HN_MAX_RANK], offset = 0;
    cpu_strides(&x.shape, layout, is);
    cpu_strides(&y.shape, layout, os);
    for (int i = 0; i < count; i++) {
        int axis;
        if (!hn_axis_normalise(axes[i], rank, &axis) || steps[i] == 0) return HONE_ERR_UNSUPPORTED;
        int64_t dim = x.shape.dims[axis], start = starts[i];
        if (start < 0) start += dim;
        int64_t top = steps[i] < 0 ? dim - 1 : dim;
        start = start < 0 ? 0 : start > top ? top : start;
        offset += start * is[axis];
        is[axis] *= steps[i];
    }
    cpu_moves *k = NULL;
    HN_TRY(moves_new(err, 1, &k));
    cpu_physical(rank, layout, order);
    if (y.count > 0)
        add_part(what, k, 0, 0, rank, order, y.shape.dims, is, offset, os, 0,
                 hn_dtype_bytes(x.dtype));
    k->base.in_layout[0] = k->base.out_layout[0] = layout;
    *out_kernel = &k->base;
    return HONE_OK;
}

static bool pad_amounts(const hn_node *node, int rank, int64_t *begin, int64_t *end) {
    int64_t pads[2 * HN_MAX_RANK], axes[HN_MAX_RANK];
    int count = cpu_const_ints(node, 1, pads, 2 * HN_MAX_RANK), n = rank;
    for (int i = 0; i < rank; i++)
        axes[i] = i;
    if (node->input_count > 3 && node->inputs[3]) n = cpu_const_ints(node, 3, axes, HN_MAX_RANK);
    if (n < 0 || count != 2 * n) return false;
    for (int i = 0; i < rank; i++)
        begin[i] = end[i] = 0;
    for (int i = 0; i < n; i++) {
        int axis;
        if (!hn_axis_normalise(axes[i], rank, &axis)) return false;
        begin[axis] = pads[i];
        end[axis] = pads[i + n];
    }
    return true;
}

hone_status own_pad_select(hone_error *err, cpu_state *cpu, const hn_select *what,
                           hn_kernel **out_kernel) {
    (void)cpu;
    const hn_node *node = what->node;
    cpu_value x, y, value;
    int64_t begin[HN_MAX_RANK], end[HN_MAX_RANK];
    if (!read_pair(node, &x, &y) || !hn_slice_eq(hn_node_string(node, "mode", "constant"), "constant"))
        return HONE_ERR_UNSUPPORTED;
    int rank = x.shape.rank, order[HN_MAX_RANK];
    if (!pad_amounts(node, rank, begin, end)) return HONE_ERR_UNSUPPORTED;
    uint64_t bits = 0;
    size_t bytes = hn_dtype_bytes(x.dtype);
    if (node->input_count > 2 && node->inputs[2]) {
        if (!cpu_in(node, 2, &value) || !value.data || value.count != 1) return HONE_ERR_UNSUPPORTED;
        memcpy(&bits, value.data, bytes); // little endian
    }
    hn_layout layout = cpu_hint(what, 0);
    int64_t is[HN_MAX_RANK], os[HN_MAX_RANK], dims[HN_MAX_RANK], from = 0, to = 0;
    cpu_strides(&x.shape, layout, is);
    cpu_strides(&y.shape, layout, os);
    bool empty = false;
    for (int i = 0; i < rank; i++) { // negative pads crop
        int64_t crop = begin[i] < 0 ? -begin[i] : 0, crop_end = end[i] < 0 ? -end[i] : 0;
        dims[i] = x.shape.dims[i] - crop - crop_end;
        from += crop * is[i];
        to += (begin[i] > 0 ? begin[i] : 0) * os[i];
        empty = empty || dims[i] <= 0;
    }
    cpu_moves *k = NULL;
    HN_TRY(moves_new(err, 1, &k));
    k->fill_output = 0;
    k->fill_count = y.count;
    k->fill_bits = bits;
    k->fill_bytes = bytes;
    cpu_physical(rank, layout, order);
    if (!empty) add_part(what, k, 0, 0, rank, order, dims, is, from, os, to, bytes);
    k->base.in_layout[0] = k->base.out_layout[0] = layout;
    *out_kernel = &k->base;
    return HONE_OK;
}

// ---- Expand, Tile, DepthToSpace, SpaceToDepth ---------------------------------------------------
hone_status own_expand_select(hone_error *err, cpu_state *cpu, const hn_select *what,
                              hn_kernel **out_kernel) {
    (void)cpu;
    cpu_value x, y;
    if (!read_pair(what->node, &x, &y) || y.shape.rank < x.shape.rank) return HONE_ERR_UNSUPPORTED;
    int rank = y.shape.rank, lead = rank - x.shape.rank, order[HN_MAX_RANK];
    int64_t own[HN_MAX_RANK], is[HN_MAX_RANK], os[HN_MAX_RANK];
    cpu_strides(&x.shape, HN_LAYOUT_PLAIN, own);
    cpu_strides(&y.shape, HN_LAYOUT_PLAIN, os);
    for (int i = 0; i < rank; i++) {
        int64_t dim = i < lead ? 1 : x.shape.dims[i - lead];
        if (dim != 1 && dim != y.shape.dims[i]) return HONE_ERR_UNSUPPORTED;
        is[i] = dim == 1 ? 0 : own[i - lead];
    }
    cpu_moves *k = NULL;
    HN_TRY(moves_new(err, 1, &k));
    cpu_physical(rank, HN_LAYOUT_PLAIN, order);
    if (y.count > 0)
        add_part(what, k, 0, 0, rank, order, y.shape.dims, is, 0, os, 0, hn_dtype_bytes(x.dtype));
    *out_kernel = &k->base;
    return HONE_OK;
}

hone_status own_tile_select(hone_error *err, cpu_state *cpu, const hn_select *what,
                            hn_kernel **out_kernel) {
    (void)cpu;
    cpu_value x, y;
    if (!read_pair(what->node, &x, &y)) return HONE_ERR_UNSUPPORTED;
    int rank = x.shape.rank, order[HN_MAX_RANK], n = 0;
    int64_t own[HN_MAX_RANK], whole[HN_MAX_RANK], dims[HN_MAX_RANK], is[HN_MAX_RANK],
        os[HN_MAX_RANK];
    cpu_strides(&x.shape, HN_LAYOUT_PLAIN, own);
    cpu_strides(&y.shape, HN_LAYOUT_PLAIN, whole);
    for (int i = 0; i < rank; i++) { // each dim as repetitions x size, where it is repeated
        int64_t dim = x.shape.dims[i];
        if (dim == 0 || y.shape.dims[i] % dim) return HONE_ERR_UNSUPPORTED;
        int64_t times = y.shape.dims[i] / dim;
        if (times > 1) {
            if (n == HN_MAX_RANK) return HONE_ERR_UNSUPPORTED;
            dims[n] = times;
            is[n] = 0;
            os[n++] = whole[i] * dim;
        }
        if (n == HN_MAX_RANK) return HONE_ERR_UNSUPPORTED;
        dims[n] = dim;
        is[n] = own[i];
        os[n++] = whole[i];
    }
    cpu_moves *k = NULL;
    HN_TRY(moves_new(err, 1, &k));
    cpu_physical(n, HN_LAYOUT_PLAIN, order);
    if (y.count > 0)
        add_part(what, k, 0, 0, n, order, dims, is, 0, os, 0, hn_dtype_bytes(x.dtype));
    *out_kernel = &k->base;
    return HONE_OK;
}

// Both directions are one box of N, C', H, block, W, block.
hone_status own_depth_space_select(hone_error *err, cpu_state *cpu, const hn_select *what,
                                   hn_kernel **out_kernel) {
    (void)cpu;
    const hn_node *node = what->node;
    cpu_value x, y;
    if (!read_pair(node, &x, &y) || x.shape.rank != 4) return HONE_ERR_UNSUPPORTED;
    bool to_space = !strcmp(node->op_type, "DepthToSpace");
    bool crd = hn_slice_eq(hn_node_string(node, "mode", "DCR"), "CRD");
    int64_t block = hn_node_int(node, "blocksize", 1);
    const hn_shape *deep = to_space ? &x.shape : &y.shape, *wide = to_space ? &y.shape : &x.shape;
    hn_layout layout = cpu_hint(what, 0);
    int64_t ds[HN_MAX_RANK], ws[HN_MAX_RANK], c = wide->dims[1];
    cpu_strides(deep, layout, ds);
    cpu_strides(wide, layout, ws);
    // Channel of the deep side: (block row, block column, c) or, for CRD, (c, row, column).
    int64_t c_stride = crd ? ds[1] * block * block : ds[1];
    int64_t row_stride = crd ? ds[1] * block : ds[1] * block * c, col_stride = crd ? ds[1] : ds[1] * c;
    int64_t dims[] = {deep->dims[0], c, deep->dims[2], block, deep->dims[3], block};
    int64_t deep_s[] = {ds[0], c_stride, ds[2], row_stride, ds[3], col_stride};
    int64_t wide_s[] = {ws[0], ws[1], ws[2] * block, ws[2], ws[3] * block, ws[3]};
    static const int plain[] = {0, 1, 2, 3, 4, 5}, last[] = {0, 2, 3, 4, 5, 1};
    static const int deep_last[] = {0, 2, 4, 3, 5, 1};
    cpu_moves *k = NULL;
    HN_TRY(moves_new(err, 1, &k));
    const int *order = layout != HN_LAYOUT_CHANNELS_LAST ? plain : to_space ? last : deep_last;
    if (y.count > 0)
        add_part(what, k, 0, 0, 6, order, dims, to_space ? deep_s : wide_s, 0,
                 to_space ? wide_s : deep_s, 0, hn_dtype_bytes(x.dtype));
    k->base.in_layout[0] = k->base.out_layout[0] = layout;
    *out_kernel = &k->base;
    return HONE_OK;
}

// ---- Gather -------------------------------------------------------------------------------------
typedef struct gather_kernel {
    hn_kernel base;
    int64_t outer, axis_size, inner_bytes, index_count;
    bool wide; // indices are int64, else int32
    const hn_node *node;
    int threads;
} gather_kernel;

typedef struct gather_job {
    const gather_kernel *k;
    const char *x;
    const void *index;
    char *out;
} gather_job;

static int64_t index_at(const gather_kernel *k, const void *index, int64_t i) {
    int64_t v = k->wide ? ((const int64_t *)index)[i] : ((const int32_t *)index)[i];
    return v < 0 ? v + k->axis_size : v;
}

static void gather_range(void *arg, int64_t begin, int64_t end) {
    const gather_job *job = arg;
    const gather_kernel *k = job->k;
    int64_t bytes = k->inner_bytes;
    for (int64_t i = begin; i < end; i++) {
        int64_t o = i / k->index_count, at = index_at(k, job->index, i % k->index_count);
        const char *from = job->x + (o * k->axis_size + at) * bytes;
        char *to = job->out + i * bytes;
        if (bytes == 4) memcpy(to, from, 4);
        else if (bytes == 8) memcpy(to, from, 8);
        else memcpy(to, from, (size_t)bytes);
    }
}

static hone_status gather_run(hone_error *err, hn_kernel *kernel, const hn_args *args) {
    gather_kernel *k = (gather_kernel *)kernel;
    gather_job job = {k, args->inputs[0], args->inputs[1], args->outputs[0]};
    for (int64_t i = 0; i < k->index_count; i++) {
        int64_t at = index_at(k, job.index, i);
        if (at < 0 || at >= k->axis_size) {
            char label[160];
            HN_FAIL(err, HONE_ERR_INPUT, "%s: index %lld is outside the axis of size %lld",
                    hn_node_label(k->node, label, sizeof label), (long long)at,
                    (long long)k->axis_size);
        }
    }
    int64_t total = k->outer * k->index_count;
    if (k->threads <= 1 || total * k->inner_bytes < 65536) gather_range(&job, 0, total);
    else hn_parallel_for(total, hn_max_i64(1, 32768 / k->inner_bytes), gather_range, &job);
    return HONE_OK;
}
static const hn_kernel_ops k_gather_ops = {sizeof(hn_kernel_ops), NULL, gather_run,
                                           cpu_kernel_destroy};

hone_status own_gather_select(hone_error *err, cpu_state *cpu, const hn_select *what,
                              hn_kernel **out_kernel) {
    (void)cpu;
    const hn_node *node = what->node;
    cpu_value x, y, index;
    int axis;
    if (!read_pair(node, &x, &y) || !cpu_in(node, 1, &index) || y.count == 0 ||
        (index.dtype != HN_I64 && index.dtype != HN_I32) ||
        !hn_axis_normalise(hn_node_int(node, "axis", 0), x.shape.rank, &axis))
        return HONE_ERR_UNSUPPORTED;
    gather_kernel *k = cpu_kernel_new(sizeof *k, &k_gather_ops);
    if (!k) HN_NOMEM(err, "selecting a kernel");
    k->outer = 1;
    k->inner_bytes = (int64_t)hn_dtype_bytes(x.dtype);
    for (int i = 0; i < x.shape.rank; i++)
        if (i != axis) *(i < axis ? &k->outer : &k->inner_bytes) *= x.shape.dims[i];
    k->axis_size = x.shape.dims[axis];
    k->index_count = index.count;
    k->wide = index.dtype == HN_I64;
    k->node = node;
    k->threads = what->threads > 0 ? what->threads : hn_parallel_threads();
    *out_kernel = &k->base;
    return HONE_OK;
}

// ---- ScatterND ----------------------------------------------------------------------------------
typedef struct scatter_kernel {
    hn_kernel base;
    const hn_node *node;
    int64_t count, depth;       // index tuples, their length
    int64_t dims[HN_MAX_RANK], strides[HN_MAX_RANK]; // of the indexed dims, strides in slices
    size_t slice_bytes, data_bytes;
} scatter_kernel;

static hone_status scatter_run(hone_error *err, hn_kernel *kernel, const hn_args *args) {
    scatter_kernel *k = (scatter_kernel *)kernel;
    const int64_t *index = args->inputs[1];
    const char *updates = args->inputs[2];
    char *out = args->outputs[0];
    if (out != args->inputs[0]) memcpy(out, args->inputs[0], k->data_bytes);
    for (int64_t i = 0; i < k->count; i++) {
        int64_t at = 0;
        for (int64_t d = 0; d < k->depth; d++) {
            int64_t v = index[i * k->depth + d];
            if (v < 0) v += k->dims[d];
            if (v < 0 || v >= k->dims[d]) {
                char label[160];
                HN_FAIL(err, HONE_ERR_INPUT, "%s: index %lld is outside a dim of size %lld",
                        hn_node_label(k->node, label, sizeof label), (long long)v,
                        (long long)k->dims[d]);
            }
            at += v * k->strides[d];
        }
        char *to = out + (size_t)at * k->slice_bytes;
        const char *from = updates + (size_t)i * k->slice_bytes;
        if (k->slice_bytes == 4) memcpy(to, from, 4);
        else memcpy(to, from, k->slice_bytes);
    }
    return HONE_OK;
}
static const hn_kernel_ops k_scatter_ops = {sizeof(hn_kernel_ops), NULL, scatter_run,
                                            cpu_kernel_destroy};

hone_status own_scatter_nd_select(hone_error *err, cpu_state *cpu, const hn_select *what,
                                  hn_kernel **out_kernel) {
    (void)cpu;
    const hn_node *node = what->node;
    cpu_value x, y, index, updates;
    if (!read_pair(node, &x, &y) || !cpu_in(node, 1, &index) || !cpu_in(node, 2, &updates) ||
        index.dtype != HN_I64 || index.shape.rank < 1 ||
        !hn_slice_eq(hn_node_string(node, "reduction", "none"), "none"))
        return HONE_ERR_UNSUPPORTED;
    int64_t depth = index.shape.dims[index.shape.rank - 1];
    if (depth < 1 || depth > x.shape.rank || x.count == 0) return HONE_ERR_UNSUPPORTED;
    scatter_kernel *k = cpu_kernel_new(sizeof *k, &k_scatter_ops);
    if (!k) HN_NOMEM(err, "selecting a kernel");
    k->node = node;
    k->depth = depth;
    k->count = index.count / depth;
    k->slice_bytes = k->data_bytes = hn_dtype_bytes(x.dtype);
    for (int i = 0; i < x.shape.rank; i++) {
        k->data_bytes *= (size_t)x.shape.dims[i];
        if (i >= depth) k->slice_bytes *= (size_t)x.shape.dims[i];
    }
    int64_t stride = 1;
    for (int64_t d = depth - 1; d >= 0; d--) {
        k->dims[d] = x.shape.dims[d];
        k->strides[d] = stride;
        stride *= x.shape.dims[d];
    }
    k->base.inplace_input[0] = 0;
    *out_kernel = &k->base;
    return HONE_OK;
}
