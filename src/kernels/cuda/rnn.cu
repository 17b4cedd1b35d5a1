// SPDX-License-Identifier: Apache-2.0
// RNN, GRU and LSTM. The input's part of every gate is one product over all steps (hn_k_rnn_input, or a
// library's behind whose results hn_k_rnn_bias stands); a step then adds the hidden state's part and runs the
// cell (hn_k_rnn_step): a warp has one hidden unit of ROWS items of the batch, lanes share the sums.
// Small layers run all steps in one launch, a block having all units of its items.
// The state is kept in A between steps. Told: T, A, LOAD, KIND (0 RNN, 1 GRU, 2 LSTM), GATES, STEPS, BATCH,
// IN, HIDDEN, DIRS, BATCH_FIRST, REVERSE, LINEAR_BEFORE_RESET, INPUT_FORGET, CLIP, HAS_B, HAS_LENS, HAS_PEEP,
// ROWS, UNITS (warps of a block), VEC, LOOP, and act(direction, number, x). Sums: GATES x HIDDEN a row.
#define WIDTH (GATES * HIDDEN)
#define STATE (DIRS * BATCH * HIDDEN)
#define SLOTS (KIND == 0 ? 1 : 4)   // gates whose sums a warp has at once
#define SUMS (SLOTS * ROWS)

__device__ __forceinline__ A clipped(A x) { return CLIP > 0 ? (x > CLIP ? (A)CLIP : x < -CLIP ? (A)-CLIP : x) : x; }
__device__ __forceinline__ i64 row_of(i64 step, i64 item) { return BATCH_FIRST ? item * STEPS + step : step * BATCH + item; }
// Of Y_h, Y_c and the initial states.
__device__ __forceinline__ i64 outer_state(i64 dir, i64 item) { return (BATCH_FIRST ? item * DIRS + dir : dir * BATCH + item) * HIDDEN; }
__device__ __forceinline__ bool is_backward(i64 dir) { return REVERSE || dir == 1; }
// Both biases; a GRU's recurrent one of the candidate goes through the gate where it is linear before that.
__device__ __forceinline__ A bias_of(const T *b, i64 dir, i64 gate) {
    if (!HAS_B) return 0;
    const T *own = b + dir * 2 * WIDTH;
    return LOAD(own[gate]) + (KIND == 1 && LINEAR_BEFORE_RESET && gate >= 2 * HIDDEN ? (A)0 : LOAD(own[WIDTH + gate]));
}

// sums[dir][row][gate] = W x + bias: tiles of 64 x 64, 16 deep.
extern "C" __global__ void __launch_bounds__(256) hn_k_rnn_input(const T *x, const T *w, const T *b, A *sums) {
    __shared__ A xs[16][65], ws[16][65];
    const i64 m0 = (i64)blockIdx.x / ((WIDTH + 63) / 64) * 64, n0 = (i64)blockIdx.x % ((WIDTH + 63) / 64) * 64, dir = blockIdx.y;
    const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    const T *weights = w + dir * WIDTH * IN;
    A acc[4][4] = {};
    for (i64 k0 = 0; k0 < IN; k0 += 16) {
        for (int i = threadIdx.x; i < 64 * 16; i += 256) {
            const int k = i % 16, at = i / 16;
            const bool inside = k0 + k < IN;
            xs[k][at] = inside && m0 + at < STEPS * BATCH ? LOAD(x[(m0 + at) * IN + k0 + k]) : (A)0;
            ws[k][at] = inside && n0 + at < WIDTH ? LOAD(weights[(n0 + at) * IN + k0 + k]) : (A)0;
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < 16; k++)
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    acc[i][j] += xs[k][ty + 16 * i] * ws[k][tx + 16 * j];
        __syncthreads();
    }
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) {
            const i64 m = m0 + ty + 16 * i, n = n0 + tx + 16 * j;
            if (m < STEPS * BATCH && n < WIDTH) sums[(dir * (STEPS * BATCH) + m) * WIDTH + n] = acc[i][j] + bias_of(b, dir, n);
        }
}

// h (two buffers), c, z and the reset state (GRU) of all items.
extern "C" __global__ void __launch_bounds__(256) hn_k_rnn_begin(const T *h0, const T *c0, const i32 *lens, A *state, volatile u32 *fault) {
    const i64 i = (i64)blockIdx.x * 256 + threadIdx.x;
    if (i >= STATE) return;
    const i64 dir = i / (BATCH * HIDDEN), item = i / HIDDEN % BATCH, from = outer_state(dir, item) + i % HIDDEN;
    state[i] = h0 ? LOAD(h0[from]) : (A)0;
    state[2 * STATE + i] = c0 ? LOAD(c0[from]) : (A)0;
    if (HAS_LENS && i < BATCH && (lens[i] < 0 || lens[i] > STEPS)) *fault = 1;
}

