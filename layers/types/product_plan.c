/* Products with what stands behind them, by a device's library or by kernels one after the other:
 * chosen by a plan, or by a static rule: the library's first algorithm where something stands
 * behind, plain BLAS, which chooses for itself, where nothing does. */
#include "layers/types/product.h"

#include <stdio.h>

typedef struct trial {
    ct_engine_plan *plan;
    ct_product *p; /* fused: what is tried */
    ct_fused *fused;
    ct_engine_offer offer; /* index: of the library's algorithm; -1: one after the other */
    ct_product_args args;
    ct_exec ex;
} trial;

static void use(const trial *t, int algorithm)
{
    t->p->fused = (algorithm >= 0) ? t->fused : NULL;
    if (algorithm >= 0) t->p->math->fused->take(t->fused, algorithm);
}

static ct_fused_desc describe(const ct_product *p)
{
    const ct_gemm_desc *d = &p->d;

    return (ct_fused_desc){ p->operand, d->ta,     d->tb,      d->m,     d->n,
                            d->k,       p->inside, p->aligned, p->narrow };
}

size_t ct_product_bits(const ct_product *p)
{
    ct_fused_desc d = describe(p);

    return p->math->fused->bits(&d);
}

/* All operands in the block; block NULL: nothing but the bytes. A device's memory comes as zeros.
 */
static void lay_out(trial *t, void *block, size_t *bytes_p)
{
    const ct_product *p = t->p;
    const ct_gemm_desc *d = &p->d;
    bool bits = (p->inside & (CT_FUSE_BITS | CT_FUSE_DRELU)) != 0;
    int64_t vector = (d->m > d->n) ? d->m : d->n;
    ct_product_args *g = &t->args;

    *g = (ct_product_args){ .lda = d->ta ? d->m : d->k, .ldb = d->tb ? d->k : d->n, .ldc = d->n };
    g->a = ct_engine_scratch(block, bytes_p, d->m * d->k, false);
    g->b = ct_engine_scratch(block, bytes_p, d->k * d->n, false);
    g->c = ct_engine_scratch(block, bytes_p, d->m * d->n, false);
    if ((p->behind & CT_FUSE_BIAS) != 0) g->bias = ct_engine_scratch(block, bytes_p, vector, false);
    if ((p->inside & CT_FUSE_SUMS) != 0) g->sums = ct_engine_scratch(block, bytes_p, vector, false);
    if (bits)
        g->bits = ct_engine_scratch(block, bytes_p, (int64_t)(ct_product_bits(p) + 3) / 4, false);
}

static ct_status prepare(void *ctx)
{
    trial *t = ctx;
    size_t bytes = 0, work = ct_product_workspace(t->p);
    char *block;

    lay_out(t, NULL, &bytes);
    for (int i = 0; i < t->offer.n; i++) {
        int at = t->offer.index[i];
        size_t w = (at >= 0) ? t->p->math->fused->workspace(t->fused, at) : 0;

        if (w > work) work = w;
    }
    block = ct_engine_plan_scratch(t->plan, bytes + work);
    if (block == NULL) return CT_ERR_NOMEM;
    bytes = 0;
    lay_out(t, block, &bytes);
    t->args.work = block + bytes;
    return CT_OK;
}

static ct_status run(void *ctx, int i)
{
    trial *t = ctx;

    use(t, t->offer.index[i]);
    return ct_product_run(t->p, &t->ex, &t->args);
}

static void write_key(const ct_product *p, ct_run_kind kind, char *text, size_t size)
{
    static const char *const pass[CT_N_RUN] = { "forward", "backward_data", "backward_weight" };
    static const char *const operand[] = { "", " tf32", " bf16", " f16" };
    const ct_gemm_desc *d = &p->d;
    unsigned b = p->inside;
    char at[16] = "", narrow[8] = "";

    if (p->aligned > 0) snprintf(at, sizeof(at), " at%d", p->aligned);
    if (p->narrow != 0)
        snprintf(narrow, sizeof(narrow), " %s%s%s", ((p->narrow & CT_NARROW_A) != 0) ? "a" : "",
                 ((p->narrow & CT_NARROW_B) != 0) ? "b" : "",
                 ((p->narrow & CT_NARROW_C) != 0) ? "c" : "");
    snprintf(text, size, "product %s m%lld n%lld k%lld %c%c%s%s%s%s%s%s%s%s gpu", pass[kind],
             (long long)d->m, (long long)d->n, (long long)d->k, d->ta ? 't' : 'n',
             d->tb ? 't' : 'n', ((b & CT_FUSE_BIAS) != 0) ? " bias" : "",
             ((b & CT_FUSE_RELU) != 0) ? " relu" : "", ((b & CT_FUSE_BITS) != 0) ? " bits" : "",
             ((b & CT_FUSE_DRELU) != 0) ? " drelu" : "", ((b & CT_FUSE_SUMS) != 0) ? " sums" : "",
             at, operand[p->operand], narrow);
}

