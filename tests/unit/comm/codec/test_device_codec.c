/* Codecs on a device (comm/codec/codec_kernels.h) against the CPU's: what is selected, payloads
 * byte for byte, what stays in U and V, sums of payloads, dense steps. Skips where no CUDA device
 * works.
 */
#include "tests/test.h"
#include "tests/cuda_case.h"

#include "comm/codec/momentum_correction_math.h"
#include "comm/codec/codec_kernels.h"
#include "framework/base/memory.h"
#include "framework/base/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static test_cuda_codec on;

static int open_device(void **unused)
{
    (void)unused;
    return test_cuda_codec_open(&on);
}

static void *on_device(size_t bytes)
{
    void *data = NULL;

    assert_int_equal(on.dev->mem_acquire(bytes, &data), CT_OK);
    return data;
}

static void put(void *to, const void *from, size_t bytes)
{
    if (bytes > 0) assert_int_equal(on.dev->from_host(on.stream, to, from, bytes), CT_OK);
}

static void take(void *to, const void *from, size_t bytes)
{
    if (bytes > 0) assert_int_equal(on.dev->to_host(on.stream, to, from, bytes), CT_OK);
}

/* ---- one parameter on both sides */

typedef struct pair {
    ct_coder_setup setup;
    ct_codec_coder *coder;
    ct_selector *selector;
    ct_sparse own;
    size_t bytes;                         /* of n floats */
    float *grad, *weight, *u, *v;         /* the CPU's   */
    float *d_grad, *d_weight, *d_u, *d_v; /* the device's */
    char *payload, *d_payload;            /* both on the host */
    ct_coder_note note;
} pair;

static void open_pair(pair *p, ct_select_kind kind, int64_t n, int64_t k, ct_payload_form form,
                      int n_payload)
{
    *p = (pair){ .setup = { .kind = kind,
                            .n = n,
                            .k = (k < n) ? k : n,
                            .form = form,
                            .n_payload = n_payload },
                 .bytes = sizeof(float) * (size_t)n };
    assert_int_equal(on.codec->create(&p->setup, &p->coder), CT_OK);
    assert_int_equal(ct_selector_create(kind, n, k, &p->selector), CT_OK);
    p->grad = ct_mem_acquire(p->bytes);
    p->weight = ct_mem_acquire(p->bytes);
    p->u = ct_mem_acquire(p->bytes);
    p->v = ct_mem_acquire(p->bytes);
    p->d_grad = on_device(p->bytes);
    p->d_weight = on_device(p->bytes);
    p->d_u = on_device(p->bytes);
    p->d_v = on_device(p->bytes);
    p->payload = ct_mem_acquire(ct_coder_room(&p->setup));
    p->d_payload = ct_mem_acquire(ct_coder_room(&p->setup));
}

static void close_pair(pair *p)
{
    on.codec->destroy(p->coder);
    ct_selector_destroy(p->selector);
    ct_sparse_destroy(&p->own);
    ct_mem_release(p->grad);
    ct_mem_release(p->weight);
    ct_mem_release(p->u);
    ct_mem_release(p->v);
    on.dev->mem_release(p->d_grad);
    on.dev->mem_release(p->d_weight);
    on.dev->mem_release(p->d_u);
    on.dev->mem_release(p->d_v);
    ct_mem_release(p->payload);
    ct_mem_release(p->d_payload);
}

typedef struct how {
    bool momentum, decays, nesterov, masks;
    float carry;
    int sign;
} how;

static ct_momentum_correction accum_of(const pair *p, how h, bool device)
{
    float *w = device ? p->d_weight : p->weight, *u = device ? p->d_u : p->u;

    return (ct_momentum_correction){ .grad = device ? p->d_grad : p->grad,
                                     .weight = h.decays ? w : NULL,
                                     .u = h.momentum ? u : NULL,
                                     .v = device ? p->d_v : p->v,
                                     .n = p->setup.n,
                                     .scale = 0.5f,
                                     .rate = 0.3f,
                                     .momentum = 0.9f,
                                     .decay = 0.01f,
                                     .carry = h.carry,
                                     .nesterov = h.nesterov,
                                     .mask_momentum = h.masks,
                                     .n_thread = 1 };
}

