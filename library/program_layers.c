/* Layers of type Python: between the program's calls and the net's. */
#include <stdio.h>
#include <string.h>

#include "framework/base/log.h"
#include "framework/net/program_layer.h"
#include "framework/proto/prototxt.h"
#include "library/library.h"

enum { MOST = 64 }; /* bottoms, and tops, of such a layer */
_Static_assert(CORTADO_MOST_WEIGHTS == CT_MAX_WEIGHT, "the public header says how many weights");

/* What cortado_layers_by() said. It is called while no other call runs. */
static struct {
    cortado_layer_calls calls;
    bool is_set;
} program;

static bool fits(int n_bottom, int n_top, char *why, size_t n_why)
{
    if ((n_bottom <= MOST) && (n_top <= MOST)) return true;
    snprintf(why, n_why, "%d bottoms and %d tops: at most %d each", n_bottom, n_top, MOST);
    return false;
}

static bool open_layer(void *ctx, const ct_layer *l, void **made_p, char *why, size_t n_why)
{
    const cortado_layer_calls *calls = ctx;
    const Ct__PythonParameter *p = l->param->python_param;
    cortado_layer layer = { .name = l->name, .module = p->module, .layer = p->layer };

    layer.param_str = (p->param_str != NULL) ? p->param_str : "";
    layer.phase = (l->phase == CT_TRAIN) ? CORTADO_TRAIN : CORTADO_TEST;
    layer.n_bottom = l->n_bottom;
    layer.n_top = l->n_top;
    layer.rank = l->env->rank;
    layer.n_rank = l->env->n_rank;
    return fits(l->n_bottom, l->n_top, why, n_why) &&
           (calls->open(calls->ctx, &layer, made_p, why, n_why) == 0);
}

static void look_at_shape(const ct_shape *s, cortado_blob *to)
{
    *to = (cortado_blob){ .count = ct_shape_count(s, 0, -1), .n_dim = s->ndim };
    for (int k = 0; k < s->ndim; k++) to->dim[k] = s->dim[k];
}

static void look(ct_blob *const *from, int n, bool has_memory, cortado_blob *to)
{
    for (int i = 0; i < n; i++) {
        look_at_shape(&from[i]->data.shape, &to[i]);
        if (!has_memory) continue;
        to[i].data = ct_blob_data(from[i]);
        to[i].diff = ct_blob_diff(from[i]);
    }
}

/* ---- what setup says */

static bool take_filler(const char *text, int number, ct_program_weight *w, char *why, size_t n_why)
{
    ProtobufCMessage *m = NULL;
    char error[CT_PROGRAM_WHY];

    if (ct_prototxt_parse(&ct__filler_parameter__descriptor, "filler", text, strlen(text), NULL,
                          &m) == CT_OK) {
        w->filler = (Ct__FillerParameter *)(void *)m;
        return true;
    }
    ct_log_last_error(error, sizeof(error));
    snprintf(why, n_why, "weight %d: %s", number, error);
    return false;
}

static bool take_weight(const cortado_layer_weight *from, int number, ct_program_weight *w,
                        char *why, size_t n_why)
{
    w->shape.ndim = from->n_dim; /* the layer looks whether that can be */
    for (int k = 0; (k < from->n_dim) && (k < CT_MAX_DIM); k++) w->shape.dim[k] = from->dim[k];
    if (from->filler != NULL) return take_filler(from->filler, number, w, why, n_why);
    w->values = from->values;
    return true;
}

static bool setup(void *ctx, void *made, const ct_layer *l, const ct_shape *bottom,
                  ct_program_form *form, char *why, size_t n_why)
{
    const cortado_layer_calls *calls = ctx;
    cortado_layer_form said = { 0 };
    cortado_blob blob[MOST];

    for (int i = 0; i < l->n_bottom; i++) look_at_shape(&bottom[i], &blob[i]);
    if (calls->setup(calls->ctx, made, blob, &said, why, n_why) != 0) return false;
    if ((said.n_weight < 0) || (said.n_weight > CT_MAX_WEIGHT)) {
        snprintf(why, n_why, "%d weights: at most %d", said.n_weight, CT_MAX_WEIGHT);
        return false;
    }
    form->sums = (said.sums != 0);
    form->n_weight = said.n_weight;
    for (int w = 0; w < said.n_weight; w++) {
        if (!take_weight(&said.weight[w], w, &form->weight[w], why, n_why)) return false;
    }
    return true;
}

