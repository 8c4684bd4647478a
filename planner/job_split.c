#include "planner/job_split.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "framework/proto/prototxt.h"

typedef struct builder {
    const ct_job_net *n;
    ct_job_split *s;
    double *value, *buffer; /* [layer]: parts of them that a rank has */
    double *kept, *other;   /* [block] */
    double *all;            /* [2][block]: bytes of kept and other of the whole net */
} builder;

static ct_job_part *part_of(const ct_job_split *s, int layer, int way)
{
    return &s->layer[(size_t)layer * CT_JOB_N_WAY + (size_t)way];
}

static ct_job_ways *ways_of(const ct_job_split *s, int block, int way)
{
    return &s->block[(size_t)block * CT_JOB_N_WAY + (size_t)way];
}

static ct_job_talk *entry_of(const ct_job_split *s, int block, int from, int to)
{
    return &s->entry[((size_t)block * CT_JOB_N_WAY + (size_t)from) * CT_JOB_N_WAY + (size_t)to];
}

static bool is_named(const ct_job_net *n, int layer)
{
    const ct_net *net = n->net;

    if (net->layer[layer]->ops->by_net) return false;
    for (size_t k = 0; k < n->param->n_layer; k++) {
        if (n->param->layer[k] == net->layer[layer]->param) return true;
    }
    return false;
}

/* ---- which entries a way has */

static bool may(const builder *b, int layer, ct_parallel_split split)
{
    const ct_net *net = b->n->net;
    char why[300];

    return !ct_split_refuses(net->layer[layer]->param, net->pass->instance[layer], split,
                             b->s->tensor, why, sizeof(why));
}

/* How a block that is split goes on, layer by layer. */
typedef struct splitter {
    bool output;   /* the next product is split by its outputs           */
    bool in_parts; /* the value that goes on is in parts, along channels */
    bool splits;   /* something was split                                */
} splitter;

static int entry_of_product(const builder *b, int layer, splitter *s)
{
    s->splits = true;
    if (!may(b, layer, CT_PARALLEL_OUTPUT)) { /* an Embed */
        s->in_parts = false;
        return CT_PARALLEL_INPUT;
    }
    s->in_parts = s->output;
    s->output = !s->output;
    return s->in_parts ? CT_PARALLEL_OUTPUT : CT_PARALLEL_INPUT;
}

/* The entry of a layer of such a block. Where a value is in parts, what may goes on with the parts.
 */
static int split_entry(const builder *b, int layer, splitter *s)
{
    if (may(b, layer, CT_PARALLEL_INPUT)) return entry_of_product(b, layer, s);
    if (s->in_parts && may(b, layer, CT_PARALLEL_HEADS)) {
        s->splits = true;
        return CT_PARALLEL_HEADS;
    }
    if (s->in_parts && may(b, layer, CT_PARALLEL_OUTPUT)) {
        s->splits = true;
        return CT_PARALLEL_OUTPUT;
    }
    s->in_parts = false;
    s->output = true;
    return CT_PARALLEL_REPLICATE;
}

static int entry_for(const builder *b, int layer, int way, splitter *s)
{
    if (way == CT_JOB_BATCH) return CT_PARALLEL_BATCH;
    if (way == CT_JOB_REPLICATE) return CT_PARALLEL_REPLICATE;
    return split_entry(b, layer, s);
}

static void choose_entries(builder *b)
{
    const ct_job_net *n = b->n;

    for (int way = 0; way < CT_JOB_N_WAY; way++) {
        splitter s = { 0 };
        int block = -1;

        for (int i = 0; i < n->net->n_layer; i++) {
            if (n->net->layer[i]->n_bottom == 0) { /* it stands where it likes */
                part_of(b->s, i, way)->entry = !is_named(n, i)         ? -1
                                               : (way == CT_JOB_BATCH) ? CT_PARALLEL_BATCH
                                                                       : CT_PARALLEL_REPLICATE;
                continue;
            }
            if (n->layer[i].block != block) {
                block = n->layer[i].block;
                s = (splitter){ .output = (way == CT_JOB_OUTPUT),
                                .in_parts = (way == CT_JOB_INPUT) };
            }
            part_of(b->s, i, way)->entry = -1;
            if (!is_named(n, i)) continue;
            part_of(b->s, i, way)->entry = (int8_t)entry_for(b, i, way, &s);
            ways_of(b->s, block, way)->may |= s.splits;
        }
    }
    for (int k = 0; k < n->n_block; k++) {
        ways_of(b->s, k, CT_JOB_BATCH)->may = true;
        ways_of(b->s, k, CT_JOB_REPLICATE)->may = true;
    }
}

