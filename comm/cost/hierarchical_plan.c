#include "comm/cost/hierarchical_plan.h"

#include <stdlib.h>
#include <string.h>

enum { LINE = 16 /* elements of a cache line */ };

/* Who owns what of each vertex's sum: pieces in the order of the buffer. */
typedef struct owners {
    ct_hierarchical_plan_piece *piece;
    int64_t n, capacity;
    int64_t *start; /* [vertices + 1] */
} owners;

typedef struct builder {
    ct_hierarchical_plan_phase *phase;
    int group_room;
    int64_t n_member, member_room;
} builder;

void ct_hierarchical_plan_destroy(ct_hierarchical_plan *p)
{
    if (p == NULL) return;
    for (int k = 0; k < CT_HIERARCHICAL_PLAN_PHASES; ++k) {
        free(p->phase[k].group);
        free(p->phase[k].member);
        free(p->phase[k].of_start);
        free(p->phase[k].of);
    }
    free(p->piece);
    free(p);
}

int64_t ct_hierarchical_plan_pieces(const ct_hierarchical_plan *p)
{
    int64_t n = 1;

    while (p->piece[n - 1].end < CT_HIERARCHICAL_PLAN_UNITS) n += 1;
    return n;
}

void ct_hierarchical_plan_part(const ct_hierarchical_plan_group *g, int i, int64_t *a_p,
                               int64_t *b_p)
{
    ct_halving h;
    ct_halving_round round;

    ct_halving_begin(&h, g->n, i, g->a, g->b);
    while (ct_halving_next(&h, &round)) {
    }
    *a_p = h.a;
    *b_p = h.b;
}

int64_t ct_hierarchical_plan_at(int64_t unit, int64_t n, int parts)
{
    /* the same multiplications of doubles on all ranks: n < 2^53 */
    int64_t at = (int64_t)((double)n * ((double)unit / (double)CT_HIERARCHICAL_PLAN_UNITS));

    if (unit >= CT_HIERARCHICAL_PLAN_UNITS) return n;
    return (n >= (int64_t)LINE * parts) ? at / LINE * LINE : at;
}

/* ---- building */

static ct_status no_memory(void)
{
    return CT_FAIL(CT_ERR_NOMEM, "no memory for the plan of a collective");
}

static ct_status grow(void *array_p, int64_t needed, int64_t *capacity, size_t size)
{
    void **array = array_p;
    int64_t room = (2 * *capacity > needed) ? 2 * *capacity : needed;
    void *more = NULL;

    if (needed <= *capacity) return CT_OK;
    more = realloc(*array, (size_t)room * size);
    if (more == NULL) return no_memory();
    *array = more;
    *capacity = room;
    return CT_OK;
}

static ct_status add_piece(owners *o, int64_t end, int owner)
{
    void *array = o->piece;
    ct_status status = grow(&array, o->n + 1, &o->capacity, sizeof(*o->piece));

    o->piece = array;
    if (status != CT_OK) return status;
    o->piece[o->n++] = (ct_hierarchical_plan_piece){ end, owner };
    return CT_OK;
}

/* The parts of a group, in the order of the buffer: the even members first, then the odd ones. */
static ct_status add_parts(owners *o, const int *member, ct_halving h)
{
    int even = (h.m + 1) / 2;
    int64_t cut = h.a + (h.b - h.a) * even / h.m;
    ct_halving half = { .m = even, .offset = h.offset, .stride = 2 * h.stride, .a = h.a, .b = cut };

    if (h.m == 1) return add_piece(o, h.b, member[h.offset]);
    CT_TRY(add_parts(o, member, half));
    half = (ct_halving){
        .m = h.m - even, .offset = h.offset + h.stride, .stride = 2 * h.stride, .a = cut, .b = h.b
    };
    return add_parts(o, member, half);
}

