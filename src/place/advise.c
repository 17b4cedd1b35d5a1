// SPDX-License-Identifier: Apache-2.0
// What a reader of a topology should do about it. Each rule is one function and a row of the table at
// the end; a rule speaks only of what the model knows.
#include "place/machine.h"

#define RANK_NODE 5
#define RANK_SYS  6

typedef struct names {
    int devices[HN_PLACE_DEVICES_MAX];
    int count;
} names;

static const char *list(hn_place_machine *m, const names *of) {
    return hn_place_device_list(m, of->devices, of->count);
}

static void add(names *to, int device) { to->devices[to->count++] = device; }
static int gpu_count(const hn_place_machine *m) { return (int)m->gpus.count; }

static int link_kind(const hn_place_machine *m, int a, int b) {
    return hn_place_link_between(m, a, b).kind;
}

// ---- NVLink -----------------------------------------------------------------------------------

static void advise_nvlink_class(hn_place_machine *m) {
    if (!hn_place_machine_nvswitch(m)) return;
    int links = hn_place_gpu_nvlinks(m, 0);
    const char *class = links == 8    ? "the cut-down class of A800 and H800 (A100 has 12, H100 and H200 18)"
                        : links == 12 ? "the class of A100 (A800 and H800 have 8)"
                        : links == 18 ? "the class of H100, H200 and newer (H800 has 8)"
                                      : "as the matrix shows";
    hn_place_machine_advise(
        m,
        "every pair of cards%s shows NV%d: %d links x %.0f GB/s both ways together = %.0f GB/s a card, %s; "
        "a large all-reduce should reach about %.0f GB/s of bus bandwidth",
        m->complete ? "" : " whose cell is known", links, links, 2 * m->link_gbs, 2 * links * m->link_gbs, class,
        hn_place_nvlink_busbw_gbs(m, links));
    int n = gpu_count(m);
    if (n != 2 && n != 4 && n != 8 && n != 16)
        hn_place_machine_advise(m,
                                "%d cards of a switched NVLink board are visible: the others are hidden or "
                                "failed, and the indices may be a container's own",
                                n);
}

static void advise_islands(hn_place_machine *m) {
    int n = gpu_count(m), island[HN_PLACE_GPUS_MAX], islands = 0, linked = 0;
    for (int a = 0; a < n; a++) island[a] = -1;
    for (int a = 0; a < n; a++) {
        if (island[a] >= 0) continue;
        int stack[HN_PLACE_GPUS_MAX], depth = 0, size = 0;
        stack[depth++] = a;
        island[a] = islands;
        while (depth) {
            int at = stack[--depth];
            size++;
            for (int b = 0; b < n; b++) {
                if (island[b] >= 0 || link_kind(m, at, b) != HN_LINK_NVLINK) continue;
                island[b] = islands;
                stack[depth++] = b;
            }
        }
        linked += size > 1;
        islands++;
    }
    if (!linked || islands < 2) return;
    hn_str text = {0};
    for (int i = 0; i < islands; i++) {
        const char *comma = "";
        hn_str_append(&text, i ? " {" : "{");
        for (int a = 0; a < n; a++) {
            if (island[a] != i) continue;
            hn_str_printf(&text, "%s%d", comma, m->gpus.data[a].index);
            comma = ",";
        }
        hn_str_append(&text, "}");
    }
    hn_place_machine_advise(m,
                            "NVLink makes islands, no full mesh: %s; a job that fits into one island "
                            "belongs there, and one that does not is bound by PCIe",
                            hn_str_get(&text));
    hn_str_free(&text);
}

