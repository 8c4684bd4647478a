/* Counts, the table for people, and JSON. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/check/check.h"
#include "framework/base/json_writer.h"
#include "framework/base/file.h"
#include "framework/base/text.h"
#include "runtime/call.h"

static bool is_shown(const ct_net *net, int i)
{
    return !net->layer[i]->ops->by_net;
}

static int64_t layer_parameters(const ct_net *net, int i)
{
    int64_t n = 0;

    for (int w = 0; w < net->layer[i]->n_weight; w++) {
        const ct_param *p = &net->param[ct_net_param_of(net, i, w)];

        if ((p->kind == CT_WEIGHT_LEARNED) && (strcmp(p->layer, net->layer[i]->name) == 0))
            n += p->count;
    }
    return n;
}

void ct_check_count(const ct_net *net, int64_t n_rank, ct_check *c)
{
    *c = (ct_check){ .net = net, .n_rank = n_rank };
    for (int i = 0; i < net->n_layer; i++) {
        ct_estimate e;

        ct_net_estimate(net, i, &e);
        c->forward_flop += e.forward_flop;
        c->backward_flop += e.backward_flop;
        for (int t = 0; is_shown(net, i) && (t < net->layer[i]->n_top); t++)
            c->caffe_bytes += 4.0 * (double)ct_tensor_count(&net->pass->instance[i]->top[t]->data);
    }
    for (int i = 0; i < net->n_param; i++) {
        const ct_param *p = &net->param[i];

        if (p->kind == CT_WEIGHT_LEARNED)
            c->parameters += p->count;
        else
            c->statistics += p->count;
        if (p->learns) c->learned += p->count;
    }
}

/* A net as c's would be with `recompute`: that one, or one of the caller's. */
static ct_status plan_with(const Ct__NetParameter *param, const ct_net_options *options,
                           Ct__Recompute recompute, const ct_check *c, ct_net **made_p)
{
    Ct__NetParameter copy = *param;
    ct_net_options o = *options;

    *made_p = NULL;
    if (c->net->recompute == recompute) return CT_OK;
    copy.recompute = o.recompute = recompute;
    if (recompute == CT__RECOMPUTE__NEVER) o.n_again = 0;
    return ct_net_create(&copy, &o, made_p);
}

static double again_flop(const ct_net *net)
{
    double sum = 0;

    for (int j = 0; j < net->n_backward; j++) {
        ct_estimate e;

        if (net->backward[j].kind != CT_STEP_AGAIN) continue;
        ct_net_estimate(net, net->backward[j].layer, &e);
        sum += e.forward_flop;
    }
    return sum;
}

ct_status ct_check_blocks(const Ct__NetParameter *param, const ct_net_options *options, ct_check *c)
{
    ct_net *made;

    for (int i = 0; i < c->net->n_layer; i++)
        c->has_blocks |= (c->net->layer[i]->param->repeat_copy != NULL);
    c->has_blocks = (c->has_blocks || (options->n_again > 0)) && !options->forward_only;
    if (!c->has_blocks) return CT_OK;
    CT_TRY(plan_with(param, options, CT__RECOMPUTE__NEVER, c, &made));
    c->keeps_all = ((made != NULL) ? made : c->net)->memory.planned;
    ct_net_destroy(made);
    CT_TRY(plan_with(param, options, CT__RECOMPUTE__BLOCKS, c, &made));
    c->makes_blocks = ((made != NULL) ? made : c->net)->memory.planned;
    c->again_flop = again_flop((made != NULL) ? made : c->net);
    ct_net_destroy(made);
    return CT_OK;
}

/* ---- for people */

/* "<= 64 10 (640)" where it is the largest of several. */
static ct_shape_text shape_text(const ct_blob *top)
{
    ct_shape_text plain = ct_shape_str(&top->data.shape), marked = plain;

    if (!top->varies || (strlen(plain.text) + 4 > sizeof(plain.text))) return plain;
    strcpy(marked.text, "<= ");
    strcat(marked.text, plain.text);
    return marked;
}

