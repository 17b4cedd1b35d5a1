// SPDX-License-Identifier: Apache-2.0
// A backend that has no kernel of its own: every node runs by its reference.
//
// It is the template for a new backend (copy the folder, fill in the slots) and the test double:
// plans, layouts and memory can be tested without a fast path in the way.
#ifndef HN_NULL_H
#define HN_NULL_H
#include "backends/backend.h"

hone_status hn_null_backend_open(hone_error *err, int index, hn_backend **out_backend);
#endif
