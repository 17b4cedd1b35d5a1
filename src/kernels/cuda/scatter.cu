// SPDX-License-Identifier: Apache-2.0
// ScatterND and ScatterElements: ROWS updates of BLOCK elements go to SLOTS places of an output that begins
// as the data. Several updates of one place count in the order of their numbers, as in the reference: where
// they replace, the last one claims the place; where they are combined, each place lists its updates,
// sorts the list and goes through it. Told beside: T, A, U, LOAD, I, target's parts as gather_elements.cu.
// state: claims (REPLACE), else counts, starts of lists, the lists' end, the lists.
enum { BEGIN, COUNT_UP, RESERVE, PLACE_IN, SORT, APPLY };

// The place of update `row`; -1 for an index outside.
__device__ __forceinline__ i64 target(const I *index, i64 row) {
    bool good = true;
#if BY_ELEMENT
    i64 offset = 0, i = row, at = index[row];
    PLACE
    if (at < 0) at += AXIS;
    good = at >= 0 && at < AXIS;
    offset += at * STEP;
#else
    i64 offset = 0;
#pragma unroll
    for (int k = 0; k < DEPTH; k++) {
        i64 at = index[row * DEPTH + k];
        if (at < 0) at += DIM(k);
        good = good && at >= 0 && at < DIM(k);
        offset += at * STRIDE(k);
    }
#endif
    return good ? offset : -1;
}

__device__ __forceinline__ A combine(const A x, const A y) { return (A)(COMBINE); }

// A heap, since a list may be as long as there are updates.
__device__ inline void sort_list(u32 *list, u32 n) {
    for (u32 start = n / 2; n > 1;) {
        u32 root, last;
        if (start > 0) {
            root = --start;
            last = n;
        } else {
            const u32 top = list[0];
            list[0] = list[--n];
            list[n] = top;
            root = 0;
            last = n;
        }
        const u32 sinking = list[root];
        for (u32 child; (child = 2 * root + 1) < last; root = child) {
            if (child + 1 < last && list[child + 1] > list[child]) child++;
            if (list[child] <= sinking) break;
            list[root] = list[child];
        }
        list[root] = sinking;
    }
}

extern "C" __global__ void __launch_bounds__(256) hn_k_scatter(const T *data, const I *index, const T *updates, T *y, u32 *state,
                                                               volatile u32 *fault, i64 phase) {
    const i64 i = (i64)blockIdx.x * 256 + threadIdx.x;
    u32 *counts = state, *starts = state + SLOTS, *end = state + 2 * SLOTS, *lists = end + 1;
    if (phase == BEGIN) {
        if (i < SLOTS * BLOCK && data != y) y[i] = data[i];
        if (REPLACE ? i < SLOTS : i <= 2 * SLOTS) state[i] = 0;
    } else if (phase == COUNT_UP) {
        if (i >= ROWS) return;
        const i64 to = target(index, i);
        if (to < 0) *fault = 1;
        else if (REPLACE) atomicMax(&state[to], (u32)i + 1);
        else atomicAdd(&counts[to], 1u);
    } else if (phase == RESERVE) {
        if (i >= SLOTS || counts[i] == 0) return;
        starts[i] = atomicAdd(end, counts[i]);
        counts[i] = 0;
    } else if (phase == PLACE_IN) {
        const i64 to = i < ROWS ? target(index, i) : -1;
        if (to >= 0) lists[starts[to] + atomicAdd(&counts[to], 1u)] = (u32)i;
    } else if (phase == SORT) {
        if (i < SLOTS && counts[i] > 1) sort_list(lists + starts[i], counts[i]);
    } else if (REPLACE) {
        const i64 row = i / BLOCK, to = row < ROWS ? target(index, row) : -1;
        if (to >= 0 && state[to] == (u32)row + 1) y[to * BLOCK + i % BLOCK] = updates[i];
    } else {
        const i64 slot = i / BLOCK;
        if (slot >= SLOTS || counts[slot] == 0) return;
        T value = y[i];
        for (u32 n = 0; n < counts[slot]; n++)
            value = store<T>::of(combine(LOAD(value), LOAD(updates[lists[starts[slot] + n] * (i64)BLOCK + i % BLOCK])));
        y[i] = value;
    }
}