// Sums of gates FIRST .. FIRST + COUNT of one unit over v: lane (slot * ROWS + row) << (5 - log2 SUMS) has them.
template <int FIRST, int COUNT> __device__ __forceinline__ A unit_sums(const T *r, const A *v, i64 unit, int rows) {
    const int lane = threadIdx.x % 32;
    A sum[SUMS] = {};
    for (i64 k = lane * VEC; k < HIDDEN; k += 32 * VEC) {
        vec<A, VEC> in[ROWS];
#pragma unroll
        for (int n = 0; n < ROWS; n++)
            if (n < rows) in[n] = *(const vec<A, VEC> *)(v + n * HIDDEN + k);
#pragma unroll
        for (int g = 0; g < COUNT; g++) {
            const vec<T, VEC> weight = *(const vec<T, VEC> *)(r + ((FIRST + g) * HIDDEN + unit) * HIDDEN + k);
#pragma unroll
            for (int n = 0; n < ROWS; n++)
#pragma unroll
                for (int e = 0; e < VEC; e++)
                    if (n < rows) sum[g * ROWS + n] += LOAD(weight.v[e]) * in[n].v[e];
        }
    }
    int mask = 16;
#pragma unroll
    for (int half = SUMS / 2; half > 0; half /= 2, mask /= 2)
#pragma unroll
        for (int n = 0; n < half; n++) {
            const A give = lane & mask ? sum[n] : sum[n + half], keep = lane & mask ? sum[n + half] : sum[n];
            sum[n] = keep + __shfl_xor_sync(0xffffffffu, give, mask);
        }
#pragma unroll
    for (; mask > 0; mask /= 2)
        sum[0] += __shfl_xor_sync(0xffffffffu, sum[0], mask);
    return sum[0];
}
__device__ __forceinline__ A sum_at(A mine, int slot) { // of this lane's row
    return __shfl_sync(0xffffffffu, mine, (slot * ROWS + threadIdx.x % 32 % ROWS) * (32 / SUMS));
}

// A lane below `rows` has one item. Gate order of the standard: LSTM i o f c, GRU z r h.
__device__ __forceinline__ void finish(T *y, T *y_h, T *y_c, A *state, i64 dir, i64 item, i64 unit, i64 step, i64 length, A h, A c, A h_old) {
    const bool active = step < length;
    const i64 t = active && is_backward(dir) ? length - 1 - step : step;
    const i64 at = (dir * BATCH + item) * HIDDEN + unit;
    if (!active) h = h_old;
    state[(step + 1) % 2 * STATE + at] = h;
    if (KIND == 2 && active) state[2 * STATE + at] = c;
    const i64 row = BATCH_FIRST ? (item * STEPS + t) * DIRS + dir : (t * DIRS + dir) * BATCH + item;
    if (y) y[row * HIDDEN + unit] = store<T>::of(active ? h : (A)0);
    if (step == STEPS - 1) {
        if (y_h) y_h[outer_state(dir, item) + unit] = store<T>::of(h);
        if (KIND == 2 && y_c) y_c[outer_state(dir, item) + unit] = store<T>::of(active ? c : state[2 * STATE + at]);
    }
}

