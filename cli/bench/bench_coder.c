#include "cli/bench/bench_coder.h"

#include <stdlib.h>

#include "comm/codec/cast.h"
#include "comm/codec/low_rank.h"
#include "comm/codec/sign.h"
#include "framework/base/memory.h"

typedef enum { BF16, F16, SIGNS, FACTORS } form;

static const struct kind {
    const char *codec, *wire;
    form form;
    int rank, passes;
} kind[CT_CODERS] = {
    { "bf16", "bf16", BF16, 0, 1 },          { "fp16", "f16", F16, 0, 2 },
    { "onebit", "signs", SIGNS, 0, 1 },      { "powersgd", "rank 2", FACTORS, 2, 3 },
    { "powersgd", "rank 4", FACTORS, 4, 3 },
};

struct ct_coder {
    const struct kind *kind;
    int64_t n;
    int n_thread;
    int64_t bytes;
    void *payload;
    float scale;       /* fp16                                              */
    ct_low_rank shape; /* powersgd, with Q of the step before and its parts */
    float *p, *q, *warm, *scratch;
};

/* As square as it can be. */
static ct_low_rank shape_of(int64_t n, int rank)
{
    ct_low_rank s = { .rows = 1, .cols = n, .r = rank };

    for (int64_t rows = 1; rows * rows <= n; ++rows) {
        if (n % rows == 0) s.rows = rows;
    }
    s.cols = n / s.rows;
    return s;
}

void ct_coder_destroy(ct_coder *c)
{
    if (c == NULL) return;
    ct_mem_release(c->payload);
    ct_mem_release(c->p);
    ct_mem_release(c->q);
    ct_mem_release(c->warm);
    ct_mem_release(c->scratch);
    free(c);
}

static ct_status acquire_factors(ct_coder *c)
{
    size_t of_q = sizeof(float) * (size_t)(c->shape.r * c->shape.cols);

    c->p = ct_mem_acquire(sizeof(float) * (size_t)(c->shape.r * c->shape.rows));
    c->q = ct_mem_acquire(of_q);
    c->warm = ct_mem_acquire(of_q);
    c->scratch = ct_mem_acquire(sizeof(float) * (size_t)ct_low_rank_scratch(&c->shape));
    if ((c->p == NULL) || (c->q == NULL) || (c->warm == NULL) || (c->scratch == NULL))
        return CT_FAIL(CT_ERR_NOMEM, "no memory for %lld elements", (long long)c->n);
    ct_low_rank_warm(&c->shape, 1, c->warm);
    return CT_OK;
}

static ct_status acquire(ct_coder *c)
{
    if (c->kind->form == FACTORS) return acquire_factors(c);
    c->payload = ct_mem_acquire((size_t)c->bytes);
    if (c->payload == NULL)
        return CT_FAIL(CT_ERR_NOMEM, "no memory for %lld elements", (long long)c->n);
    return CT_OK;
}

ct_status ct_coder_create(int i, int64_t n, int n_thread, ct_coder **coder_p)
{
    ct_low_rank shape = shape_of(n, kind[i].rank);
    ct_coder *c = NULL;
    ct_status status = CT_OK;

    *coder_p = NULL;
    if ((kind[i].form == FACTORS) &&
        ((shape.r > shape.rows) || (shape.r * (shape.rows + shape.cols) >= n)))
        return CT_OK;
    c = calloc(1, sizeof(*c));
    if (c == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for the bench");
    c->kind = &kind[i];
    c->n = n;
    c->n_thread = n_thread;
    c->shape = shape;
    c->bytes = (int64_t)sizeof(uint16_t) * n;
    if (c->kind->form == SIGNS) c->bytes = (int64_t)ct_sign_bytes(n);
    if (c->kind->form == FACTORS)
        c->bytes = (int64_t)sizeof(float) * shape.r * (shape.rows + shape.cols);
    status = acquire(c);
    if (status != CT_OK) {
        ct_coder_destroy(c);
        return status;
    }
    *coder_p = c;
    return CT_OK;
}

const char *ct_coder_codec(const ct_coder *c)
{
    return c->kind->codec;
}

const char *ct_coder_wire(const ct_coder *c)
{
    return c->kind->wire;
}

int64_t ct_coder_bytes(const ct_coder *c)
{
    return c->bytes;
}

int ct_coder_passes(const ct_coder *c)
{
    return c->kind->passes;
}

static ct_status encode_factors(ct_coder *c, const ct_momentum_correction *a)
{
    CT_TRY(ct_low_rank_left(&c->shape, a, c->warm, c->p));
    CT_TRY(ct_low_rank_basis(&c->shape, c->p));
    ct_low_rank_right(&c->shape, a->v, c->p, c->n_thread, c->scratch, c->q);
    ct_low_rank_take(&c->shape, c->p, c->q, c->n_thread, a->v);
    return CT_OK;
}

ct_status ct_coder_encode(ct_coder *c, const ct_momentum_correction *a)
{
    switch (c->kind->form) {
    case BF16:
        ct_cast_encode(CT_BF16, a->grad, c->n, 1, c->n_thread, c->payload);
        return CT_OK;
    case F16:
        c->scale = ct_cast_scale(ct_cast_exponent(a->grad, c->n, c->n_thread), 1);
        ct_cast_encode(CT_F16, a->grad, c->n, c->scale, c->n_thread, c->payload);
        return CT_OK;
    case SIGNS:
        return ct_sign_encode(&(ct_sign_cut){ .n = c->n, .parts = 1 }, a, -1, c->payload);
    default:
        return encode_factors(c, a);
    }
}

ct_status ct_coder_decode(ct_coder *c, float *sum)
{
    const void *payload = c->payload;
    size_t bytes = (size_t)c->bytes;

    switch (c->kind->form) {
    case BF16:
        ct_cast_decode(CT_BF16, payload, c->n, 1, c->n_thread, sum);
        return CT_OK;
    case F16:
        ct_cast_decode(CT_F16, payload, c->n, 1 / c->scale, c->n_thread, sum);
        return CT_OK;
    case SIGNS:
        return ct_sign_sum(&payload, &bytes, 1, sum, c->n, c->n_thread);
    default:
        ct_low_rank_put(&c->shape, c->p, c->q, c->n_thread, sum);
        for (int64_t i = 0; i < c->shape.r * c->shape.cols; ++i) c->warm[i] = c->q[i];
        ct_low_rank_warm(&c->shape, 1, c->warm);
        return CT_OK;
    }
}
