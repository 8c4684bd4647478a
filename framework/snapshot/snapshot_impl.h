/** @file snapshot_impl.h  What the writers and the readers of snapshots share: names inside a
 * solverstate, weights, states of layers and codecs. Private to framework/snapshot.
 */
#ifndef CT_SNAPSHOT_IMPL_H
#define CT_SNAPSHOT_IMPL_H

#include <stdint.h>

#include "framework/base/text.h"
#include "framework/exchange/exchange.h"
#include "framework/net/net.h"
#include "framework/snapshot/h5.h"
#include "framework/snapshot/model.h"
#include "framework/snapshot/snapshot.h"

#define CT_STATE_TITLE "cortado solverstate"
#define CT_STATE_PLAN  "/plan"
#define CT_STATE_BEST  "/best"

/* what a solver state may say; max_iter of a solver has 32 bits */
#define CT_MAX_ITERATION INT32_MAX
#define CT_MAX_RANK      (1 << 24)

/** "GROUP/NAME/KEY" with '/', '.' and '%' of KEY as %XX: keys are layers' names, which may have
 *  slashes. Freed with ct_text_destroy(). */
ct_text ct_state_path(const char *group, const char *name, const char *key);
/** Appends a line of /parts. */
void ct_state_add_part(ct_text *parts, const char *name, int64_t size, uint64_t hash);

/* ---- arrays of a net as host memory, whatever device they live on */

static inline const ct_device *ct_net_device(const ct_net *net)
{
    return (net->options.dev != NULL) ? net->options.dev : ct_device_cpu();
}

/** Floats of a device as host memory: themselves on the CPU, else a copy. */
typedef struct ct_host_copy {
    const float *data;
    void *owned; /* released by ct_host_copy_release() */
} ct_host_copy;

ct_status ct_host_copy_take(const ct_device *dev, const float *data, int64_t count,
                            ct_host_copy *copy_p);
void ct_host_copy_release(ct_host_copy *copy); /* zeroed ones allowed */

/** The arena of weights or state of a parameter in the gradient arena's order: true for those that
 *  have optimiser state. */
static inline bool ct_param_has_history(const ct_net *net, const ct_param *p)
{
    return p->offset + p->count <= net->grad_count;
}

/** Reads an array of this shape into a storage, from float `from` on, by as many rows at a time as
 *  CT_STORAGE_CHUNK holds, or one. storage NULL: the values are read, and dropped. CT_ERR_DATA. */
ct_status ct_state_read(ct_h5_reader *r, const char *path, const ct_shape *shape,
                        ct_storage *storage, int64_t from);

/* ---- weights of a net to a file and back, for sets */

/** A net and where its weights are: in its memory, or of all ranks together (framework/snapshot/
 *  parts.h), when the net is the whole one and has no memory. */
typedef struct ct_weights {
    const ct_net *net;
    ct_storage *storage; /* in the order of the arena; NULL: in the net's memory */
    ct_storage *learned; /* of those that learn, instead; NULL: no others        */
} ct_weights;

/** Where a parameter's weights are, at its offset; NULL: in the net's memory. */
static inline ct_storage *ct_weights_storage(const ct_weights *w, const ct_param *p)
{
    return ((w->learned != NULL) && p->learns) ? w->learned : w->storage;
}

/** Writes path itself (a temporary name), synced. learned: in place of the learned weights, in the
 *  order of the gradient arena; may be NULL. provenance may be NULL. */
ct_status ct_weights_write(const char *path, const ct_weights *w, ct_storage *learned,
                           const ct_model_format *format, const char *provenance, uint64_t *hash_p,
                           int64_t *size_p);
/** Reads all weights of the net, statistics too; the file must fit exactly. CT_ERR_DATA with the
 *  list of what does not; they are untouched then. Who calls it then calls
 *  ct_net_weights_changed(). */
ct_status ct_weights_read(const char *path, const ct_weights *w);
/** ct_weights_load(), but for ct_net_weights_changed(). */
ct_status ct_weights_take(const char *file, const ct_weights *w);
/** ct_net_checksum() of them, statistics too. On the CPU. */
ct_status ct_weights_checksum(const ct_weights *w, uint64_t *sum_p);
/** Copies a parameter's weights to its place in a history. */
ct_status ct_weights_copy(const ct_weights *w, const ct_param *p, ct_storage *history);

