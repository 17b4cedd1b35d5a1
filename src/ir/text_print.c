// SPDX-License-Identifier: Apache-2.0
// Printing modules as text: docs/ir-text.md is the grammar.
//
// A value is written by its name where that is unique in the module, else by a number given in
// order of definition; nothing depends on ids or addresses, so equal modules print equally.
#include "ir/text_int.h"
#include <math.h>
#include <stdlib.h>

// ---- content of constants -----------------------------------------------------------------------

uint64_t hn_text_get_bits(const hn_tensor *tensor, int64_t index) {
    const unsigned char *bytes = tensor->data;
    int bits = hn_dtype_bits(tensor->dtype);
    uint64_t value = 0;
    if (bits >= 8) {
        memcpy(&value, bytes + index * (bits / 8), (size_t)bits / 8);
        return value;
    }
    int per_byte = 8 / bits;
    return (uint64_t)(bytes[index / per_byte] >> (index % per_byte * bits)) & ((1u << bits) - 1);
}

void hn_text_set_bits(hn_tensor *tensor, int64_t index, uint64_t value) {
    unsigned char *bytes = tensor->data;
    int bits = hn_dtype_bits(tensor->dtype);
    if (bits >= 8) {
        memcpy(bytes + index * (bits / 8), &value, (size_t)bits / 8);
        return;
    }
    int per_byte = 8 / bits, shift = (int)(index % per_byte) * bits;
    unsigned mask = ((1u << bits) - 1) << shift;
    bytes[index / per_byte] =
        (unsigned char)((bytes[index / per_byte] & ~mask) | (((unsigned)value << shift) & mask));
}

static uint64_t mix(uint64_t x) { // splitmix64's output function
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

static bool has_sign(hn_dtype dtype) {
    return hn_dtype_is_float(dtype) && dtype != HN_F8E8M0;
}

// Writes element i of a filled tensor at index `at`. The seed's bit i decides the sign of a float
// or the lowest bit of an integer.
static void fill_element(hn_tensor *tensor, int64_t at, int64_t i, uint32_t seed) {
    uint64_t random = mix(((uint64_t)seed << 32) + 0x9e3779b97f4a7c15ull * (uint64_t)(i + 1));
    bool bit = i < 32 ? (seed >> i) & 1 : random & 1;
    if (has_sign(tensor->dtype)) {
        double magnitude = 0x1p-3 + (double)(random >> 40) * 0x1p-25; // [0.125, 0.625)
        if (tensor->dtype == HN_F4E2M1) magnitude = 0.5 * (double)(1 + random % 7);
        hn_tensor_set_f64(tensor, at, bit ? -magnitude : magnitude);
    } else if (tensor->dtype == HN_BOOL || hn_dtype_bits(tensor->dtype) < 8) {
        hn_text_set_bits(tensor, at, bit);
    } else {
        uint64_t base = tensor->dtype == HN_F8E8M0 ? 124 : 0;
        hn_text_set_bits(tensor, at, base + (random >> 40) % 8 * 2 + bit);
    }
}

void hn_text_fill(hn_tensor *tensor, uint32_t seed) {
    int64_t count = hn_tensor_count(tensor);
    if (tensor->bytes) memset(tensor->data, 0, tensor->bytes); // padding bits of packed types
    for (int64_t i = 0; i < count; i++)
        fill_element(tensor, i, i, seed);
}

uint32_t hn_text_seed(const hn_tensor *tensor) {
    uint32_t seed = 0;
    for (int i = 0; i < 32; i++) {
        bool bit = has_sign(tensor->dtype) ? hn_tensor_get_f64(tensor, i) < 0
                                           : (hn_text_get_bits(tensor, i) & 1) != 0;
        seed |= (uint32_t)bit << i;
    }
    unsigned char room[16] = {0};
    hn_tensor one = {.dtype = tensor->dtype, .data = room, .bytes = sizeof room};
    int64_t count = hn_tensor_count(tensor);
    for (int64_t i = 0; i < count; i++) {
        fill_element(&one, 0, i, seed);
        if (hn_text_get_bits(&one, 0) != hn_text_get_bits(tensor, i))
            return (uint32_t)mix(hn_hash_bytes(tensor->data, tensor->bytes, HN_HASH_SEED));
    }
    return seed;
}

// ---- tokens -------------------------------------------------------------------------------------

typedef struct printer {
    hn_str *out;
    const hn_module *module;
    int32_t *number; // by value id: number + 1, 0: none yet
    bool *by_name;   // by value id
    int32_t next_number;
    bool failed;
} printer;

static void put_quoted(hn_str *out, const char *text, size_t length) {
    hn_str_append(out, "\"");
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == '"' || c == '\\' || c < 32 || c == 127)
            hn_str_printf(out, "\\%02x", c);
        else
            hn_str_append_n(out, text + i, 1);
    }
    hn_str_append(out, "\"");
}

