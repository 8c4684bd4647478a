#include "comm/sync/bucket_partition.h"

#include <stdlib.h>
#include <string.h>

#include "comm/collective/blocking.h"
#include "comm/sync/bucket.h"
#include "comm/codec/codec_types.h"
#include "comm/collective/repro.h"
#include "framework/base/rng.h"

static ct_status check_codec(const ct_grad_pipe_config *config, const ct_codec_ops *codec,
                             const ct_codec_config *c)
{
    CT_TRY(ct_codec_check(codec, c, "compression"));
    if ((config->weights != NULL) && (codec != &ct_codec_none) && !codec->parts)
        return CT_FAIL(CT_ERR_CONFIG,
                       "memory { zero } sums parts of gradients, and compression %s sends them "
                       "whole: use one or the other, or take BF16 or FP16",
                       codec->name);
    if (config->reproducible && (codec != &ct_codec_none))
        return CT_FAIL(CT_ERR_CONFIG,
                       "reproducible_sum: true, but compression %s rounds what it sends in an "
                       "order that depends on buckets and placement: use one or the other",
                       codec->name);
    return CT_OK;
}

ct_status ct_bucket_partition_check(const ct_grad_pipe_config *config, const ct_grad_range *range,
                                    int n_range)
{
    int64_t end = 0;

    if ((config->codec == NULL) || (config->allreduce == NULL))
        return CT_FAIL(CT_ERR_ARG, "a gradient pipe without codec or allreduce");
    if (config->bucket_bytes < 0)
        return CT_FAIL(CT_ERR_CONFIG, "buckets of %lld bytes", (long long)config->bucket_bytes);
    CT_TRY(check_codec(config, config->codec, &config->codec_config));
    for (int i = 0; i < n_range; ++i) {
        if (range[i].codec != NULL)
            CT_TRY(check_codec(config, range[i].codec, range[i].codec_config));
        if (config->reproducible && (range[i].offset % CT_REPRO_BLOCK != 0))
            return CT_FAIL(CT_ERR_ARG, "gradient %s at element %lld: reproducible sums need %d",
                           range[i].key, (long long)range[i].offset, CT_REPRO_BLOCK);
        if ((range[i].offset < end) || (range[i].count < 0))
            return CT_FAIL(CT_ERR_ARG, "gradient %s: %lld elements at %lld, after those up to %lld",
                           range[i].key, (long long)range[i].count, (long long)range[i].offset,
                           (long long)end);
        end = range[i].offset + range[i].count;
    }
    return CT_OK;
}

/* ---- sizes */

enum {
    LATENCY_SHARE = 20,    /* latency is at most 1/20 of a usual bucket's time       */
    LEAST_USUAL = 1 << 16, /* bytes                                                  */
    MOST_USUAL = 1 << 28,
    ALONE = 1 << 22,
    MOST_BUCKETS = 96, /* fewer than the pipe has tags for, so that all may be under way */
    PART_UNIT = 1024   /* elements: parts of a range start at multiples of it            */
};

ct_status ct_bucket_sizes_by(ct_grad_cost_fn cost, void *ctx, int n_rank, int64_t bucket_bytes,
                             const ct_grad_range *range, int n_range, ct_bucket_sizes *sizes_p)
{
    const int64_t element = (int64_t)sizeof(float);
    int64_t total = (n_range > 0) ? range[n_range - 1].offset + range[n_range - 1].count : 0;
    int64_t usual = LEAST_USUAL, fixed = bucket_bytes;

    if ((n_rank == 1) && (fixed == 0)) fixed = ALONE; /* nothing travels */
    *sizes_p = (ct_bucket_sizes){ .usual = fixed, .ends = fixed, .most = INT64_MAX };
    if (fixed > 0) return CT_OK;
    if (n_range > 0) total -= range[0].offset;
    for (; usual < MOST_USUAL; usual *= 2) {
        double latency_s = 0, all_s = 0;

        CT_TRY(cost(ctx, usual, &latency_s, &all_s));
        if ((LATENCY_SHARE * latency_s <= all_s) && (total * element <= MOST_BUCKETS * usual))
            break;
    }
    *sizes_p = (ct_bucket_sizes){ .usual = usual, .ends = usual / 4, .most = 8 * usual };
    return CT_OK;
}

