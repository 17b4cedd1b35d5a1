// SPDX-License-Identifier: Apache-2.0
// RAS reports (ncclras, text and JSON): who is dead, silent, in error or behind the others.
//
// The text names ranks only where they are few; a lagging group without names gives no rank.
#include <jansson.h>
#include "place/nccl_int.h"

enum { NOTHING, DEAD, INCOMPLETE, IN_ERROR, LAGGING, STATUS };

static bool has(hn_slice text, const char *word) {
    return text.length && memmem(text.data, text.length, word, strlen(word)) != NULL;
}

static void raise(hn_nccl_state *state, const hn_nccl_record *record, int section, const char *id) {
    hn_nccl_mark mark;
    hn_nccl_mark_set(state, record, -1, &mark);
    state->ras_section = section;
    state->ras_open = 0;
    hn_nccl_made_add(state, id, &mark, "%.*s", (int)record->message.length, record->message.data);
}

static void launched(hn_nccl_state *state, hn_slice text) {
    int64_t operation;
    if (!hn_nccl_word_number(text, "operation", &operation)) return;
    state->ras_operation = operation;
    if (state->ras_low < 0 || operation < state->ras_low) {
        state->ras_low = operation;
        state->ras_low_rank = -1;
    }
    if (operation > state->ras_high) state->ras_high = operation;
}

static void listed_rank(hn_nccl_state *state, hn_slice text) {
    int64_t rank;
    if (!hn_nccl_word_number(text, "rank", &rank) || rank > 10000000) return;
    if (state->ras_section == LAGGING) {
        if (state->ras_operation == state->ras_low && state->ras_low_rank < 0)
            state->ras_low_rank = (int)rank;
    } else if (state->ras_section != NOTHING && state->ras_rank < 0) {
        state->ras_rank = (int)rank;
    }
}

bool hn_nccl_ras_line(hn_nccl_state *state, const hn_nccl_record *record) {
    hn_slice text = record->message;
    if (!state->in_ras) {
        if (!has(text, "Job summary") && !has(text, "Communicators... (")) return false;
        state->in_ras = state->ras_seen = true;
        state->ras_section = NOTHING;
        return true;
    }
    // "#0-0 (77aa01) MISMATCH": its next lines must say what is wrong.
    if (text.data[0] == '#' &&
        (has(text, "MISMATCH") || has(text, "INCOMPLETE") || has(text, "ERROR"))) {
        state->ras_unread += state->ras_open;
        state->ras_open = 1;
    }
    if (has(text, "considered dead"))
        raise(state, record, DEAD, "ras_dead");
    else if (has(text, "Missing communicator data"))
        raise(state, record, INCOMPLETE, "ras_incomplete");
    else if (has(text, "Asynchronous error") || has(text, "Initialization error"))
        raise(state, record, IN_ERROR, "ras_error");
    else if (has(text, "operation counts"))
        raise(state, record, LAGGING, "ras_lagging");
    else if (has(text, "ranks have different status"))
        raise(state, record, STATUS, "ras_status_mismatch");
    else if (has(text, "communication timeout"))
        raise(state, record, NOTHING, "ras_timeout");
    else if (has(text, "launched up to operation"))
        launched(state, text);
    else if (has(text, "Rank ") && has(text, " -- "))
        listed_rank(state, text);
    else if (has(text, "ProcessGroup") || has(text, "Traceback"))
        return state->in_ras = false; // the program's own output goes on
    return true;
}

// ---- JSON -------------------------------------------------------------------------------------
// The line of the input that holds the nth (from 0) `needle`, as evidence.
static hn_nccl_mark find_mark(const hn_nccl_input *input, const char *needle, int64_t nth,
                              char *buffer, size_t size) {
    hn_nccl_mark mark = {input->name, buffer, {0}, 1, INT64_MIN, -1};
    hn_slice rest = input->text, line, first = {0};
    for (int64_t number = 1; hn_slice_line(&rest, &line); number++) {
        if (!first.length) first = line;
        if (!has(line, needle) || nth-- > 0) continue;
        mark.line = number;
        first = line;
        break;
    }
    snprintf(buffer, size, "%.*s", (int)(first.length < 1000 ? first.length : 1000),
             first.data ? first.data : "");
    return mark;
}

