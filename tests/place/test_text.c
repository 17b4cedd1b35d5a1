// SPDX-License-Identifier: Apache-2.0
// The nvidia-smi reader against every trap that real pastes have shown: one row a trap.
#include "support/test.h"
#include "place/machine.h"

#define LEGEND                                                                                         \
    "\nLegend:\n\n  X    = Self\n  SYS  = Connection traversing PCIe\n  NV#  = bonded NVLinks\n"

typedef struct trap {
    const char *name, *text;
    int gpus, nics;
    bool complete;
    const char *numa;   // "0,0,1,?" card by card
    const char *cpus;   // "0-3|4-7|?" card by card
    const char *cells;  // rows of the matrix, "?" unknown, rows parted by '/'
    const char *damage; // words that must be in one sentence; NULL: no damage at all
    const char *advice; // words that must be in some advice, or NULL
} trap;

#define TWO_CELLS "X NV8 / NV8 X"

static const trap k_traps[] = {
    {"plain", "        GPU0    GPU1    CPU Affinity    NUMA Affinity\n"
              "GPU0     X      NV8     0-31,64-95      0\n"
              "GPU1    NV8      X      32-63,96-127    1\n" LEGEND,
     2, 0, true, "0,1", "0-31,64-95|32-63,96-127", TWO_CELLS, NULL, "no proof that peer-to-peer"},
    {"tabs with the empty field before the GPU NUMA ID",
     "\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
     "GPU0\t X \tNV8\tPIX\t0-23\t0\t\tN/A\nGPU1\tNV8\t X \tSYS\t24-47\t1\t\tN/A\n"
     "NIC0\tPIX\tSYS\t X \t\t\t\t\n" LEGEND "\nNIC Legend:\n\n  NIC0: mlx5_3\n",
     2, 1, true, "0,1", "0-23|24-47", "X NV8 PIX / NV8 X SYS / PIX SYS X", NULL, NULL},
    {"empty affinity under a cgroup, by position",
     "        GPU0    GPU1    CPU Affinity    NUMA Affinity   GPU NUMA ID\n"
     "GPU0     X      NV8             0               N/A\n"
     "GPU1    NV8      X      56      1               N/A\n",
     2, 0, true, "0,1", "?|56", TWO_CELLS, NULL, "is empty"},
    {"the same, respaced: a value fits two columns",
     "  GPU0 GPU1 CPU Affinity NUMA Affinity GPU NUMA ID\n"
     "GPU0 X NV8 0 N/A\nGPU1 NV8 X 56 1 N/A\n",
     2, 0, false, "?,1", "?|56", TWO_CELLS, "cannot be told apart", NULL},
    {"no affinity at all (Windows)", "\t\x1b[4mGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
                                     "GPU0\t X \t\t\t\tN/A\n",
     1, 0, true, "?", "?", "X", NULL, NULL},
    {"escape before the lead tab", "\x1b[4m\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
                                   "GPU0\t X \tPIX\t0-23,48-71\t0\t\tN/A\nGPU1\tPIX\t X \t0-23,48-71\t0\t\tN/A\n",
     2, 0, true, "0,0", "0-23,48-71|0-23,48-71", "X PIX / PIX X", NULL, NULL},
    {"header without lead tab", "GPU0\tGPU1\tmlx5_0\tCPU Affinity\nGPU0\t X \tNV1\tSYS\t0-15\n"
                                "GPU1\tNV1\t X \tSYS\t0-15\nmlx5_0\tSYS\tSYS\t X \n",
     2, 1, true, "?,?", "0-15|0-15", "X NV1 SYS / NV1 X SYS / SYS SYS X", NULL, NULL},
    {"glued header, a card's own CPU only", "\t    GPU0GPU1mlx5_0\tmlx5_2\tCPU Affinity\n"
                                            "GPU0\t X \tNV1\tPIX\tSOC\t1-1\nGPU1\tNV1\t X \tPIX\tSOC\t1-1\n"
                                            "mlx5_0\tPIX\tPIX\t X \tSOC\nmlx5_2\tSOC\tSOC\tSOC\t X \n",
     2, 2, true, "?,?", "1|1", "X NV1 PIX SOC / NV1 X PIX SOC / PIX PIX X SOC / SOC SOC SOC X",
     "header", "single CPU"},
    {"glued cells", "     GPU0 GPU1 NIC0 NIC1NIC2 CPU Affinity NUMA Affinity\n"
                    "GPU0  X   NV12 PXB  PXBSYS   0-7   3\nGPU1 NV12  X   PXB  PXBSYS   0-7   3\n"
                    "NIC0 PXB  PXB   X   PIXSYS\nNIC1 PXB  PXB  PIX  X SYS\nNIC2 SYS  SYS  SYS  SYSX\n",
     2, 3, true, "3,3", "0-7|0-7",
     "X NV12 PXB PXB SYS / NV12 X PXB PXB SYS / PXB PXB X PIX SYS / PXB PXB PIX X SYS / SYS SYS SYS SYS X",
     "glued", NULL},
    {"affinity glued to the node", "        GPU0    GPU1    CPU Affinity NUMA Affinity\n"
                                   "GPU0     X      NV8     0-31,64-950\nGPU1    NV8      X      32-63,96-1271\n",
     2, 0, true, "0,1", "0-31,64-95|32-63,96-127", TWO_CELLS, "glued together", NULL},
    {"clipped affinity, NIC columns cut away",
     "        GPU0    GPU1  CPU Affinity    NUMA Affinity\nGPU0     X      NV8   -31,64-95       0\n"
     "GPU1    NV8      X    32-63,96-127    1\nNIC0    PIX     SYS\n",
     2, 1, false, "0,1", "?|32-63,96-127", "X NV8 ? / NV8 X ? / PIX SYS ?", "not square", NULL},
    {"affinity that is the end of its twin",
     "        GPU0    GPU1  CPU Affinity    NUMA Affinity\nGPU0     X      NV8   32-63,96-127    1\n"
     "GPU1    NV8      X    2-63,96-127     1\n",
     2, 0, false, "1,1", "32-63,96-127|?", TWO_CELLS, "end of another card's list", NULL},
    {"text cut in a value", "      GPU0  GPU1  GPU2  CPU Affinity\nGPU0   X    NV6   NV6   0-23,48-71\n"
                            "GPU1  NV6    X    NV6   0-23,4\n",
     3, 0, false, "?,?,?", "0-23,48-71|?|?", "X NV6 NV6 / NV6 X NV6 / ? ? ?", "may have lost digits", NULL},
    {"text cut in a cell that could be longer", "      GPU0  GPU1  GPU2  NUMA Affinity\nGPU0   X    NV12  NV12  0\n"
                                               "GPU1  NV12   X    NV1\n",
     3, 0, false, "0,?,?", "?|?|?", "X NV12 NV12 / NV12 X ? / ? ? ?", "last cell may have lost digits", NULL},
    {"right edge clipped inside the header's last word", "      GPU0  GPU1  CPU Affi\nGPU0   X    NV8   0-31\nGPU1  NV8    X    32-63,96\n",
     2, 0, false, "?,?", "0-31|?", TWO_CELLS, "may have lost digits", NULL},
    {"last row's values gone", "      GPU0  GPU1  CPU Affinity  NUMA Affinity\nGPU0   X    NV8   0-31  0\nGPU1  NV8    X\n",
     2, 0, false, "0,?", "0-31|?", TWO_CELLS, "cannot be told apart or are cut off", NULL},
    {"last row cut in a code", "      GPU0  NIC0  NIC1\nGPU0   X    PIX   SYS\nNIC0  PIX    X    SYSN\n",
     1, 2, false, "?", "?", "X PIX SYS / PIX X ? / ? ? ?", "2 of 3 cells", NULL},
    {"values without a column", "      GPU0  GPU1\nGPU0   X    NV8   0-31  0\nGPU1  NV8    X    32-63  1\n",
     2, 0, true, "?,?", "?|?", TWO_CELLS, "no column of the header names", NULL},
    {"row cut in the middle", "      GPU0  GPU1  GPU2\nGPU0   X    PIX   SYS\nGPU1  PIX    X    SYS\nGPU2  SYS\n",
     3, 0, false, "?,?,?", "?|?|?", "X PIX SYS / PIX X SYS / SYS ? ?", "2 of 3 cells|1 of 3 cells", NULL},
    {"a cell lost before the diagonal", "      GPU0  GPU1  GPU2 NUMA Affinity\nGPU0   X    PIX   SYS 0\n"
                                        "GPU1        X   SYS 0\nGPU2  SYS  SYS    X  1\n",
     3, 0, false, "0,0,1", "?|?|?", "X PIX SYS / ? X SYS / SYS SYS X", "2 of 3 cells", NULL},
    {"asymmetric cells", "      GPU0  GPU1\nGPU0   X    NV8\nGPU1  NV4    X\n",
     2, 0, true, "?,?", "?|?", "X NV8 / NV4 X", "but NV4 back", NULL},
    {"range of nodes", "      GPU0  GPU1 CPU Affinity NUMA Affinity\nGPU0   X    NV12 0-14,16-30  0-7\n"
                       "GPU1  NV12   X   16-30,144-158 1\n",
     2, 0, true, "?,1", "0-14,16-30|16-30,144-158", "X NV12 / NV12 X", NULL, "names several nodes"},
    {"cards' memory as nodes", "      GPU0  GPU1 CPU Affinity NUMA Affinity GPU NUMA ID\n"
                               "GPU0   X    NV18 0-71  0,3-9  2\nGPU1  NV18   X   72-143 1,11-17 10\n",
     2, 0, true, "0,1", "0-71|72-143", "X NV18 / NV18 X", NULL, "without CPUs"},
    {"nodes from CPU lists", "      GPU0  GPU1 CPU Affinity\nGPU0   X    SYS  0-11,24-35\nGPU1  SYS    X   12-23,36-47\n",
     2, 0, true, "0,1", "0-11,24-35|12-23,36-47", "X SYS / SYS X", NULL, NULL},
    {"lists with holes settle no node", "      GPU0  GPU1 CPU Affinity\nGPU0   X    SOC  0-0,8-8\nGPU1  SOC    X   80-80,88-88\n",
     2, 0, true, "?,?", "0,8|80,88", "X SOC / SOC X", NULL, NULL},
    {"node N/A", "      GPU0  GPU1 CPU Affinity NUMA Affinity\nGPU0   X    NV2  0-23  N/A\nGPU1  NV2   X   0-23  N/A\n",
     2, 0, true, "?,?", "0-23|0-23", "X NV2 / NV2 X", NULL, NULL},
    {"codes of another maker, columns in other order",
     "      GPU0  GPU1 Node Affinity CPU Affinity\nGPU0   X    HT  2  32-47\nGPU1  HT    X   3  48-63\n"
     "\nLegend:\n  HT   = Connection traversing SomeLink\n",
     2, 0, true, "2,3", "32-47|48-63", "X HT / HT X", NULL, "'HT' is none that hone knows"},
    {"commented, rows right of the header",
     "#      GPU0  GPU1  mlx4_0 mlx5_0 CPU Affinity NUMA Affinity\n#        GPU0   X    NV1   SYS  PIX  0-19  0\n"
     "#        GPU1  NV1    X    SYS  PIX  0-19  0\n#        mlx4_0  SYS  SYS  X  SYS\n"
     "#        mlx5_0  PIX  PIX  SYS  X\n",
     2, 2, true, "0,0", "0-19|0-19", "X NV1 SYS PIX / NV1 X SYS PIX / SYS SYS X SYS / PIX PIX SYS X", NULL,
     "older generation"},
    {"wrapped inside words", "      GPU0  GPU1  NI\nC0  CPU Affi\nnity NUMA Affinity\nGPU0   X    NV1\n2  PIX   0-31,64-9\n5 0\n"
                             "GPU1  NV12   X   S\nYS   32-63,96-127 1\nNIC0  PIX   SYS\n   X\n",
     2, 1, true, "0,1", "0-31,64-95|32-63,96-127", "X NV12 PIX / NV12 X SYS / PIX SYS X", NULL, NULL},
    {"one name column, retyped", "      GPU0  GPU1   NUMA\nGPU0   X    NV12    0\nGPU1  NV12   X     1\n",
     2, 0, true, "0,1", "?|?", "X NV12 / NV12 X", NULL, NULL},
    {"no header", "GPU0   X    NV12  NV12\nGPU1  NV12   X   NV12\nGPU2 NV12 NV12 X\n",
     3, 0, false, "?,?,?", "?|?|?", "X NV12 NV12 / NV12 X NV12 / NV12 NV12 X", "header line is missing", NULL},
    {"MIG sentence after the legend",
     "\tGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \t0-23\t0\t\tN/A\n" LEGEND
     "\nGPU 0: NVIDIA H200 (UUID: GPU-0)\nNvlink queries are not supported for Devices in MIG mode\n",
     1, 0, true, "0", "0-23", "X", NULL, "in MIG mode"},
    {"row pasted twice, differently", "      GPU0  GPU1\nGPU0   X    NV8\nGPU1  NV8    X\nGPU1  NV4    X\n",
     2, 0, false, "?,?", "?|?", "X NV8 / ? X", "twice", NULL},
    {"an X off the diagonal", "      GPU0  GPU1  GPU2\nGPU0   X    NV8   X\nGPU1  NV8    X   NV8\nGPU2  NV8   NV8   X\n",
     3, 0, false, "?,?,?", "?|?|?", "X NV8 ? / NV8 X NV8 / NV8 NV8 X", "has an X in the column of GPU2", NULL},
    {"a row shifted by one", "      GPU0  GPU1  GPU2\nGPU0  NV8   X    NV8\nGPU1  NV8    X   NV8\nGPU2  NV8   NV8   X\n",
     3, 0, false, "?,?,?", "?|?|?", "? ? ? / NV8 X NV8 / NV8 NV8 X", "shifted or mislabelled", NULL},
    {"a diagonal that is no X", "      GPU0  GPU1\nGPU0  NV8   NV8\nGPU1  NV8    X\n",
     2, 0, false, "?,?", "?|?", "? NV8 / NV8 X", "where X belongs", NULL},
    {"a code that nobody made", "      GPU0  GPU1 CPU Affinity\nGPU0   X    N8V  0-3\nGPU1  NV8   X  4-7\n",
     2, 0, false, "0,1", "0-3|4-7", "X ? / NV8 X", "'N8V', which is no link code", NULL},
    {"more links than any card has", "      GPU0  GPU1  GPU2\nGPU0   X    NV99  NV8\nGPU1  NV8    X   NV8\nGPU2  NV8   NV8   X\n",
     3, 0, false, "?,?,?", "?|?|?", "X ? ? / NV8 X NV8 / NV8 NV8 X", "row GPU0", NULL},
    {"a negative number of links", "      GPU0  GPU1  GPU2\nGPU0   X    NV-4  NV8\nGPU1  NV8    X   NV8\nGPU2  NV8   NV8   X\n",
     3, 0, false, "?,?,?", "?|?|?", "X ? ? / NV8 X NV8 / NV8 NV8 X", "'NV-4', which is no value", NULL},
    {"two hosts in one text", "      GPU0  GPU1\nGPU0   X    NV8\nGPU1  NV8    X\n\n      GPU0  GPU1\nGPU0   X    SYS\nGPU1  SYS    X\n",
     2, 0, true, "?,?", "?|?", TWO_CELLS, "1 more matrix (from line 5 on): only the first was read", NULL},
    {"a row twice, the same", "      GPU0  GPU1\nGPU0   X    NV8\nGPU1  NV8    X\nGPU1  NV8    X\n",
     2, 0, true, "?,?", "?|?", TWO_CELLS, "row GPU1 is there twice (again at line 4)", NULL},
    {"VM report", "        GPU0    NIC0    CPU Affinity    NUMA Affinity   GPU NUMA ID\n"
                  "GPU0     X      PHB     0-251   0               N/A\nNIC0    PHB      X \n" LEGEND
                  "\nHypervisor vendor:: KVM\nulimit soft: 1048576\n",
     1, 1, true, "0", "0-251", "X PHB / PHB X", NULL, "virtual machine"},
};

