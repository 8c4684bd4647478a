/* A model's net and solver, fitted to a data set. */
#include "cli/new/new.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/log.h"
#include "framework/net/layer.h"
#include "framework/proto/message.h"
#include "framework/proto/prototxt.h"

/* Passes over a set that is small beside the model's own, and steps that a net needs to begin with.
 * What the model's solver says is the most. */
enum { EPOCHS = 100, LEAST_STEPS = 1000, LEARNS_FASTER = 10 };

/* Running statistics go back 1 / (1 - fraction) steps: by Caffe's 0.999 a thousand. */
enum { SHORT_RUN = 10000 };
static const char *const SHORT_RUN_FRACTION = "0.9";

/* ---- fields by their names */

ct_status ct_new_set_field(ProtobufCMessage *m, const char *field, const char *fmt, ...)
{
    char value[64];
    va_list args;

    va_start(args, fmt);
    vsnprintf(value, sizeof(value), fmt, args);
    va_end(args);
    return ct_prototxt_set(m, field, value, "new");
}

ct_status ct_new_set_field_text(ProtobufCMessage *m, const char *field, const char *text)
{
    ct_text quoted = { 0 };
    ct_status status;

    ct_prototxt_quote(text, &quoted);
    status = quoted.failed ? CT_FAIL(CT_ERR_NOMEM, "no memory for %s", field)
                           : ct_prototxt_set(m, field, quoted.text, "new");
    ct_text_destroy(&quoted);
    return status;
}

ct_status ct_new_clear_field(ProtobufCMessage *m, const char *field)
{
    const ProtobufCFieldDescriptor *f = ct_field_find(m->descriptor, field, strlen(field));

    return (f != NULL) ? ct_field_clear(m, f) : CT_OK;
}

/* ---- data layers */

/* The best five of three classes are no measure. */
static bool is_empty_measure(const Ct__LayerParameter *l, int64_t n_class)
{
    return ct_layer_param_is(l, "Accuracy") && (l->accuracy_param != NULL) &&
           ((int64_t)l->accuracy_param->top_k >= n_class);
}

bool ct_new_is_of_test(const Ct__LayerParameter *l)
{
    return (l->n_include > 0) && l->include[0]->has_phase &&
           (l->include[0]->phase == CT__PHASE__TEST);
}

/* Without a set to test with there is nothing to test. */
static void drop_layers(Ct__NetParameter *net, const ct_new_set *s)
{
    size_t kept = 0;

    for (size_t i = 0; i < net->n_layer; i++) {
        if (((s->test == NULL) && ct_new_is_of_test(net->layer[i])) ||
            is_empty_measure(net->layer[i], s->n_class))
            ct__layer_parameter__free_unpacked(net->layer[i], NULL);
        else
            net->layer[kept++] = net->layer[i];
    }
    net->n_layer = kept;
}

/* A border and a cut of the old size become those of the set's; a cut that is larger than the set's
 * pictures goes. */
static ct_status fit_crop(Ct__TransformationParameter *t, const ct_shape *shape)
{
    int64_t h = shape->dim[1], w = shape->dim[2], least = (h < w) ? h : w;

    if ((t->pad > 0) && (h == w)) return ct_new_set_field(&t->base, "crop_size", "%" PRId64, h);
    if ((t->pad == 0) && ((int64_t)t->crop_size <= least)) return CT_OK;
    if (t->crop_size > 0)
        CT_INFO("crop_size %u is left out: the pictures of the set have %" PRId64 " x %" PRId64
                " pixels",
                t->crop_size, h, w);
    CT_TRY(ct_new_clear_field(&t->base, "pad"));
    return ct_new_clear_field(&t->base, "crop_size");
}

/* A mean of each channel, of a set with other channels. */
static ct_status fit_mean(Ct__TransformationParameter *t, const ct_new_set *s)
{
    float sum = 0.0f;

    if ((t->n_mean_value < 2) || (s->shape.dim[0] == (int64_t)t->n_mean_value)) return CT_OK;
    for (size_t i = 0; i < t->n_mean_value; i++) sum += t->mean_value[i];
    return ct_new_set_field(&t->base, "mean_value", "[%.6g]",
                            (double)sum / (double)t->n_mean_value);
}

/* Pictures of a set with labels have one size; images with boxes are resized from their own. */
static ct_status fit_size(Ct__LayerParameter *l, const ct_new_set *s)
{
    if (s->kind == CT_NEW_BOXES) return CT_OK;
    CT_TRY(ct_new_set_field(&l->base, "data_param.synthetic_shape.dim",
                            "[%" PRId64 ", %" PRId64 ", %" PRId64 "]", s->shape.dim[0],
                            s->shape.dim[1], s->shape.dim[2]));
    return (l->transform_param != NULL) ? fit_crop(l->transform_param, &s->shape) : CT_OK;
}