/* ---- files of ways */

static void write_entry(const ct_net *net, int layer, int split, ct_text *out)
{
    ct_text_add(out, "  layer { name: ");
    ct_prototxt_quote(net->layer[layer]->name, out);
    ct_text_add(out, " split: %s }\n", ct_split_name((ct_parallel_split)split));
}

static void open_file(const ct_job_net *n, int tensor, ct_text *out)
{
    ct_text_add(out, "ranks: %d global_batch: %d\nstage { first: ", tensor, tensor);
    ct_prototxt_quote(n->chain.block[0].first, out);
    ct_text_add(out, " last: ");
    ct_prototxt_quote(n->chain.block[n->n_block - 1].last, out);
    ct_text_add(out, " tensor: %d", tensor);
    for (int r = 0; r < tensor; r++) ct_text_add(out, " rank: %d", r);
    ct_text_add(out, "\n");
}

/* How the net lies on the ranks of a group by the entries. *p_p must live as long as *sharded. */
static ct_status read_file(const ct_job_net *n, ct_text *text, ct_parallel **p_p,
                           ct_sharded_net *sharded)
{
    ct_parallel *p = NULL;
    ct_status status;

    ct_text_add(text, "}\n");
    if (text->failed) return CT_FAIL(CT_ERR_NOMEM, "no memory for a file of splits");
    CT_TRY(ct_parallel_parse("splits", text->text, text->length, &p));
    status = ct_parallel_bind(p, n->param, n->net);
    if (status == CT_OK) status = ct_sharded_net_make(p, n->net, sharded);
    if (status == CT_OK)
        *p_p = p;
    else
        ct_parallel_destroy(p);
    return status;
}

/* Blocks of even and odd numbers go two ways, where they may; else BATCH. */
static int way_in(const builder *b, int block, const int *way)
{
    int w = way[block % 2];

    return ways_of(b->s, block, w)->may ? w : CT_JOB_BATCH;
}

static ct_status shard(const builder *b, const int *way, ct_parallel **p_p, ct_sharded_net *sharded)
{
    ct_text text = { 0 };
    ct_status status;

    open_file(b->n, b->s->tensor, &text);
    for (int i = 0; i < b->n->net->n_layer; i++) {
        int entry = part_of(b->s, i, way_in(b, b->n->layer[i].block, way))->entry;

        if (entry >= 0) write_entry(b->n->net, i, entry, &text);
    }
    status = read_file(b->n, &text, p_p, sharded);
    ct_text_destroy(&text);
    return status;
}

/* ---- what is said among the ranks */

/* Bytes of a sample of bottom `slot` of a layer; 0: they are numbers of labels, not worth it. */
static double sample_bytes(const ct_job_net *n, int layer, int slot)
{
    const ct_blob *blob = n->net->pass->instance[layer]->bottom[slot];

    return (double)ct_tensor_bytes(&blob->data) / (double)n->batch;
}

static void say(ct_job_talk *t, int direction, double bytes, int tensor, int rounds)
{
    t->bytes[direction] += rounds * bytes * (tensor - 1) / tensor;
    t->messages[direction] += rounds * (tensor - 1);
}

/* A value of so many bytes is turned; the reader's gradient of it is in parts where it has some of
 * the outputs. */