static bool any_holds(const hn_place_texts *texts, const char *words) {
    char first[128];
    for (;;) { // alternatives parted by '|'
        size_t length = strcspn(words, "|");
        snprintf(first, sizeof first, "%.*s", (int)length, words);
        for (size_t i = 0; i < texts->count; i++)
            if (strstr(texts->data[i], first)) return true;
        if (!words[length]) return false;
        words += length + 1;
    }
}

static void append_machine(const hn_place_machine *m, hn_str *numa, hn_str *cpus, hn_str *cells) {
    char code[8];
    for (size_t g = 0; g < m->gpus.count; g++) {
        const hn_place_gpu *gpu = &m->gpus.data[g];
        if (g) hn_str_append(numa, ","), hn_str_append(cpus, "|");
        if (gpu->numa < 0) hn_str_append(numa, "?");
        else hn_str_printf(numa, "%d", gpu->numa);
        if (gpu->cpus_known) hn_place_cpuset_append(cpus, &gpu->cpus);
        else hn_str_append(cpus, "?");
    }
    for (int a = 0; a < m->device_count; a++)
        for (int b = 0; b < m->device_count; b++) {
            const char *text = hn_place_link_code(m, hn_place_cell(m, a, b), code, sizeof code);
            hn_str_printf(cells, "%s%s", b ? " " : a ? " / " : "", text ? text : "?");
        }
}

