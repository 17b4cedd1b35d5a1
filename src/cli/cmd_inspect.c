// SPDX-License-Identifier: Apache-2.0
// hone inspect: what a model is made of, what it costs, what will bound it.
#include "cli/load.h"
#include "onnx/inspect.h"
#include <jansson.h>

typedef struct inspect_args {
    const char *path;
    hn_option_list shapes;
    double balance;
    bool json, no_plan;
    // results
    hn_module *module;
    hn_inspection found;
    hn_shape bound[64]; // of the inputs, when costed
    hn_str assumption;  // "N = 1"; empty: nothing was assumed
    char unbound[640];  // why there are no costs; "": there are
    hn_session_stats plan;
    char no_plan_why[640]; // why there is no plan; "": there is
} inspect_args;

// ---- gathering ----------------------------------------------------------------------------------
static void note_assumptions(inspect_args *a) {
    for (size_t i = 0; i < a->module->main->inputs.count; i++) {
        const hn_value *input = a->module->main->inputs.data[i];
        for (int axis = 0; axis < input->type.rank; axis++) {
            if (hn_dim_is_const(input->type.dims[axis])) continue;
            if (a->assumption.length) hn_str_append(&a->assumption, ", ");
            hn_str_printf(&a->assumption, "axis %d of '%s' (", axis, input->name);
            hn_dim_print(&a->assumption, a->module->dims, input->type.dims[axis]);
            hn_str_printf(&a->assumption, ") = %lld", (long long)a->bound[i].dims[axis]);
        }
    }
}

static hn_status count_steps(hone_error *err, inspect_args *a, hn_tensor *inputs, int count) {
    hn_backend *backend = NULL;
    hn_session *session = NULL;
    HN_TRY(hn_backend_open(err, "cpu", 0, &backend));
    hn_session_options options = {.backend = backend};
    hone_status status = hn_inputs_random(err, a->module, a->bound, 1, inputs);
    if (status == HONE_OK) {
        status = hn_session_new(err, a->module, &options, &session);
        if (status == HONE_OK) status = hn_session_prepare(err, session, inputs, count);
        if (status == HONE_OK) hn_session_get_stats(session, &a->plan);
        hn_session_free(session);
        for (int i = 0; i < count; i++)
            hn_tensor_free(&inputs[i]);
    }
    backend->close(backend);
    return status;
}

// Which nodes have a fast kernel is the planner's knowledge. A model that cannot be planned is
// still a model that can be inspected.
static void try_plan(inspect_args *a) {
    hone_error err = {0};
    hn_tensor inputs[64] = {{0}};
    if (a->no_plan || !a->found.costed) {
        snprintf(a->no_plan_why, sizeof a->no_plan_why, "%s",
                 a->no_plan ? "not asked for" : "needs the shapes of all inputs");
    } else if (!a->found.total.known) {
        snprintf(a->no_plan_why, sizeof a->no_plan_why, "some operators are not supported");
    } else if (count_steps(&err, a, inputs, (int)a->module->main->inputs.count) != HONE_OK) {
        hone_error_format(&err, a->no_plan_why, sizeof a->no_plan_why);
    }
}

static hn_status gather(hone_error *err, inspect_args *a) {
    const hn_onnx_options options = {.keep_unknown = true};
    HN_TRY(hn_onnx_load(err, a->path, &options, &a->module));
    hone_error why = {0};
    hone_status status =
        hn_inputs_shapes(&why, a->module, a->shapes.items, a->shapes.count, a->bound);
    if (status != HONE_OK) {
        // What was asked for must hold; what was not asked for leaves the costs out.
        if (a->shapes.count) {
            *err = why;
            return status;
        }
        snprintf(a->unbound, sizeof a->unbound, "%s", why.text);
    } else {
        note_assumptions(a);
    }
    HN_TRY(hn_inspect(err, a->module, status == HONE_OK ? a->bound : NULL, a->balance, &a->found));
    try_plan(a);
    return HONE_OK;
}

// ---- text ---------------------------------------------------------------------------------------
static const char *amount(char *buf, size_t size, double value) {
    static const char *const k_units[] = {"", " k", " M", " G", " T", " P"};
    int unit = 0;
    for (; value >= 1000 && unit < 5; unit++)
        value /= 1000;
    snprintf(buf, size, unit ? "%.2f%s" : "%.0f%s", value, k_units[unit]);
    return buf;
}

static void print_type(hn_str *out, const hn_dims *dims, const hn_type *type) {
    hn_str_printf(out, "%s ", type->dtype ? hn_dtype_name(type->dtype) : "unknown type");
    if (type->rank < 0) hn_str_append(out, "of unknown rank");
    if (type->rank == 0) hn_str_append(out, "scalar");
    for (int i = 0; i < type->rank; i++) {
        if (i) hn_str_append(out, " x ");
        hn_dim_print(out, dims, type->dims[i]);
    }
}

