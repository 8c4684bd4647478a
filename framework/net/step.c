#include "framework/net/step.h"

#include <stddef.h>

static ct_status run_one(ct_step *s, int i, const ct_step_hooks *h, void *ctx)
{
    switch (s->kind) {
    case CT_STEP_BEGIN:
        return (h->begin != NULL) ? h->begin(ctx, s, i) : CT_OK;
    case CT_STEP_WAIT:
        return (h->wait != NULL) ? h->wait(ctx, s, i) : CT_OK;
    default:
        return h->run(ctx, s, i);
    }
}

ct_status ct_steps_run(ct_step *list, int n, const ct_step_hooks *h, void *ctx)
{
    for (int i = 0; i < n; i++) {
        ct_step *s = &list[i];
        double start = 0.0, end = 0.0;

        if (h->now != NULL) CT_TRY(h->now(ctx, &start));
        CT_TRY(run_one(s, i, h, ctx));
        if (h->now != NULL) {
            CT_TRY(h->now(ctx, &end));
            s->seconds = end - start;
        }
        if (h->ended != NULL) h->ended(ctx, i);
        /* a wait has just moved what it could, and so has a gradient that got ready */
        if (!ct_step_is_pair(s) && (h->poll != NULL)) CT_TRY(h->poll(ctx));
    }
    return CT_OK;
}
