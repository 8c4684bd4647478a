#include "framework/net/sequence.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/memory.h"

/* A net in one shape. */
typedef struct shape {
    ct_net *net;
    int64_t tokens;
    int input, output; /* blobs */
} shape;

enum { CHUNK, ONE, N_SHAPE };

struct ct_decoder {
    shape shape[N_SHAPE]; /* ONE: without a net where a chunk is one token */
    int64_t classes, version;
};

struct ct_sequence {
    ct_decoder *decoder;
    ct_sequence_at at;
    void **kept; /* of each layer */
    void *work;
};

/* ---- what a net must be */

static ct_status check_shape(const ct_layer *l, const ct_blob *b, int64_t tokens)
{
    const ct_shape *s = &b->data.shape;

    if ((s->ndim >= 2) && (s->dim[0] == 1) && (s->dim[1] == tokens)) return CT_OK;
    return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                         "blob \"%s\" has shape %s with 1 sequence of %" PRId64 " tokens: a net "
                         "that runs token by token needs sequences x tokens in front",
                         b->name, ct_shape_str(s).text, tokens);
}

static ct_status check_layer(const ct_net *net, int i, shape *s)
{
    const ct_layer *l = net->layer[i];
    const ct_instance *in = net->pass->instance[i];
    const ct_sequence_ops *ops = l->ops->sequence;

    for (int t = 0; !l->ops->is_data && (t < l->n_top); t++)
        CT_TRY(check_shape(l, in->top[t], s->tokens));
    if (l->ops->is_data) {
        if (!l->ops->keeps_top || (l->n_top != 1) || (s->input >= 0))
            return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                                 "a net that runs token by token has one Input with one top, the "
                                 "ids of tokens: use the deploy net");
        s->input = ct_net_find_blob(net, in->top[0]->name);
        return CT_OK;
    }
    if ((ops != NULL) && ((ops->apart == NULL) || ops->apart(l, in, 2))) return CT_OK;
    return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                         "it mixes tokens, or may do so: the net cannot run token by token");
}

static ct_status check_net(shape *s)
{
    const ct_net *net = s->net;

    s->input = -1;
    for (int i = 0; i < net->n_layer; i++) CT_TRY(check_layer(net, i, s));
    if (s->input < 0)
        return CT_FAIL(CT_ERR_CONFIG, "net \"%s\" has no Input with the ids of tokens", net->name);
    if (net->n_output != 1)
        return CT_FAIL(CT_ERR_CONFIG,
                       "net \"%s\" has %d outputs: one is needed, the scores of the next token",
                       net->name, net->n_output);
    s->output = net->output[0].blob;
    return CT_OK;
}

static ct_status make_shape(const Ct__NetParameter *param, const ct_net_options *options,
                            ct_net *share, int64_t tokens, shape *s)
{
    ct_net_options own = *options;

    own.env.sequence_tokens = tokens;
    own.forward_only = own.fixed = true;
    own.share = share;
    s->tokens = tokens;
    CT_TRY(ct_net_create(param, &own, &s->net));
    return check_net(s);
}

ct_status ct_decoder_create(const Ct__NetParameter *param, const ct_net_options *options,
                            int64_t chunk, ct_decoder **d_p)
{
    ct_decoder *d = calloc(1, sizeof(*d));
    shape *s;
    ct_status status = CT_OK;

    if (d == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a decoder");
    s = d->shape;
    CT_TRY_GOTO(status, fail, make_shape(param, options, NULL, chunk, &s[CHUNK]));
    if (chunk > 1) CT_TRY_GOTO(status, fail, make_shape(param, options, s[CHUNK].net, 1, &s[ONE]));
    d->classes = ct_shape_count(&s[CHUNK].net->pass->blob[s[CHUNK].output]->data.shape, 2, -1);
    *d_p = d;
    return CT_OK;
fail:
    ct_decoder_destroy(d);
    return status;
}

void ct_decoder_destroy(ct_decoder *d)
{
    if (d == NULL) return;
    ct_net_destroy(d->shape[ONE].net);
    ct_net_destroy(d->shape[CHUNK].net);
    free(d);
}

ct_net *ct_decoder_net(const ct_decoder *d)
{
    return d->shape[CHUNK].net;
}

int64_t ct_decoder_classes(const ct_decoder *d)
{
    return d->classes;
}

/* The layer that makes a blob: the last one, where some run in place. */
static const ct_layer *maker_of(const ct_net *net, const char *blob)
{
    const ct_layer *l = net->layer[net->n_layer - 1];

    for (int i = 0; i < net->n_layer; i++) {
        for (int t = 0; t < net->layer[i]->n_top; t++) {
            if (strcmp(net->pass->instance[i]->top[t]->name, blob) == 0) l = net->layer[i];
        }
    }
    return l;
}

ct_status ct_decoder_check_ids(const ct_decoder *d, int64_t n, const char *tokenizer)
{
    const ct_net *net = d->shape[CHUNK].net;

    for (int i = 0; i < net->n_layer; i++) {
        const ct_layer *l = net->layer[i];
        const Ct__EmbedParameter *p = l->param->embed_param;

        if ((strcmp(l->ops->type, "Embed") == 0) && (n > (int64_t)p->input_dim))
            return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                                 "%s has %" PRId64 " ids, but embed_param.input_dim is %u",
                                 tokenizer, n, p->input_dim);
    }
    if (n > d->classes)
        return CT_LAYER_FAIL(maker_of(net, net->pass->blob[d->shape[CHUNK].output]->name),
                             CT_ERR_CONFIG,
                             "%s has %" PRId64 " ids, but the net scores %" PRId64 " tokens",
                             tokenizer, n, d->classes);
    return CT_OK;
}

