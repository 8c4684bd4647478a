/* Python: the program that hosts the run computes it (framework/net/program_layer.h).
 *
 * On several ranks a layer sees the samples of its rank. What it computes of each sample by itself
 * is right as it is, and gradients of weights add up. A loss is taken for a mean over its samples,
 * which is how Caffe's classes divide: its gradients then count by this rank's share of the batch.
 */
#include <string.h>

#include "framework/base/log.h"
#include "framework/base/memory.h"
#include "framework/net/program_layer.h"
#include "layers/types/data_common.h"

typedef struct python_state {
    void *made;
    bool is_open;
    bool is_mean; /* it is a loss, a mean over the samples */
    Ct__FillerParameter *filler[CT_MAX_WEIGHT];
} python_state;

typedef struct python_instance {
    float *apart[CT_MAX_WEIGHT]; /* gradients that are to be added; NULL: none were yet */
} python_instance;

static bool has_loss_weight(const Ct__LayerParameter *p)
{
    for (size_t i = 0; i < p->n_loss_weight; i++) {
        if (p->loss_weight[i] != 0.0f) return true;
    }
    return false;
}

static ct_status add_weights(ct_layer *l, const ct_program_form *form)
{
    for (int w = 0; w < form->n_weight; w++) {
        const ct_program_weight *from = &form->weight[w];

        if (!ct_shape_is_valid(&from->shape))
            return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "weight %d got no shape that a blob may have", w);
        ct_layer_add_weight(l, &from->shape, from->filler)->values = from->values;
    }
    return CT_OK;
}

static ct_status setup(ct_layer *l, const ct_shape *bottom)
{
    const ct_program_layers *program = l->env->program;
    const Ct__PythonParameter *p = l->param->python_param;
    ct_program_form form = { 0 };
    python_state *s = l->state;
    char why[CT_PROGRAM_WHY] = "";
    bool good;

    if ((p == NULL) || (p->module == NULL) || (p->layer == NULL))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "python_param.module and python_param.layer must be given");
    if (program == NULL)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "it runs in programs of Python alone (docs/library.md); there is no "
                             "interpreter in a run of the command");
    if (!program->open(program->ctx, l, &s->made, why, sizeof(why)))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "%s", why);
    s->is_open = true;
    good = program->setup(program->ctx, s->made, l, bottom, &form, why, sizeof(why));
    for (int w = 0; w < form.n_weight; w++) s->filler[w] = form.weight[w].filler;
    if (!good) return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "%s", why);
    s->is_mean = has_loss_weight(l->param) && !form.sums;
    return add_weights(l, &form);
}

static ct_status reshape(const ct_layer *l, ct_instance *in)
{
    const ct_program_layers *program = l->env->program;
    const python_state *s = l->state;
    char why[CT_PROGRAM_WHY] = "";

    if (!program->reshape(program->ctx, s->made, in, why, sizeof(why)))
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "%s", why);
    in->top_is_share = has_loss_weight(l->param) && !s->is_mean;
    if ((l->n_bottom == 0) && (l->n_top > 0)) /* the net's samples come from it */
        ct_data_set_even_batch(l, in, ct_shape_legacy(&in->top[0]->data.shape, 0));
    return CT_OK;
}

static ct_status forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ct_program_layers *program = l->env->program;
    const python_state *s = l->state;
    char why[CT_PROGRAM_WHY] = "";

    (void)ex;
    if (!program->forward(program->ctx, s->made, in, why, sizeof(why)))
        return CT_LAYER_FAIL(l, CT_ERR_DATA, "%s", why);
    return CT_OK;
}

/* ---- backward */

