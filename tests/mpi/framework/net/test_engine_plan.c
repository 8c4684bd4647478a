/* Rank 0's plan is everyone's, whatever the others would have found; and of engines only what all
 * have is in question, so that all ask the same. */
#include "tests/mpi/mpi_test.h"
#include "tests/log_capture.h"

#include <stdlib.h>

#include "framework/net/engine_plan.h"
#include "layers/types/product.h"

enum { N_KEY = 6 };

static ct_status share(void *ctx, void *data, size_t bytes)
{
    (void)ctx;
    MPI_Bcast(data, (int)bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
    return CT_OK;
}

static ct_status least(void *ctx, int *v, int n)
{
    (void)ctx;
    MPI_Allreduce(MPI_IN_PLACE, v, n, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    return CT_OK;
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
static int ask_all(ct_engine_plan_mode mode, const char *rows, bool lacks)
{
    bench b = { .now = 0.0 };
    ct_engine_plan_options o = { .machine = { "Test CPU", "avx2", "1.0", 2 },
                                 .mode = mode,
                                 .share = share,
                                 .least = least,
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
        ct_engine_plan_ask a = { .layer = "l",
                                 .key = key,
                                 .name = { "a", "b", "c" },
                                 .n = 3,
                                 .fixed = 2,
                                 .prepare = bench_prepare,
                                 .run = bench_run,
                                 .ctx = &b };
        int choice = -1, want = (mode == CT_ENGINE_PLAN_TIME) ? b.key % 3 : 2;
        bool fails = false;

        snprintf(key, sizeof(key), "k%d", b.key);
        if ((rows != NULL) && (b.key == 1)) want = 0;
        if (lacks && (o.rank > 0)) { /* a processor without engine a */
            a.name[0] = "z";
            fails = (want == 0);
        }
        if (fails) {
            log_capture_start(NULL);
            fault += (ct_engine_plan_choose(p, &a, &choice) != CT_ERR_CONFIG);
            log_capture_stop();
        } else {
            fault += (ct_engine_plan_choose(p, &a, &choice) != CT_OK) || (choice != want);
        }
    }
    fault += (o.rank > 0) && (b.n_run > 0); /* rank 0 times alone */
    fault += (o.rank == 0) && (mode == CT_ENGINE_PLAN_TIME) && (b.n_run == 0);
    ct_engine_plan_destroy(p);
    return fault;
}

#define ROWS                                                                                       \
    "cortado plan 1\nmachine \"Test CPU\" avx2 threads 2 version \"1.0\"\nk1 | a 1\nend 1\n"

static void ranks_take_what_rank_0_found(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(ask_all(CT_ENGINE_PLAN_TIME, NULL, false)), 0);
}

static void ranks_take_what_rank_0_read(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(ask_all(CT_ENGINE_PLAN_TIME, ROWS, false)), 0);
    assert_int_equal(mpi_verdict(ask_all(CT_ENGINE_PLAN_REPLAY, ROWS, false)), 0);
}

static void ranks_without_the_engine_say_so(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(ask_all(CT_ENGINE_PLAN_TIME, ROWS, true)), 0);
}

/* ---- agreeing */

/* All have c; some rank lacks each of the others, and "d" is not rank 0's. */
static int agree_on_c(ct_engine_plan *p, int rank, int size)
{
    const char *name[] = { (rank == 0) ? "a" : "d", (rank == size - 1) ? "z" : "b", "c" };
    bool all[3] = { false, false, false };
    int fault = MPI_FAULT_UNLESS(ct_engine_plan_agree(p, name, 3, all) == CT_OK);

    fault += MPI_FAULT_UNLESS(all[2]);
    fault += MPI_FAULT_UNLESS((all[0] == (size == 1)) && (all[1] == (size == 1)));
    /* rank 0 has nothing to offer, or the others */
    fault += MPI_FAULT_UNLESS(ct_engine_plan_agree(p, name, (rank == 0) ? 0 : 3, all) == CT_OK);
    fault += MPI_FAULT_UNLESS((rank == 0) || !all[2]);
    fault += MPI_FAULT_UNLESS(ct_engine_plan_agree(p, name, (rank > 0) ? 0 : 3, all) == CT_OK);
    return fault + MPI_FAULT_UNLESS((rank > 0) || (all[2] == (size == 1)));
}

/* ---- products of a device whose library is another on each rank */

struct ct_fused {
    int rank, taken;
};

/* With one row rank 0 has none, with two the others have none. */
static ct_status uneven_create(const ct_fused_desc *d, ct_fused **f_p)
{
    ct_fused *f;
    int rank = 0;

    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if ((rank == 0) ? (d->m == 1) : (d->m == 2)) return CT_UNSUPPORTED;
    f = calloc(1, sizeof(*f));
    if (f == NULL) return CT_ERR_NOMEM;
    f->rank = rank;
    *f_p = f;
    return CT_OK;
}

