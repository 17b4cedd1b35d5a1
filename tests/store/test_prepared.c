// SPDX-License-Identifier: Apache-2.0
// The registry of prepared forms: one form for one key, references, threads, failures, homes; the
// digest and the list of mappings that its keys are made of.
#include <pthread.h>
#include <stdatomic.h>
#include <sqlite3.h>
#include <sys/wait.h>
#include <unistd.h>
#include "store/keeper.h"
#include "store/prepared.h"
#include "support/test.h"

static atomic_int g_makes;

static hone_status copy_doubled(hone_error *err, void *user, void *out) {
    (void)err;
    const unsigned char *in = *(const unsigned char **)user;
    for (int i = 0; i < 256; i++)
        ((unsigned char *)out)[i] = (unsigned char)(2 * in[i]);
    atomic_fetch_add(&g_makes, 1);
    return HONE_OK;
}

static hone_status refuse(hone_error *err, void *user, void *out) {
    (void)user;
    (void)out;
    HN_FAIL(err, HONE_ERR_UNSUPPORTED, "this form cannot be made");
}

static hn_prepared_ask ask_for(const unsigned char **content) {
    return (hn_prepared_ask){.kind = "test",
                             .library = "lib 1",
                             .isa = "avx2",
                             .threads = 2,
                             .form = "doubled",
                             .source = {{*content, 256, false}},
                             .bytes = 300,
                             .make = copy_doubled,
                             .user = (void *)content};
}

static hn_prepared *get(const hn_prepared_ask *ask) {
    hone_error err = {0};
    hn_prepared *p = NULL;
    if (hn_prepared_get(&err, ask, &p) != HONE_OK) fail_msg("%s", err.text);
    assert_int_equal((uintptr_t)hn_prepared_data(p) % HN_ALIGN, 0);
    return p;
}

static size_t alive(void) {
    hn_prepared_stats stats;
    hn_prepared_get_stats(&stats);
    assert_true((stats.forms == 0) == (stats.bytes == 0));
    return stats.forms;
}

static void equal_content_is_made_once(void **state) {
    (void)state;
    unsigned char a[256], b[256];
    for (int i = 0; i < 256; i++)
        a[i] = b[i] = (unsigned char)(i * 7);
    const unsigned char *pa = a, *pb = b;
    hn_prepared_ask first = ask_for(&pa), second = ask_for(&pb);
    g_makes = 0;
    hn_prepared *x = get(&first), *y = get(&second);
    assert_ptr_equal(x, y);
    assert_int_equal(g_makes, 1);
    assert_int_equal(alive(), 1);
    assert_int_equal(hn_prepared_bytes(x), 300);
    const unsigned char *out = hn_prepared_data(x);
    for (int i = 0; i < 256; i++)
        assert_int_equal(out[i], (unsigned char)(2 * a[i]));
    for (int i = 256; i < 300; i++)
        assert_int_equal(out[i], 0);
    hn_prepared_release(x);
    assert_int_equal(alive(), 1);
    hn_prepared_release(y);
    assert_int_equal(alive(), 0);
    hn_prepared_release(get(&first)); // gone means made again
    assert_int_equal(g_makes, 2);
    first.apart = true;
    x = get(&first);
    y = get(&first);
    assert_ptr_not_equal(x, y);
    assert_int_equal(g_makes, 4);
    hn_prepared_release(x);
    hn_prepared_release(y);
    hn_prepared_release(NULL);
}

