/* Model state of a net laid over GPUs, a node's memory and files. */
#include "planner/tier_plan.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/json_writer.h"
#include "planner/chunk_plan.h"
#include "planner/net_chain.h"

enum {
    ALIGNED = 16,     /* elements: a piece of a parameter begins at a multiple */
    LAG = 2,          /* of the window, as in runs on CPUs                     */
    PREFETCH = 2,     /* likewise                                              */
    LANDING = 4,      /* chunks of gradients on their way to updates in the memory of the node */
    MOST_PLACES = 64, /* for weights that come, but where a visit reads more  */
    FILE_CHUNKS = 8   /* on their way from files and to them */
};

/* ---- the machine */

ct_status ct_tier_node_of(const ct_machine *m, int node_class, double usable, bool half,
                          ct_tier_node *node)
{
    const ct_node_class *c = &m->node_class[node_class];

    if (c->gpus < 1)
        return CT_FAIL(CT_ERR_CONFIG, "machine \"%s\": nodes of class \"%s\" have no GPUs (gpus)",
                       m->name, c->name);
    if ((c->gpu_memory <= 0) || (c->memory <= 0))
        return CT_FAIL(CT_ERR_CONFIG,
                       "machine \"%s\": class \"%s\" does not say what memory it has "
                       "(gpu_memory_gib, memory_gib)",
                       m->name, c->name);
    *node = (ct_tier_node){ .n_rank = c->gpus,
                            .device = c->gpu_memory * ((usable > 0) ? usable : c->gpu_usable),
                            .host = c->memory * ((usable > 0) ? usable : c->memory_usable),
                            .flop = half ? c->gpu_half_flop : c->gpu_flop,
                            .link = c->gpu_link,
                            .host_bandwidth = c->host_bandwidth,
                            .file_read = c->file_read,
                            .file_write = c->file_write };
    if (m->node_level >= 0) node->between = m->level[m->node_level].bandwidth;
    if (c->inside > 0) node->between = c->inside;
    return CT_OK;
}

/* ---- the net */

/* A chunk of the window is at least a chunk of model state, of whole parameters. */
static ct_status cut(void *ctx, const ct_net *net, bool *begins)
{
    const ct_tier_request *q = ctx;
    int64_t bytes = q->chunk_bytes;

    for (int i = 0; (i < net->n_param) && net->param[i].learns; i++) {
        begins[i] = (bytes >= q->chunk_bytes);
        if (begins[i]) bytes = 0;
        bytes += net->param[i].count * (int64_t)sizeof(float);
    }
    return CT_OK;
}

static ct_status make_net(ct_tier_request *q, ct_net_window *window, ct_net **net_p)
{
    ct_net_options o = *q->options;

    *window = (ct_net_window){
        .cut = cut, .ctx = q, .gradients = true, .weights = true, .lag = LAG, .prefetch = PREFETCH
    };
    ct_net_options_alone(&o);
    o.env.n_rank = q->node.n_rank;
    o.no_fuse = true; /* the groups that save memory are the CPU's */
    o.window = window;
    return ct_net_create(q->param, &o, net_p);
}

/* ---- what is on the GPU in any case */

/* Bytes of an Attention's probabilities; 0: of another layer. */
static double probability_bytes(const ct_net *net, int layer)
{
    const ct_layer *l = net->layer[layer];
    const ct_instance *in = net->pass->instance[layer];
    const ct_tensor *q, *k;
    double sequences, size;

    if (strcmp(l->ops->type, "Attention") != 0) return 0;
    q = &in->bottom[0]->data;
    k = &in->bottom[(l->n_bottom >= 3) ? 1 : 0]->data;
    sequences = (double)q->shape.dim[0];
    size = (double)ct_tensor_bytes(&in->top[0]->data) / (double)ct_tensor_count(&in->top[0]->data);
    return size * sequences * l->param->attention_param->num_heads * (double)q->shape.dim[1] *
           (double)k->shape.dim[1];
}

/* Adds what the probabilities of a layer take to bytes alive at each step: in forward for as long
 * as the layer runs, or to backward where it is not made again; their gradient in backward. Buffers
 * of the layer are there in those steps. */
