// SPDX-License-Identifier: Apache-2.0
// Readers of other tools' texts: each trap of the field as a small text of our own.
#include <sys/stat.h>
#include <unistd.h>
#include "support/test.h"
#include "probe/ncu.h"
#include "probe/text_int.h"

static hn_text parse(const char *data) {
    hone_error err = {0};
    hn_text text;
    if (hn_text_parse(&err, "t", data, strlen(data), &text) != HONE_OK) fail_msg("%s", err.text);
    return text;
}
static void refuse(const char *data, const char *says) {
    hone_error err = {0};
    hn_text text;
    assert_int_equal(hn_text_parse(&err, "t", data, strlen(data), &text), HONE_ERR_FORMAT);
    if (!strstr(err.text, says)) fail_msg("'%s' lacks '%s'", err.text, says);
}
static double value(const hn_text *t, int device, int row, hn_metric metric) {
    for (size_t i = 0; i < t->rows.count; i++)
        if (t->rows.data[i].device == device && row-- == 0) return hn_sample_or(&t->rows.data[i].sample, metric, NAN);
    fail_msg("no such row");
    return NAN;
}
#define V(t, d, r, m)         value(&(t), d, r, HN_M_##m)
#define ABSENT(t, d, r, m)    assert_true(isnan(V(t, d, r, m)))

static void every_key_row_has_a_target(void **state) {
    (void)state;
    for (size_t i = 0; i < hn_text_key_count; i++) {
        const hn_text_key *key = &hn_text_keys[i];
        hn_slice target = {key->target, strlen(key->target)};
        bool known = key->what == HN_TEXT_info ? hn_info_by_name(target) != NULL
                                               : hn_metric_by_token(target) != HN_METRIC_COUNT;
        if (!known) fail_msg("%s -> %s", key->key, key->target);
        for (size_t k = 0; k < i; k++)
            if (hn_text_keys[k].format == key->format && strcmp(hn_text_keys[k].key, key->key) == 0 &&
                strcmp(hn_text_keys[k].target, key->target) == 0)
                fail_msg("%s twice", key->key);
    }
}

static void quantities_are_numbers_in_a_known_unit(void **state) {
    (void)state;
    static const struct {
        const char *text, *hint, *unit;
        double value; // NAN = none
    } k_cases[] = {
        {"627.32 W", "", "W", 627.32}, {"912.500 mV", "", "mV", 912.5}, {"143771 MiB", "", "B", 143771 * 0x1p20},
        {"16x", "", "", 16}, {"P2", "", "", 2}, {"0x0000000000000004", "", "", 4}, {"Not Active", "", "", 0},
        {"[Yes]", "", "", 1}, {"0 us", "", "ns", 0}, {"12 us", "", "ns", 12000}, {"55", "%", "%", 55},
        {"55 %", "", "ratio", 0.55}, {"4217 KB/s", "", "B/s", 4217e3}, {"3", "MB", "B", 3 * 0x1p20},
        {"630", "W", "W", 630}, {"-8 C", "", "C", -8},
        {"N/A", "", "W", NAN}, {"[N/A]", "", "W", NAN}, {"[Unknown Error]", "W", "W", NAN}, {"ERR!", "", "C", NAN},
        {"-", "%", "%", NAN}, {"", "", "W", NAN}, {"Requested functionality has been deprecated", "", "", NAN},
        {"600 C", "", "W", NAN}, {"600 frobs", "", "W", NAN}, {"P2", "", "W", NAN}, {"nan", "", "W", NAN},
        {"inf", "", "W", NAN}, {"1e999", "", "W", NAN}, {"2147483634", "", "C", NAN},
        {"9223372036854775794", "", "C", NAN}, {"140737488355330", "", "ratio", NAN}, {"0x", "", "", NAN},
        {"GPU requires reset", "", "C", NAN}, {"12 34", "", "W", NAN}, {"Active", "", "W", NAN}, {"7-", "", "W", NAN},
    };
    for (size_t i = 0; i < HN_COUNT_OF(k_cases); i++) {
        double got = NAN;
        hn_slice text = {k_cases[i].text, strlen(k_cases[i].text)}, hint = {k_cases[i].hint, strlen(k_cases[i].hint)};
        bool ok = hn_text_quantity(text, hint, k_cases[i].unit, &got);
        bool right = isnan(k_cases[i].value) ? !ok : ok && fabs(got - k_cases[i].value) <= 1e-12 * fabs(got);
        if (!right) fail_msg("'%s' in %s: %s %g", k_cases[i].text, k_cases[i].unit, ok ? "is" : "none", got);
    }
}

