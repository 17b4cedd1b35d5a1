// SPDX-License-Identifier: Apache-2.0
// Reader of Nsight Compute exports: see ncu.h.
#include "probe/ncu.h"
#include <ctype.h>
#include <math.h>
#include <stdio.h>

#define COLUMNS_MAX 64
#define KERNELS_MAX 65536
#define METRICS_MAX 4096

typedef struct reader {
    hn_ncu_report *report;
    const char *file;
    int line, columns;
    hn_slice names[COLUMNS_MAX];
} reader;

// RFC 4180 cells of one line. 0 = a broken quotation; cells lie in the line, quotes removed at the
// ends only (none of the tool's fields holds a doubled quote).
static int split(hn_slice line, hn_slice *cells, int max) {
    int count = 0;
    size_t at = 0;
    for (;;) {
        if (count == max) return 0;
        if (at < line.length && line.data[at] == '"') {
            size_t begin = ++at;
            for (;;) {
                while (at < line.length && line.data[at] != '"')
                    at++;
                if (at >= line.length) return 0;
                if (at + 1 < line.length && line.data[at + 1] == '"')
                    at += 2;
                else
                    break;
            }
            cells[count++] = (hn_slice){line.data + begin, at - begin};
            at++;
            if (at < line.length && line.data[at] != ',') return 0;
        } else {
            size_t begin = at;
            while (at < line.length && line.data[at] != ',') {
                if (line.data[at] == '"') return 0;
                at++;
            }
            cells[count++] = (hn_slice){line.data + begin, at - begin};
        }
        if (at >= line.length) return count;
        at++; // the comma
        if (at == line.length) return count; // a comma at the end adds no cell
    }
}

static int find_column(const reader *r, const char *name) {
    for (int i = 0; i < r->columns; i++)
        if (hn_slice_eq(r->names[i], name)) return i;
    return -1;
}

static hn_slice cell_of(const reader *r, const hn_slice *cells, int count, const char *name) {
    int column = find_column(r, name);
    return column >= 0 && column < count ? hn_slice_trim(cells[column]) : (hn_slice){"", 0};
}

// "1,208,777,429.47" and "384": groups of three digits, or none.
static double parse_number(hn_slice text) {
    char buf[64];
    size_t length = 0, since_comma = 0;
    bool grouped = false, fraction = false;
    for (size_t i = 0; i < text.length; i++) {
        char c = text.data[i];
        if (c == ',') {
            if (fraction || since_comma == 0 || since_comma > 3 || (grouped && since_comma != 3)) return NAN;
            grouped = true;
            since_comma = 0;
            continue;
        }
        if (c == '.') fraction = true;
        if (isdigit((unsigned char)c) && !fraction) since_comma++;
        if (length + 1 >= sizeof buf) return NAN;
        buf[length++] = c;
    }
    if (grouped && since_comma != 3) return NAN;
    double value;
    return hn_parse_f64((hn_slice){buf, length}, &value) && isfinite(value) ? value : NAN;
}

// "(4096, 1, 1)" or "256"; 0 = neither.
static int64_t parse_product(hn_slice text) {
    int64_t product = 1;
    int numbers = 0;
    for (size_t i = 0; i < text.length;) {
        size_t length = 0;
        while (i + length < text.length && isdigit((unsigned char)text.data[i + length]))
            length++;
        int64_t value;
        if (length == 0) {
            i++;
            continue;
        }
        if (!hn_parse_i64((hn_slice){text.data + i, length}, &value) || !hn_mul_i64(product, value, &product))
            return 0;
        numbers++;
        i += length;
    }
    return numbers ? product : 0;
}

static const char *copy(reader *r, hn_slice text) {
    const char *out = hn_arena_strndup(&r->report->arena, text.data, text.length);
    return out ? out : "";
}