static ct_status add_group(builder *b, int n, int64_t from, int64_t to,
                           ct_hierarchical_plan_group **group_p)
{
    ct_hierarchical_plan_phase *p = b->phase;
    int64_t room = b->group_room;
    void *group = p->group, *member = p->member;
    ct_status status = grow(&group, p->n_group + 1, &room, sizeof(*p->group));

    p->group = group;
    b->group_room = (int)room;
    if (status != CT_OK) return status;
    status = grow(&member, b->n_member + n, &b->member_room, sizeof(*p->member));
    p->member = member;
    if (status != CT_OK) return status;
    if (b->n_member + n > INT32_MAX)
        return CT_FAIL(CT_ERR_CONFIG, "the topology cuts a buffer into too many pieces");
    *group_p = &p->group[p->n_group++];
    **group_p =
        (ct_hierarchical_plan_group){ .n = n, .first = (int)b->n_member, .a = from, .b = to };
    b->n_member += n;
    if (n > p->most) p->most = n;
    return CT_OK;
}

/* Joins vertices [first, last) of the level below: in each interval between two of their cuts, the
 * owners form a group. Cuts that are one but for rounding leave an interval of some units, which is
 * a group all the same: it mostly holds no element, but where it holds one, those who summed it
 * below are its members. at: scratch, one for each of them. */
static ct_status join(builder *b, const owners *below, int first, int last, int64_t *at,
                      owners *above)
{
    int m = last - first;
    int64_t from = 0;

    for (int v = 0; v < m; ++v) at[v] = below->start[first + v];
    while (from < CT_HIERARCHICAL_PLAN_UNITS) {
        int64_t to = CT_HIERARCHICAL_PLAN_UNITS;
        ct_hierarchical_plan_group *g = NULL;

        for (int v = 0; v < m; ++v) {
            while (below->piece[at[v]].end <= from) at[v] += 1; /* the last ends with the buffer */
            if (below->piece[at[v]].end < to) to = below->piece[at[v]].end;
        }
        if (m == 1) {
            CT_TRY(add_piece(above, to, below->piece[at[0]].owner));
        } else {
            CT_TRY(add_group(b, m, from, to, &g));
            for (int v = 0; v < m; ++v) b->phase->member[g->first + v] = below->piece[at[v]].owner;
            CT_TRY(add_parts(above, b->phase->member + g->first,
                             (ct_halving){ .m = m, .stride = 1, .a = from, .b = to }));
        }
        from = to;
    }
    return CT_OK;
}

/* Which groups each position belongs to. */
static ct_status index_groups(ct_hierarchical_plan_phase *p, int n)
{
    int64_t total = 0;

    for (int g = 0; g < p->n_group; ++g) total += p->group[g].n;
    p->of_start = calloc((size_t)n + 2, sizeof(*p->of_start));
    p->of = malloc(sizeof(*p->of) * (size_t)(total + 1));
    if ((p->of_start == NULL) || (p->of == NULL)) return no_memory();
    /* counted two places on, so that filling moves the starts to where they belong */
    for (int64_t k = 0; k < total; ++k) p->of_start[p->member[k] + 2] += 1;
    for (int i = 2; i <= n; ++i) p->of_start[i] += p->of_start[i - 1];
    for (int g = 0; g < p->n_group; ++g) {
        for (int k = 0; k < p->group[g].n; ++k)
            p->of[p->of_start[p->member[p->group[g].first + k] + 1]++] = g;
    }
    return CT_OK;
}

