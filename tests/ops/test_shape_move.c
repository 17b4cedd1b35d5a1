// SPDX-License-Identifier: Apache-2.0
// Shapes, views, constants and moves on hand-computed cases: empty inputs, negative axes, clamped
// bounds, hostile sizes, packed types.
#include "support/test.h"
#include "support/op_case.h"

static const op_case k_shape[] = {
    {"shape", "Shape", NULL, {"f32[2,0,3]"}, {"i64[3] 2 0 3"}},
    {"part of a shape", "Shape", "start=-2 end=-1", {"f32[2,5,3] fill 0"}, {"i64[1] 5"}},
    {"bounds are clamped", "Shape", "start=-9 end=9", {"f32[2,1] 0 0"}, {"i64[2] 2 1"}},
    {"end before start", "Shape", "start=2 end=1", {"f32[1,1,1] 0"}, {"i64[0]"}},
    {"shape of a scalar", "Shape", NULL, {"f32[] 1"}, {"i64[0]"}},
    {"size", "Size", NULL, {"f32[2,3] fill 1"}, {"i64[] 6"}},
    {"size of nothing", "Size", NULL, {"f32[2,0]"}, {"i64[] 0"}},
    {"minus one and zero", "Reshape", NULL, {"f32[2,3,4] iota", "i64[2] 0 -1"}, {"f32[2,12] iota"}},
    {"zero kept by allowzero", "Reshape", "allowzero=1", {"f32[0,3]", "i64[3] 3 0 5"}, {"f32[3,0,5]"}},
    {"to a scalar", "Reshape", NULL, {"f32[1,1] 7", "i64[0]"}, {"f32[] 7"}},
    {"counts differ", "Reshape", NULL, {"f32[6] iota", "i64[2] 4 2"}, {NULL}, HONE_ERR_FORMAT, "6 elements"},
    {"two holes", "Reshape", NULL, {"f32[6] iota", "i64[2] -1 -1"}, {NULL}, HONE_ERR_FORMAT, "more than one -1"},
    {"a zero beyond the input", "Reshape", NULL, {"f32[6] iota", "i64[2] 6 0"}, {NULL}, HONE_ERR_FORMAT, "copied"},
    {"0 and -1 with allowzero", "Reshape", "allowzero=1", {"f32[0]", "i64[2] 0 -1"}, {NULL}, HONE_ERR_FORMAT, "allowzero"},
    {"a product that overflows", "Reshape", NULL, {"f32[1] 0", "i64[3] 4294967296 4294967296 4"}, {NULL}, HONE_ERR_LIMIT, "too large"},
    {"squeeze by axis", "Squeeze", NULL, {"f32[1,2,1] 1 2", "i64[1] -1"}, {"f32[1,2] 1 2"}},
    {"squeeze every one", "Squeeze", NULL, {"f32[1,2,1] 1 2"}, {"f32[2] 1 2"}},
    {"squeeze of 2", "Squeeze", NULL, {"f32[2] 1 2", "i64[1] 0"}, {NULL}, HONE_ERR_FORMAT, "cannot be squeezed"},
    {"unsqueeze in two places", "Unsqueeze", NULL, {"f32[2] 1 2", "i64[2] 0 -1"}, {"f32[1,2,1] 1 2"}},
    {"the same axis twice", "Unsqueeze", NULL, {"f32[2] 1 2", "i64[2] 0 -3"}, {NULL}, HONE_ERR_FORMAT, "twice"},
    {"more dims than there can be", "Unsqueeze", NULL, {"f32[1,1,1,1,1,1,1] 1", "i64[2] 0 1"}, {NULL}, HONE_ERR_LIMIT, "9 dims"},
    {"flatten at the end", "Flatten", "axis=2", {"f32[2,3] iota"}, {"f32[6,1] iota"}},
    {"flatten at the start", "Flatten", "axis=-2", {"f32[2,3] iota"}, {"f32[1,6] iota"}},
    {"identity", "Identity", NULL, {"bf16[2] 1 2"}, {"bf16[2] 1 2"}},
    {"dropout at inference", "Dropout", NULL, {"f32[2] 1 2", "f32[] 0.5", "bool[] 0"}, {"f32[2] 1 2", "bool[2] 1 1"}},
    {"dropout of nothing", "Dropout", NULL, {"f32[2] 1 2", "f32[] 0", "bool[] 1"}, {"f32[2] 1 2", "bool[2] 1 1"}},
};

