// SPDX-License-Identifier: Apache-2.0
// ONNX messages from wire bytes: see proto.h. One generic reader, driven by the rows of proto.def.
#include "onnx/proto.h"
#include <ctype.h>
#include <stdio.h>

typedef struct slot_row {
    hn_pb_kind kind;
    uint32_t number;
    size_t offset;
    const char *name; // "graph.nodes"
} slot_row;

static bool is_list(hn_pb_kind kind) {
    return kind >= HN_PB_TEXTS;
}

// The wire type a field must have; numeric lists may also come packed.
static hn_wire_type wire_type_of(hn_pb_kind kind) {
    switch (kind) {
    case HN_PB_INT:
    case HN_PB_VARINTS:
        return HN_WIRE_VARINT;
    case HN_PB_FLOAT:
    case HN_PB_FIXED32S:
        return HN_WIRE_FIXED32;
    case HN_PB_FIXED64S:
        return HN_WIRE_FIXED64;
    default:
        return HN_WIRE_BYTES;
    }
}

static hn_status check_field(hone_error *err, const slot_row *slot, const hn_wire_field *field) {
    bool packed = field->type == HN_WIRE_BYTES && slot->kind >= HN_PB_VARINTS;
    if (field->type != wire_type_of(slot->kind) && !packed)
        HN_FAIL(err, HONE_ERR_FORMAT, "the field %s has the wrong wire type %d", slot->name,
                (int)field->type);
    size_t unit = slot->kind == HN_PB_FIXED32S ? 4 : slot->kind == HN_PB_FIXED64S ? 8 : 1;
    if (packed && hn_wire_left(&field->bytes) % unit)
        HN_FAIL(err, HONE_ERR_FORMAT, "the field %s has %zu bytes, no multiple of %zu", slot->name,
                hn_wire_left(&field->bytes), unit);
    return HONE_OK;
}

static void store_single(const slot_row *slot, const hn_wire_field *field, char *at) {
    switch (slot->kind) {
    case HN_PB_INT:
        *(int64_t *)(void *)at = (int64_t)field->value;
        break;
    case HN_PB_FLOAT: {
        uint32_t bits = (uint32_t)field->value;
        memcpy(at, &bits, sizeof bits);
        break;
    }
    case HN_PB_TEXT:
        *(hn_slice *)(void *)at = hn_pb_text(field->bytes);
        break;
    default:
        *(hn_wire *)(void *)at = field->bytes;
    }
}

#define MAX_SLOTS 32

// Two rounds: the first checks the wire and counts the lists' elements, the second stores.
static hn_status read_message(hone_error *err, hn_arena *arena, hn_wire wire, const slot_row *slots,
                              size_t slot_count, void *out) {
    HN_ASSERT(slot_count <= MAX_SLOTS);
    size_t counts[MAX_SLOTS] = {0};
    uint64_t seen = 0;
    char *base = out;
    for (int round = 0; round < 2; round++) {
        hn_wire rest = wire;
        for (;;) {
            hn_wire_field field;
            bool more;
            HN_TRY(hn_wire_next(err, &rest, &field, &more));
            if (!more) break;
            size_t at = 0;
            while (at < slot_count && slots[at].number != field.number)
                at++;
            if (at == slot_count) continue;
            const slot_row *slot = &slots[at];
            if (round == 0) {
                HN_TRY(check_field(err, slot, &field));
                if (slot->kind == HN_PB_MSG && (seen >> at & 1))
                    HN_FAIL(err, HONE_ERR_FORMAT, "the field %s appears twice", slot->name);
                counts[at]++;
            } else if (is_list(slot->kind)) {
                hn_pb_list *list = (hn_pb_list *)(void *)(base + slot->offset);
                list->items[list->count++] = field.bytes;
            } else {
                store_single(slot, &field, base + slot->offset);
            }
            seen |= (uint64_t)1 << at;
        }
        for (size_t i = 0; round == 0 && i < slot_count; i++) {
            if (!is_list(slots[i].kind) || counts[i] == 0) continue;
            hn_pb_list *list = (hn_pb_list *)(void *)(base + slots[i].offset);
            list->items = hn_arena_array(arena, counts[i], sizeof *list->items);
            if (!list->items) HN_NOMEM(err, "reading an ONNX file");
        }
    }
    *(uint64_t *)out = seen;
    return HONE_OK;
}

#define HN_MESSAGE(message, fields)                                                                \
    static const slot_row k_##message[] = {fields(message)};                                       \
    hn_status hn_pb_read_##message(hone_error *err, hn_arena *arena, hn_wire wire,                 \
                                   hn_pb_##message *out_message) {                                 \
        _Static_assert(HN_COUNT_OF(k_##message) <= MAX_SLOTS, "too many fields");                  \
        *out_message = (hn_pb_##message){0};                                                       \
        return read_message(err, arena, wire, k_##message, HN_COUNT_OF(k_##message), out_message); \
    }
#define F(message, kind, number, name)                                                             \
    {HN_PB_##kind, number, offsetof(hn_pb_##message, name), #message "." #name},
#include "onnx/proto.def"
#undef F
#undef HN_MESSAGE

size_t hn_pb_list_bytes(const hn_pb_list *list) {
    size_t bytes = 0; // the chunks lie in one buffer: no overflow
    for (size_t i = 0; i < list->count; i++)
        bytes += hn_wire_left(&list->items[i]);
    return bytes;
}

hn_status hn_pb_ints(hone_error *err, hn_arena *arena, const hn_pb_list *list,
                     const int64_t **out_values, int64_t *out_count) {
    size_t count = 0;
    for (size_t i = 0; i < list->count; i++)
        for (const uint8_t *at = list->items[i].at; at < list->items[i].end; at++)
            count += *at < 0x80;
    int64_t *values = hn_arena_array(arena, count + 1, sizeof *values);
    if (!values) HN_NOMEM(err, "reading an ONNX file");
    size_t at = 0;
    for (size_t i = 0; i < list->count; i++) {
        for (hn_wire rest = list->items[i]; rest.at < rest.end;) {
            uint64_t value;
            const char *why = hn_wire_varint(&rest, &value);
            if (why) HN_FAIL(err, HONE_ERR_FORMAT, "a list of integers is broken: %s", why);
            values[at++] = (int64_t)value;
        }
    }
    *out_values = values;
    *out_count = (int64_t)at;
    return HONE_OK;
}

bool hn_pb_name_ok(hn_slice text) {
    return text.length <= 65536 && !(text.length && memchr(text.data, 0, text.length)) &&
           hn_utf8_valid(text.data, text.length);
}

const char *hn_pb_quote(hn_slice text, char *buf, size_t size) {
    size_t cut = text.length < size ? text.length : size - 1;
    for (size_t i = 0; i < cut; i++) {
        unsigned char c = (unsigned char)text.data[i];
        buf[i] = (char)(c < 32 || c == 127 ? '?' : c);
    }
    buf[cut] = '\0';
    if (cut < text.length && cut > 3) memcpy(buf + cut - 3, "...", 3);
    return buf;
}
