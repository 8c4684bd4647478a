/* Communicators of a part of the ranks: who is in them, and that they disturb nobody. */
#include "tests/mpi/mpi_test.h"

#include <stdlib.h>

#include "comm/codec/codec_types.h"
#include "comm/collective/blocking.h"
#include "comm/collective/coll.h"
#include "comm/core/node.h"
#include "comm/cost/cost.h"
#include "comm/sync/grad_pipe.h"

static void release_int(void *p)
{
    *(int *)p += 1;
}

/* Ranks, places and topology of a part, against MPI's own split. */
static int shape(ct_comm *c, int cut)
{
    int key = 0, colour = mpi_part(cut, c->rank, c->size, &key), rank = -1, size = -1, fault = 0;
    int *of = malloc(sizeof(*of) * (size_t)c->size), released = 0;
    static const char mark;
    MPI_Comm theirs = MPI_COMM_NULL;
    ct_comm *part = NULL;

    fault += MPI_FAULT_UNLESS(ct_comm_split(c, colour, key, &part) == CT_OK);
    if (fault > 0) return fault;
    MPI_Comm_split(c->mpi, colour, key, &theirs);
    MPI_Comm_rank(theirs, &rank);
    MPI_Comm_size(theirs, &size);
    MPI_Allgather(&c->rank, 1, MPI_INT, of, 1, MPI_INT, theirs);
    fault += MPI_FAULT_UNLESS((part->rank == rank) && (part->size == size));
    fault += MPI_FAULT_UNLESS(part->topo->n_rank == size);
    fault += MPI_FAULT_UNLESS(part->node_member[part->node_rank] == part->rank);
    for (int a = 0; a < size; ++a) {
        for (int b = 0; b < size; ++b)
            fault += MPI_FAULT_UNLESS(ct_topo_meet(part->topo, a, b) ==
                                      ct_topo_meet(c->topo, of[a], of[b]));
    }
    for (int i = 0; i < part->node_size; ++i)
        fault +=
            MPI_FAULT_UNLESS(c->topo->node[of[part->node_member[i]]] == c->topo->node[c->rank]);
    fault += MPI_FAULT_UNLESS((part->host_all == c->host_all) && (part->n_core >= 1) &&
                              (part->n_core <= c->n_core) && (part->n_thread == c->n_thread));
    /* what one keeps is none of the other's */
    fault += MPI_FAULT_UNLESS(ct_comm_attach(part, &mark, &released, release_int) == CT_OK);
    fault += MPI_FAULT_UNLESS(ct_comm_attached(c, &mark) == NULL);
    fault += MPI_FAULT_UNLESS(ct_comm_attached(part, &mark) == &released);
    fault += MPI_FAULT_UNLESS(ct_comm_take_tags(part, 5) == CT_COMM_BLOCKING_TAGS);
    fault += MPI_FAULT_UNLESS(ct_comm_take_tags(c, 3) >= CT_COMM_BLOCKING_TAGS);
    ct_comm_destroy(part);
    fault += MPI_FAULT_UNLESS(released == 1);
    MPI_Comm_free(&theirs);
    free(of);
    return fault;
}

static int shapes(ct_comm *c)
{
    int fault = 0;

    for (int cut = 0; cut < MPI_CUTS; ++cut) fault += shape(c, cut);
    return fault;
}

/* Parts of parts, ranks that are in none, and a parent that goes first. */
static int nested(ct_comm *c)
{
    ct_comm *part = NULL, *inner = NULL, *none = c, *copy = NULL;
    double sum = 1;
    int fault = 0;

    fault += MPI_FAULT_UNLESS(ct_comm_split(c, 0, c->rank, &copy) == CT_OK);
    fault += MPI_FAULT_UNLESS(ct_comm_split(copy, copy->rank % 2, 0, &part) == CT_OK);
    fault += MPI_FAULT_UNLESS(ct_comm_split(copy, (copy->rank == 0) ? 0 : -1, 0, &none) == CT_OK);
    fault += MPI_FAULT_UNLESS((none != NULL) == (c->rank == 0));
    if (fault > 0) return fault;
    ct_comm_destroy(copy);
    fault += MPI_FAULT_UNLESS(ct_comm_split(part, part->rank / 2, 0, &inner) == CT_OK);
    ct_comm_destroy(part);
    fault += MPI_FAULT_UNLESS(ct_comm_sum(inner, &sum, 1) == CT_OK);
    fault += MPI_FAULT_UNLESS((inner->size <= 2) && (sum == inner->size));
    ct_comm_destroy(inner);
    ct_comm_destroy(none);
    return fault;
}

