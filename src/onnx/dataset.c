// SPDX-License-Identifier: Apache-2.0
// Data sets and made inputs: see dataset.h.
#include "base/rng.h"
#include "onnx/dataset.h"
#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>

// One file or test-data folder.
typedef struct part {
    int64_t first, count;         // samples
    hn_npz npz;                   // .npz: arrays
    const hn_tensor **columns;    // by graph input; borrowed from npz (owned array)
    hn_tensor *inputs;            // test folder: by graph input
    hn_tensor *outputs;           // test folder: by graph output, dtype HN_NONE if absent
    int64_t *labels;              // by row, NULL if none
} part;

struct hn_dataset {
    const hn_module *module;
    int64_t batch;
    int64_t count;
    HN_VEC(part) parts;
};

static int input_count(const hn_module *module) { return (int)module->main->inputs.count; }
static int output_count(const hn_module *module) { return (int)module->main->outputs.count; }

static void part_free(part *p, const hn_module *module) {
    for (int i = 0; p->inputs && i < input_count(module); i++)
        hn_tensor_free(&p->inputs[i]);
    for (int i = 0; p->outputs && i < output_count(module); i++)
        hn_tensor_free(&p->outputs[i]);
    hn_free(p->inputs);
    hn_free(p->outputs);
    hn_free(p->columns);
    hn_free(p->labels);
    hn_npz_free(&p->npz);
}

void hn_dataset_free(hn_dataset *dataset) {
    if (!dataset) return;
    for (size_t i = 0; i < dataset->parts.count; i++)
        part_free(&dataset->parts.data[i], dataset->module);
    hn_vec_free(&dataset->parts);
    hn_free(dataset);
}

// ---- npz ----------------------------------------------------------------------------------------
static hn_status check_column(hone_error *err, const hn_dataset *d, const char *path,
                              const hn_value *input, const hn_tensor *column) {
    if (column->dtype != input->type.dtype)
        HN_FAIL(err, HONE_ERR_INPUT, "'%s': array '%s' has type %s where the model's input has %s",
                path, input->name, hn_dtype_name(column->dtype), hn_dtype_name(input->type.dtype));
    int rank = column->shape.rank, own = input->type.rank;
    if (rank < 1 || (own == 0 && rank != 1))
        HN_FAIL(err, HONE_ERR_INPUT, "'%s': array '%s' has rank %d: its first axis must be the samples'%s",
                path, input->name, rank, own == 0 ? ", and its only one" : "");
    if (own > 0 && rank != own && rank != own + 1)
        HN_FAIL(err, HONE_ERR_INPUT, "'%s': array '%s' has rank %d where %d (or %d) is due", path,
                input->name, rank, own, own + 1);
    for (int i = 1; i < rank && own >= 0; i++) {
        hn_dim dim = input->type.dims[rank == own ? i : i - 1];
        if (hn_dim_is_const(dim) && dim != column->shape.dims[i])
            HN_FAIL(err, HONE_ERR_INPUT, "'%s': array '%s' has %lld on axis %d where %lld is due",
                    path, input->name, (long long)column->shape.dims[i], i, (long long)dim);
    }
    if (rank == own && column->shape.dims[0] % d->batch)
        HN_FAIL(err, HONE_ERR_INPUT, "'%s': array '%s' has %lld rows, no multiple of the batch %lld",
                path, input->name, (long long)column->shape.dims[0], (long long)d->batch);
    return HONE_OK;
}

static int64_t column_samples(const hn_dataset *d, const hn_value *input, const hn_tensor *column) {
    return column->shape.rank == input->type.rank ? column->shape.dims[0] / d->batch
                                                  : column->shape.dims[0];
}

// Classes of the first output where its type says it, else INT64_MAX.
static int64_t class_count(const hn_module *module) {
    if (module->main->outputs.count == 0) return INT64_MAX;
    const hn_type *type = &module->main->outputs.data[0]->type;
    bool scores = type->rank == 2 && hn_dim_is_const(type->dims[1]) && type->dims[1] > 1;
    return scores ? type->dims[1] : INT64_MAX;
}

