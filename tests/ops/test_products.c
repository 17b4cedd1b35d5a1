// SPDX-License-Identifier: Apache-2.0
// Matrix products, Einsum, attention on small hand-computed cases.
#include "support/test.h"
#include "support/op_case.h"

static const op_case k_products[] = {
    {"matrix times matrix", "MatMul", NULL, {"f32[2,2] 1 2 3 4", "f32[2,2] 5 6 7 8"}, {"f32[2,2] 19 22 43 50"}},
    {"row times matrix", "MatMul", NULL, {"f32[2] 1 2", "f32[2,2] 1 2 3 4"}, {"f32[2] 7 10"}},
    {"matrix times column", "MatMul", NULL, {"f32[2,2] 1 2 3 4", "f32[2] 1 2"}, {"f32[2] 5 11"}},
    {"dot product", "MatMul", NULL, {"f32[2] 1 2", "f32[2] 3 4"}, {"f32[] 11"}},
    {"leading dims broadcast both ways", "MatMul", NULL, {"f32[2,1,1,1] 1 2", "f32[3,1,1] 1 2 3"}, {"f32[2,3,1,1] 1 2 3 2 4 6"}},
    {"nothing to sum", "MatMul", NULL, {"f32[2,0]", "f32[0,2]"}, {"f32[2,2] 0 0 0 0"}},
    {"int64 is exact", "MatMul", NULL, {"i64[1,2] 3037000499 1", "i64[2,1] 3037000499 1"}, {"i64[1,1] 9223372030926249002"}},
    {"infinity times zero is NaN", "MatMul", NULL, {"f32[1,2] inf 1", "f32[2,1] 0 1"}, {"f32[1,1] nan"}},
    {"inner dims differ", "MatMul", NULL, {"f32[1,2] 1 2", "f32[3,1] 1 2 3"}, {NULL}, HONE_ERR_FORMAT, "2 and 3 differ"},
    {"types differ", "MatMul", NULL, {"f32[1,1] 1", "f64[1,1] 1"}, {NULL}, HONE_ERR_FORMAT, "f32 and f64"},
    {"leading dims do not broadcast", "MatMul", NULL, {"f32[2,1,1] 1 2", "f32[3,1,1] 1 2 3"}, {NULL}, HONE_ERR_FORMAT, "broadcast"},
    {"all of Gemm", "Gemm", "alpha=2 beta=0.5 transA=1 transB=1", {"f32[2,1] 1 2", "f32[2,2] 1 2 3 4", "f32[2] 10 20"}, {"f32[1,2] 15 32"}},
    {"C is a column", "Gemm", NULL, {"f32[2,1] 1 2", "f32[1,2] 1 2", "f32[2,1] 10 20"}, {"f32[2,2] 11 12 22 24"}},
    {"beta of zero hides NaN", "Gemm", "beta=0", {"f32[1,1] 1", "f32[1,1] 2", "f32[1] nan"}, {"f32[1,1] 2"}},
    {"integers", "Gemm", NULL, {"i32[1,2] 1 2", "i32[2,1] 3 4", "i32[] 5"}, {"i32[1,1] 16"}},
    {"C does not fit", "Gemm", NULL, {"f32[1,1] 1", "f32[1,2] 2 3", "f32[3] 1 2 3"}, {NULL}, HONE_ERR_FORMAT, "dims of C"},
    {"zero points by row and column", "MatMulInteger", NULL, {"u8[2,1] 3 4", "i8[1,2] 5 6", "u8[2] 1 2", "i8[2] 1 -1"}, {"i32[2,2] 8 14 8 14"}},
    {"zero points of the wrong number", "MatMulInteger", NULL, {"u8[2,1] 3 4", "i8[1,2] 5 6", "u8[3] 1 2 3"}, {NULL}, HONE_ERR_FORMAT, "3 scales or zero points"},
    {"a swap changes the sign", "Det", NULL, {"f32[2,2,2] 0 2 3 4 1 2 2 4"}, {"f32[2] -6 0"}},
    {"empty determinant", "Det", NULL, {"f32[1,0,0]"}, {"f32[1] 1"}},
    {"not square", "Det", NULL, {"f32[1,2] 1 2"}, {NULL}, HONE_ERR_FORMAT, "sides"},
};

