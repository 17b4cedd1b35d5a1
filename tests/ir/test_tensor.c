// SPDX-License-Identifier: Apache-2.0
// Element types, shapes, buffers, and the exactness of every conversion: all bit patterns of all
// small floats, ties, overflow, and float16 fast paths against the generic encoder.
#include "support/test.h"
#include "ir/tensor.h"
#include <math.h>

static void test_dtypes(void **state) {
    (void)state;
    for (int i = 1; i < HN_DTYPE_END; i++) {
        const char *name = hn_dtype_name((hn_dtype)i);
        assert_int_equal(hn_dtype_from_name((hn_slice){name, strlen(name)}), i);
        assert_int_equal(hn_dtype_from_onnx(i), i);
    }
    assert_string_equal(hn_dtype_name((hn_dtype)99), "?");
    assert_int_equal(hn_dtype_from_onnx(0), HN_NONE);
    assert_int_equal(hn_dtype_from_onnx(1ll << 40), HN_NONE);
    assert_true(hn_dtype_is_float(HN_BF16) && !hn_dtype_is_float(HN_I8) &&
                !hn_dtype_is_int(HN_BOOL));
    assert_true(hn_dtype_is_signed(HN_I4) && !hn_dtype_is_signed(HN_U4));
}

static void test_shapes(void **state) {
    (void)state;
    int64_t count;
    size_t bytes;
    assert_true(hn_shape_count(&(hn_shape){0}, &count));
    assert_int_equal(count, 1);
    assert_false(hn_shape_count(&(hn_shape){3, {1ll << 31, 1ll << 31, 4}}, &count));
    assert_true(hn_shape_count(&(hn_shape){3, {1ll << 40, 1ll << 40, 0}}, &count));
    assert_int_equal(count, 0);
    assert_false(hn_shape_count(&(hn_shape){1, {-1}}, &count));
    assert_false(hn_shape_count(&(hn_shape){9, {1}}, &count));
    assert_true(hn_shape_bytes(&(hn_shape){1, {5}}, HN_I4, &bytes));
    assert_int_equal(bytes, 3);
    assert_true(hn_shape_bytes(&(hn_shape){1, {5}}, HN_U2, &bytes));
    assert_int_equal(bytes, 2);
    assert_false(hn_shape_bytes(&(hn_shape){1, {1ll << 60}}, HN_F64, &bytes));
    hone_error err = {0};
    hn_tensor tensor;
    assert_int_equal(hn_tensor_new(&err, HN_F32, &(hn_shape){2, {1ll << 40, 1ll << 40}}, &tensor),
                     HONE_ERR_LIMIT);
    assert_non_null(strstr(err.text, "1099511627776x1099511627776"));
}

static int released;
static void release(void *user) {
    released += *(int *)user;
}

static void test_buffers(void **state) {
    (void)state;
    int token = 3;
    static const int data[4];
    hn_buffer *buffer = hn_buffer_wrap(data, sizeof data, release, &token);
    hn_tensor one = {HN_I32, {1, {4}}, (void *)(uintptr_t)data, sizeof data, buffer};
    hn_tensor two = hn_tensor_ref(&one);
    assert_false(hn_buffer_is_heap(buffer));
    hn_tensor_free(&one);
    assert_int_equal(released, 0);
    hn_tensor_free(&two);
    assert_int_equal(released, 3);
    assert_null(two.buffer);
    hn_tensor_free(&two); // zeroed: harmless
    hn_buffer_unref(NULL);
    assert_int_equal(released, 3);
}

static const hn_dtype k_small[] = {HN_F16,    HN_BF16,       HN_F8E4M3FN, HN_F8E4M3FNUZ,
                                   HN_F8E5M2, HN_F8E5M2FNUZ, HN_F4E2M1,   HN_F8E8M0};