/* Whole numbers, which any order of additions adds up alike; other ones on every rank of the job,
 * so that a message that strays into the other part shows. */
static float term(int job_rank, int64_t i)
{
    return (float)((job_rank * 37 + i * 11) % 101 - 50);
}

enum { N = 70001 };

/* Every collective on the parts at the same time, against MPI's own on parts of its own. */
static int collectives(ct_comm *c, int cut)
{
    int key = 0, colour = mpi_part(cut, c->rank, c->size, &key), fault = 0;
    float *want = malloc(sizeof(*want) * N), *plain = malloc(sizeof(*plain) * N);
    ct_comm *part = NULL;
    MPI_Comm theirs = MPI_COMM_NULL;
    void *shared = NULL;

    fault += MPI_FAULT_UNLESS(ct_comm_split(c, colour, key, &part) == CT_OK);
    if (fault > 0) return fault;
    MPI_Comm_split(c->mpi, colour, key, &theirs);
    fault += (ct_comm_arena(part)->acquire(ct_comm_arena(part)->ctx, sizeof(float) * N, "a test",
                                           &shared) != CT_OK);
    for (int64_t i = 0; i < N; ++i) want[i] = term(c->rank, i);
    MPI_Allreduce(MPI_IN_PLACE, want, N, MPI_FLOAT, MPI_SUM, theirs);
    for (const ct_coll_ops *const *ops = ct_coll_table; *ops != NULL; ++ops) {
        for (int k = 0; k < 2; ++k) {
            float *v = (k == 0) ? plain : shared;
            int wrong = 0;

            for (int64_t i = 0; i < N; ++i) v[i] = term(c->rank, i);
            fault += MPI_FAULT_UNLESS(ct_coll_run(*ops, part, v, N, CT_F32) == CT_OK);
            for (int64_t i = 0; i < N; ++i) wrong += (v[i] != want[i]);
            if (wrong > 0) fprintf(stderr, "rank %d: %s: %d wrong\n", c->rank, (*ops)->name, wrong);
            fault += (wrong > 0);
        }
    }
    for (int64_t i = 0; i < N; ++i) plain[i] = want[i] = term(c->rank, i);
    fault += MPI_FAULT_UNLESS(ct_coll_run(&ct_coll_broadcast, part, plain, N, CT_F32) == CT_OK);
    MPI_Bcast(want, N, MPI_FLOAT, 0, theirs);
    fault += MPI_FAULT_UNLESS(memcmp(want, plain, sizeof(*want) * N) == 0);
    ct_comm_arena(part)->release(ct_comm_arena(part)->ctx, shared);
    ct_comm_destroy(part);
    MPI_Comm_free(&theirs);
    free(want);
    free(plain);
    return fault;
}

static int all_collectives(ct_comm *c)
{
    int fault = 0;

    for (int cut = 0; cut < MPI_CUTS; ++cut) fault += collectives(c, cut);
    return fault;
}

