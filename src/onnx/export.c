// SPDX-License-Identifier: Apache-2.0
// hn_module to a standard ONNX file.
//
// Inputs, outputs and their declared dims come out as they went in; constants that nothing reads
// are left out; a constant that is a graph output becomes a Constant node, which every reader
// accepts there. The same module gives the same bytes. Weights are never copied: the writer refers
// to them.
#include "onnx/names.h"
#include "onnx/onnx_int.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define DEFAULT_INLINE_LIMIT ((size_t)2000 << 20) // protocol buffers end at 2 GiB
#define EXTERNAL_MIN_BYTES   1024                 // smaller tensors stay in the file
#define EXTERNAL_ALIGN       4096                 // so that every tensor can be mapped

typedef struct exporter {
    const hn_module *module;
    const char **names; // by value id
    hn_wire_out out;
    const char *location; // of the external file, relative to the model; NULL: none
    hn_writer *data;      // of the external file
    uint64_t data_bytes;
    int64_t min_ir; // IR version that the element types need
    hn_arena scratch;
} exporter;

// ---- versions -----------------------------------------------------------------------------------
static int file_version(const hn_module *module, const char *domain) {
    for (size_t i = 0; i < module->opsets.count; i++)
        if (strcmp(module->opsets.data[i].domain, domain) == 0)
            return module->opsets.data[i].version;
    return 0;
}

typedef HN_VEC(hn_opset) opset_vec;

static hn_status need_version(hone_error *err, opset_vec *opsets, const char *domain, int version) {
    for (size_t i = 0; i < opsets->count; i++) {
        if (strcmp(opsets->data[i].domain, domain) != 0) continue;
        if (version > opsets->data[i].version) opsets->data[i].version = version;
        return HONE_OK;
    }
    if (!hn_vec_push(opsets, ((hn_opset){domain, version}))) HN_NOMEM(err, "exporting");
    return HONE_OK;
}

// The opset of each domain: the file's, raised to what some node needs.
static hn_status collect_versions(hone_error *err, const hn_graph *graph, opset_vec *opsets) {
    char label[160];
    for (const hn_node *node = graph->first; node; node = node->next) {
        if (node->post_count || hn_op_has(node->op, HN_T_INTERNAL) ||
            strcmp(node->domain, "hn") == 0)
            HN_FAIL(err, HONE_ERR_INTERNAL, "%s is internal and cannot be exported",
                    hn_node_label(node, label, sizeof label));
        int version = hn_onnx_needs(node), file = file_version(graph->module, node->domain);
        HN_TRY(need_version(err, opsets, node->domain, version > file ? version : file));
        for (int i = 0; i < node->attr_count; i++)
            if (node->attrs[i].type == HN_ATTR_GRAPH)
                HN_TRY(collect_versions(err, node->attrs[i].graph, opsets));
    }
    return HONE_OK;
}

static hn_status check_versions(hone_error *err, const hn_graph *graph, int opset) {
    char label[160];
    for (const hn_node *node = graph->first; node; node = node->next) {
        if (!*node->domain && opset >= hn_onnx_valid_until("", node->op_type, node->version))
            HN_FAIL(
                err, HONE_ERR_UNSUPPORTED,
                "%s has the meaning of opset %d, which the other nodes' opset %d cannot express",
                hn_node_label(node, label, sizeof label), node->version, opset);
        for (int i = 0; i < node->attr_count; i++)
            if (node->attrs[i].type == HN_ATTR_GRAPH)
                HN_TRY(check_versions(err, node->attrs[i].graph, opset));
    }
    return HONE_OK;
}

static int by_domain(const void *a, const void *b) {
    return strcmp(((const hn_opset *)a)->domain, ((const hn_opset *)b)->domain);
}

