/** @file set_writer.h  A set of snapshot files on its way to disk: written at once
 *  (snapshot_write.c), or of copies by a thread (snapshot_later.c). Private to framework/snapshot.
 */
#ifndef CT_SNAPSHOT_SET_WRITER_H
#define CT_SNAPSHOT_SET_WRITER_H

#include "framework/snapshot/h5.h"
#include "framework/snapshot/snapshot_impl.h"

typedef struct ct_set_file {
    char *path, *temp;
    int64_t size;
    uint64_t hash;
} ct_set_file;

/* What the stages of one ct_snapshot_write() share. */
typedef struct ct_set_writer {
    const char *prefix;
    const ct_net *net;
    const ct_snapshot_state *state;
    const ct_group *group;
    const ct_sync_states *states;
    ct_storage weights_here;             /* with parts: this rank's */
    ct_weights of;                       /* what rank 0 writes of all ranks: weights, and with */
    const ct_snapshot_state *of_state;   /* storages of all ranks' states */
    ct_set_file weights, average, caffe; /* the last two where state says so */
    ct_set_file rank, solver;
    int64_t *part; /* n_rank x {size, hash high, hash low}: all ranks' files */
    bool any_rank_file;
    ct_carry_groups carriers;
    ct_carry carry;
    ct_h5_writer *rank_file;         /* laid out; NULL: this rank has none */
    struct ct_snapshot_later *later; /* what the set holds is copied there; NULL: written at once */
} ct_set_writer;

typedef ct_status (*ct_set_write_fn)(ct_set_writer *s);

/** s is zero but for `later`. Collective, as the next two are. */
ct_status ct_set_open(ct_set_writer *s, const char *prefix, const ct_net *net,
                      const ct_snapshot_state *state, const ct_exchange *exchange);
/** What ranks do together before the solver state is written, and each rank's own file. Where
 *  `later` is set a thread writes that file. first: what rank 0 does with arrays of all ranks;
 *  where `later` is set, what every rank does. */
ct_status ct_set_prepare(ct_set_writer *s, ct_set_write_fn first);
/** status: of all that was written, on every rank; where it is CT_OK the set is committed. */
ct_status ct_set_close(ct_set_writer *s, ct_status status, int keep);

/** This rank's file. */
ct_status ct_set_write_rank(ct_set_writer *s);
/** Rank 0's: what comes before the solver state, and that. */
ct_status ct_set_write_weights(ct_set_writer *s);
ct_status ct_set_write_solver(ct_set_writer *s);
/** Something is on its way to weights of this rank, which it writes. */
bool ct_set_any_late(const ct_set_writer *s);

/** With `later`: *data_p becomes a copy that stays until the set is written. CT_ERR_NOMEM. */
ct_status ct_set_keep(const ct_set_writer *s, int64_t count, const float **data_p);

#endif
