// SPDX-License-Identifier: Apache-2.0
// nccl-tests tables: rows (old and new column sets), bandwidths from bytes and time by nccl-tests'
// own definitions, and the judgement: how near the ceiling of the links, and what explains the gap.
//
// algbw = bytes / time in 1e9 bytes a second; busbw = algbw x factor(collective, ranks).
#include "place/nccl_int.h"
#include <ctype.h>
#include <math.h>
#include <stdarg.h>

#define LARGE_BYTES        (32 << 20) // a message below this does not show the links' bandwidth
#define SOCKET_CEILING_GBS 12.5

static const struct {
    const char *name, *word; // as reported; as found in command lines and source names
    int kind;                // 2: 2(n-1)/n, 1: (n-1)/n, 0: 1
} k_collectives[] = {
    {"all_reduce", "all_reduce", 2},
    {"all_gather", "all_gather", 1},
    {"reduce_scatter", "reduce_scatter", 1},
    {"alltoall", "alltoall", 1},
    {"hypercube", "hypercube", 1},
    {"sendrecv", "sendrecv", 0},
    {"gather", "gather_perf", 1},
    {"scatter", "scatter_perf", 1},
    {"broadcast", "broadcast", 0},
    {"reduce", "reduce_perf", 0},
};

double hn_nccl_bus_factor(const char *collective, int ranks) {
    if (!collective || ranks < 1) return 0;
    for (size_t i = 0; i < HN_COUNT_OF(k_collectives); i++)
        if (strcmp(collective, k_collectives[i].name) == 0)
            return k_collectives[i].kind == 0 ? 1
                                              : k_collectives[i].kind * (ranks - 1) / (double)ranks;
    return 0;
}

static bool has(hn_slice text, const char *word) {
    return text.length && memmem(text.data, text.length, word, strlen(word)) != NULL;
}

static void find_collective(hn_nccl_state *state, hn_slice text) {
    if (state->collective) return;
    for (size_t i = 0; i < HN_COUNT_OF(k_collectives) && !state->collective; i++)
        if (has(text, k_collectives[i].word)) state->collective = k_collectives[i].name;
}

// "#  Rank  0 Group  0 Pid    149 on      node1 device  0 [0x56] NVIDIA A100-SXM4-80GB"
static bool device_line(hn_nccl_state *state, const hn_nccl_record *record) {
    hn_slice text = record->message, word, host = {0}, name = {0};
    int64_t rank, device;
    if (!has(text, " Pid ") && !has(text, "Pid")) return false;
    if (!hn_nccl_word_number(text, "rank", &rank) ||
        !hn_nccl_word_number(text, "device", &device) || rank > 10000000)
        return false;
    while (hn_nccl_token(&text, &word))
        if (hn_slice_eq(word, "on")) {
            if (!hn_nccl_token(&text, &host)) return false;
        } else if (word.data[0] == '[' && host.length) {
            // "[ 0x56]" comes as two words
            if (!memchr(word.data, ']', word.length) && !hn_nccl_token(&text, &word)) return false;
            name = hn_slice_trim(text);
            break;
        }
    state->crumbs += !name.length;
    if (!host.length || state->devices.count >= 65536) return host.length > 0;
    int index = hn_nccl_host(state, host);
    if (index < 0) return true;
    if (name.length > 60) name.length = 60;
    for (size_t i = 0; i < name.length; i++)
        if ((unsigned char)name.data[i] >= 0x80) name.length = i;
    hn_nccl_device item = {(int)rank, state->hosts.data[index],
                           hn_arena_strndup(state->arena, name.data ? name.data : "", name.length)};
    if (!item.name || !hn_vec_push(&state->devices, item)) state->failed = true;
    hn_nccl_mark mark;
    hn_nccl_mark_set(state, record, -1, &mark);
    hn_nccl_raise(state, HN_FACT_TEST_DEVICES, &mark);
    return true;
}

static bool integer(hn_slice word) {
    if (!word.length || word.length > 18) return false;
    for (size_t i = 0; i < word.length; i++)
        if (!isdigit((unsigned char)word.data[i])) return false;
    return true;
}

