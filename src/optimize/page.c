// SPDX-License-Identifier: Apache-2.0
// report.html: the report as one page that stands alone (base/html.h).
#include "base/html.h"
#include "base/lang.h"
#include "base/plot.h"
#include "optimize/optimize_int.h"
#include "probe/cpu.h"
#include <math.h>
#include <stdio.h>

#define CELL 384

static const char *size_text(char out[64], double bytes) {
    if (!(bytes >= 0)) snprintf(out, 64, "-");
    else if (bytes >= 0x1p30) snprintf(out, 64, "%.2f GiB", bytes / 0x1p30);
    else if (bytes >= 0x1p20) snprintf(out, 64, "%.2f MiB", bytes / 0x1p20);
    else snprintf(out, 64, "%.1f KiB", bytes / 0x1p10);
    return out;
}

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static void accuracy_text(char out[CELL], const hn_accuracy *a) {
    if (!a->samples) snprintf(out, CELL, "-");
    else if (!isnan(a->metric))
        snprintf(out, CELL, "top-1 %.4f [%.4f, %.4f]", a->metric, a->metric_ci[0], a->metric_ci[1]);
    else if (!isnan(a->agreement))
        snprintf(out, CELL, "agreement %.4f [%.4f, %.4f], cosine %.6f", a->agreement, a->agreement_ci[0],
                 a->agreement_ci[1], a->cosine);
    else snprintf(out, CELL, "cosine %.6f, max |diff| %.3g", a->cosine, a->max_abs);
}

// ---- the answer ---------------------------------------------------------------------------------
static void put_tiles(hn_str *out, const hn_optimize_result *r) {
    char value[64], sub[CELL], a[64], b[64];
    hn_html_tiles_begin(out);
    snprintf(value, sizeof value, "%.2f x", r->total.speedup);
    snprintf(sub, sizeof sub, "95 %% [%.2f, %.2f], %d pairs", r->total.speedup_ci[0], r->total.speedup_ci[1],
             r->total.pairs);
    if (r->copied) hn_html_tile(out, "as fast as the input", "=", "the output is the input's own bytes");
    else hn_html_tile(out, "as fast as the input", value, sub);
    snprintf(value, sizeof value, "%.3f ms", r->result.latency.p50_ms);
    snprintf(sub, sizeof sub, "before %.3f ms", r->baseline.latency.p50_ms);
    hn_html_tile(out, "latency, median", value, sub);
    snprintf(sub, sizeof sub, "before %s", size_text(b, (double)r->baseline.peak_memory_bytes));
    hn_html_tile(out, "memory", size_text(a, (double)r->result.peak_memory_bytes), sub);
    snprintf(sub, sizeof sub, "before %s", size_text(b, (double)r->baseline.file_bytes));
    hn_html_tile(out, "file", size_text(a, (double)r->result.file_bytes), sub);
    const hn_accuracy *acc = &r->result.accuracy;
    snprintf(value, sizeof value, !isnan(acc->metric) ? "%.4f" : "%.5f",
             !isnan(acc->metric) ? acc->metric : acc->cosine);
    accuracy_text(sub, acc);
    hn_html_tile(out, !isnan(acc->metric) ? "top-1" : "cosine with the input model", value, sub);
    hn_html_tiles_end(out);
}

static void put_words(hn_str *out, const hn_optimize_result *r) {
    hn_str kept = {0}, refused = {0};
    for (int i = 0; i < r->verdict_count; i++) {
        const hn_verdict *v = &r->verdicts[i];
        hn_str *into = v->kept ? &kept : v->tried ? &refused : NULL;
        if (into) hn_str_printf(into, "%s%s", into->length ? ", " : "", v->name);
    }
    char small[CELL], fresh[160] = "";
    if (r->fresh.pairs)
        snprintf(fresh, sizeof fresh, " A process of its own measured the whole chain again: %.2f x [%.2f, %.2f], which %s.",
                 r->fresh.speedup, r->fresh.speedup_ci[0], r->fresh.speedup_ci[1],
                 r->fresh_agrees ? "agrees" : "does not agree with the figure above");
    snprintf(small, sizeof small,
             "The input model against itself: %.3f x [%.3f, %.3f], the noise of this machine.%s", r->aa.speedup,
             r->aa.speedup_ci[0], r->aa.speedup_ci[1], fresh);
    hn_str words = {0}, piece = {0};
    char said[HN_LANG_BYTES];
    if (kept.length)
        hn_str_printf(&piece, "Kept: %s. Each was measured against the model before it and its outputs were "
                              "compared on data that it had not seen.", hn_str_get(&kept));
    else hn_str_append(&piece, "Nothing helped here; the output is the input.");
    hn_str_append(&words, hn_lang_text(hn_str_get(&piece), said));
    hn_str_free(&piece);
    piece = (hn_str){0};
    if (refused.length) hn_str_printf(&piece, " Tried and refused: %s.", hn_str_get(&refused));
    hn_str_append(&words, hn_lang_text(hn_str_get(&piece), said));
    hn_str_free(&piece);
    hn_html_note(out, kept.length ? "good" : "info", "In words", hn_str_get(&words), small);
    for (int i = 0; i < r->note_count; i++)
        hn_html_note(out, "warn", "About the data", r->notes[i], NULL);
    hn_str_free(&words);
    hn_str_free(&kept);
    hn_str_free(&refused);
}

