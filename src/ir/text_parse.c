// SPDX-License-Identifier: Apache-2.0
// Parsing the text form: docs/ir-text.md is the grammar; recursive descent over the whole text.
//
// Anything may be fed in here (tests, fuzzing): sizes, depths and numbers are bounded, and the
// result has passed the verifier. Errors name the line.
#include "ir/text_int.h"
#include <math.h>

#define MAX_DEPTH         64           // of sub-graphs
#define MAX_CONTENT_BYTES (1ull << 30) // of all constants together
#define MAX_OUTPUTS       4096

typedef struct name_slot {
    const char *key; // token text without %
    hn_value *value;
} name_slot;

typedef struct parser {
    hone_error *err;
    const char *at, *end;
    int line;
    hn_module *module;
    name_slot *slots;
    size_t slot_count, used;
    uint64_t content_bytes;
    int depth;
} parser;

#define BAD(p, ...)                                                                                \
    do {                                                                                           \
        HN_SET((p)->err, HONE_ERR_FORMAT, __VA_ARGS__);                                            \
        hn_error_frame((p)->err, "line %d", (p)->line);                                            \
        return HONE_ERR_FORMAT;                                                                    \
    } while (0)

// ---- characters ---------------------------------------------------------------------------------

static char peek(const parser *p) {
    return p->at < p->end ? *p->at : '\0';
}

static void skip(parser *p) {
    for (; p->at < p->end; p->at++) {
        if (*p->at == '#') {
            while (p->at < p->end && *p->at != '\n')
                p->at++;
            if (p->at == p->end) return;
        }
        if (*p->at == '\n')
            p->line++;
        else if (*p->at != ' ' && *p->at != '\t' && *p->at != '\r')
            return;
    }
}

static bool word_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.' || c == '/';
}

// A bare word; empty when none stands here.
static hn_slice word(parser *p) {
    skip(p);
    const char *begin = p->at;
    while (p->at < p->end && word_char(*p->at))
        p->at++;
    return (hn_slice){begin, (size_t)(p->at - begin)};
}

// Takes the word if it is next.
static bool take_word(parser *p, const char *text) {
    const char *before = p->at;
    int line = p->line;
    if (hn_slice_eq(word(p), text)) return true;
    p->at = before;
    p->line = line;
    return false;
}

static bool take(parser *p, const char *token) {
    skip(p);
    size_t length = strlen(token);
    if ((size_t)(p->end - p->at) < length || memcmp(p->at, token, length) != 0) return false;
    p->at += length;
    return true;
}

static hn_status expect(parser *p, const char *token) {
    if (take(p, token)) return HONE_OK;
    int length = p->end - p->at < 16 ? (int)(p->end - p->at) : 16;
    BAD(p, "the graph text has '%.*s' where '%s' is due", length, p->at, token);
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
}

// A quoted string, copied into the arena.
static hn_status quoted(parser *p, hn_slice *out) {
    HN_TRY(expect(p, "\""));
    const char *begin = p->at;
    while (p->at < p->end && *p->at != '"' && *p->at != '\n')
        p->at++;
    if (peek(p) != '"') BAD(p, "a string of the graph text is not closed");
    char *copy = hn_arena_alloc(&p->module->arena, (size_t)(p->at - begin) + 1);
    if (!copy) HN_NOMEM(p->err, "parsing");
    size_t length = 0;
    for (const char *c = begin; c < p->at; c++) {
        if (*c != '\\') {
            copy[length++] = *c;
            continue;
        }
        int high = p->at - c > 2 ? hex_digit(c[1]) : -1, low = high >= 0 ? hex_digit(c[2]) : -1;
        if (low < 0) BAD(p, "a string of the graph text has a bad escape");
        copy[length++] = (char)(high * 16 + low);
        c += 2;
    }
    copy[length] = '\0';
    p->at++;
    *out = (hn_slice){copy, length};
    return HONE_OK;
}

// A string that serves as a C string.
static hn_status text(parser *p, const char **out) {
    hn_slice slice;
    HN_TRY(quoted(p, &slice));
    if (memchr(slice.data, '\0', slice.length))
        BAD(p, "a name of the graph text holds a zero byte");
    *out = slice.data;
    return HONE_OK;
}

