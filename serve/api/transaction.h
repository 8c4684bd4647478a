/** @file transaction.h  A request and its reply, without the network.
 *
 *     ct_transaction_meet()    looks at its header: what it says is refused, or the body is wanted
 *     ct_transaction_begin()   reads the body: the reply is ready, or there is work to do
 *     ct_transaction_submit()  queues the work; refused, the reply is ready
 *     done                  from the dispatcher's thread
 *     ct_transaction_answer()  makes the reply of what came out
 *
 * Errors of /v2 are those of KServe, {"error":"…"}; all others OpenAI's,
 * {"error":{"message":…,"type":…,"param":…,"code":…}}.
 */
#ifndef CT_TRANSACTION_H
#define CT_TRANSACTION_H

#include <jansson.h>
#include <stdatomic.h>

#include "framework/text/sampler.h"
#include "serve/api/chat_template.h"
#include "serve/api/decoder.h"
#include "serve/api/dispatch.h"
#include "serve/api/keys.h"

/** Of the query: ?name=value. */
typedef struct ct_http_argument {
    const char *name, *value; /* value NULL: it has none */
} ct_http_argument;

enum { CT_HTTP_ARGUMENTS = 8 };

typedef struct ct_http_request {
    const char *method, *path; /* the path without its query, unescaped              */
    const char *authorization; /* headers; NULL: none                                */
    const char *json_length;   /* Inference-Header-Content-Length                    */
    const char *body;
    size_t size;
    const char *type;                             /* Content-Type                  */
    ct_http_argument argument[CT_HTTP_ARGUMENTS]; /* the first ones of the query   */
    int n_argument;
} ct_http_request;

typedef struct ct_http_reply {
    int status;
    const char *type, *allow; /* Content-Type; methods, of a 405                            */
    ct_text body;
    int64_t retry_s;     /* Retry-After; 0: none                                            */
    int64_t json_length; /* bytes of JSON before binary data; -1: no binary data            */
} ct_http_reply;

typedef struct ct_api_options {
    const ct_served_model *model; /* borrowed                                          */
    const ct_api_keys *keys;      /* NULL: none asked for                              */
    const char *version;          /* of the program                                    */
    double deadline_s;            /* of a request; INFINITY: none                      */
    int most_inputs;              /* texts of one request                              */
    ct_chat_template chat;        /* of messages                                       */
    bool deterministic;           /* requests without a seed have one and the same     */
    const char *no_texts;         /* why it makes none though its net might; or NULL   */
} ct_api_options;

typedef struct ct_api ct_api;

/** The dispatcher is borrowed. */
ct_status ct_api_create(const ct_api_options *options, ct_dispatch *d, ct_api **api_p);
void ct_api_destroy(ct_api *api); /* NULL allowed */
/** Not ready from now on: new work gets 503. What was admitted is answered. */
void ct_api_drain(ct_api *api);

/** Outputs of an infer that the client wants, and how. */
typedef struct ct_wanted_output {
    int of; /* the model's */
    bool binary;
} ct_wanted_output;

/** The texts of a request for completions. */
typedef struct ct_completions ct_completions;

/** The pictures of a request for classes. */
typedef struct ct_classify ct_classify;

typedef struct ct_transaction ct_transaction;
struct ct_transaction {
    ct_api *api;
    ct_http_request request; /* borrowed */
    ct_http_reply reply;
    /* ---- of the routes */
    int route;
    double start_s;
    ct_work_set set;
    json_t *root; /* what the body says, until it is read        */
    char *id;     /* of an infer, to be said in its reply; NULL: none */
    bool base64;  /* embeddings as such */
    ct_wanted_output *wanted;
    int n_wanted;
    void (*answer)(ct_transaction *x);
    ct_completions *completions; /* NULL: none */
    ct_classify *classify;       /* likewise   */
    /** What makes its works ready for the model, and takes long; from a decoder's thread. False:
     * the reply is an error. NULL: they are ready. */
    bool (*prepare)(ct_transaction *x);
    ct_decoder_job job;
    double submit_s;
    atomic_bool unwanted; /* cancelled before it went into the queue */
    /** Of a reply that comes in events: there is a new one. From the dispatcher's thread, with no
     *  lock held. Set by who pulls; takes set.ctx. */
    void (*wake)(void *ctx);
};

