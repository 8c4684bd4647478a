/* Where no plan is tried: why, what the model must promise then, and what it says of the choice
 * once it has seen a step. */
#include <stdlib.h>
#include <string.h>

#include "comm/autotune/grad_auto_impl.h"

const char *ct_grad_auto_why_untried(const ct_grad_pipe_config *config)
{
    if (config->line != NULL) return NULL; /* the model knows the step */
    if (config->tune_iterations > 0) return NULL;
    return config->deterministic ? "deterministic: what steps take may not decide"
                                 : "tune_iterations is 0";
}

void ct_grad_auto_say_untried(const ct_grad_auto *a, bool dense)
{
    if (dense)
        CT_INFO("compression auto: off: no plan is tried by real steps (%s), and by the model "
                "compression does not halve communication, of which computation may hide the rest; "
                "a codec's own name takes it all the same",
                a->untried);
    else if (a->gp->comm->rank == 0)
        CT_WARN("compression auto: not verified: no plan is tried by real steps (%s); the model "
                "has communication more than halved, but does not know what computation hides",
                a->untried);
}

/* ---- a look at the step, which changes nothing */

static ct_status predict(const ct_grad_auto *a, const ct_codec_planner *c, bool dense,
                         double *step_s_p)
{
    size_t bytes = sizeof(int) * (size_t)a->gp->n_range;
    ct_codec_plan plan = { .way = malloc(bytes + 1) };
    ct_status status = CT_OK;

    if (plan.way == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to predict compression");
    memcpy(plan.way, a->way, bytes);
    for (int i = 0; dense && (i < a->gp->n_range); ++i) {
        if (plan.way[i] > 0) plan.way[i] = 0;
    }
    status = ct_codec_planner_cost(c, &plan);
    *step_s_p = plan.times.step_s;
    free(plan.way);
    return status;
}

static ct_status compare(ct_grad_auto *a)
{
    ct_step_timeline line = { .overlap = a->gp->config.overlap ? CT_STEP_TIMELINE_BOTH
                                                               : CT_STEP_TIMELINE_OFF };
    ct_codec_planner c;
    double coded_s = 0, dense_s = 0;

    if ((a->gp->comm->rank != 0) || !ct_step_observer_line(&a->watch, &line)) return CT_OK;
    ct_grad_auto_frame(a, &line, &c);
    CT_TRY(predict(a, &c, false, &coded_s));
    CT_TRY(predict(a, &c, true, &dense_s));
    if (coded_s < dense_s)
        CT_INFO("compression auto: beside the computation of a step: predicted %.3f ms, dense %.3f",
                1e3 * coded_s, 1e3 * dense_s);
    else
        CT_WARN("compression auto: beside the computation of a step dense is not slower: predicted "
                "%.3f ms, compressed %.3f; it stays compressed, since %s: compression NONE is the "
                "way to have that",
                1e3 * dense_s, 1e3 * coded_s, a->untried);
    return CT_OK;
}

ct_status ct_grad_auto_look(ct_grad_auto *a)
{
    if (!a->watch.on) {
        a->watch.on = true;
        ct_step_observer_turn(&a->watch, true);
        return CT_OK;
    }
    ct_step_observer_turn(&a->watch, false);
    if (a->watch.n_cycle < CT_STEP_OBSERVER_CYCLES) return CT_OK;
    a->watch.on = false;
    a->phase = CT_AUTO_MODEL;
    return compare(a);
}
