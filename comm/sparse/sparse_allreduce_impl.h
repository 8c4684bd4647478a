/** @file sparse_allreduce_impl.h  What sparse allreduces share: the regions of oktopk, lists.
 * Private to comm/sparse.
 */
#ifndef CT_SPARSE_ALLREDUCE_IMPL_H
#define CT_SPARSE_ALLREDUCE_IMPL_H

#include <stdint.h>

#include "framework/base/status.h"
#include "comm/collective/coll.h"
#include "comm/sparse/sparse_cost.h"
#include "comm/collective/allgatherv.h"
#include "comm/collective/schedule.h"
#include "comm/sparse/sparse_allreduce.h"
#include "comm/sparse/sparse_node.h"

/* ---- the regions of oktopk: who adds up which elements.
 *
 * Regions should get equally many entries. Each rank tells with its result how many came to its
 * region and where; from all of that every rank moves the boundaries for the next step, alike. So
 * balancing costs no messages of its own. */

enum { CT_REGION_CUTS = 12, CT_REGION_BINS = 512 };

/** What a rank tells of its region; 64 bytes. */
typedef struct ct_region_news {
    float least;                  /* smallest magnitude that it kept; 0: none */
    uint32_t kept;                /* entries of its result                    */
    uint32_t wanted;              /* … that it would have kept, were there no limit  */
    uint32_t received;            /* entries that came, of all ranks           */
    uint32_t cut[CT_REGION_CUTS]; /* elements of the region before which 1/13, 2/13 … of them lie */
} ct_region_news;

typedef struct ct_regions {
    int n_region;
    int64_t n;
    int64_t *bound;  /* [n_region + 1] */
    int64_t *before; /* [n_region + 1] scratch */
    float threshold; /* magnitude from which a region keeps an entry; 0: not known yet */
} ct_regions;

ct_status ct_regions_create(int64_t n, int n_region, ct_regions *g);
void ct_regions_destroy(ct_regions *g);
/** The cuts, from a histogram of CT_REGION_BINS equal bins over `length` elements. */
void ct_region_cuts(const int64_t *bin, int64_t length, ct_region_news *news);
/** Moves boundaries and threshold on. news: [n_region], which nobody need believe: wrong ones make
 *  odd regions, that cover everything all the same. k: entries that all regions are to keep. */
void ct_regions_learn(ct_regions *g, const ct_region_news *const *news, int64_t k);

/* ---- the algorithms, and what they begin with */

extern const ct_sparse_allreduce_ops ct_sparse_allreduce_allgather;
extern const ct_sparse_allreduce_ops ct_sparse_allreduce_hier;
extern const ct_sparse_allreduce_ops ct_sparse_allreduce_gtopk;
extern const ct_sparse_allreduce_ops ct_sparse_allreduce_oktopk;
extern const ct_sparse_allreduce_ops ct_sparse_allreduce_dense;

/** bytes_theory among p ranks (hier: not). */
int64_t ct_sparse_allreduce_bytes(ct_sparse_allreduce_kind kind, int p, int64_t n, int64_t k,
                                  ct_payload_form form);
int64_t ct_sparse_allreduce_hier_bytes(const ct_comm *c, int64_t n, int64_t k,
                                       ct_payload_form form);

/** prepare: checks n and k; who takes part and what this rank selects, where hier did not say. */
ct_status ct_sparse_allreduce_defaults(ct_sparse_allreduce_req *r);
/** Of k entries those that are to come from [first, first + length). */
int64_t ct_sparse_allreduce_own_share(const ct_sparse_allreduce_req *r, int64_t k);
/** start: own is shortened to room_own and rounded; n_member 1 or more. CT_ERR_ARG. */
ct_status ct_sparse_allreduce_take_own(ct_sparse_allreduce_req *r);
/** r stands where a request that it is made of does. */
void ct_sparse_allreduce_stands_at(ct_sparse_allreduce_req *r, const ct_coll_where *from);
/** The one form that merged lists travel in. */
static inline ct_payload_form ct_sparse_allreduce_merged_form(ct_payload_form form)
{
    return (form == CT_PAYLOAD_MEAN) ? CT_PAYLOAD_PAIRS : form;
}