static void turn(ct_job_talk *t, ct_sharding from, ct_sharding to, bool in_parts, bool has_diff,
                 double bytes, int tensor)
{
    bool whole_from = (from.kind == CT_SHARDING_WHOLE), sum = (from.kind == CT_SHARDING_PARTIAL);
    bool same = (from.kind == to.kind) && (from.axis == to.axis) && (from.pieces == to.pieces);

    if (to.kind == CT_SHARDING_WHOLE) {
        if (!same) say(t, CT_JOB_FORWARD, bytes, tensor, sum ? 2 : 1);
        if (has_diff && in_parts)
            say(t, CT_JOB_BACKWARD, bytes, tensor, (whole_from || sum) ? 2 : 1);
        return;
    }
    if (same) return;
    if (!whole_from) say(t, CT_JOB_FORWARD, bytes, tensor, 1);
    if (has_diff) say(t, CT_JOB_BACKWARD, bytes, tensor, 1);
}

static const ct_conversion *find_conversion(const ct_sharded_net *s, int layer, int slot)
{
    for (int c = 0; c < s->n_conversion; c++) {
        if ((s->conversion[c].layer == layer) && (s->conversion[c].bottom == slot))
            return &s->conversion[c];
    }
    return NULL;
}

static bool is_source(const ct_net *net, int layer)
{
    return (layer < 0) || (net->layer[layer]->n_bottom == 0);
}

/* Whether a layer that finds this bottom whole makes some of the outputs of all of it. */
static bool makes_parts(const ct_net *net, int layer, ct_parallel_split split)
{
    return (split == CT_PARALLEL_OUTPUT) && (net->layer[layer]->n_weight > 0);
}

/* What is said in front of a layer for one of its bottoms. */
static void hear_slot(const builder *b, const ct_sharded_net *sharded, int layer, int slot,
                      ct_job_talk *t)
{
    const ct_net *net = b->n->net;
    const ct_conversion *c = find_conversion(sharded, layer, slot);
    ct_sharding kind = sharded->top[ct_job_net_maker(b->n, layer, slot)];

    turn(t, kind, (c != NULL) ? c->to : kind, makes_parts(net, layer, sharded->split[layer]),
         net->pass->instance[layer]->bottom[slot]->wants_diff, sample_bytes(b->n, layer, slot),
         b->s->tensor);
}

/* All of it, to whom it belongs: a block's own, or its entry's. Data is read as its reader wants
 * it. */
static void hear(const builder *b, const ct_sharded_net *sharded, int layer, const int *way,
                 bool entries)
{
    const ct_job_net *n = b->n;
    int block = n->layer[layer].block;

    for (int slot = 0; slot < n->net->layer[layer]->n_bottom; slot++) {
        int from = ct_job_net_maker(n, layer, slot);
        int before = (from >= 0) ? n->layer[from].block : block;
        ct_job_talk *t = &ways_of(b->s, block, way_in(b, block, way))->inside;

        if (is_source(n->net, from) || ((before != block) != entries)) continue;
        if (entries) t = entry_of(b->s, block, way_in(b, before, way), way_in(b, block, way));
        hear_slot(b, sharded, layer, slot, t);
    }
}

/* ---- what a rank has of layers and blocks */

static double fraction(ct_sharding_kind kind, int tensor)
{
    return ((kind == CT_SHARDING_WHOLE) || (kind == CT_SHARDING_PARTIAL)) ? 1 : 1.0 / tensor;
}

/* Of the bytes that a layer reads and makes, those that a rank does. */
static double moved_share(const ct_job_net *n, const ct_sharded_net *s, int layer, int tensor)
{
    const ct_net *net = n->net;
    const ct_instance *in = net->pass->instance[layer];
    double all = 0, own = 0;

    for (int k = 0; k < net->layer[layer]->n_bottom; k++) {
        double bytes = (double)ct_tensor_bytes(&in->bottom[k]->data);

        all += bytes;
        own += bytes * fraction(s->bottom[layer][k].kind, tensor);
    }
    for (int k = 0; k < net->layer[layer]->n_top; k++) {
        double bytes = (double)ct_tensor_bytes(&in->top[k]->data);

        all += bytes;
        own += bytes * fraction(s->top[layer].kind, tensor);
    }
    return (all > 0) ? own / all : 1;
}