static void uneven_destroy(ct_fused *f)
{
    free(f);
}

static const char *uneven_algorithm(const ct_fused *f, int i)
{
    static const char *const first[] = { "lt:a", "lt:b", "lt:c" }, *const others[] = { "lt:c",
                                                                                       "lt:b" };

    if (f->rank == 0) return (i < 3) ? first[i] : NULL;
    return (i < 2) ? others[i] : NULL;
}

static void uneven_take(ct_fused *f, int i)
{
    f->taken = i;
}

static const ct_fused_ops uneven = { .name = "lt",
                                     .create = uneven_create,
                                     .destroy = uneven_destroy,
                                     .algorithm = uneven_algorithm,
                                     .take = uneven_take };

/* want: by which algorithm, NULL: CT_UNSUPPORTED, "": by none. */
static int make_product(const ct_layer *l, int64_t m, unsigned behind, const char *want)
{
    const ct_gemm_desc d = { .m = m, .n = 4, .k = 5 };
    ct_product p = { .math = NULL };
    ct_status status = ct_product_make(l, CT_RUN_BACKWARD_DATA, &d, behind, &p);
    const char *got = (p.fused == NULL) ? "" : uneven_algorithm(p.fused, p.fused->taken);
    int fault = MPI_FAULT_UNLESS(status == ((want != NULL) ? CT_OK : CT_UNSUPPORTED));

    if (want != NULL) fault += MPI_FAULT_UNLESS(strcmp(got, want) == 0);
    ct_product_drop(&p);
    return fault;
}

static int make_products(ct_engine_plan *p, int size)
{
    const ct_math_ops math = { .name = "uneven", .fused = &uneven };
    const ct_device dev = { .name = "uneven", .kind = CT_DEVICE_CUDA, .math = &math };
    const ct_net_env env = { .n_rank = size, .plan = p };
    const Ct__LayerParameter param = CT__LAYER_PARAMETER__INIT;
    const ct_layer l = { .param = &param, .name = "ip", .where = "", .env = &env, .dev = &dev };
    const char *first = (size > 1) ? "lt:b" : "lt:a";
    int fault = 0;

    log_capture_start(NULL); /* of a row that not all can follow */
    for (int again = 0; again < 2; again++) {
        fault += make_product(&l, 1, CT_FUSE_DRELU, NULL);
        fault += make_product(&l, 2, CT_FUSE_DRELU, (size > 1) ? NULL : "lt:a");
        fault += make_product(&l, 3, CT_FUSE_DRELU, first);
        for (int64_t m = 1; m <= 3; m++) fault += make_product(&l, m, 0, "");
        fault += make_product(&l, 4, 0, (size > 1) ? "" : "lt:a"); /* as its row says */
        fault += make_product(&l, 5, 0, "lt:c");
    }
    log_capture_stop();
    return fault;
}

#define PRODUCTS                                                                                   \
    "cortado plan 1\nmachine \"Test CPU\" avx2 threads 2 version \"1.0\"\n"                        \
    "product backward_data m4 n4 k5 nn gpu | lt:a 1 lt:c 2\n"                                      \
    "product backward_data m5 n4 k5 nn gpu | lt:c 1 lt:b 2\nend 2\n"

static void only_what_all_have_is_in_question(void **state)
{
    ct_engine_plan_options o = { .machine = { "Test CPU", "avx2", "1.0", 2 },
                                 .mode = CT_ENGINE_PLAN_REPLAY,
                                 .share = share,
                                 .least = least };
    ct_engine_plan *p = NULL;
    int fault = 0;

    (void)state;
    MPI_Comm_rank(MPI_COMM_WORLD, &o.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &o.n_rank);
    if (ct_engine_plan_create(&o, &p) != CT_OK) MPI_Abort(MPI_COMM_WORLD, 1);
    if (o.rank == 0) fault += (ct_engine_plan_parse(p, "r", PRODUCTS, strlen(PRODUCTS)) != CT_OK);
    fault += agree_on_c(p, o.rank, o.n_rank);
    fault += make_products(p, o.n_rank);
    ct_engine_plan_destroy(p);
    assert_int_equal(mpi_verdict(fault), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(ranks_take_what_rank_0_found),
    cmocka_unit_test(ranks_take_what_rank_0_read),
    cmocka_unit_test(ranks_without_the_engine_say_so),
    cmocka_unit_test(only_what_all_have_is_in_question),
};

MPI_MAIN(tests, 60)