static ct_status fit_pictures(Ct__LayerParameter *l, const ct_new_set *s)
{
    bool test = ct_new_is_of_test(l);
    int64_t n = test ? s->n_test : s->n_train, batch = 1;

    if (l->data_param == NULL)
        return CT_FAIL(CT_ERR_CONFIG, "layer \"%s\": no data_param", l->name);
    if (l->data_param->has_batch_size) batch = l->data_param->batch_size;
    if (batch > n) batch = n;
    CT_TRY(ct_new_set_field_text(&l->base, "data_param.source", test ? s->test : s->train));
    CT_TRY(ct_new_set_field(&l->base, "data_param.backend", "LMDB"));
    CT_TRY(ct_new_set_field(&l->base, "data_param.batch_size", "%" PRId64, batch));
    CT_TRY(fit_size(l, s));
    return (l->transform_param != NULL) ? fit_mean(l->transform_param, s) : CT_OK;
}

static bool wants_mean(const Ct__LayerParameter *l)
{
    return ct_layer_param_is(l, "Data") && (l->transform_param != NULL) &&
           (l->transform_param->mean_file != NULL);
}

bool ct_new_wants_mean(const Ct__NetParameter *net)
{
    for (size_t i = 0; i < net->n_layer; i++)
        if (wants_mean(net->layer[i])) return true;
    return false;
}

ct_status ct_new_set_mean(Ct__NetParameter *net, const char *mean)
{
    for (size_t i = 0; i < net->n_layer; i++)
        if (wants_mean(net->layer[i]))
            CT_TRY(ct_new_set_field_text(&net->layer[i]->transform_param->base, "mean_file", mean));
    return CT_OK;
}

/* ---- classes */

static bool has_top(const Ct__LayerParameter *l, const char *blob)
{
    for (size_t t = 0; t < l->n_top; t++)
        if (strcmp(l->top[t], blob) == 0) return true;
    return false;
}

/* The layer whose outputs are the loss's scores: behind it come only layers that keep their number.
 * NULL: there is none. */
static Ct__LayerParameter *find_scores(const Ct__NetParameter *net, size_t loss)
{
    const char *blob = net->layer[loss]->bottom[0];

    for (size_t i = loss; i-- > 0;) {
        Ct__LayerParameter *l = net->layer[i];

        if (!has_top(l, blob)) continue;
        if (ct_layer_param_is(l, "InnerProduct") || ct_layer_param_is(l, "Convolution")) return l;
        if (!ct_layer_param_is(l, "Pooling") && !ct_layer_param_is(l, "ReLU") &&
            !ct_layer_param_is(l, "Dropout"))
            return NULL;
        blob = l->bottom[0];
    }
    return NULL;
}

ct_status ct_new_rename(Ct__LayerParameter *l, double times)
{
    ct_text name = { 0 };
    ct_status status;

    ct_text_add(&name, "%s_new", l->name);
    status = name.failed ? CT_FAIL(CT_ERR_NOMEM, "no memory for a name")
                         : ct_new_set_field_text(&l->base, "name", name.text);
    ct_text_destroy(&name);
    for (size_t i = 0; (i < l->n_param) && (status == CT_OK); i++)
        status = ct_new_set_field(&l->param[i]->base, "lr_mult", "%.6g",
                                  (double)l->param[i]->lr_mult * times);
    return status;
}

/* Of all losses: as many scores as there are classes. */
static ct_status fit_scores(Ct__NetParameter *net, const ct_new_set *s, const char *weights)
{
    int n = 0;

    for (size_t i = 0; i < net->n_layer; i++) {
        const Ct__LayerParameter *loss = net->layer[i];
        Ct__LayerParameter *l;

        if (!ct_layer_param_is(loss, "SoftmaxWithLoss") || (loss->n_bottom < 2)) continue;
        l = find_scores(net, i);
        if (l == NULL) continue;
        CT_TRY(ct_new_set_field(&l->base,
                                ct_layer_param_is(l, "Convolution")
                                    ? "convolution_param.num_output"
                                    : "inner_product_param.num_output",
                                "%" PRId64, s->n_class));
        if (s->kind != CT_NEW_PICTURES)
            CT_TRY(ct_new_fit_tables(net, s, weights, l));
        else if (weights != NULL)
            CT_TRY(ct_new_rename(l, LEARNS_FASTER));
        n++;
    }
    if (n > 0) return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG,
                   "net \"%s\" has no SoftmaxWithLoss of a layer's scores, so it tells no classes "
                   "apart",
                   (net->name != NULL) ? net->name : "");
}