static bool is_cut(int split)
{
    return (split == CT_PARALLEL_OUTPUT) || (split == CT_PARALLEL_INPUT) ||
           (split == CT_PARALLEL_HEADS);
}

static void note_layer(builder *b, const ct_sharded_net *s, int layer, int way)
{
    ct_job_part *p = part_of(b->s, layer, way);
    int tensor = b->s->tensor;

    p->split = (int8_t)s->split[layer];
    p->share = (float)moved_share(b->n, s, layer, tensor);
    b->value[layer] = fraction(s->top[layer].kind, tensor);
    if (b->n->net->layer[layer]->n_bottom == 0) b->value[layer] = 1.0 / tensor;
    b->buffer[layer] = (p->split == CT_PARALLEL_REPLICATE) ? 1 : 1.0 / tensor;
}

static void note_weights(const builder *b, int way)
{
    const ct_net *net = b->n->net;

    for (int k = 0; k < net->n_param; k++) {
        int owner = -1;
        double bytes = (double)net->param[k].count * sizeof(float), part = 1;
        ct_job_ways *w;

        for (int i = 0; (i < net->n_layer) && (owner < 0); i++) {
            for (int x = 0; x < net->layer[i]->n_weight; x++)
                if (ct_net_param_of(net, i, x) == k) owner = i;
        }
        if ((owner < 0) || (part_of(b->s, owner, way)->split == CT_JOB_ABSENT)) continue;
        w = ways_of(b->s, b->n->layer[owner].block, way);
        if (is_cut(part_of(b->s, owner, way)->split)) part = 1.0 / b->s->tensor;
        w->weights += part * bytes;
        if (!net->param[k].learns) continue;
        if (part_of(b->s, owner, way)->split == CT_PARALLEL_BATCH) {
            w->summed += bytes / b->s->tensor;
            w->summed_all += (b->s->tensor > 1) ? bytes : 0;
        } else {
            w->summed += part * bytes;
        }
    }
}

/* Weights as a part of the block's. */
static void share_weights(const builder *b, int way)
{
    const ct_net *net = b->n->net;

    for (int k = 0; k < b->n->n_block; k++) {
        ct_job_ways *w = ways_of(b->s, k, way);
        double all = 0;

        for (int i = 0; i < net->n_layer; i++) {
            if (b->n->layer[i].block != k) continue;
            for (int x = 0; x < net->layer[i]->n_weight; x++) {
                const ct_param *p = &net->param[ct_net_param_of(net, i, x)];

                if (strcmp(p->layer, net->layer[i]->name) == 0)
                    all += (double)p->count * sizeof(float);
            }
        }
        w->weights = (all > 0) ? fmin(1, w->weights / all) : 1;
    }
}

static ct_status note_way(builder *b, const ct_sharded_net *s, int way)
{
    const ct_job_net *n = b->n;
    double part = 1.0 / b->s->tensor;

    for (int i = 0; i < n->net->n_layer; i++) note_layer(b, s, i, way);
    CT_TRY(ct_net_chain_weigh(&n->chain, n->param, n->net, b->value, b->buffer, b->kept, b->other));
    for (int k = 0; k < n->n_block; k++) {
        ct_job_ways *w = ways_of(b->s, k, way);
        double *all = b->all + k;

        w->kept = (all[0] > 0) ? b->kept[k] / all[0] : part;
        w->other = (all[n->n_block] > 0) ? b->other[k] / all[n->n_block] : part;
        w->input = ((way == CT_JOB_BATCH) || (way == CT_JOB_INPUT)) ? part : 1;
    }
    note_weights(b, way);
    share_weights(b, way);
    return CT_OK;
}

/* ---- all files */

