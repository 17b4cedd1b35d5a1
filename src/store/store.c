// SPDX-License-Identifier: Apache-2.0
// The store: see store.h.
//
// <folder>/v1/index.db, secret, lock, blobs/<name>. The lock guards the index's connection and the
// fields below it; files are written and read outside of it. A folder of another version is another
// folder; an index that does not answer as this version's would is made again, under a file lock,
// from the heads of the blobs.
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include "config/config.h"
#include "store/store_int.h"

#define STALE_TEMPORARY_S 600 // no writer takes so long
#define USED_STEP_S 3600      // times of use are not noted more often
#define MAX_ROWS 100000       // of records, and of contents
#define SAMPLES 16

struct hn_store {
    pthread_mutex_t lock;
    char path[PATH_MAX - 320]; // of this version's folder
    hn_index *index;           // NULL: files alone
    bool writable;
    bool said;                 // what is wrong has been logged
    bool rebuilt, swept;
    ino_t inode;               // of the index that was opened last
    int64_t limit_bytes;
    hn_digest_key key;
    char boot[40];             // id of the machine's start
    uint64_t writes;
};

static int64_t now_s(void) { return hn_clock_wall_ns() / 1000000000; }

static void say(hn_store *store, const char *what) {
    if (store->said) return;
    store->said = true;
    hn_log(HN_LOG_WARN, "the store in '%s' %s; this works without it", store->path, what);
}

static void blob_path(const hn_store *store, const char *name, char out[PATH_MAX]) {
    snprintf(out, PATH_MAX, "%s/blobs/%s", store->path, name);
}

// ---- the folder ---------------------------------------------------------------------------------
static bool make_folders(const char *path) {
    char part[PATH_MAX];
    size_t length = strlen(path);
    if (length >= sizeof part) return false;
    memcpy(part, path, length + 1);
    for (char *c = part + 1; *c; c++) {
        if (*c != '/') continue;
        *c = '\0';
        if (mkdir(part, 0700) != 0 && errno != EEXIST && access(part, X_OK) != 0) return false;
        *c = '/';
    }
    struct stat info;
    return mkdir(part, 0700) == 0 || (stat(part, &info) == 0 && S_ISDIR(info.st_mode));
}

// The folder of this version; false: none ("off", or no home).
static bool locate(const char *folder, char *out, size_t size) {
    const char *tail = "", *base = folder;
    if (!base || !*base) {
        base = hn_config_env("XDG_CACHE_HOME");
        tail = "/hone";
        if (!base || *base != '/') {
            base = hn_config_env("HOME");
            tail = "/.cache/hone";
        }
        if (!base || *base != '/') return false;
    }
    if (strcmp(base, "off") == 0) return false;
    int length = snprintf(out, size, "%s%s/v%d", base, tail, HN_STORE_VERSION);
    return length > 0 && (size_t)length < size;
}

static int lock_folder(const hn_store *store) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/lock", store->path);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd >= 0 && flock(fd, LOCK_EX) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

// Reads the secret, or makes it. Without one no key can be formed.
static bool read_secret(hn_store *store) {
    char path[PATH_MAX], *data = NULL;
    unsigned char secret[32];
    size_t bytes = 0;
    snprintf(path, sizeof path, "%s/secret", store->path);
    bool have = hn_file_read(NULL, path, 64, &data, &bytes) == HONE_OK && bytes == sizeof secret;
    if (have) memcpy(secret, data, sizeof secret);
    hn_free(data);
    data = NULL;
    int lock = !have && store->writable ? lock_folder(store) : -1;
    if (lock >= 0) { // another process may have been first
        have = hn_file_read(NULL, path, 64, &data, &bytes) == HONE_OK && bytes == sizeof secret;
        if (have) memcpy(secret, data, sizeof secret);
        else hn_digest_secret(secret);
        have = have || hn_file_write(NULL, path, secret, sizeof secret) == HONE_OK;
        (void)chmod(path, 0600);
        hn_free(data);
        close(lock);
    }
    if (have) hn_digest_key_from(secret, &store->key);
    return have;
}

