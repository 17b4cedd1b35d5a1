// SPDX-License-Identifier: Apache-2.0
// TensorProto to and from hn_tensor: every storage form, external files, sparse tensors, test data.
//
// Data that is aligned for its type stays where it is (a view of the mapping); misaligned data is
// copied in pieces, and the mapping's pages are given back as it goes, so that memory never holds
// both. Files of external data are mapped once and must lie in the model's folder, links resolved.
#include "onnx/onnx_int.h"
#include "config/config.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

// ---- files --------------------------------------------------------------------------------------
static void unmap(void *user) {
    hn_map_close(user);
    hn_free(user);
}

hn_status hn_onnx_map(hone_error *err, const char *path, hn_buffer **out_buffer) {
    hn_map *map = hn_calloc(1, sizeof *map);
    if (!map) HN_NOMEM(err, "mapping a file");
    hone_status status = hn_map_open(err, path, map);
    if (status != HONE_OK) {
        hn_free(map);
        return status;
    }
    hn_buffer *buffer = hn_buffer_wrap(map->data, map->size_bytes, unmap, map);
    if (!buffer) {
        unmap(map);
        HN_NOMEM(err, "mapping a file");
    }
    *out_buffer = buffer;
    return HONE_OK;
}

void hn_onnx_source_free(hn_onnx_source *source) {
    for (size_t i = 0; i < source->external.count; i++)
        hn_buffer_unref(source->external.data[i].file);
    hn_vec_free(&source->external);
    hn_arena_free(&source->scratch);
}

// True if a relative path has no empty, "." or ".." part.
static bool plain_relative(const char *path) {
    if (!*path || *path == '/') return false;
    while (*path) {
        size_t length = strcspn(path, "/");
        if (length == 2 && path[0] == '.' && path[1] == '.') return false;
        path += length;
        path += *path == '/';
    }
    return true;
}

// The real path of folder/location; it must lie in the real folder.
static hn_status resolve(hone_error *err, const char *folder, const char *location,
                         char resolved[PATH_MAX]) {
    char joined[PATH_MAX], root[PATH_MAX];
    int length = snprintf(joined, sizeof joined, "%s/%s", folder, location);
    if (length < 0 || (size_t)length >= sizeof joined)
        HN_FAIL(err, HONE_ERR_FORMAT, "the path of the external file '%.100s' is too long",
                location);
    if (!realpath(folder, root)) HN_FAIL(err, HONE_ERR_IO, "cannot find the folder '%s'", folder);
    if (!realpath(joined, resolved))
        HN_FAIL(err, HONE_ERR_FORMAT, "the external file '%s' is missing", location);
    size_t root_length = strlen(root);
    if (root_length == 1) root_length = 0; // "/"
    if (strncmp(resolved, root, root_length) != 0 || resolved[root_length] != '/')
        HN_FAIL(err, HONE_ERR_FORMAT, "the external file '%s' is a link that leads out of '%s'",
                location, folder);
    return HONE_OK;
}

static hn_status external_file(hone_error *err, hn_onnx_source *source, hn_slice location,
                               hn_buffer **out_file) {
    char quoted[128];
    for (size_t i = 0; i < source->external.count; i++) {
        if (!hn_slice_eq(location, source->external.data[i].location)) continue;
        *out_file = source->external.data[i].file;
        return HONE_OK;
    }
    hn_pb_quote(location, quoted, sizeof quoted);
    if (!source->folder)
        HN_FAIL(err, HONE_ERR_FORMAT, "external data '%s' is not allowed for a model from memory",
                quoted);
    if (source->external.count == HN_ONNX_MAX_EXTERNAL)
        HN_FAIL(err, HONE_ERR_LIMIT, "the model has more than %d external files",
                HN_ONNX_MAX_EXTERNAL);
    char *name = hn_pb_name_ok(location)
                     ? hn_arena_strndup(&source->scratch, location.data, location.length)
                     : NULL;
    if (!name || !plain_relative(name))
        HN_FAIL(err, HONE_ERR_FORMAT,
                "the external file '%s' is not a plain path inside the model's folder", quoted);
    char path[PATH_MAX];
    HN_TRY(resolve(err, source->folder, name, path));
    hn_onnx_external entry = {name, NULL};
    HN_TRY(hn_onnx_map(err, path, &entry.file));
    source->external_bytes += hn_buffer_bytes(entry.file);
    if (source->external_bytes > (uint64_t)hn_config_get()->max_model_bytes) {
        hn_buffer_unref(entry.file);
        HN_FAIL(err, HONE_ERR_LIMIT, "the external files are larger than max_model_bytes");
    }
    if (!hn_vec_push(&source->external, entry)) {
        hn_buffer_unref(entry.file);
        HN_NOMEM(err, "mapping an external file");
    }
    *out_file = entry.file;
    return HONE_OK;
}

