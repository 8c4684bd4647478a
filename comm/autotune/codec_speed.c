/* What codecs and messages take on this machine, measured. */
#include "comm/autotune/codec_speed.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "comm/collective/blocking.h"
#include "comm/sparse/sparse_cost.h"
#include "comm/sparse/sparse_allreduce_impl.h"
#include "comm/codec/integer.h"
#include "comm/codec/low_rank.h"
#include "comm/codec/select.h"
#include "comm/codec/sign.h"
#include "framework/base/clock.h"
#include "framework/base/cpu_cache.h"
#include "comm/collective/persistent.h"

/* A thousandth is selected, a thirty-second is exchanged, so that its time can be read off. */
enum { LEAST = 1 << 20, MOST = 1 << 23, PER_SELECTED = 1024, PER_ENTRY = 32, RUNS = 3 };
enum { ROWS = 1024, FEW = 2, MANY = 4 /* columns of factors: the rest is in proportion */ };

typedef struct bench {
    ct_comm *c;
    int n;
    float *grad, *u, *v, *sum;
    char *payload;
    float *factors, *scratch;
    ct_selector *selector;
    ct_sparse out, low, high, merged;
} bench;

/* Gradient, momentum and residual are twice what the caches hold, as other parameters have been
 * there since the last step. */
static int elements(void)
{
    int64_t n = 2 * (int64_t)ct_cpu_cache_bytes() / 12;

    n = (n < MOST) ? n : MOST;
    return (int)((n > LEAST) ? n : LEAST) / PER_SELECTED * PER_SELECTED;
}

static void release(bench *b)
{
    ct_mem_release(b->grad);
    ct_mem_release(b->u);
    ct_mem_release(b->v);
    ct_mem_release(b->sum);
    ct_mem_release(b->payload);
    ct_mem_release(b->factors);
    ct_mem_release(b->scratch);
    ct_selector_destroy(b->selector);
    ct_sparse_destroy(&b->out);
    ct_sparse_destroy(&b->low);
    ct_sparse_destroy(&b->high);
    ct_sparse_destroy(&b->merged);
}

/* Roughly normal numbers, cheaply: what is selected of them is spread as that of gradients. */
static void fill(float *v, int n)
{
    uint32_t x = 12345;

    for (int i = 0; i < n; ++i) {
        float sum = -2;

        for (int k = 0; k < 4; ++k) {
            x = x * 1664525u + 1013904223u;
            sum += (float)(x >> 8) * 0x1p-24f;
        }
        v[i] = sum;
    }
}

/* Every 32nd element, near where that lies in each block. */
static ct_status fill_list(ct_sparse *s, int n, int shift)
{
    CT_TRY(ct_sparse_reserve(s, n / PER_ENTRY));
    s->n = n;
    s->count = n / PER_ENTRY;
    for (int i = 0; i < n / PER_ENTRY; ++i) {
        s->index[i] = (uint32_t)(i * PER_ENTRY + (i * 7 + shift) % PER_ENTRY);
        s->value[i] = (float)((i * 37 + shift) % 1001) - 500.5f;
    }
    return CT_OK;
}

static ct_low_rank shape_of(const bench *b, int columns)
{
    return (ct_low_rank){ .rows = ROWS, .cols = b->n / ROWS, .r = columns };
}

static ct_status prepare(bench *b)
{
    size_t bytes = sizeof(float) * (size_t)b->n;
    ct_low_rank shape = shape_of(b, MANY);
    int64_t n_factor = MANY * (shape.rows + shape.cols);

    b->grad = ct_mem_acquire(bytes);
    b->u = ct_mem_acquire(bytes);
    b->v = ct_mem_acquire(bytes);
    b->sum = ct_mem_acquire(bytes);
    b->payload = ct_mem_acquire(ct_payload_bytes(CT_PAYLOAD_PAIRS, b->n, b->n / PER_ENTRY) +
                                (size_t)ct_integer_bytes(8, b->n));
    b->factors = ct_mem_acquire(sizeof(float) * (size_t)n_factor);
    b->scratch = ct_mem_acquire(sizeof(float) * (size_t)ct_low_rank_scratch(&shape) + 1);
    if ((b->grad == NULL) || (b->u == NULL) || (b->v == NULL) || (b->sum == NULL) ||
        (b->payload == NULL) || (b->factors == NULL) || (b->scratch == NULL))
        return CT_FAIL(CT_ERR_NOMEM, "no memory to measure codecs");
    fill(b->grad, b->n);
    memset(b->u, 0, bytes);
    memset(b->v, 0, bytes);
    memset(b->sum, 0, bytes);
    CT_TRY(fill_list(&b->low, b->n, 0));
    CT_TRY(fill_list(&b->high, b->n, 11));
    return ct_selector_create(CT_SELECT_AUTO, b->n, b->n / PER_SELECTED, &b->selector);
}

