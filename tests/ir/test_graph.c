// SPDX-License-Identifier: Apache-2.0
// Building, editing, cloning, sorting and verifying graphs. Each verifier rule is broken once.
#include "support/test.h"
#include "ir/graph.h"

static hone_error err;

static hn_type f32(int64_t n) {
    return (hn_type){HN_F32, 1, {n}};
}

static hn_node *op(hn_graph *g, const char *type, hn_value *a, hn_value *b) {
    hn_value *in[] = {a, b};
    return hn_graph_add_node(g, NULL, 0, type, "", 13, in, b ? 2 : 1, 1);
}

static void ok(const hn_module *m) {
    if (hn_module_verify(&err, m) != HONE_OK) fail_msg("%s", err.text);
}

static void broken(const hn_module *m, const char *why) {
    assert_int_equal(hn_module_verify(&err, m), HONE_ERR_INTERNAL);
    if (!strstr(err.text, why)) fail_msg("'%s' does not say '%s'", err.text, why);
}

// x -> A -> B -> y, B also reads a constant; C hangs dead on A.
typedef struct fixture {
    hn_module *m;
    hn_value *x, *w;
    hn_node *a, *b, *c;
} fixture;

static fixture make(void) {
    fixture f = {.m = hn_module_new()};
    hn_graph *g = f.m->main;
    hn_type type = f32(4);
    f.x = hn_graph_add_input(g, "x", &type);
    f.w = hn_graph_add_const_f32(g, 2);
    f.a = op(g, "Relu", f.x, NULL);
    f.b = op(g, "Mul", f.a->outputs[0], f.w);
    f.c = op(g, "Exp", f.a->outputs[0], NULL);
    assert_true(hn_value_set_name(f.b->outputs[0], "y"));
    assert_true(hn_graph_add_output(g, f.b->outputs[0]));
    ok(f.m);
    return f;
}

static void test_edit(void **state) {
    (void)state;
    fixture f = make();
    assert_int_equal(f.a->outputs[0]->uses.count, 2);
    hn_node_remove(f.c);
    assert_int_equal(f.a->outputs[0]->uses.count, 1);
    ok(f.m);
    // y's producer is replaced by A: the name moves.
    assert_true(hn_value_can_replace(f.b->outputs[0], f.a->outputs[0]));
    assert_false(hn_value_can_replace(f.b->outputs[0], f.x));
    hn_value_replace(f.b->outputs[0], f.a->outputs[0]);
    assert_string_equal(f.a->outputs[0]->name, "y");
    assert_string_equal(f.b->outputs[0]->name, "");
    hn_node_remove(f.b);
    ok(f.m);
    hn_value_remove(f.w);
    ok(f.m);
    assert_int_equal(f.m->main->values.count, 2);
    assert_true(hn_graph_find(f.m->main, "y") == f.a->outputs[0]);
    char label[64];
    assert_string_equal(hn_node_label(f.a, label, sizeof label), "Relu producing 'y'");
    hn_module_free(f.m);
}

static void test_inputs_and_attrs(void **state) {
    (void)state;
    fixture f = make();
    hn_node *n = hn_graph_add_node(f.m->main, f.b, 0, "Concat", "", 13, NULL, 0, 1);
    for (int i = 0; i < 40; i++)
        assert_true(hn_node_add_input(n, i % 3 ? f.x : NULL));
    ok(f.m);
    hn_node_set_input(n, 5, f.w);
    hn_node_set_input(n, 6, f.w);
    hn_node_set_input(n, 6, NULL);
    ok(f.m);
    hn_node_cut_inputs(n, 6);
    assert_int_equal(n->input_count, 6);
    ok(f.m);
    for (int i = 0; i < 20; i++) {
        char name[8];
        snprintf(name, sizeof name, "a%d", i);
        assert_true(hn_node_set_int(n, name, i));
    }
    assert_true(hn_node_set_ints(n, "a3", (int64_t[]){1, 2}, 2));
    hn_node_remove_attr(n, "a4");
    int64_t count;
    assert_int_equal(hn_node_int(n, "a19", -1), 19);
    assert_int_equal(hn_node_int(n, "a4", -1), -1);
    assert_int_equal(hn_node_int(n, "a3", -1), -1); // of another type now
    assert_int_equal(hn_node_ints(n, "a3", &count)[1], 2);
    assert_int_equal(count, 2);
    assert_int_equal(n->attr_count, 19);
    hn_module_free(f.m);
}

