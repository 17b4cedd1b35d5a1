// SPDX-License-Identifier: Apache-2.0
// Shared pieces of the references: cells, broadcasting, sub-byte tensors, errors that name the node.
#include "ops/common.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

hone_status hn_node_error(hone_error *err, hone_status status, const hn_node *node,
                          const char *file, int line, const char *fmt, ...) {
    char text[320], label[160];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return hn_error_set(err, status, 0, file, line, "%s: %s",
                        hn_node_label(node, label, sizeof label), text);
}

// ---- cells --------------------------------------------------------------------------------------
hn_class hn_dtype_class(hn_dtype dtype) {
    if (hn_dtype_is_float(dtype)) return HN_CLASS_F;
    return hn_dtype_is_int(dtype) && hn_dtype_is_signed(dtype) ? HN_CLASS_I : HN_CLASS_U;
}

bool hn_dtype_is_plain(hn_dtype dtype) {
    return hn_dtype_is_float(dtype) || hn_dtype_is_int(dtype) || dtype == HN_BOOL;
}

static uint64_t f64_to_u64(double value) {
    if (!(value > 0)) return 0; // NaN too
    return value >= 0x1p64 ? UINT64_MAX : (uint64_t)value;
}

static int64_t f64_to_i64(double value) {
    if (value != value) return 0;
    if (value >= 0x1p63) return INT64_MAX;
    return value < -0x1p63 ? INT64_MIN : (int64_t)value;
}

hn_cell hn_cell_from_f64(hn_class to, double value) {
    if (to == HN_CLASS_F) return (hn_cell){.f = value};
    if (to == HN_CLASS_I) return (hn_cell){.i = f64_to_i64(value)};
    return (hn_cell){.u = f64_to_u64(value)};
}

double hn_cell_to_f64(hn_class from, hn_cell cell) {
    if (from == HN_CLASS_F) return cell.f;
    return from == HN_CLASS_I ? (double)cell.i : (double)cell.u;
}

static hn_class load_native(const hn_tensor *tensor, int64_t at, int64_t step, int count,
                            hn_cell *out) {
#define LOAD(token, type, member)                                                                  \
    case HN_##token: {                                                                             \
        const type *data = tensor->data;                                                           \
        for (int k = 0; k < count; k++, at += step)                                                \
            out[k].member = data[at];                                                              \
        break;                                                                                     \
    }
    hn_class class = hn_dtype_class(tensor->dtype);
    switch (tensor->dtype) {
        LOAD(F32, float, f)
        LOAD(F64, double, f)
        LOAD(I8, int8_t, i)
        LOAD(I16, int16_t, i)
        LOAD(I32, int32_t, i)
        LOAD(I64, int64_t, i)
        LOAD(U8, uint8_t, u)
        LOAD(U16, uint16_t, u)
        LOAD(U32, uint32_t, u)
        LOAD(U64, uint64_t, u)
    case HN_F16: {
        const uint16_t *data = tensor->data;
        for (int k = 0; k < count; k++, at += step)
            out[k].f = hn_f16_to_f32(data[at]);
        break;
    }
    case HN_BF16: {
        const uint16_t *data = tensor->data;
        for (int k = 0; k < count; k++, at += step)
            out[k].f = hn_bf16_to_f32(data[at]);
        break;
    }
    default:
        for (int k = 0; k < count; k++, at += step)
            if (class == HN_CLASS_F)
                out[k].f = hn_tensor_get_f64(tensor, at);
            else
                out[k].i = hn_tensor_get_i64(tensor, at);
    }
#undef LOAD
    return class;
}

void hn_cells_load(const hn_tensor *tensor, int64_t start, int64_t step, int count, hn_class to,
                   hn_cell *out_cells) {
    hn_class from = load_native(tensor, start, step, count, out_cells);
    if (from == to || (from != HN_CLASS_F && to != HN_CLASS_F)) return; // integers keep their bits
    for (int k = 0; k < count; k++)
        out_cells[k] = to == HN_CLASS_F ? (hn_cell){.f = hn_cell_to_f64(from, out_cells[k])}
                                        : hn_cell_from_f64(to, out_cells[k].f);
}

