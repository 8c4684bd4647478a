/* What AUTO may take, and what that costs. */
#include <math.h>
#include <string.h>

#include "comm/autotune/codec_planner.h"
#include "comm/codec/codec_types.h"

static bool is_auto(const char *name)
{
    return (name == NULL) || (strcmp(name, "auto") == 0);
}

static void add_way(const ct_codec_ops *ops, const ct_codec_config *c, const char *exchange,
                    ct_codec_candidates *out)
{
    ct_codec_candidate *w = &out->way[out->n];

    if (out->n == CT_CODEC_CANDIDATES) return;
    *w = (ct_codec_candidate){ .ops = ops, .config = *c };
    w->config.among = 0;
    w->config.momentum_correction = ct_codec_corrects(ops, c);
    if (exchange != NULL) w->config.exchange = exchange;
    out->n += 1;
}

static bool is_allowed(const ct_codec_config *c, int i)
{
    const ct_codec_ops *ops = ct_codec_table[i];

    if ((ops->seconds == NULL) || (ops->size == 0)) return false;
    return (c->among != 0) ? ((c->among >> i) & 1) != 0 : ops->automatic;
}

ct_status ct_codec_candidates_list(const ct_codec_config *c, bool deterministic,
                                   ct_codec_candidates *out)
{
    out->n = 0;
    add_way(&ct_codec_none, c, NULL, out);
    for (int i = 0; ct_codec_table[i] != NULL; ++i) {
        const ct_codec_ops *ops = ct_codec_table[i];

        if (!is_allowed(c, i)) continue;
        if (!ct_codec_is_sparse(ops) || !is_auto(c->exchange)) {
            add_way(ops, c, NULL, out);
            continue;
        }
        for (int kind = 0; kind < CT_SPARSE_ALLREDUCE_KINDS; ++kind) {
            if (deterministic && (kind == CT_SPARSE_ALLREDUCE_OKTOPK)) continue;
            add_way(ops, c, ct_sparse_allreduce_kind_name((ct_sparse_allreduce_kind)kind), out);
        }
    }
    if (out->n < 2) return CT_FAIL(CT_ERR_CONFIG, "compression auto: no codec is left to choose");
    for (int w = 1; w < out->n; ++w)
        CT_TRY(ct_codec_check(out->way[w].ops, &out->way[w].config, "compression auto"));
    return CT_OK;
}

bool ct_codec_planner_decides(const ct_grad_pipe_config *config, const ct_grad_range *range)
{
    return (range->codec == NULL) && (range->count > 0) && (range->count <= CT_CODEC_MOST) &&
           (range->count * (int64_t)sizeof(float) >= config->codec_config.min_bytes);
}

void ct_codec_planner_seconds(const ct_codec_costs *m, const ct_grad_pipe_config *config,
                              const ct_grad_range *range, int n_range,
                              const ct_codec_candidates *ways, ct_codec_seconds *seconds)
{
    for (int i = 0; i < n_range; ++i) {
        ct_codec_seconds *s = seconds + (size_t)i * CT_CODEC_CANDIDATES;
        int64_t rows = (range[i].rows > 0) ? range[i].rows : 1;

        memset(s, 0, sizeof(*s) * CT_CODEC_CANDIDATES);
        if ((range[i].codec != NULL) && (range[i].codec->seconds != NULL))
            range[i].codec->seconds(m, range[i].codec_config, range[i].count, rows, s);
        if (!ct_codec_planner_decides(config, &range[i])) continue;
        for (int w = 1; w < ways->n; ++w) {
            const ct_codec_candidate *way = &ways->way[w];

            way->ops->seconds(m, &way->config, range[i].count, rows, &s[w]);
        }
    }
}

void ct_codec_planner_apply(const ct_codec_candidates *ways, const int *way, ct_grad_range *range,
                            int n_range)
{
    for (int i = 0; i < n_range; ++i) {
        if (way[i] < 0) continue;
        range[i].codec = ways->way[way[i]].ops;
        range[i].codec_config = &ways->way[way[i]].config;
    }
}
