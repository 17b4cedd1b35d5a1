// SPDX-License-Identifier: Apache-2.0
// Inside of the CPU backend: its state, the kernel table and what the files that bind kernels to
// nodes share.
//
// A select function looks at one node and either makes a kernel object or returns
// HONE_ERR_UNSUPPORTED (the record is not filled: the next row is tried). It decides everything that
// a run needs; run functions read only their own object and the pointers they are given.
#ifndef HN_CPU_INT_H
#define HN_CPU_INT_H
#include "backends/backend.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/conv.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/quant.h"
#include "kernels/cpu/rnn.h"
#include "kernels/cpu/rows.h"
#include "libs/dnnl.h"
#include "probe/cpu.h"

// Operators the selecting code asks for by name; 0 where the op table lacks one.
#define CPU_OPS(X)                                                                                 \
    X(Relu) X(Clip) X(Sigmoid) X(Tanh) X(Gelu) X(HardSwish) X(HardSigmoid) X(LeakyRelu) X(Elu)     \
    X(Swish) X(Softplus) X(PRelu) X(Add) X(Sub) X(Mul) X(Div) X(Max) X(Min) X(Neg) X(Abs) X(Sqrt)  \
    X(Exp) X(Log) X(Erf) X(Reciprocal) X(Pow) X(Identity) X(QuantizeLinear) X(DequantizeLinear)    \
    X(MatMul) X(Gemm) X(Conv) X(ConvTranspose) X(MaxPool) X(AveragePool) X(GlobalAveragePool)      \
    X(GlobalMaxPool) X(LSTM) X(GRU)

typedef struct cpu_ops {
#define CPU_OP_FIELD(name) hn_op name;
    CPU_OPS(CPU_OP_FIELD)
#undef CPU_OP_FIELD
} cpu_ops;

typedef struct cpu_state {
    hn_isa isa;
    const hn_dnnl *dnnl; // NULL: oneDNN is not there
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    const hn_k_elementwise *ew;
    const hn_k_rows *rows;
    const hn_k_rnn *rnn;
    const hn_k_conv *conv;
    const hn_k_quant *quant;
    const hn_k_attention *attention;
    cpu_ops op;
    char device[96], library[32];
} cpu_state;

typedef hone_status (*cpu_select_fn)(hone_error *err, cpu_state *cpu, const hn_select *what,
                                     hn_kernel **out_kernel);

typedef struct cpu_row {
    const char *domain, *op, *variant;
    hn_isa isa;
    bool dnnl; // needs oneDNN
    cpu_select_fn select;
} cpu_row;

#define HN_KERNEL(domain, op, variant, isa, dnnl, select)                                          \
    hone_status select(hone_error *err, cpu_state *cpu, const hn_select *what,                     \
                       hn_kernel **out_kernel);
#include "kernels/kernels.def"

const cpu_row *cpu_rows(size_t *out_count);
// The last row that takes the node; HONE_ERR_UNSUPPORTED where none does (err is not filled).
hn_status cpu_rows_select(hone_error *err, cpu_state *cpu, const hn_select *what,
                          hn_kernel **out_kernel);
hn_status cpu_state_get(hone_error *err, cpu_state **out_cpu); // the process's one
void cpu_state_cap(cpu_state *cpu, hn_isa isa); // own kernels of that level (tests)

// ---- kernel objects -----------------------------------------------------------------------------
// Zeroed, layouts plain, no in-place. NULL when out of memory. Freed by cpu_kernel_destroy or an own
// destroy function that ends with hn_free.
void *cpu_kernel_new(size_t bytes, const hn_kernel_ops *ops);
void cpu_kernel_destroy(hn_kernel *kernel);
// A prepared form that the kernel holds: weights packed for it.
hn_status cpu_prepare(hone_error *err, const hn_select *what, hn_kernel *kernel, hn_prepared_ask *ask,
                      hn_prepared **out_prepared);

