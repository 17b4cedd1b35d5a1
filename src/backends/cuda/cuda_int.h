// SPDX-License-Identifier: Apache-2.0
// Inside of the CUDA backend: the device, compiled functions, launch objects, the kernel table.
//
// Layouts: 0 and 1 are host memory (plain, channels-last), CUDA_PLAIN and CUDA_LAST the same on the
// card. A node without a kernel here gets the CPU backend's, and the planner puts copies around it.
// Everything runs on the device's one stream, in order; run functions only start work. A fault that
// loses the context is kept in the device: every later call answers with it.
#ifndef HN_CUDA_INT_H
#define HN_CUDA_INT_H
#include <pthread.h>
#include "backends/backend.h"
#include "backends/cpu/cpu_int.h"
#include "libs/cublaslt.h"
#include "libs/cuda.h"
#include "libs/cudnn.h"
#include "libs/nvrtc.h"
#include "store/store.h"

enum { CUDA_PLAIN = HN_LAYOUT_OPAQUE, CUDA_LAST = HN_LAYOUT_OPAQUE + 1 };
// The same order of elements on the other side.
static inline hn_layout cuda_to_host(hn_layout layout) { return layout == CUDA_LAST ? HN_LAYOUT_CHANNELS_LAST : layout == CUDA_PLAIN ? HN_LAYOUT_PLAIN : layout; }
static inline hn_layout cuda_to_device(hn_layout layout) { return layout == HN_LAYOUT_CHANNELS_LAST ? CUDA_LAST : layout == HN_LAYOUT_PLAIN ? CUDA_PLAIN : layout; }
static inline bool cuda_is_device(hn_layout layout) { return layout >= HN_LAYOUT_OPAQUE; }

#define CUDA_MAX_MARKS 16384
#define CUDA_MAX_LANES 8

typedef struct cuda_function {
    hn_cu_function handle;
    int registers, spill_bytes, shared_bytes;
} cuda_function;

// Where kernels come from: of each node's own text by NVRTC, for the card's architecture or as PTX of sm_80;
// or the build's generic forms, as machine code or as PTX.
typedef enum cuda_code { CUDA_CODE_OWN, CUDA_CODE_OWN_SM80, CUDA_CODE_FORMS, CUDA_CODE_PTX } cuda_code;

typedef struct cuda_module cuda_module;
typedef struct cuda_const cuda_const;

// What a card can do, as far as kernels and choices depend on it.
typedef struct cuda_caps {
    int cc;                 // 80, 86, 89, 90, ...
    int sm_count, threads_per_sm, shared_optin_bytes;
    size_t memory_bytes, l2_bytes;
    double memory_gb_s;     // of the bus, from clock and width; 0 unknown
    bool bf16, fp8, wgmma;  // tensor cores take them
} cuda_caps;

typedef struct cuda_device {
    hn_backend backend;     // .state points here
    int index, ordinal, references;
    const hn_cuda *api;
    const hn_nvrtc *nvrtc;
    hn_cu_context context;
    hn_cu_stream stream;    // where work goes: the first lane, while recording any of them
    hn_cu_stream lanes[CUDA_MAX_LANES]; // made when first used
    unsigned lanes_used;    // bits, of the recording under way
    cuda_caps caps;
    char device[160], library[96], isa[16];
    cpu_state *cpu_state;
    hn_backend *cpu;        // for what has no kernel here
    cuda_code code;
    cuda_module *modules;   // compiled so far
    hn_cu_module *forms;    // loaded so far, by number of the form; NULL: none
    cuda_const *constants;  // weights on the card
    size_t constant_bytes;
    bool lost;
    char lost_text[256];
    const char *last_kernel;  // started last, for the sentence about a fault
    char last_node[96];
    bool recording;
    hn_cu_event fence;        // made when first used
    hn_cu_event *marks;       // CUDA_MAX_MARKS, made when first used
    hn_cu_event *ends;        // of steps, for other lanes: the same
    hn_cu_event lane_fence;
    unsigned *fault;          // pinned, mapped: kernels write the number of a bad index here
    hn_cu_ptr fault_device;
    const hn_cublaslt *lt;
    hn_lt_handle lt_handle;
    const hn_cudnn *dnn;
    hn_dnn_handle dnn_handle;
    int tries;                // engines of cuDNN that are tried for one convolution
    int driver, nvrtc_version; // 12080: CUDA 12.8; 12009: NVRTC 12.9
    int compiled;             // statistics
    int64_t compile_ns;
    pthread_mutex_t lock;
} cuda_device;

