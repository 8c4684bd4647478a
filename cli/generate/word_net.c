#include "cli/generate/word_net.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "framework/proto/upgrade.h"
#include "framework/snapshot/snapshot.h"

struct ct_word_net {
    ct_source_map *map;
    Ct__NetParameter *param;
    ct_net *net;
    int input; /* layer */
    int64_t n_score;
    float *log; /* [n_score], where the output is probabilities; NULL: it is scores */
    bool begins;
};

static bool is_recurrent(const Ct__LayerParameter *l)
{
    return ct_layer_param_is(l, "LSTM") || ct_layer_param_is(l, "RNN");
}

bool ct_is_word_net(const Ct__NetParameter *param)
{
    for (size_t i = 0; i < param->n_layer; i++)
        if (is_recurrent(param->layer[i])) return true;
    return false;
}

/* ---- the net: one step of one column */

static ct_status shape_input(const Ct__LayerParameter *l)
{
    Ct__InputParameter *in = l->input_param;

    if ((in == NULL) || (in->n_shape == 0) || (l->n_top > 2))
        return CT_FAIL(CT_ERR_CONFIG,
                       "layer \"%s\": a net of words has one Input with the tops words and where "
                       "texts begin, and their shape, steps x columns",
                       l->name);
    for (size_t s = 0; s < in->n_shape; s++) {
        if (in->shape[s]->n_dim != 2)
            return CT_FAIL(CT_ERR_CONFIG,
                           "layer \"%s\": shape %zu of the Input has %zu axes, expected 2, steps "
                           "and columns",
                           l->name, s, in->shape[s]->n_dim);
        in->shape[s]->dim[0] = in->shape[s]->dim[1] = 1;
    }
    return CT_OK;
}

static ct_status shape_inputs(const Ct__NetParameter *param)
{
    for (size_t i = 0; i < param->n_layer; i++)
        if (ct_layer_param_is(param->layer[i], "Input")) CT_TRY(shape_input(param->layer[i]));
    return CT_OK;
}

static bool is_softmax(const ct_layer *l)
{
    return strcmp(l->ops->type, "Softmax") == 0;
}

/* Of one word there is nothing that a layer could mix; but with more of them, as it was trained, it
 * might have. */
static bool is_apart(const ct_layer *l, const ct_instance *in)
{
    const ct_sequence_ops *ops = l->ops->sequence;

    if (is_softmax(l)) { /* of the scores of each word, not of steps or columns */
        const Ct__SoftmaxParameter *s = l->param->softmax_param;
        int axis = (s != NULL) ? s->axis : 1;

        return ((axis < 0) ? axis + in->bottom[0]->data.shape.ndim : axis) >= 2;
    }
    if (is_recurrent(l->param) || (l->ops->alias & CT_ALIAS_DATA)) return true;
    if ((ops == NULL) || ops->packs || ops->pools) return false;
    return (ops->apart == NULL) || ops->apart(l, in, 2);
}

static ct_status check_layers(ct_word_net *p)
{
    int n = 0;

    for (int i = 0; i < p->net->n_layer; i++) {
        const ct_layer *l = p->net->layer[i];

        if (!l->ops->is_data && !is_apart(l, p->net->pass->instance[i]))
            return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                                 "it mixes words, or may do so: the net cannot run word by word");
        if (!l->ops->is_data) continue;
        if (!l->ops->keeps_top || (++n > 1))
            return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                                 "a net of words has one Input, and no other data: use the deploy "
                                 "net");
        p->input = i;
    }
    return (n == 1) ? CT_OK : CT_FAIL(CT_ERR_CONFIG, "net \"%s\" has no Input", p->net->name);
}

static ct_status take_output(ct_word_net *p)
{
    const ct_net *net = p->net;
    const ct_layer *l;

    if (net->n_output != 1)
        return CT_FAIL(CT_ERR_CONFIG,
                       "net \"%s\" has %d outputs, expected one: a score for each "
                       "word",
                       net->name, net->n_output);
    l = net->layer[net->output[0].layer];
    p->n_score = ct_shape_count(&net->pass->blob[net->output[0].blob]->data.shape, 0, -1);
    if (!is_softmax(l)) return CT_OK;
    p->log = calloc((size_t)p->n_score + 1, sizeof(p->log[0]));
    return (p->log != NULL) ? CT_OK : CT_FAIL(CT_ERR_NOMEM, "no memory for scores");
}

static ct_status make(const char *model, ct_word_net *p)
{
    ct_net_options o = { .phase = CT_TEST,
                         .forward_only = true,
                         .env = { .n_rank = 1, .seed = 1 } };

    CT_TRY(ct_source_map_create(&p->map));
    CT_TRY(ct_net_read(model, p->map, &p->param));
    CT_TRY(shape_inputs(p->param));
    o.map = p->map;
    CT_TRY(ct_net_create(p->param, &o, &p->net));
    CT_TRY(check_layers(p));
    return take_output(p);
}

ct_status ct_word_net_make(const char *model, ct_word_net **p_p)
{
    ct_word_net *p = calloc(1, sizeof(*p));
    ct_status status;

    if (p == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a net");
    status = make(model, p);
    if (status != CT_OK) {
        ct_word_net_destroy(p);
        return status;
    }
    *p_p = p;
    return CT_OK;
}

void ct_word_net_destroy(ct_word_net *p)
{
    if (p == NULL) return;
    ct_net_destroy(p->net);
    if (p->param != NULL) ct__net_parameter__free_unpacked(p->param, NULL);
    ct_source_map_destroy(p->map);
    free(p->log);
    free(p);
}

ct_status ct_word_net_load(ct_word_net *p, const char *files)
{
    CT_TRY(ct_weights_load_all(files, p->net));
    ct_net_settle(p->net);
    return CT_OK;
}

ct_status ct_word_net_check_ids(const ct_word_net *p, int64_t n, const char *source)
{
    const ct_net *net = p->net;

    for (int i = 0; i < net->n_layer; i++) {
        const Ct__EmbedParameter *e = net->layer[i]->param->embed_param;

        if ((e != NULL) && net->layer[i]->ops->reads_tokens && ((int64_t)e->input_dim != n))
            return CT_LAYER_FAIL(net->layer[i], CT_ERR_CONFIG,
                                 "it has %" PRIu32 " rows, and %s has %" PRId64 " words",
                                 e->input_dim, source, n);
    }
    if (p->n_score == n) return CT_OK;
    return CT_LAYER_FAIL(net->layer[net->output[0].layer], CT_ERR_CONFIG,
                         "it makes %" PRId64 " scores, and %s has %" PRId64 " words", p->n_score,
                         source, n);
}

/* ---- running it */

void ct_word_net_begin(ct_word_net *p)
{
    p->begins = true;
}

ct_status ct_word_net_run(ct_word_net *p, int32_t id, const float **score_p)
{
    const ct_instance *in = p->net->pass->instance[p->input];
    const float *out;

    ct_blob_data(in->top[0])[0] = (float)id;
    if (p->net->layer[p->input]->n_top > 1) ct_blob_data(in->top[1])[0] = p->begins ? 0.0f : 1.0f;
    p->begins = false;
    CT_TRY(ct_pass_forward(p->net->pass, NULL));
    out = ct_blob_data(p->net->pass->blob[p->net->output[0].blob]);
    for (int64_t i = 0; (p->log != NULL) && (i < p->n_score); i++) p->log[i] = logf(out[i]);
    *score_p = (p->log != NULL) ? p->log : out;
    return CT_OK;
}
