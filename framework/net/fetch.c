/* Weights that come for the steps that read them, and go: which steps, and where they lie.
 *
 * Forward and backward are one stretch of time. The uses of a chunk fall into *visits*: between two
 * uses of one visit only few other chunks are read, so that the weights stay. A visit begins as
 * many visits ahead as are fetched ahead, in its own list. Two chunks that are here at one time lie
 * apart.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "framework/net/net_impl.h"

typedef struct visit {
    int chunk;
    int begin, first, last; /* steps: when it begins to come, its first and last use */
} visit;

/* What is known while steps are made. Steps are counted without those of chunks. */
typedef struct plan {
    ct_net *net;
    const ct_net *owner; /* of the chunks: the net itself, or the one whose weights it has */
    int n_chunk, n_time, prefetch;
    bool *used; /* [n_time * n_chunk] */
    visit *v;
    int n, capacity;
} plan;

static const ct_net *owner_of(const ct_net *net)
{
    return (net->options.share != NULL) ? net->options.share : net;
}

static bool comes_and_goes(const ct_net *net)
{
    const ct_net *owner = owner_of(net);

    return (owner->options.window != NULL) && owner->options.window->weights &&
           (ct_net_impl_of(owner)->n_chunk > 0);
}

/* Of the chunks' owner: what is tied has chunks of its own. */
static bool stays(const ct_net *owner, int chunk)
{
    return owner->options.window->keeps_tied &&
           owner->param[ct_net_impl_of(owner)->chunk[chunk]].tied;
}

/* ---- uses */

static void use_params(plan *p, int layer, int t, bool backward)
{
    const ct_net *net = p->net;
    const ct_layer *l = net->layer[layer];

    for (int w = 0; w < l->n_weight; w++) {
        int c = net->param[ct_net_param_of(net, layer, w)].chunk;

        /* a table's rows get a gradient, which does not depend on what they are */
        if ((c >= 0) && !stays(p->owner, c) &&
            !(backward && (((l->ops->row_weights >> w) & 1) != 0)))
            p->used[(size_t)t * (size_t)p->n_chunk + (size_t)c] = true;
    }
}

static void use_step(plan *p, const ct_step *s, int t)
{
    const ct_net_impl *m = ct_net_impl_of(p->net);
    bool backward = (s->kind == CT_STEP_BACKWARD);

    if ((s->kind != CT_STEP_FORWARD) && !backward && (s->kind != CT_STEP_AGAIN)) return;
    for (int i = 0; i < p->net->n_layer; i++)
        if ((i == s->layer) || (m->runner[i] == m->runner[s->layer])) use_params(p, i, t, backward);
}

static void find_uses(plan *p)
{
    const ct_net *net = p->net;
    const ct_net_impl *m = ct_net_impl_of(net);

    for (int j = 0; j < net->n_forward; j++) use_step(p, &net->forward[j], j);
    for (int j = 0; j < net->n_backward; j++) use_step(p, &net->backward[j], net->n_forward + j);
    for (int a = 0; a < m->n_again; a++) {
        for (int i = 0; i < net->n_layer; i++)
            if (m->runner[i] == m->runner[m->again[a].layer])
                use_params(p, i, m->again[a].when, false);
    }
}

/* ---- visits */

static bool is_used(const plan *p, int t, int c)
{
    return p->used[(size_t)t * (size_t)p->n_chunk + (size_t)c];
}

/* Chunks other than c that are used strictly between two moments, up to `most` of them. */
static int count_between(const plan *p, int from, int to, int c, int most)
{
    int n = 0;

    for (int k = 0; (k < p->n_chunk) && (n < most); k++) {
        for (int t = from + 1; (k != c) && (t < to); t++) {
            if (!is_used(p, t, k)) continue;
            n++;
            break;
        }
    }
    return n;
}

