// SPDX-License-Identifier: Apache-2.0
// Sessions: input checks, the plan cache, statistics, observation.
#include "config/config.h"
#include "plan/plan_int.h"
#include <stdio.h>

// An optimised file may say how many threads were best; that holds for machines with as many.
static int threads_for(const hn_module *module) {
    const char *hint = hn_module_meta(module, HN_HINT_THREADS);
    int best, of, here = hn_parallel_threads();
    return hint && sscanf(hint, "%d of %d", &best, &of) == 2 && of == here && best >= 1 && best <= here
               ? best
               : here;
}

static hn_status make_session(hone_error *err, const hn_module *module,
                              const hn_session_options *options, hn_session **out_session) {
    if (!options || !options->backend)
        HN_FAIL(err, HONE_ERR_INTERNAL, "a session needs a backend");
    hn_session *session = hn_calloc(1, sizeof *session);
    if (!session) HN_NOMEM(err, "making a session");
    session->module = module;
    session->options = *options;
    if (!session->options.threads) session->options.threads = threads_for(module);
    session->options.tf32 = options->tf32 || hn_module_meta(module, HN_HINT_TF32) != NULL;
    if (!session->options.plan_cache_bytes)
        session->options.plan_cache_bytes = hn_config_get()->plan_cache_bytes;
    *out_session = session;
    return HONE_OK;
}

// The rewrites that do not depend on shapes are made once, on a copy that shares the weights.
static hn_status prepare(hone_error *err, hn_session *session) {
    session->prepared = hn_module_clone(session->module, NULL);
    if (!session->prepared) HN_NOMEM(err, "making a session");
    hn_pass_options options = {.disable = session->options.disable_passes, .expand_storage = true};
    HN_TRY(hn_passes_run(err, session->prepared, HN_PASS_PORTABLE, &options));
    session->module = session->prepared;
    return HONE_OK;
}

hn_status hn_session_new(hone_error *err, const hn_module *module,
                         const hn_session_options *options, hn_session **out_session) {
    hn_session *session = NULL;
    HN_TRY(make_session(err, module, options, &session));
    hone_status status = options->no_device_passes ? HONE_OK : prepare(err, session);
    if (status != HONE_OK) {
        hn_session_free(session);
        return status;
    }
    *out_session = session;
    return HONE_OK;
}

hn_status hn_session_new_part(hone_error *err, const hn_module *module, const hn_session *parent,
                              hn_session **out_session) {
    HN_TRY(make_session(err, module, &parent->options, out_session));
    (*out_session)->depth = parent->depth + 1;
    return HONE_OK;
}

hn_status hn_session_new_resident(hone_error *err, const hn_session *session, int resident, hn_session **out_session) {
    hn_session_options options = session->options;
    options.resident = resident;
    return make_session(err, session->module, &options, out_session);
}

void hn_session_free(hn_session *session) {
    if (!session) return;
    for (hn_plan *plan = session->plans, *next; plan; plan = next) {
        next = plan->next;
        hn_plan_free(session, plan);
    }
    hn_module_free(session->prepared);
    hn_free(session);
}

// ---- inputs -------------------------------------------------------------------------------------
typedef struct binding {
    hn_dim symbol;
    int64_t value;
} binding;

static hn_status check_dim(hone_error *err, const hn_session *session, const hn_value *value,
                           int axis, int64_t given, binding *bound, int *bound_count) {
    hn_dim dim = value->type.dims[axis];
    if (hn_dim_is_const(dim)) {
        if (dim == given) return HONE_OK;
        HN_FAIL(err, HONE_ERR_INPUT, "input '%s': axis %d is %lld where the model has %lld",
                value->name, axis, (long long)given, (long long)dim);
    }
    const char *name = hn_dim_symbol_name(session->module->dims, dim);
    if (!*name) return HONE_OK;
    for (int i = 0; i < *bound_count; i++) {
        if (bound[i].symbol != dim) continue;
        if (bound[i].value == given) return HONE_OK;
        HN_FAIL(err, HONE_ERR_INPUT, "input '%s': axis %d is %lld, but '%s' is %lld elsewhere",
                value->name, axis, (long long)given, name, (long long)bound[i].value);
    }
    if (*bound_count < 32) bound[(*bound_count)++] = (binding){dim, given};
    return HONE_OK;
}