static bool is_type(hn_slice word) {
    static const char *const k_types[] = {
        "float", "double", "half", "bfloat16", "int8",     "uint8",    "int32",  "uint32",
        "int64", "uint64", "char", "int",      "fp8_e4m3", "fp8_e5m2", "f8e4m3", "f8e5m2"};
    for (size_t i = 0; i < HN_COUNT_OF(k_types); i++)
        if (hn_slice_eq(word, k_types[i])) return true;
    return false;
}

#define ROW_WORDS 28

// size count type [redop [root]] time algbw busbw wrong [time algbw busbw wrong], perhaps behind a
// launcher's prefix. Number of words from the size on, which *out_first is the index of; 0 if no
// row.
static size_t row_words(hn_slice text, hn_slice words[ROW_WORDS], size_t *out_first) {
    size_t n = 0, first = 0;
    while (n < ROW_WORDS && hn_nccl_token(&text, &words[n]))
        n++;
    while (first + 3 <= n &&
           !(integer(words[first]) && integer(words[first + 1]) && is_type(words[first + 2])))
        first++;
    *out_first = first;
    return first + 3 <= n ? n - first : 0;
}

bool hn_nccl_bench_is_row(hn_slice text) {
    hn_slice words[ROW_WORDS];
    size_t first;
    return row_words(text, words, &first) > 0;
}

// True if the row's values are whole: one or two halves of four, perhaps a root before them.
static bool row_whole(hn_slice text) {
    hn_slice words[ROW_WORDS];
    size_t first, n = row_words(text, words, &first);
    if (n < 4) return false;
    size_t at = first + 3;
    if (isalpha((unsigned char)words[at].data[0])) at++, n--;
    n -= 3;
    double value = 0;
    if (n == 5 || n == 9) return true;
    return (n == 4 || n == 8) && hn_parse_f64(words[at], &value) && value > 0; // else it is a root
}

bool hn_nccl_bench_goes_on(hn_slice row, hn_slice next, bool *out_blank) {
    hn_slice words[ROW_WORDS], word, rest = next;
    size_t first, n = 0;
    double value;
    if (row.length > 400 || next.length > 200 || !row_words(row, words, &first) || row_whole(row))
        return false;
    for (; hn_nccl_token(&rest, &word); n++)
        if (!hn_parse_f64(word, &value) && !hn_slice_eq(word, "N/A")) return false;
    if (!n) return false;
    // Cut inside a number or at a blank that was kept, unless only a blank between makes it whole.
    char glued[640];
    int length = snprintf(glued, sizeof glued, "%.*s%.*s", (int)row.length, row.data,
                          (int)next.length, next.data);
    *out_blank = false;
    if (!row_whole((hn_slice){glued, (size_t)length})) {
        length = snprintf(glued, sizeof glued, "%.*s %.*s", (int)row.length, row.data,
                          (int)next.length, next.data);
        *out_blank = row_whole((hn_slice){glued, (size_t)length});
    }
    return true;
}

