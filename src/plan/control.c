// SPDX-License-Identifier: Apache-2.0
// Nodes that are run with tensors in hand: data-dependent shapes by their reference, If, Loop and
// Scan by sessions of their sub-graphs. If runs the taken branch only.
#include "plan/plan_int.h"

static hn_graph *subgraph(const hn_node *node, int index) {
    static const char *const k_names[][2] = {{"then_branch", "else_branch"}, {"body", NULL}};
    const char *name = k_names[hn_node_attr(node, "body") != NULL][index];
    const hn_attr *attr = name ? hn_node_attr(node, name) : NULL;
    return attr && attr->type == HN_ATTR_GRAPH ? attr->graph : NULL;
}

static hn_status prepare_branch(hone_error *err, hn_session *session, hn_plan *plan,
                                hn_barrier *barrier, int g, hn_locate_fn locate, void *user) {
    hn_graph *graph = subgraph(barrier->node, g);
    HN_VEC(hn_node *) nodes = {0};
    bool room = true;
    for (hn_node *node = graph->first; node && room; node = node->next)
        room = hn_vec_push(&nodes, node);
    hn_extract extract = {.source = plan->module,
                          .nodes = nodes.data,
                          .node_count = (int)nodes.count,
                          .inputs = graph->inputs.data,
                          .input_count = (int)graph->inputs.count,
                          .outputs = graph->outputs.data,
                          .output_count = (int)graph->outputs.count};
    hone_status status = room ? hn_extract_run(err, &extract)
                              : HN_SET(err, HONE_ERR_NOMEM, "out of memory (planning)");
    hn_vec_free(&nodes);
    if (status != HONE_OK) return status;
    barrier->branch_modules[g] = extract.module;
    barrier->formal_count[g] = extract.input_count;
    barrier->capture_count[g] = (int)extract.captured.count;
    size_t captures = extract.captured.count;
    barrier->captures[g] =
        hn_arena_array(&plan->arena, captures + 1, sizeof *barrier->captures[g]);
    barrier->branch_in[g] = hn_arena_array(
        &plan->arena, captures + (size_t)extract.input_count + 1, sizeof *barrier->branch_in[g]);
    if (!barrier->captures[g] || !barrier->branch_in[g])
        status = HN_SET(err, HONE_ERR_NOMEM, "out of memory (planning)");
    for (size_t i = 0; i < captures && status == HONE_OK; i++)
        status = locate(err, user, extract.captured.data[i], &barrier->captures[g][i]);
    hn_vec_free(&extract.captured);
    if (status != HONE_OK) return status;
    // Carried values may change shape from one iteration to the next.
    if (hn_node_attr(barrier->node, "body"))
        for (int i = 0; i < barrier->formal_count[g]; i++)
            extract.module->main->inputs.data[i]->type.rank = -1;
    return hn_session_new_part(err, barrier->branch_modules[g], session, &barrier->branches[g]);
}

hn_status hn_barrier_prepare(hone_error *err, hn_session *session, hn_plan *plan,
                             hn_barrier *barrier, hn_locate_fn locate, void *user) {
    char label[160];
    for (int g = 0; g < 2; g++)
        if (subgraph(barrier->node, g))
            HN_TRY_CTX(err, prepare_branch(err, session, plan, barrier, g, locate, user),
                       "planning %s", hn_node_label(barrier->node, label, sizeof label));
    if (!barrier->branches[0])
        HN_FAIL(err, HONE_ERR_FORMAT, "%s has no sub-graph",
                hn_node_label(barrier->node, label, sizeof label));
    return HONE_OK;
}

void hn_barrier_free(hn_barrier *barrier) {
    for (int g = 0; g < 2; g++) {
        hn_session_free(barrier->branches[g]);
        hn_module_free(barrier->branch_modules[g]);
    }
}