/* Wide enough for all: 0 name and 1 type of layers, 2 tops' names, 3 their shapes. */
static void find_widths(const ct_net *net, int width[4])
{
    for (int i = 0; i < net->n_layer; i++) {
        const ct_layer *l = net->layer[i];
        int own[2] = { (int)strlen(l->name), (int)strlen(l->ops->type) };

        for (int k = 0; k < 2; k++) width[k] = (own[k] > width[k]) ? own[k] : width[k];
        for (int t = 0; t < l->n_top; t++) {
            const ct_blob *top = net->pass->instance[i]->top[t];
            int name = (int)strlen(top->name);
            int shape = (int)strlen(shape_text(top).text);

            width[2] = (name > width[2]) ? name : width[2];
            width[3] = (shape > width[3]) ? shape : width[3];
        }
    }
    for (int k = 0; k < 3; k++) width[k] = (width[k] > 44) ? 44 : width[k];
}

static void print_layer(const ct_net *net, int i, const int w[4], FILE *to)
{
    const ct_layer *l = net->layer[i];
    ct_estimate e;

    ct_net_estimate(net, i, &e);
    for (int t = 0; (t < l->n_top) || (t == 0); t++) {
        const ct_blob *top = (t < l->n_top) ? net->pass->instance[i]->top[t] : NULL;

        fprintf(to, "%-*s %-*s %-*s %-*s", w[0], (t == 0) ? l->name : "", w[1],
                (t == 0) ? l->ops->type : "", w[2], (top != NULL) ? top->name : "", w[3],
                (top != NULL) ? shape_text(top).text : "");
        if (t == 0)
            fprintf(to, " %12" PRId64 " %10.4g %10.4g", layer_parameters(net, i),
                    e.forward_flop * 1e-9, e.backward_flop * 1e-9);
        fprintf(to, "\n");
    }
}

/* ---- copies of a repeat: the first one stands for those that are like it */

typedef struct copies {
    int first, end; /* layers of the first copy            */
    int behind;     /* the first layer behind all of them  */
    int n;          /* copies                              */
    int64_t parameters;
    double forward_flop, backward_flop;
} copies;

static const Ct__RepeatCopy *copy_of(const ct_net *net, int i)
{
    return (i < net->n_layer) ? net->layer[i]->param->repeat_copy : NULL;
}

/* The next layer from i on that counts in comparing: a copy whose top one layer reads has a Split
 * less than its neighbours. */
static int skip_added(const ct_net *net, int i)
{
    while ((i < net->n_layer) &&
           (!is_shown(net, i) || (strcmp(net->layer[i]->ops->type, "Split") == 0)))
        i++;
    return i;
}

static bool is_like(const ct_net *net, int a, int b)
{
    const ct_layer *x = net->layer[a], *y = net->layer[b];
    ct_estimate ex, ey;

    ct_net_estimate(net, a, &ex);
    ct_net_estimate(net, b, &ey);
    if ((x->ops != y->ops) || (x->n_top != y->n_top) || (x->n_weight != y->n_weight) ||
        (ex.forward_flop != ey.forward_flop))
        return false;
    for (int t = 0; t < x->n_top; t++) {
        if (!ct_shape_equal(&net->pass->instance[a]->top[t]->data.shape,
                            &net->pass->instance[b]->top[t]->data.shape))
            return false;
    }
    for (int w = 0; w < x->n_weight; w++) {
        if (!ct_shape_equal(&x->weight[w].shape, &y->weight[w].shape)) return false;
    }
    return true;
}

static bool same_repeat(const Ct__RepeatCopy *a, const Ct__RepeatCopy *b)
{
    return (a != NULL) && (b != NULL) && (a->line == b->line) && (a->column == b->column);
}

/* The first layer behind the copy that layer i stands in. */
static int end_of_copy(const ct_net *net, int i)
{
    const Ct__RepeatCopy *own = copy_of(net, i);

    while (same_repeat(own, copy_of(net, i)) && (copy_of(net, i)->copy == own->copy)) i++;
    return i;
}

static bool are_alike(const ct_net *net, int a, int b)
{
    int end_a = end_of_copy(net, a), end_b = end_of_copy(net, b);

    for (;; a++, b++) {
        a = skip_added(net, a);
        b = skip_added(net, b);
        if ((a >= end_a) || (b >= end_b)) return (a >= end_a) && (b >= end_b);
        if (!is_like(net, a, b)) return false;
    }
}