static const op_case k_fill[] = {
    {"expand both ways", "Expand", NULL, {"f32[2,1] 1 2", "i64[3] 2 1 2"}, {"f32[2,2,2] 1 1 2 2 1 1 2 2"}},
    {"expand to a smaller shape", "Expand", NULL, {"f32[3] 1 2 3", "i64[1] 1"}, {"f32[3] 1 2 3"}},
    {"expand to nothing", "Expand", NULL, {"f32[1] 1", "i64[2] 0 4"}, {"f32[0,4]"}},
    {"expand that cannot be", "Expand", NULL, {"f32[3] 1 2 3", "i64[1] 2"}, {NULL}, HONE_ERR_FORMAT, "broadcast"},
    {"a hostile size", "Expand", NULL, {"f32[1] 1", "i64[2] 4611686018427387904 4"}, {NULL}, HONE_ERR_LIMIT, "too large"},
    {"tile", "Tile", NULL, {"i32[1,2] 1 2", "i64[2] 2 2"}, {"i32[2,4] 1 2 1 2 1 2 1 2"}},
    {"tile zero times", "Tile", NULL, {"i32[2] 1 2", "i64[1] 0"}, {"i32[0]"}},
    {"repeats of the wrong length", "Tile", NULL, {"i32[2] 1 2", "i64[2] 1 1"}, {NULL}, HONE_ERR_FORMAT, "repeats"},
    {"a negative repeat", "Tile", NULL, {"i32[2] 1 2", "i64[1] -1"}, {NULL}, HONE_ERR_FORMAT, "negative"},
    {"zeros by default", "ConstantOfShape", NULL, {"i64[2] 1 2"}, {"f32[1,2] 0 0"}},
    {"a scalar", "ConstantOfShape", NULL, {"i64[0]"}, {"f32[] 0"}},
    {"a negative dim", "ConstantOfShape", NULL, {"i64[1] -2"}, {NULL}, HONE_ERR_FORMAT, "negative"},
    {"integers", "Constant", "value_ints=3,4", {NULL}, {"i64[2] 3 4"}},
    {"one float", "Constant", "value_float=0.5", {NULL}, {"f32[] 0.5"}},
    {"range down", "Range", NULL, {"i32[] 5", "i32[] 0", "i32[] -2"}, {"i32[3] 5 3 1"}},
    {"range of floats", "Range", NULL, {"f32[] 0", "f32[] 1", "f32[] 0.3"}, {"f32[4] 0 0.3 0.6 0.9"}},
    {"an empty range", "Range", NULL, {"i64[] 3", "i64[] 3", "i64[] 1"}, {"i64[0]"}},
    {"a step of 0", "Range", NULL, {"i64[] 0", "i64[] 3", "i64[] 0"}, {NULL}, HONE_ERR_FORMAT, "step"},
    {"a range too long", "Range", NULL, {"f32[] 0", "f32[] 1e30", "f32[] 1"}, {NULL}, HONE_ERR_LIMIT, "elements"},
    {"a shifted eye", "EyeLike", "k=1 dtype=7", {"f32[2,3] fill 9"}, {"i64[2,3] 0 1 0 0 0 1"}},
    {"an eye far away", "EyeLike", "k=-9223372036854775808", {"f32[1,1] 9"}, {"f32[1,1] 0"}},
};