static hn_status check_inputs(hone_error *err, const hn_session *session, const hn_tensor *inputs,
                              int input_count, bool need_data) {
    const hn_graph *main = session->module->main;
    int least = (int)main->inputs.count, most = least + (int)main->overridables.count;
    if (input_count < least || input_count > most)
        HN_FAIL(err, HONE_ERR_INPUT, "%d inputs are given where the model has %d", input_count, least);
    binding bound[32];
    int bound_count = 0;
    for (int i = 0; i < input_count; i++) {
        const hn_value *value = i < least ? main->inputs.data[i] : main->overridables.data[i - least];
        const hn_tensor *given = &inputs[i];
        if (value->type.dtype != HN_NONE && given->dtype != value->type.dtype)
            HN_FAIL(err, HONE_ERR_INPUT, "input '%s' has type %s where the model has %s",
                    value->name, hn_dtype_name(given->dtype), hn_dtype_name(value->type.dtype));
        if (value->type.rank >= 0 && given->shape.rank != value->type.rank)
            HN_FAIL(err, HONE_ERR_INPUT, "input '%s' has rank %d where the model has %d",
                    value->name, given->shape.rank, value->type.rank);
        for (int axis = 0; axis < value->type.rank; axis++)
            HN_TRY(check_dim(err, session, value, axis, given->shape.dims[axis], bound,
                             &bound_count));
        if (need_data && !given->data && given->bytes)
            HN_FAIL(err, HONE_ERR_INPUT, "input '%s' has no data", value->name);
    }
    return HONE_OK;
}

// ---- the plan cache -----------------------------------------------------------------------------
static bool key_matches(const hn_plan *plan, const hn_tensor *inputs, int input_count) {
    if (plan->key_count != input_count) return false;
    for (int i = 0; i < input_count; i++)
        if (plan->key_dtypes[i] != inputs[i].dtype ||
            !hn_shape_equal(&plan->key_shapes[i], &inputs[i].shape))
            return false;
    return true;
}

// Bytes that a plan adds to those whose prepared forms are in `seen`.
static size_t all_bytes(const hn_plan *plan, hn_prepared_set *seen) {
    size_t bytes = plan->slab_bytes + plan->host_slab_bytes + hn_plan_prepared_bytes(plan, seen);
    for (const hn_plan *tail = plan->tail ? plan->tail->plans : NULL; tail; tail = tail->next)
        bytes += all_bytes(tail, seen);
    for (int k = 0; k < plan->barrier_count; k++)
        for (int g = 0; g < 2; g++)
            for (const hn_plan *branch =
                     plan->barriers[k].branches[g] ? plan->barriers[k].branches[g]->plans : NULL;
                 branch; branch = branch->next)
                bytes += all_bytes(branch, seen);
    return bytes;
}

// Drops the least recently used plans beyond the bound; the newest always stays.
static void trim(hn_session *session) {
    size_t bytes = 0;
    hn_prepared_set seen = {0};
    for (hn_plan *plan = session->plans, *previous = NULL; plan; plan = plan->next) {
        bytes += all_bytes(plan, &seen);
        if (previous && bytes > (size_t)session->options.plan_cache_bytes) {
            previous->next = NULL;
            for (hn_plan *old = plan, *next; old; old = next) {
                next = old->next;
                hn_plan_free(session, old);
            }
            break;
        }
        previous = plan;
    }
    hn_prepared_set_free(&seen);
}

