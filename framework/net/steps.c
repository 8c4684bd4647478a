/* Compiles the net to flat lists of steps, and finds its outputs.
 *
 * Layers run in their order, in backward in the reverse one. Where several ranks run, a layer that
 * adds up over them (ct_sum_ops) is cut at its sums: each is a pair of steps, and layers that do
 * not depend on it run in between. Its first part stands behind what makes that part's inputs, so
 * that the first sum begins as early as it can. Its last part stands before the first layer that
 * needs what it makes, so that the last sum is waited for as late as it can be. A layer whose first
 * part reads less than the others has had that time already: it ends at its own place, and the
 * other inputs need not be kept. Sums before the last one are waited for behind the next layer that
 * runs, so that the last one begins soon. Layers that run whole keep their order, so gradients are
 * final in the same order on one rank and on many.
 *
 * Transfers of a net that is divided among ranks are such sums, one a layer. What comes from
 * another stage is asked for at the start of the list.
 *
 * In a packed net nothing is under way where rows are left out (narrow.c): they are moved there.
 */
#include "framework/net/net_impl.h"

#include <stdlib.h>

/* One list in the making. */
typedef struct builder {
    ct_net *net;
    const ct_graph *graph;
    bool forward, cuts; /* cuts: some layer runs in parts */
    ct_step *list;
    int *n_p;          /* steps so far                                       */
    int *n_sum;        /* per layer: sums that it is cut at                  */
    int *next;         /* per layer: parts that stand in the list            */
    int *pair;         /* per layer: its sum under way                       */
    int *open, n_open; /* layers that have begun and not ended, oldest first */
    bool *done; /* per parameter: waited for; per layer: the diffs of its tops are filled in */
    int ready;  /* of the parameters that learn, in order of backward */
    int waited; /* chunks of gradients */
    int still;  /* nothing is under way before this place; 0: there is no such place */
} builder;

static ct_step *add_step(builder *b, ct_step_kind kind, int layer)
{
    ct_step *s = &b->list[(*b->n_p)++];

    *s = (ct_step){ .kind = kind, .layer = layer, .pair = -1, .param = -1, .blob = -1 };
    return s;
}

/* The layer at whose place layer i runs. */
static int place_of(const builder *b, int i)
{
    return ct_net_impl_of(b->net)->place[i];
}

static bool has_begun(const builder *b, int i)
{
    return b->next[i] > 0;
}

static bool has_ended(const builder *b, int i)
{
    return b->next[i] > b->n_sum[i];
}

/* ---- pairs */

static void add_pair_of_weights(builder *b, ct_step_kind kind, int layer, int param)
{
    ct_step *s = add_step(b, kind, layer);

    s->of = CT_PAIR_WEIGHTS;
    s->param = s->pair = param;
}

/* Where the net learns: a wait in front of the first reader of each parameter that does. */
static void add_waits(builder *b, int i)
{
    for (int w = 0; b->forward && (w < b->net->layer[i]->n_weight); w++) {
        int k = b->graph->node[i].param_of[w];

        if (b->done[k] || !b->net->param[k].learns) continue;
        b->done[k] = true;
        add_pair_of_weights(b, CT_STEP_WAIT, i, k);
    }
}

/* The gradients of a window whose memory others may have: those of chunks that are final, but for
 * the last few of them. */
static void add_window_waits(builder *b, int i)
{
    const ct_net *net = b->net;
    const ct_net_impl *m = ct_net_impl_of(net);
    int lag = (m->n_chunk > 0) ? net->options.window->lag : 0;

    if ((m->n_chunk == 0) || !net->options.window->gradients) return;
    while ((b->waited + lag < m->n_chunk) && (m->chunk[b->waited + lag + 1] <= b->ready)) {
        for (int k = m->chunk[b->waited]; k < m->chunk[b->waited + 1]; k++) {
            if (ct_net_waits_for(net, k)) add_pair_of_weights(b, CT_STEP_WAIT, i, k);
        }
        b->waited++;
    }
}

