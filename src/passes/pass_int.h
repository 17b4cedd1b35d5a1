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
// Same element type and shape, both known.
bool hn_pass_same_type(const hn_value *a, const hn_value *b);
bool hn_pass_is_8bit(const hn_value *value); // int8 or uint8
bool hn_pass_is(const hn_node *node, const char *op_type); // of the ONNX domain; NULL node: false
// One new node of the op named (ONNX domain; inferred), or NULL when out of memory. For ops that
// need attributes: make, set, then hn_infer_node.
hn_value *hn_pass_build(hn_node *before, const char *op_type, hn_value *const *inputs, int count);
hn_node *hn_pass_make(hn_node *before, const char *op_type, hn_value *const *inputs, int count);
// A new constant in the graph of `at`.
hn_value *hn_pass_add_constant(hn_node *at, hn_tensor *tensor);
// Removes the node if all its outputs are unused, then its producers likewise.
void hn_pass_sweep(hn_pass_ctx *ctx, hn_node *node);

// ---- element-wise steps (device) ----------------------------------------------------------------
// An element-wise operator that may be fused, of one or two operands.
bool hn_pass_step_known(const char *op_type, bool *out_binary);
// Bounds of a Clip as plain numbers, absent ones infinite; false where they are not constant.
bool hn_pass_clip_bounds(const hn_node *clip, float *out_low, float *out_high);

// ---- posts (device) -----------------------------------------------------------------------------
// May the only user of the node's output become its next post? Single use, no graph output, not
// pinned, same float32 type. The operand (NULL: unary) is not yet an input of the node.
bool hn_pass_post_of(const hn_pass_ctx *ctx, const hn_node *producer, hn_node **out_step,
                     hn_post *out_post, hn_value **out_operand);
// Appends the post, whose operands are inputs of the node already, in the place of `step`.
hn_status hn_pass_absorb(hone_error *err, hn_pass_ctx *ctx, hn_node *node, hn_node *step,
                         const hn_post *post);
// Everything behind the node that can become its posts.
hn_status hn_pass_absorb_steps(hone_error *err, hn_pass_ctx *ctx, hn_node *node);
#endif