// A node whose sub-graph captures x and A's output.
static hn_node *add_if(fixture *f, hn_value *captured) {
    hn_node *n = hn_graph_add_node(f->m->main, NULL, 0, "If", "", 16, &f->x, 1, 1);
    hn_graph *sub = hn_graph_new(f->m, n);
    assert_true(hn_node_set_graph(n, "then_branch", sub));
    hn_node *inner = op(sub, "Add", f->x, captured);
    assert_true(hn_graph_add_output(sub, inner->outputs[0]));
    return n;
}

static void test_subgraphs(void **state) {
    (void)state;
    fixture f = make();
    hn_node *n = add_if(&f, f.a->outputs[0]);
    ok(f.m);
    hn_graph *sub = hn_node_attr(n, "then_branch")->graph;
    assert_true(hn_graph_within(sub, f.m->main) && !hn_graph_within(f.m->main, sub));
    assert_true(hn_node_ancestor(sub->first, f.m->main) == n);
    size_t uses = f.a->outputs[0]->uses.count;
    hn_node_move_before(n, f.b); // still after A
    ok(f.m);
    hn_node_move_before(n, f.a); // captures a value that comes later
    broken(f.m, "not defined before");
    assert_int_equal(hn_graph_sort(&err, f.m->main), HONE_OK);
    ok(f.m);
    assert_true(f.m->main->first == f.a);
    // Splicing brings the branch into the main graph.
    hn_value *result = sub->outputs.data[0];
    assert_int_equal(hn_graph_splice(&err, sub, n), HONE_OK);
    hn_value_replace(n->outputs[0], result);
    sub->outputs.count = 0;
    hn_node_remove(n);
    ok(f.m);
    assert_true(result->graph == f.m->main);
    hn_node *again = add_if(&f, f.a->outputs[0]);
    hn_node_remove(again); // captures go with it
    ok(f.m);
    assert_int_equal(f.a->outputs[0]->uses.count, uses);
    hn_module_free(f.m);
}

static void test_sort_cycle(void **state) {
    (void)state;
    fixture f = make();
    hn_node_set_input(f.a, 0, f.c->outputs[0]);
    assert_int_equal(hn_graph_sort(&err, f.m->main), HONE_ERR_FORMAT);
    assert_non_null(strstr(err.text, "cycle"));
    hn_module_free(f.m);
    // 50,000 nodes in reverse: neither recursion nor quadratic time.
    hn_module *m = hn_module_new();
    hn_value *last = hn_graph_add_const_f32(m->main, 1);
    hn_node *before = NULL;
    for (int i = 0; i < 50000; i++) {
        hn_node *n = hn_graph_add_node(m->main, before, 0, "Relu", "", 14, &last, 1, 1);
        last = n->outputs[0];
        before = n;
    }
    assert_int_equal(hn_graph_sort(&err, m->main), HONE_OK);
    ok(m);
    hn_module_free(m);
}

static void test_clone(void **state) {
    (void)state;
    fixture f = make();
    f.w->overridable = true;
    assert_true(hn_vec_push(&f.m->main->overridables, f.w));
    hn_node *n = add_if(&f, f.a->outputs[0]);
    assert_true(hn_node_set_string(n, "s", "text"));
    hn_dim d = hn_dim_symbol(f.m->dims, "N");
    f.a->outputs[0]->type = (hn_type){HN_F32, 1, {d}};
    hn_value **map = hn_calloc(f.m->next_value_id, sizeof *map);
    hn_module *copy = hn_module_clone(f.m, map);
    assert_non_null(copy);
    ok(copy);
    assert_true(map[f.x->id] != f.x && map[f.x->id]->id == f.x->id);
    assert_true(map[f.w->id]->constant->data == f.w->constant->data); // shared
    hn_module_free(f.m);                                              // the copy stands alone
    ok(copy);
    assert_string_equal(hn_dim_symbol_name(copy->dims, d), "N");
    assert_true(hn_tensor_get_f64(copy->main->overridables.data[0]->constant, 0) == 2);
    assert_true(hn_slice_eq(hn_node_string(copy->main->last, "s", ""), "text"));
    hn_module_free(copy);
    hn_free(map);
}

