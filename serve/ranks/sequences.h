/** @file sequences.h  Sequences that grow on another rank, of a model that makes texts.
 *
 * Rank 0 has the table of that rank's pages (framework/net/pages.h), and says which ones a sequence
 * has. So it opens and closes sequences, and knows what the cache there has of a prompt, without
 * asking. What it opened and closed goes with the next message, in front of what that asks. The
 * other rank knows sequences by numbers, which are used again.
 *
 * One thread at a time uses what stands here, but for ct_far_sequences_peek().
 */
#ifndef CT_SEQUENCES_H
#define CT_SEQUENCES_H

#include "framework/base/text.h"
#include "serve/api/model.h"

/* ---- rank 0: those of one other rank */

typedef struct ct_far_sequences ct_far_sequences;

/** model: that rank's, with texts; borrowed. */
ct_status ct_far_sequences_create(const ct_served_model *model, ct_far_sequences **f_p);
void ct_far_sequences_destroy(ct_far_sequences *f); /* NULL allowed */
/** As open, close and peek of the model. */
ct_status ct_far_sequence_open(ct_far_sequences *f, const int32_t *id, int64_t n, int64_t capacity,
                               void **sequence_p, int64_t *kept_p);
void ct_far_sequence_close(ct_far_sequences *f, void *sequence);
int64_t ct_far_sequences_peek(ct_far_sequences *f, const int32_t *id, int64_t n);

/** Appends what was opened and closed and not told. */
void ct_far_sequences_tell(const ct_far_sequences *f, ct_text *to);
/** Appends that, and pieces of `grow`. Those that cannot grow any more are failed here. */
void ct_far_sequences_ask(const ct_far_sequences *f, ct_work_piece *piece, int n, ct_text *to);
/** One of these messages is on its way. */
void ct_far_sequences_told(ct_far_sequences *f);
/** What came out of the pieces; takes over data[size], which has their scores until the next time.
 *  CT_ERR_COMM, logged: the bytes are not of these pieces. */
ct_status ct_far_sequences_take_answer(ct_far_sequences *f, ct_work_piece *piece, int n, char *data,
                                       size_t size);
/** The other rank has other weights: sequences that it was told of have grown there again, nothing
 *  else that its cache had is found any more. */
void ct_far_sequences_renew(ct_far_sequences *f);

/* ---- the other rank */

typedef struct ct_near_sequences {
    const ct_served_model *model;
    void **sequence; /* by number; NULL: none, or it could not be opened */
    int64_t n;
} ct_near_sequences;

/** A message of ct_far_sequences_tell(). CT_ERR_COMM, logged: it is none. */
ct_status ct_near_sequences_hear(ct_near_sequences *s, const char *data, size_t size);
/** One of ct_far_sequences_ask(): appends the answer. Also the errors of `grow`. */
ct_status ct_near_sequences_grow(ct_near_sequences *s, const char *data, size_t size,
                                 ct_text *answer);
/** Closes all of them. */
void ct_near_sequences_end(ct_near_sequences *s);

#endif
