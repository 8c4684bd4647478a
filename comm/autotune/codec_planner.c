/* AUTO by the model: what it may take, what that costs, and the search of plans. */
#include "comm/autotune/codec_planner.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

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

static const double caution = 1.25; /* messages, while plans are searched … */
static const double in_doubt = 1.1; /* … and ranked */

/* ---- the cost of a plan */

static ct_step_timeline_message parcel_of(const ct_codec_planner *c, const ct_bucket_cut *cut,
                                          const int *way, double *bytes)
{
    ct_step_timeline_message p = { .first = cut->first, .n = cut->n, .n_part = cut->n_part };
    int64_t dense = cut->count * (int64_t)sizeof(float);
    const ct_codec_seconds *s = c->seconds + (size_t)cut->first * CT_CODEC_CANDIDATES;
    bool owned = (c->line->owned > 0) && (c->n_rank > 1); /* weights are counted where they go */

    if (owned) {
        p.count = cut->count;
        p.gather_s = c->gather_s(c->ctx, dense);
    }
    if (!cut->coded) {
        if (c->n_rank > 1) p.wire_s = c->dense_s(c->ctx, dense);
        *bytes += (owned ? 1.0 : 2.0) * (double)dense * (c->n_rank - 1) / c->n_rank;
        return p;
    }
    if (way[cut->first] > 0) s += way[cut->first];
    p.encode_s = s->encode_s;
    p.wire_s = s->wire_s;
    p.decode_s = owned ? s->decode_s * c->line->owned : s->decode_s;
    *bytes += owned ? s->bytes / 2 : s->bytes; /* half of a sum */
    return p;
}

