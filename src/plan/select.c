// SPDX-License-Identifier: Apache-2.0
// Static nodes to steps: kernels, layouts, aliases, in-place reuse, offsets, binding.
//
// Memory is followed by slots. A view's slot points to the slot that owns the memory (its root); a
// root counts how many uses of the values lying in it are still to come, so that a kernel may write
// in place exactly when its input's last use is this step.
#include "plan/build.h"

static int root_of(const hn_plan *plan, int slot) {
    while (plan->slots.data[slot].alias_of >= 0)
        slot = plan->slots.data[slot].alias_of;
    return slot;
}

value_state *hn_builder_value(builder *b, const hn_value *value) {
    while (b->values.count <= value->id)
        if (!hn_vec_push(&b->values, ((value_state){.barrier_output = -1}))) return NULL;
    return &b->values.data[value->id];
}

static bool on_device(const builder *b, hn_layout layout) {
    return b->backend->on_device && b->backend->on_device(b->backend, layout);
}

static hn_status slot_add(hone_error *err, builder *b, hn_slot_kind kind, size_t bytes,
                          bool device, int *out_slot) {
    int step = (int)b->plan->steps.count;
    hn_slot slot = {.kind = kind, .on_device = device, .alias_of = -1, .bytes = bytes, .first = step, .last = step};
    if (!hn_vec_push(&b->plan->slots, slot) || !hn_vec_push(&b->pending, 0))
        HN_NOMEM(err, "planning memory");
    *out_slot = (int)b->plan->slots.count - 1;
    return HONE_OK;
}

static hn_status attach(hone_error *err, builder *b, const hn_value *value, hn_layout layout,
                        int slot) {
    value_state *state = hn_builder_value(b, value);
    if (!state) HN_NOMEM(err, "planning memory");
    if (state->variant_count == HN_MAX_VARIANTS)
        HN_FAIL(err, HONE_ERR_INTERNAL, "value '%s' is needed in too many layouts", value->name);
    state->variants[state->variant_count].layout = layout;
    state->variants[state->variant_count++].slot = slot;
    b->pending.data[root_of(b->plan, slot)] += state->remaining;
    return HONE_OK;
}

// The memory of inputs and constants comes into being when somebody asks for it.
static hn_status first_slot(hone_error *err, builder *b, const hn_value *value, int *out_slot) {
    int slot;
    if (value->constant) {
        HN_TRY(slot_add(err, b, HN_SLOT_CONST, value->constant->bytes, false, &slot));
        b->plan->slots.data[slot].address = value->constant->data;
    } else {
        int index = -1;
        hn_graph *main = b->plan->module->main;
        for (size_t i = 0; i < main->inputs.count; i++)
            if (main->inputs.data[i] == value) index = (int)i;
        if (index < 0)
            HN_FAIL(err, HONE_ERR_INTERNAL, "value '%s' is used before it is made", value->name);
        HN_TRY(slot_add(err, b, HN_SLOT_INPUT, 0, false, &slot));
        b->plan->slots.data[slot].input_index = index;
    }
    HN_TRY(attach(err, b, value, HN_LAYOUT_PLAIN, slot));
    *out_slot = slot;
    return HONE_OK;
}

static void touch(builder *b, int slot, int step) {
    hn_slot *root = &b->plan->slots.data[root_of(b->plan, slot)];
    if (root->last < step) root->last = step;
}

// Appends a step; takes the kernel over, also on failure.
static hn_status step_add(hone_error *err, builder *b, hn_kernel *kernel, hn_node *node,
                          const int *in_slots, int input_count, const int *out_slots,
                          int output_count) {
    hn_plan *plan = b->plan;
    hn_step step = {.kernel = kernel,
                    .node = node,
                    .input_count = input_count,
                    .output_count = output_count,
                    .workspace_slot = -1};
    int count = input_count + output_count, index = (int)plan->steps.count;
    step.pointers = hn_arena_array(&plan->arena, (size_t)count + 1, sizeof *step.pointers);
    step.slots = hn_arena_array(&plan->arena, (size_t)count + 1, sizeof *step.slots);
    if (!step.pointers || !step.slots || !hn_vec_push(&plan->steps, step)) {
        kernel->ops->destroy(kernel);
        HN_NOMEM(err, "planning");
    }
    hn_step *held = &plan->steps.data[index];
    for (int i = 0; i < count; i++) {
        held->slots[i] = i < input_count ? in_slots[i] : out_slots[i - input_count];
        if (held->slots[i] >= 0) touch(b, held->slots[i], index);
    }
    if (kernel->workspace_bytes) {
        HN_TRY(slot_add(err, b, HN_SLOT_SLAB, kernel->workspace_bytes, kernel->on_device,
                        &held->workspace_slot));
        hn_slot *workspace = &plan->slots.data[held->workspace_slot];
        workspace->first = workspace->last = index;
        if (plan->workspace_bytes < kernel->workspace_bytes)
            plan->workspace_bytes = kernel->workspace_bytes;
    }
    return HONE_OK;
}

