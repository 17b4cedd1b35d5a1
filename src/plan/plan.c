// SPDX-License-Identifier: Apache-2.0
// Making and running one plan: copy with concrete dims, partition, outputs, the run itself.
#include "plan/build.h"

// Loop bodies may hold loops; a chain of data-dependent shapes makes a chain of tails.
#define MAX_DEPTH 256

static const hn_value *session_input(const hn_session *session, int index) {
    const hn_graph *main = session->module->main;
    if ((size_t)index < main->inputs.count) return main->inputs.data[index];
    return main->overridables.data[(size_t)index - main->inputs.count];
}

// ---- the plan's own module ----------------------------------------------------------------------
static hn_status copy_concrete(hone_error *err, const hn_session *session,
                               const hn_tensor *inputs, int input_count, hn_plan *plan) {
    const hn_graph *main = session->module->main;
    HN_VEC(hn_node *) nodes = {0};
    HN_VEC(hn_value *) given = {0};
    hone_status status = HONE_OK;
    bool room = true;
    for (hn_node *node = main->first; node && room; node = node->next)
        room = hn_vec_push(&nodes, node);
    for (int i = 0; i < input_count && room; i++)
        room = hn_vec_push(&given, (hn_value *)(uintptr_t)session_input(session, i));
    hn_extract extract = {.source = session->module,
                          .nodes = nodes.data,
                          .node_count = (int)nodes.count,
                          .inputs = given.data,
                          .input_count = (int)given.count,
                          .outputs = main->outputs.data,
                          .output_count = (int)main->outputs.count};
    if (!room)
        status = HN_SET(err, HONE_ERR_NOMEM, "out of memory (planning)");
    else
        status = hn_extract_run(err, &extract);
    if (status == HONE_OK) {
        plan->module = extract.module;
        hn_graph *copy = plan->module->main;
        for (int i = 0; i < input_count; i++)
            hn_type_set_shape(&copy->inputs.data[i]->type, inputs[i].dtype, &inputs[i].shape);
        // Weights that nobody replaced are constants of this plan.
        for (size_t i = 0; i < copy->values.count; i++)
            copy->values.data[i]->overridable = false;
    }
    hn_vec_free(&nodes);
    hn_vec_free(&given);
    hn_vec_free(&extract.captured);
    return status;
}

// With constant dims more conditions are decided and more values are constants: those passes run
// again before the backend's own.
static hn_status run_passes(hone_error *err, const hn_session *session, hn_module *module) {
    static const char *const k_settle[] = {"static_if", "fold", "static_loop", "clean", "dce", NULL};
    HN_TRY(hn_infer_module(err, module));
    const hn_session_options *options = &session->options;
    if (options->no_device_passes) return HONE_OK;
    // A plan gives memory for time: weights that are cut up and joined at every run (recurrences
    // written out by exporters) become constants, which kernels can then pack.
    hn_pass_options pass_options = {.freeze_overridable = true,
                                    .disable = options->disable_passes,
                                    .fold_limit_bytes = (size_t)1 << 20,
                                    .expand_storage = true,
                                    .int8_weight_max = options->backend->int8_weight_max};
    HN_TRY(hn_passes_run_list(err, module, k_settle, &pass_options));
    if (!options->backend->device_passes) return HONE_OK;
    return hn_passes_run_list(err, module, options->backend->device_passes, &pass_options);
}

// ---- partition ----------------------------------------------------------------------------------
typedef enum part { PART_STATIC, PART_BARRIER, PART_TAIL } part;

static bool has_fixed_outputs(const hn_node *node) {
    hn_shape shape;
    for (int i = 0; i < node->output_count; i++)
        if (node->outputs[i] && (node->outputs[i]->type.dtype == HN_NONE ||
                                 !hn_type_shape(&node->outputs[i]->type, &shape)))
            return false;
    return true;
}

static bool uses_late(builder *b, const hn_graph *graph);

static bool node_is_late(builder *b, const hn_node *node) {
    for (int i = 0; i < node->input_count; i++) {
        const hn_value *in = node->inputs[i];
        if (in && in->id < b->values.count && b->values.data[in->id].late) return true;
    }
    for (int i = 0; i < node->attr_count; i++)
        if (node->attrs[i].type == HN_ATTR_GRAPH && uses_late(b, node->attrs[i].graph)) return true;
    return false;
}

