// SPDX-License-Identifier: Apache-2.0
// NumPy's array files: .npy (versions 1 to 3) and .npz (a zip of them).
//
// The header is a Python dict literal; exactly the three keys it has are read, by a small parser of
// its own. Sizes are checked against the bytes that are there before anything is allocated. Arrays
// of objects would run code when unpickled and are refused. Fortran order is transposed while
// reading.
#include "onnx/onnx.h"
#include "config/config.h"
#include <stdio.h>
#include <zip.h>

#define MAX_HEADER_BYTES 65536
#define MAX_ITEMS        4096

// ---- element types ------------------------------------------------------------------------------
// One row a NumPy type: kind and bytes as in '<f4'.
static const struct {
    char kind;
    int bytes;
    hn_dtype dtype;
} k_types[] = {
    {'f', 4, HN_F32}, {'f', 8, HN_F64},  {'f', 2, HN_F16}, {'i', 1, HN_I8},    {'i', 2, HN_I16},
    {'i', 4, HN_I32}, {'i', 8, HN_I64},  {'u', 1, HN_U8},  {'u', 2, HN_U16},   {'u', 4, HN_U32},
    {'u', 8, HN_U64}, {'b', 1, HN_BOOL}, {'c', 8, HN_C64}, {'c', 16, HN_C128},
};

typedef struct npy_header {
    hn_dtype dtype;
    bool swapped; // big-endian
    bool fortran;
    hn_shape shape;
    size_t data_at;
} npy_header;

static hn_status parse_descr(hone_error *err, hn_slice text, npy_header *header) {
    char order = text.length ? text.data[0] : 0;
    if (text.length && (text.data[0] == '|' || strchr("<>=", order))) {
        text.data++;
        text.length--;
    } else {
        order = '=';
    }
    if (text.length && text.data[0] == 'O')
        HN_FAIL(err, HONE_ERR_UNSUPPORTED, "the array holds Python objects, which are refused");
    int64_t bytes = 0;
    bool ok = text.length >= 2 && hn_parse_i64((hn_slice){text.data + 1, text.length - 1}, &bytes);
    for (size_t i = 0; ok && i < HN_COUNT_OF(k_types); i++) {
        if (k_types[i].kind != text.data[0] || k_types[i].bytes != bytes) continue;
        header->dtype = k_types[i].dtype;
        header->swapped = order == '>' && bytes > 1;
        return HONE_OK;
    }
    HN_FAIL(err, HONE_ERR_UNSUPPORTED, "the element type '%.*s' is not supported",
            (int)(text.length < 40 ? text.length : 40), text.data);
}

// ---- header -------------------------------------------------------------------------------------
static void skip_blanks(hn_slice *at) {
    while (at->length && (at->data[0] == ' ' || at->data[0] == '\n' || at->data[0] == '\t'))
        at->data++, at->length--;
}

static bool take(hn_slice *at, char sign) {
    skip_blanks(at);
    if (!at->length || at->data[0] != sign) return false;
    at->data++, at->length--;
    return true;
}

static bool take_text(hn_slice *at, hn_slice *out_text) {
    skip_blanks(at);
    if (!at->length || (at->data[0] != '\'' && at->data[0] != '"')) return false;
    const char *end = memchr(at->data + 1, at->data[0], at->length - 1);
    if (!end) return false;
    *out_text = (hn_slice){at->data + 1, (size_t)(end - at->data - 1)};
    at->length -= (size_t)(end + 1 - at->data);
    at->data = end + 1;
    return true;
}

static bool take_word(hn_slice *at, const char *word) {
    skip_blanks(at);
    if (!hn_slice_starts(*at, word)) return false;
    at->data += strlen(word), at->length -= strlen(word);
    return true;
}

static bool take_number(hn_slice *at, int64_t *out_value) {
    skip_blanks(at);
    size_t digits = 0;
    while (digits < at->length && at->data[digits] >= '0' && at->data[digits] <= '9')
        digits++;
    if (!hn_parse_i64((hn_slice){at->data, digits}, out_value)) return false;
    at->data += digits, at->length -= digits;
    if (at->length && at->data[0] == 'L') at->data++, at->length--; // Python 2
    return true;
}

