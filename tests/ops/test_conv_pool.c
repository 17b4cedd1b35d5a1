// SPDX-License-Identifier: Apache-2.0
// Convolutions and pools on small hand-computed cases, each a trap.
#include "support/test.h"
#include "support/op_case.h"

static const op_case k_conv[] = {
    {"3x3 sums with padding", "Conv", "pads=1,1,1,1", {"f32[1,1,3,3] 1 2 3 4 5 6 7 8 9", "f32[1,1,3,3] fill 1"},
     {"f32[1,1,3,3] 12 21 16 27 45 33 24 39 28"}},
    {"asymmetric pads and stride", "Conv", "pads=0,1,1,0 strides=2,2",
     {"f32[1,1,3,3] 1 2 3 4 5 6 7 8 9", "f32[1,1,2,2] 1 10 100 1000", "f32[1] 0.5"},
     // rows 0,2; columns -1,1: [[1*10 + 4*1000, 2+30+500+6000], [70, 8+90]]
     {"f32[1,1,2,2] 4010.5 6532.5 70.5 98.5"}},
    {"dilation reaches over the middle", "Conv", "dilations=2", {"f32[1,1,5] 1 2 3 4 5", "f32[1,1,2] 1 -1"},
     {"f32[1,1,3] -2 -2 -2"}},
    {"same upper puts the odd pad behind", "Conv", "auto_pad=SAME_UPPER", {"f32[1,1,3] 1 2 3", "f32[1,1,2] 1 10"},
     {"f32[1,1,3] 21 32 3"}},
    {"same lower puts it in front", "Conv", "auto_pad=SAME_LOWER", {"f32[1,1,3] 1 2 3", "f32[1,1,2] 1 10"},
     {"f32[1,1,3] 10 21 32"}},
    {"same with stride", "Conv", "auto_pad=SAME_UPPER strides=2", {"f32[1,1,4] 1 2 3 4", "f32[1,1,3] 1 1 1"},
     {"f32[1,1,2] 6 7"}},
    {"valid ignores pads of zero", "Conv", "auto_pad=VALID", {"f32[1,1,3] 1 2 3", "f32[1,1,3] 1 1 1"}, {"f32[1,1,1] 6"}},
    {"groups keep to themselves", "Conv", "group=2", {"f32[1,2,2] 1 2 3 4", "f32[4,1,1] 1 2 3 4"},
     {"f32[1,4,2] 1 2 2 4 9 12 12 16"}},
    {"empty batch", "Conv", NULL, {"f32[0,1,4]", "f32[2,1,3] fill 1"}, {"f32[0,2,2]"}},
    {"no spatial dims", "Conv", NULL, {"f32[2,2] 1 2 3 4", "f32[1,2] 10 1"}, {"f32[2,1] 12 34"}},
    {"NaN reaches only its windows", "Conv", NULL, {"f32[1,1,4] nan 1 2 3", "f32[1,1,2] 1 1"}, {"f32[1,1,3] nan 3 5"}},
    {"float16 adds up in double", "Conv", NULL, {"f16[1,1,3] 2048 1 1", "f16[1,1,3] 1 1 1"}, {"f16[1,1,1] 2050"}},
    {"three dims", "Conv", NULL, {"f64[1,1,2,2,2] iota", "f64[1,1,2,2,2] fill 1"}, {"f64[1,1,1,1,1] 28"}},
    {"kernel beyond the input", "Conv", NULL, {"f32[1,1,2] 1 2", "f32[1,1,5] fill 1"}, {NULL}, HONE_ERR_FORMAT, "would be -2"},
    {"channels disagree", "Conv", NULL, {"f32[1,3,2] fill 1", "f32[1,2,1] fill 1"}, {NULL}, HONE_ERR_FORMAT, "3 and 2 differ"},
    {"groups do not divide", "Conv", "group=2", {"f32[1,2,2] fill 1", "f32[3,1,1] fill 1"}, {NULL}, HONE_ERR_FORMAT, "2 groups"},
    {"stride of zero", "Conv", "strides=0", {"f32[1,1,2] 1 2", "f32[1,1,1] 1"}, {NULL}, HONE_ERR_FORMAT, "strides"},
    {"too many pads", "Conv", "pads=1,1,1", {"f32[1,1,2] 1 2", "f32[1,1,1] 1"}, {NULL}, HONE_ERR_FORMAT, "3 values, not 2"},
    {"ranks disagree", "Conv", NULL, {"f32[1,1,2] 1 2", "f32[1,1] 1"}, {NULL}, HONE_ERR_FORMAT, "rank 3"},
    {"bias of another length", "Conv", NULL, {"f32[1,1,2] 1 2", "f32[1,1,1] 1", "f32[2] 1 2"}, {NULL}, HONE_ERR_FORMAT, "bias"},
    {"integers with zero points", "ConvInteger", NULL, {"u8[1,1,3] 2 3 4", "i8[2,1,2] 1 1 -1 2", "u8[] 1", "i8[2] 0 1"},
     {"i32[1,2,2] 3 5 0 -1"}},
    {"integer zero points of the wrong number", "ConvInteger", NULL, {"u8[1,1,3] 2 3 4", "i8[2,1,2] 1 1 -1 2", "u8[] 1", "i8[3] 0 1 2"},
     {NULL}, HONE_ERR_FORMAT, "3 zero points"},
};

