/* What `compression { }` means to topk and redsync, and what that costs. No state, no messages. */
#include <math.h>
#include <string.h>

#include "comm/coded_sparse.h"

ct_status ct_sparse_selection(const char *name, ct_select_kind *kind_p)
{
    if (name == NULL) name = "auto";
    for (int k = 0; k <= CT_SELECT_REDSYNC_SIZES; ++k) {
        if (strcmp(name, ct_select_name((ct_select_kind)k)) != 0) continue;
        *kind_p = (ct_select_kind)k;
        return CT_OK;
    }
    return CT_FAIL(CT_ERR_CONFIG, "unknown selection \"%s\"", name);
}

bool ct_sparse_is_auto(const char *name)
{
    return (name == NULL) || (strcmp(name, "auto") == 0);
}

int64_t ct_sparse_wanted(const ct_codec_config *c, int64_t n)
{
    int64_t k = llround((double)c->density * (double)n);

    if (k < 1) k = 1;
    return (k < n) ? k : n;
}

ct_wire_form ct_sparse_form(const ct_codec_config *c, int64_t n, bool quantize, bool plain)
{
    int64_t k = ct_sparse_wanted(c, n);

    if (quantize) return CT_WIRE_MEAN;
    if (!ct_sparse_is_auto(c->wire))
        return (strcmp(c->wire, "half") == 0) ? CT_WIRE_HALF : CT_WIRE_PAIRS;
    if (plain || (ct_wire_bytes(CT_WIRE_PAIRS, n, k) <= ct_wire_bytes(CT_WIRE_HALF, n, k)))
        return CT_WIRE_PAIRS;
    return CT_WIRE_HALF;
}

ct_status ct_sparse_check(const ct_codec_config *c)
{
    ct_select_kind kind;
    bool known = ct_sparse_is_auto(c->exchange);

    CT_TRY(ct_sparse_selection(c->selection, &kind));
    for (const ct_exch_ops *const *at = ct_exch_table; *at != NULL; ++at)
        known = known || (strcmp(c->exchange, (*at)->name) == 0);
    if (!known) return CT_FAIL(CT_ERR_CONFIG, "unknown exchange \"%s\"", c->exchange);
    if (!ct_sparse_is_auto(c->wire) && (strcmp(c->wire, "half") != 0) &&
        (strcmp(c->wire, "pairs") != 0))
        return CT_FAIL(CT_ERR_CONFIG, "unknown wire \"%s\"; known are auto, pairs, half", c->wire);
    if (c->quantize && !ct_sparse_is_auto(c->wire))
        return CT_FAIL(CT_ERR_CONFIG,
                       "quantize: true sends one mean for all values, so that wire \"%s\" says "
                       "nothing; leave it out",
                       c->wire);
    return CT_OK;
}

int64_t ct_sparse_payload_bytes(const ct_codec_config *c, int64_t n, bool plain)
{
    return (int64_t)ct_wire_bytes(ct_sparse_form(c, n, c->quantize, plain), n,
                                  ct_sparse_wanted(c, n));
}

double ct_sparse_predict_s(ct_comm *comm, const ct_codec_config *c, int64_t n, bool plain)
{
    ct_wire_form form = ct_sparse_form(c, n, c->quantize, plain);
    const ct_exch_ops *exch = NULL;
    int64_t k = ct_sparse_wanted(c, n);

    if ((comm->size == 1) ||
        (ct_exch_choose(comm, n, k, form, ct_sparse_is_auto(c->exchange) ? "auto" : c->exchange,
                        &exch) != CT_OK))
        return 0;
    return exch->cost_s(comm, n, k, form);
}