/* One level: vertices of it take the pieces of those below, which begin at `below_first`. */
static ct_status build_level(ct_hierarchical_plan *plan, const owners *below,
                             const int *below_first, int n_below, const int *first, int n_vertex,
                             owners *above)
{
    builder b = { .phase = &plan->phase[plan->n_phase] };
    int64_t *at = malloc(sizeof(*at) * (size_t)n_below);
    int next = 0;
    ct_status status = CT_OK;

    above->start = malloc(sizeof(*above->start) * ((size_t)n_vertex + 1));
    if ((at == NULL) || (above->start == NULL)) CT_TRY_GOTO(status, done, no_memory());
    for (int v = 0; v < n_vertex; ++v) {
        int end = (v + 1 < n_vertex) ? first[v + 1] : plan->n, from = next;

        while ((next < n_below) && (below_first[next] < end)) next += 1;
        above->start[v] = above->n;
        CT_TRY_GOTO(status, done, join(&b, below, from, next, at, above));
    }
    above->start[n_vertex] = above->n;
    if (b.phase->n_group > 0) {
        CT_TRY_GOTO(status, done, index_groups(b.phase, plan->n));
        plan->n_phase += 1;
    }

done:
    free(at);
    return status;
}

static ct_status begin_owners(int n, owners *o, int *first)
{
    o->start = malloc(sizeof(*o->start) * ((size_t)n + 1));
    if (o->start == NULL) return no_memory();
    for (int i = 0; i < n; ++i) {
        first[i] = i;
        o->start[i] = i;
        CT_TRY(add_piece(o, CT_HIERARCHICAL_PLAN_UNITS, i));
    }
    o->start[n] = n;
    return CT_OK;
}

static void free_owners(owners *o)
{
    free(o->piece);
    free(o->start);
    *o = (owners){ .n = 0 };
}

ct_status ct_hierarchical_plan_create(int n, int n_level, const int *const *first,
                                      const int *n_vertex, ct_hierarchical_plan **plan_p)
{
    ct_hierarchical_plan *plan = calloc(1, sizeof(*plan));
    int *each = malloc(sizeof(*each) * (size_t)n);
    owners below = { .n = 0 }, above = { .n = 0 };
    ct_status status = CT_OK;

    if ((plan == NULL) || (each == NULL)) CT_TRY_GOTO(status, err_destroy, no_memory());
    plan->n = n;
    CT_TRY_GOTO(status, err_destroy, begin_owners(n, &below, each));
    for (int l = 0; l < n_level; ++l) {
        CT_TRY_GOTO(status, err_destroy,
                    build_level(plan, &below, (l == 0) ? each : first[l - 1],
                                (l == 0) ? n : n_vertex[l - 1], first[l], n_vertex[l], &above));
        free_owners(&below);
        below = above;
        above = (owners){ .n = 0 };
    }
    plan->piece = below.piece;
    below.piece = NULL;
    *plan_p = plan;
    plan = NULL;

err_destroy:
    free_owners(&below);
    free_owners(&above);
    free(each);
    ct_hierarchical_plan_destroy(plan);
    return status;
}

/* ---- trees to build on */

ct_status ct_hierarchical_plan_flat(int n, ct_hierarchical_plan **plan_p)
{
    const int start = 0, one = 1, *first[1] = { &start };

    return ct_hierarchical_plan_create(n, 1, first, &one, plan_p);
}

ct_status ct_hierarchical_plan_grid(int n, const int *dim, int n_dim, ct_hierarchical_plan **plan_p)
{
    int *start = malloc(sizeof(*start) * (size_t)n_dim * (size_t)n);
    int n_vertex[CT_HIERARCHICAL_PLAN_PHASES], row = 1;
    const int *first[CT_HIERARCHICAL_PLAN_PHASES];
    ct_status status = CT_OK;

    if (start == NULL) return no_memory();
    for (int l = 0; l < n_dim; ++l) {
        row *= dim[l];
        n_vertex[l] = n / row;
        first[l] = start + (size_t)l * (size_t)n;
        for (int v = 0; v < n_vertex[l]; ++v) start[(size_t)l * (size_t)n + (size_t)v] = v * row;
    }
    status = ct_hierarchical_plan_create(n, n_dim, first, n_vertex, plan_p);
    free(start);
    return status;
}

