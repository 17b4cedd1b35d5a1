// SPDX-License-Identifier: Apache-2.0
// Building nodes from rows of kernels/cases.def, memory with guard bands, comparing: see kcase.h.
#include "support/kcase.h"
#include <math.h>
#include "backends/cpu/cpu_int.h"

uint64_t kcase_seed = 20260101;
static uint64_t next_random(void) {
    kcase_seed ^= kcase_seed << 13;
    kcase_seed ^= kcase_seed >> 7;
    kcase_seed ^= kcase_seed << 17;
    return kcase_seed;
}
static double uniform(void) { return (double)(next_random() >> 11) / 9007199254740992.0; }

// ---- building a node from its row ---------------------------------------------------------------
static hn_dtype dtype_by(const char *name, size_t n) {
    hn_slice s = {name, n};
    return hn_dtype_from_name(s);
}

static double draw(hn_dtype dtype, bool positive, bool special) {
    uint64_t r = next_random();
    if (dtype == HN_BOOL) return (double)(r & 1);
    if (dtype == HN_U8) return (double)(r % 256);
    if (dtype != HN_F32 && dtype != HN_F16 && dtype != HN_BF16) return (double)(r % 21) - 10;
    if (special && r % 16 == 0) {
        static const double odd[] = {INFINITY, -INFINITY, NAN, 1e-40, -1e-40, 3e38, -3e38, 88.7, -104};
        return odd[r / 16 % 9];
    }
    if (!positive && r % 11 == 0) return 0;
    double v = uniform() * 4 - 2;
    return positive ? fabs(v) + 0.05 : v;
}

static void set_dims(const char **p, hn_shape *shape) {
    shape->rank = 0;
    while (**p != ']') {
        shape->dims[shape->rank++] = strtoll(*p, (char **)(uintptr_t)p, 10);
        if (**p == ',') ++*p;
    }
    ++*p;
}

// Places of a NaN, an infinity and a negative one in a drawn tensor.
static void spoil(hn_tensor *t) {
    static const double odd[] = {NAN, INFINITY, -INFINITY};
    int64_t n = hn_tensor_count(t);
    for (int i = 0; (t->dtype == HN_F32 || t->dtype == HN_F16 || t->dtype == HN_BF16) && n && i < 3 && (i == 0 || n > 64); i++)
        hn_tensor_set_f64(t, (int64_t)(next_random() % (uint64_t)n), odd[i]);
}

// Parses one input description; false at the end. constant and tensor are the outcome.
static bool parse_input(const char **p, bool special, hn_tensor *t, bool *constant, bool *absent) {
    while (**p == ' ')
        ++*p;
    if (!**p) return false;
    *absent = **p == '-';
    if (*absent) {
        ++*p;
        return true;
    }
    const char *start = *p;
    while (**p != '[' && **p != '{' && **p != '+')
        ++*p;
    hn_dtype dtype = dtype_by(start, (size_t)(*p - start));
    assert_int_not_equal(dtype, HN_NONE);
    bool positive = **p == '+';
    if (positive) ++*p;
    hn_shape shape = {0};
    if (**p == '[') {
        ++*p;
        set_dims(p, &shape);
        assert_int_equal(hn_tensor_new(NULL, dtype, &shape, t), HONE_OK);
        for (int64_t i = 0; i < hn_tensor_count(t); i++)
            hn_tensor_set_f64(t, i, draw(dtype, positive, special));
    } else {
        double values[64];
        int n = 0;
        ++*p;
        while (**p != '}') {
            values[n++] = strtod(*p, (char **)(uintptr_t)p);
            if (**p == ',') ++*p;
        }
        ++*p;
        shape.rank = 1;
        shape.dims[0] = n;
        assert_int_equal(hn_tensor_new(NULL, dtype, &shape, t), HONE_OK);
        for (int i = 0; i < n; i++)
            hn_tensor_set_f64(t, i, values[i]);
    }
    *constant = **p == 'c';
    if (*constant) ++*p;
    if (**p == ':') { // other dims for given values
        ++*p;
        shape.rank = 0;
        while (**p && **p != ' ') {
            shape.dims[shape.rank++] = strtoll(*p, (char **)(uintptr_t)p, 10);
            if (**p == ',') ++*p;
        }
        t->shape = shape;
    }
    return true;
}

