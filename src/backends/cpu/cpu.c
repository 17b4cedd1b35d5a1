// SPDX-License-Identifier: Apache-2.0
// The CPU backend: its state, the kernel table's reader and the vtable.
//
// Two layouts, plain and channels-last; no opaque ones (measured: docs/notes/cpu-layouts.md). There
// is one device and one state for the process; oneDNN is optional (own kernels and references then
// do all the work).
#include "backends/cpu/cpu.h"
#include "backends/cpu/cpu_int.h"
#include <pthread.h>
#include <stdio.h>

static const cpu_row k_rows[] = {
#define HN_KERNEL(domain, op, variant, isa, dnnl, select)                                          \
    {domain, op, variant, HN_ISA_##isa, dnnl, select},
#include "kernels/kernels.def"
};

const cpu_row *cpu_rows(size_t *out_count) {
    *out_count = HN_COUNT_OF(k_rows);
    return k_rows;
}

// Rows by op: for each op number, a slice of an index list in table order.
static int16_t g_row_index[HN_COUNT_OF(k_rows)];
static int16_t g_first_row[HN_OP_END + 2];

static pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER;
static cpu_state g_cpu;
static bool g_ready;
static hn_backend g_backend; // below

static void index_rows(void) {
    int16_t next = 0;
    for (int op = 0; op <= HN_OP_END; op++) {
        g_first_row[op] = next;
        for (size_t r = 0; op > 0 && op < HN_OP_END && r < HN_COUNT_OF(k_rows); r++)
            if (hn_op_find(k_rows[r].domain, k_rows[r].op) == op) g_row_index[next++] = (int16_t)r;
    }
    g_first_row[HN_OP_END + 1] = next;
}

static void open_dnnl(cpu_state *cpu) {
    const hn_dnnl *api;
    if (hn_dnnl_get(NULL, &api) != HONE_OK) return;
    if (api->dnnl_engine_create(&cpu->engine, dnnl_cpu, 0) != dnnl_success) return;
    if (api->dnnl_stream_create(&cpu->stream, cpu->engine, dnnl_stream_default_flags) !=
        dnnl_success) {
        api->dnnl_engine_destroy(cpu->engine);
        return;
    }
    // The setting `isa` caps the library too; it must be said before the first primitive. Without a
    // cap the library finds more than our levels tell apart (bf16 of a CPU without AMX).
    static const dnnl_cpu_isa_t caps[] = {dnnl_cpu_isa_sse41, dnnl_cpu_isa_avx2,
                                          dnnl_cpu_isa_avx512_core, dnnl_cpu_isa_avx512_core_vnni,
                                          dnnl_cpu_isa_all};
    if (cpu->isa < hn_cpu_get()->isa && api->dnnl_set_max_cpu_isa) api->dnnl_set_max_cpu_isa(caps[cpu->isa]);
    // Equal nodes of a model share their generated code through the library's cache.
    if (api->dnnl_set_primitive_cache_capacity) api->dnnl_set_primitive_cache_capacity(512);
    const dnnl_version_t *version = api->dnnl_version();
    snprintf(cpu->library, sizeof cpu->library, "oneDNN %d.%d.%d", version->major, version->minor,
             version->patch);
    cpu->dnnl = api;
}

void cpu_state_cap(cpu_state *cpu, hn_isa isa) {
    cpu->isa = isa;
    bool wide = isa >= HN_ISA_AVX512, avx2 = isa >= HN_ISA_AVX2;
    cpu->ew = wide ? &hn_k_elementwise_avx512 : avx2 ? &hn_k_elementwise_avx2 : &hn_k_elementwise_ref;
    cpu->rows = wide ? &hn_k_rows_avx512 : avx2 ? &hn_k_rows_avx2 : &hn_k_rows_ref;
    cpu->quant = wide ? &hn_k_quant_avx512 : avx2 ? &hn_k_quant_avx2 : &hn_k_quant_ref;
    cpu->attention = wide   ? &hn_k_attention_avx512
                     : avx2 ? &hn_k_attention_avx2
                            : &hn_k_attention_ref;
    cpu->conv = wide ? &hn_k_conv_avx512 : avx2 ? &hn_k_conv_avx2 : &hn_k_conv_ref;
    cpu->rnn = wide ? &hn_k_rnn_avx512 : avx2 ? &hn_k_rnn_avx2 : &hn_k_rnn_ref;
}

hn_status cpu_state_get(hone_error *err, cpu_state **out_cpu) {
    (void)err;
    pthread_mutex_lock(&g_lock);
    if (!g_ready) {
        g_cpu.isa = hn_cpu_isa();
        cpu_state_cap(&g_cpu, g_cpu.isa);
#define CPU_OP_SET(name) g_cpu.op.name = hn_op_find("", #name);
        CPU_OPS(CPU_OP_SET)
#undef CPU_OP_SET
        snprintf(g_cpu.device, sizeof g_cpu.device, "%s (%s)", hn_cpu_get()->model,
                 hn_isa_name(g_cpu.isa));
        open_dnnl(&g_cpu);
        // Below VNNI oneDNN adds pairs of u8 * s8 products in 16 bits, which saturate: 2 * 255 * 64 is the
        // most that fits.
        g_backend.int8_weight_max = g_cpu.isa < HN_ISA_VNNI ? 64 : 0;
        index_rows();
        g_ready = true;
    }
    pthread_mutex_unlock(&g_lock);
    *out_cpu = &g_cpu;
    return HONE_OK;
}

// ---- kernel objects -----------------------------------------------------------------------------
void *cpu_kernel_new(size_t bytes, const hn_kernel_ops *ops) {
    hn_kernel *kernel = hn_calloc(1, bytes);
    if (!kernel) return NULL;
    kernel->ops = ops;
    kernel->inplace_input[0] = kernel->inplace_input[1] = -1;
    return kernel;
}

void cpu_kernel_destroy(hn_kernel *kernel) {
    hn_kernel_release(kernel);
    hn_free(kernel);
}

// ---- select -------------------------------------------------------------------------------------
hn_status cpu_rows_select(hone_error *err, cpu_state *cpu, const hn_select *what,
                          hn_kernel **out_kernel) {
    const hn_node *node = what->node;
    if (node->op >= HN_OP_END) return HONE_ERR_UNSUPPORTED;
    for (int i = g_first_row[node->op + 1] - 1; i >= g_first_row[node->op]; i--) {
        const cpu_row *row = &k_rows[g_row_index[i]];
        if (row->isa > cpu->isa || (row->dnnl && !cpu->dnnl)) continue;
        hone_status status = row->select(err, cpu, what, out_kernel);
        if (status == HONE_OK && !(*out_kernel)->variant) (*out_kernel)->variant = row->variant;
        if (status != HONE_ERR_UNSUPPORTED) return status;
    }
    return HONE_ERR_UNSUPPORTED;
}

static hone_status cpu_select(hone_error *err, hn_backend *backend, const hn_select *what,
                              hn_kernel **out_kernel) {
    char label[160];
    if (what->force_reference) return hn_kernel_reference(err, what, out_kernel);
    hone_status status = cpu_rows_select(err, backend->state, what, out_kernel);
    if (status != HONE_ERR_UNSUPPORTED) return status;
    const hn_node *node = what->node;
    HN_FAIL(err, HONE_ERR_UNSUPPORTED, "%s: the CPU backend has no kernel for this %s",
            hn_node_label(node, label, sizeof label), node->op_type);
}

static hone_status cpu_layout_bytes(hone_error *err, hn_backend *backend, const hn_type *type,
                                    hn_layout layout, size_t *out_bytes) {
    (void)backend;
    hn_shape shape;
    if (layout > HN_LAYOUT_CHANNELS_LAST)
        HN_FAIL(err, HONE_ERR_INTERNAL, "the CPU backend has no layout %u", layout);
    if (!hn_type_shape(type, &shape) || !hn_shape_bytes(&shape, type->dtype, out_bytes))
        HN_FAIL(err, HONE_ERR_LIMIT, "a value's size is unknown or too large");
    return HONE_OK;
}

typedef struct reorder_kernel {
    hn_kernel base;
    cpu_move move;
} reorder_kernel;

static hone_status reorder_run(hone_error *err, hn_kernel *kernel, const hn_args *args) {
    (void)err;
    cpu_move_run(&((reorder_kernel *)kernel)->move, args->inputs[0], args->outputs[0]);
    return HONE_OK;
}
static const hn_kernel_ops k_reorder_ops = {sizeof(hn_kernel_ops), NULL, reorder_run,
                                            cpu_kernel_destroy};

static hone_status cpu_reorder(hone_error *err, hn_backend *backend, const hn_type *type,
                               hn_layout from, hn_layout to, hn_kernel **out_kernel) {
    size_t bytes;
    HN_TRY(cpu_layout_bytes(err, backend, type, from, &bytes));
    HN_TRY(cpu_layout_bytes(err, backend, type, to, &bytes));
    hn_shape shape;
    if (!hn_type_shape(type, &shape) || hn_dtype_bits(type->dtype) % 8 || !hn_dtype_bits(type->dtype))
        HN_FAIL(err, HONE_ERR_UNSUPPORTED, "a value of type %s cannot change its layout",
                hn_dtype_name(type->dtype));
    reorder_kernel *k = cpu_kernel_new(sizeof *k, &k_reorder_ops);
    if (!k) HN_NOMEM(err, "selecting a kernel");
    k->base.variant = "own:reorder";
    k->base.in_layout[0] = from;
    k->base.out_layout[0] = to;
    int order[HN_MAX_RANK];
    int64_t in[HN_MAX_RANK], out[HN_MAX_RANK], dims[HN_MAX_RANK], in_s[HN_MAX_RANK],
        out_s[HN_MAX_RANK];
    cpu_physical(shape.rank, to, order);
    cpu_strides(&shape, from, in);
    cpu_strides(&shape, to, out);
    for (int i = 0; i < shape.rank; i++) {
        dims[i] = shape.dims[order[i]];
        in_s[i] = in[order[i]];
        out_s[i] = out[order[i]];
    }
    cpu_move_init(&k->move, shape.rank, dims, in_s, out_s, hn_dtype_bytes(type->dtype));
    k->move.threads = hn_parallel_threads();
    *out_kernel = &k->base;
    return HONE_OK;
}

// ---- vtable -------------------------------------------------------------------------------------
static hone_status cpu_alloc(hone_error *err, hn_backend *backend, size_t bytes, void **out_memory) {
    (void)backend;
    void *memory = hn_malloc_aligned(bytes);
    if (!memory) HN_FAIL(err, HONE_ERR_NOMEM, "out of memory (%zu bytes of activations)", bytes);
    *out_memory = memory;
    return HONE_OK;
}
static void cpu_free(hn_backend *backend, void *memory) {
    (void)backend;
    hn_free(memory);
}
static void cpu_close(hn_backend *backend) { (void)backend; } // lives as long as the process
static hone_status cpu_sync(hone_error *err, hn_backend *backend) {
    (void)err;
    (void)backend;
    return HONE_OK;
}

static void cpu_info(hn_backend *backend, hn_backend_info *out_info) {
    cpu_state *cpu = backend->state;
    *out_info = (hn_backend_info){"cpu", cpu->device, cpu->library, hn_isa_name(cpu->isa)};
}

// With constant dims more folds than in the file; then the fusions, the widest ones last.
static const char *const k_passes[] = {
    "fold", "static_if", "fold", "einsum", "clean", "pad", "conv_bn", "recognise", "recognise_device",
    "channel_norm", "group_norm", "attention", "qdq_move", "qdq_dynamic", "posts", "posts_norm",
    "qdq_fuse", "float_weights", "qdq_pool", "add_norm", "lookups", "chains", "device_dce", NULL,
};
static hn_backend g_backend = {
    .struct_size = sizeof(hn_backend),
    .api_version = 1,
    .name = "cpu",
    .open = hn_cpu_backend_open,
    .close = cpu_close,
    .info = cpu_info,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .select = cpu_select,
    .layout_bytes = cpu_layout_bytes,
    .reorder = cpu_reorder,
    .device_passes = k_passes,
    .sync = cpu_sync,
    .state = &g_cpu,
};

hn_status cpu_prepare(hone_error *err, const hn_select *what, hn_kernel *kernel, hn_prepared_ask *ask,
                      hn_prepared **out_prepared) {
    return hn_kernel_prepare(err, &g_backend, what, kernel, ask, out_prepared);
}

hone_status hn_cpu_backend_open(hone_error *err, int index, hn_backend **out_backend) {
    if (index != 0) HN_FAIL(err, HONE_ERR_UNSUPPORTED, "there is one CPU device, with index 0");
    cpu_state *cpu;
    HN_TRY(cpu_state_get(err, &cpu));
    *out_backend = &g_backend;
    return HONE_OK;
}
