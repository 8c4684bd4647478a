/* Layers of type Python: between the program's calls and the net's. */
#include <stdio.h>

#include "framework/net/program_layer.h"
#include "library/library.h"

enum { MOST = 64 }; /* bottoms, and tops, of such a layer */

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
    return fits(l->n_bottom, l->n_top, why, n_why) &&
           (calls->open(calls->ctx, &layer, made_p, why, n_why) == 0);
}

static void look(ct_blob *const *from, int n, bool has_memory, cortado_blob *to)
{
    for (int i = 0; i < n; i++) {
        const ct_shape *s = &from[i]->data.shape;

        to[i] = (cortado_blob){ .count = ct_shape_count(s, 0, -1), .n_dim = s->ndim };
        for (int k = 0; k < s->ndim; k++) to[i].dim[k] = s->dim[k];
        if (!has_memory) continue;
        to[i].data = ct_blob_data(from[i]);
        to[i].diff = ct_blob_diff(from[i]);
    }
}

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

static bool run(void *ctx, void *made, const ct_instance *in, bool forward, char *why, size_t n_why)
{
    const cortado_layer_calls *calls = ctx;
    const ct_layer *l = in->layer;
    cortado_blob bottom[MOST], top[MOST];

    look(in->bottom, l->n_bottom, true, bottom);
    look(in->top, l->n_top, true, top);
    return (forward ? calls->forward : calls->backward)(calls->ctx, made, bottom, top, why,
                                                        n_why) == 0;
}

static bool run_forward(void *ctx, void *made, const ct_instance *in, char *why, size_t n_why)
{
    return run(ctx, made, in, true, why, n_why);
}

static bool run_backward(void *ctx, void *made, const ct_instance *in, char *why, size_t n_why)
{
    return run(ctx, made, in, false, why, n_why);
}

static void close_layer(void *ctx, void *made)
{
    const cortado_layer_calls *calls = ctx;

    calls->close(calls->ctx, made);
}

static const ct_program_layers bridge = { .ctx = &program.calls,
                                          .open = open_layer,
                                          .reshape = reshape,
                                          .forward = run_forward,
                                          .backward = run_backward,
                                          .close = close_layer };

const ct_program_layers *ct_public_layers(void)
{
    return program.is_set ? &bridge : NULL;
}

void cortado_layers_by(const cortado_layer_calls *calls)
{
    program.is_set = (calls != NULL);
    if (calls != NULL) program.calls = *calls;
}
