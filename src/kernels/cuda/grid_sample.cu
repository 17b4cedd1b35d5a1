// SPDX-License-Identifier: Apache-2.0
// GridSample over one to three dims: a thread a point and EACH_CHANNELS channels. Positions and weights are
// in double, as the reference has them, so that both choose the same neighbours. Told: T, A, LOAD, G (of the
// grid), SPATIAL, DIM(d), MODE (0 linear, 1 nearest, 2 cubic), PADDING (0 zeros, 1 border, 2 reflection),
// ALIGN, CHANNELS, POINTS, PLANE, IMAGES, LAST (channels lie together).
#define TAPS (MODE == 0 ? 2 : MODE == 1 ? 1 : 4)
#define GROUPS ((CHANNELS + EACH_CHANNELS - 1) / EACH_CHANNELS)

// Mirrors x into [low, high].
__device__ inline double mirror(double x, double low, double high) {
    const double range = high - low;
    if (range <= 0) return low;
    const double d = x < low ? low - x : x > high ? x - high : -1;
    if (d < 0) return x;
    const double n = floor(d / range), rest = d - n * range;
    const bool even = fmod(n, 2.) == 0;
    if (x < low) return even ? low + rest : high - rest;
    return even ? high - rest : low + rest;
}

__device__ inline double position(double coordinate, double size) {
    double x = ALIGN ? (coordinate + 1) / 2 * (size - 1) : ((coordinate + 1) * size - 1) / 2;
    if (!(fabs(x) < 1e15)) x = x > 0 ? 1e15 : -1e15; // NaN too
    if (MODE == 1) x = rint(x);
    if (MODE == 2 || PADDING == 0) return x; // neighbours are moved instead
    if (PADDING == 1) return fmin(fmax(x, 0.), size - 1);
    return ALIGN ? mirror(x, 0, size - 1) : mirror(x, -0.5, size - 0.5);
}

// Where a neighbour is read, -1: it counts as zero.
__device__ inline i64 neighbour(double at, double size) {
    const double last = size - 1;
    if (at >= 0 && at <= last) return (i64)at;
    if (PADDING == 0) return -1;
    if (PADDING == 2) at = ALIGN ? mirror(at, 0, last) : mirror(at, -0.5, last + 0.5);
    return (i64)fmin(fmax(at, 0.), last);
}

__device__ inline double cubic(double t) {
    const double a = -0.75;
    t = fabs(t);
    if (t <= 1) return ((a + 2) * t - (a + 3)) * t * t + 1;
    return t < 2 ? ((a * t - 5 * a) * t + 8 * a) * t - 4 * a : 0;
}

extern "C" __global__ void __launch_bounds__(128) hn_k_grid_sample(const T *x, const G *grid, T *y) {
    const i64 number = (i64)blockIdx.x * 128 + threadIdx.x;
    if (number >= IMAGES * POINTS * GROUPS) return;
#if LAST
    const i64 group = number % GROUPS, point = number / GROUPS % POINTS, image = number / GROUPS / POINTS;
#else
    const i64 point = number % POINTS, group = number / POINTS % GROUPS, image = number / POINTS / GROUPS;
#endif
    const G *at = grid + (image * POINTS + point) * SPATIAL;
    i64 place[SPATIAL][TAPS];
    double weight[SPATIAL][TAPS];
    bool lost = false;
#pragma unroll
    for (int d = 0; d < SPATIAL; d++) {
        const double given = to_f64(at[SPATIAL - 1 - d]), size = DIM(d); // the fastest dim comes first
        const double here = position(given, size), low = floor(here), first = MODE == 2 ? low - 1 : MODE == 0 ? low : here;
        lost = lost || given != given;
#pragma unroll
        for (int k = 0; k < TAPS; k++) {
            place[d][k] = neighbour(first + k, size);
            weight[d][k] = MODE == 1 ? 1 : MODE == 0 ? 1 - fabs(here - (first + k)) : cubic(here - (first + k));
        }
    }
    const i64 c0 = group * EACH_CHANNELS, image_at = image * (PLANE * CHANNELS);
    A sum[EACH_CHANNELS];
#pragma unroll
    for (int e = 0; e < EACH_CHANNELS; e++)
        sum[e] = lost ? (A)HN_NAN : (A)0;
    int combinations = 1;
    for (int d = 0; d < SPATIAL; d++)
        combinations *= TAPS;
    for (int t = 0; t < combinations; t++) {
        i64 offset = 0;
        double product = 1;
        bool inside = true;
        int rest = t;
#pragma unroll
        for (int d = SPATIAL - 1; d >= 0; d--) {
            i64 step = 1;
            for (int n = d + 1; n < SPATIAL; n++)
                step *= DIM(n);
            i64 here = 0;
            double w = 0;
#pragma unroll
            for (int k = 0; k < TAPS; k++)
                if (rest % TAPS == k) {
                    here = place[d][k];
                    w = weight[d][k];
                }
            rest /= TAPS;
            inside = inside && here >= 0;
            offset += here * step;
            product *= w;
        }
        if (!inside || product == 0) continue;
#pragma unroll
        for (int e = 0; e < EACH_CHANNELS; e++)
            if (c0 + e < CHANNELS) sum[e] += (A)product * LOAD(x[image_at + (LAST ? offset * CHANNELS + c0 + e : (c0 + e) * PLANE + offset)]);
    }
#pragma unroll
    for (int e = 0; e < EACH_CHANNELS; e++)
        if (c0 + e < CHANNELS)
            y[image * (POINTS * CHANNELS) + (LAST ? point * CHANNELS + c0 + e : (c0 + e) * POINTS + point)] = store<T>::of(sum[e]);
}
