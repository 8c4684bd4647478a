/* onebit of gradients on a device (coded.h): U, V and the gradient stay there, signs are found
 * there and come down, and what others sent goes up and is added in the CPU's order. With the
 * exchange split a rank's part is completed there, too: its signs come down once more. */
#include <stdlib.h>
#include <string.h>

#include "comm/coded_cost.h"
#include "comm/coded_onebit.h"
#include "comm/coded_types.h"
#include "comm/device_side.h"
#include "comm/gather.h"
#include "comm/sign_split.h"
#include "framework/base/clock.h"

typedef enum { STAGE_DOWN, STAGE_SPLIT, STAGE_PART_DOWN, STAGE_GATHER } onebit_stage;

typedef struct onebit {
    ct_coded_setup setup;
    ct_device_side side;
    bool splits;
    ct_sign_cut cut;
    const int *order;
    int me;           /* this rank's place among them                          */
    int64_t first, n; /* split: its part; else all                             */
    size_t stride;    /* of a payload that everyone gets                       */
    char *there;      /* on the device: the payload of all parts; split: those
                         of its own part from others; then one a rank          */
    char *parts, *landed, *all;
    ct_sign_split *split;
    ct_gather *gather;
    onebit_stage stage;
    ct_coll_where where;
    ct_coded_stats stats;
    double left_at;
} onebit;

/* ---- creation */

static void onebit_destroy(void *obj)
{
    onebit *x = obj;

    if (x == NULL) return;
    ct_side_wait(&x->side);
    ct_gather_destroy(x->gather);
    ct_sign_split_destroy(x->split);
    if (x->there != NULL) x->setup.dev->mem_release(x->there);
    ct_side_close(&x->side);
    free(x);
}

