// SPDX-License-Identifier: Apache-2.0
// Calibration: value ranges from data by two streaming passes (extent, then histogram), and the
// rules that turn a histogram into the range to quantise.
//
// The module is run without device passes, so that every value of the graph is seen under its name.
#include "optimize/optimize_int.h"
#include <math.h>
#include <pthread.h>
#include <stdlib.h>

typedef struct name_row {
    const char *name;
    uint32_t id;
} name_row;

typedef struct watcher {
    hn_calibration *calibration;
    name_row *names; // sorted
    size_t name_count;
    bool histogram;
} watcher;

static int by_name(const void *a, const void *b) {
    return strcmp(((const name_row *)a)->name, ((const name_row *)b)->name);
}

// Elements taken together: as many independent lanes as a compiler makes vectors of.
#define LANES 32

static int64_t block_extent(const float *data, int64_t count, float *low, float *high) {
    int64_t not_finite = 0;
    for (int64_t i = 0; i < count; i++) {
        if (!isfinite(data[i])) {
            not_finite++;
            continue;
        }
        *low = data[i] < *low ? data[i] : *low;
        *high = data[i] > *high ? data[i] : *high;
    }
    return not_finite;
}

static void see_extent(hn_range *range, const float *data, int64_t count) {
    float low = range->seen ? range->low : INFINITY, high = range->seen ? range->high : -INFINITY;
    float lows[LANES], highs[LANES];
    int64_t not_finite = 0, whole = count - count % LANES;
    for (int k = 0; k < LANES; k++) {
        lows[k] = low;
        highs[k] = high;
    }
    for (int64_t i = 0; i < whole; i += LANES) {
        const float *at = data + i;
        int odd = 0;
        for (int k = 0; k < LANES; k++)
            odd |= !(at[k] - at[k] == 0); // NaN and infinities only
        if (odd) {
            not_finite += block_extent(at, LANES, &low, &high);
            continue;
        }
        for (int k = 0; k < LANES; k++) {
            lows[k] = at[k] < lows[k] ? at[k] : lows[k];
            highs[k] = at[k] > highs[k] ? at[k] : highs[k];
        }
    }
    not_finite += block_extent(data + whole, count - whole, &low, &high);
    for (int k = 0; k < LANES; k++) {
        low = lows[k] < low ? lows[k] : low;
        high = highs[k] > high ? highs[k] : high;
    }
    range->count += count;
    range->not_finite += not_finite;
    if (low > high) return;
    range->seen = true;
    range->low = low;
    range->high = high;
}

static void count_bins(const hn_range *range, const float *data, int64_t count, uint32_t *out) {
    float low = range->low, high = range->high, scale = HN_HISTOGRAM_BINS / (high - low);
    int bins[LANES];
    for (int64_t i = 0; i < count; i += LANES) {
        const float *at = data + i;
        int n = count - i < LANES ? (int)(count - i) : LANES;
        for (int k = 0; k < n; k++) {
            bool in = at[k] >= low && at[k] <= high; // not NaN
            int bin = (int)((in ? at[k] - low : 0) * scale);
            bin = bin < 0 ? 0 : bin >= HN_HISTOGRAM_BINS ? HN_HISTOGRAM_BINS - 1 : bin;
            bins[k] = in ? bin : -1;
        }
        for (int k = 0; k < n; k++)
            if (bins[k] >= 0 && out[bins[k]] < UINT32_MAX) out[bins[k]]++;
    }
}

// ---- a value by all threads ---------------------------------------------------------------------
#define GRAIN ((int64_t)1 << 18)
typedef struct look {
    hn_range *range;
    const float *data;
    bool histogram;
    pthread_mutex_t lock;
} look;

