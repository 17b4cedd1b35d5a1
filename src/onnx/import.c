// SPDX-License-Identifier: Apache-2.0
// ModelProto to hn_module: header, opsets, graphs with their inputs, weights, outputs and types.
//
// Weights that an IR < 4 file also lists as inputs are constants; in later files they are
// overridable. A sub-graph's output that is an outer value goes through an Identity, so that every
// graph defines its outputs itself.
#include "onnx/import.h"
#include "config/config.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

// ---- names --------------------------------------------------------------------------------------
hn_status hn_import_name(hone_error *err, hn_import *import, const char *what, const char *prefix,
                         hn_slice text, const char **out_name) {
    char quoted[96];
    if (!hn_pb_name_ok(text))
        HN_FAIL(err, HONE_ERR_FORMAT, "the name '%s' of %s has a zero byte, is not UTF-8 or is too long",
                hn_pb_quote(text, quoted, sizeof quoted), what);
    const char *name = "";
    if (text.length)
        name =
            hn_arena_printf(&import->module->arena, "%s%.*s", prefix, (int)text.length, text.data);
    if (!name) HN_NOMEM(err, "importing names");
    *out_name = name;
    return HONE_OK;
}

// ---- types --------------------------------------------------------------------------------------
static hn_status read_dim(hone_error *err, hn_import *import, const char *label, hn_wire wire,
                          hn_dim *out_dim, hn_slice *out_denotation) {
    hn_pb_dim pb;
    HN_TRY(hn_pb_read_dim(err, &import->source->scratch, wire, &pb));
    hn_dims *dims = import->module->dims;
    if (HN_PB_HAS(&pb, dim, value) && pb.value != -1) { // -1 is how some writers say "any"
        if (pb.value < 0)
            HN_FAIL(err, HONE_ERR_FORMAT, "%s has the negative dim %lld", label,
                    (long long)pb.value);
        *out_dim = pb.value;
    } else if (pb.param.length && !HN_PB_HAS(&pb, dim, value)) {
        const char *name;
        HN_TRY(hn_import_name(err, import, "a dim", "", pb.param, &name));
        *out_dim = hn_dim_symbol(dims, name);
    } else {
        *out_dim = hn_dim_fresh(dims, 0, INT64_MAX);
    }
    if (*out_dim == HN_DIM_FAILED) HN_NOMEM(err, "importing dims");
    *out_denotation = pb.denotation;
    return HONE_OK;
}

// "TYPE;dim,dim": what the exporter writes back. Denotations with these signs in them are dropped.
static bool append_denotation(hn_str *text, const char *before, hn_slice denotation) {
    hn_str_append(text, before);
    if (!hn_pb_name_ok(denotation) ||
        (denotation.length && (memchr(denotation.data, ',', denotation.length) ||
                               memchr(denotation.data, ';', denotation.length))))
        return false;
    hn_str_append_n(text, denotation.length ? denotation.data : "", denotation.length);
    return denotation.length > 0;
}

static hn_status read_tensor_type(hone_error *err, hn_import *import, const char *label,
                                  const hn_pb_type *type, hn_type *out_type,
                                  const char **out_denotation) {
    hn_pb_tensor_type tensor;
    hn_pb_shape shape;
    hn_arena *scratch = &import->source->scratch;
    HN_TRY(hn_pb_read_tensor_type(err, scratch, type->tensor, &tensor));
    hn_dtype dtype = hn_dtype_from_onnx(tensor.elem_type);
    if (tensor.elem_type != 0 && dtype == HN_NONE)
        HN_FAIL(err, HONE_ERR_FORMAT, "%s has the unknown element type %lld", label,
                (long long)tensor.elem_type);
    *out_type = (hn_type){.dtype = dtype, .rank = -1};
    if (!HN_PB_HAS(&tensor, tensor_type, shape)) return HONE_OK;
    HN_TRY(hn_pb_read_shape(err, scratch, tensor.shape, &shape));
    if (shape.dims.count > HN_MAX_RANK)
        HN_FAIL(err, HONE_ERR_UNSUPPORTED, "%s has %zu dims, more than the %d supported", label,
                shape.dims.count, HN_MAX_RANK);
    hn_str text = {0};
    bool any = append_denotation(&text, "", type->denotation);
    hone_status status = HONE_OK;
    for (size_t i = 0; i < shape.dims.count && status == HONE_OK; i++) {
        hn_slice denotation = {0};
        status = read_dim(err, import, label, shape.dims.items[i], &out_type->dims[i], &denotation);
        any |= append_denotation(&text, i ? "," : ";", denotation);
    }
    out_type->rank = (int)shape.dims.count;
    if (any && !text.failed)
        *out_denotation = hn_arena_strdup(&import->module->arena, hn_str_get(&text));
    hn_str_free(&text);
    return status;
}

