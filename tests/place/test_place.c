// SPDX-License-Identifier: Apache-2.0
// TEST-TIMEOUT 180
// TEST-SERIAL: CPU time is bounded.
// Placement against plain exhaustive search that is written here on its own: every subset, every ring as
// a permutation, every cut into groups. On the fixtures and on random machines.
#include "support/test.h"
#include <dirent.h>
#include "place/place.h"
#include "support/slow.h"

// ---- the plain search -------------------------------------------------------------------------

static int gbs_of(const hn_place_machine *m, int a, int b) {
    return (int)(hn_place_link_gbs(m, a, b) * 100 + 0.5);
}

// Best slowest edge over all orders of cards[at..count).
static int plain_ring(const hn_place_machine *m, int *cards, int at, int count, int worst, int best) {
    if (worst <= best) return best;
    if (at == count) {
        int last = gbs_of(m, cards[count - 1], cards[0]);
        worst = last < worst ? last : worst;
        return worst > best ? worst : best;
    }
    for (int i = at; i < count; i++) {
        int swap = cards[at];
        cards[at] = cards[i], cards[i] = swap;
        int gbs = gbs_of(m, cards[at - 1], cards[at]);
        best = plain_ring(m, cards, at + 1, count, gbs < worst ? gbs : worst, best);
        swap = cards[at];
        cards[at] = cards[i], cards[i] = swap;
    }
    return best;
}

// Best slowest pair over all cuts into groups: assign card by card to a group that has room.
static int plain_cut(const hn_place_machine *m, const int *cards, int count, int size, int at, int *group,
                     int worst, int best) {
    if (worst <= best) return best;
    if (at == count) return worst;
    for (int g = 0; g < count / size; g++) {
        int in = 0, slowest = worst;
        for (int i = 0; i < at; i++) {
            if (group[i] != g) continue;
            in++;
            int gbs = gbs_of(m, cards[i], cards[at]);
            if (gbs < slowest) slowest = gbs;
        }
        if (in < size) {
            group[at] = g;
            best = plain_cut(m, cards, count, size, at + 1, group, slowest, best);
        }
        if (!in) break; // an empty group is as good as the next empty one
    }
    return best;
}

static bool plain_nic_usable(const hn_place_machine *m, int nic) {
    bool known = false;
    for (int g = 0; g < (int)m->gpus.count; g++) {
        int rank = hn_place_link_rank(hn_place_link_between(m, g, hn_place_nic_device(m, nic)));
        if (rank < 6) return true;
        known |= rank < 7;
    }
    return !known;
}

static void plain_nics(const hn_place_machine *m, const hn_place_request *q, const int *cards,
                       hn_place_score *s) {
    int ranks[HN_PLACE_DEVICES_MAX], count = 0, spread = 0;
    bool any = false;
    for (int k = 0; k < (int)m->nics.count; k++) any |= plain_nic_usable(m, k);
    for (int k = 0; k < (int)m->nics.count; k++) {
        if (any && !plain_nic_usable(m, k)) continue;
        int best = 7;
        for (int i = 0; i < q->cards; i++) {
            int rank = hn_place_link_rank(hn_place_link_between(m, cards[i], hn_place_nic_device(m, k)));
            if (rank < best) best = rank;
        }
        int at = count++;
        for (; at > 0 && ranks[at - 1] > best; at--) ranks[at] = ranks[at - 1];
        ranks[at] = best;
    }
    for (int i = 0; i < q->cards; i++) {
        int best = 7;
        for (int k = 0; k < (int)m->nics.count; k++) {
            if (any && !plain_nic_usable(m, k)) continue;
            int rank = hn_place_link_rank(hn_place_link_between(m, cards[i], hn_place_nic_device(m, k)));
            if (rank < best) best = rank;
        }
        spread += best;
    }
    if (q->nics) {
        for (int i = 0; i < q->nics; i++) s->nic_distance += i < count ? ranks[i] : 7;
        s->nic_spread = spread;
    } else {
        s->nic_waste = spread;
    }
}

