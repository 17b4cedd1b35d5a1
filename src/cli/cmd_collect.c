// SPDX-License-Identifier: Apache-2.0
// hone collect: a run whose inputs are kept as calibration data. Called with the inputs that a service
// sees, it gathers an .npz that hone optimize --data reads.
#include "cli/load.h"
#include <unistd.h>

typedef struct collect_args {
    hn_cli_model model;
    const char *out_path;
    int64_t most; // rows or samples kept
} collect_args;

// Rows of a batch are put one behind the other where every input's first dim is free; else samples get an
// axis of their own.
static bool by_rows(const hn_cli_model *m) {
    for (int i = 0; i < m->input_count; i++) {
        const hn_type *type = &m->module->main->inputs.data[i]->type;
        if (type->rank < 1 || hn_dim_is_const(type->dims[0])) return false;
    }
    return m->input_count > 0;
}

static hn_status append(hone_error *err, const char *name, hn_tensor *kept, const hn_tensor *more, bool rows) {
    hn_shape want = more->shape;
    if (!rows) {
        if (want.rank == HN_MAX_RANK) HN_FAIL(err, HONE_ERR_UNSUPPORTED, "input '%s' has too many dims", name);
        memmove(want.dims + 1, want.dims, (size_t)want.rank * sizeof *want.dims);
        want.dims[0] = 1;
        want.rank++;
    }
    int64_t before = kept->dtype == HN_NONE ? 0 : kept->shape.dims[0];
    bool same = kept->dtype == HN_NONE || (kept->dtype == more->dtype && kept->shape.rank == want.rank);
    for (int i = 1; same && before && i < want.rank; i++)
        same = kept->shape.dims[i] == want.dims[i];
    if (!same)
        HN_FAIL(err, HONE_ERR_INPUT, "input '%s' has another type or other dims than the samples that are kept", name);
    want.dims[0] += before;
    hn_tensor joined;
    HN_TRY(hn_tensor_new(err, more->dtype, &want, &joined));
    if (before) memcpy(joined.data, kept->data, kept->bytes);
    if (more->bytes) memcpy((char *)joined.data + (before ? kept->bytes : 0), more->data, more->bytes);
    hn_tensor_free(kept);
    *kept = joined;
    return HONE_OK;
}

static hn_npz_item *item_of(hn_npz *npz, const char *name) {
    for (size_t i = 0; i < npz->items.count; i++)
        if (strcmp(npz->items.data[i].name, name) == 0) return &npz->items.data[i];
    hn_npz_item item = {hn_strdup(name), {0}};
    if (!item.name || !hn_vec_push(&npz->items, item)) return NULL;
    return &npz->items.data[npz->items.count - 1];
}

static int64_t kept_count(const hn_npz *npz, const hn_cli_model *m) {
    const hn_tensor *first = hn_npz_get(npz, m->module->main->inputs.data[0]->name);
    return first && first->shape.rank ? first->shape.dims[0] : 0;
}

static hn_status collect(hone_error *err, collect_args *a, hn_npz *npz) {
    hn_cli_model *m = &a->model;
    bool rows = by_rows(m);
    int64_t samples = m->dataset ? hn_dataset_count(m->dataset) : 1, added = 0;
    for (int64_t s = 0; s < samples && kept_count(npz, m) < a->most; s++) {
        HN_TRY(hn_cli_model_sample(err, m, s));
        HN_TRY(hn_cli_model_run(err, m)); // what the model refuses is no calibration data
        for (int i = 0; i < m->input_count; i++) {
            const char *name = m->module->main->inputs.data[i]->name;
            hn_npz_item *item = item_of(npz, name);
            if (!item) HN_NOMEM(err, "collecting inputs");
            HN_TRY(append(err, name, &item->tensor, &m->inputs[i], rows));
        }
        added++;
    }
    if (added) HN_TRY(hn_npz_write(err, a->out_path, npz));
    hn_cli_printf("%lld %s in '%s'%s\n", (long long)kept_count(npz, m), rows ? "rows" : "samples", a->out_path,
           added ? "" : ": nothing added, --most is reached");
    return HONE_OK;
}

hone_status hn_cmd_collect(hone_error *err, int argc, char **argv, int *out_exit) {
    (void)out_exit;
    collect_args a = {.most = 1024};
    const hn_option options[] = {
        {"o", "OUT.npz", HN_OPT_STR, &a.out_path, "the file to add to; made where there is none"},
        {"most", "N", HN_OPT_I64, &a.most, "rows or samples kept in all (1024)"},
        HN_CLI_MODEL_OPTIONS(&a.model),
    };
    const char *path = NULL;
    int count;
    HN_TRY(hn_cli_parse(err, argc, argv, options, HN_COUNT_OF(options), &path, 1, &count));
    if (!path || !a.out_path) HN_FAIL(err, HONE_ERR_USAGE, "collect needs MODEL and -o OUT.npz");
    if (a.most < 1) HN_FAIL(err, HONE_ERR_USAGE, "--most must be 1 or more");
    // Made inputs are no data: calibrating on noise proves nothing.
    if (!a.model.files.count && !a.model.data)
        HN_FAIL(err, HONE_ERR_USAGE, "collect needs real inputs: --input NAME=FILE or --data");
    hn_npz npz = {0};
    HN_TRY(hn_cli_model_open(err, &a.model, path, false));
    hone_status status = HONE_OK;
    if (access(a.out_path, F_OK) == 0) status = hn_npz_read(err, a.out_path, &npz);
    if (status == HONE_OK && a.model.files.count && a.model.files.count < a.model.input_count && !a.model.data)
        status = HN_SET(err, HONE_ERR_USAGE, "%d of %d inputs are given; the others would be made up",
                        a.model.files.count, a.model.input_count);
    if (status == HONE_OK) status = collect(err, &a, &npz);
    hn_npz_free(&npz);
    hn_cli_model_close(&a.model);
    return status;
}
