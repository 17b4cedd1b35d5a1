// SPDX-License-Identifier: Apache-2.0
// The doctor over scripted cards and machines made of files.
#include <jansson.h>
#include <sys/stat.h>
#include <unistd.h>
#include "support/test.h"
#include "probe/doctor.h"

static char g_root[256], g_nvml[512], g_dcgm[512];

static void put_bytes(const char *name, const void *data, size_t bytes) {
    char path[512];
    snprintf(path, sizeof path, "%s%s", g_root, name);
    for (char *c = path + strlen(g_root) + 1; *c; c++)
        if (*c == '/') *c = '\0', mkdir(path, 0777), *c = '/';
    FILE *f = fopen(path, "w");
    if (!f) fail_msg("%s", path);
    fwrite(data, 1, bytes, f);
    fclose(f);
}
static void put(const char *name, const char *text) { put_bytes(name, text, strlen(text)); }

static void clean_root(void) {
    char command[600];
    snprintf(command, sizeof command, "rm -rf '%s'", g_root);
    assert_int_equal(system(command), 0);
    mkdir(g_root, 0777);
}

static hn_doctor examine(const char *script, const char *source) {
    hone_error err = {0};
    hn_doctor doctor;
    setenv("HONE_NVML_LIB", script ? g_nvml : "/nonexistent", 1);
    setenv("HONE_DCGM_LIB", "/nonexistent", 1);
    setenv("HONE_FAKE_NVML", script ? script : "", 1);
    hn_doctor_options options = {.source = source};
    if (hn_doctor_run(&err, &options, &doctor) != HONE_OK) fail_msg("%s", err.text);
    return doctor;
}

static const hn_finding *find(const hn_doctor *doctor, const char *id, const char *where) {
    for (size_t i = 0; i < doctor->findings.count; i++)
        if (strcmp(doctor->findings.data[i].id, id) == 0 && (!where || strcmp(doctor->findings.data[i].where, where) == 0))
            return &doctor->findings.data[i];
    return NULL;
}
static void expect(const hn_doctor *doctor, const char *id, const char *where, hn_level level, const char *says) {
    const hn_finding *f = find(doctor, id, where);
    if (!f) fail_msg("no finding '%s' on %s", id, where ? where : "anything");
    if (f->level != level) fail_msg("%s has level %d", id, f->level);
    if (!strstr(f->what, says)) fail_msg("%s: '%s' lacks '%s'", id, f->what, says);
    assert_true(f->why[0] && f->mend[0]);
}
static void no_finding(const hn_doctor *doctor, const char *id) {
    const hn_finding *f = find(doctor, id, NULL);
    if (f) fail_msg("%s: %s", id, f->what);
}

static void a_machine_without_card_says_why_in_one_line(void **state) {
    (void)state;
    clean_root();
    hn_doctor doctor = examine(NULL, "");
    assert_null(doctor.probe);
    hn_str text = {0};
    hn_doctor_text(&text, &doctor);
    assert_non_null(strstr(hn_str_get(&text), "GPU       none: NVML"));
    assert_non_null(strstr(hn_str_get(&text), "kernels use"));
    hn_str_free(&text);
    assert_false(hn_doctor_has_fault(&doctor));
    hn_doctor_free(&doctor);
}

static void healthy_cards_have_no_findings(void **state) {
    (void)state;
    clean_root();
    hn_doctor doctor = examine("cards=8", "");
    for (size_t i = 0; i < doctor.findings.count; i++)
        if (strncmp(doctor.findings.data[i].where, "gpu", 3) == 0) fail_msg("%s", doctor.findings.data[i].what);
    assert_false(hn_doctor_has_fault(&doctor));
    hn_doctor_free(&doctor);
}