// ---- placing data -------------------------------------------------------------------------------
static size_t alignment_of(hn_dtype dtype) {
    if (dtype == HN_C64) return 4;
    if (dtype == HN_C128) return 8;
    size_t bytes = hn_dtype_bytes(dtype);
    return bytes ? bytes : 1;
}

#define COPY_STEP ((size_t)4 << 20)

// A tensor over `data`, which `owner` holds (NULL: nobody, copy). mapped: owner is a file mapping.
static hn_status place(hone_error *err, hn_buffer *owner, bool mapped, const uint8_t *data,
                       hn_dtype dtype, const hn_shape *shape, size_t bytes, hn_tensor *out_tensor) {
    if (owner && (uintptr_t)data % alignment_of(dtype) == 0) {
        *out_tensor = (hn_tensor){.dtype = dtype,
                                  .shape = *shape,
                                  .data = (void *)(uintptr_t)data,
                                  .bytes = bytes,
                                  .buffer = hn_buffer_ref(owner)};
        return HONE_OK;
    }
    HN_TRY(hn_tensor_new(err, dtype, shape, out_tensor));
    for (size_t at = 0; at < bytes; at += COPY_STEP) {
        size_t step = bytes - at < COPY_STEP ? bytes - at : COPY_STEP;
        memcpy((char *)out_tensor->data + at, data + at, step);
        if (mapped && bytes >= COPY_STEP) hn_map_forget(data + at, step);
    }
    return HONE_OK;
}

// Any byte but 0 and 1 in a tensor of booleans becomes 1: code that reads them as bool relies on
// it.
static hn_status clean_bools(hone_error *err, hn_tensor *tensor) {
    const uint8_t *data = tensor->data;
    size_t at = 0;
    while (at < tensor->bytes && data[at] <= 1)
        at++;
    if (at == tensor->bytes) return HONE_OK;
    hn_tensor clean;
    HN_TRY(hn_tensor_new(err, HN_BOOL, &tensor->shape, &clean));
    for (size_t i = 0; i < tensor->bytes; i++)
        ((uint8_t *)clean.data)[i] = data[i] != 0;
    hn_tensor_free(tensor);
    *tensor = clean;
    return HONE_OK;
}

// ---- typed lists --------------------------------------------------------------------------------
// Range of what one element of int32_data may hold for a type; both signs of 16-bit patterns occur.
static void int32_range(hn_dtype dtype, int64_t *lo, int64_t *hi) {
    int bits = hn_dtype_bits(dtype) < 8 ? 8 : hn_dtype_bits(dtype);
    bool pattern = hn_dtype_is_float(dtype) || hn_dtype_bits(dtype) < 8;
    *lo = hn_dtype_is_signed(dtype) || pattern ? -((int64_t)1 << (bits - 1)) : 0;
    *hi = hn_dtype_is_signed(dtype) && !pattern ? ((int64_t)1 << (bits - 1)) - 1
                                                : ((int64_t)1 << bits) - 1;
}

static void store_little(uint8_t *at, uint64_t value, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        at[i] = (uint8_t)(value >> (8 * i));
}

