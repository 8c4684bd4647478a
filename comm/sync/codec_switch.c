/* The pipe changes the ways of its gradients between two steps, and loses nothing.
 *
 * V of a range that stays compressed goes over with its rate, as does U. Where a range keeps
 * nothing from now on its V is 0, since the steps before sent all; its U, summed over the ranks, is
 * what the solver's momentum would have become, and goes there. The other way round each rank
 * starts with an equal share of the solver's momentum.
 *
 * While codecs are only tried, V stays aside, and the momentum is the solver's: codecs begin with
 * shares of it, and what becomes of those is forgotten. What a plain codec leaves behind in a trial
 * goes aside, too: the rest of it has moved weights.
 *
 * Where gradients are on a device, so are V, U and the momentum. They change hands on the host,
 * which has copies of them for that: it happens a few times in a run, and codecs show V and U there
 * anyway.
 */
#include <stdlib.h>
#include <string.h>

#include "comm/collective/blocking.h"
#include "comm/sync/grad_pipe_impl.h"
#include "comm/codec/select.h"

static float *find_state(const ct_grad_pipe *gp, int i, const char *name)
{
    const ct_bucket *b = &gp->bucket[gp->bucket_of[i]];
    ct_codec_state s;

    if ((b->coded == NULL) || (b->ops->state == NULL)) return NULL;
    for (int k = 0; b->ops->state(b->coded, k, &s); ++k) {
        if (strcmp(s.name, name) == 0) return s.data;
    }
    return NULL;
}

static ct_status copy_state(const ct_grad_pipe *gp, int i, const char *name, float **copy_p)
{
    size_t bytes = sizeof(float) * (size_t)gp->range[i].count;
    const float *data = find_state(gp, i, name);

    if (data == NULL) return CT_OK;
    *copy_p = ct_mem_acquire(bytes);
    if (*copy_p == NULL)
        return CT_FAIL(CT_ERR_NOMEM, "no memory for what is not sent yet of %s", gp->range[i].key);
    memcpy(*copy_p, data, bytes);
    return CT_OK;
}

/* Each of many dense steps may ask (leaving): a device's V stays where it is. */
bool ct_grad_pipe_holds(const ct_grad_pipe *gp, int i)
{
    const ct_bucket *b = &gp->bucket[gp->bucket_of[i]];
    const float *v = NULL;

    if ((gp->aside == NULL) && (gp->config.dev != NULL))
        return (b->coded != NULL) && (b->ops->left != NULL) && (b->ops->left(b->coded) != 0);
    v = (gp->aside != NULL) ? gp->aside[i].v : find_state(gp, i, CT_CODEC_RESIDUAL);
    return (v != NULL) && ct_momentum_correction_holds(v, gp->range[i].count);
}

ct_status ct_grad_pipe_keep_tried(ct_grad_pipe *gp, int i, bool *kept_p)
{
    ct_grad_kept *c = &gp->aside[i];
    const float *v = (gp->range[i].count > 0) ? find_state(gp, i, CT_CODEC_RESIDUAL) : NULL;

    *kept_p =
        (v != NULL) && !gp->bucket[gp->bucket_of[i]].absorbed && ((c->v == NULL) || !c->absorbed);
    if (!*kept_p) return CT_OK;
    c->absorbed = false;
    if (c->v == NULL) return copy_state(gp, i, CT_CODEC_RESIDUAL, &c->v);
    for (int64_t k = 0; k < gp->range[i].count; ++k) c->v[k] += v[k];
    return CT_OK;
}

/* gp->range has the new codecs, the buckets the old ones. */
static bool will_absorb(const ct_grad_pipe *gp, int i)
{
    const ct_codec_config *c = NULL;
    const ct_codec_ops *ops = ct_grad_range_codec(&gp->config, &gp->range[i], &c);

    return ct_codec_corrects(ops, c);
}

/* ---- the solver's momentum of a range */

