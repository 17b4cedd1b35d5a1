// SPDX-License-Identifier: Apache-2.0
// Strided copies: the core of Transpose, layout changes, Slice, Concat, Expand and their like.
//
// Dims are merged until no two neighbours can be walked as one; what remains is a block copy, rows
// of contiguous bytes, or a transposition done in tiles that stay in the first cache.
#include "backends/cpu/cpu_int.h"
#include "kernels/cpu/move.h"

bool cpu_move_init(cpu_move *move, int rank, const int64_t *dims, const int64_t *in_strides,
                   const int64_t *out_strides, size_t bytes) {
    *move = (cpu_move){.bytes = bytes, .threads = 1};
    int n = 0;
    for (int i = 0; i < rank; i++) {
        if (dims[i] == 1) continue;
        int64_t *d = move->dims, *is = move->in_strides, *os = move->out_strides;
        if (n > 0 && is[n - 1] == in_strides[i] * dims[i] && os[n - 1] == out_strides[i] * dims[i]) {
            d[n - 1] *= dims[i];
            is[n - 1] = in_strides[i];
            os[n - 1] = out_strides[i];
            continue;
        }
        d[n] = dims[i];
        is[n] = in_strides[i];
        os[n++] = out_strides[i];
    }
    if (n == 0) {
        move->dims[0] = move->in_strides[0] = move->out_strides[0] = 1;
        for (int i = 0; i < rank; i++)
            if (dims[i] == 0) move->dims[0] = 0;
        n = 1;
    }
    move->rank = n;
    move->is_copy = n == 1 && move->in_strides[0] == 1 && move->out_strides[0] == 1;
    return true;
}

typedef struct move_job {
    const cpu_move *m;
    const char *in;
    char *out;
    int outer;        // dims walked one by one; those behind form the inner block
} move_job;

// Innermost dims as rows (rank 1) or a plane (rank 2).
static void inner_block(const move_job *job, const char *in, char *out) {
    const cpu_move *m = job->m;
    int d = job->outer;
    if (d == m->rank - 1) {
        hn_k_move_row(in, m->in_strides[d], out, m->out_strides[d], m->dims[d], m->bytes);
        return;
    }
    hn_k_move_plane(in, m->in_strides[d], m->in_strides[d + 1], out, m->out_strides[d],
                    m->out_strides[d + 1], m->dims[d], m->dims[d + 1], m->bytes);
}

static void run_range(void *arg, int64_t begin, int64_t end) {
    const move_job *job = arg;
    const cpu_move *m = job->m;
    int64_t at[HN_MAX_RANK] = {0}, in = 0, out = 0, rest = begin;
    for (int d = job->outer - 1; d >= 0; d--) {
        at[d] = rest % m->dims[d];
        rest /= m->dims[d];
        in += at[d] * m->in_strides[d];
        out += at[d] * m->out_strides[d];
    }
    for (int64_t i = begin; i < end; i++) {
        inner_block(job, job->in + in * (int64_t)m->bytes, job->out + out * (int64_t)m->bytes);
        for (int d = job->outer - 1; d >= 0; d--) {
            in += m->in_strides[d];
            out += m->out_strides[d];
            if (++at[d] < m->dims[d]) break;
            in -= m->dims[d] * m->in_strides[d];
            out -= m->dims[d] * m->out_strides[d];
            at[d] = 0;
        }
    }
}

// Bytes a thread should move at least: a fork and join costs about as much as copying this.
#define MOVE_GRAIN_BYTES 32768

typedef struct copy_job {
    const char *in;
    char *out;
} copy_job;
static void copy_range(void *arg, int64_t begin, int64_t end) {
    copy_job *job = arg;
    memcpy(job->out + begin, job->in + begin, (size_t)(end - begin));
}

// A plane that is all there is to move is split along its first dim.
typedef struct plane_job {
    const cpu_move *m;
    const char *in;
    char *out;
} plane_job;
static void plane_range(void *arg, int64_t begin, int64_t end) {
    const plane_job *job = arg;
    const cpu_move *m = job->m;
    int64_t bytes = (int64_t)m->bytes;
    hn_k_move_plane(job->in + begin * m->in_strides[0] * bytes, m->in_strides[0], m->in_strides[1],
                    job->out + begin * m->out_strides[0] * bytes, m->out_strides[0],
                    m->out_strides[1], end - begin, m->dims[1], m->bytes);
}

void cpu_move_run(const cpu_move *m, const void *in_, void *out_) {
    const char *in = (const char *)in_ + m->in_offset * (int64_t)m->bytes;
    char *out = (char *)out_ + m->out_offset * (int64_t)m->bytes;
    int64_t total = 1;
    for (int d = 0; d < m->rank; d++)
        total *= m->dims[d];
    if (total == 0) return;
    int64_t bytes = total * (int64_t)m->bytes;
    if (m->is_copy) {
        if (in == out) return;
        copy_job job = {in, out};
        if (bytes < 2 * MOVE_GRAIN_BYTES || m->threads <= 1) copy_range(&job, 0, bytes);
        else hn_parallel_for(bytes, MOVE_GRAIN_BYTES, copy_range, &job);
        return;
    }
    if (m->rank == 2 && m->threads > 1 && bytes >= 2 * MOVE_GRAIN_BYTES) {
        plane_job job = {m, in, out};
        int64_t row = m->dims[1] * (int64_t)m->bytes;
        hn_parallel_for(m->dims[0], hn_max_i64(1, MOVE_GRAIN_BYTES / row), plane_range, &job);
        return;
    }
    // Rows whose elements lie together on both sides are walked singly, all else as planes.
    int inner = m->rank >= 2 && !(m->in_strides[m->rank - 1] == 1 && m->out_strides[m->rank - 1] == 1 &&
                                  m->dims[m->rank - 1] * (int64_t)m->bytes >= 64)
                    ? 2
                    : 1;
    move_job job = {m, in, out, m->rank - inner};
    int64_t outer = 1, block = (int64_t)m->bytes;
    for (int d = 0; d < m->rank; d++)
        *(d < job.outer ? &outer : &block) *= m->dims[d];
    if (m->threads <= 1 || bytes < 2 * MOVE_GRAIN_BYTES) run_range(&job, 0, outer);
    else hn_parallel_for(outer, hn_max_i64(1, MOVE_GRAIN_BYTES / block), run_range, &job);
}
