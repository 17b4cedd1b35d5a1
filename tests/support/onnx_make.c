// SPDX-License-Identifier: Apache-2.0
// Builds small ONNX files for tests: see onnx_make.h.
#include "support/onnx_make.h"
#include "support/test.h"

// Puts each blank-separated word under a field; "-" is empty.
static void put_words(hn_wire_out *w, uint32_t field, const char *words) {
    while (words && *words) {
        size_t length = strcspn(words, " ");
        bool absent = length == 1 && *words == '-';
        hn_wire_put_bytes(w, field, words, absent ? 0 : length);
        words += length;
        while (*words == ' ')
            words++;
    }
}

void om_opset(hn_wire_out *w, uint32_t field, const char *domain, int64_t version) {
    hn_wire_begin(w, field);
    if (*domain) hn_wire_put_text(w, 1, domain);
    hn_wire_put_int(w, 2, version);
    hn_wire_end(w);
}

void om_model(hn_wire_out *w, int64_t ir_version, int64_t opset) {
    hn_wire_put_int(w, 1, ir_version);
    om_opset(w, 8, "", opset);
    hn_wire_begin(w, 7);
    hn_wire_put_text(w, 2, "g");
}

void om_node_begin(hn_wire_out *w, uint32_t field, const char *op, const char *inputs,
                   const char *outputs) {
    hn_wire_begin(w, field);
    put_words(w, 1, inputs);
    put_words(w, 2, outputs);
    const char *dot = strchr(op, ':'); // domain:op
    hn_wire_put_text(w, 4, dot ? dot + 1 : op);
    if (dot) hn_wire_put_bytes(w, 7, op, (size_t)(dot - op));
}

void om_end(hn_wire_out *w) {
    hn_wire_end(w);
}

void om_node(hn_wire_out *w, const char *op, const char *inputs, const char *outputs) {
    om_node_begin(w, 1, op, inputs, outputs);
    om_end(w);
}

static void attribute(hn_wire_out *w, const char *name, int type) {
    hn_wire_begin(w, 5);
    hn_wire_put_text(w, 1, name);
    hn_wire_put_int(w, 20, type);
}

void om_int(hn_wire_out *w, const char *name, int64_t value) {
    attribute(w, name, 2);
    hn_wire_put_int(w, 3, value);
    hn_wire_end(w);
}

void om_float(hn_wire_out *w, const char *name, float value) {
    attribute(w, name, 1);
    hn_wire_put_float(w, 2, value);
    hn_wire_end(w);
}

void om_string(hn_wire_out *w, const char *name, const char *value) {
    attribute(w, name, 3);
    hn_wire_put_text(w, 4, value);
    hn_wire_end(w);
}

void om_ints(hn_wire_out *w, const char *name, const int64_t *values, int count) {
    attribute(w, name, 7);
    for (int i = 0; i < count; i++) // unpacked, as most writers do
        hn_wire_put_int(w, 8, values[i]);
    hn_wire_end(w);
}

void om_floats(hn_wire_out *w, const char *name, const float *values, int count) {
    attribute(w, name, 6);
    hn_wire_put_floats(w, 7, values, count);
    hn_wire_end(w);
}

void om_ref(hn_wire_out *w, const char *name, const char *of, int type) {
    attribute(w, name, type);
    hn_wire_put_text(w, 21, of);
    hn_wire_end(w);
}

void om_graph_begin(hn_wire_out *w, const char *name) {
    attribute(w, name, 5);
    hn_wire_begin(w, 6);
    hn_wire_put_text(w, 2, name);
}

void om_value(hn_wire_out *w, uint32_t field, const char *name, hn_dtype dtype, const char *dims) {
    hn_wire_begin(w, field);
    hn_wire_put_text(w, 1, name);
    hn_wire_begin(w, 2);
    hn_wire_begin(w, 1);
    hn_wire_put_int(w, 1, (int64_t)dtype);
    if (dims) {
        hn_wire_begin(w, 2);
        while (*dims) {
            size_t length = strcspn(dims, " ");
            int64_t value;
            hn_wire_begin(w, 1);
            if (hn_parse_i64((hn_slice){dims, length}, &value))
                hn_wire_put_int(w, 1, value);
            else if (*dims != '?')
                hn_wire_put_bytes(w, 2, dims, length);
            hn_wire_end(w);
            dims += length;
            while (*dims == ' ')
                dims++;
        }
        hn_wire_end(w);
    }
    hn_wire_end(w);
    hn_wire_end(w);
    hn_wire_end(w);
}

void om_tensor(hn_wire_out *w, uint32_t field, const char *name, hn_dtype dtype, const char *dims,
               const void *data, size_t bytes) {
    hn_wire_begin(w, field);
    while (*dims) {
        size_t length = strcspn(dims, " ");
        int64_t value = 0;
        assert_true(hn_parse_i64((hn_slice){dims, length}, &value));
        hn_wire_put_int(w, 1, value);
        dims += length;
        while (*dims == ' ')
            dims++;
    }
    hn_wire_put_int(w, 2, (int64_t)dtype);
    if (*name) hn_wire_put_text(w, 8, name);
    hn_wire_put_bytes(w, 9, data, bytes);
    hn_wire_end(w);
}

void om_weights(hn_wire_out *w, const char *name, const char *dims, int count) {
    float *data = malloc((size_t)count * sizeof *data + 1);
    assert_non_null(data);
    for (int i = 0; i < count; i++)
        data[i] = (float)i / 8;
    om_tensor(w, 5, name, HN_F32, dims, data, (size_t)count * sizeof *data);
    free(data);
}

void om_i64(hn_wire_out *w, const char *name, const int64_t *values, int count) {
    char dims[16];
    snprintf(dims, sizeof dims, "%d", count);
    om_tensor(w, 5, name, HN_I64, dims, values, (size_t)count * 8);
}

uint8_t *om_finish(hn_wire_out *w, size_t *out_bytes) {
    while (w->depth)
        hn_wire_end(w);
    assert_false(w->failed || w->own.failed);
    uint8_t *data = hn_malloc(w->bytes + 1);
    assert_non_null(data);
    size_t at = 0;
    for (size_t i = 0; i < w->pieces.count; i++) {
        const hn_wire_piece *piece = &w->pieces.data[i];
        memcpy(data + at, piece->borrowed ? piece->borrowed : w->own.data + piece->offset,
               piece->length);
        at += piece->length;
    }
    assert_int_equal(at, w->bytes);
    *out_bytes = at;
    hn_wire_out_free(w);
    return data;
}

static void free_bytes(void *data) {
    hn_free(data);
}

hone_status om_parse_bytes(hone_error *err, const void *data, size_t bytes, const char *folder,
                           const hn_onnx_options *options, hn_module **out_module) {
    // A block of exactly this size, so that a sanitizer sees every read beyond it.
    uint8_t *copy = hn_malloc(bytes);
    assert_non_null(copy);
    if (bytes) memcpy(copy, data, bytes);
    hn_buffer *buffer = hn_buffer_wrap(copy, bytes, free_bytes, copy);
    assert_non_null(buffer);
    hone_status status = hn_onnx_parse(err, buffer, folder, options, out_module);
    hn_buffer_unref(buffer);
    return status;
}

hone_status om_parse(hone_error *err, hn_wire_out *w, const char *folder,
                     const hn_onnx_options *options, hn_module **out_module) {
    size_t bytes;
    uint8_t *data = om_finish(w, &bytes);
    hone_status status = om_parse_bytes(err, data, bytes, folder, options, out_module);
    hn_free(data);
    return status;
}
