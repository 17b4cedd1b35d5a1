// SPDX-License-Identifier: Apache-2.0
// base: error record, arena, strings, files, parallel ranges.
#include <stdatomic.h>
#include <sys/stat.h>
#include <unistd.h>
#include "support/test.h"

static hone_status decide(hone_error *err) { HN_FAIL(err, HONE_ERR_FORMAT, "node %d is odd", 7); }
static hone_status pass_on(hone_error *err) {
    HN_TRY_CTX(err, decide(err), "importing '%s'", "m.onnx");
    return HONE_OK;
}

static void error_record_keeps_text_and_frames(void **state) {
    (void)state;
    hone_error err = {0};
    char text[256];
    assert_int_equal(pass_on(&err), HONE_ERR_FORMAT);
    assert_string_equal(hone_error_format(&err, text, sizeof text),
                        "node 7 is odd (importing 'm.onnx')");
    assert_int_equal(hone_status_exit_code(err.status), 3);
    assert_int_equal(pass_on(NULL), HONE_ERR_FORMAT);
    for (int i = 0; i < 20; i++)
        hn_error_frame(&err, "frame %d", i);
    assert_int_equal(err.frame_count, HONE_ERROR_FRAMES);
    char tiny[9];
    assert_string_equal(hone_error_format(&err, tiny, sizeof tiny), "node 7 i");
    hone_error other = {0};
    hn_error_merge(&other, &err);
    assert_string_equal(other.text, "node 7 is odd");
}

static void arena_survives_block_edges_and_failure(void **state) {
    (void)state;
    hn_arena arena = {0};
    for (size_t size = 1; size < 9000; size = size * 3 / 2 + 1) {
        unsigned char *p = hn_arena_alloc(&arena, size);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 16, 0);
        memset(p, 0xa5, size);
    }
    assert_null(hn_arena_alloc(&arena, SIZE_MAX - 4));
    assert_null(hn_arena_array(&arena, SIZE_MAX / 2, 3));
    hn_alloc_fail_nth(1);
    assert_null(hn_arena_alloc(&arena, 1 << 22));
    assert_non_null(hn_arena_alloc(&arena, 1 << 22));
    assert_string_equal(hn_arena_printf(&arena, "%d-%s", 4, "x"), "4-x");
    hn_arena_free(&arena);
    assert_null(arena.head);
}

static void strings_parse_and_refuse(void **state) {
    (void)state;
    int64_t i;
    double d;
    assert_true(hn_parse_i64((hn_slice){"-9223372036854775808", 20}, &i));
    assert_true(i == INT64_MIN);
    assert_false(hn_parse_i64((hn_slice){"9223372036854775808", 19}, &i));
    assert_false(hn_parse_i64((hn_slice){"", 0}, &i));
    assert_false(hn_parse_i64((hn_slice){"-", 1}, &i));
    assert_false(hn_parse_i64((hn_slice){"1x", 2}, &i));
    assert_true(hn_parse_f64((hn_slice){"1.5e3junk", 5}, &d));
    assert_true(d == 1500.0);
    assert_false(hn_parse_f64((hn_slice){"1.5e3junk", 9}, &d));
    hn_slice rest = {"a\r\n\nlast", 8}, line;
    assert_true(hn_slice_line(&rest, &line) && hn_slice_eq(line, "a"));
    assert_true(hn_slice_line(&rest, &line) && line.length == 0);
    assert_true(hn_slice_line(&rest, &line) && hn_slice_eq(line, "last"));
    assert_false(hn_slice_line(&rest, &line));
    hn_str s = {0};
    for (int k = 0; k < 1000; k++)
        hn_str_printf(&s, "%d,", k);
    assert_int_equal(s.length, 3890);
    assert_false(s.failed);
    hn_str_free(&s);
}

