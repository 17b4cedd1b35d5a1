// SPDX-License-Identifier: Apache-2.0
// Raising nodes to the canonical opset: the functions behind the rows of raise.def, and the walk.
//
// A raise function rewrites one node, which keeps its outputs, and says whether it could; where the
// rewrite would not be exact it leaves the node alone. Types are inferred on the way, since some
// rewrites need an element type or a rank. A node's version after raising is that of the last row
// applied (or the file's): the lowest opset in which what it now says is valid.
#include "onnx/onnx_int.h"
#include <limits.h>

typedef hone_status (*raise_fn)(hone_error *err, hn_node *node, bool *out_done);
// The first version of from..to in which a node in the form of `to` means what it means.
typedef int (*lower_fn)(const hn_node *node, int from, int to);
typedef struct raise_row {
    const char *op;
    int from, to;
    raise_fn raise;
    lower_fn lower;
} raise_row;

// ---- helpers ------------------------------------------------------------------------------------
#define PLACE(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) HN_NOMEM(err, "raising a node");                                         \
    } while (0)

// Moves a list of integers from an attribute to an input (padding with absent inputs before it).
static hn_status ints_to_input(hone_error *err, hn_node *node, const char *name, int index,
                               bool scalar) {
    int64_t count = 0, single = 0;
    const hn_attr *attr = hn_node_attr(node, name);
    if (!attr) return HONE_OK;
    const int64_t *values = hn_node_ints(node, name, &count);
    if (attr->type == HN_ATTR_INT) {
        single = attr->i;
        values = &single;
        count = 1;
    } else if (attr->type != HN_ATTR_INTS || (scalar && count != 1)) {
        HN_FAIL(err, HONE_ERR_FORMAT, "the attribute '%s' does not hold integers", name);
    }
    hn_value *input = hn_graph_add_const_i64(node->graph, values, count, scalar);
    PLACE(input);
    while (node->input_count < index)
        PLACE(hn_node_add_input(node, NULL));
    if (node->input_count == index)
        PLACE(hn_node_add_input(node, input));
    else
        hn_node_set_input(node, index, input);
    hn_node_remove_attr(node, name);
    return HONE_OK;
}

// A scalar constant of a value's element type, which must be known.
static hn_status scalar_like(hone_error *err, hn_graph *graph, hn_dtype dtype, double value,
                             hn_value **out_value) {
    hn_tensor tensor;
    hn_shape scalar = {0};
    HN_TRY(hn_tensor_new(err, dtype, &scalar, &tensor));
    hn_tensor_set_f64(&tensor, 0, value);
    *out_value = hn_graph_add_constant(graph, "", &tensor);
    PLACE(*out_value);
    return HONE_OK;
}

static hn_dtype input_dtype(const hn_node *node) {
    return node->input_count && node->inputs[0] ? node->inputs[0]->type.dtype : HN_NONE;
}

static bool is_string(const hn_node *node, const char *name, const char *value) {
    return hn_slice_eq(hn_node_string(node, name, ""), value);
}

static hn_status set_op(hone_error *err, hn_node *node, const char *op_type) {
    node->op_type = hn_arena_strdup(&node->graph->module->arena, op_type);
    PLACE(node->op_type);
    node->op = hn_op_find(node->domain, op_type);
    return HONE_OK;
}

static int base_version(const char *op_type, int version, int since);

// Makes a one-output node of the standard domain before `before`, in its canonical form.
static hn_node *insert_node(hn_graph *graph, hn_node *before, const char *op_type,
                            hn_value *const *inputs, int count) {
    hn_op op = hn_op_find("", op_type);
    int version = base_version(op_type, HN_ONNX_CANONICAL_OPSET, hn_op_get(op)->since);
    return hn_graph_add_node(graph, before, op, op_type, "", version, inputs, count, 1);
}

static hn_value *insert(hn_node *before, const char *op_type, hn_value *const *inputs, int count) {
    hn_node *node = insert_node(before->graph, before, op_type, inputs, count);
    return node ? node->outputs[0] : NULL;
}

