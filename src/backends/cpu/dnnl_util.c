// SPDX-License-Identifier: Apache-2.0
// The common part of all oneDNN kernels: building a primitive with its post-ops, packed weights and
// scratchpad, and running it.
//
// The number of threads is fixed when the primitive is made (oneDNN bakes it in): small work gets
// one, which also saves the fork. The scratchpad comes from the plan's slab.
//
// Steps that drop NaN (Relu, Clip, Max, Min, max pooling) are used all the same, because they cost
// nothing inside the primitive, and watched: docs/notes/nan.md.
#include "backends/cpu/cpu_int.h"
#include <stdio.h>

static void dnnl_kernel_destroy(hn_kernel *kernel);

// ---- bf16 ---------------------------------------------------------------------------------------
// Elements a thread should have: a fork and join is about 1 us, a vector of 16 about 1 ns.
#define NARROW_GRAIN 32768

typedef struct narrow_job {
    const dnnl_kernel *k;
    const float *x;
    uint16_t *out;
} narrow_job;

static void narrow_range(void *arg, int64_t begin, int64_t end) {
    const narrow_job *job = arg;
    job->k->quant->to_bf16(job->x + begin, job->out + begin, end - begin);
}

static void narrow(const dnnl_kernel *k, const hn_args *args) {
    narrow_job job = {k, args->inputs[0],
                      (uint16_t *)(void *)((char *)args->workspace + k->narrow_offset)};
    if (k->threads <= 1 || k->narrow_count < 2 * NARROW_GRAIN) narrow_range(&job, 0, k->narrow_count);
    else hn_parallel_for(k->narrow_count, NARROW_GRAIN, narrow_range, &job);
}

// ---- scales of the run --------------------------------------------------------------------------
static void scale_channels(const dnnl_kernel *k, const hn_args *args) {
    const dnnl_scaled *s = &k->scaled;
    float *scales = (float *)(void *)((char *)args->workspace + s->offset);
    float *shifts = scales + s->channels;
    float scale = *(const float *)args->inputs[s->scale], zero = 0;
    if (s->zero >= 0)
        zero = s->is_signed ? *(const int8_t *)args->inputs[s->zero]
                            : *(const uint8_t *)args->inputs[s->zero];
    for (int64_t i = 0; i < s->channels; i++) {
        scales[i] = s->unit[i] * scale;
        shifts[i] = s->fixed[i] - zero * s->sum[i] * scales[i];
    }
}

bool dnnl_wants_bf16(const cpu_state *cpu, const hn_node *node) {
    const hn_cpu *here = hn_cpu_get();
    return node->compute == HN_BF16 && cpu->isa == here->isa &&
           (here->amx_bf16 ? cpu->isa >= HN_ISA_AMX : here->avx512_bf16);
}

// The kernel that keeps NaN: same node, same layouts. Its workspace is not in the plan.
static hn_status make_exact(hone_error *err, dnnl_kernel *self) {
    hn_select what = self->what;
    what.in_layout = self->base.in_layout;
    what.keep_nan = true;
    hn_kernel *exact = NULL;
    hone_status status = cpu_rows_select(err, self->cpu, &what, &exact);
    if (status != HONE_OK && status != HONE_ERR_UNSUPPORTED) return status;
    bool fits = status == HONE_OK && exact->out_layout[0] == self->base.out_layout[0];
    for (int i = 0; fits && i < what.node->input_count; i++)
        fits = ((exact->consumed >> i & 1) || exact->in_layout[i] == self->base.in_layout[i]) &&
               !(self->base.consumed & ~exact->consumed & (uint64_t)1 << i);
    void *workspace = fits && exact->workspace_bytes ? hn_malloc_aligned(exact->workspace_bytes) : NULL;
    if (fits && (!exact->workspace_bytes || workspace)) {
        self->exact = exact;
        self->exact_workspace = workspace;
        return HONE_OK;
    }
    if (exact) exact->ops->destroy(exact);
    if (fits) HN_NOMEM(err, "selecting a kernel");
    HN_FAIL(err, HONE_ERR_INTERNAL, "%s met a NaN, and no other kernel fits in its place",
            self->base.variant);
}

