#include "planner/job_search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/clock.h"
#include "planner/job_exact.h"
#include "planner/node_orders.h"
#include "planner/stage_cuts.h"

/* Plans of even cuts that are simulated. */
#define MOST_UNIFORM 8
/* Configurations whose least memory is looked for, and halvings of the limit for each. */
#define MOST_LEAST 6
#define HALVINGS   12

/* A configuration, and what none of its plans is below. */
typedef struct candidate {
    ct_job_config config;
    double bound_s;
    int number; /* in the order in which they are made */
} candidate;

/* The best cuts of a configuration. */
typedef struct found {
    const candidate *of;
    double estimate_s;
    int *first; /* [n_stage + 1] */
} found;

typedef struct searcher {
    const ct_job_search_request *q;
    ct_job_search *out;
    ct_node_orders orders;
    int n_candidate, most_candidate;
    candidate *candidate;
    int n_found;
    found found[CT_JOB_MOST_PLANS];
} searcher;

/* ---- a configuration's stages */

/* What the cuts are made of. */
typedef struct stages {
    searcher *s;
    const ct_job_config *c;
    ct_job_stage **stage; /* [n_stage] */
    int64_t *share;       /* [n_stage][data] */
    double *cut_s;        /* [n_stage][n_block] */
    int *way;             /* [n_block] the fastest of the whole net */
} stages;

static void close_stages(stages *g)
{
    free(g->stage);
    free(g->share);
    free(g->cut_s);
    free(g->way);
}

static ct_status look(void *ctx, int stage, int first, int end, ct_stage_time *time_p,
                      bool *exact_p)
{
    stages *g = ctx;
    ct_job_run r;

    CT_TRY(
        ct_job_stage_look(g->stage[stage], first, end, ct_job_in_flight(g->c, stage), &r, exact_p));
    *time_p = (ct_stage_time){ r.time_s, r.sums_s };
    return CT_OK;
}

static ct_status settle(void *ctx, int stage, int first, int end)
{
    stages *g = ctx;

    return ct_job_stage_settle(g->stage[stage], first, end, ct_job_in_flight(g->c, stage));
}

