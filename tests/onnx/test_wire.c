// SPDX-License-Identifier: Apache-2.0
// The wire reader: varints, lengths, groups, nesting of lengths; and what the writer writes.
#include "support/test.h"
#include "onnx/proto.h"
#include "onnx/wire.h"

static const char *varint(const char *bytes, size_t count, uint64_t *out) {
    hn_wire wire = {(const uint8_t *)bytes, (const uint8_t *)bytes + count};
    return hn_wire_varint(&wire, out);
}

static void test_varints(void **state) {
    (void)state;
    uint64_t value = 0;
    assert_null(varint("\x00", 1, &value));
    assert_int_equal(value, 0);
    assert_null(varint("\x96\x01", 2, &value));
    assert_int_equal(value, 150);
    assert_null(varint("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 10, &value));
    assert_true(value == UINT64_MAX);
    assert_null(varint("\x80\x80\x00", 3, &value)); // over-long zero is legal
    assert_int_equal(value, 0);
    assert_non_null(varint("", 0, &value));
    assert_non_null(varint("\x80", 1, &value));
    // A tenth byte above 1 does not fit; nor do eleven bytes.
    assert_non_null(varint("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", 10, &value));
    assert_non_null(varint("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11, &value));
    assert_non_null(varint("\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80", 12, &value));
}

static hone_status scan(hone_error *err, const char *bytes, size_t count) {
    hn_wire wire = {(const uint8_t *)bytes, (const uint8_t *)bytes + count};
    bool more = true;
    hn_wire_field field;
    while (more)
        HN_TRY(hn_wire_next(err, &wire, &field, &more));
    return HONE_OK;
}

static void test_broken_fields(void **state) {
    (void)state;
    static const struct {
        const char *bytes;
        size_t count;
        const char *why;
    } k_cases[] = {
        {"\x0b\x0c", 2, "groups"},                           // start and end group
        {"\x00\x01", 2, "field number"},                     // field 0
        {"\x80\x80\x80\x80\x80\x01\x00", 7, "field number"}, // field number of 32 bits
        {"\x0a\x05"
         "abc",
         5, "longer than"}, // length beyond the end
        {"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11, "longer than"}, // 2^64-1
        {"\x0d\x01\x02", 3, "ends inside"},                                  // fixed32 cut
        {"\x09\x01\x02\x03", 4, "ends inside"},                              // fixed64 cut
        {"\x0e\x01", 2, "wire type"},                                        // type 6
        {"\x08", 1, "ends inside"},                                          // no value
    };
    for (size_t i = 0; i < HN_COUNT_OF(k_cases); i++) {
        hone_error err = {0};
        assert_int_equal(scan(&err, k_cases[i].bytes, k_cases[i].count), HONE_ERR_FORMAT);
        if (!strstr(err.text, k_cases[i].why)) fail_msg("case %zu: %s", i, err.text);
    }
    hone_error err = {0};
    assert_int_equal(scan(&err, "\x08\x01\x12\x01z\x1d\x01\x02\x03\x04", 10), HONE_OK);
}

// Unknown fields are skipped, lists come packed, unpacked and mixed, wrong types are named.
static void test_messages(void **state) {
    (void)state;
    hn_arena arena = {0};
    hone_error err = {0};
    hn_pb_tensor tensor;
    // dims 2 (unpacked), 3 and 4 (packed), 5 (unpacked); unknown field 99 = 7; data_type 1.
    static const char k_good[] = "\x08\x02\x0a\x02\x03\x04\x98\x06\x07\x08\x05\x10\x01";
    hn_wire wire = {(const uint8_t *)k_good, (const uint8_t *)k_good + sizeof k_good - 1};
    assert_int_equal(hn_pb_read_tensor(&err, &arena, wire, &tensor), HONE_OK);
    assert_int_equal(tensor.data_type, 1);
    const int64_t *dims;
    int64_t count;
    assert_int_equal(hn_pb_ints(&err, &arena, &tensor.dims, &dims, &count), HONE_OK);
    assert_int_equal(count, 4);
    for (int i = 0; i < 4; i++)
        assert_int_equal(dims[i], i + 2);
    static const char k_bad[] = "\x12\x01z"; // data_type as bytes
    wire = (hn_wire){(const uint8_t *)k_bad, (const uint8_t *)k_bad + 3};
    assert_int_equal(hn_pb_read_tensor(&err, &arena, wire, &tensor), HONE_ERR_FORMAT);
    assert_non_null(strstr(err.text, "tensor.data_type"));
    static const char k_floats[] = "\x22\x03"
                                   "abc"; // packed floats of 3 bytes
    wire = (hn_wire){(const uint8_t *)k_floats, (const uint8_t *)k_floats + 5};
    assert_int_equal(hn_pb_read_tensor(&err, &arena, wire, &tensor), HONE_ERR_FORMAT);
    assert_non_null(strstr(err.text, "multiple of 4"));
    hn_arena_free(&arena);
}

static void test_writer(void **state) {
    (void)state;
    hn_wire_out out = {0};
    static const char k_big[300] = "big";
    hn_wire_begin(&out, 1);
    hn_wire_put_int(&out, 2, -1);
    hn_wire_begin(&out, 3); // empty message
    hn_wire_end(&out);
    hn_wire_put_borrowed(&out, 4, k_big, sizeof k_big);
    hn_wire_end(&out);
    hn_wire_put_text(&out, 5, "x");
    assert_int_equal(out.bytes, 3 + 11 + 2 + 3 + 300 + 3);
    const char *path = "wire-test.bin";
    hn_writer writer;
    hone_error err = {0};
    assert_int_equal(hn_writer_open(&err, path, &writer), HONE_OK);
    assert_int_equal(hn_wire_flush(&err, &out, &writer), HONE_OK);
    assert_int_equal(hn_writer_commit(&err, &writer), HONE_OK);
    hn_wire_out_free(&out);
    char *data;
    size_t bytes;
    assert_int_equal(hn_file_read(&err, path, 4096, &data, &bytes), HONE_OK);
    assert_int_equal(bytes, 322);
    assert_memory_equal(
        data,
        "\x0a\xbc\x02\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x1a\x00\x22\xac\x02"
        "big",
        22);
    assert_memory_equal(data + 319, "\x2a\x01x", 3);
    hn_free(data);
    remove(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_varints),
        cmocka_unit_test(test_broken_fields),
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_writer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
