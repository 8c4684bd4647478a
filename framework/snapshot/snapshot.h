/** @file snapshot.h  Snapshots: a set of files that is complete or not there.
 *
 *   PREFIX_iter_N.caffemodel.h5    weights in Caffe's HDF5 layout: /data/LAYER/INDEX
 *   PREFIX_iter_N.average.caffemodel.h5  likewise, their average over the run, where there is one
 *   PREFIX.best                    with `best`: which sets they are
 *   PREFIX_iter_N.rankR.h5         per rank, only where a codec keeps state, or groups of local
 *                                  steps have weights and states of their own
 *   PREFIX_iter_N.solverstate.h5   iteration, optimiser state by parameter key, what layers carry
 *                                  from batch to batch, by column, engines, provenance, the names,
 *                                  sizes and hashes of the other parts
 *
 * With snapshot_format BINARYPROTO the weights are PREFIX_iter_N.caffemodel in Caffe's binary form,
 * and PREFIX_iter_N.solverstate says Caffe what the .h5 says us.
 *
 * Each file is written under a temporary name, flushed, synced and renamed; the solverstate last,
 * which commits the set. Its first line is "cortado solverstate XXH64", the hash of its bytes from
 * 512 on (an HDF5 user block); inside, /parts has a line "NAME SIZE XXH64" for each other file.
 * Rank 0 writes the shared parts. Independent of the number of ranks: on another count the per-rank
 * state is summed over the ranks of then and every rank of now takes an equal share of the sum.
 * Residuals of parameters that travel otherwise now go to the weights, by and by, or into the next
 * gradient. Until they are there a snapshot of that run has what is left, as rank 0's state.
 *
 * Of a net that ranks run together, each a part, the shared files have whole arrays, as one rank
 * writes them, so however the net is divided, it reads them. Rank files have what their ranks have,
 * and say of which part of a parameter that is: the sum over the ranks is then one of parts, and so
 * are the shares of it.
 */
#ifndef CT_SNAPSHOT_H
#define CT_SNAPSHOT_H

#include "framework/net/net.h"
#include "framework/exchange/exchange.h"
#include "framework/tensor/storage.h"
#include "framework/snapshot/parts.h"
#include "framework/snapshot/residual_drain.h"
#include "framework/snapshot/shards.h"

/** Name of the average of the weights among the histories. A snapshot of a run without one starts
 *  it at the weights. */
#define CT_HISTORY_AVERAGE "average"
/** Likewise of the momentum of an outer optimiser (local steps), which starts at 0. */
#define CT_HISTORY_OUTER "outer_momentum"

/** As in Intel's solver states. */
#define CT_NO_LEAST_LOSS 1e38

/** What a run has seen of the metric of `best`. */
enum { CT_MAX_BEST = 64 };

typedef struct ct_best_set {
    int64_t iteration;
    double value;
    bool own; /* its snapshot was written for it alone */
} ct_best_set;

typedef struct ct_best {
    char metric[128]; /* "": no test was seen */
    int n;            /* the best first; behind those that stay the one that fell out last */
    ct_best_set set[CT_MAX_BEST + 1];
    int64_t tested; /* iteration of the last test */
    int64_t waited; /* tests since the best one   */
} ct_best;

