// SPDX-License-Identifier: Apache-2.0
// hn.Elementwise: element-wise steps block by block, so that what is between them stays in the first
// cache.
//
// The output is walked in blocks of its memory order: pieces of the innermost dim where it is long, whole
// rows of it where it is short. An input that is a run within a block is read where it lies, one that is
// the same number as a number; any other is written out for the block first (a vector along the innermost
// dim once for all blocks). Results of steps live in slots of one small buffer; the last step writes the
// output, so an input that is read in place may share its memory.
#include "backends/cpu/cpu_int.h"
#include "ops/steps.h"

// Floats of all slots of a thread: 32 KiB, the first cache of the CPUs we know.
#define SCRATCH 8192
#define BLOCK_MAX 2048
#define LONG_ROW 512
#define GRAIN 32768 // elements times weight that a thread should have at least

typedef enum feed { FEED_RUN, FEED_ONE, FEED_REPEATED, FEED_SPREAD } feed;

typedef struct step_input {
    feed feed;
    bool small, is_signed; // 8-bit
    int slot;              // of what is written out for a block
    int64_t strides[HN_MAX_RANK];
} step_input;

typedef enum step_kind { STEP_UNARY, STEP_BINARY, STEP_QUANTISE, STEP_DEQUANTISE } step_kind;

typedef struct step_run {
    step_kind kind;
    cpu_ew ew;      // function and its parameters
    int operand[2]; // inputs, then steps
    int slot;       // of the result; -1: the output
} step_run;

typedef struct steps_kernel {
    hn_kernel base;
    const hn_k_quant *quant;
    int input_count, count, rank;
    int64_t dims[HN_MAX_RANK], total;
    bool by_rows;           // a block lies within one row of the innermost dim
    int64_t block, pieces;  // elements of a block at most; blocks a row
    int64_t slot_floats;
    bool to_small, to_signed;
    int threads;
    int64_t grain;          // blocks
    step_input input[HN_STEPS_MAX_INPUTS];
    step_run step[HN_STEPS_MAX];
} steps_kernel;

typedef struct steps_job {
    const steps_kernel *k;
    const hn_args *args;
} steps_job;

// ---- operands -----------------------------------------------------------------------------------
static void put(void *to, const void *from, int64_t at, int64_t stride, int64_t n, bool small) {
    if (small) {
        uint8_t *out = to;
        const uint8_t *in = (const uint8_t *)from + at;
        if (stride == 0) memset(out, *in, (size_t)n);
        else if (stride == 1) memcpy(out, in, (size_t)n);
        else
            for (int64_t i = 0; i < n; i++)
                out[i] = in[i * stride];
        return;
    }
    float *out = to;
    const float *in = (const float *)from + at;
    if (stride == 1) memcpy(out, in, (size_t)n * sizeof *out);
    else
        for (int64_t i = 0; i < n; i++)
            out[i] = in[i * stride];
}

// Elements [begin, begin + n) of the output as this input has them.
static void spread(const steps_kernel *k, const step_input *input, const void *from, int64_t begin, int64_t n,
                   void *to) {
    int last = k->rank - 1;
    int64_t at[HN_MAX_RANK], rest = begin, offset = 0;
    size_t item = input->small ? 1 : sizeof(float);
    for (int d = last; d >= 0; d--) {
        at[d] = rest % k->dims[d];
        rest /= k->dims[d];
        offset += at[d] * input->strides[d];
    }
    for (int64_t done = 0; done < n;) {
        int64_t run = hn_min_i64(k->dims[last] - at[last], n - done);
        put((char *)to + (size_t)done * item, from, offset, input->strides[last], run, input->small);
        done += run;
        offset += run * input->strides[last];
        at[last] += run;
        for (int d = last; d > 0 && at[d] == k->dims[d]; d--) {
            offset += input->strides[d - 1] - k->dims[d] * input->strides[d];
            at[d] = 0;
            at[d - 1]++;
        }
    }
}

// Where element `begin` of the output lies in this input.
static int64_t offset_of(const steps_kernel *k, const step_input *input, int64_t begin) {
    int64_t offset = 0;
    for (int d = k->rank - 1; d >= 0 && begin; d--) {
        offset += begin % k->dims[d] * input->strides[d];
        begin /= k->dims[d];
    }
    return offset;
}

