/* Replicas on other ranks: what threads of rank 0 ask, the other ranks compute; what fails there is
 * told here; weights go to all; and a rank that does not answer is found. */
#include "tests/mpi/mpi_test.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "framework/base/clock.h"
#include "framework/base/thread.h"
#include "serve/ranks/replicas.h"
#include "tests/log_capture.h"

enum { SIZE = 3, TEXTS = 4, ROUNDS = 50, LARGE = 1 << 20 };

/* ---- what runs on a rank: the rank, the number of ids, their sum */

typedef struct here {
    int rank;
    uint64_t weights, next; /* in use, and opened */
    atomic_int n_batch;
    int n_sequence, n_opened;
    float score[SIZE];
} here;

/* A sequence's scores: the rank, how many tokens it has, their sum. */
typedef struct grown {
    float n, sum;
} grown;

static ct_status place(void *ctx, const ct_sequence_place *at, void **sequence_p)
{
    here *h = ctx;
    grown *g = calloc(1, sizeof(*g));

    if (g == NULL) abort();
    for (int64_t i = 0; i < at->kept; i++) g->sum += (float)at->id[i];
    g->n = (float)at->kept;
    h->n_sequence++;
    *sequence_p = g;
    return CT_OK;
}

static void close_grown(void *ctx, void *sequence)
{
    ((here *)ctx)->n_sequence--;
    free(sequence);
}

static ct_status grow(void *ctx, ct_work_piece *piece, int n)
{
    here *h = ctx;

    for (int k = 0; k < n; k++) {
        grown *g = piece[k].sequence;

        for (int64_t i = 0; i < piece[k].n; i++) g->sum += (float)piece[k].id[i];
        g->n += (float)piece[k].n;
        if (piece[k].id[0] == 13) return CT_FAIL(CT_ERR_DEVICE, "a thirteen grows");
        h->score[0] = (float)h->rank;
        h->score[1] = g->n;
        h->score[2] = g->sum;
        piece[k].score = h->score;
    }
    return CT_OK;
}

static ct_status embed(void *ctx, ct_work *const *work, int n)
{
    here *h = ctx;

    atomic_fetch_add(&h->n_batch, 1);
    for (int i = 0; i < n; i++) {
        float sum = 0;

        if (work[i]->ids.n == 13) return CT_FAIL(CT_ERR_DEVICE, "thirteen ids");
        if (work[i]->ids.n == 14) (void)usleep(300000);
        for (int64_t k = 0; k < work[i]->ids.n; k++) sum += (float)work[i]->ids.id[k];
        work[i]->row[0] = (float)h->rank;
        work[i]->row[1] = (float)work[i]->ids.n;
        work[i]->row[2] = sum + (float)h->weights;
    }
    return CT_OK;
}

static ct_status make_net(void *ctx)
{
    (void)ctx;
    return CT_OK;
}

static ct_status load_weights(void *ctx, uint64_t *checksum_p)
{
    here *h = ctx;
    int before = atomic_load(&h->n_batch);
    double end = ct_clock_s() + 20;

    h->next = h->weights + 100;
    /* the first ones are read until a batch has run meanwhile */
    while ((h->weights == 0) && (h->n_opened == 0) && (atomic_load(&h->n_batch) == before) &&
           (ct_clock_s() < end))
        (void)usleep(1000);
    h->n_opened++;
    if ((h->weights == 100) && (h->rank == 1)) return CT_FAIL(CT_ERR_IO, "no such weights");
    *checksum_p = h->next;
    return CT_OK;
}

static void take_weights(void *ctx, bool use)
{
    here *h = ctx;

    if (use) h->weights = h->next;
    h->next = 0;
}

static ct_served_model model_of(here *h)
{
    return (ct_served_model){ .name = "ranks",
                              .most_length = LARGE,
                              .n_id = 256,
                              .embedding_size = SIZE,
                              .ctx = h,
                              .embed = embed,
                              .most_context = LARGE,
                              .cache_tokens = 64 * 32,
                              .page_tokens = 32,
                              .n_score = SIZE,
                              .place = place,
                              .close = close_grown,
                              .grow = grow };
}

/* ---- rank 0 */

typedef struct first {
    ct_replicas *r;
    int n_rank;
    atomic_int n_wake, fault;
    atomic_bool slow, done; /* the next batch takes 0.3 s */
} first;

static void wake(void *ctx)
{
    atomic_fetch_add(&((first *)ctx)->n_wake, 1);
}

static ct_status ask(const first *f, int rank, int32_t *ids, int64_t n, float row[SIZE])
{
    const ct_served_model *m = ct_replicas_model(f->r, rank);
    ct_work work = { .kind = CT_WORK_EMBED, .ids = { .id = ids, .n = n }, .row = row };
    ct_work *each = &work;

    return m->embed(m->ctx, &each, 1);
}

