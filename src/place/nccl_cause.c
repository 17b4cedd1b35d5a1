// SPDX-License-Identifier: Apache-2.0
// From facts to causes: which rows of nccl_causes.def hold, who failed first, what path is used and
// what path should have been.
#include "place/nccl_int.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

void hn_nccl_made_add(hn_nccl_state *state, const char *id, const hn_nccl_mark *mark,
                      const char *fmt, ...) {
    int row = hn_nccl_cause_row(id);
    HN_ASSERT(row >= 0);
    if (row < 0) return;
    hn_nccl_hit *hit = &state->causes[row];
    if (hit->count++) return;
    hit->first = hn_nccl_mark_keep(state, mark);
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    hn_nccl_mark detail = {.text = text};
    hn_nccl_made made = {row, hn_nccl_mark_keep(state, &detail).text};
    if (!hn_vec_push(&state->made, made)) state->failed = true;
}

// ---- settings as facts ------------------------------------------------------------------------
static bool value_in(const char *value, const char *list) {
    if (!*list) return true;
    size_t length = strlen(value);
    while (*list) {
        size_t n = strcspn(list, "|");
        if (n == length && strncasecmp(list, value, n) == 0) return true;
        list += n;
        if (*list) list++;
    }
    return false;
}

static void facts_of_settings(hn_nccl_state *state) {
    static const struct {
        hn_nccl_fact fact;
        const char *variable, *values;
    } k_rows[] = {
#define HN_FACT(name, pattern)
#define HN_FACT_ENV(name, variable, values) {HN_FACT_##name, variable, values},
#define HN_FACT_MADE(name, doc)
#include "place/nccl_facts.def"
#undef HN_FACT
#undef HN_FACT_ENV
#undef HN_FACT_MADE
    };
    for (size_t e = 0; e < state->env.count; e++)
        for (size_t i = 0; i < HN_COUNT_OF(k_rows); i++)
            if (strcmp(state->env.data[e].name, k_rows[i].variable) == 0 &&
                value_in(state->env.data[e].value, k_rows[i].values))
                hn_nccl_raise(state, k_rows[i].fact, &state->env.data[e].mark);
}

// ---- the world --------------------------------------------------------------------------------
static void raise_as(hn_nccl_state *state, hn_nccl_fact fact, hn_nccl_fact because) {
    hn_nccl_mark none = {state->file, "", {0}, 0, INT64_MIN, -1};
    hn_nccl_raise(state, fact, hn_nccl_is(state, because) ? &state->facts[because].first : &none);
}

static bool local_ranks(const hn_nccl_state *state) {
    if (state->local_ranks > 1) return true;
    for (size_t i = 1; i < state->devices.count; i++)
        if (strcmp(state->devices.data[i].host, state->devices.data[i - 1].host) == 0) return true;
    for (size_t i = 0; i < state->procs.count; i++)
        for (size_t j = i + 1; j < state->procs.count && j < i + 64; j++)
            if (state->procs.data[i].host_index == state->procs.data[j].host_index &&
                state->procs.data[i].device != state->procs.data[j].device &&
                state->procs.data[i].device >= 0 && state->procs.data[j].device >= 0)
                return true;
    return false;
}

static int one_node(const hn_nccl_state *state) {
    if (state->hosts.count > 1) return 0;
    if (state->nodes > 0) return state->nodes == 1;
    if (state->ranks == 1) return 1;
    if (state->devices.count > 1) return 1;
    bool net_by_choice =
        hn_nccl_is(state, HN_FACT_P2P_REFUSED_ENV) || hn_nccl_is(state, HN_FACT_SHM_OFF);
    for (size_t i = 0; i < state->paths.count; i++)
        if (strncmp(state->paths.data[i].via, "NET/", 4) == 0 && !net_by_choice) return 0;
    uint64_t devices = 0;
    for (size_t i = 0; i < state->procs.count; i++)
        if (state->procs.data[i].device >= 0 && state->procs.data[i].device < 64)
            devices |= 1ull << state->procs.data[i].device;
    int count = __builtin_popcountll(devices);
    if (count > 1 && state->ranks <= count) return 1;
    return -1;
}

