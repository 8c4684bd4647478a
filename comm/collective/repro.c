/* Reproducible sums: floats as integers, and the two collectives that add them. */
#include "comm/collective/repro.h"

#include <math.h>
#include <omp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/simd.h"
#include "framework/base/clock.h"

enum {
    BLOCK = CT_REPRO_BLOCK,
    TEAM_MIN = 1 << 17,      /* elements */
    NOT_FINITE = 0x7f800000, /* as the magnitude's bits, and above */
    MANTISSA = 23,
    DOUBLE_BIAS = 1023
};

/* 1.5 * 2^52: what is added to it is rounded to an integer, which its low bits then hold. Works for
 * magnitudes up to 2^51, and where there is no instruction from double to 64-bit integers. */
static const double SHIFT = 6755399441055744.0;

static int64_t bits_of(double v)
{
    int64_t bits;

    memcpy(&bits, &v, sizeof(bits));
    return bits;
}

static double from_bits(int64_t bits)
{
    double v;

    memcpy(&v, &bits, sizeof(v));
    return v;
}

/* 2^exponent, of a normal double. */
static double power(int exponent)
{
    return from_bits((int64_t)(DOUBLE_BIAS + exponent) << 52);
}

/* 2^k >= n_rank */
static int log_ranks(int n_rank)
{
    int k = 0;

    while (((int64_t)1 << k) < n_rank) k += 1;
    return k;
}

/* How the integers of a block are laid out. */
typedef struct layout {
    int bits;       /* of a finite element */
    int sum_bits;   /* of their sum, with its sign: the low ones; the counters are above */
    int count_bits; /* of a counter        */
} layout;

static layout layout_for(int n_rank)
{
    int k = log_ranks(n_rank), room = 64 - 3 * (k + 1);
    int bits = (room < CT_REPRO_BITS) ? room : CT_REPRO_BITS;

    return (layout){ .bits = bits, .sum_bits = bits + k + 1, .count_bits = k + 1 };
}

/* ---- whole blocks of finite elements: plain loops over the blocks of a range */

CT_SIMD_CLONES
static void scan_blocks(const float *x, int64_t n_block, uint8_t *top, uint8_t *odd)
{
    for (int64_t b = 0; b < n_block; ++b) {
        int32_t most = 0, bad = 0;

#pragma omp simd reduction(max : most) reduction(| : bad)
        for (int i = 0; i < BLOCK; ++i) {
            int32_t m;

            memcpy(&m, &x[b * BLOCK + i], sizeof(m));
            m &= 0x7fffffff;
            bad |= (m >= NOT_FINITE);
            m = (m >= NOT_FINITE) ? 0 : m;
            most = (m > most) ? m : most;
        }
        top[b] = (uint8_t)(most >> MANTISSA);
        odd[b] = (uint8_t)bad;
    }
}

CT_SIMD_CLONES
static void encode_blocks(const float *x, int64_t n_block, const uint8_t *top, int64_t *q)
{
    const int64_t base = bits_of(SHIFT);

    for (int64_t b = 0; b < n_block; ++b) {
        double scale = power(CT_REPRO_BITS + 126 - top[b]);

#pragma omp simd
        for (int i = 0; i < BLOCK; ++i) {
            double v = (double)x[b * BLOCK + i] * scale + SHIFT;
            int64_t bits;

            memcpy(&bits, &v, sizeof(bits));
            q[b * BLOCK + i] = bits - base;
        }
    }
}

static void decode_blocks(const int64_t *q, int64_t n_block, const uint8_t *top, float *x)
{
    for (int64_t b = 0; b < n_block; ++b) {
        double scale = power(top[b] - 126 - CT_REPRO_BITS);

        for (int i = 0; i < BLOCK; ++i)
            x[b * BLOCK + i] = (float)((double)q[b * BLOCK + i] * scale);
    }
}

/* ---- one block that holds something infinite on some rank */

