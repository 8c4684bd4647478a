#include "serve/net/served.h"

#include <stdlib.h>

#include "framework/proto/upgrade.h"
#include "framework/snapshot/snapshot.h"

struct ct_served {
    ct_source_map *map;
    Ct__NetParameter *param;
    ct_packed_net *net;
};

static ct_status open_net(const ct_served_options *o, ct_served *s)
{
    int64_t tokens = (o->most_tokens > 0) ? o->most_tokens : CT_SERVED_TOKENS;
    ct_packed_most most = { .tokens = tokens,
                            .sequences = (o->most > 0) ? o->most : tokens,
                            .cached = o->cached,
                            .length = o->most_length };
    ct_net_options net = { .phase = CT_TEST, .env = { .n_rank = 1, .seed = 1 } };

    CT_TRY(ct_source_map_create(&s->map));
    CT_TRY(ct_net_read(o->model, s->map, &s->param));
    net.map = s->map;
    if (o->bf16) net.env.precision = CT__SOLVER_PARAMETER__PRECISION__BF16;
    CT_TRY(ct_packed_net_create(s->param, &net, &most, &s->net));
    return (o->weights != NULL) ? ct_weights_load_all(o->weights, ct_packed_net_of(s->net)) : CT_OK;
}

ct_status ct_served_open(const ct_served_options *o, ct_served **s_p)
{
    ct_served *s = calloc(1, sizeof(*s));
    ct_status status;

    if (s == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a net");
    status = open_net(o, s);
    if (status != CT_OK) {
        ct_served_close(s);
        return status;
    }
    *s_p = s;
    return CT_OK;
}

void ct_served_close(ct_served *s)
{
    if (s == NULL) return;
    ct_packed_net_destroy(s->net);
    if (s->param != NULL) ct__net_parameter__free_unpacked(s->param, NULL);
    ct_source_map_destroy(s->map);
    free(s);
}

ct_packed_net *ct_served_net(const ct_served *s)
{
    return s->net;
}