/* The parameters whose last gradient comes from layer i. Those that learn are in order of it. */
static void add_ready(builder *b, int i)
{
    const ct_net *net = b->net;

    for (; (b->ready < net->n_param) && net->param[b->ready].learns; b->ready++) {
        for (int k = 0; k < i; k++) {
            const ct_graph_node *n = &b->graph->node[k];

            for (int w = 0; w < net->layer[k]->n_weight; w++) {
                if (n->weight_wanted[w] && (n->param_of[w] == b->ready) &&
                    !ct_net_comes_later(net, k, w, b->ready))
                    return;
            }
        }
        add_pair_of_weights(b, CT_STEP_BEGIN, i, b->ready);
    }
}

/* How many doubles take as many bytes as a transfer. */
static int size_of(const ct_layer *l, const ct_instance *in, bool forward)
{
    ct_transfer t;

    l->ops->sums->transfer(l, in, forward, &t);
    return (int)(((size_t)t.n * ct_dtype_size(t.dtype) + sizeof(double) - 1) / sizeof(double));
}

/* Sum k of layer i. One sum of a layer is under way at a time. */
static void add_sum(builder *b, ct_step_kind kind, int i, int k)
{
    const ct_layer *l = b->net->layer[i];
    ct_step *s = add_step(b, kind, i);

    if (kind == CT_STEP_BEGIN) b->pair[i] = ct_net_impl_of(b->net)->n_pair++;
    s->of = (l->ops->sums->transfer != NULL) ? CT_PAIR_TRANSFER : CT_PAIR_SUM;
    s->pair = b->pair[i];
    s->part = k;
    s->count = (s->of == CT_PAIR_TRANSFER)
                   ? size_of(l, b->net->pass->instance[i], b->forward)
                   : l->ops->sums->count(l, b->net->pass->instance[i], b->forward, k);
}

/* ---- layers, whole and in parts */

/* Where no reader of a top of layer i sends a gradient. */
static void add_diffs(builder *b, int i)
{
    const ct_graph_node *n = &b->graph->node[i];

    if (b->forward || b->done[i]) return;
    b->done[i] = true;
    for (int t = 0; t < n->n_top; t++) {
        const ct_value *v = &b->graph->value[n->top[t]];

        if (v->wants && (v->loss_weight != 0.0f)) {
            ct_step *s = add_step(b, CT_STEP_LOSS_DIFF, i);

            s->blob = v->blob;
            s->value = v->loss_weight;
        } else if (v->wants && v->zero) {
            add_step(b, CT_STEP_ZERO_DIFF, i)->blob = v->blob;
        }
    }
}

/* The next part of the layer that runs at place i, and the sum behind it. */
static void add_part(builder *b, int i)
{
    ct_net_impl *m = ct_net_impl_of(b->net);
    int *first = b->forward ? m->forward_first : m->backward_first;
    int *last = b->forward ? m->forward_step : m->backward_step;
    int at = *b->n_p;
    ct_step *s = add_step(b, b->forward ? CT_STEP_FORWARD : CT_STEP_BACKWARD, m->runner[i]);

    s->part = b->next[i];
    s->n_part = b->n_sum[i] + 1;
    if (b->forward && (b->next[i] <= 1)) m->forward_rest[i] = at;
    if (b->next[i]++ == 0) first[i] = at;
    last[i] = at;
    if (!has_ended(b, i)) add_sum(b, CT_STEP_BEGIN, i, s->part);
}

static void begin_parts(builder *b, int i)
{
    add_diffs(b, i);
    b->open[b->n_open++] = i;
    add_part(b, i);
}

static void advance(builder *b, int i)
{
    add_sum(b, CT_STEP_WAIT, i, b->next[i] - 1);
    if (b->next[i] == b->n_sum[i]) add_waits(b, i); /* the last part reads the weights */
    add_part(b, i);
}

/* ---- what depends on what */

