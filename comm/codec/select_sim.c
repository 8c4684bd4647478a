/* select.c for a simulation: as many elements are selected as were asked for; which, nobody knows.
 * Update and selection take their time. */
#include <stdlib.h>
#include <string.h>

#include "comm/core/sim_codec.h"
#include "comm/codec/select.h"

struct ct_selector {
    ct_select_kind kind;
    int64_t n, k;
    ct_select_stats stats;
};

static const char *const name_of[] = { "auto",   "exact",   "trimmed",
                                       "search", "sampled", "redsync_sizes" };

const char *ct_select_name(ct_select_kind kind)
{
    return name_of[kind];
}

ct_status ct_selector_create(ct_select_kind kind, int64_t n, int64_t k, ct_selector **sel_p)
{
    ct_selector *sel = calloc(1, sizeof(*sel));

    if (sel == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a selection");
    sel->kind = kind;
    sel->n = n;
    sel->k = (k < n) ? k : n;
    *sel_p = sel;
    return CT_OK;
}

void ct_selector_destroy(ct_selector *sel)
{
    free(sel);
}

void ct_selector_want(ct_selector *sel, int64_t k)
{
    sel->k = (k < sel->n) ? k : sel->n;
}

int64_t ct_selector_bound(const ct_selector *sel)
{
    bool loose = (sel->kind == CT_SELECT_SEARCH) || (sel->kind == CT_SELECT_SAMPLED) ||
                 (sel->kind == CT_SELECT_REDSYNC_SIZES);

    int64_t most = loose ? ct_select_most(sel->k) : sel->k;

    return (most < sel->n) ? most : sel->n;
}

void ct_selector_sign(ct_selector *sel, int sign)
{
    (void)sel;
    (void)sign;
}

void ct_selector_forget(ct_selector *sel)
{
    (void)sel;
}

void ct_selector_stats(const ct_selector *sel, ct_select_stats *out)
{
    *out = sel->stats;
}

ct_status ct_selector_run(ct_selector *sel, const ct_momentum_correction *a, ct_sparse *out)
{
    ct_momentum_correction_run(a);
    ct_sim_codec_pass(ct_sim_codec().select_s * (double)a->n);
    out->n = sel->n;
    out->count = sel->k;
    sel->stats.candidates = sel->k;
    sel->stats.passes = 1;
    return CT_OK;
}