// ---- rows ---------------------------------------------------------------------------------------
static hone_status raise_never(hone_error *err, hn_node *node, bool *out_done) {
    (void)err, (void)node;
    *out_done = false;
    return HONE_OK;
}

static hone_status raise_axes_input(hone_error *err, hn_node *node, bool *out_done) {
    *out_done = node->input_count == 1; // more inputs: already in the new form
    if (!*out_done) return HONE_OK;
    return ints_to_input(err, node, "axes", 1, false);
}

static hone_status raise_slice_inputs(hone_error *err, hn_node *node, bool *out_done) {
    *out_done =
        node->input_count == 1 && hn_node_attr(node, "starts") && hn_node_attr(node, "ends");
    if (!*out_done) return HONE_OK;
    HN_TRY(ints_to_input(err, node, "starts", 1, false));
    HN_TRY(ints_to_input(err, node, "ends", 2, false));
    return ints_to_input(err, node, "axes", 3, false);
}

static hone_status raise_split_input(hone_error *err, hn_node *node, bool *out_done) {
    *out_done = node->input_count == 1;
    return *out_done ? ints_to_input(err, node, "split", 1, false) : HONE_OK;
}

static hone_status raise_split_count(hone_error *err, hn_node *node, bool *out_done) {
    *out_done = true;
    if (node->input_count == 1) PLACE(hn_node_set_int(node, "num_outputs", node->output_count));
    return HONE_OK;
}

static hone_status raise_topk_input(hone_error *err, hn_node *node, bool *out_done) {
    *out_done = node->input_count == 1 && hn_node_attr(node, "k");
    return *out_done ? ints_to_input(err, node, "k", 1, false) : HONE_OK;
}

// An absent bound was the largest float, which differs from none for infinities alone.
static hone_status raise_clip_bounds(hone_error *err, hn_node *node, bool *out_done) {
    static const char *const k_names[] = {"min", "max"};
    hn_dtype dtype = input_dtype(node);
    *out_done = node->input_count == 1 && dtype != HN_NONE;
    if (!*out_done) return HONE_OK;
    for (int i = 0; i < 2; i++) {
        const hn_attr *attr = hn_node_attr(node, k_names[i]);
        hn_value *bound = NULL;
        if (!attr) continue;
        HN_TRY(scalar_like(err, node->graph, dtype, attr->f, &bound));
        while (node->input_count <= i)
            PLACE(hn_node_add_input(node, NULL));
        PLACE(hn_node_add_input(node, bound));
        hn_node_remove_attr(node, k_names[i]);
    }
    return HONE_OK;
}

static hone_status raise_pad_inputs(hone_error *err, hn_node *node, bool *out_done) {
    hn_dtype dtype = input_dtype(node);
    float value = hn_node_float(node, "value", 0);
    // The value matters in constant mode alone; zero is what an absent one means.
    bool constant = !hn_node_attr(node, "mode") || is_string(node, "mode", "constant");
    bool wanted = constant && value != 0;
    *out_done = node->input_count == 1 && hn_node_attr(node, "pads") && (!wanted || dtype);
    if (!*out_done) return HONE_OK;
    HN_TRY(ints_to_input(err, node, "pads", 1, false));
    hn_node_remove_attr(node, "value");
    if (!wanted) return HONE_OK;
    hn_value *input = NULL;
    HN_TRY(scalar_like(err, node->graph, dtype, value, &input));
    PLACE(hn_node_add_input(node, input));
    return HONE_OK;
}

// Without training_mode the node copies its input, as it did before. What the mask held then was
// never said (and was a float at first).
static hone_status raise_dropout(hone_error *err, hn_node *node, bool *out_done) {
    const hn_value *mask = node->output_count > 1 ? node->outputs[1] : NULL;
    *out_done = !mask || hn_value_unused(mask);
    if (!*out_done || !hn_node_attr(node, "ratio")) return HONE_OK;
    hn_value *ratio = hn_graph_add_const_f32(node->graph, hn_node_float(node, "ratio", 0.5f));
    PLACE(ratio && hn_node_add_input(node, ratio));
    hn_node_remove_attr(node, "ratio");
    return HONE_OK;
}

