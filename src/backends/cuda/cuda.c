// SPDX-License-Identifier: Apache-2.0
// The CUDA backend's vtable: choosing kernels, copies between host and card, layouts, recording.
#include "backends/cuda/cuda.h"
#include "backends/cuda/cuda_int.h"
#include "config/config.h"

static const cuda_row k_rows[] = {
#define HN_CUDA_KERNEL(domain, op, variant, min_cc, select) {domain, op, variant, min_cc, select},
#include "kernels/kernels.def"
};

const cuda_row *cuda_rows(size_t *out_count) {
    *out_count = HN_COUNT_OF(k_rows);
    return k_rows;
}

// ---- select -------------------------------------------------------------------------------------
static bool row_fits(const cuda_row *row, const cuda_device *d, const hn_node *node) {
    if (row->min_cc > d->caps.cc) return false;
    if (!strcmp(row->op, "*")) return true;
    return !strcmp(row->op, node->op_type) && !strcmp(row->domain, node->domain);
}

// The CPU's kernel, with the layouts the values have on the host or would get there.
static hone_status select_host(hone_error *err, cuda_device *d, const hn_select *what, hn_kernel **out_kernel) {
    hn_layout hints[HN_MAX_KERNEL_IO];
    for (int i = 0; i < what->node->input_count; i++)
        hints[i] = cuda_is_device(what->in_layout[i]) ? HN_LAYOUT_PLAIN : what->in_layout[i];
    hn_select host = *what;
    host.in_layout = hints;
    return d->cpu->select(err, d->cpu, &host, out_kernel);
}

// Shape arithmetic, a few integers that come from the host, stays there: a copy costs more than it does.
static bool belongs_on_host(const hn_select *what) {
    const hn_node *node = what->node;
    bool any = false;
    for (int i = 0; i < node->output_count; i++)
        if (node->outputs[i] && hn_dtype_is_float(node->outputs[i]->type.dtype)) return false;
    for (int i = 0; i < node->input_count; i++) {
        const hn_value *in = node->inputs[i];
        if (!in || in->constant) continue;
        if (cuda_is_device(what->in_layout[i]) || !in->producer) return false;
        any = true;
        hn_shape shape;
        int64_t count;
        if (!hn_type_shape(&in->type, &shape) || !hn_shape_count(&shape, &count) || count > 64) return false;
    }
    return any;
}

static hone_status cuda_select(hone_error *err, hn_backend *backend, const hn_select *what, hn_kernel **out_kernel) {
    cuda_device *d = backend->state;
    const hn_node *node = what->node;
    if (what->force_reference) return hn_kernel_reference(err, what, out_kernel);
    HN_TRY(cuda_current(err, d));
    for (size_t i = HN_COUNT_OF(k_rows); i > 0 && node->op < HN_OP_END && !belongs_on_host(what); i--) {
        const cuda_row *row = &k_rows[i - 1];
        if (!row_fits(row, d, node)) continue;
        hone_status status = row->select(err, d, what, out_kernel);
        if (status == HONE_OK && !(*out_kernel)->variant) (*out_kernel)->variant = row->variant;
        if (status != HONE_ERR_UNSUPPORTED) return status;
    }
    return select_host(err, d, what, out_kernel);
}

// ---- layouts ------------------------------------------------------------------------------------
static hone_status cuda_layout_bytes(hone_error *err, hn_backend *backend, const hn_type *type, hn_layout layout,
                                     size_t *out_bytes) {
    (void)backend;
    hn_shape shape;
    if (cuda_to_host(layout) > HN_LAYOUT_CHANNELS_LAST)
        HN_FAIL(err, HONE_ERR_INTERNAL, "the CUDA backend has no layout %u", layout);
    if (!hn_type_shape(type, &shape) || !hn_shape_bytes(&shape, type->dtype, out_bytes))
        HN_FAIL(err, HONE_ERR_LIMIT, "a value's size is unknown or too large");
    return HONE_OK;
}

static bool layout_on_device(hn_backend *backend, hn_layout layout) {
    (void)backend;
    return cuda_is_device(layout);
}
static hn_layout layout_host_of(hn_backend *backend, hn_layout layout) {
    (void)backend;
    return cuda_to_host(layout);
}
static hn_layout layout_plain_of(hn_backend *backend, hn_layout layout) {
    (void)backend;
    return cuda_is_device(layout) ? CUDA_PLAIN : HN_LAYOUT_PLAIN;
}

