// SPDX-License-Identifier: Apache-2.0
// NumPy files and test-data tensors: every element type, Fortran order, byte order, broken headers.
#include "support/test.h"
#include "onnx/onnx.h"
#include <unistd.h>

static hone_status read_npy(hone_error *err, const char *dict, const void *data, size_t bytes,
                            int version, hn_tensor *out_tensor) {
    hn_str text = {0};
    size_t length = strlen(dict);
    char mark[12] = {(char)0x93,          'N', 'U', 'M', 'P', 'Y', (char)version, 0, (char)length,
                     (char)(length >> 8), 0,   0};
    hn_str_append_n(&text, mark, version == 1 ? 10 : 12);
    hn_str_append_n(&text, dict, length);
    hn_str_append_n(&text, data, bytes);
    assert_int_equal(hn_file_write(err, "a.npy", text.data, text.length), HONE_OK);
    hn_str_free(&text);
    return hn_npy_read(err, "a.npy", out_tensor);
}

static void test_orders(void **state) {
    (void)state;
    hone_error err = {0};
    hn_tensor tensor;
    const float columns[6] = {0, 3, 1, 4, 2, 5}, rows[6] = {0, 1, 2, 3, 4, 5};
    for (int version = 1; version <= 3; version++) {
        assert_int_equal(read_npy(&err,
                                  "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }  \n",
                                  columns, sizeof columns, version, &tensor),
                         HONE_OK);
        assert_int_equal(tensor.shape.rank, 2);
        assert_memory_equal(tensor.data, rows, sizeof rows);
        hn_tensor_free(&tensor);
    }
    // Three dims: element (i, j, k) of a 2x2x2 array stands at i + 2 j + 4 k.
    const int16_t cube[8] = {0, 100, 10, 110, 1, 101, 11, 111},
                  straight[8] = {0, 1, 10, 11, 100, 101, 110, 111};
    assert_int_equal(read_npy(&err, "{'fortran_order':True,'shape':(2,2,2),'descr':'<i2'}", cube,
                              sizeof cube, 1, &tensor),
                     HONE_OK);
    assert_memory_equal(tensor.data, straight, sizeof straight);
    hn_tensor_free(&tensor);
    const uint8_t big[8] = {0x3f, 0x80, 0, 0, 0xc0, 0, 0, 0}; // 1, -2 big-endian
    assert_int_equal(read_npy(&err, "{'descr': '>f4', 'fortran_order': False, 'shape': (2,), }",
                              big, 8, 1, &tensor),
                     HONE_OK);
    assert_true(((float *)tensor.data)[0] == 1 && ((float *)tensor.data)[1] == -2);
    hn_tensor_free(&tensor);
    assert_int_equal(read_npy(&err, "{'descr': '|b1', 'fortran_order': False, 'shape': (), }",
                              "\x05", 1, 1, &tensor),
                     HONE_OK);
    assert_int_equal(tensor.shape.rank, 0);
    assert_int_equal(((uint8_t *)tensor.data)[0], 1);
    hn_tensor_free(&tensor);
    unlink("a.npy");
}

static void test_broken(void **state) {
    (void)state;
    static const struct {
        const char *dict;
        size_t bytes;
        hone_status status;
        const char *why;
    } k_cases[] = {
        {"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", 8, HONE_ERR_UNSUPPORTED,
         "objects"},
        {"{'descr': '<U4', 'fortran_order': False, 'shape': (1,), }", 16, HONE_ERR_UNSUPPORTED,
         "'U4'"},
        {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", 4,
         HONE_ERR_UNSUPPORTED, "structured"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", 4, HONE_ERR_FORMAT,
         "4 bytes"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }", 9, HONE_ERR_FORMAT,
         "9 bytes"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4), }", 4,
         HONE_ERR_LIMIT, "larger than memory"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }", 4,
         HONE_ERR_FORMAT, "shape"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }", 4, HONE_ERR_FORMAT, "shape"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1), }", 4,
         HONE_ERR_FORMAT, "too many dims"},
        {"{'descr': '<f4', 'fortran_order': False}", 4, HONE_ERR_FORMAT, "lacks a key"},
        {"{'descr': '<f4', 'fortran_order': Maybe, 'shape': (1,)}", 4, HONE_ERR_FORMAT,
         "fortran_order"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'x': 1}", 4, HONE_ERR_FORMAT,
         "unknown key"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,)", 4, HONE_ERR_FORMAT, "broken"},
        {"{'descr", 4, HONE_ERR_FORMAT, "broken"},
        {"", 4, HONE_ERR_FORMAT, "dict"},
    };
    for (size_t i = 0; i < HN_COUNT_OF(k_cases); i++) {
        hone_error err = {0};
        hn_tensor tensor;
        char data[32] = {0};
        hone_status status = read_npy(&err, k_cases[i].dict, data, k_cases[i].bytes, 1, &tensor);
        if (status != k_cases[i].status || !strstr(err.text, k_cases[i].why))
            fail_msg("case %zu: %d %s", i, status, err.text);
    }
    hone_error err = {0};
    hn_tensor tensor;
    assert_int_equal(hn_file_write(&err, "a.npy", "\x93NUMPY\x01\x00\xff\xff{", 11), HONE_OK);
    assert_int_equal(hn_npy_read(&err, "a.npy", &tensor), HONE_ERR_FORMAT);
    assert_int_equal(hn_file_write(&err, "a.npy", "PK", 2), HONE_OK);
    assert_int_equal(hn_npy_read(&err, "a.npy", &tensor), HONE_ERR_FORMAT);
    hn_npz npz;
    assert_int_equal(hn_npz_read(&err, "a.npy", &npz), HONE_ERR_FORMAT);
    assert_int_equal(hn_npz_read(&err, ".", &npz), HONE_ERR_INPUT);
    unlink("a.npy");
}

