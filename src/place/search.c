// SPDX-License-Identifier: Apache-2.0
// The search for the best set: depth first over all sets, cut where the slowest path so far already is
// worse than what was found. Up to 16 cards that is every set in milliseconds; beyond, a budget bounds
// it and a greedy start makes sure that what is found by then is good.
#include <stdio.h>
#include "place/place_int.h"

#define BUDGET_DEFAULT 60000 // sets; about 8 ms
#define NODE_UNKNOWN   63

typedef struct search {
    place_problem *p;
    hn_place_result *result;
    int want, tp;
    int64_t budget;
} search;

// ---- comparing --------------------------------------------------------------------------------

typedef struct key_row {
    const char *words; // "a ... than the next best"
    bool more_is_better, gbs;
} key_row;
enum { KEY_BUSY, KEY_CPUS, KEY_WORST, KEY_RING, KEY_NIC, KEY_NODES, KEY_SPREAD, KEY_PAIRS,
       KEY_LEFT, KEY_WASTE, KEYS };
static const key_row k_keys[KEYS] = {
    [KEY_BUSY] = {"cards in use", false, false},
    [KEY_CPUS] = {"CPUs short", false, false},
    [KEY_WORST] = {"slowest path", true, true},
    [KEY_RING] = {"slowest path of the ring", true, true},
    [KEY_NIC] = {"distance of the nearest adapters", false, false},
    [KEY_NODES] = {"NUMA nodes", false, false},
    [KEY_SPREAD] = {"distance of the cards to their adapters", false, false},
    [KEY_PAIRS] = {"sum of all paths", true, true},
    [KEY_LEFT] = {"paths left among the free cards", true, true},
    [KEY_WASTE] = {"distance from adapters that the job does not need", true, false},
};

static void keys_of(const hn_place_score *s, int64_t *keys) {
    keys[KEY_BUSY] = s->busy, keys[KEY_CPUS] = s->cpu_shortage, keys[KEY_WORST] = s->worst_link;
    keys[KEY_RING] = s->ring, keys[KEY_NIC] = s->nic_distance, keys[KEY_NODES] = s->nodes;
    keys[KEY_SPREAD] = s->nic_spread, keys[KEY_PAIRS] = s->pair_sum, keys[KEY_LEFT] = s->left_sum;
    keys[KEY_WASTE] = s->nic_waste;
}

// The first key in which they differ, KEYS if none; *out_order < 0: a is better.
static int first_difference(const hn_place_score *a, const hn_place_score *b, int *out_order) {
    int64_t x[KEYS], y[KEYS];
    keys_of(a, x);
    keys_of(b, y);
    for (int k = 0; k < KEYS; k++) {
        if (x[k] == y[k]) continue;
        *out_order = (x[k] > y[k]) == k_keys[k].more_is_better ? -1 : 1;
        return k;
    }
    *out_order = 0;
    return KEYS;
}

int hn_place_choice_compare(const hn_place_request *request, const hn_place_choice *a,
                            const hn_place_choice *b) {
    int order;
    (void)request;
    first_difference(&a->score, &b->score, &order);
    if (order || a->cards == b->cards) return order;
    // The set that holds the lowest card which the other lacks.
    uint64_t lowest = (a->cards ^ b->cards) & -(a->cards ^ b->cards);
    return a->cards & lowest ? -1 : 1;
}

const char *hn_place_choice_reason(const hn_place_request *request, const hn_place_choice *a,
                                   const hn_place_choice *b, char *buf, size_t size) {
    int order, key = first_difference(&a->score, &b->score, &order);
    int64_t x[KEYS], y[KEYS];
    (void)request;
    if (key == KEYS) {
        snprintf(buf, size, "equal in everything: lower card numbers first");
        return buf;
    }
    keys_of(&a->score, x);
    keys_of(&b->score, y);
    if (k_keys[key].gbs)
        snprintf(buf, size, "%s: %.4g against %.4g GB/s", k_keys[key].words, (double)x[key] / 100,
                 (double)y[key] / 100);
    else
        snprintf(buf, size, "%s: %lld against %lld", k_keys[key].words, (long long)x[key],
                 (long long)y[key]);
    return buf;
}

