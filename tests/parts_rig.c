#include "tests/parts_rig.h"

#include <stdlib.h>
#include <string.h>

#include "framework/snapshot/snapshot_impl.h"
#include "tests/parsed_net.h"

/* Of the largest product: as large as a storage's chunk or less. */
typedef struct sizes {
    int in, out;
} sizes;

static sizes sizes_of(bool large)
{
    return large ? (sizes){ 1021, 1030 } : (sizes){ 61, 70 };
}

enum { RIG_MARK = 5 };

int rig_ranks(rig_plan plan)
{
    static const int n[N_RIG] = { 1, 1, 2, 2, 3, 4, 4, 2, 2 };

    return n[plan];
}

/* ---- nets */

typedef enum {
    OUTPUT = CT__PARALLEL_LAYER_PARAMETER__SPLIT__OUTPUT,
    INPUT = CT__PARALLEL_LAYER_PARAMETER__SPLIT__INPUT,
    REPLICATE = CT__PARALLEL_LAYER_PARAMETER__SPLIT__REPLICATE
} split_kind;

/* What a rank has: the layers, and in how many parts which is this one's. */
typedef struct share {
    bool first, second; /* halves of the net */
    int of_first, of_b; /* parts of the products `fa` and `fd`; of `fb` */
    bool by_input;      /* `fb` is cut by what it reads */
    int index;
} share;

static share share_of(rig_plan plan, int rank)
{
    switch (plan) {
    case RIG_OUTPUT:
    case RIG_REPLICAS:
        return (share){ true, true, 2, 2, true, rank % 2 };
    case RIG_STAGES: /* the last ranks first */
        return (share){ rank == 1, rank == 0, 1, 1, false, 0 };
    case RIG_INPUT:
        return (share){ true, true, 1, 3, true, rank };
    case RIG_BOTH:
        if (rank >= 2) return (share){ false, true, 1, 1, false, 0 };
        return (share){ true, false, 2, 2, false, rank };
    default:
        return (share){ true, true, 1, 1, false, 0 };
    }
}

static int64_t width(int64_t n, int index, int count)
{
    return ct_range_of(n, index, count).count;
}

static void add_input(ct_text *t, const char *name, int64_t n)
{
    ct_text_add(t,
                "layer { name: '%s' type: 'Input' top: '%s' input_param { shape { dim: 4 dim: %d } "
                "} } ",
                name, name, (int)n);
}

static void add_loss(ct_text *t, const char *of, int64_t n)
{
    char label[16];

    snprintf(label, sizeof(label), "%s_t", of);
    add_input(t, label, n);
    ct_text_add(t,
                "layer { name: '%s_l' type: 'EuclideanLoss' bottom: '%s' bottom: '%s' top: '%s_l' "
                "} ",
                of, of, label, of);
}

/* param: of its blobs. */
static void add_product(ct_text *t, const char *name, const char *bottom, int n, const char *param)
{
    ct_text_add(t,
                "layer { name: '%s' type: 'InnerProduct' bottom: '%s' top: '%s' %s "
                "inner_product_param { num_output: %d weight_filler { type: 'constant' value: 1 } "
                "} } ",
                name, bottom, name, param, n);
}

static void add_first(ct_text *t, const share *s, sizes n)
{
    int64_t wide = s->by_input ? width(n.in, s->index, s->of_b) : n.in;

    add_product(t, "in/a", "x", n.in, "param { name: 't' } param { lr_mult: 2 }");
    add_loss(t, "in/a", width(n.in, s->index, s->of_first));
    add_input(t, "b", wide);
    add_product(t, "fb", "b", n.out, "");
    add_loss(t, "fb", s->by_input ? n.out : width(n.out, s->index, s->of_b));
}

static void add_second(ct_text *t, const share *s, sizes n)
{
    add_product(t, "fd", "x", n.in, "param { name: 't' }");
    add_loss(t, "fd", width(n.in, s->index, s->of_first));
    add_input(t, "c", 9);
    add_product(t, "still", "c", 5, "param { lr_mult: 0 } param { lr_mult: 0 }");
    ct_text_add(t, "layer { name: 'bn' type: 'BatchNorm' bottom: 'still' top: 'bn' } ");
    add_product(t, "fe", "bn", 3, "");
    add_loss(t, "fe", 3);
}

