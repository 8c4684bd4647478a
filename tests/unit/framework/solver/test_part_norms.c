/* Norms of nets that ranks have parts of: clipping and trust ratios are those of the whole net,
 * whatever its division, and each weight counts once. Ranks are threads. */
#include "tests/test.h"
#include "tests/log_capture.h"
#include "tests/parsed_net.h"
#include "tests/parts_rig.h"
#include "tests/thread_ranks.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "framework/solver/train_step.h"

enum { MOST_PARAM = 16, STEPS = 2 };

#define RATE 0.125

/* What all ranks of a run share. */
typedef struct run {
    const char *solver;
    bool large; /* a parameter longer than what is added up at once */
    rig_plan plan;
    /* the whole net's, by one rank that has all of it: */
    int n_param;
    int64_t count[MOST_PARAM];
    bool learns[MOST_PARAM];
    float *weight[MOST_PARAM];
    float scale[STEPS]; /* of the gradients, of the last rank */
    bool one;           /* this is that run */
} run;

/* Element e of parameter k: a weight, or its gradient in a step. */
static float weight_at(int k, int64_t e)
{
    return (float)((e * 7 + k * 1013) % 8191) / 8192.0f - 0.5f;
}

static float gradient_at(int k, int64_t e, int step)
{
    return (float)((e * 11 + k * 331 + step * 2003) % 4093) / 4096.0f - 0.5f;
}

/* ---- one rank */

typedef struct visit {
    run *r;
    int step;
    int64_t wrong;
} visit;

/* Calls fn with each element of this rank's arenas. */
static void each(const rig_rank *rig, visit *v,
                 void (*fn)(visit *v, float *weight, float *gradient, int k, int64_t e))
{
    for (int i = 0; i < rig->whole->n_param; i++) {
        int k = ct_net_find_param(rig->net, rig->whole->param[i].key);
        const ct_param *p = (k >= 0) ? &rig->net->param[k] : NULL;
        ct_cut all = { .whole = rig->whole->param[i].blob.data.shape };
        const ct_cut *cut = ((p != NULL) && (p->cut->n_range > 0)) ? p->cut : &all;

        for (int64_t j = 0; (p != NULL) && (j < ct_cut_runs(cut)); j++) {
            ct_cut_run part = ct_cut_run_at(cut, j);

            for (int64_t e = 0; e < part.count; e++) {
                int64_t at = part.part + e;

                fn(v, ct_blob_data(&p->blob) + at, p->learns ? ct_blob_diff(&p->blob) + at : NULL,
                   i, part.whole + e);
            }
        }
    }
}

static void set_weight(visit *v, float *weight, float *gradient, int k, int64_t e)
{
    (void)v, (void)gradient;
    *weight = weight_at(k, e);
}

static void set_gradient(visit *v, float *weight, float *gradient, int k, int64_t e)
{
    (void)weight;
    if (gradient != NULL) *gradient = gradient_at(k, e, v->step);
}

static void keep_weight(visit *v, float *weight, float *gradient, int k, int64_t e)
{
    (void)gradient;
    v->r->weight[k][e] = *weight;
}

/* Norms are sums in another order, off by less than n roundings of doubles, so factors of f32 are
 * off by one rounding at most; a step has less than ten of them. */
static void compare_weight(visit *v, float *weight, float *gradient, int k, int64_t e)
{
    double want = (double)v->r->weight[k][e], moved = fabs(want - (double)weight_at(k, e));
    double allowed = 10 * (double)FLT_EPSILON * moved + STEPS * 0x1p-24 * fabs(want) + 0x1p-126;

    (void)gradient;
    if (!(fabs((double)*weight - want) <= allowed)) v->wrong++;
}

static ct_status step(ct_train_step *t, rig_rank *rig, visit *v)
{
    each(rig, v, set_gradient);
    t->iteration = v->step;
    t->rate = RATE;
    t->scale = 1.0f;
    if (!ct_step_waits_for_all(t)) { /* one rank finds a ratio with its update */
        if (t->parts != NULL) return CT_FAIL(CT_ERR_ARG, "it does not wait");
        CT_TRY(ct_step_update(t, 0, rig->net->n_param));
    } else {
        if (ct_grad_norm_is_open(&t->norm)) ct_grad_norm_begin(rig->net, &t->norm);
        for (int i = 0; i < rig->net->n_param; i++) CT_TRY(ct_step_add_norm(t, i, 1));
        CT_TRY(ct_step_update_all(t));
    }
    v->r->scale[v->step] = t->scale;
    return CT_OK;
}

static ct_status train(rig_rank *rig, const Ct__SolverParameter *param, run *r)
{
    visit v = { .r = r };
    ct_train_step t = { .param = param,
                        .net = rig->net,
                        .parts = rig->parts,
                        .sync = &rig->x.sync,
                        .pass = rig->net->pass };
    ct_status status = ct_update_rule_find(param->type, &t.rule);

    if (status == CT_OK) status = ct_train_step_open(&t);
    each(rig, &v, set_weight);
    for (; (v.step < STEPS) && (status == CT_OK); v.step++) status = step(&t, rig, &v);
    ct_train_step_close(&t);
    CT_TRY(status);
    each(rig, &v, r->one ? keep_weight : compare_weight);
    return (v.wrong == 0) ? CT_OK : CT_FAIL(CT_ERR_DATA, "%lld weights differ", (long long)v.wrong);
}