static hn_status reorder_add(hone_error *err, builder *b, const hn_value *value, int from_slot,
                             hn_layout from, hn_layout to, int *out_slot) {
    size_t bytes;
    hn_kernel *kernel;
    HN_TRY(b->backend->layout_bytes(err, b->backend, &value->type, to, &bytes));
    HN_TRY(b->backend->reorder(err, b->backend, &value->type, from, to, &kernel));
    int slot;
    hone_status status = slot_add(err, b, HN_SLOT_SLAB, bytes, on_device(b, to), &slot);
    if (status != HONE_OK) {
        kernel->ops->destroy(kernel);
        return status;
    }
    HN_TRY(step_add(err, b, kernel, NULL, &from_slot, 1, &slot, 1));
    b->plan->reorder_steps++;
    hn_step *step = &b->plan->steps.data[b->plan->steps.count - 1];
    step->is_transfer = on_device(b, from) != on_device(b, to) &&
                        (b->plan->slots.data[root_of(b->plan, from_slot)].kind == HN_SLOT_INPUT ||
                         value->graph_output_uses > 0);
    if (step->is_transfer && on_device(b, to) && b->session->options.resident) {
        // Read again by later runs: nothing else may lie there, and nothing may be written in place.
        b->plan->slots.data[slot].first = 0;
        b->plan->slots.data[slot].last = INT32_MAX;
        b->pending.data[slot]++;
        kernel->sets = b->session->options.resident > 1 ? b->session->options.resident : 0;
    }
    HN_TRY(attach(err, b, value, to, slot));
    *out_slot = slot;
    return HONE_OK;
}

hn_status hn_builder_slot(hone_error *err, builder *b, const hn_value *value, hn_layout layout,
                          int *out_slot) {
    value_state *state = hn_builder_value(b, value);
    if (!state) HN_NOMEM(err, "planning memory");
    int first;
    if (state->variant_count == 0) HN_TRY(first_slot(err, b, value, &first));
    state = hn_builder_value(b, value);
    for (int i = 0; i < state->variant_count; i++)
        if (state->variants[i].layout == layout) {
            *out_slot = state->variants[i].slot;
            return HONE_OK;
        }
    // Between host and device only dense values travel.
    hn_layout from = state->variants[0].layout;
    int slot = state->variants[0].slot;
    for (int i = 1; i < state->variant_count; i++)
        if (on_device(b, state->variants[i].layout) == on_device(b, layout) && on_device(b, from) != on_device(b, layout)) {
            from = state->variants[i].layout;
            slot = state->variants[i].slot;
        }
    if (on_device(b, from) != on_device(b, layout)) {
        hn_layout leave = b->backend->plain_of(b->backend, from), arrive = b->backend->plain_of(b->backend, layout);
        if (leave != from) {
            HN_TRY(hn_builder_slot(err, b, value, leave, &slot));
            from = leave;
        }
        if (arrive != layout) {
            HN_TRY(reorder_add(err, b, value, slot, from, arrive, &slot));
            from = arrive;
        }
    }
    return reorder_add(err, b, value, slot, from, layout, out_slot);
}

// ---- the copy kernel ----------------------------------------------------------------------------
typedef struct copy_kernel {
    hn_kernel base;
    size_t bytes;
} copy_kernel;

static hone_status copy_run(hone_error *err, hn_kernel *kernel, const hn_args *args) {
    (void)err;
    size_t bytes = ((copy_kernel *)kernel)->bytes;
    if (bytes) memcpy(args->outputs[0], args->inputs[0], bytes);
    return HONE_OK;
}
static void copy_destroy(hn_kernel *kernel) { hn_free(kernel); }
static const hn_kernel_ops k_copy_ops = {sizeof(hn_kernel_ops), NULL, copy_run, copy_destroy};