// ---- copies between host and card ---------------------------------------------------------------
typedef struct copy_kernel {
    hn_kernel base;
    cuda_device *device;
    size_t bytes;
    bool to_device;
    void *staging;    // pinned, where the source is the caller's memory
    hn_cu_ptr ring;   // base.sets inputs, where later runs take them in turn
    int kept, next;
} copy_kernel;

static hn_cu_ptr copy_place(const copy_kernel *k, int set) { return k->ring + (hn_cu_ptr)set * k->bytes; }

// The caller's pointers are not known at bind; what lies in our own pinned slab is.
static hone_status copy_bind(hone_error *err, hn_kernel *kernel, const hn_args *args) {
    copy_kernel *k = (copy_kernel *)kernel;
    cuda_device *d = k->device;
    if (!k->to_device || args->inputs[0] || !k->bytes) return HONE_OK;
    HN_TRY(cuda_current(err, d));
    if (k->base.sets) HN_TRY(cuda_memory_new(err, d, k->bytes * (size_t)k->base.sets, &k->ring));
    return cuda_check(err, d, d->api->cuMemHostAlloc(&k->staging, k->bytes, HN_CU_HOST_PORTABLE), "taking pinned memory");
}

static hone_status copy_stage(hone_error *err, hn_kernel *kernel, const hn_args *args) {
    copy_kernel *k = (copy_kernel *)kernel;
    cuda_device *d = k->device;
    if (k->ring && k->kept == k->base.sets) {
        hn_cu_ptr from = copy_place(k, k->next);
        k->next = (k->next + 1) % k->kept;
        return cuda_check(err, d, d->api->cuMemcpyDtoDAsync_v2(cuda_address(args->outputs[0]), from, k->bytes, d->stream), "taking inputs in turn");
    }
    if (k->staging) memcpy(k->staging, args->inputs[0], k->bytes);
    return HONE_OK;
}

static hone_status copy_run(hone_error *err, hn_kernel *kernel, const hn_args *args) {
    copy_kernel *k = (copy_kernel *)kernel;
    cuda_device *d = k->device;
    if (!k->bytes) return HONE_OK;
    d->last_kernel = kernel->variant;
    d->last_node[0] = 0;
    if (k->to_device) {
        CUDA_TRY(err, d,
                 d->api->cuMemcpyHtoDAsync_v2(cuda_address(args->outputs[0]), k->staging ? k->staging : args->inputs[0], k->bytes, d->stream),
                 "copying to the card");
        if (!k->ring || k->kept == k->base.sets) return HONE_OK;
        return cuda_check(err, d, d->api->cuMemcpyDtoDAsync_v2(copy_place(k, k->kept++), cuda_address(args->outputs[0]), k->bytes, d->stream),
                          "keeping inputs");
    }
    return cuda_check(err, d,
                      d->api->cuMemcpyDtoHAsync_v2(args->outputs[0], cuda_address(args->inputs[0]), k->bytes, d->stream),
                      "copying from the card");
}

static void copy_destroy(hn_kernel *kernel) {
    copy_kernel *k = (copy_kernel *)kernel;
    if (k->staging && !k->device->lost) k->device->api->cuMemFreeHost(k->staging);
    if (k->ring) cuda_memory_free(k->device, k->ring);
    hn_free(k);
}
static const hn_kernel_ops k_copy_ops = {sizeof(hn_kernel_ops), copy_bind, copy_run, copy_destroy, copy_stage};

static hone_status make_copy(hone_error *err, cuda_device *d, size_t bytes, hn_layout from, hn_layout to,
                             hn_kernel **out_kernel) {
    copy_kernel *k = hn_calloc(1, sizeof *k);
    if (!k) HN_NOMEM(err, "planning a copy");
    k->base.ops = &k_copy_ops;
    k->base.on_device = true;
    k->base.inplace_input[0] = k->base.inplace_input[1] = -1;
    k->base.variant = cuda_is_device(to) ? "copy:to_device" : "copy:to_host";
    k->base.in_layout[0] = from;
    k->base.out_layout[0] = to;
    k->device = d;
    k->bytes = bytes;
    k->to_device = cuda_is_device(to);
    *out_kernel = &k->base;
    return HONE_OK;
}