static double stream(bench *b)
{
    double start = ct_clock_s();

#pragma omp parallel for simd schedule(static) num_threads(b->c->n_thread)
    for (int i = 0; i < b->n; ++i) b->sum[i] = b->grad[i] + 3.0f * b->u[i];
    return ct_clock_s() - start;
}

/* What a rank has left to do with a step's list. */
static ct_status exchange(bench *b, double *pack_s, double *add_s, double *merge_s)
{
    double start = ct_clock_s();
    const void *payload = b->payload;
    size_t bytes = 0;

    ct_payload_round(CT_PAYLOAD_PAIRS, &b->low, &(ct_residual_return){ .v = b->v });
    bytes = ct_payload_pack(CT_PAYLOAD_PAIRS, &b->low, b->payload);
    *pack_s = ct_clock_s() - start;
    start = ct_clock_s();
    CT_TRY(ct_payload_add_all(&payload, &bytes, 1, b->sum, b->n, b->c->n_thread));
    *add_s = ct_clock_s() - start;
    start = ct_clock_s();
    CT_TRY(ct_sparse_allreduce_merge(&b->low, &b->high, b->n / PER_ENTRY, &b->merged));
    *merge_s = ct_clock_s() - start;
    return CT_OK;
}

/* A payload of signs, and one of another rank. */
static ct_status signs(bench *b, const ct_momentum_correction *a, double *sign_s, double *unsign_s)
{
    ct_sign_cut cut = { .n = b->n, .parts = 1 };
    double start = ct_clock_s();

    CT_TRY(ct_sign_encode(&cut, a, -1, b->payload));
    *sign_s = ct_clock_s() - start;
    start = ct_clock_s();
    CT_TRY(ct_sign_add(b->payload, ct_sign_bytes(b->n), b->sum, b->n, b->c->n_thread));
    *unsign_s = ct_clock_s() - start;
    return CT_OK;
}

/* All of it, but for making few numbers orthogonal. */
static ct_status factors(bench *b, const ct_momentum_correction *a, int columns, double *seconds_p)
{
    ct_low_rank shape = shape_of(b, columns);
    float *p = b->factors, *q = p + columns * shape.rows;
    double start = 0;

    fill(q, (int)(columns * shape.cols));
    start = ct_clock_s();
    CT_TRY(ct_low_rank_left(&shape, a, q, p));
    ct_low_rank_right(&shape, a->v, p, a->n_thread, b->scratch, q);
    ct_low_rank_take(&shape, p, q, a->n_thread, b->sum);
    ct_low_rank_put(&shape, p, q, a->n_thread, b->sum);
    *seconds_p = ct_clock_s() - start;
    return CT_OK;
}

/* Of integers: to a payload; back, plain and added. The numbers are small, of whatever sign. */
static void integers(bench *b, int bits, double *encode_s, double *decode_s)
{
    int n_thread = b->c->n_thread;
    double start = ct_clock_s();

    (void)ct_integer_encode(bits, b->grad, b->n, false, n_thread, b->payload);
    *encode_s = ct_clock_s() - start;
    start = ct_clock_s();
    ct_integer_decode(bits, b->payload, b->n, false, n_thread, b->sum);
    ct_integer_decode(bits, b->payload, b->n, true, n_thread, b->sum);
    *decode_s = ct_clock_s() - start;
}

/* What is large of a step, on one core: the update with its selection, and entries that are added.
 * The rank's other cores have nothing to do meanwhile. */
static ct_status one_core(bench *b, const ct_momentum_correction *a, double *seconds_p)
{
    ct_momentum_correction alone = *a;
    const void *payload = b->payload;
    size_t bytes = ct_payload_pack(CT_PAYLOAD_PAIRS, &b->low, b->payload);
    double start = ct_clock_s();

    alone.n_thread = 1;
    CT_TRY(ct_selector_run(b->selector, &alone, &b->out));
    CT_TRY(ct_payload_add_all(&payload, &bytes, 1, b->sum, b->n, 1));
    *seconds_p = ct_clock_s() - start;
    return CT_OK;
}

