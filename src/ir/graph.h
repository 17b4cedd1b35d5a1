// SPDX-License-Identifier: Apache-2.0
// The graph: values in SSA form, nodes in an ordered list, sub-graphs hanging on attributes.
//
// A module owns everything in arenas; nodes and values live until the module is freed (removing
// one only unlinks it; the content of a removed constant is dropped at once). The node list of every graph is in topological order. A node of a sub-graph
// refers to an outer value by its pointer (capture); such uses are listed in the outer value's uses.
// Absent optional inputs and outputs are NULL and keep their position. Not thread-safe.
#ifndef HN_IR_GRAPH_H
#define HN_IR_GRAPH_H
#include "ir/dim.h"
#include "ir/tensor.h"

typedef struct hn_value hn_value;
typedef struct hn_node hn_node;
typedef struct hn_graph hn_graph;
typedef struct hn_module hn_module;

// hn_op values come from ops/ops.def; ir knows them only as numbers. 0 = not in the table.
typedef uint16_t hn_op;

// Element type and symbolic shape. rank -1: unknown rank.
typedef struct hn_type {
    hn_dtype dtype; // HN_NONE: unknown
    int rank;
    hn_dim dims[HN_MAX_RANK];
} hn_type;

typedef struct hn_use {
    hn_node *node;
    int index; // into node->inputs
} hn_use;

struct hn_value {
    uint32_t id;          // unique in the module, dense: index of side tables
    const char *name;     // unique in its graph when not ""; names of I/O are kept by every pass
    hn_graph *graph;      // where it is defined
    uint32_t slot;        // index in graph->values; UINT32_MAX once removed
    hn_type type;
    hn_node *producer;    // NULL: graph input or constant
    int output_index;     // of the producer
    HN_VEC(hn_use) uses;  // order not significant
    int graph_output_uses; // how often its graph lists it as an output: a fusion barrier if > 0
    bool is_input;        // listed in graph->inputs
    bool overridable;     // constant that is also a graph input of an IR >= 4 file
    hn_tensor *constant;  // content, NULL if none; immutable, owned (reference) by the module
    // Content as far as shape arithmetic knows it: elem_count elements in row-major order, of any
    // rank, each maybe symbolic. NULL: unknown. Set by inference.
    const hn_dim *elems;
    int elem_count;
    // What the file said about the value, kept for export; NULL: nothing.
    const char *doc;
    const char *denotation; // "TYPE;dim,dim"
    bool stated;            // the file states its type (value_info), and so will the exported one
};

typedef enum hn_attr_type {
    HN_ATTR_INT,
    HN_ATTR_FLOAT,
    HN_ATTR_STRING,
    HN_ATTR_TENSOR,
    HN_ATTR_GRAPH,
    HN_ATTR_INTS,
    HN_ATTR_FLOATS,
    HN_ATTR_STRINGS,
} hn_attr_type;

typedef struct hn_attr {
    const char *name;
    hn_attr_type type;
    int64_t count; // of the lists
    union {
        int64_t i;
        float f;
        hn_slice s;
        hn_tensor *tensor;
        hn_graph *graph;
        const int64_t *ints;
        const float *floats;
        const hn_slice *strings;
    };
} hn_attr;

// A fused element-wise step that device passes hang behind a node: out = op(acc [, input]).
// Reference semantics: run the node, then each step by the element-wise op's reference.
typedef struct hn_post {
    hn_op op;          // an op with the ELEMENTWISE trait, QuantizeLinear or DequantizeLinear
    const char *op_type; // its name (static text or in the module's arena), for the text form
    int input;         // index into node->inputs of the other operand, -1: unary
    bool swapped;      // acc is the second operand
    int scale, zero;   // other operand is quantised: indices of its scale and zero point, or -1;
                       // for QuantizeLinear as op: its scale and zero point
    float alpha, beta; // attributes of the op (Clip: min, max; LeakyRelu: alpha; HardSigmoid both)
} hn_post;
#define HN_MAX_POST 6

struct hn_node {
    uint32_t id;
    hn_op op;              // 0: not in the table; op_type and domain then name it
    const char *op_type;   // "Conv"
    const char *domain;    // "" is ai.onnx
    const char *name;      // "" allowed, need not be unique
    int version;           // opset version whose semantics the node has
    int input_count, output_count;
    hn_value **inputs;     // may hold NULLs
    hn_value **outputs;    // may hold NULLs
    int attr_count;
    hn_attr *attrs;
    hn_dtype compute;      // precision to compute in; HN_NONE: that of the types
    bool plain;            // works on dims in their plain order, where a backend has kernels for both
    hn_post post[HN_MAX_POST]; // device graphs only; the exporter refuses nodes with any
    int post_count;
    int base_input_count;  // inputs of the op itself when post_count > 0 (the rest are operands)
    hn_graph *graph;
    hn_node *prev, *next;
};

