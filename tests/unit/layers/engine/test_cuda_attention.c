/* Attention on a device against its definition in double: sizes around a tile's, every head's
 * width, groups of heads, windows, segments, other keys than queries, angles, dropout. The engine
 * reference on the CPU beside it, statistics that one side keeps and the other reads, bits that are
 * the same again, rows that see nothing, bf16 numbers, the step's number on the device. */
#include "tests/attention_case.h"
#include "tests/cuda_case.h"
#include "tests/layer_harness.h"
#include "tests/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/bf16.h"
#include "framework/base/rng.h"

enum { GUARD = 64 /* bytes behind each block, which stay as they were */ };

/* Operands' twins on the device. size: of a number. */
typedef struct there {
    const ct_device *dev;
    char *x, *dx, *top, *dtop, *segment, *turn, *stats;
    size_t size;
} there;

static char *guarded(const ct_device *dev, const void *from, size_t bytes)
{
    char *host = malloc(bytes + GUARD), *to;

    assert_non_null(host);
    memset(host, 0xff, bytes + GUARD); /* NaN */
    if (from != NULL) memcpy(host, from, bytes);
    to = test_cuda_put(dev, host, bytes + GUARD);
    free(host);
    return to;
}

/* Brings a block to the host, and frees it. */
static void take(const ct_device *dev, char *from, size_t bytes, void *to)
{
    unsigned char guard[GUARD];

    if (to != NULL) assert_int_equal(dev->to_host(NULL, to, from, bytes), CT_OK);
    assert_int_equal(dev->to_host(NULL, guard, from + bytes, GUARD), CT_OK);
    for (int i = 0; i < GUARD; i++) assert_int_equal(guard[i], 255);
    dev->mem_release(from);
}

static size_t turn_count(const ct_attention_desc *d)
{
    return (size_t)(((d->tq > d->tk) ? d->tq : d->tk) * d->rope_dim);
}

/* Of bf16 numbers x, top, dtop and stats are taken as they are, results are NaN. */
static there put(const ct_device *dev, const test_attention_operands *o, const void *x,
                 const void *dtop, const void *top)
{
    const ct_attention_desc *d = &o->d;
    there t = { .dev = dev, .size = d->bf16 ? sizeof(ct_bf16) : sizeof(float) };

    t.x = guarded(dev, x, (size_t)o->n_x * t.size);
    t.dx = guarded(dev, NULL, (size_t)o->n_x * t.size);
    t.top = guarded(dev, top, (size_t)o->n_top * t.size);
    t.dtop = guarded(dev, dtop, (size_t)o->n_top * t.size);
    t.segment = guarded(dev, o->segment, (size_t)(d->n * d->tk) * sizeof(float));
    t.turn = guarded(dev, o->turn, turn_count(d) * sizeof(float));
    t.stats = guarded(dev, o->stats, (size_t)(2 * d->n * d->heads * d->tq) * sizeof(float));
    return t;
}

/* Results go to top, dx and o->stats. */
static void take_all(const there *t, test_attention_operands *o, void *top, void *dx)
{
    const ct_attention_desc *d = &o->d;

    take(t->dev, t->x, (size_t)o->n_x * t->size, NULL);
    take(t->dev, t->dx, (size_t)o->n_x * t->size, dx);
    take(t->dev, t->top, (size_t)o->n_top * t->size, top);
    take(t->dev, t->dtop, (size_t)o->n_top * t->size, NULL);
    take(t->dev, t->segment, (size_t)(d->n * d->tk) * sizeof(float), NULL);
    take(t->dev, t->turn, turn_count(d) * sizeof(float), NULL);
    take(t->dev, t->stats, (size_t)(2 * d->n * d->heads * d->tq) * sizeof(float), o->stats);
}

/* ---- the table's engine of the device; host addresses become the device's */

