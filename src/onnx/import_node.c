// SPDX-License-Identifier: Apache-2.0
// NodeProto to nodes: attributes, Constant nodes, calls of model functions.
//
// Two rounds over a node list: first every output becomes a value, so that nodes in any order find
// their inputs; then nodes are made. A call of a model function is replaced by the function's body:
// its inputs and outputs are bound to the caller's values, its attributes to the call's.
#include "onnx/import.h"
#include <stdio.h>

static const char *node_label(const hn_pb_node *pb, char *buf, size_t size) {
    char op[64], name[80];
    hn_pb_quote(pb->op_type, op, sizeof op);
    hn_slice by =
        pb->name.length || !pb->outputs.count ? pb->name : hn_pb_text(pb->outputs.items[0]);
    hn_pb_quote(by, name, sizeof name);
    snprintf(buf, size, pb->name.length ? "%s '%s'" : "%s producing '%s'", op, name);
    return buf;
}

static const char *plain_domain(hn_slice domain) {
    return domain.length == 0 || hn_slice_eq(domain, "ai.onnx") ? "" : NULL;
}

// ---- names --------------------------------------------------------------------------------------
hn_value *hn_scope_find(hn_scope *scope, hn_slice name, bool *out_found) {
    for (hn_scope *at = scope; at; at = at->outer) {
        hn_names_entry *entry = hn_names_find(&at->names, name);
        if (!entry) continue;
        hn_value *value = entry->item;
        *out_found = true;
        if (value && !value->producer && !value->constant && !value->is_input)
            at->home->unsorted = true;
        return value;
    }
    *out_found = false;
    return NULL;
}

// The value that a node's output becomes: a new one, or the one that a function call bound.
static hn_status declare_output(hone_error *err, hn_import *import, hn_scope *scope,
                                const hn_pb_node *pb, hn_slice name, hn_value **out_value) {
    char label[200], quoted[96];
    hn_names_entry *entry = hn_names_find(&scope->names, name);
    if (entry && !entry->pending)
        HN_FAIL(err, HONE_ERR_FORMAT, "%s produces '%s', which already has a value",
                node_label(pb, label, sizeof label), hn_pb_quote(name, quoted, sizeof quoted));
    if (entry) {
        entry->pending = false;
        *out_value = entry->item;
        return HONE_OK;
    }
    const char *text = "";
    HN_TRY(hn_import_name(err, import, "a node's output", scope->prefix, name, &text));
    // A name made of a call's prefix and an inner name must not meet one of the file's own.
    hn_slice full = {text, strlen(text)};
    if (*scope->prefix && hn_names_find(&scope->home->names, full)) text = "";
    hn_value *value = hn_value_new(scope->graph, text);
    if (!value || !hn_names_add(&scope->names, &import->source->scratch, name, value))
        HN_NOMEM(err, "importing nodes");
    *out_value = value;
    return HONE_OK;
}

// ---- attributes ---------------------------------------------------------------------------------
enum { // AttributeProto.AttributeType
    TYPE_NONE,
    TYPE_FLOAT,
    TYPE_INT,
    TYPE_STRING,
    TYPE_TENSOR,
    TYPE_GRAPH,
    TYPE_FLOATS,
    TYPE_INTS,
    TYPE_STRINGS,
    TYPE_TENSORS,
    TYPE_GRAPHS,
    TYPE_SPARSE,
    TYPE_SPARSES,
    TYPE_PROTO,
    TYPE_PROTOS,
};

// Old writers leave the type out: the field that is there tells.
static int64_t type_of(const hn_pb_attribute *pb) {
    if (pb->type) return pb->type;
    if (HN_PB_HAS(pb, attribute, f)) return TYPE_FLOAT;
    if (HN_PB_HAS(pb, attribute, i)) return TYPE_INT;
    if (HN_PB_HAS(pb, attribute, s)) return TYPE_STRING;
    if (HN_PB_HAS(pb, attribute, t)) return TYPE_TENSOR;
    if (HN_PB_HAS(pb, attribute, g)) return TYPE_GRAPH;
    if (pb->floats.count) return TYPE_FLOATS;
    if (pb->ints.count) return TYPE_INTS;
    if (pb->strings.count) return TYPE_STRINGS;
    return TYPE_NONE;
}

