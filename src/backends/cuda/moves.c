// SPDX-License-Identifier: Apache-2.0
// Ops that only move elements, layout changes, Gather.
//
// The lists of strided copies are the CPU backend's own (cpu_moves): what an op means is written once.
// A copy here moves units of up to 16 bytes; one that turns dims around goes through shared memory.
#include "backends/cuda/cuda_int.h"
#include "ops/nn_int.h"
#include <stdio.h>

static const char *unit_type(int bytes) {
    return bytes == 16 ? "u128" : bytes == 8 ? "u64" : bytes == 4 ? "u32" : bytes == 2 ? "u16" : "u8";
}

typedef struct box {
    int rank;
    int64_t dims[HN_MAX_RANK], in[HN_MAX_RANK], out[HN_MAX_RANK]; // units
    int64_t in_offset, out_offset;                                // bytes
    int unit;
} box;

// The widest unit that the innermost run, every stride and both offsets are whole numbers of.
static void widen(const cpu_move *m, box *b) {
    int element = (int)m->bytes, last = m->rank - 1, unit = element;
    *b = (box){.rank = m->rank, .in_offset = m->in_offset * element, .out_offset = m->out_offset * element};
    if (m->in_strides[last] == 1 && m->out_strides[last] == 1)
        for (int wide = 16; wide > element && unit == element; wide /= 2) {
            int64_t n = wide / element;
            bool fits = m->dims[last] % n == 0 && m->in_offset % n == 0 && m->out_offset % n == 0;
            for (int i = 0; i < last && fits; i++)
                fits = m->in_strides[i] % n == 0 && m->out_strides[i] % n == 0;
            if (fits) unit = wide;
        }
    int64_t n = unit / element;
    for (int i = 0; i < m->rank; i++) {
        b->dims[i] = i == last ? m->dims[i] / n : m->dims[i];
        b->in[i] = i == last ? m->in_strides[i] : m->in_strides[i] / n;
        b->out[i] = i == last ? m->out_strides[i] : m->out_strides[i] / n;
    }
    b->unit = unit;
}

// Unit number i taken apart; skip: dims that the kernel walks itself. Generic forms do it by lists.
static void print_place(cuda_spec *s, const box *b, int skip_a, int skip_b) {
    int64_t dims[HN_MAX_RANK], in[HN_MAX_RANK], out[HN_MAX_RANK];
    int rank = 0;
    hn_str_append(&s->text, "#define PLACE");
    for (int d = 0; d < b->rank; d++) {
        if (d == skip_a || d == skip_b) continue;
        dims[rank] = b->dims[d];
        in[rank] = b->in[d];
        out[rank++] = b->out[d];
    }
    for (int d = rank - 1; d >= 0; d--)
        hn_str_printf(&s->text, " { const INDEX c = i %% %lldull; i /= %lldull; in += c * %lldull; out += c * %lldull; }", (long long)dims[d],
                      (long long)dims[d], (long long)in[d], (long long)out[d]);
    hn_str_append(&s->text, "\n");
    if (!cuda_is_generic(s->d)) return;
    cuda_spec_int(s, "RANK", rank);
    cuda_spec_ints(s, "DIMS", rank, dims);
    cuda_spec_ints(s, "IN", rank, in);
    cuda_spec_ints(s, "OUT", rank, out);
}

static hn_status add_move(hone_error *err, cuda_kernel *k, const cpu_move *m, cuda_arg from, cuda_arg to) {
    box b;
    widen(m, &b);
    int64_t total = 1, reach = 1;
    bool backwards = false; // Slice with negative steps
    for (int i = 0; i < b.rank; i++) {
        backwards = backwards || b.in[i] < 0;
        total *= b.dims[i];
        reach += (b.dims[i] - 1) * hn_max_i64(b.in[i], b.out[i]);
    }
    if (total == 0) return HONE_OK;
    // A run along the input and another along the output?
    int last = b.rank - 1, turned = -1;
    for (int i = 0; i < last && b.in[last] != 1 && b.out[last] == 1; i++)
        if (b.in[i] == 1 && b.dims[i] >= 8) turned = i;
    bool tiled = turned >= 0 && b.dims[last] >= 8 && !backwards;
    cuda_spec s;
    cuda_spec_begin(&s, k->device, "move");
    if (!cuda_is_generic(k->device))
        hn_str_printf(&s.text, "typedef %s INDEX;\n",
                      backwards ? "i64" : reach >= ((int64_t)1 << 31) - 65536 || total >= ((int64_t)1 << 31) - 65536 ? "u64" : "u32");
    cuda_spec_type(&s, "U", unit_type(b.unit));
    cuda_spec_int(&s, "TILED", tiled);
    cuda_spec_int(&s, "COUNT", total);
    cuda_spec_reach(&s, hn_max_i64(reach, total));
    if (tiled) {
        cuda_spec_int(&s, "DIM_A", b.dims[turned]);
        cuda_spec_int(&s, "DIM_B", b.dims[last]);
        cuda_spec_int(&s, "IN_B", b.in[last]);
        cuda_spec_int(&s, "OUT_A", b.out[turned]);
    }
    print_place(&s, &b, tiled ? turned : -1, tiled ? last : -1);
    cuda_launch launch = {0};
    hone_status status = cuda_spec_kernel(err, &s, "hn_k_move", &launch);
    int64_t blocks = (total + 255) / 256;
    if (tiled) {
        int64_t ta = (b.dims[turned] + 31) / 32, tb = (b.dims[last] + 31) / 32;
        blocks = total / (b.dims[turned] * b.dims[last]) * ta * tb;
    }
    if (status == HONE_OK && blocks > INT32_MAX) status = HONE_ERR_UNSUPPORTED;
    cuda_launch_1d(&launch, blocks * 256, 256);
    from.offset += b.in_offset;
    to.offset += b.out_offset;
    launch.args[0] = from;
    launch.args[1] = to;
    launch.arg_count = 2;
    if (status == HONE_OK) status = cuda_kernel_launch(err, k, &launch);
    cuda_spec_end(&s);
    return status;
}

