// SPDX-License-Identifier: Apache-2.0
// Umbrella of src/base: what every other module may include.
#ifndef HN_BASE_H
#define HN_BASE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include "hone/status.h"
#include "base/error.h"
#include "base/check.h"
#include "base/alloc.h"
#include "base/arena.h"
#include "base/vec.h"
#include "base/str.h"
#include "base/text.h"
#include "base/log.h"
#include "base/clock.h"
#include "base/digest.h"
#include "base/file.h"
#include "base/parallel.h"
#endif