static hn_place_choice plain_score(const hn_place_machine *m, const hn_place_request *q, uint64_t set,
                                   uint64_t usable) {
    hn_place_choice c = {.cards = set};
    hn_place_score *s = &c.score;
    int cards[64], order[64], group[64], count = 0, nodes[64], node_count = 0, worst = INT32_MAX;
    hn_place_cpuset cpus = {{0}};
    bool all_known = true;
    for (int g = 0; g < (int)m->gpus.count; g++)
        if (set >> g & 1) cards[count++] = g;
    for (int i = 0; i < count; i++) {
        int at = 0;
        while (at < node_count && nodes[at] != m->gpus.data[cards[i]].numa) at++;
        if (at == node_count) nodes[node_count++] = m->gpus.data[cards[i]].numa;
        all_known &= m->gpus.data[cards[i]].cpus_known;
        hn_place_cpuset_or(&cpus, &m->gpus.data[cards[i]].cpus);
        s->busy += q->busy >> cards[i] & 1;
        for (int k = i + 1; k < count; k++) {
            int gbs = gbs_of(m, cards[i], cards[k]);
            s->pair_sum += gbs;
            worst = gbs < worst ? gbs : worst;
        }
    }
    for (int a = 0; a < (int)m->gpus.count; a++)
        for (int b = a + 1; b < (int)m->gpus.count; b++)
            if ((usable & ~set) >> a & 1 && (usable & ~set) >> b & 1) s->left_sum += gbs_of(m, a, b);
    s->nodes = node_count;
    if (q->allowed_known) hn_place_cpuset_and(&cpus, &q->allowed);
    if (q->cpus && all_known && hn_place_cpuset_count(&cpus) < q->cpus)
        s->cpu_shortage = q->cpus - hn_place_cpuset_count(&cpus);
    int tp = q->tp ? q->tp : count;
    if (count > 1 && tp > 1)
        s->worst_link = tp == count ? worst : plain_cut(m, cards, count, tp, 0, group, INT32_MAX, -1);
    memcpy(order, cards, sizeof order);
    if (count > 1) s->ring = plain_ring(m, order, 1, count, INT32_MAX, -1);
    plain_nics(m, q, cards, s);
    return c;
}

static hn_place_choice plain_search(const hn_place_machine *m, const hn_place_request *q) {
    uint64_t usable = 0;
    hn_place_choice best = {.cards = 0};
    for (int g = 0; g < (int)m->gpus.count; g++)
        if (m->gpus.data[g].mig != 1 && (q->share_busy || !(q->busy >> g & 1))) usable |= UINT64_C(1) << g;
    for (uint64_t set = 1; set < UINT64_C(1) << m->gpus.count; set++) {
        if (__builtin_popcountll(set) != q->cards || (set & ~usable)) continue;
        hn_place_choice c = plain_score(m, q, set, usable);
        if (!best.cards || hn_place_choice_compare(q, &c, &best) < 0) best = c;
    }
    return best;
}

static void same_as_plain(const char *name, const hn_place_machine *m, const hn_place_request *q) {
    hone_error err = {0};
    hn_place_result r = {.choice_count = 0};
    hn_place_choice want = plain_search(m, q);
    hone_status status = hn_place_search(&err, m, q, &r);
    if (!want.cards) {
        assert_int_equal(status, HONE_ERR_CHECK);
        return;
    }
    if (status != HONE_OK) fail_msg("%s, %d cards: %s", name, q->cards, err.text);
    if (!r.exact) fail_msg("%s, %d cards: stopped after %lld sets", name, q->cards, (long long)r.looked_at);
    if (r.choices[0].cards != want.cards || memcmp(&r.choices[0].score, &want.score, sizeof want.score) != 0) {
        char reason[160];
        fail_msg("%s, %d cards, tp %d, %d NICs, %d CPUs, busy %llx: chose %llx, plain search %llx (%s)", name,
                 q->cards, q->tp, q->nics, q->cpus, (unsigned long long)q->busy,
                 (unsigned long long)r.choices[0].cards, (unsigned long long)want.cards,
                 hn_place_choice_reason(q, &want, &r.choices[0], reason, sizeof reason));
    }
    hn_place_result_free(&r);
}

