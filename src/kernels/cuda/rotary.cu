// SPDX-License-Identifier: Apache-2.0
// RotaryEmbedding: a thread an element. Told: T, A, LOAD, I, COUNT, SIZE of a head, HEADS, LENGTH, HEADS_FIRST
// (dims batch, head, position, else batch, position, head), ROTATE (elements that turn), INTERLEAVED, BY_PLACE (positions are given) and
// PLACES of the tables. A position outside raises the device's fault flag.
extern "C" __global__ void __launch_bounds__(256) hn_k_rotary(const T *x, const T *cosine, const T *sine, const I *places, T *y, volatile u32 *fault) {
    const i64 i = (i64)blockIdx.x * 256 + threadIdx.x;
    if (i >= COUNT) return;
    const i64 d = i % SIZE, row = i / SIZE, batch = row / (HEADS * LENGTH), position = HEADS_FIRST ? row % LENGTH : row / HEADS % LENGTH;
    if (d >= ROTATE) {
        y[i] = x[i];
        return;
    }
    const i64 line = batch * LENGTH + position, half = ROTATE / 2, place = BY_PLACE ? places[line] : line;
    if (place < 0 || place >= PLACES) {
        *fault = 1;
        y[i] = store<T>::of((A)0);
        return;
    }
    const bool second = INTERLEAVED ? d & 1 : d >= half;
    const i64 pair = INTERLEAVED ? d / 2 : d % half;
    const i64 step = INTERLEAVED ? 1 : half, mate = second ? i - step : i + step;
    const A c = LOAD(cosine[place * half + pair]), s = LOAD(sine[place * half + pair]), mine = LOAD(x[i]), its = LOAD(x[mate]);
    y[i] = store<T>::of(second ? s * its + c * mine : c * mine - s * its);
}