// ---- device.c -----------------------------------------------------------------------------------
// HONE_OK, or the error with "what" in its sentence; sticky results mark the device lost.
hn_status cuda_check(hone_error *err, cuda_device *d, int result, const char *what);
#define CUDA_TRY(err, d, call, what) HN_TRY(cuda_check(err, d, (call), what))
hn_status cuda_current(hone_error *err, cuda_device *d); // binds the context to this thread
hn_status cuda_device_open(hone_error *err, int index, cuda_device **out_device);
void cuda_device_close(cuda_device *d);
hn_status cuda_memory_new(hone_error *err, cuda_device *d, size_t bytes, hn_cu_ptr *out_memory);
void cuda_memory_free(cuda_device *d, hn_cu_ptr memory);
static inline void *cuda_pointer(hn_cu_ptr memory) { return (void *)(uintptr_t)memory; }
static inline hn_cu_ptr cuda_address(const void *pointer) { return (hn_cu_ptr)(uintptr_t)pointer; }

// ---- module.c -----------------------------------------------------------------------------------
// The function `entry` of a source text, compiled for this device (once a text). `exact`: multiply and
// add are rounded apart, as the references do.
hn_status cuda_function_get(hone_error *err, cuda_device *d, const char *source, const char *entry,
                            bool exact, cuda_function *out_function);
void cuda_modules_free(cuda_device *d);
void cuda_function_read(cuda_device *d, cuda_function *function); // registers and the like
// Source texts of src/kernels/cuda by file name without ".cu"; never NULL for files that exist.
const char *cuda_text(const char *name);

// ---- what the store keeps (kept.c) --------------------------------------------------------------
// Never an error: NULL or false where there is nothing. What is kept must be hn_free's; it is taken over.
hn_blob *cuda_kept_code(const cuda_device *d, const char *source, const char *options);
void cuda_keep_code(const cuda_device *d, const char *source, const char *options, void *image, size_t bytes);
// Choices: by card, driver, library (name and version) and the problem's text.
bool cuda_kept_record(const cuda_device *d, const char *kind, const char *name, size_t version, const char *text,
                      hn_str *out_value);
void cuda_keep_record(const cuda_device *d, const char *kind, const char *name, size_t version, const char *text,
                      const char *value);
hn_blob *cuda_kept_blob(const cuda_device *d, const char *kind, const char *name, size_t version, const char *text);
void cuda_keep_blob(const cuda_device *d, const char *kind, const char *name, size_t version, const char *text, void *data,
                    size_t bytes);

// ---- constants (constants.c) --------------------------------------------------------------------
struct cuda_const {
    const void *source;     // host data it is a copy of
    size_t bytes;
    uint64_t form;          // 0: as it is; else what was made of it
    hn_cu_ptr memory;
    int references;
    cuda_const *next;
};
// A copy of host data on the card, shared by equal (source, bytes, form).
hn_status cuda_const_get(hone_error *err, cuda_device *d, const void *source, size_t bytes,
                         cuda_const **out_constant);
// Made data: found by (source, form), else fill is called with host memory of `bytes` to write.
typedef void (*cuda_fill_fn)(void *user, void *out);
hn_status cuda_const_made(hone_error *err, cuda_device *d, const void *source, uint64_t form, size_t bytes,
                          cuda_fill_fn fill, void *user, cuda_const **out_constant);
// A constant input in a layout's order.
hn_status cuda_const_turned(hone_error *err, cuda_device *d, const cpu_value *value, hn_layout layout, cuda_const **out_constant);
void cuda_const_drop(cuda_device *d, cuda_const *constant); // takes NULL

// ---- kernels by what they are told (spec.c) -------------------------------------------------------
typedef struct cuda_form {
    const char *name, *parts; // texts
    bool exact;
    const char *choices, *fields;
} cuda_form;
const cuda_form *cuda_forms(size_t *out_count);
extern const unsigned char cuda_embedded[]; // what the build made
size_t cuda_embedded_bytes(void);
size_t cuda_embedded_count(void);           // forms times architectures; 0: this build carries none
// Machine code (or PTX, ended by a 0) of a form for a card; hn_free's. HONE_ERR_UNSUPPORTED: none suits.
hn_status cuda_embedded_code(hone_error *err, const char *form, int cc, bool ptx_only, char **out_code, size_t *out_bytes);
void cuda_forms_free(cuda_device *d);
hn_status cuda_forms_try(hone_error *err, cuda_device *d); // loads one: does the driver take them?
static inline bool cuda_is_generic(const cuda_device *d) { return d->code == CUDA_CODE_FORMS || d->code == CUDA_CODE_PTX; }