static hn_status word_or_text(parser *p, const char **out) {
    skip(p);
    if (peek(p) == '"') return text(p, out);
    hn_slice bare = word(p);
    if (!bare.length) BAD(p, "the graph text lacks a word");
    *out = hn_arena_strndup(&p->module->arena, bare.data, bare.length);
    if (!*out) HN_NOMEM(p->err, "parsing");
    return HONE_OK;
}

// A number's text: sign, digits, letters (inf, nan, hex), point and exponent.
static hn_slice number_text(parser *p) {
    skip(p);
    const char *begin = p->at;
    while (p->at < p->end) {
        bool sign = (*p->at == '-' || *p->at == '+') &&
                    (p->at == begin || p->at[-1] == 'e' || p->at[-1] == 'E');
        if (!sign && !word_char(*p->at)) break;
        p->at++;
    }
    return (hn_slice){begin, (size_t)(p->at - begin)};
}

static hn_status integer(parser *p, int64_t *out) {
    hn_slice number = number_text(p);
    if (!hn_parse_i64(number, out))
        BAD(p, "the graph text has '%.*s' where an integer is due",
            (int)(number.length < 40 ? number.length : 40), number.data);
    return HONE_OK;
}

static hn_status small_integer(parser *p, int64_t least, int64_t most, int *out) {
    int64_t value = 0;
    HN_TRY(integer(p, &value));
    if (value < least || value > most)
        BAD(p, "the graph text has %lld where %lld to %lld is due", (long long)value,
            (long long)least, (long long)most);
    *out = (int)value;
    return HONE_OK;
}

static bool read_double(hn_slice number, double *out) {
    if (hn_slice_eq(number, "inf"))
        *out = INFINITY;
    else if (hn_slice_eq(number, "-inf"))
        *out = -INFINITY;
    else if (hn_slice_eq(number, "nan"))
        *out = NAN;
    else
        return hn_parse_f64(number, out);
    return true;
}

static bool read_hex(hn_slice number, uint64_t *out) {
    if (number.length < 3 || number.length > 18 || !hn_slice_starts(number, "0x")) return false;
    uint64_t value = 0;
    for (size_t i = 2; i < number.length; i++) {
        int digit = hex_digit(number.data[i]);
        if (digit < 0) return false;
        value = value << 4 | (uint64_t)digit;
    }
    *out = value;
    return true;
}

// "0.5f": the f tells it from an integer.
static bool read_float(hn_slice number, float *out) {
    double value;
    if (!number.length || number.data[number.length - 1] != 'f') return false;
    number.length--;
    if (!read_double(number, &value)) return false;
    *out = (float)value;
    return true;
}

static hn_status float_parameter(parser *p, float *out) {
    hn_slice number = number_text(p);
    if (!read_float(number, out)) BAD(p, "the graph text lacks a number like 0.5f");
    return HONE_OK;
}

// ---- values -------------------------------------------------------------------------------------

static name_slot *find_slot(parser *p, hn_slice key) {
    size_t at = hn_hash_bytes(key.data, key.length, HN_HASH_SEED) & (p->slot_count - 1);
    while (p->slots[at].key && !hn_slice_eq(key, p->slots[at].key))
        at = (at + 1) & (p->slot_count - 1);
    return &p->slots[at];
}

static hn_status grow_slots(parser *p) {
    if (p->used * 2 < p->slot_count) return HONE_OK;
    name_slot *old = p->slots;
    size_t old_count = p->slot_count;
    size_t count = old_count ? old_count * 2 : 256;
    name_slot *grown = hn_calloc(count, sizeof *grown);
    if (!grown) HN_NOMEM(p->err, "parsing");
    p->slots = grown;
    p->slot_count = count;
    for (size_t i = 0; i < old_count; i++)
        if (old[i].key) *find_slot(p, (hn_slice){old[i].key, strlen(old[i].key)}) = old[i];
    hn_free(old);
    return HONE_OK;
}

// The token after '%'. Numbers and names share one table: a name never begins with a digit unless
// quoted, and then its key gets a quote in front.
static hn_status value_key(parser *p, const char **out_key, const char **out_name) {
    HN_TRY(expect(p, "%"));
    bool is_quoted = peek(p) == '"';
    const char *token;
    HN_TRY(word_or_text(p, &token));
    bool numbered = !is_quoted && *token >= '0' && *token <= '9';
    *out_name = numbered ? "" : token;
    *out_key = numbered ? token : hn_arena_printf(&p->module->arena, "\"%s", token);
    if (!*out_key) HN_NOMEM(p->err, "parsing");
    return HONE_OK;
}

