// SPDX-License-Identifier: Apache-2.0
// Plans and sessions: fast path against references, no allocation per run (malloc is interposed),
// plan cache, memory reuse, control flow, data-dependent shapes, input errors.
#include <dlfcn.h>
#include <math.h>
#include "ir/compare.h"
#include "plan/plan_int.h"
#include "support/test.h"

// ---- malloc, interposed: who allocates while the flag is up? -------------------------------------
static _Thread_local int t_watching;
static int g_ours, g_foreign;

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define INTERPOSED 1
extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

static void note(void *caller) {
    if (!t_watching) return;
    t_watching = 0; // dladdr may allocate
    Dl_info info, self;
    bool ours = dladdr(caller, &info) && dladdr((void *)note, &self) &&
                info.dli_fbase == self.dli_fbase;
    if (ours)
        g_ours++;
    else
        g_foreign++;
    t_watching = 1;
}
void *malloc(size_t n) {
    note(__builtin_return_address(0));
    return __libc_malloc(n);
}
void *calloc(size_t a, size_t b) {
    note(__builtin_return_address(0));
    return __libc_calloc(a, b);
}
void *realloc(void *p, size_t n) {
    note(__builtin_return_address(0));
    return __libc_realloc(p, n);
}
void *aligned_alloc(size_t a, size_t n) {
    note(__builtin_return_address(0));
    return __libc_memalign(a, n);
}
#else
#define INTERPOSED 0
#endif

// ---- a small network -----------------------------------------------------------------------------
static uint64_t g_state = 7;
static float draw(void) {
    g_state = g_state * 6364136223846793005ull + 1442695040888963407ull;
    return (float)((double)(g_state >> 33) / 2147483648.0 * 2 - 1);
}

static hn_value *weights(hn_graph *graph, int rank, const int64_t *dims, float scale) {
    hn_shape shape = {.rank = rank};
    memcpy(shape.dims, dims, sizeof *dims * (size_t)rank);
    hn_tensor tensor;
    assert_int_equal(hn_tensor_new(NULL, HN_F32, &shape, &tensor), HONE_OK);
    for (int64_t i = 0; i < hn_tensor_count(&tensor); i++)
        ((float *)tensor.data)[i] = scale * draw();
    return hn_graph_add_constant(graph, "", &tensor);
}

static hn_value *op(hn_graph *graph, const char *name, hn_value *a, hn_value *b, hn_value *c) {
    hn_value *in[] = {a, b, c};
    hn_value *out = hn_build(graph, NULL, hn_op_find("", name), in, c ? 3 : b ? 2 : 1);
    assert_non_null(out);
    return out;
}

static hn_value *conv(hn_graph *graph, hn_value *x, int64_t from, int64_t to) {
    hn_value *w = weights(graph, 4, (int64_t[]){to, from, 3, 3}, 0.3f);
    hn_value *y = op(graph, "Conv", x, w, weights(graph, 1, (int64_t[]){to}, 0.1f));
    assert_true(hn_node_set_ints(y->producer, "pads", (int64_t[]){1, 1, 1, 1}, 4));
    assert_int_equal(hn_infer_node(NULL, y->producer), HONE_OK);
    return y;
}

// n x 3 x h x w -> residual block -> pool -> n x 10
static hn_module *network(void) {
    hn_module *module = hn_module_new();
    hn_graph *g = module->main;
    hn_type type = {.dtype = HN_F32, .rank = 4};
    type.dims[0] = hn_dim_symbol(module->dims, "n");
    type.dims[1] = 3;
    type.dims[2] = hn_dim_symbol(module->dims, "h");
    type.dims[3] = hn_dim_symbol(module->dims, "w");
    hn_value *x = hn_graph_add_input(g, "x", &type);
    hn_value *a = op(g, "Relu", conv(g, x, 3, 19), NULL, NULL);
    hn_value *b = op(g, "Relu", conv(g, a, 19, 19), NULL, NULL);
    hn_value *s = op(g, "Relu", op(g, "Add", a, conv(g, b, 19, 19), NULL), NULL, NULL);
    hn_value *p = op(g, "GlobalAveragePool", s, NULL, NULL);
    hn_value *f = op(g, "Flatten", p, NULL, NULL);
    hn_value *w = weights(g, 2, (int64_t[]){19, 10}, 0.5f);
    hn_value *y = op(g, "Softmax", op(g, "MatMul", f, w, NULL), NULL, NULL);
    y->name = "y";
    assert_true(hn_graph_add_output(g, y));
    assert_int_equal(hn_infer_module(NULL, module), HONE_OK);
    return module;
}

