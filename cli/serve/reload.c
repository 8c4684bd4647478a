#include "cli/serve/reload.h"

#include "framework/base/log.h"
#include "framework/base/thread.h"

static ct_status make_net(void *ctx)
{
    ct_reload *r = ctx;
    const ct_deployed_division *d = r->files->division;
    ct_status status;

    CT_TRY(ct_deployed_make(r->files, &r->next));
    status = ct_any_model_accepts(r->model, r->next);
    return (d != NULL) ? d->agree(d->ctx, status) : status;
}

static ct_status load_files(void *ctx, uint64_t *checksum_p)
{
    ct_reload *r = ctx;

    CT_TRY(ct_deployed_load(r->next, r->files->weights));
    return ct_deployed_checksum(r->next, checksum_p);
}

static void take_files(void *ctx, bool use)
{
    ct_reload *r = ctx;
    ct_deployed *unused = r->next;

    if (use) {
        ct_any_model_swap(r->model, r->next);
        unused = *r->net;
        *r->net = r->next;
    }
    ct_deployed_close(unused);
    r->next = NULL;
}

ct_replica_weights ct_reload_weights(ct_reload *r)
{
    return (ct_replica_weights){ r, make_net, load_files, take_files };
}

/* While no batch runs. */
static void take_all(void *ctx)
{
    ct_reload *r = ctx;

    if (r->replicas != NULL) (void)ct_replicas_take(r->replicas, true); /* they cannot fail */
    r->own.take(r->own.ctx, true);
}

static ct_status read_all(ct_reload *r)
{
    uint64_t checksum = 0;
    ct_status status, theirs;

    if (r->replicas != NULL) ct_replicas_open(r->replicas);
    status = r->own.make(r->own.ctx);
    if (status == CT_OK) status = r->own.load(r->own.ctx, &checksum);
    if (r->replicas == NULL) return status;
    theirs = ct_replicas_opened(r->replicas, checksum, status == CT_OK);
    return (status != CT_OK) ? status : theirs;
}

static void *read_again(void *arg)
{
    ct_reload *r = arg;

    if (read_all(r) == CT_OK) {
        ct_dispatch_between(r->dispatch, take_all, r);
        CT_INFO("%s: read again, and in use.", r->files->weights);
    } else {
        if (r->replicas != NULL) (void)ct_replicas_take(r->replicas, false);
        r->own.take(r->own.ctx, false);
        CT_WARN("%s: not taken; the weights are those from before", r->files->weights);
    }
    atomic_store(&r->over, true);
    r->wake(r->ctx);
    return NULL;
}

void ct_reload_ask(ct_reload *r)
{
    r->again = r->running;
    if (r->running) return;
    atomic_store(&r->over, false);
    r->running = (ct_thread_start(read_again, r, &r->thread) == 0);
    if (!r->running) CT_WARN("%s: not read again: no thread for it", r->files->weights);
}

bool ct_reload_look(ct_reload *r)
{
    bool again = r->again;

    if (!r->running || !atomic_load(&r->over)) return r->running;
    (void)pthread_join(r->thread, NULL);
    r->running = r->again = false;
    if (again) ct_reload_ask(r);
    return r->running;
}
