// SPDX-License-Identifier: Apache-2.0
// The NCCL reader's doors: several inputs in, one report out.
#include "place/nccl_int.h"

static void state_free(hn_nccl_state *state) {
    hn_vec_free(&state->alternatives);
    hn_vec_free(&state->procs);
    hn_vec_free(&state->paths);
    hn_vec_free(&state->hosts);
    hn_vec_free(&state->devices);
    hn_vec_free(&state->addresses);
    hn_vec_free(&state->env);
    hn_vec_free(&state->rows);
    hn_vec_free(&state->row_marks);
    hn_vec_free(&state->made);
    hn_free(state->proc_table.slots);
    hn_free(state->path_table.slots);
    hn_free(state->causes);
    hn_str_free(&state->torn.line);
    hn_str_free(&state->torn.message);
    hn_str_free(&state->torn.whole);
    hn_str_free(&state->last.line);
    hn_str_free(&state->last.message);
    hn_str_free(&state->last.whole);
    hn_str_free(&state->collapsed);
    hn_free(state);
}

static hone_status read_all(hone_error *err, hn_nccl_state *state, const hn_nccl_input *inputs,
                            size_t input_count, hn_nccl_report *report) {
    HN_TRY(hn_nccl_patterns(state));
    for (size_t i = 0; i < input_count; i++) {
        hn_nccl_input input = inputs[i];
        input.name = hn_arena_strdup(&report->arena, input.name);
        if (!input.name) HN_NOMEM(err, "a file name");
        if (!hn_nccl_ras_json(state, &input)) HN_TRY(hn_nccl_feed(state, &input));
    }
    // The bulk of the records must have a head that can be read: what is left of the others is
    // guesswork.
    if (state->halves && state->halves * 10 >= state->records)
        HN_FAIL(err, HONE_ERR_FORMAT,
                "'%s': %lld of %lld NCCL records are broken inside their head 'host:pid:tid [card] "
                "NCCL LEVEL' (first at line %lld): the text was folded or cut; give the log as it "
                "was written",
                input_count == 1 ? inputs[0].name : "the input", (long long)state->halves,
                (long long)(state->halves + state->records), (long long)state->half_line);
    const char *broken = (state->folded && state->ras_seen) || state->ras_open + state->ras_unread
                             ? "a RAS report"
                         : !state->ras_seen && state->crumbs > (int64_t)state->rows.count / 4 &&
                                 (state->table_lines || state->folded)
                             ? "the table of nccl-tests"
                             : NULL;
    if (broken)
        HN_FAIL(err, HONE_ERR_FORMAT,
                "'%s': %s that was folded or cut cannot be read; give it as it was written",
                input_count == 1 ? inputs[0].name : "the input", broken);
    bool any = state->records || state->table_lines || state->ras_seen || state->env.count;
    for (size_t i = 0; i < hn_nccl_row_count; i++)
        any = any || (state->causes[i].count && strcasestr(state->causes[i].first.text, "nccl"));
    if (!any)
        HN_FAIL(err, HONE_ERR_FORMAT,
                "'%s' holds no NCCL log line, no RAS report and no nccl-tests table",
                input_count == 1 ? inputs[0].name : "the input");
    return hn_nccl_conclude(err, state, report);
}

// One reading; `fold_as` says how folded lines are joined where they leave that open (*out_doubt).
static hone_status read_as(hone_error *err, const hn_nccl_input *inputs, size_t input_count,
                           int fold_as, bool *out_doubt, int64_t *out_understood,
                           hn_nccl_report *out_report) {
    hn_nccl_report report = {.first_rank = -1, .ranks = -1, .nodes = -1, .one_node = -1};
    // The state is large (a hit a fact) and holds growing vectors: not on the stack.
    hn_nccl_state *state = hn_calloc(1, sizeof *state);
    if (!state) HN_NOMEM(err, "reading a log");
    state->arena = &report.arena;
    state->err = err;
    state->fold_as = fold_as;
    state->ranks = state->nodes = state->local_ranks = state->redop_root = -1;
    state->ras_rank = state->ras_low_rank = -1;
    state->ras_low = state->ras_high = state->ras_operation = -1;
    state->file = input_count ? inputs[0].name : "";
    state->causes = hn_calloc(hn_nccl_row_count, sizeof *state->causes);
    hone_status status = HONE_OK;
    if (!state->causes)
        status = HN_SET(err, HONE_ERR_NOMEM, "out of memory (reading a log)");
    else
        status = read_all(err, state, inputs, input_count, &report);
    *out_doubt = state->fold_doubt;
    *out_understood = state->understood;
    state_free(state);
    if (status != HONE_OK) {
        hn_arena_free(&report.arena);
        return status;
    }
    *out_report = report;
    return HONE_OK;
}

