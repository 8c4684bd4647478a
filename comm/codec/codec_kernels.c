/* Which kinds of device have kernels, what sizes coders have, and the kernels of the CPU: what
 * select.h, payload.h, sign.h, low_rank.h and cast.h do, as the table has it. */
#include "comm/codec/codec_kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "comm/codec/cast.h"
#include "comm/codec/momentum_correction_math.h"
#include "comm/codec/sign.h"
#include "framework/base/memory.h"

const ct_codec_kernels *ct_codec_kernels_find(ct_device_kind kind)
{
#ifdef CT_HAVE_CUDA
    if (kind == CT_DEVICE_CUDA) return &ct_codec_kernels_cuda;
#endif
    return (kind == CT_DEVICE_CPU) ? &ct_codec_kernels_cpu : NULL;
}

ct_select_kind ct_coder_kind(const ct_coder_setup *s)
{
    enum { REDSYNC_BYTES = 4 << 20 };
    bool small = (s->n < REDSYNC_BYTES / (int64_t)sizeof(float));

    if (s->kind == CT_SELECT_REDSYNC_SIZES) return small ? CT_SELECT_EXACT : CT_SELECT_SAMPLED;
    if ((s->kind == CT_SELECT_SEARCH) || (s->kind == CT_SELECT_SAMPLED)) return s->kind;
    return CT_SELECT_EXACT;
}

int64_t ct_coder_limit(const ct_coder_setup *s)
{
    bool over = (ct_coder_kind(s) != CT_SELECT_EXACT);
    int64_t k = (s->k_most > s->k) ? s->k_most : s->k, most = over ? ct_select_most(k) : k;

    return (most < s->n) ? most : s->n;
}

size_t ct_coder_room(const ct_coder_setup *s)
{
    return ct_payload_bytes(s->form, s->n, ct_coder_limit(s));
}

/* ---- the CPU's coders */

typedef struct cpu_coder {
    ct_coder_setup s;
    ct_selector *selector;
    ct_sparse own;       /* the last selection */
    void *payload;       /* where it goes */
    void *room;          /* … unless the caller says where */
    char *incoming;      /* [n_payload] of `stride` bytes; NULL until asked for */
    const void **signs;  /* [n_payload + 1], for sums */
    size_t *signs_bytes; /* [n_payload + 1] */
    size_t stride;
    float clip;
    ct_coder_note note;
} cpu_coder;

static cpu_coder *of(ct_codec_coder *c)
{
    return (cpu_coder *)(void *)c;
}

/* The stream: how many threads may work now. */
static int threads(ct_stream st)
{
    return (st != NULL) ? *(const int *)st : 0;
}

static ct_momentum_correction limited(ct_codec_coder *c, const ct_momentum_correction *a)
{
    ct_momentum_correction b = *a;

    b.scale *= of(c)->clip;
    return b;
}

static ct_status cpu_stream(const int *n_thread, ct_stream *st_p)
{
    *st_p = (void *)(uintptr_t)n_thread;
    return CT_OK;
}

static ct_status cpu_follow(ct_stream first, ct_stream behind)
{
    (void)first;
    (void)behind;
    return CT_OK;
}

static void cpu_destroy(ct_codec_coder *coder)
{
    cpu_coder *c = of(coder);

    if (c == NULL) return;
    ct_selector_destroy(c->selector);
    ct_sparse_destroy(&c->own);
    ct_mem_release(c->room);
    ct_mem_release(c->incoming);
    free(c->signs);
    free(c->signs_bytes);
    free(c);
}

static ct_status cpu_make(cpu_coder *c)
{
    size_t n = (size_t)c->s.n_payload + 1;

    c->clip = 1;
    c->stride = ct_align_up(ct_coder_room(&c->s));
    c->signs = calloc(n, sizeof(*c->signs));
    c->signs_bytes = calloc(n, sizeof(*c->signs_bytes));
    if ((c->signs == NULL) || (c->signs_bytes == NULL))
        return CT_FAIL(CT_ERR_NOMEM, "no memory for a coder");
    return ct_selector_create(c->s.kind, c->s.n, c->s.k, &c->selector);
}