static void look_at(void *arg, int64_t begin, int64_t end) {
    look *l = arg;
    hn_range *to = l->range, part = {0};
    uint32_t bins[HN_HISTOGRAM_BINS] = {0};
    if (l->histogram) count_bins(to, l->data + begin, end - begin, bins);
    else see_extent(&part, l->data + begin, end - begin);
    pthread_mutex_lock(&l->lock);
    for (int i = 0; i < HN_HISTOGRAM_BINS && l->histogram; i++)
        to->bins[i] = bins[i] > UINT32_MAX - to->bins[i] ? UINT32_MAX : to->bins[i] + bins[i];
    to->count += part.count;
    to->not_finite += part.not_finite;
    if (part.seen) {
        to->low = to->seen && to->low < part.low ? to->low : part.low;
        to->high = to->seen && to->high > part.high ? to->high : part.high;
        to->seen = true;
    }
    pthread_mutex_unlock(&l->lock);
}

static hn_status see(hone_error *err, const watcher *w, const char *name, const hn_tensor *tensor) {
    if (tensor->dtype != HN_F32) return HONE_OK;
    name_row key = {.name = name};
    const name_row *row = bsearch(&key, w->names, w->name_count, sizeof key, by_name);
    if (!row) return HONE_OK;
    hn_range *range = &w->calibration->ranges[row->id];
    int64_t count = hn_tensor_count(tensor);
    if (w->histogram && (!range->seen || range->high <= range->low)) return HONE_OK;
    if (w->histogram && !range->bins) range->bins = hn_calloc(HN_HISTOGRAM_BINS, sizeof *range->bins);
    if (w->histogram && !range->bins) HN_NOMEM(err, "calibrating");
    look l = {.range = range, .data = tensor->data, .histogram = w->histogram};
    pthread_mutex_init(&l.lock, NULL);
    hn_parallel_for(count, GRAIN, look_at, &l);
    pthread_mutex_destroy(&l.lock);
    return HONE_OK;
}

static hone_status on_value(void *user, const hn_node *node, int output, const hn_tensor *tensor) {
    return see(NULL, user, node->outputs[output]->name, tensor);
}

static hn_status make_names(hone_error *err, const hn_module *module, watcher *w) {
    const hn_graph *main = module->main;
    w->names = hn_malloc((main->values.count + 1) * sizeof *w->names);
    if (!w->names) HN_NOMEM(err, "calibrating");
    for (size_t i = 0; i < main->values.count; i++) {
        const hn_value *value = main->values.data[i];
        if (*value->name) w->names[w->name_count++] = (name_row){value->name, value->id};
    }
    qsort(w->names, w->name_count, sizeof *w->names, by_name);
    return HONE_OK;
}

// Views run no step, so their outputs are not seen: they have their input's values.
static hn_status fill_views(hone_error *err, const hn_module *module, hn_calibration *c) {
    for (const hn_node *node = module->main->first; node; node = node->next) {
        const hn_value *in = hn_in(node, 0), *out = hn_out(node, 0);
        if (!hn_op_has(node->op, HN_T_VIEW) || !in || !out || out->id >= c->count ||
            c->ranges[out->id].seen || !c->ranges[in->id].seen)
            continue;
        hn_range copy = c->ranges[in->id];
        if (copy.bins) {
            copy.bins = hn_malloc(HN_HISTOGRAM_BINS * sizeof *copy.bins);
            if (!copy.bins) HN_NOMEM(err, "calibrating");
            memcpy(copy.bins, c->ranges[in->id].bins, HN_HISTOGRAM_BINS * sizeof *copy.bins);
        }
        c->ranges[out->id] = copy;
    }
    return HONE_OK;
}

