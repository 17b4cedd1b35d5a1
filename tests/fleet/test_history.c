// SPDX-License-Identifier: Apache-2.0
// TEST-TIMEOUT 120
// The history file: what is written is read back, bounded, whole after kill -9, and never a reason to stop.
#include "support/fleet.h"
#include <fcntl.h>
#include <glob.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "fleet/history.h"

static const char *file_of(const char *name) {
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", fleet_folder, name);
    return path;
}

static hn_history *open_at(const char *path, int64_t max_bytes) {
    hone_error err = {0};
    hn_history *h = NULL;
    hn_history_options options = {.path = path, .max_bytes = max_bytes};
    if (hn_history_open(&err, &options, &h) != HONE_OK) fail_msg("%s", err.text);
    return h;
}
static int64_t now_s(void) { return hn_clock_wall_ns() / 1000000000; }

static void make_row(hn_history_row *row, int64_t t_s, int64_t device, double power_w) {
    *row = (hn_history_row){.t_s = t_s, .device = device, .n = 10, .joules = power_w};
    hn_sample_put(&row->sample, HN_M_power_w, power_w);
    hn_sample_put(&row->sample, HN_M_energy_mj, 1e12 + 3);
    hn_sample_put(&row->sample, HN_M_sm_active, 0.5);
}

typedef struct found {
    hn_history_row rows[16];
    int count;
} found;
static bool take(void *user, const hn_history_row *row) {
    found *f = user;
    if (f->count < 16) f->rows[f->count] = *row;
    f->count++;
    return true;
}

static int64_t count_of(const char *path, const char *sql) {
    sqlite3 *db;
    sqlite3_stmt *statement;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &statement, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(statement), SQLITE_ROW);
    int64_t value = sqlite3_column_int64(statement, 0);
    sqlite3_finalize(statement);
    sqlite3_close(db);
    return value;
}

static void test_rows(void **state) {
    (void)state;
    hone_error err = {0};
    char path[512];
    snprintf(path, sizeof path, "%s", file_of("new/folder/rows.db")); // folders are made
    hn_history *h = open_at(path, 0);
    hn_device_info info;
    hn_device_info_init(&info, HN_DEVICE_GPU);
    snprintf(info.uuid, sizeof info.uuid, "GPU-1");
    info.gpu_index = 3;
    int64_t id, again, other;
    OK(hn_history_device(&err, h, &info, "node1", &id));
    OK(hn_history_device(&err, h, &info, "node1", &again));
    OK(hn_history_device(&err, h, &info, "node2", &other));
    assert_int_equal(id, again);
    assert_int_not_equal(id, other);
    hn_history_row rows[3];
    int64_t t = now_s();
    make_row(&rows[0], t - 1, id, 100.25);
    make_row(&rows[1], t, other, 200);
    make_row(&rows[2], t, id, 300);
    rows[2].joules = NAN;
    OK(hn_history_put(&err, h, HN_HISTORY_SECONDS, rows, 3));
    make_row(&rows[2], t, id, 301); // replaces
    OK(hn_history_put(&err, h, HN_HISTORY_SECONDS, &rows[2], 1));
    found f = {0};
    OK(hn_history_rows(&err, h, HN_HISTORY_SECONDS, 0, t - 10, t + 1, take, &f));
    assert_int_equal(f.count, 3);
    assert_int_equal(f.rows[0].t_s, t - 1);
    assert_true(f.rows[0].sample.value[HN_M_power_w] == 100.25 && f.rows[0].joules == 100.25);
    assert_true(f.rows[0].sample.value[HN_M_energy_mj] == 1e12 + 3);
    assert_false(hn_sample_has(&f.rows[0].sample, HN_M_l2_hit)); // unknown stays unknown
    assert_true(f.rows[1].sample.value[HN_M_power_w] == 301);
    f.count = 0;
    OK(hn_history_rows(&err, h, HN_HISTORY_SECONDS, other, t - 10, t + 1, take, &f));
    assert_int_equal(f.count, 1);
    f.count = 0;
    OK(hn_history_rows(&err, h, HN_HISTORY_MINUTES, 0, 0, INT64_MAX, take, &f));
    assert_int_equal(f.count, 0);
    assert_true(hn_history_bytes(h) > 0);
    hn_history_close(h);
}

