/* Sparse exchanges: what is delivered and what is left is what there was, all ranks have the same
 * bits, and the bytes are those of theory. Gradients are small integers, so that sums are exact. */
#include "tests/mpi/draws.h"
#include "tests/mpi/mpi_test.h"
#include "tests/log_capture.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "comm/codec/codec_types.h"
#include "comm/sparse/sparse_allreduce_impl.h"

typedef struct plan {
    const char *name;
    int64_t n, k;
    int steps;
    /* of element i on a rank in a step */
    float (*grad)(const ct_comm *c, int64_t n, int step, int64_t i);
} plan;

/* -1000 .. 1000: splitmix64 of the three */
static float term(uint64_t a, uint64_t b, int64_t i)
{
    uint64_t z = (a * 1000003 + b) * UINT64_C(0xd1342543de82ef95) +
                 (uint64_t)i * UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (float)(int)((z >> 33) % 2001) - 1000;
}

static float random_everywhere(const ct_comm *c, int64_t n, int step, int64_t i)
{
    (void)n;
    return term(1 + (uint64_t)c->rank, (uint64_t)step, i);
}

static float the_same_everywhere(const ct_comm *c, int64_t n, int step, int64_t i)
{
    (void)c;
    (void)n;
    return term(99, (uint64_t)step, i);
}

/* Each rank has a block of its own, which moves. */
static float disjoint(const ct_comm *c, int64_t n, int step, int64_t i)
{
    bool mine = (i * c->size / n == (c->rank + step) % c->size);

    return mine ? term(7, (uint64_t)(step + c->rank), i) : 0;
}

/* Nearly all of it within a fiftieth of the elements. */
static float skewed(const ct_comm *c, int64_t n, int step, int64_t i)
{
    bool there = (i >= n / 3) && (i < n / 3 + n / 50);

    return there ? 5 * term(3 + (uint64_t)c->rank, (uint64_t)step, i)
                 : (float)((int)term(3 + (uint64_t)c->rank, (uint64_t)step, i) / 300);
}

/* Nothing on some ranks in some steps, nothing at all in others. */
static float often_nothing(const ct_comm *c, int64_t n, int step, int64_t i)
{
    (void)n;
    if ((step % 3 == 2) || ((c->rank + step) % 2 == 0)) return 0;
    return term(5 + (uint64_t)c->rank, (uint64_t)step, i);
}

static const plan plans[] = {
    { "random", 6007, 100, 12, random_everywhere },
    { "same", 4000, 60, 6, the_same_everywhere },
    { "disjoint", 4000, 64, 10, disjoint },
    { "skewed", 70000, 300, 3, skewed },
    { "nothing", 1000, 10, 9, often_nothing },
    { "all", 500, 500, 3, random_everywhere },
    { "more than all", 70, 100, 3, random_everywhere },
    { "one", 3000, 1, 6, random_everywhere },
    { "few elements", 3, 2, 5, random_everywhere },
    { "one element", 1, 1, 3, random_everywhere },
    { "half", 2000, 900, 4, random_everywhere },
};
enum { N_PLAN = sizeof(plans) / sizeof(plans[0]) };

typedef struct run {
    ct_sparse_allreduce_req r;
    const ct_sparse_allreduce_ops *ops;
    ct_sparse own;
    float *grad, *v;     /* [n] */
    double *given, *got; /* [n] of this rank; of all */
    double *size;        /* [n] sum of magnitudes, for tolerances */
    int64_t bytes[2];    /* sent before and after the first steps */
    bool shared;         /* grad comes from the communicator's arena */
} run;

