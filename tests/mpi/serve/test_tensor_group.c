/* A model that several ranks run together: all make the calls of rank 0, in its order; weights go
 * to all or to none; a rank that is no longer alike says so. */
#include "tests/mpi/mpi_test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/collective/blocking.h"
#include "framework/base/clock.h"
#include "framework/base/thread.h"
#include "serve/ranks/tensor_group.h"
#include "tests/log_capture.h"

enum { LARGE = 1 << 19, ROOM = 3, STEPS = 300 };

/* ---- a rank's part: what it was told so far, as one number */

typedef struct here {
    const ct_comm *c;
    uint64_t told;
    int n_open;
    int64_t more_kept; /* of a text of 4 ids, than rank 0 has: a rank that is not alike */
    uint64_t weights, next;
    ct_comm *loads; /* of the same ranks, for weights */
    atomic_int n_pass;
    int n_made, made_at, n_alone; /* nets, at which pass, and those that were loaded alone */
    ct_status failed;             /* as it was told to rank 0 */
} here;

typedef struct text {
    here *of;
    int64_t number;
} text;

static void tell(here *h, uint64_t v)
{
    h->told = (h->told ^ v) * 0x9e3779b97f4a7c15u;
    h->told ^= h->told >> 29;
}

static ct_status embed(void *ctx, ct_work *const *work, int n)
{
    here *h = ctx;

    tell(h, h->weights);
    atomic_fetch_add(&h->n_pass, 1);
    for (int i = 0; i < n; i++) {
        if (work[i]->ids.n == 13) return CT_FAIL(CT_ERR_DEVICE, "thirteen ids");
        for (int64_t k = 0; k < work[i]->ids.n; k++) tell(h, (uint64_t)work[i]->ids.id[k]);
        work[i]->row[0] = (float)work[i]->ids.n;
    }
    return CT_OK;
}

static ct_status open_text(void *ctx, const int32_t *id, int64_t n, int64_t capacity,
                           void **sequence_p, int64_t *kept_p)
{
    here *h = ctx;
    text *t;

    tell(h, (uint64_t)(capacity + id[n - 1]));
    if (h->n_open == ROOM) return CT_OK;
    t = calloc(1, sizeof(*t));
    if (t == NULL) return CT_ERR_NOMEM;
    *t = (text){ h, n };
    h->n_open++;
    *sequence_p = t;
    *kept_p = n / 2 + ((n == 4) ? h->more_kept : 0);
    return CT_OK;
}

/* Page 13 cannot be had. */
static ct_status place_text(void *ctx, const ct_sequence_place *at, void **sequence_p)
{
    here *h = ctx;
    text *t = (at->page[0] != 13) ? calloc(1, sizeof(*t)) : NULL;

    if (t == NULL) return CT_ERR_NOMEM;
    tell(h, (uint64_t)at->capacity);
    for (int64_t i = 0; i < at->n_page; i++) tell(h, (uint64_t)at->page[i]);
    for (int64_t i = 0; i < at->kept; i++) tell(h, (uint64_t)at->id[i]);
    *t = (text){ h, at->n_page };
    h->n_open++;
    *sequence_p = t;
    return CT_OK;
}

static void close_text(void *ctx, void *sequence)
{
    here *h = ctx;

    tell(h, 77);
    h->n_open--;
    free(sequence);
}

static int64_t peek(void *ctx, const int32_t *id, int64_t n)
{
    return n + id[0] + ((const here *)ctx)->n_open;
}

static ct_status grow(void *ctx, ct_work_piece *piece, int n)
{
    here *h = ctx;

    for (int i = 0; i < n; i++) {
        tell(h, (uint64_t)((const text *)piece[i].sequence)->number + (piece[i].wants ? 1000 : 0));
        for (int64_t k = 0; k < piece[i].n; k++) tell(h, (uint64_t)piece[i].id[k]);
    }
    return CT_OK;
}

static ct_status encode(void *ctx, const char *s, size_t n, ct_ids *ids)
{
    int32_t id = (int32_t)n + (int32_t)((here *)ctx)->n_open + s[0];

    return ct_ids_add(ids, &id, 1);
}

