// SPDX-License-Identifier: Apache-2.0
// The sampling threads: see sampler.h. A lane's lock guards what its devices' slots hold; the sampler's lock
// guards stopping, pausing and events. No lock is held over a driver call, and the two are never held together.
#include "fleet/sampler.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>
#include "probe/collector.h"
#include "probe/sys.h"

#define SECOND_NS    INT64_C(1000000000)
#define LOOK_NS      INT64_C(200000000)  // between two looks at the lanes
#define EVENT_MS     500
#define STOP_NS      (2 * SECOND_NS)
#define REOPEN_FIRST_NS (5 * SECOND_NS)
#define REOPEN_LAST_NS  (300 * SECOND_NS)
#define FAILING_NS   (3 * SECOND_NS) // readings fail for so long: the library may have to be opened anew
#define LANE_DEVICES 32              // a card and its MIG instances

typedef struct slot {
    hn_sample *ring; // owned
    uint64_t count;  // samples ever put in
    hn_device_info info;
    hn_energy energy;
    int64_t arrived_ns, failing_ns; // of the newest answer; since when readings fail, 0 = they do not
    int64_t zero_since_ns;          // collector fault: state
    bool lost, ended;
    hn_sampler_status numbers;      // samples, failures, late, collector_faults, cost_s
    char error[200];                // of the last failed reading
    hn_sampler_process *processes;  // owned
    int process_count;              // -1 = none told
    char mapped_job[128];
} slot;

typedef struct lane {
    hn_sampler *sampler;
    int devices[LANE_DEVICES], count;
    bool is_host;
    int64_t period_ns, stale_ns;
    pthread_t thread;
    pthread_mutex_t lock;
    _Atomic int64_t busy_ns; // when the driver call that is out began, 0 = none
    bool parked;             // under the sampler's lock
    bool told;               // watchdog: the log knows that it is stuck
    hn_process *scratch;     // owned
    hn_sampler_process *fresh; // owned
} lane;

struct hn_sampler {
    hn_probe *probe;
    hn_sampler_options options;
    int device_count, lane_count, started;
    slot *slots; // owned, by device
    int *lane_of; // owned, by device
    lane *lanes; // owned
    pthread_t event_thread, look_thread;
    bool event_started, look_started;
    pthread_mutex_t lock;
    pthread_cond_t wake, parked;
    bool stop, pause, event_parked, event_ended; // under lock
    _Atomic bool want_reopen;
    int64_t reopen_ns, reopen_step_ns;
    hn_event *events; // owned ring
    uint64_t event_count;
};

static bool wait_until(hn_sampler *s, pthread_cond_t *cond, int64_t until_ns) { // false: time is up
    struct timespec until = {.tv_sec = until_ns / SECOND_NS, .tv_nsec = until_ns % SECOND_NS};
    return pthread_cond_timedwait(cond, &s->lock, &until) != ETIMEDOUT;
}

// ---- readings ---------------------------------------------------------------------------------
static void store(lane *at, slot *sl, const hn_sample *sample, const hn_device_info *info, int64_t now_ns) {
    const hn_sampler *s = at->sampler;
    const hn_sample *newest = sl->count ? &sl->ring[(sl->count - 1) % (uint64_t)s->options.ring] : NULL;
    sl->arrived_ns = now_ns;
    sl->failing_ns = 0;
    sl->lost = sl->ended = false;
    sl->numbers.samples++;
    sl->numbers.cost_s += (double)sample->cost_ns * 1e-9;
    if (!newest || info->lost != sl->info.lost || sl->count % 64 == 0) sl->info = *info;
    if (newest && newest->t_ns == sample->t_ns) return; // a recording's row stands longer than our period
    sl->ring[sl->count % (uint64_t)s->options.ring] = *sample;
    sl->count++;
    hn_energy_add(&sl->energy, sample);
    if (hn_collector_fault(&sl->zero_since_ns, sample)) {
        sl->numbers.collector_faults++;
        atomic_store(&at->sampler->want_reopen, true);
    }
}

