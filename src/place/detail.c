// SPDX-License-Identifier: Apache-2.0
// What follows from the chosen set: rank order, each rank's CPUs and adapter, the environment with a
// reason for each variable.
#include <stdarg.h>
#include "place/place_int.h"

static void note(hn_place_result *r, const char *fmt, ...) HN_PRINTF(2, 3);
static void note(hn_place_result *r, const char *fmt, ...) {
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    const char *copy = hn_arena_strdup(&r->arena, text);
    if (copy && !hn_vec_push(&r->notes, copy)) return;
}

// Name and value are copied, reason too.
static void hint(hn_place_result *r, const char *name, const char *value, const char *reason) {
    hn_place_hint made = {hn_arena_strdup(&r->arena, name), hn_arena_strdup(&r->arena, value),
                          hn_arena_strdup(&r->arena, reason)};
    if (made.name && made.value && made.reason && !hn_vec_push(&r->hints, made)) return;
}

// ---- ranks ------------------------------------------------------------------------------------

static int between_groups(const place_problem *p, const int *a, const int *b, int size) {
    int sum = 0;
    for (int i = 0; i < size; i++)
        for (int k = 0; k < size; k++) sum += p->gbs[a[i]][b[k]] / size;
    return sum;
}

// Groups in a chain of near neighbours: data-parallel replicas, which exchange gradients, come next to
// each other, pipeline stages after that.
static void order_groups(const place_problem *p, int *cards, int size, int groups) {
    for (int i = 1; i < groups; i++) {
        int best = i;
        for (int k = i + 1; k < groups; k++)
            if (between_groups(p, cards + (i - 1) * size, cards + k * size, size) >
                between_groups(p, cards + (i - 1) * size, cards + best * size, size))
                best = k;
        for (int t = 0; t < size && best != i; t++) {
            int swap = cards[i * size + t];
            cards[i * size + t] = cards[best * size + t];
            cards[best * size + t] = swap;
        }
    }
}

static void make_ranks(const place_problem *p, uint64_t set, hn_place_result *r) {
    const hn_place_request *q = p->request;
    int cards[HN_PLACE_GPUS_MAX], tp = q->tp ? q->tp : r->count, dp = q->dp ? q->dp : 1;
    if (q->tp > 1 && q->tp < r->count) {
        place_group_worst(p, set, tp, cards);
        for (int g = 0; g < r->count / tp; g++) {
            uint64_t group = 0;
            for (int i = 0; i < tp; i++) group |= UINT64_C(1) << cards[g * tp + i];
            place_ring_order(p, group, cards + g * tp);
        }
        order_groups(p, cards, tp, r->count / tp);
    } else {
        memcpy(cards, r->ring, sizeof cards);
    }
    for (int i = 0; i < r->count; i++) {
        const hn_place_gpu *gpu = &p->machine->gpus.data[cards[i]];
        hn_place_rank *rank = &r->ranks[i];
        *rank = (hn_place_rank){.gpu = cards[i], .numa = gpu->numa, .nic = -1};
        rank->tp = i % tp;
        rank->dp = i / tp % dp;
        rank->pp = i / tp / dp;
    }
}

// Nearest adapter of each rank; where several are equally near, the one that fewest ranks have so far.
static void give_nics(const place_problem *p, hn_place_result *r) {
    int taken[HN_PLACE_DEVICES_MAX] = {0};
    for (int i = 0; i < r->count; i++) {
        hn_place_rank *rank = &r->ranks[i];
        for (int k = 0; k < (int)p->machine->nics.count; k++)
            if ((p->nic_at[rank->gpu][k / 64] >> (k % 64) & 1) &&
                (rank->nic < 0 || taken[k] < taken[rank->nic]))
                rank->nic = k;
        if (rank->nic >= 0) taken[rank->nic]++;
    }
}

