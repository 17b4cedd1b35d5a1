// SPDX-License-Identifier: Apache-2.0
// Files: see file.h.
#include "base/file.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/text.h"
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

// A path that names no file is the request's fault; all else that goes wrong is the system's.
static hone_status path_status(int code) {
    bool wrong = code == ENOENT || code == ENOTDIR || code == EISDIR || code == ELOOP ||
                 code == ENAMETOOLONG;
    return wrong ? HONE_ERR_INPUT : HONE_ERR_IO;
}

// ---- mappings -------------------------------------------------------------------------------------
// Those that are open, so that a pointer's file can be found. A mapping that does not fit in memory
// any more is just not listed.
typedef struct listed_map {
    const unsigned char *data;
    hn_map_id id;
} listed_map;
static pthread_mutex_t g_maps_lock = PTHREAD_MUTEX_INITIALIZER;
static listed_map *g_maps;
static size_t g_map_count, g_map_capacity;

static int64_t stamp_ns(const struct timespec *time) {
    return (int64_t)time->tv_sec * 1000000000 + time->tv_nsec;
}

static void list_map(const hn_map *map, const struct stat *info) {
    static uint64_t serial;
    int64_t age_ns = hn_clock_wall_ns() - stamp_ns(&info->st_ctim);
    pthread_mutex_lock(&g_maps_lock);
    if (g_map_count == g_map_capacity) {
        size_t grown = g_map_capacity ? 2 * g_map_capacity : 8;
        listed_map *bigger = hn_realloc_array(g_maps, grown, sizeof *bigger);
        if (bigger) {
            g_maps = bigger;
            g_map_capacity = grown;
        }
    }
    if (g_map_count < g_map_capacity)
        g_maps[g_map_count++] = (listed_map){
            map->data,
            {.device = (uint64_t)info->st_dev,
             .inode = (uint64_t)info->st_ino,
             .size_bytes = (uint64_t)info->st_size,
             .modified_ns = stamp_ns(&info->st_mtim),
             .changed_ns = stamp_ns(&info->st_ctim),
             .settled = age_ns > 2000000000,
             .serial = ++serial}};
    pthread_mutex_unlock(&g_maps_lock);
}

static void unlist_map(const hn_map *map) {
    pthread_mutex_lock(&g_maps_lock);
    for (size_t i = 0; i < g_map_count; i++)
        if (g_maps[i].data == map->data) {
            g_maps[i] = g_maps[--g_map_count];
            break;
        }
    if (g_map_count == 0) {
        hn_free(g_maps);
        g_maps = NULL;
        g_map_capacity = 0;
    }
    pthread_mutex_unlock(&g_maps_lock);
}

bool hn_map_find(const void *data, size_t bytes, hn_map_id *out_id) {
    const unsigned char *at = data;
    bool found = false;
    pthread_mutex_lock(&g_maps_lock);
    for (size_t i = 0; i < g_map_count && !found; i++) {
        const listed_map *map = &g_maps[i];
        size_t offset = (size_t)((uintptr_t)at - (uintptr_t)map->data);
        found = at >= map->data && offset <= map->id.size_bytes &&
                bytes <= map->id.size_bytes - offset;
        if (!found) continue;
        *out_id = map->id;
        out_id->offset_bytes = offset;
    }
    pthread_mutex_unlock(&g_maps_lock);
    return found;
}

bool hn_map_holds(const char *path) {
    struct stat info;
    bool found = false;
    if (stat(path, &info) != 0) return false;
    pthread_mutex_lock(&g_maps_lock);
    for (size_t i = 0; i < g_map_count && !found; i++)
        found = g_maps[i].id.device == (uint64_t)info.st_dev && g_maps[i].id.inode == (uint64_t)info.st_ino;
    pthread_mutex_unlock(&g_maps_lock);
    return found;
}

hn_status hn_map_open(hone_error *err, const char *path, hn_map *out_map) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) HN_FAIL(err, path_status(errno), "cannot open '%s': %s", path, strerror(errno));
    struct stat info;
    if (fstat(fd, &info) != 0) {
        int code = errno;
        close(fd);
        HN_FAIL(err, HONE_ERR_IO, "cannot examine '%s': %s", path, strerror(code));
    }
    if (!S_ISREG(info.st_mode)) {
        close(fd);
        bool folder = S_ISDIR(info.st_mode);
        HN_FAIL(err, HONE_ERR_INPUT, "'%s' is %s, not a regular file", path,
                folder ? "a folder" : "a device, pipe or socket");
    }
    hn_map map = {NULL, (size_t)info.st_size};
    if (map.size_bytes) {
        void *data = mmap(NULL, map.size_bytes, PROT_READ, MAP_PRIVATE, fd, 0);
        if (data == MAP_FAILED) {
            int code = errno;
            close(fd);
            HN_FAIL(err, HONE_ERR_IO, "cannot map '%s': %s", path, strerror(code));
        }
        map.data = data;
        list_map(&map, &info);
    }
    close(fd);
    *out_map = map;
    return HONE_OK;
}

