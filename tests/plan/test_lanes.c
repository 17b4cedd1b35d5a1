// SPDX-License-Identifier: Apache-2.0
// Lanes of a recorded segment: whatever steps do to whatever memory, two that share some of it (one of them
// writing) are in order; independent chains get lanes of their own; a chain gets none.
#include "support/test.h"
#include "base/rng.h"
#include "plan/plan_int.h"

typedef struct rig {
    hn_plan plan;
    int slots[512][5]; // of a step: two inputs, one output; workspace apart
} rig;

static void add_slot(rig *r, size_t bytes) {
    hn_slot slot = {.kind = HN_SLOT_SLAB, .on_device = true, .alias_of = -1, .bytes = bytes, .first = INT32_MAX, .last = -1};
    assert_true(hn_vec_push(&r->plan.slots, slot));
}
static void touch(rig *r, int slot, int step) {
    while (r->plan.slots.data[slot].alias_of >= 0)
        slot = r->plan.slots.data[slot].alias_of;
    hn_slot *s = &r->plan.slots.data[slot];
    if (step < s->first) s->first = step;
    if (step > s->last) s->last = step;
}
static void add_step(rig *r, int in0, int in1, int out, int workspace) {
    int s = (int)r->plan.steps.count;
    int *slots = r->slots[s];
    slots[0] = in0;
    slots[1] = in1;
    slots[2] = out;
    hn_step step = {.slots = slots, .input_count = 2, .output_count = 1, .workspace_slot = workspace};
    assert_true(hn_vec_push(&r->plan.steps, step));
    for (int i = 0; i < 3; i++)
        if (slots[i] >= 0) touch(r, slots[i], s);
    if (workspace >= 0) touch(r, workspace, s);
}
static void place(rig *r) {
    size_t count = r->plan.slots.count, total;
    hn_block *blocks = hn_calloc(count + 1, sizeof *blocks);
    int used = 0;
    for (size_t i = 0; i < count; i++)
        if (r->plan.slots.data[i].alias_of < 0)
            blocks[used++] = (hn_block){.bytes = r->plan.slots.data[i].bytes, .first = r->plan.slots.data[i].first, .last = r->plan.slots.data[i].last};
    assert_true(hn_memory_plan(blocks, used, &total));
    used = 0;
    for (size_t i = 0; i < count; i++)
        if (r->plan.slots.data[i].alias_of < 0) r->plan.slots.data[i].address = (char *)(uintptr_t)(4096 + blocks[used++].out_offset);
    hn_free(blocks);
}
static void rig_free(rig *r) {
    hn_vec_free(&r->plan.slots);
    hn_vec_free(&r->plan.steps);
    hn_free(r);
}

static const hn_slot *memory(const rig *r, int step, int i) {
    int slot = i < 3 ? r->slots[step][i] : r->plan.steps.data[step].workspace_slot;
    if (slot < 0) return NULL;
    while (r->plan.slots.data[slot].alias_of >= 0)
        slot = r->plan.slots.data[slot].alias_of;
    return &r->plan.slots.data[slot];
}
static bool share(const rig *r, int a, int b) {
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) {
            const hn_slot *x = memory(r, a, i), *y = memory(r, b, j);
            if ((i < 2 && j < 2) || !x || !y) continue;
            const char *p = x->address, *q = y->address;
            if (p < q + y->bytes && q < p + x->bytes) return true;
        }
    return false;
}
// What a driver makes of it: by step, the steps that have ended when it begins.
static void expect_order(const rig *r, const hn_lanes *lanes) {
    int n = (int)r->plan.steps.count, tail[HN_MAX_LANES];
    bool *ended = hn_calloc((size_t)(n * n) + 1, 1);
    for (int l = 0; l < HN_MAX_LANES; l++)
        tail[l] = -1;
    for (int i = 0; i < n; i++) {
        const hn_lane_step *step = &lanes->steps[i];
        assert_in_range(step->lane, 0, lanes->lanes - 1);
        int ahead[HN_MAX_LANES + 1], count = 0;
        if (tail[step->lane] >= 0) ahead[count++] = tail[step->lane];
        for (int k = 0; k < step->after_count; k++) {
            assert_in_range(step->after[k], 0, i - 1);
            assert_true(lanes->steps[step->after[k]].marked);
            ahead[count++] = step->after[k];
        }
        for (int k = 0; k < count; k++) {
            ended[i * n + ahead[k]] = true;
            for (int j = 0; j < n; j++)
                ended[i * n + j] = ended[i * n + j] || ended[ahead[k] * n + j];
        }
        tail[step->lane] = i;
        for (int j = 0; j < i; j++)
            if (share(r, j, i) && !ended[i * n + j]) fail_msg("steps %d and %d share memory and may overlap", j, i);
    }
    hn_free(ended);
}

