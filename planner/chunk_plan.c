#include "planner/chunk_plan.h"

#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/log.h"

enum { MOST_CHANGED = 128, ROUNDS = 3 };

typedef struct plan {
    const ct_chunk_use *use;
    int n_use, n_chunk, room;
    int n_moment;
    int *first, *last; /* [n_chunk] uses; -1: none                             */
    int *next;         /* [n_use] the chunk's next use; of its last one: -1     */
    int *busy;         /* [n_moment] chunks in use                              */
    int *cap;          /* [n_moment] scratch: arcs that may pass                */
    int *active;       /* [n_use] scratch: uses whose arcs pass                 */
    bool *kept;        /* [n_use] the arc from this use to the next is kept     */
    bool *best;        /* [n_use] of the best set                               */
    bool *wraps;       /* [n_chunk] the set that is tried                       */
    bool *best_wraps;  /* [n_chunk]                                             */
    int n_best;        /* arcs kept with it; -1: none fits                      */
    int *stack;        /* [n_chunk] scratch: the least recently used first      */
} plan;

static void close_plan(plan *p)
{
    free(p->first);
    free(p->kept);
}

static ct_status open_plan(const ct_chunk_use *use, int n_use, int n_chunk, int room, plan *p)
{
    size_t uses = (size_t)n_use, chunks = (size_t)n_chunk, moments;

    *p = (plan){ .use = use, .n_use = n_use, .n_chunk = n_chunk, .room = room, .n_best = -1 };
    p->n_moment = (n_use > 0) ? use[n_use - 1].moment + 1 : 0;
    moments = (size_t)p->n_moment;
    p->first = calloc(3 * chunks + 2 * uses + 2 * moments + 1, sizeof(int));
    p->kept = calloc(2 * uses + 2 * chunks + 1, sizeof(bool));
    if ((p->first == NULL) || (p->kept == NULL)) {
        close_plan(p);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for a plan of %d chunks", n_chunk);
    }
    p->last = p->first + chunks;
    p->stack = p->last + chunks;
    p->next = p->stack + chunks;
    p->active = p->next + uses;
    p->busy = p->active + uses;
    p->cap = p->busy + moments;
    p->best = p->kept + uses;
    p->wraps = p->best + uses;
    p->best_wraps = p->wraps + chunks;
    for (int c = 0; c < n_chunk; c++) p->first[c] = p->last[c] = -1;
    for (int u = 0; u < n_use; u++) {
        int c = use[u].chunk;

        if (p->first[c] < 0) p->first[c] = u;
        if (p->last[c] >= 0) p->next[p->last[c]] = u;
        p->last[c] = u;
        p->next[u] = -1;
        p->busy[use[u].moment]++;
    }
    return CT_OK;
}

/* ---- which arcs are kept */

static int moment_of(const plan *p, int u)
{
    return p->use[u].moment;
}

/* Room for arcs beside those of the set, which pass the end of the step. False: too little. */
static bool leave_room(const plan *p)
{
    for (int m = 0; m < p->n_moment; m++) p->cap[m] = p->room - p->busy[m];
    for (int c = 0; c < p->n_chunk; c++) {
        if (!p->wraps[c]) continue;
        for (int m = 0; m < moment_of(p, p->first[c]); m++) p->cap[m]--;
        for (int m = moment_of(p, p->last[c]) + 1; m < p->n_moment; m++) p->cap[m]--;
    }
    for (int m = 0; m < p->n_moment; m++) {
        if (p->cap[m] < 0) return false;
    }
    return true;
}

static int ends(const plan *p, int u)
{
    return moment_of(p, p->next[u]);
}

/* Drops the arcs that are over at this moment, and those that end last where too many pass. */
static int thin(plan *p, int m, int n_active)
{
    int n = 0;

    for (int i = 0; i < n_active; i++) {
        if (ends(p, p->active[i]) > m) p->active[n++] = p->active[i];
    }
    while (n > p->cap[m]) {
        int far = 0;

        for (int i = 1; i < n; i++) {
            if (ends(p, p->active[i]) > ends(p, p->active[far])) far = i;
        }
        p->kept[p->active[far]] = false;
        p->active[far] = p->active[--n];
    }
    return n;
}