// Decodes varints, each into `unit` bytes. Exactly `bytes` must come out.
static hn_status decode_varints(hone_error *err, const char *label, const hn_pb_list *list,
                                hn_dtype dtype, hn_tensor *tensor) {
    size_t unit = hn_dtype_bits(dtype) < 8 ? 1 : hn_dtype_bytes(dtype), at = 0;
    int64_t lo = INT64_MIN, hi = INT64_MAX;
    if (unit < 8 && dtype != HN_U32) int32_range(dtype, &lo, &hi);
    if (dtype == HN_BOOL) lo = INT32_MIN, hi = INT32_MAX;
    for (size_t i = 0; i < list->count; i++) {
        for (hn_wire rest = list->items[i]; rest.at < rest.end;) {
            uint64_t value;
            const char *why = hn_wire_varint(&rest, &value);
            if (why) HN_FAIL(err, HONE_ERR_FORMAT, "the data of %s is broken: %s", label, why);
            if (at == tensor->bytes)
                HN_FAIL(err, HONE_ERR_FORMAT, "%s has more elements than its dims say", label);
            if ((int64_t)value < lo || (int64_t)value > hi || (dtype == HN_U32 && value >> 32))
                HN_FAIL(err, HONE_ERR_FORMAT, "element %zu of %s is %lld, which %s cannot hold",
                        at / unit, label, (long long)value, hn_dtype_name(dtype));
            if (dtype == HN_BOOL) value = value != 0;
            store_little((uint8_t *)tensor->data + at, value, unit);
            at += unit;
        }
    }
    if (at != tensor->bytes)
        HN_FAIL(err, HONE_ERR_FORMAT, "%s has %zu elements where its dims ask for %zu", label,
                at / unit, tensor->bytes / unit);
    return HONE_OK;
}

// The list that holds a type's elements when they are not raw, and whether its elements are
// varints.
static const hn_pb_list *typed_list(const hn_pb_tensor *pb, hn_dtype dtype, bool *out_varints) {
    *out_varints = false;
    switch (dtype) {
    case HN_F32:
    case HN_C64:
        return &pb->float_data;
    case HN_F64:
    case HN_C128:
        return &pb->double_data;
    default:
        break;
    }
    *out_varints = true;
    if (dtype == HN_I64) return &pb->int64_data;
    if (dtype == HN_U64 || dtype == HN_U32) return &pb->uint64_data;
    return &pb->int32_data;
}

static hn_status typed_data(hone_error *err, hn_onnx_source *source, const char *label,
                            const hn_pb_tensor *pb, hn_dtype dtype, const hn_shape *shape,
                            size_t bytes, hn_tensor *out_tensor) {
    bool varints;
    const hn_pb_list *list = typed_list(pb, dtype, &varints);
    size_t have = hn_pb_list_bytes(list);
    if (have == 0 && bytes) HN_FAIL(err, HONE_ERR_FORMAT, "%s has no data", label);
    if (!varints && have != bytes)
        HN_FAIL(err, HONE_ERR_FORMAT, "%s has %zu bytes of data where its dims ask for %zu", label,
                have, bytes);
    // Each varint has a byte at least: what the dims ask for is checked before it is allocated.
    size_t elements = hn_dtype_bytes(dtype) ? bytes / hn_dtype_bytes(dtype) : bytes;
    if (varints && have < elements)
        HN_FAIL(err, HONE_ERR_FORMAT, "%s has at most %zu elements where its dims ask for %zu",
                label, have, elements);
    if (!varints && list->count == 1)
        return place(err, source->buffer, source->mapped, list->items[0].at, dtype, shape, bytes,
                     out_tensor);
    hn_tensor tensor;
    HN_TRY(hn_tensor_new(err, dtype, shape, &tensor));
    if (varints) {
        hone_status status = decode_varints(err, label, list, dtype, &tensor);
        if (status != HONE_OK) {
            hn_tensor_free(&tensor);
            return status;
        }
    } else {
        char *at = tensor.data;
        for (size_t i = 0; i < list->count; i++) {
            memcpy(at, list->items[i].at, hn_wire_left(&list->items[i]));
            at += hn_wire_left(&list->items[i]);
        }
    }
    *out_tensor = tensor;
    return HONE_OK;
}

