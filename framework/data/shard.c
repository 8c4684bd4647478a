/* Which samples a step and a rank take. */
#include "framework/data/loader.h"
#include "framework/data/stripes.h"

ct_status ct_share_of(int64_t global, int rank, int n_rank, ct_share *share_p)
{
    int64_t each = global / n_rank, more = global % n_rank;

    if (global < n_rank) {
        return CT_FAIL(CT_ERR_CONFIG,
                       "a global batch of %lld gives %d ranks less than one sample each",
                       (long long)global, n_rank);
    }
    share_p->global = global;
    share_p->local = each + (rank < more);
    share_p->first = rank * each + ((rank < more) ? rank : more);
    return CT_OK;
}

int64_t ct_sample_at(uint64_t seed, int64_t stripes, int64_t position, int64_t n)
{
    return (stripes == 0) ? position % n : ct_stripe_sample_at(seed, stripes, position, n);
}
