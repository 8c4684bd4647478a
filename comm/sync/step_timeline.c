#include "comm/sync/step_timeline.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef enum { CODING_NONE, CODING_ENCODES, CODING_DECODES } coding;

typedef struct travel {
    int missing;      /* gradients not ready */
    coding coding;    /* by another thread: is to be done, or is under way, … */
    double code_rest; /* … and takes so long on one core                      */
    bool left, landed, reported;
    double rest; /* on the link */
    /* with shards: the own part is summed, and updated; weights come at a visit */
    bool summed, told, owned, visiting;
    double visit_rest;
} travel;

typedef struct timeline {
    const ct_step_timeline *line;
    const ct_step_timeline_message *parcel;
    travel *travel; /* [n] */
    int n, n_reported;
    int *parts_left;  /* [n_range]                                               */
    int *parcel_of;   /* [n_range] the first that has it; -1: none               */
    double now, link; /* clocks of the rank, and of the link up to which it is known */
    double exposed, gathered;
    bool open, forward; /* forward: the list that runs                   */
    bool updated;       /* with after_all and shards: all own parts are */
    int coded;          /* the other thread is at it; -1: at nothing     */
    bool waits;         /* the rank has nothing else to do               */
    ct_step_visits visits;
} timeline;

static bool has_coder(const timeline *t)
{
    return t->line->alone > 0;
}

/* ---- weights that come for the steps that read them */

static void add_visit(ct_step_visit *list, int *n_p, int chunk, int event)
{
    int at = *n_p;

    for (int k = 0; k < *n_p; ++k)
        if (list[k].chunk == chunk) return;
    for (; (at > 0) && (list[at - 1].event > event); --at) list[at] = list[at - 1];
    list[at] = (ct_step_visit){ .event = event, .chunk = chunk };
    *n_p += 1;
}

static void add_backward(const ct_step_timeline *line, const int *chunk, ct_step_visits *v)
{
    int ran = 0;

    for (int i = 0; i < line->n_backward; ++i) {
        const ct_step_timeline_event *e = &line->backward[i];
        bool stays = false;

        if (e->kind == CT_STEP_TIMELINE_RUN) ran = i;
        if (e->kind != CT_STEP_TIMELINE_READY) continue;
        for (int k = v->n_forward - 1; (k >= 0) && (k >= v->n_forward - 1 - line->ahead); --k)
            stays = stays || (v->forward[k].chunk == chunk[e->range]);
        if (!stays) add_visit(v->backward, &v->n_backward, chunk[e->range], ran);
    }
}

