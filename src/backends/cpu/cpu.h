// SPDX-License-Identifier: Apache-2.0
// The CPU backend: oneDNN and own kernels. Opened through hn_backend_open("cpu").
#ifndef HN_CPU_H
#define HN_CPU_H
#include "backends/backend.h"

hone_status hn_cpu_backend_open(hone_error *err, int index, hn_backend **out_backend);
#endif
