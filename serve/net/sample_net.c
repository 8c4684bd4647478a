#include "serve/net/sample_net.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct ct_sample_net {
    ct_net *net;
    int64_t most;
    int input;         /* layer                               */
    ct_shape in, *out; /* of a batch of `most`; net->n_output */
};

static Ct__LayerParameter *first_input(const Ct__NetParameter *param)
{
    for (size_t i = 0; i < param->n_layer; i++) {
        Ct__LayerParameter *l = param->layer[i];

        if (ct_layer_param_is(l, "Input")) return l;
    }
    return NULL;
}

bool ct_is_sample_net(const Ct__NetParameter *param)
{
    const Ct__LayerParameter *l = first_input(param);
    const Ct__InputParameter *in = (l != NULL) ? l->input_param : NULL;

    return (in != NULL) && (in->n_shape > 0) && (in->shape[0]->n_dim == 4);
}

int64_t ct_sample_net_batch(const Ct__NetParameter *param)
{
    return first_input(param)->input_param->shape[0]->dim[0];
}

static ct_status find_input(ct_sample_net *s)
{
    const ct_net *net = s->net;
    int n = 0;

    for (int i = 0; i < net->n_layer; i++) {
        const ct_layer *l = net->layer[i];

        if (!l->ops->is_data) continue;
        if (!l->ops->keeps_top || (l->n_top != 1) || (++n > 1))
            return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                                 "a net of pictures that is served has one Input with one top, and "
                                 "no other data: use the deploy net");
        s->input = i;
    }
    s->in = net->pass->instance[s->input]->top[0]->data.shape;
    return CT_OK;
}

static ct_status take_outputs(ct_sample_net *s)
{
    const ct_net *net = s->net;

    s->out = calloc((size_t)net->n_output + 1, sizeof(s->out[0]));
    if (s->out == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for the outputs of a net");
    for (int i = 0; i < net->n_output; i++)
        s->out[i] = net->pass->blob[net->output[i].blob]->data.shape;
    for (int i = 0; i < net->n_output; i++) {
        const char *name;
        const ct_shape *shape = ct_sample_net_output(s, i, &name);

        if (ct_sample_net_boxes(s, i) != NULL) continue;
        if ((shape->ndim < 1) || (shape->dim[0] != s->most))
            return CT_LAYER_FAIL(net->layer[net->output[i].layer], CT_ERR_CONFIG,
                                 "output \"%s\" of shape %s has no row for each of the %" PRId64
                                 " samples of a batch: such a net is not served",
                                 name, ct_shape_str(shape).text, s->most);
    }
    if (net->n_output > 0) return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG, "net \"%s\" has no output", net->name);
}

static ct_status make(const Ct__NetParameter *param, const ct_net_options *options,
                      ct_sample_net *s)
{
    ct_net_options own = *options;
    Ct__InputParameter *in = first_input(param)->input_param;

    in->shape[0]->dim[0] = s->most;
    in->varies = in->has_varies = true;
    own.forward_only = true;
    CT_TRY(ct_net_create(param, &own, &s->net));
    CT_TRY(find_input(s));
    return take_outputs(s);
}

ct_status ct_sample_net_create(Ct__NetParameter *param, const ct_net_options *options, int64_t most,
                               ct_sample_net **s_p)
{
    ct_sample_net *s = calloc(1, sizeof(*s));
    ct_status status;

    if (s == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a net");
    s->most = most;
    status = make(param, options, s);
    if (status != CT_OK) {
        ct_sample_net_destroy(s);
        return status;
    }
    *s_p = s;
    return CT_OK;
}

void ct_sample_net_destroy(ct_sample_net *s)
{
    if (s == NULL) return;
    ct_net_destroy(s->net);
    free(s->out);
    free(s);
}

ct_net *ct_sample_net_of(const ct_sample_net *s)
{
    return s->net;
}

int64_t ct_sample_net_most(const ct_sample_net *s)
{
    return s->most;
}

const char *ct_sample_net_input(const ct_sample_net *s)
{
    return s->net->layer[s->input]->param->top[0];
}

const ct_shape *ct_sample_net_shape(const ct_sample_net *s)
{
    return &s->in;
}

const ct_shape *ct_sample_net_output(const ct_sample_net *s, int i, const char **name_p)
{
    *name_p = s->net->pass->blob[s->net->output[i].blob]->name;
    return &s->out[i];
}

const Ct__LayerParameter *ct_sample_net_boxes(const ct_sample_net *s, int i)
{
    const Ct__LayerParameter *l = s->net->layer[s->net->output[i].layer]->param;

    return ct_layer_param_is(l, "DetectionOutput") ? l : NULL;
}

ct_status ct_sample_net_check_rows(const ct_sample_net *s)
{
    for (int i = 0; i < s->net->n_output; i++)
        if (ct_sample_net_boxes(s, i) != NULL)
            return CT_LAYER_FAIL(
                s->net->layer[s->net->output[i].layer], CT_ERR_CONFIG,
                "the net finds boxes, any number of them in a picture, and a reply "
                "has a row for each picture: such a net is not served; cortado "
                "predict says what it finds in files");
    return CT_OK;
}

/* The layer in front of layer i that makes a blob; NULL: none. */
static const Ct__LayerParameter *maker_of(const ct_net *net, int i, const char *blob)
{
    while (i-- > 0) {
        const Ct__LayerParameter *l = net->layer[i]->param;

        for (size_t t = 0; t < l->n_top; t++) {
            if (strcmp(l->top[t], blob) != 0) continue;
            if (!ct_layer_param_is(l, "Flatten")) return l;
            blob = l->bottom[0];
            break;
        }
    }
    return NULL;
}

bool ct_sample_net_is_softmax(const ct_sample_net *s, int i)
{
    int k = s->net->output[i].layer;
    const Ct__LayerParameter *l = s->net->layer[k]->param;

    if (ct_layer_param_is(l, "DetectionOutput")) l = maker_of(s->net, k, l->bottom[1]);
    return (l != NULL) && ct_layer_param_is(l, "Softmax");
}

ct_status ct_sample_net_begin(ct_sample_net *s, int64_t n, float **to_p)
{
    ct_shape shape = s->in;

    shape.dim[0] = n;
    CT_TRY(ct_pass_set_input(s->net->pass, ct_sample_net_input(s), &shape));
    CT_TRY(ct_pass_reshape(s->net->pass));
    *to_p = ct_blob_data(s->net->pass->instance[s->input]->top[0]);
    return CT_OK;
}

ct_status ct_sample_net_run(ct_sample_net *s)
{
    return ct_pass_forward(s->net->pass, NULL);
}

const float *ct_sample_net_rows(const ct_sample_net *s, int i)
{
    return ct_blob_data(s->net->pass->blob[s->net->output[i].blob]);
}

const float *ct_sample_net_found(const ct_sample_net *s, int i, int64_t *n_p)
{
    const ct_tensor *t = &s->net->pass->blob[s->net->output[i].blob]->data;
    const float *row = ct_sample_net_rows(s, i);
    int64_t most = ct_shape_count(&t->shape, 0, -1) / CT_FOUND_ROW, n = 0;

    while ((n < most) && (row[n * CT_FOUND_ROW] >= 0)) n++;
    *n_p = n;
    return row;
}