static ct_status add_visit(plan *p, int c, int t)
{
    if (p->n == p->capacity) {
        int capacity = 2 * p->capacity + 16;
        visit *grown = realloc(p->v, sizeof(*grown) * (size_t)capacity);

        if (grown == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for the steps of a net");
        p->v = grown;
        p->capacity = capacity;
    }
    p->v[p->n++] = (visit){ .chunk = c, .begin = t, .first = t, .last = t };
    return CT_OK;
}

/* Between forward and backward of a micro-batch come others' where several are in flight. */
static bool is_apart(const plan *p, int a, int b)
{
    int back = p->net->n_forward;

    return (p->net->options.in_flight > 1) && (a < back) && (b >= back);
}

static ct_status find_visits(plan *p)
{
    for (int c = 0; c < p->n_chunk; c++) {
        visit *v = NULL;

        for (int t = 0; t < p->n_time; t++) {
            int most = p->prefetch + 1;

            if (!is_used(p, t, c)) continue;
            if ((v == NULL) || is_apart(p, v->last, t) ||
                (count_between(p, v->last, t, c, most) == most)) {
                CT_TRY(add_visit(p, c, t));
                v = &p->v[p->n - 1];
            }
            v->last = t;
        }
    }
    return CT_OK;
}

static int by_first(const void *a, const void *b)
{
    const visit *x = a, *y = b;

    if (x->first != y->first) return x->first - y->first;
    return x->chunk - y->chunk;
}

/* Ahead of its first use, but not in the other list. */
static void find_begins(plan *p)
{
    if (p->n > 0) qsort(p->v, (size_t)p->n, sizeof(*p->v), by_first);
    for (int i = 0; i < p->n; i++) {
        visit *v = &p->v[i];
        int start = (v->first < p->net->n_forward) ? 0 : p->net->n_forward;

        v->begin = (i >= p->prefetch) ? p->v[i - p->prefetch].first : start;
        if (v->begin < start) v->begin = start;
    }
    /* the same chunk's visits do not overlap */
    for (int i = 0; i < p->n; i++) {
        for (int k = 0; k < i; k++)
            if ((p->v[k].chunk == p->v[i].chunk) && (p->v[i].begin <= p->v[k].last))
                p->v[i].begin = p->v[k].last + 1;
    }
}

static void close_plan(plan *p)
{
    free(p->used);
    free(p->v);
}

/* The steps of chunks are not in the lists. */
static ct_status make_plan(ct_net *net, plan *p)
{
    const ct_net *owner = owner_of(net);
    ct_status status;

    *p = (plan){ .net = net,
                 .owner = owner,
                 .n_chunk = ct_net_impl_of(owner)->n_chunk,
                 .n_time = net->n_forward + net->n_backward,
                 .prefetch = (owner == net) ? net->options.window->prefetch : 0 };
    p->used = calloc((size_t)p->n_time * (size_t)p->n_chunk + 1, sizeof(*p->used));
    if (p->used == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for the steps of a net");
    find_uses(p);
    status = find_visits(p);
    if (status == CT_OK) find_begins(p);
    if (status != CT_OK) close_plan(p);
    return status;
}

/* ---- lists */

static ct_step step_of(ct_step_kind kind, int chunk, int layer)
{
    return (ct_step){ .kind = kind,
                      .layer = layer,
                      .of = CT_PAIR_CHUNK,
                      .pair = -1,
                      .param = chunk,
                      .blob = -1,
                      .n_part = 1 };
}

/* list[n] with the visits' steps among it, which is time `start` and on. to[i]: where list[i] is
 * now. visits NULL: without. */
static int rewrite(const plan *visits, const ct_step *list, int n, int start, ct_step *out, int *to)
{
    int m = 0;

    for (int i = 0; i < n; i++) {
        for (int k = 0; (visits != NULL) && (k < visits->n); k++) {
            const visit *v = &visits->v[k];

            if (v->begin == start + i) out[m++] = step_of(CT_STEP_BEGIN, v->chunk, list[i].layer);
            if (v->first == start + i) out[m++] = step_of(CT_STEP_WAIT, v->chunk, list[i].layer);
        }
        to[i] = m;
        if ((visits != NULL) || !ct_step_is_of_chunk(&list[i])) out[m++] = list[i];
        for (int k = 0; (visits != NULL) && (k < visits->n); k++)
            if (visits->v[k].last == start + i)
                out[m++] = step_of(CT_STEP_DROP, visits->v[k].chunk, list[i].layer);
    }
    to[n] = m;
    return m;
}

static void move(int *at, int n, const int *to)
{
    for (int i = 0; i < n; i++)
        if (at[i] >= 0) at[i] = to[at[i]];
}

/* Both lists; what is known of places in them moves along. */
static ct_status rewrite_both(ct_net *net, const plan *visits)
{
    ct_net_impl *m = ct_net_impl_of(net);
    int nf = net->n_forward, nb = net->n_backward, room = (visits != NULL) ? 3 * visits->n : 0;
    ct_step *forward = calloc((size_t)(nf + room) + 1, sizeof(*forward));
    ct_step *backward = calloc((size_t)(nb + room) + 1, sizeof(*backward));
    int *to = calloc((size_t)(nf + nb) + 2, sizeof(*to)), *back;

    if ((forward == NULL) || (backward == NULL) || (to == NULL)) {
        free(forward);
        free(backward);
        free(to);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for the steps of a net");
    }
    back = to + nf + 1;
    net->n_forward = rewrite(visits, net->forward, nf, 0, forward, to);
    net->n_backward = rewrite(visits, net->backward, nb, nf, backward, back);
    free(net->forward);
    free(net->backward);
    net->forward = forward;
    net->backward = backward;
    move(m->forward_step, net->n_layer, to);
    move(m->forward_first, net->n_layer, to);
    move(m->forward_rest, net->n_layer, to);
    move(m->backward_step, net->n_layer, back);
    move(m->backward_first, net->n_layer, back);
    for (int a = 0; a < m->n_again; a++)
        m->again[a].when = net->n_forward + back[m->again[a].when - nf];
    free(to);
    return CT_OK;
}

ct_status ct_net_fetches(ct_net *net)
{
    ct_status status;
    plan p;

    if (!comes_and_goes(net)) return CT_OK;
    CT_TRY(rewrite_both(net, NULL));
    CT_TRY(make_plan(net, &p));
    status = rewrite_both(net, &p);
    close_plan(&p);
    return status;
}

/* ---- places */

/* When the weights of a chunk are here, from its BEGIN to its DROP: n stretches of steps. */
typedef struct stay {
    int n;
    int *from, *to;
} stay;

static void close_stays(stay *s, int n)
{
    for (int c = 0; (s != NULL) && (c < n); c++) {
        free(s[c].from);
        free(s[c].to);
    }
    free(s);
}

static ct_status note_stay(stay *s, const ct_step *step, int t)
{
    size_t n = (size_t)s->n + 1;
    int *from, *to;

    if ((step->kind == CT_STEP_DROP) && (s->n > 0)) s->to[s->n - 1] = t;
    if (step->kind != CT_STEP_BEGIN) return CT_OK;
    from = realloc(s->from, sizeof(*from) * n);
    if (from != NULL) s->from = from;
    to = realloc(s->to, sizeof(*to) * n);
    if (to != NULL) s->to = to;
    if ((from == NULL) || (to == NULL))
        return CT_FAIL(CT_ERR_NOMEM, "no memory for the places of weights");
    s->from[s->n++] = t;
    return CT_OK;
}

static ct_status find_stays(const ct_net *net, int n_chunk, stay **stays_p)
{
    stay *s = calloc((size_t)n_chunk + 1, sizeof(*s));
    ct_status status = CT_OK;

    if (s == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for the places of weights");
    for (int t = 0; (status == CT_OK) && (t < net->n_forward + net->n_backward); t++) {
        const ct_step *step =
            (t < net->n_forward) ? &net->forward[t] : &net->backward[t - net->n_forward];

        if (ct_step_is_of_chunk(step)) status = note_stay(&s[step->param], step, t);
    }
    if (status != CT_OK)
        close_stays(s, n_chunk);
    else
        *stays_p = s;
    return status;
}

static bool meet(const stay *a, const stay *b)
{
    for (int i = 0; i < a->n; i++)
        for (int k = 0; k < b->n; k++)
            if ((a->from[i] <= b->to[k]) && (b->from[k] <= a->to[i])) return true;
    return false;
}

/* The lowest place for chunk c beside those that are placed, in the order of their places. */
static size_t find_place(const ct_region *r, const stay *s, const int *placed, int n, int c)
{
    size_t at = 0;

    for (int i = 0; i < n; i++) {
        const ct_region *o = &r[placed[i]];

        if (!meet(&s[placed[i]], &s[c])) continue;
        if (o->offset >= at + ct_align_up(r[c].bytes)) break;
        if (o->offset + ct_align_up(o->bytes) > at) at = o->offset + ct_align_up(o->bytes);
    }
    return at;
}

/* The largest first. */
static size_t place_all(ct_region *r, const stay *s, int n, int *placed)
{
    size_t end = 0;

    for (int k = 0; k < n; k++) {
        int c = -1, at = k;

        for (int i = 0; i < n; i++) {
            bool done = (r[i].offset != CT_NOWHERE);

            if (!done && ((c < 0) || (r[i].bytes > r[c].bytes))) c = i;
        }
        r[c].offset = find_place(r, s, placed, k, c);
        for (; (at > 0) && (r[placed[at - 1]].offset > r[c].offset); at--)
            placed[at] = placed[at - 1];
        placed[at] = c;
        if (r[c].offset + ct_align_up(r[c].bytes) > end)
            end = r[c].offset + ct_align_up(r[c].bytes);
    }
    return end;
}

static void take_places(ct_net *net, size_t bytes)
{
    const ct_net_impl *m = ct_net_impl_of(net);
    int64_t staying = ct_net_staying(net);
    int64_t window = staying + (int64_t)(bytes / sizeof(float));

    for (int c = 0; c < m->n_chunk; c++) m->weight[c].offset += (size_t)staying * sizeof(float);
    net->weight_memory = window + net->weight_count - net->grad_count;
    for (int k = 0; k < net->n_param; k++) {
        ct_param *p = &net->param[k];

        if ((p->chunk >= 0) && stays(net, p->chunk)) continue;
        p->weight_shift = (p->chunk < 0) ? window - net->grad_count
                                         : (int64_t)(m->weight[p->chunk].offset / sizeof(float)) -
                                               net->param[m->chunk[p->chunk]].offset;
    }
}

/* Weights of another net, which has found places for its own steps. */
static ct_status check_places(const ct_net *net, const stay *s)
{
    const ct_net *owner = net->options.share;
    const ct_net_impl *m = ct_net_impl_of(owner);

    for (int a = 0; a < m->n_chunk; a++) {
        for (int b = 0; b < a; b++) {
            const ct_region *x = &m->weight[a], *y = &m->weight[b];
            bool apart = (x->offset + x->bytes <= y->offset) || (y->offset + y->bytes <= x->offset);

            if (apart || !meet(&s[a], &s[b])) continue;
            return CT_FAIL(CT_ERR_CONFIG,
                           "net \"%s\" reads %s and %s at one time, which the net whose weights it "
                           "has keeps in one place: memory { zero: 3 } and weights FILE want nets "
                           "with the same order of layers",
                           net->name, owner->param[m->chunk[a]].key, owner->param[m->chunk[b]].key);
        }
    }
    return CT_OK;
}

ct_status ct_net_place_weights(ct_net *net)
{
    ct_net_impl *m = ct_net_impl_of(net);
    int n = ct_net_impl_of(owner_of(net))->n_chunk, *placed;
    stay *s = NULL;
    ct_status status;

    if (!comes_and_goes(net)) return CT_OK;
    CT_TRY(find_stays(net, n, &s));
    if (owner_of(net) != net) {
        status = net->options.no_data ? CT_OK : check_places(net, s);
        close_stays(s, n);
        return status;
    }
    placed = calloc((size_t)n + 1, sizeof(*placed));
    if (m->weight == NULL) m->weight = calloc((size_t)n + 1, sizeof(*m->weight));
    if ((placed == NULL) || (m->weight == NULL)) {
        free(placed);
        close_stays(s, n);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for the places of weights");
    }
    for (int c = 0; c < n; c++) {
        const ct_param *last = &net->param[m->chunk[c + 1] - 1];

        m->weight[c].bytes = 0;
        if (!stays(net, c))
            m->weight[c].bytes =
                (size_t)(last->offset + last->count - net->param[m->chunk[c]].offset) *
                sizeof(float);
        m->weight[c].offset = CT_NOWHERE;
    }
    take_places(net, place_all(m->weight, s, n, placed));
    free(placed);
    close_stays(s, n);
    return CT_OK;
}

/* ---- steps of chunks */

ct_status ct_pass_chunk(ct_pass *pass, const ct_step *s)
{
    const ct_exec *ex = &pass->exec;
    const ct_net *owner = owner_of(pass->net);
    ct_chunk_call call = (s->kind == CT_STEP_BEGIN)  ? CT_CHUNK_BEGIN
                         : (s->kind == CT_STEP_WAIT) ? CT_CHUNK_WAIT
                                                     : CT_CHUNK_DROP;

    if (ex->chunk == NULL)
        return CT_FAIL(CT_ERR_ARG, "the weights of net \"%s\" come and go, and nobody brings them",
                       owner->name);
    CT_TRY(ex->chunk(ex->chunk_ctx, call, s->param));
    if ((call == CT_CHUNK_DROP) && ct_net_impl_of(pass->net)->poison_window) {
        const ct_region *r = &ct_net_impl_of(owner)->weight[s->param];

        return ct_net_poison(owner, ex->stream, (char *)owner->weight_arena + r->offset, r->bytes);
    }
    return CT_OK;
}

int ct_net_chunk_count(const ct_net *net)
{
    return ct_net_impl_of(net)->n_chunk;
}

void ct_net_chunk(const ct_net *net, int c, int *first_p, int *end_p)
{
    *first_p = ct_net_impl_of(net)->chunk[c];
    *end_p = ct_net_impl_of(net)->chunk[c + 1];
}

bool ct_net_has_visits(const ct_net *net)
{
    return (net->options.share == NULL) && comes_and_goes(net);
}

bool ct_net_param_visits(const ct_net *net, const ct_param *p)
{
    /* net may have some of its parameters alone, so chunks do not find them */
    return ct_net_has_visits(net) && (p->chunk >= 0) &&
           !(net->options.window->keeps_tied && p->tied);
}

int64_t ct_net_staying(const ct_net *net)
{
    int k = 0;

    if (!ct_net_has_visits(net)) return 0;
    while ((k < net->n_param) && net->param[k].learns && !ct_net_param_visits(net, &net->param[k]))
        k++;
    return ((k < net->n_param) && net->param[k].learns) ? net->param[k].offset
           : (k > 0)                                    ? net->grad_count
                                                        : 0;
}