static void q_text_with_error_words_and_renamed_sections(void **state) {
    (void)state;
    hn_text t = parse("==============NVSMI LOG==============\n\nDriver Version : 525.1\nAttached GPUs : 2\n"
                      "GPU 00000000:01:00.0\n    Product Name : A\n    GPU UUID : GPU-a\n"
                      "    Clocks Throttle Reasons\n        Idle : Not Active\n        HW Slowdown : Active\n"
                      "            HW Thermal Slowdown : Not Active\n            HW Power Brake Slowdown : Active\n"
                      "    Utilization\n        Gpu : [Unknown Error]\n        Memory : 3 %\n"
                      "    Power Readings\n        Power Draw : ERR!\n        Power Limit : 250.00 W\n"
                      "    Temperature\n        GPU Current Temp : 2147483632 C\n    Processes : None\n"
                      "GPU 00000000:02:00.0\n    Product Name : B\n    Clocks\n        SM : 100 MHz\n"
                      "    Max Clocks\n        SM : 900 MHz\n");
    assert_int_equal(t.devices.count, 2);
    assert_true(V(t, 0, 0, reasons) == 0x88);
    ABSENT(t, 0, 0, gpu_util);
    assert_true(V(t, 0, 0, mem_util) == 3);
    ABSENT(t, 0, 0, power_w);
    assert_true(V(t, 0, 0, power_limit_requested_w) == 250);
    ABSENT(t, 0, 0, gpu_temp_c);
    assert_true(V(t, 1, 0, sm_clock_mhz) == 100); // not the maximum's section
    assert_true(t.devices.data[1].max_sm_clock_mhz == 900 && t.devices.data[1].gpu_index == 1);
    assert_string_equal(t.devices.data[1].driver, "525.1");
    ABSENT(t, 1, 0, reasons);
    assert_int_equal(t.processes.count, 0);
    hn_text_free(&t);
    refuse("==============NVSMI LOG==============\nDriver Version : 1\nAttached GPUs : 0\n", "no card is described");
}

static void csv_columns_follow_the_header(void **state) {
    (void)state;
    hn_text t = parse("index, power.draw [W], utilization.gpu [%], clocks_throttle_reasons.active, memory.used [MiB]\r\n"
                      "0, 61.50 W, [N/A], 0x0000000000000005, 10 MiB\r\n"
                      "1, [Unknown Error], 7 %, [Not Supported], 12\r\n"
                      "index, power.draw [W], utilization.gpu [%], clocks_throttle_reasons.active, memory.used [MiB]\r\n"
                      "0, 62.50 W, 5 %, 0x0000000000000000, 11 MiB\r\n1, 3");
    assert_int_equal(t.devices.count, 2);
    assert_int_equal(t.rows.count, 3);
    assert_true(V(t, 0, 1, power_w) == 62.5 && V(t, 0, 0, reasons) == 5 && V(t, 1, 0, fb_used_bytes) == 12 * 0x1p20);
    ABSENT(t, 0, 0, gpu_util);
    ABSENT(t, 1, 0, power_w);
    ABSENT(t, 1, 0, reasons);
    assert_int_equal(t.skipped, 1); // "1, 3": cut short
    hn_text_free(&t);
    t = parse("timestamp, index, power.draw [W]\n2026/07/03 22:10:46.109, 0, 61.50 W\n"
              "timestamp, index, power.draw [W]\n2026/07/03 22:10:47.109, 0, 62.50 W\n2026/07/03 22:1");
    assert_int_equal(t.rows.count, 2);
    assert_true(V(t, 0, 1, power_w) == 62.5);
    assert_int_equal(t.skipped, 1);
    assert_int_equal(t.skipped_line, 5); // cut short
    hn_text_free(&t);
    t = parse("power.draw [W], memory.used [MiB]\n61.50 W, 10 MiB\n");
    assert_true(V(t, 0, 0, fb_used_bytes) == 10 * 0x1p20);
    hn_text_free(&t);
    t = parse("gpu_uuid, pid, process_name, used_gpu_memory [MiB]\nGPU-x, 77, /bin/a, 2566 MiB\nGPU-x, 78, b, [N/A]\n");
    assert_int_equal(t.processes.count, 2);
    assert_int_equal(t.processes.data[0].process.used_bytes, (int64_t)2566 << 20);
    assert_int_equal(t.processes.data[1].process.used_bytes, -1);
    assert_string_equal(t.devices.data[0].uuid, "GPU-x");
    hn_text_free(&t);
    refuse("0, 61.50 W, 7 %\n", "no header");
}

