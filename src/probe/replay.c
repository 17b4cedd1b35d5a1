// SPDX-License-Identifier: Apache-2.0
// Recordings as a source: replay:FILE[?speed=X][&loop=1][&cards=N].
//
// At speed X > 0 the recording's clock runs X times as fast as the real one, and a sample is the
// newest row up to now. At speed 0 each sample is the device's next row, whoever asks how often.
// With loop=1 the recording starts again at its end, times and counters going on from where they
// were. Times of samples are the recording's own, so that joules and rates come out as recorded.
// With cards=N there are N cards, whatever the recording holds: card k is the recorded card k modulo their
// number, with an index, bus id and UUID of its own; hosts come behind them.
#include <pthread.h>
#include <stdio.h>
#include "probe/probe.h"
#include "probe/record.h"

#define QUEUE_ROWS  64 // step mode: rows of other devices met while looking for one device's next
#define QUEUE_EVENTS 64

typedef struct lane {
    int of; // device of the recording
    hn_sample latest;
    bool have, lost;
    double offset[HN_METRIC_COUNT], first[HN_METRIC_COUNT]; // counters: loops
    uint64_t seen[HN_METRIC_WORDS];                         // counters with a first value
    hn_sample *queue; // step mode: owned ring
    int queued, head;
} lane;

typedef struct replay {
    hn_probe base;
    hn_record *record; // owned
    pthread_mutex_t lock;
    double speed;
    bool loop, at_end;
    int64_t cards; // 0 = as recorded
    int64_t origin_ns;    // real clock when the recording's clock was 0
    int loops;            // finished
    int64_t shift_ns;     // added to row times: finished loops
    int64_t last_ns;      // newest row's time, shifted
    int64_t period_ns;    // last distance of two rows of one device
    lane *lanes;          // owned, one a device
    hn_event events[QUEUE_EVENTS];
    int event_head, event_count;
    // A row that was read but lies in the future:
    bool ahead;
    hn_record_kind ahead_kind;
    int ahead_device;
    hn_sample ahead_sample;
    hn_event ahead_event;
} replay;

static void replay_close(hn_probe *probe) {
    replay *self = (replay *)probe;
    for (int d = 0; self->lanes && d < self->base.device_count; d++)
        hn_free(self->lanes[d].queue);
    hn_free(self->lanes);
    hn_free(self->base.devices);
    hn_record_close(self->record);
    pthread_mutex_destroy(&self->lock);
    hn_free(self);
}

static hone_status parse_options(hone_error *err, replay *self, const char *text) {
    hn_slice rest = {text, strlen(text)};
    while (rest.length) {
        const char *end = memchr(rest.data, '&', rest.length);
        hn_slice item = {rest.data, end ? (size_t)(end - rest.data) : rest.length};
        double value;
        if (hn_slice_starts(item, "speed=") &&
            hn_parse_f64((hn_slice){item.data + 6, item.length - 6}, &value) && value >= 0 &&
            value <= 1e6)
            self->speed = value;
        else if (hn_slice_eq(item, "loop=1") || hn_slice_eq(item, "loop=0"))
            self->loop = item.data[5] == '1';
        else if (hn_slice_starts(item, "cards=") &&
                 hn_parse_i64((hn_slice){item.data + 6, item.length - 6}, &self->cards) && self->cards >= 1 &&
                 self->cards <= 64) {
        } else
            HN_FAIL(err, HONE_ERR_USAGE,
                    "replay: '%.*s' is no option: speed=X (0 = step by step), loop=1, cards=N (1 to 64)",
                    (int)item.length, item.data);
        size_t skip = item.length + (end ? 1 : 0);
        rest.data += skip;
        rest.length -= skip;
    }
    return HONE_OK;
}

