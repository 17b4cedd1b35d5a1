// SPDX-License-Identifier: Apache-2.0
// Recordings: what `hone record` writes and `replay:FILE` reads. Text, gzip-compressed if the name
// ends in .gz, and usable up to the last complete line after a crash.
//
//   #hone-record 1
//   #start {"wall_ns":1790000000000000000,"source":"nvml"}
//   #device 0 {"kind":"gpu","name":"NVIDIA H200",...}      facts (info.def)
//   #columns 0 power_w,energy_mj,...                       metric tokens; again when they change
//   0,100023,612.3,8123999,...                             device, microseconds, values; empty = none
//   #event 200100 xid 0 79                                 microseconds, kind, device, number or text
// The energy counter is written when it was read anew and holds until then.
// Kinds of events: xid, lost, back, phase. Lines and columns nobody knows are skipped, so that older
// and newer versions read each other's recordings.
#ifndef HN_PROBE_RECORD_H
#define HN_PROBE_RECORD_H
#include "probe/probe.h"

#define HN_RECORD_DEVICES_MAX 256
// Latest time of a row: 36 years. Twice as much, and a start on any day up to 2116, still adds up.
#define HN_RECORD_NS_MAX (INT64_MAX / 8)

typedef struct hn_recorder hn_recorder;
// Times of samples count from t0_ns (their own clock); wall_ns is the wall clock of that moment.
hn_status hn_recorder_open(hone_error *err, const char *path, const char *source, int64_t t0_ns,
                           int64_t wall_ns, const hn_device_info *devices, int device_count,
                           hn_recorder **out_recorder);
hn_status hn_recorder_put(hone_error *err, hn_recorder *recorder, int device,
                          const hn_sample *sample);
hn_status hn_recorder_event(hone_error *err, hn_recorder *recorder, const hn_event *event);
// Makes what was written so far readable by others, also after kill -9.
hn_status hn_recorder_flush(hone_error *err, hn_recorder *recorder);
hn_status hn_recorder_close(hone_error *err, hn_recorder *recorder); // takes NULL; frees always

typedef struct hn_record hn_record;
typedef enum hn_record_kind { HN_RECORD_END, HN_RECORD_SAMPLE, HN_RECORD_EVENT } hn_record_kind;
hn_status hn_record_open(hone_error *err, const char *path, hn_record **out_record);
void hn_record_close(hn_record *record); // takes NULL
int hn_record_device_count(const hn_record *record);
const hn_device_info *hn_record_devices(const hn_record *record); // borrowed
const char *hn_record_source(const hn_record *record);
// The next sample (device in *out_device) or event. Times count from the recording's start.
hn_status hn_record_next(hone_error *err, hn_record *record, hn_record_kind *out_kind,
                         int *out_device, hn_sample *out_sample, hn_event *out_event);
hn_status hn_record_rewind(hone_error *err, hn_record *record);
#endif
