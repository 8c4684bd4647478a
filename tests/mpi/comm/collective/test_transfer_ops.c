/* Transfers of a divided net over MPI: what MPI's own collectives give, in whatever order they are
 * waited for, beside gradients under way; and messages between any two ranks. */
#include "tests/mpi/mpi_test.h"

#include <stdlib.h>

#include "comm/codec/codec_types.h"
#include "comm/collective/async_sum.h"
#include "comm/sync/grad_pipe.h"
#include "framework/base/bf16.h"
#include "framework/base/rng.h"

enum { N_PIECE = 4, MOST_RANKS = 8, MOST = 53000 };

/* Units of a rank's piece: odd, large, of nobody but one, of some. */
static int64_t piece_of(int which, int rank)
{
    static const int64_t large[] = { 1501, 1500, 1502, 0, 1499, 17, 1500, 1 };

    if (which == 0) return 1 + (rank + 1) % 3;
    if (which == 1) return large[rank];
    if (which == 2) return (rank == 0) ? 5 : 0;
    return 2 + rank;
}

static const int64_t unit_of[N_PIECE] = { 1, 7, 3, 1000 };

typedef struct buffers {
    int64_t piece[MOST_RANKS], n, mine, at;
    float from[MOST], to[MOST], expected[MOST];
    uint16_t from16[MOST], to16[MOST];
} buffers;

/* Small and whole, exact in bf16 with up to 8 ranks' sum; or anything. */
static float value(int rank, int which, int64_t i, bool whole)
{
    ct_rng_block b = ct_rng_philox(ct_rng_key(3, (uint64_t)rank, (uint64_t)which), 0, (uint64_t)i);

    if (whole) return (float)(b.v[0] % 17) - 8;
    return ((float)b.v[0] - 2e9f) * ((b.v[1] % 2 == 0) ? 1.0f : 1e-5f);
}

static void fill(buffers *b, const ct_comm *c, int which, bool whole)
{
    b->n = b->at = 0;
    for (int r = 0; r < c->size; ++r) {
        b->piece[r] = piece_of(which, r);
        if (r < c->rank) b->at += b->piece[r] * unit_of[which];
        b->n += b->piece[r] * unit_of[which];
    }
    b->mine = b->piece[c->rank] * unit_of[which];
    for (int64_t i = 0; i < b->n; ++i) {
        b->from[i] = value(c->rank, which, i, whole);
        b->to[i] = -1;
    }
    ct_bf16_narrow_all(b->n, b->from, b->from16);
}

/* By MPI itself, of whole numbers. A pipe's thread may be under way: the lock is held across the
 * wait, since nobody who is waited for needs that thread. */
static void expect(buffers *b, ct_comm *c, ct_transfer_kind kind, int which)
{
    int count[MOST_RANKS], at[MOST_RANKS], sum = 0;

    for (int r = 0; r < c->size; ++r) {
        count[r] = (int)(b->piece[r] * unit_of[which]);
        at[r] = sum;
        sum += count[r];
    }
    ct_comm_lock(c);
    if (kind == CT_TRANSFER_SUM)
        MPI_Allreduce(b->from, b->expected, (int)b->n, MPI_FLOAT, MPI_SUM, c->mpi);
    else if (kind == CT_TRANSFER_GATHER)
        MPI_Allgatherv(b->from, count[c->rank], MPI_FLOAT, b->expected, count, at, MPI_FLOAT,
                       c->mpi);
    else
        MPI_Reduce_scatter(b->from, b->expected, count, MPI_FLOAT, MPI_SUM, c->mpi);
    ct_comm_unlock(c);
}

static ct_transfer describe(buffers *b, ct_transfer_kind kind, int which, bool bf16)
{
    return (ct_transfer){ .kind = kind,
                          .dtype = bf16 ? CT_BF16 : CT_F32,
                          .from = bf16 ? (const void *)b->from16 : b->from,
                          .to = bf16 ? (void *)b->to16 : b->to,
                          .n = b->n,
                          .piece = b->piece,
                          .unit = unit_of[which] };
}

static int is_expected(buffers *b, ct_transfer_kind kind, bool bf16)
{
    int64_t n = (kind == CT_TRANSFER_SCATTER) ? b->mine : b->n;

    if (bf16) ct_bf16_widen_all(n, b->to16, b->to);
    return MPI_FAULT_UNLESS(memcmp(b->to, b->expected, (size_t)n * sizeof(float)) == 0);
}

/* All kinds and sizes are under way together, and end in the order in which they began, or the
 * other one. */
