/* Steps whose computation is replaced by sleep: gradients as large as a net's between ranks on slow
 * links.
 *
 *   slept_steps NET SECONDS ITERATIONS [TEXT...]      NET: gpt2 (124 M weights) or lstm (66 M)
 *
 * NET's large matrices are layers that sleep in place of computing: SECONDS a step on each rank, a
 * third of them forward, shared out by size; while they sleep messages move, as they do while
 * layers compute. Everything else is real: buckets, messages, codecs, clipping, AdamW. With NET
 * "gpt2/16" matrices have a 16th of their rows. TEXT is added to the solver: "compression { … }" or
 * "outer { … }". For scripts/netns.sh; tests/bench/slept_steps.sh compares. Prints milliseconds of
 * an iteration in the mean, without the first two (with `outer`: without all up to the first
 * meeting), and what rank 0 sent. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/clock.h"
#include "framework/base/thread.h"
#include "framework/solver/outer.h"
#include "framework/solver/solver_private.h"
#include "runtime/exchange/exchange_mpi.h"
#include "runtime/outer/outer_groups.h"
#include "tests/net_layers.h"
#include "tests/solver_harness.h"

typedef struct matrix {
    int n, rows, columns; /* so many of them, one behind the other */
} matrix;

typedef struct shape {
    const char *name;
    int n_block; /* how often block[] follows first[] */
    matrix first[2], block[4], last;
} shape;

static const shape shapes[] = {
    { "gpt2",
      12,
      { { 1, 50257, 768 }, { 1, 1024, 768 } },
      { { 1, 2304, 768 }, { 1, 768, 768 }, { 1, 3072, 768 }, { 1, 768, 3072 } },
      { 0, 0, 0 } },
    { "lstm",
      2,
      { { 1, 10000, 1500 } },
      { { 1, 6000, 1500 }, { 1, 6000, 1500 } },
      { 1, 10000, 1500 } },
};

/* ---- the layer: num_output x eltwise_param's coefficients say rows x columns, and seconds */

typedef struct sleeper {
    double forward_s, backward_s;
} sleeper;

static ct_status setup(ct_layer *l, const ct_shape *bottom)
{
    const Ct__EltwiseParameter *p = l->param->eltwise_param;
    sleeper *s = l->state;

    (void)bottom;
    if ((p == NULL) || (p->n_coeff != 3)) return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "needs 3 coeff");
    s->forward_s = (double)p->coeff[2] / 3;
    s->backward_s = (double)p->coeff[2] * 2 / 3;
    ct_layer_add_weight(l, &(ct_shape){ 2, { (int64_t)p->coeff[0], (int64_t)p->coeff[1] } }, NULL);
    return CT_OK;
}

static ct_status reshape(const ct_layer *l, ct_instance *in)
{
    (void)l;
    ct_blob_set_shape(in->top[0], &in->bottom[0]->data.shape);
    return CT_OK;
}

static ct_status sleep_until(double end, ct_exec *ex)
{
    while (ct_clock_s() < end) {
        ct_nap(2e-4);
        CT_TRY(ct_exec_poll(ex));
    }
    return CT_OK;
}

static ct_status forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const sleeper *s = l->state;

    ct_blob_data(in->top[0])[0] = ct_blob_data(in->bottom[0])[0];
    return sleep_until(ct_clock_s() + s->forward_s, ex);
}

/* Gradients of one size whose signs change, so that codecs have something to choose from. */
static ct_status backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const sleeper *s = l->state;
    double end = ct_clock_s() + s->backward_s;
    int64_t n = ct_tensor_count(&in->weight[0].data);
    float *g = ct_blob_diff(&in->weight[0]);

    for (int64_t i = 0; i < n; i++) g[i] = (float)((i * 7 + ex->micro_step) % 11 - 5) * 1e-3f;
    if (ct_blob_diff(in->bottom[0]) != NULL)
        ct_blob_diff(in->bottom[0])[0] = ct_blob_diff(in->top[0])[0];
    return sleep_until(end, ex);
}

static const ct_layer_ops slept = { .type = "Slept",
                                    .min_bottom = 1,
                                    .max_bottom = 1,
                                    .min_top = 1,
                                    .max_top = 1,
                                    .params = "eltwise_param",
                                    .state_size = sizeof(sleeper),
                                    .setup = setup,
                                    .reshape = reshape,
                                    .forward = forward,
                                    .backward = backward };

/* ---- the solver */

typedef struct written {
    ct_text text;
    double seconds, elements; /* of a step; of all matrices: 0 while these are counted */
    int part, n;              /* of rows; layers so far */
} written;

static double write_matrix(written *w, matrix m)
{
    int rows = (m.rows + w->part - 1) / w->part;
    double elements = (double)rows * m.columns;

    if (m.n == 0) return 0;
    if (w->elements > 0) {
        ct_text_add(
            &w->text,
            "layer { name: 'm%d' type: 'Slept' bottom: 'x%d' top: 'x%d' eltwise_param { coeff: %d "
            "coeff: %d coeff: %.6f } } ",
            w->n, w->n, w->n + 1, rows, m.columns, w->seconds * elements / w->elements);
        w->n += 1;
    }
    return elements;
}

static double write_matrices(written *w, const shape *s)
{
    double all = write_matrix(w, s->first[0]) + write_matrix(w, s->first[1]);

    for (int b = 0; b < s->n_block; b++)
        for (int k = 0; k < 4; k++) all += write_matrix(w, s->block[k]);
    return all + write_matrix(w, s->last);
}

