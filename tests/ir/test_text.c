// SPDX-License-Identifier: Apache-2.0
// The text form: random modules survive printing and parsing to the letter; broken texts give one
// sentence and nothing else.
#include "support/test.h"
#include "ir/graph.h"

static hone_error err;

static char *print(const hn_module *m) {
    hn_str out = {0};
    hn_module_print(&out, m);
    assert_false(out.failed);
    return out.data;
}

static hn_module *parse(const char *text) {
    hn_module *m = NULL;
    if (hn_module_parse(&err, text, &m) != HONE_OK)
        fail_msg("%s (%s) in\n%s", err.text, err.frames[0], text);
    return m;
}

// ---- random modules -----------------------------------------------------------------------------

static uint64_t seed = 42;
static unsigned rnd(unsigned below) {
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return (unsigned)(seed >> 33) % below;
}

typedef struct pool {
    hn_value *values[400];
    int count;
} pool;

static hn_value *pick(const pool *p) {
    return rnd(8) ? p->values[rnd((unsigned)p->count)] : NULL;
}

static const char *odd_name(void) {
    static const char *const names[] = {"",         "",   "",    "a", "b.c",         "/layer/out_0",
                                        "quote\"d", "_x", "x y", "7", "\xe4\xb8\xad"};
    static char buf[64];
    const char *base = names[rnd(HN_COUNT_OF(names))];
    if (!*base) return "";
    snprintf(buf, sizeof buf, "%s%u", base, rnd(100000));
    return rnd(12) ? buf : base; // now and then a name that another graph has too
}

static void name_value(hn_value *v) {
    const char *name = odd_name();
    if (!hn_graph_find(v->graph, name)) assert_true(hn_value_set_name(v, name));
    if (!rnd(20)) v->doc = "a \\ doc\n";
}

static hn_type random_type(hn_module *m) {
    hn_type t = {(hn_dtype)rnd(HN_DTYPE_END), (int)rnd(5) - 1, {0}};
    static const char *const symbols[] = {"N", "height", "batch size", NULL};
    for (int i = 0; i < t.rank; i++) {
        hn_dim d = (hn_dim)rnd(9);
        if (rnd(2))
            d = hn_dim_add(
                m->dims,
                hn_dim_mul(m->dims, hn_dim_symbol(m->dims, symbols[rnd(4)]), 1 + (int)rnd(3)),
                (int)rnd(3));
        if (!rnd(4))
            d = hn_dim_floordiv(m->dims, hn_dim_add(m->dims, d, hn_dim_symbol(m->dims, "M")), 2);
        if (!rnd(6))
            d = hn_dim_max(m->dims, d, hn_dim_mul(m->dims, d, hn_dim_symbol(m->dims, "K")));
        t.dims[i] = d;
    }
    return t;
}

static hn_tensor random_tensor(hn_module *m) {
    hn_tensor t;
    hn_dtype dtype = (hn_dtype)(1 + rnd(HN_DTYPE_END - 1));
    hn_shape shape = {(int)rnd(3), {rnd(12), rnd(12)}};
    assert_int_equal(hn_tensor_new(NULL, dtype, &shape, &t), HONE_OK);
    int64_t count = hn_tensor_count(&t);
    if (dtype == HN_STRING) {
        for (int64_t i = 0; i < count; i++)
            ((hn_slice *)t.data)[i] = (hn_slice){"t\"\x01x", rnd(5)};
        (void)m;
        return t;
    }
    for (size_t i = 0; i < t.bytes; i++)
        ((uint8_t *)t.data)[i] = (uint8_t)(dtype == HN_BOOL ? rnd(2) : rnd(256));
    int bits = hn_dtype_bits(dtype); // padding of packed types is zero
    if (bits < 8 && count * bits % 8)
        ((uint8_t *)t.data)[t.bytes - 1] &= (uint8_t)((1u << (count * bits % 8)) - 1);
    return t;
}

static void random_attrs(hn_module *m, hn_node *n, pool visible, int depth);

