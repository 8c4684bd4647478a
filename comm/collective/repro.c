#include "comm/collective/repro.h"

#include <stdlib.h>

#include "comm/collective/repro_code.h"
#include "framework/base/clock.h"

typedef enum { IDLE, EXPONENTS, HELD, ADDING } stage;

struct ct_repro {
    ct_comm *comm;
    float *x;
    int64_t count, blocks;
    _Atomic int stage;
    const ct_coll_ops *max_ops, *sum_ops; /* NULL: not prepared */
    ct_coll_req max, sum;
    uint8_t *top;              /* [2 blocks]: exponents, then whether something is not finite */
    const ct_arena_ops *arena; /* of the integers */
    void *block;               /* the arena's      */
    int64_t *q;                /* [count], in it   */
    double code_s;
    double times[CT_REPRO_WORKS][2];
};

void ct_repro_destroy(ct_repro *r)
{
    if (r == NULL) return;
    if (r->sum_ops != NULL) r->sum_ops->release(&r->sum);
    if (r->max_ops != NULL) r->max_ops->release(&r->max);
    if (r->block != NULL) r->arena->release(r->arena->ctx, r->block);
    ct_mem_release(r->top);
    free(r);
}

/* The exponents are few and latency is all: halving and doubling. Never MPI's own, whose starts
 * would have to be in one order with those of the sums. */
static ct_status prepare_max(ct_repro *r, int tag)
{
    const ct_coll_ops *ops = NULL;

    r->top = ct_mem_acquire((size_t)(2 * r->blocks));
    if (r->top == NULL)
        return CT_FAIL(CT_ERR_NOMEM, "no memory for %lld exponents", (long long)r->blocks);
    r->max = (ct_coll_req){
        .comm = r->comm, .buf = r->top, .count = 2 * r->blocks, .dtype = CT_U8, .tag = tag
    };
    CT_TRY(ct_coll_choose(r->comm, r->max.count, CT_U8, "rhd", &ops));
    CT_TRY(ops->prepare(&r->max));
    r->max_ops = ops;
    return CT_OK;
}

static ct_status prepare_sum(ct_repro *r, const char *allreduce, int tag)
{
    const ct_coll_ops *ops = NULL;
    uintptr_t at = 0;

    CT_TRY(ct_coll_choose(r->comm, r->count, CT_I64, allreduce, &ops));
    r->arena = ops->shares_memory ? ct_comm_arena(r->comm) : ct_arena_plain();
    CT_TRY(r->arena->acquire(r->arena->ctx, sizeof(*r->q) * (size_t)r->count + CT_ALIGN,
                             "integers of a reproducible sum", &r->block));
    at = ct_align_up((uintptr_t)r->block);
    r->q = (int64_t *)at;
    r->sum = (ct_coll_req){
        .comm = r->comm, .buf = r->q, .count = r->count, .dtype = CT_I64, .tag = tag
    };
    CT_TRY(ops->prepare(&r->sum));
    r->sum_ops = ops;
    return CT_OK;
}