static ct_status write_solver(const char *net, double seconds, const char *more, ct_text *out)
{
    size_t length = strcspn(net, "/");
    const shape *s = NULL;
    written w = { .seconds = seconds, .part = (net[length] == '/') ? atoi(net + length + 1) : 1 };

    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
        if ((strlen(shapes[i].name) == length) && (strncmp(shapes[i].name, net, length) == 0))
            s = &shapes[i];
    if ((s == NULL) || (w.part < 1))
        return CT_FAIL(CT_ERR_CONFIG, "no net \"%s\": gpt2, lstm", net);
    w.elements = write_matrices(&w, s);
    ct_text_add(
        &w.text,
        "type: 'AdamW' base_lr: 1e-6 lr_policy: 'fixed' momentum: 0.9 momentum2: 0.99 "
        "weight_decay: 0.1 "
        "clip_gradients: 1 max_iter: 100000 display: 0 random_seed: 7 solver_mode: CPU snapshot: 0 "
        "snapshot_after_train: false %s net_param { name: 'slept' layer { name: 'in' type: "
        "'DummyData' top: "
        "'x0' top: 'y' dummy_data_param { shape { dim: 1 dim: 1 } shape { dim: 1 dim: 1 } } } ",
        more);
    (void)write_matrices(&w, s);
    ct_text_add(
        &w.text,
        "layer { name: 'loss' type: 'EuclideanLoss' bottom: 'x%d' bottom: 'y' top: 'loss' } }",
        w.n);
    *out = w.text;
    if (w.text.failed) return CT_FAIL(CT_ERR_NOMEM, "no memory for a net");
    if (seconds >= 0) CT_INFO("%s: %d layers, %.1f M weights", net, w.n, 1e-6 * w.elements);
    return CT_OK;
}

typedef struct trained {
    Ct__SolverParameter *param;
    ct_job job;
    ct_outer_groups groups;
    ct_exchange_open open;
    ct_solver *solver;
} trained;

static ct_status open_solver(trained *t, ct_comm *c)
{
    ct_solver_options o = { .provenance = "{}", .table = test_full_table(&slept) };

    t->job = (ct_job){ .rank = c->rank, .size = c->size, .comm = c, .data_comm = c };
    CT_TRY(ct_job_open_groups(&t->job));
    CT_TRY(ct_outer_groups_open(&t->job, t->param, &t->groups));
    t->open = (ct_exchange_open){ .job = &t->job,
                                  .param = t->param,
                                  .comm = ct_outer_groups_inner(&t->groups) };
    o.param = t->param;
    o.env = (ct_net_env){ .rank = c->rank, .n_rank = c->size };
    o.open_exchange = ct_exchange_open_net;
    o.open_exchange_ctx = &t->open;
    if (t->open.comm != NULL) o.outer = &t->groups.ranks;
    return ct_solver_create(&o, &t->solver);
}

static int64_t bytes_sent(const ct_solver *s)
{
    ct_sync_stats stats;

    s->exchange.sync.ops->stats(s->exchange.sync.ctx, false, &stats);
    return stats.bytes_sent + ((s->outer != NULL) ? ct_outer_bytes_sent(s->outer) : 0);
}

static ct_status time_steps(trained *t, ct_comm *c, int iterations)
{
    int before = (t->param->outer != NULL) ? t->param->outer->local_iter : 2;
    double start, seconds;
    int64_t sent;

    CT_TRY(ct_solver_steps(t->solver, before));
    CT_TRY(ct_comm_barrier(c));
    start = ct_clock_s();
    sent = bytes_sent(t->solver);
    CT_TRY(ct_solver_steps(t->solver, iterations));
    CT_TRY(ct_comm_barrier(c));
    seconds = ct_clock_s() - start;
    sent = bytes_sent(t->solver) - sent;
    if (c->rank == 0)
        printf("%.1f ms an iteration, %.3f MB sent by rank 0\n", 1e3 * seconds / iterations,
               1e-6 * (double)sent / iterations);
    return CT_OK;
}

int main(int argc, char **argv)
{
    ct_comm *c = NULL;
    ct_text text = { 0 }, more = { 0 };
    trained t = { .param = NULL };
    ct_status status;
    int level;

    if (argc < 4) {
        fprintf(stderr, "usage: slept_steps NET SECONDS ITERATIONS [TEXT...]\n");
        return 2;
    }
    for (int i = 4; i < argc; i++) ct_text_add(&more, "%s ", argv[i]);
    ct_comm_prepare_launch();
    MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &level);
    status = ct_comm_create(MPI_COMM_WORLD, "auto", &c);
    if (status == CT_OK)
        status = write_solver(argv[1], atof(argv[2]), (argc > 4) ? more.text : "", &text);
    if (status == CT_OK) {
        t.param = test_solver_parse(text.text);
        status = open_solver(&t, c);
    }
    if (status == CT_OK) status = time_steps(&t, c, atoi(argv[3]));
    if (status != CT_OK) MPI_Abort(MPI_COMM_WORLD, 1);
    ct_solver_destroy(t.solver);
    ct_exchange_open_close(&t.open);
    ct_outer_groups_close(&t.groups);
    ct__solver_parameter__free_unpacked(t.param, NULL);
    ct_text_destroy(&text);
    ct_text_destroy(&more);
    ct_comm_destroy(c);
    MPI_Finalize();
    return 0;
}
