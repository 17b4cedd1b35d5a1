// SPDX-License-Identifier: Apache-2.0
// Protocol-buffer wire format: see wire.h.
#include "onnx/wire.h"

// ---- reading ------------------------------------------------------------------------------------
const char *hn_wire_varint(hn_wire *wire, uint64_t *out_value) {
    uint64_t value = 0;
    for (int i = 0; i < 10; i++) {
        if (wire->at == wire->end) return "the data ends inside a number";
        uint8_t byte = *wire->at++;
        // The tenth byte carries bit 63 alone.
        if (i == 9 && byte > 1) return "a number has more than 64 bits";
        value |= (uint64_t)(byte & 0x7f) << (7 * i);
        if (!(byte & 0x80)) {
            *out_value = value;
            return NULL;
        }
    }
    return "a number has more than 64 bits";
}

static uint64_t little_endian(const uint8_t *at, int bytes) {
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++)
        value |= (uint64_t)at[i] << (8 * i);
    return value;
}

static const char *take(hn_wire *wire, size_t bytes, hn_wire *out_bytes) {
    if (hn_wire_left(wire) < bytes) return "the data ends inside a field";
    *out_bytes = (hn_wire){wire->at, wire->at + bytes};
    wire->at += bytes;
    return NULL;
}

static const char *next(hn_wire *wire, hn_wire_field *field) {
    uint64_t key, length;
    const char *why = hn_wire_varint(wire, &key);
    if (why) return why;
    if (key >> 3 == 0 || key >> 32) return "a field number is out of range";
    field->number = (uint32_t)(key >> 3);
    field->type = (hn_wire_type)(key & 7);
    const uint8_t *start = wire->at;
    switch (key & 7) {
    case HN_WIRE_VARINT:
        why = hn_wire_varint(wire, &field->value);
        field->bytes = (hn_wire){start, wire->at};
        return why;
    case HN_WIRE_FIXED64:
    case HN_WIRE_FIXED32: {
        int bytes = (key & 7) == HN_WIRE_FIXED64 ? 8 : 4;
        why = take(wire, (size_t)bytes, &field->bytes);
        if (!why) field->value = little_endian(field->bytes.at, bytes);
        return why;
    }
    case HN_WIRE_BYTES:
        why = hn_wire_varint(wire, &length);
        if (why) return why;
        if (length > hn_wire_left(wire)) return "a field is longer than the data around it";
        return take(wire, (size_t)length, &field->bytes);
    case 3:
    case 4:
        return "it uses field groups, which ONNX has not";
    default:
        return "a field has an unknown wire type";
    }
}

hn_status hn_wire_next(hone_error *err, hn_wire *wire, hn_wire_field *out_field, bool *out_more) {
    *out_more = wire->at != wire->end;
    if (!*out_more) return HONE_OK;
    hn_wire_field field = {0};
    const char *why = next(wire, &field);
    if (why) HN_FAIL(err, HONE_ERR_FORMAT, "the file is truncated or is no ONNX file: %s", why);
    *out_field = field;
    return HONE_OK;
}

// ---- writing ------------------------------------------------------------------------------------
static int varint_bytes(uint64_t value) {
    int bytes = 1;
    for (; value >= 0x80; value >>= 7)
        bytes++;
    return bytes;
}

static int encode_varint(uint64_t value, char out[10]) {
    int bytes = 0;
    for (; value >= 0x80; value >>= 7)
        out[bytes++] = (char)(value | 0x80);
    out[bytes++] = (char)value;
    return bytes;
}

static void put_raw(hn_wire_out *out, const void *data, size_t bytes) {
    if (bytes == 0) return;
    size_t offset = out->own.length;
    hn_str_append_n(&out->own, data, bytes);
    hn_wire_piece *last = out->pieces.count ? &out->pieces.data[out->pieces.count - 1] : NULL;
    bool open_length = out->depth && out->open[out->depth - 1] == out->pieces.count - 1;
    out->bytes += bytes;
    if (last && !open_length && !last->borrowed && last->offset + last->length == offset) {
        last->length += bytes;
    } else if (!hn_vec_push(&out->pieces, ((hn_wire_piece){NULL, offset, bytes}))) {
        out->failed = true;
    }
}