/* The most arcs beside the set; takes them where they are more than ever. False: it does not fit.
 */
static bool try_set(plan *p)
{
    int n_active = 0, n = 0;

    if (!leave_room(p)) return false;
    for (int m = 0, u = 0; m < p->n_moment; m++) {
        n_active = thin(p, m, n_active);
        for (; (u < p->n_use) && (moment_of(p, u) == m); u++) {
            p->kept[u] = (p->next[u] >= 0) || p->wraps[p->use[u].chunk];
            if (p->next[u] >= 0) p->active[n_active++] = u;
        }
    }
    for (int u = 0; u < p->n_use; u++) n += p->kept[u];
    if (n <= p->n_best) return true;
    p->n_best = n;
    memcpy(p->best, p->kept, (size_t)p->n_use * sizeof(bool));
    memcpy(p->best_wraps, p->wraps, (size_t)p->n_chunk * sizeof(bool));
    return true;
}

static void try_all(plan *p)
{
    for (int set = 0; set < (1 << p->n_chunk); set++) {
        bool used = true;

        for (int c = 0; c < p->n_chunk; c++) {
            p->wraps[c] = ((set >> c) & 1) != 0;
            if (p->wraps[c] && (p->first[c] < 0)) used = false;
        }
        if (used) try_set(p);
    }
}

/* The chunks that were used last. */
static void set_of_lru(plan *p)
{
    int n = 0;

    memset(p->wraps, 0, (size_t)p->n_chunk * sizeof(bool));
    for (int u = p->n_use - 1; (u >= 0) && (n < p->room); u--) {
        if (p->last[p->use[u].chunk] != u) continue;
        p->wraps[p->use[u].chunk] = true;
        n++;
    }
}

/* Of a set that does not fit: those go that are used last in the next step. */
static void fit(plan *p)
{
    while (!try_set(p)) {
        int far = -1;

        for (int c = 0; c < p->n_chunk; c++) {
            if (p->wraps[c] && ((far < 0) || (p->first[c] > p->first[far]))) far = c;
        }
        if (far < 0) return;
        p->wraps[far] = false;
    }
}

/* Those that are used first in the next step. */
static void set_of_first(plan *p)
{
    int n = 0;

    memset(p->wraps, 0, (size_t)p->n_chunk * sizeof(bool));
    for (int u = 0; (u < p->n_use) && (n < p->room); u++) {
        if (p->first[p->use[u].chunk] != u) continue;
        p->wraps[p->use[u].chunk] = true;
        n++;
    }
}

/* One chunk more or less, while that keeps more. */
static void change(plan *p)
{
    for (bool better = true; better;) {
        int before = p->n_best;

        for (int c = 0; c < p->n_chunk; c++) {
            if (p->first[c] < 0) continue;
            memcpy(p->wraps, p->best_wraps, (size_t)p->n_chunk * sizeof(bool));
            p->wraps[c] = !p->wraps[c];
            try_set(p);
        }
        better = p->n_best > before;
    }
}

static void choose(plan *p)
{
    set_of_lru(p); /* first: of equal ones it stays */
    fit(p);
    set_of_first(p);
    fit(p);
    if (p->n_chunk <= CT_CHUNK_EXACT)
        try_all(p);
    else if (p->n_chunk <= MOST_CHANGED)
        change(p);
}

/* ---- slots */

typedef struct slots {
    int *chunk; /* [room] what lies there; -1: nothing                     */
    int *used;  /* [room] its last use, a moment; -1: none yet              */
    bool *free; /* [room] what lies there is not kept                      */
    int *home;  /* [n_chunk] where it lies when a step begins; -1: nowhere */
} slots;