// Type of a ValueInfoProto. *out_is_tensor false: a sequence, map or the like; the type is unknown.
static hn_status read_type(hone_error *err, hn_import *import, const char *label,
                           const hn_pb_value *value, hn_type *out_type, bool *out_is_tensor,
                           const char **out_denotation) {
    *out_type = (hn_type){.rank = -1};
    *out_is_tensor = true;
    *out_denotation = NULL;
    if (!HN_PB_HAS(value, value, type)) return HONE_OK;
    hn_pb_type type;
    HN_TRY(hn_pb_read_type(err, &import->source->scratch, value->type, &type));
    *out_is_tensor = !(HN_PB_HAS(&type, type, sequence) || HN_PB_HAS(&type, type, map) ||
                       HN_PB_HAS(&type, type, opaque) || HN_PB_HAS(&type, type, sparse) ||
                       HN_PB_HAS(&type, type, optional));
    if (!*out_is_tensor || !HN_PB_HAS(&type, type, tensor)) return HONE_OK;
    return read_tensor_type(err, import, label, &type, out_type, out_denotation);
}

static hn_status read_value(hone_error *err, hn_import *import, const char *what, hn_wire wire,
                            hn_pb_value *out_pb, const char **out_name, hn_type *out_type,
                            bool *out_is_tensor, const char **out_denotation) {
    char label[160];
    HN_TRY(hn_pb_read_value(err, &import->source->scratch, wire, out_pb));
    HN_TRY(hn_import_name(err, import, what, "", out_pb->name, out_name));
    if (!**out_name) HN_FAIL(err, HONE_ERR_FORMAT, "%s has no name", what);
    snprintf(label, sizeof label, "%s '%.100s'", what, *out_name);
    HN_TRY_CTX(err, read_type(err, import, label, out_pb, out_type, out_is_tensor, out_denotation),
               "reading the type of %.90s", label);
    return HONE_OK;
}

static hn_status keep_doc(hone_error *err, hn_import *import, hn_slice doc, const char **out_doc) {
    if (!doc.length || memchr(doc.data, 0, doc.length)) return HONE_OK;
    *out_doc = hn_arena_strndup(&import->module->arena, doc.data, doc.length);
    if (!*out_doc) HN_NOMEM(err, "importing documentation");
    return HONE_OK;
}

// ---- weights ------------------------------------------------------------------------------------
static hn_status add_weight(hone_error *err, hn_import *import, hn_scope *scope, hn_wire wire,
                            bool sparse) {
    hn_tensor tensor;
    hn_slice name;
    if (sparse)
        HN_TRY(hn_onnx_sparse(err, import->source, wire, &name, &tensor));
    else
        HN_TRY(hn_onnx_tensor(err, import->source, wire, &name, &tensor));
    const char *text = "";
    hone_status status = hn_import_name(err, import, "a weight", "", name, &text);
    if (status == HONE_OK && !*text)
        status = HN_SET(err, HONE_ERR_FORMAT, "a weight of graph '%.100s' has no name",
                        scope->graph->name);
    if (status == HONE_OK && hn_names_find(&scope->names, name))
        status = HN_SET(err, HONE_ERR_FORMAT, "two weights have the name '%.100s'", text);
    if (status == HONE_OK) {
        hn_value *value = hn_graph_add_constant(scope->graph, text, &tensor);
        if (!value || !hn_names_add(&scope->names, &import->source->scratch, name, value))
            status = HN_SET(err, HONE_ERR_NOMEM, "out of memory (importing weights)");
    }
    hn_tensor_free(&tensor); // zeroed where it was taken over
    return status;
}