// ---- scoring ----------------------------------------------------------------------------------

static int set_cpus(const place_problem *p, uint64_t cards) {
    hn_place_cpuset all = {{0}};
    uint64_t groups = 0;
    int sum = 0;
    for (uint64_t rest = cards; rest; rest &= rest - 1)
        if (p->cpu_group[__builtin_ctzll(rest)] >= 0)
            groups |= UINT64_C(1) << p->cpu_group[__builtin_ctzll(rest)];
    for (; groups; groups &= groups - 1) {
        int group = __builtin_ctzll(groups);
        sum += p->group_size[group];
        if (p->groups_meet) hn_place_cpuset_or(&all, &p->group_cpus[group]);
    }
    return p->groups_meet ? hn_place_cpuset_count(&all) : sum;
}

static bool set_has_unknown_cpus(const place_problem *p, uint64_t cards) {
    for (; cards; cards &= cards - 1)
        if (p->cpu_group[__builtin_ctzll(cards)] < 0) return true;
    return false;
}

// The ranks of the `count` adapters that are nearest to any card of the set; those that are not known to
// be near count as one beyond the last rank.
static int adapters_distance(const place_problem *p, uint64_t cards, int count) {
    int sum = 0, before = 0;
    for (int rank = 1; rank < PLACE_RANKS && before < count; rank++) {
        int within = 0;
        for (int w = 0; w < p->nic_words; w++) {
            uint64_t near = 0;
            for (uint64_t rest = cards; rest; rest &= rest - 1)
                near |= p->nic_near[rank][__builtin_ctzll(rest)][w];
            within += __builtin_popcountll(near);
        }
        if (within > count) within = count;
        sum += rank * (within - before);
        before = within;
    }
    return sum + PLACE_RANKS * (count - before);
}

// All keys but worst_link and ring, which the caller has or may not need.
static void score_cheap(const search *s, uint64_t cards, int64_t pair_sum, hn_place_score *score) {
    const place_problem *p = s->p;
    uint64_t nodes = 0;
    int64_t degrees = 0;
    int distance = 0;
    for (uint64_t rest = cards; rest; rest &= rest - 1) {
        int card = __builtin_ctzll(rest);
        nodes |= UINT64_C(1) << p->node[card];
        degrees += p->degree[card];
        distance += p->nic_rank[card];
    }
    score->busy = __builtin_popcountll(cards & p->busy);
    score->cpu_shortage = 0;
    if (p->request->cpus > 0 && !set_has_unknown_cpus(p, cards)) {
        int have = set_cpus(p, cards);
        score->cpu_shortage = have < p->request->cpus ? p->request->cpus - have : 0;
    }
    score->nodes = __builtin_popcountll(nodes);
    score->pair_sum = pair_sum;
    score->left_sum = p->usable_sum - degrees + pair_sum;
    bool wants = p->request->nics > 0;
    score->nic_distance = wants ? adapters_distance(p, cards, p->request->nics) : 0;
    score->nic_spread = wants ? distance : 0;
    score->nic_waste = wants ? 0 : distance;
}

// -1 where the ring is known to be slower than `floor`.
static int ring_gbs(search *s, uint64_t cards, int floor) {
    const place_problem *p = s->p;
    int count = __builtin_popcountll(cards);
    if (count < 2) return 0;
    if (count == 2) {
        int a = __builtin_ctzll(cards);
        return p->gbs[a][__builtin_ctzll(cards & (cards - 1))];
    }
    int level = place_ring_level(p, cards, floor, &s->budget);
    if (level < p->level_count) return p->levels[level];
    return floor > 0 ? -1 : 0;
}

