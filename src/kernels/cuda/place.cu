// SPDX-License-Identifier: Apache-2.0
// Copies whose source depends on values of the run: output unit i of COUNT comes from where FROM says, or is
// zero. FROM is a block of statements that sets `from` (-1: zero) or raises `bad`.

extern "C" __global__ void __launch_bounds__(256) hn_k_place(const U *x, const U *x2, const I *index, U *y, volatile u32 *fault) {
    const i64 i = (i64)blockIdx.x * 256 + threadIdx.x;
    if (i >= COUNT) return;
    const U *source = x;
    i64 from = -1;
    bool bad = false;
    FROM
    if (bad) *fault = 1;
    y[i] = from < 0 || bad ? U{} : source[from];
}
