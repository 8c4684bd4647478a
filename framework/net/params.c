/* Parameters: who owns a weight blob, who shares it, its multipliers, its place in the arenas. */
#include <stdlib.h>
#include <string.h>

#include "framework/base/name_map.h"
#include "framework/base/rng.h"
#include "framework/net/net_impl.h"

static const Ct__ParamSpec *spec_of(const ct_graph_node *n, int w)
{
    return ((size_t)w < n->param->n_param) ? n->param->param[w] : NULL;
}

static const char *name_of(const ct_graph_node *n, int w)
{
    const Ct__ParamSpec *s = spec_of(n, w);

    return ((s != NULL) && (s->name != NULL) && (s->name[0] != '\0')) ? s->name : NULL;
}

static ct_param_rule *find_rule(const ct_net_impl *m, const char *name)
{
    for (int i = 0; i < m->n_rule; i++) {
        if (strcmp(m->rule[i].name, name) == 0) return &m->rule[i];
    }
    return NULL;
}

static ct_status merge(const ct_graph_node *n, const char *name, const char *what, bool has,
                       float value, const ct_param_rule *r, bool *has_p, float *value_p)
{
    if (!has) return CT_OK;
    if (*has_p && (*value_p != value))
        return CT_NODE_FAIL(n, CT_ERR_CONFIG,
                            "shared parameter \"%s\": %s is %g here and %g in layer \"%s\"", name,
                            what, (double)value, (double)*value_p, r->layer);
    *has_p = true;
    *value_p = value;
    return CT_OK;
}