static hone_status cuda_reorder(hone_error *err, hn_backend *backend, const hn_type *type, hn_layout from, hn_layout to,
                                hn_kernel **out_kernel) {
    cuda_device *d = backend->state;
    size_t bytes;
    HN_TRY(cuda_layout_bytes(err, backend, type, from, &bytes));
    HN_TRY(cuda_layout_bytes(err, backend, type, to, &bytes));
    if (!cuda_is_device(from) && !cuda_is_device(to)) return d->cpu->reorder(err, d->cpu, type, from, to, out_kernel);
    if (cuda_is_device(from) != cuda_is_device(to)) {
        if (cuda_to_host(from) != cuda_to_host(to)) HN_FAIL(err, HONE_ERR_INTERNAL, "a copy cannot change the layout");
        return make_copy(err, d, bytes, from, to, out_kernel);
    }
    return cuda_reorder_select(err, d, type, from, to, out_kernel);
}

// ---- memory, waiting ----------------------------------------------------------------------------
static hone_status cuda_alloc(hone_error *err, hn_backend *backend, size_t bytes, void **out_memory) {
    hn_cu_ptr memory;
    HN_TRY(cuda_memory_new(err, backend->state, bytes, &memory));
    *out_memory = cuda_pointer(memory);
    return HONE_OK;
}
static void cuda_free(hn_backend *backend, void *memory) { cuda_memory_free(backend->state, cuda_address(memory)); }

static hone_status cuda_host_alloc(hone_error *err, hn_backend *backend, size_t bytes, void **out_memory) {
    cuda_device *d = backend->state;
    HN_TRY(cuda_current(err, d));
    return cuda_check(err, d, d->api->cuMemHostAlloc(out_memory, bytes, HN_CU_HOST_PORTABLE), "taking pinned memory");
}
static void cuda_host_free(hn_backend *backend, void *memory) {
    cuda_device *d = backend->state;
    if (!d->lost && d->api->cuCtxSetCurrent(d->context) == HN_CU_OK) d->api->cuMemFreeHost(memory);
}

static hone_status cuda_sync(hone_error *err, hn_backend *backend) {
    cuda_device *d = backend->state;
    HN_TRY(cuda_current(err, d));
    CUDA_TRY(err, d, d->api->cuStreamSynchronize(d->stream), "running a model");
    if (!d->fault[0]) return HONE_OK;
    d->fault[0] = 0;
    HN_FAIL(err, HONE_ERR_INPUT, "an index or a length lies outside of the value it is for (a step on cuda:%d)", d->index);
}

// ---- recording ----------------------------------------------------------------------------------
static hone_status cuda_record_begin(hone_error *err, hn_backend *backend) {
    cuda_device *d = backend->state;
    HN_TRY(cuda_current(err, d));
    if (!d->api->cuStreamBeginCapture_v2 || !d->api->cuStreamEndCapture || !d->api->cuGraphInstantiateWithFlags ||
        !d->api->cuGraphLaunch)
        HN_FAIL(err, HONE_ERR_UNSUPPORTED, "this driver records no graphs");
    CUDA_TRY(err, d, d->api->cuStreamBeginCapture_v2(d->stream, HN_CU_CAPTURE_THREAD_LOCAL), "recording");
    d->recording = true;
    d->lanes[0] = d->stream;
    d->lanes_used = 1;
    return HONE_OK;
}

// ---- lanes --------------------------------------------------------------------------------------
static hn_status event_of(hone_error *err, cuda_device *d, hn_cu_event *event) {
    return *event ? HONE_OK : cuda_check(err, d, d->api->cuEventCreate(event, HN_CU_EVENT_NO_TIMING), "ordering lanes");
}
static hn_status go_to(hone_error *err, cuda_device *d, int lane) {
    if (d->stream == d->lanes[lane]) return HONE_OK;
    d->stream = d->lanes[lane];
    if (d->dnn_handle && d->dnn->cudnnSetStream(d->dnn_handle, d->stream) != HN_DNN_OK)
        HN_FAIL(err, HONE_ERR_DEVICE, "cuDNN does not take a stream");
    return HONE_OK;
}
// `lane` goes on behind what `stream` has been given so far.
static hn_status join(hone_error *err, cuda_device *d, hn_cu_stream lane, hn_cu_stream stream) {
    HN_TRY(event_of(err, d, &d->lane_fence));
    CUDA_TRY(err, d, d->api->cuEventRecord(d->lane_fence, stream), "ordering lanes");
    return cuda_check(err, d, d->api->cuStreamWaitEvent(lane, d->lane_fence, 0), "ordering lanes");
}

