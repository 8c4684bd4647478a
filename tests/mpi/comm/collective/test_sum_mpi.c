/* Sums on devices by MPI (comm/collective/sum_mpi.c), with a made-up device whose memory is the
 * host's, so that any MPI takes it, and whose gradients are there after some looks. */
#include "tests/mpi/mpi_test.h"
#include "tests/log_capture.h"

#include <stdlib.h>

#include "comm/core/comm.h"
#include "comm/collective/coll.h"

enum { N = 5000, SUMS = 9, STEPS = 3 };

/* A gradient that the device makes: it is written when its marker is seen. */
typedef struct work {
    float *data, value;
    int64_t n;
    int looks; /* until it is there */
    bool made;
} work;

static work queue[SUMS];
static int n_queued, n_marked;

static ct_status host_acquire(size_t bytes, void **data_p)
{
    *data_p = calloc(1, bytes);
    return (*data_p != NULL) ? CT_OK : CT_ERR_NOMEM;
}

static ct_status copy_begin(ct_stream st, void *host, void *data, size_t bytes, bool down,
                            void **ticket_p)
{
    (void)st, (void)host, (void)data;
    *ticket_p =
        (down && (bytes == sizeof(float)) && (n_marked < n_queued)) ? &queue[n_marked] : NULL;
    n_marked += 1;
    return (*ticket_p != NULL) ? CT_OK : CT_ERR_ARG;
}

static ct_status copy_done(void *ticket, bool wait, bool *done_p)
{
    work *w = ticket;

    w->looks = wait ? 0 : w->looks - 1;
    *done_p = (w->looks <= 0);
    if (!*done_p || w->made) return CT_OK;
    for (int64_t i = 0; i < w->n; ++i) w->data[i] = w->value * (float)(i % 13);
    w->made = true;
    return CT_OK;
}

static const ct_device made_up = { .name = "made up",
                                   .host_acquire = host_acquire,
                                   .host_release = free,
                                   .copy_begin = copy_begin,
                                   .copy_done = copy_done };

static int sums(ct_comm *c)
{
    static float data[SUMS][N];
    const ct_device_sum_ops *ops = &ct_device_sum_mpi;
    char id[CT_DEVICE_SUM_ID];
    void *group = NULL, *ticket[SUMS];
    int rank = c->rank, size = c->size, fault = 0;

    fault += MPI_FAULT_UNLESS(ops->make_id(id) == CT_OK);
    fault += MPI_FAULT_UNLESS(ops->open(&made_up, c, id, rank, size, &group) == CT_OK);
    for (int step = 0; (step < STEPS) && (fault == 0); ++step) {
        n_queued = n_marked = 0;
        for (int k = 0; k < SUMS; ++k) { /* ranks make their gradients at different times */
            queue[k] = (work){ .data = data[k],
                               .value = (float)(rank + 1 + k + step),
                               .n = N - 3 * k,
                               .looks = (rank * 5 + k * 3 + step) % 7 };
            n_queued = k + 1;
            fault +=
                MPI_FAULT_UNLESS(ops->begin(group, NULL, data[k], N - 3 * k, &ticket[k]) == CT_OK);
        }
        for (int k = 0; k < SUMS; ++k) {
            float want = (float)(size * (k + step)) + (float)(size * (size + 1)) / 2;
            int wrong = 0;

            fault += MPI_FAULT_UNLESS(ops->poll(group) == CT_OK);
            fault += MPI_FAULT_UNLESS(ops->follow(group, NULL, ticket[k]) == CT_OK);
            for (int i = 0; i < N - 3 * k; ++i) wrong += (data[k][i] != want * (float)(i % 13));
            fault += MPI_FAULT_UNLESS(wrong == 0);
        }
        fault += MPI_FAULT_UNLESS(n_marked == SUMS);
    }
    ops->close(group);
    return fault;
}

static void test_sums(void **unused)
{
    ct_comm *c = NULL;
    int fault = 0;

    (void)unused;
    fault += MPI_FAULT_UNLESS(ct_comm_create(MPI_COMM_WORLD, "auto", &c) == CT_OK);
    fault += sums(c);
    fault += mpi_on_parts(sums); /* of a part of the job, too */
    ct_comm_destroy(c);
    assert_int_equal(mpi_verdict(fault), 0);
}

/* What would make MPI wait for ever, or is not what was begun, is said. */
static void test_refused(void **unused)
{
    const ct_device_sum_ops *ops = &ct_device_sum_mpi;
    void *group = NULL, *ticket = NULL;
    ct_comm *c = NULL;
    int fault = 0;
    log_capture log;

    (void)unused;
    fault += MPI_FAULT_UNLESS(ct_comm_create(MPI_COMM_WORLD, "auto", &c) == CT_OK);
    log_capture_start(&log);
    fault +=
        MPI_FAULT_UNLESS(ops->open(&made_up, c, NULL, c->rank, c->size + 1, &group) == CT_ERR_COMM);
    log_capture_stop();
    fault += MPI_FAULT_UNLESS(ops->open(&made_up, c, NULL, c->rank, c->size, &group) == CT_OK);
    log_capture_start(&log);
    fault += MPI_FAULT_UNLESS(ops->follow(group, NULL, &ticket) == CT_ERR_ARG);
    fault += MPI_FAULT_UNLESS(ops->begin(group, NULL, NULL, INT64_MAX, &ticket) == CT_ERR_ARG);
    log_capture_stop();
    ops->close(group);
    /* asked, never assumed */
    fault += MPI_FAULT_UNLESS(ops->there() == (strcmp(ct_mpi_takes_cuda(), "yes") == 0));
    ct_comm_destroy(c);
    assert_int_equal(mpi_verdict(fault), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_sums),
                                        cmocka_unit_test(test_refused) };

    return mpi_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]), 60);
}