// ---- both sides ---------------------------------------------------------------------------------
static void put_sides(hn_str *out, const hn_optimize_result *r) {
    static const char *const k_names[] = {"", ">input", ">result"};
    char a[64], b[64], s[2][64];
    const hn_side *x = &r->baseline, *y = &r->result;
    hn_html_section(out, "Before and after", "Memory is weights, their packed forms and the slab of a plan; start is from the loaded file to the first result.");
    hn_html_table_begin(out, k_names, 3);
#define ROW(name, format, field)                                                                   \
    snprintf(a, sizeof a, format, x->field);                                                       \
    snprintf(b, sizeof b, format, y->field);                                                       \
    hn_html_row(out, k_names, (const char *[]){name, a, b}, 3)
    ROW("latency p50, ms", "%.4f", latency.p50_ms);
    ROW("latency p90, ms", "%.4f", latency.p90_ms);
    ROW("latency p99, ms", "%.4f", latency.p99_ms);
    ROW("rows a second", "%.1f", throughput_per_s);
    ROW("start, ms", "%.1f", start_ms);
#undef ROW
    hn_html_row(out, k_names, (const char *[]){"memory", size_text(s[0], (double)x->peak_memory_bytes),
                                               size_text(s[1], (double)y->peak_memory_bytes)}, 3);
    hn_html_row(out, k_names, (const char *[]){"file", size_text(s[0], (double)x->file_bytes),
                                               size_text(s[1], (double)y->file_bytes)}, 3);
    // Short cells: a phone shows both sides.
    bool labels = !isnan(x->accuracy.metric), classes = !isnan(x->accuracy.agreement);
    snprintf(a, sizeof a, "%.6f", x->accuracy.cosine);
    snprintf(b, sizeof b, "%.6f", y->accuracy.cosine);
    hn_html_row(out, k_names, (const char *[]){"cosine with the input", a, b}, 3);
    snprintf(a, sizeof a, "%.3g", x->accuracy.max_abs);
    snprintf(b, sizeof b, "%.3g", y->accuracy.max_abs);
    hn_html_row(out, k_names, (const char *[]){"largest difference", a, b}, 3);
    snprintf(a, sizeof a, "%.4f", labels ? x->accuracy.metric : x->accuracy.agreement);
    snprintf(b, sizeof b, "%.4f", labels ? y->accuracy.metric : y->accuracy.agreement);
    if (labels || classes)
        hn_html_row(out, k_names, (const char *[]){labels ? "top-1" : "top-1 agreement", a, b}, 3);
    snprintf(a, sizeof a, "%lld", (long long)x->accuracy.nan);
    snprintf(b, sizeof b, "%lld", (long long)y->accuracy.nan);
    hn_html_row(out, k_names, (const char *[]){"new NaN", a, b}, 3);
    hn_html_table_end(out);
}

// Share of calls by latency, of the 64 quantiles: how many fall into each bin.
#define BINS 28
static void histogram(const hn_latency *l, double low, double high, hn_plot_point out[BINS]) {
    int count = (int)HN_COUNT_OF(l->sample_ms);
    for (int i = 0; i < BINS; i++)
        out[i] = (hn_plot_point){low + (i + 0.5) * (high - low) / BINS, 0, NAN, NAN};
    for (int k = 0; k < count; k++) {
        int bin = (int)((l->sample_ms[k] - low) / (high - low) * BINS);
        if (bin >= 0 && bin < BINS) out[bin].y += 100.0 / count;
    }
}