// A tree over the ranks: the spanning tree of the fastest paths, rooted at the rank nearest to an
// adapter; rank order breaks ties, so a uniform machine gives a star of the root.
static void make_tree(const place_problem *p, hn_place_result *r) {
    int root = 0;
    bool in[HN_PLACE_GPUS_MAX] = {false};
    int children[HN_PLACE_GPUS_MAX] = {0};
    for (int i = 1; i < r->count; i++)
        if (p->nic_rank[r->ranks[i].gpu] < p->nic_rank[r->ranks[root].gpu]) root = i;
    in[root] = true;
    r->tree_parent[root] = -1;
    for (int added = 1; added < r->count; added++) {
        int best = -1, parent = -1, best_gbs = -1;
        for (int i = 0; i < r->count; i++) {
            if (in[i]) continue;
            for (int k = 0; k < r->count; k++) {
                // A node of a binary tree sends to two at most; the fastest path decides before that.
                int gbs = p->gbs[r->ranks[i].gpu][r->ranks[k].gpu];
                if (!in[k] || children[k] >= 2 || gbs <= best_gbs) continue;
                best = i, parent = k, best_gbs = gbs;
            }
        }
        in[best] = true;
        children[parent]++;
        r->tree_parent[best] = parent;
    }
}

// ---- CPUs -------------------------------------------------------------------------------------

// The length of a set's ranges where all are equal (cores, then their second threads); else 0.
static int layer_length(const hn_place_cpuset *cpus) {
    int length = 0;
    for (int first = hn_place_cpuset_next(cpus, -1), last; first >= 0;
         first = hn_place_cpuset_next(cpus, last)) {
        for (last = first; hn_place_cpuset_has(cpus, last + 1);) last++;
        if (length && last - first + 1 != length) return 0;
        length = last - first + 1;
    }
    return length;
}

// Share `index` of `parts` of a set. Ranges of one length are each cut, so that a share keeps both threads
// of its cores; other sets are cut by number of CPUs.
static hn_place_cpuset share_of(const hn_place_cpuset *cpus, int index, int parts) {
    hn_place_cpuset out = {{0}};
    int length = layer_length(cpus);
    bool equal = length >= parts;
    int total = equal ? length : hn_place_cpuset_count(cpus), at = 0, previous = -2;
    for (int cpu = hn_place_cpuset_next(cpus, -1); cpu >= 0; cpu = hn_place_cpuset_next(cpus, cpu)) {
        if (equal && cpu != previous + 1) at = 0; // the next range
        previous = cpu;
        if (at >= total * index / parts && at < total * (index + 1) / parts)
            hn_place_cpuset_add(&out, cpu);
        at++;
    }
    return out;
}

static void keep_first(hn_place_cpuset *cpus, int count) {
    hn_place_cpuset out = {{0}};
    int cpu = -1;
    while (count-- > 0 && (cpu = hn_place_cpuset_next(cpus, cpu)) >= 0) hn_place_cpuset_add(&out, cpu);
    *cpus = out;
}

// Every card of the machine has a share of its own, chosen or not, so that jobs placed one by one do not
// meet. Empty where there are fewer CPUs than cards.
static hn_place_cpuset own_share(const place_problem *p, int gpu) {
    int group = p->cpu_group[gpu], index = 0, parts = 0;
    for (int g = 0; g < p->count; g++) {
        if (p->cpu_group[g] != group) continue;
        index += g < gpu;
        parts++;
    }
    if (p->group_size[group] < parts) return (hn_place_cpuset){{0}};
    return share_of(&p->group_cpus[group], index, parts);
}

static hn_place_cpuset rank_cpus(const place_problem *p, const hn_place_result *r, int at, int want) {
    int group = p->cpu_group[r->ranks[at].gpu], chosen_index = 0, chosen = 0;
    const hn_place_cpuset *all = &p->group_cpus[group];
    for (int i = 0; i < r->count; i++) {
        if (p->cpu_group[r->ranks[i].gpu] != group) continue;
        chosen_index += i < at;
        chosen++;
    }
    if (p->group_size[group] < chosen) return *all; // fewer CPUs than ranks: they share them
    hn_place_cpuset share = own_share(p, r->ranks[at].gpu);
    if (hn_place_cpuset_empty(&share)) share = share_of(all, chosen_index, chosen);
    if (want > 0) keep_first(&share, want);
    return share;
}

