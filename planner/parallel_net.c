/* A parallel file checked against its net: names, stages, entries, segments, weights. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "planner/parallel.h"
#include "planner/sharding.h"

typedef struct binder {
    ct_parallel *p;
    const ct_net *train;
    const char **name; /* of p->layer */
} binder;

/* "net.prototxt:12: layer "conv1"" without its own place where that is not known. */
typedef struct layer_text {
    char text[300];
} layer_text;

static layer_text tell(const binder *b, int k)
{
    const ct_parallel_layer *l = &b->p->layer[k];
    layer_text t;

    snprintf(t.text, sizeof(t.text), "\"%.100s\" (%.60s)", l->name,
             (l->param->type != NULL) ? l->param->type : "");
    return t;
}

static bool is_source(const ct_parallel_layer *l)
{
    return l->param->n_bottom == 0;
}

static bool is_trained(const ct_parallel_layer *l)
{
    return l->layer >= 0;
}

static bool is_made_split(const ct_parallel *p, const ct_net *net, int i)
{
    if (strcmp(net->layer[i]->ops->type, "Split") != 0) return false;
    for (int k = 0; k < p->n_layer; k++) {
        if (p->layer[k].param == net->layer[i]->param) return false;
    }
    return true;
}

/* ---- names */

static ct_status list_layers(binder *b, const Ct__NetParameter *param)
{
    ct_parallel *p = b->p;
    int i = 0;

    p->layer = calloc(param->n_layer + 1, sizeof(*p->layer));
    b->name = calloc(param->n_layer + 1, sizeof(*b->name));
    if ((p->layer == NULL) || (b->name == NULL))
        return CT_FAIL(CT_ERR_NOMEM, "no memory for %zu layers", param->n_layer);
    p->n_layer = (int)param->n_layer;
    for (int k = 0; k < p->n_layer; k++) {
        const Ct__LayerParameter *l = param->layer[k];
        int at = i;

        b->name[k] = (l->name != NULL) ? l->name : "";
        p->layer[k] = (ct_parallel_layer){
            .param = l, .name = b->name[k], .layer = -1, .stage = -1, .again = -1
        };
        while ((at < b->train->n_layer) && (b->train->layer[at]->param != l)) at++;
        if (at == b->train->n_layer) continue; /* of another phase, level or stage */
        p->layer[k].layer = at;
        i = at + 1;
    }
    return CT_OK;
}

/* A name that no layer of the file has. */
static ct_status fail_name(const binder *b, const char *name, const char *what, const void *message,
                           const void *field)
{
    const ct_net *net = b->train;
    const char *near = ct_text_nearest(name, b->name, b->p->n_layer);

    for (int i = 0; i < net->n_layer; i++) {
        if ((strcmp(net->layer[i]->name, name) != 0) || !is_made_split(b->p, net, i)) continue;
        return ct_parallel_fail(b->p, message, field,
                                "%s names \"%s\", a Split that the net makes of blob \"%s\": it "
                                "goes with the layer that makes the blob, and cannot be named",
                                what, name, net->pass->instance[i]->bottom[0]->name);
    }
    if (near != NULL)
        return ct_parallel_fail(b->p, message, field,
                                "%s names \"%s\", which no layer of the net is called; did you "
                                "mean \"%s\"?",
                                what, name, near);
    return ct_parallel_fail(b->p, message, field,
                            "%s names \"%s\", which no layer of the net is called", what, name);
}

/* Of layers of one name (TRAIN's and TEST's) the first, or the last. */
static ct_status find(const binder *b, const char *name, bool want_last, const char *what,
                      const void *message, const void *field, int *k_p)
{
    int found = -1;

    for (int k = 0; k < b->p->n_layer; k++) {
        if ((strcmp(b->name[k], name) != 0) || (!want_last && (found >= 0))) continue;
        found = k;
    }
    if (found < 0) return fail_name(b, name, what, message, field);
    *k_p = found;
    return CT_OK;
}

/* ---- stages */

