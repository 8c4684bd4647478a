/* Rank 0's plan is everyone's, whatever the others would have found. */
#include "tests/mpi/mpi_test.h"

#include "framework/net/engine_plan.h"

enum { N_KEY = 6 };

static ct_status share(void *ctx, void *data, size_t bytes)
{
    (void)ctx;
    MPI_Bcast(data, (int)bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
    return CT_OK;
}

static void drop(void *ctx, const char *text)
{
    (void)ctx;
    (void)text;
}

typedef struct bench {
    double now;
    int rank, key, n_run;
} bench;

static double bench_clock(void *ctx)
{
    return ((bench *)ctx)->now;
}

static ct_status bench_prepare(void *ctx)
{
    (void)ctx;
    return CT_OK;
}

/* On rank r engine (key + r) % 3 is the fastest. */
static ct_status bench_run(void *ctx, int i)
{
    bench *b = ctx;

    b->n_run++;
    b->now += (i == (b->key + b->rank) % 3) ? 1.0 : 2.0;
    return CT_OK;
}

/* Faults of this rank. rows: what rank 0 has beforehand. */
static int ask_all(ct_plan_mode mode, const char *rows, bool lacks)
{
    bench b = { .now = 0.0 };
    ct_engine_plan_options o = { .machine = { "Test CPU", "avx2", "1.0", 2 },
                                 .mode = mode,
                                 .share = share,
                                 .clock = bench_clock,
                                 .clock_ctx = &b };
    ct_engine_plan *p = NULL;
    int fault = 0;

    MPI_Comm_rank(MPI_COMM_WORLD, &o.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &o.n_rank);
    b.rank = o.rank;
    if (ct_engine_plan_create(&o, &p) != CT_OK) MPI_Abort(MPI_COMM_WORLD, 1);
    if ((o.rank == 0) && (rows != NULL))
        fault += (ct_engine_plan_parse(p, "rows", rows, strlen(rows)) != CT_OK);
    for (b.key = 0; b.key < N_KEY; b.key++) {
        char key[16];
        ct_plan_ask a = { .layer = "l",
                          .key = key,
                          .name = { "a", "b", "c" },
                          .n = 3,
                          .fixed = 2,
                          .prepare = bench_prepare,
                          .run = bench_run,
                          .ctx = &b };
        int choice = -1, want = (mode == CT_PLAN_TIME) ? b.key % 3 : 2;
        bool fails = false;

        snprintf(key, sizeof(key), "k%d", b.key);
        if ((rows != NULL) && (b.key == 1)) want = 0;
        if (lacks && (o.rank > 0)) { /* a processor without engine a */
            a.name[0] = "z";
            fails = (want == 0);
        }
        if (fails) {
            ct_log_set_sink(drop, NULL);
            fault += (ct_engine_plan_choose(p, &a, &choice) != CT_ERR_CONFIG);
            ct_log_set_sink(NULL, NULL);
        } else {
            fault += (ct_engine_plan_choose(p, &a, &choice) != CT_OK) || (choice != want);
        }
    }
    fault += (o.rank > 0) && (b.n_run > 0); /* rank 0 times alone */
    fault += (o.rank == 0) && (mode == CT_PLAN_TIME) && (b.n_run == 0);
    ct_engine_plan_destroy(p);
    return fault;
}

#define ROWS                                                                                       \
    "cortado plan 1\nmachine \"Test CPU\" avx2 threads 2 version \"1.0\"\nk1 | a 1\nend 1\n"

static void ranks_take_what_rank_0_found(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(ask_all(CT_PLAN_TIME, NULL, false)), 0);
}

static void ranks_take_what_rank_0_read(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(ask_all(CT_PLAN_TIME, ROWS, false)), 0);
    assert_int_equal(mpi_verdict(ask_all(CT_PLAN_REPLAY, ROWS, false)), 0);
}

static void ranks_without_the_engine_say_so(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(ask_all(CT_PLAN_TIME, ROWS, true)), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(ranks_take_what_rank_0_found),
    cmocka_unit_test(ranks_take_what_rank_0_read),
    cmocka_unit_test(ranks_without_the_engine_say_so),
};

MPI_MAIN(tests, 60)
