// SPDX-License-Identifier: Apache-2.0
// Common sub-expressions: a node that computes what another one before it in its graph, or before
// its graph in an enclosing one, has computed already. Constants of equal content likewise.
//
// Never merged: quantisation (a pair with its neighbour), random ops, control flow, unknown ops.
#include "passes/pass_int.h"

#define MAX_CONSTANT_BYTES 4096 // larger ones are not compared: mapped weights would be read

typedef struct scope_entry {
    uint64_t hash;
    hn_node *node; // or
    hn_value *constant;
} scope_entry;

// A stack: entries of a sub-graph are popped at its end. Small graphs dominate, and the hash is
// compared first, so the table is a plain open-addressing index over the stack.
typedef struct cse {
    hn_pass_ctx *ctx;
    HN_VEC(scope_entry) entries;
    HN_VEC(int32_t) buckets; // head of each chain, -1: empty
    HN_VEC(int32_t) chain;   // by entry: next of the chain
} cse;

#define BUCKETS 4096

static uint64_t hash_attr(const hn_attr *attr, uint64_t h) {
    h = hn_hash_bytes(attr->name, strlen(attr->name), h);
    h = hn_hash_bytes(&attr->type, sizeof attr->type, h);
    switch (attr->type) {
    case HN_ATTR_INT:
        return hn_hash_bytes(&attr->i, sizeof attr->i, h);
    case HN_ATTR_FLOAT:
        return hn_hash_bytes(&attr->f, sizeof attr->f, h);
    case HN_ATTR_STRING:
        return hn_hash_bytes(attr->s.data, attr->s.length, h);
    case HN_ATTR_INTS:
        return hn_hash_bytes(attr->ints, (size_t)attr->count * sizeof *attr->ints, h);
    default:
        return h; // rare ones are told apart by comparing
    }
}

static uint64_t hash_node(const hn_node *node) {
    uint64_t h = hn_hash_bytes(node->op_type, strlen(node->op_type), HN_HASH_SEED);
    for (int i = 0; i < node->input_count; i++) {
        uint32_t id = node->inputs[i] ? node->inputs[i]->id : UINT32_MAX;
        h = hn_hash_bytes(&id, sizeof id, h);
    }
    uint64_t attrs = 0; // order does not matter
    for (int i = 0; i < node->attr_count; i++)
        attrs += hash_attr(&node->attrs[i], HN_HASH_SEED);
    return hn_hash_bytes(&attrs, sizeof attrs, h);
}

static bool same_tensor(const hn_tensor *a, const hn_tensor *b) {
    return a->dtype == b->dtype && hn_shape_equal(&a->shape, &b->shape) && a->dtype != HN_STRING &&
           (a->data == b->data || (a->bytes <= MAX_CONSTANT_BYTES &&
                                   (!a->bytes || memcmp(a->data, b->data, a->bytes) == 0)));
}

static bool same_slice(hn_slice a, hn_slice b) {
    return a.length == b.length && (!a.length || memcmp(a.data, b.data, a.length) == 0);
}

static bool same_attr(const hn_attr *a, const hn_attr *b) {
    if (a->type != b->type || a->count != b->count) return false;
    size_t count = (size_t)a->count;
    switch (a->type) {
    case HN_ATTR_INT:
        return a->i == b->i;
    case HN_ATTR_FLOAT:
        return memcmp(&a->f, &b->f, sizeof a->f) == 0;
    case HN_ATTR_STRING:
        return same_slice(a->s, b->s);
    case HN_ATTR_TENSOR:
        return same_tensor(a->tensor, b->tensor);
    case HN_ATTR_GRAPH:
        return false;
    case HN_ATTR_INTS:
        return !count || memcmp(a->ints, b->ints, count * sizeof *a->ints) == 0;
    case HN_ATTR_FLOATS:
        return !count || memcmp(a->floats, b->floats, count * sizeof *a->floats) == 0;
    case HN_ATTR_STRINGS:
        for (size_t i = 0; i < count; i++)
            if (!same_slice(a->strings[i], b->strings[i])) return false;
        return true;
    }
    return false;
}

static bool same_node(const hn_node *a, const hn_node *b) {
    if (a->op != b->op || a->version != b->version || a->input_count != b->input_count ||
        a->output_count != b->output_count || a->attr_count != b->attr_count ||
        a->compute != b->compute || a->plain != b->plain || a->post_count || b->post_count)
        return false;
    for (int i = 0; i < a->input_count; i++)
        if (a->inputs[i] != b->inputs[i]) return false;
    for (int i = 0; i < a->attr_count; i++) {
        const hn_attr *other = hn_node_attr(b, a->attrs[i].name);
        if (!other || !same_attr(&a->attrs[i], other)) return false;
    }
    return true;
}