// Each value of each format comes back; halfway between neighbours goes to the even one.
static void test_every_pattern(void **state) {
    (void)state;
    for (size_t f = 0; f < HN_COUNT_OF(k_small); f++) {
        hn_dtype t = k_small[f];
        uint32_t end = 1u << hn_dtype_bits(t);
        for (uint32_t bits = 0; bits < end; bits++) {
            double value = hn_small_to_f64(t, (uint16_t)bits);
            uint16_t back = hn_f64_to_small(t, value, false);
            if (isnan(value))
                assert_true(isnan(hn_small_to_f64(t, back)));
            else if (back != bits)
                fail_msg("%s %x is %g and comes back as %x", hn_dtype_name(t), bits, value, back);
            if (t == HN_F8E8M0 || isnan(value) || isinf(value)) continue;
            double next = hn_small_to_f64(t, (uint16_t)(bits + 1));
            bool top = (bits + 1) % (end / 2) == 0;
            if (top || isnan(next) || isinf(next) || bits + 1 == end) continue;
            double half = (value + next) / 2; // exact in double
            uint16_t even = (uint16_t)(bits & 1 ? bits + 1 : bits);
            uint16_t tie = hn_f64_to_small(t, half, false);
            if (tie != even && hn_small_to_f64(t, tie) != hn_small_to_f64(t, even))
                fail_msg("%s tie at %x", hn_dtype_name(t), bits);
            assert_int_equal(hn_f64_to_small(t, nextafter(half, value), false), bits);
            assert_int_equal(hn_f64_to_small(t, nextafter(half, next), false), bits + 1);
        }
    }
}

static void test_known_values(void **state) {
    (void)state;
    static const struct {
        hn_dtype t;
        uint16_t bits;
        double value;
    } rows[] = {
        {HN_F16, 0x3c00, 1},          {HN_F16, 0x7bff, 65504},     {HN_F16, 0x0001, 0x1p-24},
        {HN_BF16, 0x3f80, 1},         {HN_BF16, 0x0001, 0x1p-133}, {HN_F8E4M3FN, 0x7e, 448},
        {HN_F8E4M3FN, 0x01, 0x1p-9},  {HN_F8E4M3FN, 0x38, 1},      {HN_F8E4M3FNUZ, 0x7f, 240},
        {HN_F8E4M3FNUZ, 0x40, 1},     {HN_F8E5M2, 0x7b, 57344},    {HN_F8E5M2, 0x3c, 1},
        {HN_F8E5M2FNUZ, 0x7f, 57344}, {HN_F8E5M2FNUZ, 0x40, 1},    {HN_F4E2M1, 0x7, 6},
        {HN_F4E2M1, 0x1, 0.5},        {HN_F8E8M0, 127, 1},         {HN_F8E8M0, 0, 0x1p-127},
    };
    for (size_t i = 0; i < HN_COUNT_OF(rows); i++) {
        if (hn_small_to_f64(rows[i].t, rows[i].bits) != rows[i].value) fail_msg("row %zu", i);
        assert_int_equal(hn_f64_to_small(rows[i].t, rows[i].value, true), rows[i].bits);
    }
    assert_int_equal(hn_f64_to_small(HN_F16, 65519.99, false), 0x7bff);
    assert_int_equal(hn_f64_to_small(HN_F16, 65520, false), 0x7c00);
    assert_int_equal(hn_f64_to_small(HN_F16, 1e30, true), 0x7bff);
    assert_int_equal(hn_f64_to_small(HN_F8E4M3FN, 1e30, false), 0x7f);
    assert_int_equal(hn_f64_to_small(HN_F8E4M3FN, -INFINITY, true), 0xfe);
    assert_int_equal(hn_f64_to_small(HN_F8E5M2, 1e30, false), 0x7c);
    assert_int_equal(hn_f64_to_small(HN_F8E4M3FNUZ, -0.0, false), 0);
    assert_int_equal(hn_f64_to_small(HN_F8E4M3FNUZ, NAN, false), 0x80);
    assert_int_equal(hn_f64_to_small(HN_F8E8M0, 1.5, false), 128); // rounds up
}