// Rows of a kernel stand together; the same name under another id is another kernel.
static hn_ncu_kernel *kernel_of(reader *r, const hn_slice *cells, int count) {
    hn_slice id_text = cell_of(r, cells, count, "ID"), name = cell_of(r, cells, count, "Kernel Name");
    int64_t id = -1;
    hn_parse_i64(id_text, &id);
    size_t kernels = r->report->kernels.count;
    hn_ncu_kernel *last = kernels ? &r->report->kernels.data[kernels - 1] : NULL;
    if (last && last->id == id && hn_slice_eq(name, last->name)) return last;
    if (kernels >= KERNELS_MAX) return NULL;
    hn_ncu_kernel kernel = {.id = id, .invocations = 1, .name = copy(r, name),
                            .process = copy(r, cell_of(r, cells, count, "Process Name")),
                            .block_threads = parse_product(cell_of(r, cells, count, "Block Size")),
                            .grid_blocks = parse_product(cell_of(r, cells, count, "Grid Size"))};
    hn_slice cc = cell_of(r, cells, count, "CC");
    const char *dot = memchr(cc.data, '.', cc.length);
    int64_t major, minor;
    if (dot && hn_parse_i64((hn_slice){cc.data, (size_t)(dot - cc.data)}, &major) &&
        hn_parse_i64((hn_slice){dot + 1, cc.length - (size_t)(dot + 1 - cc.data)}, &minor) && major < 1000 && minor < 1000) {
        kernel.cc_major = (int)major;
        kernel.cc_minor = (int)minor;
    }
    int64_t invocations;
    if (hn_parse_i64(cell_of(r, cells, count, "Invocations"), &invocations)) kernel.invocations = invocations;
    if (!hn_vec_push(&r->report->kernels, kernel)) return NULL;
    return &r->report->kernels.data[kernels];
}

static hone_status take_row(hone_error *err, reader *r, const hn_slice *cells, int count) {
    hn_ncu_kernel *kernel = kernel_of(r, cells, count);
    if (!kernel) HN_FAIL(err, HONE_ERR_LIMIT, "%s: line %d: too many kernels", r->file, r->line);
    hn_slice metric = cell_of(r, cells, count, "Metric Name"), rule = cell_of(r, cells, count, "Rule Name");
    if (metric.length) {
        hn_slice average = cell_of(r, cells, count, "Average");
        hn_slice value = average.length ? average : cell_of(r, cells, count, "Metric Value");
        hn_ncu_metric item = {.section = copy(r, cell_of(r, cells, count, "Section Name")),
                              .name = copy(r, metric),
                              .unit = copy(r, cell_of(r, cells, count, "Metric Unit")),
                              .text = copy(r, value),
                              .value = parse_number(value),
                              .minimum = parse_number(cell_of(r, cells, count, "Minimum")),
                              .maximum = parse_number(cell_of(r, cells, count, "Maximum"))};
        if (kernel->metrics.count >= METRICS_MAX || !hn_vec_push(&kernel->metrics, item))
            HN_FAIL(err, HONE_ERR_LIMIT, "%s: line %d: too many metrics", r->file, r->line);
    }
    if (rule.length) {
        hn_slice text = cell_of(r, cells, count, "Rule Description");
        const char *remark = hn_arena_printf(&r->report->arena, "%.*s: %.*s", (int)rule.length, rule.data,
                                             (int)text.length, text.data);
        if (!remark || kernel->remarks.count >= METRICS_MAX || !hn_vec_push(&kernel->remarks, remark))
            HN_FAIL(err, HONE_ERR_LIMIT, "%s: line %d: too many remarks", r->file, r->line);
    }
    return HONE_OK;
}

static bool is_header(const hn_slice *cells, int count) {
    for (int i = 0; i < count; i++)
        if (hn_slice_eq(cells[i], "Metric Name")) return true;
    return false;
}

