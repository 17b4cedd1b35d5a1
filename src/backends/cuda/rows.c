// SPDX-License-Identifier: Apache-2.0
// Softmax, normalisations and reductions: brought to [outer][count][inner] in memory order, compiled for
// these numbers.
#include "backends/cuda/cuda_int.h"
#include "ops/common.h"


// Element types, the type computed in, and the text both share.
static void begin(hn_str *s, hn_dtype in, hn_dtype out) {
    bool wide = in == HN_F64;
    hn_str_append(s, cuda_text("prelude"));
    hn_str_printf(s, "typedef %s T;\ntypedef %s D;\ntypedef %s A;\n#define A_IS_DOUBLE %d\n#define load_param(x) %s(x)\n",
                  cuda_ctype(in), cuda_ctype(out), wide ? "double" : "float", wide, wide ? "to_f64" : "to_f32");
}

static void define(hn_str *s, const char *name, int64_t value) { hn_str_printf(s, "#define %s %lld\n", name, (long long)value); }

static hn_status compiled(hone_error *err, cuda_device *d, hn_str *s, const char *entry, bool exact, cuda_launch *launch) {
    if (s->failed) HN_NOMEM(err, "writing a kernel");
    return cuda_function_get(err, d, hn_str_get(s), entry, exact, &launch->function);
}

// How threads share rows: a warp a row for short ones, else a block a row.
typedef struct row_shape {
    int group, threads, vector;
    bool registers;
} row_shape;