static void encode_odd(const float *x, int n, int top, layout l, int64_t *q)
{
    double scale = power(l.bits + 126 - top);

    for (int i = 0; i < n; ++i) {
        uint64_t plus = isnan(x[i]) || (isinf(x[i]) && (x[i] > 0));
        uint64_t minus = isnan(x[i]) || (isinf(x[i]) && (x[i] < 0));

        /* cut off, not rounded: of few bits, the largest could round up and out of them */
        q[i] = isfinite(x[i]) ? (int64_t)((double)x[i] * scale)
                              : (int64_t)((plus + (minus << l.count_bits)) << l.sum_bits);
    }
}

static void decode_odd(const int64_t *q, int n, int top, layout l, float *x)
{
    double scale = power(top - 126 - l.bits);
    uint64_t sign = (uint64_t)1 << (l.sum_bits - 1), sum_mask = 2 * sign - 1;
    uint64_t count_mask = ((uint64_t)1 << l.count_bits) - 1;

    for (int i = 0; i < n; ++i) {
        uint64_t all = (uint64_t)q[i];
        int64_t sum = (int64_t)(((all & sum_mask) ^ sign) - sign);
        uint64_t count = (all - (uint64_t)sum) >> l.sum_bits;
        bool plus = (count & count_mask) != 0, minus = (count >> l.count_bits) != 0;

        if (plus && minus)
            x[i] = NAN;
        else if (plus || minus)
            x[i] = plus ? INFINITY : -INFINITY;
        else
            x[i] = (float)((double)sum * scale);
    }
}

/* ---- all of them: blocks [first, last) of n elements */

static void scan_range(const float *x, int64_t n, int64_t first, int64_t last, uint8_t *top,
                       uint8_t *odd)
{
    int64_t whole = (last * BLOCK <= n) ? last : n / BLOCK;
    float tail[BLOCK] = { 0 };

    scan_blocks(x + first * BLOCK, whole - first, top + first, odd + first);
    if (whole == last) return;
    memcpy(tail, x + whole * BLOCK, sizeof(*x) * (size_t)(n - whole * BLOCK));
    scan_blocks(tail, 1, top + whole, odd + whole);
}

/* Blocks from `first` on that are whole and alike in `odd`; at least one where first < last. */
static int64_t alike(const uint8_t *odd, int64_t first, int64_t last, int64_t n)
{
    int64_t b = first + 1;

    if (odd[first] || ((first + 1) * BLOCK > n)) return 1;
    while ((b < last) && !odd[b] && ((b + 1) * BLOCK <= n)) b += 1;
    return b - first;
}

static void encode_range(const float *x, int64_t n, int64_t first, int64_t last, const uint8_t *top,
                         const uint8_t *odd, int n_rank, int64_t *q)
{
    layout l = layout_for(n_rank);

    for (int64_t b = first; b < last;) {
        int64_t at = b * BLOCK, run = alike(odd, b, last, n), left = n - at;
        int length = (left < BLOCK) ? (int)left : BLOCK;
        float in[BLOCK] = { 0 };
        int64_t out[BLOCK];

        if (odd[b]) {
            encode_odd(x + at, length, top[b], l, q + at);
        } else if (length < BLOCK) {
            memcpy(in, x + at, sizeof(*x) * (size_t)length);
            encode_blocks(in, 1, top + b, out);
            memcpy(q + at, out, sizeof(*q) * (size_t)length);
        } else {
            encode_blocks(x + at, run, top + b, q + at);
        }
        b += run;
    }
}

static void decode_range(const int64_t *q, int64_t n, int64_t first, int64_t last,
                         const uint8_t *top, const uint8_t *odd, int n_rank, float *x)
{
    layout l = layout_for(n_rank);

    for (int64_t b = first; b < last;) {
        int64_t at = b * BLOCK, run = alike(odd, b, last, n), left = n - at;
        int length = (left < BLOCK) ? (int)left : BLOCK;
        int64_t in[BLOCK] = { 0 };
        float out[BLOCK];

        if (odd[b]) {
            decode_odd(q + at, length, top[b], l, x + at);
        } else if (length < BLOCK) {
            memcpy(in, q + at, sizeof(*q) * (size_t)length);
            decode_blocks(in, 1, top + b, out);
            memcpy(x + at, out, sizeof(*x) * (size_t)length);
        } else {
            decode_blocks(q + at, run, top + b, x + at);
        }
        b += run;
    }
}

