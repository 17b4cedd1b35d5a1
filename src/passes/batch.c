// SPDX-License-Identifier: Apache-2.0
// A batch of 1 that an exporter wrote into Reshape's constants becomes the input's own first dim, in a model
// whose inputs leave it free: such a model runs with one row and fails with any other number.
//
// Only where it is proven that rows do not touch each other: with the new constants every value that
// depends on an input has the batch as its first dim, and every operator on the way to the outputs works
// row by row. One that is not known to, also one that only reads the batch's size, leaves the whole model as
// it is; so does an output that the file declares to have one row.
#include "passes/pass_int.h"

typedef struct proof {
    hn_module *module;
    hn_dim batch;
    bool *rows; // by value id: depends on an input, row by row
} proof;

static bool is_rows(const proof *p, const hn_value *value) {
    return value && p->rows[value->id];
}

static bool leads(const proof *p, const hn_value *value) {
    return value && value->type.rank > 0 && value->type.dims[0] == p->batch;
}

// The one free first dim of all inputs; 0 where there is none.
static hn_dim free_batch(const hn_graph *main) {
    hn_dim batch = 0;
    for (size_t i = 0; i < main->inputs.count; i++) {
        const hn_type *type = &main->inputs.data[i]->type;
        if (type->rank < 1 || hn_dim_is_const(type->dims[0]) || (batch && type->dims[0] != batch)) return 0;
        batch = type->dims[0];
    }
    for (size_t i = 0; i < main->declared.count; i++)
        if (main->declared.data[i].rank > 0 && hn_dim_is_const(main->declared.data[i].dims[0])) return 0;
    return batch;
}

// Reshape [batch, a, b] -> {1, c, d} of constants with c d = a b: other batches cannot be run.
static bool baked(const hn_pass_ctx *ctx, const hn_node *node, hn_dim batch) {
    if (!hn_pass_is(node, "Reshape") || node->version < 5 || hn_op_int(node, "allowzero")) return false;
    const hn_value *x = hn_in(node, 0);
    const hn_tensor *shape = hn_pass_constant(ctx, hn_in(node, 1));
    if (!x || !shape || shape->dtype != HN_I64 || x->type.rank < 1 || x->type.dims[0] != batch) return false;
    int64_t count = hn_tensor_count(shape), have = 1, want = 1;
    if (count < 1 || count > HN_MAX_RANK || hn_tensor_get_i64(shape, 0) != 1) return false;
    for (int i = 1; i < x->type.rank; i++)
        if (!hn_dim_is_const(x->type.dims[i]) || !hn_mul_i64(have, x->type.dims[i], &have)) return false;
    for (int64_t i = 1; i < count; i++) {
        int64_t dim = hn_tensor_get_i64(shape, i);
        if (dim < 1 || !hn_mul_i64(want, dim, &want)) return false;
    }
    return have == want;
}

// What is baked behind another one has batch 1 until that one is freed: from the front to the end.
static hn_status free_reshapes(hone_error *err, hn_pass_ctx *ctx, hn_module *module, hn_dim batch,
                               int *out_freed) {
    *out_freed = 0;
    for (hn_node *node = module->main->first; node; node = node->next) {
        if (baked(ctx, node, batch)) {
            const hn_tensor *old = node->inputs[1]->constant;
            hn_tensor shape;
            HN_TRY(hn_tensor_new(err, HN_I64, &old->shape, &shape));
            memcpy(shape.data, old->data, shape.bytes);
            ((int64_t *)shape.data)[0] = 0; // as the input has it
            hn_value *value = hn_pass_add_constant(node, &shape);
            hn_tensor_free(&shape);
            if (!value) HN_NOMEM(err, "freeing the batch");
            hn_node_set_input(node, 1, value);
            ++*out_freed;
        }
        HN_TRY(hn_infer_node(err, node));
    }
    return HONE_OK;
}

// ---- row by row? --------------------------------------------------------------------------------
static bool in_list(const hn_node *node, const char *const *names, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (hn_pass_is(node, names[i])) return true;
    return false;
}

static bool only_first_is_rows(const proof *p, const hn_node *node) {
    for (int i = 1; i < node->input_count; i++)
        if (is_rows(p, node->inputs[i])) return false;
    return is_rows(p, hn_in(node, 0));
}

// Operands that are no rows are the same for every row: they broadcast along the first dim.
static bool broadcasts(const proof *p, const hn_node *node, int rank) {
    for (int i = 0; i < node->input_count; i++) {
        const hn_value *in = node->inputs[i];
        if (!in) continue;
        const hn_type *type = &in->type;
        if (is_rows(p, in) ? type->rank != rank
                           : type->rank < 0 || (type->rank == rank && type->dims[0] != 1))
            return false;
    }
    return true;
}

static bool axis_is_inner(const hn_node *node, int rank) {
    int axis;
    return hn_axis_normalise(hn_op_int(node, "axis"), rank, &axis) && axis > 0;
}