static void all_requests(const char *name, const hn_place_machine *m, int most) {
    for (int cards = 1; cards <= most && cards <= (int)m->gpus.count; cards++) {
        hn_place_request q = {.cards = cards, .choices = 3};
        same_as_plain(name, m, &q);
        q.nics = m->nics.count ? 1 : 0;
        same_as_plain(name, m, &q);
        q.nics = (int)m->nics.count < cards ? (int)m->nics.count : cards;
        q.cpus = 24 * cards;
        same_as_plain(name, m, &q);
        q.busy = 0x92 & ((UINT64_C(1) << m->gpus.count) - 1);
        same_as_plain(name, m, &q);
        q.share_busy = true;
        same_as_plain(name, m, &q);
        if (cards % 2 == 0) {
            hn_place_request shaped = {.cards = cards, .choices = 2, .tp = 2};
            same_as_plain(name, m, &shaped);
            shaped.tp = 1;
            same_as_plain(name, m, &shaped);
        }
    }
}

// ---- machines ---------------------------------------------------------------------------------

static void on_folder(const char *path, int most) {
    DIR *folder = opendir(path);
    int files = 0;
    if (!folder) return;
    for (struct dirent *entry; (entry = readdir(folder));) {
        char full[1024];
        hone_error err = {0};
        hn_place_machine m = {0};
        size_t length = strlen(entry->d_name);
        if (length < 4 || strcmp(entry->d_name + length - 4, ".txt") != 0) continue;
        snprintf(full, sizeof full, "%s/%s", path, entry->d_name);
        if (hn_place_machine_read(&err, full, &m) != HONE_OK) fail_msg("%s: %s", full, err.text);
        all_requests(entry->d_name, &m, most);
        hn_place_machine_free(&m);
        files++;
    }
    closedir(folder);
    assert_true(files >= 5);
}

static void test_fixtures(void **state) {
    (void)state;
    char path[1024];
    snprintf(path, sizeof path, "%s/tests/place/topo", getenv("HONE_SOURCE_DIR"));
    on_folder(path, TEST_SLOW > 1 ? 5 : 8);
}

static uint64_t g_seed;
static unsigned draw(unsigned below) {
    g_seed = g_seed * 6364136223846793005ull + 1442695040888963407ull;
    return (unsigned)(g_seed >> 33) % below;
}

// A machine with any codes at all, some unknown, some asymmetric.
static void random_machine(hn_place_machine *m, int gpus, int nics) {
    hone_error err = {0};
    for (int g = 0; g < gpus; g++) {
        hn_place_gpu gpu = hn_place_gpu_unknown(g);
        if (draw(8)) gpu.numa = (int)draw(4);
        gpu.cpus_known = draw(8) != 0;
        for (int cpu = 0; gpu.cpus_known && cpu < 16; cpu++)
            hn_place_cpuset_add(&gpu.cpus, (gpu.numa < 0 ? 0 : gpu.numa) * 16 + cpu);
        if (!draw(12)) gpu.mig = 1;
        assert_true(hn_vec_push(&m->gpus, gpu));
    }
    for (int n = 0; n < nics; n++) {
        hn_place_nic nic = hn_place_nic_unknown(hn_arena_printf(&m->arena, "NIC%d", n));
        assert_true(hn_vec_push(&m->nics, nic));
    }
    assert_int_equal(hn_place_machine_alloc_matrix(&err, m), HONE_OK);
    int kinds = 2 + (int)draw(6);
    for (int a = 0; a < m->device_count; a++)
        for (int b = a; b < m->device_count; b++) {
            hn_place_link link = {.kind = HN_LINK_SELF};
            if (a != b) link.kind = (uint8_t)(HN_LINK_NVLINK + draw((unsigned)kinds));
            if (a != b && b >= gpus && link.kind == HN_LINK_NVLINK) link.kind = HN_LINK_SYS;
            if (link.kind == HN_LINK_NVLINK) link.detail = (uint8_t)(1 + draw(4));
            if (a != b && !draw(30)) link.kind = HN_LINK_UNKNOWN;
            m->matrix[a * m->device_count + b] = m->matrix[b * m->device_count + a] = link;
        }
}

