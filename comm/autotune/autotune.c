#include "comm/autotune/autotune.h"

#include <stdlib.h>

#include "comm/autotune/tuner.h"

typedef struct autotune {
    ct_grad_pipe *gp;
    ct_codec_tuner *codecs; /* NULL: nothing to choose */
    ct_coll_tuner *colls;   /* NULL: nothing to try    */
} autotune;

static void destroy(void *state)
{
    autotune *a = state;

    if (a == NULL) return;
    ct_codec_tuner_report(a->codecs);
    ct_coll_tuner_destroy(a->colls);
    ct_codec_tuner_destroy(a->codecs);
    free(a);
}

static ct_status create(ct_grad_pipe *gp, void **state_p)
{
    autotune *a = calloc(1, sizeof(*a));
    ct_status status = CT_OK;

    if (a == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to tune a gradient pipe");
    a->gp = gp;
    if (gp->config.codec == &ct_codec_auto)
        status = ct_codec_tuner_create(gp, &a->colls, &a->codecs);
    if (status != CT_OK) {
        destroy(a);
        return status;
    }
    gp->watched = (a->codecs != NULL);
    *state_p = a;
    return CT_OK;
}

static ct_status open_policy(void *state)
{
    autotune *a = state;

    return ct_codec_tuner_tries(a->codecs) ? CT_OK : ct_coll_tuner_create(a->gp, &a->colls);
}

static ct_status begin_step(void *state, int64_t iteration, bool *begins_p, float *least_p)
{
    autotune *a = state;

    if (a->colls != NULL) CT_TRY(ct_coll_tuner_step(a->colls));
    if (a->codecs == NULL) return CT_OK;
    return ct_codec_tuner_step(a->codecs, iteration, begins_p, least_p);
}

static void observe(void *state, ct_grad_event event, int range)
{
    ct_codec_tuner_observe(((autotune *)state)->codecs, event, range);
}

static int n_trial(const void *state)
{
    const autotune *a = state;

    if (ct_codec_tuner_tries(a->codecs)) return ct_codec_tuner_n_step(a->codecs);
    return (a->colls != NULL) ? ct_coll_tuner_n_step(a->colls) : 0;
}

ct_codec_tuner *ct_autotune_codecs(const ct_grad_pipe *gp)
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
    .count = ct_coll_tuner_count,
};
