// SPDX-License-Identifier: Apache-2.0
// Softmax, normalisations and reductions: brought to [outer][count][inner] in memory order, compiled for
// these numbers.
#include "backends/cuda/cuda_int.h"
#include "ops/common.h"

// Element types and the type computed in.
static void begin(cuda_spec *s, cuda_device *d, const char *form, hn_dtype in, hn_dtype out) {
    cuda_spec_begin(s, d, form);
    cuda_spec_type(s, "T", cuda_ctype(in));
    cuda_spec_type(s, "D", cuda_ctype(out));
    cuda_spec_type(s, "A", in == HN_F64 ? "double" : "float");
}

// How threads share rows: a warp a row for short ones, else a block a row.
typedef struct row_shape {
    int group, threads, vector;
    bool registers;
} row_shape;

static row_shape shape_rows(const cuda_device *d, int64_t count, size_t in_bytes, size_t out_bytes) {
    row_shape r;
    size_t widest = in_bytes > out_bytes ? in_bytes : out_bytes;
    r.vector = cuda_form_vector(d, count, widest, 16);
    int64_t vectors = count / r.vector;
    if (cuda_is_generic(d)) return (row_shape){vectors <= 32 * 8 ? 32 : 256, 256, r.vector, false};
    if (vectors <= 32 * 8) {
        r.group = 32;
        r.threads = 128;
    } else {
        r.group = 128;
        while (r.group < 1024 && vectors > (int64_t)r.group * 4)
            r.group *= 2;
        r.threads = r.group;
    }
    r.registers = (vectors + r.group - 1) / r.group * r.vector <= 64;
    return r;
}

static void print_rows(cuda_spec *s, const row_shape *r, int64_t outer, int64_t count) {
    cuda_spec_int(s, "GROUP", r->group);
    cuda_spec_int(s, "THREADS", r->threads);
    cuda_spec_int(s, "VEC", r->vector);
    cuda_spec_int(s, "REGISTERS", r->registers);
    cuda_spec_int(s, "OUTER", outer);
    cuda_spec_int(s, "COUNT", count);
    cuda_spec_reach(s, outer * count);
}

static bool row_float(hn_dtype dtype) { return hn_dtype_is_float(dtype) && cuda_ctype(dtype); }

// ---- softmax ------------------------------------------------------------------------------------
hone_status cuda_softmax_select(hone_error *err, cuda_device *d, const hn_select *what, hn_kernel **out_kernel) {
    const hn_node *node = what->node;
    cpu_value x, y;
    int axis;
    if (!cpu_in(node, 0, &x) || !cpu_out(node, 0, &y) || !row_float(x.dtype) || x.dtype != y.dtype || !x.count || x.shape.rank < 1 ||
        !hn_axis_normalise(hn_node_int(node, "axis", -1), x.shape.rank, &axis))
        return HONE_ERR_UNSUPPORTED;
    bool reduced[HN_MAX_RANK] = {false};
    reduced[axis] = true;
    hn_layout layout = cuda_hint(what, 0);
    int64_t band[3];
    if (!cuda_band(&x.shape, layout, reduced, band) || band[1] > INT32_MAX) return HONE_ERR_UNSUPPORTED;
    cuda_kernel *k = cuda_kernel_new(d, node);
    if (!k) HN_NOMEM(err, "selecting a kernel");
    k->base.in_layout[0] = k->base.out_layout[0] = layout;
    k->base.inplace_input[0] = band[2] == 1 ? 0 : -1;
    cuda_launch launch = {0};
    hone_status status = cuda_kernel_input(err, k, node, 0, &launch.args[0]);
    launch.args[1] = cuda_arg_output(0);
    launch.arg_count = 2;
    bool columns = band[2] > 1;
    cuda_spec s;
    begin(&s, d, columns ? "softmax_columns" : "softmax", x.dtype, y.dtype);
    cuda_spec_int(&s, "LOGARITHM", !strcmp(node->op_type, "LogSoftmax"));
    row_shape r = shape_rows(d, band[1], hn_dtype_bytes(x.dtype), hn_dtype_bytes(y.dtype));
    if (columns) r = (row_shape){32, cuda_is_generic(d) ? 256 : 128, 1, false};
    print_rows(&s, &r, band[0], band[1]);
    cuda_spec_int(&s, "INNER", band[2]);
    cuda_spec_reach(&s, x.count);
    if (status == HONE_OK) status = cuda_spec_kernel(err, &s, columns ? "hn_k_softmax_columns" : "hn_k_softmax", &launch);
    cuda_launch_1d(&launch, band[2] > 1 ? band[0] * band[2] : band[0] * r.group, r.threads);
    if (status == HONE_OK) status = cuda_kernel_launch(err, k, &launch);
    cuda_spec_end(&s);
    if (status == HONE_OK) status = cuda_posts(err, k, what, 0, &y.shape, y.dtype, layout);
    return cuda_kernel_done(status, k, out_kernel);
}