/* Whether layer i is the first of a repeat of several copies that are all alike. */
static bool find_copies(const ct_net *net, int i, copies *c)
{
    const Ct__RepeatCopy *own = copy_of(net, i);
    int at = i;

    if ((own == NULL) || ((i > 0) && same_repeat(own, copy_of(net, i - 1)))) return false;
    *c = (copies){ .first = i, .end = end_of_copy(net, i) };
    for (; same_repeat(own, copy_of(net, at)); at = end_of_copy(net, at)) {
        if (!are_alike(net, i, at)) return false;
        c->n++;
    }
    for (c->behind = at, at = i; at < c->behind; at++) {
        ct_estimate e;

        ct_net_estimate(net, at, &e);
        c->parameters += layer_parameters(net, at);
        c->forward_flop += e.forward_flop;
        c->backward_flop += e.backward_flop;
    }
    return c->n > 1;
}

static void print_copies(const ct_net *net, const copies *c, const int w[4], FILE *to)
{
    int first = c->first, last = c->end - 1;
    ct_text t = { 0 };

    while (!is_shown(net, first)) first++;
    while (!is_shown(net, last)) last--;
    ct_text_add(&t, "x %d: %s to %s, and copies like them", c->n, net->layer[first]->name,
                net->layer[last]->name);
    fprintf(to, "%-*s %12" PRId64 " %10.4g %10.4g\n", w[0] + w[1] + w[2] + w[3] + 3,
            (t.text != NULL) ? t.text : "", c->parameters, c->forward_flop * 1e-9,
            c->backward_flop * 1e-9);
    ct_text_destroy(&t);
}

static void print_layers(const ct_net *net, const int w[4], FILE *to)
{
    copies c;

    for (int i = 0; i < net->n_layer; i++) {
        bool stands = find_copies(net, i, &c);

        for (int k = i; stands && (k < c.end); k++) {
            if (is_shown(net, k)) print_layer(net, k, w, to);
        }
        if (stands) {
            print_copies(net, &c, w, to);
            i = c.behind - 1;
        } else if (is_shown(net, i)) {
            print_layer(net, i, w, to);
        }
    }
}

static const char *recompute_name(const ct_net *net)
{
    return protobuf_c_enum_descriptor_get_value(&ct__recompute__descriptor, (int)net->recompute)
        ->name;
}

static double share_again(const ct_check *c)
{
    return (c->forward_flop > 0) ? c->again_flop / c->forward_flop : 0;
}

static void print_blocks(const ct_check *c, FILE *to)
{
    bool named = (c->net->options.n_again > 0);
    double saved = (double)c->keeps_all - (double)c->makes_blocks;

    fprintf(to,
            "recompute   %s%s saves %.1f MiB of %.1f, and does %.0f %% of forward's operations "
            "twice\n",
            named ? "" : recompute_name(c->net), named ? "what `again` names" : "; BLOCKS",
            ldexp(saved, -20), ldexp((double)c->keeps_all, -20), 100 * share_again(c));
}

void ct_check_print(const ct_check *c, FILE *to)
{
    const ct_net *net = c->net;
    const double mib = ldexp(1, 20);
    int w[4] = { 5, 4, 3, 5 }, n_bf16, n_top;

    find_widths(net, w);
    fprintf(to, "%-*s %-*s %-*s %-*s %12s %10s %10s\n", w[0], "layer", w[1], "type", w[2], "top",
            w[3], "shape", "parameters", "fwd GFLOP", "bwd GFLOP");
    print_layers(net, w, to);
    fprintf(to, "\nnet         %s, phase %s, hash %016" PRIx64 "\n", net->name,
            (net->options.phase == CT_TEST) ? "TEST" : "TRAIN", ct_net_hash(net));
    fprintf(to, "batch       %" PRId64 " a rank, %" PRId64 " on %" PRId64 " rank%s\n",
            net->batch_local, net->batch_global, c->n_rank, (c->n_rank > 1) ? "s" : "");
    if (c->step_tokens > 0)
        fprintf(to, "tokens      %" PRId64 " a step, iter_size %d\n", c->step_tokens, c->iter_size);
    fprintf(to, "parameters  %" PRId64 ", learned %" PRId64, c->parameters, c->learned);
    if (c->statistics > 0) fprintf(to, "; and %" PRId64 " statistics", c->statistics);
    fprintf(to, "\noperations  forward %.4g GFLOP, backward %.4g GFLOP a step and rank\n",
            c->forward_flop * 1e-9, c->backward_flop * 1e-9);
    fprintf(
        to,
        "memory      activations %.1f MiB planned, %.1f MiB alive at the peak, %.1f MiB without "
        "sharing;\n            weights and gradients %.1f MiB; ",
        (double)net->memory.planned / mib, (double)net->memory.peak_alive / mib,
        (double)net->memory.unshared / mib, (double)net->memory.weights / mib);
    if (c->optimiser_bytes >= 0)
        fprintf(to, "the optimiser's state %.1f MiB;\n            ",
                (double)c->optimiser_bytes / mib);
    fprintf(to, "Caffe would say \"Memory required for data: %.0f\"\n", c->caffe_bytes);
    if (c->has_blocks) print_blocks(c, to);
    n_bf16 = ct_precision_tops(net, &n_top);
    if (n_bf16 > 0)
        fprintf(to, "precision   %d of %d tops, and their gradients, are stored as %s\n", n_bf16,
                n_top, ct_precision_stored(net));
    if (ct_memory_tier_used(&c->tiers, CT_TIER_HOST)) {
        fprintf(to, "\n");
        ct_memory_tiers_print(&c->tiers, to);
        fprintf(to, "\n");
    }
    fprintf(to,
            "traffic     %.3f MiB a rank and step: 2 (P-1)/P x %.3f MiB summed + (P-1) x %.3f MiB "
            "gathered, P = %" PRId64 "\n",
            c->sent / mib, c->dense / mib, c->gathered / mib, c->n_rank);
    if (c->falls_until > 0)
        fprintf(to,
                "warm-up     %.3f MiB a rank in iteration 0; the density falls until iteration "
                "%" PRId64 "\n",
                c->sent_first / mib, c->falls_until);
}