// ---- graph interface ----------------------------------------------------------------------------
static hn_status add_input(hone_error *err, hn_import *import, hn_scope *scope, hn_wire wire) {
    hn_pb_value pb;
    hn_type type;
    bool is_tensor, main = scope->graph == import->module->main;
    const char *name = "", *denotation;
    HN_TRY(
        read_value(err, import, "graph input", wire, &pb, &name, &type, &is_tensor, &denotation));
    hn_names_entry *known = hn_names_find(&scope->names, pb.name);
    if (known) {
        hn_value *weight = known->item;
        if (!weight->constant || weight->overridable || known->pending)
            HN_FAIL(err, HONE_ERR_FORMAT, "two graph inputs have the name '%.100s'", name);
        known->pending = true; // listed: a second time is an error
        if (!main || import->module->ir_version < 4) return HONE_OK;
        weight->overridable = true;
        if (!hn_vec_push(&scope->graph->overridables, weight)) HN_NOMEM(err, "importing inputs");
        return HONE_OK;
    }
    if (!is_tensor)
        HN_FAIL(
            err, HONE_ERR_UNSUPPORTED,
            "graph input '%.100s' is no tensor; sequences, maps and optionals are not supported",
            name);
    if (main && type.dtype == HN_NONE)
        HN_FAIL(err, HONE_ERR_FORMAT, "graph input '%.100s' has no element type", name);
    hn_value *value = hn_graph_add_input(scope->graph, name, &type);
    if (!value || !hn_names_add(&scope->names, &import->source->scratch, pb.name, value))
        HN_NOMEM(err, "importing inputs");
    value->denotation = denotation;
    return keep_doc(err, import, pb.doc, &value->doc);
}

// A value of an enclosing graph as output of a sub-graph.
static hn_status pass_through(hone_error *err, hn_scope *scope, hn_value *outer,
                              hn_value **out_value) {
    hn_node *node = hn_graph_add_node(scope->graph, NULL, hn_op_find("", "Identity"), "Identity",
                                      "", 1, &outer, 1, 1);
    if (!node) HN_NOMEM(err, "importing outputs");
    *out_value = node->outputs[0];
    return HONE_OK;
}

static hn_status add_output(hone_error *err, hn_import *import, hn_scope *scope, hn_wire wire) {
    hn_pb_value pb;
    hn_type type;
    bool is_tensor, found;
    const char *name = "", *denotation;
    HN_TRY(
        read_value(err, import, "graph output", wire, &pb, &name, &type, &is_tensor, &denotation));
    if (!is_tensor && scope->graph == import->module->main)
        HN_FAIL(
            err, HONE_ERR_UNSUPPORTED,
            "graph output '%.100s' is no tensor; sequences, maps and optionals are not supported",
            name);
    hn_value *value = hn_scope_find(scope, pb.name, &found);
    if (!value) HN_FAIL(err, HONE_ERR_FORMAT, "graph output '%.100s' is produced by no node", name);
    if (value->graph != scope->graph) HN_TRY(pass_through(err, scope, value, &value));
    if (!hn_graph_add_output(scope->graph, value) || !hn_vec_push(&scope->graph->declared, type))
        HN_NOMEM(err, "importing outputs");
    if (value->type.rank < 0 && type.rank >= 0 && !value->constant) {
        hn_dtype dtype = type.dtype ? type.dtype : value->type.dtype;
        value->type = type;
        value->type.dtype = dtype;
    } else if (value->type.dtype == HN_NONE) {
        value->type.dtype = type.dtype;
    }
    if (denotation) value->denotation = denotation;
    return keep_doc(err, import, pb.doc, &value->doc);
}

// Types that the file states about values inside; what it says about others is ignored.
static hn_status add_value_info(hone_error *err, hn_import *import, hn_scope *scope, hn_wire wire) {
    hn_pb_value pb;
    HN_TRY(hn_pb_read_value(err, &import->source->scratch, wire, &pb));
    hn_names_entry *entry = hn_names_find(&scope->names, pb.name);
    hn_value *value = entry ? entry->item : NULL;
    if (!value || value->constant || value->is_input || value->graph != scope->graph)
        return HONE_OK;
    hn_type type;
    bool is_tensor;
    const char *denotation;
    char label[160];
    snprintf(label, sizeof label, "value '%.100s'", value->name);
    HN_TRY(read_type(err, import, label, &pb, &type, &is_tensor, &denotation));
    if (!is_tensor) return HONE_OK;
    value->type = type;
    value->stated = true;
    value->denotation = denotation;
    return keep_doc(err, import, pb.doc, &value->doc);
}