static void faults_of_cards_are_told(void **state) {
    (void)state;
    clean_root();
    hn_doctor doctor = examine("cards=3,badlink,ecc,cap=450,gone=2", "nvml");
    expect(&doctor, "ecc_uncorrected", "gpu 0", HN_LEVEL_FAULT, "2 uncorrected");
    expect(&doctor, "remap_failure", "gpu 0", HN_LEVEL_FAULT, "could not be replaced");
    expect(&doctor, "repair_pending", "gpu 0", HN_LEVEL_WARN, "waits for a reset");
    expect(&doctor, "remapped_rows", "gpu 0", HN_LEVEL_NOTE, "1 memory rows");
    expect(&doctor, "pcie_width", "gpu 1", HN_LEVEL_WARN, "8 of 16");
    expect(&doctor, "pcie_generation", "gpu 1", HN_LEVEL_WARN, "generation 3 of 5");
    expect(&doctor, "nvlink_down", "gpu 1", HN_LEVEL_FAULT, "1 of 18");
    expect(&doctor, "fabric_state", "gpu 1", HN_LEVEL_FAULT, "In Progress");
    expect(&doctor, "power_limit", "gpu 1", HN_LEVEL_WARN, "450 W");
    expect(&doctor, "persistence_off", "gpu 1", HN_LEVEL_NOTE, "off");
    expect(&doctor, "lost", "gpu 2", HN_LEVEL_FAULT, "cannot be reached");
    assert_null(find(&doctor, "ecc_uncorrected", "gpu 1"));
    assert_true(hn_doctor_has_fault(&doctor));
    for (size_t i = 1; i < doctor.findings.count; i++) // gravest first
        assert_true(doctor.findings.data[i].level <= doctor.findings.data[i - 1].level);
    hn_str json = {0};
    hn_doctor_json(&json, &doctor);
    json_t *root = json_loads(hn_str_get(&json), 0, NULL);
    assert_non_null(root);
    assert_int_equal(json_array_size(json_object_get(root, "findings")), doctor.findings.count);
    assert_int_equal(json_array_size(json_object_get(json_object_get(root, "gpu"), "devices")), 3);
    assert_true(json_is_null(json_object_get(json_object_get(root, "cpu"), "copy_bytes_per_s"))); // not measured, not 0
    json_decref(root);
    hn_str_free(&json);
    hn_doctor_free(&doctor);
    doctor = examine("perm", "nvml");
    expect(&doctor, "counter_permission", "gpu 0", HN_LEVEL_WARN, "administrator");
    hn_doctor_free(&doctor);
    doctor = examine("ampere", "nvml");
    expect(&doctor, "activity_needs_dcgm", "gpu 0", HN_LEVEL_NOTE, "DCGM");
    hn_doctor_free(&doctor);
    doctor = examine("cards=2,mig=1", "nvml");
    expect(&doctor, "mig", "gpu 1", HN_LEVEL_NOTE, "MIG");
    assert_null(find(&doctor, "counter_permission", NULL));
    hn_doctor_free(&doctor);
}

#define XID(bus, n) "6,1,1,-;NVRM: Xid (PCI:" bus "): " n ", pid=7, name=x\n"
static void the_kernel_log_gives_xids_by_class(void **state) {
    (void)state;
    clean_root();
    put("/dev/kmsg", XID("0000:10:00", "31") XID("0000:10:00", "31") "6,2,2,-;usb 1-1: new device\n" XID("0000:11:00", "79")
                     XID("0000:11:00", "63") XID("0000:11:00", "9876") "NVRM: Xid (PCI:broken\n");
    hn_doctor doctor = examine("cards=2", "nvml");
    expect(&doctor, "xid", "pci 0000:10:00", HN_LEVEL_NOTE, "Xid 31, 2 times"); // a program's fault: the card is fine
    int faults = 0, warnings = 0;
    for (size_t i = 0; i < doctor.findings.count; i++) {
        const hn_finding *f = &doctor.findings.data[i];
        if (strcmp(f->id, "xid") != 0) continue;
        faults += f->level == HN_LEVEL_FAULT && strstr(f->what, "Xid 79");
        warnings += f->level == HN_LEVEL_WARN;
    }
    assert_int_equal(faults, 1);
    assert_int_equal(warnings, 2); // 63, and one the table does not know
    hn_doctor_free(&doctor);
}