static ct_status look_at_way(builder *b, int way)
{
    int both[2] = { way, way };
    ct_parallel *p = NULL;
    ct_sharded_net s;
    ct_status status;

    CT_TRY(shard(b, both, &p, &s));
    status = note_way(b, &s, way);
    for (int i = 0; i < b->n->net->n_layer; i++) {
        int block = b->n->layer[i].block;

        if (!ways_of(b->s, block, way)->may) continue;
        hear(b, &s, i, both, false);
        hear(b, &s, i, both, true);
    }
    /* a stage gives its value whole, or by samples */
    for (int k = 0; k + 1 < b->n->n_block; k++) {
        const ct_job_block *block = &b->n->block[k];
        int last = 0;

        for (int i = 0; i < b->n->net->n_layer; i++) {
            if (b->n->layer[i].block == k) last = i;
        }
        if ((s.top[last].kind == CT_SHARDING_BATCH) || (s.top[last].kind == CT_SHARDING_WHOLE))
            continue;
        turn(&b->s->leave[(size_t)k * CT_JOB_N_WAY + (size_t)way], s.top[last],
             (ct_sharding){ .kind = CT_SHARDING_WHOLE }, false, true, block->value, b->s->tensor);
    }
    ct_sharded_net_destroy(&s);
    ct_parallel_destroy(p);
    return status;
}

static ct_status look_at_pair(builder *b, int even, int odd)
{
    int way[2] = { even, odd };
    ct_parallel *p = NULL;
    ct_sharded_net s;

    CT_TRY(shard(b, way, &p, &s));
    for (int i = 0; i < b->n->net->n_layer; i++) {
        int block = b->n->layer[i].block;

        if ((block == 0) || !ways_of(b->s, block, way[block % 2])->may ||
            !ways_of(b->s, block - 1, way[(block - 1) % 2])->may)
            continue;
        hear(b, &s, i, way, true);
    }
    ct_sharded_net_destroy(&s);
    ct_parallel_destroy(p);
    return CT_OK;
}

static ct_status alone(builder *b)
{
    for (int k = 0; k < b->n->n_block; k++) {
        ct_job_ways *w = ways_of(b->s, k, CT_JOB_BATCH);

        *w = (ct_job_ways){ .may = true, .kept = 1, .input = 1, .other = 1 };
    }
    for (int i = 0; i < b->n->net->n_layer; i++)
        *part_of(b->s, i, CT_JOB_BATCH) = (ct_job_part){ -1, CT_PARALLEL_BATCH, 1 };
    note_weights(b, CT_JOB_BATCH);
    for (int k = 0; k < b->n->n_block; k++) ways_of(b->s, k, CT_JOB_BATCH)->weights = 1;
    return CT_OK;
}

static ct_status build(builder *b)
{
    const ct_job_net *n = b->n;
    bool any = false;

    if (b->s->tensor == 1) return alone(b);
    for (int i = 0; i < n->net->n_layer; i++) b->value[i] = b->buffer[i] = 1;
    CT_TRY(ct_net_chain_weigh(&n->chain, n->param, n->net, b->value, b->buffer, b->all,
                              b->all + n->n_block));
    choose_entries(b);
    for (int k = 0; k < n->n_block; k++)
        any |= ways_of(b->s, k, CT_JOB_OUTPUT)->may || ways_of(b->s, k, CT_JOB_INPUT)->may;
    if (!any) return CT_OK;
    for (int w = 0; w < CT_JOB_N_WAY; w++) CT_TRY(look_at_way(b, w));
    for (int x = 0; x < CT_JOB_N_WAY; x++) {
        for (int y = 0; y < CT_JOB_N_WAY; y++) {
            if (x != y) CT_TRY(look_at_pair(b, x, y));
        }
    }
    return CT_OK;
}