static void store_floats(hn_tensor *tensor, int64_t at, int count, hn_class from,
                         const hn_cell *cells) {
    for (int k = 0; k < count; k++) {
        if (from == HN_CLASS_I) {
            hn_tensor_set_i64(tensor, at + k, cells[k].i);
            continue;
        }
        double value = hn_cell_to_f64(from, cells[k]);
        if (tensor->dtype == HN_F32)
            ((float *)tensor->data)[at + k] =
                from == HN_CLASS_U ? (float)cells[k].u : (float)value;
        else if (tensor->dtype == HN_F64)
            ((double *)tensor->data)[at + k] = value;
        else
            hn_tensor_set_f64(tensor, at + k, value);
    }
}

// A double as an integer of `bits` bits: truncated and saturated.
static int64_t narrow_saturated(double value, int bits, bool is_signed) {
    if (!is_signed) {
        uint64_t wide = f64_to_u64(value);
        return (int64_t)(bits < 64 && wide >> bits ? (1ull << bits) - 1 : wide);
    }
    int64_t wide = f64_to_i64(value), top = bits < 64 ? (1ll << (bits - 1)) - 1 : INT64_MAX;
    return wide > top ? top : (wide < -top - 1 ? -top - 1 : wide);
}

void hn_cells_store(hn_tensor *tensor, int64_t start, int count, hn_class from,
                    const hn_cell *cells) {
    hn_cell narrow[HN_CHUNK];
    if (hn_dtype_is_float(tensor->dtype)) {
        store_floats(tensor, start, count, from, cells);
        return;
    }
    if (tensor->dtype == HN_BOOL) {
        for (int k = 0; k < count; k++)
            ((uint8_t *)tensor->data)[start + k] =
                from == HN_CLASS_F ? cells[k].f != 0 : cells[k].u != 0;
        return;
    }
    if (from == HN_CLASS_F) {
        int bits = hn_dtype_bits(tensor->dtype);
        bool is_signed = hn_dtype_is_signed(tensor->dtype);
        for (int k = 0; k < count; k++)
            narrow[k].i = narrow_saturated(cells[k].f, bits, is_signed);
        cells = narrow;
    }
#define STORE(token, type)                                                                         \
    case HN_##token:                                                                               \
        for (int k = 0; k < count; k++)                                                            \
            ((type *)tensor->data)[start + k] = (type)cells[k].u;                                  \
        break;
    switch (tensor->dtype) {
        STORE(I8, uint8_t)
        STORE(U8, uint8_t)
        STORE(I16, uint16_t)
        STORE(U16, uint16_t)
        STORE(I32, uint32_t)
        STORE(U32, uint32_t)
        STORE(I64, uint64_t)
        STORE(U64, uint64_t)
    default:
        for (int k = 0; k < count; k++)
            hn_tensor_set_i64(tensor, start + k, cells[k].i);
    }
#undef STORE
}

static hn_cell extreme(hn_dtype dtype, bool highest) {
    int bits = hn_dtype_bits(dtype);
    switch (hn_dtype_class(dtype)) {
    case HN_CLASS_F: {
        uint8_t byte[8] = {0};
        hn_tensor probe = {dtype, {0}, byte, sizeof byte, NULL};
        // Formats without infinity give their largest number.
        hn_tensor_set_f64(&probe, 0, highest ? INFINITY : -INFINITY);
        return (hn_cell){.f = hn_tensor_get_f64(&probe, 0)};
    }
    case HN_CLASS_I: {
        int64_t top = (int64_t)(UINT64_MAX >> (65 - bits));
        return (hn_cell){.i = highest ? top : -top - 1};
    }
    default:
        if (dtype == HN_BOOL) return (hn_cell){.u = highest};
        return (hn_cell){.u = highest ? UINT64_MAX >> (64 - bits) : 0};
    }
}
hn_cell hn_dtype_lowest(hn_dtype dtype) { return extreme(dtype, false); }
hn_cell hn_dtype_highest(hn_dtype dtype) { return extreme(dtype, true); }

// ---- walking ------------------------------------------------------------------------------------
void hn_strides(const hn_shape *shape, int64_t out_strides[HN_MAX_RANK]) {
    // Unsigned: with a dim of 0 the others may have a product that does not fit; it is never used.
    uint64_t stride = 1;
    for (int d = shape->rank - 1; d >= 0; d--) {
        out_strides[d] = (int64_t)stride;
        stride *= (uint64_t)shape->dims[d];
    }
}