ct_status ct_net_param_rules(ct_net *net)
{
    ct_net_impl *m = ct_net_impl_of(net);
    size_t n_spec = 0;

    for (int i = 0; i < m->graph.n_node; i++) n_spec += m->graph.node[i].param->n_param;
    m->rule = calloc(n_spec + 1, sizeof(m->rule[0]));
    if (m->rule == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %zu param entries", n_spec);
    for (int i = 0; i < m->graph.n_node; i++) {
        const ct_graph_node *n = &m->graph.node[i];

        for (int w = 0; (size_t)w < n->param->n_param; w++) {
            const Ct__ParamSpec *s = n->param->param[w];
            const char *name = name_of(n, w);
            ct_param_rule *r;

            if (name == NULL) continue;
            r = find_rule(m, name);
            if (r == NULL) {
                r = &m->rule[m->n_rule++];
                *r = (ct_param_rule){ .name = name, .layer = n->name, .lr = 1.0f, .decay = 1.0f };
            }
            CT_TRY(merge(n, name, "lr_mult", s->has_lr_mult, s->lr_mult, r, &r->has_lr, &r->lr));
            CT_TRY(merge(n, name, "decay_mult", s->has_decay_mult, s->decay_mult, r, &r->has_decay,
                         &r->decay));
        }
    }
    return CT_OK;
}

int64_t ct_param_rows(const ct_param *p)
{
    const ct_shape *s = &p->blob.data.shape;

    return ((s->ndim > 1) && (s->dim[0] > 0)) ? s->dim[0] : 1;
}

/* Where no entry says. Biases, and the scales and shifts of normalisations, have one axis. */
static float usual_decay(const ct_net *net, int i, int w)
{
    bool spared = net->options.decay_matrices && (net->layer[i]->weight[w].shape.ndim < 2);

    return spared ? 0.0f : 1.0f;
}

void ct_net_param_mult(const ct_net *net, int i, int w, float *lr_p, float *decay_p)
{
    const ct_net_impl *m = ct_net_impl_of(net);
    const ct_graph_node *n = &m->graph.node[i];
    const Ct__ParamSpec *s = spec_of(n, w);
    const char *name = name_of(n, w);

    *lr_p = net->layer[i]->weight[w].default_lr_mult;
    *decay_p = usual_decay(net, i, w);
    if (name != NULL) {
        const ct_param_rule *r = find_rule(m, name);

        *lr_p = r->lr;
        if (r->has_decay) *decay_p = r->decay;
    } else if (s != NULL) {
        *lr_p = s->has_lr_mult ? s->lr_mult : 1.0f;
        if (s->has_decay_mult) *decay_p = s->decay_mult;
    }
}

/* A parameter while they are gathered. */
typedef struct draft {
    ct_param param;
    const char *name;      /* NULL: not shared                                       */
    int last_user;         /* the lowest layer whose backward gives it a gradient    */
    const ct_shape *shape; /* the owner's                                            */
    int number;            /* order of declaration                                   */
} draft;

static const Ct__CompressionParameter *compress_of(const ct_graph_node *n, int w)
{
    const Ct__ParamSpec *s = spec_of(n, w);

    return (s != NULL) ? s->compress : NULL;
}

/* One of those that share a parameter says how it is compressed. */
static ct_status share_compress(const ct_net *net, int i, int w, draft *d)
{
    const Ct__CompressionParameter *mine = compress_of(&ct_net_impl_of(net)->graph.node[i], w);

    if ((mine != NULL) && (d->param.compress != NULL))
        return CT_LAYER_FAIL(net->layer[i], CT_ERR_CONFIG,
                             "shared parameter \"%s\": compress { } stands in layer \"%s\", too; "
                             "give it once",
                             d->name, net->layer[d->param.owner]->name);
    if (mine != NULL) d->param.compress = mine;
    return CT_OK;
}

static ct_status check_shared(const ct_net *net, int i, int w, const draft *d)
{
    const ct_layer *l = net->layer[i];
    const ct_graph_node *n = &ct_net_impl_of(net)->graph.node[i];
    const Ct__ParamSpec *s = spec_of(n, w);
    const ct_shape *mine = &l->weight[w].shape;
    const ct_layer *owner = net->layer[d->param.owner];
    bool permissive = s->share_mode == CT__PARAM_SPEC__DIM_CHECK_MODE__PERMISSIVE;
    const ct_cut *cut = &l->weight[w].cut;

    for (int e = 0; e < w; e++) {
        if ((name_of(n, e) != NULL) && (strcmp(name_of(n, e), d->name) == 0))
            return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "parameter \"%s\" is named for two of its blobs",
                                 d->name);
    }
    if (l->weight[w].kind != d->param.kind)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "parameter \"%s\" of layer \"%s\" is of another kind (a statistic)",
                             d->name, owner->name);
    if (((cut->n_range > 0) || (d->param.cut->n_range > 0)) && !ct_cut_equal(cut, d->param.cut))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "parameter \"%s\" of layer \"%s\" is another part of the whole there",
                             d->name, owner->name);
    if (permissive ? (ct_shape_count(mine, 0, -1) == ct_shape_count(d->shape, 0, -1))
                   : ct_shape_equal(mine, d->shape))
        return CT_OK;
    return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                         "parameter \"%s\" of layer \"%s\" has the shape %s, but %s is needed%s",
                         d->name, owner->name, ct_shape_str(d->shape).text, ct_shape_str(mine).text,
                         permissive ? "" : " (share_mode: PERMISSIVE compares the counts alone)");
}

static ct_status make_key(ct_net *net, const draft *d, char **key_p)
{
    ct_text t = { NULL, 0, 0, false };

    if (d->name != NULL)
        ct_text_add(&t, "%s", d->name);
    else
        ct_text_add(&t, "%s[%d]", net->layer[d->param.owner]->name, d->param.index);
    if (t.failed) return CT_FAIL(CT_ERR_NOMEM, "no memory for a parameter's name");
    *key_p = t.text;
    return CT_OK;
}

/* While parameters are gathered. */
typedef struct names {
    ct_name_map layer;  /* of each name the first with weights, or the first */
    ct_name_map suffix; /* the last number that a name got behind it */
    ct_name_map shared; /* drafts by the names of ParamSpecs     */
} names;

static int find(const ct_name_map *map, const char *name)
{
    return ct_name_map_find(map, name, strlen(name));
}