static bool read_device(lane *at, int device) { // false: it failed
    hn_sampler *s = at->sampler;
    slot *sl = &s->slots[device];
    hn_sample sample;
    hone_error err = {0};
    atomic_store(&at->busy_ns, hn_clock_ns());
    hone_status status = hn_probe_sample(&err, s->probe, device, &sample);
    int64_t now_ns = hn_clock_ns();
    atomic_store(&at->busy_ns, 0);
    bool ended = status == HONE_ERR_TIMEOUT && hn_probe_ended(s->probe);
    pthread_mutex_lock(&at->lock);
    if (status == HONE_OK) {
        store(at, sl, &sample, hn_probe_device(s->probe, device), now_ns);
    } else if (ended) {
        sl->ended = true;
        snprintf(sl->error, sizeof sl->error, "%.*s", (int)sizeof sl->error - 1, err.text);
    } else if (status != HONE_ERR_TIMEOUT) { // before a recording's first row
        sl->numbers.failures++;
        if (!sl->failing_ns) sl->failing_ns = now_ns;
        if (status == HONE_ERR_DEVICE_LOST) sl->lost = sl->info.lost = true;
        snprintf(sl->error, sizeof sl->error, "%.*s", (int)sizeof sl->error - 1, err.text);
    }
    pthread_mutex_unlock(&at->lock);
    return status == HONE_OK || (status == HONE_ERR_TIMEOUT && !ended);
}

// ---- processes --------------------------------------------------------------------------------
static int64_t start_time(int64_t pid) { // in ticks since boot; 0 unknown
    char path[HN_SYS_PATH_BYTES], text[1024];
    if (!hn_sys_path(path, "/proc/%lld/stat", (long long)pid) || hn_sys_read(path, text, sizeof text) <= 0) return 0;
    const char *at = strrchr(text, ')'); // the name may hold anything
    for (int field = 2; at && field < 22; field++) at = strchr(at + 1, ' ');
    int64_t value = 0;
    if (at) (void)hn_parse_i64((hn_slice){at + 1, strcspn(at + 1, " ")}, &value);
    return value;
}

static void read_mapped_job(const hn_sampler *s, double index, char *out, size_t bytes) {
    char path[512], text[1024];
    size_t at = 0;
    out[0] = '\0';
    if (!s->options.job_dir || !isfinite(index)) return;
    snprintf(path, sizeof path, "%s/%.0f", s->options.job_dir, index);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t got = fd >= 0 ? read(fd, text, sizeof text) : -1;
    if (fd >= 0) close(fd);
    hn_slice rest = {text, got > 0 ? (size_t)got : 0}, line;
    while (hn_slice_line(&rest, &line)) {
        line = hn_slice_trim(line);
        if (!line.length || at + line.length + 2 > bytes) continue;
        at += (size_t)snprintf(out + at, bytes - at, "%s%.*s", at ? "," : "", (int)line.length, line.data);
    }
}

static void read_processes(lane *at) {
    hn_sampler *s = at->sampler;
    int device = at->devices[0], count = 0;
    slot *sl = &s->slots[device];
    char mapped[sizeof sl->mapped_job];
    hone_error ignored = {0};
    atomic_store(&at->busy_ns, hn_clock_ns());
    hone_status status = hn_probe_processes(&ignored, s->probe, device, at->scratch, HN_SAMPLER_PROCESSES_MAX, &count);
    if (status != HONE_OK) count = -1;
    for (int i = 0; i < count; i++) {
        hn_sampler_process *to = &at->fresh[i];
        int64_t pid = at->scratch[i].pid, started = start_time(pid);
        const hn_sampler_process *known = NULL;
        // Only this thread writes the list, so that it may read it without the lock.
        for (int k = 0; k < sl->process_count && !known; k++)
            if (sl->processes[k].process.pid == pid && sl->processes[k].started == started)
                known = &sl->processes[k];
        to->process = at->scratch[i];
        to->started = started;
        if (known) to->job = known->job;
        else hn_job_of_pid_read(pid, &to->job);
    }
    read_mapped_job(s, sl->info.gpu_index, mapped, sizeof mapped);
    atomic_store(&at->busy_ns, 0);
    pthread_mutex_lock(&at->lock);
    if (count > 0) memcpy(sl->processes, at->fresh, (size_t)count * sizeof *at->fresh);
    sl->process_count = count;
    memcpy(sl->mapped_job, mapped, sizeof mapped);
    pthread_mutex_unlock(&at->lock);
}

