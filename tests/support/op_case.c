// SPDX-License-Identifier: Apache-2.0
// See op_case.h.
#include "support/test.h"
#include <ctype.h>
#include <math.h>
#include "support/op_case.h"

// ---- text ---------------------------------------------------------------------------------------
static double number(const char **at) {
    while (isspace((unsigned char)**at)) ++*at;
    char *end;
    double value = strtod(*at, &end);
    if (end == *at) fail_msg("a number is missing at '%s'", *at);
    *at = end;
    return value;
}

hn_tensor op_tensor(const char *text) {
    const char *open = strchr(text, '['), *at = open + 1;
    if (!open) fail_msg("no dims in '%s'", text);
    hn_dtype dtype = hn_dtype_from_name((hn_slice){text, (size_t)(open - text)});
    if (!dtype) fail_msg("unknown type in '%s'", text);
    hn_shape shape = {0};
    while (*at != ']') {
        shape.dims[shape.rank++] = (int64_t)number(&at);
        if (*at == ',') at++;
    }
    at++;
    hn_tensor tensor;
    assert_int_equal(hn_tensor_new(NULL, dtype, &shape, &tensor), HONE_OK);
    int64_t count = hn_tensor_count(&tensor);
    while (isspace((unsigned char)*at)) at++;
    bool iota = strncmp(at, "iota", 4) == 0, same = strncmp(at, "fill", 4) == 0;
    double value = 0;
    if (same) {
        at += 4;
        value = number(&at);
    }
    for (int64_t i = 0; i < count; i++) {
        if (iota) value = (double)i;
        else if (!same) value = number(&at);
        hn_tensor_set_f64(&tensor, i, value);
    }
    while (!iota && isspace((unsigned char)*at)) at++;
    if (!iota && *at) fail_msg("too many elements in '%s'", text);
    return tensor;
}

// Type letters of an attribute in the op's schema.
static hn_slice schema_type(hn_op op, hn_slice name) {
    for (const char *at = hn_op_get(op)->attrs; *at;) {
        while (*at == ' ') at++;
        size_t length = strcspn(at, " "), colon = strcspn(at, ":");
        if (colon == name.length && memcmp(at, name.data, colon) == 0)
            return (hn_slice){at + colon + 1, strcspn(at + colon + 1, "=! ")};
        at += length;
    }
    fail_msg("%s has no attribute '%.*s'", hn_op_get(op)->name, (int)name.length, name.data);
    return (hn_slice){0};
}

static void set_attr(hn_node *node, hn_slice name, hn_slice value) {
    char key[64], text[256];
    hn_arena *arena = &node->graph->module->arena;
    snprintf(key, sizeof key, "%.*s", (int)name.length, name.data);
    snprintf(text, sizeof text, "%.*s", (int)value.length, value.data);
    hn_slice type = schema_type(node->op, name);
    if (hn_slice_eq(type, "i")) {
        assert_true(hn_node_set_int(node, key, strtoll(text, NULL, 10)));
    } else if (hn_slice_eq(type, "f")) {
        assert_true(hn_node_set_float(node, key, strtof(text, NULL)));
    } else if (hn_slice_eq(type, "s")) {
        assert_true(hn_node_set_string(node, key, text));
    } else {
        int64_t ints[16], count = 0;
        float *floats = hn_arena_array(arena, 16, sizeof *floats);
        hn_slice *strings = hn_arena_array(arena, 16, sizeof *strings);
        for (char *save, *word = strtok_r(text, ",", &save); word; word = strtok_r(NULL, ",", &save)) {
            ints[count] = strtoll(word, NULL, 10);
            floats[count] = strtof(word, NULL);
            strings[count] = (hn_slice){hn_arena_strdup(arena, word), strlen(word)};
            count++;
        }
        if (hn_slice_eq(type, "is")) {
            assert_true(hn_node_set_ints(node, key, ints, count));
            return;
        }
        bool is_float = hn_slice_eq(type, "fs");
        hn_attr *attr = hn_node_add_attr(node, key, is_float ? HN_ATTR_FLOATS : HN_ATTR_STRINGS);
        assert_non_null(attr);
        attr->count = count;
        if (is_float) attr->floats = floats;
        else attr->strings = strings;
    }
}