static hn_status add_fill(hone_error *err, cuda_kernel *k, const cpu_moves *m) {
    if (!m->fill_count) return HONE_OK;
    cuda_spec s;
    cuda_spec_begin(&s, k->device, "fill");
    cuda_spec_type(&s, "U", unit_type((int)m->fill_bytes));
    cuda_spec_int(&s, "COUNT", m->fill_count);
    cuda_spec_reach(&s, m->fill_count);
    cuda_launch launch = {0};
    hone_status status = cuda_spec_kernel(err, &s, "hn_k_fill", &launch);
    cuda_launch_1d(&launch, m->fill_count, 256);
    launch.args[0] = cuda_arg_output(m->fill_output);
    launch.args[1] = cuda_arg_i64((int64_t)m->fill_bits);
    launch.arg_count = 2;
    if (status == HONE_OK) status = cuda_kernel_launch(err, k, &launch);
    cuda_spec_end(&s);
    return status;
}

// ---- ops ----------------------------------------------------------------------------------------
static const struct {
    const char *op;
    cpu_select_fn select;
} k_moving[] = {
    {"Transpose", own_transpose_select}, {"Concat", own_concat_select},           {"Split", own_split_select},
    {"Slice", own_slice_select},         {"Pad", own_pad_select},                 {"Expand", own_expand_select},
    {"Tile", own_tile_select},           {"DepthToSpace", own_depth_space_select}, {"SpaceToDepth", own_depth_space_select},
};

static hn_status take_over(hone_error *err, cuda_kernel *k, const hn_node *node, const cpu_moves *m) {
    for (int i = 0; i < node->input_count; i++)
        k->base.in_layout[i] = cuda_to_device(m->base.in_layout[i]);
    for (int i = 0; i < node->output_count; i++)
        k->base.out_layout[i] = cuda_to_device(m->base.out_layout[i]);
    if (m->fill_output >= 0) HN_TRY(add_fill(err, k, m));
    bool used[HN_MAX_KERNEL_IO] = {false};
    for (int i = 0; i < m->count; i++) {
        const cpu_move_part *part = &m->part[i];
        cuda_arg from;
        used[part->input] = true;
        HN_TRY(cuda_kernel_input(err, k, node, part->input, &from));
        HN_TRY(add_move(err, k, &part->move, from, cuda_arg_output(part->output)));
    }
    for (int i = 0; i < node->input_count; i++) // shapes and the like were read at select
        if (node->inputs[i] && !used[i]) k->base.consumed |= 1ull << i;
    return HONE_OK;
}

hone_status cuda_move_select(hone_error *err, cuda_device *d, const hn_select *what, hn_kernel **out_kernel) {
    const hn_node *node = what->node;
    hn_layout hints[HN_MAX_KERNEL_IO];
    hn_kernel *host = NULL;
    for (int i = 0; i < node->input_count; i++) {
        hints[i] = cuda_to_host(cuda_hint(what, i));
        // A constant lies there as the file has it.
        if (node->inputs[i] && node->inputs[i]->constant) hints[i] = HN_LAYOUT_PLAIN;
    }
    hn_select plain = *what;
    plain.in_layout = hints;
    size_t row = 0;
    while (row < HN_COUNT_OF(k_moving) && strcmp(k_moving[row].op, node->op_type))
        row++;
    if (row == HN_COUNT_OF(k_moving)) return HONE_ERR_UNSUPPORTED;
    HN_TRY(k_moving[row].select(err, d->cpu_state, &plain, &host));
    const cpu_moves *m = (const cpu_moves *)host;
    hone_status status = HONE_OK;
    for (int i = 0; i < m->count; i++) { // a constant asked for in another order stays the CPU's
        const hn_value *in = node->inputs[m->part[i].input];
        if (in->constant && m->base.in_layout[m->part[i].input] != HN_LAYOUT_PLAIN) status = HONE_ERR_UNSUPPORTED;
    }
    cuda_kernel *k = status == HONE_OK ? cuda_kernel_new(d, node) : NULL;
    if (status == HONE_OK && !k) status = HN_SET(err, HONE_ERR_NOMEM, "out of memory (selecting a kernel)");
    if (status == HONE_OK) status = take_over(err, k, node, m);
    host->ops->destroy(host);
    return cuda_kernel_done(status, k, out_kernel);
}