static void facts_of_paths(hn_nccl_state *state) {
    bool rdma = false, gdr = false;
    const hn_nccl_mark *plain = NULL, *received = NULL;
    for (size_t i = 0; i < state->paths.count; i++) {
        const hn_nccl_path *p = &state->paths.data[i];
        if (strncmp(p->via, "P2P", 3) == 0) hn_nccl_raise(state, HN_FACT_PATH_P2P, &p->mark);
        if (strncmp(p->via, "SHM", 3) == 0) hn_nccl_raise(state, HN_FACT_PATH_SHM, &p->mark);
        if (strncmp(p->via, "NET/", 4) != 0) continue;
        hn_nccl_raise(state, HN_FACT_PATH_NET, &p->mark);
        if (strncasecmp(p->via, "NET/Socket", 10) == 0) {
            hn_nccl_raise(state, HN_FACT_PATH_SOCKET, &p->mark);
            continue;
        }
        rdma = true;
        if (strstr(p->via, "GDRDMA")) {
            gdr = true;
            hn_nccl_raise(state, HN_FACT_PATH_GDR, &p->mark);
            continue;
        }
        if (!plain) plain = &p->mark;
        if (p->received && !received) received = &p->mark;
    }
    if (rdma && plain && !gdr) hn_nccl_raise(state, HN_FACT_PATH_NO_GDR, plain);
    if (gdr && received) hn_nccl_raise(state, HN_FACT_GDR_MIXED, received);
}

// A name that goes on with other letters is the same one glued to the next record; but IBext is not
// IB.
static bool same_network(const char *a, const char *b) {
    size_t x = strlen(a), y = strlen(b), n = x < y ? x : y;
    const char *longer = x < y ? b : a;
    return strncmp(a, b, n) == 0 && strncmp(longer + n, "ext", 3) != 0;
}

// A host that stands out: another network, fewer ports.
static void compare_hosts(hn_nccl_state *state) {
    const hn_nccl_proc *most = NULL, *least = NULL, *other = NULL, *first = NULL;
    for (size_t i = 0; i < state->procs.count; i++) {
        const hn_nccl_proc *p = &state->procs.data[i];
        if (p->network && !first) first = p;
        if (p->network && !same_network(p->network, first->network) && !other) other = p;
        if (p->nics && (!most || p->nics > most->nics)) most = p;
    }
    // Of one host the largest count stands: a torn line shows fewer.
    for (size_t i = 0; i < state->procs.count && most; i++) {
        const hn_nccl_proc *p = &state->procs.data[i];
        if (!p->nics || p->host_index == most->host_index || (least && p->nics >= least->nics))
            continue;
        bool best = true;
        for (size_t j = 0; j < state->procs.count; j++)
            best = best && (state->procs.data[j].host_index != p->host_index ||
                            state->procs.data[j].nics <= p->nics);
        if (best) least = p;
    }
    if (other)
        hn_nccl_made_add(state, "networks_differ", &other->network_mark, "%s uses %s, %s uses %s",
                         first->host, first->network, other->host, other->network);
    if (most && least && least->nics < most->nics)
        hn_nccl_made_add(state, "nics_differ", &least->nics_mark, "%s has %d, %s has %d",
                         least->host, least->nics, most->host, most->nics);
}

static bool all_hold(const hn_nccl_state *state, const hn_nccl_row *row) {
    for (size_t i = 0; i < HN_COUNT_OF(row->all) && row->all[i]; i++)
        if (!hn_nccl_is(state, row->all[i])) return false;
    for (size_t i = 0; i < HN_COUNT_OF(row->none) && row->none[i]; i++)
        if (hn_nccl_is(state, row->none[i])) return false;
    return true;
}

static bool mentions(const hn_nccl_row *row, hn_nccl_fact fact) {
    for (size_t i = 0; i < HN_COUNT_OF(row->none); i++)
        if (row->none[i] == fact) return true;
    return false;
}

