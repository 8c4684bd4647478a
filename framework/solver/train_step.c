#include "framework/solver/train_step.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/trace.h"
#include "framework/math/math.h"
#include "framework/net/step_after.h"
#include "framework/snapshot/snapshot.h"
#include "framework/tensor/storage_forms.h"

static void beat(const ct_train_step *t, const char *what)
{
    if (t->beat != NULL) t->beat(t->hook_ctx, what);
}

/* The sum of a piece of a parameter is there. */
static ct_status take_piece(ct_train_step *t, int param, int64_t from, int64_t count)
{
    if (ct_step_keeps(t)) CT_TRY(ct_step_keep(t, param, from, count));
    if (t->sync->more) return CT_OK;
    if (!ct_step_waits_for_all(t)) return ct_step_update_piece(t, param, from, count);
    return ct_grad_norm_is_open(&t->norm) ? ct_step_add_part(t, param, from, count) : CT_OK;
}

/* Under shards the weights are those of all ranks, which have updated their pieces. */
static ct_status on_landed(void *ctx, int first, int n)
{
    ct_train_step *t = ctx;

    for (int i = first; i < first + n; i++) {
        if (t->landed[i])
            return CT_FAIL(CT_ERR_ARG, "the gradient of %s landed twice", t->net->param[i].key);
        t->landed[i] = true;
        if (ct_step_keeps(t) && !t->sync->shards && t->net->param[i].learns)
            CT_TRY(take_piece(t, i, 0, t->net->param[i].count));
    }
    if (t->sync->shards || ct_step_keeps(t)) return CT_OK;
    return ct_step_waits_for_all(t) ? ct_step_add_norm(t, first, n) : ct_step_update(t, first, n);
}

static ct_status on_part(void *ctx, int param, int64_t from, int64_t count)
{
    ct_train_step *t = ctx;

    return t->sync->shards ? take_piece(t, param, from, count)
                           : ct_step_add_part(t, param, from, count);
}

/* Backward has waited for all of them: they share memory. */
static bool all_landed(const ct_train_step *t)
{
    for (int i = 0; (i < t->net->n_param) && t->net->param[i].learns; i++)
        if (!t->landed[i]) return false;
    return true;
}

/* Its gradient lands, and it is updated. */
static ct_status land_one(ct_train_step *t, int param)
{
    double start = ct_trace_start(t->pass->exec.trace);

    CT_TRY(t->sync->transport.ops->wait(t->sync->transport.ctx, param, 1, on_landed, t));
    ct_trace_end(t->pass->exec.trace, start, CT_TRACE_WAIT, NULL, t->net->param[param].key);
    return CT_OK;
}

/* Those that backward has not waited for. */
static ct_status land_others(ct_train_step *t)
{
    const ct_transport *way = &t->sync->transport;
    const ct_net_window *window = t->net->options.window;

    if (t->several || (window == NULL) || (window->lag == 0))
        return way->ops->finish(way->ctx, on_landed, t);
    for (int i = 0; (i < t->net->n_param) && t->net->param[i].learns; i++)
        if (!t->landed[i]) CT_TRY(land_one(t, i));
    return CT_OK;
}

/* Every gradient lands, and every weight is updated. key: of the parameter that forward waits for,
 * or NULL. */
static ct_status land_all(ct_train_step *t, const char *key)
{
    double start = ct_trace_start(t->pass->exec.trace);
    bool all = all_landed(t), keeps = ct_step_keeps(t) && !t->sync->shards;
    bool joins = keeps || (t->parts != NULL); /* norms of all, whatever this rank has of them */

    if (t->updated || (all && !(joins && ct_step_waits_for_all(t)))) return CT_OK;
    if (!all) CT_TRY(land_others(t));
    ct_trace_end(t->pass->exec.trace, start, CT_TRACE_WAIT, NULL, key);
    if (!ct_step_waits_for_all(t)) return CT_OK;
    CT_TRY(ct_step_update_all(t));
    t->updated = true;
    if (t->sync->shards) CT_TRY(t->sync->transport.ops->updated(t->sync->transport.ctx));
    return t->forward_overlap ? ct_step_tell(t) : CT_OK; /* else when backward is over */
}

