// SPDX-License-Identifier: Apache-2.0
// Text form of dims: see dim.h. Precedence as in Python: * // % bind tighter than + and -.
#include "ir/dim_int.h"
#include <stdlib.h>

// ---- printing -----------------------------------------------------------------------------------

static bool name_char(char c, bool first) {
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_') return true;
    return !first && ((c >= '0' && c <= '9') || c == '.');
}

static bool is_name(const char *text) {
    if (strcmp(text, "min") == 0 || strcmp(text, "max") == 0) return false;
    for (const char *c = text; *c; c++)
        if (!name_char(*c, c == text)) return false;
    return *text != 0;
}

// What commutes is printed in the order of its text, so that equal dims of different tables, whose
// atoms were made in another order, print equally.
typedef struct piece {
    hn_str text;
    int64_t factor;
} piece;

static int by_text(const void *a, const void *b) {
    return strcmp(hn_str_get(&((const piece *)a)->text), hn_str_get(&((const piece *)b)->text));
}

static void sort_pieces(hn_str *out, piece *pieces, int count) {
    for (int i = 0; i < count; i++)
        if (pieces[i].text.failed) out->failed = true;
    qsort(pieces, (size_t)count, sizeof *pieces, by_text);
}

static void print_product(hn_str *out, const hn_dims *dims, const dim_atom *atom);
static void print_extreme(hn_str *out, const hn_dims *dims, const dim_atom *atom);

static void print_atom(hn_str *out, const hn_dims *dims, uint32_t index, bool nested) {
    const dim_atom *atom = &dims->atoms.data[index];
    bool wrap = nested && (atom->kind == DIM_FLOORDIV || atom->kind == DIM_MOD);
    switch (atom->kind) {
    case DIM_SYMBOL:
        if (!atom->name) {
            hn_str_printf(out, "?%lld", (long long)atom->number);
        } else if (is_name(atom->name)) {
            hn_str_append(out, atom->name);
        } else {
            hn_str_append(out, "\"");
            for (const char *c = atom->name; *c; c++) {
                if (*c == '"' || *c == '\\' || (unsigned char)*c < 32)
                    hn_str_printf(out, "\\%02x", (unsigned char)*c);
                else
                    hn_str_append_n(out, c, 1);
            }
            hn_str_append(out, "\"");
        }
        return;
    case DIM_PRODUCT:
        print_product(out, dims, atom);
        return;
    case DIM_FLOORDIV:
    case DIM_MOD:
        hn_str_append(out, wrap ? "((" : "(");
        hn_dim_print(out, dims, atom->a);
        hn_str_append(out, atom->kind == DIM_MOD ? ")%" : ")//");
        if (!hn_dim_is_const(atom->b) || atom->b < 0) hn_str_append(out, "(");
        hn_dim_print(out, dims, atom->b);
        if (!hn_dim_is_const(atom->b) || atom->b < 0) hn_str_append(out, ")");
        if (wrap) hn_str_append(out, ")");
        return;
    default:
        print_extreme(out, dims, atom);
        return;
    }
}

static void print_product(hn_str *out, const hn_dims *dims, const dim_atom *atom) {
    piece pieces[DIM_MAX_DEGREE] = {0};
    for (int i = 0; i < atom->factor_count; i++)
        print_atom(&pieces[i].text, dims, atom->factors[i], true);
    sort_pieces(out, pieces, atom->factor_count);
    for (int i = 0; i < atom->factor_count; i++) {
        hn_str_printf(out, "%s%s", i ? "*" : "", hn_str_get(&pieces[i].text));
        hn_str_free(&pieces[i].text);
    }
}

static void print_extreme(hn_str *out, const hn_dims *dims, const dim_atom *atom) {
    piece pieces[2] = {0};
    hn_dim_print(&pieces[0].text, dims, atom->a);
    hn_dim_print(&pieces[1].text, dims, atom->b);
    sort_pieces(out, pieces, 2);
    hn_str_printf(out, "%s(%s,%s)", atom->kind == DIM_MIN ? "min" : "max",
                  hn_str_get(&pieces[0].text), hn_str_get(&pieces[1].text));
    hn_str_free(&pieces[0].text);
    hn_str_free(&pieces[1].text);
}

