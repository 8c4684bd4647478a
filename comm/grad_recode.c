/* The pipe changes the ways of its gradients between two steps, and loses nothing.
 *
 * V of a range that stays compressed goes over with its rate, as does U. Where a range keeps
 * nothing from now on its V is 0, since the step before sent all; its U, summed over the ranks, is
 * what the solver's momentum would have become, and goes there. The other way round each rank
 * starts with an equal share of the solver's momentum. */
#include <stdlib.h>
#include <string.h>

#include "comm/grad_pipe_impl.h"

typedef struct carried {
    float *v, *u; /* [count], owned; NULL: there is none */
    float rate;   /* in which V counts                   */
    bool absorbed;
} carried;

static float *find_state(const ct_grad_pipe *gp, int i, const char *name)
{
    const ct_bucket *b = &gp->bucket[gp->bucket_of[i]];
    ct_coded_state s;

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

/* gp->range has the new codecs, the buckets the old ones. */
static bool will_absorb(const ct_grad_pipe *gp, int i)
{
    const ct_codec_config *c = NULL;
    const ct_coded_ops *ops = ct_grad_range_codec(&gp->config, &gp->range[i], &c);

    return ops->absorbs && c->momentum_correction;
}

static ct_status sum_momentum(ct_grad_pipe *gp, int i)
{
    float *history = gp->history + gp->range[i].offset;
    const float *u = find_state(gp, i, CT_CODED_MOMENTUM);
    const ct_coll_ops *ops = NULL;
    int64_t n = gp->range[i].count;

    if (u == NULL) return CT_OK;
    memcpy(history, u, sizeof(*history) * (size_t)n);
    if (gp->comm->size == 1) return CT_OK;
    CT_TRY(ct_coll_choose(gp->comm, n, CT_F32, "ring", &ops)); /* the same bits everywhere */
    return ct_coll_run(ops, gp->comm, history, n, CT_F32);
}

static ct_status carry_out(ct_grad_pipe *gp, carried *c)
{
    for (int i = 0; i < gp->n_range; ++i) {
        bool absorbs = will_absorb(gp, i);
        const float *rate = NULL;

        if (gp->range[i].count == 0) continue;
        c[i].absorbed = gp->bucket[gp->bucket_of[i]].absorbed;
        if (c[i].absorbed && !absorbs && (gp->history != NULL)) CT_TRY(sum_momentum(gp, i));
        if (c[i].absorbed != absorbs) continue;
        CT_TRY(copy_state(gp, i, CT_CODED_RESIDUAL, &c[i].v));
        CT_TRY(copy_state(gp, i, CT_CODED_MOMENTUM, &c[i].u));
        rate = find_state(gp, i, CT_CODED_RATE);
        if (rate != NULL) c[i].rate = *rate;
    }
    return CT_OK;
}

static void put(float *to, const float *from, int64_t n)
{
    if ((to != NULL) && (from != NULL)) memcpy(to, from, sizeof(*to) * (size_t)n);
}

static void carry_in(ct_grad_pipe *gp, const carried *c)
{
    float share = 1.0f / (float)gp->comm->size;

    for (int i = 0; i < gp->n_range; ++i) {
        int64_t n = gp->range[i].count;
        float *u = NULL;

        if (n == 0) continue;
        put(find_state(gp, i, CT_CODED_RESIDUAL), c[i].v, n);
        put(find_state(gp, i, CT_CODED_RATE), &c[i].rate, 1);
        u = find_state(gp, i, CT_CODED_MOMENTUM);
        put(u, c[i].u, n);
        if ((u == NULL) || c[i].absorbed || (gp->history == NULL)) continue;
        for (int64_t k = 0; k < n; ++k) u[k] = share * gp->history[gp->range[i].offset + k];
    }
}

/* What the buckets have counted stays counted. */
static void keep_counts(ct_grad_pipe *gp)
{
    ct_grad_pipe_counters now;
    ct_grad_pipe_coding coding;

    ct_grad_pipe_get_counters(gp, &now);
    ct_grad_pipe_get_coding(gp, &coding);
    gp->past_encode_s = now.encode_s;
    gp->past_bytes_sent = now.bytes_sent;
    gp->past_coding = coding;
}

static ct_status make_anew(ct_grad_pipe *gp)
{
    for (int i = 0; i < gp->n_bucket; ++i) ct_bucket_release(&gp->bucket[i]);
    gp->n_bucket = gp->n_left = gp->n_landed = gp->n_reported = 0;
    return ct_grad_pipe_make_buckets(gp);
}

ct_status ct_grad_pipe_recode(ct_grad_pipe *gp)
{
    carried *c = calloc((size_t)gp->n_range + 1, sizeof(*c));
    ct_status status = CT_OK;

    if (c == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to change compression");
    atomic_store(&gp->remaking, true);
    keep_counts(gp);
    status = carry_out(gp, c);
    if (status == CT_OK) status = make_anew(gp);
    if (status == CT_OK) carry_in(gp, c);
    if (status == CT_OK) status = ct_grad_pipe_restored(gp);
    if ((status == CT_OK) && (gp->trace != NULL)) status = ct_grad_pipe_trace(gp, gp->trace);
    gp->generation += 1;
    atomic_store(&gp->remaking, false);
    for (int i = 0; i < gp->n_range; ++i) {
        ct_mem_release(c[i].v);
        ct_mem_release(c[i].u);
    }
    free(c);
    return status;
}
