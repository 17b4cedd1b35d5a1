// SPDX-License-Identifier: Apache-2.0
// Copies a part of a graph into a module of its own: see plan_int.h.
#include "plan/plan_int.h"

typedef struct copier {
    hn_extract *extract;
    hn_module *module;
    hn_value **map;   // by source value id
    uint32_t map_count;
} copier;

static hn_type copy_type(copier *c, const hn_type *type) {
    hn_type copy = *type;
    for (int i = 0; i < copy.rank; i++)
        if (!hn_dim_is_const(copy.dims[i])) {
            int64_t lo, hi;
            hn_dim_range(c->extract->source->dims, copy.dims[i], &lo, &hi);
            copy.dims[i] = hn_dim_fresh(c->module->dims, lo < 0 ? 0 : lo, hi);
        }
    return copy;
}

static hn_value *copy_use(copier *c, hn_value *value) {
    if (!value) return NULL;
    if (c->map[value->id]) return c->map[value->id];
    hn_value *made;
    if (value->constant) {
        hn_tensor shared = hn_tensor_ref(value->constant);
        made = hn_graph_add_constant(c->module->main, value->name, &shared);
        if (made) made->overridable = value->overridable;
    } else {
        hn_type type = copy_type(c, &value->type);
        made = hn_graph_add_input(c->module->main, value->name, &type);
        if (made && !hn_vec_push(&c->extract->captured, value)) return NULL;
    }
    c->map[value->id] = made;
    return made;
}

static hn_status copy_graph(hone_error *err, copier *c, hn_graph *from, hn_graph *to);

static const void *copy_bytes(copier *c, const void *data, size_t bytes) {
    void *copy = hn_arena_alloc(&c->module->arena, bytes);
    if (copy && bytes) memcpy(copy, data, bytes);
    return copy;
}

static hn_status copy_attr(hone_error *err, copier *c, const hn_attr *from, hn_node *node) {
    hn_attr *to = hn_node_add_attr(node, from->name, from->type);
    if (!to) HN_NOMEM(err, "copying a graph");
    const char *name = to->name;
    *to = *from;
    to->name = name;
    size_t count = (size_t)from->count;
    switch (from->type) {
    case HN_ATTR_INT:
    case HN_ATTR_FLOAT: return HONE_OK;
    case HN_ATTR_STRING: to->s.data = copy_bytes(c, from->s.data, from->s.length); break;
    case HN_ATTR_INTS: to->ints = copy_bytes(c, from->ints, count * sizeof *from->ints); break;
    case HN_ATTR_FLOATS: to->floats = copy_bytes(c, from->floats, count * sizeof *from->floats); break;
    case HN_ATTR_STRINGS: {
        hn_slice *copy = hn_arena_array(&c->module->arena, count + 1, sizeof *copy);
        for (size_t i = 0; copy && i < count; i++)
            copy[i] = (hn_slice){copy_bytes(c, from->strings[i].data, from->strings[i].length),
                                 from->strings[i].length};
        to->strings = copy;
        break;
    }
    case HN_ATTR_TENSOR: {
        hn_tensor *copy = hn_arena_alloc(&c->module->arena, sizeof *copy);
        if (!copy) break;
        *copy = hn_tensor_ref(from->tensor);
        if (!hn_vec_push(&c->module->tensors, copy)) {
            hn_tensor_free(copy);
            HN_NOMEM(err, "copying a graph");
        }
        to->tensor = copy;
        return HONE_OK;
    }
    case HN_ATTR_GRAPH:
        to->graph = hn_graph_new(c->module, node);
        if (!to->graph) break;
        return copy_graph(err, c, from->graph, to->graph);
    }
    if (!to->ints && !to->s.data) HN_NOMEM(err, "copying a graph");
    return HONE_OK;
}