ct_status ct_repro_create(ct_comm *c, const char *allreduce, float *x, int64_t count, int tag,
                          ct_repro **r_p)
{
    ct_repro *r = NULL;
    ct_status status = CT_OK;

    if (c->size > ((int)1 << CT_REPRO_LOG_RANKS))
        return CT_FAIL(CT_ERR_CONFIG, "reproducible sums over %d ranks: up to 2^%d", c->size,
                       CT_REPRO_LOG_RANKS);
    r = calloc(1, sizeof(*r));
    if (r == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a reproducible sum");
    r->comm = c;
    r->x = x;
    r->count = count;
    r->blocks = ct_repro_blocks(count);
    CT_TRY_GOTO(status, err_destroy, prepare_max(r, tag));
    CT_TRY_GOTO(status, err_destroy, prepare_sum(r, allreduce, tag));
    *r_p = r;
    return CT_OK;

err_destroy:
    ct_repro_destroy(r);
    return status;
}

static void note(ct_repro *r, ct_repro_work work, double start)
{
    r->times[work][0] = start;
    r->times[work][1] = ct_clock_s();
    r->code_s += r->times[work][1] - start;
}

const double *ct_repro_times(const ct_repro *r, ct_repro_work work)
{
    return r->times[work];
}

ct_status ct_repro_start(ct_repro *r)
{
    double start = ct_clock_s();

    ct_repro_scan(r->x, r->count, r->top, r->top + r->blocks, r->comm->n_thread);
    note(r, CT_REPRO_SCAN, start);
    atomic_store(&r->stage, EXPONENTS);
    return r->max_ops->start(&r->max);
}

static ct_status start_sum(ct_repro *r)
{
    double start = ct_clock_s();

    ct_repro_encode(r->x, r->count, r->top, r->top + r->blocks, r->comm->size, r->q,
                    r->comm->n_thread);
    note(r, CT_REPRO_ENCODE, start);
    atomic_store(&r->stage, ADDING);
    return r->sum_ops->start(&r->sum);
}

ct_status ct_repro_progress(ct_repro *r, bool in_turn)
{
    double start = 0;

    if (atomic_load(&r->stage) == EXPONENTS) {
        ct_status status = r->max_ops->progress(&r->max);

        if (status != CT_OK) return status;
        atomic_store(&r->stage, HELD);
    }
    if (atomic_load(&r->stage) == HELD) {
        if (r->sum_ops->by_mpi && !in_turn) return CT_INPROGRESS;
        CT_TRY(start_sum(r));
    }
    if (atomic_load(&r->stage) == ADDING) {
        ct_status status = r->sum_ops->progress(&r->sum);

        if (status != CT_OK) return status;
        start = ct_clock_s();
        ct_repro_decode(r->q, r->count, r->top, r->top + r->blocks, r->comm->size, r->x,
                        r->comm->n_thread);
        note(r, CT_REPRO_DECODE, start);
        atomic_store(&r->stage, IDLE);
    }
    return CT_OK;
}

bool ct_repro_adds(const ct_repro *r)
{
    int at = atomic_load(&r->stage);

    return (at == ADDING) || (at == IDLE);
}

const char *ct_repro_algorithm(const ct_repro *r)
{
    return r->sum_ops->name;
}

double ct_repro_predicted_s(const ct_repro *r)
{
    return r->max_ops->cost_s(r->comm, r->max.count, CT_U8) +
           r->sum_ops->cost_s(r->comm, r->count * (int64_t)sizeof(*r->q), CT_I64);
}

int64_t ct_repro_bytes_sent(const ct_repro *r)
{
    return r->max.bytes_sent + r->sum.bytes_sent;
}

double ct_repro_code_s(const ct_repro *r)
{
    return r->code_s;
}

int ct_repro_pending(ct_repro *r, MPI_Request **out, int max)
{
    int at = atomic_load(&r->stage);
    const ct_coll_ops *ops = (at == EXPONENTS) ? r->max_ops : r->sum_ops;

    if (((at != EXPONENTS) && (at != ADDING)) || (ops->pending == NULL)) return 0;
    return ops->pending((at == EXPONENTS) ? &r->max : &r->sum, out, max);
}

ct_coll_where *ct_repro_where(ct_repro *r)
{
    return ct_repro_adds(r) ? &r->sum.where : &r->max.where;
}

ct_status ct_repro_run(ct_comm *c, const char *allreduce, float *x, int64_t n)
{
    ct_repro *r = NULL;
    ct_status status = CT_OK;
    int idle = 0;

    if ((c->size == 1) || (n == 0)) return CT_OK;
    CT_TRY(ct_repro_create(c, allreduce, x, n, 0, &r)); /* tags 0 …: as ct_coll_run() */
    ct_comm_lock(c);
    status = ct_repro_start(r);
    ct_comm_unlock(c);
    while (status == CT_OK) {
        MPI_Request *req[CT_COMM_MAX_PENDING];
        int n_req = 0;

        ct_comm_lock(c);
        status = ct_repro_progress(r, true);
        if (status == CT_INPROGRESS) n_req = ct_repro_pending(r, req, CT_COMM_MAX_PENDING);
        ct_comm_unlock(c);
        if (status != CT_INPROGRESS) break;
        idle += 1;
        status = ct_comm_wait_any(c, req, n_req, &idle);
    }
    ct_repro_destroy(r);
    return status;
}
