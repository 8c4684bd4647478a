/** @file model.h  What answers requests: a net behind a few functions, and what is known of it.
 *
 * The server knows no nets. It gives the model the requests of one batch at a time, from one
 * thread, and the model fills in what they asked for. Tests give it a model of their own.
 */
#ifndef CT_SERVED_MODEL_H
#define CT_SERVED_MODEL_H

#include <stdbool.h>

#include "framework/text/tokenizer.h"

#define CT_SERVED_DIMS 8

/** An input or output by its name, as KServe's metadata has it. */
typedef struct ct_served_blob {
    const char *name;
    bool whole;   /* INT32: whole numbers, as ids are; else FP32             */
    int64_t n_id; /* those are 0 to n_id - 1; 0: any                         */
    int n_dim;
    int64_t dim[CT_SERVED_DIMS];  /* -1: varies                                              */
    int64_t most[CT_SERVED_DIMS]; /* of an input: what it may be at most                     */
} ct_served_blob;

/** Values of one request's input or output. Whole numbers are below 2^24, so floats hold them. */
typedef struct ct_served_values {
    int n_dim;
    int64_t dim[CT_SERVED_DIMS];
    float *data; /* malloc()ed, of the request */
} ct_served_values;

typedef enum { CT_WORK_EMBED, CT_WORK_INFER, CT_WORK_COMPLETE } ct_work_kind;

/** What one request wants of a batch. */
typedef struct ct_work ct_work;
struct ct_work {
    ct_work_kind kind;
    int64_t tokens;  /* what it counts in a batch                                            */
    int64_t samples; /* of one length each, that these are; 0: they are one                  */
    int64_t padding; /* tokens beside these that are computed, and mean nothing              */
    ct_ids ids;      /* EMBED; COMPLETE: the prompt, and the tokens that were made            */
    float *row;      /* EMBED: embedding_size numbers, of unit length                         */
    ct_served_values *input, *output; /* INFER: in the order of the model's                   */
    /* COMPLETE */
    int64_t most_new; /* tokens to make, at most                                             */
    int64_t cached;   /* tokens of the prompt that the cache had                             */
    int replica;      /* that it grows on                                                    */
    /** The scores of the next token: adds it to ids. *ended_p: the text ends with it. An error: it
     *  fails. From the thread of its replica; no other of that replica runs meanwhile. */
    ct_status (*next)(void *ctx, ct_work *w, const float *score, bool *ended_p);
    void *ctx;
    void *sequence; /* the model's, from its first chunk on                                  */
};

/** The next tokens of a sequence that grows. */
typedef struct ct_work_piece {
    void *sequence;
    const int32_t *id;
    int64_t n;
    bool wants;         /* the scores behind its last token                                  */
    const float *score; /* they, n_score, until the model runs again                          */
    bool failed;        /* this one alone could not grow                                      */
} ct_work_piece;

/** Where a sequence lies whose pages another rank gives. */
typedef struct ct_sequence_place {
    const int32_t *page; /* [n_page] of the model's cache                */
    int64_t n_page;
    const int32_t *id; /* [kept]: its first tokens, that are there     */
    int64_t kept, capacity;
} ct_sequence_place;

typedef struct ct_served_model {
    const char *name;
    int64_t most_length;    /* tokens of a text                                              */
    int64_t n_id;           /* ids are less than that                                        */
    int64_t embedding_size; /* 0: it makes none                                              */
    int n_input, n_output;  /* 0: no infer                                                   */
    const ct_served_blob *input, *output;
    void *ctx;
    /** The ids of a text, with what the model wants around it; any thread. NULL: it takes ids
     *  alone. CT_ERR_DATA, logged: something has no token. */
    ct_status (*encode)(void *ctx, const char *text, size_t n, ct_ids *ids);
    /** Fills `row` of each, or `output`, whose data it allocates. */
    ct_status (*embed)(void *ctx, ct_work *const *work, int n);
    ct_status (*infer)(void *ctx, ct_work *const *work, int n);

    /* ---- Pictures: rows of input 0 that files make. n_class 0: it takes none. */
    int64_t n_class;          /* numbers of a row of output 0, one for each class            */
    const char *const *label; /* their names; NULL: they have none                           */
    bool is_probability;      /* these numbers are, as Softmax makes them                    */
    /** The values of one picture from the bytes of a file; any thread. Quiet: CT_ERR_CONFIG: a kind
     *  of file that is not known; CT_ERR_DATA: damaged, or of a size that is not taken;
     *  CT_ERR_NOMEM; why[size] says it. */
    ct_status (*decode)(void *ctx, const char *file, size_t n, float *to, char *why, size_t size);

    /* ---- Completions. most_context 0: it makes none. While it grows sequences none are opened or
     * closed. */
    int64_t most_context; /* tokens of a prompt and what follows it                          */
    const ct_tokenizer *tokenizer; /* of the tokens that are made; on rank 0 not NULL with
                                    * most_context                                           */
    int64_t n_score;      /* of a token: at least those that the tokenizer has               */
    int64_t cache_tokens; /* of all sequences that have begun, in pages of page_tokens       */
    int64_t page_tokens;
    /** A sequence that begins with id[n] and has at most `capacity` tokens. *kept_p: of how many
     * the cache has what it needs; they are not given to `grow`. *sequence_p NULL: no room now.
     * Does not wait. */
    ct_status (*open)(void *ctx, const int32_t *id, int64_t n, int64_t capacity, void **sequence_p,
                      int64_t *kept_p);
    void (*close)(void *ctx, void *sequence);
    /** *kept_p, were id[n] opened now; also while sequences grow. */
    int64_t (*peek)(void *ctx, const int32_t *id, int64_t n);
    ct_status (*grow)(void *ctx, ct_work_piece *piece, int n);
    /** On other ranks in place of `open` and `peek`. */
    ct_status (*place)(void *ctx, const ct_sequence_place *place, void **sequence_p);
} ct_served_model;

#endif