static hn_status copy_node(hone_error *err, copier *c, const hn_node *from, hn_graph *to) {
    hn_value **inputs =
        hn_arena_array(&c->module->arena, (size_t)from->input_count + 1, sizeof *inputs);
    if (!inputs) HN_NOMEM(err, "copying a graph");
    for (int i = 0; i < from->input_count; i++) {
        inputs[i] = copy_use(c, from->inputs[i]);
        if (from->inputs[i] && !inputs[i]) HN_NOMEM(err, "copying a graph");
    }
    hn_node *node = hn_graph_add_node(to, NULL, from->op, from->op_type, from->domain,
                                      from->version, inputs, from->input_count, from->output_count);
    if (!node) HN_NOMEM(err, "copying a graph");
    node->name = hn_arena_strdup(&c->module->arena, from->name);
    if (!node->name) HN_NOMEM(err, "copying a graph");
    node->compute = from->compute;
    node->plain = from->plain;
    memcpy(node->post, from->post, sizeof node->post);
    node->post_count = from->post_count;
    node->base_input_count = from->base_input_count;
    for (int i = 0; i < from->output_count; i++) {
        hn_value *old = from->outputs[i];
        if (!old) {
            hn_node_set_output(node, i, NULL);
            continue;
        }
        hn_value *made = node->outputs[i];
        made->name = hn_arena_strdup(&c->module->arena, old->name);
        if (!made->name) HN_NOMEM(err, "copying a graph");
        made->type = copy_type(c, &old->type);
        c->map[old->id] = made;
    }
    for (int i = 0; i < from->attr_count; i++)
        HN_TRY(copy_attr(err, c, &from->attrs[i], node));
    return HONE_OK;
}

static hn_status copy_graph(hone_error *err, copier *c, hn_graph *from, hn_graph *to) {
    to->name = hn_arena_strdup(&c->module->arena, from->name ? from->name : "");
    if (!to->name) HN_NOMEM(err, "copying a graph");
    for (size_t i = 0; i < from->inputs.count; i++) {
        hn_value *old = from->inputs.data[i];
        hn_type type = copy_type(c, &old->type);
        hn_value *made = hn_graph_add_input(to, old->name, &type);
        if (!made) HN_NOMEM(err, "copying a graph");
        c->map[old->id] = made;
    }
    for (hn_node *node = from->first; node; node = node->next)
        HN_TRY(copy_node(err, c, node, to));
    for (size_t i = 0; i < from->outputs.count; i++) {
        hn_value *made = copy_use(c, from->outputs.data[i]);
        if (!made || !hn_graph_add_output(to, made)) HN_NOMEM(err, "copying a graph");
    }
    return HONE_OK;
}

static hn_status run_copy(hone_error *err, copier *c) {
    hn_extract *e = c->extract;
    for (int i = 0; i < e->input_count; i++) {
        hn_value *old = e->inputs[i];
        hn_type type = copy_type(c, &old->type);
        hn_value *made = hn_graph_add_input(c->module->main, old->name, &type);
        if (!made) HN_NOMEM(err, "copying a graph");
        c->map[old->id] = made;
    }
    for (int i = 0; i < e->node_count; i++)
        HN_TRY(copy_node(err, c, e->nodes[i], c->module->main));
    for (int i = 0; i < e->output_count; i++) {
        hn_value *made = copy_use(c, e->outputs[i]);
        if (!made || !hn_graph_add_output(c->module->main, made)) HN_NOMEM(err, "copying a graph");
    }
    return HONE_OK;
}

hn_status hn_extract_run(hone_error *err, hn_extract *extract) {
    copier c = {extract, hn_module_new(), NULL, extract->source->next_value_id};
    c.map = hn_calloc((size_t)c.map_count + 1, sizeof(hn_value *));
    hone_status status = HONE_OK;
    if (!c.module || !c.map)
        status = HN_SET(err, HONE_ERR_NOMEM, "out of memory (copying a graph)");
    if (status == HONE_OK) status = run_copy(err, &c);
    hn_free(c.map);
    if (status != HONE_OK) {
        hn_module_free(c.module);
        hn_vec_free(&extract->captured);
        return status;
    }
    extract->module = c.module;
    return HONE_OK;
}