static void same_on_both(const pair *p, const float *host, const float *device)
{
    float *copy = ct_mem_acquire(p->bytes);

    take(copy, device, p->bytes);
    for (int64_t i = 0; i < p->setup.n; i++) /* 0 and -0 are the same */
        if (!(copy[i] == host[i]))
            fail_msg("element %lld of %lld: %.9g on the device, %.9g on the host", (long long)i,
                     (long long)p->setup.n, (double)copy[i], (double)host[i]);
    ct_mem_release(copy);
}

/* A step on both sides; p->grad is set. */
static void step(pair *p, how h)
{
    ct_momentum_correction host = accum_of(p, h, false), device = accum_of(p, h, true);
    size_t bytes;

    put(p->d_grad, p->grad, p->bytes);
    put(p->d_weight, p->weight, p->bytes);
    ct_selector_sign(p->selector, h.sign);
    assert_int_equal(ct_selector_run(p->selector, &host, &p->own), CT_OK);
    ct_payload_round(p->setup.form, &p->own, &(ct_residual_return){ .v = p->v });
    bytes = ct_payload_pack(p->setup.form, &p->own, p->payload);
    assert_int_equal(on.codec->follow(NULL, on.stream), CT_OK);
    assert_int_equal(on.codec->select(p->coder, on.stream, &device, h.sign), CT_OK);
    take(&p->note, on.codec->note(p->coder), sizeof(p->note));
    assert_int_equal(p->note.count, p->own.count);
    assert_int_equal(p->note.bad, 0);
    take(p->d_payload, on.codec->payload(p->coder), bytes);
    assert_memory_equal(p->d_payload, p->payload, bytes);
    same_on_both(p, p->v, p->d_v);
    same_on_both(p, p->u, p->d_u);
}

typedef enum { NORMAL, ZEROS, CONSTANT, FEW, TINY, TWO_VALUES, WIDE, CONTENTS } contents;

static float element(contents c, int64_t s, int64_t i)
{
    float x = ct_rng_normal_at((uint64_t)(17 + s), (uint64_t)i);

    if (c == ZEROS) return 0.0f;
    if (c == CONSTANT) return 0.25f;
    if (c == FEW) return (i % 97 == 5) ? x : 0.0f;
    if (c == TINY) return x * 1e-41f;
    if (c == TWO_VALUES) return (x > 0.7f) ? 2.0f : -1.0f;
    return (c == WIDE) ? ldexpf(x, (int)(i * 7 % 120) - 60) : x;
}

static void fill(pair *p, contents c, int64_t s)
{
    for (int64_t i = 0; i < p->setup.n; i++) {
        p->grad[i] = element(c, s, i);
        p->weight[i] = (c == ZEROS) ? 0.0f : 0.1f * element(NORMAL, 1000 + s, i);
    }
}

static void steps(ct_select_kind kind, int64_t n, int64_t k, ct_payload_form form, contents c,
                  int n_step)
{
    pair p;

    open_pair(&p, kind, n, k, form, 1);
    for (int s = 0; s < n_step; s++) {
        how h = { .momentum = (c != FEW),
                  .decays = (s % 2 == 0),
                  .nesterov = (s % 3 == 1),
                  .masks = (s % 2 == 1) || (c == NORMAL),
                  .carry = (s == 2) ? 0.1f : 1.0f,
                  .sign = (form == CT_PAYLOAD_MEAN) ? ((s % 2 == 0) ? 1 : -1) : 0 };

        fill(&p, c, s);
        step(&p, h);
    }
    close_pair(&p);
}

/* ---- tests */

static void sizes_and_forms(void **unused)
{
    static const int64_t size[] = { 1, 3, 31, 100, 2047, 2048, 2049, 65543, 70000 };

    (void)unused;
    TEST_CODEC_NEEDS(on);
    for (size_t i = 0; i < sizeof(size) / sizeof(size[0]); i++) {
        int64_t n = size[i], k[] = { 1, n / 100 + 1, n / 3 + 1, n, n + 5 };

        for (size_t j = 0; j < sizeof(k) / sizeof(k[0]); j++) {
            ct_payload_form form = (ct_payload_form)((i + j) % 3);

            steps(CT_SELECT_EXACT, n, k[j], form, NORMAL, 3);
        }
    }
}