static hn_status find_plan(hone_error *err, hn_session *session, const hn_tensor *inputs,
                           int input_count, hn_plan **out_plan) {
    for (hn_plan *plan = session->plans, *previous = NULL; plan; plan = plan->next) {
        if (key_matches(plan, inputs, input_count)) {
            if (previous) { // to the front
                previous->next = plan->next;
                plan->next = session->plans;
                session->plans = plan;
            }
            *out_plan = plan;
            return HONE_OK;
        }
        previous = plan;
    }
    int64_t start = hn_clock_ns();
    hn_plan *plan;
    HN_TRY(hn_plan_new(err, session, inputs, input_count, &plan));
    plan->next = session->plans;
    session->plans = plan;
    session->plan_ns += hn_clock_ns() - start;
    trim(session);
    *out_plan = plan;
    return HONE_OK;
}

static hn_status prepare_plan(hone_error *err, hn_session *session, const hn_tensor *inputs,
                              int input_count) {
    hn_plan *plan;
    HN_TRY(check_inputs(err, session, inputs, input_count, false));
    return find_plan(err, session, inputs, input_count, &plan);
}

hn_status hn_session_prepare(hone_error *err, hn_session *session, const hn_tensor *inputs,
                             int input_count) {
    int before = hn_parallel_use(session->options.threads);
    hone_status status = prepare_plan(err, session, inputs, input_count);
    hn_parallel_use(before);
    return status;
}

static hn_status plan_and_run(hone_error *err, hn_session *session, const hn_tensor *inputs,
                              int input_count, hn_tensor *outputs) {
    // The plan used last has been checked against these very shapes.
    hn_plan *plan = session->plans;
    if (!plan || !key_matches(plan, inputs, input_count)) {
        HN_TRY(check_inputs(err, session, inputs, input_count, true));
        HN_TRY(find_plan(err, session, inputs, input_count, &plan));
    }
    session->runs++;
    return hn_plan_run(err, session, plan, inputs, outputs);
}

hn_status hn_session_run(hone_error *err, hn_session *session, const hn_tensor *inputs,
                         int input_count, hn_tensor *outputs, int output_count) {
    int wanted = (int)session->module->main->outputs.count;
    if (output_count != wanted)
        HN_FAIL(err, HONE_ERR_USAGE, "room for %d outputs is given where the model has %d",
                output_count, wanted);
    int before = hn_parallel_use(session->options.threads);
    hone_status status = plan_and_run(err, session, inputs, input_count, outputs);
    hn_parallel_use(before);
    return status;
}

hn_status hn_session_fetch(hone_error *err, hn_session *session) {
    return session->plans ? hn_plan_fetch(err, session, session->plans) : HONE_OK;
}

// ---- what a session says of itself --------------------------------------------------------------
static size_t constant_bytes(const hn_graph *graph) {
    size_t bytes = 0;
    for (size_t i = 0; i < graph->values.count; i++)
        if (graph->values.data[i]->constant) bytes += graph->values.data[i]->constant->bytes;
    for (const hn_node *node = graph->first; node; node = node->next)
        for (int i = 0; i < node->attr_count; i++)
            if (node->attrs[i].type == HN_ATTR_GRAPH) bytes += constant_bytes(node->attrs[i].graph);
    return bytes;
}

static bool is_heavy(const hn_step *step) {
    return step->node && hn_op_has(step->node->op, HN_T_MATMUL);
}