/* ---- sequences */

/* What each layer keeps, and room for the call that needs most. */
static ct_status reserve(ct_sequence *s)
{
    const ct_net *net = ct_decoder_net(s->decoder);
    size_t most = 0;

    s->kept = calloc((size_t)net->n_layer + 1, sizeof(s->kept[0]));
    if (s->kept == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a sequence");
    for (int i = 0; i < net->n_layer; i++) {
        const ct_layer *l = net->layer[i];
        size_t kept = 0, work = 0;

        if ((l->ops->sequence == NULL) || (l->ops->sequence->keep == NULL)) continue;
        CT_TRY(l->ops->sequence->keep(l, net->pass->instance[i], s->at.capacity, &kept, &work));
        if (work > most) most = work;
        if (kept == 0) continue;
        s->kept[i] = ct_mem_acquire(kept);
        if (s->kept[i] == NULL)
            return CT_LAYER_FAIL(l, CT_ERR_NOMEM, "no memory for %" PRId64 " tokens of a sequence",
                                 s->at.capacity);
        memset(s->kept[i], 0, kept);
    }
    if (most == 0) return CT_OK;
    s->work = ct_mem_acquire(most);
    return (s->work != NULL) ? CT_OK : CT_FAIL(CT_ERR_NOMEM, "no memory for a sequence");
}

ct_status ct_sequence_open(ct_decoder *d, int64_t capacity, ct_sequence **s_p)
{
    ct_sequence *s;
    ct_status status;

    if (capacity < 1) return CT_FAIL(CT_ERR_ARG, "a sequence of %" PRId64 " tokens", capacity);
    s = calloc(1, sizeof(*s));
    if (s == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a sequence");
    s->decoder = d;
    s->at.capacity = capacity;
    status = reserve(s);
    s->at.kept = s->kept;
    s->at.work = s->work;
    if (status != CT_OK) {
        ct_sequence_close(s);
        return status;
    }
    *s_p = s;
    return CT_OK;
}

void ct_sequence_close(ct_sequence *s)
{
    if (s == NULL) return;
    for (int i = 0; (s->kept != NULL) && (i < ct_decoder_net(s->decoder)->n_layer); i++)
        ct_mem_release(s->kept[i]);
    free(s->kept);
    ct_mem_release(s->work);
    free(s);
}

int64_t ct_sequence_length(const ct_sequence *s)
{
    return s->at.length;
}

/* One pass: n tokens, at most as many as its shape has. What stands behind them counts for nothing,
 * as no token sees those that follow it. */
static ct_status feed_pass(ct_sequence *s, const shape *by, const int32_t *id, int64_t n)
{
    ct_pass *pass = by->net->pass;
    float *in = ct_blob_data(pass->blob[by->input]);
    ct_status status;

    for (int64_t i = 0; i < by->tokens; i++) in[i] = (i < n) ? (float)id[i] : 0.0f;
    s->at.fresh = n;
    pass->exec.phase = CT_TEST;
    pass->exec.sequence = &s->at;
    status = ct_pass_forward(pass, NULL);
    pass->exec.sequence = NULL;
    if (status == CT_OK) s->at.length += n;
    return status;
}

/* Weights may have been loaded since. */
static void meet_weights(ct_decoder *d)
{
    const ct_net *net = ct_decoder_net(d);

    if ((d->shape[ONE].net == NULL) || (d->version == net->weight_version)) return;
    ct_net_weights_changed(d->shape[ONE].net);
    d->version = net->weight_version;
}

ct_status ct_sequence_feed(ct_sequence *s, const int32_t *id, int64_t n, const float **logits_p)
{
    ct_decoder *d = s->decoder;
    const shape *by = NULL;
    int64_t now = 0;

    if ((n < 1) || (n > s->at.capacity - s->at.length))
        return CT_FAIL(CT_ERR_ARG,
                       "%" PRId64 " tokens for a sequence that has %" PRId64 " of %" PRId64, n,
                       s->at.length, s->at.capacity);
    meet_weights(d);
    for (int64_t i = 0; i < n; i += now) {
        by = ((n - i == 1) && (d->shape[ONE].net != NULL)) ? &d->shape[ONE] : &d->shape[CHUNK];
        now = (n - i < by->tokens) ? n - i : by->tokens;
        CT_TRY(feed_pass(s, by, id + i, now));
    }
    *logits_p = ct_blob_data(by->net->pass->blob[by->output]) + (now - 1) * d->classes;
    return CT_OK;
}
