#include "serve/net/token_model.h"

#include <inttypes.h>
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/clock.h"

/* Copies, since nets come and go. */
typedef struct names {
    char *model, *input, *output;
} names;

struct ct_token_model {
    ct_packed_net *net;
    names own;
    const ct_tokenizer *tokenizer;
    int64_t n_scored;      /* tokens of the tokenizer that makes texts; 0: none */
    int32_t before, after; /* ids around a text; -1: none                  */
    ct_served_model served;
    ct_served_blob input, output;
    struct growing *growing; /* that were not closed */
    /* of a pass */
    ct_packed_item *item;
    int32_t *id;
    int32_t *none; /* zeros: the ids of padding */
};

/* A sequence, with its tokens: nets come and go. */
typedef struct growing {
    ct_packed_sequence *sequence;
    int64_t capacity;
    int32_t *page; /* [n_page] that another rank gives it; NULL: the net's */
    int64_t n_page;
    ct_ids ids; /* that the net has */
    struct growing *next;
} growing;

/* ---- texts */

/* On one thread: a request's text is short, and the others have the net. A text that goes on does
 * not end with [SEP], so nothing is put around it. */
static ct_status encode(void *ctx, const char *text, size_t n, ct_ids *ids)
{
    const ct_token_model *m = ctx;
    int threads = omp_get_max_threads();
    bool around = (m->before >= 0) && (m->served.most_context == 0);
    ct_status status;

    if (around) CT_TRY(ct_ids_add(ids, &m->before, 1));
    omp_set_num_threads(1);
    status = ct_tokenizer_encode(m->tokenizer, text, n, false, "the text", ids);
    omp_set_num_threads(threads);
    CT_TRY(status);
    return around ? ct_ids_add(ids, &m->after, 1) : CT_OK;
}

/* ---- passes */

/* The padding of these works as sequences of its own behind the n items of theirs: it is computed,
 * and no token of theirs sees it. Returns how many items there are then. */
static int64_t add_padding(const ct_token_model *m, ct_work *const *work, int n_work, int64_t n)
{
    int64_t longest = ct_packed_net_longest(m->net), most = ct_packed_net_most_tokens(m->net);

    for (int i = 0; i < n_work; i++)
        for (int64_t left = work[i]->padding; (left > 0) && (n < most); left -= longest)
            m->item[n++] =
                (ct_packed_item){ .id = m->none, .n = (left < longest) ? left : longest };
    return n;
}

static ct_status embed(void *ctx, ct_work *const *work, int n)
{
    const ct_token_model *m = ctx;
    int64_t columns = ct_packed_net_columns(m->net);

    for (int i = 0; i < n; i++)
        m->item[i] = (ct_packed_item){ .id = work[i]->ids.id, .n = work[i]->ids.n };
    CT_TRY(ct_packed_net_run(m->net, m->item, add_padding(m, work, n, n)));
    for (int i = 0; i < n; i++) {
        const float *row = m->item[i].row;
        double sum = 0, scale;

        for (int64_t k = 0; k < columns; k++) sum += (double)row[k] * (double)row[k];
        scale = (sum > 0) ? 1 / sqrt(sum) : 0;
        for (int64_t k = 0; k < columns; k++) work[i]->row[k] = (float)(scale * (double)row[k]);
    }
    return CT_OK;
}

/* The output of a request, of the items from `item` on. */
static ct_status copy_rows(const ct_token_model *m, const ct_packed_item *item, ct_work *w)
{
    int64_t n = w->input->dim[0], tokens = w->input->dim[1];
    int64_t columns = ct_packed_net_columns(m->net);
    bool pools = ct_packed_net_pools(m->net);
    int64_t each = (pools ? 1 : tokens) * columns;
    float *data = malloc((size_t)(n * each) * sizeof(float));

    if (data == NULL)
        return CT_FAIL(CT_ERR_NOMEM, "no memory for an output of %" PRId64 " numbers", n * each);
    for (int64_t s = 0; s < n; s++)
        memcpy(data + s * each, item[s].row, (size_t)each * sizeof(float));
    *w->output = (ct_served_values){ .n_dim = pools ? 2 : 3, .dim = { n }, .data = data };
    w->output->dim[pools ? 1 : 2] = columns;
    if (!pools) w->output->dim[1] = tokens;
    return CT_OK;
}

