#include "planner/forward_pass.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "planner/rank_memory.h"

static ct_status check_file(const ct_parallel *file)
{
    if ((file->n_stage == 1) && (file->stage[0].n_replica == 1)) return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG,
                   "%s: a forward alone is told of one stage with one replica, not of %d with %d",
                   file->file, file->n_stage, file->stage[0].n_replica);
}

/* ---- from the steps of the rank's net */

typedef struct maker {
    const ct_net *net;        /* of the rank */
    const ct_job_class *kind; /* NULL: … */
    const double *seconds;    /* … what each step took */
    ct_forward_pass *f;
} maker;

static double compute_s(const maker *m, const ct_step *s)
{
    ct_estimate e;

    if (m->kind == NULL) return m->seconds[s - m->net->forward];
    ct_net_estimate(m->net, s->layer, &e);
    return fmax(e.forward_flop / m->kind->flop, e.forward_bytes / m->kind->bytes) / s->n_part;
}

static ct_status add_begin(const maker *m, const ct_step *s, ct_forward_step *to)
{
    const ct_layer *l = m->net->layer[s->layer];
    ct_transfer t;

    to->kind = CT_FORWARD_BEGIN;
    l->ops->sums->transfer(l, m->net->pass->instance[s->layer], true, &t);
    to->transfer = t.kind;
    to->bytes = t.n * (int64_t)ct_dtype_size(t.dtype);
    if ((t.kind == CT_TRANSFER_SUM) || (t.kind == CT_TRANSFER_GATHER) ||
        (t.kind == CT_TRANSFER_SCATTER))
        return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG, "layer \"%s\" sends to one rank: a forward alone has one stage",
                   l->name);
}

static ct_status add_step(const maker *m, const ct_step *s)
{
    ct_forward_step *to = &m->f->step[m->f->n_step];
    bool pair = ct_step_is_pair(s);

    /* weights are there, and sums of a few doubles are those of training */
    if (pair && (s->of != CT_PAIR_TRANSFER)) return CT_OK;
    if (!pair && (s->kind != CT_STEP_FORWARD)) return CT_OK;
    *to = (ct_forward_step){ .kind = CT_FORWARD_COMPUTE,
                             .layer = strdup(m->net->layer[s->layer]->name) };
    if (to->layer == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a list of steps");
    m->f->n_step++;
    if (!pair) {
        to->seconds = compute_s(m, s);
        return CT_OK;
    }
    to->pair = s->pair - m->net->n_param;
    if (to->pair >= m->f->n_pair) m->f->n_pair = to->pair + 1;
    if (s->kind == CT_STEP_BEGIN) return add_begin(m, s, to);
    to->kind = CT_FORWARD_WAIT;
    return CT_OK;
}

static ct_status list_steps(const maker *m)
{
    const ct_net *net = m->net;
    ct_forward_pass *f = m->f;

    f->step = calloc((size_t)net->n_forward + 1, sizeof(*f->step));
    if (f->step == NULL)
        return CT_FAIL(CT_ERR_NOMEM, "no memory for a list of %d steps", net->n_forward);
    for (int i = 0; i < net->n_forward; i++) CT_TRY(add_step(m, &net->forward[i]));
    return CT_OK;
}

ct_status ct_forward_pass_of(const ct_net *net, int n_rank, const double *seconds,
                             ct_forward_pass *f)
{
    *f = (ct_forward_pass){ .n_rank = n_rank };
    return list_steps(&(maker){ .net = net, .seconds = seconds, .f = f });
}

static ct_status make_rank(const ct_parallel *file, const ct_sharded_net *s,
                           const ct_net_options *options, const ct_job_class *kind, int rank,
                           ct_forward_pass *f)
{
    ct_net_options o = *options;
    ct_rank_net made;
    ct_net *net = NULL;
    ct_status status;

    *f = (ct_forward_pass){ .n_rank = file->n_rank };
    CT_TRY(ct_rank_net_make(file, s, rank, &made));
    ct_rank_env(file, &made, rank, &o.env);
    status = ct_net_create(made.param, &o, &net);
    if (status == CT_OK) status = list_steps(&(maker){ .net = net, .kind = kind, .f = f });
    ct_net_destroy(net);
    ct_rank_net_destroy(&made);
    return status;
}

static double sum_compute(const ct_forward_pass *f)
{
    double s = 0;

    for (int i = 0; i < f->n_step; i++) s += f->step[i].seconds;
    return s;
}

ct_status ct_forward_pass_make(const ct_parallel *file, const ct_sharded_net *s,
                               const ct_net_options *options, const ct_job_machine *m,
                               ct_forward_pass *f)
{
    *f = (ct_forward_pass){ 0 };
    CT_TRY(check_file(file));
    for (int place = 0; place < file->n_rank; place++) {
        int rank = file->stage[0].rank[place];
        const ct_job_class *kind = &m->kind[m->node_class[rank / m->ranks_per_node]];
        ct_forward_pass one;
        ct_status status = make_rank(file, s, options, kind, rank, &one);

        if ((status == CT_OK) && ((place == 0) || (sum_compute(&one) > sum_compute(f)))) {
            ct_forward_pass slower = one;

            one = *f;
            *f = slower;
        }
        ct_forward_pass_destroy(&one);
        CT_TRY(status);
    }
    return CT_OK;
}
