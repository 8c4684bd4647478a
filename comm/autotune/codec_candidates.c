/* What AUTO may take, and what that costs. */
#include <math.h>
#include <string.h>

#include "comm/autotune/codec_planner.h"
#include "comm/codec/codec_types.h"

static bool is_auto(const char *name)
{
    return (name == NULL) || (strcmp(name, "auto") == 0);
}

static void add_way(const ct_coded_ops *ops, const ct_codec_config *c, const char *exchange,
                    ct_choose_ways *out)
{
    ct_choose_way *w = &out->way[out->n];

    if (out->n == CT_CHOOSE_WAYS) return;
    *w = (ct_choose_way){ .ops = ops, .config = *c };
    w->config.among = 0;
    w->config.momentum_correction = ops->absorbs && c->momentum_correction;
    if (exchange != NULL) w->config.exchange = exchange;
    out->n += 1;
}

static bool is_allowed(const ct_codec_config *c, int i)
{
    const ct_coded_ops *ops = ct_coded_table[i];

    if ((ops->seconds == NULL) || (ops->size == 0)) return false;
    return (c->among != 0) ? ((c->among >> i) & 1) != 0 : ops->automatic;
}

ct_status ct_choose_list(const ct_codec_config *c, bool deterministic, ct_choose_ways *out)
{
    out->n = 0;
    add_way(&ct_coded_none, c, NULL, out);
    for (int i = 0; ct_coded_table[i] != NULL; ++i) {
        const ct_coded_ops *ops = ct_coded_table[i];

        if (!is_allowed(c, i)) continue;
        if (!ops->sparse || !is_auto(c->exchange)) {
            add_way(ops, c, NULL, out);
            continue;
        }
        for (int kind = 0; kind < CT_EXCH_KINDS; ++kind) {
            if (deterministic && (kind == CT_EXCH_OKTOPK)) continue;
            add_way(ops, c, ct_exch_kind_name((ct_exch_kind)kind), out);
        }
    }
    if (out->n < 2) return CT_FAIL(CT_ERR_CONFIG, "compression auto: no codec is left to choose");
    for (int w = 1; w < out->n; ++w)
        CT_TRY(ct_coded_check(out->way[w].ops, &out->way[w].config, "compression auto"));
    return CT_OK;
}

bool ct_choose_is_open(const ct_grad_pipe_config *config, const ct_grad_range *range)
{
    return (range->codec == NULL) && (range->count > 0) && (range->count <= CT_CODED_MOST) &&
           (range->count * (int64_t)sizeof(float) >= config->codec_config.min_bytes);
}

/* Where gradients are on a device, so is the codec. */
static const ct_coded_ops *used(const ct_coded_costs *m, const ct_coded_ops *ops)
{
    return (m->bus.there && (ops->on_device != NULL)) ? ops->on_device : ops;
}

void ct_choose_seconds(const ct_coded_costs *m, const ct_grad_pipe_config *config,
                       const ct_grad_range *range, int n_range, const ct_choose_ways *ways,
                       ct_coded_seconds *seconds)
{
    for (int i = 0; i < n_range; ++i) {
        ct_coded_seconds *s = seconds + (size_t)i * CT_CHOOSE_WAYS;
        int64_t rows = (range[i].rows > 0) ? range[i].rows : 1;

        memset(s, 0, sizeof(*s) * CT_CHOOSE_WAYS);
        if ((range[i].codec != NULL) && (range[i].codec->seconds != NULL))
            used(m, range[i].codec)->seconds(m, range[i].codec_config, range[i].count, rows, s);
        if (!ct_choose_is_open(config, &range[i])) continue;
        for (int w = 1; w < ways->n; ++w) {
            const ct_choose_way *way = &ways->way[w];

            used(m, way->ops)->seconds(m, &way->config, range[i].count, rows, &s[w]);
        }
    }
}

void ct_choose_apply(const ct_choose_ways *ways, const int *way, ct_grad_range *range, int n_range)
{
    for (int i = 0; i < n_range; ++i) {
        if (way[i] < 0) continue;
        range[i].codec = ways->way[way[i]].ops;
        range[i].codec_config = &ways->way[way[i]].config;
    }
}
