// SPDX-License-Identifier: Apache-2.0
// Reading all devices of a probe for ever: a thread a card (with its MIG instances), one for the host, one for
// events, and one that watches them.
//
// Rings are sized at start; after that nothing is allocated. A reader copies what is in memory under a lock
// that is never held over a driver call, so that no driver can block it. A thread that does not come back from
// the driver makes its own devices stale and no others; they are well again as soon as it returns. After a
// restart of the driver, and while cards are lost, the probe is opened anew now and then (first after 5 s, at
// last every 5 min).
#ifndef HN_FLEET_SAMPLER_H
#define HN_FLEET_SAMPLER_H
#include "fleet/jobmap.h"
#include "probe/energy.h"

#define HN_SAMPLER_PROCESSES_MAX 128 // a device
#define HN_SAMPLER_EVENTS_MAX    256

typedef struct hn_sampler_options {
    double hz;         // of cards, 0.01 to 100
    double host_hz;    // 0 = the lower of hz and 1
    double process_hz; // listing processes; 0 = the lower of hz and 1, < 0 = never
    int ring;          // samples kept a device; 0 = 10 s of them, at least 64
    int64_t stale_ns;  // age at which values no longer count; 0 = five periods, at least 2 s
    const char *job_dir; // dcgm-exporter's job mapping: a file per card index, lines are job ids; NULL = none
} hn_sampler_options;

typedef enum hn_sampler_state {
    HN_SAMPLER_STARTING, // no reading yet
    HN_SAMPLER_OK,
    HN_SAMPLER_STALE,  // the driver does not come back, or readings fail
    HN_SAMPLER_LOST,   // fell off the bus
    HN_SAMPLER_ENDED,  // the recording is over
} hn_sampler_state;

typedef struct hn_sampler_status {
    hn_sampler_state state;
    int64_t age_ns;      // since the newest reading came in, -1 = none yet
    int64_t stuck_ns;    // how long the driver call has been out, 0 = none is late
    uint64_t samples, failures, late; // readings; readings that failed; turns missed
    uint64_t collector_faults;        // activity stuck at 0 under load
    double cost_s;                    // spent in readings, wall time
    char why[200];                    // of state, one sentence; "" where it is OK
} hn_sampler_status;

typedef struct hn_sampler hn_sampler;
// The probe is borrowed. Devices are those of the probe.
hn_status hn_sampler_start(hone_error *err, hn_probe *probe, const hn_sampler_options *options,
                           hn_sampler **out_sampler);
// False where a driver call does not come back within two seconds: the sampler and the probe then stay in
// memory and must be left alone.
bool hn_sampler_stop(hn_sampler *sampler);
// Waits until every device has had a first reading or cannot have one. False: not within timeout_ms.
bool hn_sampler_wait(hn_sampler *sampler, int timeout_ms);

int hn_sampler_devices(const hn_sampler *sampler);
void hn_sampler_info(hn_sampler *sampler, int device, hn_device_info *out_info);
// False: no reading yet; the status is filled all the same. Whether values still count is its state.
bool hn_sampler_latest(hn_sampler *sampler, int device, hn_sample *out_sample, hn_sampler_status *out_status);
// As hn_sampler_latest, but activity, power and rates are means over the newest window_ns.
bool hn_sampler_mean(hn_sampler *sampler, int device, int64_t window_ns, hn_sample *out_sample,
                     hn_sampler_status *out_status);
// Joules since the sampler began.
void hn_sampler_energy(hn_sampler *sampler, int device, hn_energy *out_energy);
// Samples after number *seq (0 at first), oldest first, at most max; *seq moves on. What has been overwritten
// since is skipped. Returns how many.
int hn_sampler_read(hn_sampler *sampler, int device, uint64_t *seq, hn_sample *out_items, int max_items);
// The newest listing, at most a second or so old; -1: the source has none.
typedef struct hn_sampler_process {
    hn_process process;
    int64_t started; // clock ticks since boot, 0 unknown: tells a pid that was given again
    hn_job_of_pid job;
} hn_sampler_process;
int hn_sampler_processes(hn_sampler *sampler, int device, hn_sampler_process *out_items, int max_items);
// Job ids of the mapping folder for a card, joined by commas; "" if none.
void hn_sampler_mapped_job(hn_sampler *sampler, int device, char *out, size_t bytes);
// Events after number *seq, as hn_sampler_read.
int hn_sampler_events(hn_sampler *sampler, uint64_t *seq, hn_event *out_items, int max_items);
#endif