/* The bounds, which must not go back. */
static ct_status find_bounds(const binder *b, int s)
{
    ct_parallel_stage *g = &b->p->stage[s];
    const Ct__ParallelStageParameter *f = g->param;
    char what[40];

    snprintf(what, sizeof(what), "stage %d", s);
    CT_TRY(find(b, f->first, false, what, f, &f->first, &g->first));
    CT_TRY(find(b, f->last, true, what, f, &f->last, &g->last));
    if (g->last < g->first)
        return ct_parallel_fail(b->p, f, &f->first,
                                "stage %d: its first layer %s stands behind its last, %s", s,
                                tell(b, g->first).text, tell(b, g->last).text);
    for (int k = 0; k < s; k++) {
        const ct_parallel_stage *before = &b->p->stage[k];

        if (g->first > before->last) continue;
        if (g->last < before->first)
            return ct_parallel_fail(b->p, f, &f->first,
                                    "stage %d stands before stage %d in the net: stages go in the "
                                    "order of the layers",
                                    s, k);
        return ct_parallel_fail(
            b->p, f, &f->first, "stage %d has layer %s, which stage %d has already", s,
            tell(b, (g->first > before->first) ? g->first : before->first).text, k);
    }
    return CT_OK;
}

/* The stage between whose bounds layer k stands; -1: none. */
static int stage_around(const ct_parallel *p, int k)
{
    for (int s = 0; s < p->n_stage; s++) {
        if ((k >= p->stage[s].first) && (k <= p->stage[s].last)) return s;
    }
    return -1;
}

static ct_status fail_gap(const binder *b, int k)
{
    const ct_parallel *p = b->p;
    const ct_parallel_stage *last = &p->stage[p->n_stage - 1];

    if (k < p->stage[0].first)
        return ct_parallel_fail(p, p->stage[0].param, &p->stage[0].param->first,
                                "layer %s is in no stage: stage 0 begins with %s", tell(b, k).text,
                                tell(b, p->stage[0].first).text);
    if (k > last->last)
        return ct_parallel_fail(p, last->param, &last->param->last,
                                "layer %s is in no stage: stage %d, the last one, ends with %s",
                                tell(b, k).text, p->n_stage - 1, tell(b, last->last).text);
    for (int s = 1;; s++) {
        if (k > p->stage[s].first) continue;
        return ct_parallel_fail(p, p->stage[s].param, &p->stage[s].param->first,
                                "layer %s is in no stage: stage %d ends with %s, and stage %d "
                                "begins with %s",
                                tell(b, k).text, s - 1, tell(b, p->stage[s - 1].last).text, s,
                                tell(b, p->stage[s].first).text);
    }
}

static bool reads(const Ct__LayerParameter *reader, const Ct__LayerParameter *maker)
{
    for (size_t i = 0; i < reader->n_bottom; i++) {
        for (size_t t = 0; t < maker->n_top; t++) {
            if (strcmp(reader->bottom[i], maker->top[t]) == 0) return true;
        }
    }
    return false;
}

/* Its first reader's stage. What nobody reads goes where it stands. */
static void place_source(const ct_parallel *p, int k)
{
    ct_parallel_layer *l = &p->layer[k];
    int around = stage_around(p, k);

    for (int j = k + 1; j < p->n_layer; j++) {
        if (is_trained(l) && !is_trained(&p->layer[j])) continue;
        if (is_source(&p->layer[j]) || !reads(p->layer[j].param, l->param)) continue;
        l->stage = p->layer[j].stage;
        return;
    }
    l->stage = (around >= 0) ? around : (k > 0) ? p->layer[k - 1].stage : 0;
}

/* The stage whose layer runs layer i of the train net as a part of its group, if it reads what one
 * layer alone reads: the cut then goes behind it, and no more values cross. -1: none. */