/* Weights of other ranks' pieces arrive. */
static ct_status land_rest(ct_train_step *t)
{
    return t->sync->transport.ops->finish(t->sync->transport.ctx, on_landed, t);
}

/* By this step, or since the host knew them. */
static void weights_changed(ct_train_step *t)
{
    bool known = (t->host.net != NULL) && (t->host.version == t->net->weight_version);

    ct_net_weights_changed(t->net);
    if (known) ct_host_weights_are(&t->host);
}

static ct_status settle(ct_train_step *t)
{
    if (!t->open) return CT_OK;
    beat(t, "exchange of gradients and update");
    CT_TRY(land_all(t, NULL));
    if (t->sync->shards && ct_step_waits_for_all(t)) CT_TRY(land_rest(t));
    for (int i = 0; i < t->n_history; i++) CT_TRY(ct_storage_settled(&t->history[i]));
    t->open = false;
    weights_changed(t);
    return CT_OK;
}

ct_status ct_train_step_settle(ct_train_step *t)
{
    CT_TRY(settle(t));
    return ct_step_hear(t, true);
}

/* ---- the step */

/* What a snapshot owes goes with the gradient. */
static ct_status add_owed(void *ctx, int param)
{
    const ct_train_step *t = ctx;
    const ct_param *p = &t->net->param[param];

    CT_TRY(t->net->options.dev->math->axpy(t->pass->exec.stream, p->count, t->loss_scale.scale,
                                           t->owed + p->offset, ct_blob_diff(&p->blob)));
    return t->sync->transport.ops->ready(t->sync->transport.ctx, param);
}

static void drop_owed(ct_train_step *t)
{
    if (t->owed != NULL) t->net->options.dev->mem_release(t->owed);
    t->owed = NULL;
}

/* Backward is about to write another gradient where this one lies. */
static ct_status on_gradient_wait(void *ctx, int param)
{
    ct_train_step *t = ctx;
    const ct_transport *way = &t->sync->transport;

    if (t->landed[param]) return CT_OK;
    if (way->ops->wait_gradient == NULL) return land_one(t, param);
    return way->ops->wait_gradient(way->ctx, param, on_landed, t);
}

ct_status ct_step_land_gradient(ct_train_step *t, int param)
{
    if (!t->open) return CT_OK;
    if (ct_step_waits_for_all(t)) return land_all(t, t->net->param[param].key);
    return on_gradient_wait(t, param);
}

/* Forward is about to read this parameter. */
static ct_status on_wait(void *ctx, int param)
{
    ct_train_step *t = ctx;
    bool all = ct_step_waits_for_all(t), shards = t->sync->shards;

    if (!t->open) return CT_OK;
    t->sync->ops->reads(t->sync->ctx, param);
    if ((all && !shards) ? t->updated : t->landed[param]) return CT_OK;
    beat(t, "exchange of gradients and update, in forward");
    if (all) CT_TRY(land_all(t, t->net->param[param].key));
    if (!all || shards) CT_TRY(land_one(t, param));
    if (!t->landed[param])
        return CT_FAIL(CT_ERR_ARG, "the exchange returned without the gradient of %s",
                       t->net->param[param].key);
    beat(t, t->doing);
    return CT_OK;
}

/* A layer has rows of a gradient: in backward. Those beside a dense gradient go by themselves in
 * the last micro-batch, when that gradient has left; before, they are added to it. Of those that
 * are all of a gradient the others learn which they are; but not where a snapshot owes it more. */
static ct_status on_rows(void *ctx, const float *dw, int64_t m, const int32_t *index,
                         const float *value, bool *taken_p)
{
    const ct_train_step *t = ctx;
    const ct_transport *way = &t->sync->transport;
    int i = 0;

    while ((i < t->net->n_param) &&
           ((t->net->param[i].row_most == 0) || (ct_blob_diff(&t->net->param[i].blob) != dw)))
        i++;
    if (i == t->net->n_param) return CT_OK;
    if (!t->net->param[i].row_beside)
        return (t->owed == NULL) ? way->ops->rows(way->ctx, i, m, index, NULL) : CT_OK;
    *taken_p = t->last;
    return t->last ? way->ops->rows(way->ctx, i, m, index, value) : CT_OK;
}