static const void *feed_block(const steps_kernel *k, int index, const void *from, int64_t begin, int64_t n,
                              float *scratch) {
    const step_input *input = &k->input[index];
    float *slot = scratch + input->slot * k->slot_floats;
    if (input->feed == FEED_REPEATED) return slot;
    if (input->feed == FEED_SPREAD) {
        spread(k, input, from, begin, n, slot);
        return slot;
    }
    int64_t at = k->by_rows ? offset_of(k, input, begin) : input->feed == FEED_RUN ? begin : 0;
    return input->small ? (const void *)((const char *)from + at) : (const void *)((const float *)from + at);
}

// ---- running ------------------------------------------------------------------------------------
static void run_step(const steps_kernel *k, const step_run *s, const void *const *values, void *out, int64_t n) {
    int a = s->operand[0], b = s->operand[1];
    const void *x = values[a];
    switch (s->kind) {
    case STEP_UNARY: s->ew.unary(x, out, n, s->ew.alpha, s->ew.beta); break;
    case STEP_BINARY: {
        bool one_a = a < k->input_count && k->input[a].feed == FEED_ONE;
        bool one_b = b < k->input_count && k->input[b].feed == FEED_ONE;
        s->ew.binary[one_b ? 1 : one_a ? 2 : 0](x, values[b], out, n);
        break;
    }
    case STEP_QUANTISE:
        k->quant->quantise(x, out, n, s->ew.alpha, (int32_t)s->ew.beta, k->to_signed);
        break;
    case STEP_DEQUANTISE:
        k->quant->dequantise(x, out, n, s->ew.alpha, (int32_t)s->ew.beta, k->input[a].is_signed);
        break;
    }
}

static void run_blocks(void *arg, int64_t first, int64_t end) {
    const steps_job *job = arg;
    const steps_kernel *k = job->k;
    float scratch[SCRATCH] __attribute__((aligned(64)));
    const void *values[HN_STEPS_MAX_INPUTS + HN_STEPS_MAX];
    int64_t row = k->dims[k->rank - 1];
    for (int i = 0; i < k->input_count; i++)
        if (k->input[i].feed == FEED_REPEATED)
            spread(k, &k->input[i], job->args->inputs[i], 0, hn_min_i64(k->block, k->total),
                   scratch + k->input[i].slot * k->slot_floats);
    for (int64_t block = first; block < end; block++) {
        int64_t begin = block * k->block, n = hn_min_i64(k->block, k->total - begin);
        if (k->by_rows) {
            int64_t at = block % k->pieces * k->block;
            begin = block / k->pieces * row + at;
            n = hn_min_i64(k->block, row - at);
        }
        for (int i = 0; i < k->input_count; i++)
            values[i] = feed_block(k, i, job->args->inputs[i], begin, n, scratch);
        for (int s = 0; s < k->count; s++) {
            const step_run *step = &k->step[s];
            void *out = scratch + step->slot * k->slot_floats;
            if (step->slot < 0)
                out = (char *)job->args->outputs[0] + begin * (k->to_small ? 1 : (int64_t)sizeof(float));
            run_step(k, step, values, out, n);
            values[k->input_count + s] = out;
        }
    }
}

static hone_status steps_run(hone_error *err, hn_kernel *kernel, const hn_args *args) {
    (void)err;
    const steps_kernel *k = (const steps_kernel *)kernel;
    steps_job job = {k, args};
    int64_t row = k->dims[k->rank - 1];
    int64_t blocks = k->by_rows ? k->total / row * k->pieces : (k->total + k->block - 1) / k->block;
    if (k->threads <= 1) run_blocks(&job, 0, blocks);
    else hn_parallel_for(blocks, k->grain, run_blocks, &job);
    return HONE_OK;
}
static const hn_kernel_ops k_steps_ops = {sizeof(hn_kernel_ops), NULL, steps_run, cpu_kernel_destroy};