typedef struct jobs {
    int64_t ids[8];
    int count;
    hn_job last;
    char command[64], report[64];
} jobs;
static bool take_job(void *user, const hn_job *job) {
    jobs *j = user;
    if (j->count < 8) j->ids[j->count] = job->id;
    j->count++;
    j->last = *job;
    snprintf(j->command, sizeof j->command, "%s", job->command);
    snprintf(j->report, sizeof j->report, "%s", job->report);
    return true;
}
static bool take_phase(void *user, const hn_phase *phase) {
    double *joules = user;
    assert_true(phase->seq < 2);
    assert_string_equal(phase->phase, phase->seq ? "validate" : "train");
    joules[phase->seq] = phase->use.joules;
    assert_true(isnan(phase->use.l2_hit));
    return true;
}
static bool take_part(void *user, const hn_job_device *part) {
    *(double *)user += part->use.sm_active;
    return true;
}

static void test_jobs(void **state) {
    (void)state;
    hone_error err = {0};
    char path[512];
    snprintf(path, sizeof path, "%s", file_of("jobs.db"));
    hn_history_options options = {.path = path, .keep_jobs = 3};
    hn_history *h;
    OK(hn_history_open(&err, &options, &h));
    for (int i = 0; i < 5; i++) {
        hn_job job = {.command = i == 3 ? "python3 'my train.py'" : "sleep 1", .start_ns = 1000 + i, .pid = 7,
                      .exit_status = -1, .units = NAN, .devices = 2};
        hn_use_init(&job.use);
        OK(hn_history_job_put(&err, h, &job));
        assert_int_equal(job.id, i + 1);
        hn_phase phase = {.job = job.id, .phase = "train", .start_ns = 1, .end_ns = 2, .units = 5};
        hn_use_init(&phase.use);
        phase.use.joules = 10 * i;
        OK(hn_history_phase_put(&err, h, &phase));
        phase.seq = 1;
        phase.phase = "validate";
        phase.use.joules = 1;
        OK(hn_history_phase_put(&err, h, &phase));
        hn_job_device part = {.job = job.id, .device = 1};
        hn_use_init(&part.use);
        part.use.sm_active = 0.25;
        OK(hn_history_job_device_put(&err, h, &part));
        job.end_ns = 9000;
        job.exit_status = 0;
        job.use.joules = 7200;
        job.use.method = HN_ENERGY_POWER;
        job.report = "{\"a\":1}";
        OK(hn_history_job_put(&err, h, &job)); // written anew: its phases stay
    }
    jobs j = {0};
    hn_job_filter filter = {0};
    OK(hn_history_jobs(&err, h, &filter, take_job, &j));
    assert_int_equal(j.count, 3); // the oldest two went, with what belongs to them
    assert_int_equal(j.ids[0], 3);
    assert_int_equal(j.last.exit_status, 0);
    assert_true(j.last.use.joules == 7200 && j.last.use.method == HN_ENERGY_POWER && isnan(j.last.units));
    assert_string_equal(j.report, "");
    assert_int_equal(count_of(path, "SELECT count(*) FROM phases"), 6);
    assert_int_equal(count_of(path, "SELECT count(*) FROM job_devices"), 3);
    assert_int_equal(count_of(path, "SELECT wh FROM jobs WHERE id = 5"), 2);
    j = (jobs){0};
    filter = (hn_job_filter){.like = "my train", .with_report = true};
    OK(hn_history_jobs(&err, h, &filter, take_job, &j));
    assert_int_equal(j.count, 1);
    assert_string_equal(j.command, "python3 'my train.py'");
    assert_string_equal(j.report, "{\"a\":1}");
    j = (jobs){0};
    filter = (hn_job_filter){.newest = 2};
    OK(hn_history_jobs(&err, h, &filter, take_job, &j));
    assert_true(j.count == 2 && j.ids[0] == 4 && j.ids[1] == 5);
    double joules[2] = {0, 0}, active = 0;
    OK(hn_history_phases(&err, h, 4, take_phase, joules));
    assert_true(joules[0] == 30 && joules[1] == 1);
    OK(hn_history_job_devices(&err, h, 4, take_part, &active));
    assert_true(active == 0.25);
    hn_history_close(h);
    // Read only: nothing is made, nothing is changed.
    options.read_only = true;
    OK(hn_history_open(&err, &options, &h));
    hn_job job = {.command = "x"};
    assert_int_equal(hn_history_job_put(&err, h, &job), HONE_ERR_USAGE);
    hn_history_close(h);
    options.path = file_of("absent.db");
    assert_int_equal(hn_history_open(&err, &options, &h), HONE_ERR_IO);
    assert_int_not_equal(access(file_of("absent.db"), F_OK), 0);
}

