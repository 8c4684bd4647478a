/** @file sampler.h  The next token, from a net's scores of all of them. */
#ifndef CT_SAMPLER_H
#define CT_SAMPLER_H

#include "framework/text/tokenizer.h"

/** How a token is chosen. */
typedef struct ct_sampling {
    double temperature; /* scores are divided by it; 0: the largest one                      */
    double top_p;       /* (0, 1]: of the most probable ones that have this share together   */
    uint64_t seed;
} ct_sampling;

/** A token, and the logarithm of its probability where nothing is divided or left out. */
typedef struct ct_scored_id {
    int32_t id;
    double logprob;
} ct_scored_id;

typedef struct ct_sampler ct_sampler;

/** Chooses ids that the tokenizer has; both are used by one thread at a time. CT_ERR_NOMEM. */
ct_status ct_sampler_create(const ct_tokenizer *t, ct_sampler **s_p);
void ct_sampler_destroy(ct_sampler *s); /* NULL allowed */

/** From score[ct_tokenizer_size()]. What is drawn depends on the seed, on `number`, of the new
 * token in its text, and on the scores alone; of equal ones the lowest id wins. CT_ERR_DATA, not
 * logged: the scores are no numbers, or infinite. */
ct_status ct_sampler_choose(ct_sampler *s, const ct_sampling *how, int64_t number,
                            const float *score, int32_t *id_p);
/** The logprob of `id`, and the n most probable, best first; fewer where there are no more: *n_p.
 */
double ct_sampler_logprobs(const ct_sampler *s, const float *score, int32_t id, int n,
                           ct_scored_id *best, int *n_p);

#endif
