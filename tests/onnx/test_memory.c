// SPDX-License-Identifier: Apache-2.0
// TEST-TIMEOUT 120
// TEST-SERIAL
// Peak memory while a model of 256 MiB of weights is loaded, and after all of them were read: at
// most 1.2 times the weights. Inside the file (aligned and not) and in an external file.
#include "support/onnx_make.h"
#include "support/test.h"
#include <fcntl.h>
#include <unistd.h>

#define WEIGHT_BYTES ((size_t)256 << 20)

static size_t status_kib(const char *key) {
    char line[256];
    size_t value = 0;
    FILE *file = fopen("/proc/self/status", "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file))
        if (strncmp(line, key, strlen(key)) == 0) sscanf(line + strlen(key), ": %zu", &value);
    fclose(file);
    return value;
}

static bool reset_peak(void) {
    int fd = open("/proc/self/clear_refs", O_WRONLY);
    bool ok = fd >= 0 && write(fd, "5", 1) == 1;
    if (fd >= 0) close(fd);
    return ok;
}

static void put_varint(FILE *file, uint64_t value) {
    for (; value >= 0x80; value >>= 7)
        fputc((int)(value | 0x80), file);
    fputc((int)value, file);
}

static size_t varint_bytes(uint64_t value) {
    size_t bytes = 1;
    for (; value >= 0x80; value >>= 7)
        bytes++;
    return bytes;
}

// Header and nodes, then one weight whose data is the file's end; the data is a hole of zeros.
// shift moves the data by as many bytes (a longer graph name).
static void write_internal(const char *path, int shift) {
    hn_wire_out w = {0}, tensor = {0};
    size_t head_bytes, graph_bytes;
    hn_wire_put_int(&w, 1, 8);
    om_opset(&w, 8, "", 17);
    uint8_t *head = om_finish(&w, &head_bytes);
    hn_wire_put_text(&w, 2, &"name"[shift & 3]);
    om_value(&w, 11, "x", HN_F32, "1");
    om_node(&w, "Add", "x w", "y");
    om_value(&w, 12, "y", HN_F32, NULL);
    uint8_t *graph = om_finish(&w, &graph_bytes);
    hn_wire_put_int(&tensor, 1, (int64_t)(WEIGHT_BYTES / 4));
    hn_wire_put_int(&tensor, 2, HN_F32);
    hn_wire_put_text(&tensor, 8, "w");
    size_t fields_bytes;
    uint8_t *fields = om_finish(&tensor, &fields_bytes);
    size_t tensor_bytes = fields_bytes + 1 + varint_bytes(WEIGHT_BYTES) + WEIGHT_BYTES;
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    fwrite(head, 1, head_bytes, file);
    fputc(7 << 3 | 2, file);
    put_varint(file, graph_bytes + 1 + varint_bytes(tensor_bytes) + tensor_bytes);
    fwrite(graph, 1, graph_bytes, file);
    fputc(5 << 3 | 2, file);
    put_varint(file, tensor_bytes);
    fwrite(fields, 1, fields_bytes, file);
    fputc(9 << 3 | 2, file);
    put_varint(file, WEIGHT_BYTES);
    long at = ftell(file);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(truncate(path, at + (long)WEIGHT_BYTES), 0);
    hn_free(head);
    hn_free(graph);
    hn_free(fields);
}

static void write_external(const char *path, const char *data_path) {
    hn_wire_out w = {0};
    size_t bytes;
    om_model(&w, 8, 17);
    om_value(&w, 11, "x", HN_F32, "1");
    om_node(&w, "Add", "x w", "y");
    om_value(&w, 12, "y", HN_F32, NULL);
    hn_wire_begin(&w, 5);
    hn_wire_put_int(&w, 1, (int64_t)(WEIGHT_BYTES / 4));
    hn_wire_put_int(&w, 2, HN_F32);
    hn_wire_put_text(&w, 8, "w");
    hn_wire_begin(&w, 13);
    hn_wire_put_text(&w, 1, "location");
    hn_wire_put_text(&w, 2, data_path);
    hn_wire_end(&w);
    hn_wire_put_int(&w, 14, 1);
    uint8_t *data = om_finish(&w, &bytes);
    hone_error err = {0};
    assert_int_equal(hn_file_write(&err, path, data, bytes), HONE_OK);
    hn_free(data);
    assert_int_equal(hn_file_write(&err, data_path, "", 0), HONE_OK);
    assert_int_equal(truncate(data_path, (long)WEIGHT_BYTES), 0);
}

#if defined(__SANITIZE_THREAD__) // eight bytes of shadow for a byte that was touched
#define LIMIT (1.2 + 8)
#else
#define LIMIT 1.2
#endif

static void measure(const char *path, const char *what) {
    if (!reset_peak()) skip();
    size_t before = status_kib("VmRSS");
    hone_error err = {0};
    hn_module *module = NULL;
    hn_onnx_options options = {.keep_unknown = true};
    if (hn_onnx_load(&err, path, &options, &module) != HONE_OK) fail_msg("%s", err.text);
    double loaded = (double)(status_kib("VmHWM") - before) * 1024 / (double)WEIGHT_BYTES;
    const hn_tensor *w = hn_graph_find(module->main, "w")->constant;
    assert_int_equal(w->bytes, WEIGHT_BYTES);
    uint64_t sum = 0;
    for (size_t i = 0; i < w->bytes; i += 512)
        sum += ((const volatile uint8_t *)w->data)[i];
    assert_int_equal(sum, 0);
    double used = (double)(status_kib("VmHWM") - before) * 1024 / (double)WEIGHT_BYTES;
    print_message("%s: peak %.3f of the weights while loading, %.3f after reading all\n", what,
                  loaded, used);
    assert_true(loaded <= LIMIT);
    assert_true(used <= LIMIT);
    hn_module_free(module);
}

static void test_peak(void **state) {
    (void)state;
    int views = 0;
    for (int shift = 0; shift < 4; shift++) {
        char what[64];
        write_internal("big.onnx", shift);
        FILE *file = fopen("big.onnx", "rb");
        assert_non_null(file);
        fseek(file, 0, SEEK_END);
        bool aligned = ((size_t)ftell(file) - WEIGHT_BYTES) % 4 == 0;
        fclose(file);
        views += aligned;
        snprintf(what, sizeof what, "inside the file, %s", aligned ? "aligned" : "not aligned");
        measure("big.onnx", what);
    }
    assert_true(views >= 1 && views <= 3); // both ways were measured
    write_external("big.onnx", "big.bin");
    measure("big.onnx", "in an external file");
    unlink("big.onnx");
    unlink("big.bin");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_peak)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
