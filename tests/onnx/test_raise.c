// SPDX-License-Identifier: Apache-2.0
// What old forms become: the nodes after raising, in text, and the opset that the file goes out
// with. That the outputs stay the same is checked against onnxruntime by test_raise.sh.
#include "support/onnx_make.h"
#include "support/test.h"
#include <unistd.h>

typedef struct raise_case {
    int opset;
    const char *op, *inputs, *outputs;
    const char *ints;     // "axes=1,2 k=3"; a single value with ':' is an INT: "axis:1"
    const char *text;     // "mode=linear"
    const char *floats;   // "min=0.5"
    const char *expected; // in the text form, parts that must stand in this order
    int out_opset;        // of the written file
} raise_case;

static const raise_case k_cases[] = {
    {11, "Squeeze", "x", "y", "axes=0", "", "", "= {0}|%y |Squeeze@13(%x, %hone.0)", 13},
    {9, "Unsqueeze", "x", "y", "axes=0,4", "", "", "= {0, 4}|Unsqueeze@13(%x, %hone.0)", 13},
    {12, "ReduceMean", "x", "y", "axes=-1 keepdims:0", "", "",
     "ReduceMean@18(%x, %hone.0) {keepdims = 0}", 18},
    {12, "ReduceSum", "x", "y", "keepdims:1", "", "", "ReduceSum@13(%x) {keepdims = 1}", 12},
    {9, "Slice", "x", "y", "starts=1 ends=2 axes=3", "", "",
     "Slice@10(%x, %hone.0, %hone.1, %hone.2)", 10},
    {9, "Clip", "x", "y", "", "", "min=0.5", "= {0.5}|Clip@11(%x, %hone.0)", 11},
    {9, "Clip", "x", "y", "", "", "max=6", "Clip@11(%x, _, %hone.0)", 11},
    {10, "Pad", "x", "y", "pads=0,0,1,1,0,0,1,1", "mode=constant", "value=2",
     "Pad@11(%x, %hone.0, %hone.1) {mode = \"constant\"}", 11},
    {10, "Pad", "x", "y", "pads=0,0,1,1,0,0,1,1", "mode=edge", "value=2",
     "Pad@11(%x, %hone.0) {mode = \"edge\"}", 11},
    {7, "Dropout", "x", "y", "", "", "ratio=0.25", "= {0.25}|Dropout@12(%x, %hone.0)", 12},
    {9, "Split", "x", "y z", "axis:1 split=1,3", "", "",
     "= {1, 3}|Split@18(%x, %hone.0) {axis = 1}", 13},
    {13, "Split", "x", "y z", "axis:1", "", "", "Split@18(%x) {axis = 1, num_outputs = 2}", 18},
    {9, "TopK", "x", "y z", "k:2", "", "", "= {2}|TopK@11(%x, %hone.0)", 10},
    {7, "Softmax", "x", "y", "axis:3", "", "", "Softmax@13(%x) {axis = -1}", 11},
    {11, "Softmax", "x", "y", "axis:1", "", "",
     "Shape@|(%x)|Flatten@|(%x) {axis = 1}|Softmax@13(|{axis = -1}|%y |Reshape@", 11},
    {7, "Upsample", "x", "y", "", "mode=nearest", "scales=1,1,2,2",
     "Resize@13(%x, _, %hone.0) {mode = \"nearest\", coordinate_transformation_mode = "
     "\"asymmetric\", nearest_mode = \"floor\"}",
     13},
    {10, "RoiAlign", "x r b", "y", "", "", "",
     "coordinate_transformation_mode = \"output_half_pixel\"", 16},
    {16, "GridSample", "x g", "y", "", "mode=bicubic", "",
     "GridSample@20(%x, %g) {mode = \"cubic\"}", 20},
    {17, "DFT", "x", "y", "axis:2", "", "", "= {2}|DFT@20(%x, _, %hone.0)", 20},
    {9, "Scatter", "x i u", "y", "axis:1", "", "", "ScatterElements@11(%x, %i, %u) {axis = 1}", 11},
    {8, "BatchNormalization", "x w w w w", "y", "spatial:1", "", "",
     "BatchNormalization@14(%x, %w, %w, %w, %w)", 9},
    // Forms that did not change keep the file's opset.
    {9, "Relu", "x", "y", "", "", "", "Relu@7(%x)", 9},
    {9, "Add", "x x", "y", "", "", "", "Add@7(%x, %x)", 9},
};

static void put_list(hn_wire_out *w, const char *list, bool floats) {
    while (*list) {
        char name[32];
        int64_t values[16];
        float reals[16];
        size_t length = strcspn(list, "=:");
        bool single = list[length] == ':';
        int count = 0;
        snprintf(name, sizeof name, "%.*s", (int)length, list);
        list += length + 1;
        for (;;) {
            char *end;
            double value = strtod(list, &end);
            reals[count] = (float)value;
            values[count++] = (int64_t)value;
            list = end + (*end == ',');
            if (*end != ',') break;
        }
        bool list_of_floats = floats && strcmp(name, "scales") == 0;
        if (list_of_floats)
            om_floats(w, name, reals, count);
        else if (floats)
            om_float(w, name, reals[0]);
        else if (single)
            om_int(w, name, values[0]);
        else
            om_ints(w, name, values, count);
        while (*list == ' ')
            list++;
    }
}

