/* Messages here against the models of them: a few runs of each. */
#include <math.h>
#include <string.h>

#include "comm/autotune/codec_speed.h"
#include "comm/collective/blocking.h"
#include "comm/collective/persistent.h"
#include "comm/sparse/sparse_allreduce_impl.h"
#include "framework/base/clock.h"

enum { RUNS = 3, PER_ENTRY = 32 /* elements */ };

static const double most = 1e3; /* times longer, or shorter: what is beyond is no model's error */

/* The least of a few runs, on the slowest rank, over what the model says. */
static ct_status factor_of(ct_comm *c, double seconds, double model_s, double *factor_p)
{
    int64_t ns = (int64_t)(1e9 * seconds);
    double f = 1;

    CT_TRY(ct_comm_max(c, &ns, 1));
    if ((model_s > 0) && (ns > 0)) f = 1e-9 * (double)ns / model_s;
    *factor_p = fmin(fmax(f, 1 / most), most);
    /* every rank decides from the same number */
    return ct_comm_broadcast(c, factor_p, sizeof(*factor_p));
}

static ct_status sum_once(ct_comm *c, ct_persistent_coll *w)
{
    ct_status status = CT_OK;
    int idle = 0;

    CT_TRY(ct_persistent_coll_start(w));
    while ((status = ct_persistent_coll_progress(w)) == CT_INPROGRESS) {
        MPI_Request *req[CT_COMM_MAX_PENDING];
        int n = ct_persistent_coll_pending(w, req, CT_COMM_MAX_PENDING);

        idle += 1;
        CT_TRY(ct_comm_wait_any(c, req, n, &idle));
    }
    return status;
}

/* ---- computation beside messages */

enum { PIECE = 1 << 14 /* elements: some 10 microseconds */ };

static const double alone_s = 0.02; /* long beside what a core stays with one process */

/* A piece of computation, in the caches. */
static void compute(float *v)
{
    for (int i = 0; i < PIECE; ++i) v[i] = 0.5f * v[i] + 1.0f / (1.0f + v[i] * v[i]);
}

/* Seconds and pieces of computation: of all ranks at once, and of all ranks between looks at sums.
 */
typedef struct beside {
    double alone_s, beside_s;
    int64_t n_alone, n_beside;
} beside;

static ct_status compute_beside(ct_comm *c, ct_persistent_coll *w, float *v, beside *b)
{
    double start = 0;
    ct_status status = CT_OK;

    CT_TRY(ct_comm_barrier(c));
    for (start = ct_clock_s(); ct_clock_s() - start < alone_s; b->n_alone += 1) compute(v);
    b->alone_s += ct_clock_s() - start;
    CT_TRY(ct_comm_barrier(c));
    start = ct_clock_s();
    CT_TRY(ct_persistent_coll_start(w));
    while ((status = ct_persistent_coll_progress(w)) == CT_INPROGRESS) {
        for (int i = 0; i < 8; ++i) compute(v);
        b->n_beside += 8;
    }
    CT_TRY(status);
    b->beside_s += ct_clock_s() - start;
    return ct_comm_barrier(c);
}

/* sum_s: what the sum takes where nothing else is done. What remains of its time beside
 * computation, less what that takes alone; the mean of the ranks. */