static hone_status raise_spatial(hone_error *err, hn_node *node, bool *out_done) {
    (void)err;
    *out_done = hn_node_int(node, "spatial", 1) != 0;
    if (*out_done) hn_node_remove_attr(node, "spatial");
    return HONE_OK;
}

// More than one output used to mean training; the saved statistics have no place any more.
static hone_status raise_training_outputs(hone_error *err, hn_node *node, bool *out_done) {
    int wanted = 0;
    for (int i = 0; i < node->output_count; i++)
        if (node->outputs[i]) wanted = i + 1;
    for (int i = 3; i < node->output_count; i++)
        if (node->outputs[i] && !hn_value_unused(node->outputs[i])) {
            *out_done = false;
            return HONE_OK;
        }
    *out_done = true;
    if (wanted <= 1) return HONE_OK;
    for (int i = 3; i < node->output_count; i++)
        hn_node_set_output(node, i, NULL);
    if (node->output_count > 3) node->output_count = 3;
    PLACE(hn_node_set_int(node, "training_mode", 1));
    return HONE_OK;
}

static hone_status raise_dft_axis(hone_error *err, hn_node *node, bool *out_done) {
    *out_done = node->input_count <= 2;
    if (!*out_done) return HONE_OK;
    if (!hn_node_attr(node, "axis")) PLACE(hn_node_set_int(node, "axis", 1));
    return ints_to_input(err, node, "axis", 2, true);
}

static hone_status raise_grid_mode(hone_error *err, hn_node *node, bool *out_done) {
    *out_done = true;
    if (is_string(node, "mode", "bilinear")) PLACE(hn_node_set_string(node, "mode", "linear"));
    if (is_string(node, "mode", "bicubic")) PLACE(hn_node_set_string(node, "mode", "cubic"));
    return HONE_OK;
}

static hone_status raise_roi_half_pixel(hone_error *err, hn_node *node, bool *out_done) {
    *out_done = true;
    PLACE(hn_node_set_string(node, "coordinate_transformation_mode", "output_half_pixel"));
    return HONE_OK;
}

static hone_status raise_scatter(hone_error *err, hn_node *node, bool *out_done) {
    *out_done = true;
    return set_op(err, node, "ScatterElements");
}

// Scale and bias had one element a group and have one a channel: each is repeated. [G] -> [G, 1]
// -> [G, C/G] -> [C].
static hone_status raise_group_scale(hone_error *err, hn_node *node, bool *out_done) {
    int64_t groups = hn_node_int(node, "num_groups", 0);
    const hn_type *type = node->input_count == 3 && node->inputs[0] ? &node->inputs[0]->type : NULL;
    *out_done = groups > 0 && type && type->rank > 1 && hn_dim_is_const(type->dims[1]) &&
                type->dims[1] % groups == 0 && node->inputs[1] && node->inputs[2];
    if (!*out_done) return HONE_OK;
    int64_t channels = type->dims[1], one = 1, wide[2] = {groups, channels / groups};
    hn_value *axis = hn_graph_add_const_i64(node->graph, &one, 1, false);
    hn_value *expanded = hn_graph_add_const_i64(node->graph, wide, 2, false);
    hn_value *flat = hn_graph_add_const_i64(node->graph, &channels, 1, false);
    PLACE(axis && expanded && flat);
    for (int i = 1; i < 3; i++) {
        hn_value *a = insert(node, "Unsqueeze", (hn_value *[]){node->inputs[i], axis}, 2);
        hn_value *b = a ? insert(node, "Expand", (hn_value *[]){a, expanded}, 2) : NULL;
        hn_value *c = b ? insert(node, "Reshape", (hn_value *[]){b, flat}, 2) : NULL;
        PLACE(c);
        hn_node_set_input(node, i, c);
        HN_TRY(hn_infer_node(err, a->producer));
        HN_TRY(hn_infer_node(err, b->producer));
        HN_TRY(hn_infer_node(err, c->producer));
    }
    return HONE_OK;
}

