/* Updates on the device: every rule, one parameter and all at once, with its numbers in the kernel
 * and on the device; norms, trust ratios, clipping, the loss's scale and averages, as the device
 * finds and decides them, beside the CPU's. Skips where no device works. */
#include "tests/test.h"
#include "tests/cuda_case.h"

#include "framework/base/rng.h"
#include "framework/math/step_there.h"
#include "framework/math/update_math.h"
#include "framework/solver/update_rule.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { N_ARENA = 7 * CT_UPDATE_LINE, N_PART = 3 };
static const ct_update_part part[N_PART] = { { 0, 21, 1.0f, 1.0f },
                                             { 32, 16, 2.0f, 0.0f },
                                             { 48, 60, 0.5f, 1.0f } };

/* Gradient, weights, states: the padding between parts is zero, as in an arena. */
static void draw(float v[4][N_ARENA])
{
    memset(v, 0, 4 * sizeof(v[0]));
    for (int k = 0; k < 4; k++) {
        for (int p = 0; p < N_PART; p++) {
            for (int64_t i = part[p].offset; i < part[p].offset + part[p].count; i++) {
                float x = ct_rng_uniform_at(ct_rng_key(3, 4, (uint64_t)k), (uint64_t)i);

                v[k][i] = (k < 2) ? 4.0f * x - 2.0f : 0.5f + x;
            }
        }
    }
}

static ct_update numbers(const ct_device *dev)
{
    return (ct_update){ .dev = dev,
                        .scale = 0.5f,
                        .rate = 0.1f,
                        .momentum = 0.9f,
                        .momentum2 = 0.99f,
                        .decay_l2 = 0.01f,
                        .delta = 1e-3f,
                        .correction = 2.0f,
                        .correction2 = 3.0f,
                        .trust = 0.7f };
}

static void bind(ct_update *u, float *const at[4], int64_t from, int64_t n)
{
    u->count = n;
    u->grad = at[0] + from;
    u->weight = at[1] + from;
    u->state[0] = at[2] + from;
    u->state[1] = at[3] + from;
}

/* A rule on the CPU, parameter by parameter; on the device so, and in one pass over the arena. A
 * dozen roundings of numbers below 8. */
static void compare_rule(int kind)
{
    const ct_device *gpu = test_cuda();
    float want[4][N_ARENA], got[N_ARENA], *host[4];
    uint16_t line[N_ARENA / CT_UPDATE_LINE] = { 0, 0, 1, 2, 2, 2, 2 };
    void *parts = test_cuda_put(gpu, part, sizeof(part)),
         *lines = test_cuda_put(gpu, line, sizeof(line));

    draw(want);
    for (int k = 0; k < 4; k++) host[k] = want[k];
    for (int p = 0; p < N_PART; p++) {
        ct_update u = numbers(ct_device_cpu());

        u.rate *= part[p].lr_mult;
        u.decay_l2 *= part[p].decay_mult;
        bind(&u, host, part[p].offset, part[p].count);
        assert_int_equal(ct_update_cpu(NULL, kind, &u), CT_OK);
    }
    for (int all = 0; all < 2; all++) {
        float start[4][N_ARENA], *at[4];
        ct_update u = numbers(gpu);

        draw(start);
        for (int k = 0; k < 4; k++) at[k] = test_cuda_put(gpu, start[k], sizeof(start[k]));
        bind(&u, at, 0, N_ARENA);
        if (all == 1) {
            ct_update_all a = { .part = parts, .part_of_line = lines, .to = N_ARENA };

            assert_int_equal(gpu->math->update_all(NULL, kind, &u, &a), CT_OK);
        }
        for (int p = 0; (all == 0) && (p < N_PART); p++) {
            u = numbers(gpu);
            u.rate *= part[p].lr_mult;
            u.decay_l2 *= part[p].decay_mult;
            bind(&u, at, part[p].offset, part[p].count);
            assert_int_equal(gpu->math->update(NULL, kind, &u), CT_OK);
        }
        for (int k = 0; k < 4; k++) {
            assert_int_equal(gpu->to_host(NULL, got, at[k], sizeof(got)), CT_OK);
            for (int i = 0; i < N_ARENA; i++) {
                if (!(fabsf(got[i] - want[k][i]) <= 12 * 8 * FLT_EPSILON))
                    fail_msg("rule %d, %s, array %d, element %d: %g, not %g", kind,
                             (all == 1) ? "all at once" : "one by one", k, i, (double)got[i],
                             (double)want[k][i]);
            }
            gpu->mem_release(at[k]);
        }
    }
    gpu->mem_release(parts);
    gpu->mem_release(lines);
}