static const char *parse_shape(hn_slice *at, npy_header *header) {
    if (!take(at, '(')) return "its shape is no tuple";
    header->shape.rank = 0;
    while (!take(at, ')')) {
        if (header->shape.rank == HN_MAX_RANK) return "it has too many dims";
        if (!take_number(at, &header->shape.dims[header->shape.rank++]))
            return "its shape is broken";
        if (take(at, ',')) continue;
        if (!take(at, ')')) return "its shape is broken";
        break;
    }
    return NULL;
}

static hn_status parse_dict(hone_error *err, hn_slice at, npy_header *header) {
    unsigned seen = 0;
    hn_slice key, descr;
    const char *why = take(&at, '{') ? NULL : "its header is no dict";
    while (!why && !take(&at, '}')) {
        if (!take_text(&at, &key) || !take(&at, ':')) {
            why = "its header is broken";
        } else if (hn_slice_eq(key, "descr")) {
            seen |= 1;
            if (take_text(&at, &descr))
                HN_TRY(parse_descr(err, descr, header));
            else
                HN_FAIL(err, HONE_ERR_UNSUPPORTED, "structured arrays are not supported");
        } else if (hn_slice_eq(key, "fortran_order")) {
            seen |= 2;
            header->fortran = take_word(&at, "True");
            if (!header->fortran && !take_word(&at, "False")) why = "its fortran_order is broken";
        } else if (hn_slice_eq(key, "shape")) {
            seen |= 4;
            why = parse_shape(&at, header);
        } else {
            why = "its header has an unknown key";
        }
        if (!why && !take(&at, ',') && !(at.length && at.data[0] == '}')) {
            skip_blanks(&at);
            if (!at.length || at.data[0] != '}') why = "its header is broken";
        }
    }
    if (!why && seen != 7) why = "its header lacks a key";
    if (why) HN_FAIL(err, HONE_ERR_FORMAT, "this is no NumPy array: %s", why);
    return HONE_OK;
}

static hn_status parse_header(hone_error *err, const uint8_t *data, size_t bytes,
                              npy_header *out_header) {
    npy_header header = {0};
    if (bytes < 12 || memcmp(data, "\x93NUMPY", 6) != 0)
        HN_FAIL(err, HONE_ERR_FORMAT, "this is no NumPy array: the first bytes are not its mark");
    size_t start = data[6] == 1 ? 10 : 12, length = data[8] | (size_t)data[9] << 8;
    if (data[6] >= 2) length |= (size_t)data[10] << 16 | (size_t)data[11] << 24;
    if (data[6] < 1 || data[6] > 3)
        HN_FAIL(err, HONE_ERR_UNSUPPORTED, "version %d of the NumPy format is not supported",
                data[6]);
    if (length > MAX_HEADER_BYTES || length > bytes - start)
        HN_FAIL(err, HONE_ERR_FORMAT, "the array's header is longer than the file or its limit");
    HN_TRY(parse_dict(err, (hn_slice){(const char *)data + start, length}, &header));
    header.data_at = start + length;
    size_t want;
    if (!hn_shape_bytes(&header.shape, header.dtype, &want))
        HN_FAIL(err, HONE_ERR_LIMIT, "the array is larger than memory can be");
    if (bytes - header.data_at != want)
        HN_FAIL(err, HONE_ERR_FORMAT,
                "the array has %zu bytes of data where its shape asks for %zu",
                bytes - header.data_at, want);
    *out_header = header;
    return HONE_OK;
}

// ---- data ---------------------------------------------------------------------------------------
static void swap_bytes(hn_tensor *tensor) {
    size_t unit = hn_dtype_bytes(tensor->dtype);
    if (tensor->dtype == HN_C64 || tensor->dtype == HN_C128) unit /= 2;
    for (char *at = tensor->data; at < (char *)tensor->data + tensor->bytes; at += unit)
        for (size_t i = 0; i < unit / 2; i++) {
            char keep = at[i];
            at[i] = at[unit - 1 - i];
            at[unit - 1 - i] = keep;
        }
}

