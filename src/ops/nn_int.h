// SPDX-License-Identifier: Apache-2.0
// What the files of the neural-network op families share: reading operands as double or int64,
// small inference checks, sliding-window geometry, and the functions that rows of ops.def name.
//
// References compute in double (integers: exactly, in int64) whatever the storage type and round
// once at the end. Everything a reference allocates lives in one scratch arena per call.
#ifndef HN_OPS_NN_INT_H
#define HN_OPS_NN_INT_H
#include "ops/common.h"
#include "ops/nn_ops.h"

#define HN_MAX_SPATIAL (HN_MAX_RANK - 2)

// ---- scratch and operands -----------------------------------------------------------------------
typedef hone_status (*hn_ref_body)(hone_error *err, const hn_call *call, hn_arena *scratch);
// Runs a reference with an arena that is freed afterwards.
hn_status hn_ref_scratch(hone_error *err, const hn_call *call, hn_ref_body body);
// All elements as double; a float64 tensor is read in place. NULL tensor: *out is NULL.
hn_status hn_load_f64(hone_error *err, hn_arena *scratch, const hn_tensor *tensor,
                      const double **out_values);
hn_status hn_load_i64(hone_error *err, hn_arena *scratch, const hn_tensor *tensor,
                      const int64_t **out_values);
hn_status hn_scratch_f64(hone_error *err, hn_arena *scratch, int64_t count, double **out_values);
hn_status hn_scratch_i64(hone_error *err, hn_arena *scratch, int64_t count, int64_t **out_values);
// Rounds to the tensor's type (integers saturate, round half to even). No-op on a NULL tensor.
void hn_store_f64(hn_tensor *tensor, const double *values);
void hn_store_i64(hn_tensor *tensor, const int64_t *values); // exact: the low bits are kept
// Product of dims[from..to-1]; the shape has been checked when the tensor was made.
static inline int64_t hn_dims_product(const int64_t *dims, int from, int to) {
    int64_t n = 1;
    for (int i = from; i < to; i++) n *= dims[i];
    return n;
}

// ---- inference checks ---------------------------------------------------------------------------
// Known rank of an input must lie in lo..hi; *out_rank is -1 where input or rank is unknown.
hn_status hn_expect_rank(hone_error *err, const hn_infer *ctx, int input, int lo, int hi,
                         int *out_rank);
// a and b are one dim: different constants are an error; *out_dim is the better known of the two.
hn_status hn_expect_same(hone_error *err, const hn_infer *ctx, const char *what, hn_dim a, hn_dim b,
                         hn_dim *out_dim);
// A constant dim must not be negative.
hn_status hn_expect_size(hone_error *err, const hn_infer *ctx, const char *what, hn_dim dim);
static inline const hn_type *hn_in_type(const hn_infer *ctx, int input) {
    const hn_value *value = hn_in(ctx->node, input);
    return value ? &value->type : NULL;
}
// A known element type of an input must have 8 bits: the integer products rely on it.
hn_status hn_expect_8bit(hone_error *err, const hn_infer *ctx, int input);
// Type of input 0 with another element type (HN_NONE: the same); nothing if its rank is unknown.
void hn_infer_first(hn_infer *ctx, int output, hn_dtype dtype);
// Attribute as a list of exactly `count` integers in lo..hi; all `absent` where it is missing.
hn_status hn_read_ints(hone_error *err, const hn_node *node, const char *name, int count,
                       int64_t lo, int64_t hi, int64_t absent, int64_t *out_values);

// ---- attention (attention_step.c) ---------------------------------------------------------------
typedef struct hn_heads {
    int64_t offset, batch, head, row; // elements; the numbers of a row lie together
} hn_heads;
typedef struct hn_attention {
    int64_t batch, heads, kv_heads, queries, keys, size, value_size;
    hn_heads q, k, v, y;
    int64_t mask[4]; // strides over batch, heads, queries, keys
    bool has_mask;
} hn_attention;
#define HN_ATTENTION_VIEW 22 // numbers of hn.Attention's `view`
// How the heads of hn.Attention, or of the standard operator without cache, cap and window, lie. False where
// dims are unknown, or it is neither. `inputs`: without those of posts.
bool hn_attention_read(const hn_node *node, int inputs, hn_attention *out);

#define HN_EMBEDDING_PARTS 60 // of hn.Embeddings

// ---- sliding windows (window.c) -----------------------------------------------------------------
typedef enum hn_auto_pad { HN_PAD_EXPLICIT, HN_PAD_SAME_UPPER, HN_PAD_SAME_LOWER, HN_PAD_VALID } hn_auto_pad;