/* ---- for programs */

static void add_shape(const ct_shape *s, ct_json_writer *w)
{
    ct_json_begin_list(w, "shape");
    for (int i = 0; i < s->ndim; i++) ct_json_add_integer(w, NULL, s->dim[i]);
    ct_json_end(w);
}

/* The name that a bottom has in Caffe: that of what a Reorder or Cast reads. */
static const char *bottom_name(const ct_net *net, int i, int b)
{
    const ct_blob *blob = net->pass->instance[i]->bottom[b];

    for (int k = i - 1; k >= 0; k--) {
        if (!net->layer[k]->ops->by_net || (net->pass->instance[k]->top[0] != blob)) continue;
        return net->pass->instance[k]->bottom[0]->name;
    }
    return blob->name;
}

static void add_weights(const ct_net *net, int i, ct_json_writer *w)
{
    const ct_layer *l = net->layer[i];

    for (int k = 0; k < l->n_weight; k++) {
        const ct_param *p = &net->param[ct_net_param_of(net, i, k)];

        ct_json_begin_object(w, NULL);
        ct_json_add_text(w, "name", p->key);
        add_shape(&l->weight[k].shape, w);
        ct_json_add_bool(w, "statistic", p->kind != CT_WEIGHT_LEARNED);
        ct_json_add_bool(w, "shared", strcmp(p->layer, l->name) != 0);
        ct_json_end(w);
    }
}

static void add_layer(const ct_net *net, int i, ct_json_writer *w)
{
    const ct_layer *l = net->layer[i];
    const Ct__RepeatCopy *copy = copy_of(net, i);
    ct_estimate e;

    ct_net_estimate(net, i, &e);
    ct_json_begin_object(w, NULL);
    ct_json_add_text(w, "name", l->name);
    ct_json_add_text(w, "type", l->ops->type);
    ct_json_begin_list(w, "bottoms");
    for (int b = 0; b < l->n_bottom; b++) ct_json_add_text(w, NULL, bottom_name(net, i, b));
    ct_json_end(w);
    ct_json_begin_list(w, "tops");
    for (int t = 0; t < l->n_top; t++) {
        const ct_blob *top = net->pass->instance[i]->top[t];

        ct_json_begin_object(w, NULL);
        ct_json_add_text(w, "name", top->name);
        add_shape(&top->data.shape, w);
        if (top->varies) ct_json_add_bool(w, "varies", true);
        ct_json_end(w);
    }
    ct_json_end(w);
    if (copy != NULL) {
        ct_json_add_integer(w, "copy", copy->copy);
        ct_json_add_integer(w, "of", copy->of);
    }
    ct_json_begin_list(w, "weights");
    add_weights(net, i, w);
    ct_json_end(w);
    ct_json_add_integer(w, "parameters", layer_parameters(net, i));
    ct_json_add_digits(w, "forward_flop", e.forward_flop, 17);
    ct_json_add_digits(w, "backward_flop", e.backward_flop, 17);
    ct_json_end(w);
}