static hn_status set_floats(hone_error *err, hn_import *import, hn_node *node, const char *name,
                            const hn_pb_list *list) {
    size_t bytes = hn_pb_list_bytes(list), at = 0;
    float *values = hn_arena_array(&import->source->scratch, bytes / 4 + 1, sizeof *values);
    if (!values) HN_NOMEM(err, "importing attributes");
    for (size_t i = 0; i < list->count; i++) {
        memcpy((char *)values + at, list->items[i].at, hn_wire_left(&list->items[i]));
        at += hn_wire_left(&list->items[i]);
    }
    if (!hn_node_set_floats(node, name, values, (int64_t)(bytes / 4)))
        HN_NOMEM(err, "importing attributes");
    return HONE_OK;
}

static hn_status set_strings(hone_error *err, hn_import *import, hn_node *node, const char *name,
                             const hn_pb_list *list) {
    hn_slice *values = hn_arena_array(&import->source->scratch, list->count + 1, sizeof *values);
    if (!values) HN_NOMEM(err, "importing attributes");
    for (size_t i = 0; i < list->count; i++)
        values[i] = hn_pb_text(list->items[i]);
    if (!hn_node_set_strings(node, name, values, (int64_t)list->count))
        HN_NOMEM(err, "importing attributes");
    return HONE_OK;
}

static hn_status set_string(hone_error *err, hn_import *import, hn_node *node, const char *name,
                            hn_slice text) {
    const char *copy =
        hn_arena_strndup(&import->module->arena, text.length ? text.data : "", text.length);
    hn_attr *attr = copy ? hn_node_add_attr(node, name, HN_ATTR_STRING) : NULL;
    if (!attr) HN_NOMEM(err, "importing attributes");
    attr->s = (hn_slice){copy, text.length};
    return HONE_OK;
}

static hn_status set_tensor(hone_error *err, hn_import *import, hn_node *node, const char *name,
                            hn_wire wire, bool sparse) {
    hn_tensor tensor;
    hn_slice unused;
    if (sparse)
        HN_TRY(hn_onnx_sparse(err, import->source, wire, &unused, &tensor));
    else
        HN_TRY(hn_onnx_tensor(err, import->source, wire, &unused, &tensor));
    if (!hn_node_set_tensor(node, name, &tensor)) HN_NOMEM(err, "importing attributes");
    return HONE_OK;
}

static hn_status set_graph(hone_error *err, hn_import *import, hn_node *node, const char *name,
                           hn_wire wire, hn_scope *scope) {
    hn_graph *graph = hn_graph_new(import->module, node);
    if (!graph || !hn_node_set_graph(node, name, graph)) HN_NOMEM(err, "importing sub-graphs");
    return hn_import_graph(err, import, wire, graph, scope);
}

static hn_status set_attribute(hone_error *err, hn_import *import, hn_scope *scope, hn_node *node,
                               const char *name, const hn_pb_attribute *pb) {
    switch (type_of(pb)) {
    case TYPE_FLOAT:
        if (!hn_node_set_float(node, name, pb->f)) HN_NOMEM(err, "importing attributes");
        return HONE_OK;
    case TYPE_INT:
        if (!hn_node_set_int(node, name, pb->i)) HN_NOMEM(err, "importing attributes");
        return HONE_OK;
    case TYPE_STRING:
        return set_string(err, import, node, name, pb->s);
    case TYPE_TENSOR:
        return set_tensor(err, import, node, name, pb->t, false);
    case TYPE_SPARSE:
        return set_tensor(err, import, node, name, pb->sparse, true);
    case TYPE_GRAPH:
        return set_graph(err, import, node, name, pb->g, scope);
    case TYPE_FLOATS:
        return set_floats(err, import, node, name, &pb->floats);
    case TYPE_STRINGS:
        return set_strings(err, import, node, name, &pb->strings);
    case TYPE_INTS: {
        const int64_t *values;
        int64_t count;
        HN_TRY(hn_pb_ints(err, &import->source->scratch, &pb->ints, &values, &count));
        if (!hn_node_set_ints(node, name, values, count)) HN_NOMEM(err, "importing attributes");
        return HONE_OK;
    }
    case TYPE_NONE:
        return HONE_OK; // an attribute without a value says nothing
    case TYPE_TENSORS:
    case TYPE_GRAPHS:
    case TYPE_SPARSES:
    case TYPE_PROTO:
    case TYPE_PROTOS:
        HN_FAIL(
            err, HONE_ERR_UNSUPPORTED,
            "attribute '%.100s' is a list of tensors or graphs, or a type, which is not supported",
            name);
    default:
        HN_FAIL(err, HONE_ERR_FORMAT, "attribute '%.100s' has the unknown type %lld", name,
                (long long)pb->type);
    }
}