static ct_status open_split(const ct_job_net *n, int tensor, ct_job_split *s)
{
    size_t n_block = (size_t)n->n_block, n_layer = (size_t)n->net->n_layer + 1;

    *s = (ct_job_split){ .tensor = tensor, .n_block = n->n_block, .n_layer = n->net->n_layer };
    s->block = calloc(n_block * CT_JOB_N_WAY, sizeof(*s->block));
    s->layer = calloc(n_layer * CT_JOB_N_WAY, sizeof(*s->layer));
    s->entry = calloc(n_block * CT_JOB_N_WAY * CT_JOB_N_WAY, sizeof(*s->entry));
    s->leave = calloc(n_block * CT_JOB_N_WAY, sizeof(*s->leave));
    if ((s->block != NULL) && (s->layer != NULL) && (s->entry != NULL) && (s->leave != NULL))
        return CT_OK;
    return CT_FAIL(CT_ERR_NOMEM, "no memory for %zu layers", n_layer);
}

ct_status ct_job_split_make(const ct_job_net *n, int tensor, ct_job_split *s)
{
    size_t n_block = (size_t)n->n_block, n_layer = (size_t)n->net->n_layer + 1;
    ct_job_split made;
    builder b = { .n = n, .s = &made };
    double *room = calloc(2 * n_layer + 4 * n_block, sizeof(*room));
    ct_status status = open_split(n, tensor, &made);

    if ((status == CT_OK) && (room == NULL))
        status = CT_FAIL(CT_ERR_NOMEM, "no memory for %zu layers", n_layer);
    if (status == CT_OK) {
        b.value = room;
        b.buffer = b.value + n_layer;
        b.kept = b.buffer + n_layer;
        b.other = b.kept + n_block;
        b.all = b.other + n_block;
        status = build(&b);
    }
    free(room);
    if (status == CT_OK)
        *s = made;
    else
        ct_job_split_destroy(&made);
    return status;
}

void ct_job_split_destroy(ct_job_split *s)
{
    free(s->block);
    free(s->layer);
    free(s->entry);
    free(s->leave);
    *s = (ct_job_split){ 0 };
}

bool ct_job_split_splits(const ct_job_split *s)
{
    for (int k = 0; k < s->n_block; k++) {
        if (ways_of(s, k, CT_JOB_OUTPUT)->may || ways_of(s, k, CT_JOB_INPUT)->may) return true;
    }
    return false;
}

/* ---- a stage of a file */

/* Values of other stages come as they are read. */
static void hear_in_file(const builder *b, const ct_sharded_net *sharded, int layer)
{
    const ct_job_net *n = b->n;
    int block = n->layer[layer].block;

    for (int slot = 0; slot < n->net->layer[layer]->n_bottom; slot++) {
        int from = ct_job_net_maker(n, layer, slot);

        if (is_source(n->net, from) || (sharded->stage[from] != sharded->stage[layer])) continue;
        hear_slot(b, sharded, layer, slot,
                  (n->layer[from].block == block)
                      ? &ways_of(b->s, block, CT_JOB_FILE_WAY)->inside
                      : entry_of(b->s, block, CT_JOB_FILE_WAY, CT_JOB_FILE_WAY));
    }
}

/* A value in parts is put together before it goes to another stage. */
static void leave_file(const builder *b, const ct_sharded_net *sharded, int stage)
{
    const ct_job_net *n = b->n;
    int last = 0, before = -1;

    for (int i = 0; i < n->net->n_layer; i++) {
        if ((sharded->stage[i] == stage) && (n->layer[i].block > last)) last = n->layer[i].block;
    }
    for (int i = 0; i < n->net->n_layer; i++) {
        for (int slot = 0; slot < n->net->layer[i]->n_bottom; slot++) {
            int from = ct_job_net_maker(n, i, slot);

            if (is_source(n->net, from) || (sharded->stage[from] != stage) ||
                (sharded->stage[i] == stage) || (from == before))
                continue;
            before = from; /* its readers stand together, but for skips */
            if ((sharded->top[from].kind == CT_SHARDING_BATCH) ||
                (sharded->top[from].kind == CT_SHARDING_WHOLE))
                continue;
            turn(&b->s->leave[(size_t)last * CT_JOB_N_WAY + CT_JOB_FILE_WAY], sharded->top[from],
                 (ct_sharding){ .kind = CT_SHARDING_WHOLE }, false, true, sample_bytes(n, i, slot),
                 b->s->tensor);
        }
    }
}