static void facts_of_world(hn_nccl_state *state, hn_nccl_report *report) {
    facts_of_settings(state);
    if (hn_nccl_is(state, HN_FACT_P2P_OFF))
        raise_as(state, HN_FACT_P2P_REFUSED_ENV, HN_FACT_P2P_OFF);
    if (hn_nccl_is(state, HN_FACT_P2P_LOC))
        raise_as(state, HN_FACT_P2P_REFUSED_ENV, HN_FACT_P2P_LOC);
    facts_of_paths(state);
    report->one_node = one_node(state);
    if (report->one_node == 1) raise_as(state, HN_FACT_ONE_NODE, HN_FACT_TEST_DEVICES);
    if (report->one_node == 0) raise_as(state, HN_FACT_MULTI_NODE, HN_FACT_PATH_NET);
    if (local_ranks(state)) raise_as(state, HN_FACT_LOCAL_RANKS, HN_FACT_TEST_DEVICES);
    static const hn_nccl_fact k_wanted[] = {HN_FACT_MLX_NAMED, HN_FACT_IB_ASKED, HN_FACT_IB_HCA,
                                            HN_FACT_IB_CUDA_SUPPORT};
    for (size_t i = 0; i < HN_COUNT_OF(k_wanted); i++)
        if (hn_nccl_is(state, k_wanted[i])) raise_as(state, HN_FACT_IB_WANTED, k_wanted[i]);
    for (size_t i = 0; i < state->devices.count; i++)
        if (strstr(state->devices.data[i].name, "GeForce") ||
            strstr(state->devices.data[i].name, "RTX")) {
            raise_as(state, HN_FACT_GEFORCE, HN_FACT_TEST_DEVICES);
            break;
        }
    // Hosts that say NVLS is absent while other hosts have it or fail in it.
    uint64_t absent = state->facts[HN_FACT_NVLS_NONE].hosts;
    uint64_t used = state->facts[HN_FACT_NVLS_OK].hosts | state->facts[HN_FACT_NVLS_BROKEN].hosts;
    if ((absent & ~used) && (used & ~absent))
        raise_as(state, HN_FACT_NODES_DIFFER, HN_FACT_NVLS_NONE);
}

static void facts_of_end(hn_nccl_state *state) {
    for (size_t i = 0; i < hn_nccl_row_count; i++) {
        const hn_nccl_row *row = &hn_nccl_rows[i];
        if (row->severity == HN_NCCL_FAULT && state->causes[i].count &&
            !mentions(row, HN_FACT_FAULT_SEEN) && all_hold(state, row))
            hn_nccl_raise(state, HN_FACT_FAULT_SEEN, &state->causes[i].first);
    }
    if (hn_nccl_is(state, HN_FACT_FAULT_SEEN) || hn_nccl_is(state, HN_FACT_TEST_ROWS) ||
        hn_nccl_is(state, HN_FACT_DONE) || !state->records)
        return;
    size_t started = 0, open = 0;
    for (size_t i = 0; i < state->procs.count; i++) {
        started += state->procs.data[i].started;
        open += state->procs.data[i].started && !state->procs.data[i].completed;
    }
    bool begun = started || hn_nccl_is(state, HN_FACT_TEST_DEVICES);
    bool connected = hn_nccl_is(state, HN_FACT_RINGS) || (started && !open);
    const hn_nccl_mark *end =
        state->end.text ? &state->end : &state->facts[HN_FACT_TEST_DEVICES].first;
    if (begun && !connected && !state->paths.count && (open || !started))
        hn_nccl_raise(state, HN_FACT_STOPS_IN_INIT, end);
    if (connected && hn_nccl_is(state, HN_FACT_TEST_HEADER))
        hn_nccl_raise(state, HN_FACT_STOPS_AT_KERNEL, end);
}

// ---- who failed first -------------------------------------------------------------------------
static int rank_of(const hn_nccl_state *state, const hn_nccl_mark *mark) {
    if (mark->proc >= 0) {
        const hn_nccl_proc *proc = &state->procs.data[mark->proc];
        if (proc->rank >= 0) return proc->rank;
        // Warnings can carry the device of another thread: a process with one rank is that rank.
        int rank = -1;
        for (size_t i = 0; i < state->procs.count; i++) {
            const hn_nccl_proc *p = &state->procs.data[i];
            if (p->pid != proc->pid || p->host_index != proc->host_index || p->rank < 0) continue;
            if (rank >= 0 && rank != p->rank) return -1;
            rank = p->rank;
        }
        return rank >= 0 ? rank : proc->rank_hint;
    }
    // Framework lines: "[rank118]:[E603 ...] [Rank 118] Watchdog caught ...".
    int64_t rank;
    if (mark->text && strstr(mark->text, "[Rank ") &&
        hn_nccl_word_number((hn_slice){mark->text, strlen(mark->text)}, "rank", &rank) &&
        rank < 10000000)
        return (int)rank;
    return -1;
}

