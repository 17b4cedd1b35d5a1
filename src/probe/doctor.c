// SPDX-License-Identifier: Apache-2.0
// The doctor: runs the checks and shows what they found, as text and as JSON.
#include <stdio.h>
#include <stdlib.h>
#include "probe/doctor.h"

#define FINDINGS_MAX 512

static const char *const k_levels[] = {"note", "warning", "fault"};

void hn_doctor_add(hn_doctor *doctor, hn_level level, const char *id, const char *where,
                   const char *what, const char *why, const char *mend) {
    if (doctor->findings.count >= FINDINGS_MAX) return;
    hn_finding f = {.level = level, .id = id};
    snprintf(f.where, sizeof f.where, "%s", where);
    snprintf(f.what, sizeof f.what, "%s", what);
    snprintf(f.why, sizeof f.why, "%s", why);
    snprintf(f.mend, sizeof f.mend, "%s", mend);
    (void)!hn_vec_push(&doctor->findings, f);
}

// Gravest first, else in the order found.
static void sort_findings(hn_doctor *doctor) {
    hn_finding *f = doctor->findings.data;
    for (size_t i = 1; i < doctor->findings.count; i++)
        for (size_t k = i; k > 0 && f[k].level > f[k - 1].level; k--) {
            hn_finding swap = f[k];
            f[k] = f[k - 1];
            f[k - 1] = swap;
        }
}

// An idle card that draws far more than its idle neighbours of the same model: something holds it
// awake, even where its memory use is not told.
static void check_neighbours(hn_doctor *doctor) {
    int devices = hn_probe_device_count(doctor->probe);
    for (int d = 0; d < devices; d++) {
        const hn_device_info *info = hn_probe_device(doctor->probe, d);
        double power = hn_sample_or(&doctor->samples[d], HN_M_power_w, NAN), least = NAN;
        if (info->kind != HN_DEVICE_GPU || hn_sample_or(&doctor->samples[d], HN_M_gpu_util, 1) != 0) continue;
        for (int k = 0; k < devices; k++)
            if (k != d && strcmp(hn_probe_device(doctor->probe, k)->name, info->name) == 0 &&
                hn_sample_or(&doctor->samples[k], HN_M_gpu_util, 1) == 0)
                least = fmin(least, hn_sample_or(&doctor->samples[k], HN_M_power_w, NAN));
        char label[64], what[256];
        hn_device_label(info, label, sizeof label);
        bool told = false;
        for (size_t i = 0; i < doctor->findings.count; i++)
            told |= strcmp(doctor->findings.data[i].id, "parked_hot") == 0 && strcmp(doctor->findings.data[i].where, label) == 0;
        if (told || !(power > 1.4 * least)) continue;
        snprintf(what, sizeof what, "idle at %.0f W, its idle neighbours at %.0f W", power, least);
        hn_doctor_add(doctor, HN_LEVEL_NOTE, "parked_hot", label, what, "a loaded but idle program keeps clocks and power up",
                      "end it, or give the card a second job");
    }
}

// Two readings, so that what needs a difference is there.
static void read_devices(hn_doctor *doctor) {
    int devices = hn_probe_device_count(doctor->probe);
    for (int round = 0; round < 2; round++) {
        for (int d = 0; d < devices; d++) {
            hone_error why = {0};
            if (hn_probe_sample(&why, doctor->probe, d, &doctor->samples[d]) == HONE_OK || round == 0) continue;
            char label[64];
            if (!hn_probe_device(doctor->probe, d)->lost)
                hn_doctor_add(doctor, HN_LEVEL_WARN, "no_reading", hn_device_label(hn_probe_device(doctor->probe, d), label, sizeof label),
                              why.text, "nothing is known of this device's state", "look at the kernel log");
        }
        if (round == 0 && hn_probe_clock_ns(doctor->probe) > 0) hn_sleep_ns(120000000);
    }
    for (int d = 0; d < devices; d++)
        hn_doctor_check_device(doctor, hn_probe_device(doctor->probe, d), &doctor->samples[d]);
    check_neighbours(doctor);
}