/* The small blocking ones, parts and the whole in turn. */
static int small_ones(ct_comm *c)
{
    int key = 0, colour = mpi_part(0, c->rank, c->size, &key), fault = 0;
    int64_t most = c->rank, all[16];
    double sum = c->rank + 1, every = 1, want = 0;
    ct_comm *part = NULL;

    fault += MPI_FAULT_UNLESS(ct_comm_split(c, colour, key, &part) == CT_OK);
    if ((fault > 0) || (c->size > 16)) return fault;
    for (int r = colour; r < c->size; r += 2) want += r + 1;
    fault += MPI_FAULT_UNLESS(ct_comm_sum(part, &sum, 1) == CT_OK && sum == want);
    fault += MPI_FAULT_UNLESS(ct_comm_sum(c, &every, 1) == CT_OK && every == c->size);
    fault += MPI_FAULT_UNLESS(ct_comm_max(part, &most, 1) == CT_OK);
    fault += MPI_FAULT_UNLESS(most == colour + 2 * (part->size - 1));
    most = c->rank;
    fault += MPI_FAULT_UNLESS(ct_comm_gather(part, &most, 1, all) == CT_OK);
    for (int r = 0; r < part->size; ++r) fault += MPI_FAULT_UNLESS(all[r] == colour + 2 * r);
    fault += MPI_FAULT_UNLESS(ct_comm_barrier(part) == CT_OK);
    fault += MPI_FAULT_UNLESS(ct_comm_broadcast(part, &most, sizeof(most)) == CT_OK);
    fault += MPI_FAULT_UNLESS(most == colour);
    ct_comm_destroy(part);
    return fault;
}

/* Windows of a part and of the whole, at the same time. */
static int windows(ct_comm *c)
{
    ct_comm *part = NULL;
    void *mine = NULL, *whole = NULL;
    ct_status a, b;
    int fault = MPI_FAULT_UNLESS(ct_comm_split(c, c->rank % 2, 0, &part) == CT_OK);

    if (fault > 0) return fault;
    a = ct_node_acquire(part->node_memory, 4096, "a test", &mine);
    b = ct_node_acquire(c->node_memory, 4096, "a test", &whole);
    fault += MPI_FAULT_UNLESS((a == CT_OK) == (ct_topo_max_node_size(part->topo) > 1));
    fault += MPI_FAULT_UNLESS((b == CT_OK) == (ct_topo_max_node_size(c->topo) > 1));
    if (a == CT_OK) ((int *)mine)[0] = c->rank + 1;
    if (b == CT_OK) ((int *)whole)[0] = c->rank + 1000;
    MPI_Barrier(c->mpi);
    for (int i = 0; (a == CT_OK) && (i < part->node_size); ++i) {
        const int *block = (const int *)(void *)ct_node_block(part->node_memory, 0, i);

        fault += MPI_FAULT_UNLESS(block[0] == 2 * part->node_member[i] + c->rank % 2 + 1);
    }
    MPI_Barrier(c->mpi);
    if (a == CT_OK) ct_node_release(part->node_memory, mine);
    if (b == CT_OK) ct_node_release(c->node_memory, whole);
    ct_comm_destroy(part);
    return fault;
}

/* ---- gradients of two groups on their way */

enum { N_RANGE = 3, ARENA = 60000, STEPS = 4 };

static const ct_grad_range range[N_RANGE] = {
    { .key = "c[0]", .offset = 0, .count = 20000 },
    { .key = "b[0]", .offset = 20000, .count = 31 },
    { .key = "a[0]", .offset = 20032, .count = 39968 },
};

static ct_status note(void *ctx, int first, int n)
{
    (void)first;
    *(int *)ctx += n;
    return CT_OK;
}

typedef struct lane {
    ct_comm *comm;
    ct_grad_pipe *pipe;
    float *arena;
    int landed;
} lane;

static int open_lane(lane *l, ct_comm *comm, bool thread)
{
    ct_grad_pipe_config config = { .allreduce = "ring",
                                   .overlap = true,
                                   .codec = &ct_codec_none,
                                   .bucket_bytes = 40000,
                                   .progress = thread ? CT_PROGRESS_THREAD : CT_PROGRESS_POLL };

    *l = (lane){ .comm = comm, .arena = calloc(ARENA, sizeof(float)) };
    return MPI_FAULT_UNLESS(
        ct_grad_pipe_create(comm, &config, l->arena, range, N_RANGE, &l->pipe) == CT_OK);
}