static hn_status value_use(parser *p, hn_value **out) {
    const char *key, *name;
    skip(p);
    if (peek(p) == '_') {
        p->at++;
        *out = NULL;
        return HONE_OK;
    }
    HN_TRY(value_key(p, &key, &name));
    HN_TRY(grow_slots(p));
    name_slot *slot = find_slot(p, (hn_slice){key, strlen(key)});
    if (!slot->key) BAD(p, "value %%%s is used before its definition", *name ? name : key);
    *out = slot->value;
    return HONE_OK;
}

static hn_status type_of(parser *p, hn_type *out) {
    *out = (hn_type){.rank = -1};
    if (!take(p, ":")) return HONE_OK;
    if (!take(p, "?")) {
        hn_slice name = word(p);
        out->dtype = hn_dtype_from_name(name);
        if (out->dtype == HN_NONE)
            BAD(p, "there is no element type '%.*s'", (int)(name.length < 40 ? name.length : 40),
                name.data);
    }
    HN_TRY(expect(p, "["));
    if (take(p, "*")) return expect(p, "]");
    out->rank = 0;
    if (take(p, "]")) return HONE_OK;
    do {
        if (out->rank == HN_MAX_RANK) BAD(p, "a type has more than %d dims", HN_MAX_RANK);
        hn_slice rest = {p->at, (size_t)(p->end - p->at)};
        hone_status status =
            hn_dim_parse_prefix(p->err, p->module->dims, &rest, &out->dims[out->rank]);
        if (status != HONE_OK) {
            hn_error_frame(p->err, "line %d", p->line);
            return status;
        }
        out->rank++;
        p->at = rest.data;
    } while (take(p, ","));
    return expect(p, "]");
}

// What a definition says; the value itself is made by whoever knows of what kind it is.
typedef struct definition {
    const char *key, *name, *doc;
    hn_type type;
} definition;

static hn_status define(parser *p, definition *out) {
    *out = (definition){0};
    HN_TRY(value_key(p, &out->key, &out->name));
    if (take_word(p, "as")) HN_TRY(text(p, &out->name));
    HN_TRY(type_of(p, &out->type));
    if (take_word(p, "doc")) HN_TRY(text(p, &out->doc));
    return HONE_OK;
}

static hn_status bind(parser *p, const definition *d, hn_value *value) {
    if (!value) HN_NOMEM(p->err, "parsing");
    if (!hn_value_set_name(value, d->name)) HN_NOMEM(p->err, "parsing");
    value->doc = d->doc;
    HN_TRY(grow_slots(p));
    name_slot *slot = find_slot(p, (hn_slice){d->key, strlen(d->key)});
    if (slot->key) BAD(p, "value %%%s is defined twice", *d->name ? d->name : d->key);
    *slot = (name_slot){d->key, value};
    p->used++;
    return HONE_OK;
}

// ---- content ------------------------------------------------------------------------------------

static hn_status element(parser *p, hn_tensor *tensor, int64_t i) {
    if (tensor->dtype == HN_STRING) return quoted(p, (hn_slice *)tensor->data + i);
    hn_slice number = number_text(p);
    uint64_t bits;
    int64_t whole;
    double value;
    if (tensor->dtype == HN_C64 || tensor->dtype == HN_C128) {
        hn_tensor parts = {.dtype = tensor->dtype == HN_C64 ? HN_F32 : HN_F64,
                           .data = tensor->data};
        uint64_t imaginary;
        if (!read_hex(number, &bits) || !read_hex(number_text(p), &imaginary))
            BAD(p, "a complex element is not written as two hexadecimal numbers");
        hn_text_set_bits(&parts, 2 * i, bits);
        hn_text_set_bits(&parts, 2 * i + 1, imaginary);
    } else if (read_hex(number, &bits)) {
        hn_text_set_bits(tensor, i, bits);
    } else if (hn_dtype_is_float(tensor->dtype) && read_double(number, &value)) {
        hn_tensor_set_f64(tensor, i, value);
    } else if (!hn_dtype_is_float(tensor->dtype) && hn_parse_i64(number, &whole)) {
        hn_tensor_set_i64(tensor, i, whole);
    } else if (tensor->dtype == HN_U64 && number.length && number.data[0] != '-' &&
               hn_parse_f64(number, &value) && value < 0x1p64) {
        uint64_t large = 0; // beyond int64: digit by digit, it fits
        for (size_t k = 0; k < number.length; k++)
            large = large * 10 + (uint64_t)(number.data[k] - '0');
        hn_text_set_bits(tensor, i, large);
    } else {
        BAD(p, "'%.*s' is no element of type %s", (int)(number.length < 40 ? number.length : 40),
            number.data, hn_dtype_name(tensor->dtype));
    }
    return HONE_OK;
}

