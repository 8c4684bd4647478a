/** @file token_model.h  A net of tokens as what the server asks (serve/api/model.h).
 *
 * All requests of a batch run side by side in one pass (framework/net/packed.h), so what a request
 * gets does not depend on what ran beside it.
 *
 * A net that pools makes embeddings, of length 1. infer takes ids, sequences x tokens, by the name
 * of the net's Input. It gives the net's output by its name: sequences x columns where it pools,
 * else sequences x tokens x columns.
 */
#ifndef CT_TOKEN_MODEL_H
#define CT_TOKEN_MODEL_H

#include "framework/net/packed.h"
#include "serve/api/model.h"
#include "serve/net/deployed.h"
#include "serve/schedule/batch_cost.h"

typedef struct ct_token_model ct_token_model;

/** The net and the tokenizer (NULL: clients send ids) are borrowed. The net must have all ids of
 * the tokenizer. One with [CLS] and [SEP] has them put around a text that does not go on.
 * CT_ERR_NOMEM. */
ct_status ct_token_model_create(ct_packed_net *net, const ct_tokenizer *tokenizer, const char *name,
                                ct_token_model **m_p);
/** Before it answers: texts go on by n tokens that another rank's tokenizer has. Where the net does
 *  not score so many, it makes none, as with a tokenizer of its own. */
void ct_token_model_score(ct_token_model *m, int64_t n);
/** CT_ERR_CONFIG, logged: the net's ids, rows, lengths, or names of input and output are others. */
ct_status ct_token_model_accepts(const ct_token_model *m, const ct_packed_net *net);
/** Runs on that net from now on, the same with other weights, which it accepts; while no batch
 * runs. The net before may then go. */
void ct_token_model_swap(ct_token_model *m, ct_packed_net *net);
void ct_token_model_destroy(ct_token_model *m); /* NULL allowed */
const ct_served_model *ct_token_model_served(const ct_token_model *m);
/** Runs batches of growing size for about limit_s seconds, longer where two of each take longer,
 * and says how long they took. division: of the net, whose ranks make the same runs, by the clock
 * of rank 0. NULL: this one alone. */
ct_status ct_token_model_measure(ct_token_model *m, double limit_s,
                                 const ct_deployed_division *division, ct_batch_cost *cost);

#endif