static bool row_line(hn_nccl_state *state, const hn_nccl_record *record) {
    hn_slice all[ROW_WORDS], *words;
    size_t first, n = row_words(record->message, all, &first);
    words = all + first;
    if (n < 6 || n > 16) return false;
    hn_nccl_bench_row row = {.line = record->line};
    if (!hn_parse_i64(words[0], &row.bytes) || !hn_parse_i64(words[1], &row.count)) return false;
    size_t at = 3;
    bool reduces = false, rooted = false, shaped = false;
    if (isalpha((unsigned char)words[at].data[0])) {
        reduces = !hn_slice_eq(words[at], "none");
        shaped = true;
        at++;
    }
    double value;
    bool negative = hn_parse_f64(words[at], &value) && value < 0;
    if ((n - at) % 4 == 1 || negative) {
        int64_t root;
        hn_slice word = words[at++];
        rooted = hn_parse_i64(word, &root) && root >= 0;
    }
    double best_time = 0, printed = 0;
    int halves = 0;
    for (; at + 3 <= n && halves < 2; at += 4, halves++) {
        double time, algbw, busbw;
        if (!hn_parse_f64(words[at], &time) || !hn_parse_f64(words[at + 1], &algbw) ||
            !hn_parse_f64(words[at + 2], &busbw) || !(time > 0) || !isfinite(time) ||
            !isfinite(busbw) || busbw < 0)
            break;
        // Where lines were folded, a size may have lost its first digits.
        double rate = (double)row.bytes / time * 1e-3;
        state->crumbs += state->folded && !halves && algbw > 0.05 && fabs(rate / algbw - 1) > 0.3;
        if (!halves || time < best_time) best_time = time, printed = busbw;
        if (at + 3 < n && integer(words[at + 3]) && words[at + 3].data[0] != '0') {
            hn_nccl_mark mark;
            hn_nccl_mark_set(state, record, -1, &mark);
            hn_nccl_made_add(state, "wrong_results", &mark, "%.*s wrong values at %lld bytes",
                             (int)words[at + 3].length, words[at + 3].data, (long long)row.bytes);
        }
    }
    if (!halves) return false;
    row.time_us = best_time;
    row.printed_busbw_gbs = printed;
    row.table = state->table;
    hn_nccl_mark mark;
    hn_nccl_mark_set(state, record, -1, &mark);
    if (shaped) state->redop_root = (reduces ? 1 : 0) | (rooted ? 2 : 0);
    if (state->rows.count < 1u << 20) {
        mark = hn_nccl_mark_keep(state, &mark);
        if (!hn_vec_push(&state->rows, row) || !hn_vec_push(&state->row_marks, mark))
            state->failed = true;
    }
    hn_nccl_raise(state, HN_FACT_TEST_ROWS, &mark);
    return true;
}

// A piece of a folded row ("0.71 0.71 0 1470.2") or of the column titles.
static bool is_crumb(hn_slice text) {
    hn_slice word, rest = text;
    size_t words = 0;
    double value;
    if (has(text, "algbw") || has(text, "busbw")) return true;
    if (text.data[0] == '#') return has(text, "Rank ") && has(text, "Pid ");
    for (; hn_nccl_token(&rest, &word); words++)
        if (!hn_parse_f64(word, &value) && !is_type(word) && !hn_slice_eq(word, "N/A") &&
            !hn_slice_eq(word, "sum") && !hn_slice_eq(word, "none"))
            return false;
    return words >= 3;
}

bool hn_nccl_bench_line(hn_nccl_state *state, const hn_nccl_record *record) {
    hn_slice text = record->message;
    if (has(text, "_perf") || has(text, ".cu:")) find_collective(state, text);
    if (isdigit((unsigned char)text.data[text.length - 1]) || text.data[text.length - 1] == 'A') {
        if (row_line(state, record)) {
            state->table_lines++;
            return true;
        }
    }
    if (device_line(state, record)) {
        state->table_lines++;
        return true;
    }
    hn_nccl_mark mark;
    hn_nccl_mark_set(state, record, -1, &mark);
    if (has(text, "size") && has(text, "count") && has(text, "algbw")) {
        state->table++;
        state->table_lines++;
        hn_nccl_raise(state, HN_FACT_TEST_HEADER, &mark);
        return true;
    }
    if (has(text, "nThread") && has(text, "nGpus")) {
        state->table_lines++;
        return true;
    }
    state->crumbs += is_crumb(text);
    return false;
}

// ---- judgement --------------------------------------------------------------------------------
static const struct card {
    const char *name;
    int links;
    double gbs;
} k_cards[] = {
#define HN_NCCL_CARD(name, links, gbs) {name, links, gbs},
#include "place/nccl_links.def"
#undef HN_NCCL_CARD
};

static const struct card *card_of(const hn_nccl_state *state) {
    if (!state->devices.count) return NULL;
    for (size_t i = 0; i < HN_COUNT_OF(k_cards); i++)
        if (strstr(state->devices.data[0].name, k_cards[i].name)) return &k_cards[i];
    return NULL;
}