void hn_map_close(hn_map *map) {
    if (map->data) {
        unlist_map(map); // first: the addresses may be another mapping's at once
        munmap((void *)(uintptr_t)map->data, map->size_bytes);
    }
    *map = (hn_map){0};
}

void hn_map_forget(const void *data, size_t bytes) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t start = (uintptr_t)data / page * page, end = (uintptr_t)data + bytes;
    // A hint: failure costs memory only.
    if (bytes) (void)madvise((void *)start, end - start, MADV_DONTNEED);
}

hn_status hn_file_read(hone_error *err, const char *path, size_t max_bytes, char **out_data,
                       size_t *out_bytes) {
    bool standard_input = strcmp(path, "-") == 0;
    int fd = standard_input ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) HN_FAIL(err, path_status(errno), "cannot open '%s': %s", path, strerror(errno));
    char *data = NULL;
    size_t used = 0, capacity = 0;
    hone_status status = HONE_OK;
    for (;;) {
        if (used + 1 >= capacity) {
            size_t grown = capacity ? capacity * 2 : 16384;
            char *bigger = hn_realloc(data, grown);
            if (!bigger) {
                status = HN_SET(err, HONE_ERR_NOMEM, "out of memory (reading '%s')", path);
                break;
            }
            data = bigger;
            capacity = grown;
        }
        ssize_t got = read(fd, data + used, capacity - used - 1);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) {
            status = HN_SET(err, path_status(errno), "cannot read '%s': %s", path, strerror(errno));
            break;
        }
        if (got == 0) break;
        used += (size_t)got;
        if (used > max_bytes) {
            status = HN_SET(err, HONE_ERR_LIMIT, "'%s' is larger than %zu bytes", path, max_bytes);
            break;
        }
    }
    if (!standard_input) close(fd);
    if (status != HONE_OK) {
        hn_free(data);
        return status;
    }
    data[used] = '\0';
    *out_data = data;
    *out_bytes = used;
    return HONE_OK;
}

hn_status hn_file_read_text(hone_error *err, const char *path, size_t max_bytes, char **out_data,
                            size_t *out_bytes) {
    char *data;
    size_t bytes;
    HN_TRY(hn_file_read(err, path, max_bytes, &data, &bytes));
    if (!hn_utf8_from_outside(&data, &bytes)) {
        hn_free(data);
        HN_FAIL(err, HONE_ERR_NOMEM, "out of memory (reading '%s')", path);
    }
    *out_data = data;
    *out_bytes = bytes;
    return HONE_OK;
}

// ---- temporary names ------------------------------------------------------------------------------
// Fixed storage, since a signal handler reads it: a slot is free, being filled, or live.
enum { TEMPORARIES = 16, SLOT_FREE = 0, SLOT_BUSY, SLOT_LIVE };
static char g_temporary[TEMPORARIES][PATH_MAX];
static _Atomic int g_temporary_state[TEMPORARIES];

void hn_temporary_add(const char *path) {
    size_t length = strlen(path);
    for (int i = 0; i < TEMPORARIES && length < PATH_MAX; i++) {
        int expected = SLOT_FREE;
        if (!atomic_compare_exchange_strong(&g_temporary_state[i], &expected, SLOT_BUSY)) continue;
        memcpy(g_temporary[i], path, length + 1);
        atomic_store(&g_temporary_state[i], SLOT_LIVE);
        return;
    }
}

void hn_temporary_forget(const char *path) {
    for (int i = 0; i < TEMPORARIES; i++)
        if (atomic_load(&g_temporary_state[i]) == SLOT_LIVE && strcmp(g_temporary[i], path) == 0) {
            atomic_store(&g_temporary_state[i], SLOT_FREE);
            return;
        }
}

void hn_temporaries_remove(void) {
    for (int i = 0; i < TEMPORARIES; i++) // files first: then their folders are empty
        if (atomic_load(&g_temporary_state[i]) == SLOT_LIVE) (void)unlink(g_temporary[i]);
    for (int i = 0; i < TEMPORARIES; i++)
        if (atomic_load(&g_temporary_state[i]) == SLOT_LIVE) (void)rmdir(g_temporary[i]);
}

