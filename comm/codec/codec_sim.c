/* The codecs' work for a simulation: arrays and payloads have their size and no content, and what
 * is done to them takes its time. This file takes the place of momentum_correction.c, select.c,
 * sign.c, low_rank.c, cast.c and integer.c. */
#include <stdlib.h>
#include <string.h>

#include "comm/core/sim_codec.h"
#include "comm/codec/select.h"
#include "comm/codec/sign.h"
#include "comm/codec/low_rank.h"
#include "comm/codec/cast.h"
#include "comm/codec/integer.h"

/* ---- updates */

void ct_momentum_correction_run(const ct_momentum_correction *a)
{
    double arrays = (a->u != NULL) ? 5 : (a->mean != NULL) ? 4 : 3;

    ct_sim_codec_pass(ct_sim_codec().update_s * (double)a->n * arrays / 5);
}

void ct_momentum_correction_all(const ct_momentum_correction *a, float *out)
{
    (void)out;
    ct_momentum_correction_run(a);
    ct_sim_codec_stream(4 * (double)a->n);
}

void ct_momentum_correction_apart(const ct_momentum_correction *a, float *out, double sum[2])
{
    ct_momentum_correction_all(a, out);
    sum[0] = sum[1] = 0;
}

bool ct_momentum_correction_holds(const float *v, int64_t n)
{
    (void)v;
    (void)n;
    return false;
}

void ct_momentum_correction_send(const ct_momentum_correction *a, float share, float *out)
{
    (void)share;
    (void)out;
    ct_sim_codec_stream(16 * (double)a->n);
}

void ct_momentum_correction_less(float *v, int64_t n, float factor, const float *mean, int n_thread)
{
    (void)v;
    (void)factor;
    (void)mean;
    (void)n_thread;
    ct_sim_codec_stream(12 * (double)n);
}

double ct_momentum_correction_square(const float *v, int64_t n, int n_thread)
{
    (void)v;
    (void)n;
    (void)n_thread;
    return 0;
}

float ct_momentum_correction_limit(const float *v, int64_t n, double limit, int n_thread)
{
    (void)v;
    (void)limit;
    (void)n_thread;
    ct_sim_codec_stream(4 * (double)n);
    return 1;
}

void ct_momentum_correction_scale(float *v, int64_t n, float factor, int n_thread)
{
    (void)v;
    (void)factor;
    (void)n_thread;
    ct_sim_codec_stream(8 * (double)n);
}

/* ---- selections: as many elements as were asked for; which, nobody knows */

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

/* ---- signs */

ct_status ct_sign_check(const void *payload, size_t bytes, int64_t n)
{
    (void)payload;
    (void)bytes;
    (void)n;
    return CT_OK;
}

ct_status ct_sign_encode(const ct_sign_cut *c, const ct_momentum_correction *a, int skip,
                         void *payload)
{
    (void)skip;
    (void)payload;
    ct_momentum_correction_run(a);
    ct_sim_codec_pass(ct_sim_codec().sign_s * (double)c->n);
    return CT_OK;
}

ct_status ct_sign_take(float *v, int64_t n, int n_thread, void *payload)
{
    (void)v;
    (void)payload;
    (void)n_thread;
    ct_sim_codec_pass(ct_sim_codec().sign_s * (double)n);
    return CT_OK;
}

ct_status ct_sign_add(const void *payload, size_t bytes, float *v, int64_t n, int n_thread)
{
    (void)payload;
    (void)bytes;
    (void)v;
    (void)n_thread;
    ct_sim_codec_pass(ct_sim_codec().unsign_s * (double)n);
    return CT_OK;
}

ct_status ct_sign_sum(const void *const *payload, const size_t *bytes, int n_payload, float *v,
                      int64_t n, int n_thread)
{
    (void)payload;
    (void)bytes;
    (void)v;
    (void)n_thread;
    ct_sim_codec_pass(ct_sim_codec().unsign_s * (double)n * (n_payload + 1));
    return CT_OK;
}

/* ---- thin factors */