static ct_served_model model_of(here *h)
{
    return (ct_served_model){ .name = "together",
                              .most_length = LARGE,
                              .n_id = 256,
                              .embedding_size = 1,
                              .ctx = h,
                              .encode = encode,
                              .embed = embed,
                              .open = open_text,
                              .close = close_text,
                              .grow = grow,
                              .peek = peek,
                              .place = place_text };
}

static ct_status make_net(void *ctx)
{
    here *h = ctx;

    h->n_made++;
    h->made_at = atomic_load(&h->n_pass);
    return CT_OK;
}

/* Until a pass has run meanwhile. The last rank has none for the third time; all know it. */
static ct_status load_weights(void *ctx, uint64_t *checksum_p)
{
    here *h = ctx;
    int64_t bad = (h->n_made == 3) && (h->c->rank == h->c->size - 1);
    double end = ct_clock_s() + 60;

    while ((atomic_load(&h->n_pass) == h->made_at) && (ct_clock_s() < end)) (void)usleep(1000);
    if (atomic_load(&h->n_pass) == h->made_at) h->n_alone++;
    CT_TRY(ct_comm_max(h->loads, &bad, 1));
    if (bad != 0) return CT_ERR_IO;
    h->next = *checksum_p = h->weights + 100;
    return CT_OK;
}

static void take_weights(void *ctx, bool use)
{
    here *h = ctx;

    if (use) h->weights = h->next;
    h->next = 0;
}

static void note(void *ctx, ct_status status)
{
    ((here *)ctx)->failed = status;
}

/* ---- rank 0 */

static ct_status ask(const ct_served_model *m, int32_t *ids, int64_t n, float *row_p)
{
    ct_work work = { .kind = CT_WORK_EMBED, .ids = { .id = ids, .n = n }, .row = row_p };
    ct_work *each = &work;

    return m->embed(m->ctx, &each, 1);
}

static int embeds(const ct_served_model *m, int64_t n)
{
    int32_t *ids = calloc((size_t)n, sizeof(*ids));
    float row = 0;
    int fault;

    if (ids == NULL) return 1;
    for (int64_t k = 0; k < n; k++) ids[k] = (int32_t)(k % 251);
    fault = MPI_FAULT_UNLESS(ask(m, ids, n, &row) == CT_OK) + MPI_FAULT_UNLESS(row == (float)n);
    free(ids);
    return fault;
}

/* Texts that begin, wait for room, grow side by side and end, as numbers by chance say. */
static int texts(const ct_served_model *m)
{
    int32_t id[40];
    void *open[ROOM + 1] = { NULL };
    unsigned chance = 5;
    int fault = 0, n_open = 0;

    for (int i = 0; i < 40; i++) id[i] = 3 * i;
    for (int step = 0; step < STEPS; step++) {
        ct_work_piece piece[ROOM] = { { 0 } };
        int64_t kept = -1, n;

        chance = chance * 1664525u + 1013904223u;
        n = 1 + (chance >> 8) % 40;
        if ((chance >> 16) % 3 == 0) {
            fault += MPI_FAULT_UNLESS(m->open(m->ctx, id, n, 2 * n, &open[n_open], &kept) == CT_OK);
            fault += MPI_FAULT_UNLESS((open[n_open] != NULL) == (n_open < ROOM));
            fault += MPI_FAULT_UNLESS(kept == (n_open < ROOM ? n / 2 : 0));
            n_open += (open[n_open] != NULL);
        } else if (((chance >> 16) % 3 == 1) && (n_open > 0)) {
            m->close(m->ctx, open[--n_open]);
        } else if (n_open > 0) {
            for (int i = 0; i < n_open; i++)
                piece[i] = (ct_work_piece){
                    .sequence = open[i], .id = id + i, .n = 1 + n % 30, .wants = (i % 2 == 0)
                };
            fault += MPI_FAULT_UNLESS(m->grow(m->ctx, piece, n_open) == CT_OK);
        }
    }
    while (n_open > 0) m->close(m->ctx, open[--n_open]);
    return fault;
}

/* As of a group that is a replica: where texts lie is told. One that cannot lie there is nowhere.
 */