static int expect(const first *f, int rank, int64_t n, int64_t weights)
{
    int32_t *ids = calloc((size_t)n + 1, sizeof(*ids));
    float row[SIZE] = { -1, -1, -1 };
    int fault = 0;

    if (ids == NULL) return 1;
    for (int64_t k = 0; k < n; k++) ids[k] = (int32_t)(k % 2);
    fault += MPI_FAULT_UNLESS(ask(f, rank, ids, n, row) == CT_OK);
    fault += MPI_FAULT_UNLESS((row[0] == (float)rank) && (row[1] == (float)n));
    fault += MPI_FAULT_UNLESS(row[2] == (float)(n / 2 + weights));
    free(ids);
    return fault;
}

/* The next n tokens of a sequence that has `from`, which are 0, 1, 2 … */
static int grow_there(const first *f, int rank, void *sequence, int64_t from, int64_t n)
{
    const ct_served_model *m = ct_replicas_model(f->r, rank);
    int32_t id[70];
    ct_work_piece piece = { .sequence = sequence, .id = id, .n = n, .wants = true };
    float sum = (float)((from + n) * (from + n - 1) / 2);
    int fault = 0;

    for (int64_t i = 0; i < n; i++) id[i] = (int32_t)(from + i);
    fault += MPI_FAULT_UNLESS(m->grow(m->ctx, &piece, 1) == CT_OK);
    fault += MPI_FAULT_UNLESS(!piece.failed && (piece.score[0] == (float)rank));
    return fault +
           MPI_FAULT_UNLESS((piece.score[1] == (float)(from + n)) && (piece.score[2] == sum));
}

/* A text of 70 tokens and one that begins as it does, on one rank. */
static int grow_two(const first *f, int rank)
{
    const ct_served_model *m = ct_replicas_model(f->r, rank);
    void *sequence = NULL, *second = NULL;
    int64_t kept = -1;
    int32_t id[70];
    int fault = 0;

    for (int32_t i = 0; i < 70; i++) id[i] = i;
    fault += MPI_FAULT_UNLESS(m->open(m->ctx, id, 70, 75, &sequence, &kept) == CT_OK);
    fault += MPI_FAULT_UNLESS(kept == 0);
    fault += grow_there(f, rank, sequence, 0, 70);
    fault += MPI_FAULT_UNLESS(m->peek(m->ctx, id, 70) == 64);
    fault += MPI_FAULT_UNLESS(m->open(m->ctx, id, 70, 75, &second, &kept) == CT_OK);
    fault += MPI_FAULT_UNLESS(kept == 64);
    m->close(m->ctx, sequence);
    fault += grow_there(f, rank, second, 64, 6);
    fault += grow_there(f, rank, second, 70, 1);
    m->close(m->ctx, second);
    return fault;
}

/* A batch that fails there; its sequence is closed at the end of the job. */
static int grow_wrong(const first *f)
{
    const ct_served_model *m = ct_replicas_model(f->r, 1);
    int32_t id[] = { 13 };
    ct_work_piece piece = { .id = id, .n = 1 };
    int64_t kept = -1;
    int fault = MPI_FAULT_UNLESS(m->open(m->ctx, id, 1, 5, &piece.sequence, &kept) == CT_OK);

    return fault + MPI_FAULT_UNLESS(m->grow(m->ctx, &piece, 1) == CT_ERR_DEVICE);
}

typedef struct client {
    first *f;
    int rank;
    pthread_t thread;
} client;

static void *ask_often(void *arg)
{
    const client *c = arg;
    int fault = 0;

    for (int i = 0; i < ROUNDS; i++) fault += expect(c->f, c->rank, 1 + i % 12, 0);
    fault += expect(c->f, c->rank, LARGE, 0);
    fault += grow_two(c->f, c->rank);
    atomic_fetch_add(&c->f->fault, fault);
    return NULL;
}