struct hn_graph {
    hn_module *module;
    hn_node *parent;  // node whose attribute holds this graph; NULL: the main graph
    const char *name;
    hn_node *first, *last;
    HN_VEC(hn_value *) inputs;  // in order, without weights
    HN_VEC(hn_value *) overridables; // IR >= 4 weights that the file also lists as inputs
    HN_VEC(hn_value *) outputs; // in order, may repeat
    HN_VEC(hn_type) declared;   // types of the outputs as the file declares them, by position; empty
                                // or shorter where there was no file
    HN_VEC(hn_value *) values;  // every value defined in this graph, also unused ones; unordered
};

typedef struct hn_opset {
    const char *domain;
    int version;
} hn_opset;

typedef struct hn_meta {
    const char *key, *value;
} hn_meta;

struct hn_module {
    hn_arena arena;
    hn_dims *dims;
    hn_graph *main;
    uint32_t next_value_id, next_node_id;
    HN_VEC(hn_tensor *) tensors;   // references to drop at the end
    HN_VEC(hn_graph *) graphs;     // every graph ever made, removed ones too
    HN_VEC(hn_opset) opsets;       // of the file
    HN_VEC(hn_meta) metadata;
    int64_t ir_version;
    const char *producer_name, *producer_version, *domain, *doc, *graph_doc;
    int64_t model_version;
    hn_buffer *source;             // the mapped file, kept while weights point into it
    bool external;                 // as read: weights lie in files beside the model's
};

// ---- building -----------------------------------------------------------------------------------
// Every function that makes something returns NULL when out of memory.
hn_module *hn_module_new(void); // with an empty main graph
void hn_module_free(hn_module *module);
// Deep copy; constants are shared, ids of values and nodes and handles of dims stay the same.
// value_map (may be NULL) gets, by value id, the new value; it must have module->next_value_id
// entries.
hn_module *hn_module_clone(const hn_module *module, hn_value **value_map);

hn_graph *hn_graph_new(hn_module *module, hn_node *parent);
hn_value *hn_value_new(hn_graph *graph, const char *name); // type unknown; NULL name: ""
bool hn_value_set_name(hn_value *value, const char *name); // copies
hn_value *hn_graph_add_input(hn_graph *graph, const char *name, const hn_type *type);
bool hn_graph_add_output(hn_graph *graph, hn_value *value);
// Replaces the index-th output.
void hn_graph_set_output(hn_graph *graph, int index, hn_value *value);
// Takes over *tensor as hn_module_add_tensor does. name may be "".
hn_value *hn_graph_add_constant(hn_graph *graph, const char *name, hn_tensor *tensor);
hn_value *hn_graph_add_const_i64(hn_graph *graph, const int64_t *values, int64_t count,
                                 bool scalar); // 1-D or scalar
hn_value *hn_graph_add_const_f32(hn_graph *graph, float value); // scalar

// Takes over *tensor, its reference, which is zeroed also when there is no memory (NULL); the module
// drops the reference at its end.
hn_tensor *hn_module_add_tensor(hn_module *module, hn_tensor *tensor);

// Appends a node before `before` (NULL: at the end) with output_count new unnamed outputs.
// op_type and domain are copied; op 0 where the table does not know it (ops/ops.h:hn_node_make
// looks it up and is what passes use).
hn_node *hn_graph_add_node(hn_graph *graph, hn_node *before, hn_op op, const char *op_type,
                           const char *domain, int version, hn_value *const *inputs,
                           int input_count, int output_count);