static ct_status show_momentum(const ct_grad_pipe *gp, int i, float *to)
{
    return ct_storage_get(gp->history, gp->range[i].offset, gp->range[i].count, to);
}

static ct_status take_momentum(const ct_grad_pipe *gp, int i, const float *from)
{
    return ct_storage_put(gp->history, gp->range[i].offset, gp->range[i].count, from);
}

static ct_status clear_momentum(const ct_grad_pipe *gp, int i)
{
    return ct_storage_zero(gp->history, gp->range[i].offset, gp->range[i].count);
}

static ct_status sum_over_ranks(ct_grad_pipe *gp, float *v, int64_t n)
{
    const ct_coll_ops *ops = NULL;

    if (gp->comm->size == 1) return CT_OK;
    CT_TRY(ct_coll_choose(gp->comm, n, CT_F32, "ring", &ops)); /* the same bits everywhere */
    return ct_coll_run(ops, gp->comm, v, n, CT_F32);
}

/* It becomes the sum of the ranks' U. */
static ct_status sum_momentum(ct_grad_pipe *gp, int i)
{
    float *sum = NULL;
    ct_status status = CT_OK;

    CT_TRY(copy_state(gp, i, CT_CODEC_MOMENTUM, &sum));
    if (sum == NULL) return CT_OK;
    status = sum_over_ranks(gp, sum, gp->range[i].count);
    if (status == CT_OK) status = take_momentum(gp, i, sum);
    ct_mem_release(sum);
    return status;
}

static ct_status carry_out(ct_grad_pipe *gp, int i, ct_grad_kept *c)
{
    const float *rate = find_state(gp, i, CT_CODEC_RATE);
    bool absorbs = will_absorb(gp, i);

    c->absorbed = gp->bucket[gp->bucket_of[i]].absorbed;
    if (c->absorbed && !absorbs && (gp->history != NULL)) CT_TRY(sum_momentum(gp, i));
    if (c->absorbed != absorbs) return CT_OK;
    CT_TRY(copy_state(gp, i, CT_CODEC_RESIDUAL, &c->v));
    CT_TRY(copy_state(gp, i, CT_CODEC_MOMENTUM, &c->u));
    if (rate != NULL) c->rate = *rate;
    return CT_OK;
}

/* V waits. U is no momentum where it was built up while nothing moved (codec_side.h): then it
 * waits, too. */
static ct_status set_aside(ct_grad_pipe *gp, int i, ct_grad_kept *c)
{
    const ct_bucket *b = &gp->bucket[gp->bucket_of[i]];
    const float *u = find_state(gp, i, CT_CODEC_MOMENTUM), *rate = find_state(gp, i, CT_CODEC_RATE);
    int64_t n = gp->range[i].count, has[2];

    if (!b->cut.coded) return CT_OK;
    c->absorbed = b->absorbed;
    has[0] = (u != NULL) && ct_momentum_correction_holds(u, n);
    has[1] = ct_grad_pipe_holds(gp, i);
    CT_TRY(ct_comm_max(gp->comm, has, 2));
    if (rate != NULL) c->rate = *rate;
    if (has[1] > 0) {
        CT_TRY(copy_state(gp, i, CT_CODEC_RESIDUAL, &c->v));
        if (ct_codec_uses(b->ops, CT_CODEC_USES_MASK_MOMENTUM) && b->codec_config->mask_momentum) {
            CT_TRY(copy_state(gp, i, CT_CODEC_MOMENTUM, &c->u));
            has[0] = 0;
        }
    }
    if (has[0] > 0) return sum_momentum(gp, i);
    return c->absorbed ? clear_momentum(gp, i) : CT_OK;
}

static ct_status carry_all_out(ct_grad_pipe *gp, bool try, ct_grad_kept *c)
{
    for (int i = 0; i < gp->n_range; ++i) {
        if (gp->range[i].count > 0) CT_TRY(try ? set_aside(gp, i, &c[i]) : carry_out(gp, i, &c[i]));
    }
    return CT_OK;
}