// The CPUs of the cards that the job leaves alone, card by card and core by core; their number.
static int spare_cpus(const place_problem *p, const hn_place_result *r, int group, int out[HN_PLACE_CPUS_MAX]) {
    uint64_t chosen = 0;
    int count = 0;
    for (int i = 0; i < r->count; i++) chosen |= UINT64_C(1) << r->ranks[i].gpu;
    for (int g = 0; g < p->count; g++) {
        if (p->cpu_group[g] != group || (chosen >> g & 1)) continue;
        hn_place_cpuset left = own_share(p, g);
        int cores = layer_length(&left);
        if (!cores) cores = hn_place_cpuset_count(&left);
        for (int core = 0; core < cores; core++) {
            hn_place_cpuset threads = share_of(&left, core, cores);
            for (int cpu = hn_place_cpuset_next(&threads, -1); cpu >= 0; cpu = hn_place_cpuset_next(&threads, cpu))
                out[count++] = cpu;
        }
    }
    return count;
}

// A job that asks for more than its cards' shares gets from those of cards it leaves alone: as much as it
// wants, or where that is not enough an equal part for each rank.
static void give_more(const place_problem *p, hn_place_result *r, int group, int want) {
    int spare[HN_PLACE_CPUS_MAX], needed = 0, ranks = 0, at = 0, seen = 0;
    for (int i = 0; i < r->count; i++) {
        int have = hn_place_cpuset_count(&r->ranks[i].cpus);
        if (p->cpu_group[r->ranks[i].gpu] != group) continue;
        needed += have < want ? want - have : 0;
        ranks++;
    }
    int count = needed ? spare_cpus(p, r, group, spare) : 0;
    for (int i = 0; i < r->count && count; i++) {
        hn_place_cpuset *cpus = &r->ranks[i].cpus;
        if (p->cpu_group[r->ranks[i].gpu] != group) continue;
        int need = want - hn_place_cpuset_count(cpus), part = count * (seen + 1) / ranks - count * seen / ranks;
        if (needed > count && need > part) need = part;
        for (; need > 0 && at < count; need--) hn_place_cpuset_add(cpus, spare[at++]);
        seen++;
    }
}

static void give_cpus(const place_problem *p, hn_place_result *r) {
    int unknown = 0, blocked = 0, want = (p->request->cpus + r->count - 1) / r->count;
    for (int i = 0; i < r->count; i++) {
        hn_place_rank *rank = &r->ranks[i];
        int group = p->cpu_group[rank->gpu];
        if (group < 0 || !p->group_size[group]) {
            unknown += group < 0;
            blocked += group >= 0;
            continue;
        }
        rank->cpus = rank_cpus(p, r, i, want);
        rank->cpus_known = true;
    }
    for (int group = 0; want && group < HN_PLACE_GPUS_MAX; group++) give_more(p, r, group, want);
    for (int i = 0; i < r->count; i++) hn_place_cpuset_or(&r->cpus, &r->ranks[i].cpus);
    r->cpus_known = !unknown && !blocked;
    for (int i = 0; i < r->count; i++)
        if (r->ranks[i].numa >= 0) hn_place_cpuset_add(&r->numa, r->ranks[i].numa);
    if (unknown)
        note(r, "the local CPUs of %d of the %d cards are unknown: the CPUs of their ranks are left as they are",
             unknown, r->count);
    if (blocked)
        note(r, "none of the CPUs that this process may use is local to %d of the %d cards: the CPUs of "
                "their ranks are left as they are",
             blocked, r->count);
    if (p->request->allowed_known) {
        hn_place_cpuset all = {{0}}, allowed;
        for (int i = 0; i < r->count; i++)
            if (p->machine->gpus.data[r->ranks[i].gpu].cpus_known)
                hn_place_cpuset_or(&all, &p->machine->gpus.data[r->ranks[i].gpu].cpus);
        allowed = all;
        hn_place_cpuset_and(&allowed, &p->request->allowed);
        if (!hn_place_cpuset_equal(&all, &allowed) && !hn_place_cpuset_empty(&allowed))
            note(r, "%d of the %d CPUs local to these cards are outside the affinity of this process and "
                    "were left out",
                 hn_place_cpuset_count(&all) - hn_place_cpuset_count(&allowed), hn_place_cpuset_count(&all));
    }
}