static hn_status run_exact(hone_error *err, dnnl_kernel *self, const hn_args *args) {
    if (!self->exact) HN_TRY(make_exact(err, self));
    hn_args own = {args->inputs, args->outputs, self->exact_workspace};
    return self->exact->ops->run(err, self->exact, &own);
}

static hone_status dnnl_kernel_run(hone_error *err, hn_kernel *kernel, const hn_args *args) {
    dnnl_kernel *self = (dnnl_kernel *)kernel;
    for (int i = 0; i < self->arg_count; i++) {
        void *pointer;
        switch (self->source[i]) {
        case DNNL_FROM_INPUT: pointer = args->inputs[self->index[i]]; break;
        case DNNL_FROM_OUTPUT: pointer = args->outputs[self->index[i]]; break;
        case DNNL_FROM_WORKSPACE: pointer = args->workspace; break;
        case DNNL_FROM_NARROW: pointer = (char *)args->workspace + self->narrow_offset; break;
        case DNNL_FROM_SCALES: pointer = (char *)args->workspace + self->scaled.offset; break;
        case DNNL_FROM_SHIFTS:
            pointer = (float *)(void *)((char *)args->workspace + self->scaled.offset) +
                      self->scaled.channels;
            break;
        default: continue;
        }
        if (pointer == self->last[i]) continue;
        self->last[i] = pointer;
        self->api->dnnl_memory_set_data_handle(self->args[i].memory, pointer);
    }
    if (self->narrow_count) narrow(self, args);
    if (self->scaled.channels) scale_channels(self, args);
    if (self->drops_nan) hn_parallel_invalid_clear();
    int status = self->api->dnnl_primitive_execute(self->primitive, self->stream, self->arg_count,
                                                   self->args);
    if (status != dnnl_success)
        HN_FAIL_VENDOR(err, hn_dnnl_status(status), status, "oneDNN could not run %s: %s",
                       kernel->variant, hn_dnnl_status_text(status));
    if (self->drops_nan && hn_parallel_invalid()) return run_exact(err, self, args);
    if (self->posts.count) cpu_posts_run(&self->posts, args, args->outputs[0]);
    return HONE_OK;
}

static const hn_kernel_ops k_dnnl_ops = {sizeof(hn_kernel_ops), NULL, dnnl_kernel_run,
                                         dnnl_kernel_destroy};

static void dnnl_kernel_destroy(hn_kernel *kernel) {
    dnnl_kernel *self = (dnnl_kernel *)kernel;
    for (int i = 0; i < self->arg_count; i++)
        if (self->args[i].memory) self->api->dnnl_memory_destroy(self->args[i].memory);
    if (self->primitive) self->api->dnnl_primitive_destroy(self->primitive);
    if (self->exact) self->exact->ops->destroy(self->exact);
    hn_free(self->exact_workspace);
    hn_free(self->scaled.unit);
    cpu_kernel_destroy(kernel);
}

bool dnnl_type_of(hn_dtype dtype, dnnl_data_type_t *out) {
    switch (dtype) {
    case HN_F32: *out = dnnl_f32; return true;
    case HN_BF16: *out = dnnl_bf16; return true;
    case HN_U8: *out = dnnl_u8; return true;
    case HN_I8: *out = dnnl_s8; return true;
    case HN_I32: *out = dnnl_s32; return true;
    default: return false;
    }
}

hn_status dnnl_begin(hone_error *err, cpu_state *cpu, const hn_select *what, dnnl_build *out) {
    memset(out, 0, sizeof *out);
    out->cpu = cpu;
    out->what = what;
    out->kernel = cpu_kernel_new(sizeof *out->kernel, &k_dnnl_ops);
    const hn_dnnl *api = cpu->dnnl;
    if (!out->kernel || api->dnnl_primitive_attr_create(&out->attr) != dnnl_success ||
        api->dnnl_post_ops_create(&out->ops) != dnnl_success) {
        dnnl_abandon(out);
        HN_NOMEM(err, "selecting a kernel");
    }
    api->dnnl_primitive_attr_set_scratchpad_mode(out->attr, dnnl_scratchpad_mode_user);
    out->kernel->api = api;
    out->kernel->stream = cpu->stream;
    out->kernel->cpu = cpu;
    out->kernel->what = *what;
    return HONE_OK;
}