// A bridge that is seated on some of its contacts, or a link that is down: a count below its like.
// Meshes of one to three links a pair (V100) differ by design.
static void advise_half_seated(hn_place_machine *m) {
    int n = gpu_count(m), most = 0;
    for (int a = 0; a < n; a++)
        for (int b = a + 1; b < n; b++) {
            hn_place_link link = hn_place_link_between(m, a, b);
            if (link.kind == HN_LINK_NVLINK && link.detail > most) most = link.detail;
        }
    for (int a = 0; a < n; a++) {
        const hn_place_gpu *gpu = &m->gpus.data[a];
        if (gpu->nvlinks_active >= 0 && gpu->nvlinks_total > gpu->nvlinks_active &&
            gpu->nvlinks_active > 0)
            hn_place_machine_advise(m,
                                    "GPU%d: %d of %d NVLinks are active: reseat the bridge or look at "
                                    "'nvidia-smi nvlink -s' and the fabric manager",
                                    gpu->index, gpu->nvlinks_active, gpu->nvlinks_total);
        for (int b = a + 1; b < n && most >= 4; b++) {
            hn_place_link link = hn_place_link_between(m, a, b);
            if (link.kind == HN_LINK_NVLINK && link.detail < most)
                hn_place_machine_advise(
                    m,
                    "GPU%d-GPU%d have %d NVLinks where others have %d: a half-seated bridge or links "
                    "that are down ('nvidia-smi nvlink -s' tells which)",
                    gpu->index, m->gpus.data[b].index, link.detail, most);
        }
    }
}

static void advise_link_across_nodes(hn_place_machine *m) {
    if (hn_place_machine_nvswitch(m)) return;
    for (int a = 0; a < gpu_count(m); a++) {
        for (int b = a + 1; b < gpu_count(m); b++) {
            const hn_place_gpu *x = &m->gpus.data[a], *y = &m->gpus.data[b];
            if (link_kind(m, a, b) != HN_LINK_NVLINK || x->numa < 0 || y->numa < 0 ||
                x->numa == y->numa || hn_place_gpu_nvlinks(m, a) > hn_place_link_between(m, a, b).detail)
                continue;
            hn_place_machine_advise(m,
                                    "GPU%d-GPU%d are joined by NVLink but sit on NUMA nodes %d and %d: near "
                                    "for each other, not for one CPU set; bind CPUs card by card",
                                    x->index, y->index, x->numa, y->numa);
        }
    }
}

// ---- NICs -------------------------------------------------------------------------------------

static int best_nic_rank(const hn_place_machine *m, int gpu, bool *out_known) {
    int best = RANK_SYS + 1;
    *out_known = true;
    for (int k = 0; k < (int)m->nics.count; k++) {
        int rank = hn_place_link_rank(hn_place_link_between(m, gpu, hn_place_nic_device(m, k)));
        if (rank > RANK_SYS) *out_known = false;
        if (rank < best) best = rank;
    }
    return best;
}

static void advise_far_cards(hn_place_machine *m) {
    names node = {.count = 0}, far = {.count = 0};
    bool known;
    if (!m->nics.count) return;
    for (int g = 0; g < gpu_count(m); g++) {
        int rank = best_nic_rank(m, g, &known);
        if (rank == RANK_SYS && known) add(&far, g);
        if (rank == RANK_NODE) add(&node, g);
    }
    if (far.count == gpu_count(m))
        hn_place_machine_advise(m, "no card is near a NIC: all of them reach every NIC across the socket link "
                                   "only (SYS), so jobs over several hosts are bound by it");
    else if (far.count)
        hn_place_machine_advise(m,
                                "%s reach every NIC across the socket link only (SYS): traffic to other "
                                "hosts takes the slowest path; prefer other cards for jobs over several hosts",
                                list(m, &far));
    if (node.count)
        hn_place_machine_advise(m,
                                "%s have no NIC nearer than NODE: no NIC shares their PCIe switch, so "
                                "GPUDirect goes through the CPU's root complex",
                                list(m, &node));
}

