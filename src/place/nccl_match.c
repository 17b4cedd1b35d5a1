// SPDX-License-Identifier: Apache-2.0
// Patterns of facts and causes over squeezed text (lower case, no blanks), so that respaced,
// wrapped and coloured logs read the same. Patterns are squeezed once a read; a bitmap of the
// text's three-letter groups keeps the number of real searches near zero on ordinary lines.
#include "place/nccl_int.h"

#define F0                                                                                         \
    { HN_FACT_NONE }
#define F1(a)                                                                                      \
    { HN_FACT_##a }
#define F2(a, b)                                                                                   \
    { HN_FACT_##a, HN_FACT_##b }
#define F3(a, b, c)                                                                                \
    { HN_FACT_##a, HN_FACT_##b, HN_FACT_##c }
#define F4(a, b, c, d)                                                                             \
    { HN_FACT_##a, HN_FACT_##b, HN_FACT_##c, HN_FACT_##d }
#define F5(a, b, c, d, e)                                                                          \
    { HN_FACT_##a, HN_FACT_##b, HN_FACT_##c, HN_FACT_##d, HN_FACT_##e }
enum {
    FLAG_0 = 0,
    FLAG_W = HN_NCCL_F_WARN,
    FLAG_V = HN_NCCL_F_VICTIM,
    FLAG_VW = HN_NCCL_F_VICTIM | HN_NCCL_F_WARN,
    FLAG_D = HN_NCCL_F_DETAIL,
    FLAG_DV = HN_NCCL_F_DETAIL | HN_NCCL_F_VICTIM,
    FLAG_G = HN_NCCL_F_GENERIC,
    FLAG_GW = HN_NCCL_F_GENERIC | HN_NCCL_F_WARN,
    FLAG_GVW = HN_NCCL_F_GENERIC | HN_NCCL_F_VICTIM | HN_NCCL_F_WARN,
    FLAG_M = HN_NCCL_F_MADE,
    FLAG_DM = HN_NCCL_F_DETAIL | HN_NCCL_F_MADE,
};

const hn_nccl_row hn_nccl_rows[] = {
#define HN_CAUSE(id, severity, confidence, flags, pattern, all, none, why, mend)                   \
    {#id, HN_NCCL_##severity, confidence, FLAG_##flags, pattern, all, none, why, mend},
#include "place/nccl_causes.def"
#undef HN_CAUSE
};
const size_t hn_nccl_row_count = HN_COUNT_OF(hn_nccl_rows);

static const char *const k_fact_patterns[HN_FACT_COUNT] = {
#define HN_FACT(name, pattern)              pattern,
#define HN_FACT_ENV(name, variable, values) "",
#define HN_FACT_MADE(name, doc)             "",
#include "place/nccl_facts.def"
#undef HN_FACT
#undef HN_FACT_ENV
#undef HN_FACT_MADE
};

#define GRAM_BITS 4096

static uint16_t gram(const char *text) {
    uint32_t h =
        (unsigned char)text[0] * 961u + (unsigned char)text[1] * 31u + (unsigned char)text[2];
    return (uint16_t)((h * 2654435761u) >> 20); // 12 bits
}

int hn_nccl_cause_row(const char *id) {
    for (size_t i = 0; i < hn_nccl_row_count; i++)
        if (strcmp(hn_nccl_rows[i].id, id) == 0) return (int)i;
    return -1;
}

static hn_status add_patterns(hn_nccl_state *state, const char *pattern, size_t owner) {
    while (*pattern) {
        size_t length = strcspn(pattern, "|");
        char *text = hn_arena_alloc(state->arena, length + 1);
        if (!text) HN_NOMEM(state->err, "patterns");
        hn_nccl_alternative item = {text, (uint16_t)owner, 0, pattern[0] == '^'};
        size_t skip = item.anchored ? 1 : 0;
        hn_nccl_squeeze((hn_slice){pattern + skip, length - skip}, text, length + 1);
        HN_ASSERT(strcspn(text, "*") >= 3);
        item.gram = gram(text);
        if (!hn_vec_push(&state->alternatives, item)) HN_NOMEM(state->err, "patterns");
        pattern += length;
        if (*pattern == '|') pattern++;
    }
    return HONE_OK;
}

hn_status hn_nccl_patterns(hn_nccl_state *state) {
    for (size_t i = 0; i < HN_FACT_COUNT; i++)
        HN_TRY(add_patterns(state, k_fact_patterns[i], i));
    for (size_t i = 0; i < hn_nccl_row_count; i++)
        HN_TRY(add_patterns(state, hn_nccl_rows[i].pattern, HN_FACT_COUNT + i));
    return HONE_OK;
}

static bool matches(const hn_nccl_alternative *item, const char *text, size_t length) {
    const char *at = text, *end = text + length, *part = item->text;
    bool first = true;
    for (;;) {
        size_t part_length = strcspn(part, "*");
        if ((size_t)(end - at) < part_length) return false;
        if (first && item->anchored) {
            if (memcmp(at, part, part_length) != 0) return false;
        } else {
            at = memmem(at, (size_t)(end - at), part, part_length);
            if (!at) return false;
        }
        at += part_length;
        part += part_length;
        if (!*part) return true;
        part++;
        first = false;
    }
}

static void hit(hn_nccl_state *state, hn_nccl_hit *hit, const hn_nccl_mark *mark, uint64_t host_bit,
                uint64_t record) {
    if (hit->count && hit->last_record == record) return;
    bool earlier = hit->count && mark->time_us != INT64_MIN && hit->first.time_us != INT64_MIN &&
                   mark->time_us < hit->first.time_us;
    if (!hit->count || earlier) hit->first = hn_nccl_mark_keep(state, mark);
    hit->count++;
    hit->hosts |= host_bit;
    hit->last_record = record;
}

int hn_nccl_match(hn_nccl_state *state, const char *text, size_t length, const hn_nccl_mark *mark,
                  bool warn, uint64_t record) {
    if (length < 3) return 0;
    uint64_t seen[GRAM_BITS / 64] = {0};
    for (size_t i = 0; i + 3 <= length; i++) {
        uint16_t g = gram(text + i);
        seen[g / 64] |= 1ull << (g % 64);
    }
    uint64_t host_bit = 0;
    if (mark->proc >= 0) {
        int host = state->procs.data[mark->proc].host_index;
        if (host >= 0) host_bit = 1ull << (host < HN_NCCL_HOSTS_MAX ? host : HN_NCCL_HOSTS_MAX - 1);
    }
    int found = 0;
    size_t generic = SIZE_MAX; // first generic row that matches
    for (size_t i = 0; i < state->alternatives.count; i++) {
        const hn_nccl_alternative *item = &state->alternatives.data[i];
        if (!(seen[item->gram / 64] >> (item->gram % 64) & 1)) continue;
        if (!matches(item, text, length)) continue;
        if (item->owner < HN_FACT_COUNT) {
            hit(state, &state->facts[item->owner], mark, host_bit, record);
            continue;
        }
        size_t row = (size_t)item->owner - HN_FACT_COUNT;
        if ((hn_nccl_rows[row].flags & HN_NCCL_F_WARN) && !warn) continue;
        if (hn_nccl_rows[row].flags & HN_NCCL_F_GENERIC) {
            if (generic == SIZE_MAX) generic = row;
            continue;
        }
        hit(state, &state->causes[row], mark, host_bit, record);
        found++;
    }
    // A record scanned again with its tail: the special row takes it from the generic one.
    for (size_t row = 0; found && row < hn_nccl_row_count; row++) {
        hn_nccl_hit *taken = &state->causes[row];
        if (!(hn_nccl_rows[row].flags & HN_NCCL_F_GENERIC) || !taken->count ||
            taken->last_record != record)
            continue;
        taken->count--;
        taken->last_record = 0;
    }
    if (!found && generic != SIZE_MAX) {
        hit(state, &state->causes[generic], mark, host_bit, record);
        found = 1;
    }
    return found;
}