static void read_boot(hn_store *store) {
    char *data = NULL;
    size_t bytes;
    if (hn_file_read(NULL, "/proc/sys/kernel/random/boot_id", 64, &data, &bytes) == HONE_OK)
        snprintf(store->boot, sizeof store->boot, "%.36s", data);
    hn_free(data);
}

// ---- the index ----------------------------------------------------------------------------------
static bool is_name(const char *text) {
    for (int i = 0; i < HN_BLOB_NAME; i++)
        if (!isxdigit((unsigned char)text[i]) || isupper((unsigned char)text[i])) return false;
    return text[HN_BLOB_NAME] == '\0';
}

static hn_index_result add_row(hn_store *store, const hn_blob *blob, const char *stamp) {
    const hn_blob_head *head = hn_blob_get_head(blob);
    char name[HN_BLOB_NAME + 1] = {0}, verified[128] = "";
    memcpy(name, head->name, HN_BLOB_NAME);
    if (stamp) snprintf(verified, sizeof verified, "%s %s", store->boot, stamp);
    return hn_index_run(store->index,
                        "INSERT OR REPLACE INTO blob VALUES(?1, ?2, ?3, ?4, ?4, ?5)", "ssiis", "", name,
                        head->text, (int64_t)hn_blob_bytes(blob), now_s(), verified);
}

// Walks the files: drops what is broken and what writers left behind, adds rows that are missing.
// deep: contents are checked too.
static void scan(hn_store *store, bool deep, hn_store_check *check) {
    char path[PATH_MAX], stamp[64];
    snprintf(path, sizeof path, "%s/blobs", store->path);
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        struct stat info;
        blob_path(store, entry->d_name, path);
        if (!is_name(entry->d_name)) {
            if (strncmp(entry->d_name, ".hone-", 6) == 0 && stat(path, &info) == 0 &&
                info.st_mtime < now_s() - STALE_TEMPORARY_S)
                (void)unlink(path);
            continue;
        }
        hn_blob *blob = NULL;
        hn_blob_result result = hn_blob_open(path, entry->d_name, deep ? NULL : "*", &blob, stamp);
        int64_t rows = 0;
        (void)hn_index_run(store->index, "SELECT count(*) FROM blob WHERE name = ?", "s", "i",
                           entry->d_name, &rows);
        if (result == HN_BLOB_OK) {
            check->good++;
            check->found += !rows;
            if (!rows) (void)add_row(store, blob, deep ? stamp : NULL);
            hn_blob_unref(blob);
        } else if (result == HN_BLOB_BROKEN) {
            check->dropped++;
            (void)unlink(path);
            (void)hn_index_run(store->index, "DELETE FROM blob WHERE name = ?", "s", "", entry->d_name);
        }
    }
    if (folder) closedir(folder);
}

static ino_t index_inode(const hn_store *store) {
    char path[PATH_MAX];
    struct stat info;
    snprintf(path, sizeof path, "%s/index.db", store->path);
    return stat(path, &info) == 0 ? info.st_ino : 0;
}

static hn_index_result open_index(hn_store *store) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/index.db", store->path);
    hn_index_result result = hn_index_open(path, &store->writable, &store->index);
    store->inode = index_inode(store);
    return result;
}

// Makes the index again. Once for an opened store: a file system that breaks it twice gets none.
static void rebuild(hn_store *store) {
    static const char *const k_parts[] = {"", "-wal", "-shm", "-journal"};
    char path[PATH_MAX];
    hn_store_check check = {0};
    hn_index_close(store->index);
    store->index = NULL;
    int lock = store->rebuilt || !store->writable ? -1 : lock_folder(store);
    store->rebuilt = true;
    if (lock < 0) {
        say(store, "has a broken index that cannot be made again");
        store->writable = false;
        return;
    }
    // Another process may have done it already: then it is another file.
    if (store->inode == index_inode(store) || open_index(store) != HN_INDEX_OK) {
        hn_index_close(store->index);
        store->index = NULL;
        hn_log(HN_LOG_WARN, "the index of the store in '%s' is broken or of another version: made again",
               store->path);
        for (size_t i = 0; i < HN_COUNT_OF(k_parts); i++) {
            snprintf(path, sizeof path, "%s/index.db%s", store->path, k_parts[i]);
            (void)unlink(path);
        }
        if (open_index(store) == HN_INDEX_OK) scan(store, false, &check);
    }
    close(lock);
}