static int together(ct_comm *c, ct_transfers *t, bool bf16, bool backwards, bool polls)
{
    enum { N = 3 * N_PIECE };
    static buffers b[N];
    void *ticket[N];
    int fault = 0;

    for (int k = 0; k < N; ++k) {
        fill(&b[k], c, k / 3, true);
        expect(&b[k], c, (ct_transfer_kind)(k % 3), k / 3);
    }
    for (int k = 0; k < N; ++k) {
        ct_transfer what = describe(&b[k], (ct_transfer_kind)(k % 3), k / 3, bf16);

        fault += MPI_FAULT_UNLESS(ct_transfers_ops.begin(t, &what, &ticket[k]) == CT_OK);
    }
    for (int i = 0; polls && (i < 50 * (c->rank + 1)); ++i)
        fault += MPI_FAULT_UNLESS(ct_transfers_ops.poll(t) == CT_OK);
    for (int i = 0; i < N; ++i)
        fault +=
            MPI_FAULT_UNLESS(ct_transfers_ops.wait(t, ticket[backwards ? N - 1 - i : i]) == CT_OK);
    for (int k = 0; k < N; ++k) fault += is_expected(&b[k], (ct_transfer_kind)(k % 3), bf16);
    return fault;
}

/* Any numbers: the sum in rank order, in place, too; the same bits everywhere. */
static int in_rank_order(ct_comm *c, ct_transfers *t)
{
    static buffers b;
    static float all[MOST_RANKS][MOST];
    void *ticket;
    int fault = 0;

    for (int in_place = 0; in_place < 2; ++in_place) {
        ct_transfer what;

        fill(&b, c, 1, false);
        MPI_Allgather(b.from, MOST, MPI_FLOAT, all, MOST, MPI_FLOAT, c->mpi);
        for (int64_t i = 0; i < b.n; ++i) {
            b.expected[i] = all[0][i];
            for (int r = 1; r < c->size; ++r) b.expected[i] += all[r][i];
        }
        what = describe(&b, CT_TRANSFER_SUM, 1, false);
        if (in_place == 1) what.to = b.from;
        fault += MPI_FAULT_UNLESS(ct_transfers_ops.begin(t, &what, &ticket) == CT_OK);
        fault += MPI_FAULT_UNLESS(ct_transfers_ops.wait(t, ticket) == CT_OK);
        fault += MPI_FAULT_UNLESS(memcmp(what.to, b.expected, (size_t)b.n * sizeof(float)) == 0);
    }
    return fault;
}

/* ---- messages between two ranks of the job */

enum { MESSAGES = 3, LENGTH = 30000 };

static float message_at(int from, int tag, int k, int i)
{
    return (float)(from * 1000 + tag * 100 + k * 10 + i % 7);
}

/* To the next rank and from the one before, and back with the same tags. Some are received before
 * they are sent, some after. */
static int messages(const ct_comm *all, ct_transfers *t)
{
    static float out[2][MESSAGES][LENGTH], in[2][MESSAGES][LENGTH];
    void *sent[2][MESSAGES], *got[2][MESSAGES];
    int n = all->size, to[2] = { (all->rank + 1) % n, (all->rank + n - 1) % n }, fault = 0;

    for (int d = 0; d < 2; ++d) {
        for (int k = 0; k < MESSAGES; ++k) {
            ct_transfer what = { .kind = CT_TRANSFER_SEND, .from = out[d][k], .n = LENGTH };

            what.peer = to[d];
            what.tag = k % 2 + ((n <= 2) ? 2 * d : 0); /* of two ranks both ways are one pair */
            for (int i = 0; i < LENGTH; ++i) out[d][k][i] = message_at(all->rank, d, k, i);
            fault += MPI_FAULT_UNLESS(ct_transfers_ops.begin(t, &what, &sent[d][k]) == CT_OK);
        }
        for (int k = 0; k < MESSAGES; ++k) {
            ct_transfer what = { .kind = CT_TRANSFER_RECEIVE, .to = in[d][k], .n = LENGTH };

            what.peer = to[1 - d];
            what.tag = k % 2 + ((n <= 2) ? 2 * d : 0);
            fault += MPI_FAULT_UNLESS(ct_transfers_ops.begin(t, &what, &got[d][k]) == CT_OK);
        }
    }
    for (int d = 1; d >= 0; --d) {
        for (int k = MESSAGES - 1; k >= 0; --k) {
            int wrong = 0;

            fault += MPI_FAULT_UNLESS(ct_transfers_ops.wait(t, got[d][k]) == CT_OK);
            for (int i = 0; i < LENGTH; ++i)
                wrong += (in[d][k][i] != message_at(to[1 - d], d, k, i));
            fault += MPI_FAULT_UNLESS(wrong == 0);
        }
    }
    for (int d = 0; d < 2; ++d) {
        for (int k = 0; k < MESSAGES; ++k)
            fault += MPI_FAULT_UNLESS(ct_transfers_ops.wait(t, sent[d][k]) == CT_OK);
    }
    return fault;
}

