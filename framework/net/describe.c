/* A net as a table, for people. */
#include "framework/net/net_impl.h"

#include <string.h>

static int widest(const ct_net *net, bool type)
{
    int most = 5;

    for (int i = 0; i < net->n_layer; i++) {
        const char *s = type ? net->layer[i]->ops->type : net->layer[i]->name;

        if ((int)strlen(s) > most) most = (int)strlen(s);
    }
    return (most < 40) ? most : 40;
}

static int64_t layer_params(const ct_net *net, int i, bool *shared_p)
{
    int64_t n = 0;

    *shared_p = false;
    for (int w = 0; w < net->layer[i]->n_weight; w++) {
        const ct_param *p = &net->param[ct_net_param_of(net, i, w)];

        n += ct_shape_count(&net->layer[i]->weight[w].shape, 0, -1);
        if (p->layer != net->layer[i]->name) *shared_p = true;
    }
    return n;
}

static void add_shape(ct_text *out, const ct_shape *s)
{
    if (s->ndim == 0) ct_text_add(out, "scalar");
    for (int i = 0; i < s->ndim; i++)
        ct_text_add(out, "%s%lld", (i > 0) ? "x" : "", (long long)s->dim[i]);
}

static void add_layer(const ct_net *net, int i, int name_width, int type_width, ct_text *out)
{
    const ct_layer *l = net->layer[i];
    bool shared;
    int64_t n = layer_params(net, i, &shared);

    ct_text_add(out, "  %-*s  %-*s ", name_width, l->name, type_width, l->ops->type);
    if (n > 0)
        ct_text_add(out, " %11lld%s", (long long)n, shared ? "*" : " ");
    else
        ct_text_add(out, " %11s ", "-");
    for (int t = 0; t < l->n_top; t++) {
        const ct_blob *top = net->instance[i]->top[t];

        ct_text_add(out, "%s %s %s", (t > 0) ? "," : "", top->name, top->varies ? "<= " : "");
        add_shape(out, &top->data.shape);
        if (top->data.dtype != CT_F32) ct_text_add(out, ct_blob_is_bf16(top) ? " bf16" : " f16");
    }
    ct_text_add(out, "\n");
}

static double mib(size_t bytes)
{
    return (double)bytes / (1024.0 * 1024.0);
}

/* The kinds of layers that layer i runs, its own first. */
static void add_kinds(const ct_net *net, int i, ct_text *out)
{
    const ct_tail *tail = net->instance[i]->tail;

    ct_text_add(out, "%s", net->layer[i]->ops->type);
    for (int k = 0; k < CT_N_TAIL; k++) {
        if (tail->of[k] != NULL) ct_text_add(out, "+%s", tail->of[k]->layer->ops->type);
    }
}

static bool same_kinds(const ct_net *net, int a, int b)
{
    const ct_tail *s = net->instance[a]->tail, *t = net->instance[b]->tail;
    bool same = net->layer[a]->ops == net->layer[b]->ops;

    for (int k = 0; k < CT_N_TAIL; k++) same &= (s->of[k] == NULL) == (t->of[k] == NULL);
    return same;
}

/* Groups of layers that run as one, counted by their kinds. */
static void add_groups(const ct_net *net, ct_text *out)
{
    const char *comma = "layers that run as one: ";

    for (int i = 0; i < net->n_layer; i++) {
        int n = 0, before = 0;

        if (net->instance[i]->tail == NULL) continue;
        for (int k = 0; k < net->n_layer; k++) {
            if ((net->instance[k]->tail == NULL) || !same_kinds(net, i, k)) continue;
            n++;
            before += (k < i);
        }
        if (before > 0) continue;
        ct_text_add(out, "%s%d x ", comma, n);
        add_kinds(net, i, out);
        comma = ", ";
    }
    if (comma[0] == ',') ct_text_add(out, "\n");
}

void ct_net_describe(const ct_net *net, ct_text *out)
{
    const ct_memory *mem = &net->memory;
    int name_width = widest(net, false), type_width = widest(net, true);
    int64_t learned = 0, other = 0;
    bool shared, any_shared = false;

    for (int k = 0; k < net->n_param; k++) {
        if (net->param[k].kind == CT_WEIGHT_LEARNED)
            learned += net->param[k].count;
        else
            other += net->param[k].count;
    }
    ct_text_add(out, "net %s, phase %s\n", net->name,
                (net->options.phase == CT_TEST) ? "TEST" : "TRAIN");
    ct_text_add(out, "  %-*s  %-*s  %11s   tops\n", name_width, "layer", type_width, "type",
                "parameters");
    for (int i = 0; i < net->n_layer; i++) {
        add_layer(net, i, name_width, type_width, out);
        layer_params(net, i, &shared);
        any_shared |= shared;
    }
    if (any_shared) ct_text_add(out, "  * shared with an earlier layer\n");
    add_groups(net, out);
    ct_text_add(out, "parameters %lld", (long long)learned);
    if (other > 0) ct_text_add(out, " and %lld statistics", (long long)other);
    ct_text_add(out, "; weights and their gradients %.1f MiB\n", mib(mem->weights));
    ct_text_add(out,
                "activations, gradients and buffers %.1f MiB planned, %.1f MiB alive at once at "
                "most, %.1f MiB without sharing\n",
                mib(mem->planned), mib(mem->peak_alive), mib(mem->unshared));
}