static void parse_attrs(hn_node *node, const char *p, int *outputs) {
    while (*p) {
        while (*p == ' ')
            p++;
        const char *eq = strchr(p, '=');
        if (!eq) break;
        char name[64], value[256];
        snprintf(name, sizeof name, "%.*s", (int)(eq - p), p);
        size_t n = strcspn(eq + 1, " ");
        assert_true(n < sizeof value);
        snprintf(value, sizeof value, "%.*s", (int)n, eq + 1);
        p = eq + 1 + n;
        char *end;
        if (!strcmp(name, "outputs")) {
            *outputs = atoi(value);
            continue;
        }
        double number = strtod(value, &end);
        const char *schema = hn_op_get(node->op)->attrs;
        char list[80], floats[80], text[80];
        snprintf(list, sizeof list, "%s:is", name);
        snprintf(text, sizeof text, "%s:s!", name); // an Einsum's equation has commas
        snprintf(floats, sizeof floats, "%s:fs", name);
        if (strstr(schema, text)) {
            assert_true(hn_node_set_string(node, name, value));
        } else if (strstr(schema, floats)) {
            float list_of[48];
            int count = 0;
            for (char *v = value; *v; count++) {
                assert_true(count < (int)HN_COUNT_OF(list_of));
                list_of[count] = strtof(v, &v);
                if (*v == ',') v++;
            }
            assert_true(hn_node_set_floats(node, name, list_of, count));
        } else if (strchr(value, ',') || strstr(schema, list)) {
            int64_t ints[96];
            int count = 0;
            for (char *v = value; *v; count++) {
                assert_true(count < (int)HN_COUNT_OF(ints));
                ints[count] = strtoll(v, &v, 10);
                if (*v == ',') v++;
            }
            assert_true(hn_node_set_ints(node, name, ints, count));
        } else if (*end) assert_true(hn_node_set_string(node, name, value));
        else if (strchr(value, '.')) assert_true(hn_node_set_float(node, name, (float)number));
        else assert_true(hn_node_set_int(node, name, (int64_t)number));
    }
}

static void parse_posts(hn_node *node, const char *p, int *base_inputs) {
    while (*p) {
        char one[64], name[32] = "", a[16] = "", b[16] = "";
        size_t n = strcspn(p, ";");
        snprintf(one, sizeof one, "%.*s", (int)n, p);
        p += n + (p[n] == ';');
        sscanf(one, "%31s %15s %15s", name, a, b);
        hn_post *post = &node->post[node->post_count++];
        *post = (hn_post){.op = hn_op_find("", name), .input = -1, .scale = -1, .zero = -1};
        post->op_type = hn_op_get(post->op)->name;
        assert_int_not_equal(post->op, HN_OP_UNKNOWN);
        if (a[0] == ':') { // :operand:scale:zero, each may be empty
            int *fields[] = {&post->input, &post->scale, &post->zero};
            char *at = a;
            for (int i = 0; i < 3 && *at == ':'; i++) {
                at++;
                if (*at >= '0' && *at <= '9') *fields[i] = (int)strtol(at, &at, 10);
                if (*fields[i] >= 0 && *fields[i] < *base_inputs) *base_inputs = *fields[i];
            }
        } else {
            post->alpha = (float)atof(a);
            post->beta = (float)atof(b);
        }
    }
    node->base_input_count = *base_inputs;
}

void kcase_build(const kcase *c, bool spoiled, kcase_built *b) {
    memset(b, 0, sizeof *b);
    b->module = hn_module_new();
    assert_non_null(b->module);
    hn_value *values[16] = {0};
    const char *p = c->inputs;
    bool constant, absent, special = strchr(c->flags, 'S') != NULL;
    hn_tensor t;
    while (constant = absent = false, parse_input(&p, special, &t, &constant, &absent)) {
        int i = b->input_count++;
        if (absent) continue;
        b->in[i] = t;
        b->in_list[i] = &b->in[i];
        if (spoiled && !constant) spoil(&b->in[i]);
        if (constant) {
            hn_tensor copy = hn_tensor_ref(&t);
            values[i] = hn_graph_add_constant(b->module->main, "", &copy);
        } else {
            hn_type type;
            hn_type_set_shape(&type, t.dtype, &t.shape);
            char name[16];
            snprintf(name, sizeof name, "in%d", i);
            values[i] = hn_graph_add_input(b->module->main, name, &type);
        }
        assert_non_null(values[i]);
    }
    bool internal = !strncmp(c->op, "hn.", 3);
    hn_op op = hn_op_find(internal ? "hn" : "", internal ? c->op + 3 : c->op);
    if (!op) fail_msg("no op %s", c->op);
    b->output_count = 1;
    const char *given = strstr(c->attrs, "outputs=");
    if (given) {
        const char *own = !strncmp(c->attrs, "outputs=", 8) ? c->attrs : strstr(c->attrs, " outputs=");
        if (own) b->output_count = atoi(strchr(own + 1, '=') + 1);
    }
    b->node = hn_node_make(b->module->main, NULL, op, values, b->input_count, b->output_count);
    assert_non_null(b->node);
    int unused, base_inputs = b->input_count;
    parse_attrs(b->node, c->attrs, &unused);
    parse_posts(b->node, c->posts, &base_inputs);
    if (strchr(c->flags, 'B')) b->node->compute = HN_BF16;
    b->node->plain = strchr(c->flags, 'P') != NULL;
    hone_error err = {0};
    if (hn_infer_node(&err, b->node) != HONE_OK) fail_msg("%s %s: %s", c->op, c->inputs, err.text);
    if (hn_ref_run(&err, b->node, b->in_list, b->input_count, b->ref, b->output_count, 1) != HONE_OK)
        fail_msg("%s %s: reference: %s", c->op, c->inputs, err.text);
}