static bool before(const hn_nccl_mark *a, const hn_nccl_mark *b) {
    if (a->time_us != INT64_MIN && b->time_us != INT64_MIN && a->time_us != b->time_us)
        return a->time_us < b->time_us;
    return a->file == b->file && a->line < b->line;
}

// The host behind "closed by remote peer node2<42830>" or "peer 10.0.35.1<49189>"; -1 unknown.
static int named_peer(hn_nccl_state *state, const char *text) {
    const char *peer = text ? strstr(text, "peer ") : NULL;
    if (!peer) return -1;
    peer += 5;
    hn_slice name = {peer, strcspn(peer, "<: ,")}, label = {peer, strcspn(peer, ".<: ,")};
    for (size_t i = 0; i < state->addresses.count; i++)
        if (hn_slice_eq(name, state->addresses.data[i].ip)) return state->addresses.data[i].host;
    for (size_t i = 0; i < state->hosts.count; i++)
        if (hn_slice_eq(name, state->hosts.data[i]) || hn_slice_eq(label, state->hosts.data[i]))
            return (int)i;
    return -1;
}

static int only_rank_of_host(const hn_nccl_state *state, int host) {
    int rank = -1;
    for (size_t i = 0; i < state->procs.count; i++) {
        const hn_nccl_proc *p = &state->procs.data[i];
        if (p->host_index != host || p->rank < 0) continue;
        if (rank >= 0 && rank != p->rank) return -1;
        rank = p->rank;
    }
    return rank;
}

static void first_failure(hn_nccl_state *state, hn_nccl_report *report, const bool *holds) {
    const hn_nccl_mark *root = NULL, *victim = NULL;
    for (size_t i = 0; i < hn_nccl_row_count; i++) {
        const hn_nccl_row *row = &hn_nccl_rows[i];
        if (!holds[i] || row->severity != HN_NCCL_FAULT || !state->causes[i].count) continue;
        if (row->flags & HN_NCCL_F_MADE && strncmp(row->id, "ras_", 4) == 0) continue;
        const hn_nccl_mark **slot = row->flags & HN_NCCL_F_VICTIM ? &victim : &root;
        if (!*slot || before(&state->causes[i].first, *slot)) *slot = &state->causes[i].first;
    }
    int ras = state->ras_rank >= 0 ? state->ras_rank : state->ras_low_rank;
    const hn_nccl_mark *mark = root ? root : victim;
    if (!mark) {
        report->first_rank = ras;
        return;
    }
    hn_nccl_failure *failure = &report->failure;
    report->failed = true;
    failure->evidence = (hn_nccl_evidence){mark->file, mark->line, mark->text};
    failure->pid = failure->device = failure->rank = -1;
    if (mark->proc >= 0) {
        failure->host = state->procs.data[mark->proc].host;
        failure->pid = state->procs.data[mark->proc].pid;
        failure->device = state->procs.data[mark->proc].device;
    }
    failure->rank = rank_of(state, mark);
    if (!root) { // the peer that the victim names failed first
        int host = named_peer(state, mark->said.data);
        failure->rank = host >= 0 ? only_rank_of_host(state, host) : -1;
        failure->host = host >= 0 ? state->hosts.data[host] : NULL;
        failure->pid = failure->device = -1;
    }
    if (failure->rank < 0) failure->rank = ras;
    report->first_rank = failure->rank;
}

// ---- paths as they are and as they should be --------------------------------------------------
static const char *network_of(hn_nccl_state *state) {
    if (state->network) return state->network;
    if (hn_nccl_is(state, HN_FACT_IB_LISTED) || hn_nccl_is(state, HN_FACT_IB_USED)) return "IB";
    if (hn_nccl_is(state, HN_FACT_IBEXT)) return "IBext";
    if (hn_nccl_is(state, HN_FACT_OFI)) return "AWS Libfabric";
    if (hn_nccl_is(state, HN_FACT_NET_SOCKET_LISTED) || hn_nccl_is(state, HN_FACT_IB_NONE))
        return "Socket";
    return NULL;
}

// A torn name is the start of a whole one; "NET/IB" and "NET/IB/GDRDMA" are two.
static bool same_path(const char *a, const char *b) {
    size_t x = strlen(a), y = strlen(b), n = x < y ? x : y;
    const char *longer = x < y ? b : a;
    return strncmp(a, b, n) == 0 && !(strncmp(a, "NET/", 4) == 0 && longer[n] == '/');
}