// ---- external data ------------------------------------------------------------------------------
static hn_status external_data(hone_error *err, hn_onnx_source *source, const char *label,
                               const hn_pb_tensor *pb, hn_dtype dtype, const hn_shape *shape,
                               size_t bytes, hn_tensor *out_tensor) {
    hn_slice location = {0};
    int64_t offset = 0, length = -1;
    for (size_t i = 0; i < pb->external.count; i++) {
        hn_pb_entry entry;
        HN_TRY(hn_pb_read_entry(err, &source->scratch, pb->external.items[i], &entry));
        bool ok = true;
        if (hn_slice_eq(entry.key, "location")) location = entry.value;
        if (hn_slice_eq(entry.key, "offset"))
            ok = hn_parse_i64(entry.value, &offset) && offset >= 0;
        if (hn_slice_eq(entry.key, "length"))
            ok = hn_parse_i64(entry.value, &length) && length >= 0;
        if (!ok)
            HN_FAIL(err, HONE_ERR_FORMAT, "%s has an external %.*s that is no size", label,
                    (int)entry.key.length, entry.key.data);
    }
    if (length >= 0 && (uint64_t)length != bytes)
        HN_FAIL(err, HONE_ERR_FORMAT,
                "%s has %lld bytes of external data where its dims ask for %zu", label,
                (long long)length, bytes);
    hn_buffer *file = NULL;
    HN_TRY_CTX(err, external_file(err, source, location, &file), "external data of %.90s", label);
    size_t size = hn_buffer_bytes(file);
    if ((uint64_t)offset > size || bytes > size - (size_t)offset) {
        char quoted[128];
        HN_FAIL(err, HONE_ERR_FORMAT, "%s lies at bytes %lld to %.0f of '%s', which has %zu", label,
                (long long)offset, (double)offset + (double)bytes,
                hn_pb_quote(location, quoted, sizeof quoted), size);
    }
    return place(err, file, true, (const uint8_t *)hn_buffer_data(file) + offset, dtype, shape,
                 bytes, out_tensor);
}

// ---- TensorProto --------------------------------------------------------------------------------
static hn_status read_shape(hone_error *err, hn_onnx_source *source, const char *label,
                            const hn_pb_list *list, hn_shape *out_shape) {
    const int64_t *dims;
    int64_t rank;
    HN_TRY(hn_pb_ints(err, &source->scratch, list, &dims, &rank));
    if (rank > HN_MAX_RANK)
        HN_FAIL(err, HONE_ERR_UNSUPPORTED, "%s has %lld dims, more than the %d supported", label,
                (long long)rank, HN_MAX_RANK);
    hn_shape shape = {.rank = (int)rank};
    for (int i = 0; i < shape.rank; i++) {
        if (dims[i] < 0)
            HN_FAIL(err, HONE_ERR_FORMAT, "%s has the negative dim %lld", label,
                    (long long)dims[i]);
        shape.dims[i] = dims[i];
    }
    *out_shape = shape;
    return HONE_OK;
}

static const char *tensor_label(hn_slice name, char *buf, size_t size) {
    char quoted[96];
    if (name.length == 0)
        snprintf(buf, size, "an unnamed tensor");
    else
        snprintf(buf, size, "tensor '%s'", hn_pb_quote(name, quoted, sizeof quoted));
    return buf;
}

static bool has_typed_data(const hn_pb_tensor *pb) {
    return pb->float_data.count || pb->int32_data.count || pb->int64_data.count ||
           pb->double_data.count || pb->uint64_data.count || pb->string_data.count;
}

static hn_status check_dtype(hone_error *err, const char *label, const hn_pb_tensor *pb,
                             hn_dtype *out_dtype) {
    hn_dtype dtype = hn_dtype_from_onnx(pb->data_type);
    if (dtype == HN_NONE)
        HN_FAIL(err, HONE_ERR_FORMAT, "%s has the unknown element type %lld", label,
                (long long)pb->data_type);
    if (dtype == HN_STRING)
        HN_FAIL(err, HONE_ERR_UNSUPPORTED, "%s holds strings, which are not supported", label);
    if (HN_PB_HAS(pb, tensor, segment))
        HN_FAIL(err, HONE_ERR_UNSUPPORTED, "%s is stored in segments, which are not supported",
                label);
    *out_dtype = dtype;
    return HONE_OK;
}