static void whatever_the_bytes_depend_on_is_in_the_key(void **state) {
    (void)state;
    unsigned char a[256] = {1}, b[256] = {2};
    const unsigned char *pa = a, *pb = b;
    hn_prepared_ask base = ask_for(&pa), other[7];
    for (size_t i = 0; i < HN_COUNT_OF(other); i++)
        other[i] = base;
    other[0].kind = "test2";
    other[1].library = "lib 2";
    other[2].isa = "avx512";
    other[3].threads = 3;
    other[4].form = "doubled ";
    other[5] = ask_for(&pb);
    other[6].bytes = 301;
    hn_prepared *x = get(&base), *y[7];
    for (size_t i = 0; i < HN_COUNT_OF(other); i++) {
        y[i] = get(&other[i]);
        assert_ptr_not_equal(x, y[i]);
    }
    assert_int_equal(alive(), 8);
    for (size_t i = 0; i < HN_COUNT_OF(other); i++)
        hn_prepared_release(y[i]);
    hn_prepared_release(x);
    assert_int_equal(alive(), 0);
}

static void a_form_that_fails_is_not_kept(void **state) {
    (void)state;
    unsigned char a[256] = {3};
    const unsigned char *pa = a;
    hn_prepared_ask ask = ask_for(&pa);
    ask.make = refuse;
    hone_error err = {0};
    hn_prepared *p = NULL;
    assert_int_equal(hn_prepared_get(&err, &ask, &p), HONE_ERR_UNSUPPORTED);
    assert_string_equal(err.text, "this form cannot be made");
    assert_null(p);
    ask.make = copy_doubled;
    hn_prepared_release(get(&ask));
    for (uint64_t nth = 1; nth < 20; nth++) {
        hn_alloc_fail_nth(nth);
        hone_status status = hn_prepared_get(&err, &ask, &p);
        hn_alloc_fail_nth(0);
        assert_true(status == HONE_OK || status == HONE_ERR_NOMEM);
        if (status == HONE_OK) hn_prepared_release(p);
        assert_int_equal(alive(), 0);
    }
}

typedef struct racer {
    pthread_t thread;
    const hn_prepared_ask *ask;
    hn_prepared *got;
} racer;

static hone_status slow(hone_error *err, void *user, void *out) {
    hn_sleep_ns(20000000);
    return copy_doubled(err, user, out);
}
static void *race(void *arg) {
    racer *r = arg;
    if (hn_prepared_get(NULL, r->ask, &r->got) != HONE_OK) r->got = NULL;
    return NULL;
}

static void threads_share_one_making(void **state) {
    (void)state;
    unsigned char a[256] = {4};
    const unsigned char *pa = a;
    hn_prepared_ask ask = ask_for(&pa);
    ask.make = slow;
    racer racers[8];
    g_makes = 0;
    for (int i = 0; i < 8; i++) {
        racers[i] = (racer){.ask = &ask};
        assert_int_equal(pthread_create(&racers[i].thread, NULL, race, &racers[i]), 0);
    }
    for (int i = 0; i < 8; i++)
        pthread_join(racers[i].thread, NULL);
    assert_int_equal(g_makes, 1);
    for (int i = 0; i < 8; i++) {
        assert_non_null(racers[i].got);
        assert_ptr_equal(racers[i].got, racers[0].got);
        hn_prepared_release(racers[i].got);
    }
    assert_int_equal(alive(), 0);
    ask.make = refuse; // everybody is told
    for (int i = 0; i < 8; i++) {
        racers[i] = (racer){.ask = &ask};
        assert_int_equal(pthread_create(&racers[i].thread, NULL, race, &racers[i]), 0);
    }
    for (int i = 0; i < 8; i++) {
        pthread_join(racers[i].thread, NULL);
        assert_null(racers[i].got);
    }
}

typedef struct card {
    int homes;
    unsigned char memory[300];
} card;
static hone_status adopt(hone_error *err, void *owner, const void *data, size_t bytes,
                         void **out_home) {
    (void)err;
    card *c = owner;
    memcpy(c->memory, data, bytes);
    c->homes++;
    *out_home = c->memory;
    return HONE_OK;
}
static hone_status adopt_head(hone_error *err, void *owner, const void *data, size_t bytes, void **out_home) {
    return adopt(err, owner, data, bytes < 300 ? bytes : 300, out_home);
}
static void disown(void *owner, void *home) {
    card *c = owner;
    assert_ptr_equal(home, c->memory);
    c->homes--;
}