static ct_status fill_cuts(stages *g)
{
    const ct_job_net *n = g->s->q->net;
    ct_chain_mode *mode = calloc((size_t)n->n_block, sizeof(*mode));
    bool fits;
    ct_status status;

    if (mode == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d blocks", n->n_block);
    status = ct_job_stage_choose(g->stage[0], 0, n->n_block, 1, -INFINITY, g->way, mode, &fits);
    free(mode);
    for (int s = 0; (s + 1 < g->c->n_stage) && (status == CT_OK); s++) {
        const int64_t *share = g->share + (size_t)s * (size_t)g->c->data;
        ct_job_layout l = ct_job_layout_of(&g->s->out->space, g->c);
        ct_job_link link = ct_job_cut_link(&l, s, s + 1);
        double samples = (double)ct_job_most_share(share, g->c->data);

        for (int b = 0; b < n->n_block; b++) {
            double *cut_s = &g->cut_s[(size_t)s * (size_t)n->n_block + (size_t)b];

            *cut_s = INFINITY;
            if (!n->block[b].may_cut) continue;
            *cut_s = link.latency_s +
                     link.byte_s * samples * ct_job_heard_bytes(n, g->c->tensor, b, g->way[b]);
        }
    }
    return status;
}

static ct_status open_stages(searcher *s, const ct_job_config *c, stages *g)
{
    size_t n = (size_t)c->n_stage, blocks = (size_t)s->q->net->n_block;
    ct_job_space *space = &s->out->space;

    *g = (stages){ .s = s, .c = c };
    g->stage = calloc(n, sizeof(*g->stage));
    g->share = calloc(n * (size_t)c->data, sizeof(*g->share));
    g->cut_s = calloc(n * blocks, sizeof(*g->cut_s));
    g->way = calloc(blocks, sizeof(*g->way));
    if ((g->stage == NULL) || (g->share == NULL) || (g->cut_s == NULL) || (g->way == NULL))
        return CT_FAIL(CT_ERR_NOMEM, "no memory for %d stages", c->n_stage);
    ct_job_space_trim(space);
    for (int i = 0; i < c->n_stage; i++) {
        int64_t *share = g->share + (size_t)i * (size_t)c->data;

        CT_TRY(ct_job_shares(space, c, i, share));
        CT_TRY(ct_job_space_stage(space, c, i, share, &g->stage[i]));
    }
    return fill_cuts(g);
}

/* The fastest stage would take so long for all blocks; together the stages do all of them. */
static double bound_of(const stages *g)
{
    int n = g->s->q->net->n_block;
    double fastest = INFINITY;

    for (int i = 0; i < g->c->n_stage; i++)
        fastest = fmin(fastest, ct_job_stage_whole_s(g->stage[i], 0, n));
    return fastest + (double)(g->c->micro_batches - 1) * fastest / g->c->n_stage;
}

/* ---- all configurations */

static bool may_be(int64_t fixed, int64_t value)
{
    return (fixed == 0) || (fixed == value);
}

static ct_status add_candidate(searcher *s, const ct_job_config *c)
{
    candidate new = { .config = *c, .number = s->n_candidate };
    stages g = { 0 };
    ct_status status;

    if (s->n_candidate == s->most_candidate) {
        int most = 2 * s->most_candidate + 64;
        candidate *more = realloc(s->candidate, (size_t)most * sizeof(*more));

        if (more == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d configurations", most);
        s->candidate = more;
        s->most_candidate = most;
    }
    status = open_stages(s, c, &g);
    if (status == CT_OK) {
        new.bound_s = bound_of(&g);
        if (isfinite(new.bound_s)) s->candidate[s->n_candidate++] = new;
    }
    close_stages(&g);
    return (status == CT_UNSUPPORTED) ? CT_OK : status;
}

/* Sums at the end of a step count when ways are chosen, or not. */
static ct_status add_hidings(searcher *s, ct_job_config c)
{
    c.hides_sums = false;
    CT_TRY(add_candidate(s, &c));
    if (c.tensor == 1) return CT_OK;
    c.hides_sums = true;
    return add_candidate(s, &c);
}

/* The ways of a tied table: with its ranks' samples, whole on each, or split. */
static ct_status add_ties(searcher *s, ct_job_config c)
{
    c.tie_way = -1;
    if ((s->q->net->tie_first < 0) || (c.tensor == 1)) return add_hidings(s, c);
    for (c.tie_way = CT_JOB_BATCH; c.tie_way <= CT_JOB_OUTPUT; c.tie_way++)
        CT_TRY(add_hidings(s, c));
    return CT_OK;
}

static ct_status add_micro_batches(searcher *s, ct_job_config c)
{
    int64_t batch = s->q->batch;

    for (int64_t m = 1; m <= batch / c.data; m++) {
        if ((batch % m != 0) || !may_be(s->q->fix.micro_batches, m)) continue;
        if ((m > 1) && s->q->net->one_micro_batch) break;
        c.micro_batches = m;
        for (int i = 0; i < s->orders.n; i++) {
            c.order = s->orders.order + (size_t)i * (size_t)s->q->machine->n_node;
            CT_TRY(add_ties(s, c));
        }
    }
    return CT_OK;
}

static ct_status add_stages(searcher *s, int tensor)
{
    const ct_job_fix *fix = &s->q->fix;
    int groups = s->q->machine->n_rank / tensor;

    for (int n = 1; (n <= groups) && (n <= s->q->net->n_block); n++) {
        ct_job_config c = {
            .tensor = tensor, .data = groups / n, .n_stage = n, .zero = s->q->zero
        };
        /* two stages read the table that they share at unlike times */
        bool shares = (n == 1) || (c.zero < 3) || (s->q->net->tie_first < 0);

        if ((groups % n != 0) || !may_be(fix->n_stage, n) || (fix->data && (n > 1)) || !shares)
            continue;
        CT_TRY(add_micro_batches(s, c));
    }
    return CT_OK;
}

static ct_status add_all(searcher *s)
{
    const ct_job_machine *m = s->q->machine;
    const ct_job_fix *fix = &s->q->fix;

    for (int t = 1; (t <= m->n_rank) && (t <= CT_JOB_MOST_TENSOR); t++) {
        int k = m->ranks_per_node;
        const ct_job_split *split;

        if ((m->n_rank % t != 0) || ((k % t != 0) && (t % k != 0))) continue;
        if (!may_be(fix->tensor, t) || (fix->data && (t > 1))) continue;
        CT_TRY(ct_job_space_split(&s->out->space, t, &split));
        if ((t > 1) && !ct_job_split_splits(split)) continue;
        CT_TRY(add_stages(s, t));
    }
    if (s->n_candidate == 0)
        return CT_FAIL(CT_ERR_CONFIG,
                       "no plan is as asked: %d ranks, %d on a node, %lld samples, %d blocks",
                       m->n_rank, m->ranks_per_node, (long long)s->q->batch, s->q->net->n_block);
    return CT_OK;
}

static int by_bound(const void *a, const void *b)
{
    const candidate *x = a, *y = b;

    if (x->bound_s != y->bound_s) return (x->bound_s < y->bound_s) ? -1 : 1;
    return x->number - y->number;
}

/* ---- cuts */

static void keep_found(searcher *s, const found *f)
{
    int i;

    if (s->n_found == CT_JOB_MOST_PLANS) free(s->found[--s->n_found].first);
    for (i = s->n_found++; (i > 0) && (s->found[i - 1].estimate_s > f->estimate_s); i--)
        s->found[i] = s->found[i - 1];
    s->found[i] = *f;
}

static double worst_found(const searcher *s)
{
    return (s->n_found < CT_JOB_MOST_PLANS) ? INFINITY : s->found[s->n_found - 1].estimate_s;
}

static ct_status cut(searcher *s, const candidate *k)
{
    stages g;
    found f = { .of = k };
    ct_stage_cuts c = { .n_stage = k->config.n_stage,
                        .n_block = s->q->net->n_block,
                        .micro_batches = k->config.micro_batches,
                        .look = look,
                        .settle = settle };
    ct_status status = open_stages(s, &k->config, &g);

    c.ctx = &g;
    c.cut_s = g.cut_s;
    f.first = calloc((size_t)c.n_stage + 1, sizeof(*f.first));
    if (f.first == NULL) status = CT_FAIL(CT_ERR_NOMEM, "no memory for %d stages", c.n_stage);
    if (status == CT_OK) status = ct_stage_cuts_solve(&c, worst_found(s), f.first, &f.estimate_s);
    close_stages(&g);
    if ((status == CT_OK) && isfinite(f.estimate_s))
        keep_found(s, &f);
    else
        free(f.first);
    return status;
}

static ct_status cut_all(searcher *s)
{
    s->out->n_configuration = s->n_candidate;
    for (int i = 0; i < s->n_candidate; i++) {
        if (s->candidate[i].bound_s > worst_found(s)) break;
        CT_TRY(cut(s, &s->candidate[i]));
    }
    return CT_OK;
}

/* ---- plans */

static int by_step(const void *a, const void *b)
{
    const ct_job_plan *x = a, *y = b;

    if (x->step_s != y->step_s) return (x->step_s < y->step_s) ? -1 : 1;
    return (x->estimate_s > y->estimate_s) - (x->estimate_s < y->estimate_s);
}

/* Groups of which each rank has its samples are replicas: another configuration. */
static bool is_in_disguise(const searcher *s, const ct_job_plan *p)
{
    if ((p->config.tensor == 1) || (s->q->fix.tensor > 0)) return false;
    for (int b = 0; b < s->q->net->n_block; b++) {
        if (p->way[b] != CT_JOB_BATCH) return false;
    }
    return true;
}

static bool is_known(const searcher *s, const ct_job_plan *p)
{
    size_t n = (size_t)s->q->net->n_block;

    if (is_in_disguise(s, p)) return true;
    for (int i = 0; i < s->out->n; i++) {
        const ct_job_plan *o = &s->out->plan[i];

        if ((o->config.tensor == p->config.tensor) && (o->config.n_stage == p->config.n_stage) &&
            (o->config.micro_batches == p->config.micro_batches) && (o->step_s == p->step_s) &&
            (memcmp(o->way, p->way, n * sizeof(*p->way)) == 0) &&
            (memcmp(o->mode, p->mode, n * sizeof(*p->mode)) == 0))
            return true;
    }
    return false;
}

static ct_status add_plan(searcher *s, const ct_job_config *c, const int *first, bool keep,
                          double estimate_s)
{
    ct_job_search *o = s->out;
    ct_job_plan plan;
    ct_status status = ct_job_plan_make(&o->space, c, first, keep, &plan);

    plan.estimate_s = estimate_s;
    if ((status == CT_OK) && plan.fits && !is_known(s, &plan))
        o->plan[o->n++] = plan;
    else
        ct_job_plan_destroy(&plan);
    return status;
}

static int identity(searcher *s, int **order_p)
{
    int n = s->q->machine->n_node;

    *order_p = malloc((size_t)n * sizeof(**order_p));
    for (int i = 0; (*order_p != NULL) && (i < n); i++) (*order_p)[i] = i;
    return n;
}

/* Today's step, and whether it fits. */
static ct_status make_data(searcher *s)
{
    int first[2] = { 0, s->q->net->n_block }, *order;
    ct_job_config c = { .tensor = 1,
                        .data = s->q->machine->n_rank,
                        .n_stage = 1,
                        .micro_batches = 1,
                        .tie_way = -1,
                        .zero = s->q->zero,
                        .even = true };
    ct_status status;

    if (s->q->batch < s->q->machine->n_rank) return CT_OK;
    identity(s, &order);
    if (order == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for an order");
    c.order = order;
    status = ct_job_plan_make(&s->out->space, &c, first, true, &s->out->data);
    free(order);
    if ((status == CT_OK) && s->q->in_bytes)
        status = ct_job_plan_fit(&s->out->space, &s->q->net->options, &s->out->data, true);
    return status;
}

/* ---- uniform plans */

typedef struct even {
    const candidate *of;
    double estimate_s;
} even;

static void cut_evenly(int n_block, int n_stage, int *first)
{
    first[0] = 0;
    for (int i = 0; i < n_stage; i++)
        first[i + 1] = first[i] + n_block / n_stage + ((i < n_block % n_stage) ? 1 : 0);
}

static ct_status estimate_evenly(searcher *s, const candidate *k, int *first, double *estimate_s_p)
{
    ct_job_config config = k->config;
    stages g;
    ct_stage_cuts c = { .n_stage = config.n_stage,
                        .n_block = s->q->net->n_block,
                        .micro_batches = config.micro_batches,
                        .look = look,
                        .ctx = &g };
    ct_status status;

    config.even = true;
    status = open_stages(s, &config, &g);
    c.cut_s = g.cut_s;
    *estimate_s_p = INFINITY;
    if (status == CT_OK) {
        bool exact = true, all = true;

        cut_evenly(c.n_block, c.n_stage, first);
        for (int i = 0; i < c.n_stage; i++) {
            ct_stage_time t;

            if (status == CT_OK) status = look(&g, i, first[i], first[i + 1], &t, &exact);
            all = all && exact && ((i == 0) || s->q->net->block[first[i]].may_cut);
        }
        if (all && (status == CT_OK)) status = ct_stage_cuts_time(&c, first, estimate_s_p);
    }
    close_stages(&g);
    return status;
}

static ct_status make_even(searcher *s, const even *e, int *first, ct_job_plan *plan)
{
    ct_job_config c = e->of->config;

    c.even = true;
    cut_evenly(s->q->net->n_block, c.n_stage, first);
    CT_TRY(ct_job_plan_make(&s->out->space, &c, first, true, plan));
    plan->estimate_s = e->estimate_s;
    return CT_OK;
}

/* The plan becomes the best one, if it fits. */
static ct_status take_even(searcher *s, ct_job_plan *plan)
{
    if (!plan->fits || is_in_disguise(s, plan)) return CT_OK;
    if (s->q->in_bytes) CT_TRY(ct_job_plan_fit(&s->out->space, &s->q->net->options, plan, true));
    if (!plan->fits) return CT_OK;
    s->out->uniform = *plan;
    *plan = (ct_job_plan){ 0 };
    return CT_OK;
}

static ct_status make_uniform(searcher *s)
{
    ct_job_plan plan[MOST_UNIFORM] = { 0 };
    int *first = calloc((size_t)s->q->net->n_block + 2, sizeof(*first)), n = 0;
    even best[MOST_UNIFORM];
    ct_status status = CT_OK;

    if (first == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for cuts");
    for (int i = 0; (i < s->n_candidate) && (status == CT_OK); i++) {
        even e = { &s->candidate[i], 0 };
        int at;

        if ((n == MOST_UNIFORM) && (e.of->bound_s > best[n - 1].estimate_s)) break;
        status = estimate_evenly(s, e.of, first, &e.estimate_s);
        if ((status != CT_OK) || !isfinite(e.estimate_s)) continue;
        if ((n == MOST_UNIFORM) && (e.estimate_s >= best[n - 1].estimate_s)) continue;
        if (n == MOST_UNIFORM) n--;
        for (at = n++; (at > 0) && (best[at - 1].estimate_s > e.estimate_s); at--)
            best[at] = best[at - 1];
        best[at] = e;
    }
    for (int i = 0; (i < n) && (status == CT_OK); i++)
        status = make_even(s, &best[i], first, &plan[i]);
    qsort(plan, (size_t)n, sizeof(*plan), by_step);
    for (int i = 0; i < n; i++) {
        if ((status == CT_OK) && (s->out->uniform.config.n_stage == 0))
            status = take_even(s, &plan[i]);
        ct_job_plan_destroy(&plan[i]);
    }
    free(first);
    return status;
}

/* ---- the least memory */

static double least_of(const stages *g)
{
    int n = g->s->q->net->n_block, stages_n = g->c->n_stage;
    double *least = calloc(2 * (size_t)n + 2, sizeof(*least)), *next, answer;

    if (least == NULL) return INFINITY;
    next = least + n + 1;
    for (int b = 1; b <= n; b++) least[b] = INFINITY;
    for (int i = 0; i < stages_n; i++) {
        int64_t k = ct_job_in_flight(g->c, i);

        for (int b = 0; b <= n; b++) {
            next[b] = INFINITY;
            for (int a = 0; a < b; a++) {
                if (!isfinite(least[a]) || ((a > 0) && !g->s->q->net->block[a].may_cut)) continue;
                next[b] = fmin(next[b], fmax(least[a], ct_job_stage_least(g->stage[i], a, b, k)));
            }
        }
        memcpy(least, next, ((size_t)n + 1) * sizeof(*least));
        least[0] = INFINITY;
    }
    answer = least[n];
    free(least);
    return answer;
}

/* Whether a plan of a configuration fits that many bytes a rank. */
static ct_status try_limit(const ct_job_search_request *q, const ct_job_config *c, double bytes,
                           bool *fits_p)
{
    ct_job_machine machine = *q->machine;
    ct_job_search_request r = *q;
    ct_job_search out = {
        .space = { .net = q->net, .machine = &machine, .batch = q->batch, .shards = q->shards }
    };
    searcher s = { .q = &r, .out = &out };
    candidate k = { .config = *c };
    ct_status status;

    for (int i = 0; i < machine.n_class; i++) machine.kind[i].memory = bytes;
    r.machine = &machine;
    *fits_p = false;
    status = cut(&s, &k);
    if ((status == CT_OK) && (s.n_found > 0)) {
        ct_job_plan plan;

        status = ct_job_plan_make(&out.space, c, s.found[0].first, false, &plan);
        if ((status == CT_OK) && plan.fits && q->in_bytes)
            status = ct_job_plan_fit(&out.space, &q->net->options, &plan, false);
        *fits_p = (status == CT_OK) && plan.fits;
        ct_job_plan_destroy(&plan);
        free(s.found[0].first);
    }
    ct_job_space_destroy(&out.space);
    return status;
}

static ct_status halve(searcher *s, const ct_job_config *c, double low)
{
    double high = s->out->least_bytes;
    bool fits = false;

    /* up to a limit that does, where none is known */
    for (double at = low; !fits && !isfinite(high) && (at < 64 * low); at *= 1.5) {
        CT_TRY(try_limit(s->q, c, at, &fits));
        if (fits)
            high = at;
        else
            low = at;
    }
    if (!isfinite(high)) return CT_OK;
    for (int i = 0; (i < HALVINGS) && (high - low > 0.004 * high); i++) {
        double at = (low + high) / 2;

        CT_TRY(try_limit(s->q, c, at, &fits));
        if (fits)
            high = at;
        else
            low = at;
    }
    s->out->least_bytes = fmin(s->out->least_bytes, high);
    return CT_OK;
}

static int by_least(const void *a, const void *b)
{
    const candidate *x = a, *y = b; /* bound_s has the bytes */

    if (x->bound_s != y->bound_s) return (x->bound_s < y->bound_s) ? -1 : 1;
    return x->number - y->number;
}

static ct_status find_least(searcher *s)
{
    s->out->least_bytes = INFINITY;
    for (int i = 0; i < s->n_candidate; i++) {
        stages g;
        ct_status status = open_stages(s, &s->candidate[i].config, &g);

        s->candidate[i].bound_s = (status == CT_OK) ? least_of(&g) : INFINITY;
        close_stages(&g);
        CT_TRY(status);
    }
    qsort(s->candidate, (size_t)s->n_candidate, sizeof(*s->candidate), by_least);
    for (int i = 0; (i < s->n_candidate) && (i < MOST_LEAST); i++) {
        if (!(s->candidate[i].bound_s < s->out->least_bytes)) break;
        CT_TRY(halve(s, &s->candidate[i].config, s->candidate[i].bound_s));
    }
    return CT_OK;
}

/* ---- all of it */

static bool is_free(const ct_job_fix *f)
{
    return (f->tensor <= 1) && (f->n_stage <= 1) && (f->micro_batches <= 1);
}

/* ---- to the byte */

/* Plans in their order, until the next one's step is no better than that of one that fits. Those
 * behind it are as their blocks say. */
static ct_status fit_all(searcher *s)
{
    ct_job_search *o = s->out;
    double best = INFINITY;
    int n = 0;

    for (int i = 0; i < o->n; i++) {
        ct_job_plan plan = o->plan[i];
        ct_status status = CT_OK;

        if (plan.step_s < best)
            status = ct_job_plan_fit(&o->space, &s->q->net->options, &plan, false);
        if ((status == CT_OK) && plan.fits) {
            best = fmin(best, plan.step_s);
            o->plan[n++] = plan;
            continue;
        }
        ct_job_plan_destroy(&plan);
        if (status != CT_OK) {
            for (i++; i < o->n; i++) o->plan[n++] = o->plan[i];
            o->n = n;
            return status;
        }
    }
    o->n = n;
    qsort(o->plan, (size_t)o->n, sizeof(*o->plan), by_step);
    return CT_OK;
}

static ct_status make_plans(searcher *s)
{
    ct_job_search *o = s->out;

    o->plan = calloc(CT_JOB_MOST_PLANS + 2, sizeof(*o->plan));
    if (o->plan == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for plans");
    for (int i = 0; i < s->n_found; i++)
        CT_TRY(
            add_plan(s, &s->found[i].of->config, s->found[i].first, false, s->found[i].estimate_s));
    CT_TRY(make_data(s));
    CT_TRY(make_uniform(s));
    if ((o->data.config.n_stage > 0) && o->data.fits && is_free(&s->q->fix)) {
        int first[2] = { 0, s->q->net->n_block };

        CT_TRY(add_plan(s, &o->data.config, first, true, o->data.step_s));
    }
    if (o->uniform.config.n_stage > 0) {
        int *first = calloc((size_t)o->uniform.config.n_stage + 1, sizeof(*first));
        ct_status status;

        if (first == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for cuts");
        cut_evenly(s->q->net->n_block, o->uniform.config.n_stage, first);
        status = add_plan(s, &o->uniform.config, first, true, o->uniform.estimate_s);
        free(first);
        CT_TRY(status);
    }
    qsort(o->plan, (size_t)o->n, sizeof(*o->plan), by_step);
    return s->q->in_bytes ? fit_all(s) : CT_OK;
}

static ct_status run(searcher *s)
{
    const ct_job_machine *m = s->q->machine;

    CT_TRY(
        ct_node_orders_make(m->node_class, m->n_node, m->n_class, CT_JOB_MOST_ORDERS, &s->orders));
    CT_TRY(add_all(s));
    qsort(s->candidate, (size_t)s->n_candidate, sizeof(*s->candidate), by_bound);
    CT_TRY(cut_all(s));
    CT_TRY(make_plans(s));
    return (s->out->n == 0) ? find_least(s) : CT_OK;
}

ct_status ct_job_search_run(const ct_job_search_request *q, ct_job_search *out)
{
    double start = ct_clock_s();
    searcher s = { .q = q, .out = out };
    ct_status status;

    *out = (ct_job_search){
        .space = { .net = q->net, .machine = q->machine, .batch = q->batch, .shards = q->shards }
    };
    status = run(&s);
    for (int i = 0; i < s.n_found; i++) free(s.found[i].first);
    free(s.candidate);
    ct_node_orders_destroy(&s.orders);
    out->search_s = ct_clock_s() - start;
    if (status != CT_OK) ct_job_search_destroy(out);
    return status;
}

void ct_job_search_destroy(ct_job_search *s)
{
    for (int i = 0; i < s->n; i++) ct_job_plan_destroy(&s->plan[i]);
    free(s->plan);
    ct_job_plan_destroy(&s->data);
    ct_job_plan_destroy(&s->uniform);
    ct_job_space_destroy(&s->space);
    *s = (ct_job_search){ 0 };
}