hn_status hn_builder_own(hone_error *err, builder *b, const hn_value *value, int *out_slot) {
    int slot, copy;
    HN_TRY(hn_builder_slot(err, b, value, HN_LAYOUT_PLAIN, &slot));
    if (b->plan->slots.data[root_of(b->plan, slot)].kind != HN_SLOT_INPUT) {
        *out_slot = slot;
        return HONE_OK;
    }
    hn_shape shape;
    size_t bytes;
    if (!hn_type_shape(&value->type, &shape) || !hn_shape_bytes(&shape, value->type.dtype, &bytes))
        HN_FAIL(err, HONE_ERR_INTERNAL, "value '%s' has no fixed shape", value->name);
    copy_kernel *kernel = hn_calloc(1, sizeof *kernel);
    if (!kernel) HN_NOMEM(err, "planning");
    kernel->base.ops = &k_copy_ops;
    kernel->base.variant = "copy";
    kernel->bytes = bytes;
    hone_status status = slot_add(err, b, HN_SLOT_SLAB, bytes, false, &copy);
    if (status != HONE_OK) {
        hn_free(kernel);
        return status;
    }
    HN_TRY(step_add(err, b, &kernel->base, NULL, &slot, 1, &copy, 1));
    touch(b, copy, INT32_MAX);
    *out_slot = copy;
    return HONE_OK;
}

// ---- nodes --------------------------------------------------------------------------------------
static void release_use(builder *b, const hn_value *value) {
    value_state *state = hn_builder_value(b, value);
    state->remaining--;
    for (int i = 0; i < state->variant_count; i++)
        b->pending.data[root_of(b->plan, state->variants[i].slot)]--;
}

static void release_inputs(builder *b, const hn_node *node) {
    for (int i = 0; i < node->input_count; i++)
        if (node->inputs[i]) release_use(b, node->inputs[i]);
}

// A view shares its input's memory: no step.
static hn_status alias_add(hone_error *err, builder *b, hn_node *node) {
    const hn_value *in = node->inputs[0], *out = node->outputs[0];
    int slot, view;
    hn_layout plain = HN_LAYOUT_PLAIN;
    value_state *state = hn_builder_value(b, in);
    if (!state) HN_NOMEM(err, "planning memory");
    if (b->backend->plain_of && state->variant_count)
        plain = b->backend->plain_of(b->backend, state->variants[0].layout);
    HN_TRY(hn_builder_slot(err, b, in, plain, &slot));
    HN_TRY(slot_add(err, b, b->plan->slots.data[slot].kind, 0, on_device(b, plain), &view));
    b->plan->slots.data[view].alias_of = slot;
    HN_TRY(attach(err, b, out, plain, view));
    release_inputs(b, node);
    return HONE_OK;
}

static hn_status output_slot(hone_error *err, builder *b, hn_kernel *kernel, hn_node *node,
                             int index, const int *in_slots, int *out_slot) {
    const hn_value *value = node->outputs[index];
    size_t bytes;
    HN_TRY(b->backend->layout_bytes(err, b->backend, &value->type, kernel->out_layout[index], &bytes));
    bool device = on_device(b, kernel->out_layout[index]);
    int source = index < 2 ? kernel->inplace_input[index] : -1;
    if (source >= 0 && source < node->input_count && in_slots[source] >= 0) {
        int root = root_of(b->plan, in_slots[source]);
        const hn_slot *memory = &b->plan->slots.data[root];
        if (memory->kind == HN_SLOT_SLAB && memory->on_device == device && memory->bytes >= bytes &&
            b->pending.data[root] == 1) {
            HN_TRY(slot_add(err, b, HN_SLOT_SLAB, bytes, device, out_slot));
            b->plan->slots.data[*out_slot].alias_of = root;
            // Taken: a second output must not take the same memory.
            b->pending.data[root]++;
            return HONE_OK;
        }
    }
    return slot_add(err, b, HN_SLOT_SLAB, bytes, device, out_slot);
}