static void drop_builders(dnnl_build *b) {
    const hn_dnnl *api = b->cpu->dnnl;
    if (b->pd) api->dnnl_primitive_desc_destroy(b->pd);
    if (b->ops) api->dnnl_post_ops_destroy(b->ops);
    if (b->attr) api->dnnl_primitive_attr_destroy(b->attr);
    b->pd = NULL;
    b->ops = NULL;
    b->attr = NULL;
    if (b->threads_set) hn_parallel_use(b->threads_before);
    b->threads_set = false;
}

void dnnl_abandon(dnnl_build *b) {
    if (b->kernel) {
        if (!b->kernel->api) b->kernel->api = b->cpu->dnnl;
        dnnl_kernel_destroy(&b->kernel->base);
    }
    b->kernel = NULL;
    drop_builders(b);
}

void dnnl_dense(dnnl_build *b, dnnl_memory_desc_t *md, int rank, const int64_t *dims,
                dnnl_data_type_t type, hn_layout layout) {
    hn_shape shape = {.rank = rank};
    memcpy(shape.dims, dims, (size_t)rank * sizeof *dims);
    int64_t strides[HN_MAX_RANK];
    cpu_strides(&shape, layout, strides);
    dnnl_dims_t d, s;
    for (int i = 0; i < rank; i++) {
        d[i] = dims[i];
        s[i] = strides[i];
    }
    b->cpu->dnnl->dnnl_memory_desc_init_by_strides(md, rank, d, type, s);
}

// Below this a second thread costs more than it saves: a fork and join is about 1 us, one core does
// about 60 GFLOP/s on such small work (2-core AVX-512 machine; docs/notes/cpu-layouts.md).
#define SERIAL_FLOPS 4e5

void dnnl_threads(dnnl_build *b, double flops) {
    int threads = b->what->threads > 0 ? b->what->threads : hn_parallel_threads();
    // Some products split their sums by thread; one thread has one order.
    if (flops < SERIAL_FLOPS || b->what->deterministic) threads = 1;
    int before = hn_parallel_use(threads);
    if (!b->threads_set) b->threads_before = before;
    b->threads_set = true;
}

// ---- posts --------------------------------------------------------------------------------------
static bool eltwise_of(const cpu_state *cpu, const hn_post *post, dnnl_alg_kind_t *alg, float *alpha,
                       float *beta) {
    const cpu_ops *op = &cpu->op;
    *alpha = post->alpha;
    *beta = post->beta;
    if (!post->op) return false;
    if (post->op == op->Relu) {
        *alg = dnnl_eltwise_relu;
        *alpha = 0;
    } else if (post->op == op->LeakyRelu) *alg = dnnl_eltwise_relu;
    else if (post->op == op->Clip) *alg = dnnl_eltwise_clip;
    else if (post->op == op->Sigmoid) *alg = dnnl_eltwise_logistic;
    else if (post->op == op->Tanh) *alg = dnnl_eltwise_tanh;
    else if (post->op == op->Gelu)
        *alg = post->alpha == 1 ? dnnl_eltwise_gelu_tanh : dnnl_eltwise_gelu_erf;
    else if (post->op == op->Swish) *alg = dnnl_eltwise_swish;
    else if (post->op == op->HardSwish) *alg = dnnl_eltwise_hardswish;
    else if (post->op == op->Elu) *alg = dnnl_eltwise_elu;
    else if (post->op == op->Abs) *alg = dnnl_eltwise_abs;
    else if (post->op == op->Sqrt) *alg = dnnl_eltwise_sqrt;
    else if (post->op == op->Exp) *alg = dnnl_eltwise_exp;
    else return false;
    return true;
}