/* Layer `name` of the message, where there is such a one, becomes part `index` of `count`. Like all
 * of the message this is freed with it. */
static void cut_layer(Ct__NetParameter *param, const char *name, split_kind split, int piece,
                      int index, int count)
{
    for (size_t i = 0; (count > 1) && (i < param->n_layer); i++) {
        Ct__LayerPart *part;

        if (strcmp(param->layer[i]->name, name) != 0) continue;
        part = calloc(1, sizeof(*part));
        ct__layer_part__init(part);
        part->split = (Ct__ParallelLayerParameter__Split)split;
        part->index = index;
        part->count = count;
        part->n_piece = 1;
        part->piece = calloc(1, sizeof(*part->piece));
        part->piece[0] = piece;
        param->layer[i]->part = part;
    }
}

static ct_status make_net(const share *s, sizes n, bool no_data, Ct__NetParameter **param_p,
                          ct_net **net_p)
{
    ct_net_options o = {
        .phase = CT_TRAIN, .env = { .n_rank = 1 }, .no_data = no_data, .unshared = true
    };
    ct_text t = { 0 };

    ct_text_add(&t, "name: 'rig' ");
    add_input(&t, "x", 6);
    if (s->first) add_first(&t, s, n);
    if (s->second) add_second(&t, s, n);
    if (t.failed) return CT_ERR_NOMEM;
    *param_p = (Ct__NetParameter *)test_parsed(&ct__net_parameter__descriptor, t.text);
    ct_text_destroy(&t);
    cut_layer(*param_p, "in/a", OUTPUT, n.in, s->index, s->of_first);
    cut_layer(*param_p, "fd", OUTPUT, n.in, s->index, s->of_first);
    cut_layer(*param_p, "fb", s->by_input ? INPUT : OUTPUT, s->by_input ? n.in : n.out, s->index,
              s->of_b);
    return ct_net_create(*param_p, &o, net_p);
}

/* ---- ranks */

/* ---- what codecs keep */

static bool get_state(void *ctx, int param, int k, ct_sync_state *out)
{
    rig_rank *r = ctx;
    const ct_param *p = &r->net->param[param];

    if ((r->residual == NULL) || !ct_param_has_history(r->net, p) || (k > (int)r->absorbs))
        return false;
    *out = (ct_sync_state){ .name = CT_SYNC_RESIDUAL,
                            .param = param,
                            .data = r->residual + p->offset,
                            .count = p->count,
                            .of_update = r->absorbs };
    if (k == 1)
        *out = (ct_sync_state){
            .name = CT_SYNC_RATE, .param = param, .data = &r->rate, .count = 1, .replicated = true
        };
    return true;
}

static ct_status keep_residuals(rig_rank *r, const rig_task *t)
{
    r->absorbs = t->absorbs;
    r->rate = RIG_RATE;
    r->x.states = (ct_sync_states){ .ctx = r, .get = get_state };
    if (!t->keeps) return CT_OK;
    r->residual = calloc((size_t)r->net->grad_count + 1, sizeof(float));
    if (r->residual == NULL) return CT_ERR_NOMEM;
    for (int64_t i = 0; i < r->net->grad_count; i++) r->residual[i] = -1;
    return CT_OK;
}

/* ---- opening */

static ct_status open_nets(rig_plan plan, bool large, rig_rank *r)
{
    share whole = share_of(RIG_WHOLE, 0), mine = share_of(plan, r->job.rank);
    sizes n = sizes_of(large);

    CT_TRY(make_net(&mine, n, false, &r->param, &r->net));
    r->whole = r->net;
    if ((plan == RIG_WHOLE) || (plan == RIG_DATA)) return CT_OK;
    CT_TRY(make_net(&whole, n, true, &r->whole_param, &r->whole));
    for (size_t i = 0; (plan == RIG_COPIES) && (i < r->param->n_layer); i++)
        cut_layer(r->param, r->param->layer[i]->name, REPLICATE, 1, r->job.rank, 2);
    return ct_parts_create(r->whole, r->net, &r->job, &r->parts);
}