static void put_text(hn_str *out, const char *text) {
    put_quoted(out, text, strlen(text));
}

static bool is_word(const char *text) {
    if (!((*text >= 'a' && *text <= 'z') || (*text >= 'A' && *text <= 'Z') || *text == '_'))
        return false;
    for (; *text; text++) {
        bool ok = (*text >= 'a' && *text <= 'z') || (*text >= 'A' && *text <= 'Z') ||
                  (*text >= '0' && *text <= '9') || *text == '_' || *text == '.' || *text == '/';
        if (!ok) return false;
    }
    return true;
}

static void put_word(hn_str *out, const char *text) {
    if (is_word(text))
        hn_str_append(out, text);
    else
        put_text(out, text);
}

static void put_value(printer *p, const hn_value *value) {
    if (!value) {
        hn_str_append(p->out, "_");
        return;
    }
    hn_str_append(p->out, "%");
    if (p->by_name[value->id]) {
        put_word(p->out, value->name);
        return;
    }
    if (!p->number[value->id]) p->number[value->id] = ++p->next_number;
    hn_str_printf(p->out, "%d", p->number[value->id] - 1);
}

static void put_type(printer *p, const hn_type *type) {
    if (type->dtype == HN_NONE && type->rank < 0) return;
    hn_str_printf(p->out, " : %s[", hn_dtype_name(type->dtype));
    if (type->rank < 0) hn_str_append(p->out, "*");
    for (int i = 0; i < type->rank; i++) {
        if (i) hn_str_append(p->out, ", ");
        hn_dim_print(p->out, p->module->dims, type->dims[i]);
    }
    hn_str_append(p->out, "]");
}

// Where a value is defined: its token, its name if the token does not tell it, type and doc.
static void put_definition(printer *p, const hn_value *value) {
    put_value(p, value);
    if (!value) return;
    if (*value->name && !p->by_name[value->id]) {
        hn_str_append(p->out, " as ");
        put_text(p->out, value->name);
    }
    put_type(p, &value->type);
    if (value->doc) {
        hn_str_append(p->out, " doc ");
        put_text(p->out, value->doc);
    }
}

static void put_float(hn_str *out, double value, int digits) {
    if (isinf(value))
        hn_str_append(out, value < 0 ? "-inf" : "inf");
    else if (isnan(value))
        hn_str_append(out, "nan");
    else
        hn_str_printf(out, "%.*g", digits, value);
}

static void put_element(hn_str *out, const hn_tensor *tensor, int64_t i) {
    hn_dtype dtype = tensor->dtype;
    if (dtype == HN_STRING) {
        const hn_slice *text = (const hn_slice *)tensor->data + i;
        put_quoted(out, text->data, text->length);
    } else if (dtype == HN_C64 || dtype == HN_C128) {
        int half = hn_dtype_bits(dtype) / 2;
        hn_tensor parts = {.dtype = half == 32 ? HN_F32 : HN_F64, .data = tensor->data};
        hn_str_printf(out, "0x%llx 0x%llx", (unsigned long long)hn_text_get_bits(&parts, 2 * i),
                      (unsigned long long)hn_text_get_bits(&parts, 2 * i + 1));
    } else if (hn_dtype_is_float(dtype)) {
        double value = hn_tensor_get_f64(tensor, i);
        // NaNs and 8-bit floats by their bits: payloads and saturation would not survive.
        if (isnan(value) || hn_dtype_bits(dtype) <= 8)
            hn_str_printf(out, "0x%llx", (unsigned long long)hn_text_get_bits(tensor, i));
        else
            put_float(out, value, dtype == HN_F64 ? 17 : 9);
    } else if (dtype == HN_U64) {
        hn_str_printf(out, "%llu", (unsigned long long)hn_tensor_get_i64(tensor, i));
    } else {
        hn_str_printf(out, "%lld", (long long)hn_tensor_get_i64(tensor, i));
    }
}

