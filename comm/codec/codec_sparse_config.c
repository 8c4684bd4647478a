/* What `compression { }` means to topk and redsync, and what that costs. No state, no messages. */
#include <math.h>
#include <string.h>

#include "comm/codec/codec_types.h"
#include "comm/codec/codec_sparse.h"

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

static const char *const wire_name[] = { "auto", "pairs", "half" };

const char *ct_sparse_word(const char *name, bool (*is)(const char *name, const char *word))
{
    for (int i = 0; ct_sparse_allreduce_table[i] != NULL; ++i)
        if (is(name, ct_sparse_allreduce_table[i]->name)) return ct_sparse_allreduce_table[i]->name;
    for (int k = 0; k <= CT_SELECT_REDSYNC_SIZES; ++k)
        if (is(name, ct_select_name((ct_select_kind)k))) return ct_select_name((ct_select_kind)k);
    for (size_t i = 0; i < sizeof(wire_name) / sizeof(wire_name[0]); ++i)
        if (is(name, wire_name[i])) return wire_name[i];
    return NULL;
}

bool ct_sparse_is_auto(const char *name)
{
    return (name == NULL) || (strcmp(name, "auto") == 0);
}

const char *ct_sparse_inner(bool deterministic)
{
    return deterministic ? ct_sparse_allreduce_kind_name(CT_SPARSE_ALLREDUCE_ALLGATHER) : NULL;
}

static int64_t share_of(double density, int64_t n)
{
    int64_t k = llround(density * (double)n);

    if (k < 1) k = 1;
    return (k < n) ? k : n;
}

int64_t ct_sparse_wanted(const ct_codec_config *c, int64_t n)
{
    return share_of((double)c->density, n);
}

/* The power is made of square roots, one for each binary digit of the exponent: processors round
 * these alike, which libraries do not promise of pow(), and all ranks must select as many. */
double ct_sparse_density(const ct_codec_config *c, int64_t iteration)
{
    enum { DIGITS = 32 };
    double density = (double)c->density, root = (double)c->warmup_density / density, left = 0;

    if (!(c->warmup_density > 0) || (iteration >= c->warmup_iterations)) return density;
    if (iteration <= 0) return (double)c->warmup_density;
    left = (double)(c->warmup_iterations - iteration) / (double)c->warmup_iterations;
    for (int i = 0; i < DIGITS; ++i) {
        root = sqrt(root);
        left *= 2;
        if (left < 1) continue;
        density *= root;
        left -= 1;
    }
    return density;
}

int64_t ct_sparse_wanted_at(const ct_codec_config *c, int64_t n, int64_t iteration)
{
    return share_of(ct_sparse_density(c, iteration), n);
}

/* Reduce-scatter and allgather of plain f32. */
static int64_t dense_bytes(const ct_comm *c, int64_t n)
{
    return 2 * (int64_t)sizeof(float) * n / c->size * (c->size - 1);
}

/* That a rank sends of k selected elements. */
static int64_t exchange_bytes(const ct_codec_setup *s, const ct_sparse_allreduce_ops *exch,
                              int64_t k, ct_payload_form form)
{
    const ct_sparse_allreduce_model *m = NULL;

    if ((exch->node_start == NULL) || !s->deterministic ||
        (ct_sparse_allreduce_model_of(s->comm, &m) != CT_OK))
        return exch->bytes_theory(s->comm, s->n, k, form);
    return ct_sparse_allreduce_model_hier_bytes(m, CT_SPARSE_ALLREDUCE_ALLGATHER, s->n, k, form);
}

ct_sparse_warmup ct_sparse_warmup_of(const ct_codec_setup *s, const ct_sparse_allreduce_ops *exch,
                                     ct_payload_form form)
{
    const ct_codec_config *c = s->config;
    int64_t low = 0, high = c->warmup_iterations; /* it is dense before low, and sparse from high */

    if (!(c->warmup_density > 0))
        return (ct_sparse_warmup){ .dense_until = high, .k_most = ct_sparse_wanted(c, s->n) };
    while (low < high) {
        int64_t middle = low + (high - low) / 2, k = ct_sparse_wanted_at(c, s->n, middle);

        if ((exch == NULL) || (exchange_bytes(s, exch, k, form) <= dense_bytes(s->comm, s->n)))
            high = middle;
        else
            low = middle + 1;
    }
    low = (s->iteration > high) ? s->iteration : high;
    return (ct_sparse_warmup){ .dense_until = high, .k_most = ct_sparse_wanted_at(c, s->n, low) };
}

ct_payload_form ct_sparse_form(const ct_codec_config *c, int64_t n, bool quantize, bool plain)
{
    int64_t k = ct_sparse_wanted(c, n);

    if (quantize) return CT_PAYLOAD_MEAN;
    if (!ct_sparse_is_auto(c->wire))
        return (strcmp(c->wire, "half") == 0) ? CT_PAYLOAD_HALF : CT_PAYLOAD_PAIRS;
    if (plain ||
        (ct_payload_bytes(CT_PAYLOAD_PAIRS, n, k) <= ct_payload_bytes(CT_PAYLOAD_HALF, n, k)))
        return CT_PAYLOAD_PAIRS;
    return CT_PAYLOAD_HALF;
}