static void random_plans_keep_their_order(void **state) {
    (void)state;
    hn_rng rng = hn_rng_seed(20261201);
    int wide = 0;
    for (int round = 0; round < 300; round++) {
        rig *r = hn_calloc(1, sizeof *r);
        int steps = 3 + (int)(hn_rng_next(&rng) % 60), made = 0;
        for (int s = 0; s < steps; s++) {
            add_slot(r, 64 * (1 + hn_rng_next(&rng) % 30));
            int out = (int)r->plan.slots.count - 1, in[2] = {-1, -1}, workspace = -1;
            for (int i = 0; i < 2 && made; i++) // near ones more often
                if (hn_rng_next(&rng) % 4) in[i] = out - 1 - (int)(hn_rng_next(&rng) % (uint64_t)(hn_rng_next(&rng) % 3 ? (made < 4 ? made : 4) : made));
            if (in[0] >= 0 && hn_rng_next(&rng) % 8 == 0) r->plan.slots.data[out].alias_of = in[0]; // in place
            made++;
            if (hn_rng_next(&rng) % 4 == 0) {
                add_slot(r, 64 * (1 + hn_rng_next(&rng) % 30));
                workspace = out + 1;
                made++;
            }
            for (int i = 0; i < 2; i++)
                if (in[i] >= 0 && r->plan.slots.data[in[i]].last < 0) in[i] = -1; // a workspace, say, of nobody
            add_step(r, in[0], in[1], out, workspace);
        }
        hn_lanes *lanes;
        if (round % 2) assert_int_equal(hn_lanes_lifetimes(NULL, &r->plan, 0, steps), HONE_OK);
        place(r);
        assert_int_equal(hn_lanes_new(NULL, &r->plan, 0, steps, 2 + round % 7, &lanes), HONE_OK);
        if (lanes) expect_order(r, lanes);
        wide += lanes != NULL;
        hn_free(lanes);
        rig_free(r);
    }
    assert_true(wide > 100);
}

// Three chains of five behind one step, joined at the end; `prolong`: blocks live on beside the others.
static hn_lanes *branches(rig *r, bool prolong) {
    hn_lanes *lanes;
    add_slot(r, 64);
    add_step(r, -1, -1, 0, -1);
    int ends[3];
    for (int b = 0; b < 3; b++)
        for (int i = 0; i < 5; i++) {
            add_slot(r, 64);
            int out = (int)r->plan.slots.count - 1;
            add_step(r, i ? out - 1 : 0, -1, out, -1);
            ends[b] = out;
        }
    add_slot(r, 64);
    add_step(r, ends[0], ends[1], (int)r->plan.slots.count - 1, -1);
    add_slot(r, 64);
    add_step(r, ends[2], (int)r->plan.slots.count - 2, (int)r->plan.slots.count - 1, -1);
    if (prolong) assert_int_equal(hn_lanes_lifetimes(NULL, &r->plan, 0, (int)r->plan.steps.count), HONE_OK);
    place(r);
    assert_int_equal(hn_lanes_new(NULL, &r->plan, 0, (int)r->plan.steps.count, 4, &lanes), HONE_OK);
    return lanes;
}

static void branches_get_lanes(void **state) {
    (void)state;
    rig *r = hn_calloc(1, sizeof *r);
    hn_lanes *lanes = branches(r, true);
    assert_non_null(lanes);
    assert_int_equal(lanes->lanes, 3);
    for (int b = 0; b < 3; b++)
        for (int i = 0; i < 5; i++) {
            const hn_lane_step *step = &lanes->steps[1 + b * 5 + i];
            assert_int_equal(step->lane, lanes->steps[1 + b * 5].lane);
            assert_int_equal(step->after_count, i == 0 && step->lane != lanes->steps[0].lane); // no branch waits for another
        }
    expect_order(r, lanes);
    hn_free(lanes);
    rig_free(r);
}

// Without that, memory that one branch gave back is the next one's, which then waits.
static void reuse_would_keep_branches_apart(void **state) {
    (void)state;
    rig *r = hn_calloc(1, sizeof *r);
    hn_lanes *lanes = branches(r, false);
    int waits = 0;
    for (int s = 0; lanes && s < 16; s++)
        waits += lanes->steps[s].after_count;
    assert_true(!lanes || waits > 2);
    if (lanes) expect_order(r, lanes);
    hn_free(lanes);
    rig_free(r);
}

static void a_chain_gets_none(void **state) {
    (void)state;
    rig *r = hn_calloc(1, sizeof *r);
    hn_lanes *lanes;
    for (int i = 0; i < 30; i++) {
        add_slot(r, 64);
        add_step(r, i - 1, -1, i, -1);
    }
    int before = r->plan.slots.data[3].last;
    assert_int_equal(hn_lanes_lifetimes(NULL, &r->plan, 0, 30), HONE_OK);
    assert_int_equal(r->plan.slots.data[3].last, before); // nothing is prolonged
    place(r);
    assert_int_equal(hn_lanes_new(NULL, &r->plan, 0, 30, 4, &lanes), HONE_OK);
    assert_null(lanes);
    rig_free(r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_plans_keep_their_order),
        cmocka_unit_test(branches_get_lanes),
        cmocka_unit_test(reuse_would_keep_branches_apart),
        cmocka_unit_test(a_chain_gets_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
