// SPDX-License-Identifier: Apache-2.0
// Convolutions whose outputs see few numbers each (few channels, small windows: the first and the last of a
// network), in 16-bit floats, by a kernel of ours: libraries fill the channels up to a multiple of 8, and
// where outputs have fewer than 16 channels, engines of cuDNN 9 make 0 of infinite sums (seen on an H200).
#include "backends/cpu/window.h"
#include "backends/cuda/cuda_int.h"

#define MAX_DEPTH   64   // registers hold the weights
#define MAX_DEPTH_OF_FEW 160
#define FEW_OUTPUTS 16
#define FEW_CHANNELS 8
#define MAX_OUTPUTS 64
#define MAX_REACH   1000 // of a window along a dim

static bool read(const hn_node *node, cpu_value *x, cpu_value *w, cpu_value *y, window *win) {
    cpu_value bias;
    if (!cpu_in(node, 0, x) || !cpu_in(node, 1, w) || !cpu_out(node, 0, y) || !cuda_is_float16(x->dtype) || w->dtype != x->dtype ||
        y->dtype != x->dtype || x->data || !x->count || !y->count || x->shape.rank < 3 || x->shape.rank > 5 ||
        w->shape.rank != x->shape.rank || w->shape.dims[1] != x->shape.dims[1] || !window_of(node, &x->shape, &y->shape, w->shape.dims + 2, win))
        return false;
    if (cpu_base_inputs(node) > 2 && node->inputs[2] && (!cpu_in(node, 2, &bias) || bias.dtype != x->dtype)) return false;
    int64_t depth = w->count / w->shape.dims[0], outputs = w->shape.dims[0];
    for (int i = 0; i < win->rank; i++)
        if (win->dilation[i] * (win->kernel[i] - 1) > MAX_REACH || win->pad_begin[i] < 0) return false;
    if (x->shape.dims[1] >= FEW_CHANNELS && outputs >= FEW_OUTPUTS) return false; // engines are made for these
    return depth <= (outputs < FEW_OUTPUTS ? MAX_DEPTH_OF_FEW : MAX_DEPTH) && (outputs % 8 == 0 || outputs < FEW_OUTPUTS) && outputs <= MAX_OUTPUTS && x->count < INT32_MAX && y->count < INT32_MAX;
}

static void print(hn_str *s, const hn_select *what, const cpu_value *x, const cpu_value *w, const cpu_value *y, const window *win, hn_layout layout) {
    static const char *const k_dims[] = {"D", "H", "W"};
    int64_t strides[HN_MAX_RANK];
    cpu_strides(&x->shape, cuda_to_host(layout), strides);
    hn_str_append(s, cuda_text("prelude"));
    hn_str_printf(s, "#define IS_BF16 %d\ntypedef %s T;\ntypedef float A;\n", x->dtype == HN_BF16, cuda_ctype(x->dtype));
    hn_str_printf(s, "#define DEPTH %lld\n#define OUTPUTS %lld\n#define IMAGES %lld\n#define HAS_BIAS %d\n", (long long)(w->count / w->shape.dims[0]),
                  (long long)w->shape.dims[0], (long long)x->shape.dims[0], cpu_base_inputs(what->node) > 2 && what->node->inputs[2]);
    bool point = strides[1] == 1 && w->count == w->shape.dims[0] * w->shape.dims[1] && w->shape.dims[1] % 32 == 0;
    hn_str_printf(s, "#define X_IMAGE %lldll\n#define X_CHANNEL %lld\n#define POINT %d\n", (long long)strides[0], (long long)strides[1], point);
    for (int i = 0; i < 3; i++) { // dims that an image has not are of one
        int d = i - (3 - win->rank);
        const struct {
            const char *name;
            int64_t value;
        } numbers[] = {{"TAPS", d < 0 ? 1 : win->kernel[d]},         {"DILATION", d < 0 ? 1 : win->dilation[d]},
                       {"STRIDE", d < 0 ? 1 : win->stride[d]},       {"PAD", d < 0 ? 0 : win->pad_begin[d]},
                       {"IN", d < 0 ? 1 : x->shape.dims[2 + d]},     {"OUT", d < 0 ? 1 : y->shape.dims[2 + d]},
                       {"X", d < 0 ? 0 : strides[2 + d]}};
        for (size_t n = 0; n < HN_COUNT_OF(numbers); n++)
            hn_str_printf(s, "#define %s_%s %lld\n", numbers[n].name, k_dims[i], (long long)numbers[n].value);
    }
}

bool cuda_conv_few_takes(const hn_node *node) {
    cpu_value x, w, y;
    window win;
    return read(node, &x, &w, &y, &win);
}

hone_status cuda_conv_few_select(hone_error *err, cuda_device *d, const hn_select *what, hn_kernel **out_kernel) {
    const hn_node *node = what->node;
    cpu_value x, w, y;
    window win;
    if (!read(node, &x, &w, &y, &win)) return HONE_ERR_UNSUPPORTED;
    hn_layout layout = cuda_hint(what, 0);
    cuda_kernel *k = cuda_kernel_new(d, node);
    if (!k) HN_NOMEM(err, "selecting a kernel");
    k->base.in_layout[0] = layout;
    k->base.out_layout[0] = CUDA_LAST;
    hn_str s = {0};
    print(&s, what, &x, &w, &y, &win, layout);
    int done = cuda_posts_text(what, "float", &s);
    hn_str_append(&s, cuda_text("mma"));
    hn_str_append(&s, cuda_text("conv_few"));
    cuda_launch launch = {0};
    hone_status status = s.failed ? HN_SET(err, HONE_ERR_NOMEM, "out of memory (writing a kernel)")
                                  : cuda_function_get(err, d, hn_str_get(&s), "hn_k_conv_few", false, &launch.function);
    hn_str_free(&s);
    launch.args[2] = cuda_arg_i64(0);
    for (int i = 0; i < (cpu_base_inputs(node) > 2 && node->inputs[2] ? 3 : 2) && status == HONE_OK; i++)
        status = cuda_kernel_input(err, k, node, i, &launch.args[i]);
    launch.args[3] = cuda_arg_output(0);
    launch.arg_count = 4;
    int64_t tiles = (y.count / y.shape.dims[1] + 15) / 16;
    cuda_launch_1d(&launch, hn_min_i64((tiles + 7) / 8, (int64_t)d->caps.sm_count * 8) * 256, 256);
    if (status == HONE_OK) status = cuda_kernel_launch(err, k, &launch);
    if (status == HONE_OK) status = cuda_posts(err, k, what, done, &y.shape, y.dtype, CUDA_LAST);
    return cuda_kernel_done(status, k, out_kernel);
}
