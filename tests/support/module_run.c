// SPDX-License-Identifier: Apache-2.0
// See module_run.h.
#include "support/module_run.h"
#include <math.h>

typedef struct runner {
    hone_error *err;
    hn_tensor *values; // by value id
} runner;

static hn_status run_graph(runner *r, const hn_graph *graph);

static const hn_tensor *held(const runner *r, const hn_value *value) {
    if (!value) return NULL;
    if (value->constant) return value->constant;
    return r->values[value->id].dtype == HN_NONE ? NULL : &r->values[value->id];
}

static void keep(runner *r, const hn_value *value, hn_tensor *tensor) {
    hn_tensor_free(&r->values[value->id]);
    r->values[value->id] = *tensor;
    *tensor = (hn_tensor){0};
}

static hn_status run_if(runner *r, const hn_node *node) {
    const hn_tensor *condition = held(r, node->inputs[0]);
    if (!condition) HN_FAIL(r->err, HONE_ERR_INTERNAL, "an If has no condition");
    const char *name = hn_tensor_get_i64(condition, 0) ? "then_branch" : "else_branch";
    const hn_attr *attr = hn_node_attr(node, name);
    if (!attr) HN_FAIL(r->err, HONE_ERR_INTERNAL, "an If lacks its %s", name);
    HN_TRY(run_graph(r, attr->graph));
    for (int i = 0; i < node->output_count; i++) {
        if (!node->outputs[i]) continue;
        const hn_tensor *result = held(r, attr->graph->outputs.data[i]);
        if (!result) HN_FAIL(r->err, HONE_ERR_INTERNAL, "a branch has no output %d", i);
        hn_tensor copy = hn_tensor_ref(result);
        keep(r, node->outputs[i], &copy);
    }
    return HONE_OK;
}

// Puts `from` at `index` of a new dim `axis` of `count` into `out`, or takes it from there.
static void move_slice(hn_tensor *all, int axis, int64_t index, hn_tensor *one, bool put) {
    int64_t outer = 1, count = all->shape.dims[axis];
    for (int i = 0; i < axis; i++)
        outer *= all->shape.dims[i];
    size_t inner = outer ? one->bytes / (size_t)outer : 0;
    for (int64_t o = 0; o < outer && inner; o++) {
        char *there = (char *)all->data + (size_t)(o * count + index) * inner, *here = (char *)one->data + (size_t)o * inner;
        memcpy(put ? there : here, put ? here : there, inner);
    }
}

static int64_t listed(const hn_node *node, const char *name, int at) {
    int64_t count;
    const int64_t *list = hn_node_ints(node, name, &count);
    return list && at < count ? list[at] : 0;
}

static int axis_of(int64_t axis, int rank) { return (int)(axis < 0 ? axis + rank : axis); }

#define LOOP_MOST   80 // states, rounds
#define LOOP_STACKS 4
typedef struct looping {
    const hn_node *node;
    const hn_graph *body;
    bool scan;
    int states, stacks, slices;
    int64_t rounds, limit;
    hn_tensor state[LOOP_MOST], stack[LOOP_STACKS][LOOP_MOST];
} looping;

static hn_status loop_inputs(runner *r, looping *l, bool going) {
    hn_tensor t;
    for (int i = 0; i < l->states; i++)
        keep(r, l->body->inputs.data[(l->scan ? 0 : 2) + i], &l->state[i]);
    if (!l->scan) {
        HN_TRY(hn_tensor_new(r->err, HN_I64, &(hn_shape){0}, &t));
        *(int64_t *)t.data = l->rounds;
        keep(r, l->body->inputs.data[0], &t);
        HN_TRY(hn_tensor_new(r->err, HN_BOOL, &(hn_shape){0}, &t));
        *(uint8_t *)t.data = going;
        keep(r, l->body->inputs.data[1], &t);
    }
    for (int i = 0; i < l->slices; i++) {
        hn_tensor all = *held(r, l->node->inputs[l->states + i]);
        int axis = axis_of(listed(l->node, "scan_input_axes", i), all.shape.rank);
        hn_shape shape = {.rank = all.shape.rank - 1};
        for (int d = 0; d < shape.rank; d++)
            shape.dims[d] = all.shape.dims[d < axis ? d : d + 1];
        HN_TRY(hn_tensor_new(r->err, all.dtype, &shape, &t));
        bool backwards = listed(l->node, "scan_input_directions", i);
        move_slice(&all, axis, backwards ? l->limit - 1 - l->rounds : l->rounds, &t, false);
        keep(r, l->body->inputs.data[l->states + i], &t);
    }
    return HONE_OK;
}