// Puts a set into the list of choices if it is good enough.
static void offer(search *s, uint64_t cards, int worst, int64_t pair_sum) {
    hn_place_result *r = s->result;
    hn_place_choice choice = {.cards = cards};
    int keep = s->p->request->choices, floor = 0;
    r->looked_at++;
    s->budget--;
    score_cheap(s, cards, pair_sum, &choice.score);
    choice.score.worst_link = worst;
    if (r->choice_count == keep) {
        // The ring is dear: leave it where the keys before it settle the matter.
        const hn_place_score *last = &r->choices[keep - 1].score;
        choice.score.ring = last->ring;
        int order, key = first_difference(&choice.score, last, &order);
        if (key < KEY_RING && order > 0) return;
        if (key >= KEY_RING) floor = last->ring;
    }
    choice.score.ring = ring_gbs(s, cards, floor);
    if (choice.score.ring < 0) return;
    int at = r->choice_count < keep ? r->choice_count : keep;
    while (at > 0 && hn_place_choice_compare(s->p->request, &choice, &r->choices[at - 1]) < 0) at--;
    if (at == keep) return;
    for (int i = 0; i < r->choice_count; i++)
        if (r->choices[i].cards == cards) return; // the greedy start found it before
    if (r->choice_count < keep) r->choice_count++;
    for (int i = r->choice_count - 1; i > at; i--) r->choices[i] = r->choices[i - 1];
    r->choices[at] = choice;
}

// Slowest path as far as the shape asks: groups of tp cards; tp 1 asks for none.
static int worst_of(const search *s, uint64_t cards, int worst_pair) {
    if (s->want < 2 || s->tp == 1) return 0;
    return s->tp == s->want ? worst_pair : place_group_worst(s->p, cards, s->tp, NULL);
}

static void offer_set(search *s, uint64_t cards) {
    int worst = INT32_MAX;
    int64_t sum = 0;
    for (uint64_t a = cards; a; a &= a - 1)
        for (uint64_t b = a & (a - 1); b; b &= b - 1) {
            int gbs = s->p->gbs[__builtin_ctzll(a)][__builtin_ctzll(b)];
            sum += gbs;
            if (gbs < worst) worst = gbs;
        }
    offer(s, cards, worst_of(s, cards, worst), sum);
}

// Depth first; `left` are the cards above the last taken one.
static void descend(search *s, uint64_t taken, int count, uint64_t left, int worst, int64_t sum) {
    const hn_place_result *r = s->result;
    if (s->budget <= 0) return;
    if (count == s->want) {
        offer(s, taken, worst_of(s, taken, worst), sum);
        return;
    }
    // Adding cards makes the slowest path no faster. Where all cards are equal before that key (none in
    // use, no CPUs asked for), a set that is worse by now stays worse.
    if (s->tp == s->want && count > 1 && r->choice_count == s->p->request->choices && !s->p->busy &&
        !s->p->request->cpus && worst < r->choices[r->choice_count - 1].score.worst_link)
        return;
    for (; __builtin_popcountll(left) >= s->want - count; left &= left - 1) {
        int card = __builtin_ctzll(left), slowest = worst;
        int64_t more = sum;
        for (uint64_t rest = taken; rest; rest &= rest - 1) {
            int gbs = s->p->gbs[card][__builtin_ctzll(rest)];
            more += gbs;
            if (gbs < slowest) slowest = gbs;
        }
        descend(s, taken | UINT64_C(1) << card, count + 1, left & (left - 1), slowest, more);
    }
}