/* NAME_2 or the first that is free. */
static ct_status rename_layer(ct_net *net, int i, const ct_layer *earlier, names *all)
{
    ct_graph_node *node = &ct_net_impl_of(net)->graph.node[i];
    ct_layer *l = net->layer[i];
    int number = find(&all->suffix, l->name);

    if (number < 0) number = 1;
    while (node->renamed == NULL) {
        ct_text t = { 0 };

        ct_text_add(&t, "%s_%d", l->name, ++number);
        if (t.failed) return CT_FAIL(CT_ERR_NOMEM, "no memory for the name of a layer");
        if (find(&all->layer, t.text) < 0)
            node->renamed = t.text;
        else
            ct_text_destroy(&t);
    }
    CT_TRY(ct_name_map_put(&all->suffix, l->name, number));
    CT_TRY(ct_name_map_put(&all->layer, node->renamed, i));
    CT_WARN(
        "%s%slayer \"%s\" (%s): an earlier layer (%s) has this name too, and both have weights, "
        "which are saved by layer name: this one is called \"%s\" here",
        l->where, (l->where[0] != '\0') ? ": " : "", l->name, l->ops->type, earlier->ops->type,
        node->renamed);
    l->name = node->name = node->renamed;
    return CT_OK;
}

/* Weights are found by their layer's name, so two layers of one name cannot both have some. */
static ct_status settle_layer_name(ct_net *net, int i, names *all)
{
    const ct_layer *l = net->layer[i];
    const ct_layer *o = net->layer[find(&all->layer, l->name)];

    if (o == l) return CT_OK;
    if ((o->n_weight > 0) && (l->n_weight > 0)) return rename_layer(net, i, o, all);
    if (l->n_weight > 0) CT_TRY(ct_name_map_put(&all->layer, l->name, i));
    if (l->name[0] != '\0')
        CT_WARN("%s%slayer \"%s\" (%s): an earlier layer (%s) has this name too", l->where,
                (l->where[0] != '\0') ? ": " : "", l->name, l->ops->type, o->ops->type);
    return CT_OK;
}

/* Another stage has the parameter of that name, too. */
static bool is_tied(const ct_net *net, const char *name)
{
    const ct_stage_place *place = net->options.env.place;

    for (int i = 0; (place != NULL) && (name != NULL) && (i < place->n_tied); i++) {
        if (strcmp(place->tied[i], name) == 0) return true;
    }
    return false;
}

static ct_status gather(ct_net *net, draft *d, names *all, int *n_p)
{
    ct_net_impl *m = ct_net_impl_of(net);
    int n = 0;

    for (int i = net->n_layer - 1; i >= 0; i--)
        CT_TRY(ct_name_map_put(&all->layer, net->layer[i]->name, i));
    for (int i = 0; i < net->n_layer; i++) {
        const ct_layer *l = net->layer[i];
        ct_graph_node *node = &m->graph.node[i];

        CT_TRY(settle_layer_name(net, i, all));
        for (int w = 0; w < l->n_weight; w++) {
            const char *name = name_of(node, w);
            int k = (name != NULL) ? find(&all->shared, name) : -1;

            if ((k >= 0) && (k < n)) {
                CT_TRY(check_shared(net, i, w, &d[k]));
                CT_TRY(share_compress(net, i, w, &d[k]));
            } else {
                ct_param p = {
                    .owner = i, .layer = l->name, .index = w, .kind = l->weight[w].kind, .chunk = -1
                };

                p.count = ct_shape_count(&l->weight[w].shape, 0, -1);
                p.cut = &l->weight[w].cut;
                p.own_samples = ct_layer_has_own_samples(l);
                p.tied = is_tied(net, name);
                ct_net_param_mult(net, i, w, &p.lr_mult, &p.decay_mult);
                p.compress = compress_of(node, w);
                k = n++;
                d[k] = (draft){ p, name, -1, &l->weight[w].shape, k };
                if (name != NULL) CT_TRY(ct_name_map_put(&all->shared, name, k));
            }
            node->param_of[w] = k;
            if (!node->weight_wanted[w]) continue;
            if (!d[k].param.learns) d[k].last_user = i;
            d[k].param.learns = true;
        }
    }
    *n_p = n;
    return CT_OK;
}

