// SPDX-License-Identifier: Apache-2.0
// What every test includes: cmocka with what it needs before it, and base.
#ifndef HN_TEST_H
#define HN_TEST_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "base/base.h"
#endif
