// SPDX-License-Identifier: Apache-2.0
// What the op families share: errors that name the node, cells and broadcasting for references,
// symbolic element propagation for inference.
#ifndef HN_OPS_COMMON_H
#define HN_OPS_COMMON_H
#include "ops/ops.h"

// ---- errors -------------------------------------------------------------------------------------
// Fills the record with "<node label>: text"; returns status.
hone_status hn_node_error(hone_error *err, hone_status status, const hn_node *node,
                          const char *file, int line, const char *fmt, ...) HN_PRINTF(6, 7);
#define HN_FAIL_NODE(err, status, node, ...)                                                       \
    return hn_node_error((err), (status), (node), __FILE__, __LINE__, __VA_ARGS__)
// The usual one of inference: the model contradicts itself.
#define HN_BAD_NODE(err, node, ...) HN_FAIL_NODE(err, HONE_ERR_FORMAT, node, __VA_ARGS__)

// ---- cells --------------------------------------------------------------------------------------
// References compute in three classes: every float as double, integers as 64 bits. Integer results
// are narrowed by dropping high bits, which makes wrap-around exact for each width.
typedef enum hn_class { HN_CLASS_F, HN_CLASS_I, HN_CLASS_U, HN_CLASSES } hn_class;
typedef union hn_cell {
    double f;
    int64_t i;
    uint64_t u;
} hn_cell;
#define HN_CHUNK 256 // cells worked on at a time; a stack buffer of 2 KiB

hn_class hn_dtype_class(hn_dtype dtype); // bool is U
// True for what cells can hold: not strings, not complex numbers.
bool hn_dtype_is_plain(hn_dtype dtype);
// count cells from elements start, start+step, ... converted to `to`; float to integer truncates.
void hn_cells_load(const hn_tensor *tensor, int64_t start, int64_t step, int count, hn_class to,
                   hn_cell *out_cells);
// To elements start, start+1, ...; from float to integer truncates and saturates.
void hn_cells_store(hn_tensor *tensor, int64_t start, int count, hn_class from,
                    const hn_cell *cells);
hn_cell hn_cell_from_f64(hn_class to, double value); // truncates, saturates; NaN is 0
double hn_cell_to_f64(hn_class from, hn_cell cell);
// Lowest and highest value of a dtype as cells of its class (infinities for floats that have them).
hn_cell hn_dtype_lowest(hn_dtype dtype);
hn_cell hn_dtype_highest(hn_dtype dtype);

// ---- walking ------------------------------------------------------------------------------------
void hn_strides(const hn_shape *shape, int64_t out_strides[HN_MAX_RANK]); // in elements
// Elements in dims [from, to); the tensor exists, so the product is known to fit.
int64_t hn_span(const hn_shape *shape, int from, int to);
// Advances a row-major index over dims [0, rank); false after the last.
bool hn_index_next(int64_t *index, const int64_t *dims, int rank);

// Broadcasts `count` inputs over an output, row by row: a row is a run of output elements in which
// each input advances by a constant step. Rows come in order of the output.
typedef struct hn_walk {
    int rank, count;
    int64_t dims[HN_MAX_RANK];
    int64_t index[HN_MAX_RANK];
    int64_t row;             // elements of a row
    int64_t rows, next;      // how many rows there are, the one to come
    int64_t (*steps)[HN_MAX_RANK]; // by input; owned
    int64_t *offsets;        // by input: its element at the row's start; owned
} hn_walk;
hn_status hn_walk_init(hone_error *err, const hn_shape *out, const hn_tensor *const *inputs,
                       int count, hn_walk *out_walk);
bool hn_walk_next(hn_walk *walk); // to the next (first) row; false at the end
static inline int64_t hn_walk_step(const hn_walk *walk, int input) {
    return walk->rank ? walk->steps[input][walk->rank - 1] : 0;
}
void hn_walk_free(hn_walk *walk);

// ---- references that only move elements ----------------------------------------------------------
// Calls fn with 4- and 2-bit tensors opened to a byte an element and packs its outputs again, so
// that moving code sees whole bytes only. HONE_ERR_UNSUPPORTED for strings.
hn_status hn_move_call(hone_error *err, const hn_call *call, hn_ref_fn fn);
// Bytes of one element inside fn.
static inline size_t hn_item_bytes(const hn_tensor *tensor) { return hn_dtype_bytes(tensor->dtype); }

// ---- inputs of references -------------------------------------------------------------------------
static inline const hn_tensor *hn_call_in(const hn_call *call, int index) {
    return index < call->input_count ? call->inputs[index] : NULL;
}
static inline hn_tensor *hn_call_out(const hn_call *call, int index) {
    return index < call->output_count ? call->outputs[index] : NULL;
}
hn_status hn_call_axis(hone_error *err, const hn_call *call, int64_t axis, int rank, int *out_axis);

// ---- inference ----------------------------------------------------------------------------------
#define HN_ELEMS_MAX 256 // elements that shape arithmetic follows
// Lower end of the range of an element that nothing is known of.
#define HN_ELEM_UNKNOWN (-((int64_t)1 << 62))

hn_status hn_infer_axis(hone_error *err, const hn_infer *ctx, int64_t axis, int rank,
                        int *out_axis);
// Integers of an attribute list; HONE_ERR_FORMAT when longer than max.
hn_status hn_infer_attr_ints(hone_error *err, const hn_infer *ctx, const char *name, int64_t *out,
                             int max, int *out_count);
static inline bool hn_known_rank(const hn_value *value) { return value && value->type.rank >= 0; }
// dtype of inputs a and b, which must agree where both are known.
hn_status hn_infer_same_dtype(hone_error *err, const hn_infer *ctx, int first, int second);
// Product of dims [from, to).
hn_dim hn_infer_product(hn_dims *dims, const hn_dim *list, int from, int to);

// hn_value_elems, extended: constants of any rank, and float ones whose elements are integers.
const hn_dim *hn_infer_elems(hn_infer *ctx, const hn_value *value, int *out_count);
// True when every element is a known number.
bool hn_infer_ints(hn_infer *ctx, const hn_value *value, int64_t *out, int max, int *out_count);
// A fully known scalar (or one element) input as double, any numeric dtype.
bool hn_infer_number(hn_infer *ctx, const hn_value *value, double *out);
// Computes the elements of output 0 of a moving op by running its reference on handles: the inputs
// in data_mask are the moved ones, the others must be known numbers. Quietly nothing otherwise.
void hn_infer_move_elems(hn_infer *ctx, uint64_t data_mask, hn_ref_fn ref);
// The elements of an element-wise op over known elements.
void hn_infer_scalar_elems(hn_infer *ctx);
#endif
