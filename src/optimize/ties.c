// SPDX-License-Identifier: Apache-2.0
// The strategy `ties`: weights that a file holds more than once (an embedding and the projection tied to
// it, layers that share) are kept once. Small ones are merged by the pass cse already.
#include <stdlib.h>
#include "optimize/optimize_int.h"

#define TIE_BYTES_MIN 4096 // as in passes/cse.c

typedef struct weight {
    uint64_t hash;
    hn_value *value;
} weight;

static bool same_tensor(const hn_tensor *a, const hn_tensor *b) {
    return a->dtype == b->dtype && hn_shape_equal(&a->shape, &b->shape) && a->bytes == b->bytes &&
           memcmp(a->data, b->data, a->bytes) == 0;
}

// Equal hashes stand together, the first of the file first.
static int by_hash(const void *a, const void *b) {
    const weight *x = a, *y = b;
    if (x->hash != y->hash) return x->hash < y->hash ? -1 : 1;
    return x->value->id < y->value->id ? -1 : x->value->id > y->value->id;
}

// Lets the later of two equal weights go; adds its bytes.
static bool tie(hn_value *kept, hn_value *gone, int64_t *bytes) {
    if (!gone->constant || !same_tensor(kept->constant, gone->constant) ||
        !hn_value_can_replace(gone, kept))
        return false;
    *bytes += (int64_t)gone->constant->bytes;
    hn_value_replace(gone, kept);
    hn_value_remove(gone);
    return true;
}

static hn_status tie_all(hone_error *err, hn_module *module, int *out_count, int64_t *out_bytes) {
    HN_VEC(weight) list = {0};
    for (size_t i = 0; i < module->main->values.count; i++) {
        hn_value *v = module->main->values.data[i];
        const hn_tensor *t = v->constant;
        if (!t || v->overridable || t->dtype == HN_STRING || t->bytes <= TIE_BYTES_MIN) continue;
        weight w = {hn_hash_bytes(t->data, t->bytes, HN_HASH_SEED), v};
        if (hn_vec_push(&list, w)) continue;
        hn_vec_free(&list);
        HN_NOMEM(err, "looking for equal weights");
    }
    if (list.count) qsort(list.data, list.count, sizeof *list.data, by_hash);
    for (size_t i = 0; i < list.count; i++)
        for (size_t k = i + 1; list.data[i].value && k < list.count && list.data[k].hash == list.data[i].hash; k++)
            if (list.data[k].value && tie(list.data[i].value, list.data[k].value, out_bytes)) {
                list.data[k].value = NULL;
                ++*out_count;
            }
    hn_vec_free(&list);
    return HONE_OK;
}

hone_status hn_strategy_ties(hone_error *err, hn_optimizer *o, hn_module **out_module,
                             json_t **out_decision, char *why, size_t why_size) {
    hn_module *module = hn_module_clone(o->current, NULL);
    if (!module) HN_NOMEM(err, "looking for equal weights");
    int count = 0;
    int64_t bytes = 0;
    hone_status status = tie_all(err, module, &count, &bytes);
    if (status == HONE_OK && count) status = hn_name_values(err, module);
    if (status != HONE_OK || !count) {
        hn_module_free(module);
        if (status == HONE_OK) snprintf(why, why_size, "no weight stands in the file twice");
        return status;
    }
    snprintf(why, why_size, "%d weights of %.1f KiB were there before", count, (double)bytes / 1024);
    *out_decision = json_pack("{s:i,s:I}", "weights", count, "bytes", (json_int_t)bytes);
    *out_module = module;
    return HONE_OK;
}