static hn_status content(parser *p, const hn_type *type, hn_tensor *out) {
    hn_shape shape;
    size_t bytes;
    hn_tensor tensor = {0};
    if (!hn_type_shape(type, &shape) || !hn_shape_bytes(&shape, type->dtype, &bytes))
        BAD(p, "a constant needs an element type and a shape of numbers");
    int64_t count = 0;
    (void)hn_shape_count(&shape, &count);
    p->content_bytes += bytes;
    if (bytes > MAX_CONTENT_BYTES || p->content_bytes > MAX_CONTENT_BYTES)
        HN_FAIL(p->err, HONE_ERR_LIMIT, "the constants of the graph text exceed %llu bytes",
                MAX_CONTENT_BYTES);
    bool random = take_word(p, "random");
    if (!random) HN_TRY(expect(p, "{"));
    // Refuses before allocating what the text cannot hold: an element takes a character at least.
    if (!random && count > p->end - p->at) BAD(p, "a constant has fewer elements than its shape");
    HN_TRY(hn_tensor_new(p->err, type->dtype, &shape, &tensor));
    hone_status status = HONE_OK;
    if (random) {
        uint64_t seed = 0;
        if (count <= TEXT_FULL_ELEMENTS || type->dtype == HN_STRING || type->dtype == HN_C64 ||
            type->dtype == HN_C128 || !read_hex(number_text(p), &seed))
            status = HN_SET(p->err, HONE_ERR_FORMAT,
                            "random content needs a hexadecimal seed and more than %d numeric "
                            "elements",
                            TEXT_FULL_ELEMENTS);
        else
            hn_text_fill(&tensor, (uint32_t)seed);
    } else {
        if (bytes) memset(tensor.data, 0, bytes);
        for (int64_t i = 0; i < count && status == HONE_OK; i++) {
            if (i) status = expect(p, ",");
            if (status == HONE_OK) status = element(p, &tensor, i);
        }
        if (status == HONE_OK) status = expect(p, "}");
    }
    if (status == HONE_OK)
        *out = tensor;
    else
        hn_tensor_free(&tensor);
    return status;
}

static hn_status constant(parser *p, hn_graph *graph, bool overridable) {
    definition d;
    hn_tensor tensor = {0};
    HN_TRY(define(p, &d));
    HN_TRY(expect(p, "="));
    HN_TRY(content(p, &d.type, &tensor));
    hn_value *value = hn_graph_add_constant(graph, "", &tensor);
    HN_TRY(bind(p, &d, value));
    if (!overridable) return HONE_OK;
    value->overridable = true;
    if (!hn_vec_push(&graph->overridables, value)) HN_NOMEM(p->err, "parsing");
    return HONE_OK;
}

// ---- attributes ---------------------------------------------------------------------------------

static hn_status graph_body(parser *p, hn_graph *graph);

