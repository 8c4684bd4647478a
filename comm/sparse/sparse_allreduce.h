/** @file sparse_allreduce.h  Every rank has selected some elements; all get the sum.
 *
 * One const ct_sparse_allreduce_ops an algorithm, one algorithm a file, listed in
 * sparse_allreduce.c. The shape is that of collectives (coll.h). prepare is collective, and
 * progress never waits. Several requests may be in flight, told apart by `tag`, and ranks may
 * progress them in any order.
 *
 *   allgather  everyone's entries to everyone, added in one order: nothing is dropped. (p - 1) k
 *   hier       the ranks of a node add their gradients first, densely, in the memory they share
 *              where there is some (sparse_hier.c); each then selects from its
 *              slice of the node's sum, k / ranks per node entries, which the ranks with the same
 *              slice on the other nodes exchange by one of the others; the node shares the result
 *   gtopk      groups of ranks that have one list merge with their neighbours and keep the k
 *              largest, log2 p times (Shi et al., gTop-k, ICDCS 2019, but both sides send, so that
 *              nothing has to be broadcast and no rank sends more than the others). k log2 p
 *   oktopk     each rank adds up one region of the elements, keeps what is over a threshold, about
 *              k / p, and everyone gathers that (Li and Hoefler, Ok-Topk, PPoPP 2022). Regions
 *              follow where entries were in the steps before. 2 k (p - 1) / p
 *   dense      each rank puts its entries into a vector of zeros, and an ordinary allreduce sums
 * it: n (p - 1) / p plain numbers, whatever k is. Nothing is dropped
 *
 * in entries that a rank sends. Whoever drops entries, or rounds values, adds what is lost to its
 * residual: the sum over the ranks of what is delivered and of the residuals is that of the entries
 * given, to rounding. All ranks get the same bits.
 */
#ifndef CT_SPARSE_EXCHANGE_H
#define CT_SPARSE_EXCHANGE_H

#include "comm/collective/coll.h"
#include "comm/sparse/payload.h"

typedef struct ct_sparse_allreduce_req {
    /* for prepare, and unchanged from there on */
    ct_comm *comm;
    int64_t n;      /* elements of the whole vector, at most CT_SPARSE_MAX                 */
    int64_t k;      /* entries that a rank selects, about; and that a gtopk or oktopk keeps */
    int64_t k_most; /* most that ct_sparse_allreduce_want() asks for; 0: k */
    int64_t room;   /* most entries that it takes, the same on all ranks; 0: 2 k, and 5/4 k_most.
                       Of a larger selection the smallest are dropped (into the residual)   */
    ct_payload_form form; /* MEAN: merged lists have many values, and travel as PAIRS */
    int tag;
    ct_sparse *list; /* NULL, or out: the sum's entries, instead of the sum. `sum` is then zeros
                        when it begins, and zeros again in the end. ops->lists only */
    const char *allreduce; /* dense: as ct_coll_choose's, but for MPI's own; NULL: "auto" */
    const char *inner;     /* hier: between the nodes; NULL: the one of least cost */
    float *sum; /* [n] out: the sum; zeroed and filled, from start on. hier: see node_start */

    /* from prepare on: what this rank selects from, and how much */
    int64_t first, length; /* elements [first, first + length); only hier has less than all; length
                              may be 0: then own is empty                           */
    int64_t k_own;         /* entries to select there, about                        */
    int64_t room_own;      /* most that are taken                                   */
    double copies; /* ranks that select from these elements: the size, or the nodes of a hier: decay
                      is to be shared among so many                                 */

    /* for start: */
    ct_sparse *own; /* this rank's entries, own->n = length, indices relative to first; they are
                       already out of the residual. The request rounds and shortens it   */
    ct_residual_return residual; /* of `length` elements, from `first`: += what this rank drops */

    /* out */
    int64_t most, most_lost; /* from prepare on: entries that a list, and residual's, have at most;
                                most of those with ops->lists */
    int64_t bytes_sent;      /* payload this rank has sent to other ranks; only grows      */
    int64_t filled;          /* elements of the last sum that are not 0                    */
    double decode_s;         /* seconds spent merging and adding; only grows               */
    ct_coll_where where;
    void *state; /* the algorithm's; acquired by prepare(), freed by release() */

    /* private to exch_*.c: who takes part. NULL: all ranks, as prepare() fills in */
    const int *member; /* [n_member] ranks of the communicator */
    int n_member, me;
} ct_sparse_allreduce_req;

typedef struct ct_sparse_allreduce_ops {
    const char *name;
    bool lists; /* it can give the sum's entries as a list: ct_sparse_allreduce_req.list */
    /** Once, before the first start. Collective, in one order on all ranks.
     *  CT_ERR_CONFIG, CT_ERR_NOMEM. */
    ct_status (*prepare)(ct_sparse_allreduce_req *r);
    /** NULL but for hier: first of all in each step, before selection, to be progressed until
     *  CT_OK. It adds grad[n] of the node's ranks up, in place. Afterwards grad[first, first +
     *  length) is the node's sum and the rest of it rubbish. */
    ct_status (*node_start)(ct_sparse_allreduce_req *r, float *grad);
    ct_status (*node_progress)(ct_sparse_allreduce_req *r);
    ct_status (*start)(
        ct_sparse_allreduce_req *r); /* sum may be the gradient, once that is used up */
    ct_status (*progress)(
        ct_sparse_allreduce_req *r); /* CT_INPROGRESS until the sum is there. CT_ERR_COMM */
    int (*pending)(ct_sparse_allreduce_req *r, MPI_Request **out,
                   int max); /* as ct_coll_ops; both phases */
    void (*release)(
        ct_sparse_allreduce_req *r); /* collective; a request whose prepare failed, too */
    /** Seconds on c's machine, decoding and merging included: sparse_cost.h. */
    double (*cost_s)(const ct_comm *c, int64_t n, int64_t k, ct_payload_form form);
    /** Bytes that each rank sends where all select k elements, evenly spread, and none twice. */
    int64_t (*bytes_theory)(const ct_comm *c, int64_t n, int64_t k, ct_payload_form form);
} ct_sparse_allreduce_ops;

extern const ct_sparse_allreduce_ops *const ct_sparse_allreduce_table[]; /* NULL-terminated */

/** name: "auto" (least cost), or one of the table. CT_ERR_CONFIG with the known names. */
ct_status ct_sparse_allreduce_choose(const ct_comm *c, int64_t n, int64_t k, ct_payload_form form,
                                     const char *name, const ct_sparse_allreduce_ops **ops_p);
/** From the next start on ranks select k entries, at most k_most; the same on all ranks. Between
 *  steps, before the selection, whose k_own it sets. */
void ct_sparse_allreduce_want(ct_sparse_allreduce_req *r, int64_t k);
/** start (of a prepared request without node_start) and progress until done: for tests. */
ct_status ct_sparse_allreduce_run(const ct_sparse_allreduce_ops *ops, ct_sparse_allreduce_req *r);

#endif