static ct_status infer(void *ctx, ct_work *const *work, int n)
{
    const ct_token_model *m = ctx;
    int64_t n_item = 0, n_id = 0;

    for (int i = 0; i < n; i++) {
        const ct_served_values *in = work[i]->input;

        for (int64_t s = 0; s < in->dim[0]; s++, n_id += in->dim[1]) {
            for (int64_t t = 0; t < in->dim[1]; t++)
                m->id[n_id + t] = (int32_t)in->data[s * in->dim[1] + t];
            m->item[n_item++] = (ct_packed_item){ .id = m->id + n_id, .n = in->dim[1] };
        }
    }
    CT_TRY(ct_packed_net_run(m->net, m->item, add_padding(m, work, n, n_item)));
    n_item = 0;
    for (int i = 0; i < n; i++) {
        CT_TRY(copy_rows(m, m->item + n_item, work[i]));
        n_item += work[i]->input->dim[0];
    }
    return CT_OK;
}

/* ---- texts that go on */

static void free_growing(growing *g)
{
    ct_packed_sequence_close(g->sequence);
    ct_ids_destroy(&g->ids);
    free(g->page);
    free(g);
}

/* Room for all of its ids: once the net has some, nothing may fail any more. */
static ct_status keep_ids(growing *g, const int32_t *id, int64_t kept)
{
    CT_TRY(ct_ids_reserve(&g->ids, g->capacity));
    return ct_ids_add(&g->ids, id, kept);
}

static void take_in(ct_token_model *m, growing *g, void **sequence_p)
{
    g->next = m->growing;
    m->growing = g;
    *sequence_p = g;
}