/* Who sums its gradient: ct_param.own_samples, tied. */
static int summed_by(const ct_param *p)
{
    return p->tied ? 0 : p->own_samples ? 1 : 2;
}

/* Arena order: what learns, as backward finishes it; then the rest as declared. */
static int compare(const void *left, const void *right)
{
    const draft *a = left, *b = right;

    if (a->param.learns != b->param.learns) return a->param.learns ? -1 : 1;
    if (summed_by(&a->param) != summed_by(&b->param))
        return summed_by(&a->param) - summed_by(&b->param);
    if (a->param.tied) return strcmp(a->name, b->name); /* at one place on all ranks that have it */
    if (a->param.learns && (a->last_user != b->last_user))
        return (a->last_user > b->last_user) ? -1 : 1;
    return (a->number < b->number) ? -1 : 1;
}

/* ---- rows in place of dense sums */

static bool gives_rows(const ct_layer *l, int w)
{
    return ((l->ops->row_weights >> w) & 1) != 0;
}

/* How many ranks add up a gradient: in a divided net those of the stage, or replicas. */
static int64_t ranks_of(const ct_net *net, bool own_samples)
{
    const ct_net_env *e = &net->options.env;

    return ((e->place == NULL) || own_samples) ? e->n_rank : e->place->n_replica;
}

/* A rank sends its list to p - 1 others, of a dense sum 2 (p - 1) / p of it. */
static bool is_less(int64_t p, int64_t most, int64_t rows, int64_t count)
{
    double row = (double)count / (double)rows;

    return (p > 1) && ((double)most * (row + 1) * (double)p < 2 * (double)count);
}

/* Samples of a batch that a layer has on this rank, and on the one that has most. */
static int64_t samples_of(const ct_net *net, const ct_layer *l, int64_t *most_p)
{
    const ct_stage_place *at = net->options.env.place;
    int64_t p = net->options.env.n_rank;
    bool own = ct_layer_has_own_samples(l);

    *most_p = (net->batch_global + p - 1) / p;
    if (at == NULL) return net->batch_local;
    *most_p = 0;
    for (int k = 0; k < at->n_replica; k++) {
        int64_t n = own ? (at->share[k] + at->n_part - 1) / at->n_part : at->share[k];

        if (n > *most_p) *most_p = n;
    }
    return ct_place_samples(at, CT_TRAIN, net->batch_global, !own).local;
}

/* Of the layer that reads them, on the rank with the largest batch. A part of the rows may have all
 * of these. */
static int64_t most_rows(const ct_net *net, int layer)
{
    int64_t n = ct_tensor_count(&net->pass->instance[layer]->bottom[0]->data), most;
    int64_t batch = samples_of(net, net->layer[layer], &most);

    if ((batch <= 0) || (n % batch != 0)) return 0;
    return n / batch * most;
}

static void find_rows_of(const ct_net *net, int k, draft *d)
{
    const ct_net_impl *m = ct_net_impl_of(net);
    int n_row = 0, row_layer = -1, dense = net->n_layer;
    int64_t most;

    for (int i = net->n_layer - 1; i >= 0; i--) {
        for (int w = 0; w < net->layer[i]->n_weight; w++) {
            if (!m->graph.node[i].weight_wanted[w] || (m->graph.node[i].param_of[w] != k)) continue;
            if (gives_rows(net->layer[i], w)) {
                n_row++;
                row_layer = i;
            } else {
                dense = i;
            }
        }
    }
    if ((n_row != 1) || (row_layer > dense)) return; /* a dense gradient comes first, or none */
    most = most_rows(net, row_layer);
    if ((most == 0) ||
        !is_less(ranks_of(net, d->param.own_samples), most, d->shape->dim[0], d->param.count))
        return;
    d->param.row_most = (most < d->shape->dim[0]) ? most : d->shape->dim[0];
    d->param.row_beside = (dense < net->n_layer);
    if (d->param.row_beside) d->last_user = dense;
}