// Classes in the order of the worst first, joined by " + ".
static const char *transport_of(hn_nccl_state *state, const hn_nccl_report *report) {
    static const char *const k_order[] = {"NET/Socket", "NET/",   "NET/",    "SHM",
                                          "P2P",        "direct", "COLLNET", "NVLS"};
    hn_str text = {0};
    const char *seen[8];
    size_t count = 0;
    for (size_t k = 0; k < HN_COUNT_OF(k_order); k++)
        for (size_t i = 0; i < state->paths.count && count < HN_COUNT_OF(seen); i++) {
            const char *via = state->paths.data[i].via;
            if (k == 1 && strstr(via, "GDRDMA")) continue; // staged before direct
            // Senders without GPUDirect reads beside receivers with GPUDirect are one path.
            if (strncmp(via, "NET/", 4) == 0 && !strstr(via, "GDRDMA") &&
                !state->paths.data[i].received && hn_nccl_is(state, HN_FACT_PATH_GDR) &&
                strncasecmp(via, "NET/Socket", 10) != 0)
                continue;
            bool old = strncasecmp(via, k_order[k], strlen(k_order[k])) != 0;
            for (size_t j = 0; j < count && !old; j++)
                old = same_path(via, seen[j]);
            if (old) continue;
            if (count) hn_str_append(&text, " + ");
            hn_str_append(&text, via);
            seen[count++] = via;
        }
    if (!count) {
        const char *network = network_of(state);
        bool p2p_off = hn_nccl_is(state, HN_FACT_P2P_REFUSED_ENV);
        bool local = report->one_node == 1;
        if (local && p2p_off && !hn_nccl_is(state, HN_FACT_SHM_OFF))
            hn_str_append(&text, "SHM");
        else if (network && (!local || p2p_off))
            hn_str_printf(&text, "NET/%s", network);
    }
    const char *copy = text.length ? hn_arena_strdup(state->arena, hn_str_get(&text)) : NULL;
    if (text.failed || (text.length && !copy)) state->failed = true;
    hn_str_free(&text);
    return copy;
}

static const char *expected_path(hn_nccl_state *state, const hn_nccl_path *path, int same_host) {
    const char *via = path->via;
    bool net = strncmp(via, "NET/", 4) == 0;
    if (!net && strncmp(via, "SHM", 3) != 0) return via;
    if (!net || same_host == 1) return "P2P";
    if (same_host < 0 && hn_nccl_is(state, HN_FACT_ONE_NODE)) return "P2P";
    if (strstr(via, "GDRDMA")) return via;
    if (strncasecmp(via, "NET/Socket", 10) == 0) return "NET/IB/GDRDMA";
    if (!path->received && hn_nccl_is(state, HN_FACT_PATH_GDR)) return via; // its sender only
    const char *text = hn_arena_printf(state->arena, "%s/GDRDMA", via);
    if (!text) state->failed = true;
    return text;
}

// The path table is of no use after this: pairs are the last reader.
static int compare_paths(const void *a, const void *b) {
    const hn_nccl_path *x = a, *y = b;
    if (x->from != y->from) return x->from < y->from ? -1 : 1;
    if (x->to != y->to) return x->to < y->to ? -1 : 1;
    int via = strcmp(x->via, y->via);
    return via ? via : (x->nic > y->nic) - (x->nic < y->nic);
}

static hn_status pairs_of(hone_error *err, hn_nccl_state *state, hn_nccl_report *report) {
    int ranks = 0;
    for (size_t i = 0; i < state->procs.count; i++)
        if (state->procs.data[i].rank >= ranks) ranks = state->procs.data[i].rank + 1;
    int *host_of = hn_arena_array(&report->arena, (size_t)ranks + 1, sizeof *host_of);
    hn_nccl_pair *pairs = hn_arena_array(&report->arena, state->paths.count + 1, sizeof *pairs);
    if (!host_of || !pairs) HN_NOMEM(err, "pairs");
    for (int i = 0; i <= ranks; i++)
        host_of[i] = -1;
    for (size_t i = 0; i < state->procs.count; i++)
        if (state->procs.data[i].rank >= 0)
            host_of[state->procs.data[i].rank] = state->procs.data[i].host_index;
    if (state->paths.count)
        qsort(state->paths.data, state->paths.count, sizeof *state->paths.data, compare_paths);
    for (size_t i = 0; i < state->paths.count; i++) {
        const hn_nccl_path *p = &state->paths.data[i];
        hn_nccl_pair *last = report->pair_count ? &pairs[report->pair_count - 1] : NULL;
        if (last && last->from == p->from && last->to == p->to && strcmp(last->via, p->via) == 0) {
            last->channels += p->channels;
            if (p->pxn >= 0) last->pxn = p->pxn;
            continue;
        }
        int same = -1;
        if (p->from < ranks && p->to < ranks && host_of[p->from] >= 0 && host_of[p->to] >= 0)
            same = host_of[p->from] == host_of[p->to];
        pairs[report->pair_count++] = (hn_nccl_pair){
            p->from, p->to, p->via, expected_path(state, p, same), p->channels, p->pxn};
    }
    report->pairs = pairs;
    return HONE_OK;
}

