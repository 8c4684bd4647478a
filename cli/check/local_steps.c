#include "cli/check/local_steps.h"

#include <math.h>
#include <stdlib.h>

#include "runtime/config/exchange_config.h"
#include "runtime/outer/outer_groups.h"

enum {
    PASSES = 8,
    PASSES_DELAYED = 11
}; /* arrays that differences and the outer rule read, write */

/* ---- profiles in which nothing takes time, for exchanges alone */

static void release_still(ct_profile *p)
{
    free(p->param);
    free(p->forward);
    free(p->backward);
}

/* A vector's or a matrix's part: whole rows. */
static void take_part(ct_profile_param *q, double part)
{
    int64_t rows = (q->rows > 0) ? q->rows : 1, row = q->count / rows;

    if (rows == 1) {
        q->count = (int64_t)ceil((double)q->count * part);
    } else {
        q->rows = (int64_t)ceil((double)rows * part);
        q->count = q->rows * row;
    }
}

static int keep_waits(const ct_step *from, int n, ct_step *to)
{
    int kept = 0;

    for (int i = 0; i < n; i++)
        if (ct_step_is_of_weights(&from[i])) to[kept++] = from[i];
    return kept;
}

/* p's gradients, of each a part; keys are borrowed. */
static ct_status make_still(const ct_profile *p, double part, ct_profile *out)
{
    int64_t at = 0;

    *out = (ct_profile){ .batch = p->batch, .threads = p->threads, .n_param = p->n_param };
    out->param = calloc((size_t)p->n_param + 1, sizeof(*out->param));
    out->forward = calloc((size_t)p->n_forward + 1, sizeof(*out->forward));
    out->backward = calloc((size_t)p->n_backward + 1, sizeof(*out->backward));
    if ((out->param == NULL) || (out->forward == NULL) || (out->backward == NULL)) {
        release_still(out);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for a model of local steps");
    }
    for (int i = 0; i < p->n_param; i++) {
        out->param[i] = p->param[i];
        if (part < 1) take_part(&out->param[i], part);
        out->param[i].offset = at;
        at += out->param[i].count;
    }
    out->n_forward = keep_waits(p->forward, p->n_forward, out->forward);
    out->n_backward = keep_waits(p->backward, p->n_backward, out->backward);
    return CT_OK;
}

/* ---- ranks */

/* Of the first group its ranks, and the first rank of each group. */
static ct_status split(const ct_topo *topo, int groups, ct_local_steps *out, ct_topo **inner_p,
                       ct_topo **across_p)
{
    size_t n_rank = (size_t)topo->n_rank;
    int *inner = calloc(2 * n_rank, sizeof(*inner)), *across = inner + n_rank;
    int n_across = 0;
    ct_status status = (inner != NULL) ? CT_OK : CT_FAIL(CT_ERR_NOMEM, "no memory for groups");

    if (status == CT_OK) status = ct_outer_groups_count(topo, groups, &out->n_group);
    for (int r = 0; (status == CT_OK) && (r < topo->n_rank); r++) {
        int group = ct_outer_groups_of(topo, groups, r);

        if (group == 0) inner[out->size++] = r;
        if (group == n_across) across[n_across++] = r;
    }
    if (status == CT_OK) status = ct_topo_subset(topo, inner, out->size, inner_p);
    if (status == CT_OK) status = ct_topo_subset(topo, across, n_across, across_p);
    free(inner);
    return status;
}

/* ---- a meeting */

typedef struct meeting {
    double coding_s, messages_s, sharing_s, passes_s;
} meeting;

static ct_status exchange(const Ct__SolverParameter *solver, const ct_profile *p,
                          const ct_topo *inner, const ct_topo *across, ct_local_steps *out,
                          meeting *m)
{
    double part = (double)ct_topo_max_node_size(inner) / inner->n_rank; /* of a node's ranks */
    ct_outer_param outer;
    ct_grad_pipe_config config;
    ct_step_model model;
    ct_profile still;
    ct_status status;

    ct_outer_param_fill(solver, &outer);
    CT_TRY(ct_exchange_read_config(&outer.solver, &config));
    CT_TRY(make_still(p, part, &still));
    status =
        ct_step_model_run(&still, across, &config, NULL, NULL, CT_STEP_TIMELINE_OFF, 1, &model);
    for (int i = 0; (status == CT_OK) && (i < model.n_bucket); i++) {
        m->coding_s += model.bucket[i].encode_s + model.bucket[i].decode_s;
        m->messages_s += model.bucket[i].wire_s;
    }
    out->codec = config.codec->name;
    out->meets = model.bytes_sent;
    ct_step_model_release(&model);
    release_still(&still);
    return status;
}