static void dmon_dashes_and_repeated_headers(void **state) {
    (void)state;
    hn_text t = parse("#Date       Time        gpu    pwr  gtemp     sm  rxpci     fb\n"
                      "#YYYYMMDD   HH:MM:SS    Idx      W      C      %   MB/s     MB\n"
                      " 20260703   22:11:09      0    630      -      0     12      3\n"
                      " 20260703   22:11:09      3    ERR!    51     99      -      -\n"
                      "# gpu    pwr  gtemp\n# Idx      W      C\n    0    631     53\n    0  1\n");
    assert_int_equal(t.devices.count, 2);
    assert_true(t.devices.data[1].gpu_index == 3);
    assert_true(V(t, 0, 0, power_w) == 630 && V(t, 0, 0, gpu_util) == 0 && V(t, 0, 0, pcie_rx_bytes_s) == 12e6);
    assert_true(V(t, 0, 0, fb_used_bytes) == 3 * 0x1p20);
    ABSENT(t, 0, 0, gpu_temp_c); // "-" is unknown, not 0
    ABSENT(t, 1, 0, power_w);
    assert_true(V(t, 1, 0, gpu_util) == 99);
    assert_true(V(t, 0, 1, gpu_temp_c) == 53); // columns of the second header
    assert_int_equal(t.skipped, 1);
    hn_text_free(&t);
}

static void xml_of_three_schemas_and_hostile_xml(void **state) {
    (void)state;
    static const char *const k_power[] = {
        "<power_readings><power_draw>61.5 W</power_draw></power_readings><clocks_throttle_reasons>"
        "<clocks_throttle_reason_sw_power_cap>Active</clocks_throttle_reason_sw_power_cap></clocks_throttle_reasons>",
        "<gpu_power_readings><power_draw>61.5 W</power_draw></gpu_power_readings><clocks_event_reasons>"
        "<clocks_event_reason_sw_power_cap>Active</clocks_event_reason_sw_power_cap></clocks_event_reasons>",
        "<gpu_power_readings><average_power_draw>61.5 W</average_power_draw><instant_power_draw>N/A"
        "</instant_power_draw></gpu_power_readings><clocks_event_reasons><clocks_event_reason_sw_power_cap>Active"
        "</clocks_event_reason_sw_power_cap></clocks_event_reasons>"};
    char text[2048];
    for (int i = 0; i < 3; i++) { // complaint: driver 535 renamed a tag and the parser broke
        snprintf(text, sizeof text,
                 "<?xml version=\"1.0\" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM \"nvsmi_device_v1%d.dtd\">\n"
                 "<nvidia_smi_log><driver_version>5</driver_version><gpu id=\"00000000:01:00.0\"><uuid>GPU-q</uuid>"
                 "%s<processes><process_info><pid>9</pid><type>C</type><process_name>a &amp; b</process_name>"
                 "<used_memory>3 MiB</used_memory></process_info></processes></gpu>"
                 "<gpu id=\"00000000:02:00.0\"><fan_speed>30 %%</fan_speed></gpu></nvidia_smi_log>\n",
                 i + 1, k_power[i]);
        hn_text t = parse(text);
        assert_int_equal(t.devices.count, 2);
        assert_true(V(t, 0, 0, power_w) == 61.5 && V(t, 0, 0, reasons) == 4 && V(t, 1, 0, fan_percent) == 30);
        ABSENT(t, 0, 0, power_instant_w);
        assert_string_equal(t.processes.data[0].process.name, "a & b");
        assert_int_equal(t.processes.data[0].process.used_bytes, 3 << 20);
        hn_text_free(&t);
    }
    refuse("<?xml version=\"1.0\"?>\n<nvidia_smi_log><gpu id=\"x\"><uuid>GPU-q</uuid>\n", "line 3: broken XML");
    refuse("<?xml version=\"1.0\"?><!DOCTYPE n [<!ENTITY a \"aaaa\"><!ENTITY b \"&a;&a;\">]><nvidia_smi_log>&b;"
           "</nvidia_smi_log>", "entity declarations are refused");
    refuse("<?xml version=\"1.0\"?><nvidia_smi_log></nvidia_smi_log>", "no card is described");
    hn_str deep = {0};
    hn_str_append(&deep, "<?xml version=\"1.0\"?><nvidia_smi_log><gpu id=\"x\">");
    for (int i = 0; i < 5000; i++)
        hn_str_append(&deep, "<a>");
    for (int i = 0; i < 5000; i++)
        hn_str_append(&deep, "</a>");
    hn_str_append(&deep, "<fan_speed>30 %</fan_speed></gpu></nvidia_smi_log>");
    hn_text t = parse(hn_str_get(&deep));
    assert_true(V(t, 0, 0, fan_percent) == 30);
    hn_text_free(&t);
    hn_str_free(&deep);
}

