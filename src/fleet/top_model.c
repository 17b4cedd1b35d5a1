// SPDX-License-Identifier: Apache-2.0
// The model of hone top and its keys: see top.h.
#include <pwd.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include "fleet/top.h"

hn_status hn_top_model_make(hone_error *err, hn_sampler *sampler, const char *source, hn_top_model *out_model) {
    hn_top_model m = {.interval_s = 1, .device_count = hn_sampler_devices(sampler)};
    snprintf(m.source, sizeof m.source, "%s", source);
    m.devices = hn_calloc((size_t)m.device_count + 1, sizeof *m.devices);
    if (!m.devices) HN_NOMEM(err, "top");
    for (int i = 0; i < m.device_count; i++) m.devices[i].processes = -1;
    *out_model = m;
    return HONE_OK;
}

void hn_top_model_free(hn_top_model *model) {
    hn_free(model->devices);
    model->devices = NULL;
    model->device_count = 0;
}

static void push(hn_top_device *d, double power, double sm, double memory) {
    if (d->history_count == HN_TOP_HISTORY) {
        for (int c = 0; c < HN_TOP_CURVES; c++)
            memmove(d->history[c], d->history[c] + 1, (HN_TOP_HISTORY - 1) * sizeof(float));
        d->history_count--;
    }
    d->history[HN_TOP_CURVE_POWER][d->history_count] = (float)power;
    d->history[HN_TOP_CURVE_SM][d->history_count] = (float)sm;
    d->history[HN_TOP_CURVE_MEMORY][d->history_count++] = (float)memory;
}

static void remember(hn_top_device *d) {
    const hn_sample *s = &d->sample;
    if (!d->have || d->status.state != HN_SAMPLER_OK) {
        push(d, NAN, NAN, NAN);
        return;
    }
    if (d->info.kind == HN_DEVICE_HOST) {
        double total = hn_sample_or(s, HN_M_host_mem_total_bytes, NAN);
        push(d, NAN, hn_sample_or(s, HN_M_cpu_util, NAN) / 100, 1 - hn_sample_or(s, HN_M_host_mem_available_bytes, NAN) / total);
        return;
    }
    double limit = hn_sample_or(s, HN_M_power_limit_w, d->info.power_limit_max_w);
    push(d, hn_sample_or(s, HN_M_power_w, NAN) / limit,
         hn_sample_or(s, HN_M_sm_active, hn_sample_or(s, HN_M_gpu_util, NAN) / 100),
         hn_sample_or(s, HN_M_fb_used_bytes, NAN) / hn_sample_or(s, HN_M_fb_total_bytes, d->info.memory_bytes));
}

static void user_of(int64_t pid, char out[32]) {
    char path[64], buffer[1024];
    struct stat st;
    struct passwd entry, *found = NULL;
    snprintf(path, sizeof path, "/proc/%lld", (long long)pid);
    out[0] = '\0';
    if (stat(path, &st) != 0) return;
    if (getpwuid_r(st.st_uid, &entry, buffer, sizeof buffer, &found) == 0 && found) snprintf(out, 32, "%s", found->pw_name);
    else snprintf(out, 32, "%u", (unsigned)st.st_uid);
}

static void list_processes(hn_top_model *m, hn_sampler *sampler, int device) {
    static _Thread_local hn_sampler_process items[HN_SAMPLER_PROCESSES_MAX];
    hn_top_device *d = &m->devices[device];
    int count = d->info.kind == HN_DEVICE_HOST ? -1 : hn_sampler_processes(sampler, device, items, HN_SAMPLER_PROCESSES_MAX);
    d->processes = count;
    for (int i = 0; i < count && m->process_count < HN_TOP_PROCESSES; i++) {
        hn_top_process *p = &m->processes[m->process_count++];
        *p = (hn_top_process){.device = device, .at = items[i], .joules = count == 1 ? d->energy.joules : NAN, .shared = count > 1};
        user_of(items[i].process.pid, p->user);
    }
}

