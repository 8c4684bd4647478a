/** @file bucket.h  One bucket of gradients on its way: dense, or through the codec.
 *
 * Private to comm/. The pipe decides when it leaves; the bucket knows how it travels.
 */
#ifndef CT_BUCKET_H
#define CT_BUCKET_H

#include "comm/gather.h"
#include "comm/grad_plan.h"
#include "comm/repro.h"

typedef enum {
    CT_BUCKET_FILLING, /* waits for gradients                                 */
    CT_BUCKET_RUNNING, /* its messages are under way                          */
    CT_BUCKET_SUMMED   /* the arena holds the sum; perhaps not yet reported   */
} ct_bucket_state;

typedef struct ct_bucket {
    ct_comm *comm; /* borrowed, as all of these          */
    const ct_grad_pipe_config *config;
    const char *key; /* of its first gradient              */
    float *grad;     /* [cut.count]                        */
    ct_bucket_cut cut;
    _Atomic int state;
    _Atomic int missing;    /* gradients not ready                           */
    _Atomic bool dense_now; /* this step travels as plain f32                */
    const ct_coll_ops *ops; /* dense; NULL: one rank, or never needed        */
    ct_coll_req req;
    ct_repro *repro;              /* dense in its place, where the config says so; NULL: no    */
    const ct_coll_ops *coded_ops; /* codec of kind SUM; NULL: one rank       */
    ct_coll_req coded;
    void *payload;
    size_t payload_bytes;
    ct_gather *gather; /* codec of kind GATHER                               */
    int64_t gather_sent;
    ct_coll_where gather_where;
    float *residual;             /* [cut.count] or NULL                                 */
    double encode_s;             /* encode and decode, since creation                   */
    double left_at, under_way_s; /* leaving to landing, since creation       */
    int64_t n_run;
} ct_bucket;

/** b is zeroed but for comm, config, key, grad and cut. Collective, in one order on all ranks. */
ct_status ct_bucket_prepare(ct_bucket *b, int tag);
void ct_bucket_release(ct_bucket *b); /* half-prepared ones too; collective */

/** Encodes where it is to be, and starts. */
ct_status ct_bucket_leave(ct_bucket *b, int64_t iteration);
/** CT_INPROGRESS until grad holds the sum over the ranks. in_turn: ct_bucket_is_started() of all
 *  buckets that left before. */
ct_status ct_bucket_progress(ct_bucket *b, bool in_turn);
/** All collectives of this step have been started: those that left later may start theirs. */
bool ct_bucket_is_started(const ct_bucket *b);

/** How it travels: "ring", "allgather", "one rank" … */
const char *ct_bucket_algorithm(const ct_bucket *b, bool dense);
double ct_bucket_predicted_s(const ct_bucket *b);
int64_t ct_bucket_bytes_sent(const ct_bucket *b);
/** "fc6[0], ring, step 2 of 6) waits for rank 5"; from any thread. */
void ct_bucket_describe(ct_bucket *b, int index, int n_bucket, char *text, size_t size);

#endif
