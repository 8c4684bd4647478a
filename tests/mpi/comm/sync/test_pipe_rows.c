/* Rows of a table that travel as a list: in place of a dense sum, beside one, and in steps without
 * them, against sums in double; the same bits on all ranks. */
#include "tests/mpi/mpi_test.h"
#include "tests/log_capture.h"

#include <math.h>
#include <stdlib.h>

#include "comm/codec/codec_types.h"
#include "comm/sync/grad_pipe.h"
#include "framework/base/rng.h"

enum {
    V = 301, /* rows of both tables */
    C = 70,
    MOST = 40,
    N_RANGE = 5,
    TIED = 0, /* ready first, its rows last */
    ALONE = 3,
    HOLE = V * C / 16 * 16 + 16,
    STEPS = 6,
    N = 2 * HOLE + 2200
};

static const ct_grad_range range[N_RANGE] = {
    { .key = "tied", .offset = 0, .count = V * C, .rows = V, .row_most = MOST, .row_beside = true },
    { .key = "fc[0]", .offset = HOLE, .count = 1000, .rows = 10 },
    { .key = "fc[1]", .offset = HOLE + 1008, .count = 7 },
    { .key = "table", .offset = HOLE + 1024, .count = V * C, .rows = V, .row_most = MOST },
    { .key = "conv[0]", .offset = 2 * HOLE + 1024, .count = 777 },
};

/* What a rank has in a step: which rows, some of them more than once, on some ranks none. */
typedef struct given {
    int m;
    int32_t index[MOST];
    float value[MOST][C];
} given;

static void draw(given *g, int rank, int64_t s)
{
    uint64_t key = ct_rng_key(5, (uint64_t)rank, (uint64_t)s);

    g->m = ((s + rank) % 3 == 2) ? 0 : (int)(ct_rng_philox(key, 1, 0).v[0] % MOST) + 1;
    for (int k = 0; k < g->m; ++k) {
        g->index[k] = (int32_t)(ct_rng_philox(key, 2, (uint64_t)k).v[0] % ((k % 2 == 0) ? V : 9));
        for (int c = 0; c < C; ++c) g->value[k][c] = mpi_number(rank, s, 100000000 + k * C + c);
    }
}

/* Dense gradients: of all ranges but the table that has rows alone. */
static float dense_at(int rank, int64_t s, int64_t k)
{
    return mpi_number(rank, s, k);
}

/* The table has rows in even steps, and is dense in the others. */
static bool has_rows(int64_t s)
{
    return s % 2 == 0;
}

static void make(const ct_comm *c, int64_t s, double *sum, double *size)
{
    memset(sum, 0, N * sizeof(*sum));
    memset(size, 0, N * sizeof(*size));
    for (int r = 0; r < c->size; ++r) {
        given g;

        draw(&g, r, s);
        for (int i = 0; i < N_RANGE; ++i) {
            for (int64_t k = range[i].offset; k < range[i].offset + range[i].count; ++k) {
                double v = ((i == ALONE) && has_rows(s)) ? 0 : (double)dense_at(r, s, k);

                sum[k] += v;
                size[k] += fabs(v);
            }
        }
        for (int k = 0; k < g.m; ++k) {
            for (int e = 0; e < C; ++e) {
                int64_t at[2] = { (int64_t)g.index[k] * C + e,
                                  range[ALONE].offset + (int64_t)g.index[k] * C + e };

                for (int t = 0; t < (has_rows(s) ? 2 : 1); ++t) {
                    sum[at[t]] += (double)g.value[k][e];
                    size[at[t]] += fabs((double)g.value[k][e]);
                }
            }
        }
    }
}

typedef struct landing {
    ct_grad_pipe *gp;
    int times[N_RANGE], parts;
} landing;

static ct_status note_landed(void *ctx, int first, int n)
{
    landing *l = ctx;

    for (int i = first; i < first + n; ++i) l->times[i] += 1;
    return ct_grad_pipe_poll(l->gp);
}

static ct_status note_part(void *ctx, int i, int64_t from, int64_t count)
{
    landing *l = ctx;

    (void)from, (void)count;
    l->parts += (range[i].row_most > 0); /* its sum is not there before the rows are */
    return CT_OK;
}

#define OK(_call) fault += MPI_FAULT_UNLESS((_call) == CT_OK)