// Columns that a file of another version lacks are added; a file of a newer layout or program is left alone.
static void test_versions(void **state) {
    (void)state;
    hone_error err = {0};
    char path[512];
    snprintf(path, sizeof path, "%s", file_of("versions.db"));
    hn_history_close(open_at(path, 0));
    count_of(path, "SELECT count(*) FROM (SELECT 1)");
    sqlite3 *db;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "ALTER TABLE seconds DROP COLUMN power_w; ALTER TABLE jobs DROP COLUMN l2_hit;"
                                      "ALTER TABLE seconds ADD COLUMN from_the_future REAL;", NULL, NULL, NULL),
                     SQLITE_OK);
    sqlite3_close(db);
    hn_history *h;
    hn_history_options options = {.path = path, .read_only = true};
    OK(hn_history_open(&err, &options, &h));
    found f = {0};
    OK(hn_history_rows(&err, h, HN_HISTORY_SECONDS, 0, 0, INT64_MAX, take, &f)); // what it lacks is unknown
    hn_history_close(h);
    h = open_at(path, 0);
    hn_history_row row;
    make_row(&row, now_s(), 1, 55);
    OK(hn_history_put(&err, h, HN_HISTORY_SECONDS, &row, 1));
    OK(hn_history_rows(&err, h, HN_HISTORY_SECONDS, 0, 0, INT64_MAX, take, &f));
    assert_true(f.count == 1 && f.rows[0].sample.value[HN_M_power_w] == 55);
    hn_history_close(h);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    sqlite3_exec(db, "PRAGMA user_version=99", NULL, NULL, NULL);
    sqlite3_close(db);
    options.read_only = false;
    assert_int_equal(hn_history_open(&err, &options, &h), HONE_ERR_UNSUPPORTED);
    options.path = file_of("other.db");
    assert_int_equal(sqlite3_open(options.path, &db), SQLITE_OK);
    sqlite3_exec(db, "CREATE TABLE theirs(x)", NULL, NULL, NULL);
    sqlite3_close(db);
    char *before, *after; // not a byte changes: WAL would be noted in the file
    size_t before_bytes, after_bytes;
    OK(hn_file_read(&err, options.path, 1 << 20, &before, &before_bytes));
    assert_int_equal(hn_history_open(&err, &options, &h), HONE_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "another program"));
    OK(hn_file_read(&err, options.path, 1 << 20, &after, &after_bytes));
    assert_true(before_bytes == after_bytes && memcmp(before, after, after_bytes) == 0);
    hn_free(before);
    hn_free(after);
    assert_int_equal(count_of(options.path, "SELECT count(*) FROM sqlite_master"), 1);
}

static int set_aside_count(const char *path) {
    char pattern[600];
    glob_t list;
    snprintf(pattern, sizeof pattern, "%s.corrupt-*[0-9]", path);
    int count = glob(pattern, 0, NULL, &list) == 0 ? (int)list.gl_pathc : 0;
    globfree(&list);
    return count;
}

static void overwrite(const char *path, off_t from, size_t bytes) {
    int fd = open(path, O_WRONLY);
    assert_true(fd >= 0);
    for (size_t i = 0; i < bytes; i++) assert_int_equal(pwrite(fd, "\xa5", 1, from + (off_t)i), 1);
    close(fd);
}

static void test_damage(void **state) {
    (void)state;
    hone_error err = {0};
    char path[512];
    snprintf(path, sizeof path, "%s", file_of("damage.db"));
    // Somebody's file, named by mistake: it is refused and left as it is.
    FILE *f = fopen(path, "w");
    for (int i = 0; i < 5000; i++) fputs("this is not a database\n", f);
    fclose(f);
    hn_history *h;
    for (int read_only = 0; read_only < 2; read_only++) {
        hn_history_options options = {.path = path, .read_only = read_only};
        assert_int_equal(hn_history_open(&err, &options, &h), HONE_ERR_FORMAT);
        assert_non_null(strstr(err.text, "is no history of hone"));
    }
    assert_int_equal(set_aside_count(path), 0);
    struct stat left;
    assert_int_equal(stat(path, &left), 0);
    assert_int_equal(left.st_size, 5000 * 23);
    // The first page is gone.
    f = fopen(path, "w");
    for (int i = 0; i < 16384; i++) fputc(i < 4096 ? 0 : 'x', f);
    fclose(f);
    fleet_log_lines = 0;
    h = open_at(path, 0);
    assert_int_equal(fleet_log_lines, 1);
    assert_non_null(strstr(fleet_log[0], "set aside as"));
    assert_int_equal(set_aside_count(path), 1);
    hn_history_row rows[64];
    int64_t t = now_s();
    for (int k = 0; k < 20; k++) {
        for (int i = 0; i < 64; i++) make_row(&rows[i], t - 40 + k, i + 1, i);
        OK(hn_history_put(&err, h, HN_HISTORY_SECONDS, rows, 64));
    }
    hn_history_close(h);
    // Damage in the middle, met while writing: set aside, and what was to be written is in the new file.
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    overwrite(path, 4096, (size_t)info.st_size - 4096);
    sleep(1); // its name has a second's resolution
    fleet_log_lines = 0;
    h = open_at(path, 0);
    OK(hn_history_put(&err, h, HN_HISTORY_SECONDS, rows, 64));
    assert_int_equal(fleet_log_lines, 1);
    assert_int_equal(set_aside_count(path), 2);
    found found_rows = {0};
    OK(hn_history_rows(&err, h, HN_HISTORY_SECONDS, 0, 0, INT64_MAX, take, &found_rows));
    assert_int_equal(found_rows.count, 64);
    hn_history_close(h);
}