static hn_status put_opsets(hone_error *err, exporter *e) {
    opset_vec opsets = {0};
    hone_status status = HONE_OK;
    for (size_t i = 0; i < e->module->opsets.count && status == HONE_OK; i++)
        status = need_version(err, &opsets, e->module->opsets.data[i].domain,
                              e->module->opsets.data[i].version);
    if (status == HONE_OK) status = need_version(err, &opsets, "", HN_ONNX_MIN_OPSET);
    if (status == HONE_OK) status = collect_versions(err, e->module->main, &opsets);
    if (status == HONE_OK) {
        qsort(opsets.data, opsets.count, sizeof *opsets.data, by_domain);
        status = check_versions(err, e->module->main, opsets.data[0].version);
    }
    for (size_t i = 0; i < opsets.count && status == HONE_OK; i++) {
        hn_wire_begin(&e->out, 8);
        hn_wire_put_text(&e->out, 1, opsets.data[i].domain);
        hn_wire_put_int(&e->out, 2, opsets.data[i].version);
        hn_wire_end(&e->out);
    }
    hn_vec_free(&opsets);
    return status;
}

// ---- IR version ---------------------------------------------------------------------------------
static void need_type(exporter *e, hn_dtype dtype) {
    int64_t need = 4; // weights that are not listed as inputs
    if (dtype >= HN_F8E4M3FN && dtype <= HN_F8E5M2FNUZ) need = 9;
    if (dtype == HN_U4 || dtype == HN_I4) need = 10;
    if (dtype == HN_F4E2M1) need = 11;
    if (dtype == HN_F8E8M0) need = 12;
    if (dtype == HN_U2 || dtype == HN_I2) need = 13;
    if (need > e->min_ir) e->min_ir = need;
}

static void collect_types(exporter *e, const hn_graph *graph) {
    for (size_t i = 0; i < graph->values.count; i++)
        need_type(e, graph->values.data[i]->type.dtype);
    for (const hn_node *node = graph->first; node; node = node->next)
        for (int i = 0; i < node->attr_count; i++)
            if (node->attrs[i].type == HN_ATTR_GRAPH) collect_types(e, node->attrs[i].graph);
}

// ---- types --------------------------------------------------------------------------------------
static hn_slice next_part(const char **at, char sign) {
    if (!*at) return (hn_slice){0};
    const char *end = strchr(*at, sign);
    hn_slice part = {*at, end ? (size_t)(end - *at) : strlen(*at)};
    *at = end ? end + 1 : NULL;
    return part;
}

static void put_dim(exporter *e, hn_dim dim, hn_slice denotation) {
    hn_wire_begin(&e->out, 1);
    if (hn_dim_is_const(dim)) {
        hn_wire_put_int(&e->out, 1, dim);
    } else {
        hn_str text = {0};
        hn_str_append(&text, hn_dim_symbol_name(e->module->dims, dim));
        if (!text.length) hn_dim_print(&text, e->module->dims, dim);
        // A dim without a name says no more than that it is not fixed.
        bool named = *hn_dim_symbol_name(e->module->dims, dim) || !strchr(hn_str_get(&text), '?');
        if (text.length && named) hn_wire_put_text(&e->out, 2, text.data);
        if (text.failed) e->out.failed = true;
        hn_str_free(&text);
    }
    if (denotation.length) hn_wire_put_bytes(&e->out, 3, denotation.data, denotation.length);
    hn_wire_end(&e->out);
}

static void put_value(exporter *e, uint32_t field, const char *name, const hn_value *value,
                      const hn_type *type) {
    const char *rest = value->denotation;
    hn_slice denotation = next_part(&rest, ';');
    hn_wire_begin(&e->out, field);
    hn_wire_put_text(&e->out, 1, name);
    if (type->dtype != HN_NONE) {
        hn_wire_begin(&e->out, 2);
        hn_wire_begin(&e->out, 1);
        hn_wire_put_int(&e->out, 1, (int64_t)type->dtype);
        if (type->rank >= 0) {
            hn_wire_begin(&e->out, 2);
            for (int i = 0; i < type->rank; i++)
                put_dim(e, type->dims[i], next_part(&rest, ','));
            hn_wire_end(&e->out);
        }
        hn_wire_end(&e->out);
        if (denotation.length) hn_wire_put_bytes(&e->out, 6, denotation.data, denotation.length);
        hn_wire_end(&e->out);
    }
    if (value->doc) hn_wire_put_text(&e->out, 3, value->doc);
    hn_wire_end(&e->out);
}

