// SPDX-License-Identifier: Apache-2.0
// Rows of PARTS tables side by side: unit `INNER * part + i` of output row b comes from the row of the
// part's table that index[b][column] names; a part without a column gives its own row b. An index outside
// writes zeros and raises the device's fault flag.
struct table {
    const U *rows;
    i64 column, count;
};

extern "C" __global__ void __launch_bounds__(256) hn_k_embeddings(const I *index, const U *own, const table *tables, U *y, volatile u32 *fault HN_PARAMS) {
    const span i = (span)blockIdx.x * 256 + threadIdx.x;
    if (i >= BATCH * PARTS * INNER) return;
    const int unit = (int)(i % INNER), part = (int)(i / INNER % PARTS);
    const span b = i / INNER / PARTS;
    const table t = tables[part];
    if (t.column < 0) {
        y[i] = own[b * INNER + unit];
        return;
    }
    i64 at = index[b * COLUMNS + t.column];
    if (at < 0) at += t.count;
    if (at < 0 || at >= t.count) {
        *fault = 1;
        y[i] = U{};
        return;
    }
    y[i] = t.rows[at * INNER + unit];
}