static void a_backend_may_bring_forms_home(void **state) {
    (void)state;
    unsigned char a[256] = {5};
    const unsigned char *pa = a;
    card c = {0};
    hn_prepared_ask ask = ask_for(&pa);
    ask.adopt = adopt;
    ask.disown = disown;
    ask.owner = &c;
    hn_prepared *x, *y;
    assert_int_equal(hn_prepared_get(NULL, &ask, &x), HONE_OK);
    assert_int_equal(hn_prepared_get(NULL, &ask, &y), HONE_OK);
    assert_ptr_equal(x, y);
    assert_int_equal(c.homes, 1);
    assert_int_equal(c.memory[0], 10);
    assert_ptr_equal(hn_prepared_home(x), c.memory);
    assert_null(hn_prepared_data(x)); // the host's copy is gone
    hn_prepared_release(x);
    assert_int_equal(c.homes, 1);
    hn_prepared_release(y);
    assert_int_equal(c.homes, 0);
}

// Large forms: made once, put into the store, found there by later asks; also by a card.
static void large_forms_are_kept_and_found(void **state) {
    (void)state;
    unsigned char a[256] = {6};
    const unsigned char *pa = a;
    hn_prepared_ask ask = ask_for(&pa);
    ask.bytes = (size_t)1 << 20;
    hn_prepared_stats before, after;
    hn_prepared_get_stats(&before);
    hn_prepared *x = get(&ask);
    hn_prepared_release(x); // the keeper has it still
    hn_keeper_wait();
    assert_int_equal(alive(), 0);
    x = get(&ask);
    hn_prepared_get_stats(&after);
    assert_int_equal(after.made, before.made + 1);
    assert_int_equal(after.mapped, before.mapped + 1);
    assert_int_equal(((const unsigned char *)hn_prepared_data(x))[0], 12);
    assert_int_equal(((const unsigned char *)hn_prepared_data(x))[ask.bytes - 1], 0);
    hn_prepared_release(x);
    ask.apart = true; // measures what making costs: neither found nor kept
    hn_prepared_release(get(&ask));
    hn_prepared_get_stats(&after);
    assert_int_equal(after.made, before.made + 2);
    ask.apart = false;
    ask.threads++; // another key, brought to a card while it is being kept
    card c = {0};
    ask.adopt = adopt_head;
    ask.disown = disown;
    ask.owner = &c;
    for (int round = 0; round < 2; round++) {
        assert_int_equal(hn_prepared_get(NULL, &ask, &x), HONE_OK);
        assert_null(hn_prepared_data(x));
        assert_int_equal(c.memory[0], 12);
        hn_keeper_wait();
        hn_prepared_release(x);
        assert_int_equal(c.homes, 0);
    }
    hn_prepared_get_stats(&after);
    assert_int_equal(after.made, before.made + 3);
    assert_int_equal(after.mapped, before.mapped + 2);
    assert_int_equal(alive(), 0);
}

// ---- what keys are made of
// -----------------------------------------------------------------------
static void the_digest_sees_every_byte(void **state) {
    (void)state;
    hn_digest_key key, second;
    unsigned char secret[32] = {7};
    hn_digest_key_from(secret, &key);
    secret[31] = 1;
    hn_digest_key_from(secret, &second);
    unsigned char data[300] = {0};
    hn_digest seen[900];
    size_t count = 0;
    for (size_t bytes = 0; bytes <= 300; bytes++) // lengths of zeros differ
        seen[count++] = hn_digest_bytes(&key, data, bytes);
    for (size_t i = 0; i < 300; i++) {
        data[i] = 1;
        seen[count++] = hn_digest_bytes(&key, data, 300);
        data[i] = 0x80;
        if (i < 290) seen[count++] = hn_digest_bytes(&key, data, 300);
        data[i] = 0;
    }
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < i; k++)
            assert_false(hn_digest_equal(seen[i], seen[k]));
    assert_false(hn_digest_equal(seen[300], hn_digest_bytes(&second, data, 300)));
    assert_true(hn_digest_equal(seen[300], hn_digest_bytes(&key, data, 300)));
}