static int places(const ct_served_model *m)
{
    static const int32_t page[] = { 4, 2, 7 }, id[] = { 9, 8, 7, 6, 5 }, taken[] = { 13 };
    void *one = NULL, *two = NULL, *three = NULL;
    int fault = 0;

    fault += MPI_FAULT_UNLESS(m->place(m->ctx, &(ct_sequence_place){ page, 3, id, 5, 48 }, &one) ==
                              CT_OK);
    fault += MPI_FAULT_UNLESS(m->place(m->ctx, &(ct_sequence_place){ taken, 1, id, 0, 16 }, &two) ==
                              CT_ERR_NOMEM);
    fault += MPI_FAULT_UNLESS(
        m->place(m->ctx, &(ct_sequence_place){ page, 1, id, 0, 16 }, &three) == CT_OK);
    if ((one == NULL) || (two != NULL) || (three == NULL)) return fault + 1;
    ct_work_piece piece[] = { { .sequence = three, .id = id, .n = 3 },
                              { .sequence = one, .id = id, .n = 5, .wants = true } };

    fault += MPI_FAULT_UNLESS(m->grow(m->ctx, piece, 2) == CT_OK);
    m->close(m->ctx, one);
    m->close(m->ctx, three);
    return fault;
}

typedef struct loading {
    ct_replica_weights w;
    ct_status status;
    uint64_t sum;
    atomic_bool over;
} loading;

static void *load(void *arg)
{
    loading *l = arg;

    l->status = l->w.load(l->w.ctx, &l->sum);
    atomic_store(&l->over, true);
    return NULL;
}

/* Other weights; passes go on while all ranks load them. */
static int renews(const ct_served_model *m, ct_group_leader *leader, ct_status wanted, bool use)
{
    loading l = { .w = ct_group_leader_weights(leader) };
    pthread_t thread;
    int fault = 0;

    atomic_init(&l.over, false);
    fault += MPI_FAULT_UNLESS(l.w.make(l.w.ctx) == CT_OK);
    if (ct_thread_start(load, &l, &thread) != 0) abort();
    while (!atomic_load(&l.over)) fault += embeds(m, 3);
    (void)pthread_join(thread, NULL);
    fault += MPI_FAULT_UNLESS(l.status == wanted);
    fault += MPI_FAULT_UNLESS((wanted != CT_OK) || (l.sum == 100));
    l.w.take(l.w.ctx, use);
    return fault + embeds(m, 2);
}

static int weights(const ct_served_model *m, ct_group_leader *l, const here *h)
{
    int fault = renews(m, l, CT_OK, false);

    fault += MPI_FAULT_UNLESS(h->weights == 0);
    fault += renews(m, l, CT_OK, true);
    fault += renews(m, l, CT_ERR_IO, false);
    return fault + MPI_FAULT_UNLESS(h->weights == 100);
}

static ct_group_leader *lead(ct_comm *c, const ct_served_model *own, here *h)
{
    const ct_group_leader_options o = { .c = c,
                                        .own = own,
                                        .weights = { h, make_net, load_weights, take_weights },
                                        .fail = note,
                                        .ctx = h };
    ct_group_leader *l = NULL;

    if (ct_group_leader_create(&o, &l) != CT_OK) abort();
    ct_group_leader_begin(l);
    return l;
}

static int be_first(ct_comm *c, const ct_served_model *own, here *h)
{
    ct_group_leader *l = lead(c, own, h);
    const ct_served_model *m = ct_group_leader_model(l);
    ct_ids ids = { 0 };
    int fault = 0;

    fault += MPI_FAULT_UNLESS(m->encode(m->ctx, "a", 4, &ids) == CT_OK);
    fault += MPI_FAULT_UNLESS((ids.n == 1) && (ids.id[0] == 'a' + 4));
    fault += MPI_FAULT_UNLESS(m->peek(m->ctx, ids.id, 2) == 2 + 'a' + 4);
    ct_ids_destroy(&ids);
    fault += embeds(m, 1);
    fault += embeds(m, LARGE);
    fault += texts(m);
    fault += places(m);
    fault += weights(m, l, h);
    fault += texts(m);
    fault += MPI_FAULT_UNLESS(ct_group_leader_end(l) == CT_OK);
    ct_group_leader_destroy(l);
    return fault + MPI_FAULT_UNLESS(h->failed == CT_OK);
}

/* ---- all ranks */