static ct_status open_rows(ct_train_step *t)
{
    bool any = false;

    for (int i = 0; i < t->net->n_param; i++) any = any || (t->net->param[i].row_most > 0);
    if (!any) return CT_OK;
    if (t->sync->transport.ops->rows == NULL)
        return CT_FAIL(CT_ERR_ARG, "a net whose gradients travel as rows, and no way for them");
    t->pass->exec.rows = on_rows;
    t->pass->exec.rows_ctx = t;
    return CT_OK;
}

/* What else is under way moves, too. */
static ct_status poll_both(void *ctx)
{
    const ct_train_step *t = ctx;
    const ct_transport *way = &t->sync->transport;

    if (t->several) CT_TRY(way->ops->poll(way->ctx));
    return t->also->ops->poll(t->also->ctx);
}

/* What the transport of the step that begins makes of it. It may be recorded with its sums and
 * updates: then sums on the device follow one another, and the next forward would wait for the last
 * of them all the same. */
static void take_mode(ct_train_step *t)
{
    const ct_transport *way = &t->sync->transport;

    t->pass->exec.poll = t->several ? way->ops->poll : NULL;
    t->pass->exec.poll_ctx = way->ctx;
    t->pass->exec.step_s = t->several ? way->step_s : NULL;
    if (t->also != NULL) {
        t->pass->exec.poll = poll_both;
        t->pass->exec.poll_ctx = t;
    }
    if ((t->also != NULL) && !t->several) t->pass->exec.step_s = t->also->step_s;
    t->in_graph = way->records && ct_update_plan_is_open(&t->all) && t->net->options.graph &&
                  ct_step_states_are_fixed(t);
    t->forward_overlap = t->may_overlap && !t->in_graph;
    t->pass->exec.wait = t->forward_overlap ? on_wait : NULL;
}

static void forget_graphs(const ct_train_step *t)
{
    for (int k = 0; k < t->schedule->in_flight; k++) ct_pass_forget_graphs(t->passes[k]);
}

/* Another transport may have the step, in which a step gives the device something else. */
static ct_status begin_sync(ct_train_step *t)
{
    bool before = t->in_graph;

    CT_TRY(t->sync->ops->begin(t->sync, t->iteration, t->scale, (float)t->rate));
    take_mode(t);
    if (t->in_graph == before) return CT_OK;
    CT_TRY(t->net->options.dev->sync(t->pass->exec.stream)); /* forward's may be running */
    forget_graphs(t);
    return CT_OK;
}

/* Gradients of a backward are about to leave; more: of which others follow, that are kept. */
static ct_status begin_gradients(ct_train_step *t, bool first, bool more)
{
    t->first = first;
    t->sync->more = more;
    CT_TRY(begin_sync(t));
    memset(t->landed, 0, (size_t)t->net->n_param * sizeof(*t->landed));
    t->updated = false;
    return CT_OK;
}

/* The host updates the weights that the device has now. */
static ct_status begin_on_host(ct_train_step *t)
{
    if (!ct_host_update_is_open(&t->host)) return CT_OK;
    ct_host_gradients_begin(&t->host);
    return ct_step_has_visits(t) ? CT_OK : ct_host_take_weights(&t->host, &t->weights);
}

/* The gradients of the last backward are about to leave, to be applied at this rate. */
static ct_status begin(ct_train_step *t, int64_t iteration, double rate)
{
    /* forward has waited for every parameter that it reads, which are all; to be sure */
    CT_TRY(settle(t));
    t->iteration = iteration;
    t->rate = rate;
    t->scale = 1.0f / (float)t->iter_size;
    t->refused = false;
    CT_TRY(begin_on_host(t));
    CT_TRY(ct_step_put_numbers(t));
    CT_TRY(begin_gradients(t, true, (t->iter_size > 1) && ct_step_keeps(t)));
    if (ct_grad_norm_is_open(&t->norm)) ct_grad_norm_begin(t->net, &t->norm);
    return CT_OK;
}

/* What follows the last backward, unless gradients travel on during the next forward. */
static ct_status on_end(void *ctx)
{
    ct_train_step *t = ctx;

    t->open = true;
    return settle(t);
}