hn_status hn_calibrate(hone_error *err, hn_gate *gate, hn_module *module, int64_t max_samples,
                       bool histogram, void (*progress)(void *, const char *, double), void *user,
                       hn_calibration *out_calibration) {
    hn_calibration calibration = {.count = module->next_value_id};
    calibration.ranges = hn_calloc((size_t)calibration.count + 1, sizeof *calibration.ranges);
    watcher w = {.calibration = &calibration};
    hn_session *session = NULL;
    hn_session_options options = {.backend = gate->backend, .no_device_passes = true};
    hone_status status = HONE_OK;
    if (!calibration.ranges) status = HN_SET(err, HONE_ERR_NOMEM, "out of memory (calibrating)");
    if (status == HONE_OK) status = make_names(err, module, &w);
    if (status == HONE_OK) status = hn_session_new(err, module, &options, &session);
    int64_t samples = hn_gate_samples(gate, HN_SPLIT_CALIBRATE);
    if (max_samples > 0 && samples > max_samples) samples = max_samples;
    int64_t passes = histogram ? 2 : 1;
    for (int64_t s = 0; s < passes * samples && status == HONE_OK; s++) {
        hn_tensor inputs[HN_MAX_KERNEL_IO];
        w.histogram = s >= samples;
        int64_t sample = hn_gate_sample(gate, HN_SPLIT_CALIBRATE, s % samples);
        status = hn_gate_inputs(err, gate, sample, inputs);
        for (int i = 0; i < gate->input_count && status == HONE_OK; i++)
            status = see(err, &w, module->main->inputs.data[i]->name, &inputs[i]);
        if (status == HONE_OK)
            status = hn_session_observe(err, session, inputs, gate->input_count, on_value, &w);
        if (progress) progress(user, "calibrating", (double)(s + 1) / (double)(passes * samples));
    }
    if (status == HONE_OK) status = fill_views(err, module, &calibration);
    hn_session_free(session);
    hn_free(w.names);
    if (status != HONE_OK) {
        hn_calibration_free(&calibration);
        return status;
    }
    *out_calibration = calibration;
    return HONE_OK;
}

void hn_calibration_free(hn_calibration *calibration) {
    for (uint32_t i = 0; calibration->ranges && i < calibration->count; i++)
        hn_free(calibration->ranges[i].bins);
    hn_free(calibration->ranges);
    *calibration = (hn_calibration){0};
}

// ---- from histogram to range --------------------------------------------------------------------
const char *hn_clip_name(hn_clip_method method) {
    static const char *const k_names[] = {"min-max", "percentile", "mean-square", "entropy"};
    return method < HN_CLIP_END ? k_names[method] : "?";
}

hn_clip_method hn_clip_by_name(const char *name) {
    for (hn_clip_method m = 0; m < HN_CLIP_END; m++)
        if (strcmp(hn_clip_name(m), name) == 0) return m;
    return HN_CLIP_END;
}

static double bin_edge(const hn_range *range, int bin) {
    return range->low + ((double)range->high - range->low) * bin / HN_HISTOGRAM_BINS;
}

// Cuts the tails that hold 0.01 % of the elements in all.
static void clip_percentile(const hn_range *range, float *low, float *high) {
    double total = 0, cut;
    for (int i = 0; i < HN_HISTOGRAM_BINS; i++)
        total += range->bins[i];
    cut = total * 0.5e-4;
    double below = 0, above = 0;
    int first = 0, last = HN_HISTOGRAM_BINS;
    while (first < HN_HISTOGRAM_BINS && below + range->bins[first] <= cut)
        below += range->bins[first++];
    while (last > first + 1 && above + range->bins[last - 1] <= cut)
        above += range->bins[--last];
    *low = (float)bin_edge(range, first);
    *high = (float)bin_edge(range, last);
}

// Expected squared error when [low, high] is quantised in 255 steps and the rest is clipped.
static double clip_error(const hn_range *range, double low, double high) {
    double step = (high - low) / 255, error = 0;
    for (int i = 0; i < HN_HISTOGRAM_BINS; i++) {
        if (!range->bins[i]) continue;
        double at = 0.5 * (bin_edge(range, i) + bin_edge(range, i + 1));
        double outside = at < low ? low - at : at > high ? at - high : 0;
        error += range->bins[i] * (outside > 0 ? outside * outside : step * step / 12);
    }
    return error;
}

static void clip_mse(const hn_range *range, float *low, float *high) {
    double best = clip_error(range, *low, *high), full_low = *low, full_high = *high;
    for (int k = 99; k >= 20; k--) {
        double tried_low = full_low * k / 100, tried_high = full_high * k / 100;
        double error = clip_error(range, tried_low, tried_high);
        if (error < best) {
            best = error;
            *low = (float)tried_low;
            *high = (float)tried_high;
        }
    }
}

