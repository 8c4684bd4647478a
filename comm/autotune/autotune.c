#include "comm/autotune/autotune.h"

#include <stdlib.h>

#include "comm/autotune/grad_tune.h"
#include "comm/codec/codec_types.h"

typedef struct autotune {
    ct_grad_pipe *gp;
    ct_grad_auto *codecs; /* NULL: nothing to choose */
    ct_grad_tune *tune;   /* NULL: nothing to try    */
} autotune;

static void destroy(void *state)
{
    autotune *a = state;

    if (a == NULL) return;
    ct_grad_auto_report(a->codecs);
    ct_grad_tune_destroy(a->tune);
    ct_grad_auto_destroy(a->codecs);
    free(a);
}

static ct_status create(ct_grad_pipe *gp, void **state_p)
{
    autotune *a = calloc(1, sizeof(*a));
    ct_status status = CT_OK;

    if (a == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to tune a gradient pipe");
    a->gp = gp;
    if (gp->config.codec == &ct_codec_auto) status = ct_grad_auto_create(gp, &a->tune, &a->codecs);
    if (status != CT_OK) {
        destroy(a);
        return status;
    }
    *state_p = a;
    return CT_OK;
}

static ct_status open_policy(void *state)
{
    autotune *a = state;

    return ct_grad_auto_tries(a->codecs) ? CT_OK : ct_grad_tune_create(a->gp, &a->tune);
}

static ct_status begin_step(void *state, int64_t iteration, bool *begins_p, float *least_p)
{
    autotune *a = state;

    if (a->tune != NULL) CT_TRY(ct_grad_tune_step(a->tune));
    if (a->codecs == NULL) return CT_OK;
    return ct_grad_auto_step(a->codecs, iteration, begins_p, least_p);
}

static void observe(void *state, ct_grad_event event, int range)
{
    ct_grad_auto_observe(((autotune *)state)->codecs, event, range);
}

static int n_trial(const void *state)
{
    const autotune *a = state;

    if (ct_grad_auto_tries(a->codecs)) return ct_grad_auto_n_step(a->codecs);
    return (a->tune != NULL) ? ct_grad_tune_n_step(a->tune) : 0;
}

ct_grad_auto *ct_autotune_codecs(const ct_grad_pipe *gp)
{
    return (gp->policy != NULL) ? ((autotune *)gp->policy)->codecs : NULL;
}

const ct_grad_policy ct_autotune = {
    .create = create,
    .open = open_policy,
    .destroy = destroy,
    .begin_step = begin_step,
    .observe = observe,
    .n_trial = n_trial,
};
