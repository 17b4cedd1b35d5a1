// SPDX-License-Identifier: Apache-2.0
// TEST-TIMEOUT 120
// Hostile nodes: every row of the table with random ranks, dims, element values and attributes,
// some of them absurd. Whatever comes back, inference and reference must not crash, hang, or write
// out of bounds (the sanitizer builds see that); what inference accepts and is small is run.
#include "support/test.h"
#include "ops/ops.h"

static uint64_t g_state;
static uint64_t draw(void) { // xorshift64
    g_state ^= g_state << 13;
    g_state ^= g_state >> 7;
    return g_state ^= g_state << 17;
}
static int64_t below(int64_t limit) { return (int64_t)(draw() % (uint64_t)limit); }

static int64_t absurd(void) {
    static const int64_t k_values[] = {0, -1, 1, 2, 3, 5, -7, 127, 65536, INT32_MAX, INT32_MIN,
                                       (int64_t)1 << 40, INT64_MAX, INT64_MIN, INT64_MAX / 2};
    return k_values[below(HN_COUNT_OF(k_values))];
}
static int64_t mostly_small(void) { return below(6) ? below(4) : absurd(); }

static double element(hn_dtype dtype) {
    static const double k_values[] = {0, 1, -1, 0.5, 3, -2.25, 1e30, -1e30, 1e-30};
    if (!hn_dtype_is_float(dtype)) return (double)(below(8) ? below(5) - 1 : absurd());
    int64_t which = below(HN_COUNT_OF(k_values) + 3);
    double zero = 0;
    if (which == HN_COUNT_OF(k_values)) return 1 / zero;
    if (which == HN_COUNT_OF(k_values) + 1) return -1 / zero;
    return which < (int64_t)HN_COUNT_OF(k_values) ? k_values[which] : zero / zero;
}

static void random_attr(hn_node *node, hn_slice name, hn_slice type) {
    static const char *const k_words[] = {"SAME_UPPER", "VALID", "linear", "nearest", "cubic", "reverse", "bidirectional", "max",
                                          "none", "sum", "border", "reflection", "constant", "edge", "tanh", "ij,jk->ik",
                                          "...i->...", "ii", "i,i", "align_corners", "tf_crop_and_resize", "not_larger", "?"};
    char key[64];
    snprintf(key, sizeof key, "%.*s", (int)name.length, name.data);
    if (hn_slice_eq(type, "i")) {
        (void)hn_node_set_int(node, key, mostly_small());
    } else if (hn_slice_eq(type, "f")) {
        (void)hn_node_set_float(node, key, (float)element(HN_F32));
    } else if (hn_slice_eq(type, "s")) {
        (void)hn_node_set_string(node, key, k_words[below(HN_COUNT_OF(k_words))]);
    } else if (hn_slice_eq(type, "is")) {
        int64_t values[10], count = below(2) ? below(10) : 2 * below(4);
        for (int64_t i = 0; i < count; i++) values[i] = mostly_small();
        (void)hn_node_set_ints(node, key, values, count);
    } else if (hn_slice_eq(type, "fs")) {
        hn_attr *attr = hn_node_add_attr(node, key, HN_ATTR_FLOATS);
        float *values = hn_arena_array(&node->graph->module->arena, 4, sizeof *values);
        for (int i = 0; i < 4; i++) values[i] = (float)element(HN_F32);
        attr->floats = values;
        attr->count = below(4);
    }
}

static void random_attrs(hn_node *node) {
    for (const char *at = hn_op_get(node->op)->attrs; *at;) {
        while (*at == ' ') at++;
        size_t length = strcspn(at, " "), colon = strcspn(at, ":");
        hn_slice name = {at, colon}, type = {at + colon + 1, strcspn(at + colon + 1, "=! ")};
        bool required = memchr(at, '!', length) != NULL;
        if (colon < length && (required || below(3) == 0)) random_attr(node, name, type);
        at += length;
    }
}

// Dims that fit together more often than chance would have it: few different ones.
static hn_tensor random_tensor(const hn_shape *like) {
    static const hn_dtype k_types[] = {HN_F32, HN_F32, HN_F32, HN_F64, HN_F16, HN_I64, HN_I64, HN_I32, HN_U8, HN_I8, HN_BOOL, HN_I4};
    hn_shape shape = {.rank = (int)below(6)};
    for (int i = 0; i < shape.rank; i++) shape.dims[i] = below(3) ? 1 + below(2) : below(5);
    if (like && below(2)) shape = *like;
    hn_tensor tensor;
    assert_int_equal(hn_tensor_new(NULL, k_types[below(HN_COUNT_OF(k_types))], &shape, &tensor), HONE_OK);
    for (int64_t i = 0; i < hn_tensor_count(&tensor); i++)
        hn_tensor_set_f64(&tensor, i, element(tensor.dtype));
    return tensor;
}