static void test_fast_float16(void **state) {
    (void)state;
    for (uint32_t bits = 0; bits < 65536; bits++) {
        double slow = hn_small_to_f64(HN_F16, (uint16_t)bits);
        float fast = hn_f16_to_f32((uint16_t)bits);
        assert_true(isnan(slow) ? isnan(fast)
                                : (double)fast == slow && !signbit(fast) == !signbit(slow));
    }
    for (uint64_t step = 0; step < 1ull << 32; step += 40503) { // all exponents, odd mantissas
        uint32_t raw = (uint32_t)step;
        float value;
        memcpy(&value, &raw, 4);
        uint16_t half = hn_f32_to_f16(value), brain = hn_f32_to_bf16(value);
        if (isnan(value)) {
            assert_true(isnan(hn_f16_to_f32(half)) && isnan(hn_bf16_to_f32(brain)));
            continue;
        }
        assert_int_equal(half, hn_f64_to_small(HN_F16, (double)value, false));
        assert_int_equal(brain, hn_f64_to_small(HN_BF16, (double)value, false));
    }
}

static void test_elements(void **state) {
    (void)state;
    hn_tensor t;
    for (int d = 1; d < HN_DTYPE_END; d++) {
        if (!hn_dtype_is_int((hn_dtype)d)) continue;
        assert_int_equal(hn_tensor_new(NULL, (hn_dtype)d, &(hn_shape){1, {9}}, &t), HONE_OK);
        memset(t.data, 0, t.bytes);
        int bits = hn_dtype_bits((hn_dtype)d);
        bool is_signed = hn_dtype_is_signed((hn_dtype)d);
        for (int i = 0; i < 9; i++)
            hn_tensor_set_i64(&t, i, i & 1);
        for (int i = 0; i < 9; i++)
            assert_int_equal(hn_tensor_get_i64(&t, i), i & 1);
        hn_tensor_set_f64(&t, 4, 1e300);
        assert_true(hn_tensor_get_f64(&t, 4) ==
                    (is_signed ? ldexp(1, bits - 1) : ldexp(1, bits)) - (bits < 64));
        hn_tensor_set_f64(&t, 4, -1e300);
        assert_true(hn_tensor_get_f64(&t, 4) == (is_signed ? -ldexp(1, bits - 1) : 0));
        hn_tensor_set_f64(&t, 4, NAN);
        assert_int_equal(hn_tensor_get_i64(&t, 4), 0);
        hn_tensor_set_f64(&t, 4, 0.5);
        assert_int_equal(hn_tensor_get_i64(&t, 4), 0);
        assert_int_equal(hn_tensor_get_i64(&t, 3), 1); // neighbours in the same byte are left alone
        assert_int_equal(hn_tensor_get_i64(&t, 5), 1);
        hn_tensor_free(&t);
    }
    assert_int_equal(hn_tensor_new(NULL, HN_F32, &(hn_shape){1, {2}}, &t), HONE_OK);
    hn_tensor_set_i64(&t, 0, (1ll << 60) + (1ll << 36) + 1); // above the tie by 1
    assert_true(hn_tensor_get_f64(&t, 0) == (double)((1ll << 60) + (1ll << 37)));
    hn_tensor_set_f64(&t, 1, -1e30);
    assert_true(hn_tensor_get_i64(&t, 1) == INT64_MIN);
    hn_tensor_free(&t);
    assert_int_equal(hn_tensor_new(NULL, HN_BF16, &(hn_shape){1, {1}}, &t), HONE_OK);
    hn_tensor_set_i64(&t, 0, (1ll << 60) + (1ll << 52) + 1);
    assert_true(hn_tensor_get_f64(&t, 0) == ldexp(1, 60) + ldexp(1, 53));
    hn_tensor_free(&t);
    assert_int_equal(hn_tensor_new(NULL, HN_BOOL, &(hn_shape){1, {1}}, &t), HONE_OK);
    hn_tensor_set_f64(&t, 0, 0.25);
    assert_int_equal(hn_tensor_get_i64(&t, 0), 1);
    hn_tensor_free(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dtypes),       cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_buffers),      cmocka_unit_test(test_every_pattern),
        cmocka_unit_test(test_known_values), cmocka_unit_test(test_fast_float16),
        cmocka_unit_test(test_elements),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
