/* The table of codecs, what is common to their configurations, and what they cost. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/codec/codec_sparse.h"
#include "comm/codec/codec_types.h"
#include "framework/base/text.h"

enum { MOST_NAMES = 32 };

const ct_codec_ops ct_codec_none = { .name = "none" };

/* Takes what any of those that it chooses among takes. */
const ct_codec_ops ct_codec_auto = { .name = "auto",
                                     .chooses = true,
                                     .uses = CT_CODEC_USES_DENSITY | CT_CODEC_USES_RESYNC |
                                             CT_CODEC_USES_MOMENTUM_CORRECTION |
                                             CT_CODEC_USES_AMONG,
                                     .on_device = true,
                                     .check = ct_sparse_check };

#define ADDRESS_OF(_name) &ct_codec_##_name,
const ct_codec_ops *const ct_codec_table[] = { CT_CODECS(ADDRESS_OF) NULL };

static bool is_word(const char *name, const char *word)
{
    size_t k = 0;

    while ((name[k] != '\0') && (tolower((unsigned char)name[k]) == word[k])) k += 1;
    return (name[k] == '\0') && (word[k] == '\0');
}

const char *ct_codec_word(const char *name)
{
    for (int i = 0; ct_codec_table[i] != NULL; ++i)
        if (is_word(name, ct_codec_table[i]->name)) return ct_codec_table[i]->name;
    return ct_sparse_word(name, is_word);
}

void ct_codec_users(ct_codec_field field, char *text, size_t size)
{
    const ct_codec_ops *user[MOST_NAMES];
    size_t at = 0;
    int n = 0;

    for (int i = 0; (ct_codec_table[i] != NULL) && (n < MOST_NAMES); ++i) {
        const ct_codec_ops *ops = ct_codec_table[i];

        if (ct_codec_uses(ops, field) && (!ops->chooses || (field == CT_CODEC_USES_AMONG)))
            user[n++] = ops;
    }
    text[0] = '\0';
    for (int i = 0; (i < n) && (at < size); ++i) {
        const char *name = user[i]->name;

        at += (size_t)snprintf(text + at, size - at, "%s",
                               (i == 0)       ? ""
                               : (i == n - 1) ? " and "
                                              : ", ");
        for (; (*name != '\0') && (at + 1 < size); ++name)
            text[at++] = (char)toupper((unsigned char)*name);
        if (at < size) text[at] = '\0';
    }
}

ct_status ct_codec_find(const char *name, const ct_codec_ops **ops_p)
{
    const char *known[MOST_NAMES], *near = NULL;
    ct_text list = { .text = NULL };
    int n = 0;
    ct_status status = CT_OK;

    for (const ct_codec_ops *const *at = ct_codec_table; *at != NULL; ++at) {
        if (strcmp(name, (*at)->name) == 0) {
            *ops_p = *at;
            ct_text_destroy(&list);
            return CT_OK;
        }
        ct_text_add(&list, "%s%s", (n > 0) ? ", " : "", (*at)->name);
        if (n < MOST_NAMES) known[n++] = (*at)->name;
    }
    near = ct_text_nearest(name, known, n);
    status =
        CT_FAIL(CT_ERR_CONFIG, "unknown compression \"%s\"; known are %s%s%s%s", name,
                (list.text != NULL) ? list.text : "none", (near != NULL) ? "; did you mean \"" : "",
                (near != NULL) ? near : "", (near != NULL) ? "\"?" : "");
    ct_text_destroy(&list);
    return status;
}

ct_status ct_codec_create(const ct_codec_ops *ops, const ct_codec_setup *setup, void **obj_p)
{
    void *obj = calloc(1, ops->size);
    ct_codec_setup own = *setup;
    ct_status status = CT_OK;

    if (obj == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to compress %s", setup->key);
    if (own.n_thread == NULL) own.n_thread = &setup->comm->n_thread;
    status = ops->prepare(obj, &own);
    if (status != CT_OK) {
        ops->destroy(obj);
        return status;
    }
    *obj_p = obj;
    return CT_OK;
}

/* A density that falls. */
static ct_status check_warmup(const ct_codec_ops *ops, const ct_codec_config *c, const char *who)
{
    if (c->warmup_density == 0) return CT_OK;
    if (!((c->warmup_density > 0) && (c->warmup_density <= 1)))
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s %s: warmup_density %g, but 0 < warmup_density <= 1 is needed, or 0: a "
                       "dense warm-up",
                       who, ops->name, (double)c->warmup_density);
    if (c->warmup_iterations == 0)
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s %s: warmup_density %g is that of the first iteration of a warm-up, and "
                       "warmup_iter is 0: give warmup_iter, or leave warmup_density out",
                       who, ops->name, (double)c->warmup_density);
    if (c->warmup_density <= c->density)
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s %s: warmup_density %g has to fall to density %g, and is not above it",
                       who, ops->name, (double)c->warmup_density, (double)c->density);
    return CT_OK;
}