static const char *guess_collective(const hn_nccl_state *state, int ranks) {
    if (state->collective) return state->collective;
    // busbw / algbw tells the kind, the shape of the columns the rest.
    for (size_t i = state->rows.count; i-- > 0;) {
        const hn_nccl_bench_row *row = &state->rows.data[i];
        double algbw = (double)row->bytes / row->time_us / 1e3;
        if (algbw < 1 || ranks < 3) continue;
        double factor = row->printed_busbw_gbs / algbw, part = (ranks - 1) / (double)ranks;
        if (fabs(factor / (2 * part) - 1) < 0.05) return "all_reduce";
        if (fabs(factor / part - 1) < 0.03) return state->redop_root == 1 ? "reduce_scatter" : NULL;
        return NULL;
    }
    // Only an all-reduce reduces without a root and keeps count x type = size.
    return state->redop_root == 1 && ranks == 2 ? "all_reduce" : NULL;
}

// NICs that the busiest host uses, and ranks that share them.
static int nics_per_host(const hn_nccl_state *state, int *out_ranks) {
    int best = 0;
    *out_ranks = state->local_ranks;
    for (size_t h = 0; h < state->hosts.count && h < HN_NCCL_HOSTS_MAX; h++) {
        uint64_t nics = 0;
        int devices = 0;
        for (size_t i = 0; i < state->paths.count; i++) {
            const hn_nccl_path *p = &state->paths.data[i];
            if (p->host == (int)h && p->nic >= 0 && p->nic < 64) nics |= 1ull << p->nic;
        }
        for (size_t i = 0; i < state->procs.count; i++)
            devices += state->procs.data[i].host_index == (int)h && state->procs.data[i].rank >= 0;
        if (__builtin_popcountll(nics) > best) best = __builtin_popcountll(nics);
        if (devices > *out_ranks) *out_ranks = devices;
    }
    return best;
}

static void say(hn_nccl_state *state, hn_nccl_bench *bench, const char *by, const char *fmt, ...)
    HN_PRINTF(4, 5);
static void say(hn_nccl_state *state, hn_nccl_bench *bench, const char *by, const char *fmt, ...) {
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    bench->explained_by = by;
    bench->sentence = hn_arena_strdup(state->arena, text);
    if (!bench->sentence) state->failed = true;
}

static const double k_ports_gbs[] = {12.5, 25, 50, 100};

// A test of one rank; not a table of several whose list of ranks was cut.
static bool is_alone(const hn_nccl_bench *bench) {
    return bench->ranks == 1 &&
           (hn_nccl_bus_factor(bench->collective, 1) > 0 || bench->peak_busbw_gbs < 1);
}

// Ceiling of the links that the traffic takes; -1 where the log does not tell them.
static void find_ceiling(const hn_nccl_state *state, const hn_nccl_report *report,
                         hn_nccl_bench *bench, int *out_nics, int *out_sharing) {
    static char what[4][64] = {"one 100 Gb/s port a host", "one 200 Gb/s port a host",
                               "one 400 Gb/s port a host", "one 800 Gb/s port a host"};
    *out_nics = nics_per_host(state, out_sharing);
    bench->ceiling_gbs = -1;
    if (is_alone(bench)) return; // no link is used
    const struct card *card = card_of(state);
    if (hn_nccl_is(state, HN_FACT_PATH_SOCKET)) {
        bench->ceiling_gbs = SOCKET_CEILING_GBS;
        bench->ceiling_of = "TCP over one 100 Gb/s port";
    } else if (report->one_node == 0 ||
               (hn_nccl_is(state, HN_FACT_PATH_NET) && report->one_node != 1)) {
        // The port's speed is not in the log: the smallest class that carries what was measured.
        if (*out_nics != 1 && *out_nics != 0) return;
        for (size_t i = 0; i < HN_COUNT_OF(k_ports_gbs); i++)
            if (bench->peak_busbw_gbs <= k_ports_gbs[i] * 1.0) {
                bench->ceiling_gbs = *out_nics ? k_ports_gbs[i] : -1;
                bench->ceiling_of = what[i];
                return;
            }
    } else if (hn_nccl_is(state, HN_FACT_PATH_SHM) && !hn_nccl_is(state, HN_FACT_PATH_P2P)) {
        bench->ceiling_gbs = 12;
        bench->ceiling_of = "host shared memory over PCIe 4.0 x16 (half of the slot)";
    } else if (card && card->links && bench->ranks > 2 &&
               strcasestr(state->devices.data[0].name, "PCI")) {
        bench->ceiling_gbs = 24;
        bench->ceiling_of = "PCIe 4.0 x16, which a ring crosses where bridges join pairs only";
    } else if (card && card->links) {
        bench->ceiling_gbs = card->links * card->gbs;
        bench->ceiling_of = card->links == 8    ? "8 NVLinks of this card"
                            : card->links == 12 ? "12 NVLinks of this card"
                            : card->links == 18 ? "18 NVLinks of this card, without NVLS"
                                                : "the NVLinks of this card";
    } else if (state->graph_gbs > 0) {
        bench->ceiling_gbs = state->graph_gbs;
        bench->ceiling_of = "NCCL's own estimate of its rings";
    } else if (card) {
        bench->ceiling_gbs = 24;
        bench->ceiling_of = "PCIe 4.0 x16";
    }
}

