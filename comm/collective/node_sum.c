#include "comm/collective/node_sum.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/simd.h"
#include "comm/core/reduce.h"
#include "comm/collective/schedule.h"

enum {
    BLOCK = 1024,    /* elements: 4 KB of sums stay in the first cache                */
    LINE = 16,       /* elements of a cache line                                      */
    TEAM_MIN = 65536 /* of every buffer: below, waiting for a team can cost more than
                      * it saves                                                             */
};

CT_SIMD_CLONES static void sum_2(float *restrict a, float *restrict b, int64_t n)
{
    for (int64_t i = 0; i < n; ++i) {
        float sum = a[i] + b[i];

        a[i] = sum;
        b[i] = sum;
    }
}

CT_SIMD_CLONES static void sum_3(float *restrict a, float *restrict b, float *restrict c, int64_t n)
{
    for (int64_t i = 0; i < n; ++i) {
        float sum = a[i] + b[i] + c[i];

        a[i] = sum;
        b[i] = sum;
        c[i] = sum;
    }
}

CT_SIMD_CLONES static void sum_4(float *restrict a, float *restrict b, float *restrict c,
                                 float *restrict d, int64_t n)
{
    for (int64_t i = 0; i < n; ++i) {
        float sum = a[i] + b[i] + c[i] + d[i];

        a[i] = sum;
        b[i] = sum;
        c[i] = sum;
        d[i] = sum;
    }
}

/* sum[i] += a[i] + … + d[i], one after the other */
CT_SIMD_CLONES static void add_4(const float *a, const float *b, const float *c, const float *d,
                                 float *restrict sum, int64_t n)
{
    for (int64_t i = 0; i < n; ++i) sum[i] = sum[i] + a[i] + b[i] + c[i] + d[i];
}

CT_SIMD_CLONES static void add_1(const float *a, float *restrict sum, int64_t n)
{
    for (int64_t i = 0; i < n; ++i) sum[i] += a[i];
}

static void sum_many(float *const *x, int n_x, int64_t first, int64_t n)
{
    float sum[BLOCK];
    int k = 1;

    memcpy(sum, x[0] + first, sizeof(*sum) * (size_t)n);
    for (; k + 4 <= n_x; k += 4)
        add_4(x[k] + first, x[k + 1] + first, x[k + 2] + first, x[k + 3] + first, sum, n);
    for (; k < n_x; ++k) add_1(x[k] + first, sum, n);
    for (int j = 0; j < n_x; ++j) memcpy(x[j] + first, sum, sizeof(*sum) * (size_t)n);
}

static void sum_range(float *const *x, int n_x, int64_t i, int64_t n)
{
    switch (n_x) {
    case 1:
        return;
    case 2:
        sum_2(x[0] + i, x[1] + i, n);
        return;
    case 3:
        sum_3(x[0] + i, x[1] + i, x[2] + i, n);
        return;
    case 4:
        sum_4(x[0] + i, x[1] + i, x[2] + i, x[3] + i, n);
        return;
    default:
        for (int64_t end = i + n; i < end; i += BLOCK)
            sum_many(x, n_x, i, (end - i < BLOCK) ? end - i : BLOCK);
    }
}

void ct_sum_shared(float *const *x, int n_x, int64_t n, int n_thread)
{
    if ((n < TEAM_MIN) || (n_thread <= 1) || omp_in_parallel()) {
        sum_range(x, n_x, 0, n);
        return;
    }
#pragma omp parallel num_threads(n_thread)
    {
        int64_t t = omp_get_thread_num(), nt = omp_get_num_threads();
        int64_t first = n * t / nt / LINE * LINE;
        int64_t last = (t + 1 == nt) ? n : n * (t + 1) / nt / LINE * LINE;

        sum_range(x, n_x, first, last - first);
    }
}

enum {
    CLAIMED_BYTES = 1 << 20, /* at least, where nobody waits for a core                   */
    PART_BYTES = 256 << 10   /* of a claimed part, about: few claims, no long last part, and
                                the pages of few buffers at a time                        */
};

struct ct_node_sum {
    ct_comm *comm;
    ct_node *node;
    ct_sleeper *sleeper;
    char *buf; /* this rank's */
    int64_t count;
    ct_dtype dtype;
    ct_coll_kind kind;
    int64_t *first, *length; /* [node_size] halves: the ranks' parts                */
    size_t size;             /* of an element                                     */
    bool claims;
    bool arrived; /* everyone has started this use                     */
    uint64_t use; /* how many were finished                            */
    int n_part;
    int slot, claim_slot;      /* signals; -1: none                                 */
    ct_signals **signals;      /* [node_size]                                       */
    _Atomic uint64_t *claimed; /* parts ever claimed                            */
    char **home;               /* [node_size] their buffers                        */
    const void **src;          /* [node_size] scratch                               */
    void **dst;                /* [node_size] scratch                               */
};

/* ---- setting up */

