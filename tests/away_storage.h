/** @file away_storage.h  A storage whose ranges lie in a file, for tests: what keeps an address
 *  beyond want and done, or does not say truly what it does with a range, fails or reads NaN.
 *
 * Each want takes new memory. What is only written begins as NaN, and no NaN of that kind may be
 * left; what is only read must not have changed. Memory is poisoned when it is given back, and
 * stays so for a while.
 */
#ifndef CT_TEST_AWAY_STORAGE_H
#define CT_TEST_AWAY_STORAGE_H

#include <stdatomic.h>

#include "framework/tensor/storage.h"

typedef struct away_tally { /* of all storages that were opened with it */
    _Atomic int64_t wants, opened;
    _Atomic int64_t most; /* floats of one want */
} away_tally;

/** A ct_storage_open_fn. ctx: an away_tally, or NULL. */
ct_status away_storage_open(void *ctx, const ct_device *dev, int64_t count, ct_storage *s_p);

#endif