// "auto" falls back to the host where there is no card: here the reason is wanted.
static hone_status open_cards(hone_error *err, hn_doctor *doctor, const char *source) {
    bool automatic = !source || !*source || strcmp(source, "auto") == 0;
    hone_error why = {0};
    hone_status status = hn_probe_open(&why, automatic ? "nvml" : source, &doctor->probe);
    if (automatic && status == HONE_OK) { // the cards are there: take the source that reads most
        hn_probe *fuller;
        if (hn_probe_open(NULL, "auto", &fuller) == HONE_OK) {
            hn_probe_close(doctor->probe);
            doctor->probe = fuller;
        }
    }
    if (status == HONE_OK) {
        doctor->samples = hn_calloc((size_t)hn_probe_device_count(doctor->probe), sizeof *doctor->samples);
        if (!doctor->samples) HN_NOMEM(err, "doctor");
        read_devices(doctor);
        return HONE_OK;
    }
    if (!automatic) {
        if (err) *err = why;
        return status;
    }
    snprintf(doctor->no_gpu, sizeof doctor->no_gpu, "%s", why.text);
    return HONE_OK;
}

hn_status hn_doctor_run(hone_error *err, const hn_doctor_options *options, hn_doctor *out_doctor) {
    hn_doctor doctor = {.cpu = *hn_cpu_get()};
    hone_status status = open_cards(err, &doctor, options->source);
    const char *source = options->source ? options->source : "";
    doctor.live = !strstr(source, "text:") && !strstr(source, "replay:"); // else of another machine
    if (status == HONE_OK && doctor.live) {
        hn_doctor_check_system(&doctor);
        hn_doctor_check_libs(&doctor);
        if (options->measure) status = hn_doctor_measure(err, &doctor, options);
    }
    if (status != HONE_OK) {
        hn_doctor_free(&doctor);
        return status;
    }
    sort_findings(&doctor);
    *out_doctor = doctor;
    return HONE_OK;
}

void hn_doctor_free(hn_doctor *doctor) {
    hn_probe_close(doctor->probe);
    hn_free(doctor->samples);
    hn_vec_free(&doctor->ceilings);
    hn_vec_free(&doctor->libs);
    hn_vec_free(&doctor->missing);
    hn_vec_free(&doctor->findings);
    *doctor = (hn_doctor){0};
}

bool hn_doctor_has_fault(const hn_doctor *doctor) {
    for (size_t i = 0; i < doctor->findings.count; i++)
        if (doctor->findings.data[i].level == HN_LEVEL_FAULT) return true;
    return false;
}

// ---- text -------------------------------------------------------------------------------------
static void bytes_text(hn_str *out, double bytes) {
    static const char *const k_units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int unit = 0;
    while (bytes >= 1024 && unit < 4)
        bytes /= 1024, unit++;
    hn_str_printf(out, bytes < 10 && unit ? "%.1f %s" : "%.0f %s", bytes, k_units[unit]);
}

static void cpu_text(hn_str *out, const hn_doctor *doctor) {
    const hn_cpu *cpu = &doctor->cpu;
    hn_str_printf(out, "CPU       %s\n", cpu->model[0] ? cpu->model : "unknown");
    hn_str_printf(out, "  kernels use %s", hn_isa_name(hn_cpu_isa()));
    if (hn_cpu_isa() != cpu->isa) hn_str_printf(out, " (capped by the setting isa; the CPU has %s)", hn_isa_name(cpu->isa));
    hn_str_printf(out, "%s%s%s\n", cpu->avx_vnni ? ", avx_vnni" : "", cpu->avx512_bf16 ? ", avx512_bf16" : "",
                  cpu->avx512_fp16 ? ", avx512_fp16" : "");
    hn_str_printf(out, "  %d CPUs", cpu->logical);
    if (cpu->cores) hn_str_printf(out, " on %d cores, %d socket%s", cpu->cores, cpu->sockets, cpu->sockets == 1 ? "" : "s");
    hn_str_printf(out, ", %d NUMA node%s; this process may use %d", cpu->numa_nodes, cpu->numa_nodes == 1 ? "" : "s", cpu->usable);
    if (isfinite(cpu->quota_cpus)) hn_str_printf(out, ", quota %.1f", cpu->quota_cpus);
    hn_str_append(out, "\n  caches: L1 ");
    bytes_text(out, (double)cpu->l1d_bytes);
    hn_str_append(out, ", L2 ");
    bytes_text(out, (double)cpu->l2_bytes);
    hn_str_append(out, ", L3 ");
    bytes_text(out, (double)cpu->l3_bytes);
    hn_str_append(out, "\n  memory: ");
    bytes_text(out, (double)cpu->memory_bytes);
    if (cpu->memory_limit_bytes) {
        hn_str_append(out, ", limit ");
        bytes_text(out, (double)cpu->memory_limit_bytes);
    }
    if (doctor->measured)
        hn_str_printf(out, "; measured: read %.1f, write %.1f, copy %.1f, triad %.1f GB/s on %d threads, read %.1f on one",
                      doctor->bandwidth.read_bytes_s * 1e-9, doctor->bandwidth.write_bytes_s * 1e-9, doctor->bandwidth.copy_bytes_s * 1e-9,
                      doctor->bandwidth.triad_bytes_s * 1e-9, doctor->bandwidth.threads, doctor->bandwidth.one_thread_read_bytes_s * 1e-9);
    hn_str_append(out, "\n");
    hn_doctor_ceilings_text(out, doctor, "");
}