// Column-major data into a row-major tensor.
static void transpose(const char *from, hn_tensor *tensor) {
    size_t unit = hn_dtype_bytes(tensor->dtype);
    int64_t strides[HN_MAX_RANK], index[HN_MAX_RANK] = {0}, stride = 1, at = 0;
    int rank = tensor->shape.rank;
    for (int i = 0; i < rank; i++) {
        strides[i] = stride;
        stride *= tensor->shape.dims[i];
    }
    int64_t count = hn_tensor_count(tensor);
    for (int64_t k = 0; k < count; k++) {
        memcpy((char *)tensor->data + (size_t)k * unit, from + (size_t)at * unit, unit);
        for (int i = rank - 1; i >= 0; i--) {
            at += strides[i];
            if (++index[i] < tensor->shape.dims[i]) break;
            at -= strides[i] * index[i];
            index[i] = 0;
        }
    }
}

static hn_status decode(hone_error *err, const uint8_t *data, size_t bytes, hn_tensor *out_tensor) {
    npy_header header;
    HN_TRY(parse_header(err, data, bytes, &header));
    hn_tensor tensor;
    HN_TRY(hn_tensor_new(err, header.dtype, &header.shape, &tensor));
    const char *content = (const char *)data + header.data_at;
    if (header.fortran && header.shape.rank > 1)
        transpose(content, &tensor);
    else if (tensor.bytes)
        memcpy(tensor.data, content, tensor.bytes);
    if (header.swapped) swap_bytes(&tensor);
    if (header.dtype == HN_BOOL)
        for (size_t i = 0; i < tensor.bytes; i++)
            ((uint8_t *)tensor.data)[i] = ((uint8_t *)tensor.data)[i] != 0;
    *out_tensor = tensor;
    return HONE_OK;
}

static hn_status encode(hone_error *err, const hn_tensor *tensor, hn_str *out) {
    char text[256];
    hn_str dict = {0};
    for (size_t i = 0; i < HN_COUNT_OF(k_types); i++) {
        if (k_types[i].dtype != tensor->dtype) continue;
        hn_str_printf(&dict, "{'descr': '%c%c%d', 'fortran_order': False, 'shape': (",
                      k_types[i].bytes > 1 ? '<' : '|', k_types[i].kind, k_types[i].bytes);
    }
    if (!dict.length)
        HN_FAIL(err, HONE_ERR_UNSUPPORTED, "NumPy files have no element type %s",
                hn_dtype_name(tensor->dtype));
    for (int i = 0; i < tensor->shape.rank; i++)
        hn_str_printf(&dict, i ? ", %lld" : "%lld", (long long)tensor->shape.dims[i]);
    hn_str_append(&dict, tensor->shape.rank == 1 ? ",), }" : "), }");
    // The data starts at a multiple of 64 bytes.
    size_t pad = (64 - (10 + dict.length + 1) % 64) % 64;
    snprintf(text, sizeof text, "%*s\n", (int)pad, "");
    hn_str_append(&dict, text);
    size_t length = dict.length;
    char mark[10] = {(char)0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, (char)length, (char)(length >> 8)};
    hn_str_append_n(out, mark, sizeof mark);
    hn_str_append_n(out, hn_str_get(&dict), length);
    hn_str_append_n(out, tensor->data, tensor->bytes);
    bool failed = dict.failed || out->failed;
    hn_str_free(&dict);
    if (failed) HN_NOMEM(err, "writing an array");
    return HONE_OK;
}

// ---- npy ----------------------------------------------------------------------------------------
hn_status hn_npy_read(hone_error *err, const char *path, hn_tensor *out_tensor) {
    hn_map map;
    HN_TRY(hn_map_open(err, path, &map));
    hone_status status = decode(err, map.data, map.size_bytes, out_tensor);
    if (status != HONE_OK) hn_error_frame(err, "reading '%s'", path);
    hn_map_close(&map);
    return status;
}

hn_status hn_npy_write(hone_error *err, const char *path, const hn_tensor *tensor) {
    hn_str text = {0};
    hone_status status = encode(err, tensor, &text);
    if (status == HONE_OK) status = hn_file_write(err, path, hn_str_get(&text), text.length);
    hn_str_free(&text);
    return status;
}