static void put_content(hn_str *out, const hn_tensor *tensor) {
    int64_t count = hn_tensor_count(tensor);
    bool full = count <= TEXT_FULL_ELEMENTS || tensor->dtype == HN_STRING ||
                tensor->dtype == HN_C64 || tensor->dtype == HN_C128;
    if (!full) {
        hn_str_printf(out, " random 0x%08x", hn_text_seed(tensor));
        return;
    }
    hn_str_append(out, " {");
    for (int64_t i = 0; i < count; i++) {
        if (i) hn_str_append(out, ", ");
        put_element(out, tensor, i);
    }
    hn_str_append(out, "}");
}

// ---- graphs -------------------------------------------------------------------------------------

static void put_graph(printer *p, const hn_graph *graph, int indent);

static void put_indent(printer *p, int indent) {
    for (int i = 0; i < indent; i++)
        hn_str_append(p->out, "  ");
}

static void put_attr(printer *p, const hn_attr *attr, int indent) {
    put_word(p->out, attr->name);
    hn_str_append(p->out, " = ");
    hn_str *out = p->out;
    bool list =
        attr->type == HN_ATTR_INTS || attr->type == HN_ATTR_FLOATS || attr->type == HN_ATTR_STRINGS;
    if (list) hn_str_append(out, "[");
    for (int64_t i = 0; list && i < attr->count; i++) {
        if (i) hn_str_append(out, ", ");
        if (attr->type == HN_ATTR_INTS) {
            hn_str_printf(out, "%lld", (long long)attr->ints[i]);
        } else if (attr->type == HN_ATTR_FLOATS) {
            put_float(out, (double)attr->floats[i], 9);
            hn_str_append(out, "f");
        } else {
            put_quoted(out, attr->strings[i].data, attr->strings[i].length);
        }
    }
    if (list) hn_str_append(out, "]");
    switch (attr->type) {
    case HN_ATTR_INT:
        hn_str_printf(out, "%lld", (long long)attr->i);
        break;
    case HN_ATTR_FLOAT:
        put_float(out, (double)attr->f, 9);
        hn_str_append(out, "f");
        break;
    case HN_ATTR_STRING:
        put_quoted(out, attr->s.data, attr->s.length);
        break;
    case HN_ATTR_TENSOR:
        hn_str_append(out, "tensor");
        hn_type type;
        hn_type_set_shape(&type, attr->tensor->dtype, &attr->tensor->shape);
        put_type(p, &type);
        put_content(out, attr->tensor);
        break;
    case HN_ATTR_GRAPH:
        put_graph(p, attr->graph, indent + 1);
        break;
    case HN_ATTR_INTS:
        hn_str_append(out, attr->count ? "" : "i");
        break;
    case HN_ATTR_FLOATS:
        hn_str_append(out, attr->count ? "" : "f");
        break;
    case HN_ATTR_STRINGS:
        hn_str_append(out, attr->count ? "" : "s");
        break;
    }
}

