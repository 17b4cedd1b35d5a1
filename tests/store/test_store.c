// SPDX-License-Identifier: Apache-2.0
// TEST-TIMEOUT 120
// The store: what is put is got, aligned and shared; damage, cuts, kills and strangers' files never
// harm; the bound holds; a folder that cannot be used is no error.
#include <dirent.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "store/store_int.h"
#include "support/test.h"

static char g_folder[64];
static char g_log[4096];

static void sink(void *user, hn_log_level level, const char *text) {
    (void)user;
    (void)level;
    size_t used = strlen(g_log);
    snprintf(g_log + used, sizeof g_log - used, "%s\n", text);
}

static int fresh(void **state) {
    (void)state;
    snprintf(g_folder, sizeof g_folder, "/tmp/hone-store-XXXXXX");
    g_log[0] = '\0';
    return mkdtemp(g_folder) ? 0 : 1;
}

static int gone(void **state) {
    (void)state;
    char command[256];
    snprintf(command, sizeof command, "chmod -R u+w %s; rm -rf %s", g_folder, g_folder);
    return system(command) == 0 ? 0 : 1;
}

static hn_store *opened(int64_t limit) {
    hn_store *store = hn_store_open(g_folder, limit);
    assert_non_null(store);
    return store;
}

static hn_store_key key_of(const char *text) { return (hn_store_key){"test", "lib 1", "avx2", 2, text}; }

static unsigned char *content(size_t bytes, unsigned seed) {
    unsigned char *data = hn_malloc(bytes + 1);
    for (size_t i = 0; i < bytes; i++)
        data[i] = (unsigned char)((i * 2654435761u + seed * 40503u) >> 11);
    return data;
}

static void put(hn_store *store, const char *text, size_t bytes, unsigned seed) {
    hn_store_key key = key_of(text);
    unsigned char *data = content(bytes, seed);
    assert_true(hn_store_put(store, &key, data, bytes));
    hn_free(data);
}

// 1: there and right; 0: not there; wrong content fails the test.
static int has(hn_store *store, const char *text, size_t bytes, unsigned seed) {
    hn_store_key key = key_of(text);
    hn_blob *blob = hn_store_get(store, &key);
    if (!blob) return 0;
    unsigned char *data = content(bytes, seed);
    assert_int_equal(hn_blob_bytes(blob), bytes);
    assert_int_equal((uintptr_t)hn_blob_data(blob) % 64, 0);
    assert_memory_equal(hn_blob_data(blob), data, bytes);
    hn_free(data);
    hn_blob_unref(blob);
    return 1;
}

static void path_of(const char *text, char out[PATH_MAX]) {
    hn_store_key key = key_of(text);
    char name[HN_BLOB_NAME + 1], *whole = hn_store_key_text(&key);
    hn_store_key_name(whole, name);
    hn_free(whole);
    snprintf(out, PATH_MAX, "%s/v1/blobs/%s", g_folder, name);
}

static hn_store_info info_of(hn_store *store) {
    hn_store_info info;
    hn_store_get_info(store, &info);
    return info;
}

// ---- tests ---------------------------------------------------------------------------------------
static void what_is_put_is_got(void **state) {
    (void)state;
    const size_t sizes[] = {0, 1, 63, 4096, 100000, (3 << 20) + 7};
    for (int round = 0; round < 2; round++) { // the second by another opening
        hn_store *store = opened(1 << 30);
        for (size_t i = 0; i < HN_COUNT_OF(sizes); i++) {
            char text[32];
            snprintf(text, sizeof text, "blob %zu\nof two lines", i);
            assert_int_equal(has(store, text, sizes[i], (unsigned)i), round);
            if (!round) put(store, text, sizes[i], (unsigned)i);
            assert_int_equal(has(store, text, sizes[i], (unsigned)i), 1);
        }
        hn_store_info info = info_of(store);
        assert_int_equal(info.blobs, HN_COUNT_OF(sizes));
        assert_int_equal(info.blob_bytes, 104160 + (3 << 20) + 7);
        assert_true(info.writable && info.index_bytes > 0);
        hn_store_close(store);
    }
    assert_string_equal(g_log, "");
}