// ---- npz ----------------------------------------------------------------------------------------
void hn_npz_free(hn_npz *npz) {
    for (size_t i = 0; i < npz->items.count; i++) {
        hn_free(npz->items.data[i].name);
        hn_tensor_free(&npz->items.data[i].tensor);
    }
    hn_vec_free(&npz->items);
}

const hn_tensor *hn_npz_get(const hn_npz *npz, const char *name) {
    for (size_t i = 0; i < npz->items.count; i++)
        if (strcmp(npz->items.data[i].name, name) == 0) return &npz->items.data[i].tensor;
    return NULL;
}

// Reads one member whole. Its size is what the archive says, checked against the limit, and against
// what it really unpacks to.
static hn_status read_member(hone_error *err, zip_t *zip, zip_uint64_t index, uint64_t *left,
                             hn_npz_item *out_item) {
    zip_stat_t info;
    if (zip_stat_index(zip, index, 0, &info) != 0 || !(info.valid & ZIP_STAT_NAME) ||
        !(info.valid & ZIP_STAT_SIZE))
        HN_FAIL(err, HONE_ERR_FORMAT, "the archive is broken: %s", zip_strerror(zip));
    if (info.size > *left)
        HN_FAIL(err, HONE_ERR_LIMIT, "the arrays are larger than max_model_bytes together");
    *left -= info.size;
    size_t length = strlen(info.name);
    if (length > 4 && strcmp(info.name + length - 4, ".npy") == 0) length -= 4;
    zip_file_t *file = zip_fopen_index(zip, index, 0);
    if (!file)
        HN_FAIL(err, HONE_ERR_FORMAT, "'%.80s' cannot be unpacked: %s", info.name,
                zip_strerror(zip));
    // Grows with what arrives: a small archive that claims gigabytes does not get them.
    hn_str data = {0};
    char block[65536];
    zip_int64_t got;
    while ((got = zip_fread(file, block, sizeof block)) > 0 && data.length <= info.size)
        hn_str_append_n(&data, block, (size_t)got);
    zip_fclose(file);
    hone_status status = HONE_OK;
    if (data.failed)
        status = HN_SET(err, HONE_ERR_NOMEM, "out of memory (reading arrays)");
    else if (got < 0 || data.length != info.size)
        status = HN_SET(err, HONE_ERR_FORMAT, "'%.80s' is truncated or broken", info.name);
    else
        status = decode(err, (const uint8_t *)hn_str_get(&data), data.length, &out_item->tensor);
    hn_str_free(&data);
    if (status != HONE_OK) {
        hn_error_frame(err, "array '%.80s'", info.name);
        return status;
    }
    out_item->name = hn_strndup(info.name, length);
    if (!out_item->name) {
        hn_tensor_free(&out_item->tensor);
        HN_NOMEM(err, "reading arrays");
    }
    return HONE_OK;
}

hn_status hn_npz_read(hone_error *err, const char *path, hn_npz *out_npz) {
    hn_map map; // refuses what is no regular file, with a sentence
    HN_TRY(hn_map_open(err, path, &map));
    hn_map_close(&map);
    int code = 0;
    zip_t *zip = zip_open(path, ZIP_RDONLY, &code);
    if (!zip) HN_FAIL(err, HONE_ERR_FORMAT, "'%s' is no .npz archive", path);
    hn_npz npz = {0};
    uint64_t left = (uint64_t)hn_config_get()->max_model_bytes;
    zip_int64_t count = zip_get_num_entries(zip, 0);
    hone_status status = HONE_OK;
    if (count > MAX_ITEMS)
        status = HN_SET(err, HONE_ERR_LIMIT, "the archive has more than %d arrays", MAX_ITEMS);
    for (zip_int64_t i = 0; i < count && status == HONE_OK; i++) {
        hn_npz_item item = {0};
        status = read_member(err, zip, (zip_uint64_t)i, &left, &item);
        if (status != HONE_OK) break;
        if (hn_npz_get(&npz, item.name))
            status = HN_SET(err, HONE_ERR_FORMAT, "two arrays have the name '%.80s'", item.name);
        else if (!hn_vec_push(&npz.items, item))
            status = HN_SET(err, HONE_ERR_NOMEM, "out of memory (reading arrays)");
        if (status != HONE_OK) {
            hn_free(item.name);
            hn_tensor_free(&item.tensor);
        }
    }
    zip_discard(zip);
    if (status != HONE_OK) {
        hn_error_frame(err, "reading '%s'", path);
        hn_npz_free(&npz);
        return status;
    }
    *out_npz = npz;
    return HONE_OK;
}

