#include "planner/job_net.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "planner/parallel.h"

double ct_job_line_at(ct_job_line l, double samples)
{
    return l.at0 + l.slope * samples;
}

ct_job_line ct_job_line_of(double x0, double y0, double x1, double y1)
{
    ct_job_line l = { .slope = fmax(0, (y1 - y0) / (x1 - x0)) };

    l.at0 = y0 - l.slope * x0;
    return (l.at0 >= 0) ? l : (ct_job_line){ 0, y1 / x1 };
}

/* A net of one batch, and what is asked of it. */
typedef struct sample {
    int64_t batch;
    ct_net *net;
    ct_net_chain chain;
    double *other; /* [n_block]; kept behind it */
    double beside; /* of the plan of memory, beside what is kept */
} sample;

static void close_sample(sample *s)
{
    ct_net_destroy(s->net);
    ct_net_chain_destroy(&s->chain);
    free(s->other);
}

static ct_status weigh(sample *s, const Ct__NetParameter *param)
{
    size_t n = (size_t)s->net->n_layer + 1, n_block = (size_t)s->chain.n_block;
    double *one = calloc(n, sizeof(*one));
    ct_status status;

    s->other = calloc(2 * n_block, sizeof(*s->other));
    if ((one == NULL) || (s->other == NULL)) {
        free(one);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for %zu layers", n);
    }
    for (size_t i = 0; i < n; i++) one[i] = 1;
    status = ct_net_chain_weigh(&s->chain, param, s->net, one, one, s->other + n_block, s->other);
    free(one);
    s->beside = (double)s->net->memory.planned - (double)ct_net_kept_bytes(s->net);
    return status;
}

static ct_status open_sample(ct_job_net *n, int64_t batch, const ct_net_limits *limits, sample *s)
{
    ct_net_options options = n->options;

    *s = (sample){ .batch = batch };
    options.env.n_rank = 1;
    options.env.global_batch_size = batch;
    ct_parallel_set_dummy_batch(n->param, batch);
    CT_TRY(ct_net_chain_make(n->param, &options, limits, &s->chain));
    CT_TRY(ct_net_make_again(n->param, &options, NULL, 0, &s->net));
    return weigh(s, n->param);
}

/* ---- layers */

static double *figure(ct_estimate *e, int direction, bool bytes)
{
    if (direction == CT_JOB_FORWARD) return bytes ? &e->forward_bytes : &e->forward_flop;
    return bytes ? &e->backward_bytes : &e->backward_flop;
}

static void add_layers(ct_job_net *n, const sample *s, const sample *t)
{
    for (int i = 0; i < t->net->n_layer; i++) {
        ct_job_layer *l = &n->layer[i];
        ct_estimate a, b;

        ct_net_estimate(t->net, i, &b);
        if (s->net->n_layer == t->net->n_layer) ct_net_estimate(s->net, i, &a);
        for (int d = 0; d < CT_JOB_N_DIRECTION; d++) {
            double x0 = (double)s->batch, x1 = (double)t->batch;

            l->flop[d] = (ct_job_line){ 0, *figure(&b, d, false) / x1 };
            l->bytes[d] = (ct_job_line){ 0, *figure(&b, d, true) / x1 };
            if (s->net->n_layer != t->net->n_layer) continue; /* other Reorders */
            l->flop[d] = ct_job_line_of(x0, *figure(&a, d, false), x1, *figure(&b, d, false));
            l->bytes[d] = ct_job_line_of(x0, *figure(&a, d, true), x1, *figure(&b, d, true));
        }
    }
}

/* ---- blocks */

static ct_job_line line_of(const sample *s, const sample *t, double a, double b)
{
    return ct_job_line_of((double)s->batch, a, (double)t->batch, b);
}

/* The blocks' other bytes are not there at a time: the largest counts as what the net needs. */
static double largest(const sample *s)
{
    double most = 0;

    for (int b = 0; b < s->chain.n_block; b++) most = fmax(most, s->other[b]);
    return (most > 0) ? s->beside / most : 0;
}

