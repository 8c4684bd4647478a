/* Choosing engines by timing, and the text of plans. */
#include "framework/net/engine_plan.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "framework/base/clock.h"
#include "framework/base/file.h"
#include "framework/base/memory.h"
#include "framework/tensor/device.h"

typedef struct engine_plan_section {
    ct_engine_plan_machine machine;
    ct_engine_plan_entry *row;
    int n, capacity;
} engine_plan_section;

struct ct_engine_plan {
    ct_engine_plan_options o;
    engine_plan_section *section; /* [0]: this machine's */
    int n_section;
    void *scratch;
    size_t scratch_bytes;
    const struct ct_device *scratch_dev, *dev; /* where it lies; of the ask under way. NULL: CPU */
    ct_engine_plan_counts tally;
    bool kept; /* something was kept that the file does not have yet */
};

/* A row costs at most about BUDGET times what its fastest engine takes, and a run or two of each
 * that is slower: with 3 % of 1000 iterations 30 would be allowed. An engine's time is that of its
 * best run: what disturbs only makes slower. */
enum { BUDGET = 20, MAX_ROUND = 9 };
#define HOPELESS 6.0  /* times the fastest, in its first run: not run again      */
#define SLOWER   1.5  /* likewise, in the best of two runs or more               */
#define MARGIN   0.97 /* of the static rule's time that another must stay below  */

/* The row of that key, or NULL. */
static ct_engine_plan_entry *engine_plan_find(const engine_plan_section *s, const char *key)
{
    for (int i = 0; i < s->n; i++) {
        if (strcmp(s->row[i].key, key) == 0) return &s->row[i];
    }
    return NULL;
}

/* Appends a zeroed one; NULL without memory. */
static ct_engine_plan_entry *engine_plan_add(engine_plan_section *s)
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

static bool engine_plan_machine_equal(const ct_engine_plan_machine *a,
                                      const ct_engine_plan_machine *b)
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
    kept = engine_plan_add(&p->section[0]);
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
    engine_plan_section *s = &p->section[0];

    if ((row == NULL) || (index_of(a, row->engine[0].name) >= 0)) return row;
    CT_WARN("plan: layer \"%s\": engine \"%s\" cannot run \"%s\": the row is not used", a->layer,
            row->engine[0].name, row->key);
    *row = s->row[--s->n];
    return NULL;
}

