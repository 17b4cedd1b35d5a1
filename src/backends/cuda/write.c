// SPDX-License-Identifier: Apache-2.0
// Writing a kernel: see write.h.
#include "backends/cuda/write.h"

void cuda_write_begin(hone_error *err, cuda_device *d, const hn_node *node, bool exact, cuda_writer *out_writer) {
    *out_writer = (cuda_writer){.err = err, .k = cuda_kernel_new(d, node), .node = node, .exact = exact};
    if (!out_writer->k) out_writer->status = HN_SET(err, HONE_ERR_NOMEM, "out of memory (selecting a kernel)");
    hn_str_append(&out_writer->text, cuda_text("prelude"));
}

void cuda_write_number(cuda_writer *w, const char *name, int64_t value) {
    hn_str_printf(&w->text, "#define %s %lldll\n", name, (long long)value);
}
void cuda_write_type(cuda_writer *w, const char *name, const char *type) { hn_str_printf(&w->text, "typedef %s %s;\n", type, name); }
void cuda_write_list(cuda_writer *w, const char *name, int count, const int64_t *values, int64_t fill, int room) {
    for (int i = 0; i < room; i++)
        hn_str_printf(&w->text, "#define %s%d %lldll\n", name, i, (long long)(i < room - count ? fill : values[i - (room - count)]));
}

void cuda_write_compute(cuda_writer *w, hn_dtype dtype) {
    bool wide = dtype == HN_F64;
    const char *type = hn_dtype_is_float(dtype) ? (wide ? "double" : "float") : hn_dtype_is_signed(dtype) ? "i64" : "u64";
    hn_str_printf(&w->text, "typedef %s A;\n#define LOAD(x) to_%s(x)\n", type,
                  hn_dtype_is_float(dtype) ? (wide ? "f64" : "f32") : type);
}

void cuda_write_text(cuda_writer *w, const char *name) { hn_str_append(&w->text, cuda_text(name)); }

void cuda_write_launch(cuda_writer *w, const char *entry, int64_t items, int block, int arg_count, const cuda_arg *args) {
    cuda_launch launch = {.arg_count = arg_count};
    if (w->status != HONE_OK || items == 0) return;
    if (w->text.failed) w->status = HN_SET(w->err, HONE_ERR_NOMEM, "out of memory (writing a kernel)");
    else if (items / block >= INT32_MAX) w->status = HONE_ERR_UNSUPPORTED;
    else w->status = cuda_function_get(w->err, w->k->device, hn_str_get(&w->text), entry, w->exact, &launch.function);
    if (w->status != HONE_OK) return;
    memcpy(launch.args, args, (size_t)arg_count * sizeof *args);
    cuda_launch_1d(&launch, items, block);
    w->status = cuda_kernel_launch(w->err, w->k, &launch);
}

cuda_arg cuda_write_input(cuda_writer *w, int index) {
    cuda_arg arg = cuda_arg_i64(0);
    if (w->status == HONE_OK && index < w->node->input_count && w->node->inputs[index])
        w->status = cuda_kernel_input(w->err, w->k, w->node, index, &arg);
    return arg;
}
cuda_arg cuda_write_output(const cuda_writer *w, int index) {
    return index < w->node->output_count && w->node->outputs[index] ? cuda_arg_output(index) : cuda_arg_i64(0);
}

hn_status cuda_write_done(cuda_writer *w, hn_kernel **out_kernel) {
    hn_str_free(&w->text);
    return cuda_kernel_done(w->status, w->k, out_kernel);
}

bool cuda_moves_dtype(hn_dtype dtype) {
    int bits = hn_dtype_bits(dtype);
    return bits >= 8 && bits <= 64 && bits % 8 == 0;
}
const char *cuda_unit(int bytes) { return bytes == 16 ? "u128" : bytes == 8 ? "u64" : bytes == 4 ? "u32" : bytes == 2 ? "u16" : "u8"; }
