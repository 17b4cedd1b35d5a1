// SPDX-License-Identifier: Apache-2.0
// Pooling and Resize: windows and tables worked out at select, channels-last where the input is.
#include <stdio.h>
#include "backends/cpu/window.h"
#include "backends/cuda/cuda_int.h"

// Numbers of up to three dims as NAME0..2, those that are missing in front filled.
static void define_dims(cuda_spec *s, const char *name, int rank, const int64_t *dims, int64_t fill) {
    for (int i = 0; i < 3; i++) {
        char one[16];
        snprintf(one, sizeof one, "%s%d", name, i);
        cuda_spec_int(s, one, i < 3 - rank ? fill : dims[i - (3 - rank)]);
    }
}

static bool small_float(hn_dtype dtype) { return dtype == HN_F32 || cuda_is_float16(dtype); }

hone_status cuda_pool_select(hone_error *err, cuda_device *d, const hn_select *what, hn_kernel **out_kernel) {
    const hn_node *node = what->node;
    cpu_value x, y;
    window w;
    bool average = !strcmp(node->op_type, "AveragePool"), norm = !strcmp(node->op_type, "LpPool");
    bool index = node->output_count > 1 && node->outputs[1];
    if (!cpu_in(node, 0, &x) || !cpu_out(node, 0, &y) || x.dtype != y.dtype || !y.count ||
        !(small_float(x.dtype) || ((x.dtype == HN_I8 || x.dtype == HN_U8) && !average && !norm)) || !window_of(node, &x.shape, &y.shape, NULL, &w))
        return HONE_ERR_UNSUPPORTED;
    int64_t ends[3], have = 0;
    const int64_t *pads = hn_node_ints(node, "pads", &have);
    bool automatic = !hn_slice_eq(hn_node_string(node, "auto_pad", "NOTSET"), "NOTSET");
    for (int i = 0; i < w.rank; i++)
        ends[i] = w.in[i] + (automatic ? w.pad_end[i] : pads && have == 2 * w.rank ? pads[w.rank + i] : 0);
    hn_layout layout = index || x.data ? CUDA_PLAIN : cuda_hint(what, 0);
    bool last = layout == CUDA_LAST;
    int64_t channels = last ? x.shape.dims[1] : 1;
    int vector = cuda_form_vector(d, channels, hn_dtype_bytes(x.dtype), 16);
    if (x.shape.dims[0] * x.shape.dims[1] > INT32_MAX) return HONE_ERR_UNSUPPORTED;
    cuda_kernel *k = cuda_kernel_new(d, node);
    if (!k) HN_NOMEM(err, "selecting a kernel");
    k->base.in_layout[0] = k->base.out_layout[0] = layout;
    cuda_spec s;
    cuda_spec_begin(&s, d, "pool");
    cuda_spec_type(&s, "T", cuda_ctype(x.dtype));
    cuda_spec_int(&s, "VEC", vector);
    cuda_spec_int(&s, "IMAGES", x.shape.dims[0] * (last ? 1 : x.shape.dims[1]));
    cuda_spec_int(&s, "CHANNELS", channels);
    cuda_spec_int(&s, "AVERAGE", average);
    cuda_spec_int(&s, "INCLUDE_PAD", average && hn_node_int(node, "count_include_pad", 0));
    cuda_spec_int(&s, "LP", norm ? hn_node_int(node, "p", 2) : 0);
    cuda_spec_int(&s, "PLACES", index);
    cuda_spec_int(&s, "BY_COLUMN", hn_node_int(node, "storage_order", 0) != 0);
    cuda_spec_reach(&s, hn_max_i64(x.count, y.count));
    define_dims(&s, "IN", w.rank, w.in, 1);
    define_dims(&s, "OUT", w.rank, w.out, 1);
    define_dims(&s, "K", w.rank, w.kernel, 1);
    define_dims(&s, "S", w.rank, w.stride, 1);
    define_dims(&s, "D", w.rank, w.dilation, 1);
    define_dims(&s, "P", w.rank, w.pad_begin, 0);
    define_dims(&s, "E", w.rank, ends, 1);
    cuda_launch launch = {0};
    hone_status status = cuda_spec_kernel(err, &s, "hn_k_pool", &launch);
    if (status == HONE_OK) status = cuda_kernel_input(err, k, node, 0, &launch.args[0]);
    launch.args[1] = cuda_arg_output(0);
    launch.args[2] = index ? cuda_arg_output(1) : cuda_arg_i64(0);
    launch.arg_count = 3;
    cuda_launch_1d(&launch, y.count / vector, 128);
    if (status == HONE_OK) status = cuda_kernel_launch(err, k, &launch);
    cuda_spec_end(&s);
    if (status == HONE_OK) status = cuda_posts(err, k, what, 0, &y.shape, y.dtype, layout);
    return cuda_kernel_done(status, k, out_kernel);
}