static void put_plots(hn_str *out, const hn_optimize_result *r) {
    static hn_plot_point a[BINS], b[BINS]; // one report at a time is written
    double low = fmin(r->baseline.latency.min_ms, r->result.latency.min_ms) * 0.98;
    // A busy machine's tail would press both into one bin; the table has the p99.
    double high = fmin(fmax(r->baseline.latency.p90_ms, r->result.latency.p90_ms) * 1.1,
                       fmax(r->baseline.latency.p50_ms, r->result.latency.p50_ms) * 2);
    histogram(&r->baseline.latency, low, high, a);
    histogram(&r->result.latency, low, high, b);
    hn_plot_series lines[] = {{"input", a, BINS, 3, true}, {"result", b, BINS, 0, true}};
    hn_plot latency = {.title = "Latency in ms, share of calls", .unit = "%", .x_min = low, .x_max = high,
                       .y_min = 0, .y_max = NAN, .series = lines, .series_count = 2};
    hn_html_section(out, "How it spreads", NULL);
    hn_plot_grid_begin(out);
    hn_plot_html(out, &latency);
    hn_plot_point *points = hn_malloc((r->memory.count + 1) * sizeof *points);
    for (size_t i = 0; points && i < r->memory.count; i++)
        points[i] = (hn_plot_point){r->memory.data[i].seconds, r->memory.data[i].bytes / 0x1p20, NAN, NAN};
    hn_plot_series memory_line = {"", points, points ? r->memory.count : 0, 1, true};
    hn_plot memory = {.title = "Memory of hone optimize itself", .unit = "MiB", .x_axis = HN_PLOT_TIME,
                      .x_min = NAN, .x_max = NAN, .y_min = 0, .y_max = NAN, .series = &memory_line,
                      .series_count = 1};
    if (r->memory.count > 1) hn_plot_html(out, &memory);
    hn_plot_grid_end(out);
    hn_free(points);
}

// ---- strategies, layers, steps ------------------------------------------------------------------
static void put_strategies(hn_str *out, const hn_optimize_result *r) {
    static const char *const k_names[] = {"=strategy", "verdict", "why", "outputs"};
    hn_bar bars[HN_MAX_STRATEGIES];
    size_t count = 0;
    char texts[HN_MAX_STRATEGIES][64], acc[CELL];
    hn_html_section(out, "Strategies", "Speed against the best model before each, with the 95 % interval; kept only where its bad end clears 2 %.");
    for (int i = 0; i < r->verdict_count; i++) {
        const hn_verdict *v = &r->verdicts[i];
        if (isnan(v->speedup)) continue;
        snprintf(texts[count], sizeof texts[count], "%.3f [%.3f, %.3f]", v->speedup, v->speedup_ci[0], v->speedup_ci[1]);
        bars[count] = (hn_bar){v->name, v->speedup, v->speedup_ci[0], v->speedup_ci[1], texts[count], v->kept ? 0 : 3};
        count++;
    }
    hn_bars plot = {.title = "times as fast", .unit = "", .max = NAN, .mark = 1, .bars = bars, .count = count};
    if (count) hn_bars_html(out, &plot);
    hn_html_table_begin(out, k_names, 4);
    for (int i = 0; i < r->verdict_count; i++) {
        const hn_verdict *v = &r->verdicts[i];
        accuracy_text(acc, &v->accuracy);
        hn_html_row(out, k_names, (const char *[]){v->name, v->kept ? "kept" : v->tried ? "refused" : "not tried", v->reason, acc}, 4);
    }
    hn_html_table_end(out);
}

static void put_layers(hn_str *out, const hn_optimize_result *r) {
    static const char *const k_names[] = {"=layer", "=operator", "=strategy", "=precision", ">own error", ">error of outputs", "why"};
    if (!r->layers.count) return;
    hn_html_section(out, "Precision by layer", "Own error: the squared difference at the layer's own output over the squared output, in int8 on the float inputs. Error of outputs: 1 - cosine of the model's outputs with this layer alone in the lower precision, or with so many layers together; measured only where all layers left the budget.");
    hn_html_table_begin(out, k_names, 7);
    for (size_t i = 0; i < r->layers.count; i++) {
        const hn_layer *l = &r->layers.data[i];
        char error[48], own[32];
        snprintf(own, sizeof own, isfinite(l->own_error) ? "%.1e" : "-", l->own_error);
        if (isfinite(l->error) && l->together > 1) snprintf(error, sizeof error, "%.1e of %d", l->error, l->together);
        else snprintf(error, sizeof error, isfinite(l->error) ? "%.1e" : "-", l->error);
        hn_html_row(out, k_names, (const char *[]){l->name, l->op, l->strategy, l->precision, own, error, l->why}, 7);
    }
    hn_html_table_end(out);
}

