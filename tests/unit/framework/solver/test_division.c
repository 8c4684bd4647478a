/* A step whose micro-batches are in flight by a schedule: the bits of one after the other. Each
 * rank has all of the net, as a division says. */
#include "tests/test.h"
#include "tests/solver_harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "framework/solver/solver_private.h"
#include "tests/cuda_case.h"
#include "tests/parsed_net.h"

#define NET                                                                                        \
    "net_param { name: 'n' "                                                                       \
    "layer { name: 'data' type: 'DummyData' top: 'x' top: 'z' dummy_data_param { "                 \
    "shape { dim: 6 dim: 2 dim: 6 dim: 6 } shape { dim: 6 dim: 4 } data_filler { "                 \
    "type: 'gaussian' std: 1 } } } layer { name: 'y' type: 'ArgMax' bottom: 'z' top: 'y' } "       \
    "layer { name: 'c1' type: 'Convolution' bottom: 'x' top: 'c1' convolution_param { "            \
    "num_output: 5 kernel_size: 3 weight_filler { type: 'xavier' } } } "                           \
    "layer { name: 'b1' type: 'BatchNorm' bottom: 'c1' top: 'b1' } "                               \
    "layer { name: 's1' type: 'Scale' bottom: 'b1' top: 's1' scale_param { bias_term: true } } "   \
    "layer { name: 'r1' type: 'ReLU' bottom: 's1' top: 's1' } "                                    \
    "layer { name: 'd1' type: 'Dropout' bottom: 's1' top: 'd1' } "                                 \
    "layer { name: 'f1' type: 'InnerProduct' bottom: 'd1' top: 'f1' inner_product_param { "        \
    "num_output: 9 weight_filler { type: 'xavier' } } } "                                          \
    "layer { name: 'r2' type: 'ReLU' bottom: 'f1' top: 'f1' } "                                    \
    "layer { name: 'f2' type: 'InnerProduct' bottom: 'f1' top: 'f2' inner_product_param { "        \
    "num_output: 4 weight_filler { type: 'xavier' } } } "                                          \
    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'f2' bottom: 'y' top: 'loss' } "         \
    "layer { name: 'top' type: 'ArgMax' bottom: 'f2' top: 'top' } "                                \
    "layer { name: 'a' type: 'Accuracy' bottom: 'f2' bottom: 'y' top: 'a' } } "
#define SOLVER                                                                                     \
    "base_lr: 0.05 lr_policy: 'step' gamma: 0.5 stepsize: 2 momentum: 0.9 max_iter: 5 "            \
    "deterministic: true random_seed: 11 display: 1 average_loss: 3 test_iter: 2 "                 \
    "test_interval: 3 snapshot_after_train: false "

/* clang-format off */
#define F(m) { true, m }
#define B(m) { false, m }
/* clang-format on */

static const ct_schedule_item in_turn[] = { F(0), B(0), F(1), B(1), F(2), B(2), F(3), B(3) };
static const ct_schedule_item two[] = { F(0), F(1), B(0), F(2), B(1), F(3), B(2), B(3) };
static const ct_schedule_item three[] = { F(0), F(1), F(2), B(0), F(3), B(1), B(2), B(3) };
static const ct_schedule_item all[] = { F(0), F(1), F(2), F(3), B(0), B(1), B(2), B(3) };
static const ct_schedule_item single[] = { F(0), B(0) };
static const ct_schedule_item pair[] = { F(0), F(1), B(0), B(1) };

enum { MOST_OUT = 64, MOST_BEAT = 1 << 16 };

/* How a net is run, and what comes of it. */
typedef struct run {
    const char *fields, *text;         /* text: of the solver, its net among it; NULL: the above */
    const ct_micro_schedule *schedule; /* NULL: without a division */
    int stage, n_stage;
    const ct_device *dev;                    /* NULL: the CPU                */
    Ct__NetParameter *part;                  /* what this rank runs, or NULL */
    const struct ct_transfer_ops *transfers; /* with it; their ctx is the run */
    int n_begun[2], n_waiting;
    uint64_t checksum;
    double loss, output[MOST_OUT], test[MOST_OUT];
    int n_output, n_test;
    size_t planned, allocated, weights, state;
    char beats[MOST_BEAT], ranks[512];
    ct_whole_nets whole;
    ct_division division;
    const Ct__NetParameter *test_param[1];
} run;

