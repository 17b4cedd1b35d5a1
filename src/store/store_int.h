// SPDX-License-Identifier: Apache-2.0
// Inside of src/store: the head of a blob file, and the index.
#ifndef HN_STORE_INT_H
#define HN_STORE_INT_H
#include "store/store.h"

// ---- blob.c -------------------------------------------------------------------------------------
#define HN_BLOB_NAME 64      // hex digits of the SHA-256 of the key
#define HN_BLOB_HEAD 4096    // bytes before the content: it starts at a page
#define HN_BLOB_TEXT 3900    // of the key's text; the rest is cut off (the name has it all)

typedef struct hn_blob_head {
    char magic[8];
    uint32_t version, text_bytes;
    uint64_t bytes;          // of the content
    hn_digest content;
    char name[HN_BLOB_NAME]; // that the file must have
    hn_digest head;          // of all before this, and of the text
    char text[HN_BLOB_TEXT + 4];
} hn_blob_head;

char *hn_store_key_text(const hn_store_key *key);                // NULL: out of memory
void hn_store_key_name(const char *text, char out_name[HN_BLOB_NAME + 1]);
// The parts of a key's text; cut up in place.
void hn_store_key_split(char *text, hn_store_item *out);

typedef enum hn_blob_result { HN_BLOB_OK, HN_BLOB_ABSENT, HN_BLOB_BROKEN } hn_blob_result;
// Maps a file. stamp identifies its state (inode and time of change); where it is not `verified` (or "*")
// the
// content is checked. name NULL: whatever its head says.
hn_blob_result hn_blob_open(const char *path, const char *name, const char *verified, hn_blob **out_blob,
                            char out_stamp[64]);
const hn_blob_head *hn_blob_get_head(const hn_blob *blob);
// Writes a complete file under a temporary name, syncs it, gives it its name.
hn_status hn_blob_write(hone_error *err, const char *path, const char *name, const char *text,
                        const void *data, size_t bytes);

// ---- index.c ------------------------------------------------------------------------------------
typedef struct hn_index hn_index;
typedef enum hn_index_result {
    HN_INDEX_OK,     // done, or a row was found
    HN_INDEX_NONE,   // no such row
    HN_INDEX_BROKEN, // the file is damaged or of another version: to be made again
    HN_INDEX_FAILED, // cannot be written now (full disk, no rights, busy)
} hn_index_result;

// writable is set to false where only reading works.
hn_index_result hn_index_open(const char *path, bool *writable, hn_index **out_index);
void hn_index_close(hn_index *index); // takes NULL
// Runs one statement. `bind` has a letter an argument: s text (NULL allowed), i int64_t, d hn_digest.
// `columns` likewise for the first row's, into pointers: s hn_str *, i int64_t *, d hn_digest *.
hn_index_result hn_index_run(hn_index *index, const char *sql, const char *bind, const char *columns, ...);
// Calls fn for every row with its columns as text (NULL: none).
hn_index_result hn_index_each(hn_index *index, const char *sql,
                              void (*fn)(void *user, const char *const *column), void *user);
#endif
