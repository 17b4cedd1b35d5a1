// SPDX-License-Identifier: Apache-2.0
// Heap access with counters and fault injection: see alloc.h.
#include "base/alloc.h"
#include "base/check.h"
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static atomic_uint_fast64_t g_calls;
static atomic_int_fast64_t g_fail_in; // 0: off; n: the nth call from now fails

static bool refuse(void) {
    atomic_fetch_add_explicit(&g_calls, 1, memory_order_relaxed);
    if (atomic_load_explicit(&g_fail_in, memory_order_relaxed) <= 0) return false;
    return atomic_fetch_sub_explicit(&g_fail_in, 1, memory_order_relaxed) == 1;
}

void *hn_malloc(size_t bytes) {
    if (refuse()) return NULL;
    return malloc(bytes ? bytes : 1);
}

void *hn_calloc(size_t count, size_t bytes) {
    if (refuse()) return NULL;
    if (count == 0 || bytes == 0) count = bytes = 1;
    return calloc(count, bytes);
}

void *hn_realloc(void *block, size_t bytes) {
    if (refuse()) return NULL;
    return realloc(block, bytes ? bytes : 1);
}

void *hn_realloc_array(void *block, size_t count, size_t bytes) {
    size_t total;
    if (!hn_mul_size(count, bytes, &total)) return NULL;
    return hn_realloc(block, total);
}

void *hn_malloc_aligned(size_t bytes) {
    size_t rounded;
    if (refuse() || !hn_round_up_size(bytes ? bytes : 1, HN_ALIGN, &rounded)) return NULL;
    return aligned_alloc(HN_ALIGN, rounded);
}

void hn_free(void *block) { free(block); }

#define HUGE_BYTES ((size_t)2 << 20)

void *hn_pages_new(size_t bytes) {
    size_t room;
    // Starts at a huge page, with what is beside it given back at once.
    if (refuse() || !hn_add_size(bytes ? bytes : 1, bytes >= HUGE_BYTES ? HUGE_BYTES : 0, &room))
        return NULL;
    char *all = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) return NULL;
    if (bytes < HUGE_BYTES) return all;
    char *start = (char *)(((uintptr_t)all + HUGE_BYTES - 1) & ~(HUGE_BYTES - 1));
    size_t page = 4096, before = (size_t)(start - all), used = (bytes + page - 1) / page * page;
    if (before) munmap(all, before);
    if (room > before + used) munmap(start + used, room - before - used);
    (void)madvise(start, bytes, MADV_HUGEPAGE); // a hint
    return start;
}

void hn_pages_free(void *pages, size_t bytes) {
    if (pages) munmap(pages, bytes ? bytes : 1);
}

void hn_resident_bytes(size_t *out_own, size_t *out_files, size_t *out_peak) {
    char line[128];
    unsigned long long kib;
    *out_own = *out_files = *out_peak = 0;
    FILE *file = fopen("/proc/self/status", "re");
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "RssAnon: %llu", &kib) == 1) *out_own = (size_t)kib << 10;
        if (sscanf(line, "VmHWM: %llu", &kib) == 1) *out_peak = (size_t)kib << 10;
        if (sscanf(line, "RssFile: %llu", &kib) == 1) *out_files = (size_t)kib << 10;
    }
    if (file) fclose(file);
}

char *hn_strndup(const char *text, size_t length) {
    char *copy = hn_malloc(length + 1);
    if (!copy) return NULL;
    memcpy(copy, text, length);
    copy[length] = '\0';
    return copy;
}

char *hn_strdup(const char *text) { return hn_strndup(text, strlen(text)); }

uint64_t hn_alloc_calls(void) { return atomic_load_explicit(&g_calls, memory_order_relaxed); }

void hn_alloc_fail_nth(uint64_t nth) {
    atomic_store_explicit(&g_fail_in, (int_fast64_t)nth, memory_order_relaxed);
}