ct_status rig_open(rig_plan plan, bool large, const ct_group *g, rig_rank *r)
{
    static const char *const name[RIG_HISTORY] = { "momentum", "second", CT_HISTORY_AVERAGE };

    memset(r, 0, sizeof(*r));
    r->plan = plan;
    r->job = *g;
    CT_TRY(open_nets(plan, large, r));
    ct_exchange_single(r->net->n_param, &r->x);
    r->x.job = r->job;
    if (plan == RIG_DATA) r->x.data = r->job;
    for (int h = 0; h < RIG_HISTORY; h++) {
        r->history[h] = calloc((size_t)r->net->grad_count + 1, sizeof(float));
        if (r->history[h] == NULL) return CT_ERR_NOMEM;
        r->stored[h] = ct_storage_at(ct_device_cpu(), r->history[h], r->net->grad_count);
    }
    r->state = (ct_snapshot_state){ .parts = r->parts,
                                    .iteration = 7,
                                    .n_rank = r->job.size,
                                    .global_batch = 4,
                                    .n_history = RIG_HISTORY,
                                    .history = r->stored,
                                    .history_name = name,
                                    .average = &r->stored[RIG_HISTORY - 1],
                                    .n_state = 2,
                                    .solver_type = "Rig",
                                    .least_loss = CT_NO_LEAST_LOSS,
                                    .provenance = "{\"who\":\"rig\"}" };
    return CT_OK;
}

void rig_close(rig_rank *r)
{
    for (int h = 0; h < RIG_HISTORY; h++) free(r->history[h]);
    free(r->residual);
    ct_parts_destroy(r->parts);
    ct_shard_destroy(&r->shard);
    ct_net_destroy(r->net);
    if (r->whole != r->net) ct_net_destroy(r->whole);
    if (r->param != NULL) ct__net_parameter__free_unpacked(r->param, NULL);
    if (r->whole_param != NULL) ct__net_parameter__free_unpacked(r->whole_param, NULL);
}

/* ---- values */

/* Of element e of parameter k of the whole net; which: weights are 0, states 1 … */
static float value(int which, int k, int64_t e, int mark)
{
    return (float)((e * 7 + k * 1013 + which * 331 + mark * 17) % 65521) - 30000.0f;
}

/* Whether this rank keeps states of that element of its arena. */
static bool keeps_states(const rig_rank *r, int64_t at)
{
    for (int k = 0; k < r->shard.n; k++)
        if ((at >= r->shard.piece[k].from) &&
            (at < r->shard.piece[k].from + r->shard.piece[k].count))
            return true;
    return r->shard.n == 0;
}

/* Calls visit with each element of this rank's arenas and what rig_fill() makes of it. */
static int64_t each_value(const rig_rank *r, int mark, bool states,
                          int64_t (*visit)(float *have, float want))
{
    int64_t n = 0;

    for (int i = 0; i < r->whole->n_param; i++) {
        int k = ct_net_find_param(r->net, r->whole->param[i].key);
        const ct_param *p = (k >= 0) ? &r->net->param[k] : NULL;
        ct_cut all = { .whole = r->whole->param[i].blob.data.shape };
        const ct_cut *cut = ((p != NULL) && (p->cut->n_range > 0)) ? p->cut : &all;
        bool learns = (p != NULL) && ct_param_has_history(r->net, p);

        for (int64_t j = 0; (p != NULL) && (j < ct_cut_runs(cut)); j++) {
            ct_cut_run run = ct_cut_run_at(cut, j);

            for (int64_t e = 0; e < run.count; e++) {
                int64_t at = p->offset + run.part + e;

                n += visit(&r->net->weight_arena[at], value(0, i, run.whole + e, mark));
                for (int h = 0; states && learns && keeps_states(r, at) && (h < RIG_HISTORY); h++)
                    n += visit(&r->history[h][at], value(1 + h, i, run.whole + e, mark));
            }
        }
    }
    return n;
}

static int64_t set(float *have, float want)
{
    *have = want;
    return 0;
}

static int64_t compare(float *have, float want)
{
    return (*have != want) ? 1 : 0;
}

static int64_t clear(float *have, float want)
{
    (void)want;
    *have = 0;
    return 0;
}

void rig_fill(rig_rank *r, int mark)
{
    (void)each_value(r, mark, true, set);
}

int64_t rig_differing(const rig_rank *r, int mark, bool states)
{
    return each_value(r, mark, states, compare);
}

void rig_clear(rig_rank *r)
{
    (void)each_value(r, 0, true, clear);
}