static const op_case k_move[] = {
    {"reverse order by default", "Transpose", NULL, {"f32[2,3] iota"}, {"f32[3,2] 0 3 1 4 2 5"}},
    {"an order of three", "Transpose", "perm=1,0,2", {"i8[2,2,2] iota"}, {"i8[2,2,2] 0 1 4 5 2 3 6 7"}},
    {"4-bit numbers", "Transpose", NULL, {"u4[2,3] 1 2 3 4 5 6"}, {"u4[3,2] 1 4 2 5 3 6"}},
    {"not an order", "Transpose", "perm=0,0", {"f32[2,3] iota"}, {NULL}, HONE_ERR_FORMAT, "perm"},
    {"transpose of a scalar", "Transpose", NULL, {"f32[] 3"}, {"f32[] 3"}},
    {"concat on the last axis", "Concat", "axis=-1", {"f32[2,1] 1 2", "f32[2,2] 3 4 5 6"}, {"f32[2,3] 1 3 4 2 5 6"}},
    {"concat with nothing", "Concat", "axis=0", {"f32[0,2]", "f32[1,2] 1 2"}, {"f32[1,2] 1 2"}},
    {"other dims differ", "Concat", "axis=0", {"f32[1,2] 1 2", "f32[1,3] 1 2 3"}, {NULL}, HONE_ERR_FORMAT, "axis 1"},
    {"odd pieces of 4-bit numbers", "Concat", "axis=0", {"i4[1] -1", "i4[3] 1 2 3"}, {"i4[4] -1 1 2 3"}},
    {"split by sizes", "Split", "axis=1", {"f32[1,4] iota", "i64[3] 1 0 3"}, {"f32[1,1] 0", "f32[1,0]", "f32[1,3] 1 2 3"}},
    {"the last part is smaller", "Split", "num_outputs=2", {"i32[5] iota"}, {"i32[3] 0 1 2", "i32[2] 3 4"}},
    {"sizes that do not add up", "Split", NULL, {"f32[4] iota", "i64[2] 1 2"}, {"f32[1] 0", "f32[2] 0 0"}, HONE_ERR_FORMAT, "3 elements of 4"},
    {"an output that is not wanted", "Split", "num_outputs=2", {"i32[2] 5 6"}, {"-", "i32[1] 6"}},
    {"slice with steps", "Slice", NULL, {"f32[2,4] iota", "i64[2] 0 3", "i64[2] 2 -9", "i64[2] 0 1", "i64[2] 1 -2"}, {"f32[2,2] 3 1 7 5"}},
    {"ends beyond the end", "Slice", NULL, {"f32[3] iota", "i64[1] 1", "i64[1] 9223372036854775807"}, {"f32[2] 1 2"}},
    {"reverse", "Slice", NULL, {"f32[3] iota", "i64[1] -1", "i64[1] -9223372036854775807", "i64[1] -1", "i64[1] -1"}, {"f32[3] 2 1 0"}},
    {"a step of the largest size", "Slice", NULL, {"f32[3] iota", "i64[1] 0", "i64[1] 3", "i64[1] 0", "i64[1] 9223372036854775807"}, {"f32[1] 0"}},
    {"start behind end", "Slice", NULL, {"f32[3] iota", "i64[1] 2", "i64[1] 1"}, {"f32[0]"}},
    {"nothing turned round", "Slice", NULL, {"f32[0]", "i64[1] -1", "i64[1] -9", "i64[1] 0", "i64[1] -1"}, {"f32[0]"}},
    {"nothing from far in front", "Slice", NULL, {"f32[0]", "i64[1] -9000000000", "i64[1] -9000000000", "i64[1] 0", "i64[1] -2"}, {"f32[0]"}},
    {"nothing turned round to its end", "Slice", NULL, {"f32[0]", "i64[1] -2", "i64[1] -1", "i64[1] 0", "i64[1] -2"}, {"f32[0]"}},
    {"the same axis twice", "Slice", NULL, {"f32[3,1] iota", "i64[2] 0 0", "i64[2] 1 1", "i64[2] 0 -2"}, {NULL}, HONE_ERR_FORMAT, "twice"},
    {"a step of 0", "Slice", NULL, {"f32[3] iota", "i64[1] 0", "i64[1] 1", "i64[1] 0", "i64[1] 0"}, {NULL}, HONE_ERR_FORMAT, "step"},
    {"lengths differ", "Slice", NULL, {"f32[3] iota", "i64[1] 0", "i64[2] 1 1"}, {NULL}, HONE_ERR_FORMAT, "lengths"},
    {"DCR", "DepthToSpace", "blocksize=2", {"f32[1,8,1,1] iota"}, {"f32[1,2,2,2] 0 2 4 6 1 3 5 7"}},
    {"CRD", "DepthToSpace", "blocksize=2 mode=CRD", {"f32[1,8,1,1] iota"}, {"f32[1,2,2,2] iota"}},
    {"and back", "SpaceToDepth", "blocksize=2", {"f32[1,2,2,2] 0 2 4 6 1 3 5 7"}, {"f32[1,8,1,1] iota"}},
    {"channels that do not divide", "DepthToSpace", "blocksize=2", {"f32[1,6,1,1] iota"}, {NULL}, HONE_ERR_FORMAT, "multiple"},
    {"upper part", "Trilu", NULL, {"f32[2,3] fill 1"}, {"f32[2,3] 1 1 1 0 1 1"}},
    {"lower part above the diagonal", "Trilu", "upper=0", {"f32[2,3] fill 1", "i64[] 1"}, {"f32[2,3] 1 1 0 1 1 1"}},
    {"far away", "Trilu", NULL, {"i32[1,2,2] fill 1", "i64[] 9223372036854775807"}, {"i32[1,2,2] fill 0"}},
    {"reverse by length", "ReverseSequence", NULL, {"f32[3,2] iota", "i64[2] 2 3"}, {"f32[3,2] 2 5 0 3 4 1"}},
    {"a length too long", "ReverseSequence", NULL, {"f32[1,1] 0", "i64[1] 2"}, {NULL}, HONE_ERR_INPUT, "length"},
    {"crop and pad", "CenterCropPad", NULL, {"f32[4,1] 1 2 3 4", "i64[2] 2 3"}, {"f32[2,3] 0 2 0 0 3 0"}},
    {"only some axes", "CenterCropPad", "axes=-1", {"f32[1,3] 1 2 3", "i64[1] 2"}, {"f32[1,2] 1 2"}},
};

