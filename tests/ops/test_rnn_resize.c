// SPDX-License-Identifier: Apache-2.0
// Recurrent layers, resizing, sampling, quantisation on small hand-computed cases.
#include "support/test.h"
#include "support/op_case.h"

// Activations that keep numbers readable: Affine is the identity, Relu keeps what is positive.
static const op_case k_rnn[] = {
    {"sums along the sequence", "RNN", "activations=Affine", {"f32[3,1,1] 1 2 3", "f32[1,1,1] 1", "f32[1,1,1] 10"},
     {"f32[3,1,1,1] 1 12 123", "f32[1,1,1] 123"}},
    {"reverse starts at the item's last step", "RNN", "activations=Affine direction=reverse",
     {"f32[3,2,1] 1 1 2 2 3 3", "f32[1,1,1] 1", "f32[1,1,1] 10", "-", "i32[2] 3 2"}, {"f32[3,1,2,1] 321 21 32 2 3 0", "f32[1,2,1] 321 21"}},
    {"an empty sequence keeps its state", "RNN", "activations=Affine", {"f32[1,1,1] 1", "f32[1,1,1] 1", "f32[1,1,1] 10", "-", "i32[1] 0", "f32[1,1,1] 7"},
     {"f32[1,1,1,1] 0", "f32[1,1,1] 7"}},
    {"both directions, batch first", "RNN", "activations=Affine,Affine direction=bidirectional layout=1",
     {"f32[1,2,1] 1 2", "f32[2,1,1] 1 1", "f32[2,1,1] 10 10", "f32[2,2] 0 0 100 100"}, {"f32[1,2,2,1] 1 2221 12 202", "f32[1,2,1] 12 2221"}},
    {"parameters go in order", "RNN", "activations=LeakyRelu,Affine direction=bidirectional activation_alpha=0.5,3 activation_beta=1",
     {"f32[1,1,1] -2", "f32[2,1,1] 1 1", "f32[2,1,1] 0 0"}, {"f32[1,2,1,1] -1 -5"}},
    {"clip bounds what goes in", "RNN", "activations=Affine clip=2", {"f32[1,1,1] 5", "f32[1,1,1] 1", "f32[1,1,1] 1"}, {"f32[1,1,1,1] 2"}},
    {"sequence too long", "RNN", NULL, {"f32[1,1,1] 1", "f32[1,1,1] 1", "f32[1,1,1] 1", "-", "i32[1] 2"}, {NULL}, HONE_ERR_INPUT, "2 of 1"},
    {"unknown activation", "RNN", "activations=Swish", {"f32[1,1,1] 1", "f32[1,1,1] 1", "f32[1,1,1] 1"}, {NULL}, HONE_ERR_FORMAT, "Swish"},
    {"weights of another width", "RNN", NULL, {"f32[1,1,2] 1 1", "f32[1,1,1] 1", "f32[1,1,1] 1"}, {NULL}, HONE_ERR_FORMAT, "dims of W"},
    // i = 1*x, o = 1, f = 1 (from biases), c = x: C = C0 + x * x
    {"LSTM gates i o f c", "LSTM", "activations=Affine,Affine,Affine", {"f32[2,1,1] 2 3", "f32[1,4,1] 1 0 0 1", "f32[1,4,1] 0 0 0 0", "f32[1,8] 0 1 1 0 0 0 0 0"},
     {"f32[2,1,1,1] 4 13", "f32[1,1,1] 13", "f32[1,1,1] 13"}},
    {"peepholes: i and f see the old cell, o the new", "LSTM", "activations=Affine,Affine,Affine",
     {"f32[1,1,1] 1", "f32[1,4,1] 0 0 0 1", "f32[1,4,1] 0 0 0 0", "-", "-", "-", "f32[1,1,1] 2", "f32[1,3] 1 10 100"},
     {"f32[1,1,1,1] 1616040", "-", "f32[1,1,1] 402"}},
    {"coupled gates", "LSTM", "activations=Affine,Affine,Affine input_forget=1",
     {"f32[1,1,1] 1", "f32[1,4,1] 0 1 9 1", "f32[1,4,1] 0 0 0 0", "f32[1,8] 0.25 0 0 0 0 0 0 0", "-", "-", "f32[1,1,1] 4"}, {"f32[1,1,1,1] 3.25", "-", "f32[1,1,1] 3.25"}},
    // z = 0.5 (bias), r = 2 (bias), h~ = x + r * R h: H = 0.5 * h~ + 0.5 * h
    {"GRU resets before", "GRU", "activations=Affine,Affine", {"f32[1,1,1] 1", "f32[1,3,1] 0 0 1", "f32[1,3,1] 0 0 3", "f32[1,6] 0.5 2 0 0 0 10", "-", "f32[1,1,1] 4"},
     {"f32[1,1,1,1] 19.5"}},
    {"GRU resets after the bias", "GRU", "activations=Affine,Affine linear_before_reset=1",
     {"f32[1,1,1] 1", "f32[1,3,1] 0 0 1", "f32[1,3,1] 0 0 3", "f32[1,6] 0.5 2 0 0 0 10", "-", "f32[1,1,1] 4"}, {"f32[1,1,1,1] 24.5"}},
    {"empty batch", "GRU", NULL, {"f32[2,0,1]", "f32[1,3,1] 0 0 1", "f32[1,3,1] 0 0 3"}, {"f32[2,1,0,1]", "f32[1,0,1]"}},
};

