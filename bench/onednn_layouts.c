// SPDX-License-Identifier: Apache-2.0
// How fast oneDNN's convolutions and matrix products are in each memory layout, on shapes of real
// small models: the measurement behind the layout policy of backends/cpu (docs/notes/cpu-layouts.md).
//
// Build and run: gcc -O2 -std=gnu11 bench/onednn_layouts.c -ldnnl -lgomp -fopenmp -o /tmp/l && /tmp/l
#include <dnnl.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static dnnl_engine_t engine;
static dnnl_stream_t stream;

#define CHECK(call)                                                                                \
    do {                                                                                           \
        if ((call) != dnnl_success) {                                                              \
            printf("failed: %s\n", #call);                                                         \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static dnnl_memory_t memory_of(const dnnl_memory_desc_t *md) {
    size_t bytes = dnnl_memory_desc_get_size(md);
    void *data = aligned_alloc(64, (bytes + 4095) / 4096 * 4096);
    memset(data, 0, bytes);
    dnnl_memory_t m;
    CHECK(dnnl_memory_create(&m, md, engine, data));
    return m;
}

static void drop(dnnl_memory_t m) {
    void *data;
    dnnl_memory_get_data_handle(m, &data);
    dnnl_memory_destroy(m);
    free(data);
}

// Median time of one execution in microseconds.
static double time_primitive(dnnl_primitive_t p, int nargs, const dnnl_exec_arg_t *args) {
    enum { SAMPLES = 15 };
    double samples[SAMPLES];
    for (int i = 0; i < 3; i++) dnnl_primitive_execute(p, stream, nargs, args);
    double t = now_us();
    dnnl_primitive_execute(p, stream, nargs, args);
    double once = now_us() - t;
    int reps = once > 2000 ? 1 : (int)(2000 / (once + 0.1)) + 1;
    for (int s = 0; s < SAMPLES; s++) {
        t = now_us();
        for (int i = 0; i < reps; i++) dnnl_primitive_execute(p, stream, nargs, args);
        samples[s] = (now_us() - t) / reps;
    }
    qsort(samples, SAMPLES, sizeof *samples, compare);
    return samples[SAMPLES / 2];
}

typedef struct conv {
    int mb, g, ic, oc, ih, iw, kh, kw, sh, sw, ph, pw, dh, dw;
} conv;

static double conv_time(const conv *c, dnnl_data_type_t type, dnnl_format_tag_t tag, int eltwise,
                        char *impl) {
    int oh = (c->ih + 2 * c->ph - (c->kh - 1) * (c->dh + 1) - 1) / c->sh + 1;
    int ow = (c->iw + 2 * c->pw - (c->kw - 1) * (c->dw + 1) - 1) / c->sw + 1;
    dnnl_dims_t sd = {c->mb, c->ic, c->ih, c->iw}, dd = {c->mb, c->oc, oh, ow};
    dnnl_dims_t wd = {c->oc, c->ic, c->kh, c->kw};
    dnnl_dims_t wg = {c->g, c->oc / c->g, c->ic / c->g, c->kh, c->kw}, bd = {c->oc};
    dnnl_data_type_t wtype = type == dnnl_u8 ? dnnl_s8 : type;
    dnnl_data_type_t btype = type == dnnl_u8 ? dnnl_s32 : dnnl_f32;
    dnnl_memory_desc_t s, w, b, d;
    dnnl_memory_desc_init_by_tag(&s, 4, sd, type, tag);
    dnnl_memory_desc_init_by_tag(&d, 4, dd, type, tag);
    if (c->g == 1) dnnl_memory_desc_init_by_tag(&w, 4, wd, wtype, dnnl_format_tag_any);
    else dnnl_memory_desc_init_by_tag(&w, 5, wg, wtype, dnnl_format_tag_any);
    dnnl_memory_desc_init_by_tag(&b, 1, bd, btype, dnnl_x);
    dnnl_convolution_desc_t cd;
    dnnl_dims_t st = {c->sh, c->sw}, dl = {c->dh, c->dw}, pl = {c->ph, c->pw}, pr;
    pr[0] = (oh - 1) * c->sh + (c->kh - 1) * (c->dh + 1) + 1 - c->ih - c->ph;
    pr[1] = (ow - 1) * c->sw + (c->kw - 1) * (c->dw + 1) + 1 - c->iw - c->pw;
    CHECK(dnnl_dilated_convolution_forward_desc_init(&cd, dnnl_forward_inference,
                                                     dnnl_convolution_direct, &s, &w, &b, &d, st,
                                                     dl, pl, pr));
    dnnl_primitive_attr_t attr;
    dnnl_primitive_attr_create(&attr);
    dnnl_post_ops_t ops;
    dnnl_post_ops_create(&ops);
    if (eltwise) dnnl_post_ops_append_eltwise(ops, 1, (dnnl_alg_kind_t)eltwise, 1.f, 0);
    dnnl_primitive_attr_set_post_ops(attr, ops);
    if (type == dnnl_u8) {
        float *scales = malloc(sizeof(float) * (size_t)c->oc);
        for (int i = 0; i < c->oc; i++) scales[i] = 0.01f;
        dnnl_primitive_attr_set_output_scales(attr, c->oc, 1 << 1, scales);
        free(scales);
    }
    dnnl_primitive_desc_t pd;
    if (dnnl_primitive_desc_create(&pd, &cd, attr, engine, NULL) != dnnl_success) return -1;
    const char *name;
    dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name);
    strcpy(impl, name);
    dnnl_primitive_t p;
    CHECK(dnnl_primitive_create(&p, pd));
    dnnl_memory_t ms = memory_of(dnnl_primitive_desc_query_md(pd, dnnl_query_src_md, 0));
    dnnl_memory_t mw = memory_of(dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0));
    dnnl_memory_t mb = memory_of(dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 1));
    dnnl_memory_t mo = memory_of(dnnl_primitive_desc_query_md(pd, dnnl_query_dst_md, 0));
    dnnl_exec_arg_t args[] = {
        {DNNL_ARG_SRC, ms}, {DNNL_ARG_WEIGHTS, mw}, {DNNL_ARG_BIAS, mb}, {DNNL_ARG_DST, mo}};
    double us = time_primitive(p, 4, args);
    drop(ms), drop(mw), drop(mb), drop(mo);
    dnnl_primitive_destroy(p);
    dnnl_primitive_desc_destroy(pd);
    dnnl_primitive_attr_destroy(attr);
    dnnl_post_ops_destroy(ops);
    return us;
}

