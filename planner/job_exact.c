#include "planner/job_exact.h"

#include <math.h>
#include <stdlib.h>

#include "planner/job_file.h"

#define MOST_TRIES 8
#define WASTE      0.02
/* Part of the limit that each further try spares. */
#define MARGIN 0.002
/* More unlike ranks are not all made as nets: the parts of a replica count as its first. */
#define MOST_NETS 128

/* A plan's file, bound to the net with a micro-batch. */
typedef struct bound {
    ct_text text;
    ct_parallel *file;
    ct_net *net;
    ct_net_options options;
    ct_sharded_net sharded;
    bool is_sharded;
} bound;

static void unbind(bound *b)
{
    if (b->is_sharded) ct_sharded_net_destroy(&b->sharded);
    ct_net_destroy(b->net);
    ct_parallel_destroy(b->file);
    ct_text_destroy(&b->text);
}

static ct_status bind(ct_job_space *s, const ct_net_options *options, const ct_job_plan *p,
                      bound *b)
{
    *b = (bound){ .options = *options };
    CT_TRY(ct_job_plan_write(s, p, &b->text));
    CT_TRY(ct_parallel_parse("the plan", b->text.text, b->text.length, &b->file));
    b->options.env.n_rank = 1;
    b->options.env.global_batch_size = b->file->micro_batch;
    ct_parallel_set_dummy_batch(s->net->param, b->file->micro_batch);
    CT_TRY(ct_net_make_again(s->net->param, &b->options, NULL, 0, &b->net));
    CT_TRY(ct_parallel_bind(b->file, s->net->param, b->net));
    CT_TRY(ct_sharded_net_make(b->file, b->net, &b->sharded));
    b->is_sharded = true;
    return CT_OK;
}

/* The first replica of a group. */
static int first_of(const ct_job_layout *l, const ct_job_stage_plan *t, int stage, int group)
{
    int j = 0;

    while ((j < l->data - 1) && (ct_job_group_of(l, t, stage, j) != group)) j++;
    return j;
}

/* The stage's own figures of bytes are those of the group that is fullest. */
static void note(ct_job_stage_plan *t, int group, const ct_rank_memory *m, bool is_fullest)
{
    ct_job_figures *f[2] = { &t->group[group], is_fullest ? &t->figures : NULL };

    for (int i = 0; i < 2; i++) {
        if (f[i] == NULL) continue;
        f[i]->weights = (double)m->weight_bytes;
        f[i]->kept = (double)m->kept_bytes;
        f[i]->other = (double)m->transient_bytes;
    }
}

/* What the nets of a stage take beside its figures, and what is left of the limits at least. */
static ct_status measure(const ct_job_space *s, const bound *b, ct_job_plan *p, int stage,
                         double *left_p)
{
    ct_job_layout l = ct_job_layout_of(s, &p->config);
    ct_job_stage_plan *t = &p->stage[stage];
    double most = 0;

    *left_p = INFINITY;
    t->beside = -INFINITY;
    for (int g = 0; g < t->kind.n_group; g++) {
        int rank = ct_job_rank(&l, stage, first_of(&l, t, stage, g), 0);
        double limit = s->machine->kind[t->kind.group[g].kind].memory, full;
        ct_rank_memory m;

        CT_TRY(ct_rank_memory_at(b->file, &b->sharded, &b->options, s->shards, rank, &m));
        full = (limit > 0) ? (double)m.memory_bytes / limit : (double)m.memory_bytes;
        t->beside = fmax(t->beside, (double)m.memory_bytes - t->told[g]);
        if (limit > 0) *left_p = fmin(*left_p, limit - (double)m.memory_bytes);
        note(t, g, &m, full > most);
        most = fmax(most, full);
    }
    return CT_OK;
}

static bool makes_again(const ct_job_plan *p, const ct_job_stage_plan *t)
{
    for (int b = t->first; b < t->end; b++) {
        if (p->mode[b] != CT_CHAIN_KEEP) return true;
    }
    return false;
}