// From every card: add the card with the best slowest path (then sum, node, number) until full, then
// swap single cards while that helps.
static void greedy(search *s) {
    const place_problem *p = s->p;
    for (uint64_t first = p->usable; first; first &= first - 1) {
        uint64_t set = first & -first;
        while (__builtin_popcountll(set) < s->want) {
            int best = -1, best_worst = -1, best_same = 0;
            int64_t best_sum = -1;
            for (uint64_t rest = p->usable & ~set; rest; rest &= rest - 1) {
                int card = __builtin_ctzll(rest), worst = INT32_MAX, same = 0;
                int64_t sum = 0;
                for (uint64_t in = set; in; in &= in - 1) {
                    int other = __builtin_ctzll(in);
                    sum += p->gbs[card][other];
                    same += p->node[card] == p->node[other];
                    if (p->gbs[card][other] < worst) worst = p->gbs[card][other];
                }
                bool better = worst != best_worst ? worst > best_worst
                              : sum != best_sum   ? sum > best_sum
                                                  : same > best_same;
                if (best < 0 || better) best = card, best_worst = worst, best_sum = sum, best_same = same;
            }
            set |= UINT64_C(1) << best;
        }
        offer_set(s, set);
    }
    if (!s->result->choice_count) return;
    for (bool better = true; better && s->budget > 0;) {
        uint64_t best = s->result->choices[0].cards;
        for (uint64_t out = best; out; out &= out - 1)
            for (uint64_t in = p->usable & ~best; in; in &= in - 1)
                offer_set(s, (best & ~(out & -out)) | (in & -in));
        better = s->result->choices[0].cards != best;
    }
}

// ---- the problem ------------------------------------------------------------------------------

static void make_levels(place_problem *p) {
    for (int a = 0; a < p->count; a++) {
        for (int b = a + 1; b < p->count; b++) {
            int gbs = p->gbs[a][b], at = 0;
            while (at < p->level_count && p->levels[at] > gbs) at++;
            if (at < p->level_count && p->levels[at] == gbs) continue;
            if (p->level_count == (int)HN_COUNT_OF(p->levels)) continue; // see round_measured
            for (int i = p->level_count++; i > at; i--) p->levels[i] = p->levels[i - 1];
            p->levels[at] = gbs;
        }
    }
    for (int l = 0; l < p->level_count; l++)
        for (int a = 0; a < p->count; a++)
            for (int b = 0; b < p->count; b++)
                if (a != b && p->gbs[a][b] >= p->levels[l]) p->at_least[l][a] |= UINT64_C(1) << b;
}

// Measured figures differ in every digit. Two of them within 3 % are one class of path: kept as two
// significant digits, which also bounds the number of levels.
static int round_measured(double gbs) {
    int value = (int)(gbs * 100 + 0.5), unit = 1;
    while (value / unit >= 32) unit *= 2;
    return (value + unit / 2) / unit * unit;
}

bool place_nic_usable(const hn_place_machine *machine, int nic) {
    int known = 0, near = 0, device = hn_place_nic_device(machine, nic);
    for (int g = 0; g < (int)machine->gpus.count; g++) {
        int rank = hn_place_link_rank(hn_place_link_between(machine, g, device));
        known += rank < 7;
        near += rank < 6;
    }
    return near || !known;
}

static void read_nics(place_problem *p) {
    const hn_place_machine *m = p->machine;
    bool any = false;
    for (int k = 0; k < (int)m->nics.count; k++) any |= place_nic_usable(m, k);
    p->nic_words = ((int)m->nics.count + 63) / 64;
    for (int g = 0; g < p->count; g++) {
        p->nic_rank[g] = PLACE_RANKS;
        for (int k = 0; k < (int)m->nics.count; k++) {
            // Adapters that are far from every card serve storage or management, unless there is no other.
            if (any && !place_nic_usable(m, k)) continue;
            int rank = hn_place_link_rank(hn_place_link_between(m, g, hn_place_nic_device(m, k)));
            if (rank < p->nic_rank[g]) memset(p->nic_at[g], 0, sizeof p->nic_at[g]);
            if (rank < p->nic_rank[g]) p->nic_rank[g] = rank;
            if (rank == p->nic_rank[g] && rank < PLACE_RANKS)
                p->nic_at[g][k / 64] |= UINT64_C(1) << (k % 64);
            for (int r = rank; r < PLACE_RANKS; r++)
                p->nic_near[r][g][k / 64] |= UINT64_C(1) << (k % 64);
        }
    }
}