static void beat(void *ctx, const char *what)
{
    run *r = ctx;
    size_t n = strlen(r->beats);

    snprintf(r->beats + n, sizeof(r->beats) - n, "%s\n", what);
}

static ct_status divide(run *r, ct_solver_options *o)
{
    CT_TRY(ct_whole_nets_make(o, &r->whole));
    r->test_param[0] = o->param->net_param;
    r->division = (ct_division){ .whole = r->whole.train,
                                 .whole_test = (const ct_net *const *)r->whole.test,
                                 .train = (r->part != NULL) ? r->part : o->param->net_param,
                                 .transfers = r->transfers,
                                 .transfers_ctx = r,
                                 .test = r->test_param,
                                 .n_test = r->whole.n_test,
                                 .schedule = *r->schedule,
                                 .stage = r->stage,
                                 .n_stage = r->n_stage };
    o->division = &r->division;
    return CT_OK;
}

static ct_status note(run *r, ct_solver *s)
{
    ct_text ranks = { 0 };
    ct_json_writer w = ct_json_members_into(&ranks);
    ct_status status = ct_solver_ranks_json(s, &w);

    snprintf(r->ranks, sizeof(r->ranks), "%s", (ranks.text != NULL) ? ranks.text : "");
    ct_text_destroy(&ranks);
    r->checksum = ct_net_checksum(s->net, true);
    r->loss = s->shown_loss;
    r->n_output = (int)s->outputs.n;
    r->n_test = (s->n_test > 0) ? (int)s->test_outputs[0].n : 0;
    memcpy(r->output, s->outputs.sum, (size_t)r->n_output * sizeof(double));
    if (s->n_test > 0) memcpy(r->test, s->test_outputs[0].sum, (size_t)r->n_test * sizeof(double));
    r->planned = s->net->memory.planned;
    r->allocated = s->net->memory.allocated;
    r->weights = s->net->memory.weights;
    r->state = (size_t)s->net->grad_count * sizeof(float); /* one momentum */
    return status;
}

static ct_status run_with(run *r, thread_rank *rank)
{
    char text[8192];
    ct_solver *s = NULL;
    ct_solver_options o = { .table = test_solver_table(),
                            .env = { .n_rank = 1 },
                            .dev = r->dev,
                            .heartbeat = beat,
                            .heartbeat_ctx = r };
    Ct__SolverParameter *param;
    ct_status status = CT_OK;

    snprintf(text, sizeof(text), "%s%s%s", (r->text != NULL) ? "" : SOLVER, r->fields,
             (r->text != NULL) ? r->text : NET);
    param = test_solver_parse(text);
    o.param = param;
    if (rank != NULL) {
        o.env.rank = rank->rank;
        o.env.n_rank = rank->job->n;
        o.open_exchange = thread_rank_open;
        o.open_exchange_ctx = rank;
    }
    if (r->schedule != NULL) status = divide(r, &o);
    if (status == CT_OK) status = ct_solver_create(&o, &s);
    if (status == CT_OK) status = ct_solver_run(s);
    if (status == CT_OK) status = note(r, s);
    ct_solver_destroy(s);
    ct_whole_nets_destroy(&r->whole);
    ct__solver_parameter__free_unpacked(param, NULL);
    return status;
}

static void same(const run *is, const run *want)
{
    assert_true(is->checksum == want->checksum);
    assert_true((is->loss == want->loss) && (is->loss > 0.0));
    assert_int_equal(is->n_output, want->n_output);
    assert_int_equal(is->n_test, want->n_test);
    for (int i = 0; i < want->n_output; i++) assert_true(is->output[i] == want->output[i]);
    for (int i = 0; i < want->n_test; i++) assert_true(is->test[i] == want->test[i]);
}

typedef struct order {
    ct_micro_schedule s;
    const char *fields; /* of the solver: as many micro-batches */
} order;

static const order orders[] = {
    { { 4, 1, 8, in_turn }, "iter_size: 4 " },
    { { 4, 2, 8, two }, "iter_size: 4 " },
    { { 4, 3, 8, three }, "iter_size: 4 " },
    { { 4, 4, 8, all }, "iter_size: 4 " },
    { { 4, 4, 8, two }, "iter_size: 4 " }, /* room for more than there are */
    { { 4, 2, 8, two }, "iter_size: 8 " },
    { { 4, 3, 8, three }, "iter_size: 8 " },
    { { 1, 1, 2, single }, "iter_size: 1 " },
    { { 1, 1, 2, single }, "iter_size: 3 " },
    { { 2, 2, 4, pair }, "iter_size: 6 clip_gradients: 0.1 " },
};

