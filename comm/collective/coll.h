/** @file coll.h  Collectives: non-blocking, in place, any count, any number of ranks.
 *
 * One const ct_coll_ops an algorithm, listed in coll_types.h: docs/contributing.md, "A collective".
 * A request is a state machine that start() begins and progress() moves as far as it goes without
 * waiting. Several may be in flight; `tag` tells their messages apart and must be the same on all
 * ranks. Ranks may progress requests in any order.
 */
#ifndef CT_COLL_H
#define CT_COLL_H

#include <stdatomic.h>

#include "comm/core/comm.h"
#include "comm/cost/cost.h"
#include "framework/tensor/tensor.h"

#define CT_COLL_TAGS CT_COMM_BLOCKING_TAGS /* tags tag .. tag + 63 belong to one request */

/** Where a request stands: written by progress, read from any thread (the watchdog). */
typedef struct ct_coll_where {
    _Atomic int step, n_step;
    _Atomic int rank;         /* of the communicator, that it waits for; -1: none in particular */
    _Atomic int sending;      /* messages of its own that have not gone out */
    _Atomic unsigned n_moved; /* changes when messages moved */
    bool brief; /* in: others are more urgent; progress returns after each round of messages */
} ct_coll_where;

/** What a request takes of this rank's memory, which its prepare() says in place of taking it. */
typedef struct ct_coll_size {
    bool shared;   /* in: the buffer lies in ct_comm_arena(), and the ranks of a node share that */
    int64_t bytes; /* out: added to */
    int64_t room;  /* out: … and where that is more, the bytes of ct_coll_req.room */
} ct_coll_size;

/** Where messages to be added land. Zeroed at first; as large as the run that needs most. */
typedef struct ct_sched_room {
    char *block;
    int64_t bytes;
    int n_run; /* that have it: the last one gives the block back */
} ct_sched_room;

typedef struct ct_coll_req {
    ct_comm *comm;
    void *buf;      /* summed in place; the caller leaves it alone until done          */
    int64_t count;  /* elements                                                        */
    ct_dtype dtype; /* CT_F32; CT_BF16, CT_F16: travel so, each addition is in f32; CT_I64:
                       wraps; CT_U8: the greatest instead of the sum (reduce.h)        */
    int tag;
    int root;           /* broadcast: whose buffer                                  */
    int64_t bytes_sent; /* out: payload this rank has sent to other ranks; only grows */
    ct_coll_where where;
    ct_sched_room *room; /* that of requests never under way at a time; NULL: its own */
    ct_coll_size *size; /* not NULL: prepare() takes nothing, counts here, and is local; buf and tag
                           are not looked at, and nothing is to be released (ct_coll_count()) */
    void *state;        /* the algorithm's; acquired by prepare(), freed by release() */
} ct_coll_req;

typedef enum {
    CT_COLL_ALLREDUCE,
    CT_COLL_REDUCE_SCATTER, /* leaves the sum of a rank's part in its place, elsewhere anything  */
    CT_COLL_ALLGATHER       /* takes each rank's part from its place, leaves all parts everywhere */
} ct_coll_kind;

/** "allreduce", "reduce_scatter", "allgather". */
extern const char *const ct_coll_kind_name[3];

typedef struct ct_coll_ops {
    const char *name;
    ct_coll_kind kind;
    const struct ct_coll_ops *scatter, *gather; /* of an allreduce: its halves; NULL: it has none */
    bool automatic;                 /* "auto" may take it, and the first steps of training try it */
    bool (*fits)(const ct_topo *t); /* NULL: any; elsewhere it is not automatic */
    bool has_dims;                  /* its name may have dimensions behind it: torus:8x4 */
    bool many_rounds;               /* as many as there are ranks: large simulations leave it out */
    bool shares_memory; /* fastest where buf lies in ct_comm_arena(); the others, elsewhere */
    bool by_mpi;        /* MPI's own: all ranks must start such requests in one order, and the order
                           of the additions is MPI's secret */
    bool (*supports)(const ct_comm *c, int64_t count, ct_dtype dtype);
    const ct_cost_ops *cost; /* its rounds, for the model */
    /* by_mpi: of dtypes whose additions MPI cannot leave to the network. NULL: there are none. */
    const ct_cost_ops *host_cost;
    bool (*on_host)(ct_dtype dtype); /* … those dtypes; with host_cost */
    /** Once per bucket, before the first start: buffers, windows. Collective, in the same order on
     *  all ranks. */
    ct_status (*prepare)(ct_coll_req *r);
    ct_status (*start)(ct_coll_req *r);
    ct_status (*progress)(ct_coll_req *r); /* CT_INPROGRESS until the sum is in buf */
    void (*release)(ct_coll_req *r);       /* collective */
    /** Optional. Up to max requests in flight whose completion could move r on. A caller with
     *  nothing else to do may wait for one of them, and write MPI_REQUEST_NULL where it completed.
     *  progress() takes that for done. 0: r waits for no message (shared memory, or r is done). */
    int (*pending)(ct_coll_req *r, MPI_Request **out, int max);
} ct_coll_ops;