hn_status hn_onnx_tensor(hone_error *err, hn_onnx_source *source, hn_wire wire, hn_slice *out_name,
                         hn_tensor *out_tensor) {
    hn_pb_tensor pb;
    char label[128];
    HN_TRY(hn_pb_read_tensor(err, &source->scratch, wire, &pb));
    tensor_label(pb.name, label, sizeof label);
    hn_dtype dtype = HN_NONE;
    hn_shape shape;
    size_t bytes;
    HN_TRY(check_dtype(err, label, &pb, &dtype));
    HN_TRY(read_shape(err, source, label, &pb.dims, &shape));
    if (!hn_shape_bytes(&shape, dtype, &bytes))
        HN_FAIL(err, HONE_ERR_LIMIT, "%s is larger than memory can be: its dims overflow", label);
    bool raw = HN_PB_HAS(&pb, tensor, raw_data), external = pb.location == 1;
    if (pb.location != 0 && !external)
        HN_FAIL(err, HONE_ERR_FORMAT, "%s has the unknown data location %lld", label,
                (long long)pb.location);
    size_t raw_bytes = hn_wire_left(&pb.raw_data);
    if ((external && raw_bytes) || ((external || raw_bytes) && has_typed_data(&pb)))
        HN_FAIL(err, HONE_ERR_FORMAT, "%s stores its data in two forms", label);
    hn_tensor tensor;
    if (external) {
        HN_TRY(external_data(err, source, label, &pb, dtype, &shape, bytes, &tensor));
    } else if (raw && !has_typed_data(&pb)) {
        if (raw_bytes != bytes)
            HN_FAIL(err, HONE_ERR_FORMAT, "%s has %zu bytes of data where its dims ask for %zu",
                    label, raw_bytes, bytes);
        HN_TRY(place(err, source->buffer, source->mapped, pb.raw_data.at, dtype, &shape, bytes,
                     &tensor));
    } else {
        HN_TRY(typed_data(err, source, label, &pb, dtype, &shape, bytes, &tensor));
    }
    hone_status status = dtype == HN_BOOL ? clean_bools(err, &tensor) : HONE_OK;
    if (status != HONE_OK) {
        hn_tensor_free(&tensor);
        return status;
    }
    *out_name = pb.name;
    *out_tensor = tensor;
    return HONE_OK;
}

// ---- SparseTensorProto --------------------------------------------------------------------------
// Flat position of the k-th value; indices are [n] flat ones or [n, rank] coordinates.
static hn_status sparse_position(hone_error *err, const char *label, const hn_tensor *indices,
                                 const hn_shape *shape, int64_t count, int64_t k,
                                 int64_t *out_position) {
    const int64_t *data = indices->data;
    int64_t position = 0;
    bool inside = true;
    if (indices->shape.rank == 1) {
        position = data[k];
        inside = position >= 0 && position < count;
    } else {
        for (int axis = 0; axis < shape->rank && inside; axis++) {
            int64_t at = data[k * shape->rank + axis];
            inside = at >= 0 && at < shape->dims[axis];
            position = position * shape->dims[axis] + at;
        }
    }
    if (!inside)
        HN_FAIL(err, HONE_ERR_FORMAT, "index %lld of the sparse %s lies outside its dims",
                (long long)k, label);
    *out_position = position;
    return HONE_OK;
}

static hn_status densify(hone_error *err, const char *label, const hn_tensor *values,
                         const hn_tensor *indices, const hn_shape *shape, hn_tensor *out_tensor) {
    int64_t count, stored = hn_tensor_count(values);
    size_t bytes, unit = hn_dtype_bytes(values->dtype);
    if (!hn_shape_count(shape, &count) || !hn_shape_bytes(shape, values->dtype, &bytes) ||
        bytes > HN_ONNX_SPARSE_BYTES)
        HN_FAIL(err, HONE_ERR_LIMIT, "the sparse %s would take more than %zu MiB as a dense one",
                label, HN_ONNX_SPARSE_BYTES >> 20);
    bool flat = indices->shape.rank == 1 && indices->shape.dims[0] == stored;
    bool coordinates = indices->shape.rank == 2 && indices->shape.dims[0] == stored &&
                       indices->shape.dims[1] == shape->rank;
    if (unit == 0 || values->shape.rank != 1 || indices->dtype != HN_I64 || !(flat || coordinates))
        HN_FAIL(err, HONE_ERR_FORMAT, "the sparse %s has values and indices that do not fit",
                label);
    hn_tensor dense;
    HN_TRY(hn_tensor_new(err, values->dtype, shape, &dense));
    if (bytes) memset(dense.data, 0, bytes);
    for (int64_t k = 0; k < stored; k++) {
        int64_t at = 0;
        hone_status status = sparse_position(err, label, indices, shape, count, k, &at);
        if (status != HONE_OK) {
            hn_tensor_free(&dense);
            return status;
        }
        memcpy((char *)dense.data + (size_t)at * unit,
               (const char *)values->data + (size_t)k * unit, unit);
    }
    *out_tensor = dense;
    return HONE_OK;
}