// part 1 of a GRU that resets before its product gives z and the reset state, part 2 the rest.
__device__ __forceinline__ void unit_step(const A *sums, const T *r, const T *b, const T *peep, const i32 *lens, A *state, T *y, T *y_h, T *y_c,
                                          i64 dir, i64 item0, i64 unit, i64 step, int part) {
    const int lane = threadIdx.x % 32, rows = item0 + ROWS < BATCH ? ROWS : (int)(BATCH - item0);
    const i64 item = item0 + (lane < rows ? lane : 0), first = (dir * BATCH + item0) * HIDDEN, at = (dir * BATCH + item) * HIDDEN + unit;
    const A *h = state + step % 2 * STATE, *reset = state + 4 * STATE;
    const T *weights = r + dir * WIDTH * HIDDEN;
    const i64 length = HAS_LENS ? lens[item] : STEPS, t = step < length && is_backward(dir) ? length - 1 - step : step;
    const A *in = sums + (dir * (STEPS * BATCH) + row_of(t, item)) * WIDTH + unit;
    const A h_old = h[at], c_old = state[2 * STATE + at];
    (void)peep, (void)b, (void)reset, (void)part, (void)c_old;
#if KIND == 0
    const A mine = unit_sums<0, 1>(weights, h + first, unit, rows), sum = sum_at(mine, 0);
    if (lane < rows) finish(y, y_h, y_c, state, dir, item, unit, step, length, act(dir, 0, clipped(in[0] + sum)), 0, h_old);
#elif KIND == 1
    const T *candidate_bias = b + dir * 2 * WIDTH + WIDTH + 2 * HIDDEN;
#if LINEAR_BEFORE_RESET
    const A mine = unit_sums<0, 3>(weights, h + first, unit, rows);
    const A sz = sum_at(mine, 0), sr = sum_at(mine, 1), sh = sum_at(mine, 2);
    const A z = act(dir, 0, clipped(in[0] + sz)), gate = act(dir, 0, clipped(in[HIDDEN] + sr));
    const A fresh = act(dir, 1, clipped(in[2 * HIDDEN] + gate * (sh + (HAS_B ? LOAD(candidate_bias[unit]) : (A)0))));
    if (lane < rows) finish(y, y_h, y_c, state, dir, item, unit, step, length, (1 - z) * fresh + z * h_old, 0, h_old);
#else
    (void)candidate_bias;
    if (part == 1) {
        const A mine = unit_sums<0, 2>(weights, h + first, unit, rows), sz = sum_at(mine, 0), sr = sum_at(mine, 1);
        if (lane >= rows) return;
        state[3 * STATE + at] = act(dir, 0, clipped(in[0] + sz));
        state[4 * STATE + at] = act(dir, 0, clipped(in[HIDDEN] + sr)) * h_old;
        return;
    }
    const A mine = unit_sums<2, 1>(weights, reset + first, unit, rows), sh = sum_at(mine, 0), z = state[3 * STATE + at];
    const A fresh = act(dir, 1, clipped(in[2 * HIDDEN] + sh));
    if (lane < rows) finish(y, y_h, y_c, state, dir, item, unit, step, length, (1 - z) * fresh + z * h_old, 0, h_old);
#endif
#else
    const A mine = unit_sums<0, 4>(weights, h + first, unit, rows);
    A i = in[0] + sum_at(mine, 0), o = in[HIDDEN] + sum_at(mine, 1), f = in[2 * HIDDEN] + sum_at(mine, 2);
    const A fresh = act(dir, 1, clipped(in[3 * HIDDEN] + sum_at(mine, 3)));
#if HAS_PEEP
    const T *p = peep + dir * 3 * HIDDEN + unit;
    i += LOAD(p[0]) * c_old;
    f += LOAD(p[2 * HIDDEN]) * c_old;
#endif
    i = act(dir, 0, clipped(i));
    f = INPUT_FORGET ? 1 - i : act(dir, 0, clipped(f));
    const A c = f * c_old + i * fresh;
#if HAS_PEEP
    o += LOAD(p[HIDDEN]) * c;
#endif
    // The clip is for the gates: the cell goes into its activation as it is.
    if (lane < rows) finish(y, y_h, y_c, state, dir, item, unit, step, length, act(dir, 0, clipped(o)) * act(dir, 2, c), c, h_old);
#endif
}

extern "C" __global__ void __launch_bounds__(UNITS * 32) hn_k_rnn_step(const A *sums, const T *r, const T *b, const T *peep, const i32 *lens,
                                                                       A *state, T *y, T *y_h, T *y_c, i64 step, i64 part) {
    const i64 tiles = (BATCH + ROWS - 1) / ROWS, dir = blockIdx.y, item0 = blockIdx.x % tiles * ROWS;
    const int warp = threadIdx.x / 32;
#if LOOP
    for (step = 0; step < STEPS; step++)
        for (part = KIND == 1 && !LINEAR_BEFORE_RESET ? 1 : 2; part < 3; part++) {
            for (i64 unit = warp; unit < HIDDEN; unit += UNITS)
                unit_step(sums, r, b, peep, lens, state, y, y_h, y_c, dir, item0, unit, step, (int)part);
            __syncthreads();
        }
#else
    const i64 unit = blockIdx.x / tiles * UNITS + warp;
    if (unit < HIDDEN) unit_step(sums, r, b, peep, lens, state, y, y_h, y_c, dir, item0, unit, step, (int)part);
#endif
}