// ---- environment ------------------------------------------------------------------------------

static void hint_cards(const place_problem *p, hn_place_result *r) {
    hn_str list = {0};
    bool mig = false;
    for (int i = 0; i < r->count; i++) {
        const hn_place_gpu *gpu = &p->machine->gpus.data[r->ranks[i].gpu];
        mig |= gpu->mig == 1;
        hn_str_printf(&list, "%s%d", i ? "," : "", gpu->index);
    }
    r->visible = hn_arena_strdup(&r->arena, hn_str_get(&list));
    hint(r, "CUDA_DEVICE_ORDER", "PCI_BUS_ID", "makes CUDA count cards as nvidia-smi and this set do");
    if (mig)
        note(r, "CUDA_VISIBLE_DEVICES must name the MIG instance by its UUID ('nvidia-smi -L'); this is the "
                "parent card");
    hint(r, "CUDA_VISIBLE_DEVICES", hn_str_get(&list),
         r->count > 1 ? "the chosen cards in rank order, so that local rank k uses the k-th"
                      : "the chosen card");
    hn_str_free(&list);
}

// The adapters to use, by exact name. Needed where the machine has others that NCCL would take too.
static void hint_adapters(const place_problem *p, hn_place_result *r) {
    const hn_place_machine *m = p->machine;
    hn_str names = {0};
    int count = 0, unnamed = 0;
    if (p->request->nics <= 0) return;
    for (int k = 0; k < (int)m->nics.count; k++) {
        bool near = false;
        for (int i = 0; i < r->count; i++)
            near |= p->nic_at[r->ranks[i].gpu][k / 64] >> (k % 64) & 1;
        if (!near) continue;
        unnamed += m->nics.data[k].name == NULL;
        if (m->nics.data[k].name)
            hn_str_printf(&names, "%s%s", count++ ? "," : "=", m->nics.data[k].name);
    }
    if (unnamed) note(r, "%d of the nearest adapters have no name in the source (its NIC legend is missing), "
                         "so NCCL_IB_HCA cannot be given",
                      unnamed);
    else if (count && count < (int)m->nics.count)
        hint(r, "NCCL_IB_HCA", hn_str_get(&names),
             "the adapters nearest to these cards; the others are farther, or serve storage or management");
    hn_str_free(&names);
}

static void hint_network(const place_problem *p, hn_place_result *r) {
    if (p->request->nics <= 0) return;
    int worst = 0, own = 0;
    bool seen[HN_PLACE_DEVICES_MAX] = {false};
    for (int i = 0; i < r->count; i++) {
        if (p->nic_rank[r->ranks[i].gpu] > worst) worst = p->nic_rank[r->ranks[i].gpu];
        if (r->ranks[i].nic >= 0 && !seen[r->ranks[i].nic]) own++, seen[r->ranks[i].nic] = true;
    }
    if (r->count > 1 && own == r->count)
        hint(r, "NCCL_CROSS_NIC", "0",
             "every card has an adapter of its own: rings and trees that stay on one adapter keep to the "
             "rails of the fabric");
    if (worst == 4)
        hint(r, "NCCL_NET_GDR_LEVEL", "PHB",
             p->machine->virtual_machine
                 ? "in this guest the nearest adapter shows as PHB although it may share the card's switch; "
                   "NCCL would not use GPUDirect there by itself"
                 : "the nearest adapter is behind the same host bridge; NCCL would not use GPUDirect there by "
                   "itself");
    if (worst >= 5 && worst < 7)
        note(r, "the nearest adapter of at least one card is %s away: NCCL stages its traffic through host "
                "memory there, which is right",
             worst == 5 ? "NODE" : "SYS");
}