static const ct_attention_impl *engine(const ct_attention_desc *d, bool forward)
{
    const ct_attention_impl *e = ct_attention_find(
        forward ? ct_attention_forward_table : ct_attention_backward_table, d, "auto");

    assert_non_null(e);
    assert_string_equal(e->name, "cuda");
    return e;
}

static void *moved(const test_attention_operands *o, char *to, const float *at, const float *from)
{
    return (at == NULL) ? NULL : to + (size_t)(at - from) * (o->d.bf16 ? 2 : 4);
}

static ct_attention_args args_of(const there *t, const test_attention_operands *o)
{
    ct_attention_args a = o->a;

    a.q = moved(o, t->x, a.q, o->x);
    a.k = moved(o, t->x, a.k, o->x);
    a.v = moved(o, t->x, a.v, o->x);
    a.dq = moved(o, t->dx, a.dq, o->dx);
    a.dk = moved(o, t->dx, a.dk, o->dx);
    a.dv = moved(o, t->dx, a.dv, o->dx);
    if (a.segment != NULL) a.segment = (float *)(void *)t->segment;
    if (a.stats != NULL) a.stats = (float *)(void *)t->stats;
    a.turn = (float *)(void *)t->turn;
    a.y = (float *)(void *)t->top;
    a.dy = (float *)(void *)t->dtop;
    return a;
}

static void run_there(const there *t, const test_attention_operands *o, ct_exec *ex, bool forward)
{
    ct_attention_args a = args_of(t, o);
    ct_attention_desc d = o->d;
    const ct_attention_impl *e;
    size_t bytes;
    char *work;

    d.device = CT_DEVICE_CUDA;
    e = engine(&d, forward);
    bytes = ct_attention_workspace(e, &d);
    work = guarded(t->dev, NULL, bytes);
    a.work = work;
    ex->dev = t->dev;
    assert_int_equal(e->run(&d, ex, &a), CT_OK);
    take(t->dev, work, bytes, NULL);
}

/* Both passes of f32 operands; results in o. */
static void pass(const ct_device *dev, test_attention_operands *o, ct_exec *ex)
{
    there t = put(dev, o, o->x, o->dtop, NULL);

    run_there(&t, o, ex, true);
    run_there(&t, o, ex, false);
    take_all(&t, o, o->top, o->dx);
}

static void run_here(test_attention_operands *o, const ct_attention_impl *e)
{
    ct_exec ex = { .dev = ct_device_cpu() };
    ct_attention_args a = o->a;

    assert_int_equal(posix_memalign(&a.work, 64, ct_attention_workspace(e, &o->d) + 64), 0);
    assert_int_equal(e->run(&o->d, &ex, &a), CT_OK);
    free(a.work);
}

/* ---- against the definition */

static void drop(test_attention_exact *e)
{
    free(e->y), free(e->dx), free(e->y_size), free(e->dx_size);
}

/* The reference gives the definition rounded to f32: within half a unit, u = 2^-24, of itself. */
static void beside_reference(const test_attention_shape *c, const test_attention_operands *o,
                             const test_attention_exact *e, double allowed)
{
    test_attention_operands r = test_attention_make(c, 1);
    char what[300];

    run_here(&r, &ct_attention_ref_forward);
    run_here(&r, &ct_attention_ref_backward);
    for (int64_t i = 0; i < o->n_top; i++) e->y[i] = (double)r.top[i];
    for (int64_t i = 0; i < o->n_x; i++) e->dx[i] = (double)r.dx[i];
    snprintf(what, sizeof(what), "%s, beside the reference", test_attention_text(c));
    test_attention_near(o->top, e->y, e->y_size, o->n_top, allowed + 0x1p-24, what);
    test_attention_near(o->dx, e->dx, e->dx_size, o->n_x, allowed + 0x1p-24, what);
    test_attention_destroy(&r);
}