static void add_probabilities(const ct_net *net, int layer, double *alive)
{
    double bytes = probability_bytes(net, layer);
    int first = net->n_forward + net->n_backward, last = -1;

    if (bytes == 0) return;
    for (int k = 0; k < ct_net_regions(net); k++) {
        ct_net_region r = ct_net_region_of(net, k);

        if ((r.layer != layer) || (r.last < net->n_forward)) continue;
        if (r.first < first) first = r.first;
        if (r.last > last) last = r.last;
    }
    for (int t = first; t <= last; t++) alive[t] += bytes;
    if (last >= 0) alive[last] += bytes;
}

static double most_of(const double *alive, int n)
{
    double most = 0;

    for (int t = 0; t < n; t++) most = fmax(most, alive[t]);
    return most;
}

/* By how much probabilities raise the peak. */
static ct_status count_probabilities(const ct_net *net, int64_t *bytes_p)
{
    int n = net->n_forward + net->n_backward;
    double *alive = calloc((size_t)n + 1, sizeof(*alive)), before;

    if (alive == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d steps", n);
    for (int k = 0; k < ct_net_regions(net); k++) {
        ct_net_region r = ct_net_region_of(net, k);

        for (int t = r.first; t <= r.last; t++) alive[t] += (double)r.bytes;
    }
    before = most_of(alive, n);
    for (int i = 0; i < net->n_layer; i++) add_probabilities(net, i, alive);
    *bytes_p = (int64_t)(most_of(alive, n) - before);
    free(alive);
    return CT_OK;
}

static int64_t piece_of(const ct_tier_request *q, const ct_param *p)
{
    int64_t n = (p->count + q->node.n_rank - 1) / q->node.n_rank;

    return (n + ALIGNED - 1) / ALIGNED * ALIGNED;
}

/* The most that the pieces of one chunk of the window take, in f32. */
static int64_t largest_piece(const ct_tier_request *q, const ct_net *net)
{
    int64_t most = 0;

    for (int c = 0; c < ct_net_chunk_count(net); c++) {
        int64_t n = 0;
        int first, end;

        ct_net_chunk(net, c, &first, &end);
        for (int i = first; i < end; i++) n += piece_of(q, &net->param[i]);
        if (n > most) most = n;
    }
    return most * (int64_t)sizeof(float);
}

static ct_status count_fixed(const ct_tier_request *q, const ct_net *net, ct_tier_plan *p)
{
    int64_t *b = p->rank.bytes[CT_TIER_DEVICE], more = 0;

    if (q->probabilities) CT_TRY(count_probabilities(net, &more));
    b[CT_USE_LOGITS] = ct_memory_logits(net);
    b[CT_USE_ACTIVATIONS] = (int64_t)net->memory.planned + more - b[CT_USE_LOGITS];
    b[CT_USE_WINDOW] = (net->weight_memory + net->grad_memory) * (int64_t)sizeof(float);
    b[CT_USE_COMMUNICATION] = 2 * largest_piece(q, net);
    return CT_OK;
}

/* ---- chunks of model state, and who reads them */

typedef struct chunks {
    const ct_tier_request *q;
    const ct_net *net;
    int n, n_use, most; /* most: that one visit reads                                        */
    int64_t *at;        /* [n_param + 1]: where the pieces of a parameter begin in the shard */
    ct_chunk_use *use;  /* one visit a moment                                                */
    bool *backward;     /* [n_use]                                                           */
    int *visits;        /* [n] of each                                                       */
} chunks;

static void close_chunks(chunks *k)
{
    free(k->at);
    free(k->use);
    free(k->backward);
    free(k->visits);
}

static const ct_step *step_at(const ct_net *net, int t)
{
    return (t < net->n_forward) ? &net->forward[t] : &net->backward[t - net->n_forward];
}

static bool begins_visit(const ct_step *s)
{
    return (s->kind == CT_STEP_BEGIN) && (s->of == CT_PAIR_CHUNK);
}

/* Fills k->use, where that is there; returns how many there are. */
static int find_uses(chunks *k)
{
    int64_t each = k->q->chunk_bytes / (int64_t)sizeof(float);
    int n = 0, moment = 0;

    for (int t = 0; t < k->net->n_forward + k->net->n_backward; t++) {
        const ct_step *s = step_at(k->net, t);
        int first, end, from, to;

        if (!begins_visit(s)) continue;
        ct_net_chunk(k->net, s->param, &first, &end);
        from = (int)(k->at[first] / each);
        to = (int)((k->at[end] - 1) / each);
        for (int c = from; c <= to; c++, n++) {
            if (k->use == NULL) continue;
            k->use[n] = (ct_chunk_use){ moment, c };
            k->backward[n] = (t >= k->net->n_forward);
            k->visits[c]++;
        }
        if (to - from + 1 > k->most) k->most = to - from + 1;
        moment++;
    }
    return n;
}

static ct_status open_chunks(const ct_tier_request *q, const ct_net *net, ct_tier_plan *p,
                             chunks *k)
{
    *k = (chunks){ .q = q, .net = net };
    k->at = calloc((size_t)net->n_param + 1, sizeof(*k->at));
    if (k->at == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for chunks");
    for (int i = 0; i < net->n_param; i++) {
        bool learns = net->param[i].learns;

        k->at[i + 1] = k->at[i] + (learns ? piece_of(q, &net->param[i]) : 0);
        if (learns) p->parameters += net->param[i].count;
    }
    p->shard = k->at[net->n_param];
    p->n_chunk = (p->shard * (int64_t)sizeof(float) + q->chunk_bytes - 1) / q->chunk_bytes;
    p->chunk_bytes = (int64_t)ceil((q->state_bytes + q->gradient_bytes) * (double)q->chunk_bytes /
                                   sizeof(float));
    k->n = (int)p->n_chunk;
    k->n_use = find_uses(k);
    k->use = calloc((size_t)k->n_use + 1, sizeof(*k->use));
    k->backward = calloc((size_t)k->n_use + 1, sizeof(*k->backward));
    k->visits = calloc((size_t)k->n + 1, sizeof(*k->visits));
    if ((k->use == NULL) || (k->backward == NULL) || (k->visits == NULL))
        return CT_FAIL(CT_ERR_NOMEM, "no memory for %d chunks", k->n);
    find_uses(k);
    return CT_OK;
}

/* Chunks that are read from use u on, before its chunk is read again in backward; 0: it is not. */
static int span_of(const chunks *k, int u, int *seen)
{
    int n = 0, end = u + 1;

    while ((end < k->n_use) && (k->use[end].chunk != k->use[u].chunk)) end++;
    if ((end == k->n_use) || !k->backward[u]) return 0;
    for (int i = u; i < end; i++) {
        if (seen[k->use[i].chunk] != u + 1) n++;
        seen[k->use[i].chunk] = u + 1;
    }
    return n;
}

/* Places on the GPU for weights that come from elsewhere: for those of a visit, and for those of a
 * block from where it is made again to where its gradients are made. */
static ct_status count_places(const chunks *k, int *n_p)
{
    int *seen = calloc((size_t)k->n + 1, sizeof(*seen));

    if (seen == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d chunks", k->n);
    *n_p = k->most;
    for (int u = 0; u < k->n_use; u++) {
        int n = span_of(k, u, seen);

        if ((n > *n_p) && (n <= MOST_PLACES)) *n_p = n;
    }
    free(seen);
    return CT_OK;
}

/* ---- where they lie */

/* So many of the chunks that are left lie in a tier. */
static void put(const ct_tier_request *q, ct_tier_plan *p, ct_tier tier, int64_t n)
{
    int64_t *b = p->rank.bytes[tier];
    double elements = (double)n * (double)q->chunk_bytes / sizeof(float);

    p->on[tier] = n;
    b[CT_USE_WEIGHTS] = n * q->chunk_bytes;
    b[CT_USE_GRADIENTS] = (int64_t)ceil(elements * q->gradient_bytes);
    b[CT_USE_STATES] = n * p->chunk_bytes - b[CT_USE_WEIGHTS] - b[CT_USE_GRADIENTS];
}

/* Lays as many of `left` there as it has room for; returns how many are left then. */
static int64_t fill(const ct_tier_request *q, ct_tier_plan *p, ct_tier tier, int64_t left)
{
    int64_t room, n;

    put(q, p, tier, 0);
    room = p->rank.limit[tier] - ct_memory_tier_sum(&p->rank, tier);
    n = (room > 0) ? room / p->chunk_bytes : 0;
    if (n > left) n = left;
    put(q, p, tier, n);
    return left - n;
}

static int64_t over(const ct_tier_plan *p, ct_tier tier)
{
    return ct_memory_tier_sum(&p->rank, tier) - p->rank.limit[tier];
}

/* What is missing: room for what must be on the GPU, for chunks; or how much is left. */
static void find_missing(const ct_tier_request *q, ct_tier_plan *p, int64_t fixed, int64_t left)
{
    p->lacks = (fixed > 0) ? CT_TIER_DEVICE : CT_TIER_HOST;
    if (fixed > 0)
        p->missing = fixed + (q->files ? 0 : left * p->chunk_bytes);
    else if (left > 0)
        p->missing = left * p->chunk_bytes;
    else if (q->files)
        p->missing = fixed;
    else
        p->missing = over(p, CT_TIER_DEVICE) + over(p, CT_TIER_HOST);
}

static void lay(const ct_tier_request *q, int places, ct_tier_plan *p)
{
    int64_t *device = p->rank.bytes[CT_TIER_DEVICE], *host = p->rank.bytes[CT_TIER_HOST];
    int64_t left, rest, fixed;

    p->rank.limit[CT_TIER_DEVICE] = (int64_t)q->node.device;
    p->rank.limit[CT_TIER_HOST] = (int64_t)(q->node.host / q->node.n_rank);
    fixed = over(p, CT_TIER_DEVICE);
    left = fill(q, p, CT_TIER_DEVICE, p->n_chunk);
    if (left > 0) { /* weights come here, and gradients go there */
        device[CT_USE_WINDOW] += places * q->chunk_bytes;
        host[CT_USE_COMMUNICATION] = LANDING * q->chunk_bytes;
        put(q, p, CT_TIER_DEVICE, 0);
        fixed = over(p, CT_TIER_DEVICE);
        left = fill(q, p, CT_TIER_DEVICE, p->n_chunk);
    }
    rest = fill(q, p, CT_TIER_HOST, left);
    if (q->files && (rest > 0)) {
        host[CT_USE_WINDOW] = FILE_CHUNKS * p->chunk_bytes;
        rest = fill(q, p, CT_TIER_HOST, left);
        put(q, p, CT_TIER_FILE, rest);
        rest = (over(p, CT_TIER_HOST) > 0) ? 1 : 0;
    }
    find_missing(q, p, fixed, rest);
}

/* ---- loads */

/* number[c]: of chunks that are not on the GPU, from 0; -1: it is. Those there are read most. */
static void number_away(const chunks *k, int on_device, int *number)
{
    int n = 0, left = on_device, most = 0;

    for (int c = 0; c < k->n; c++)
        if (k->visits[c] > most) most = k->visits[c];
    for (int c = 0; c < k->n; c++) number[c] = 0;
    for (; most >= 0; most--)
        for (int c = 0; (c < k->n) && (left > 0); c++) {
            if (k->visits[c] != most) continue;
            number[c] = -1;
            left--;
        }
    for (int c = 0; c < k->n; c++)
        if (number[c] == 0) number[c] = n++;
}

/* Of chunks that a plan still has from the step before: the update changed them elsewhere. */
static int64_t count_stale(const ct_chunk_use *use, const ct_chunk_plan *plan, bool *known)
{
    int64_t n = 0;
    int l = 0;

    for (int u = 0; u < plan->n_use; u++) {
        bool loaded = false;

        while ((l < plan->n_load) && (plan->load[l].moment < use[u].moment)) l++;
        for (int i = l; (i < plan->n_load) && (plan->load[i].moment == use[u].moment); i++)
            loaded = loaded || (plan->load[i].chunk == use[u].chunk);
        if (!known[use[u].chunk] && !loaded) n++;
        known[use[u].chunk] = true;
    }
    return n;
}

/* away[k->n_use]: the uses of chunks that are not on the GPU. */
static ct_status plan_loads(const chunks *k, int places, const int *number, ct_chunk_use *away,
                            ct_tier_plan *p)
{
    int n_away = (int)(p->n_chunk - p->on[CT_TIER_DEVICE]), n = 0;
    bool *known = calloc((size_t)n_away + 1, sizeof(*known));
    ct_chunk_plan plan = { .slot = NULL };
    ct_status status = CT_OK;

    for (int u = 0; u < k->n_use; u++) {
        int c = number[k->use[u].chunk];

        if (c >= 0) away[n++] = (ct_chunk_use){ k->use[u].moment, c };
    }
    if (known == NULL) status = CT_FAIL(CT_ERR_NOMEM, "no memory for %d chunks", n_away);
    if ((status == CT_OK) && (n > 0))
        status = ct_chunk_plan_make(away, n, n_away, (places < n_away) ? places : n_away, &plan);
    if (status == CT_OK) p->rank.chunk_loads = plan.n_load + count_stale(away, &plan, known);
    ct_chunk_plan_destroy(&plan);
    free(known);
    return status;
}

static ct_status count_loads(const chunks *k, int places, ct_tier_plan *p)
{
    int *number = calloc((size_t)k->n + 1, sizeof(*number));
    ct_chunk_use *away = calloc((size_t)k->n_use + 1, sizeof(*away));
    ct_status status = CT_OK;

    if ((number == NULL) || (away == NULL)) {
        status = CT_FAIL(CT_ERR_NOMEM, "no memory for %d chunks", k->n);
    } else if (p->on[CT_TIER_DEVICE] < p->n_chunk) {
        number_away(k, (int)p->on[CT_TIER_DEVICE], number);
        status = plan_loads(k, places, number, away, p);
    }
    free(number);
    free(away);
    return status;
}

/* ---- times */

/* Elements that the ranks send each other for each visit, and for each gradient. */
static double gathered(const ct_net *net)
{
    double n = 0;

    for (int t = 0; t < net->n_forward + net->n_backward; t++) {
        const ct_step *s = step_at(net, t);
        int first, end;

        if (!begins_visit(s)) continue;
        ct_net_chunk(net, s->param, &first, &end);
        for (int i = first; i < end; i++) n += (double)net->param[i].count;
    }
    return n + (double)net->grad_count;
}

static double seconds(double bytes, double speed)
{
    return (speed > 0) ? bytes / speed : 0;
}

static void add_times(const ct_tier_request *q, const ct_net *net, ct_tier_plan *p)
{
    const ct_tier_node *m = &q->node;
    double ranks = m->n_rank, chunk = (double)q->chunk_bytes, whole = (double)p->chunk_bytes;
    double away = (double)(p->n_chunk - p->on[CT_TIER_DEVICE]);
    double in_files = (double)p->on[CT_TIER_FILE], loads = (double)p->rank.chunk_loads;
    ct_net_seconds s = ct_net_seconds_of(net, &(ct_net_limits){ m->flop, INFINITY });

    if (m->flop > 0) p->compute_s = s.forward_s + s.backward_s + s.again_s;
    p->up_bytes = loads * chunk;
    p->down_bytes = away * chunk;
    p->between_bytes = sizeof(float) * gathered(net) * (ranks - 1) / ranks;
    /* an update reads and writes a chunk whole and reads its gradient, which was written */
    p->host_bytes = ranks * (away * (2 * whole + 2 * chunk) + loads * chunk);
    /* weights for each visit, and all of it for the update */
    p->read_bytes = ranks * in_files * whole;
    if (away > 0) p->read_bytes += ranks * loads * chunk * in_files / away;
    p->write_bytes = ranks * in_files * whole;
    p->up_s = seconds(p->up_bytes, m->link);
    p->down_s = seconds(p->down_bytes, m->link);
    p->between_s = seconds(p->between_bytes, m->between);
    p->host_s = seconds(p->host_bytes, m->host_bandwidth);
    p->read_s = seconds(p->read_bytes, m->file_read);
    p->write_s = seconds(p->write_bytes, m->file_write);
    p->step_s = fmax(fmax(fmax(p->compute_s, p->between_s), fmax(p->up_s, p->down_s)),
                     fmax(p->host_s, fmax(p->read_s, p->write_s)));
}

static ct_status lay_out(const ct_tier_request *q, const ct_net *net, ct_tier_plan *p)
{
    ct_status status;
    int places = 0;
    chunks k;

    CT_TRY(count_fixed(q, net, p));
    status = open_chunks(q, net, p, &k);
    if (status == CT_OK) status = count_places(&k, &places);
    if (status == CT_OK) {
        lay(q, places, p);
        status = count_loads(&k, places, p);
    }
    if (status == CT_OK) add_times(q, net, p);
    close_chunks(&k);
    return status;
}

ct_status ct_tier_plan_make(const ct_tier_request *q, ct_tier_plan *p)
{
    ct_tier_request own = *q;
    ct_net_window window;
    ct_net *net = NULL;
    ct_status status;

    *p = (ct_tier_plan){ .parameters = 0 };
    CT_TRY(make_net(&own, &window, &net));
    p->batch = net->batch_global;
    status = lay_out(q, net, p);
    ct_net_destroy(net);
    return status;
}

/* ---- what comes out */

typedef struct flow {
    const char *name, *what;
    double bytes, s;
} flow;

enum { N_FLOW = 6 };

static void find_flows(const ct_tier_plan *p, flow *f)
{
    f[0] = (flow){ "up", "host to GPU, weights", p->up_bytes, p->up_s };
    f[1] = (flow){ "down", "GPU to host, gradients", p->down_bytes, p->down_s };
    f[2] = (flow){ "between", "GPU to GPU, each way", p->between_bytes, p->between_s };
    f[3] = (flow){ "host", "the node's memory", p->host_bytes, p->host_s };
    f[4] = (flow){ "read", "from the node's files", p->read_bytes, p->read_s };
    f[5] = (flow){ "write", "to the node's files", p->write_bytes, p->write_s };
}

/* The share that passes while layers compute. */
static double hidden(const ct_tier_plan *p, const flow *f)
{
    return (f->s > p->compute_s) ? p->compute_s / f->s : 1;
}

void ct_tier_plan_json(const ct_tier_request *q, const ct_tier_plan *p, ct_json_writer *w)
{
    flow f[N_FLOW];

    find_flows(p, f);
    ct_json_add_bool(w, "modelled", true);
    ct_json_add_integer(w, "parameters", p->parameters);
    ct_json_add_number(w, "step_s", p->step_s);
    ct_json_add_number(w, "compute_s", p->compute_s);
    ct_json_begin_object(w, "links");
    for (int i = 0; i < N_FLOW; i++) {
        bool known = (f[i].s > 0) || !(f[i].bytes > 0);

        ct_json_begin_object(w, f[i].name);
        ct_json_add_number(w, "bytes", f[i].bytes);
        ct_json_add_number(w, "seconds", known ? f[i].s : (double)NAN);
        ct_json_add_number(w, "hidden", known ? hidden(p, &f[i]) : (double)NAN);
        ct_json_end(w);
    }
    ct_json_end(w);
    ct_json_add_integer(w, "chunk_bytes", p->chunk_bytes);
    ct_json_begin_object(w, "chunks");
    ct_json_add_integer(w, "device", p->on[CT_TIER_DEVICE]);
    ct_json_add_integer(w, "host", p->on[CT_TIER_HOST]);
    ct_json_add_integer(w, "file", p->on[CT_TIER_FILE]);
    ct_json_end(w);
    ct_json_begin_list(w, "ranks");
    for (int r = 0; r < q->node.n_rank; r++) {
        ct_json_begin_object(w, NULL);
        ct_json_add_integer(w, "rank", r);
        ct_json_begin_object(w, "memory");
        ct_memory_tiers_json(&p->rank, w);
        ct_json_end(w);
        ct_json_end(w);
    }
    ct_json_end(w);
}

static void print_flow(const ct_tier_plan *p, const flow *f, FILE *to)
{
    if (f->bytes == 0) return;
    fprintf(to, "  %-24s %10.2f GB", f->what, 1e-9 * f->bytes);
    if (f->s > 0)
        fprintf(to, " %9.3f s, %3.0f %% hidden\n", f->s, 100 * hidden(p, f));
    else
        fprintf(to, "   the machine does not say its speed\n");
}

void ct_tier_plan_print(const ct_tier_request *q, const ct_tier_plan *p, FILE *to)
{
    flow f[N_FLOW];

    find_flows(p, f);
    fprintf(to, "\na GPU and its part of the node, modelled:\n");
    ct_memory_tiers_print(&p->rank, to);
    fprintf(to,
            "model state %g bytes a parameter; %" PRId64 " chunks a rank of %.1f MiB: %" PRId64
            " on the GPU, %" PRId64 " in the node's memory, %" PRId64 " in files; %" PRId64
            " loads of weights a step\n",
            q->state_bytes + q->gradient_bytes, p->n_chunk, ldexp((double)p->chunk_bytes, -20),
            p->on[CT_TIER_DEVICE], p->on[CT_TIER_HOST], p->on[CT_TIER_FILE], p->rank.chunk_loads);
    fprintf(to, "step        %.3f s, modelled: ", p->step_s);
    if (p->compute_s > 0)
        fprintf(to, "operations %.3f s, beside it\n", p->compute_s);
    else
        fprintf(to, "the machine does not say a GPU's operations; beside them\n");
    for (int i = 0; i < N_FLOW; i++) print_flow(p, &f[i], to);
}