static void everything_in_the_key_counts(void **state) {
    (void)state;
    hn_store *store = opened(1 << 30);
    put(store, "x", 100, 1);
    hn_store_key keys[] = {{"test2", "lib 1", "avx2", 2, "x"},  {"test", "lib 2", "avx2", 2, "x"},
                           {"test", "lib 1", "avx512", 2, "x"}, {"test", "lib 1", "avx2", 3, "x"},
                           {"test", "lib 1", "avx2", 2, "y"},   {"test", "lib 1", "avx2", 2, "x\n"}};
    for (size_t i = 0; i < HN_COUNT_OF(keys); i++)
        assert_null(hn_store_get(store, &keys[i]));
    assert_int_equal(has(store, "x", 100, 1), 1);
    hn_store_close(store);
}

static void a_mapped_blob_outlives_its_file(void **state) {
    (void)state;
    hn_store *store = opened(1 << 30);
    put(store, "x", 100000, 1);
    hn_store_key key = key_of("x");
    hn_blob *blob = hn_store_get(store, &key), *again = hn_blob_ref(blob);
    int64_t blobs, bytes;
    assert_true(hn_store_clear(store, &blobs, &bytes));
    assert_int_equal(blobs, 1);
    assert_int_equal(bytes, 100000 + HN_BLOB_HEAD);
    hn_blob_unref(blob);
    unsigned char *data = content(100000, 1);
    assert_memory_equal(hn_blob_data(again), data, 100000);
    hn_free(data);
    hn_blob_unref(again);
    hn_blob_unref(NULL);
    assert_int_equal(has(store, "x", 100000, 1), 0);
    assert_int_equal(info_of(store).blobs, 0);
    hn_store_close(store);
}

static void damage(const char *path, off_t at, const char *bytes, size_t count) {
    assert_int_equal(chmod(path, 0600), 0);
    int fd = open(path, O_WRONLY);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, bytes, count, at), count);
    close(fd);
}

static void damaged_and_cut_files_are_dropped(void **state) {
    (void)state;
    char path[PATH_MAX];
    path_of("x", path);
    const off_t places[] = {0, 8, 16, 24, 40, 110, HN_BLOB_HEAD, HN_BLOB_HEAD + 70000, HN_BLOB_HEAD + 299999};
    for (size_t i = 0; i < HN_COUNT_OF(places); i++) {
        hn_store *store = opened(1 << 30);
        put(store, "x", 300000, 5);
        assert_int_equal(has(store, "x", 300000, 5), 1); // checked: and then it changes
        damage(path, places[i], "\xa5", 1);
        g_log[0] = '\0';
        assert_int_equal(has(store, "x", 300000, 5), 0);
        assert_non_null(strstr(g_log, "is damaged"));
        assert_int_equal(access(path, F_OK), -1);
        assert_int_equal(info_of(store).blobs, 0);
        put(store, "x", 300000, 5); // made again
        assert_int_equal(has(store, "x", 300000, 5), 1);
        hn_store_close(store);
    }
    const off_t cuts[] = {0, 100, HN_BLOB_HEAD - 1, HN_BLOB_HEAD, HN_BLOB_HEAD + 299999};
    for (size_t i = 0; i < HN_COUNT_OF(cuts); i++) {
        hn_store *store = opened(1 << 30);
        put(store, "x", 300000, 5);
        assert_int_equal(truncate(path, cuts[i]), 0);
        assert_int_equal(has(store, "x", 300000, 5), 0);
        assert_int_equal(access(path, F_OK), -1);
        hn_store_close(store);
    }
    // Another blob's file under this name; a folder; a link.
    char other[PATH_MAX], command[3 * PATH_MAX];
    hn_store *store = opened(1 << 30);
    put(store, "y", 300000, 6);
    path_of("y", other);
    snprintf(command, sizeof command, "cp %s %s", other, path);
    assert_int_equal(system(command), 0);
    assert_int_equal(has(store, "x", 300000, 5), 0);
    assert_int_equal(symlink(other, path), 0);
    assert_int_equal(has(store, "x", 300000, 5), 0);
    unlink(path);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(has(store, "x", 300000, 5), 0);
    assert_int_equal(has(store, "y", 300000, 6), 1);
    hn_store_close(store);
}

