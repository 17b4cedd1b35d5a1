// SPDX-License-Identifier: Apache-2.0
// Loading a model for a command: see load.h.
#include "cli/load.h"

static hn_status open_parts(hone_error *err, hn_cli_model *m, const char *path, bool profile) {
    HN_TRY(hn_backend_open(err, m->device ? m->device : "cpu", 0, &m->backend));
    HN_TRY_CTX(err, hn_onnx_load(err, path, NULL, &m->module), "loading '%s'", path);
    m->input_count = (int)m->module->main->inputs.count;
    m->output_count = (int)m->module->main->outputs.count;
    if (m->input_count > HN_MAX_KERNEL_IO || m->output_count > HN_MAX_KERNEL_IO)
        HN_FAIL(err, HONE_ERR_UNSUPPORTED, "'%s' has more than %d inputs or outputs", path,
                HN_MAX_KERNEL_IO);
    hn_session_options options = {
        .backend = m->backend, .force_reference = m->reference, .profile = profile};
    HN_TRY(hn_session_new(err, m->module, &options, &m->session));
    if (m->data) {
        HN_TRY(hn_dataset_open(err, m->data, m->module, m->batch, &m->dataset));
        return hn_cli_model_sample(err, m, 0);
    }
    hn_shape shapes[HN_MAX_KERNEL_IO];
    HN_TRY(hn_inputs_shapes(err, m->module, m->shapes.items, m->shapes.count, shapes));
    // --batch speaks for every free first dim that no --shape binds.
    for (int i = 0; i < m->input_count && m->batch > 0; i++) {
        const hn_type *type = &m->module->main->inputs.data[i]->type;
        bool free_batch = type->rank > 0 && !hn_dim_is_const(type->dims[0]);
        if (free_batch && m->shapes.count == 0) shapes[i].dims[0] = m->batch;
    }
    return hn_inputs_random(err, m->module, shapes, 1, m->inputs);
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
