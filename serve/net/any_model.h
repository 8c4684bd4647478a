/** @file any_model.h  What answers, of whatever kind the net is: of tokens (token_model.h) or of
 * pictures (image_model.h).
 */
#ifndef CT_ANY_MODEL_H
#define CT_ANY_MODEL_H

#include "serve/api/model.h"
#include "serve/net/deployed.h"
#include "serve/schedule/batch_cost.h"

typedef struct ct_any_model ct_any_model;

typedef struct ct_any_model_options {
    const char *name;              /* what clients call it                                  */
    const ct_tokenizer *tokenizer; /* of a net of tokens; borrowed. NULL: clients send ids  */
    int64_t n_token;               /* that rank 0's tokenizer has, where this rank has none  */
    const char *labels;            /* of a net of pictures, a file; NULL: classes have none */
    /* what messages call these two: the option, or the field of the net's file */
    const char *tokenizer_place, *labels_place;
} ct_any_model_options;

/** The net is borrowed. CT_ERR_CONFIG, CT_ERR_IO, CT_ERR_DATA, logged: an option does not fit it.
 */
ct_status ct_any_model_create(const ct_deployed *net, const ct_any_model_options *o,
                              ct_any_model **m_p);
/** As ct_token_model_accepts() and ct_token_model_swap(). */
ct_status ct_any_model_accepts(const ct_any_model *m, const ct_deployed *net);
void ct_any_model_swap(ct_any_model *m, const ct_deployed *net);
void ct_any_model_destroy(ct_any_model *m); /* NULL allowed */
const ct_served_model *ct_any_model_served(const ct_any_model *m);
/** The most tokens, or pictures, of a batch. */
int64_t ct_any_model_most(const ct_any_model *m);
ct_status ct_any_model_measure(ct_any_model *m, double limit_s, ct_batch_cost *cost);

#endif