static void read_cpu_groups(place_problem *p) {
    const hn_place_machine *m = p->machine;
    int groups = 0;
    for (int g = 0; g < p->count; g++) {
        p->cpu_group[g] = -1;
        if (!m->gpus.data[g].cpus_known) continue;
        hn_place_cpuset cpus = m->gpus.data[g].cpus;
        if (p->request->allowed_known) hn_place_cpuset_and(&cpus, &p->request->allowed);
        int at = 0;
        while (at < groups && !hn_place_cpuset_equal(&p->group_cpus[at], &cpus)) at++;
        if (at == groups) {
            for (int i = 0; i < groups; i++)
                if (hn_place_cpuset_meet(&p->group_cpus[i], &cpus)) p->groups_meet = true;
            p->group_size[groups] = hn_place_cpuset_count(&cpus);
            p->group_cpus[groups++] = cpus;
        }
        p->cpu_group[g] = at;
    }
}

static void read_cards(place_problem *p) {
    const hn_place_machine *m = p->machine;
    const hn_place_request *q = p->request;
    int seen[NODE_UNKNOWN], nodes = 0;
    for (int g = 0; g < p->count; g++) {
        const hn_place_gpu *gpu = &m->gpus.data[g];
        uint64_t bit = UINT64_C(1) << g;
        int at = 0;
        while (at < nodes && seen[at] != gpu->numa) at++;
        if (gpu->numa >= 0 && at == nodes && nodes < NODE_UNKNOWN) seen[nodes++] = gpu->numa;
        p->node[g] = gpu->numa < 0 || at >= nodes ? NODE_UNKNOWN : at;
        if (gpu->busy == 1 || (q->busy & bit)) p->busy |= bit;
        bool fits = (!q->only || (q->only & bit)) && (q->share_busy || !(p->busy & bit)) &&
                    (q->mig ? gpu->mig == 1 : gpu->mig != 1);
        int64_t used = gpu->memory_used_bytes > 0 ? gpu->memory_used_bytes : 0;
        if (gpu->memory_bytes >= 0 && gpu->memory_bytes - used < q->memory_bytes) fits = false;
        if (fits) p->usable |= bit;
    }
    p->busy &= p->usable;
    for (int a = 0; a < p->count; a++)
        for (int b = 0; b < p->count; b++) {
            if (a == b) continue;
            double gbs = hn_place_link_gbs(m, a, b);
            p->gbs[a][b] = m->measured_gbs ? round_measured(gbs) : (int)(gbs * 100 + 0.5);
            if ((p->usable >> a & 1) && (p->usable >> b & 1)) {
                p->degree[a] += p->gbs[a][b];
                if (a < b) p->usable_sum += p->gbs[a][b];
            }
        }
}

static hn_status check_request(hone_error *err, const hn_place_machine *m, hn_place_request *q) {
    if (q->cards < 1 || q->cards > HN_PLACE_GPUS_MAX)
        HN_FAIL(err, HONE_ERR_USAGE, "a job takes 1 to %d cards of one machine, not %d", HN_PLACE_GPUS_MAX,
                q->cards);
    if (q->tp || q->pp || q->dp) {
        if (!q->tp) q->tp = 1;
        if (!q->pp) q->pp = 1;
        if (!q->dp && q->tp > 0 && q->pp > 0 && q->cards % (q->tp * q->pp) == 0)
            q->dp = q->cards / (q->tp * q->pp);
        if (q->tp < 1 || q->pp < 1 || q->dp < 1 || (int64_t)q->tp * q->pp * q->dp != q->cards)
            HN_FAIL(err, HONE_ERR_USAGE, "the shape %d x %d%s%.0d (tensor, pipeline%s) is not %d card%s", q->tp, q->pp,
                    q->dp ? " x " : "", q->dp, q->dp ? ", data" : "", q->cards, q->cards == 1 ? "" : "s");
    }
    if (q->mig && q->cards != 1)
        HN_FAIL(err, HONE_ERR_USAGE, "MIG instances have no peer-to-peer: a job takes one, not %d", q->cards);
    if (q->choices < 1) q->choices = 1;
    if (q->choices > HN_PLACE_CHOICES_MAX) q->choices = HN_PLACE_CHOICES_MAX;
    if (q->nics > (int)m->nics.count)
        HN_FAIL(err, HONE_ERR_CHECK, "the job needs %d network adapters and the machine shows %zu", q->nics,
                m->nics.count);
    return HONE_OK;
}