static bool uses_late(builder *b, const hn_graph *graph) {
    for (const hn_node *node = graph->first; node; node = node->next)
        if (node_is_late(b, node)) return true;
    for (size_t i = 0; i < graph->outputs.count; i++) {
        const hn_value *out = graph->outputs.data[i];
        if (out->id < b->values.count && b->values.data[out->id].late) return true;
    }
    return false;
}

static hn_status classify(hone_error *err, builder *b, hn_node *node, part *out_part) {
    char label[160];
    if (node->op == HN_OP_UNKNOWN)
        HN_FAIL(err, HONE_ERR_UNSUPPORTED, "%s: the operator %s%s%s is not supported",
                hn_node_label(node, label, sizeof label), node->domain, *node->domain ? "." : "",
                node->op_type);
    if (node_is_late(b, node))
        *out_part = PART_TAIL;
    else if (hn_op_has(node->op, HN_T_CONTROL | HN_T_DYNAMIC) || !has_fixed_outputs(node))
        *out_part = PART_BARRIER;
    else
        *out_part = PART_STATIC;
    if (*out_part == PART_STATIC) return HONE_OK;
    for (int i = 0; i < node->output_count; i++) {
        if (!node->outputs[i]) continue;
        value_state *state = hn_builder_value(b, node->outputs[i]);
        if (!state) HN_NOMEM(err, "planning");
        state->late = true;
    }
    return HONE_OK;
}

// One more use that keeps the value's memory to the end of the steps.
static hn_status need_after(hone_error *err, builder *b, const hn_value *value) {
    value_state *state = hn_builder_value(b, value);
    if (!state) HN_NOMEM(err, "planning");
    if (!state->late) state->remaining++;
    return HONE_OK;
}

// Captures of sub-graphs count as uses after the steps.
static hn_status need_captures(hone_error *err, builder *b, const hn_graph *graph) {
    for (const hn_node *node = graph->first; node; node = node->next) {
        for (int i = 0; i < node->input_count; i++)
            if (node->inputs[i]) HN_TRY(need_after(err, b, node->inputs[i]));
        for (int i = 0; i < node->attr_count; i++)
            if (node->attrs[i].type == HN_ATTR_GRAPH)
                HN_TRY(need_captures(err, b, node->attrs[i].graph));
    }
    for (size_t i = 0; i < graph->outputs.count; i++)
        HN_TRY(need_after(err, b, graph->outputs.data[i]));
    return HONE_OK;
}

static hn_status count_uses(hone_error *err, builder *b, const hn_node *node, part where) {
    for (int i = 0; i < node->input_count; i++)
        if (node->inputs[i]) HN_TRY(need_after(err, b, node->inputs[i]));
    if (where == PART_STATIC) return HONE_OK;
    for (int i = 0; i < node->attr_count; i++)
        if (node->attrs[i].type == HN_ATTR_GRAPH)
            HN_TRY(need_captures(err, b, node->attrs[i].graph));
    return HONE_OK;
}

// ---- where a value is found after the steps -----------------------------------------------------
static hone_status locate(hone_error *err, void *user, const hn_value *value,
                          hn_source *out_source) {
    builder *b = user;
    value_state *state = hn_builder_value(b, value);
    if (!state) HN_NOMEM(err, "planning");
    hn_source source = {.dtype = value->type.dtype};
    if (state->barrier_output >= 0) {
        source.kind = HN_FROM_BARRIER;
        source.index = state->barrier_output;
    } else {
        source.kind = HN_FROM_SLOT;
        HN_TRY(hn_builder_slot(err, b, value, HN_LAYOUT_PLAIN, &source.index));
        if (!hn_type_shape(&value->type, &source.shape))
            HN_FAIL(err, HONE_ERR_INTERNAL, "value '%s' has no fixed shape", value->name);
        hn_plan *plan = b->plan;
        int root = source.index;
        while (plan->slots.data[root].alias_of >= 0)
            root = plan->slots.data[root].alias_of;
        plan->slots.data[root].last = INT32_MAX;
    }
    *out_source = source;
    return HONE_OK;
}

