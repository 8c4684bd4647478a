#include "framework/net/packed.h"

#include <inttypes.h>
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/memory.h"
#include "framework/net/net_impl.h"
#include "framework/net/pages.h"

/* What a blob of a packed net has. */
typedef enum {
    OTHER,
    TOKENS, /* 1 x tokens x …                       */
    ROW,    /* 1 x 1 x tokens: a number a token     */
    POOLED  /* sequences x …: a row of each         */
} blob_kind;

enum { MOST_INPUT = 3 };

/* Keys and values of sequences that grow. */
typedef struct cache {
    ct_page_pool *pool; /* NULL: there is none                         */
    void **kept;        /* of each layer, its pages; NULL: it has none */
    void *work;
    size_t work_bytes;
    double page_bytes; /* of all layers                                */
    double most_bytes; /* of all pages; 0: they are counted            */
    ct_status (*least)(void *ctx, int64_t *pages); /* as ct_packed_most */
    void *ctx;
} cache;

struct ct_packed_sequence {
    ct_packed_net *net;
    ct_page_list list;
    int64_t capacity;
    bool placed; /* the pool does not know of it */
};

struct ct_packed_net {
    ct_net *net;
    ct_packed packed; /* the environment's; its arrays are these, with room for `most` */
    int64_t *at, *before;
    const int32_t **page;
    cache cache;
    int64_t *wanted; /* rows that a run makes */
    int64_t n_wanted;
    const ct_layer *table; /* that has positions for `longest` tokens; NULL: none */
    int64_t most_tokens, most, longest, ids, columns, pages;
    bool narrows; /* rows may be left out */
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
        if ((longest > 0) && (longest < p->packed.capacity)) {
            p->packed.capacity = longest;
            p->table = l;
        }
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

/* ---- the cache */

/* Pages that the bytes are enough for. */
static ct_status count_pages(ct_packed_net *p)
{
    double page = 0;

    for (int i = 0; i < p->net->n_layer; i++) {
        const ct_layer *l = p->net->layer[i];
        size_t kept = 0, work = 0;

        if ((l->ops->sequence == NULL) || (l->ops->sequence->keep == NULL)) continue;
        CT_TRY(l->ops->sequence->keep(l, p->net->pass->instance[i], 1, p->packed.capacity, &kept,
                                      &work));
        page += (double)kept;
    }
    if (page > 0)
        p->pages = (int64_t)fmin(p->cache.most_bytes / page, INT32_MAX);
    else if (p->cache.least != NULL)
        p->pages = INT32_MAX; /* this rank has nothing of it */
    if (p->cache.least != NULL) CT_TRY(p->cache.least(p->cache.ctx, &p->pages));
    if (p->pages < 1)
        return CT_FAIL(CT_ERR_CONFIG,
                       "a cache of %.3g MiB: a page of %d tokens takes %.3g MiB in net \"%s\"",
                       p->cache.most_bytes / 0x1p20, CT_PAGE_TOKENS, page / 0x1p20, p->net->name);
    if (p->pages * CT_PAGE_TOKENS < p->packed.capacity) {
        p->packed.capacity = p->pages * CT_PAGE_TOKENS;
        p->table = NULL; /* it is not what limits them */
    }
    return CT_OK;
}

/* What each layer keeps, and room for the call that needs most. */
static ct_status make_cache(ct_packed_net *p)
{
    const ct_net *net = p->net;
    cache *c = &p->cache;

    p->packed.n_thread = omp_get_max_threads();
    if ((p->cache.most_bytes > 0) && !p->pools) CT_TRY(count_pages(p));
    if (p->pages == 0) p->packed.capacity = 0;
    if (p->pages == 0) return CT_OK;
    if (p->pools)
        return CT_FAIL(CT_ERR_CONFIG, "net \"%s\" pools its tokens: it has no next one", net->name);
    CT_TRY(ct_page_pool_create(p->pages, &c->pool));
    c->kept = calloc((size_t)net->n_layer + 1, sizeof(c->kept[0]));
    if (c->kept == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a cache");
    for (int i = 0; i < net->n_layer; i++) {
        const ct_layer *l = net->layer[i];
        const ct_instance *in = net->pass->instance[i];
        size_t kept = 0, work = 0;

        if ((l->ops->sequence == NULL) || (l->ops->sequence->keep == NULL)) continue;
        CT_TRY(l->ops->sequence->keep(l, in, p->pages, p->packed.capacity, &kept, &work));
        if (work > c->work_bytes) c->work_bytes = work;
        c->kept[in->number] = ct_mem_reserve(kept); /* pages take memory when they are used */
        if (c->kept[in->number] == NULL)
            return CT_LAYER_FAIL(l, CT_ERR_NOMEM, "no memory for %" PRId64 " tokens of a cache",
                                 p->pages * CT_PAGE_TOKENS);
        c->page_bytes += (double)kept / (double)p->pages;
    }
    if (c->work_bytes > 0) c->work = ct_mem_acquire(c->work_bytes);
    if ((c->work_bytes > 0) && (c->work == NULL))
        return CT_FAIL(CT_ERR_NOMEM, "no memory for a cache");
    p->packed.kept = c->kept;
    p->packed.work = c->work;
    return CT_OK;
}

static void destroy_cache(ct_packed_net *p)
{
    cache *c = &p->cache;

    for (int i = 0; (c->kept != NULL) && (i < p->net->n_layer); i++) ct_mem_release(c->kept[i]);
    free(c->kept);
    ct_mem_release(c->work);
    ct_page_pool_destroy(c->pool);
}

/* ---- making */

static ct_status make_room(ct_packed_net *p, const ct_packed_most *most)
{
    size_t n;

    p->most_tokens = p->longest = most->tokens;
    p->most = (most->sequences < most->tokens) ? most->sequences : most->tokens;
    n = (size_t)p->most + 1;
    p->at = calloc(n, sizeof(p->at[0]));
    p->before = calloc(n, sizeof(p->before[0]));
    p->page = calloc(n, sizeof(p->page[0]));
    p->wanted = calloc((size_t)most->tokens + 1, sizeof(p->wanted[0]));
    if ((p->at == NULL) || (p->before == NULL) || (p->page == NULL) || (p->wanted == NULL))
        return CT_FAIL(CT_ERR_NOMEM, "no memory for %" PRId64 " sequences", p->most);
    p->pages = ct_pages_of(most->cached);
    p->packed = (ct_packed){ .n = p->most, .at = p->at, .before = p->before, .page = p->page };
    p->packed.capacity = p->pages * CT_PAGE_TOKENS;
    p->cache.most_bytes = most->cached_bytes;
    p->cache.least = most->least;
    p->cache.ctx = most->ctx;
    if ((most->length > 0) && ((p->pages == 0) || (most->length < p->packed.capacity)))
        p->packed.capacity = (p->pages > 0) || (most->cached_bytes > 0) ? most->length : 0;
    return CT_OK;
}

static ct_status make_net(const Ct__NetParameter *param, const ct_net_options *options,
                          ct_packed_net *p)
{
    ct_net_options own = *options;

    own.env.sequence_tokens = p->most_tokens;
    own.env.packed = &p->packed;
    own.forward_only = true;
    CT_TRY(ct_net_create(param, &own, &p->net));
    CT_TRY(check_net(p));
    if (!p->pools) CT_TRY(ct_pass_narrow_make(p->net->pass, &p->narrows));
    return make_cache(p);
}

ct_status ct_packed_net_create(const Ct__NetParameter *param, const ct_net_options *options,
                               const ct_packed_most *most, ct_packed_net **p_p)
{
    ct_packed_net *p = calloc(1, sizeof(*p));
    ct_status status;

    if (p == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a packed net");
    status = make_room(p, most);
    if (status == CT_OK) status = make_net(param, options, p);
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
    destroy_cache(p);
    ct_net_destroy(p->net);
    free(p->at);
    free(p->before);
    free(p->page);
    free(p->wanted);
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

int64_t ct_packed_net_capacity(const ct_packed_net *p)
{
    return p->packed.capacity;
}

int64_t ct_packed_net_cached(const ct_packed_net *p)
{
    return p->pages * CT_PAGE_TOKENS;
}

int64_t ct_packed_net_page_tokens(const ct_packed_net *p)
{
    (void)p;
    return CT_PAGE_TOKENS;
}

double ct_packed_net_token_bytes(const ct_packed_net *p)
{
    return p->cache.page_bytes / CT_PAGE_TOKENS;
}

size_t ct_packed_net_work_bytes(const ct_packed_net *p)
{
    return p->cache.work_bytes;
}

/* The layer that makes the output: the last one, where some run in place. */
static const ct_layer *maker_of_output(const ct_packed_net *p)
{
    const ct_net *net = p->net;
    const ct_layer *l = net->layer[net->n_layer - 1];

    for (int i = 0; i < net->n_layer; i++) {
        for (int t = 0; t < net->layer[i]->n_top; t++) {
            if (net->pass->instance[i]->top[t] == net->pass->blob[p->output]) l = net->layer[i];
        }
    }
    return l;
}

ct_status ct_packed_net_check_ids(const ct_packed_net *p, int64_t n, const char *tokenizer)
{
    for (int i = 0; i < p->net->n_layer; i++) {
        const ct_layer *l = p->net->layer[i];
        const Ct__EmbedParameter *e = l->param->embed_param;

        if ((e != NULL) && l->ops->reads_tokens && (n > (int64_t)e->input_dim))
            return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                                 "%s has %" PRId64 " ids, but embed_param.input_dim is %u",
                                 tokenizer, n, e->input_dim);
    }
    if (n > p->columns)
        return CT_LAYER_FAIL(maker_of_output(p), CT_ERR_CONFIG,
                             "%s has %" PRId64 " ids, but the net scores %" PRId64 " tokens",
                             tokenizer, n, p->columns);
    return CT_OK;
}

/* ---- sequences that grow */

/* A sequence without pages. */
static ct_status make_sequence(ct_packed_net *p, int64_t n, int64_t capacity,
                               ct_packed_sequence **s_p)
{
    ct_packed_sequence *s;

    if (p->cache.pool == NULL) return CT_FAIL(CT_ERR_CONFIG, "the net was made without a cache");
    if ((n < 1) || (capacity < n))
        return CT_FAIL(CT_ERR_ARG, "a sequence of %" PRId64 " tokens that begins with %" PRId64,
                       capacity, n);
    if ((capacity > p->packed.capacity) && (p->table != NULL))
        return CT_LAYER_FAIL(p->table, CT_ERR_CONFIG,
                             "a sequence of %" PRId64 " tokens, but position_param.max_length is "
                             "%" PRId64 ": shorten the prompt, or ask for fewer tokens",
                             capacity, p->packed.capacity);
    if (capacity > p->packed.capacity)
        return CT_FAIL(CT_ERR_CONFIG,
                       "a sequence of %" PRId64 " tokens: the cache has room for %" PRId64,
                       capacity, p->packed.capacity);
    s = calloc(1, sizeof(*s));
    if (s == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a sequence");
    *s = (ct_packed_sequence){ .net = p, .capacity = capacity };
    *s_p = s;
    return CT_OK;
}

ct_status ct_packed_sequence_open(ct_packed_net *p, const int32_t *id, int64_t n, int64_t capacity,
                                  ct_packed_sequence **s_p, int64_t *kept_p)
{
    ct_packed_sequence *s;
    ct_status status;
    bool room;

    *s_p = NULL;
    CT_TRY(make_sequence(p, n, capacity, &s));
    status = ct_page_list_open(p->cache.pool, id, n, capacity, &s->list, &room);
    if ((status != CT_OK) || !room) {
        free(s);
        return status;
    }
    *kept_p = s->list.length;
    *s_p = s;
    return CT_OK;
}

static ct_status check_pages(const ct_packed_net *p, const int32_t *page, int64_t n,
                             int64_t capacity, int64_t kept)
{
    if ((n < ct_pages_of(capacity)) || (kept < 0) || (kept > capacity))
        return CT_FAIL(CT_ERR_ARG,
                       "a sequence of %" PRId64 " tokens, %" PRId64 " of them kept, in %" PRId64
                       " pages",
                       capacity, kept, n);
    for (int64_t i = 0; i < n; i++) {
        if ((page[i] < 0) || (page[i] >= p->pages))
            return CT_FAIL(CT_ERR_ARG, "page %" PRId32 " of a cache of %" PRId64, page[i],
                           p->pages);
    }
    return CT_OK;
}

ct_status ct_packed_sequence_place(ct_packed_net *p, const int32_t *page, int64_t n,
                                   int64_t capacity, int64_t kept, ct_packed_sequence **s_p)
{
    ct_packed_sequence *s;

    CT_TRY(check_pages(p, page, n, capacity, kept));
    CT_TRY(make_sequence(p, 1, capacity, &s));
    s->placed = true;
    s->list = (ct_page_list){ .n = n, .length = kept };
    s->list.page = malloc((size_t)(n + 1) * sizeof(*page));
    if (s->list.page == NULL) {
        free(s);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for a sequence");
    }
    memcpy(s->list.page, page, (size_t)n * sizeof(*page));
    *s_p = s;
    return CT_OK;
}

int64_t ct_packed_net_peek(const ct_packed_net *p, const int32_t *id, int64_t n)
{
    return (p->cache.pool != NULL) ? ct_page_pool_peek(p->cache.pool, id, n) : 0;
}

void ct_packed_sequence_close(ct_packed_sequence *s)
{
    if (s == NULL) return;
    if (s->placed)
        free(s->list.page);
    else
        ct_page_list_close(s->net->cache.pool, &s->list);
    free(s);
}

int64_t ct_packed_sequence_length(const ct_packed_sequence *s)
{
    return s->list.length;
}

/* ---- runs */

static int64_t before_of(const ct_packed_item *item)
{
    return (item->sequence != NULL) ? item->sequence->list.length : 0;
}

static int64_t most_of(const ct_packed_net *p, const ct_packed_item *item)
{
    int64_t room;

    if (item->sequence == NULL) return p->longest;
    room = item->sequence->capacity - item->sequence->list.length;
    return (room < p->most_tokens) ? room : p->most_tokens;
}

static ct_status check_items(const ct_packed_net *p, const ct_packed_item *item, int64_t n)
{
    int64_t tokens = 0;

    if ((n < 1) || (n > p->most))
        return CT_FAIL(CT_ERR_ARG, "%" PRId64 " sequences, the net was made for 1 to %" PRId64, n,
                       p->most);
    for (int64_t s = 0; s < n; s++) {
        if ((item[s].n < 1) || (item[s].n > most_of(p, &item[s])))
            return CT_FAIL(CT_ERR_ARG,
                           "sequence %" PRId64 " has %" PRId64 " tokens, the net takes 1 to "
                           "%" PRId64,
                           s, item[s].n, most_of(p, &item[s]));
        if ((item[s].sequence != NULL) && (item[s].type != NULL))
            return CT_FAIL(CT_ERR_ARG, "sequence %" PRId64 " grows: its tokens are of type 0", s);
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
        p->before[s] = before_of(&item[s]);
        p->page[s] = (item[s].sequence != NULL) ? item[s].sequence->list.page : NULL;
        if (item[s].n > packed->longest) packed->longest = item[s].n;
    }
    if (!same) packed->number++;
}

/* The rows that are wanted; where there are none the last one, since a pass has some. */
static void want(ct_packed_net *p, const ct_packed_item *item, int64_t n)
{
    p->n_wanted = 0;
    if (!p->narrows) return;
    for (int64_t s = 0; s < n; s++) {
        int64_t first = (item[s].want == CT_ROWS_ALL) ? p->at[s] : p->at[s + 1] - 1;

        for (int64_t i = first; (item[s].want != CT_ROWS_NONE) && (i < p->at[s + 1]); i++)
            p->wanted[p->n_wanted++] = i;
    }
    if (p->n_wanted == 0) p->wanted[p->n_wanted++] = p->at[n] - 1;
    ct_pass_narrow(p->net->pass, (p->n_wanted < p->at[n]) ? p->wanted : NULL, p->n_wanted);
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
    want(p, item, n);
    for (int k = 0; k < p->n_input; k++)
        CT_TRY(ct_pass_set_input(pass, p->input[k], &(ct_shape){ 2, { 1, p->at[n] } }));
    return ct_pass_reshape(pass);
}

/* The output's rows, or the tokens', as the items want them. */
static void take_rows(const ct_packed_net *p, ct_packed_item *item, int64_t n)
{
    const float *row = ct_blob_data(p->net->pass->blob[p->output]);

    for (int64_t s = 0; s < n; s++) {
        int64_t rows = (p->pools || (item[s].want == CT_ROWS_LAST)) ? 1
                       : (item[s].want == CT_ROWS_NONE)             ? 0
                                                                    : item[s].n;
        int64_t made = (p->pools || p->narrows) ? rows : item[s].n; /* else all are there */

        item[s].rows = rows;
        item[s].row = row + (made - rows) * p->columns;
        row += made * p->columns;
    }
}

ct_status ct_packed_net_run(ct_packed_net *p, ct_packed_item *item, int64_t n)
{
    ct_pass *pass = p->net->pass;
    ct_status status;

    CT_TRY(ct_packed_net_shape(p, item, n));
    fill(p, item, n);
    status = ct_pass_forward(pass, NULL);
    ct_pass_narrow_after(pass);
    CT_TRY(status);
    take_rows(p, item, n);
    for (int64_t s = 0; s < n; s++) {
        ct_packed_sequence *grown = item[s].sequence;

        if (grown == NULL) continue;
        if (grown->placed)
            grown->list.length += item[s].n;
        else
            ct_page_list_grow(p->cache.pool, &grown->list, item[s].id, item[s].n);
    }
    return CT_OK;
}
