// SPDX-License-Identifier: Apache-2.0
// Sliding windows of convolutions and pools: attributes, symbolic output sizes, concrete taps.
//
// Attribute values are bounded to 2^31 - 1 each, so that sums and products of a few of them stay
// far from overflow; output sizes are computed on symbolic dims, whose arithmetic is checked.
#include <string.h>
#include "ops/nn_int.h"

#define WINDOW_LIMIT INT32_MAX

static hone_status read_auto_pad(hone_error *err, const hn_node *node, hn_auto_pad *out_mode) {
    hn_slice text = hn_node_string(node, "auto_pad", "NOTSET");
    if (text.length == 0 || hn_slice_eq(text, "NOTSET"))
        *out_mode = HN_PAD_EXPLICIT;
    else if (hn_slice_eq(text, "SAME_UPPER"))
        *out_mode = HN_PAD_SAME_UPPER;
    else if (hn_slice_eq(text, "SAME_LOWER"))
        *out_mode = HN_PAD_SAME_LOWER;
    else if (hn_slice_eq(text, "VALID"))
        *out_mode = HN_PAD_VALID;
    else
        HN_FAIL_NODE(err, HONE_ERR_FORMAT, node, "auto_pad is '%.*s'", (int)text.length, text.data);
    return HONE_OK;
}

hone_status hn_window_read(hone_error *err, const hn_node *node, int rank, hn_window *out_window) {
    hn_window window = {.rank = rank};
    if (rank < 0 || rank > HN_MAX_SPATIAL)
        HN_FAIL_NODE(err, HONE_ERR_UNSUPPORTED, node, "%d spatial dims", rank);
    HN_TRY(read_auto_pad(err, node, &window.auto_pad));
    window.ceil_mode = hn_node_int(node, "ceil_mode", 0) != 0;
    HN_TRY(hn_read_ints(err, node, "strides", rank, 1, WINDOW_LIMIT, 1, window.stride));
    HN_TRY(hn_read_ints(err, node, "dilations", rank, 1, WINDOW_LIMIT, 1, window.dilation));
    int64_t pads[2 * HN_MAX_SPATIAL];
    HN_TRY(hn_read_ints(err, node, "pads", 2 * rank, 0, WINDOW_LIMIT, 0, pads));
    for (int i = 0; window.auto_pad == HN_PAD_EXPLICIT && i < rank; i++) {
        window.pad_begin[i] = pads[i];
        window.pad_end[i] = pads[rank + i];
    }
    *out_window = window;
    return HONE_OK;
}

static bool is_pool(const hn_node *node) { return strstr(node->op_type, "Pool") != NULL; }

hone_status hn_window_infer(hone_error *err, const hn_infer *ctx, const hn_window *window,
                            const hn_dim *in, const hn_dim *kernel, hn_dim *out_dims) {
    hn_dims *dims = ctx->dims;
    for (int i = 0; i < window->rank; i++) {
        hn_dim out;
        if (hn_dim_is_const(kernel[i]) && (kernel[i] < 1 || kernel[i] > WINDOW_LIMIT))
            HN_FAIL_NODE(err, HONE_ERR_FORMAT, ctx->node, "kernel size %lld",
                         (long long)kernel[i]);
        hn_dim stride = window->stride[i];
        if (window->auto_pad == HN_PAD_SAME_UPPER || window->auto_pad == HN_PAD_SAME_LOWER) {
            out = hn_dim_ceildiv(dims, in[i], stride);
        } else {
            hn_dim reach = hn_dim_mul(dims, hn_dim_sub(dims, kernel[i], 1), window->dilation[i]);
            hn_dim padded = hn_dim_add(dims, in[i], window->pad_begin[i] + window->pad_end[i]);
            hn_dim room = hn_dim_sub(dims, hn_dim_sub(dims, padded, reach), 1);
            if (is_pool(ctx->node) && hn_dim_is_const(room) && room < 0) {
                out = 1 + room / stride; // a window that is cut off: towards zero, see docs/onnx.md
            } else if (!window->ceil_mode) {
                out = hn_dim_add(dims, hn_dim_floordiv(dims, room, stride), 1);
            } else {
                // The last window must start inside the input or the padding before it.
                hn_dim starts = hn_dim_ceildiv(
                    dims, hn_dim_add(dims, in[i], window->pad_begin[i]), stride);
                out = hn_dim_min(dims, hn_dim_add(dims, hn_dim_ceildiv(dims, room, stride), 1),
                                 starts);
            }
        }
        HN_TRY(hn_expect_size(err, ctx, "a spatial output dim", out));
        out_dims[i] = out;
    }
    return HONE_OK;
}