static void random_graph(hn_module *m, hn_graph *g, pool visible, int depth) {
    for (unsigned i = rnd(3) + (depth == 0); i > 0; i--) {
        hn_type t = random_type(m);
        hn_value *v = hn_graph_add_input(g, "", &t);
        name_value(v);
        visible.values[visible.count++] = v;
    }
    for (unsigned i = rnd(4); i > 0; i--) {
        hn_tensor t = random_tensor(m);
        hn_value *v = hn_graph_add_constant(g, "", &t);
        name_value(v);
        if (!rnd(3) && depth == 0) {
            v->overridable = true;
            assert_true(hn_vec_push(&g->overridables, v));
        }
        visible.values[visible.count++] = v;
    }
    for (unsigned i = rnd(8) + 1; i > 0 && visible.count < 380; i--) {
        hn_value *in[6];
        int count = (int)rnd(6);
        for (int k = 0; k < count; k++)
            in[k] = visible.count ? pick(&visible) : NULL;
        static const char *const ops[] = {"Conv", "Add", "weird op", "If"};
        hn_node *n = hn_graph_add_node(g, NULL, 0, ops[rnd(4)], rnd(4) ? "" : "com.example",
                                       1 + (int)rnd(24), in, count, 1 + (int)rnd(3));
        assert_non_null(n);
        if (!rnd(3)) assert_non_null(n->name = hn_arena_strdup(&m->arena, odd_name()));
        if (!rnd(4)) n->compute = HN_BF16;
        n->plain = !rnd(4);
        if (count && !rnd(2)) {
            n->base_input_count = (int)rnd((unsigned)count + 1);
            n->post_count = 1 + (int)rnd(HN_MAX_POST);
            for (int k = 0; k < n->post_count; k++) {
                int first = n->base_input_count,
                    operand = first < count && n->inputs[first] ? first : -1;
                n->post[k] = (hn_post){.op_type = rnd(2) ? "Relu" : "Add",
                                       .input = rnd(2) ? operand : -1,
                                       .swapped = rnd(2) != 0,
                                       .scale = rnd(2) ? operand : -1,
                                       .zero = -1,
                                       .alpha = (float)rnd(100) / 7,
                                       .beta = rnd(2) ? 0.1f : 0};
            }
        }
        random_attrs(m, n, visible, depth);
        for (int k = 0; k < n->output_count; k++) {
            if (!rnd(6)) {
                hn_node_set_output(n, k, NULL);
                continue;
            }
            n->outputs[k]->type = random_type(m);
            name_value(n->outputs[k]);
            visible.values[visible.count++] = n->outputs[k];
        }
    }
    for (unsigned i = rnd(4); i > 0 && g->values.count; i--)
        assert_true(hn_graph_add_output(g, g->values.data[rnd((unsigned)g->values.count)]));
}

static void random_attrs(hn_module *m, hn_node *n, pool visible, int depth) {
    static const int64_t ints[] = {-1, INT64_MAX, INT64_MIN, 7};
    static const float floats[] = {0.1f, -0.0f, 1e-40f, 3e38f};
    static const hn_slice strings[] = {{"a\0b", 3}, {"", 0}, {"\\", 1}};
    char name[8] = "a0";
    for (unsigned i = rnd(4); i > 0; i--, name[1]++) {
        switch (rnd(8)) {
        case 0:
            assert_true(hn_node_set_int(n, name, ints[rnd(4)]));
            break;
        case 1:
            assert_true(hn_node_set_float(n, name, floats[rnd(4)]));
            break;
        case 2:
            assert_true(hn_node_set_string(n, name, "s\t\""));
            break;
        case 3:
            assert_true(hn_node_set_ints(n, name, ints, rnd(5)));
            break;
        case 4:
            assert_true(hn_node_set_floats(n, name, floats, rnd(5)));
            break;
        case 5:
            assert_true(hn_node_set_strings(n, name, strings, rnd(4)));
            break;
        case 6: {
            hn_tensor t = random_tensor(m);
            assert_true(hn_node_set_tensor(n, name, &t));
            break;
        }
        default: {
            if (depth == 3) break;
            hn_graph *g = hn_graph_new(m, n);
            assert_true(hn_node_set_graph(n, name, g));
            random_graph(m, g, visible, depth + 1);
        }
        }
    }
}