static void add_device(replay *self, int of, int parent, int64_t copy) {
    if (self->base.device_count == HN_RECORD_DEVICES_MAX) return;
    int device = self->base.device_count++;
    hn_device_info *info = &self->base.devices[device];
    self->lanes[device].of = of;
    *info = hn_record_devices(self->record)[of];
    if (copy < 0) return;
    info->parent = parent;
    if (info->kind == HN_DEVICE_GPU) info->minor = (double)copy;
    info->gpu_index = (double)copy;
    size_t length = strlen(info->uuid);
    if (length >= 3) snprintf(info->uuid + length - 3, 4, "c%02d", (int)copy);
    else snprintf(info->uuid, sizeof info->uuid, "GPU-copy-%02d", (int)copy);
    if (info->pci_bus_id[0]) snprintf(info->pci_bus_id, sizeof info->pci_bus_id, "00000000:%02X:00.0", 16 + (int)copy);
}

static void add_devices(replay *self) {
    int count = hn_record_device_count(self->record), cards[HN_RECORD_DEVICES_MAX], card_count = 0;
    const hn_device_info *devices = hn_record_devices(self->record);
    for (int d = 0; d < count; d++)
        if (devices[d].kind == HN_DEVICE_GPU) cards[card_count++] = d;
    if (self->cards == 0 || card_count == 0) {
        for (int d = 0; d < count; d++) add_device(self, d, -1, -1);
        return;
    }
    for (int64_t k = 0; k < self->cards; k++) {
        int card = cards[k % card_count], parent = self->base.device_count;
        add_device(self, card, -1, k);
        for (int d = 0; d < count; d++)
            if (devices[d].kind == HN_DEVICE_MIG && devices[d].parent == card) add_device(self, d, parent, k);
    }
    for (int d = 0; d < count; d++)
        if (devices[d].kind == HN_DEVICE_HOST) add_device(self, d, -1, -1);
}

static hone_status replay_fill(hone_error *err, replay *self, const char *arg) {
    char path[1024];
    const char *options = strrchr(arg, '?');
    size_t length = options ? (size_t)(options - arg) : strlen(arg);
    if (length >= sizeof path) HN_FAIL(err, HONE_ERR_USAGE, "replay: the file's name is too long");
    memcpy(path, arg, length);
    path[length] = '\0';
    self->speed = 1;
    if (options) HN_TRY(parse_options(err, self, options + 1));
    HN_TRY(hn_record_open(err, path, &self->record));
    self->base.devices = hn_calloc(HN_RECORD_DEVICES_MAX, sizeof *self->base.devices);
    self->lanes = hn_calloc(HN_RECORD_DEVICES_MAX, sizeof *self->lanes);
    if (!self->base.devices || !self->lanes) HN_NOMEM(err, "replay");
    add_devices(self);
    for (int d = 0; self->speed == 0 && d < self->base.device_count; d++) {
        self->lanes[d].queue = hn_calloc(QUEUE_ROWS, sizeof(hn_sample));
        if (!self->lanes[d].queue) HN_NOMEM(err, "replay");
    }
    self->origin_ns = hn_clock_ns();
    return HONE_OK;
}

static hone_status replay_open(hone_error *err, const char *arg, hn_probe **out_probe) {
    replay *self = hn_calloc(1, sizeof *self);
    if (!self) HN_NOMEM(err, "replay");
    self->base.provider = &hn_probe_replay;
    pthread_mutex_init(&self->lock, NULL);
    hone_status status = replay_fill(err, self, arg);
    if (status != HONE_OK) {
        replay_close(&self->base);
        return status;
    }
    *out_probe = &self->base;
    return HONE_OK;
}

static int64_t replay_clock_locked(const replay *self) {
    if (self->speed == 0) return self->last_ns;
    double now_ns = (double)(hn_clock_ns() - self->origin_ns) * self->speed;
    return now_ns < (double)(INT64_MAX / 2) ? (int64_t)now_ns : INT64_MAX / 2;
}

static int64_t replay_clock(const hn_probe *probe) {
    replay *self = (replay *)probe;
    pthread_mutex_lock(&self->lock);
    int64_t now_ns = replay_clock_locked(self);
    pthread_mutex_unlock(&self->lock);
    return now_ns;
}