static void add_blocks(ct_job_net *n, const sample *s, const sample *t)
{
    double low = largest(s), high = largest(t);

    for (int b = 0; b < n->n_block; b++) {
        const ct_net_block *x = &s->chain.block[b], *y = &t->chain.block[b];
        ct_job_block *k = &n->block[b];

        k->kept = line_of(s, t, (double)x->kept_bytes, (double)y->kept_bytes);
        k->fixed = line_of(s, t, (double)x->fixed_bytes, (double)y->fixed_bytes);
        k->input = line_of(s, t, (double)x->input_bytes, (double)y->input_bytes);
        k->other = line_of(s, t, low * s->other[b], high * t->other[b]);
        /* in a segment that goes on behind it: alone it may take less */
        k->again = (y->forward_s > 0) ? fmax(y->again_s, y->joint_s) / y->forward_s : 0;
        k->may_cut = (b > 0);
    }
}

int ct_job_net_maker(const ct_job_net *n, int layer, int slot)
{
    return n->maker[n->layer[layer].first_bottom + slot];
}

static int find_maker(const ct_net *net, int layer, const ct_blob *blob)
{
    for (int k = layer - 1; k >= 0; k--) {
        for (int t = 0; t < net->layer[k]->n_top; t++) {
            if (net->pass->instance[k]->top[t] == blob) return k;
        }
    }
    return 0; /* never */
}

