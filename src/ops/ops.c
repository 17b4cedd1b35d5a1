// SPDX-License-Identifier: Apache-2.0
// The op table and what reads it: look-up, attribute schema, verification, costs.
#include "ops/ops.h"
#include "ops/ops_int.h"

static const hn_op_info k_ops[] = {
    {.name = "?", .domain = "", .max_in = -1, .max_out = -1, .attrs = ""},
#define HN_OP(token, name, domain, since, min_in, max_in, min_out, max_out, traits, attrs, infer,  \
              ref, grad, cost, rtol, atol)                                                         \
    {name, domain, since, min_in, max_in, min_out, max_out, traits,                                \
     attrs, infer, ref,   grad,   cost,   rtol,    atol},
#include "ops/ops.def"
#undef HN_OP
};

const hn_op_info *hn_op_get(hn_op op) { return &k_ops[op < HN_OP_END ? op : 0]; }

// Open-addressing index of the rows by name, built on first use. Building twice in a race gives the
// same content, so no lock is needed beyond the final release store.
#define INDEX_SLOTS 1024
static hn_op g_index[INDEX_SLOTS];
static _Atomic int g_index_ready;

static const char *plain_domain(const char *domain) {
    return strcmp(domain, "ai.onnx") == 0 ? "" : domain;
}

static uint64_t name_hash(const char *domain, const char *op_type) {
    return hn_hash_bytes(op_type, strlen(op_type),
                         hn_hash_bytes(domain, strlen(domain), HN_HASH_SEED));
}

static void build_index(void) {
    for (hn_op op = 1; op < HN_OP_END; op++) {
        uint64_t slot = name_hash(k_ops[op].domain, k_ops[op].name) % INDEX_SLOTS;
        while (g_index[slot] && g_index[slot] != op)
            slot = (slot + 1) % INDEX_SLOTS;
        g_index[slot] = op;
    }
    g_index_ready = 1;
}

hn_op hn_op_find(const char *domain, const char *op_type) {
    if (!g_index_ready) build_index();
    domain = plain_domain(domain);
    uint64_t slot = name_hash(domain, op_type) % INDEX_SLOTS;
    for (; g_index[slot]; slot = (slot + 1) % INDEX_SLOTS) {
        const hn_op_info *info = &k_ops[g_index[slot]];
        if (strcmp(info->name, op_type) == 0 && strcmp(info->domain, domain) == 0)
            return g_index[slot];
    }
    return HN_OP_UNKNOWN;
}

hn_node *hn_node_make(hn_graph *graph, hn_node *before, hn_op op, hn_value *const *inputs,
                      int input_count, int output_count) {
    const hn_op_info *info = hn_op_get(op);
    return hn_graph_add_node(graph, before, op, info->name, info->domain, info->since, inputs,
                             input_count, output_count);
}

hn_value *hn_build(hn_graph *graph, hn_node *before, hn_op op, hn_value *const *inputs,
                   int input_count) {
    hn_node *node = hn_node_make(graph, before, op, inputs, input_count, 1);
    // A node that is being built may still lack attributes: inference is then the caller's.
    if (node && hn_infer_node(NULL, node) != HONE_OK) return node->outputs[0];
    return node ? node->outputs[0] : NULL;
}

// ---- attribute schema ---------------------------------------------------------------------------
typedef struct schema_entry {
    hn_slice name;
    hn_slice type;     // i f s t g is fs ss
    hn_slice value;    // default, empty when none
    bool required, has_value;
} schema_entry;

static bool next_entry(const char **at, schema_entry *out) {
    while (**at == ' ')
        ++*at;
    if (!**at) return false;
    const char *start = *at;
    while (**at && **at != ' ')
        ++*at;
    hn_slice word = {start, (size_t)(*at - start)};
    const char *colon = memchr(word.data, ':', word.length);
    *out = (schema_entry){.name = word};
    if (!colon) return true;
    out->name.length = (size_t)(colon - word.data);
    out->type = (hn_slice){colon + 1, word.length - out->name.length - 1};
    const char *equals = memchr(out->type.data, '=', out->type.length);
    if (equals) {
        out->has_value = true;
        out->value = (hn_slice){equals + 1, out->type.length - (size_t)(equals + 1 - out->type.data)};
        out->type.length = (size_t)(equals - out->type.data);
    } else if (out->type.length && out->type.data[out->type.length - 1] == '!') {
        out->required = true;
        out->type.length--;
    }
    return true;
}

static bool find_entry(const hn_node *node, const char *name, schema_entry *out) {
    const char *at = hn_op_get(node->op)->attrs;
    while (next_entry(&at, out))
        if (hn_slice_eq(out->name, name)) return true;
    return false;
}

int64_t hn_op_int(const hn_node *node, const char *name) {
    schema_entry entry;
    int64_t value = 0;
    if (find_entry(node, name, &entry) && entry.has_value) (void)hn_parse_i64(entry.value, &value);
    return hn_node_int(node, name, value);
}

float hn_op_float(const hn_node *node, const char *name) {
    schema_entry entry;
    double value = 0;
    if (find_entry(node, name, &entry) && entry.has_value) (void)hn_parse_f64(entry.value, &value);
    return hn_node_float(node, name, (float)value);
}

hn_slice hn_op_string(const hn_node *node, const char *name) {
    schema_entry entry;
    hn_slice given = hn_node_string(node, name, "");
    if (given.length || !find_entry(node, name, &entry) || !entry.has_value) return given;
    return entry.value;
}

static const char *attr_letters(hn_attr_type type) {
    static const char *const k_letters[] = {"i", "f", "s", "t", "g", "is", "fs", "ss"};
    return k_letters[type];
}