/* As a net does: the head's gradient, the others, the table's rows in two pieces, the tied rows. */
static int step(ct_grad_pipe *gp, ct_comm *c, int64_t s, bool waits, float *arena, landing *l)
{
    given g;
    int fault = 0, half = 0;

    draw(&g, c->rank, s);
    half = g.m / 2;
    memset(arena, 0, N * sizeof(*arena));
    for (int i = 0; i < N_RANGE; ++i) {
        for (int64_t k = range[i].offset; k < range[i].offset + range[i].count; ++k)
            arena[k] = ((i == ALONE) && has_rows(s)) ? 0 : dense_at(c->rank, s, k);
    }
    for (int k = 0; has_rows(s) && (k < g.m); ++k) {
        for (int e = 0; e < C; ++e)
            arena[range[ALONE].offset + g.index[k] * C + e] += g.value[k][e];
    }
    OK(ct_grad_pipe_begin(gp, s, 1, 1));
    for (int i = 0; i < N_RANGE; ++i) {
        if ((i == ALONE) && has_rows(s)) {
            OK(ct_grad_pipe_rows(gp, i, half, g.index, NULL));
            OK(ct_grad_pipe_rows(gp, i, g.m - half, g.index + half, NULL));
        }
        OK(ct_grad_pipe_ready(gp, i));
        for (int k = 0; k < 2 + c->rank; ++k) OK(ct_grad_pipe_poll(gp));
    }
    OK(ct_grad_pipe_rows(gp, TIED, g.m, g.index, &g.value[0][0]));
    if (waits) OK(ct_grad_pipe_wait(gp, TIED, 1, note_landed, l));
    if (waits) fault += MPI_FAULT_UNLESS(l->times[TIED] == 1);
    OK(ct_grad_pipe_finish(gp, note_landed, l));
    OK(ct_grad_pipe_finish(gp, note_landed, l)); /* at once */
    return fault;
}

static int check(ct_comm *c, const float *arena, const double *sum, const double *size)
{
    int64_t most[2] = { 0 };
    uint64_t h = 14695981039346656037u;
    int fault = 0, wrong = 0;

    /* a row's values are added up on a rank first: MOST terms, then one a rank */
    for (int64_t k = 0; k < N; ++k)
        wrong += !(fabs((double)arena[k] - sum[k]) <= (MOST + 2 * c->size) * 0x1p-24 * size[k]);
    fault += MPI_FAULT_UNLESS(wrong == 0);
    for (size_t i = 0; i < N * sizeof(*arena); ++i)
        h = (h ^ ((const unsigned char *)arena)[i]) * 1099511628211u;
    most[0] = (int64_t)(h >> 1);
    most[1] = -most[0];
    MPI_Allreduce(MPI_IN_PLACE, most, 2, MPI_INT64_T, MPI_MAX, MPI_COMM_WORLD);
    return fault + MPI_FAULT_UNLESS(most[0] == -most[1]);
}

static int run(ct_comm *c, const ct_grad_pipe_config *config, int64_t *bytes_p)
{
    const ct_arena_ops *mem = ct_comm_arena(c);
    double *sum = calloc(2 * N, sizeof(*sum));
    ct_grad_pipe *gp = NULL;
    ct_sync_stats counters;
    void *block = NULL;
    int fault = 0;

    OK(mem->acquire(mem->ctx, sizeof(float) * N, "arena", &block));
    OK(ct_grad_pipe_create(c, config, block, range, N_RANGE, &gp));
    for (int64_t s = 0; (s < STEPS) && (fault == 0); ++s) {
        landing l = { .gp = gp };

        ct_grad_pipe_hear_parts(gp, note_part, &l);
        make(c, s, sum, sum + N);
        fault += step(gp, c, s, s % 3 == 1, block, &l);
        for (int i = 0; i < N_RANGE; ++i) fault += MPI_FAULT_UNLESS(l.times[i] == 1);
        fault += MPI_FAULT_UNLESS(l.parts == 0);
        fault += check(c, block, sum, sum + N);
    }
    ct_grad_pipe_get_stats(gp, false, &counters);
    *bytes_p = counters.bytes_sent;
    ct_grad_pipe_destroy(gp);
    mem->release(mem->ctx, block);
    free(sum);
    return fault;
}