// ---- nodes --------------------------------------------------------------------------------------
// Input or output as dtype and shape; false where absent or not constant-shaped.
typedef struct cpu_value {
    hn_dtype dtype;
    hn_shape shape;
    int64_t count;
    const hn_value *value;
    const void *data; // of a constant, else NULL
} cpu_value;
bool cpu_in(const hn_node *node, int index, cpu_value *out);
bool cpu_out(const hn_node *node, int index, cpu_value *out);
int cpu_base_inputs(const hn_node *node); // inputs without those of posts
// A constant float scalar (or one-element tensor) input; false otherwise.
bool cpu_const_f32(const hn_node *node, int index, float *out);
// Elements of a constant integer input; -1 where it is not one or has more than max.
int cpu_const_ints(const hn_node *node, int index, int64_t *out, int max);

// Content as a source of a prepared form: its pages may go where this node alone reads them.
hn_prepared_source cpu_source(const cpu_value *value);
// Which dims a Reduce* node reduces. False: not known now.
bool cpu_reduce_axes(const hn_node *node, int rank, bool *reduced);

// ---- layouts ------------------------------------------------------------------------------------
// Order of the logical dims in memory, outermost first.
void cpu_physical(int rank, hn_layout layout, int *out_order);
// Sizes before, of and behind the run of memory dims that `reduced` marks; false: they are not one piece.
bool cpu_band(const hn_shape *shape, hn_layout layout, const bool *reduced, int64_t out_band[3]);
// Element strides by logical dim.
void cpu_strides(const hn_shape *shape, hn_layout layout, int64_t *out_strides);
// Channels-last and plain are the same bytes for this shape.
bool cpu_same_bytes(const hn_shape *shape);
// The layout an input has now, with same-bytes shapes taken as `wish`.
hn_layout cpu_hint(const hn_select *what, int index);

// ---- strided copies (move.c) --------------------------------------------------------------------
// Copies elements of `bytes` size: out is walked with dims (outermost first) and out_strides, in
// with in_strides (elements; may be 0). Prepared once, run often.
typedef struct cpu_move {
    int rank;
    int64_t dims[HN_MAX_RANK], in_strides[HN_MAX_RANK], out_strides[HN_MAX_RANK];
    int64_t in_offset, out_offset; // elements
    size_t bytes;                  // of an element
    int threads;
    bool is_copy;                  // one contiguous block
} cpu_move;
bool cpu_move_init(cpu_move *move, int rank, const int64_t *dims, const int64_t *in_strides,
                   const int64_t *out_strides, size_t bytes);
void cpu_move_run(const cpu_move *move, const void *in, void *out);

// The kernel of every op that only moves elements (moves.c), Gather and ScatterND apart: a list of
// copies. Other backends read it and do the same with their own copies.
typedef struct cpu_move_part {
    int input, output;
    cpu_move move;
} cpu_move_part;
typedef struct cpu_moves {
    hn_kernel base;
    int fill_output;       // output that is filled first, -1: none
    int64_t fill_count;
    uint64_t fill_bits;
    size_t fill_bytes;
    int count;
    cpu_move_part part[];
} cpu_moves;

// ---- element-wise (elementwise.c) ---------------------------------------------------------------
// One step on float32: out = fn(a [, b]) over the dims, operands with strides (0: broadcast).
typedef struct cpu_ew {
    int rank;
    int64_t dims[HN_MAX_RANK], a_strides[HN_MAX_RANK], b_strides[HN_MAX_RANK];
    int64_t count;
    hn_k_unary_fn unary; // one operand, else:
    const hn_k_binary_fn *binary;
    float alpha, beta;
    bool swapped;        // operand order of binary
    int threads;
    int64_t grain;       // elements a thread should have at least
} cpu_ew;
// Finds the unary function of an op with its parameters; false where there is none.
bool cpu_ew_unary(const cpu_state *cpu, hn_op op, float alpha, float beta, cpu_ew *out);
bool cpu_ew_binary(const cpu_state *cpu, hn_op op, cpu_ew *out);
// Strides of an operand along the dims of `out` (0 where it is broadcast); false if it does not fit.
bool cpu_operand_strides(const hn_shape *out, const hn_shape *shape, hn_layout layout,
                         int64_t *out_strides);
// Sets dims and strides: `out` in `layout`; operands with their own shapes and layouts.
bool cpu_ew_shape(cpu_ew *ew, const hn_shape *out, hn_layout layout, const hn_shape *a,
                  hn_layout a_layout, const hn_shape *b, hn_layout b_layout);
void cpu_ew_run(const cpu_ew *ew, const float *a, const float *b, float *out);

