#include "serve/net/any_model.h"

#include <inttypes.h>
#include <stdlib.h>

#include "serve/net/image_model.h"
#include "serve/net/token_model.h"

struct ct_any_model {
    ct_token_model *tokens; /* one of both */
    ct_image_model *pictures;
    const ct_deployed_division *division; /* of the net; NULL: this rank runs it alone */
    int64_t most;
};

static ct_status make_pictures(const ct_deployed *net, const ct_any_model_options *o,
                               ct_any_model *m)
{
    ct_pictures *pictures;

    if (o->tokenizer != NULL)
        return CT_FAIL(CT_ERR_CONFIG, "%s=%s: the net takes pictures, and no tokens",
                       o->tokenizer_place, ct_tokenizer_source(o->tokenizer));
    CT_TRY(ct_deployed_make_pictures(net, &pictures));
    m->most = ct_sample_net_most(ct_deployed_samples(net));
    return ct_image_model_create(ct_deployed_samples(net), pictures, o->name, o->labels,
                                 o->labels_place, &m->pictures);
}

static ct_status make_tokens(const ct_deployed *net, const ct_any_model_options *o, ct_any_model *m)
{
    const ct_tokenizer *t = o->tokenizer;
    int64_t n_id = ct_packed_net_ids(ct_deployed_net(net));

    if (o->labels != NULL)
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s=%s: the net takes tokens, and no pictures that have classes",
                       o->labels_place, o->labels);
    if ((t != NULL) && (ct_tokenizer_size(t) > n_id))
        return CT_FAIL(CT_ERR_CONFIG, "%s=%s has ids up to %" PRId64 ", the net %" PRId64,
                       o->tokenizer_place, ct_tokenizer_source(t), ct_tokenizer_size(t) - 1,
                       n_id - 1);
    m->most = ct_packed_net_most_tokens(ct_deployed_net(net));
    CT_TRY(ct_token_model_create(ct_deployed_net(net), t, o->name, &m->tokens));
    if (t == NULL) ct_token_model_score(m->tokens, o->n_token);
    return CT_OK;
}

ct_status ct_any_model_create(const ct_deployed *net, const ct_any_model_options *o,
                              ct_any_model **m_p)
{
    ct_any_model *m = calloc(1, sizeof(*m));
    ct_status status;

    if (m == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a model");
    m->division = ct_deployed_division_of(net);
    status = (ct_deployed_samples(net) != NULL) ? make_pictures(net, o, m) : make_tokens(net, o, m);
    if (status != CT_OK) {
        ct_any_model_destroy(m);
        return status;
    }
    *m_p = m;
    return CT_OK;
}

ct_status ct_any_model_accepts(const ct_any_model *m, const ct_deployed *net)
{
    if ((m->pictures != NULL) != (ct_deployed_samples(net) != NULL))
        return CT_FAIL(CT_ERR_CONFIG, "the net is another than the one that was opened first");
    if (m->pictures != NULL) return ct_image_model_accepts(m->pictures, ct_deployed_samples(net));
    return ct_token_model_accepts(m->tokens, ct_deployed_net(net));
}

void ct_any_model_swap(ct_any_model *m, const ct_deployed *net)
{
    if (m->pictures != NULL)
        ct_image_model_swap(m->pictures, ct_deployed_samples(net));
    else
        ct_token_model_swap(m->tokens, ct_deployed_net(net));
}

void ct_any_model_destroy(ct_any_model *m)
{
    if (m == NULL) return;
    ct_image_model_destroy(m->pictures);
    ct_token_model_destroy(m->tokens);
    free(m);
}

const ct_served_model *ct_any_model_served(const ct_any_model *m)
{
    return (m->pictures != NULL) ? ct_image_model_served(m->pictures)
                                 : ct_token_model_served(m->tokens);
}

int64_t ct_any_model_most(const ct_any_model *m)
{
    return m->most;
}

ct_status ct_any_model_measure(ct_any_model *m, double limit_s, ct_batch_cost *cost)
{
    if (m->pictures != NULL) return ct_image_model_measure(m->pictures, limit_s, cost);
    return ct_token_model_measure(m->tokens, limit_s, m->division, cost);
}
