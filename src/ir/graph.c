// SPDX-License-Identifier: Apache-2.0
// Building, editing and reading graphs: see graph.h.
//
// Arrays of a node (inputs, attributes) live in the module's arena with an implicit capacity: the
// next power of two, at least MIN_CAPACITY, so appending is amortised without a field for it.
// Use lists are the only heap memory of a value; the module's end frees them through the list of
// all graphs.
#include "ir/graph.h"
#include <stdio.h>

#define MIN_CAPACITY 4

// ---- modules, graphs ----------------------------------------------------------------------------

hn_module *hn_module_new(void) {
    hn_module *module = hn_calloc(1, sizeof *module);
    if (!module) return NULL;
    module->producer_name = module->producer_version = module->domain = module->doc = "";
    module->graph_doc = "";
    module->dims = hn_dims_new();
    module->main = module->dims ? hn_graph_new(module, NULL) : NULL;
    if (!module->main) {
        hn_module_free(module);
        return NULL;
    }
    return module;
}

void hn_module_free(hn_module *module) {
    if (!module) return;
    for (size_t i = 0; i < module->graphs.count; i++) {
        hn_graph *graph = module->graphs.data[i];
        for (size_t j = 0; j < graph->values.count; j++)
            hn_vec_free(&graph->values.data[j]->uses);
        hn_vec_free(&graph->inputs);
        hn_vec_free(&graph->overridables);
        hn_vec_free(&graph->outputs);
        hn_vec_free(&graph->declared);
        hn_vec_free(&graph->values);
    }
    for (size_t i = 0; i < module->tensors.count; i++)
        hn_tensor_free(module->tensors.data[i]);
    hn_vec_free(&module->graphs);
    hn_vec_free(&module->tensors);
    hn_vec_free(&module->opsets);
    hn_vec_free(&module->metadata);
    hn_buffer_unref(module->source);
    hn_dims_free(module->dims);
    hn_arena_free(&module->arena);
    hn_free(module);
}

hn_graph *hn_graph_new(hn_module *module, hn_node *parent) {
    hn_graph *graph = hn_arena_zalloc(&module->arena, sizeof *graph);
    if (!graph) return NULL;
    graph->module = module;
    graph->parent = parent;
    graph->name = "";
    return hn_vec_push(&module->graphs, graph) ? graph : NULL;
}

hn_tensor *hn_module_add_tensor(hn_module *module, hn_tensor *tensor) {
    hn_tensor *kept = hn_arena_zalloc(&module->arena, sizeof *kept);
    if (!kept || !hn_vec_push(&module->tensors, kept)) {
        hn_tensor_free(tensor);
        return NULL;
    }
    *kept = *tensor;
    *tensor = (hn_tensor){0};
    return kept;
}

bool hn_graph_within(const hn_graph *inner, const hn_graph *outer) {
    for (; inner; inner = inner->parent ? inner->parent->graph : NULL)
        if (inner == outer) return true;
    return false;
}

hn_node *hn_node_ancestor(hn_node *node, const hn_graph *graph) {
    while (node && node->graph != graph)
        node = node->graph->parent;
    return node;
}

// ---- values -------------------------------------------------------------------------------------

hn_value *hn_value_new(hn_graph *graph, const char *name) {
    hn_module *module = graph->module;
    hn_value *value = hn_arena_zalloc(&module->arena, sizeof *value);
    if (!value) return NULL;
    value->name = name && *name ? hn_arena_strdup(&module->arena, name) : "";
    if (!value->name) return NULL;
    value->graph = graph;
    value->type.rank = -1;
    value->slot = (uint32_t)graph->values.count;
    if (!hn_vec_push(&graph->values, value)) return NULL;
    value->id = module->next_value_id++;
    return value;
}

bool hn_value_set_name(hn_value *value, const char *name) {
    const char *copy = name && *name ? hn_arena_strdup(&value->graph->module->arena, name) : "";
    if (copy) value->name = copy;
    return copy != NULL;
}

hn_value *hn_graph_add_input(hn_graph *graph, const char *name, const hn_type *type) {
    hn_value *value = hn_value_new(graph, name);
    if (!value || !hn_vec_push(&graph->inputs, value)) return NULL;
    if (type) value->type = *type;
    value->is_input = true;
    return value;
}