// ---- launches (kernel.c) ------------------------------------------------------------------------
typedef enum cuda_arg_kind { CUDA_ARG_INPUT, CUDA_ARG_OUTPUT, CUDA_ARG_WORKSPACE, CUDA_ARG_MEMORY, CUDA_ARG_I64 } cuda_arg_kind;
typedef struct cuda_arg {
    cuda_arg_kind kind;
    int index;          // of the node's input or output
    int64_t offset;     // bytes
    uint64_t value;     // MEMORY: address; I64: the number
} cuda_arg;
#define CUDA_MAX_ARGS 24
typedef struct cuda_launch {
    cuda_function function;
    unsigned grid[3], block[3], shared_bytes;
    const void *params;     // of a generic form: behind the arguments; NULL: none
    size_t param_bytes;
    int arg_count;
    cuda_arg args[CUDA_MAX_ARGS];
} cuda_launch;

#define CUDA_MAX_CHOICES 12
typedef struct cuda_spec {
    cuda_device *d;
    size_t form;
    hn_str text;      // of the node's own kernel
    bool printed;     // whole
    char choice[CUDA_MAX_CHOICES][16];
    const char *unknown; // told what the form has no name for
    bool too_large;      // for the form's ints
    _Alignas(8) unsigned char params[1280];
} cuda_spec;
void cuda_spec_begin(cuda_spec *s, cuda_device *d, const char *form);
void cuda_spec_type(cuda_spec *s, const char *name, const char *type);
void cuda_spec_int(cuda_spec *s, const char *name, int64_t value);
void cuda_spec_real(cuda_spec *s, const char *name, double value);
void cuda_spec_ints(cuda_spec *s, const char *name, int count, const int64_t *values); // generic forms only
void cuda_spec_reach(cuda_spec *s, int64_t elements); // the kernel counts so far
// Sets the launch's function and params (borrowed until cuda_spec_end). HONE_ERR_UNSUPPORTED: no such form.
hn_status cuda_spec_kernel(hone_error *err, cuda_spec *s, const char *entry, cuda_launch *launch);
void cuda_spec_end(cuda_spec *s);

typedef struct cuda_kernel cuda_kernel;
typedef hone_status (*cuda_call_fn)(hone_error *err, cuda_kernel *k, const hn_args *args);
struct cuda_kernel {
    hn_kernel base;
    cuda_device *device;
    char label[96];                     // of the node, for faults
    HN_VEC(cuda_launch) launches;
    size_t before;                      // that many of them before the call, the others after it
    HN_VEC(cuda_const *) constants;     // held
    HN_VEC(void *) params;              // of the launches
    cuda_call_fn call;                  // a library's part, before the launches; NULL: none
    void *call_state;
    void (*call_free)(cuda_kernel *k);
    const cuda_const *input_const[HN_MAX_KERNEL_IO]; // constant inputs: where they lie
};
// Layouts CUDA_PLAIN; constant inputs are uploaded as asked for. NULL: out of memory.
cuda_kernel *cuda_kernel_new(cuda_device *d, const hn_node *node);
void cuda_kernel_free(cuda_kernel *k); // takes NULL
// Where the kernel finds input `index`: a constant is uploaded and marked consumed.
hn_status cuda_kernel_input(hone_error *err, cuda_kernel *k, const hn_node *node, int index, cuda_arg *out_arg);
hn_status cuda_kernel_hold(hone_error *err, cuda_kernel *k, cuda_const *constant); // takes the reference
hn_status cuda_kernel_launch(hone_error *err, cuda_kernel *k, const cuda_launch *launch); // appends a copy, of its params too
static inline cuda_arg cuda_arg_output(int index) { return (cuda_arg){CUDA_ARG_OUTPUT, index, 0, 0}; }
static inline cuda_arg cuda_arg_workspace(int64_t offset) { return (cuda_arg){CUDA_ARG_WORKSPACE, 0, offset, 0}; }
static inline cuda_arg cuda_arg_memory(hn_cu_ptr memory) { return (cuda_arg){CUDA_ARG_MEMORY, 0, 0, memory}; }
static inline cuda_arg cuda_arg_i64(int64_t value) { return (cuda_arg){CUDA_ARG_I64, 0, 0, (uint64_t)value}; }
void *cuda_arg_pointer(const cuda_arg *arg, const hn_args *args); // of the first four kinds
void cuda_launch_1d(cuda_launch *launch, int64_t items, int block); // one thread an item
// HONE_OK and hands over, or frees and passes the status on. posts: done by what was built already.
hn_status cuda_kernel_done(hone_status status, cuda_kernel *k, hn_kernel **out_kernel);