// ---- selecting ----------------------------------------------------------------------------------
// The fewest dims in the output's memory order along which every input has one stride.
static void collapse(steps_kernel *k, const hn_shape *out, hn_layout layout) {
    int order[HN_MAX_RANK], n = 0;
    int64_t strides[HN_STEPS_MAX_INPUTS][HN_MAX_RANK];
    for (int i = 0; i < k->input_count; i++)
        memcpy(strides[i], k->input[i].strides, sizeof strides[i]);
    cpu_physical(out->rank, layout, order);
    for (int o = 0; o < out->rank; o++) {
        int d = order[o];
        int64_t size = out->dims[d];
        if (size == 1) continue;
        bool joins = n > 0;
        for (int i = 0; joins && i < k->input_count; i++)
            joins = k->input[i].strides[n - 1] == strides[i][d] * size;
        if (!joins) k->dims[n++] = 1;
        k->dims[n - 1] *= size;
        for (int i = 0; i < k->input_count; i++)
            k->input[i].strides[n - 1] = strides[i][d];
    }
    if (n == 0) {
        k->dims[n++] = 1;
        for (int i = 0; i < k->input_count; i++)
            k->input[i].strides[0] = 1;
    }
    k->rank = n;
}

// A number for the whole block is fine only for a step of two whose other operand is none.
static bool may_be_one(const steps_kernel *k, const hn_steps *steps, int input, const bool *ones) {
    for (int s = 0; s < k->count; s++) {
        const int *operand = steps->step[s].operand;
        if (operand[0] != input && operand[1] != input) continue;
        if (operand[1] < 0 || operand[0] == operand[1]) return false;
        int other = operand[operand[0] == input];
        if (other < k->input_count && ones[other]) return false;
    }
    return !k->input[input].small;
}

static void choose_feeds(steps_kernel *k, const hn_steps *steps) {
    bool ones[HN_STEPS_MAX_INPUTS] = {false};
    int last = k->rank - 1;
    for (int i = 0; i < k->input_count; i++) {
        step_input *input = &k->input[i];
        int64_t expected = 1;
        bool flat = true, constant = true, repeated = input->strides[last] == 1;
        for (int d = last; d >= 0; d--) {
            flat = flat && input->strides[d] == expected;
            expected *= k->dims[d];
            constant = constant && input->strides[d] == 0;
            repeated = repeated && (d == last || input->strides[d] == 0);
        }
        bool one = k->by_rows ? input->strides[last] == 0 : constant;
        ones[i] = one && may_be_one(k, steps, i, ones);
        if (ones[i]) input->feed = FEED_ONE;
        else if (flat || (k->by_rows && input->strides[last] == 1)) input->feed = FEED_RUN;
        else if (repeated) input->feed = FEED_REPEATED; // not by rows here
        else input->feed = FEED_SPREAD;
    }
}

// Slots: one for each input that is written out, and for results while they are needed. Returns how many.
static int assign_slots(steps_kernel *k) {
    int count = 0, last_use[HN_STEPS_MAX];
    bool taken[HN_STEPS_MAX_INPUTS + HN_STEPS_MAX] = {false};
    for (int i = 0; i < k->input_count; i++)
        k->input[i].slot = k->input[i].feed >= FEED_REPEATED ? count++ : 0;
    for (int i = 0; i < count; i++)
        taken[i] = true;
    for (int s = 0; s < k->count; s++) {
        last_use[s] = s;
        for (int i = 0; i < 2; i++)
            if (k->step[s].operand[i] >= k->input_count) last_use[k->step[s].operand[i] - k->input_count] = s;
    }
    for (int s = 0; s < k->count; s++) {
        // What this step reads last may be written by it: steps work in place.
        for (int before = 0; before < s; before++)
            if (last_use[before] == s && k->step[before].slot >= 0) taken[k->step[before].slot] = false;
        int slot = 0;
        while (taken[slot])
            slot++;
        k->step[s].slot = s == k->count - 1 ? -1 : slot;
        if (s == k->count - 1) break;
        taken[slot] = last_use[s] > s;
        if (slot + 1 > count) count = slot + 1;
    }
    return count > 0 ? count : 1;
}