/* What nobody will send is given up. */
static int given_up(const ct_comm *all, ct_transfers *t)
{
    static float room[16];
    ct_transfer what = { .kind = CT_TRANSFER_RECEIVE, .to = room, .n = 16, .tag = 9 };
    void *ticket;
    int fault;

    what.peer = (all->rank + 1) % all->size;
    fault = MPI_FAULT_UNLESS(ct_transfers_ops.begin(t, &what, &ticket) == CT_OK);
    ct_transfers_ops.drop(t, ticket);
    return fault + MPI_FAULT_UNLESS(ct_transfers_ops.poll(t) == CT_OK);
}

/* ---- beside gradients */

enum { N_GRAD = 200000 };

static ct_status on_landed(void *ctx, int first, int n)
{
    *(int *)ctx += n + 0 * first;
    return CT_OK;
}

/* The job is a group's ranks times its replicas: gradients are under way among those who are in the
 * same place of their groups. Ranks wait for gradients and transfers in different orders. */
static int beside_gradients(ct_comm *group, ct_comm *data, ct_transfers *t, bool thread)
{
    const ct_grad_range range = { .key = "w[0]", .count = N_GRAD };
    ct_grad_pipe_config config = { .allreduce = "ring", .overlap = true };
    float *arena = calloc(N_GRAD, sizeof(*arena));
    ct_grad_pipe *pipe = NULL;
    int fault = 0, landed = 0;

    config.codec = &ct_codec_none;
    config.progress = thread ? CT_PROGRESS_THREAD : CT_PROGRESS_POLL;
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_create(data, &config, arena, &range, 1, &pipe) == CT_OK);
    for (int step = 0; (pipe != NULL) && (step < 2); ++step) {
        for (int i = 0; i < N_GRAD; ++i) arena[i] = (float)((i + data->rank + step) % 9);
        fault += MPI_FAULT_UNLESS(ct_grad_pipe_begin(pipe, step, 1, 1) == CT_OK);
        fault += MPI_FAULT_UNLESS(ct_grad_pipe_ready(pipe, 0) == CT_OK);
        if ((group->rank + step) % 2 == 0) fault += together(group, t, false, true, false);
        fault += MPI_FAULT_UNLESS(ct_grad_pipe_finish(pipe, on_landed, &landed) == CT_OK);
        if ((group->rank + step) % 2 == 1) fault += together(group, t, false, true, false);
        for (int i = 0, wrong = 0; i < N_GRAD; ++i) {
            float sum = 0;

            for (int r = 0; r < data->size; ++r) sum += (float)((i + r + step) % 9);
            wrong += (arena[i] != sum);
            if (i == N_GRAD - 1) fault += MPI_FAULT_UNLESS(wrong == 0);
        }
    }
    fault += MPI_FAULT_UNLESS(landed == 2);
    ct_grad_pipe_destroy(pipe);
    free(arena);
    return fault;
}

/* Groups of 1, 2, … ranks, as many as there can be. */
static int in_groups(ct_comm *all)
{
    int fault = 0;

    for (int size = 1; size <= all->size; ++size) {
        ct_comm *group = NULL, *data = NULL;
        ct_transfers *t = NULL;

        fault += MPI_FAULT_UNLESS(ct_comm_split(all, all->rank / size, all->rank, &group) == CT_OK);
        fault += MPI_FAULT_UNLESS(ct_comm_split(all, all->rank % size, all->rank, &data) == CT_OK);
        fault += MPI_FAULT_UNLESS(ct_transfers_create(group, all, &t) == CT_OK);
        if (mpi_verdict(fault) > 0) return fault;
        for (int how = 0; how < 4; ++how) /* each two of the three in all ways */
            fault += together(group, t, how % 2 == 1, how / 2 == 1, how % 2 != how / 2);
        fault += in_rank_order(group, t) + messages(all, t) + given_up(all, t);
        if (all->size % size == 0) fault += beside_gradients(group, data, t, size % 2 == 0);
        ct_transfers_destroy(t);
        ct_comm_destroy(data);
        ct_comm_destroy(group);
    }
    return fault;
}

/* On the machine as it is, and on one of pretended nodes. */
static void test_groups(void **state)
{
    char spec[8][32];
    int n_spec = mpi_machines(spec), fault = 0;

    (void)state;
    for (int i = 0; i < n_spec; i += (n_spec > 1) ? n_spec - 1 : 1) {
        ct_comm *c = NULL;

        fault += MPI_FAULT_UNLESS(ct_comm_create(MPI_COMM_WORLD, spec[i], &c) == CT_OK);
        if (fault == 0) fault += in_groups(c);
        ct_comm_destroy(c);
    }
    assert_int_equal(mpi_verdict(fault), 0);
}

static const struct CMUnitTest tests[] = { cmocka_unit_test(test_groups) };

MPI_MAIN(tests, 120)
