// SPDX-License-Identifier: Apache-2.0
// The only door to the heap: malloc and free appear in alloc.c alone.
//
// All functions are thread-safe. Blocks are aligned to 64 bytes where `aligned` says so, else to
// max_align_t. Sizes of 0 give a valid unique block. Failure gives NULL, never an abort.
#ifndef HN_BASE_ALLOC_H
#define HN_BASE_ALLOC_H
#include <stddef.h>
#include <stdint.h>

#define HN_ALIGN 64 // cache line; also the widest vector here (AVX-512)

void *hn_malloc(size_t bytes);
void *hn_calloc(size_t count, size_t bytes); // checked product
void *hn_realloc(void *block, size_t bytes);
void *hn_realloc_array(void *block, size_t count, size_t bytes); // checked product
void *hn_malloc_aligned(size_t bytes);                           // HN_ALIGN; free with hn_free
void hn_free(void *block);                                       // takes NULL
// Zeroed memory of its own pages, for large blocks that live long: huge pages where the system gives
// them (a tenth of the page faults, and fewer misses of the TLB in every run). Freed with the size.
void *hn_pages_new(size_t bytes);
void hn_pages_free(void *pages, size_t bytes); // takes NULL
// What of this process is in memory: its own pages and those of mapped files now, the most of both
// together. 0 where unknown.
void hn_resident_bytes(size_t *out_own, size_t *out_files, size_t *out_peak);
char *hn_strdup(const char *text);
char *hn_strndup(const char *text, size_t length);

// Counters for tests and reports: calls of the allocating functions since process start.
uint64_t hn_alloc_calls(void);
// Test hook: the nth allocating call from now on (1 = next) fails once; 0 switches it off.
void hn_alloc_fail_nth(uint64_t nth);
#endif
