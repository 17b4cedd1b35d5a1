// SPDX-License-Identifier: Apache-2.0
// Structural checks and topological sorting: see graph.h.
//
// The verifier trusts nothing but memory safety of the pointers: it is run on graphs that passes
// have just edited. Its errors are bugs of ours (HONE_ERR_INTERNAL), except where a text form or a
// file can cause them, which callers map by checking those earlier.
#include "ir/graph.h"
#include <stdio.h>

typedef struct verifier {
    hone_error *err;
    const hn_module *module;
    uint8_t *node_seen;             // by node id
    uint32_t *value_uses;           // by value id: uses counted from the nodes
    uint8_t *value_state;           // by value id: 1 defined here or above and in scope
    HN_VEC(const hn_value *) order; // every value met, for the final comparison
} verifier;

#define BAD(v, ...) HN_FAIL((v)->err, HONE_ERR_INTERNAL, __VA_ARGS__)

enum { STATE_LISTED = 1, STATE_IN_SCOPE = 2 };

static const char *value_label(const hn_value *value, char *buf, size_t size) {
    if (*value->name)
        snprintf(buf, size, "'%s'", value->name);
    else
        snprintf(buf, size, "%%%u", value->id);
    return buf;
}

static hn_status check_names(verifier *v, const hn_graph *graph) {
    size_t slots = 16;
    while (slots < graph->values.count * 2)
        slots *= 2;
    const char **table = hn_calloc(slots, sizeof *table);
    if (!table) HN_NOMEM(v->err, "checking names");
    hone_status status = HONE_OK;
    for (size_t i = 0; i < graph->values.count && status == HONE_OK; i++) {
        const char *name = graph->values.data[i]->name;
        if (!*name) continue;
        size_t at = hn_hash_bytes(name, strlen(name), HN_HASH_SEED) & (slots - 1);
        while (table[at] && strcmp(table[at], name) != 0)
            at = (at + 1) & (slots - 1);
        if (table[at])
            status = HN_SET(v->err, HONE_ERR_INTERNAL, "two values of graph '%s' are named '%s'",
                            graph->name, name);
        table[at] = name;
    }
    hn_free(table);
    return status;
}

static hn_status check_value(verifier *v, const hn_graph *graph, size_t slot) {
    const hn_value *value = graph->values.data[slot];
    char label[160];
    value_label(value, label, sizeof label);
    if (value->id >= v->module->next_value_id)
        BAD(v, "value %s has an id beyond the module's", label);
    if (v->value_state[value->id]) BAD(v, "value %s is listed twice", label);
    v->value_state[value->id] = STATE_LISTED;
    if (value->graph != graph || value->slot != slot)
        BAD(v, "value %s is listed in a graph that is not its own", label);
    if (value->type.rank < -1 || value->type.rank > HN_MAX_RANK)
        BAD(v, "value %s has rank %d", label, value->type.rank);
    if ((value->producer != NULL) + value->is_input + (value->constant != NULL) > 1)
        BAD(v, "value %s is more than one of input, constant and node output", label);
    if (value->overridable && !value->constant)
        BAD(v, "value %s is overridable but has no content", label);
    const hn_node *producer = value->producer;
    if (producer && (producer->graph != graph || value->output_index >= producer->output_count ||
                     producer->outputs[value->output_index] != value))
        BAD(v, "value %s does not belong to the node that it names as its producer", label);
    if (value->constant) {
        size_t bytes;
        hn_shape shape;
        if (!hn_shape_bytes(&value->constant->shape, value->constant->dtype, &bytes) ||
            bytes != value->constant->bytes || (bytes && !value->constant->data))
            BAD(v, "the content of constant %s does not fit its shape", label);
        if (value->type.dtype != value->constant->dtype || !hn_type_shape(&value->type, &shape) ||
            !hn_shape_equal(&shape, &value->constant->shape))
            BAD(v, "the type of constant %s is not that of its content", label);
    }
    if (!hn_vec_push(&v->order, value)) HN_NOMEM(v->err, "verifying");
    return HONE_OK;
}

static hn_status check_use(verifier *v, const hn_node *node, int index, const char *label) {
    const hn_value *value = node->inputs[index];
    char name[160];
    value_label(value, name, sizeof name);
    if (value->id >= v->module->next_value_id || !v->value_state[value->id])
        BAD(v, "input %d of %s is %s, which is in no graph", index, label, name);
    if (!(v->value_state[value->id] & STATE_IN_SCOPE))
        BAD(v, "input %d of %s is %s, which is not defined before it or not visible there", index,
            label, name);
    v->value_uses[value->id]++;
    return HONE_OK;
}