static double matmul_time(int batch, int m, int n, int k, dnnl_data_type_t type, int packed,
                          char *impl) {
    int nd = batch > 1 ? 3 : 2;
    dnnl_dims_t a3 = {batch, m, k}, b3 = {batch, k, n}, c3 = {batch, m, n};
    dnnl_dims_t a2 = {m, k}, b2 = {k, n}, c2 = {m, n};
    dnnl_format_tag_t tag = nd == 3 ? dnnl_abc : dnnl_ab;
    dnnl_memory_desc_t a, b, c;
    dnnl_data_type_t wt = type == dnnl_u8 ? dnnl_s8 : type;
    dnnl_memory_desc_init_by_tag(&a, nd, nd == 3 ? a3 : a2, type, tag);
    dnnl_memory_desc_init_by_tag(&b, nd, nd == 3 ? b3 : b2, wt, packed ? dnnl_format_tag_any : tag);
    dnnl_memory_desc_init_by_tag(&c, nd, nd == 3 ? c3 : c2, dnnl_f32, tag);
    dnnl_matmul_desc_t md;
    CHECK(dnnl_matmul_desc_init(&md, &a, &b, NULL, &c));
    dnnl_primitive_desc_t pd;
    if (dnnl_primitive_desc_create(&pd, &md, NULL, engine, NULL) != dnnl_success) return -1;
    const char *name;
    dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name);
    strcpy(impl, name);
    dnnl_primitive_t p;
    CHECK(dnnl_primitive_create(&p, pd));
    dnnl_memory_t ma = memory_of(dnnl_primitive_desc_query_md(pd, dnnl_query_src_md, 0));
    dnnl_memory_t mb = memory_of(dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0));
    dnnl_memory_t mc = memory_of(dnnl_primitive_desc_query_md(pd, dnnl_query_dst_md, 0));
    dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, ma}, {DNNL_ARG_WEIGHTS, mb}, {DNNL_ARG_DST, mc}};
    double us = time_primitive(p, 3, args);
    drop(ma), drop(mb), drop(mc);
    dnnl_primitive_destroy(p);
    dnnl_primitive_desc_destroy(pd);
    return us;
}

