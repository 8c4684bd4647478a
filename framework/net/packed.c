#include "framework/net/packed.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "framework/net/net_impl.h"

/* What a blob of a packed net has. */
typedef enum {
    OTHER,
    TOKENS, /* 1 x tokens x …                       */
    ROW,    /* 1 x 1 x tokens: a number a token     */
    POOLED  /* sequences x …: a row of each         */
} blob_kind;

enum { MOST_INPUT = 3 };

struct ct_packed_net {
    ct_net *net;
    ct_packed packed; /* the environment's; at is room for most + 1 */
    int64_t *at;
    int64_t most_tokens, most, longest, ids, columns;
    int n_input;
    const char *input[MOST_INPUT]; /* names; the first one's has the ids */
    float *data[MOST_INPUT];
    int output; /* blob */
    bool pools;
};

/* ---- what a net must be */

static ct_status take_input(ct_packed_net *p, int i)
{
    const ct_layer *l = p->net->layer[i];
    const ct_instance *in = p->net->pass->instance[i];

    if (!l->ops->keeps_top || (p->n_input + l->n_top > MOST_INPUT))
        return CT_LAYER_FAIL(
            l, CT_ERR_CONFIG,
            "a net that runs sequences side by side has an Input with the ids of "
            "tokens first, and at most \"types\" and \"mask\": use the deploy net");
    if (!ct_layer_varies(l->ops, l->param))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "sequences of unlike lengths want input_param { varies: true }");
    for (int t = 0; t < l->n_top; t++) {
        const char *name = in->top[t]->name;

        if ((p->n_input > 0) && (strcmp(name, "types") != 0) && (strcmp(name, "mask") != 0))
            return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                                 "top \"%s\": behind the ids of tokens \"types\" and \"mask\" are "
                                 "known",
                                 name);
        p->input[p->n_input] = name;
        p->data[p->n_input++] = ct_blob_data(in->top[t]);
    }
    return CT_OK;
}

static bool is_tokens(const ct_packed_net *p, const ct_blob *b)
{
    const ct_shape *s = &b->data.shape;

    return (s->ndim >= 2) && (s->dim[0] == 1) && (s->dim[1] == p->most_tokens);
}

static bool is_row(const ct_packed_net *p, const ct_blob *b)
{
    const ct_shape *s = &b->data.shape;

    return (s->ndim == 3) && (s->dim[0] == 1) && (s->dim[1] == 1) && (s->dim[2] == p->most_tokens);
}

static bool all_are(const int *bottom, int n, const blob_kind *kind, blob_kind wanted)
{
    for (int b = 0; b < n; b++) {
        if (kind[bottom[b]] != wanted) return false;
    }
    return n > 0;
}

static bool is_apart(const ct_layer *l, const ct_instance *in, int n_axis)
{
    const ct_sequence_ops *ops = l->ops->sequence;

    return (ops != NULL) && ((ops->apart == NULL) || ops->apart(l, in, n_axis));
}

/* Whether all tops have a row for each sequence. */
static bool has_rows(const ct_packed_net *p, const ct_layer *l, const ct_instance *in)
{
    for (int t = 0; t < l->n_top; t++) {
        const ct_shape *s = &in->top[t]->data.shape;

        if ((s->ndim < 1) || (s->dim[0] != p->most)) return false;
    }
    return true;
}

/* Behind the pooling: whether each row of the tops is of that row of the bottoms alone. What packs
 * would look for the tokens, which are no more. */
static bool keeps_rows(const ct_packed_net *p, const ct_layer *l, const ct_instance *in)
{
    const ct_sequence_ops *ops = l->ops->sequence;
    bool passes = (l->n_bottom == 1) && ((l->ops->alias & CT_ALIAS_DATA) != 0);

    return has_rows(p, l, in) && ((ops == NULL) || !ops->packs) && (passes || is_apart(l, in, 1));
}

/* Whether it makes a row of each sequence of its tokens. */
static bool pools_tokens(const ct_packed_net *p, const ct_layer *l, const ct_instance *in,
                         const int *bottom, const blob_kind *kind)
{
    return (l->n_bottom == 2) && (kind[bottom[0]] == ROW) && (kind[bottom[1]] == TOKENS) &&
           has_rows(p, l, in);
}

/* What layer i makes of such bottoms; OTHER: it mixes sequences, or may do so. */
static blob_kind made_of(const ct_packed_net *p, int i, const int *bottom, const blob_kind *kind)
{
    const ct_layer *l = p->net->layer[i];
    const ct_instance *in = p->net->pass->instance[i];
    const ct_sequence_ops *ops = l->ops->sequence;
    int n = l->n_bottom;

    if (all_are(bottom, n, kind, POOLED)) return keeps_rows(p, l, in) ? POOLED : OTHER;
    if ((ops != NULL) && ops->pools) return pools_tokens(p, l, in, bottom, kind) ? POOLED : OTHER;
    if ((n == 1) && (l->ops->alias & CT_ALIAS_DATA) && (l->n_top > 0) && is_row(p, in->top[0]) &&
        (kind[bottom[0]] != POOLED))
        return ROW;
    if (!all_are(bottom, n, kind, TOKENS) || !is_apart(l, in, 2)) return OTHER;
    for (int t = 0; t < l->n_top; t++) {
        if (!is_tokens(p, in->top[t])) return OTHER;
    }
    return TOKENS;
}