static void prom_pages_with_leaked_sentinels(void **state) {
    (void)state;
    hn_text t = parse(
        "# HELP DCGM_FI_DEV_GPU_TEMP t\n# TYPE DCGM_FI_DEV_GPU_TEMP gauge\n"
        "DCGM_FI_DEV_GPU_TEMP{gpu=\"1\", UUID=\"GPU-b\",modelName=\"X \\\"Y\\\"\",pod=\"p,{}\"} 41 1790000000000\n"
        "DCGM_FI_DEV_GPU_TEMP{gpu=\"1\",UUID=\"GPU-b\",pod=\"other\"} 41\n" // a time-sliced card: no second card
        "DCGM_FI_DEV_GPU_TEMP{gpu=\"0\",UUID=\"GPU-a\"} ERROR - FAILED TO CONVERT TO STRING\n"
        "DCGM_FI_DEV_MEMORY_TEMP{gpu=\"0\",UUID=\"GPU-a\"} 9223372036854775794\n"
        "DCGM_FI_DEV_POWER_USAGE{gpu=\"0\",UUID=\"GPU-a\"} 140737488355330.000000\n"
        "DCGM_FI_DEV_SM_CLOCK{gpu=\"0\",UUID=\"GPU-a\"} 2147483634\n"
        "DCGM_FI_DEV_FB_USED{gpu=\"0\",UUID=\"GPU-a\"} 5\n"
        "DCGM_FI_PROF_SM_ACTIVE{gpu=\"0\",UUID=\"GPU-a\"} NaN\n"
        "DCGM_FI_PROF_SM_ACTIVE{gpu=\"0\",UUID=\"GPU-a\",GPU_I_PROFILE=\"1g.10gb\",GPU_I_ID=\"7\"} 0.25\n"
        "DCGM_FI_PROF_TENSOR_UTIL_RATIO{gpu=\"0\",UUID=\"GPU-a\",GPU_I_PROFILE=\"1g.10gb\",GPU_I_ID=\"7\"} 0.5\n"
        "...\nhone_gpu_sm_clock_hertz{gpu=\"1\",uuid=\"GPU-b\"} 1.98e+09 # {t=\"x\"} 1\n"
        "hone_gpu_energy_joules_total{gpu=\"1\",uuid=\"GPU-b\"} 12.5\n"
        "# TYPE DCGM_FI_PROF_PCIE_TX_BYTES counter\nDCGM_FI_PROF_PCIE_TX_BYTES{gpu=\"1\",UUID=\"GPU-b\"} 77\n"
        "DCGM_FI_PROF_PCIE_RX_BYTES{gpu=\"1\",UUID=\"GPU-b\"} 78\n"
        "exporter_up 1\nDCGM_FI_DEV_GPU_TEMP{gpu=\"0 3\n# EOF\n");
    assert_int_equal(t.devices.count, 3);
    assert_string_equal(t.devices.data[0].uuid, "GPU-b");
    assert_true(V(t, 0, 0, gpu_temp_c) == 41 && V(t, 0, 0, sm_clock_mhz) == 1980 && V(t, 0, 0, energy_mj) == 12500);
    assert_true(V(t, 0, 0, pcie_tx_bytes) == 77 && V(t, 0, 0, pcie_rx_bytes_s) == 78);
    ABSENT(t, 0, 0, pcie_tx_bytes_s);
    ABSENT(t, 1, 0, gpu_temp_c);
    ABSENT(t, 1, 0, mem_temp_c);
    ABSENT(t, 1, 0, power_w);
    ABSENT(t, 1, 0, sm_clock_mhz);
    ABSENT(t, 1, 0, sm_active);
    assert_true(V(t, 1, 0, fb_used_bytes) == 5 * 0x1p20);
    assert_true(t.devices.data[2].kind == HN_DEVICE_MIG && t.devices.data[2].parent == 1 && t.devices.data[2].gi_id == 7);
    assert_true(V(t, 2, 0, sm_active) == 0.25 && V(t, 2, 0, tensor_active) == 0.5);
    assert_true(t.skipped >= 3);
    hn_text_free(&t);
}