// An attribute of a function's node that refers to one of the call: *out_pb is that one, and
// *out_absent true where the call has none.
static void follow_reference(const hn_scope *scope, hn_pb_attribute *pb, bool *out_absent) {
    *out_absent = false;
    if (!pb->ref.length) return;
    for (size_t i = 0; i < scope->arg_count; i++) {
        const hn_pb_attribute *arg = &scope->args[i];
        if (arg->name.length != pb->ref.length ||
            memcmp(arg->name.data, pb->ref.data, pb->ref.length) != 0)
            continue;
        hn_slice name = pb->name;
        *pb = *arg;
        pb->name = name;
        return;
    }
    *out_absent = true;
}

static hn_status read_attributes(hone_error *err, hn_import *import, const hn_scope *scope,
                                 const hn_pb_list *list, hn_pb_attribute **out_pbs,
                                 size_t *out_count) {
    hn_pb_attribute *pbs = hn_arena_array(&import->source->scratch, list->count + 1, sizeof *pbs);
    if (!pbs) HN_NOMEM(err, "importing attributes");
    size_t count = 0;
    for (size_t i = 0; i < list->count; i++) {
        bool absent;
        char quoted[96];
        HN_TRY(hn_pb_read_attribute(err, &import->source->scratch, list->items[i], &pbs[count]));
        hn_slice name = pbs[count].name;
        hn_pb_quote(name, quoted, sizeof quoted);
        if (!name.length || !hn_pb_name_ok(name))
            HN_FAIL(err, HONE_ERR_FORMAT, "an attribute has the broken name '%s'", quoted);
        for (size_t j = 0; j < count; j++)
            if (pbs[j].name.length == name.length &&
                memcmp(pbs[j].name.data, name.data, name.length) == 0)
                HN_FAIL(err, HONE_ERR_FORMAT, "attribute '%s' appears twice", quoted);
        follow_reference(scope, &pbs[count], &absent);
        count += !absent;
    }
    *out_pbs = pbs;
    *out_count = count;
    return HONE_OK;
}

// ---- Constant -----------------------------------------------------------------------------------
static hn_status small_tensor(hone_error *err, hn_import *import, const hn_pb_attribute *pb,
                              hn_tensor *out_tensor) {
    hn_shape shape = {0};
    const int64_t *ints = &pb->i;
    switch (type_of(pb)) {
    case TYPE_FLOAT:
        HN_TRY(hn_tensor_new(err, HN_F32, &shape, out_tensor));
        memcpy(out_tensor->data, &pb->f, sizeof pb->f);
        return HONE_OK;
    case TYPE_FLOATS: {
        shape = (hn_shape){1, {(int64_t)(hn_pb_list_bytes(&pb->floats) / 4)}};
        HN_TRY(hn_tensor_new(err, HN_F32, &shape, out_tensor));
        char *at = out_tensor->data;
        for (size_t i = 0; i < pb->floats.count; i++) {
            memcpy(at, pb->floats.items[i].at, hn_wire_left(&pb->floats.items[i]));
            at += hn_wire_left(&pb->floats.items[i]);
        }
        return HONE_OK;
    }
    case TYPE_INTS:
        shape.rank = 1;
        HN_TRY(hn_pb_ints(err, &import->source->scratch, &pb->ints, &ints, &shape.dims[0]));
        break;
    case TYPE_INT:
        break;
    case TYPE_STRING:
    case TYPE_STRINGS:
        HN_FAIL(err, HONE_ERR_UNSUPPORTED, "it holds strings, which are not supported");
    default:
        HN_FAIL(err, HONE_ERR_FORMAT, "its attribute has the wrong type");
    }
    HN_TRY(hn_tensor_new(err, HN_I64, &shape, out_tensor));
    if (out_tensor->bytes) memcpy(out_tensor->data, ints, out_tensor->bytes);
    return HONE_OK;
}