// Labels that cannot be compared are refused: ignoring them would drop the accuracy that the user
// asked for without a word.
static hn_status load_labels(hone_error *err, const hn_dataset *d, const char *path, part *p,
                             int64_t rows) {
    const hn_tensor *labels = hn_npz_get(&p->npz, "labels");
    for (int i = 0; i < input_count(d->module); i++)
        if (strcmp(d->module->main->inputs.data[i]->name, "labels") == 0) labels = NULL;
    if (!labels) return HONE_OK;
    if (!hn_dtype_is_int(labels->dtype))
        HN_FAIL(err, HONE_ERR_INPUT, "'%s': labels are %s where class numbers (integers) are due",
                path, hn_dtype_name(labels->dtype));
    if (hn_tensor_count(labels) != rows)
        HN_FAIL(err, HONE_ERR_INPUT, "'%s' has %lld labels for %lld rows", path,
                (long long)hn_tensor_count(labels), (long long)rows);
    int64_t classes = class_count(d->module);
    for (int64_t i = 0; i < rows; i++) {
        int64_t label = hn_tensor_get_i64(labels, i);
        if (label < 0 || label >= classes)
            HN_FAIL(err, HONE_ERR_INPUT, "'%s': label %lld of row %lld is no class: they count from 0%s",
                    path, (long long)label, (long long)i,
                    label < 0 ? "" : " and the model has fewer");
    }
    p->labels = hn_calloc((size_t)rows + 1, sizeof *p->labels);
    if (!p->labels) HN_NOMEM(err, "reading labels");
    for (int64_t i = 0; i < rows; i++)
        p->labels[i] = hn_tensor_get_i64(labels, i);
    return HONE_OK;
}

static hn_status load_npz(hone_error *err, hn_dataset *d, const char *path, part *p) {
    HN_TRY(hn_npz_read(err, path, &p->npz));
    p->columns = hn_calloc((size_t)input_count(d->module) + 1, sizeof *p->columns);
    if (!p->columns) HN_NOMEM(err, "reading data");
    for (int i = 0; i < input_count(d->module); i++) {
        const hn_value *input = d->module->main->inputs.data[i];
        const hn_tensor *column = hn_npz_get(&p->npz, input->name);
        if (!column)
            HN_FAIL(err, HONE_ERR_INPUT, "'%s' has no array '%s' for that input of the model", path,
                    input->name);
        HN_TRY(check_column(err, d, path, input, column));
        int64_t samples = column_samples(d, input, column);
        if (i && samples != p->count)
            HN_FAIL(err, HONE_ERR_INPUT, "'%s': array '%s' has %lld samples, the others %lld", path,
                    input->name, (long long)samples, (long long)p->count);
        p->columns[i] = column;
        p->count = samples;
    }
    return load_labels(err, d, path, p, p->count * d->batch);
}

// ---- ONNX test-data folders ---------------------------------------------------------------------
static hn_status read_numbered(hone_error *err, const char *folder, const char *kind,
                               const hn_graph *graph, bool outputs, hn_tensor *tensors, int count,
                               bool *out_any) {
    char path[4096];
    hn_arena arena = {0};
    hone_status status = HONE_OK;
    *out_any = false;
    for (int i = 0; i < count && status == HONE_OK; i++) {
        struct stat info;
        const char *name = NULL;
        hn_tensor tensor = {0};
        snprintf(path, sizeof path, "%s/%s_%d.pb", folder, kind, i);
        if (stat(path, &info) != 0) continue;
        status = hn_onnx_read_tensor(err, path, &arena, &name, &tensor);
        if (status != HONE_OK) break;
        // Files carry names, but not all; position decides where the name is unknown.
        int at = i;
        for (int k = 0; name && *name && k < count; k++) {
            const hn_value *value = outputs ? graph->outputs.data[k] : graph->inputs.data[k];
            if (strcmp(value->name, name) == 0) at = k;
        }
        hn_tensor_free(&tensors[at]);
        tensors[at] = tensor;
        *out_any = true;
    }
    hn_arena_free(&arena);
    return status;
}