// ---- normalisation ------------------------------------------------------------------------------
typedef struct norm {
    cpu_value x, y, scale, bias;
    bool has_scale, has_bias, rms, scale_is_row;
    int64_t outer, count;
    int64_t at[3];        // index of scale and bias: row % at[0] * at[1] + i / at[2]
    bool stats;
} norm;

static hn_status norm_rows(hone_error *err, cuda_device *d, const hn_select *what, const norm *n, hn_layout layout,
                           hn_kernel **out_kernel) {
    const hn_node *node = what->node;
    cuda_kernel *k = cuda_kernel_new(d, node);
    if (!k) HN_NOMEM(err, "selecting a kernel");
    k->base.in_layout[0] = k->base.out_layout[0] = layout;
    cuda_launch launch = {0};
    hone_status status = cuda_kernel_input(err, k, node, 0, &launch.args[0]);
    launch.args[1] = launch.args[2] = launch.args[4] = launch.args[5] = cuda_arg_i64(0);
    if (n->has_scale && status == HONE_OK) status = cuda_kernel_input(err, k, node, 1, &launch.args[1]);
    if (n->has_bias && status == HONE_OK) status = cuda_kernel_input(err, k, node, 2, &launch.args[2]);
    launch.args[3] = cuda_arg_output(0);
    hn_dtype stat = HN_F32;
    for (int i = 1; i < 3; i++) {
        if (i >= node->output_count || !node->outputs[i]) continue;
        launch.args[3 + i] = cuda_arg_output(i);
        stat = node->outputs[i]->type.dtype;
    }
    launch.arg_count = 6;
    cuda_spec s;
    begin(&s, d, "norm", n->x.dtype, n->y.dtype);
    cuda_spec_type(&s, "S", cuda_ctype(n->has_scale ? n->scale.dtype : n->x.dtype));
    cuda_spec_type(&s, "STAT", cuda_ctype(stat) ? cuda_ctype(stat) : "f32");
    const struct {
        const char *name;
        int64_t value;
    } numbers[] = {{"RMS", n->rms}, {"HAS_SCALE", n->has_scale}, {"HAS_BIAS", n->has_bias}, {"SCALE_IS_ROW", n->scale_is_row},
                   {"STATS", n->stats}, {"AT_GROUPS", n->at[0]}, {"AT_STEP", n->at[1]}, {"AT_RUN", n->at[2]}};
    for (size_t i = 0; i < HN_COUNT_OF(numbers); i++)
        cuda_spec_int(&s, numbers[i].name, numbers[i].value);
    cuda_spec_real(&s, "EPSILON", hn_node_float(node, "epsilon", 1e-5f));
    row_shape r = shape_rows(d, n->count, hn_dtype_bytes(n->x.dtype), hn_dtype_bytes(n->y.dtype));
    print_rows(&s, &r, n->outer, n->count);
    if (status == HONE_OK) status = cuda_spec_kernel(err, &s, "hn_k_norm", &launch);
    cuda_launch_1d(&launch, n->outer * r.group, r.threads);
    if (status == HONE_OK) status = cuda_kernel_launch(err, k, &launch);
    cuda_spec_end(&s);
    if (status == HONE_OK) status = cuda_posts(err, k, what, 0, &n->y.shape, n->y.dtype, layout);
    return cuda_kernel_done(status, k, out_kernel);
}

