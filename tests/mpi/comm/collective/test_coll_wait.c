/* Driving collectives by blocking waits on what they say they wait for, never by polling. */
#include "tests/mpi/mpi_test.h"

#include <stdlib.h>

#include "comm/collective/coll.h"
#include "comm/collective/allgatherv.h"
#include "comm/core/node.h"

enum { MAX_PENDING = 64 };

/* Waits for one of the requests, on copies, as a caller that knows nothing of their owners. */
static int wait_for_one(MPI_Request **req, int n)
{
    MPI_Request copy[MAX_PENDING];
    int index = MPI_UNDEFINED, fault = 0;

    for (int i = 0; i < n; ++i) copy[i] = *req[i];
    fault += (MPI_Waitany(n, copy, &index, MPI_STATUS_IGNORE) != MPI_SUCCESS);
    fault += (index == MPI_UNDEFINED); /* none was in flight */
    if (index != MPI_UNDEFINED) *req[index] = copy[index];
    return fault;
}

static int drive(ct_coll_req *r, const ct_coll_ops *ops)
{
    int fault = (ops->start(r) != CT_OK);
    ct_status status = CT_OK;

    while ((status = ops->progress(r)) == CT_INPROGRESS) {
        MPI_Request *req[MAX_PENDING];
        int n = ops->pending(r, req, MAX_PENDING);

        if (n == 0) return fault + 1; /* in flight, and nothing to wait for */
        fault += wait_for_one(req, n);
    }
    return fault + (status != CT_OK);
}

static int one_sum(ct_comm *c, const ct_coll_ops *ops, int64_t n)
{
    ct_coll_req r = { .comm = c, .count = n, .dtype = CT_F32 };
    float *v = malloc(sizeof(*v) * (size_t)(n + 1));
    int fault = 0;

    r.buf = v;
    fault += (ops->prepare(&r) != CT_OK);
    for (int round = 0; round < 2; ++round) {
        for (int64_t i = 0; i < n; ++i) v[i] = (float)(c->rank + i % 5 + round);
        fault += drive(&r, ops);
        for (int64_t i = 0; i < n; ++i)
            fault += (v[i] != (float)(c->size * (c->size - 1) / 2 + c->size * (i % 5 + round)));
        fault += (ops->pending(&r, NULL, 0) != 0);
    }
    ops->release(&r);
    free(v);
    if (fault > 0) fprintf(stderr, "rank %d: %s of %lld\n", c->rank, ops->name, (long long)n);
    return fault;
}

/* Without windows, so that everything goes by messages. */
static int all_sums(ct_comm *c)
{
    static const int64_t count[] = { 0, 1, 1000, 300007, 2000003 };
    int fault = 0;

    ct_node_set_limit(c->node_memory, 0);
    for (const ct_coll_ops *const *ops = ct_coll_table; *ops != NULL; ++ops) {
        for (size_t i = 0; i < sizeof(count) / sizeof(count[0]); ++i)
            fault += one_sum(c, *ops, count[i]);
    }
    return fault;
}

static int one_gather(ct_comm *c, size_t bound)
{
    ct_allgatherv *g = NULL;
    ct_coll_where where = { .step = 0 };
    int64_t sent = 0;
    ct_status status = CT_OK;
    const int *member = c->topo->order;
    int fault = 0, me = 0;

    while (member[me] != c->rank) me += 1;
    fault += (ct_allgatherv_create(c, member, c->size, me, bound, 0, &g) != CT_OK);
    for (size_t round = 0; round < 2; ++round) {
        size_t mine = bound * ((size_t)c->rank + round) / ((size_t)c->size + 1);

        memset(ct_allgatherv_payload(g, me), c->rank + 1, mine);
        fault += (ct_allgatherv_start(g, mine) != CT_OK);
        while ((status = ct_allgatherv_progress(g, &sent, &where)) == CT_INPROGRESS) {
            MPI_Request *req[MAX_PENDING];
            int n = ct_allgatherv_pending(g, req, MAX_PENDING);

            fault += (n == 0);
            if (n == 0) break;
            fault += wait_for_one(req, n);
        }
        fault += (status != CT_OK);
        for (int k = 0; k < c->size; ++k) {
            size_t n = ct_allgatherv_bytes(g, k), r = (size_t)member[k];
            const char *p = ct_allgatherv_payload(g, k);

            fault += (n != bound * (r + round) / ((size_t)c->size + 1));
            for (size_t i = 0; i < n; ++i) fault += (p[i] != (char)(r + 1));
        }
    }
    ct_allgatherv_destroy(g);
    return fault;
}

static int all_gathers(ct_comm *c)
{
    return one_gather(c, 0) + one_gather(c, 40) + one_gather(c, 100003);
}

static void test_sums(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(all_sums)), 0);
}

static void test_gathers(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(all_gathers)), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_sums),
    cmocka_unit_test(test_gathers),
};

MPI_MAIN(tests, 60)
