/* Sums in the node's shared memory, used again and again by ranks that come late, in turn: fixed
 * owners and claimed parts, polled, yielded and slept for. */
#include "tests/mpi/mpi_test.h"

#include <stdlib.h>

#include "comm/collective/coll_types.h"
#include "comm/collective/node_sum.h"
#include "framework/base/rng.h"

enum { N_REQ = 4, USES = 40 };
/* one owner each; a few parts; many; and a length that no part divides */
static const int64_t counts[N_REQ] = { 5, 40000, 300007, 1500003 };

static float term(int rank, int64_t i, int use)
{
    return (float)((i * 7 + (int64_t)rank * 13 + (int64_t)use * 5) % 31);
}

static int count_wrong(const float *v, int64_t n, int n_rank, int use)
{
    float pattern[31];
    int wrong = 0;

    for (int i = 0; i < 31; ++i) {
        pattern[i] = 0;
        for (int r = 0; r < n_rank; ++r) pattern[i] += term(r, i, use);
    }
    for (int64_t i = 0; i < n; ++i) wrong += (v[i] != pattern[i % 31]);
    return wrong;
}

static int drive(ct_comm *c, ct_coll_req *r)
{
    bool done[N_REQ] = { false };
    int idle = 0, fault = 0;

    for (int left = N_REQ; left > 0;) {
        idle += 1;
        for (int i = 0; i < N_REQ; ++i) {
            ct_status status = done[i] ? CT_INPROGRESS : ct_coll_hier.progress(&r[i]);

            if (status == CT_INPROGRESS) continue;
            fault += (status != CT_OK);
            done[i] = true;
            left -= 1;
            idle = 0;
        }
        ct_comm_relax(c, &idle);
    }
    return fault;
}

static int many_uses(ct_comm *c, bool shares_cores)
{
    const ct_arena_ops *arena = ct_comm_arena(c);
    ct_coll_req r[N_REQ] = { { .comm = NULL } };
    int fault = 0;

    c->oversubscribed =
        shares_cores; /* on all ranks: another choice of parts, and sooner to sleep */
    for (int i = 0; i < N_REQ; ++i) {
        void *p = NULL;

        fault += (arena->acquire(arena->ctx, (size_t)counts[i] * 4, "a test", &p) != CT_OK);
        r[i] = (ct_coll_req){ .comm = c, .buf = p, .count = counts[i], .dtype = CT_F32 };
        r[i].tag = ct_comm_take_tags(c, CT_COLL_TAGS);
        fault += (ct_coll_hier.prepare(&r[i]) != CT_OK);
    }
    for (int use = 0; (use < USES) && (fault == 0); ++use) {
        for (int i = 0; i < N_REQ; ++i) {
            float *v = r[i].buf;

            for (int64_t k = 0; k < counts[i]; ++k) v[k] = term(c->rank, k, use + i);
        }
        if (use % (2 * c->size) == 2 * c->rank) usleep(3000); /* the others fall asleep */
        for (int i = 0; i < N_REQ; ++i) fault += (ct_coll_hier.start(&r[i]) != CT_OK);
        fault += drive(c, r);
        for (int i = 0; i < N_REQ; ++i) fault += count_wrong(r[i].buf, counts[i], c->size, use + i);
    }
    for (int i = 0; i < N_REQ; ++i) {
        ct_coll_hier.release(&r[i]);
        arena->release(arena->ctx, r[i].buf);
    }
    return fault;
}

static int on_one_node(bool shares_cores)
{
    ct_comm *c = NULL;
    int fault = (ct_comm_create(MPI_COMM_WORLD, "auto", &c) != CT_OK);

    if (fault == 0) fault = many_uses(c, shares_cores);
    ct_comm_destroy(c);
    return fault;
}

static void test_own_cores(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(on_one_node(false)), 0);
}

static void test_shared_cores(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(on_one_node(true)), 0);
}

/* The sum is made in shared memory here, and refused where it cannot be. */
static int refusals(void)
{
    ct_comm *c = NULL;
    int fault = (ct_comm_create(MPI_COMM_WORLD, "auto", &c) != CT_OK);
    float *plain = calloc(1000, sizeof(*plain));
    ct_coll_req r = { .comm = c, .buf = plain, .count = 1000, .dtype = CT_F32 };
    ct_node_sum *sum = NULL;
    void *block = NULL;

    fault +=
        (ct_node_sum_create(&r, CT_COLL_ALLREDUCE, &sum) != CT_UNSUPPORTED); /* not in a window */
    fault += (ct_comm_arena(c)->acquire(ct_comm_arena(c)->ctx, 4000, "a test", &block) != CT_OK);
    r.buf = (c->rank == c->size - 1) ? plain : block; /* nor is one rank's */
    fault += (ct_node_sum_create(&r, CT_COLL_ALLREDUCE, &sum) != CT_UNSUPPORTED);
    r.buf = block;
    r.count = 0;
    fault += (ct_node_sum_create(&r, CT_COLL_ALLREDUCE, &sum) != CT_UNSUPPORTED);
    r.count = 1000;
    fault += (ct_node_sum_create(&r, CT_COLL_ALLREDUCE, &sum) !=
              ((c->size > 1) ? CT_OK : CT_UNSUPPORTED));
    ct_node_sum_destroy(sum);
    ct_comm_arena(c)->release(ct_comm_arena(c)->ctx, block);
    ct_comm_destroy(c);
    free(plain);
    return fault;
}

static void test_refusals(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(refusals()), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_own_cores),
    cmocka_unit_test(test_shared_cores),
    cmocka_unit_test(test_refusals),
};

MPI_MAIN(tests, 60)
