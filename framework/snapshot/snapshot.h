/** @file snapshot.h  Snapshots: a set of files that is complete or not there.
 *
 *   PREFIX_iter_N.caffemodel.h5    weights in Caffe's HDF5 layout: /data/LAYER/INDEX
 *   PREFIX_iter_N.rankR.h5         per rank, only where a codec keeps state
 *   PREFIX_iter_N.solverstate.h5   iteration, optimiser state by parameter key, provenance, and the
 *                                  names, sizes and hashes of the other parts
 *
 * Each file is written under a temporary name, flushed, synced and renamed; the solverstate last,
 * which commits the set. Rank 0 writes the shared parts. Independent of the number of ranks: on
 * another count the per-rank state is summed and dealt out.
 */
#ifndef CT_SNAPSHOT_H
#define CT_SNAPSHOT_H

#include "framework/net/net.h"
#include "framework/solver/exchange.h"

typedef struct ct_snapshot_state { /* what a set holds besides weights */
    int64_t iteration;
    int n_rank;
    int64_t global_batch;
    uint64_t seed;
    int n_history;   /* optimiser state arenas, as long as the gradient arena */
    float **history; /* views; element order as the gradient arena's          */
    const char *const *history_name;
    int64_t lr_step;          /* Caffe's current_step                                   */
    const char *provenance;   /* JSON; NULL: none                                       */
    double loss_window[1024]; /* average_loss                                           */
    int n_loss, next_loss;
} ct_snapshot_state;

/** Writes the set PREFIX_iter_N. Collective: every rank writes its part, rank 0 commits. keep > 0:
 *  older sets beyond that number are removed, whole. *seconds_p (may be NULL): what it took. */
ct_status ct_snapshot_write(const char *prefix, const ct_net *net, const ct_snapshot_state *state,
                            const ct_exchange *exchange, int keep, double *seconds_p);
/** Reads the set of a .solverstate.h5 into net (weights), state and the exchange's state. Every
 *  rank reads. CT_ERR_IO, CT_ERR_DATA (hash mismatch, other net): logged with what was expected. */
ct_status ct_snapshot_read(const char *file, ct_net *net, ct_snapshot_state *state,
                           const ct_exchange *exchange);
/** The newest complete, undamaged set of prefix: verifies hashes, warns of damaged ones that it
 *  skips. *file_p is malloc'ed, or NULL where there is none (not an error). Rank 0 calls it. */
ct_status ct_snapshot_newest(const char *prefix, char **file_p);

/** Copies weights by layer name from .caffemodel or .caffemodel.h5; logs which layers were loaded,
 *  which have none in the file. CT_ERR_SHAPE where shapes differ (both are printed). */
ct_status ct_weights_load(const char *file, ct_net *net);
/** Writes weights in Caffe's HDF5 layout, atomically. */
ct_status ct_weights_save(const char *file, const ct_net *net);

#endif