static const op_case k_transpose[] = {
    {"stride spreads", "ConvTranspose", "strides=2", {"f32[1,1,2] 1 2", "f32[1,1,3] 1 10 100"}, {"f32[1,1,5] 1 10 102 20 200"}},
    {"output padding appends", "ConvTranspose", "strides=2 output_padding=1", {"f32[1,1,2] 1 2", "f32[1,1,3] 1 10 100", "f32[1] 1000"},
     {"f32[1,1,6] 1001 1010 1102 1020 1200 1000"}},
    {"pads cut", "ConvTranspose", "strides=2 pads=1,0", {"f32[1,1,2] 1 2", "f32[1,1,3] 1 10 100"}, {"f32[1,1,4] 10 102 20 200"}},
    // total padding 5 - 4 = 1: without SAME_UPPER the larger half stands in front
    {"output shape takes from the front", "ConvTranspose", "strides=2 output_shape=4", {"f32[1,1,2] 1 2", "f32[1,1,3] 1 10 100"},
     {"f32[1,1,4] 10 102 20 200"}},
    {"output shape, same upper", "ConvTranspose", "strides=2 output_shape=4 auto_pad=SAME_UPPER", {"f32[1,1,2] 1 2", "f32[1,1,3] 1 10 100"},
     {"f32[1,1,4] 1 10 102 20"}},
    {"same is input times stride", "ConvTranspose", "strides=2 auto_pad=SAME_UPPER", {"f32[1,1,2] 1 2", "f32[1,1,3] 1 10 100"},
     {"f32[1,1,4] 1 10 102 20"}},
    {"dilation", "ConvTranspose", "dilations=2", {"f32[1,1,2] 1 2", "f32[1,1,2] 1 10"}, {"f32[1,1,4] 1 2 10 20"}},
    {"groups", "ConvTranspose", "group=2", {"f32[1,2,1] 3 5", "f32[2,2,1] 1 2 3 4"}, {"f32[1,4,1] 3 6 15 20"}},
    {"pads eat everything", "ConvTranspose", "pads=3,3", {"f32[1,1,2] 1 2", "f32[1,1,3] 1 1 1"}, {NULL}, HONE_ERR_FORMAT, "would be -2"},
};

static const op_case k_deform[] = {
    {"zero offsets are a convolution", "DeformConv", NULL, {"f32[1,1,2,2] 1 2 3 4", "f32[1,1,1,1] 2", "f32[1,2,2,2] fill 0"},
     {"f32[1,1,2,2] 2 4 6 8"}},
    {"half an element down, mask, bias", "DeformConv", NULL,
     {"f32[1,1,2,2] 1 2 3 4", "f32[1,1,1,1] 1", "f32[1,2,2,2] 0.5 0.5 0.5 0.5 0 0 0 0", "f32[1] 10", "f32[1,1,2,2] 1 1 1 2"},
     {"f32[1,1,2,2] 12 13 11.5 14"}},
    {"NaN offset reads zero", "DeformConv", NULL, {"f32[1,1,1,1] 5", "f32[1,1,1,1] 1", "f32[1,2,1,1] nan inf"}, {"f32[1,1,1,1] 0"}},
    {"offset channels", "DeformConv", NULL, {"f32[1,1,2,2] 1 2 3 4", "f32[1,1,1,1] 1", "f32[1,3,2,2] fill 0"}, {NULL}, HONE_ERR_FORMAT, "channels of the offset"},
};

