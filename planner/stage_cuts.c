#include "planner/stage_cuts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A partition of the blocks before a place into the stages up to one. */
typedef struct front {
    double sum, slowest, sums;
    int from, index; /* the stage's first block, and which partition of those before */
} front;

typedef struct list {
    int n, most;
    front *at;
} list;

typedef struct solver {
    const ct_stage_cuts *c;
    double best;         /* no partition that is not below it counts */
    double *rest;        /* [stage + 1][block]: the least sum of what follows */
    list *list;          /* [stage][block + 1]: stages 0 … s hold the blocks before */
    ct_stage_time *time; /* [first][end]: of the stage under way */
} solver;

static double cut_of(const ct_stage_cuts *c, int stage, int block)
{
    if ((stage < 0) || (stage == c->n_stage - 1)) return 0;
    return c->cut_s[(size_t)stage * (size_t)c->n_block + (size_t)block];
}

ct_status ct_stage_cuts_time(const ct_stage_cuts *c, const int *first, double *step_s_p)
{
    double sum = 0, slowest = 0, sums = 0;

    for (int s = 0; s < c->n_stage; s++) {
        bool exact;
        ct_stage_time t;
        double in = (s > 0) ? cut_of(c, s - 1, first[s]) : 0;
        double out = (s < c->n_stage - 1) ? cut_of(c, s, first[s + 1]) : 0;

        CT_TRY(c->look(c->ctx, s, first[s], first[s + 1], &t, &exact));
        sum += t.time_s + 2 * out;
        slowest = fmax(slowest, t.time_s + in + out);
        sums = fmax(sums, t.sums_s);
    }
    *step_s_p = sum + (double)(c->micro_batches - 1) * slowest + sums;
    return CT_OK;
}

/* ---- bounds */

static double *rest_of(const solver *v, int stage, int block)
{
    return &v->rest[(size_t)stage * (size_t)(v->c->n_block + 1) + (size_t)block];
}

static ct_stage_time *time_of(const solver *v, int first, int end)
{
    return &v->time[(size_t)first * (size_t)(v->c->n_block + 1) + (size_t)end];
}

/* The blocks that stage s can begin or end with: each other stage has one at least. */
static int least_first(int stage)
{
    return stage;
}

static int most_end(const ct_stage_cuts *c, int stage)
{
    return c->n_block - (c->n_stage - 1 - stage);
}

static ct_status look_all(solver *v, int stage)
{
    const ct_stage_cuts *c = v->c;
    int from = least_first(stage), to = (stage == 0) ? 0 : most_end(c, stage) - 1;

    for (int a = from; a <= to; a++) {
        bool none = false;

        for (int b = a + 1; b <= most_end(c, stage); b++) {
            bool exact;

            if (none) { /* what is longer than what does not fit does not, either */
                *time_of(v, a, b) = (ct_stage_time){ INFINITY, 0 };
                continue;
            }
            CT_TRY(c->look(c->ctx, stage, a, b, time_of(v, a, b), &exact));
            none = exact && isinf(time_of(v, a, b)->time_s);
        }
    }
    return CT_OK;
}

static ct_status bound(solver *v)
{
    const ct_stage_cuts *c = v->c;

    for (int b = 0; b <= c->n_block; b++)
        *rest_of(v, c->n_stage, b) = (b == c->n_block) ? 0 : INFINITY;
    for (int s = c->n_stage - 1; s >= 0; s--) {
        CT_TRY(look_all(v, s));
        for (int a = 0; a <= c->n_block; a++) {
            double least = INFINITY;

            *rest_of(v, s, a) = INFINITY;
            if ((a < least_first(s)) || (a >= c->n_block) || ((s == 0) && (a > 0))) continue;
            for (int b = a + 1; b <= most_end(c, s); b++) {
                double cut = (s < c->n_stage - 1) ? 2 * cut_of(c, s, b % c->n_block) : 0;

                least = fmin(least, time_of(v, a, b)->time_s + cut + *rest_of(v, s + 1, b));
            }
            *rest_of(v, s, a) = least;
        }
    }
    return CT_OK;
}

/* ---- fronts */

static list *list_of(const solver *v, int stage, int block)
{
    return &v->list[(size_t)stage * (size_t)(v->c->n_block + 1) + (size_t)block];
}

/* No partition that goes on from here is below this. */
static double bound_of(const solver *v, const front *f, int stage, int block)
{
    int left = v->c->n_stage - 1 - stage;
    double rest = *rest_of(v, stage + 1, block), slowest = f->slowest;

    if (left > 0) slowest = fmax(slowest, rest / left);
    return f->sum + rest + (double)(v->c->micro_batches - 1) * slowest + f->sums;
}

