/** @file deployed.h  A net and its weights, opened from files to answer requests.
 *
 *      ct_deployed *s;
 *      ct_packed_item item = { .id = ids, .n = n };
 *
 *      CT_TRY(ct_deployed_open(&(ct_deployed_options){ "deploy.prototxt", "model.safetensors" },
 * &s)); status = ct_packed_net_run(ct_deployed_net(s), &item, 1); … item.row, item.rows,
 * ct_packed_net_columns() … ct_deployed_close(s);
 *
 * One thread at a time uses it; a run takes the threads that OpenMP gives.
 */
#ifndef CT_DEPLOYED_H
#define CT_DEPLOYED_H

#include "framework/net/packed.h"
#include "serve/net/pictures.h"
#include "serve/net/sample_net.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ct_deployed ct_deployed;

/** A net that several ranks run together: what each makes of the whole one, and how its passes
 * reach the others. All ranks open, run and close the same, in the same order; where one cannot
 * open it, none does. */
typedef struct ct_deployed_division {
    void *ctx;
    /** The status of a rank that failed, on all ranks. */
    ct_status (*agree)(void *ctx, ct_status mine);
    /** *v: the least of all ranks'. */
    ct_status (*least)(void *ctx, int64_t *v);
    /** *v: rank 0's. */
    ct_status (*share)(void *ctx, double *v);
    /** *sum, of a rank's part: becomes one sum of all ranks', the same on each. As load. */
    ct_status (*combine)(void *ctx, uint64_t *sum);
    /** *param_p and the options become this rank's. *part_p, in case of errors too: what a net has
     *  of the division, closed behind the net. */
    ct_status (*divide)(void *ctx, const Ct__NetParameter **param_p, ct_net_options *options,
                        void **part_p);
    void (*fill_exec)(const void *part, ct_exec *ex);
    /** Also from another thread than the one that runs another net. */
    ct_status (*load)(void *part, const char *files, ct_net *net);
    void (*close)(void *part); /* NULL allowed */
} ct_deployed_division;

typedef struct ct_deployed_options {
    const char *model;    /* a deploy net of tokens, or of pictures: an Input N x C x H x W     */
    const char *weights;  /* files, commas between; NULL: as fillers make them, to time the net */
    int64_t most_tokens;  /* of the sequences of a run together; 0: CT_DEPLOYED_TOKENS            */
    int64_t most;         /* sequences of a run; 0: as many as tokens                           */
    int64_t cached;       /* tokens of all sequences that grow; 0: none grows                   */
    int64_t most_length;  /* tokens of one that grows; 0: as many as `cached`                   */
    double cache_bytes;   /* in place of `cached`, where the net's attention is causal: bytes of
                           * keys and values. Sequences are as long as the Input says, or a table
                           * of positions has rows                                              */
    bool bf16;            /* precision: BF16                                                    */
    bool deterministic;   /* engines whose bits hang on what runs beside are refused            */
    int64_t most_samples; /* pictures of a run; 0: N, or CT_DEPLOYED_SAMPLES where that is more */
    const ct_deployed_division *division; /* NULL: this rank has all of the net */
} ct_deployed_options;

enum { CT_DEPLOYED_TOKENS = 4096, CT_DEPLOYED_SAMPLES = 32 };

/** CT_ERR_CONFIG, CT_ERR_IO, CT_ERR_DATA: what is wrong with the files, with their lines. */
ct_status ct_deployed_open(const ct_deployed_options *o, ct_deployed **s_p);
/** The same in two steps: the net, then its weights. Ranks of a division may run another net while
 *  they load. */
ct_status ct_deployed_make(const ct_deployed_options *o, ct_deployed **s_p);
ct_status ct_deployed_load(ct_deployed *s, const char *weights);
void ct_deployed_close(ct_deployed *s); /* NULL allowed */
/** Bytes of the values and buffers of such a net, were it made for so many tokens, or pictures:
 * what a batch of them touches. No memory is taken, nothing runs. */
ct_status ct_deployed_plan(const ct_deployed_options *o, int64_t tokens, size_t *bytes_p);
/** What runs requests, and says what it takes: one of both, the other is NULL. */
ct_packed_net *ct_deployed_net(const ct_deployed *s);
ct_sample_net *ct_deployed_samples(const ct_deployed *s);
/** The net that has the weights. */
ct_net *ct_deployed_whole(const ct_deployed *s);
/** A sum of all weights, the same of nets that are divided alike and have the same ones. All ranks
 *  of a division call it. */
ct_status ct_deployed_checksum(const ct_deployed *s, uint64_t *sum_p);
/** What options had; NULL: this rank has all of the net. */
const ct_deployed_division *ct_deployed_division_of(const ct_deployed *s);
/** What makes samples of image files, the caller's: ct_pictures_create(). */
ct_status ct_deployed_make_pictures(const ct_deployed *s, ct_pictures **p_p);

#ifdef __cplusplus
}
#endif

#endif