hone_status hn_geometry_make(hone_error *err, const hn_node *node, const hn_window *window,
                             const int64_t *in, const int64_t *kernel, const int64_t *out,
                             hn_geometry *out_geometry) {
    hn_geometry g = {.rank = window->rank, .in_count = 1, .out_count = 1, .kernel_count = 1, .tap_limit = 1};
    for (int i = 0; i < g.rank; i++) {
        g.in[i] = in[i];
        g.out[i] = out[i];
        g.kernel[i] = kernel[i];
        g.stride[i] = window->stride[i];
        g.dilation[i] = window->dilation[i];
        g.pad_begin[i] = window->pad_begin[i];
        g.pad_end[i] = window->pad_end[i];
        int64_t reach;
        if (!hn_mul_i64(kernel[i] - 1, window->dilation[i], &reach) ||
            !hn_mul_i64(g.kernel_count, kernel[i], &g.kernel_count))
            HN_FAIL_NODE(err, HONE_ERR_LIMIT, node, "the window is too large");
        if (window->auto_pad == HN_PAD_SAME_UPPER || window->auto_pad == HN_PAD_SAME_LOWER) {
            int64_t span, total;
            if (!hn_mul_i64(out[i] - 1, window->stride[i], &span) ||
                !hn_add_i64(span, reach + 1 - in[i], &total))
                HN_FAIL_NODE(err, HONE_ERR_LIMIT, node, "the window is too large");
            total = hn_max_i64(total, 0);
            g.pad_begin[i] =
                window->auto_pad == HN_PAD_SAME_UPPER ? total / 2 : total - total / 2;
            g.pad_end[i] = total - g.pad_begin[i];
        }
        g.in_count *= in[i];
        g.tap_limit *= hn_min_i64(in[i], kernel[i]);
        g.out_count *= out[i];
    }
    *out_geometry = g;
    return HONE_OK;
}

int64_t hn_geometry_taps(const hn_geometry *geometry, const int64_t *at, int64_t *input_offsets,
                         int64_t *kernel_offsets, int64_t *out_padded) {
    int rank = geometry->rank;
    int64_t first[HN_MAX_SPATIAL], taps[HN_MAX_SPATIAL], step[HN_MAX_SPATIAL] = {0};
    int64_t padded = 1, total = 1;
    for (int i = 0; i < rank; i++) { // valid taps of a dim are a range
        int64_t dilation = geometry->dilation[i];
        int64_t start = at[i] * geometry->stride[i] - geometry->pad_begin[i];
        first[i] = start >= 0 ? 0 : (-start + dilation - 1) / dilation;
        int64_t room = geometry->in[i] - start;
        int64_t end = room <= 0 ? 0 : hn_min_i64((room - 1) / dilation + 1, geometry->kernel[i]);
        taps[i] = hn_max_i64(end - first[i], 0);
        room += geometry->pad_end[i];
        padded *= room <= 0 ? 0 : hn_min_i64((room - 1) / dilation + 1, geometry->kernel[i]);
        total *= taps[i];
    }
    if (out_padded) *out_padded = padded;
    if (total == 0) return 0;
    int64_t count = 0;
    do {
        int64_t input = 0, kernel = 0;
        for (int i = 0; i < rank; i++) {
            int64_t tap = first[i] + step[i];
            input = input * geometry->in[i] + at[i] * geometry->stride[i] +
                    tap * geometry->dilation[i] - geometry->pad_begin[i];
            kernel = kernel * geometry->kernel[i] + tap;
        }
        input_offsets[count] = input;
        kernel_offsets[count++] = kernel;
    } while (hn_index_next(step, taps, rank));
    return count;
}