/* kind: of each value. */
static ct_status check_layers(ct_packed_net *p, blob_kind *kind)
{
    const ct_graph *g = &ct_net_impl_of(p->net)->graph;
    const ct_net *net = p->net;

    for (int i = 0; i < net->n_layer; i++) {
        const ct_layer *l = net->layer[i];
        const ct_sequence_ops *ops = l->ops->sequence;
        int64_t longest =
            ((ops != NULL) && (ops->longest != NULL)) ? ops->longest(l, net->pass->instance[i]) : 0;
        blob_kind made = TOKENS;

        if (l->ops->is_data)
            CT_TRY(take_input(p, i));
        else
            made = made_of(p, i, g->node[i].bottom, kind);
        if (made == OTHER)
            return CT_LAYER_FAIL(
                l, CT_ERR_CONFIG,
                "it mixes %s, or may do so: the net cannot run sequences side by side",
                all_are(g->node[i].bottom, l->n_bottom, kind, POOLED) ? "rows of sequences"
                                                                      : "tokens");
        for (int t = 0; t < l->n_top; t++) kind[g->node[i].top[t]] = made;
        if ((longest > 0) && (longest < p->longest)) p->longest = longest;
    }
    return CT_OK;
}

/* Whether value v is the first input's, by way of layers through which data only pass. */
static bool is_ids(const ct_graph *g, int v)
{
    const ct_graph_node *n = &g->node[g->value[v].node];

    while ((n->ops->alias & CT_ALIAS_DATA) && (n->n_bottom == 1)) {
        v = n->bottom[0];
        n = &g->node[g->value[v].node];
    }
    return n->ops->keeps_top && (g->value[v].top == 0);
}

/* Rows of the smallest table that the ids choose from. */
static int64_t count_ids(const ct_net *net)
{
    const ct_graph *g = &ct_net_impl_of(net)->graph;
    int64_t n = INT32_MAX;

    for (int i = 0; i < net->n_layer; i++) {
        const Ct__EmbedParameter *e = net->layer[i]->param->embed_param;

        if ((e != NULL) && net->layer[i]->ops->reads_tokens && is_ids(g, g->node[i].bottom[0]) &&
            ((int64_t)e->input_dim < n))
            n = (int64_t)e->input_dim;
    }
    return n;
}

static ct_status check_output(ct_packed_net *p, const blob_kind *kind)
{
    const ct_graph *g = &ct_net_impl_of(p->net)->graph;
    const ct_net *net = p->net;
    blob_kind made = OTHER;
    const ct_shape *s;

    if (p->n_input == 0)
        return CT_FAIL(CT_ERR_CONFIG, "net \"%s\" has no Input with the ids of tokens", net->name);
    if (net->n_output != 1)
        return CT_FAIL(CT_ERR_CONFIG, "net \"%s\" has %d outputs: one is needed", net->name,
                       net->n_output);
    p->output = net->output[0].blob;
    for (int v = 0; v < g->n_value; v++) {
        if (g->value[v].blob == p->output) made = kind[v];
    }
    s = &net->pass->blob[p->output]->data.shape;
    if ((made != TOKENS) && (made != POOLED))
        return CT_FAIL(CT_ERR_CONFIG,
                       "net \"%s\": its output %s has a row neither for each token nor for each "
                       "sequence",
                       net->name, ct_shape_str(s).text);
    p->pools = (made == POOLED);
    p->columns = ct_shape_count(s, p->pools ? 1 : 2, -1);
    return CT_OK;
}