/* ---- by threads: each has whole blocks, so that their number changes nothing */

static int threads_for(int64_t n, int n_thread)
{
    if ((n_thread <= 1) || (n < TEAM_MIN) || omp_in_parallel()) return 1;
    return n_thread;
}

void ct_repro_scan(const float *x, int64_t n, uint8_t *top, uint8_t *odd, int n_thread)
{
    int64_t blocks = ct_repro_blocks(n);
    int team = threads_for(n, n_thread);

#pragma omp parallel for schedule(static, 1) num_threads(team) if (team > 1)
    for (int t = 0; t < team; ++t)
        scan_range(x, n, blocks * t / team, blocks * (t + 1) / team, top, odd);
}

void ct_repro_encode(const float *x, int64_t n, const uint8_t *top, const uint8_t *odd, int n_rank,
                     int64_t *q, int n_thread)
{
    int64_t blocks = ct_repro_blocks(n);
    int team = threads_for(n, n_thread);

#pragma omp parallel for schedule(static, 1) num_threads(team) if (team > 1)
    for (int t = 0; t < team; ++t)
        encode_range(x, n, blocks * t / team, blocks * (t + 1) / team, top, odd, n_rank, q);
}

void ct_repro_decode(const int64_t *q, int64_t n, const uint8_t *top, const uint8_t *odd,
                     int n_rank, float *x, int n_thread)
{
    int64_t blocks = ct_repro_blocks(n);
    int team = threads_for(n, n_thread);

#pragma omp parallel for schedule(static, 1) num_threads(team) if (team > 1)
    for (int t = 0; t < team; ++t)
        decode_range(q, n, blocks * t / team, blocks * (t + 1) / team, top, odd, n_rank, x);
}

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

static size_t exponent_bytes(int64_t count)
{
    return (size_t)(2 * ct_repro_blocks(count));
}

static size_t integer_bytes(int64_t count)
{
    return sizeof(int64_t) * (size_t)count + CT_ALIGN;
}

ct_status ct_repro_count(ct_comm *c, const char *allreduce, int64_t count, int64_t *bytes_p)
{
    int64_t n_exponent = (int64_t)exponent_bytes(count);
    const ct_coll_ops *max = NULL, *sum = NULL;
    ct_coll_size size = { .bytes = n_exponent + (int64_t)integer_bytes(count) }, of_sum;

    CT_TRY(ct_coll_choose(c, n_exponent, CT_U8, "rhd", &max));
    CT_TRY(ct_coll_count(max, c, n_exponent, CT_U8, &size));
    CT_TRY(ct_coll_choose(c, count, CT_I64, allreduce, &sum));
    of_sum = (ct_coll_size){ .shared = sum->shares_memory };
    CT_TRY(ct_coll_count(sum, c, count, CT_I64, &of_sum));
    *bytes_p += size.bytes + size.room + of_sum.bytes + of_sum.room;
    return CT_OK;
}

/* The exponents are few and latency is all: halving and doubling. Never MPI's own, whose starts
 * would have to be in one order with those of the sums. */
static ct_status prepare_max(ct_repro *r, int tag)
{
    const ct_coll_ops *ops = NULL;

    r->top = ct_mem_acquire(exponent_bytes(r->count));
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
    CT_TRY(r->arena->acquire(r->arena->ctx, integer_bytes(r->count),
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
    return ct_coll_cost_s(r->max_ops, r->comm, r->max.count, CT_U8) +
           ct_coll_cost_s(r->sum_ops, r->comm, r->count * (int64_t)sizeof(*r->q), CT_I64);
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
