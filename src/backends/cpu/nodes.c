// SPDX-License-Identifier: Apache-2.0
// Reading nodes and layouts: what every select function asks first.
#include "backends/cpu/cpu_int.h"

static bool describe(const hn_value *value, cpu_value *out) {
    if (!value) return false;
    cpu_value v = {.dtype = value->type.dtype, .value = value};
    if (!hn_type_shape(&value->type, &v.shape) || !hn_shape_count(&v.shape, &v.count)) return false;
    if (value->constant) v.data = value->constant->data;
    *out = v;
    return true;
}

bool cpu_in(const hn_node *node, int index, cpu_value *out) {
    return index >= 0 && index < node->input_count && describe(node->inputs[index], out);
}
bool cpu_out(const hn_node *node, int index, cpu_value *out) {
    return index >= 0 && index < node->output_count && describe(node->outputs[index], out);
}
hn_prepared_source cpu_source(const cpu_value *v) {
    const hn_value *value = v->value;
    if (!v->data || !value->constant) return (hn_prepared_source){0};
    bool alone = value->uses.count == 1 && !value->graph_output_uses;
    return (hn_prepared_source){v->data, value->constant->bytes, alone};
}

int cpu_base_inputs(const hn_node *node) {
    return node->post_count ? node->base_input_count : node->input_count;
}

bool cpu_const_f32(const hn_node *node, int index, float *out) {
    cpu_value v;
    if (!cpu_in(node, index, &v) || !v.data || v.count != 1 || v.dtype != HN_F32) return false;
    *out = *(const float *)v.data;
    return true;
}

int cpu_const_ints(const hn_node *node, int index, int64_t *out, int max) {
    cpu_value v;
    if (!cpu_in(node, index, &v) || !v.data || v.count > max || !hn_dtype_is_int(v.dtype)) return -1;
    for (int64_t i = 0; i < v.count; i++)
        out[i] = hn_tensor_get_i64(v.value->constant, i);
    return (int)v.count;
}

void cpu_physical(int rank, hn_layout layout, int *out_order) {
    bool last = layout == HN_LAYOUT_CHANNELS_LAST && rank >= 3;
    for (int i = 0; i < rank; i++)
        out_order[i] = !last || i == 0 ? i : i == rank - 1 ? 1 : i + 1;
}

void cpu_strides(const hn_shape *shape, hn_layout layout, int64_t *out_strides) {
    int order[HN_MAX_RANK];
    cpu_physical(shape->rank, layout, order);
    int64_t stride = 1;
    for (int i = shape->rank - 1; i >= 0; i--) {
        out_strides[order[i]] = stride;
        stride *= shape->dims[order[i]];
    }
}

bool cpu_same_bytes(const hn_shape *shape) {
    if (shape->rank < 3 || shape->dims[1] == 1) return true;
    for (int i = 2; i < shape->rank; i++)
        if (shape->dims[i] != 1) return false;
    return true;
}

hn_layout cpu_hint(const hn_select *what, int index) { return what->in_layout[index]; }