static void contents_of_all_kinds(void **unused)
{
    (void)unused;
    TEST_CODEC_NEEDS(on);
    for (contents c = ZEROS; c < CONTENTS; c++) {
        steps(CT_SELECT_EXACT, 20011, 200, CT_PAYLOAD_PAIRS, c, 3);
        steps(CT_SELECT_TRIMMED, 5000, 4000, CT_PAYLOAD_HALF, c, 3);
        steps(CT_SELECT_EXACT, 5000, 40, CT_PAYLOAD_MEAN, c, 4);
    }
}

static void thresholds(void **unused)
{
    (void)unused;
    TEST_CODEC_NEEDS(on);
    for (contents c = NORMAL; c < CONTENTS; c++) {
        steps(CT_SELECT_SEARCH, 20011, 200, CT_PAYLOAD_PAIRS, c, 3);
        steps(CT_SELECT_SAMPLED, 20011, 200, CT_PAYLOAD_HALF, c, 12);
        steps(CT_SELECT_SAMPLED, 9000, 90, CT_PAYLOAD_MEAN, c, 13);
    }
    steps(CT_SELECT_REDSYNC_SIZES, 20011, 200, CT_PAYLOAD_PAIRS, NORMAL, 2);
    steps(CT_SELECT_REDSYNC_SIZES, (1 << 20) + 5, 1000, CT_PAYLOAD_PAIRS, NORMAL, 2);
}

/* Candidates come with the update's own pass, as long as the last threshold is a good one: what is
 * selected is the CPU's also where that fails, on either side. */
static void one_pass(void **unused)
{
    enum { N = 50021, K = 120, STEPS = 24, LARGER = 8, SMALLER = 16 };
    int n_one = 0;
    pair p;

    (void)unused;
    TEST_CODEC_NEEDS(on);
    open_pair(&p, CT_SELECT_EXACT, N, K, CT_PAYLOAD_PAIRS, 1);
    for (int s = 0; s < STEPS; s++) {
        how h = { .carry = 1.0f };

        fill(&p, NORMAL, s);
        if (s == LARGER) /* far more are over the last threshold than there is room for */
            for (int i = 0; i < N; i++) p.grad[i] *= 100.0f;
        if (s == SMALLER) { /* hardly any */
            memset(p.v, 0, p.bytes);
            put(p.d_v, p.v, p.bytes);
        }
        step(&p, h);
        n_one += (p.note.passes == 1);
        if ((s == 0) || (s == LARGER) || (s == SMALLER)) assert_int_equal(p.note.passes, 2);
        assert_true(p.note.candidates >= K);
    }
    assert_true(n_one >= STEPS / 2);
    assert_int_equal(on.codec->forget(p.coder, on.stream), CT_OK);
    fill(&p, NORMAL, 99);
    step(&p, (how){ .carry = 1.0f });
    assert_int_equal(p.note.passes, 2);
    close_pair(&p);
}

static void not_finite(void **unused)
{
    static const float bad[] = { NAN, -NAN, INFINITY, -INFINITY };

    (void)unused;
    TEST_CODEC_NEEDS(on);
    for (int i = 0; i < 4; i++) {
        for (int kind = CT_SELECT_EXACT; kind <= CT_SELECT_SEARCH; kind++) {
            pair p;
            ct_momentum_correction a;

            open_pair(&p, (ct_select_kind)kind, 3000, 30, CT_PAYLOAD_PAIRS, 1);
            fill(&p, NORMAL, 0);
            p.grad[2999 - i] = bad[i];
            put(p.d_grad, p.grad, p.bytes);
            a = accum_of(&p, (how){ .momentum = true }, true);
            assert_int_equal(on.codec->select(p.coder, on.stream, &a, (i % 2 == 0) ? 1 : 0), CT_OK);
            take(&p.note, on.codec->note(p.coder), sizeof(p.note));
            assert_int_equal(p.note.bad, 1);
            close_pair(&p);
        }
    }
}