static void test_random(void **state) {
    (void)state;
    for (int round = 0; round < (TEST_SLOW > 1 ? 20 : 120); round++) {
        hn_place_machine m = {0};
        g_seed = 77u + (unsigned)round;
        random_machine(&m, 2 + (int)draw(6), (int)draw(5));
        char name[32];
        snprintf(name, sizeof name, "random machine %d", round);
        all_requests(name, &m, 8);
        hn_place_machine_free(&m);
    }
}

// Three calls, the fastest counts: the machine is shared.
static double fastest_ms(const hn_place_machine *m, const hn_place_request *q, bool *out_exact) {
    double best = 1e9;
    for (int i = 0; i < 5; i++) {
        hone_error err = {0};
        hn_place_result r = {.choice_count = 0};
        int64_t start = hn_clock_thread_ns();
        if (hn_place_search(&err, m, q, &r) != HONE_OK) fail_msg("%s", err.text);
        double ms = (double)(hn_clock_thread_ns() - start) / 1e6;
        *out_exact = r.exact;
        if (ms < best) best = ms;
        hn_place_result_free(&r);
    }
    return best;
}

static void test_time(void **state) {
    (void)state;
    bool exact;
    double worst8 = 0, worst16 = 0;
    int at16 = 0;
    for (int round = 0; round < 12; round++) {
        hn_place_machine m = {0};
        g_seed = 4000u + (unsigned)round;
        random_machine(&m, 8, 12);
        for (size_t g = 0; g < m.gpus.count; g++) m.gpus.data[g].mig = 0;
        for (int cards = 1; cards <= 8; cards++) {
            hn_place_request q = {.cards = cards, .choices = 4, .nics = 2, .cpus = 8};
            double ms = fastest_ms(&m, &q, &exact);
            assert_true(exact);
            worst8 = ms > worst8 ? ms : worst8;
        }
        hn_place_machine_free(&m);
        random_machine(&m, 16, 36);
        for (size_t g = 0; g < m.gpus.count; g++) m.gpus.data[g].mig = 0;
        for (int cards = 1; cards <= 16; cards++) {
            hn_place_request q = {.cards = cards, .choices = 4, .nics = 4};
            double ms = fastest_ms(&m, &q, &exact);
            if (ms > worst16) at16 = cards;
            worst16 = ms > worst16 ? ms : worst16;
        }
        hn_place_machine_free(&m);
    }
    print_message("slowest: %.3f ms on 8 cards, %.3f ms (a job of %d) on 16 cards with 36 adapters\n", worst8,
                  worst16, at16);
    assert_true(worst8 < 1.0 * 3 * TEST_SLOW);
    assert_true(worst16 < 10.0 * 3 * TEST_SLOW);
}

// A machine with 40 cards in islands of 8: the budget ends the search, the answer is still an island.
static void test_bounded(void **state) {
    (void)state;
    hn_place_machine m = {0};
    hone_error err = {0};
    for (int g = 0; g < 40; g++) {
        hn_place_gpu gpu = hn_place_gpu_unknown(g);
        gpu.numa = g / 8;
        assert_true(hn_vec_push(&m.gpus, gpu));
    }
    assert_int_equal(hn_place_machine_alloc_matrix(&err, &m), HONE_OK);
    for (int a = 0; a < 40; a++)
        for (int b = 0; b < 40; b++)
            m.matrix[a * 40 + b] =
                (hn_place_link){.kind = a == b ? HN_LINK_SELF : a % 5 == b % 5 ? HN_LINK_NVLINK : HN_LINK_SYS,
                                .detail = a % 5 == b % 5 && a != b ? 12 : 0};
    hn_place_request q = {.cards = 8, .choices = 4, .busy = 1};
    hn_place_result r = {.choice_count = 0};
    assert_int_equal(hn_place_search(&err, &m, &q, &r), HONE_OK);
    assert_int_equal(r.choices[0].score.worst_link, 30000);
    assert_int_equal(r.choices[0].cards & 1, 0);
    hn_place_result_free(&r);
    hn_place_machine_free(&m);
}

