// SPDX-License-Identifier: Apache-2.0
// The NCCL reader from C: every row of the table is reached, formulas, paths, memory that runs out.
// TEST-TIMEOUT 120
#include "support/test.h"
#include "support/slow.h"
#include "place/nccl_int.h"

static hone_status read_text(const char *text, hn_nccl_report *report) {
    hone_error err = {0};
    hn_nccl_input input = {"log", {text, strlen(text)}};
    return hn_nccl_read(&err, &input, 1, report);
}

static const hn_nccl_cause *find(const hn_nccl_report *report, const char *id) {
    for (size_t i = 0; i < report->cause_count; i++)
        if (strcmp(report->causes[i].id, id) == 0) return &report->causes[i];
    return NULL;
}

// Each alternative of each pattern, said by a warning, raises its row's id (facts permitting).
static void every_row(void **state) {
    (void)state;
    int tried = 0;
    for (size_t i = 0; i < hn_nccl_row_count; i++) {
        const hn_nccl_row *row = &hn_nccl_rows[i];
        assert_true(row->confidence > 0 && row->confidence <= 1);
        assert_true(strlen(row->why) > 20 && strlen(row->mend) > 3);
        assert_true(row->pattern[0] || row->all[0] || (row->flags & HN_NCCL_F_MADE));
        if (row->all[0]) continue;
        for (const char *p = row->pattern; *p;) {
            size_t n = strcspn(p, "|");
            char text[600] = "n1:10:20 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 4 nranks 9 "
                             "cudaDev 0 nvmlDev 0 busId 1 commId 2 - Init START\n"
                             "n1:10:21 [0] some/file.cc:12 NCCL WARN ";
            size_t at = strlen(text);
            for (size_t k = 0; k < n; k++)
                at += (size_t)snprintf(text + at, sizeof text - at, "%s%c",
                                       p[k] == '*' ? " xy" : "", p[k] == '*' ? ' ' : p[k]);
            hn_nccl_report report;
            assert_int_equal(read_text(text, &report), HONE_OK);
            const hn_nccl_cause *cause = find(&report, row->id);
            if (!cause) fail_msg("%s is not raised by: %s", row->id, text);
            assert_int_equal(cause->evidence.line, 2);
            if (row->severity == HN_NCCL_FAULT) {
                assert_false(report.healthy);
                assert_int_equal(report.first_rank, row->flags & HN_NCCL_F_VICTIM ? -1 : 4);
            }
            hn_nccl_report_free(&report);
            tried++;
            p += n + (p[n] == '|');
        }
    }
    assert_true(tried > 80);
}

static void factors(void **state) {
    (void)state;
    assert_true(hn_nccl_bus_factor("all_reduce", 8) == 1.75);
    assert_true(hn_nccl_bus_factor("all_gather", 8) == 0.875);
    assert_true(hn_nccl_bus_factor("reduce_scatter", 4) == 0.75);
    assert_true(hn_nccl_bus_factor("alltoall", 4) == 0.75);
    assert_true(hn_nccl_bus_factor("gather", 4) == 0.75);
    assert_true(hn_nccl_bus_factor("scatter", 4) == 0.75);
    assert_true(hn_nccl_bus_factor("hypercube", 4) == 0.75);
    assert_true(hn_nccl_bus_factor("broadcast", 8) == 1);
    assert_true(hn_nccl_bus_factor("reduce", 8) == 1);
    assert_true(hn_nccl_bus_factor("sendrecv", 8) == 1);
    assert_true(hn_nccl_bus_factor("unheard", 8) == 0);
    assert_true(hn_nccl_bus_factor("all_reduce", 1) == 0);
}