/* Whether a stage hears a value already when it comes to this bottom. */
static bool is_heard(const ct_job_net *n, const ct_sharded_net *sharded, int maker, int layer,
                     int slot)
{
    for (int i = maker + 1; i <= layer; i++) {
        if (sharded->stage[i] != sharded->stage[layer]) continue;
        for (int k = 0; k < ((i < layer) ? n->net->layer[i]->n_bottom : slot); k++) {
            if (ct_job_net_maker(n, i, k) == maker) return true;
        }
    }
    return false;
}

ct_status ct_job_split_of_file(const ct_job_net *n, const ct_parallel *file,
                               const ct_sharded_net *sharded, int stage, ct_job_split *s)
{
    ct_job_split made;
    builder b = { .n = n, .s = &made };
    ct_status status = open_split(n, file->stage[stage].tensor, &made);

    if (status != CT_OK) {
        ct_job_split_destroy(&made);
        return status;
    }
    for (int k = 0; k < n->n_block; k++) ways_of(&made, k, CT_JOB_FILE_WAY)->may = true;
    for (int i = 0; i < n->net->n_layer; i++) {
        ct_job_part *p = part_of(&made, i, CT_JOB_FILE_WAY);

        *p = (ct_job_part){ -1, CT_JOB_ABSENT, 1 };
        if (sharded->stage[i] != stage) continue;
        p->split = (int8_t)sharded->split[i];
        p->share = (float)moved_share(n, sharded, i, made.tensor);
        hear_in_file(&b, sharded, i);
    }
    leave_file(&b, sharded, stage);
    note_weights(&b, CT_JOB_FILE_WAY);
    share_weights(&b, CT_JOB_FILE_WAY);
    *s = made;
    return CT_OK;
}

void ct_job_split_heard(const ct_job_net *n, const ct_parallel *file, const ct_sharded_net *sharded,
                        double *bytes)
{
    size_t n_stage = (size_t)file->n_stage;

    memset(bytes, 0, n_stage * n_stage * sizeof(*bytes));
    for (int i = 0; i < n->net->n_layer; i++) {
        int to = sharded->stage[i], tensor = file->stage[to].tensor;

        for (int slot = 0; slot < n->net->layer[i]->n_bottom; slot++) {
            int from = ct_job_net_maker(n, i, slot);
            double *of;

            if (is_source(n->net, from) || (sharded->stage[from] == to)) continue;
            if (is_heard(n, sharded, from, i, slot)) continue; /* each value crosses once */
            of = &bytes[(size_t)sharded->stage[from] * n_stage + (size_t)to];
            *of += sample_bytes(n, i, slot) * fraction(sharded->bottom[i][slot].kind, tensor);
        }
    }
}

/* ---- seconds */

double ct_job_talk_seconds(const ct_job_talk *t, int direction, ct_job_link link, double samples)
{
    return t->bytes[direction] * samples * link.byte_s + t->messages[direction] * link.latency_s;
}

/* What is moved beside the activations is weights, of which a rank may have a part. */
static double layer_seconds(const ct_job_net *n, int layer, const ct_job_part *p, int direction,
                            const ct_job_class *kind, int tensor, double samples)
{
    const ct_job_layer *l = &n->layer[layer];
    double part = 1.0 / tensor, own = samples, flop, bytes;
    bool cut = is_cut(p->split) || (p->split == CT_PARALLEL_SEQUENCE);

    if (p->split == CT_JOB_ABSENT) return 0;
    if (p->split == CT_PARALLEL_BATCH) own = ceil(samples / tensor);
    if ((n->measured != NULL) && (kind->measured >= 0)) {
        size_t row = (size_t)kind->measured * (size_t)n->net->n_layer + (size_t)layer;

        return ct_job_line_at(n->measured[row * CT_JOB_N_DIRECTION + (size_t)direction], own) *
               (cut ? part : 1) / kind->measured_speed;
    }
    flop = ct_job_line_at(l->flop[direction], own) * (cut ? part : 1);
    bytes = l->bytes[direction].at0 * (is_cut(p->split) ? part : 1);
    bytes += l->bytes[direction].slope *
             ((p->split == CT_PARALLEL_BATCH) ? own : samples * (double)p->share);
    return fmax(flop / kind->flop, bytes / kind->bytes);
}

