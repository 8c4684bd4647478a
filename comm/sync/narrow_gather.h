/** @file narrow_gather.h  Weights of a bucket on their way in 16 bits, where all who read them
 * round them to bf16 (ct_grad_range.rounded).
 *
 * They travel by an allgather of numbers of 16 bits, in place: a rank packs its part to where the
 * allgather has the rank's, and all unpack what has come. Of a weight that is read as it is both
 * halves travel, so what readers see has the bits of an allgather of f32. As many numbers travel as
 * the parts of all ranks have room in.
 *
 * It can be in place since what element e comes of begins at number 2 e of what travels, or before.
 * So packing goes forward, and unpacking from behind. Private to comm/.
 */
#ifndef CT_NARROW_GATHER_H
#define CT_NARROW_GATHER_H

#include "comm/sync/bucket_partition.h"

typedef struct ct_narrow_part { /* of a rank */
    int rank;
    int64_t first, count; /* elements of the bucket              */
    int64_t at;           /* where the first is, in what travels */
} ct_narrow_part;

typedef struct ct_narrow_gather {
    int64_t units; /* numbers of 16 bits that travel; 0: f32 does */
    int n_part, n_wide;
    ct_narrow_part *part; /* [n_part] by their elements                 */
    ct_range *wide;       /* [n_wide] elements that are not rounded, likewise */
    bool packed;          /* what lies there is to be unpacked          */
} ct_narrow_gather;

/** For the bucket whose first range is range[0]. units is 0 where few bits would be saved, or the
 *  parts do not fit in place. The same on all ranks. CT_ERR_NOMEM. */
ct_status ct_narrow_gather_open(const ct_comm *c, const ct_bucket_cut *cut,
                                const ct_grad_range *range, ct_narrow_gather *n);
void ct_narrow_gather_close(ct_narrow_gather *n); /* zeroed ones too */
/** place: the bucket's weights, f32, of which this rank's part is there. Others are overwritten. */
void ct_narrow_gather_pack(ct_narrow_gather *n, const ct_comm *c, float *place);
/** All of them, f32 again. Nothing where nothing is packed. */
void ct_narrow_gather_unpack(ct_narrow_gather *n, const ct_comm *c, float *place);

#endif