/* Backward and all that follows it were given as one. */
static ct_status on_replay(void *ctx, ct_replay what)
{
    ct_train_step *t = ctx;

    for (int i = 0; i < t->net->n_param; i++) t->landed[i] = (what == CT_REPLAY_GIVEN);
    t->updated = (what == CT_REPLAY_GIVEN); /* dropped: calls had set it, nothing ran */
    ct_net_weights_changed(t->net);
    return t->sync->transport.ops->replay(t->sync->transport.ctx, what);
}

/* On one rank its gradient is what updates take: it sets off for the host. */
static ct_status on_ready(void *ctx, int param)
{
    ct_train_step *t = ctx;

    CT_TRY(ct_host_gradient_ready(&t->host, t->pass->exec.stream, param));
    return t->sync->transport.ops->ready(t->sync->transport.ctx, param);
}

static ct_status last_backward(ct_train_step *t)
{
    /* what a snapshot owes comes once, and what is late ends */
    bool same = t->in_graph && (t->owed == NULL) && (t->late.v == NULL);
    const ct_transport *way = &t->sync->transport;
    bool sends = ct_host_update_is_open(&t->host) && !t->several;
    const ct_step_after after = { .ready = (t->owed != NULL) ? add_owed
                                           : sends           ? on_ready
                                                             : way->ops->ready,
                                  .ready_ctx = ((t->owed != NULL) || sends) ? t : way->ctx,
                                  .wait = on_gradient_wait,
                                  .finish = t->forward_overlap ? NULL : on_end,
                                  .replay = same ? on_replay : NULL,
                                  .ctx = t };

    if (same && t->owing) ct_pass_forget_graphs(t->runs);
    t->owing = t->in_graph && !same;
    CT_TRY(ct_pass_backward_and(t->runs, &after));
    drop_owed(t);
    t->open = t->forward_overlap;
    return t->forward_overlap ? CT_OK : ct_step_tell(t);
}

/* ---- its micro-batches */

/* Those that are under way, the counts of them and of time are the step's: the exec goes with the
 * run. */
static void hand_over(ct_train_step *t, ct_pass *pass)
{
    const uint64_t *there = pass->exec.step_there; /* its own, from forward to backward */

    if (pass == t->runs) return;
    pass->exec = t->runs->exec;
    pass->exec.step_there = there;
    t->runs = pass;
}

static ct_pass *pass_of(const ct_train_step *t, int m)
{
    return t->passes[m % t->schedule->in_flight];
}

/* Begins to receive what other ranks send to the next micro-batches, of which n have gone that way:
 * as many as there are passes, since a pass has room for one. */
static ct_status receive_ahead(ct_train_step *t, bool forward, int n)
{
    int *next = &t->n_ahead[forward], end = n + t->schedule->in_flight;

    if (t->pass->exec.transfers == NULL) return CT_OK;
    for (; (*next < end) && (*next < t->iter_size); ++*next) {
        hand_over(t, pass_of(t, *next));
        CT_TRY(ct_pass_receive_ahead(t->runs, forward));
    }
    return CT_OK;
}

static void say(ct_train_step *t, bool forward, int m)
{
    const char *what = forward ? "forward" : "backward";
    int n = 0;

    if (t->n_stage > 1) n = snprintf(t->doing, sizeof(t->doing), "stage %d: ", t->stage);
    if ((t->n_stage > 1) || (t->schedule->n_micro > 1))
        snprintf(t->doing + n, sizeof(t->doing) - (size_t)n, "%s of micro-batch %d", what, m);
    else
        snprintf(t->doing, sizeof(t->doing), "%s", what);
    beat(t, t->doing);
}

static ct_status run_forward(ct_train_step *t, int m, int64_t iteration, double rate)
{
    CT_TRY(ct_pass_forward_begin(t->runs));
    if (m == 0) CT_TRY(begin(t, iteration, rate));
    if ((m > 0) && ct_step_keeps(t)) CT_TRY(begin_gradients(t, false, !t->last));
    return (t->last && (t->look != NULL)) ? t->look(t->hook_ctx, t->runs) : CT_OK;
}

/* The sums of a micro-batch that is not the last are kept. */
static ct_status on_more(void *ctx)
{
    ct_train_step *t = ctx;

    if (!t->sync->shards && all_landed(t)) return CT_OK;
    return t->sync->transport.ops->finish(t->sync->transport.ctx, on_landed, t);
}