/* The layer at whose place value v is made, in backward its diff; -1: no layer makes it. */
static int source_of(const builder *b, const ct_value *v)
{
    if (ct_graph_is_inner(b->graph, v)) return -1;
    if (b->forward) return place_of(b, v->node);
    if ((v->reader < 0) || !b->graph->node[v->reader].bottom_wanted[v->slot]) return -1;
    return place_of(b, v->reader);
}

/* … and the one at whose place it is needed. */
static int user_of(const builder *b, const ct_value *v)
{
    if (ct_graph_is_inner(b->graph, v)) return -1;
    if (!b->forward) return b->graph->node[v->node].runs_backward ? place_of(b, v->node) : -1;
    return (v->reader >= 0) ? place_of(b, v->reader) : -1;
}

/* Whether value v, in backward its diff, has been made. */
static bool is_made(const builder *b, const ct_value *v)
{
    int source = source_of(b, v);

    return (source < 0) || has_ended(b, source);
}

/* Bit i: part 0 of layer i needs bottom i in forward. */
static unsigned needs_of_first(const builder *b, int i)
{
    unsigned first = b->net->layer[i]->ops->sums->first_bottoms;

    return (b->forward && (first != 0)) ? first : ~0u;
}

/* Whether all is there that layer i needs, or its first part. */
static bool is_fed(const builder *b, int i, unsigned bottoms)
{
    for (int k = 0; k < b->graph->n_value; k++) {
        const ct_value *v = &b->graph->value[k];

        if ((user_of(b, v) != i) || is_made(b, v)) continue;
        if ((bottoms == ~0u) || ((bottoms >> v->slot) & 1u)) return false;
    }
    return true;
}

/* Layers in parts whose inputs are there, now that layer i has ended. */
static void begin_users(builder *b, int i)
{
    for (int k = 0; k < b->graph->n_value; k++) {
        const ct_value *v = &b->graph->value[k];
        int user = (source_of(b, v) == i) ? user_of(b, v) : -1;

        if ((user >= 0) && (b->n_sum[user] > 0) && !has_begun(b, user) &&
            is_fed(b, user, needs_of_first(b, user)))
            begin_parts(b, user);
    }
}

/* Whether layer i, which works in place, overwrites what layer k reads until its last part. It does
 * not where layer k has its place behind it, and has only begun before: there it would find that.
 */
static bool spoils(const builder *b, int i, int k)
{
    const ct_graph_node *mine = &b->graph->node[i], *other = &b->graph->node[k];
    const int *root = ct_net_impl_of(b->net)->data_root;

    for (int t = 0; b->forward && (k < i) && (t < mine->n_top); t++) {
        for (int s = 0; s < other->n_bottom; s++) {
            if (root[b->graph->value[mine->top[t]].blob] ==
                root[b->graph->value[other->bottom[s]].blob])
                return true;
        }
    }
    return false;
}

static void end_parts(builder *b, int i);

static void end_spoiled(builder *b, int i)
{
    for (int k = 0; k < b->n_open; k++) {
        if ((b->open[k] == i) || !spoils(b, i, b->open[k])) continue;
        end_parts(b, b->open[k]);
        k = -1; /* the list has changed */
    }
}

static void end_parts(builder *b, int i)
{
    int at = 0;

    end_spoiled(b, i);
    while (!has_ended(b, i)) advance(b, i);
    while (b->open[at] != i) at++;
    for (b->n_open--; at < b->n_open; at++) b->open[at] = b->open[at + 1];
    begin_users(b, i);
}

/* Ends layers in parts that layer i waits for. */
static void end_sources(builder *b, int i)
{
    for (int k = 0; k < b->graph->n_value; k++) {
        const ct_value *v = &b->graph->value[k];
        int source = (user_of(b, v) == i) ? source_of(b, v) : -1;

        if ((source >= 0) && has_begun(b, source) && !has_ended(b, source)) end_parts(b, source);
    }
    end_spoiled(b, i);
}

static bool transfers(const ct_net *net, int i)
{
    const ct_sum_ops *sums = net->layer[i]->ops->sums;

    return (sums != NULL) && (sums->transfer != NULL);
}

