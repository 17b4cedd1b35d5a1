// SPDX-License-Identifier: Apache-2.0
// MatMul and Gemm through oneDNN: batched, broadcast, transposed, with packed constant weights.
//
// Leading dims of the left operand are folded into its rows where the right one is a matrix; what
// remains is a matrix product or one with as few batch dims as the shapes allow.
#include "backends/cpu/cpu_int.h"
#include "ops/nn_int.h"

typedef struct product {
    cpu_value a, b, c, bias;
    bool trans_a, trans_b, has_bias, narrow; // narrow: computes in bf16, float32 in and out
    float alpha;
    int rank;                                    // of the oneDNN problem, 2 or more
    int64_t ad[HN_MAX_RANK], bd[HN_MAX_RANK], cd[HN_MAX_RANK];
    dnnl_memory_desc_t a_md, b_plain, b_want, c_md, bias_md;
} product;

// Dims by numpy's rules: 1-D operands get their missing dim, batch dims are aligned with ones.
static bool product_dims(product *p) {
    hn_shape a = p->a.shape, b = p->b.shape;
    int64_t m, k, n;
    if (!hn_product_shape(&a, &b, p->trans_a, p->trans_b, &m, &k, &n)) return false;
    // A right operand without batch: all rows of the left one make one matrix.
    int64_t b_batch = 1;
    for (int i = 0; i + 2 < b.rank; i++)
        b_batch *= b.dims[i];
    if (b_batch == 1 && !p->trans_a) {
        for (int i = 0; i + 2 < a.rank; i++)
            m *= a.dims[i];
        a.rank = b.rank = 2;
    }
    int rank = a.rank > b.rank ? a.rank : b.rank;
    for (int i = 0; i < rank - 2; i++) {
        int ai = i - (rank - a.rank), bi = i - (rank - b.rank);
        p->ad[i] = ai >= 0 ? a.dims[ai] : 1;
        p->bd[i] = bi >= 0 ? b.dims[bi] : 1;
        p->cd[i] = p->ad[i] > p->bd[i] ? p->ad[i] : p->bd[i];
    }
    p->ad[rank - 2] = m;
    p->ad[rank - 1] = k;
    p->bd[rank - 2] = k;
    p->bd[rank - 1] = n;
    p->cd[rank - 2] = m;
    p->cd[rank - 1] = n;
    p->rank = rank;
    // Equal batch dims on both sides are one.
    bool equal = rank > 3;
    for (int i = 0; i < rank - 2; i++)
        equal = equal && p->ad[i] == p->bd[i];
    if (equal) {
        int64_t batch = 1;
        for (int i = 0; i < rank - 2; i++)
            batch *= p->ad[i];
        int64_t *lists[] = {p->ad, p->bd, p->cd};
        for (int l = 0; l < 3; l++) {
            lists[l][1] = lists[l][rank - 2];
            lists[l][2] = lists[l][rank - 1];
            lists[l][0] = batch;
        }
        p->rank = 3;
    }
    return m > 0 && n > 0 && k > 0;
}

// Dense, with the last two dims swapped in memory where `transposed`.
static void matrix_md(dnnl_build *b, dnnl_memory_desc_t *md, int rank, const int64_t *dims,
                      dnnl_data_type_t type, bool transposed) {
    dnnl_dims_t d, s;
    int64_t stride = dims[rank - 1] * dims[rank - 2];
    for (int i = rank - 3; i >= 0; i--) {
        s[i] = stride;
        stride *= dims[i];
    }
    s[rank - 1] = transposed ? dims[rank - 2] : 1;
    s[rank - 2] = transposed ? 1 : dims[rank - 1];
    for (int i = 0; i < rank; i++)
        d[i] = dims[i];
    b->cpu->dnnl->dnnl_memory_desc_init_by_strides(md, rank, d, type, s);
}

// Bias as oneDNN takes it: [.., 1 or M, 1 or N].
static bool bias_dims(const product *p, int64_t *dims) {
    const hn_shape *s = &p->bias.shape;
    if (s->rank > 2) return false;
    for (int i = 0; i < p->rank; i++)
        dims[i] = 1;
    if (s->rank >= 1) dims[p->rank - 1] = s->dims[s->rank - 1];
    if (s->rank == 2) dims[p->rank - 2] = s->dims[0];
    return true;
}

