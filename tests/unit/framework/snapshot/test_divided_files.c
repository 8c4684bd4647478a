/* Files of nets that several ranks have parts of: the bytes of those that one rank writes, and any
 * division reads those of any other. */
#include "tests/test.h"
#include "tests/parts_rig.h"
#include "tests/solver_harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A path in the directory; the last two stay valid. */
static const char *at(const char *name)
{
    static char path[2][160];
    static int next;

    next = 1 - next;
    snprintf(path[next], sizeof(path[next]), "%s/%s", test_solver_dir(), name);
    return path[next];
}

/* ---- ranks as threads */

static ct_status run_rank(thread_rank *rank)
{
    ct_net none = { .n_param = 0 };
    ct_exchange x;

    CT_TRY(thread_rank_open(rank, &none, &x));
    return rig_run((rank->job->n > 1) ? &x.job : &(ct_group){ .size = 1 }, rank->out);
}

static ct_status run(rig_task *t)
{
    thread_ranks job = { .n = rig_ranks(t->plan), .run = run_rank };
    thread_rank rank[THREAD_RANKS_MAX];

    for (int i = 0; i < job.n; i++) rank[i] = (thread_rank){ .out = t };
    return thread_ranks_run(&job, rank);
}

static uint64_t works(rig_plan plan, rig_work work, const char *path)
{
    rig_task t = { .plan = plan, .work = work, .path = at(path) };
    ct_status status = run(&t);

    if (status != CT_OK)
        fail_msg("division %d, work %d, %s: %s\n%s", (int)plan, (int)work, path,
                 ct_status_str(status), test_log_all());
    return t.sum;
}

/* ---- the bytes */

enum { N_FILE = 4 };
static const char *const file_of[2][N_FILE] = {
    { "s_iter_7.caffemodel.h5", "s_iter_7.average.caffemodel.h5", "s_iter_7.solverstate.h5" },
    { "s_iter_7.caffemodel", "s_iter_7.average.caffemodel", "s_iter_7.solverstate",
      "s_iter_7.solverstate.h5" },
};

typedef struct set_bytes {
    char *data[N_FILE];
    size_t size[N_FILE];
} set_bytes;

static void take_set(int binary, set_bytes *s)
{
    memset(s, 0, sizeof(*s));
    for (int i = 0; (i < N_FILE) && (file_of[binary][i] != NULL); i++)
        assert_int_equal(ct_file_read(at(file_of[binary][i]), &s->data[i], &s->size[i]), CT_OK);
}

static void drop_set(set_bytes *s)
{
    for (int i = 0; i < N_FILE; i++) free(s->data[i]);
}

static void test_bytes(void **state)
{
    (void)state;
    for (int binary = 0; binary < 2; binary++) {
        rig_work write = (binary == 0) ? RIG_WRITE : RIG_WRITE_BINARY;
        set_bytes want, got;

        works(RIG_WHOLE, write, "s");
        take_set(binary, &want);
        for (int plan = RIG_ALONE; plan < N_RIG; plan++) {
            works((rig_plan)plan, write, "s");
            take_set(binary, &got);
            for (int i = 0; (i < N_FILE) && (file_of[binary][i] != NULL); i++) {
                assert_int_equal(got.size[i], want.size[i]);
                assert_memory_equal(got.data[i], want.data[i], want.size[i]);
            }
            drop_set(&got);
        }
        drop_set(&want);
    }
}

/* ---- reading */

static void test_reading(void **state)
{
    (void)state;
    works(RIG_BOTH, RIG_WRITE, "s");
    for (int plan = 0; plan < N_RIG; plan++)
        works((rig_plan)plan, RIG_READ, "s_iter_7.solverstate.h5");
    works(RIG_BOTH, RIG_WRITE_BINARY, "s");
    for (int plan = 0; plan < N_RIG; plan++) {
        works((rig_plan)plan, RIG_READ, "s_iter_7.solverstate.h5");
        works((rig_plan)plan, RIG_LOAD, "s_iter_7.caffemodel");
    }
}

static void test_weights(void **state)
{
    static const char *const file[] = { "w.caffemodel.h5", "w.npz", "w.safetensors" };

    (void)state;
    works(RIG_WHOLE, RIG_WRITE, "s");
    for (int i = 0; i < 3; i++) {
        assert_int_equal(test_weights_convert(at("s_iter_7.caffemodel.h5"), at(file[i])), CT_OK);
        for (int plan = 0; plan < N_RIG; plan++) works((rig_plan)plan, RIG_LOAD, file[i]);
    }
}

static void test_checksum(void **state)
{
    uint64_t want = works(RIG_WHOLE, RIG_CHECKSUM, "");

    (void)state;
    for (int plan = RIG_ALONE; plan < N_RIG; plan++)
        assert_true(works((rig_plan)plan, RIG_CHECKSUM, "") == want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_bytes, test_solver_setup, test_solver_teardown),
        cmocka_unit_test_setup_teardown(test_reading, test_solver_setup, test_solver_teardown),
        cmocka_unit_test_setup_teardown(test_weights, test_solver_setup, test_solver_teardown),
        cmocka_unit_test_setup_teardown(test_checksum, test_solver_setup, test_solver_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