// The old operator worked on the input flattened to a matrix at `axis`. On the last axis that is
// the new one; elsewhere: Flatten, the operator on axis 1, Reshape to the input's shape.
static hone_status raise_flat_softmax(hone_error *err, hn_node *node, bool *out_done) {
    *out_done = node->input_count == 1 && node->inputs[0] && node->output_count == 1;
    if (!*out_done) return HONE_OK;
    int64_t axis = hn_node_int(node, "axis", 1);
    int rank = node->inputs[0]->type.rank;
    if (axis == -1 || (rank > 0 && (axis == rank - 1))) {
        PLACE(hn_node_set_int(node, "axis", -1));
        return HONE_OK;
    }
    hn_value *input = node->inputs[0], *output = node->outputs[0];
    hn_value *shape = insert(node, "Shape", &input, 1);
    hn_value *flat = insert(node, "Flatten", &input, 1);
    PLACE(shape && flat && hn_node_set_int(flat->producer, "axis", axis));
    hn_node_set_input(node, 0, flat);
    PLACE(hn_node_set_int(node, "axis", -1));
    hn_value *matrix = hn_value_new(node->graph, "");
    PLACE(matrix);
    // The old node's output goes to the Reshape behind it: uses and name stay with the value.
    hn_node *reshape =
        insert_node(node->graph, node->next, "Reshape", (hn_value *[]){matrix, shape}, 2);
    PLACE(reshape);
    node->outputs[0] = NULL;
    output->producer = NULL;
    hn_node_set_output(node, 0, matrix);
    hn_node_set_output(reshape, 0, output);
    HN_TRY(hn_infer_node(err, shape->producer));
    HN_TRY(hn_infer_node(err, flat->producer));
    node->version = 13;
    HN_TRY(hn_infer_node(err, node));
    return hn_infer_node(err, reshape);
}

// ---- Resize and Upsample ------------------------------------------------------------------------
static hone_status raise_upsample_scales(hone_error *err, hn_node *node, bool *out_done) {
    const hn_attr *attr = hn_node_attr(node, "scales");
    *out_done = attr && attr->type == HN_ATTR_FLOATS && node->input_count == 1;
    if (!*out_done) return HONE_OK;
    hn_shape shape = {1, {attr->count}};
    hn_tensor tensor;
    HN_TRY(hn_tensor_new(err, HN_F32, &shape, &tensor));
    if (attr->count) memcpy(tensor.data, attr->floats, tensor.bytes);
    hn_value *scales = hn_graph_add_constant(node->graph, "", &tensor);
    PLACE(scales && hn_node_add_input(node, scales));
    hn_node_remove_attr(node, "scales");
    return HONE_OK;
}

// X, scales -> X, no roi, scales; old sampling has no half pixels.
static hn_status resize_form(hone_error *err, hn_node *node, const char *nearest_mode) {
    hn_value *scales = node->inputs[1];
    hn_node_set_input(node, 1, NULL);
    PLACE(hn_node_add_input(node, scales));
    PLACE(hn_node_set_string(node, "coordinate_transformation_mode", "asymmetric"));
    if (is_string(node, "mode", "nearest") || !hn_node_attr(node, "mode"))
        PLACE(hn_node_set_string(node, "nearest_mode", nearest_mode));
    return HONE_OK;
}

static hone_status raise_upsample(hone_error *err, hn_node *node, bool *out_done) {
    *out_done = node->input_count == 2 && node->inputs[1];
    if (!*out_done) return HONE_OK;
    HN_TRY(resize_form(err, node, "floor"));
    node->version = 13;
    return set_op(err, node, "Resize");
}