// What a result means for the store; true where it is HN_INDEX_OK.
static bool settle(hn_store *store, hn_index_result result) {
    if (result == HN_INDEX_BROKEN) rebuild(store);
    if (result == HN_INDEX_FAILED && store->writable) {
        say(store, "cannot be written");
        store->writable = false;
    }
    return result == HN_INDEX_OK;
}

// ---- opening ------------------------------------------------------------------------------------
hn_store *hn_store_open(const char *folder, int64_t limit_bytes) {
    hn_store *store = hn_calloc(1, sizeof *store);
    if (!store) return NULL;
    pthread_mutex_init(&store->lock, NULL);
    store->limit_bytes = limit_bytes;
    char blobs[PATH_MAX];
    bool good = locate(folder, store->path, sizeof store->path);
    if (good) {
        snprintf(blobs, sizeof blobs, "%s/blobs", store->path);
        good = make_folders(blobs);
        store->writable = good && access(store->path, W_OK) == 0 && access(blobs, W_OK) == 0;
        good = good && read_secret(store);
        if (!good) say(store, "cannot be used");
    }
    if (!good) {
        hn_store_close(store);
        return NULL;
    }
    read_boot(store);
    (void)settle(store, open_index(store));
    return store;
}

void hn_store_close(hn_store *store) {
    if (!store) return;
    hn_index_close(store->index);
    pthread_mutex_destroy(&store->lock);
    hn_free(store);
}

static hn_store *g_default;
// SQLite's connections and file locks do not survive fork(), and a thread that is gone in the child
// may have held the store's lock: the child does without.
static void forget_default(void) { g_default = NULL; }
static void open_default(void) {
    pthread_atfork(NULL, NULL, forget_default);
    const hn_config *config = hn_config_get();
    const char *folder = *config->store ? config->store : hn_config_env("HONE_STORE"); // a library has no flags
    g_default = hn_store_open(folder, config->store_bytes);
}
hn_store *hn_store_default(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, open_default);
    return g_default;
}

const hn_digest_key *hn_store_digest_key(const hn_store *store) { return &store->key; }

// ---- blobs --------------------------------------------------------------------------------------
hn_blob *hn_store_get(hn_store *store, const hn_store_key *key) {
    char name[HN_BLOB_NAME + 1], path[PATH_MAX], stamp[64];
    char *text = hn_store_key_text(key);
    if (!text) return NULL;
    hn_store_key_name(text, name);
    hn_free(text);
    blob_path(store, name, path);
    int64_t used = 0;
    hn_str verified = {0};
    pthread_mutex_lock(&store->lock);
    bool row = store->index &&
               settle(store, hn_index_run(store->index, "SELECT used, verified FROM blob WHERE name = ?",
                                          "s", "is", name, &used, &verified));
    pthread_mutex_unlock(&store->lock);
    size_t boot = strlen(store->boot);
    const char *known = hn_str_get(&verified);
    bool since_boot = boot && strncmp(known, store->boot, boot) == 0 && known[boot] == ' ';
    known = since_boot ? known + boot + 1 : NULL;
    hn_blob *blob = NULL;
    hn_blob_result result = hn_blob_open(path, name, known, &blob, stamp);
    bool checked = !known || strcmp(known, stamp) != 0;
    hn_str_free(&verified);
    if (result == HN_BLOB_ABSENT && !row) return NULL;
    pthread_mutex_lock(&store->lock);
    if (result == HN_BLOB_BROKEN)
        hn_log(HN_LOG_WARN, "the store's file '%s' is damaged: dropped, and made again", path);
    if (store->writable && store->index) {
        if (result != HN_BLOB_OK) {
            (void)unlink(path);
            (void)settle(store, hn_index_run(store->index, "DELETE FROM blob WHERE name = ?", "s", "", name));
        } else if (!row || checked || used < now_s() - USED_STEP_S) {
            (void)settle(store, add_row(store, blob, stamp));
        }
    }
    pthread_mutex_unlock(&store->lock);
    return blob;
}