enum {
    MEMORY,
    UPDATE,
    SELECT,
    PACK,
    ADD,
    MERGE,
    SIGN,
    UNSIGN,
    OF_FEW,
    OF_MANY,
    INT8,
    UNINT8,
    INT4,
    UNINT4,
    ONE_CORE,
    FIGURES
};

static ct_status run(bench *b, double *best)
{
    ct_momentum_correction a = { .grad = b->grad,
                                 .u = b->u,
                                 .v = b->v,
                                 .n = b->n,
                                 .scale = 1,
                                 .rate = 0.01f,
                                 .momentum = 0.9f,
                                 .mask_momentum = true,
                                 .n_thread = b->c->n_thread };

    for (int k = 0; k < FIGURES; ++k) best[k] = INFINITY;
    for (int i = 0; i < RUNS; ++i) {
        double t[FIGURES], start = 0;

        t[MEMORY] = stream(b);
        start = ct_clock_s();
        ct_momentum_correction_run(&a);
        t[UPDATE] = ct_clock_s() - start;
        start = ct_clock_s();
        CT_TRY(ct_selector_run(b->selector, &a, &b->out));
        t[SELECT] = ct_clock_s() - start;
        CT_TRY(exchange(b, &t[PACK], &t[ADD], &t[MERGE]));
        CT_TRY(signs(b, &a, &t[SIGN], &t[UNSIGN]));
        CT_TRY(factors(b, &a, FEW, &t[OF_FEW]));
        CT_TRY(factors(b, &a, MANY, &t[OF_MANY]));
        integers(b, 8, &t[INT8], &t[UNINT8]);
        integers(b, 4, &t[INT4], &t[UNINT4]);
        CT_TRY(one_core(b, &a, &t[ONE_CORE]));
        for (int k = 0; k < FIGURES; ++k) best[k] = fmin(best[k], t[k]);
    }
    return CT_OK;
}

static double beyond(const int64_t *fs, int all, int less)
{
    return fmax(0, (double)(fs[all] - fs[less]));
}

ct_status ct_codec_speed_measure(ct_comm *c, ct_codec_speed *out)
{
    const double femto = 1e-15;
    bench b = { .c = c, .n = elements() };
    int n_entry = b.n / PER_ENTRY;
    double n = b.n, entries = n_entry, best[FIGURES] = { 0 }, column = 0;
    const double units[FIGURES] = {
        [MEMORY] = 12 * n, [UPDATE] = n,          [SELECT] = n,  [PACK] = entries,
        [ADD] = entries,   [MERGE] = 2 * entries, [SIGN] = n,    [UNSIGN] = n,
        [OF_FEW] = n,      [OF_MANY] = n,         [INT8] = n,    [UNINT8] = 2 * n,
        [INT4] = n,        [UNINT4] = 2 * n,      [ONE_CORE] = 1
    };
    int64_t fs[FIGURES + 1] = { 0 }; /* of a unit; ranks may have caches of other sizes */
    ct_status status = prepare(&b);

    if (status == CT_OK) status = run(&b, best);
    release(&b);
    best[ONE_CORE] *= femto * 1e6 / (best[SELECT] + best[ADD]); /* millionths, not seconds */
    for (int k = 0; k < FIGURES; ++k)
        fs[k] = (status == CT_OK) ? 1 + (int64_t)(best[k] / units[k] / femto) : 0;
    fs[FIGURES] = (status != CT_OK);
    CT_TRY(ct_comm_max(c, fs, FIGURES + 1));
    CT_TRY(status);
    if (fs[FIGURES] != 0)
        return CT_FAIL(CT_ERR_COMM, "codecs could not be measured on another rank");
    column = fmax(0, (double)(fs[OF_MANY] - fs[OF_FEW])) / (MANY - FEW);
    *out =
        (ct_codec_speed){ .memory = 1 / (femto * (double)fs[MEMORY]),
                          .update_s = femto * (double)fs[UPDATE],
                          .select_s = femto * beyond(fs, SELECT, UPDATE),
                          .pack_s = femto * (double)fs[PACK],
                          .add_s = femto * (double)fs[ADD],
                          .merge_s = femto * (double)fs[MERGE],
                          .sign_s = femto * beyond(fs, SIGN, UPDATE),
                          .unsign_s = femto * (double)fs[UNSIGN],
                          .factor_s = femto * fmax(0, beyond(fs, OF_FEW, UPDATE) - FEW * column),
                          .column_s = femto * column,
                          .int8_s = femto * (double)fs[INT8],
                          .unint8_s = femto * (double)fs[UNINT8],
                          .int4_s = femto * (double)fs[INT4],
                          .unint4_s = femto * (double)fs[UNINT4],
                          .one_core = (c->n_thread > 1) ? fmax(1, 1e-6 * (double)fs[ONE_CORE]) : 1,
                          .measured = true };
    return CT_OK;
}