static hone_status cuda_lane_begin(hone_error *err, hn_backend *backend, int lane, const int *after, int after_count) {
    cuda_device *d = backend->state;
    if (!d->lanes[lane]) CUDA_TRY(err, d, d->api->cuStreamCreate(&d->lanes[lane], HN_CU_STREAM_NON_BLOCKING), "making a stream");
    // A stream becomes part of the recording by waiting for one that is. What it waits for needs no order else.
    if (!(d->lanes_used >> lane & 1) && !after_count) HN_TRY(join(err, d, d->lanes[lane], d->lanes[0]));
    d->lanes_used |= 1u << lane;
    for (int i = 0; i < after_count; i++)
        CUDA_TRY(err, d, d->api->cuStreamWaitEvent(d->lanes[lane], d->ends[after[i]], 0), "ordering lanes");
    return go_to(err, d, lane);
}

static hone_status cuda_lane_end(hone_error *err, hn_backend *backend, int step) {
    cuda_device *d = backend->state;
    if (!d->ends) d->ends = hn_calloc(CUDA_MAX_MARKS, sizeof *d->ends);
    if (!d->ends) HN_NOMEM(err, "ordering lanes");
    if (step >= CUDA_MAX_MARKS) HN_FAIL(err, HONE_ERR_LIMIT, "more than %d steps cannot be ordered", CUDA_MAX_MARKS);
    HN_TRY(event_of(err, d, &d->ends[step]));
    return cuda_check(err, d, d->api->cuEventRecord(d->ends[step], d->stream), "ordering lanes");
}

// All lanes end in the first.
static hn_status lanes_end(hone_error *err, cuda_device *d) {
    hone_status status = HONE_OK;
    for (int i = 1; i < CUDA_MAX_LANES && status == HONE_OK; i++)
        if (d->lanes_used >> i & 1) status = join(err, d, d->lanes[0], d->lanes[i]);
    d->lanes_used = 1;
    hone_status back = go_to(status == HONE_OK ? err : NULL, d, 0);
    return status == HONE_OK ? back : status;
}

// Libraries launch kernels that may begin while the one before still runs (programmatic edges). Recorded,
// ResNet-50 at batch 32 gave wrong numbers in every replay on an H200 (cuDNN 9, driver 580; 16 of 65 edges), and
// right ones once each kernel waits for the whole of the one before.
static hn_status whole_edges(hone_error *err, cuda_device *d, hn_cu_graph graph) {
    const hn_cuda *api = d->api;
    size_t count = 0;
    if (!api->cuGraphGetEdges_v2 || !api->cuGraphRemoveDependencies_v2 || !api->cuGraphAddDependencies_v2) return HONE_OK;
    CUDA_TRY(err, d, api->cuGraphGetEdges_v2(graph, NULL, NULL, NULL, &count), "reading a recording");
    hn_cu_node *nodes = hn_calloc(2 * count + 1, sizeof *nodes);
    hn_cu_edge *edges = hn_calloc(count + 1, sizeof *edges);
    int result = nodes && edges ? api->cuGraphGetEdges_v2(graph, nodes, nodes + count, edges, &count) : HN_CU_OUT_OF_MEMORY;
    static const hn_cu_edge whole;
    int changed = 0;
    for (size_t i = 0; i < count && result == HN_CU_OK; i++) {
        if (memcmp(&edges[i], &whole, sizeof whole) == 0) continue;
        result = api->cuGraphRemoveDependencies_v2(graph, &nodes[i], &nodes[count + i], &edges[i], 1);
        if (result == HN_CU_OK) result = api->cuGraphAddDependencies_v2(graph, &nodes[i], &nodes[count + i], &whole, 1);
        changed++;
    }
    hn_log(HN_LOG_INFO, "recorded %zu edges, %d of them made whole", count, changed);
    hn_free(nodes);
    hn_free(edges);
    return cuda_check(err, d, result, "ordering a recording");
}