static void advise_far_nics(hn_place_machine *m) {
    names far = {.count = 0}, open = {.count = 0}, old = {.count = 0};
    bool newer = false;
    for (int k = 0; k < (int)m->nics.count; k++) {
        int near = 0, known = 0, device = hn_place_nic_device(m, k);
        for (int g = 0; g < gpu_count(m); g++) {
            int rank = hn_place_link_rank(hn_place_link_between(m, g, device));
            known += rank <= RANK_SYS;
            near += rank < RANK_SYS;
        }
        if (known && !near) add(known == gpu_count(m) ? &far : &open, device);
        const char *name = m->nics.data[k].name;
        if (name && strncmp(name, "mlx4_", 5) == 0) add(&old, device);
        newer |= name && strncmp(name, "mlx5_", 5) == 0;
    }
    if (far.count && far.count < (int)m->nics.count)
        hn_place_machine_advise(m,
                                "%s %s SYS from every card: most likely storage or management; keep NCCL "
                                "off with NCCL_IB_HCA",
                                list(m, &far), far.count == 1 ? "is" : "are");
    if (open.count)
        hn_place_machine_advise(m,
                                "%s %s SYS from every card whose row is there: near to a card whose row is "
                                "missing, or storage or management",
                                list(m, &open), open.count == 1 ? "is" : "are");
    if (old.count && newer)
        hn_place_machine_advise(m,
                                "%s %s of an older generation than the mlx5 adapters: most likely Ethernet "
                                "or management; keep NCCL off with NCCL_IB_HCA=mlx5",
                                list(m, &old), old.count == 1 ? "is" : "are");
}

// Four and more adapters on one switch with each other: virtual functions of one port.
static void advise_virtual_functions(hn_place_machine *m) {
    for (int s = 0; s < (int)m->switches.count; s++) {
        names on = {.count = 0}, cards = {.count = 0};
        for (int k = 0; k < (int)m->nics.count; k++)
            if (m->nics.data[k].switch_index == s) add(&on, hn_place_nic_device(m, k));
        for (int g = 0; g < gpu_count(m); g++)
            if (m->gpus.data[g].switch_index == s) add(&cards, g);
        if (on.count < 4 || !cards.count) continue;
        hn_place_machine_advise(m,
                                "%s share one PCIe switch with %s: they look like virtual functions of one "
                                "port; count them as one adapter",
                                list(m, &on), list(m, &cards));
    }
}

// ---- sockets ----------------------------------------------------------------------------------

static void advise_starving_node(hn_place_machine *m) {
    int cards[64] = {0}, nics[64] = {0}, nodes = 0;
    for (int g = 0; g < gpu_count(m); g++) {
        int node = m->gpus.data[g].numa;
        if (node < 0 || node >= 64) return;
        cards[node]++;
        if (node >= nodes) nodes = node + 1;
    }
    for (int k = 0; k < (int)m->nics.count; k++)
        if (m->nics.data[k].numa >= 0 && m->nics.data[k].numa < 64) nics[m->nics.data[k].numa]++;
    int with_nic = 0, most = 0, least = HN_PLACE_GPUS_MAX;
    for (int i = 0; i < nodes; i++) {
        with_nic += nics[i] > 0 && cards[i] > 0;
        if (cards[i] > most) most = cards[i];
        if (cards[i] && cards[i] < least) least = cards[i];
    }
    for (int i = 0; i < nodes && with_nic; i++)
        if (cards[i] && !nics[i])
            hn_place_machine_advise(m,
                                    "NUMA node %d starves: it has %d card%s and no NIC of its own, all "
                                    "NICs that are near a card are on other nodes",
                                    i, cards[i], cards[i] == 1 ? "" : "s");
    if (most > least)
        hn_place_machine_advise(m,
                                "the cards are spread unevenly over the NUMA nodes (%d at most, %d at least): "
                                "jobs that need CPUs near their cards fill the full node first",
                                most, least);
}

static void advise_ties(hn_place_machine *m) {
    int n = gpu_count(m), same_node = 0;
    if (n < 3) return;
    for (int a = 0; a < n; a++)
        for (int b = a + 1; b < n; b++) {
            if (hn_place_link_rank(hn_place_link_between(m, a, b)) != RANK_SYS) return;
            same_node += m->gpus.data[a].numa >= 0 && m->gpus.data[a].numa == m->gpus.data[b].numa;
        }
    if (same_node)
        hn_place_machine_advise(m, "every pair of cards is SYS, even those on one NUMA node: the matrix "
                                   "cannot rank them, so sets are chosen by NUMA node");
}

