// SPDX-License-Identifier: Apache-2.0
// A keyed 128-bit digest at memory speed, for telling large contents apart.
//
// Not a cryptographic hash: what makes collisions unlikely, by accident and by intent, is that the
// key is random and nobody who makes contents knows it. Digests of different keys do not compare.
#ifndef HN_BASE_DIGEST_H
#define HN_BASE_DIGEST_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HN_DIGEST_KEY_WORDS 16
typedef struct hn_digest_key {
    uint64_t word[HN_DIGEST_KEY_WORDS];
} hn_digest_key;

typedef struct hn_digest {
    uint64_t word[2];
} hn_digest;

// A key from 32 bytes of secret.
void hn_digest_key_from(const unsigned char secret[32], hn_digest_key *out_key);
// 32 bytes that nobody can guess.
void hn_digest_secret(unsigned char out_secret[32]);
hn_digest hn_digest_bytes(const hn_digest_key *key, const void *data, size_t bytes);
static inline bool hn_digest_equal(hn_digest a, hn_digest b) {
    return a.word[0] == b.word[0] && a.word[1] == b.word[1];
}
#endif