void hn_top_model_update(hn_top_model *m, hn_sampler *sampler) {
    time_t now = time(NULL);
    struct tm tm;
    strftime(m->clock, sizeof m->clock, "%H:%M:%S", localtime_r(&now, &tm));
    m->process_count = 0;
    for (int i = 0; i < m->device_count; i++) {
        hn_top_device *d = &m->devices[i];
        hn_sample sample;
        hn_sampler_info(sampler, i, &d->info);
        if (hn_sampler_latest(sampler, i, &sample, &d->status)) {
            d->sample = sample;
            d->have = true;
        }
        hn_sampler_energy(sampler, i, &d->energy);
        // A text is one moment, however often it is read.
        if (strncmp(m->source, "text:", 5) == 0) d->energy = (hn_energy){.joules = NAN};
        remember(d);
        list_processes(m, sampler, i);
    }
    hn_top_sort_processes(m);
}

// ---- order ------------------------------------------------------------------------------------

static int order(double a, double b) { // the larger first, unknown last
    if (isnan(a) || isnan(b)) return isnan(a) - isnan(b);
    return a < b ? 1 : a > b ? -1 : 0;
}

static _Thread_local const hn_top_model *g_sorted; // qsort has no argument for it

static int compare(const void *left, const void *right) {
    const hn_top_process *a = left, *b = right;
    const hn_process *p = &a->at.process, *q = &b->at.process;
    int c = 0;
    switch (g_sorted->sort) {
    case HN_TOP_SORT_SM: c = order(p->sm_util, q->sm_util); break;
    case HN_TOP_SORT_PID: c = order((double)q->pid, (double)p->pid); break;
    case HN_TOP_SORT_USER: c = strcmp(a->user, b->user); break;
    case HN_TOP_SORT_CARD: c = a->device - b->device; break;
    case HN_TOP_SORT_NAME: c = strcmp(p->name, q->name); break;
    default: c = order(p->used_bytes < 0 ? NAN : (double)p->used_bytes, q->used_bytes < 0 ? NAN : (double)q->used_bytes);
    }
    if (g_sorted->reverse) c = -c;
    if (c == 0) c = a->device - b->device;
    return c ? c : order((double)q->pid, (double)p->pid);
}

void hn_top_sort_processes(hn_top_model *model) {
    g_sorted = model;
    qsort(model->processes, (size_t)model->process_count, sizeof *model->processes, compare);
    g_sorted = NULL;
}

// ---- keys -------------------------------------------------------------------------------------

static int chosen_row(const hn_top_model *m) {
    for (int i = 0; i < m->process_count; i++)
        if (m->chosen_pid && m->processes[i].at.process.pid == m->chosen_pid && m->processes[i].device == m->chosen_device) return i;
    return -1;
}

static void choose(hn_top_model *m, int row) {
    if (m->process_count == 0) return;
    row = row < 0 ? 0 : row >= m->process_count ? m->process_count - 1 : row;
    m->chosen_pid = m->processes[row].at.process.pid;
    m->chosen_device = m->processes[row].device;
}

static void sort_by(hn_top_model *m, hn_top_sort sort) {
    if (m->sort == sort) m->reverse = !m->reverse;
    else m->reverse = false;
    m->sort = sort;
    hn_top_sort_processes(m);
}

static void ask_signal(hn_top_model *m) {
    int row = chosen_row(m);
    if (!m->may_signal) {
        snprintf(m->message, sizeof m->message, "processes are left alone: start with --kill to end them from here");
    } else if (row < 0) {
        snprintf(m->message, sizeof m->message, "choose a process first (arrows, mouse)");
    } else {
        m->confirm = true;
        snprintf(m->message, sizeof m->message, "send SIGTERM to %lld (%s)? y: yes, any other key: no", (long long)m->chosen_pid,
                 m->processes[row].at.process.name);
    }
}