ct_status ct_step_visits_find(const ct_step_timeline *line, const int *chunk, ct_step_visits *out)
{
    ct_step_visits v = { .n_forward = 0 };

    v.forward = calloc(2 * (size_t)line->n_range + 1, sizeof(*v.forward));
    if (v.forward == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for the visits of weights");
    v.backward = v.forward + line->n_range;
    for (int i = 0; i < line->n_forward; ++i) {
        const ct_step_timeline_event *e = &line->forward[i];

        if (e->kind == CT_STEP_TIMELINE_READ)
            add_visit(v.forward, &v.n_forward, chunk[e->range], i);
    }
    add_backward(line, chunk, &v);
    *out = v;
    return CT_OK;
}

void ct_step_visits_release(ct_step_visits *v)
{
    free(v->forward);
    *v = (ct_step_visits){ .forward = NULL };
}

/* ---- the link */

static bool is_moving(const travel *b)
{
    return b->left && !b->landed && (b->coding == CODING_NONE) && !(b->summed && !b->owned);
}

/* Weights that are read soon; of others under way the last in the arena, which forward reads first.
 */
static int first_under_way(const timeline *t, bool *visit_p)
{
    *visit_p = true;
    for (int i = t->n - 1; i >= 0; --i) {
        if (t->travel[i].visiting) return i;
    }
    *visit_p = false;
    for (int i = t->n - 1; i >= 0; --i) {
        if (is_moving(&t->travel[i])) return i;
    }
    return -1;
}

static void ask_coder(timeline *t, int i, coding what)
{
    const ct_step_timeline_message *p = &t->parcel[i];

    t->travel[i].coding = what;
    t->travel[i].code_rest =
        ((what == CODING_ENCODES) ? p->encode_s : p->decode_s) * t->line->alone;
}

/* What the other thread is at, or takes now; -1: nothing. */
static int find_coded(timeline *t)
{
    for (int i = 0; (t->coded < 0) && (i < t->n); ++i)
        if (t->travel[i].coding == CODING_ENCODES) t->coded = i;
    for (int i = t->n - 1; (t->coded < 0) && (i >= 0); --i)
        if (t->travel[i].coding == CODING_DECODES) t->coded = i;
    return t->coded;
}

/* The sum of bucket i is there, or the part that this rank has of it. */
static void complete(timeline *t, int i)
{
    travel *b = &t->travel[i];

    if ((t->line->owned > 0) && !b->summed)
        b->summed = true;
    else
        b->landed = true;
}

static void end_coding(timeline *t, int i)
{
    travel *b = &t->travel[i];

    t->coded = -1;
    if (b->coding == CODING_ENCODES)
        b->left = true;
    else
        complete(t, i);
    b->coding = CODING_NONE;
}

/* The link has done this for bucket i. */
static void arrive(timeline *t, int i, bool visit)
{
    travel *b = &t->travel[i];

    if (visit)
        b->visiting = false;
    else if (has_coder(t) && !b->summed && (t->parcel[i].decode_s > 0))
        ask_coder(t, i, CODING_DECODES);
    else
        complete(t, i);
}

/* Lets the link, and the thread that codes, work until `until`, or until one has done something
 * with stop_at_landing. */
static void advance(timeline *t, double until, bool stop_at_landing)
{
    while (t->link < until) {
        bool visit = false;
        int i = first_under_way(t, &visit), k = find_coded(t);
        double *rest = (i < 0) ? NULL : visit ? &t->travel[i].visit_rest : &t->travel[i].rest;
        double speed = t->waits ? t->line->alone : 1;
        double moves = (i >= 0) ? *rest : INFINITY;
        double codes = (k >= 0) ? t->travel[k].code_rest / speed : INFINITY;
        double passes = fmin(until - t->link, fmin(moves, codes));

        if ((i < 0) && (k < 0)) break;
        t->link = (passes == until - t->link) ? until : t->link + passes;
        if (i >= 0) *rest -= passes;
        if (k >= 0) t->travel[k].code_rest -= passes * speed;
        if (codes == passes) end_coding(t, k);
        if (moves == passes) arrive(t, i, visit);
        if (stop_at_landing && ((codes == passes) || (moves == passes))) return;
    }
    if ((t->link < until) && isfinite(until)) t->link = until; /* idle */
}

/* Something that goes on for `busy` takes that share of the rank's time meanwhile. */
static double slowed(double seconds, double share, double busy)
{
    return (seconds < (1 - share) * busy) ? seconds / (1 - share) : seconds + share * busy;
}

/* The rank works for so long. Messages under way have a share of its time, and what is encoded or
 * decoded one of its cores. */
static void work(timeline *t, double seconds)
{
    const double most = 0.9; /* something is always left to it */
    double taken = fmin(t->line->taken, most), busy = 0;

    if (taken > 0) {
        advance(t, t->now, false);
        for (int i = 0; i < t->n; ++i)
            busy += (is_moving(&t->travel[i]) ? t->travel[i].rest : 0) +
                    (t->travel[i].visiting ? t->travel[i].visit_rest : 0);
    }
    seconds = slowed(seconds, taken, busy);
    if (has_coder(t)) {
        double codes = 0;

        advance(t, t->now, false);
        for (int i = 0; i < t->n; ++i)
            if (t->travel[i].coding != CODING_NONE) codes += t->travel[i].code_rest;
        seconds = slowed(seconds, 1.0 / t->line->cores, codes);
    }
    t->now += seconds;
}

/* The rank encodes or decodes by itself. */
static void code(timeline *t, double seconds)
{
    double before = t->now;

    work(t, seconds);
    t->exposed += t->now - before;
}

/* The link of what leaves only now was idle until now. */
static void leave(timeline *t, int i)
{
    if (has_coder(t) && (t->parcel[i].encode_s > 0)) {
        advance(t, t->now, false);
        ask_coder(t, i, CODING_ENCODES);
        return;
    }
    code(t, t->parcel[i].encode_s);
    advance(t, t->now, false);
    t->travel[i].left = true;
}

/* The own part of bucket i has new weights: the others' are to come, unless a step asks for them.
 */
static void let_gather(timeline *t, int i)
{
    travel *b = &t->travel[i];

    advance(t, t->now, false);
    b->owned = true;
    b->rest = t->parcel[i].gather_s;
    if (t->line->visits)
        b->landed = true;
    else
        t->gathered += (double)t->parcel[i].count;
}

static double own_s(const timeline *t, int i, double element_s)
{
    return element_s * t->line->owned * (double)t->parcel[i].count;
}

/* Own parts that are summed: their update, or what they add to a norm. */
static void own(timeline *t)
{
    int missing = 0;

    for (int i = 0; (t->line->owned > 0) && (i < t->n); ++i) {
        travel *b = &t->travel[i];

        if (b->summed && !b->told) {
            b->told = true;
            if (!has_coder(t)) code(t, t->parcel[i].decode_s);
            work(t, own_s(t, i, t->line->after_all ? t->line->norm_s : t->line->update_s));
            if (!t->line->after_all) let_gather(t, i);
        }
        missing += !b->summed;
    }
    if ((t->line->owned <= 0) || !t->line->after_all || t->updated || (missing > 0)) return;
    for (int i = 0; i < t->n; ++i) work(t, own_s(t, i, t->line->update_s));
    t->updated = true;
    for (int i = 0; i < t->n; ++i) let_gather(t, i);
}

static void take(timeline *t, int i)
{
    const ct_step_timeline_message *p = &t->parcel[i];
    double at_once_s = t->line->after_all ? t->line->norm_s : t->line->update_s;
    double decode_s = p->decode_s;

    if (t->line->owned > 0) at_once_s = decode_s = 0; /* own() has them */
    if (has_coder(t)) decode_s = 0;

    t->travel[i].reported = true;
    t->n_reported += 1;
    code(t, decode_s);
    for (int k = p->first; k < p->first + p->n; ++k) {
        t->parts_left[k] -= 1;
        if (t->parts_left[k] == 0) work(t, at_once_s * (double)t->line->count[k]);
    }
    advance(t, t->now, false);
}

/* What landed is decoded and updated at once; while that goes on more may land. */
static void report(timeline *t)
{
    for (bool again = true; again;) {
        again = false;
        own(t);
        for (int i = 0; i < t->n; ++i) {
            if (!t->travel[i].landed || t->travel[i].reported) continue;
            take(t, i);
            again = true;
        }
    }
    t->open = (t->n_reported < t->n);
}

static bool all_reported(const timeline *t, int first, int n)
{
    for (int k = first; k < first + n; ++k) {
        if (t->parts_left[k] > 0) return false;
    }
    return true;
}

static void update_all(timeline *t)
{
    for (int k = 0; k < t->line->n_range; ++k)
        work(t, t->line->update_s * (double)t->line->count[k]);
    advance(t, t->now, false);
}

static void wait_for(timeline *t, int first, int n)
{
    if (!t->open) return;
    if (t->line->after_all) {
        first = 0;
        n = t->line->n_range;
    }
    for (int i = 0; i < t->n; ++i) {
        if (t->travel[i].left || (t->travel[i].coding != CODING_NONE))
            continue; /* without overlap they leave only now */
        t->link = fmax(t->link, t->now);
        leave(t, i);
    }
    advance(t, t->now, false);
    report(t);
    while (!all_reported(t, first, n)) {
        t->waits = true;
        advance(t, INFINITY, true);
        t->waits = false;
        if (t->link > t->now) {
            t->exposed += t->link - t->now;
            t->now = t->link;
        }
        report(t);
    }
    if (t->line->after_all && (t->line->owned <= 0)) update_all(t);
}

static void ready(timeline *t, int range)
{
    int i = t->parcel_of[range];

    advance(t, t->now, false);
    for (; (i >= 0) && (i < t->n) && (t->parcel[i].first <= range); ++i) {
        if (range >= t->parcel[i].first + t->parcel[i].n) continue;
        t->travel[i].missing -= 1;
        if ((t->travel[i].missing == 0) && (t->line->overlap != CT_STEP_TIMELINE_OFF)) leave(t, i);
    }
    own(t);
}

static void begin(timeline *t)
{
    memset(t->parts_left, 0, sizeof(*t->parts_left) * (size_t)t->line->n_range);
    for (int i = 0; i < t->n; ++i) {
        const ct_step_timeline_message *p = &t->parcel[i];

        t->travel[i] = (travel){ .missing = p->n, .rest = p->wire_s };
        for (int k = p->first; k < p->first + p->n; ++k) t->parts_left[k] += 1;
    }
    t->n_reported = 0;
    t->open = (t->n > 0);
    t->updated = false;
}

/* Weights of a chunk, which has the number of its first bucket, begin to come: new ones. */
static void ask(timeline *t, int chunk)
{
    const ct_step_timeline_message *p = &t->parcel[chunk];
    int n = (p->n_part > 1) ? p->n_part : 1;

    if (t->open && t->forward) wait_for(t, p->first, p->n);
    advance(t, t->now, false);
    for (int i = chunk; i < chunk + n; ++i) {
        t->travel[i].visiting = true;
        t->travel[i].visit_rest = t->parcel[i].gather_s;
        t->gathered += (double)t->parcel[i].count;
    }
}

static bool is_visiting(const timeline *t, int chunk)
{
    int n = (t->parcel[chunk].n_part > 1) ? t->parcel[chunk].n_part : 1;

    for (int i = chunk; i < chunk + n; ++i)
        if (t->travel[i].visiting) return true;
    return false;
}

static void wait_visit(timeline *t, int chunk)
{
    advance(t, t->now, false);
    while (is_visiting(t, chunk)) {
        advance(t, INFINITY, true);
        if (t->link <= t->now) continue;
        t->exposed += t->link - t->now;
        t->now = t->link;
    }
}

static void run_list(timeline *t, const ct_step_timeline_event *list, int n,
                     const ct_step_visit *visit, int n_visit)
{
    int asked = 0, met = 0;

    for (int i = 0; i < n; ++i) {
        const ct_step_timeline_event *e = &list[i];

        for (; (met < n_visit) && (visit[met].event == i); ++met) {
            for (; (asked < n_visit) && (asked <= met + t->line->ahead); ++asked)
                ask(t, visit[asked].chunk);
            wait_visit(t, visit[met].chunk);
        }
        if (e->kind == CT_STEP_TIMELINE_RUN) work(t, e->seconds);
        if (e->kind == CT_STEP_TIMELINE_READY) ready(t, e->range);
        if ((e->kind == CT_STEP_TIMELINE_READ) && t->open) wait_for(t, e->range, 1);
    }
}

/* The first steps differ: nothing is under way before them. The last of a few is the steady one. */
static void run_steps(timeline *t, ct_step_timeline_times *out)
{
    enum { N_STEP = 4 };
    const ct_step_timeline *l = t->line;

    for (int i = 0; i < N_STEP; ++i) {
        double mark = t->now, exposed = t->exposed, gathered = t->gathered;

        t->forward = true;
        run_list(t, l->forward, l->n_forward, t->visits.forward, t->visits.n_forward);
        if (t->open) wait_for(t, 0, l->n_range);
        begin(t);
        t->forward = false;
        run_list(t, l->backward, l->n_backward, t->visits.backward, t->visits.n_backward);
        if (t->open && (l->overlap != CT_STEP_TIMELINE_BOTH)) wait_for(t, 0, l->n_range);
        *out = (ct_step_timeline_times){ .step_s = t->now - mark,
                                         .exposed_s = t->exposed - exposed,
                                         .gathered = t->gathered - gathered };
    }
}

void ct_step_timeline_code_apart(ct_step_timeline *line, int cores, double one_core)
{
    line->cores = cores;
    line->alone = 0;
    if (cores > 1) line->alone = (one_core > 0) ? fmin(fmax(one_core, 1), cores) : cores;
}

ct_status ct_step_timeline_run(const ct_step_timeline *line, const ct_step_timeline_message *parcel,
                               int n_parcel, ct_step_timeline_times *out)
{
    timeline t = { .line = line, .parcel = parcel, .n = n_parcel, .coded = -1 };
    size_t n = (size_t)line->n_range + 1;
    ct_status status = CT_OK;

    t.travel = calloc((size_t)n_parcel + 1, sizeof(*t.travel));
    t.parts_left = calloc(2 * n, sizeof(*t.parts_left));
    if ((t.travel == NULL) || (t.parts_left == NULL)) {
        free(t.travel);
        free(t.parts_left);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for a timeline");
    }
    t.parcel_of = t.parts_left + n;
    for (int k = 0; k < line->n_range; ++k) t.parcel_of[k] = -1;
    for (int i = n_parcel - 1; i >= 0; --i) {
        for (int k = parcel[i].first; k < parcel[i].first + parcel[i].n; ++k) t.parcel_of[k] = i;
    }
    if (line->visits) status = ct_step_visits_find(line, t.parcel_of, &t.visits);
    if (status == CT_OK) run_steps(&t, out);
    ct_step_visits_release(&t.visits);
    free(t.travel);
    free(t.parts_left);
    return status;
}

/* ---- watching it */

void ct_step_observer_release(ct_step_observer *w)
{
    for (int i = 0; i < CT_STEP_OBSERVER_CYCLES; ++i) free(w->event[i]);
    free(w->now);
    memset(w, 0, sizeof(*w));
}

void ct_step_observer_enter(ct_step_observer *w, double now)
{
    w->depth += 1;
    if (w->depth > 1) return;
    if (w->left_at > 0) w->pending_s += now - w->left_at;
    w->left_at = 0;
}

void ct_step_observer_leave(ct_step_observer *w, double now)
{
    if (w->depth > 0) w->depth -= 1; /* it was switched on inside */
    if (w->depth == 0) w->left_at = now;
}

/* Where memory is short there will be no line. */
static void push(ct_step_observer *w, ct_step_timeline_event e)
{
    if (w->n == w->room) {
        int room = (w->room > 0) ? 2 * w->room : 64;
        ct_step_timeline_event *more = realloc(w->now, sizeof(*more) * (size_t)room);

        if (more == NULL) {
            w->on = false;
            return;
        }
        w->now = more;
        w->room = room;
    }
    w->now[w->n++] = e;
}

static void push_run(ct_step_observer *w)
{
    push(w, (ct_step_timeline_event){ .kind = CT_STEP_TIMELINE_RUN, .seconds = w->pending_s });
    w->pending_s = 0;
}

void ct_step_observer_note(ct_step_observer *w, ct_step_timeline_kind kind, int range)
{
    if (!w->on) return;
    push_run(w);
    push(w, (ct_step_timeline_event){ .kind = kind, .range = range });
}

void ct_step_observer_turn(ct_step_observer *w, bool begins)
{
    if (w->on && !begins && (w->n_cycle < CT_STEP_OBSERVER_CYCLES)) {
        push_run(w);
        w->event[w->n_cycle] = w->now;
        w->length[w->n_cycle++] = w->n;
        w->now = NULL;
        w->room = 0;
    }
    w->n = 0;
    w->pending_s = 0;
}

static double middle(double a, double b, double c)
{
    double low = (a < b) ? a : b, high = (a < b) ? b : a;

    return (c < low) ? low : (c > high) ? high : c;
}

bool ct_step_observer_line(ct_step_observer *w, ct_step_timeline *line)
{
    ct_step_timeline_event *last = NULL;
    int n = 0, backward = 0, reads = 0;
    bool alike = (w->n_cycle == CT_STEP_OBSERVER_CYCLES);

    if (w->n_cycle == 0) return false;
    last = w->event[w->n_cycle - 1];
    n = w->length[w->n_cycle - 1];
    for (int k = 0; k < w->n_cycle; ++k) {
        alike = alike && (w->length[k] == n);
        for (int i = 0; alike && (i < n); ++i)
            alike =
                (w->event[k][i].kind == last[i].kind) && (w->event[k][i].range == last[i].range);
    }
    for (int i = 0; i < n; ++i) {
        if (alike && (last[i].kind == CT_STEP_TIMELINE_RUN))
            last[i].seconds =
                middle(w->event[0][i].seconds, w->event[1][i].seconds, last[i].seconds);
        if (last[i].kind == CT_STEP_TIMELINE_READY) backward = i + 1;
        reads += (last[i].kind == CT_STEP_TIMELINE_READ);
    }
    line->backward = last;
    line->n_backward = backward;
    line->forward = last + backward;
    line->n_forward = n - backward;
    if ((reads == 0) && (line->overlap == CT_STEP_TIMELINE_BOTH))
        line->overlap = CT_STEP_TIMELINE_BACKWARD;
    return backward > 0;
}