// Drops what was used longest ago until `more` bytes fit.
static bool make_room(hn_store *store, int64_t more) {
    for (bool scanned = false;;) {
        int64_t held = 0;
        if (!store->index || !settle(store, hn_index_run(store->index, "SELECT total(bytes) FROM blob", "", "i", &held)))
            return false;
        if (held + more <= store->limit_bytes) return true;
        hn_store_check check = {0};
        if (!scanned) { // files without rows count too
            scan(store, false, &check);
            scanned = true;
            continue;
        }
        hn_str name = {0};
        char path[PATH_MAX];
        hn_index_result result = hn_index_run(store->index, "SELECT name FROM blob ORDER BY used LIMIT 1", "", "s", &name);
        if (result == HN_INDEX_NONE) { // another process has made room
            hn_str_free(&name);
            continue;
        }
        bool found = settle(store, result);
        if (found) {
            blob_path(store, hn_str_get(&name), path);
            (void)unlink(path); // those who have it mapped keep it
            found = settle(store, hn_index_run(store->index, "DELETE FROM blob WHERE name = ?", "s", "",
                                               hn_str_get(&name)));
        }
        hn_str_free(&name);
        if (!found) return false;
    }
}

static bool prepare_put(hn_store *store, size_t bytes) {
    pthread_mutex_lock(&store->lock);
    bool good = store->writable && store->index && bytes <= (size_t)INT64_MAX / 2 &&
                (int64_t)bytes <= store->limit_bytes;
    if (good && !store->swept) {
        hn_store_check check = {0};
        store->swept = true;
        scan(store, false, &check);
    }
    good = good && make_room(store, (int64_t)bytes);
    pthread_mutex_unlock(&store->lock);
    return good;
}

bool hn_store_put(hn_store *store, const hn_store_key *key, const void *data, size_t bytes) {
    char name[HN_BLOB_NAME + 1], path[PATH_MAX], stamp[64];
    char *text = hn_store_key_text(key);
    if (!text) return false;
    hn_store_key_name(text, name);
    blob_path(store, name, path);
    bool there = access(path, R_OK) == 0;
    hone_error err = {0};
    hone_status status = HONE_OK;
    if (!there && !prepare_put(store, bytes)) {
        hn_free(text);
        return false;
    }
    if (!there) status = hn_blob_write(&err, path, name, text, data, bytes);
    hn_free(text);
    if (there) return true;
    hn_blob *blob = NULL;
    pthread_mutex_lock(&store->lock);
    if (status != HONE_OK) {
        say(store, err.text);
        store->writable = false;
    } else if (hn_blob_open(path, name, "*", &blob, stamp) == HN_BLOB_OK) {
        // What lies on the disk has not been read yet: the first user checks it.
        if (store->index) (void)settle(store, add_row(store, blob, NULL));
        hn_blob_unref(blob);
    }
    pthread_mutex_unlock(&store->lock);
    return status == HONE_OK;
}

// ---- records ------------------------------------------------------------------------------------
bool hn_store_record(hn_store *store, const hn_store_key *key, hn_str *out_text) {
    char name[HN_BLOB_NAME + 1];
    char *text = hn_store_key_text(key);
    if (!text) return false;
    hn_store_key_name(text, name);
    hn_free(text);
    int64_t used = 0;
    pthread_mutex_lock(&store->lock);
    bool found = store->index && settle(store, hn_index_run(store->index, "SELECT value, used FROM record WHERE name = ?",
                                                            "s", "si", name, out_text, &used));
    if (found && store->writable && used < now_s() - USED_STEP_S)
        (void)settle(store, hn_index_run(store->index, "UPDATE record SET used = ? WHERE name = ?", "is", "", now_s(), name));
    pthread_mutex_unlock(&store->lock);
    return found && !out_text->failed;
}