/* A quarter of what columns take, and this part of the rest. */
static void charge(const ct_low_rank *s, double part)
{
    ct_codec_speed speed = ct_sim_codec();
    double n = (double)s->rows * (double)s->cols;

    ct_sim_codec_pass(n * (part * speed.factor_s + s->r * speed.column_s / 4));
}

int64_t ct_low_rank_scratch(const ct_low_rank *s)
{
    (void)s;
    return 0;
}

ct_status ct_low_rank_left(const ct_low_rank *s, const ct_momentum_correction *a, const float *q,
                           float *p)
{
    (void)q;
    (void)p;
    ct_momentum_correction_run(a);
    charge(s, 0);
    return CT_OK;
}

void ct_low_rank_right(const ct_low_rank *s, const float *v, const float *p, int n_thread,
                       float *scratch, float *q)
{
    (void)v;
    (void)p;
    (void)scratch;
    (void)q;
    (void)n_thread;
    charge(s, 0.25);
}

void ct_low_rank_take(const ct_low_rank *s, const float *p, const float *q, int n_thread, float *v)
{
    (void)p;
    (void)q;
    (void)v;
    (void)n_thread;
    charge(s, 0.5);
}

void ct_low_rank_put(const ct_low_rank *s, const float *p, const float *q, int n_thread, float *v)
{
    (void)p;
    (void)q;
    (void)v;
    (void)n_thread;
    charge(s, 0.25);
}

ct_status ct_low_rank_basis(const ct_low_rank *s, float *p)
{
    (void)s;
    (void)p;
    return CT_OK;
}

void ct_low_rank_warm(const ct_low_rank *s, uint64_t key, float *q)
{
    (void)s;
    (void)key;
    (void)q;
}

/* ---- casts */

void ct_cast_encode(ct_dtype dtype, const float *v, int64_t n, float scale, int n_thread,
                    uint16_t *out)
{
    (void)dtype;
    (void)v;
    (void)scale;
    (void)n_thread;
    (void)out;
    ct_sim_codec_stream(6 * (double)n);
}

void ct_cast_decode(ct_dtype dtype, const uint16_t *in, int64_t n, float scale, int n_thread,
                    float *v)
{
    ct_cast_encode(dtype, v, n, scale, n_thread, NULL);
    (void)in;
}

void ct_cast_encode_in_place(ct_dtype dtype, float *v, int64_t n, float scale, int n_thread)
{
    ct_cast_encode(dtype, v, n, scale, n_thread, NULL);
}

void ct_cast_decode_in_place(ct_dtype dtype, float *v, int64_t first, int64_t n, float scale,
                             int n_thread)
{
    ct_cast_decode(dtype, NULL, n, scale, n_thread, v + first);
}

uint8_t ct_cast_exponent(const float *v, int64_t n, int n_thread)
{
    (void)v;
    (void)n_thread;
    ct_sim_codec_stream(4 * (double)n);
    return 127;
}

float ct_cast_scale(uint8_t exponent, int ranks)
{
    (void)exponent;
    (void)ranks;
    return 1;
}

/* ---- integers */

int64_t ct_integer_bytes(int bits, int64_t n)
{
    int64_t n_block = (n + CT_INTEGER_BLOCK - 1) / CT_INTEGER_BLOCK;

    return (int64_t)sizeof(float) * n_block + ((bits == 8) ? n : (n + 1) / 2);
}

bool ct_integer_encode(int bits, float *v, int64_t n, bool takes, int n_thread, void *payload)
{
    (void)v;
    (void)n_thread;
    (void)payload;
    if (takes) ct_sim_codec_stream(4 * (double)n);
    ct_sim_codec_pass(((bits == 8) ? ct_sim_codec().int8_s : ct_sim_codec().int4_s) * (double)n);
    return true;
}

void ct_integer_decode(int bits, const void *payload, int64_t n, bool adds, int n_thread, float *v)
{
    (void)payload;
    (void)n_thread;
    (void)v;
    (void)adds; /* the figure is the mean of both */
    ct_sim_codec_pass(((bits == 8) ? ct_sim_codec().unint8_s : ct_sim_codec().unint4_s) *
                      (double)n);
}