/* Before they are put in the order of backward. */
static void find_rows(const ct_net *net, draft *d, int n)
{
    const ct_net_options *o = &net->options;

    if (!o->send_rows || (o->env.n_rank < 2) ||
        ((o->dev != NULL) && (o->dev->kind != CT_DEVICE_CPU)))
        return;
    for (int k = 0; k < n; k++) {
        if (d[k].param.learns && !d[k].param.tied && (d[k].param.compress == NULL))
            find_rows_of(net, k, &d[k]);
    }
}

bool ct_net_comes_later(const ct_net *net, int layer, int w, int param)
{
    return net->param[param].row_beside && gives_rows(net->layer[layer], w);
}

void ct_net_count_rows(ct_net *net, int micro_batches)
{
    for (int i = 0; i < net->n_param; i++) {
        ct_param *p = &net->param[i];
        int64_t rows = ct_param_rows(p), most = p->row_most * micro_batches;

        if ((p->row_most == 0) || p->row_beside) continue;
        if (most > rows) most = rows;
        p->row_most = is_less(ranks_of(net, p->own_samples), most, rows, p->count) ? most : 0;
    }
}

static ct_status check_keys(const ct_net *net, int n)
{
    ct_name_map first = { .n = 0 };
    ct_status status = CT_OK;

    for (int k = 0; (k < n) && (status == CT_OK); k++) {
        int twin = find(&first, net->param[k].key);

        status = (twin < 0)
                     ? ct_name_map_put(&first, net->param[k].key, k)
                     : CT_FAIL(CT_ERR_CONFIG,
                               "the parameter name \"%s\" of layer \"%s\" is that of a blob of "
                               "layer \"%s\"",
                               net->param[k].key, net->param[k].layer, net->param[twin].layer);
    }
    ct_name_map_destroy(&first);
    return status;
}

static ct_status adopt(ct_net *net, const draft *d, int n, int *place)
{
    ct_net_impl *m = ct_net_impl_of(net);

    for (int k = 0; k < n; k++) {
        ct_param *p = &net->param[k];

        *p = d[k].param;
        CT_TRY(make_key(net, &d[k], &m->key[k]));
        p->key = m->key[k];
        p->blob.name = p->key;
        ct_blob_set_shape(&p->blob, d[k].shape);
        p->blob.data.dev = p->blob.diff.dev = net->options.dev;
        p->blob.wants_diff = p->learns;
        place[d[k].number] = k;
        net->n_param = k + 1;
    }
    return check_keys(net, n);
}

ct_status ct_net_params(ct_net *net)
{
    ct_net_impl *m = ct_net_impl_of(net);
    size_t n_weight = 1;
    names all = { .layer = { .n = 0 } };
    draft *d;
    int *place, n;
    ct_status status;

    for (int i = 0; i < net->n_layer; i++) n_weight += (size_t)net->layer[i]->n_weight;
    d = calloc(n_weight, sizeof(d[0]));
    place = calloc(n_weight, sizeof(place[0]));
    net->param = calloc(n_weight, sizeof(net->param[0]));
    m->key = calloc(n_weight, sizeof(m->key[0]));
    if ((d == NULL) || (place == NULL) || (net->param == NULL) || (m->key == NULL))
        CT_TRY_GOTO(status, out, CT_FAIL(CT_ERR_NOMEM, "no memory for %zu weights", n_weight));
    CT_TRY_GOTO(status, out, gather(net, d, &all, &n));
    find_rows(net, d, n);
    qsort(d, (size_t)n, sizeof(d[0]), compare);
    CT_TRY_GOTO(status, out, adopt(net, d, n, place));
    for (int i = 0; i < net->n_layer; i++) {
        for (int w = 0; w < net->layer[i]->n_weight; w++)
            m->graph.node[i].param_of[w] = place[m->graph.node[i].param_of[w]];
    }

out:
    ct_name_map_destroy(&all.layer);
    ct_name_map_destroy(&all.suffix);
    ct_name_map_destroy(&all.shared);
    free(d);
    free(place);
    return status;
}