static void check(const ct_device *dev, const test_attention_shape *c)
{
    test_attention_operands o = test_attention_make(c, 1);
    test_attention_exact e = test_attention_define(&o);
    double allowed = test_attention_allowed(&o, &e);
    ct_exec ex = { .dev = dev };

    pass(dev, &o, &ex);
    test_attention_near(o.top, e.y, e.y_size, o.n_top, allowed, test_attention_text(c));
    test_attention_near(o.dx, e.dx, e.dx_size, o.n_x, allowed, test_attention_text(c));
    beside_reference(c, &o, &e, allowed);
    drop(&e);
    test_attention_destroy(&o);
}

static void every_shape(void **state)
{
    const ct_device *dev = test_cuda();

    (void)state;
    for (int i = 0; i < TEST_ATTENTION_SHAPES; i++) check(dev, &test_attention_shapes[i]);
}

/* Lengths around a tile's and every way to see, widths of heads in turn. */
static void around_tiles(void **state)
{
    static const int64_t tokens[] = { 1, 2, 63, 64, 65 }, dim[] = { 1, 8, 64, 80, 128 };
    const ct_device *dev = test_cuda();

    (void)state;
    for (int i = 0; i < 5 * 5 * 8; i++) {
        int64_t T = tokens[i % 5], D = dim[i / 5 % 5];
        int way = i / 25;
        test_attention_shape c = { .n = (T < 63) ? 2 : 1,
                                   .heads = (way == 1) ? 3 : 2,
                                   .kv = (way == 0) ? 2 : 1,
                                   .tq = T,
                                   .tk = (way == 4)   ? T + 70
                                         : (way == 5) ? 66 - T
                                                      : T,
                                   .dim = D,
                                   .causal = (way > 0) && (way != 3) && (way != 5),
                                   .window = (way == 2) ? 17 : 0,
                                   .rope = (way >= 4) ? D / 2 * 2 : 0,
                                   .interleaved = way == 6,
                                   .segments = way == 3,
                                   .packed = (way != 4) && (way != 5),
                                   .ratio = (way == 7) ? 0.2f : 0 };

        check(dev, &c);
    }
}

/* ---- what forward keeps is read by whoever runs backward */

static void mixed(void **state)
{
    const test_attention_shape *c = &test_attention_shapes[8];
    const ct_device *dev = test_cuda();
    test_attention_operands o = test_attention_make(c, 1);
    test_attention_exact e = test_attention_define(&o);
    double allowed = test_attention_allowed(&o, &e);
    ct_exec ex = { .dev = dev };
    there t = put(dev, &o, o.x, o.dtop, NULL);

    (void)state;
    run_there(&t, &o, &ex, true);
    take_all(&t, &o, o.top, o.dx);
    run_here(&o, &ct_attention_flash_backward);
    test_attention_near(o.dx, e.dx, e.dx_size, o.n_x, allowed, "flash behind the device");
    run_here(&o, &ct_attention_flash_forward);
    t = put(dev, &o, o.x, o.dtop, o.top);
    run_there(&t, &o, &ex, false);
    take_all(&t, &o, o.top, o.dx);
    test_attention_near(o.dx, e.dx, e.dx_size, o.n_x, allowed, "the device behind flash");
    drop(&e);
    test_attention_destroy(&o);
}

/* ---- bits */

/* The same again; and of one gradient alone, without statistics. */
static void same_bits(void **state)
{
    static const int some[] = { 4, 8, 11, 16 };
    const ct_device *dev = test_cuda();

    (void)state;
    for (int i = 0; i < 4; i++) {
        const test_attention_shape *c = &test_attention_shapes[some[i]];
        test_attention_operands first = test_attention_make(c, 1);
        ct_exec ex = { .dev = dev };

        pass(dev, &first, &ex);
        for (int only = 0; only < 4; only++) {
            test_attention_operands o = test_attention_make(c, 1);
            ct_attention_args all = o.a;
            there t = put(dev, &o, o.x, o.dtop, NULL);

            if (only < 3) o.a.dq = (only == 0) ? all.dq : NULL;
            if (only < 3) o.a.dk = (only == 1) ? all.dk : NULL;
            if (only < 3) o.a.dv = (only == 2) ? all.dv : NULL;
            run_there(&t, &o, &ex, true);
            run_there(&t, &o, &ex, false);
            if (only == 1) {
                o.a.stats = NULL;
                run_there(&t, &o, &ex, true);
            }
            take_all(&t, &o, o.top, o.dx);
            test_same(o.top, first.top, o.n_top, "top");
            for (int64_t k = 0; k < o.n_x; k++) {
                bool made = memcmp(&o.dx[k], &first.dx[k], sizeof(float)) == 0;

                assert_true(made || ((only < 3) && isnan(o.dx[k])));
            }
            test_attention_destroy(&o);
        }
        test_attention_destroy(&first);
    }
}