static hn_tensor image(int64_t n, int64_t h, int64_t w) {
    hn_shape shape = {4, {n, 3, h, w}};
    hn_tensor tensor;
    assert_int_equal(hn_tensor_new(NULL, HN_F32, &shape, &tensor), HONE_OK);
    for (int64_t i = 0; i < hn_tensor_count(&tensor); i++)
        ((float *)tensor.data)[i] = draw();
    return tensor;
}

static hn_backend *g_backend;

static hn_session *session_of(const hn_module *module, bool reference, int64_t cache_bytes) {
    hn_session_options options = {.backend = g_backend,
                                  .force_reference = reference,
                                  .plan_cache_bytes = cache_bytes};
    hn_session *session;
    assert_int_equal(hn_session_new(NULL, module, &options, &session), HONE_OK);
    return session;
}

static void run(hn_session *session, const hn_tensor *in, int count, hn_tensor *out, int outputs) {
    hone_error err = {0};
    hone_status status = hn_session_run(&err, session, in, count, out, outputs);
    if (status != HONE_OK) fail_msg("%s", err.text);
}

static void assert_close(const hn_tensor *ref, const hn_tensor *got) {
    hn_diff diff;
    assert_int_equal(hn_tensor_diff(NULL, ref, got, &diff), HONE_OK);
    assert_true(hn_diff_within(&diff, HN_RTOL_F32, HN_ATOL_F32));
}

// ---- tests ---------------------------------------------------------------------------------------
static void fast_path_agrees_with_references_at_every_shape(void **state) {
    (void)state;
    hn_module *module = network();
    hn_session *fast = session_of(module, false, 0), *slow = session_of(module, true, 0);
    const int64_t shapes[][3] = {{1, 8, 8}, {2, 5, 7}, {3, 1, 1}, {1, 8, 8}, {4, 16, 3}};
    for (size_t i = 0; i < HN_COUNT_OF(shapes); i++) {
        hn_tensor in = image(shapes[i][0], shapes[i][1], shapes[i][2]), a, b;
        run(fast, &in, 1, &a, 1);
        run(slow, &in, 1, &b, 1);
        assert_close(&b, &a);
        hn_tensor_free(&in);
    }
    hn_session_stats stats;
    hn_session_get_stats(fast, &stats);
    assert_int_equal(stats.plans, 4); // one shape came twice
    assert_int_equal(stats.heavy_reference_steps, 0);
    assert_int_equal(stats.heavy_steps, 4);
    hn_session_free(fast);
    hn_session_free(slow);
    hn_module_free(module);
}

static void a_run_allocates_nothing(void **state) {
    (void)state;
    hn_module *module = network();
    hn_session *session = session_of(module, false, 0);
    hn_tensor in = image(2, 12, 12), out;
    run(session, &in, 1, &out, 1);
    uint64_t before = hn_alloc_calls();
    g_ours = g_foreign = 0;
    t_watching = 1;
    for (int i = 0; i < 50; i++)
        run(session, &in, 1, &out, 1);
    t_watching = 0;
    assert_true(hn_alloc_calls() == before);
    print_message("50 runs: %d allocations of ours, %d inside foreign libraries%s\n", g_ours,
                  g_foreign, INTERPOSED ? "" : " (not interposed under a sanitizer)");
    assert_int_equal(g_ours, 0);
    hn_tensor_free(&in);
    hn_session_free(session);
    hn_module_free(module);
}

static void the_plan_cache_is_bounded(void **state) {
    (void)state;
    hn_module *module = network();
    hn_session *session = session_of(module, false, 1 << 20);
    for (int64_t h = 8; h < 40; h++) {
        hn_tensor in = image(1, h, 32), out;
        run(session, &in, 1, &out, 1);
        hn_tensor_free(&in);
        hn_session_stats stats;
        hn_session_get_stats(session, &stats);
        if (stats.plans > 1) assert_true(stats.slab_bytes + stats.prepacked_bytes <= 1 << 20);
    }
    hn_session_stats stats;
    hn_session_get_stats(session, &stats);
    assert_true(stats.plans >= 1 && stats.plans < 32);
    hn_session_free(session);
    hn_module_free(module);
}