static hn_status loop_stack(runner *r, looping *l, int index) {
    hn_tensor all;
    hn_shape shape = l->stack[index][0].shape;
    hn_value *value = l->node->outputs[l->states + index];
    if (!l->rounds) { // the rest is what the types say
        hn_type type = value->type;
        type.dims[axis_of(listed(l->node, "scan_output_axes", index), type.rank)] = 0;
        if (!hn_type_shape(&type, &shape)) HN_FAIL(r->err, HONE_ERR_INTERNAL, "an empty stack has no shape");
        HN_TRY(hn_tensor_new(r->err, type.dtype, &shape, &all));
        keep(r, value, &all);
        return HONE_OK;
    }
    int axis = axis_of(listed(l->node, "scan_output_axes", index), ++shape.rank);
    for (int d = shape.rank - 1; d > axis; d--)
        shape.dims[d] = shape.dims[d - 1];
    shape.dims[axis] = l->rounds;
    HN_TRY(hn_tensor_new(r->err, l->stack[index][0].dtype, &shape, &all));
    bool backwards = listed(l->node, "scan_output_directions", index);
    for (int64_t k = 0; k < l->rounds; k++)
        move_slice(&all, axis, backwards ? l->rounds - 1 - k : k, &l->stack[index][k], true);
    keep(r, value, &all);
    return HONE_OK;
}

static hn_status run_rounds(runner *r, looping *l) {
    const hn_tensor *start = l->scan || !hn_in(l->node, 1) ? NULL : held(r, l->node->inputs[1]);
    bool going = !start || hn_tensor_get_i64(start, 0);
    for (; l->rounds < l->limit && going; l->rounds++) {
        if (l->rounds == LOOP_MOST) HN_FAIL(r->err, HONE_ERR_LIMIT, "more rounds than this runner takes");
        HN_TRY(loop_inputs(r, l, going));
        HN_TRY(run_graph(r, l->body));
        hn_value *const *out = l->body->outputs.data;
        if (!l->scan) going = hn_tensor_get_i64(held(r, *out++), 0);
        for (int i = 0; i < l->states; i++)
            l->state[i] = hn_tensor_ref(held(r, *out++));
        for (int i = 0; i < l->stacks; i++)
            l->stack[i][l->rounds] = hn_tensor_ref(held(r, *out++));
    }
    for (int i = 0; i < l->states; i++)
        if (l->node->outputs[i]) keep(r, l->node->outputs[i], &l->state[i]);
    for (int i = 0; i < l->stacks; i++)
        if (l->node->outputs[l->states + i]) HN_TRY(loop_stack(r, l, i));
    return HONE_OK;
}

static hn_status run_loop(runner *r, const hn_node *node) {
    looping l = {.node = node, .body = hn_node_attr(node, "body")->graph, .scan = !strcmp(node->op_type, "Scan")};
    l.slices = l.scan ? (int)hn_node_int(node, "num_scan_inputs", 0) : 0;
    l.states = node->input_count - (l.scan ? l.slices : 2);
    l.stacks = node->output_count - l.states;
    if (l.states > LOOP_MOST || l.stacks > LOOP_STACKS) HN_FAIL(r->err, HONE_ERR_LIMIT, "a loop is too wide for this runner");
    const hn_tensor *first = l.scan ? held(r, node->inputs[l.states]) : hn_in(node, 0) ? held(r, node->inputs[0]) : NULL;
    l.limit = l.scan ? first->shape.dims[axis_of(listed(node, "scan_input_axes", 0), first->shape.rank)]
              : first ? hn_tensor_get_i64(first, 0) : INT64_MAX;
    for (int i = 0; i < l.states; i++)
        l.state[i] = hn_tensor_ref(held(r, node->inputs[i + (l.scan ? 0 : 2)]));
    hone_status status = run_rounds(r, &l);
    test_tensors_free(l.state, LOOP_MOST);
    test_tensors_free(&l.stack[0][0], LOOP_STACKS * LOOP_MOST);
    return status;
}

static hn_status run_node(runner *r, const hn_node *node) {
    const hn_tensor *inputs[64];
    hn_tensor outputs[64];
    char label[160];
    if (strcmp(node->op_type, "If") == 0) return run_if(r, node);
    if (strcmp(node->op_type, "Loop") == 0 || strcmp(node->op_type, "Scan") == 0) return run_loop(r, node);
    if (node->input_count > 64 || node->output_count > 64)
        HN_FAIL(r->err, HONE_ERR_LIMIT, "%s is too wide for this runner", node->op_type);
    for (int i = 0; i < node->input_count; i++) {
        inputs[i] = held(r, node->inputs[i]);
        if (node->inputs[i] && !inputs[i])
            HN_FAIL(r->err, HONE_ERR_INTERNAL, "input %d of %s has no content", i,
                    hn_node_label(node, label, sizeof label));
    }
    HN_TRY(hn_ref_run(r->err, node, inputs, node->input_count, outputs, node->output_count, 1));
    for (int i = 0; i < node->output_count; i++)
        if (node->outputs[i]) keep(r, node->outputs[i], &outputs[i]);
    return HONE_OK;
}

