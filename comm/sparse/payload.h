/** @file payload.h  How some elements of a vector travel: the forms of a payload.
 *
 * A payload is a head of CT_PAYLOAD_HEAD bytes (its size, what it holds, the vector's length, the
 * number of entries) and one of
 *
 *   PAIRS   index u32, value f32: 8 bytes an entry, exact
 *   HALF    in blocks of 65536 elements: a count u32 for each block, then index u16 and value bf16
 *           of all entries: 4 bytes an entry
 *   MEAN    one f32 for all, and the indices: u32, or u16 in blocks as above, whichever is less
 *
 * Indices are relative to the vector's start, which may be a slice of a longer one. Where a plain
 * vector of the values' type would be no larger than its entries, it travels instead: dense. What
 * comes in is another rank's word and not believed: everything is checked against the bytes that
 * are there, CT_ERR_COMM where it does not hold, and nothing outside of the buffers is touched.
 * Byte order is the machine's.
 */
#ifndef CT_PAYLOAD_H
#define CT_PAYLOAD_H

#include <stddef.h>

#include "comm/sparse/sparse.h"

typedef enum { CT_PAYLOAD_PAIRS, CT_PAYLOAD_HALF, CT_PAYLOAD_MEAN } ct_payload_form;

enum { CT_PAYLOAD_HEAD = 32, CT_PAYLOAD_BLOCK = 65536 };

/** "pairs", "half", "mean". */
const char *ct_payload_name(ct_payload_form form);
/** Bytes of the payload of `count` of n elements, exactly; grows with count, so the bytes of the
 *  most entries are a bound. */
size_t ct_payload_bytes(ct_payload_form form, int64_t n, int64_t count);

/** Makes s what will arrive: HALF rounds the values to bf16, MEAN replaces them by their mean. What
 *  is lost is dropped there (of s->n elements), so that the sum stays. */
void ct_payload_round(ct_payload_form form, ct_sparse *s, const ct_residual_return *lost);

/** v as HALF carries it. */
float ct_payload_half(float v);

/** Writes the entries first .. last - 1 of s, which lie in [start, start + n), as a payload of n
 *  elements: 8-byte aligned, room for ct_payload_bytes(). Values must have been rounded: those of
 * MEAN are all equal, those of HALF are bf16. Returns its bytes. */
size_t ct_payload_pack_part(ct_payload_form form, const ct_sparse *s, int64_t first, int64_t last,
                            int64_t start, int64_t n, void *payload);
/** All of s. */
size_t ct_payload_pack(ct_payload_form form, const ct_sparse *s, void *payload);
/** What is not 0 of v[n], as PAIRS; dense where that is less. scratch grows; on entry its count is
 *  what a simulation, which has no v, takes for the number. CT_ERR_NOMEM. */
ct_status ct_payload_pack_vector(const float *v, int64_t n, ct_sparse *scratch, void *payload,
                                 size_t *bytes_p);
/** The entries of a payload of n elements; zeros of dense ones are left out. CT_ERR_COMM,
 *  CT_ERR_NOMEM; what out holds is then undefined. A simulation leaves out->count as it is. */
ct_status ct_payload_unpack(const void *payload, size_t bytes, int64_t n, ct_sparse *out);

/** What a payload says of itself, its indices excepted, holds. CT_ERR_COMM. */
ct_status ct_payload_check(const void *payload, size_t bytes, int64_t n);

/** dense[n] += all payloads, in this order for each element, whatever the number of threads; each
 *  stretch of dense is in the cache while all payloads are added to it. CT_ERR_COMM: dense is then
 *  undefined. */
ct_status ct_payload_add_all(const void *const *payload, const size_t *bytes, int n_payload,
                             float *dense, int64_t n, int n_thread);
/** The same onto zeros, whatever dense[n] held. *filled_p: elements that are not 0 now (NULL: not
 *  asked for). */
ct_status ct_payload_sum_all(const void *const *payload, const size_t *bytes, int n_payload,
                             float *dense, int64_t n, int n_thread, int64_t *filled_p);

#endif