static const hn_dtype k_dtypes[] = {HN_F32, HN_F64, HN_F16, HN_I8,  HN_I16, HN_I32,
                                    HN_I64, HN_U8,  HN_U16, HN_U32, HN_U64, HN_BOOL};

static void fill(hn_tensor *tensor) {
    for (int64_t i = 0; i < hn_tensor_count(tensor); i++)
        hn_tensor_set_f64(tensor, i,
                          tensor->dtype == HN_BOOL ? (double)(i & 1) : (double)(i % 100));
}

static void test_npz(void **state) {
    (void)state;
    hone_error err = {0};
    hn_npz npz = {0}, again;
    for (size_t i = 0; i < HN_COUNT_OF(k_dtypes); i++) {
        hn_npz_item item = {0};
        hn_shape shape = {i % 4, {3, 0, 2}}; // ranks 0 to 3; with rank 2 and 3 empty
        if (i >= 4) shape.dims[1] = 500;
        assert_int_equal(hn_tensor_new(&err, k_dtypes[i], &shape, &item.tensor), HONE_OK);
        fill(&item.tensor);
        char name[32];
        snprintf(name, sizeof name, "folder/x %zu", i);
        item.name = hn_strdup(name);
        assert_true(hn_vec_push(&npz.items, item));
    }
    assert_int_equal(hn_npz_write(&err, "a.npz", &npz), HONE_OK);
    if (hn_npz_read(&err, "a.npz", &again) != HONE_OK) fail_msg("%s", err.text);
    assert_int_equal(again.items.count, npz.items.count);
    for (size_t i = 0; i < npz.items.count; i++) {
        const hn_tensor *a = &npz.items.data[i].tensor,
                        *b = hn_npz_get(&again, npz.items.data[i].name);
        assert_non_null(b);
        assert_int_equal(a->dtype, b->dtype);
        assert_true(hn_shape_equal(&a->shape, &b->shape));
        if (a->bytes) assert_memory_equal(a->data, b->data, a->bytes);
    }
    assert_null(hn_npz_get(&again, "absent"));
    hn_npz_free(&again);
    // The same arrays give the same bytes; a cut archive gives a sentence.
    char *first, *second;
    size_t bytes, second_bytes;
    assert_int_equal(hn_file_read(&err, "a.npz", 1 << 24, &first, &bytes), HONE_OK);
    hn_sleep_ns(INT64_C(2100000000)); // beyond the two seconds of a zip's time stamps
    assert_int_equal(hn_npz_write(&err, "a.npz", &npz), HONE_OK);
    assert_int_equal(hn_file_read(&err, "a.npz", 1 << 24, &second, &second_bytes), HONE_OK);
    assert_int_equal(bytes, second_bytes);
    assert_memory_equal(first, second, bytes);
    for (size_t cut = 0; cut < bytes; cut += 64) {
        assert_int_equal(hn_file_write(&err, "a.npz", first, cut), HONE_OK);
        assert_int_equal(hn_npz_read(&err, "a.npz", &again), HONE_ERR_FORMAT);
    }
    hn_free(first);
    hn_free(second);
    hn_npz_free(&npz);
    unlink("a.npz");
}

static void test_pb(void **state) {
    (void)state;
    hone_error err = {0};
    hn_arena arena = {0};
    for (size_t i = 0; i < HN_COUNT_OF(k_dtypes); i++) {
        hn_tensor tensor, again;
        const char *name = NULL;
        hn_shape shape = {2, {3, 7}};
        assert_int_equal(hn_tensor_new(&err, k_dtypes[i], &shape, &tensor), HONE_OK);
        fill(&tensor);
        assert_int_equal(hn_onnx_write_tensor(&err, "t.pb", "input", &tensor), HONE_OK);
        assert_int_equal(hn_onnx_read_tensor(&err, "t.pb", &arena, &name, &again), HONE_OK);
        assert_string_equal(name, "input");
        assert_true(hn_shape_equal(&tensor.shape, &again.shape));
        assert_memory_equal(tensor.data, again.data, tensor.bytes);
        hn_tensor_free(&tensor);
        hn_tensor_free(&again);
    }
    hn_tensor tensor;
    assert_int_equal(hn_file_write(&err, "t.pb", "\x08\x04\x10\x01\x4a\x02zz", 8), HONE_OK);
    assert_int_equal(hn_onnx_read_tensor(&err, "t.pb", NULL, NULL, &tensor), HONE_ERR_FORMAT);
    assert_non_null(strstr(err.text, "2 bytes"));
    assert_int_equal(hn_onnx_read_tensor(&err, "none.pb", NULL, NULL, &tensor), HONE_ERR_INPUT);
    hn_arena_free(&arena);
    unlink("t.pb");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_orders),
        cmocka_unit_test(test_broken),
        cmocka_unit_test(test_npz),
        cmocka_unit_test(test_pb),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
