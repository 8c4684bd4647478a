/* Choosing engines by timing. */
#include "framework/net/engine_plan.h"

#include <stdlib.h>
#include <string.h>

#include "framework/base/clock.h"
#include "framework/base/memory.h"
#include "framework/net/engine_plan_impl.h"
#include "framework/tensor/device.h"

/* A row costs at most about BUDGET times what its fastest engine takes, and a run or two of each
 * that is slower: with 3 % of 1000 iterations 30 would be allowed. An engine's time is that of its
 * best run: what disturbs only makes slower. */
enum { BUDGET = 20, MAX_ROUND = 9 };
#define HOPELESS 6.0  /* times the fastest, in its first run: not run again      */
#define SLOWER   1.5  /* likewise, in the best of two runs or more               */
#define MARGIN   0.97 /* of the static rule's time that another must stay below  */

ct_engine_plan_entry *ct_engine_plan_find(const ct_engine_plan_section *s, const char *key)
{
    for (int i = 0; i < s->n; i++) {
        if (strcmp(s->row[i].key, key) == 0) return &s->row[i];
    }
    return NULL;
}

ct_engine_plan_entry *ct_engine_plan_add(ct_engine_plan_section *s)
{
    if (s->n == s->capacity) {
        int more = 2 * s->capacity + 16;
        ct_engine_plan_entry *grown = realloc(s->row, (size_t)more * sizeof(*grown));

        if (grown == NULL) return NULL;
        s->row = grown;
        s->capacity = more;
    }
    memset(&s->row[s->n], 0, sizeof(s->row[0]));
    return &s->row[s->n++];
}

bool ct_engine_plan_machine_equal(const ct_engine_plan_machine *a, const ct_engine_plan_machine *b)
{
    return (strcmp(a->cpu, b->cpu) == 0) && (strcmp(a->simd, b->simd) == 0) &&
           (strcmp(a->version, b->version) == 0) && (a->threads == b->threads);
}

/* Names come from the outside: what the text of a plan cannot hold is left out. */
static void clean(char *s)
{
    char *to = s;

    for (; *s != '\0'; s++) {
        if ((*s >= ' ') && (*s <= '~') && (*s != '"')) *to++ = *s;
    }
    *to = '\0';
}

ct_status ct_engine_plan_create(const ct_engine_plan_options *o, ct_engine_plan **plan_p)
{
    ct_engine_plan *p = calloc(1, sizeof(*p));

    if (p != NULL) p->section = calloc(1, sizeof(*p->section));
    if ((p == NULL) || (p->section == NULL)) {
        free(p);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for a plan");
    }
    p->o = *o;
    clean(p->o.machine.cpu);
    clean(p->o.machine.simd);
    clean(p->o.machine.version);
    p->n_section = 1;
    p->section[0].machine = p->o.machine;
    *plan_p = p;
    return CT_OK;
}

void ct_engine_plan_destroy(ct_engine_plan *p)
{
    if (p == NULL) return;
    ct_engine_plan_settle(p);
    for (int i = 0; i < p->n_section; i++) free(p->section[i].row);
    free(p->section);
    free(p);
}

static bool on_host(const ct_device *dev)
{
    return (dev == NULL) || (dev->kind == CT_DEVICE_CPU);
}

void *ct_engine_plan_scratch(ct_engine_plan *p, size_t bytes)
{
    bool host = on_host(p->dev);

    if ((bytes > p->scratch_bytes) || (p->dev != p->scratch_dev)) {
        ct_engine_plan_settle(p);
        if (host)
            p->scratch = ct_mem_acquire(bytes);
        else if (p->dev->mem_acquire(bytes, &p->scratch) != CT_OK)
            p->scratch = NULL;
        p->scratch_bytes = (p->scratch != NULL) ? bytes : 0;
        p->scratch_dev = p->dev;
        if (p->scratch_bytes > p->tally.scratch) p->tally.scratch = p->scratch_bytes;
    }
    return p->scratch;
}

void ct_engine_plan_settle(ct_engine_plan *p)
{
    if (p == NULL) return;
    if (on_host(p->scratch_dev))
        ct_mem_release(p->scratch);
    else
        p->scratch_dev->mem_release(p->scratch);
    p->scratch = NULL;
    p->scratch_bytes = 0;
}

/* ---- timing */

/* One engine's runs. */
typedef struct trial {
    double s; /* of the best run */
    int n;    /* runs that count */
    bool live;
} trial;

typedef struct timing {
    ct_engine_plan *p;
    const ct_engine_plan_ask *a;
    trial t[CT_ENGINE_PLAN_ENGINES];
    double spent;
} timing;

