// SPDX-License-Identifier: Apache-2.0
// Every file of data/fleet/{smi,dcgm} beside the checkout reads to what its MANIFEST.tsv says.
#include <dirent.h>
#include <unistd.h>
#include "support/test.h"
#include "probe/ncu.h"
#include "probe/text.h"

static char g_data[512];

static hn_text read_file(const char *name) {
    char path[1024], *data;
    size_t bytes;
    hone_error err = {0};
    hn_text text;
    snprintf(path, sizeof path, "%s/%s", g_data, name);
    if (hn_file_read(&err, path, HN_TEXT_BYTES_MAX, &data, &bytes) != HONE_OK) fail_msg("%s", err.text);
    if (hn_text_parse(&err, name, data, bytes, &text) != HONE_OK) fail_msg("%s: %s", name, err.text);
    hn_free(data);
    return text;
}

typedef struct expect {
    const char *file;
    int device, row; // row among the device's rows
    hn_metric metric;
    double value; // NAN = absent
} expect;

#define GIB(mib) ((mib) * 0x1p20)
#define M(token) HN_M_##token
static const expect k_expect[] = {
    {"smi/01-h200-q-load.txt", 0, 0, M(power_w), 627.32},
    {"smi/03-h100-q-load.txt", 0, 0, M(power_w), 629.45},
    {"smi/03-h100-q-load.txt", 0, 0, M(power_instant_w), 588.39},
    {"smi/03-h100-q-load.txt", 0, 0, M(gpu_temp_c), 59},
    {"smi/03-h100-q-load.txt", 0, 0, M(sm_clock_mhz), 1980},
    {"smi/08-h100-query-gpu-idle-then-load.csv", 0, 0, M(power_w), 69.85},
    {"smi/08-h100-query-gpu-idle-then-load.csv", 0, 1, M(power_w), 631.95},
    {"smi/08-h100-query-gpu-idle-then-load.csv", 0, 1, M(fb_used_bytes), GIB(19818)},
    {"smi/08-h100-query-gpu-idle-then-load.csv", 0, 1, M(mem_temp_c), 54},
    {"smi/01-h200-q-load.txt", 0, 0, M(power_instant_w), 625.24},
    {"smi/01-h200-q-load.txt", 0, 0, M(memory_power_w), 97.69},
    {"smi/01-h200-q-load.txt", 0, 0, M(power_limit_w), 700},
    {"smi/01-h200-q-load.txt", 0, 0, M(gpu_util), 100},
    {"smi/01-h200-q-load.txt", 0, 0, M(mem_util), 7},
    {"smi/01-h200-q-load.txt", 0, 0, M(fb_used_bytes), GIB(32362)},
    {"smi/01-h200-q-load.txt", 0, 0, M(gpu_temp_c), 52},
    {"smi/01-h200-q-load.txt", 0, 0, M(temp_margin_c), 35},
    {"smi/01-h200-q-load.txt", 0, 0, M(mem_temp_c), 41},
    {"smi/01-h200-q-load.txt", 0, 0, M(sm_clock_mhz), 1980},
    {"smi/01-h200-q-load.txt", 0, 0, M(pcie_tx_bytes_s), 4217e3},
    {"smi/01-h200-q-load.txt", 0, 0, M(pcie_gen), 5},
    {"smi/01-h200-q-load.txt", 0, 0, M(pcie_width), 16},
    {"smi/01-h200-q-load.txt", 0, 0, M(throttle_power_ns), 0},
    {"smi/01-h200-q-load.txt", 0, 0, M(reasons), 0},
    {"smi/01-h200-q-load.txt", 0, 0, M(remapped_uncorrectable), 0},
    {"smi/01-h200-q-load.txt", 0, 0, M(retired_dbe), NAN},
    {"smi/01-h200-q-load.txt", 0, 0, M(fan_percent), NAN},
    {"smi/01-h200-q-load.txt", 0, 0, M(pstate), 0},
    {"smi/01-h200-q-load.txt", 0, 0, M(sm_active), NAN},
    {"smi/02-h200mig-q-load.txt", 0, 0, M(gpu_util), NAN},
    {"smi/02-h200mig-q-load.txt", 0, 0, M(mem_util), NAN},
    {"smi/02-h200mig-q-load.txt", 1, 0, M(fb_used_bytes), GIB(16925)},
    {"smi/02-h200mig-q-load.txt", 3, 0, M(fb_total_bytes), GIB(33280)},
    {"smi/02-h200mig-q-load.txt", 5, 0, M(fb_free_bytes), GIB(16376)},
    {"smi/05-l40s-q-load.txt", 0, 0, M(mem_temp_c), NAN},
    {"smi/06-h200-query-gpu-idle-then-load.csv", 0, 0, M(power_w), 77.71},
    {"smi/06-h200-query-gpu-idle-then-load.csv", 0, 0, M(power_instant_w), 78.21},
    {"smi/06-h200-query-gpu-idle-then-load.csv", 0, 0, M(reasons), 1},
    {"smi/06-h200-query-gpu-idle-then-load.csv", 0, 0, M(sm_clock_mhz), 345},
    {"smi/06-h200-query-gpu-idle-then-load.csv", 0, 0, M(throttle_brake_ns), 0},
    {"smi/06-h200-query-gpu-idle-then-load.csv", 0, 1, M(power_w), 627.40},
    {"smi/06-h200-query-gpu-idle-then-load.csv", 0, 1, M(gpu_util), 100},
    {"smi/06-h200-query-gpu-idle-then-load.csv", 0, 1, M(reasons), 0},
    {"smi/06-h200-query-gpu-idle-then-load.csv", 0, 1, M(fb_used_bytes), GIB(32362)},
    {"smi/06-h200-query-gpu-idle-then-load.csv", 0, 1, M(retired_sbe), NAN},
    {"smi/06-h200-query-gpu-idle-then-load.csv", 0, 1, M(remap_failure), 0},
    {"smi/06-h200-query-gpu-idle-then-load.csv", 0, 1, M(fan_percent), NAN},
    {"smi/07-h200mig-query-gpu-idle-then-load.csv", 0, 1, M(gpu_util), NAN},
    {"smi/07-h200mig-query-gpu-idle-then-load.csv", 0, 1, M(sm_clock_mhz), 1980},
    {"smi/10-h200-dmon-pmon-load.txt", 0, 0, M(power_w), 630},
    {"smi/10-h200-dmon-pmon-load.txt", 0, 3, M(gpu_temp_c), 54},
    {"smi/10-h200-dmon-pmon-load.txt", 0, 4, M(mem_temp_c), 42},
    {"smi/10-h200-dmon-pmon-load.txt", 0, 4, M(mem_clock_mhz), 3201},
    {"smi/10-h200-dmon-pmon-load.txt", 0, 4, M(gpu_util), 100},
    {"smi/11-h200mig-dmon-pmon-load.txt", 0, 0, M(power_w), 295},
    {"smi/11-h200mig-dmon-pmon-load.txt", 0, 0, M(gpu_util), NAN},
    {"smi/11-h200mig-dmon-pmon-load.txt", 0, 0, M(enc_util), NAN},
    {"smi/13-a100-sxm4-q-555.txt", 0, 0, M(power_w), 59.77},
    {"smi/13-a100-sxm4-q-555.txt", 0, 0, M(power_instant_w), NAN},
    {"smi/13-a100-sxm4-q-555.txt", 0, 0, M(reasons), 1},
    {"smi/13-a100-sxm4-q-555.txt", 0, 0, M(voltage_mv), 706.25},
    {"smi/13-a100-sxm4-q-555.txt", 0, 0, M(throttle_power_ns), NAN},
    {"smi/15-a100-sxm4-xml-v12.xml", 0, 0, M(power_w), 67.03},
    {"smi/15-a100-sxm4-xml-v12.xml", 0, 0, M(power_limit_w), 500},
    {"smi/15-a100-sxm4-xml-v12.xml", 0, 0, M(gpu_util), NAN},
    {"smi/15-a100-sxm4-xml-v12.xml", 0, 0, M(reasons), 0},
    {"smi/15-a100-sxm4-xml-v12.xml", 0, 0, M(voltage_mv), 912.5},
    {"smi/15-a100-sxm4-xml-v12.xml", 1, 0, M(fb_used_bytes), GIB(12)},
    {"smi/16-rtx3080-xml-v13.xml", 0, 0, M(power_w), 139.62},
    {"smi/16-rtx3080-xml-v13.xml", 0, 0, M(power_instant_w), 142.33},
    {"smi/16-rtx3080-xml-v13.xml", 0, 0, M(gpu_util), 65},
    {"smi/16-rtx3080-xml-v13.xml", 0, 0, M(mem_temp_c), NAN},
    {"smi/16-rtx3080-xml-v13.xml", 0, 0, M(ecc_dbe_volatile), NAN},
    {"smi/16-rtx3080-xml-v13.xml", 0, 0, M(fan_percent), 0},
    {"smi/16-rtx3080-xml-v13.xml", 0, 0, M(pcie_rx_bytes_s), 14742333e3},
    {"smi/16-rtx3080-xml-v13.xml", 0, 0, M(pstate), 2},
    {"smi/17-t4-xml-v11.xml", 0, 0, M(power_w), 26.78},
    {"smi/17-t4-xml-v11.xml", 0, 0, M(power_limit_w), 70},
    {"smi/17-t4-xml-v11.xml", 0, 0, M(reasons), 0},
    {"smi/17-t4-xml-v11.xml", 0, 0, M(pcie_width), 8},
    {"smi/17-t4-xml-v11.xml", 0, 0, M(ecc_dbe_volatile), 0},
    {"smi/18-a100-mig-xml.xml", 0, 0, M(gpu_util), NAN},
    {"smi/18-a100-mig-xml.xml", 0, 0, M(power_w), 66.92},
    {"smi/18-a100-mig-xml.xml", 1, 0, M(fb_used_bytes), GIB(19)},
    {"smi/18-a100-mig-xml.xml", 0, 0, M(ecc_dbe_volatile), NAN},
    {"smi/18-a100-mig-xml.xml", 0, 0, M(ecc_dbe_aggregate), 0},
    {"smi/20-p100-xml.xml", 0, 0, M(power_w), 26.16},
    {"smi/20-p100-xml.xml", 0, 0, M(ecc_sbe_aggregate), 3},
    {"smi/20-p100-xml.xml", 0, 0, M(ecc_dbe_aggregate), 0},
    {"smi/20-p100-xml.xml", 0, 0, M(reasons), 1},
    {"smi/20-p100-xml.xml", 0, 0, M(mem_temp_c), NAN},
    {"dcgm/01-l40s-k8s-idle-full.prom", 0, 0, M(sm_clock_mhz), 210},
    {"dcgm/01-l40s-k8s-idle-full.prom", 0, 0, M(mem_temp_c), NAN}, // 0 = not measured
    {"dcgm/01-l40s-k8s-idle-full.prom", 0, 0, M(power_w), 35.686},
    {"dcgm/01-l40s-k8s-idle-full.prom", 0, 0, M(energy_mj), 5551899580.0},
    {"dcgm/01-l40s-k8s-idle-full.prom", 0, 0, M(xid), NAN},
    {"dcgm/01-l40s-k8s-idle-full.prom", 0, 0, M(nvlink_bandwidth), NAN},
    {"dcgm/02-t4-loaded-no-help-lines.prom", 0, 0, M(gpu_util), 91},
    {"dcgm/02-t4-loaded-no-help-lines.prom", 0, 0, M(gr_active), 0.156205},
    {"dcgm/02-t4-loaded-no-help-lines.prom", 0, 0, M(fb_used_bytes), GIB(5120)},
    {"dcgm/03-h100-8g-pod-labels-on-one.prom", 0, 0, M(power_w), 113.611},
    {"dcgm/03-h100-8g-pod-labels-on-one.prom", 7, 0, M(gpu_temp_c), 26},
    {"dcgm/05-a800-8g-mig-invalid-values.prom", 0, 0, M(fb_used_bytes), 2 * 0x1p20},
    {"dcgm/06-readme-blank-sentinel.prom", 0, 0, M(sm_clock_mhz), 139},
    {"dcgm/06-readme-blank-sentinel.prom", 0, 0, M(mem_clock_mhz), 405},
    {"dcgm/06-readme-blank-sentinel.prom", 0, 0, M(mem_temp_c), NAN},
    {"dcgm/08-nvidia-smi-exporter-h200-load.metrics", 0, 0, M(power_w), 627.4},
    {"dcgm/08-nvidia-smi-exporter-h200-load.metrics", 0, 0, M(power_instant_w), 626.26},
    {"dcgm/08-nvidia-smi-exporter-h200-load.metrics", 0, 0, M(sm_clock_mhz), 1980},
    {"dcgm/08-nvidia-smi-exporter-h200-load.metrics", 0, 0, M(gpu_util), 100},
    {"dcgm/08-nvidia-smi-exporter-h200-load.metrics", 0, 0, M(mem_util), 7},
    {"dcgm/08-nvidia-smi-exporter-h200-load.metrics", 0, 0, M(fb_total_bytes), 150754820096.0},
    {"dcgm/08-nvidia-smi-exporter-h200-load.metrics", 0, 0, M(processes), 3},
};