static bool binary_of(const cpu_state *cpu, const hn_post *post, dnnl_alg_kind_t *alg) {
    const cpu_ops *op = &cpu->op;
    if (!post->op) return false;
    if (post->op == op->Add) *alg = dnnl_binary_add;
    else if (post->op == op->Mul) *alg = dnnl_binary_mul;
    else if (post->op == op->Max) *alg = dnnl_binary_max;
    else if (post->op == op->Min) *alg = dnnl_binary_min;
    else if (post->op == op->Sub && !post->swapped) *alg = dnnl_binary_sub;
    else if (post->op == op->Div && !post->swapped) *alg = dnnl_binary_div;
    else return false;
    return true;
}

// The operand of a binary post, as oneDNN shall see it: full shape in the output's layout, one
// number, or one number a channel (dim 1 in channels-last, the last dim of a matrix product).
static bool operand_md(dnnl_build *b, const hn_post *post, const hn_shape *out, hn_layout layout,
                       int rank, const int64_t *dims, dnnl_memory_desc_t *md) {
    cpu_value v;
    if (!cpu_in(b->what->node, post->input, &v) || v.dtype != HN_F32 || post->scale >= 0) return false;
    int channel = layout == HN_LAYOUT_CHANNELS_LAST ? 1 : out->rank - 1;
    int channel_here = layout == HN_LAYOUT_CHANNELS_LAST ? 1 : rank - 1;
    int64_t ones[HN_MAX_RANK];
    for (int i = 0; i < rank; i++)
        ones[i] = 1;
    if (hn_shape_equal(&v.shape, out)) {
        dnnl_dense(b, md, rank, dims, dnnl_f32, layout);
        b->kernel->base.in_layout[post->input] = layout;
        return true;
    }
    if (v.count == 1) {
        dnnl_dense(b, md, rank, ones, dnnl_f32, HN_LAYOUT_PLAIN);
        return true;
    }
    int64_t size = out->dims[channel];
    int at = channel - (out->rank - v.shape.rank); // the channel's place in the operand
    if (at >= 0 && at < v.shape.rank && v.shape.dims[at] == size && v.count == size) {
        ones[channel_here] = size;
        dnnl_dense(b, md, rank, ones, dnnl_f32, HN_LAYOUT_PLAIN);
        return true;
    }
    return false;
}

bool dnnl_append_eltwise(dnnl_build *b, dnnl_alg_kind_t alg, float alpha, float beta) {
    for (int i = 0; i < b->used_count; i++)
        if (b->used[i].alg == alg && (b->used[i].alpha != alpha || b->used[i].beta != beta)) return false;
    if (b->used_count == (int)HN_COUNT_OF(b->used)) return false;
    if (b->cpu->dnnl->dnnl_post_ops_append_eltwise(b->ops, 1.f, alg, alpha, beta) != dnnl_success)
        return false;
    b->used[b->used_count++] = (struct dnnl_eltwise_used){alg, alpha, beta};
    b->op_count++;
    return true;
}

static bool append_operand(dnnl_build *b, dnnl_alg_kind_t alg, const dnnl_memory_desc_t *md,
                           dnnl_source source, int input) {
    if (b->binary_count == (int)HN_COUNT_OF(b->binary_md)) return false;
    if (b->cpu->dnnl->dnnl_post_ops_append_binary(b->ops, alg, md) != dnnl_success) return false;
    b->binary_md[b->binary_count] = *md;
    b->binary_source[b->binary_count] = source;
    b->binary_input[b->binary_count] = input;
    b->binary_at[b->binary_count++] = b->op_count++;
    return true;
}

bool dnnl_append_made(dnnl_build *b, dnnl_alg_kind_t alg, const dnnl_memory_desc_t *md, dnnl_source source) {
    return append_operand(b, alg, md, source, 0);
}

bool dnnl_append_binary(dnnl_build *b, dnnl_alg_kind_t alg, const dnnl_memory_desc_t *md, int input) {
    return append_operand(b, alg, md, DNNL_FROM_INPUT, input);
}