static hn_status kernel_add(hone_error *err, builder *b, hn_kernel *kernel, hn_node *node) {
    int in_slots[HN_MAX_KERNEL_IO], out_slots[HN_MAX_KERNEL_IO];
    hone_status status = HONE_OK;
    for (int i = 0; i < node->input_count && status == HONE_OK; i++) {
        in_slots[i] = -1;
        if (node->inputs[i] && !(kernel->consumed >> i & 1))
            status = hn_builder_slot(err, b, node->inputs[i], kernel->in_layout[i], &in_slots[i]);
    }
    bool taken[HN_MAX_KERNEL_IO] = {false};
    for (int i = 0; i < node->output_count && status == HONE_OK; i++) {
        out_slots[i] = -1;
        if (!node->outputs[i]) continue;
        status = output_slot(err, b, kernel, node, i, in_slots, &out_slots[i]);
        taken[i] = status == HONE_OK && b->plan->slots.data[out_slots[i]].alias_of >= 0;
    }
    if (status != HONE_OK) {
        kernel->ops->destroy(kernel);
        return status;
    }
    HN_TRY(step_add(err, b, kernel, node, in_slots, node->input_count, out_slots,
                    node->output_count));
    for (int i = 0; i < node->output_count; i++) {
        if (!node->outputs[i]) continue;
        if (taken[i]) b->pending.data[root_of(b->plan, out_slots[i])]--;
        HN_TRY(attach(err, b, node->outputs[i], kernel->out_layout[i], out_slots[i]));
    }
    release_inputs(b, node);
    return HONE_OK;
}

static bool is_view(const hn_node *node) {
    return hn_op_has(node->op, HN_T_VIEW) && !node->post_count && node->input_count > 0 &&
           node->inputs[0] && node->outputs[0];
}

hn_status hn_builder_node(hone_error *err, builder *b, hn_node *node) {
    if (is_view(node)) return alias_add(err, b, node);
    hn_layout hints[HN_MAX_KERNEL_IO] = {0};
    if (node->input_count > HN_MAX_KERNEL_IO || node->output_count > HN_MAX_KERNEL_IO)
        HN_FAIL(err, HONE_ERR_UNSUPPORTED, "%s node '%s' has more than %d inputs or outputs",
                node->op_type, node->name, HN_MAX_KERNEL_IO);
    for (int i = 0; i < node->input_count; i++) {
        if (!node->inputs[i]) continue;
        value_state *state = hn_builder_value(b, node->inputs[i]);
        if (!state) HN_NOMEM(err, "planning");
        if (state->variant_count) hints[i] = state->variants[0].layout;
    }
    const hn_session_options *options = &b->session->options;
    hn_select what = {.node = node,
                      .in_layout = hints,
                      .threads = options->threads,
                      .force_reference = options->force_reference,
                      .apart = options->apart,
                      .tf32 = options->tf32,
                      .deterministic = options->deterministic};
    hn_kernel *kernel = NULL;
    hone_status status = HONE_ERR_UNSUPPORTED;
    if (!options->force_reference) status = b->backend->select(err, b->backend, &what, &kernel);
    if (status == HONE_ERR_UNSUPPORTED && node->post_count) {
        // The fused steps become nodes behind this one; the caller walks on to them.
        const hn_node *end = node->next;
        uint32_t first_new = b->plan->module->next_value_id;
        HN_TRY(hn_post_expand(err, node));
        for (const hn_node *made = node; made != end; made = made->next) {
            for (int i = 0; i < made->output_count; i++) {
                hn_value *value = made->outputs[i];
                if (!value || value->id < first_new) continue;
                value_state *state = hn_builder_value(b, value);
                if (!state) HN_NOMEM(err, "planning");
                state->remaining = (int)value->uses.count;
            }
        }
        return hn_builder_node(err, b, node);
    }
    if (status == HONE_ERR_UNSUPPORTED) status = hn_kernel_reference(err, &what, &kernel);
    if (status != HONE_OK) return status;
    return kernel_add(err, b, kernel, node);
}

// ---- offsets and binding ------------------------------------------------------------------------
static bool is_owner(const hn_slot *slot, bool device) {
    return slot->kind == HN_SLOT_SLAB && slot->alias_of < 0 && slot->on_device == device;
}