bool hn_graph_add_output(hn_graph *graph, hn_value *value) {
    if (!hn_vec_push(&graph->outputs, value)) return false;
    value->graph_output_uses++;
    return true;
}

void hn_graph_set_output(hn_graph *graph, int index, hn_value *value) {
    graph->outputs.data[index]->graph_output_uses--;
    graph->outputs.data[index] = value;
    value->graph_output_uses++;
}

hn_value *hn_graph_add_constant(hn_graph *graph, const char *name, hn_tensor *tensor) {
    hn_tensor *kept = hn_module_add_tensor(graph->module, tensor);
    hn_value *value = kept ? hn_value_new(graph, name) : NULL;
    if (!value) return NULL;
    value->constant = kept;
    hn_type_set_shape(&value->type, kept->dtype, &kept->shape);
    return value;
}

static hn_value *small_constant(hn_graph *graph, hn_dtype dtype, const hn_shape *shape,
                                const void *data) {
    hn_tensor tensor;
    if (hn_tensor_new(NULL, dtype, shape, &tensor) != HONE_OK) return NULL;
    if (tensor.bytes) memcpy(tensor.data, data, tensor.bytes);
    return hn_graph_add_constant(graph, "", &tensor);
}

hn_value *hn_graph_add_const_i64(hn_graph *graph, const int64_t *values, int64_t count,
                                 bool scalar) {
    hn_shape shape = {scalar ? 0 : 1, {count}};
    return small_constant(graph, HN_I64, &shape, values);
}

hn_value *hn_graph_add_const_f32(hn_graph *graph, float value) {
    return small_constant(graph, HN_F32, &(hn_shape){0}, &value);
}

static void value_unlink(hn_value *value) {
    hn_graph *graph = value->graph;
    if (value->slot == UINT32_MAX) return;
    hn_value *last = graph->values.data[--graph->values.count];
    graph->values.data[value->slot] = last;
    last->slot = value->slot;
    value->slot = UINT32_MAX;
    hn_vec_free(&value->uses);
    if (value->constant) hn_tensor_free(value->constant);
    value->constant = NULL;
    value->producer = NULL;
}

bool hn_value_unused(const hn_value *value) {
    return value->uses.count == 0 && value->graph_output_uses == 0;
}

void hn_value_remove(hn_value *value) {
    HN_ASSERT(hn_value_unused(value) && !value->producer && !value->is_input);
    hn_graph *graph = value->graph;
    for (size_t i = 0; value->overridable && i < graph->overridables.count; i++) {
        if (graph->overridables.data[i] != value) continue;
        graph->overridables.count--;
        memmove(&graph->overridables.data[i], &graph->overridables.data[i + 1],
                (graph->overridables.count - i) * sizeof graph->overridables.data[0]);
        break;
    }
    value_unlink(value);
}

// ---- uses ---------------------------------------------------------------------------------------

static bool use_add(hn_value *value, hn_node *node, int index) {
    hn_use use = {node, index};
    return hn_vec_push(&value->uses, use);
}

static void use_drop(hn_value *value, const hn_node *node, int index) {
    for (size_t i = value->uses.count; i-- > 0;) {
        if (value->uses.data[i].node != node || value->uses.data[i].index != index) continue;
        value->uses.data[i] = value->uses.data[--value->uses.count];
        return;
    }
    HN_ASSERT(!"use list lacks an input");
}

bool hn_value_can_replace(const hn_value *from, const hn_value *to) {
    if (from == to || !hn_graph_within(from->graph, to->graph)) return false;
    if (from->graph_output_uses == 0) return true;
    // The interface keeps its names: `to` must be free to take this one.
    return to->graph == from->graph && !to->is_input && !to->overridable &&
           to->graph_output_uses == 0;
}

