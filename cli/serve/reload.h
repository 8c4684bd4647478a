/** @file reload.h  Other weights while the server runs: the files are read again and, between two
 * batches, all replicas go over to them, or none does.
 *
 * Reading takes long, and on rank 0 the main thread moves the messages of the others meanwhile. So
 * a thread of its own reads there.
 */
#ifndef CT_RELOAD_H
#define CT_RELOAD_H

#include <pthread.h>
#include <stdatomic.h>

#include "serve/api/dispatch.h"
#include "serve/net/any_model.h"
#include "serve/net/deployed.h"
#include "serve/ranks/replicas.h"

typedef struct ct_reload {
    const ct_deployed_options *files;
    ct_any_model *model;
    ct_deployed **net; /* that the model runs on */
    /* ---- of rank 0 alone */
    ct_replica_weights
        own; /* how it reads and takes them: ct_reload_weights(), or with its group */
    ct_dispatch *dispatch;
    ct_replicas *replicas;   /* NULL: there are none */
    void (*wake)(void *ctx); /* calls ct_reload_look() in the main thread */
    void *ctx;
    /* ---- its own */
    ct_deployed *next; /* opened, not yet in use */
    pthread_t thread;
    bool running, again;
    atomic_bool over;
} ct_reload;

/** Begins, or lets another follow the one that runs. Main thread. */
void ct_reload_ask(ct_reload *r);
/** True while one runs. After each call of `wake`; main thread. */
bool ct_reload_look(ct_reload *r);

/** What one rank does, or each of those that run a net together: opens the files, and says the sum
 *  of the weights; goes over to what is opened, or closes it. CT_ERR_CONFIG and the errors of
 *  ct_deployed_open(), logged. */
ct_replica_weights ct_reload_weights(ct_reload *r);

#endif
