// SPDX-License-Identifier: Apache-2.0
// Max, average and Lp pooling over up to three dims. Told: T, IMAGES (N, or N x C where channels do not lie
// together), CHANNELS side by side, VEC of them a thread, IN0..2, OUT0..2, K0..2, S0..2, D0..2, P0..2
// (pads at the beginning), E0..2 (sizes with the pads of the node at the end), AVERAGE, INCLUDE_PAD, LP (0, or the norm's number), PLACES (where
// maxima lie is wanted: VEC and CHANNELS are 1), BY_COLUMN (those numbers run along the first dim first).
extern "C" __global__ void __launch_bounds__(128) hn_k_pool(const T *x, T *y, i64 *index HN_PARAMS) {
    const span i = ((span)blockIdx.x * 128 + threadIdx.x) * VEC;
    if (i >= (span)IMAGES * OUT0 * OUT1 * OUT2 * CHANNELS) return;
    const int c = (int)(i % CHANNELS);
    span rest = i / CHANNELS;
    const int o2 = (int)(rest % OUT2);
    rest /= OUT2;
    const int o1 = (int)(rest % OUT1);
    rest /= OUT1;
    const int o0 = (int)(rest % OUT0);
    const T *image = x + rest / OUT0 * ((i64)IN0 * IN1 * IN2 * CHANNELS) + c;
    float value[VEC];
    int taps = 0;
    i64 best = -1;
#pragma unroll
    for (int e = 0; e < VEC; e++)
        value[e] = AVERAGE || LP ? 0.f : -HN_INF;
    for (int k0 = 0; k0 < K0; k0++) {
        const int a0 = o0 * S0 - P0 + k0 * D0;
        for (int k1 = 0; k1 < K1; k1++) {
            const int a1 = o1 * S1 - P1 + k1 * D1;
            for (int k2 = 0; k2 < K2; k2++) {
                const int a2 = o2 * S2 - P2 + k2 * D2;
                const bool inside = a0 >= 0 && a0 < IN0 && a1 >= 0 && a1 < IN1 && a2 >= 0 && a2 < IN2;
                taps += INCLUDE_PAD ? a0 < E0 && a1 < E1 && a2 < E2 : inside;
                if (!inside) continue;
                const vec<T, VEC> in = *(const vec<T, VEC> *)(image + (((i64)a0 * IN1 + a1) * IN2 + a2) * CHANNELS);
#pragma unroll
                for (int e = 0; e < VEC; e++) {
                    const float element = to_f32(in.v[e]);
                    if (AVERAGE) value[e] += element;
                    else if (LP) value[e] += LP == 1 ? fabs(element) : LP == 2 ? element * element : pow(fabs(element), (float)LP);
                    else if (PLACES) {
                        if (best >= 0 && !(element > value[e] || (element != element && value[e] == value[e]))) continue;
                        value[e] = element;
                        best = BY_COLUMN ? a0 + (i64)IN0 * (a1 + (i64)IN1 * a2) : ((i64)a0 * IN1 + a1) * IN2 + a2;
                    }
                    else value[e] = element > value[e] || element != element ? element : value[e];
                }
            }
        }
    }
    vec<T, VEC> out;
#pragma unroll
    for (int e = 0; e < VEC; e++)
        out.v[e] = store<T>::of(AVERAGE ? value[e] / (float)taps : LP < 2 ? value[e] : LP == 2 ? sqrt(value[e]) : pow(value[e], 1.f / (float)(LP ? LP : 1)));
    if (y) *(vec<T, VEC> *)(y + i) = out;
    if (PLACES) index[i] = best < 0 ? -1 : rest / OUT0 * ((i64)IN0 * IN1 * IN2) + best;
}
