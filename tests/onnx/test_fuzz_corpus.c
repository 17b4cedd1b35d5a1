// SPDX-License-Identifier: Apache-2.0
// The fuzzer's corpus of ONNX files, run once each.
#include "support/test.h"
#include <dirent.h>
#include "fuzz/fuzz_onnx.c"

static void test_corpus(void **state) {
    (void)state;
    char folder[512], path[1024];
    const char *root = getenv("HONE_SOURCE_DIR");
    if (!root) skip();
    snprintf(folder, sizeof folder, "%s/tests/fuzz/corpus_onnx", root);
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    int count = 0;
    for (struct dirent *entry; (entry = readdir(dir));) {
        char *data;
        size_t bytes;
        hone_error err = {0};
        if (entry->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        assert_int_equal(hn_file_read(&err, path, 1 << 20, &data, &bytes), HONE_OK);
        LLVMFuzzerTestOneInput((const uint8_t *)data, bytes);
        hn_free(data);
        count++;
    }
    closedir(dir);
    assert_true(count >= 20);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_corpus)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