/* shared: gradients that a node's ranks can read */
static int open_with(ct_comm *c, const ct_sparse_allreduce_ops *ops, const plan *p,
                     ct_payload_form form, int tag, bool shared, run *x)
{
    size_t n = (size_t)p->n;
    void *block = NULL;

    *x = (run){ .ops = ops, .shared = shared };
    if (x->shared && (ct_comm_arena(c)->acquire(ct_comm_arena(c)->ctx, sizeof(float) * n, "test",
                                                &block) != CT_OK))
        return 1;
    x->grad = x->shared ? block : calloc(n, sizeof(float));
    x->v = calloc(n, sizeof(float));
    x->given = calloc(n, sizeof(double));
    x->got = calloc(n, sizeof(double));
    x->size = calloc(n, sizeof(double));
    x->r = (ct_sparse_allreduce_req){
        .comm = c, .n = p->n, .k = p->k, .form = form, .tag = tag, .sum = x->grad
    };
    return ops->prepare(&x->r) != CT_OK;
}

static int open_run(ct_comm *c, const ct_sparse_allreduce_ops *ops, const plan *p,
                    ct_payload_form form, int tag, run *x)
{
    return open_with(c, ops, p, form, tag, (ops->node_start != NULL) && (form != CT_PAYLOAD_MEAN),
                     x);
}

static void close_run(run *x)
{
    const ct_arena_ops *arena = ct_comm_arena(x->r.comm);

    x->ops->release(&x->r);
    ct_sparse_destroy(&x->own);
    if (x->shared)
        arena->release(arena->ctx, x->grad);
    else
        free(x->grad);
    free(x->v);
    free(x->given);
    free(x->got);
    free(x->size);
}

/* Takes the largest k_own out of v. */
static int select_own(run *x)
{
    ct_sparse_allreduce_req *r = &x->r;
    float *v = x->v + r->first;

    if (ct_sparse_reserve(&x->own, r->length) != CT_OK) return 1;
    x->own.n = r->length;
    x->own.count = 0;
    for (int64_t i = 0; i < r->length; ++i) {
        if (v[i] == 0) continue;
        x->own.index[x->own.count] = (uint32_t)i;
        x->own.value[x->own.count++] = v[i];
        v[i] = 0;
    }
    ct_sparse_keep(&x->own, r->k_own, &(ct_residual_return){ .v = v });
    r->own = &x->own;
    r->residual.v = v;
    return 0;
}

static int begin_step(run *x, const plan *p, int step)
{
    for (int64_t i = 0; i < p->n; ++i) {
        x->grad[i] = p->grad(x->r.comm, p->n, step, i);
        x->given[i] += (double)x->grad[i];
        x->size[i] += fabs((double)x->grad[i]);
    }
    return (x->ops->node_start != NULL) && (x->ops->node_start(&x->r, x->grad) != CT_OK);
}

static int wait_node(run *x)
{
    ct_status status = (x->ops->node_start != NULL) ? CT_INPROGRESS : CT_OK;
    int idle = 0;

    while (status == CT_INPROGRESS) {
        status = x->ops->node_progress(&x->r);
        idle += 1;
        ct_comm_relax(x->r.comm, &idle);
    }
    return status != CT_OK;
}

static int end_step(run *x, const plan *p, int step)
{
    int64_t filled = 0;
    int fault = 0;
    float *first = malloc(sizeof(*first) * (size_t)p->n);

    for (int64_t i = 0; i < p->n; ++i) {
        x->got[i] += (double)x->grad[i];
        filled += (x->grad[i] != 0);
    }
    fault += MPI_FAULT_UNLESS(filled == x->r.filled);
    memcpy(first, x->grad, sizeof(*first) * (size_t)p->n);
    MPI_Bcast(first, (int)p->n, MPI_FLOAT, 0, MPI_COMM_WORLD);
    fault += MPI_FAULT_UNLESS(memcmp(first, x->grad, sizeof(*first) * (size_t)p->n) == 0);
    if (step == 3) x->bytes[0] = x->r.bytes_sent;
    x->bytes[1] = x->r.bytes_sent;
    free(first);
    return fault;
}

static int one_step(run *x, const plan *p, int step)
{
    int fault = begin_step(x, p, step) + wait_node(x);

    if (x->ops->node_start == NULL) {
        for (int64_t i = 0; i < p->n; ++i) x->v[i] += x->grad[i];
    } else {
        for (int64_t i = 0; i < x->r.length; ++i) x->v[x->r.first + i] += x->grad[x->r.first + i];
    }
    fault += select_own(x) + (ct_sparse_allreduce_run(x->ops, &x->r) != CT_OK);
    return fault + end_step(x, p, step);
}

