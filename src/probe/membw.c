// SPDX-License-Identifier: Apache-2.0
// Measured memory bandwidth: plain streams over buffers far larger than the caches, all threads of
// hn_parallel, the best chunk of several passes (the ceiling is asked for, not a busy machine's mean).
//
// Written bytes are counted once: a machine that first reads the lines it writes moves more than is
// shown. That is what programs get, and what the roofline of a kernel must be drawn with.
#include "probe/cpu.h"

#define STREAM_MIN_BYTES (INT64_C(64) << 20)
#define STREAM_MAX_BYTES (INT64_C(512) << 20)
#define PASSES           5
#define KERNEL_NS        INT64_C(400000000) // no further pass after this, so that a busy machine answers too
#define CHUNK_BLOCKS     1024 // 32 MiB of each array
#define BLOCK            4096 // doubles a work item: 32 KiB

typedef struct stream {
    double *a, *b, *c;
    int64_t blocks, base; // base: first block of the chunk that runs
    double sink;
} stream;

static void fill(void *arg, int64_t begin, int64_t end) {
    stream *s = arg;
    for (int64_t i = begin * BLOCK; i < end * BLOCK; i++)
        s->a[i] = 0, s->b[i] = 1.5, s->c[i] = 0.25;
}
static void run_read(void *arg, int64_t begin, int64_t end) {
    stream *s = arg;
    double sum[16] = {0};
    for (int64_t i = (s->base + begin) * BLOCK; i < (s->base + end) * BLOCK; i += 16)
        for (int k = 0; k < 16; k++)
            sum[k] += s->b[i + k];
    for (int k = 1; k < 16; k++)
        sum[0] += sum[k];
    if (sum[0] == 0.123) s->sink = sum[0]; // keeps the loop
}
static void run_write(void *arg, int64_t begin, int64_t end) {
    stream *s = arg;
    for (int64_t i = (s->base + begin) * BLOCK; i < (s->base + end) * BLOCK; i++)
        s->a[i] = 3.0;
}
static void run_copy(void *arg, int64_t begin, int64_t end) {
    stream *s = arg;
    for (int64_t i = (s->base + begin) * BLOCK; i < (s->base + end) * BLOCK; i++)
        s->a[i] = s->b[i];
}
static void run_triad(void *arg, int64_t begin, int64_t end) {
    stream *s = arg;
    for (int64_t i = (s->base + begin) * BLOCK; i < (s->base + end) * BLOCK; i++)
        s->a[i] = s->b[i] + 3.0 * s->c[i];
}

// The best chunk of a walk over the whole buffers: a chunk is far from the cache (the walk has passed
// through all others since) and so short that a busy machine's scheduler seldom falls into it.
static double best_rate(stream *s, hn_range_fn fn, int streams, bool one_thread) {
    int64_t first_ns = hn_clock_ns(), chunk = s->blocks < CHUNK_BLOCKS ? s->blocks : CHUNK_BLOCKS;
    double best = 0;
    for (int pass = 0; pass < PASSES && (pass == 0 || hn_clock_ns() - first_ns < KERNEL_NS); pass++)
        for (s->base = 0; s->base + chunk <= s->blocks; s->base += chunk) {
            int64_t start_ns = hn_clock_ns();
            if (one_thread)
                fn(s, 0, chunk);
            else
                hn_parallel_for(chunk, 1, fn, s);
            double rate = (double)(chunk * BLOCK * 8 * streams) * 1e9 /
                          (double)hn_max_i64(hn_clock_ns() - start_ns, 1);
            if (rate > best) best = rate;
        }
    return best;
}

hn_status hn_cpu_measure_bandwidth(hone_error *err, hn_memory_bandwidth *out_bandwidth) {
    const hn_cpu *cpu = hn_cpu_get();
    int64_t cache = cpu->l3_bytes * (cpu->l3_instances > 0 ? cpu->l3_instances : 1);
    int64_t bytes = hn_max_i64(STREAM_MIN_BYTES, hn_min_i64(2 * cache, STREAM_MAX_BYTES));
    int64_t memory = cpu->memory_limit_bytes ? cpu->memory_limit_bytes : cpu->memory_bytes;
    while (memory > 0 && 3 * bytes > memory / 4 && bytes > STREAM_MIN_BYTES / 4)
        bytes /= 2;
    stream s = {.blocks = bytes / (BLOCK * 8)};
    size_t size = (size_t)(s.blocks * BLOCK * 8);
    s.a = hn_malloc_aligned(size);
    s.b = hn_malloc_aligned(size);
    s.c = hn_malloc_aligned(size);
    if (s.a && s.b && s.c) {
        hn_parallel_for(s.blocks, 1, fill, &s); // pages land on the node of the thread that uses them
        *out_bandwidth = (hn_memory_bandwidth){
            .read_bytes_s = best_rate(&s, run_read, 1, false),
            .write_bytes_s = best_rate(&s, run_write, 1, false),
            .copy_bytes_s = best_rate(&s, run_copy, 2, false),
            .triad_bytes_s = best_rate(&s, run_triad, 3, false),
            .one_thread_read_bytes_s = best_rate(&s, run_read, 1, true),
            .buffer_bytes = (int64_t)size,
            .threads = hn_parallel_threads(),
        };
    }
    bool ok = s.a && s.b && s.c;
    hn_free(s.a);
    hn_free(s.b);
    hn_free(s.c);
    if (!ok) HN_NOMEM(err, "bandwidth measurement");
    return HONE_OK;
}
