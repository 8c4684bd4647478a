#include "framework/base/hash.h"

#include <string.h>

#define PRIME_1 0x9E3779B185EBCA87u
#define PRIME_2 0xC2B2AE3D27D4EB4Fu
#define PRIME_3 0x165667B19E3779F9u
#define PRIME_4 0x85EBCA77C2B2AE63u
#define PRIME_5 0x27D4EB2F165667C5u

static inline uint64_t rotate(uint64_t x, int by)
{
    return (x << by) | (x >> (64 - by));
}

/* Little-endian words whatever the machine; compilers make one load of it. */
static inline uint64_t word_64(const unsigned char *p)
{
    uint64_t v = 0;

    for (int i = 7; i >= 0; i--) v = (v << 8) | p[i];
    return v;
}

static inline uint64_t word_32(const unsigned char *p)
{
    return (uint64_t)p[0] | ((uint64_t)p[1] << 8) | ((uint64_t)p[2] << 16) | ((uint64_t)p[3] << 24);
}

static inline uint64_t mix(uint64_t lane, uint64_t word)
{
    return rotate(lane + word * PRIME_2, 31) * PRIME_1;
}

static void add_stripes(uint64_t lane[4], const unsigned char *p, size_t n_stripe)
{
    uint64_t a = lane[0], b = lane[1], c = lane[2], d = lane[3];

    for (size_t i = 0; i < n_stripe; i++, p += 32) {
        a = mix(a, word_64(p));
        b = mix(b, word_64(p + 8));
        c = mix(c, word_64(p + 16));
        d = mix(d, word_64(p + 24));
    }
    lane[0] = a;
    lane[1] = b;
    lane[2] = c;
    lane[3] = d;
}

void ct_hash_init(ct_hash *h)
{
    memset(h, 0, sizeof(*h));
    h->lane[0] = PRIME_1 + PRIME_2;
    h->lane[1] = PRIME_2;
    h->lane[3] = 0 - PRIME_1;
}

void ct_hash_add(ct_hash *h, const void *data, size_t bytes)
{
    const unsigned char *p = data;

    if (bytes == 0) return;
    h->total += bytes;
    if (h->n_rest > 0) {
        size_t take = sizeof(h->rest) - h->n_rest;

        if (take > bytes) take = bytes;
        memcpy(h->rest + h->n_rest, p, take);
        h->n_rest += take;
        p += take;
        bytes -= take;
        if (h->n_rest < sizeof(h->rest)) return;
        add_stripes(h->lane, h->rest, 1);
        h->n_rest = 0;
    }
    add_stripes(h->lane, p, bytes / 32);
    h->n_rest = bytes % 32;
    memcpy(h->rest, p + (bytes - h->n_rest), h->n_rest);
}

uint64_t ct_hash_value(const ct_hash *h)
{
    const unsigned char *p = h->rest;
    size_t left = h->n_rest;
    uint64_t v = PRIME_5;

    if (h->total >= 32) {
        v = rotate(h->lane[0], 1) + rotate(h->lane[1], 7) + rotate(h->lane[2], 12) +
            rotate(h->lane[3], 18);
        for (int i = 0; i < 4; i++) v = (v ^ mix(0, h->lane[i])) * PRIME_1 + PRIME_4;
    }
    v += h->total;
    for (; left >= 8; left -= 8, p += 8) v = rotate(v ^ mix(0, word_64(p)), 27) * PRIME_1 + PRIME_4;
    if (left >= 4) {
        v = rotate(v ^ (word_32(p) * PRIME_1), 23) * PRIME_2 + PRIME_3;
        left -= 4;
        p += 4;
    }
    for (; left > 0; left--, p++) v = rotate(v ^ (*p * PRIME_5), 11) * PRIME_1;
    v = (v ^ (v >> 33)) * PRIME_2;
    v = (v ^ (v >> 29)) * PRIME_3;
    return v ^ (v >> 32);
}