static const char *expected_transport(hn_nccl_state *state, const hn_nccl_report *report) {
    if (hn_nccl_is(state, HN_FACT_P2P_REFUSED_ENV) && hn_nccl_is(state, HN_FACT_LOCAL_RANKS))
        return "P2P";
    if (!report->transport) return report->one_node == 1 ? "P2P" : NULL;
    const char *first = NULL;
    for (size_t i = 0; i < report->pair_count; i++) {
        const hn_nccl_pair *p = &report->pairs[i];
        if (p->expected && strcmp(p->expected, p->via) != 0 && !first) first = p->expected;
    }
    if (first) return first;
    return strcmp(report->transport, "NET/Socket") == 0 ? "NET/IB/GDRDMA" : report->transport;
}

// ---- the causes -------------------------------------------------------------------------------
// Peer and GIDs of a completion error, for the reader who must find the cable.
static const char *completion_detail(hn_nccl_state *state, const char *text) {
    static const char *const k_keys[] = {"peer ", "localGid ", "remoteGids", "remoteGid"};
    static const char *const k_names[] = {"peer", "local GID", "remote GID", "remote GID"};
    hn_str out = {0};
    bool gid = false;
    for (size_t i = 0; i < HN_COUNT_OF(k_keys); i++) {
        const char *found = strstr(text, k_keys[i]);
        if (!found || (i == 3 && gid)) continue;
        found += strlen(k_keys[i]);
        while (*found == ' ')
            found++;
        size_t n = strcspn(found, " <,)");
        if (!n || n > 64) continue;
        gid = gid || i == 2;
        hn_str_printf(&out, "%s%s %.*s", out.length ? ", " : "", k_names[i], (int)n, found);
    }
    const char *copy = out.length ? hn_arena_strdup(state->arena, hn_str_get(&out)) : NULL;
    hn_str_free(&out);
    return copy;
}

static const char *why_of(hn_nccl_state *state, size_t i, const hn_nccl_mark *mark) {
    const hn_nccl_row *row = &hn_nccl_rows[i];
    const char *detail = NULL;
    if (row->flags & HN_NCCL_F_MADE) {
        for (size_t m = 0; m < state->made.count; m++)
            if (state->made.data[m].row == (int)i) detail = state->made.data[m].detail;
    } else if ((row->flags & HN_NCCL_F_DETAIL) && mark->said.data) {
        detail = completion_detail(state, mark->said.data);
    }
    const char *why =
        detail && *detail ? hn_arena_printf(state->arena, "%s (%s)", row->why, detail) : row->why;
    if (!why) state->failed = true;
    return why;
}

static int compare_causes(const void *a, const void *b) {
    const hn_nccl_cause *x = a, *y = b;
    if (x->severity != y->severity) return x->severity < y->severity ? 1 : -1;
    if (x->victim != y->victim) return x->victim ? 1 : -1;
    if (x->confidence != y->confidence) return x->confidence < y->confidence ? 1 : -1;
    if (x->evidence.line != y->evidence.line) return x->evidence.line < y->evidence.line ? -1 : 1;
    return strcmp(x->id, y->id);
}

static bool row_holds(const hn_nccl_state *state, size_t i, const char *last_id) {
    const hn_nccl_row *row = &hn_nccl_rows[i];
    if (last_id && strcmp(last_id, row->id) == 0) return false; // a more special row spoke
    bool by_text = row->pattern[0] || (row->flags & HN_NCCL_F_MADE);
    if (by_text && !state->causes[i].count) return false;
    return all_hold(state, row);
}