// ---- what follows from the set ----------------------------------------------------------------

static void read_fixture(const char *name, hn_place_machine *m) {
    char path[1024];
    hone_error err = {0};
    snprintf(path, sizeof path, "%s/tests/place/topo/%s", getenv("HONE_SOURCE_DIR"), name);
    if (hn_place_machine_read(&err, path, m) != HONE_OK) fail_msg("%s", err.text);
}

static const char *hint_of(const hn_place_result *r, const char *name) {
    for (size_t i = 0; i < r->hints.count; i++)
        if (strcmp(r->hints.data[i].name, name) == 0) return r->hints.data[i].value;
    return NULL;
}

static void test_cube_ring(void **state) {
    (void)state;
    hn_place_machine m = {0};
    hone_error err = {0};
    read_fixture("v100-cube-old-names.txt", &m);
    hn_place_request q = {.cards = 8, .choices = 1};
    hn_place_result r = {.choice_count = 0};
    assert_int_equal(hn_place_search(&err, &m, &q, &r), HONE_OK);
    // The ring of double links that the board has.
    assert_string_equal(r.visible, "0,3,2,1,5,6,7,4");
    assert_int_equal(r.choices[0].score.ring, 5000);
    hn_place_result_free(&r);
    hn_place_machine_free(&m);
}

static void test_shares(void **state) {
    (void)state;
    hn_place_machine m = {0};
    hone_error err = {0};
    read_fixture("a800-8g-6nic.txt", &m);
    hn_place_cpuset taken = {{0}};
    // Eight jobs of one card each, one after the other: their CPUs never meet and stay on their socket.
    for (int card = 0; card < 8; card++) {
        hn_place_request q = {.cards = 1, .choices = 1, .only = UINT64_C(1) << card};
        hn_place_result r = {.choice_count = 0};
        assert_int_equal(hn_place_search(&err, &m, &q, &r), HONE_OK);
        assert_true(r.cpus_known);
        assert_int_equal(hn_place_cpuset_count(&r.cpus), 14);
        assert_false(hn_place_cpuset_meet(&taken, &r.cpus));
        hn_place_cpuset outside = r.cpus;
        hn_place_cpuset_remove(&outside, &m.gpus.data[card].cpus);
        assert_true(hn_place_cpuset_empty(&outside));
        hn_place_cpuset_or(&taken, &r.cpus);
        hn_place_result_free(&r);
    }
    hn_place_request q = {.cards = 2, .choices = 1, .nics = 2, .cpus = 40};
    hn_place_result r = {.choice_count = 0};
    assert_int_equal(hn_place_search(&err, &m, &q, &r), HONE_OK);
    assert_int_equal(hn_place_cpuset_count(&r.cpus), 40);
    assert_string_equal(hint_of(&r, "CUDA_DEVICE_ORDER"), "PCI_BUS_ID");
    assert_non_null(hint_of(&r, "NCCL_IB_HCA"));
    hn_place_result_free(&r);
    // More than its share: a card keeps its own, both threads, and gets whole cores of cards left alone.
    q.cpus = 32;
    q.only = 0x5;
    assert_int_equal(hn_place_search(&err, &m, &q, &r), HONE_OK);
    hn_str text = {0};
    for (int i = 0; i < 2; i++) {
        hn_place_cpuset_append(&text, &r.ranks[i].cpus);
        hn_str_append(&text, " ");
    }
    assert_string_equal(hn_str_get(&text), "0-7,56-63 8,14-20,64,70-76 ");
    hn_str_free(&text);
    hn_place_result_free(&r);
    // More than the socket has: all of it, an equal part each.
    q.cpus = 200;
    assert_int_equal(hn_place_search(&err, &m, &q, &r), HONE_OK);
    for (int i = 0; i < 2; i++) assert_int_equal(hn_place_cpuset_count(&r.ranks[i].cpus), 28);
    assert_false(hn_place_cpuset_meet(&r.ranks[0].cpus, &r.ranks[1].cpus));
    hn_place_result_free(&r);
    // An affinity that leaves nothing local: CPUs are left alone and that is said.
    q.cpus = 0;
    q.only = 0xF;
    q.allowed_known = true;
    hn_place_cpuset_add(&q.allowed, 30);
    assert_int_equal(hn_place_search(&err, &m, &q, &r), HONE_OK);
    assert_false(r.cpus_known);
    assert_true(hn_place_cpuset_empty(&r.cpus));
    bool said = false;
    for (size_t i = 0; i < r.notes.count; i++) said |= strstr(r.notes.data[i], "none of the CPUs") != NULL;
    assert_true(said);
    hn_place_result_free(&r);
    hn_place_machine_free(&m);
}