// Old column sets: without root, without redop, with error instead of #wrong.
static void old_tables(void **state) {
    (void)state;
    static const char *const k_texts[] = {
        "all_reduce_perf\n# Rank 0 Pid 1 on a device 0 [0x00] Tesla V100-SXM2-16GB\n"
        "# Rank 1 Pid 1 on a device 1 [0x01] Tesla V100-SXM2-16GB\n"
        "#  size  count  type  redop  time  algbw  busbw  error  time  algbw  busbw  error\n"
        "  134217728  33554432  float  sum  1173.0  114.42  114.42  0e+00  1180.1  113.73  113.73  "
        "0e+00\n",
        "broadcast_perf\n# Rank 0 Pid 1 on a device 0 [ 0x00] Tesla V100-SXM2-16GB\n"
        "# Rank 1 Pid 1 on a device 1 [ 0x01] Tesla V100-SXM2-16GB\n"
        "#  size  count  type  root  time  algbw  busbw  error  time  algbw  busbw  error\n"
        "  134217728  33554432  float  0  1173.0  114.42  114.42  0e+00  1180.1  113.73  113.73  "
        "0e+00\n",
        "alltoall_perf\n# Rank 0 Pid 1 on a device 0 [0x00] Tesla V100-SXM2-16GB\n"
        "#  size  count  type  time  algbw  busbw  error\n"
        "  134217728  33554432  float  1173.0  114.42  114.42  N/A\n"};
    for (size_t i = 0; i < HN_COUNT_OF(k_texts); i++) {
        hn_nccl_report report;
        assert_int_equal(read_text(k_texts[i], &report), HONE_OK);
        assert_true(report.has_bench);
        assert_int_equal(report.bench.row_count, 1);
        assert_true(report.bench.rows[0].time_us == 1173.0);
        assert_true(report.bench.rows[0].algbw_gbs > 114.4 &&
                    report.bench.rows[0].algbw_gbs < 114.45);
        assert_true(report.bench.ceiling_gbs == 120);
        assert_true(report.healthy);
        hn_nccl_report_free(&report);
    }
}

static void paths(void **state) {
    (void)state;
    hn_nccl_report report;
    assert_int_equal(
        read_text("a:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/direct pointer/read\n"
                  "a:1:1 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[1] via P2P/direct pointer/read\n"
                  "a:1:2 [1] NCCL INFO Ring 00 : 1[5000] -> 0[4000] via SHM/direct/direct\n"
                  "a:1:2 [1] NCCL INFO Ring 00 : 1 -> 2 [send] via NET/Socket/0\n"
                  "b:9:2 [0] NCCL INFO Channel 00/0 : 2[0] -> 3[1] [send] via "
                  "NET/IBext_v8/5(3)/GDRDMA/Shared\n",
                  &report),
        HONE_OK);
    assert_int_equal(report.pair_count, 4);
    assert_string_equal(report.pairs[0].via, "P2P/direct pointer");
    assert_int_equal(report.pairs[0].channels, 2);
    assert_string_equal(report.pairs[1].via, "SHM");
    assert_string_equal(report.pairs[1].expected, "P2P");
    assert_string_equal(report.pairs[2].via, "NET/Socket");
    assert_string_equal(report.pairs[2].expected, "NET/IB/GDRDMA");
    assert_string_equal(report.pairs[3].via, "NET/IBext_v8/GDRDMA");
    assert_int_equal(report.pairs[3].pxn, 3);
    assert_string_equal(report.transport,
                        "NET/Socket + NET/IBext_v8/GDRDMA + SHM + P2P/direct pointer");
    hn_nccl_report_free(&report);
}

// A warning with the words of another device is charged to the process's only rank.
static void rank_of_process(void **state) {
    (void)state;
    hn_nccl_report report;
    assert_int_equal(read_text("h:5:5 [3] NCCL INFO ncclCommInitRank comm 0x1 rank 11 nranks 16 "
                               "cudaDev 3 busId 1 - Init COMPLETE\n"
                               "h:5:9 [0] NCCL WARN Cuda failure 'out of memory'\n",
                               &report),
                     HONE_OK);
    assert_int_equal(report.first_rank, 11);
    assert_string_equal(report.failure.host, "h");
    hn_nccl_report_free(&report);
}

// A warning without a row and more lines than a tail may have: the lines end up on their own, and
// nothing borrows from the warning any more (found by the fuzzer).
static void long_tail(void **state) {
    (void)state;
    hn_nccl_report report;
    assert_int_equal(
        read_text("somehost:5:5 [3] NCCL WARN nobody knows this\nand this\nand that\nand so\n"
                  "and on\nand on and on\nmore\nand more\nsomehost:5:5 [3] NCCL INFO x\n",
                  &report),
        HONE_OK);
    assert_true(report.healthy);
    assert_int_equal(report.cause_count, 1);
    assert_string_equal(report.causes[0].id, "warning_unknown");
    assert_int_equal(report.causes[0].evidence.line, 1);
    hn_nccl_report_free(&report);
}

