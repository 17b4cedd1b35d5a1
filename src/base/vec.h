// SPDX-License-Identifier: Apache-2.0
// Growable arrays: HN_VEC(type) declares {type *data; size_t count, capacity;}; zero is empty.
#ifndef HN_BASE_VEC_H
#define HN_BASE_VEC_H
#include <stdbool.h>
#include <stddef.h>
#include "base/alloc.h"

#define HN_VEC(type)                                                                               \
    struct {                                                                                       \
        type *data;                                                                                \
        size_t count, capacity;                                                                    \
    }

static inline bool hn_vec_grow(void **data, size_t *capacity, size_t need, size_t item_bytes) {
    if (need <= *capacity) return true;
    size_t grown = *capacity ? *capacity * 2 : 8;
    if (grown < need) grown = need;
    void *bigger = hn_realloc_array(*data, grown, item_bytes);
    if (!bigger) return false;
    *data = bigger;
    *capacity = grown;
    return true;
}
// Makes room for `extra` more items; false when out of memory.
#define hn_vec_reserve(v, extra)                                                                   \
    hn_vec_grow((void **)&(v)->data, &(v)->capacity, (v)->count + (extra), sizeof *(v)->data)
// Appends; evaluates to false when out of memory.
#define hn_vec_push(v, item) (hn_vec_reserve(v, 1) ? ((v)->data[(v)->count++] = (item), true) : false)
#define hn_vec_free(v) (hn_free((v)->data), (v)->data = NULL, (v)->count = (v)->capacity = 0)
#endif