static bool read_norm(const hn_node *node, norm *n) {
    if (!cpu_in(node, 0, &n->x) || !cpu_out(node, 0, &n->y) || !row_float(n->x.dtype) || !row_float(n->y.dtype) || !n->x.count)
        return false;
    int inputs = cpu_base_inputs(node);
    n->has_scale = inputs > 1 && node->inputs[1];
    n->has_bias = inputs > 2 && node->inputs[2];
    if (n->has_scale && (!cpu_in(node, 1, &n->scale) || !row_float(n->scale.dtype))) return false;
    if (n->has_bias && (!cpu_in(node, 2, &n->bias) || !n->has_scale || n->bias.dtype != n->scale.dtype)) return false;
    return true;
}

hone_status cuda_layer_norm_select(hone_error *err, cuda_device *d, const hn_select *what, hn_kernel **out_kernel) {
    const hn_node *node = what->node;
    norm n = {.scale_is_row = true, .rms = !strcmp(node->op_type, "RMSNormalization")};
    int axis;
    if (!read_norm(node, &n) || !hn_axis_normalise(hn_node_int(node, "axis", -1), n.x.shape.rank, &axis))
        return HONE_ERR_UNSUPPORTED;
    n.outer = hn_span(&n.x.shape, 0, axis);
    n.count = hn_span(&n.x.shape, axis, n.x.shape.rank);
    if ((n.has_scale && n.scale.count != n.count) || (n.has_bias && n.bias.count != n.count) || n.count > INT32_MAX)
        return HONE_ERR_UNSUPPORTED;
    for (int i = 1; i < node->output_count; i++)
        n.stats = n.stats || node->outputs[i];
    memcpy(n.at, (int64_t[]){1, 0, 1}, sizeof n.at);
    return norm_rows(err, d, what, &n, CUDA_PLAIN, out_kernel);
}

hone_status cuda_group_norm_select(hone_error *err, cuda_device *d, const hn_select *what, hn_kernel **out_kernel) {
    norm n = {0};
    if (!read_norm(what->node, &n) || n.x.shape.rank < 3) return HONE_ERR_UNSUPPORTED;
    int64_t groups = hn_node_int(what->node, "num_groups", 1), channels = n.x.shape.dims[1];
    if (groups < 1 || channels % groups || n.scale.count != channels || n.bias.count != channels) return HONE_ERR_UNSUPPORTED;
    int64_t inner = hn_span(&n.x.shape, 2, n.x.shape.rank);
    n.outer = n.x.shape.dims[0] * groups;
    n.count = channels / groups * inner;
    if (n.count > INT32_MAX) return HONE_ERR_UNSUPPORTED;
    memcpy(n.at, (int64_t[]){groups, channels / groups, inner}, sizeof n.at);
    return norm_rows(err, d, what, &n, CUDA_PLAIN, out_kernel);
}

