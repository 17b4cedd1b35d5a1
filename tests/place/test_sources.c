// SPDX-License-Identifier: Apache-2.0
// The other sources of the machine model: NCCL XML, hwloc XML of both generations, a sysfs tree made
// here, the driver's library (scripted), the picture, and what they all must refuse.
#include "support/test.h"
#include <sys/stat.h>
#include <unistd.h>
#include "place/live.h"

static void cells_of(const hn_place_machine *m, hn_str *out) {
    char code[8];
    for (int a = 0; a < m->device_count; a++)
        for (int b = 0; b < m->device_count; b++) {
            const char *text = hn_place_link_code(m, hn_place_cell(m, a, b), code, sizeof code);
            hn_str_printf(out, "%s%s", b ? " " : a ? " / " : "", text ? text : "?");
        }
}

static void expect_cells(const hn_place_machine *m, const char *want) {
    hn_str cells = {0};
    cells_of(m, &cells);
    assert_string_equal(hn_str_get(&cells), want);
    hn_str_free(&cells);
}

static void parse(const char *text, hn_place_machine *m) {
    hone_error err = {0};
    if (hn_place_machine_parse(&err, "a test", (hn_slice){text, strlen(text)}, m) != HONE_OK)
        fail_msg("%s", err.text);
}

// ---- NCCL -------------------------------------------------------------------------------------

#define NCCL_GPU(bus, dev, links)                                                                      \
    "<pci busid=\"" bus "\" class=\"0x030200\" vendor=\"0x10de\" link_speed=\"16.0 GT/s PCIe\" "       \
    "link_width=\"16\"><gpu dev=\"" dev "\" sm=\"80\" rank=\"" dev "\" gdr=\"1\">" links "</gpu></pci>"
#define NCCL_NIC(bus, name)                                                                            \
    "<pci busid=\"" bus "\" class=\"0x020700\" link_speed=\"16.0 GT/s PCIe\" link_width=\"16\"><nic>"  \
    "<net name=\"" name "\" dev=\"0\" speed=\"200000\" port=\"1\" gdr=\"1\"/></nic></pci>"
#define SWITCHED(n) "<nvlink target=\"ffffff:ffff:ff\" count=\"" n "\" tclass=\"0x068000\"/>"

static void test_nccl_switched(void **state) {
    (void)state;
    hn_place_machine m = {0};
    parse("<system version=\"1\">"
          "<cpu numaid=\"0\" affinity=\"00000000,0000ffff\" arch=\"x86_64\">"
          "<pci busid=\"0000:10:00.0\" class=\"0x060400\">" NCCL_GPU("0000:11:00.0", "0", SWITCHED("8"))
              NCCL_NIC("0000:12:00.0", "mlx5_0") "</pci>"
          "<pci busid=\"0000:20:00.0\" class=\"0x060400\">" NCCL_GPU("0000:21:00.0", "1", SWITCHED("8")) "</pci>"
          "</cpu><cpu numaid=\"1\" affinity=\"0000ffff,00000000\" arch=\"x86_64\">"
          "<pci busid=\"0000:30:00.0\" class=\"0x060400\">"
          "<pci busid=\"0000:31:00.0\" class=\"0x060400\">" NCCL_GPU("0000:32:00.0", "2", SWITCHED("8")) "</pci>"
          "<pci busid=\"0000:38:00.0\" class=\"0x060400\">" NCCL_NIC("0000:39:00.0", "mlx5_1") "</pci></pci></cpu>"
          "</system>",
          &m);
    assert_int_equal(m.gpus.count, 3);
    assert_int_equal(m.nics.count, 2);
    expect_cells(&m, "X NV8 NV8 PIX SYS / NV8 X NV8 PHB SYS / NV8 NV8 X SYS PXB / PIX PHB SYS X SYS / "
                     "SYS SYS PXB SYS X");
    assert_true(hn_place_machine_nvswitch(&m));
    assert_int_equal(m.gpus.data[2].numa, 1);
    assert_true(hn_place_cpuset_has(&m.gpus.data[2].cpus, 47) && !hn_place_cpuset_has(&m.gpus.data[2].cpus, 31));
    assert_int_equal(m.gpus.data[0].compute_major, 8);
    assert_int_equal(m.gpus.data[0].pcie_generation, 4);
    assert_string_equal(m.nics.data[1].name, "mlx5_1");
    assert_true(m.nics.data[1].gbit_per_s == 200);
    hn_place_machine_free(&m);
}