static bool eligible(const hn_node *node) {
    if (node->op == HN_OP_UNKNOWN) return false;
    return !hn_op_has(node->op, HN_T_QUANT | HN_T_RANDOM | HN_T_CONTROL);
}

// All outputs of b can be taken from a.
static bool can_merge(const hn_pass_ctx *ctx, const hn_node *a, const hn_node *b) {
    for (int i = 0; i < b->output_count; i++) {
        const hn_value *old = b->outputs[i], *kept = a->outputs[i];
        if (!old || hn_value_unused(old)) continue;
        if (!kept || !hn_pass_can_replace(ctx, old, kept)) return false;
        // Inference decides types; where the file stated different ones something is amiss.
        if (old->type.dtype != kept->type.dtype) return false;
    }
    return true;
}

static bool push(cse *c, uint64_t hash, hn_node *node, hn_value *constant) {
    size_t bucket = hash % BUCKETS;
    scope_entry entry = {hash, node, constant};
    if (!hn_vec_push(&c->entries, entry) || !hn_vec_push(&c->chain, c->buckets.data[bucket]))
        return false;
    c->buckets.data[bucket] = (int32_t)c->entries.count - 1;
    return true;
}

static void pop_to(cse *c, size_t count) {
    while (c->entries.count > count) {
        c->entries.count--;
        c->buckets.data[c->entries.data[c->entries.count].hash % BUCKETS] =
            c->chain.data[c->entries.count];
        c->chain.count--;
    }
}

static hn_status merge_constants(hone_error *err, cse *c, hn_graph *graph) {
    // Removal of values is left to dce, so the list keeps its order here.
    for (size_t i = 0; i < graph->values.count; i++) {
        hn_value *value = graph->values.data[i];
        const hn_tensor *t = value->constant;
        if (!t || value->overridable || t->dtype == HN_STRING || t->bytes > MAX_CONSTANT_BYTES ||
            hn_value_unused(value))
            continue;
        uint64_t hash = hn_hash_bytes(t->data, t->bytes, HN_HASH_SEED);
        hn_value *found = NULL;
        for (int32_t at = c->buckets.data[hash % BUCKETS]; at >= 0 && !found;
             at = c->chain.data[at]) {
            const scope_entry *entry = &c->entries.data[at];
            if (entry->constant && entry->hash == hash &&
                same_tensor(entry->constant->constant, t) &&
                hn_pass_can_replace(c->ctx, value, entry->constant))
                found = entry->constant;
        }
        if (found)
            hn_pass_replace(c->ctx, value, found);
        else if (!push(c, hash, NULL, value))
            HN_NOMEM(err, "merging constants");
    }
    return HONE_OK;
}

static hn_status merge_graph(hone_error *err, cse *c, hn_graph *graph) {
    size_t mark = c->entries.count;
    HN_TRY(merge_constants(err, c, graph));
    for (hn_node *node = graph->first, *next; node; node = next) {
        next = node->next;
        for (int i = 0; i < node->attr_count; i++)
            if (node->attrs[i].type == HN_ATTR_GRAPH)
                HN_TRY(merge_graph(err, c, node->attrs[i].graph));
        if (!eligible(node)) continue;
        uint64_t hash = hash_node(node);
        hn_node *found = NULL;
        for (int32_t at = c->buckets.data[hash % BUCKETS]; at >= 0 && !found;
             at = c->chain.data[at]) {
            const scope_entry *entry = &c->entries.data[at];
            if (entry->node && entry->hash == hash && same_node(entry->node, node) &&
                can_merge(c->ctx, entry->node, node))
                found = entry->node;
        }
        if (!found) {
            if (!push(c, hash, node, NULL)) HN_NOMEM(err, "merging expressions");
            continue;
        }
        int outputs = node->output_count;
        for (int i = 0; i < outputs; i++) {
            hn_value *old = node->outputs[i];
            if (!old || hn_value_unused(old)) continue;
            hn_value_replace(old, found->outputs[i]);
            c->ctx->changes++;
        }
        hn_pass_sweep(c->ctx, node);
    }
    pop_to(c, mark);
    return HONE_OK;
}

hone_status hn_pass_cse(hone_error *err, hn_pass_ctx *ctx) {
    cse c = {.ctx = ctx};
    hone_status status = HONE_OK;
    if (!hn_vec_reserve(&c.buckets, BUCKETS))
        status = HN_SET(err, HONE_ERR_NOMEM, "out of memory (merging expressions)");
    for (c.buckets.count = 0; status == HONE_OK && c.buckets.count < BUCKETS; c.buckets.count++)
        c.buckets.data[c.buckets.count] = -1;
    if (status == HONE_OK) status = merge_graph(err, &c, ctx->module->main);
    hn_vec_free(&c.entries);
    hn_vec_free(&c.buckets);
    hn_vec_free(&c.chain);
    return status;
}
