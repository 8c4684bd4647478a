/* A parallel file that is made for a net. */
#include "planner/sharding.h"

#include <stdlib.h>
#include <string.h>

#include "framework/proto/prototxt.h"

enum { NONE = -1 /* no entry */ };

typedef struct finder {
    const ct_net *net;
    int tensor;
    int *n_reader; /* of the first top of each layer */
    int8_t *split;
    /* of the run that is looked at: what its layers would be */
    int *run;
    int8_t *wish;
    int n_run;
} finder;

static bool may(const finder *f, int layer, ct_parallel_split split)
{
    char why[300];

    return !ct_split_refuses(f->net->layer[layer]->param, f->net->pass->instance[layer], split,
                             f->tensor, why, sizeof(why));
}

static bool is_product(const finder *f, int layer)
{
    return strcmp(f->net->layer[layer]->ops->type, "InnerProduct") == 0;
}

/* By the names of the net's file: layers that a net adds pass on what they read. */
static int maker_of(const finder *f, int layer, int bottom)
{
    const char *name = f->net->layer[layer]->param->bottom[bottom];

    for (int k = layer - 1; k >= 0; k--) {
        const ct_layer *l = f->net->layer[k];

        for (size_t t = 0; !ct_layer_is_passage(l) && (t < l->param->n_top); t++)
            if (strcmp(l->param->top[t], name) == 0) return k;
    }
    return NONE;
}

static int last_of(const ct_net *net)
{
    int i = net->n_layer - 1;

    while (ct_layer_is_passage(net->layer[i])) i--;
    return i;
}

static void count_readers(const finder *f)
{
    for (int i = 0; i < f->net->n_layer; i++) {
        const ct_layer *l = f->net->layer[i];

        for (size_t b = 0; !ct_layer_is_passage(l) && (b < l->param->n_bottom); b++) {
            int k = maker_of(f, i, (int)b);

            if (k != NONE) f->n_reader[k]++;
        }
    }
}

static void wish(finder *f, int layer, ct_parallel_split split)
{
    f->run[f->n_run] = layer;
    f->wish[f->n_run++] = (int8_t)split;
}

static bool trace(finder *f, int layer, size_t n_bottom);

/* Whether what a layer makes can go on in parts to its one reader. */
static bool trace_maker(finder *f, int layer)
{
    const Ct__LayerParameter *p = f->net->layer[layer]->param;
    bool heads = (strcmp(p->type, "Attention") == 0);
    /* an even number of bottoms: the last one says where texts begin, and is whole */
    size_t n = (heads && (p->n_bottom % 2 == 0)) ? p->n_bottom - 1 : p->n_bottom;

    if ((p->n_bottom == 0) || (p->n_top != 1) || (f->n_reader[layer] != 1)) return false;
    if (is_product(f, layer)) {
        if ((f->split[layer] != CT_PARALLEL_REPLICATE) || !may(f, layer, CT_PARALLEL_OUTPUT))
            return false;
        wish(f, layer, CT_PARALLEL_OUTPUT);
        return true;
    }
    if (!may(f, layer, heads ? CT_PARALLEL_HEADS : CT_PARALLEL_OUTPUT)) return false;
    wish(f, layer, heads ? CT_PARALLEL_HEADS : CT_PARALLEL_OUTPUT);
    return trace(f, layer, n);
}

static bool trace(finder *f, int layer, size_t n_bottom)
{
    for (size_t b = 0; b < n_bottom; b++) {
        int k = maker_of(f, layer, (int)b);

        if ((k == NONE) || !trace_maker(f, k)) return false;
    }
    return true;
}

/* Whether layer i ends a run, whose layers then are split. */
static bool end_run(finder *f, int i)
{
    f->n_run = 0;
    if (!is_product(f, i) || !may(f, i, CT_PARALLEL_INPUT) || (i == last_of(f->net)) ||
        !trace(f, i, 1))
        return false;
    for (int k = 0; k < f->n_run; k++) f->split[f->run[k]] = f->wish[k];
    f->split[i] = CT_PARALLEL_INPUT;
    return true;
}

/* An Eltwise without an entry adds up parts of several sums before the ranks do. */
static void choose(finder *f, int *n_run_p)
{
    int last = last_of(f->net);

    for (int i = 0; i <= last; i++) {
        const ct_layer *l = f->net->layer[i];
        bool follows =
            ct_layer_is_passage(l) || ((strcmp(l->ops->type, "Eltwise") == 0) && (i < last));

        f->split[i] = follows ? NONE : CT_PARALLEL_REPLICATE;
    }
    *n_run_p = 0;
    for (int i = 0; i <= last; i++) *n_run_p += end_run(f, i);
}

static void write(const finder *f, ct_text *out)
{
    const ct_net *net = f->net;
    int first = 0, last = last_of(net);

    while (ct_layer_is_passage(net->layer[first])) first++;
    ct_text_add(out, "ranks: %d global_batch: 1\nstage { first: ", f->tensor);
    ct_prototxt_quote(net->layer[first]->name, out);
    ct_text_add(out, " last: ");
    ct_prototxt_quote(net->layer[last]->name, out);
    ct_text_add(out, " tensor: %d", f->tensor);
    for (int r = 0; r < f->tensor; r++) ct_text_add(out, " rank: %d", r);
    ct_text_add(out, "\n");
    for (int i = first; i <= last; i++) {
        if (f->split[i] == NONE) continue;
        ct_text_add(out, "  layer { name: ");
        ct_prototxt_quote(net->layer[i]->name, out);
        ct_text_add(out, " split: %s }\n", ct_split_name((ct_parallel_split)f->split[i]));
    }
    ct_text_add(out, "}\n");
}

static ct_status find(finder *f, int *n_run_p)
{
    size_t n = (size_t)f->net->n_layer + 1;

    f->n_reader = calloc(n, sizeof(*f->n_reader));
    f->split = calloc(n, sizeof(*f->split));
    f->run = calloc(n, sizeof(*f->run));
    f->wish = calloc(n, sizeof(*f->wish));
    if ((f->n_reader == NULL) || (f->split == NULL) || (f->run == NULL) || (f->wish == NULL))
        return CT_FAIL(CT_ERR_NOMEM, "no memory for a file of %zu layers", n);
    count_readers(f);
    choose(f, n_run_p);
    return CT_OK;
}

static void destroy(finder *f)
{
    free(f->n_reader);
    free(f->split);
    free(f->run);
    free(f->wish);
}

static ct_status find_and_write(finder *f, const char *name, ct_text *out, int *n_run_p)
{
    CT_TRY(find(f, n_run_p));
    if (*n_run_p == 0)
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: net \"%s\" has no products that %d ranks can share: a product split by "
                       "its outputs, or by heads, and one by its inputs behind it",
                       name, f->net->name, f->tensor);
    write(f, out);
    return out->failed ? CT_FAIL(CT_ERR_NOMEM, "no memory for a parallel file") : CT_OK;
}

ct_status ct_tensor_file_count(const ct_net *net, int tensor, int *n_run_p)
{
    finder f = { .net = net, .tensor = tensor };
    ct_status status = find(&f, n_run_p);

    destroy(&f);
    return status;
}

ct_status ct_tensor_file_write(const ct_net *net, int tensor, const char *name, ct_text *out,
                               int *n_run_p)
{
    finder f = { .net = net, .tensor = tensor };
    ct_status status = find_and_write(&f, name, out, n_run_p);

    destroy(&f);
    return status;
}
