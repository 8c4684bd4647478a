/* The chain of a net solved under a limit of memory, and its answers looked at as nets. */
#include "planner/net_plan.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/clock.h"
#include "framework/proto/prototxt.h"
#include "planner/chain.h"
#include "planner/chain_in_turn.h"

/* A plan may leave so much of the limit unused, if the next try does not come closer. */
#define WASTE 0.02
/* Tries for each way of counting what is made again. */
#define MOST_TRIES 12
/* Slots of the limit: of these numbers, that which rounds up least. */
#define LEAST_SLOTS 384
#define MOST_SLOTS  512

typedef struct search {
    const ct_net_plan_request *request;
    ct_net_search *out;
    int64_t beside; /* bytes of the plan of memory that the chain knows nothing of: gradients of
                     * values, scratch, as in the net that keeps everything */
    int64_t least_chain; /* of the chain: below nothing fits, whatever is made again     */
    int *strategy;
    ct_chain_mode *mode, *before; /* the choice under way, and the last that was looked at */
    ct_chain_mode *best;          /* that of the best plan                                 */
    ct_net_plan last;             /* that one's */
    int64_t *kept, *input, *zero; /* [block], in slots */
    double *time_s, *again_s;
} search;

/* ---- plans as nets */

static void plan_destroy(ct_net_plan *p)
{
    free(p->segment);
    *p = (ct_net_plan){ 0 };
}