static hn_status list_attr(parser *p, hn_node *node, const char *name) {
    HN_VEC(int64_t) ints = {0};
    HN_VEC(float) floats = {0};
    HN_VEC(hn_slice) strings = {0};
    hone_status status = HONE_OK;
    bool ok = true;
    if (take(p, "]")) { // an empty list says its type
        char type = peek(p);
        if (type == 'i')
            ok = hn_node_set_ints(node, name, NULL, 0);
        else if (type == 'f')
            ok = hn_node_set_floats(node, name, NULL, 0);
        else if (type == 's')
            ok = hn_node_set_strings(node, name, NULL, 0);
        else
            BAD(p, "an empty list is not followed by i, f or s");
        p->at++;
        if (!ok) HN_NOMEM(p->err, "parsing");
        return HONE_OK;
    }
    do {
        skip(p);
        hn_slice item;
        int64_t whole;
        float real;
        if (peek(p) == '"') {
            status = quoted(p, &item);
            if (status == HONE_OK) ok = hn_vec_push(&strings, item);
        } else {
            item = number_text(p);
            if (hn_parse_i64(item, &whole))
                ok = hn_vec_push(&ints, whole);
            else if (read_float(item, &real))
                ok = hn_vec_push(&floats, real);
            else
                status = HN_SET(p->err, HONE_ERR_FORMAT, "a list of the graph text has a bad item");
        }
    } while (status == HONE_OK && ok && take(p, ","));
    if (status == HONE_OK && ok) status = expect(p, "]");
    int kinds = (ints.count > 0) + (floats.count > 0) + (strings.count > 0);
    if (status == HONE_OK && kinds > 1)
        status = HN_SET(p->err, HONE_ERR_FORMAT, "a list of the graph text has items of two types");
    if (status == HONE_OK && ok) {
        if (ints.count)
            ok = hn_node_set_ints(node, name, ints.data, (int64_t)ints.count);
        else if (floats.count)
            ok = hn_node_set_floats(node, name, floats.data, (int64_t)floats.count);
        else
            ok = hn_node_set_strings(node, name, strings.data, (int64_t)strings.count);
    }
    hn_vec_free(&ints);
    hn_vec_free(&floats);
    hn_vec_free(&strings);
    if (!ok) HN_NOMEM(p->err, "parsing");
    return status;
}

static hn_status graph_attr(parser *p, hn_node *node, const char *name) {
    if (p->depth == MAX_DEPTH)
        HN_FAIL(p->err, HONE_ERR_LIMIT, "sub-graphs are nested deeper than %d", MAX_DEPTH);
    hn_graph *graph = hn_graph_new(p->module, node);
    if (!graph || !hn_node_set_graph(node, name, graph)) HN_NOMEM(p->err, "parsing");
    p->depth++;
    HN_TRY(graph_body(p, graph));
    p->depth--;
    return HONE_OK;
}

static hn_status attr(parser *p, hn_node *node) {
    const char *name;
    HN_TRY(word_or_text(p, &name));
    if (hn_node_attr(node, name)) BAD(p, "attribute %s is given twice", name);
    HN_TRY(expect(p, "="));
    if (take(p, "[")) return list_attr(p, node, name);
    if (take_word(p, "graph")) return graph_attr(p, node, name);
    bool ok;
    if (take_word(p, "tensor")) {
        hn_type type;
        hn_tensor tensor = {0};
        HN_TRY(type_of(p, &type));
        HN_TRY(content(p, &type, &tensor));
        ok = hn_node_set_tensor(node, name, &tensor);
    } else if (peek(p) == '"') {
        hn_slice value;
        HN_TRY(quoted(p, &value));
        hn_attr *made = hn_node_add_attr(node, name, HN_ATTR_STRING);
        ok = made != NULL;
        if (made) made->s = value;
    } else {
        hn_slice number = number_text(p);
        int64_t whole;
        float real;
        if (hn_parse_i64(number, &whole))
            ok = hn_node_set_int(node, name, whole);
        else if (read_float(number, &real))
            ok = hn_node_set_float(node, name, real);
        else
            BAD(p, "attribute %s has no value that can be read", name);
    }
    if (!ok) HN_NOMEM(p->err, "parsing");
    return HONE_OK;
}

// ---- nodes --------------------------------------------------------------------------------------

static hn_status post(parser *p, hn_node *node) {
    if (node->post_count == HN_MAX_POST) BAD(p, "a node has more than %d fused steps", HN_MAX_POST);
    hn_post step = {.input = -1, .scale = -1, .zero = -1};
    if (take(p, "#")) BAD(p, "a fused step is given by number"); // printed only for broken graphs
    HN_TRY(word_or_text(p, &step.op_type));
    int least = node->base_input_count, most = node->input_count - 1;
    if (take_word(p, "in")) HN_TRY(small_integer(p, least, most, &step.input));
    step.swapped = take_word(p, "swapped");
    if (take_word(p, "scale")) HN_TRY(small_integer(p, least, most, &step.scale));
    if (take_word(p, "zero")) HN_TRY(small_integer(p, least, most, &step.zero));
    if (take_word(p, "alpha")) HN_TRY(float_parameter(p, &step.alpha));
    if (take_word(p, "beta")) HN_TRY(float_parameter(p, &step.beta));
    node->post[node->post_count++] = step;
    return HONE_OK;
}