static void other_texts_are_refused_by_name(void **state) {
    (void)state;
    refuse("", "neither nvidia-smi");
    refuse("hello world\n", "neither nvidia-smi");
    refuse("#hone-record 1\n", "replay:t");
    refuse("==PROF== Connected\n", "Nsight Compute");
    refuse("No devices were found\n", "neither nvidia-smi");
    hone_error err = {0};
    hn_text text;
    assert_int_equal(hn_text_parse(&err, "t", "a\0b", 3, &text), HONE_ERR_FORMAT);
}

static void text_is_a_source(void **state) {
    (void)state;
    const char *build = getenv("HONE_BUILD_DIR");
    char path[512], source[600];
    snprintf(path, sizeof path, "%s/test-probe-text.txt", build ? build : "/tmp");
    const char *dmon = "# gpu    pwr\n# Idx      W\n    0    1\n    1  10\n    0    2\n    0    3\n";
    assert_int_equal(hn_file_write(NULL, path, dmon, strlen(dmon)), HONE_OK);
    snprintf(source, sizeof source, "text:%s", path);
    hn_probe *probe;
    hn_sample s;
    assert_int_equal(hn_probe_open(NULL, source, &probe), HONE_OK);
    static const double k_first[] = {1, 2, 3, 3, 3};
    for (int i = 0; i < 5; i++) {
        assert_int_equal(hn_probe_ended(probe), false);
        assert_int_equal(hn_probe_sample(NULL, probe, 0, &s), HONE_OK);
        assert_true(s.value[HN_M_power_w] == k_first[i]);
    }
    assert_int_equal(hn_probe_sample(NULL, probe, 1, &s), HONE_OK);
    assert_true(hn_probe_ended(probe));
    hn_process items[4];
    int count = 9;
    assert_int_equal(hn_probe_processes(NULL, probe, 0, items, 4, &count), HONE_OK);
    assert_int_equal(count, 0);
    hn_probe_close(probe);
    unlink(path);
}