static const op_case k_einsum[] = {
    {"implicit output sorts its letters", "Einsum", "equation=ba", {"f32[2,3] 1 2 3 4 5 6"}, {"f32[3,2] 1 4 2 5 3 6"}},
    {"diagonal", "Einsum", "equation=ii->i", {"f32[2,2] 1 2 3 4"}, {"f32[2] 1 4"}},
    {"trace", "Einsum", "equation=ii", {"f32[2,2] 1 2 3 4"}, {"f32[] 5"}},
    {"ellipsis broadcasts", "Einsum", "equation=...i,...i->...", {"f32[2,1,2] 1 2 3 4", "f32[3,2] 1 1 1 0 0 1"}, {"f32[2,3] 3 1 2 7 3 4"}},
    {"three operands", "Einsum", "equation=i,j,k->", {"f32[2] 1 2", "f32[2] 3 4", "f32[1] 5"}, {"f32[] 105"}},
    {"integers", "Einsum", "equation=ij,jk->ik", {"i32[1,2] 1 2", "i32[2,1] 3 4"}, {"i32[1,1] 11"}},
    {"one element of a label broadcasts", "Einsum", "equation=i,i->i", {"f32[1] 3", "f32[2] 4 5"}, {"f32[2] 12 15"}},
    {"empty", "Einsum", "equation=ij,jk->ik", {"f32[2,0]", "f32[0,1]"}, {"f32[2,1] 0 0"}},
    {"dims of a label differ", "Einsum", "equation=i,i->", {"f32[2] 1 2", "f32[3] 1 2 3"}, {NULL}, HONE_ERR_FORMAT, "one label"},
    {"unknown output label", "Einsum", "equation=i->j", {"f32[2] 1 2"}, {NULL}, HONE_ERR_FORMAT, "no operand"},
    {"more terms than inputs", "Einsum", "equation=i,j->ij", {"f32[2] 1 2"}, {NULL}, HONE_ERR_FORMAT, "terms"},
    {"a term too long", "Einsum", "equation=ij->i", {"f32[2] 1 2"}, {NULL}, HONE_ERR_FORMAT, "does not fit"},
    {"two dots", "Einsum", "equation=..i->i", {"f32[2] 1 2"}, {NULL}, HONE_ERR_FORMAT, "ellipsis"},
};