static hn_status add_barrier(hone_error *err, builder *b, hn_node *node) {
    hn_plan *plan = b->plan;
    hn_barrier *barrier = &plan->barriers[plan->barrier_count++];
    barrier->node = node;
    barrier->first_output = plan->barrier_output_count;
    plan->barrier_output_count += node->output_count;
    for (int i = 0; i < node->output_count; i++)
        if (node->outputs[i])
            hn_builder_value(b, node->outputs[i])->barrier_output = barrier->first_output + i;
    size_t count = (size_t)node->input_count + 1;
    barrier->inputs = hn_arena_array(&plan->arena, count, sizeof *barrier->inputs);
    barrier->in = hn_arena_array(&plan->arena, count, sizeof *barrier->in);
    if (!barrier->inputs || !barrier->in) HN_NOMEM(err, "planning");
    for (int i = 0; i < node->input_count; i++)
        if (node->inputs[i]) HN_TRY(locate(err, b, node->inputs[i], &barrier->inputs[i]));
    if (hn_op_has(node->op, HN_T_CONTROL))
        HN_TRY(hn_barrier_prepare(err, b->session, plan, barrier, locate, b));
    return HONE_OK;
}

static hn_status add_tail(hone_error *err, builder *b, hn_node *const *nodes, int count) {
    hn_plan *plan = b->plan;
    hn_graph *main = plan->module->main;
    HN_VEC(hn_value *) outputs = {0};
    bool room = true;
    for (size_t i = 0; i < main->outputs.count && room; i++) {
        const value_state *state = hn_builder_value(b, main->outputs.data[i]);
        if (state && state->late && state->barrier_output < 0)
            room = hn_vec_push(&outputs, main->outputs.data[i]);
    }
    hn_extract extract = {.source = plan->module,
                          .nodes = nodes,
                          .node_count = count,
                          .outputs = outputs.data,
                          .output_count = (int)outputs.count};
    hone_status status = room ? hn_extract_run(err, &extract)
                              : HN_SET(err, HONE_ERR_NOMEM, "out of memory (planning)");
    plan->tail_output_count = (int)outputs.count;
    hn_vec_free(&outputs);
    if (status != HONE_OK) return status;
    plan->tail_module = extract.module;
    plan->tail_input_count = (int)extract.captured.count;
    size_t inputs = extract.captured.count + 1;
    plan->tail_inputs = hn_arena_array(&plan->arena, inputs, sizeof *plan->tail_inputs);
    plan->tail_in = hn_arena_array(&plan->arena, inputs, sizeof *plan->tail_in);
    plan->tail_out = hn_arena_array(&plan->arena, (size_t)plan->tail_output_count + 1,
                                    sizeof *plan->tail_out);
    if (!plan->tail_inputs || !plan->tail_in || !plan->tail_out)
        status = HN_SET(err, HONE_ERR_NOMEM, "out of memory (planning)");
    for (size_t i = 0; i < extract.captured.count && status == HONE_OK; i++)
        status = locate(err, b, extract.captured.data[i], &plan->tail_inputs[i]);
    hn_vec_free(&extract.captured);
    if (status != HONE_OK) return status;
    return hn_session_new_part(err, plan->tail_module, b->session, &plan->tail);
}

static hn_status add_outputs(hone_error *err, builder *b) {
    hn_plan *plan = b->plan;
    hn_graph *main = plan->module->main;
    int tail_output = 0;
    for (int i = 0; i < plan->output_count; i++) {
        const hn_value *value = main->outputs.data[i];
        const value_state *state = hn_builder_value(b, value);
        if (!state) HN_NOMEM(err, "planning");
        if (state->late && state->barrier_output < 0) {
            plan->outputs[i] = (hn_source){.kind = HN_FROM_TAIL, .index = tail_output++};
            continue;
        }
        HN_TRY(locate(err, b, value, &plan->outputs[i]));
        if (plan->outputs[i].kind == HN_FROM_SLOT)
            HN_TRY(hn_builder_own(err, b, value, &plan->outputs[i].index));
    }
    return HONE_OK;
}