void hn_value_replace(hn_value *from, hn_value *to) {
    if (from == to) return;
    // The list moves as a whole where it can, so that this needs no memory in the common case.
    if (to->uses.count == 0) {
        hn_vec_free(&to->uses);
        memcpy(&to->uses, &from->uses, sizeof to->uses);
        memset(&from->uses, 0, sizeof from->uses);
        for (size_t i = 0; i < to->uses.count; i++)
            to->uses.data[i].node->inputs[to->uses.data[i].index] = to;
    } else {
        while (from->uses.count) {
            hn_use use = from->uses.data[from->uses.count - 1];
            if (!use_add(to, use.node, use.index)) return; // what is left stays as it was
            use.node->inputs[use.index] = to;
            from->uses.count--;
        }
    }
    if (from->graph_output_uses == 0) return;
    for (size_t i = 0; i < from->graph->outputs.count; i++)
        if (from->graph->outputs.data[i] == from) from->graph->outputs.data[i] = to;
    to->graph_output_uses += from->graph_output_uses;
    from->graph_output_uses = 0;
    if (to->graph == from->graph && !to->is_input && !to->overridable) {
        to->name = from->name;
        if (from->doc) to->doc = from->doc;
        if (from->denotation) to->denotation = from->denotation;
        from->name = "";
    }
}

// ---- nodes --------------------------------------------------------------------------------------

static int capacity_for(int count) {
    int capacity = MIN_CAPACITY;
    while (capacity < count)
        capacity *= 2;
    return capacity;
}

static void list_insert(hn_node *node, hn_node *before) {
    hn_graph *graph = node->graph;
    node->next = before;
    node->prev = before ? before->prev : graph->last;
    if (node->prev)
        node->prev->next = node;
    else
        graph->first = node;
    if (before)
        before->prev = node;
    else
        graph->last = node;
}

static void list_remove(hn_node *node) {
    if (node->prev)
        node->prev->next = node->next;
    else
        node->graph->first = node->next;
    if (node->next)
        node->next->prev = node->prev;
    else
        node->graph->last = node->prev;
    node->prev = node->next = NULL;
}

static const char *copy_text(hn_module *module, const char *text) {
    return text && *text ? hn_arena_strdup(&module->arena, text) : "";
}

hn_node *hn_graph_add_node(hn_graph *graph, hn_node *before, hn_op op, const char *op_type,
                           const char *domain, int version, hn_value *const *inputs,
                           int input_count, int output_count) {
    hn_module *module = graph->module;
    HN_ASSERT(!before || before->graph == graph);
    hn_node *node = hn_arena_zalloc(&module->arena, sizeof *node);
    if (!node) return NULL;
    node->inputs =
        hn_arena_array(&module->arena, (size_t)capacity_for(input_count), sizeof *node->inputs);
    node->outputs = hn_arena_array(&module->arena, (size_t)output_count, sizeof *node->outputs);
    node->op_type = copy_text(module, op_type);
    node->domain = copy_text(module, domain);
    if (!node->inputs || !node->outputs || !node->op_type || !node->domain) return NULL;
    node->op = op;
    node->name = "";
    node->version = version;
    node->graph = graph;
    for (int i = 0; i < output_count; i++) {
        hn_value *value = hn_value_new(graph, "");
        if (!value) return NULL;
        value->producer = node;
        value->output_index = i;
        node->outputs[node->output_count++] = value;
    }
    for (int i = 0; i < input_count; i++)
        if (!hn_node_add_input(node, inputs[i])) {
            hn_node_cut_inputs(node, 0);
            return NULL;
        }
    node->id = module->next_node_id++;
    list_insert(node, before);
    return node;
}

void hn_node_set_input(hn_node *node, int index, hn_value *value) {
    hn_value *old = node->inputs[index];
    if (old == value) return;
    if (value && !use_add(value, node, index)) return; // out of memory: the old input stays
    if (old) use_drop(old, node, index);
    node->inputs[index] = value;
}

bool hn_node_add_input(hn_node *node, hn_value *value) {
    if (node->input_count >= MIN_CAPACITY && (node->input_count & (node->input_count - 1)) == 0) {
        hn_value **grown = hn_arena_array(&node->graph->module->arena,
                                          (size_t)node->input_count * 2, sizeof *grown);
        if (!grown) return false;
        memcpy(grown, node->inputs, (size_t)node->input_count * sizeof *grown);
        node->inputs = grown;
    }
    if (value && !use_add(value, node, node->input_count)) return false;
    node->inputs[node->input_count++] = value;
    return true;
}

void hn_node_cut_inputs(hn_node *node, int count) {
    while (node->input_count > count) {
        int last = --node->input_count;
        if (node->inputs[last]) use_drop(node->inputs[last], node, last);
        node->inputs[last] = NULL;
    }
}