static void put_post(printer *p, const hn_post *post) {
    hn_str *out = p->out;
    hn_str_append(out, " post ");
    if (post->op_type)
        put_word(out, post->op_type);
    else
        hn_str_printf(out, "#%u", post->op);
    if (post->input >= 0) hn_str_printf(out, " in %d", post->input);
    if (post->swapped) hn_str_append(out, " swapped");
    if (post->scale >= 0) hn_str_printf(out, " scale %d", post->scale);
    if (post->zero >= 0) hn_str_printf(out, " zero %d", post->zero);
    const float parameters[] = {post->alpha, post->beta};
    for (int i = 0; i < 2; i++) {
        if (parameters[i] == 0 && !signbit(parameters[i])) continue;
        hn_str_append(out, i ? " beta " : " alpha ");
        put_float(out, (double)parameters[i], 9);
        hn_str_append(out, "f");
    }
}

static void put_node(printer *p, const hn_node *node, int indent) {
    hn_str *out = p->out;
    put_indent(p, indent);
    for (int i = 0; i < node->output_count; i++) {
        if (i) hn_str_append(out, ", ");
        put_definition(p, node->outputs[i]);
    }
    hn_str_append(out, node->output_count ? " = " : "= ");
    if (*node->domain) {
        put_word(out, node->domain);
        hn_str_append(out, "::");
    }
    put_word(out, node->op_type);
    hn_str_printf(out, "@%d(", node->version);
    for (int i = 0; i < node->input_count; i++) {
        bool operands = node->post_count && i == node->base_input_count;
        hn_str_append(out, operands ? (i ? " | " : "| ") : i ? ", " : "");
        put_value(p, node->inputs[i]);
    }
    hn_str_append(out, ")");
    if (node->attr_count) {
        hn_str_append(out, " {");
        for (int i = 0; i < node->attr_count; i++) {
            if (i) hn_str_append(out, ", ");
            put_attr(p, &node->attrs[i], indent);
        }
        hn_str_append(out, "}");
    }
    for (int i = 0; i < node->post_count; i++)
        put_post(p, &node->post[i]);
    if (node->compute != HN_NONE) hn_str_printf(out, " compute %s", hn_dtype_name(node->compute));
    if (node->plain) hn_str_append(out, " plain");
    if (*node->name) {
        hn_str_append(out, " name ");
        put_text(out, node->name);
    }
    hn_str_append(out, "\n");
}

static void put_constant(printer *p, const hn_value *value, int indent) {
    put_indent(p, indent);
    hn_str_append(p->out, value->overridable ? "overridable " : "const ");
    put_definition(p, value);
    hn_str_append(p->out, " =");
    put_content(p->out, value->constant);
    hn_str_append(p->out, "\n");
}

static int by_id(const void *a, const void *b) {
    uint32_t x = (*(hn_value *const *)a)->id, y = (*(hn_value *const *)b)->id;
    return (x > y) - (x < y);
}

static void put_constants(printer *p, const hn_graph *graph, int indent) {
    for (size_t i = 0; i < graph->overridables.count; i++)
        put_constant(p, graph->overridables.data[i], indent);
    HN_VEC(hn_value *) sorted = {0};
    for (size_t i = 0; i < graph->values.count; i++) {
        hn_value *value = graph->values.data[i];
        if (value->constant && !value->overridable && !hn_vec_push(&sorted, value))
            p->failed = true;
    }
    if (sorted.count) qsort(sorted.data, sorted.count, sizeof *sorted.data, by_id);
    for (size_t i = 0; i < sorted.count; i++)
        put_constant(p, sorted.data[i], indent);
    hn_vec_free(&sorted);
}

static void put_graph(printer *p, const hn_graph *graph, int indent) {
    hn_str_append(p->out, "graph ");
    put_text(p->out, graph->name);
    hn_str_append(p->out, " {\n");
    for (size_t i = 0; i < graph->inputs.count; i++) {
        put_indent(p, indent + 1);
        hn_str_append(p->out, "input ");
        put_definition(p, graph->inputs.data[i]);
        hn_str_append(p->out, "\n");
    }
    put_constants(p, graph, indent + 1);
    for (const hn_node *node = graph->first; node; node = node->next)
        put_node(p, node, indent + 1);
    for (size_t i = 0; i < graph->outputs.count; i++) {
        put_indent(p, indent + 1);
        hn_str_append(p->out, "output ");
        put_value(p, graph->outputs.data[i]);
        hn_str_append(p->out, "\n");
    }
    put_indent(p, indent);
    hn_str_append(p->out, "}");
}