// ---- writing --------------------------------------------------------------------------------------
hn_status hn_file_target(hone_error *err, const char *path, char out_target[PATH_MAX]) {
    struct stat info;
    size_t length = strlen(path);
    if (length == 0 || path[length - 1] == '/' || length >= PATH_MAX)
        HN_FAIL(err, HONE_ERR_IO, "cannot create '%s': it is no name of a file", path);
    memcpy(out_target, path, length + 1);
    if (stat(path, &info) != 0) {
        if (errno == ENOENT || errno == ENOTDIR) return HONE_OK; // mkstemp says what is missing
        HN_FAIL(err, HONE_ERR_IO, "cannot create '%s': %s", path, strerror(errno));
    }
    if (!S_ISREG(info.st_mode))
        HN_FAIL(err, HONE_ERR_IO, "cannot create '%s': it is %s", path,
                S_ISDIR(info.st_mode) ? "a folder" : "a device, pipe or socket");
    if (lstat(path, &info) == 0 && S_ISLNK(info.st_mode) && !realpath(path, out_target))
        HN_FAIL(err, HONE_ERR_IO, "cannot follow the link '%s': %s", path, strerror(errno));
    return HONE_OK;
}

hn_status hn_writer_open(hone_error *err, const char *path, hn_writer *out_writer) {
    static const char name[] = ".hone-XXXXXX"; // of its own: a long name has no room for a suffix
    char target[PATH_MAX];
    HN_TRY(hn_file_target(err, path, target));
    const char *slash = strrchr(target, '/');
    size_t folder = slash ? (size_t)(slash - target) + 1 : 0;
    hn_writer writer = {0};
    writer.path = hn_strdup(target);
    writer.temporary = hn_malloc(folder + sizeof name);
    if (!writer.path || !writer.temporary) {
        hn_free(writer.path);
        hn_free(writer.temporary);
        HN_NOMEM(err, "opening an output file");
    }
    memcpy(writer.temporary, target, folder);
    memcpy(writer.temporary + folder, name, sizeof name);
    int fd = mkstemp(writer.temporary);
    if (fd >= 0) {
        hn_temporary_add(writer.temporary);
        mode_t mask = umask(0);
        umask(mask);
        if (fchmod(fd, 0666 & ~mask) != 0) { /* keeps mkstemp's 0600, which is safe */
        }
        writer.file = fdopen(fd, "wb");
    }
    if (!writer.file) {
        int code = errno;
        if (fd >= 0) {
            close(fd);
            unlink(writer.temporary);
            hn_temporary_forget(writer.temporary);
        }
        hn_free(writer.path);
        hn_free(writer.temporary);
        HN_FAIL(err, HONE_ERR_IO, "cannot create '%s': %s", path, strerror(code));
    }
    *out_writer = writer;
    return HONE_OK;
}

hn_status hn_writer_put(hone_error *err, hn_writer *writer, const void *data, size_t bytes) {
    if (bytes && fwrite(data, 1, bytes, writer->file) != bytes)
        HN_FAIL(err, HONE_ERR_IO, "cannot write '%s': %s", writer->path, strerror(errno));
    return HONE_OK;
}

void hn_writer_cancel(hn_writer *writer) {
    if (writer->file) fclose(writer->file);
    if (writer->temporary) {
        unlink(writer->temporary);
        hn_temporary_forget(writer->temporary);
    }
    hn_free(writer->path);
    hn_free(writer->temporary);
    *writer = (hn_writer){0};
}

hn_status hn_writer_commit(hone_error *err, hn_writer *writer) {
    bool flushed = fflush(writer->file) == 0 && fsync(fileno(writer->file)) == 0;
    int code = errno;
    bool closed = fclose(writer->file) == 0;
    if (flushed && !closed) code = errno;
    writer->file = NULL;
    if (flushed && closed) {
        if (rename(writer->temporary, writer->path) == 0) {
            hn_temporary_forget(writer->temporary);
            hn_free(writer->temporary);
            writer->temporary = NULL;
            hn_writer_cancel(writer);
            return HONE_OK;
        }
        code = errno;
    }
    hone_status status =
        HN_SET(err, HONE_ERR_IO, "cannot write '%s': %s", writer->path, strerror(code));
    hn_writer_cancel(writer);
    return status;
}

hn_status hn_file_write(hone_error *err, const char *path, const void *data, size_t bytes) {
    hn_writer writer;
    HN_TRY(hn_writer_open(err, path, &writer));
    hone_status status = hn_writer_put(err, &writer, data, bytes);
    if (status != HONE_OK) {
        hn_writer_cancel(&writer);
        return status;
    }
    return hn_writer_commit(err, &writer);
}