void hn_node_set_output(hn_node *node, int index, hn_value *value) {
    hn_value *old = node->outputs[index];
    if (old == value) return;
    HN_ASSERT(!old || hn_value_unused(old));
    HN_ASSERT(!value || (!value->producer && value->graph == node->graph));
    if (old) value_unlink(old);
    node->outputs[index] = value;
    if (!value) return;
    value->producer = node;
    value->output_index = index;
}

static void graph_drop(hn_graph *graph);

static void node_drop_content(hn_node *node) {
    hn_node_cut_inputs(node, 0);
    for (int i = 0; i < node->attr_count; i++)
        if (node->attrs[i].type == HN_ATTR_GRAPH) graph_drop(node->attrs[i].graph);
}

// Lets go of everything a removed sub-graph uses. Depth is bounded by whoever built the nesting.
static void graph_drop(hn_graph *graph) {
    for (hn_node *node = graph->last; node; node = node->prev)
        node_drop_content(node);
    graph->first = graph->last = NULL;
    for (size_t i = 0; i < graph->outputs.count; i++)
        graph->outputs.data[i]->graph_output_uses--;
    graph->outputs.count = graph->inputs.count = graph->overridables.count = 0;
    while (graph->values.count)
        value_unlink(graph->values.data[graph->values.count - 1]);
}

void hn_node_remove(hn_node *node) {
    list_remove(node);
    node_drop_content(node);
    for (int i = 0; i < node->output_count; i++) {
        if (!node->outputs[i]) continue;
        HN_ASSERT(hn_value_unused(node->outputs[i]));
        value_unlink(node->outputs[i]);
        node->outputs[i] = NULL;
    }
}

void hn_node_move_before(hn_node *node, hn_node *before) {
    if (node == before) return;
    HN_ASSERT(!before || before->graph == node->graph);
    list_remove(node);
    list_insert(node, before);
}

hn_status hn_graph_splice(hone_error *err, hn_graph *graph, hn_node *before) {
    hn_graph *into = before->graph;
    if (!hn_vec_reserve(&into->values, graph->values.count)) HN_NOMEM(err, "splicing a sub-graph");
    for (size_t i = 0; i < graph->outputs.count; i++)
        graph->outputs.data[i]->graph_output_uses--;
    for (size_t i = 0; i < graph->values.count; i++) {
        hn_value *value = graph->values.data[i];
        if (*value->name && hn_graph_find(into, value->name)) value->name = "";
        value->graph = into;
        value->is_input = value->overridable = false;
        value->slot = (uint32_t)into->values.count;
        into->values.data[into->values.count++] = value;
    }
    graph->values.count = graph->inputs.count = graph->overridables.count = 0;
    for (hn_node *node = graph->first, *next; node; node = next) {
        next = node->next;
        list_remove(node);
        node->graph = into;
        list_insert(node, before);
    }
    return HONE_OK;
}

// ---- attributes ---------------------------------------------------------------------------------

static hn_attr *find_attr(const hn_node *node, const char *name) {
    for (int i = 0; i < node->attr_count; i++)
        if (strcmp(node->attrs[i].name, name) == 0) return &node->attrs[i];
    return NULL;
}

hn_attr *hn_node_add_attr(hn_node *node, const char *name, hn_attr_type type) {
    hn_arena *arena = &node->graph->module->arena;
    hn_attr *attr = find_attr(node, name);
    if (!attr) {
        int count = node->attr_count;
        if (count == 0 || (count >= MIN_CAPACITY && (count & (count - 1)) == 0)) {
            hn_attr *grown = hn_arena_array(arena, (size_t)capacity_for(count + 1), sizeof *grown);
            if (!grown) return NULL;
            if (count) memcpy(grown, node->attrs, (size_t)count * sizeof *grown);
            node->attrs = grown;
        }
        const char *copy = hn_arena_strdup(arena, name);
        if (!copy) return NULL;
        attr = &node->attrs[node->attr_count++];
        attr->name = copy;
    } else if (attr->type == HN_ATTR_GRAPH) {
        graph_drop(attr->graph);
    }
    *attr = (hn_attr){.name = attr->name, .type = type};
    return attr;
}