/* ---- lists; in a simulation they have counts and no content: sparse_sim.c */

/** out = the k largest of low + high, of equal ones those of lowest index; zeros are left out. The
 *  same bits whoever computes it. CT_ERR_NOMEM. */
ct_status ct_sparse_allreduce_merge(const ct_sparse *low, const ct_sparse *high, int64_t k,
                                    ct_sparse *out);
/** Drops the entries of `list` that `kept` lacks and that are this member's to look after:
 *  n members have the same list, and each looks after its share of the elements. */
void ct_sparse_allreduce_keep_lost(const ct_sparse *list, const ct_sparse *kept, int n, int me,
                                   const ct_residual_return *lost);
/** The list as the form carries it, for n members who have the same; what is lost as above. */
void ct_sparse_allreduce_round_shared(ct_payload_form form, ct_sparse *list, int n, int me,
                                      const ct_residual_return *lost);
/** v[n] = 0, by n_thread threads at most. */
void ct_sparse_allreduce_clear(float *v, int64_t n, int n_thread);
/** Elements of v[n] that are not 0. random: what a simulation, which has no v, takes for it. */
int64_t ct_sparse_allreduce_filled(const float *v, int64_t n, int n_thread, int64_t random);
/** v = 0, then the list; *filled_p: its entries that are not 0. */
void ct_sparse_allreduce_deliver(const ct_sparse *list, float *v, int64_t n, int n_thread,
                                 int64_t *filled_p);

/** part[n_region + 1]: region j's entries are part[j] .. part[j + 1] - 1. */
void ct_sparse_allreduce_cut(const ct_sparse *list, const int64_t *bound, int n_region,
                             int64_t *part);
/** sum[index - start] += value for the entries first .. last - 1, which lie in [start, start + n);
 *  notes in touched[n / 64 + 1] which elements had one, and in bin[CT_REGION_BINS] about where. */
void ct_sparse_allreduce_add_region(const ct_sparse *list, int64_t first, int64_t last,
                                    int64_t start, int64_t n, float *sum, uint64_t *touched,
                                    int64_t *bin);

typedef struct ct_sparse_allreduce_filter {
    float threshold; /* 0: none; the `share` largest are kept                */
    int64_t share, most;
    ct_residual_return lost; /* what goes, of n elements                             */
    float least;             /* out: smallest magnitude kept; 0: none                */
    int64_t wanted;          /* out: entries over the threshold                      */
} ct_sparse_allreduce_filter;

/** Takes the touched elements out of sum[n], which is then 0 there, clears touched[], and keeps in
 *  out those that pass. CT_ERR_NOMEM. */
ct_status ct_sparse_allreduce_take_region(float *sum, int64_t n, uint64_t *touched,
                                          ct_sparse_allreduce_filter *f, ct_sparse *out);
/** start, where a list is to be made of the sum. */
void ct_sparse_allreduce_begin_list(ct_sparse_allreduce_req *r);
/** The entries, as elements `first` and on, come behind those of `out`. CT_ERR_NOMEM. */
ct_status ct_sparse_allreduce_append(const ct_sparse *list, int64_t first, ct_sparse *out,
                                     int64_t *filled_p);
/** sum[index] = value; *filled_p += those that are not 0. */
void ct_sparse_allreduce_put(const ct_sparse *list, float *sum, int64_t *filled_p);
/** ct_regions_learn(). */
void ct_sparse_allreduce_learn(ct_regions *g, const ct_region_news *const *news, int64_t k);
/** Entries of one of p regions. */
static inline int64_t ct_sparse_allreduce_share(int64_t k, int p)
{
    return (k + p - 1) / p;
}

#endif