// What inference found, or what the file declares where that only came out as unnamed dims.
static void print_values(const char *what, const hn_module *module, hn_value *const *values,
                         size_t count, const hn_type *declared, size_t declared_count) {
    for (size_t i = 0; i < count; i++) {
        hn_str text = {0};
        print_type(&text, module->dims, &values[i]->type);
        if (i < declared_count && declared[i].rank >= 0 && strchr(hn_str_get(&text), '?')) {
            hn_str_free(&text);
            print_type(&text, module->dims, &declared[i]);
        }
        hn_cli_printf("%-11s %-28s %s\n", i ? "" : what, values[i]->name, hn_str_get(&text));
        hn_str_free(&text);
    }
}

static const char *bound_of(const hn_inspect_row *row) {
    if (row->time <= 0) return "-";
    return row->compute_time * 2 > row->time ? "compute" : "memory";
}

static void print_row(const inspect_args *a, const hn_inspect_row *row) {
    char flops[32], bytes[32], name[96];
    snprintf(name, sizeof name, "%s%s%s%s", row->domain, *row->domain ? "." : "", row->op_type,
             row->known ? "" : " (not supported)");
    double moved = row->read_bytes + row->write_bytes;
    hn_cli_printf("  %-26s %6lld", name, (long long)row->nodes);
    if (!a->found.costed || row->uncosted == row->nodes) {
        hn_cli_printf("%s\n", a->found.costed ? "   cost unknown" : "");
        return;
    }
    hn_cli_printf(" %10s %11s", amount(flops, sizeof flops, row->flops),
           hn_cli_bytes(bytes, sizeof bytes, moved));
    if (moved > 0)
        hn_cli_printf(" %9.2f", row->flops / moved);
    else
        hn_cli_printf(" %9s", "-");
    double total = a->found.total.time;
    hn_cli_printf(" %5.1f %%  %s", total > 0 ? 100 * row->time / total : 0, bound_of(row));
    if (row->uncosted) hn_cli_printf("; %lld nodes' cost unknown", (long long)row->uncosted);
    hn_cli_printf("\n");
}

static void print_text(const inspect_args *a) {
    const hn_module *m = a->module;
    const hn_inspection *f = &a->found;
    char bytes[32], count[32];
    hn_cli_printf("%-11s %s\n", "model", a->path);
    hn_cli_printf("%-11s IR %lld", "file", (long long)m->ir_version);
    for (size_t i = 0; i < m->opsets.count; i++)
        hn_cli_printf(", %s opset %d", *m->opsets.data[i].domain ? m->opsets.data[i].domain : "standard",
               m->opsets.data[i].version);
    if (*m->producer_name) hn_cli_printf(", by %s %s", m->producer_name, m->producer_version);
    hn_cli_printf("\n");
    print_values("inputs", m, m->main->inputs.data, m->main->inputs.count, NULL, 0);
    if (m->main->overridables.count)
        hn_cli_printf("%-11s %zu weights may also be given as inputs\n", "", m->main->overridables.count);
    print_values("outputs", m, m->main->outputs.data, m->main->outputs.count,
                 m->main->declared.data, m->main->declared.count);
    hn_cli_printf("%-11s %s in %s\n", "parameters", amount(count, sizeof count, (double)f->parameters),
           hn_cli_bytes(bytes, sizeof bytes, f->weight_bytes));
    hn_cli_printf("%-11s %lld in %lld graph%s\n", "nodes", (long long)f->total.nodes, (long long)f->graphs,
           f->graphs == 1 ? "" : "s");
    if (a->assumption.length) hn_cli_printf("%-11s %s\n", "assuming", hn_str_get(&a->assumption));
    if (*a->unbound) hn_cli_printf("%-11s unknown: %s\n", "costs", a->unbound);
    hn_cli_printf("\n  %-26s %6s", "operator", "nodes");
    if (f->costed) hn_cli_printf(" %10s %11s %9s %7s  bound by", "FLOP", "moved", "FLOP/byte", "time");
    hn_cli_printf("\n");
    for (size_t i = 0; i < f->rows.count; i++)
        print_row(a, &f->rows.data[i]);
    print_row(a, &f->total);
    if (f->costed)
        hn_cli_printf("\ntime and bound: each node alone, no cache kept between nodes, on a machine that "
               "does\n"
               "%.4g FLOP in the time it moves a byte (--balance).%s%s\n",
               a->balance, f->has_if ? " Of an If, the dearer branch." : "",
               f->has_loop ? " Of a Loop, one round." : "");
    if (*a->no_plan_why) {
        hn_cli_printf("kernels     unknown: %s\n", a->no_plan_why);
    } else {
        hn_cli_printf(
            "kernels     %d steps, %d on the reference path; of %d heavy ones (Conv, MatMul, Gemm, "
            "recurrences) %d\n",
            a->plan.steps, a->plan.reference_steps, a->plan.heavy_steps,
            a->plan.heavy_reference_steps);
        if (a->plan.barriers)
            hn_cli_printf("            what follows %d nodes of control flow or of shapes that depend on "
                   "data is "
                   "planned while it runs\n",
                   a->plan.barriers);
    }
}