static hn_status run_branch(hone_error *err, hn_barrier *barrier, int g, hn_tensor *outputs) {
    return hn_session_run(err, barrier->branches[g], barrier->branch_in[g],
                          barrier->formal_count[g] + barrier->capture_count[g], outputs,
                          (int)barrier->branch_modules[g]->main->outputs.count);
}

static hn_status own_copy(hone_error *err, const hn_tensor *from, hn_tensor *out_copy) {
    hn_tensor copy;
    HN_TRY(hn_tensor_new(err, from->dtype, &from->shape, &copy));
    if (from->bytes) memcpy(copy.data, from->data, from->bytes);
    *out_copy = copy;
    return HONE_OK;
}

static bool truth(const hn_tensor *tensor) {
    return tensor->data && tensor->bytes && *(const uint8_t *)tensor->data != 0;
}

// ---- If -----------------------------------------------------------------------------------------
static hn_status run_if(hone_error *err, hn_barrier *barrier, hn_tensor *outputs) {
    char label[160];
    int g = truth(&barrier->in[0]) ? 0 : 1;
    if (!barrier->branches[g] ||
        (int)barrier->branch_modules[g]->main->outputs.count != barrier->node->output_count)
        HN_FAIL(err, HONE_ERR_FORMAT, "%s: its branch has another number of outputs",
                hn_node_label(barrier->node, label, sizeof label));
    return run_branch(err, barrier, g, outputs);
}

// ---- scan outputs -------------------------------------------------------------------------------
// Slices of equal shape stacked along a new leading axis; the buffer doubles as it grows.
typedef struct stack {
    hn_tensor item;   // dtype and shape of a slice
    unsigned char *data;
    size_t used, capacity;
    int64_t count;
} stack;

static hn_status stack_push(hone_error *err, stack *s, const hn_tensor *slice, const char *label) {
    if (s->count && (!hn_shape_equal(&s->item.shape, &slice->shape) ||
                     s->item.dtype != slice->dtype))
        HN_FAIL(err, HONE_ERR_INPUT, "%s: the pieces of an output differ in shape", label);
    s->item = *slice;
    size_t need;
    if (!hn_add_size(s->used, slice->bytes, &need)) HN_NOMEM(err, "collecting loop outputs");
    if (need > s->capacity) {
        size_t grown = s->capacity * 2 > need ? s->capacity * 2 : need;
        void *bigger = hn_realloc(s->data, grown);
        if (!bigger) HN_NOMEM(err, "collecting loop outputs");
        s->data = bigger;
        s->capacity = grown;
    }
    if (slice->bytes) memcpy(s->data + s->used, slice->data, slice->bytes);
    s->used = need;
    s->count++;
    return HONE_OK;
}

// Moves the leading axis to `axis`, reversing it when asked; writes a new tensor.
static hn_status stack_finish(hone_error *err, const stack *s, const hn_type *empty_type, int axis,
                              bool reversed, hn_tensor *out) {
    hn_shape shape = {.rank = s->item.shape.rank + 1};
    hn_dtype dtype = s->item.dtype;
    if (!s->count) { // nothing ran: the slice's shape as far as the graph declares it
        dtype = empty_type->dtype;
        shape.rank = empty_type->rank > 0 ? empty_type->rank : 1;
        for (int i = 0; i < shape.rank; i++)
            shape.dims[i] = i == axis || empty_type->rank < 1 || !hn_dim_is_const(empty_type->dims[i])
                                ? 0
                                : empty_type->dims[i];
        return hn_tensor_new(err, dtype, &shape, out);
    }
    if (shape.rank > HN_MAX_RANK || axis >= shape.rank)
        HN_FAIL(err, HONE_ERR_UNSUPPORTED, "a loop output has more than %d dims", HN_MAX_RANK);
    for (int i = 0, from = 0; i < shape.rank; i++)
        shape.dims[i] = i == axis ? s->count : s->item.shape.dims[from++];
    HN_TRY(hn_tensor_new(err, dtype, &shape, out));
    size_t inner = hn_dtype_bytes(dtype);
    int64_t outer = 1;
    for (int i = 0; i < axis; i++)
        outer *= shape.dims[i];
    for (int i = axis + 1; i < shape.rank; i++)
        inner *= (size_t)shape.dims[i];
    size_t slice_bytes = s->item.bytes;
    for (int64_t o = 0; o < outer && inner; o++)
        for (int64_t k = 0; k < s->count; k++) {
            int64_t from = reversed ? s->count - 1 - k : k;
            memcpy((unsigned char *)out->data + (size_t)(o * s->count + k) * inner,
                   s->data + (size_t)from * slice_bytes + (size_t)o * inner, inner);
        }
    return HONE_OK;
}

