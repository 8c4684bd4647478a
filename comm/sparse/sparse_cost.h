/** @file sparse_cost.h  What a sparse exchange takes on a machine: as cost.h for collectives.
 *
 * The messages of each step of all ranks go through topology/topo.h: a step takes the largest
 * latency met, and its busiest link's time. Steps of rings are all alike; of the p - 1 shifts of
 * oktopk's first part some are looked at and stand for the others. Lists are those of random
 * selections: ct_sparse_allreduce_union(). Merging and adding take what was measured of them, or
 * estimates: ct_topo_codec_speed().
 */
#ifndef CT_SPARSE_ALLREDUCE_COST_H
#define CT_SPARSE_ALLREDUCE_COST_H

#include "comm/core/comm.h"
#include "comm/sparse/payload.h"
#include "topology/topo.h"

typedef enum {
    CT_SPARSE_ALLREDUCE_ALLGATHER,
    CT_SPARSE_ALLREDUCE_GTOPK,
    CT_SPARSE_ALLREDUCE_OKTOPK,
    CT_SPARSE_ALLREDUCE_HIER,
    CT_SPARSE_ALLREDUCE_DENSE,
    CT_SPARSE_ALLREDUCE_KINDS
} ct_sparse_allreduce_kind;

typedef struct ct_sparse_allreduce_seconds {
    double wire_s; /* messages: also hier's sum on the node and its sharing of the result */
    double work_s; /* clearing, merging, adding                                            */
} ct_sparse_allreduce_seconds;

typedef struct ct_sparse_allreduce_model ct_sparse_allreduce_model;

/** Borrows t. Also for machines that we do not have; a second for 40 960 nodes. CT_ERR_NOMEM. */
ct_status ct_sparse_allreduce_model_create(const ct_topo *t, ct_sparse_allreduce_model **model_p);
/** From now on coding takes what it does on the slowest node of this job. */
void ct_sparse_allreduce_model_speed(ct_sparse_allreduce_model *m, const ct_topo *topo);
void ct_sparse_allreduce_model_destroy(ct_sparse_allreduce_model *m); /* NULL allowed */
/** All ranks select k of n elements; for hier, k of each node's sum. dense: the work alone; the
 *  caller adds an allreduce of n f32. */
void ct_sparse_allreduce_model_s(const ct_sparse_allreduce_model *m, ct_sparse_allreduce_kind kind,
                                 int64_t n, int64_t k, ct_payload_form form,
                                 ct_sparse_allreduce_seconds *out);
/** What each rank sends: ct_sparse_allreduce_ops.bytes_theory. hier: on nodes of equally many
 * ranks. */
int64_t ct_sparse_allreduce_model_bytes(const ct_sparse_allreduce_model *m,
                                        ct_sparse_allreduce_kind kind, int64_t n, int64_t k,
                                        ct_payload_form form);
/** "allgather" …: as ct_sparse_allreduce_table has them. */
const char *ct_sparse_allreduce_kind_name(ct_sparse_allreduce_kind kind);
/** Messages alone: everyone's `bytes` go round a ring to everyone; … */
double ct_sparse_allreduce_model_ring_s(const ct_sparse_allreduce_model *m, double bytes);
/** … and each rank has `bytes` for each other, a few under way at a time. */
double ct_sparse_allreduce_model_split_s(const ct_sparse_allreduce_model *m, double bytes);
/** Elements that are in at least one of m sets of k out of n each, drawn at random. */
int64_t ct_sparse_allreduce_union(int64_t n, int64_t k, int m);
/** What coding takes there. */
const ct_codec_speed *ct_sparse_allreduce_model_coding(const ct_sparse_allreduce_model *m);
/** … and of a hier that has `inner` between the nodes, which need not cost least. */
void ct_sparse_allreduce_model_hier_s(const ct_sparse_allreduce_model *m,
                                      ct_sparse_allreduce_kind inner, int64_t n, int64_t k,
                                      ct_payload_form form, ct_sparse_allreduce_seconds *out);
int64_t ct_sparse_allreduce_model_hier_bytes(const ct_sparse_allreduce_model *m,
                                             ct_sparse_allreduce_kind inner, int64_t n, int64_t k,
                                             ct_payload_form form);
/** n elements that a node's ranks sum in f32 and share, and between the nodes a payload of so many
 *  bytes in two hops: each node's parts to their owners, and back (codec_integer.c). */
void ct_sparse_allreduce_model_two_hops_s(const ct_sparse_allreduce_model *m, int64_t n,
                                          double bytes, ct_sparse_allreduce_seconds *out);
/** hier: the exchange between the nodes that costs least. */
ct_sparse_allreduce_kind ct_sparse_allreduce_model_inner(const ct_sparse_allreduce_model *m,
                                                         int64_t n, int64_t k,
                                                         ct_payload_form form);

/** On the communicator's machine, both figures of ct_sparse_allreduce_model_s() together; the model
 * is made once and stays with it. DBL_MAX where there is no memory. Not safe to call from two
 * threads at a time. */
double ct_sparse_allreduce_cost_s(const ct_comm *c, ct_sparse_allreduce_kind kind, int64_t n,
                                  int64_t k, ct_payload_form form);
/** The model of the communicator; borrowed. */
ct_status ct_sparse_allreduce_model_of(const ct_comm *c, const ct_sparse_allreduce_model **model_p);
/** Coding was measured: the communicator's model, if it is made, takes that. */
void ct_sparse_allreduce_model_renew(const ct_comm *c);

#endif