static void hint_threads(hn_place_result *r) {
    int fewest = INT32_MAX;
    char value[16];
    if (!r->cpus_known || r->count < 1) return;
    for (int i = 0; i < r->count; i++) {
        int cpus = hn_place_cpuset_count(&r->ranks[i].cpus);
        if (cpus < fewest) fewest = cpus;
    }
    snprintf(value, sizeof value, "%d", fewest);
    hint(r, "OMP_NUM_THREADS", value, "as many threads as each rank has CPUs of its own");
}

static void hint_paths(const place_problem *p, hn_place_result *r) {
    bool unknown = false, sys = false;
    for (int a = 0; a < r->count; a++)
        for (int b = a + 1; b < r->count; b++) {
            int rank = hn_place_link_rank(hn_place_link_between(p->machine, r->ranks[a].gpu, r->ranks[b].gpu));
            unknown |= rank == 7;
            sys |= rank == 6;
        }
    if (unknown) note(r, "the path between some of these cards is unknown (see 'hone topo'): it was counted as the "
                         "slowest");
    if (sys) note(r, "some of these cards reach each other across the socket link only (SYS)");
    if (r->count > 1)
        note(r, "the topology does not prove that peer-to-peer works: 'hone doctor --p2p' does");
}

// What was asked for and could not be checked, because the source does not tell.
static void note_unchecked(const place_problem *p, hn_place_result *r) {
    const hn_place_request *q = p->request;
    int memory = 0, used = 0, busy = 0, cpus = 0, far = 0;
    for (int i = 0; i < r->count; i++) {
        int g = r->ranks[i].gpu;
        const hn_place_gpu *gpu = &p->machine->gpus.data[g];
        memory += gpu->memory_bytes < 0;
        used += gpu->memory_bytes >= 0 && gpu->memory_used_bytes < 0;
        busy += gpu->busy < 0 && !(q->busy >> g & 1);
        cpus += p->cpu_group[g] < 0;
        far += p->nic_rank[g] >= 7;
    }
    if (q->memory_bytes > 0 && memory)
        note(r, "the memory of %d of the %d cards is unknown: whether %.1f GiB are free on each was not checked",
             memory, r->count, (double)q->memory_bytes / (1 << 30));
    if (q->memory_bytes > 0 && used)
        note(r, "how much memory is in use on %d of the %d cards is unknown: their whole memory was compared",
             used, r->count);
    if (q->cpus > 0 && cpus)
        note(r, "whether %d CPUs are local to these cards was not checked: the CPUs of %d of them are unknown",
             q->cpus, cpus);
    if (q->nics > 0 && far)
        note(r, "the path from %d of the %d cards to every adapter is unknown: their distance was counted as "
                "the longest",
             far, r->count);
    if (busy && !q->busy) // a list that was given is taken for the whole of it
        note(r, "whether %s in use is unknown: give those that are with --busy",
             r->count == 1 ? "the card is" : busy == r->count ? "these cards are" : "some of these cards are");
}

hn_status place_detail(hone_error *err, const place_problem *problem, hn_place_result *result) {
    uint64_t set = result->choices[0].cards;
    result->count = __builtin_popcountll(set);
    place_ring_order(problem, set, result->ring);
    make_ranks(problem, set, result);
    give_nics(problem, result);
    make_tree(problem, result);
    give_cpus(problem, result);
    hint_cards(problem, result);
    if (!result->visible) HN_NOMEM(err, "placement");
    hint_adapters(problem, result);
    hint_network(problem, result);
    hint_threads(result);
    hint_paths(problem, result);
    note_unchecked(problem, result);
    return HONE_OK;
}