static hn_status load_test_folder(hone_error *err, hn_dataset *d, const char *path, part *p) {
    bool any;
    int inputs = input_count(d->module), outputs = output_count(d->module);
    p->count = 1;
    p->inputs = hn_calloc((size_t)inputs + 1, sizeof *p->inputs);
    p->outputs = hn_calloc((size_t)outputs + 1, sizeof *p->outputs);
    if (!p->inputs || !p->outputs) HN_NOMEM(err, "reading data");
    HN_TRY(read_numbered(err, path, "input", d->module->main, false, p->inputs, inputs, &any));
    for (int i = 0; i < inputs; i++)
        if (p->inputs[i].dtype == HN_NONE)
            HN_FAIL(err, HONE_ERR_INPUT, "'%s' has no file for the input '%s'", path,
                    d->module->main->inputs.data[i]->name);
    return read_numbered(err, path, "output", d->module->main, true, p->outputs, outputs, &any);
}

// ---- opening ------------------------------------------------------------------------------------
static bool ends_with(const char *text, const char *end) {
    size_t a = strlen(text), b = strlen(end);
    return a >= b && strcmp(text + a - b, end) == 0;
}

static hn_status add_part(hone_error *err, hn_dataset *d, const char *path, bool folder) {
    part p = {.first = d->count};
    hone_status status = folder ? load_test_folder(err, d, path, &p) : load_npz(err, d, path, &p);
    if (status == HONE_OK && !hn_vec_push(&d->parts, p))
        status = HN_SET(err, HONE_ERR_NOMEM, "out of memory (reading data)");
    if (status != HONE_OK) {
        part_free(&p, d->module);
        return status;
    }
    d->count += p.count;
    return HONE_OK;
}

static int by_name(const void *a, const void *b) {
    // Numbers in names count as numbers: test_data_set_10 comes after test_data_set_9.
    return strverscmp(*(char *const *)a, *(char *const *)b);
}

static hn_status list_folder(hone_error *err, const char *path, hn_arena *arena, char ***out_names,
                             size_t *out_count) {
    DIR *dir = opendir(path);
    if (!dir) HN_FAIL(err, HONE_ERR_INPUT, "cannot read the folder '%s'", path);
    HN_VEC(char *) names = {0};
    bool room = true;
    for (struct dirent *entry; room && (entry = readdir(dir));)
        if (entry->d_name[0] != '.')
            room = hn_vec_push(&names, hn_arena_strdup(arena, entry->d_name));
    closedir(dir);
    if (!room) {
        hn_vec_free(&names);
        HN_NOMEM(err, "listing a folder");
    }
    if (names.count) qsort(names.data, names.count, sizeof *names.data, by_name);
    *out_names = names.data;
    *out_count = names.count;
    return HONE_OK;
}

static hn_status open_folder(hone_error *err, hn_dataset *d, const char *path) {
    hn_arena arena = {0};
    char **names = NULL;
    size_t count = 0;
    char full[4096];
    struct stat info;
    snprintf(full, sizeof full, "%s/input_0.pb", path);
    if (stat(full, &info) == 0) return add_part(err, d, path, true);
    hone_status status = list_folder(err, path, &arena, &names, &count);
    for (size_t i = 0; i < count && status == HONE_OK; i++) {
        int length = snprintf(full, sizeof full, "%s/%s", path, names[i]);
        if (length < 0 || (size_t)length >= sizeof full || stat(full, &info) != 0) continue;
        if (S_ISDIR(info.st_mode) && strncmp(names[i], "test_data_set_", 14) == 0)
            status = add_part(err, d, full, true);
        else if (S_ISREG(info.st_mode) && ends_with(names[i], ".npz"))
            status = add_part(err, d, full, false);
    }
    hn_free(names);
    hn_arena_free(&arena);
    if (status == HONE_OK && d->parts.count == 0)
        HN_FAIL(err, HONE_ERR_INPUT, "'%s' holds neither .npz files nor test_data_set_N folders",
                path);
    return status;
}

static int64_t model_batch(const hn_module *module) {
    for (int i = 0; i < input_count(module); i++) {
        const hn_type *type = &module->main->inputs.data[i]->type;
        if (type->rank > 0 && hn_dim_is_const(type->dims[0]) && type->dims[0] > 0)
            return type->dims[0];
    }
    return 0;
}