static void reading(hn_str *out, const hn_sample *s, hn_metric metric, const char *name, double scale, const char *unit) {
    if (hn_sample_has(s, metric)) hn_str_printf(out, ", %s %.0f %s", name, s->value[metric] * scale, unit);
}

static void device_text(hn_str *out, const hn_doctor *doctor, const hn_device_info *info, const hn_sample *s) {
    char label[64];
    hn_str_printf(out, "%-9s %s", hn_device_label(info, label, sizeof label), info->name[0] ? info->name : "unknown card");
    if (info->pci_bus_id[0]) hn_str_printf(out, ", %s", info->pci_bus_id);
    if (info->driver[0]) hn_str_printf(out, ", driver %s", info->driver);
    if (info->cuda[0]) hn_str_printf(out, " (CUDA %s)", info->cuda);
    hn_str_append(out, "\n");
    if (info->lost) return;
    const char *separator = "  ";
    if (isfinite(info->cc_major)) hn_str_printf(out, "%scompute capability %.0f.%.0f", separator, info->cc_major, info->cc_minor), separator = ", ";
    if (isfinite(info->sm_count)) hn_str_printf(out, "%s%.0f SMs", separator, info->sm_count), separator = ", ";
    if (isfinite(info->memory_bytes)) {
        hn_str_append(out, separator);
        bytes_text(out, info->memory_bytes);
        separator = ", ";
    }
    double bandwidth = hn_device_bandwidth_gb_s(info);
    if (isfinite(bandwidth)) hn_str_printf(out, "%s%.0f GB/s by bus and clock", separator, bandwidth), separator = ", ";
    if (info->nvlink_count > 0) hn_str_printf(out, "%s%.0f NVLinks", separator, info->nvlink_count), separator = ", ";
    if (*separator == ',') hn_str_append(out, "\n");
    const hn_sheet *sheet = hn_sheet_find(info);
    if (sheet && info->kind == HN_DEVICE_GPU)
        hn_str_printf(out, "  data sheet of %s: %.0f GB/s, %.0f TFLOPS half, %.0f TFLOPS tf32, %.0f W\n", sheet->name,
                      sheet->bandwidth_gb_s, sheet->half, sheet->tf32, sheet->watts);
    hn_str now = {0};
    reading(&now, s, HN_M_power_w, "power", 1, "W");
    reading(&now, s, HN_M_power_limit_w, "limit", 1, "W");
    reading(&now, s, HN_M_gpu_temp_c, "at", 1, "C");
    reading(&now, s, HN_M_sm_clock_mhz, "SM clock", 1, "MHz");
    reading(&now, s, HN_M_sm_active, "SM active", 100, "%");
    reading(&now, s, HN_M_gpu_util, "utilisation", 1, "%");
    reading(&now, s, HN_M_fb_used_bytes, "memory used", 0x1p-20, "MiB");
    if (now.length) hn_str_printf(out, "  now: %s\n", hn_str_get(&now) + 2);
    hn_str_free(&now);
    if (info->pci_bus_id[0]) hn_doctor_ceilings_text(out, doctor, info->pci_bus_id);
}

