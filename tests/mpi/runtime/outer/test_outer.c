/* Local steps: what groups train to is the definition of DiLoCo over solvers that know nothing of
 * it; every loss, statistic and message counts all groups. */
#include "tests/mpi/mpi_test.h"

#include <math.h>
#include <stdlib.h>

#include "framework/solver/solver_private.h"
#include "runtime/exchange/exchange_mpi.h"
#include "runtime/outer/outer_groups.h"
#include "tests/solver_harness.h"

#define IP(_name, _bottom, _n, _bias)                                                              \
    "layer { name: '" _name "' type: 'InnerProduct' bottom: '" _bottom "' top: '" _name            \
    "' inner_product_param { num_output: " _n " bias_term: " _bias                                 \
    " weight_filler { type: 'gaussian' std: 0.3 } } } "
/* Before SyncBN a bias would have a gradient of rounding alone, of which Adam makes whole steps.
 * SyncBN adds up over the ranks of a group; the labels' zeros are ignored, so losses count data */
#define NET                                                                                        \
    "net_param { name: 'local' layer { name: 'data' type: 'DummyData' top: 'x' top: 'y' "          \
    "dummy_data_param { shape { dim: 6 dim: 5 } data_filler { type: 'gaussian' std: 1 } "          \
    "shape { dim: 6 dim: 4 } data_filler { type: 'gaussian' std: 1 } } } "                         \
    "layer { name: 'label' type: 'ArgMax' bottom: 'y' top: 'label' } " IP(                         \
        "a", "x", "16",                                                                            \
        "false") "layer { name: 'bn' type: 'SyncBN' bottom: 'a' top: 'bn' } " IP("b", "bn", "4",   \
                                                                                 "true") "layer "  \
                                                                                         "{ "      \
                                                                                         "name: "  \
                                                                                         "'loss' " \
                                                                                         "type: "  \
                                                                                         "'Softma" \
                                                                                         "xWithLo" \
                                                                                         "ss' "    \
                                                                                         "bottom:" \
                                                                                         " 'b' "   \
                                                                                         "bottom:" \
                                                                                         " '"      \
                                                                                         "label' " \
                                                                                         "loss_"   \
                                                                                         "param "  \
                                                                                         "{ "      \
                                                                                         "ignore_" \
                                                                                         "label: " \
                                                                                         "0 } } "  \
                                                                                         "} "
#define SOLVER                                                                                     \
    "lr_policy: 'step' stepsize: 4 gamma: 0.5 max_iter: 12 display: 0 random_seed: 7 "             \
    "deterministic: true solver_mode: CPU checksum_interval: 2 average_loss: 3 " NET

/* What trains inside a group. */
static const char *const inner_text[] = {
    "type: 'SGD' base_lr: 0.05 momentum: 0.9 weight_decay: 0.01 ",
    "type: 'Nesterov' base_lr: 0.05 momentum: 0.9 clip_gradients: 0.5 iter_size: 2 ",
    "type: 'Adam' base_lr: 0.01 momentum: 0.9 ",
};

typedef struct outer {
    int local_iter, groups, delay;
    bool nesterov;
    double lr, momentum;
} outer;

typedef struct trained {
    Ct__SolverParameter *param;
    ct_job job;
    ct_outer_groups groups;
    ct_exchange_open open;
    ct_solver *solver;
} trained;

static ct_status open_solver(trained *t, ct_comm *all, ct_comm *data, ct_solver_options *o)
{
    t->job = (ct_job){ .rank = all->rank, .size = all->size, .comm = all, .data_comm = data };
    CT_TRY(ct_job_open_groups(&t->job));
    CT_TRY(ct_outer_groups_open(&t->job, t->param, &t->groups));
    t->open = (ct_exchange_open){ .job = &t->job,
                                  .param = t->param,
                                  .comm = ct_outer_groups_inner(&t->groups) };
    o->param = t->param;
    o->env.rank = all->rank;
    o->env.n_rank = all->size;
    o->env.deterministic = true;
    o->open_exchange = ct_exchange_open_net;
    o->open_exchange_ctx = &t->open;
    if (t->open.comm != NULL) o->outer = &t->groups.ranks;
    return ct_solver_create(o, &t->solver);
}