static void count_session(const hn_session *session, hn_session_stats *stats, hn_prepared_set *seen) {
    for (const hn_plan *plan = session->plans; plan; plan = plan->next) {
        stats->slab_bytes += plan->slab_bytes + plan->host_slab_bytes;
        stats->prepacked_bytes += hn_plan_prepared_bytes(plan, seen);
        stats->workspace_bytes += plan->workspace_bytes;
        stats->plans++;
        bool newest = plan == session->plans;
        for (size_t s = 0; newest && s < plan->steps.count; s++) {
            const hn_step *step = &plan->steps.data[s];
            stats->steps++;
            stats->reorder_steps += !step->node;
            stats->reference_steps += step->kernel->is_reference;
            stats->heavy_steps += is_heavy(step);
            stats->heavy_reference_steps += is_heavy(step) && step->kernel->is_reference;
            stats->transfer_steps += step->is_transfer;
        }
        for (size_t i = 0; newest && i < plan->segments.count; i++) {
            const hn_segment *segment = &plan->segments.data[i];
            *(segment->on_device ? &stats->device_steps : &stats->host_steps) += segment->end - segment->first;
            stats->recorded_segments += segment->record != NULL;
        }
        if (newest) stats->barriers += plan->barrier_count;
        if (plan->tail) count_session(plan->tail, stats, seen);
        for (int k = 0; k < plan->barrier_count; k++)
            for (int g = 0; g < 2; g++)
                if (plan->barriers[k].branches[g])
                    count_session(plan->barriers[k].branches[g], stats, seen);
    }
    stats->plan_ns += session->plan_ns;
}

void hn_session_get_stats(const hn_session *session, hn_session_stats *out_stats) {
    hn_session_stats stats = {.weight_bytes = constant_bytes(session->module->main)};
    hn_prepared_set seen = {0};
    count_session(session, &stats, &seen);
    hn_prepared_set_free(&seen);
    *out_stats = stats;
}

static int list_steps(const hn_session *session, hn_step_info *out, int max, int count) {
    const hn_plan *plan = session->plans;
    if (!plan) return count;
    for (size_t s = 0; s < plan->steps.count; s++, count++) {
        const hn_step *step = &plan->steps.data[s];
        if (count >= max) continue;
        out[count] = (hn_step_info){.op_type = step->node ? step->node->op_type : "Reorder",
                                    .name = step->node ? step->node->name : "",
                                    .variant = step->kernel->variant,
                                    .node = step->node,
                                    .is_reference = step->kernel->is_reference,
                                    .on_device = step->kernel->on_device,
                                    .in_layout = step->kernel->in_layout,
                                    .out_layout = step->kernel->out_layout,
                                    .total_ns = step->total_ns,
                                    .runs = step->runs};
        if (step->node) hn_node_cost(step->node, &out[count].cost);
    }
    for (int k = 0; k < plan->barrier_count; k++)
        for (int g = 0; g < 2; g++)
            if (plan->barriers[k].branches[g])
                count = list_steps(plan->barriers[k].branches[g], out, max, count);
    return plan->tail ? list_steps(plan->tail, out, max, count) : count;
}

int hn_session_steps(const hn_session *session, hn_step_info *out_steps, int max) {
    return list_steps(session, out_steps, max, 0);
}

void hn_session_reset_profile(hn_session *session) {
    for (hn_plan *plan = session->plans; plan; plan = plan->next) {
        for (size_t s = 0; s < plan->steps.count; s++) {
            plan->steps.data[s].total_ns = 0;
            plan->steps.data[s].runs = 0;
        }
        if (plan->tail) hn_session_reset_profile(plan->tail);
        for (int k = 0; k < plan->barrier_count; k++)
            for (int g = 0; g < 2; g++)
                if (plan->barriers[k].branches[g])
                    hn_session_reset_profile(plan->barriers[k].branches[g]);
    }
}

// ---- observation --------------------------------------------------------------------------------
typedef struct observer {
    hn_session *session;
    hn_observe_fn fn;
    void *user;
} observer;

