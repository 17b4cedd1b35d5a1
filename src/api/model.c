// SPDX-License-Identifier: Apache-2.0
// The public model and session calls: conversions around src/onnx and src/plan.
#include "hone/model.h"
#include <pthread.h>
#include "base/parallel.h"
#include "base/log.h"
#include "config/config.h"
#include "onnx/onnx.h"
#include "plan/plan.h"

#define MAX_IO 256

struct hone_model {
    hn_module *module;
};

struct hone_session {
    const hone_model *model;
    hn_backend *backend;
    hn_session *session;
    hn_tensor inputs[MAX_IO], outputs[MAX_IO];
};

hone_status hone_model_load(const char *path, hone_model **out_model, hone_error *error) {
    hone_model *model = hn_calloc(1, sizeof *model);
    if (!model) HN_NOMEM(error, "loading a model");
    hone_status status = hn_onnx_load(error, path, NULL, &model->module);
    if (status == HONE_OK &&
        (model->module->main->inputs.count > MAX_IO || model->module->main->outputs.count > MAX_IO))
        status = HN_SET(error, HONE_ERR_LIMIT, "'%s' has more than %d inputs or outputs", path, MAX_IO);
    if (status != HONE_OK) {
        hone_model_free(model);
        return status;
    }
    *out_model = model;
    return HONE_OK;
}

void hone_model_free(hone_model *model) {
    if (!model) return;
    hn_module_free(model->module);
    hn_free(model);
}

int hone_model_input_count(const hone_model *model) {
    return (int)model->module->main->inputs.count;
}

int hone_model_output_count(const hone_model *model) {
    return (int)model->module->main->outputs.count;
}

static void describe(const hn_value *value, hone_value_info *out) {
    *out = (hone_value_info){value->name, (int)value->type.dtype, value->type.rank, {0}};
    for (int i = 0; i < value->type.rank; i++)
        out->dims[i] = hn_dim_is_const(value->type.dims[i]) ? value->type.dims[i] : -1;
}

hone_status hone_model_input(const hone_model *model, int index, hone_value_info *out_info) {
    if (index < 0 || index >= hone_model_input_count(model)) return HONE_ERR_USAGE;
    describe(model->module->main->inputs.data[index], out_info);
    return HONE_OK;
}

hone_status hone_model_output(const hone_model *model, int index, hone_value_info *out_info) {
    if (index < 0 || index >= hone_model_output_count(model)) return HONE_ERR_USAGE;
    describe(model->module->main->outputs.data[index], out_info);
    return HONE_OK;
}

// The command has chosen before; here the environment alone says what the process wants.
static void choose_executor(void) {
    const char *wish = hn_config_env("HONE_EXECUTOR");
    if (wish && !hn_parallel_choose(wish)) hn_log(HN_LOG_WARN, "HONE_EXECUTOR: '%s' is neither own nor libgomp", wish);
}

hone_status hone_session_new(const hone_model *model, const hone_session_options *options,
                             hone_session **out_session, hone_error *error) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, choose_executor);
    hone_session *session = hn_calloc(1, sizeof *session);
    if (!session) HN_NOMEM(error, "making a session");
    session->model = model;
    const char *device = options && options->device ? options->device : "cpu";
    hone_status status = hn_backend_open(error, device, 0, &session->backend);
    if (status == HONE_OK) {
        hn_session_options inner = {.backend = session->backend,
                                    .threads = options ? options->threads : 0,
                                    .plan_cache_bytes = options ? options->plan_cache_bytes : 0};
        status = hn_session_new(error, model->module, &inner, &session->session);
    }
    if (status != HONE_OK) {
        hone_session_free(session);
        return status;
    }
    *out_session = session;
    return HONE_OK;
}

void hone_session_free(hone_session *session) {
    if (!session) return;
    hn_session_free(session->session);
    if (session->backend) session->backend->close(session->backend);
    hn_free(session);
}

static hone_status take(const hone_tensor *from, int index, hn_tensor *out, hone_error *error) {
    hn_tensor tensor = {.dtype = hn_dtype_from_onnx(from->dtype), .data = from->data};
    if (from->rank < 0 || from->rank > HN_MAX_RANK || tensor.dtype == HN_NONE)
        HN_FAIL(error, HONE_ERR_INPUT, "input %d: rank or type out of range", index);
    tensor.shape.rank = from->rank;
    for (int i = 0; i < from->rank; i++) {
        if (from->dims[i] < 0) HN_FAIL(error, HONE_ERR_INPUT, "input %d: a dim is negative", index);
        tensor.shape.dims[i] = from->dims[i];
    }
    if (!hn_shape_bytes(&tensor.shape, tensor.dtype, &tensor.bytes) || tensor.bytes > from->bytes)
        HN_FAIL(error, HONE_ERR_INPUT, "input %d: its memory is smaller than its shape", index);
    *out = tensor;
    return HONE_OK;
}

hone_status hone_session_run(hone_session *session, const hone_tensor *inputs, int input_count,
                             hone_tensor *outputs, int output_count, hone_error *error) {
    if (input_count > MAX_IO || output_count > MAX_IO || input_count < 0)
        HN_FAIL(error, HONE_ERR_USAGE, "too many inputs or outputs");
    for (int i = 0; i < input_count; i++)
        HN_TRY(take(&inputs[i], i, &session->inputs[i], error));
    HN_TRY(hn_session_run(error, session->session, session->inputs, input_count, session->outputs,
                          output_count));
    for (int i = 0; i < output_count; i++) {
        const hn_tensor *from = &session->outputs[i];
        outputs[i] = (hone_tensor){(int)from->dtype, from->shape.rank, {0}, from->data, from->bytes};
        memcpy(outputs[i].dims, from->shape.dims, sizeof(int64_t) * (size_t)from->shape.rank);
    }
    return HONE_OK;
}
