// SPDX-License-Identifier: Apache-2.0
// Inference against the reference, on nonsense for every row of the table: random types, ranks, constants and attributes, among them
// the largest and lowest numbers. Nothing may crash or hang; every failure has a sentence; what
// inference says of a shape is what the reference gives.
// TEST-TIMEOUT 120
#include "support/test.h"
#include "ops/ops.h"

// The sanitizer's allocator shall refuse sizes as malloc does.
const char *__asan_default_options(void);
const char *__asan_default_options(void) { return "allocator_may_return_null=1"; }

#define ROUNDS 400
#define MAX_INPUTS 6

static uint64_t g_state;
static uint64_t draw(uint64_t below) {
    g_state += 0x9e3779b97f4a7c15ull;
    uint64_t z = (g_state ^ (g_state >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return (z ^ (z >> 31)) % below;
}

// Small, or so large that no memory holds it: nothing between, which would only take time.
static int64_t number(void) {
    static const int64_t k_extreme[] = {INT64_MAX, INT64_MIN, -INT64_MAX, (int64_t)1 << 61,
                                        (int64_t)1 << 62, -((int64_t)1 << 62), INT64_MAX - 1};
    return draw(8) ? (int64_t)draw(8) - 3 : k_extreme[draw(HN_COUNT_OF(k_extreme))];
}

static hn_tensor random_tensor(void) {
    static const hn_dtype k_types[] = {HN_F32, HN_F32, HN_F32, HN_I64, HN_I64, HN_I64, HN_BOOL,
                                       HN_U8,  HN_I8,  HN_F64, HN_F16, HN_I4,  HN_I32, HN_U64};
    hn_dtype dtype = k_types[draw(HN_COUNT_OF(k_types))];
    hn_shape shape = {.rank = (int)(draw(5) ? draw(4) : draw(7))};
    for (int d = 0; d < shape.rank; d++)
        shape.dims[d] = (int64_t)(draw(8) ? 1 + draw(3) : 0);
    hn_tensor tensor;
    assert_int_equal(hn_tensor_new(NULL, dtype, &shape, &tensor), HONE_OK);
    for (int64_t i = 0; i < hn_tensor_count(&tensor); i++) {
        if (hn_dtype_is_float(dtype)) hn_tensor_set_f64(&tensor, i, (double)number() * 0.5);
        else hn_tensor_set_i64(&tensor, i, number());
    }
    return tensor;
}

// Attributes of the schema, some left out, with random content of the right type.
static void random_attrs(hn_node *node) {
    char name[64], type[4], value[64];
    for (const char *at = hn_op_get(node->op)->attrs; *at;) {
        int used = 0;
        value[0] = 0;
        if (sscanf(at, " %63[^: ]:%3[a-z]%n", name, type, &used) < 2) return;
        const char *rest = at + used;
        if (*rest == '=') sscanf(rest + 1, "%63[^ ]", value);
        bool required = *rest == '!';
        at = rest + strcspn(rest, " ");
        if (!required && draw(2)) continue;
        if (strcmp(type, "i") == 0) {
            assert_true(hn_node_set_int(node, name, draw(3) ? (int64_t)draw(4) : number()));
        } else if (strcmp(type, "f") == 0) {
            assert_true(hn_node_set_float(node, name, (float)number()));
        } else if (strcmp(type, "s") == 0) {
            assert_true(hn_node_set_string(node, name, draw(2) && value[0] ? value : "nonsense"));
        } else if (strcmp(type, "is") == 0) {
            int64_t list[5];
            int count = (int)draw(6);
            for (int i = 0; i < count; i++)
                list[i] = draw(3) ? (int64_t)draw(4) : number();
            assert_true(hn_node_set_ints(node, name, list, count));
        }
    }
}

static void check_shapes(const hn_node *node, const hn_tensor *out) {
    for (int i = 0; i < node->output_count; i++) {
        hn_shape said;
        if (!hn_type_shape(&node->outputs[i]->type, &said)) continue;
        if (!hn_shape_equal(&said, &out[i].shape))
            fail_msg("%s: output %d has another shape than inference said", node->op_type, i);
    }
}

// One node: inferred with constant inputs (the reference's view), with typed inputs, with nothing.
static void run_round(hn_op op, int *out_ran) {
    const hn_op_info *info = hn_op_get(op);
    int most = info->max_in < 0 ? MAX_INPUTS : info->max_in < MAX_INPUTS ? info->max_in : MAX_INPUTS;
    int least = info->min_in < most ? info->min_in : most;
    int inputs = least + (int)draw((uint64_t)(most - least) + 1);
    int outputs = info->min_out + (info->max_out != info->min_out ? (int)draw(2) : 0);
    hn_module *module = hn_module_new();
    hn_value *typed[MAX_INPUTS] = {0};
    hn_tensor tensors[MAX_INPUTS] = {{0}}, results[8] = {{0}};
    const hn_tensor *given[MAX_INPUTS] = {0};
    for (int i = 0; i < inputs; i++) {
        if (i >= info->min_in && draw(4) == 0) continue;
        tensors[i] = i && draw(3) == 0 ? hn_tensor_ref(&tensors[0]) : random_tensor();
        if (!tensors[i].dtype) tensors[i] = random_tensor();
        given[i] = &tensors[i];
        hn_type type;
        hn_type_set_shape(&type, tensors[i].dtype, &tensors[i].shape);
        for (int d = 0; d < type.rank; d++)
            if (draw(4) == 0) type.dims[d] = hn_dim_fresh(module->dims, 0, INT64_MAX);
        if (draw(8) == 0) type = (hn_type){.rank = -1};
        hn_tensor copy = hn_tensor_ref(&tensors[i]);
        typed[i] = draw(2) ? hn_graph_add_input(module->main, "", &type)
                           : hn_graph_add_constant(module->main, "", &copy);
        if (!typed[i]->constant) hn_tensor_free(&copy);
    }
    hn_node *node = hn_node_make(module->main, NULL, op, typed, inputs, outputs ? outputs : 1);
    random_attrs(node);
    hone_error err = {0};
    if (hn_infer_node(&err, node) != HONE_OK && !err.text[0]) fail_msg("%s: no sentence", info->name);
    err = (hone_error){0};
    hone_status status = hn_ref_run(&err, node, given, inputs, results, node->output_count, 3);
    if (status != HONE_OK && !err.text[0]) fail_msg("%s: no sentence", info->name);
    if (status == HONE_ERR_INTERNAL) {
        hn_str text = {0};
        hn_module_print(&text, module);
        fail_msg("%s: %s\n%s", info->name, err.text, hn_str_get(&text));
    }
    if (status == HONE_OK) {
        check_shapes(node, results);
        ++*out_ran;
    }
    for (int i = 0; i < node->output_count; i++)
        hn_tensor_free(&results[i]);
    for (int i = 0; i < inputs; i++)
        hn_tensor_free(&tensors[i]);
    hn_module_free(module);
}

static void test_every_row(void **state) {
    (void)state;
    int ran = 0;
    for (hn_op op = 1; op < HN_OP_END; op++) {
        const hn_op_info *info = hn_op_get(op);
        // Bodies are made by other tests; internal nodes by our own code only.
        if (info->traits & (HN_T_CONTROL | HN_T_INTERNAL)) continue;
        for (int round = 0; round < ROUNDS; round++) {
            g_state = (uint64_t)op * 100000 + (uint64_t)round;
            run_round(op, &ran);
        }
    }
    print_message("%d of %d random calls ran\n", ran, (HN_OP_END - 1) * ROUNDS);
    assert_true(ran > HN_OP_END * ROUNDS / 20);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_row)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