/* ---- runs */

static bool reshape(void *ctx, void *made, ct_instance *in, char *why, size_t n_why)
{
    const cortado_layer_calls *calls = ctx;
    const ct_layer *l = in->layer;
    cortado_blob bottom[MOST], top[MOST] = { 0 };

    look(in->bottom, l->n_bottom, false, bottom);
    if (calls->reshape(calls->ctx, made, bottom, top, why, n_why) != 0) return false;
    for (int i = 0; i < l->n_top; i++) {
        ct_shape s = { .ndim = top[i].n_dim };

        for (int k = 0; (k < s.ndim) && (k < CT_MAX_DIM); k++) s.dim[k] = top[i].dim[k];
        if ((s.ndim < 0) || (s.ndim > CT_MAX_DIM) || !ct_shape_is_valid(&s)) {
            snprintf(why, n_why, "top %d got no shape that a blob may have", i);
            return false;
        }
        ct_blob_set_shape(in->top[i], &s);
    }
    return true;
}

static void look_at_weights(const ct_instance *in, float *const *diff, cortado_blob *to)
{
    for (int w = 0; w < in->layer->n_weight; w++) {
        look_at_shape(&in->weight[w].data.shape, &to[w]);
        to[w].data = ct_blob_data(&in->weight[w]);
        to[w].diff = (diff != NULL) ? diff[w] : NULL;
    }
}

/* diff NULL: forward. */
static bool run(const cortado_layer_calls *calls, void *made, const ct_instance *in,
                float *const *diff, char *why, size_t n_why)
{
    const ct_layer *l = in->layer;
    cortado_blob bottom[MOST], top[MOST], weight[CT_MAX_WEIGHT];

    look(in->bottom, l->n_bottom, true, bottom);
    look(in->top, l->n_top, true, top);
    look_at_weights(in, diff, weight);
    return ((diff == NULL) ? calls->forward : calls->backward)(calls->ctx, made, bottom, top,
                                                               weight, why, n_why) == 0;
}

static bool run_forward(void *ctx, void *made, const ct_instance *in, char *why, size_t n_why)
{
    return run(ctx, made, in, NULL, why, n_why);
}

static bool run_backward(void *ctx, void *made, const ct_instance *in, float *const *weight_diff,
                         char *why, size_t n_why)
{
    return run(ctx, made, in, weight_diff, why, n_why);
}

static void close_layer(void *ctx, void *made)
{
    const cortado_layer_calls *calls = ctx;

    calls->close(calls->ctx, made);
}

static const ct_program_layers bridge = { .ctx = &program.calls,
                                          .open = open_layer,
                                          .setup = setup,
                                          .reshape = reshape,
                                          .forward = run_forward,
                                          .backward = run_backward,
                                          .close = close_layer };

const ct_program_layers *ct_public_layers(void)
{
    return program.is_set ? &bridge : NULL;
}

static ct_status set_calls(const cortado_layer_calls *calls)
{
    if ((calls != NULL) &&
        ((calls->open == NULL) || (calls->setup == NULL) || (calls->reshape == NULL) ||
         (calls->forward == NULL) || (calls->backward == NULL) || (calls->close == NULL)))
        return CT_FAIL(CT_ERR_ARG, "calls of layers: none of them may be NULL");
    program.is_set = (calls != NULL);
    if (calls != NULL) program.calls = *calls;
    return CT_OK;
}

cortado_status cortado_layers_by(const cortado_layer_calls *calls)
{
    ct_public_call c;

    ct_public_begin(&c);
    return ct_public_end(&c, set_calls(calls));
}