static hn_status run_graph(runner *r, const hn_graph *graph) {
    for (const hn_node *node = graph->first; node; node = node->next)
        HN_TRY(run_node(r, node));
    return HONE_OK;
}

hn_status test_module_run(hone_error *err, const hn_module *module, const hn_tensor *inputs,
                          hn_tensor *outputs) {
    runner r = {err, hn_calloc(module->next_value_id + 1, sizeof(hn_tensor))};
    if (!r.values) HN_NOMEM(err, "running a module");
    const hn_graph *main = module->main;
    for (size_t i = 0; i < main->inputs.count; i++)
        r.values[main->inputs.data[i]->id] = hn_tensor_ref(&inputs[i]);
    hone_status status = run_graph(&r, main);
    for (size_t i = 0; i < main->outputs.count && status == HONE_OK; i++) {
        const hn_tensor *result = held(&r, main->outputs.data[i]);
        if (!result)
            status = HN_SET(err, HONE_ERR_INTERNAL, "output %zu has no content", i);
        else
            outputs[i] = hn_tensor_ref(result);
    }
    test_tensors_free(r.values, module->next_value_id);
    hn_free(r.values);
    return status;
}

typedef struct binding {
    const hn_dims *dims;
    int64_t size;
} binding;

static bool bind(void *user, hn_dim symbol, int64_t *out_value) {
    const binding *b = user;
    int64_t lo, hi;
    hn_dim_range(b->dims, symbol, &lo, &hi);
    *out_value = b->size * hn_dim_divisor(b->dims, symbol);
    if (*out_value < lo) *out_value = lo;
    if (*out_value > hi) *out_value = hi;
    return true;
}

hn_status test_module_inputs(hone_error *err, const hn_module *module, uint64_t seed, int64_t size,
                             hn_tensor *out_inputs) {
    binding b = {module->dims, size};
    const hn_graph *main = module->main;
    for (size_t i = 0; i < main->inputs.count; i++) {
        const hn_type *type = &main->inputs.data[i]->type;
        hn_shape shape = {.rank = type->rank};
        if (type->rank < 0)
            HN_FAIL(err, HONE_ERR_INTERNAL, "input '%s' has no rank", main->inputs.data[i]->name);
        for (int d = 0; d < type->rank; d++)
            if (!hn_dim_eval(module->dims, type->dims[d], bind, &b, &shape.dims[d]))
                HN_FAIL(err, HONE_ERR_INTERNAL, "input '%s' has no shape",
                        main->inputs.data[i]->name);
        HN_TRY(hn_tensor_new(err, type->dtype, &shape, &out_inputs[i]));
        int64_t count = hn_tensor_count(&out_inputs[i]);
        for (int64_t k = 0; k < count; k++) {
            seed = seed * 6364136223846793005ull + 1442695040888963407ull;
            double unit = (double)(seed >> 40) * 0x1p-24;
            bool byte = type->dtype == HN_U8 || type->dtype == HN_I8;
            if (hn_dtype_is_float(type->dtype))
                hn_tensor_set_f64(&out_inputs[i], k, 4 * unit - 2);
            else
                hn_tensor_set_i64(&out_inputs[i], k, (int64_t)(unit * (byte ? 256 : 2)));
        }
    }
    return HONE_OK;
}

void test_tensors_free(hn_tensor *tensors, size_t count) {
    for (size_t i = 0; i < count; i++)
        hn_tensor_free(&tensors[i]);
}

double test_tensors_distance(const hn_tensor *a, const hn_tensor *b, double rtol, double atol) {
    if (a->dtype != b->dtype || !hn_shape_equal(&a->shape, &b->shape)) return INFINITY;
    int64_t count = hn_tensor_count(a);
    double scale = 0, worst = 0;
    bool is_float = hn_dtype_is_float(a->dtype), byte = a->dtype == HN_U8 || a->dtype == HN_I8;
    for (int64_t i = 0; i < count; i++) {
        double x = fabs(hn_tensor_get_f64(a, i));
        if (isfinite(x) && x > scale) scale = x;
    }
    for (int64_t i = 0; i < count; i++) {
        double x = hn_tensor_get_f64(a, i), y = hn_tensor_get_f64(b, i);
        if (isnan(x) && isnan(y)) continue;
        if (x == y) continue;
        double far = is_float                   ? fabs(x - y) / (rtol * scale + atol)
                     : byte && fabs(x - y) <= 1 ? 1
                                                : INFINITY;
        if (!(far <= worst)) worst = isnan(far) ? INFINITY : far;
    }
    return worst;
}