static void missing_rank(hn_nccl_state *state, const hn_nccl_input *input, json_t *rank,
                         int64_t nth) {
    json_t *status = json_object_get(rank, "status");
    bool dead = json_is_true(json_object_get(status, "considered_dead"));
    bool silent = json_is_true(json_object_get(status, "unresponsive"));
    char text[1024];
    hn_nccl_mark mark = find_mark(input, "\"considered_dead\"", nth, text, sizeof text);
    int number = (int)json_integer_value(json_object_get(rank, "rank"));
    const char *host = json_string_value(json_object_get(rank, "host"));
    hn_nccl_made_add(state,
                     dead     ? "ras_dead"
                     : silent ? "ras_incomplete"
                              : "ras_status_mismatch",
                     &mark, "rank %d, process %lld on %s", number,
                     (long long)json_integer_value(json_object_get(rank, "pid")),
                     host ? host : "an unknown host");
    if (state->ras_rank < 0) state->ras_rank = number;
}

// Per operation: the ranks that launched less than the most.
static void compare_counts(hn_nccl_state *state, const hn_nccl_input *input, json_t *ranks) {
    json_t *first = json_object_get(json_array_get(ranks, 0), "collective_counts"), *value;
    const char *name;
    json_object_foreach(first, name, value) {
        int64_t low = INT64_MAX, high = -1;
        int low_rank = -1;
        size_t i;
        json_t *rank;
        json_array_foreach(ranks, i, rank) {
            int64_t count = json_integer_value(
                json_object_get(json_object_get(rank, "collective_counts"), name));
            if (count < low) {
                low = count;
                low_rank = (int)json_integer_value(json_object_get(rank, "rank"));
            }
            if (count > high) high = count;
        }
        if (high <= low) continue;
        char text[1024], needle[128];
        snprintf(needle, sizeof needle, "\"%.60s\": %lld", name, (long long)low);
        hn_nccl_mark mark = find_mark(input, needle, 0, text, sizeof text);
        hn_nccl_made_add(state, "ras_lagging", &mark,
                         "%s: rank %d has launched %lld, others up to %lld", name, low_rank,
                         (long long)low, (long long)high);
        if (state->ras_low_rank < 0) state->ras_low_rank = low_rank;
    }
}

bool hn_nccl_ras_json(hn_nccl_state *state, const hn_nccl_input *input) {
    hn_slice text = hn_slice_trim(input->text);
    if (!text.length || text.data[0] != '{' || !has(text, "\"communicators\"")) return false;
    json_t *root = json_loadb(text.data, text.length, JSON_DISABLE_EOF_CHECK, NULL);
    json_t *communicators = json_object_get(root, "communicators"), *communicator, *rank;
    if (!json_is_array(communicators)) {
        json_decref(root);
        return false;
    }
    state->ras_seen = true;
    size_t i, j;
    int64_t missing = 0;
    json_array_foreach(communicators, i, communicator) {
        json_t *ranks = json_object_get(communicator, "ranks");
        int64_t size = json_integer_value(json_object_get(communicator, "size"));
        if (size > state->ranks && size < 10000000) state->ranks = (int)size;
        json_array_foreach(json_object_get(communicator, "missing_ranks"), j, rank)
            missing_rank(state, input, rank, missing++);
        json_array_foreach(ranks, j, rank) {
            json_t *status = json_object_get(rank, "status");
            int64_t code = json_integer_value(json_object_get(status, "async_error"));
            int64_t init = json_integer_value(json_object_get(status, "init_state"));
            if (code == 7) code = 0; // in progress
            if (init != 0 && init != 7) code = init;
            if (!code) continue;
            char line[1024], needle[64];
            snprintf(needle, sizeof needle, "\"async_error\": %lld", (long long)code);
            hn_nccl_mark mark = find_mark(input, needle, 0, line, sizeof line);
            int number = (int)json_integer_value(json_object_get(rank, "rank"));
            hn_nccl_made_add(state, "ras_error", &mark, "rank %d, NCCL result %lld", number,
                             (long long)code);
            if (state->ras_rank < 0) state->ras_rank = number;
        }
        if (json_is_array(ranks)) compare_counts(state, input, ranks);
    }
    int64_t lines = 0;
    hn_slice line;
    for (hn_slice rest = input->text; hn_slice_line(&rest, &line);)
        lines++;
    state->lines += lines;
    json_decref(root);
    return true;
}
