// SPDX-License-Identifier: Apache-2.0
// What this machine is, its measured ceilings, and what is wrong with it.
//
// Everything is read, nothing is set. Each finding says what, why it matters, what to do. A check
// that cannot see what it needs says nothing.
#ifndef HN_PROBE_DOCTOR_H
#define HN_PROBE_DOCTOR_H
#include "probe/cpu.h"
#include "probe/probe.h"

typedef enum hn_level { HN_LEVEL_NOTE, HN_LEVEL_WARN, HN_LEVEL_FAULT } hn_level;
typedef struct hn_finding {
    hn_level level;
    const char *id;  // stable: "pcie_width"
    char where[64];  // "gpu 3", "host", "libraries"
    char what[256], why[256], mend[256];
} hn_finding;

typedef struct hn_found_lib {
    const char *family; // "cuDNN"
    char path[512], version[32]; // version "" = the file's name tells none
    int major;          // of the soname, 0 = none
    bool used;          // what a program gets that asks the loader for this name
} hn_found_lib;

typedef struct hn_missing_lib {
    const char *family, *lost; // what does not work without it
} hn_missing_lib;

// What a ceiling is compared with; doctor_ceilings.c has a row for each.
typedef enum hn_ceiling_kind {
    HN_CEILING_PLAIN, // with nothing
    HN_CEILING_MEMORY,
    HN_CEILING_FP32,
    HN_CEILING_TF32,
    HN_CEILING_HALF,
    HN_CEILING_FP8,
    HN_CEILING_INT8,
    HN_CEILING_HOST_LINK,
    HN_CEILING_LAUNCH,
    HN_CEILING_FAILED,  // no figure: `name` says in a sentence why the card was not measured further
    HN_CEILING_MISSING, // no figure: a library is not there; `name` is its sentence
    HN_CEILING_KINDS
} hn_ceiling_kind;

// A measured ceiling, with the data sheet's where the card is known.
typedef struct hn_ceiling {
    hn_ceiling_kind kind;
    char pci[32]; // of the card, "" = the CPU
    char name[256], unit[16];
    double measured, sheet; // sheet NAN = unknown
} hn_ceiling;

// Measures what needs a backend (GEMM per type, copies, launches). `wanted`: PCI ids of the cards to
// measure, NULL for the CPU.
typedef struct hn_ceilings_wanted {
    const char *const *pci;
    int count;
    double timeout_s; // of one figure
} hn_ceilings_wanted;
typedef hone_status (*hn_ceilings_fn)(hone_error *err, const hn_ceilings_wanted *wanted, hn_ceiling *out_items,
                                      int max_items, int *out_count);

typedef struct hn_sheet {
    const char *name;
    int cc, sms;
    double memory_gb, bandwidth_gb_s;
    int nvlinks;
    double nvlink_gb_s, fp32, tf32, half, fp8, int8, watts;
} hn_sheet;
// The data sheet of a card by what it measures; NULL if none fits.
const hn_sheet *hn_sheet_find(const hn_device_info *info);
double hn_device_bandwidth_gb_s(const hn_device_info *info); // from bus width and clock; NAN = unknown

typedef struct hn_doctor {
    hn_cpu cpu;
    bool live;     // the cards are this machine's, not a text's or a recording's
    bool measured; // bandwidth and ceilings
    hn_memory_bandwidth bandwidth;
    HN_VEC(hn_ceiling) ceilings;
    hn_probe *probe;             // NULL: no card; owned
    char no_gpu[HONE_ERROR_TEXT_BYTES]; // why
    hn_sample *samples;          // per device; owned
    HN_VEC(hn_found_lib) libs;
    HN_VEC(hn_missing_lib) missing; // that nothing was found of, by name and place
    HN_VEC(hn_finding) findings; // gravest first
} hn_doctor;

typedef struct hn_doctor_options {
    const char *source; // "" = auto
    bool measure;
    hn_ceilings_fn ceilings;      // of the CPU; NULL = none here
    hn_ceilings_fn card_ceilings; // of the cards; NULL = none here
    bool busy;                    // measure cards that work or hold another program's memory, too
    double timeout_s;             // of one figure of a card; 0: 20
} hn_doctor_options;

hn_status hn_doctor_run(hone_error *err, const hn_doctor_options *options, hn_doctor *out_doctor);
void hn_doctor_free(hn_doctor *doctor);
bool hn_doctor_has_fault(const hn_doctor *doctor);
void hn_doctor_text(hn_str *out, const hn_doctor *doctor);
void hn_doctor_json(hn_str *out, const hn_doctor *doctor);

// ---- parts (doctor_*.c) -----------------------------------------------------------------------
void hn_doctor_add(hn_doctor *doctor, hn_level level, const char *id, const char *where,
                   const char *what, const char *why, const char *mend);
// Measures (live machines only), compares with the data sheets, adds findings.
hn_status hn_doctor_measure(hone_error *err, hn_doctor *doctor, const hn_doctor_options *options);
// The indented lines of the CPU's (pci "") or of one card's ceilings, and the same as a JSON array.
void hn_doctor_ceilings_text(hn_str *out, const hn_doctor *doctor, const char *pci);
void hn_doctor_ceilings_json(hn_str *out, const hn_doctor *doctor, const char *pci);
// Over one device's facts and sample.
void hn_doctor_check_device(hn_doctor *doctor, const hn_device_info *info, const hn_sample *sample);
// Kernel log, PCI access control, IOMMU, counter permissions, containers, MPS, CPU settings.
void hn_doctor_check_system(hn_doctor *doctor);
// Libraries on the loader's paths, in Python wheels and conda: what is there, what shadows what.
void hn_doctor_check_libs(hn_doctor *doctor);
#endif