typedef struct hn_window {
    int rank; // spatial dims
    hn_auto_pad auto_pad;
    bool ceil_mode;
    int64_t stride[HN_MAX_SPATIAL], dilation[HN_MAX_SPATIAL];
    int64_t pad_begin[HN_MAX_SPATIAL], pad_end[HN_MAX_SPATIAL]; // 0 unless explicit
} hn_window;

// Strides, dilations, pads, auto_pad, ceil_mode of a Conv- or Pool-like node.
hn_status hn_window_read(hone_error *err, const hn_node *node, int rank, hn_window *out_window);
// Spatial output dims; kernel dims may be symbolic.
hn_status hn_window_infer(hone_error *err, const hn_infer *ctx, const hn_window *window,
                          const hn_dim *in, const hn_dim *kernel, hn_dim *out_dims);

// A window with concrete sizes: pads resolved.
typedef struct hn_geometry {
    int rank;
    int64_t in[HN_MAX_SPATIAL], out[HN_MAX_SPATIAL], kernel[HN_MAX_SPATIAL];
    int64_t stride[HN_MAX_SPATIAL], dilation[HN_MAX_SPATIAL];
    int64_t pad_begin[HN_MAX_SPATIAL], pad_end[HN_MAX_SPATIAL];
    int64_t in_count, out_count, kernel_count;
    int64_t tap_limit; // most taps that can lie inside the input
} hn_geometry;
hn_status hn_geometry_make(hone_error *err, const hn_node *node, const hn_window *window,
                           const int64_t *in, const int64_t *kernel, const int64_t *out,
                           hn_geometry *out_geometry);
// The taps of the window at output position `at`: flat input and kernel offsets of those that lie
// inside the input. Arrays hold tap_limit entries. Returns their number; *out_padded (may be NULL)
// counts those inside the padded input.
int64_t hn_geometry_taps(const hn_geometry *geometry, const int64_t *at, int64_t *input_offsets,
                         int64_t *kernel_offsets, int64_t *out_padded);

// ---- matrix products (matmul.c) -----------------------------------------------------------------
typedef struct hn_matmul_plan {
    int64_t rows, inner, columns, batches;
    int lead; // broadcast leading dims, with the steps (in matrices) of both operands
    int64_t dims[HN_MAX_RANK], step_a[HN_MAX_RANK], step_b[HN_MAX_RANK];
} hn_matmul_plan;
// The operands' shapes with a 1-D one's missing dim put in, and the product's dims [m,k] x [k,n]; false:
// a scalar, or the inner dims differ.
bool hn_product_shape(hn_shape *a, hn_shape *b, bool trans_a, bool trans_b, int64_t *out_m, int64_t *out_k,
                      int64_t *out_n);
void hn_matmul_plan_make(const hn_tensor *a, const hn_tensor *b, hn_matmul_plan *out_plan);
void hn_matmul_plan_at(const hn_matmul_plan *plan, int64_t batch, int64_t *out_a, int64_t *out_b);
hn_status hn_infer_matmul_at(hone_error *err, hn_infer *ctx, int left, int right, hn_dtype dtype);
hn_status hn_matmul_param_check(hone_error *err, const hn_node *node, const hn_tensor *operand,
                                const hn_tensor *param, bool by_row);
int64_t hn_matmul_param_at(const hn_tensor *operand, const hn_tensor *param, bool by_row,
                           int64_t i);
hn_status hn_conv_integer_sums(hone_error *err, const hn_call *call, hn_arena *scratch,
                               const hn_tensor *tx, const hn_tensor *tw, const hn_tensor *x_zero,
                               const hn_tensor *w_zero, const hn_tensor *ty, int64_t *acc);

// Log-softmax of `count` elements that lie `step` apart (norm.c).
void hn_line_log_softmax(const double *x, double *y, int64_t count, int64_t step);

// ---- gradients ----------------------------------------------------------------------------------
// A standard one-output node without attributes, inferred. A NULL operand (an earlier failure) gives
// NULL, so that calls nest and one check at the end is enough.
hn_value *hn_grad_op(hn_grad *ctx, const char *op_type, int count, ...);

// ---- element types ------------------------------------------------------------------------------
double hn_round_even(double value);
// Result of quantising value/scale + zero: rounds half to even and saturates for integers; 8-bit
// and smaller floats round to nearest even and saturate where `saturate` says so.
void hn_quantize_store(hn_tensor *tensor, int64_t index, double scaled, int64_t zero, bool saturate);
#endif
