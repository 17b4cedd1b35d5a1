// SPDX-License-Identifier: Apache-2.0
// Name tables and the naming of values: see names.h.
#include "onnx/names.h"

static hn_names_entry *slot_of(hn_names_entry *slots, size_t capacity, uint64_t seed,
                               hn_slice key) {
    size_t at = (size_t)hn_hash_bytes(key.data, key.length, seed) & (capacity - 1);
    while (slots[at].key.data && (slots[at].key.length != key.length ||
                                  memcmp(slots[at].key.data, key.data, key.length) != 0))
        at = (at + 1) & (capacity - 1);
    return &slots[at];
}

hn_names_entry *hn_names_find(const hn_names *names, hn_slice key) {
    if (!names->capacity) return NULL;
    if (!key.data) key.data = "";
    hn_names_entry *entry = slot_of(names->slots, names->capacity, names->seed, key);
    return entry->key.data ? entry : NULL;
}

hn_names_entry *hn_names_add(hn_names *names, hn_arena *arena, hn_slice key, void *item) {
    if (names->count * 2 >= names->capacity) {
        size_t capacity = names->capacity ? names->capacity * 2 : 16;
        // Differs from run to run, so that no file can be made of colliding names.
        uint64_t seed = names->seed ? names->seed : HN_HASH_SEED ^ (uint64_t)hn_clock_ns();
        hn_names_entry *slots = hn_arena_array(arena, capacity, sizeof *slots);
        if (!slots) return NULL;
        for (size_t i = 0; i < names->capacity; i++)
            if (names->slots[i].key.data)
                *slot_of(slots, capacity, seed, names->slots[i].key) = names->slots[i];
        *names = (hn_names){slots, capacity, names->count, seed};
    }
    if (!key.data) key.data = "";
    hn_names_entry *entry = slot_of(names->slots, names->capacity, names->seed, key);
    *entry = (hn_names_entry){.key = key, .item = item};
    names->count++;
    return entry;
}

// ---- naming values ------------------------------------------------------------------------------
typedef struct name_scope {
    const struct name_scope *outer;
    hn_names names;
} name_scope;

typedef struct namer {
    hn_arena *arena;
    const char **names; // by value id
    uint64_t next;      // number of the next made-up name
} namer;

static bool taken(const name_scope *scope, hn_slice name) {
    for (; scope; scope = scope->outer)
        if (hn_names_find(&scope->names, name)) return true;
    return false;
}

static hn_status record(hone_error *err, namer *n, name_scope *scope, const hn_value *value,
                        const char *name) {
    n->names[value->id] = name;
    if (!hn_names_add(&scope->names, n->arena, (hn_slice){name, strlen(name)}, (void *)1))
        HN_NOMEM(err, "naming values");
    return HONE_OK;
}

static hn_status make_name(hone_error *err, namer *n, name_scope *scope, const hn_value *value) {
    if (n->names[value->id]) return HONE_OK;
    for (;;) {
        const char *name =
            *value->name
                ? hn_arena_printf(n->arena, "%s.%llu", value->name, (unsigned long long)n->next++)
                : hn_arena_printf(n->arena, "hone.%llu", (unsigned long long)n->next++);
        if (!name) HN_NOMEM(err, "naming values");
        if (!taken(scope, (hn_slice){name, strlen(name)}))
            return record(err, n, scope, value, name);
    }
}

// Two rounds: names that the values have, then made-up ones in the order of the nodes (the order of
// graph->values is of no meaning), so that equal graphs get equal names.
static hn_status name_graph(hone_error *err, namer *n, const hn_graph *graph,
                            const name_scope *outer) {
    name_scope scope = {.outer = outer};
    for (size_t i = 0; i < graph->values.count; i++) {
        const hn_value *value = graph->values.data[i];
        if (*value->name && !taken(&scope, (hn_slice){value->name, strlen(value->name)}))
            HN_TRY(record(err, n, &scope, value, value->name));
    }
    for (size_t i = 0; i < graph->inputs.count; i++)
        HN_TRY(make_name(err, n, &scope, graph->inputs.data[i]));
    for (const hn_node *node = graph->first; node; node = node->next) {
        for (int i = 0; i < node->input_count; i++)
            if (node->inputs[i] && node->inputs[i]->graph == graph)
                HN_TRY(make_name(err, n, &scope, node->inputs[i]));
        for (int i = 0; i < node->output_count; i++)
            if (node->outputs[i]) HN_TRY(make_name(err, n, &scope, node->outputs[i]));
    }
    for (size_t i = 0; i < graph->outputs.count; i++)
        HN_TRY(make_name(err, n, &scope, graph->outputs.data[i]));
    for (size_t i = 0; i < graph->values.count; i++) // captured or unused constants
        HN_TRY(make_name(err, n, &scope, graph->values.data[i]));
    for (const hn_node *node = graph->first; node; node = node->next)
        for (int i = 0; i < node->attr_count; i++)
            if (node->attrs[i].type == HN_ATTR_GRAPH)
                HN_TRY(name_graph(err, n, node->attrs[i].graph, &scope));
    return HONE_OK;
}

hn_status hn_names_assign(hone_error *err, const hn_module *module, hn_arena *arena,
                          const char ***out_names) {
    namer n = {.arena = arena};
    n.names = hn_arena_array(arena, (size_t)module->next_value_id + 1, sizeof *n.names);
    if (!n.names) HN_NOMEM(err, "naming values");
    HN_TRY(name_graph(err, &n, module->main, NULL));
    *out_names = n.names;
    return HONE_OK;
}