static ct_status cost_of_cuts(const ct_codec_planner *c, const ct_bucket_cut *cut, int n,
                              ct_codec_plan *plan)
{
    ct_step_timeline_message *parcel = calloc((size_t)n + 1, sizeof(*parcel));
    ct_status status = CT_OK;

    if (parcel == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d buckets", n);
    plan->bytes = 0;
    for (int i = 0; i < n; ++i) {
        parcel[i] = parcel_of(c, &cut[i], plan->way, &plan->bytes);
        if (c->caution > 0) parcel[i].wire_s *= c->caution;
    }
    status = ct_step_timeline_run(c->line, parcel, n, &plan->times);
    plan->apart = false;
    if ((status == CT_OK) && (c->apart != NULL)) {
        ct_step_timeline_times times;

        status = ct_step_timeline_run(c->apart, parcel, n, &times);
        plan->apart = (times.step_s < plan->times.step_s);
        if (plan->apart) plan->times = times;
    }
    plan->bytes += sizeof(float) * plan->times.gathered * (c->n_rank - 1) / c->n_rank;
    free(parcel);
    return status;
}

ct_status ct_codec_planner_cost(const ct_codec_planner *c, ct_codec_plan *plan)
{
    ct_grad_range *range = malloc(sizeof(*range) * ((size_t)c->n_range + 1));
    ct_bucket_cut *cut = NULL;
    int n = 0;
    ct_status status = CT_OK;

    if (range == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d gradients", c->n_range);
    if (c->n_range > 0) memcpy(range, c->range, sizeof(*range) * (size_t)c->n_range);
    ct_codec_planner_apply(c->ways, plan->way, range, c->n_range);
    status = ct_bucket_partition_cut(c->config, c->sizes, range, c->n_range, &cut, &n);
    if (status == CT_OK) status = cost_of_cuts(c, cut, n, plan);
    free(cut);
    free(range);
    return status;
}

/* ---- the search */

/* Messages hide behind other buckets' coding, and the other way round; neither may take longer than
 * the dense bucket with nothing to hide behind. */
static bool may_gain(const ct_codec_planner *c, int i, int w)
{
    const ct_codec_seconds *s = c->seconds + (size_t)i * CT_CODEC_CANDIDATES + w;

    double dense_s = c->dense_s(c->ctx, c->range[i].count * (int64_t)sizeof(float));

    return (s->wire_s < dense_s) && (s->encode_s + s->decode_s < dense_s);
}

static ct_status make_plan(const ct_codec_planner *c, ct_codec_plan *p)
{
    *p = (ct_codec_plan){ .way = malloc(sizeof(*p->way) * ((size_t)c->n_range + 1)) };
    if (p->way == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d gradients", c->n_range);
    for (int i = 0; i < c->n_range; ++i)
        p->way[i] = ct_codec_planner_decides(c->config, &c->range[i]) ? 0 : -1;
    return CT_OK;
}

/* Range i goes way w if the step is then shorter, dense also if it is not longer. */
static ct_status offer(const ct_codec_planner *c, ct_codec_plan *p, int i, int w)
{
    double before = p->times.step_s;
    int old = p->way[i];
    ct_codec_plan tried = *p; /* the same list of ways */

    if (old == w) return CT_OK;
    p->way[i] = w;
    CT_TRY(ct_codec_planner_cost(c, &tried));
    if ((tried.times.step_s < before) || ((w == 0) && (tried.times.step_s <= before))) {
        *p = tried;
        return CT_OK;
    }
    p->way[i] = old;
    return CT_OK;
}

/* All ranges that may gain go way w, then each is offered to be dense, and the other way round;
 * down: from all coded, else from all dense. */
static ct_status search(const ct_codec_planner *c, int w, bool down, ct_codec_plan *p)
{
    for (int i = 0; down && (i < c->n_range); ++i) {
        if ((p->way[i] == 0) && may_gain(c, i, w)) p->way[i] = w;
    }
    CT_TRY(ct_codec_planner_cost(c, p));
    for (int turn = 0; turn < 2; ++turn) {
        bool to_dense = ((turn == 0) == down);

        for (int i = 0; i < c->n_range; ++i) {
            if (p->way[i] < 0) continue;
            if (to_dense)
                CT_TRY(offer(c, p, i, 0));
            else if (may_gain(c, i, w))
                CT_TRY(offer(c, p, i, w));
        }
    }
    return CT_OK;
}

/* The better of both searches. */
static ct_status search_both(const ct_codec_planner *c, int w, ct_codec_plan *p)
{
    ct_codec_plan up;
    ct_status status = make_plan(c, p);

    if (status == CT_OK) status = search(c, w, true, p);
    CT_TRY(status);
    status = make_plan(c, &up);
    if (status == CT_OK) status = search(c, w, false, &up);
    if ((status == CT_OK) && (up.times.step_s < p->times.step_s)) {
        ct_codec_plan swap = *p;

        *p = up;
        up = swap;
    }
    free(up.way);
    return status;
}

/* Each range of the plan is offered the other ways. */
static ct_status mix(const ct_codec_planner *c, ct_codec_plan *p)
{
    for (int i = 0; i < c->n_range; ++i) {
        for (int w = 1; (p->way[i] >= 0) && (w < c->ways->n); ++w) {
            if (may_gain(c, i, w)) CT_TRY(offer(c, p, i, w));
        }
    }
    return CT_OK;
}

static int by_step(const void *a, const void *b)
{
    const ct_codec_plan *x = a, *y = b;

    return (x->careful_s > y->careful_s) - (x->careful_s < y->careful_s);
}

static bool same(const ct_codec_planner *c, const ct_codec_plan *a, const ct_codec_plan *b)
{
    return memcmp(a->way, b->way, sizeof(*a->way) * (size_t)c->n_range) == 0;
}

/* Puts p in if it is new and gains enough; p is then the list's. */
static void keep(ct_codec_planner *c, double dense_s, ct_codec_plan *p)
{
    bool good = (p->times.step_s < (1 - c->margin) * dense_s);

    for (int k = 0; good && (k < c->n_plan); ++k) good = !same(c, &c->plan[k], p);
    if (!good) {
        free(p->way);
        return;
    }
    c->plan[c->n_plan++] = *p;
}

static bool any_gain(const ct_codec_planner *c, int w)
{
    for (int i = 0; i < c->n_range; ++i) {
        if (ct_codec_planner_decides(c->config, &c->range[i]) && may_gain(c, i, w)) return true;
    }
    return false;
}

/* Searched and ranked with caution, kept for what it takes without. */
static ct_status keep_searched(ct_codec_planner *c, double dense_s, ct_codec_plan *p,
                               ct_status status)
{
    ct_codec_planner doubting = *c;

    doubting.caution = in_doubt;
    if (status == CT_OK) status = ct_codec_planner_cost(&doubting, p);
    p->careful_s = p->times.step_s;
    if (status == CT_OK) status = ct_codec_planner_cost(c, p);
    if (status != CT_OK) {
        free(p->way);
        return status;
    }
    keep(c, dense_s, p);
    qsort(c->plan, (size_t)c->n_plan, sizeof(c->plan[0]), by_step);
    return CT_OK;
}

static ct_status find_plans(ct_codec_planner *c, double dense_s)
{
    ct_codec_planner careful = *c;
    ct_codec_plan p;
    ct_status status = CT_OK;

    careful.caution = caution;
    for (int w = 1; w < c->ways->n; ++w) {
        if (!any_gain(c, w)) continue;
        p = (ct_codec_plan){ .way = NULL };
        status = search_both(&careful, w, &p);
        CT_TRY(keep_searched(c, dense_s, &p, status));
    }
    if (c->n_plan == 0) return CT_OK;
    CT_TRY(make_plan(c, &p));
    memcpy(p.way, c->plan[0].way, sizeof(*p.way) * (size_t)c->n_range);
    status = ct_codec_planner_cost(&careful, &p);
    if (status == CT_OK) status = mix(&careful, &p);
    return keep_searched(c, dense_s, &p, status);
}

/* As if nothing hid behind anything: then ranges do not hang on each other. */
static ct_status find_alone(ct_codec_planner *c)
{
    CT_TRY(make_plan(c, &c->alone));
    for (int i = 0; i < c->n_range; ++i) {
        double least = c->dense_s(c->ctx, c->range[i].count * (int64_t)sizeof(float));

        for (int w = 1; (c->alone.way[i] >= 0) && (w < c->ways->n); ++w) {
            const ct_codec_seconds *s = c->seconds + (size_t)i * CT_CODEC_CANDIDATES + w;
            double all = s->encode_s + s->wire_s + s->decode_s;

            if (all >= least) continue;
            least = all;
            c->alone.way[i] = w;
        }
    }
    return ct_codec_planner_cost(c, &c->alone);
}

ct_status ct_codec_planner_run(ct_codec_planner *c)
{
    ct_codec_plan dense;
    ct_status status = CT_OK;

    c->n_plan = 0;
    c->alone = (ct_codec_plan){ .way = NULL };
    CT_TRY(make_plan(c, &dense));
    status = ct_codec_planner_cost(c, &dense);
    if ((status == CT_OK) && (c->n_rank > 1)) status = find_plans(c, dense.times.step_s);
    if ((status == CT_OK) && (c->n_rank > 1)) status = find_alone(c);
    c->plan[c->n_plan++] = dense; /* to be released in any case */
    return status;
}

void ct_codec_planner_release(ct_codec_planner *c)
{
    for (int k = 0; k < c->n_plan; ++k) free(c->plan[k].way);
    free(c->alone.way);
    c->alone.way = NULL;
    c->n_plan = 0;
}
