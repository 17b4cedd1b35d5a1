// SPDX-License-Identifier: Apache-2.0
// Loading a model for a command: see load.h.
#include "cli/load.h"

#define MAX_SETS 64 // of inputs that a resident bench takes in turn

// Inputs from files; their shapes also bind free dims of the inputs that are made.
static hn_status read_inputs(hone_error *err, hn_cli_model *m, hn_tensor *given, hn_arena *arena,
                             hn_option_list *specs) {
    for (int k = 0; k < m->files.count; k++) {
        const char *spec = m->files.items[k], *equals = strchr(spec, '=');
        int index = -1;
        for (int i = 0; equals && i < m->input_count; i++)
            if (hn_slice_eq((hn_slice){spec, (size_t)(equals - spec)},
                            m->module->main->inputs.data[i]->name))
                index = i;
        if (index < 0)
            HN_FAIL(err, HONE_ERR_USAGE, "--input: '%s' is not NAME=FILE with an input's name",
                    spec);
        const char *path = equals + 1, *dot = strrchr(path, '.');
        hn_tensor_free(&given[index]);
        if (dot && strcmp(dot, ".npy") == 0)
            HN_TRY(hn_npy_read(err, path, &given[index]));
        else
            HN_TRY(hn_onnx_read_tensor(err, path, NULL, NULL, &given[index]));
        hn_str text = {0};
        hn_str_append_n(&text, spec, (size_t)(equals - spec) + 1);
        for (int i = 0; i < given[index].shape.rank; i++)
            hn_str_printf(&text, "%s%lld", i ? "x" : "", (long long)given[index].shape.dims[i]);
        const char *copy = hn_arena_strdup(arena, hn_str_get(&text));
        hn_str_free(&text);
        if (!copy) HN_NOMEM(err, "reading inputs");
        if (specs->count == HN_OPTION_LIST_MAX)
            HN_FAIL(err, HONE_ERR_USAGE, "more than %d inputs are given", HN_OPTION_LIST_MAX);
        specs->items[specs->count++] = copy;
    }
    return HONE_OK;
}

// Made inputs, with those from files put in their places.
static hn_status make_inputs(hone_error *err, hn_cli_model *m, hn_tensor *given, hn_arena *arena) {
    hn_shape shapes[HN_MAX_KERNEL_IO];
    hn_option_list specs = m->shapes;
    HN_TRY(read_inputs(err, m, given, arena, &specs));
    HN_TRY(hn_inputs_shapes(err, m->module, specs.items, specs.count, shapes));
    // --batch speaks for every free first dim where nothing else is said.
    for (int i = 0; i < m->input_count && m->batch > 0 && specs.count == 0; i++) {
        const hn_type *type = &m->module->main->inputs.data[i]->type;
        if (type->rank > 0 && !hn_dim_is_const(type->dims[0])) shapes[i].dims[0] = m->batch;
    }
    HN_TRY(hn_inputs_random(err, m->module, shapes, 1, m->inputs));
    for (int i = 0; i < m->input_count; i++) {
        if (given[i].dtype == HN_NONE) continue;
        hn_tensor_free(&m->inputs[i]);
        m->inputs[i] = given[i];
        given[i] = (hn_tensor){0};
    }
    return HONE_OK;
}

static hn_status open_parts(hone_error *err, hn_cli_model *m, const char *path, bool profile) {
    if (m->batch < 0) HN_FAIL(err, HONE_ERR_USAGE, "--batch must be 1 or more");
    HN_TRY(hn_backend_open(err, m->device ? m->device : "cpu", 0, &m->backend));
    HN_TRY(hn_onnx_load(err, path, NULL, &m->module));
    m->input_count = (int)m->module->main->inputs.count;
    m->output_count = (int)m->module->main->outputs.count;
    if (m->input_count > HN_MAX_KERNEL_IO || m->output_count > HN_MAX_KERNEL_IO)
        HN_FAIL(err, HONE_ERR_UNSUPPORTED, "'%s' has more than %d inputs or outputs", path,
                HN_MAX_KERNEL_IO);
    if (m->data) HN_TRY(hn_dataset_open(err, m->data, m->module, m->batch, &m->dataset));
    m->sets = !m->resident ? 0 : m->dataset ? (int)hn_min_i64(hn_dataset_count(m->dataset), MAX_SETS) : 1;
    hn_session_options options = {
        .backend = m->backend, .force_reference = m->reference, .profile = profile, .resident = m->sets};
    HN_TRY(hn_session_new(err, m->module, &options, &m->session));
    if (m->data) return hn_cli_model_sample(err, m, 0);
    hn_tensor given[HN_MAX_KERNEL_IO] = {{0}};
    hn_arena arena = {0};
    hone_status status = make_inputs(err, m, given, &arena);
    for (int i = 0; i < m->input_count; i++)
        hn_tensor_free(&given[i]);
    hn_arena_free(&arena);
    return status;
}

hn_status hn_cli_model_open(hone_error *err, hn_cli_model *m, const char *path, bool profile) {
    hone_status status = open_parts(err, m, path, profile);
    if (status != HONE_OK) hn_cli_model_close(m);
    return status;
}

hn_status hn_cli_model_sample(hone_error *err, hn_cli_model *m, int64_t sample) {
    return m->dataset ? hn_dataset_get(err, m->dataset, sample, m->inputs) : HONE_OK;
}

hn_status hn_cli_model_run(hone_error *err, hn_cli_model *m) {
    return hn_session_run(err, m->session, m->inputs, m->input_count, m->outputs, m->output_count);
}

void hn_cli_model_close(hn_cli_model *m) {
    hn_session_free(m->session);
    for (int i = 0; !m->dataset && i < m->input_count; i++)
        hn_tensor_free(&m->inputs[i]);
    hn_dataset_free(m->dataset);
    hn_module_free(m->module);
    if (m->backend) m->backend->close(m->backend);
    m->session = NULL;
    m->dataset = NULL;
    m->module = NULL;
    m->backend = NULL;
    m->input_count = 0;
}

const char *hn_cli_bytes(char *buf, size_t size, double bytes) {
    static const char *const k_units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int unit = 0;
    for (; bytes >= 1024 && unit < 4; unit++)
        bytes /= 1024;
    snprintf(buf, size, unit ? "%.2f %s" : "%.0f %s", bytes, k_units[unit]);
    return buf;
}