static hn_status build_parts(hone_error *err, builder *b, const part *parts) {
    hn_plan *plan = b->plan;
    hn_graph *main = plan->module->main;
    int barriers = 0;
    HN_VEC(hn_node *) tail = {0};
    hone_status status = HONE_OK;
    uint32_t known = plan->module->next_node_id;
    for (hn_node *node = main->first; node && status == HONE_OK; node = node->next) {
        part where = node->id < known ? parts[node->id] : PART_STATIC;
        if (where == PART_BARRIER) barriers++;
        if (where == PART_TAIL && !hn_vec_push(&tail, node))
            status = HN_SET(err, HONE_ERR_NOMEM, "out of memory (planning)");
        if (where == PART_STATIC) status = hn_builder_node(err, b, node);
    }
    plan->barriers = hn_arena_array(&plan->arena, (size_t)barriers + 1, sizeof *plan->barriers);
    if (!plan->barriers) status = HN_SET(err, HONE_ERR_NOMEM, "out of memory (planning)");
    for (hn_node *node = main->first; node && status == HONE_OK; node = node->next)
        if (node->id < known && parts[node->id] == PART_BARRIER) status = add_barrier(err, b, node);
    if (status == HONE_OK) {
        plan->barrier_outputs = hn_arena_array(
            &plan->arena, (size_t)plan->barrier_output_count + 1, sizeof *plan->barrier_outputs);
        if (!plan->barrier_outputs) status = HN_SET(err, HONE_ERR_NOMEM, "out of memory (planning)");
    }
    if (status == HONE_OK && tail.count)
        status = add_tail(err, b, tail.data, (int)tail.count);
    if (status == HONE_OK) status = add_outputs(err, b);
    hn_vec_free(&tail);
    return status;
}

static hn_status build(hone_error *err, builder *b) {
    hn_plan *plan = b->plan;
    hn_graph *main = plan->module->main;
    part *parts = hn_calloc((size_t)plan->module->next_node_id + 1, sizeof *parts);
    if (!parts) HN_NOMEM(err, "planning");
    hone_status status = HONE_OK;
    for (hn_node *node = main->first; node && status == HONE_OK; node = node->next) {
        status = classify(err, b, node, &parts[node->id]);
        if (status == HONE_OK) status = count_uses(err, b, node, parts[node->id]);
    }
    for (size_t i = 0; i < main->outputs.count && status == HONE_OK; i++)
        status = need_after(err, b, main->outputs.data[i]);
    plan->output_count = (int)main->outputs.count;
    plan->outputs =
        hn_arena_array(&plan->arena, main->outputs.count + 1, sizeof *plan->outputs);
    if (!plan->outputs && status == HONE_OK)
        status = HN_SET(err, HONE_ERR_NOMEM, "out of memory (planning)");
    if (status == HONE_OK) status = build_parts(err, b, parts);
    hn_free(parts);
    if (status == HONE_OK) status = hn_builder_finish(err, b);
    return status;
}

hn_status hn_plan_new(hone_error *err, hn_session *session, const hn_tensor *inputs,
                      int input_count, hn_plan **out_plan) {
    if (session->depth > MAX_DEPTH)
        HN_FAIL(err, HONE_ERR_LIMIT, "control flow is nested more than %d deep", MAX_DEPTH);
    hn_plan *plan = hn_calloc(1, sizeof *plan);
    if (!plan) HN_NOMEM(err, "planning");
    size_t keys = (size_t)input_count + 1;
    plan->key_count = input_count;
    plan->key_shapes = hn_arena_array(&plan->arena, keys, sizeof *plan->key_shapes);
    plan->key_dtypes = hn_arena_array(&plan->arena, keys, sizeof *plan->key_dtypes);
    hone_status status = HONE_OK;
    if (!plan->key_shapes || !plan->key_dtypes)
        status = HN_SET(err, HONE_ERR_NOMEM, "out of memory (planning)");
    for (int i = 0; i < input_count && status == HONE_OK; i++) {
        plan->key_shapes[i] = inputs[i].shape;
        plan->key_dtypes[i] = inputs[i].dtype;
    }
    if (status == HONE_OK) status = copy_concrete(err, session, inputs, input_count, plan);
    if (status == HONE_OK) status = run_passes(err, session, plan->module);
    builder b = {.session = session, .plan = plan, .backend = session->options.backend};
    if (status == HONE_OK) status = build(err, &b);
    hn_vec_free(&b.values);
    hn_vec_free(&b.pending);
    if (status != HONE_OK) {
        hn_plan_free(session, plan);
        return status;
    }
    *out_plan = plan;
    return HONE_OK;
}