static void advise_affinity(hn_place_machine *m) {
    int n = gpu_count(m), narrow = 0;
    bool alike = true, one_root = true;
    for (int g = 0; g < n; g++) {
        const hn_place_gpu *gpu = &m->gpus.data[g];
        if (!gpu->cpus_known) continue;
        narrow += hn_place_cpuset_count(&gpu->cpus) == 1;
        alike &= m->gpus.data[0].cpus_known && hn_place_cpuset_equal(&gpu->cpus, &m->gpus.data[0].cpus);
    }
    for (int a = 0; a < n; a++)
        for (int b = a + 1; b < n; b++) {
            int rank = hn_place_link_rank(hn_place_link_between(m, a, b));
            one_root &= rank > 1 && rank < RANK_NODE;
        }
    if (narrow)
        hn_place_machine_advise(m, "a CPU affinity of a single CPU is the cpuset of the job that ran "
                                   "nvidia-smi, not what is local to the card: run it outside the job");
    else if (alike && !one_root && n > 2 && m->gpus.data[0].cpus_known && m->gpus.data[0].numa < 0)
        hn_place_machine_advise(m, "all cards show the same CPUs and no NUMA node: either all hang on one "
                                   "socket, or a cpuset hides the other");
}

// ---- the rest ---------------------------------------------------------------------------------

static void advise_mig(hn_place_machine *m) {
    names on = {.count = 0};
    for (int g = 0; g < gpu_count(m); g++)
        if (m->gpus.data[g].mig == 1) add(&on, g);
    if (on.count)
        hn_place_machine_advise(m,
                                "%s %s in MIG mode: the matrix shows the whole card; place an instance by its "
                                "parent card and count on no NVLink and no peer-to-peer for it",
                                list(m, &on), on.count == 1 ? "is" : "are");
}

static void advise_memory_nodes(hn_place_machine *m) {
    for (int g = 0; g < gpu_count(m); g++) {
        if (m->gpus.data[g].memory_numa < 0) continue;
        hn_place_machine_advise(m, "the cards' memory appears as NUMA nodes without CPUs (GPU NUMA ID): bind "
                                   "CPUs and memory to the processor's node only");
        return;
    }
}

static void advise_foreign(hn_place_machine *m) {
    for (size_t i = 0; i < m->foreign.count; i++)
        hn_place_machine_advise(m,
                                "link code '%s' is none that hone knows: its speed is unknown and such paths "
                                "rank last",
                                m->foreign.data[i]);
}

static void advise_guest(hn_place_machine *m) {
    if (m->virtual_machine)
        hn_place_machine_advise(m, "this is a virtual machine: PCIe paths are those that the guest is shown "
                                   "(PHB often stands for PIX); give NCCL the host's topology file if the "
                                   "provider has one (NCCL_TOPO_FILE)");
}

static void advise_p2p(hn_place_machine *m) {
    if (gpu_count(m) < 2) return;
    hn_place_machine_advise(m, "a healthy matrix is no proof that peer-to-peer works: with ACS or an IOMMU on, "
                               "PIX and PXB copies can hang or return wrong data; 'hone doctor --p2p' on the "
                               "machine proves it pair by pair");
}

void hn_place_machine_add_advice(hn_place_machine *machine) {
    static void (*const k_rules[])(hn_place_machine *) = {
        advise_nvlink_class, advise_islands,      advise_half_seated,       advise_link_across_nodes,
        advise_far_cards,    advise_far_nics,     advise_virtual_functions, advise_starving_node,
        advise_ties,         advise_affinity,     advise_mig,               advise_memory_nodes,
        advise_foreign,      advise_guest,        advise_p2p,
    };
    for (size_t i = 0; i < HN_COUNT_OF(k_rules); i++) k_rules[i](machine);
}
