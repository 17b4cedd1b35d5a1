// SPDX-License-Identifier: Apache-2.0
// A map from names to pointers, and the naming of values for a file.
//
// Keys are borrowed and the table lives in an arena. The hash is seeded per table, so that no file
// can be made of colliding names; nothing depends on the order of the slots.
#ifndef HN_ONNX_NAMES_H
#define HN_ONNX_NAMES_H
#include "ir/graph.h"

typedef struct hn_names_entry {
    hn_slice key; // data NULL: free slot
    void *item;
    bool pending; // an output of a function call that the body has yet to produce
} hn_names_entry;

typedef struct hn_names {
    hn_names_entry *slots;
    size_t capacity, count; // capacity a power of two, or 0
    uint64_t seed;
} hn_names;
hn_names_entry *hn_names_find(const hn_names *names, hn_slice key); // NULL: absent
// NULL when out of memory. The key must be absent; it is borrowed.
hn_names_entry *hn_names_add(hn_names *names, hn_arena *arena, hn_slice key, void *item);

// A name for every value of the module, by value id: its own where it has one that no enclosing
// graph uses, else a new one. The names live in the arena.
hn_status hn_names_assign(hone_error *err, const hn_module *module, hn_arena *arena,
                          const char ***out_names);
#endif