static hn_status node_inputs(parser *p, hn_node *node, bool *out_operands) {
    *out_operands = false;
    HN_TRY(expect(p, "("));
    if (take(p, ")")) return HONE_OK;
    do {
        hn_value *value = NULL;
        if (!*out_operands && take(p, "|")) {
            *out_operands = true;
            node->base_input_count = node->input_count;
        }
        HN_TRY(value_use(p, &value));
        if (!hn_node_add_input(node, value)) HN_NOMEM(p->err, "parsing");
        skip(p);
    } while (take(p, ",") || (!*out_operands && peek(p) == '|'));
    return expect(p, ")");
}

static hn_status node_rest(parser *p, hn_node *node) {
    bool operands;
    HN_TRY(node_inputs(p, node, &operands));
    if (!operands) node->base_input_count = node->input_count;
    if (take(p, "{") && !take(p, "}")) {
        do
            HN_TRY(attr(p, node));
        while (take(p, ","));
        HN_TRY(expect(p, "}"));
    }
    while (take_word(p, "post"))
        HN_TRY(post(p, node));
    if (operands && !node->post_count) BAD(p, "a node has fused operands but no fused steps");
    if (!node->post_count) node->base_input_count = 0;
    if (take_word(p, "compute")) {
        node->compute = hn_dtype_from_name(word(p));
        if (node->compute == HN_NONE) BAD(p, "a node computes in no known element type");
    }
    node->plain = take_word(p, "plain");
    if (take_word(p, "name")) HN_TRY(text(p, &node->name));
    return HONE_OK;
}

static hn_status node_outputs(parser *p, definition *outputs, int *out_count) {
    int count = 0;
    while (!take(p, "=")) {
        if (count) HN_TRY(expect(p, ","));
        if (count == MAX_OUTPUTS) BAD(p, "a node has more than %d outputs", MAX_OUTPUTS);
        skip(p);
        outputs[count] = (definition){0};
        if (peek(p) == '_')
            p->at++;
        else
            HN_TRY(define(p, &outputs[count]));
        count++;
    }
    *out_count = count;
    return HONE_OK;
}

static hn_status node_body(parser *p, hn_graph *graph, definition *outputs) {
    int count = 0, version = 0;
    const char *op_type = "", *domain = "";
    HN_TRY(node_outputs(p, outputs, &count));
    HN_TRY(word_or_text(p, &op_type));
    if (take(p, "::")) {
        domain = op_type;
        HN_TRY(word_or_text(p, &op_type));
    }
    HN_TRY(expect(p, "@"));
    HN_TRY(small_integer(p, 0, INT32_MAX, &version));
    hn_node *node = hn_graph_add_node(graph, NULL, 0, op_type, domain, version, NULL, 0, count);
    if (!node) HN_NOMEM(p->err, "parsing");
    HN_TRY(node_rest(p, node));
    // Bound last: a node cannot read its own outputs.
    for (int i = 0; i < count; i++) {
        if (!outputs[i].key) {
            hn_node_set_output(node, i, NULL);
            continue;
        }
        node->outputs[i]->type = outputs[i].type;
        HN_TRY(bind(p, &outputs[i], node->outputs[i]));
    }
    return HONE_OK;
}

static hn_status statement(parser *p, hn_graph *graph, definition *scratch) {
    definition d;
    if (take_word(p, "input")) {
        HN_TRY(define(p, &d));
        return bind(p, &d, hn_graph_add_input(graph, "", &d.type));
    }
    if (take_word(p, "const")) return constant(p, graph, false);
    if (take_word(p, "overridable")) return constant(p, graph, true);
    if (take_word(p, "output")) {
        hn_value *value = NULL;
        HN_TRY(value_use(p, &value));
        if (!value || value->graph != graph)
            BAD(p, "an output of a graph is not defined in that graph");
        if (!hn_graph_add_output(graph, value)) HN_NOMEM(p->err, "parsing");
        return HONE_OK;
    }
    return node_body(p, graph, scratch);
}

