/* sparse_merge.c for a simulation: lists have counts and no content, as of random selections that
 * are spread evenly; what is done to them takes its time. */
#include "comm/core/sim_codec.h"
#include "comm/sparse/sparse_allreduce_impl.h"

static void merge_entries(int64_t n)
{
    ct_sim_codec_pass(ct_sim_codec().merge_s * (double)n);
}

static void add_entries(int64_t n)
{
    ct_sim_codec_pass(ct_sim_codec().add_s * (double)n);
}

ct_status ct_sparse_allreduce_merge(const ct_sparse *low, const ct_sparse *high, int64_t k,
                                    ct_sparse *out)
{
    double both = 0;

    if (low->n > 0) both = (double)low->count * (double)high->count / (double)low->n;
    out->n = low->n;
    out->count = low->count + high->count - (int64_t)both;
    merge_entries(low->count + high->count);
    if (out->count > k) out->count = k;
    return CT_OK;
}

void ct_sparse_allreduce_keep_lost(const ct_sparse *list, const ct_sparse *kept, int n, int me,
                                   const ct_residual_return *lost)
{
    (void)list;
    (void)kept;
    (void)n;
    (void)me;
    (void)lost;
}

void ct_sparse_allreduce_round_shared(ct_payload_form form, ct_sparse *list, int n, int me,
                                      const ct_residual_return *lost)
{
    (void)form;
    (void)list;
    (void)n;
    (void)me;
    (void)lost;
}

void ct_sparse_allreduce_clear(float *v, int64_t n, int n_thread)
{
    (void)v;
    (void)n_thread;
    ct_sim_codec_stream(8 * (double)n);
}

void ct_sparse_allreduce_deliver(const ct_sparse *list, float *v, int64_t n, int n_thread,
                                 int64_t *filled_p)
{
    *filled_p = 0;
    ct_sparse_allreduce_clear(v, n, n_thread);
    ct_sparse_allreduce_put(list, v, filled_p);
}

void ct_sparse_allreduce_cut(const ct_sparse *list, const int64_t *bound, int n_region,
                             int64_t *part)
{
    (void)bound;
    for (int j = 0; j <= n_region; ++j) {
        int64_t at = ct_sparse_allreduce_share(list->count, n_region) * j;

        part[j] = (at < list->count) ? at : list->count;
    }
}

void ct_sparse_allreduce_add_region(const ct_sparse *list, int64_t first, int64_t last,
                                    int64_t start, int64_t n, float *sum, uint64_t *touched,
                                    int64_t *bin)
{
    (void)list;
    (void)start;
    (void)n;
    (void)sum;
    (void)touched;
    (void)bin;
    add_entries(last - first);
}

ct_status ct_sparse_allreduce_take_region(float *sum, int64_t n, uint64_t *touched,
                                          ct_sparse_allreduce_filter *f, ct_sparse *out)
{
    (void)sum;
    (void)touched;
    out->n = n;
    out->count = (f->share < n) ? f->share : n;
    f->wanted = f->share;
    f->least = 0;
    merge_entries(out->count);
    return CT_OK;
}

void ct_sparse_allreduce_put(const ct_sparse *list, float *sum, int64_t *filled_p)
{
    (void)sum;
    add_entries(list->count);
    *filled_p += list->count;
}

void ct_sparse_allreduce_learn(ct_regions *g, const ct_region_news *const *news, int64_t k)
{
    (void)g;
    (void)news;
    (void)k;
}