/* ---- the state that layers carry from batch to batch (ct_instance_carry()), of all
 * ranks together.
 *
 * A solverstate has it as /carried/SLOT/LAYER, rows x floats, in the order of the columns of the
 * global batch: whatever the ranks of then, every rank of now finds its rows.
 */

/** Whose rows make all of them. */
typedef struct ct_carry_groups {
    const ct_net *whole;   /* of a net that ranks run together; NULL: each has all of it   */
    const ct_group *all;   /* those that write and read a set together                     */
    const ct_group *stage; /* that share the samples of a layer of which each has its own, */
    const ct_group *data;  /* and of one that works on all samples of a replica            */
} ct_carry_groups;

static inline ct_carry_groups ct_carry_groups_of(const ct_parts *parts, const ct_exchange *x)
{
    if (parts == NULL) return (ct_carry_groups){ NULL, &x->data, &x->data, &x->data };
    return (ct_carry_groups){ parts->whole, &x->job, &x->stage, &x->data };
}

typedef struct ct_carry_item {
    const char *name; /* of the layer, borrowed   */
    int layer, slot;  /* layer -1: another rank's */
    int64_t first, local, rows,
        row;      /* this rank's rows [first, first + local) of all, their size */
    bool is_twin; /* another rank of the replica has the same                   */
    float *data;  /* all rows, on the host; NULL: not there                     */
} ct_carry_item;

typedef struct ct_carry {
    int n;
    ct_carry_item *item;
    bool keeps; /* this rank has all rows in the end */
} ct_carry;

/** Which buffers carry state, and whose rows are whose. Collective over g->all. */
ct_status ct_carry_create(const ct_net *net, const ct_carry_groups *g, ct_carry *c);
void ct_carry_destroy(ct_carry *c); /* zeroed ones allowed */
/** All rows to rank 0. Collective. */
ct_status ct_carry_gather(const ct_net *net, const ct_carry_groups *g, ct_carry *c);
/** What was gathered into a file; it is borrowed until ct_h5_writer_finish(). */
ct_status ct_carry_put(const ct_carry *c, ct_h5_writer *w);
/** Reads what the file has of them, every rank its rows. Where it has another number of rows or
 * none the state is zeros and that is said. Rank 0 reads. Collective. CT_ERR_DATA. */
ct_status ct_carry_read(const char *file, ct_net *net, const ct_carry_groups *g);

/* ---- what codecs keep on each rank, read back.
 *
 * With the same number of ranks each takes back its own. Otherwise the sum over the ranks of then
 * is kept: every rank takes 1 / n_rank of it. Nothing of a residual is lost where a parameter now
 * travels in another way. What is counted in updates goes to the weights, no farther in an
 * iteration than that moves them (framework/snapshot/residual_drain.h). What is counted in
 * gradients goes into the next gradient.
 *
 * Where ranks of then or of now have parts of the net, the same holds of each part. Each takes back
 * its own where all have the parts of then. Otherwise the sum of whole arrays is taken apart. What
 * all ranks have alike and is not one number of a parameter starts anew then.
 */

/** What is on its way to the weights, in rank 0's file. */
#define CT_RANK_LATE "late"
/** In a file of a rank that has parts, numbers of each parameter with a state. They are 1 where its
 *  gradients are another rank's, too, the axis that is cut, and first and length of each range.
 *  None: it is whole. */
#define CT_RANK_PART      "part"
#define CT_RANK_LATE_RATE "late_rate"

/** net and state hold the shared parts already. Collective. CT_ERR_IO, CT_ERR_DATA. */
ct_status ct_rank_state_read(const char *file, ct_net *net, ct_snapshot_state *state,
                             const ct_exchange *x);

/* ---- Caffe's own solver states: binary (.solverstate) and HDF5.
 *
 * Caffe keeps the histories without names: by learnable parameter, in the order of the layers and
 * of their blobs (a shared weight once, statistics and rates of 0 too). Solvers with two have first
 * those of all parameters, then the second ones of all.
 */

/** True where the file is not one of ours. */
bool ct_caffe_state_is(const char *file);
/** Weights (from its learned_net), histories, iteration and step; the rest of state stays as it is.
 *  CT_ERR_IO, CT_ERR_DATA. */
ct_status ct_caffe_state_read(const char *file, const ct_weights *w, ct_snapshot_state *state);
/** The binary form, of the rule's own histories. Writes path itself, synced. */
ct_status ct_caffe_state_write(const char *path, const char *learned_net, const ct_net *net,
                               const ct_snapshot_state *state, uint64_t *hash_p, int64_t *size_p);

#endif