/* By a ring all ranks together send an array 2 (p - 1) times, and a list p - 1 times. The second
 * table is dense in every second step alone; lists have at most MOST rows and some numbers. */
static int check_bytes(const ct_comm *c, int64_t mine)
{
    int64_t all = 0, p = c->size, list = 256 + 4 * MOST * C;
    int64_t dense = STEPS * (N - V * C) + STEPS / 2 * V * C;

    MPI_Allreduce(&mine, &all, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    return MPI_FAULT_UNLESS(all <= 2 * (p - 1) * 4 * dense + (p - 1) * p * 2 * STEPS * list) +
           MPI_FAULT_UNLESS(all >= 2 * (p - 1) * 4 * (dense - STEPS * (N - 2 * V * C - 1784)));
}

static int sums(ct_comm *c)
{
    static const ct_progress_kind progress[] = { CT_PROGRESS_POLL, CT_PROGRESS_THREAD };
    const char *why = NULL;
    int64_t bytes = 0;
    int fault = 0;

    for (int k = 0; k < 16; ++k) {
        ct_grad_pipe_config config = { .allreduce = (k & 1) ? "ring" : "auto",
                                       .codec = &ct_codec_none,
                                       .bucket_bytes = (k & 1) ? 3000 : 0,
                                       .overlap = (k & 2) == 0,
                                       .reproducible = (k & 4) != 0,
                                       .progress = progress[k >> 3] };

        if ((config.progress == CT_PROGRESS_THREAD) && !ct_comm_may_thread(c, &why)) continue;
        fault += run(c, &config, &bytes);
        if (((k & 1) != 0) && !config.reproducible) fault += check_bytes(c, bytes);
        fault += MPI_FAULT_UNLESS((c->size > 1) || (bytes == 0));
    }
    return fault;
}

/* What is asked at the wrong time, or does not fit. */
static int errors(ct_comm *c)
{
    const ct_grad_pipe_config config = {
        .allreduce = "auto", .codec = &ct_codec_none, .overlap = true, .progress = CT_PROGRESS_POLL
    };
    const ct_arena_ops *mem = ct_comm_arena(c);
    const float value[2 * C] = { 0 };
    int32_t index[MOST + 1], beyond[1] = { V };
    ct_grad_pipe *gp = NULL;
    void *block = NULL;
    log_capture log;
    int fault = 0;

    for (int k = 0; k <= MOST; ++k) index[k] = k;
    OK(mem->acquire(mem->ctx, sizeof(float) * N, "arena", &block));
    memset(block, 0, sizeof(float) * N);
    OK(ct_grad_pipe_create(c, &config, block, range, N_RANGE, &gp));
    log_capture_start(&log);
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_rows(gp, ALONE, 1, index, NULL) == CT_ERR_ARG);
    OK(ct_grad_pipe_begin(gp, 0, 1, 1));
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_rows(gp, 1, 1, index, NULL) == CT_ERR_ARG);
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_rows(gp, TIED, 1, index, value) == CT_ERR_ARG);
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_rows(gp, ALONE, 1, beyond, NULL) == CT_ERR_ARG);
    fault += MPI_FAULT_UNLESS(strstr(log.error, "row 301 of 301") != NULL);
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_rows(gp, ALONE, MOST + 1, index, NULL) == CT_ERR_ARG);
    fault += MPI_FAULT_UNLESS(strstr(log.error, "more than the 40 rows") != NULL);
    for (int i = 0; i < N_RANGE; ++i) OK(ct_grad_pipe_ready(gp, i));
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_rows(gp, ALONE, 1, index, NULL) == CT_ERR_ARG);
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_finish(gp, NULL, NULL) == CT_ERR_ARG);
    fault += MPI_FAULT_UNLESS(strstr(log.error, "the rows of tied were not given") != NULL);
    OK(ct_grad_pipe_rows(gp, TIED, 2, index, value));
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_rows(gp, TIED, 1, index, value) == CT_ERR_ARG);
    OK(ct_grad_pipe_finish(gp, NULL, NULL));
    log_capture_stop();
    ct_grad_pipe_destroy(gp);
    mem->release(mem->ctx, block);
    return fault;
}

static void test_sums(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(sums)), 0);
}

static void test_errors(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(errors)), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_sums),
    cmocka_unit_test(test_errors),
};

MPI_MAIN(tests, 180)