bool dnnl_drops_nan(dnnl_build *b, bool drops) {
    if (b->no_nan) return true;
    if (drops && b->what->keep_nan) return false;
    b->kernel->drops_nan = b->kernel->drops_nan || drops;
    return true;
}

bool dnnl_post_step(dnnl_build *b, const hn_post *post, const hn_shape *out, hn_layout layout,
                    int rank, const int64_t *dims) {
    dnnl_alg_kind_t alg;
    float alpha = 0, beta = 0;
    dnnl_memory_desc_t md;
    bool binary = post->input >= 0;
    if (binary ? !binary_of(b->cpu, post, &alg) : !eltwise_of(b->cpu, post, &alg, &alpha, &beta))
        return false;
    // A leaky Relu is a product on one side and lets NaN through.
    bool drops = alg == dnnl_binary_max || alg == dnnl_binary_min || alg == dnnl_eltwise_clip ||
                 (alg == dnnl_eltwise_relu && alpha == 0);
    if (!dnnl_drops_nan(b, drops)) return false;
    if (!binary) return dnnl_append_eltwise(b, alg, alpha, beta);
    if (!operand_md(b, post, out, layout, rank, dims, &md)) return false;
    for (int i = 2; b->no_spatial_operands && i < md.ndims; i++)
        if (md.dims[i] != 1) return false;
    return dnnl_append_binary(b, alg, &md, post->input);
}

// With AVX-512 our own pass over the result takes 0.38 ns an element for Swish, oneDNN's post-op 0.55:
// yolox-nano 22.0 to 17.7 ms.
static bool ours_is_faster(const cpu_state *cpu, hn_op op) {
    return cpu->isa >= HN_ISA_AVX512 && op && (op == cpu->op.Swish || op == cpu->op.Sigmoid);
}

void dnnl_posts(dnnl_build *b, const hn_shape *out, hn_layout layout, int rank,
                const int64_t *dims) {
    const hn_node *node = b->what->node;
    while (b->fused < node->post_count && !ours_is_faster(b->cpu, node->post[b->fused].op) &&
           dnnl_post_step(b, &node->post[b->fused], out, layout, rank, dims))
        b->fused++;
}

// ---- primitives ---------------------------------------------------------------------------------
hn_status dnnl_make(hone_error *err, dnnl_build *b, const void *op_desc) {
    const hn_dnnl *api = b->cpu->dnnl;
    api->dnnl_primitive_attr_set_post_ops(b->attr, b->ops);
    int status = api->dnnl_primitive_desc_create(&b->pd, op_desc, b->attr, b->cpu->engine, NULL);
    if (status == dnnl_unimplemented || status == dnnl_invalid_arguments) return HONE_ERR_UNSUPPORTED;
    if (status != dnnl_success)
        HN_FAIL_VENDOR(err, hn_dnnl_status(status), status, "oneDNN could not prepare a kernel: %s",
                       hn_dnnl_status_text(status));
    const char *name = "dnnl";
    api->dnnl_primitive_desc_query(b->pd, dnnl_query_impl_info_str, 0, (void *)&name);
    // The implementation names are static text inside the library.
    b->kernel->base.variant = name;
    if (!strncmp(name, "ref", 3)) return HONE_ERR_UNSUPPORTED;
    status = api->dnnl_primitive_create(&b->kernel->primitive, b->pd);
    if (status != dnnl_success)
        HN_FAIL_VENDOR(err, hn_dnnl_status(status), status, "oneDNN could not make a kernel: %s",
                       hn_dnnl_status_text(status));
    return HONE_OK;
}

hn_status dnnl_arg(hone_error *err, dnnl_build *b, int arg, const dnnl_memory_desc_t *md,
                   dnnl_source source, int index) {
    dnnl_kernel *k = b->kernel;
    if (k->arg_count == DNNL_MAX_ARGS) return HONE_ERR_UNSUPPORTED;
    int at = k->arg_count;
    k->args[at].arg = arg;
    if (b->cpu->dnnl->dnnl_memory_create(&k->args[at].memory, md, b->cpu->engine,
                                         DNNL_MEMORY_NONE) != dnnl_success)
        HN_NOMEM(err, "selecting a kernel");
    k->source[at] = source;
    k->index[at] = index;
    k->arg_count++;
    return HONE_OK;
}