static const op_case k_causal[] = {
    {"state continues the sequence", "CausalConvWithState", NULL,
     {"f32[1,1,3] 1 2 3", "f32[1,1,3] 100 10 1", "-", "f32[1,1,2] 8 9"}, {"f32[1,1,3] 891 912 123", "f32[1,1,2] 2 3"}},
    {"shorter than the state", "CausalConvWithState", NULL, {"f32[1,1,1] 1", "f32[1,1,3] 100 10 1", "f32[1] 0.5"},
     {"f32[1,1,1] 1.5", "f32[1,1,2] 0 1"}},
    {"unknown activation", "CausalConvWithState", "activation=gelu", {"f32[1,1,1] 1", "f32[1,1,1] 1"}, {"f32[1,1,1] 1", "f32[1,1,0]"}, HONE_ERR_FORMAT, "gelu"},
};

static const op_case k_pool[] = {
    {"ceil mode adds a window", "MaxPool", "kernel_shape=2 strides=2 ceil_mode=1", {"f32[1,1,3] 1 3 2"}, {"f32[1,1,2] 3 2"}},
    // ceil((3 + 2 - 2) / 3) + 1 = 2, and the second starts at 3 < 3 + 1: inside; with a stride of 4 it would not
    {"last window must start inside", "MaxPool", "kernel_shape=2 strides=4 ceil_mode=1 pads=1,1", {"f32[1,1,3] 1 3 2"}, {"f32[1,1,1] 1"}},
    // The numbers of onnxruntime, whose sizes are those of ONNX's own inference.
    {"a window larger than the input is cut off", "MaxPool", "kernel_shape=3 strides=2", {"f32[1,1,2] 1 2"}, {"f32[1,1,1] 2"}, .sizes_known = true},
    {"cut off, larger by a whole stride", "MaxPool", "kernel_shape=5 strides=2", {"f32[1,1,2] 1 2"}, {"f32[1,1,0]"}, .sizes_known = true},
    {"cut off at stride 1", "MaxPool", "kernel_shape=3", {"f32[1,1,2] 1 2"}, {"f32[1,1,0]"}},
    {"mean of a window that is cut off", "AveragePool", "kernel_shape=5 strides=3", {"f32[1,1,3] 1 2 3"}, {"f32[1,1,1] 2"}, .sizes_known = true},
    {"cut off where padding counts", "AveragePool", "kernel_shape=5 strides=2 pads=1,1 count_include_pad=1", {"f32[1,1,2] 1 2"}, {"f32[1,1,1] 0.75"}, .sizes_known = true},
    {"NaN wins, and its index", "MaxPool", "kernel_shape=2", {"f32[1,1,4] 1 nan 5 6"}, {"f32[1,1,3] nan nan 6", "i64[1,1,3] 1 1 3"}},
    {"indices count through the tensor", "MaxPool", "kernel_shape=2 strides=2", {"f32[2,1,2] 1 2 4 3"}, {"f32[2,1,1] 2 4", "i64[2,1,1] 1 2"}},
    {"column-major indices", "MaxPool", "kernel_shape=2,2 storage_order=1", {"f32[1,1,2,3] 1 2 9 8 3 4"}, {"f32[1,1,1,2] 8 9", "i64[1,1,1,2] 1 4"}},
    {"dilation", "MaxPool", "kernel_shape=2 dilations=2", {"f32[1,1,4] 4 9 1 2"}, {"f32[1,1,2] 4 9"}},
    {"negative values beat padding", "MaxPool", "kernel_shape=2 pads=1,0", {"f32[1,1,2] -5 -7"}, {"f32[1,1,2] -5 -5"}},
    {"int8", "MaxPool", "kernel_shape=2", {"i8[1,1,3] -128 -3 -4"}, {"i8[1,1,2] -3 -3"}},
    {"empty batch", "MaxPool", "kernel_shape=2", {"f32[0,3,4]"}, {"f32[0,3,3]", "i64[0,3,3]"}},
    {"kernel_shape of another rank", "MaxPool", "kernel_shape=2", {"f32[1,1,2,2] 1 2 3 4"}, {NULL}, HONE_ERR_FORMAT, "1 values, not 2"},
    {"padding does not count", "AveragePool", "kernel_shape=2 pads=1,1", {"f32[1,1,2] 2 4"}, {"f32[1,1,3] 2 3 4"}},
    {"padding counts", "AveragePool", "kernel_shape=2 pads=1,1 count_include_pad=1", {"f32[1,1,2] 2 4"}, {"f32[1,1,3] 1 3 2"}},
    // the last window covers one element, the pad behind it, and one beyond the pad, which never counts
    {"beyond the pad never counts", "AveragePool", "kernel_shape=3 strides=2 pads=1,1 ceil_mode=1 count_include_pad=1",
     {"f32[1,1,4] 2 4 6 8"}, {"f32[1,1,3] 2 6 4"}},
    {"dilated average", "AveragePool", "kernel_shape=2 dilations=2", {"f32[1,1,3] 2 4 6"}, {"f32[1,1,1] 4"}},
    {"same upper", "AveragePool", "kernel_shape=2 auto_pad=SAME_UPPER", {"f32[1,1,3] 2 4 6"}, {"f32[1,1,3] 3 5 6"}},
    {"a huge kernel costs nothing", "MaxPool", "kernel_shape=2147483647 pads=2147483647,2147483647 strides=2147483647", {"f32[1,1,2] 1 2"}, {"f32[1,1,2] -inf 2"}},
    {"Lp of a triangle", "LpPool", "kernel_shape=2 strides=2", {"f32[1,1,3] -3 4 9"}, {"f32[1,1,1] 5"}},
    {"L1", "LpPool", "kernel_shape=2 p=1 pads=1,0", {"f32[1,1,2] -3 4"}, {"f32[1,1,2] 3 7"}},
    {"mean of a plane", "GlobalAveragePool", NULL, {"f32[1,2,2] 1 2 3 5"}, {"f32[1,2,1] 1.5 4"}},
    {"NaN in a plane", "GlobalMaxPool", NULL, {"f32[1,2,3] 1 nan 2 3 4 1"}, {"f32[1,2,1] nan 4"}},
    {"global L2", "GlobalLpPool", NULL, {"f32[1,1,2] 3 -4"}, {"f32[1,1,1] 5"}},
    {"unpool", "MaxUnpool", "kernel_shape=2 strides=2", {"f32[1,1,2] 7 8", "i64[1,1,2] 1 2"}, {"f32[1,1,4] 0 7 8 0"}},
    {"unpool into more", "MaxUnpool", "kernel_shape=2,2 strides=2,2", {"f32[1,1,1,1] 7", "i64[1,1,1,1] 3", "i64[4] 1 1 3 3"},
     {"f32[1,1,3,3] 0 0 0 0 7 0 0 0 0"}},
    {"unpool out of range", "MaxUnpool", "kernel_shape=2 strides=2", {"f32[1,1,1] 7", "i64[1,1,1] 2"}, {NULL}, HONE_ERR_FORMAT, "index 2"},
    {"roi pool", "MaxRoiPool", "pooled_shape=1,2", {"f32[1,1,2,4] 1 2 3 4 5 6 7 8", "f32[1,5] 0 0 0 3 1"}, {"f32[1,1,1,2] 6 8"}},
    {"roi names a missing image", "MaxRoiPool", "pooled_shape=1,1", {"f32[1,1,1,1] 1", "f32[1,5] 1 0 0 0 0"}, {NULL}, HONE_ERR_FORMAT, "batch item"},
};

static void test_conv(void **state) { (void)state; OP_CASES(k_conv); }
static void test_transpose(void **state) { (void)state; OP_CASES(k_transpose); }
static void test_deform(void **state) { (void)state; OP_CASES(k_deform); }
static void test_causal(void **state) { (void)state; OP_CASES(k_causal); }
static void test_pool(void **state) { (void)state; OP_CASES(k_pool); }

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_conv),   cmocka_unit_test(test_transpose), cmocka_unit_test(test_deform),
        cmocka_unit_test(test_causal), cmocka_unit_test(test_pool),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
