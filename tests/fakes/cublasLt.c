// SPDX-License-Identifier: Apache-2.0
// A scripted cuBLASLt: proposes two algorithms for every product and refuses calls that lack an
// operand (7, as the library does). FAKE_LT_ALGOS=N: so many proposals; FAKE_LT_FAIL=N: the first N of
// them do not start; FAKE_LT_MS=X: a product moves the clock of fakes/cuda.c's stream on by X. Nothing is
// computed.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct result {
    uint64_t algo[8];
    size_t workspace;
    int status;
    float waves;
    int reserved[4];
} result;
static int g_calls;
int fake_lt_calls(void) { return g_calls; }
static int number(const char *name, int otherwise) { return getenv(name) ? atoi(getenv(name)) : otherwise; }
int cublasLtCreate(void **handle) { return *handle = (void *)1, 0; }
int cublasLtDestroy(void *handle) { return (void)handle, 0; }
size_t cublasLtGetVersion(void) { return 130000; }
static int g_tf32, g_float32; // descriptors by what is computed in
int fake_lt_compute(const char *what) { return !strcmp(what, "tf32") ? g_tf32 : g_float32; }
int cublasLtMatmulDescCreate(void **desc, int compute, int scale) {
    g_tf32 += compute == 77;
    g_float32 += compute == 68;
    return (void)scale, *desc = (void *)1, 0;
}
int cublasLtMatmulDescDestroy(void *desc) { return (void)desc, 0; }
int cublasLtMatmulDescSetAttribute(void *desc, int name, const void *value, size_t bytes) { return (void)desc, (void)name, (void)value, (void)bytes, 0; }
int cublasLtMatrixLayoutCreate(void **layout, int type, uint64_t rows, uint64_t columns, int64_t ld) {
    (void)type;
    return *layout = (void *)1, rows && columns && ld >= (int64_t)rows ? 0 : 7;
}
int cublasLtMatrixLayoutDestroy(void *layout) { return (void)layout, 0; }
int cublasLtMatrixLayoutSetAttribute(void *layout, int name, const void *value, size_t bytes) { return (void)layout, (void)name, (void)value, (void)bytes, 0; }
int cublasLtMatmulPreferenceCreate(void **preference) { return *preference = (void *)1, 0; }
int cublasLtMatmulPreferenceDestroy(void *preference) { return (void)preference, 0; }
int cublasLtMatmulPreferenceSetAttribute(void *preference, int name, const void *value, size_t bytes) {
    return (void)preference, (void)name, (void)value, (void)bytes, 0;
}
int cublasLtMatmulAlgoGetHeuristic(void *handle, void *desc, void *a, void *b, void *c, void *d, void *preference, int wanted,
                                   result *results, int *found) {
    (void)handle, (void)desc, (void)a, (void)b, (void)c, (void)d, (void)preference;
    int have = number("FAKE_LT_ALGOS", 2);
    *found = have < wanted ? have : wanted;
    memset(results, 0, (size_t)*found * sizeof *results);
    for (int i = 0; i < *found; i++) {
        results[i].algo[0] = (uint64_t)i;
        results[i].workspace = (size_t)i * 1024;
    }
    return have ? 0 : 15;
}
int cublasLtMatmul(void *handle, void *desc, const void *alpha, const void *a, void *al, const void *b, void *bl, const void *beta,
                   const void *c, void *cl, void *d, void *dl, const uint64_t *algo, void *workspace, size_t bytes, void *stream) {
    (void)handle, (void)desc, (void)al, (void)bl, (void)cl, (void)dl, (void)bytes;
    if (!alpha || !beta || !a || !b || !c || !d || ((uintptr_t)a | (uintptr_t)b | (uintptr_t)d) % 2) return 7;
    if ((uintptr_t)workspace % 256 || (algo && algo[0] && !workspace)) return 7;
    if (algo && algo[0] < (uint64_t)number("FAKE_LT_FAIL", 0)) return 15;
    const char *ms = getenv("FAKE_LT_MS"); // a stream begins with its clock
    if (ms) *(double *)stream += atof(ms);
    return g_calls++, 0;
}