static void check_order(const order *o, const ct_device *dev, run *is, run *want)
{
    size_t k = (size_t)o->s.in_flight;

    *want = (run){ .fields = o->fields, .dev = dev };
    *is = (run){ .fields = o->fields, .schedule = &o->s, .dev = dev };
    assert_int_equal(run_with(want, NULL), CT_OK);
    assert_int_equal(run_with(is, NULL), CT_OK);
    same(is, want);
    /* what is planned is there, and it is less than that of so many nets */
    assert_int_equal(want->allocated, want->planned + want->weights);
    assert_int_equal(is->allocated, is->planned + is->weights);
    if (k > 1)
        assert_true(is->planned < k * want->planned);
    else
        assert_int_equal(is->planned, want->planned);
}

static void any_schedule_gives_the_same_bits(void **state)
{
    run *is = calloc(1, sizeof(*is)), *want = calloc(1, sizeof(*want));
    const ct_device *dev[] = { NULL, test_cuda_there() };

    (void)state;
    for (int d = 0; (d == 0) || ((d == 1) && (dev[1] != NULL)); d++) {
        for (size_t i = 0; i < sizeof(orders) / sizeof(orders[0]); i++) {
            /* devices refuse norms of divided nets */
            if ((d == 0) || (strstr(orders[i].fields, "clip") == NULL))
                check_order(&orders[i], dev[d], is, want);
        }
    }
    free(is);
    free(want);
}

/* ---- several ranks: each has the net for its own samples */

static ct_status run_rank(thread_rank *rank)
{
    return run_with(rank->out, rank);
}

static void run_two(const char *fields, const ct_micro_schedule *s, int landing, run *out)
{
    thread_ranks job = { .n = 2, .run = run_rank, .landing = landing };
    thread_rank rank[2] = { { .job = &job, .rank = 0 }, { .job = &job, .rank = 1 } };

    for (int k = 0; k < 2; k++) {
        out[k] = (run){ .fields = fields, .schedule = s };
        rank[k].out = &out[k];
    }
    assert_int_equal(thread_ranks_run(&job, rank), CT_OK);
}

static void ranks_wait_for_weights_and_gradients_leave_once(void **state)
{
    static const char *const fields[] = {
        "iter_size: 4 comm { forward_overlap: false } ",
        "iter_size: 4 comm { overlap: true } ",
        "iter_size: 8 comm { overlap: true } ",
        "iter_size: 4 clip_gradients: 0.1 comm { overlap: true } ",
    };
    run *is = calloc(2, sizeof(*is)), *want = calloc(2, sizeof(*want));

    (void)state;
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        run_two(fields[i], NULL, 3, want);
        for (size_t k = 1; k < 4; k++) {
            run_two(fields[i], &orders[k].s, (int)(5 * k), is);
            for (int r = 0; r < 2; r++) same(&is[r], &want[r]);
        }
    }
    free(is);
    free(want);
}

/* ---- a stage in the middle: what it receives is begun ahead */

#define STAGE_NET                                                                                  \
    "base_lr: 0.05 lr_policy: 'fixed' momentum: 0.9 max_iter: 3 random_seed: 11 "                  \
    "snapshot_after_train: false net_param { name: 'n' layer { name: 'data' type: 'DummyData' "    \
    "top: 'x' top: 'y' dummy_data_param { shape { dim: 4 dim: 5 } shape { dim: 4 dim: 3 } } } "    \
    "layer { name: 'f' type: 'InnerProduct' bottom: 'x' top: 'f' inner_product_param { "           \
    "num_output: 3 weight_filler { type: 'xavier' } } } layer { name: 'loss' "                     \
    "type: 'EuclideanLoss' bottom: 'f' bottom: 'y' top: 'loss' } } "
#define STAGE_PART                                                                                 \
    "layer { name: 'in' type: 'Receive' top: 'x' } "                                               \
    "layer { name: 'f' type: 'InnerProduct' bottom: 'x' top: 'f' inner_product_param { "           \
    "num_output: 3 weight_filler { type: 'xavier' } } } "                                          \
    "layer { name: 'out' type: 'Send' bottom: 'f' } "

