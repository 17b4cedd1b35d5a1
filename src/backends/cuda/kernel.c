// SPDX-License-Identifier: Apache-2.0
// Kernel objects: a library's call and a list of launches with their arguments worked out.
#include "backends/cuda/cuda_int.h"

void *cuda_arg_pointer(const cuda_arg *arg, const hn_args *args) {
    char *base = arg->kind == CUDA_ARG_INPUT    ? args->inputs[arg->index]
                 : arg->kind == CUDA_ARG_OUTPUT ? args->outputs[arg->index]
                 : arg->kind == CUDA_ARG_MEMORY ? cuda_pointer(arg->value)
                                                : args->workspace;
    return base ? base + arg->offset : NULL;
}

static hn_status start(hone_error *err, cuda_device *d, const cuda_launch *l, const hn_args *args) {
    void *values[CUDA_MAX_ARGS], *list[CUDA_MAX_ARGS + 1];
    for (int i = 0; i < l->arg_count; i++) {
        values[i] = l->args[i].kind == CUDA_ARG_I64 ? (void *)(uintptr_t)l->args[i].value : cuda_arg_pointer(&l->args[i], args);
        list[i] = &values[i];
    }
    list[l->arg_count] = (void *)(uintptr_t)l->params;
    return cuda_check(err, d,
                      d->api->cuLaunchKernel(l->function.handle, l->grid[0], l->grid[1], l->grid[2], l->block[0], l->block[1],
                                             l->block[2], l->shared_bytes, d->stream, list, NULL),
                      "starting a kernel");
}

// A kernel of a library may begin before the one ahead of it in the stream has ended (see whole_edges in cuda.c);
// not across an event.
static hn_status fence(hone_error *err, cuda_device *d) {
    if (d->recording) return HONE_OK;
    if (!d->fence) CUDA_TRY(err, d, d->api->cuEventCreate(&d->fence, HN_CU_EVENT_NO_TIMING), "ordering kernels");
    return cuda_check(err, d, d->api->cuEventRecord(d->fence, d->stream), "ordering kernels");
}

static hone_status kernel_run(hone_error *err, hn_kernel *kernel, const hn_args *args) {
    cuda_kernel *k = (cuda_kernel *)kernel;
    cuda_device *d = k->device;
    if (d->lost) return cuda_current(err, d);
    d->last_kernel = kernel->variant;
    memcpy(d->last_node, k->label, sizeof d->last_node);
    for (size_t i = 0; i <= k->launches.count; i++) {
        if (i == k->before && k->call) {
            HN_TRY(fence(err, d));
            HN_TRY(k->call(err, k, args));
            HN_TRY(fence(err, d));
        }
        if (i < k->launches.count) HN_TRY(start(err, d, &k->launches.data[i], args));
    }
    return HONE_OK;
}

static void kernel_destroy(hn_kernel *kernel) { cuda_kernel_free((cuda_kernel *)kernel); }
static const hn_kernel_ops k_ops = {sizeof(hn_kernel_ops), NULL, kernel_run, kernel_destroy, NULL};

cuda_kernel *cuda_kernel_new(cuda_device *d, const hn_node *node) {
    cuda_kernel *k = hn_calloc(1, sizeof *k);
    if (!k) return NULL;
    k->base.ops = &k_ops;
    k->base.on_device = true;
    k->base.inplace_input[0] = k->base.inplace_input[1] = -1;
    k->device = d;
    if (node) hn_node_label(node, k->label, sizeof k->label);
    for (int i = 0; i < HN_MAX_KERNEL_IO; i++)
        k->base.in_layout[i] = k->base.out_layout[i] = CUDA_PLAIN;
    return k;
}

void cuda_kernel_free(cuda_kernel *k) {
    if (!k) return;
    if (k->call_free) k->call_free(k);
    for (size_t i = 0; i < k->constants.count; i++)
        cuda_const_drop(k->device, k->constants.data[i]);
    for (size_t i = 0; i < k->params.count; i++)
        hn_free(k->params.data[i]);
    hn_vec_free(&k->params);
    hn_vec_free(&k->constants);
    hn_vec_free(&k->launches);
    hn_free(k);
}

hn_status cuda_kernel_hold(hone_error *err, cuda_kernel *k, cuda_const *constant) {
    if (hn_vec_push(&k->constants, constant)) {
        k->base.own_bytes += constant->bytes;
        return HONE_OK;
    }
    cuda_const_drop(k->device, constant);
    HN_NOMEM(err, "selecting a kernel");
}

hn_status cuda_kernel_input(hone_error *err, cuda_kernel *k, const hn_node *node, int index, cuda_arg *out_arg) {
    const hn_value *value = node->inputs[index];
    *out_arg = (cuda_arg){CUDA_ARG_INPUT, index, 0, 0};
    if (!value->constant) return HONE_OK;
    if (!k->input_const[index]) {
        cuda_const *c;
        HN_TRY(cuda_const_get(err, k->device, value->constant->data, value->constant->bytes, &c));
        HN_TRY(cuda_kernel_hold(err, k, c));
        k->input_const[index] = c;
        k->base.consumed |= 1ull << index;
    }
    *out_arg = cuda_arg_memory(k->input_const[index]->memory);
    return HONE_OK;
}

hn_status cuda_kernel_launch(hone_error *err, cuda_kernel *k, const cuda_launch *launch) {
    cuda_launch own = *launch;
    if (launch->params) {
        void *params = hn_malloc(launch->param_bytes);
        if (!params || !hn_vec_push(&k->params, params)) {
            hn_free(params);
            HN_NOMEM(err, "selecting a kernel");
        }
        memcpy(params, launch->params, launch->param_bytes);
        own.params = params;
    }
    if (!hn_vec_push(&k->launches, own)) HN_NOMEM(err, "selecting a kernel");
    return HONE_OK;
}

void cuda_launch_1d(cuda_launch *launch, int64_t items, int block) {
    int64_t blocks = (items + block - 1) / block;
    launch->grid[0] = (unsigned)(blocks < 1 ? 1 : blocks);
    launch->grid[1] = launch->grid[2] = 1;
    launch->block[0] = (unsigned)block;
    launch->block[1] = launch->block[2] = 1;
}

hn_status cuda_kernel_done(hone_status status, cuda_kernel *k, hn_kernel **out_kernel) {
    if (status != HONE_OK) {
        cuda_kernel_free(k);
        return status;
    }
    *out_kernel = &k->base;
    return HONE_OK;
}