static void test_nccl_direct(void **state) {
    (void)state;
    hn_place_machine m = {0};
    parse("<?xml version=\"1.0\"?>\n<system version=\"2\"><cpu numaid=\"-1\" arch=\"x86_64\">"
          NCCL_GPU("0000:01:00.0", "0", "<nvlink target=\"00000000:02:00.0\" count=\"4\" tclass=\"0x030200\"/>")
          NCCL_GPU("0000:02:00.0", "1", "<nvlink target=\"0000:01:00.0\" count=\"4\" tclass=\"0x030200\"/>")
          "</cpu></system>",
          &m);
    expect_cells(&m, "X NV4 / NV4 X");
    assert_int_equal(m.gpus.data[0].numa, HN_PLACE_UNKNOWN);
    hn_place_machine_free(&m);
}

// ---- hwloc ------------------------------------------------------------------------------------

#define HWLOC_GPU(bus) "<object type=\"PCIDev\" pci_busid=\"" bus "\" pci_type=\"0302 [10de:20b0] [10de:1463] a1\"/>"
#define HWLOC_NIC(bus, name)                                                                           \
    "<object type=\"PCIDev\" pci_busid=\"" bus "\" pci_type=\"0207 [15b3:101b] [15b3:0007] 00\">"       \
    "<object type=\"OSDev\" name=\"ib0\" osdev_type=\"2\"/>"                                            \
    "<object type=\"OSDev\" name=\"" name "\" osdev_type=\"3\"/></object>"
#define BRIDGE(bus) "<object type=\"Bridge\" bridge_type=\"1-1\" pci_busid=\"" bus "\" pci_type=\"0604 [1000:c010]\">"
#define HOST        "<object type=\"Bridge\" bridge_type=\"0-1\" depth=\"0\" bridge_pci=\"0000:[00-1f]\">"

static void test_hwloc_two(void **state) {
    (void)state;
    hn_place_machine m = {0};
    parse("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n<topology version=\"2.0\">"
          "<object type=\"Machine\" os_index=\"0\" cpuset=\"0x000000ff\">"
          "<object type=\"Package\" os_index=\"0\" cpuset=\"0x0000000f\">"
          "<object type=\"NUMANode\" os_index=\"0\" cpuset=\"0x0000000f\" local_memory=\"1073741824\"/>"
          HOST BRIDGE("0000:00:01.0") BRIDGE("0000:01:00.0")
          BRIDGE("0000:02:00.0") HWLOC_GPU("0000:03:00.0") "</object>"
          BRIDGE("0000:02:01.0") HWLOC_NIC("0000:04:00.0", "mlx5_0") "</object>"
          "</object></object></object>"
          HOST BRIDGE("0000:20:01.0") HWLOC_GPU("0000:21:00.0") "</object></object></object>"
          "<object type=\"Package\" os_index=\"1\" cpuset=\"0x000000f0\">"
          "<object type=\"NUMANode\" os_index=\"1\" cpuset=\"0x000000f0\"/>"
          HOST BRIDGE("0000:40:01.0") HWLOC_GPU("0000:41:00.0") "</object>"
          BRIDGE("0000:40:02.0") HWLOC_NIC("0000:42:00.0", "mlx5_1") "</object></object></object>"
          "</object></topology>",
          &m);
    expect_cells(&m, "X NODE SYS PIX SYS / NODE X SYS NODE SYS / SYS SYS X SYS PHB / PIX NODE SYS X SYS / "
                     "SYS SYS PHB SYS X");
    assert_int_equal(m.gpus.data[2].numa, 1);
    assert_true(m.gpus.data[2].cpus_known && hn_place_cpuset_has(&m.gpus.data[2].cpus, 4));
    assert_int_equal(m.nodes.data[0].memory_bytes, 1 << 30);
    assert_string_equal(m.gpus.data[0].pci, "0000:03:00.0");
    hn_place_machine_free(&m);
}

