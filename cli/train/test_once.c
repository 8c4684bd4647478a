/* Tests of a net of tokens in which each window counts once.
 *
 * Batches are whole, so the last one takes windows from the beginning of the text, which have been
 * counted. Their targets become a label that the losses ignore (ct_exec.once), and the batches'
 * means weigh the targets that count. So the loss is the mean over all targets of the text, on any
 * number of ranks and with any batch, but for the order of sums. */
#include "cli/train/test_report.h"

#include <string.h>

#include "framework/net/graph.h"
#include "framework/net/layer.h"
#include "framework/proto/prototxt.h"

enum { NO_LABEL = -1 /* no token has it */ };

static bool in_test(const Ct__NetParameter *net, const Ct__LayerParameter *l)
{
    ct_net_options o = { .phase = CT_TEST };

    return ct_graph_includes(net, &o, l);
}

/* The targets of the net's TokenData; NULL: it has none. */
static const char *find_targets(const Ct__NetParameter *net)
{
    for (size_t i = 0; i < net->n_layer; i++) {
        const Ct__LayerParameter *l = net->layer[i];

        if (ct_layer_param_is(l, "TokenData") && (l->n_top > 1) && in_test(net, l))
            return l->top[1];
    }
    return NULL;
}

static bool reads(const Ct__LayerParameter *l, const char *blob)
{
    for (size_t b = 0; b < l->n_bottom; b++)
        if (strcmp(l->bottom[b], blob) == 0) return true;
    return false;
}

static bool is_mean_over_labels(const Ct__LossParameter *p)
{
    if (p == NULL) return true;
    if (p->has_normalization)
        return p->normalization == CT__LOSS_PARAMETER__NORMALIZATION_MODE__VALID;
    return !p->has_normalize || p->normalize;
}

/* The label that a reader of the targets ignores. Why it stands in the way; NULL: it does not. */
static const char *look(const Ct__LayerParameter *l, bool *has_p, int32_t *label_p)
{
    const Ct__AccuracyParameter *a = l->accuracy_param;
    const Ct__LossParameter *p = l->loss_param;
    bool loss = ct_layer_param_is(l, "SoftmaxWithLoss");

    if (!loss && !ct_layer_param_is(l, "Accuracy")) return "is neither a loss nor an accuracy";
    if (loss && !is_mean_over_labels(p)) return "is no mean over labels";
    if (strcmp(l->bottom[1], l->bottom[0]) == 0) return "reads them as scores";
    *has_p = loss ? (p != NULL) && p->has_ignore_label : (a != NULL) && a->has_ignore_label;
    if (*has_p) *label_p = loss ? p->ignore_label : a->ignore_label;
    return NULL;
}

/* *label_p: what some reader ignores already, or NO_LABEL. */
static bool find_label(const Ct__NetParameter *net, const char *targets, int32_t *label_p)
{
    bool found = false;

    *label_p = NO_LABEL;
    for (size_t i = 0; i < net->n_layer; i++) {
        const Ct__LayerParameter *l = net->layer[i];
        const char *obstacle;
        int32_t label = 0;
        bool has = false;

        if (!reads(l, targets) || !in_test(net, l)) continue;
        obstacle = look(l, &has, &label);
        if ((obstacle == NULL) && has && found && (label != *label_p))
            obstacle = "ignores another label than the rest";
        if (obstacle != NULL) {
            CT_INFO("The last batch may count windows twice: layer \"%s\", which reads their "
                    "targets, %s.",
                    l->name, obstacle);
            return false;
        }
        if (has) *label_p = label;
        found |= has;
    }
    return true;
}

ct_status ct_test_once_prepare(Ct__NetParameter *net, int32_t *label_p, bool *once_p)
{
    const char *targets = find_targets(net);
    char value[16];

    *once_p = (targets != NULL) && find_label(net, targets, label_p);
    if (!*once_p) return CT_OK;
    snprintf(value, sizeof(value), "%d", (int)*label_p);
    for (size_t i = 0; i < net->n_layer; i++) {
        Ct__LayerParameter *l = net->layer[i];

        if (!reads(l, targets) || !in_test(net, l)) continue;
        CT_TRY(ct_prototxt_set(&l->base,
                               ct_layer_param_is(l, "Accuracy") ? "accuracy_param.ignore_label"
                                                                : "loss_param.ignore_label",
                               value, "test"));
    }
    return CT_OK;
}