void ct_check_json(const ct_check *c, ct_json_writer *w)
{
    const ct_net *net = c->net;

    ct_json_add_text(w, "net", net->name);
    ct_json_add_text(w, "phase", (net->options.phase == CT_TEST) ? "TEST" : "TRAIN");
    ct_json_add_hash(w, "net_hash", ct_net_hash(net));
    ct_json_add_integer(w, "batch", net->batch_local);
    if (!c->divided) ct_json_add_integer(w, "ranks", c->n_rank);
    ct_json_begin_list(w, "layers");
    for (int i = 0; i < net->n_layer; i++) {
        if (!is_shown(net, i)) continue;
        add_layer(net, i, w);
    }
    ct_json_end(w);
    ct_json_add_integer(w, "step_tokens", c->step_tokens);
    ct_json_add_integer(w, "parameters", c->parameters);
    ct_json_add_integer(w, "statistics", c->statistics);
    ct_json_add_integer(w, "learned", c->learned);
    ct_json_add_number(w, "forward_gflop", c->forward_flop * 1e-9);
    ct_json_add_number(w, "backward_gflop", c->backward_flop * 1e-9);
    ct_json_begin_object(w, "memory");
    ct_json_add_integer(w, "planned", net->memory.planned);
    ct_json_add_integer(w, "peak_alive", net->memory.peak_alive);
    ct_json_add_integer(w, "unshared", net->memory.unshared);
    ct_json_add_integer(w, "weights", net->memory.weights);
    ct_json_add_decimals(w, "caffe_data", c->caffe_bytes, 0);
    if (c->optimiser_bytes >= 0) ct_json_add_integer(w, "optimiser", c->optimiser_bytes);
    if (ct_memory_tier_used(&c->tiers, CT_TIER_HOST)) ct_memory_tiers_json(&c->tiers, w);
    ct_json_end(w);
    if (c->has_blocks) {
        ct_json_begin_object(w, "recompute");
        ct_json_add_text(w, "is", recompute_name(net));
        ct_json_add_integer(w, "never_planned", c->keeps_all);
        ct_json_add_integer(w, "blocks_planned", c->makes_blocks);
        ct_json_add_digits(w, "blocks_share", share_again(c), 6);
        ct_json_end(w);
    }
    ct_json_add_decimals(w, "bytes_sent", c->sent, 0);
    if (c->falls_until > 0) {
        ct_json_begin_object(w, "warmup");
        ct_json_add_decimals(w, "bytes_sent", c->sent_first, 0);
        ct_json_add_integer(w, "falls_until", c->falls_until);
        ct_json_end(w);
    }
}

/* ---- for Graphviz: a box a layer, an arrow a blob with its shape. Layers in place
 * stand in the chain that they work on. */

extern char **environ;

/* The layer that wrote blob b last before layer i, through Reorders; -1: none. */
static int writer(const ct_net *net, int i, const ct_blob *b)
{
    for (int k = i - 1; k >= 0; k--) {
        for (int t = 0; t < net->layer[k]->n_top; t++) {
            if (net->pass->instance[k]->top[t] != b) continue;
            if (!net->layer[k]->ops->by_net) return k;
            b = net->pass->instance[k]->bottom[0];
        }
    }
    return -1;
}

static void add_escaped(const char *s, ct_text *out)
{
    for (; *s != '\0'; s++) {
        if ((*s == '"') || (*s == '\\')) ct_text_add(out, "\\");
        ct_text_add(out, "%c", *s);
    }
}

static void add_node(const ct_net *net, int i, ct_text *out)
{
    const ct_layer *l = net->layer[i];
    const char *colour = (l->n_weight > 0) ? "#cfe2f3" : "#f3f3f3";
    int64_t n = 0;

    if (l->n_bottom == 0) colour = "#d9ead3";
    if (l->ops->is_loss) colour = "#f4cccc";
    for (int w = 0; w < l->n_weight; w++) n += ct_shape_count(&l->weight[w].shape, 0, -1);
    ct_text_add(out, "  n%d [fillcolor=\"%s\" label=\"", i, colour);
    add_escaped(l->name, out);
    ct_text_add(out, "\\n%s", l->ops->type);
    if (n > 0) ct_text_add(out, "\\n%lld weights", (long long)n);
    ct_text_add(out, "\"];\n");
}

