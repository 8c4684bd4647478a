/* Layers whose results are those of the global batch: 1 to 4 ranks, some with more samples than
 * others and some with none, make what one rank makes of all samples. The ranks are threads, one at
 * a time, since a device that they share has memory of the process's. */
#include "tests/test.h"
#include "tests/layer_harness.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

#define S(...) TEST_SHAPE(__VA_ARGS__)

enum { MOST_RANKS = 4, MOST_NUMBERS = 256 };

/* ---- ranks as threads that add up their numbers */

typedef struct meeting {
    pthread_barrier_t all;
    pthread_mutex_t turn;
    int n;
    double v[MOST_RANKS][MOST_NUMBERS];
} meeting;

typedef struct rank_thread {
    test_layer *t;
    meeting *m;
    int rank;
    bool backward;
    ct_status status;
} rank_thread;

static ct_status meet(void *ctx, double *v, int n)
{
    rank_thread *r = ctx;
    double sum[MOST_NUMBERS];

    if (n > MOST_NUMBERS) return CT_ERR_ARG;
    memcpy(r->m->v[r->rank], v, (size_t)n * sizeof(*v));
    pthread_mutex_unlock(&r->m->turn);
    pthread_barrier_wait(&r->m->all);
    for (int i = 0; i < n; i++) {
        sum[i] = 0;
        for (int k = 0; k < r->m->n; k++) sum[i] += r->m->v[k][i];
    }
    pthread_barrier_wait(&r->m->all);
    pthread_mutex_lock(&r->m->turn);
    memcpy(v, sum, (size_t)n * sizeof(*v)); /* in this one's turn: the ranks may share v */
    return CT_OK;
}

static void *run_rank(void *ctx)
{
    rank_thread *r = ctx;

    pthread_mutex_lock(&r->m->turn);
    r->status = r->backward ? test_layer_backward(r->t) : test_layer_forward(r->t);
    pthread_mutex_unlock(&r->m->turn);
    return NULL;
}

static void run_ranks(rank_thread *rank, int n, bool backward)
{
    pthread_t thread[MOST_RANKS];

    for (int r = 0; r < n; r++) {
        rank[r].backward = backward;
        assert_int_equal(pthread_create(&thread[r], NULL, run_rank, &rank[r]), 0);
    }
    for (int r = 0; r < n; r++) pthread_join(thread[r], NULL);
    for (int r = 0; r < n; r++) assert_int_equal(rank[r].status, CT_OK);
}

/* ---- a layer on all samples, and on shares of them */

typedef struct job {
    test_layer_spec spec;  /* with the whole batch */
    const char *reference; /* another type for it; NULL: the same */
    uint32_t whole;        /* bit i: bottom i is the same on all ranks, not dealt out */
    uint32_t sum;          /* bit i: top i of the ranks adds up; else each has its samples' */
    double tolerance;      /* of 1 + the size of the number */
    void (*fill)(test_layer *t);
} job;

static void near(double got, double want, double tolerance, const job *j, const char *what,
                 int ranks)
{
    if (!(fabs(got - want) <= tolerance * (1 + fabs(want))))
        fail_msg("%s { %s } on %d ranks: %s is %.9g, on one %.9g", j->spec.type,
                 (j->spec.text != NULL) ? j->spec.text : "", ranks, what, got, want);
}

