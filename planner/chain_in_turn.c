/* A table of the least seconds that blocks b … n - 1 add, by the slots that are left for them. */
#include "planner/chain_in_turn.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

typedef struct table {
    const ct_chain *c;
    int64_t slots; /* the limit without the weights                                    */
    double *least; /* [n_block + 1][slots + 1]                                         */
    int *segment;  /* likewise: b is kept (0), or in a segment of so many blocks        */
} table;

static double *least_at(const table *t, int b)
{
    return &t->least[(size_t)b * (size_t)(t->slots + 1)];
}

static int *segment_at(const table *t, int b)
{
    return &t->segment[(size_t)b * (size_t)(t->slots + 1)];
}

/* Blocks b … b + n - 1 as a segment, which add `again` and take `kept` while they are made again.
 */
static void try_segment(const table *t, int b, int n, double again, int64_t kept)
{
    const double *behind = least_at(t, b + n);
    int64_t input = t->c->input[b];

    for (int64_t m = input + kept; m <= t->slots; m++) {
        if (again + behind[m - input] >= least_at(t, b)[m]) continue;
        least_at(t, b)[m] = again + behind[m - input];
        segment_at(t, b)[m] = n;
    }
}

static void fill_block(const table *t, int b)
{
    const ct_chain *c = t->c;
    double again = 0;
    int64_t kept = 0;

    for (int64_t m = 0; m <= t->slots; m++) {
        least_at(t, b)[m] = (m >= c->kept[b]) ? least_at(t, b + 1)[m - c->kept[b]] : INFINITY;
        segment_at(t, b)[m] = 0;
    }
    for (int n = 1; b + n <= c->n_block; n++) {
        if (c->kept[b + n - 1] > t->slots - kept) break;
        again += c->again_s[b + n - 1];
        kept += c->kept[b + n - 1];
        if (c->input[b] <= t->slots - kept) try_segment(t, b, n, again, kept);
    }
}

static void read_choice(const table *t, ct_chain_mode *mode)
{
    int64_t left = t->slots;

    for (int b = 0; b < t->c->n_block;) {
        int n = segment_at(t, b)[left];

        left -= (n > 0) ? t->c->input[b] : t->c->kept[b];
        mode[b] = (n > 0) ? CT_CHAIN_START : CT_CHAIN_KEEP;
        for (int k = 1; k < n; k++) mode[b + k] = CT_CHAIN_CONTINUE;
        b += (n > 0) ? n : 1;
    }
}

/* False: they are more than the limit. */
static bool take_weights(const ct_chain *c, int64_t *slots_p)
{
    *slots_p = c->limit;
    for (int b = 0; b < c->n_block; b++) {
        if (c->weight[b] > *slots_p) return false;
        *slots_p -= c->weight[b];
    }
    return true;
}

ct_status ct_chain_solve_in_turn(const ct_chain *c, ct_chain_mode *mode, double *step_s_p)
{
    table t = { .c = c };
    size_t n;
    double added = INFINITY;
    bool has_room;

    if ((c->n_block < 1) || (c->n_strategy != 1) || (c->in_flight != 1) || (c->limit < 0) ||
        (c->limit > CT_CHAIN_MOST_SLOTS))
        return CT_FAIL(CT_ERR_ARG, "a chain of %d blocks and %d strategies", c->n_block,
                       c->n_strategy);
    *step_s_p = INFINITY;
    if (!take_weights(c, &t.slots)) return CT_OK;
    n = (size_t)(c->n_block + 1) * (size_t)(t.slots + 1);
    t.least = calloc(n, sizeof(*t.least));
    t.segment = calloc(n, sizeof(*t.segment));
    has_room = (t.least != NULL) && (t.segment != NULL);
    if (has_room) {
        for (int b = c->n_block - 1; b >= 0; b--) fill_block(&t, b);
        added = least_at(&t, 0)[t.slots];
        if (isfinite(added)) read_choice(&t, mode);
        *step_s_p = added;
        for (int b = 0; b < c->n_block; b++) *step_s_p += c->time_s[b];
    }
    free(t.least);
    free(t.segment);
    return has_room ? CT_OK
                    : CT_FAIL(CT_ERR_NOMEM, "no memory for a chain of %d blocks", c->n_block);
}

int64_t ct_chain_memory_in_turn(const ct_chain *c, const ct_chain_mode *mode)
{
    int64_t weight = 0, stored = 0, most = 0, segment = 0;

    for (int b = 0; b < c->n_block; b++) {
        weight += c->weight[b];
        if (mode[b] == CT_CHAIN_START) segment = 0;
        if (mode[b] == CT_CHAIN_START) stored += c->input[b];
        if (mode[b] == CT_CHAIN_KEEP)
            stored += c->kept[b];
        else
            segment += c->kept[b];
        if ((mode[b] != CT_CHAIN_KEEP) && (stored + segment > most)) most = stored + segment;
    }
    return weight + ((stored > most) ? stored : most);
}