/* What was sent and what is left is what was accumulated. */
static void nothing_is_lost(void **unused)
{
    enum { N = 3001, STEPS = 120 };
    double *all, most = 0;
    float *sent;
    pair p;

    (void)unused;
    TEST_CODEC_NEEDS(on);
    for (int form = 0; form < 3; form++) {
        open_pair(&p, CT_SELECT_EXACT, N, 30, (ct_payload_form)form, 1);
        all = calloc(N, sizeof(*all));
        sent = ct_mem_acquire(p.bytes);
        for (int s = 0; s < STEPS; s++) {
            ct_momentum_correction a = accum_of(&p, (how){ .momentum = false }, true);
            const void *payload = on.codec->payload(p.coder);

            a.scale = 1.0f;
            fill(&p, NORMAL, s);
            put(p.d_grad, p.grad, p.bytes);
            assert_int_equal(
                on.codec->select(p.coder, on.stream, &a, (form == 2) ? 1 - 2 * (s % 2) : 0), CT_OK);
            assert_int_equal(on.codec->add(p.coder, on.stream, &payload, NULL, 1, p.d_grad), CT_OK);
            take(sent, p.d_grad, p.bytes);
            for (int i = 0; i < N; i++) {
                all[i] += (double)p.grad[i] - (double)sent[i];
                most = fmax(most, fmax(fabs(all[i]), fabs((double)p.grad[i])));
            }
        }
        take(p.v, p.d_v, p.bytes);
        for (int i = 0; i < N; i++) /* an addition and a subtraction a step, each rounded once */
            assert_true(fabs(all[i] - (double)p.v[i]) <= 2 * STEPS * 0x1p-24 * most);
        free(all);
        ct_mem_release(sent);
        close_pair(&p);
    }
}

static void sums(void **unused)
{
    enum { N = 140001, P = 5, K = 1500 };
    float *sum, *d_sum, *host;
    pair p;

    (void)unused;
    TEST_CODEC_NEEDS(on);
    for (int form = 0; form < 3; form++) {
        char *payload[P];
        const void *at[P];
        size_t bytes[P];
        int64_t filled = 0;

        open_pair(&p, CT_SELECT_EXACT, N, K, (ct_payload_form)form, P);
        sum = ct_mem_acquire(p.bytes);
        host = ct_mem_acquire(p.bytes);
        d_sum = on_device(p.bytes);
        for (int r = 0; r < P; r++) { /* one of them is dense, one empty */
            ct_sparse s = { .n = N };
            int64_t count = (r == 3) ? 0 : K;

            assert_int_equal(ct_sparse_reserve(&s, K), CT_OK);
            for (int64_t j = 0; j < count; j++) {
                s.index[j] = (uint32_t)(j * 91 + r % 2);
                s.value[j] = element(NORMAL, r, j);
            }
            s.count = count;
            ct_payload_round((ct_payload_form)form, &s, &(ct_residual_return){ .v = sum });
            payload[r] = ct_mem_acquire(ct_coder_room(&p.setup));
            bytes[r] = ct_payload_pack((ct_payload_form)form, &s, payload[r]);
            at[r] = on.codec->incoming(p.coder, r);
            put(on.codec->incoming(p.coder, r), payload[r], bytes[r]);
            ct_sparse_destroy(&s);
        }
        assert_int_equal(
            ct_payload_sum_all((const void *const *)(void *)payload, bytes, P, sum, N, 1, &filled),
            CT_OK);
        assert_int_equal(on.codec->add(p.coder, on.stream, at, NULL, P, d_sum), CT_OK);
        take(host, d_sum, p.bytes);
        assert_memory_equal(host, sum, p.bytes);
        step(&p, (how){ .sign = (form == 2) ? 1 : 0 }); /* its note tells of the sum */
        assert_int_equal(p.note.filled, filled);
        assert_int_equal(p.note.wrong, 0);
        for (int r = 0; r < P; r++) ct_mem_release(payload[r]);
        ct_mem_release(sum);
        ct_mem_release(host);
        on.dev->mem_release(d_sum);
        close_pair(&p);
    }
}