static row_shape shape_rows(int64_t count, size_t in_bytes, size_t out_bytes) {
    row_shape r;
    size_t widest = in_bytes > out_bytes ? in_bytes : out_bytes;
    r.vector = cuda_vector(count, widest, 16);
    int64_t vectors = count / r.vector;
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

static void print_rows(hn_str *s, const row_shape *r, int64_t outer, int64_t count) {
    define(s, "GROUP", r->group);
    define(s, "THREADS", r->threads);
    define(s, "VEC", r->vector);
    define(s, "REGISTERS", r->registers);
    hn_str_printf(s, "#define OUTER %lldll\n", (long long)outer);
    define(s, "COUNT", count);
    hn_str_append(s, cuda_text("rows"));
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
    hn_str s = {0};
    begin(&s, x.dtype, y.dtype);
    define(&s, "LOGARITHM", !strcmp(node->op_type, "LogSoftmax"));
    row_shape r = shape_rows(band[1], hn_dtype_bytes(x.dtype), hn_dtype_bytes(y.dtype));
    if (band[2] > 1) r = (row_shape){32, 128, 1, false};
    print_rows(&s, &r, band[0], band[1]);
    hn_str_printf(&s, "#define INNER %lldll\n", (long long)band[2]);
    hn_str_append(&s, cuda_text(band[2] > 1 ? "softmax_columns" : "softmax"));
    if (status == HONE_OK) status = compiled(err, d, &s, band[2] > 1 ? "hn_k_softmax_columns" : "hn_k_softmax", false, &launch);
    hn_str_free(&s);
    cuda_launch_1d(&launch, band[2] > 1 ? band[0] * band[2] : band[0] * r.group, r.threads);
    if (status == HONE_OK) status = cuda_kernel_launch(err, k, &launch);
    if (status == HONE_OK) status = cuda_posts(err, k, what, 0, &y.shape, y.dtype, layout);
    return cuda_kernel_done(status, k, out_kernel);
}

// ---- normalisation ------------------------------------------------------------------------------
typedef struct norm {
    cpu_value x, y, scale, bias;
    bool has_scale, has_bias, rms, scale_is_row;
    int64_t outer, count;
    char at[96];          // index of scale and bias from row and i
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
    hn_str s = {0};
    begin(&s, n->x.dtype, n->y.dtype);
    define(&s, "RMS", n->rms);
    define(&s, "HAS_SCALE", n->has_scale);
    define(&s, "HAS_BIAS", n->has_bias);
    define(&s, "SCALE_IS_ROW", n->scale_is_row);
    define(&s, "STATS", n->stats);
    hn_str_append(&s, "#define EPSILON ");
    cuda_print_number(&s, hn_node_float(node, "epsilon", 1e-5f));
    hn_str_printf(&s, "\n#define AT(row, i) (%s)\ntypedef %s S;\ntypedef %s STAT;\n", n->at,
                  cuda_ctype(n->has_scale ? n->scale.dtype : n->x.dtype), cuda_ctype(stat) ? cuda_ctype(stat) : "f32");
    row_shape r = shape_rows(n->count, hn_dtype_bytes(n->x.dtype), hn_dtype_bytes(n->y.dtype));
    print_rows(&s, &r, n->outer, n->count);
    hn_str_append(&s, cuda_text("norm"));
    if (status == HONE_OK) status = compiled(err, d, &s, "hn_k_norm", false, &launch);
    hn_str_free(&s);
    cuda_launch_1d(&launch, n->outer * r.group, r.threads);
    if (status == HONE_OK) status = cuda_kernel_launch(err, k, &launch);
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
    snprintf(n.at, sizeof n.at, "i");
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
    snprintf(n.at, sizeof n.at, "(row) %% %lldll * %lldll + (i) / %lldll", (long long)groups, (long long)(channels / groups), (long long)inner);
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
    hn_str s = {0};
    begin(&s, n->x.dtype, n->y.dtype);
    define(&s, "OUTER", images);
    hn_str_printf(&s, "#define COUNT %lldll\n", (long long)count);
    define(&s, "INNER", channels);
    define(&s, "SPLIT", split);
    define(&s, "ROWS", rows);
    define(&s, "VEC", vector);
    define(&s, "THREADS", threads);
    hn_str_append(&s, "#define EPSILON ");
    cuda_print_number(&s, hn_node_float(node, "epsilon", 1e-5f));
    hn_str_printf(&s, "\ntypedef %s S;\n__device__ __forceinline__ A convert(T x) { return load_param(x); }\n", cuda_ctype(n->scale.dtype));
    int done = cuda_posts_text(what, n->x.dtype == HN_F64 ? "double" : "float", &s);
    hn_str_append(&s, cuda_text("norm_columns"));
    cuda_launch part = {0}, finish = {0}, apply = {0};
    hone_status status = compiled(err, d, &s, "hn_k_norm_partial", false, &part);
    if (status == HONE_OK) status = compiled(err, d, &s, "hn_k_norm_finish", false, &finish);
    if (status == HONE_OK) status = compiled(err, d, &s, "hn_k_norm_apply", false, &apply);
    hn_str_free(&s);
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
    int vector = cuda_vector(channels, hn_dtype_bytes(n.x.dtype), 16);
    bool last = cuda_hint(what, 0) == CUDA_LAST && !cpu_same_bytes(&n.x.shape);
    if ((last || n.count > 65536) && channels / vector <= 1024 && n.x.shape.dims[0] <= 65535) {
        hone_status status = instance_norm_columns(err, d, what, &n, vector, out_kernel);
        if (status != HONE_ERR_UNSUPPORTED) return status;
    }
    snprintf(n.at, sizeof n.at, "(row) %% %lldll", (long long)channels);
    return norm_rows(err, d, what, &n, CUDA_PLAIN, out_kernel);
}

// ---- reductions ---------------------------------------------------------------------------------
static const struct {
    const char *op, *start, *take, *merge, *finish; // finish: of a and COUNT
    bool floats;                                    // not for integers
} k_reductions[] = {
    {"ReduceSum", "0", "x", "(a) + (b)", "a", false},
    {"ReduceMean", "0", "x", "(a) + (b)", "a / (A)COUNT", true},
    {"ReduceMax", "LOWEST", "x", "(a) > (b) || (a) != (a) ? (a) : (b)", "a", false},
    {"ReduceMin", "HIGHEST", "x", "(a) < (b) || (a) != (a) ? (a) : (b)", "a", false},
    {"ReduceProd", "1", "x", "(a) * (b)", "a", false},
    {"ReduceSumSquare", "0", "(x) * (x)", "(a) + (b)", "a", false},
    {"ReduceL1", "0", "((x) < 0 ? -(x) : (x))", "(a) + (b)", "a", true},
    {"ReduceL2", "0", "(x) * (x)", "(a) + (b)", "sqrt(a)", true},
    {"ReduceLogSum", "0", "x", "(a) + (b)", "log(a)", true},
    {"GlobalAveragePool", "0", "x", "(a) + (b)", "a / (A)COUNT", true},
    {"GlobalMaxPool", "LOWEST", "x", "(a) > (b) || (a) != (a) ? (a) : (b)", "a", true},
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
    int vector = cuda_vector(rows ? band[1] : band[2], hn_dtype_bytes(x->dtype), 16), threads = 256;
    if (!rows && outputs / vector < (int64_t)d->caps.sm_count * 256)
        while (vector > 1 && outputs / vector < (int64_t)d->caps.sm_count * 64)
            vector /= 2;
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
    hn_str s = {0};
    hn_str_append(&s, cuda_text("prelude"));
    hn_str_printf(&s, "typedef %s T;\ntypedef %s D;\ntypedef %s A;\n#define LOAD(x) to_%s(x)\n", cuda_ctype(x->dtype), cuda_ctype(y->dtype), a,
                  !strcmp(a, "double") ? "f64" : !strcmp(a, "float") ? "f32" : a);
    hn_str_printf(&s, "#define LOWEST %s\n#define HIGHEST %s\n", floats ? "(-(A)HN_INF)" : is_signed ? "(-0x7fffffffffffffffll - 1)" : "0ull",
                  floats ? "((A)HN_INF)" : is_signed ? "0x7fffffffffffffffll" : "0xffffffffffffffffull");
    hn_str_printf(&s, "#define START ((A)%s)\n#define TAKE(x) (%s)\n#define MERGE(a, b) (%s)\n#define FINISH(a) (%s)\n", k_reductions[row].start,
                  k_reductions[row].take, k_reductions[row].merge, k_reductions[row].finish);
    define(&s, "ROWS_KERNEL", rows);
    define(&s, "THREADS", threads);
    define(&s, "GROUP", group);
    define(&s, "VEC", vector);
    hn_str_printf(&s, "#define OUTER %lldll\n#define COUNT %lldll\n#define INNER %lldll\n#define SPLIT %lld\n", (long long)band[0],
                  (long long)band[1], (long long)band[2], (long long)split);
    hn_str_append(&s, cuda_text("reduce"));
    cuda_launch main = {0}, last = {0};
    hone_status status = compiled(err, d, &s, "hn_k_reduce", false, &main);
    if (status == HONE_OK && split > 1) status = compiled(err, d, &s, "hn_k_reduce_finish", false, &last);
    hn_str_free(&s);
    if (status == HONE_OK) status = cuda_kernel_input(err, k, node, 0, &main.args[0]);
    if (status != HONE_OK) return status;
    main.args[1] = cuda_arg_output(0);
    main.args[2] = cuda_arg_workspace(0);
    main.arg_count = 3;
    cuda_launch_1d(&main, blocks * threads, threads);
    main.grid[1] = (unsigned)split;
    HN_TRY(cuda_kernel_launch(err, k, &main));
    if (split == 1) return HONE_OK;
    k->base.workspace_bytes = (size_t)(split * outputs * 8);
    last.args[0] = cuda_arg_workspace(0);
    last.args[1] = cuda_arg_output(0);
    last.arg_count = 2;
    cuda_launch_1d(&last, outputs, threads);
    return cuda_kernel_launch(err, k, &last);
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