// Posts that the main kernel does not do itself: run in place over the output.
typedef struct cpu_posts {
    int count;
    cpu_ew step[HN_MAX_POST];
    int input[HN_MAX_POST];          // node input of the other operand, -1: none
    const void *constant[HN_MAX_POST]; // its data when it is a constant read where it lies
} cpu_posts;
// From post `first` on. Layouts of the operands are asked for in kernel->in_layout.
bool cpu_posts_init(cpu_state *cpu, const hn_select *what, int first, const hn_shape *out,
                    hn_layout layout, hn_kernel *kernel, cpu_posts *out_posts);
void cpu_posts_run(const cpu_posts *posts, const hn_args *args, float *out);
// For kernels that scale and shift with a slope below zero: how many of the first posts that does (a Relu
// or a LeakyRelu), and its slope.
int cpu_slope_post(const cpu_state *cpu, const hn_node *node, float *io_slope);

// ---- Resize (spatial.c) -------------------------------------------------------------------------
typedef struct cpu_resize {
    hn_kernel base;
    int64_t outer, in[3], out[3], inner; // planes, sizes, elements side by side
    bool linear;
    bool bytes;                 // elements of 8 bits, else float32
    int threads;
    int32_t *low[3], *high[3];  // in one block behind the struct: low, then high of each dim, then weights
    float *weight[3];           // of high
    cpu_posts posts;
} cpu_resize;
// What a Resize node (nearest or linear over the spatial dims) reads: sizes and tables, without posts.
// HONE_ERR_UNSUPPORTED for other modes. Freed by its destroy function.
hn_status cpu_resize_new(hone_error *err, const hn_node *node, hn_layout layout, cpu_resize **out_resize);

// ---- oneDNN (dnnl_util.c) -----------------------------------------------------------------------
typedef enum dnnl_source {
    DNNL_FROM_INPUT,
    DNNL_FROM_OUTPUT,
    DNNL_FROM_WORKSPACE,
    DNNL_FROM_OWN,
    DNNL_FROM_NARROW, // the input as bf16, converted into the workspace before each run
    DNNL_FROM_SCALES, // made in the workspace before each run: dnnl_scaled
    DNNL_FROM_SHIFTS,
} dnnl_source;

#define DNNL_MAX_ARGS 12

// A quantised node whose input 0 has its scale and zero point from a value of the graph. oneDNN 2.6's fast
// kernels take neither at run time: sums of the plain codes are multiplied by `unit * scale` and get
// `fixed - zero * sum * unit * scale` added, two rows that are made before each run.
typedef struct dnnl_scaled {
    int64_t channels;          // 0: this is no such node
    int scale, zero;           // inputs of the node; zero -1: none
    bool is_signed;            // the zero point is int8, else uint8
    float *unit, *sum, *fixed; // one block, owned by unit: scale of a weight column, its sum, what is added
    size_t offset;             // of the two rows in the workspace
} dnnl_scaled;

typedef struct dnnl_kernel {
    hn_kernel base;
    const hn_dnnl *api;
    dnnl_stream_t stream;
    dnnl_primitive_t primitive;
    int arg_count;
    dnnl_exec_arg_t args[DNNL_MAX_ARGS];
    dnnl_source source[DNNL_MAX_ARGS];
    int index[DNNL_MAX_ARGS];    // of the node's input or output
    void *last[DNNL_MAX_ARGS];   // pointer the memory object holds
    cpu_posts posts;
    // Input 0 of a node that computes in bf16: elements, and where the bf16 ones lie in the workspace.
    int64_t narrow_count;
    size_t narrow_offset;
    const hn_k_quant *quant;
    int threads;
    dnnl_scaled scaled;
    // oneDNN's maximum and minimum give a number where one side is NaN. A kernel with such a step is
    // watched: when the invalid flag comes up, `exact` does the work again.
    bool drops_nan;
    cpu_state *cpu;
    hn_select what;              // to select `exact` with; without layouts
    hn_kernel *exact;            // made at the first NaN
    void *exact_workspace;
} dnnl_kernel;