static int follow(ct_comm *c, const ct_served_model *own, here *h, ct_status wanted,
                  const char *words)
{
    const ct_replica_weights w = { h, make_net, load_weights, take_weights };
    log_capture log;
    int fault;

    log_capture_start(&log);
    fault = MPI_FAULT_UNLESS(ct_group_follow(c, own, &w) == wanted);
    log_capture_stop();
    return fault + MPI_FAULT_UNLESS((words == NULL) || (strstr(log.error, words) != NULL));
}

/* All were told the same, and keep nothing. */
static int compare(const ct_comm *c, const here *h)
{
    uint64_t first = h->told;

    if (MPI_Bcast(&first, 1, MPI_UINT64_T, 0, c->mpi) != MPI_SUCCESS) return 1;
    return MPI_FAULT_UNLESS(first == h->told) + MPI_FAULT_UNLESS(h->n_open == 0) +
           MPI_FAULT_UNLESS(h->weights == 100) + MPI_FAULT_UNLESS(h->n_alone == 0);
}

static ct_comm *open_comm(void)
{
    ct_comm *c = NULL;

    assert_int_equal(ct_comm_create(MPI_COMM_WORLD, "auto", &c), CT_OK);
    return c;
}

static void test_alike(void **state)
{
    ct_comm *c = open_comm();
    here h = { .c = c };
    const ct_served_model own = model_of(&h);
    int fault;

    (void)state;
    assert_int_equal(ct_comm_split(c, 0, c->rank, &h.loads), CT_OK);
    fault = (c->rank == 0) ? be_first(c, &own, &h) : follow(c, &own, &h, CT_OK, NULL);
    fault += compare(c, &h);
    ct_comm_destroy(h.loads);
    ct_comm_destroy(c);
    assert_int_equal(mpi_verdict(fault), 0);
}

/* Rank 0 fails in a pass, as all do: whoever leads is told. */
static void test_fails(void **state)
{
    ct_comm *c = open_comm();
    here h = { .c = c };
    const ct_served_model own = model_of(&h);
    int32_t ids[13] = { 0 };
    float row;
    int fault;

    (void)state;
    if (c->rank == 0) {
        ct_group_leader *l = lead(c, &own, &h);
        log_capture log;

        log_capture_start(&log);
        fault = MPI_FAULT_UNLESS(ask(ct_group_leader_model(l), ids, 13, &row) == CT_ERR_DEVICE);
        log_capture_stop();
        fault += MPI_FAULT_UNLESS(h.failed == CT_ERR_DEVICE);
        ct_group_leader_destroy(l);
    } else {
        fault = follow(c, &own, &h, CT_ERR_DEVICE, "thirteen ids");
    }
    ct_comm_destroy(c);
    assert_int_equal(mpi_verdict(fault), 0);
}

/* Other pages on the other ranks, of the second text. They keep neither. */
static void test_unlike(void **state)
{
    ct_comm *c = open_comm();
    here h = { .c = c, .more_kept = (c->rank > 0) };
    const ct_served_model own = model_of(&h);
    int32_t ids[4] = { 1, 2, 3, 4 };
    int fault;

    (void)state;
    if (c->rank == 0) {
        ct_group_leader *l = lead(c, &own, &h);
        const ct_served_model *m = ct_group_leader_model(l);
        void *one = NULL, *other = NULL;
        int64_t kept = 0;

        fault = MPI_FAULT_UNLESS(m->open(m->ctx, ids, 3, 8, &one, &kept) == CT_OK);
        fault += MPI_FAULT_UNLESS(m->open(m->ctx, ids, 4, 8, &other, &kept) == CT_OK);
        fault += embeds(m, 3);
        m->close(m->ctx, other);
        m->close(m->ctx, one);
        ct_group_leader_destroy(l);
    } else {
        fault = follow(c, &own, &h, CT_ERR_COMM,
                       "no longer like rank 0 of its group: tokens that are kept");
    }
    fault += MPI_FAULT_UNLESS(h.n_open == 0);
    ct_comm_destroy(c);
    assert_int_equal(mpi_verdict(fault), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_alike),
    cmocka_unit_test(test_fails),
    cmocka_unit_test(test_unlike),
};

MPI_MAIN(tests, 120)