typedef struct ct_snapshot_state { /* what a set holds besides weights */
    /* of a net that the ranks of the job run together; NULL: each has all of it, and the ranks are
     * those of ct_exchange.data */
    const ct_parts *parts;
    const ct_state_shards *shards; /* of ct_exchange.data, each rank of which has a part of the
                                    * histories; NULL: each has all of them */
    ct_storage *weights; /* of what learns, as a history; NULL: they are in the net's memory */
    int64_t iteration;
    int n_rank;
    int n_rank_file; /* read: ranks from here on have no file of their own */
    int64_t global_batch;
    uint64_t seed;
    int n_history;       /* optimiser states, as long as the gradient arena         */
    ct_storage *history; /* borrowed; element order as the gradient arena's         */
    const char *const *history_name;
    ct_storage *average;     /* the one to keep as weights of their own; NULL: none yet */
    const char *solver_type; /* for messages                                           */
    int n_state;             /* histories of the rule itself, which come first         */
    bool binary;             /* snapshot_format BINARYPROTO                            */
    int64_t lr_step;         /* Caffe's current_step                                   */
    double least_loss;       /* of lr_policy plateau; CT_NO_LEAST_LOSS: none seen      */
    int64_t last_event;      /* likewise                                               */
    double loss_scale;       /* of precision FP16; 0: none                             */
    int64_t good_steps;      /* likewise: since it last changed                        */
    ct_best best;            /* of `best`, so far                                      */
    int keep_best;           /* so many of its first sets are never pruned             */
    bool foreign;           /* read from a solver state of Caffe: seed, batch, losses are unknown */
    const char *provenance; /* JSON; NULL: none                                       */
    const char *plan;       /* rows of engines, framework/net/engine_plan.h; NULL: none */
    double loss_window[1024]; /* average_loss                                           */
    int n_loss, next_loss;
    /* read: this rank's part of what was not sent of parameters that travel otherwise now. It is to
     * be added to their next gradient. On the net's device, as long as the gradient arena, the
     * caller's to release. NULL: nothing */
    float *owed;
    /* likewise of weights. Written: rank 0 keeps it for all, who have the same. Read: the caller's
     * to close */
    ct_residual_drain late;
} ct_snapshot_state;

/** Writes the set PREFIX_iter_N. Collective: every rank writes its part, rank 0 commits. keep > 0:
 *  sets of earlier iterations beyond that number are removed, whole. *seconds_p (may be NULL): what
 *  it took. CT_ERR_IO on every rank where one cannot write; no earlier set is touched then. */
ct_status ct_snapshot_write(const char *prefix, const ct_net *net, const ct_snapshot_state *state,
                            const ct_exchange *exchange, int keep, double *seconds_p);

/** Sets that threads write while training goes on: rank 0's, and one of each rank that has a file
 *  of its own. Each rank keeps a copy of a part of what the set holds, and brings it to rank 0. */
typedef struct ct_snapshot_later ct_snapshot_later;
/** The threads compute a fortieth of the time unless somebody waits for them; gives_way: and only
 *  where training leaves a core free. CT_ERR_NOMEM. */
ct_status ct_snapshot_later_create(bool gives_way, ct_snapshot_later **l_p);
/** Finds out which part is this rank's, and makes room for its copy before training begins, where
 *  there is memory; state: of sets, its histories alone are looked at. limit: as below. Once.
 *  Collective over g, who write sets together. */
ct_status ct_snapshot_later_reserve(ct_snapshot_later *l, const ct_net *net,
                                    const ct_snapshot_state *state, const ct_group *g,
                                    double limit);
/** NULL allowed. A set that was begun and not finished is dropped, when its thread has ended. */
void ct_snapshot_later_destroy(ct_snapshot_later *l);
/** As ct_snapshot_write(), but it returns as soon as all that the set holds is copied; net must
 *  stay. The one before has been finished. limit: bytes that a rank may have resident, 0: none.
 *  *begun_p false: some rank has no room for copies, which it says once. Collective. */
ct_status ct_snapshot_later_begin(ct_snapshot_later *l, const char *prefix, const ct_net *net,
                                  const ct_snapshot_state *state, const ct_exchange *exchange,
                                  int keep, double limit, bool *begun_p);
/** A set has been begun and not finished. The same on every rank. */
bool ct_snapshot_later_is_open(const ct_snapshot_later *l);

typedef enum {
    CT_LATER_NOTHING, /* this rank has no file left to write, or could not */
    CT_LATER_TIME,
    CT_LATER_RANKS, /* rank 0 waits for the others' parts */
} ct_later_need;
/** What this rank's files need. Never waits. */
ct_later_need ct_snapshot_later_need(ct_snapshot_later *l);
/** Where one needs CT_LATER_RANKS: brings rank 0 parts, for a fortieth of the time since the last
 *  time. Collective. */
ct_status ct_snapshot_later_serve(ct_snapshot_later *l);
/** Waits for the files of the open set and commits it. *seconds_p (may be NULL): since it was
 *  begun. Collective; CT_ERR_IO on every rank where one could not write: no earlier set is touched
 *  then. */