static ct_status cpu_create(const ct_coder_setup *setup, ct_codec_coder **c_p)
{
    cpu_coder *c = calloc(1, sizeof(*c));
    ct_status status = CT_OK;

    if (c == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a coder");
    c->s = *setup;
    status = cpu_make(c);
    if (status != CT_OK) {
        cpu_destroy((ct_codec_coder *)(void *)c);
        return status;
    }
    *c_p = (ct_codec_coder *)(void *)c;
    return CT_OK;
}

static void *cpu_note(ct_codec_coder *c)
{
    return &of(c)->note;
}

static void cpu_want(ct_codec_coder *c, int64_t k)
{
    of(c)->s.k = k;
    ct_selector_want(of(c)->selector, k);
}

static ct_status cpu_forget(ct_codec_coder *c, ct_stream st)
{
    (void)st;
    ct_selector_forget(of(c)->selector);
    return CT_OK;
}

/* ---- updates and dense steps */

static ct_status cpu_clip(ct_codec_coder *c, ct_stream st, const float *grad, int64_t n,
                          double limit)
{
    of(c)->clip = (limit > 0) ? ct_momentum_correction_limit(grad, n, limit, threads(st)) : 1;
    return CT_OK;
}

static ct_status cpu_shrink(ct_codec_coder *c, ct_stream st, float *grad, int64_t n, double limit)
{
    float factor = (limit > 0) ? ct_momentum_correction_limit(grad, n, limit, threads(st)) : 1;

    (void)c;
    if (factor != 1) ct_momentum_correction_scale(grad, n, factor, threads(st));
    return CT_OK;
}

static ct_status cpu_update(ct_codec_coder *c, ct_stream st, const ct_momentum_correction *a)
{
    ct_momentum_correction b = limited(c, a);

    (void)st;
    ct_momentum_correction_run(&b);
    return CT_OK;
}

static ct_status cpu_all(ct_codec_coder *c, ct_stream st, const ct_momentum_correction *a,
                         float *out)
{
    ct_momentum_correction b = limited(c, a);

    (void)st;
    ct_momentum_correction_all(&b, out);
    return CT_OK;
}

static ct_status cpu_apart(ct_codec_coder *c, ct_stream st, const ct_momentum_correction *a,
                           bool restart, int n_rank, float least, float *out, bool *empty_p)
{
    ct_momentum_correction b = limited(c, a);
    double sum[2];
    float share = 1;

    *empty_p = true;
    if (!ct_momentum_correction_holds(a->v, a->n)) return cpu_all(c, st, a, out);
    if (restart) memset(b.u, 0, sizeof(*b.u) * (size_t)b.n);
    ct_momentum_correction_apart(&b, out, sum);
    share = ct_momentum_correction_share(sum[0], sum[1], n_rank, least);
    ct_momentum_correction_send(&b, share, out);
    *empty_p = (share == 1.0f);
    return CT_OK;
}

static ct_status cpu_square(ct_codec_coder *c, ct_stream st, const float *v, int64_t n,
                            double *sum_p)
{
    (void)c;
    *sum_p = ct_momentum_correction_square(v, n, threads(st));
    return CT_OK;
}

/* ---- selections and their payloads */

static void cpu_pack_into(ct_codec_coder *c, void *payload)
{
    of(c)->payload = payload;
}

static void *cpu_payload(ct_codec_coder *c)
{
    return of(c)->payload;
}

static ct_sparse *cpu_entries(ct_codec_coder *c)
{
    return of(c)->s.entries ? &of(c)->own : NULL;
}

static void *cpu_incoming(ct_codec_coder *coder, int i)
{
    cpu_coder *c = of(coder);

    if (c->incoming == NULL) c->incoming = ct_mem_acquire(c->stride * (size_t)c->s.n_payload);
    return (c->incoming != NULL) ? c->incoming + c->stride * (size_t)i : NULL;
}

static ct_status cpu_select(ct_codec_coder *coder, ct_stream st, const ct_momentum_correction *a,
                            int sign)
{
    cpu_coder *c = of(coder);
    ct_momentum_correction b = limited(coder, a);
    ct_select_stats s;

    (void)st;
    if ((c->payload == NULL) && !c->s.entries) {
        c->room = c->payload = ct_mem_acquire(ct_coder_room(&c->s));
        if (c->payload == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a payload");
    }
    ct_selector_sign(c->selector, sign);
    CT_TRY(ct_selector_run(c->selector, &b, &c->own));
    ct_selector_stats(c->selector, &s);
    c->note.count = c->own.count;
    c->note.candidates = s.candidates;
    c->note.passes = (uint32_t)s.passes;
    c->note.update_s = s.update_s;
    c->note.select_s = s.select_s;
    if (c->s.entries) return CT_OK;
    ct_payload_round(c->s.form, &c->own, &(ct_residual_return){ .v = b.v });
    (void)ct_payload_pack(c->s.form, &c->own, c->payload);
    return CT_OK;
}

static ct_status cpu_add(ct_codec_coder *c, ct_stream st, const void *const *payload,
                         const size_t *bytes, int n_payload, float *sum)
{
    return ct_payload_sum_all(payload, bytes, n_payload, sum, of(c)->s.n, threads(st),
                              &of(c)->note.filled);
}

static ct_status cpu_put_back(ct_codec_coder *c, ct_stream st, const uint32_t *index,
                              const float *value, int64_t count, float *v)
{
    (void)c;
    (void)st;
    for (int64_t j = 0; j < count; ++j) v[index[j]] += value[j];
    return CT_OK;
}

/* ---- signs */

static ct_status cpu_sign(ct_codec_coder *c, ct_stream st, const ct_momentum_correction *a,
                          int parts, int skip, void *payload)
{
    ct_momentum_correction b = limited(c, a);

    (void)st;
    return ct_sign_encode(&(ct_sign_cut){ .n = a->n, .parts = parts }, &b, skip, payload);
}

static ct_status cpu_sign_take(ct_codec_coder *c, ct_stream st, float *v, int64_t n, void *payload)
{
    (void)c;
    return ct_sign_take(v, n, threads(st), payload);
}

static ct_status cpu_sign_add(ct_codec_coder *coder, ct_stream st, const void *payload,
                              size_t stride, int n_payload, bool onto, float *v, int64_t n)
{
    cpu_coder *c = of(coder);

    for (int i = 0; i < n_payload; ++i) {
        const void *at = (const char *)payload + stride * (size_t)i;

        if (onto) {
            CT_TRY(ct_sign_add(at, ct_sign_bytes(n), v, n, threads(st)));
            continue;
        }
        c->signs[i] = at;
        c->signs_bytes[i] = ct_sign_bytes(n);
    }
    return onto ? CT_OK : ct_sign_sum(c->signs, c->signs_bytes, n_payload, v, n, threads(st));
}

static ct_status cpu_sign_put(ct_codec_coder *c, ct_stream st, const void *payload, size_t stride,
                              int parts, float *v, int64_t n)
{
    ct_sign_cut cut = { .n = n, .parts = parts };

    (void)c;
    for (int j = 0; j < parts; ++j) {
        const void *at = (const char *)payload + stride * (size_t)j;
        int64_t first = 0, count = 0;
        size_t bytes = 0;

        ct_sign_part(&cut, j, &first, &count);
        bytes = ct_sign_bytes(count);
        CT_TRY(ct_sign_sum(&at, &bytes, 1, v + first, count, threads(st)));
    }
    return CT_OK;
}

/* ---- thin factors */

static ct_status cpu_left(ct_codec_coder *c, ct_stream st, const ct_low_rank *s,
                          const ct_momentum_correction *a, const float *q, float *p)
{
    ct_momentum_correction b = limited(c, a);

    (void)st;
    return ct_low_rank_left(s, &b, q, p);
}

static ct_status cpu_right(ct_stream st, const ct_low_rank *s, const float *v, const float *p,
                           float *scratch, float *q)
{
    ct_low_rank_right(s, v, p, threads(st), scratch, q);
    return CT_OK;
}

static ct_status cpu_product(ct_stream st, const ct_low_rank *s, const float *p, const float *q,
                             bool takes, float *v)
{
    (takes ? ct_low_rank_take : ct_low_rank_put)(s, p, q, threads(st), v);
    return CT_OK;
}

/* ---- casts */

static ct_status cpu_exponent(ct_stream st, const float *v, int64_t n, uint32_t *out)
{
    *out = ct_cast_exponent(v, n, threads(st));
    return CT_OK;
}

static ct_status cpu_encode(ct_stream st, bool fp16, const float *v, int64_t n, float scale,
                            uint16_t *out)
{
    ct_cast_encode(fp16 ? CT_F16 : CT_BF16, v, n, scale, threads(st), out);
    return CT_OK;
}

static ct_status cpu_decode(ct_stream st, bool fp16, const uint16_t *in, int64_t n, float scale,
                            float *v)
{
    ct_cast_decode(fp16 ? CT_F16 : CT_BF16, in, n, scale, threads(st), v);
    return CT_OK;
}

const ct_codec_kernels ct_codec_kernels_cpu = {
    .kind = CT_DEVICE_CPU,
    .stream = cpu_stream,
    .follow = cpu_follow,
    .create = cpu_create,
    .destroy = cpu_destroy,
    .clip = cpu_clip,
    .shrink = cpu_shrink,
    .update = cpu_update,
    .select = cpu_select,
    .all = cpu_all,
    .apart = cpu_apart,
    .square = cpu_square,
    .pack_into = cpu_pack_into,
    .payload = cpu_payload,
    .note = cpu_note,
    .entries = cpu_entries,
    .incoming = cpu_incoming,
    .add = cpu_add,
    .put_back = cpu_put_back,
    .want = cpu_want,
    .forget = cpu_forget,
    .sign = cpu_sign,
    .sign_take = cpu_sign_take,
    .sign_add = cpu_sign_add,
    .sign_put = cpu_sign_put,
    .left = cpu_left,
    .right = cpu_right,
    .product = cpu_product,
    .exponent = cpu_exponent,
    .encode = cpu_encode,
    .decode = cpu_decode,
};