static void close_solver(trained *t)
{
    ct_solver_destroy(t->solver);
    ct_exchange_open_close(&t->open);
    ct_outer_groups_close(&t->groups);
    ct__solver_parameter__free_unpacked(t->param, NULL);
}

static Ct__SolverParameter *parse(const char *inner, const outer *p)
{
    ct_text text = { 0 };
    Ct__SolverParameter *param;

    ct_text_add(&text, "%s", inner);
    if (p != NULL)
        ct_text_add(&text,
                    "outer { local_iter: %d groups: %d delay: %d lr: %g optimizer: ", p->local_iter,
                    p->groups, p->delay, p->lr);
    if ((p != NULL) && p->nesterov) ct_text_add(&text, "NESTEROV momentum: %g } ", p->momentum);
    if ((p != NULL) && !p->nesterov) ct_text_add(&text, "SGD } ");
    ct_text_add(&text, "%s", SOLVER);
    param = test_solver_parse(text.text);
    ct_text_destroy(&text);
    return param;
}

/* The outer optimiser by its definition, in double. */
typedef struct reference {
    double *weights, *momentum, *mean;
    double *start; /* where the group of this rank goes on from */
    bool pending;  /* with delay: a mean that has not counted yet */
    int64_t n;
} reference;

static void count_mean(reference *r, const outer *p)
{
    for (int64_t i = 0; i < r->n; i++) {
        double d = r->mean[i], step = d;

        r->momentum[i] = p->momentum * r->momentum[i] + d;
        if (p->nesterov) step = d + p->momentum * r->momentum[i];
        r->weights[i] -= p->lr * step;
    }
}

/* Where groups go on from, by what each rank's solver has come to. */
static void meet(reference *r, const outer *p, const ct_comm *all, ct_net *net)
{
    double *own = calloc((size_t)r->n, sizeof(*own));

    for (int64_t i = 0; i < r->n; i++) own[i] = r->start[i] - (double)net->weight_arena[i];
    if (r->pending) count_mean(r, p);
    MPI_Allreduce(own, r->mean, (int)r->n, MPI_DOUBLE, MPI_SUM, all->mpi);
    for (int64_t i = 0; i < r->n; i++) r->mean[i] /= all->size;
    if (p->delay == 0) count_mean(r, p);
    r->pending = (p->delay > 0);
    for (int64_t i = 0; i < r->n; i++) {
        r->start[i] = r->weights[i] - ((p->delay > 0) ? own[i] : 0);
        net->weight_arena[i] = (float)r->start[i];
    }
    ct_net_weights_changed(net);
    free(own);
}

/* f32 rounds by 6e-8 of weights near 1, in sums of 60 numbers; twelve steps at these rates let what
 * differs grow by less than 20. */
#define NEAR 1e-4

static int compare(const reference *r, const ct_net *net)
{
    double worst = 0;

    for (int64_t i = 0; i < r->n; i++)
        worst = fmax(worst, fabs(r->start[i] - (double)net->weight_arena[i]));
    if (!(worst < NEAR)) fprintf(stderr, "weights differ by %g\n", worst);
    return MPI_FAULT_UNLESS(worst < NEAR);
}

