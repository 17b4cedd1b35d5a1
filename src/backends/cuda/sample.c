// SPDX-License-Identifier: Apache-2.0
// GridSample, RoiAlign, LRN, LpNormalization, RotaryEmbedding.
#include "backends/cuda/write.h"
#include "ops/common.h"
#include "ops/nn_int.h"

static bool is_float(hn_dtype dtype) { return hn_dtype_is_float(dtype) && cuda_ctype(dtype); }

// Layout of input 0 and of the output, where the elements' order does not matter to the kernel.
static hn_layout one_layout(cuda_writer *w, const hn_select *what, const cpu_value *x) {
    hn_layout layout = x->data ? CUDA_PLAIN : cuda_hint(what, 0);
    if (w->k) w->k->base.in_layout[0] = w->k->base.out_layout[0] = layout;
    return layout;
}

static void finish_posts(cuda_writer *w, const hn_select *what, const cpu_value *y) {
    if (w->status == HONE_OK) w->status = cuda_posts(w->err, w->k, what, 0, &y->shape, y->dtype, w->k->base.out_layout[0]);
}

// ---- GridSample ---------------------------------------------------------------------------------
hone_status cuda_grid_sample_select(hone_error *err, cuda_device *d, const hn_select *what, hn_kernel **out_kernel) {
    const hn_node *node = what->node;
    cpu_value x, grid, y;
    cuda_writer w;
    if (!cpu_in(node, 0, &x) || !cpu_in(node, 1, &grid) || !cpu_out(node, 0, &y) || !is_float(x.dtype) || !is_float(grid.dtype) ||
        x.count == 0 || y.count == 0 || x.shape.rank < 3 || x.shape.rank > 5)
        return HONE_ERR_UNSUPPORTED;
    hn_slice mode = hn_node_string(node, "mode", "linear"), padding = hn_node_string(node, "padding_mode", "zeros");
    int spatial = x.shape.rank - 2, m = hn_slice_eq(mode, "nearest") ? 1 : hn_slice_eq(mode, "cubic") || hn_slice_eq(mode, "bicubic") ? 2 : 0;
    int64_t points = hn_span(&y.shape, 2, y.shape.rank), channels = x.shape.dims[1];
    cuda_write_begin(err, d, node, true, &w);
    bool last = one_layout(&w, what, &x) == CUDA_LAST;
    cuda_write_type(&w, "T", cuda_ctype(x.dtype));
    cuda_write_type(&w, "G", cuda_ctype(grid.dtype));
    cuda_write_compute(&w, x.dtype);
    int each = channels >= 4 ? 4 : 1;
    hn_str_printf(&w.text, "#define SPATIAL %d\n#define MODE %d\n#define PADDING %d\n#define ALIGN %d\n#define LAST %d\n#define EACH_CHANNELS %d\n",
                  spatial, m, hn_slice_eq(padding, "border") ? 1 : hn_slice_eq(padding, "reflection") ? 2 : 0,
                  hn_node_int(node, "align_corners", 0) != 0, last, each);
    hn_str_append(&w.text, "#define DIM(d) (");
    for (int i = 0; i < spatial; i++)
        hn_str_printf(&w.text, "(d) == %d ? %lldll : ", i, (long long)x.shape.dims[2 + i]);
    hn_str_append(&w.text, "1ll)\n");
    cuda_write_number(&w, "CHANNELS", channels);
    cuda_write_number(&w, "POINTS", points);
    cuda_write_number(&w, "PLANE", hn_span(&x.shape, 2, x.shape.rank));
    cuda_write_number(&w, "IMAGES", x.shape.dims[0]);
    cuda_write_text(&w, "grid_sample");
    cuda_arg args[] = {cuda_write_input(&w, 0), cuda_write_input(&w, 1), cuda_arg_output(0)};
    cuda_write_launch(&w, "hn_k_grid_sample", x.shape.dims[0] * points * ((channels + each - 1) / each), 128, 3, args);
    finish_posts(&w, what, &y);
    return cuda_write_done(&w, out_kernel);
}