static hn_module *parse_case(const raise_case *c, const hn_onnx_options *options) {
    hn_wire_out w = {0};
    om_model(&w, 7, c->opset);
    om_value(&w, 11, "x", HN_F32, "1 4 3 2");
    om_value(&w, 11, "g", HN_F32, "1 4 3 2");
    om_value(&w, 11, "r", HN_F32, "1 4");
    om_value(&w, 11, "b", HN_I64, "1");
    om_value(&w, 11, "i", HN_I64, "1 1 1 1");
    om_weights(&w, "w", "4", 4);
    om_weights(&w, "u", "1 1 1 1", 1);
    om_node_begin(&w, 1, c->op, c->inputs, c->outputs);
    put_list(&w, c->ints, false);
    const char *equals = strchr(c->text, '=');
    if (equals) {
        char name[32];
        snprintf(name, sizeof name, "%.*s", (int)(equals - c->text), c->text);
        om_string(&w, name, equals + 1);
    }
    put_list(&w, c->floats, true);
    om_end(&w);
    om_value(&w, 12, "y", HN_F32, NULL);
    hone_error err = {0};
    hn_module *module = NULL;
    if (om_parse(&err, &w, NULL, options, &module) != HONE_OK) fail_msg("%s: %s", c->op, err.text);
    return module;
}

static void expect_parts(const char *text, const char *parts, const char *op) {
    const char *at = text;
    char part[256];
    while (*parts) {
        size_t length = strcspn(parts, "|");
        snprintf(part, sizeof part, "%.*s", (int)length, parts);
        const char *found = strstr(at, part);
        if (!found) fail_msg("%s: '%s' is not in\n%s", op, part, text);
        at = found + length;
        parts += length + (parts[length] == '|');
    }
}

static int written_opset(const hn_module *module) {
    hone_error err = {0};
    hn_module *again = NULL;
    hn_onnx_options options = {.keep_unknown = true};
    if (hn_onnx_save(&err, module, "raise.onnx") != HONE_OK ||
        hn_onnx_load(&err, "raise.onnx", &options, &again) != HONE_OK)
        fail_msg("%s", err.text);
    int version = again->opsets.data[0].version;
    hn_module_free(again);
    unlink("raise.onnx");
    return version;
}

static void test_forms(void **state) {
    (void)state;
    for (size_t i = 0; i < HN_COUNT_OF(k_cases); i++) {
        hn_onnx_options options = {.keep_unknown = true};
        hn_module *module = parse_case(&k_cases[i], &options);
        hn_str text = {0};
        hn_module_print(&text, module);
        expect_parts(hn_str_get(&text), k_cases[i].expected, k_cases[i].op);
        hn_str_free(&text);
        int version = written_opset(module);
        // Split without sizes needs its count from opset 18 on; with sizes 13 can say it.
        if (version != k_cases[i].out_opset)
            fail_msg("%s of opset %d is written as %d, not %d", k_cases[i].op, k_cases[i].opset,
                     version, k_cases[i].out_opset);
        hn_module_free(module);
    }
}

static void test_not_raised(void **state) {
    (void)state;
    hn_onnx_options options = {.keep_unknown = true, .no_raise = true};
    hn_module *module = parse_case(&k_cases[0], &options);
    assert_int_equal(module->main->first->version, 11);
    assert_non_null(hn_node_attr(module->main->first, "axes"));
    hn_module_free(module);
}

// A form that no later opset can express stays, and is refused beside one that needs a later opset.
static void test_conflict(void **state) {
    (void)state;
    for (int with_split = 0; with_split < 2; with_split++) {
        hn_wire_out w = {0};
        om_model(&w, 7, 11);
        om_value(&w, 11, "x", HN_F32, "1 1 4 4");
        om_tensor(&w, 5, "s", HN_F32, "4", (float[]){1, 1, 2, 2}, 16);
        om_tensor(&w, 5, "e", HN_F32, "0", "", 0);
        om_node_begin(&w, 1, "Resize", "x e s", "y");
        om_string(&w, "coordinate_transformation_mode", "tf_half_pixel_for_nn");
        om_end(&w);
        if (with_split) om_node(&w, "Squeeze", "x", "z");
        if (with_split) {
            om_node_begin(&w, 1, "Unsqueeze", "z", "u");
            om_ints(&w, "axes", (int64_t[]){0}, 1);
            om_end(&w);
        }
        om_value(&w, 12, "y", HN_F32, NULL);
        if (with_split) om_value(&w, 12, "u", HN_F32, NULL);
        hone_error err = {0};
        hn_module *module = NULL;
        hn_onnx_options options = {.keep_unknown = true};
        assert_int_equal(om_parse(&err, &w, NULL, &options, &module), HONE_OK);
        hone_status status = hn_onnx_save(&err, module, "conflict.onnx");
        if (with_split) {
            assert_int_equal(status, HONE_ERR_UNSUPPORTED);
            assert_non_null(strstr(err.text, "Resize"));
            assert_int_not_equal(access("conflict.onnx", F_OK), 0);
        } else {
            assert_int_equal(status, HONE_OK);
        }
        unlink("conflict.onnx");
        hn_module_free(module);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forms),
        cmocka_unit_test(test_not_raised),
        cmocka_unit_test(test_conflict),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