// ---- Loop and Scan ------------------------------------------------------------------------------
typedef struct loop {
    hn_barrier *barrier;
    char label[160];
    int carried, scanned;  // outputs of the node: carried values, then stacks
    hn_tensor *state;      // owned carried values
    hn_tensor *body_out;   // borrowed views of the body's last run
    stack *stacks;
} loop;

static hn_status loop_open(hone_error *err, loop *l, hn_barrier *barrier, int carried) {
    l->barrier = barrier;
    hn_node_label(barrier->node, l->label, sizeof l->label);
    l->carried = carried;
    l->scanned = barrier->node->output_count - carried;
    int body_outputs = (int)barrier->branch_modules[0]->main->outputs.count;
    l->state = hn_calloc((size_t)carried + 1, sizeof *l->state);
    l->stacks = hn_calloc((size_t)(l->scanned > 0 ? l->scanned : 0) + 1, sizeof *l->stacks);
    l->body_out = hn_calloc((size_t)body_outputs + 1, sizeof *l->body_out);
    if (!l->state || !l->stacks || !l->body_out) HN_NOMEM(err, "running a loop");
    if (l->scanned < 0)
        HN_FAIL(err, HONE_ERR_FORMAT, "%s has fewer outputs than carried values", l->label);
    return HONE_OK;
}

static void loop_close(loop *l) {
    for (int i = 0; l->state && i < l->carried; i++)
        hn_tensor_free(&l->state[i]);
    for (int i = 0; l->stacks && i < l->scanned; i++)
        hn_free(l->stacks[i].data);
    hn_free(l->state);
    hn_free(l->stacks);
    hn_free(l->body_out);
}

// Takes the body's carried outputs (from index `first`) over and stacks its scan outputs.
static hn_status loop_advance(hone_error *err, loop *l, int first) {
    for (int i = 0; i < l->carried; i++) {
        hn_tensor next;
        HN_TRY(own_copy(err, &l->body_out[first + i], &next));
        hn_tensor_free(&l->state[i]);
        l->state[i] = next;
    }
    for (int i = 0; i < l->scanned; i++)
        HN_TRY(stack_push(err, &l->stacks[i], &l->body_out[first + l->carried + i], l->label));
    return HONE_OK;
}

static hn_status loop_results(hone_error *err, loop *l, const int64_t *axes,
                              const int64_t *directions, hn_tensor *outputs) {
    for (int i = 0; i < l->carried; i++) {
        outputs[i] = l->state[i];
        l->state[i] = (hn_tensor){0};
    }
    for (int i = 0; i < l->scanned; i++) {
        const hn_value *value = l->barrier->node->outputs[l->carried + i];
        if (!value) continue;
        int64_t axis = axes ? axes[i] : 0;
        if (axis < 0) axis += l->stacks[i].item.shape.rank + 1;
        HN_TRY(stack_finish(err, &l->stacks[i], &value->type, (int)axis,
                            directions && directions[i], &outputs[l->carried + i]));
    }
    return HONE_OK;
}