/* ---- the arenas of weights and gradients, the first values, and the instances' views */

#define ALIGN_ELEMENTS ((int64_t)(CT_ALIGN / sizeof(float)))

/* Takes the weights of layers that options.share has too. */
static ct_status borrow(ct_net *net)
{
    const ct_net *from = net->options.share;

    for (int i = 0; i < net->n_layer; i++) {
        const ct_layer *l = net->layer[i];
        int other = ct_net_find_layer(from, l->name);

        if (l->n_weight == 0) continue;
        if (other < 0) {
            CT_WARN("%s%slayer \"%s\" (%s): the net whose weights this one uses has no such layer; "
                    "it keeps its own initial weights",
                    l->where, (l->where[0] != '\0') ? ": " : "", l->name, l->ops->type);
            continue;
        }
        if (from->layer[other]->n_weight != l->n_weight)
            return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                                 "it has %d weight blobs, but %d in the net whose weights it uses",
                                 l->n_weight, from->layer[other]->n_weight);
        for (int w = 0; w < l->n_weight; w++) {
            const ct_shape *theirs = &from->layer[other]->weight[w].shape;
            const ct_param *source = &from->param[ct_net_param_of(from, other, w)];
            ct_param *p = &net->param[ct_net_param_of(net, i, w)];

            if (!ct_shape_equal(theirs, &l->weight[w].shape))
                return CT_LAYER_FAIL(l, CT_ERR_SHAPE,
                                     "weight blob %d has the shape %s, but %s in the net whose "
                                     "weights it uses",
                                     w, ct_shape_str(&l->weight[w].shape).text,
                                     ct_shape_str(theirs).text);
            p->borrowed = true;
            p->offset = source->offset;
            p->chunk = ct_net_param_visits(from, source) ? source->chunk : -1;
            p->blob.data.data = source->blob.data.data;
        }
    }
    return CT_OK;
}

static int64_t padded(int64_t count)
{
    return (count + ALIGN_ELEMENTS - 1) / ALIGN_ELEMENTS * ALIGN_ELEMENTS;
}

static void lay_out(ct_net *net)
{
    int64_t at = 0;

    for (int k = 0; k < net->n_param; k++) {
        ct_param *p = &net->param[k];

        if (p->borrowed) continue;
        p->offset = at;
        at += padded(p->count);
        if (p->learns) net->grad_count = at;
    }
    net->weight_count = at;
    net->weight_memory = net->weight_count;
    at = net->grad_count;
    for (int k = 0; k < net->n_param; k++) {
        ct_param *p = &net->param[k];

        if (!p->borrowed || !p->learns) continue;
        p->grad_shift = at - p->offset;
        at += padded(p->count);
    }
    net->grad_memory = at;
    net->memory.weights = (size_t)(net->weight_count + net->grad_memory) * sizeof(float);
}

static ct_status acquire(ct_net *net)
{
    const ct_device *dev = net->options.dev;
    size_t bytes = (size_t)net->weight_memory * sizeof(float);
    void *block;

    if (bytes > 0) {
        CT_TRY(dev->mem_acquire(bytes, &block));
        net->memory.allocated += bytes;
        net->weight_arena = block;
    }
    for (int k = 0; k < net->n_param; k++) {
        ct_param *p = &net->param[k];

        if (!p->borrowed) p->blob.data.data = net->weight_arena + p->offset + p->weight_shift;
    }
    return CT_OK;
}

static ct_status first_values(const ct_weight_spec *spec, uint64_t key, int64_t count, float *value)
{
    if (spec->values == NULL) return ct_fill_cut(spec->filler, key, &spec->cut, value);
    memcpy(value, spec->values, (size_t)count * sizeof(*value));
    return CT_OK;
}

static bool begins_as_zeros(const ct_weight_spec *spec)
{
    return (spec->filler == NULL) && (spec->values == NULL);
}