// hwloc 1 nests packages and devices inside their node; a machine of one node has none in between.
static void test_hwloc_one(void **state) {
    (void)state;
    hn_place_machine m = {0};
    parse("<topology><object type=\"Machine\" os_index=\"0\">"
          "<object type=\"NUMANode\" os_index=\"2\" cpuset=\"0x3\"><object type=\"Socket\" os_index=\"0\"/>"
          HOST BRIDGE("0000:00:01.0") HWLOC_GPU("0000:01:00.0") "</object></object></object>"
          "<object type=\"NUMANode\" os_index=\"5\" cpuset=\"0xc\">"
          HOST BRIDGE("0000:80:01.0") HWLOC_GPU("0000:81:00.0") "</object></object></object></object></topology>",
          &m);
    expect_cells(&m, "X SYS / SYS X");
    assert_int_equal(m.gpus.data[0].numa, 2);
    assert_int_equal(m.gpus.data[1].numa, 5);
    hn_place_machine_free(&m);
    parse("<topology version=\"2.0\"><object type=\"Machine\"><object type=\"NUMANode\" os_index=\"0\" cpuset=\"0xf\"/>"
          HOST HWLOC_GPU("0000:01:00.0") "</object>" HOST HWLOC_GPU("0000:81:00.0") "</object></object></topology>", &m);
    expect_cells(&m, "X NODE / NODE X");
    assert_int_equal(m.gpus.data[0].numa, 0);
    hn_place_machine_free(&m);
}

static void test_hostile_xml(void **state) {
    (void)state;
    static const char *const k_entities = "<!DOCTYPE system [<!ENTITY a \"aaaa\"><!ENTITY b \"&a;&a;\">]>"
                                          "<system version=\"1\"><cpu numaid=\"&b;\"/></system>";
    hone_error err = {0};
    hn_place_machine m = {0};
    assert_int_equal(hn_place_machine_parse(&err, "x", (hn_slice){k_entities, strlen(k_entities)}, &m), HONE_ERR_FORMAT);
    assert_non_null(strstr(err.text, "entities"));
    hn_str deep = {0};
    hn_str_append(&deep, "<system>");
    for (int i = 0; i < 1000; i++) hn_str_append(&deep, "<pci class=\"0x060400\">");
    assert_int_equal(hn_place_machine_parse(&err, "x", (hn_slice){deep.data, deep.length}, &m), HONE_ERR_LIMIT);
    hn_str_free(&deep);
    hn_str many = {0};
    hn_str_append(&many, "<system><cpu numaid=\"0\">");
    for (int i = 0; i < 100; i++) hn_str_append(&many, NCCL_GPU("0000:01:00.0", "0", ""));
    hn_str_append(&many, "</cpu></system>");
    assert_int_equal(hn_place_machine_parse(&err, "x", (hn_slice){many.data, many.length}, &m), HONE_ERR_LIMIT);
    hn_str_free(&many);
}

// What is written as JSON is read again, and says the same.
static void expect_json_same(const hn_place_machine *m) {
    hn_str text = {0}, before = {0}, after = {0};
    hn_place_machine again = {0};
    json_t *json = hn_place_machine_json(m);
    hn_place_json_append(json, &text);
    json_decref(json);
    parse(hn_str_get(&text), &again);
    cells_of(m, &before);
    cells_of(&again, &after);
    assert_string_equal(hn_str_get(&before), hn_str_get(&after));
    assert_int_equal(m->complete, again.complete);
    assert_int_equal(m->damage.count, again.damage.count);
    hn_str_free(&text), hn_str_free(&before), hn_str_free(&after);
    hn_place_machine_free(&again);
}

#define DIRECT(bus, n) "<nvlink target=\"" bus "\" count=\"" n "\" tclass=\"0x030200\"/>"
#define TWO_CARDS(a, b)                                                                                \
    "<system version=\"1\"><cpu numaid=\"0\" affinity=\"ff\"><pci busid=\"0000:10:00.0\" class=\"0x060400\">" \
    NCCL_GPU("0000:11:00.0", "0", a) NCCL_GPU("0000:12:00.0", "1", b) "</pci></cpu></system>"

