/* A net of tokens or of words, fitted to a text. */
#include "cli/new/new.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/log.h"
#include "framework/net/layer.h"
#include "framework/snapshot/model.h"
#include "framework/text/tokenizer.h"

/* ---- data layers */

int64_t ct_new_text_samples(const Ct__LayerParameter *l, int64_t n)
{
    const Ct__TokenDataParameter *t = l->token_data_param;
    const Ct__TextDataParameter *w = l->text_data_param;
    int64_t most;

    if (t != NULL) {
        most = (t->seq_len > 0) ? (n - 1) / t->seq_len : 0;
    } else {
        int64_t columns = (w->batch_size > 0) ? w->batch_size : 1;

        most = (w->steps > 0) ? (n - 1) / columns / w->steps * columns : 0;
    }
    return (most > 1) ? most : 1; /* the layer says where there is less */
}

/* The end of a document, by its name in the set's vocabulary. */
static ct_status fit_end(Ct__LayerParameter *l, const ct_new_set *s)
{
    ct_tokenizer *t = NULL;
    int32_t end;

    if (!l->token_data_param->has_end_token) return CT_OK;
    CT_TRY(ct_tokenizer_open(s->tokenizer, s->pattern, &t));
    end = ct_tokenizer_end(t);
    ct_tokenizer_close(t);
    if (end < 0) return ct_new_clear_field(&l->token_data_param->base, "end_token");
    return ct_new_set_field(&l->base, "token_data_param.end_token", "%d", (int)end);
}

static ct_status fit_tokens(Ct__LayerParameter *l, const ct_new_set *s)
{
    const Ct__TokenDataParameter *p = l->token_data_param;
    bool test = ct_new_is_of_test(l);
    int64_t batch = p->has_batch_size ? p->batch_size : 1;
    int64_t n = ct_new_text_samples(l, test ? s->n_test : s->n_train);

    if (p->mask_ratio > 0.0f)
        return CT_FAIL(CT_ERR_CONFIG,
                       "layer \"%s\" hides tokens (mask_ratio): cortado new fits nets that go on "
                       "with a text",
                       l->name);
    CT_TRY(ct_new_set_field_text(&l->base, "token_data_param.source", test ? s->test : s->train));
    CT_TRY(ct_new_set_field(&l->base, "token_data_param.vocabulary", "%" PRId64, s->n_class));
    CT_TRY(ct_new_set_field(&l->base, "token_data_param.batch_size", "%" PRId64,
                            (batch < n) ? batch : n));
    CT_TRY(ct_new_set_field_text(&l->base, "token_data_param.tokenizer", s->tokenizer));
    CT_TRY(fit_end(l, s));
    if (s->pattern == NULL) return ct_new_clear_field(&l->token_data_param->base, "pattern");
    return ct_new_set_field_text(&l->base, "token_data_param.pattern", s->pattern);
}

/* As many columns as have a batch of words each. */
static ct_status fit_words(Ct__LayerParameter *l, const ct_new_set *s)
{
    const Ct__TextDataParameter *p = l->text_data_param;
    bool test = ct_new_is_of_test(l);
    int64_t batch = p->has_batch_size ? p->batch_size : 1;
    int64_t n = ((test ? s->n_test : s->n_train) - 1) / ((p->steps > 0) ? p->steps : 1);

    if (n < 1) n = 1;
    CT_TRY(ct_new_set_field_text(&l->base, "text_data_param.source", test ? s->test : s->train));
    CT_TRY(ct_new_set_field(&l->base, "text_data_param.batch_size", "%" PRId64,
                            (batch < n) ? batch : n));
    return ct_new_set_field(&l->base, "text_data_param.synthetic_words", "%" PRId64, s->n_class);
}

ct_status ct_new_fit_text(Ct__LayerParameter *l, const ct_new_set *s)
{
    bool tokens = (s->kind == CT_NEW_TOKENS);

    if (tokens ? (l->token_data_param == NULL) : (l->text_data_param == NULL))
        return CT_FAIL(CT_ERR_CONFIG, "layer \"%s\": no %s", l->name,
                       tokens ? "token_data_param" : "text_data_param");
    return tokens ? fit_tokens(l, s) : fit_words(l, s);
}

/* ---- tables */

static bool reads(const Ct__NetParameter *net, ct_new_kind kind, const char *blob)
{
    for (size_t i = 0; i < net->n_layer; i++) {
        const Ct__LayerParameter *l = net->layer[i];

        if (ct_layer_param_is(l, ct_new_kind_layer(kind)) && (l->n_top > 0) &&
            (strcmp(l->top[0], blob) == 0))
            return true;
    }
    return false;
}

/* Rows of the first weight of a layer in a file; 0: the file has no such layer. */
static ct_status rows_of(const char *file, const char *layer, int64_t *rows_p)
{
    ct_model *m = NULL;
    int k;

    CT_TRY(ct_model_open(file, &m));
    k = ct_model_find(m, layer);
    *rows_p = 0;
    if ((k >= 0) && (m->layer[k].n_array > 0) && m->layer[k].array[0].present)
        *rows_p = m->layer[k].array[0].shape.dim[0];
    ct_model_close(m);
    return CT_OK;
}

/* A weight that table and scores have in common is another one from now on, too. */
static ct_status rename_shared(Ct__LayerParameter *l)
{
    for (size_t i = 0; i < l->n_param; i++) {
        ct_text name = { 0 };
        ct_status status;

        if ((l->param[i]->name == NULL) || (l->param[i]->name[0] == '\0')) continue;
        ct_text_add(&name, "%s_new", l->param[i]->name);
        status = name.failed ? CT_FAIL(CT_ERR_NOMEM, "no memory for a name")
                             : ct_new_set_field_text(&l->param[i]->base, "name", name.text);
        ct_text_destroy(&name);
        CT_TRY(status);
    }
    return ct_new_rename(l, 1.0);
}

ct_status ct_new_fit_tables(Ct__NetParameter *net, const ct_new_set *s, const char *weights,
                            Ct__LayerParameter *scores)
{
    bool renames = false;

    for (size_t i = 0; i < net->n_layer; i++) {
        Ct__LayerParameter *l = net->layer[i];
        int64_t rows;

        if (!ct_layer_param_is(l, "Embed") || (l->n_bottom < 1) ||
            !reads(net, s->kind, l->bottom[0]))
            continue;
        CT_TRY(ct_new_set_field(&l->base, "embed_param.input_dim", "%" PRId64, s->n_class));
        if (weights == NULL) continue;
        CT_TRY(rows_of(weights, l->name, &rows));
        if (rows == s->n_class) continue;
        CT_INFO("%s has a table of %" PRId64 " rows, and the set %" PRId64
                " %s: layer \"%s\" and the scores start anew",
                weights, rows, s->n_class, (s->kind == CT_NEW_TOKENS) ? "tokens" : "words",
                l->name);
        CT_TRY(rename_shared(l));
        renames = true;
    }
    return renames ? rename_shared(scores) : CT_OK;
}