static void test_traps(void **state) {
    (void)state;
    for (size_t i = 0; i < HN_COUNT_OF(k_traps); i++) {
        const trap *t = &k_traps[i];
        hone_error err = {0};
        hn_place_machine m = {0};
        hone_status status = hn_place_machine_parse(&err, t->name, (hn_slice){t->text, strlen(t->text)}, &m);
        if (status != HONE_OK) fail_msg("%s: %s", t->name, err.text);
        hn_str numa = {0}, cpus = {0}, cells = {0};
        append_machine(&m, &numa, &cpus, &cells);
        if ((int)m.gpus.count != t->gpus || (int)m.nics.count != t->nics)
            fail_msg("%s: %zu cards, %zu NICs", t->name, m.gpus.count, m.nics.count);
        if (strcmp(hn_str_get(&numa), t->numa) != 0) fail_msg("%s: nodes %s", t->name, hn_str_get(&numa));
        if (strcmp(hn_str_get(&cpus), t->cpus) != 0) fail_msg("%s: CPUs %s", t->name, hn_str_get(&cpus));
        if (strcmp(hn_str_get(&cells), t->cells) != 0) fail_msg("%s: cells %s", t->name, hn_str_get(&cells));
        if (m.complete != t->complete) fail_msg("%s: complete is %d", t->name, m.complete);
        if (!t->damage && m.damage.count) fail_msg("%s: damage: %s", t->name, m.damage.data[0]);
        if (t->damage && !any_holds(&m.damage, t->damage))
            fail_msg("%s: damage: %s", t->name, m.damage.count ? m.damage.data[0] : "none");
        if (t->advice && !any_holds(&m.advice, t->advice)) fail_msg("%s: advice lacks '%s'", t->name, t->advice);
        hn_str_free(&numa), hn_str_free(&cpus), hn_str_free(&cells);
        hn_place_machine_free(&m);
    }
}

