/** @file stripes.h  Data sets in stripes: runs of consecutive samples, dealt out over files.
 *
 * n samples in `stripes` runs of equal length (one more here and there), stripe k in file k mod
 * files, as disk arrays do it. Any floor(n / stripes) or fewer samples that follow one another lie
 * in at most two stripes, so in at most two files. And ranks whose parts of a batch lie behind one
 * another read from different files.
 *
 * Shuffling keeps that: each epoch draws an order of the stripes, and an order within each. Where
 * the lengths differ, a longer stripe stands where in the plain order a longer one stands. With one
 * stripe it is the permutation of the whole set.
 *
 * A striped set is a folder with one LMDB file a shard and `shards.txt`, which says how they belong
 * together.
 */
#ifndef CT_STRIPES_H
#define CT_STRIPES_H

#include <stdbool.h>
#include <stdint.h>

#include "framework/base/status.h"

enum { CT_MAX_STRIPE = 1 << 22, CT_MAX_SHARD = 512 };

/** The first sample of stripe k, 0 <= k <= stripes; of k = stripes: n. */
int64_t ct_stripe_first(int64_t n, int64_t stripes, int64_t k);
/** The stripe of sample i. */
int64_t ct_stripe_of(int64_t n, int64_t stripes, int64_t i);

typedef struct ct_shards {
    int64_t n, stripes;
    int n_file;
    int64_t count[CT_MAX_SHARD]; /* samples of each file */
} ct_shards;

/** Fills count of n, stripes, n_file. */
void ct_shards_deal(ct_shards *s);
/** Most files that `local` samples which follow one another can touch. */
int ct_shards_touched(const ct_shards *s, int64_t local);
/** Most readers at once of one file, where `ranks` ranks take `local` samples each behind one
 *  another: at most 2 ranks / n_file + local / stripe + 1 … of those that there are. */
int ct_shards_readers(const ct_shards *s, int64_t local, int64_t ranks);
/** `shard-00007.mdb` in a folder; freed by the caller. NULL: no memory. */
char *ct_shards_path(const char *folder, int k);
/** Writes folder/shards.txt. CT_ERR_IO, logged. */
ct_status ct_shards_write(const char *folder, const ct_shards *s);
/** True where path is a folder with a shards.txt. */
bool ct_shards_is_set(const char *path);
/** CT_ERR_IO, CT_ERR_DATA: not readable, no such file, counts that do not fit; logged. */
ct_status ct_shards_read(const char *folder, const char *who, ct_shards *s);

#endif