static const op_case k_resize[] = {
    {"nearest doubles", "Resize", "mode=nearest nearest_mode=floor coordinate_transformation_mode=asymmetric", {"f32[2] 1 2", "-", "f32[1] 2"}, {"f32[4] 1 1 2 2"}},
    {"int64 stays exact", "Resize", "mode=nearest", {"i64[1] 9007199254740993", "-", "f32[1] 2"}, {"i64[2] fill 9007199254740993"}},
    {"halves prefer the floor", "Resize", "coordinate_transformation_mode=asymmetric", {"f32[2] 1 2", "-", "f32[1] 2"}, {"f32[4] 1 1 2 2"}},
    {"halves prefer the ceiling", "Resize", "coordinate_transformation_mode=asymmetric nearest_mode=round_prefer_ceil", {"f32[2] 1 2", "-", "f32[1] 2"}, {"f32[4] 1 2 2 2"}},
    {"linear, half pixel", "Resize", "mode=linear", {"f32[2] 1 3", "-", "f32[1] 2"}, {"f32[4] 1 1.5 2.5 3"}},
    {"linear, corners", "Resize", "mode=linear coordinate_transformation_mode=align_corners", {"f32[2] 1 3", "-", "-", "i64[1] 3"}, {"f32[3] 1 2 3"}},
    {"one element of corners", "Resize", "mode=linear coordinate_transformation_mode=align_corners", {"f32[2] 1 3", "-", "-", "i64[1] 1"}, {"f32[1] 1"}},
    {"antialias averages", "Resize", "mode=linear antialias=1", {"f32[4] 1 2 3 4", "-", "f32[1] 0.5"}, {"f32[2] 1.625 3.375"}},
    {"cubic keeps a line", "Resize", "mode=cubic cubic_coeff_a=-0.5", {"f32[8] iota", "-", "f32[1] 0.5"}, {"f32[4] 0.4375 2.5 4.5 6.5625"}},
    {"cubic leaves the outside out", "Resize", "mode=cubic exclude_outside=1", {"f32[1] 5", "-", "f32[1] 2"}, {"f32[2] 5 5"}},
    {"crop reads a constant outside", "Resize", "mode=linear coordinate_transformation_mode=tf_crop_and_resize extrapolation_value=9",
     {"f32[2] 1 3", "f32[2] 0 2", "-", "i64[1] 3"}, {"f32[3] 1 3 9"}},
    {"axes leave the others", "Resize", "axes=1", {"f32[2,1] 1 2", "-", "f32[1] 2"}, {"f32[2,2] 1 1 2 2"}},
    {"not larger keeps the shape", "Resize", "keep_aspect_ratio_policy=not_larger", {"f32[2,4] iota", "-", "-", "i64[2] 4 4"}, {"f32[2,4] iota"}},
    {"not smaller rounds halves up", "Resize", "keep_aspect_ratio_policy=not_smaller", {"f32[1,2] 1 2", "-", "-", "i64[2] 1 3"}, {"f32[2,3] 1 1 2 1 1 2"}},
    {"scale in float32: 10 * 0.7 is 7", "Resize", NULL, {"f32[10] iota", "-", "f32[1] 0.7"}, {"f32[7] 0 2 3 4 6 7 9"}},
    {"uint8 is cut off", "Resize", "mode=linear", {"u8[2] 1 2", "-", "f32[1] 2"}, {"u8[4] 1 1 1 2"}},
    {"neither scales nor sizes", "Resize", NULL, {"f32[2] 1 2"}, {NULL}, HONE_ERR_FORMAT, "neither"},
    {"negative size", "Resize", NULL, {"f32[2] 1 2", "-", "-", "i64[1] -1"}, {NULL}, HONE_ERR_FORMAT, "would be -1"},
    {"scale that is no number", "Resize", NULL, {"f32[2] 1 2", "-", "f32[1] nan"}, {NULL}, HONE_ERR_FORMAT, "scale is"},
    {"too many scales", "Resize", NULL, {"f32[2] 1 2", "-", "f32[2] 1 1"}, {NULL}, HONE_ERR_FORMAT, "2 scales for 1"},
    {"Upsample", "Upsample", NULL, {"f32[2] 1 2", "f32[1] 2"}, {"f32[4] 1 1 2 2"}},
};