static void chunks_give_the_same_digest_for_any_thread_count(void **state) {
    (void)state;
    hn_digest_key key;
    unsigned char secret[32] = {9};
    hn_digest_key_from(secret, &key);
    size_t bytes = ((size_t)5 << 20) + 13;
    unsigned char *data = hn_malloc(bytes);
    for (size_t i = 0; i < bytes; i++)
        data[i] = (unsigned char)(i * 2654435761u >> 13);
    hn_digest one, all, flipped;
    int threads = hn_parallel_threads();
    hn_parallel_set_threads(1);
    assert_int_equal(hn_prepared_digest(NULL, &key, data, bytes, false, &one), HONE_OK);
    hn_parallel_set_threads(threads);
    assert_int_equal(hn_prepared_digest(NULL, &key, data, bytes, false, &all), HONE_OK);
    assert_true(hn_digest_equal(one, all));
    data[bytes - 1] ^= 1;
    assert_int_equal(hn_prepared_digest(NULL, &key, data, bytes, false, &flipped), HONE_OK);
    assert_false(hn_digest_equal(one, flipped));
    hn_free(data);
}

static void mapped_content_is_known_by_its_file(void **state) {
    (void)state;
    char path[] = "/tmp/hone-prepared-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    unsigned char content[8192];
    for (size_t i = 0; i < sizeof content; i++)
        content[i] = (unsigned char)(i * 31);
    assert_int_equal(write(fd, content, sizeof content), sizeof content);
    close(fd);
    hn_map a, b, fresh;
    hn_map_id ia, ib;
    const unsigned char *pf;
    assert_int_equal(hn_map_open(NULL, path, &fresh), HONE_OK); // may still change unseen
    hn_sleep_ns(2100000000);
    assert_int_equal(hn_map_open(NULL, path, &a), HONE_OK);
    assert_int_equal(hn_map_open(NULL, path, &b), HONE_OK);
    assert_true(hn_map_find(a.data + 100, 256, &ia));
    assert_true(hn_map_find(b.data + 100, 256, &ib));
    assert_int_equal(ia.offset_bytes, 100);
    assert_true(ia.inode == ib.inode && ia.serial != ib.serial);
    assert_false(hn_map_find(a.data + 8000, 256, &ia)); // reaches beyond the end
    assert_false(hn_map_find(content, 256, &ia));
    const unsigned char *pa = a.data + 256, *pb = b.data + 256, *pc = a.data + 512;
    hn_prepared_ask first = ask_for(&pa), second = ask_for(&pb), elsewhere = ask_for(&pc);
    first.source[0].give_back = true;
    pf = fresh.data + 256;
    hn_prepared_ask unsettled = ask_for(&pf);
    hn_prepared *x = get(&first), *y = get(&second), *z = get(&elsewhere), *f = get(&unsettled);
    assert_ptr_not_equal(x, f);
    hn_prepared_release(f);
    hn_map_close(&fresh);
    assert_ptr_equal(x, y);
    assert_ptr_not_equal(x, z);
    assert_memory_equal(a.data, content, sizeof content); // pages that went come back
    hn_prepared_release(x);
    hn_prepared_release(y);
    hn_prepared_release(z);
    hn_map_close(&a);
    assert_false(hn_map_find(pa, 256, &ia));
    hn_map_close(&b);
    unlink(path);
}