// Complaints: a card off the bus without any Xid; NCCL hangs with ACS and IOMMU on; profiling rights.
static void host_settings_that_hurt_are_told(void **state) {
    (void)state;
    clean_root();
    for (int i = 0; i < 3; i++) {
        char name[128];
        snprintf(name, sizeof name, "/sys/bus/pci/devices/0000:1%d:00.0/vendor", i);
        put(name, "0x10de\n");
        snprintf(name, sizeof name, "/sys/bus/pci/devices/0000:1%d:00.0/class", i);
        put(name, i == 1 ? "0x030000\n" : "0x030200\n");
    }
    unsigned char config[4096] = {0};
    config[0x100] = 0x01, config[0x102] = 0x01, config[0x103] = 0x20;                     // error reporting, next 0x200
    config[0x200] = 0x0d, config[0x202] = 0x01, config[0x206] = 0x1d;                     // access control: redirects
    put("/sys/bus/pci/devices/0000:00:01.0/class", "0x060400\n");
    put("/sys/bus/pci/devices/0000:00:01.0/vendor", "0x8086\n");
    put_bytes("/sys/bus/pci/devices/0000:00:01.0/config", config, sizeof config);
    config[0x206] = 0; // present, but off
    put("/sys/bus/pci/devices/0000:00:02.0/class", "0x060400\n");
    put_bytes("/sys/bus/pci/devices/0000:00:02.0/config", config, sizeof config);
    config[0x202] = 0x01, config[0x203] = 0x20, config[0x200] = 0x05; // a list that runs in a circle
    put("/sys/bus/pci/devices/0000:00:03.0/class", "0x060400\n");
    put_bytes("/sys/bus/pci/devices/0000:00:03.0/config", config, sizeof config);
    put("/sys/kernel/iommu_groups/1/type", "DMA-FQ\n");
    put("/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.1  x\n");
    put("/tmp/nvidia-mps/control", "");
    hn_doctor doctor = examine("cards=2", "nvml");
    expect(&doctor, "bus_count", "host", HN_LEVEL_FAULT, "shows 3 NVIDIA cards, the driver 2");
    expect(&doctor, "acs", "host", HN_LEVEL_WARN, "1 of 3");
    expect(&doctor, "iommu", "host", HN_LEVEL_WARN, "IOMMU");
    expect(&doctor, "driver_mismatch", "host", HN_LEVEL_FAULT, "590.48.01");
    expect(&doctor, "mps", "host", HN_LEVEL_NOTE, "MPS");
    hn_doctor_free(&doctor);
    put("/sys/kernel/iommu_groups/1/type", "identity\n");
    put("/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  590.48.01  x\n");
    doctor = examine("cards=3", "nvml");
    no_finding(&doctor, "iommu");
    no_finding(&doctor, "driver_mismatch");
    no_finding(&doctor, "bus_count");
    hn_doctor_free(&doctor);
    doctor = examine(NULL, ""); // driver loaded, nothing passed into the container
    expect(&doctor, "no_device_files", "host", HN_LEVEL_WARN, "no device files");
    hn_doctor_free(&doctor);
}