// ---- RoiAlign -----------------------------------------------------------------------------------
hone_status cuda_roi_align_select(hone_error *err, cuda_device *d, const hn_select *what, hn_kernel **out_kernel) {
    const hn_node *node = what->node;
    cpu_value x, rois, images, y;
    cuda_writer w;
    if (node->post_count || !cpu_in(node, 0, &x) || !cpu_in(node, 1, &rois) || !cpu_in(node, 2, &images) || !cpu_out(node, 0, &y) ||
        !is_float(x.dtype) || rois.dtype != x.dtype || (images.dtype != HN_I64 && images.dtype != HN_I32) || x.count == 0 || y.count == 0)
        return HONE_ERR_UNSUPPORTED;
    hn_slice mode = hn_node_string(node, "mode", "avg");
    hn_slice coords = hn_node_string(node, "coordinate_transformation_mode", node->version < 16 ? "output_half_pixel" : "half_pixel");
    bool most = hn_slice_eq(mode, "max"), half = hn_slice_eq(coords, "half_pixel");
    int64_t sampling = hn_node_int(node, "sampling_ratio", 0);
    if ((!most && !hn_slice_eq(mode, "avg")) || (!half && !hn_slice_eq(coords, "output_half_pixel")) || sampling < 0 || sampling > 1000)
        return HONE_ERR_UNSUPPORTED;
    cuda_write_begin(err, d, node, true, &w);
    cuda_write_type(&w, "T", cuda_ctype(x.dtype));
    cuda_write_type(&w, "I", cuda_ctype(images.dtype));
    cuda_write_compute(&w, x.dtype);
    const struct {
        const char *name;
        int64_t value;
    } numbers[] = {{"COUNT", y.count}, {"CHANNELS", x.shape.dims[1]}, {"HEIGHT", x.shape.dims[2]}, {"WIDTH", x.shape.dims[3]},
                   {"ROWS", y.shape.dims[2]}, {"COLUMNS", y.shape.dims[3]}, {"SAMPLING", sampling}, {"MAX", most}, {"IMAGES", x.shape.dims[0]}};
    for (size_t i = 0; i < HN_COUNT_OF(numbers); i++)
        cuda_write_number(&w, numbers[i].name, numbers[i].value);
    hn_str_printf(&w.text, "#define SHIFT %s\n#define SCALE ", half ? "0.5" : "0.");
    cuda_print_number(&w.text, (double)hn_node_float(node, "spatial_scale", 1));
    hn_str_append(&w.text, "\n");
    cuda_write_text(&w, "roi_align");
    cuda_arg args[] = {cuda_write_input(&w, 0), cuda_write_input(&w, 1), cuda_write_input(&w, 2), cuda_arg_output(0),
                       cuda_arg_memory(d->fault_device)};
    cuda_write_launch(&w, "hn_k_roi_align", y.count, 128, 5, args);
    return cuda_write_done(&w, out_kernel);
}

// ---- LRN, LpNormalization -----------------------------------------------------------------------
hone_status cuda_lrn_select(hone_error *err, cuda_device *d, const hn_select *what, hn_kernel **out_kernel) {
    const hn_node *node = what->node;
    cpu_value x, y;
    cuda_writer w;
    int64_t size = hn_node_int(node, "size", 0);
    if (!cpu_in(node, 0, &x) || !cpu_out(node, 0, &y) || !is_float(x.dtype) || x.count == 0 || x.shape.rank < 2 || size < 1)
        return HONE_ERR_UNSUPPORTED;
    cuda_write_begin(err, d, node, false, &w);
    bool last = one_layout(&w, what, &x) == CUDA_LAST;
    cuda_write_type(&w, "T", cuda_ctype(x.dtype));
    cuda_write_compute(&w, x.dtype);
    cuda_write_number(&w, "COUNT", x.count);
    cuda_write_number(&w, "CHANNELS", x.shape.dims[1]);
    cuda_write_number(&w, "STEP", last ? 1 : hn_span(&x.shape, 2, x.shape.rank));
    cuda_write_number(&w, "BEFORE", (size - 1) / 2);
    cuda_write_number(&w, "AFTER", size - 1 - (size - 1) / 2);
    const double numbers[] = {(double)hn_node_float(node, "alpha", 1e-4f) / (double)size, (double)hn_node_float(node, "beta", 0.75f),
                              (double)hn_node_float(node, "bias", 1)};
    static const char *const names[] = {"ALPHA", "BETA", "BIAS"};
    for (int i = 0; i < 3; i++) {
        hn_str_printf(&w.text, "#define %s ", names[i]);
        cuda_print_number(&w.text, numbers[i]);
        hn_str_append(&w.text, "\n");
    }
    cuda_write_text(&w, "lrn");
    cuda_write_launch(&w, "hn_k_lrn", x.count, 256, 2, (cuda_arg[]){cuda_write_input(&w, 0), cuda_arg_output(0)});
    finish_posts(&w, what, &y);
    return cuda_write_done(&w, out_kernel);
}

