// SPDX-License-Identifier: Apache-2.0
// The pass table and its manager.
//
// A pass changes one module in place; the caller clones where it needs the original. Portable
// passes give standard ONNX ops and may be exported; device passes run on a copy whose dims are
// constants and may make hn.* ops and posts. Passes read no environment and keep no state.
#ifndef HN_PASSES_H
#define HN_PASSES_H
#include "ops/ops.h"

typedef enum hn_pass_level { HN_PASS_PORTABLE, HN_PASS_DEVICE } hn_pass_level;

typedef struct hn_pass_ctx {
    hn_module *module;
    int changes; // what this pass did: counted by the pass
    // What a pass may do; set by the caller.
    bool freeze_overridable; // overridable weights may be folded
    size_t
        fold_limit_bytes; // a folded constant may be larger than what it replaces by this at most
    bool expand_storage;     // weights stored in 16 bits are made float32 once
    int int8_weight_max;     // of hn_backend; 0: any
    hn_value *const *pinned; // values that must survive by identity (calibration points), or NULL
    int pinned_count;
    void (*rule)(void *user, const char *name, bool fired); // see hn_pass_options
    void *user;
} hn_pass_ctx;
typedef hone_status (*hn_pass_fn)(hone_error *err, hn_pass_ctx *ctx);

typedef struct hn_pass {
    const char *name;
    hn_pass_level level;
    bool on_by_default;
    hn_pass_fn run;
    const char *doc;
} hn_pass;

const hn_pass *hn_pass_find(const char *name); // NULL: unknown
const hn_pass *hn_pass_table(size_t *out_count);

#define HN_FOLD_LIMIT_BYTES 4096

typedef struct hn_pass_options {
    bool freeze_overridable;
    bool verify;             // after each pass; always on in builds with assertions
    const char *disable;     // comma-separated names, or NULL
    size_t fold_limit_bytes; // 0: HN_FOLD_LIMIT_BYTES
    bool expand_storage;     // sessions: a Cast of a constant 16-bit float is folded at any size
    int int8_weight_max;     // of hn_backend; 0: any
    hn_value *const *pinned; // see hn_pass_ctx
    int pinned_count;
    void (*trace)(void *user, const hn_pass *pass, int changes, int64_t ns);
    // Each rewrite that is looked for, and again with `fired` when it has been done; may be NULL.
    void (*rule)(void *user, const char *name, bool fired);
    void *user;
} hn_pass_options;

// Why a card computes this Conv, MatMul or Gemm with integer weights in float; NULL: it does not.
const char *hn_qdq_card_refuses(const hn_node *node, const hn_tensor *weight);

// All default passes of a level to a fixed point (bounded rounds): infer, run, verify. The device
// level includes the portable one. options may be NULL. An unknown name in `disable` or `names` is
// HONE_ERR_USAGE.
hn_status hn_passes_run(hone_error *err, hn_module *module, hn_pass_level level,
                        const hn_pass_options *options);
// The named passes once, in order; names ends with NULL.
hn_status hn_passes_run_list(hone_error *err, hn_module *module, const char *const *names,
                             const hn_pass_options *options);
#endif