/* The other ranks fail, get other weights, and are late; from one thread. */
static void *go_on(void *arg)
{
    first *f = arg;
    int32_t ids[14] = { 0 };
    float row[SIZE];
    int fault = 0;
    log_capture log;

    log_capture_start(&log);
    fault += MPI_FAULT_UNLESS(ask(f, 1, ids, 13, row) == CT_ERR_DEVICE);
    fault += MPI_FAULT_UNLESS(strstr(log.error, "rank 1 says: ") != NULL);
    fault += MPI_FAULT_UNLESS(strstr(log.error, "thirteen ids") != NULL);
    fault += grow_wrong(f);
    fault += MPI_FAULT_UNLESS(strstr(log.error, "rank 1 says: a thirteen grows") != NULL);
    ct_replicas_open(f->r);
    for (int r = 1; r < f->n_rank; r++) fault += expect(f, r, 4, 0);
    fault += MPI_FAULT_UNLESS(ct_replicas_opened(f->r, 99, true) == CT_ERR_DATA);
    fault += MPI_FAULT_UNLESS(strstr(log.error, "rank 1 has read other weights") != NULL);
    fault += MPI_FAULT_UNLESS(ct_replicas_take(f->r, false) == CT_OK);
    ct_replicas_open(f->r);
    fault += MPI_FAULT_UNLESS(ct_replicas_opened(f->r, 100, true) == CT_OK);
    fault += MPI_FAULT_UNLESS(ct_replicas_take(f->r, true) == CT_OK);
    ct_replicas_open(f->r); /* rank 1 has none */
    fault += MPI_FAULT_UNLESS(ct_replicas_opened(f->r, 200, true) == CT_ERR_IO);
    fault += MPI_FAULT_UNLESS(strstr(log.error, "rank 1 says: ") != NULL);
    fault += MPI_FAULT_UNLESS(ct_replicas_take(f->r, false) == CT_OK);
    for (int r = 1; r < f->n_rank; r++) fault += expect(f, r, 5, 100);
    ct_replicas_open(f->r); /* rank 0 itself has none: nothing is said */
    log.n_error = 0;
    fault += MPI_FAULT_UNLESS(ct_replicas_opened(f->r, 0, false) == CT_ERR_IO);
    fault += MPI_FAULT_UNLESS(log.n_error == 0);
    fault += MPI_FAULT_UNLESS(ct_replicas_take(f->r, false) == CT_OK);
    atomic_store(&f->slow, true);
    fault += MPI_FAULT_UNLESS(ask(f, 1, ids, 14, row) == CT_OK);
    log_capture_stop();
    atomic_fetch_add(&f->fault, fault);
    return NULL;
}

static void *run(void *arg)
{
    first *f = arg;
    client c[8];

    for (int r = 1; r < f->n_rank; r++) c[r] = (client){ .f = f, .rank = r };
    for (int r = 1; r < f->n_rank; r++)
        if (ct_thread_start(ask_often, &c[r], &c[r].thread) != 0) abort();
    for (int r = 1; r < f->n_rank; r++) (void)pthread_join(c[r].thread, NULL);
    (void)go_on(f);
    atomic_store(&f->done, true);
    return NULL;
}

/* Moves messages as the server's main thread does, until the other threads are done. A batch that
 * takes 0.3 s is late by a limit of 0.1 s. */
static int move(first *f, pthread_t thread)
{
    bool late = false;
    double nap = 0, limit_s = 0.1;
    int fault = 0;

    for (double end = ct_clock_s() + 60; ct_clock_s() < end;) {
        fault += MPI_FAULT_UNLESS(ct_replicas_move(f->r, &nap) == CT_OK);
        fault += MPI_FAULT_UNLESS(nap > 0);
        if (atomic_load(&f->slow) && !late)
            late = (ct_replicas_check(f->r, limit_s) == CT_ERR_WATCHDOG);
        if (atomic_load(&f->done)) break;
        (void)usleep(isinf(nap) ? 100 : (useconds_t)(1e6 * nap));
    }
    (void)pthread_join(thread, NULL);
    /* each thing that was asked has woken this thread */
    fault += MPI_FAULT_UNLESS(atomic_load(&f->n_wake) > (f->n_rank - 1) * ROUNDS);
    return fault + MPI_FAULT_UNLESS(late);
}

static int be_first(ct_comm *c, here *h)
{
    const ct_served_model model = model_of(h);
    first f = { .n_rank = c->size };
    pthread_t thread;
    int fault = 0;

    if (ct_replicas_create(c, 1, &model, wake, &f, &f.r) != CT_OK) return 1;
    if (c->size > 1) {
        if (ct_thread_start(run, &f, &thread) != 0) abort();
        fault += move(&f, thread);
    }
    fault += MPI_FAULT_UNLESS(ct_replicas_end(f.r, 60) == CT_OK);
    ct_replicas_destroy(f.r);
    return fault + atomic_load(&f.fault);
}

static int serve(ct_comm *c)
{
    here h = { .rank = c->rank };
    const ct_served_model model = model_of(&h);
    const ct_replica_weights weights = { &h, make_net, load_weights, take_weights };
    log_capture log;
    int fault;

    if (c->rank == 0) return be_first(c, &h);
    log_capture_start(&log);
    fault = MPI_FAULT_UNLESS(ct_replicas_obey(c, &model, &weights) == CT_OK);
    log_capture_stop();
    fault += MPI_FAULT_UNLESS((h.n_sequence == 0) && (h.n_opened == 4));
    return fault + MPI_FAULT_UNLESS(h.weights == 100) + MPI_FAULT_UNLESS(h.next == 0);
}

static void test_serve(void **state)
{
    ct_comm *c = NULL;
    int fault;

    (void)state;
    assert_int_equal(ct_comm_create(MPI_COMM_WORLD, "auto", &c), CT_OK);
    fault = serve(c);
    ct_comm_destroy(c);
    assert_int_equal(mpi_verdict(fault), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_serve),
};

MPI_MAIN(tests, 120)