void hn_doctor_text(hn_str *out, const hn_doctor *doctor) {
    if (doctor->live) cpu_text(out, doctor);
    if (!doctor->probe) hn_str_printf(out, "GPU       none: %s\n", doctor->no_gpu);
    for (int d = 0; doctor->probe && d < hn_probe_device_count(doctor->probe); d++)
        if (hn_probe_device(doctor->probe, d)->kind != HN_DEVICE_HOST)
            device_text(out, doctor, hn_probe_device(doctor->probe, d), &doctor->samples[d]);
    if (doctor->probe && hn_probe_note(doctor->probe)[0]) hn_str_printf(out, "  %s\n", hn_probe_note(doctor->probe));
    if (doctor->libs.count) hn_str_append(out, "Libraries (* = what the loader takes)\n");
    for (size_t i = 0; i < doctor->libs.count; i++)
        hn_str_printf(out, "  %c %-14s %-12s %s\n", doctor->libs.data[i].used ? '*' : ' ', doctor->libs.data[i].family,
                      doctor->libs.data[i].version, doctor->libs.data[i].path);
    if (doctor->missing.count && (doctor->probe || doctor->libs.count)) hn_str_append(out, "Not found, and lost by it\n");
    for (size_t i = 0; i < doctor->missing.count && (doctor->probe || doctor->libs.count); i++)
        hn_str_printf(out, "  - %-14s %s\n", doctor->missing.data[i].family, doctor->missing.data[i].lost);
    hn_str_append(out, doctor->findings.count ? "Findings\n" : "Findings  none\n");
    for (size_t i = 0; i < doctor->findings.count; i++) {
        const hn_finding *f = &doctor->findings.data[i];
        hn_str_printf(out, "  %-7s %s: %s\n          why: %s\n          do:  %s\n", k_levels[f->level], f->where, f->what, f->why, f->mend);
    }
}

// ---- JSON -------------------------------------------------------------------------------------
static void json_text(hn_str *out, const char *key, const char *text) {
    hn_str_printf(out, "\"%s\":", key);
    hn_json_string(out, text, strlen(text));
}

static void json_number(hn_str *out, const char *key, double value) {
    char text[HN_METRIC_TEXT_BYTES];
    hn_str_printf(out, ",\"%s\":%s", key, isfinite(value) ? hn_metric_text(value, text) : "null");
}

static void cpu_json(hn_str *out, const hn_doctor *doctor) {
    const hn_cpu *cpu = &doctor->cpu;
    hn_str_append(out, "\"cpu\":{");
    json_text(out, "model", cpu->model);
    hn_str_printf(out, ",\"isa\":\"%s\",\"isa_used\":\"%s\"", hn_isa_name(cpu->isa), hn_isa_name(hn_cpu_isa()));
    json_number(out, "logical", cpu->logical);
    json_number(out, "cores", cpu->cores ? cpu->cores : NAN);
    json_number(out, "sockets", cpu->sockets ? cpu->sockets : NAN);
    json_number(out, "numa_nodes", cpu->numa_nodes);
    json_number(out, "usable", cpu->usable);
    json_number(out, "quota_cpus", cpu->quota_cpus);
    json_number(out, "l1d_bytes", (double)cpu->l1d_bytes);
    json_number(out, "l2_bytes", (double)cpu->l2_bytes);
    json_number(out, "l3_bytes", (double)cpu->l3_bytes);
    json_number(out, "memory_bytes", (double)cpu->memory_bytes);
    json_number(out, "memory_limit_bytes", cpu->memory_limit_bytes ? (double)cpu->memory_limit_bytes : NAN);
    const hn_memory_bandwidth *b = &doctor->bandwidth;
    json_number(out, "read_bytes_per_s", doctor->measured ? b->read_bytes_s : NAN);
    json_number(out, "write_bytes_per_s", doctor->measured ? b->write_bytes_s : NAN);
    json_number(out, "copy_bytes_per_s", doctor->measured ? b->copy_bytes_s : NAN);
    json_number(out, "triad_bytes_per_s", doctor->measured ? b->triad_bytes_s : NAN);
    hn_str_append(out, ",\"ceilings\":");
    hn_doctor_ceilings_json(out, doctor, "");
    hn_str_append(out, "}");
}