static void explain(hn_nccl_state *state, hn_nccl_report *report, hn_nccl_bench *bench, int nics,
                    int sharing) {
    bool remote = report->one_node == 0 || hn_nccl_is(state, HN_FACT_PATH_NET);
    double peak = bench->peak_busbw_gbs;
    int64_t largest = state->rows.data[state->rows.count - 1].bytes;
    for (size_t i = 0; i < state->rows.count; i++)
        if (state->rows.data[i].bytes > largest) largest = state->rows.data[i].bytes;
    static const char *const k_members[] = {"ras_lagging", "nics_differ"};
    bool slow_member = hn_nccl_is(state, HN_FACT_GDR_MIXED);
    for (size_t i = 0; i < HN_COUNT_OF(k_members); i++) {
        int row = hn_nccl_cause_row(k_members[i]);
        slow_member = slow_member || (row >= 0 && state->causes[row].count);
    }
    if (is_alone(bench)) {
        say(state, bench, "none", "one rank alone sends nothing: this is a copy within its card");
    } else if (largest < LARGE_BYTES) {
        say(state, bench, "message size",
            "the largest message is %lld bytes: latency rules, the links' bandwidth does not show",
            (long long)largest);
    } else if (bench->share >= 0.85 && !remote) {
        say(state, bench, "none", "%.1f GB/s is %.0f %% of what %s carry", peak, 100 * bench->share,
            bench->ceiling_of);
    } else if (slow_member) {
        say(state, bench, "slow member", "one rank or host holds the others back: %.1f GB/s", peak);
    } else if (hn_nccl_is(state, HN_FACT_PATH_SOCKET)) {
        say(state, bench, "transport", "TCP sockets carry the traffic between nodes: %.1f GB/s",
            peak);
    } else if (hn_nccl_is(state, HN_FACT_PATH_SHM) && !hn_nccl_is(state, HN_FACT_PATH_P2P)) {
        say(state, bench, "transport", "host shared memory carries the traffic: %.1f GB/s", peak);
    } else if (hn_nccl_is(state, HN_FACT_PATH_NO_GDR)) {
        say(state, bench, "transport", "RDMA without GPUDirect stages through the host: %.1f GB/s",
            peak);
    } else if (remote && nics == 1) {
        say(state, bench, "topology",
            "the ring leaves each host over one NIC%s: %.1f GB/s is %.0f %% of %s (port speed "
            "inferred)",
            sharing > 1 ? ", shared by its ranks" : "", peak, 100 * bench->share,
            bench->ceiling_of ? bench->ceiling_of : "its port");
    } else if (hn_nccl_is(state, HN_FACT_PROTO_LL)) {
        say(state, bench, "protocol", "NCCL_PROTO limits the protocols: %.1f GB/s", peak);
    } else if (remote) {
        say(state, bench, "topology", "the network between the hosts bounds it: %.1f GB/s", peak);
    } else if (bench->ceiling_gbs > 0) {
        say(state, bench, "topology", "%.1f GB/s is %.0f %% of what %s carry", peak,
            100 * bench->share, bench->ceiling_of);
    }
}