/* Which stages are to be chosen anew. */
static ct_status look_at(ct_job_space *s, const ct_net_options *options, ct_job_plan *p, bool *anew,
                         bool *fits_p, bool *any_p)
{
    bound b;
    ct_status status = bind(s, options, p, &b);

    *fits_p = true;
    *any_p = false;
    for (int i = 0; (i < p->config.n_stage) && (status == CT_OK); i++) {
        double left;

        status = measure(s, &b, p, i, &left);
        if (status != CT_OK) break;
        anew[i] = (left < 0) || (isfinite(left) && makes_again(p, &p->stage[i]) &&
                                 (left > WASTE * p->stage[i].limit));
        *fits_p = *fits_p && (left >= 0);
        *any_p = *any_p || anew[i];
    }
    unbind(&b);
    return status;
}

/* The step is that of the file, which may do otherwise than its blocks one by one. */
static ct_status price(ct_job_space *s, ct_job_plan *p)
{
    ct_text text = { 0 };
    ct_parallel *file = NULL;
    ct_status status = ct_job_plan_write(s, p, &text);

    if (status == CT_OK) status = ct_parallel_parse("the plan", text.text, text.length, &file);
    if (status == CT_OK) status = ct_parallel_bind(file, s->net->param, s->net->net);
    if (status == CT_OK) status = ct_job_file_price(s->net, s->machine, file, p);
    ct_parallel_destroy(file);
    ct_text_destroy(&text);
    return status;
}

/* Chooses anew what is to be; later tries spare a little more. *can_p: there are choices. */
static ct_status choose_anew(ct_job_space *s, ct_job_plan *p, const bool *anew, int tries,
                             bool *can_p)
{
    for (int k = 0; k < p->config.n_stage; k++) {
        if (!anew[k]) continue;
        p->stage[k].beside += MARGIN * tries * p->stage[k].limit;
        CT_TRY(ct_job_plan_choose(s, p, k, can_p));
        if (!*can_p) return CT_OK;
    }
    return CT_OK;
}

ct_status ct_job_plan_fit(ct_job_space *s, const ct_net_options *options, ct_job_plan *p, bool keep)
{
    bool *anew = calloc((size_t)p->config.n_stage, sizeof(*anew)), fits = false, can = true;
    ct_status status = CT_OK;

    if (anew == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for stages");
    for (int i = 0; status == CT_OK; i++) {
        bool any;

        status = look_at(s, options, p, anew, &fits, &any);
        if (keep || !any || (i == MOST_TRIES) || (fits && (i >= MOST_TRIES / 2))) break;
        if (status == CT_OK) status = choose_anew(s, p, anew, i, &can);
        if (can) continue;
        fits = false;
        break;
    }
    free(anew);
    p->fits = fits && can;
    if ((status == CT_OK) && can) status = price(s, p);
    return status;
}

/* ---- all ranks */

static int n_nets(const ct_job_plan *p)
{
    int n = 0;

    for (int i = 0; i < p->config.n_stage; i++) n += p->stage[i].kind.n_group * p->config.tensor;
    return n;
}

ct_status ct_job_plan_memory(ct_job_space *s, const ct_net_options *options, const ct_job_plan *p,
                             ct_rank_memory *m)
{
    ct_job_layout l = ct_job_layout_of(s, &p->config);
    const ct_rank_shards *shards = s->shards;
    /* shards of all ranks are unlike, if by little */
    bool all = ((shards != NULL) ? s->machine->n_rank : n_nets(p)) <= MOST_NETS;
    bound b;
    ct_status status = bind(s, options, p, &b);

    if ((status == CT_OK) && all)
        status = ct_rank_memory_with(b.file, &b.sharded, &b.options, shards, m);
    for (int i = 0; (status == CT_OK) && !all && (i < l.n_stage); i++) {
        const ct_job_stage_plan *t = &p->stage[i];

        for (int k = 0; k < l.data * l.tensor; k++) {
            int rank = ct_job_rank(&l, i, k / l.tensor, k % l.tensor);
            int first = first_of(&l, t, i, ct_job_group_of(&l, t, i, k / l.tensor));
            int like = ct_job_rank(&l, i, first, 0);

            if ((status == CT_OK) && (rank == like))
                status = ct_rank_memory_at(b.file, &b.sharded, &b.options, shards, rank, &m[rank]);
            else
                m[rank] = m[like];
        }
    }
    unbind(&b);
    return status;
}
