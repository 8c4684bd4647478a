#include "framework/snapshot/residual_drain.h"

#include <math.h>
#include <stdlib.h>

#include "framework/math/math.h"

/* ---- what there is */

static ct_status open_late(const ct_net *net, ct_residual_drain *l)
{
    void *v = NULL;

    if (l->v != NULL) return CT_OK;
    l->rate = calloc((size_t)net->n_param + 1, sizeof(*l->rate));
    if (l->rate == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for what was left behind");
    CT_TRY(net->options.dev->mem_acquire((size_t)net->grad_count * sizeof(float), &v));
    l->v = v;
    return net->options.dev->zero(NULL, v, (size_t)net->grad_count * sizeof(float));
}

static ct_status make_room(const ct_net *net, ct_residual_drain *l, int64_t count)
{
    const ct_device *dev = net->options.dev;
    void *room = NULL;

    if (count <= l->most) return CT_OK;
    CT_TRY(dev->mem_acquire((size_t)count * sizeof(float), &room));
    dev->mem_release(l->room);
    l->room = room;
    l->most = count;
    return CT_OK;
}

/* += factor * v, by way of the room. */
static ct_status add(const ct_net *net, ct_residual_drain *l, const ct_param *p, float factor,
                     const float *v)
{
    const ct_device *dev = net->options.dev;

    CT_TRY(dev->from_host(NULL, l->room, v, (size_t)p->count * sizeof(*v)));
    return dev->math->axpy(NULL, p->count, factor, l->room, l->v + p->offset);
}

ct_status ct_residual_drain_add(const ct_net *net, ct_residual_drain *l, int param, float rate,
                                const float *v)
{
    const ct_param *p = &net->param[param];
    float factor = 1.0f;

    CT_TRY(open_late(net, l));
    CT_TRY(make_room(net, l, p->count));
    if ((l->rate[param] > 0) && (rate > 0)) factor = l->rate[param] / rate;
    CT_TRY(add(net, l, p, factor, v));
    if (l->rate[param] != 0) return CT_OK;
    l->rate[param] = (rate > 0) ? rate : -1.0f;
    l->n_param += 1;
    return CT_OK;
}

void ct_residual_drain_close(const ct_net *net, ct_residual_drain *l)
{
    net->options.dev->mem_release(l->v);
    net->options.dev->mem_release(l->room);
    free(l->rate);
    *l = (ct_residual_drain){ .v = NULL };
}

/* ---- a step */

/* How often V counts at the new rate; a rate of 0, or one that is not known, leaves it alone. */
static float carry_over(float *rate, float now)
{
    float carry = (*rate > 0) ? now / *rate : 1.0f;

    if (!(now > 0)) return 1.0f;
    *rate = now;
    return isfinite(carry) ? carry : 1.0f;
}

ct_status ct_residual_drain_begin(const ct_net *net, ct_residual_drain *l, ct_stream st, int param)
{
    const ct_param *p = &net->param[param];

    return net->options.dev->copy(st, l->room, ct_blob_data(&p->blob),
                                  (size_t)p->count * sizeof(float));
}

ct_status ct_residual_drain_end(const ct_net *net, ct_residual_drain *l, ct_stream st, int param,
                                float rate)
{
    const ct_param *p = &net->param[param];
    const ct_device *dev = net->options.dev;
    float *weight = ct_blob_data(&p->blob), *v = l->v + p->offset;
    float carry = carry_over(&l->rate[param], rate);
    double update = 0, left = 0, share = 1;

    CT_TRY(dev->math->axpy(st, p->count, -1.0f, weight, l->room));
    CT_TRY(dev->math->sumsq(st, p->count, l->room, &update));
    CT_TRY(dev->math->sumsq(st, p->count, v, &left));
    left *= (double)carry * (double)carry;
    if (left > 0) share = fmin(1.0, sqrt(update / left)); /* 1 where it is not a number */
    CT_TRY(dev->math->axpy(st, p->count, -(float)(share * (double)carry), v, weight));
    if (share < 1) return dev->math->scale(st, p->count, (float)((1 - share) * (double)carry), v);
    CT_TRY(dev->zero(st, v, (size_t)p->count * sizeof(*v)));
    l->rate[param] = 0;
    l->n_param -= 1;
    if (l->n_param > 0) return CT_OK;
    ct_residual_drain_close(net, l);
    CT_INFO("what the run before had left behind is in the weights");
    return CT_OK;
}