// ---- graphs -------------------------------------------------------------------------------------
static hn_status fill_graph(hone_error *err, hn_import *import, const hn_pb_graph *pb,
                            hn_scope *scope) {
    for (size_t i = 0; i < pb->initializers.count; i++)
        HN_TRY(add_weight(err, import, scope, pb->initializers.items[i], false));
    for (size_t i = 0; i < pb->sparse_initializers.count; i++)
        HN_TRY(add_weight(err, import, scope, pb->sparse_initializers.items[i], true));
    for (size_t i = 0; i < pb->inputs.count; i++)
        HN_TRY(add_input(err, import, scope, pb->inputs.items[i]));
    for (size_t i = 0; i < scope->names.capacity; i++)
        scope->names.slots[i].pending = false;
    HN_TRY(hn_import_nodes(err, import, &pb->nodes, scope));
    for (size_t i = 0; i < pb->value_infos.count; i++)
        HN_TRY(add_value_info(err, import, scope, pb->value_infos.items[i]));
    for (size_t i = 0; i < pb->outputs.count; i++)
        HN_TRY(add_output(err, import, scope, pb->outputs.items[i]));
    return HONE_OK;
}

hn_status hn_import_graph(hone_error *err, hn_import *import, hn_wire wire, hn_graph *graph,
                          hn_scope *outer) {
    if (import->graph_depth >= HN_ONNX_MAX_GRAPH_DEPTH)
        HN_FAIL(err, HONE_ERR_LIMIT, "sub-graphs are nested deeper than %d",
                HN_ONNX_MAX_GRAPH_DEPTH);
    hn_pb_graph pb;
    HN_TRY(hn_pb_read_graph(err, &import->source->scratch, wire, &pb));
    hn_scope scope = {.outer = outer, .graph = graph, .prefix = ""};
    scope.home = &scope;
    scope.opsets = outer ? outer->opsets : &import->opsets;
    if (outer) {
        scope.args = outer->args;
        scope.arg_count = outer->arg_count;
    }
    HN_TRY(hn_import_name(err, import, "a graph", "", pb.name, &graph->name));
    import->graph_depth++;
    HN_TRY(fill_graph(err, import, &pb, &scope));
    import->graph_depth--;
    if (graph == import->module->main) {
        if (pb.outputs.count == 0) HN_FAIL(err, HONE_ERR_FORMAT, "the model has no outputs");
        HN_TRY(keep_doc(err, import, pb.doc, &import->module->graph_doc));
    }
    return scope.unsorted ? hn_graph_sort(err, graph) : HONE_OK;
}

// ---- model --------------------------------------------------------------------------------------
hn_status hn_import_opsets(hone_error *err, hn_import *import, const hn_pb_list *list,
                           hn_opset_list *out_opsets) {
    hn_opset_list opsets = {
        hn_arena_array(&import->source->scratch, list->count + 1, sizeof *opsets.items), 0};
    if (!opsets.items) HN_NOMEM(err, "importing opsets");
    if (list->count > 256) HN_FAIL(err, HONE_ERR_LIMIT, "the model imports more than 256 opsets");
    for (size_t i = 0; i < list->count; i++) {
        hn_pb_opset pb;
        const char *domain = "";
        HN_TRY(hn_pb_read_opset(err, &import->source->scratch, list->items[i], &pb));
        HN_TRY(hn_import_name(err, import, "an opset's domain", "", pb.domain, &domain));
        if (strcmp(domain, "ai.onnx") == 0) domain = "";
        if (pb.version < 1 || pb.version > INT_MAX)
            HN_FAIL(err, HONE_ERR_FORMAT, "the opset of domain '%.100s' has the version %lld",
                    domain, (long long)pb.version);
        if (!*domain && (pb.version < HN_ONNX_MIN_OPSET || pb.version > HN_ONNX_MAX_OPSET))
            HN_FAIL(err, HONE_ERR_UNSUPPORTED, "the model uses opset %lld; %d to %d are supported",
                    (long long)pb.version, HN_ONNX_MIN_OPSET, HN_ONNX_MAX_OPSET);
        for (size_t j = 0; j < opsets.count; j++)
            if (strcmp(opsets.items[j].domain, domain) == 0 &&
                opsets.items[j].version != (int)pb.version)
                HN_FAIL(err, HONE_ERR_FORMAT, "the model imports two versions of domain '%.100s'",
                        domain);
        opsets.items[opsets.count++] = (hn_opset){domain, (int)pb.version};
    }
    *out_opsets = opsets;
    return HONE_OK;
}

