// SPDX-License-Identifier: Apache-2.0
// hone store: what the store keeps between runs; checking and clearing it.
#include "cli/load.h"
#include "store/store.h"
#include <jansson.h>
#include <stdio.h>
#include <time.h>

typedef struct lister {
    json_t *items; // NULL: a table
    int64_t count;
} lister;

static void list_item(void *user, const hn_store_item *item) {
    lister *l = user;
    char bytes[32], used[32];
    time_t time = (time_t)item->used_s;
    struct tm local;
    strftime(used, sizeof used, "%Y-%m-%d %H:%M", localtime_r(&time, &local));
    l->count++;
    if (l->items) {
        json_array_append_new(
            l->items, json_pack("{s:s,s:s,s:s,s:s,s:i,s:I,s:I,s:I,s:s}", "name", item->name, "kind", item->kind,
                                "library", item->library, "isa", item->isa, "threads", item->threads, "bytes",
                                (json_int_t)item->bytes, "made_s", (json_int_t)item->made_s, "used_s",
                                (json_int_t)item->used_s, "key", item->text));
        return;
    }
    if (l->count == 1)
        hn_cli_printf("%-12s  %-14s  %-14s  %-8s %12s  %s\n", "name", "kind", "library", "isa", "size", "last used");
    hn_cli_printf("%-12.12s  %-14.14s  %-14.14s  %-8.8s %12s  %s\n", item->name, item->kind, item->library, item->isa,
           hn_cli_bytes(bytes, sizeof bytes, (double)item->bytes), used);
}

static hn_status list(hone_error *err, hn_store *store, bool as_json) {
    lister l = {as_json ? json_array() : NULL, 0};
    if (as_json && !l.items) HN_NOMEM(err, "listing the store");
    hn_store_list(store, list_item, &l);
    if (as_json) return hn_cli_json(err, l.items);
    if (!l.count) hn_cli_printf("nothing is kept\n");
    return HONE_OK;
}

static hn_status stat_store(hone_error *err, hn_store *store, bool as_json) {
    hn_store_info info;
    char a[32], b[32], c[32];
    hn_store_get_info(store, &info);
    if (as_json) {
        json_t *root =
            json_pack("{s:s,s:b,s:I,s:I,s:I,s:I,s:I,s:I}", "path", info.path, "writable", info.writable, "blobs",
                      (json_int_t)info.blobs, "blob_bytes", (json_int_t)info.blob_bytes, "limit_bytes",
                      (json_int_t)info.limit_bytes, "records", (json_int_t)info.records, "contents",
                      (json_int_t)info.contents, "index_bytes", (json_int_t)info.index_bytes);
        if (!root) HN_FAIL(err, HONE_ERR_INTERNAL, "the store's path is no UTF-8 text");
        return hn_cli_json(err, root);
    }
    hn_cli_printf("path      %s%s\n", info.path, info.writable ? "" : " (read only)");
    hn_cli_printf("blobs     %lld, %s of at most %s\n", (long long)info.blobs,
           hn_cli_bytes(a, sizeof a, (double)info.blob_bytes), hn_cli_bytes(b, sizeof b, (double)info.limit_bytes));
    hn_cli_printf("records   %lld\n", (long long)info.records);
    hn_cli_printf("index     %s, %lld known contents of files\n", hn_cli_bytes(c, sizeof c, (double)info.index_bytes),
           (long long)info.contents);
    return HONE_OK;
}

static hn_status verify(hone_error *err, hn_store *store, bool as_json) {
    hn_store_check check;
    if (!hn_store_verify(store, &check))
        HN_FAIL(err, HONE_ERR_IO, "the store cannot be verified: it is read only or cannot be read");
    if (as_json)
        hn_cli_printf("{\"good\": %lld, \"dropped\": %lld, \"found\": %lld, \"stale\": %lld}\n", (long long)check.good,
               (long long)check.dropped, (long long)check.found, (long long)check.stale);
    else
        hn_cli_printf("%lld good, %lld damaged and dropped, %lld files had no row, %lld rows had no file\n",
               (long long)check.good, (long long)check.dropped, (long long)check.found, (long long)check.stale);
    return check.dropped ? HONE_ERR_CHECK : HONE_OK;
}

static hn_status clear(hone_error *err, hn_store *store, bool as_json) {
    int64_t blobs, bytes;
    char text[32];
    if (!hn_store_clear(store, &blobs, &bytes))
        HN_FAIL(err, HONE_ERR_IO, "the store cannot be cleared: it is read only or in use");
    if (as_json) hn_cli_printf("{\"blobs\": %lld, \"bytes\": %lld}\n", (long long)blobs, (long long)bytes);
    else hn_cli_printf("%lld blobs removed, %s\n", (long long)blobs, hn_cli_bytes(text, sizeof text, (double)bytes));
    return HONE_OK;
}

hone_status hn_cmd_store(hone_error *err, int argc, char **argv, int *out_exit) {
    static const struct action {
        const char *name;
        hone_status (*run)(hone_error *err, hn_store *store, bool as_json);
    } k_actions[] = {{"stat", stat_store}, {"list", list}, {"verify", verify}, {"clear", clear}};
    bool as_json = false;
    const hn_option options[] = {
        {"json", NULL, HN_OPT_FLAG, &as_json, "print JSON"},
    };
    const char *name = "stat";
    int count;
    (void)out_exit;
    HN_TRY(hn_cli_parse(err, argc, argv, options, HN_COUNT_OF(options), &name, 1, &count));
    for (size_t i = 0; i < HN_COUNT_OF(k_actions); i++) {
        if (strcmp(k_actions[i].name, name) != 0) continue;
        hn_store *store = hn_store_default();
        if (!store)
            HN_FAIL(err, HONE_ERR_UNSUPPORTED,
                    "there is no store: it is off, or its folder cannot be used (setting store)");
        return k_actions[i].run(err, store, as_json);
    }
    HN_FAIL(err, HONE_ERR_USAGE, "store: '%s' is none of stat, list, verify, clear", name);
}
