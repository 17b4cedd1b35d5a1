// SPDX-License-Identifier: Apache-2.0
// Kernel sizes, strides, dilations and pads of a convolution or pooling node, auto_pad resolved.
#ifndef HN_CPU_WINDOW_H
#define HN_CPU_WINDOW_H
#include "backends/cpu/cpu_int.h"

#define WINDOW_MAX 3
typedef struct window {
    int rank; // spatial dims, 1..3
    int64_t kernel[WINDOW_MAX], stride[WINDOW_MAX], dilation[WINDOW_MAX];
    int64_t pad_begin[WINDOW_MAX], pad_end[WINDOW_MAX];
    int64_t in[WINDOW_MAX], out[WINDOW_MAX]; // spatial sizes
    bool leaves_pads; // the last window ends beyond the padding that the node names
} window;

// `kernel`: spatial sizes of the weights, or NULL: the attribute kernel_shape, or the whole input
// where that is absent (global pooling). pad_end is what the output's size asks for.
bool window_of(const hn_node *node, const hn_shape *in, const hn_shape *out, const int64_t *kernel,
               window *out_window);
// A 1-D window becomes 2-D with height 1, and a 2-D one of width 1 is turned round, so that the
// long dim is the last: the kernels block over it.
void window_normalise(window *w);
void window_fill(window *w); // to three dims, with ones outside
// Whether a position lies in the padding by more than half, or none lies inside whole.
bool window_leans_out(const window *w);
#endif
