// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: exports of Nsight Compute.
#include <math.h>
#include <stdlib.h>
#include "probe/ncu.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    hone_error err = {0};
    hn_ncu_report report;
    if (hn_ncu_parse(&err, "fuzz", (const char *)data, size, &report) != HONE_OK) {
        if (!err.text[0]) abort();
        return 0;
    }
    for (size_t k = 0; k < report.kernels.count; k++) {
        const hn_ncu_kernel *kernel = &report.kernels.data[k];
        if (isinf(hn_ncu_duration_ns(kernel)) || kernel->grid_blocks < 0) abort();
        (void)hn_ncu_bound_by(kernel);
        for (size_t m = 0; m < kernel->metrics.count; m++)
            if (isinf(kernel->metrics.data[m].value) || !kernel->metrics.data[m].name) abort();
    }
    hn_ncu_free(&report);
    return 0;
}