static int leave(lane *l, int job_rank, int64_t step)
{
    int fault = 0;

    for (int64_t i = 0; i < ARENA; ++i) l->arena[i] = term(job_rank, i + step);
    for (int64_t i = 20031; i < 20032; ++i) l->arena[i] = 0;
    l->landed = 0;
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_begin(l->pipe, step, 1, 1) == CT_OK);
    for (int i = 0; i < N_RANGE; ++i)
        fault += MPI_FAULT_UNLESS(ct_grad_pipe_ready(l->pipe, i) == CT_OK);
    return fault;
}

static int arrive(lane *l, MPI_Comm theirs, int job_rank, int64_t step)
{
    float *want = malloc(sizeof(*want) * ARENA);
    int fault = 0, wrong = 0;

    fault += MPI_FAULT_UNLESS(ct_grad_pipe_finish(l->pipe, note, &l->landed) == CT_OK);
    fault += MPI_FAULT_UNLESS(l->landed == N_RANGE);
    for (int64_t i = 0; i < ARENA; ++i) want[i] = term(job_rank, i + step);
    ct_comm_lock(l->comm); /* the other pipe's thread may be calling MPI */
    MPI_Allreduce(MPI_IN_PLACE, want, ARENA, MPI_FLOAT, MPI_SUM, theirs);
    ct_comm_unlock(l->comm);
    want[20031] = 0;
    for (int64_t i = 0; i < ARENA; ++i) wrong += (l->arena[i] != want[i]);
    free(want);
    return fault + MPI_FAULT_UNLESS(wrong == 0);
}

/* Some ranks wait in a barrier of the job while others wait for gradients of their part, and the
 * other way round: who waits in one group goes on moving the messages of all. */
static int crossing(ct_comm *c, int cut, bool thread)
{
    int key = 0, colour = mpi_part(cut, c->rank, c->size, &key), fault = 0;
    ct_comm *part = NULL;
    MPI_Comm theirs = MPI_COMM_NULL;
    lane mine, whole;

    fault += MPI_FAULT_UNLESS(ct_comm_split(c, colour, key, &part) == CT_OK);
    if (fault > 0) return fault;
    MPI_Comm_split(c->mpi, colour, key, &theirs);
    fault += open_lane(&mine, part, thread);
    fault += open_lane(&whole, c, thread);
    for (int64_t step = 0; (step < STEPS) && (fault == 0); ++step) {
        bool barrier_first = ((part->rank + step) % 2 == 0);

        fault += leave(&mine, c->rank, step);
        fault += leave(&whole, c->rank, step + 5);
        if (barrier_first) fault += MPI_FAULT_UNLESS(ct_comm_barrier(c) == CT_OK);
        fault +=
            MPI_FAULT_UNLESS(ct_grad_pipe_wait(mine.pipe, 0, N_RANGE, note, &mine.landed) == CT_OK);
        if (!barrier_first) fault += MPI_FAULT_UNLESS(ct_comm_barrier(c) == CT_OK);
        fault += arrive(&mine, theirs, c->rank, step);
        fault += arrive(&whole, c->mpi, c->rank, step + 5);
    }
    ct_grad_pipe_destroy(mine.pipe);
    ct_grad_pipe_destroy(whole.pipe);
    free(mine.arena);
    free(whole.arena);
    ct_comm_destroy(part);
    MPI_Comm_free(&theirs);
    return fault;
}

static int crossings(ct_comm *c)
{
    int fault = 0;

    for (int cut = 0; cut < MPI_CUTS; ++cut) {
        fault += crossing(c, cut, false);
        fault += crossing(c, cut, true);
    }
    return fault;
}

static void test_shapes(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(shapes)), 0);
    assert_int_equal(mpi_verdict(mpi_on_machines(nested)), 0);
}

static void test_collectives(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(all_collectives)), 0);
    assert_int_equal(mpi_verdict(mpi_on_machines(small_ones)), 0);
    assert_int_equal(mpi_verdict(mpi_on_machines(windows)), 0);
}

static void test_pipes(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(crossings)), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_shapes),
    cmocka_unit_test(test_collectives),
    cmocka_unit_test(test_pipes),
};

MPI_MAIN(tests, 120)