// ---- JSON ---------------------------------------------------------------------------------------
static json_t *values_json(const hn_module *module, hn_value *const *values, size_t count) {
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) {
        const hn_type *type = &values[i]->type;
        json_t *shape = type->rank < 0 ? json_null() : json_array();
        for (int k = 0; k < type->rank; k++) {
            hn_str text = {0};
            hn_dim_print(&text, module->dims, type->dims[k]);
            json_array_append_new(shape, hn_dim_is_const(type->dims[k])
                                             ? json_integer((json_int_t)type->dims[k])
                                             : json_string(hn_str_get(&text)));
            hn_str_free(&text);
        }
        json_t *dtype = type->dtype ? json_string(hn_dtype_name(type->dtype)) : json_null();
        json_array_append_new(list, json_pack("{s:s,s:o,s:o}", "name", values[i]->name, "dtype",
                                              dtype, "shape", shape));
    }
    return list;
}

static json_t *row_json(const hn_inspection *f, const hn_inspect_row *row) {
    json_t *object = json_pack("{s:s,s:s,s:b,s:I,s:I}", "op", row->op_type, "domain", row->domain,
                               "supported", row->known, "nodes", (json_int_t)row->nodes, "uncosted",
                               f->costed ? (json_int_t)row->uncosted : (json_int_t)row->nodes);
    double moved = row->read_bytes + row->write_bytes;
    bool costed = f->costed && row->uncosted < row->nodes;
    json_object_set_new(object, "flops", costed ? json_real(row->flops) : json_null());
    json_object_set_new(object, "read_bytes", costed ? json_real(row->read_bytes) : json_null());
    json_object_set_new(object, "write_bytes", costed ? json_real(row->write_bytes) : json_null());
    json_object_set_new(object, "flop_per_byte",
                        costed && moved > 0 ? json_real(row->flops / moved) : json_null());
    json_object_set_new(object, "time_share",
                        costed && f->total.time > 0 ? json_real(row->time / f->total.time)
                                                    : json_null());
    json_object_set_new(object, "bound_by",
                        costed && row->time > 0 ? json_string(bound_of(row)) : json_null());
    return object;
}

static hn_status print_json(hone_error *err, const inspect_args *a) {
    const hn_module *m = a->module;
    const hn_inspection *f = &a->found;
    json_t *opsets = json_object(), *ops = json_array(), *plan = json_null();
    for (size_t i = 0; i < m->opsets.count; i++)
        json_object_set_new(opsets, m->opsets.data[i].domain,
                            json_integer(m->opsets.data[i].version));
    for (size_t i = 0; i < f->rows.count; i++)
        json_array_append_new(ops, row_json(f, &f->rows.data[i]));
    if (!*a->no_plan_why)
        plan =
            json_pack("{s:i,s:i,s:i,s:i,s:i}", "barriers", a->plan.barriers, "steps", a->plan.steps,
                      "reference_steps", a->plan.reference_steps, "heavy_steps",
                      a->plan.heavy_steps, "heavy_reference_steps", a->plan.heavy_reference_steps);
    json_t *root = json_pack(
        "{s:o,s:I,s:o,s:o,s:I,s:I,s:f,s:o,s:o,s:s,s:s,s:f,s:o,s:o,s:o,s:s}", "model",
        hn_cli_json_text(a->path),
        "ir_version", (json_int_t)m->ir_version, "opsets", opsets, "producer",
        hn_cli_json_text(m->producer_name),
        "nodes", (json_int_t)f->total.nodes, "parameters", (json_int_t)f->parameters,
        "weight_bytes", f->weight_bytes, "inputs",
        values_json(m, m->main->inputs.data, m->main->inputs.count), "outputs",
        values_json(m, m->main->outputs.data, m->main->outputs.count), "assumption",
        hn_str_get(&a->assumption), "no_costs_because", a->unbound, "balance", a->balance, "ops",
        ops, "total", row_json(f, &f->total), "plan", plan, "no_plan_because", a->no_plan_why);
    return hn_cli_json(err, root);
}

hone_status hn_cmd_inspect(hone_error *err, int argc, char **argv, int *out_exit) {
    (void)out_exit;
    inspect_args a = {.balance = 10};
    const hn_option options[] = {
        {"shape", "IN=1x3x8x8", HN_OPT_LIST, &a.shapes, "bind an input's free dims; repeat it"},
        {"balance", "N", HN_OPT_F64, &a.balance,
         "FLOP that the machine does in the time of a byte"},
        {"no-plan", NULL, HN_OPT_FLAG, &a.no_plan, "do not ask which nodes have fast kernels"},
        {"json", NULL, HN_OPT_FLAG, &a.json, "print JSON"},
    };
    int count;
    HN_TRY(hn_cli_parse(err, argc, argv, options, HN_COUNT_OF(options), &a.path, 1, &count));
    if (!a.path) HN_FAIL(err, HONE_ERR_USAGE, "inspect needs a MODEL");
    if (!(a.balance > 0)) HN_FAIL(err, HONE_ERR_USAGE, "--balance must be above 0");
    hone_status status = gather(err, &a);
    if (status == HONE_OK && a.json)
        status = print_json(err, &a);
    else if (status == HONE_OK)
        print_text(&a);
    hn_inspection_free(&a.found);
    hn_str_free(&a.assumption);
    hn_module_free(a.module);
    return status;
}