hn_status dnnl_arg_narrow(hone_error *err, dnnl_build *b, const dnnl_memory_desc_t *md, int64_t count) {
    b->kernel->narrow_count = count;
    b->kernel->quant = b->cpu->quant;
    b->kernel->threads = b->what->threads > 0 ? b->what->threads : b->threads_before;
    return dnnl_arg(err, b, DNNL_ARG_SRC, md, DNNL_FROM_NARROW, 0);
}

static hn_status pack(hone_error *err, dnnl_build *b, const dnnl_memory_desc_t *from,
                      const void *data, const dnnl_memory_desc_t *to, void *packed) {
    const hn_dnnl *api = b->cpu->dnnl;
    dnnl_primitive_desc_t pd = NULL;
    dnnl_primitive_t p = NULL;
    dnnl_memory_t in = NULL, out = NULL;
    int status = api->dnnl_reorder_primitive_desc_create(&pd, from, b->cpu->engine, to,
                                                         b->cpu->engine, NULL);
    if (status == dnnl_success) status = api->dnnl_primitive_create(&p, pd);
    if (status == dnnl_success)
        status = api->dnnl_memory_create(&in, from, b->cpu->engine, (void *)(uintptr_t)data);
    if (status == dnnl_success) status = api->dnnl_memory_create(&out, to, b->cpu->engine, packed);
    if (status == dnnl_success) {
        dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, in}, {DNNL_ARG_TO, out}};
        status = api->dnnl_primitive_execute(p, b->cpu->stream, 2, args);
    }
    if (in) api->dnnl_memory_destroy(in);
    if (out) api->dnnl_memory_destroy(out);
    if (p) api->dnnl_primitive_destroy(p);
    if (pd) api->dnnl_primitive_desc_destroy(pd);
    if (status == dnnl_unimplemented) return HONE_ERR_UNSUPPORTED;
    if (status != dnnl_success)
        HN_FAIL_VENDOR(err, hn_dnnl_status(status), status, "oneDNN could not pack weights: %s",
                       hn_dnnl_status_text(status));
    return HONE_OK;
}

// A descriptor as text. What is blocked is told in full; other kinds are libraries' secrets and told
// by their bytes.
static void md_text(hn_str *out, const dnnl_memory_desc_t *md) {
    hn_str_printf(out, "type %d offset %lld dims", (int)md->data_type, (long long)md->offset0);
    for (int i = 0; i < md->ndims; i++)
        hn_str_printf(out, " %lld/%lld/%lld", (long long)md->dims[i], (long long)md->padded_dims[i],
                      (long long)md->padded_offsets[i]);
    if (md->format_kind == dnnl_blocked) {
        const dnnl_blocking_desc_t *blocking = &md->format_desc.blocking;
        hn_str_append(out, " strides");
        for (int i = 0; i < md->ndims; i++)
            hn_str_printf(out, " %lld", (long long)blocking->strides[i]);
        for (int i = 0; i < blocking->inner_nblks; i++)
            hn_str_printf(out, " %lldx%lld", (long long)blocking->inner_blks[i],
                          (long long)blocking->inner_idxs[i]);
    } else {
        hn_str_printf(out, " kind %d ", (int)md->format_kind);
        const unsigned char *raw = (const unsigned char *)&md->format_desc;
        for (size_t i = 0; i < sizeof md->format_desc; i++)
            hn_str_printf(out, "%02x", raw[i]);
    }
    if (md->extra.flags)
        hn_str_printf(out, " extra %llx %x %a %x", (unsigned long long)md->extra.flags,
                      (unsigned)md->extra.compensation_mask, (double)md->extra.scale_adjust,
                      (unsigned)md->extra.asymm_compensation_mask);
}