static void update_rules_are_the_same(void **unused)
{
    (void)unused;
    for (int kind = CT_UPDATE_SGD; kind < CT_UPDATE_N; kind++) compare_rule(kind);
}

/* ---- numbers on the device */

enum { STEPS = 5 };

/* Parameter 2 has one axis, and so no ratio. */
static const bool has_ratio[N_PART] = { true, true, false };

typedef struct there {
    const ct_device *dev;
    const ct_step_there_ops *ops;
    ct_step_there *at;
    ct_update_part *part;
    uint16_t *line;
    float *trust, *v[4], *average; /* gradient, weight, states: on the device */
} there;

static there open_there(const ct_loss_scale *loss)
{
    const uint16_t line[N_ARENA / CT_UPDATE_LINE] = { 0, 0, 1, 2, 2, 2, 2 };
    const float one[N_PART] = { 1.0f, 1.0f, 1.0f };
    const ct_step_there first = { .loss = *loss };
    there t = { .dev = test_cuda() };
    float start[4][N_ARENA];

    t.ops = ct_step_there_of(t.dev);
    assert_non_null(t.ops);
    t.at = test_cuda_put(t.dev, &first, sizeof(first));
    t.part = test_cuda_put(t.dev, part, sizeof(part));
    t.line = test_cuda_put(t.dev, line, sizeof(line));
    t.trust = test_cuda_put(t.dev, one, sizeof(one));
    draw(start);
    for (int k = 0; k < 4; k++) t.v[k] = test_cuda_put(t.dev, start[k], sizeof(start[k]));
    t.average = test_cuda_put(t.dev, NULL, sizeof(start[0]));
    return t;
}

static void close_there(there *t)
{
    void *const all[] = { t->at,   t->part, t->line, t->trust,  t->v[0],
                          t->v[1], t->v[2], t->v[3], t->average };

    for (int k = 0; k < 9; k++) t->dev->mem_release(all[k]);
}

static ct_step_there look(const there *t)
{
    ct_step_there now;

    assert_int_equal(t->dev->to_host(NULL, &now, t->at, sizeof(now)), CT_OK);
    return now;
}

/* Other numbers in each step. */
static ct_step_numbers numbers_of(int step)
{
    return (ct_step_numbers){ .scale = 0.5f / (float)(step + 1),
                              .rate = 0.1f / (float)(step + 2),
                              .correction = 2.0f - 0.1f * (float)step,
                              .correction2 = 3.0f - 0.2f * (float)step,
                              .average = (step == 0) ? 0.0f : 1.0f / (float)step };
}

/* One update as the solver gives it. The numbers in u are wrong: those on the device count. */
static void give(const there *t, int kind, const ct_step_numbers *now)
{
    ct_update_ratio ratio = ct_update_rule_at(kind)->ratio;
    bool norms = (ratio != CT_UPDATE_NO_RATIO);
    ct_update_all all = { .part = t->part,
                          .part_of_line = t->line,
                          .to = N_ARENA,
                          .trust = norms ? t->trust : NULL,
                          .at = t->at };
    ct_update u = numbers(t->dev);

    u.scale = u.rate = u.correction = u.correction2 = NAN;
    u.trust = 1.0f;
    bind(&u, (float *const[4]){ t->v[0], t->v[1], t->v[2], t->v[3] }, 0, N_ARENA);
    assert_int_equal(t->dev->upload(NULL, &t->at->now, now, sizeof(*now)), CT_OK);
    for (int p = 0; norms && (p < N_PART); p++)
        assert_int_equal(t->ops->trust(NULL, ratio, &u, &all, p, part[p].offset, part[p].count,
                                       has_ratio[p], 0.02, t->trust),
                         CT_OK);
    assert_int_equal(t->dev->math->update_all(NULL, kind, &u, &all), CT_OK);
    assert_int_equal(t->ops->average(NULL, t->at, 0, N_ARENA, t->v[1], t->average), CT_OK);
}