static void test_round_trip(void **state) {
    (void)state;
    for (int round = 0; round < 1500; round++) {
        seed = (uint64_t)round * 7919 + 1;
        hn_module *m = hn_module_new();
        pool visible = {.count = 0};
        random_graph(m, m->main, visible, 0);
        if (rnd(2)) hn_dim_narrow(m->dims, hn_dim_symbol(m->dims, "N"), 1, 64, 2);
        hn_opset opset = {"com.example", 3};
        hn_meta meta = {"key", "value with \"quotes\""};
        if (rnd(2)) assert_true(hn_vec_push(&m->opsets, opset));
        if (rnd(2)) assert_true(hn_vec_push(&m->metadata, meta));
        m->ir_version = rnd(11);
        m->producer_name = rnd(2) ? "p" : "";
        if (hn_module_verify(&err, m) != HONE_OK) fail_msg("round %d: %s", round, err.text);
        char *first = print(m);
        hn_module *back = parse(first);
        char *second = print(back);
        if (strcmp(first, second) != 0) fail_msg("round %d:\n%s\n----\n%s", round, first, second);
        hn_module *copy = hn_module_clone(m, NULL);
        char *third = print(copy);
        if (strcmp(first, third) != 0) {
            size_t at = 0;
            while (first[at] == third[at])
                at++;
            at = at > 80 ? at - 80 : 0;
            fail_msg("round %d: copy differs\n%.160s\n----\n%.160s", round, first + at, third + at);
        }
        hn_free(first);
        hn_free(second);
        hn_free(third);
        hn_module_free(copy);
        hn_module_free(back);
        hn_module_free(m);
    }
}

static void test_content(void **state) {
    (void)state;
    hn_module *m = parse("hone-ir 1\n"
                         "dim N from 1 to 8 times 2\n"
                         "graph \"g\" {\n"
                         "  input %x : f32[N, 3] # a comment\n"
                         "  const %w : f32[2] = {1.5, 0x7fc00001}\n"
                         "  const %big : f16[100, 3] = random 0xdeadbeef\n"
                         "  %y : f32[N, 3] = com.microsoft::Foo@1(%x, _, %w | %big) {axis = 1, "
                         "f = 2f, e = []i} post Add in 3 swapped compute bf16 name \"n\"\n"
                         "  output %y\n"
                         "}\n");
    const hn_node *n = m->main->first;
    assert_string_equal(n->domain, "com.microsoft");
    assert_int_equal(n->input_count, 4);
    assert_int_equal(n->base_input_count, 3);
    assert_null(n->inputs[1]);
    assert_int_equal(n->post[0].input, 3);
    assert_true(n->post[0].swapped);
    assert_int_equal(n->compute, HN_BF16);
    assert_true(hn_node_float(n, "f", 0) == 2);
    const hn_value *w = hn_graph_find(m->main, "w");
    assert_true(((uint32_t *)w->constant->data)[1] == 0x7fc00001);
    int64_t lo, hi;
    hn_dim_range(m->dims, n->outputs[0]->type.dims[0], &lo, &hi);
    assert_int_equal(lo, 1);
    assert_int_equal(hi, 8);
    assert_int_equal(hn_dim_divisor(m->dims, n->outputs[0]->type.dims[0]), 2);
    hn_module_free(m);
}