static int stage_of_group(const binder *b, int i)
{
    const ct_layer *l = b->train->layer[i];
    int runner = ct_net_runner(b->train, i);

    if ((runner == i) || (l->n_bottom == 0)) return -1;
    for (int k = i - 1; k >= runner; k--) {
        if (strcmp(b->train->layer[k]->ops->type, "Split") == 0) return -1;
    }
    for (int k = 0; k < b->p->n_layer; k++) {
        if (b->p->layer[k].layer == runner) return b->p->layer[k].stage;
    }
    return -1;
}

/* A cut through a group moves behind it. */
static ct_status move_cuts(const binder *b)
{
    ct_parallel *p = b->p;

    for (int k = 0; k < p->n_layer; k++) {
        ct_parallel_layer *l = &p->layer[k];
        int s = l->stage, group = is_trained(l) ? stage_of_group(b, l->layer) : -1;

        if ((group < 0) || (group != s - 1) || (k != p->stage[s].first)) continue;
        if (k == p->stage[s].last)
            return ct_parallel_fail(p, p->stage[s].param, &p->stage[s].param->first,
                                    "stage %d has layer %s alone, which runs as one with %s of "
                                    "stage %d",
                                    s, tell(b, k).text,
                                    b->train->layer[ct_net_runner(b->train, l->layer)]->name,
                                    group);
        CT_INFO("%s: layer %s begins stage %d, but runs as one with \"%s\": it goes to stage %d",
                p->file, tell(b, k).text, s,
                b->train->layer[ct_net_runner(b->train, l->layer)]->name, group);
        l->stage = group;
        p->stage[group].last = k;
        p->stage[s].first = k + 1;
    }
    for (int k = 0; k < p->n_layer; k++) {
        if (is_source(&p->layer[k])) place_source(p, k);
    }
    return CT_OK;
}

static ct_status place_layers(const binder *b)
{
    ct_parallel *p = b->p;
    int before = 0;

    for (int k = 0; k < p->n_layer; k++) {
        ct_parallel_layer *l = &p->layer[k];

        if (is_source(l)) continue;
        l->stage = stage_around(p, k);
        if ((l->stage < 0) && is_trained(l)) return fail_gap(b, k);
        if (l->stage < 0) l->stage = before; /* of TEST alone */
        before = l->stage;
    }
    for (int k = 0; k < p->n_layer; k++) {
        if (is_source(&p->layer[k])) place_source(p, k);
    }
    for (int s = 0; s < p->n_stage; s++) {
        bool has = false;

        for (int k = p->stage[s].first; k <= p->stage[s].last; k++)
            has |= is_trained(&p->layer[k]) && !is_source(&p->layer[k]);
        if (!has)
            return ct_parallel_fail(p, p->stage[s].param, &p->stage[s].param->first,
                                    "stage %d has no layer of the TRAIN net that reads anything",
                                    s);
    }
    return CT_OK;
}

/* ---- what a stage says of its layers */

static ct_status check_inside(const binder *b, int s, int k, const char *what, const void *message,
                              const void *field)
{
    int own = b->p->layer[k].stage;

    if (own == s) return CT_OK;
    return ct_parallel_fail(b->p, message, field, "%s names layer %s, which is in stage %d", what,
                            tell(b, k).text, own);
}

/* Which of the ranks of a replica has a layer by itself. */
static ct_status check_part(const binder *b, const ct_parallel_stage *g, int k,
                            const Ct__ParallelLayerParameter *e)
{
    bool one = ((ct_parallel_split)e->split == CT_PARALLEL_ONE);

    if (!one && e->has_part)
        return ct_parallel_fail(b->p, e, &e->part, "part is for split ONE; layer %s is %s",
                                tell(b, k).text, ct_split_name((ct_parallel_split)e->split));
    if (one && is_source(&b->p->layer[k]))
        return ct_parallel_fail(b->p, e, &e->split, "layer %s reads nothing, so it cannot be ONE",
                                tell(b, k).text);
    if ((e->part < 0) || (e->part >= g->tensor))
        return ct_parallel_fail(b->p, e, &e->part,
                                "part %d of layer %s: a replica of %d ranks has parts 0 to %d",
                                e->part, tell(b, k).text, g->tensor, g->tensor - 1);
    return CT_OK;
}