// ---- tensors ------------------------------------------------------------------------------------
static hn_status put_external(hone_error *err, exporter *e, const hn_tensor *tensor,
                              int64_t *out_at) {
    static const char k_zeros[EXTERNAL_ALIGN];
    size_t gap = (size_t)(-e->data_bytes % EXTERNAL_ALIGN);
    HN_TRY(hn_writer_put(err, e->data, k_zeros, gap));
    HN_TRY(hn_writer_put(err, e->data, tensor->data, tensor->bytes));
    *out_at = (int64_t)(e->data_bytes + gap);
    e->data_bytes += gap + tensor->bytes;
    return HONE_OK;
}

static hn_status put_tensor(hone_error *err, exporter *e, uint32_t field, const char *name,
                            const hn_tensor *tensor) {
    int64_t at = -1;
    if (tensor->dtype == HN_STRING)
        HN_FAIL(err, HONE_ERR_UNSUPPORTED, "tensor '%.100s' holds strings, which are not written",
                name);
    if (e->data && tensor->bytes >= EXTERNAL_MIN_BYTES) HN_TRY(put_external(err, e, tensor, &at));
    hn_wire_begin(&e->out, field);
    hn_onnx_put_tensor(&e->out, name, tensor, e->location, at);
    hn_wire_end(&e->out);
    return HONE_OK;
}

// ---- nodes --------------------------------------------------------------------------------------
static hn_status put_graph(hone_error *err, exporter *e, const hn_graph *graph);

static hn_status put_attribute(hone_error *err, exporter *e, const hn_attr *attr) {
    static const int k_types[] = {
        [HN_ATTR_FLOAT] = 1, [HN_ATTR_INT] = 2,    [HN_ATTR_STRING] = 3, [HN_ATTR_TENSOR] = 4,
        [HN_ATTR_GRAPH] = 5, [HN_ATTR_FLOATS] = 6, [HN_ATTR_INTS] = 7,   [HN_ATTR_STRINGS] = 8};
    hn_wire_out *out = &e->out;
    hn_wire_begin(out, 5);
    hn_wire_put_text(out, 1, attr->name);
    switch (attr->type) {
    case HN_ATTR_INT:
        hn_wire_put_int(out, 3, attr->i);
        break;
    case HN_ATTR_FLOAT:
        hn_wire_put_float(out, 2, attr->f);
        break;
    case HN_ATTR_STRING:
        hn_wire_put_bytes(out, 4, attr->s.data, attr->s.length);
        break;
    case HN_ATTR_TENSOR:
        HN_TRY(put_tensor(err, e, 5, "", attr->tensor));
        break;
    case HN_ATTR_GRAPH:
        hn_wire_begin(out, 6);
        HN_TRY(put_graph(err, e, attr->graph));
        hn_wire_end(out);
        break;
    case HN_ATTR_FLOATS:
        hn_wire_put_floats(out, 7, attr->floats, attr->count);
        break;
    case HN_ATTR_INTS:
        hn_wire_put_ints(out, 8, attr->ints, attr->count);
        break;
    case HN_ATTR_STRINGS:
        for (int64_t i = 0; i < attr->count; i++)
            hn_wire_put_bytes(out, 9, attr->strings[i].data, attr->strings[i].length);
        break;
    }
    hn_wire_put_int(out, 20, k_types[attr->type]);
    hn_wire_end(out);
    return HONE_OK;
}

static int trimmed(hn_value *const *values, int count) {
    while (count && !values[count - 1])
        count--;
    return count;
}

static hn_status put_node(hone_error *err, exporter *e, const hn_node *node) {
    hn_wire_out *out = &e->out;
    hn_wire_begin(out, 1);
    int inputs = trimmed(node->inputs, node->input_count);
    int outputs = trimmed(node->outputs, node->output_count);
    for (int i = 0; i < inputs; i++)
        hn_wire_put_text(out, 1, node->inputs[i] ? e->names[node->inputs[i]->id] : "");
    for (int i = 0; i < outputs; i++)
        hn_wire_put_text(out, 2, node->outputs[i] ? e->names[node->outputs[i]->id] : "");
    if (*node->name) hn_wire_put_text(out, 3, node->name);
    hn_wire_put_text(out, 4, node->op_type);
    for (int i = 0; i < node->attr_count; i++)
        HN_TRY(put_attribute(err, e, &node->attrs[i]));
    if (*node->domain) hn_wire_put_text(out, 7, node->domain);
    hn_wire_end(out);
    return HONE_OK;
}