// Counters go on rising over the seam of a loop.
static void shift_counters(lane *at, hn_sample *sample) {
    for (int m = 0; m < HN_METRIC_COUNT; m++) {
        if (hn_metric_rows[m].kind != HN_KIND_counter || !hn_sample_has(sample, (hn_metric)m))
            continue;
        if (!((at->seen[m / 64] >> (m % 64)) & 1)) {
            at->seen[m / 64] |= UINT64_C(1) << (m % 64);
            at->first[m] = sample->value[m];
        }
        sample->value[m] += at->offset[m];
    }
}

static hone_status start_again(hone_error *err, replay *self) {
    HN_TRY(hn_record_rewind(err, self->record));
    self->loops++;
    // One row's distance between the last row and the first again.
    self->shift_ns = self->last_ns + (self->period_ns > 0 ? self->period_ns : 100000000);
    for (int d = 0; d < self->base.device_count; d++) {
        lane *at = &self->lanes[d];
        at->lost = self->base.devices[d].lost = false;
        for (int m = 0; m < HN_METRIC_COUNT; m++)
            if (((at->seen[m / 64] >> (m % 64)) & 1) && hn_sample_has(&at->latest, (hn_metric)m))
                at->offset[m] = at->latest.value[m] - at->first[m];
    }
    return HONE_OK;
}

// Reads one row into `ahead`; at the end of the file sets at_end or starts again.
static hone_status fetch(hone_error *err, replay *self) {
    if (self->ahead || self->at_end) return HONE_OK;
    for (int tries = 0; tries < 2; tries++) {
        HN_TRY(hn_record_next(err, self->record, &self->ahead_kind, &self->ahead_device,
                              &self->ahead_sample, &self->ahead_event));
        if (self->ahead_kind != HN_RECORD_END) {
            self->ahead = true;
            self->ahead_sample.t_ns += self->shift_ns;
            self->ahead_sample.wall_ns += self->shift_ns;
            self->ahead_sample.energy_t_ns += self->shift_ns;
            self->ahead_event.t_ns += self->ahead_kind == HN_RECORD_EVENT ? self->shift_ns : 0;
            return HONE_OK;
        }
        if (!self->loop || self->last_ns == self->shift_ns) break; // an empty loop would never end
        if (self->last_ns > HN_RECORD_NS_MAX) break;               // so would time
        HN_TRY(start_again(err, self));
    }
    self->at_end = true;
    return HONE_OK;
}

static void take_row(replay *self, int device) {
    lane *at = &self->lanes[device];
    hn_sample sample = self->ahead_sample;
    shift_counters(at, &sample);
    if (at->have) self->period_ns = sample.t_ns - at->latest.t_ns;
    at->latest = sample;
    at->have = true;
    memcpy(self->base.devices[device].absent, hn_record_devices(self->record)[at->of].absent, HN_METRIC_COUNT);
    if (!at->queue) return;
    if (at->queued == QUEUE_ROWS) at->head++, at->queued--; // nobody reads this device
    at->queue[(at->head + at->queued++) % QUEUE_ROWS] = sample;
}

static void consume(replay *self) {
    self->ahead = false;
    if (self->ahead_kind == HN_RECORD_EVENT) {
        const hn_event *event = &self->ahead_event;
        for (int d = 0; d < self->base.device_count; d++)
            if ((event->kind == HN_EVENT_LOST || event->kind == HN_EVENT_BACK) &&
                (event->device == self->lanes[d].of || event->device < 0))
                self->lanes[d].lost = self->base.devices[d].lost = event->kind == HN_EVENT_LOST;
        if (self->event_count == QUEUE_EVENTS) self->event_head++, self->event_count--;
        hn_event *told = &self->events[(self->event_head + self->event_count++) % QUEUE_EVENTS];
        *told = *event;
        for (int d = self->base.device_count; d-- > 0 && event->device >= 0;) // the first copy speaks for all
            if (self->lanes[d].of == event->device) told->device = d;
        return;
    }
    for (int d = 0; d < self->base.device_count; d++)
        if (self->lanes[d].of == self->ahead_device) take_row(self, d);
    self->last_ns = self->ahead_sample.t_ns;
}