static const hn_sample *find_row(const hn_text *text, int device, int row) {
    for (size_t i = 0; i < text->rows.count; i++)
        if (text->rows.data[i].device == device && row-- == 0) return &text->rows.data[i].sample;
    return NULL;
}

static void files_read_to_their_values(void **state) {
    (void)state;
    int bad = 0;
    for (size_t i = 0; i < HN_COUNT_OF(k_expect); i++) {
        const expect *e = &k_expect[i];
        hn_text text = read_file(e->file);
        const hn_sample *s = find_row(&text, e->device, e->row);
        bool has = s && hn_sample_has(s, e->metric);
        bool ok = s && (isnan(e->value) ? !has : has && fabs(s->value[e->metric] - e->value) <= 1e-12 * fabs(e->value));
        if (!ok) {
            print_error("%s device %d row %d %s: %s %.10g, expected %.10g\n", e->file, e->device, e->row,
                        hn_metric_rows[e->metric].token, !s ? "no row" : has ? "is" : "absent",
                        has ? s->value[e->metric] : NAN, e->value);
            bad++;
        }
        hn_text_free(&text);
    }
    assert_int_equal(bad, 0);
}

static void facts_devices_and_processes(void **state) {
    (void)state;
    hn_text t = read_file("smi/01-h200-q-load.txt");
    assert_int_equal(t.devices.count, 1);
    const hn_device_info *info = t.devices.data;
    assert_string_equal(info->name, "NVIDIA H200");
    assert_string_equal(info->pci_bus_id, "00000000:83:00.0");
    assert_string_equal(info->driver, "590.48.01");
    assert_string_equal(info->cuda, "13.1");
    assert_string_equal(info->fabric_state, "Completed");
    assert_true(info->power_limit_min_w == 200 && info->power_limit_max_w == 700 && info->persistence == 1 &&
                info->ecc == 1 && info->pcie_gen_max == 5 && info->max_sm_clock_mhz == 1980);
    assert_int_equal(t.processes.count, 3);
    assert_int_equal(t.processes.data[2].process.pid, 10309);
    assert_string_equal(t.processes.data[2].process.name, "./gpu_burn");
    assert_int_equal(t.processes.data[2].process.used_bytes, (int64_t)28234 << 20);
    assert_int_equal(t.processes.data[2].process.gi_id, -1);
    assert_true(t.rows.data[0].sample.wall_ns == INT64_C(1783116669000000000));
    hn_text_free(&t);
    t = read_file("smi/02-h200mig-q-load.txt");
    assert_int_equal(t.devices.count, 6); // the card and five instances
    assert_true(t.devices.data[2].kind == HN_DEVICE_MIG && t.devices.data[2].gi_id == 2 &&
                t.devices.data[2].ci_id == 1 && t.devices.data[2].sm_count == 32);
    assert_int_equal(t.processes.data[0].process.gi_id, 2);
    assert_int_equal(t.processes.data[0].process.ci_id, 1);
    hn_text_free(&t);
    t = read_file("smi/15-a100-sxm4-xml-v12.xml");
    assert_int_equal(t.devices.data[0].kind, HN_DEVICE_GPU);
    assert_true(t.devices.count > 4 && t.devices.data[1].gi_id == 3 && t.devices.data[1].sm_count == 14);
    assert_string_equal(t.driver, "535.54.03");
    assert_string_equal(t.devices.data[0].mig_mode, "Enabled");
    hn_text_free(&t);
    t = read_file("smi/17-t4-xml-v11.xml");
    assert_int_equal(t.processes.count, 2);
    assert_int_equal(t.processes.data[0].process.pid, 675);
    assert_int_equal(t.processes.data[0].process.type, HN_PROCESS_GRAPHICS);
    hn_text_free(&t);
    t = read_file("smi/06-h200-query-gpu-idle-then-load.csv");
    assert_int_equal(t.rows.count, 2);
    assert_true(t.devices.data[0].cc_major == 9);
    assert_int_equal((t.rows.data[1].sample.wall_ns - t.rows.data[0].sample.wall_ns) / 1000000, 23654);
    assert_int_equal(t.skipped, 0);
    hn_text_free(&t);
    t = read_file("smi/10-h200-dmon-pmon-load.txt");
    assert_int_equal(t.rows.count, 5);
    assert_int_equal(t.processes.count, 3); // the last of five listings
    assert_true(t.processes.data[2].process.sm_util == 99 && isnan(t.processes.data[1].process.sm_util));
    assert_string_equal(t.processes.data[2].process.name, "gpu_burn");
    hn_text_free(&t);
    t = read_file("dcgm/03-h100-8g-pod-labels-on-one.prom");
    assert_int_equal(t.devices.count, 8);
    int with = 0; // the last family is cut after six cards
    for (int d = 0; d < 8; d++)
        for (int m = 0, full = 1; m < HN_METRIC_COUNT && full; m++)
            if (hn_sample_has(find_row(&t, 0, 0), (hn_metric)m) && !hn_sample_has(find_row(&t, d, 0), (hn_metric)m)) full = 0, with++;
    assert_int_equal(with, 2);
    hn_text_free(&t);
    t = read_file("dcgm/05-a800-8g-mig-invalid-values.prom");
    int mig = 0, cards = 0;
    for (size_t d = 0; d < t.devices.count; d++) {
        mig += t.devices.data[d].kind == HN_DEVICE_MIG;
        cards += t.devices.data[d].kind == HN_DEVICE_GPU;
        if (t.devices.data[d].kind == HN_DEVICE_MIG) assert_string_equal(t.devices.data[d].mig_profile, "2g.20gb");
    }
    assert_int_equal(mig, 3);
    assert_int_equal(cards, 8);
    assert_true(t.skipped > 0);
    hn_text_free(&t);
    t = read_file("dcgm/08-nvidia-smi-exporter-h200-load.metrics");
    assert_int_equal(t.devices.count, 1);
    assert_string_equal(t.devices.data[0].name, "NVIDIA H200");
    assert_int_equal(t.processes.count, 3);
    assert_int_equal(t.processes.data[0].process.used_bytes, 2690646016);
    hn_text_free(&t);
}