static hn_status graph_body(parser *p, hn_graph *graph) {
    HN_TRY(text(p, &graph->name));
    HN_TRY(expect(p, "{"));
    definition *scratch = hn_calloc(MAX_OUTPUTS, sizeof *scratch);
    if (!scratch) HN_NOMEM(p->err, "parsing");
    hone_status status = HONE_OK;
    while (status == HONE_OK && !take(p, "}"))
        status = p->at < p->end ? statement(p, graph, scratch) : expect(p, "}");
    hn_free(scratch);
    return status;
}

// ---- module -------------------------------------------------------------------------------------

static hn_status dim_line(parser *p) {
    hn_type type = {.rank = 0};
    hn_slice rest;
    skip(p);
    rest = (hn_slice){p->at, (size_t)(p->end - p->at)};
    HN_TRY(hn_dim_parse_prefix(p->err, p->module->dims, &rest, &type.dims[0]));
    p->at = rest.data;
    int64_t lo = 0, hi = INT64_MAX, divisor = 1;
    if (!take_word(p, "from")) BAD(p, "a dim line lacks its range");
    HN_TRY(integer(p, &lo));
    if (!take_word(p, "to")) BAD(p, "a dim line lacks the end of its range");
    HN_TRY(integer(p, &hi));
    if (take_word(p, "times")) HN_TRY(integer(p, &divisor));
    if (divisor < 1 || !hn_dim_is_symbol(p->module->dims, type.dims[0]) || lo > hi)
        BAD(p, "a dim line needs a symbol, a range and a positive divisor");
    hn_dim_set_range(p->module->dims, type.dims[0], lo, hi, divisor);
    return HONE_OK;
}

static hn_status header(parser *p) {
    hn_module *module = p->module;
    int version = 0;
    if (!take(p, "hone-ir")) BAD(p, "the graph text does not begin with 'hone-ir 1'");
    HN_TRY(small_integer(p, 1, 1, &version));
    const struct {
        const char *word, **to;
    } texts[] = {{"producer", &module->producer_name},
                 {"producer_version", &module->producer_version},
                 {"domain", &module->domain},
                 {"doc", &module->doc}};
    while (!take_word(p, "graph")) {
        size_t i = 0;
        while (i < HN_COUNT_OF(texts) && !take_word(p, texts[i].word))
            i++;
        if (i < HN_COUNT_OF(texts)) {
            HN_TRY(text(p, texts[i].to));
        } else if (take_word(p, "ir_version")) {
            HN_TRY(integer(p, &module->ir_version));
        } else if (take_word(p, "model_version")) {
            HN_TRY(integer(p, &module->model_version));
        } else if (take_word(p, "opset")) {
            hn_opset opset = {0};
            HN_TRY(text(p, &opset.domain));
            HN_TRY(small_integer(p, 0, INT32_MAX, &opset.version));
            if (!hn_vec_push(&module->opsets, opset)) HN_NOMEM(p->err, "parsing");
        } else if (take_word(p, "meta")) {
            hn_meta meta;
            HN_TRY(text(p, &meta.key));
            HN_TRY(text(p, &meta.value));
            if (!hn_vec_push(&module->metadata, meta)) HN_NOMEM(p->err, "parsing");
        } else if (take_word(p, "dim")) {
            HN_TRY(dim_line(p));
        } else {
            BAD(p, "the graph text has a header line that is not known");
        }
    }
    return HONE_OK;
}

static hn_status whole(parser *p) {
    HN_TRY(header(p));
    HN_TRY(graph_body(p, p->module->main));
    skip(p);
    if (p->at != p->end) BAD(p, "the graph text goes on after the end of its graph");
    // Captures out of scope and names given twice: the text's fault, not ours.
    hone_status status = hn_module_verify(p->err, p->module);
    if (status == HONE_ERR_INTERNAL) {
        if (p->err) p->err->status = HONE_ERR_FORMAT;
        return HONE_ERR_FORMAT;
    }
    return status;
}

hn_status hn_module_parse(hone_error *err, const char *graph_text, hn_module **out_module) {
    parser p = {.err = err, .at = graph_text, .end = graph_text + strlen(graph_text), .line = 1};
    p.module = hn_module_new();
    if (!p.module) HN_NOMEM(err, "parsing");
    hone_status status = whole(&p);
    hn_free(p.slots);
    if (status == HONE_OK)
        *out_module = p.module;
    else
        hn_module_free(p.module);
    return status;
}