#define C2(g, ic, oc, h, w, k, s, p) {1, g, ic, oc, h, w, k, k, s, s, p, p, 0, 0}
static const conv CONVS[] = {
    C2(1, 3, 16, 240, 320, 3, 2, 1),   C2(16, 16, 16, 120, 160, 3, 1, 1),
    C2(1, 16, 32, 120, 160, 1, 1, 0),  C2(32, 32, 32, 120, 160, 3, 2, 1),
    C2(1, 32, 32, 60, 80, 1, 1, 0),    C2(32, 32, 32, 60, 80, 3, 1, 1),
    C2(64, 64, 64, 30, 40, 3, 1, 1),   C2(1, 64, 64, 30, 40, 1, 1, 0),
    C2(1, 64, 8, 30, 40, 1, 1, 0),     C2(1, 8, 16, 30, 40, 3, 1, 1),
    {1, 1, 16, 16, 30, 40, 3, 3, 1, 1, 3, 3, 2, 2},
    C2(1, 8, 12, 30, 40, 3, 1, 1),     C2(128, 128, 128, 15, 20, 3, 1, 1),
    C2(1, 128, 128, 15, 20, 1, 1, 0),  C2(1, 256, 256, 8, 10, 1, 1, 0),
    C2(1, 256, 12, 4, 5, 3, 1, 1),     C2(1, 12, 16, 208, 208, 3, 1, 1),
    C2(1, 64, 64, 52, 52, 1, 1, 0),    C2(1, 128, 64, 26, 26, 1, 1, 0),
    C2(1, 64, 80, 52, 52, 1, 1, 0),    C2(1, 64, 1, 52, 52, 1, 1, 0),
    C2(1, 64, 64, 56, 56, 3, 1, 1),    C2(1, 1, 64, 224, 224, 5, 1, 2),
    C2(1, 64, 64, 224, 224, 3, 1, 1),  C2(1, 32, 9, 224, 224, 3, 1, 1),
    C2(1, 16, 16, 8, 8, 3, 1, 1),      C2(1, 3, 8, 32, 32, 3, 2, 1),
    {1, 1, 256, 512, 512, 1, 5, 1, 1, 1, 0, 0, 0, 0},
    {1, 1, 1, 36, 1, 44100, 1, 256, 1, 256, 0, 0, 0, 0},
    {1, 1, 1, 1, 1, 44098, 1, 256, 1, 2, 0, 0, 0, 0},
    {1, 1, 8, 8, 172, 264, 3, 39, 1, 1, 1, 19, 0, 0},
    {1, 1, 8, 32, 172, 264, 5, 5, 1, 3, 2, 1, 0, 0},
    {1, 1, 32, 1, 172, 88, 7, 3, 1, 1, 3, 1, 0, 0},
    {1, 1, 1, 32, 172, 264, 7, 7, 1, 3, 3, 2, 0, 0},
};

static const int MATMULS[][4] = {
    {1, 48, 128, 128}, {1, 48, 512, 128}, {1, 48, 128, 512}, {8, 24, 24, 32}, {1, 16, 256, 68},
    {1, 1, 192, 64},   {1, 33, 16, 16},   {1, 2048, 64, 257}, {16, 9, 9, 32}, {1, 512, 512, 1280},
    {1, 1024, 1024, 1024},
};

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 1;
    omp_set_num_threads(threads);
    dnnl_engine_create(&engine, dnnl_cpu, 0);
    dnnl_stream_create(&stream, engine, dnnl_stream_default_flags);
    char impl[128];
    printf("threads %d; microseconds\n", threads);
    for (size_t i = 0; i < sizeof CONVS / sizeof *CONVS; i++) {
        const conv *c = &CONVS[i];
        double oh = (c->ih + 2 * c->ph - (c->kh - 1) * (c->dh + 1) - 1) / c->sh + 1;
        double ow = (c->iw + 2 * c->pw - (c->kw - 1) * (c->dw + 1) - 1) / c->sw + 1;
        double flops = 2. * c->mb * c->oc * oh * ow * (c->ic / c->g) * c->kh * c->kw;
        printf("g%-3d %3d->%-3d %dx%d k%dx%d s%d d%d (%.1f MFLOP):", c->g, c->ic, c->oc, c->ih,
               c->iw, c->kh, c->kw, c->sw, c->dw + 1, flops / 1e6);
        static const struct { const char *name; dnnl_data_type_t type; dnnl_format_tag_t tag; } R[] = {
            {"any", dnnl_f32, dnnl_format_tag_any}, {"b16", dnnl_f32, dnnl_nChw16c},
            {"nhwc", dnnl_f32, dnnl_nhwc}, {"nchw", dnnl_f32, dnnl_nchw},
            {"u8nhwc", dnnl_u8, dnnl_nhwc}, {"bf16nhwc", dnnl_bf16, dnnl_nhwc}};
        for (size_t r = 0; r < sizeof R / sizeof *R; r++) {
            double us = conv_time(c, R[r].type, R[r].tag, dnnl_eltwise_relu, impl);
            printf("  %s %.1f %s", R[r].name, us, impl);
        }
        printf("\n");
        fflush(stdout);
    }
    for (size_t i = 0; i < sizeof MATMULS / sizeof *MATMULS; i++) {
        const int *m = MATMULS[i];
        printf("matmul %dx%dx%dx%d (%.2f MFLOP):", m[0], m[1], m[2], m[3],
               2e-6 * m[0] * m[1] * m[2] * m[3]);
        printf("  plain %.2f", matmul_time(m[0], m[1], m[2], m[3], dnnl_f32, 0, impl));
        printf(" %s", impl);
        printf("  packed %.2f", matmul_time(m[0], m[1], m[2], m[3], dnnl_f32, 1, impl));
        printf(" %s", impl);
        printf("  u8 packed %.2f", matmul_time(m[0], m[1], m[2], m[3], dnnl_u8, 1, impl));
        printf(" %s\n", impl);
    }
    return 0;
}