ct_status ct_codec_check(const ct_codec_ops *ops, const ct_codec_config *c, const char *who)
{
    if (ct_codec_is_sparse(ops) && !((c->density > 0) && (c->density <= 1)))
        return CT_FAIL(CT_ERR_CONFIG, "%s %s: density %g, but 0 < density <= 1 is needed", who,
                       ops->name, (double)c->density);
    if ((c->min_bytes < 0) || (c->warmup_iterations < 0) || (c->resync_iterations < 0))
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s %s: min_bytes %lld, warmup_iter %lld, resync_iter %lld: none "
                       "may be negative",
                       who, ops->name, (long long)c->min_bytes, (long long)c->warmup_iterations,
                       (long long)c->resync_iterations);
    if (ct_codec_is_sparse(ops)) CT_TRY(check_warmup(ops, c, who));
    if (!((c->local_clip >= 0) && (c->local_clip <= 3.4e38f)))
        return CT_FAIL(CT_ERR_CONFIG, "%s %s: local_clip %g: expected the largest norm, or 0: any",
                       who, ops->name, (double)c->local_clip);
    return (ops->check != NULL) ? ops->check(c) : CT_OK;
}

static double comm_allreduce_s(void *ctx, ct_dtype dtype, int64_t bytes, bool own)
{
    const ct_codec_comm_costs *m = ctx;
    const ct_coll_ops *ops = NULL;
    int64_t count = bytes / (int64_t)ct_dtype_size(dtype);

    ct_status status = own ? ct_coll_choose_own(m->comm, count, dtype, m->allreduce, &ops)
                           : ct_coll_choose(m->comm, count, dtype, m->allreduce, &ops);

    if (m->part && (dtype != CT_U8) && (status == CT_OK)) /* fp16: all ranks get the exponent */
        ops = ct_coll_of_kind(ops, CT_COLL_REDUCE_SCATTER);
    return (ops != NULL) ? ct_coll_cost_s(ops, m->comm, bytes, dtype) : 0;
}

ct_status ct_codec_costs_of(ct_comm *c, const char *allreduce, bool deterministic,
                            ct_codec_comm_costs *out)
{
    *out = (ct_codec_comm_costs){ .costs = { .n_rank = c->size,
                                             .speed = ct_topo_codec_speed(c->topo),
                                             .deterministic = deterministic,
                                             .allreduce_s = comm_allreduce_s,
                                             .ctx = out,
                                             .sum_factor = 1,
                                             .wire_factor = 1 },
                                  .comm = c,
                                  .allreduce = allreduce };
    return ct_sparse_allreduce_model_of(c, &out->costs.exch);
}

double ct_codec_bus_s(const ct_codec_costs *m, double down, double up)
{
    return m->bus.there ? m->bus.down_s * down + m->bus.up_s * up : 0;
}

double ct_codec_stream_s(const ct_codec_costs *m, double bytes)
{
    return (m->speed.memory > 0) ? bytes / m->speed.memory : 0;
}

static double sum_s(const ct_codec_costs *m, ct_dtype dtype, int64_t bytes, bool own)
{
    return (m->n_rank > 1) ? m->sum_factor * m->allreduce_s(m->ctx, dtype, bytes, own) : 0;
}

/* On a device sums begin when a gradient has come down, in any order. */
double ct_codec_sum_s(const ct_codec_costs *m, ct_dtype dtype, int64_t bytes)
{
    return sum_s(m, dtype, bytes, m->deterministic || m->bus.there);
}

double ct_codec_chained_sum_s(const ct_codec_costs *m, ct_dtype dtype, int64_t bytes)
{
    return sum_s(m, dtype, bytes, true);
}

double ct_codec_sum_bytes(const ct_codec_costs *m, double bytes)
{
    return 2 * bytes * (m->n_rank - 1) / m->n_rank;
}

double ct_codec_predict_s(ct_comm *c, const char *allreduce, bool deterministic, bool part,
                          const ct_codec_ops *ops, const ct_codec_config *config, int64_t n,
                          int64_t rows)
{
    ct_codec_comm_costs m;
    ct_codec_seconds s;

    if ((c->size == 1) || (ops->seconds == NULL)) return 0;
    if (ct_codec_costs_of(c, allreduce, deterministic, &m) != CT_OK) return 0;
    m.part = part;
    ops->seconds(&m.costs, config, n, rows, &s);
    return s.encode_s + s.wire_s + s.decode_s;
}