static hn_status check_posts(verifier *v, const hn_node *node, const char *label) {
    if (node->post_count < 0 || node->post_count > HN_MAX_POST)
        BAD(v, "%s has %d fused steps", label, node->post_count);
    if (node->post_count &&
        (node->base_input_count < 0 || node->base_input_count > node->input_count))
        BAD(v, "%s has a wrong base input count", label);
    for (int i = 0; i < node->post_count; i++) {
        const hn_post *post = &node->post[i];
        const int operands[] = {post->input, post->scale, post->zero};
        for (size_t j = 0; j < HN_COUNT_OF(operands); j++) {
            if (operands[j] == -1) continue;
            if (operands[j] < node->base_input_count || operands[j] >= node->input_count ||
                !node->inputs[operands[j]])
                BAD(v, "fused step %d of %s refers to input %d", i, label, operands[j]);
        }
    }
    return HONE_OK;
}

static hn_status check_graph(verifier *v, const hn_graph *graph, const hn_node *parent);

static hn_status check_node(verifier *v, const hn_graph *graph, const hn_node *node) {
    char label[160];
    hn_node_label(node, label, sizeof label);
    if (node->id >= v->module->next_node_id) BAD(v, "%s has an id beyond the module's", label);
    if (v->node_seen[node->id]) BAD(v, "%s is in two lists", label);
    v->node_seen[node->id] = 1;
    if (node->graph != graph) BAD(v, "%s is in the list of another graph", label);
    if ((node->next ? node->next->prev : graph->last) != node)
        BAD(v, "the node list is broken after %s", label);
    for (int i = 0; i < node->input_count; i++)
        if (node->inputs[i]) HN_TRY(check_use(v, node, i, label));
    HN_TRY(check_posts(v, node, label));
    for (int i = 0; i < node->attr_count; i++) {
        const hn_attr *attr = &node->attrs[i];
        if (attr->type == HN_ATTR_TENSOR && !attr->tensor)
            BAD(v, "attribute %s of %s has no tensor", attr->name, label);
        if (attr->type != HN_ATTR_GRAPH) continue;
        if (!attr->graph) BAD(v, "attribute %s of %s has no graph", attr->name, label);
        HN_TRY(check_graph(v, attr->graph, node));
    }
    for (int i = 0; i < node->output_count; i++) {
        const hn_value *value = node->outputs[i];
        if (!value) continue;
        if (value->producer != node || value->output_index != i)
            BAD(v, "output %d of %s belongs to another node", i, label);
        if (value->id >= v->module->next_value_id || !v->value_state[value->id])
            BAD(v, "output %d of %s is in no graph", i, label);
        v->value_state[value->id] |= STATE_IN_SCOPE;
    }
    return HONE_OK;
}

static hn_status check_outputs(verifier *v, const hn_graph *graph) {
    for (size_t i = 0; i < graph->outputs.count; i++) {
        const hn_value *value = graph->outputs.data[i];
        char label[160];
        value_label(value, label, sizeof label);
        if (value->graph != graph || value->slot == UINT32_MAX)
            BAD(v, "output %zu of graph '%s' is %s, which is not one of its values", i, graph->name,
                label);
        if (!(v->value_state[value->id] & STATE_IN_SCOPE))
            BAD(v, "output %zu of graph '%s' is %s, which nothing defines", i, graph->name, label);
    }
    for (size_t i = 0; i < graph->values.count; i++) {
        const hn_value *value = graph->values.data[i];
        int listed = 0;
        if (value->graph_output_uses)
            for (size_t j = 0; j < graph->outputs.count; j++)
                listed += graph->outputs.data[j] == value;
        if (value->graph_output_uses != listed)
            BAD(v, "a value of graph '%s' counts %d uses as output instead of %d", graph->name,
                value->graph_output_uses, listed);
    }
    size_t uses = 0;
    for (size_t i = 0; i < graph->values.count; i++)
        uses += (size_t)graph->values.data[i]->graph_output_uses;
    if (uses != graph->outputs.count)
        BAD(v, "the outputs of graph '%s' are not counted in its values", graph->name);
    return HONE_OK;
}