ct_status ct_sparse_check(const ct_codec_config *c)
{
    ct_select_kind kind;
    bool known = ct_sparse_is_auto(c->exchange);

    CT_TRY(ct_sparse_selection(c->selection, &kind));
    for (const ct_sparse_allreduce_ops *const *at = ct_sparse_allreduce_table; *at != NULL; ++at)
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

static int64_t payload_bytes(const ct_codec_config *c, int64_t n, bool plain)
{
    return (int64_t)ct_payload_bytes(ct_sparse_form(c, n, c->quantize, plain), n,
                                     ct_sparse_wanted(c, n));
}

static double one_exchange(const ct_codec_costs *m, ct_sparse_allreduce_kind kind, int64_t n,
                           int64_t k, ct_payload_form form, ct_sparse_allreduce_seconds *s)
{
    if ((kind == CT_SPARSE_ALLREDUCE_HIER) && m->deterministic) {
        ct_sparse_allreduce_model_hier_s(m->exch, CT_SPARSE_ALLREDUCE_ALLGATHER, n, k, form, s);
        s->wire_s *= m->wire_factor;
        return (double)ct_sparse_allreduce_model_hier_bytes(m->exch, CT_SPARSE_ALLREDUCE_ALLGATHER,
                                                            n, k, form);
    }
    ct_sparse_allreduce_model_s(m->exch, kind, n, k, form, s);
    s->wire_s *= m->wire_factor;
    if (kind == CT_SPARSE_ALLREDUCE_DENSE)
        s->wire_s += ct_codec_chained_sum_s(m, CT_F32, n * (int64_t)sizeof(float));
    return (double)ct_sparse_allreduce_model_bytes(m->exch, kind, n, k, form);
}

/* Each exchange that the configuration allows; the one that lands first. The slice of a hier is
 * all that its ranks select from. */
static void exchange_seconds(const ct_codec_costs *m, const ct_codec_config *c, int64_t n,
                             ct_payload_form form, ct_codec_seconds *out)
{
    int64_t k = ct_sparse_wanted(c, n);
    double least = INFINITY;

    for (int kind = 0; kind < CT_SPARSE_ALLREDUCE_KINDS; ++kind) {
        const char *name = ct_sparse_allreduce_kind_name((ct_sparse_allreduce_kind)kind);
        ct_sparse_allreduce_seconds s;
        double bytes = 0;

        if (!ct_sparse_is_auto(c->exchange) && (strcmp(c->exchange, name) != 0)) continue;
        bytes = one_exchange(m, (ct_sparse_allreduce_kind)kind, n, k, form, &s);
        if (s.wire_s + s.work_s >= least) continue;
        least = s.wire_s + s.work_s;
        out->wire_s = s.wire_s;
        out->decode_s = s.work_s;
        out->bytes = bytes;
        out->exchange = name;
    }
}

/* What replaces the solver's update: the accumulation in its place, and 12 bytes an element to
 * apply the sum where the update had 20. */
static void host_seconds(const ct_codec_costs *m, const ct_codec_config *c, int64_t n, bool plain,
                         ct_codec_seconds *out)
{
    ct_payload_form form = ct_sparse_form(c, n, c->quantize, plain);
    double elements = (double)n, k = (double)ct_sparse_wanted(c, n);
    double spared_s = c->momentum_correction ? ct_codec_stream_s(m, 8 * elements) : 0;

    *out = (ct_codec_seconds){ .encode_s = (m->speed.update_s + m->speed.select_s) * elements +
                                           m->speed.pack_s * k - spared_s };
    if (out->encode_s < 0) out->encode_s = 0;
    exchange_seconds(m, c, n, form, out);
}

/* Payloads of an allgather are added on the device; the others merge on the host, and their sum, of
 * about k entries, goes up, and as many that were dropped. */
static void device_seconds(const ct_codec_costs *m, const ct_codec_config *c, int64_t n, bool plain,
                           ct_codec_seconds *out)
{
    ct_codec_config own = *c;
    double payload = (double)payload_bytes(c, n, plain), k = (double)ct_sparse_wanted(c, n);
    int64_t filled = 0;
    double down = payload, up = CT_PAYLOAD_HEAD + 16 * k, whole = (double)n * sizeof(float);

    if (ct_sparse_is_auto(c->exchange)) own.exchange = "allgather";
    host_seconds(m, &own, n, plain, out);
    if (strcmp(own.exchange, "allgather") == 0) {
        up = (m->n_rank - 1) * payload;
        out->decode_s = m->n_rank * k * m->speed.add_s;
    } else {
        out->decode_s += 2 * k * m->speed.add_s;
    }
    if (strcmp(own.exchange, "dense") == 0) { /* entries of any rank */
        filled = ct_sparse_allreduce_union(n, ct_sparse_wanted(c, n), m->n_rank);
        up = (double)ct_payload_bytes(CT_PAYLOAD_PAIRS, n, filled);
    }
    if (strcmp(own.exchange, "hier") == 0) { /* a node's sum is made on the host */
        down += whole;
        up += whole;
    }
    out->decode_s += ct_codec_stream_s(m, whole); /* of zeros */
    out->wire_s += ct_codec_bus_s(m, down, up);
}

/* ---- as the table has it */

int64_t ct_topk_payload_bytes(const ct_codec_config *c, int64_t n, int64_t rows)
{
    (void)rows;
    return payload_bytes(c, n, true);
}

void ct_topk_seconds(const ct_codec_costs *m, const ct_codec_config *c, int64_t n, int64_t rows,
                     ct_codec_seconds *out)
{
    (void)rows;
    (m->bus.there ? device_seconds : host_seconds)(m, c, n, true, out);
}

int64_t ct_redsync_payload_bytes(const ct_codec_config *c, int64_t n, int64_t rows)
{
    (void)rows;
    return payload_bytes(c, n, false);
}

void ct_redsync_seconds(const ct_codec_costs *m, const ct_codec_config *c, int64_t n, int64_t rows,
                        ct_codec_seconds *out)
{
    (void)rows;
    (m->bus.there ? device_seconds : host_seconds)(m, c, n, false, out);
}