// No sentinel and no error text comes out of any file, under any metric.
static void no_sentinel_leaves_any_file(void **state) {
    (void)state;
    static const char *const k_folders[] = {"smi", "dcgm"};
    int files = 0;
    for (int f = 0; f < 2; f++) {
        char path[1024];
        snprintf(path, sizeof path, "%s/%s", g_data, k_folders[f]);
        DIR *dir = opendir(path);
        assert_non_null(dir);
        for (struct dirent *entry; (entry = readdir(dir));) {
            if (entry->d_name[0] == '.' || strstr(entry->d_name, ".tsv") || strncmp(entry->d_name, "12-", 3) == 0) continue;
            snprintf(path, sizeof path, "%s/%s", k_folders[f], entry->d_name);
            hn_text t = read_file(path);
            files++;
            for (size_t r = 0; r < t.rows.count; r++)
                for (int m = 0; m < HN_METRIC_COUNT; m++) {
                    if (!hn_sample_has(&t.rows.data[r].sample, (hn_metric)m)) continue;
                    double v = t.rows.data[r].sample.value[m];
                    bool wild = v < -50 || v > 1e16 || (strcmp(hn_metric_rows[m].unit, "ratio") == 0 && v > 1.001) ||
                                (strcmp(hn_metric_rows[m].unit, "%") == 0 && v > 100);
                    if (wild) fail_msg("%s: %s = %g", path, hn_metric_rows[m].token, v);
                }
            hn_text_free(&t);
        }
        closedir(dir);
    }
    assert_true(files >= 20);
}