static void put_steps(hn_str *out, const hn_optimize_result *r) {
    if (!r->step_count) return;
    static const char *const k_names[] = {"=step", "=operator", "=kernel", ">us", ">% of all", ">FLOP/byte", ">GFLOP/s", ">GB/s", ">% of roof"};
    hn_bar bars[HN_HEAVY_STEPS];
    char texts[HN_HEAVY_STEPS][64], note[CELL], cell[6][32];
    snprintf(note, sizeof note, "The roof of a step is what %.0f GFLOP/s (float32 products) and %.1f GB/s, both measured here, allow at its "
             "FLOP per byte; lower precision and data in the caches can exceed it.", r->peak_flops * 1e-9, r->peak_bytes * 1e-9);
    hn_html_section(out, "The ten heaviest steps of the result", note);
    double share[HN_HEAVY_STEPS];
    for (int i = 0; i < r->step_count; i++) {
        const hn_heavy_step *s = &r->steps[i];
        double least = fmax(s->flops / r->peak_flops, s->bytes / r->peak_bytes) * 1e9; // ns
        share[i] = 100 * least / s->ns;
        snprintf(texts[i], sizeof texts[i], isfinite(share[i]) ? "%.0f %%" : "-", share[i]);
        bars[i] = (hn_bar){s->name, share[i], NAN, NAN, texts[i], s->flops / r->peak_flops > s->bytes / r->peak_bytes ? 0 : 1};
    }
    hn_bars plot = {.title = "Share of the roof (by compute or by memory)", .unit = "%", .max = NAN, .mark = 100, .bars = bars,
                    .count = (size_t)r->step_count};
    hn_bars_html(out, &plot);
    hn_html_table_begin(out, k_names, 9);
    for (int i = 0; i < r->step_count; i++) {
        const hn_heavy_step *s = &r->steps[i];
        snprintf(cell[0], 32, "%.2f", s->ns / 1e3);
        snprintf(cell[1], 32, "%.1f", 100 * s->ns / r->steps_ns);
        snprintf(cell[2], 32, "%.2f", s->bytes > 0 ? s->flops / s->bytes : 0);
        snprintf(cell[3], 32, "%.1f", s->flops / s->ns);
        snprintf(cell[4], 32, "%.1f", s->bytes / s->ns);
        hn_html_row(out, k_names, (const char *[]){s->name, s->op, s->kernel, cell[0], cell[1], cell[2], cell[3], cell[4], texts[i]}, 9);
    }
    hn_html_table_end(out);
}

static void put_machine(hn_str *out, const hn_optimize_options *options, const hn_optimize_result *r, const char *command) {
    static const char *const k_names[] = {"", ""};
    char line[CELL * 2];
    const hn_cpu *cpu = hn_cpu_get();
    hn_html_section(out, "How to do it again", NULL);
    hn_html_table_begin(out, k_names, 2);
    hn_html_row(out, k_names, (const char *[]){"command", command}, 2);
    snprintf(line, sizeof line, "hone optimize %s -o OUT --replay report.json", base_name(options->model_path));
    hn_html_row(out, k_names, (const char *[]){"the same bytes again", line}, 2);
    snprintf(line, sizeof line, "hone optimize %s --recheck report.json", base_name(options->model_path));
    hn_html_row(out, k_names, (const char *[]){"measure it again", line}, 2);
    snprintf(line, sizeof line, "%s, %d of %d CPUs, %s, %d threads", cpu->model, cpu->usable, cpu->logical,
             hn_isa_name(hn_cpu_isa()), hn_parallel_threads());
    hn_html_row(out, k_names, (const char *[]){"machine", line}, 2);
    snprintf(line, sizeof line, "%s: opset %d, %d nodes, %lld parameters, SHA-256 %s", base_name(options->model_path),
             r->model_opset, r->model_nodes, (long long)r->model_params, r->model_sha256);
    hn_html_row(out, k_names, (const char *[]){"model", line}, 2);
    snprintf(line, sizeof line, "%s, seed %llu", hn_objective_name(options->objective), (unsigned long long)options->seed);
    hn_html_row(out, k_names, (const char *[]){"objective", line}, 2);
    hn_html_table_end(out);
}

hn_status hn_optimize_report_html(hone_error *err, const hn_optimize_options *options,
                                  const hn_optimize_result *r, const char *command, const char *path) {
    hn_str out = {0}, title = {0};
    hn_str_printf(&title, "hone optimize: %s", base_name(options->model_path));
    hn_html_begin(&out, hn_str_get(&title));
    put_tiles(&out, r);
    put_words(&out, r);
    put_sides(&out, r);
    put_plots(&out, r);
    put_strategies(&out, r);
    put_layers(&out, r);
    put_steps(&out, r);
    put_machine(&out, options, r, command);
    hn_html_end(&out);
    hone_status status = out.failed || title.failed ? HN_SET(err, HONE_ERR_NOMEM, "out of memory (writing the page)")
                                                    : hn_file_write(err, path, out.data, out.length);
    hn_str_free(&title);
    hn_str_free(&out);
    return status;
}