hn_status hn_ncu_parse(hone_error *err, const char *name, const char *data, size_t bytes,
                       hn_ncu_report *out_report) {
    hn_ncu_report report = {0};
    reader r = {.report = &report, .file = name};
    hn_slice rest = {data, bytes}, line, cells[COLUMNS_MAX];
    hone_status status = HONE_OK;
    while (status == HONE_OK && hn_slice_line(&rest, &line)) {
        r.line++;
        hn_slice body = hn_slice_trim(line);
        if (body.length == 0 || hn_slice_starts(body, "==")) continue;
        // A line that begins like a row must be one. Others are the program's, unless they hold
        // quoted cells as a row does ("...","add_vector.","..."): then the text was cut by hand.
        bool row = body.data[0] == '"';
        bool torn = !row && memmem(body.data, body.length, ",\"", 2) != NULL;
        int count = row ? split(body, cells, COLUMNS_MAX) : 0;
        if (torn || (row && count == 0)) {
            status = HN_SET(err, HONE_ERR_FORMAT,
                            "%s: line %d: broken quotation: not a whole row of an ncu CSV export", name, r.line);
        } else if (!row) {
            report.skipped_lines++;
        } else if (is_header(cells, count)) {
            memcpy(r.names, cells, (size_t)count * sizeof *cells);
            r.columns = count;
        } else if (r.columns == 0) {
            status = HN_SET(err, HONE_ERR_FORMAT, "%s: line %d: a row before the header", name, r.line);
        } else {
            status = take_row(err, &r, cells, count);
        }
    }
    if (status == HONE_OK && r.columns == 0)
        status = HN_SET(err, HONE_ERR_FORMAT, "%s: no header of an ncu CSV export (made with --csv?)", name);
    if (status != HONE_OK) {
        hn_ncu_free(&report);
        return status;
    }
    *out_report = report;
    return HONE_OK;
}

void hn_ncu_free(hn_ncu_report *report) {
    for (size_t i = 0; i < report->kernels.count; i++) {
        hn_vec_free(&report->kernels.data[i].metrics);
        hn_vec_free(&report->kernels.data[i].remarks);
    }
    hn_vec_free(&report->kernels);
    hn_arena_free(&report->arena);
    *report = (hn_ncu_report){0};
}

const hn_ncu_metric *hn_ncu_find(const hn_ncu_kernel *kernel, const char *name) {
    for (size_t i = 0; i < kernel->metrics.count; i++)
        if (strcmp(kernel->metrics.data[i].name, name) == 0) return &kernel->metrics.data[i];
    return NULL;
}

double hn_ncu_duration_ns(const hn_ncu_kernel *kernel) {
    static const char *const k_names[] = {"Duration", "gpu__time_duration.sum", "gpu__time_duration.avg"};
    static const struct {
        const char *unit;
        double factor;
    } k_units[] = {{"ns", 1}, {"nsecond", 1}, {"us", 1e3}, {"usecond", 1e3}, {"ms", 1e6},
                   {"msecond", 1e6}, {"s", 1e9}, {"second", 1e9}};
    for (size_t i = 0; i < HN_COUNT_OF(k_names); i++) {
        const hn_ncu_metric *metric = hn_ncu_find(kernel, k_names[i]);
        for (size_t u = 0; metric && u < HN_COUNT_OF(k_units); u++)
            if (strcmp(metric->unit, k_units[u].unit) == 0) return metric->value * k_units[u].factor;
    }
    return NAN;
}

hn_ncu_bound hn_ncu_bound_by(const hn_ncu_kernel *kernel) {
    const hn_ncu_metric *memory = hn_ncu_find(kernel, "Memory Throughput");
    // Two rows bear that name: per cent of peak, and bytes a second.
    for (size_t i = 0; i < kernel->metrics.count; i++)
        if (strcmp(kernel->metrics.data[i].name, "Memory Throughput") == 0 &&
            strcmp(kernel->metrics.data[i].unit, "%") == 0)
            memory = &kernel->metrics.data[i];
    const hn_ncu_metric *compute = hn_ncu_find(kernel, "Compute (SM) Throughput");
    if (!memory || !compute || strcmp(memory->unit, "%") != 0 || !isfinite(memory->value) || !isfinite(compute->value))
        return HN_NCU_UNKNOWN;
    return memory->value > compute->value ? HN_NCU_MEMORY : HN_NCU_COMPUTE;
}
