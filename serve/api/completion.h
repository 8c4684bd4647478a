/** @file completion.h  The texts of one request for completions, as the files share them that read
 * the request (completion.c), make a text of tokens (completion_text.c), and tell what came of it
 * (completion_reply.c, completion_logprobs.c).
 */
#ifndef CT_COMPLETION_H
#define CT_COMPLETION_H

#include <pthread.h>

#include "framework/base/json_writer.h"
#include "serve/api/transaction.h"

enum {
    CT_COMPLETION_STOPS = 4,
    CT_COMPLETION_TOP = 20 /* alternatives of a token */
};

typedef enum { CT_GOES_ON, CT_AT_STOP, CT_AT_LENGTH } ct_finish;

/** A token that was made, and its alternatives. */
typedef struct ct_made_token {
    ct_scored_id own, top[CT_COMPLETION_TOP];
    int n_top;
    int64_t offset; /* bytes of the text in front of it */
} ct_made_token;

/** One prompt and what follows it. */
typedef struct ct_choice {
    ct_completions *all;
    int index;
    ct_text text;         /* of the tokens that were made                           */
    size_t sent;          /* bytes of it that events have                           */
    int64_t n_sent_token; /* tokens whose logprobs events have                      */
    ct_made_token *token; /* [most_new], where logprobs are asked for               */
    int64_t n_made;
    double last_s; /* when the last token was made; 0: none was */
    ct_finish finish;
} ct_choice;

struct ct_completions {
    ct_transaction *x;
    bool chat, stream, include_usage, logprobs;
    int64_t n_top, most_new, created;
    ct_sampling how;
    char *stop[CT_COMPLETION_STOPS];
    int n_stop;
    int32_t end[2]; /* tokens that end a text; -1: none */
    ct_choice *choice;
    int n;
    char id[40];
    /* events, where they stream: */
    pthread_mutex_t lock;
    ct_text out;
    size_t pulled; /* bytes of out */
    int n_ended;   /* choices      */
    bool broken;   /* the last event says why there are no more */
};

/** What ct_work.next is: takes a token into the text of the choice, which is ctx. */
ct_status ct_completion_next(void *ctx, ct_work *w, const float *score, bool *ended_p);
/** Bytes of the text that no stop can take away any more, in whole characters. */
size_t ct_completion_certain(const ct_choice *c);

/** What ct_transaction.answer is: the reply that has all texts. */
void ct_completions_answer(ct_transaction *x);
/** Adds an event with what is certain by now, and at the end of the text the last one. From the
 *  dispatcher's thread. */
void ct_completion_tell(ct_choice *c);

/** The member "logprobs" of the tokens [from, end), in the form of the request's route; null where
 *  they are not asked for. */
void ct_completion_add_logprobs(const ct_choice *c, int64_t from, int64_t end, ct_json_writer *w);

#endif