// Channels-last images: statistics of columns in pieces, then one pass that applies them.
static hn_status instance_norm_columns(hone_error *err, cuda_device *d, const hn_select *what, const norm *n, int vector,
                                       hn_kernel **out_kernel) {
    const hn_node *node = what->node;
    int64_t images = n->x.shape.dims[0], channels = n->x.shape.dims[1], count = hn_span(&n->x.shape, 2, n->x.shape.rank);
    int lanes = (int)(channels / vector), threads = lanes > 256 ? 1024 : 256, rows = threads / lanes;
    int64_t most_rows = 40960 / (2 * channels * (n->x.dtype == HN_F64 ? 8 : 4));
    if (rows > most_rows) rows = (int)most_rows;
    if (rows < 1) return HONE_ERR_UNSUPPORTED;
    int64_t split = hn_max_i64(1, hn_min_i64((int64_t)d->caps.sm_count * 4 / images, count / (rows * 4)));
    cuda_kernel *k = cuda_kernel_new(d, node);
    if (!k) HN_NOMEM(err, "selecting a kernel");
    size_t item = n->x.dtype == HN_F64 ? 8 : 4;
    int64_t partial = images * split * 2 * channels * (int64_t)item;
    k->base.workspace_bytes = (size_t)(partial + images * channels * 2 * (int64_t)item);
    k->base.in_layout[0] = k->base.out_layout[0] = CUDA_LAST;
    cuda_spec s;
    begin(&s, d, "norm_columns", n->x.dtype, n->y.dtype);
    cuda_spec_type(&s, "S", cuda_ctype(n->scale.dtype));
    const struct {
        const char *name;
        int64_t value;
    } numbers[] = {{"OUTER", images}, {"COUNT", count}, {"INNER", channels}, {"SPLIT", split}, {"ROWS", rows}, {"VEC", vector}, {"THREADS", threads}};
    for (size_t i = 0; i < HN_COUNT_OF(numbers); i++)
        cuda_spec_int(&s, numbers[i].name, numbers[i].value);
    cuda_spec_real(&s, "EPSILON", hn_node_float(node, "epsilon", 1e-5f));
    cuda_spec_reach(&s, hn_max_i64(n->x.count, images * channels * 32));
    int done = cuda_posts_spec(what, n->x.dtype == HN_F64 ? "double" : "float", &s);
    cuda_launch part = {.shared_bytes = (unsigned)(2 * rows * channels * (int64_t)item)}, finish = {0}, apply = {0};
    hone_status status = cuda_spec_kernel(err, &s, "hn_k_norm_partial", &part);
    if (status == HONE_OK) status = cuda_spec_kernel(err, &s, "hn_k_norm_finish", &finish);
    if (status == HONE_OK) status = cuda_spec_kernel(err, &s, "hn_k_norm_apply", &apply);
    cuda_arg x = {0}, scale = {0}, bias = {0};
    if (status == HONE_OK) status = cuda_kernel_input(err, k, node, 0, &x);
    if (status == HONE_OK) status = cuda_kernel_input(err, k, node, 1, &scale);
    if (status == HONE_OK) status = cuda_kernel_input(err, k, node, 2, &bias);
    part.args[0] = finish.args[0] = apply.args[0] = x;
    part.args[1] = finish.args[1] = cuda_arg_workspace(0);
    finish.args[2] = scale;
    finish.args[3] = bias;
    finish.args[4] = apply.args[1] = cuda_arg_workspace(partial);
    apply.args[2] = cuda_arg_output(0);
    part.arg_count = 2;
    finish.arg_count = 5;
    apply.arg_count = 3;
    part.grid[0] = (unsigned)split;
    part.grid[1] = (unsigned)images;
    part.grid[2] = 1;
    part.block[0] = (unsigned)threads;
    part.block[1] = part.block[2] = 1;
    cuda_launch_1d(&finish, images * channels * 32, threads);
    cuda_launch_1d(&apply, images * count * channels / vector, threads);
    const cuda_launch *all[] = {&part, &finish, &apply};
    for (int i = 0; i < 3 && status == HONE_OK; i++)
        status = cuda_kernel_launch(err, k, all[i]);
    cuda_spec_end(&s);
    if (status == HONE_OK) status = cuda_posts(err, k, what, done, &n->y.shape, n->y.dtype, CUDA_LAST);
    return cuda_kernel_done(status, k, out_kernel);
}

hone_status cuda_instance_norm_select(hone_error *err, cuda_device *d, const hn_select *what, hn_kernel **out_kernel) {
    norm n = {0};
    if (!read_norm(what->node, &n) || n.x.shape.rank < 3 || !n.has_bias) return HONE_ERR_UNSUPPORTED;
    int64_t channels = n.x.shape.dims[1];
    if (n.scale.count != channels || n.bias.count != channels) return HONE_ERR_UNSUPPORTED;
    n.outer = n.x.shape.dims[0] * channels;
    n.count = hn_span(&n.x.shape, 2, n.x.shape.rank);
    if (n.count > INT32_MAX) return HONE_ERR_UNSUPPORTED;
    int vector = cuda_form_vector(d, channels, hn_dtype_bytes(n.x.dtype), 16);
    bool last = cuda_hint(what, 0) == CUDA_LAST && !cpu_same_bytes(&n.x.shape);
    if ((last || n.count > 65536) && channels / vector <= 1024 && n.x.shape.dims[0] <= 65535) {
        hone_status status = instance_norm_columns(err, d, what, &n, vector, out_kernel);
        if (status != HONE_ERR_UNSUPPORTED) return status;
    }
    memcpy(n.at, (int64_t[]){channels, 1, n.count}, sizeof n.at);
    return norm_rows(err, d, what, &n, CUDA_PLAIN, out_kernel);
}