static void libraries_that_shadow_or_do_not_fit_are_told(void **state) {
    (void)state;
    clean_root();
    put("/usr/lib/x86_64-linux-gnu/libcudnn.so.9.1.0", "");
    char from[600], to[600];
    snprintf(from, sizeof from, "%s/usr/lib/x86_64-linux-gnu/libcudnn.so.9.1.0", g_root);
    snprintf(to, sizeof to, "%s/usr/lib/x86_64-linux-gnu/libcudnn.so.9", g_root);
    assert_int_equal(symlink(from, to), 0);
    put("/opt/mine/libcudnn.so.9.5.1", "");
    put("/opt/mine/libcublas.so.12.4.5.8", "");
    put("/usr/lib/x86_64-linux-gnu/libcublasLt.so.12.1.0.26", "");
    put("/usr/local/lib/python3.11/dist-packages/nvidia/cudnn/lib/libcudnn.so.9.10.2", "");
    put("/usr/local/cuda-13.0/lib64/libcudart.so.13.0.48", "");
    put("/usr/lib/x86_64-linux-gnu/libcudart.so.12.4.127", "");
    put("/usr/lib/x86_64-linux-gnu/libcudnn_ops.so.9", ""); // a part, not the library
    setenv("LD_LIBRARY_PATH", "/opt/mine:/nowhere", 1);
    hn_doctor doctor = examine("old", "nvml"); // driver 525.105
    unsetenv("LD_LIBRARY_PATH");
    int cudnn = 0, used = 0;
    for (size_t i = 0; i < doctor.libs.count; i++)
        if (strcmp(doctor.libs.data[i].family, "cuDNN") == 0) {
            cudnn++;
            used += doctor.libs.data[i].used;
            if (doctor.libs.data[i].used) assert_string_equal(doctor.libs.data[i].version, "9.5.1"); // LD_LIBRARY_PATH wins
        }
    assert_int_equal(cudnn, 3); // the link is no fourth
    assert_int_equal(used, 1);
    expect(&doctor, "shadowed", "libraries", HN_LEVEL_WARN, "cuDNN 9.5.1");
    expect(&doctor, "cublas_pair", "libraries", HN_LEVEL_FAULT, "cuBLAS 12.4.5.8 with cuBLASLt 12.1.0.26");
    expect(&doctor, "driver_too_old", "libraries", HN_LEVEL_WARN, "CUDA 13.0.48");
    hn_doctor_free(&doctor);
}

// The loader's own configuration, conda, containers that bring a driver's libraries, and what is not there.
static void paths_of_containers_and_conda_are_told(void **state) {
    (void)state;
    clean_root();
    put("/etc/ld.so.conf", "include /etc/ld.so.conf.d/*.conf\n");
    put("/etc/ld.so.conf.d/00-compat-13-0.conf", "# newer\n/usr/local/cuda-13.0/compat\n");
    put("/etc/ld.so.conf.d/zz-cuda.conf", "/usr/local/cuda-13.0/lib64\n");
    put("/etc/ld.so.conf.d/zz-cuda.conf.bak", "/opt/old\n");
    put("/opt/old/libcudnn.so.9.0.0", "");
    put("/usr/local/cuda-13.0/compat/libcuda.so.580.65.06", "");
    put("/usr/local/cuda-13.0/lib64/libcublasLt.so.13.0.0.19", "");
    put("/opt/env/lib/libcublasLt.so.13.1.0.3", "");
    put("/opt/env/lib/python3.12/site-packages/nvidia/cudnn/lib/libcudnn.so.9.5.1", "");
    setenv("CONDA_PREFIX", "/opt/env", 1);
    hn_doctor doctor = examine("", "nvml"); // driver 590
    int seen = 0;
    for (size_t i = 0; i < doctor.libs.count; i++) {
        const hn_found_lib *lib = &doctor.libs.data[i];
        seen |= strcmp(lib->version, "13.0.0.19") == 0 && lib->used ? 1 : 0;
        seen |= strcmp(lib->version, "13.1.0.3") == 0 && !lib->used ? 2 : 0;
        seen |= strcmp(lib->version, "9.5.1") == 0 && !lib->used ? 4 : 0;
        seen |= strcmp(lib->version, "9.0.0") == 0 ? 8 : 0; // not a .conf file
    }
    assert_int_equal(seen, 7);
    expect(&doctor, "shadowed", "libraries", HN_LEVEL_WARN, "cuBLASLt 13.0.0.19");
    expect(&doctor, "cuda_compat", "libraries", HN_LEVEL_FAULT, "libcuda 580.65.06");
    no_finding(&doctor, "driver_libraries");
    bool dcgm = false, nvrtc = false;
    for (size_t i = 0; i < doctor.missing.count; i++) {
        dcgm |= strcmp(doctor.missing.data[i].family, "DCGM") == 0 && strstr(doctor.missing.data[i].lost, "before Hopper");
        nvrtc |= strcmp(doctor.missing.data[i].family, "NVRTC") == 0;
        if (strcmp(doctor.missing.data[i].family, "cuDNN") == 0) fail_msg("cuDNN is there");
    }
    assert_true(dcgm && nvrtc);
    hn_str text = {0};
    hn_doctor_text(&text, &doctor);
    assert_non_null(strstr(hn_str_get(&text), "Not found, and lost by it\n"));
    assert_non_null(strstr(hn_str_get(&text), "  - DCGM           SM, tensor and DRAM activity of cards before Hopper\n"));
    hn_str_free(&text);
    hn_doctor_free(&doctor);
    // Where the host's driver is older than the compat library, that is what it is for.
    doctor = examine("old", "nvml");
    no_finding(&doctor, "cuda_compat");
    hn_doctor_free(&doctor);
    // An image with a driver's libraries of its own.
    put("/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.550.54.15", "");
    put("/usr/local/nvidia/lib64/libnvidia-ml.so.590.48.01", "");
    char from[600], to[600];
    for (int i = 0; i < 2; i++) {
        const char *folder = i ? "/usr/local/nvidia/lib64" : "/usr/lib/x86_64-linux-gnu";
        snprintf(from, sizeof from, "%s%s/libnvidia-ml.so.%s", g_root, folder, i ? "590.48.01" : "550.54.15");
        snprintf(to, sizeof to, "%s%s/libnvidia-ml.so.1", g_root, folder);
        assert_int_equal(symlink(from, to), 0);
    }
    doctor = examine("", "nvml");
    expect(&doctor, "driver_libraries", "libraries", HN_LEVEL_WARN, "NVML 550.54.15");
    hn_doctor_free(&doctor);
    unsetenv("CONDA_PREFIX");
}