void hn_node_remove_attr(hn_node *node, const char *name) {
    hn_attr *attr = find_attr(node, name);
    if (!attr) return;
    if (attr->type == HN_ATTR_GRAPH) graph_drop(attr->graph);
    hn_attr *end = node->attrs + --node->attr_count;
    memmove(attr, attr + 1, (size_t)(end - attr) * sizeof *attr);
}

bool hn_node_set_int(hn_node *node, const char *name, int64_t value) {
    hn_attr *attr = hn_node_add_attr(node, name, HN_ATTR_INT);
    if (attr) attr->i = value;
    return attr != NULL;
}

bool hn_node_set_float(hn_node *node, const char *name, float value) {
    hn_attr *attr = hn_node_add_attr(node, name, HN_ATTR_FLOAT);
    if (attr) attr->f = value;
    return attr != NULL;
}

static bool copy_slice(hn_module *module, hn_slice from, hn_slice *out) {
    char *copy = hn_arena_strndup(&module->arena, from.length ? from.data : "", from.length);
    if (copy) *out = (hn_slice){copy, from.length};
    return copy != NULL;
}

bool hn_node_set_string(hn_node *node, const char *name, const char *value) {
    hn_slice copy;
    if (!copy_slice(node->graph->module, (hn_slice){value, strlen(value)}, &copy)) return false;
    hn_attr *attr = hn_node_add_attr(node, name, HN_ATTR_STRING);
    if (attr) attr->s = copy;
    return attr != NULL;
}

// Copies a list into the arena first: values may point into the attribute that is replaced.
static hn_attr *add_list(hn_node *node, const char *name, hn_attr_type type, const void *values,
                         int64_t count, size_t item_bytes) {
    void *copy = hn_arena_array(&node->graph->module->arena, (size_t)count, item_bytes);
    if (!copy) return NULL;
    if (count) memcpy(copy, values, (size_t)count * item_bytes);
    hn_attr *attr = hn_node_add_attr(node, name, type);
    if (!attr) return NULL;
    attr->count = count;
    attr->ints = copy; // the union's pointers share one representation
    return attr;
}

bool hn_node_set_ints(hn_node *node, const char *name, const int64_t *values, int64_t count) {
    return add_list(node, name, HN_ATTR_INTS, values, count, sizeof *values) != NULL;
}

bool hn_node_set_floats(hn_node *node, const char *name, const float *values, int64_t count) {
    return add_list(node, name, HN_ATTR_FLOATS, values, count, sizeof *values) != NULL;
}

bool hn_node_set_strings(hn_node *node, const char *name, const hn_slice *values, int64_t count) {
    hn_attr *attr = add_list(node, name, HN_ATTR_STRINGS, values, count, sizeof *values);
    if (!attr) return false;
    hn_slice *copies = (hn_slice *)(uintptr_t)attr->strings;
    for (int64_t i = 0; i < count; i++)
        if (!copy_slice(node->graph->module, values[i], &copies[i])) return false;
    return true;
}

bool hn_node_set_tensor(hn_node *node, const char *name, hn_tensor *tensor) {
    hn_tensor *kept = hn_module_add_tensor(node->graph->module, tensor);
    hn_attr *attr = kept ? hn_node_add_attr(node, name, HN_ATTR_TENSOR) : NULL;
    if (attr) attr->tensor = kept;
    return attr;
}

bool hn_node_set_graph(hn_node *node, const char *name, hn_graph *graph) {
    hn_attr *attr = hn_node_add_attr(node, name, HN_ATTR_GRAPH);
    if (!attr) return false;
    attr->graph = graph;
    graph->parent = node;
    return true;
}

bool hn_node_copy_attr(hn_node *node, const hn_attr *a) {
    hn_slice text;
    hn_attr *copy;
    switch (a->type) {
    case HN_ATTR_INT:
        return hn_node_set_int(node, a->name, a->i);
    case HN_ATTR_FLOAT:
        return hn_node_set_float(node, a->name, a->f);
    case HN_ATTR_INTS:
        return hn_node_set_ints(node, a->name, a->ints, a->count);
    case HN_ATTR_FLOATS:
        return hn_node_set_floats(node, a->name, a->floats, a->count);
    case HN_ATTR_STRINGS:
        return hn_node_set_strings(node, a->name, a->strings, a->count);
    case HN_ATTR_STRING:
        if (!copy_slice(node->graph->module, a->s, &text)) return false;
        copy = hn_node_add_attr(node, a->name, HN_ATTR_STRING);
        if (copy) copy->s = text;
        return copy != NULL;
    case HN_ATTR_TENSOR: {
        hn_tensor shared = hn_tensor_ref(a->tensor);
        return hn_node_set_tensor(node, a->name, &shared);
    }
    case HN_ATTR_GRAPH:
        return true;
    }
    return false;
}