static void wrong_inputs_are_named(void **state) {
    (void)state;
    hn_module *module = network();
    hn_session *session = session_of(module, false, 0);
    hone_error err = {0};
    hn_tensor in = image(1, 8, 8), out;
    in.shape.dims[1] = 4;
    assert_int_equal(hn_session_run(&err, session, &in, 1, &out, 1), HONE_ERR_INPUT);
    assert_string_equal(err.text, "input 'x': axis 1 is 4 where the model has 3");
    in.shape.dims[1] = 3;
    in.dtype = HN_F64;
    assert_int_equal(hn_session_run(&err, session, &in, 1, &out, 1), HONE_ERR_INPUT);
    in.dtype = HN_F32;
    in.shape.rank = 3;
    assert_int_equal(hn_session_run(&err, session, &in, 1, &out, 1), HONE_ERR_INPUT);
    assert_int_equal(hn_session_run(&err, session, &in, 0, &out, 1), HONE_ERR_INPUT);
    assert_int_equal(hn_session_run(&err, session, &in, 1, &out, 2), HONE_ERR_USAGE);
    in.shape.rank = 4;
    run(session, &in, 1, &out, 1); // the session is unharmed
    hn_tensor_free(&in);
    hn_session_free(session);
    hn_module_free(module);
}

static void failing_allocations_leave_no_harm(void **state) {
    (void)state;
    hn_module *module = network();
    hn_tensor in = image(1, 6, 6), out;
    int failures = 0;
    for (uint64_t nth = 1; nth < 4000; nth += nth < 200 ? 1 : 37) {
        hone_error err = {0};
        hn_session *session = session_of(module, false, 0);
        hn_alloc_fail_nth(nth);
        hone_status status = hn_session_run(&err, session, &in, 1, &out, 1);
        hn_alloc_fail_nth(0);
        failures += status != HONE_OK;
        if (status != HONE_OK) assert_true(err.status == status && err.text[0]);
        // The same session then works.
        run(session, &in, 1, &out, 1);
        hn_session_free(session);
    }
    print_message("%d of the failures reached the caller\n", failures);
    assert_true(failures > 20);
    hn_tensor_free(&in);
    hn_module_free(module);
}

static void packing_never_overlaps_live_blocks(void **state) {
    (void)state;
    for (int round = 0; round < 200; round++) {
        hn_block blocks[40];
        int count = 1 + round % 40;
        size_t sum = 0, total;
        for (int i = 0; i < count; i++) {
            int first = (int)((draw() + 1) * 20);
            blocks[i] = (hn_block){64 * (1 + (size_t)((draw() + 1) * 10)), first,
                                   first + (int)((draw() + 1) * 8), 0};
            sum += blocks[i].bytes;
        }
        assert_true(hn_memory_plan(blocks, count, &total));
        assert_true(total <= sum);
        size_t live_most = 0;
        for (int t = 0; t < 64; t++) {
            size_t live = 0;
            for (int i = 0; i < count; i++)
                live += blocks[i].first <= t && t <= blocks[i].last ? blocks[i].bytes : 0;
            live_most = live > live_most ? live : live_most;
        }
        assert_true(total >= live_most);
        for (int i = 0; i < count; i++)
            for (int k = 0; k < i; k++) {
                bool together = blocks[i].first <= blocks[k].last && blocks[k].first <= blocks[i].last;
                bool apart = blocks[i].out_offset + blocks[i].bytes <= blocks[k].out_offset ||
                             blocks[k].out_offset + blocks[k].bytes <= blocks[i].out_offset;
                assert_true(!together || apart);
            }
    }
    hn_block huge[2] = {{SIZE_MAX - 63, 0, 1, 0}, {128, 0, 1, 0}};
    size_t total;
    assert_false(hn_memory_plan(huge, 2, &total));
}

// 0 * index of the largest element: a node whose first output is absent.
static hn_value *nothing_of_top(hn_graph *graph, hn_value *x) {
    hn_tensor one;
    assert_int_equal(hn_tensor_new(NULL, HN_I64, &(hn_shape){1, {1}}, &one), HONE_OK);
    ((int64_t *)one.data)[0] = 1;
    hn_value *in[] = {x, hn_graph_add_constant(graph, "", &one)};
    hn_node *top = hn_node_make(graph, NULL, hn_op_find("", "TopK"), in, 2, 2);
    hn_node_set_output(top, 0, NULL);
    hn_node *cast = hn_node_make(graph, NULL, hn_op_find("", "Cast"), &top->outputs[1], 1, 1);
    assert_true(hn_node_set_int(cast, "to", HN_F32));
    assert_int_equal(hn_infer_node(NULL, top), HONE_OK);
    assert_int_equal(hn_infer_node(NULL, cast), HONE_OK);
    return op(graph, "Mul", cast->outputs[0], hn_graph_add_const_f32(graph, 0), NULL);
}