// ---- Resize -------------------------------------------------------------------------------------
static void copy_tables(void *user, void *out) {
    const cpu_resize *r = user;
    int32_t *to = out;
    for (int d = 0; d < 3; d++) {
        memcpy(to, r->low[d], (size_t)r->out[d] * 4);
        memcpy(to + r->out[d], r->high[d], (size_t)r->out[d] * 4);
        to += 2 * r->out[d];
    }
    for (int d = 0; d < 3; d++) {
        memcpy(to, r->weight[d], (size_t)r->out[d] * 4);
        to += r->out[d];
    }
}

static hn_status resize_build(hone_error *err, cuda_kernel *k, const hn_select *what, cpu_resize *r, const cpu_value *x,
                              const cpu_value *y, hn_layout layout) {
    int vector = cuda_form_vector(k->device, r->inner, hn_dtype_bytes(x->dtype), 16);
    cuda_const *tables;
    // The tables are this node's own: found again by no one else.
    HN_TRY(cuda_const_made(err, k->device, what->node, 1 + layout, (size_t)(r->out[0] + r->out[1] + r->out[2]) * 12, copy_tables, r, &tables));
    HN_TRY(cuda_kernel_hold(err, k, tables));
    cuda_spec s;
    cuda_spec_begin(&s, k->device, "resize");
    cuda_spec_type(&s, "T", cuda_ctype(x->dtype));
    cuda_spec_int(&s, "VEC", vector);
    cuda_spec_int(&s, "PLANES", r->outer);
    cuda_spec_int(&s, "CHANNELS", r->inner);
    cuda_spec_int(&s, "LINEAR", r->linear);
    define_dims(&s, "IN", 3, r->in, 1);
    define_dims(&s, "OUT", 3, r->out, 1);
    cuda_spec_reach(&s, hn_max_i64(x->count, y->count));
    cuda_launch launch = {0};
    hone_status status = cuda_spec_kernel(err, &s, "hn_k_resize", &launch);
    if (status == HONE_OK) status = cuda_kernel_input(err, k, what->node, 0, &launch.args[0]);
    launch.args[1] = cuda_arg_memory(tables->memory);
    launch.args[2] = cuda_arg_output(0);
    launch.arg_count = 3;
    cuda_launch_1d(&launch, y->count / vector, 128);
    if (status == HONE_OK) status = cuda_kernel_launch(err, k, &launch);
    cuda_spec_end(&s);
    HN_TRY(status);
    for (int i = 1; i < cpu_base_inputs(what->node); i++)
        if (what->node->inputs[i]) k->base.consumed |= 1ull << i;
    return cuda_posts(err, k, what, 0, &y->shape, y->dtype, layout);
}

hone_status cuda_resize_select(hone_error *err, cuda_device *d, const hn_select *what, hn_kernel **out_kernel) {
    const hn_node *node = what->node;
    cpu_value x, y;
    if (!cpu_in(node, 0, &x) || !cpu_out(node, 0, &y) || !small_float(x.dtype) || x.data) return HONE_ERR_UNSUPPORTED;
    hn_layout layout = cuda_hint(what, 0);
    cpu_resize *r;
    HN_TRY(cpu_resize_new(err, node, cuda_to_host(layout), &r));
    cuda_kernel *k = cuda_kernel_new(d, node);
    hone_status status = k ? HONE_OK : HN_SET(err, HONE_ERR_NOMEM, "out of memory (selecting a kernel)");
    if (k) k->base.in_layout[0] = k->base.out_layout[0] = layout;
    if (status == HONE_OK) status = resize_build(err, k, what, r, &x, &y, layout);
    r->base.ops->destroy(&r->base);
    return cuda_kernel_done(status, k, out_kernel);
}