static double now(const ct_engine_plan *p)
{
    return (p->o.clock != NULL) ? p->o.clock(p->o.clock_ctx) : ct_clock_s();
}

/* One run; an engine that fails is out. */
static void run_once(timing *m, int i, bool counts)
{
    const ct_device *dev = m->a->dev;
    trial *t = &m->t[i];
    double start = now(m->p), took;

    t->live = (m->a->run(m->a->ctx, i) == CT_OK);
    if (t->live && !on_host(dev)) t->live = (dev->sync(NULL) == CT_OK);
    took = now(m->p) - start;
    m->spent += took;
    if (!t->live || !counts) return;
    if ((t->n == 0) || (took < t->s)) t->s = took;
    t->n++;
}

static double fastest(const timing *m)
{
    double best = 1e30;

    for (int i = 0; i < m->a->n; i++) {
        if ((m->t[i].n > 0) && m->t[i].live && (m->t[i].s < best)) best = m->t[i].s;
    }
    return best;
}

static int count_live(const timing *m)
{
    int n = 0;

    for (int i = 0; i < m->a->n; i++) n += m->t[i].live;
    return n;
}

/* The static rule's engine first, twice: the first run wakes threads and brings the data. Then the
 * others once, all but the hopeless once more, and in turns those that may win. */
static void run_trials(timing *m)
{
    const ct_engine_plan_ask *a = m->a;

    run_once(m, a->fixed, false);
    if (m->t[a->fixed].live) run_once(m, a->fixed, true);
    for (int i = 0; i < a->n; i++) {
        if (i != a->fixed) run_once(m, i, true);
    }
    for (int r = 0; r < MAX_ROUND; r++) {
        double best = fastest(m), limit = ((r == 0) ? HOPELESS : SLOWER) * best;

        for (int i = 0; i < a->n; i++) m->t[i].live = m->t[i].live && (m->t[i].s <= limit);
        if ((count_live(m) < 2) || ((r > 0) && (m->spent > BUDGET * best))) break;
        for (int i = 0; i < a->n; i++) {
            if (m->t[i].live) run_once(m, i, true);
        }
    }
}

/* The engines by their time; the static rule's comes before what is hardly faster. */
static void fill_row(const timing *m, ct_engine_plan_entry *row)
{
    const ct_engine_plan_ask *a = m->a;
    bool done[CT_ENGINE_PLAN_ENGINES] = { false };

    for (;;) {
        double best = 1e30;
        int which = -1;

        for (int i = 0; i < a->n; i++) {
            double s;

            if (done[i] || (m->t[i].n == 0)) continue;
            s = m->t[i].s * ((i == a->fixed) ? MARGIN : 1.0);
            if (s < best) {
                best = s;
                which = i;
            }
        }
        if (which < 0) return;
        done[which] = true;
        snprintf(row->engine[row->n].name, CT_ENGINE_PLAN_NAME, "%s", a->name[which]);
        row->engine[row->n++].ms = 1e3 * m->t[which].s;
    }
}

/* NULL: there is no such row, and will be none. */
static ct_engine_plan_entry *time_row(ct_engine_plan *p, const ct_engine_plan_ask *a)
{
    timing m = { .p = p, .a = a };
    double start = now(p);
    ct_engine_plan_entry row = { .n = 0 }, *kept;

    p->dev = a->dev;
    if ((a->prepare != NULL) && (a->prepare(a->ctx) != CT_OK)) return NULL;
    run_trials(&m);
    fill_row(&m, &row);
    p->tally.seconds += now(p) - start;
    if (row.n == 0) return NULL;
    kept = ct_engine_plan_add(&p->section[0]);
    if (kept == NULL) return NULL;
    *kept = row;
    snprintf(kept->key, sizeof(kept->key), "%s", a->key);
    p->tally.n_timed++;
    return kept;
}

/* ---- choosing */

static int index_in(const char *const *all, int n, const char *name)
{
    for (int i = 0; i < n; i++) {
        if (strcmp(all[i], name) == 0) return i;
    }
    return -1;
}

static int index_of(const ct_engine_plan_ask *a, const char *name)
{
    return index_in(a->name, a->n, name);
}