typedef struct chooser {
    ct_comm *c;
    const char *allreduce;
    bool own; /* not by MPI's own */
} chooser;

static ct_status chosen_cost(void *ctx, int64_t bytes, double *latency_s_p, double *all_s_p)
{
    const chooser *k = ctx;
    const ct_coll_ops *ops = NULL;

    if (k->own)
        CT_TRY(
            ct_coll_choose_own(k->c, bytes / (int64_t)sizeof(float), CT_F32, k->allreduce, &ops));
    else
        CT_TRY(ct_coll_choose(k->c, bytes / (int64_t)sizeof(float), CT_F32, k->allreduce, &ops));
    *latency_s_p = ct_coll_cost_s(ops, k->c, 0, CT_F32);
    *all_s_p = ct_coll_cost_s(ops, k->c, bytes, CT_F32);
    return CT_OK;
}

ct_status ct_bucket_sizes_find(ct_comm *c, const ct_grad_pipe_config *config,
                               const ct_grad_range *range, int n_range, ct_bucket_sizes *sizes_p)
{
    chooser k = { c, config->allreduce, config->deterministic };

    CT_TRY(ct_bucket_sizes_by(chosen_cost, &k, c->size, config->bucket_bytes, range, n_range,
                              sizes_p));
    if (ct_comm_only_plans(c)) return CT_OK;
    /* ranks of unlike processors may round a cost differently, but not cut differently */
    return ct_comm_broadcast(c, sizes_p, sizeof(*sizes_p));
}

/* ---- parts of ranks */

int64_t ct_bucket_own_piece(const ct_bucket_cut *cut, int64_t own_first, int64_t own_count,
                            const ct_grad_range *r, int64_t *from_p)
{
    int64_t from = cut->offset + own_first, end = from + own_count;

    if (from < r->offset) from = r->offset;
    if (end > r->offset + r->count) end = r->offset + r->count;
    *from_p = from - r->offset;
    return end - from;
}

/* ---- cutting */

typedef struct cutter {
    const ct_bucket_sizes *sizes;
    int64_t first, end; /* bytes of the arena that the ranges span */
    ct_bucket_cut *cut;
    int n_cut;
} cutter;

/* How large a bucket may become that starts at this byte: the first ones are small, so that
 * something leaves soon, and so are the last, which the next forward waits for first. */
static int64_t most_at(const cutter *k, int64_t at)
{
    int64_t grown = at - k->first + k->sizes->ends, left = (k->end - at) / 2;
    int64_t most = (grown < left) ? grown : left;

    if (most > k->sizes->usual) most = k->sizes->usual;
    return (most > k->sizes->ends) ? most : k->sizes->ends;
}

static int parts_of(const cutter *k, const ct_grad_range *range, bool coded)
{
    int64_t bytes = range->count * (int64_t)sizeof(float);
    int64_t n = 1 + (bytes - 1) / k->sizes->most;

    return (coded || (bytes == 0)) ? 1 : (int)n;
}

static void cut_range(cutter *k, const ct_grad_range *range, int i, bool coded)
{
    bool alone = coded || (range->row_most > 0); /* of rows one gradient is not the next one's */
    const int64_t element = (int64_t)sizeof(float);
    ct_bucket_cut *last = (k->n_cut > 0) ? &k->cut[k->n_cut - 1] : NULL;
    int64_t end = range->offset + range->count, at = range->offset;
    int n_part = parts_of(k, range, coded);
    int64_t each = (range->count / n_part + PART_UNIT) / PART_UNIT * PART_UNIT;

    if ((last != NULL) && !last->alone && !alone && (last->n_part == 1) && (n_part == 1) &&
        ((end - last->offset) * element <= most_at(k, last->offset * element))) {
        last->n += 1;
        last->count = end - last->offset;
        return;
    }
    for (int part = 0; part < n_part; ++part) {
        int64_t left = end - at, count = ((n_part == 1) || (left < each)) ? left : each;

        k->cut[k->n_cut++] = (ct_bucket_cut){
            .first = i,
            .n = 1,
            .offset = at,
            .count = count,
            .part = part,
            .n_part = n_part,
            .coded = coded,
            .alone = alone,
        };
        at += count;
    }
}