typedef struct pack_job {
    dnnl_build *b;
    const dnnl_memory_desc_t *from, *to;
    const void *data;
} pack_job;

static hone_status pack_form(hone_error *err, void *user, void *out) {
    const pack_job *job = user;
    return pack(err, job->b, job->from, job->data, job->to, out);
}

hn_status dnnl_arg_packed(hone_error *err, dnnl_build *b, int arg, const dnnl_memory_desc_t *from,
                          hn_prepared_source data, bool lasting, const dnnl_memory_desc_t *to) {
    HN_TRY(dnnl_arg(err, b, arg, to, DNNL_FROM_OWN, -1));
    const hn_dnnl *api = b->cpu->dnnl;
    void *packed = (void *)(uintptr_t)data.data;
    if (!lasting || (uintptr_t)packed % HN_ALIGN || !api->dnnl_memory_desc_equal(from, to)) {
        hn_str form = {0};
        md_text(&form, from);
        hn_str_append(&form, " -> ");
        md_text(&form, to);
        pack_job job = {b, from, to, data.data};
        hn_prepared_ask ask = {.kind = "cpu weights",
                               .threads = to->format_kind == dnnl_blocked ? 0 : hn_parallel_threads(),
                               .form = hn_str_get(&form),
                               .source = {data},
                               .bytes = api->dnnl_memory_desc_get_size(to),
                               .make = pack_form,
                               .user = &job};
        hn_prepared *prepared = NULL;
        hone_status status = HONE_OK;
        if (form.failed) status = HN_SET(err, HONE_ERR_NOMEM, "out of memory (packing weights)");
        else status = cpu_prepare(err, b->what, &b->kernel->base, &ask, &prepared);
        hn_str_free(&form);
        HN_TRY(status);
        packed = (void *)(uintptr_t)hn_prepared_data(prepared);
    }
    if (api->dnnl_memory_set_data_handle(b->kernel->args[b->kernel->arg_count - 1].memory, packed) !=
        dnnl_success)
        HN_FAIL(err, HONE_ERR_INTERNAL, "oneDNN refused packed weights");
    return HONE_OK;
}

hn_status dnnl_finish(hone_error *err, dnnl_build *b, const hn_shape *out, hn_layout layout,
                      hn_kernel **out_kernel) {
    const hn_dnnl *api = b->cpu->dnnl;
    dnnl_kernel *k = b->kernel;
    for (int i = 0; i < b->binary_count; i++)
        HN_TRY(dnnl_arg(err, b, DNNL_ARG_ATTR_MULTIPLE_POST_OP(b->binary_at[i]) | DNNL_ARG_SRC_1,
                        &b->binary_md[i], b->binary_source[i], b->binary_input[i]));
    const dnnl_memory_desc_t *scratch =
        api->dnnl_primitive_desc_query_md(b->pd, dnnl_query_scratchpad_md, 0);
    size_t bytes = scratch ? api->dnnl_memory_desc_get_size(scratch) : 0;
    if (bytes) {
        HN_TRY(dnnl_arg(err, b, DNNL_ARG_SCRATCHPAD, scratch, DNNL_FROM_WORKSPACE, 0));
        k->base.workspace_bytes = bytes;
    }
    if (k->narrow_count) {
        k->narrow_offset = (k->base.workspace_bytes + 63) / 64 * 64;
        k->base.workspace_bytes = k->narrow_offset + (size_t)k->narrow_count * sizeof(uint16_t);
    }
    if (k->scaled.channels) {
        k->scaled.offset = (k->base.workspace_bytes + 63) / 64 * 64;
        k->base.workspace_bytes = k->scaled.offset + 2 * (size_t)k->scaled.channels * sizeof(float);
    }
    if (b->fused < b->what->node->post_count &&
        !cpu_posts_init(b->cpu, b->what, b->fused, out, layout, &k->base, &k->posts))
        return HONE_ERR_UNSUPPORTED;
    drop_builders(b);
    b->kernel = NULL;
    *out_kernel = &k->base;
    return HONE_OK;
}