/** One that has no request yet. */
void ct_transaction_init(ct_transaction *x, ct_api *api);
/** Method, path and headers of its request are there. True: refused, the reply is ready: the route
 *  is none, or the key; or the queue has no room. */
bool ct_transaction_meet(ct_transaction *x);
/** Behind ct_transaction_meet(): the body, set.done and set.ctx are there. True: the reply is
 * ready. The body and the headers of the request may go after it, its method and path may not. */
bool ct_transaction_begin(ct_transaction *x);
/** True: refused, the reply is ready. One that takes long to read may be refused later, at `done`:
 *  then, too, ct_transaction.reply is ready. */
bool ct_transaction_submit(ct_transaction *x);
/** Nobody waits for the reply: `done` comes sooner. */
void ct_transaction_cancel(ct_transaction *x);
void ct_transaction_answer(ct_transaction *x);
/** After submit, at the first `wake` or `done`: whether the reply is 200 and comes in events, of
 *  reply.type; else ct_transaction_answer() makes it, after `done`. */
bool ct_transaction_streams(ct_transaction *x);
/** Up to `most` bytes of the events that are there; 0: none now, and none ever once `done` came. */
size_t ct_transaction_pull(ct_transaction *x, char *to, size_t most);
/** After `done`, once all was pulled: where the work did not end as it should, there is a last
 * event that says so. */
void ct_transaction_end_events(ct_transaction *x);
/** 413, as for a body that is larger than `most` bytes. */
void ct_transaction_refuse_body(ct_transaction *x, size_t most);
/** Counts the reply, and frees what the transaction has. */
void ct_transaction_end(ct_transaction *x);

/* ---- for the routes */

const ct_api_options *ct_transaction_options(const ct_transaction *x);
/** Chooses tokens of what grows on that replica, from its thread; only where the model has a
 * tokenizer. */
ct_sampler *ct_transaction_sampler(const ct_transaction *x, int replica);
/** A token was made just now. *last_s: when the one before it was, 0: there was none; set to now.
 */
void ct_transaction_count_token(ct_transaction *x, double *last_s);
/** Nobody waits for it any more, or its time is over: what takes long is left out. Its outcome says
 * so. */
bool ct_transaction_has_ended(ct_transaction *x);
/** The reply is an error. param: the field, or NULL; code: OpenAI's word for it, or NULL. */
void ct_transaction_fail(ct_transaction *x, int status, const char *param, const char *code,
                         const char *fmt, ...) __attribute__((format(printf, 5, 6)));
/** The reply is JSON, of the body as far as it is written; 200. */
void ct_transaction_give_json(ct_transaction *x);
/** Parses size bytes into x->root, an object; else the reply is 400. */
bool ct_transaction_read_json(ct_transaction *x, const char *text, size_t size);
/** True where every member of the object is in `known`, which ends with NULL; else 400. NULL has no
 *  members. where: what stands in front of their names in messages, "parameters." for example. */
bool ct_transaction_check_members(ct_transaction *x, const json_t *object, const char *where,
                                  const char *const *known);
/** Room for n works; else 500. */
bool ct_transaction_make_works(ct_transaction *x, int n);

/** POST /v1/embeddings and POST /v2/models/NAME/infer: the work of a request. */
void ct_embeddings_read(ct_transaction *x);
void ct_infer_read(ct_transaction *x);
/** POST /v1/completions and /v1/chat/completions: texts that the model goes on with, token by
 * token, in one reply or as events (SSE). */
void ct_completion_read(ct_transaction *x);
void ct_chat_completion_read(ct_transaction *x);
void ct_completions_destroy(ct_completions *c); /* NULL allowed */
/** POST /classify: the most probable classes of pictures. */
void ct_classify_read(ct_transaction *x);
size_t ct_classify_bytes(const ct_classify *c);
void ct_classify_destroy(ct_classify *c); /* NULL allowed */
/** GET /v2/models/NAME */
void ct_infer_metadata(ct_transaction *x);
/** GET /: a page that tries the model in a browser. */
void ct_page_give(ct_transaction *x);

#endif