hn_status hn_dataset_open(hone_error *err, const char *path, const hn_module *module,
                          int64_t batch, hn_dataset **out_dataset) {
    struct stat info;
    if (stat(path, &info) != 0) HN_FAIL(err, HONE_ERR_INPUT, "there is no data at '%s'", path);
    hn_dataset *d = hn_calloc(1, sizeof *d);
    if (!d) HN_NOMEM(err, "reading data");
    d->module = module;
    d->batch = batch > 0 ? batch : model_batch(module);
    if (d->batch <= 0) d->batch = 1;
    hone_status status = S_ISDIR(info.st_mode) ? open_folder(err, d, path)
                                               : add_part(err, d, path, false);
    if (status == HONE_OK && d->count == 0)
        status = HN_SET(err, HONE_ERR_INPUT, "'%s' holds no samples", path);
    if (status != HONE_OK) {
        hn_dataset_free(d);
        return status;
    }
    *out_dataset = d;
    return HONE_OK;
}

int64_t hn_dataset_count(const hn_dataset *dataset) { return dataset->count; }
int64_t hn_dataset_batch(const hn_dataset *dataset) { return dataset->batch; }

static const part *find_part(const hn_dataset *d, int64_t sample) {
    for (size_t i = 0; i < d->parts.count; i++)
        if (sample >= d->parts.data[i].first &&
            sample < d->parts.data[i].first + d->parts.data[i].count)
            return &d->parts.data[i];
    return NULL;
}

hn_status hn_dataset_get(hone_error *err, const hn_dataset *dataset, int64_t sample,
                         hn_tensor *out_inputs) {
    const part *p = find_part(dataset, sample);
    if (!p) HN_FAIL(err, HONE_ERR_INTERNAL, "sample %lld does not exist", (long long)sample);
    int64_t at = sample - p->first;
    for (int i = 0; i < input_count(dataset->module); i++) {
        if (p->inputs) {
            out_inputs[i] = p->inputs[i];
            out_inputs[i].buffer = NULL;
            continue;
        }
        const hn_tensor *column = p->columns[i];
        bool rows = column->shape.rank == dataset->module->main->inputs.data[i]->type.rank;
        hn_tensor view = {.dtype = column->dtype, .shape = column->shape};
        int64_t samples = p->count;
        view.bytes = column->bytes / (size_t)samples;
        view.data = (char *)column->data + (size_t)at * view.bytes;
        if (rows) {
            view.shape.dims[0] = dataset->batch;
        } else {
            view.shape.rank--;
            memmove(view.shape.dims, view.shape.dims + 1,
                    sizeof view.shape.dims[0] * (size_t)view.shape.rank);
        }
        out_inputs[i] = view;
    }
    return HONE_OK;
}

bool hn_dataset_labels(const hn_dataset *dataset, int64_t sample, const int64_t **out_labels) {
    const part *p = find_part(dataset, sample);
    if (!p || !p->labels) return false;
    *out_labels = p->labels + (sample - p->first) * dataset->batch;
    return true;
}

const hn_tensor *hn_dataset_reference(const hn_dataset *dataset, int64_t sample, int index) {
    const part *p = find_part(dataset, sample);
    if (!p || !p->outputs || p->outputs[index].dtype == HN_NONE) return NULL;
    return &p->outputs[index];
}

// ---- rows that are no numbers -------------------------------------------------------------------
// What is taken out together: a row, or a sample where arrays disagree on what their first axis is.
static int64_t unit_of(const hn_dataset *d, const part *p, int input) {
    bool rows = true;
    for (int i = 0; i < input_count(d->module); i++)
        rows = rows && p->columns[i]->shape.rank == d->module->main->inputs.data[i]->type.rank;
    return rows || p->columns[input]->shape.rank != d->module->main->inputs.data[input]->type.rank ? 1 : d->batch;
}

static int64_t unit_count(const hn_dataset *d, const part *p) {
    return p->columns && input_count(d->module) ? p->columns[0]->shape.dims[0] / unit_of(d, p, 0) : 0;
}

static double first_odd(const hn_tensor *t, int64_t from, int64_t count) { // 0: all are finite
    for (int64_t i = from; i < from + count; i++) {
        double x = t->dtype == HN_F32 ? (double)((const float *)t->data)[i] : hn_tensor_get_f64(t, i);
        if (!isfinite(x)) return x;
    }
    return 0;
}

