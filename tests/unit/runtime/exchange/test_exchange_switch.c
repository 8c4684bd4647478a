/* Which of two exchanges has a step (runtime/exchange/exchange_switch.h). Both are made up, and
 * count what they are asked for. */
#include "tests/test.h"

#include "runtime/exchange/exchange_switch.h"

typedef struct made_up {
    int n_begin, n_ready, n_poll, n_finish, n_wait, n_read, n_replay;
    int64_t bytes;
} made_up;

static made_up coded, dense;
static bool is_dense; /* what the next step will be */

static ct_status its_begin(void *ctx, int64_t iteration, float scale, float rate)
{
    (void)iteration, (void)scale, (void)rate;
    ((made_up *)ctx)->n_begin++;
    return CT_OK;
}

static ct_status its_ready(void *ctx, int param)
{
    (void)param;
    ((made_up *)ctx)->n_ready++;
    return CT_OK;
}

static ct_status its_poll(void *ctx)
{
    ((made_up *)ctx)->n_poll++;
    return CT_OK;
}

static ct_status its_finish(void *ctx, ct_landed_fn landed, void *landed_ctx)
{
    ((made_up *)ctx)->n_finish++;
    ((made_up *)ctx)->bytes += 100;
    return landed(landed_ctx, 0, 2);
}

static ct_status its_wait(void *ctx, int first, int n, ct_landed_fn landed, void *landed_ctx)
{
    ((made_up *)ctx)->n_wait++;
    return landed(landed_ctx, first, n);
}

static void its_reads(void *ctx, int param)
{
    (void)param;
    ((made_up *)ctx)->n_read++;
}

static ct_status its_replay(void *ctx, ct_replay what)
{
    (void)what;
    ((made_up *)ctx)->n_replay++;
    return CT_OK;
}

static void its_counters(void *ctx, ct_exchange_counters *out)
{
    *out = (ct_exchange_counters){ .bytes_sent = ((made_up *)ctx)->bytes, .exposed_s = 1 };
}

static ct_status on_landed(void *ctx, int first, int n)
{
    (void)first;
    *(int *)ctx += n;
    return CT_OK;
}

static bool skips(void *ctx)
{
    assert_ptr_equal(ctx, &coded); /* it has begun */
    assert_int_equal(coded.n_begin, dense.n_begin + coded.n_finish + 1);
    return is_dense;
}

static ct_exchange exchange_of(made_up *m, bool replays)
{
    return (ct_exchange){ .ctx = m,
                          .n_rank = 2,
                          .n_trial = 7,
                          .begin = its_begin,
                          .ready = its_ready,
                          .poll = its_poll,
                          .finish = its_finish,
                          .wait = its_wait,
                          .reads = replays ? NULL : its_reads,
                          .replay = replays ? its_replay : NULL,
                          .counters = its_counters };
}

static void open_one(bool replays, ct_exchange_switch **x_p, ct_exchange *out)
{
    ct_exchange a = exchange_of(&coded, false), b = exchange_of(&dense, replays);

    coded = dense = (made_up){ 0 };
    assert_int_equal(ct_exchange_switch_create(&a, &b, skips, &coded, "adding", x_p), CT_OK);
    ct_exchange_switch_wrap(*x_p, out);
}

static int one_step(const ct_exchange *x, int64_t i, bool as_dense)
{
    int n = 0;

    is_dense = as_dense;
    assert_int_equal(x->begin(x->ctx, i, 1, 1), CT_OK);
    assert_int_equal(x->records(x->ctx), as_dense);
    assert_int_equal(x->ready(x->ctx, 0), CT_OK);
    assert_int_equal(x->poll(x->ctx), CT_OK);
    assert_int_equal(x->wait(x->ctx, 1, 1, on_landed, &n), CT_OK);
    x->reads(x->ctx, 1);
    assert_int_equal(x->finish(x->ctx, on_landed, &n), CT_OK);
    return n;
}

static void test_steps_have_one_of_both(void **state)
{
    ct_exchange_switch *s = NULL;
    ct_exchange_counters counters;
    ct_exchange x;

    (void)state;
    open_one(true, &s, &x);
    assert_int_equal(x.n_trial, 7);
    for (int64_t i = 0; i < 5; i++) assert_int_equal(one_step(&x, i, i < 2), 3);
    assert_int_equal(coded.n_begin, 5); /* it decides */
    assert_int_equal(dense.n_begin, 2);
    assert_int_equal(coded.n_ready, 3);
    assert_int_equal(dense.n_ready, 2);
    assert_int_equal(coded.n_poll + coded.n_wait + coded.n_finish, 9);
    assert_int_equal(dense.n_poll + dense.n_wait + dense.n_finish, 6);
    assert_int_equal(coded.n_read, 3); /* the other has no use for it */
    x.counters(x.ctx, &counters);
    assert_int_equal(counters.bytes_sent, 500);
    assert_true(counters.exposed_s == 2);
    assert_int_equal(x.replay(x.ctx, CT_REPLAY_GIVEN), CT_OK);
    assert_int_equal(dense.n_replay, 1);
    assert_int_equal(coded.n_replay, 0);
    ct_exchange_switch_destroy(s);
}

static void test_what_cannot_be_recorded(void **state)
{
    ct_exchange_switch *s = NULL;
    ct_exchange x;

    (void)state;
    open_one(false, &s, &x);
    assert_null(x.replay);
    assert_int_equal(one_step(&x, 0, true), 3);
    ct_exchange_switch_destroy(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steps_have_one_of_both),
        cmocka_unit_test(test_what_cannot_be_recorded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