void ct_node_sum_destroy(ct_node_sum *s)
{
    if (s == NULL) return;
    if (s->slot >= 0) ct_node_give_slot(s->node, s->slot);
    if (s->claim_slot >= 0) ct_node_give_slot(s->node, s->claim_slot);
    free(s->first);
    free(s->length);
    free(s->signals);
    free(s->home);
    free(s->src);
    free(s->dst);
    free(s);
}

static ct_status take_slots(ct_node_sum *s)
{
    CT_TRY(ct_node_take_slot(s->node, &s->slot));
    for (int i = 0; i < s->comm->node_size; ++i)
        s->signals[i] = ct_node_signals(s->node, s->slot, i);
    if (!s->claims) return CT_OK;
    CT_TRY(ct_node_take_slot(s->node, &s->claim_slot));
    s->claimed = &ct_node_signals(s->node, s->claim_slot, 0)->in;
    return CT_OK;
}

static ct_status find_parts(ct_node_sum *s)
{
    ct_comm *c = s->comm;

    s->first = calloc((size_t)c->node_size, sizeof(*s->first));
    s->length = calloc((size_t)c->node_size, sizeof(*s->length));
    if ((s->first == NULL) || (s->length == NULL))
        return CT_FAIL(CT_ERR_NOMEM, "no memory for %d ranks of a node", c->node_size);
    for (int i = 0; i < c->node_size; ++i)
        CT_TRY(ct_coll_part(c, s->count, c->node_member[i], &s->first[i], &s->length[i]));
    return CT_OK;
}

static ct_status set_up(ct_node_sum *s)
{
    ct_comm *c = s->comm;
    int64_t bytes = s->count * (int64_t)s->size;
    int64_t team = (c->n_core > c->node_size) ? c->n_core / c->node_size : 1;
    int64_t part = PART_BYTES * team; /* not by n_thread, which may differ between ranks */
    bool found = false;

    s->signals = calloc((size_t)c->node_size, sizeof(*s->signals));
    s->home = calloc((size_t)c->node_size, sizeof(*s->home));
    s->src = calloc((size_t)c->node_size, sizeof(*s->src));
    s->dst = calloc((size_t)c->node_size, sizeof(*s->dst));
    if ((s->signals == NULL) || (s->home == NULL) || (s->src == NULL) || (s->dst == NULL))
        return CT_FAIL(CT_ERR_NOMEM, "no memory for %d ranks of a node", c->node_size);
    if (s->kind != CT_COLL_ALLREDUCE) CT_TRY(find_parts(s));
    s->claims = c->oversubscribed || (bytes >= CLAIMED_BYTES);
    s->n_part = c->node_size;
    if (s->claims && (bytes / part > s->n_part)) s->n_part = (int)(bytes / part);
    CT_TRY(ct_node_find_all(s->node, s->buf, (size_t)s->count * s->size, s->home, &found));
    if (!found) return CT_UNSUPPORTED;
    CT_TRY(take_slots(s));
    return ct_node_prepare_futex(s->node);
}

