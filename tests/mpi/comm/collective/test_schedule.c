/* The engine itself: what waits for what, on schedules made for it. */
#include "tests/mpi/mpi_test.h"

#include <stdlib.h>

#include "comm/collective/schedule.h"

enum { N = 3000001 };

static int run(ct_comm *c, const ct_schedule *s, float *buf)
{
    ct_sched_run *r = NULL;
    ct_status status = CT_INPROGRESS;
    int64_t sent = 0;
    int fault = (ct_sched_run_create(c, CT_F32, ct_schedule_most(s), &r) != CT_OK), idle = 0;

    fault += (ct_sched_run_start(r, s, buf, 0) != CT_OK);
    while (status == CT_INPROGRESS) {
        status = ct_sched_run_progress(r, &sent, NULL);
        idle += 1;
        ct_comm_relax(c, &idle);
    }
    fault += (status != CT_OK);
    for (int i = 0; i < s->n_step; ++i) sent -= 4 * s->step[i].send_n;
    fault += (sent != 0);
    ct_sched_run_destroy(r);
    return fault;
}

/* Rank 0 sends to 1, who comes late, and receives in the same place from 2, who comes early: the
 * large messages wait in rank 0's memory, and must not be overwritten there. */
static int overwrite(ct_comm *c)
{
    ct_schedule s = { .step = NULL };
    float *buf = malloc(sizeof(*buf) * N);
    int fault = 0, want = (c->rank == 1) ? 0 : 2;

    for (int i = 0; i < N; ++i) buf[i] = (float)c->rank;
    if (c->rank == 0) {
        ct_sched_step out = { .send_to = 1, .recv_from = -1, .send_n = N };
        ct_sched_step in = { .send_to = -1, .recv_from = 2, .recv_n = N };

        fault += (ct_schedule_add(&s, &out) != CT_OK) + (ct_schedule_add(&s, &in) != CT_OK);
    } else if (c->rank < 3) {
        ct_sched_step step = { .send_to = -1, .recv_from = 0, .recv_n = N };

        if (c->rank == 2) step = (ct_sched_step){ .send_to = 0, .recv_from = -1, .send_n = N };
        fault += (ct_schedule_add(&s, &step) != CT_OK);
    }
    MPI_Barrier(c->mpi);
    if (c->rank == 1) usleep(100000);
    fault += run(c, &s, buf);
    for (int i = 0; (i < N) && (c->rank < 3); ++i) fault += (buf[i] != (float)want);
    ct_schedule_destroy(&s);
    free(buf);
    return fault;
}

/* A chain: each rank adds what comes and passes it on, segment by segment. */
static int chain(ct_comm *c)
{
    ct_schedule s = { .step = NULL };
    float *buf = malloc(sizeof(*buf) * N);
    int fault = 0;
    ct_sched_step in = { .send_to = -1, .recv_from = c->rank - 1, .recv_n = N, .add = true };
    ct_sched_step out = { .send_to = c->rank + 1, .recv_from = -1, .send_n = N };

    for (int i = 0; i < N; ++i) buf[i] = (float)(c->rank + i % 3);
    if (c->rank > 0) fault += (ct_schedule_add(&s, &in) != CT_OK);
    if (c->rank < c->size - 1) fault += (ct_schedule_add(&s, &out) != CT_OK);
    fault += run(c, &s, buf);
    for (int i = 0; i < N; ++i)
        fault += (buf[i] != (float)(c->rank * (c->rank + 1) / 2 + (c->rank + 1) * (i % 3)));
    ct_schedule_destroy(&s);
    free(buf);
    return fault;
}

static int with_world(int (*f)(ct_comm *c), int least)
{
    ct_comm *c = NULL;
    int fault = 0;

    if (ct_comm_create(MPI_COMM_WORLD, "auto", &c) != CT_OK) return 1;
    if (c->size >= least) fault = f(c);
    ct_comm_destroy(c);
    return mpi_verdict(fault);
}

static void test_overwrite(void **state)
{
    (void)state;
    assert_int_equal(with_world(overwrite, 3), 0);
}

static void test_chain(void **state)
{
    (void)state;
    assert_int_equal(with_world(chain, 1), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_overwrite),
    cmocka_unit_test(test_chain),
};

MPI_MAIN(tests, 60)