/* Rank r's part of the whole layer, with its samples [first, first + local). */
static test_layer *make_share(const job *j, const test_layer *all, int64_t first, int64_t local)
{
    test_layer_spec spec = j->spec;
    int64_t n = all->spec.bottom[0].dim[0];
    test_layer *t;

    for (int i = 0; i < spec.n_bottom; i++) {
        if (((j->whole >> i) & 1) == 0) spec.bottom[i].dim[0] = local;
    }
    t = test_layer_make(&spec);
    t->ex = all->ex;
    t->ex.batch_local = local;
    t->ex.batch_first = first;
    for (int i = 0; i < spec.n_bottom; i++) {
        int64_t per = ((j->whole >> i) & 1) ? 0 : all->input_count[i] / n;

        memcpy(t->input[i], all->input[i] + first * per, (size_t)t->input_count[i] * sizeof(float));
    }
    for (int i = 0; i < t->layer.n_weight; i++)
        memcpy(t->weight[i], all->weight[i], (size_t)t->weight_count[i] * sizeof(float));
    for (int i = 0; i < t->layer.n_top; i++) {
        int64_t per = ((j->sum >> i) & 1) ? 0 : all->top_count[i] / n;

        memcpy(t->top_diff[i], all->top_diff[i] + first * per,
               (size_t)t->top_count[i] * sizeof(float));
    }
    return t;
}

static void compare(const job *j, const test_layer *all, const rank_thread *rank, int n_rank)
{
    int64_t n = all->spec.bottom[0].dim[0];

    for (int k = 0; k < all->layer.n_top; k++) {
        bool sum = ((j->sum >> k) & 1) != 0;

        for (int64_t i = 0; sum && (i < all->top_count[k]); i++) {
            double got = 0;

            for (int r = 0; r < n_rank; r++) got += (double)rank[r].t->top[k][i];
            near(got, (double)all->top[k][i], j->tolerance, j, "a top", n_rank);
        }
        for (int r = 0; !sum && (r < n_rank); r++) {
            int64_t from = rank[r].t->ex.batch_first * (all->top_count[k] / n);

            for (int64_t i = 0; i < rank[r].t->top_count[k]; i++)
                near((double)rank[r].t->top[k][i], (double)all->top[k][from + i], j->tolerance, j,
                     "a top", n_rank);
        }
    }
    for (int b = 0; b < all->layer.n_bottom; b++) {
        for (int r = 0; (all->input_diff[b] != NULL) && (r < n_rank); r++) {
            int64_t from = rank[r].t->ex.batch_first * (all->input_count[b] / n);

            for (int64_t i = 0; i < rank[r].t->input_count[b]; i++)
                near((double)rank[r].t->input_diff[b][i], (double)all->input_diff[b][from + i],
                     j->tolerance, j, "a bottom's gradient", n_rank);
        }
    }
    for (int w = 0; w < all->layer.n_weight; w++) {
        for (int64_t i = 0; (all->weight_diff[w] != NULL) && (i < all->weight_count[w]); i++) {
            double got = 0;

            for (int r = 0; r < n_rank; r++) got += (double)rank[r].t->weight_diff[w][i];
            near(got, (double)all->weight_diff[w][i], j->tolerance, j, "a weight's gradient",
                 n_rank);
        }
        for (int64_t i = 0; (all->weight_diff[w] == NULL) && (i < all->weight_count[w]); i++) {
            for (int r = 0; r < n_rank; r++) { /* statistics: those of all samples, alike */
                near((double)rank[r].t->weight_after[w][i], (double)all->weight_after[w][i],
                     j->tolerance, j, "a statistic", n_rank);
                assert_true(rank[r].t->weight_after[w][i] == rank[0].t->weight_after[w][i]);
            }
        }
    }
}

/* Shares as unequal as they come: each rank but the last has r samples, the last what is left. */
static int64_t share(int r, int n_rank, int64_t n, int64_t first)
{
    int64_t left = n - first;

    return ((r == n_rank - 1) || (r > left)) ? left : r;
}