// A count that no card has is no PCIe path: the cell is unknown, and told.
static void test_nvlink_counts(void **state) {
    (void)state;
    static const struct {
        const char *xml, *cells;
        size_t damage;
    } k_rows[] = {
        {TWO_CARDS(DIRECT("0000:12:00.0", "36"), DIRECT("0000:11:00.0", "36")), "X NV36 / NV36 X", 0},
        {TWO_CARDS(DIRECT("0000:12:00.0", "-8"), ""), "X ? / ? X", 1},
        {TWO_CARDS(DIRECT("0000:12:00.0", "99999"), "\n" DIRECT("0000:11:00.0", "0")), "X ? / ? X", 2},
        {TWO_CARDS(DIRECT("0000:12:00.0", "37"), DIRECT("0000:11:00.0", "4")), "X ? / NV4 X", 1},
        {TWO_CARDS(DIRECT("0000:99:00.0", "x"), ""), "X PIX / PIX X", 1},
        {TWO_CARDS("<nvlink count=\"4\"/>", ""), "X ? / ? X", 1},
        {TWO_CARDS("<nvlink target=\"0000:12:00.0\"/>", ""), "X ? / ? X", 1},
        {TWO_CARDS(SWITCHED("12"), SWITCHED("12")), "X NV12 / NV12 X", 0},
        {TWO_CARDS(SWITCHED("-8"), SWITCHED("8")), "X ? / ? X", 1},
        {TWO_CARDS(SWITCHED("4") SWITCHED("99999"), SWITCHED("8")), "X ? / ? X", 1},
        {TWO_CARDS(SWITCHED("30") SWITCHED("30"), SWITCHED("8")), "X ? / ? X", 1},
        {TWO_CARDS("", ""), "X PIX / PIX X", 0},
    };
    for (size_t i = 0; i < HN_COUNT_OF(k_rows); i++) {
        hn_place_machine m = {0};
        parse(k_rows[i].xml, &m);
        expect_cells(&m, k_rows[i].cells);
        assert_int_equal(m.damage.count, k_rows[i].damage);
        assert_int_equal(m.complete, k_rows[i].damage == 0);
        expect_json_same(&m);
        hn_place_machine_free(&m);
    }
}

// Values that cannot be read are unknown and told; what nobody can tell apart is refused.
static void test_damaged_xml(void **state) {
    (void)state;
    static const struct {
        const char *xml, *says; // says NULL: whole
        bool cpus_known;
    } k_rows[] = {
#define CARD_ON(cpu) "<system version=\"1\"><cpu " cpu ">" NCCL_GPU("0000:11:00.0", "0", "") "</cpu></system>"
#define NODE_OF(at)                                                                                    \
    "<topology><object type=\"Machine\"><object type=\"NUMANode\" " at "/>" HOST HWLOC_GPU("0000:01:00.0") \
    "</object></object></topology>"
        {CARD_ON("numaid=\"0\" affinity=\"0000ffff,00000000\""), NULL, true},
        {CARD_ON("numaid=\"0\" affinity=\"zzzz\""), "the CPUs of a NUMA node", false},
        {CARD_ON("numaid=\"0\" affinity=\"\""), "the CPUs of a NUMA node", false},
        {CARD_ON("numaid=\"0\" affinity=\"-1\""), "the CPUs of a NUMA node", false},
        {CARD_ON("numaid=\"0\" affinity=\"00000000\""), NULL, false},
        {CARD_ON("numaid=\"0\""), NULL, false},
        {CARD_ON("numaid=\"-1\" affinity=\"ff\""), NULL, false},
        {CARD_ON("numaid=\"99999\" affinity=\"ff\""), "the number of a NUMA node", false},
        {NODE_OF("os_index=\"0\" cpuset=\"0xff\""), NULL, true},
        {NODE_OF("os_index=\"0\" cpuset=\"0x0\""), NULL, false},
        {NODE_OF("os_index=\"0\" cpuset=\"0xyy\""), "the CPUs of a NUMA node", false},
        {"<system version=\"1\"><cpu numaid=\"0\" affinity=\"ff\">" NCCL_GPU("0000:11:00.0", "70000", "")
         "</cpu></system>", "the number (dev) of a card", true},
    };
    for (size_t i = 0; i < HN_COUNT_OF(k_rows); i++) {
        hn_place_machine m = {0};
        parse(k_rows[i].xml, &m);
        assert_int_equal(m.complete, k_rows[i].says == NULL);
        assert_int_equal(m.damage.count, k_rows[i].says != NULL);
        if (k_rows[i].says) assert_non_null(strstr(m.damage.data[0], k_rows[i].says));
        assert_int_equal(m.gpus.data[0].cpus_known, k_rows[i].cpus_known);
        expect_json_same(&m);
        hn_place_machine_free(&m);
    }
    static const char *const k_refused[][2] = {
        {"<system version=\"1\"><cpu numaid=\"0\">" NCCL_GPU("0000:11:00.0", "0", "")
         NCCL_GPU("0000:12:00.0", "0", "") "</cpu></system>", "two cards of the XML are GPU0"},
        {"<topology/>", "holds no machine"},
        {"<topology version=\"2.0\"></topology>", "holds no machine"},
    };
    for (size_t i = 0; i < HN_COUNT_OF(k_refused); i++) {
        hone_error err = {0};
        hn_place_machine m = {0};
        const char *xml = k_refused[i][0];
        assert_int_equal(hn_place_machine_parse(&err, "x", (hn_slice){xml, strlen(xml)}, &m), HONE_ERR_FORMAT);
        assert_non_null(strstr(err.text, k_refused[i][1]));
    }
}

