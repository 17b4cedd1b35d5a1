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

static hn_status run_node(runner *r, const hn_node *node) {
    const hn_tensor *inputs[64];
    hn_tensor outputs[64];
    char label[160];
    if (strcmp(node->op_type, "If") == 0) return run_if(r, node);
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