// One head of size 1 and scale 1: the scores of query q are q * k.
static const op_case k_attention[] = {
    {"zero query averages", "Attention", "scale=1", {"f32[1,1,1,1] 0", "f32[1,1,2,1] 1 2", "f32[1,1,2,1] 10 20"}, {"f32[1,1,1,1] 15"}},
    {"causal sees the past only", "Attention", "scale=1 is_causal=1", {"f32[1,1,2,1] 0 0", "f32[1,1,2,1] 1 2", "f32[1,1,2,1] 10 20"},
     {"f32[1,1,2,1] 10 15"}},
    {"a cache shifts the frontier", "Attention", "scale=1 is_causal=1",
     {"f32[1,1,1,1] 0", "f32[1,1,1,1] 2", "f32[1,1,1,1] 20", "-", "f32[1,1,1,1] 1", "f32[1,1,1,1] 10"},
     {"f32[1,1,1,1] 15", "f32[1,1,2,1] 1 2", "f32[1,1,2,1] 10 20"}},
    {"nothing to attend gives zeros", "Attention", "scale=1", {"f32[1,1,1,1] 0", "f32[1,1,2,1] 1 2", "f32[1,1,2,1] 10 20", "bool[1,2] 0 0"},
     {"f32[1,1,1,1] 0"}},
    {"a short mask hides the rest", "Attention", "scale=1", {"f32[1,1,1,1] 0", "f32[1,1,3,1] 1 2 3", "f32[1,1,3,1] 10 20 90", "bool[1,2] 1 1"},
     {"f32[1,1,1,1] 15"}},
    {"padded keys", "Attention", "scale=1", {"f32[1,1,1,1] 0", "f32[1,1,3,1] 1 2 3", "f32[1,1,3,1] 10 20 90", "-", "-", "-", "i64[1] 2"},
     {"f32[1,1,1,1] 15"}},
    {"window to the left", "Attention", "scale=1 left_window_size=0 right_window_size=0", {"f32[1,1,2,1] 0 0", "f32[1,1,2,1] 1 2", "f32[1,1,2,1] 10 20"},
     {"f32[1,1,2,1] 10 20"}},
    {"two query heads share a key head", "Attention", "scale=1 q_num_heads=2 kv_num_heads=1", {"f32[1,1,2] 0 0", "f32[1,2,1] 1 2", "f32[1,2,1] 10 20"},
     {"f32[1,1,2] 15 15"}},
    {"raw scores, then capped", "Attention", "scale=1 softcap=1 qk_matmul_output_mode=1", {"f32[1,1,1,1] 1", "f32[1,1,1,1] 100", "f32[1,1,1,1] 7"},
     {"f32[1,1,1,1] 7", "-", "-", "f32[1,1,1,1] 1"}},
    {"heads do not divide", "Attention", "q_num_heads=3 kv_num_heads=2", {"f32[1,1,3] 1 2 3", "f32[1,1,2] 1 2", "f32[1,1,2] 1 2"}, {NULL}, HONE_ERR_FORMAT, "3 query heads"},
    {"rank 3 without heads", "Attention", NULL, {"f32[1,1,3] 1 2 3", "f32[1,1,3] 1 2 3", "f32[1,1,3] 1 2 3"}, {NULL}, HONE_ERR_FORMAT, "number of heads"},
    {"half of a cache", "Attention", NULL, {"f32[1,1,1,1] 0", "f32[1,1,1,1] 2", "f32[1,1,1,1] 20", "-", "f32[1,1,1,1] 1"}, {NULL}, HONE_ERR_FORMAT, "only one of"},
    {"a quarter turn", "RotaryEmbedding", NULL, {"f32[1,1,1,4] 1 2 3 4", "f32[1,1,2] 0 1", "f32[1,1,2] 1 0"}, {"f32[1,1,1,4] -3 2 1 4"}},
    {"interleaved pairs", "RotaryEmbedding", "interleaved=1", {"f32[1,1,1,4] 1 2 3 4", "f32[1,1,2] 0 1", "f32[1,1,2] 1 0"}, {"f32[1,1,1,4] -2 1 3 4"}},
    {"partial, by position", "RotaryEmbedding", "rotary_embedding_dim=2 num_heads=1", {"f32[1,1,3] 1 2 3", "f32[2,1] 9 0", "f32[2,1] 9 1", "i64[1,1] 1"},
     {"f32[1,1,3] -2 1 3"}},
    {"position out of range", "RotaryEmbedding", NULL, {"f32[1,1,1,2] 1 2", "f32[1,1] 1", "f32[1,1] 0", "i64[1,1] 1"}, {NULL}, HONE_ERR_INPUT, "position 1"},
    {"linear attention", "LinearAttention", "q_num_heads=1 kv_num_heads=1 update_rule=linear scale=1", {"f32[1,2,1] 1 2", "f32[1,2,1] 3 4", "f32[1,2,1] 5 6"},
     {"f32[1,2,1] 15 78", "f32[1,1,1,1] 39"}},
    {"delta rule forgets what it replaces", "LinearAttention", "q_num_heads=1 kv_num_heads=1 update_rule=delta scale=1",
     {"f32[1,1,1] 1", "f32[1,1,1] 1", "f32[1,1,1] 5", "f32[1,1,1,1] 2", "-", "f32[1,1,1] 1"}, {"f32[1,1,1] 5", "f32[1,1,1,1] 5"}},
    {"gate without decay", "LinearAttention", "q_num_heads=1 kv_num_heads=1 update_rule=gated", {"f32[1,1,1] 1", "f32[1,1,1] 1", "f32[1,1,1] 5"},
     {"f32[1,1,1] 1", "f32[1,1,1,1] 1"}, HONE_ERR_FORMAT, "update_rule"},
};

static void test_products(void **state) { (void)state; OP_CASES(k_products); }
static void test_einsum(void **state) { (void)state; OP_CASES(k_einsum); }
static void test_attention(void **state) { (void)state; OP_CASES(k_attention); }

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_einsum),
        cmocka_unit_test(test_attention),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