static ct_status fill_one(ct_net *net, const ct_param *p, const ct_weight_spec *spec)
{
    const ct_device *dev = net->options.dev;
    uint64_t key = ct_rng_key(net->options.env.seed, ct_rng_hash(p->layer), (uint64_t)p->index);
    size_t bytes = (size_t)p->count * sizeof(float);
    float *host;
    ct_status status;

    if (begins_as_zeros(spec) || (p->count == 0)) return CT_OK; /* as arenas do */
    if (dev->kind == CT_DEVICE_CPU)
        return first_values(spec, key, p->count, ct_blob_data(&p->blob));
    host = ct_mem_acquire(bytes);
    if (host == NULL)
        return CT_FAIL(CT_ERR_NOMEM, "no memory for %zu bytes of first weights", bytes);
    status = first_values(spec, key, p->count, host);
    if (status == CT_OK) status = dev->from_host(NULL, p->blob.data.data, host, bytes);
    if (status == CT_OK) status = dev->sync(NULL);
    ct_mem_release(host);
    return status;
}

static ct_status fill(ct_net *net)
{
    for (int i = 0; i < net->n_layer; i++) {
        const ct_layer *l = net->layer[i];

        for (int w = 0; w < l->n_weight; w++) {
            const ct_param *p = &net->param[ct_net_param_of(net, i, w)];

            /* the owner fills */
            if (p->borrowed || (p->index != w) || (p->layer != l->name)) continue;
            if (!ct_net_param_visits(net, p)) CT_TRY(fill_one(net, p, &l->weight[w]));
        }
    }
    return CT_OK;
}

static bool runs_behind(const ct_net *net, int k, int i)
{
    const int *place = ct_net_impl_of(net)->place;

    return (place[k] > place[i]) || ((place[k] == place[i]) && (k > i));
}

static ct_status bind(ct_pass *pass, int i)
{
    const ct_net *net = pass->net;
    const ct_layer *l = net->layer[i];
    ct_instance *in = pass->instance[i];
    const ct_graph *g = &ct_net_impl_of(net)->graph;
    const ct_graph_node *n = &g->node[i];

    in->weight = calloc((size_t)l->n_weight + 1, sizeof(in->weight[0]));
    if (in->weight == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for layer \"%s\"", l->name);
    for (int w = 0; w < l->n_weight; w++) {
        const ct_param *p = &net->param[n->param_of[w]];

        in->weight[w] = p->blob;
        ct_blob_set_shape(&in->weight[w], &l->weight[w].shape);
        in->weight[w].wants_diff = n->weight_wanted[w];
        if (!n->weight_wanted[w]) in->weight[w].diff.data = NULL;
        /* backward comes first to layers that run behind this one */
        for (int k = 0; n->weight_wanted[w] && (k < net->n_layer); k++) {
            if (!runs_behind(net, k, i)) continue;
            for (int e = 0; e < net->layer[k]->n_weight; e++) {
                if (g->node[k].weight_wanted[e] && (g->node[k].param_of[e] == n->param_of[w]))
                    in->add_weight_diff[w] = true;
            }
        }
    }
    return CT_OK;
}

void ct_pass_bind_gradients(ct_pass *pass)
{
    const ct_net *net = pass->net;

    for (int i = 0; i < net->n_layer; i++) {
        for (int w = 0; w < net->layer[i]->n_weight; w++) {
            ct_blob *b = &pass->instance[i]->weight[w];

            if (b->wants_diff) b->diff.data = net->param[ct_net_param_of(net, i, w)].blob.diff.data;
        }
    }
}

ct_status ct_pass_bind_weights(ct_pass *pass)
{
    for (int i = 0; i < pass->net->n_layer; i++) CT_TRY(bind(pass, i));
    return CT_OK;
}

