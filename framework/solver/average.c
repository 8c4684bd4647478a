/* An average of the weights over the run: Polyak's, as an exponential moving average (EMA), or the
 * plain mean of every interval-th (Izmailov et al.: Averaging Weights Leads to Wider Optima and
 * Better Generalization, 2018, algorithm 1). Which weights count follows from the number of updates
 * alone, so a resumed run needs to know nothing but the average itself. */
#include "framework/solver/train_step.h"

#include "framework/math/math.h"

typedef Ct__WeightAverageParameter average_param;

/* How many weights have counted after `done` updates, and whether the last ones do. */
static int64_t counted(const average_param *p, int64_t done, bool *last_p)
{
    int64_t past = done - p->start_iter;
    int64_t interval = (p->type == CT__WEIGHT_AVERAGE_PARAMETER__TYPE__SWA) ? p->interval : 1;

    *last_p = (past > 0) && (past % interval == 0);
    return (past > 0) ? past / interval : 0;
}

float ct_average_share(const average_param *p, int64_t done)
{
    bool last;
    int64_t n = counted(p, done, &last);

    if (!last) return 0.0f;
    if (n == 1) return 1.0f;
    if (p->type == CT__WEIGHT_AVERAGE_PARAMETER__TYPE__SWA) return (float)(1.0 / (double)n);
    return 1.0f - p->decay;
}

bool ct_average_begun(const average_param *p, int64_t done)
{
    bool last;

    return counted(p, done, &last) > 0;
}

static ct_status swap(const ct_device *dev, float *a, float *b, float *other, int64_t n)
{
    size_t bytes = (size_t)n * sizeof(float);

    CT_TRY(dev->copy(NULL, other, a, bytes));
    CT_TRY(dev->copy(NULL, a, b, bytes));
    return dev->copy(NULL, b, other, bytes);
}

static ct_status swap_range(ct_train_step *t, const ct_param *p, int64_t at, int64_t n,
                            float *other)
{
    ct_storage_range average;
    ct_status status, back;

    CT_TRY(ct_storage_want(t->average, NULL, p->offset + at, n, CT_STORAGE_UPDATE, &average));
    status = swap(t->net->options.dev, ct_blob_data(&p->blob) + at, average.data, other, n);
    back = ct_storage_done(&average, NULL);
    return (status != CT_OK) ? status : back;
}

ct_status ct_train_step_swap_average(ct_train_step *t)
{
    enum { CHUNK = 1 << 16 };
    const ct_device *dev = t->net->options.dev;
    void *other = NULL;
    ct_status status = CT_OK;

    CT_TRY(dev->mem_acquire(CHUNK * sizeof(float), &other));
    for (int i = 0; (i < t->net->n_param) && (status == CT_OK); i++) {
        const ct_param *p = &t->net->param[i];

        for (int64_t at = 0; p->learns && (at < p->count) && (status == CT_OK); at += CHUNK)
            status = swap_range(t, p, at, (p->count - at < CHUNK) ? p->count - at : CHUNK, other);
    }
    dev->mem_release(other);
    ct_net_weights_changed(t->net);
    return status;
}
