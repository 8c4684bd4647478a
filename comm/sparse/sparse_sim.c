/* Sparse payloads and lists for a simulation: they have their size and no content, and what is done
 * to them takes its time. This file takes the place of payload.c, payload_add.c and sparse_merge.c.
 */
#include <math.h>

#include "comm/core/sim_codec.h"
#include "comm/sparse/payload.h"
#include "comm/sparse/sparse_allreduce_impl.h"
#include "comm/sparse/payload_impl.h"

const char *ct_payload_name(ct_payload_form form)
{
    static const char *const name[] = { "pairs", "half", "mean" };

    return name[form];
}

size_t ct_payload_bytes(ct_payload_form form, int64_t n, int64_t count)
{
    return ct_payload_size(ct_payload_choose(form, n, count), n, count);
}

/* Reading or writing them; rounding goes with it. */
static void charge(int64_t entries)
{
    ct_sim_codec_pass(ct_sim_codec().pack_s * (double)entries);
}

void ct_payload_round(ct_payload_form form, ct_sparse *s, const ct_residual_return *lost)
{
    (void)form;
    (void)s;
    (void)lost;
}

float ct_payload_half(float v)
{
    return v;
}

size_t ct_payload_pack_part(ct_payload_form form, const ct_sparse *s, int64_t first, int64_t last,
                            int64_t start, int64_t n, void *payload)
{
    (void)s;
    (void)start;
    (void)payload;
    charge(last - first);
    return ct_payload_bytes(form, n, last - first);
}

size_t ct_payload_pack(ct_payload_form form, const ct_sparse *s, void *payload)
{
    return ct_payload_pack_part(form, s, 0, s->count, 0, s->n, payload);
}

ct_status ct_payload_pack_vector(const float *v, int64_t n, ct_sparse *scratch, void *payload,
                                 size_t *bytes_p)
{
    (void)v;
    scratch->n = n;
    if (scratch->count > n) scratch->count = n;
    ct_sim_codec_stream(4 * (double)n);
    *bytes_p = ct_payload_pack(CT_PAYLOAD_PAIRS, scratch, payload);
    return CT_OK;
}

ct_status ct_payload_check(const void *payload, size_t bytes, int64_t n)
{
    (void)payload;
    (void)bytes;
    (void)n;
    return CT_OK;
}

ct_status ct_payload_unpack(const void *payload, size_t bytes, int64_t n, ct_sparse *out)
{
    (void)payload;
    (void)bytes;
    out->n = n;
    if (out->count > n) out->count = n;
    charge(out->count);
    return CT_OK;
}

/* ---- many payloads into one vector */

/* Of random selections, counted as pairs. */
ct_status ct_payload_sum_all(const void *const *payload, const size_t *bytes, int n_payload,
                             float *dense, int64_t n, int n_thread, int64_t *filled_p)
{
    double empty = 1, all = 0;

    (void)payload;
    (void)dense;
    for (int p = 0; p < n_payload; ++p) {
        double entries = (double)(bytes[p] - CT_PAYLOAD_HEAD) / 8;

        all += entries;
        empty *= (entries < (double)n) ? 1 - entries / (double)n : 0;
    }
    (void)n_thread;
    ct_sim_codec_stream(8 * (double)n);
    ct_sim_codec_pass(ct_sim_codec().add_s * all);
    if (filled_p != NULL) *filled_p = (int64_t)((1 - empty) * (double)n);
    return CT_OK;
}

ct_status ct_payload_add_all(const void *const *payload, const size_t *bytes, int n_payload,
                             float *dense, int64_t n, int n_thread)
{
    return ct_payload_sum_all(payload, bytes, n_payload, dense, n, n_thread, NULL);
}

/* ---- lists have counts and no content, as of random selections
 * that are spread evenly; what is done to them takes its time. */

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

int64_t ct_sparse_allreduce_filled(const float *v, int64_t n, int n_thread, int64_t random)
{
    (void)v;
    (void)n_thread;
    ct_sim_codec_stream(4 * (double)n);
    return random;
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
