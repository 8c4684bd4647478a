/** @file select_key.h  By what elements are selected. Private to comm/.
 *
 * A magnitude's 31 bits order floats like integers: they are the key of an element, or with one
 * sign only, the key of elements of the other sign is 0.
 */
#ifndef CT_SELECT_KEY_H
#define CT_SELECT_KEY_H

#include <stdint.h>
#include <string.h>

#include "framework/base/simd.h"

enum {
    CT_SELECT_BLOCK = 512,    /* elements: 2 KB each of g, U and V */
    CT_SELECT_GROUP = 64,     /* elements marked in a word         */
    CT_SELECT_PROBES = 8,     /* thresholds counted at once        */
    CT_SELECT_BINS = 1 << 12, /* of a key's upper 12 bits          */
    CT_SELECT_BIN_SHIFT = 31 - 12,
    CT_SELECT_FIRST_BAD = 0x7f800000 /* infinity; NaNs are above          */
};

/* The key of bits b is max((int)((b ^ flip) & keep), 0). */
typedef struct ct_select_key {
    uint32_t flip, keep;
} ct_select_key;

CT_HD static inline ct_select_key ct_select_key_of_sign(int sign)
{
    ct_select_key key = { (sign < 0) ? 0x80000000u : 0, (sign == 0) ? 0x7fffffffu : 0xffffffffu };

    return key;
}

CT_HD static inline int32_t ct_select_bits(float f)
{
    int32_t bits;

    memcpy(&bits, &f, sizeof(bits));
    return bits;
}

CT_HD static inline float ct_select_float(int32_t bits)
{
    float f;

    memcpy(&f, &bits, sizeof(f));
    return f;
}

CT_HD static inline int32_t ct_select_key_of(float f, ct_select_key k)
{
    int32_t x = (int32_t)(((uint32_t)ct_select_bits(f) ^ k.flip) & k.keep);

    return (x > 0) ? x : 0;
}

#endif