void hn_dim_print(hn_str *out, const hn_dims *dims, hn_dim dim) {
    if (hn_dim_is_const(dim)) {
        hn_str_printf(out, "%lld", (long long)dim);
        return;
    }
    if (dim == HN_DIM_FAILED) {
        hn_str_append(out, "?");
        return;
    }
    const dim_expr *e = dim_expr_of(dims, dim);
    piece pieces[DIM_MAX_TERMS] = {0};
    for (int i = 0; i < e->count; i++) {
        pieces[i].factor = e->terms[i].factor;
        print_atom(&pieces[i].text, dims, e->terms[i].atom, pieces[i].factor != 1);
    }
    sort_pieces(out, pieces, e->count);
    for (int i = 0; i < e->count; i++) {
        int64_t factor = pieces[i].factor;
        if (factor < 0)
            hn_str_append(out, "-");
        else if (i)
            hn_str_append(out, "+");
        if (factor != 1 && factor != -1)
            hn_str_printf(
                out, "%llu*",
                (unsigned long long)(factor < 0 ? 0 - (uint64_t)factor : (uint64_t)factor));
        hn_str_append(out, hn_str_get(&pieces[i].text));
        hn_str_free(&pieces[i].text);
    }
    if (e->constant) hn_str_printf(out, "%+lld", (long long)e->constant);
}

// ---- parsing ------------------------------------------------------------------------------------

typedef struct dim_parser {
    hone_error *err;
    hn_dims *dims;
    const char *at, *end;
    int depth;
} dim_parser;

static hn_status parse_sum(dim_parser *p, hn_dim *out);

static char peek(const dim_parser *p) {
    return p->at < p->end ? *p->at : '\0';
}

static void skip_blanks(dim_parser *p) {
    while (peek(p) == ' ')
        p->at++;
}

static int near(const char *at, const char *end) {
    return end - at < 20 ? (int)(end - at) : 20;
}

static bool take(dim_parser *p, const char *token) {
    skip_blanks(p);
    size_t length = strlen(token);
    if ((size_t)(p->end - p->at) < length || memcmp(p->at, token, length) != 0) return false;
    p->at += length;
    return true;
}

static hn_status expect(dim_parser *p, const char *token) {
    if (!take(p, token))
        HN_FAIL(p->err, HONE_ERR_FORMAT, "a dimension expression lacks '%s' at '%.*s'", token,
                near(p->at, p->end), p->at);
    return HONE_OK;
}

static hn_status parse_number(dim_parser *p, int64_t *out) {
    const char *begin = p->at;
    while (peek(p) >= '0' && peek(p) <= '9')
        p->at++;
    if (!hn_parse_i64((hn_slice){begin, (size_t)(p->at - begin)}, out))
        HN_FAIL(p->err, HONE_ERR_FORMAT, "a dimension expression has a bad number at '%.*s'",
                near(begin, p->end), begin);
    return HONE_OK;
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
}

static hn_status parse_quoted(dim_parser *p, hn_dim *out) {
    hn_str name = {0};
    p->at++;
    while (peek(p) && peek(p) != '"') {
        char c = *p->at++;
        if (c == '\\' && p->end - p->at >= 2) {
            int high = hex_digit(p->at[0]), low = hex_digit(p->at[1]);
            c = (char)(high < 0 || low < 0 ? '?' : high * 16 + low);
            p->at += 2;
        }
        hn_str_append_n(&name, &c, 1);
    }
    bool closed = peek(p) == '"' && name.length;
    *out = closed && !name.failed ? hn_dim_symbol(p->dims, hn_str_get(&name)) : HN_DIM_FAILED;
    hn_str_free(&name);
    if (!closed) HN_FAIL(p->err, HONE_ERR_FORMAT, "a quoted dimension name is not closed or empty");
    p->at++;
    return HONE_OK;
}

static hn_status parse_pair(dim_parser *p, bool is_min, hn_dim *out) {
    hn_dim a, b;
    HN_TRY(expect(p, "("));
    HN_TRY(parse_sum(p, &a));
    HN_TRY(expect(p, ","));
    HN_TRY(parse_sum(p, &b));
    HN_TRY(expect(p, ")"));
    *out = is_min ? hn_dim_min(p->dims, a, b) : hn_dim_max(p->dims, a, b);
    return HONE_OK;
}