static void the_one_used_longest_ago_goes_first(void **state) {
    (void)state;
    hn_store *store = opened(1000000);
    char text[8], path[PATH_MAX];
    for (int i = 0; i < 9; i++) {
        snprintf(text, sizeof text, "b%d", i);
        put(store, text, 100000, (unsigned)i);
    }
    snprintf(path, sizeof path, "%s/v1/index.db", g_folder);
    sqlite3 *db; // ages: b0 was used last, b1 first
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    for (int i = 0; i < 9; i++) {
        char name[PATH_MAX], sql[256];
        snprintf(text, sizeof text, "b%d", i);
        path_of(text, name);
        snprintf(sql, sizeof sql, "UPDATE blob SET used = %d WHERE name = '%s'", i ? 1000 + i : 2000,
                 strrchr(name, '/') + 1);
        assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    }
    sqlite3_close(db);
    put(store, "new", 350000, 50);
    assert_int_equal(has(store, "b0", 100000, 0), 1);
    for (int i = 1; i < 9; i++) {
        snprintf(text, sizeof text, "b%d", i);
        assert_int_equal(has(store, text, 100000, (unsigned)i), i >= 4);
    }
    assert_int_equal(has(store, "new", 350000, 50), 1);
    assert_true(info_of(store).blob_bytes <= 1000000);
    hn_store_key key = key_of("huge");
    unsigned char *data = content(1000001, 1);
    assert_false(hn_store_put(store, &key, data, 1000001)); // more than all
    hn_free(data);
    assert_int_equal(has(store, "new", 350000, 50), 1);
    hn_store_close(store);
}

// A file that has its name but no row: what a kill between rename and row leaves.
static void files_without_rows_are_found_again(void **state) {
    (void)state;
    hn_store *store = opened(1 << 30);
    put(store, "x", 100000, 1);
    put(store, "y", 100000, 2);
    hn_store_close(store);
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/v1/index.db", g_folder);
    sqlite3 *db;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "DELETE FROM blob", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    store = opened(1 << 30);
    assert_int_equal(info_of(store).blobs, 0);
    assert_int_equal(has(store, "x", 100000, 1), 1);
    assert_int_equal(info_of(store).blobs, 1);
    path_of("x", path);
    unlink(path); // and a row without a file
    hn_store_check check;
    assert_true(hn_store_verify(store, &check));
    assert_int_equal(check.good, 1);
    assert_int_equal(check.found, 1);
    assert_int_equal(check.stale, 1);
    assert_int_equal(check.dropped, 0);
    path_of("y", path);
    damage(path, HN_BLOB_HEAD + 5, "zz", 2);
    assert_true(hn_store_verify(store, &check));
    assert_int_equal(check.dropped, 1);
    assert_int_equal(info_of(store).blobs, 0);
    hn_store_close(store);
}