static bool row_by_row(const proof *p, const hn_node *node) {
    static const char *const k_spatial[] = {"Conv", "ConvTranspose", "MaxPool", "AveragePool", "GlobalAveragePool",
                                            "GlobalMaxPool", "InstanceNormalization", "GroupNormalization", "LRN"};
    static const char *const k_axis[] = {"Softmax", "LogSoftmax", "LayerNormalization", "RMSNormalization", "Hardmax"};
    const hn_value *x = hn_in(node, 0);
    int rank = x ? x->type.rank : -1;
    if (*node->domain || rank < 1 || node->post_count) return false;
    for (int i = 0; i < node->output_count; i++)
        if (node->outputs[i] && !hn_value_unused(node->outputs[i]) && !leads(p, node->outputs[i])) return false;
    if (hn_op_has(node->op, HN_T_ELEMENTWISE) && node->output_count == 1)
        return broadcasts(p, node, node->outputs[0]->type.rank);
    if (in_list(node, k_spatial, HN_COUNT_OF(k_spatial))) return only_first_is_rows(p, node);
    if (in_list(node, k_axis, HN_COUNT_OF(k_axis)))
        return only_first_is_rows(p, node) && axis_is_inner(node, rank);
    if (hn_pass_is(node, "BatchNormalization"))
        return only_first_is_rows(p, node) && !hn_op_int(node, "training_mode");
    if (hn_pass_is(node, "Gemm")) {
        const hn_value *bias = hn_in(node, 2);
        return only_first_is_rows(p, node) && !hn_op_int(node, "transA") &&
               (!bias || bias->type.rank < 2 || bias->type.dims[0] == 1);
    }
    if (hn_pass_is(node, "MatMul")) {
        const hn_value *w = node->inputs[1];
        if (is_rows(p, x) && is_rows(p, w)) return rank >= 3 && w->type.rank == rank;
        if (!is_rows(p, x)) return w->type.rank >= 3 && rank >= 0 && rank < w->type.rank;
        return w->type.rank >= 1 && (w->type.rank < rank || w->type.dims[0] == 1 || (rank == 2 && w->type.rank == 2));
    }
    if (hn_pass_is(node, "Transpose")) {
        int64_t count;
        const int64_t *perm = hn_node_ints(node, "perm", &count);
        return perm && count > 0 && perm[0] == 0;
    }
    // The first dim is kept and the rest has as many elements as before: rows stay where they are.
    if (hn_pass_is(node, "Reshape") || hn_pass_is(node, "Flatten") || hn_pass_is(node, "Squeeze") ||
        hn_pass_is(node, "Unsqueeze"))
        return only_first_is_rows(p, node) && leads(p, x);
    if (hn_pass_is(node, "Split")) return only_first_is_rows(p, node) && axis_is_inner(node, rank);
    if (hn_pass_is(node, "Concat")) {
        for (int i = 0; i < node->input_count; i++)
            if (!is_rows(p, node->inputs[i])) return false;
        return axis_is_inner(node, rank);
    }
    if (hn_pass_is(node, "Gather")) {
        if (is_rows(p, x)) return only_first_is_rows(p, node) && axis_is_inner(node, rank);
        return hn_op_int(node, "axis") == 0 && leads(p, node->inputs[1]); // rows of a table
    }
    return false;
}

static bool proven(proof *p) {
    hn_graph *main = p->module->main;
    for (size_t i = 0; i < main->inputs.count; i++)
        p->rows[main->inputs.data[i]->id] = true;
    for (hn_node *node = main->first; node; node = node->next) {
        bool any = false;
        if (hn_op_has(node->op, HN_T_RANDOM) || hn_op_has(node->op, HN_T_CONTROL)) return false;
        for (int i = 0; i < node->input_count; i++)
            any = any || is_rows(p, node->inputs[i]);
        if (!any) continue;
        if (!row_by_row(p, node)) return false;
        for (int i = 0; i < node->output_count; i++)
            if (node->outputs[i]) p->rows[node->outputs[i]->id] = true;
    }
    for (size_t i = 0; i < main->outputs.count; i++)
        if (!is_rows(p, main->outputs.data[i]) || !leads(p, main->outputs.data[i])) return false;
    return main->outputs.count > 0;
}

hone_status hn_pass_free_batch(hone_error *err, hn_pass_ctx *ctx) {
    hn_dim batch = free_batch(ctx->module->main);
    bool any = false;
    for (const hn_node *node = ctx->module->main->first; batch && node && !any; node = node->next)
        any = baked(ctx, node, batch);
    if (!any) return HONE_OK;
    hn_module *copy = hn_module_clone(ctx->module, NULL);
    if (!copy) HN_NOMEM(err, "freeing the batch");
    int freed = 0;
    // Other constants than Reshape's may hold a 1 that does not fit any more: then it stays.
    hone_status status = free_reshapes(NULL, ctx, copy, batch, &freed);
    proof p = {copy, batch, hn_calloc((size_t)copy->next_value_id + 1, sizeof(bool))};
    if (!p.rows) status = HONE_ERR_NOMEM;
    bool good = status == HONE_OK && proven(&p);
    hn_free(p.rows);
    hn_module_free(copy);
    if (status == HONE_ERR_NOMEM) HN_NOMEM(err, "freeing the batch");
    if (!good) return HONE_OK;
    HN_TRY(free_reshapes(err, ctx, ctx->module, batch, &freed));
    ctx->changes += freed;
    return HONE_OK;
}