static void check(const job *j, int n_rank)
{
    test_layer_spec spec = j->spec;
    rank_thread rank[MOST_RANKS];
    meeting m = { .turn = PTHREAD_MUTEX_INITIALIZER, .n = n_rank };
    int64_t first = 0;
    test_layer *all;

    if (j->reference != NULL) spec.type = j->reference;
    all = test_layer_make(&spec);
    for (int k = 0; k < all->layer.n_top; k++) {
        if (!all->layer.ops->is_loss)
            test_random(all->top_diff[k], all->top_count[k], 9 + (uint64_t)k, -1, 1);
    }
    for (int w = 0; w < all->layer.n_weight; w++)
        test_random(all->weight[w], all->weight_count[w], 20 + (uint64_t)w, 0.5f, 2);
    j->fill(all);
    assert_int_equal(test_layer_forward(all), CT_OK);
    if (all->layer.ops->backward != NULL) assert_int_equal(test_layer_backward(all), CT_OK);
    assert_int_equal(pthread_barrier_init(&m.all, NULL, (unsigned)n_rank), 0);
    for (int r = 0; r < n_rank; r++) {
        int64_t local = share(r, n_rank, all->spec.bottom[0].dim[0], first);

        rank[r] = (rank_thread){ make_share(j, all, first, local), &m, r, false, CT_OK };
        rank[r].t->ex.sum_ranks = meet;
        rank[r].t->ex.hook_ctx = &rank[r];
        first += local;
    }
    run_ranks(rank, n_rank, false);
    if (all->layer.ops->backward != NULL) run_ranks(rank, n_rank, true);
    compare(j, all, rank, n_rank);
    pthread_barrier_destroy(&m.all);
    for (int r = 0; r < n_rank; r++) test_layer_destroy(rank[r].t);
    test_layer_destroy(all);
}

static void check_all(const job *j, int n)
{
    for (int i = 0; i < n; i++) {
        for (int n_rank = 1; n_rank <= MOST_RANKS; n_rank++) check(&j[i], n_rank);
    }
}

/* ---- SyncBN is BN on all samples */

/* Samples with means so far apart that no rank's own statistics come near; and one channel far from
 * zero, where sums of squares would leave nothing of the variance. */
static void apart(test_layer *t)
{
    int64_t per = t->input_count[0] / t->spec.bottom[0].dim[0];
    int64_t spatial = per / t->spec.bottom[0].dim[1];

    for (int64_t i = 0; i < t->input_count[0]; i++)
        t->input[0][i] +=
            (float)(i / per) + ((i / spatial % t->spec.bottom[0].dim[1] == 1) ? 1000 : 0);
}

/* Inputs of 1000 and a deviation above 1: x - mean keeps 13 of 23 bits, 2^-13 in a normal value;
 * gradients are sums of 42 such. */
static void sync_bn(void **state)
{
    const double tolerance = 0x1p-11;
    static const char text[] = "bn_param { momentum: 0.75 eps: 1e-4 }";
    const job jobs[] = {
        { { .type = "SyncBN", .text = text, .n_bottom = 1, .bottom = { S(7, 5, 2, 3) } },
          "BN",
          0,
          0,
          tolerance,
          apart },
        { { .type = "SyncBN",
            .text = text,
            .n_bottom = 1,
            .bottom = { S(7, 5, 2, 3) },
            .in_place = true },
          "BN",
          0,
          0,
          tolerance,
          apart },
        { { .type = "SyncBN", .n_bottom = 1, .bottom = { S(5, 1) } },
          "BN",
          0,
          0,
          tolerance,
          apart },
        { { .type = "SyncBN", .n_bottom = 1, .bottom = { S(3, 127, 1) } },
          "BN",
          0,
          0,
          tolerance,
          apart },
        { { .type = "SyncBN",
            .text = "bn_param { frozen: true }",
            .n_bottom = 1,
            .bottom = { S(3, 4, 2) } },
          "BN",
          0,
          0,
          tolerance,
          apart },
    };

    (void)state;
    check_all(jobs, sizeof(jobs) / sizeof(jobs[0]));
}

/* ---- MultiBoxLoss: samples with 0 to 3 true boxes, so that ranks have more and fewer */

enum { PRIORS = 11, CLASSES = 3, ROWS = 3 };

