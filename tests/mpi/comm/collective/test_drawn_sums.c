/* Sums, their halves and broadcasts by chance: machines, parts of a job, algorithms, sizes, memory,
 * all in flight at once. CORTADO_DRAW="SEED CASES" asks for others than those few of CI
 * (tests/long/drawn_sums.sh). */
#include "tests/mpi/draws.h"
#include "tests/mpi/mpi_test.h"
#include "tests/mpi/terms.h"

#include <stdlib.h>

#include "comm/collective/coll.h"
#include "comm/core/node.h"

enum { MOST_FLIGHT = 10, GUARD = 64 };

static int64_t draw_count(draws *d)
{
    int kind = draw(d, 8);

    if (kind < 3) return draw(d, 40);
    if (kind < 6) return draw(d, 5000);
    return draw(d, (kind == 6) ? 60000 : 300000);
}

/* One request, and what it is to give. */
typedef struct flight {
    const ct_coll_ops *ops;
    ct_coll_req r;
    const ct_arena_ops *arena;
    char *block;
    bool done;
} flight;

static const ct_coll_ops *draw_ops(draws *d, const ct_comm *c, int64_t n, ct_dtype dtype)
{
    static const char *const spec[] = { "auto", "tree<4K,rhd<64K,ring", "hier", "rhd<100,hier" };
    const ct_coll_ops *ops = NULL;
    int kind = draw(d, 4), n_ops = 0;

    if (kind == 3) return &ct_coll_broadcast;
    if ((kind == 0) && draw(d, 2)) {
        int one = draw(d, 4);

        return (ct_coll_choose(c, n, dtype, spec[one], &ops) == CT_OK) ? ops : NULL;
    }
    while (ct_coll_table[n_ops] != NULL) n_ops += 1;
    while (ops == NULL) {
        ops = ct_coll_of_kind(ct_coll_table[draw(d, n_ops)], (ct_coll_kind)kind);
        if ((ops != NULL) && (ops->supports != NULL) && !ops->supports(c, n, dtype)) ops = NULL;
    }
    return ops;
}

static int open_flight(draws *d, ct_comm *c, int tag, flight *f)
{
    static const ct_dtype dtypes[] = { CT_F32, CT_F32, CT_BF16, CT_F16, CT_I64, CT_U8 };
    ct_dtype dtype = dtypes[draw(d, 6)];
    int64_t n = draw_count(d);
    void *block = NULL;

    f->ops = draw_ops(d, c, n, dtype);
    f->arena = draw(d, 2) ? ct_comm_arena(c) : ct_arena_plain();
    f->r = (ct_coll_req){ .comm = c, .count = n, .dtype = dtype, .tag = tag };
    f->r.root = draw(d, c->size);
    if (MPI_FAULT_UNLESS(f->ops != NULL)) return 1;
    if (f->arena->acquire(f->arena->ctx, (size_t)n * 8 + 2 * GUARD, "a test", &block) != CT_OK)
        return 1;
    f->block = block;
    f->r.buf = f->block + GUARD;
    return MPI_FAULT_UNLESS(f->ops->prepare(&f->r) == CT_OK);
}

static void fill_flight(const flight *f, uint64_t salt)
{
    const ct_coll_req *r = &f->r;
    size_t size = ct_dtype_size(r->dtype);
    int64_t first = 0, n = 0;

    memset(f->block, 0x55, (size_t)r->count * size + 2 * GUARD);
    if ((f->ops == &ct_coll_broadcast) && (r->root != r->comm->rank)) return;
    if (f->ops->kind != CT_COLL_ALLGATHER) {
        fill(r->buf, r->count, r->dtype, r->comm->rank, salt);
        return;
    }
    if (ct_coll_part(r->comm, r->count, r->comm->rank, &first, &n) != CT_OK) return;
    fill((char *)r->buf + (size_t)first * size, n, r->dtype, r->comm->rank, salt);
}

/* The numbers of one rank. */
static int *own_terms(int64_t n, int rank, uint64_t salt)
{
    int *v = malloc(sizeof(*v) * (size_t)(n + 1));

    for (int64_t i = 0; i < n; ++i) v[i] = term(rank, i, salt);
    return v;
}

static int judge_terms(const flight *f, int64_t first, int64_t n, int rank, uint64_t salt)
{
    int *own = own_terms(n, rank, salt);
    int wrong = count_wrong((char *)f->r.buf + (size_t)first * ct_dtype_size(f->r.dtype), n,
                            f->r.dtype, own);

    free(own);
    return wrong;
}

static int judge_sums(const flight *f, uint64_t salt)
{
    const ct_coll_req *r = &f->r;
    int *sum = true_sums(r->count, r->dtype, r->comm->size, salt), fault = 0;
    int64_t first = 0, n = r->count;

    if (f->ops->kind == CT_COLL_REDUCE_SCATTER)
        fault += (ct_coll_part(r->comm, r->count, r->comm->rank, &first, &n) != CT_OK);
    fault += count_wrong((char *)r->buf + (size_t)first * ct_dtype_size(r->dtype), n, r->dtype,
                         sum + first);
    free(sum);
    return fault;
}