static hn_status constant_tensor(hone_error *err, hn_import *import, const hn_scope *scope,
                                 const hn_pb_node *node, hn_tensor *out_tensor) {
    hn_pb_attribute *pbs;
    size_t count = 0;
    HN_TRY(read_attributes(err, import, scope, &node->attributes, &pbs, &count));
    for (size_t i = 0; i < count; i++) {
        hn_slice name = pbs[i].name, unused;
        if (hn_slice_eq(name, "value") && type_of(&pbs[i]) == TYPE_TENSOR)
            return hn_onnx_tensor(err, import->source, pbs[i].t, &unused, out_tensor);
        if (hn_slice_eq(name, "sparse_value") && type_of(&pbs[i]) == TYPE_SPARSE)
            return hn_onnx_sparse(err, import->source, pbs[i].sparse, &unused, out_tensor);
        if (hn_slice_starts(name, "value")) return small_tensor(err, import, &pbs[i], out_tensor);
    }
    HN_FAIL(err, HONE_ERR_FORMAT, "it has no value");
}

static hn_status import_constant(hone_error *err, hn_import *import, hn_scope *scope,
                                 const hn_pb_node *pb) {
    char label[200];
    if (pb->outputs.count != 1 || !hn_wire_left(&pb->outputs.items[0]))
        HN_FAIL(err, HONE_ERR_FORMAT, "%s has no output or several",
                node_label(pb, label, sizeof label));
    hn_value *value = NULL;
    HN_TRY(declare_output(err, import, scope, pb, hn_pb_text(pb->outputs.items[0]), &value));
    hn_tensor tensor;
    HN_TRY_CTX(err, constant_tensor(err, import, scope, pb, &tensor), "importing %s",
               node_label(pb, label, sizeof label));
    value->constant = hn_module_add_tensor(import->module, &tensor);
    if (!value->constant) HN_NOMEM(err, "importing constants");
    hn_type_set_shape(&value->type, value->constant->dtype, &value->constant->shape);
    return HONE_OK;
}

// ---- functions ----------------------------------------------------------------------------------
static hn_function *find_function(const hn_import *import, const hn_pb_node *pb) {
    char buf[512];
    if (!import->functions.count) return NULL;
    hn_slice domain = pb->domain;
    if (plain_domain(domain)) domain.length = 0;
    // Longer names than this are not looked for: the node is then unknown, and says so.
    if (domain.length + pb->op_type.length + pb->overload.length + 3 > sizeof buf) return NULL;
    int length =
        snprintf(buf, sizeof buf, "%.*s\n%.*s\n%.*s", (int)domain.length,
                 domain.length ? domain.data : "", (int)pb->op_type.length, pb->op_type.data,
                 (int)pb->overload.length, pb->overload.length ? pb->overload.data : "");
    hn_names_entry *entry = hn_names_find(&import->functions, (hn_slice){buf, (size_t)length});
    return entry ? entry->item : NULL;
}

// What the body's attribute references see: the call's attributes, then the function's defaults.
static hn_status bind_attributes(hone_error *err, hn_import *import, const hn_scope *caller,
                                 const hn_pb_node *call, const hn_function *function,
                                 hn_scope *scope) {
    hn_pb_attribute *given, *defaults, *args;
    size_t given_count, default_count;
    hn_scope none = {0};
    HN_TRY(read_attributes(err, import, caller, &call->attributes, &given, &given_count));
    HN_TRY(read_attributes(err, import, &none, &function->pb.defaults, &defaults, &default_count));
    args = hn_arena_array(&import->source->scratch, given_count + default_count + 1, sizeof *args);
    if (!args) HN_NOMEM(err, "importing functions");
    for (size_t i = 0; i < given_count; i++)
        if (type_of(&given[i]) == TYPE_GRAPH)
            HN_FAIL(err, HONE_ERR_UNSUPPORTED, "a graph is given to a function as attribute");
    if (given_count) memcpy(args, given, given_count * sizeof *args);
    // Behind the given ones: the first match wins.
    if (default_count) memcpy(args + given_count, defaults, default_count * sizeof *args);
    scope->args = args;
    scope->arg_count = given_count + default_count;
    return HONE_OK;
}