static void put_varint(hn_wire_out *out, uint64_t value) {
    char text[10];
    put_raw(out, text, (size_t)encode_varint(value, text));
}

static void put_key(hn_wire_out *out, uint32_t field, hn_wire_type type) {
    put_varint(out, (uint64_t)field << 3 | (uint64_t)type);
}

void hn_wire_put_int(hn_wire_out *out, uint32_t field, int64_t value) {
    put_key(out, field, HN_WIRE_VARINT);
    put_varint(out, (uint64_t)value);
}

static void put_f32(hn_wire_out *out, float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    char text[4] = {(char)bits, (char)(bits >> 8), (char)(bits >> 16), (char)(bits >> 24)};
    put_raw(out, text, sizeof text);
}

void hn_wire_put_float(hn_wire_out *out, uint32_t field, float value) {
    put_key(out, field, HN_WIRE_FIXED32);
    put_f32(out, value);
}

void hn_wire_put_bytes(hn_wire_out *out, uint32_t field, const void *data, size_t bytes) {
    put_key(out, field, HN_WIRE_BYTES);
    put_varint(out, bytes);
    put_raw(out, data, bytes);
}

void hn_wire_put_text(hn_wire_out *out, uint32_t field, const char *text) {
    hn_wire_put_bytes(out, field, text, strlen(text));
}

void hn_wire_put_borrowed(hn_wire_out *out, uint32_t field, const void *data, size_t bytes) {
    if (bytes < 256) {
        hn_wire_put_bytes(out, field, data, bytes);
        return;
    }
    put_key(out, field, HN_WIRE_BYTES);
    put_varint(out, bytes);
    out->bytes += bytes;
    if (!hn_vec_push(&out->pieces, ((hn_wire_piece){data, 0, bytes}))) out->failed = true;
}

void hn_wire_put_ints(hn_wire_out *out, uint32_t field, const int64_t *values, int64_t count) {
    uint64_t bytes = 0;
    for (int64_t i = 0; i < count; i++)
        bytes += (uint64_t)varint_bytes((uint64_t)values[i]);
    put_key(out, field, HN_WIRE_BYTES);
    put_varint(out, bytes);
    for (int64_t i = 0; i < count; i++)
        put_varint(out, (uint64_t)values[i]);
}

void hn_wire_put_floats(hn_wire_out *out, uint32_t field, const float *values, int64_t count) {
    put_key(out, field, HN_WIRE_BYTES);
    put_varint(out, (uint64_t)count * 4);
    for (int64_t i = 0; i < count; i++)
        put_f32(out, values[i]);
}

void hn_wire_begin(hn_wire_out *out, uint32_t field) {
    put_key(out, field, HN_WIRE_BYTES);
    if (out->depth == HN_WIRE_MAX_OPEN ||
        !hn_vec_push(&out->pieces, ((hn_wire_piece){NULL, out->own.length, 0}))) {
        out->failed = true;
        return;
    }
    out->open[out->depth] = out->pieces.count - 1;
    out->open_start[out->depth++] = out->bytes;
}

// The length goes to the end of the own bytes; its piece, which stands before the content, points
// there.
void hn_wire_end(hn_wire_out *out) {
    if (out->failed || out->depth == 0) return;
    out->depth--;
    char text[10];
    int bytes = encode_varint(out->bytes - out->open_start[out->depth], text);
    out->pieces.data[out->open[out->depth]] = (hn_wire_piece){NULL, out->own.length, (size_t)bytes};
    hn_str_append_n(&out->own, text, (size_t)bytes);
    out->bytes += (uint64_t)bytes;
}

hn_status hn_wire_flush(hone_error *err, hn_wire_out *out, hn_writer *writer) {
    if (out->failed || out->own.failed || out->depth) HN_NOMEM(err, "writing a model");
    for (size_t i = 0; i < out->pieces.count; i++) {
        const hn_wire_piece *piece = &out->pieces.data[i];
        const char *own = hn_str_get(&out->own);
        HN_TRY(hn_writer_put(err, writer, piece->borrowed ? piece->borrowed : own + piece->offset,
                             piece->length));
    }
    return HONE_OK;
}

void hn_wire_out_free(hn_wire_out *out) {
    hn_str_free(&out->own);
    hn_vec_free(&out->pieces);
    *out = (hn_wire_out){0};
}
