// SPDX-License-Identifier: Apache-2.0
// Runs whole modules node by node by the references of the op table, If included: the meaning that
// passes have to keep.
#ifndef HN_TEST_MODULE_RUN_H
#define HN_TEST_MODULE_RUN_H
#include "ops/ops.h"

// inputs by position of module->main->inputs; outputs are allocated (the caller frees them).
hn_status test_module_run(hone_error *err, const hn_module *module, const hn_tensor *inputs,
                          hn_tensor *outputs);
// Random content for every input of the main graph; free symbols are bound to `size` (times their
// divisor, within their range).
hn_status test_module_inputs(hone_error *err, const hn_module *module, uint64_t seed, int64_t size,
                             hn_tensor *out_inputs);
void test_tensors_free(hn_tensor *tensors, size_t count);
// Largest |a-b| / (max|a| of the tensor * rtol + atol); above 1: they differ. Integers: exact,
// except 8-bit ones, which may differ by one step (counted as 1). Infinite where types or shapes
// differ or NaNs do not agree.
double test_tensors_distance(const hn_tensor *a, const hn_tensor *b, double rtol, double atol);
#endif