// Retention, and the bound on the file.
static void test_bounds(void **state) {
    (void)state;
    hone_error err = {0};
    char path[512];
    snprintf(path, sizeof path, "%s", file_of("bounds.db"));
    int64_t max_bytes = 2 << 20, t = now_s();
    hn_history_options options = {.path = path, .max_bytes = max_bytes, .keep_second_s = 100000};
    hn_history *h;
    OK(hn_history_open(&err, &options, &h));
    hn_history_row rows[64];
    for (int64_t k = 0; k < 400; k++) {
        for (int i = 0; i < 64; i++) {
            make_row(&rows[i], t - 1000 + k, i + 1, (double)k + 0.123456789);
            for (int m = 0; m < 30; m++) hn_sample_put(&rows[i].sample, (hn_metric)m, 0.1 * m + (double)k);
        }
        OK(hn_history_put(&err, h, HN_HISTORY_SECONDS, rows, 64));
    }
    hn_history_close(h);
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    assert_in_range(info.st_size, 1, max_bytes);
    // The newest are there, the oldest made room.
    assert_int_equal(count_of(path, "SELECT max(t) FROM seconds"), t - 1000 + 399);
    assert_in_range(count_of(path, "SELECT count(*) FROM seconds"), 2000, 400 * 64 - 1000);
    options.keep_second_s = 900; // by now nearly all are too old
    OK(hn_history_open(&err, &options, &h));
    make_row(&rows[0], t, 1, 1);
    int64_t left = 0;
    for (int tries = 0; tries < 40; tries++) {
        OK(hn_history_put(&err, h, HN_HISTORY_SECONDS, rows, 1));
        char sql[128];
        snprintf(sql, sizeof sql, "SELECT count(*) FROM seconds WHERE t < %lld", (long long)now_s() - 905);
        left = count_of(path, sql);
        if (left == 0) break;
        usleep(500000);
    }
    assert_int_equal(left, 0);
    hn_history_close(h);
}

// Writes that fail leave the file whole, and go on when there is room again.
static void test_full_disk(void **state) {
    (void)state;
    hone_error err = {0};
    char path[512];
    snprintf(path, sizeof path, "%s", file_of("full.db"));
    hn_history *h = open_at(path, 0);
    hn_history_row rows[64];
    int64_t t = now_s();
    for (int i = 0; i < 64; i++) make_row(&rows[i], t, i + 1, 1);
    OK(hn_history_put(&err, h, HN_HISTORY_SECONDS, rows, 64));
    struct rlimit before, small = {0};
    getrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, SIG_IGN);
    small = before;
    small.rlim_cur = 200000;
    setrlimit(RLIMIT_FSIZE, &small);
    hone_status status = HONE_OK;
    for (int64_t k = 1; k < 200 && status == HONE_OK; k++) {
        for (int i = 0; i < 64; i++) rows[i].t_s = t + k;
        status = hn_history_put(&err, h, HN_HISTORY_SECONDS, rows, 64);
    }
    assert_int_equal(status, HONE_ERR_IO);
    assert_non_null(strstr(err.text, path));
    setrlimit(RLIMIT_FSIZE, &before);
    for (int i = 0; i < 64; i++) rows[i].t_s = t + 1000;
    OK(hn_history_put(&err, h, HN_HISTORY_SECONDS, rows, 64));
    hn_history_close(h);
    assert_int_equal(count_of(path, "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check = 'ok'"), 1);
    assert_int_equal(count_of(path, "SELECT count(*) FROM seconds WHERE t = (SELECT max(t) FROM seconds)"), 64);
}