static void set_attrs(hn_node *node, const char *text) {
    for (const char *at = text; at && *at;) {
        while (*at == ' ') at++;
        size_t length = strcspn(at, " ");
        const char *equals = memchr(at, '=', length);
        if (!equals) fail_msg("no value in '%s'", at);
        set_attr(node, (hn_slice){at, (size_t)(equals - at)},
                 (hn_slice){equals + 1, length - (size_t)(equals + 1 - at)});
        at += length;
    }
}

// ---- a case -------------------------------------------------------------------------------------
hn_node *op_case_node(hn_module *module, const op_case *c, hn_tensor *tensors, int *out_inputs) {
    const char *dot = strrchr(c->op, '.');
    char domain[64] = "";
    if (dot) snprintf(domain, sizeof domain, "%.*s", (int)(dot - c->op), c->op);
    hn_op op = hn_op_find(domain, dot ? dot + 1 : c->op);
    if (!op) fail_msg("no row for %s", c->op);
    hn_value *values[OP_CASE_INPUTS] = {0};
    int inputs = 0, outputs = 0;
    for (int i = 0; i < OP_CASE_INPUTS && c->in[i]; i++) {
        inputs = i + 1;
        tensors[i] = (hn_tensor){0};
        if (strcmp(c->in[i], "-") == 0) continue;
        tensors[i] = op_tensor(c->in[i]);
        hn_type type;
        hn_type_set_shape(&type, tensors[i].dtype, &tensors[i].shape);
        values[i] = hn_graph_add_input(module->main, "", &type);
        assert_non_null(values[i]);
    }
    for (int i = 0; i < OP_CASE_OUTPUTS && c->out[i]; i++) outputs = i + 1;
    if (!outputs) outputs = hn_op_get(op)->min_out ? hn_op_get(op)->min_out : 1;
    hn_node *node = hn_node_make(module->main, NULL, op, values, inputs, outputs);
    assert_non_null(node);
    for (int i = 0; i < OP_CASE_OUTPUTS && c->out[i]; i++)
        if (strcmp(c->out[i], "-") == 0) node->outputs[i] = NULL;
    if (c->version) node->version = c->version;
    set_attrs(node, c->attrs);
    *out_inputs = inputs;
    return node;
}

static bool same_element(const hn_tensor *want, const hn_tensor *got, int64_t i) {
    double a = hn_tensor_get_f64(want, i), b = hn_tensor_get_f64(got, i);
    if (isnan(a) || isnan(b)) return isnan(a) && isnan(b);
    if (isinf(a) || isinf(b)) return a == b;
    if (!hn_dtype_is_float(want->dtype)) return a == b;
    double rtol = want->dtype == HN_F64 || want->dtype == HN_F32 ? 1e-5 : 2e-3;
    return fabs(a - b) <= rtol * fabs(a) + (rtol < 1e-3 ? 1e-6 : 1e-3);
}

static bool same_tensor(const op_case *c, int index, const hn_tensor *got) {
    hn_tensor want = op_tensor(c->out[index]);
    bool same = want.dtype == got->dtype && hn_shape_equal(&want.shape, &got->shape);
    if (!same) {
        hn_str text = {0};
        hn_shape_print(&text, &got->shape);
        print_error("%s: output %d is %s %s, not '%.40s'\n", c->name, index,
                    hn_dtype_name(got->dtype), hn_str_get(&text), c->out[index]);
        hn_str_free(&text);
    }
    for (int64_t i = 0; same && i < hn_tensor_count(&want); i++) {
        if (same_element(&want, got, i)) continue;
        print_error("%s: output %d element %lld is %.9g, not %.9g\n", c->name, index, (long long)i,
                    hn_tensor_get_f64(got, i), hn_tensor_get_f64(&want, i));
        same = false;
    }
    hn_tensor_free(&want);
    return same;
}