// The first input of the unit that is not finite, with the number; -1: none.
static int odd_input(const hn_dataset *d, const part *p, int64_t unit, double *out_odd) {
    for (int i = 0; i < input_count(d->module); i++) {
        const hn_tensor *t = p->columns[i];
        if (!hn_dtype_is_float(t->dtype)) continue;
        int64_t width = hn_tensor_count(t) / unit_count(d, p);
        *out_odd = first_odd(t, unit * width, width);
        if (*out_odd != 0) return i;
    }
    return -1;
}

// Closes the gap that broken units leave; the rest of a batch goes as well.
static void close_gaps(hn_dataset *d, part *p) {
    int64_t units = unit_count(d, p), kept = 0;
    int64_t labels = p->count * d->batch / hn_max_i64(1, units);
    double odd;
    for (int64_t u = 0; u < units; u++) {
        if (odd_input(d, p, u, &odd) >= 0) continue;
        for (int i = 0; i < input_count(d->module) && kept != u; i++) {
            const hn_tensor *t = p->columns[i];
            size_t bytes = t->bytes / (size_t)units;
            memmove((char *)t->data + (size_t)kept * bytes, (char *)t->data + (size_t)u * bytes, bytes);
        }
        if (p->labels && kept != u)
            memmove(p->labels + kept * labels, p->labels + u * labels, sizeof *p->labels * (size_t)labels);
        kept++;
    }
    int64_t samples = kept * p->count / units;
    for (int i = 0; i < input_count(d->module); i++) {
        hn_tensor *t = (hn_tensor *)(uintptr_t)p->columns[i]; // of the arrays that the part owns
        int64_t entry = t->shape.dims[0] / p->count;
        t->bytes = t->bytes / (size_t)t->shape.dims[0] * (size_t)(samples * entry);
        t->shape.dims[0] = samples * entry;
    }
    p->count = samples;
}

void hn_dataset_drop_broken(hn_dataset *d, hn_broken_rows *out_rows) {
    hn_broken_rows r = {.first = -1};
    int64_t left = 0;
    for (size_t k = 0; k < d->parts.count; k++) {
        const part *p = &d->parts.data[k];
        int64_t units = unit_count(d, p), good = 0;
        for (int64_t u = 0; u < units; u++) {
            double odd;
            int input = odd_input(d, p, u, &odd);
            good += input < 0;
            if (input < 0 || r.first >= 0) continue;
            r.first = r.of + u;
            r.infinite = isinf(odd);
            snprintf(r.input, sizeof r.input, "%s", d->module->main->inputs.data[input]->name);
        }
        r.rows += units - good;
        r.of += units;
        left += units ? good * p->count / units : p->count;
    }
    r.dropped = r.rows && 2 * r.rows <= r.of && left >= hn_min_i64(2, d->count);
    int64_t first = 0;
    for (size_t k = 0; k < d->parts.count && r.dropped; k++) {
        part *p = &d->parts.data[k];
        if (unit_count(d, p)) close_gaps(d, p);
        p->first = first;
        first += p->count;
    }
    if (r.dropped) d->count = first;
    *out_rows = r;
}

// ---- made inputs --------------------------------------------------------------------------------
static hn_status parse_spec(hone_error *err, const hn_module *module, const char *spec,
                            hn_shape *shapes) {
    const char *equals = strrchr(spec, '=');
    if (!equals)
        HN_FAIL(err, HONE_ERR_USAGE, "--shape: '%s' is not of the form name=1x3x224x224", spec);
    hn_slice name = {spec, (size_t)(equals - spec)};
    int index = -1;
    for (int i = 0; i < input_count(module); i++)
        if (hn_slice_eq(name, module->main->inputs.data[i]->name)) index = i;
    if (index < 0)
        HN_FAIL(err, HONE_ERR_USAGE, "--shape: the model has no input '%.*s'", (int)name.length,
                name.data);
    hn_shape shape = {0};
    for (const char *at = equals + 1; *at;) {
        size_t length = strcspn(at, "x");
        if (shape.rank == HN_MAX_RANK ||
            !hn_parse_i64((hn_slice){at, length}, &shape.dims[shape.rank]) ||
            shape.dims[shape.rank] < 0)
            HN_FAIL(err, HONE_ERR_USAGE, "--shape: '%s' is not of the form name=1x3x224x224", spec);
        shape.rank++;
        at += length + (at[length] == 'x');
    }
    const hn_type *type = &module->main->inputs.data[index]->type;
    if (type->rank >= 0 && type->rank != shape.rank)
        HN_FAIL(err, HONE_ERR_USAGE, "--shape: input '%.*s' has rank %d", (int)name.length,
                name.data, type->rank);
    for (int i = 0; i < type->rank; i++)
        if (hn_dim_is_const(type->dims[i]) && type->dims[i] != shape.dims[i])
            HN_FAIL(err, HONE_ERR_USAGE, "--shape: axis %d of '%.*s' is fixed at %lld", i,
                    (int)name.length, name.data, (long long)type->dims[i]);
    shapes[index] = shape;
    return HONE_OK;
}