static void writing_is_atomic(void **state) {
    (void)state;
    char path[64];
    snprintf(path, sizeof path, "/tmp/hone-test-%d", (int)getpid());
    hone_error err = {0};
    assert_int_equal(hn_file_write(&err, path, "first", 5), HONE_OK);
    hn_writer writer;
    assert_int_equal(hn_writer_open(&err, path, &writer), HONE_OK);
    assert_int_equal(hn_writer_put(&err, &writer, "second", 6), HONE_OK);
    hn_writer_cancel(&writer);
    char *data;
    size_t bytes;
    assert_int_equal(hn_file_read(&err, path, 100, &data, &bytes), HONE_OK);
    assert_string_equal(data, "first");
    hn_free(data);
    assert_int_equal(hn_file_read(&err, path, 4, &data, &bytes), HONE_ERR_LIMIT);
    hn_map map;
    assert_int_equal(hn_map_open(&err, path, &map), HONE_OK);
    assert_memory_equal(map.data, "first", 5);
    hn_map_close(&map);
    unlink(path);
    assert_int_equal(hn_map_open(&err, path, &map), HONE_ERR_INPUT);
    assert_int_equal(hn_map_open(&err, "/tmp", &map), HONE_ERR_INPUT);
    assert_int_equal(hn_file_write(&err, "/nowhere/x", "y", 1), HONE_ERR_IO);
}

// What is no regular file is never replaced by one; a link stays a link.
static void writing_spares_what_is_no_file(void **state) {
    (void)state;
    char folder[64], file[80], link[80], fifo[80], long_name[400];
    snprintf(folder, sizeof folder, "/tmp/hone-test-XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(file, sizeof file, "%s/file", folder);
    snprintf(link, sizeof link, "%s/link", folder);
    snprintf(fifo, sizeof fifo, "%s/fifo", folder);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_int_equal(symlink("file", link), 0);
    hone_error err = {0};
    struct stat info;
    assert_int_equal(hn_file_write(&err, fifo, "x", 1), HONE_ERR_IO);
    assert_non_null(strstr(err.text, "device, pipe or socket"));
    assert_int_equal(lstat(fifo, &info), 0);
    assert_true(S_ISFIFO(info.st_mode));
    assert_int_equal(hn_file_write(&err, folder, "x", 1), HONE_ERR_IO);
    assert_int_equal(hn_file_write(&err, "", "x", 1), HONE_ERR_IO);
    assert_int_equal(hn_file_write(&err, file, "first", 5), HONE_OK);
    assert_int_equal(hn_file_write(&err, link, "second!", 7), HONE_OK);
    assert_int_equal(lstat(link, &info), 0);
    assert_true(S_ISLNK(info.st_mode));
    assert_int_equal(stat(file, &info), 0);
    assert_int_equal(info.st_size, 7);
    // The longest name that the system takes is taken.
    snprintf(long_name, sizeof long_name, "%s/%0255d", folder, 1);
    assert_int_equal(hn_file_write(&err, long_name, "x", 1), HONE_OK);
    // A process that is ended by a signal takes its unfinished file along.
    hn_writer writer;
    assert_int_equal(hn_writer_open(&err, file, &writer), HONE_OK);
    assert_int_equal(access(writer.temporary, F_OK), 0);
    hn_temporaries_remove();
    assert_int_equal(access(writer.temporary, F_OK), -1);
    hn_writer_cancel(&writer);
    assert_int_equal(unlink(long_name) | unlink(link) | unlink(fifo) | unlink(file), 0);
    assert_int_equal(rmdir(folder), 0); // nothing else was left there
}

typedef struct cover {
    _Atomic int hits[1000];
} cover;
static void touch(void *arg, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++)
        ((cover *)arg)->hits[i]++;
}

static void parallel_covers_each_item_once(void **state) {
    (void)state;
    static cover c;
    for (int threads = 1; threads <= hn_parallel_max(); threads++) {
        hn_parallel_set_threads(threads);
        for (int64_t n = 0; n <= 1000; n = n * 2 + 1) {
            memset(&c, 0, sizeof c);
            hn_parallel_for(n, 3, touch, &c);
            for (int64_t i = 0; i < 1000; i++)
                assert_int_equal(c.hits[i], i < n);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(error_record_keeps_text_and_frames),
        cmocka_unit_test(arena_survives_block_edges_and_failure),
        cmocka_unit_test(strings_parse_and_refuse),
        cmocka_unit_test(writing_is_atomic),
        cmocka_unit_test(writing_spares_what_is_no_file),
        cmocka_unit_test(parallel_covers_each_item_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