/* Given on all ranks = delivered + left on all ranks. MEAN divides: a rounding for each time that
 * an element is sent or left. */
static int conserved(run *x, const plan *p)
{
    size_t n = (size_t)p->n;
    double *left = calloc(n, sizeof(double));
    int wrong = 0;

    for (size_t i = 0; i < n; ++i) left[i] = (double)x->v[i];
    MPI_Allreduce(MPI_IN_PLACE, x->given, (int)n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, x->size, (int)n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, left, (int)n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    for (size_t i = 0; i < n; ++i) {
        double slack = (x->r.form == CT_PAYLOAD_MEAN)
                           ? 0x1p-23 * (4 * p->steps + x->r.comm->size) * (2000 + x->size[i])
                           : 0;

        wrong += (fabs(x->given[i] - x->got[i] - left[i]) > slack);
    }
    free(left);
    return MPI_FAULT_UNLESS(wrong == 0);
}

static int try_plan(ct_comm *c, const ct_sparse_allreduce_ops *ops, const plan *p,
                    ct_payload_form form)
{
    run x;
    int fault = open_run(c, ops, p, form, 0, &x);

    if (mpi_verdict(fault) > 0) return 1;
    for (int step = 0; step < p->steps; ++step) fault += one_step(&x, p, step);
    fault += conserved(&x, p);
    close_run(&x);
    if (fault > 0)
        fprintf(stderr, "%s, %s, %s: %d faults\n", ops->name, p->name, ct_payload_name(form),
                fault);
    return fault;
}

static int all_plans(ct_comm *c)
{
    int fault = 0;

    for (const ct_sparse_allreduce_ops *const *at = ct_sparse_allreduce_table; *at != NULL; ++at) {
        for (int k = 0; k < N_PLAN; ++k) {
            for (int form = CT_PAYLOAD_PAIRS; form <= CT_PAYLOAD_MEAN; ++form)
                fault += try_plan(c, *at, &plans[k], (ct_payload_form)form);
        }
    }
    return fault;
}

/* ---- plans by chance, on machines by chance */

static int one_case(uint64_t seed, uint64_t number)
{
    static float (*const grad[])(const ct_comm *c, int64_t n, int step,
                                 int64_t i) = { random_everywhere, the_same_everywhere, disjoint,
                                                skewed, often_nothing };
    draws d = { .key = ct_rng_key(seed, number, 1) };
    int size = 0, n_op = 0, fault = 0;
    plan p = { .name = "drawn" };
    ct_comm *c = NULL;
    char spec[128];

    MPI_Comm_size(MPI_COMM_WORLD, &size);
    draw_machine(&d, size, spec, sizeof(spec));
    if (ct_comm_create(MPI_COMM_WORLD, spec, &c) != CT_OK) return 1;
    while (ct_sparse_allreduce_table[n_op] != NULL) n_op += 1;
    for (int i = 0; i < 4; ++i) {
        const ct_sparse_allreduce_ops *ops = ct_sparse_allreduce_table[draw(&d, n_op)];
        ct_payload_form form =
            (ct_payload_form)(CT_PAYLOAD_PAIRS + draw(&d, 1 + CT_PAYLOAD_MEAN - CT_PAYLOAD_PAIRS));

        p.n = 1 + draw(&d, draw(&d, 2) ? 100 : 20000);
        p.k = 1 + draw(&d, (int)((draw(&d, 3) > 0) ? 1 + p.n / 20 : p.n + 5));
        p.steps = 1 + draw(&d, 7);
        p.grad = grad[draw(&d, 5)];
        fault += try_plan(c, ops, &p, form);
        if (fault > 0)
            fprintf(stderr, "%s, n %lld, k %lld\n", spec, (long long)p.n, (long long)p.k);
    }
    ct_comm_destroy(c);
    return fault;
}

/* ---- bytes */

/* No rank sends more than 1.3 times the mean, once the boundaries have had a few steps. */
static int balanced(ct_comm *c)
{
    static const plan p[] = { { "random", 60000, 1200, 9, random_everywhere },
                              { "skewed", 90000, 1500, 14, skewed } };
    bool even = (ct_topo_min_node_size(c->topo) == ct_topo_max_node_size(c->topo));
    int fault = 0;

    for (const ct_sparse_allreduce_ops *const *at = ct_sparse_allreduce_table; *at != NULL; ++at) {
        for (int k = 0; k < 2; ++k) {
            run x;
            int64_t bytes = 0, most = 0, sum = 0;

            if (((*at)->node_start != NULL) && !even) continue;
            if (*at == &ct_sparse_allreduce_dense) continue; /* as even as its allreduce is */
            fault += open_run(c, *at, &p[k], CT_PAYLOAD_PAIRS, 0, &x);
            for (int step = 0; step < p[k].steps; ++step) fault += one_step(&x, &p[k], step);
            bytes = x.bytes[1] - x.bytes[0];
            MPI_Allreduce(&bytes, &most, 1, MPI_INT64_T, MPI_MAX, MPI_COMM_WORLD);
            MPI_Allreduce(&bytes, &sum, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
            if ((double)most * c->size > 1.3 * (double)sum) {
                fault += 1;
                fprintf(stderr, "%s, %s: rank %d sends %lld bytes, most %lld, all %lld\n",
                        (*at)->name, p[k].name, c->rank, (long long)bytes, (long long)most,
                        (long long)sum);
            }
            close_run(&x);
        }
    }
    return fault;
}

/* Evenly spread, and no element twice. */
static float even_spread(const ct_comm *c, int64_t n, int step, int64_t i)
{
    (void)n;
    (void)step;
    return (i % 1000 == 16 * c->rank) ? 3 : 0;
}

/* The same of nodes: one rank of each has all that there is. */
static float even_on_nodes(const ct_comm *c, int64_t n, int step, int64_t i)
{
    (void)n;
    (void)step;
    return ((c->node_rank == 0) && (i % 1000 == 16 * c->topo->node[c->rank])) ? 3 : 0;
}

static int by_theory(ct_comm *c)
{
    plan p = { "even", 1000 * 12 * (int64_t)c->size, 12 * (int64_t)c->size, 1, even_spread };
    static const ct_payload_form form[] = { CT_PAYLOAD_PAIRS, CT_PAYLOAD_HALF };
    bool alike = (ct_topo_min_node_size(c->topo) == ct_topo_max_node_size(c->topo));
    int fault = 0;

    for (const ct_sparse_allreduce_ops *const *at = ct_sparse_allreduce_table; *at != NULL; ++at) {
        bool nodes = ((*at)->node_start != NULL); /* theory has gradients sent on a node, too */

        p.grad = nodes ? even_on_nodes : even_spread;
        for (int f = 0; (f < 2) && (!nodes || alike); ++f) {
            run x;
            int64_t sum = 0, theory = (*at)->bytes_theory(c, p.n, p.k, form[f]) * c->size;

            fault += open_with(c, *at, &p, form[f], 0, false, &x) + one_step(&x, &p, 0);
            MPI_Allreduce(&x.bytes[1], &sum, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
            /* blocks of HALF begin anew in each region; a mean is rounded down */
            if ((sum < theory) || (sum >= theory + c->size * (1 + 8 * f * (int64_t)c->size))) {
                fault += 1;
                fprintf(stderr, "%s, %s: all ranks sent %lld bytes, in theory %lld\n", (*at)->name,
                        ct_payload_name(form[f]), (long long)sum, (long long)theory);
            }
            close_run(&x);
        }
    }
    return fault;
}

/* ---- several in flight, progressed in an order that differs from rank to rank */

static int several(ct_comm *c)
{
    enum { N = 5 };
    const plan *p = &plans[0];
    run x[N];
    int fault = 0, n_op = 0, left = N, idle = 0;
    bool done[N] = { false };

    while (ct_sparse_allreduce_table[n_op] != NULL) n_op += 1;
    for (int k = 0; k < N; ++k)
        fault += open_run(c, ct_sparse_allreduce_table[k % n_op], p, CT_PAYLOAD_HALF,
                          k * CT_COLL_TAGS, &x[k]);
    for (int k = 0; k < N; ++k) fault += begin_step(&x[k], p, k);
    for (int k = 0; k < N; ++k) {
        fault += wait_node(&x[k]);
        for (int64_t i = 0; i < p->n; ++i) {
            bool mine = (i >= x[k].r.first) && (i < x[k].r.first + x[k].r.length);

            if (mine) x[k].v[i] += x[k].grad[i];
        }
        fault += select_own(&x[k]) + (x[k].ops->start(&x[k].r) != CT_OK);
    }
    for (int turn = c->rank; (left > 0) && (fault == 0); ++turn) {
        int k = (c->rank % 2 == 0) ? turn % N : (N - turn % N) % N;
        ct_status status = CT_OK;

        if (done[k]) continue;
        x[k].r.where.brief = (turn % 3 == 0);
        status = x[k].ops->progress(&x[k].r);
        if (status == CT_INPROGRESS) {
            idle += 1;
            ct_comm_relax(c, &idle);
            continue;
        }
        fault += (status != CT_OK);
        done[k] = true;
        left -= 1;
    }
    for (int k = 0; k < N; ++k) {
        fault += end_step(&x[k], p, k) + conserved(&x[k], p);
        close_run(&x[k]);
    }
    return fault;
}

/* ---- the node's sum, in shared memory and by messages */

enum { NODE_N = 200003, NODE_USES = 6 };

/* Integers: exact in any order. A use that is late on some ranks meets the next one of others. */
static int node_use(ct_sparse_allreduce_node *node, const ct_comm *c, int use, float *v,
                    int n_owner)
{
    ct_coll_where where = { .brief = (use % 2 == 0) };
    int64_t bytes = 0, first = ct_part(NODE_N, n_owner, c->node_rank), wrong = 0, last = 0;
    ct_status status = CT_INPROGRESS;
    int idle = 0;

    for (int64_t i = 0; i < NODE_N; ++i) v[i] = term(1 + (uint64_t)c->rank, (uint64_t)use, i);
    if (c->rank == use % c->size) usleep(1000);
    if (ct_sparse_allreduce_node_start(node, v) != CT_OK) return 1;
    while (status == CT_INPROGRESS) {
        status = ct_sparse_allreduce_node_progress(node, &bytes, &where);
        idle += 1;
        ct_comm_relax((ct_comm *)(uintptr_t)c, &idle);
    }
    first = (c->node_rank < n_owner) ? first : 0;
    last = (c->node_rank < n_owner) ? ct_part(NODE_N, n_owner, c->node_rank + 1) : 0;
    for (int64_t i = first; i < last; ++i) {
        float sum = 0;

        for (int r = 0; r < c->node_size; ++r)
            sum += term(1 + (uint64_t)c->node_member[r], (uint64_t)use, i);
        wrong += (v[i] != sum);
    }
    MPI_Barrier(MPI_COMM_WORLD); /* as a delivery: nobody writes before all have read */
    return MPI_FAULT_UNLESS((status == CT_OK) && (wrong == 0));
}

static int node_sums(ct_comm *c)
{
    const ct_arena_ops *arena = ct_comm_arena(c);
    int n_owner = ct_topo_min_node_size(c->topo), fault = 0;
    float *plain = calloc(NODE_N, sizeof(*plain));
    ct_sparse_allreduce_node *node = NULL, *apart = NULL;
    void *block = NULL;

    fault += MPI_FAULT_UNLESS(arena->acquire(arena->ctx, sizeof(float) * NODE_N, "test", &block) ==
                              CT_OK);
    fault += MPI_FAULT_UNLESS(
        ct_sparse_allreduce_node_create(c, block, NODE_N, n_owner, 1, 3, &node) == CT_OK);
    fault += MPI_FAULT_UNLESS(
        ct_sparse_allreduce_node_create(c, plain, NODE_N, n_owner, 1, 4, &apart) == CT_OK);
    if (fault == 0) {
        bool shares = c->node_shares && (ct_topo_max_node_size(c->topo) > 1);

        fault += MPI_FAULT_UNLESS(ct_sparse_allreduce_node_shares(node) == shares);
        fault += MPI_FAULT_UNLESS(!ct_sparse_allreduce_node_shares(apart));
        for (int use = 0; use < NODE_USES; ++use) {
            fault += node_use(node, c, use, (use == 3) ? plain : block, n_owner);
            fault += node_use(apart, c, use, plain, n_owner);
        }
    }
    ct_sparse_allreduce_node_destroy(node);
    ct_sparse_allreduce_node_destroy(apart);
    arena->release(arena->ctx, block);
    free(plain);
    return fault;
}

/* ---- choice and costs */

static int choices(ct_comm *c)
{
    const ct_sparse_allreduce_ops *ops = NULL;
    ct_sparse_allreduce_req r = { .comm = c, .n = CT_SPARSE_MAX + 1, .k = 1 };
    int fault = 0;

    fault += MPI_FAULT_UNLESS(
        ct_sparse_allreduce_choose(c, 1000000, 1000, CT_PAYLOAD_PAIRS, "auto", &ops) == CT_OK);
    for (const ct_sparse_allreduce_ops *const *at = ct_sparse_allreduce_table; *at != NULL; ++at) {
        double small = (*at)->cost_s(c, 1000000, 100, CT_PAYLOAD_PAIRS);
        double large = (*at)->cost_s(c, 10000000, 100000, CT_PAYLOAD_PAIRS);
        double least = ops->cost_s(c, 1000000, 1000, CT_PAYLOAD_PAIRS);

        fault += MPI_FAULT_UNLESS((small >= 0) && isfinite(large));
        fault += MPI_FAULT_UNLESS((c->size == 1) || (small < large));
        fault += MPI_FAULT_UNLESS((*at)->cost_s(c, 1000000, 1000, CT_PAYLOAD_PAIRS) >= least);
    }
    log_capture_start(NULL);
    fault += MPI_FAULT_UNLESS(
        ct_sparse_allreduce_choose(c, 10, 1, CT_PAYLOAD_PAIRS, "best", &ops) == CT_ERR_CONFIG);
    fault += MPI_FAULT_UNLESS(ct_sparse_allreduce_gtopk.prepare(&r) == CT_ERR_CONFIG);
    ct_sparse_allreduce_gtopk.release(&r);
    log_capture_stop();
    return fault;
}

/* What is the same in every run has an allgather between the nodes, and is predicted so. */
static int deterministic(ct_comm *c)
{
    enum { ELEMENTS = 1000000 };
    const ct_codec_config config = { .density = 0.3f, .exchange = "hier", .wire = "pairs" };
    const ct_sparse_allreduce_model *model = NULL;
    int64_t k = llround((double)config.density * ELEMENTS);
    ct_codec_comm_costs any, same;
    ct_codec_seconds least, s;
    ct_sparse_allreduce_seconds want;
    int fault = 0;

    if (c->size == 1) return 0;
    fault += MPI_FAULT_UNLESS(ct_sparse_allreduce_model_of(c, &model) == CT_OK);
    fault += MPI_FAULT_UNLESS(ct_codec_costs_of(c, "auto", false, &any) == CT_OK);
    fault += MPI_FAULT_UNLESS(ct_codec_costs_of(c, "auto", true, &same) == CT_OK);
    if (fault > 0) return fault;
    ct_codec_topk.seconds(&any.costs, &config, ELEMENTS, 1, &least);
    ct_codec_topk.seconds(&same.costs, &config, ELEMENTS, 1, &s);
    ct_sparse_allreduce_model_hier_s(model, CT_SPARSE_ALLREDUCE_ALLGATHER, ELEMENTS, k,
                                     CT_PAYLOAD_PAIRS, &want);
    fault += MPI_FAULT_UNLESS((s.wire_s == want.wire_s) && (s.decode_s == want.work_s));
    fault += MPI_FAULT_UNLESS(s.wire_s + s.decode_s >= least.wire_s + least.decode_s);
    fault += MPI_FAULT_UNLESS(
        s.bytes == (double)ct_sparse_allreduce_model_hier_bytes(
                       model, CT_SPARSE_ALLREDUCE_ALLGATHER, ELEMENTS, k, CT_PAYLOAD_PAIRS));
    return fault;
}

/* Against an allgather of the same entries, of values that are no integers: to rounding. */
static int dense_is_the_sum(ct_comm *c)
{
    static const plan p = { "fractions", 30011, 6000, 1, random_everywhere };
    run dense, gather;
    double worst = 0;
    int fault = 0;

    fault += open_run(c, &ct_sparse_allreduce_dense, &p, CT_PAYLOAD_HALF, 0, &dense);
    fault +=
        open_run(c, &ct_sparse_allreduce_allgather, &p, CT_PAYLOAD_HALF, CT_COLL_TAGS, &gather);
    for (int64_t i = 0; i < p.n; ++i)
        dense.v[i] = gather.v[i] = p.grad(c, p.n, 0, i) / (float)(7 + c->rank);
    fault += select_own(&dense) + select_own(&gather);
    fault += (ct_sparse_allreduce_run(dense.ops, &dense.r) != CT_OK);
    fault += (ct_sparse_allreduce_run(gather.ops, &gather.r) != CT_OK);
    for (int64_t i = 0; i < p.n; ++i) {
        worst = fmax(worst, fabs((double)(dense.grad[i] - gather.grad[i])));
        fault += (dense.v[i] != gather.v[i]); /* the same was rounded away */
    }
    /* p terms of at most 1000 / 7, added in two orders */
    fault += MPI_FAULT_UNLESS(worst <= 2 * c->size * 0x1p-24 * c->size * 1000.0 / 7);
    fault += MPI_FAULT_UNLESS(dense.r.filled == gather.r.filled);
    close_run(&dense);
    close_run(&gather);
    return fault;
}

static void test_dense(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(dense_is_the_sum)), 0);
}

/* The end of a gtopk sends nothing, so it rounds nothing: 1 and 2^-12, which no bf16 holds
 * together.
 */
static float far_apart(const ct_comm *c, int64_t n, int step, int64_t i)
{
    (void)n;
    (void)step;
    return (c->rank == 0) ? 1 : (float)(i + 1) * 0x1p-12f;
}

static int last_round(ct_comm *c)
{
    const plan p = { "far apart", 4, 4, 1, far_apart };
    run x;
    int fault = 0;

    if (c->size != 2) return 0;
    fault += open_run(c, &ct_sparse_allreduce_gtopk, &p, CT_PAYLOAD_HALF, 0, &x);
    if (mpi_verdict(fault) > 0) return 1;
    fault += one_step(&x, &p, 0);
    for (int64_t i = 0; i < p.n; ++i) {
        fault += MPI_FAULT_UNLESS(x.grad[i] == 1 + (float)(i + 1) * 0x1p-12f);
        fault += MPI_FAULT_UNLESS(x.v[i] == 0);
    }
    close_run(&x);
    return fault;
}

static void test_last_round(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(last_round)), 0);
}

static void test_deterministic(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(deterministic)), 0);
}

static void test_conservation(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(all_plans)), 0);
}

static void test_drawn(void **state)
{
    (void)state;
    assert_int_equal(mpi_on_draws(one_case, 3), 0);
}

static void test_balance(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(balanced)), 0);
}

static void test_theory(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(by_theory)), 0);
}

static void test_several(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(several)), 0);
}

static void test_node_sums(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(node_sums)), 0);
}

static void test_choice(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(choices)), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_conservation),  cmocka_unit_test(test_balance),
    cmocka_unit_test(test_theory),        cmocka_unit_test(test_several),
    cmocka_unit_test(test_choice),        cmocka_unit_test(test_node_sums),
    cmocka_unit_test(test_deterministic), cmocka_unit_test(test_last_round),
    cmocka_unit_test(test_dense),         cmocka_unit_test(test_drawn),
};

MPI_MAIN(tests, 120)
