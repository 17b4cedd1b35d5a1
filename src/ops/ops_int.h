// SPDX-License-Identifier: Apache-2.0
// Declarations of the functions that ops.def names, by family. A family with many of them has a
// header of its own, included here.
#ifndef HN_OPS_INT_H
#define HN_OPS_INT_H
#include "ops/ops.h"

#include "ops/control.h"
#include "ops/elementwise.h"
#include "ops/grad.h"
#include "ops/move.h"
#include "ops/random.h"
#include "ops/reduce.h"
#include "ops/shape.h"
#include "ops/signal.h"

// ---- conv.c, pool.c, matmul.c, norm.c, rnn.c, resize.c, quant.c and their internal ops ----
#include "ops/nn_ops.h"

// ---- internal.c ----

#endif
