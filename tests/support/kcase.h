// SPDX-License-Identifier: Apache-2.0
// What the kernel checks of all backends share: a row of kernels/cases.def becomes a node with inputs
// and the reference's outputs; memory that ends in guard bands; comparing within a tolerance.
#ifndef HN_TEST_KCASE_H
#define HN_TEST_KCASE_H
#include "support/test.h"
#include "backends/backend.h"

typedef struct kcase {
    const char *op, *attrs, *inputs, *posts, *flags;
} kcase;
typedef struct kcase_built {
    hn_module *module;
    hn_node *node;
    int input_count, output_count;
    hn_tensor in[16], ref[4];
    const hn_tensor *in_list[16];
} kcase_built;
extern uint64_t kcase_seed;

// Fails the test where the row is wrong. spoiled: a NaN and infinities among the float inputs.
void kcase_build(const kcase *c, bool spoiled, kcase_built *b);
void kcase_drop(kcase_built *b);

#define GUARD 256
typedef struct kcase_guarded {
    unsigned char *block;
    size_t bytes;
} kcase_guarded;
kcase_guarded kcase_guard_new(size_t bytes);
void *kcase_guard_data(const kcase_guarded *g);
bool kcase_guard_whole(const kcase_guarded *g);
// Copies between plain and a host layout.
void kcase_relayout(const hn_tensor *like, hn_layout layout, const void *from, void *to, bool back);
bool kcase_same(const hn_tensor *ref, const void *got_data, float rtol, float atol, bool spread,
                double *worst);
// Rows of cards' kernels (by variant) that have a generic form, kernels/forms.def.
bool kcase_has_form(const char *variant);
// "f32[2,3]" as "f16[2,3]" everywhere.
void kcase_retype(const char *inputs, const char *type, char *out, size_t size);
#endif
