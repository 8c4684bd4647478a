/** @file served_fake.h  A model for tests of the server: its answers follow from what it is asked.
 *
 * Texts become their bytes, of which '!' has no id and '~' is left out. An embedding of size 4 has
 * the sum of its ids in its place (number of ids) mod 4, and is made of unit length: so 1 there and
 * 0 elsewhere. infer takes "x" (N x 3, FP32) and "ids" (N x T, whole); "sum" is N numbers, the sums
 * of rows of x and of ids; "twice" is N x 3.
 *
 * One that makes texts has any tokenizer, and scores the next token by the last one and its place.
 */
#ifndef CT_SERVED_FAKE_H
#define CT_SERVED_FAKE_H

#include "serve/api/dispatch.h"

typedef struct served_fake {
    ct_served_model model;
    ct_dispatch *dispatch;
    double token_s;                /* it sleeps so long for each token                    */
    bool fails;                    /* its next batch fails                                */
    int64_t n_embedded;            /* requests so far, by the dispatcher's thread         */
    int64_t samples;               /* that the last infer said it has                     */
    const ct_tokenizer *tokenizer; /* borrowed; NULL: it makes no texts                       */
    float *score;                  /* of the sequences of a batch                             */
} served_fake;

enum { FAKE_SIZE = 4, FAKE_LENGTH = 64, FAKE_QUEUE = 8, FAKE_SEQUENCES = 4, FAKE_CONTEXT = 48 };

/** A dispatcher with a queue of FAKE_QUEUE and batches of at most 128 tokens, not yet started. */
void served_fake_dispatch(const ct_served_model *model, ct_dispatch **d_p);
/** One that has such a dispatcher. */
void served_fake_open(served_fake *fake);
/** One that makes texts, up to FAKE_CONTEXT tokens with their prompts, and nothing else. */
void served_fake_open_texts(served_fake *fake, const ct_tokenizer *t);
void served_fake_close(served_fake *fake);

#endif
