// SPDX-License-Identifier: Apache-2.0
// The K first of each line of COUNT elements, INNER apart. Blocks sort CHUNK items in shared memory and
// keep the first ones, until one block holds all of a line (hn_k_topk_tile); a K that is no small part of
// CHUNK sorts the whole line: sorted chunks, then exchanges across them (_step) and inside (_merge).
// Told: LINES, K, CHUNK (a power of 2), THREADS, ROOM (COUNT filled up to a power of 2).
__device__ __forceinline__ i64 line_base(i64 line, i64 length) { return line / INNER * (length * INNER) + line % INNER; }

__device__ __forceinline__ void emit(const T *x, T *values, i64 *indices, i64 line, i64 i, const item a) {
    const i64 to = line_base(line, K) + i * INNER;
    const u32 at = place_of(a);
    if (values) values[to] = x[line_base(line, COUNT) + (i64)at * INNER];
    if (indices) indices[to] = at;
}

// The lower index gets what comes first where `falling`.
__device__ __forceinline__ void exchange(item *a, item *b, bool falling) {
    const item low = *a, high = *b;
    if (before(high, low) == falling) {
        *a = high;
        *b = low;
    }
}

// `in`: items of the pass before, NULL: the elements. length: items a line. `to`: for the next pass,
// `keep` a chunk; NULL: this is the last one. turn: every other chunk rises.
extern "C" __global__ void __launch_bounds__(THREADS) hn_k_topk_tile(const T *x, const item *in, item *to, T *values, i64 *indices, i64 length,
                                                                     i64 tiles, i64 keep, i64 turn) {
    __shared__ item items[CHUNK];
    const i64 line = blockIdx.x / tiles, tile = blockIdx.x % tiles;
    for (int i = threadIdx.x; i < CHUNK; i += THREADS) {
        const i64 at = tile * CHUNK + i;
        items[i] = at >= length ? none() : in ? in[line * length + at] : item_of(x[line_base(line, COUNT) + at * INNER], (u32)at);
    }
    __syncthreads();
    const bool rising = turn && (tile & 1);
    for (int size = 2; size <= CHUNK; size *= 2)
        for (int step = size / 2; step > 0; step /= 2) {
            for (int i = threadIdx.x; i < CHUNK / 2; i += THREADS) {
                const int low = i / step * step * 2 + i % step;
                exchange(&items[low], &items[low + step], size < CHUNK ? (low & size) == 0 : !rising);
            }
            __syncthreads();
        }
    for (i64 i = threadIdx.x; i < (to ? keep : K); i += THREADS) {
        if (to) to[(line * tiles + tile) * keep + i] = items[i];
        else emit(x, values, indices, line, i, items[i]);
    }
}

// One exchange over all pairs of a line that are `step` >= CHUNK apart, in runs of `size`.
extern "C" __global__ void __launch_bounds__(256) hn_k_topk_step(item *items, i64 size, i64 step) {
    const i64 n = (i64)blockIdx.x * 256 + threadIdx.x;
    if (n >= (i64)LINES * (ROOM / 2)) return;
    const i64 i = n % (ROOM / 2), low = i / step * step * 2 + i % step;
    item *line = items + n / (ROOM / 2) * ROOM;
    exchange(&line[low], &line[low + step], (low & size) == 0);
}

// The exchanges of `size` that stay inside of a chunk; the last of all hands out.
extern "C" __global__ void __launch_bounds__(THREADS) hn_k_topk_merge(const T *x, item *all, T *values, i64 *indices, i64 size) {
    __shared__ item items[CHUNK];
    const i64 line = blockIdx.x / (ROOM / CHUNK), first = blockIdx.x % (ROOM / CHUNK) * CHUNK;
    item *from = all + line * ROOM + first;
    for (int i = threadIdx.x; i < CHUNK; i += THREADS)
        items[i] = from[i];
    __syncthreads();
    for (int step = CHUNK / 2; step > 0; step /= 2) {
        for (int i = threadIdx.x; i < CHUNK / 2; i += THREADS) {
            const int low = i / step * step * 2 + i % step;
            exchange(&items[low], &items[low + step], ((first + low) & size) == 0);
        }
        __syncthreads();
    }
    for (int i = threadIdx.x; i < CHUNK; i += THREADS) {
        if (size < ROOM) from[i] = items[i];
        else if (first + i < K) emit(x, values, indices, line, first + i, items[i]);
    }
}