// The list of query names of driver 590 knows every CSV name in our table that is not an old alias.
static void csv_names_are_the_tools_names(void **state) {
    (void)state;
    char path[1024], *data;
    size_t bytes;
    snprintf(path, sizeof path, "%s/smi/12-help-query-gpu-590.txt", g_data);
    assert_int_equal(hn_file_read(NULL, path, 1 << 20, &data, &bytes), HONE_OK);
    static const char *const k_names[] = {"power.draw.instant", "clocks_event_reasons.active", "temperature.gpu.tlimit",
        "clocks_event_reasons_counters.sw_power_cap", "remapped_rows.failure", "pcie.link.gen.gpumax", "utilization.ofa",
        "enforced.power.limit", "ecc.errors.uncorrected.aggregate.total", "retired_pages.double_bit.count"};
    for (size_t i = 0; i < HN_COUNT_OF(k_names); i++) {
        char quoted[128];
        snprintf(quoted, sizeof quoted, "\"%s\"", k_names[i]);
        if (!strstr(data, quoted)) fail_msg("%s", k_names[i]);
    }
    hn_free(data);
}

static void ncu_files(void **state) {
    (void)state;
    char path[1024], *data;
    size_t bytes;
    hone_error err = {0};
    hn_ncu_report r;
    snprintf(path, sizeof path, "%s/ncu/01-a100-vector-add-basic-set.csv", g_data);
    assert_int_equal(hn_file_read(&err, path, 1 << 20, &data, &bytes), HONE_OK);
    if (hn_ncu_parse(&err, "01", data, bytes, &r) != HONE_OK) fail_msg("%s", err.text);
    hn_free(data);
    assert_int_equal(r.kernels.count, 1);
    const hn_ncu_kernel *k = &r.kernels.data[0];
    assert_true(k->cc_major == 8 && k->cc_minor == 0 && k->grid_blocks == 4096 && k->block_threads == 256);
    assert_true(hn_ncu_duration_ns(k) == 10208);
    assert_true(hn_ncu_find(k, "DRAM Throughput")->value == 53.13);
    assert_true(hn_ncu_find(k, "DRAM Frequency")->value == 1208777429.47);
    assert_int_equal(hn_ncu_bound_by(k), HN_NCU_MEMORY);
    assert_true(k->remarks.count >= 1);
    hn_ncu_free(&r);
    snprintf(path, sizeof path, "%s/ncu/02-gb200-cublaslt-fp8-one-kernel.csv", g_data);
    assert_int_equal(hn_file_read(&err, path, 1 << 20, &data, &bytes), HONE_OK);
    if (hn_ncu_parse(&err, "02", data, bytes, &r) != HONE_OK) fail_msg("%s", err.text);
    hn_free(data);
    assert_int_equal(r.kernels.count, 1);
    k = &r.kernels.data[0];
    assert_true(k->cc_major == 10 && k->block_threads == 384 && k->grid_blocks == 288);
    assert_true(hn_ncu_find(k, "Registers Per Thread")->value == 168);
    hn_ncu_free(&r);
    snprintf(path, sizeof path, "%s/ncu/04-summary-min-max-avg-elided.csv", g_data);
    assert_int_equal(hn_file_read(&err, path, 1 << 20, &data, &bytes), HONE_OK);
    assert_int_equal(hn_ncu_parse(&err, "04", data, bytes, &r), HONE_ERR_FORMAT);
    assert_non_null(strstr(err.text, "line 1"));
    hn_free(data);
}

int main(void) {
    const char *source = getenv("HONE_SOURCE_DIR");
    snprintf(g_data, sizeof g_data, "%s/../shared/data/fleet", source ? source : ".");
    if (access(g_data, R_OK) != 0) return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_read_to_their_values),
        cmocka_unit_test(facts_devices_and_processes),
        cmocka_unit_test(no_sentinel_leaves_any_file),
        cmocka_unit_test(csv_names_are_the_tools_names),
        cmocka_unit_test(ncu_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