static const op_case k_pad[] = {
    {"zeros", "Pad", NULL, {"f32[2] 1 2", "i64[2] 1 2"}, {"f32[5] 0 1 2 0 0"}},
    {"a value", "Pad", NULL, {"i32[1,2] 1 2", "i64[4] 0 1 1 0", "i32[] 9"}, {"i32[2,3] 9 1 2 9 9 9"}},
    {"negative pads cut", "Pad", NULL, {"f32[4] 1 2 3 4", "i64[2] -1 -2"}, {"f32[1] 2"}},
    {"cut and extend", "Pad", NULL, {"f32[3] 1 2 3", "i64[2] -2 1"}, {"f32[2] 3 0"}},
    {"reflect beyond one period", "Pad", "mode=reflect", {"f32[3] 1 2 3", "i64[2] 5 1"}, {"f32[9] 2 1 2 3 2 1 2 3 2"}},
    {"reflect of one", "Pad", "mode=reflect", {"f32[1] 7", "i64[2] 1 2"}, {"f32[4] 7 7 7 7"}},
    {"edge", "Pad", "mode=edge", {"f32[2] 1 2", "i64[2] 2 1"}, {"f32[5] 1 1 1 2 2"}},
    {"wrap", "Pad", "mode=wrap", {"f32[3] 1 2 3", "i64[2] 2 4"}, {"f32[9] 2 3 1 2 3 1 2 3 1"}},
    {"by axes", "Pad", NULL, {"f32[1,2] 1 2", "i64[2] 1 0", "f32[] 5", "i64[1] -1"}, {"f32[1,3] 5 1 2"}},
    {"edge of nothing", "Pad", "mode=edge", {"f32[0]", "i64[2] 1 0"}, {NULL}, HONE_ERR_INPUT, "empty"},
    {"below nothing", "Pad", NULL, {"f32[1] 1", "i64[2] -1 -1"}, {NULL}, HONE_ERR_FORMAT, "valid size"},
    {"more than a number holds", "Pad", NULL, {"f32[1] 1", "i64[2] 9223372036854775807 9223372036854775807"}, {NULL}, HONE_ERR_FORMAT, NULL},
    {"a mode that does not exist", "Pad", "mode=mirror", {"f32[1] 1", "i64[2] 1 1"}, {NULL}, HONE_ERR_FORMAT, "mirror"},
    {"4-bit numbers", "Pad", NULL, {"u4[3] 1 2 3", "i64[2] 1 1", "u4[] 15"}, {"u4[5] 15 1 2 3 15"}},
};

static void test_shape(void **state) { (void)state; OP_CASES(k_shape); }
static void test_fill(void **state) { (void)state; OP_CASES(k_fill); }
static void test_move(void **state) { (void)state; OP_CASES(k_move); }
static void test_pad(void **state) { (void)state; OP_CASES(k_pad); }

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shape),
        cmocka_unit_test(test_fill),
        cmocka_unit_test(test_move),
        cmocka_unit_test(test_pad),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