static void test_bad_texts(void **state) {
    (void)state;
    static const struct {
        const char *body, *why;
    } rows[] = {
        {"%y = Relu@1(%x)\n", "used before"},
        {"input %x\ninput %x\n", "defined twice"},
        {"input %a as \"n\"\ninput %b as \"n\"\n", "named 'n'"},
        {"const %w : f32[3] = {1, 2}\n", "','"},
        {"const %w : f32[N] = {1}\n", "shape of numbers"},
        {"const %w : f32[3] = {1, 2, x}\n", "no element"},
        {"const %w : f32[4000000000, 4000000000] = random 0x1\n", "shape of numbers"},
        {"const %w : f32[400000000] = random 0x1\n", "exceed"},
        {"const %w : f32[100000000] = {1}\n", "fewer"},
        {"const %w : f32[2] = random 0x1\n", "random"},
        {"const %w : f99[2] = {1, 2}\n", "element type"},
        {"input %x : f32[1,1,1,1,1,1,1,1,1]\n", "more than 8"},
        {"input %x : f32[(]\n", "operand"},
        {"%y = Relu@1(\n", "where '%' is due"},
        {"%y = Relu(%y)\n", "'@'"},
        {"%y = Relu@1() {a = }\n", "no value"},
        {"%y = Relu@1() {a = 1, a = 2}\n", "twice"},
        {"%y = Relu@1() {a = [1, 2f]}\n", "two types"},
        {"%y = Relu@1() {a = \"x}\n", "not closed"},
        {"%y = Relu@1() post Add in 0\n", "is due"},
        {"%y = If@1() {t = graph \"\" {\ninput %z\n}}\n%q = Relu@1(%z)\n", "not visible"},
        {"%y = If@1() {t = graph \"\" {\n}}\noutput %z\n", "used before"},
        {"input %x\n%y = If@1() {t = graph \"\" {\noutput %x\n}}\n", "not defined in that graph"},
    };
    for (size_t i = 0; i < HN_COUNT_OF(rows); i++) {
        char text[1024];
        hn_module *m = (hn_module *)&text;
        snprintf(text, sizeof text, "hone-ir 1\ngraph \"\" {\n%s}\n", rows[i].body);
        hone_status status = hn_module_parse(&err, text, &m);
        if (status != HONE_ERR_FORMAT && status != HONE_ERR_LIMIT)
            fail_msg("%s: %d", rows[i].body, status);
        if (!strstr(err.text, rows[i].why))
            fail_msg("%s: '%s' does not say '%s'", rows[i].body, err.text, rows[i].why);
        assert_ptr_equal(m, &text);
    }
    hn_module *m;
    assert_int_equal(hn_module_parse(&err, "", &m), HONE_ERR_FORMAT);
    assert_int_equal(hn_module_parse(&err, "hone-ir 2\n", &m), HONE_ERR_FORMAT);
    hn_str deep = {0};
    hn_str_append(&deep, "hone-ir 1\ngraph \"\" {\n");
    for (int i = 0; i < 10000; i++)
        hn_str_append(&deep, "= If@1() {t = graph \"\" {\n");
    assert_int_equal(hn_module_parse(&err, deep.data, &m), HONE_ERR_LIMIT);
    hn_str_free(&deep);
}

// Every prefix of a text that parses is refused cleanly.
static void test_truncated(void **state) {
    (void)state;
    seed = 5;
    hn_module *m = hn_module_new();
    pool visible = {.count = 0};
    random_graph(m, m->main, visible, 0);
    char *text = print(m);
    size_t length = strlen(text);
    for (size_t cut = 0; cut + 2 < length; cut++) {
        char *part = hn_strndup(text, cut);
        hn_module *out;
        assert_int_not_equal(hn_module_parse(&err, part, &out), HONE_OK);
        hn_free(part);
    }
    for (uint64_t nth = 1; nth < 120; nth++) {
        hn_module *out = NULL;
        hn_alloc_fail_nth(nth);
        hone_status status = hn_module_parse(&err, text, &out);
        hn_alloc_fail_nth(0);
        if (status == HONE_OK) hn_module_free(out);
    }
    hn_free(text);
    hn_module_free(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_content),
        cmocka_unit_test(test_bad_texts),
        cmocka_unit_test(test_truncated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
