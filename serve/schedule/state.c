#include "serve/schedule/state.h"

#include <string.h>

void ct_slot_list_put(ct_slot_list *list, int i)
{
    list->at[list->n++] = i;
}

void ct_slot_list_put_in_order(ct_scheduler *s, ct_slot_list *list, int i)
{
    int k = list->n++;

    for (; (k > 0) && (s->slot[list->at[k - 1]].arrival_s > s->slot[i].arrival_s); k--)
        list->at[k] = list->at[k - 1];
    list->at[k] = i;
}

void ct_slot_list_take_out(ct_slot_list *list, int i)
{
    int k = 0;

    while (list->at[k] != i) k++;
    memmove(list->at + k, list->at + k + 1, (size_t)(list->n - k - 1) * sizeof(int));
    list->n--;
}

bool ct_slot_has_begun(const ct_slot *r)
{
    return (r->state == CT_SLOT_PROMPT) || (r->state == CT_SLOT_STEPS);
}

bool ct_slot_is_sequence(const ct_slot *r)
{
    return r->request.most_new > 0;
}

int64_t ct_slot_cache(const ct_scheduler *s, const ct_request *r)
{
    int64_t page = (s->o.page_tokens > 0) ? s->o.page_tokens : 1;

    return (r->tokens + r->most_new + page - 1) / page * page;
}

int64_t ct_slot_rest(const ct_slot *r)
{
    return r->request.tokens - r->run;
}

void ct_scheduler_end(ct_scheduler *s, int i, ct_outcome outcome)
{
    ct_slot *r = &s->slot[i];

    if (r->replica != CT_NO_REPLICA) {
        s->replica[r->replica].n--;
        s->replica[r->replica].cache -= ct_slot_cache(s, &r->request);
        if (r->state != CT_SLOT_STEPS) s->replica[r->replica].prompt -= ct_slot_rest(r);
    }
    if (r->state == CT_SLOT_WAITING) ct_slot_list_take_out(&s->waiting, i);
    if (ct_slot_has_begun(r)) {
        ct_slot_list_take_out(&s->begun, i);
        if ((r->made > 0) && ((outcome == CT_OUTCOME_DONE) || (outcome == CT_OUTCOME_EXPIRED)))
            ct_growth_note(&s->growth, r->made);
    }
    r->state = CT_SLOT_ENDED;
    r->outcome = outcome;
    r->running = false;
    s->stats.ended[outcome]++;
    ct_slot_list_put(&s->ended, i);
}

bool ct_scheduler_take_ended(ct_scheduler *s, void **what_p, ct_outcome *outcome_p)
{
    ct_slot *r;
    int i;

    if (s->ended.n == 0) return false;
    i = s->ended.at[0];
    ct_slot_list_take_out(&s->ended, i);
    r = &s->slot[i];
    r->state = CT_SLOT_FREE;
    r->turn++;
    ct_slot_list_put(&s->unused, i);
    *what_p = r->request.what;
    *outcome_p = r->outcome;
    return true;
}
