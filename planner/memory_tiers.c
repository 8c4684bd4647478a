#include "planner/memory_tiers.h"

#include <inttypes.h>
#include <math.h>

#include "framework/base/json_writer.h"

static const char *const tier_name[CT_N_TIER] = { "device", "host", "file" };
static const char *const use_name[CT_N_USE] = { "weights",      "gradients",   "states",
                                                "window",       "activations", "logits",
                                                "communication" };

const char *ct_tier_name(ct_tier tier)
{
    return tier_name[tier];
}

const char *ct_memory_use_name(ct_memory_use use)
{
    return use_name[use];
}

/* The layer that the loss comes from, and the product that it reads; -1: there is none. */
static int find_loss(const ct_net *net)
{
    for (int i = 0; i < net->n_output; i++)
        if (net->output[i].loss_weight > 0) return net->output[i].layer;
    return -1;
}

/* Whether a region is of the values that the loss reads (blob `product`), or a buffer of the loss.
 */
static bool is_of_loss(const ct_net *net, const ct_net_region *r, int loss, int product)
{
    if (r->blob < 0) return r->layer == loss;
    return ct_net_memory_of(net, r->blob) == ct_net_memory_of(net, product);
}

int64_t ct_memory_logits(const ct_net *net)
{
    int layer = find_loss(net), product;
    int64_t most = 0;

    if ((layer < 0) || (net->layer[layer]->n_bottom == 0)) return 0;
    product = ct_net_find_blob(net, net->pass->instance[layer]->bottom[0]->name);
    if (product < 0) return 0;
    /* at its largest when one of them comes */
    for (int i = 0; i < ct_net_regions(net); i++) {
        ct_net_region r = ct_net_region_of(net, i);
        int64_t sum = 0;

        if (!is_of_loss(net, &r, layer, product)) continue;
        for (int k = 0; k < ct_net_regions(net); k++) {
            ct_net_region other = ct_net_region_of(net, k);

            if ((other.first <= r.first) && (r.first <= other.last) &&
                is_of_loss(net, &other, layer, product))
                sum += (int64_t)other.bytes;
        }
        if (sum > most) most = sum;
    }
    return most;
}

static void count_visits(const ct_net *net, const ct_step *list, int n, ct_memory_tiers *t)
{
    for (int i = 0; i < n; i++) {
        int first, end;

        if ((list[i].kind != CT_STEP_BEGIN) || (list[i].of != CT_PAIR_CHUNK)) continue;
        ct_net_chunk(net, list[i].param, &first, &end);
        t->chunk_loads += 1;
        for (int k = first; k < end; k++)
            t->visit_bytes += net->param[k].count * (int64_t)sizeof(float);
    }
}

void ct_memory_tiers_add_net(ct_memory_tiers *t, const ct_net *net)
{
    const int64_t element = (int64_t)sizeof(float);
    int64_t *at =
        t->bytes[(net->options.dev->kind == CT_DEVICE_CPU) ? CT_TIER_HOST : CT_TIER_DEVICE];
    bool window = (ct_net_chunk_count(net) > 0) && net->options.window->gradients;
    int64_t fixed = net->weight_count - net->grad_count + ct_net_staying(net);
    int64_t logits = ct_memory_logits(net);

    if (ct_net_has_visits(net)) {
        at[CT_USE_WEIGHTS] += element * fixed;
        at[CT_USE_WINDOW] += element * (net->weight_memory - fixed);
        count_visits(net, net->forward, net->n_forward, t);
        count_visits(net, net->backward, net->n_backward, t);
    } else {
        at[CT_USE_WEIGHTS] += element * net->weight_memory;
    }
    at[window ? CT_USE_WINDOW : CT_USE_GRADIENTS] += element * net->grad_memory;
    at[CT_USE_LOGITS] += logits;
    at[CT_USE_ACTIVATIONS] += (int64_t)net->memory.planned - logits;
}

int64_t ct_memory_tier_sum(const ct_memory_tiers *t, ct_tier tier)
{
    int64_t sum = (tier == CT_TIER_HOST) ? t->runtime + t->test + t->snapshot : 0;

    for (int u = 0; u < CT_N_USE; u++) sum += t->bytes[tier][u];
    return sum;
}

bool ct_memory_tier_used(const ct_memory_tiers *t, ct_tier tier)
{
    return ct_memory_tier_sum(t, tier) > 0;
}

void ct_memory_tiers_json(const ct_memory_tiers *t, ct_json_writer *w)
{
    ct_json_begin_list(w, "tiers");
    for (int k = 0; k < CT_N_TIER; k++) {
        if (!ct_memory_tier_used(t, k)) continue;
        ct_json_begin_object(w, NULL);
        ct_json_add_text(w, "tier", tier_name[k]);
        for (int u = 0; u < CT_N_USE; u++) ct_json_add_integer(w, use_name[u], t->bytes[k][u]);
        if ((k == CT_TIER_HOST) && (t->runtime > 0)) ct_json_add_integer(w, "runtime", t->runtime);
        if ((k == CT_TIER_HOST) && (t->test > 0)) ct_json_add_integer(w, "test", t->test);
        if ((k == CT_TIER_HOST) && (t->snapshot > 0))
            ct_json_add_integer(w, "snapshot", t->snapshot);
        ct_json_add_integer(w, "sum", ct_memory_tier_sum(t, k));
        ct_json_add_integer(w, "limit", t->limit[k]);
        ct_json_end(w);
    }
    ct_json_end(w);
    ct_json_add_integer(w, "chunk_loads", t->chunk_loads);
}

static void print_mib(int width, int64_t bytes, FILE *to)
{
    if (bytes == 0)
        fprintf(to, " %*s", width, "-");
    else
        fprintf(to, " %*.1f", width, ldexp((double)bytes, -20));
}

void ct_memory_tiers_print(const ct_memory_tiers *t, FILE *to)
{
    const int width = 9;

    fprintf(to, "%-7s %*s %*s %*s %*s %*s %*s %*s", "MiB", width, "weights", width, "gradients",
            width, "states", width, "window", width, "activat.", width, "logits", width,
            "communic.");
    if (t->test > 0) fprintf(to, " %*s", width, "test nets");
    if (t->snapshot > 0) fprintf(to, " %*s", width, "snapshot");
    if (t->runtime > 0) fprintf(to, " %*s", width, "runtime");
    fprintf(to, " %*s %*s\n", width, "sum", width, "limit");
    for (int k = 0; k < CT_N_TIER; k++) {
        if (!ct_memory_tier_used(t, k)) continue;
        fprintf(to, "%-7s", tier_name[k]);
        for (int u = 0; u < CT_N_USE; u++) print_mib(width, t->bytes[k][u], to);
        if (t->test > 0) print_mib(width, (k == CT_TIER_HOST) ? t->test : 0, to);
        if (t->snapshot > 0) print_mib(width, (k == CT_TIER_HOST) ? t->snapshot : 0, to);
        if (t->runtime > 0) print_mib(width, (k == CT_TIER_HOST) ? t->runtime : 0, to);
        print_mib(width, ct_memory_tier_sum(t, k), to);
        print_mib(width, t->limit[k], to);
        fprintf(to, "\n");
    }
}
