#include "planner/job_file.h"

#include <math.h>
#include <stdlib.h>

typedef struct reader {
    const ct_job_net *n;
    const ct_parallel *file;
    ct_job_layout layout;
    ct_sharded_net sharded;
    ct_job_split *split;           /* [n_stage] */
    ct_job_prices *price;          /* [n_stage] */
    const ct_job_prices **price_p; /* the same */
    double *heard;                 /* [n_stage][n_stage] */
} reader;

static void close_reader(reader *r)
{
    for (int i = 0; i < r->file->n_stage; i++) {
        if (r->split != NULL) ct_job_split_destroy(&r->split[i]);
        if (r->price != NULL) ct_job_prices_destroy(&r->price[i]);
    }
    free(r->split);
    free(r->price);
    free(r->price_p);
    free(r->heard);
    ct_sharded_net_destroy(&r->sharded);
}

static ct_status open_reader(const ct_job_net *n, const ct_job_machine *m, const ct_parallel *file,
                             reader *r)
{
    size_t n_stage = (size_t)file->n_stage;

    *r = (reader){ .n = n, .file = file, .layout = { .machine = m, .file = file } };
    r->layout.n_stage = file->n_stage;
    CT_TRY(ct_sharded_net_make(file, n->net, &r->sharded));
    r->split = calloc(n_stage, sizeof(*r->split));
    r->price = calloc(n_stage, sizeof(*r->price));
    r->price_p = calloc(n_stage, sizeof(*r->price_p));
    r->heard = calloc(n_stage * n_stage, sizeof(*r->heard));
    if ((r->split == NULL) || (r->price == NULL) || (r->price_p == NULL) || (r->heard == NULL))
        return CT_FAIL(CT_ERR_NOMEM, "no memory for %zu stages", n_stage);
    return CT_OK;
}

static ct_status open_plan(const reader *r, int zero, ct_job_plan *p)
{
    size_t n_block = (size_t)r->n->n_block;

    *p = (ct_job_plan){ .step_s = INFINITY, .fits = true };
    p->stage = calloc((size_t)r->file->n_stage, sizeof(*p->stage));
    p->way = calloc(n_block, sizeof(*p->way));
    p->mode = calloc(n_block, sizeof(*p->mode));
    if ((p->stage == NULL) || (p->way == NULL) || (p->mode == NULL))
        return CT_FAIL(CT_ERR_NOMEM, "no memory for a plan of %d stages", r->file->n_stage);
    p->config = (ct_job_config){ .tensor = r->file->stage[0].tensor,
                                 .data = r->file->stage[0].n_replica,
                                 .n_stage = r->file->n_stage,
                                 .micro_batches = r->file->micro_batches,
                                 .tie_way = -1,
                                 .zero = zero };
    for (int b = 0; b < r->n->n_block; b++) {
        p->way[b] = CT_JOB_FILE_WAY;
        p->mode[b] = CT_CHAIN_KEEP;
    }
    if ((r->n->tie_first >= 0) && (r->sharded.split[r->n->tie_head] == CT_PARALLEL_OUTPUT))
        p->config.tie_way = CT_JOB_OUTPUT;
    return CT_OK;
}

/* Whether a layer counts for what is made of a block. */
static bool counts(const reader *r, int layer, int stage)
{
    return (r->sharded.stage[layer] == stage) && (r->n->net->layer[layer]->n_bottom > 0);
}

/* The blocks of a stage; one that is cut is of two. */
static void find_blocks(const reader *r, int stage, ct_job_stage_plan *t)
{
    t->first = r->n->n_block;
    t->end = 0;
    for (int i = 0; i < r->n->net->n_layer; i++) {
        int block = r->n->layer[i].block;

        if (!counts(r, i, stage)) continue;
        if (block < t->first) t->first = block;
        if (block >= t->end) t->end = block + 1;
    }
    if (t->first > t->end) t->first = t->end; /* never: a stage has layers */
}

/* What a layer's forward takes of a sample, for comparing. */
static double forward_of(const reader *r, int layer)
{
    const ct_job_layer *l = &r->n->layer[layer];
    const ct_job_class *kind = &r->layout.machine->kind[0];

    return fmax(ct_job_line_at(l->flop[CT_JOB_FORWARD], 1) / kind->flop,
                ct_job_line_at(l->bytes[CT_JOB_FORWARD], 1) / kind->bytes);
}