static void test_shape(void **state) {
    (void)state;
    hn_place_machine m = {0};
    hone_error err = {0};
    read_fixture("a100-pcie-pairs-tabs.txt", &m);
    hn_place_request q = {.cards = 8, .choices = 1, .tp = 2, .pp = 2};
    hn_place_result r = {.choice_count = 0};
    assert_int_equal(hn_place_search(&err, &m, &q, &r), HONE_OK);
    assert_int_equal(r.choices[0].score.worst_link, 30000); // every pair on its bridge
    bool seen[2][2][2] = {{{false}}};
    for (int i = 0; i < 8; i++) {
        const hn_place_rank *rank = &r.ranks[i];
        seen[rank->tp][rank->dp][rank->pp] = true;
        assert_int_equal(i, rank->tp + 2 * (rank->dp + 2 * rank->pp));
        if (rank->tp == 0) assert_int_equal(r.ranks[i].gpu / 2, r.ranks[i + 1].gpu / 2);
    }
    for (int i = 0; i < 8; i++) assert_true(seen[i & 1][i >> 1 & 1][i >> 2]);
    hn_place_result_free(&r);
    q.pp = 3;
    assert_int_equal(hn_place_search(&err, &m, &q, &r), HONE_ERR_USAGE);
    hn_place_request many = {.cards = 9, .choices = 1};
    assert_int_equal(hn_place_search(&err, &m, &many, &r), HONE_ERR_CHECK);
    assert_non_null(strstr(err.text, "needs 9 cards and 8 of 8"));
    hn_place_machine_free(&m);
}

// The tree spans all ranks and has one root.
static void test_tree(void **state) {
    (void)state;
    for (int round = 0; round < 30; round++) {
        hn_place_machine m = {0};
        hone_error err = {0};
        g_seed = 900u + (unsigned)round;
        random_machine(&m, 12, 3);
        for (size_t g = 0; g < m.gpus.count; g++) m.gpus.data[g].mig = 0;
        hn_place_request q = {.cards = 1 + (int)draw(12), .choices = 1};
        hn_place_result r = {.choice_count = 0};
        assert_int_equal(hn_place_search(&err, &m, &q, &r), HONE_OK);
        int roots = 0;
        uint64_t ring = 0;
        for (int i = 0; i < r.count; i++) {
            int at = i, steps = 0;
            roots += r.tree_parent[i] < 0;
            while (r.tree_parent[at] >= 0 && steps++ < r.count) at = r.tree_parent[at];
            assert_true(r.tree_parent[at] < 0);
            ring |= UINT64_C(1) << r.ring[i];
        }
        assert_int_equal(roots, 1);
        assert_true(ring == r.choices[0].cards);
        hn_place_result_free(&r);
        hn_place_machine_free(&m);
    }
}

// With an argument: the plain search on the topology texts of a folder (used by the field test).
int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fixtures), cmocka_unit_test(test_random),    cmocka_unit_test(test_time),
        cmocka_unit_test(test_bounded),  cmocka_unit_test(test_cube_ring), cmocka_unit_test(test_shares),
        cmocka_unit_test(test_shape),    cmocka_unit_test(test_tree),
    };
    if (argc > 1) {
        on_folder(argv[1], 8);
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