static void wrong_payloads(void **unused)
{
    enum { N = 1000, K = 20 };
    static const uint32_t wrong[] = { N, 0xffffffffu, 3 };
    pair p;

    (void)unused;
    TEST_CODEC_NEEDS(on);
    for (int i = 0; i < 3; i++) {
        const void *at;
        uint32_t index;

        open_pair(&p, CT_SELECT_EXACT, N, K, CT_PAYLOAD_PAIRS, 1);
        fill(&p, NORMAL, 0);
        step(&p, (how){ .momentum = true });
        index = wrong[i];
        memcpy(p.payload + CT_PAYLOAD_HEAD + 4 * (K - 1), &index, sizeof(index));
        put(on.codec->incoming(p.coder, 0), p.payload, ct_coder_room(&p.setup));
        at = on.codec->incoming(p.coder, 0);
        assert_int_equal(on.codec->add(p.coder, on.stream, &at, NULL, 1, p.d_grad), CT_OK);
        fill(&p, NORMAL, 1);
        step(&p, (how){ .momentum = true });
        assert_int_equal(p.note.wrong, 1);
        close_pair(&p);
    }
}

/* A dense step: nothing was left behind, something was, and the norm is limited. */
static void dense_steps(void **unused)
{
    enum { N = 5003 };
    how h = { .momentum = true, .decays = true, .masks = true, .carry = 1.0f };
    pair p;

    (void)unused;
    TEST_CODEC_NEEDS(on);
    for (int nesterov = 0; nesterov < 2; nesterov++) {
        ct_momentum_correction host, device;
        float *out = ct_mem_acquire(sizeof(float) * N);
        double sum[2];
        float share;
        bool empty = true;

        h.nesterov = (nesterov == 1);
        open_pair(&p, CT_SELECT_EXACT, N, 50, CT_PAYLOAD_PAIRS, 1);
        host = accum_of(&p, h, false);
        device = accum_of(&p, h, true);
        fill(&p, NORMAL, 0);
        put(p.d_grad, p.grad, p.bytes);
        put(p.d_weight, p.weight, p.bytes);
        ct_momentum_correction_all(&host, p.grad);
        assert_int_equal(on.codec->all(p.coder, on.stream, &device, p.d_grad), CT_OK);
        same_on_both(&p, p.grad, p.d_grad);
        same_on_both(&p, p.v, p.d_v);
        for (int s = 1; s < 4; s++) {
            fill(&p, NORMAL, s);
            step(&p, h);
        }
        for (int s = 4; s < 6; s++) { /* U begins at 0, as something is left */
            fill(&p, NORMAL, s);
            put(p.d_grad, p.grad, p.bytes);
            put(p.d_weight, p.weight, p.bytes);
            memset(p.u, 0, p.bytes);
            ct_momentum_correction_apart(&host, p.grad, sum);
            share = ct_momentum_correction_share(sum[0], sum[1], 3, 0);
            assert_true((share > 0) && (share < 1));
            ct_momentum_correction_send(&host, share, p.grad);
            assert_int_equal(
                on.codec->apart(p.coder, on.stream, &device, true, 3, 0, p.d_grad, &empty), CT_OK);
            assert_false(empty);
            same_on_both(&p, p.u, p.d_u);
            take(out, p.d_grad, p.bytes);
            for (int i = 0; i < N; i++) /* the share's last bit is another order's of a sum */
                assert_true(fabsf(out[i] - p.grad[i]) <= 0x1p-22f * (1 + fabsf(p.grad[i])));
            take(p.v, p.d_v, p.bytes); /* from the same */
        }
        fill(&p, NORMAL, 9);
        put(p.d_grad, p.grad, p.bytes);
        put(p.d_weight, p.weight, p.bytes);
        host.scale *= ct_momentum_correction_limit(p.grad, N, 2.5, 1);
        assert_int_equal(on.codec->clip(p.coder, on.stream, p.d_grad, N, 2.5), CT_OK);
        ct_momentum_correction_run(&host);
        assert_int_equal(on.codec->update(p.coder, on.stream, &device), CT_OK);
        take(out, p.d_v, p.bytes);
        for (int i = 0; i < N; i++) /* … and the factor's */
            assert_true(fabsf(out[i] - p.v[i]) <= 0x1p-21f * (1 + fabsf(p.v[i])));
        ct_mem_release(out);
        close_pair(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_and_forms),
        cmocka_unit_test(contents_of_all_kinds),
        cmocka_unit_test(one_pass),
        cmocka_unit_test(thresholds),
        cmocka_unit_test(not_finite),
        cmocka_unit_test(nothing_is_lost),
        cmocka_unit_test(sums),
        cmocka_unit_test(wrong_payloads),
        cmocka_unit_test(dense_steps),
    };

    return cmocka_run_group_tests(tests, open_device, NULL);
}
