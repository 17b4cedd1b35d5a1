// SPDX-License-Identifier: Apache-2.0
// Bump arena: many small objects of one lifetime, freed together. Not thread-safe.
#ifndef HN_BASE_ARENA_H
#define HN_BASE_ARENA_H
#include <stddef.h>
#include <stdint.h>

typedef struct hn_arena_block hn_arena_block;
typedef struct hn_arena {
    hn_arena_block *head;   // newest block, owned
    size_t block_bytes;     // size of the next ordinary block
    size_t used_bytes;      // sum of what was asked for
    size_t reserved_bytes;  // sum of the blocks
} hn_arena;

// An all-zero hn_arena is valid and empty.
void *hn_arena_alloc(hn_arena *arena, size_t bytes);                   // 16-byte aligned, NULL on failure
void *hn_arena_zalloc(hn_arena *arena, size_t bytes);
void *hn_arena_array(hn_arena *arena, size_t count, size_t bytes);     // zeroed, checked product
char *hn_arena_strdup(hn_arena *arena, const char *text);
char *hn_arena_strndup(hn_arena *arena, const char *text, size_t length);
char *hn_arena_printf(hn_arena *arena, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void hn_arena_free(hn_arena *arena); // frees all blocks; the arena is empty and usable again
#endif
