// SPDX-License-Identifier: Apache-2.0
// The efficiency matrix: jobs and phases by what they did for a joule, and what it cost.
//
// Unknown figures are NAN and shown as "-" or null; nothing is guessed from another column.
#ifndef HN_FLEET_MATRIX_H
#define HN_FLEET_MATRIX_H
#include <jansson.h>
#include "fleet/exec_report.h"
#include "fleet/history.h"

typedef struct hn_matrix_row {
    int64_t job; // 0: not from the history
    char name[64], command[256], phase[64]; // phase "": the whole job
    char unit[24];
    int64_t start_ns, exit_status;
    bool running, complete;
    double seconds, units;
    hn_use use;
} hn_matrix_row;

typedef struct hn_matrix {
    HN_VEC(hn_matrix_row) rows;
    double price_per_kwh, co2_g_per_kwh; // NAN: not asked
} hn_matrix;
void hn_matrix_free(hn_matrix *matrix);

// Jobs of the filter, each followed by its phases where they are wanted.
hn_status hn_matrix_read(hone_error *err, hn_history *history, const hn_job_filter *filter, bool phases, hn_matrix *matrix);
// The job that a number or a name (the newest of it) means, with its phases.
hn_status hn_matrix_find(hone_error *err, hn_history *history, const char *which, hn_matrix *matrix);
// A measured command or a recording, with its phases. False: out of memory.
bool hn_matrix_add_result(hn_matrix *matrix, const char *name, const hn_exec_result *result, double units, const char *unit);

// Derived figures of a row.
typedef enum hn_matrix_figure {
#define HN_MATRIX(token, ...) HN_MX_##token,
#include "fleet/matrix.def"
#undef HN_MATRIX
    HN_MATRIX_FIGURES
} hn_matrix_figure;
double hn_matrix_value(const hn_matrix *matrix, const hn_matrix_row *row, hn_matrix_figure figure);

void hn_matrix_text(const hn_matrix *matrix, hn_str *out);
void hn_matrix_csv(const hn_matrix *matrix, hn_str *out);
json_t *hn_matrix_json(const hn_matrix *matrix); // NULL: out of memory
// Two jobs side by side, whole and by the phases that both have.
void hn_matrix_compare_text(const hn_matrix *a, const hn_matrix *b, hn_str *out);
json_t *hn_matrix_compare_json(const hn_matrix *a, const hn_matrix *b);
#endif