static ct_status share(const ct_profile *p, const ct_topo *inner, const ct_grad_pipe_config *config,
                       meeting *m)
{
    ct_step_model model;
    ct_profile still;
    ct_status status;

    CT_TRY(make_still(p, 1, &still));
    status = ct_step_model_run(&still, inner, config, NULL, NULL, CT_STEP_TIMELINE_OFF, 1, &model);
    m->sharing_s = model.step_s;
    ct_step_model_release(&model);
    release_still(&still);
    return status;
}

static double passes_s(const ct_profile *p, const ct_topo *topo, const ct_local_steps *s)
{
    double memory = ct_topo_codec_speed(topo).memory, elements = 0;

    for (int i = 0; i < p->n_param; i++) elements += (double)p->param[i].count;
    if (!(memory > 0)) return 0;
    return ((s->delay > 0) ? PASSES_DELAYED : PASSES) * sizeof(float) * elements / s->size / memory;
}

static ct_status meet(const Ct__SolverParameter *solver, const ct_profile *p, const ct_topo *inner,
                      const ct_topo *across, const ct_grad_pipe_config *config, ct_local_steps *out)
{
    meeting m = { 0 };

    CT_TRY(exchange(solver, p, inner, across, out, &m));
    CT_TRY(share(p, inner, config, &m));
    m.passes_s = passes_s(p, inner, out);
    out->messages_s = m.messages_s;
    out->meeting_s = m.passes_s + m.coding_s + m.messages_s + m.sharing_s;
    out->waited_s = out->meeting_s;
    if (out->delay > 0) out->waited_s -= fmin(m.messages_s, out->local_iter * out->step_s);
    out->mean_s = out->step_s + out->waited_s / out->local_iter;
    return CT_OK;
}

ct_status ct_local_steps_model(const Ct__SolverParameter *solver, const ct_profile *p,
                               const ct_topo *topo, const ct_grad_pipe_config *config,
                               double factor, ct_local_steps *out)
{
    const Ct__OuterParameter *o = solver->outer;
    ct_topo *inner = NULL, *across = NULL;
    ct_step_model step = { 0 };
    ct_status status;

    *out = (ct_local_steps){ .local_iter = o->local_iter, .delay = o->delay };
    status = split(topo, o->groups, out, &inner, &across);
    if (status == CT_OK)
        status = ct_step_model_run(p, inner, config, NULL, NULL,
                                   config->overlap ? CT_STEP_TIMELINE_BOTH : CT_STEP_TIMELINE_OFF,
                                   factor, &step);
    out->step_s = step.step_s;
    out->exposed_s = step.exposed_s;
    out->sent = step.bytes_sent;
    if (status == CT_OK) status = meet(solver, p, inner, across, config, out);
    ct_step_model_release(&step);
    ct_topo_destroy(inner);
    ct_topo_destroy(across);
    return status;
}

/* ---- words */

void ct_local_steps_print(const ct_local_steps *s, double plain_s, FILE *to)
{
    fprintf(to,
            "\nlocal steps %d groups of %d ranks; an iteration between meetings %.3f ms, of which "
            "%.3f exposed, %.4f MB sent\n",
            s->n_group, s->size, 1e3 * s->step_s, 1e3 * s->exposed_s, 1e-6 * s->sent);
    fprintf(to,
            "            a meeting (%s) %.3f ms, messages %.3f of these, %.3f waited for, %.4f MB "
            "sent by a group's ranks on a node\n",
            s->codec, 1e3 * s->meeting_s, 1e3 * s->messages_s, 1e3 * s->waited_s, 1e-6 * s->meets);
    fprintf(to,
            "            one every %d iterations, delay %d: %.3f ms an iteration in the mean, "
            "%.2f times as fast as without `outer`\n",
            s->local_iter, s->delay, 1e3 * s->mean_s, (s->mean_s > 0) ? plain_s / s->mean_s : 1);
}

void ct_local_steps_json(const ct_local_steps *s, ct_json_writer *w)
{
    ct_json_begin_object(w, "local_steps");
    ct_json_add_integer(w, "groups", s->n_group);
    ct_json_add_integer(w, "ranks", s->size);
    ct_json_add_integer(w, "local_iter", s->local_iter);
    ct_json_add_integer(w, "delay", s->delay);
    ct_json_add_text(w, "type", s->codec);
    ct_json_add_number(w, "step_ms", 1e3 * s->step_s);
    ct_json_add_number(w, "exposed_ms", 1e3 * s->exposed_s);
    ct_json_add_number(w, "meeting_ms", 1e3 * s->meeting_s);
    ct_json_add_number(w, "messages_ms", 1e3 * s->messages_s);
    ct_json_add_number(w, "waited_ms", 1e3 * s->waited_s);
    ct_json_add_number(w, "mean_ms", 1e3 * s->mean_s);
    ct_json_add_decimals(w, "bytes_sent", s->sent, 0);
    ct_json_add_decimals(w, "meeting_bytes", s->meets, 0);
    ct_json_end(w);
}