static hone_status sample_locked(hone_error *err, replay *self, int device, hn_sample *out_sample) {
    lane *at = &self->lanes[device];
    int64_t now_ns = replay_clock_locked(self);
    // A device without rows would be looked for through all loops to come.
    for (int first_loop = self->loops; self->loops - first_loop < 2;) {
        if (self->speed == 0 && at->queued > 0) {
            *out_sample = at->queue[at->head++ % QUEUE_ROWS];
            at->queued--;
            return HONE_OK;
        }
        HN_TRY(fetch(err, self));
        int64_t next_ns = !self->ahead ? INT64_MAX
                          : self->ahead_kind == HN_RECORD_EVENT ? self->ahead_event.t_ns
                                                                : self->ahead_sample.t_ns;
        if (!self->ahead) break;
        // Before a device's first row others' are read ahead a little, never the whole recording.
        int64_t ahead_ns = at->have ? 0 : (int64_t)(1e9 * (self->speed > 1 ? self->speed : 1));
        if (self->speed > 0 && next_ns > now_ns + ahead_ns) break;
        if (self->speed == 0 && at->lost && self->ahead_kind == HN_RECORD_SAMPLE) break;
        consume(self);
    }
    // The last row stands for one more row's distance.
    bool over = self->at_end && !self->ahead &&
                (self->speed == 0 || now_ns > self->last_ns + self->period_ns);
    if (!at->have && !over)
        HN_FAIL(err, HONE_ERR_TIMEOUT, "%s: no row of device %d so far", self->base.source, device);
    if (over)
        HN_FAIL(err, HONE_ERR_TIMEOUT, "%s: the recording has ended", self->base.source);
    if (at->lost)
        HN_FAIL(err, HONE_ERR_DEVICE_LOST, "%s: device %d was lost in the recording",
                self->base.source, device);
    *out_sample = at->latest;
    return HONE_OK;
}

static hone_status replay_sample(hone_error *err, hn_probe *probe, int device,
                                 hn_sample *out_sample) {
    replay *self = (replay *)probe;
    pthread_mutex_lock(&self->lock);
    hone_status status = sample_locked(err, self, device, out_sample);
    pthread_mutex_unlock(&self->lock);
    return status;
}

static hone_status replay_wait_event(hone_error *err, hn_probe *probe, int timeout_ms,
                                     hn_event *out_event) {
    replay *self = (replay *)probe;
    int64_t until_ns = hn_clock_ns() + (int64_t)timeout_ms * 1000000;
    for (;;) {
        pthread_mutex_lock(&self->lock);
        bool got = self->event_count > 0;
        if (got) {
            *out_event = self->events[self->event_head++ % QUEUE_EVENTS];
            self->event_count--;
        }
        pthread_mutex_unlock(&self->lock);
        if (got) return HONE_OK;
        int64_t left_ns = until_ns - hn_clock_ns();
        if (left_ns <= 0) HN_FAIL(err, HONE_ERR_TIMEOUT, "no event within %d ms", timeout_ms);
        hn_sleep_ns(left_ns < 10000000 ? left_ns : 10000000);
    }
}

static bool replay_ended(const hn_probe *probe) {
    replay *self = (replay *)probe;
    pthread_mutex_lock(&self->lock);
    bool ended = self->at_end && !self->ahead &&
                 (self->speed == 0 || replay_clock_locked(self) > self->last_ns + self->period_ns);
    for (int d = 0; d < self->base.device_count; d++)
        ended &= self->lanes[d].queued == 0;
    pthread_mutex_unlock(&self->lock);
    return ended;
}

const hn_probe_provider hn_probe_replay = {
    .name = "replay", .takes_arg = true, .open = replay_open, .close = replay_close,
    .sample = replay_sample, .wait_event = replay_wait_event, .clock_ns = replay_clock,
    .ended = replay_ended};