enum { BEFORE = 1, BEHIND = 2 }; /* ranks of the stages around it */

typedef struct ticket {
    ct_transfer t;
    int number; /* of those that come from there */
} ticket;

static void say(run *r, const char *what, int number)
{
    char line[32];

    snprintf(line, sizeof(line), "%s%d", what, number);
    beat(r, line);
}

static ct_status begin_fake(void *ctx, const ct_transfer *t, void **ticket_p)
{
    run *r = ctx;
    ticket *mine = calloc(1, sizeof(*mine));
    bool forward = (t->peer == BEFORE);

    mine->t = *t;
    if (t->kind == CT_TRANSFER_RECEIVE) {
        mine->number = r->n_begun[forward]++;
        say(r, forward ? "data " : "gradient ", mine->number);
    }
    r->n_waiting++;
    *ticket_p = mine;
    return CT_OK;
}

/* Message k of a direction is the same, whenever it was asked for. */
static ct_status wait_fake(void *ctx, void *what)
{
    ticket *mine = what;
    float *to = mine->t.to;

    for (int64_t i = 0; (to != NULL) && (i < mine->t.n); i++)
        to[i] = (float)((mine->t.peer * 7 + mine->number * 5 + i * 3) % 11 - 5);
    ((run *)ctx)->n_waiting--;
    free(mine);
    return CT_OK;
}

static void drop_fake(void *ctx, void *what)
{
    ((run *)ctx)->n_waiting--;
    free(what);
}

static void make_part(run *r)
{
    static const ct_transfer_ops ops = { begin_fake, wait_fake, NULL, drop_fake };
    Ct__TransferParameter *in = malloc(sizeof(*in)), *out = malloc(sizeof(*out));

    r->part = (Ct__NetParameter *)test_parsed(&ct__net_parameter__descriptor, STAGE_PART);
    r->transfers = &ops;
    ct__transfer_parameter__init(in);
    in->peer = BEFORE;
    in->batch_local = in->batch_global = 4;
    in->shape = malloc(sizeof(*in->shape));
    ct__blob_shape__init(in->shape);
    in->shape->n_dim = 2;
    in->shape->dim = malloc(2 * sizeof(*in->shape->dim));
    in->shape->dim[0] = 4;
    in->shape->dim[1] = 5;
    r->part->layer[0]->transfer = in;
    ct__transfer_parameter__init(out);
    out->peer = BEHIND;
    out->gradient = true;
    r->part->layer[2]->transfer = out;
}

static void what_comes_is_asked_for_ahead(void **state)
{
    static const char *const want[] = {
        "data 0\ngradient 0\nstage 1: forward of micro-batch 0\n"
        "data 1\nstage 1: backward of micro-batch 0\n"
        "gradient 1\nstage 1: forward of micro-batch 1\n",
        "data 0\ndata 1\ngradient 0\ngradient 1\nstage 1: forward of micro-batch 0\n"
        "data 2\nstage 1: forward of micro-batch 1\n"
        "data 3\nstage 1: backward of micro-batch 0\n"
        "gradient 2\nstage 1: forward of micro-batch 2\n",
        "data 0\ndata 1\ndata 2\ngradient 0\ngradient 1\ngradient 2\n"
        "stage 1: forward of micro-batch 0\ndata 3\nstage 1: forward of micro-batch 1\n"
        "data 4\nstage 1: forward of micro-batch 2\n",
    };
    uint64_t checksum = 0;
    run *r = calloc(1, sizeof(*r));

    (void)state;
    for (int k = 0; k < 3; k++) {
        *r = (run){ .fields = "iter_size: 8 ",
                    .text = STAGE_NET,
                    .schedule = &orders[k].s,
                    .stage = 1,
                    .n_stage = 3 };
        make_part(r);
        assert_int_equal(run_with(r, NULL), CT_OK);
        ct__net_parameter__free_unpacked(r->part, NULL);
        if (strncmp(r->beats, want[k], strlen(want[k])) != 0) fail_msg("%.400s", r->beats);
        for (int d = 0; d < 2; d++) assert_int_equal(r->n_begun[d], 3 * 8);
        assert_int_equal(r->n_waiting, 0);
        assert_true((k == 0) || (r->checksum == checksum));
        checksum = r->checksum;
    }
    free(r);
}

