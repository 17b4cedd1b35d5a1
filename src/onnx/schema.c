// SPDX-License-Identifier: Apache-2.0
// What each opset of the standard domain allows (schema.def), asked for single nodes.
#include "onnx/onnx_int.h"

typedef struct schema_row {
    const char *op;
    int since, max_in, max_out;
    const char *attributes, *types;
} schema_row;

static const schema_row k_rows[] = {
#define HN_SCHEMA(op, since, max_in, max_out, attributes, types)                                   \
    {#op, since, max_in, max_out, attributes, types},
#include "onnx/schema.def"
#undef HN_SCHEMA
};

static bool has_word(const char *words, const char *word) {
    size_t length = strlen(word);
    for (const char *at = words; (at = strstr(at, word)); at += length) {
        bool starts = at == words || at[-1] == ' ';
        if (starts && (at[length] == ' ' || at[length] == '\0')) return true;
    }
    return false;
}

static bool admits_types(const schema_row *row, const hn_node *node) {
    const char *types = row->types;
    for (int i = 0; i < node->input_count && *types; i++) {
        size_t length = strcspn(types, " ");
        const hn_value *value = node->inputs[i];
        if (value && value->type.dtype != HN_NONE && *types != '-' &&
            !memchr(types, 'a' + (int)value->type.dtype - 1, length))
            return false;
        if (types[length]) types += length + 1; // the last entry stays for variadic inputs
    }
    return true;
}

static bool admits(const schema_row *row, const hn_node *node) {
    if (row->max_in >= 0 && node->input_count > row->max_in) return false;
    if (row->max_out >= 0 && node->output_count > row->max_out) return false;
    for (int i = 0; i < node->attr_count; i++)
        if (!has_word(row->attributes, node->attrs[i].name)) return false;
    return admits_types(row, node);
}

// First row of the op: the rows are sorted by name as strcmp has it.
static size_t find(const char *op_type) {
    size_t lo = 0, hi = HN_COUNT_OF(k_rows);
    while (lo < hi) {
        size_t middle = lo + (hi - lo) / 2;
        if (strcmp(k_rows[middle].op, op_type) < 0)
            lo = middle + 1;
        else
            hi = middle;
    }
    return lo;
}

int hn_onnx_needs(const hn_node *node) {
    if (*node->domain) return node->version;
    int from = hn_onnx_valid_from(node);
    size_t at = find(node->op_type);
    for (; at < HN_COUNT_OF(k_rows) && strcmp(k_rows[at].op, node->op_type) == 0; at++) {
        bool last = at + 1 == HN_COUNT_OF(k_rows) || strcmp(k_rows[at + 1].op, node->op_type) != 0;
        if (!last && k_rows[at + 1].since <= from) continue; // over before the meaning begins
        if (!admits(&k_rows[at], node)) continue;
        return k_rows[at].since > from ? k_rows[at].since : from;
    }
    return node->version;
}