static const op_case k_sample[] = {
    {"grid lists x first", "GridSample", "align_corners=1", {"f32[1,1,2,2] 1 2 3 4", "f32[1,1,2,2] 1 -1 0 0"}, {"f32[1,1,1,2] 2 2.5"}},
    {"outside is zero", "GridSample", NULL, {"f32[1,1,1,2] 1 2", "f32[1,1,3,2] -1 0 2 0 nan inf"}, {"f32[1,1,1,3] 0.5 0 nan"}},
    {"border holds", "GridSample", "padding_mode=border", {"f32[1,1,1,2] 1 2", "f32[1,1,3,2] -9 0 9 0 nan 0"}, {"f32[1,1,1,3] 1 2 nan"}},
    {"reflection", "GridSample", "padding_mode=reflection align_corners=1", {"f32[1,1,1,3] 1 2 3", "f32[1,1,2,2] 2 0 -1.5 0"}, {"f32[1,1,1,2] 2 1.5"}},
    {"nearest rounds half to even", "GridSample", "mode=nearest align_corners=1", {"f32[1,1,1,3] 1 2 3", "f32[1,1,2,2] -0.5 0 0.5 0"}, {"f32[1,1,1,2] 1 3"}},
    {"three dims", "GridSample", "align_corners=1", {"f32[1,1,2,1,1] 1 3", "f32[1,1,1,1,3] 0 0 0"}, {"f32[1,1,1,1,1] 2"}},
    {"grid of another rank", "GridSample", NULL, {"f32[1,1,1,2] 1 2", "f32[1,1,1,1,3] 0 0 0"}, {NULL}, HONE_ERR_FORMAT, "rank 4"},
    {"identity grid", "AffineGrid", NULL, {"f32[1,2,3] 1 0 0 0 1 0", "i64[4] 1 1 2 2"}, {"f32[1,2,2,2] -0.5 -0.5 0.5 -0.5 -0.5 0.5 0.5 0.5"}},
    {"corners and a shift", "AffineGrid", "align_corners=1", {"f32[1,2,3] 1 0 5 0 1 0", "i64[4] 1 1 1 2"}, {"f32[1,1,2,2] 4 0 6 0"}},
    {"negative size", "AffineGrid", NULL, {"f32[1,2,3] 1 0 0 0 1 0", "i64[4] 1 1 -2 2"}, {NULL}, HONE_ERR_FORMAT, "would be -2"},
    {"whole image", "RoiAlign", "coordinate_transformation_mode=output_half_pixel sampling_ratio=1", {"f32[1,1,2,2] 1 2 3 4", "f32[1,4] 0 0 1 1", "i64[1] 0"}, {"f32[1,1,1,1] 2.5"}},
    {"half pixel", "RoiAlign", "sampling_ratio=1", {"f32[1,1,2,2] 1 2 3 4", "f32[1,4] 0 0 2 2", "i64[1] 0"}, {"f32[1,1,1,1] 2.5"}},
    {"no rois", "RoiAlign", NULL, {"f32[1,1,2,2] 1 2 3 4", "f32[0,4]", "i64[0]"}, {"f32[0,1,1,1]"}},
    {"roi of a missing image", "RoiAlign", NULL, {"f32[1,1,2,2] 1 2 3 4", "f32[1,4] 0 0 2 2", "i64[1] 1"}, {NULL}, HONE_ERR_INPUT, "batch item 1"},
    {"the better of two that overlap", "NonMaxSuppression", NULL,
     {"f32[1,3,4] 0 0 1 1 0 0.1 1 1.1 0 5 1 6", "f32[1,1,3] 0.5 0.9 0.8", "i64[1] 3", "f32[1] 0.5"}, {"i64[2,3] 0 0 1 0 0 2"}},
    {"corners in any order, score cut off", "NonMaxSuppression", NULL,
     {"f32[1,2,4] 1 1 0 0 5 5 6 6", "f32[1,1,2] 0.5 0.4", "i64[1] 3", "f32[1] 0.5", "f32[1] 0.4"}, {"i64[1,3] 0 0 0"}},
    {"no limit means none", "NonMaxSuppression", NULL, {"f32[1,1,4] 0 0 1 1", "f32[1,1,1] 1"}, {"i64[0,3]"}},
    {"NaN scores are never chosen", "NonMaxSuppression", NULL, {"f32[1,2,4] 0 0 1 1 0 0 1 1", "f32[1,1,2] nan 1", "i64[1] 9"}, {"i64[1,3] 0 0 1"}},
};