// What `nvidia-smi -q -x > file` leaves in PowerShell: UTF-16 with a byte order mark and CR LF; and the same with BOM of UTF-8.
static void text_of_windows_is_a_source(void **state) {
    (void)state;
    static const char k_xml[] = "<?xml version=\"1.0\" ?>\r\n<!DOCTYPE nvidia_smi_log SYSTEM \"nvsmi_device_v12.dtd\">\r\n<nvidia_smi_log>\r\n"
                                "<driver_version>552.22</driver_version>\r\n<gpu id=\"00000000:01:00.0\">\r\n"
                                "<product_name>NVIDIA L40S</product_name>\r\n<uuid>GPU-w</uuid>\r\n"
                                "<fb_memory_usage><total>46068 MiB</total><used>1024 MiB</used></fb_memory_usage>\r\n"
                                "<utilization><gpu_util>17 %</gpu_util><memory_util>N/A</memory_util></utilization>\r\n"
                                "<gpu_power_readings><power_draw>81.25 W</power_draw></gpu_power_readings>\r\n"
                                "</gpu></nvidia_smi_log>\r\n";
    const char *build = getenv("HONE_BUILD_DIR");
    char path[512], source[600], wide[2 * sizeof k_xml + 2];
    snprintf(path, sizeof path, "%s/test-probe-windows.xml", build ? build : "/tmp");
    snprintf(source, sizeof source, "text:%s", path);
    for (int big = 0; big < 3; big++) {
        size_t n = 0;
        if (big == 2) memcpy(wide, "\xef\xbb\xbf", n = 3);
        for (const char *c = big == 2 ? "" : "\xff"; *c; c++) wide[n++] = big ? '\xfe' : '\xff', wide[n++] = big ? '\xff' : '\xfe';
        for (const char *c = k_xml; *c; c++) {
            if (big == 1) wide[n++] = '\0';
            wide[n++] = *c;
            if (big == 0) wide[n++] = '\0';
        }
        assert_int_equal(hn_file_write(NULL, path, wide, n), HONE_OK);
        hone_error err = {0};
        hn_probe *probe;
        hn_sample s;
        if (hn_probe_open(&err, source, &probe) != HONE_OK) fail_msg("%s", err.text);
        assert_int_equal(hn_probe_sample(NULL, probe, 0, &s), HONE_OK);
        assert_string_equal(hn_probe_device(probe, 0)->name, "NVIDIA L40S");
        assert_string_equal(hn_probe_device(probe, 0)->driver, "552.22");
        assert_true(s.value[HN_M_power_w] == 81.25 && s.value[HN_M_gpu_util] == 17 && !hn_sample_has(&s, HN_M_mem_util));
        hn_probe_close(probe);
    }
    unlink(path);
}

static void ncu_exports(void **state) {
    (void)state;
    const char *good =
        "==PROF== Connected to process 1\nhello from the program, with a comma\n"
        "\"ID\",\"Process Name\",\"Kernel Name\",\"Block Size\",\"Grid Size\",\"CC\",\"Section Name\",\"Metric Name\","
        "\"Metric Unit\",\"Metric Value\",\"Rule Name\",\"Rule Description\"\n"
        "\"0\",\"p\",\"ns::f<int, 2>(float *, int)\",\"(256, 2, 1)\",\"(4096, 1, 1)\",\"8.0\",\"S\",\"Duration\",\"usecond\",\"1,010.5\",\n"
        "\"0\",\"p\",\"ns::f<int, 2>(float *, int)\",\"(256, 2, 1)\",\"(4096, 1, 1)\",\"8.0\",\"S\",\"Memory Throughput\",\"%\",\"53.13\",\n"
        "\"0\",\"p\",\"ns::f<int, 2>(float *, int)\",\"(256, 2, 1)\",\"(4096, 1, 1)\",\"8.0\",\"S\",\"Compute (SM) Throughput\",\"%\",\"11.68\",\n"
        "\"0\",\"p\",\"ns::f<int, 2>(float *, int)\",\"(256, 2, 1)\",\"(4096, 1, 1)\",\"8.0\",\"S\",\"\",\"\",\"\",\"R\",\"low \"\"use\"\", mend it\"\n"
        "\"1\",\"p\",\"ns::f<int, 2>(float *, int)\",\"(256, 2, 1)\",\"(4096, 1, 1)\",\"8.0\",\"S\",\"Policy\",\"\",\"PolicySpread\",\n"
        "\"1\",\"p\",\"ns::f<int, 2>(float *, int)\",\"(256, 2, 1)\",\"(4096, 1, 1)\",\"8.0\",\"S\",\"Odd\",\"\",\"1,20,3\",\n";
    hone_error err = {0};
    hn_ncu_report r;
    if (hn_ncu_parse(&err, "n", good, strlen(good), &r) != HONE_OK) fail_msg("%s", err.text);
    assert_int_equal(r.kernels.count, 2);
    assert_int_equal(r.skipped_lines, 1);
    const hn_ncu_kernel *k = &r.kernels.data[0];
    assert_string_equal(k->name, "ns::f<int, 2>(float *, int)");
    assert_true(k->block_threads == 512 && k->grid_blocks == 4096 && k->cc_major == 8 && k->cc_minor == 0);
    assert_true(hn_ncu_duration_ns(k) == 1010500);
    assert_int_equal(hn_ncu_bound_by(k), HN_NCU_MEMORY);
    assert_int_equal(k->remarks.count, 1);
    assert_true(isnan(hn_ncu_find(&r.kernels.data[1], "Policy")->value)); // a word is no number
    assert_string_equal(hn_ncu_find(&r.kernels.data[1], "Policy")->text, "PolicySpread");
    assert_true(isnan(hn_ncu_find(&r.kernels.data[1], "Odd")->value)); // nor is a wrong grouping
    assert_true(isnan(hn_ncu_duration_ns(&r.kernels.data[1])));
    assert_int_equal(hn_ncu_bound_by(&r.kernels.data[1]), HN_NCU_UNKNOWN);
    hn_ncu_free(&r);
    static const struct {
        const char *text, *says;
    } k_bad[] = {
        {"", "no header"},
        {"\"0\",\"a\"\n", "line 1: a row before the header"},
        {"\"ID\",\"Metric Name\"\n\"0\",\"x\n", "line 2: broken quotation"},
        {"\"ID\",\"Metric Name\"\n\"0\"y,\"x\"\n", "line 2: broken quotation"},
        {"...,\"add_vector.\",\"...,\"100\",\"...\"\n", "line 1: broken quotation"},
    };
    for (size_t i = 0; i < HN_COUNT_OF(k_bad); i++) {
        assert_int_equal(hn_ncu_parse(&err, "n", k_bad[i].text, strlen(k_bad[i].text), &r), HONE_ERR_FORMAT);
        if (!strstr(err.text, k_bad[i].says)) fail_msg("%s", err.text);
    }
    const char *summary = "\"Kernel Name\",\"Invocations\",\"Metric Name\",\"Metric Unit\",\"Minimum\",\"Maximum\",\"Average\"\n"
                          "\"k\",\"100\",\"gpu__time_duration.sum\",\"nsecond\",\"1,000.00\",\"3,000.00\",\"2,000.00\"\n";
    assert_int_equal(hn_ncu_parse(&err, "n", summary, strlen(summary), &r), HONE_OK);
    assert_true(r.kernels.data[0].invocations == 100 && hn_ncu_duration_ns(&r.kernels.data[0]) == 2000);
    assert_true(r.kernels.data[0].metrics.data[0].maximum == 3000);
    hn_ncu_free(&r);
}