hn_status hn_onnx_sparse(hone_error *err, hn_onnx_source *source, hn_wire wire, hn_slice *out_name,
                         hn_tensor *out_tensor) {
    hn_pb_sparse pb;
    HN_TRY(hn_pb_read_sparse(err, &source->scratch, wire, &pb));
    if (!HN_PB_HAS(&pb, sparse, values) || !HN_PB_HAS(&pb, sparse, indices))
        HN_FAIL(err, HONE_ERR_FORMAT, "a sparse tensor lacks its values or its indices");
    hn_tensor values, indices;
    hn_slice name, unused;
    hn_shape shape;
    char label[128];
    HN_TRY(hn_onnx_tensor(err, source, pb.values, &name, &values));
    tensor_label(name, label, sizeof label);
    hone_status status = hn_onnx_tensor(err, source, pb.indices, &unused, &indices);
    if (status != HONE_OK) {
        hn_tensor_free(&values);
        return status;
    }
    status = read_shape(err, source, label, &pb.dims, &shape);
    if (status == HONE_OK) status = densify(err, label, &values, &indices, &shape, out_tensor);
    hn_tensor_free(&values);
    hn_tensor_free(&indices);
    if (status == HONE_OK) *out_name = name;
    return status;
}

// ---- writing ------------------------------------------------------------------------------------
static void put_entry(hn_wire_out *out, const char *key, const char *value) {
    hn_wire_begin(out, 13);
    hn_wire_put_text(out, 1, key);
    hn_wire_put_text(out, 2, value);
    hn_wire_end(out);
}

void hn_onnx_put_tensor(hn_wire_out *out, const char *name, const hn_tensor *tensor,
                        const char *location, int64_t external_at) {
    if (tensor->shape.rank) hn_wire_put_ints(out, 1, tensor->shape.dims, tensor->shape.rank);
    hn_wire_put_int(out, 2, (int64_t)tensor->dtype);
    if (name && *name) hn_wire_put_text(out, 8, name);
    if (external_at < 0) {
        hn_wire_put_borrowed(out, 9, tensor->data, tensor->bytes);
        return;
    }
    char number[32];
    put_entry(out, "location", location);
    snprintf(number, sizeof number, "%lld", (long long)external_at);
    put_entry(out, "offset", number);
    snprintf(number, sizeof number, "%zu", tensor->bytes);
    put_entry(out, "length", number);
    hn_wire_put_int(out, 14, 1);
}

// ---- test data ----------------------------------------------------------------------------------
hn_status hn_onnx_read_tensor(hone_error *err, const char *path, hn_arena *arena,
                              const char **out_name, hn_tensor *out_tensor) {
    hn_onnx_source source = {.mapped = true};
    hn_tensor tensor;
    hn_slice name;
    HN_TRY(hn_onnx_map(err, path, &source.buffer));
    const uint8_t *data = hn_buffer_data(source.buffer);
    hn_wire wire = {data, data + hn_buffer_bytes(source.buffer)};
    hone_status status = hn_onnx_tensor(err, &source, wire, &name, &tensor);
    if (status != HONE_OK) hn_error_frame(err, "reading '%s'", path);
    if (status == HONE_OK && arena && out_name) {
        const char *copy = hn_pb_name_ok(name)
                               ? hn_arena_strndup(arena, name.length ? name.data : "", name.length)
                               : "";
        if (copy)
            *out_name = copy;
        else
            status = HN_SET(err, HONE_ERR_NOMEM, "out of memory (reading a tensor)");
        if (!copy) hn_tensor_free(&tensor);
    }
    hn_buffer_unref(source.buffer);
    hn_onnx_source_free(&source);
    if (status == HONE_OK) *out_tensor = tensor;
    return status;
}

hn_status hn_onnx_write_tensor(hone_error *err, const char *path, const char *name,
                               const hn_tensor *tensor) {
    if (tensor->dtype == HN_STRING)
        HN_FAIL(err, HONE_ERR_UNSUPPORTED, "tensors of strings cannot be written");
    hn_wire_out out = {0};
    hn_writer writer;
    hn_onnx_put_tensor(&out, name, tensor, NULL, -1);
    hone_status status = hn_writer_open(err, path, &writer);
    if (status == HONE_OK) {
        status = hn_wire_flush(err, &out, &writer);
        if (status == HONE_OK)
            status = hn_writer_commit(err, &writer);
        else
            hn_writer_cancel(&writer);
    }
    hn_wire_out_free(&out);
    return status;
}