const ct_codec_ops *ct_grad_range_codec(const ct_grad_pipe_config *config,
                                        const ct_grad_range *range,
                                        const ct_codec_config **config_p)
{
    bool own = (range->codec != NULL);
    const ct_codec_ops *codec = own ? range->codec : config->codec;
    const ct_codec_config *c = own ? range->codec_config : &config->codec_config;

    if (config_p != NULL) *config_p = c;
    if ((range->count <= 0) || (range->count > CT_CODEC_MOST) ||
        (range->count * (int64_t)sizeof(float) < c->min_bytes))
        return &ct_codec_none;
    if ((codec->takes != NULL) &&
        !codec->takes(c, range->count, (range->rows > 0) ? range->rows : 1))
        return &ct_codec_none;
    return codec;
}

static bool is_coded(const ct_grad_pipe_config *config, const ct_grad_range *range)
{
    return ct_grad_range_codec(config, range, NULL) != &ct_codec_none;
}

ct_status ct_bucket_partition_cut(const ct_grad_pipe_config *config, const ct_bucket_sizes *sizes,
                                  const ct_grad_range *range, int n_range, ct_bucket_cut **cut_p,
                                  int *n_cut_p)
{
    const int64_t element = (int64_t)sizeof(float);
    cutter k = { .sizes = sizes };
    int64_t room = 1;

    for (int i = 0; i < n_range; ++i) room += parts_of(&k, &range[i], is_coded(config, &range[i]));
    if (n_range > 0) {
        k.first = element * range[0].offset;
        k.end = element * (range[n_range - 1].offset + range[n_range - 1].count);
    }
    k.cut = malloc(sizeof(*k.cut) * (size_t)room);
    if (k.cut == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %lld buckets", (long long)room);
    for (int i = 0; i < n_range; ++i) cut_range(&k, &range[i], i, is_coded(config, &range[i]));
    *cut_p = k.cut;
    *n_cut_p = k.n_cut;
    return CT_OK;
}

/* ---- agreeing */

static uint64_t hash_name(const char *name)
{
    return ct_rng_hash((name != NULL) ? name : "auto");
}

static uint64_t bits_of(float f)
{
    uint32_t bits;

    memcpy(&bits, &f, sizeof(bits));
    return bits;
}

static uint64_t hash_codec(const ct_codec_ops *codec, const ct_codec_config *c)
{
    uint64_t h = ct_rng_key(ct_rng_hash(codec->name), bits_of(c->density), bits_of(c->local_clip));

    h = ct_rng_key(h, (uint64_t)c->warmup_iterations, (uint64_t)c->resync_iterations);
    h = ct_rng_key(h, bits_of(c->warmup_density), hash_name(c->exchange));
    h = ct_rng_key(h, 0, hash_name(c->selection));
    h = ct_rng_key(h, hash_name(c->wire), (uint64_t)c->rank + ((uint64_t)c->among << 32));
    return ct_rng_key(h, c->quantize,
                      4 * c->error_feedback + 2 * c->momentum_correction + c->mask_momentum);
}

static uint64_t hash_settings(const ct_grad_pipe_config *config)
{
    uint64_t h = hash_codec(config->codec, &config->codec_config);

    h = ct_rng_key(h, ct_rng_hash(config->allreduce), config->nesterov);
    h = ct_rng_key(h, bits_of(config->momentum), 0);
    h = ct_rng_key(h, (uint64_t)config->tune_iterations, (uint64_t)config->progress);
    h = ct_rng_key(h, config->reproducible, config->deterministic);
    return ct_rng_key(h, config->weights != NULL, config->overlap);
}

static uint64_t hash_bucket(const ct_bucket_cut *cut, const ct_grad_range *range)
{
    uint64_t h = ct_rng_key((uint64_t)cut->first, (uint64_t)cut->n, cut->coded);

    h = ct_rng_key(h, (uint64_t)cut->offset, (uint64_t)cut->count);
    h = ct_rng_key(h, (uint64_t)cut->part, (uint64_t)cut->n_part);
    for (int i = cut->first; i < cut->first + cut->n; ++i) {
        h = ct_rng_key(h, ct_rng_hash(range[i].key), (uint64_t)range[i].offset);
        h = ct_rng_key(h, (uint64_t)range[i].row_most, range[i].row_beside);
        h = ct_rng_key(h, (uint64_t)range[i].count,
                       (range[i].codec != NULL) ? hash_codec(range[i].codec, range[i].codec_config)
                                                : 0);
    }
    return h;
}

/* Every rank has come here with the same `at`: the first bucket that is not the same on all. */
static ct_status fail_at(ct_comm *c, const ct_grad_range *range, const ct_bucket_cut *cut,
                         int n_cut, int at)
{
    char mine[192] = "no such bucket", first[192];
    int64_t other = 0;

    if (at < n_cut) ct_bucket_name(&cut[at], range, mine, sizeof(mine));
    memcpy(first, mine, sizeof(first));
    CT_TRY(ct_comm_broadcast(c, first, sizeof(first)));
    other = (strcmp(mine, first) != 0) ? c->size - c->rank : 0;
    CT_TRY(ct_comm_max(c, &other, 1)); /* the lowest rank that differs from rank 0 */
    if (strcmp(mine, first) != 0)
        return CT_FAIL(CT_ERR_CONFIG,
                       "the ranks cut the gradients into different buckets: bucket %d is %s here, "
                       "and %s on rank 0; they do not run the same net or options",
                       at, mine, first);
    if (other == 0)
        return CT_FAIL(CT_ERR_CONFIG,
                       "the ranks cut the gradients into different buckets: bucket %d (%s) lies "
                       "elsewhere in the arena on some; they do not run the same net or options",
                       at, mine);
    return CT_FAIL(CT_ERR_CONFIG,
                   "the ranks cut the gradients into different buckets: bucket %d (%s) is another "
                   "on rank %lld; they do not run the same net or options",
                   at, mine, (long long)(c->size - other));
}

ct_status ct_bucket_partition_compare(ct_comm *c, const ct_grad_pipe_config *config,
                                      const ct_grad_range *range, const ct_bucket_cut *cut,
                                      int n_cut)
{
    int64_t settings = (int64_t)(hash_settings(config) >> 1);
    int64_t most[4] = { settings, -settings, n_cut, -n_cut }, *hash = NULL;
    int n = 0, at = 0;
    ct_status status = CT_OK;

    CT_TRY(ct_comm_max(c, most, 4));
    if (most[0] != -most[1])
        return CT_FAIL(CT_ERR_CONFIG,
                       "the ranks do not run with the same options: allreduce \"%s\", overlap %s, "
                       "compression %s, or others of comm and compression differ",
                       config->allreduce, config->overlap ? "true" : "false", config->codec->name);
    n = (int)-most[3];
    hash = malloc(sizeof(*hash) * (size_t)(2 * n + 1));
    if (hash == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d buckets", n);
    for (int i = 0; i < n; ++i) {
        hash[i] = (int64_t)(hash_bucket(&cut[i], range) >> 1);
        hash[n + i] = -hash[i];
    }
    CT_TRY_GOTO(status, done, ct_comm_max(c, hash, 2 * n));
    while ((at < n) && (hash[at] == -hash[n + at])) at += 1;
    if (at < most[2]) status = fail_at(c, range, cut, n_cut, at);

done:
    free(hash);
    return status;
}
