/* What corruption.py has gdb call in a rank that stands at ct_solver_agree(): changes one bit of
 * what the solver keeps from step to step. Loaded into the program from outside, which knows
 * nothing of it; made with the headers of the program's own sources. */
#include <stdio.h>

#include "framework/solver/solver_private.h"

int flip(const ct_solver *solver, int what, int k, long place, unsigned bit);

enum { WEIGHTS, HISTORY, STORED_WEIGHTS, CODEC };

/* A number of a storage: of a shard its first piece's. */
static float *in_storage(const ct_solver *s, ct_storage *storage, long place)
{
    const ct_shard *shard = &s->step.shard;
    ct_storage_range r = { .storage = storage, .count = 1, .use = CT_STORAGE_READ };

    r.from = place + (s->exchange.sync.shards ? shard->piece[0].from : 0);
    if (storage->ops->want(storage, NULL, &r) != CT_OK) return NULL;
    if (storage->ops->done(storage, NULL, &r) != CT_OK) return NULL;
    return r.data;
}

/* State k of the first parameter that has one. */
static float *in_codec(const ct_solver *s, int k, long place)
{
    const ct_sync_states *states = &s->exchange.states;
    ct_sync_state state;

    for (int i = 0; i < s->net->n_param; i++)
        if (states->get(states->ctx, i, k, &state)) return state.data + place;
    return NULL;
}

int flip(const ct_solver *solver, int what, int k, long place, unsigned bit)
{
    ct_solver *s = (ct_solver *)(uintptr_t)solver;
    float *at = NULL;

    if (what == WEIGHTS) at = s->net->weight_arena + place;
    if (what == HISTORY) at = in_storage(s, &s->step.history[k], place);
    if (what == STORED_WEIGHTS) at = in_storage(s, &s->step.weights, place);
    if (what == CODEC) at = in_codec(s, k, place);
    if (at == NULL) return 0;
    *(uint32_t *)(void *)at ^= (uint32_t)1 << bit;
    fprintf(stderr, "flipped bit %u: %.9g\n", bit, (double)*at);
    return 1;
}
