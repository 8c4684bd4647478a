/* A net that finds boxes, fitted to the classes of a set: of a place in the net each prior has a
 * score for each class. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/new/new.h"
#include "framework/base/log.h"
#include "framework/net/layer.h"
#include "framework/snapshot/model.h"

typedef struct fitting {
    Ct__NetParameter *net;
    int64_t was, now;        /* classes */
    const ct_model *weights; /* NULL: none */
    bool *seen;              /* of each layer */
} fitting;

static bool has_top(const Ct__LayerParameter *l, const char *blob)
{
    for (size_t t = 0; t < l->n_top; t++)
        if (strcmp(l->top[t], blob) == 0) return true;
    return false;
}

/* Layers that hand on all numbers, in whatever order. */
static bool hands_on(const Ct__LayerParameter *l)
{
    static const char *const type[] = { "Concat",  "Permute", "Flatten", "Reshape", "Softmax",
                                        "Sigmoid", "ReLU",    "Dropout", "Split" };

    for (size_t i = 0; i < sizeof(type) / sizeof(type[0]); i++)
        if (ct_layer_param_is(l, type[i])) return true;
    return false;
}

/* The last axis is that of classes. */
static void fit_reshape(const fitting *f, Ct__LayerParameter *l)
{
    Ct__BlobShape *s = (l->reshape_param != NULL) ? l->reshape_param->shape : NULL;

    if ((s != NULL) && (s->n_dim > 0) && (s->dim[s->n_dim - 1] == f->was))
        s->dim[s->n_dim - 1] = f->now;
}

/* Weights of another number of outputs are not for this layer. */
static ct_status fit_weights(const fitting *f, Ct__LayerParameter *l, int64_t n)
{
    int k = (f->weights != NULL) ? ct_model_find(f->weights, l->name) : -1;
    int64_t rows;

    if ((k < 0) || (f->weights->layer[k].n_array == 0) || !f->weights->layer[k].array[0].present)
        return CT_OK;
    rows = f->weights->layer[k].array[0].shape.dim[0];
    if (rows == n) return CT_OK;
    CT_INFO("layer \"%s\" makes %" PRId64 " outputs in %s, and %" PRId64
            " for the classes of the set: it starts anew",
            l->name, rows, f->weights->file, n);
    return ct_new_rename(l, 1.0);
}

/* As many outputs for each prior as there are classes now. */
static ct_status fit_outputs(const fitting *f, Ct__LayerParameter *l)
{
    bool convolves = ct_layer_param_is(l, "Convolution");
    int64_t n = convolves ? ((l->convolution_param != NULL) ? l->convolution_param->num_output : 0)
                : (l->inner_product_param != NULL) ? l->inner_product_param->num_output
                                                   : 0;

    if (n % f->was != 0)
        return CT_FAIL(CT_ERR_CONFIG,
                       "layer \"%s\" makes %" PRId64 " outputs, expected a multiple of the %" PRId64
                       " classes that the net tells apart",
                       l->name, n, f->was);
    n = n / f->was * f->now;
    CT_TRY(ct_new_set_field(
        &l->base, convolves ? "convolution_param.num_output" : "inner_product_param.num_output",
        "%" PRId64, n));
    return fit_weights(f, l, n);
}

/* What makes a blob that layer i reads. */
static ct_status fit_maker(const fitting *f, size_t i, const char *blob)
{
    Ct__LayerParameter *l;

    while ((i > 0) && !has_top(f->net->layer[i - 1], blob)) i--;
    if (i == 0) return CT_FAIL(CT_ERR_CONFIG, "no layer makes \"%s\"", blob);
    l = f->net->layer[i - 1];
    if (f->seen[i - 1]) return CT_OK;
    f->seen[i - 1] = true;
    if (ct_layer_param_is(l, "Convolution") || ct_layer_param_is(l, "InnerProduct"))
        return fit_outputs(f, l);
    if (!hands_on(l))
        return CT_FAIL(
            CT_ERR_CONFIG,
            "layer \"%s\" (%s) stands between scores and what makes them, Convolution or "
            "InnerProduct: cortado new knows Concat, Permute, Flatten, Reshape, Softmax, "
            "Sigmoid, ReLU and Dropout there",
            l->name, l->type);
    if (ct_layer_param_is(l, "Reshape")) fit_reshape(f, l);
    for (size_t b = 0; b < l->n_bottom; b++) CT_TRY(fit_maker(f, i - 1, l->bottom[b]));
    return CT_OK;
}

/* Scores; and locations, where each class has its own. */
static ct_status fit_bottoms(fitting *f, size_t i, int64_t was, bool shared)
{
    const Ct__LayerParameter *l = f->net->layer[i];

    f->was = was;
    if ((was < 1) || (l->n_bottom < 3))
        return CT_FAIL(CT_ERR_CONFIG, "layer \"%s\" (%s): no num_classes, or fewer than 3 bottoms",
                       l->name, l->type);
    CT_TRY(fit_maker(f, i, l->bottom[1]));
    return shared ? CT_OK : fit_maker(f, i, l->bottom[0]);
}

static ct_status fit_layer(fitting *f, size_t i, int *n_loss)
{
    Ct__LayerParameter *l = f->net->layer[i];
    const char *field = NULL;

    if (ct_layer_param_is(l, "MultiBoxLoss") && (l->multibox_loss_param != NULL)) {
        const Ct__MultiBoxLossParameter *p = l->multibox_loss_param;

        field = "multibox_loss_param.num_classes";
        CT_TRY(fit_bottoms(f, i, p->num_classes, p->share_location));
        (*n_loss)++;
    }
    if (ct_layer_param_is(l, "DetectionOutput") && (l->detection_output_param != NULL)) {
        const Ct__DetectionOutputParameter *p = l->detection_output_param;

        field = "detection_output_param.num_classes";
        CT_TRY(fit_bottoms(f, i, p->num_classes, p->share_location));
    }
    if (ct_layer_param_is(l, "DetectionEvaluate") && (l->detection_evaluate_param != NULL))
        field = "detection_evaluate_param.num_classes";
    return (field != NULL) ? ct_new_set_field(&l->base, field, "%" PRId64, f->now) : CT_OK;
}

static ct_status fit_layers(fitting *f)
{
    int n_loss = 0;

    for (size_t i = 0; i < f->net->n_layer; i++) CT_TRY(fit_layer(f, i, &n_loss));
    if (n_loss > 0) return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG,
                   "net \"%s\" has no MultiBoxLoss, so it does not learn to find boxes",
                   (f->net->name != NULL) ? f->net->name : "");
}

ct_status ct_new_fit_boxes(Ct__NetParameter *net, const ct_new_set *s, const char *weights)
{
    fitting f = { .net = net, .now = s->n_class };
    ct_model *m = NULL;
    ct_status status = CT_OK;

    f.seen = calloc(net->n_layer + 1, sizeof(*f.seen));
    if (f.seen == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a net");
    if (weights != NULL) status = ct_model_open(weights, &m);
    f.weights = m;
    if (status == CT_OK) status = fit_layers(&f);
    ct_model_close(m);
    free(f.seen);
    return status;
}
