// SPDX-License-Identifier: Apache-2.0
// Blob files: a head that says what they are, then the content, page-aligned for mapping.
//
// A head that names another version, another file or another size than it lies in makes the file
// broken. The digests here find damage, not intent: their key is fixed.
#include <errno.h>
#include <fcntl.h>
#include <sha2.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "store/prepared.h"
#include "store/store_int.h"

_Static_assert(sizeof(hn_blob_head) <= HN_BLOB_HEAD, "the content starts behind the head");
static const char k_magic[8] = "HNBLOB1";

struct hn_blob {
    atomic_int references;
    void *map;
    size_t map_bytes;
};

static hn_digest_key check_key(void) {
    hn_digest_key key;
    hn_digest_key_from((const unsigned char *)"hone: damage is found, not intent.", &key);
    return key;
}

// ---- keys ---------------------------------------------------------------------------------------
char *hn_store_key_text(const hn_store_key *key) {
    hn_str text = {0};
    hn_str_printf(&text, "%s\n%s\n%s\n%d\n", key->kind, key->library, key->isa, key->threads);
    hn_str_append(&text, key->text);
    if (!text.failed) return text.data;
    hn_str_free(&text);
    return NULL;
}

void hn_store_key_name(const char *text, char out_name[HN_BLOB_NAME + 1]) {
    SHA2_CTX sha;
    unsigned char digest[SHA256_DIGEST_LENGTH];
    SHA256Init(&sha);
    SHA256Update(&sha, (const uint8_t *)text, strlen(text));
    SHA256Final(digest, &sha);
    for (int i = 0; i < SHA256_DIGEST_LENGTH; i++)
        snprintf(out_name + 2 * i, 3, "%02x", digest[i]);
}

static char *next_line(char **rest) {
    char *line = *rest, *end = strchr(line, '\n');
    if (end) *end = '\0';
    *rest = end ? end + 1 : line + strlen(line);
    return line;
}

void hn_store_key_split(char *text, hn_store_item *out) {
    out->kind = next_line(&text);
    out->library = next_line(&text);
    out->isa = next_line(&text);
    out->threads = atoi(next_line(&text));
    out->text = text;
}

// ---- files --------------------------------------------------------------------------------------
static hn_digest head_digest(const hn_blob_head *head) {
    hn_digest_key key = check_key();
    hn_digest parts[2] = {hn_digest_bytes(&key, head, offsetof(hn_blob_head, head)),
                          hn_digest_bytes(&key, head->text, head->text_bytes)};
    return hn_digest_bytes(&key, parts, sizeof parts);
}

static bool head_holds(const hn_blob_head *head, const char *name, size_t file_bytes) {
    return memcmp(head->magic, k_magic, sizeof k_magic) == 0 && head->version == HN_STORE_VERSION &&
           head->text_bytes <= HN_BLOB_TEXT && head->bytes == file_bytes - HN_BLOB_HEAD &&
           hn_digest_equal(head->head, head_digest(head)) &&
           (!name || memcmp(head->name, name, HN_BLOB_NAME) == 0);
}

static bool content_holds(const hn_blob_head *head, const void *data, size_t bytes) {
    hn_digest_key key = check_key();
    hn_digest digest;
    return hn_prepared_digest(NULL, &key, data, bytes, false, &digest) == HONE_OK &&
           hn_digest_equal(digest, head->content);
}

hn_blob_result hn_blob_open(const char *path, const char *name, const char *verified, hn_blob **out_blob,
                            char out_stamp[64]) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    struct stat info;
    if (fd < 0) return HN_BLOB_ABSENT; // or no rights to it, which is the same here
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size < HN_BLOB_HEAD) {
        close(fd);
        return HN_BLOB_BROKEN;
    }
    snprintf(out_stamp, 64, "%llu %lld.%09ld", (unsigned long long)info.st_ino,
             (long long)info.st_ctim.tv_sec, info.st_ctim.tv_nsec);
    size_t bytes = (size_t)info.st_size;
    void *map = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (map == MAP_FAILED) return HN_BLOB_ABSENT;
    const hn_blob_head *head = map;
    bool known = verified && (strcmp(verified, "*") == 0 || strcmp(verified, out_stamp) == 0);
    if (!head_holds(head, name, bytes) ||
        (!known && !content_holds(head, (const char *)map + HN_BLOB_HEAD, bytes - HN_BLOB_HEAD))) {
        munmap(map, bytes);
        return HN_BLOB_BROKEN;
    }
    hn_blob *blob = hn_calloc(1, sizeof *blob);
    if (!blob) {
        munmap(map, bytes);
        return HN_BLOB_ABSENT;
    }
    atomic_init(&blob->references, 1);
    blob->map = map;
    blob->map_bytes = bytes;
    *out_blob = blob;
    return HN_BLOB_OK;
}

const hn_blob_head *hn_blob_get_head(const hn_blob *blob) { return blob->map; }
const void *hn_blob_data(const hn_blob *blob) { return (const char *)blob->map + HN_BLOB_HEAD; }
size_t hn_blob_bytes(const hn_blob *blob) { return blob->map_bytes - HN_BLOB_HEAD; }

hn_blob *hn_blob_ref(hn_blob *blob) {
    atomic_fetch_add_explicit(&blob->references, 1, memory_order_relaxed);
    return blob;
}

void hn_blob_unref(hn_blob *blob) {
    if (!blob || atomic_fetch_sub_explicit(&blob->references, 1, memory_order_acq_rel) != 1) return;
    munmap(blob->map, blob->map_bytes);
    hn_free(blob);
}

hn_status hn_blob_write(hone_error *err, const char *path, const char *name, const char *text,
                        const void *data, size_t bytes) {
    hn_digest_key key = check_key();
    hn_blob_head *head = hn_calloc(1, HN_BLOB_HEAD);
    if (!head) HN_NOMEM(err, "keeping a blob");
    size_t text_bytes = strlen(text);
    memcpy(head->magic, k_magic, sizeof k_magic);
    head->version = HN_STORE_VERSION;
    head->text_bytes = (uint32_t)(text_bytes < HN_BLOB_TEXT ? text_bytes : HN_BLOB_TEXT);
    head->bytes = bytes;
    memcpy(head->name, name, HN_BLOB_NAME);
    memcpy(head->text, text, head->text_bytes);
    hn_writer writer;
    // Alone: this is the background's work, the threads are the foreground's.
    hone_status status = hn_prepared_digest(err, &key, data, bytes, true, &head->content);
    head->head = head_digest(head);
    if (status == HONE_OK) status = hn_writer_open(err, path, &writer);
    if (status == HONE_OK) {
        status = hn_writer_put(err, &writer, head, HN_BLOB_HEAD);
        if (status == HONE_OK) status = hn_writer_put(err, &writer, data, bytes);
        if (status == HONE_OK) status = hn_writer_commit(err, &writer);
        else hn_writer_cancel(&writer);
    }
    hn_free(head);
    return status;
}
