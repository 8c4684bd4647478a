/** @file capacity.h  `cortado serve --check`: what the server would take of memory, and how fast it
 * would be.
 *
 * The object of --json, whose members the rows of the table have, too:
 *
 *     model, makes                      "completions", "embeddings", "rows of tokens", "classes of
 *                                       pictures" or "rows of pictures", whose tokens are pictures
 *     weight_bytes                      as they lie in memory
 *     activation_bytes                  values and buffers, planned for a batch of the budget
 *     planned_bytes, planned_tokens     … and for the largest batch
 *     kv_bytes, kv_tokens               keys and values, with all pages in use
 *     attention_bytes                   what attention works in where texts go on, beside them
 *     tokenizer                         its file, or null
 *     budget_tokens, budget_s, budget_tokens_s
 *     token_s                           a batch of one token
 *     longest_tokens
 *     ranks
 */
#ifndef CT_CAPACITY_H
#define CT_CAPACITY_H

#include "serve/api/model.h"
#include "serve/net/deployed.h"
#include "serve/schedule/scheduler.h"

/** All that is opened, and what batches cost; borrowed. */
typedef struct ct_capacity {
    const ct_deployed_options *files;
    const ct_deployed *net;
    const ct_served_model *model;
    const ct_tokenizer *tokenizer; /* NULL: none */
    const char *chat;              /* the template of chats */
    const ct_scheduler_options *queue;
    const ct_batch_cost *cost;
    int ranks; /* each has a net of its own */
} ct_capacity;

/** Prints the table to standard output and, where json is not NULL, an object into that file; "-":
 *  it goes to standard output, in place of the table. CT_ERR_IO. */
ct_status ct_capacity_tell(const ct_capacity *c, const char *json);

#endif