static hone_status cuda_record_end(hone_error *err, hn_backend *backend, void **out_record) {
    cuda_device *d = backend->state;
    hn_cu_graph graph = NULL;
    hn_cu_graph_exec exec = NULL;
    hone_status status = lanes_end(err, d);
    d->recording = false;
    int ended = d->api->cuStreamEndCapture(d->stream, &graph);
    HN_TRY(status);
    CUDA_TRY(err, d, ended, "recording");
    status = whole_edges(err, d, graph);
    int result = status == HONE_OK ? d->api->cuGraphInstantiateWithFlags(&exec, graph, 0) : HN_CU_OK;
    if (d->api->cuGraphDestroy) d->api->cuGraphDestroy(graph);
    HN_TRY(status);
    CUDA_TRY(err, d, result, "recording");
    *out_record = exec;
    return HONE_OK;
}

static hone_status cuda_replay(hone_error *err, hn_backend *backend, void *record) {
    cuda_device *d = backend->state;
    if (d->lost) return cuda_current(err, d);
    d->last_kernel = "a recorded plan";
    d->last_node[0] = 0;
    return cuda_check(err, d, d->api->cuGraphLaunch(record, d->stream), "running a recorded plan");
}

static void cuda_record_free(hn_backend *backend, void *record) {
    cuda_device *d = backend->state;
    if (!d->lost && d->api->cuGraphExecDestroy) d->api->cuGraphExecDestroy(record);
}

static hone_status cuda_mark(hone_error *err, hn_backend *backend, int index) {
    cuda_device *d = backend->state;
    if (!d->marks) d->marks = hn_calloc(CUDA_MAX_MARKS, sizeof *d->marks);
    if (!d->marks) HN_NOMEM(err, "timing");
    if (index >= CUDA_MAX_MARKS) HN_FAIL(err, HONE_ERR_LIMIT, "more than %d steps cannot be timed", CUDA_MAX_MARKS);
    if (!d->marks[index]) CUDA_TRY(err, d, d->api->cuEventCreate(&d->marks[index], 0), "timing");
    return cuda_check(err, d, d->api->cuEventRecord(d->marks[index], d->stream), "timing");
}

static hone_status cuda_between(hone_error *err, hn_backend *backend, int from, int to, double *out_ns) {
    cuda_device *d = backend->state;
    float ms;
    CUDA_TRY(err, d, d->api->cuEventElapsedTime(&ms, d->marks[from], d->marks[to]), "timing");
    *out_ns = ms * 1e6;
    return HONE_OK;
}

// ---- vtable -------------------------------------------------------------------------------------
static void cuda_close(hn_backend *backend) { cuda_device_close(backend->state); }
static void cuda_info(hn_backend *backend, hn_backend_info *out_info) {
    cuda_device *d = backend->state;
    *out_info = (hn_backend_info){"cuda", d->device, d->library, d->isa};
}

static const char *const k_passes[] = {
    "fold", "static_if", "fold", "einsum", "clean", "pad", "conv_bn", "recognise", "recognise_device", "qdq_move", "qdq_card", "narrow",
    "attention_half", "attention_views", "embeddings", "patches", "posts", "posts_wide", "device_dce", NULL,
};
static const hn_backend k_table = {
    .struct_size = sizeof(hn_backend),
    .api_version = 1,
    .name = "cuda",
    .open = hn_cuda_backend_open,
    .close = cuda_close,
    .info = cuda_info,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .select = cuda_select,
    .layout_bytes = cuda_layout_bytes,
    .reorder = cuda_reorder,
    .device_passes = k_passes,
    .sync = cuda_sync,
    .on_device = layout_on_device,
    .host_of = layout_host_of,
    .plain_of = layout_plain_of,
    .host_alloc = cuda_host_alloc,
    .host_free = cuda_host_free,
    .record_begin = cuda_record_begin,
    .record_end = cuda_record_end,
    .replay = cuda_replay,
    .record_free = cuda_record_free,
    .lane_begin = cuda_lane_begin,
    .lane_end = cuda_lane_end,
    .mark = cuda_mark,
    .between = cuda_between,
};

hone_status hn_cuda_backend_open(hone_error *err, int index, hn_backend **out_backend) {
    cuda_device *d;
    HN_TRY(cuda_device_open(err, index, &d));
    if (!d->backend.state) {
        HN_TRY(hn_backend_open(err, "cpu", 0, &d->cpu));
        d->backend = k_table;
        d->backend.state = d;
        d->backend.lanes = (int)hn_config_get()->cuda_streams;
    }
    *out_backend = &d->backend;
    return HONE_OK;
}