ct_status ct_hierarchical_plan_tree(const ct_topo *t, int first_level,
                                    ct_hierarchical_plan **plan_p)
{
    int n_level = t->machine.n_level - first_level;
    int *start = malloc(sizeof(*start) * (size_t)n_level * (size_t)t->n_rank);
    const int *first[CT_MAX_LEVEL], *member = (first_level > 0) ? t->vertex[first_level - 1] : NULL;
    int n = 0, n_vertex[CT_MAX_LEVEL] = { 0 };
    ct_status status = CT_OK;

    if (start == NULL) return no_memory();
    for (int l = 0; l < n_level; ++l) first[l] = start + (size_t)l * (size_t)t->n_rank;
    for (int i = 0; i < t->n_rank; ++i) {
        int r = t->order[i], before = (i > 0) ? t->order[i - 1] : -1;

        if ((before >= 0) && (member != NULL) && (member[before] == member[r])) continue;
        for (int l = 0; l < n_level; ++l) {
            const int *vertex = t->vertex[first_level + l];

            if ((before >= 0) && (vertex[before] == vertex[r])) continue;
            start[(size_t)l * (size_t)t->n_rank + (size_t)n_vertex[l]++] = n;
        }
        n += 1;
    }
    status = ct_hierarchical_plan_create(n, n_level, first, n_vertex, plan_p);
    free(start);
    return status;
}

/* ---- halving */

void ct_halving_begin(ct_halving *h, int m, int i, int64_t a, int64_t b)
{
    *h = (ct_halving){ .m = m, .i = i, .offset = 0, .stride = 1, .a = a, .b = b };
}

bool ct_halving_next(ct_halving *h, ct_halving_round *round_p)
{
    int even = (h->m + 1) / 2, other = h->i ^ 1;
    bool odd = (h->i & 1) != 0;
    int64_t cut = h->a + (h->b - h->a) * even / h->m;
    ct_halving_round r = { .n_from = 0 };

    if (h->m == 1) return false;
    r.keep_a = odd ? cut : h->a;
    r.keep_b = odd ? h->b : cut;
    r.send_a = odd ? h->a : cut;
    r.send_b = odd ? cut : h->b;
    if (other < h->m) r.from[r.n_from++] = h->offset + other * h->stride;
    if (odd && (h->m % 2 == 1) && (h->i == h->m - 2))
        r.from[r.n_from++] = h->offset + (h->m - 1) * h->stride;
    r.to = h->offset + ((other < h->m) ? other : h->m - 2) * h->stride;
    h->offset += odd ? h->stride : 0;
    h->stride *= 2;
    h->m = odd ? h->m - even : even;
    h->i /= 2;
    h->a = r.keep_a;
    h->b = r.keep_b;
    *round_p = r;
    return true;
}

int ct_halving_rounds(int m)
{
    int k = 0;

    while (((int64_t)1 << k) < m) k += 1;
    return k;
}

/* ---- segments: how many messages a step of a collective is cut into */

enum {
    MIN_SEGMENT = 64 << 10, /* elements of a message, unless the step has fewer … */
    MAX_SEGMENT = 1 << 20,  /* … and at most                                      */
    PER_STEP = 4            /* messages a step is cut into, within these limits   */
};

/* Few and large, since each costs a meeting of two ranks, but enough to add one while the next
 * comes. */
int64_t ct_segment_largest(int64_t n)
{
    int64_t each = (n + PER_STEP - 1) / PER_STEP;

    each = (each < MAX_SEGMENT) ? each : MAX_SEGMENT;
    each = (each > MIN_SEGMENT) ? each : MIN_SEGMENT;
    return (each + LINE - 1) / LINE * LINE;
}

/* All of a step alike: where links share fairly, the first of two unlike ones would come last. */
int64_t ct_segment_elements(int64_t n)
{
    int64_t most = ct_segment_largest(n), parts = (n + most - 1) / most;
    int64_t each = (parts > 1) ? (n + parts - 1) / parts : most;

    return (each + LINE - 1) / LINE * LINE;
}