static void sheet_json(hn_str *out, const hn_sheet *sheet) {
    hn_str_append(out, "{");
    json_text(out, "name", sheet->name);
    json_number(out, "memory_gb", sheet->memory_gb);
    json_number(out, "bandwidth_gb_per_s", sheet->bandwidth_gb_s);
    json_number(out, "nvlink_gb_per_s", sheet->nvlink_gb_s);
    json_number(out, "fp32_tflops", sheet->fp32);
    json_number(out, "tf32_tflops", sheet->tf32 > 0 ? sheet->tf32 : NAN);
    json_number(out, "half_tflops", sheet->half);
    json_number(out, "fp8_tflops", sheet->fp8 > 0 ? sheet->fp8 : NAN);
    json_number(out, "int8_tops", sheet->int8 > 0 ? sheet->int8 : NAN);
    json_number(out, "watts", sheet->watts);
    hn_str_append(out, "}");
}

void hn_doctor_json(hn_str *out, const hn_doctor *doctor) {
    hn_str_append(out, "{");
    if (doctor->live)
        cpu_json(out, doctor);
    else
        hn_str_append(out, "\"cpu\":null");
    hn_str_append(out, ",\"gpu\":{");
    json_text(out, "source", doctor->probe ? hn_probe_source(doctor->probe) : "");
    hn_str_append(out, ",");
    json_text(out, "none_because", doctor->no_gpu);
    hn_str_append(out, ",");
    json_text(out, "note", doctor->probe ? hn_probe_note(doctor->probe) : "");
    hn_str_append(out, ",\"devices\":[");
    for (int d = 0; doctor->probe && d < hn_probe_device_count(doctor->probe); d++) {
        const hn_device_info *info = hn_probe_device(doctor->probe, d);
        const hn_sheet *sheet = hn_sheet_find(info);
        hn_str_append(out, d ? ",{\"info\":" : "{\"info\":");
        hn_device_info_json(out, info, true);
        hn_str_append(out, ",\"sample\":");
        hn_sample_json(out, &doctor->samples[d]);
        hn_str_append(out, ",\"sheet\":");
        if (sheet)
            sheet_json(out, sheet);
        else
            hn_str_append(out, "null");
        hn_str_append(out, ",\"ceilings\":");
        hn_doctor_ceilings_json(out, doctor, info->pci_bus_id[0] ? info->pci_bus_id : NULL);
        hn_str_append(out, "}");
    }
    hn_str_append(out, "]},\"libraries\":[");
    for (size_t i = 0; i < doctor->libs.count; i++) {
        const hn_found_lib *lib = &doctor->libs.data[i];
        hn_str_append(out, i ? ",{" : "{");
        json_text(out, "family", lib->family);
        hn_str_append(out, ",");
        json_text(out, "version", lib->version);
        hn_str_append(out, ",");
        json_text(out, "path", lib->path);
        hn_str_printf(out, ",\"used\":%s}", lib->used ? "true" : "false");
    }
    hn_str_append(out, "],\"missing_libraries\":[");
    for (size_t i = 0; i < doctor->missing.count; i++) {
        hn_str_append(out, i ? ",{" : "{");
        json_text(out, "family", doctor->missing.data[i].family);
        hn_str_append(out, ",");
        json_text(out, "lost", doctor->missing.data[i].lost);
        hn_str_append(out, "}");
    }
    hn_str_append(out, "],\"findings\":[");
    for (size_t i = 0; i < doctor->findings.count; i++) {
        const hn_finding *f = &doctor->findings.data[i];
        hn_str_printf(out, "%s{\"level\":\"%s\",\"id\":\"%s\",", i ? "," : "", k_levels[f->level], f->id);
        json_text(out, "where", f->where);
        hn_str_append(out, ",");
        json_text(out, "what", f->what);
        hn_str_append(out, ",");
        json_text(out, "why", f->why);
        hn_str_append(out, ",");
        json_text(out, "do", f->mend);
        hn_str_append(out, "}");
    }
    hn_str_append(out, "]}\n");
}