/* ---- what is said, and refused */

static void memory_of_ranks_is_that_of_their_plans(void **state)
{
    run *out = calloc(2, sizeof(*out));

    (void)state;
    run_two("iter_size: 4 ", &orders[2].s, 1, out);
    for (int r = 0; r < 2; r++) {
        char want[256];
        int n = 0;

        for (int k = 0; k < 2; k++) {
            size_t bytes = out[k].planned + out[k].weights + out[k].state;
            const char *at;

            snprintf(want, sizeof(want),
                     "{\"rank\":%d,\"stage\":0,\"memory_bytes\":%zu,\"allocated_bytes\":%zu,"
                     "\"resident_bytes\":",
                     k, bytes, bytes);
            at = strstr(out[r].ranks, want);
            assert_non_null(at);
            assert_true(strtoull(at + strlen(want), NULL, 10) > bytes);
        }
        assert_int_equal(sscanf(out[r].ranks, "\"ranks\":[{%n", &n), 0);
        assert_true((n > 0) && (out[r].ranks[strlen(out[r].ranks) - 1] == ']'));
    }
    free(out);
}

static void beats_name_stage_and_micro_batch(void **state)
{
    static const char *const said =
        "stage 1: forward of micro-batch 0\nstage 1: forward of micro-batch 1\n"
        "stage 1: backward of micro-batch 0\nstage 1: forward of micro-batch 2\n";
    run *r = calloc(1, sizeof(*r));

    (void)state;
    *r = (run){ .fields = "iter_size: 4 ", .schedule = &orders[1].s, .stage = 1, .n_stage = 3 };
    assert_int_equal(run_with(r, NULL), CT_OK);
    assert_non_null(strstr(r->beats, said));
    *r = (run){ .fields = "iter_size: 4 ", .schedule = &orders[1].s, .n_stage = 1 };
    assert_int_equal(run_with(r, NULL), CT_OK);
    assert_non_null(strstr(r->beats, "\nbackward of micro-batch 3\n"));
    *r = (run){ .fields = "iter_size: 4 " };
    assert_int_equal(run_with(r, NULL), CT_OK);
    assert_non_null(strstr(r->beats, "forward\nbackward\nforward\nbackward\n"));
    assert_null(strstr(r->beats, "micro-batch"));
    free(r);
}

static void schedules_that_cannot_be_are_refused(void **state)
{
    static const ct_schedule_item swapped[] = { F(0), F(1), B(1), B(0) };
    static const ct_schedule_item early[] = { F(0), B(0), B(1), F(1) };
    static const ct_schedule_item missing[] = { F(0), F(1), B(0) };
    static const ct_micro_schedule s[] = { { 2, 2, 4, swapped }, { 2, 2, 4, early },
                                           { 2, 2, 3, missing }, { 4, 1, 8, two },
                                           { 4, 2, 8, three },   { 0, 1, 0, single } };
    run *r = calloc(1, sizeof(*r));

    (void)state;
    for (size_t i = 0; i < sizeof(s) / sizeof(s[0]); i++) {
        *r = (run){ .fields = "iter_size: 4 ", .schedule = &s[i] };
        assert_int_equal(run_with(r, NULL), CT_ERR_ARG);
    }
    *r = (run){ .fields = "iter_size: 6 ", .schedule = &orders[1].s }; /* one and a half */
    assert_int_equal(run_with(r, NULL), CT_ERR_ARG);
    free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(any_schedule_gives_the_same_bits, test_solver_setup,
                                        test_solver_teardown),
        cmocka_unit_test_setup_teardown(ranks_wait_for_weights_and_gradients_leave_once,
                                        test_solver_setup, test_solver_teardown),
        cmocka_unit_test_setup_teardown(what_comes_is_asked_for_ahead, test_solver_setup,
                                        test_solver_teardown),
        cmocka_unit_test_setup_teardown(memory_of_ranks_is_that_of_their_plans, test_solver_setup,
                                        test_solver_teardown),
        cmocka_unit_test_setup_teardown(beats_name_stage_and_micro_batch, test_solver_setup,
                                        test_solver_teardown),
        cmocka_unit_test_setup_teardown(schedules_that_cannot_be_are_refused, test_solver_setup,
                                        test_solver_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