static int judge(const flight *f, uint64_t salt)
{
    const ct_coll_req *r = &f->r;
    const char *end = (const char *)r->buf + (size_t)r->count * ct_dtype_size(r->dtype);
    int fault = 0;

    for (int i = 0; i < GUARD; ++i) fault += (f->block[i] != 0x55) + (end[i] != 0x55);
    if (f->ops == &ct_coll_broadcast) return fault + judge_terms(f, 0, r->count, r->root, salt);
    if (f->ops->kind != CT_COLL_ALLGATHER) return fault + judge_sums(f, salt);
    for (int p = 0; p < r->comm->size; ++p) {
        int64_t first = 0, n = 0;

        fault += (ct_coll_part(r->comm, r->count, p, &first, &n) != CT_OK);
        fault += judge_terms(f, first, n, p, salt);
    }
    return fault;
}

/* All once: started and moved in an order of this rank's own, but MPI's, which wants one. */
static int fly(draws *own, flight *f, int n, uint64_t salt)
{
    int left = n, fault = 0, idle = 0, from = draw(own, n);

    for (int i = 0; i < n; ++i) {
        fill_flight(&f[i], salt + (uint64_t)i);
        f[i].done = false;
    }
    for (int i = 0; i < n; ++i)
        if (f[i].ops->by_mpi) fault += (f[i].ops->start(&f[i].r) != CT_OK);
    for (int i = 0; i < n; ++i) {
        flight *one = &f[(from + i) % n];

        if (!one->ops->by_mpi) fault += (one->ops->start(&one->r) != CT_OK);
    }
    while (left > 0) {
        flight *one = &f[draw(own, n)];
        ct_status status;

        if (one->done) continue;
        status = one->ops->progress(&one->r);
        idle += 1;
        if (status == CT_INPROGRESS) {
            ct_comm_relax(one->r.comm, &idle);
            continue;
        }
        fault += (status != CT_OK);
        one->done = true;
        left -= 1;
        idle = 0;
    }
    for (int i = 0; i < n; ++i) {
        int wrong = judge(&f[i], salt + (uint64_t)i);

        if (wrong > 0)
            fprintf(
                stderr, "rank %d of %d: %s (%s) of %lld, dtype %d, root %d, %s memory: %d wrong\n",
                f[i].r.comm->rank, f[i].r.comm->size, f[i].ops->name,
                (f[i].ops == &ct_coll_broadcast) ? "broadcast" : ct_coll_kind_name[f[i].ops->kind],
                (long long)f[i].r.count, (int)f[i].r.dtype, f[i].r.root,
                (f[i].arena == ct_arena_plain()) ? "plain" : "shared", wrong);
        fault += wrong;
    }
    return fault;
}

static int sums_on(ct_comm *c, draws *all, draws *own)
{
    flight f[MOST_FLIGHT] = { { .ops = NULL } };
    int n = 1 + draw(all, MOST_FLIGHT), rounds = 1 + draw(all, 3), fault = 0;
    int tag = ct_comm_take_tags(c, MOST_FLIGHT * CT_COLL_TAGS);

    if (draw(all, 3) == 0) ct_node_set_limit(c->node_memory, draw(all, 2) ? 0 : draw(all, 2000000));
    for (int i = 0; (i < n) && (fault == 0); ++i)
        fault += open_flight(all, c, tag + i * CT_COLL_TAGS, &f[i]);
    if (fault > 0) return fault;
    for (int k = 0; k < rounds; ++k) fault += fly(own, f, n, all->key + 1000 * (uint64_t)k);
    for (int i = 0; i < n; ++i) {
        f[i].ops->release(&f[i].r);
        f[i].arena->release(f[i].arena->ctx, f[i].block);
    }
    return fault;
}

/* A machine, or parts of one that work at the same time, each with sums of its own. */
static int one_case(uint64_t seed, uint64_t number)
{
    draws all = { .key = ct_rng_key(seed, number, 1) }, own = { .key = 0 };
    ct_comm *c = NULL, *part = NULL;
    char spec[128];
    int rank = 0, size = 0, fault = 0, colour = 0, order = 0;

    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    own.key = ct_rng_key(seed, number, 2 + (uint64_t)rank);
    draw_machine(&all, size, spec, sizeof(spec));
    if (ct_comm_create(MPI_COMM_WORLD, spec, &c) != CT_OK) return 1;
    if (draw(&all, 2)) {
        int parts = 1 + draw(&all, size);

        for (int r = 0; r < size; ++r) {
            int its_colour = draw(&all, parts), its_order = draw(&all, 1000);

            if (r != rank) continue;
            colour = its_colour;
            order = its_order;
        }
        if (ct_comm_split(c, colour, order, &part) != CT_OK) return 1;
        all.key += (uint64_t)colour;
    }
    fault = sums_on((part != NULL) ? part : c, &all, &own);
    if (fault > 0)
        fprintf(stderr, "rank %d: seed %llu, case %llu: %s, part %d: %d faults\n", rank,
                (unsigned long long)seed, (unsigned long long)number, spec,
                (part != NULL) ? colour : -1, fault);
    ct_comm_destroy(part);
    ct_comm_destroy(c);
    return fault;
}

static void test_drawn(void **state)
{
    (void)state;
    assert_int_equal(mpi_on_draws(one_case, 12), 0);
}

static const struct CMUnitTest tests[] = { cmocka_unit_test(test_drawn) };

MPI_MAIN(tests, 120)
