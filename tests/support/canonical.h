// SPDX-License-Identifier: Apache-2.0
// Whether two graphs compute the same by the same steps, whatever their names, the order of their
// nodes, the order of commuting operands and attributes written out at their default value.
#ifndef HN_TEST_CANONICAL_H
#define HN_TEST_CANONICAL_H
#include "ops/ops.h"

// Of the main graph's outputs: operators, attributes, posts, types; of constants the type, and of small
// integer ones the numbers unless a view reads them (its result says the same).
uint64_t test_graph_digest(const hn_module *module);
// Operators and how often each is there, in order of names.
void test_graph_census(const hn_module *module, hn_str *out);
#endif
