// SPDX-License-Identifier: Apache-2.0
// The ONNX messages as C structs, filled from wire bytes by tables (proto.def).
//
// Everything points into the message's bytes; lists are arrays in the given arena. Numeric lists
// stay encoded (hn_pb_list of chunks: one a packed run, one an unpacked element), so that large
// weights are not copied. A known field with the wrong wire type and a nested message given twice
// are refused; unknown fields are skipped.
#ifndef HN_ONNX_PROTO_H
#define HN_ONNX_PROTO_H
#include "onnx/wire.h"

typedef struct hn_pb_list {
    hn_wire *items;
    size_t count;
} hn_pb_list;

// One row a message: HN_MESSAGE(name, fields); one row a field: F(kind, number, name).
typedef int64_t hn_pb_INT;
typedef float hn_pb_FLOAT;
typedef hn_slice hn_pb_TEXT;
typedef hn_wire hn_pb_MSG;
typedef hn_pb_list hn_pb_TEXTS, hn_pb_MSGS, hn_pb_VARINTS, hn_pb_FIXED32S, hn_pb_FIXED64S;
typedef enum hn_pb_kind {
    HN_PB_INT,
    HN_PB_FLOAT,
    HN_PB_TEXT,
    HN_PB_MSG,
    HN_PB_TEXTS,
    HN_PB_MSGS,
    HN_PB_VARINTS,
    HN_PB_FIXED32S,
    HN_PB_FIXED64S,
} hn_pb_kind;

// `seen` has bit i set when the i-th field of the row was present.
#define HN_MESSAGE(message, fields)                                                                \
    typedef struct hn_pb_##message {                                                               \
        uint64_t seen;                                                                             \
        fields(message)                                                                            \
    } hn_pb_##message;
#define F(message, kind, number, name) hn_pb_##kind name;
#include "onnx/proto.def"
#undef F
#undef HN_MESSAGE

// Bits of `seen`: HN_PB_attribute_i and so on.
#define HN_MESSAGE(message, fields)    enum { fields(message) HN_PB_COUNT_##message };
#define F(message, kind, number, name) HN_PB_##message##_##name,
#include "onnx/proto.def"
#undef F
#undef HN_MESSAGE
#define HN_PB_HAS(msg, message, name) (((msg)->seen >> HN_PB_##message##_##name) & 1)

// Each: hn_pb_read_<message>(err, arena, wire, out)
#define HN_MESSAGE(message, fields)                                                                \
    hn_status hn_pb_read_##message(hone_error *err, hn_arena *arena, hn_wire wire,                 \
                                   hn_pb_##message *out_message);
#define F(message, kind, number, name)
#include "onnx/proto.def"
#undef F
#undef HN_MESSAGE

static inline hn_slice hn_pb_text(hn_wire wire) {
    return (hn_slice){(const char *)wire.at, hn_wire_left(&wire)};
}
// Elements of a numeric list; the varints are decoded into an array of the arena.
hn_status hn_pb_ints(hone_error *err, hn_arena *arena, const hn_pb_list *list,
                     const int64_t **out_values, int64_t *out_count);
// Bytes of all chunks of a fixed-size list together.
size_t hn_pb_list_bytes(const hn_pb_list *list);
// True if text may become a C string: UTF-8 (as protobuf has it) without a NUL byte, at most 64 KiB.
bool hn_pb_name_ok(hn_slice text);
// The text as it may stand in an error sentence: cut, without control characters.
const char *hn_pb_quote(hn_slice text, char *buf, size_t size);
#endif