bool hn_node_copy_attrs(hn_node *node, const hn_node *from) {
    for (int i = 0; i < from->attr_count; i++)
        if (!hn_node_copy_attr(node, &from->attrs[i])) return false;
    return true;
}

// ---- reading ------------------------------------------------------------------------------------

const hn_attr *hn_node_attr(const hn_node *node, const char *name) {
    return find_attr(node, name);
}

int64_t hn_node_int(const hn_node *node, const char *name, int64_t absent) {
    const hn_attr *attr = find_attr(node, name);
    return attr && attr->type == HN_ATTR_INT ? attr->i : absent;
}

float hn_node_float(const hn_node *node, const char *name, float absent) {
    const hn_attr *attr = find_attr(node, name);
    return attr && attr->type == HN_ATTR_FLOAT ? attr->f : absent;
}

hn_slice hn_node_string(const hn_node *node, const char *name, const char *absent) {
    const hn_attr *attr = find_attr(node, name);
    if (attr && attr->type == HN_ATTR_STRING) return attr->s;
    return (hn_slice){absent, absent ? strlen(absent) : 0};
}

const int64_t *hn_node_ints(const hn_node *node, const char *name, int64_t *out_count) {
    const hn_attr *attr = find_attr(node, name);
    bool found = attr && attr->type == HN_ATTR_INTS;
    *out_count = found ? attr->count : 0;
    return found ? attr->ints : NULL;
}

hn_value *hn_graph_find(const hn_graph *graph, const char *name) {
    if (!*name) return NULL;
    for (size_t i = 0; i < graph->values.count; i++)
        if (strcmp(graph->values.data[i]->name, name) == 0) return graph->values.data[i];
    return NULL;
}

const char *hn_node_label(const hn_node *node, char *buf, size_t size) {
    const char *produced = "";
    for (int i = 0; i < node->output_count && !*produced; i++)
        if (node->outputs[i]) produced = node->outputs[i]->name;
    if (*node->name)
        snprintf(buf, size, "%s '%s'", node->op_type, node->name);
    else if (*produced)
        snprintf(buf, size, "%s producing '%s'", node->op_type, produced);
    else
        snprintf(buf, size, "%s (node %u)", node->op_type, node->id);
    return buf;
}

bool hn_type_shape(const hn_type *type, hn_shape *out_shape) {
    if (type->rank < 0) return false;
    hn_shape shape = {.rank = type->rank};
    for (int i = 0; i < type->rank; i++) {
        if (!hn_dim_is_const(type->dims[i]) || type->dims[i] < 0) return false;
        shape.dims[i] = type->dims[i];
    }
    *out_shape = shape;
    return true;
}

void hn_type_set_shape(hn_type *type, hn_dtype dtype, const hn_shape *shape) {
    *type = (hn_type){.dtype = dtype, .rank = shape->rank};
    for (int i = 0; i < shape->rank; i++)
        type->dims[i] = shape->dims[i];
}

// ---- metadata -----------------------------------------------------------------------------------
const char *hn_module_meta(const hn_module *module, const char *key) {
    for (size_t i = 0; i < module->metadata.count; i++)
        if (strcmp(module->metadata.data[i].key, key) == 0) return module->metadata.data[i].value;
    return NULL;
}

bool hn_module_set_meta(hn_module *module, const char *key, const char *value) {
    size_t at = 0, count = module->metadata.count;
    while (at < count && strcmp(module->metadata.data[at].key, key) != 0)
        at++;
    if (!value) {
        for (size_t i = at; i + 1 < count; i++)
            module->metadata.data[i] = module->metadata.data[i + 1];
        module->metadata.count -= at < count;
        return true;
    }
    hn_meta meta = {hn_arena_strdup(&module->arena, key), hn_arena_strdup(&module->arena, value)};
    if (!meta.key || !meta.value) return false;
    if (at == count) return hn_vec_push(&module->metadata, meta);
    module->metadata.data[at] = meta;
    return true;
}