static int choose_here(ct_engine_plan *p, const ct_engine_plan_ask *a)
{
    ct_engine_plan_entry *row = drop_unusable(p, a, engine_plan_find(&p->section[0], a->key));
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

/* ---- keeping */

/* Whether a row of the text can begin so, or a name stand in it. */
static bool can_stand(const char *s, size_t size, char without)
{
    size_t n = strlen(s);

    for (const char *c = s; *c != '\0'; c++)
        if ((*c < ' ') || (*c > '~') || (*c == without)) return false;
    return (n > 0) && (n < size) && (strncmp(s, "machine ", 8) != 0) &&
           (strncmp(s, "end ", 4) != 0) && (s[0] != '#');
}

ct_status ct_engine_plan_keep(ct_engine_plan *p, const char *key, const char *name, double ms)
{
    ct_engine_plan_entry *row = engine_plan_find(&p->section[0], key);

    if (!can_stand(key, CT_ENGINE_PLAN_KEY, '|') || !can_stand(name, CT_ENGINE_PLAN_NAME, ' ') ||
        !(ms >= 0.0) || !(ms < 1e12))
        return CT_FAIL(CT_ERR_ARG, "plan: \"%s | %s %g\" can be no row", key, name, ms);
    if (row == NULL) row = engine_plan_add(&p->section[0]);
    if (row == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a plan");
    snprintf(row->key, sizeof(row->key), "%s", key);
    snprintf(row->engine[0].name, sizeof(row->engine[0].name), "%s", name);
    row->engine[0].ms = ms;
    row->n = 1;
    p->kept = true;
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

#define TITLE "cortado plan 1"
/* rows of a machine are looked through for each that comes */
enum { MAX_ROW = 100000, MAX_OF_MACHINE = 10000, MAX_SECTION = 1000, MAX_LINE = 1000 };

/* ---- reading the text of plans */

typedef struct reader {
    ct_engine_plan *p;
    const char *path, *at, *end; /* what is left */
    int line;                    /* the one at hand, from 1 */
    int n_row;                   /* of the text so far      */
    int section;                 /* -1: none yet            */
    int n_mine;
} reader;

static ct_status damaged(const reader *r, const char *what)
{
    return CT_FAIL(CT_ERR_DATA, "%s:%d: damaged plan: %s", r->path, r->line, what);
}

/* The next line without its end; false where there is none. A last line must end, too. */
static ct_status next_line(reader *r, char *line, bool *there_p)
{
    const char *stop = memchr(r->at, '\n', (size_t)(r->end - r->at));
    size_t n;

    *there_p = (r->at < r->end);
    if (!*there_p) return CT_OK;
    r->line++;
    if (stop == NULL) return damaged(r, "the last line is cut short");
    n = (size_t)(stop - r->at);
    if (n >= MAX_LINE) return damaged(r, "a line of more than 1000 characters");
    for (size_t i = 0; i < n; i++) {
        if ((r->at[i] < ' ') || (r->at[i] > '~')) return damaged(r, "not plain text");
    }
    memcpy(line, r->at, n);
    line[n] = '\0';
    r->at = stop + 1;
    return CT_OK;
}

/* "text" at *at_p, which moves behind it; quotes and backslashes do not occur in it. */
static bool take_quoted(const char **at_p, char *out, size_t size)
{
    const char *at = *at_p, *stop;

    if (*at != '"') return false;
    stop = strchr(at + 1, '"');
    if ((stop == NULL) || ((size_t)(stop - at) > size)) return false;
    memcpy(out, at + 1, (size_t)(stop - at - 1));
    out[stop - at - 1] = '\0';
    *at_p = stop + 1;
    return true;
}

static bool take_word(const char **at_p, const char *word)
{
    size_t n = strlen(word);

    if (strncmp(*at_p, word, n) != 0) return false;
    *at_p += n;
    return true;
}

/* machine "CPU" SIMD threads N version "V" */
static bool parse_machine(const char *at, ct_engine_plan_machine *m)
{
    size_t n;
    char *stop;
    long threads;

    memset(m, 0, sizeof(*m));
    if (!take_word(&at, "machine ") || !take_quoted(&at, m->cpu, sizeof(m->cpu)) ||
        !take_word(&at, " "))
        return false;
    n = strcspn(at, " ");
    if ((n == 0) || (n >= sizeof(m->simd))) return false;
    memcpy(m->simd, at, n);
    at += n;
    if (!take_word(&at, " threads ") || (*at < '1') || (*at > '9')) return false;
    threads = strtol(at, &stop, 10);
    if (threads > 1000000) return false;
    m->threads = (int)threads;
    at = stop;
    return take_word(&at, " version ") && take_quoted(&at, m->version, sizeof(m->version)) &&
           (*at == '\0');
}

static ct_status find_section(reader *r, const ct_engine_plan_machine *m)
{
    ct_engine_plan *p = r->p;
    engine_plan_section *grown;

    for (r->section = 0; r->section < p->n_section; r->section++) {
        if (engine_plan_machine_equal(&p->section[r->section].machine, m)) return CT_OK;
    }
    if (p->n_section >= MAX_SECTION) return damaged(r, "more than 1000 machines");
    grown = realloc(p->section, (size_t)(p->n_section + 1) * sizeof(*grown));
    if (grown == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a plan");
    p->section = grown;
    grown[p->n_section++] = (engine_plan_section){ .machine = *m };
    return CT_OK;
}

/* " NAME MS" of an engine; MS a number or "-". */
static bool take_engine(const char **at_p, ct_engine_plan_entry *row)
{
    ct_engine_plan_engine *e = &row->engine[row->n];
    const char *at = *at_p;
    char *stop;
    size_t n;

    if ((row->n == CT_ENGINE_PLAN_ENGINES) || !take_word(&at, " ")) return false;
    n = strcspn(at, " ");
    if ((n == 0) || (n >= sizeof(e->name)) || (at[n] != ' ')) return false;
    memcpy(e->name, at, n);
    e->name[n] = '\0';
    for (int i = 0; i < row->n; i++) {
        if (strcmp(row->engine[i].name, e->name) == 0) return false;
    }
    at += n + 1;
    if (*at == '-') {
        e->ms = -1.0;
        at++;
    } else {
        if ((*at < '0') || (*at > '9')) return false;
        e->ms = strtod(at, &stop);
        at = stop;
        if (!(e->ms >= 0.0) || !(e->ms < 1e12)) return false;
    }
    if ((*at != ' ') && (*at != '\0')) return false;
    row->n++;
    *at_p = at;
    return true;
}

/* KEY | NAME MS NAME MS … */
static ct_status parse_row(reader *r, const char *line)
{
    const char *bar = strstr(line, " |");
    engine_plan_section *s;
    ct_engine_plan_entry row = { .n = 0 }, *kept;

    if (r->section < 0) return damaged(r, "a row before the first \"machine\"");
    if ((bar == NULL) || (bar == line) || ((size_t)(bar - line) >= sizeof(row.key)))
        return damaged(r, "expected KEY | ENGINE MS …");
    memcpy(row.key, line, (size_t)(bar - line));
    for (bar += 2; *bar != '\0';) {
        if (!take_engine(&bar, &row)) return damaged(r, "expected KEY | ENGINE MS …");
    }
    if (row.n == 0) return damaged(r, "a row without an engine");
    if (++r->n_row > MAX_ROW) return damaged(r, "more than 100000 rows");
    s = &r->p->section[r->section];
    r->n_mine += (r->section == 0);
    if (engine_plan_find(s, row.key) != NULL) return CT_OK;
    if (s->n == MAX_OF_MACHINE) return damaged(r, "more than 10000 rows of a machine");
    kept = engine_plan_add(s);
    if (kept == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a plan");
    *kept = row;
    return CT_OK;
}

static ct_status parse_end(reader *r, const char *line)
{
    char want[32];

    snprintf(want, sizeof(want), "end %d", r->n_row);
    if (strcmp(line, want) != 0) {
        char what[120];

        snprintf(what, sizeof(what), "\"%.40s\", but there are %d rows before it", line, r->n_row);
        return damaged(r, what);
    }
    if (r->at < r->end) {
        r->line++;
        return damaged(r, "something behind \"end\"");
    }
    return CT_OK;
}

static ct_status parse_all(reader *r)
{
    char line[MAX_LINE];
    ct_engine_plan_machine m;
    bool there;

    CT_TRY(next_line(r, line, &there));
    if (!there || (strcmp(line, TITLE) != 0)) {
        r->line = 1;
        return damaged(r, "the first line is not \"" TITLE "\"");
    }
    for (;;) {
        CT_TRY(next_line(r, line, &there));
        if (!there) {
            r->line++;
            return damaged(r, "it ends before \"end ROWS\"");
        }
        if (strncmp(line, "end ", 4) == 0) return parse_end(r, line);
        if ((line[0] == '\0') || (line[0] == '#')) continue;
        if (strncmp(line, "machine ", 8) == 0) {
            if (!parse_machine(line, &m))
                return damaged(r, "expected machine \"CPU\" SIMD threads N version \"V\"");
            CT_TRY(find_section(r, &m));
        } else {
            CT_TRY(parse_row(r, line));
        }
    }
}

/* The rows are somebody else's: whose, in one line. */
static void tell_foreign(const reader *r)
{
    const ct_engine_plan_machine *mine = &r->p->o.machine, *other = NULL;
    bool stale = false;

    for (int i = 1; i < r->p->n_section; i++) {
        const ct_engine_plan_machine *m = &r->p->section[i].machine;
        ct_engine_plan_machine as_mine = *m;

        if (stale || (r->p->section[i].n == 0)) continue;
        other = m;
        memcpy(as_mine.version, mine->version, sizeof(as_mine.version));
        stale = engine_plan_machine_equal(&as_mine, mine);
    }
    if (other == NULL) return;
    if (stale) {
        CT_WARN(
            "plan %s is stale: its rows for this machine are of version %s, this is %s: they are "
            "not used",
            r->path, other->version, mine->version);
    } else {
        CT_WARN("plan %s is of another machine: \"%s\", %s, %d threads; this is \"%s\", %s, %d "
                "threads: its rows are not used",
                r->path, other->cpu, other->simd, other->threads, mine->cpu, mine->simd,
                mine->threads);
    }
}

static ct_status parse(ct_engine_plan *p, const char *path, const char *text, size_t size,
                       bool quiet)
{
    reader r = { .p = p, .path = path, .at = text, .end = text + size, .section = -1 };

    CT_TRY(parse_all(&r));
    if (!quiet && (r.n_mine == 0) && (r.n_row > 0)) tell_foreign(&r);
    return CT_OK;
}

static ct_status read_file(ct_engine_plan *p, const char *path, bool quiet)
{
    char *data = NULL;
    size_t size = 0;
    ct_status status;

    CT_TRY(ct_settings_read(path, &data, &size));
    status = parse(p, path, data, size, quiet);
    free(data);
    return status;
}

ct_status ct_engine_plan_parse(ct_engine_plan *p, const char *path, const char *text, size_t size)
{
    return parse(p, path, text, size, false);
}

ct_status ct_engine_plan_read(ct_engine_plan *p, const char *path)
{
    return read_file(p, path, false);
}

/* ---- writing the text of plans */

static void add_machine(ct_text *t, const ct_engine_plan_machine *m)
{
    ct_text_add(t, "machine \"%s\" %s threads %d version \"%s\"\n", m->cpu, m->simd, m->threads,
                m->version);
}

static void add_row(ct_text *t, const ct_engine_plan_entry *row)
{
    ct_text_add(t, "%s |", row->key);
    for (int i = 0; i < row->n; i++) {
        const ct_engine_plan_engine *e = &row->engine[i];

        if (e->ms < 0.0) {
            ct_text_add(t, " %s -", e->name);
        } else {
            ct_text_add(t, " %s %.6g", e->name, e->ms);
        }
    }
    ct_text_add(t, "\n");
}

/* asked: only rows that somebody asked for. */
static int add_section(ct_text *t, const engine_plan_section *s, bool asked)
{
    int n = 0;

    for (int i = 0; i < s->n; i++) {
        if (asked && (s->row[i].n_asked == 0)) continue;
        if (n++ == 0) add_machine(t, &s->machine);
        add_row(t, &s->row[i]);
    }
    return n;
}

void ct_engine_plan_text(const ct_engine_plan *p, ct_text *out)
{
    int n = 0;

    for (int i = 0; i < p->section[0].n; i++) n += (p->section[0].row[i].n_asked > 0);
    if (n == 0) return;
    ct_text_add(out, TITLE "\n");
    n = add_section(out, &p->section[0], true);
    ct_text_add(out, "end %d\n", n);
}

static bool outdated(const ct_engine_plan *p, const ct_engine_plan_machine *m)
{
    const ct_engine_plan_machine *mine = &p->o.machine;

    return (strcmp(m->cpu, mine->cpu) == 0) && (strcmp(m->simd, mine->simd) == 0) &&
           (m->threads == mine->threads) && (strcmp(m->version, mine->version) != 0);
}

ct_status ct_engine_plan_write(ct_engine_plan *p, const char *path)
{
    ct_text t = { 0 };
    ct_status status;
    int n = 0;

    if ((p->tally.n_timed == 0) && !p->kept) return CT_OK;
    /* others may have completed it meanwhile; a file that is damaged now was not when it was read
     */
    if (access(path, F_OK) == 0) CT_TRY(read_file(p, path, true));
    ct_text_add(&t, TITLE "\n");
    for (int i = 0; i < p->n_section; i++) {
        if (!outdated(p, &p->section[i].machine)) n += add_section(&t, &p->section[i], false);
    }
    ct_text_add(&t, "end %d\n", n);
    status = t.failed ? CT_FAIL(CT_ERR_NOMEM, "no memory for %s", path)
                      : ct_file_write(path, t.text, t.length);
    ct_text_destroy(&t);
    if (status == CT_OK) p->kept = false;
    return status;
}