static hn_status bind_inputs(hone_error *err, hn_import *import, hn_scope *caller,
                             const hn_pb_node *call, const hn_function *function, hn_scope *scope) {
    const hn_pb_list *formal = &function->pb.inputs;
    char quoted[96];
    if (call->inputs.count > formal->count)
        HN_FAIL(err, HONE_ERR_FORMAT, "it gives %zu inputs to a function with %zu",
                call->inputs.count, formal->count);
    for (size_t i = 0; i < formal->count; i++) {
        hn_slice name = hn_pb_text(formal->items[i]), actual = {0};
        if (i < call->inputs.count) actual = hn_pb_text(call->inputs.items[i]);
        bool found = true;
        hn_value *value = actual.length ? hn_scope_find(caller, actual, &found) : NULL;
        if (!found)
            HN_FAIL(err, HONE_ERR_FORMAT, "it reads '%s', which nothing produces",
                    hn_pb_quote(actual, quoted, sizeof quoted));
        if (hn_names_find(&scope->names, name))
            HN_FAIL(err, HONE_ERR_FORMAT, "the function has two inputs named '%s'",
                    hn_pb_quote(name, quoted, sizeof quoted));
        if (!hn_names_add(&scope->names, &import->source->scratch, name, value))
            HN_NOMEM(err, "importing functions");
    }
    return HONE_OK;
}

// The caller's value of the i-th output, NULL where the call does not want it.
static hn_value *wanted_output(const hn_scope *caller, const hn_pb_node *call, size_t i) {
    if (i >= call->outputs.count) return NULL;
    hn_slice name = hn_pb_text(call->outputs.items[i]);
    hn_names_entry *entry = name.length ? hn_names_find(&caller->names, name) : NULL;
    return entry ? entry->item : NULL;
}

static hn_status check_outputs(hone_error *err, hn_scope *scope, const hn_scope *caller,
                               const hn_pb_node *call, const hn_function *function) {
    char quoted[96];
    for (size_t i = 0; i < function->pb.outputs.count; i++) {
        hn_value *wanted = wanted_output(caller, call, i);
        if (!wanted) continue;
        hn_slice name = hn_pb_text(function->pb.outputs.items[i]);
        hn_names_entry *entry = hn_names_find(&scope->names, name);
        hn_pb_quote(name, quoted, sizeof quoted);
        if (!entry || entry->pending || !entry->item)
            HN_FAIL(err, HONE_ERR_FORMAT, "the function does not produce its output '%s'", quoted);
        if (entry->item == wanted) {
            if (wanted->producer || wanted->constant) continue;
            HN_FAIL(err, HONE_ERR_FORMAT, "its output '%s' is its own input, handed through", quoted);
        }
        // An input passed through, or one value as two outputs.
        hn_value *from = entry->item;
        hn_node *node = hn_graph_add_node(scope->graph, NULL, hn_op_find("", "Identity"),
                                          "Identity", "", 1, &from, 1, 1);
        if (!node) HN_NOMEM(err, "importing functions");
        hn_node_set_output(node, 0, wanted);
    }
    return HONE_OK;
}