static hn_status run_loop_body(hone_error *err, loop *l, hn_tensor *outputs) {
    hn_barrier *barrier = l->barrier;
    const hn_tensor *in = barrier->in;
    int64_t limit = in[0].dtype != HN_NONE ? hn_tensor_get_i64(&in[0], 0) : INT64_MAX;
    uint8_t going = in[1].dtype != HN_NONE ? truth(&in[1]) : 1;
    hn_tensor *formal = barrier->branch_in[0];
    if (barrier->formal_count[0] != l->carried + 2 ||
        (int)barrier->branch_modules[0]->main->outputs.count != 1 + l->carried + l->scanned)
        HN_FAIL(err, HONE_ERR_FORMAT, "%s: the body's inputs or outputs do not fit", l->label);
    for (int i = 0; i < l->carried; i++)
        HN_TRY(own_copy(err, &in[2 + i], &l->state[i]));
    int64_t iteration = 0;
    for (; iteration < limit && going; iteration++) {
        formal[0] = (hn_tensor){.dtype = HN_I64, .data = &iteration, .bytes = sizeof iteration};
        formal[1] = (hn_tensor){.dtype = HN_BOOL, .data = &going, .bytes = 1};
        for (int i = 0; i < l->carried; i++)
            formal[2 + i] = l->state[i];
        HN_TRY(run_branch(err, barrier, 0, l->body_out));
        going = truth(&l->body_out[0]);
        HN_TRY(loop_advance(err, l, 1));
    }
    return loop_results(err, l, NULL, NULL, outputs);
}

static hn_status run_loop(hone_error *err, hn_barrier *barrier, hn_tensor *outputs) {
    loop l = {0};
    hone_status status = loop_open(err, &l, barrier, barrier->node->input_count - 2);
    if (status == HONE_OK) status = run_loop_body(err, &l, outputs);
    loop_close(&l);
    return status;
}

// Element `index` along `axis`, the axis removed, into `out` (whose memory is there).
static void take_slice(const hn_tensor *from, int axis, int64_t index, hn_tensor *out) {
    size_t inner = hn_dtype_bytes(from->dtype);
    int64_t outer = 1;
    for (int i = 0; i < axis; i++)
        outer *= from->shape.dims[i];
    for (int i = axis + 1; i < from->shape.rank; i++)
        inner *= (size_t)from->shape.dims[i];
    for (int64_t o = 0; o < outer; o++)
        memcpy((unsigned char *)out->data + (size_t)o * inner,
               (const unsigned char *)from->data +
                   (size_t)(o * from->shape.dims[axis] + index) * inner,
               inner);
}

static hn_status scan_steps(hone_error *err, loop *l, int scan_inputs, hn_tensor *slices,
                            hn_tensor *outputs) {
    hn_barrier *barrier = l->barrier;
    const hn_node *node = barrier->node;
    int64_t count;
    const int64_t *axes = hn_node_ints(node, "scan_input_axes", &count);
    if (count != scan_inputs) axes = NULL;
    const int64_t *backwards = hn_node_ints(node, "scan_input_directions", &count);
    if (count != scan_inputs) backwards = NULL;
    int64_t steps = -1;
    int axis[HN_MAX_KERNEL_IO];
    for (int i = 0; i < scan_inputs; i++) {
        const hn_tensor *in = &barrier->in[l->carried + i];
        if (!hn_axis_normalise(axes ? axes[i] : 0, in->shape.rank, &axis[i]))
            HN_FAIL(err, HONE_ERR_INPUT, "%s: scan axis out of range", l->label);
        if (steps >= 0 && steps != in->shape.dims[axis[i]])
            HN_FAIL(err, HONE_ERR_INPUT, "%s: scan inputs differ in length", l->label);
        steps = in->shape.dims[axis[i]];
        hn_shape shape = {.rank = in->shape.rank - 1};
        for (int k = 0, to = 0; k < in->shape.rank; k++)
            if (k != axis[i]) shape.dims[to++] = in->shape.dims[k];
        HN_TRY(hn_tensor_new(err, in->dtype, &shape, &slices[i]));
    }
    for (int64_t step = 0; step < steps; step++) {
        for (int i = 0; i < l->carried; i++)
            barrier->branch_in[0][i] = l->state[i];
        for (int i = 0; i < scan_inputs; i++) {
            take_slice(&barrier->in[l->carried + i], axis[i],
                       backwards && backwards[i] ? steps - 1 - step : step, &slices[i]);
            barrier->branch_in[0][l->carried + i] = slices[i];
        }
        HN_TRY(run_branch(err, barrier, 0, l->body_out));
        HN_TRY(loop_advance(err, l, 0));
    }
    const int64_t *out_axes = hn_node_ints(node, "scan_output_axes", &count);
    if (count != l->scanned) out_axes = NULL;
    const int64_t *out_backwards = hn_node_ints(node, "scan_output_directions", &count);
    if (count != l->scanned) out_backwards = NULL;
    return loop_results(err, l, out_axes, out_backwards, outputs);
}