// A size that takes half as long again as a larger one.
static void find_outliers(hn_nccl_state *state) {
    for (size_t i = 0; i + 1 < state->rows.count; i++) {
        const hn_nccl_bench_row *row = &state->rows.data[i], *next = row + 1;
        if (row->table != next->table || row->bytes < 65536 || next->bytes <= row->bytes) continue;
        if (row->time_us > 1.5 * next->time_us)
            hn_nccl_made_add(state, "size_outlier", &state->row_marks.data[i],
                             "%lld bytes take %.0f us, %lld bytes only %.0f us",
                             (long long)row->bytes, row->time_us, (long long)next->bytes,
                             next->time_us);
    }
}

void hn_nccl_bench_judge(hn_nccl_state *state, hn_nccl_report *report) {
    if (!state->rows.count) return;
    hn_nccl_bench *bench = &report->bench;
    report->has_bench = true;
    bench->ranks = state->ranks;
    if ((int)state->devices.count > bench->ranks) bench->ranks = (int)state->devices.count;
    bench->collective = guess_collective(state, bench->ranks);
    double factor = hn_nccl_bus_factor(bench->collective, bench->ranks);
    int64_t largest = 0;
    size_t peak = 0;
    for (size_t i = 0; i < state->rows.count; i++) {
        hn_nccl_bench_row *row = &state->rows.data[i];
        row->algbw_gbs = (double)row->bytes / row->time_us / 1e3;
        row->busbw_gbs = factor > 0 ? row->algbw_gbs * factor : row->printed_busbw_gbs;
        if (row->bytes > largest) largest = row->bytes;
        // The table prints two decimals and four digits of time: only rows of 1 GB/s can be
        // compared.
        if (factor > 0 && row->printed_busbw_gbs >= 1) {
            double error = fabs(row->busbw_gbs - row->printed_busbw_gbs) / row->printed_busbw_gbs;
            if (error > bench->worst_formula_error) bench->worst_formula_error = error;
        }
    }
    for (size_t i = 0; i < state->rows.count; i++)
        if (state->rows.data[i].bytes >= largest / 2 &&
            state->rows.data[i].busbw_gbs > bench->peak_busbw_gbs) {
            bench->peak_busbw_gbs = state->rows.data[i].busbw_gbs;
            bench->peak_bytes = state->rows.data[i].bytes;
            peak = i;
        }
    int nics, sharing;
    find_ceiling(state, report, bench, &nics, &sharing);
    bench->share = bench->ceiling_gbs > 0 ? bench->peak_busbw_gbs / bench->ceiling_gbs : -1;
    explain(state, report, bench, nics, sharing);
    find_outliers(state);
    const hn_nccl_mark *mark = &state->row_marks.data[peak];
    bool remote = report->one_node == 0;
    if (largest >= LARGE_BYTES && remote && nics == 1 && sharing > 1 &&
        !hn_nccl_is(state, HN_FACT_PATH_SOCKET))
        hn_nccl_made_add(state, "network_bound", mark, "%s",
                         bench->sentence ? bench->sentence : "");
    else if (largest >= LARGE_BYTES && !remote && bench->share >= 0 && bench->share < 0.7 &&
             !hn_nccl_is(state, HN_FACT_PATH_SHM) && !hn_nccl_is(state, HN_FACT_PATH_NET) &&
             bench->collective && strcmp(bench->collective, "alltoall") != 0 &&
             strcmp(bench->collective, "sendrecv") != 0)
        hn_nccl_made_add(state, "below_ceiling", mark, "%s",
                         bench->sentence ? bench->sentence : "");
    bench->rows = state->rows.data;
    bench->row_count = state->rows.count;
}