static void put(float *to, const float *from, int64_t n)
{
    if ((to != NULL) && (from != NULL)) memcpy(to, from, sizeof(*to) * (size_t)n);
}

/* Its share of the solver's momentum. */
static ct_status begin_momentum(const ct_grad_pipe *gp, int i, float *u)
{
    float share = 1.0f / (float)gp->comm->size;

    if ((u == NULL) || (gp->history == NULL)) return CT_OK;
    CT_TRY(show_momentum(gp, i, u));
    for (int64_t k = 0; k < gp->range[i].count; ++k) u[k] *= share;
    return CT_OK;
}

/* c NULL: nothing but the momentum. */
static ct_status carry_in(ct_grad_pipe *gp, const ct_grad_kept *c)
{
    for (int i = 0; i < gp->n_range; ++i) {
        int64_t n = gp->range[i].count;
        float *u = NULL;

        if (n == 0) continue;
        u = find_state(gp, i, CT_CODEC_MOMENTUM);
        if ((c != NULL) && (c[i].absorbed == gp->bucket[gp->bucket_of[i]].absorbed)) {
            put(find_state(gp, i, CT_CODEC_RESIDUAL), c[i].v, n);
            put(find_state(gp, i, CT_CODEC_RATE), &c[i].rate, 1);
            put(u, c[i].u, n);
            if (c[i].u != NULL) continue;
        }
        CT_TRY(begin_momentum(gp, i, u));
    }
    return CT_OK;
}

/* What the buckets have counted stays counted. */
static void keep_counts(ct_grad_pipe *gp)
{
    ct_sync_stats now;

    ct_grad_pipe_get_stats(gp, true, &now);
    gp->stats = now;
}

static ct_status make_anew(ct_grad_pipe *gp)
{
    for (int i = 0; i < gp->n_bucket; ++i) ct_bucket_release(&gp->bucket[i]);
    gp->n_bucket = gp->n_left = gp->n_landed = gp->n_reported = 0;
    gp->n_summed = gp->n_owned = 0;
    return ct_grad_pipe_make_buckets(gp);
}

static void forget(const ct_grad_pipe *gp, ct_grad_kept *c)
{
    for (int i = 0; (c != NULL) && (i < gp->n_range); ++i) {
        ct_mem_release(c[i].v);
        ct_mem_release(c[i].u);
    }
    free(c);
}

void ct_grad_pipe_forget_aside(ct_grad_pipe *gp)
{
    forget(gp, gp->aside);
    gp->aside = NULL;
}

/* c: what buckets had, or have had before something was tried. */
static ct_status remake(ct_grad_pipe *gp, bool try, bool tried, ct_grad_kept *c)
{
    ct_status status = CT_OK;

    atomic_store(&gp->remaking, true);
    keep_counts(gp);
    if (!tried) status = carry_all_out(gp, try, c);
    if (status == CT_OK) status = make_anew(gp);
    if (status == CT_OK) status = carry_in(gp, try ? NULL : c);
    if (status == CT_OK) status = ct_grad_pipe_restored(gp);
    if ((status == CT_OK) && (gp->trace != NULL)) status = ct_grad_pipe_trace(gp, gp->trace);
    gp->generation += 1;
    atomic_store(&gp->remaking, false);
    return status;
}

static ct_status recode(ct_grad_pipe *gp, bool try)
{
    bool tried = (gp->aside != NULL);
    ct_grad_kept *c = tried ? gp->aside : calloc((size_t)gp->n_range + 1, sizeof(*c));
    ct_status status = CT_OK;

    if (c == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to change compression");
    gp->aside = NULL;
    status = remake(gp, try, tried, c);
    if (try)
        gp->aside = c;
    else
        forget(gp, c);
    return status;
}

ct_status ct_grad_pipe_switch_codecs(ct_grad_pipe *gp)
{
    return recode(gp, false);
}

ct_status ct_grad_pipe_switch_codecs_to_try(ct_grad_pipe *gp)
{
    return recode(gp, true);
}
