// SPDX-License-Identifier: Apache-2.0
// Bump arena: see arena.h. Blocks grow from 4 KiB to 1 MiB; larger requests get their own block,
// linked behind the head so that the rest of the head stays in use.
#include "base/arena.h"
#include "base/alloc.h"
#include "base/check.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define FIRST_BLOCK_BYTES 4096u
#define LAST_BLOCK_BYTES  (1u << 20)

struct hn_arena_block {
    hn_arena_block *next;
    size_t size_bytes; // payload
    size_t used_bytes;
    size_t pad;        // keeps the payload 16-byte aligned
};

static hn_arena_block *block_new(hn_arena *arena, size_t payload) {
    size_t total;
    if (!hn_add_size(payload, sizeof(hn_arena_block), &total)) return NULL;
    hn_arena_block *block = hn_malloc(total);
    if (!block) return NULL;
    *block = (hn_arena_block){.size_bytes = payload};
    arena->reserved_bytes += total;
    return block;
}

void *hn_arena_alloc(hn_arena *arena, size_t bytes) {
    size_t need;
    if (!hn_round_up_size(bytes ? bytes : 1, 16, &need)) return NULL;
    hn_arena_block *head = arena->head;
    if (!head || head->size_bytes - head->used_bytes < need) {
        size_t ordinary = arena->block_bytes ? arena->block_bytes : FIRST_BLOCK_BYTES;
        if (need > ordinary / 2) {
            hn_arena_block *own = block_new(arena, need);
            if (!own) return NULL;
            own->used_bytes = need;
            if (head) {
                own->next = head->next;
                head->next = own;
            } else {
                arena->head = own;
            }
            arena->used_bytes += bytes;
            return own + 1;
        }
        head = block_new(arena, ordinary);
        if (!head) return NULL;
        head->next = arena->head;
        arena->head = head;
        arena->block_bytes = ordinary < LAST_BLOCK_BYTES ? ordinary * 2 : ordinary;
    }
    void *out = (char *)(head + 1) + head->used_bytes;
    head->used_bytes += need;
    arena->used_bytes += bytes;
    return out;
}

void *hn_arena_zalloc(hn_arena *arena, size_t bytes) {
    void *out = hn_arena_alloc(arena, bytes);
    if (out) memset(out, 0, bytes);
    return out;
}

void *hn_arena_array(hn_arena *arena, size_t count, size_t bytes) {
    size_t total;
    return hn_mul_size(count, bytes, &total) ? hn_arena_zalloc(arena, total) : NULL;
}

char *hn_arena_strndup(hn_arena *arena, const char *text, size_t length) {
    char *out = length < SIZE_MAX ? hn_arena_alloc(arena, length + 1) : NULL;
    if (!out) return NULL;
    if (length) memcpy(out, text, length);
    out[length] = '\0';
    return out;
}

char *hn_arena_strdup(hn_arena *arena, const char *text) {
    return hn_arena_strndup(arena, text, strlen(text));
}

char *hn_arena_printf(hn_arena *arena, const char *fmt, ...) {
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    char *out = length >= 0 ? hn_arena_alloc(arena, (size_t)length + 1) : NULL;
    if (out) vsnprintf(out, (size_t)length + 1, fmt, again);
    va_end(again);
    return out;
}

void hn_arena_free(hn_arena *arena) {
    for (hn_arena_block *block = arena->head, *next; block; block = next) {
        next = block->next;
        hn_free(block);
    }
    *arena = (hn_arena){0};
}