/* The layer's key and the one that kernels make of the step on the device. */
static void step_there(void **state)
{
    test_attention_shape c = { 2, 2, 1, 65, 65, 8, true, 0, 0, false, false, true, 0.4f, 0 };
    const ct_device *dev = test_cuda();
    test_attention_operands a = test_attention_make(&c, 1), b = test_attention_make(&c, 1);
    uint64_t step = 17;
    void *word = test_cuda_put(dev, &step, sizeof(step));
    ct_exec told = { .dev = dev }, counted = { .dev = dev, .seed = 9, .step_there = word };

    (void)state;
    a.a.key = ct_rng_key(9, 17, 1234);
    pass(dev, &a, &told);
    b.a.layer = 1234;
    pass(dev, &b, &counted);
    test_same(b.top, a.top, a.n_top, "top");
    test_same(b.dx, a.dx, a.n_x, "dx");
    step++;
    assert_int_equal(dev->from_host(NULL, word, &step, sizeof(step)), CT_OK);
    pass(dev, &b, &counted);
    assert_memory_not_equal(b.top, a.top, (size_t)a.n_top * sizeof(float));
    dev->mem_release(word);
    test_attention_destroy(&a);
    test_attention_destroy(&b);
}

/* ---- edges */

/* Products of 1e20 and -1e20 are -infinity: such keys count for nothing, and a row of them alone is
 * one that sees nothing. */
static void minus_infinity(void **state)
{
    test_attention_shape c = { 1, 1, 1, 70, 70, 16, false, 0, 0, false, false, true, 0, 0 };
    const ct_device *dev = test_cuda();

    (void)state;
    for (int all = 0; all < 2; all++) {
        test_attention_operands o = test_attention_make(&c, 1);
        ct_exec ex = { .dev = dev };

        for (int64_t t = 0; t < 70; t++) {
            for (int i = 0; i < 16; i++) {
                o.x[t * 48 + i] = (t % 3 == 0) ? 1e20f : 0.25f;
                o.x[t * 48 + 16 + i] = ((t % 5 == 1) || (all == 1)) ? -1e20f : 0.0f;
            }
        }
        pass(dev, &o, &ex);
        for (int64_t t = 0; t < 70; t++) {
            bool none = (all == 1) && (t % 3 == 0);
            double mean = 0;

            for (int64_t j = 0; j < 70; j++)
                mean +=
                    ((all == 0) && (j % 5 == 1)) ? 0 : (double)o.x[j * 48 + 32] / (all ? 70 : 56);
            /* 70 values below 1 are added up: as many roundings, and some of the weights */
            assert_true(fabs((double)o.top[t * 16] - (none ? 0 : mean)) <= 150 * 0x1p-24);
            for (int i = 0; i < 48; i++) assert_true(isfinite(o.dx[t * 48 + i]));
            for (int i = 0; none && (i < 16); i++) assert_true(o.dx[t * 48 + i] == 0.0f);
        }
        test_attention_destroy(&o);
    }
}

