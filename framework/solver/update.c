/* One iteration: micro-steps, exchange, update. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "framework/base/clock.h"
#include "framework/math/math.h"
#include "framework/solver/solver_private.h"

/* What the landing of a bucket needs. */
typedef struct step_ctx {
    ct_solver *s;
    float scale;
    bool clip; /* updates wait for the norm of the whole gradient */
} step_ctx;

static ct_status on_ready(void *ctx, int param)
{
    const ct_solver *s = ctx;

    return s->exchange.ready(s->exchange.ctx, param);
}

static ct_status update_param(const step_ctx *c, const ct_param *p)
{
    const ct_solver *s = c->s;
    float decay = s->param->weight_decay * p->decay_mult;
    bool l1 = (s->param->regularization_type != NULL) &&
              (strcmp(s->param->regularization_type, "L1") == 0);
    ct_update u = {
        .dev = s->dev,
        .count = p->count,
        .scale = c->scale,
        .rate = (float)s->rate * p->lr_mult,
        .momentum = s->param->momentum,
        .decay_l2 = l1 ? 0.0f : decay,
        .decay_l1 = l1 ? decay : 0.0f,
        .grad = ct_blob_diff(&p->blob),
        .weight = ct_blob_data(&p->blob),
    };

    for (int i = 0; i < s->rule->n_state; i++) u.state[i] = s->history[i] + p->offset;
    return s->rule->apply(&u);
}

static ct_status update_range(const step_ctx *c, int first, int n)
{
    for (int i = first; i < first + n; i++) {
        if (c->s->net->param[i].learns) CT_TRY(update_param(c, &c->s->net->param[i]));
    }
    return CT_OK;
}

static ct_status on_landed(void *ctx, int first, int n)
{
    const step_ctx *c = ctx;

    return c->clip ? CT_OK : update_range(c, first, n);
}

/* The norm of the summed gradient before it is divided by iter_size, as Caffe takes it. Padding is
 * zero, so the arena is summed in one go. */
static ct_status clip_scale(const ct_solver *s, float *scale_p)
{
    double limit = (double)s->param->clip_gradients, sumsq = 0.0, norm;

    CT_TRY(s->dev->math->sumsq(s->exec.stream, s->net->grad_count, s->net->grad_arena, &sumsq));
    norm = sqrt(sumsq);
    if (!(norm > limit)) return CT_OK;
    CT_INFO("Gradient clipping: scaling down gradients (L2 norm %g > %g) by scale factor %g", norm,
            limit, limit / norm);
    *scale_p *= (float)(limit / norm);
    return CT_OK;
}

/* Forward and backward iter_size times; the loss of all. Gradients leave in the last. */
static ct_status run_micro_steps(ct_solver *s, bool display, double *loss_p)
{
    int n = s->param->iter_size;
    double loss = 0.0;

    for (int i = 0; i < n; i++) {
        double one = 0.0;

        s->exec.micro_step = s->iteration * n + i;
        s->exec.accumulate = (i > 0);
        ct_solver_beat(s, "forward");
        CT_TRY(ct_net_forward(s->net, &s->exec, &one));
        loss += one;
        if (display && (i == n - 1)) {
            memset(s->outputs.sum, 0, (size_t)s->outputs.n * sizeof(*s->outputs.sum));
            CT_TRY(ct_outputs_add(&s->outputs, &s->exec)); /* backward may reuse their memory */
        }
        ct_solver_beat(s, "backward");
        CT_TRY(ct_net_backward(s->net, &s->exec, (i == n - 1) ? on_ready : NULL, s));
    }
    *loss_p = loss / n;
    return CT_OK;
}

static void log_multistep(const ct_solver *s)
{
    int64_t now = ct_learning_rate_step(s->param, s->iteration);

    if ((s->iteration > 0) && (strcmp(s->param->lr_policy, "multistep") == 0) &&
        (now != ct_learning_rate_step(s->param, s->iteration - 1)))
        CT_INFO("MultiStep Status: Iteration %" PRId64 ", step = %" PRId64, s->iteration, now);
}

ct_status ct_solver_step(ct_solver *s, bool display, bool *finite_p)
{
    step_ctx c = { .s = s,
                   .scale = 1.0f / (float)s->param->iter_size,
                   .clip = s->param->clip_gradients >= 0.0f };
    double start = ct_clock_s(), loss = 0.0;

    CT_TRY(ct_learning_rate(s->param, s->iteration, &s->rate));
    log_multistep(s);
    CT_TRY(s->exchange.begin(s->exchange.ctx, s->iteration));
    CT_TRY(run_micro_steps(s, display, &loss));
    ct_solver_note_loss(s, loss);
    *finite_p = isfinite(loss);
    ct_solver_beat(s, "exchange of gradients and update");
    CT_TRY(s->exchange.finish(s->exchange.ctx, on_landed, &c));
    if (c.clip) {
        CT_TRY(clip_scale(s, &c.scale));
        CT_TRY(update_range(&c, 0, s->net->n_param));
    }
    ct_net_weights_changed(s->net);
    s->tally.step_s += ct_clock_s() - start;
    s->tally.iterations++;
    return CT_OK;
}