static void add_arrow(const ct_blob *b, int from, int to, bool to_end, ct_text *out)
{
    const ct_shape *s = &b->data.shape;

    ct_text_add(out, "  n%d -> %s%d [label=\"", from, to_end ? "end" : "n", to);
    add_escaped(b->name, out);
    ct_text_add(out, "\\n%s", b->varies ? "&le; " : "");
    for (int k = 0; k < s->ndim; k++)
        ct_text_add(out, "%s%lld", (k > 0) ? " x " : "", (long long)s->dim[k]);
    ct_text_add(out, "\"];\n");
}

static void add_graph(const ct_net *net, ct_text *out)
{
    ct_text_add(out, "digraph \"");
    add_escaped(net->name, out);
    ct_text_add(out,
                "\" {\n  rankdir=TB;\n  node [shape=box style=filled fontname=\"Helvetica\"];\n"
                "  edge [fontname=\"Helvetica\" fontsize=10];\n");
    for (int i = 0; i < net->n_layer; i++) {
        const ct_layer *l = net->layer[i];

        if (l->ops->by_net) continue;
        add_node(net, i, out);
        for (int b = 0; b < l->n_bottom; b++) {
            const ct_blob *bottom = net->pass->instance[i]->bottom[b];
            int from = writer(net, i, bottom);

            if (from >= 0) add_arrow(bottom, from, i, false, out);
        }
    }
    for (int k = 0; k < net->n_output; k++) {
        const ct_output *o = &net->output[k];
        int from = net->layer[o->layer]->ops->by_net
                       ? writer(net, o->layer, net->pass->instance[o->layer]->bottom[0])
                       : o->layer;

        ct_text_add(out, "  end%d [shape=point];\n", k);
        if (from >= 0) add_arrow(net->pass->blob[o->blob], from, k, true, out);
    }
    ct_text_add(out, "}\n");
}

/* dot -Tkind -o file source */
static ct_status run_dot(const char *kind, const char *file, const char *source)
{
    char name[] = "dot", format[16], output[] = "-o";
    char *to = strdup(file), *from = strdup(source);
    char *argv[] = { name, format, output, to, from, NULL };
    int state = 0, error = ENOMEM;
    ct_status status = CT_OK;
    pid_t pid = 0;

    snprintf(format, sizeof(format), "-T%s", kind);
    if ((to != NULL) && (from != NULL)) error = posix_spawnp(&pid, name, NULL, NULL, argv, environ);
    if (error == ENOENT) {
        status = CT_FAIL(CT_ERR_CONFIG,
                         "--dot=%s needs Graphviz's program \"dot\", which is not installed; "
                         "--dot=FILE.dot writes what it reads",
                         file);
    } else if (error != 0) {
        status = CT_FAIL(CT_ERR_IO, "dot cannot be started: %s", strerror(error));
    } else {
        while ((waitpid(pid, &state, 0) < 0) && (errno == EINTR)) continue;
        if (!WIFEXITED(state) || (WEXITSTATUS(state) != 0))
            status = CT_FAIL(CT_ERR_IO, "dot could not write %s (exit code %d)", file,
                             WIFEXITED(state) ? WEXITSTATUS(state) : -1);
    }
    free(to);
    free(from);
    return status;
}

static ct_status draw_picture(const char *file, const char *kind, const ct_text *graph)
{
    ct_text source = { 0 };
    ct_status status;

    CT_TRY(ct_file_check_writable(file));
    ct_path_add_own(&source, file, "dot");
    if (source.failed) {
        ct_text_destroy(&source);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for a file name");
    }
    status = ct_file_write(source.text, graph->text, graph->length);
    if (status == CT_OK) {
        status = run_dot(kind, file, source.text);
        unlink(source.text);
    }
    ct_text_destroy(&source);
    return status;
}

ct_status ct_check_draw(const ct_net *net, const char *file)
{
    static const char *const picture[] = { "svg", "png", "pdf" };
    const char *ending = strrchr(file, '.'), *kind = NULL;
    ct_text graph = { 0 };
    ct_status status;

    for (size_t i = 0; (ending != NULL) && (i < sizeof(picture) / sizeof(picture[0])); i++) {
        if (strcmp(ending + 1, picture[i]) == 0) kind = picture[i];
    }
    add_graph(net, &graph);
    if (graph.failed) {
        status = CT_FAIL(CT_ERR_NOMEM, "no memory for a graph");
    } else if (kind != NULL) {
        status = draw_picture(file, kind, &graph);
    } else {
        status = ct_file_write(file, graph.text, graph.length);
    }
    ct_text_destroy(&graph);
    return status;
}