/* Where the program writes the gradient of weight w: zeros. */
static ct_status place_diff(const ct_layer *l, ct_instance *in, const ct_exec *ex, int w,
                            float **diff_p)
{
    python_instance *r = in->state;
    size_t bytes = (size_t)ct_shape_count(&l->weight[w].shape, 0, -1) * sizeof(float);

    *diff_p = ct_blob_diff(&in->weight[w]);
    if ((*diff_p != NULL) && (ct_weight_beta(in, ex, w) != 0.0f)) {
        if (r->apart[w] == NULL) r->apart[w] = ct_mem_acquire(bytes);
        if (r->apart[w] == NULL)
            return CT_LAYER_FAIL(l, CT_ERR_NOMEM, "no memory for the gradient of weight %d", w);
        *diff_p = r->apart[w];
    }
    if (*diff_p != NULL) memset(*diff_p, 0, bytes);
    return CT_OK;
}

/* Of the mean over all samples, what this rank's count by. */
static float share_of(const python_state *s, const ct_exec *ex)
{
    if (!s->is_mean || (ex->batch_global <= 0)) return 1.0f;
    return (float)((double)ex->batch_local / (double)ex->batch_global);
}

static void weigh(float share, int64_t n, float *diff)
{
    if (share == 1.0f) return;
    for (int64_t i = 0; i < n; i++) diff[i] *= share;
}

/* Bottoms' gradients, and those of weights to where they belong. */
static void finish(const ct_layer *l, ct_instance *in, const ct_exec *ex, float *const *diff)
{
    float share = share_of(l->state, ex);

    for (int i = 0; i < l->n_bottom; i++) {
        if (ct_blob_diff(in->bottom[i]) == NULL) continue;
        weigh(share, ct_tensor_count(&in->bottom[i]->diff), ct_blob_diff(in->bottom[i]));
    }
    for (int w = 0; w < l->n_weight; w++) {
        int64_t n = ct_shape_count(&l->weight[w].shape, 0, -1);
        float *to = ct_blob_diff(&in->weight[w]);

        if (to == NULL) continue;
        weigh(share, n, diff[w]);
        if (diff[w] == to) continue;
        for (int64_t i = 0; i < n; i++) to[i] += diff[w][i];
    }
}

static ct_status backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ct_program_layers *program = l->env->program;
    const python_state *s = l->state;
    float *weight_diff[CT_MAX_WEIGHT] = { NULL };
    char why[CT_PROGRAM_WHY] = "";
    int wanted = 0;

    for (int i = 0; i < l->n_bottom; i++) {
        float *diff = ct_blob_diff(in->bottom[i]);

        if (diff == NULL) continue;
        memset(diff, 0, (size_t)ct_tensor_count(&in->bottom[i]->diff) * sizeof(*diff));
        wanted++;
    }
    for (int w = 0; w < l->n_weight; w++) {
        CT_TRY(place_diff(l, in, ex, w, &weight_diff[w]));
        wanted += (weight_diff[w] != NULL);
    }
    if (wanted == 0) return CT_OK;
    if (!program->backward(program->ctx, s->made, in, weight_diff, why, sizeof(why)))
        return CT_LAYER_FAIL(l, CT_ERR_DATA, "%s", why);
    finish(l, in, ex, weight_diff);
    return CT_OK;
}

static void release(const ct_layer *l, ct_instance *in)
{
    python_instance *r = in->state;

    (void)l;
    for (int w = 0; w < CT_MAX_WEIGHT; w++) ct_mem_release(r->apart[w]);
}

static void destroy(ct_layer *l)
{
    const python_state *s = l->state;

    for (int w = 0; w < CT_MAX_WEIGHT; w++) {
        if (s->filler[w] != NULL) ct__filler_parameter__free_unpacked(s->filler[w], NULL);
    }
    if (s->is_open) l->env->program->close(l->env->program->ctx, s->made);
}

const ct_layer_ops ct_layer_python = {
    .type = "Python",
    .params = "python_param",
    .max_bottom = -1,
    .max_top = -1,
    .backward_reads = CT_READS_BOTTOM | CT_READS_TOP,
    .state_size = sizeof(python_state),
    .instance_state_size = sizeof(python_instance),
    .setup = setup,
    .reshape = reshape,
    .forward = forward,
    .backward = backward,
    .release = release,
    .destroy = destroy,
};