static hn_status check_graph(verifier *v, const hn_graph *graph, const hn_node *parent) {
    if (graph->parent != parent || graph->module != v->module)
        BAD(v, "graph '%s' hangs on a node that is not its parent", graph->name);
    for (size_t i = 0; i < graph->values.count; i++)
        HN_TRY(check_value(v, graph, i));
    HN_TRY(check_names(v, graph));
    for (size_t i = 0; i < graph->inputs.count; i++) {
        const hn_value *value = graph->inputs.data[i];
        if (value->graph != graph || !value->is_input)
            BAD(v, "input %zu of graph '%s' is not marked as an input", i, graph->name);
    }
    for (size_t i = 0; i < graph->overridables.count; i++)
        if (!graph->overridables.data[i]->overridable ||
            graph->overridables.data[i]->graph != graph)
            BAD(v, "overridable %zu of graph '%s' is not marked so", i, graph->name);
    size_t inputs = 0;
    for (size_t i = 0; i < graph->values.count; i++) {
        const hn_value *value = graph->values.data[i];
        inputs += value->is_input;
        if (value->is_input || value->constant) v->value_state[value->id] |= STATE_IN_SCOPE;
    }
    if (inputs != graph->inputs.count)
        BAD(v, "graph '%s' has %zu values marked as inputs but lists %zu", graph->name, inputs,
            graph->inputs.count);
    if (graph->first && graph->first->prev) BAD(v, "the node list of '%s' is broken", graph->name);
    for (const hn_node *node = graph->first; node; node = node->next)
        HN_TRY(check_node(v, graph, node));
    HN_TRY(check_outputs(v, graph));
    for (size_t i = 0; i < graph->values.count; i++) // out of scope for what follows the parent
        v->value_state[graph->values.data[i]->id] &= (uint8_t)~STATE_IN_SCOPE;
    return HONE_OK;
}

static hn_status check_use_lists(verifier *v) {
    for (size_t i = 0; i < v->order.count; i++) {
        const hn_value *value = v->order.data[i];
        char label[160];
        value_label(value, label, sizeof label);
        if (value->uses.count != v->value_uses[value->id])
            BAD(v, "value %s lists %zu uses but has %u", label, value->uses.count,
                v->value_uses[value->id]);
        for (size_t j = 0; j < value->uses.count; j++) {
            const hn_use *use = &value->uses.data[j];
            if (use->node->id >= v->module->next_node_id || !v->node_seen[use->node->id] ||
                use->index < 0 || use->index >= use->node->input_count ||
                use->node->inputs[use->index] != value)
                BAD(v, "value %s lists a use that does not exist", label);
            for (size_t k = 0; k < j && value->uses.count <= 64; k++)
                if (value->uses.data[k].node == use->node &&
                    value->uses.data[k].index == use->index)
                    BAD(v, "value %s lists a use twice", label);
        }
    }
    return HONE_OK;
}

hn_status hn_module_verify(hone_error *err, const hn_module *module) {
    size_t values = (size_t)module->next_value_id + 1, nodes = (size_t)module->next_node_id + 1;
    verifier v = {.err = err, .module = module};
    v.node_seen = hn_calloc(nodes, sizeof *v.node_seen);
    v.value_uses = hn_calloc(values, sizeof *v.value_uses);
    v.value_state = hn_calloc(values, sizeof *v.value_state);
    hone_status status;
    if (!v.node_seen || !v.value_uses || !v.value_state)
        status = HN_SET(err, HONE_ERR_NOMEM, "out of memory (verifying)");
    else
        status = check_graph(&v, module->main, NULL);
    if (status == HONE_OK) status = check_use_lists(&v);
    hn_free(v.node_seen);
    hn_free(v.value_uses);
    hn_free(v.value_state);
    hn_vec_free(&v.order);
    return status;
}

// ---- sorting ------------------------------------------------------------------------------------

typedef struct sorter {
    const hn_graph *graph;
    uint32_t *position; // by node id: index in `nodes`
    hn_node **nodes;
    uint32_t *begin; // nodes + 1: first edge of each node
    uint32_t *edges; // indices of the nodes that must come first
    size_t edge_count;
    bool fill;
} sorter;