static void boxes(test_layer *t)
{
    int64_t n = t->spec.bottom[0].dim[0];

    for (int k = 0; k < PRIORS; k++) {
        float *p = t->input[2] + 4 * k, x = 0.07f * (float)k, side = 0.15f + 0.02f * (float)(k % 4);

        p[0] = x, p[1] = 0.5f * x, p[2] = x + side, p[3] = 0.5f * x + side;
        for (int i = 0; i < 4; i++) p[4 * PRIORS + i] = (i < 2) ? 0.1f : 0.2f;
    }
    for (int64_t k = 0; k < n * ROWS; k++) {
        int64_t i = k / ROWS, which = k % ROWS;
        float *row = t->input[3] + 8 * k, x = 0.1f * (float)(1 + (i + 2 * which) % 6);

        row[0] = (which < (2 * i + 1) % 4) ? 0.0f : -1.0f;
        row[1] = (float)(1 + (i + which) % 2);
        row[2] = (float)which;
        row[3] = x, row[4] = 0.5f * x, row[5] = x + 0.2f, row[6] = 0.5f * x + 0.18f;
        row[7] = 0;
    }
}

static void multibox(void **state)
{
#define BOX_LOSS(_more)                                                                            \
    {                                                                                              \
        { .type = "MultiBoxLoss",                                                                  \
          .text = "multibox_loss_param { num_classes: 3 overlap_threshold: 0.3 " _more,            \
          .n_bottom = 4,                                                                           \
          .bottom = { S(6, 4 * PRIORS), S(6, CLASSES * PRIORS), S(1, 2, 4 * PRIORS),               \
                      S(6, ROWS, 8) } },                                                           \
            NULL, 1 << 2, 1, 256 * 0x1p-24, boxes                                                  \
    }
    const job jobs[] = {
        BOX_LOSS("}"),
        BOX_LOSS("code_type: CENTER_SIZE mining_type: HARD_EXAMPLE sample_size: 4 }"),
        BOX_LOSS("mining_type: NONE } loss_param { normalization: FULL }"),
        BOX_LOSS("} loss_param { normalization: BATCH_SIZE }"),
        BOX_LOSS("} loss_param { normalization: NONE }"),
    };

    (void)state;
    check_all(jobs, sizeof(jobs) / sizeof(jobs[0]));
}

/* ---- losses and shares */

static void labels(test_layer *t)
{
    int64_t classes = 4;

    for (int64_t i = 0; i < t->input_count[1]; i++) t->input[1][i] = (float)(i * i % classes);
}

static void losses(void **state)
{
    const double tolerance = 64 * 0x1p-24;
    const job jobs[] = {
        { { .type = "SoftmaxWithLoss",
            .text = "loss_param { ignore_label: 1 }",
            .n_bottom = 2,
            .bottom = { S(6, 4, 3), S(6, 3) } },
          NULL,
          0,
          1,
          tolerance,
          labels },
        { { .type = "FocalLoss",
            .text = "loss_param { ignore_label: 0 }",
            .n_bottom = 2,
            .bottom = { S(6, 4, 3), S(6, 3) } },
          NULL,
          0,
          1,
          tolerance,
          labels },
        { { .type = "CenterLoss",
            .text = "center_loss_param { num_output: 4 }",
            .n_bottom = 2,
            .bottom = { S(6, 5), S(6) } },
          NULL,
          0,
          1,
          tolerance,
          labels },
        { { .type = "Accuracy",
            .text = "accuracy_param { ignore_label: 0 }",
            .n_bottom = 2,
            .n_top = 2,
            .bottom = { S(6, 4, 3), S(6, 3) } },
          NULL,
          0,
          3,
          tolerance,
          labels },
    };

    (void)state;
    check_all(jobs, sizeof(jobs) / sizeof(jobs[0]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sync_bn),
        cmocka_unit_test(multibox),
        cmocka_unit_test(losses),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