static hn_status put_constant_node(hone_error *err, exporter *e, const hn_value *value) {
    hn_attr attr = {.name = "value", .type = HN_ATTR_TENSOR, .tensor = value->constant};
    hn_wire_begin(&e->out, 1);
    hn_wire_put_text(&e->out, 2, e->names[value->id]);
    hn_wire_put_text(&e->out, 4, "Constant");
    HN_TRY(put_attribute(err, e, &attr));
    hn_wire_end(&e->out);
    return HONE_OK;
}

// ---- graphs -------------------------------------------------------------------------------------
static int by_id(const void *a, const void *b) {
    const hn_value *x = *(hn_value *const *)a, *y = *(hn_value *const *)b;
    return x->id < y->id ? -1 : x->id > y->id;
}

// The graph's values in the order they were made, which is that of the file.
static hn_status sorted_values(hone_error *err, exporter *e, const hn_graph *graph,
                               hn_value ***out_values) {
    hn_value **values = hn_arena_array(&e->scratch, graph->values.count + 1, sizeof *values);
    if (!values) HN_NOMEM(err, "exporting");
    if (graph->values.count)
        memcpy(values, graph->values.data, graph->values.count * sizeof *values);
    qsort(values, graph->values.count, sizeof *values, by_id);
    *out_values = values;
    return HONE_OK;
}

static bool as_constant_node(const hn_value *value) {
    return value->constant && value->graph_output_uses && !value->overridable;
}

static void put_interface(exporter *e, const hn_graph *graph) {
    for (size_t i = 0; i < graph->inputs.count; i++) {
        const hn_value *value = graph->inputs.data[i];
        put_value(e, 11, e->names[value->id], value, &value->type);
    }
    for (size_t i = 0; i < graph->overridables.count; i++) {
        const hn_value *value = graph->overridables.data[i];
        put_value(e, 11, e->names[value->id], value, &value->type);
    }
    for (size_t i = 0; i < graph->outputs.count; i++) {
        const hn_value *value = graph->outputs.data[i];
        hn_type type = value->type;
        // The declared dims are the interface, also where more is known now.
        if (i < graph->declared.count && graph->declared.data[i].rank >= 0) {
            type = graph->declared.data[i];
            if (value->type.dtype != HN_NONE) type.dtype = value->type.dtype;
        }
        put_value(e, 12, e->names[value->id], value, &type);
    }
}

static hn_status put_graph(hone_error *err, exporter *e, const hn_graph *graph) {
    hn_value **values = NULL;
    size_t count = graph->values.count;
    HN_TRY(sorted_values(err, e, graph, &values));
    for (size_t i = 0; i < count; i++)
        if (as_constant_node(values[i])) HN_TRY(put_constant_node(err, e, values[i]));
    for (const hn_node *node = graph->first; node; node = node->next)
        HN_TRY(put_node(err, e, node));
    // A name is required.
    hn_wire_put_text(&e->out, 2, *graph->name ? graph->name : "graph");
    for (size_t i = 0; i < count; i++) {
        const hn_value *value = values[i];
        bool wanted = value->uses.count || value->overridable;
        if (value->constant && wanted && !as_constant_node(value))
            HN_TRY(put_tensor(err, e, 5, e->names[value->id], value->constant));
    }
    if (graph == e->module->main && *e->module->graph_doc)
        hn_wire_put_text(&e->out, 10, e->module->graph_doc);
    put_interface(e, graph);
    for (size_t i = 0; i < count; i++)
        if (values[i]->stated && values[i]->producer && !values[i]->graph_output_uses)
            put_value(e, 13, e->names[values[i]->id], values[i], &values[i]->type);
    return HONE_OK;
}