// A layout change of one value, done now; device copies are waited for.
static hn_status change(hone_error *err, hn_backend *backend, const hn_type *type, hn_layout from, hn_layout to,
                        const hn_tensor *in, hn_tensor *out) {
    hn_kernel *kernel;
    HN_TRY(backend->reorder(err, backend, type, from, to, &kernel));
    void *workspace = kernel->workspace_bytes ? hn_malloc_aligned(kernel->workspace_bytes) : NULL;
    void *inputs[] = {in->data}, *outputs[] = {out->data};
    hn_args args = {inputs, outputs, workspace};
    hone_status status = HONE_OK;
    if (kernel->workspace_bytes && !workspace) status = HN_SET(err, HONE_ERR_NOMEM, "out of memory (observing)");
    if (status == HONE_OK && kernel->ops->bind) status = kernel->ops->bind(err, kernel, &args);
    if (status == HONE_OK) status = kernel->ops->run(err, kernel, &args);
    if (status == HONE_OK && backend->sync) status = backend->sync(err, backend);
    hn_free(workspace);
    kernel->ops->destroy(kernel);
    return status;
}

// Hands one output of a step over in plain layout, from a device by way of the host's same order.
static hn_status show_output(hone_error *err, const observer *o, const hn_step *step, int index) {
    hn_backend *backend = o->session->options.backend;
    const hn_value *value = step->node->outputs[index];
    hn_layout layout = step->kernel->out_layout[index];
    hn_tensor tensor = {.dtype = value->type.dtype, .data = step->args.outputs[index]}, host = {0}, plain = {0};
    if (!tensor.data || !hn_type_shape(&value->type, &tensor.shape) ||
        !hn_shape_bytes(&tensor.shape, tensor.dtype, &tensor.bytes))
        return HONE_OK;
    hone_status status = HONE_OK;
    if (tensor.bytes && backend->on_device && backend->on_device(backend, layout)) {
        status = hn_tensor_new(err, tensor.dtype, &tensor.shape, &host);
        if (status == HONE_OK) status = change(err, backend, &value->type, layout, backend->host_of(backend, layout), &tensor, &host);
        layout = backend->host_of(backend, layout);
        tensor.data = host.data;
    }
    if (status == HONE_OK && layout != HN_LAYOUT_PLAIN) {
        status = hn_tensor_new(err, tensor.dtype, &tensor.shape, &plain);
        if (status == HONE_OK) status = change(err, backend, &value->type, layout, HN_LAYOUT_PLAIN, &tensor, &plain);
        tensor.data = plain.data;
    }
    if (status == HONE_OK) status = o->fn(o->user, step->node, index, &tensor);
    hn_tensor_free(&host);
    hn_tensor_free(&plain);
    return status;
}

// On a device every step is waited for before its values are fetched.
static hn_status observe_step(hone_error *err, const observer *o, hn_step *step) {
    hn_backend *backend = o->session->options.backend;
    if (step->kernel->ops->stage) HN_TRY(step->kernel->ops->stage(err, step->kernel, &step->args));
    HN_TRY(step->kernel->ops->run(err, step->kernel, &step->args));
    if (step->kernel->on_device && (!step->node || step->is_transfer)) HN_TRY(backend->sync(err, backend));
    for (int i = 0; step->node && i < step->node->output_count; i++)
        if (step->node->outputs[i]) HN_TRY(show_output(err, o, step, i));
    return HONE_OK;
}

static hn_status observe(hone_error *err, hn_session *session, const hn_tensor *inputs,
                         int input_count, hn_observe_fn fn, void *user) {
    HN_TRY(check_inputs(err, session, inputs, input_count, true));
    hn_plan *plan;
    HN_TRY(find_plan(err, session, inputs, input_count, &plan));
    observer o = {session, fn, user};
    for (size_t i = 0; i < plan->patches.count; i++)
        *plan->patches.data[i].where = inputs[plan->patches.data[i].input_index].data;
    for (size_t s = 0; s < plan->steps.count; s++)
        HN_TRY(observe_step(err, &o, &plan->steps.data[s]));
    return HONE_OK;
}

hn_status hn_session_observe(hone_error *err, hn_session *session, const hn_tensor *inputs,
                             int input_count, hn_observe_fn fn, void *user) {
    int before = hn_parallel_use(session->options.threads);
    hone_status status = observe(err, session, inputs, input_count, fn, user);
    hn_parallel_use(before);
    return status;
}