// ---- layout changes -----------------------------------------------------------------------------
hn_status cuda_reorder_select(hone_error *err, cuda_device *d, const hn_type *type, hn_layout from, hn_layout to,
                              hn_kernel **out_kernel) {
    hn_shape shape;
    int bits = hn_dtype_bits(type->dtype);
    if (!hn_type_shape(type, &shape) || bits < 8 || bits > 64)
        HN_FAIL(err, HONE_ERR_UNSUPPORTED, "a value of type %s cannot change its layout", hn_dtype_name(type->dtype));
    int order[HN_MAX_RANK];
    int64_t in[HN_MAX_RANK], out[HN_MAX_RANK], dims[HN_MAX_RANK], in_s[HN_MAX_RANK], out_s[HN_MAX_RANK];
    cpu_physical(shape.rank, cuda_to_host(to), order);
    cpu_strides(&shape, cuda_to_host(from), in);
    cpu_strides(&shape, cuda_to_host(to), out);
    for (int i = 0; i < shape.rank; i++) {
        dims[i] = shape.dims[order[i]];
        in_s[i] = in[order[i]];
        out_s[i] = out[order[i]];
    }
    cpu_move m;
    cpu_move_init(&m, shape.rank, dims, in_s, out_s, hn_dtype_bytes(type->dtype));
    cuda_kernel *k = cuda_kernel_new(d, NULL);
    if (!k) HN_NOMEM(err, "selecting a kernel");
    k->base.variant = "cuda:reorder";
    k->base.in_layout[0] = from;
    k->base.out_layout[0] = to;
    hone_status status = add_move(err, k, &m, (cuda_arg){CUDA_ARG_INPUT, 0, 0, 0}, cuda_arg_output(0));
    return cuda_kernel_done(status, k, out_kernel);
}

// ---- Gather -------------------------------------------------------------------------------------
hone_status cuda_gather_select(hone_error *err, cuda_device *d, const hn_select *what, hn_kernel **out_kernel) {
    const hn_node *node = what->node;
    cpu_value x, y, index;
    int axis, bits;
    if (node->post_count || !cpu_in(node, 0, &x) || !cpu_in(node, 1, &index) || !cpu_out(node, 0, &y) || y.count == 0 ||
        (index.dtype != HN_I64 && index.dtype != HN_I32) || (bits = hn_dtype_bits(x.dtype)) < 8 || bits > 64 ||
        !hn_axis_normalise(hn_node_int(node, "axis", 0), x.shape.rank, &axis))
        return HONE_ERR_UNSUPPORTED;
    int64_t outer = 1, inner = bits / 8;
    for (int i = 0; i < x.shape.rank; i++)
        if (i != axis) *(i < axis ? &outer : &inner) *= x.shape.dims[i];
    int unit = cuda_vector(inner, 1, 16);
    if (unit < bits / 8) unit = bits / 8;
    int64_t total = outer * index.count * (inner / unit);
    if ((total + 255) / 256 > INT32_MAX) return HONE_ERR_UNSUPPORTED;
    cuda_kernel *k = cuda_kernel_new(d, node);
    if (!k) HN_NOMEM(err, "selecting a kernel");
    cuda_spec s;
    cuda_spec_begin(&s, d, "gather");
    cuda_spec_type(&s, "U", unit_type(unit));
    cuda_spec_type(&s, "I", cuda_ctype(index.dtype));
    cuda_spec_int(&s, "OUTER", outer);
    cuda_spec_int(&s, "AXIS", x.shape.dims[axis]);
    cuda_spec_int(&s, "INNER", inner / unit);
    cuda_spec_int(&s, "INDICES", index.count);
    cuda_spec_reach(&s, total);
    cuda_launch launch = {0};
    hone_status status = cuda_spec_kernel(err, &s, "hn_k_gather", &launch);
    if (status == HONE_OK) status = cuda_kernel_input(err, k, node, 0, &launch.args[0]);
    if (status == HONE_OK) status = cuda_kernel_input(err, k, node, 1, &launch.args[1]);
    launch.args[2] = cuda_arg_output(0);
    launch.args[3] = cuda_arg_memory(d->fault_device);
    launch.arg_count = 4;
    cuda_launch_1d(&launch, total, 256);
    if (status == HONE_OK) status = cuda_kernel_launch(err, k, &launch);
    cuda_spec_end(&s);
    return cuda_kernel_done(status, k, out_kernel);
}