void hn_node_set_input(hn_node *node, int index, hn_value *value); // keeps the use lists right
bool hn_node_add_input(hn_node *node, hn_value *value);            // appends
void hn_node_cut_inputs(hn_node *node, int count);                 // drops all after the first count
// value must have no producer, or be NULL (not wanted). What was there must be unused; it goes.
void hn_node_set_output(hn_node *node, int index, hn_value *value);
// Zeroed; replaces one of that name. Invalidates pointers to the node's other attributes.
hn_attr *hn_node_add_attr(hn_node *node, const char *name, hn_attr_type type);
void hn_node_remove_attr(hn_node *node, const char *name);
bool hn_node_set_int(hn_node *node, const char *name, int64_t value);
bool hn_node_set_float(hn_node *node, const char *name, float value);
bool hn_node_set_string(hn_node *node, const char *name, const char *value);
bool hn_node_set_ints(hn_node *node, const char *name, const int64_t *values, int64_t count);
bool hn_node_set_floats(hn_node *node, const char *name, const float *values, int64_t count);
bool hn_node_set_strings(hn_node *node, const char *name, const hn_slice *values, int64_t count);
bool hn_node_set_tensor(hn_node *node, const char *name, hn_tensor *tensor); // takes it over
bool hn_node_set_graph(hn_node *node, const char *name, hn_graph *graph);    // its parent is node
bool hn_node_copy_attr(hn_node *node, const hn_attr *attr);  // a sub-graph is left out
bool hn_node_copy_attrs(hn_node *node, const hn_node *from); // all but sub-graphs
// Unlinks the node, drops its uses; its outputs must be unused. Sub-graphs on it go as well.
void hn_node_remove(hn_node *node);
void hn_node_move_before(hn_node *node, hn_node *before); // NULL: to the end; same graph
// Removes a value that is unused, has no producer and is no graph input (a constant, mostly).
void hn_value_remove(hn_value *value);
// Moves all nodes and values of a sub-graph before `before` (a node of an enclosing graph) and
// leaves it empty. Its outputs keep their value pointers (outputs list is kept for the caller) but
// count as outputs no more. Names that would clash are dropped.
hn_status hn_graph_splice(hone_error *err, hn_graph *graph, hn_node *before);

// Every use of `from` (captures and graph outputs too) becomes a use of `to`. If `from` is a graph
// output its name moves to `to` when `to` is an unnamed or internal value of the same graph; the
// caller checks with hn_value_can_replace.
void hn_value_replace(hn_value *from, hn_value *to);
bool hn_value_can_replace(const hn_value *from, const hn_value *to);
bool hn_value_unused(const hn_value *value); // no uses, not a graph output

// ---- reading ------------------------------------------------------------------------------------
const hn_attr *hn_node_attr(const hn_node *node, const char *name); // NULL if absent
int64_t hn_node_int(const hn_node *node, const char *name, int64_t absent);
float hn_node_float(const hn_node *node, const char *name, float absent);
hn_slice hn_node_string(const hn_node *node, const char *name, const char *absent);
const int64_t *hn_node_ints(const hn_node *node, const char *name, int64_t *out_count); // NULL, 0
hn_value *hn_graph_find(const hn_graph *graph, const char *name); // by name in this graph only
// "Conv 'backbone.3'" or, nameless, "Conv producing 'x'": for error sentences. Writes into buf.
const char *hn_node_label(const hn_node *node, char *buf, size_t size);
// True if `inner` is `outer` or lies in a sub-graph of one of its nodes.
bool hn_graph_within(const hn_graph *inner, const hn_graph *outer);
// The node of `graph` that is `node` or holds it in a sub-graph; NULL: neither.
hn_node *hn_node_ancestor(hn_node *node, const hn_graph *graph);
// What an optimised file says beyond the standard: see onnx/hints.c.
#define HN_HINT_BF16    "hone.bf16"
#define HN_HINT_F16     "hone.f16"
#define HN_HINT_TF32    "hone.tf32"
#define HN_HINT_PLAIN   "hone.plain"
#define HN_HINT_THREADS "hone.threads"
#define HN_HINT_BATCH   "hone.batch"
// Metadata entries of the file; NULL: there is no such key. set copies both texts and replaces; a NULL
// value removes the entry.
const char *hn_module_meta(const hn_module *module, const char *key);
bool hn_module_set_meta(hn_module *module, const char *key, const char *value);
// Concrete shape of a value whose dims are all constants.
bool hn_type_shape(const hn_type *type, hn_shape *out_shape);
void hn_type_set_shape(hn_type *type, hn_dtype dtype, const hn_shape *shape);

// ---- whole-graph --------------------------------------------------------------------------------
// Structure only: SSA, topological order, use lists, captures from enclosing graphs, unique names,
// outputs defined in the graph itself, no node in two lists. Semantic checks (arity, types) are ops/ops.h:hn_ops_verify.
hn_status hn_module_verify(hone_error *err, const hn_module *module);
// Puts the nodes of a graph (not its sub-graphs) in topological order; HONE_ERR_FORMAT on a cycle.
hn_status hn_graph_sort(hone_error *err, hn_graph *graph);

// Text form (docs/ir-text.md): prints and parses; constants up to 64 elements in full, larger ones
// as a hash that parses back as seeded random content. Printing what was parsed gives the same text.
// Parsing leaves node->op 0: ops/ops.h's hn_ops_resolve fills it in. elems are not part of it.
void hn_module_print(hn_str *out, const hn_module *module);
hn_status hn_module_parse(hone_error *err, const char *text, hn_module **out_module);
#endif