int64_t hn_span(const hn_shape *shape, int from, int to) {
    uint64_t span = 1;
    for (int d = from; d < to; d++)
        span *= (uint64_t)shape->dims[d];
    return (int64_t)span;
}

bool hn_index_next(int64_t *index, const int64_t *dims, int rank) {
    for (int d = rank - 1; d >= 0; d--) {
        if (++index[d] < dims[d]) return true;
        index[d] = 0;
    }
    return false;
}

static bool can_merge(const hn_walk *walk, int last, const int64_t (*steps)[HN_MAX_RANK],
                      int64_t dim, int axis) {
    for (int k = 0; k < walk->count; k++)
        if (walk->steps[k][last] != (int64_t)((uint64_t)steps[k][axis] * (uint64_t)dim))
            return false;
    return true;
}

static hn_status walk_steps(hone_error *err, const hn_shape *out, const hn_tensor *input,
                            int64_t *steps) {
    int64_t strides[HN_MAX_RANK];
    int shift = out->rank - input->shape.rank;
    hn_strides(&input->shape, strides);
    if (shift < 0)
        HN_FAIL(err, HONE_ERR_INPUT, "an input of rank %d does not broadcast to rank %d",
                input->shape.rank, out->rank);
    for (int d = 0; d < out->rank; d++) {
        int64_t own = d < shift ? 1 : input->shape.dims[d - shift];
        if (own != out->dims[d] && own != 1)
            HN_FAIL(err, HONE_ERR_INPUT, "an input dim of %lld does not broadcast to %lld",
                    (long long)own, (long long)out->dims[d]);
        steps[d] = own == 1 ? 0 : strides[d - shift];
    }
    return HONE_OK;
}

hn_status hn_walk_init(hone_error *err, const hn_shape *out, const hn_tensor *const *inputs,
                       int count, hn_walk *out_walk) {
    hn_walk walk = {.count = count, .rows = 1, .row = 1};
    size_t slots = (size_t)count + 1;
    int64_t(*raw)[HN_MAX_RANK] = hn_calloc(slots * 2, sizeof *raw);
    walk.offsets = hn_calloc(slots, sizeof *walk.offsets);
    walk.steps = raw;
    if (!raw || !walk.offsets) {
        hn_walk_free(&walk);
        HN_NOMEM(err, "walking over tensors");
    }
    int64_t(*full)[HN_MAX_RANK] = raw + slots;
    for (int k = 0; k < count; k++) {
        hone_status status = walk_steps(err, out, inputs[k], full[k]);
        if (status == HONE_OK) continue;
        hn_walk_free(&walk);
        return status;
    }
    for (int d = 0; d < out->rank; d++) {
        if (out->dims[d] == 1) continue;
        int last = walk.rank - 1;
        if (last >= 0 &&
            can_merge(&walk, last, (const int64_t(*)[HN_MAX_RANK])full, out->dims[d], d)) {
            walk.dims[last] = (int64_t)((uint64_t)walk.dims[last] * (uint64_t)out->dims[d]);
        } else {
            walk.dims[++last] = out->dims[d];
            walk.rank++;
        }
        for (int k = 0; k < count; k++)
            walk.steps[k][last] = full[k][d];
    }
    int64_t total;
    if (!hn_shape_count(out, &total)) total = 0;
    if (walk.rank) walk.row = walk.dims[walk.rank - 1];
    walk.rows = total && walk.row ? total / walk.row : 0;
    *out_walk = walk;
    return HONE_OK;
}

bool hn_walk_next(hn_walk *walk) {
    if (walk->next >= walk->rows) return false;
    if (walk->next++ == 0) return true;
    for (int d = walk->rank - 2; d >= 0; d--) {
        bool wraps = ++walk->index[d] == walk->dims[d];
        int64_t moved = wraps ? 1 - walk->dims[d] : 1;
        for (int k = 0; k < walk->count; k++)
            walk->offsets[k] += walk->steps[k][d] * moved;
        if (!wraps) break;
        walk->index[d] = 0;
    }
    return true;
}

void hn_walk_free(hn_walk *walk) {
    hn_free(walk->steps);
    hn_free(walk->offsets);
    *walk = (hn_walk){0};
}