static void faster(hn_top_model *m, bool more) {
    static const double k_steps[] = {0.1, 0.2, 0.5, 1, 2, 5, 10};
    int at = 3;
    for (int i = 0; i < (int)HN_COUNT_OF(k_steps); i++)
        if (k_steps[i] <= m->interval_s + 1e-9) at = i;
    at += more ? -1 : 1;
    if (at >= 0 && at < (int)HN_COUNT_OF(k_steps)) m->interval_s = k_steps[at];
    snprintf(m->message, sizeof m->message, "anew every %g s", m->interval_s);
}

static void function_key(hn_top_model *m, int n) {
    if (n == 1) m->help = !m->help;
    else if (n == 2) m->compact = !m->compact;
    else if (n == 4) m->curve = (hn_top_curve)((m->curve + 1) % HN_TOP_CURVES);
    else if (n == 5) m->paused = !m->paused;
    else if (n == 6) sort_by(m, (hn_top_sort)((m->sort + 1) % HN_TOP_SORTS));
    else if (n == 9) ask_signal(m);
}

hn_top_action hn_top_press(hn_top_model *m, int key) {
    int row = chosen_row(m);
    bool confirmed = m->confirm;
    m->confirm = false;
    m->message[0] = '\0';
    if (confirmed) return key == 'y' || key == 'Y' ? HN_TOP_SIGNAL : HN_TOP_STAY;
    if (key > HN_TOP_KEY_F && key <= HN_TOP_KEY_F + 12) {
        if (key == HN_TOP_KEY_F + 10) return HN_TOP_QUIT;
        function_key(m, key - HN_TOP_KEY_F);
        return HN_TOP_STAY;
    }
    switch (key) {
    case 'q': case 'Q': case 3: return HN_TOP_QUIT;
    case 27:
        if (!m->help) return HN_TOP_QUIT;
        m->help = false;
        break;
    case 'h': case '?': function_key(m, 1); break;
    case 'c': function_key(m, 2); break;
    case 'g': function_key(m, 4); break;
    case 'p': case ' ': function_key(m, 5); break;
    case 's': function_key(m, 6); break;
    case 'k': function_key(m, 9); break;
    case 'i': case 'I': sort_by(m, m->sort); break;
    case 'M': sort_by(m, HN_TOP_SORT_MEMORY); break;
    case 'P': sort_by(m, HN_TOP_SORT_SM); break;
    case 'N': sort_by(m, HN_TOP_SORT_PID); break;
    case '+': case '=': faster(m, true); break;
    case '-': faster(m, false); break;
    case HN_TOP_KEY_UP: choose(m, row < 0 ? m->process_count - 1 : row - 1); break;
    case HN_TOP_KEY_DOWN: choose(m, row + 1); break;
    case HN_TOP_KEY_PAGE_UP: choose(m, row - 10); break;
    case HN_TOP_KEY_PAGE_DOWN: choose(m, row + 10); break;
    case HN_TOP_KEY_HOME: choose(m, 0); break;
    case HN_TOP_KEY_END: choose(m, m->process_count - 1); break;
    case HN_TOP_KEY_LEFT: m->first_card -= m->first_card > 0; break;
    case HN_TOP_KEY_RIGHT: m->first_card += m->first_card + 1 < m->device_count; break;
    default: break;
    }
    return HN_TOP_STAY;
}

hn_top_action hn_top_click(hn_top_model *m, int hit) {
    if (hit >= HN_TOP_HIT_CARD) return HN_TOP_STAY;
    if (hit >= HN_TOP_HIT_KEY) return hn_top_press(m, HN_TOP_KEY_F + hit - HN_TOP_HIT_KEY);
    m->confirm = false;
    m->message[0] = '\0';
    if (hit >= HN_TOP_HIT_ROW) choose(m, hit - HN_TOP_HIT_ROW);
    else if (hit >= HN_TOP_HIT_SORT && hit < HN_TOP_HIT_SORT + HN_TOP_SORTS) sort_by(m, (hn_top_sort)(hit - HN_TOP_HIT_SORT));
    return HN_TOP_STAY;
}