static hn_status import_functions(hone_error *err, hn_import *import, const hn_pb_list *list) {
    hn_arena *scratch = &import->source->scratch;
    for (size_t i = 0; i < list->count; i++) {
        hn_function *function = hn_arena_zalloc(scratch, sizeof *function);
        if (!function) HN_NOMEM(err, "importing functions");
        HN_TRY(hn_pb_read_function(err, scratch, list->items[i], &function->pb));
        hn_slice name = function->pb.name, domain = function->pb.domain,
                 overload = function->pb.overload;
        char quoted[96];
        hn_pb_quote(name, quoted, sizeof quoted);
        if (!name.length || !hn_pb_name_ok(name) || !hn_pb_name_ok(domain) ||
            !hn_pb_name_ok(overload))
            HN_FAIL(err, HONE_ERR_FORMAT, "a model function has the broken name '%s'", quoted);
        if (hn_slice_eq(domain, "ai.onnx")) domain.length = 0;
        HN_TRY_CTX(err, hn_import_opsets(err, import, &function->pb.opsets, &function->opsets),
                   "function '%s'", quoted);
        hn_slice key = {0};
        key.data =
            hn_arena_printf(scratch, "%.*s\n%.*s\n%.*s", (int)domain.length, domain.data,
                            (int)name.length, name.data, (int)overload.length, overload.data);
        if (!key.data) HN_NOMEM(err, "importing functions");
        key.length = strlen(key.data);
        if (hn_names_find(&import->functions, key))
            HN_FAIL(err, HONE_ERR_FORMAT, "two model functions have the name '%s'", quoted);
        if (!hn_names_add(&import->functions, scratch, key, function))
            HN_NOMEM(err, "importing functions");
    }
    return HONE_OK;
}

static hn_status import_header(hone_error *err, hn_import *import, const hn_pb_model *pb) {
    hn_module *module = import->module;
    module->ir_version = pb->ir_version;
    module->model_version = pb->model_version;
    HN_TRY(
        hn_import_name(err, import, "the producer", "", pb->producer_name, &module->producer_name));
    HN_TRY(hn_import_name(err, import, "the producer's version", "", pb->producer_version,
                          &module->producer_version));
    HN_TRY(hn_import_name(err, import, "the model's domain", "", pb->domain, &module->domain));
    HN_TRY(keep_doc(err, import, pb->doc, &module->doc));
    for (size_t i = 0; i < import->opsets.count; i++)
        if (!hn_vec_push(&module->opsets, import->opsets.items[i])) HN_NOMEM(err, "opsets");
    for (size_t i = 0; i < pb->metadata.count; i++) {
        hn_pb_entry entry;
        hn_meta meta = {"", ""};
        HN_TRY(hn_pb_read_entry(err, &import->source->scratch, pb->metadata.items[i], &entry));
        HN_TRY(hn_import_name(err, import, "a metadata entry", "", entry.key, &meta.key));
        HN_TRY(keep_doc(err, import, entry.value, &meta.value));
        if (!hn_vec_push(&module->metadata, meta)) HN_NOMEM(err, "metadata");
    }
    return HONE_OK;
}

static hn_status import_model(hone_error *err, hn_import *import, hn_wire wire) {
    hn_pb_model pb;
    HN_TRY(hn_pb_read_model(err, &import->source->scratch, wire, &pb));
    if (!HN_PB_HAS(&pb, model, ir_version) || !HN_PB_HAS(&pb, model, graph))
        HN_FAIL(err, HONE_ERR_FORMAT, "the file is no ONNX model: it has no %s",
                HN_PB_HAS(&pb, model, graph) ? "IR version" : "graph");
    if (pb.ir_version < 3)
        HN_FAIL(err, HONE_ERR_UNSUPPORTED,
                "the file has IR version %lld; 3 and later are supported",
                (long long)pb.ir_version);
    HN_TRY(hn_import_opsets(err, import, &pb.opsets, &import->opsets));
    HN_TRY(import_header(err, import, &pb));
    HN_TRY(import_functions(err, import, &pb.functions));
    return hn_import_graph(err, import, pb.graph, import->module->main, NULL);
}