// ---- reductions ---------------------------------------------------------------------------------
enum { TAKE_ITSELF, TAKE_SQUARE, TAKE_MAGNITUDE };
enum { MERGE_SUM, MERGE_HIGHEST, MERGE_LOWEST, MERGE_PRODUCT };
enum { FINISH_NOTHING, FINISH_MEAN, FINISH_ROOT, FINISH_LOG };
static const struct {
    const char *op;
    int take, merge, finish; // as reduce.cu says
    bool floats;             // not for integers
} k_reductions[] = {
    {"ReduceSum", TAKE_ITSELF, MERGE_SUM, FINISH_NOTHING, false},
    {"ReduceMean", TAKE_ITSELF, MERGE_SUM, FINISH_MEAN, true},
    {"ReduceMax", TAKE_ITSELF, MERGE_HIGHEST, FINISH_NOTHING, false},
    {"ReduceMin", TAKE_ITSELF, MERGE_LOWEST, FINISH_NOTHING, false},
    {"ReduceProd", TAKE_ITSELF, MERGE_PRODUCT, FINISH_NOTHING, false},
    {"ReduceSumSquare", TAKE_SQUARE, MERGE_SUM, FINISH_NOTHING, false},
    {"ReduceL1", TAKE_MAGNITUDE, MERGE_SUM, FINISH_NOTHING, true},
    {"ReduceL2", TAKE_SQUARE, MERGE_SUM, FINISH_ROOT, true},
    {"ReduceLogSum", TAKE_ITSELF, MERGE_SUM, FINISH_LOG, true},
    {"GlobalAveragePool", TAKE_ITSELF, MERGE_SUM, FINISH_MEAN, true},
    {"GlobalMaxPool", TAKE_ITSELF, MERGE_HIGHEST, FINISH_NOTHING, true},
};

static int find_reduction(const hn_node *node) {
    for (size_t i = 0; i < HN_COUNT_OF(k_reductions); i++)
        if (!strcmp(k_reductions[i].op, node->op_type)) return (int)i;
    return -1;
}

