// SPDX-License-Identifier: Apache-2.0
// Files: mapping for reading, whole reads of small files, atomic writing.
#ifndef HN_BASE_FILE_H
#define HN_BASE_FILE_H
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include "base/error.h"

// A file mapped read-only. size 0 has data NULL.
typedef struct hn_map {
    const unsigned char *data;
    size_t size_bytes;
} hn_map;

// Regular files only: a directory, FIFO or device is refused (HONE_ERR_IO).
hn_status hn_map_open(hone_error *err, const char *path, hn_map *out_map);
void hn_map_close(hn_map *map);
// Gives the pages that hold these bytes of a mapping back to the system; they are read again when
// touched. Only for mappings of hn_map_open.
void hn_map_forget(const void *data, size_t bytes);
// What a piece of an open mapping was cut from. Pieces of one file with equal stamps hold equal bytes
// where the stamps are settled: a file that was changed right before may change again within the
// resolution of its stamps.
typedef struct hn_map_id {
    uint64_t device, inode, size_bytes;
    int64_t modified_ns, changed_ns; // when the mapping was opened
    bool settled;          // the last change was two seconds before that
    uint64_t serial;       // of the mapping: unique in this process
    uint64_t offset_bytes; // of the piece in the file
} hn_map_id;
// False where [data, data + bytes) lies in no mapping of hn_map_open.
bool hn_map_find(const void *data, size_t bytes, hn_map_id *out_id);
bool hn_map_holds(const char *path); // is this file mapped now?

// Reads all of a file or pipe ("-" is standard input) up to max_bytes; the result is terminated by
// a NUL that is not counted, and freed with hn_free.
hn_status hn_file_read(hone_error *err, const char *path, size_t max_bytes, char **out_data,
                       size_t *out_bytes);
// The same as UTF-8, whatever system wrote it: hn_utf8_from_outside.
hn_status hn_file_read_text(hone_error *err, const char *path, size_t max_bytes, char **out_data,
                            size_t *out_bytes);

// Atomic writing: data goes to a temporary name in the same folder; commit does fsync and rename,
// cancel removes it. Nothing is ever visible under `path` but a complete file. A link is followed:
// the file that it leads to is replaced, the link stays. Folders, devices, pipes and sockets are
// refused (a rename would put a file in the place of /dev/null).
typedef struct hn_writer {
    FILE *file;
    char *path, *temporary; // owned
} hn_writer;
// The name that a writer of `path` replaces in the end; refuses what it would refuse.
hn_status hn_file_target(hone_error *err, const char *path, char out_target[PATH_MAX]);
hn_status hn_writer_open(hone_error *err, const char *path, hn_writer *out_writer);
hn_status hn_writer_put(hone_error *err, hn_writer *writer, const void *data, size_t bytes);
hn_status hn_writer_commit(hone_error *err, hn_writer *writer); // also closes on failure
void hn_writer_cancel(hn_writer *writer);                       // no-op after commit
// Open, put, commit.
hn_status hn_file_write(hone_error *err, const char *path, const void *data, size_t bytes);

// Names (files, and folders that hold nothing else) that must not outlive this process. A writer's
// temporary name is one. Where the table is full or a path is too long the name is just not kept.
void hn_temporary_add(const char *path);
void hn_temporary_forget(const char *path);
// Removes them all. Async-signal-safe: for the handler of a signal that ends the process.
void hn_temporaries_remove(void);
#endif
