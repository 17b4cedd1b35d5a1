// SPDX-License-Identifier: Apache-2.0
// The op table: what every other module knows about operators comes from ops.def.
//
// One row an op; the functions named in a row live in one file an op family (ops/<family>.c). An
// absent function is NULL in the table: a node whose op has no reference is UNSUPPORTED at load.
#ifndef HN_OPS_H
#define HN_OPS_H
#include "ir/graph.h"

typedef enum hn_op_token {
    HN_OP_UNKNOWN = 0,
#define HN_OP(token, ...) HN_OP_##token,
#include "ops/ops.def"
#undef HN_OP
    HN_OP_END
} hn_op_token;

// Traits: bits of hn_op_info.traits.
enum {
    HN_T_ELEMENTWISE = 1 << 0,  // output i depends on inputs' element i only, with broadcasting
    HN_T_COMMUTATIVE = 1 << 1,
    HN_T_REDUCTION = 1 << 2,
    HN_T_VIEW = 1 << 3,         // output 0 has input 0's bytes in the same order
    HN_T_SENSITIVE = 1 << 4,    // precision-sensitive: stays float32 in reduced precision
    HN_T_RANDOM = 1 << 5,       // result differs from call to call: no CSE, no folding
    HN_T_CONTROL = 1 << 6,      // has sub-graphs that are run by the executor (If, Loop, Scan)
    HN_T_DYNAMIC = 1 << 7,      // output shape depends on input values (NonZero, NMS, Unique)
    HN_T_QUANT = 1 << 8,        // QuantizeLinear and its like: never folded, merged or moved
    HN_T_INTERNAL = 1 << 9,     // hn.* op of device graphs: never exported
    HN_T_MATMUL = 1 << 10,      // heavy: Conv, Gemm, MatMul and their like
    HN_T_INPLACE = 1 << 11,     // output 0 may use input 0's memory when types and sizes match
    HN_T_MOVE = 1 << 12,        // moves elements without computing (Transpose, Slice, Gather, Pad..)
};

// ---- shape and type inference ------------------------------------------------------------------
// Runs over symbolic dims; with constant dims it gives constant dims. It sets the types (and where
// shape arithmetic passes through, the elems) of the node's outputs. Inputs of unknown type are
// normal: what cannot be said is left unknown, never guessed. Contradictions are HONE_ERR_FORMAT
// naming the node. Output types already set from the file are overwritten by what was inferred, and
// kept where nothing was.
typedef struct hn_infer {
    hn_node *node;
    hn_module *module;
    hn_dims *dims;
} hn_infer;
typedef hone_status (*hn_infer_fn)(hone_error *err, hn_infer *ctx);

// ---- reference ---------------------------------------------------------------------------------
// The plain C meaning of an op: dense row-major tensors, single-threaded, double or exact integer
// accumulation where it costs nothing in clarity. Outputs arrive with type, shape and memory as
// inferred from the concrete inputs; ops with HN_T_DYNAMIC call hn_call_output instead.
typedef struct hn_call {
    const hn_node *node;
    int input_count, output_count;
    const hn_tensor *const *inputs; // NULL: absent
    hn_tensor *const *outputs;      // NULL: not wanted
    uint64_t seed;                  // for HN_T_RANDOM ops
} hn_call;
typedef hone_status (*hn_ref_fn)(hone_error *err, const hn_call *call);
// Allocates output `index` (HN_T_DYNAMIC ops). No-op returning HONE_OK if the output is not wanted.
hn_status hn_call_output(hone_error *err, const hn_call *call, int index, hn_dtype dtype,
                         const hn_shape *shape);

// ---- gradient ----------------------------------------------------------------------------------
// Builds forward nodes that compute the gradients of the node's inputs from those of its outputs.
// grad_out[i] is NULL where no gradient flows; the function writes grad_in[i] (NULL: none).
typedef struct hn_grad {
    hn_graph *graph;        // nodes are appended here
    const hn_node *node;
    hn_value *const *grad_out;
    hn_value **grad_in;
} hn_grad;
typedef hone_status (*hn_grad_fn)(hone_error *err, hn_grad *ctx);

// ---- cost ---------------------------------------------------------------------------------------
typedef struct hn_cost {
    double flops;       // multiply and add count as two; comparisons and moves as none
    double read_bytes, write_bytes;
} hn_cost;
// Called with constant dims only.
typedef void (*hn_cost_fn)(const hn_node *node, hn_cost *out_cost);

