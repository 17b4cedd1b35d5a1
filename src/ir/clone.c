// SPDX-License-Identifier: Apache-2.0
// Deep copies of modules. Ids and dim handles are kept, so side tables fit original and copy alike.
// Values of a graph are made before its nodes, so captures always find their copy in the map.
#include "ir/graph.h"

typedef struct cloner {
    hn_module *to;
    hn_value **map; // by value id
} cloner;

static bool clone_graph(cloner *c, const hn_graph *from, hn_graph *to);

static bool clone_value(cloner *c, const hn_value *from, hn_graph *graph) {
    hn_value *value = hn_value_new(graph, from->name);
    if (!value) return false;
    value->id = from->id;
    value->type = from->type;
    value->is_input = from->is_input;
    value->overridable = from->overridable;
    if (from->constant) {
        hn_tensor shared = hn_tensor_ref(from->constant);
        value->constant = hn_module_add_tensor(c->to, &shared);
        if (!value->constant) return false;
    }
    if (from->elems) {
        hn_dim *elems = hn_arena_array(&c->to->arena, (size_t)from->elem_count, sizeof *elems);
        if (!elems) return false;
        if (from->elem_count) memcpy(elems, from->elems, (size_t)from->elem_count * sizeof *elems);
        value->elems = elems;
        value->elem_count = from->elem_count;
    }
    if (from->doc && !(value->doc = hn_arena_strdup(&c->to->arena, from->doc))) return false;
    if (from->denotation && !(value->denotation = hn_arena_strdup(&c->to->arena, from->denotation)))
        return false;
    value->stated = from->stated;
    c->map[from->id] = value;
    return true;
}

static bool clone_attrs(cloner *c, const hn_node *from, hn_node *to) {
    for (int i = 0; i < from->attr_count; i++) {
        const hn_attr *attr = &from->attrs[i];
        if (attr->type != HN_ATTR_GRAPH) {
            if (!hn_node_copy_attr(to, attr)) return false;
            continue;
        }
        hn_graph *graph = hn_graph_new(c->to, to);
        if (!graph || !hn_node_set_graph(to, attr->name, graph)) return false;
        if (!clone_graph(c, attr->graph, graph)) return false;
    }
    return true;
}

static bool clone_node(cloner *c, const hn_node *from, hn_graph *graph) {
    hn_node *node = hn_graph_add_node(graph, NULL, from->op, from->op_type, from->domain,
                                      from->version, NULL, 0, from->output_count);
    if (!node) return false;
    for (int i = 0; i < from->input_count; i++)
        if (!hn_node_add_input(node, from->inputs[i] ? c->map[from->inputs[i]->id] : NULL))
            return false;
    for (int i = 0; i < from->output_count; i++)
        hn_node_set_output(node, i, from->outputs[i] ? c->map[from->outputs[i]->id] : NULL);
    if (!clone_attrs(c, from, node)) return false;
    if (!(node->name = hn_arena_strdup(&c->to->arena, from->name))) return false;
    node->id = from->id;
    node->compute = from->compute;
    node->plain = from->plain;
    memcpy(node->post, from->post, sizeof node->post);
    for (int i = 0; i < from->post_count; i++) {
        if (!from->post[i].op_type) continue;
        node->post[i].op_type = hn_arena_strdup(&c->to->arena, from->post[i].op_type);
        if (!node->post[i].op_type) return false;
    }
    node->post_count = from->post_count;
    node->base_input_count = from->base_input_count;
    return true;
}

static bool clone_graph(cloner *c, const hn_graph *from, hn_graph *to) {
    if (!(to->name = hn_arena_strdup(&c->to->arena, from->name))) return false;
    for (size_t i = 0; i < from->values.count; i++)
        if (!clone_value(c, from->values.data[i], to)) return false;
    for (size_t i = 0; i < from->inputs.count; i++)
        if (!hn_vec_push(&to->inputs, c->map[from->inputs.data[i]->id])) return false;
    for (size_t i = 0; i < from->overridables.count; i++)
        if (!hn_vec_push(&to->overridables, c->map[from->overridables.data[i]->id])) return false;
    for (const hn_node *node = from->first; node; node = node->next)
        if (!clone_node(c, node, to)) return false;
    for (size_t i = 0; i < from->declared.count; i++)
        if (!hn_vec_push(&to->declared, from->declared.data[i])) return false;
    for (size_t i = 0; i < from->outputs.count; i++)
        if (!hn_graph_add_output(to, c->map[from->outputs.data[i]->id])) return false;
    return true;
}

static bool clone_header(hn_module *to, const hn_module *from) {
    const struct {
        const char *const *from;
        const char **to;
    } texts[] = {
        {&from->producer_name, &to->producer_name},
        {&from->producer_version, &to->producer_version},
        {&from->domain, &to->domain},
        {&from->doc, &to->doc},
        {&from->graph_doc, &to->graph_doc},
    };
    for (size_t i = 0; i < HN_COUNT_OF(texts); i++) {
        if (!*texts[i].from) continue;
        if (!(*texts[i].to = hn_arena_strdup(&to->arena, *texts[i].from))) return false;
    }
    for (size_t i = 0; i < from->opsets.count; i++) {
        hn_opset opset = from->opsets.data[i];
        opset.domain = hn_arena_strdup(&to->arena, opset.domain);
        if (!opset.domain || !hn_vec_push(&to->opsets, opset)) return false;
    }
    for (size_t i = 0; i < from->metadata.count; i++) {
        hn_meta meta = from->metadata.data[i];
        meta.key = hn_arena_strdup(&to->arena, meta.key);
        meta.value = hn_arena_strdup(&to->arena, meta.value);
        if (!meta.key || !meta.value || !hn_vec_push(&to->metadata, meta)) return false;
    }
    to->ir_version = from->ir_version;
    to->model_version = from->model_version;
    to->source = hn_buffer_ref(from->source);
    hn_dims_free(to->dims);
    to->dims = hn_dims_clone(from->dims);
    return to->dims != NULL;
}

hn_module *hn_module_clone(const hn_module *module, hn_value **value_map) {
    size_t map_count = (size_t)module->next_value_id + 1;
    cloner c = {.to = hn_module_new(), .map = hn_calloc(map_count, sizeof *c.map)};
    bool ok =
        c.to && c.map && clone_header(c.to, module) && clone_graph(&c, module->main, c.to->main);
    if (ok) {
        c.to->next_value_id = module->next_value_id;
        c.to->next_node_id = module->next_node_id;
        if (value_map) memcpy(value_map, c.map, module->next_value_id * sizeof *c.map);
    } else {
        hn_module_free(c.to);
        c.to = NULL;
    }
    hn_free(c.map);
    return c.to;
}