ct_status ct_node_sum_create(ct_coll_req *r, ct_coll_kind kind, ct_node_sum **sum_p)
{
    ct_comm *c = r->comm;
    ct_node_sum *s = NULL;
    ct_status status = CT_OK;

    if (!c->node_shares || (c->node_size == 1) || (c->topo->n_node > 1) || (r->count == 0))
        return CT_UNSUPPORTED;
    s = calloc(1, sizeof(*s));
    if (s == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a collective");
    s->comm = c;
    s->node = c->node_memory;
    s->sleeper = ct_node_sleeper(s->node);
    s->buf = r->buf;
    s->count = r->count;
    s->dtype = r->dtype;
    s->kind = kind;
    s->size = ct_dtype_size(r->dtype);
    s->slot = s->claim_slot = -1;
    status = set_up(s);
    if (status != CT_OK) {
        ct_node_sum_destroy(s);
        return status;
    }
    *sum_p = s;
    return CT_OK;
}

int64_t ct_node_sum_bytes(const ct_node_sum *s)
{
    int64_t p = s->comm->node_size, bytes = s->count * (int64_t)s->size;

    return ((s->kind == CT_COLL_ALLREDUCE) ? 2 : 1) * (p - 1) * (bytes / p);
}

/* ---- a use */

ct_status ct_node_sum_start(ct_node_sum *s)
{
    s->arrived = false;
    ct_node_signal(&s->signals[s->comm->node_rank]->in, s->use + 1);
    ct_futex_count(s->sleeper, 1);
    return CT_OK;
}

/* Have all ranks come? The last one wakes who sleeps and has something to do: the owners of parts,
 * or as many as there are cores. */
static bool all_came(ct_node_sum *s, int *late)
{
    ct_comm *c = s->comm;

    for (int i = 0; i < c->node_size; ++i) {
        if (ct_node_reached(&s->signals[i]->in, s->use + 1)) continue;
        *late = c->node_member[i];
        return false;
    }
    s->arrived = true;
    ct_futex_wake(s->sleeper, s->claims ? c->n_core - 1 : c->node_size);
    return true;
}

/* [first, first + n) lies in the part of `owner`: the sum goes there, or from there to all. */
static void half_range(ct_node_sum *s, int owner, int64_t first, int64_t n)
{
    int p = s->comm->node_size;
    char *own = s->home[owner] + (size_t)first * s->size;

    if (s->kind == CT_COLL_ALLGATHER) {
        for (int i = 0; i < p; ++i) {
            if (i != owner) memcpy(s->home[i] + (size_t)first * s->size, own, (size_t)n * s->size);
        }
        return;
    }
    for (int i = 0; i < p; ++i) s->src[i] = s->home[i] + (size_t)first * s->size;
    s->dst[0] = own;
    ct_reduce_many(s->dtype, n, s->src, p, s->dst, 1, s->comm->n_thread);
}

static void half_part(ct_node_sum *s, int64_t first, int64_t n)
{
    for (int i = 0; i < s->comm->node_size; ++i) {
        int64_t a = (first > s->first[i]) ? first : s->first[i];
        int64_t part_end = s->first[i] + s->length[i];
        int64_t b = (first + n < part_end) ? first + n : part_end;

        if (a < b) half_range(s, i, a, b - a);
    }
}

static void sum_part(ct_node_sum *s, int part)
{
    int64_t first = ct_part(s->count, s->n_part, part);
    int64_t n = ct_part(s->count, s->n_part, part + 1) - first;

    if (s->kind != CT_COLL_ALLREDUCE) {
        if (s->claims)
            half_part(s, first, n);
        else
            half_range(s, part, s->first[part], s->length[part]);
        return;
    }
    for (int i = 0; i < s->comm->node_size; ++i) {
        s->dst[i] = s->home[i] + (size_t)first * s->size;
        s->src[i] = s->dst[i];
    }
    if (s->dtype == CT_F32)
        ct_sum_shared((float *const *)s->dst, s->comm->node_size, n, s->comm->n_thread);
    else
        ct_reduce_many(s->dtype, n, s->src, s->comm->node_size, s->dst, s->comm->node_size,
                       s->comm->n_thread);
}

/* The next part that nobody has; -1: all are taken. From the end of the buffer to its start: what
 * was written last is still in caches, and of a buffer a little larger than they are going upwards
 * would always meet what was just thrown out. What a part holds was made visible by the arrival of
 * its ranks, so the claim itself orders nothing. */
static int claim(ct_node_sum *s)
{
    uint64_t end = (s->use + 1) * (uint64_t)s->n_part;
    uint64_t at = atomic_load_explicit(s->claimed, memory_order_relaxed);

    while (at < end) {
        if (atomic_compare_exchange_weak_explicit(s->claimed, &at, at + 1, memory_order_relaxed,
                                                  memory_order_relaxed))
            return s->n_part - 1 - (int)(at % (uint64_t)s->n_part);
    }
    return -1;
}

/* Parts that are done, of all uses: each rank counts its own. */
static bool all_done(ct_node_sum *s, int *late)
{
    uint64_t sum = 0;

    for (int i = 0; i < s->comm->node_size; ++i) {
        uint64_t parts = atomic_load_explicit(&s->signals[i]->done, memory_order_acquire);

        sum += parts;
        if (!s->claims && (parts <= s->use)) *late = s->comm->node_member[i];
    }
    return sum >= (s->use + 1) * (uint64_t)s->n_part;
}

/* How many this rank made now. */
static int make_parts(ct_node_sum *s, bool brief)
{
    _Atomic uint64_t *done = &s->signals[s->comm->node_rank]->done;
    uint64_t n = atomic_load_explicit(done, memory_order_relaxed);
    int made = 0;

    if (!s->claims) {
        if (n > s->use) return 0;
        sum_part(s, s->comm->node_rank);
        ct_node_signal(done, n + 1);
        return 1;
    }
    for (int part; (!brief || (made == 0)) && ((part = claim(s)) >= 0); made += 1) {
        sum_part(s, part);
        ct_node_signal(done, ++n);
    }
    return made;
}

static void note(ct_coll_where *where, bool done, int late, int made)
{
    if (where == NULL) return;
    atomic_store_explicit(&where->step, done, memory_order_relaxed);
    atomic_store_explicit(&where->n_step, 1, memory_order_relaxed);
    atomic_store_explicit(&where->rank, late, memory_order_relaxed);
    if (made > 0) (void)atomic_fetch_add_explicit(&where->n_moved, 1, memory_order_relaxed);
}

ct_status ct_node_sum_progress(ct_node_sum *s, ct_coll_where *where)
{
    int late = -1, made = 0;
    bool done = false;

    if (s->arrived || all_came(s, &late)) {
        made = make_parts(s, (where != NULL) && where->brief);
        done = all_done(s, &late);
    }
    note(where, done, late, made);
    if (!done) return CT_INPROGRESS;
    ct_futex_wake(s->sleeper, s->comm->node_size);
    s->use += 1;
    ct_futex_count(s->sleeper, -1);
    return CT_OK;
}
