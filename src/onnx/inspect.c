// SPDX-License-Identifier: Apache-2.0
// What a model is made of and what it costs: see inspect.h.
#include "onnx/inspect.h"
#include <stdlib.h>

typedef struct tally {
    hone_error *err;
    hn_inspection *into;
    double balance;
} tally;

static hn_inspect_row *row_of(hn_inspection *into, const hn_node *node) {
    for (size_t i = 0; i < into->rows.count; i++) {
        hn_inspect_row *row = &into->rows.data[i];
        if (strcmp(row->op_type, node->op_type) == 0 && strcmp(row->domain, node->domain) == 0)
            return row;
    }
    hn_inspect_row row = {.op_type = node->op_type, .domain = node->domain, .known = true};
    return hn_vec_push(&into->rows, row) ? &into->rows.data[into->rows.count - 1] : NULL;
}

static bool has_shapes(const hn_node *node) {
    hn_shape shape;
    for (int i = 0; i < node->input_count; i++)
        if (node->inputs[i] && !hn_type_shape(&node->inputs[i]->type, &shape)) return false;
    for (int i = 0; i < node->output_count; i++)
        if (node->outputs[i] && !hn_type_shape(&node->outputs[i]->type, &shape)) return false;
    return true;
}

static void add_cost(const tally *t, hn_inspect_row *row, const hn_node *node) {
    hn_cost cost = {0};
    if (node->op == HN_OP_UNKNOWN || !has_shapes(node)) {
        row->uncosted++;
        return;
    }
    if (hn_op_has(node->op, HN_T_CONTROL)) return; // its sub-graphs count
    hn_node_cost(node, &cost);
    double bytes = cost.read_bytes + cost.write_bytes, compute = cost.flops / t->balance;
    row->flops += cost.flops;
    row->read_bytes += cost.read_bytes;
    row->write_bytes += cost.write_bytes;
    row->time += compute > bytes ? compute : bytes;
    if (compute > bytes) row->compute_time += compute;
}

static double graph_time(const tally *t, const hn_graph *graph) {
    double time = 0;
    for (const hn_node *node = graph->first; node; node = node->next) {
        hn_inspect_row row = {0};
        add_cost(t, &row, node);
        time += row.time;
        for (int i = 0; i < node->attr_count; i++)
            if (node->attrs[i].type == HN_ATTR_GRAPH) time += graph_time(t, node->attrs[i].graph);
    }
    return time;
}

static const hn_graph *dearer_branch(const tally *t, const hn_node *node) {
    const hn_graph *best = NULL;
    double most = -1;
    for (int i = 0; i < node->attr_count; i++) {
        if (node->attrs[i].type != HN_ATTR_GRAPH) continue;
        double time = graph_time(t, node->attrs[i].graph);
        if (time > most) {
            most = time;
            best = node->attrs[i].graph;
        }
    }
    return best;
}

static hn_status add_graph(const tally *t, const hn_graph *graph, bool costed) {
    hn_inspection *into = t->into;
    into->graphs++;
    for (size_t i = 0; i < graph->values.count; i++) {
        const hn_tensor *weight = graph->values.data[i]->constant;
        if (!weight) continue;
        into->weight_bytes += (double)weight->bytes;
        if (hn_dtype_is_float(weight->dtype) || hn_dtype_bits(weight->dtype) <= 8)
            into->parameters += hn_tensor_count(weight);
    }
    for (const hn_node *node = graph->first; node; node = node->next) {
        hn_inspect_row *row = row_of(into, node);
        if (!row) HN_NOMEM(t->err, "inspecting a model");
        row->nodes++;
        row->known &= node->op != HN_OP_UNKNOWN;
        if (costed) add_cost(t, row, node);
        bool is_if = strcmp(node->op_type, "If") == 0 && !*node->domain;
        const hn_graph *taken = is_if && costed ? dearer_branch(t, node) : NULL;
        for (int i = 0; i < node->attr_count; i++) {
            if (node->attrs[i].type != HN_ATTR_GRAPH) continue;
            into->has_if |= is_if;
            into->has_loop |= !is_if;
            const hn_graph *inner = node->attrs[i].graph;
            HN_TRY(add_graph(t, inner, costed && (!is_if || inner == taken)));
        }
    }
    return HONE_OK;
}

static int dearest_first(const void *a, const void *b) {
    const hn_inspect_row *x = a, *y = b;
    if (x->time != y->time) return x->time < y->time ? 1 : -1;
    if (x->nodes != y->nodes) return x->nodes < y->nodes ? 1 : -1;
    return strcmp(x->op_type, y->op_type);
}

static void add_total(hn_inspection *into) {
    into->total = (hn_inspect_row){.op_type = "total", .domain = "", .known = true};
    for (size_t i = 0; i < into->rows.count; i++) {
        const hn_inspect_row *row = &into->rows.data[i];
        into->total.known &= row->known;
        into->total.nodes += row->nodes;
        into->total.uncosted += row->uncosted;
        into->total.flops += row->flops;
        into->total.read_bytes += row->read_bytes;
        into->total.write_bytes += row->write_bytes;
        into->total.time += row->time;
        into->total.compute_time += row->compute_time;
    }
}

static hn_status bind_shapes(hone_error *err, hn_module *copy, const hn_shape *shapes) {
    for (size_t i = 0; i < copy->main->inputs.count; i++) {
        hn_value *input = copy->main->inputs.data[i];
        hn_type_set_shape(&input->type, input->type.dtype, &shapes[i]);
    }
    return hn_infer_module(err, copy);
}

// Names must outlive the copy that was costed: those of the module are the same texts.
static void borrow_names(hn_inspection *into, const hn_graph *graph) {
    for (const hn_node *node = graph->first; node; node = node->next) {
        hn_inspect_row *row = row_of(into, node);
        if (row) row->op_type = node->op_type, row->domain = node->domain;
        for (int i = 0; i < node->attr_count; i++)
            if (node->attrs[i].type == HN_ATTR_GRAPH) borrow_names(into, node->attrs[i].graph);
    }
}

hn_status hn_inspect(hone_error *err, const hn_module *module, const hn_shape *shapes,
                     double balance, hn_inspection *out_inspection) {
    hn_inspection into = {.costed = shapes != NULL};
    tally t = {err, &into, balance};
    hn_module *copy = NULL;
    hone_status status = HONE_OK;
    if (shapes) {
        copy = hn_module_clone(module, NULL);
        status = copy ? bind_shapes(err, copy, shapes)
                      : HN_SET(err, HONE_ERR_NOMEM, "out of memory (inspecting a model)");
    }
    if (status == HONE_OK) status = add_graph(&t, copy ? copy->main : module->main, copy != NULL);
    if (status == HONE_OK && copy) borrow_names(&into, module->main);
    hn_module_free(copy);
    if (status != HONE_OK) {
        hn_inspection_free(&into);
        return status;
    }
    add_total(&into);
    if (into.rows.count)
        qsort(into.rows.data, into.rows.count, sizeof *into.rows.data, dearest_first);
    *out_inspection = into;
    return HONE_OK;
}

void hn_inspection_free(hn_inspection *inspection) {
    hn_vec_free(&inspection->rows);
}
