/* onebit of gradients on a device (codec.h): U, V and the gradient stay there, signs are found
 * there and come down, and what others sent goes up and is added in the CPU's order. With the
 * exchange split a rank's part is completed there, too: its signs come down once more. */
#include <stdlib.h>
#include <string.h>

#include "comm/codec/codec_cost.h"
#include "comm/codec/codec_onebit.h"
#include "comm/codec/codec_types.h"
#include "comm/codec/device_side.h"
#include "framework/base/clock.h"

typedef struct onebit {
    ct_onebit_head h;
    ct_device_side side;
    char *there; /* on the device: the payload of all parts; split: those of its own part from
                    others; then one a rank */
    char *parts, *landed, *all;
} onebit;

/* ---- creation */

static void onebit_destroy(void *obj)
{
    onebit *x = obj;

    if (x == NULL) return;
    ct_side_wait(&x->side);
    ct_onebit_close(&x->h);
    if (x->there != NULL) x->h.setup.dev->mem_release(x->there);
    ct_side_close(&x->side);
    free(x);
}

/* The device writes between heads that are there. */
static ct_status write_heads(const onebit *x)
{
    size_t bytes = ct_sign_at(&x->h.cut, x->h.cut.parts);
    char *heads = ct_mem_acquire(bytes);
    int64_t first = 0, n = 0;
    ct_status status = CT_OK;

    if (heads == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to compress %s", x->h.setup.key);
    for (int j = 0; j < x->h.cut.parts; ++j) {
        ct_sign_part(&x->h.cut, j, &first, &n);
        ct_sign_head(heads + ct_sign_at(&x->h.cut, j), n);
    }
    status = x->h.setup.dev->from_host(x->side.stream, x->parts, heads, bytes);
    if ((status == CT_OK) && x->h.splits) {
        ct_sign_head(heads, x->h.n);
        status = x->h.setup.dev->from_host(x->side.stream, x->all + x->h.stride * (size_t)x->h.me,
                                           heads, CT_SIGN_HEAD);
    }
    ct_mem_release(heads);
    return status;
}

/* Without split all that is one place: this rank's among everyone's. */
static ct_status acquire(onebit *x)
{
    size_t p = (size_t)x->h.setup.comm->size, landed = 0, parts = 0;
    void *there = NULL;

    if (x->h.splits) {
        parts = ct_align_up(ct_sign_at(&x->h.cut, x->h.cut.parts));
        landed = (p - 1) * ct_align_up(ct_sign_bytes(x->h.n));
    }
    CT_TRY(x->h.setup.dev->mem_acquire(parts + landed + p * x->h.stride, &there));
    x->there = there;
    x->landed = x->there + parts;
    x->all = x->landed + landed;
    x->parts = x->h.splits ? x->there : x->all + x->h.stride * (size_t)x->h.me;
    return write_heads(x);
}

static ct_status onebit_prepare(void *obj, const ct_codec_setup *setup)
{
    onebit *x = obj;

    ct_onebit_open(&x->h, setup, &x->side.keep);
    CT_TRY(ct_side_open(&x->side, &x->h.setup));
    CT_TRY(ct_side_plain_coder(&x->side));
    if (setup->comm->size > 1) CT_TRY(ct_onebit_connect(&x->h));
    return acquire(x);
}

/* ---- a step */

/* All parts but this rank's own. */
static ct_status bring_parts(onebit *x)
{
    size_t hole = ct_sign_at(&x->h.cut, x->h.me), behind = ct_sign_at(&x->h.cut, x->h.me + 1);
    size_t end = ct_sign_at(&x->h.cut, x->h.cut.parts);
    char *to = ct_sign_split_payload(x->h.split);

    if (hole > 0) CT_TRY(ct_side_bring(&x->side, 0, to, x->parts, hole));
    return (end > behind) ? ct_side_bring(&x->side, 1, to + behind, x->parts + behind, end - behind)
                          : CT_OK;
}

static ct_status onebit_ready(void *obj, const ct_codec_step *step, bool dense, double limit)
{
    onebit *x = obj;
    ct_device_side *d = &x->side;
    const ct_codec_setup *s = &x->h.setup;
    bool empty = false;
    ct_momentum_correction a;

    x->h.stats.encoded_at[0] = ct_clock_s();
    CT_TRY(ct_side_begin(d, &empty));
    if (dense) return ct_side_dense(d, step, empty, limit);
    a = ct_error_feedback_accum(&d->keep, step, 0, s->n, s->comm->size);
    CT_TRY(d->codec->clip(d->coder, d->stream, s->grad, s->n, limit));
    CT_TRY(d->codec->sign(d->coder, d->stream, &a, x->h.cut.parts, x->h.splits ? x->h.me : -1,
                          x->parts));
    if (s->comm->size == 1) {
        CT_TRY(
            d->codec->sign_add(d->coder, d->stream, x->all, x->h.stride, 1, false, s->grad, s->n));
        return ct_side_bring(d, 0, d->note, d->codec->note(d->coder), sizeof(*d->note));
    }
    if (x->h.splits) return bring_parts(x);
    CT_TRY(ct_side_bring(d, 0, d->note, d->codec->note(d->coder), sizeof(*d->note)));
    return ct_side_bring(d, 1, ct_allgatherv_payload(x->h.gather, x->h.me), x->parts,
                         ct_sign_bytes(s->n));
}

static ct_status onebit_fold(void *obj, const ct_codec_step *step)
{
    onebit *x = obj;

    (void)step;
    return ct_side_arrived(&x->side, &x->h.where);
}

static ct_status onebit_summed(void *obj)
{
    return ct_side_summed(&((onebit *)obj)->side);
}

static ct_status onebit_start(void *obj, const ct_codec_step *step)
{
    onebit *x = obj;

    (void)step;
    x->h.stats.n_step += 1;
    x->h.stats.bytes_dense += x->h.setup.n * (int64_t)sizeof(float);
    x->h.stats.bytes_coded += (int64_t)ct_sign_at(&x->h.cut, x->h.cut.parts);
    x->h.stage = CT_ONEBIT_DOWN;
    return CT_OK;
}

/* Signs are there, and leave. The note of a split comes with its part. */
static ct_status leave(onebit *x)
{
    CT_TRY(ct_side_arrived(&x->side, &x->h.where));
    x->h.left_at = x->h.stats.encoded_at[1] = ct_clock_s();
    x->h.stats.accumulate_s += x->h.left_at - x->h.stats.encoded_at[0];
    x->h.stage = x->h.splits ? CT_ONEBIT_SPLIT : CT_ONEBIT_GATHER;
    if (x->h.splits) {
        ct_sign_split_start(x->h.split);
        return CT_OK;
    }
    CT_TRY(ct_side_check(&x->side));
    return (x->h.gather != NULL) ? ct_allgatherv_start(x->h.gather, ct_sign_bytes(x->h.setup.n))
                                 : CT_OK;
}

/* What came for this rank's part goes up, is added to V there, and the signs of all that come down.
 */
static ct_status complete_part(onebit *x)
{
    ct_device_side *d = &x->side;
    size_t each = ct_align_up(ct_sign_bytes(x->h.n)), bytes = ct_sign_bytes(x->h.n);
    float *v = d->keep.v + x->h.first;
    char *own = x->all + x->h.stride * (size_t)x->h.me;
    int p = x->h.setup.comm->size;

    for (int shift = 1; (shift < p) && (x->h.n > 0); ++shift) {
        void *from = ct_sign_split_landed(x->h.split, shift);

        CT_TRY(ct_sign_check(from, bytes, x->h.n));
        CT_TRY(ct_side_lift(d, from, x->landed + each * (size_t)(shift - 1), bytes));
    }
    CT_TRY(d->codec->sign_add(d->coder, d->stream, x->landed, each, p - 1, true, v, x->h.n));
    CT_TRY(d->codec->sign_take(d->coder, d->stream, v, x->h.n, own));
    CT_TRY(ct_side_bring(d, 0, d->note, d->codec->note(d->coder), sizeof(*d->note)));
    x->h.stage = CT_ONEBIT_PART_DOWN;
    return ct_side_bring(d, 1, ct_allgatherv_payload(x->h.gather, x->h.me), own, bytes);
}

static ct_status progress_part(onebit *x)
{
    if (x->h.stage == CT_ONEBIT_SPLIT) {
        CT_TRY(ct_sign_split_progress(x->h.split, NULL, &x->h.stats.bytes_sent,
                                      &x->h.stats.unpack_s, &x->h.where));
        CT_TRY(complete_part(x));
    }
    CT_TRY(ct_side_arrived(&x->side, &x->h.where));
    CT_TRY(ct_side_check(&x->side));
    x->h.stage = CT_ONEBIT_GATHER;
    return ct_allgatherv_start(x->h.gather, ct_sign_bytes(x->h.n));
}

static ct_status deliver(onebit *x)
{
    ct_device_side *d = &x->side;
    const ct_codec_setup *s = &x->h.setup;

    for (int j = 0; j < s->comm->size; ++j) {
        void *from = ct_allgatherv_payload(x->h.gather, j);
        size_t bytes = ct_allgatherv_bytes(x->h.gather, j);
        int64_t first = 0, n = 0;

        if (j == x->h.me) continue;
        ct_sign_part(&x->h.cut, x->h.splits ? j : 0, &first, &n);
        CT_TRY(ct_sign_check(from, bytes, n));
        CT_TRY(ct_side_lift(d, from, x->all + x->h.stride * (size_t)j, bytes));
    }
    return x->h.splits ? d->codec->sign_put(d->coder, d->stream, x->all, x->h.stride, s->comm->size,
                                            s->grad, s->n)
                       : d->codec->sign_add(d->coder, d->stream, x->all, x->h.stride, s->comm->size,
                                            false, s->grad, s->n);
}

static ct_status onebit_progress(void *obj)
{
    onebit *x = obj;
    double start = 0;

    if (x->h.stage == CT_ONEBIT_DOWN) CT_TRY(leave(x));
    if (x->h.stage < CT_ONEBIT_GATHER) CT_TRY(progress_part(x));
    if (x->h.gather != NULL)
        CT_TRY(ct_allgatherv_progress(x->h.gather, &x->h.stats.bytes_sent, &x->h.where));
    start = ct_clock_s();
    if (x->h.gather != NULL) CT_TRY(deliver(x));
    CT_TRY(ct_side_hand_over(&x->side));
    ct_onebit_delivered(&x->h, start);
    return CT_OK;
}

/* ---- looks */

static ct_status onebit_restored(void *obj)
{
    return ct_error_feedback_restored(&((onebit *)obj)->side.keep);
}

static double onebit_left(void *obj)
{
    return ct_side_left(&((onebit *)obj)->side);
}

static void onebit_seconds(const ct_codec_costs *m, const ct_codec_config *c, int64_t n,
                           int64_t rows, ct_codec_seconds *out)
{
    double signs = (double)ct_sign_bytes(n), others = m->n_rank - 1;

    ct_onebit_seconds(m, c, n, rows, out);
    if (strcmp(out->exchange, "split") == 0) others *= 2.0 / m->n_rank;
    out->wire_s += ct_codec_bus_s(m, signs, others * signs);
}

const ct_codec_ops ct_codec_onebit_device = {
    .name = "onebit",
    .keeps = true,
    .absorbs = true,
    .chains = true,
    .size = sizeof(onebit),
    .prepare = onebit_prepare,
    .destroy = onebit_destroy,
    .fold = onebit_fold,
    .ready = onebit_ready,
    .summed = onebit_summed,
    .start = onebit_start,
    .progress = onebit_progress,
    .pending = ct_onebit_pending,
    .where = ct_onebit_where,
    .exchange = ct_onebit_exchange,
    .state = ct_onebit_state,
    .restored = onebit_restored,
    .stats = ct_onebit_stats,
    .left = onebit_left,
    .payload_bytes = ct_onebit_bytes,
    .seconds = onebit_seconds,
};