static bool same_text(const char *a, const char *b) {
    return a && b ? strcmp(a, b) == 0 : a == b;
}

// What a reader acts upon is the same in both.
static bool reports_agree(const hn_nccl_report *a, const hn_nccl_report *b) {
    if (a->healthy != b->healthy || a->first_rank != b->first_rank ||
        a->cause_count != b->cause_count || !same_text(a->transport, b->transport))
        return false;
    for (size_t i = 0; i < a->cause_count; i++)
        if (strcmp(a->causes[i].id, b->causes[i].id) != 0) return false;
    return true;
}

hn_status hn_nccl_read(hone_error *err, const hn_nccl_input *inputs, size_t input_count,
                       hn_nccl_report *out_report) {
    hn_nccl_report column = {.first_rank = -1}, blanks = {.first_rank = -1};
    bool doubt = false, ignored;
    int64_t by_column = 0, by_blanks = 0;
    hone_status status =
        read_as(err, inputs, input_count, HN_NCCL_FOLD_COLUMN, &doubt, &by_column, &column);
    if (!doubt) {
        if (status == HONE_OK) *out_report = column;
        return status;
    }
    // Folded, and the lines do not tell whether at a column or at blanks: whichever is understood
    // better, or either if they say the same.
    hone_error other = {0};
    hone_status second =
        read_as(&other, inputs, input_count, HN_NCCL_FOLD_BLANKS, &ignored, &by_blanks, &blanks);
    bool both = status == HONE_OK && second == HONE_OK;
    if (both && by_column == by_blanks && !reports_agree(&column, &blanks))
        status =
            HN_SET(err, HONE_ERR_FORMAT,
                   "'%s' was folded, and its lines can be joined in two ways that say different "
                   "things; give the log as it was written",
                   input_count == 1 ? inputs[0].name : "the input");
    else if (second == HONE_OK && (status != HONE_OK || by_blanks > by_column))
        status = HONE_OK, *out_report = blanks, blanks = (hn_nccl_report){0};
    else if (status == HONE_OK)
        *out_report = column, column = (hn_nccl_report){0};
    hn_nccl_report_free(&column);
    hn_nccl_report_free(&blanks);
    return status;
}

hn_status hn_nccl_read_files(hone_error *err, const char *const *paths, size_t path_count,
                             hn_nccl_report *out_report) {
    if (!path_count) HN_FAIL(err, HONE_ERR_USAGE, "no file is named");
    hn_nccl_input *inputs = hn_calloc(path_count, sizeof *inputs);
    if (!inputs) HN_NOMEM(err, "reading logs");
    hone_status status = HONE_OK;
    size_t left = HN_NCCL_MAX_BYTES;
    for (size_t i = 0; i < path_count && status == HONE_OK; i++) {
        char *data = NULL;
        size_t bytes = 0;
        status = hn_file_read_text(err, paths[i], left, &data, &bytes);
        if (status != HONE_OK) break;
        inputs[i] = (hn_nccl_input){paths[i], {data, bytes}};
        left -= bytes < left ? bytes : left; // what was UTF-16 may have grown
    }
    if (status == HONE_OK) status = hn_nccl_read(err, inputs, path_count, out_report);
    for (size_t i = 0; i < path_count; i++)
        hn_free((void *)(uintptr_t)inputs[i].text.data);
    hn_free(inputs);
    return status;
}

void hn_nccl_report_free(hn_nccl_report *report) {
    hn_arena_free(&report->arena);
    *report = (hn_nccl_report){.first_rank = -1};
}

const char *hn_nccl_severity_name(hn_nccl_severity severity) {
    static const char *const k_names[] = {"note", "risk", "slow", "fault"};
    return k_names[severity];
}