/* The norms of a parameter that is u's range. */
static void norms_of(ct_update_ratio ratio, const ct_update *u, double *weight, double *step)
{
    const int64_t count[2] = { u->count, u->count };
    ct_square_sums s;

    assert_int_equal(ct_square_sums_open(count, 2, &s), CT_OK);
    assert_int_equal(ct_update_add_norms(ratio, u, 0, 0, &s), CT_OK);
    assert_int_equal(ct_update_norms(ratio, u, 0, &s, weight, step), CT_OK);
    ct_square_sums_close(&s);
}

/* The same on the CPU. */
static void step_on_host(int kind, const ct_step_numbers *now, float v[4][N_ARENA], float *average)
{
    float *const at[4] = { v[0], v[1], v[2], v[3] };
    ct_update_ratio ratio = ct_update_rule_at(kind)->ratio;

    for (int p = 0; p < N_PART; p++) {
        ct_update u = numbers(ct_device_cpu());
        double w = 0.0, s = 0.0;

        u.scale = now->scale;
        u.rate = now->rate * part[p].lr_mult;
        u.decay_l2 *= part[p].decay_mult;
        u.correction = now->correction;
        u.correction2 = now->correction2;
        u.trust = 1.0f;
        bind(&u, at, part[p].offset, part[p].count);
        if (ratio != CT_UPDATE_NO_RATIO) norms_of(ratio, &u, &w, &s);
        if ((w > 0.0) && has_ratio[p])
            u.trust = ct_update_trust(ratio, 0.02, (double)u.decay_l2, sqrt(w), sqrt(s));
        assert_int_equal(ct_update_cpu(NULL, kind, &u), CT_OK);
    }
    for (int i = 0; i < N_ARENA; i++)
        average[i] = now->average * v[1][i] + (1.0f - now->average) * average[i];
}

/* A dozen roundings of numbers below 8 a step, as above. */
static void as_on_host(const there *t, int kind, int steps, float want[4][N_ARENA],
                       const float *average)
{
    float got[N_ARENA];

    for (int k = 0; k < 5; k++) {
        const float *host = (k < 4) ? want[k] : average;

        assert_int_equal(t->dev->to_host(NULL, got, (k < 4) ? t->v[k] : t->average, sizeof(got)),
                         CT_OK);
        for (int i = 0; i < N_ARENA; i++) {
            if (!(fabsf(got[i] - host[i]) <= (float)steps * 12 * 8 * FLT_EPSILON))
                fail_msg("rule %d after %d steps, array %d, element %d: %g, not %g", kind, steps, k,
                         i, (double)got[i], (double)host[i]);
        }
    }
}

static void numbers_are_read_there(void **unused)
{
    const ct_loss_scale none = { .scale = 1.0f };

    (void)unused;
    for (int kind = CT_UPDATE_SGD; kind < CT_UPDATE_N; kind++) {
        float want[4][N_ARENA], average[N_ARENA] = { 0.0f };
        there t = open_there(&none);

        draw(want);
        for (int step = 0; step < STEPS; step++) {
            ct_step_numbers now = numbers_of(step);

            give(&t, kind, &now);
            step_on_host(kind, &now, want, average);
            as_on_host(&t, kind, step + 1, want, average);
        }
        close_there(&t);
    }
}

/* ---- decisions */

/* Norms, and what becomes of the scale: of a hundred sums with some that are not finite, as the
 * host's account has it. */
static void scale_is_the_hosts(void **unused)
{
    ct_loss_scale host = { .on = true, .scale = 1024.0f, .window = 3 };
    there t = open_there(&host);

    (void)unused;
    for (int step = 0; step < 100; step++) {
        bool finite = (step % 11 != 4) && (step % 17 != 2);
        float grad[N_ARENA] = { 3.0f }, scale = host.scale;
        ct_step_numbers now = numbers_of(step);
        ct_step_there got;

        grad[40] = finite ? 4.0f : (step % 2 == 0) ? INFINITY : NAN;
        assert_int_equal(t.dev->from_host(NULL, t.v[0], grad, sizeof(grad)), CT_OK);
        assert_int_equal(t.dev->upload(NULL, &t.at->now, &now, sizeof(now)), CT_OK);
        assert_int_equal(t.ops->decide(NULL, t.at, N_ARENA, t.v[0], -1.0), CT_OK);
        got = look(&t);
        assert_true(got.refused == !ct_loss_scale_next(&host, finite));
        if (finite) assert_true(got.norm == 5.0 / (double)scale);
        assert_true(isfinite(got.norm) == finite);
        assert_true((got.loss.scale == host.scale) && (got.loss.good == host.good));
        assert_true(got.now.scale == now.scale / scale);
        assert_true(got.now.rate == now.rate);
    }
    close_there(&t);
}