static ct_status ask(const ct_layer *l, ct_run_kind kind, trial *t, int *algorithm_p)
{
    const ct_fused_ops *ops = t->p->math->fused;
    bool separate = (t->p->inside & (CT_FUSE_BITS | CT_FUSE_DRELU)) == 0;
    bool first = (t->p->inside != 0) && (t->fused != NULL);
    char key[CT_ENGINE_PLAN_KEY];

    t->plan = ct_engine_plan_of(l);
    t->ex.dev = l->dev;
    for (int i = 0; (t->fused != NULL) && (ops->algorithm(t->fused, i) != NULL); i++)
        ct_engine_offer_add(&t->offer, ops->algorithm(t->fused, i), i, first && (i == 0));
    if (separate) ct_engine_offer_add(&t->offer, "blas", -1, !first);
    t->offer.optional = !separate;
    write_key(t->p, kind, key, sizeof(key));
    return ct_engine_ask(l, key, &t->offer, prepare, run, t, algorithm_p);
}

/* Products of 16 bits read their operands rounded, and sums are of what was there before: where
 * that had 16 bits, it is the same. */
static unsigned inside_of(const ct_product *p)
{
    bool rounds = (p->operand == CT_OPERAND_BF16) || (p->operand == CT_OPERAND_F16);
    unsigned inside = p->behind;

    if (rounds && ((p->narrow & CT_NARROW_A) == 0)) inside &= ~(unsigned)CT_FUSE_SUM_A;
    if (rounds && ((p->narrow & CT_NARROW_B) == 0)) inside &= ~(unsigned)CT_FUSE_SUM_B;
    return inside;
}

/* p comes without a library's; the rest is set. */
static ct_status choose(const ct_layer *l, ct_run_kind kind, ct_product *p)
{
    const char *policy = ct_engine_policy(l, kind);
    bool automatic = (strcmp(policy, "auto") == 0), named = (strcmp(policy, "lt") == 0);
    bool must = (p->inside & (CT_FUSE_BITS | CT_FUSE_DRELU)) != 0;
    bool asks = automatic && (ct_engine_plan_of(l) != NULL);
    ct_fused_desc d = describe(p);
    trial t = { .p = p };
    ct_status status;
    int algorithm = 0;

    if (!named && !asks && !(automatic && (p->inside != 0))) return must ? CT_UNSUPPORTED : CT_OK;
    status = p->math->fused->create(&d, &t.fused);
    if (status == CT_UNSUPPORTED) {
        if (must && !asks) return CT_UNSUPPORTED; /* others may have it, and ask */
        if (named) return ct_engine_refuse(l, kind, policy, "blas");
        algorithm = -1;
    } else if (status != CT_OK) {
        return status;
    }
    status = asks ? ask(l, kind, &t, &algorithm) : CT_OK;
    use(&t, algorithm);
    if (p->fused == NULL) p->math->fused->destroy(t.fused);
    return status;
}

static ct_status make(const ct_layer *l, ct_run_kind kind, const ct_gemm_desc *shape,
                      unsigned behind, unsigned narrow, int aligned, ct_product *p)
{
    ct_product made = { .math = NULL };
    ct_status status;

    if ((behind & (CT_FUSE_BITS | CT_FUSE_DRELU)) != 0 && (l->dev->math->fused == NULL))
        return CT_UNSUPPORTED;
    CT_TRY(ct_product_make_plain(l, kind, shape, behind, narrow, &made));
    if (l->dev->math->fused != NULL) {
        made.inside = inside_of(&made);
        made.aligned = aligned;
        status = choose(l, kind, &made);
        if (status != CT_OK) {
            ct_product_drop(&made);
            return status;
        }
    }
    ct_product_drop(p);
    *p = made;
    return CT_OK;
}

ct_status ct_product_make(const ct_layer *l, ct_run_kind kind, const ct_gemm_desc *shape,
                          unsigned behind, ct_product *p)
{
    return make(l, kind, shape, behind, 0, 0, p);
}

ct_status ct_product_make_narrow(const ct_layer *l, ct_run_kind kind, const ct_gemm_desc *shape,
                                 unsigned behind, unsigned narrow, ct_product *p)
{
    return make(l, kind, shape, behind, narrow, 0, p);
}

ct_status ct_product_make_at(const ct_layer *l, ct_run_kind kind, const ct_gemm_desc *shape,
                             unsigned behind, int aligned, ct_product *p)
{
    return make(l, kind, shape, behind, 0, aligned, p);
}

void ct_product_drop(ct_product *p)
{
    if (p->fused != NULL) p->math->fused->destroy(p->fused);
    p->fused = NULL;
}