void hn_plan_free(hn_session *session, hn_plan *plan) {
    if (!plan) return;
    for (size_t i = 0; i < plan->steps.count; i++)
        plan->steps.data[i].kernel->ops->destroy(plan->steps.data[i].kernel);
    hn_session_free(plan->tail);
    hn_module_free(plan->tail_module);
    for (int i = 0; i < plan->barrier_count; i++)
        hn_barrier_free(&plan->barriers[i]);
    for (int i = 0; plan->barrier_outputs && i < plan->barrier_output_count; i++)
        hn_tensor_free(&plan->barrier_outputs[i]);
    hn_backend *backend = session->options.backend;
    for (size_t i = 0; i < plan->segments.count; i++) {
        hn_segment *segment = &plan->segments.data[i];
        if (segment->record) backend->record_free(backend, segment->record);
        if (segment->wide) backend->record_free(backend, segment->wide);
        hn_free(segment->lanes);
    }
    hn_vec_free(&plan->segments);
    if (plan->slab) backend->free(backend, plan->slab);
    if (plan->host_slab) backend->host_free(backend, plan->host_slab);
    hn_vec_free(&plan->slots);
    hn_vec_free(&plan->steps);
    hn_vec_free(&plan->patches);
    hn_module_free(plan->module);
    hn_arena_free(&plan->arena);
    hn_free(plan);
}

size_t hn_plan_prepared_bytes(const hn_plan *plan, hn_prepared_set *seen) {
    size_t bytes = 0;
    for (size_t s = 0; s < plan->steps.count; s++) {
        const hn_kernel *kernel = plan->steps.data[s].kernel;
        bytes += kernel->own_bytes;
        for (int i = 0; i < kernel->prepared_count; i++)
            if (hn_prepared_set_add(seen, kernel->prepared[i]))
                bytes += hn_prepared_bytes(kernel->prepared[i]);
    }
    return bytes;
}

// ---- running ------------------------------------------------------------------------------------
static hn_tensor fetch(const hn_plan *plan, const hn_source *source, const hn_tensor *inputs) {
    if (source->kind == HN_FROM_TAIL) return plan->tail_out[source->index];
    if (source->kind == HN_FROM_BARRIER) {
        hn_tensor borrowed = plan->barrier_outputs[source->index];
        borrowed.buffer = NULL;
        return borrowed;
    }
    int slot = source->index;
    while (plan->slots.data[slot].alias_of >= 0)
        slot = plan->slots.data[slot].alias_of;
    const hn_slot *root = &plan->slots.data[slot];
    hn_tensor tensor = {.dtype = source->dtype, .shape = source->shape};
    tensor.data = root->kind == HN_SLOT_INPUT ? inputs[root->input_index].data : root->address;
    (void)hn_shape_bytes(&tensor.shape, tensor.dtype, &tensor.bytes);
    return tensor;
}

static hn_status run_barriers(hone_error *err, hn_session *session, hn_plan *plan,
                              const hn_tensor *inputs) {
    for (int i = 0; i < plan->barrier_output_count; i++)
        hn_tensor_free(&plan->barrier_outputs[i]);
    for (int k = 0; k < plan->barrier_count; k++) {
        hn_barrier *barrier = &plan->barriers[k];
        for (int i = 0; i < barrier->node->input_count; i++)
            if (barrier->node->inputs[i])
                barrier->in[i] = fetch(plan, &barrier->inputs[i], inputs);
        for (int g = 0; g < 2; g++)
            for (int i = 0; i < barrier->capture_count[g]; i++)
                barrier->branch_in[g][barrier->formal_count[g] + i] =
                    fetch(plan, &barrier->captures[g][i], inputs);
        HN_TRY(hn_barrier_run(err, session, plan, barrier));
    }
    if (!plan->tail) return HONE_OK;
    for (int i = 0; i < plan->tail_input_count; i++)
        plan->tail_in[i] = fetch(plan, &plan->tail_inputs[i], inputs);
    return hn_session_run(err, plan->tail, plan->tail_in, plan->tail_input_count, plan->tail_out,
                          plan->tail_output_count);
}