// Kullback-Leibler divergence of what is left when [low, high] is quantised in 255 steps: the bins
// beyond count at the ends of the true distribution, the quantised one spreads each step's mass
// over the bins of it that are not empty.
static double clip_divergence(const hn_range *range, double low, double high) {
    double p[HN_HISTOGRAM_BINS], mass[256] = {0}, total = 0, seen = 0;
    int filled[256] = {0};
    double step = (high - low) / 255;
    int first = HN_HISTOGRAM_BINS, last = -1;
    for (int i = 0; i < HN_HISTOGRAM_BINS; i++) {
        double at = 0.5 * (bin_edge(range, i) + bin_edge(range, i + 1));
        p[i] = range->bins[i];
        total += p[i];
        if (at < low || at > high) continue;
        if (first > i) first = i;
        last = i;
    }
    if (last < first || total <= 0) return INFINITY;
    double below = 0, above = 0;
    for (int i = 0; i < HN_HISTOGRAM_BINS; i++) {
        if (i < first) below += p[i];
        if (i > last) above += p[i];
    }
    for (int i = first; i <= last; i++) {
        double at = 0.5 * (bin_edge(range, i) + bin_edge(range, i + 1));
        int code = (int)((at - low) / step + 0.5);
        code = code < 0 ? 0 : code > 255 ? 255 : code;
        mass[code] += p[i];
        filled[code] += p[i] > 0;
        seen += p[i];
    }
    if (seen <= 0) return INFINITY;
    double divergence = 0;
    for (int i = first; i <= last; i++) {
        double at = 0.5 * (bin_edge(range, i) + bin_edge(range, i + 1));
        int code = (int)((at - low) / step + 0.5);
        code = code < 0 ? 0 : code > 255 ? 255 : code;
        double truth = p[i] + (i == first ? below : 0) + (i == last ? above : 0);
        if (truth <= 0) continue;
        double kept = p[i] > 0 && filled[code] ? mass[code] / filled[code] / seen : 1e-9;
        divergence += truth / total * log(truth / total / kept);
    }
    return divergence;
}

static void clip_entropy(const hn_range *range, float *low, float *high) {
    double best = clip_divergence(range, *low, *high), full_low = *low, full_high = *high;
    for (int k = 98; k >= 10; k -= 2) {
        double tried_low = full_low * k / 100, tried_high = full_high * k / 100;
        double divergence = clip_divergence(range, tried_low, tried_high);
        if (divergence < best) {
            best = divergence;
            *low = (float)tried_low;
            *high = (float)tried_high;
        }
    }
}

void hn_range_clip(const hn_range *range, hn_clip_method method, float *out_low, float *out_high) {
    // Zero must be exact: padding and ReLU depend on it.
    float low = range->low < 0 ? range->low : 0, high = range->high > 0 ? range->high : 0;
    if (range->bins && method == HN_CLIP_PERCENTILE) {
        float cut_low, cut_high;
        clip_percentile(range, &cut_low, &cut_high);
        low = cut_low < 0 ? cut_low : 0;
        high = cut_high > 0 ? cut_high : 0;
    } else if (range->bins && method == HN_CLIP_MSE) {
        clip_mse(range, &low, &high);
    } else if (range->bins && method == HN_CLIP_ENTROPY) {
        clip_entropy(range, &low, &high);
    }
    *out_low = low;
    *out_high = high;
}

void hn_range_params(float low, float high, float *out_scale, uint8_t *out_zero) {
    float scale = (float)(((double)high - low) / 255.0);
    if (!(scale >= 1.2e-38f) || !isfinite(scale)) { // no extent, or a denormal step
        *out_scale = 1;
        *out_zero = 0;
        return;
    }
    double zero = nearbyint(-(double)low / scale);
    *out_scale = scale;
    *out_zero = (uint8_t)(zero < 0 ? 0 : zero > 255 ? 255 : zero);
}
