/* Softmax: a distribution over the classes along one axis. */
#include "layers/engine/engine.h"
#include "layers/engine/softmax/softmax.h"
#include "layers/types/layer_types.h"
#include "layers/layer_util.h"

#include <stdio.h>

typedef struct softmax_plan {
    ct_softmax_desc desc;
    const ct_softmax_engine *forward, *backward;
} softmax_plan;

/* ---- engines of a device, by name or by timing; the CPU has one */

typedef struct trial {
    ct_engine_plan *plan;
    const ct_softmax_desc *d;
    ct_engine_offer offer;
    ct_run_kind kind;
    float *x, *y, *dx;
    ct_exec ex;
} trial;

static ct_status prepare(void *ctx)
{
    trial *t = ctx;
    int64_t n = t->d->outer * t->d->classes * t->d->inner;
    size_t bytes = 0;
    void *block;

    for (int i = 0; i < 3; i++) (void)ct_engine_scratch(NULL, &bytes, n, false);
    block = ct_engine_plan_scratch(t->plan, bytes);
    if (block == NULL) return CT_ERR_NOMEM;
    bytes = 0;
    t->x = ct_engine_scratch(block, &bytes, n, false);
    t->y = ct_engine_scratch(block, &bytes, n, false);
    t->dx = ct_engine_scratch(block, &bytes, n, false);
    return CT_OK;
}

static ct_status run_trial(void *ctx, int i)
{
    trial *t = ctx;
    const ct_softmax_engine *e = ct_softmax_table[t->offer.index[i]];

    if (t->kind == CT_RUN_FORWARD) return e->forward(t->d, &t->ex, t->x, t->y);
    return e->backward(t->d, &t->ex, t->y, t->x, t->dx);
}

static ct_status ask(const ct_layer *l, ct_run_kind kind, const ct_softmax_desc *d,
                     const ct_softmax_engine **engine_p)
{
    trial t = { .plan = ct_engine_plan_of(l), .d = d, .kind = kind, .ex = { .dev = l->dev } };
    char key[CT_ENGINE_PLAN_KEY];
    int at = 0;

    for (int i = 0; ct_softmax_table[i] != NULL; i++) {
        if (ct_softmax_table[i]->supports(d))
            ct_engine_offer_add(&t.offer, ct_softmax_table[i]->name, i,
                                ct_softmax_table[i] == *engine_p);
    }
    snprintf(key, sizeof(key), "softmax %s o%lld c%lld i%lld gpu",
             (kind == CT_RUN_FORWARD) ? "forward" : "backward_data", (long long)d->outer,
             (long long)d->classes, (long long)d->inner);
    CT_TRY(ct_engine_ask(l, key, &t.offer, prepare, run_trial, &t, &at));
    *engine_p = ct_softmax_table[at];
    return CT_OK;
}

/* On the CPU ct_kernel names nothing here. */
static ct_status pick(const ct_layer *l, ct_run_kind kind, const ct_softmax_desc *d,
                      const ct_softmax_engine **engine_p)
{
    const char *policy = ct_engine_policy(l, kind);
    bool automatic = (l->dev->kind == CT_DEVICE_CPU) || (strcmp(policy, "auto") == 0);
    char names[256] = "";

    *engine_p = ct_softmax_choose(d);
    if (*engine_p == NULL)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "not implemented on device %s", l->dev->name);
    if (automatic) {
        bool asks = (l->dev->kind != CT_DEVICE_CPU) && (ct_engine_plan_of(l) != NULL);

        return asks ? ask(l, kind, d, engine_p) : CT_OK;
    }
    for (int i = 0; ct_softmax_table[i] != NULL; i++) {
        if (!ct_softmax_table[i]->supports(d)) continue;
        *engine_p = ct_softmax_table[i];
        if (strcmp((*engine_p)->name, policy) == 0) return CT_OK;
        ct_engine_list(names, sizeof(names), (*engine_p)->name);
    }
    return ct_engine_refuse(l, kind, policy, names);
}

static ct_status reshape(const ct_layer *l, ct_instance *in)
{
    const Ct__SoftmaxParameter *p = l->param->softmax_param;
    const ct_shape *s = &in->bottom[0]->data.shape;
    softmax_plan *plan = in->state;
    ct_view v;
    int axis;

    CT_TRY(ct_layer_axis(l, s, (p != NULL) ? p->axis : 1, "axis", &axis));
    v = ct_view_make(s, axis, 1);
    plan->desc = (ct_softmax_desc){ l->dev->kind, v.outer, v.mid, v.inner };
    CT_TRY(pick(l, CT_RUN_FORWARD, &plan->desc, &plan->forward));
    CT_TRY(pick(l, CT_RUN_BACKWARD_DATA, &plan->desc, &plan->backward));
    ct_blob_set_shape(in->top[0], s);
    return CT_OK;
}

static ct_status forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const softmax_plan *plan = in->state;

    (void)l;
    return plan->forward->forward(&plan->desc, ex, ct_blob_data(in->bottom[0]),
                                  ct_blob_data(in->top[0]));
}

static ct_status backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const softmax_plan *plan = in->state;

    (void)l;
    if (ct_blob_diff(in->bottom[0]) == NULL) return CT_OK;
    return plan->backward->backward(&plan->desc, ex, ct_blob_data(in->top[0]),
                                    ct_blob_diff(in->top[0]), ct_blob_diff(in->bottom[0]));
}

static void estimate(const ct_layer *l, const ct_instance *in, ct_estimate *e)
{
    const softmax_plan *plan = in->state;

    (void)l;
    e->engine[CT_RUN_FORWARD] = plan->forward->name;
    e->engine[CT_RUN_BACKWARD_DATA] = plan->backward->name;
}

const ct_layer_ops ct_layer_softmax = {
    .type = "Softmax",
    .min_bottom = 1,
    .max_bottom = 1,
    .min_top = 1,
    .max_top = 1,
    .allow_inplace = true,
    .backward_reads = CT_READS_TOP,
    .instance_state_size = sizeof(softmax_plan),
    .reshape = reshape,
    .forward = forward,
    .backward = backward,
    .estimate = estimate,
    .on_cuda = true,
};