typedef struct hn_op_info {
    const char *name;    // "Conv"
    const char *domain;  // "", "com.microsoft", "hn"
    int since;           // lowest opset version whose semantics infer/ref have (after raising)
    int min_in, max_in;  // max -1: variadic
    int min_out, max_out;
    uint32_t traits;
    const char *attrs;   // schema: "axis:i=0 axes:is keepdims:i=1 mode:s=constant value:t"; '!' marks
                         // a required one ("to:i!")
    hn_infer_fn infer;
    hn_ref_fn ref;
    hn_grad_fn grad;     // NULL: not differentiable here
    hn_cost_fn cost;     // NULL: default: 0 flops, bytes of inputs and outputs; element-wise: 1 a unit
    float rtol, atol;    // float32 tolerance of fast paths against the reference
} hn_op_info;

const hn_op_info *hn_op_get(hn_op op);                        // never NULL; row 0 is "?"
hn_op hn_op_find(const char *domain, const char *op_type);    // HN_OP_UNKNOWN when absent
static inline bool hn_op_has(hn_op op, uint32_t trait) { return (hn_op_get(op)->traits & trait) != 0; }

// Appends a node of a table op before `before` (NULL: end).
hn_node *hn_node_make(hn_graph *graph, hn_node *before, hn_op op, hn_value *const *inputs,
                      int input_count, int output_count);
// One-output convenience: returns the output value, inferred. NULL when out of memory.
hn_value *hn_build(hn_graph *graph, hn_node *before, hn_op op, hn_value *const *inputs,
                   int input_count);

hn_status hn_ops_resolve(hone_error *err, hn_module *module); // op numbers from op_type and domain
// Infers one node; infers all nodes of the module, sub-graphs included (with captures known).
hn_status hn_infer_node(hone_error *err, hn_node *node);
// hn_infer_graph infers one graph; the infer functions of If, Loop and Scan set the types of their
// bodies' inputs and call it for the bodies.
hn_status hn_infer_graph(hone_error *err, hn_graph *graph);
hn_status hn_infer_module(hone_error *err, hn_module *module);
// Arity, required attributes, attribute types, dtype consistency, posts: names node and reason.
// Unknown ops are let through when allow_unknown.
hn_status hn_ops_verify(hone_error *err, const hn_module *module, bool allow_unknown);
void hn_node_cost(const hn_node *node, hn_cost *out_cost); // uses the row or the default
// Attribute with the schema's default.
int64_t hn_op_int(const hn_node *node, const char *name);
float hn_op_float(const hn_node *node, const char *name);
hn_slice hn_op_string(const hn_node *node, const char *name);

// Runs a node's reference, its posts included, on concrete inputs: outputs are allocated here
// (owned by the caller). Inference is done on the given shapes, so the node's graph is not touched.
// Not for control flow (the executor's task). outputs[i] is zeroed where not wanted.
hn_status hn_ref_run(hone_error *err, const hn_node *node, const hn_tensor *const *inputs,
                     int input_count, hn_tensor *outputs, int output_count, uint64_t seed);

// Calls the reference of a node without posts on memory that is already there (types as inferred).
hn_status hn_ref_call(hone_error *err, const hn_node *node, const hn_tensor *const *inputs,
                      int input_count, hn_tensor *const *outputs, int output_count, uint64_t seed);
// Writes the posts of `node` out as ordinary nodes behind it (before node->next): the fallback where
// a backend cannot run them, and their meaning. Uses of the node's output 0 move to the last one.
hn_status hn_post_expand(hone_error *err, hn_node *node);

// ---- helpers for infer functions (ops/infer.c) -------------------------------------------------
static inline hn_value *hn_in(const hn_node *node, int index) {
    return index < node->input_count ? node->inputs[index] : NULL;
}
static inline hn_value *hn_out(const hn_node *node, int index) {
    return index < node->output_count ? node->outputs[index] : NULL;
}
// Sets dtype and shape of output `index` if it is wanted.
void hn_infer_set(hn_infer *ctx, int index, hn_dtype dtype, int rank, const hn_dim *dims);
void hn_infer_like(hn_infer *ctx, int index, const hn_value *like); // whole type
// Numpy broadcasting of two or more types; false with the record filled on a contradiction.
hn_status hn_infer_broadcast(hone_error *err, hn_infer *ctx, const hn_value *const *values,
                             int count, int *out_rank, hn_dim *out_dims);
// Content of a small integer value as far as known: constant data or elems. NULL: unknown.
const hn_dim *hn_value_elems(hn_module *module, const hn_value *value, int *out_count);
// True and the numbers if every element is a constant (at most max).
bool hn_value_ints(hn_module *module, const hn_value *value, int64_t *out, int max, int *out_count);
void hn_infer_set_elems(hn_infer *ctx, int index, const hn_dim *elems, int count); // copies
bool hn_axis_normalise(int64_t axis, int rank, int *out_axis); // -rank..rank-1
#endif