static const op_case k_quant[] = {
    {"halves go to even, ends saturate", "QuantizeLinear", NULL, {"f32[6] 0.5 1.5 2.5 -1 1000 inf", "f32[] 1"}, {"u8[6] 0 2 2 0 255 255"}},
    {"zero point after rounding", "QuantizeLinear", NULL, {"f32[3] 0.5 -0.5 1.5", "f32[] 1", "i8[] 1"}, {"i8[3] 1 1 3"}},
    {"by axis", "QuantizeLinear", "axis=0", {"f32[2,1] 4 4", "f32[2] 1 2", "u8[2] 0 10"}, {"u8[2,1] 4 12"}},
    {"blocks, the last one short", "QuantizeLinear", "axis=1 block_size=2", {"f32[1,3] 4 4 4", "f32[1,2] 1 2", "i16[1,2] 0 1"}, {"i16[1,3] 4 4 3"}},
    {"4 bits", "QuantizeLinear", "output_dtype=22", {"f32[4] -100 -8 7 7.6", "f32[] 1"}, {"i4[4] -8 -8 7 7"}},
    {"8-bit floats saturate", "QuantizeLinear", NULL, {"f32[3] 1000 1.0625 nan", "f32[] 1", "f8e4m3fn[] 0"}, {"f8e4m3fn[3] 448 1 nan"}},
    {"quotient in float32", "QuantizeLinear", NULL, {"f32[1] 1.05", "f32[] 0.1"}, {"u8[1] 10"}},
    {"float32 is no quantised type", "QuantizeLinear", NULL, {"f32[1] 1", "f32[] 1", "f32[] 1"}, {NULL}, HONE_ERR_FORMAT, "no quantised type"},
    {"scales of another length", "QuantizeLinear", "axis=0", {"f32[2] 1 1", "f32[3] 1 1 1"}, {NULL}, HONE_ERR_FORMAT, "3 and 2 differ"},
    {"block scale of another shape", "DequantizeLinear", "axis=0 block_size=2", {"i8[5] 1 1 1 1 1", "f32[2] 1 1"}, {NULL}, HONE_ERR_FORMAT, "blocked scale"},
    {"back again", "DequantizeLinear", NULL, {"u8[2] 0 255", "f32[] 0.5", "u8[] 128"}, {"f32[2] -64 63.5"}},
    {"int32 bias", "DequantizeLinear", "axis=0", {"i32[2] -7 8", "f32[2] 0.5 0.25"}, {"f32[2] -3.5 2"}},
    {"into float16", "DequantizeLinear", NULL, {"i8[1] 3", "f16[] 0.5"}, {"f16[1] 1.5"}},
    {"one scale for an axis of one", "DequantizeLinear", NULL, {"i8[2,1] 3 4", "f32[1] 2", "i8[1] 1"}, {"f32[2,1] 4 6"}},
    {"range holds zero", "DynamicQuantizeLinear", NULL, {"f32[2] 51 255"}, {"u8[2] 51 255", "f32[] 1", "u8[] 0"}},
    {"negative end", "DynamicQuantizeLinear", NULL, {"f32[2] -1 1.55"}, {"u8[2] 0 255", "f32[] 0.01", "u8[] 100"}},
    {"all zeros", "DynamicQuantizeLinear", NULL, {"f32[1] 0"}, {"u8[1] 0", "f32[] 1", "u8[] 0"}},
    {"convolution by channel", "QLinearConv", NULL,
     {"u8[1,1,2] 12 14", "f32[] 0.5", "u8[] 10", "i8[2,1,1] 2 4", "f32[2] 1 0.25", "i8[2] 0 0", "f32[] 0.5", "u8[] 1", "i32[2] 1 0"}, {"u8[1,2,2] 6 10 3 5"}},
    {"product by row and column", "QLinearMatMul", NULL,
     {"u8[2,1] 3 4", "f32[2] 1 2", "u8[2] 1 1", "i8[1,2] 2 3", "f32[2] 1 10", "i8[] 0", "f32[] 1", "u8[] 0"}, {"u8[2,2] 4 60 12 180"}},
};

static void test_rnn(void **state) { (void)state; OP_CASES(k_rnn); }
static void test_resize(void **state) { (void)state; OP_CASES(k_resize); }
static void test_sample(void **state) { (void)state; OP_CASES(k_sample); }
static void test_quant(void **state) { (void)state; OP_CASES(k_quant); }

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rnn),
        cmocka_unit_test(test_resize),
        cmocka_unit_test(test_sample),
        cmocka_unit_test(test_quant),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