// ---- threads ----------------------------------------------------------------------------------
static void *lane_thread(void *arg) {
    lane *at = arg;
    hn_sampler *s = at->sampler;
    double process_hz = at->is_host ? -1 : s->options.process_hz;
    int64_t next_ns = hn_clock_ns(), processes_ns = 0;
    pthread_mutex_lock(&s->lock);
    while (!s->stop) {
        if (s->pause) {
            at->parked = true;
            pthread_cond_broadcast(&s->parked);
            pthread_cond_wait(&s->wake, &s->lock);
            at->parked = false;
            next_ns = hn_clock_ns();
            continue;
        }
        if (next_ns > hn_clock_ns() && wait_until(s, &s->wake, next_ns)) continue;
        pthread_mutex_unlock(&s->lock);
        bool good = true;
        for (int i = 0; i < at->count; i++) good &= read_device(at, at->devices[i]);
        int64_t now_ns = hn_clock_ns();
        if (process_hz > 0 && now_ns >= processes_ns && good) {
            read_processes(at);
            processes_ns = now_ns + (int64_t)(0.99e9 / process_hz);
            now_ns = hn_clock_ns();
        }
        // Missed turns are not made up for; what fails is asked once a second.
        next_ns += at->period_ns;
        if (next_ns < now_ns) {
            pthread_mutex_lock(&at->lock);
            s->slots[at->devices[0]].numbers.late += (uint64_t)((now_ns - next_ns) / at->period_ns + 1);
            pthread_mutex_unlock(&at->lock);
            next_ns = now_ns + at->period_ns;
        }
        if (!good && next_ns < now_ns + SECOND_NS) next_ns = now_ns + SECOND_NS;
        pthread_mutex_lock(&s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static void *event_thread(void *arg) {
    hn_sampler *s = arg;
    bool able = true;
    pthread_mutex_lock(&s->lock);
    while (!s->stop && able) {
        if (s->pause) {
            s->event_parked = true;
            pthread_cond_broadcast(&s->parked);
            pthread_cond_wait(&s->wake, &s->lock);
            s->event_parked = false;
            continue;
        }
        pthread_mutex_unlock(&s->lock);
        hn_event event;
        hone_error ignored = {0};
        hone_status status = hn_probe_wait_event(&ignored, s->probe, EVENT_MS, &event);
        if (status != HONE_OK && status != HONE_ERR_TIMEOUT && status != HONE_ERR_UNSUPPORTED)
            hn_sleep_ns(EVENT_MS * INT64_C(1000000));
        able = status != HONE_ERR_UNSUPPORTED;
        pthread_mutex_lock(&s->lock);
        if (status == HONE_OK) s->events[s->event_count++ % HN_SAMPLER_EVENTS_MAX] = event;
    }
    s->event_ended = true;
    pthread_cond_broadcast(&s->parked);
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

// ---- the watchdog -----------------------------------------------------------------------------
static void tell_stuck(lane *at, int64_t now_ns) {
    int64_t busy_ns = atomic_load(&at->busy_ns);
    bool stuck = busy_ns && now_ns - busy_ns > at->stale_ns;
    char label[64];
    if (stuck == at->told) return;
    at->told = stuck;
    pthread_mutex_lock(&at->lock);
    hn_device_label(&at->sampler->slots[at->devices[0]].info, label, sizeof label);
    pthread_mutex_unlock(&at->lock);
    if (stuck)
        hn_log(HN_LOG_WARN, "%s: the driver has not answered for %.1f s; its values are stale, other devices go on",
               label, (double)(now_ns - busy_ns) * 1e-9);
    else
        hn_log(HN_LOG_WARN, "%s: the driver answers again", label);
}

static bool needs_reopen(hn_sampler *s, int64_t now_ns) {
    bool needed = atomic_load(&s->want_reopen);
    for (int l = 0; l < s->lane_count; l++) {
        lane *at = &s->lanes[l];
        if (at->told) return false; // it cannot be stopped for it
        pthread_mutex_lock(&at->lock);
        for (int i = 0; i < at->count; i++) {
            const slot *sl = &s->slots[at->devices[i]];
            needed |= sl->lost || (sl->failing_ns && now_ns - sl->failing_ns > FAILING_NS);
        }
        pthread_mutex_unlock(&at->lock);
    }
    return needed;
}

static bool all_parked(const hn_sampler *s) {
    for (int l = 0; l < s->lane_count; l++)
        if (!s->lanes[l].parked) return false;
    return s->event_parked || s->event_ended;
}

// With all other threads waiting. What does not park in time is out with the driver: later, then.
static void reopen(hn_sampler *s) {
    int64_t until_ns = hn_clock_ns() + SECOND_NS;
    hone_error err = {0};
    s->pause = true;
    pthread_cond_broadcast(&s->wake);
    while (!s->stop && !all_parked(s) && wait_until(s, &s->parked, until_ns)) {}
    if (!s->stop && all_parked(s)) {
        pthread_mutex_unlock(&s->lock);
        hone_status status = hn_probe_reopen(&err, s->probe);
        atomic_store(&s->want_reopen, false);
        hn_log(HN_LOG_INFO, "the cards were opened anew%s%s", status == HONE_OK ? "" : ": ", err.text);
        for (int d = 0; d < s->device_count; d++) {
            lane *at = &s->lanes[s->lane_of[d]];
            pthread_mutex_lock(&at->lock);
            if (d < hn_probe_device_count(s->probe)) s->slots[d].info = *hn_probe_device(s->probe, d);
            pthread_mutex_unlock(&at->lock);
        }
        pthread_mutex_lock(&s->lock);
    }
    s->pause = false;
    pthread_cond_broadcast(&s->wake);
}

static void *look_thread(void *arg) {
    hn_sampler *s = arg;
    int64_t next_ns = hn_clock_ns(), well_ns = next_ns;
    pthread_mutex_lock(&s->lock);
    while (!s->stop) {
        next_ns += LOOK_NS;
        while (!s->stop && wait_until(s, &s->wake, next_ns)) {}
        if (s->stop) break;
        int64_t now_ns = hn_clock_ns();
        pthread_mutex_unlock(&s->lock);
        for (int l = 0; l < s->lane_count; l++) tell_stuck(&s->lanes[l], now_ns);
        bool needed = needs_reopen(s, now_ns);
        pthread_mutex_lock(&s->lock);
        if (!needed) {
            if (now_ns - well_ns > 60 * SECOND_NS) s->reopen_step_ns = REOPEN_FIRST_NS;
            s->reopen_ns = now_ns + s->reopen_step_ns;
            continue;
        }
        well_ns = now_ns;
        if (now_ns < s->reopen_ns) continue;
        reopen(s);
        s->reopen_step_ns = hn_min_i64(2 * s->reopen_step_ns, REOPEN_LAST_NS);
        next_ns = hn_clock_ns();
        s->reopen_ns = next_ns + s->reopen_step_ns;
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

// ---- start and stop ---------------------------------------------------------------------------
static void sampler_free(hn_sampler *s) {
    for (int l = 0; s->lanes && l < s->lane_count; l++) {
        pthread_mutex_destroy(&s->lanes[l].lock);
        hn_free(s->lanes[l].scratch);
        hn_free(s->lanes[l].fresh);
    }
    for (int d = 0; s->slots && d < s->device_count; d++) {
        hn_free(s->slots[d].ring);
        hn_free(s->slots[d].processes);
    }
    pthread_cond_destroy(&s->wake);
    pthread_cond_destroy(&s->parked);
    pthread_mutex_destroy(&s->lock);
    hn_free(s->slots);
    hn_free(s->lane_of);
    hn_free(s->lanes);
    hn_free(s->events);
    hn_free(s);
}

static hone_status add_lane(hone_error *err, hn_sampler *s, int device) {
    lane *at = &s->lanes[s->lane_count++];
    const hn_device_info *info = hn_probe_device(s->probe, device);
    at->sampler = s;
    at->is_host = info->kind == HN_DEVICE_HOST;
    double hz = at->is_host ? s->options.host_hz : s->options.hz;
    at->period_ns = (int64_t)(1e9 / hz);
    at->stale_ns = s->options.stale_ns ? s->options.stale_ns : hn_max_i64(5 * at->period_ns, 2 * SECOND_NS);
    pthread_mutex_init(&at->lock, NULL);
    if (at->is_host) return HONE_OK;
    at->scratch = hn_calloc(HN_SAMPLER_PROCESSES_MAX, sizeof *at->scratch);
    at->fresh = hn_calloc(HN_SAMPLER_PROCESSES_MAX, sizeof *at->fresh);
    if (!at->scratch || !at->fresh) HN_NOMEM(err, "sampler");
    return HONE_OK;
}

static hone_status fill(hone_error *err, hn_sampler *s) {
    size_t count = (size_t)s->device_count;
    s->slots = hn_calloc(count, sizeof *s->slots);
    s->lane_of = hn_calloc(count, sizeof *s->lane_of);
    s->lanes = hn_calloc(count, sizeof *s->lanes);
    s->events = hn_calloc(HN_SAMPLER_EVENTS_MAX, sizeof *s->events);
    if (!s->slots || !s->lane_of || !s->lanes || !s->events) HN_NOMEM(err, "sampler");
    for (int d = 0; d < s->device_count; d++) {
        const hn_device_info *info = hn_probe_device(s->probe, d);
        slot *sl = &s->slots[d];
        sl->info = *info;
        sl->process_count = -1;
        hn_energy_start(&sl->energy, info->kind);
        sl->ring = hn_calloc((size_t)s->options.ring, sizeof *sl->ring);
        if (info->kind == HN_DEVICE_GPU) {
            sl->processes = hn_calloc(HN_SAMPLER_PROCESSES_MAX, sizeof *sl->processes);
            if (!sl->processes) HN_NOMEM(err, "sampler");
        }
        if (!sl->ring) HN_NOMEM(err, "sampler");
        // Touched now: memory that is there only once the ring has gone round would look like a leak until then.
        memset(sl->ring, 0, (size_t)s->options.ring * sizeof *sl->ring);
        // An instance is read by its card's thread.
        bool shares = info->kind == HN_DEVICE_MIG && info->parent >= 0 && info->parent < d &&
                      s->lanes[s->lane_of[info->parent]].count < LANE_DEVICES;
        if (!shares) HN_TRY(add_lane(err, s, d));
        s->lane_of[d] = shares ? s->lane_of[info->parent] : s->lane_count - 1;
        lane *at = &s->lanes[s->lane_of[d]];
        at->devices[at->count++] = d;
        if (!sl->processes) at->is_host |= at->count == 1; // nothing to list: an instance on its own
    }
    return HONE_OK;
}

static int start_threads(hn_sampler *s) { // 0 or errno
    sigset_t every, before;
    char name[16];
    int failed = 0;
    sigfillset(&every); // signals are the main thread's
    pthread_sigmask(SIG_SETMASK, &every, &before);
    while (s->started < s->lane_count && !failed) {
        failed = pthread_create(&s->lanes[s->started].thread, NULL, lane_thread, &s->lanes[s->started]);
        if (failed) break;
        snprintf(name, sizeof name, "hone-read-%d", s->started);
        pthread_setname_np(s->lanes[s->started++].thread, name);
    }
    if (!failed) failed = pthread_create(&s->event_thread, NULL, event_thread, s);
    s->event_started = !failed;
    if (!failed) failed = pthread_create(&s->look_thread, NULL, look_thread, s);
    s->look_started = s->event_started && !failed;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed;
}

hn_status hn_sampler_start(hone_error *err, hn_probe *probe, const hn_sampler_options *options,
                           hn_sampler **out_sampler) {
    hn_sampler *s = hn_calloc(1, sizeof *s);
    if (!s) HN_NOMEM(err, "sampler");
    s->probe = probe;
    s->options = *options;
    if (!(s->options.hz >= 0.01 && s->options.hz <= 100)) s->options.hz = s->options.hz > 100 ? 100 : 10;
    double slow = s->options.hz < 1 ? s->options.hz : 1;
    if (!(s->options.host_hz > 0)) s->options.host_hz = slow;
    if (s->options.process_hz == 0) s->options.process_hz = slow;
    if (s->options.ring <= 0) s->options.ring = (int)(10 * s->options.hz);
    if (s->options.ring < 64) s->options.ring = 64;
    s->device_count = hn_probe_device_count(probe);
    s->reopen_step_ns = REOPEN_FIRST_NS;
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&s->wake, &clock);
    pthread_cond_init(&s->parked, &clock);
    pthread_condattr_destroy(&clock);
    pthread_mutex_init(&s->lock, NULL);
    hone_status status = fill(err, s);
    if (status != HONE_OK) {
        sampler_free(s);
        return status;
    }
    int failed = start_threads(s);
    if (failed) {
        (void)hn_sampler_stop(s);
        HN_FAIL_VENDOR(err, HONE_ERR_IO, failed, "the threads that read the cards cannot be started");
    }
    *out_sampler = s;
    return HONE_OK;
}

bool hn_sampler_stop(hn_sampler *s) {
    if (!s) return true;
    pthread_mutex_lock(&s->lock);
    s->stop = true;
    pthread_cond_broadcast(&s->wake);
    pthread_cond_broadcast(&s->parked);
    pthread_mutex_unlock(&s->lock);
    int64_t end_ns = hn_clock_wall_ns() + STOP_NS; // one limit for all
    struct timespec until = {.tv_sec = end_ns / SECOND_NS, .tv_nsec = end_ns % SECOND_NS};
    bool all_back = true;
    for (int l = -2; l < s->started; l++) {
        pthread_t thread = l == -2 ? s->look_thread : l == -1 ? s->event_thread : s->lanes[l].thread;
        if ((l == -2 && !s->look_started) || (l == -1 && !s->event_started)) continue;
        if (pthread_timedjoin_np(thread, NULL, &until) == 0) continue;
        pthread_detach(thread);
        all_back = false;
    }
    if (all_back) sampler_free(s); // a stuck thread may come back to what it uses
    return all_back;
}

// ---- readers ----------------------------------------------------------------------------------
static void status_of(const lane *at, const slot *sl, int64_t now_ns, hn_sampler_status *out) {
    int64_t busy_ns = atomic_load(&((lane *)at)->busy_ns);
    *out = sl->numbers;
    out->age_ns = sl->arrived_ns ? now_ns - sl->arrived_ns : -1;
    if (out->age_ns < -1) out->age_ns = 0;
    out->stuck_ns = busy_ns && now_ns - busy_ns > at->stale_ns ? now_ns - busy_ns : 0;
    out->why[0] = '\0';
    if (sl->lost) {
        out->state = HN_SAMPLER_LOST;
        snprintf(out->why, sizeof out->why, "%s", sl->error);
    } else if (out->stuck_ns) {
        out->state = HN_SAMPLER_STALE;
        snprintf(out->why, sizeof out->why, "the driver has not answered for %.1f s", (double)out->stuck_ns * 1e-9);
    } else if (sl->ended) {
        out->state = HN_SAMPLER_ENDED;
        snprintf(out->why, sizeof out->why, "%s", sl->error);
    } else if (sl->failing_ns && (!sl->arrived_ns || out->age_ns > at->stale_ns)) {
        out->state = HN_SAMPLER_STALE;
        snprintf(out->why, sizeof out->why, "%s", sl->error);
    } else if (!sl->arrived_ns) {
        out->state = HN_SAMPLER_STARTING;
        snprintf(out->why, sizeof out->why, "no reading yet");
    } else if (out->age_ns > at->stale_ns) {
        out->state = HN_SAMPLER_STALE;
        snprintf(out->why, sizeof out->why, "no reading for %.1f s", (double)out->age_ns * 1e-9);
    } else {
        out->state = HN_SAMPLER_OK;
    }
}

int hn_sampler_devices(const hn_sampler *sampler) { return sampler->device_count; }

void hn_sampler_info(hn_sampler *sampler, int device, hn_device_info *out_info) {
    lane *at = &sampler->lanes[sampler->lane_of[device]];
    pthread_mutex_lock(&at->lock);
    *out_info = sampler->slots[device].info;
    pthread_mutex_unlock(&at->lock);
}

bool hn_sampler_latest(hn_sampler *sampler, int device, hn_sample *out_sample, hn_sampler_status *out_status) {
    lane *at = &sampler->lanes[sampler->lane_of[device]];
    slot *sl = &sampler->slots[device];
    pthread_mutex_lock(&at->lock);
    bool any = sl->count > 0;
    if (any && out_sample) *out_sample = sl->ring[(sl->count - 1) % (uint64_t)sampler->options.ring];
    if (out_status) status_of(at, sl, hn_clock_ns(), out_status);
    pthread_mutex_unlock(&at->lock);
    return any;
}

// Quantities that hold for a stretch of time: what is read is a mean already, of a shorter one.
static bool is_mean(hn_metric metric) {
    static const char *const k_units[] = {"ratio", "%", "W", "B/s"};
    if (hn_metric_rows[metric].kind != HN_KIND_gauge) return false;
    for (size_t i = 0; i < HN_COUNT_OF(k_units); i++)
        if (strcmp(hn_metric_rows[metric].unit, k_units[i]) == 0) return true;
    return false;
}

static void average(const hn_sampler *s, const slot *sl, int64_t window_ns, hn_sample *out) {
    uint64_t ring = (uint64_t)s->options.ring, first = sl->count > ring ? sl->count - ring : 0;
    uint64_t from = sl->count - 1;
    while (from > first && out->t_ns - sl->ring[(from - 1) % ring].t_ns < window_ns) from--;
    for (int m = 0; m < HN_METRIC_COUNT; m++) {
        if (!hn_sample_has(out, (hn_metric)m) || !is_mean((hn_metric)m)) continue;
        double sum = 0, count = 0;
        for (uint64_t i = from; i < sl->count; i++) {
            const hn_sample *at = &sl->ring[i % ring];
            if (!hn_sample_has(at, (hn_metric)m)) continue;
            sum += at->value[m];
            count++;
        }
        out->value[m] = sum / count;
    }
}

bool hn_sampler_mean(hn_sampler *sampler, int device, int64_t window_ns, hn_sample *out_sample,
                     hn_sampler_status *out_status) {
    lane *at = &sampler->lanes[sampler->lane_of[device]];
    slot *sl = &sampler->slots[device];
    pthread_mutex_lock(&at->lock);
    bool any = sl->count > 0;
    if (any) {
        *out_sample = sl->ring[(sl->count - 1) % (uint64_t)sampler->options.ring];
        if (window_ns > 0) average(sampler, sl, window_ns, out_sample);
    }
    status_of(at, sl, hn_clock_ns(), out_status);
    pthread_mutex_unlock(&at->lock);
    return any;
}

void hn_sampler_energy(hn_sampler *sampler, int device, hn_energy *out_energy) {
    lane *at = &sampler->lanes[sampler->lane_of[device]];
    pthread_mutex_lock(&at->lock);
    *out_energy = sampler->slots[device].energy;
    pthread_mutex_unlock(&at->lock);
}

int hn_sampler_read(hn_sampler *sampler, int device, uint64_t *seq, hn_sample *out_items, int max_items) {
    lane *at = &sampler->lanes[sampler->lane_of[device]];
    slot *sl = &sampler->slots[device];
    uint64_t ring = (uint64_t)sampler->options.ring;
    int count = 0;
    pthread_mutex_lock(&at->lock);
    if (sl->count > ring && *seq < sl->count - ring) *seq = sl->count - ring;
    for (; *seq < sl->count && count < max_items; ++*seq) out_items[count++] = sl->ring[*seq % ring];
    pthread_mutex_unlock(&at->lock);
    return count;
}

int hn_sampler_processes(hn_sampler *sampler, int device, hn_sampler_process *out_items, int max_items) {
    lane *at = &sampler->lanes[sampler->lane_of[device]];
    slot *sl = &sampler->slots[device];
    pthread_mutex_lock(&at->lock);
    int count = sl->processes ? sl->process_count : -1;
    if (count > max_items) count = max_items;
    if (count > 0) memcpy(out_items, sl->processes, (size_t)count * sizeof *out_items);
    pthread_mutex_unlock(&at->lock);
    return count;
}

void hn_sampler_mapped_job(hn_sampler *sampler, int device, char *out, size_t bytes) {
    lane *at = &sampler->lanes[sampler->lane_of[device]];
    pthread_mutex_lock(&at->lock);
    snprintf(out, bytes, "%s", sampler->slots[device].mapped_job);
    pthread_mutex_unlock(&at->lock);
}

int hn_sampler_events(hn_sampler *sampler, uint64_t *seq, hn_event *out_items, int max_items) {
    int count = 0;
    pthread_mutex_lock(&sampler->lock);
    if (sampler->event_count > HN_SAMPLER_EVENTS_MAX && *seq < sampler->event_count - HN_SAMPLER_EVENTS_MAX)
        *seq = sampler->event_count - HN_SAMPLER_EVENTS_MAX;
    for (; *seq < sampler->event_count && count < max_items; ++*seq)
        out_items[count++] = sampler->events[*seq % HN_SAMPLER_EVENTS_MAX];
    pthread_mutex_unlock(&sampler->lock);
    return count;
}

bool hn_sampler_wait(hn_sampler *sampler, int timeout_ms) {
    int64_t until_ns = hn_clock_ns() + (int64_t)timeout_ms * 1000000;
    for (;;) {
        bool all = true;
        for (int d = 0; d < sampler->device_count; d++) {
            hn_sampler_status status;
            hn_sampler_latest(sampler, d, NULL, &status);
            all &= status.state != HN_SAMPLER_STARTING;
        }
        if (all) return true;
        if (hn_clock_ns() >= until_ns) return false;
        hn_sleep_ns(2000000);
    }
}