ct_status ct_snapshot_later_finish(ct_snapshot_later *l, double *seconds_p);

/** Reads the set of a .solverstate.h5, or a solver state of Caffe, into net (weights), state and
 * the exchange's state. state comes with n_history, history and history_name filled in; provenance
 * stays as it is. Collective: rank 0 reads the shared parts and broadcasts. CT_ERR_IO; CT_ERR_DATA
 * (damaged, other net, other optimiser), logged with what was expected. */
ct_status ct_snapshot_read(const char *file, ct_net *net, ct_snapshot_state *state,
                           const ct_exchange *exchange);
/** The rows of engines that the set's run went by, malloc'ed, or NULL: it has none, or is damaged,
 *  which ct_snapshot_read() will say. Rank 0 calls it. */
ct_status ct_snapshot_plan(const char *file, char **plan_p);
/** Checks every file of a set against its hash. Logs nothing but at debug level: *why_p (may be
 *  NULL) is malloc'ed text of what is wrong. CT_ERR_IO, CT_ERR_DATA. */
ct_status ct_snapshot_verify(const char *file, char **why_p);
/** The newest complete, undamaged set of prefix, by iteration: verifies hashes, warns of damaged
 *  and unfinished ones that it skips. *file_p is malloc'ed, or NULL where there is none (not an
 *  error). Rank 0 calls it. CT_ERR_IO where the folder is there and cannot be read, CT_ERR_NOMEM.
 */
ct_status ct_snapshot_newest(const char *prefix, char **file_p);
/** The weights of that set, their average where it has one. */
ct_status ct_snapshot_newest_weights(const char *prefix, char **file_p);

/* ---- the best sets of a run, listed in PREFIX.best: a line "METRIC DIRECTION", then a line
 * "ITERATION VALUE" for each, the best first. Rank 0 calls these. */

/** Writes the list of state's best sets; where it has none, an earlier list goes. Of state the
 * best, keep_best and iteration are read, that of the newest set. What was written for the list
 * alone and fell out of it is removed; keep > 0: by what ct_snapshot_write() removes. CT_ERR_IO. */
ct_status ct_snapshot_list_best(const char *prefix, const ct_snapshot_state *state, bool higher,
                                int keep);
/** The weights of the best set in the list that is whole, as ct_snapshot_newest_weights(); NULL:
 *  there is no list, or none is whole. CT_ERR_DATA: the list cannot be read. */
ct_status ct_snapshot_best_weights(const char *prefix, char **file_p);
/** The solver state of the latest iteration that prefix has, whatever it holds. Where no set is
 *  committed, it is a file of the latest one. A run from the start would mix its own with these.
 *  *file_p is malloc'ed, or NULL where there is none. Rank 0 calls it. As ct_snapshot_newest(). */
ct_status ct_snapshot_any(const char *prefix, char **file_p);
/** Copies weights by layer name from a file of any format. Logs how many layers were loaded, which
 * of the net have none in the file, and which of the file are not in the net. Shapes fit when they
 * are equal but for leading ones, so the four dimensions of old models do. CT_ERR_SHAPE where
 * shapes or numbers of blobs differ (both are printed), CT_ERR_DATA where no layer has a namesake;
 * net is untouched then. Not collective. */
ct_status ct_weights_load(const char *file, ct_net *net);
/** The same, from files with commas between. */
ct_status ct_weights_load_list(const char *files, ct_net *net);
/** The same of all of the net's weights, in the host's memory: CT_ERR_DATA where one is in no file.
 *  A lone factor, as Normalize's, need not be there. */
ct_status ct_weights_load_all(const char *files, ct_net *net);
/** The same, with weights that learn in a storage, in the order of the gradient arena. */
ct_status ct_weights_load_learned(const char *file, const ct_net *net, ct_storage *learned);
/** ct_net_checksum() of such weights. */
ct_status ct_weights_checksum_learned(const ct_net *net, ct_storage *learned, uint64_t *sum_p);
/** The same as ct_weights_load() into what the ranks have of a net together: rank 0 within
 * ct_parts_run(), whose `whole` this is. The net's weights changed then. */
ct_status ct_weights_load_parts(const char *file, const ct_parts *p, ct_storage *whole);

#endif
