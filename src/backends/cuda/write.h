// SPDX-License-Identifier: Apache-2.0
// Writing a kernel: the prelude, what the text is told, the text; then its launches.
#ifndef HN_CUDA_WRITE_H
#define HN_CUDA_WRITE_H
#include "backends/cuda/cuda_int.h"

typedef struct cuda_writer {
    hone_error *err;
    cuda_kernel *k;      // owned until cuda_write_done
    const hn_node *node;
    hn_str text;
    bool exact;          // multiply and add are rounded apart
    hone_status status;  // the first thing that went wrong; everything after it does nothing
} cuda_writer;

// Begins with the prelude; layouts plain, no launches yet.
void cuda_write_begin(hone_error *err, cuda_device *d, const hn_node *node, bool exact, cuda_writer *out_writer);
void cuda_write_number(cuda_writer *w, const char *name, int64_t value);      // #define NAME 5ll
void cuda_write_type(cuda_writer *w, const char *name, const char *type);     // typedef type NAME;
void cuda_write_list(cuda_writer *w, const char *name, int count, const int64_t *values, int64_t fill, int room); // NAME0 ...
// The type that elements are computed in ("float", "double", "i64", "u64") as A, and LOAD(x) to it.
void cuda_write_compute(cuda_writer *w, hn_dtype dtype);
void cuda_write_text(cuda_writer *w, const char *name);                       // of src/kernels/cuda
// One launch of `items` threads in blocks of `block`; what it is given comes from the list.
void cuda_write_launch(cuda_writer *w, const char *entry, int64_t items, int block, int arg_count, const cuda_arg *args);
cuda_arg cuda_write_input(cuda_writer *w, int index); // 0 as a number where the node has none
cuda_arg cuda_write_output(const cuda_writer *w, int index);
// Takes the writer apart: hands the kernel over, or frees it and gives the status.
hn_status cuda_write_done(cuda_writer *w, hn_kernel **out_kernel);

// The kinds of element a kernel takes: 8 to 64 bits; and the unsigned type of that size ("u128" for 16 bytes).
bool cuda_moves_dtype(hn_dtype dtype);
const char *cuda_unit(int bytes);
#endif