// ---- module -------------------------------------------------------------------------------------

// Marks the values whose names occur once in the module.
static bool choose_names(printer *p) {
    const hn_module *module = p->module;
    size_t count = 0, slots = 16;
    for (size_t i = 0; i < module->graphs.count; i++)
        count += module->graphs.data[i]->values.count;
    while (slots < count * 2)
        slots *= 2;
    const hn_value **table = hn_calloc(slots, sizeof *table);
    if (!table) return false;
    for (size_t i = 0; i < module->graphs.count; i++) {
        const hn_graph *graph = module->graphs.data[i];
        for (size_t j = 0; j < graph->values.count; j++) {
            const hn_value *value = graph->values.data[j];
            if (!*value->name) continue;
            size_t at = hn_hash_bytes(value->name, strlen(value->name), HN_HASH_SEED) & (slots - 1);
            while (table[at] && strcmp(table[at]->name, value->name) != 0)
                at = (at + 1) & (slots - 1);
            p->by_name[value->id] = !table[at];
            if (table[at])
                p->by_name[table[at]->id] = false;
            else
                table[at] = value;
        }
    }
    hn_free(table);
    return true;
}

static void put_header(printer *p) {
    const hn_module *module = p->module;
    hn_str *out = p->out;
    hn_str_append(out, "hone-ir 1\n");
    if (module->ir_version) hn_str_printf(out, "ir_version %lld\n", (long long)module->ir_version);
    const struct {
        const char *word, *text;
    } texts[] = {{"producer", module->producer_name},
                 {"producer_version", module->producer_version},
                 {"domain", module->domain},
                 {"doc", module->doc}};
    for (size_t i = 0; i < HN_COUNT_OF(texts); i++) {
        if (!texts[i].text || !*texts[i].text) continue;
        hn_str_printf(out, "%s ", texts[i].word);
        put_text(out, texts[i].text);
        hn_str_append(out, "\n");
    }
    if (module->model_version)
        hn_str_printf(out, "model_version %lld\n", (long long)module->model_version);
    for (size_t i = 0; i < module->opsets.count; i++) {
        hn_str_append(out, "opset ");
        put_text(out, module->opsets.data[i].domain);
        hn_str_printf(out, " %d\n", module->opsets.data[i].version);
    }
    for (size_t i = 0; i < module->metadata.count; i++) {
        hn_str_append(out, "meta ");
        put_text(out, module->metadata.data[i].key);
        hn_str_append(out, " ");
        put_text(out, module->metadata.data[i].value);
        hn_str_append(out, "\n");
    }
    for (size_t i = 0; i < hn_dims_symbol_count(module->dims); i++) {
        hn_dim symbol = hn_dims_symbol_at(module->dims, i);
        int64_t lo, hi, divisor = hn_dim_divisor(module->dims, symbol);
        hn_dim_range(module->dims, symbol, &lo, &hi);
        if (lo == 0 && hi == INT64_MAX && divisor == 1) continue;
        hn_str_append(out, "dim ");
        hn_dim_print(out, module->dims, symbol);
        hn_str_printf(out, " from %lld to %lld", (long long)lo, (long long)hi);
        if (divisor != 1) hn_str_printf(out, " times %lld", (long long)divisor);
        hn_str_append(out, "\n");
    }
}

void hn_module_print(hn_str *out, const hn_module *module) {
    size_t ids = (size_t)module->next_value_id + 1;
    printer p = {.out = out, .module = module};
    p.number = hn_calloc(ids, sizeof *p.number);
    p.by_name = hn_calloc(ids, sizeof *p.by_name);
    if (p.number && p.by_name && choose_names(&p)) {
        put_header(&p);
        put_graph(&p, module->main, 0);
        hn_str_append(out, "\n");
    } else {
        p.failed = true;
    }
    if (p.failed) out->failed = true;
    hn_free(p.number);
    hn_free(p.by_name);
}