static ct_status keep_backward(ct_train_step *t)
{
    const ct_transport *way = &t->sync->transport;
    const ct_step_after after = { .ready = way->ops->ready,
                                  .ready_ctx = way->ctx,
                                  .wait = on_gradient_wait,
                                  .finish = on_more,
                                  .ctx = t };

    return ct_pass_backward_and(t->runs, &after);
}

static ct_status run_backward(ct_train_step *t, double *loss)
{
    double one = 0.0;

    if (t->last) return last_backward(t);
    if (ct_step_keeps(t))
        CT_TRY(keep_backward(t));
    else
        CT_TRY(ct_pass_backward(t->runs, NULL, NULL));
    /* a device has all of the step to do by now, so waiting for its loss leaves no gap */
    CT_TRY(ct_pass_forward_end(t->runs, &one));
    *loss += one;
    return CT_OK;
}

/* Micro-batch m of the step; n: how many have gone forward so far, and how many backward. */
static ct_status run_item(ct_train_step *t, bool forward, int m, const int *n, int64_t iteration,
                          double rate, double *loss)
{
    CT_TRY(receive_ahead(t, true, n[true]));
    CT_TRY(receive_ahead(t, false, n[false]));
    hand_over(t, pass_of(t, m));
    t->last = (m == t->iter_size - 1);
    t->runs->exec.micro_step = iteration * t->iter_size + m;
    t->runs->exec.accumulate = (m > 0) && !ct_step_keeps(t);
    say(t, forward, m);
    return forward ? run_forward(t, m, iteration, rate) : run_backward(t, loss);
}

static ct_status run_items(ct_train_step *t, int64_t iteration, double rate, double *loss)
{
    const ct_micro_schedule *s = t->schedule;
    int n[2] = { 0, 0 };

    t->n_ahead[true] = t->n_ahead[false] = 0;
    for (int first = 0; first < t->iter_size; first += s->n_micro) {
        for (int i = 0; i < s->n_item; i++) {
            bool forward = s->item[i].forward;

            CT_TRY(run_item(t, forward, first + s->item[i].micro, n, iteration, rate, loss));
            n[forward]++;
        }
    }
    return CT_OK;
}

ct_status ct_train_step_run(ct_train_step *t, int64_t iteration, double rate, double *loss_p)
{
    double loss = 0.0, one = 0.0;

    CT_TRY(run_items(t, iteration, rate, &loss));
    CT_TRY(ct_pass_forward_end(t->runs, &one));
    hand_over(t, t->pass);
    CT_TRY(ct_step_hear(t, false));
    loss += one;
    /* what still travels arrives before its first reader looks */
    weights_changed(t);
    *loss_p = loss / t->iter_size;
    return CT_OK;
}

/* ---- making it */

void ct_exec_set_group(ct_exec *ex, const ct_group *g)
{
    ex->hook_ctx = g->ctx;
    if (g->size == 1) return;
    ex->sum_ranks = g->ops->sum;
    ex->sum_begin = g->ops->sum_begin_f64;
    ex->sum_wait = g->ops->sum_wait;
    ex->sum_poll = g->ops->sum_poll;
    ex->sum_there = g->sums_there ? g->ops->sum_there : NULL;
}

ct_rank_sums ct_group_sums(const ct_group *g)
{
    if (g->size == 1) return (ct_rank_sums){ .ctx = g->ctx };
    return (ct_rank_sums){ .sum = g->ops->sum,
                           .begin = g->ops->sum_begin_f64,
                           .wait = g->ops->sum_wait,
                           .poll = g->ops->sum_poll,
                           .ctx = g->ctx };
}

/* What this rank updates, in the order of the arena. */
static ct_status find_shard(ct_train_step *t)
{
    const ct_grad_sync *s = t->sync;
    int64_t from, count;

    for (int i = 0; s->shards && (i < t->net->n_param) && t->net->param[i].learns; i++) {
        for (int k = 0; s->ops->own(s->ctx, i, k, &from, &count); k++)
            CT_TRY(ct_shard_add(&t->shard, t->net->param[i].offset + from, count));
    }
    return CT_OK;
}