static hn_status run_scan(hone_error *err, hn_barrier *barrier, hn_tensor *outputs) {
    int scan_inputs = (int)hn_node_int(barrier->node, "num_scan_inputs", 0);
    int carried = barrier->node->input_count - scan_inputs;
    if (scan_inputs < 1 || scan_inputs > HN_MAX_KERNEL_IO || carried < 0 ||
        barrier->formal_count[0] != barrier->node->input_count)
        HN_FAIL(err, HONE_ERR_FORMAT, "Scan '%s': the body's inputs do not fit",
                barrier->node->name);
    loop l = {0};
    hn_tensor slices[HN_MAX_KERNEL_IO] = {{0}};
    hone_status status = loop_open(err, &l, barrier, carried);
    for (int i = 0; i < carried && status == HONE_OK; i++)
        status = own_copy(err, &barrier->in[i], &l.state[i]);
    if (status == HONE_OK) status = scan_steps(err, &l, scan_inputs, slices, outputs);
    for (int i = 0; i < scan_inputs; i++)
        hn_tensor_free(&slices[i]);
    loop_close(&l);
    return status;
}

// ---- dispatch -----------------------------------------------------------------------------------
static hn_status run_dynamic(hone_error *err, hn_session *session, hn_barrier *barrier,
                             hn_tensor *outputs) {
    const hn_tensor *inputs[HN_MAX_KERNEL_IO];
    const hn_node *node = barrier->node;
    if (node->input_count > HN_MAX_KERNEL_IO)
        HN_FAIL(err, HONE_ERR_UNSUPPORTED, "%s has more than %d inputs", node->op_type,
                HN_MAX_KERNEL_IO);
    for (int i = 0; i < node->input_count; i++)
        inputs[i] = node->inputs[i] ? &barrier->in[i] : NULL;
    return hn_ref_run(err, node, inputs, node->input_count, outputs, node->output_count,
                      session->options.seed + session->runs);
}

static const struct control_row {
    const char *op_type;
    hone_status (*run)(hone_error *err, hn_barrier *barrier, hn_tensor *outputs);
} k_control[] = {{"If", run_if}, {"Loop", run_loop}, {"Scan", run_scan}};

hn_status hn_barrier_run(hone_error *err, hn_session *session, hn_plan *plan,
                         hn_barrier *barrier) {
    char label[160];
    hn_tensor *outputs = plan->barrier_outputs + barrier->first_output;
    if (!hn_op_has(barrier->node->op, HN_T_CONTROL))
        return run_dynamic(err, session, barrier, outputs);
    for (size_t i = 0; i < HN_COUNT_OF(k_control); i++)
        if (strcmp(k_control[i].op_type, barrier->node->op_type) == 0) {
            HN_TRY_CTX(err, k_control[i].run(err, barrier, outputs), "running %s",
                       hn_node_label(barrier->node, label, sizeof label));
            return HONE_OK;
        }
    HN_FAIL(err, HONE_ERR_UNSUPPORTED, "%s: the control-flow operator %s is not supported",
            hn_node_label(barrier->node, label, sizeof label), barrier->node->op_type);
}