// ---- sysfs ------------------------------------------------------------------------------------

static char g_root[] = "/tmp/hone-topo-XXXXXX";

static void put(const char *path, const char *text) {
    char full[600];
    snprintf(full, sizeof full, "%s%s", g_root, path);
    for (char *at = full + 1; (at = strchr(at, '/')); at++) {
        *at = '\0';
        mkdir(full, 0755);
        *at = '/';
    }
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void link_to(const char *path, const char *target) {
    char full[600];
    snprintf(full, sizeof full, "%s%s", g_root, path);
    for (char *at = full + 1; (at = strchr(at, '/')); at++) {
        *at = '\0';
        mkdir(full, 0755);
        *at = '/';
    }
    assert_int_equal(symlink(target, full), 0);
}

static void device(const char *folder, const char *address, const char *class, const char *vendor, const char *node,
                   const char *cpus) {
    static const char *const k_files[] = {"class", "vendor", "numa_node", "local_cpulist", "max_link_speed",
                                          "max_link_width"};
    const char *texts[] = {class, vendor, node, cpus, "32.0 GT/s PCIe\n", "16\n"};
    char path[400], target[400];
    for (size_t i = 0; i < HN_COUNT_OF(k_files); i++) {
        snprintf(path, sizeof path, "/sys/devices/%s/%s/%s", folder, address, k_files[i]);
        put(path, texts[i]);
    }
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%s", address);
    snprintf(target, sizeof target, "../../../devices/%s/%s", folder, address);
    link_to(path, target);
}

static void make_machine(void) {
    assert_non_null(mkdtemp(g_root));
    put("/sys/devices/system/node/node0/cpulist", "0-3\n");
    put("/sys/devices/system/node/node0/meminfo", "Node 0 MemTotal:       2048 kB\n");
    put("/sys/devices/system/node/node1/cpulist", "4-7\n");
    const char *port = "pci0000:10/0000:10:00.0/0000:0a:00.0";
    char below[200];
    snprintf(below, sizeof below, "%s/0000:0b:00.0", port);
    device(below, "0000:10:00.0", "0x030200\n", "0x10de\n", "0\n", "0-3\n");
    snprintf(below, sizeof below, "%s/0000:0b:01.0", port);
    device(below, "0000:12:00.0", "0x020700\n", "0x15b3\n", "0\n", "0-3\n");
    device("pci0000:10/0000:10:03.0", "0000:11:00.0", "0x030200\n", "0x10de\n", "0\n", "0-3\n");
    device("pci0000:80/0000:80:01.0", "0000:13:00.0", "0x030000\n", "0x10de\n", "1\n", "4-7\n");
    device("pci0000:90/0000:90:01.0", "0000:14:00.0", "0x030200\n", "0x1002\n", "1\n", "4-7\n"); // another maker
    link_to("/sys/class/infiniband/mlx5_10/device", "../../../bus/pci/devices/0000:12:00.0");
    put("/sys/class/infiniband/mlx5_10/ports/1/rate", "200 Gb/sec (4X HDR)\n");
    put("/proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu vme hypervisor lahf_lm\n");
    put("/proc/driver/nvidia/gpus/0000:10:00.0/information", "Model: \t\t NVIDIA A800-SXM4-80GB\nIRQ: 1\n");
}

static void test_sysfs(void **state) {
    (void)state;
    hone_error err = {0};
    hn_place_machine m = {0};
    setenv("HONE_SYS_ROOT", g_root, 1);
    setenv("HONE_NVML_LIB", "/nonexistent/libnvidia-ml.so", 1);
    assert_int_equal(hn_place_machine_live(&err, &m), HONE_OK);
    assert_int_equal(m.gpus.count, 3);
    assert_int_equal(m.nics.count, 1);
    expect_cells(&m, "X PHB SYS PIX / PHB X SYS PHB / SYS SYS X SYS / PIX PHB SYS X");
    assert_string_equal(m.gpus.data[0].name, "NVIDIA A800-SXM4-80GB");
    assert_int_equal(m.gpus.data[0].pcie_generation, 5);
    assert_string_equal(m.nics.data[0].name, "mlx5_10");
    assert_true(m.nics.data[0].gbit_per_s == 200);
    assert_int_equal(m.nodes.data[0].memory_bytes, 2048 * 1024);
    assert_int_equal(m.gpus.data[2].numa, 1);
    assert_true(m.virtual_machine);
    assert_true(hn_place_cpuset_has(&m.gpus.data[2].cpus, 6));
    bool said = false;
    for (size_t i = 0; i < m.advice.count; i++) said |= strstr(m.advice.data[i], "come from sysfs alone") != NULL;
    assert_true(said);
    hn_place_machine_free(&m);
}

// Folders instead of links below bus/pci/devices, as in a container's partial sysfs: listed, not placed.
static void test_sysfs_without_paths(void **state) {
    (void)state;
    char whole[sizeof g_root], command[100];
    memcpy(whole, g_root, sizeof whole);
    memcpy(g_root, "/tmp/hone-topo-XXXXXX", sizeof whole);
    assert_non_null(mkdtemp(g_root));
    for (int i = 0; i < 2; i++) {
        static const char *const k_files[][2] = {{"class", "0x030200\n"}, {"vendor", "0x10de\n"}, {"numa_node", "0\n"}};
        for (size_t k = 0; k < HN_COUNT_OF(k_files); k++) {
            char path[200];
            snprintf(path, sizeof path, "/sys/bus/pci/devices/0000:1%d:00.0/%s", i, k_files[k][0]);
            put(path, k_files[k][1]);
        }
    }
    hone_error err = {0};
    hn_place_machine m = {0};
    setenv("HONE_SYS_ROOT", g_root, 1);
    setenv("HONE_NVML_LIB", "/nonexistent/libnvidia-ml.so", 1);
    assert_int_equal(hn_place_machine_live(&err, &m), HONE_OK);
    assert_int_equal(m.gpus.count, 2);
    expect_cells(&m, "X ? / ? X");
    assert_int_equal(m.switches.count, 0);
    assert_true(m.gpus.data[0].switch_index < 0 && m.gpus.data[1].switch_index < 0);
    hn_place_machine_free(&m);
    snprintf(command, sizeof command, "rm -rf %s", g_root);
    assert_int_equal(system(command), 0);
    memcpy(g_root, whole, sizeof whole);
}

// The driver shows two of the three cards that sysfs has, in another order, and one more.
static void test_driver(void **state) {
    (void)state;
    hone_error err = {0};
    hn_place_machine m = {0};
    char lib[600];
    snprintf(lib, sizeof lib, "%s/fakes/libnvidia-ml.so", getenv("HONE_BUILD_DIR"));
    setenv("HONE_SYS_ROOT", g_root, 1);
    setenv("HONE_NVML_LIB", lib, 1);
    setenv("HONE_FAKE_NVML", "cards=8,ampere", 1);
    assert_int_equal(hn_place_machine_live(&err, &m), HONE_OK);
    assert_int_equal(m.gpus.count, 8);
    assert_int_equal(m.nics.count, 1);
    assert_true(hn_place_machine_nvswitch(&m));
    assert_int_equal(hn_place_gpu_nvlinks(&m, 7), 8);
    assert_int_equal(hn_place_cell(&m, 0, 8).kind, HN_LINK_PIX); // from sysfs: card 10:00.0 to the adapter
    assert_int_equal(hn_place_cell(&m, 4, 8).kind, HN_LINK_UNKNOWN);
    assert_int_equal(m.gpus.data[3].numa, 1); // 13:00.0
    assert_int_equal(m.gpus.data[4].numa, HN_PLACE_UNKNOWN);
    assert_true(m.gpus.data[0].memory_bytes > INT64_C(1) << 33);
    assert_int_equal(m.gpus.data[0].nvlinks_active, 8);
    hn_place_machine_free(&m);
    setenv("HONE_FAKE_NVML", "cards=4,ampere,direct,mig=1", 1);
    assert_int_equal(hn_place_machine_live(&err, &m), HONE_OK);
    assert_int_equal(hn_place_cell(&m, 0, 1).kind, HN_LINK_NVLINK);
    assert_int_equal(hn_place_cell(&m, 0, 2).kind, HN_LINK_NODE);
    assert_int_equal(m.gpus.data[1].mig, 1);
    assert_int_equal(m.gpus.data[1].mig_instances, 3);
    hn_place_machine_free(&m);
    setenv("HONE_FAKE_NVML", "init=18", 1);
    assert_int_equal(hn_place_machine_live(&err, &m), HONE_OK);
    assert_int_equal(m.gpus.count, 3);
    hn_place_machine_free(&m);
    unsetenv("HONE_SYS_ROOT");
    unsetenv("HONE_NVML_LIB");
    char command[600];
    snprintf(command, sizeof command, "rm -r '%s'", g_root);
    assert_int_equal(system(command), 0);
}

// ---- the picture ------------------------------------------------------------------------------

static void test_picture(void **state) {
    (void)state;
    hn_place_machine m = {0};
    parse("<system version=\"1\"><cpu numaid=\"0\" affinity=\"ff\">"
          "<pci busid=\"0000:10:00.0\" class=\"0x060400\">" NCCL_GPU("0000:11:00.0", "0", SWITCHED("8"))
              NCCL_NIC("0000:12:00.0", "a&lt;b&gt;&amp;&quot;") "</pci></cpu></system>",
          &m);
    hn_str svg = {0}, html = {0};
    hn_place_machine_svg(&m, &svg);
    hn_place_machine_html(&m, &html);
    assert_false(svg.failed || html.failed);
    assert_non_null(strstr(svg.data, "a&lt;b&gt;&amp;&quot;"));
    assert_null(strstr(svg.data, "<b>"));
    assert_null(strstr(html.data, "<b>"));
    // Self-contained: the only address is the name of the namespace.
    const char *at = strstr(svg.data, "http");
    assert_non_null(at);
    assert_null(strstr(at + 1, "http"));
    assert_null(strstr(svg.data, "<script"));
    hn_place_machine_free(&m);
    hn_place_machine none = {0};
    hn_str empty = {0};
    hn_place_machine_svg(&none, &empty);
    assert_non_null(strstr(hn_str_get(&empty), "0 cards"));
    hn_str_free(&svg), hn_str_free(&html), hn_str_free(&empty);
}

int main(void) {
    make_machine();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nccl_switched), cmocka_unit_test(test_nccl_direct), cmocka_unit_test(test_hwloc_two),
        cmocka_unit_test(test_hwloc_one),     cmocka_unit_test(test_hostile_xml), cmocka_unit_test(test_sysfs),
        cmocka_unit_test(test_sysfs_without_paths),
        cmocka_unit_test(test_nvlink_counts), cmocka_unit_test(test_damaged_xml),
        cmocka_unit_test(test_driver),        cmocka_unit_test(test_picture),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