static void a_broken_index_is_made_again(void **state) {
    (void)state;
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/v1/index.db", g_folder);
    hn_store *store = opened(1 << 30);
    put(store, "x", 100000, 1);
    hn_store_key key = key_of("r");
    assert_true(hn_store_set_record(store, &key, "{}"));
    hn_store_close(store);
    static const char *const harm[] = {
        "printf 'no database at all, but long enough to be looked at' > %s",
        "head -c 5000 /dev/urandom > %s", ": > %s", "truncate -s 9000 %s",
        "dd if=/dev/urandom of=%s bs=1 seek=4096 count=9000 conv=notrunc 2>/dev/null"};
    for (size_t i = 0; i < HN_COUNT_OF(harm); i++) {
        char command[2 * PATH_MAX];
        snprintf(command, sizeof command, harm[i], path);
        assert_int_equal(system(command), 0);
        store = opened(1 << 30);
        assert_int_equal(has(store, "x", 100000, 1), 1);
        (void)hn_store_set_record(store, &key, "{1}"); // may be what finds the damage
        hn_store_close(store);
        store = opened(1 << 30); // settled by now
        assert_int_equal(has(store, "x", 100000, 1), 1);
        assert_true(hn_store_set_record(store, &key, "{2}"));
        assert_int_equal(info_of(store).blobs, 1);
        hn_store_close(store);
    }
    for (int version = 0; version <= 99; version += 99) { // tables or number of another version
        sqlite3 *db;
        char sql[128];
        assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
        snprintf(sql, sizeof sql, "DROP TABLE blob; CREATE TABLE blob(a); PRAGMA user_version = %d",
                 version ? version : HN_STORE_VERSION);
        assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
        sqlite3_close(db);
        g_log[0] = '\0';
        store = opened(1 << 30);
        assert_int_equal(has(store, "x", 100000, 1), 1);
        assert_non_null(strstr(g_log, "broken or of another version"));
        put(store, "y", 1000, 2);
        assert_int_equal(info_of(store).blobs, 2);
        hn_store_close(store);
    }
}