static hn_status say_short(hone_error *err, const place_problem *p) {
    int busy = 0, mig = 0, memory = 0, left_out = 0, unknown = 0;
    for (int g = 0; g < p->count; g++) {
        const hn_place_gpu *gpu = &p->machine->gpus.data[g];
        int64_t used = gpu->memory_used_bytes > 0 ? gpu->memory_used_bytes : 0;
        busy += gpu->busy == 1 || (p->request->busy >> g & 1);
        mig += (gpu->mig == 1) != p->request->mig;
        unknown += p->request->mig && gpu->mig < 0;
        left_out += p->request->only && !(p->request->only >> g & 1);
        memory += gpu->memory_bytes >= 0 && gpu->memory_bytes - used < p->request->memory_bytes;
    }
    HN_FAIL(err, HONE_ERR_CHECK,
            "the job needs %d card%s and %d of %d can be taken (%d in use, %d %s MIG mode, %d with too "
            "little memory, %d not among those allowed)%s",
            p->request->cards, p->request->cards == 1 ? "" : "s", __builtin_popcountll(p->usable), p->count,
            busy, mig, p->request->mig ? "not in" : "in", memory, left_out,
            unknown ? "; the source does not tell which cards are in MIG mode" : "");
}

static hn_status run_search(hone_error *err, place_problem *p, hn_place_result *result) {
    search s = {.p = p, .result = result, .want = p->request->cards};
    s.tp = p->request->tp ? p->request->tp : s.want;
    s.budget = p->request->budget > 0 ? p->request->budget : BUDGET_DEFAULT;
    if (__builtin_popcountll(p->usable) < s.want) return say_short(err, p);
    if (p->count > 16) greedy(&s);
    descend(&s, 0, 0, p->usable, INT32_MAX, 0);
    result->exact = s.budget > 0;
    return place_detail(err, p, result);
}

hn_status hn_place_search(hone_error *err, const hn_place_machine *machine,
                          const hn_place_request *request, hn_place_result *out_result) {
    hn_place_request q = *request;
    HN_TRY(check_request(err, machine, &q));
    place_problem *p = hn_calloc(1, sizeof *p);
    hn_place_result *result = hn_calloc(1, sizeof *result);
    if (p) p->ends = hn_malloc(sizeof *p->ends << PLACE_RING_EXACT);
    hone_status status = HONE_OK;
    if (!p || !result || !p->ends) {
        status = HN_SET(err, HONE_ERR_NOMEM, "out of memory (placement)");
    } else {
        p->machine = machine;
        p->request = &q;
        p->count = (int)machine->gpus.count;
        read_cards(p);
        make_levels(p);
        read_nics(p);
        read_cpu_groups(p);
        status = run_search(err, p, result);
    }
    if (p) hn_free(p->ends);
    hn_free(p);
    if (status == HONE_OK) *out_result = *result;
    else if (result) hn_place_result_free(result);
    hn_free(result);
    return status;
}

void hn_place_result_free(hn_place_result *result) {
    hn_vec_free(&result->hints);
    hn_vec_free(&result->notes);
    hn_arena_free(&result->arena);
    *result = (hn_place_result){.choice_count = 0};
}
