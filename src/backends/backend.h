// SPDX-License-Identifier: Apache-2.0
// The backend interface: a vtable per kind of device, kernels as small objects with their own one.
//
// A plan is made in the order select -> layout propagation -> offsets -> bind -> run. select makes a
// kernel for one node of a device graph (posts included) whose dims are all constants, and says
// which layouts it reads and writes; only then are sizes known. Everything a kernel needs at run
// time is made in select or bind: run allocates nothing, looks nothing up, infers nothing.
#ifndef HN_BACKEND_H
#define HN_BACKEND_H
#include "ops/ops.h"
#include "store/prepared.h"

// Memory layouts of a value inside a plan. Ids from HN_LAYOUT_OPAQUE up belong to the backend that
// registered them (an oneDNN blocked format, say); equal ids mean equal layouts of equal shapes.
enum {
    HN_LAYOUT_PLAIN = 0,         // dense row-major
    HN_LAYOUT_CHANNELS_LAST = 1, // rank >= 3: N, spatial..., C dense; logical dims stay N, C, ...
    HN_LAYOUT_OPAQUE = 16,
};
typedef uint32_t hn_layout;

#define HN_MAX_KERNEL_IO 64
#define HN_MAX_PREPARED 4

typedef struct hn_kernel hn_kernel;
typedef struct hn_backend hn_backend;

// Where a kernel finds its memory: filled by the plan, fixed after bind except for graph inputs and
// outputs that the caller owns.
typedef struct hn_args {
    void *const *inputs;  // by node input index; NULL: absent, or constant consumed by prepack
    void *const *outputs; // by node output index; NULL: not wanted
    void *workspace;      // 64-byte aligned, workspace_bytes
} hn_args;

typedef struct hn_kernel_ops {
    size_t struct_size;
    // Once, after offsets are fixed and before the first run; may be NULL.
    hone_status (*bind)(hone_error *err, hn_kernel *kernel, const hn_args *args);
    hone_status (*run)(hone_error *err, hn_kernel *kernel, const hn_args *args);
    void (*destroy)(hn_kernel *kernel);
    // Host work that must precede a run whose steps are replayed as a whole (copying the caller's
    // memory to where a copy engine finds it); may be NULL.
    hone_status (*stage)(hone_error *err, hn_kernel *kernel, const hn_args *args);
} hn_kernel_ops;

// First member of every backend's kernel object. select fills it.
struct hn_kernel {
    const hn_kernel_ops *ops;
    const char *variant;          // "dnnl:brgconv_avx512", "own:depthwise_avx512", "ref": static text
    bool is_reference;
    bool on_device;               // run only starts the work (sync waits); workspace is device memory
    int sets;                     // of a copy to the device: that many inputs are kept there and used in turn later
    size_t workspace_bytes;
    // Weights in the kernel's own form and the like, shared with other kernels: destroy drops the
    // references (hn_kernel_release).
    hn_prepared *prepared[HN_MAX_PREPARED];
    int prepared_count;
    size_t own_bytes;             // weights in forms of its own beside those
    hn_layout in_layout[HN_MAX_KERNEL_IO];
    hn_layout out_layout[HN_MAX_KERNEL_IO];
    uint64_t consumed;            // bit i: input i was read at select (prepacked): no pointer needed
    int inplace_input[2];         // outputs 0 and 1 may share memory with this input (-1: none)
};

// What select is told.
typedef struct hn_select {
    hn_node *node;                // dims constant; constants have data
    const hn_layout *in_layout;   // layouts the inputs have now: a hint; the plan inserts reorders
    int threads;                  // that it will run with
    bool force_reference;         // tests: only the C reference
    bool deterministic;           // results independent of the thread count
    bool keep_nan;                // no step that drops NaN, whatever it costs (docs/notes/nan.md)
    bool apart;                   // prepared forms of its own (hn_prepared_ask)
    bool tf32;                    // float32 products may round their operands to TF32 where the device has it
} hn_select;

typedef struct hn_backend_info {
    const char *name;         // "cpu"
    const char *device;       // "Intel Xeon ... (AVX-512, VNNI, AMX)"
    const char *library;      // "oneDNN 2.6.3" or ""
    const char *isa;          // what prepared forms are for beside the library: "avx512", "sm_80", ""
} hn_backend_info;