/* Whether the set has this weight of the net; CT_ERR_ARG where it has a part. */
static ct_status is_in(const ct_weight_set *set, const ct_net *net, const ct_param *p, bool *in_p)
{
    *in_p = false;
    if ((set == NULL) || (p->borrowed != (set->net != net)) || (p->offset >= set->count))
        return CT_OK;
    *in_p = true;
    if (p->offset + p->count <= set->count) return CT_OK;
    return CT_FAIL(
        CT_ERR_ARG, "a set of %lld weights ends within %s, which has the places %lld to %lld",
        (long long)set->count, p->key, (long long)p->offset, (long long)(p->offset + p->count - 1));
}

ct_status ct_pass_use_weights(ct_pass *pass, const ct_weight_set *set)
{
    const ct_net *net = pass->net;
    ct_pass_impl *m = ct_pass_impl_of(pass);
    bool in;

    CT_TRY(ct_net_check_weights(net));
    if ((set != NULL) && (set->net != net) && (set->net != net->options.share))
        return CT_FAIL(CT_ERR_ARG, "a pass of net \"%s\" cannot run on weights of net \"%s\"",
                       net->name, set->net->name);
    for (int k = 0; k < net->n_param; k++) CT_TRY(is_in(set, net, &net->param[k], &in));
    if (m->graphs != NULL) {
        CT_TRY(net->options.dev->sync(pass->exec.stream));
        ct_step_graphs_forget(m->graphs); /* they name the weights by their addresses */
    }
    m->n_use++;
    for (int i = 0; i < net->n_layer; i++) {
        for (int w = 0; w < net->layer[i]->n_weight; w++) {
            const ct_param *p = &net->param[ct_net_param_of(net, i, w)];

            CT_TRY(is_in(set, net, p, &in));
            pass->instance[i]->weight[w].data.data =
                in ? set->arena + p->offset : p->blob.data.data;
        }
    }
    return CT_OK;
}

/* Weights that come and go, whose places are found once the steps are there. */
static bool has_visits(const ct_net *net)
{
    return (net->options.window != NULL) && net->options.window->weights &&
           (net->options.share == NULL);
}

ct_status ct_net_arenas(ct_net *net)
{
    if (net->options.share != NULL) CT_TRY(borrow(net));
    lay_out(net);
    if (!net->options.no_data && !has_visits(net)) {
        CT_TRY(acquire(net));
        CT_TRY(fill(net));
    }
    return ct_pass_bind_weights(net->pass);
}

ct_status ct_net_weights(ct_net *net)
{
    if (!has_visits(net)) return CT_OK;
    CT_TRY(acquire(net));
    CT_TRY(fill(net));
    return ct_pass_use_weights(net->pass, NULL);
}

ct_status ct_net_fill(const ct_net *net,
                      ct_status (*put)(void *ctx, const ct_param *p, const float *value), void *ctx)
{
    ct_status status = CT_OK;

    for (int k = 0; (status == CT_OK) && (k < net->n_param); k++) {
        const ct_param *p = &net->param[k];
        const ct_weight_spec *spec =
            &net->layer[ct_net_find_layer(net, p->layer)]->weight[p->index];
        uint64_t key = ct_rng_key(net->options.env.seed, ct_rng_hash(p->layer), (uint64_t)p->index);
        float *value;

        if (p->borrowed || !ct_net_param_visits(net, p) || (p->count == 0)) continue;
        value = ct_mem_acquire((size_t)p->count * sizeof(float)); /* zeros */
        if (value == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for first weights");
        if (!begins_as_zeros(spec)) status = first_values(spec, key, p->count, value);
        if (status == CT_OK) status = put(ctx, p, value);
        (void)ct_mem_discard(value,
                             (size_t)p->count * sizeof(float)); /* the heap keeps its blocks */
        ct_mem_release(value);
    }
    return status;
}

void ct_net_arenas_release(ct_net *net)
{
    const ct_device *dev = net->options.dev;
    const ct_arena_ops *arena = net->options.grad_arena;

    if (net->weight_arena != NULL) dev->mem_release(net->weight_arena);
    if (net->grad_arena != NULL) {
        if (arena != NULL)
            arena->release(arena->ctx, net->grad_arena);
        else
            dev->mem_release(net->grad_arena);
    }
    net->weight_arena = net->grad_arena = NULL;
}
