// SPDX-License-Identifier: Apache-2.0
// What text_print.c and text_parse.c share: content of large constants.
#ifndef HN_IR_TEXT_INT_H
#define HN_IR_TEXT_INT_H
#include "ir/graph.h"

// Constants of more elements are written as a hash (strings and complex numbers always in full).
#define TEXT_FULL_ELEMENTS 64

// Fills a numeric tensor of more than TEXT_FULL_ELEMENTS elements from a seed. The seed can be read
// off the content again, so that printing a parsed module gives the text it was parsed from.
void hn_text_fill(hn_tensor *tensor, uint32_t seed);
// The seed whose fill gives this content, else a hash of the content.
uint32_t hn_text_seed(const hn_tensor *tensor);
// Element as raw bits (up to 64) and back.
uint64_t hn_text_get_bits(const hn_tensor *tensor, int64_t index);
void hn_text_set_bits(hn_tensor *tensor, int64_t index, uint64_t bits);
#endif