// Adds the producers (in the sorted graph) of everything the node or its sub-graphs read.
static void collect_edges(sorter *s, const hn_node *node) {
    for (int i = 0; i < node->input_count; i++) {
        const hn_value *value = node->inputs[i];
        if (!value || !value->producer || value->producer->graph != s->graph) continue;
        if (s->fill) s->edges[s->edge_count] = s->position[value->producer->id];
        s->edge_count++;
    }
    for (int i = 0; i < node->attr_count; i++)
        if (node->attrs[i].type == HN_ATTR_GRAPH)
            for (const hn_node *inner = node->attrs[i].graph->first; inner; inner = inner->next)
                collect_edges(s, inner);
}

enum { UNSEEN, OPEN, DONE };

// Depth-first in list order: a list that is sorted already stays as it is.
static hn_status sort_nodes(hone_error *err, sorter *s, uint32_t count, hn_node **sorted) {
    uint8_t *state = hn_calloc(count, 1);
    uint32_t *stack = hn_calloc(count, sizeof *stack), *next = hn_calloc(count, sizeof *next);
    hone_status status = HONE_OK;
    if (!state || !stack || !next) status = HN_SET(err, HONE_ERR_NOMEM, "out of memory (sorting)");
    uint32_t done = 0;
    for (uint32_t root = 0; root < count && status == HONE_OK; root++) {
        uint32_t depth = 0;
        if (state[root] == UNSEEN) {
            stack[depth++] = root;
            state[root] = OPEN;
        }
        while (depth && status == HONE_OK) {
            uint32_t at = stack[depth - 1];
            if (s->begin[at] + next[at] == s->begin[at + 1]) {
                state[at] = DONE;
                sorted[done++] = s->nodes[at];
                depth--;
                continue;
            }
            uint32_t to = s->edges[s->begin[at] + next[at]++];
            char label[160];
            if (state[to] == OPEN)
                status = HN_SET(err, HONE_ERR_FORMAT, "the graph has a cycle through %s",
                                hn_node_label(s->nodes[to], label, sizeof label));
            else if (state[to] == UNSEEN) {
                state[to] = OPEN;
                stack[depth++] = to;
            }
        }
    }
    hn_free(state);
    hn_free(stack);
    hn_free(next);
    return status;
}

static void relink(hn_graph *graph, hn_node **sorted, uint32_t count) {
    graph->first = count ? sorted[0] : NULL;
    graph->last = count ? sorted[count - 1] : NULL;
    for (uint32_t i = 0; i < count; i++) {
        sorted[i]->prev = i ? sorted[i - 1] : NULL;
        sorted[i]->next = i + 1 < count ? sorted[i + 1] : NULL;
    }
}

hn_status hn_graph_sort(hone_error *err, hn_graph *graph) {
    uint32_t count = 0;
    for (const hn_node *node = graph->first; node; node = node->next)
        count++;
    size_t ids = (size_t)graph->module->next_node_id + 1;
    sorter s = {.graph = graph};
    s.position = hn_calloc(ids, sizeof *s.position);
    s.nodes = hn_calloc(count, sizeof *s.nodes);
    s.begin = hn_calloc((size_t)count + 1, sizeof *s.begin);
    hn_node **sorted = hn_calloc(count, sizeof *sorted);
    hone_status status = HONE_OK;
    if (!s.position || !s.nodes || !s.begin || !sorted) {
        status = HN_SET(err, HONE_ERR_NOMEM, "out of memory (sorting)");
        goto done;
    }
    uint32_t at = 0;
    for (hn_node *node = graph->first; node; node = node->next) {
        s.position[node->id] = at;
        s.nodes[at++] = node;
        collect_edges(&s, node);
    }
    s.edges = s.edge_count < UINT32_MAX ? hn_calloc(s.edge_count, sizeof *s.edges) : NULL;
    if (!s.edges) {
        status = HN_SET(err, HONE_ERR_NOMEM, "out of memory (sorting)");
        goto done;
    }
    s.fill = true;
    s.edge_count = 0;
    for (at = 0; at < count; at++) {
        s.begin[at] = (uint32_t)s.edge_count;
        collect_edges(&s, s.nodes[at]);
    }
    s.begin[count] = (uint32_t)s.edge_count;
    status = sort_nodes(err, &s, count, sorted);
    if (status == HONE_OK) relink(graph, sorted, count);
done:
    hn_free(s.position);
    hn_free(s.nodes);
    hn_free(s.begin);
    hn_free(s.edges);
    hn_free(sorted);
    return status;
}