// Offsets of one side's slots in a slab of their own.
static hn_status place_slots(hone_error *err, builder *b, bool device) {
    hn_plan *plan = b->plan;
    hn_backend *backend = b->backend;
    bool main = device || !backend->on_device; // what host backends have is in the one slab
    size_t *bytes = main ? &plan->slab_bytes : &plan->host_slab_bytes;
    void **slab = main ? &plan->slab : &plan->host_slab;
    int count = 0, last_step = (int)plan->steps.count;
    hn_block *blocks = hn_calloc(plan->slots.count + 1, sizeof *blocks);
    if (!blocks) HN_NOMEM(err, "planning memory");
    bool good = true;
    for (size_t i = 0; i < plan->slots.count && good; i++) {
        hn_slot *slot = &plan->slots.data[i];
        if (!is_owner(slot, device)) continue;
        blocks[count].first = slot->first;
        blocks[count].last = slot->last > last_step ? last_step : slot->last;
        good = hn_round_up_size(slot->bytes ? slot->bytes : 1, HN_ALIGN, &blocks[count].bytes);
        count++;
    }
    good = good && hn_memory_plan(blocks, count, bytes);
    hone_status status = HONE_OK;
    if (!good)
        status = HN_SET(err, HONE_ERR_LIMIT, "the model's activations do not fit in memory");
    else if (*bytes)
        status = main ? backend->alloc(err, backend, *bytes, slab) : backend->host_alloc(err, backend, *bytes, slab);
    count = 0;
    for (size_t i = 0; i < plan->slots.count && status == HONE_OK; i++) {
        hn_slot *slot = &plan->slots.data[i];
        if (is_owner(slot, device)) slot->address = (char *)*slab + blocks[count++].out_offset;
    }
    hn_free(blocks);
    return status;
}

// Runs of steps on one side, where there are two.
static hn_status add_segments(hone_error *err, hn_plan *plan) {
    for (size_t s = 0; s < plan->steps.count; s++) {
        bool device = plan->steps.data[s].kernel->on_device;
        hn_segment *last = plan->segments.count ? &plan->segments.data[plan->segments.count - 1] : NULL;
        if (last && last->on_device == device) {
            last->end = (int)s + 1;
            continue;
        }
        hn_segment segment = {.first = (int)s, .end = (int)s + 1, .on_device = device};
        if (!hn_vec_push(&plan->segments, segment)) HN_NOMEM(err, "planning");
    }
    return HONE_OK;
}

static hn_status set_pointer(hone_error *err, builder *b, void **where, int slot) {
    hn_plan *plan = b->plan;
    const hn_slot *root = &plan->slots.data[root_of(plan, slot)];
    *where = root->address;
    if (root->kind != HN_SLOT_INPUT) return HONE_OK;
    hn_patch patch = {where, root->input_index};
    if (!hn_vec_push(&plan->patches, patch)) HN_NOMEM(err, "planning");
    return HONE_OK;
}

hn_status hn_builder_finish(hone_error *err, builder *b) {
    hn_plan *plan = b->plan;
    bool wide = b->backend->lanes > 1 && !b->session->options.profile;
    if (b->backend->on_device) HN_TRY(add_segments(err, plan));
    for (size_t i = 0; i < plan->segments.count && wide; i++)
        if (plan->segments.data[i].on_device) HN_TRY(hn_lanes_lifetimes(err, plan, plan->segments.data[i].first, plan->segments.data[i].end));
    HN_TRY(place_slots(err, b, false));
    if (b->backend->on_device) HN_TRY(place_slots(err, b, true));
    for (size_t i = 0; i < plan->segments.count && wide; i++) {
        hn_segment *segment = &plan->segments.data[i];
        if (segment->on_device) HN_TRY(hn_lanes_new(err, plan, segment->first, segment->end, b->backend->lanes, &segment->lanes));
    }
    for (size_t s = 0; s < plan->steps.count; s++) {
        hn_step *step = &plan->steps.data[s];
        for (int i = 0; i < step->input_count + step->output_count; i++)
            if (step->slots[i] >= 0)
                HN_TRY(set_pointer(err, b, &step->pointers[i], step->slots[i]));
        step->args.inputs = step->pointers;
        step->args.outputs = step->pointers + step->input_count;
        if (step->workspace_slot >= 0)
            step->args.workspace = plan->slots.data[step->workspace_slot].address;
        if (step->kernel->ops->bind)
            HN_TRY(step->kernel->ops->bind(err, step->kernel, &step->args));
    }
    return HONE_OK;
}
