// SPDX-License-Identifier: Apache-2.0
// Windows of convolutions and poolings: see window.h.
#include "backends/cpu/window.h"

static void read_ints(const hn_node *node, const char *name, int count, int64_t fill, int64_t *out) {
    int64_t have = 0;
    const int64_t *ints = hn_node_ints(node, name, &have);
    for (int i = 0; i < count; i++)
        out[i] = ints && i < have ? ints[i] : fill;
}

bool window_of(const hn_node *node, const hn_shape *in, const hn_shape *out, const int64_t *kernel,
               window *out_window) {
    window w = {.rank = in->rank - 2};
    if (w.rank < 1 || w.rank > WINDOW_MAX || out->rank != in->rank) return false;
    for (int i = 0; i < w.rank; i++) {
        w.in[i] = in->dims[i + 2];
        w.out[i] = out->dims[i + 2];
    }
    int64_t have = 0;
    const int64_t *shape = hn_node_ints(node, "kernel_shape", &have);
    if (!kernel) kernel = shape && have == w.rank ? shape : w.in;
    memcpy(w.kernel, kernel, (size_t)w.rank * sizeof *kernel);
    read_ints(node, "strides", w.rank, 1, w.stride);
    read_ints(node, "dilations", w.rank, 1, w.dilation);
    int64_t pads[2 * WINDOW_MAX];
    read_ints(node, "pads", 2 * w.rank, 0, pads);
    hn_slice mode = hn_node_string(node, "auto_pad", "NOTSET");
    bool same_upper = hn_slice_eq(mode, "SAME_UPPER"), same_lower = hn_slice_eq(mode, "SAME_LOWER");
    bool valid = hn_slice_eq(mode, "VALID");
    for (int i = 0; i < w.rank; i++) {
        int64_t extent = (w.kernel[i] - 1) * w.dilation[i] + 1;
        int64_t total = (w.out[i] - 1) * w.stride[i] + extent - w.in[i];
        int64_t begin = pads[i];
        if (valid) begin = 0;
        if (same_upper || same_lower) {
            int64_t whole = total < 0 ? 0 : total;
            begin = same_upper ? whole / 2 : (whole + 1) / 2;
        }
        w.pad_begin[i] = begin;
        w.leaves_pads = w.leaves_pads || (!same_upper && !same_lower && total - begin > (valid ? 0 : pads[w.rank + i]));
        // Never negative: rows that no window sees need no negative pad, floor drops them.
        w.pad_end[i] = hn_max_i64(total - begin, 0);
    }
    *out_window = w;
    return true;
}

static void swap(int64_t *pair) {
    int64_t t = pair[0];
    pair[0] = pair[1];
    pair[1] = t;
}

void window_normalise(window *w) {
    int64_t *lists[] = {w->kernel, w->stride, w->dilation, w->pad_begin, w->pad_end, w->in, w->out};
    static const int64_t fill[] = {1, 1, 1, 0, 0, 1, 1};
    if (w->rank == 1) {
        for (int i = 0; i < 7; i++) {
            lists[i][1] = lists[i][0];
            lists[i][0] = fill[i];
        }
        w->rank = 2;
    } else if (w->rank == 2 && w->in[1] == 1 && w->out[1] == 1 && w->kernel[1] == 1 &&
               w->pad_begin[1] == 0) {
        for (int i = 0; i < 7; i++)
            swap(lists[i]);
    }
}

bool window_leans_out(const window *w) {
    for (int i = 0; i < w->rank; i++) {
        int64_t extent = (w->kernel[i] - 1) * w->dilation[i] + 1;
        int64_t first = (w->pad_begin[i] + w->stride[i] - 1) / w->stride[i]; // that begins inside
        int64_t most = hn_max_i64(w->pad_begin[i], w->pad_end[i]);
        if (first >= w->out[i] || first * w->stride[i] - w->pad_begin[i] + extent > w->in[i] ||
            2 * most > extent)
            return true;
    }
    return false;
}

void window_fill(window *w) {
    int64_t *lists[] = {w->kernel, w->stride, w->dilation, w->pad_begin, w->pad_end, w->in, w->out};
    static const int64_t fill[] = {1, 1, 1, 0, 0, 1, 1};
    for (; w->rank < WINDOW_MAX; w->rank++)
        for (size_t i = 0; i < HN_COUNT_OF(lists); i++) {
            memmove(lists[i] + 1, lists[i], (size_t)w->rank * sizeof *lists[i]);
            lists[i][0] = fill[i];
        }
}