static hn_status causes_of(hone_error *err, hn_nccl_state *state, hn_nccl_report *report) {
    hn_nccl_cause *causes = hn_arena_array(&report->arena, hn_nccl_row_count, sizeof *causes);
    bool *holds = hn_arena_array(&report->arena, hn_nccl_row_count, sizeof *holds);
    if (!causes || !holds) HN_NOMEM(err, "causes");
    const char *last_id = NULL;
    report->healthy = true;
    for (size_t i = 0; i < hn_nccl_row_count; i++) {
        const hn_nccl_row *row = &hn_nccl_rows[i];
        holds[i] = row_holds(state, i, last_id);
        if (!holds[i]) continue;
        last_id = row->id;
        const hn_nccl_hit *hit =
            state->causes[i].count ? &state->causes[i] : &state->facts[row->all[0]];
        const hn_nccl_mark *mark = &hit->first;
        // The first fact can be one without a line: any other of the row's will do.
        for (size_t f = 0; f < HN_COUNT_OF(row->all) && row->all[f] && !mark->line; f++)
            mark = &state->facts[row->all[f]].first;
        causes[report->cause_count++] =
            (hn_nccl_cause){row->id,         why_of(state, i, mark),
                            row->mend,       row->severity,
                            row->confidence, {mark->file, mark->line, mark->text ? mark->text : ""},
                            hit->count,      (row->flags & HN_NCCL_F_VICTIM) != 0};
        if (row->severity > HN_NCCL_NOTE) report->healthy = false;
    }
    first_failure(state, report, holds);
    qsort(causes, report->cause_count, sizeof *causes, compare_causes);
    report->causes = causes;
    return HONE_OK;
}

hn_status hn_nccl_conclude(hone_error *err, hn_nccl_state *state, hn_nccl_report *report) {
    facts_of_world(state, report);
    compare_hosts(state);
    // A warning without a row, followed by NCCL's way out, is a failure all the same.
    bool known = false;
    for (size_t i = 0; i < hn_nccl_row_count; i++)
        known = known || (state->causes[i].count && hn_nccl_rows[i].severity == HN_NCCL_FAULT &&
                          all_hold(state, &hn_nccl_rows[i]));
    if (state->warning_count && !known)
        hn_nccl_made_add(state, state->trail.text ? "warning_unexplained" : "warning_unknown",
                         &state->warning, "%lld such warnings", (long long)state->warning_count);
    facts_of_end(state);
    hn_nccl_bench_judge(state, report);
    report->network = network_of(state);
    report->version = state->version;
    HN_TRY(pairs_of(err, state, report));
    report->transport = transport_of(state, report);
    report->expected_transport = expected_transport(state, report);
    report->first_rank = -1;
    HN_TRY(causes_of(err, state, report));
    hn_nccl_setting *settings =
        hn_arena_array(&report->arena, state->env.count + 1, sizeof *settings);
    const char **hosts = hn_arena_array(&report->arena, state->hosts.count + 1, sizeof *hosts);
    hn_nccl_bench_row *rows = hn_arena_array(&report->arena, state->rows.count + 1, sizeof *rows);
    if (!settings || !hosts || !rows || state->failed) HN_NOMEM(err, "the report");
    for (size_t i = 0; i < state->env.count; i++)
        settings[i] = (hn_nccl_setting){state->env.data[i].name, state->env.data[i].value,
                                        state->env.data[i].mark.line};
    for (size_t i = 0; i < state->hosts.count; i++)
        hosts[i] = state->hosts.data[i];
    if (state->rows.count) memcpy(rows, state->rows.data, state->rows.count * sizeof *rows);
    report->bench.rows = rows;
    report->settings = settings;
    report->setting_count = state->env.count;
    report->hosts = hosts;
    report->host_count = state->hosts.count;
    report->ranks = state->ranks > (int)state->devices.count ? state->ranks
                    : state->devices.count                   ? (int)state->devices.count
                                                             : state->ranks;
    report->nodes = state->hosts.count > 1 && state->nodes < (int)state->hosts.count
                        ? (int)state->hosts.count
                    : state->nodes > 0      ? state->nodes
                    : report->one_node == 1 ? 1
                                            : -1;
    for (size_t i = 0; i < state->procs.count; i++)
        report->ranks_seen += state->procs.data[i].rank >= 0;
    report->lines = state->lines;
    report->records = state->records;
    report->torn = state->torn_lines;
    return HONE_OK;
}