// x -> if (sum > 0) x * 2 else x - 1, the branches capturing x.
static void if_runs_the_taken_branch(void **state) {
    (void)state;
    hn_module *module = hn_module_new();
    hn_graph *g = module->main;
    hn_type type = {.dtype = HN_F32, .rank = 1};
    type.dims[0] = hn_dim_symbol(module->dims, "n");
    hn_value *x = hn_graph_add_input(g, "x", &type);
    hn_value *sum = op(g, "ReduceSum", x, NULL, NULL);
    assert_true(hn_node_set_int(sum->producer, "keepdims", 0));
    assert_int_equal(hn_infer_node(NULL, sum->producer), HONE_OK);
    hn_value *cond = op(g, "Greater", sum, hn_graph_add_const_f32(g, 0), NULL);
    hn_node *branch = hn_node_make(g, NULL, hn_op_find("", "If"), &cond, 1, 1);
    for (int k = 0; k < 2; k++) {
        hn_graph *sub = hn_graph_new(module, branch);
        hn_value *r = op(sub, k ? "Sub" : "Mul", x, hn_graph_add_const_f32(sub, k ? 1.f : 2.f), NULL);
        if (k) r = op(sub, "Add", r, nothing_of_top(sub, x), NULL);
        assert_true(hn_graph_add_output(sub, r));
        hn_attr *attr = hn_node_add_attr(branch, k ? "else_branch" : "then_branch", HN_ATTR_GRAPH);
        attr->graph = sub;
    }
    // What follows the branch is planned when its shape is known.
    hn_value *y = op(g, "Neg", branch->outputs[0], NULL, NULL);
    assert_true(hn_graph_add_output(g, y));
    assert_int_equal(hn_infer_module(NULL, module), HONE_OK);
    hn_session *session = session_of(module, false, 0);
    for (int round = 0; round < 4; round++) {
        float data[3] = {1, 2, round & 1 ? -9.f : 3.f};
        hn_tensor in = {.dtype = HN_F32, .shape = {1, {3}}, .data = data, .bytes = sizeof data}, out;
        run(session, &in, 1, &out, 1);
        for (int i = 0; i < 3; i++) {
            float expected = round & 1 ? -(data[i] - 1) : -(data[i] * 2);
            assert_true(((float *)out.data)[i] == expected);
        }
    }
    hn_session_free(session);
    hn_module_free(module);
}

// NonZero: the shape depends on the data; what follows is planned for each shape.
static void data_dependent_shapes_are_planned_late(void **state) {
    (void)state;
    hn_module *module = hn_module_new();
    hn_graph *g = module->main;
    hn_type type = {.dtype = HN_F32, .rank = 1, .dims = {6}};
    hn_value *x = hn_graph_add_input(g, "x", &type);
    hn_value *nz = op(g, "NonZero", x, NULL, NULL);
    hn_value *y = op(g, "Mul", nz, nz, NULL);
    assert_true(hn_graph_add_output(g, y));
    assert_true(hn_graph_add_output(g, nz));
    assert_int_equal(hn_infer_module(NULL, module), HONE_OK);
    hn_session *session = session_of(module, false, 0);
    for (int count = 0; count <= 6; count++) {
        float data[6] = {0};
        for (int i = 0; i < count; i++)
            data[5 - i] = 1;
        hn_tensor in = {.dtype = HN_F32, .shape = {1, {6}}, .data = data, .bytes = sizeof data};
        hn_tensor out[2];
        run(session, &in, 1, out, 2);
        assert_int_equal(out[0].shape.dims[1], count);
        for (int i = 0; i < count; i++) {
            int64_t at = 6 - count + i;
            assert_int_equal(((int64_t *)out[1].data)[i], at);
            assert_int_equal(((int64_t *)out[0].data)[i], at * at);
        }
    }
    hn_session_free(session);
    hn_module_free(module);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fast_path_agrees_with_references_at_every_shape),
        cmocka_unit_test(a_run_allocates_nothing),
        cmocka_unit_test(the_plan_cache_is_bounded),
        cmocka_unit_test(wrong_inputs_are_named),
        cmocka_unit_test(failing_allocations_leave_no_harm),
        cmocka_unit_test(packing_never_overlaps_live_blocks),
        cmocka_unit_test(if_runs_the_taken_branch),
        cmocka_unit_test(data_dependent_shapes_are_planned_late),
    };
    if (hn_backend_open(NULL, "cpu", 0, &g_backend) != HONE_OK) return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
