// SPDX-License-Identifier: Apache-2.0
// What the passes share: their prototypes, legality, and small graph helpers.
#ifndef HN_PASS_INT_H
#define HN_PASS_INT_H
#include "passes/passes.h"

#define HN_PASS(name, ...) hone_status hn_pass_##name(hone_error *err, hn_pass_ctx *ctx);
#include "passes/passes.def"
#undef HN_PASS

// ---- legality: the only place that decides it ---------------------------------------------------
// A value that must survive by identity.
bool hn_pass_pinned(const hn_pass_ctx *ctx, const hn_value *value);
// The value may vanish into its only user: one use, in the same graph, no graph output, not pinned.
bool hn_pass_can_absorb(const hn_pass_ctx *ctx, const hn_value *value);
// All uses of `from` may be given to `to` and `from` may go.
bool hn_pass_can_replace(const hn_pass_ctx *ctx, const hn_value *from, const hn_value *to);
// Content that may be built into something else: constant, and not overridable unless frozen.
const hn_tensor *hn_pass_constant(const hn_pass_ctx *ctx, const hn_value *value);

// ---- editing ------------------------------------------------------------------------------------
// Calls fn for every graph of the module, sub-graphs first.
typedef hone_status (*hn_graph_fn)(hone_error *err, hn_pass_ctx *ctx, hn_graph *graph);
hn_status hn_pass_each_graph(hone_error *err, hn_pass_ctx *ctx, hn_graph_fn fn);
// Replaces from by to (types merged) and removes what became dead at `from`. Counts a change.
void hn_pass_replace(hn_pass_ctx *ctx, hn_value *from, hn_value *to);
// Removes the node if all its outputs are unused, then its producers likewise.
void hn_pass_sweep(hn_pass_ctx *ctx, hn_node *node);
#endif
