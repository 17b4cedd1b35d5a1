// SPDX-License-Identifier: Apache-2.0
// Einsum where no product was made of it (passes/einsum.c): a sum over every label that the output lacks.
#include "backends/cuda/write.h"
#include "ops/einsum.h"

typedef struct loops {
    int count, outer; // outer: labels of the output, which come first
    int64_t dims[HN_EINSUM_LABELS], step[HN_EINSUM_OPERANDS][HN_EINSUM_LABELS];
} loops;

static void add_loop(loops *l, const hn_einsum *e, const cpu_value *in, int label) {
    int at = l->count++;
    l->dims[at] = 1;
    for (int o = 0; o < e->operands; o++) {
        int64_t step = 1;
        l->step[o][at] = 0;
        for (int i = e->in[o].count - 1; i >= 0; i--) {
            int64_t dim = in[o].shape.dims[i];
            if (e->in[o].labels[i] == label && dim != 1) {
                l->step[o][at] += step; // twice in one operand: its diagonal
                l->dims[at] = dim;
            }
            step *= dim;
        }
    }
}

// The number `name` taken apart over loops [from, to), added to a text variable an operand.
static void write_steps(cuda_writer *w, const loops *l, int operands, const char *name, const char *prefix, int from, int to) {
    for (int i = to - 1; i >= from; i--) {
        if (l->dims[i] == 1) continue;
        hn_str_printf(&w->text, " { const i64 c = %s %% %lldll; %s /= %lldll;", name, (long long)l->dims[i], name, (long long)l->dims[i]);
        for (int o = 0; o < operands; o++)
            if (l->step[o][i]) hn_str_printf(&w->text, " %s%d += c * %lldll;", prefix, o, (long long)l->step[o][i]);
        hn_str_append(&w->text, " }");
    }
}

hone_status cuda_einsum_select(hone_error *err, cuda_device *d, const hn_select *what, hn_kernel **out_kernel) {
    const hn_node *node = what->node;
    cpu_value in[HN_EINSUM_OPERANDS], y;
    hn_einsum e;
    loops l = {0};
    bool used[HN_EINSUM_LABELS] = {false};
    cuda_writer w;
    if (node->post_count || node->input_count > HN_EINSUM_OPERANDS || !cpu_out(node, 0, &y) || y.count == 0 || !cuda_ctype(y.dtype) ||
        hn_einsum_read(NULL, node, &e) != HONE_OK)
        return HONE_ERR_UNSUPPORTED;
    for (int o = 0; o < e.operands; o++)
        if (!cpu_in(node, o, &in[o]) || in[o].dtype != y.dtype || in[o].count == 0) return HONE_ERR_UNSUPPORTED;
    for (int i = 0; i < e.out.count; i++) {
        add_loop(&l, &e, in, e.out.labels[i]);
        used[e.out.labels[i]] = true;
    }
    l.outer = l.count;
    int64_t summed = 1;
    for (int o = 0; o < e.operands; o++)
        for (int i = 0; i < e.in[o].count; i++) {
            if (used[e.in[o].labels[i]]) continue;
            used[e.in[o].labels[i]] = true;
            add_loop(&l, &e, in, e.in[o].labels[i]);
            summed *= l.dims[l.count - 1];
        }
    cuda_write_begin(err, d, node, false, &w);
    cuda_write_type(&w, "T", cuda_ctype(y.dtype));
    cuda_write_compute(&w, y.dtype);
    cuda_write_number(&w, "COUNT", y.count);
    cuda_write_number(&w, "SUMMED", summed);
    cuda_arg args[HN_EINSUM_OPERANDS + 1];
    hn_str_append(&w.text, "#define OFFSETS");
    for (int o = 0; o < e.operands; o++)
        hn_str_printf(&w.text, " i64 o%d = 0;", o);
    write_steps(&w, &l, e.operands, "i", "o", 0, l.outer);
    hn_str_append(&w.text, "\n#define STEPS");
    for (int o = 0; o < e.operands; o++)
        hn_str_printf(&w.text, " i64 p%d = o%d;", o, o);
    write_steps(&w, &l, e.operands, "s", "p", l.outer, l.count);
    hn_str_append(&w.text, "\n#define TERM ");
    for (int o = 0; o < e.operands; o++)
        hn_str_printf(&w.text, "%sLOAD(x%d[p%d])", o ? " * " : "", o, o);
    hn_str_append(&w.text, "\n");
    args[0] = cuda_arg_output(0);
    for (int o = 0; o < HN_EINSUM_OPERANDS; o++)
        args[1 + o] = cuda_write_input(&w, o);
    cuda_write_text(&w, "einsum");
    cuda_write_launch(&w, "hn_k_einsum", y.count, 128, HN_EINSUM_OPERANDS + 1, args);
    return cuda_write_done(&w, out_kernel);
}