static ct_status find_makers(ct_job_net *n)
{
    const ct_net *net = n->net;
    int n_bottom = 0;

    for (int i = 0; i < net->n_layer; i++) {
        n->layer[i].first_bottom = n_bottom;
        n_bottom += net->layer[i]->n_bottom;
    }
    n->maker = calloc((size_t)n_bottom + 1, sizeof(*n->maker));
    if (n->maker == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d bottoms", n_bottom);
    for (int i = 0; i < net->n_layer; i++) {
        for (int b = 0; b < net->layer[i]->n_bottom; b++)
            n->maker[n->layer[i].first_bottom + b] =
                find_maker(net, i, net->pass->instance[i]->bottom[b]);
    }
    return CT_OK;
}

/* What the layers of a block make that the next one reads. */
static void add_values(ct_job_net *n)
{
    const ct_net *net = n->net;

    for (int i = 0; i < net->n_layer; i++) {
        for (int b = 0; b < net->layer[i]->n_bottom; b++) {
            int k = ct_job_net_maker(n, i, b);
            const ct_tensor *t = &net->pass->instance[i]->bottom[b]->data;
            ct_job_block *from = &n->block[n->layer[k].block];

            if ((net->layer[k]->n_bottom == 0) || (n->layer[i].block != n->layer[k].block + 1))
                continue;
            from->value = fmax(from->value, (double)ct_tensor_bytes(t) / (double)n->batch);
        }
    }
}

/* ---- weights */

typedef struct users {
    int first, last, n; /* layers */
} users;

static double bytes_of(const ct_job_net *n, const ct_param *p, double *learned_p)
{
    double bytes = (double)ct_align_up((size_t)p->count * sizeof(float));

    *learned_p = p->learns ? bytes : 0;
    if (!p->learns) return bytes;
    return 2 * bytes + n->options.state_bytes * bytes / (double)sizeof(float);
}

/* Blocks that share a weight stay together, but for a table of an Embed and the head. */
static void share_weight(ct_job_net *n, const ct_param *p, const users *u)
{
    int first = n->layer[u->first].block, last = n->layer[u->last].block;
    bool tied = (u->n == 2) && ct_layer_is(n->net->layer[u->first], "Embed") &&
                ct_layer_is(n->net->layer[u->last], "InnerProduct") && (n->tie_first < 0);

    if (first == last) return;
    for (int b = 1; b < n->n_block; b++) {
        bool between = (b > first) && (b <= last);

        if (between != tied) n->block[b].may_cut = false;
    }
    if (!tied) return;
    n->tie_first = first;
    n->tie_last = last;
    n->tie_embed = u->first;
    n->tie_head = u->last;
    n->tie_weights = bytes_of(n, p, &n->tie_learned);
}

static ct_status add_weights(ct_job_net *n)
{
    const ct_net *net = n->net;
    users *user = calloc((size_t)net->n_param + 1, sizeof(*user));

    if (user == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d parameters", net->n_param);
    for (int i = 0; i < net->n_layer; i++) {
        for (int w = 0; w < net->layer[i]->n_weight; w++) {
            users *u = &user[ct_net_param_of(net, i, w)];

            if (u->n++ == 0) u->first = i;
            u->last = i;
        }
    }
    for (int k = 0; k < net->n_param; k++) {
        ct_job_block *b = &n->block[n->layer[user[k].first].block];
        double learned;

        b->weights += bytes_of(n, &net->param[k], &learned);
        b->learned += learned;
        if (user[k].n > 1) share_weight(n, &net->param[k], &user[k]);
    }
    free(user);
    return CT_OK;
}

/* ---- all of it */

static void find_carried(ct_job_net *n)
{
    for (int i = 0; i < n->net->n_layer; i++) {
        n->one_micro_batch |= n->net->layer[i]->ops->varies;
        for (int s = 0; s < CT_MAX_BUFFER; s++)
            n->one_micro_batch |= (n->net->pass->instance[i]->buffer[s].row > 0);
    }
}

static bool reads(const Ct__LayerParameter *reader, const Ct__LayerParameter *maker)
{
    for (size_t b = 0; b < reader->n_bottom; b++) {
        for (size_t t = 0; t < maker->n_top; t++) {
            if (strcmp(reader->bottom[b], maker->top[t]) == 0) return true;
        }
    }
    return false;
}

static bool is_of_message(const ct_job_net *n, int layer)
{
    for (size_t k = 0; k < n->param->n_layer; k++) {
        if (n->param->layer[k] == n->net->layer[layer]->param) return true;
    }
    return false;
}

/* A source belongs to the block of its first reader, as to its stage in a parallel file. */
static void place_sources(ct_job_net *n)
{
    for (int i = 0; i < n->net->n_layer; i++) {
        int k = i + 1;

        if ((n->net->layer[i]->n_bottom > 0) || !is_of_message(n, i)) continue;
        while ((k < n->net->n_layer) &&
               !(is_of_message(n, k) && reads(n->net->layer[k]->param, n->net->layer[i]->param)))
            k++;
        if (k < n->net->n_layer) n->layer[i].block = n->layer[k].block;
    }
}

static ct_status fill(ct_job_net *n, const sample *s, const sample *t)
{
    int *block = calloc((size_t)n->net->n_layer + 1, sizeof(*block));
    ct_status status;

    n->block = calloc((size_t)n->n_block, sizeof(*n->block));
    n->layer = calloc((size_t)n->net->n_layer + 1, sizeof(*n->layer));
    if ((block == NULL) || (n->block == NULL) || (n->layer == NULL)) {
        free(block);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for %d layers", n->net->n_layer);
    }
    status = ct_net_chain_blocks(&n->chain, n->param, n->net, block);
    for (int i = 0; i < n->net->n_layer; i++) n->layer[i].block = block[i];
    free(block);
    CT_TRY(status);
    place_sources(n);
    add_layers(n, s, t);
    add_blocks(n, s, t);
    CT_TRY(find_makers(n));
    add_values(n);
    find_carried(n);
    return add_weights(n);
}

ct_status ct_job_net_make(Ct__NetParameter *param, const ct_net_options *options, int64_t batch,
                          const ct_net_limits *limits, ct_job_net *n)
{
    ct_job_net made = { .param = param, .options = *options, .tie_first = -1, .tie_last = -1 };
    sample low = { 0 }, high = { 0 };
    ct_status status = CT_OK;

    if (batch < 2) return CT_FAIL(CT_ERR_ARG, "a batch of %lld", (long long)batch);
    CT_TRY_GOTO(status, out, open_sample(&made, 1, limits, &low));
    CT_TRY_GOTO(status, out, open_sample(&made, batch, limits, &high));
    if (low.chain.n_block != high.chain.n_block) {
        status = CT_FAIL(CT_ERR_CONFIG, "the net has %d blocks with 1 sample, %d with %lld",
                         low.chain.n_block, high.chain.n_block, (long long)batch);
        goto out;
    }
    made.net = high.net;
    made.chain = high.chain;
    made.batch = batch;
    made.n_block = high.chain.n_block;
    made.hash = ct_net_hash(made.net);
    status = fill(&made, &low, &high);
    high.net = NULL;
    high.chain = (ct_net_chain){ 0 };
out:
    close_sample(&low);
    close_sample(&high);
    if (status == CT_OK)
        *n = made;
    else
        ct_job_net_destroy(&made);
    return status;
}

void ct_job_net_destroy(ct_job_net *n)
{
    ct_net_destroy(n->net);
    ct_net_chain_destroy(&n->chain);
    free(n->block);
    free(n->layer);
    free(n->maker);
    free(n->measured);
    *n = (ct_job_net){ 0 };
}