/* The device writes between heads that are there. */
static ct_status write_heads(const onebit *x)
{
    size_t bytes = ct_sign_at(&x->cut, x->cut.parts);
    char *heads = ct_mem_acquire(bytes);
    int64_t first = 0, n = 0;
    ct_status status = CT_OK;

    if (heads == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to compress %s", x->setup.key);
    for (int j = 0; j < x->cut.parts; ++j) {
        ct_sign_part(&x->cut, j, &first, &n);
        ct_sign_head(heads + ct_sign_at(&x->cut, j), n);
    }
    status = x->setup.dev->from_host(x->side.stream, x->parts, heads, bytes);
    if ((status == CT_OK) && x->splits) {
        ct_sign_head(heads, x->n);
        status = x->setup.dev->from_host(x->side.stream, x->all + x->stride * (size_t)x->me, heads,
                                         CT_SIGN_HEAD);
    }
    ct_mem_release(heads);
    return status;
}

/* Without split all that is one place: this rank's among everyone's. */
static ct_status acquire(onebit *x)
{
    size_t p = (size_t)x->setup.comm->size, landed = 0, parts = 0;
    void *there = NULL;

    if (x->splits) {
        parts = ct_align_up(ct_sign_at(&x->cut, x->cut.parts));
        landed = (p - 1) * ct_align_up(ct_sign_bytes(x->n));
    }
    CT_TRY(x->setup.dev->mem_acquire(parts + landed + p * x->stride, &there));
    x->there = there;
    x->landed = x->there + parts;
    x->all = x->landed + landed;
    x->parts = x->splits ? x->there : x->all + x->stride * (size_t)x->me;
    return write_heads(x);
}

static ct_status prepare_split(onebit *x)
{
    const ct_coded_setup *s = &x->setup;
    int64_t first = 0, n = 0, most = 0;

    x->cut.parts = s->comm->size;
    for (int j = 0; j < s->comm->size; ++j) {
        ct_sign_part(&x->cut, j, &first, &n);
        most = (n > most) ? n : most;
    }
    ct_sign_part(&x->cut, x->me, &x->first, &x->n);
    x->stride = ct_align_up(ct_sign_bytes(most));
    CT_TRY(ct_sign_split_create(s->comm, &x->cut, x->order, x->me, s->tag, &x->split));
    return ct_sign_split_keep_on(x->split, s->dev);
}

static ct_status prepare(onebit *x)
{
    const ct_coded_setup *s = &x->setup;
    int p = s->comm->size;

    x->cut = (ct_sign_cut){ .n = s->n, .parts = 1 };
    x->n = s->n;
    x->stride = ct_align_up(ct_sign_bytes(s->n));
    x->order = s->comm->topo->order;
    while (x->order[x->me] != s->comm->rank) x->me += 1;
    CT_TRY(ct_side_open(&x->side, s));
    CT_TRY(ct_side_plain_coder(&x->side));
    if (p > 1) {
        CT_TRY(ct_onebit_choose(s, &x->splits));
        if (x->splits) CT_TRY(prepare_split(x));
        CT_TRY(ct_gather_create_among(s->comm, x->order, p, x->me, x->stride,
                                      s->tag + (x->splits ? 1 : 0), &x->gather));
        CT_TRY(ct_gather_keep_on(x->gather, s->dev));
    }
    return acquire(x);
}

static ct_status onebit_create(const ct_coded_setup *setup, void **obj_p)
{
    onebit *x = calloc(1, sizeof(*x));
    ct_status status = CT_OK;

    if (x == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to compress %s", setup->key);
    x->setup = *setup;
    x->stage = STAGE_DOWN;
    atomic_store(&x->where.rank, -1);
    status = prepare(x);
    if (status != CT_OK) {
        onebit_destroy(x);
        return status;
    }
    *obj_p = x;
    return CT_OK;
}

/* ---- a step */

/* All parts but this rank's own. */
static ct_status bring_parts(onebit *x)
{
    size_t hole = ct_sign_at(&x->cut, x->me), behind = ct_sign_at(&x->cut, x->me + 1);
    size_t end = ct_sign_at(&x->cut, x->cut.parts);
    char *to = ct_sign_split_payload(x->split);

    if (hole > 0) CT_TRY(ct_side_bring(&x->side, 0, to, x->parts, hole));
    return (end > behind) ? ct_side_bring(&x->side, 1, to + behind, x->parts + behind, end - behind)
                          : CT_OK;
}

static ct_status onebit_ready(void *obj, const ct_coded_step *step, bool dense, double limit)
{
    onebit *x = obj;
    ct_device_side *d = &x->side;
    const ct_coded_setup *s = &x->setup;
    bool empty = false;
    ct_accum a;

    x->stats.encoded_at[0] = ct_clock_s();
    CT_TRY(ct_side_begin(d, &empty));
    if (dense) return ct_side_dense(d, step, empty, limit);
    a = ct_keep_accum(&d->keep, step, 0, s->n, s->comm->size);
    CT_TRY(d->codec->clip(d->coder, d->stream, s->grad, s->n, limit));
    CT_TRY(d->codec->sign(d->coder, d->stream, &a, x->cut.parts, x->splits ? x->me : -1, x->parts));
    if (s->comm->size == 1) {
        CT_TRY(d->codec->sign_add(d->coder, d->stream, x->all, x->stride, 1, false, s->grad, s->n));
        return ct_side_bring(d, 0, d->note, d->codec->note(d->coder), sizeof(*d->note));
    }
    if (x->splits) return bring_parts(x);
    CT_TRY(ct_side_bring(d, 0, d->note, d->codec->note(d->coder), sizeof(*d->note)));
    return ct_side_bring(d, 1, ct_gather_payload(x->gather, x->me), x->parts, ct_sign_bytes(s->n));
}

static ct_status onebit_fold(void *obj, const ct_coded_step *step)
{
    onebit *x = obj;

    (void)step;
    return ct_side_arrived(&x->side, &x->where);
}

static ct_status onebit_summed(void *obj)
{
    return ct_side_summed(&((onebit *)obj)->side);
}

static ct_status onebit_start(void *obj, const ct_coded_step *step)
{
    onebit *x = obj;

    (void)step;
    x->stats.n_step += 1;
    x->stats.bytes_dense += x->setup.n * (int64_t)sizeof(float);
    x->stats.bytes_coded += (int64_t)ct_sign_at(&x->cut, x->cut.parts);
    x->stage = STAGE_DOWN;
    return CT_OK;
}

/* Signs are there, and leave. The note of a split comes with its part. */
static ct_status leave(onebit *x)
{
    CT_TRY(ct_side_arrived(&x->side, &x->where));
    x->left_at = x->stats.encoded_at[1] = ct_clock_s();
    x->stats.accumulate_s += x->left_at - x->stats.encoded_at[0];
    x->stage = x->splits ? STAGE_SPLIT : STAGE_GATHER;
    if (x->splits) {
        ct_sign_split_start(x->split);
        return CT_OK;
    }
    CT_TRY(ct_side_check(&x->side));
    return (x->gather != NULL) ? ct_gather_start(x->gather, ct_sign_bytes(x->setup.n)) : CT_OK;
}

/* What came for this rank's part goes up, is added to V there, and the signs of all that come down.
 */
static ct_status complete_part(onebit *x)
{
    ct_device_side *d = &x->side;
    size_t each = ct_align_up(ct_sign_bytes(x->n)), bytes = ct_sign_bytes(x->n);
    float *v = d->keep.v + x->first;
    char *own = x->all + x->stride * (size_t)x->me;
    int p = x->setup.comm->size;

    for (int shift = 1; (shift < p) && (x->n > 0); ++shift) {
        void *from = ct_sign_split_landed(x->split, shift);

        CT_TRY(ct_sign_check(from, bytes, x->n));
        CT_TRY(ct_side_lift(d, from, x->landed + each * (size_t)(shift - 1), bytes));
    }
    CT_TRY(d->codec->sign_add(d->coder, d->stream, x->landed, each, p - 1, true, v, x->n));
    CT_TRY(d->codec->sign_take(d->coder, d->stream, v, x->n, own));
    CT_TRY(ct_side_bring(d, 0, d->note, d->codec->note(d->coder), sizeof(*d->note)));
    x->stage = STAGE_PART_DOWN;
    return ct_side_bring(d, 1, ct_gather_payload(x->gather, x->me), own, bytes);
}

static ct_status progress_part(onebit *x)
{
    if (x->stage == STAGE_SPLIT) {
        CT_TRY(ct_sign_split_progress(x->split, NULL, &x->stats.bytes_sent, &x->stats.unpack_s,
                                      &x->where));
        CT_TRY(complete_part(x));
    }
    CT_TRY(ct_side_arrived(&x->side, &x->where));
    CT_TRY(ct_side_check(&x->side));
    x->stage = STAGE_GATHER;
    return ct_gather_start(x->gather, ct_sign_bytes(x->n));
}

static ct_status deliver(onebit *x)
{
    ct_device_side *d = &x->side;
    const ct_coded_setup *s = &x->setup;

    for (int j = 0; j < s->comm->size; ++j) {
        void *from = ct_gather_payload(x->gather, j);
        size_t bytes = ct_gather_bytes(x->gather, j);
        int64_t first = 0, n = 0;

        if (j == x->me) continue;
        ct_sign_part(&x->cut, x->splits ? j : 0, &first, &n);
        CT_TRY(ct_sign_check(from, bytes, n));
        CT_TRY(ct_side_lift(d, from, x->all + x->stride * (size_t)j, bytes));
    }
    return x->splits ? d->codec->sign_put(d->coder, d->stream, x->all, x->stride, s->comm->size,
                                          s->grad, s->n)
                     : d->codec->sign_add(d->coder, d->stream, x->all, x->stride, s->comm->size,
                                          false, s->grad, s->n);
}

static ct_status onebit_progress(void *obj)
{
    onebit *x = obj;
    double start = 0;

    if (x->stage == STAGE_DOWN) CT_TRY(leave(x));
    if (x->stage < STAGE_GATHER) CT_TRY(progress_part(x));
    if (x->gather != NULL) CT_TRY(ct_gather_progress(x->gather, &x->stats.bytes_sent, &x->where));
    start = ct_clock_s();
    if (x->gather != NULL) CT_TRY(deliver(x));
    CT_TRY(ct_side_hand_over(&x->side));
    x->stats.decoded_at[0] = start;
    x->stats.decoded_at[1] = ct_clock_s();
    x->stats.exchange_s += start - x->left_at;
    x->stats.unpack_s += x->stats.decoded_at[1] - start;
    return CT_OK;
}

/* ---- looks */

static int onebit_pending(void *obj, MPI_Request **out, int max)
{
    onebit *x = obj;

    if ((x->stage == STAGE_GATHER) && (x->gather != NULL))
        return ct_gather_pending(x->gather, out, max);
    return (x->stage == STAGE_SPLIT) ? ct_sign_split_pending(x->split, out, max) : 0;
}

static ct_coll_where *onebit_where(void *obj)
{
    return &((onebit *)obj)->where;
}

static const char *onebit_exchange(const void *obj)
{
    const onebit *x = obj;

    if (x->gather == NULL) return "one rank";
    return x->splits ? "split" : "allgather";
}

static bool onebit_state(void *obj, int i, ct_coded_state *out)
{
    return ct_keep_state(&((onebit *)obj)->side.keep, i, out);
}

static ct_status onebit_restored(void *obj)
{
    return ct_keep_restored(&((onebit *)obj)->side.keep);
}

static void onebit_stats(const void *obj, ct_coded_stats *out)
{
    *out = ((const onebit *)obj)->stats;
}

static double onebit_left(void *obj)
{
    return ct_side_left(&((onebit *)obj)->side);
}

static void onebit_seconds(const ct_coded_costs *m, const ct_codec_config *c, int64_t n,
                           int64_t rows, ct_coded_seconds *out)
{
    double signs = (double)ct_sign_bytes(n), others = m->n_rank - 1;

    ct_onebit_seconds(m, c, n, rows, out);
    if (strcmp(out->exchange, "split") == 0) others *= 2.0 / m->n_rank;
    out->wire_s += ct_coded_bus_s(m, signs, others * signs);
}

const ct_coded_ops ct_coded_onebit_device = {
    .name = "onebit",
    .keeps = true,
    .absorbs = true,
    .chains = true,
    .create = onebit_create,
    .destroy = onebit_destroy,
    .fold = onebit_fold,
    .ready = onebit_ready,
    .summed = onebit_summed,
    .start = onebit_start,
    .progress = onebit_progress,
    .pending = onebit_pending,
    .where = onebit_where,
    .exchange = onebit_exchange,
    .state = onebit_state,
    .restored = onebit_restored,
    .stats = onebit_stats,
    .left = onebit_left,
    .payload_bytes = ct_onebit_bytes,
    .seconds = onebit_seconds,
};