static hn_status parse_name(dim_parser *p, hn_dim *out) {
    const char *begin = p->at;
    while (p->at < p->end && name_char(*p->at, p->at == begin))
        p->at++;
    hn_slice name = {begin, (size_t)(p->at - begin)};
    if (!name.length)
        HN_FAIL(p->err, HONE_ERR_FORMAT, "a dimension expression has no operand at '%.*s'",
                near(begin, p->end), begin);
    if (hn_slice_eq(name, "min") || hn_slice_eq(name, "max"))
        return parse_pair(p, hn_slice_eq(name, "min"), out);
    char *copy = hn_strndup(begin, name.length);
    *out = copy ? hn_dim_symbol(p->dims, copy) : HN_DIM_FAILED;
    hn_free(copy);
    return HONE_OK;
}

static hn_status parse_factor(dim_parser *p, hn_dim *out) {
    int64_t number;
    if (++p->depth > 200)
        HN_FAIL(p->err, HONE_ERR_LIMIT, "a dimension expression is nested too deep");
    skip_blanks(p);
    char c = peek(p);
    if (take(p, "-")) {
        HN_TRY(parse_factor(p, out));
        *out = hn_dim_sub(p->dims, 0, *out);
    } else if (take(p, "(")) {
        HN_TRY(parse_sum(p, out));
        HN_TRY(expect(p, ")"));
    } else if (take(p, "?")) {
        if (peek(p) < '0' || peek(p) > '9') {
            *out = hn_dim_symbol(p->dims, NULL);
        } else {
            HN_TRY(parse_number(p, &number));
            if (number > INT32_MAX)
                HN_FAIL(p->err, HONE_ERR_LIMIT, "unnamed dimension ?%lld has too high a number",
                        (long long)number);
            *out = dim_symbol_numbered(p->dims, number);
        }
    } else if (c == '"') {
        HN_TRY(parse_quoted(p, out));
    } else if (c >= '0' && c <= '9') {
        HN_TRY(parse_number(p, out));
    } else {
        HN_TRY(parse_name(p, out));
    }
    p->depth--;
    return HONE_OK;
}

static hn_status parse_term(dim_parser *p, hn_dim *out) {
    hn_dim value, right;
    HN_TRY(parse_factor(p, &value));
    for (;;) {
        if (take(p, "*")) {
            HN_TRY(parse_factor(p, &right));
            value = hn_dim_mul(p->dims, value, right);
        } else if (take(p, "//")) {
            HN_TRY(parse_factor(p, &right));
            value = hn_dim_floordiv(p->dims, value, right);
        } else if (take(p, "%")) {
            HN_TRY(parse_factor(p, &right));
            value = hn_dim_mod(p->dims, value, right);
        } else {
            *out = value;
            return HONE_OK;
        }
    }
}

static hn_status parse_sum(dim_parser *p, hn_dim *out) {
    hn_dim value, right;
    HN_TRY(parse_term(p, &value));
    for (;;) {
        if (take(p, "+")) {
            HN_TRY(parse_term(p, &right));
            value = hn_dim_add(p->dims, value, right);
        } else if (take(p, "-")) {
            HN_TRY(parse_term(p, &right));
            value = hn_dim_sub(p->dims, value, right);
        } else {
            *out = value;
            return HONE_OK;
        }
    }
}

hn_status hn_dim_parse_prefix(hone_error *err, hn_dims *dims, hn_slice *rest, hn_dim *out_dim) {
    dim_parser p = {err, dims, rest->data, rest->data + rest->length, 0};
    hn_dim dim = HN_DIM_FAILED;
    HN_TRY(parse_sum(&p, &dim));
    if (dim == HN_DIM_FAILED) HN_NOMEM(err, "parsing a dimension");
    skip_blanks(&p);
    *rest = (hn_slice){p.at, (size_t)(p.end - p.at)};
    *out_dim = dim;
    return HONE_OK;
}

hn_status hn_dim_parse(hone_error *err, hn_dims *dims, hn_slice text, hn_dim *out_dim) {
    hn_dim dim = HN_DIM_FAILED;
    hn_slice rest = text;
    HN_TRY(hn_dim_parse_prefix(err, dims, &rest, &dim));
    if (rest.length)
        HN_FAIL(err, HONE_ERR_FORMAT, "dimension '%.*s' has more after its end",
                (int)(text.length < 80 ? text.length : 80), text.data);
    *out_dim = dim;
    return HONE_OK;
}