// A free dim that another input's spec has bound already is taken from there.
static bool bound_elsewhere(const hn_module *module, const hn_shape *shapes, const bool *given,
                            hn_dim dim, int64_t *out_value) {
    if (!*hn_dim_symbol_name(module->dims, dim)) return false;
    for (int i = 0; i < input_count(module); i++)
        for (int axis = 0; given[i] && axis < module->main->inputs.data[i]->type.rank; axis++)
            if (module->main->inputs.data[i]->type.dims[axis] == dim) {
                *out_value = shapes[i].dims[axis];
                return true;
            }
    return false;
}

hn_status hn_inputs_shapes(hone_error *err, const hn_module *module, const char *const *specs,
                           int spec_count, hn_shape *out_shapes) {
    bool given[64] = {false};
    int count = input_count(module);
    if (count > 64) HN_FAIL(err, HONE_ERR_UNSUPPORTED, "the model has more than 64 inputs");
    for (int i = 0; i < count; i++)
        out_shapes[i] = (hn_shape){.rank = -1};
    for (int i = 0; i < spec_count; i++)
        HN_TRY(parse_spec(err, module, specs[i], out_shapes));
    for (int i = 0; i < count; i++)
        given[i] = out_shapes[i].rank >= 0;
    for (int i = 0; i < count; i++) {
        const hn_value *input = module->main->inputs.data[i];
        if (given[i]) continue;
        if (input->type.rank < 0)
            HN_FAIL(err, HONE_ERR_USAGE, "input '%s' has no declared shape: give --shape %s=...",
                    input->name, input->name);
        out_shapes[i].rank = input->type.rank;
        for (int axis = 0; axis < input->type.rank; axis++) {
            hn_dim dim = input->type.dims[axis];
            int64_t value = 1;
            if (hn_dim_is_const(dim)) {
                value = dim;
            } else if (!bound_elsewhere(module, out_shapes, given, dim, &value) && axis > 0) {
                hn_str text = {0};
                hn_dim_print(&text, module->dims, dim);
                hone_status status = HN_SET(
                    err, HONE_ERR_USAGE,
                    "axis %d of input '%s' is free (%s): give --shape %s=... or --data", axis,
                    input->name, hn_str_get(&text), input->name);
                hn_str_free(&text);
                return status;
            }
            out_shapes[i].dims[axis] = value;
        }
    }
    return HONE_OK;
}

hn_status hn_inputs_random(hone_error *err, const hn_module *module, const hn_shape *shapes,
                           uint64_t seed, hn_tensor *out_inputs) {
    int count = input_count(module);
    for (int i = 0; i < count; i++)
        out_inputs[i] = (hn_tensor){0};
    for (int i = 0; i < count; i++) {
        hn_dtype dtype = module->main->inputs.data[i]->type.dtype;
        hone_status status = hn_tensor_new(err, dtype, &shapes[i], &out_inputs[i]);
        if (status != HONE_OK) {
            for (int k = 0; k < i; k++)
                hn_tensor_free(&out_inputs[k]);
            return status;
        }
        hn_rng rng = hn_rng_seed(seed * 1000003 + (uint64_t)i);
        int64_t elements = hn_tensor_count(&out_inputs[i]);
        for (int64_t e = 0; e < elements; e++) {
            if (dtype == HN_F32)
                ((float *)out_inputs[i].data)[e] = (float)hn_rng_normal(&rng);
            else if (hn_dtype_is_float(dtype))
                hn_tensor_set_f64(&out_inputs[i], e, hn_rng_normal(&rng));
            else
                hn_tensor_set_i64(&out_inputs[i], e, (int64_t)(hn_rng_next(&rng) & 1));
        }
    }
    return HONE_OK;
}
