#include "serve/schedule/state.h"

/* Of a prompt, as many tokens take a replica as much as a sequence that grows. */
enum { SEQUENCE_TOKENS = 64 };

static bool has_room(const ct_scheduler *s, int replica, int64_t need)
{
    const ct_given *t = &s->replica[replica];

    return (t->n < s->o.most_sequences) && (need <= s->o.cache_tokens - t->cache);
}

/* *kept_p: what it has of the prompt already. */
static int least_loaded(const ct_scheduler *s, const ct_slot *r, int64_t *kept_p)
{
    int64_t need = ct_slot_cache(s, &r->request), least = 0;
    int best = CT_NO_REPLICA;

    for (int k = 0; k < s->at_once; k++) {
        int64_t kept, load;

        if (!has_room(s, k, need)) continue;
        kept = (s->o.peek != NULL) ? s->o.peek(s->o.ctx, r->request.what, k) : 0;
        load = s->replica[k].prompt + (int64_t)SEQUENCE_TOKENS * s->replica[k].n - kept;
        if ((best != CT_NO_REPLICA) && (load >= least)) continue;
        least = load;
        *kept_p = kept;
        best = k;
    }
    return best;
}

void ct_scheduler_give(ct_scheduler *s)
{
    for (int k = 0; (s->o.most_sequences > 0) && (k < s->waiting.n); k++) {
        ct_slot *r = &s->slot[s->waiting.at[k]];

        if (!ct_slot_is_sequence(r) || (r->replica != CT_NO_REPLICA)) continue;
        r->replica = least_loaded(s, r, &r->run);
        if (r->replica == CT_NO_REPLICA) return;
        s->replica[r->replica].n++;
        s->replica[r->replica].cache += ct_slot_cache(s, &r->request);
        s->replica[r->replica].prompt += ct_slot_rest(r);
        s->n_given++;
    }
}

bool ct_scheduler_begin(ct_scheduler *s, int i)
{
    ct_slot *r = &s->slot[i];
    int64_t kept = 0;

    if (s->o.begin != NULL) kept = s->o.begin(s->o.ctx, r->request.what, r->replica);
    if (kept == CT_BEGIN_FAILED) ct_scheduler_end(s, i, CT_OUTCOME_FAILED);
    if (kept < 0) return false;
    ct_slot_list_take_out(&s->waiting, i);
    ct_slot_list_put_in_order(s, &s->begun, i);
    s->stats.prompt += r->request.tokens;
    s->stats.cached += kept;
    s->replica[r->replica].prompt -= kept - r->run;
    r->run = kept;
    r->state = CT_SLOT_PROMPT;
    return true;
}

void ct_scheduler_read_replica(const ct_scheduler *s, int replica, ct_replica_load *load)
{
    *load = (ct_replica_load){ .sequences = 0 };
    for (int k = 0; k < s->begun.n; k++) {
        const ct_slot *r = &s->slot[s->begun.at[k]];

        if (r->replica != replica) continue;
        load->sequences++;
        load->cache_taken += ct_slot_cache(s, &r->request);
    }
}

int ct_scheduler_due(const ct_scheduler *s, int replica)
{
    return s->replica[replica].n - s->replica[replica].n_running;
}

int64_t ct_scheduler_given(const ct_scheduler *s)
{
    return s->n_given;
}
