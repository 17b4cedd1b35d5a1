// SPDX-License-Identifier: Apache-2.0
// GEMM ceilings: see ceilings.h.
#include "backends/cpu/ceilings.h"
#include "backends/cpu/cpu_int.h"
#include <math.h>
#include <stdio.h>

enum { SIZE = 1024, RUNS = 12 };

typedef struct product_run {
    const hn_dnnl *api;
    dnnl_primitive_desc_t pd;
    dnnl_primitive_t primitive;
    dnnl_memory_t memory[3];
    void *data[3];
} product_run;

static void run_free(product_run *r) {
    for (int i = 0; i < 3; i++) {
        if (r->memory[i]) r->api->dnnl_memory_destroy(r->memory[i]);
        hn_free(r->data[i]);
    }
    if (r->primitive) r->api->dnnl_primitive_destroy(r->primitive);
    if (r->pd) r->api->dnnl_primitive_desc_destroy(r->pd);
}

// Operands are filled with small numbers that are normal in every type.
static bool run_make(cpu_state *cpu, dnnl_data_type_t a, dnnl_data_type_t b, dnnl_data_type_t c,
                     unsigned char fill, product_run *r) {
    const hn_dnnl *api = r->api = cpu->dnnl;
    dnnl_dims_t dims = {SIZE, SIZE};
    dnnl_memory_desc_t md[3];
    dnnl_matmul_desc_t desc;
    api->dnnl_memory_desc_init_by_tag(&md[0], 2, dims, a, dnnl_ab);
    api->dnnl_memory_desc_init_by_tag(&md[1], 2, dims, b, dnnl_format_tag_any);
    api->dnnl_memory_desc_init_by_tag(&md[2], 2, dims, c, dnnl_ab);
    if (api->dnnl_matmul_desc_init(&desc, &md[0], &md[1], NULL, &md[2]) != dnnl_success ||
        api->dnnl_primitive_desc_create(&r->pd, &desc, NULL, cpu->engine, NULL) != dnnl_success ||
        api->dnnl_primitive_create(&r->primitive, r->pd) != dnnl_success)
        return false;
    md[1] = *api->dnnl_primitive_desc_query_md(r->pd, dnnl_query_weights_md, 0);
    for (int i = 0; i < 3; i++) {
        size_t bytes = api->dnnl_memory_desc_get_size(&md[i]);
        r->data[i] = hn_malloc_aligned(bytes);
        if (!r->data[i]) return false;
        memset(r->data[i], fill, bytes);
        if (api->dnnl_memory_create(&r->memory[i], &md[i], cpu->engine, r->data[i]) != dnnl_success)
            return false;
    }
    return true;
}

// Operations a second of the fastest of some runs; NAN where it does not work.
static double run_rate(cpu_state *cpu, product_run *r) {
    dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, r->memory[0]},
                              {DNNL_ARG_WEIGHTS, r->memory[1]},
                              {DNNL_ARG_DST, r->memory[2]}};
    double best = NAN;
    for (int i = 0; i < RUNS; i++) {
        int64_t t = hn_clock_ns();
        if (r->api->dnnl_primitive_execute(r->primitive, cpu->stream, 3, args) != dnnl_success)
            return NAN;
        double rate = 2.0 * SIZE * SIZE * SIZE / ((double)(hn_clock_ns() - t) * 1e-9);
        if (i > 0 && !(rate <= best)) best = rate;
    }
    return best;
}

hone_status hn_cpu_ceilings(hone_error *err, const hn_ceilings_wanted *wanted, hn_ceiling *out_items, int max_items,
                            int *out_count) {
    (void)wanted;
    static const struct {
        const char *name;
        dnnl_data_type_t a, b, c;
        unsigned char fill; // 0x3c3c3c3c is 0.0115 in float32 and bfloat16
    } rows[] = {
        {"float32 matrix product", dnnl_f32, dnnl_f32, dnnl_f32, 0x3c},
        {"bfloat16 matrix product", dnnl_bf16, dnnl_bf16, dnnl_f32, 0x3c},
        {"int8 matrix product", dnnl_u8, dnnl_s8, dnnl_s32, 3},
    };
    cpu_state *cpu;
    HN_TRY(cpu_state_get(err, &cpu));
    *out_count = 0;
    for (size_t i = 0; cpu->dnnl && i < HN_COUNT_OF(rows) && *out_count < max_items; i++) {
        bool native = rows[i].a != dnnl_bf16 || hn_cpu_get()->avx512_bf16 || hn_cpu_get()->amx_bf16;
        if (!native) continue; // emulated: no ceiling of this machine
        product_run r = {.api = cpu->dnnl};
        double rate = run_make(cpu, rows[i].a, rows[i].b, rows[i].c, rows[i].fill, &r)
                          ? run_rate(cpu, &r)
                          : NAN;
        run_free(&r);
        if (isnan(rate)) continue;
        hn_ceiling *item = &out_items[(*out_count)++];
        *item = (hn_ceiling){0};
        snprintf(item->name, sizeof item->name, "%s", rows[i].name);
        snprintf(item->unit, sizeof item->unit, "GFLOP/s");
        item->measured = rate * 1e-9;
        item->sheet = NAN;
    }
    return HONE_OK;
}