static ct_status check_net(ct_packed_net *p)
{
    blob_kind *kind = calloc((size_t)ct_net_impl_of(p->net)->graph.n_value + 1, sizeof(*kind));
    ct_status status;

    if (kind == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a packed net");
    status = check_layers(p, kind);
    if (status == CT_OK) status = check_output(p, kind);
    free(kind);
    if (status == CT_OK) p->ids = count_ids(p->net);
    return status;
}

ct_status ct_packed_net_create(const Ct__NetParameter *param, const ct_net_options *options,
                               int64_t most_tokens, int64_t most, ct_packed_net **p_p)
{
    ct_packed_net *p = calloc(1, sizeof(*p));
    ct_net_options own = *options;
    ct_status status = CT_OK;

    if (p == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a packed net");
    p->most_tokens = p->longest = most_tokens;
    p->most = (most < most_tokens) ? most : most_tokens;
    p->at = calloc((size_t)p->most + 1, sizeof(p->at[0]));
    p->packed = (ct_packed){ .n = p->most, .at = p->at };
    own.env.sequence_tokens = most_tokens;
    own.env.packed = &p->packed;
    own.forward_only = true;
    if (p->at == NULL)
        status = CT_FAIL(CT_ERR_NOMEM, "no memory for %" PRId64 " sequences", p->most);
    if (status == CT_OK) status = ct_net_create(param, &own, &p->net);
    if (status == CT_OK) status = check_net(p);
    if (status != CT_OK) {
        ct_packed_net_destroy(p);
        return status;
    }
    *p_p = p;
    return CT_OK;
}

void ct_packed_net_destroy(ct_packed_net *p)
{
    if (p == NULL) return;
    ct_net_destroy(p->net);
    free(p->at);
    free(p);
}

ct_net *ct_packed_net_of(const ct_packed_net *p)
{
    return p->net;
}

int64_t ct_packed_net_most_tokens(const ct_packed_net *p)
{
    return p->most_tokens;
}

int64_t ct_packed_net_longest(const ct_packed_net *p)
{
    return p->longest;
}

int64_t ct_packed_net_ids(const ct_packed_net *p)
{
    return p->ids;
}

int64_t ct_packed_net_columns(const ct_packed_net *p)
{
    return p->columns;
}

bool ct_packed_net_pools(const ct_packed_net *p)
{
    return p->pools;
}

/* ---- runs */

static ct_status check_items(const ct_packed_net *p, const ct_packed_item *item, int64_t n)
{
    int64_t tokens = 0;

    if ((n < 1) || (n > p->most))
        return CT_FAIL(CT_ERR_ARG, "%" PRId64 " sequences, the net was made for 1 to %" PRId64, n,
                       p->most);
    for (int64_t s = 0; s < n; s++) {
        if ((item[s].n < 1) || (item[s].n > p->longest))
            return CT_FAIL(CT_ERR_ARG,
                           "sequence %" PRId64 " has %" PRId64 " tokens, the net takes 1 to "
                           "%" PRId64,
                           s, item[s].n, p->longest);
        for (int64_t i = 0; i < item[s].n; i++) {
            if ((item[s].id[i] < 0) || (item[s].id[i] >= p->ids))
                return CT_FAIL(CT_ERR_DATA,
                               "token %" PRId64 " of sequence %" PRId64 " has id %" PRId32
                               ", the net has ids below %" PRId64,
                               i, s, item[s].id[i], p->ids);
        }
        tokens += item[s].n;
    }
    if (tokens > p->most_tokens)
        return CT_FAIL(CT_ERR_ARG,
                       "sequences of %" PRId64 " tokens together, the net was made for %" PRId64,
                       tokens, p->most_tokens);
    return CT_OK;
}

/* What input k has of a token. */
static float value_of(const ct_packed_net *p, int k, const ct_packed_item *item, int64_t i)
{
    if (k == 0) return (float)item->id[i];
    if (strcmp(p->input[k], "mask") == 0) return 1.0f;
    return (item->type != NULL) ? (float)item->type[i] : 0.0f;
}

/* Where the sequences lie. */
static void place(ct_packed_net *p, const ct_packed_item *item, int64_t n)
{
    ct_packed *packed = &p->packed;
    bool same = (packed->longest > 0) && (packed->n == n);

    packed->n = n;
    packed->longest = 0;
    for (int64_t s = 0; s < n; s++) {
        int64_t end = p->at[s] + item[s].n;

        same = same && (p->at[s + 1] == end);
        p->at[s + 1] = end;
        if (item[s].n > packed->longest) packed->longest = item[s].n;
    }
    if (!same) packed->number++;
}

static void fill(const ct_packed_net *p, const ct_packed_item *item, int64_t n)
{
    for (int k = 0; k < p->n_input; k++) {
        for (int64_t s = 0; s < n; s++) {
            for (int64_t i = 0; i < item[s].n; i++)
                p->data[k][p->at[s] + i] = value_of(p, k, &item[s], i);
        }
    }
}

ct_status ct_packed_net_shape(ct_packed_net *p, const ct_packed_item *item, int64_t n)
{
    ct_pass *pass = p->net->pass;

    CT_TRY(check_items(p, item, n));
    place(p, item, n);
    for (int k = 0; k < p->n_input; k++)
        CT_TRY(ct_pass_set_input(pass, p->input[k], &(ct_shape){ 2, { 1, p->at[n] } }));
    return ct_pass_reshape(pass);
}

ct_status ct_packed_net_run(ct_packed_net *p, ct_packed_item *item, int64_t n)
{
    ct_pass *pass = p->net->pass;
    const float *out;

    CT_TRY(ct_packed_net_shape(p, item, n));
    fill(p, item, n);
    CT_TRY(ct_pass_forward(pass, NULL));
    out = ct_blob_data(pass->blob[p->output]);
    for (int64_t s = 0; s < n; s++) {
        item[s].rows = p->pools ? 1 : item[s].n;
        item[s].row = out + (p->pools ? s : p->at[s]) * p->columns;
    }
    return CT_OK;
}