/* The use that a run of kept arcs from u on ends with; INT_MAX: it passes the end of the step. */
static int run_end(const plan *p, int u)
{
    while (p->best[u]) {
        if (p->next[u] < 0) return INT_MAX;
        u = p->next[u];
    }
    return moment_of(p, u);
}

/* The moment at which the chunk whose home this slot is comes back; INT_MAX: it is nobody's. */
static int comes_home(const plan *p, const slots *s, int slot, int u)
{
    for (int v = u + 1; v < p->n_use; v++) {
        int c = p->use[v].chunk;

        if ((s->home[c] == slot) && (run_end(p, v) == INT_MAX)) return moment_of(p, v);
    }
    return INT_MAX;
}

/* A free slot for a run from u on: its home, or of those that are not somebody's too soon the one
 * that is free for the longest time. */
static int find_slot(const plan *p, const slots *s, int u)
{
    int end = run_end(p, u), home = s->home[p->use[u].chunk], found = -1;
    bool good = false;

    if ((end == INT_MAX) && (home >= 0) && s->free[home]) return home;
    for (int i = 0; i < p->room; i++) {
        bool later;

        if (!s->free[i] || ((found >= 0) && good && (s->used[i] >= s->used[found]))) continue;
        later = comes_home(p, s, i, u) > end;
        if ((found >= 0) && (later == good) && (s->used[i] >= s->used[found])) continue;
        if (good && !later) continue;
        found = i;
        good = later;
    }
    return found;
}

static int slot_of(const plan *p, const slots *s, int chunk)
{
    for (int i = 0; i < p->room; i++) {
        if (!s->free[i] && (s->chunk[i] == chunk)) return i;
    }
    return -1;
}

/* One step. */
static void run_step(const plan *p, slots *s, ct_chunk_plan *out)
{
    for (int u = 0; u < p->n_use; u++) {
        int c = p->use[u].chunk, m = moment_of(p, u), at = slot_of(p, s, c);
        bool loads = (at < 0);

        if (loads) {
            at = find_slot(p, s, u);
            out->load[out->n_load++] = (ct_chunk_load){ .chunk = c, .slot = at, .moment = m };
        }
        s->chunk[at] = c;
        s->free[at] = false;
        s->used[at] = m;
        out->slot[u] = at;
        /* what is used at one moment lies there together: slots are freed behind it */
        for (int v = u; (v >= 0) && ((u + 1 == p->n_use) || (moment_of(p, u + 1) != m)) &&
                        (moment_of(p, v) == m);
             v--)
            if (!p->best[v]) s->free[slot_of(p, s, p->use[v].chunk)] = true;
    }
}

/* Chunks that lie elsewhere than at home, and go there. */
static int go_home(const plan *p, slots *s)
{
    int n = 0;

    for (int i = 0; i < p->room; i++) n += !s->free[i] && (s->home[s->chunk[i]] != i);
    for (int i = 0; (n > 0) && (i < p->room); i++) s->free[i] = true;
    for (int c = 0; (n > 0) && (c < p->n_chunk); c++) {
        if (s->home[c] < 0) continue;
        s->chunk[s->home[c]] = c;
        s->free[s->home[c]] = false;
    }
    return n;
}

/* When the slots of the loads become free, now that all of a step are known. */
static void find_from(const plan *p, slots *s, ct_chunk_plan *out)
{
    for (int u = 0, n = 0; u < p->n_use; u++) {
        ct_chunk_load *l = &out->load[n];

        if ((n < out->n_load) && (l->moment == moment_of(p, u)) && (l->chunk == p->use[u].chunk)) {
            l->from = s->used[l->slot]; /* of the step before, where it is the first use */
            n++;
        }
        s->used[out->slot[u]] = moment_of(p, u);
    }
}