static hn_status inline_call(hone_error *err, hn_import *import, hn_scope *caller,
                             const hn_pb_node *call, hn_function *function) {
    hn_arena *scratch = &import->source->scratch;
    hn_scope scope = {.home = caller->home, .graph = caller->graph, .opsets = &function->opsets};
    char quoted[96];
    hn_pb_quote(function->pb.name, quoted, sizeof quoted);
    if (function->active) HN_FAIL(err, HONE_ERR_FORMAT, "function '%s' calls itself", quoted);
    if (import->call_depth >= HN_ONNX_MAX_CALL_DEPTH)
        HN_FAIL(err, HONE_ERR_LIMIT, "functions call functions deeper than %d",
                HN_ONNX_MAX_CALL_DEPTH);
    scope.prefix = hn_arena_printf(scratch, "%s_%lld/", quoted, (long long)import->calls++);
    if (!scope.prefix) HN_NOMEM(err, "importing functions");
    if (call->outputs.count > function->pb.outputs.count)
        HN_FAIL(err, HONE_ERR_FORMAT, "it takes %zu outputs of a function with %zu",
                call->outputs.count, function->pb.outputs.count);
    HN_TRY(bind_attributes(err, import, caller, call, function, &scope));
    HN_TRY(bind_inputs(err, import, caller, call, function, &scope));
    for (size_t i = 0; i < function->pb.outputs.count; i++) {
        hn_value *wanted = wanted_output(caller, call, i);
        hn_slice name = hn_pb_text(function->pb.outputs.items[i]);
        if (!wanted || hn_names_find(&scope.names, name)) continue;
        hn_names_entry *entry = hn_names_add(&scope.names, scratch, name, wanted);
        if (!entry) HN_NOMEM(err, "importing functions");
        entry->pending = true;
    }
    function->active = true;
    import->call_depth++;
    HN_TRY(hn_import_nodes(err, import, &function->pb.nodes, &scope));
    import->call_depth--;
    function->active = false;
    return check_outputs(err, &scope, caller, call, function);
}

// ---- nodes --------------------------------------------------------------------------------------
static hn_status domain_version(hone_error *err, const hn_scope *scope, const char *domain,
                                int *out_version) {
    for (size_t i = 0; i < scope->opsets->count; i++) {
        if (strcmp(scope->opsets->items[i].domain, domain) != 0) continue;
        *out_version = scope->opsets->items[i].version;
        return HONE_OK;
    }
    if (!*domain)
        HN_FAIL(err, HONE_ERR_FORMAT, "the model imports no version of the standard opset");
    *out_version = 1; // some writers forget to import their own domain
    return HONE_OK;
}

static hn_status resolve_inputs(hone_error *err, hn_import *import, hn_scope *scope,
                                const hn_pb_node *pb, hn_value ***out_inputs, int *out_count) {
    size_t count = pb->inputs.count;
    while (count && !hn_wire_left(&pb->inputs.items[count - 1]))
        count--; // trailing absent inputs say nothing
    hn_value **inputs = hn_arena_array(&import->source->scratch, count + 1, sizeof *inputs);
    if (!inputs) HN_NOMEM(err, "importing nodes");
    for (size_t i = 0; i < count; i++) {
        hn_slice name = hn_pb_text(pb->inputs.items[i]);
        bool found;
        char quoted[96];
        if (!name.length) continue;
        inputs[i] = hn_scope_find(scope, name, &found);
        if (!found)
            HN_FAIL(err, HONE_ERR_FORMAT, "it reads '%s', which nothing produces",
                    hn_pb_quote(name, quoted, sizeof quoted));
    }
    while (count && !inputs[count - 1])
        count--; // absent inputs of a function
    *out_inputs = inputs;
    *out_count = (int)count;
    return HONE_OK;
}