static ct_status copy_plan(const ct_net_plan *from, ct_net_plan *to)
{
    ct_net_segment *segment = calloc((size_t)from->n_segment + 1, sizeof(*segment));

    if (segment == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d segments", from->n_segment);
    if (from->n_segment > 0)
        memcpy(segment, from->segment, (size_t)from->n_segment * sizeof(*segment));
    free(to->segment);
    *to = *from;
    to->segment = segment;
    return CT_OK;
}

static void fill_plan(const search *s, const ct_net *net, ct_net_plan *p)
{
    p->kept_bytes = ct_net_kept_bytes(net);
    p->transient_bytes = (int64_t)net->memory.planned - p->kept_bytes;
    p->weight_bytes = (int64_t)net->memory.weights +
                      (int64_t)(s->request->options->state_bytes * (double)net->grad_count);
    p->memory_bytes = p->weight_bytes + (int64_t)net->memory.planned;
    p->time = ct_net_seconds_of(net, &s->request->limits);
    p->step_s = p->time.forward_s + p->time.backward_s + p->time.again_s + p->time.update_s;
}

static ct_status note(ct_net_search *o, const ct_net_plan *p)
{
    size_t n = (size_t)o->n_configuration + 1;
    ct_net_plan *more = realloc(o->tried, n * sizeof(*more));

    if (more == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %zu plans", n);
    o->tried = more;
    o->tried[o->n_configuration] = *p;
    o->tried[o->n_configuration++].segment = NULL;
    return CT_OK;
}

/* Makes the net of p's segments; what it takes becomes p's, and the best is kept. */
static ct_status look_at(search *s, ct_net_plan *p)
{
    const ct_net_plan_request *q = s->request;
    ct_net_search *o = s->out;
    ct_net *net = NULL;

    CT_TRY(ct_net_make_again(q->param, q->options, p->segment, p->n_segment, &net));
    fill_plan(s, net, p);
    o->hash = ct_net_hash(net);
    o->batch = (net->batch_global > 0) ? net->batch_global : 1;
    ct_net_destroy(net);
    CT_TRY(note(o, p));
    if ((o->least_bytes == 0) || (p->memory_bytes < o->least_bytes))
        o->least_bytes = p->memory_bytes;
    if ((q->limit > 0) && (p->memory_bytes > q->limit)) return CT_OK;
    if (o->fits && (p->step_s >= o->best.step_s)) return CT_OK;
    o->fits = true;
    memcpy(s->best, s->mode, (size_t)o->chain.n_block * sizeof(s->mode[0]));
    return copy_plan(p, &o->best);
}

/* ---- the chain in slots */

typedef struct way_of_counting {
    bool joint;   /* what is made again takes as long as in segments that go on behind it */
    bool in_turn; /* backward frees memory as it goes (chain_in_turn.h)                   */
} way_of_counting;

static int64_t slots_of(int64_t bytes, double slot)
{
    return (int64_t)ceil((double)bytes / slot - 1e-9);
}

/* What rounding up adds, were everything kept. */
static double waste_of(const ct_net_chain *c, double slot)
{
    double sum = 0;

    for (int b = 0; b < c->n_block; b++) {
        const ct_net_block *k = &c->block[b];

        sum += slot * (double)slots_of(k->kept_bytes, slot) - (double)k->kept_bytes;
        sum += slot * (double)slots_of(k->input_bytes, slot) - (double)k->input_bytes;
    }
    return sum;
}

static int64_t best_slots(const ct_net_chain *c, int64_t bytes)
{
    int64_t best = MOST_SLOTS;
    double least = INFINITY;

    for (int64_t n = LEAST_SLOTS; n <= MOST_SLOTS; n++) {
        double waste = waste_of(c, (double)bytes / (double)n);

        if (waste >= least) continue;
        least = waste;
        best = n;
    }
    return best;
}

static int64_t fixed_bytes(const ct_net_chain *c)
{
    int64_t sum = 0;

    for (int b = 0; b < c->n_block; b++) sum += c->block[b].fixed_bytes;
    return sum;
}

static int64_t all_bytes(const ct_net_chain *c)
{
    int64_t sum = fixed_bytes(c);

    for (int b = 0; b < c->n_block; b++) sum += c->block[b].kept_bytes;
    return sum;
}

/* The choice for so many bytes of the chain. *fits_p: there is one. */
static ct_status solve(search *s, int64_t bytes, way_of_counting way, bool *fits_p)
{
    const ct_net_chain *c = &s->out->chain;
    int64_t room = bytes - fixed_bytes(c), n;
    ct_chain chain = { .name = "the net's chain", .n_block = c->n_block, .n_strategy = 1 };
    double slot, step_s = INFINITY;

    *fits_p = false;
    if (room <= 0) return CT_OK;
    n = best_slots(c, room);
    slot = (double)room / (double)n;
    for (int b = 0; b < c->n_block; b++) {
        const ct_net_block *k = &c->block[b];

        s->kept[b] = slots_of(k->kept_bytes, slot);
        s->input[b] = slots_of(k->input_bytes, slot);
        s->time_s[b] = k->forward_s + k->backward_s;
        s->again_s[b] = way.joint ? k->joint_s : k->again_s;
    }
    chain.limit = n;
    chain.in_flight = 1;
    chain.time_s = s->time_s;
    chain.again_s = s->again_s;
    chain.weight = s->zero;
    chain.kept = s->kept;
    chain.input = s->input;
    CT_TRY(way.in_turn ? ct_chain_solve_in_turn(&chain, s->mode, &step_s)
                       : ct_chain_solve(&chain, s->strategy, s->mode, &step_s));
    *fits_p = isfinite(step_s);
    return CT_OK;
}

static ct_status make_segments(const search *s, ct_net_plan *p)
{
    const ct_net_chain *c = &s->out->chain;

    p->n_segment = 0;
    if (p->segment == NULL) p->segment = calloc((size_t)c->n_block, sizeof(*p->segment));
    if (p->segment == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d blocks", c->n_block);
    for (int b = 0; b < c->n_block; b++) {
        if (s->mode[b] == CT_CHAIN_START) p->segment[p->n_segment++].first = c->block[b].first;
        if (s->mode[b] != CT_CHAIN_KEEP) p->segment[p->n_segment - 1].last = c->block[b].last;
    }
    return CT_OK;
}

/* Solves and looks at the answer: s->last. */
static ct_status try_bytes(search *s, int64_t bytes, way_of_counting way, bool *fits_p)
{
    size_t n = (size_t)s->out->chain.n_block * sizeof(s->mode[0]);

    CT_TRY(solve(s, bytes, way, fits_p));
    if (!*fits_p) return CT_OK;
    if ((s->last.memory_bytes > 0) && (memcmp(s->mode, s->before, n) == 0)) return CT_OK;
    CT_TRY(make_segments(s, &s->last));
    CT_TRY(look_at(s, &s->last));
    memcpy(s->before, s->mode, n);
    return CT_OK;
}

/* ---- as many bytes as make the plan end just below the limit */

/* Bytes for the next try: by what the last one missed or left, within what is known. */
static int64_t next_bytes(int64_t at, int64_t gap, int64_t low, int64_t high)
{
    int64_t next = at + gap;

    if ((next > low) && (next < high)) return next;
    return low + (high - low) / 2;
}

static ct_status fit(search *s, way_of_counting way)
{
    const ct_net_chain *c = &s->out->chain;
    int64_t limit = s->request->limit, most = all_bytes(c) + s->beside;
    int64_t low = s->least_chain - 1, high = most;
    int64_t at = limit - s->out->whole.weight_bytes - s->beside;

    if (at <= low) at = low + 1;
    if (at > most) at = most;
    for (int i = 0; (i < MOST_TRIES) && (high - low > 1); i++) {
        int64_t gap;
        bool fits;

        CT_TRY(try_bytes(s, at, way, &fits));
        gap = fits ? limit - s->last.memory_bytes : limit / 16;
        if (fits && (gap >= 0) && ((double)gap <= WASTE * (double)limit)) return CT_OK;
        if (gap >= 0)
            low = at;
        else
            high = at;
        at = next_bytes(at, gap, low, high);
    }
    return CT_OK;
}

/* Block b, at an end of its segment, kept beside the best plan's others. False: it is within a
 * segment, or kept already, or too large for what is left. */
static bool release(search *s, int b)
{
    const ct_net_chain *c = &s->out->chain;
    int64_t left = s->request->limit - s->out->best.memory_bytes;
    bool goes_on = (b < c->n_block - 1) && (s->best[b + 1] == CT_CHAIN_CONTINUE);

    if ((s->best[b] == CT_CHAIN_KEEP) || ((s->best[b] == CT_CHAIN_CONTINUE) && goes_on) ||
        (c->block[b].kept_bytes > 2 * left))
        return false;
    memcpy(s->mode, s->best, (size_t)c->n_block * sizeof(s->mode[0]));
    s->mode[b] = CT_CHAIN_KEEP;
    if (goes_on) s->mode[b + 1] = CT_CHAIN_START;
    return true;
}

/* What is left of the limit goes to blocks one by one, as long as that makes it faster. */
static ct_status use_rest(search *s)
{
    int tries = 0;

    for (int b = 0; (b < s->out->chain.n_block) && (tries < MOST_TRIES); b++) {
        if (!release(s, b)) continue;
        tries++;
        CT_TRY(make_segments(s, &s->last));
        CT_TRY(look_at(s, &s->last));
    }
    return CT_OK;
}

/* The least bytes for which the chain has an answer. */
static ct_status find_least(search *s, bool in_turn)
{
    int64_t low = fixed_bytes(&s->out->chain), high = all_bytes(&s->out->chain) + s->beside + 1;

    for (int i = 0; (i < 30) && (high - low > high / 1000); i++) {
        int64_t at = low + (high - low) / 2;
        bool fits;

        CT_TRY(solve(s, at, (way_of_counting){ true, in_turn }, &fits));
        if (fits)
            high = at;
        else
            low = at;
    }
    s->least_chain = high;
    return CT_OK;
}

/* Plans around the least chain: what is beside it is not the same in all. */
static ct_status look_for_least(search *s, bool in_turn)
{
    for (int i = 0; i < 12; i++) {
        int64_t at = s->least_chain + (int64_t)(0.02 * i * i * (double)s->least_chain / 4);
        bool fits;

        CT_TRY(try_bytes(s, at, (way_of_counting){ false, in_turn }, &fits));
        CT_TRY(try_bytes(s, at, (way_of_counting){ true, in_turn }, &fits));
    }
    return CT_OK;
}

static ct_status run(search *s)
{
    const ct_net_plan_request *q = s->request;
    ct_net_search *o = s->out;

    CT_TRY(look_at(s, &o->whole));
    CT_TRY(ct_net_chain_make(q->param, q->options, &q->limits, &o->chain));
    if (o->fits) return CT_OK;
    s->beside = o->whole.memory_bytes - o->whole.weight_bytes - all_bytes(&o->chain);
    if (s->beside < 0) s->beside = 0;
    for (int in_turn = 0; in_turn < 2; in_turn++) {
        CT_TRY(find_least(s, in_turn));
        CT_TRY(fit(s, (way_of_counting){ false, in_turn }));
        CT_TRY(fit(s, (way_of_counting){ true, in_turn }));
        if (!o->fits) CT_TRY(look_for_least(s, in_turn));
    }
    return o->fits ? use_rest(s) : CT_OK;
}

static ct_status with_room(search *s)
{
    ct_net_search *o = s->out;
    size_t n = 0;
    ct_status status;

    /* every block has a layer of its own in the message */
    n = s->request->param->n_layer + 1;
    s->strategy = calloc(n, sizeof(*s->strategy));
    s->mode = calloc(3 * n, sizeof(*s->mode));
    s->kept = calloc(3 * n, sizeof(*s->kept));
    s->time_s = calloc(2 * n, sizeof(*s->time_s));
    if ((s->strategy == NULL) || (s->mode == NULL) || (s->kept == NULL) || (s->time_s == NULL)) {
        status = CT_FAIL(CT_ERR_NOMEM, "no memory for %zu layers", n);
    } else {
        s->before = s->mode + n;
        s->best = s->before + n;
        s->input = s->kept + n;
        s->zero = s->input + n;
        s->again_s = s->time_s + n;
        status = run(s);
    }
    plan_destroy(&s->last);
    free(s->strategy);
    free(s->mode);
    free(s->kept);
    free(s->time_s);
    if (status != CT_OK) ct_net_search_destroy(o);
    return status;
}

ct_status ct_net_search_run(const ct_net_plan_request *request, ct_net_search *out)
{
    double start = ct_clock_s();
    search s = { .request = request, .out = out };

    *out = (ct_net_search){ 0 };
    CT_TRY(with_room(&s));
    out->search_s = ct_clock_s() - start;
    return CT_OK;
}

void ct_net_search_destroy(ct_net_search *s)
{
    ct_net_chain_destroy(&s->chain);
    plan_destroy(&s->whole);
    plan_destroy(&s->best);
    free(s->tried);
    *s = (ct_net_search){ 0 };
}

/* ---- its file */

void ct_net_plan_write(const ct_net_search *s, ct_text *out)
{
    const ct_net_chain *c = &s->chain;

    ct_text_add(out, "net_hash: \"%016" PRIx64 "\"\n", s->hash);
    ct_text_add(out, "ranks: 1 global_batch: %" PRId64 " micro_batches: 1\n", s->batch);
    ct_text_add(out, "stage {\n  first: ");
    ct_prototxt_quote(c->block[0].first, out);
    ct_text_add(out, " last: ");
    ct_prototxt_quote(c->block[c->n_block - 1].last, out);
    ct_text_add(out, " rank: 0\n");
    for (int i = 0; i < s->best.n_segment; i++) {
        ct_text_add(out, "  again { first: ");
        ct_prototxt_quote(s->best.segment[i].first, out);
        ct_text_add(out, " last: ");
        ct_prototxt_quote(s->best.segment[i].last, out);
        ct_text_add(out, " }\n");
    }
    ct_text_add(out, "}\n");
}