/* In memory, where nobody says otherwise. */
static ct_storage_open_fn usual_open(const ct_train_step *t)
{
    return t->param->verify_memory ? ct_storage_open_checked : ct_storage_open_fixed;
}

/* As long as what learns, or this rank's shard of it; open NULL: the usual one. what: for messages.
 */
static ct_status open_storage(const ct_train_step *t, ct_storage_open_fn open, void *ctx,
                              const char *what, ct_storage *s)
{
    const ct_net *net = t->net;

    if (open == NULL) {
        open = usual_open(t);
        ctx = (void *)(uintptr_t)what;
    }
    if (t->sync->shards)
        return ct_storage_open_shard(&t->shard, open, ctx, t->home, net->grad_count, s);
    return open(ctx, t->home, net->grad_count, s);
}

static ct_status add_history(ct_train_step *t, const char *name)
{
    CT_TRY(open_storage(t, t->open_state, t->open_state_ctx, name, &t->history[t->n_history]));
    t->history_name[t->n_history++] = name;
    return CT_OK;
}

/* What lies elsewhere than in memory has forms of its own. */
static ct_status check_verify(const ct_train_step *t)
{
    if (!t->param->verify_memory || ((t->open_state == NULL) && (t->open_weights == NULL)))
        return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG, "verify_memory and memory { } with weights or states in files do "
                                  "not go together");
}

/* Gradients in 16 bits are those that are kept; others have 32. */
static ct_status check_narrow(const ct_train_step *t, bool window, bool waits)
{
    const ct_device *dev = t->net->options.dev;

    if (dev->kind != CT_DEVICE_CPU)
        return CT_FAIL(CT_ERR_CONFIG,
                       "memory { gradients: BF16 } is not for device %s yet: take F32", dev->name);
    if (!window && (t->net->grad_count > 0))
        return CT_FAIL(CT_ERR_CONFIG,
                       "memory { gradients: BF16 }: among ranks whole gradients are kept in 32 "
                       "bits: take zero: 2 or 3");
    if (!waits)
        CT_INFO("memory: gradients BF16 changes nothing, since weights are updated in backward "
                "and no gradient is kept");
    return CT_OK;
}

/* What is summed does not stay where it is. */
static ct_status open_kept(ct_train_step *t)
{
    const ct_net *net = t->net;
    bool narrow = (t->param->memory != NULL) &&
                  (t->param->memory->gradients == CT__MEMORY_PARAMETER__GRADIENTS__BF16);
    bool window = (net->options.window != NULL) && net->options.window->gradients &&
                  (ct_net_chunk_count(net) > 0);
    bool waits = (t->iter_size > 1) || ct_step_waits_for_all(t);

    if (narrow) CT_TRY(check_narrow(t, window, waits));
    if (!window || !waits || !(t->sync->shards || narrow)) return CT_OK;
    return open_storage(t, narrow ? ct_storage_open_bf16 : NULL, NULL, "sums of gradients",
                        &t->kept);
}