void ct_job_split_price(const ct_job_net *n, const ct_job_split *s, int direction,
                        const ct_job_class *kind, ct_job_link link, double samples, double *seconds)
{
    for (int k = 0; k < n->n_block * CT_JOB_N_WAY; k++)
        seconds[k] = s->block[k].may
                         ? ct_job_talk_seconds(&s->block[k].inside, direction, link, samples)
                         : INFINITY;
    for (int k = 0; (k < n->n_block) && (samples < s->tensor); k++)
        seconds[k * CT_JOB_N_WAY + CT_JOB_BATCH] = INFINITY; /* a rank would have none */
    for (int i = 0; i < n->net->n_layer; i++) {
        for (int w = 0; w < CT_JOB_N_WAY; w++)
            seconds[n->layer[i].block * CT_JOB_N_WAY + w] +=
                layer_seconds(n, i, part_of(s, i, w), direction, kind, s->tensor, samples);
    }
}

/* ---- entries of a file */

static void write_some(const ct_job_net *n, const ct_job_split *s, int first, int end,
                       const int *way, const bool *needed, ct_text *out)
{
    for (int i = 0; i < n->net->n_layer; i++) {
        int block = n->layer[i].block;
        int entry;

        if ((block < first) || (block >= end)) continue;
        entry = part_of(s, i, way[block])->entry;
        if ((entry >= 0) && needed[i]) write_entry(n->net, i, entry, out);
    }
}

/* Entries that a file without them would not do as it should; they become needed. */
static ct_status add_needed(const ct_job_net *n, const ct_job_split *s, int first, int end,
                            const int *way, bool *needed, bool *more_p)
{
    ct_text text = { 0 };
    ct_parallel *p = NULL;
    ct_sharded_net sharded;
    ct_status status;

    open_file(n, s->tensor, &text);
    write_some(n, s, 0, end, way, needed, &text); /* what goes before may be followed */
    status = read_file(n, &text, &p, &sharded);
    ct_text_destroy(&text);
    CT_TRY(status);
    *more_p = false;
    for (int i = 0, last = -1; i < n->net->n_layer; i++) {
        int block = n->layer[i].block, entry;

        if ((block < first) || (block >= end) || (block == last)) continue;
        entry = part_of(s, i, way[block])->entry;
        if ((entry < 0) || needed[i] || ((int)sharded.split[i] == entry)) continue;
        needed[i] = *more_p = true;
        last = block; /* those behind it in the block may follow it */
    }
    ct_sharded_net_destroy(&sharded);
    ct_parallel_destroy(p);
    return CT_OK;
}

ct_status ct_job_split_write(const ct_job_net *n, const ct_job_split *s, int first, int end,
                             const int *way, ct_text *out)
{
    bool *needed = calloc((size_t)n->net->n_layer + 1, sizeof(*needed)), more = true;
    ct_status status = CT_OK;

    if (needed == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d layers", n->net->n_layer);
    for (int i = 0; i < n->net->n_layer; i++) {
        int block = n->layer[i].block;
        int entry;

        if (block >= end) continue;
        entry = part_of(s, i, way[block])->entry;
        needed[i] =
            (block < first) || ((entry > CT_PARALLEL_BATCH) && (entry != CT_PARALLEL_REPLICATE));
    }
    while (more && (status == CT_OK) && (s->tensor > 1))
        status = add_needed(n, s, first, end, way, needed, &more);
    if (status == CT_OK) write_some(n, s, first, end, way, needed, out);
    free(needed);
    return status;
}