static void refused(void **state) {
    (void)state;
    hn_nccl_report report;
    assert_int_equal(read_text("", &report), HONE_ERR_FORMAT);
    assert_int_equal(read_text("hello\nworld\n", &report), HONE_ERR_FORMAT);
    assert_int_equal(read_text("{\"communicators\": 7}", &report), HONE_ERR_FORMAT);
}

// A log of a thousand ranks stays quick: 200,000 lines well below a second on an idle machine.
static void large(void **state) {
    (void)state;
    hn_str text = {0};
    for (int channel = 0; channel < 64; channel++)
        for (int rank = 0; rank < 1024; rank++) {
            hn_str_printf(
                &text, "n%d:%d:%d [%d] NCCL INFO Channel %02d/0 : %d[%d] -> %d[%d] via P2P/CUMEM\n",
                rank / 8, rank + 1, rank + 5, rank % 8, channel, rank, rank % 8, rank + 1,
                (rank + 1) % 8);
            hn_str_printf(&text,
                          "n%d:%d:%d [%d] NCCL INFO Trees [0] 1/-1/-1->0->-1 [1] 2/-1/-1->0->-1\n",
                          rank / 8, rank + 1, rank + 5, rank % 8);
        }
    int64_t start = hn_clock_ns();
    hn_nccl_report report;
    assert_int_equal(read_text(hn_str_get(&text), &report), HONE_OK);
    int64_t took = hn_clock_ns() - start;
    assert_int_equal(report.pair_count, 1024);
    assert_int_equal(report.ranks_seen, 1024);
    assert_true(took < 10ll * 1000000000 * TEST_SLOW); // a busy machine included
    print_message("%zu bytes, %lld lines in %.0f ms\n", text.length, (long long)report.lines,
                  (double)took / 1e6);
    hn_nccl_report_free(&report);
    hn_str_free(&text);
}

// Every allocation fails once: an error or a whole report, never a leak or a crash.
static void memory_runs_out(void **state) {
    (void)state;
    static const char k_text[] =
        "[rank1]:h:1:2 [1] NCCL INFO ncclCommInitRank comm 0x1 rank 1 nranks 2 cudaDev 1 - Init "
        "START\n"
        "# Rank 0 Group 0 Pid 1 on h device 0 [0x00] NVIDIA A100\n"
        "h:1:2 [1] NCCL INFO Channel 00/0 : 1[1] -> 0[0] via SHM/direct\n"
        "h:1:2 [1] NCCL INFO NCCL_P2P_DISABLE set by environment to 1\n"
        "h:1:2 [1] NCCL INFO Bootstrap : Using eth0:192.0.2.1<0>\n"
        "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong\n"
        "   33554432  8388608  float  sum  -1  5000  6.7  6.7  0  5000  6.7  6.7  0\n"
        "h:1:2 [1] NCCL WARN NET/IB : Got completion from peer 192.0.2.1<1> with status=12 "
        "opcode=0 h:1:2 [1] NCCL INFO x\nlocalGid fe80\n"
        "h:1:2 [1] NCCL WARN Cuda failure 'named symbol not found'\n";
    for (uint64_t n = 1; n < 4000; n++) {
        hn_nccl_report report;
        hn_str json = {0};
        hone_error err = {0};
        hn_nccl_input input = {"log", {k_text, sizeof k_text - 1}};
        hn_alloc_fail_nth(n);
        hone_status status = hn_nccl_read(&err, &input, 1, &report);
        if (status == HONE_OK) {
            hone_status written = hn_nccl_report_json(&err, &report, &json);
            assert_true(written == HONE_OK || written == HONE_ERR_NOMEM);
            hn_str_free(&json);
            hn_nccl_report_free(&report);
        } else {
            assert_int_equal(status, HONE_ERR_NOMEM);
        }
        hn_alloc_fail_nth(0);
        if (status == HONE_OK && n > 400) return;
    }
    fail_msg("the reader never got through");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row),       cmocka_unit_test(factors),
        cmocka_unit_test(old_tables),      cmocka_unit_test(paths),
        cmocka_unit_test(rank_of_process), cmocka_unit_test(long_tail),
        cmocka_unit_test(refused),         cmocka_unit_test(large),
        cmocka_unit_test(memory_runs_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
