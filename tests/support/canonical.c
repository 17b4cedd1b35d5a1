// SPDX-License-Identifier: Apache-2.0
#include "support/canonical.h"
#include <stdlib.h>
#include <string.h>

static uint64_t of_value(const hn_graph *graph, const hn_value *value);

static uint64_t mix(uint64_t seed, uint64_t more) {
    return hn_hash_bytes(&more, sizeof more, seed);
}

static uint64_t of_text(uint64_t seed, const char *text) {
    return hn_hash_bytes(text, strlen(text), seed);
}

static uint64_t of_type(uint64_t seed, const hn_type *type) {
    seed = mix(mix(seed, (uint64_t)type->dtype), (uint64_t)type->rank);
    for (int i = 0; i < type->rank; i++)
        seed = mix(seed, hn_dim_is_const(type->dims[i]) ? (uint64_t)type->dims[i] : UINT64_MAX);
    return seed;
}

static uint64_t of_numbers(uint64_t seed, const hn_tensor *t) {
    int64_t count = hn_tensor_count(t);
    for (int64_t i = 0; !hn_dtype_is_float(t->dtype) && count <= 64 && i < count; i++)
        seed = mix(seed, (uint64_t)hn_tensor_get_i64(t, i));
    return seed;
}

// By the schema, so that what stands there at its default counts as absent. Where a form counts axes
// from the end the rank is added.
static uint64_t of_attrs(uint64_t seed, const hn_node *node) {
    int rank = node->inputs[0] ? node->inputs[0]->type.rank : 0;
    for (const char *at = hn_op_get(node->op)->attrs; at && *at;) {
        char name[64];
        size_t length = strcspn(at, ":");
        int64_t count = 0;
        snprintf(name, sizeof name, "%.*s", (int)length, at);
        const char *type = at + length + (at[length] == ':');
        at += strcspn(at, " ");
        at += strspn(at, " ");
        if (strcmp(name, "allowzero") == 0) continue; // says nothing once shapes are known
        if (strncmp(type, "is", 2) == 0) {
            const int64_t *ints = hn_node_ints(node, name, &count);
            for (int64_t i = 0; i < count; i++)
                seed = mix(seed, (uint64_t)ints[i]);
        } else if (*type == 'i') {
            int64_t number = hn_op_int(node, name);
            seed = mix(seed, (uint64_t)(strcmp(name, "axis") == 0 && number < 0 ? number + rank : number));
        } else if (*type == 'f' && type[1] != 's') {
            float number = hn_op_float(node, name);
            seed = hn_hash_bytes(&number, sizeof number, seed);
        }
    }
    return seed;
}

static bool is_view(const hn_node *node) {
    static const char *const k_views[] = {"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Expand"};
    for (size_t i = 0; i < HN_COUNT_OF(k_views); i++)
        if (strcmp(hn_op_get(node->op)->name, k_views[i]) == 0) return true;
    return false;
}

static uint64_t of_operand(const hn_graph *graph, const hn_node *node, int index) {
    const hn_value *value = node->inputs[index];
    if (!value) return 1;
    if (is_view(node) && index > 0) return 2;
    return of_value(graph, value);
}

static uint64_t of_node(const hn_graph *graph, const hn_node *node) {
    const hn_op_info *info = hn_op_get(node->op);
    int own = node->post_count ? node->base_input_count : node->input_count;
    uint64_t h = of_attrs(of_text(of_text(17, info->domain), info->name), node), sum = 0;
    for (int i = 0; i < own; i++) {
        uint64_t operand = of_operand(graph, node, i);
        if (info->traits & HN_T_COMMUTATIVE) sum += mix(7, operand);
        else h = mix(h, operand);
    }
    h = mix(h, sum);
    for (int i = 0; i < node->post_count; i++) {
        const hn_post *p = &node->post[i];
        bool commutes = hn_op_has(p->op, HN_T_COMMUTATIVE);
        h = of_text(h, hn_op_get(p->op)->name);
        h = mix(h, p->input < 0 ? 3 : of_operand(graph, node, p->input));
        h = mix(h, !commutes && p->swapped);
        h = hn_hash_bytes(&p->alpha, sizeof p->alpha, h);
        h = hn_hash_bytes(&p->beta, sizeof p->beta, h);
    }
    return h;
}

// Without a table of what is done: graphs of tests are small, and chains are short between joins that
// passes have not made one.
static uint64_t of_value(const hn_graph *graph, const hn_value *value) {
    uint64_t h = of_type(31, &value->type);
    if (value->constant && hn_tensor_count(value->constant) == 1) // [] and [1] broadcast alike
        h = mix(37, (uint64_t)value->type.dtype);
    if (value->constant) return mix(of_numbers(h, value->constant), 5);
    for (size_t i = 0; i < graph->inputs.count; i++)
        if (graph->inputs.data[i] == value) return mix(h, 100 + i);
    if (!value->producer) return mix(h, 6);
    for (int i = 0; i < value->producer->output_count; i++)
        if (value->producer->outputs[i] == value) h = mix(h, (uint64_t)i);
    return mix(h, of_node(graph, value->producer));
}

uint64_t test_graph_digest(const hn_module *module) {
    uint64_t h = 0;
    for (size_t i = 0; i < module->main->outputs.count; i++)
        h = mix(h, of_value(module->main, module->main->outputs.data[i]));
    return h;
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

void test_graph_census(const hn_module *module, hn_str *out) {
    HN_VEC(const char *) names = {0};
    for (const hn_node *node = module->main->first; node; node = node->next)
        (void)hn_vec_push(&names, hn_op_get(node->op)->name);
    if (names.count) qsort(names.data, names.count, sizeof *names.data, by_name);
    for (size_t i = 0, n; i < names.count; i += n) {
        for (n = 1; i + n < names.count && strcmp(names.data[i], names.data[i + n]) == 0;)
            n++;
        hn_str_printf(out, "%s%s %zu", i ? ", " : "", names.data[i], n);
    }
    hn_vec_free(&names);
}