static ct_status open_squares(ct_train_step *t)
{
    const ct_net *net = t->net;
    int64_t *count = calloc(2 * (size_t)net->n_param + 1, sizeof(*count));
    ct_status status;

    if (count == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d norms", net->n_param);
    for (int i = 0; i < net->n_param; i++)
        if (net->param[i].learns) count[2 * i] = count[2 * i + 1] = net->param[i].count;
    status = ct_square_sums_open(count, 2 * net->n_param, &t->squares);
    free(count);
    return status;
}

/* Where the weights are updated. */
static ct_status open_home(ct_train_step *t)
{
    const ct_device *dev = t->net->options.dev;

    t->home = dev;
    if ((dev->kind == CT_DEVICE_CPU) || (!t->on_host && !ct_step_has_visits(t))) return CT_OK;
    t->home = ct_device_cpu();
    return ct_host_update_open(t->net, t->host_piece, &t->host);
}

/* Those that come and go. */
static ct_status open_visits(ct_train_step *t)
{
    static const char weights[] = "weights";
    const ct_net *net = t->net;
    ct_shard own = { .n = 0 };
    ct_status status;

    t->pass->exec.chunk = ct_step_chunk;
    t->pass->exec.chunk_ctx = t;
    t->visit_from = &t->weights;
    t->n_staying = ct_net_staying(net);
    if (t->n_staying == 0)
        return open_storage(t, t->open_weights, t->open_weights_ctx, weights, &t->weights);
    t->staying = ct_storage_at(net->options.dev, net->weight_arena, t->n_staying);
    status = ct_shard_add_from(&t->shard, t->n_staying, &own);
    if (status == CT_OK)
        status = ct_storage_open_shard(
            &own, (t->open_weights != NULL) ? t->open_weights : usual_open(t),
            (t->open_weights != NULL) ? t->open_weights_ctx : (void *)(uintptr_t)weights, t->home,
            net->grad_count, &t->weights);
    ct_shard_destroy(&own);
    return status;
}

static ct_status open_weights(ct_train_step *t)
{
    const ct_net *net = t->net;

    if (ct_step_has_visits(t)) return open_visits(t);
    if ((t->open_weights != NULL) && (net->grad_count > 0))
        return CT_FAIL(CT_ERR_ARG, "weights lie elsewhere, and come for no step of net \"%s\"",
                       net->name);
    if (ct_host_update_is_open(&t->host))
        return open_storage(t, NULL, NULL, "weights", &t->weights);
    t->weights = ct_storage_at(net->options.dev, net->weight_arena, net->grad_count);
    return CT_OK;
}

/* Norms over parts are added up over all ranks of the job when gradients have landed. A stage that
 * waited for them in its next forward would wait for one that waits for its values, so they end the
 * step. */
static ct_status open_ratios(ct_train_step *t)
{
    if ((t->rule->ratio != CT_UPDATE_NO_RATIO) && (t->home->kind == CT_DEVICE_CPU))
        CT_TRY(open_squares(t));
    if (t->parts == NULL) return CT_OK;
    if (t->rule->ratio != CT_UPDATE_NO_RATIO) CT_TRY(ct_part_sums_open(t->parts, 2, &t->ratios));
    if (!ct_step_waits_for_all(t) || (t->net->options.dev->kind == CT_DEVICE_CPU)) return CT_OK;
    return CT_FAIL(
        CT_ERR_CONFIG,
        "device %s: clip_gradients, trust ratios (type %s) and precision FP16 are not for "
        "nets that ranks have parts of",
        t->net->options.dev->name, t->rule->type);
}

/* The host finds the norm. */
static ct_status open_norm(ct_train_step *t)
{
    const ct_transport *way = &t->sync->transport;

    if (t->sync->shards) way->ops->hear_parts(way->ctx, on_part, t);
    if (!ct_update_waits_for_all(t->param) || (t->net->options.dev->kind != CT_DEVICE_CPU))
        return CT_OK;
    CT_TRY(ct_grad_norm_open(t->net, t->parts, &t->norm));
    if (way->ops->hear_parts != NULL) way->ops->hear_parts(way->ctx, on_part, t);
    return CT_OK;
}

static void close_norm(ct_train_step *t)
{
    ct_part_sums_close(&t->ratios);
    ct_square_sums_close(&t->squares);
    if (!ct_grad_norm_is_open(&t->norm) && !((t->sync != NULL) && t->sync->shards)) return;
    if (t->sync->transport.ops->hear_parts != NULL)
        t->sync->transport.ops->hear_parts(t->sync->transport.ctx, NULL, NULL);
    ct_grad_norm_close(&t->norm);
}

/* Forward and backward of each micro-batch once, in its order, and no more of them in flight than
 * is said. */
static bool is_schedule(const ct_micro_schedule *s)
{
    int n[2] = { 0, 0 };

    for (int i = 0; i < s->n_item; i++) {
        bool forward = s->item[i].forward;

        if (s->item[i].micro != n[forward]++) return false;
        if ((n[false] > n[true]) || (n[true] - n[false] > s->in_flight)) return false;
    }
    return (n[true] == s->n_micro) && (n[false] == s->n_micro) && (s->n_micro > 0);
}

static ct_status open_passes(ct_train_step *t)
{
    static const ct_schedule_item one[] = { { true, 0 }, { false, 0 } };
    static const ct_micro_schedule in_turn = { 1, 1, 2, one };
    const ct_micro_schedule *s = (t->schedule != NULL) ? t->schedule : &in_turn;
    int room = (t->net->options.in_flight > 1) ? t->net->options.in_flight : 1;

    t->schedule = s;
    if (!is_schedule(s) || (s->in_flight > room) || (t->iter_size % s->n_micro != 0))
        return CT_FAIL(
            CT_ERR_ARG,
            "%d micro-batches in a schedule of %d, of which %d are in flight and the net "
            "has room for %d",
            t->iter_size, s->n_micro, s->in_flight, room);
    t->passes = calloc((size_t)s->in_flight, sizeof(*t->passes));
    if (t->passes == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a training step");
    t->passes[0] = t->runs = t->pass;
    for (int k = 1; k < s->in_flight; k++) CT_TRY(ct_pass_create(t->net, &t->passes[k]));
    return CT_OK;
}

static void close_passes(ct_train_step *t)
{
    for (int k = 0; (t->passes != NULL) && (k < t->schedule->in_flight); k++) {
        if (t->passes[k] == NULL) continue;
        ct_pass_forget_graphs(t->passes[k]); /* they may have sums over ranks */
        if (k > 0) ct_pass_destroy(t->passes[k]);
    }
    free(t->passes);
    t->passes = NULL;
}

/* What ends a step needs ranks of other stages, which would wait for this one's values in their
 * next forward: norms, and pieces of weights that the first and the last stage share. */
static bool meets_other_stages(const ct_train_step *t)
{
    if (t->parts == NULL) return false;
    return ct_step_waits_for_all(t) || (t->sync->shards && (t->ranks->tied.size > 1));
}

ct_status ct_train_step_open(ct_train_step *t)
{
    const Ct__CommParameter none = CT__COMM_PARAMETER__INIT;
    const Ct__CommParameter *comm = (t->param->comm != NULL) ? t->param->comm : &none;
    const Ct__WeightAverageParameter *average = t->param->average;
    const ct_net *net = t->net;

    if (t->iter_size == 0) t->iter_size = t->param->iter_size;
    t->loss_scale = ct_loss_scale_open(t->param);
    t->landed = calloc((size_t)net->n_param + 1, sizeof(*t->landed));
    t->frozen = calloc((size_t)net->n_param + 1, sizeof(*t->frozen));
    if ((t->landed == NULL) || (t->frozen == NULL))
        return CT_FAIL(CT_ERR_NOMEM, "no memory for a training step");
    CT_TRY(check_verify(t));
    CT_TRY(find_shard(t));
    CT_TRY(open_home(t));
    CT_TRY(open_weights(t));
    CT_TRY(open_kept(t));
    for (int i = 0; i < t->rule->n_state; i++) CT_TRY(add_history(t, t->rule->state_name[i]));
    if ((average != NULL) && (average->type != CT__WEIGHT_AVERAGE_PARAMETER__TYPE__NONE)) {
        CT_TRY(add_history(t, CT_HISTORY_AVERAGE));
        t->average = &t->history[t->n_history - 1];
    }
    CT_TRY(open_ratios(t));
    CT_TRY(ct_update_plan_open(
        net, ct_host_update_is_open(&t->host) ? CT_UPDATE_NO_RATIO : t->rule->ratio, &t->all));
    CT_TRY(open_passes(t));
    CT_TRY(open_norm(t));
    CT_TRY(open_rows(t));
    t->may_overlap = t->several && comm->overlap && comm->forward_overlap && !meets_other_stages(t);
    take_mode(t);
    if (t->rule->corrects || t->rule->freezes) t->sync->momentum = &t->history[0];
    t->pass->exec.wait_ctx = t;
    return CT_OK;
}

void ct_train_step_close(ct_train_step *t)
{
    close_passes(t);
    for (int i = 0; i < t->n_history; i++) (void)ct_storage_close(&t->history[i]); /* it says why */
    (void)ct_storage_close(&t->weights);
    (void)ct_storage_close(&t->staying);
    (void)ct_storage_close(&t->kept);
    ct_host_update_close(&t->host);
    ct_update_plan_close(t->net, &t->all);
    close_norm(t);
    ct_shard_destroy(&t->shard);
    t->n_history = 0;
    t->average = NULL;
    drop_owed(t);
    if (t->net != NULL) ct_residual_drain_close(t->net, &t->late);
    free(t->landed);
    free(t->frozen);
    t->landed = t->frozen = NULL;
}