void kcase_drop(kcase_built *b) {
    for (int i = 0; i < b->input_count; i++)
        hn_tensor_free(&b->in[i]);
    for (int i = 0; i < b->output_count; i++)
        hn_tensor_free(&b->ref[i]);
    hn_module_free(b->module);
}

// ---- memory with guards -------------------------------------------------------------------------
kcase_guarded kcase_guard_new(size_t bytes) {
    kcase_guarded g = {hn_malloc_aligned(bytes + 2 * GUARD), bytes};
    assert_non_null(g.block);
    memset(g.block, 0xa5, bytes + 2 * GUARD);
    return g;
}
void *kcase_guard_data(const kcase_guarded *g) { return g->block ? g->block + GUARD : NULL; }
bool kcase_guard_whole(const kcase_guarded *g) {
    if (!g->block) return true;
    for (size_t i = 0; i < GUARD; i++)
        if (g->block[i] != 0xa5 || g->block[GUARD + g->bytes + i] != 0xa5) return false;
    return true;
}

// Copies between plain and a layout.
void kcase_relayout(const hn_tensor *like, hn_layout layout, const void *from, void *to, bool back) {
    int64_t s[HN_MAX_RANK], n = hn_tensor_count(like), at[HN_MAX_RANK] = {0};
    size_t bytes = hn_dtype_bytes(like->dtype);
    cpu_strides(&like->shape, layout, s);
    for (int64_t i = 0; i < n; i++) {
        int64_t o = 0;
        for (int d = 0; d < like->shape.rank; d++)
            o += at[d] * s[d];
        if (back) memcpy((char *)to + (size_t)i * bytes, (const char *)from + (size_t)o * bytes, bytes);
        else memcpy((char *)to + (size_t)o * bytes, (const char *)from + (size_t)i * bytes, bytes);
        for (int d = like->shape.rank - 1; d >= 0 && ++at[d] == like->shape.dims[d]; d--)
            at[d] = 0;
    }
}

// With `spread`, a NaN may also be where the reference has none.
bool kcase_same(const hn_tensor *ref, const void *got_data, float rtol, float atol, bool spread,
                 double *worst) {
    hn_tensor got = *ref;
    got.data = (void *)(uintptr_t)got_data;
    int64_t n = hn_tensor_count(ref);
    double top = 0;
    *worst = 0;
    for (int64_t i = 0; i < n; i++) {
        double r = fabs(hn_tensor_get_f64(ref, i));
        if (isfinite(r) && r > top) top = r;
    }
    for (int64_t i = 0; i < n; i++) {
        double r = hn_tensor_get_f64(ref, i), g = hn_tensor_get_f64(&got, i);
        if (isnan(g) && (isnan(r) || spread)) continue;
        if (r == g) continue;
        double d = fabs(r - g);
        if (isnan(d) || d > *worst) *worst = isnan(d) ? INFINITY : d;
        if (!(d <= rtol * top + atol)) {
            print_message("    element %lld of %lld is %g, not %g (largest %g)\n", (long long)i, (long long)n, g, r, top);
            return false;
        }
    }
    return true;
}

void kcase_retype(const char *inputs, const char *type, char *out, size_t size) {
    snprintf(out, size, "%s", inputs);
    for (char *at = out; (at = strstr(at, "f32")); at += 3) {
        char rest[512];
        snprintf(rest, sizeof rest, "%s%s", type, at + 3);
        memcpy(at, rest, strlen(rest) + 1);
    }
}

bool kcase_has_form(const char *variant) {
    static const char *const k_variants[] = {"cuda:elementwise", "cuda:softmax", "cuda:layer_norm", "cuda:group_norm", "cuda:instance_norm",
                                             "cuda:reduce",      "cuda:move",    "cuda:gather",     "cuda:embeddings", "cuda:pool",
                                             "cuda:resize",      "cuda:attention", "cuda:product",  "cuda:conv_product"};
    for (size_t i = 0; i < HN_COUNT_OF(k_variants); i++)
        if (!strcmp(k_variants[i], variant)) return true;
    return false;
}