static hn_status import_node(hone_error *err, hn_import *import, hn_scope *scope,
                             const hn_pb_node *pb) {
    hn_function *function = find_function(import, pb);
    if (function) return inline_call(err, import, scope, pb, function);
    const char *op_type = "", *domain = "", *name = "";
    hn_value **inputs = NULL;
    int input_count = 0, version = 0;
    HN_TRY(hn_import_name(err, import, "an operator", "", pb->op_type, &op_type));
    if (!plain_domain(pb->domain))
        HN_TRY(hn_import_name(err, import, "a domain", "", pb->domain, &domain));
    HN_TRY(hn_import_name(err, import, "a node", scope->prefix, pb->name, &name));
    // Their inputs are right by construction; a file's would have to be checked once more.
    if (strcmp(domain, "hn") == 0)
        HN_FAIL(err, HONE_ERR_FORMAT,
                "operators of the domain 'hn' are internal to device plans and stand in no file");
    HN_TRY(domain_version(err, scope, domain, &version));
    HN_TRY(resolve_inputs(err, import, scope, pb, &inputs, &input_count));
    size_t output_count = pb->outputs.count;
    while (output_count && !hn_wire_left(&pb->outputs.items[output_count - 1]))
        output_count--;
    hn_node *node = hn_graph_add_node(scope->graph, NULL, hn_op_find(domain, op_type), op_type,
                                      domain, version, inputs, input_count, (int)output_count);
    if (!node) HN_NOMEM(err, "importing nodes");
    node->name = name;
    for (size_t i = output_count; i-- > 0;) {
        hn_slice output = hn_pb_text(pb->outputs.items[i]);
        hn_names_entry *entry = output.length ? hn_names_find(&scope->names, output) : NULL;
        hn_node_set_output(node, (int)i, entry ? entry->item : NULL);
    }
    hn_pb_attribute *attributes;
    size_t count = 0;
    HN_TRY(read_attributes(err, import, scope, &pb->attributes, &attributes, &count));
    for (size_t i = 0; i < count; i++) {
        const char *attribute = "";
        HN_TRY(hn_import_name(err, import, "an attribute", "", attributes[i].name, &attribute));
        HN_TRY(set_attribute(err, import, scope, node, attribute, &attributes[i]));
    }
    return HONE_OK;
}

static bool is_constant(const hn_import *import, const hn_pb_node *pb) {
    return hn_slice_eq(pb->op_type, "Constant") && plain_domain(pb->domain) &&
           !find_function(import, pb);
}

static hn_status declare_node(hone_error *err, hn_import *import, hn_scope *scope,
                              const hn_pb_node *pb) {
    char label[200];
    if (!pb->op_type.length)
        HN_FAIL(err, HONE_ERR_FORMAT, "%s has no operator", node_label(pb, label, sizeof label));
    if (pb->inputs.count > HN_ONNX_MAX_PORTS || pb->outputs.count > HN_ONNX_MAX_PORTS)
        HN_FAIL(err, HONE_ERR_LIMIT, "%s has more than %d inputs or outputs",
                node_label(pb, label, sizeof label), HN_ONNX_MAX_PORTS);
    if (pb->attributes.count > HN_ONNX_MAX_ATTRIBUTES)
        HN_FAIL(err, HONE_ERR_LIMIT, "%s has more than %d attributes",
                node_label(pb, label, sizeof label), HN_ONNX_MAX_ATTRIBUTES);
    if (is_constant(import, pb)) return import_constant(err, import, scope, pb);
    for (size_t i = 0; i < pb->outputs.count; i++) {
        hn_slice name = hn_pb_text(pb->outputs.items[i]);
        hn_value *value;
        if (name.length) HN_TRY(declare_output(err, import, scope, pb, name, &value));
    }
    return HONE_OK;
}

hn_status hn_import_nodes(hone_error *err, hn_import *import, const hn_pb_list *nodes,
                          hn_scope *scope) {
    char label[200];
    import->nodes += (int64_t)nodes->count;
    if (import->nodes > import->max_nodes)
        HN_FAIL(err, HONE_ERR_LIMIT, "the model has more than %lld nodes",
                (long long)import->max_nodes);
    hn_pb_node *pbs = hn_arena_array(&import->source->scratch, nodes->count + 1, sizeof *pbs);
    if (!pbs) HN_NOMEM(err, "importing nodes");
    for (size_t i = 0; i < nodes->count; i++) {
        HN_TRY_CTX(err, hn_pb_read_node(err, &import->source->scratch, nodes->items[i], &pbs[i]),
                   "reading node %zu of graph '%.64s'", i, scope->graph->name);
        HN_TRY(declare_node(err, import, scope, &pbs[i]));
    }
    for (size_t i = 0; i < nodes->count; i++)
        if (!is_constant(import, &pbs[i]))
            HN_TRY_CTX(err, import_node(err, import, scope, &pbs[i]), "importing %s",
                       node_label(&pbs[i], label, sizeof label));
    return HONE_OK;
}