/* What comes from other ranks, and needs nothing of this list, is asked for first of all. */
static void begin_receives(builder *b)
{
    const ct_net *net = b->net;

    for (int k = 0; k < net->n_layer; k++) {
        int i = b->forward ? k : net->n_layer - 1 - k;

        if ((b->n_sum[i] > 0) && transfers(net, i) && net->layer[i]->ops->sums->ahead &&
            (b->forward || b->graph->node[i].runs_backward))
            begin_parts(b, i);
    }
}

/* ---- lists */

static void add_layer(builder *b, int i)
{
    if (b->n_sum[i] > 0) {
        if (!has_begun(b, i)) begin_parts(b, i);
        if (needs_of_first(b, i) != ~0u) end_parts(b, i);
        return;
    }
    add_part(b, i);
    if (!b->cuts) return;
    for (int k = 0; k < b->n_open; k++) {
        int open = b->open[k];

        if ((b->next[open] < b->n_sum[open]) && is_fed(b, open, ~0u)) advance(b, open);
    }
    begin_users(b, i);
}

/* Layers that do must keep their order: one writes a gradient to which the other adds. */
static bool shares_weights(const builder *b, int i)
{
    const ct_net *net = b->net;

    for (int k = 0; k < net->n_layer; k++) {
        for (int w = 0; (k != i) && (w < net->layer[k]->n_weight); w++) {
            for (int v = 0; v < net->layer[i]->n_weight; v++) {
                if (b->graph->node[k].param_of[w] == b->graph->node[i].param_of[v]) return true;
            }
        }
    }
    return false;
}

/* Layer i runs alone, or is the last of a group that runs in its parts. */
static bool has_parts(const ct_net *net, int i)
{
    const ct_net_impl *m = ct_net_impl_of(net);
    const ct_layer *runner = net->layer[m->runner[i]];

    if ((net->layer[i]->ops->sums == NULL) || (m->place[i] != i)) return false;
    return (m->runner[i] == i) || (runner->ops->fusion->forward_part != NULL);
}

/* Where ranks add up, or the net is divided among them. Where the shapes vary only a packed net's
 * transfers are cut, whose sizes all ranks know. */
static void count_sums(builder *b)
{
    const ct_net *net = b->net;
    bool varies = (ct_pass_impl_of(net->pass)->vary != NULL);

    if (varies && (net->options.env.packed == NULL)) return;
    for (int i = 0; i < net->n_layer; i++) {
        if ((varies || (net->options.env.n_rank == 1)) && !transfers(net, i)) continue;
        if (!has_parts(net, i) || ct_host_layer_is(net, i) || shares_weights(b, i)) continue;
        b->n_sum[i] = ct_layer_sums(net->layer[i], net->pass->instance[i], b->forward);
        b->cuts |= (b->n_sum[i] > 0);
    }
}

static void compile(builder *b)
{
    ct_net_impl *m = ct_net_impl_of(b->net);
    int n = b->net->n_layer, *first = b->forward ? m->forward_first : m->backward_first;
    int *last = b->forward ? m->forward_step : m->backward_step;

    for (int i = 0; i < n; i++) first[i] = last[i] = -1;
    if (b->forward && (b->net->options.env.packed != NULL))
        b->still = ct_net_narrow_behind(b->net) + 1;
    begin_receives(b);
    for (int k = 0; k < n; k++) {
        int i = b->forward ? k : n - 1 - k;

        if (!b->forward && !b->graph->node[i].runs_backward) continue;
        while ((i > 0) && (i == b->still) && (b->n_open > 0)) end_parts(b, b->open[0]);
        if (b->cuts && (m->place[i] == i)) end_sources(b, i);
        if (b->n_sum[i] == 0) {
            add_waits(b, i);
            add_diffs(b, i);
        }
        for (int j = 0; !b->forward && (m->place[i] == i) && (j < i); j++) {
            if (m->place[j] == i) add_diffs(b, j);
        }
        if (m->place[i] == i) add_layer(b, i);
        if (!b->forward) {
            add_ready(b, i);
            add_window_waits(b, i);
        }
    }
    while (b->n_open > 0) end_parts(b, b->open[0]);
    for (int i = 0; i < n; i++) {
        first[i] = first[m->place[i]];
        last[i] = last[m->place[i]];
        if (b->forward) m->forward_rest[i] = m->forward_rest[m->place[i]];
    }
}

