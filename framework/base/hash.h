/** @file hash.h  XXH64, a fast 64-bit content hash, fed in pieces.
 *
 * Guards files against damage, not against malice. The algorithm is Yann Collet's, seed 0
 * (https://github.com/Cyan4973/xxHash, doc/xxhash_spec.md), so `xxhsum -H1` shows the same number.
 */
#ifndef CT_HASH_H
#define CT_HASH_H

#include <stddef.h>
#include <stdint.h>

typedef struct ct_hash {
    uint64_t lane[4];
    uint64_t total; /* bytes so far */
    unsigned char rest[32];
    size_t n_rest;
} ct_hash;

void ct_hash_init(ct_hash *h);
void ct_hash_add(ct_hash *h, const void *data, size_t bytes);
/** The hash of what was added; h may be added to further. */
uint64_t ct_hash_value(const ct_hash *h);

#endif