static void make_room(const ct_net *net, run *r)
{
    r->n_param = net->n_param;
    for (int i = 0; i < net->n_param; i++) {
        r->count[i] = net->param[i].count;
        r->learns[i] = net->param[i].learns;
        r->weight[i] = malloc((size_t)net->param[i].count * sizeof(float));
    }
}

static ct_status run_rank(thread_rank *rank)
{
    run *r = rank->out;
    ct_net none = { .n_param = 0 };
    ct_exchange x;
    rig_rank rig;
    ct_status status;
    Ct__SolverParameter *param =
        (Ct__SolverParameter *)test_parsed(&ct__solver_parameter__descriptor, r->solver);

    CT_TRY(thread_rank_open(rank, &none, &x));
    status =
        rig_open(r->plan, r->large, (rank->job->n > 1) ? &x.job : &(ct_group){ .size = 1 }, &rig);
    if (r->one) make_room(rig.net, r);
    if (status == CT_OK) status = train(&rig, param, r);
    rig_close(&rig);
    ct__solver_parameter__free_unpacked(param, NULL);
    return status;
}

static void run_plan(run *r, rig_plan plan)
{
    thread_ranks job = { .n = rig_ranks(plan), .run = run_rank };
    thread_rank rank[THREAD_RANKS_MAX];
    ct_status status;

    r->plan = plan;
    r->one = (plan == RIG_WHOLE);
    for (int i = 0; i < job.n; i++) rank[i] = (thread_rank){ .out = r };
    status = thread_ranks_run(&job, rank);
    if (status != CT_OK) fail_msg("%s, division %d: %s", r->solver, plan, ct_status_str(status));
}

/* ---- against doubles, and one rank */

static double norm_of(const run *r, int step)
{
    double sum = 0;

    for (int k = 0; k < r->n_param; k++) {
        for (int64_t e = 0; r->learns[k] && (e < r->count[k]); e++)
            sum += (double)gradient_at(k, e, step) * (double)gradient_at(k, e, step);
    }
    return sqrt(sum);
}

static void check_scale(const run *r, double clip)
{
    for (int s = 0; s < STEPS; s++) {
        double norm = norm_of(r, s), want = (norm > clip) ? clip / norm : 1.0;

        if (!(fabs((double)r->scale[s] - want) <= (double)FLT_EPSILON * want))
            fail_msg("%s, division %d: gradients are scaled by %.9g, not %.9g", r->solver, r->plan,
                     (double)r->scale[s], want);
    }
}

static void drop(run *r)
{
    for (int k = 0; k < r->n_param; k++) free(r->weight[k]);
}

static const rig_plan plans[] = { RIG_ALONE, RIG_OUTPUT,   RIG_STAGES, RIG_INPUT,
                                  RIG_BOTH,  RIG_REPLICAS, RIG_COPIES };

static void all_plans(const char *solver, bool large, double clip)
{
    run r = { .solver = solver, .large = large };

    run_plan(&r, RIG_WHOLE);
    check_scale(&r, clip);
    for (size_t i = 0; i < sizeof(plans) / sizeof(plans[0]); i++) {
        run_plan(&r, plans[i]);
        check_scale(&r, clip);
    }
    drop(&r);
}

static void clipping(void **state)
{
    (void)state;
    all_plans("type: 'SGD' momentum: 0.9 weight_decay: 0.001 clip_gradients: 3", true, 3);
    all_plans("type: 'AdamW' momentum: 0.9 momentum2: 0.95 weight_decay: 0.1 clip_gradients: 1e6",
              false, 1e6);
}

static void ratios(void **state)
{
    (void)state;
    all_plans("type: 'LARS' momentum: 0.9 weight_decay: 0.001", true, INFINITY);
    all_plans("type: 'LAMB' momentum: 0.9 momentum2: 0.99 weight_decay: 0.01 clip_gradients: 5",
              false, 5);
}

/* A number that is none shows on every rank, whoever has it; so does a parameter that is missing.
 */
static ct_status run_odd(thread_rank *rank)
{
    ct_net none = { .n_param = 0 };
    ct_exchange x;
    rig_rank rig;
    ct_grad_norm n;
    double square = 0;
    ct_status status = thread_rank_open(rank, &none, &x);

    if (status == CT_OK) status = rig_open(RIG_STAGES, false, &x.job, &rig);
    if (status != CT_OK) return status;
    status = ct_grad_norm_open(rig.net, rig.parts, &n);
    ct_grad_norm_begin(rig.net, &n);
    if (rank->rank == 1) ct_blob_diff(&rig.net->param[0].blob)[2] = NAN;
    if (status == CT_OK)
        status = ct_grad_norm_landed(rig.net, &n, &rig.net->pass->exec, 0, rig.net->n_param);
    if (status == CT_OK) status = ct_grad_norm_square(&n, &square);
    if ((status == CT_OK) && !isnan(square)) status = CT_FAIL(CT_ERR_DATA, "a norm of %g", square);
    ct_grad_norm_begin(rig.net, &n);
    if ((status == CT_OK) && (ct_grad_norm_square(&n, &square) != CT_ERR_ARG)) status = CT_ERR_DATA;
    ct_grad_norm_close(&n);
    rig_close(&rig);
    return status;
}

static void odd_numbers(void **state)
{
    thread_ranks job = { .n = 2, .run = run_odd };
    thread_rank rank[2] = { { .rank = 0 }, { .rank = 0 } };

    (void)state;
    assert_int_equal(thread_ranks_run(&job, rank), CT_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clipping),
        cmocka_unit_test(ratios),
        cmocka_unit_test(odd_numbers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