// Every so many writes the oldest rows beyond the bound go.
static void trim_rows(hn_store *store) {
    if (++store->writes % 256 || !store->index) return;
    (void)settle(store, hn_index_run(store->index,
                                     "DELETE FROM record WHERE name IN (SELECT name FROM record ORDER BY used"
                                     " DESC LIMIT -1 OFFSET ?)", "i", "", (int64_t)MAX_ROWS));
    if (store->index)
        (void)settle(store, hn_index_run(store->index,
                                         "DELETE FROM content WHERE used < (SELECT used FROM content ORDER BY"
                                         " used DESC LIMIT 1 OFFSET ?)", "i", "", (int64_t)MAX_ROWS));
}

bool hn_store_set_record(hn_store *store, const hn_store_key *key, const char *value) {
    char name[HN_BLOB_NAME + 1];
    char *text = hn_store_key_text(key);
    if (!text) return false;
    hn_store_key_name(text, name);
    pthread_mutex_lock(&store->lock);
    bool done = store->index && store->writable &&
                settle(store, hn_index_run(store->index, "INSERT OR REPLACE INTO record VALUES(?, ?, ?, ?)",
                                           "sssi", "", name, text, value, now_s()));
    if (done) trim_rows(store);
    pthread_mutex_unlock(&store->lock);
    hn_free(text);
    return done;
}

// ---- contents -----------------------------------------------------------------------------------
static hn_digest sample(const hn_store *store, const void *data, size_t bytes) {
    hn_digest parts[SAMPLES];
    size_t size = bytes < 4096 ? bytes : 4096;
    for (size_t i = 0; i < SAMPLES; i++)
        parts[i] = hn_digest_bytes(&store->key, (const char *)data + (bytes - size) / (SAMPLES - 1) * i, size);
    return hn_digest_bytes(&store->key, parts, sizeof parts);
}

static void stamp_of(const hn_map_id *id, char out[96]) {
    snprintf(out, 96, "%llu %lld %lld", (unsigned long long)id->size_bytes, (long long)id->modified_ns,
             (long long)id->changed_ns);
}

bool hn_store_content(hn_store *store, const void *data, size_t bytes, hn_digest *out_digest) {
    hn_map_id id;
    char stamp[96];
    hn_digest digest = {{0}}, had = {{0}};
    if (!hn_map_find(data, bytes, &id) || !id.settled) return false;
    stamp_of(&id, stamp);
    pthread_mutex_lock(&store->lock);
    bool found = store->index &&
                 settle(store, hn_index_run(store->index,
                                            "SELECT digest, sample FROM content WHERE device = ? AND inode = ?"
                                            " AND at = ? AND bytes = ? AND stamp = ?",
                                            "iiiis", "dd", (int64_t)id.device, (int64_t)id.inode,
                                            (int64_t)id.offset_bytes, (int64_t)bytes, stamp, &digest, &had));
    pthread_mutex_unlock(&store->lock);
    if (!found || !hn_digest_equal(had, sample(store, data, bytes))) return false;
    *out_digest = digest;
    return true;
}

void hn_store_set_content(hn_store *store, const void *data, size_t bytes, hn_digest digest) {
    hn_map_id id;
    char stamp[96];
    if (!hn_map_find(data, bytes, &id) || !id.settled) return;
    stamp_of(&id, stamp);
    hn_digest parts = sample(store, data, bytes);
    pthread_mutex_lock(&store->lock);
    if (store->index && store->writable &&
        settle(store, hn_index_run(store->index, "INSERT OR REPLACE INTO content VALUES(?,?,?,?,?,?,?,?)",
                                   "iiiisddi", "", (int64_t)id.device, (int64_t)id.inode,
                                   (int64_t)id.offset_bytes, (int64_t)bytes, stamp, parts, digest, now_s())))
        trim_rows(store);
    pthread_mutex_unlock(&store->lock);
}