static hn_status product_build(hone_error *err, dnnl_build *b, product *p, hn_kernel **out_kernel) {
    const hn_dnnl *api = b->cpu->dnnl;
    int rank = p->rank;
    p->narrow = dnnl_wants_bf16(b->cpu, b->what->node) && p->b.data;
    dnnl_data_type_t type = p->narrow ? dnnl_bf16 : dnnl_f32;
    matrix_md(b, &p->a_md, rank, p->ad, type, p->trans_a);
    matrix_md(b, &p->b_plain, rank, p->bd, dnnl_f32, p->trans_b);
    matrix_md(b, &p->c_md, rank, p->cd, dnnl_f32, false);
    p->b_want = p->b_plain;
    if (p->b.data) {
        dnnl_dims_t d;
        for (int i = 0; i < rank; i++)
            d[i] = p->bd[i];
        static const dnnl_format_tag_t any = dnnl_format_tag_any;
        api->dnnl_memory_desc_init_by_tag(&p->b_want, rank, d, type, any);
    }
    int64_t bd[HN_MAX_RANK];
    if (p->has_bias) {
        if (!bias_dims(p, bd)) return HONE_ERR_UNSUPPORTED;
        matrix_md(b, &p->bias_md, rank, bd, dnnl_f32, false);
        // oneDNN's bias is a row; any other shape is added as a second operand.
        bool row = bd[rank - 1] == p->cd[rank - 1] && bd[rank - 2] == 1;
        if (!row || p->alpha != 1) {
            if (!dnnl_append_binary(b, dnnl_binary_add, &p->bias_md, 2)) return HONE_ERR_UNSUPPORTED;
            p->has_bias = false;
        }
    }
    if (p->alpha != 1 &&
        api->dnnl_primitive_attr_set_output_scales(b->attr, 1, 0, &p->alpha) != dnnl_success)
        return HONE_ERR_UNSUPPORTED;
    dnnl_posts(b, &p->c.shape, HN_LAYOUT_PLAIN, rank, p->cd);
    double flops = 2;
    for (int i = 0; i < rank; i++)
        flops *= (double)p->cd[i];
    dnnl_threads(b, flops * (double)p->ad[rank - 1]);
    dnnl_matmul_desc_t desc;
    if (api->dnnl_matmul_desc_init(&desc, &p->a_md, &p->b_want, p->has_bias ? &p->bias_md : NULL,
                                   &p->c_md) != dnnl_success)
        return HONE_ERR_UNSUPPORTED;
    HN_TRY(dnnl_make(err, b, &desc));
    if (p->narrow) HN_TRY(dnnl_arg_narrow(err, b, &p->a_md, p->a.count));
    else HN_TRY(dnnl_arg(err, b, DNNL_ARG_SRC, &p->a_md, DNNL_FROM_INPUT, 0));
    HN_TRY(dnnl_arg(err, b, DNNL_ARG_DST, &p->c_md, DNNL_FROM_OUTPUT, 0));
    if (p->b.data) {
        const dnnl_memory_desc_t *want =
            api->dnnl_primitive_desc_query_md(b->pd, dnnl_query_weights_md, 0);
        HN_TRY(dnnl_arg_packed(err, b, DNNL_ARG_WEIGHTS, &p->b_plain, cpu_source(&p->b), true, want));
        b->kernel->base.consumed |= 1u << 1;
    } else {
        HN_TRY(dnnl_arg(err, b, DNNL_ARG_WEIGHTS, &p->b_plain, DNNL_FROM_INPUT, 1));
    }
    if (p->has_bias) HN_TRY(dnnl_arg(err, b, DNNL_ARG_BIAS, &p->bias_md, DNNL_FROM_INPUT, 2));
    return dnnl_finish(err, b, &p->c.shape, HN_LAYOUT_PLAIN, out_kernel);
}

static hone_status select_product(hone_error *err, cpu_state *cpu, const hn_select *what,
                                  product *p, hn_kernel **out_kernel) {
    if (p->a.dtype != HN_F32 || p->b.dtype != HN_F32 || p->c.dtype != HN_F32 || !product_dims(p))
        return HONE_ERR_UNSUPPORTED;
    dnnl_build b;
    HN_TRY(dnnl_begin(err, cpu, what, &b));
    hone_status status = product_build(err, &b, p, out_kernel);
    if (status != HONE_OK) dnnl_abandon(&b);
    return status;
}

hone_status dnnl_matmul_select(hone_error *err, cpu_state *cpu, const hn_select *what,
                               hn_kernel **out_kernel) {
    product p = {.alpha = 1};
    const hn_node *node = what->node;
    if (!cpu_in(node, 0, &p.a) || !cpu_in(node, 1, &p.b) || !cpu_out(node, 0, &p.c))
        return HONE_ERR_UNSUPPORTED;
    return select_product(err, cpu, what, &p, out_kernel);
}

hone_status dnnl_gemm_select(hone_error *err, cpu_state *cpu, const hn_select *what,
                             hn_kernel **out_kernel) {
    product p = {.alpha = 1};
    const hn_node *node = what->node;
    if (!cpu_in(node, 0, &p.a) || !cpu_in(node, 1, &p.b) || !cpu_out(node, 0, &p.c))
        return HONE_ERR_UNSUPPORTED;
    p.alpha = hn_node_float(node, "alpha", 1);
    p.trans_a = hn_node_int(node, "transA", 0) != 0;
    p.trans_b = hn_node_int(node, "transB", 0) != 0;
    p.has_bias = cpu_base_inputs(node) > 2 && node->inputs[2];
    if (p.has_bias && (hn_node_float(node, "beta", 1) != 1 || !cpu_in(node, 2, &p.bias) ||
                       p.bias.dtype != HN_F32))
        return HONE_ERR_UNSUPPORTED;
    return select_product(err, cpu, what, &p, out_kernel);
}