hone_status cuda_lp_norm_select(hone_error *err, cuda_device *d, const hn_select *what, hn_kernel **out_kernel) {
    const hn_node *node = what->node;
    cpu_value x, y;
    cuda_writer w;
    int axis;
    int64_t p = hn_node_int(node, "p", 2);
    if (!cpu_in(node, 0, &x) || !cpu_out(node, 0, &y) || !is_float(x.dtype) || x.count == 0 || (p != 1 && p != 2) ||
        !hn_axis_normalise(hn_node_int(node, "axis", -1), x.shape.rank, &axis))
        return HONE_ERR_UNSUPPORTED;
    int64_t count = x.shape.dims[axis], inner = hn_span(&x.shape, axis + 1, x.shape.rank);
    int threads = count <= 256 ? 64 : 256;
    cuda_write_begin(err, d, node, false, &w);
    cuda_write_type(&w, "T", cuda_ctype(x.dtype));
    cuda_write_type(&w, "D", cuda_ctype(x.dtype));
    cuda_write_compute(&w, x.dtype);
    hn_str_printf(&w.text, "#define P %lld\n#define THREADS %d\n#define GROUP %d\n#define VEC 1\n#define A_IS_DOUBLE %d\n", (long long)p, threads,
                  threads, x.dtype == HN_F64);
    cuda_write_number(&w, "COUNT", count);
    cuda_write_number(&w, "INNER", inner);
    cuda_write_text(&w, "rows");
    cuda_write_text(&w, "lp_norm");
    cuda_write_launch(&w, "hn_k_lp_norm", x.count / count * threads, threads, 2, (cuda_arg[]){cuda_write_input(&w, 0), cuda_arg_output(0)});
    finish_posts(&w, what, &y);
    return cuda_write_done(&w, out_kernel);
}

// ---- RotaryEmbedding ----------------------------------------------------------------------------
hone_status cuda_rotary_select(hone_error *err, cuda_device *d, const hn_select *what, hn_kernel **out_kernel) {
    const hn_node *node = what->node;
    cpu_value x, cosine, sine, places = {.dtype = HN_I64};
    cuda_writer w;
    bool given = node->input_count > 3 && node->inputs[3];
    if (node->post_count || !cpu_in(node, 0, &x) || !cpu_in(node, 1, &cosine) || !cpu_in(node, 2, &sine) || !is_float(x.dtype) ||
        cosine.dtype != x.dtype || sine.dtype != x.dtype || (given && (!cpu_in(node, 3, &places) || places.dtype != HN_I64)) || x.count == 0)
        return HONE_ERR_UNSUPPORTED;
    bool heads_first = x.shape.rank == 4;
    int64_t heads = heads_first ? x.shape.dims[1] : hn_node_int(node, "num_heads", 0), length = x.shape.dims[heads_first ? 2 : 1];
    if (heads < 1 || x.shape.dims[x.shape.rank - 1] % (heads_first ? 1 : heads)) return HONE_ERR_UNSUPPORTED;
    int64_t size = heads_first ? x.shape.dims[3] : x.shape.dims[2] / heads, rotate = hn_node_int(node, "rotary_embedding_dim", 0);
    cuda_write_begin(err, d, node, false, &w);
    cuda_write_type(&w, "T", cuda_ctype(x.dtype));
    cuda_write_type(&w, "I", "i64");
    cuda_write_compute(&w, x.dtype);
    const struct {
        const char *name;
        int64_t value;
    } numbers[] = {{"COUNT", x.count}, {"SIZE", size}, {"HEADS", heads}, {"LENGTH", length}, {"HEADS_FIRST", heads_first},
                   {"ROTATE", rotate ? rotate : size}, {"INTERLEAVED", hn_node_int(node, "interleaved", 0) != 0}, {"BY_PLACE", given},
                   {"PLACES", given ? cosine.shape.dims[0] : x.shape.dims[0] * length}};
    for (size_t i = 0; i < HN_COUNT_OF(numbers); i++)
        cuda_write_number(&w, numbers[i].name, numbers[i].value);
    cuda_write_text(&w, "rotary");
    cuda_arg args[] = {cuda_write_input(&w, 0), cuda_write_input(&w, 1), cuda_write_input(&w, 2), cuda_write_input(&w, 3), cuda_arg_output(0),
                       cuda_arg_memory(d->fault_device)};
    cuda_write_launch(&w, "hn_k_rotary", x.count, 256, 6, args);
    return cuda_write_done(&w, out_kernel);
}
