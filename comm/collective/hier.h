/** @file hier.h  The parts of the hierarchical allreduce. Private to comm/.
 *
 * On a node, `lanes` ranks each own a part of the buffer, as many as the smallest node has ranks.
 * An owner sums its part over the ranks of the node, then over the nodes with the owners of the
 * same part there (plan.h, over the levels above the node), and the result goes back to the node's
 * ranks. So every node sends each byte once, on all lanes at a time. Without shared memory the
 * whole is one plan over all levels.
 */
#ifndef CT_HIER_H
#define CT_HIER_H

#include "comm/collective/node_sum.h"
#include "comm/collective/schedule.h"

typedef struct ct_lanes {
    int n;       /* owners on each node                        */
    int mine;    /* this rank's lane, or -1: it owns nothing   */
    int *member; /* [n_node] owners of this lane, one per node, in the topology's order; or NULL */
    int me;      /* this rank's place among them               */
    const struct ct_cost *cost; /* and plan, over the nodes; borrowed */
} ct_lanes;

ct_status ct_lanes_find(const ct_comm *c, ct_lanes *l);
void ct_lanes_destroy(ct_lanes *l);

/** Appends an allreduce of [first, first + n) over the owners of this rank's lane. */
ct_status ct_lanes_between(const ct_lanes *l, int64_t first, int64_t n, size_t element_bytes,
                           ct_schedule *s);

/** Appends the whole hierarchical allreduce as messages, for nodes without shared memory.
 *  *piped_p: in chunks that are on several levels at a time. */
ct_status ct_hier_messages(const ct_coll_req *r, ct_schedule *s, bool *piped_p);

enum { CT_HIER_SLOTS = 2 /* chunks between nodes, or in staging, at a time */ };

/** How a request travels on a node: see coll_hier.c. */
typedef enum { CT_HIER_MESSAGES, CT_HIER_STAGED, CT_HIER_DIRECT } ct_hier_path;

typedef struct ct_hier {
    ct_node_sum *node; /* all ranks on one node, where that works: the rest is not used */
    ct_hier_path way;
    ct_lanes lanes;
    int64_t chunk, n_chunk;                  /* elements; how many                                */
    uint64_t base;                           /* chunks of earlier uses                            */
    int64_t published, summed, between, out; /* chunks that are past each stage  */
    bool waiting[CT_HIER_SLOTS];             /* between nodes: the slot's chunk has not come back */
    ct_schedule schedule[CT_HIER_SLOTS];
    ct_sched_run *run[CT_HIER_SLOTS];
    int slot;             /* signals; -1: none                                 */
    ct_signals **signals; /* [node_size]                                       */
    char **home;          /* [node_size] direct: buffers; staged: windows      */
    const void **src;     /* [node_size] scratch                               */
    void **dst;           /* [node_size] scratch                               */
    char *window;         /* staged: this rank's                               */
    size_t size;          /* of an element                                     */
} ct_hier;

/** What ct_coll_ops asks of hier; r->state is a ct_hier. */
ct_status ct_hier_prepare(ct_coll_req *r);
void ct_hier_release(ct_coll_req *r);

/** Chunk k starts at this element; k = n_chunk gives the count. */
int64_t ct_hier_first(const ct_coll_req *r, int64_t k);
int64_t ct_hier_length(const ct_coll_req *r, int64_t k);
/** Which slot chunk k has: counted over all uses, so that a new use cannot overtake an old one. */
int ct_hier_slot(const ct_hier *st, int64_t k);
/** Chunk k of a rank of the node, as input: in its buffer, or staged. */
char *ct_hier_input(const ct_coll_req *r, int64_t k, int rank);
/** Where the sum of part `lane` of chunk k is: in its owner's buffer, or staged behind the inputs.
 */
char *ct_hier_sum(const ct_coll_req *r, int64_t k, int lane);

#endif