/* What is refused changes nothing, of no rule, nor an average or a ratio. */
static void refused_changes_nothing(void **unused)
{
    const ct_loss_scale on = { .on = true, .scale = 1.0f };

    (void)unused;
    for (int kind = CT_UPDATE_SGD; kind < CT_UPDATE_N; kind++) {
        const ct_step_numbers now = numbers_of(1);
        there t = open_there(&on);
        float start[4][N_ARENA], got[N_ARENA];

        draw(start);
        start[0][3] = INFINITY;
        assert_int_equal(t.dev->from_host(NULL, t.v[0], start[0], sizeof(start[0])), CT_OK);
        assert_int_equal(t.ops->decide(NULL, t.at, N_ARENA, t.v[0], 1.0), CT_OK);
        give(&t, kind, &now);
        for (int k = 0; k < 4; k++) {
            assert_int_equal(t.dev->to_host(NULL, got, t.v[k], sizeof(got)), CT_OK);
            assert_memory_equal(got, start[k], sizeof(got));
        }
        close_there(&t);
    }
}

static void clipping_lowers_the_scale(void **unused)
{
    static const struct {
        double limit;
        float scale, loss; /* of the update after it, and of the loss before */
    } c[] = { { -1.0, 0.5f, 1.0f }, { 5.0, 0.5f, 1.0f },     { 2.5, 0.25f, 1.0f },
              { 0.0, 0.0f, 1.0f },  { 2.5, 0.25f, 0.5f },    { 10.0, 0.25f * 0.5f, 4.0f },
              { 1.0, 0.1f, 1.0f },  { 0.625, 0.0625f, 4.0f } };

    (void)unused;
    for (size_t i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
        const ct_loss_scale loss = { .on = (c[i].loss != 1.0f), .scale = c[i].loss };
        const ct_step_numbers now = { .scale = 0.5f };
        there t = open_there(&loss);
        float grad[N_ARENA] = { 3.0f, -4.0f }; /* the norm of the sum: 5 */
        ct_step_there got;

        assert_int_equal(t.dev->from_host(NULL, t.v[0], grad, sizeof(grad)), CT_OK);
        assert_int_equal(t.dev->upload(NULL, &t.at->now, &now, sizeof(now)), CT_OK);
        assert_int_equal(t.ops->decide(NULL, t.at, N_ARENA, t.v[0], c[i].limit), CT_OK);
        got = look(&t);
        if (got.now.scale != c[i].scale)
            fail_msg("case %d: scale %g, not %g", (int)i, (double)got.now.scale,
                     (double)c[i].scale);
        assert_true(!got.refused && (got.norm == 5.0 / (double)c[i].loss));
        close_there(&t);
    }
}

static void loss_starts_scaled(void **unused)
{
    const ct_loss_scale loss = { .on = true, .scale = 256.0f };
    there t = open_there(&loss);
    float got[3];

    (void)unused;
    assert_int_equal(t.ops->loss_diff(NULL, t.at, 2, 0.375f, t.average), CT_OK);
    assert_int_equal(t.dev->to_host(NULL, got, t.average, sizeof(got)), CT_OK);
    assert_true((got[0] == 96.0f) && (got[1] == 96.0f) && (got[2] == 0.0f));
    close_there(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(update_rules_are_the_same), cmocka_unit_test(numbers_are_read_there),
        cmocka_unit_test(scale_is_the_hosts),        cmocka_unit_test(refused_changes_nothing),
        cmocka_unit_test(clipping_lowers_the_scale), cmocka_unit_test(loss_starts_scaled),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