struct hn_backend {
    size_t struct_size;
    int api_version;
    const char *name;
    // Opens the device; the same instance is returned for the same index, reference-counted.
    hone_status (*open)(hone_error *err, int index, hn_backend **out_backend);
    void (*close)(hn_backend *backend);
    void (*info)(hn_backend *backend, hn_backend_info *out_info);
    // Device memory for slabs. Host backends give 64-byte aligned memory.
    hone_status (*alloc)(hone_error *err, hn_backend *backend, size_t bytes, void **out_memory);
    void (*free)(hn_backend *backend, void *memory);
    // HONE_ERR_UNSUPPORTED (naming node and op) where there is no kernel: the plan then takes the
    // C reference, or fails where that is missing too.
    hone_status (*select)(hone_error *err, hn_backend *backend, const hn_select *what,
                          hn_kernel **out_kernel);
    // Bytes of a value of this type in this layout.
    hone_status (*layout_bytes)(hone_error *err, hn_backend *backend, const hn_type *type,
                                hn_layout layout, size_t *out_bytes);
    // A kernel (input 0 -> output 0) that changes the layout of one value.
    hone_status (*reorder)(hone_error *err, hn_backend *backend, const hn_type *type,
                           hn_layout from, hn_layout to, hn_kernel **out_kernel);
    // Device passes this backend wants run on the copy before select (names of passes.def), in order.
    const char *const *device_passes;
    // Largest |weight - zero point| whose products with 8-bit data this device adds up exactly; 0: any.
    // Groups of DequantizeLinear around a product with larger ones are left to run as float.
    int int8_weight_max;
    hone_status (*sync)(hone_error *err, hn_backend *backend);
    void *state;
    // Optional, both or neither: kernels use prepared forms where adopt brings them (a card's memory,
    // a loaded module) and not in host memory. See hn_prepared_ask.
    hone_status (*adopt)(hone_error *err, void *backend, const void *data, size_t bytes,
                         void **out_home);
    void (*disown)(void *backend, void *home);

    // ---- backends whose memory the host cannot read; all NULL for the others ---------------------
    // Layouts then say where a value lies, too: the ids below HN_LAYOUT_OPAQUE are host memory, a copy
    // between host and device is a reorder, and kernels of both sides stand in one plan.
    bool (*on_device)(hn_backend *backend, hn_layout layout);
    // Host layout of the same order of elements.
    hn_layout (*host_of)(hn_backend *backend, hn_layout layout);
    // The dense row-major layout in the same memory: where views are made.
    hn_layout (*plain_of)(hn_backend *backend, hn_layout layout);
    // Host memory that copies are fast from, for values in host layouts.
    hone_status (*host_alloc)(hone_error *err, hn_backend *backend, size_t bytes, void **out_memory);
    void (*host_free)(hn_backend *backend, void *memory);
    // Runs started between begin and end are recorded, not done; replay does them all at once. May be
    // NULL. HONE_ERR_UNSUPPORTED: cannot record.
    hone_status (*record_begin)(hone_error *err, hn_backend *backend);
    hone_status (*record_end)(hone_error *err, hn_backend *backend, void **out_record);
    hone_status (*replay)(hone_error *err, hn_backend *backend, void *record);
    void (*record_free)(hn_backend *backend, void *record);
    // Lanes that a recording may have, 0 or 1: steps follow each other. lane_begin: what is started next goes to
    // this lane, behind the ends of those steps; lane_end: there the step just started ends.
    int lanes;
    hone_status (*lane_begin)(hone_error *err, hn_backend *backend, int lane, const int *after, int after_count);
    hone_status (*lane_end)(hone_error *err, hn_backend *backend, int step);
    // Time stamps on the device: mark number `index` now; nanoseconds between two marks after sync.
    hone_status (*mark)(hone_error *err, hn_backend *backend, int index);
    hone_status (*between)(hone_error *err, hn_backend *backend, int from, int to, double *out_ns);
};

// Registered backends ("cpu", "cuda", "null"; "cuda:1" names an index, which then wins);
// HONE_ERR_UNSUPPORTED with what is there when the name is not.
hn_status hn_backend_open(hone_error *err, const char *name, int index, hn_backend **out_backend);

// The form of this key: the one that the process has, or a new one. The backend fills in kind, form,
// sources, bytes and make; library and ISA come from its info, adopt from its table.
hn_status hn_backend_prepared(hone_error *err, hn_backend *backend, hn_prepared_ask *ask,
                              hn_prepared **out_prepared);
// The same for what a kernel is selected for, kept by it until hn_kernel_release.
hn_status hn_kernel_prepare(hone_error *err, hn_backend *backend, const hn_select *what,
                            hn_kernel *kernel, hn_prepared_ask *ask, hn_prepared **out_prepared);
void hn_kernel_release(hn_kernel *kernel); // drops the kernel's references to prepared forms

// A kernel that calls the op table's reference (plain layouts). HONE_ERR_UNSUPPORTED where the row
// has none.
hn_status hn_kernel_reference(hone_error *err, const hn_select *what, hn_kernel **out_kernel);
#endif
