/** @file carry.h  The state that layers carry from batch to batch (ct_instance_carry()), of all
 * ranks together; private to framework/snapshot.
 *
 * A solverstate has it as /carried/SLOT/LAYER, rows x floats, in the order of the columns of the
 * global batch: whatever the ranks of then, every rank of now finds its rows.
 */
#ifndef CT_SNAPSHOT_CARRY_H
#define CT_SNAPSHOT_CARRY_H

#include "framework/net/net.h"
#include "framework/snapshot/h5.h"
#include "framework/exchange/group.h"

typedef struct ct_carry_item {
    int layer, slot;
    int64_t first, local, rows,
        row;     /* this rank's rows [first, first + local) of all, their size */
    float *data; /* all rows, on the host; NULL: not there                     */
} ct_carry_item;

typedef struct ct_carry {
    int n;
    ct_carry_item *item;
} ct_carry;

/** Which buffers carry state, and whose rows are whose. Collective. */
ct_status ct_carry_create(const ct_net *net, const ct_group *g, ct_carry *c);
void ct_carry_destroy(ct_carry *c); /* zeroed ones allowed */
/** All rows to rank 0. Collective. */
ct_status ct_carry_gather(const ct_net *net, const ct_group *g, ct_carry *c);
/** What was gathered into a file; it is borrowed until ct_h5_writer_finish(). */
ct_status ct_carry_put(const ct_net *net, const ct_carry *c, ct_h5_writer *w);
/** Reads what the file has of them, every rank its rows. Where it has another number of rows or
 * none the state is zeros and that is said. Rank 0 reads. Collective. CT_ERR_DATA. */
ct_status ct_carry_read(const char *file, ct_net *net, const ct_group *g);

#endif