static void data_sheets_follow_measures_not_names(void **state) {
    (void)state;
    static const struct {
        double cc, sms, memory_gb, bus, clock, links;
        const char *sheet; // NULL = none
    } k_cards[] = {
        {80, 108, 85.9, 5120, 1593, 12, "A100 SXM 80GB"}, {80, 108, 85.9, 5120, 1593, 8, "A800 SXM 80GB"},
        {80, 108, 42.5, 5120, 1215, 12, "A100 SXM 40GB"}, {90, 132, 85.5, 5120, 2619, 18, "H100 SXM 80GB"},
        {90, 132, 85.5, 5120, 2619, 8, "H800 SXM 80GB"},  {90, 132, 150.7, 6016, 3201, 18, "H200 SXM 141GB"},
        {90, 78, 102, 6144, 2619, 18, "H20 SXM 96GB"},    {89, 142, 48.3, 384, 9001, NAN, "L40S"},
        {90, 132, 150.7, 6016, 3201, NAN, "H200 SXM 141GB"}, {90, 66, 40, 2560, 2619, 18, NULL}, {75, 40, 16.1, 256, 5001, NAN, "T4"},
        {120, 188, 96, 512, 14001, NAN, NULL},
    };
    for (size_t i = 0; i < HN_COUNT_OF(k_cards); i++) {
        hn_device_info info;
        hn_device_info_init(&info, HN_DEVICE_GPU);
        snprintf(info.name, sizeof info.name, "NVIDIA A100"); // whatever it is called
        info.cc_major = floor(k_cards[i].cc / 10);
        info.cc_minor = fmod(k_cards[i].cc, 10);
        info.sm_count = k_cards[i].sms;
        info.memory_bytes = k_cards[i].memory_gb * 1e9;
        info.bus_width_bits = k_cards[i].bus;
        info.max_mem_clock_mhz = k_cards[i].clock;
        info.nvlink_count = k_cards[i].links;
        const hn_sheet *sheet = hn_sheet_find(&info);
        const char *got = sheet ? sheet->name : NULL;
        if ((got == NULL) != (k_cards[i].sheet == NULL) || (got && strcmp(got, k_cards[i].sheet) != 0))
            fail_msg("card %zu: %s, expected %s", i, got ? got : "none", k_cards[i].sheet ? k_cards[i].sheet : "none");
    }
}