static hn_status reduce_launches(hone_error *err, cuda_kernel *k, const hn_node *node, const cpu_value *x, const cpu_value *y,
                                 const int64_t *band, int row) {
    cuda_device *d = k->device;
    bool floats = hn_dtype_is_float(x->dtype), is_signed = hn_dtype_is_signed(x->dtype), rows = band[2] == 1;
    int64_t outputs = band[0] * band[2];
    int vector = cuda_form_vector(d, rows ? band[1] : band[2], hn_dtype_bytes(x->dtype), 16), threads = 256;
    if (!rows && outputs / vector < (int64_t)d->caps.sm_count * 256)
        while (vector > 1 && outputs / vector < (int64_t)d->caps.sm_count * 64)
            vector = cuda_is_generic(d) ? 1 : vector / 2;
    int group = rows && band[1] / vector <= 512 ? 32 : threads;
    int64_t blocks = rows ? (outputs * group + threads - 1) / threads : (outputs / vector + threads - 1) / threads;
    // Pieces where the outputs alone do not fill the card.
    int64_t split = 1, room = (int64_t)d->caps.sm_count * 4 / hn_max_i64(1, blocks), least = rows ? (int64_t)threads * vector * 4 : 32;
    if (blocks < d->caps.sm_count && group == threads) split = hn_max_i64(1, hn_min_i64(room, band[1] / least));
    if (!rows && blocks < d->caps.sm_count) split = hn_max_i64(1, hn_min_i64(room, band[1] / least));
    if (split > 1 && rows) // pieces begin at whole vectors
        while (split > 1 && ((band[1] + split - 1) / split) % vector)
            split--;
    if (split > 65535 || blocks > INT32_MAX) return HONE_ERR_UNSUPPORTED;
    const char *a = !floats ? (is_signed ? "i64" : "u64") : x->dtype == HN_F64 ? "double" : "float";
    cuda_spec s;
    cuda_spec_begin(&s, d, "reduce");
    cuda_spec_type(&s, "T", cuda_ctype(x->dtype));
    cuda_spec_type(&s, "D", cuda_ctype(y->dtype));
    cuda_spec_type(&s, "A", a);
    const struct {
        const char *name;
        int64_t value;
    } numbers[] = {{"TAKE", k_reductions[row].take}, {"MERGE", k_reductions[row].merge}, {"FINISH", k_reductions[row].finish}, {"ROWS_KERNEL", rows},
                   {"THREADS", threads}, {"GROUP", cuda_is_generic(d) && !rows ? 32 : group}, {"VEC", vector}, {"OUTER", band[0]}, {"COUNT", band[1]},
                   {"INNER", band[2]}, {"SPLIT", split}};
    for (size_t i = 0; i < HN_COUNT_OF(numbers); i++)
        cuda_spec_int(&s, numbers[i].name, numbers[i].value);
    cuda_spec_reach(&s, x->count);
    cuda_launch main = {0}, last = {0};
    hone_status status = cuda_spec_kernel(err, &s, "hn_k_reduce", &main);
    if (status == HONE_OK && split > 1) status = cuda_spec_kernel(err, &s, "hn_k_reduce_finish", &last);
    if (status == HONE_OK) status = cuda_kernel_input(err, k, node, 0, &main.args[0]);
    main.args[1] = last.args[1] = cuda_arg_output(0);
    main.args[2] = last.args[0] = cuda_arg_workspace(0);
    main.arg_count = 3;
    last.arg_count = 2;
    cuda_launch_1d(&main, blocks * threads, threads);
    cuda_launch_1d(&last, outputs, threads);
    main.grid[1] = (unsigned)split;
    if (split > 1) k->base.workspace_bytes = (size_t)(split * outputs * 8);
    if (status == HONE_OK) status = cuda_kernel_launch(err, k, &main);
    if (status == HONE_OK && split > 1) status = cuda_kernel_launch(err, k, &last);
    cuda_spec_end(&s);
    return status;
}

hone_status cuda_reduce_select(hone_error *err, cuda_device *d, const hn_select *what, hn_kernel **out_kernel) {
    const hn_node *node = what->node;
    cpu_value x, y;
    bool reduced[HN_MAX_RANK] = {false};
    int row = find_reduction(node);
    if (row < 0 || !cpu_in(node, 0, &x) || !cpu_out(node, 0, &y) || !cuda_ctype(x.dtype) || x.dtype != y.dtype || !x.count ||
        (k_reductions[row].floats && !hn_dtype_is_float(x.dtype)))
        return HONE_ERR_UNSUPPORTED;
    if (!strncmp(node->op_type, "Global", 6))
        for (int i = 2; i < x.shape.rank; i++)
            reduced[i] = true;
    else if (!cpu_reduce_axes(node, x.shape.rank, reduced)) return HONE_ERR_UNSUPPORTED;
    // The kept dims stay in their order only in the plain layout, or where all of the rest is reduced.
    hn_layout layout = cuda_hint(what, 0);
    if (layout == CUDA_LAST && !cpu_same_bytes(&x.shape) && !reduced[1])
        for (int i = 2; i < x.shape.rank; i++)
            if (!reduced[i] && x.shape.dims[i] > 1) layout = CUDA_PLAIN;
    int64_t band[3];
    if (!cuda_band(&x.shape, layout, reduced, band)) {
        layout = CUDA_PLAIN;
        if (!cuda_band(&x.shape, layout, reduced, band)) return HONE_ERR_UNSUPPORTED;
    }
    cuda_kernel *k = cuda_kernel_new(d, node);
    if (!k) HN_NOMEM(err, "selecting a kernel");
    k->base.in_layout[0] = layout;
    if (node->input_count > 1 && node->inputs[1] && cpu_base_inputs(node) > 1) k->base.consumed |= 2;
    hone_status status = reduce_launches(err, k, node, &x, &y, band, row);
    if (status == HONE_OK) status = cuda_posts(err, k, what, 0, &y.shape, y.dtype, CUDA_PLAIN);
    return cuda_kernel_done(status, k, out_kernel);
}