/* Rank 0 names its engines, and each rank says which of these it has. */
ct_status ct_engine_plan_agree(ct_engine_plan *p, const char *const *name, int n, bool *all)
{
    char asked[CT_ENGINE_PLAN_ENGINES][CT_ENGINE_PLAN_NAME] = { "" };
    int at[CT_ENGINE_PLAN_ENGINES], has[CT_ENGINE_PLAN_ENGINES];

    for (int i = 0; i < n; i++) all[i] = true;
    if (p->o.n_rank == 1) return CT_OK;
    for (int i = 0; i < n; i++) snprintf(asked[i], CT_ENGINE_PLAN_NAME, "%s", name[i]);
    CT_TRY(p->o.share(p->o.share_ctx, asked, sizeof(asked)));
    for (int i = 0; i < CT_ENGINE_PLAN_ENGINES; i++) {
        asked[i][CT_ENGINE_PLAN_NAME - 1] = '\0';
        at[i] = index_in(name, n, asked[i]);
        has[i] = (at[i] >= 0);
    }
    CT_TRY(p->o.least(p->o.share_ctx, has, CT_ENGINE_PLAN_ENGINES));
    for (int i = 0; i < n; i++) all[i] = false;
    for (int i = 0; i < CT_ENGINE_PLAN_ENGINES; i++) {
        if (has[i] != 0) all[at[i]] = true;
    }
    return CT_OK;
}

/* A row whose engine is not one of those at hand, as after a change by hand. */
static ct_engine_plan_entry *drop_unusable(ct_engine_plan *p, const ct_engine_plan_ask *a,
                                           ct_engine_plan_entry *row)
{
    ct_engine_plan_section *s = &p->section[0];

    if ((row == NULL) || (index_of(a, row->engine[0].name) >= 0)) return row;
    CT_WARN("plan: layer \"%s\": engine \"%s\" cannot run \"%s\": the row is not used", a->layer,
            row->engine[0].name, row->key);
    *row = s->row[--s->n];
    return NULL;
}

static int choose_here(ct_engine_plan *p, const ct_engine_plan_ask *a)
{
    ct_engine_plan_entry *row = drop_unusable(p, a, ct_engine_plan_find(&p->section[0], a->key));
    bool first, timed = false;
    int choice = a->fixed;

    if ((row == NULL) && (a->n > 1) && (p->o.mode != CT_ENGINE_PLAN_REPLAY)) {
        row = time_row(p, a);
        timed = true;
    }
    if (row == NULL) return choice;
    if (p->o.mode != CT_ENGINE_PLAN_SURVEY) choice = index_of(a, row->engine[0].name);
    first = (row->n_asked++ == 0);
    if (!first) return choice;
    snprintf(row->layer, sizeof(row->layer), "%s", a->layer);
    snprintf(row->taken, sizeof(row->taken), "%s", a->name[choice]);
    p->tally.n_row++;
    p->tally.n_replayed += !timed;
    if (choice == a->fixed) return choice;
    p->tally.n_changed++;
    CT_INFO("plan: layer \"%s\", %s: %s instead of %s", a->layer, a->key, a->name[choice],
            a->name[a->fixed]);
    return choice;
}

ct_status ct_engine_plan_choose(ct_engine_plan *p, const ct_engine_plan_ask *a, int *choice_p)
{
    char name[CT_ENGINE_PLAN_NAME] = "";
    int choice = a->fixed;

    if (p->o.rank == 0) choice = choose_here(p, a);
    if (p->o.n_rank > 1) {
        snprintf(name, sizeof(name), "%s", a->name[choice]);
        CT_TRY(p->o.share(p->o.share_ctx, name, sizeof(name)));
        name[CT_ENGINE_PLAN_NAME - 1] = '\0';
        choice = index_of(a, name);
        if (choice < 0)
            return CT_FAIL(CT_ERR_CONFIG,
                           "plan: layer \"%s\": rank 0 takes engine \"%s\" for \"%s\", which this "
                           "rank's processor does not have: on mixed nodes run without --plan",
                           a->layer, name, a->key);
    }
    *choice_p = choice;
    return CT_OK;
}

/* ---- telling */

ct_engine_plan_counts ct_engine_plan_tally(const ct_engine_plan *p)
{
    return p->tally;
}

const ct_engine_plan_entry *ct_engine_plan_row(const ct_engine_plan *p, int i)
{
    return ((i >= 0) && (i < p->section[0].n)) ? &p->section[0].row[i] : NULL;
}

void ct_engine_plan_log(const ct_engine_plan *p)
{
    const ct_engine_plan_counts *t = &p->tally;

    CT_INFO(
        "plan: %d computations with a choice of engines: %d replayed, %d timed in %.2f s (%.1f MB "
        "of scratch, given back); %d not by the static rules",
        t->n_row, t->n_replayed, t->n_timed, t->seconds, (double)t->scratch * 1e-6, t->n_changed);
}