static ct_status fit_classes(Ct__NetParameter *net, const ct_new_set *s, const char *weights)
{
    CT_TRY((s->kind == CT_NEW_BOXES) ? ct_new_fit_boxes(net, s, weights)
                                     : fit_scores(net, s, weights));
    if (s->names.n == 0) return ct_new_clear_field(&net->base, "class_name");
    CT_TRY(ct_new_clear_field(&net->base, "class_name"));
    net->class_name = calloc((size_t)s->names.n, sizeof(net->class_name[0]));
    if (net->class_name == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for names of classes");
    for (int64_t c = 0; c < s->names.n; c++) {
        net->class_name[c] = strdup(s->names.name[c]);
        if (net->class_name[c] == NULL)
            return CT_FAIL(CT_ERR_NOMEM, "no memory for names of classes");
        net->n_class_name++;
    }
    return CT_OK;
}

ct_status ct_new_fit_net(Ct__NetParameter *net, const ct_new_set *s, const char *weights)
{
    drop_layers(net, s);
    for (size_t i = 0; i < net->n_layer; i++) {
        if (!ct_layer_param_is(net->layer[i], ct_new_kind_layer(s->kind))) continue;
        if (ct_new_is_of_pictures(s->kind))
            CT_TRY(fit_pictures(net->layer[i], s));
        else
            CT_TRY(ct_new_fit_text(net->layer[i], s));
    }
    return fit_classes(net, s, weights);
}

/* ---- the solver */

/* Of the data layer of a phase: samples of the set, and those that it reads at once. */
typedef struct reading {
    int64_t samples, batch;
} reading;

static reading read_by(const Ct__NetParameter *net, const ct_new_set *s, bool test)
{
    int64_t n = test ? s->n_test : s->n_train;

    for (size_t i = 0; i < net->n_layer; i++) {
        const Ct__LayerParameter *l = net->layer[i];

        if (!ct_layer_param_is(l, ct_new_kind_layer(s->kind)) || (ct_new_is_of_test(l) != test))
            continue;
        if (ct_new_is_of_pictures(s->kind)) return (reading){ n, l->data_param->batch_size };
        return (reading){ ct_new_text_samples(l, n), (s->kind == CT_NEW_TOKENS)
                                                         ? l->token_data_param->batch_size
                                                         : l->text_data_param->batch_size };
    }
    return (reading){ n, 1 };
}

static int64_t up(int64_t n, int64_t by)
{
    return (n + by - 1) / by;
}

/* Steps of another number of steps; one at least. */
static int32_t scaled(int32_t step, double ratio)
{
    double v = (double)step * ratio;

    return (v < 1.0) ? 1 : (int32_t)v;
}

ct_status ct_new_fit_statistics(Ct__NetParameter *net, const Ct__SolverParameter *s)
{
    int n = 0;

    if (s->max_iter >= SHORT_RUN) return CT_OK;
    for (size_t i = 0; i < net->n_layer; i++) {
        Ct__LayerParameter *l = net->layer[i];

        if (!ct_layer_param_is(l, "BatchNorm")) continue;
        if ((l->batch_norm_param != NULL) && l->batch_norm_param->has_moving_average_fraction)
            continue;
        CT_TRY(ct_new_set_field(&l->base, "batch_norm_param.moving_average_fraction", "%s",
                                SHORT_RUN_FRACTION));
        n += 1;
    }
    if (n > 0)
        CT_INFO("BatchNorm: moving_average_fraction %s in %d layers, since Caffe's 0.999 goes back "
                "1000 steps, and this run has %d",
                SHORT_RUN_FRACTION, n, s->max_iter);
    return CT_OK;
}

static ct_status fit_tests(Ct__SolverParameter *s, const Ct__NetParameter *net,
                           const ct_new_set *set_, int64_t epoch)
{
    int64_t interval = 5 * epoch;
    reading r = read_by(net, set_, true);

    CT_TRY(ct_new_clear_field(&s->base, "test_iter"));
    CT_TRY(ct_new_clear_field(&s->base, "test_interval"));
    if (set_->test == NULL) return CT_OK;
    CT_TRY(ct_new_set_field(&s->base, "test_iter", "[%" PRId64 "]", up(r.samples, r.batch)));
    if (interval < 100) interval = 100;
    if (interval > s->max_iter) interval = s->max_iter;
    return ct_new_set_field(&s->base, "test_interval", "%" PRId64, interval);
}

ct_status ct_new_fit_solver(Ct__SolverParameter *s, const Ct__NetParameter *net,
                            const ct_new_set *set_)
{
    int64_t iter_size = (s->iter_size > 0) ? s->iter_size : 1, was = s->max_iter, steps;
    reading r = read_by(net, set_, false);
    int64_t epoch = up(r.samples, r.batch * iter_size);
    double ratio;

    steps = EPOCHS * epoch;
    if (steps < LEAST_STEPS) steps = LEAST_STEPS;
    if ((was > 0) && (steps > was)) steps = was;
    ratio = (was > 0) ? (double)steps / (double)was : 1.0;
    CT_TRY(ct_new_set_field(&s->base, "max_iter", "%" PRId64, steps));
    for (size_t i = 0; i < s->n_stepvalue; i++) s->stepvalue[i] = scaled(s->stepvalue[i], ratio);
    if ((s->warmup != NULL) && (s->warmup->iterations > steps / 10))
        s->warmup->iterations = (int32_t)(steps / 10);
    if (s->has_stepsize) s->stepsize = scaled(s->stepsize, ratio);
    if (s->snapshot > steps) CT_TRY(ct_new_set_field(&s->base, "snapshot", "%" PRId64, steps));
    if (s->display > 20) CT_TRY(ct_new_set_field(&s->base, "display", "20"));
    CT_INFO("%" PRId64 " steps, %.1f passes over %" PRId64 " %s; the model's own has %" PRId64,
            steps, (double)steps / (double)epoch, r.samples, ct_new_kind_samples(set_->kind), was);
    return fit_tests(s, net, set_, epoch);
}