void rig_each_learned(const rig_rank *r, void (*visit)(void *ctx, int i, int64_t e, int64_t at),
                      void *ctx)
{
    for (int i = 0; i < r->whole->n_param; i++) {
        int k = ct_net_find_param(r->net, r->whole->param[i].key);
        const ct_param *p = (k >= 0) ? &r->net->param[k] : NULL;
        ct_cut all = { .whole = r->whole->param[i].blob.data.shape };
        const ct_cut *cut = ((p != NULL) && (p->cut->n_range > 0)) ? p->cut : &all;

        if ((p == NULL) || !ct_param_has_history(r->net, p)) continue;
        for (int64_t j = 0; j < ct_cut_runs(cut); j++) {
            ct_cut_run run = ct_cut_run_at(cut, j);

            for (int64_t e = 0; e < run.count; e++)
                visit(ctx, i, run.whole + e, p->offset + run.part + e);
        }
    }
}

/* ---- tasks */

typedef struct loading {
    const char *file;
    const ct_parts *parts;
} loading;

static ct_status load_parts(void *ctx, ct_storage *whole)
{
    const loading *l = ctx;

    return ct_weights_load_parts(l->file, l->parts, whole);
}

static ct_status load_weights(rig_rank *r, const char *file)
{
    ct_storage weights;

    if (r->parts == NULL) return ct_weights_load(file, r->net);
    weights = ct_parts_weights(r->parts);
    return ct_parts_run(r->parts, &(ct_storage *){ &weights }, 1, load_parts,
                        &(loading){ file, r->parts });
}

static ct_status checksum(rig_rank *r, uint64_t *sum_p)
{
    if (r->parts != NULL) return ct_parts_checksum(r->parts, sum_p);
    *sum_p = ct_net_checksum(r->net, true);
    return CT_OK;
}

/* Ranks with the same part have every other of five pieces, which end anywhere. */
static ct_status share_out(rig_rank *r)
{
    enum { N_PIECE = 5 };
    int n = (r->plan == RIG_REPLICAS) ? 2 : 1;

    for (int k = 0; k < N_PIECE; k++) {
        ct_range piece = ct_range_of(r->net->grad_count, k, N_PIECE);

        if (k % n == r->job.rank / 2 % n) CT_TRY(ct_shard_add(&r->shard, piece.first, piece.count));
    }
    for (int h = 0; h < RIG_HISTORY; h++)
        for (int64_t i = 0; i < r->net->grad_count; i++) r->history[h][i] = 0.5f;
    return (r->parts != NULL) ? ct_parts_share_out(r->parts, &r->shard, NULL) : CT_OK;
}

static ct_status work(rig_rank *r, rig_task *t)
{
    uint64_t sum = 0;
    ct_status status;

    if (t->shards) CT_TRY(share_out(r));
    r->state.n_rank = 1;
    r->state.binary = (t->work == RIG_WRITE_BINARY);
    rig_fill(r, RIG_MARK);
    CT_TRY(keep_residuals(r, t));
    if (t->begin != NULL) r->state.n_rank = r->job.size;
    if (t->begin != NULL) t->begin(t->ctx, r);
    switch (t->work) {
    case RIG_WRITE:
    case RIG_WRITE_BINARY:
        status = ct_snapshot_write(t->path, r->net, &r->state, &r->x, 0, NULL);
        ct_residual_drain_close(r->net, &r->state.late);
        return status;
    case RIG_READ:
        rig_clear(r);
        CT_TRY(ct_snapshot_read(t->path, r->net, &r->state, &r->x));
        if (t->end != NULL) t->end(t->ctx, r);
        r->net->options.dev->mem_release(r->state.owed);
        ct_residual_drain_close(r->net, &r->state.late);
        break;
    case RIG_LOAD:
        rig_clear(r);
        CT_TRY(load_weights(r, t->path));
        break;
    case RIG_CHECKSUM:
        CT_TRY(checksum(r, &sum));
        if (r->job.rank == r->job.size - 1) t->sum = sum;
        break;
    }
    return (rig_differing(r, RIG_MARK, t->work == RIG_READ) == 0)
               ? CT_OK
               : CT_FAIL(CT_ERR_DATA, "other values");
}

ct_status rig_run(const ct_group *g, rig_task *t)
{
    rig_rank r;
    ct_status status = rig_open(t->plan, t->large, g, &r);

    if (status == CT_OK) status = work(&r, t);
    rig_close(&r);
    return status;
}
