/** @file sign.h  One bit for each element of a vector. Private to comm/.
 *
 * A vector is cut into blocks of CT_SIGN_BLOCK elements; a bit says whether an element is below
 * zero, and two numbers a block say for what it stands. They are the mean of the elements that are
 * not, and of those that are. That is the nearest that two numbers can come. The blocks are dealt
 * to `parts`, nearly equal; a part's payload is a head of CT_SIGN_HEAD bytes (its size, its number
 * of elements) and its blocks. The payloads of all parts lie one after the other. What comes in is
 * not believed: CT_ERR_COMM where head and bytes do not fit, or a mean is not finite.
 */
#ifndef CT_SIGN_H
#define CT_SIGN_H

#include <stddef.h>

#include "comm/codec/select.h"

enum { CT_SIGN_BLOCK = 1024, CT_SIGN_HEAD = 16, CT_SIGN_BLOCK_BYTES = CT_SIGN_BLOCK / 8 + 8 };

typedef struct ct_sign_cut {
    int64_t n; /* elements */
    int parts;
} ct_sign_cut;

/** Elements [*first_p, *first_p + *n_p) are part j. */
void ct_sign_part(const ct_sign_cut *c, int j, int64_t *first_p, int64_t *n_p);
/** Of the payload of so many elements. */
size_t ct_sign_bytes(int64_t n);
/** Where the payload of part j begins among all; j == parts: the bytes of all. */
size_t ct_sign_at(const ct_sign_cut *c, int j);

/** The head of a payload of n elements. */
void ct_sign_head(void *payload, int64_t n);
/** What a payload says of itself holds; its means are not looked at. CT_ERR_COMM. */
ct_status ct_sign_check(const void *payload, size_t bytes, int64_t n);
/** The update of *a, whose V has c->n elements, and of all parts but `skip` (-1: none) the
 * payloads; what they hold is taken out of V. payload: 8-byte aligned. CT_ERR_DIVERGED where V is
 * no longer finite, that of part `skip` not looked at. */
ct_status ct_sign_encode(const ct_sign_cut *c, const ct_momentum_correction *a, int skip,
                         void *payload);
/** The payload of v[n], which it leaves v. CT_ERR_DIVERGED. */
ct_status ct_sign_take(float *v, int64_t n, int n_thread, void *payload);
/** v[n] += the payload. CT_ERR_COMM. */
ct_status ct_sign_add(const void *payload, size_t bytes, float *v, int64_t n, int n_thread);
/** v[n] = the sum of the payloads, all of n elements, in this order whatever the number of threads.
 *  CT_ERR_COMM. */
ct_status ct_sign_sum(const void *const *payload, const size_t *bytes, int n_payload, float *v,
                      int64_t n, int n_thread);

#endif
