// SPDX-License-Identifier: Apache-2.0
// What an optimised file says beyond the standard, as metadata that other runtimes ignore:
//   hone.bf16     outputs of the nodes that compute in bf16, one a line; the file stays float32
//   hone.f16      the same for float16, which cards have
//   hone.tf32     present: float32 products may round their operands to TF32, on cards
//   hone.plain    outputs of the nodes that keep the plain order of dims, one a line
//   hone.threads  "K of N": K threads were best on a machine that has N
//   hone.batch    rows a call with the highest throughput
// The lists are put into the nodes here; the others are read where they are used. A name that the graph
// does not have (another tool removed the node) is no error: it is a hint.
#include "onnx/onnx_int.h"

static void compute_bf16(hn_node *node) { node->compute = HN_BF16; }
static void compute_f16(hn_node *node) { node->compute = HN_F16; }
static void keep_plain(hn_node *node) { node->plain = true; }

static void read_list(hn_module *module, const char *key, void (*fn)(hn_node *)) {
    const char *list = hn_module_meta(module, key);
    while (list && *list) {
        size_t length = strcspn(list, "\n");
        char name[1024];
        if (length < sizeof name) {
            memcpy(name, list, length);
            name[length] = '\0';
            const hn_value *value = hn_graph_find(module->main, name);
            if (value && value->producer && value->type.dtype == HN_F32) fn(value->producer);
        }
        list += length + (list[length] == '\n');
    }
}

void hn_onnx_read_hints(hn_module *module) {
    read_list(module, HN_HINT_BF16, compute_bf16);
    read_list(module, HN_HINT_F16, compute_f16);
    read_list(module, HN_HINT_PLAIN, keep_plain);
}