static void large_blocks_are_zero_and_aligned(void **state) {
    (void)state;
    const size_t sizes[] = {1, 4096, 4097, (2 << 20) - 1, 2 << 20, (7 << 20) + 5};
    for (size_t i = 0; i < HN_COUNT_OF(sizes); i++) {
        unsigned char *pages = hn_pages_new(sizes[i]);
        assert_non_null(pages);
        assert_int_equal((uintptr_t)pages % 4096, 0);
        for (size_t k = 0; k < sizes[i]; k += 511)
            assert_int_equal(pages[k], 0);
        memset(pages, 1, sizes[i]);
        hn_pages_free(pages, sizes[i]);
    }
    hn_pages_free(NULL, 5);
    assert_null(hn_pages_new(SIZE_MAX - 5));
}

static void sets_count_once(void **state) {
    (void)state;
    hn_prepared_set set = {0};
    static char blocks[1000][64];
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < 1000; i++)
            assert_int_equal(hn_prepared_set_add(&set, (const hn_prepared *)(void *)blocks[i]),
                             round == 0);
    assert_int_equal(set.count, 1000);
    hn_prepared_set_free(&set);
}

static bool child_ends_well(void (*fn)(const hn_prepared_ask *ask), const hn_prepared_ask *ask) {
    pid_t child = fork();
    if (child == 0) {
        alarm(20); // a child that hangs is ended by it
        fn(ask);
        _exit(hn_store_default() ? 3 : 0);
    }
    int status = -1;
    return waitpid(child, &status, 0) == child && status == 0;
}

static void make_in_child(const hn_prepared_ask *ask) {
    hone_error err = {0};
    hn_prepared *p = NULL;
    if (hn_prepared_get(&err, ask, &p) != HONE_OK) _exit(2);
    hn_prepared_release(p);
    hn_keeper_wait();
}

// The keeper stands inside the store, held up by another process's transaction, when the program forks.
static void a_child_forked_amid_keeping_works_on(void **state) {
    (void)state;
    static unsigned char a[256], b[256];
    const unsigned char *pa = a, *pb = b;
    hn_prepared_ask first = ask_for(&pa), second = ask_for(&pb);
    first.form = "before the fork", second.form = "in the child";
    first.bytes = second.bytes = (size_t)1 << 20;
    hn_store_info info, after;
    hn_store *store = hn_store_default();
    assert_non_null(store);
    hn_store_get_info(store, &info);
    char path[PATH_MAX + 16];
    snprintf(path, sizeof path, "%s/index.db", info.path);
    sqlite3 *db = NULL;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    hn_prepared_release(get(&first));
    usleep(900000); // it begins after half a second
    bool well = child_ends_well(make_in_child, &second);
    assert_int_equal(sqlite3_exec(db, "COMMIT", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    assert_true(well);
    hn_keeper_wait();
    hn_store_get_info(store, &after);
    assert_int_equal(after.blobs, info.blobs + 1); // the parent's goes on as before
    hn_prepared_release(get(&second));
    hn_keeper_wait();
}

int main(void) {
    char folder[] = "/tmp/hone-prepared-XXXXXX", command[64];
    if (!mkdtemp(folder) || setenv("HONE_STORE", folder, 1) != 0) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_content_is_made_once),
        cmocka_unit_test(whatever_the_bytes_depend_on_is_in_the_key),
        cmocka_unit_test(a_form_that_fails_is_not_kept),
        cmocka_unit_test(threads_share_one_making),
        cmocka_unit_test(a_backend_may_bring_forms_home),
        cmocka_unit_test(large_forms_are_kept_and_found),
        cmocka_unit_test(the_digest_sees_every_byte),
        cmocka_unit_test(chunks_give_the_same_digest_for_any_thread_count),
        cmocka_unit_test(mapped_content_is_known_by_its_file),
        cmocka_unit_test(large_blocks_are_zero_and_aligned),
        cmocka_unit_test(sets_count_once),
        cmocka_unit_test(a_child_forked_amid_keeping_works_on),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command) == 0 ? failed : 1;
}