static ct_status read_entry(const binder *b, int s, const Ct__ParallelLayerParameter *e)
{
    const ct_parallel_stage *g = &b->p->stage[s];
    char what[60], why[300];
    int first = 0, last = 0;

    snprintf(what, sizeof(what), "an entry of stage %d", s);
    CT_TRY(find(b, e->name, false, what, e, &e->name, &first));
    CT_TRY(find(b, e->name, true, what, e, &e->name, &last));
    CT_TRY(check_inside(b, s, first, what, e, &e->name));
    CT_TRY(check_part(b, g, first, e));
    for (int k = first; k <= last; k++) { /* all of one name: TRAIN's and TEST's */
        ct_parallel_layer *l = &b->p->layer[k];

        if (strcmp(l->name, e->name) != 0) continue;
        if (l->is_given)
            return ct_parallel_fail(b->p, e, &e->name, "stage %d has two entries for layer %s", s,
                                    tell(b, k).text);
        l->is_given = true;
        l->split = (ct_parallel_split)e->split;
        l->part = e->part;
        if (ct_split_refuses(l->param, is_trained(l) ? b->train->pass->instance[l->layer] : NULL,
                             l->split, g->tensor, why, sizeof(why)))
            return ct_parallel_fail(b->p, e, e->has_split ? &e->split : NULL,
                                    "layer %s cannot be split %s: %s", tell(b, k).text,
                                    ct_split_name(l->split), why);
    }
    return CT_OK;
}

static ct_status read_segment(const binder *b, int s, int i)
{
    ct_parallel_stage *g = &b->p->stage[s];
    const Ct__ParallelAgainParameter *a = g->param->again[i];
    ct_parallel_segment *t = &g->again[i];
    char what[60];

    snprintf(what, sizeof(what), "again of stage %d", s);
    CT_TRY(find(b, a->first, false, what, a, &a->first, &t->first));
    CT_TRY(find(b, a->last, true, what, a, &a->last, &t->last));
    CT_TRY(check_inside(b, s, t->first, what, a, &a->first));
    CT_TRY(check_inside(b, s, t->last, what, a, &a->last));
    if (t->last < t->first)
        return ct_parallel_fail(b->p, a, &a->first,
                                "%s: its first layer %s stands behind its last, %s", what,
                                tell(b, t->first).text, tell(b, t->last).text);
    if ((i > 0) && (t->first <= g->again[i - 1].last))
        return ct_parallel_fail(b->p, a, &a->first,
                                "%s: the segment from %s on %s the one before, which ends with %s",
                                what, tell(b, t->first).text,
                                (t->last < g->again[i - 1].first) ? "stands before" : "overlaps",
                                tell(b, g->again[i - 1].last).text);
    for (int k = t->first; k <= t->last; k++) {
        if (b->p->layer[k].stage == s) b->p->layer[k].again = i;
    }
    return CT_OK;
}