static void readings_of_texts_are_examined_too(void **state) {
    (void)state;
    clean_root();
    char source[600];
    put("/p.prom", "DCGM_FI_DEV_GPU_UTIL{gpu=\"0\",UUID=\"a\",modelName=\"X\"} 91\nDCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu=\"0\",UUID=\"a\"} 0.156\n"
                   "DCGM_FI_DEV_GPU_UTIL{gpu=\"1\",UUID=\"b\",modelName=\"X\"} 0\nDCGM_FI_DEV_POWER_USAGE{gpu=\"1\",UUID=\"b\"} 113\n"
                   "DCGM_FI_DEV_GPU_UTIL{gpu=\"2\",UUID=\"c\",modelName=\"X\"} 0\nDCGM_FI_DEV_POWER_USAGE{gpu=\"2\",UUID=\"c\"} 66\n"
                   "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS{gpu=\"2\",UUID=\"c\"} 136\n");
    snprintf(source, sizeof source, "text:%s/p.prom", g_root);
    hn_doctor doctor = examine(NULL, source);
    expect(&doctor, "low_density", "gpu 0", HN_LEVEL_NOTE, "only 16 %");
    expect(&doctor, "parked_hot", "gpu 1", HN_LEVEL_NOTE, "113 W");
    assert_null(find(&doctor, "parked_hot", "gpu 2"));
    expect(&doctor, "throttled", "gpu 2", HN_LEVEL_FAULT, "power brake");
    hn_str text = {0};
    hn_doctor_text(&text, &doctor);
    assert_null(strstr(hn_str_get(&text), "kernels use")); // this machine's CPU is not that card's
    hn_str_free(&text);
    hn_doctor_free(&doctor);
    hone_error err = {0};
    hn_doctor_options options = {.source = "text:/nonexistent"};
    assert_int_equal(hn_doctor_run(&err, &options, &doctor), HONE_ERR_INPUT);
}

static hone_status two_ceilings(hone_error *err, const hn_ceilings_wanted *wanted, hn_ceiling *out_items, int max_items,
                                int *out_count) {
    (void)err, (void)wanted, (void)max_items;
    out_items[0] = (hn_ceiling){.name = "gemm f32", .unit = "GFLOPS", .measured = 80, .sheet = 100};
    out_items[1] = (hn_ceiling){.name = "gemm int8", .unit = "GOPS", .measured = 500, .sheet = NAN};
    *out_count = 2;
    return HONE_OK;
}
static void a_backend_adds_its_ceilings(void **state) {
    (void)state;
    clean_root();
    hone_error err = {0};
    hn_doctor doctor;
    setenv("HONE_NVML_LIB", "/nonexistent", 1);
    hn_doctor_options options = {.measure = true, .ceilings = two_ceilings};
    assert_int_equal(hn_doctor_run(&err, &options, &doctor), HONE_OK);
    hn_str text = {0};
    hn_doctor_text(&text, &doctor);
    assert_non_null(strstr(hn_str_get(&text), "(80 % of 100)"));
    assert_non_null(strstr(hn_str_get(&text), "gemm int8"));
    hn_str_free(&text);
    hn_doctor_free(&doctor);
}

int main(void) {
    const char *build = getenv("HONE_BUILD_DIR");
    if (!build) build = "build";
    snprintf(g_root, sizeof g_root, "%s/test-probe-doctor", build);
    snprintf(g_nvml, sizeof g_nvml, "%s/fakes/libnvidia-ml.so", build);
    snprintf(g_dcgm, sizeof g_dcgm, "%s/fakes/libdcgm.so", build);
    mkdir(g_root, 0777);
    hn_cpu_get(); // this machine's, before the root moves
    setenv("HONE_SYS_ROOT", g_root, 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_machine_without_card_says_why_in_one_line),
        cmocka_unit_test(healthy_cards_have_no_findings),
        cmocka_unit_test(faults_of_cards_are_told),
        cmocka_unit_test(the_kernel_log_gives_xids_by_class),
        cmocka_unit_test(host_settings_that_hurt_are_told),
        cmocka_unit_test(libraries_that_shadow_or_do_not_fit_are_told),
        cmocka_unit_test(paths_of_containers_and_conda_are_told),
        cmocka_unit_test(data_sheets_follow_measures_not_names),
        cmocka_unit_test(readings_of_texts_are_examined_too),
        cmocka_unit_test(a_backend_adds_its_ceilings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