extern const ct_coll_ops *const ct_coll_table[]; /* NULL-terminated, in the order of coll_types.h */

/** May "auto" take it on this topology? */
bool ct_coll_is_automatic(const ct_coll_ops *ops, const ct_topo *t);
/** What the model says of it here, in seconds; DBL_MAX where that fails. */
double ct_coll_cost_s(const ct_coll_ops *ops, const ct_comm *c, int64_t bytes, ct_dtype dtype);

/** spec: "auto" (least cost, weighed by ct_cost_weight()), an algorithm, or one for each range of
 * sizes ("tree<64K,rhd<4M,hier": coll_types.h). The dimensions of a torus stay with the
 * communicator. CT_ERR_CONFIG. */
ct_status ct_coll_choose(const ct_comm *c, int64_t count, ct_dtype dtype, const char *spec,
                         const ct_coll_ops **ops_p);
/** The same for sums that may not go by MPI's own allreduce: "auto" leaves out what is by_mpi. A
 *  named one is taken; its caller refuses it. */
ct_status ct_coll_choose_own(const ct_comm *c, int64_t count, ct_dtype dtype, const char *spec,
                             const ct_coll_ops **ops_p);
/** CT_ERR_CONFIG, with `where` it stands and the nearest name, where spec is none that
 *  ct_coll_choose() takes. */
ct_status ct_coll_check_spec(const char *spec, const char *where);
/** Adds to *size what a request for count elements takes of this rank: buffers of messages,
 *  windows of nodes. Of MPI's own, which does not say, one more copy of the elements. On
 *  communicators that only plan, too. Local. */
ct_status ct_coll_count(const ct_coll_ops *ops, ct_comm *c, int64_t count, ct_dtype dtype,
                        ct_coll_size *size);
/** prepare and start. An error leaves nothing to release. Collective. */
ct_status ct_coll_begin(const ct_coll_ops *ops, ct_coll_req *r);
/** Progress until done, and release. What the movers move (ct_comm_plug()) goes on meanwhile. */
ct_status ct_coll_end(const ct_coll_ops *ops, ct_coll_req *r);
/** Both, for tests and small uses. Collective. */
ct_status ct_coll_run(const ct_coll_ops *ops, ct_comm *c, void *buf, int64_t count, ct_dtype dtype);

/* ---- reduce-scatter and allgather: the halves of allreduces, by the same requests
 *
 * The buffer holds all elements on every rank. Which part is whose follows the topology's order, so
 * that near ranks share long stretches: ask ct_coll_part(). Parts are the same for all algorithms,
 * so any reduce-scatter and any allgather go together.
 *
 * A reduce-scatter adds in the order of its allreduce. So with an allgather of any algorithm behind
 * it all ranks have that allreduce's bits. What MPI does by itself is left out: its bits are its
 * own.
 */

/** The half with the bits of this allreduce. NULL: it has none (MPI's own; an allgather that would
 *  only be a slower one of another's). */
const ct_coll_ops *ct_coll_half_of(const ct_coll_ops *allreduce, ct_coll_kind kind);
/** As ct_coll_choose(), of halves by what these cost; own: as ct_coll_choose_own(). Of an allreduce
 *  too. spec NULL: "auto". */
ct_status ct_coll_choose_kind(const ct_comm *c, ct_coll_kind kind, int64_t count, ct_dtype dtype,
                              const char *spec, bool own, const ct_coll_ops **ops_p);
/** The operations of this kind under a table's row, MPI's own too; NULL: there are none. */
const ct_coll_ops *ct_coll_of_kind(const ct_coll_ops *row, ct_coll_kind kind);

/** The part of a rank: elements [*first_p, *first_p + *n_p) of count. Parts of all ranks are
 *  disjoint, cover all, and differ by rounding only: to 16 elements, where count allows. */
ct_status ct_coll_part(const ct_comm *c, int64_t count, int rank, int64_t *first_p, int64_t *n_p);

/** From r->root: a binomial tree for small buffers; for large ones parts dealt out and gathered
 *  (van de Geijn; Thakur et al., IJHPCA 2005). Any dtype. */
extern const ct_coll_ops ct_coll_broadcast;

/** Sums of gradients on devices by an MPI that takes their memory in messages: MPI's own
 * nonblocking allreduce, on the device's addresses. `there` is what MPI says of itself
 * (comm/core/comm.h). A sum begins once the device has made the gradient, seen by `poll` and
 * `follow`, and in the order of `begin`; `follow` waits for it on the host. Over the ranks of the
 * ct_comm that `open` is given. comm/collective/sum_mpi.c */
extern const ct_device_sum_ops ct_device_sum_mpi;

#endif