// Opset 10 rounds down when it enlarges and up when it shrinks, axis by axis: one mode can say that
// when the scales are known and lie on one side of 1.
static hone_status raise_resize_10(hone_error *err, hn_node *node, bool *out_done) {
    const hn_value *scales = node->input_count == 2 ? node->inputs[1] : NULL;
    *out_done = false;
    if (!scales) return HONE_OK;
    bool up = true, down = true,
         nearest = !hn_node_attr(node, "mode") || is_string(node, "mode", "nearest");
    const hn_tensor *data = scales->constant;
    for (int64_t i = 0; data && i < hn_tensor_count(data); i++) {
        double scale = hn_tensor_get_f64(data, i);
        up &= scale >= 1;
        down &= scale <= 1;
    }
    if (nearest && (!data || (!up && !down))) return HONE_OK;
    HN_TRY(resize_form(err, node, up ? "floor" : "ceil"));
    *out_done = true;
    node->version = 13; // the absent roi is allowed from there
    return HONE_OK;
}

// Empty tensors stood for absent inputs.
static hone_status raise_resize_11(hone_error *err, hn_node *node, bool *out_done) {
    (void)err;
    *out_done = !is_string(node, "coordinate_transformation_mode", "tf_half_pixel_for_nn");
    for (int i = 1; *out_done && i < node->input_count; i++)
        if (node->inputs[i] && node->inputs[i]->constant && node->inputs[i]->constant->bytes == 0)
            hn_node_set_input(node, i, NULL);
    while (*out_done && node->input_count > 1 && !node->inputs[node->input_count - 1])
        hn_node_cut_inputs(node, node->input_count - 1);
    return HONE_OK;
}

// ---- lowering -----------------------------------------------------------------------------------
static int lower_never(const hn_node *node, int from, int to) {
    (void)node, (void)from;
    return to;
}

// The new form adds inputs that are absent here.
static int lower_lone_input(const hn_node *node, int from, int to) {
    bool same = node->input_count == 1 && !hn_node_attr(node, "noop_with_empty_axes") &&
                !hn_node_attr(node, "seed");
    return same ? from : to;
}

static int lower_inference(const hn_node *node, int from, int to) {
    bool same = node->output_count == 1 && !hn_node_attr(node, "training_mode");
    return same ? from : to;
}

static int lower_nearest(const hn_node *node, int from, int to) {
    return is_string(node, "mode", "nearest") ? from : to;
}

// Flattened at the last axis nothing is flattened; negative axes came with opset 11.
static int lower_last_axis(const hn_node *node, int from, int to) {
    int64_t axis = hn_node_int(node, "axis", 0);
    int rank = node->input_count && node->inputs[0] ? node->inputs[0]->type.rank : -1;
    if (axis == -1) return 11;
    return axis > 0 && rank > 0 && axis == rank - 1 ? from : to;
}

static int lower_given_sizes(const hn_node *node, int from, int to) {
    return node->input_count == 2 && !hn_node_attr(node, "num_outputs") ? from : to;
}

// ---- the walk -----------------------------------------------------------------------------------
static const raise_row k_rows[] = {
#define HN_RAISE(op, from, to, function, lower) {#op, from, to, raise_##function, lower_##lower},
#include "onnx/raise.def"
#undef HN_RAISE
};

// The lowest version that means the same: that of the last change, or of the row that reads it.
static int base_version(const char *op_type, int version, int since) {
    int base = HN_ONNX_MIN_OPSET;
    for (size_t i = 0; i < HN_COUNT_OF(k_rows); i++)
        if (k_rows[i].to <= version && k_rows[i].to > base && strcmp(k_rows[i].op, op_type) == 0)
            base = k_rows[i].to;
    return since > base ? since : base;
}

int hn_onnx_valid_from(const hn_node *node) {
    int version = node->version, from = HN_ONNX_MIN_OPSET;
    for (size_t i = HN_COUNT_OF(k_rows); i-- > 0;) {
        const raise_row *row = &k_rows[i];
        if (version < row->to || strcmp(row->op, node->op_type) != 0) continue;
        from = row->lower(node, row->from, row->to);
        if (from == row->to) return from;
        version = from;
    }
    return from > HN_ONNX_MIN_OPSET ? from : HN_ONNX_MIN_OPSET;
}