// Each allocation fails in turn: an error, no crash, no leak (under ASan).
static void no_memory_at_any_point(void **state) {
    (void)state;
    static const char *const k_texts[] = {
        "# gpu    pwr\n# Idx      W\n    0    1\n    1  10\n",
        "DCGM_FI_DEV_GPU_TEMP{gpu=\"1\",UUID=\"b\"} 41\nnvidia_smi_compute_app_info{uuid=\"b\",pid=\"3\"} 1\n",
        ("<?xml version=\"1.0\"?><nvidia_smi_log><gpu id=\"x\"><processes><process_info><pid>1</pid></process_info>"
         "</processes></gpu></nvidia_smi_log>"),
    };
    for (size_t i = 0; i < HN_COUNT_OF(k_texts); i++)
        for (uint64_t n = 1; n < 60; n++) {
            hone_error err = {0};
            hn_text text;
            hn_alloc_fail_nth(n);
            hone_status status = hn_text_parse(&err, "t", k_texts[i], strlen(k_texts[i]), &text);
            hn_alloc_fail_nth(0);
            if (status == HONE_OK) hn_text_free(&text);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_key_row_has_a_target),
        cmocka_unit_test(quantities_are_numbers_in_a_known_unit),
        cmocka_unit_test(q_text_with_error_words_and_renamed_sections),
        cmocka_unit_test(csv_columns_follow_the_header),
        cmocka_unit_test(dmon_dashes_and_repeated_headers),
        cmocka_unit_test(xml_of_three_schemas_and_hostile_xml),
        cmocka_unit_test(prom_pages_with_leaked_sentinels),
        cmocka_unit_test(other_texts_are_refused_by_name),
        cmocka_unit_test(text_is_a_source),
        cmocka_unit_test(text_of_windows_is_a_source),
        cmocka_unit_test(ncu_exports),
        cmocka_unit_test(no_memory_at_any_point),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
