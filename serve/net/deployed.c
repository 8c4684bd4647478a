#include "serve/net/deployed.h"

#include <stdlib.h>
#include <string.h>

#include "framework/proto/upgrade.h"
#include "framework/snapshot/snapshot.h"

struct ct_deployed {
    ct_source_map *map;
    Ct__NetParameter *param;
    ct_packed_net *net; /* one of both */
    ct_sample_net *samples;
    const ct_deployed_division *division; /* of what options had; NULL: none */
    void *part;
};

/* Whether texts can go on: there is attention, and each token sees those before it, and no other.
 */
static bool is_causal(const Ct__NetParameter *net)
{
    bool some = false;

    for (size_t i = 0; i < net->n_layer; i++) {
        const Ct__LayerParameter *l = net->layer[i];

        if (!ct_layer_param_is(l, "Attention")) continue;
        if ((l->attention_param == NULL) || !l->attention_param->causal) return false;
        if (l->n_bottom % 2 == 0) return false; /* numbers of segments */
        some = true;
    }
    return some;
}

/* Tokens of a sequence: those of the first Input, and at least those of a table of positions. */
static int64_t length_of(const Ct__NetParameter *net)
{
    int64_t n = 0;

    for (size_t i = 0; i < net->n_layer; i++) {
        const Ct__LayerParameter *l = net->layer[i];
        const Ct__InputParameter *in = l->input_param;

        if ((n == 0) && (in != NULL) && (in->n_shape > 0) && (in->shape[0]->n_dim >= 2))
            n = in->shape[0]->dim[1];
        if ((l->position_param != NULL) && ((int64_t)l->position_param->max_length > n))
            n = l->position_param->max_length;
    }
    return n;
}

static void destroy(ct_deployed *s)
{
    ct_packed_net_destroy(s->net);
    ct_sample_net_destroy(s->samples);
    if (s->division != NULL) s->division->close(s->part);
    if (s->param != NULL) ct__net_parameter__free_unpacked(s->param, NULL);
    ct_source_map_destroy(s->map);
}

static ct_status open_tokens(const ct_deployed_options *o, ct_net_options *net, ct_deployed *s)
{
    int64_t tokens = (o->most_tokens > 0) ? o->most_tokens : CT_DEPLOYED_TOKENS;
    ct_packed_most most = { .tokens = tokens,
                            .sequences = (o->most > 0) ? o->most : tokens,
                            .cached = o->cached,
                            .length = o->most_length };
    const Ct__NetParameter *param = s->param;

    if ((o->cache_bytes > 0) && is_causal(s->param)) {
        most.cached_bytes = o->cache_bytes;
        most.length = length_of(s->param);
    }
    if (o->division != NULL) {
        most.least = o->division->least;
        most.ctx = o->division->ctx;
        CT_TRY(o->division->divide(o->division->ctx, &param, net, &s->part));
    }
    return ct_packed_net_create(param, net, &most, &s->net);
}

static ct_status open_samples(const ct_deployed_options *o, const ct_net_options *net,
                              ct_deployed *s)
{
    int64_t n = ct_sample_net_batch(s->param);

    if (o->division != NULL)
        return CT_FAIL(CT_ERR_CONFIG, "%s: a net of pictures runs whole on each rank", o->model);
    if (n < CT_DEPLOYED_SAMPLES) n = CT_DEPLOYED_SAMPLES;
    return ct_sample_net_create(s->param, net, (o->most_samples > 0) ? o->most_samples : n,
                                &s->samples);
}

static ct_status read_net(const ct_deployed_options *o, ct_deployed *s)
{
    CT_TRY(ct_source_map_create(&s->map));
    CT_TRY(ct_net_read(o->model, s->map, &s->param));
    return ct_net_find_served(s->param, o->model);
}

static ct_status agree(const ct_deployed_options *o, ct_status mine)
{
    return (o->division != NULL) ? o->division->agree(o->division->ctx, mine) : mine;
}

/* plan_only: no memory is taken. */
static ct_status make_net(const ct_deployed_options *o, bool plan_only, ct_deployed *s)
{
    ct_net_options net = { .phase = CT_TEST,
                           .no_data = plan_only,
                           .env = { .n_rank = 1, .seed = 1, .deterministic = o->deterministic } };

    s->division = o->division;
    CT_TRY(agree(o, read_net(o, s)));
    net.map = s->map;
    if (o->bf16) net.env.precision = CT__SOLVER_PARAMETER__PRECISION__BF16;
    if (ct_is_sample_net(s->param)) return open_samples(o, &net, s);
    CT_TRY(ct_pictures_refuse(s->param->serve, s->map, "tokens"));
    return open_tokens(o, &net, s);
}

ct_status ct_deployed_make(const ct_deployed_options *o, ct_deployed **s_p)
{
    ct_deployed *s = calloc(1, sizeof(*s));
    ct_status status;

    if (s == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a net");
    status = agree(o, make_net(o, false, s));
    if (status != CT_OK) {
        ct_deployed_close(s);
        return status;
    }
    if (o->division != NULL) o->division->fill_exec(s->part, &ct_deployed_whole(s)->pass->exec);
    *s_p = s;
    return CT_OK;
}

ct_status ct_deployed_load(ct_deployed *s, const char *weights)
{
    ct_net *whole = ct_deployed_whole(s);

    if ((weights != NULL) && (s->division != NULL))
        CT_TRY(s->division->load(s->part, weights, whole));
    else if (weights != NULL)
        CT_TRY(ct_weights_load_all(weights, whole));
    ct_net_settle(whole);
    return CT_OK;
}

ct_status ct_deployed_open(const ct_deployed_options *o, ct_deployed **s_p)
{
    ct_deployed *s;
    ct_status status;

    CT_TRY(ct_deployed_make(o, &s));
    status = ct_deployed_load(s, o->weights);
    if (status != CT_OK) {
        ct_deployed_close(s);
        return status;
    }
    *s_p = s;
    return CT_OK;
}

ct_status ct_deployed_plan(const ct_deployed_options *o, int64_t tokens, size_t *bytes_p)
{
    ct_deployed_options own = *o;
    ct_deployed s = { .map = NULL };
    ct_status status;

    own.most_tokens = own.most_samples = tokens;
    own.cached = 0;
    own.cache_bytes = 0;
    status = make_net(&own, true, &s);
    if (status == CT_OK) {
        const ct_memory *m = &ct_deployed_whole(&s)->memory;

        *bytes_p = m->planned - m->lasting;
    }
    destroy(&s);
    return status;
}

void ct_deployed_close(ct_deployed *s)
{
    if (s == NULL) return;
    destroy(s);
    free(s);
}

ct_packed_net *ct_deployed_net(const ct_deployed *s)
{
    return s->net;
}

ct_sample_net *ct_deployed_samples(const ct_deployed *s)
{
    return s->samples;
}

ct_net *ct_deployed_whole(const ct_deployed *s)
{
    return (s->samples != NULL) ? ct_sample_net_of(s->samples) : ct_packed_net_of(s->net);
}

ct_status ct_deployed_checksum(const ct_deployed *s, uint64_t *sum_p)
{
    *sum_p = ct_net_checksum(ct_deployed_whole(s), true);
    return (s->division != NULL) ? s->division->combine(s->division->ctx, sum_p) : CT_OK;
}

const ct_deployed_division *ct_deployed_division_of(const ct_deployed *s)
{
    return s->division;
}

ct_status ct_deployed_make_pictures(const ct_deployed *s, ct_pictures **p_p)
{
    return ct_pictures_create(s->param->serve, s->map, ct_sample_net_shape(s->samples), p_p);
}
