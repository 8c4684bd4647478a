#include "comm/grad_plan.h"

#include <stdlib.h>
#include <string.h>

#include "comm/codec_types.h"
#include "comm/repro_code.h"
#include "framework/base/rng.h"

static ct_status check(const ct_grad_pipe_config *config, const ct_grad_range *range, int n_range)
{
    const ct_codec_config *codec = &config->codec_config;
    int64_t end = 0;

    if ((config->codec == NULL) || (config->allreduce == NULL))
        return CT_FAIL(CT_ERR_ARG, "a gradient pipe without codec or allreduce");
    if (config->bucket_bytes < 1)
        return CT_FAIL(CT_ERR_CONFIG, "buckets of %lld bytes", (long long)config->bucket_bytes);
    if ((config->codec->combine == CT_COMBINE_GATHER) &&
        !((codec->density > 0) && (codec->density <= 1)))
        return CT_FAIL(CT_ERR_CONFIG, "compression %s: density %g, but 0 < density <= 1 is needed",
                       config->codec->name, (double)codec->density);
    if ((codec->min_bytes < 0) || (codec->warmup_iterations < 0))
        return CT_FAIL(CT_ERR_CONFIG, "compression %s: min_bytes %lld, warm-up %lld",
                       config->codec->name, (long long)codec->min_bytes,
                       (long long)codec->warmup_iterations);
    if (config->reproducible && (config->codec != &ct_codec_none))
        return CT_FAIL(CT_ERR_CONFIG,
                       "reproducible_sum: true, but compression %s rounds what it sends in an "
                       "order that depends on buckets and placement: use one or the other",
                       config->codec->name);
    for (int i = 0; i < n_range; ++i) {
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

ct_status ct_grad_plan_cut(const ct_grad_pipe_config *config, const ct_grad_range *range,
                           int n_range, ct_bucket_cut **cut_p, int *n_cut_p)
{
    ct_bucket_cut *cut = NULL;
    int n_cut = 0;

    CT_TRY(check(config, range, n_range));
    cut = malloc(sizeof(*cut) * (size_t)(n_range + 1));
    if (cut == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d buckets", n_range);
    for (int i = 0; i < n_range; ++i) {
        int64_t bytes = range[i].count * (int64_t)sizeof(float);
        bool coded = (config->codec != &ct_codec_none) && (range[i].count > 0) &&
                     (bytes >= config->codec_config.min_bytes);
        ct_bucket_cut *last = (n_cut > 0) ? &cut[n_cut - 1] : NULL;
        int64_t end = range[i].offset + range[i].count;

        if ((last != NULL) && !last->coded && !coded &&
            ((end - last->offset) * (int64_t)sizeof(float) <= config->bucket_bytes)) {
            last->n += 1;
            last->count = end - last->offset;
            continue;
        }
        cut[n_cut++] = (ct_bucket_cut){
            .first = i, .n = 1, .offset = range[i].offset, .count = range[i].count, .coded = coded
        };
    }
    *cut_p = cut;
    *n_cut_p = n_cut;
    return CT_OK;
}

uint64_t ct_grad_plan_hash(const ct_grad_pipe_config *config, const ct_grad_range *range,
                           int n_range, const ct_bucket_cut *cut, int n_cut)
{
    uint64_t h = ct_rng_hash(config->codec->name);
    uint32_t density;

    memcpy(&density, &config->codec_config.density, sizeof(density));
    h = ct_rng_key(h, ct_rng_hash(config->allreduce), density);
    h = ct_rng_key(h, (uint64_t)config->codec_config.warmup_iterations, config->overlap);
    h = ct_rng_key(h, config->reproducible, config->deterministic);
    for (int i = 0; i < n_range; ++i) {
        h = ct_rng_key(h, ct_rng_hash(range[i].key), (uint64_t)range[i].offset);
        h = ct_rng_key(h, (uint64_t)range[i].count, 0);
    }
    for (int b = 0; b < n_cut; ++b) {
        h = ct_rng_key(h, (uint64_t)cut[b].first, (uint64_t)cut[b].n);
        h = ct_rng_key(h, (uint64_t)cut[b].offset, (uint64_t)cut[b].count);
        h = ct_rng_key(h, cut[b].coded, 1);
    }
    return h;
}