static ct_status time_beside(ct_comm *c, ct_persistent_coll *w, double sum_s, double *taken_p)
{
    float *v = ct_mem_acquire(sizeof(float) * PIECE);
    beside b = { .n_alone = 0 };
    double share = 0;
    ct_status status = CT_OK;

    if (v == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a look at the network");
    for (int i = 0; (status == CT_OK) && (i < RUNS); ++i) status = compute_beside(c, w, v, &b);
    ct_mem_release(v);
    CT_TRY(status);
    share = b.beside_s - b.alone_s * (double)b.n_beside / (double)b.n_alone;
    share = (sum_s > 0) ? fmin(fmax(share / (RUNS * sum_s), 0), 1) / c->size : 0;
    CT_TRY(ct_comm_sum(c, &share, 1));
    *taken_p = share;
    return ct_comm_broadcast(c, taken_p, sizeof(*taken_p));
}

static ct_status time_sum(ct_comm *c, const char *allreduce, int64_t n, ct_codec_calibration *out)
{
    const ct_arena_ops *mem = ct_comm_arena(c);
    ct_persistent_coll w = { .comm = c, .count = n, .dtype = CT_F32 };
    double best = INFINITY;
    void *buf = NULL;
    ct_status status = CT_OK;

    CT_TRY(mem->acquire(mem->ctx, sizeof(float) * (size_t)n, "a look at the network", &buf));
    memset(buf, 0, sizeof(float) * (size_t)n);
    w.buf = buf;
    w.tag = ct_comm_take_tags(c, CT_COLL_TAGS);
    status = ct_persistent_coll_prepare(&w, allreduce, false);
    for (int i = 0; (status == CT_OK) && (i < RUNS); ++i) {
        double start = 0;

        CT_TRY_GOTO(status, done, ct_comm_barrier(c));
        start = ct_clock_s();
        CT_TRY_GOTO(status, done, sum_once(c, &w));
        best = fmin(best, ct_clock_s() - start);
    }
    if (status == CT_OK)
        status = factor_of(c, best, ct_persistent_coll_predicted_s(&w), &out->sum_factor);
    if (status == CT_OK) status = time_beside(c, &w, best, &out->taken);

done:
    ct_persistent_coll_release(&w);
    mem->release(mem->ctx, buf);
    return status;
}

static ct_status fill(ct_sparse *s, int64_t n)
{
    CT_TRY(ct_sparse_reserve(s, n / PER_ENTRY));
    s->n = n;
    s->count = n / PER_ENTRY;
    for (int64_t i = 0; i < s->count; ++i) {
        s->index[i] = (uint32_t)(i * PER_ENTRY);
        s->value[i] = 1;
    }
    return CT_OK;
}

/* An allgather: what all exchanges are made of are messages of its kind. */
static ct_status time_exchange(ct_comm *c, int64_t n, double *factor_p)
{
    const ct_sparse_allreduce_ops *ops = &ct_sparse_allreduce_allgather;
    ct_sparse_allreduce_req r = { .comm = c, .n = n, .k = n / PER_ENTRY, .form = CT_PAYLOAD_PAIRS };
    const ct_sparse_allreduce_model *model = NULL;
    ct_sparse_allreduce_seconds s;
    ct_sparse own = { .n = 0 };
    double best = INFINITY;
    float *sum = ct_mem_acquire(sizeof(float) * (size_t)n);
    ct_status status = CT_OK;

    r.tag = ct_comm_take_tags(c, CT_COLL_TAGS);
    r.sum = sum;
    r.residual.v = sum; /* pairs lose nothing */
    r.own = &own;
    if (sum == NULL) status = CT_FAIL(CT_ERR_NOMEM, "no memory for a look at the network");
    if (status == CT_OK) status = ct_sparse_allreduce_model_of(c, &model);
    if (status == CT_OK) status = fill(&own, n);
    if (status == CT_OK) status = ops->prepare(&r);
    for (int i = 0; (status == CT_OK) && (i < RUNS); ++i) {
        double start = 0, decode = r.decode_s;

        CT_TRY_GOTO(status, done, ct_comm_barrier(c));
        start = ct_clock_s();
        CT_TRY_GOTO(status, done, ct_sparse_allreduce_run(ops, &r));
        best = fmin(best, ct_clock_s() - start - (r.decode_s - decode));
    }
    if (status != CT_OK) goto done;
    ct_sparse_allreduce_model_s(model, CT_SPARSE_ALLREDUCE_ALLGATHER, n, r.k, r.form, &s);
    status = factor_of(c, best, s.wire_s, factor_p);

done:
    ops->release(&r);
    ct_sparse_destroy(&own);
    ct_mem_release(sum);
    return status;
}

ct_status ct_codec_calibrate(ct_comm *c, const char *allreduce, int64_t n,
                             ct_codec_calibration *out)
{
    *out = (ct_codec_calibration){ .sum_factor = 1, .wire_factor = 1 };
    if ((c->size == 1) || (n < PER_ENTRY)) return CT_OK;
    CT_TRY(time_sum(c, allreduce, n, out));
    return time_exchange(c, n, &out->wire_factor);
}