static bool choose_functions(const cpu_state *cpu, steps_kernel *k, const hn_steps *steps, int *out_weight) {
    int weight = 0;
    for (int s = 0; s < steps->count; s++) {
        const hn_step *from = &steps->step[s];
        step_run *to = &k->step[s];
        memcpy(to->operand, from->operand, sizeof to->operand);
        if (from->op == cpu->op.QuantizeLinear || from->op == cpu->op.DequantizeLinear) {
            to->kind = from->op == cpu->op.QuantizeLinear ? STEP_QUANTISE : STEP_DEQUANTISE;
            to->ew = (cpu_ew){.alpha = from->a, .beta = from->b, .grain = GRAIN / 2};
        } else if (from->operand[1] < 0) {
            to->kind = STEP_UNARY;
            if (!cpu_ew_unary(cpu, from->op, from->a, from->b, &to->ew)) return false;
        } else {
            to->kind = STEP_BINARY;
            if (!cpu_ew_binary(cpu, from->op, &to->ew)) return false;
        }
        weight += (int)hn_max_i64(1, GRAIN / 2 / to->ew.grain);
    }
    *out_weight = weight;
    return true;
}

static bool describe(cpu_state *cpu, const hn_select *what, const hn_steps *steps, hn_layout *out_layout,
                     steps_kernel *k) {
    cpu_value v[HN_STEPS_MAX_INPUTS], y;
    int weight;
    hn_layout layout = HN_LAYOUT_PLAIN;
    if (!cpu_out(what->node, 0, &y) || y.count == 0 || what->node->post_count) return false;
    k->input_count = steps->input_count;
    k->count = steps->count;
    k->total = y.count;
    k->quant = cpu->quant;
    k->to_small = steps->to != HN_F32;
    k->to_signed = steps->to == HN_I8;
    for (int i = 0; i < k->input_count; i++) {
        if (!cpu_in(what->node, i, &v[i])) return false;
        k->input[i].small = steps->small[i];
        k->input[i].is_signed = v[i].dtype == HN_I8;
        if (cpu_hint(what, i) == HN_LAYOUT_CHANNELS_LAST && hn_shape_equal(&v[i].shape, &y.shape) &&
            !cpu_same_bytes(&y.shape))
            layout = HN_LAYOUT_CHANNELS_LAST;
    }
    for (int i = 0; i < k->input_count; i++) {
        bool full = hn_shape_equal(&v[i].shape, &y.shape);
        hn_layout held = full && !cpu_same_bytes(&y.shape) ? layout : cpu_hint(what, i);
        if (!cpu_operand_strides(&y.shape, &v[i].shape, held, k->input[i].strides)) return false;
        k->base.in_layout[i] = held;
        if (full && k->base.inplace_input[0] < 0 && v[i].dtype == y.dtype) k->base.inplace_input[0] = i;
    }
    if (!choose_functions(cpu, k, steps, &weight)) return false;
    collapse(k, &y.shape, layout);
    int64_t row = k->dims[k->rank - 1], room = LONG_ROW;
    for (int tries = 0; tries < 2; tries++) { // again where so many slots leave no room for whole rows
        k->by_rows = k->rank == 1 || row >= room;
        choose_feeds(k, steps);
        room = hn_min_i64(BLOCK_MAX, SCRATCH / assign_slots(k) / 16 * 16);
        if (k->by_rows || row <= room) break;
    }
    k->slot_floats = room;
    k->block = k->by_rows ? hn_min_i64(room, row) : room / row * row;
    k->pieces = (row + k->block - 1) / k->block;
    k->grain = hn_max_i64(1, GRAIN / hn_max_i64(1, weight * k->block));
    *out_layout = layout;
    return true;
}

hone_status own_steps_select(hone_error *err, cpu_state *cpu, const hn_select *what, hn_kernel **out_kernel) {
    hn_steps steps;
    hn_layout layout;
    HN_TRY(hn_steps_read(err, what->node, &steps));
    steps_kernel *k = cpu_kernel_new(sizeof *k, &k_steps_ops);
    if (!k) HN_NOMEM(err, "selecting a kernel");
    if (!describe(cpu, what, &steps, &layout, k)) {
        hn_free(k);
        return HONE_ERR_UNSUPPORTED;
    }
    k->threads = what->threads > 0 ? what->threads : hn_parallel_threads();
    k->base.out_layout[0] = layout;
    *out_kernel = &k->base;
    return HONE_OK;
}