/* The list of one direction, in memory that holds as many steps as there may be. */
static ct_status make_list(ct_net *net, bool forward)
{
    const ct_net_impl *m = ct_net_impl_of(net);
    size_t n = (size_t)net->n_layer + 1, n_param = (size_t)net->n_param, n_sum = 0;
    int *numbers = calloc(4 * n, sizeof(*numbers));
    bool *flags = calloc(n + n_param, sizeof(*flags));
    builder b = { .net = net, .graph = &m->graph, .forward = forward, .n_sum = numbers };

    b.n_p = forward ? &net->n_forward : &net->n_backward;
    b.done = flags;
    if (numbers != NULL) {
        b.next = numbers + n;
        b.pair = numbers + 2 * n;
        b.open = numbers + 3 * n;
        count_sums(&b);
        for (size_t i = 0; i < n; i++) n_sum += (size_t)numbers[i];
        b.list = calloc(n + 2 * n_param + 3 * n_sum + (forward ? 0 : (size_t)m->graph.n_value),
                        sizeof(*b.list));
    }
    if ((flags != NULL) && (b.list != NULL)) compile(&b);
    if (forward)
        net->forward = b.list;
    else
        net->backward = b.list;
    free(numbers);
    free(flags);
    if ((flags != NULL) && (b.list != NULL)) return CT_OK;
    return CT_FAIL(CT_ERR_NOMEM, "no memory for the steps of %d layers", net->n_layer);
}

static ct_status find_outputs(ct_net *net)
{
    const ct_graph *g = &ct_net_impl_of(net)->graph;

    net->output = calloc((size_t)g->n_value + 1, sizeof(net->output[0]));
    if (net->output == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for the outputs");
    for (int v = 0; v < g->n_value; v++) {
        const ct_value *value = &g->value[v];

        if (value->reader >= 0) continue;
        net->output[net->n_output++] =
            (ct_output){ .blob = value->blob,
                         .layer = value->node,
                         .loss_weight = value->loss_weight,
                         .is_share = net->pass->instance[value->node]->top_is_share,
                         .is_twin = ct_layer_is_twin(net->layer[value->node]) };
    }
    return CT_OK;
}

/* A gradient that is said to cross between stages does: the other stage waits for it. */
static ct_status check_crossings(const ct_net *net)
{
    const ct_net_impl *m = ct_net_impl_of(net);

    for (int i = 0; !m->forward_only && (i < net->n_layer); i++) {
        const ct_graph_node *n = &m->graph.node[i];

        if ((n->param->transfer == NULL) || !n->param->transfer->gradient || n->runs_backward)
            continue;
        return CT_LAYER_FAIL(net->layer[i], CT_ERR_CONFIG, "%s",
                             (n->n_top == 0)
                                 ? "a gradient is to come back, and nothing before it "
                                   "learns"
                                 : "a gradient is to go back, and nothing behind it has "
                                   "one");
    }
    return CT_OK;
}

ct_status ct_net_steps(ct_net *net)
{
    ct_net_impl *m = ct_net_impl_of(net);
    size_t n = (size_t)net->n_layer + 1;

    CT_TRY(check_crossings(net));
    m->forward_step = calloc(5 * n, sizeof(int));
    if (m->forward_step == NULL)
        return CT_FAIL(CT_ERR_NOMEM, "no memory for the steps of %d layers", net->n_layer);
    m->backward_step = m->forward_step + n;
    m->forward_first = m->backward_step + n;
    m->backward_first = m->forward_first + n;
    m->forward_rest = m->backward_first + n;
    m->n_pair = net->n_param;
    CT_TRY(make_list(net, true));
    CT_TRY(make_list(net, false));
    return find_outputs(net);
}