// ---- what is in it ------------------------------------------------------------------------------
void hn_store_get_info(hn_store *store, hn_store_info *out_info) {
    static const char *const k_parts[] = {"", "-wal"};
    memset(out_info, 0, sizeof *out_info);
    pthread_mutex_lock(&store->lock);
    snprintf(out_info->path, sizeof out_info->path, "%s", store->path);
    out_info->writable = store->writable;
    out_info->limit_bytes = store->limit_bytes;
    if (store->index)
        (void)settle(store, hn_index_run(store->index, "SELECT count(*), total(bytes), (SELECT count(*) FROM record), (SELECT count(*) FROM content) FROM blob",
                                         "", "iiii", &out_info->blobs, &out_info->blob_bytes,
                                         &out_info->records, &out_info->contents));
    for (size_t i = 0; i < HN_COUNT_OF(k_parts); i++) {
        char path[PATH_MAX];
        struct stat info;
        snprintf(path, sizeof path, "%s/index.db%s", store->path, k_parts[i]);
        if (stat(path, &info) == 0) out_info->index_bytes += info.st_size;
    }
    pthread_mutex_unlock(&store->lock);
}

typedef struct lister {
    void (*fn)(void *user, const hn_store_item *item);
    void *user;
} lister;

static void list_row(void *user, const char *const *column) {
    lister *l = user;
    char *text = hn_strdup(column[1] ? column[1] : "");
    if (!text) return;
    hn_store_item item = {.name = column[0] ? column[0] : ""};
    hn_store_key_split(text, &item);
    item.bytes = column[2] ? atoll(column[2]) : 0;
    item.made_s = column[3] ? atoll(column[3]) : 0;
    item.used_s = column[4] ? atoll(column[4]) : 0;
    l->fn(l->user, &item);
    hn_free(text);
}

void hn_store_list(hn_store *store, void (*fn)(void *user, const hn_store_item *item), void *user) {
    lister l = {fn, user};
    pthread_mutex_lock(&store->lock);
    if (store->index)
        (void)settle(store, hn_index_each(store->index, "SELECT name, text, bytes, made, used FROM blob ORDER BY used DESC, name",
                                          list_row, &l));
    pthread_mutex_unlock(&store->lock);
}

typedef struct names {
    HN_VEC(char *) list;
} names;
static void collect(void *user, const char *const *column) {
    names *n = user;
    char *name = column[0] ? hn_strdup(column[0]) : NULL;
    if (name && !hn_vec_push(&n->list, name)) hn_free(name);
}

bool hn_store_verify(hn_store *store, hn_store_check *out_check) {
    hn_store_check check = {0};
    names rows = {0};
    char path[PATH_MAX];
    pthread_mutex_lock(&store->lock);
    bool good = store->index && store->writable;
    if (good) {
        scan(store, true, &check);
        good = settle(store, hn_index_each(store->index, "SELECT name FROM blob", collect, &rows));
    }
    for (size_t i = 0; i < rows.list.count; i++) {
        blob_path(store, rows.list.data[i], path);
        if (access(path, F_OK) != 0 && store->index) {
            check.stale++;
            (void)settle(store, hn_index_run(store->index, "DELETE FROM blob WHERE name = ?", "s", "", rows.list.data[i]));
        }
        hn_free(rows.list.data[i]);
    }
    hn_vec_free(&rows.list);
    pthread_mutex_unlock(&store->lock);
    *out_check = check;
    return good;
}

bool hn_store_clear(hn_store *store, int64_t *out_blobs, int64_t *out_bytes) {
    char path[PATH_MAX];
    *out_blobs = *out_bytes = 0;
    pthread_mutex_lock(&store->lock);
    bool good = store->writable && store->index;
    snprintf(path, sizeof path, "%s/blobs", store->path);
    DIR *folder = good ? opendir(path) : NULL;
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        struct stat info;
        bool blob = is_name(entry->d_name);
        if (!blob && strncmp(entry->d_name, ".hone-", 6) != 0) continue;
        blob_path(store, entry->d_name, path);
        if (stat(path, &info) != 0 || unlink(path) != 0) continue;
        *out_blobs += blob;
        *out_bytes += info.st_size;
    }
    if (folder) closedir(folder);
    static const char *const k_clear[] = {"DELETE FROM blob", "DELETE FROM record", "DELETE FROM content",
                                          "VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)"};
    for (size_t i = 0; good && i < HN_COUNT_OF(k_clear); i++)
        good = store->index && settle(store, hn_index_run(store->index, k_clear[i], "", ""));
    pthread_mutex_unlock(&store->lock);
    return good;
}
