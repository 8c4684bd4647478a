/** @file bytes.h  Messages between ranks of a server as bytes. Both ends are of one program, so
 * numbers go as they lie in memory: counts of 8 bytes, ids and floats of 4. A list has its length
 * in front.
 *
 *   works      kind, how many; of each: padding, then its ids, or its values  (work_bytes.h)
 *   …answer    of each: its row, or its values
 *   told       how many closed, their numbers; how many opened, of each: number, capacity, pages,
 *              the ids that are kept                                          (sequences.h)
 *   pieces     what is told, how many; of each: number, whether it wants scores, ids
 *   …answer    of each piece: whether it failed; of each that wants them: scores
 *   calls      of each: which one, what it says                               (tensor_group.h)
 *     open     number or -1, capacity, how many ids are kept, ids
 *     place    number, capacity, pages, ids that are kept
 *     close    number
 *     grow     pieces
 *     work     a block of works
 */
#ifndef CT_SERVE_BYTES_H
#define CT_SERVE_BYTES_H

#include <stdbool.h>

#include "framework/base/text.h"

/** What is still to be read of a message. */
typedef struct ct_bytes {
    const char *at;
    size_t left;
    bool bad; /* it ended too soon, or has what cannot be */
} ct_bytes;

/** Appends a number. What ran out of memory is told by to->failed, here and below. */
void ct_bytes_add_count(ct_text *to, int64_t v);
/** Appends n, and id[n]. */
void ct_bytes_add_ids(ct_text *to, const int32_t *id, int64_t n);
/** Appends the number of its bytes, and them; failed where that one has. */
void ct_bytes_add_block(ct_text *to, const ct_text *block);

/** n bytes, to `to`; none where the message is bad. */
void ct_bytes_take(ct_bytes *b, void *to, size_t n);
/** A number from 0 on, of at most as many things as the bytes that are left have, of `each`; 0
 * where the message is bad. */
int64_t ct_bytes_take_count(ct_bytes *b, size_t each);
/** n things of `each` bytes, where they lie; NULL where the message is bad. Those of 4 bytes lie as
 *  they must, if the message does and has no others of odd sizes. */
const void *ct_bytes_take_list(ct_bytes *b, int64_t n, size_t each);
/** CT_ERR_COMM, logged: the message is bad, or goes on. */
ct_status ct_bytes_check_end(const ct_bytes *b);

#endif