/* Measured on the slowest rank; a machine's figures are those of a node of speed 1, from which
 * ct_topo_codec_speed() comes back to these. */
static void keep_of_slowest(const ct_topo *t, ct_codec_speed *speed)
{
    if (t->node_class == NULL) return;
    *speed = ct_codec_speed_at(*speed, 1 / ct_topo_speed(t, ct_topo_slowest_node(t)));
}

ct_status ct_codec_speed_find(ct_comm *c)
{
    ct_machine *m = &c->topo->machine;
    double start = ct_clock_s();

    if (m->coding.measured) return CT_OK;
    CT_TRY(ct_codec_speed_measure(c, &m->coding));
    keep_of_slowest(c->topo, &m->coding);
    ct_sparse_allreduce_model_renew(c);
    CT_INFO("codecs here: streams %.3g GB/s, update %.3g ns an element and selection %.3g more; an "
            "entry %.3g ns to pack, %.3g to add, %.3g to merge; an element %.3g ns more for signs, "
            "%.3g "
            "for %d columns of factors; %.3g in 8 bits, %.3g back; one core alone takes %.3g times "
            "as long (measured in %.0f ms)",
            1e-9 * m->coding.memory, 1e9 * m->coding.update_s, 1e9 * m->coding.select_s,
            1e9 * m->coding.pack_s, 1e9 * m->coding.add_s, 1e9 * m->coding.merge_s,
            1e9 * m->coding.sign_s, 1e9 * (m->coding.factor_s + FEW * m->coding.column_s), FEW,
            1e9 * m->coding.int8_s, 1e9 * m->coding.unint8_s, m->coding.one_core,
            1e3 * (ct_clock_s() - start));
    return CT_OK;
}

/* ---- messages here against the models of them: a few runs of each */

enum { CALIBRATE_RUNS = 3, PER_MESSAGE = 32 /* elements */ };

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
    for (int i = 0; (status == CT_OK) && (i < CALIBRATE_RUNS); ++i)
        status = compute_beside(c, w, v, &b);
    ct_mem_release(v);
    CT_TRY(status);
    share = b.beside_s - b.alone_s * (double)b.n_beside / (double)b.n_alone;
    share = (sum_s > 0) ? fmin(fmax(share / (CALIBRATE_RUNS * sum_s), 0), 1) / c->size : 0;
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
    for (int i = 0; (status == CT_OK) && (i < CALIBRATE_RUNS); ++i) {
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

static ct_status fill_entries(ct_sparse *s, int64_t n)
{
    CT_TRY(ct_sparse_reserve(s, n / PER_MESSAGE));
    s->n = n;
    s->count = n / PER_MESSAGE;
    for (int64_t i = 0; i < s->count; ++i) {
        s->index[i] = (uint32_t)(i * PER_MESSAGE);
        s->value[i] = 1;
    }
    return CT_OK;
}

/* An allgather: what all exchanges are made of are messages of its kind. */
static ct_status time_exchange(ct_comm *c, int64_t n, double *factor_p)
{
    const ct_sparse_allreduce_ops *ops = &ct_sparse_allreduce_allgather;
    ct_sparse_allreduce_req r = {
        .comm = c, .n = n, .k = n / PER_MESSAGE, .form = CT_PAYLOAD_PAIRS
    };
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
    if (status == CT_OK) status = fill_entries(&own, n);
    if (status == CT_OK) status = ops->prepare(&r);
    for (int i = 0; (status == CT_OK) && (i < CALIBRATE_RUNS); ++i) {
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
    if ((c->size == 1) || (n < PER_MESSAGE)) return CT_OK;
    CT_TRY(time_sum(c, allreduce, n, out));
    return time_exchange(c, n, &out->wire_factor);
}
