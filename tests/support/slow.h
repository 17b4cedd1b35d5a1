// SPDX-License-Identifier: Apache-2.0
// How many times longer than on its own instrumented code may take: a factor for limits in seconds, and
// a sign to do fewer rounds where it is above 1.
#ifndef HN_TEST_SLOW_H
#define HN_TEST_SLOW_H
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TEST_SLOW 20
#else
#define TEST_SLOW 1
#endif
#endif
