/* Sums over ranks by the device's library (framework/tensor/device.h), of one rank: what it
 * leaves, and what becomes of the host's waits when a sum never ends. Several ranks:
 * tests/cli/test_gpu_sums.sh. Skips where no device works, or the library is not there. */
#include "tests/test.h"
#include "tests/cuda_case.h"

#include "framework/base/clock.h"
#include "framework/tensor/device.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Of tests/emulated_cuda: not there on a GPU. */
extern int ct_emulated_aborts(void) __attribute__((weak));

enum { N = 5000 };

typedef struct job {
    const ct_device *dev;
    const ct_device_sum_ops *ops;
    void *group;
    ct_stream stream;
    float *data; /* [N] on the device: 0, 1 … */
} job;

static job open_job(void)
{
    job j = { .dev = test_cuda() };
    char id[CT_DEVICE_SUM_ID];
    float host[N];

    setenv("CORTADO_EMULATED_NCCL", "1", 1);
    j.ops = ct_device_sum_of(j.dev);
    if ((j.ops == NULL) || !j.ops->there()) skip();
    assert_int_equal(j.dev->graph->stream_open(&j.stream), CT_OK);
    assert_int_equal(j.ops->make_id(id), CT_OK);
    assert_int_equal(j.ops->open(j.dev, NULL, id, 0, 1, &j.group), CT_OK);
    for (int i = 0; i < N; i++) host[i] = (float)i;
    j.data = test_cuda_put(j.dev, host, sizeof(host));
    return j;
}

static void close_job(job *j)
{
    j->ops->close(j->group);
    j->dev->mem_release(j->data);
}

static void sum_once(const job *j)
{
    void *ticket = NULL;

    assert_int_equal(j->ops->begin(j->group, j->stream, j->data, N, &ticket), CT_OK);
    assert_int_equal(j->ops->follow(j->group, j->stream, ticket), CT_OK);
}

/* Waits for a stream, for a copy, and for nothing: the numbers are there. */
static void waits_end(void **state)
{
    job j = open_job();
    void *here = NULL, *ticket = NULL;
    const float *got;
    bool done = false;

    (void)state;
    sum_once(&j);
    assert_int_equal(j.dev->sync(j.stream), CT_OK);
    assert_int_equal(j.dev->host_acquire(N * sizeof(float), &here), CT_OK);
    memset(here, 0, N * sizeof(float));
    sum_once(&j);
    assert_int_equal(j.dev->copy_begin(j.stream, here, j.data, N * sizeof(float), true, &ticket),
                     CT_OK);
    assert_int_equal(j.dev->copy_done(ticket, true, &done), CT_OK);
    assert_true(done);
    got = here;
    for (int i = 0; i < N; i++) assert_true(got[i] == (float)i); /* of one rank */
    assert_int_equal(j.ops->given(j.group), CT_OK);
    assert_int_equal(j.dev->sync(j.stream), CT_OK);
    j.dev->host_release(here);
    close_job(&j);
}

/* The library tells of an error while a sum is under way that will never end: whatever the host
 * waits for, it hears of it, and the group is given up instead of waited for. */
static void waits_are_left(void **state)
{
    (void)state;
    for (int by_copy = 0; by_copy < 2; by_copy++) {
        double start = ct_clock_s();
        void *here = NULL, *ticket = NULL;
        int aborts;
        log_capture log;
        bool done = false;
        job j;

        (void)test_cuda();
        if (ct_emulated_aborts == NULL) skip();
        j = open_job();
        aborts = ct_emulated_aborts();
        alarm(30);
        sum_once(&j);
        assert_int_equal(j.dev->host_acquire(N * sizeof(float), &here), CT_OK);
        setenv("CORTADO_EMULATED_NCCL_FAIL", "2", 1);
        sum_once(&j);
        log_capture_start(&log);
        if (by_copy) {
            assert_int_equal(
                j.dev->copy_begin(j.stream, here, j.data, N * sizeof(float), true, &ticket), CT_OK);
            assert_int_equal(j.dev->copy_done(ticket, false, &done), CT_OK);
            assert_false(done);
            assert_int_equal(j.dev->copy_done(ticket, true, &done), CT_ERR_COMM);
        } else {
            assert_int_equal(j.dev->sync(j.stream), CT_ERR_COMM);
        }
        assert_non_null(strstr(log.error, "rank 0: sum over ranks: NCCL: remote process exited"));
        assert_int_equal(j.ops->given(j.group), CT_ERR_COMM);
        log_capture_stop();
        unsetenv("CORTADO_EMULATED_NCCL_FAIL");
        j.ops->close(j.group);
        assert_int_equal(ct_emulated_aborts(), aborts + 1);
        assert_true(ct_clock_s() - start < 30.0);
        assert_int_equal(j.dev->sync(j.stream), CT_OK); /* CUDA's own wait again */
        alarm(0);
        j.dev->host_release(here);
        j.dev->mem_release(j.data);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(waits_end),
        cmocka_unit_test(waits_are_left),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