static ct_status put(list *l, const front *f)
{
    int kept = 0;

    for (int i = 0; i < l->n; i++) {
        const front *o = &l->at[i];

        if ((o->sum <= f->sum) && (o->slowest <= f->slowest) && (o->sums <= f->sums)) return CT_OK;
    }
    for (int i = 0; i < l->n; i++) {
        const front *o = &l->at[i];

        if ((f->sum <= o->sum) && (f->slowest <= o->slowest) && (f->sums <= o->sums)) continue;
        l->at[kept++] = *o;
    }
    l->n = kept;
    if (l->n == l->most) {
        int most = 2 * l->most + 4;
        front *more = realloc(l->at, (size_t)most * sizeof(*more));

        if (more == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d partitions", most);
        l->at = more;
        l->most = most;
    }
    l->at[l->n++] = *f;
    return CT_OK;
}

/* Only the one of least step: a quick partition, to have something to beat. */
static void put_best(const solver *v, list *l, const front *f)
{
    double m = (double)(v->c->micro_batches - 1);

    if ((l->n > 0) &&
        (f->sum + m * f->slowest + f->sums >= l->at[0].sum + m * l->at[0].slowest + l->at[0].sums))
        return;
    l->at[0] = *f;
    l->n = 1;
}

static ct_status extend(solver *v, int stage, int first, const front *before, int index, bool quick)
{
    const ct_stage_cuts *c = v->c;
    double in = (stage > 0) ? cut_of(c, stage - 1, first) : 0;
    bool last = (stage == c->n_stage - 1);

    for (int end = last ? c->n_block : first + 1; end <= most_end(c, stage); end++) {
        const ct_stage_time *t = time_of(v, first, end);
        double out = last ? 0 : cut_of(c, stage, end);
        front f;

        if (!isfinite(t->time_s) || !isfinite(out)) continue;
        f = (front){ .sum = before->sum + t->time_s + 2 * out,
                     .slowest = fmax(before->slowest, t->time_s + in + out),
                     .sums = fmax(before->sums, t->sums_s),
                     .from = first,
                     .index = index };
        if (bound_of(v, &f, stage, end) >= v->best) continue;
        if (quick)
            put_best(v, list_of(v, stage, end), &f);
        else
            CT_TRY(put(list_of(v, stage, end), &f));
    }
    return CT_OK;
}

static ct_status run(solver *v, bool quick)
{
    static const front nothing;
    const ct_stage_cuts *c = v->c;

    for (int s = 0; s < c->n_stage; s++) {
        for (int b = 0; b <= c->n_block; b++) list_of(v, s, b)->n = 0;
    }
    for (int s = 0; s < c->n_stage; s++) {
        CT_TRY(look_all(v, s));
        if (s == 0) {
            CT_TRY(extend(v, 0, 0, &nothing, 0, quick));
            continue;
        }
        for (int first = least_first(s); first < most_end(c, s); first++) {
            const list *l = list_of(v, s - 1, first);

            for (int i = 0; i < l->n; i++) CT_TRY(extend(v, s, first, &l->at[i], i, quick));
        }
    }
    return CT_OK;
}

/* The best of the last stage's partitions; false: there is none. */
static bool trace(const solver *v, int *first, double *step_s_p)
{
    const ct_stage_cuts *c = v->c;
    const list *l = list_of(v, c->n_stage - 1, c->n_block);
    double best = INFINITY;
    int index = -1, at = c->n_block;

    for (int i = 0; i < l->n; i++) {
        double t = l->at[i].sum + (double)(c->micro_batches - 1) * l->at[i].slowest + l->at[i].sums;

        if (t >= best) continue;
        best = t;
        index = i;
    }
    if (index < 0) return false;
    first[c->n_stage] = at;
    for (int s = c->n_stage - 1; s >= 0; s--) {
        const front *f = &list_of(v, s, at)->at[index];

        first[s] = f->from;
        at = f->from;
        index = f->index;
    }
    *step_s_p = best;
    return true;
}

/* ---- all of it */

/* Settles what an answer was only told from below; *all_p: it was all exact. */
static ct_status settle(const ct_stage_cuts *c, const int *first, bool *all_p)
{
    *all_p = true;
    for (int s = 0; s < c->n_stage; s++) {
        ct_stage_time t;
        bool exact;

        CT_TRY(c->look(c->ctx, s, first[s], first[s + 1], &t, &exact));
        if (exact) continue;
        *all_p = false;
        CT_TRY(c->settle(c->ctx, s, first[s], first[s + 1]));
    }
    return CT_OK;
}

static ct_status solve(solver *v, double worse, int *first, double *step_s_p)
{
    bool all = false;

    *step_s_p = INFINITY;
    while (!all) {
        double step_s = INFINITY;

        v->best = worse;
        CT_TRY(bound(v));
        CT_TRY(run(v, true));
        if (trace(v, first, &step_s)) v->best = fmin(worse, step_s * (1 + 1e-9));
        CT_TRY(run(v, false));
        if (!trace(v, first, &step_s)) return CT_OK;
        CT_TRY(settle(v->c, first, &all));
        if (all) *step_s_p = step_s;
    }
    return CT_OK;
}

ct_status ct_stage_cuts_solve(const ct_stage_cuts *c, double worse, int *first, double *step_s_p)
{
    size_t blocks = (size_t)c->n_block + 1, stages = (size_t)c->n_stage + 1;
    solver v = { .c = c };
    ct_status status = CT_OK;

    *step_s_p = INFINITY;
    if (c->n_stage > c->n_block) return CT_OK;
    v.rest = calloc(stages * blocks, sizeof(*v.rest));
    v.list = calloc(stages * blocks, sizeof(*v.list));
    v.time = calloc(blocks * blocks, sizeof(*v.time));
    if ((v.rest == NULL) || (v.list == NULL) || (v.time == NULL))
        status = CT_FAIL(CT_ERR_NOMEM, "no memory for %d stages", c->n_stage);
    for (size_t i = 0; (status == CT_OK) && (i < stages * blocks); i++) {
        v.list[i].most = 4;
        v.list[i].at = calloc(4, sizeof(*v.list[i].at));
        if (v.list[i].at == NULL)
            status = CT_FAIL(CT_ERR_NOMEM, "no memory for %d stages", c->n_stage);
    }
    if (status == CT_OK) status = solve(&v, worse, first, step_s_p);
    for (size_t i = 0; (v.list != NULL) && (i < stages * blocks); i++) free(v.list[i].at);
    free(v.rest);
    free(v.list);
    free(v.time);
    return status;
}