static ct_status read_stage(const binder *b, int s)
{
    ct_parallel_stage *g = &b->p->stage[s];
    size_t n = g->param->n_again;

    for (size_t i = 0; i < g->param->n_layer; i++) CT_TRY(read_entry(b, s, g->param->layer[i]));
    g->again = calloc(n + 1, sizeof(*g->again));
    if (g->again == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %zu segments", n);
    g->n_again = (int)n;
    for (int i = 0; i < g->n_again; i++) CT_TRY(read_segment(b, s, i));
    return CT_OK;
}

/* ---- what the net must not have */

/* A table at both ends of a language model: its gradients of the two stages are added up. */
static bool is_tied(const binder *b, int first, int other)
{
    const ct_parallel_layer *x = &b->p->layer[first], *y = &b->p->layer[other];
    bool swap = (y->stage < x->stage);
    const ct_parallel_layer *in = swap ? y : x, *out = swap ? x : y;

    return (in->stage == 0) && (out->stage == b->p->n_stage - 1) &&
           (strcmp(in->param->type, "Embed") == 0) &&
           (strcmp(out->param->type, "InnerProduct") == 0);
}

static ct_status check_weights(const binder *b, int k, int *user)
{
    const ct_parallel *p = b->p;
    int i = p->layer[k].layer;

    for (int w = 0; w < b->train->layer[i]->n_weight; w++) {
        int param = ct_net_param_of(b->train, i, w), first = user[param] - 1;

        if (first < 0) {
            user[param] = k + 1;
            continue;
        }
        if ((p->layer[first].stage == p->layer[k].stage) || is_tied(b, first, k)) continue;
        return ct_parallel_fail(
            p, p->stage[p->layer[k].stage].param, NULL,
            "layers %s of stage %d and %s of stage %d share the weight \"%s\": both belong into "
            "one stage, but for a table that an Embed of the first has and the head in the last",
            tell(b, first).text, p->layer[first].stage, tell(b, k).text, p->layer[k].stage,
            b->train->param[param].key);
    }
    return CT_OK;
}

static bool carries(const ct_instance *in)
{
    for (int s = 0; s < CT_MAX_BUFFER; s++) {
        if (in->buffer[s].row > 0) return true;
    }
    return false;
}

static ct_status check_parts(const binder *b, int k)
{
    const ct_parallel *p = b->p;
    const Ct__ParallelParameter *f = p->param;
    int i = p->layer[k].layer;

    if (p->micro_batches == 1) return CT_OK;
    if (b->train->layer[i]->ops->varies)
        return ct_parallel_fail(p, f, &f->micro_batches,
                                "layer %s passes on another number of samples in each batch: "
                                "micro_batches must be 1",
                                tell(b, k).text);
    if (carries(b->train->pass->instance[i]))
        return ct_parallel_fail(p, f, &f->micro_batches,
                                "layer %s carries its state from batch to batch: micro_batches "
                                "must be 1",
                                tell(b, k).text);
    return CT_OK;
}

static ct_status check_net(const binder *b)
{
    int *user = calloc((size_t)b->train->n_param + 1, sizeof(*user));
    ct_status status = CT_OK;

    if (user == NULL)
        return CT_FAIL(CT_ERR_NOMEM, "no memory for %d parameters", b->train->n_param);
    for (int k = 0; (k < b->p->n_layer) && (status == CT_OK); k++) {
        if (!is_trained(&b->p->layer[k])) continue;
        status = check_weights(b, k, user);
        if (status == CT_OK) status = check_parts(b, k);
    }
    free(user);
    return status;
}

static ct_status check_hash(const binder *b)
{
    const Ct__ParallelParameter *f = b->p->param;
    char hash[24];

    if (f->net_hash == NULL) return CT_OK;
    snprintf(hash, sizeof(hash), "%016" PRIx64, ct_net_hash(b->train));
    if (strcmp(hash, f->net_hash) == 0) return CT_OK;
    return ct_parallel_fail(b->p, f, &f->net_hash,
                            "the file is for a net of hash %.40s, but \"%s\" has hash %s",
                            f->net_hash, b->train->name, hash);
}

static ct_status bind(binder *b, const Ct__NetParameter *param)
{
    CT_TRY(check_hash(b));
    CT_TRY(list_layers(b, param));
    for (int s = 0; s < b->p->n_stage; s++) CT_TRY(find_bounds(b, s));
    CT_TRY(place_layers(b));
    CT_TRY(move_cuts(b));
    for (int s = 0; s < b->p->n_stage; s++) CT_TRY(read_stage(b, s));
    return check_net(b);
}

ct_status ct_parallel_bind(ct_parallel *p, const Ct__NetParameter *param, const ct_net *train)
{
    binder b = { .p = p, .train = train };
    ct_status status;

    if (p->n_layer > 0) return CT_FAIL(CT_ERR_ARG, "%s is bound to a net already", p->file);
    status = bind(&b, param);
    free(b.name);
    return status;
}