static void test_verifier_finds(void **state) {
    (void)state;
    fixture f = make();
    f.a->inputs[0] = f.w; // behind the use list's back
    broken(f.m, "lists");
    f.a->inputs[0] = f.x;
    f.a->outputs[0]->output_index = 1;
    broken(f.m, "producer");
    f.a->outputs[0]->output_index = 0;
    assert_true(hn_value_set_name(f.a->outputs[0], "y"));
    broken(f.m, "named 'y'");
    assert_true(hn_value_set_name(f.a->outputs[0], "z"));
    hn_node_move_before(f.b, f.a);
    broken(f.m, "not defined before");
    hn_node_move_before(f.a, f.b);
    ok(f.m);
    f.b->outputs[0]->graph_output_uses = 0;
    broken(f.m, "not counted");
    f.b->outputs[0]->graph_output_uses = 1;
    f.w->type.rank = 1;
    broken(f.m, "the type of constant");
    f.w->type.rank = 0;
    f.x->is_input = false;
    broken(f.m, "not marked");
    f.x->is_input = true;
    f.b->post_count = 1;
    f.b->base_input_count = 2;
    f.b->post[0] = (hn_post){.input = 1, .scale = -1, .zero = -1};
    broken(f.m, "fused step");
    f.b->post_count = 0;
    f.b->base_input_count = 0;
    ok(f.m);
    hn_module_free(f.m);
}

// Every allocation of building, cloning, editing and verifying fails once: no crash, no leak.
static void test_out_of_memory(void **state) {
    (void)state;
    for (uint64_t nth = 1; nth < 200; nth++) {
        hn_alloc_fail_nth(nth);
        hn_module *m = hn_module_new();
        hn_type type = f32(3);
        hn_value *x = m ? hn_graph_add_input(m->main, "x", &type) : NULL;
        for (int i = 0; x && i < 60; i++) {
            hn_value *in[] = {x, x};
            hn_node *n = hn_graph_add_node(m->main, NULL, 0, "Add", "", 14, in, 2, 1);
            if (!n) break;
            (void)!hn_node_set_int(n, "k", 1);
            hn_node_set_input(n, 1, hn_graph_add_const_f32(m->main, 1));
            x = n->outputs[0];
        }
        hn_module *copy = m ? hn_module_clone(m, NULL) : NULL;
        hn_alloc_fail_nth(0);
        if (m) (void)!hn_module_verify(&err, m);
        hn_module_free(copy);
        hn_module_free(m);
    }
}

static void count_release(void *user) { ++*(int *)user; }

// Whoever hands a tensor over has none left, also where there is no memory to keep it.
static void test_tensors_are_taken_over(void **state) {
    (void)state;
    static const float data[4] = {1, 2, 3, 4};
    int refused = 0;
    for (int way = 0; way < 3; way++)
        for (uint64_t nth = 0; nth < 20; nth++) {
            hn_module *m = hn_module_new();
            hn_type type = f32(4);
            hn_value *x = hn_graph_add_input(m->main, "x", &type);
            hn_node *n = hn_graph_add_node(m->main, NULL, 0, "Relu", "", 14, &x, 1, 1);
            int released = 0;
            hn_tensor t = {HN_F32, {1, {4}}, (void *)(uintptr_t)data, sizeof data,
                           hn_buffer_wrap(data, sizeof data, count_release, &released)};
            assert_non_null(t.buffer);
            // An arena's block hides the failures of single pieces: fill it up, more each time.
            for (uint64_t i = 0; i < nth / 2; i++)
                assert_non_null(hn_arena_alloc(&m->arena, 500));
            hn_alloc_fail_nth(nth % 2 + 1);
            bool kept = way == 0   ? hn_module_add_tensor(m, &t) != NULL
                        : way == 1 ? hn_graph_add_constant(m->main, "w", &t) != NULL
                                   : hn_node_set_tensor(n, "value", &t);
            hn_alloc_fail_nth(0);
            refused += !kept;
            assert_null(t.buffer);
            if (kept) assert_int_equal(released, 0);
            hn_module_free(m);
            assert_int_equal(released, 1);
        }
    assert_true(refused >= 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tensors_are_taken_over),
        cmocka_unit_test(test_edit),          cmocka_unit_test(test_inputs_and_attrs),
        cmocka_unit_test(test_subgraphs),     cmocka_unit_test(test_sort_cycle),
        cmocka_unit_test(test_clone),         cmocka_unit_test(test_verifier_finds),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