static bool run_reference(const op_case *c) {
    hn_module *module = hn_module_new();
    hn_tensor tensors[OP_CASE_INPUTS], results[OP_CASE_OUTPUTS] = {{0}};
    const hn_tensor *pointers[OP_CASE_INPUTS];
    int inputs;
    hn_node *node = op_case_node(module, c, tensors, &inputs);
    for (int i = 0; i < inputs; i++) pointers[i] = tensors[i].dtype ? &tensors[i] : NULL;
    hone_error err = {0};
    hone_status status =
        hn_ref_run(&err, node, pointers, inputs, results, node->output_count, 1);
    bool good = status == c->fails;
    if (!good) print_error("%s: status %s: %s\n", c->name, hone_status_name(status), err.text);
    if (good && c->text && !strstr(err.text, c->text)) {
        print_error("%s: '%s' lacks '%s'\n", c->name, err.text, c->text);
        good = false;
    }
    for (int i = 0; status == HONE_OK && i < node->output_count; i++)
        if (node->outputs[i]) good = same_tensor(c, i, &results[i]) && good;
    for (int i = 0; i < node->output_count; i++) hn_tensor_free(&results[i]);
    for (int i = 0; i < inputs; i++) hn_tensor_free(&tensors[i]);
    hn_module_free(module);
    return good;
}

// ---- inference ----------------------------------------------------------------------------------
typedef struct binding {
    hn_dim symbol[OP_CASE_INPUTS * HN_MAX_RANK];
    int64_t value[OP_CASE_INPUTS * HN_MAX_RANK];
    int count;
} binding;

static bool look_up(void *user, hn_dim symbol, int64_t *out_value) {
    const binding *b = user;
    for (int i = 0; i < b->count; i++)
        if (b->symbol[i] == symbol) {
            *out_value = b->value[i];
            return true;
        }
    return false;
}

static void make_symbolic(hn_node *node, const hn_tensor *tensors, int inputs, binding *b) {
    hn_dims *dims = node->graph->module->dims;
    for (int i = 0; i < inputs; i++) {
        if (!node->inputs[i]) continue;
        for (int d = 0; d < tensors[i].shape.rank; d++) {
            hn_dim symbol = hn_dim_fresh(dims, 0, INT64_MAX);
            b->symbol[b->count] = symbol;
            b->value[b->count++] = tensors[i].shape.dims[d];
            node->inputs[i]->type.dims[d] = symbol;
        }
    }
}

static bool check_inferred(const op_case *c, const hn_node *node, binding *b) {
    bool good = true;
    for (int i = 0; i < node->output_count; i++) {
        if (!node->outputs[i] || node->outputs[i]->type.rank < 0) continue;
        const hn_type *type = &node->outputs[i]->type;
        hn_tensor want = op_tensor(c->out[i]);
        bool same = type->rank == want.shape.rank && (!type->dtype || type->dtype == want.dtype);
        for (int d = 0; same && d < type->rank; d++) {
            int64_t value;
            if (hn_dim_eval(node->graph->module->dims, type->dims[d], look_up, b, &value))
                same = value == want.shape.dims[d];
        }
        if (!same) print_error("%s: symbolic inference of output %d disagrees\n", c->name, i);
        good = good && same;
        hn_tensor_free(&want);
    }
    return good;
}

static bool run_inference(const op_case *c, bool unknown) {
    hn_module *module = hn_module_new();
    hn_tensor tensors[OP_CASE_INPUTS];
    int inputs;
    binding b = {.count = 0};
    hn_node *node = op_case_node(module, c, tensors, &inputs);
    if (!c->sizes_known) make_symbolic(node, tensors, inputs, &b);
    for (int i = 0; unknown && i < inputs; i++)
        if (node->inputs[i]) node->inputs[i]->type = (hn_type){.rank = -1};
    hone_error err = {0};
    hone_status status = hn_infer_node(&err, node);
    bool good = status == HONE_OK;
    if (!good) print_error("%s: inference without %s: %s\n", c->name, unknown ? "types" : "sizes", err.text);
    if (good) good = check_inferred(c, node, &b);
    for (int i = 0; i < inputs; i++) hn_tensor_free(&tensors[i]);
    hn_module_free(module);
    return good;
}

void op_cases_run(const op_case *cases, size_t count) {
    int failed = 0;
    for (size_t i = 0; i < count; i++) {
        bool good = run_reference(&cases[i]);
        if (good && cases[i].fails == HONE_OK)
            good = run_inference(&cases[i], false) && run_inference(&cases[i], true);
        if (!good) print_error("case '%s' failed\n", cases[i].name);
        failed += !good;
    }
    if (failed) fail_msg("%d of %zu cases failed", failed, count);
}
