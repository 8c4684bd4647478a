/* Which layers of a net a phase, a level and a set of stages take in (NetStateRule). */
#include "framework/net/graph.h"

#include <stdlib.h>
#include <string.h>

static bool has_stage(const Ct__NetParameter *net, const ct_net_options *o, const char *stage)
{
    for (int i = 0; i < o->n_stage; i++) {
        if (strcmp(o->stage[i], stage) == 0) return true;
    }
    if (net->state == NULL) return false;
    for (size_t i = 0; i < net->state->n_stage; i++) {
        if (strcmp(net->state->stage[i], stage) == 0) return true;
    }
    return false;
}

static bool meets(const Ct__NetParameter *net, const ct_net_options *o, const Ct__NetStateRule *r)
{
    int level = o->level;

    if ((level == 0) && (net->state != NULL)) level = net->state->level;
    if (r->has_phase && ((r->phase == CT__PHASE__TEST) != (o->phase == CT_TEST))) return false;
    if (r->has_min_level && (level < r->min_level)) return false;
    if (r->has_max_level && (level > r->max_level)) return false;
    for (size_t i = 0; i < r->n_stage; i++) {
        if (!has_stage(net, o, r->stage[i])) return false;
    }
    for (size_t i = 0; i < r->n_not_stage; i++) {
        if (has_stage(net, o, r->not_stage[i])) return false;
    }
    return true;
}

static bool included(const Ct__NetParameter *net, const ct_net_options *o,
                     const Ct__LayerParameter *l)
{
    for (size_t i = 0; i < l->n_include; i++) {
        if (meets(net, o, l->include[i])) return true;
    }
    for (size_t i = 0; i < l->n_exclude; i++) {
        if (meets(net, o, l->exclude[i])) return false;
    }
    return l->n_include == 0;
}

static ct_status fail_both(const ct_net_options *o, const Ct__LayerParameter *l)
{
    char *where;
    ct_status status;

    CT_TRY(ct_graph_where(o, l, &where));
    status =
        CT_FAIL(CT_ERR_CONFIG, "%s%slayer \"%s\": it has include and exclude rules; give one kind",
                where, (where[0] != '\0') ? ": " : "", (l->name != NULL) ? l->name : "");
    free(where);
    return status;
}

ct_status ct_graph_filter(const Ct__NetParameter *net, const ct_net_options *o,
                          const Ct__LayerParameter ***kept_p, int *n_p)
{
    const Ct__LayerParameter **kept;
    int n = 0;

    if ((net->n_layers > 0) || (net->n_input > 0))
        return CT_FAIL(CT_ERR_ARG, "net \"%s\" is in an old form: upgrade it first",
                       (net->name != NULL) ? net->name : "");
    kept = calloc(net->n_layer + 1, sizeof(kept[0]));
    if (kept == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %zu layers", net->n_layer);
    for (size_t i = 0; i < net->n_layer; i++) {
        const Ct__LayerParameter *l = net->layer[i];

        if ((l->n_include > 0) && (l->n_exclude > 0)) {
            free(kept);
            return fail_both(o, l);
        }
        if (included(net, o, l)) kept[n++] = l;
    }
    if (n == 0) {
        free(kept);
        return CT_FAIL(CT_ERR_CONFIG, "net \"%s\" has no layer in phase %s (%zu before its rules)",
                       (net->name != NULL) ? net->name : "",
                       (o->phase == CT_TEST) ? "TEST" : "TRAIN", net->n_layer);
    }
    *kept_p = kept;
    *n_p = n;
    return CT_OK;
}