// ---- sub-byte tensors ----------------------------------------------------------------------------
static bool is_packed(const hn_tensor *tensor) {
    return tensor && hn_dtype_bits(tensor->dtype) > 0 && hn_dtype_bits(tensor->dtype) < 8;
}

static hn_dtype opened_type(const hn_tensor *packed) {
    return hn_dtype_is_signed(packed->dtype) && hn_dtype_is_int(packed->dtype) ? HN_I8 : HN_U8;
}

static void open_or_pack(const hn_tensor *from, hn_tensor *to, int bits, bool pack) {
    bool is_signed = opened_type(from) == HN_I8;
    int64_t count = hn_tensor_count(from);
    int per_byte = 8 / bits;
    uint8_t mask = (uint8_t)((1 << bits) - 1);
    const uint8_t *source = from->data;
    uint8_t *target = to->data;
    if (pack) memset(target, 0, to->bytes);
    for (int64_t i = 0; i < count; i++) {
        int shift = (int)(i % per_byte) * bits;
        if (pack)
            target[i / per_byte] |= (uint8_t)((source[i] & mask) << shift);
        else
            target[i] = (uint8_t)((uint8_t)(source[i / per_byte] >> shift) & mask);
        // A signed byte has the number's value: it may be an index.
        if (!pack && is_signed && target[i] >> (bits - 1)) target[i] |= (uint8_t)~mask;
    }
}

#define MAX_MOVE_IO 64

static hn_status move_packed(hone_error *err, const hn_call *call, hn_ref_fn fn, hn_tensor *opened) {
    const hn_tensor *in[MAX_MOVE_IO];
    hn_tensor *out[MAX_MOVE_IO];
    hn_call inner = *call;
    inner.inputs = in;
    inner.outputs = out;
    for (int i = 0; i < call->input_count; i++) {
        in[i] = call->inputs[i];
        if (!is_packed(in[i])) continue;
        HN_TRY(hn_tensor_new(err, opened_type(in[i]), &in[i]->shape, &opened[i]));
        open_or_pack(in[i], &opened[i], hn_dtype_bits(in[i]->dtype), false);
        in[i] = &opened[i];
    }
    for (int i = 0; i < call->output_count; i++) {
        hn_tensor *wide = &opened[MAX_MOVE_IO + i];
        out[i] = call->outputs[i];
        if (!is_packed(out[i])) continue;
        HN_TRY(hn_tensor_new(err, opened_type(out[i]), &out[i]->shape, wide));
        out[i] = wide;
    }
    HN_TRY(fn(err, &inner));
    for (int i = 0; i < call->output_count; i++)
        if (is_packed(call->outputs[i]))
            open_or_pack(out[i], call->outputs[i], hn_dtype_bits(call->outputs[i]->dtype), true);
    return HONE_OK;
}

hn_status hn_move_call(hone_error *err, const hn_call *call, hn_ref_fn fn) {
    bool packed = false;
    for (int i = 0; i < call->input_count; i++) {
        if (!call->inputs[i]) continue;
        if (call->inputs[i]->dtype == HN_STRING)
            HN_FAIL_NODE(err, HONE_ERR_UNSUPPORTED, call->node, "string tensors are not supported");
        packed |= is_packed(call->inputs[i]);
    }
    if (!packed) return fn(err, call);
    if (call->input_count > MAX_MOVE_IO || call->output_count > MAX_MOVE_IO)
        HN_FAIL_NODE(err, HONE_ERR_LIMIT, call->node, "has more than %d inputs or outputs",
                     MAX_MOVE_IO);
    hn_tensor *opened = hn_calloc(MAX_MOVE_IO * 2, sizeof *opened);
    if (!opened) HN_NOMEM(err, "opening packed tensors");
    hone_status status = move_packed(err, call, fn, opened);
    for (int i = 0; i < MAX_MOVE_IO * 2; i++)
        hn_tensor_free(&opened[i]);
    hn_free(opened);
    return status;
}

hn_status hn_call_axis(hone_error *err, const hn_call *call, int64_t axis, int rank,
                       int *out_axis) {
    if (!hn_axis_normalise(axis, rank, out_axis))
        HN_FAIL_NODE(err, HONE_ERR_INPUT, call->node, "axis %lld is outside of rank %d",
                     (long long)axis, rank);
    return HONE_OK;
}