// What is built up before the primitive exists.
typedef struct dnnl_build {
    cpu_state *cpu;
    const hn_select *what;
    dnnl_kernel *kernel;
    dnnl_primitive_attr_t attr;
    dnnl_post_ops_t ops;
    int fused;                   // posts taken over by the primitive
    int op_count;                // post-ops so far
    struct dnnl_eltwise_used {
        dnnl_alg_kind_t alg;
        float alpha, beta;
    } used[HN_MAX_POST + 4];     // element-wise ones among them
    int used_count;
    int binary_input[HN_MAX_POST + 3], binary_at[HN_MAX_POST + 3], binary_count;
    dnnl_source binary_source[HN_MAX_POST + 3];
    dnnl_memory_desc_t binary_md[HN_MAX_POST + 3];
    dnnl_primitive_desc_t pd;
    bool threads_set;
    int threads_before; // of hn_parallel_use
    bool no_spatial_operands;    // posts with one that has a spatial dim are left to us
    bool no_nan;                 // there is none, or it has no meaning in the result (integers)
} dnnl_build;

hn_status dnnl_begin(hone_error *err, cpu_state *cpu, const hn_select *what, dnnl_build *out);
// Turns leading posts into oneDNN post-ops. `out` is the node's output shape in `layout`; oneDNN
// sees it with the dims `dims` (rank may differ for 1-D convolutions and batched products).
void dnnl_posts(dnnl_build *b, const hn_shape *out, hn_layout layout, int rank,
                const int64_t *dims);
// Notes that the primitive has a step in which a NaN is lost; false where no such step is wanted.
bool dnnl_drops_nan(dnnl_build *b, bool drops);
// One post; false where oneDNN does not take it.
bool dnnl_post_step(dnnl_build *b, const hn_post *post, const hn_shape *out, hn_layout layout,
                    int rank, const int64_t *dims);
// An element-wise post-op. False where oneDNN refuses it, or where the chain has one of the same kind
// with other parameters: oneDNN 2.6 then takes the first one's for both (seen with linear in
// jit:avx512_core_amx_int8).
bool dnnl_append_eltwise(dnnl_build *b, dnnl_alg_kind_t alg, float alpha, float beta);
// A binary post-op whose second operand is a node input, or made by us. False where oneDNN refuses it.
bool dnnl_append_made(dnnl_build *b, dnnl_alg_kind_t alg, const dnnl_memory_desc_t *md, dnnl_source source);
bool dnnl_append_binary(dnnl_build *b, dnnl_alg_kind_t alg, const dnnl_memory_desc_t *md, int input);
// Makes descriptor and primitive from an operation descriptor; kernel's variant is named after the
// implementation. HONE_ERR_UNSUPPORTED where oneDNN has none (or only its slow reference).
hn_status dnnl_make(hone_error *err, dnnl_build *b, const void *op_desc);
hn_status dnnl_arg(hone_error *err, dnnl_build *b, int arg, const dnnl_memory_desc_t *md,
                   dnnl_source source, int index);
// A constant, reordered into the form `to`; `from` describes the data. lasting: the data stays as long
// as the kernel, which may then read it where it lies.
hn_status dnnl_arg_packed(hone_error *err, dnnl_build *b, int arg, const dnnl_memory_desc_t *from,
                          hn_prepared_source data, bool lasting, const dnnl_memory_desc_t *to);
// Does this node compute in bf16 here? (Its choice in hn_node.compute, and an ISA that has it.)
bool dnnl_wants_bf16(const cpu_state *cpu, const hn_node *node);
// The source, input 0 of `count` float32 elements, as bf16.
hn_status dnnl_arg_narrow(hone_error *err, dnnl_build *b, const dnnl_memory_desc_t *md, int64_t count);
// Adds the post operands and the scratchpad, compiles what oneDNN left, hands the kernel over.
hn_status dnnl_finish(hone_error *err, dnnl_build *b, const hn_shape *out, hn_layout layout,
                      hn_kernel **out_kernel);
void dnnl_abandon(dnnl_build *b); // frees everything; safe at any point
// Dense memory descriptor of `dims` in plain or channels-last order.
void dnnl_dense(dnnl_build *b, dnnl_memory_desc_t *md, int rank, const int64_t *dims,
                dnnl_data_type_t type, hn_layout layout);
bool dnnl_type_of(hn_dtype dtype, dnnl_data_type_t *out);
// Sets the thread count for making a primitive of so much work; undone by finish and abandon.
void dnnl_threads(dnnl_build *b, double flops);
#endif