static hn_status run_profiled(hone_error *err, hn_plan *plan) {
    int64_t before = hn_clock_ns();
    for (size_t s = 0; s < plan->steps.count; s++) {
        hn_step *step = &plan->steps.data[s];
        HN_TRY(step->kernel->ops->run(err, step->kernel, &step->args));
        int64_t now = hn_clock_ns();
        step->total_ns += (double)(now - before);
        step->runs++;
        before = now;
    }
    return HONE_OK;
}

// ---- running with a device ----------------------------------------------------------------------
// All inputs lie on the device, and outputs stay there.
static bool settled(const hn_session *session, const hn_plan *plan) {
    return session->options.resident && plan->runs >= (uint64_t)session->options.resident;
}
static bool skipped(const hn_session *session, const hn_plan *plan, const hn_step *step) {
    return step->is_transfer && settled(session, plan);
}

static hn_status start_steps(hone_error *err, hn_session *session, hn_plan *plan, const hn_segment *segment) {
    for (int s = segment->first; s < segment->end; s++) {
        hn_step *step = &plan->steps.data[s];
        if (!skipped(session, plan, step)) HN_TRY(step->kernel->ops->run(err, step->kernel, &step->args));
    }
    return HONE_OK;
}

// The same on lanes; only while recording.
static hn_status start_wide(hone_error *err, hn_session *session, hn_plan *plan, const hn_segment *segment) {
    hn_backend *backend = session->options.backend;
    for (int s = segment->first; s < segment->end; s++) {
        hn_step *step = &plan->steps.data[s];
        const hn_lane_step *lane = &segment->lanes->steps[s - segment->first];
        HN_TRY(backend->lane_begin(err, backend, lane->lane, lane->after, lane->after_count));
        if (!skipped(session, plan, step)) HN_TRY(step->kernel->ops->run(err, step->kernel, &step->args));
        if (lane->marked) HN_TRY(backend->lane_end(err, backend, s));
    }
    return HONE_OK;
}

static hn_status record(hone_error *err, hn_session *session, hn_plan *plan, const hn_segment *segment, bool wide, void **out_record) {
    hn_backend *backend = session->options.backend;
    hone_status status = backend->record_begin(err, backend);
    if (status == HONE_ERR_UNSUPPORTED) return HONE_OK;
    if (status != HONE_OK) return status;
    hone_status started = wide ? start_wide(err, session, plan, segment) : start_steps(err, session, plan, segment);
    status = backend->record_end(started == HONE_OK ? err : NULL, backend, out_record);
    if (started != HONE_OK) return started;
    return status == HONE_ERR_UNSUPPORTED ? HONE_OK : status;
}

// The runs in which both recordings are there time them in turn; then the faster one stays.
#define ROUNDS 8 // of each, the first of each not counted
static hn_status choose_recording(hone_error *err, hn_session *session, hn_segment *segment) {
    hn_backend *backend = session->options.backend;
    int which = segment->rounds % 2;
    double ns;
    HN_TRY(backend->mark(err, backend, 0));
    HN_TRY(backend->replay(err, backend, which ? segment->wide : segment->record));
    HN_TRY(backend->mark(err, backend, 1));
    HN_TRY(backend->sync(err, backend));
    HN_TRY(backend->between(err, backend, 0, 1, &ns));
    if (segment->rounds > 1 && (segment->best_ns[which] == 0 || ns < segment->best_ns[which])) segment->best_ns[which] = ns;
    if (++segment->rounds < 2 * ROUNDS) return HONE_OK;
    bool wide = segment->best_ns[1] < 0.98 * segment->best_ns[0];
    hn_log(HN_LOG_INFO, "%d steps: %.1f us behind each other, %.1f us on %d lanes", segment->end - segment->first, segment->best_ns[0] / 1e3,
           segment->best_ns[1] / 1e3, segment->lanes->lanes);
    backend->record_free(backend, wide ? segment->record : segment->wide);
    if (wide) segment->record = segment->wide;
    segment->wide = NULL;
    if (wide) return HONE_OK;
    hn_free(segment->lanes);
    segment->lanes = NULL;
    return HONE_OK;
}

