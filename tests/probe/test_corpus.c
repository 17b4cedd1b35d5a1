// SPDX-License-Identifier: Apache-2.0
// The fuzz targets' seeds and what fuzzing found, as ordinary tests; each also cut at every byte of
// its first kilobyte.
#include <dirent.h>
#define LLVMFuzzerTestOneInput fuzz_text
#include "../fuzz/fuzz_probe_text.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_ncu
#include "../fuzz/fuzz_probe_ncu.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_record
#include "../fuzz/fuzz_probe_record.c"
#undef LLVMFuzzerTestOneInput
#include "support/test.h"

static void run_folder(const char *name, int (*target)(const uint8_t *, size_t)) {
    char folder[512], path[1024], *data;
    size_t bytes;
    int files = 0;
    const char *source = getenv("HONE_SOURCE_DIR");
    snprintf(folder, sizeof folder, "%s/tests/fuzz/corpus_%s", source ? source : ".", name);
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (entry->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        assert_int_equal(hn_file_read(NULL, path, 1 << 20, &data, &bytes), HONE_OK);
        for (size_t cut = 0; cut <= bytes && cut < 1024; cut++) {
            uint8_t *exact = malloc(cut ? cut : 1); // no byte behind the end, for sanitizers to see
            memcpy(exact, data, cut);
            assert_int_equal(target(exact, cut), 0);
            free(exact);
        }
        assert_int_equal(target((uint8_t *)data, bytes), 0);
        hn_free(data);
        files++;
    }
    closedir(dir);
    assert_true(files > 0);
}
static void texts(void **state) { (void)state, run_folder("probe_text", fuzz_text); }
static void ncu(void **state) { (void)state, run_folder("probe_ncu", fuzz_ncu); }
static void recordings(void **state) { (void)state, run_folder("probe_record", fuzz_record); }

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(texts), cmocka_unit_test(ncu), cmocka_unit_test(recordings)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