static void test_refused(void **state) {
    (void)state;
    static const struct {
        const char *text, *reason;
    } k_refused[] = {
        {"", "no topology matrix"},
        {"NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n", "no topology matrix"},
        {"GPU0 and GPU1 are fine\n", "no topology matrix"},
        {"        GPU0    GPU1\n", "no topology matrix"},
        {"  GPU0 GPU1\nGPU0 X OK\nGPU1 OK X\nLegend:\n OK = Status Ok\n", "peer-to-peer table"},
        {"GPU1 X NV8 NV8\nGPU2 NV8 X NV8\n", "does not tell which column"},
        {"  GPU0 GPU0\nGPU0 X NV8\n", "names GPU0 twice"},
        {"  GPU00 GPU0\nGPU00 X NV8\nGPU0 NV8 X\n", "does not tell which column"},
        {"<system version=\"1\"><cpu numaid=\"0\"></system>", "XML is broken"},
        {"<system version=\"1\"></system>", "names no card"},
        {"{\"gpus\": 3}", "no list 'gpus'"},
        {"{\"gpus\": [], \"matrix\": [[\"X\"]]}", "one row for each"},
    };
    for (size_t i = 0; i < HN_COUNT_OF(k_refused); i++) {
        hone_error err = {0};
        hn_place_machine m = {0};
        hone_status status = hn_place_machine_parse(
            &err, "a test", (hn_slice){k_refused[i].text, strlen(k_refused[i].text)}, &m);
        if (status != HONE_ERR_FORMAT || !strstr(err.text, k_refused[i].reason))
            fail_msg("%s: status %d, %s", k_refused[i].text, status, err.text);
    }
}