// Recorded in the second run, when every kernel has been loaded and tried.
static hn_status start_segment(hone_error *err, hn_session *session, hn_plan *plan, hn_segment *segment) {
    hn_backend *backend = session->options.backend;
    bool ready = plan->runs > 0 && (!session->options.resident || settled(session, plan));
    if (!segment->record && ready && backend->record_begin && segment->end - segment->first > 1) {
        HN_TRY(record(err, session, plan, segment, false, &segment->record));
        if (segment->record && segment->lanes) HN_TRY(record(err, session, plan, segment, true, &segment->wide));
    }
    if (segment->wide) return choose_recording(err, session, segment);
    if (segment->record) return backend->replay(err, backend, segment->record);
    return start_steps(err, session, plan, segment);
}

static hn_status run_profiled_segment(hone_error *err, hn_session *session, hn_plan *plan, hn_segment *segment) {
    hn_backend *backend = session->options.backend;
    if (segment->on_device) HN_TRY(backend->mark(err, backend, 0));
    for (int s = segment->first; s < segment->end; s++) {
        hn_step *step = &plan->steps.data[s];
        int64_t before = hn_clock_ns();
        if (skipped(session, plan, step)) continue;
        HN_TRY(step->kernel->ops->run(err, step->kernel, &step->args));
        if (segment->on_device) {
            HN_TRY(backend->mark(err, backend, s - segment->first + 1));
        } else {
            step->total_ns += (double)(hn_clock_ns() - before);
            step->runs++;
        }
    }
    if (!segment->on_device) return HONE_OK;
    HN_TRY(backend->sync(err, backend));
    for (int s = segment->first, from = 0; s < segment->end; s++) {
        hn_step *step = &plan->steps.data[s];
        double ns;
        if (skipped(session, plan, step)) continue;
        HN_TRY(backend->between(err, backend, from, s - segment->first + 1, &ns));
        from = s - segment->first + 1;
        step->total_ns += ns;
        step->runs++;
    }
    return HONE_OK;
}

// A device segment is waited for where the host goes on with its results.
static hn_status run_segments(hone_error *err, hn_session *session, hn_plan *plan) {
    hn_backend *backend = session->options.backend;
    bool resident = settled(session, plan), waiting = false;
    for (size_t s = 0; s < plan->steps.count; s++) {
        hn_step *step = &plan->steps.data[s];
        if (step->kernel->ops->stage && (!resident || step->kernel->sets)) HN_TRY(step->kernel->ops->stage(err, step->kernel, &step->args));
    }
    for (size_t i = 0; i < plan->segments.count; i++) {
        hn_segment *segment = &plan->segments.data[i];
        if (!segment->on_device && waiting) HN_TRY(backend->sync(err, backend));
        waiting = segment->on_device;
        if (session->options.profile) HN_TRY(run_profiled_segment(err, session, plan, segment));
        else if (segment->on_device) HN_TRY(start_segment(err, session, plan, segment));
        else HN_TRY(start_steps(err, session, plan, segment));
    }
    if (waiting && !resident) HN_TRY(backend->sync(err, backend));
    plan->runs++;
    return HONE_OK;
}

hn_status hn_plan_fetch(hone_error *err, hn_session *session, hn_plan *plan) {
    hn_backend *backend = session->options.backend;
    for (size_t s = 0; s < plan->steps.count && settled(session, plan); s++) {
        hn_step *step = &plan->steps.data[s];
        if (step->is_transfer && !backend->on_device(backend, step->kernel->out_layout[0]))
            HN_TRY(step->kernel->ops->run(err, step->kernel, &step->args));
    }
    return plan->segments.count ? backend->sync(err, backend) : HONE_OK;
}

hn_status hn_plan_run(hone_error *err, hn_session *session, hn_plan *plan, const hn_tensor *inputs,
                      hn_tensor *outputs) {
    for (size_t i = 0; i < plan->patches.count; i++)
        *plan->patches.data[i].where = inputs[plan->patches.data[i].input_index].data;
    if (plan->segments.count) {
        HN_TRY(run_segments(err, session, plan));
    } else if (session->options.profile) {
        HN_TRY(run_profiled(err, plan));
    } else {
        for (size_t s = 0; s < plan->steps.count; s++) {
            hn_step *step = &plan->steps.data[s];
            HN_TRY(step->kernel->ops->run(err, step->kernel, &step->args));
        }
    }
    if (plan->barrier_count) HN_TRY(run_barriers(err, session, plan, inputs));
    for (int i = 0; i < plan->output_count; i++)
        outputs[i] = fetch(plan, &plan->outputs[i], inputs);
    return HONE_OK;
}