/* A segment number that is no number equals none, itself neither. */
static void nothing_seen(void **state)
{
    test_attention_shape c = { 1, 2, 1, 70, 70, 24, true, 0, 24, false, true, true, 0, 0 };
    const ct_device *dev = test_cuda();
    test_attention_operands o = test_attention_make(&c, 1);
    ct_exec ex = { .dev = dev };

    (void)state;
    for (int64_t i = 20; i < 70; i++) o.segment[i] = NAN;
    pass(dev, &o, &ex);
    for (int64_t i = 20 * 48; i < 70 * 48; i++) assert_true(o.top[i] == 0.0f);
    for (int64_t i = 20 * 96; i < 70 * 96; i++) assert_true(o.dx[i] == 0.0f);
    for (int64_t i = 0; i < 20 * 48; i++) assert_true(o.top[i] != 0.0f);
    for (int64_t i = 0; i < 2 * 70; i++) {
        bool none = i % 70 >= 20;

        assert_true((o.stats[2 * i] == 0.0f) == none);
        assert_true((o.stats[2 * i + 1] == 0.0f) == none);
    }
    test_attention_destroy(&o);
}

/* No sequence: nothing runs, and nothing is wrong. */
static void no_sequence(void **state)
{
    test_attention_shape c = { 1, 2, 1, 7, 7, 8, true, 0, 0, false, false, true, 0, 0 };
    const ct_device *dev = test_cuda();
    test_attention_operands o = test_attention_make(&c, 1);
    ct_exec ex = { .dev = dev };
    there t = put(dev, &o, o.x, o.dtop, NULL);

    (void)state;
    o.d.n = 0;
    run_there(&t, &o, &ex, true);
    run_there(&t, &o, &ex, false);
    o.d.n = 1;
    take_all(&t, &o, o.top, o.dx);
    for (int64_t i = 0; i < o.n_top; i++) assert_true(isnan(o.top[i]));
    for (int64_t i = 0; i < o.n_x; i++) assert_true(isnan(o.dx[i]));
    test_attention_destroy(&o);
}

/* ---- bf16 numbers in memory: what f32 ones of the same values give, rounded once */

static void bf16_numbers(void **state)
{
    static const int some[] = { 3, 4, 8, 11, 15, 16 };
    const ct_device *dev = test_cuda();

    (void)state;
    for (int i = 0; i < 6; i++) {
        const test_attention_shape *c = &test_attention_shapes[some[i]];
        test_attention_operands wide = test_attention_make(c, 1), o = test_attention_make(c, 1);
        void *x = test_attention_narrowed(wide.x, wide.n_x);
        void *dtop = test_attention_narrowed(wide.dtop, wide.n_top), *top;
        ct_exec ex = { .dev = dev };
        there t = put(dev, &wide, wide.x, wide.dtop, NULL);

        run_there(&t, &wide, &ex, true);
        take_all(&t, &wide, wide.top, wide.dx);
        o.d.bf16 = true;
        t = put(dev, &o, x, dtop, NULL);
        run_there(&t, &o, &ex, true);
        run_there(&t, &o, &ex, false);
        take_all(&t, &o, o.top, o.dx);
        test_attention_rounded(c, "y", wide.top, o.top, o.n_top);
        top = test_attention_narrowed(wide.top, wide.n_top); /* backward reads the rounded one */
        t = put(dev, &wide, wide.x, wide.dtop, wide.top);
        run_there(&t, &wide, &ex, false);
        take_all(&t, &wide, wide.top, wide.dx);
        test_attention_rounded(c, "dx", wide.dx, o.dx, o.n_x);
        free(x), free(dtop), free(top);
        test_attention_destroy(&wide);
        test_attention_destroy(&o);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_shape),  cmocka_unit_test(around_tiles),
        cmocka_unit_test(mixed),        cmocka_unit_test(same_bits),
        cmocka_unit_test(step_there),   cmocka_unit_test(minus_infinity),
        cmocka_unit_test(nothing_seen), cmocka_unit_test(no_sequence),
        cmocka_unit_test(bf16_numbers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