// Writing the model as JSON and reading it back changes nothing.
static void test_json_round(void **state) {
    (void)state;
    for (size_t i = 0; i < HN_COUNT_OF(k_traps); i++) {
        hone_error err = {0};
        hn_place_machine m = {0}, again = {0};
        hn_str first = {0}, second = {0};
        assert_int_equal(hn_place_machine_parse(&err, "text", (hn_slice){k_traps[i].text, strlen(k_traps[i].text)}, &m),
                         HONE_OK);
        m.advice.count = 0; // remarks of the text reader are not kept
        json_t *json = hn_place_machine_json(&m);
        hn_place_json_append(json, &first);
        json_decref(json);
        if (hn_place_machine_parse(&err, "JSON", (hn_slice){first.data, first.length}, &again) != HONE_OK)
            fail_msg("%s: %s", k_traps[i].name, err.text);
        again.advice.count = 0;
        json = hn_place_machine_json(&again);
        hn_place_json_append(json, &second);
        json_decref(json);
        assert_string_equal(hn_str_get(&first), hn_str_get(&second));
        hn_str_free(&first), hn_str_free(&second);
        hn_place_machine_free(&m), hn_place_machine_free(&again);
    }
}

static void test_cpusets(void **state) {
    (void)state;
    static const struct {
        const char *text, *canonical; // NULL: refused
    } k_lists[] = {{"0", "0"},         {"0-3,8", "0-3,8"}, {"1-1", "1"},   {"0-1,2-3", "0-3"}, {"4095", "4095"},
                   {"", NULL},         {"-3", NULL},       {"3-", NULL},   {"3-1", NULL},      {"0-23,4", NULL},
                   {"0-3,", NULL},     {",1", NULL},       {"4096", NULL}, {"1 2", NULL},      {"0x3", NULL},
                   {"112-127,240-25", NULL}};
    for (size_t i = 0; i < HN_COUNT_OF(k_lists); i++) {
        hn_place_cpuset set;
        bool good = hn_place_cpuset_parse((hn_slice){k_lists[i].text, strlen(k_lists[i].text)}, &set);
        if (good != (k_lists[i].canonical != NULL)) fail_msg("'%s' was %d", k_lists[i].text, good);
        if (!good) continue;
        hn_str text = {0};
        hn_place_cpuset_append(&text, &set);
        assert_string_equal(hn_str_get(&text), k_lists[i].canonical);
        hn_str_free(&text);
    }
}

// The reader with every allocation failing in turn: an error or a poorer answer, never a crash or leak.
static void test_no_memory(void **state) {
    (void)state;
    const char *text = k_traps[8].text;
    uint64_t calls = 0;
    for (uint64_t n = 0; n == 0 || n <= calls; n++) {
        hone_error err = {0};
        hn_place_machine m = {0};
        uint64_t before = hn_alloc_calls();
        hn_alloc_fail_nth(n);
        hone_status status = hn_place_machine_parse(&err, "text", (hn_slice){text, strlen(text)}, &m);
        hn_alloc_fail_nth(0);
        if (n == 0) {
            assert_int_equal(status, HONE_OK);
            calls = hn_alloc_calls() - before;
            assert_true(calls > 8);
        }
        if (status != HONE_OK) assert_int_equal(status, HONE_ERR_NOMEM);
        hn_place_machine_free(&m);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_traps),      cmocka_unit_test(test_refused),
        cmocka_unit_test(test_json_round), cmocka_unit_test(test_cpusets),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