static void folders_that_cannot_be_used_are_no_error(void **state) {
    (void)state;
    assert_null(hn_store_open("off", 1));
    assert_string_equal(g_log, "");
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/file", g_folder);
    close(open(path, O_CREAT | O_WRONLY, 0600));
    assert_null(hn_store_open(path, 1));
    assert_non_null(strstr(g_log, "cannot be used"));
    assert_null(hn_store_open("/proc/hone", 1));
    // A folder without the right to write: read by somebody who is not root.
    hn_store *store = opened(1 << 30);
    put(store, "x", 100000, 1);
    hn_store_close(store);
    char command[512];
    snprintf(command, sizeof command, "chmod 755 %s; chmod -R a+rX,a-w %s", g_folder, g_folder);
    assert_int_equal(system(command), 0);
    pid_t child = fork();
    if (child == 0) {
        if (getuid() == 0 && setresuid(65534, 65534, 65534) != 0) _exit(3);
        g_log[0] = '\0';
        hn_store *mine = hn_store_open(g_folder, 1 << 30);
        if (!mine) _exit(4);
        hn_store_key key = key_of("x"), other = key_of("z");
        hn_blob *blob = hn_store_get(mine, &key);
        unsigned char *data = content(100000, 1);
        if (!blob || memcmp(hn_blob_data(blob), data, 100000)) _exit(5);
        if (hn_store_put(mine, &other, data, 100)) _exit(6);
        if (hn_store_set_record(mine, &key, "x")) _exit(7);
        hn_store_info info;
        hn_store_get_info(mine, &info);
        if (info.writable) _exit(8);
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void a_full_disk_is_no_error(void **state) {
    (void)state;
    hn_store *store = opened(1 << 30);
    put(store, "x", 1000, 1);
    pid_t child = fork();
    if (child == 0) { // a limit on the size of files stands for the disk
        signal(SIGXFSZ, SIG_IGN);
        struct rlimit limit = {200000, 200000};
        setrlimit(RLIMIT_FSIZE, &limit);
        hn_store *mine = hn_store_open(g_folder, 1 << 30);
        hn_store_key key = key_of("big");
        unsigned char *data = content(1000000, 1);
        g_log[0] = '\0';
        if (hn_store_put(mine, &key, data, 1000000)) _exit(3);
        if (hn_store_put(mine, &key, data, 1000000)) _exit(4);
        char *first = strstr(g_log, "works without");
        if (!first || strstr(first + 1, "works without")) _exit(5); // one line
        key = key_of("x");
        hn_blob *blob = hn_store_get(mine, &key);
        _exit(blob ? 0 : 6);
    }
    int status;
    waitpid(child, &status, 0);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_int_equal(has(store, "big", 1000000, 1), 0);
    put(store, "big", 1000000, 1);
    hn_store_close(store);
}

// Children put, get, record and trim at once; then some are killed in the middle.
static int busy_child(int seed, int rounds) {
    hn_store *store = hn_store_open(g_folder, 3000000);
    if (!store) return 3;
    for (int i = 0; rounds < 0 || i < rounds; i++) {
        char text[32];
        int which = (i * 7 + seed * 3) % 20;
        size_t bytes = 100000 + 20000 * (size_t)which;
        snprintf(text, sizeof text, "k%d", which);
        hn_store_key key = key_of(text);
        hn_blob *blob = hn_store_get(store, &key);
        unsigned char *data = content(bytes, (unsigned)which);
        if (blob && (hn_blob_bytes(blob) != bytes || memcmp(hn_blob_data(blob), data, bytes))) return 4;
        hn_blob_unref(blob);
        if (!blob && !hn_store_put(store, &key, data, bytes)) return 5;
        hn_free(data);
        if (!hn_store_set_record(store, &key, text)) return 6;
        hn_str back = {0};
        if (!hn_store_record(store, &key, &back) || strcmp(back.data, text)) return 7;
        hn_str_free(&back);
    }
    hn_store_close(store);
    return 0;
}

static void processes_share_a_folder(void **state) {
    (void)state;
    pid_t child[4];
    for (int i = 0; i < 4; i++) {
        child[i] = fork();
        if (child[i] == 0) _exit(busy_child(i, 60));
    }
    for (int i = 0; i < 4; i++) {
        int status;
        waitpid(child[i], &status, 0);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
    hn_store *store = opened(3000000);
    hn_store_check check;
    assert_true(hn_store_verify(store, &check));
    assert_int_equal(check.dropped, 0);
    assert_true(check.good > 0 && info_of(store).blob_bytes <= 3000000 + 4 * 500000);
    hn_store_close(store);
}

static void a_kill_at_any_time_leaves_a_usable_store(void **state) {
    (void)state;
    for (int round = 0; round < 40; round++) {
        pid_t child = fork();
        if (child == 0) _exit(busy_child(round, -1));
        hn_sleep_ns(1000000 * (int64_t)(5 + round * 3));
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        hn_store *store = opened(3000000);
        for (int which = 0; which < 20; which++) {
            char text[32];
            snprintf(text, sizeof text, "k%d", which);
            (void)has(store, text, 100000 + 20000 * (size_t)which, (unsigned)which);
        }
        put(store, "after", 1000, (unsigned)round * 0);
        assert_int_equal(has(store, "after", 1000, 0), 1);
        hn_store_close(store);
    }
    assert_null(strstr(g_log, "damaged"));
    assert_null(strstr(g_log, "broken"));
    // What writers left half written goes when it is old.
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/v1/blobs/.hone-abcdef", g_folder);
    close(open(path, O_CREAT | O_WRONLY, 0600));
    struct timespec old[2] = {{1000, 0}, {1000, 0}};
    assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0);
    hn_store *store = opened(3000000);
    put(store, "sweeps", 1000, 3);
    assert_int_equal(access(path, F_OK), -1);
    hn_store_close(store);
}

static void contents_are_known_by_their_file(void **state) {
    (void)state;
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/weights", g_folder);
    unsigned char *data = content(300000, 9);
    assert_int_equal(hn_file_write(NULL, path, data, 300000), HONE_OK);
    hn_store *store = opened(1 << 30);
    hn_map map;
    hn_digest got, digest = hn_digest_bytes(hn_store_digest_key(store), data, 300000);
    assert_int_equal(hn_map_open(NULL, path, &map), HONE_OK);
    hn_store_set_content(store, map.data, 300000, digest);
    assert_false(hn_store_content(store, map.data, 300000, &got)); // too young to be trusted
    hn_map_close(&map);
    hn_sleep_ns(2100000000);
    assert_int_equal(hn_map_open(NULL, path, &map), HONE_OK);
    assert_false(hn_store_content(store, map.data, 300000, &got));
    hn_store_set_content(store, map.data, 300000, digest);
    assert_true(hn_store_content(store, map.data, 300000, &got));
    assert_true(hn_digest_equal(got, digest));
    assert_false(hn_store_content(store, map.data + 64, 299936, &got));
    assert_false(hn_store_content(store, data, 300000, &got)); // in no file
    hn_map_close(&map);
    hn_store_close(store);
    store = opened(1 << 30); // another process
    assert_int_equal(hn_map_open(NULL, path, &map), HONE_OK);
    assert_true(hn_store_content(store, map.data, 300000, &got));
    hn_map_close(&map);
    // Changed behind the stamps' back: the file's row is made to fit the new stamps.
    struct stat before, after;
    assert_int_equal(stat(path, &before), 0);
    memset(data, 7, 300000);
    damage(path, 0, (const char *)data, 300000);
    assert_int_equal(stat(path, &after), 0);
    char index[PATH_MAX], sql[512];
    snprintf(index, sizeof index, "%s/v1/index.db", g_folder);
    hn_sleep_ns(2100000000);
    assert_int_equal(hn_map_open(NULL, path, &map), HONE_OK);
    assert_false(hn_store_content(store, map.data, 300000, &got));
    sqlite3 *db;
    assert_int_equal(sqlite3_open(index, &db), SQLITE_OK);
    snprintf(sql, sizeof sql, "UPDATE content SET stamp = '%lld %lld%09ld %lld%09ld'", (long long)after.st_size,
             (long long)after.st_mtim.tv_sec, after.st_mtim.tv_nsec, (long long)after.st_ctim.tv_sec,
             after.st_ctim.tv_nsec);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    assert_false(hn_store_content(store, map.data, 300000, &got)); // its sample differs
    hn_map_close(&map);
    hn_store_close(store);
    hn_free(data);
}

static void count_item(void *user, const hn_store_item *item) {
    int *count = user;
    assert_string_equal(item->kind, "test");
    assert_string_equal(item->library, "lib 1");
    assert_string_equal(item->isa, "avx2");
    assert_int_equal(item->threads, 2);
    assert_true(item->made_s > 1600000000 && item->used_s >= item->made_s);
    assert_true(!strcmp(item->text, "x") || !strcmp(item->text, "y\nline"));
    (*count)++;
}

static void failing_allocations_do_no_harm(void **state) {
    (void)state;
    for (uint64_t nth = 1; nth < 60; nth++) {
        hn_alloc_fail_nth(nth);
        hn_store *store = hn_store_open(g_folder, 1 << 30);
        hn_store_key key = key_of("x");
        unsigned char data[1000];
        memset(data, 3, sizeof data);
        bool done = store && hn_store_put(store, &key, data, sizeof data);
        hn_blob *blob = store ? hn_store_get(store, &key) : NULL;
        hn_alloc_fail_nth(0);
        if (blob) assert_memory_equal(hn_blob_data(blob), data, sizeof data);
        (void)done;
        hn_blob_unref(blob);
        hn_store_close(store);
    }
    hn_store *store = opened(1 << 30);
    put(store, "x", 100, 1);
    hn_store_close(store);
}

static void listing_tells_the_key(void **state) {
    (void)state;
    hn_store *store = opened(1 << 30);
    put(store, "x", 100, 1);
    put(store, "y\nline", 200, 2);
    int count = 0;
    hn_store_list(store, count_item, &count);
    assert_int_equal(count, 2);
    hn_store_close(store);
}

int main(void) {
    hn_log_set_sink(sink, NULL, HN_LOG_DEBUG);
#define TEST(name) cmocka_unit_test_setup_teardown(name, fresh, gone)
    const struct CMUnitTest tests[] = {
        TEST(what_is_put_is_got),
        TEST(everything_in_the_key_counts),
        TEST(a_mapped_blob_outlives_its_file),
        TEST(damaged_and_cut_files_are_dropped),
        TEST(the_one_used_longest_ago_goes_first),
        TEST(files_without_rows_are_found_again),
        TEST(a_broken_index_is_made_again),
        TEST(folders_that_cannot_be_used_are_no_error),
        TEST(a_full_disk_is_no_error),
        TEST(processes_share_a_folder),
        TEST(a_kill_at_any_time_leaves_a_usable_store),
        TEST(contents_are_known_by_their_file),
        TEST(failing_allocations_do_no_harm),
        TEST(listing_tells_the_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