static ct_status open_sequence(void *ctx, const int32_t *id, int64_t n, int64_t capacity,
                               void **sequence_p, int64_t *kept_p)
{
    ct_token_model *m = ctx;
    growing *g = calloc(1, sizeof(*g));
    ct_status status;

    *sequence_p = NULL;
    *kept_p = 0;
    if (g == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a sequence");
    g->capacity = capacity;
    status = ct_packed_sequence_open(m->net, id, n, capacity, &g->sequence, kept_p);
    if ((status == CT_OK) && (g->sequence != NULL)) status = keep_ids(g, id, *kept_p);
    if ((status != CT_OK) || (g->sequence == NULL))
        free_growing(g);
    else
        take_in(m, g, sequence_p);
    return status;
}

static ct_status place_growing(const ct_token_model *m, const ct_sequence_place *at, growing *g)
{
    g->page = malloc((size_t)at->n_page * sizeof(*g->page) + 1);
    if (g->page == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a sequence");
    memcpy(g->page, at->page, (size_t)at->n_page * sizeof(*g->page));
    CT_TRY(ct_packed_sequence_place(m->net, at->page, at->n_page, at->capacity, at->kept,
                                    &g->sequence));
    return keep_ids(g, at->id, at->kept);
}

static ct_status place_sequence(void *ctx, const ct_sequence_place *at, void **sequence_p)
{
    ct_token_model *m = ctx;
    growing *g = calloc(1, sizeof(*g));
    ct_status status;

    if (g == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a sequence");
    g->capacity = at->capacity;
    g->n_page = at->n_page;
    status = place_growing(m, at, g);
    if (status != CT_OK)
        free_growing(g);
    else
        take_in(m, g, sequence_p);
    return status;
}

static int64_t peek(void *ctx, const int32_t *id, int64_t n)
{
    const ct_token_model *m = ctx;

    return ct_packed_net_peek(m->net, id, n);
}

static void close_sequence(void *ctx, void *sequence)
{
    ct_token_model *m = ctx;
    growing *g = sequence, **at = &m->growing;

    while (*at != g) at = &(*at)->next;
    *at = g->next;
    free_growing(g);
}

static ct_status grow(void *ctx, ct_work_piece *piece, int n)
{
    const ct_token_model *m = ctx;
    int n_item = 0;

    for (int i = 0; i < n; i++) {
        ct_packed_sequence *s = ((growing *)piece[i].sequence)->sequence;

        piece[i].failed = (s == NULL); /* the net that came meanwhile had no room for it */
        if (piece[i].failed) continue;
        m->item[n_item++] =
            (ct_packed_item){ .id = piece[i].id,
                              .n = piece[i].n,
                              .sequence = s,
                              .want = piece[i].wants ? CT_ROWS_LAST : CT_ROWS_NONE };
    }
    if (n_item > 0) CT_TRY(ct_packed_net_run(m->net, m->item, n_item));
    n_item = 0;
    for (int i = 0; i < n; i++) {
        if (piece[i].failed) continue;
        piece[i].score = m->item[n_item++].row;
        CT_TRY(ct_ids_add(&((growing *)piece[i].sequence)->ids, piece[i].id, piece[i].n));
    }
    return CT_OK;
}

/* In another net. */
static ct_status open_again(ct_packed_net *net, const growing *g, ct_packed_sequence **s_p,
                            int64_t *kept_p)
{
    int32_t none = 0;

    *kept_p = 0;
    if (g->page != NULL)
        return ct_packed_sequence_place(net, g->page, g->n_page, g->capacity, 0, s_p);
    return ct_packed_sequence_open(net, (g->ids.n > 0) ? g->ids.id : &none,
                                   (g->ids.n > 0) ? g->ids.n : 1, g->capacity, s_p, kept_p);
}

/* The tokens that a sequence has, once more, in another net. */
static ct_status grow_again(ct_token_model *m, ct_packed_net *net, const growing *g,
                            ct_packed_sequence **s_p)
{
    int64_t most = ct_packed_net_most_tokens(net), kept, n;

    CT_TRY(open_again(net, g, s_p, &kept));
    if (*s_p == NULL) return CT_FAIL(CT_ERR_NOMEM, "no room in the cache of the new net");
    for (int64_t at = kept; at < g->ids.n; at += n) {
        n = (g->ids.n - at < most) ? g->ids.n - at : most;
        m->item[0] = (ct_packed_item){
            .id = g->ids.id + at, .n = n, .sequence = *s_p, .want = CT_ROWS_NONE
        };
        CT_TRY(ct_packed_net_run(net, m->item, 1));
    }
    return CT_OK;
}

/* All sequences of the old net go on in the new one. One that cannot, ends with its next token. */
static void swap_sequences(ct_token_model *m, ct_packed_net *net)
{
    for (growing *g = m->growing; g != NULL; g = g->next) {
        ct_packed_sequence *fresh = NULL;

        ct_packed_sequence_close(g->sequence);
        if (grow_again(m, net, g, &fresh) != CT_OK) {
            ct_packed_sequence_close(fresh);
            fresh = NULL;
        }
        g->sequence = fresh;
    }
}

/* ---- making */

static const char *input_name(const ct_net *net)
{
    for (int i = 0; i < net->n_layer; i++)
        if (net->layer[i]->ops->is_data && (net->layer[i]->n_top > 0))
            return net->layer[i]->param->top[0];
    return "tokens";
}

static const char *output_name(const ct_net *net)
{
    return net->layer[net->output[0].layer]->param->top[0];
}

static ct_status take_names(ct_token_model *m, const char *name)
{
    const ct_net *net = ct_packed_net_of(m->net);

    m->own = (names){ strdup(name), strdup(input_name(net)), strdup(output_name(net)) };
    if ((m->own.model != NULL) && (m->own.input != NULL) && (m->own.output != NULL)) return CT_OK;
    return CT_FAIL(CT_ERR_NOMEM, "no memory for the names of a model");
}

/* Whether its rows are the scores of the tokenizer's next one. */
static bool scores_tokens(const ct_token_model *m)
{
    return (ct_packed_net_cached(m->net) > 0) && (m->n_scored > 0) &&
           (ct_packed_net_columns(m->net) >= m->n_scored);
}

static void describe(ct_token_model *m)
{
    int64_t most = ct_packed_net_most_tokens(m->net), longest = ct_packed_net_longest(m->net);
    int64_t columns = ct_packed_net_columns(m->net);
    bool pools = ct_packed_net_pools(m->net);

    m->input = (ct_served_blob){ .name = m->own.input,
                                 .whole = true,
                                 .n_id = ct_packed_net_ids(m->net),
                                 .n_dim = 2,
                                 .dim = { -1, -1 },
                                 .most = { most, longest } };
    m->output = (ct_served_blob){ .name = m->own.output,
                                  .n_dim = pools ? 2 : 3,
                                  .dim = { -1, pools ? columns : -1, pools ? 0 : columns } };
    m->served = (ct_served_model){ .name = m->own.model,
                                   .most_length = longest,
                                   .n_id = ct_packed_net_ids(m->net),
                                   .embedding_size = pools ? columns : 0,
                                   .n_input = 1,
                                   .n_output = 1,
                                   .input = &m->input,
                                   .output = &m->output,
                                   .ctx = m,
                                   .encode = (m->tokenizer != NULL) ? encode : NULL,
                                   .embed = embed,
                                   .infer = infer };
    if (!scores_tokens(m)) return;
    m->served.n_input = m->served.n_output = 0; /* all scores of a batch are gigabytes */
    m->served.most_context = ct_packed_net_capacity(m->net);
    m->served.cache_tokens = ct_packed_net_cached(m->net);
    m->served.page_tokens = ct_packed_net_page_tokens(m->net);
    m->served.tokenizer = m->tokenizer;
    m->served.n_score = ct_packed_net_columns(m->net);
    m->served.open = open_sequence;
    m->served.close = close_sequence;
    m->served.peek = peek;
    m->served.place = place_sequence;
    m->served.grow = grow;
}

static void take_tokenizer(ct_token_model *m, const ct_tokenizer *t)
{
    m->tokenizer = t;
    m->before = m->after = -1;
    if (t == NULL) return;
    m->n_scored = ct_tokenizer_size(t);
    m->before = ct_tokenizer_find_special(t, "[CLS]");
    m->after = ct_tokenizer_find_special(t, "[SEP]");
    if ((m->before < 0) || (m->after < 0)) m->before = m->after = -1;
}

ct_status ct_token_model_create(ct_packed_net *net, const ct_tokenizer *tokenizer, const char *name,
                                ct_token_model **m_p)
{
    size_t most = (size_t)ct_packed_net_most_tokens(net);
    ct_token_model *m = calloc(1, sizeof(*m));
    ct_status status;

    if (m == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a model");
    m->net = net;
    m->item = calloc(most, sizeof(*m->item));
    m->id = calloc(most, sizeof(*m->id));
    m->none = calloc(most, sizeof(*m->none));
    if ((m->item == NULL) || (m->id == NULL) || (m->none == NULL))
        status = CT_FAIL(CT_ERR_NOMEM, "no memory for batches of %zu tokens", most);
    else
        status = take_names(m, name);
    if (status != CT_OK) {
        ct_token_model_destroy(m);
        return status;
    }
    take_tokenizer(m, tokenizer);
    describe(m);
    *m_p = m;
    return CT_OK;
}

void ct_token_model_score(ct_token_model *m, int64_t n)
{
    m->n_scored = n;
    describe(m);
}

/* What clients have been told stays so. */
static ct_status check_name(const char *what, const char *name, const char *own)
{
    if (strcmp(name, own) == 0) return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG,
                   "the net's %s is \"%s\", and \"%s\" in the one that was opened first", what,
                   name, own);
}

ct_status ct_token_model_accepts(const ct_token_model *m, const ct_packed_net *net)
{
    CT_TRY(check_name("input", input_name(ct_packed_net_of(net)), m->own.input));
    CT_TRY(check_name("output", output_name(ct_packed_net_of(net)), m->own.output));
    if ((ct_packed_net_ids(net) != ct_packed_net_ids(m->net)) ||
        (ct_packed_net_columns(net) != ct_packed_net_columns(m->net)) ||
        (ct_packed_net_pools(net) != ct_packed_net_pools(m->net)) ||
        (ct_packed_net_longest(net) != ct_packed_net_longest(m->net)) ||
        (ct_packed_net_capacity(net) != ct_packed_net_capacity(m->net)) ||
        (ct_packed_net_cached(net) != ct_packed_net_cached(m->net)) ||
        (ct_packed_net_most_tokens(net) != ct_packed_net_most_tokens(m->net)))
        return CT_FAIL(CT_ERR_CONFIG, "the net is another than the one that was opened first");
    return CT_OK;
}

void ct_token_model_swap(ct_token_model *m, ct_packed_net *net)
{
    swap_sequences(m, net);
    m->net = net;
}

void ct_token_model_destroy(ct_token_model *m)
{
    if (m == NULL) return;
    free(m->item);
    free(m->id);
    free(m->none);
    free(m->own.model);
    free(m->own.input);
    free(m->own.output);
    free(m);
}

const ct_served_model *ct_token_model_served(const ct_token_model *m)
{
    return &m->served;
}

/* ---- costs */

typedef struct meter {
    ct_token_model *m;
    const ct_deployed_division *division; /* NULL: this rank runs it alone */
    double spent_s;                       /* of all timed batches          */
} meter;

/* Seconds of a batch of so many tokens, in sequences of at most 64. */
static ct_status time_batch(meter *t, int64_t tokens, double *s_p)
{
    ct_token_model *m = t->m;
    int64_t longest = ct_packed_net_longest(m->net), each = (longest < 64) ? longest : 64;
    int64_t n = 0;
    double start = ct_clock_s(), s;

    for (int64_t at = 0; at < tokens; at += each, n++)
        m->item[n] = (ct_packed_item){ .id = m->id,
                                       .n = (tokens - at < each) ? tokens - at : each,
                                       .want = scores_tokens(m) ? CT_ROWS_LAST : CT_ROWS_ALL };
    CT_TRY(ct_packed_net_run(m->net, m->item, n));
    s = ct_clock_s() - start;
    if (t->division != NULL) CT_TRY(t->division->share(t->division->ctx, &s));
    t->spent_s += s;
    *s_p = s;
    return CT_OK;
}

/* One token, as of a text that goes on alone; then sizes up to 512 tokens at least once, larger
 * ones while there is time; then all of them again, once at least: of each its shortest, since what
 * else runs on the machine only adds. */
ct_status ct_token_model_measure(ct_token_model *m, double limit_s,
                                 const ct_deployed_division *division, ct_batch_cost *cost)
{
    int64_t most = ct_packed_net_most_tokens(m->net), tokens[CT_BATCH_COST_POINTS];
    meter t = { m, division, 0 };
    double s[CT_BATCH_COST_POINTS], once;
    int n = 0;

    memset(m->id, 0, (size_t)most * sizeof(*m->id));
    CT_TRY(time_batch(&t, (most < 64) ? most : 64, &once)); /* packs weights, touches memory */
    t.spent_s = 0;
    for (int64_t at = 1; (n < CT_BATCH_COST_POINTS) && ((n == 0) || (at <= most));
         at *= (at == 1) ? 8 : 2) {
        if ((at > 512) && !ct_batch_cost_has_time(t.spent_s, s[n - 1], limit_s)) break;
        tokens[n] = (at < most) ? at : most;
        CT_TRY(time_batch(&t, tokens[n], &s[n]));
        n++;
    }
    for (int round = 1; (round < 5) && ((round == 1) || (t.spent_s < limit_s)); round++) {
        for (int k = 0; k < n; k++) {
            CT_TRY(time_batch(&t, tokens[k], &once));
            s[k] = fmin(s[k], once);
        }
    }
    return ct_batch_cost_init(cost, n, tokens, s);
}
