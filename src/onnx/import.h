// SPDX-License-Identifier: Apache-2.0
// Inside the importer: names, scopes, functions.
//
// Every graph gets a scope: a map from names to values, chained to the enclosing graph's. A
// function call gets one as well, which starts empty but for the function's inputs, has no outer
// scope, and puts its nodes into the caller's graph. All of this lives in the source's scratch
// arena.
#ifndef HN_ONNX_IMPORT_H
#define HN_ONNX_IMPORT_H
#include "onnx/names.h"
#include "onnx/onnx_int.h"

typedef struct hn_opset_list {
    hn_opset *items;
    size_t count;
} hn_opset_list;

typedef struct hn_function {
    hn_pb_function pb;
    hn_opset_list opsets;
    bool active; // being inlined right now
} hn_function;

typedef struct hn_scope {
    struct hn_scope *outer; // enclosing graph; NULL: the main graph or a function
    struct hn_scope *home;  // scope of the graph that nodes go to; itself unless a function's
    hn_graph *graph;
    hn_names names; // item: hn_value *, NULL for an absent optional input
    const hn_opset_list *opsets;
    const char *prefix;          // before names of values and nodes, "" outside functions
    const hn_pb_attribute *args; // what attributes of a function refer to
    size_t arg_count;
    bool unsorted; // a node reads what a later one produces
} hn_scope;

typedef struct hn_import {
    hn_onnx_source *source;
    hn_module *module;
    const hn_onnx_options *options;
    hn_names functions; // item: hn_function *; key: domain NUL name NUL overload
    hn_opset_list opsets;
    int64_t nodes, max_nodes;
    int64_t calls; // function calls so far: numbers the prefixes
    int graph_depth, call_depth;
} hn_import;

// import.c
hn_status hn_import_graph(hone_error *err, hn_import *import, hn_wire wire, hn_graph *graph,
                          hn_scope *outer);
hn_status hn_import_opsets(hone_error *err, hn_import *import, const hn_pb_list *list,
                           hn_opset_list *out_opsets);
// A name as a C string of the module: prefix and all. Checks it. NULL text: "".
hn_status hn_import_name(hone_error *err, hn_import *import, const char *what, const char *prefix,
                         hn_slice text, const char **out_name);

// import_node.c: all nodes of a graph or a function's body, in two rounds: values, then nodes.
hn_status hn_import_nodes(hone_error *err, hn_import *import, const hn_pb_list *nodes,
                          hn_scope *scope);
// NULL: unknown name, or an absent input of a function (then *out_found is true). A value that no
// node produces yet marks its graph as unsorted.
hn_value *hn_scope_find(hn_scope *scope, hn_slice name, bool *out_found);
#endif