// A node takes six bytes of a file at least, and a function multiplies them: what a file may expand
// to grows with its size, so that a small file cannot ask for much memory.
static int64_t node_limit(size_t file_bytes) {
    int64_t limit = 16384 + (int64_t)(file_bytes / 4);
    return limit < HN_ONNX_MAX_NODES ? limit : HN_ONNX_MAX_NODES;
}

// Values that the file or raising left without a name get one, so that an exported file reads back
// as the same graph.
static hn_status name_values(hone_error *err, hn_module *module) {
    hn_arena arena = {0};
    const char **names;
    hone_status status = hn_names_assign(err, module, &arena, &names);
    for (size_t i = 0; i < module->graphs.count && status == HONE_OK; i++) {
        hn_graph *graph = module->graphs.data[i];
        for (size_t j = 0; j < graph->values.count && status == HONE_OK; j++) {
            hn_value *value = graph->values.data[j];
            const char *name = names[value->id];
            if (name && strcmp(name, value->name) != 0 && !hn_value_set_name(value, name))
                status = HN_SET(err, HONE_ERR_NOMEM, "out of memory (naming values)");
        }
    }
    hn_arena_free(&arena);
    return status;
}

static hn_status finish(hone_error *err, hn_module *module, const hn_onnx_options *options) {
    HN_TRY(hn_onnx_raise(err, module, options));
    HN_TRY(name_values(err, module));
    hn_onnx_read_hints(module);
    HN_TRY(hn_ops_verify(err, module, options->keep_unknown));
#ifdef HN_ASSERTS
    HN_TRY(hn_module_verify(err, module));
#endif
    return HONE_OK;
}

static hn_status parse(hone_error *err, hn_onnx_source *source, const hn_onnx_options *options,
                       hn_module **out_module) {
    static const hn_onnx_options k_defaults;
    size_t bytes = hn_buffer_bytes(source->buffer);
    if (bytes == 0) HN_FAIL(err, HONE_ERR_FORMAT, "the file is empty");
    if (bytes > (uint64_t)hn_config_get()->max_model_bytes)
        HN_FAIL(err, HONE_ERR_LIMIT, "the model has %zu bytes, more than max_model_bytes", bytes);
    hn_import import = {.source = source, .options = options ? options : &k_defaults};
    import.max_nodes = node_limit(bytes);
    import.module = hn_module_new();
    if (!import.module) HN_NOMEM(err, "importing a model");
    import.module->source = hn_buffer_ref(source->buffer);
    const uint8_t *data = hn_buffer_data(source->buffer);
    hone_status status = import_model(err, &import, (hn_wire){data, data + bytes});
    import.module->external = source->external.count > 0;
    if (status == HONE_OK) status = finish(err, import.module, import.options);
    if (status != HONE_OK)
        hn_module_free(import.module);
    else
        *out_module = import.module;
    return status;
}

hn_status hn_onnx_parse(hone_error *err, hn_buffer *buffer, const char *folder,
                        const hn_onnx_options *options, hn_module **out_module) {
    hn_onnx_source source = {.buffer = buffer, .folder = folder};
    hone_status status = parse(err, &source, options, out_module);
    hn_onnx_source_free(&source);
    return status;
}

hn_status hn_onnx_load(hone_error *err, const char *path, const hn_onnx_options *options,
                       hn_module **out_module) {
    hn_onnx_source source = {.mapped = true};
    HN_TRY(hn_onnx_map(err, path, &source.buffer));
    const char *slash = strrchr(path, '/');
    char *folder =
        slash ? hn_strndup(path, (size_t)(slash - path) + (slash == path)) : hn_strdup(".");
    source.folder = folder;
    hone_status status = folder ? parse(err, &source, options, out_module)
                                : HN_SET(err, HONE_ERR_NOMEM, "out of memory (importing a model)");
    if (status != HONE_OK) hn_error_frame(err, "reading '%.100s'", path);
    hn_free(folder);
    hn_buffer_unref(source.buffer);
    hn_onnx_source_free(&source);
    return status;
}