static bool is_small(const hn_node *node) {
    for (int o = 0; o < node->output_count; o++) {
        hn_shape shape;
        int64_t count;
        if (!node->outputs[o]) continue;
        if (hn_op_has(node->op, HN_T_DYNAMIC)) continue;
        if (!hn_type_shape(&node->outputs[o]->type, &shape) || !hn_shape_count(&shape, &count) || count > 20000) return false;
    }
    return true;
}

static void one_node(hn_op op, int *ran) {
    const hn_op_info *info = hn_op_get(op);
    hn_module *module = hn_module_new();
    int most = info->max_in < 0 ? info->min_in + 2 : info->max_in;
    int inputs = info->min_in + (int)below(most - info->min_in + 1), outputs = info->max_out < 0 ? 2 : info->max_out;
    hn_tensor tensors[16];
    hn_value *values[16] = {0};
    bool symbolic = below(4) == 0, typed = below(4) != 0;
    hn_dtype dtype = HN_NONE;
    for (int i = 0; i < inputs; i++) {
        tensors[i] = (hn_tensor){0};
        if (i >= info->min_in && below(4) == 0) continue;
        tensors[i] = random_tensor(i ? &tensors[0].shape : NULL);
        if (i == 0) dtype = tensors[i].dtype;
        if (typed && i && hn_dtype_is_float(tensors[i].dtype)) { // one float type in a node
            hn_shape shape = tensors[i].shape;
            hn_tensor_free(&tensors[i]);
            assert_int_equal(hn_tensor_new(NULL, hn_dtype_is_float(dtype) ? dtype : HN_F32, &shape, &tensors[i]), HONE_OK);
            for (int64_t k = 0; k < hn_tensor_count(&tensors[i]); k++) hn_tensor_set_f64(&tensors[i], k, element(HN_F32));
        }
        if (symbolic) {
            hn_type type = {.dtype = tensors[i].dtype, .rank = tensors[i].shape.rank};
            for (int d = 0; d < type.rank; d++)
                type.dims[d] = below(2) ? hn_dim_fresh(module->dims, 0, INT64_MAX) : below(8) ? tensors[i].shape.dims[d] : hn_max_i64(absurd(), 0);
            values[i] = hn_graph_add_input(module->main, "", &type);
        } else {
            hn_tensor copy = hn_tensor_ref(&tensors[i]);
            values[i] = hn_graph_add_constant(module->main, "", &copy);
        }
    }
    hn_node *node = hn_node_make(module->main, NULL, op, values, inputs, outputs);
    random_attrs(node);
    if (below(8) == 0) node->version = 7;
    hone_error err = {0};
    hone_status status = hn_infer_node(&err, node);
    if (status != HONE_OK) assert_true(err.text[0] != 0);
    if (status == HONE_OK && !symbolic && info->ref && is_small(node)) {
        const hn_tensor *in[16];
        hn_tensor out[16] = {{0}};
        for (int i = 0; i < inputs; i++) in[i] = tensors[i].dtype ? &tensors[i] : NULL;
        status = hn_ref_run(&err, node, in, inputs, out, outputs, 3);
        *ran += status == HONE_OK;
        for (int i = 0; i < outputs; i++) hn_tensor_free(&out[i]);
    }
    for (int i = 0; i < inputs; i++) hn_tensor_free(&tensors[i]);
    hn_module_free(module);
}

static const char *g_only; // name of a row; NULL: all

static void test_every_row(void **state) {
    (void)state;
    int rounds = 400, rows = 0, reached = 0;
    for (hn_op op = 1; op < HN_OP_END; op++) {
        const hn_op_info *info = hn_op_get(op);
        if (info->traits & HN_T_CONTROL || !info->infer) continue;
        if (g_only && strcmp(g_only, info->name) != 0) continue;
        int ran = 0;
        int64_t start = hn_clock_ns();
        for (int i = 0; i < rounds; i++) {
            g_state = (uint64_t)op * 1000003 + (uint64_t)i + 88172645463325252ull;
            one_node(op, &ran);
        }
        double ms = (double)(hn_clock_ns() - start) / 1e6;
        rows++;
        reached += ran > 0;
        if (ms > 300) print_message("%s: %d of %d ran, %.0f ms\n", info->name, ran, rounds, ms);
    }
    // Chance builds a valid node of most ops: otherwise the references were not tried at all.
    print_message("%d of %d rows ran their reference\n", reached, rows);
    assert_true(g_only || reached * 4 > rows * 3);
}

int main(int argc, char **argv) {
    g_only = argc > 1 ? argv[1] : NULL;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_row)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