int hn_onnx_valid_until(const char *domain, const char *op_type, int version) {
    if (*domain) return INT_MAX;
    for (size_t i = 0; i < HN_COUNT_OF(k_rows); i++)
        if (k_rows[i].to > version && strcmp(k_rows[i].op, op_type) == 0) return k_rows[i].to;
    return INT_MAX;
}

static hn_status raise_node(hone_error *err, hn_node *node) {
    char label[160];
    if (*node->domain || node->version >= HN_ONNX_CANONICAL_OPSET) return HONE_OK;
    for (size_t i = 0; i < HN_COUNT_OF(k_rows); i++) {
        const raise_row *row = &k_rows[i];
        if (node->version >= row->to || strcmp(row->op, node->op_type) != 0) continue;
        bool done = false;
        HN_TRY_CTX(err, row->raise(err, node, &done), "raising %s to opset %d",
                   hn_node_label(node, label, sizeof label), row->to);
        if (!done) return HONE_OK;
        if (node->version < row->to) node->version = row->to;
    }
    return HONE_OK;
}

// The first attribute that the op's row does not know; NULL: none.
static const char *unknown_attribute(const hn_node *node, const hn_op_info *info) {
    for (int i = 0; i < node->attr_count; i++) {
        const char *name = node->attrs[i].name, *at = info->attrs;
        size_t length = strlen(name);
        bool known = false;
        for (; (at = strstr(at, name)) && !known; at += length)
            known = (at == info->attrs || at[-1] == ' ') && at[length] == ':';
        if (!known) return name;
    }
    return NULL;
}

// Decides whether the table's row means what the node means, and infers the outputs' types.
static hn_status settle_node(hone_error *err, hn_node *node, const hn_onnx_options *options) {
    char label[160];
    const hn_op_info *info = hn_op_get(node->op);
    bool standard = !*node->domain;
    if (node->op == HN_OP_UNKNOWN) {
        if (standard && !options->no_raise)
            node->version = base_version(node->op_type, node->version, info->since);
        return HONE_OK;
    }
    bool fits = !standard || info->since < hn_onnx_valid_until("", node->op_type, node->version);
    const char *attribute = unknown_attribute(node, info);
    if (fits && !attribute) {
        if (standard && !options->no_raise)
            node->version = base_version(node->op_type, node->version, info->since);
        hone_error own = {0};
        hone_status status = hn_infer_node(&own, node);
        // A branch may contradict the shapes at hand and never run: If, Loop and Scan infer their
        // bodies again and know whether it counts.
        if (status == HONE_ERR_FORMAT && node->graph->parent) return HONE_OK;
        if (status != HONE_OK && err) *err = own;
        return status;
    }
    hn_node_label(node, label, sizeof label);
    if (!options->keep_unknown && attribute)
        HN_FAIL(err, HONE_ERR_UNSUPPORTED, "%s: the attribute '%s' is not supported", label,
                attribute);
    if (!options->keep_unknown)
        HN_FAIL(err, HONE_ERR_UNSUPPORTED,
                "%s has the meaning of opset %d, which has no exact form in opset %d", label,
                node->version, info->since);
    node->op = HN_OP_UNKNOWN; // goes through unchanged
    return HONE_OK;
}

static hn_status raise_graph(hone_error *err, hn_graph *graph, const hn_onnx_options *options) {
    for (hn_node *node = graph->first, *next; node; node = next) {
        next = node->next;
        if (!options->no_raise) HN_TRY(raise_node(err, node));
        for (int i = 0; i < node->attr_count; i++)
            if (node->attrs[i].type == HN_ATTR_GRAPH)
                HN_TRY(raise_graph(err, node->attrs[i].graph, options));
        HN_TRY(settle_node(err, node, options));
    }
    return HONE_OK;
}

hn_status hn_onnx_raise(hone_error *err, hn_module *module, const hn_onnx_options *options) {
    return raise_graph(err, module->main, options);
}
