// SPDX-License-Identifier: Apache-2.0
// RoiAlign: a thread an output bin. Positions are in double, as the reference has them; samples that lie
// outside read zero and are not gone through. Told: T, A, LOAD, I, COUNT, CHANNELS, HEIGHT, WIDTH, ROWS,
// COLUMNS, SAMPLING (0: by the size), SCALE, SHIFT, MAX, IMAGES.
__device__ inline void sample_range(double start, double length, i64 samples, i64 limit, i64 *first_out, i64 *end_out) {
    const double step = length / (double)samples, first = (-1 - start) / step - 1, last = ((double)limit - start) / step + 1;
    *first_out = 0;
    *end_out = samples;
    if (!(fabs(step) > 0) || !(fabs(first) < 1e18) || !(fabs(last) < 1e18)) { // all in one place
        if (!(start >= -1 && start <= (double)limit)) *end_out = 0;
        else *end_out = samples < 10000 ? samples : 10000;
        return;
    }
    const double low = fmax(fmin(first, last), 0.), high = fmin(fmax(first, last), (double)samples);
    *first_out = (i64)low;
    *end_out = high > low ? (i64)high : (i64)low;
}

__device__ inline i64 samples_of(double length, i64 bins) {
    if (SAMPLING > 0) return SAMPLING;
    const double samples = ceil(length / (double)bins);
    return samples >= 1 ? (i64)fmin(samples, 1e12) : 0;
}

extern "C" __global__ void __launch_bounds__(128) hn_k_roi_align(const T *x, const T *rois, const I *images, T *y, volatile u32 *fault) {
    const i64 i = (i64)blockIdx.x * 128 + threadIdx.x;
    if (i >= COUNT) return;
    const i64 column = i % COLUMNS, row = i / COLUMNS % ROWS, channel = i / COLUMNS / ROWS % CHANNELS, roi = i / COLUMNS / ROWS / CHANNELS;
    const i64 image = images[roi];
    if (image < 0 || image >= IMAGES) {
        *fault = 1;
        y[i] = store<T>::of((A)0);
        return;
    }
    const T *r = rois + roi * 4;
    const double left = to_f64(r[0]) * SCALE - SHIFT, top = to_f64(r[1]) * SCALE - SHIFT;
    double wide = to_f64(r[2]) * SCALE - SHIFT - left, tall = to_f64(r[3]) * SCALE - SHIFT - top;
    if (SHIFT == 0) { // the old form makes every roi at least one element large
        wide = fmax(wide, 1.);
        tall = fmax(tall, 1.);
    }
    const i64 ny = samples_of(tall, ROWS), nx = samples_of(wide, COLUMNS);
    tall /= (double)ROWS;
    wide /= (double)COLUMNS;
    const double y_start = top + (double)row * tall, x_start = left + (double)column * wide;
    const T *plane = x + (image * CHANNELS + channel) * (HEIGHT * WIDTH);
    A sum = 0;
    if (ny >= 1 && nx >= 1) {
        i64 y0, y1, x0, x1;
        sample_range(y_start, tall, ny, HEIGHT, &y0, &y1);
        sample_range(x_start, wide, nx, WIDTH, &x0, &x1);
        bool any = y1 - y0 < ny || x1 - x0 < nx;
        for (i64 iy = y0; iy < y1; iy++)
            for (i64 ix = x0; ix < x1; ix++) {
                double ys = y_start + ((double)iy + 0.5) * tall / (double)ny, xs = x_start + ((double)ix + 0.5) * wide / (double)nx;
                const bool inside = ys >= -1 && ys <= (double)HEIGHT && xs >= -1 && xs <= (double)WIDTH;
                ys = fmax(ys, 0.);
                xs = fmax(xs, 0.);
                const i64 yl = inside ? ((i64)ys < HEIGHT - 1 ? (i64)ys : HEIGHT - 1) : 0, xl = inside ? ((i64)xs < WIDTH - 1 ? (i64)xs : WIDTH - 1) : 0;
                const i64 yh = yl + 1 < HEIGHT ? yl + 1 : HEIGHT - 1, xh = xl + 1 < WIDTH ? xl + 1 : WIDTH - 1;
                const double fy = yl == HEIGHT - 1 ? 0 : ys - (double)yl, fx = xl == WIDTH - 1 ? 0 : xs - (double)xl;
                const i64 offset[4] = {yl * WIDTH + xl, yl * WIDTH + xh, yh * WIDTH + xl, yh * WIDTH + xh};
                const double weight[4] = {(1 - fy) * (1 - fx), (1 - fy) * fx, fy * (1 - fx), fy * fx};
#pragma unroll
                for (int k = 0; k < 4; k++) {
                    const A term = inside ? (A)weight[k] * LOAD(plane[offset[k]]) : (A)0;
                    sum = !MAX ? sum + term : any ? fmax(sum, term) : term;
                    any = true;
                }
            }
        if (!MAX) sum = sum / (A)((double)ny * (double)nx);
    }
    y[i] = store<T>::of(sum);
}
