// SPDX-License-Identifier: Apache-2.0
// Resize by tables: for each output position of a dim the lower and the higher input position and the
// weight of the higher. Told: T, PLANES, IN0..2, OUT0..2, CHANNELS side by side, VEC, LINEAR.
extern "C" __global__ void __launch_bounds__(128) hn_k_resize(const T *x, const i32 *tables, T *y HN_PARAMS) {
    const span i = ((span)blockIdx.x * 128 + threadIdx.x) * VEC;
    if (i >= (span)PLANES * OUT0 * OUT1 * OUT2 * CHANNELS) return;
    const i32 *low0 = tables, *low1 = tables + 2 * OUT0, *low2 = tables + 2 * (OUT0 + OUT1);
    const float *weights = (const float *)(tables + 2 * (OUT0 + OUT1 + OUT2));
    const int c = (int)(i % CHANNELS);
    span rest = i / CHANNELS;
    const int o2 = (int)(rest % OUT2);
    rest /= OUT2;
    const int o1 = (int)(rest % OUT1);
    rest /= OUT1;
    const int o0 = (int)(rest % OUT0);
    const T *plane = x + rest / OUT0 * ((i64)IN0 * IN1 * IN2 * CHANNELS) + c;
    vec<T, VEC> out;
    if (LINEAR) {
        float value[VEC] = {0};
#pragma unroll
        for (int corner = 0; corner < 8; corner++) {
            if (IN0 == OUT0 && (corner & 1)) continue;
            if (IN1 == OUT1 && (corner & 2)) continue;
            if (IN2 == OUT2 && (corner & 4)) continue;
            float weight = 1;
            if (IN0 != OUT0) weight *= corner & 1 ? weights[o0] : 1 - weights[o0];
            if (IN1 != OUT1) weight *= corner & 2 ? weights[OUT0 + o1] : 1 - weights[OUT0 + o1];
            if (IN2 != OUT2) weight *= corner & 4 ? weights[OUT0 + OUT1 + o2] : 1 - weights[OUT0 + OUT1 + o2];
            const i64 a0 = low0[(corner & 1 ? OUT0 : 0) + o0], a1 = low1[(corner & 2 ? OUT1 : 0) + o1], a2 = low2[(corner & 4 ? OUT2 : 0) + o2];
            const vec<T, VEC> in = *(const vec<T, VEC> *)(plane + ((a0 * IN1 + a1) * IN2 + a2) * CHANNELS);
#pragma unroll
            for (int e = 0; e < VEC; e++)
                value[e] += weight * to_f32(in.v[e]);
        }
#pragma unroll
        for (int e = 0; e < VEC; e++)
            out.v[e] = store<T>::of(value[e]);
    } else {
        const i64 a0 = low0[o0], a1 = low1[o1], a2 = low2[o2];
        out = *(const vec<T, VEC> *)(plane + ((a0 * IN1 + a1) * IN2 + a2) * CHANNELS);
    }
    *(vec<T, VEC> *)(y + i) = out;
}
