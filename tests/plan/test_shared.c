// SPDX-License-Identifier: Apache-2.0
// Packed weights are shared: between plans of two shapes, between two sessions; they go with the
// last plan. What a session says it holds counts them once, and so does the bound of its cache.
#include <pthread.h>
#include "plan/plan_int.h"
#include "support/test.h"

enum { WIDE = 96, LAYERS = 3 };
static hn_backend *g_backend;

static hn_value *random_weights(hn_graph *graph, int rank, const int64_t *dims) {
    static uint64_t state = 11;
    hn_shape shape = {.rank = rank};
    memcpy(shape.dims, dims, sizeof *dims * (size_t)rank);
    hn_tensor tensor;
    assert_int_equal(hn_tensor_new(NULL, HN_F32, &shape, &tensor), HONE_OK);
    for (int64_t i = 0; i < hn_tensor_count(&tensor); i++) {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        ((float *)tensor.data)[i] = (float)((double)(state >> 33) / 2147483648.0 - 0.5) * 0.2f;
    }
    return hn_graph_add_constant(graph, "", &tensor);
}

// n x t x 96 -> three products -> LSTM over n, in one output
static hn_module *network(void) {
    hn_module *module = hn_module_new();
    hn_graph *g = module->main;
    hn_type type = {.dtype = HN_F32, .rank = 3};
    type.dims[0] = hn_dim_symbol(module->dims, "n");
    type.dims[1] = hn_dim_symbol(module->dims, "t");
    type.dims[2] = WIDE;
    hn_value *x = hn_graph_add_input(g, "x", &type);
    for (int i = 0; i < LAYERS; i++) {
        hn_value *in[] = {x, random_weights(g, 2, (int64_t[]){WIDE, WIDE})};
        x = hn_build(g, NULL, hn_op_find("", "MatMul"), in, 2);
    }
    hn_value *in[] = {x, random_weights(g, 3, (int64_t[]){1, 4 * 16, WIDE}),
                      random_weights(g, 3, (int64_t[]){1, 4 * 16, 16})};
    hn_node *lstm = hn_node_make(g, NULL, hn_op_find("", "LSTM"), in, 3, 1);
    assert_true(hn_node_set_int(lstm, "hidden_size", 16));
    assert_int_equal(hn_infer_node(NULL, lstm), HONE_OK);
    assert_true(hn_graph_add_output(g, lstm->outputs[0]));
    assert_int_equal(hn_infer_module(NULL, module), HONE_OK);
    return module;
}

static hn_session *session_of(const hn_module *module, int64_t cache_bytes) {
    hn_session_options options = {.backend = g_backend, .plan_cache_bytes = cache_bytes};
    hn_session *session;
    assert_int_equal(hn_session_new(NULL, module, &options, &session), HONE_OK);
    return session;
}

// The output's first element.
static float run(hn_session *session, int64_t n, int64_t t) {
    hone_error err = {0};
    hn_tensor in, out;
    assert_int_equal(hn_tensor_new(NULL, HN_F32, &(hn_shape){3, {n, t, WIDE}}, &in), HONE_OK);
    for (int64_t i = 0; i < hn_tensor_count(&in); i++)
        ((float *)in.data)[i] = (float)(i % 13) * 0.1f;
    if (hn_session_run(&err, session, &in, 1, &out, 1) != HONE_OK) fail_msg("%s", err.text);
    float first = ((float *)out.data)[0];
    hn_tensor_free(&in);
    return first;
}

static hn_prepared_stats now(void) {
    hn_prepared_stats stats;
    hn_prepared_get_stats(&stats);
    return stats;
}

static void two_shapes_and_two_sessions_hold_one_copy(void **state) {
    (void)state;
    hn_module *module = network();
    hn_session *a = session_of(module, 0), *b = session_of(module, 0);
    assert_int_equal(now().forms, 0);
    float first = run(a, 2, 5);
    hn_prepared_stats one = now();
    assert_true(one.forms >= 1 && one.made == one.forms); // the recurrence at least
    size_t lstm_bytes = (size_t)(WIDE + 16) * 64 * sizeof(float);
    assert_true(one.bytes >= lstm_bytes);
    hn_session_stats held;
    hn_session_get_stats(a, &held);
    assert_int_equal(held.prepacked_bytes, one.bytes);
    run(a, 3, 9);
    run(a, 1, 4);
    assert_true(run(b, 2, 5) == first);
    hn_prepared_stats all = now();
    assert_int_equal(all.made, one.made); // nothing was packed again
    assert_int_equal(all.bytes, one.bytes);
    assert_int_equal(all.shared, 3 * one.made);
    hn_session_get_stats(a, &held);
    assert_int_equal(held.plans, 3);
    assert_int_equal(held.prepacked_bytes, one.bytes);
    hn_session_free(a);
    assert_int_equal(now().bytes, one.bytes);
    assert_true(run(b, 2, 5) == first);
    hn_session_free(b);
    assert_int_equal(now().forms, 0);
    hn_module_free(module);
}

// Plans whose packed weights are shared cost their slab alone.
static void the_bound_of_the_cache_counts_shared_forms_once(void **state) {
    (void)state;
    hn_module *module = network();
    hn_session *probe = session_of(module, 0);
    run(probe, 2, 5);
    hn_session_stats held;
    hn_session_get_stats(probe, &held);
    int64_t room = (int64_t)(held.prepacked_bytes + 4 * held.slab_bytes);
    assert_true(held.prepacked_bytes > 2 * held.slab_bytes);
    hn_session_free(probe);
    hn_session *session = session_of(module, room);
    for (int64_t n = 1; n <= 4; n++)
        run(session, 1, n);
    hn_session_get_stats(session, &held);
    assert_int_equal(held.plans, 4);
    assert_true((int64_t)(held.prepacked_bytes + held.slab_bytes) <= room);
    hn_session_free(session);
    hn_module_free(module);
}

typedef struct worker {
    pthread_t thread;
    const hn_module *module;
    float first;
} worker;
static void *work(void *arg) {
    worker *w = arg;
    hn_session *session = session_of(w->module, 0);
    w->first = run(session, 2, 5);
    hn_session_free(session);
    return NULL;
}
static void sessions_of_other_threads_share_too(void **state) {
    (void)state;
    hn_module *module = network();
    hn_session *here = session_of(module, 0);
    float first = run(here, 2, 5);
    uint64_t made = now().made;
    worker workers[4];
    for (int i = 0; i < 4; i++) {
        workers[i] = (worker){.module = module};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(workers[i].thread, NULL);
        assert_true(workers[i].first == first);
    }
    assert_int_equal(now().made, made);
    hn_session_free(here);
    assert_int_equal(now().forms, 0);
    hn_module_free(module);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_shapes_and_two_sessions_hold_one_copy),
        cmocka_unit_test(the_bound_of_the_cache_counts_shared_forms_once),
        cmocka_unit_test(sessions_of_other_threads_share_too),
    };
    if (hn_backend_open(NULL, "cpu", 0, &g_backend) != HONE_OK) return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