// kill -9 in the middle of writing: all that was committed is there, and no half tick.
static void test_killed(void **state) {
    (void)state;
    char path[512];
    snprintf(path, sizeof path, "%s", file_of("killed.db"));
    for (int round = 0; round < 5; round++) {
        int ends[2];
        assert_int_equal(pipe(ends), 0);
        pid_t child = fork();
        if (child == 0) {
            hone_error err = {0};
            hn_history_options options = {.path = path};
            hn_history *h;
            if (hn_history_open(&err, &options, &h) != HONE_OK) _exit(1);
            hn_history_row rows[8];
            for (int64_t k = 0;; k++) {
                for (int i = 0; i < 8; i++) make_row(&rows[i], now_s() + round * 100000 + k, i + 1, (double)k);
                if (hn_history_put(&err, h, HN_HISTORY_SECONDS, rows, 8) != HONE_OK) _exit(2);
                if (write(ends[1], &rows[0].t_s, sizeof rows[0].t_s) < 0) _exit(3);
            }
        }
        close(ends[1]);
        int64_t committed = 0, one;
        for (int k = 0; k < 40 + 37 * round; k++)
            assert_int_equal(read(ends[0], &one, sizeof one), sizeof one), committed = one;
        kill(child, SIGKILL);
        int wait_status;
        waitpid(child, &wait_status, 0);
        assert_true(WIFSIGNALED(wait_status));
        while (read(ends[0], &one, sizeof one) == (ssize_t)sizeof one) committed = one;
        close(ends[0]);
        assert_true(count_of(path, "SELECT max(t) FROM seconds") >= committed);
        assert_int_equal(count_of(path, "SELECT count(*) FROM (SELECT t FROM seconds GROUP BY t HAVING count(*) <> 8)"), 0);
        assert_int_equal(count_of(path, "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check = 'ok'"), 1);
    }
}

// The file is taken away under an open handle: a new one is begun under its name.
static void test_removed(void **state) {
    (void)state;
    hone_error err = {0};
    char path[512];
    snprintf(path, sizeof path, "%s", file_of("removed.db"));
    hn_history *h = open_at(path, 0);
    hn_history_row row;
    make_row(&row, now_s(), 1, 5);
    OK(hn_history_put(&err, h, HN_HISTORY_SECONDS, &row, 1));
    unlink(path);
    for (int i = 0; i < 12 && access(path, F_OK) != 0; i++) {
        OK(hn_history_put(&err, h, HN_HISTORY_SECONDS, &row, 1));
        if (access(path, F_OK) != 0) sleep(1);
    }
    assert_int_equal(access(path, F_OK), 0);
    hn_history_close(h);
    assert_int_equal(count_of(path, "SELECT count(*) FROM seconds"), 1);
}

static void test_use_of_spans(void **state) {
    (void)state;
    hn_span *spans = hn_calloc(3, sizeof *spans);
    hn_device_info info;
    for (int i = 0; i < 3; i++) {
        hn_device_info_init(&info, i == 2 ? HN_DEVICE_HOST : HN_DEVICE_GPU);
        hn_span_start(&spans[i], &info);
        for (int k = 0; k <= 10; k++) {
            hn_sample s = {.t_ns = 1000000000ll * k + 1};
            if (i < 2) hn_sample_put(&s, HN_M_power_instant_w, 100 * (i + 1));
            if (i == 0) hn_sample_put(&s, HN_M_sm_active, 0.5);
            if (i < 2) hn_sample_put(&s, HN_M_fb_used_bytes, 1e9 * (i + 1));
            if (i == 2) hn_sample_put(&s, HN_M_cpu_util, 40);
            hn_span_add(&spans[i], &s);
        }
    }
    hn_use use;
    hn_use_of_spans(spans, 3, &use);
    assert_true(fabs(use.joules - 3000) < 1e-6 && fabs(use.avg_power_w - 300) < 1e-6);
    assert_int_equal(use.method, HN_ENERGY_POWER);
    assert_true(use.sm_active == 0.5 && isnan(use.l2_hit) && use.peak_memory_bytes == 2e9);
    assert_true(fabs(use.cpu_util - 0.4) < 1e-9);
    hn_use_of_spans(spans, 0, &use);
    assert_true(isnan(use.joules) && isnan(use.avg_power_w) && isnan(use.peak_memory_bytes));
    hn_free(spans);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows), cmocka_unit_test(test_jobs),       cmocka_unit_test(test_versions),
        cmocka_unit_test(test_damage), cmocka_unit_test(test_bounds),   cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_killed), cmocka_unit_test(test_removed),  cmocka_unit_test(test_use_of_spans),
    };
    return fleet_run("fleet_history", tests, HN_COUNT_OF(tests));
}