// ---- model --------------------------------------------------------------------------------------
static hn_status put_model(hone_error *err, exporter *e) {
    const hn_module *module = e->module;
    collect_types(e, module->main);
    hn_wire_put_int(&e->out, 1, hn_max_i64(module->ir_version, e->min_ir));
    if (*module->producer_name) hn_wire_put_text(&e->out, 2, module->producer_name);
    if (*module->producer_version) hn_wire_put_text(&e->out, 3, module->producer_version);
    if (*module->domain) hn_wire_put_text(&e->out, 4, module->domain);
    if (module->model_version) hn_wire_put_int(&e->out, 5, module->model_version);
    if (*module->doc) hn_wire_put_text(&e->out, 6, module->doc);
    HN_TRY(put_opsets(err, e));
    hn_wire_begin(&e->out, 7);
    HN_TRY(put_graph(err, e, module->main));
    hn_wire_end(&e->out);
    for (size_t i = 0; i < module->metadata.count; i++) {
        hn_wire_begin(&e->out, 14);
        hn_wire_put_text(&e->out, 1, module->metadata.data[i].key);
        hn_wire_put_text(&e->out, 2, module->metadata.data[i].value);
        hn_wire_end(&e->out);
    }
    return HONE_OK;
}

// Bytes of all weights, those in attributes too; saturates.
static uint64_t weight_bytes(const hn_graph *graph) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < graph->values.count; i++)
        if (graph->values.data[i]->constant) bytes += graph->values.data[i]->constant->bytes;
    for (const hn_node *node = graph->first; node; node = node->next)
        for (int i = 0; i < node->attr_count; i++) {
            if (node->attrs[i].type == HN_ATTR_GRAPH) bytes += weight_bytes(node->attrs[i].graph);
            if (node->attrs[i].type == HN_ATTR_TENSOR) bytes += node->attrs[i].tensor->bytes;
        }
    return bytes;
}

static hn_status write_files(hone_error *err, exporter *e, const char *path,
                             const char *data_path) {
    hn_writer data = {0}, model = {0};
    hone_status status = HONE_OK;
    bool had_data = data_path && access(data_path, F_OK) == 0;
    if (data_path) {
        status = hn_writer_open(err, data_path, &data);
        e->data = status == HONE_OK ? &data : NULL;
    }
    if (status == HONE_OK) status = put_model(err, e);
    if (status == HONE_OK && e->out.bytes >= (uint64_t)INT32_MAX)
        status = HN_SET(err, HONE_ERR_LIMIT, "'%s' would have %llu bytes; ONNX files end at 2 GiB",
                        path, (unsigned long long)e->out.bytes);
    if (status == HONE_OK) status = hn_writer_open(err, path, &model);
    if (status == HONE_OK) status = hn_wire_flush(err, &e->out, &model);
    // The data first: a model is never seen without it.
    if (status == HONE_OK && data_path) status = hn_writer_commit(err, &data);
    if (status == HONE_OK) {
        status = hn_writer_commit(err, &model);
        if (status != HONE_OK && data_path && !had_data) (void)unlink(data_path);
    }
    if (data.path) hn_writer_cancel(&data);
    if (model.path) hn_writer_cancel(&model);
    return status;
}

hn_status hn_onnx_save_with(hone_error *err, const hn_module *module, const char *path,
                            const hn_onnx_save_options *options) {
    exporter e = {.module = module};
    size_t limit =
        options && options->inline_limit_bytes ? options->inline_limit_bytes : DEFAULT_INLINE_LIMIT;
    const char *data_path = NULL;
    hone_status status = hn_names_assign(err, module, &e.scratch, &e.names);
    if (status == HONE_OK && weight_bytes(module->main) > limit) {
        data_path = hn_arena_printf(&e.scratch, "%s.data", path);
        if (!data_path)
            status = HN_SET(err, HONE_ERR_NOMEM, "out of memory (exporting)");
        else
            e.location = strrchr(data_path, '/') ? strrchr(data_path, '/') + 1 : data_path;
    }
    if (status == HONE_OK) status = write_files(err, &e, path, data_path);
    if (status != HONE_OK) hn_error_frame(err, "writing '%.100s'", path);
    hn_wire_out_free(&e.out);
    hn_arena_free(&e.scratch);
    return status;
}

hn_status hn_onnx_save(hone_error *err, const hn_module *module, const char *path) {
    return hn_onnx_save_with(err, module, path, NULL);
}