// ---- verification -------------------------------------------------------------------------------
static hn_status verify_attrs(hone_error *err, const hn_node *node) {
    char label[160];
    const hn_op_info *info = hn_op_get(node->op);
    schema_entry entry;
    for (const char *at = info->attrs; next_entry(&at, &entry);) {
        bool found = false;
        for (int i = 0; i < node->attr_count && !found; i++) {
            if (!hn_slice_eq(entry.name, node->attrs[i].name)) continue;
            found = true;
            const char *letters = attr_letters(node->attrs[i].type);
            // An empty list has no type of its own in some writers.
            bool empty_list = letters[1] == 's' && node->attrs[i].count == 0;
            if (!hn_slice_eq(entry.type, letters) && !empty_list)
                HN_FAIL(err, HONE_ERR_FORMAT, "%s: attribute '%s' has type '%s' where '%.*s' is due",
                        hn_node_label(node, label, sizeof label), node->attrs[i].name, letters,
                        (int)entry.type.length, entry.type.data);
        }
        if (!found && entry.required)
            HN_FAIL(err, HONE_ERR_FORMAT, "%s: the required attribute '%.*s' is missing",
                    hn_node_label(node, label, sizeof label), (int)entry.name.length,
                    entry.name.data);
    }
    return HONE_OK;
}

static hn_status verify_node(hone_error *err, const hn_node *node, bool allow_unknown) {
    char label[160];
    const hn_op_info *info = hn_op_get(node->op);
    if (node->op == HN_OP_UNKNOWN) {
        if (allow_unknown) return HONE_OK;
        HN_FAIL(err, HONE_ERR_UNSUPPORTED, "%s: the operator %s%s%s is not supported",
                hn_node_label(node, label, sizeof label), node->domain, *node->domain ? "." : "",
                node->op_type);
    }
    int inputs = node->post_count ? node->base_input_count : node->input_count;
    if (inputs < info->min_in || (info->max_in >= 0 && inputs > info->max_in))
        HN_FAIL(err, HONE_ERR_FORMAT, "%s has %d inputs where %d to %d are due",
                hn_node_label(node, label, sizeof label), inputs, info->min_in, info->max_in);
    if (node->output_count < info->min_out ||
        (info->max_out >= 0 && node->output_count > info->max_out))
        HN_FAIL(err, HONE_ERR_FORMAT, "%s has %d outputs where %d to %d are due",
                hn_node_label(node, label, sizeof label), node->output_count, info->min_out,
                info->max_out);
    for (int i = 0; i < info->min_in; i++)
        if (!node->inputs[i])
            HN_FAIL(err, HONE_ERR_FORMAT, "%s: required input %d is absent",
                    hn_node_label(node, label, sizeof label), i);
    for (int p = 0; p < node->post_count; p++) {
        const hn_post *post = &node->post[p];
        if (post->input >= node->input_count || post->scale >= node->input_count ||
            post->zero >= node->input_count)
            HN_FAIL(err, HONE_ERR_INTERNAL, "%s: fused step %d names an input that is not there",
                    hn_node_label(node, label, sizeof label), p);
    }
    return verify_attrs(err, node);
}

static hn_status verify_graph(hone_error *err, const hn_graph *graph, bool allow_unknown) {
    for (const hn_node *node = graph->first; node; node = node->next) {
        HN_TRY(verify_node(err, node, allow_unknown));
        for (int i = 0; i < node->attr_count; i++)
            if (node->attrs[i].type == HN_ATTR_GRAPH)
                HN_TRY(verify_graph(err, node->attrs[i].graph, allow_unknown));
    }
    return HONE_OK;
}

hn_status hn_ops_verify(hone_error *err, const hn_module *module, bool allow_unknown) {
    return verify_graph(err, module->main, allow_unknown);
}

static void resolve_graph(hn_graph *graph) {
    for (hn_node *node = graph->first; node; node = node->next) {
        node->op = hn_op_find(node->domain, node->op_type);
        for (int i = 0; i < node->post_count; i++)
            if (node->post[i].op_type) node->post[i].op = hn_op_find("", node->post[i].op_type);
        for (int i = 0; i < node->attr_count; i++)
            if (node->attrs[i].type == HN_ATTR_GRAPH) resolve_graph(node->attrs[i].graph);
    }
}

hn_status hn_ops_resolve(hone_error *err, hn_module *module) {
    (void)err;
    resolve_graph(module->main);
    return HONE_OK;
}

// ---- cost ---------------------------------------------------------------------------------------
static double value_bytes(const hn_value *value) {
    hn_shape shape;
    size_t bytes;
    if (!value || !hn_type_shape(&value->type, &shape) ||
        !hn_shape_bytes(&shape, value->type.dtype, &bytes))
        return 0;
    return (double)bytes;
}

void hn_node_cost(const hn_node *node, hn_cost *out_cost) {
    const hn_op_info *info = hn_op_get(node->op);
    hn_cost cost = {0};
    for (int i = 0; i < node->input_count; i++)
        cost.read_bytes += value_bytes(node->inputs[i]);
    for (int i = 0; i < node->output_count; i++)
        cost.write_bytes += value_bytes(node->outputs[i]);
    hn_shape shape;
    int64_t count = 0;
    const hn_value *out = hn_out(node, 0);
    if (out && hn_type_shape(&out->type, &shape)) (void)hn_shape_count(&shape, &count);
    hn_node base = *node; // without the operands of posts
    if (node->post_count) base.input_count = node->base_input_count;
    if (info->cost)
        info->cost(&base, &cost);
    else if (info->traits & HN_T_ELEMENTWISE)
        cost.flops = (double)count;
    else if (info->traits & HN_T_VIEW)
        cost = (hn_cost){0};
    cost.flops += (double)count * node->post_count;
    *out_cost = cost;
}
