// SPDX-License-Identifier: Apache-2.0
// Protocol-buffer wire format: a bounded reader over borrowed bytes, and a writer.
//
// The reader copies nothing and allocates nothing: a message is a [at, end) slice, and nested
// messages are slices of it, so that reading can never leave the bytes it was given. Groups, field
// number 0, over-long varints and lengths beyond the slice are refused. The writer keeps large byte
// fields as references, so that a model of any size is written from its structure's memory alone.
#ifndef HN_ONNX_WIRE_H
#define HN_ONNX_WIRE_H
#include "base/base.h"

// ---- reading ------------------------------------------------------------------------------------
typedef struct hn_wire {
    const uint8_t *at, *end; // what is left of a message; borrowed
} hn_wire;

typedef enum hn_wire_type {
    HN_WIRE_VARINT = 0,
    HN_WIRE_FIXED64 = 1,
    HN_WIRE_BYTES = 2,
    HN_WIRE_FIXED32 = 5,
} hn_wire_type;

typedef struct hn_wire_field {
    uint32_t number;
    hn_wire_type type;
    uint64_t value; // of the three numeric types
    hn_wire bytes;  // content of HN_WIRE_BYTES; of the numeric types the encoded value itself
} hn_wire_field;

static inline size_t hn_wire_left(const hn_wire *wire) {
    return (size_t)(wire->end - wire->at);
}
// NULL, or why the bytes are no varint of at most 64 bits. Moves `at` behind it.
const char *hn_wire_varint(hn_wire *wire, uint64_t *out_value);
// The next field of a message. *out_more false: the end was reached, *out_field is not set.
hn_status hn_wire_next(hone_error *err, hn_wire *wire, hn_wire_field *out_field, bool *out_more);

// ---- writing ------------------------------------------------------------------------------------
// A sub-graph costs three levels (node, attribute, graph).
#define HN_WIRE_MAX_OPEN 256

typedef struct hn_wire_piece {
    const void *borrowed; // NULL: bytes of the writer's own buffer
    size_t offset, length;
} hn_wire_piece;

// Zero is empty. A failed append (out of memory) sets `failed`; callers check once at the end.
typedef struct hn_wire_out {
    hn_str own;                    // all bytes that are not borrowed
    HN_VEC(hn_wire_piece) pieces;  // in order
    size_t open[HN_WIRE_MAX_OPEN]; // indices of the length pieces of the messages being written
    uint64_t open_start[HN_WIRE_MAX_OPEN]; // `bytes` where their content starts
    int depth;                             // messages open
    uint64_t bytes;                        // written so far, lengths of open messages not counted
    bool failed;
} hn_wire_out;

void hn_wire_put_int(hn_wire_out *out, uint32_t field, int64_t value);
void hn_wire_put_float(hn_wire_out *out, uint32_t field, float value);
void hn_wire_put_text(hn_wire_out *out, uint32_t field, const char *text); // written even when ""
void hn_wire_put_bytes(hn_wire_out *out, uint32_t field, const void *data, size_t bytes); // copied
void hn_wire_put_borrowed(hn_wire_out *out, uint32_t field, const void *data, size_t bytes);
void hn_wire_put_ints(hn_wire_out *out, uint32_t field, const int64_t *values, int64_t count);
void hn_wire_put_floats(hn_wire_out *out, uint32_t field, const float *values, int64_t count);
// A nested message: everything put between begin and end is its content.
void hn_wire_begin(hn_wire_out *out, uint32_t field);
void hn_wire_end(hn_wire_out *out);
hn_status hn_wire_flush(hone_error *err, hn_wire_out *out, hn_writer *writer);
void hn_wire_out_free(hn_wire_out *out);
#endif