static hn_status add_member(hone_error *err, zip_t *zip, const hn_npz_item *item, hn_str *data) {
    hn_str name = {0};
    HN_TRY(encode(err, &item->tensor, data));
    hn_str_printf(&name, "%s.npy", item->name);
    zip_source_t *source =
        name.failed ? NULL : zip_source_buffer(zip, hn_str_get(data), data->length, 0);
    zip_int64_t index =
        source ? zip_file_add(zip, hn_str_get(&name), source, ZIP_FL_ENC_UTF_8) : -1;
    hn_str_free(&name);
    if (index < 0) {
        if (source) zip_source_free(source);
        HN_FAIL(err, HONE_ERR_IO, "cannot add the array '%.80s': %s", item->name,
                zip_strerror(zip));
    }
    // A fixed time stamp: the same arrays give the same bytes.
    (void)zip_file_set_dostime(zip, (zip_uint64_t)index, 0, 0x21, 0);
    (void)zip_set_file_compression(zip, (zip_uint64_t)index, ZIP_CM_DEFLATE, 0);
    return HONE_OK;
}

// Builds the archive in memory, then writes it like any other file: atomically.
static hn_status build_archive(hone_error *err, const hn_npz *npz, zip_source_t *buffer,
                               hn_str *members) {
    zip_error_t why;
    zip_error_init(&why);
    zip_t *zip = zip_open_from_source(buffer, ZIP_TRUNCATE, &why);
    if (!zip) HN_FAIL(err, HONE_ERR_INTERNAL, "cannot start an archive");
    zip_source_keep(buffer);
    hone_status status = HONE_OK;
    for (size_t i = 0; i < npz->items.count && status == HONE_OK; i++)
        status = add_member(err, zip, &npz->items.data[i], &members[i]);
    if (status != HONE_OK) {
        zip_discard(zip);
        return status;
    }
    if (zip_close(zip) != 0) {
        status = HN_SET(err, HONE_ERR_IO, "cannot build an archive: %s", zip_strerror(zip));
        zip_discard(zip);
    }
    return status;
}

static hn_status write_source(hone_error *err, const char *path, zip_source_t *buffer) {
    zip_stat_t info;
    if (zip_source_stat(buffer, &info) != 0 || zip_source_open(buffer) != 0)
        HN_FAIL(err, HONE_ERR_INTERNAL, "cannot read back an archive");
    hn_writer writer = {0};
    hone_status status = hn_writer_open(err, path, &writer);
    char block[65536];
    zip_int64_t got = 0;
    while (status == HONE_OK && (got = zip_source_read(buffer, block, sizeof block)) > 0)
        status = hn_writer_put(err, &writer, block, (size_t)got);
    zip_source_close(buffer);
    if (status == HONE_OK && got < 0)
        status = HN_SET(err, HONE_ERR_INTERNAL, "cannot read back an archive");
    if (status == HONE_OK) return hn_writer_commit(err, &writer);
    if (writer.path) hn_writer_cancel(&writer);
    return status;
}

hn_status hn_npz_write(hone_error *err, const char *path, const hn_npz *npz) {
    zip_error_t why;
    zip_error_init(&why);
    zip_source_t *buffer = zip_source_buffer_create(NULL, 0, 0, &why);
    hn_str *members = hn_calloc(npz->items.count, sizeof *members);
    hone_status status;
    if (!buffer || !members) {
        status = HN_SET(err, HONE_ERR_NOMEM, "out of memory (writing arrays)");
    } else {
        status = build_archive(err, npz, buffer, members);
        if (status == HONE_OK) status = write_source(err, path, buffer);
    }
    for (size_t i = 0; members && i < npz->items.count; i++)
        hn_str_free(&members[i]);
    hn_free(members);
    if (buffer) zip_source_free(buffer);
    return status;
}