/* What is made again: of a block that a segment has in part, the layers that it has. */
static void find_again(const reader *r, int stage, const ct_job_stage_plan *t, ct_job_split *s,
                       ct_chain_mode *mode)
{
    for (int b = t->first, before = -1; b < t->end; b++) {
        double all = 0, again = 0;
        int segment = -1;

        for (int i = 0; i < r->n->net->n_layer; i++) {
            if (!counts(r, i, stage) || (r->n->layer[i].block != b)) continue;
            all += forward_of(r, i);
            if (r->sharded.again[i] < 0) continue;
            again += forward_of(r, i);
            segment = r->sharded.again[i];
        }
        if (segment >= 0) {
            mode[b] = (segment == before) ? CT_CHAIN_CONTINUE : CT_CHAIN_START;
            s->block[ct_job_cell(b, CT_JOB_FILE_WAY)].once = (all > 0) ? 1 - again / all : 0;
        }
        before = segment;
    }
}

static ct_status price_stage(reader *r, int stage, ct_job_plan *p)
{
    const ct_parallel_stage *g = &r->file->stage[stage];
    ct_job_stage_plan *t = &p->stage[stage];
    ct_chain_mode *mode = calloc((size_t)r->n->n_block, sizeof(*mode));
    int64_t behind = r->file->n_stage - stage;
    ct_status status;

    if (mode == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d blocks", r->n->n_block);
    for (int b = 0; b < r->n->n_block; b++) mode[b] = CT_CHAIN_KEEP;
    t->kind = (ct_job_stage_kind){ .data = g->n_replica,
                                   .micro = r->file->micro_batches,
                                   .tie_way = -1,
                                   .zero = p->config.zero,
                                   .tensor = ct_job_tensor_link(&r->layout, stage),
                                   .ring = ct_job_ring_link(&r->layout, stage) };
    ct_job_group_replicas(&r->layout, stage, g->share, &t->kind);
    t->in_flight = (r->file->micro_batches < behind) ? r->file->micro_batches : behind;
    find_blocks(r, stage, t);
    t->share = malloc((size_t)g->n_replica * sizeof(*t->share));
    for (int j = 0; (t->share != NULL) && (j < g->n_replica); j++) t->share[j] = g->share[j];
    status = (t->share != NULL)
                 ? ct_job_split_of_file(r->n, r->file, &r->sharded, stage, &r->split[stage])
                 : CT_FAIL(CT_ERR_NOMEM, "no memory for %d shares", g->n_replica);
    if (status == CT_OK) {
        find_again(r, stage, t, &r->split[stage], mode);
        status = ct_job_prices_make(r->n, &r->split[stage], r->layout.machine, &t->kind,
                                    &r->price[stage]);
    }
    if (status == CT_OK) {
        const ct_job_prices *price = r->price_p[stage] = &r->price[stage];
        const int *way = p->way + t->first;

        t->figures =
            ct_job_prices_figures(price, t->first, t->end, t->in_flight, way, mode + t->first, -1);
        for (int k = 0; k < t->kind.n_group; k++)
            t->group[k] = ct_job_prices_figures(price, t->first, t->end, t->in_flight, way,
                                                mode + t->first, k);
    }
    free(mode);
    return status;
}

ct_status ct_job_file_plan(const ct_job_net *n, const ct_job_machine *m, const ct_parallel *file,
                           int zero, ct_job_plan *p)
{
    reader r;
    ct_status status = open_reader(n, m, file, &r);

    *p = (ct_job_plan){ 0 };
    if (status == CT_OK) status = open_plan(&r, zero, p);
    for (int i = 0; (i < file->n_stage) && (status == CT_OK); i++) status = price_stage(&r, i, p);
    if (status == CT_OK) {
        ct_job_step step = { n, r.layout, r.price_p, r.heard };

        ct_job_split_heard(n, file, &r.sharded, r.heard);
        status = ct_job_step_simulate(&step, p);
    }
    close_reader(&r);
    return status;
}

static void take_seconds(ct_job_figures *to, const ct_job_figures *from)
{
    to->forward_s = from->forward_s;
    to->backward_s = from->backward_s;
    to->again_s = from->again_s;
    to->sums_s = from->sums_s;
    to->update_s = from->update_s;
    to->sum_bytes = from->sum_bytes;
}

ct_status ct_job_file_price(const ct_job_net *n, const ct_job_machine *m, const ct_parallel *file,
                            ct_job_plan *p)
{
    ct_job_plan own;
    ct_status status = ct_job_file_plan(n, m, file, p->config.zero, &own);

    for (int i = 0; (i < file->n_stage) && (status == CT_OK); i++) {
        ct_job_stage_plan *t = &p->stage[i];

        take_seconds(&t->figures, &own.stage[i].figures);
        for (int k = 0; k < t->kind.n_group; k++)
            take_seconds(&t->group[k], &own.stage[i].group[k]);
        t->bubble = own.stage[i].bubble;
    }
    if (status == CT_OK) p->step_s = own.step_s;
    ct_job_plan_destroy(&own);
    return status;
}