// ---- what several select functions ask (nodes.c) ------------------------------------------------
// Name of an element type in the sources ("f16"), NULL where the kernels do not know it.
const char *cuda_ctype(hn_dtype dtype);
bool cuda_is_float16(hn_dtype dtype); // f16 or bf16
// Widest vector of elements that divides n, at most `bytes` long.
int cuda_vector(int64_t n, size_t element_bytes, int bytes);
// The same for a form: generic ones have vectors of 4 elements and single ones.
int cuda_form_vector(const cuda_device *d, int64_t n, size_t element_bytes, int bytes);
// Layout an input has now, as a device layout.
hn_layout cuda_hint(const hn_select *what, int index);
bool cuda_tf32(const hn_select *what); // float32 work may round its operands to TF32
// The shape as [outer][count][inner] in memory order, see band_of of the CPU; false where it is none.
bool cuda_band(const hn_shape *shape, hn_layout device_layout, const bool *reduced, int64_t band[3]);

// ---- element-wise programs (elementwise.c) ------------------------------------------------------
// The posts of a node from number `first` on, as a launch over output 0 in place.
hn_status cuda_posts(hone_error *err, cuda_kernel *k, const hn_select *what, int first, const hn_shape *shape,
                     hn_dtype dtype, hn_layout layout);
// The same with a value a channel (node input `bias`, -1: none) added first.
hn_status cuda_posts_after(hone_error *err, cuda_kernel *k, const hn_select *what, int bias, int first, const hn_shape *shape,
                           hn_dtype dtype, hn_layout layout);
// Writes `A after(A value)`, the leading posts that need no further operand, for a kernel that computes in
// `type` (A); how many they are.
int cuda_posts_text(const hn_select *what, const char *type, hn_str *out);
// t<number> = formula(x, y; a, b) as a statement; x, y, a and b are texts, type is the one computed in.
void cuda_step_text(hn_str *out, int number, const char *type, const char *formula, const char *x, const char *y, const char *a,
                    const char *b);
int cuda_posts_spec(const hn_select *what, const char *type, cuda_spec *spec); // the same; generic forms take none
int cuda_type_code(hn_dtype dtype); // as steps.cu numbers element types
// Prints a formula's operand-free number so that CUDA C reads the same value.
void cuda_print_number(hn_str *out, double value);

// A convolution that is left to our kernel for few inputs (conv_few.c).
bool cuda_conv_few_takes(const hn_node *node);
// A layout change between device layouts (moves.c).
hn_status cuda_reorder_select(hone_error *err, cuda_device *d, const hn_type *type, hn_layout from, hn_layout to,
                              hn_kernel **out_kernel);

// ---- the kernel table ---------------------------------------------------------------------------
typedef hone_status (*cuda_select_fn)(hone_error *err, cuda_device *d, const hn_select *what, hn_kernel **out_kernel);
typedef struct cuda_row {
    const char *domain, *op; // op "*": every operator
    const char *variant;
    int min_cc;
    cuda_select_fn select;
} cuda_row;
#define HN_CUDA_KERNEL(domain, op, variant, min_cc, select)                                        \
    hone_status select(hone_error *err, cuda_device *d, const hn_select *what, hn_kernel **out_kernel);
#include "kernels/kernels.def"
const cuda_row *cuda_rows(size_t *out_count);

// ---- libraries ----------------------------------------------------------------------------------
// Loaded with the first product or convolution; HONE_ERR_UNSUPPORTED in one sentence where absent.
hn_status cuda_lt(hone_error *err, cuda_device *d);
hn_status cuda_dnn(hone_error *err, cuda_device *d);
#endif