/* A job that knows of groups, beside one for each group whose weights the test moves. */
static int follows_definition(ct_comm *c, const char *inner, const outer *p)
{
    trained t = { .param = parse(inner, p) }, own = { .param = parse(inner, NULL) };
    ct_solver_options o = { .provenance = "{}" };
    ct_comm *group = NULL;
    reference r = { .n = 0 };
    ct_net *net, *of_group;
    double loss = 0, mean = 0;
    int size = c->size / p->groups, fault = 0;

    fault += MPI_FAULT_UNLESS(ct_comm_split(c, c->rank / size, c->rank, &group) == CT_OK);
    fault += MPI_FAULT_UNLESS(open_solver(&t, c, c, &o) == CT_OK);
    o = (ct_solver_options){ .provenance = "{}" };
    fault += MPI_FAULT_UNLESS(open_solver(&own, c, group, &o) == CT_OK);
    if (mpi_verdict(fault) > 0) return fault;
    net = ct_solver_net(t.solver);
    of_group = ct_solver_net(own.solver);
    of_group->batch_summed = (size < c->size) ? size * of_group->batch_local : 0;
    r.n = net->grad_count;
    r.weights = calloc((size_t)r.n, sizeof(double));
    r.start = calloc((size_t)r.n, sizeof(double));
    r.momentum = calloc((size_t)r.n, sizeof(double));
    r.mean = calloc((size_t)r.n, sizeof(double));
    MPI_Bcast(of_group->weight_arena, (int)r.n, MPI_FLOAT, 0, c->mpi);
    ct_net_weights_changed(of_group);
    for (int64_t i = 0; i < r.n; i++) {
        r.weights[i] = r.start[i] = (double)of_group->weight_arena[i];
        fault += MPI_FAULT_UNLESS(of_group->weight_arena[i] == net->weight_arena[i]);
    }
    for (int at = 0; at < 12; at += p->local_iter) {
        fault += MPI_FAULT_UNLESS(ct_solver_steps(t.solver, p->local_iter) == CT_OK);
        fault += MPI_FAULT_UNLESS(ct_solver_steps(own.solver, p->local_iter) == CT_OK);
        meet(&r, p, c, of_group);
        fault += compare(&r, net);
    }
    /* of the group: its loss times its part of all samples */
    fault += MPI_FAULT_UNLESS(ct_solver_loss(t.solver, &loss) == CT_OK);
    fault += MPI_FAULT_UNLESS(ct_solver_loss(own.solver, &mean) == CT_OK);
    mean /= size;
    MPI_Allreduce(MPI_IN_PLACE, &mean, 1, MPI_DOUBLE, MPI_SUM, c->mpi);
    fault += MPI_FAULT_UNLESS(fabs(loss - mean) < NEAR);
    free(r.weights);
    free(r.start);
    free(r.momentum);
    free(r.mean);
    close_solver(&t);
    close_solver(&own);
    ct_comm_destroy(group);
    return fault;
}

static int on_machine(ct_comm *c)
{
    static const outer how[] = {
        { .local_iter = 4, .nesterov = true, .lr = 0.7, .momentum = 0.9 },
        { .local_iter = 3, .nesterov = false, .lr = 0.8 },
    };
    int fault = 0;

    for (int groups = 1; groups <= c->size; groups++) {
        if (c->size % groups != 0) continue;
        for (int i = 0; i < 4; i++) {
            outer p = how[i % 2];

            p.groups = groups;
            p.delay = i / 2;
            fault += follows_definition(c, inner_text[i % 3], &p);
        }
    }
    return fault;
}

static void test_definition(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(on_machine)), 0);
}

/* A rank's weights go wrong before iteration 5. */
static ct_status go_wrong(void *ctx)
{
    const trained *t = ctx;

    if ((t->job.rank == 1) && (ct_solver_iteration(t->solver) == 5))
        ct_solver_net(t->solver)->weight_arena[0] += 1;
    return CT_OK;
}

/* A difference is under way, of groups of several ranks, when one of these is found to be another:
 * all ranks end, with nothing on its way. */
static int ends_at_rest(ct_comm *c)
{
    const outer p = { .local_iter = 4, .groups = c->size / 2, .delay = 1, .lr = 0.8 };
    trained t = { .param = NULL };
    const ct_step_calls calls = { .ctx = &t, .start = go_wrong };
    ct_solver_options o = { .provenance = "{}" };
    int fault = 0;

    if (c->size % 2 != 0) return 0;
    t.param = parse(inner_text[0], &p);
    fault += MPI_FAULT_UNLESS(open_solver(&t, c, c, &o) == CT_OK);
    if (mpi_verdict(fault) > 0) return fault;
    fault += MPI_FAULT_UNLESS(ct_solver_watch(t.solver, &calls) == CT_OK);
    fault += MPI_FAULT_UNLESS(ct_solver_steps(t.solver, 12) == CT_ERR_DIVERGED);
    fault += MPI_FAULT_UNLESS(ct_solver_iteration(t.solver) == 6);
    fault += MPI_FAULT_UNLESS(!t.solver->outer->under_way);
    close_solver(&t);
    return fault;
}

static void test_ends_at_rest(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(ends_at_rest)), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_definition),
    cmocka_unit_test(test_ends_at_rest),
};

MPI_MAIN(tests, 120)