// ---- hn.Embeddings ----------------------------------------------------------------------------------
typedef struct table_list {
    uint64_t entries[HN_EMBEDDING_PARTS][3]; // address, column, rows
    int count;
} table_list;
static void write_tables(void *user, void *out) {
    const table_list *t = user;
    memcpy(out, t->entries, (size_t)t->count * sizeof t->entries[0]);
}

// Tables are told by a list on the card; a part that is the node's own rows comes as the argument.
static hn_status embedding_tables(hone_error *err, cuda_kernel *k, const hn_node *node, const int64_t *columns, cuda_launch *launch) {
    table_list list = {.count = node->input_count - 1};
    launch->args[1] = cuda_arg_i64(0);
    for (int i = 0; i < list.count; i++) {
        cuda_arg arg;
        cpu_value part;
        if (!cpu_in(node, 1 + i, &part)) return HONE_ERR_UNSUPPORTED;
        HN_TRY(cuda_kernel_input(err, k, node, 1 + i, &arg));
        if (columns[i] >= 0 ? arg.kind != CUDA_ARG_MEMORY : launch->args[1].kind != CUDA_ARG_I64) return HONE_ERR_UNSUPPORTED;
        if (columns[i] < 0) launch->args[1] = arg;
        memcpy(list.entries[i], (uint64_t[]){columns[i] < 0 ? 0 : arg.value, (uint64_t)columns[i], (uint64_t)part.shape.dims[0]}, sizeof list.entries[i]);
    }
    // Found by this kernel alone: its own address is the source.
    cuda_const *constant;
    HN_TRY(cuda_const_made(err, k->device, k, 1, (size_t)list.count * sizeof list.entries[0], write_tables, &list, &constant));
    HN_TRY(cuda_kernel_hold(err, k, constant));
    launch->args[2] = cuda_arg_memory(constant->memory);
    return HONE_OK;
}

hone_status cuda_embeddings_select(hone_error *err, cuda_device *d, const hn_select *what, hn_kernel **out_kernel) {
    const hn_node *node = what->node;
    cpu_value indices, y;
    int bits;
    int64_t count;
    const int64_t *columns = hn_node_ints(node, "columns", &count);
    if (node->post_count || !cpu_in(node, 0, &indices) || !cpu_out(node, 0, &y) || y.count == 0 || !columns || count != y.shape.dims[1] ||
        indices.data || (indices.dtype != HN_I64 && indices.dtype != HN_I32) || (bits = hn_dtype_bits(y.dtype)) < 8 || bits > 64)
        return HONE_ERR_UNSUPPORTED;
    int64_t row = y.shape.dims[2] * (bits / 8);
    int unit = cuda_vector(row, 1, 16);
    if (unit < bits / 8) unit = bits / 8;
    cuda_kernel *k = cuda_kernel_new(d, node);
    if (!k) HN_NOMEM(err, "selecting a kernel");
    cuda_spec s;
    cuda_spec_begin(&s, d, "embeddings");
    cuda_spec_type(&s, "U", unit_type(unit));
    cuda_spec_type(&s, "I", cuda_ctype(indices.dtype));
    cuda_spec_int(&s, "BATCH", y.shape.dims[0]);
    cuda_spec_int(&s, "COLUMNS", indices.shape.dims[1]);
    cuda_spec_int(&s, "PARTS", count);
    cuda_spec_int(&s, "INNER", row / unit);
    cuda_spec_reach(&s, y.shape.dims[0] * count * (row / unit));
    cuda_launch launch = {0};
    hone_status status = cuda_spec_kernel(err, &s, "hn_k_embeddings", &launch);
    if (status == HONE_OK) status = cuda_kernel_input(err, k, node, 0, &launch.args[0]);
    if (status == HONE_OK) status = embedding_tables(err, k, node, columns, &launch);
    launch.args[3] = cuda_arg_output(0);
    launch.args[4] = cuda_arg_memory(d->fault_device);
    launch.arg_count = 5;
    int64_t total = y.shape.dims[0] * count * (row / unit);
    if (status == HONE_OK && total / 256 >= INT32_MAX) status = HONE_ERR_UNSUPPORTED;
    cuda_launch_1d(&launch, total, 256);
    if (status == HONE_OK) status = cuda_kernel_launch(err, k, &launch);
    cuda_spec_end(&s);
    return cuda_kernel_done(status, k, out_kernel);
}