static void place(const plan *p, slots *s, ct_chunk_plan *out)
{
    int n = 0;

    for (int i = 0; i < p->room; i++) {
        s->chunk[i] = -1;
        s->used[i] = -1;
        s->free[i] = true;
    }
    for (int c = 0; c < p->n_chunk; c++) {
        s->home[c] = p->best_wraps[c] ? n++ : -1;
        if (s->home[c] < 0) continue;
        s->chunk[s->home[c]] = c;
        s->free[s->home[c]] = false;
    }
    run_step(p, s, out);
    find_from(p, s, out);
    out->n_shift = go_home(p, s);
}

static ct_status check_room(const plan *p)
{
    for (int m = 0; m < p->n_moment; m++) {
        if (p->busy[m] > p->room)
            return CT_FAIL(CT_ERR_CONFIG, "moment %d uses %d chunks, but there is room for %d", m,
                           p->busy[m], p->room);
    }
    return CT_OK;
}

static ct_status fill(const plan *p, ct_chunk_plan *out)
{
    size_t room = (size_t)p->room;
    int *block = calloc(2 * room + (size_t)p->n_chunk + 1, sizeof(int));
    bool *is_free = calloc(room + 1, sizeof(bool));
    slots s = { .chunk = block, .used = block + room, .free = is_free, .home = block + 2 * room };
    bool ok;

    out->n_use = p->n_use;
    out->slot = calloc((size_t)p->n_use + 1, sizeof(out->slot[0]));
    out->load = calloc((size_t)p->n_use + 1, sizeof(out->load[0]));
    ok = (block != NULL) && (is_free != NULL) && (out->slot != NULL) && (out->load != NULL);
    if (ok) place(p, &s, out);
    free(block);
    free(is_free);
    if (ok) return CT_OK;
    ct_chunk_plan_destroy(out);
    return CT_FAIL(CT_ERR_NOMEM, "no memory for a plan of %d chunks", p->n_chunk);
}

ct_status ct_chunk_plan_make(const ct_chunk_use *use, int n_use, int n_chunk, int room,
                             ct_chunk_plan *out)
{
    ct_status status;
    plan p;

    memset(out, 0, sizeof(*out));
    CT_TRY(open_plan(use, n_use, n_chunk, (room < n_chunk) ? room : n_chunk, &p));
    status = check_room(&p);
    if (status == CT_OK) {
        choose(&p);
        status = fill(&p, out);
    }
    close_plan(&p);
    return status;
}

void ct_chunk_plan_destroy(ct_chunk_plan *out)
{
    free(out->slot);
    free(out->load);
    memset(out, 0, sizeof(*out));
}

/* ---- the least recently used goes */

static int lru_step(plan *p, int *n_there_p)
{
    int n = *n_there_p, n_load = 0;

    for (int u = 0; u < p->n_use; u++) {
        int c = p->use[u].chunk, at = 0;

        while ((at < n) && (p->stack[at] != c)) at++;
        if (at == n) {
            n_load++;
            if (n < p->room)
                n++;
            else
                at = 0;
        }
        memmove(&p->stack[at], &p->stack[at + 1],
                (size_t)((at < n) ? n - 1 - at : 0) * sizeof(int));
        p->stack[n - 1] = c;
    }
    *n_there_p = n;
    return n_load;
}

ct_status ct_chunk_plan_lru(const ct_chunk_use *use, int n_use, int n_chunk, int room,
                            int *n_load_p)
{
    int n_there = 0;
    plan p;

    CT_TRY(open_plan(use, n_use, n_chunk, (room < n_chunk) ? room : n_chunk, &p));
    for (int i = 0; i < ROUNDS; i++) *n_load_p = lru_step(&p, &n_there);
    close_plan(&p);
    return CT_OK;
}

void ct_chunk_chain(int n, ct_chunk_use *use)
{
    for (int i = 0; i < n; i++) {
        use[i] = (ct_chunk_use){ i, i };
        use[2 * n - 1 - i] = (ct_chunk_use){ 2 * n - 1 - i, i };
    }
}
