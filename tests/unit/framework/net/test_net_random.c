/* Random nets: the plan's memory, poisoned where nothing lives, gives the bits that memory of one's
 * own for everything gives, working in place or not, with blocks made again, and with several
 * passes in flight; and the whole net's gradient is that of central differences. */
#include "tests/test.h"
#include "tests/layer_harness.h"
#include "tests/net_layers.h"

#include "framework/base/rng.h"
#include "framework/net/net_impl.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_LAYER 24

/* Two texts of the same net: with layers in place, and with a name of its own for every value. */
typedef struct writer {
    uint64_t seed;
    uint64_t drawn;
    bool stops; /* with layers through which no gradient passes */
    ct_text in_place, apart;
    int name[MAX_LAYER + 4]; /* of the in_place text, per value; the value's number in the other */
    bool stale[MAX_LAYER + 4]; /* overwritten: its name now means another value */
    int n;
} writer;

static int draw(writer *w, int below)
{
    return (int)(ct_rng_philox(w->seed, 7, w->drawn++).v[0] % (uint32_t)below);
}

/* A value that may still be read by name. */
static int pick(writer *w)
{
    for (;;) {
        int v = draw(w, w->n);

        /* late ones more often, so that nets become deep */
        if (draw(w, 2) == 0) v = w->n - 1 - draw(w, (w->n < 3) ? w->n : 3);
        if (!w->stale[v]) return v;
    }
}

static void put(writer *w, const char *format, int a, int b, bool over)
{
    int to = w->n++;

    w->name[to] = over ? w->name[a] : to;
    if (over) w->stale[a] = true;
    ct_text_add(&w->in_place, format, to, w->name[a], w->name[to], w->name[b]);
    ct_text_add(&w->apart, format, to, a, to, b);
}

#define HEAD(type) "layer { name: 'l%1$d' type: '" type "' bottom: 'v%2$d' top: 'v%3$d'"

static void put_random(writer *w)
{
    int a = pick(w), b = pick(w);

    switch (draw(w, 12)) {
    case 0:
    case 1:
        put(w,
            HEAD("Linear") " inner_product_param { num_output: 3 weight_filler { type: 'xavier' } "
                           "bias_filler { value: 0.1 } } }\n",
            a, b, false);
        break;
    case 2:
        put(w,
            HEAD("Linear") " param { name: 'shared' } inner_product_param { num_output: 3 "
                           "weight_filler { type: 'xavier' } } }\n",
            a, b, false);
        break;
    case 3:
        put(w,
            HEAD("Linear") " param { lr_mult: 0 } inner_product_param { num_output: 3 "
                           "weight_filler { type: 'xavier' } } }\n",
            a, b, false);
        break;
    case 4:
    case 5:
        put(w, HEAD("Tanh") " }\n", a, b, draw(w, 3) > 0);
        break;
    case 6:
    case 7:
        put(w, HEAD("Half") " }\n", a, b, draw(w, 3) > 0);
        break;
    case 8:
        put(w, HEAD("Square") " }\n", a, b, false);
        break;
    case 9:
        put(w, HEAD("Add") " bottom: 'v%4$d' }\n", a, b, false);
        break;
    case 10:
        put(w, HEAD("Pass") " }\n", a, b, false);
        break;
    default:
        put(w, (w->stops && (draw(w, 4) == 0)) ? HEAD("Stop") " }\n" : HEAD("Work") " }\n", a, b,
            false);
    }
}

static void write_net(uint64_t seed, bool stops, writer *w)
{
    static const char *const source[2] = {
        "layer { name: 'data' type: 'Source' top: 'v0' top: 'v1' input_param { shape { dim: 4 dim: "
        "3 } shape { dim: 4 dim: 3 } } }\n",
        "layer { name: 'data' type: 'Given' top: 'v0' top: 'v1' input_param { shape { dim: 4 dim: "
        "3 } shape { dim: 4 dim: 3 } } }\n",
    };
    int n_layer;

    *w = (writer){ .seed = seed, .stops = stops, .n = 2 };
    w->name[1] = 1;
    n_layer = 4 + draw(w, MAX_LAYER - 6);
    ct_text_add(&w->in_place, "%s", source[seed % 5 == 0]);
    ct_text_add(&w->apart, "%s", source[seed % 5 == 0]);
    while (w->n < n_layer) put_random(w);
    for (int i = 0; i < 2; i++) { /* a loss of the last value, and of some other */
        int v = (i == 0) ? w->n - 1 : pick(w);
        static const char *const loss =
            "layer { name: 'loss%1$d' type: 'SumSq' bottom: 'v%2$d' top: 'loss%1$d' }\n";

        ct_text_add(&w->in_place, loss, i, w->name[v]);
        ct_text_add(&w->apart, loss, i, v);
    }
}

static void set_given_of(const ct_pass *pass)
{
    for (int b = 0; b < 2; b++) test_random(ct_blob_data(pass->blob[b]), 12, 77, -1.0f, 1.0f);
}

static void set_given(test_net *t)
{
    set_given_of(t->net->pass);
}

static void same_gradients(const test_net *a, const test_net *b)
{
    assert_int_equal(a->net->n_param, b->net->n_param);
    for (int k = 0; k < a->net->n_param; k++) {
        const ct_param *p = &a->net->param[k];
        const ct_param *q = &b->net->param[ct_net_find_param(b->net, p->key)];

        assert_int_equal(p->learns, q->learns);
        if (p->learns) test_same(ct_blob_diff(&p->blob), ct_blob_diff(&q->blob), p->count, p->key);
    }
}

static void check_regions(const test_net *t)
{
    const ct_net_impl *m = ct_net_impl_of(t->net);

    for (int i = 0; i < m->n_region; i++) {
        const ct_region *r = &m->region[i];

        for (int k = 0; k < i; k++) {
            const ct_region *o = &m->region[k];

            assert_true((r->first > o->last) || (o->first > r->last) ||
                        (r->offset >= o->offset + o->bytes) || (o->offset >= r->offset + r->bytes));
        }
    }
}

static void poisoned_memory_gives_the_same_numbers(void **state)
{
    ct_net_options alone = { .phase = CT_TRAIN, .unshared = true };
    int n_learning = 0, n_in_place = 0;

    (void)state;
    for (uint64_t seed = 0; seed < 150; seed++) {
        test_net planned, apart;
        writer w;

        write_net(seed, true, &w);
        assert_int_equal(setenv("CORTADO_POISON", "1", 1), 0);
        assert_int_equal(test_net_create(w.in_place.text, NULL, &planned), CT_OK);
        assert_int_equal(unsetenv("CORTADO_POISON"), 0);
        assert_int_equal(test_net_create(w.apart.text, &alone, &apart), CT_OK);
        assert_true(ct_net_impl_of(planned.net)->poison);
        check_regions(&planned);
        assert_true(planned.net->memory.planned <= apart.net->memory.planned);
        if (seed % 5 == 0) {
            set_given(&planned);
            set_given(&apart);
        }
        n_in_place += planned.net->n_blob < apart.net->n_blob;
        for (int pass = 0; pass < 2; pass++) {
            double a = test_net_pass(&planned, pass, false), b = test_net_pass(&apart, pass, false);

            if (!isfinite(b) || (a != b))
                fail_msg("seed %d: %g and %g\n%s", (int)seed, a, b, w.in_place.text);
            same_gradients(&planned, &apart);
        }
        n_learning += planned.net->grad_count > 0;
        test_net_destroy(&planned);
        test_net_destroy(&apart);
        ct_text_destroy(&w.in_place);
        ct_text_destroy(&w.apart);
    }
    assert_true((n_learning > 70) && (n_in_place > 40)); /* it was worth it */
}

/* Runs of 1 to 7 layers are copies of a repeat; some layers are in none. */
static void mark_blocks(writer *w, Ct__NetParameter *param)
{
    int copy = 0, left = 0;

    for (size_t i = 0; i < param->n_layer; i++) {
        Ct__RepeatCopy *c;

        if (left-- <= 0) {
            left = draw(w, 7);
            copy++;
        }
        if (draw(w, 12) == 0) continue;
        c = malloc(sizeof(*c));
        assert_non_null(c);
        ct__repeat_copy__init(c);
        c->has_line = c->has_column = c->has_copy = true;
        c->line = c->column = 1;
        c->copy = copy;
        param->layer[i]->repeat_copy = c;
    }
}

static void blocks_give_the_same_numbers(void **state)
{
    int n_again = 0, n_less = 0;

    (void)state;
    for (uint64_t seed = 3000; seed < 3150; seed++) {
        ct_net_options o = { .phase = CT_TRAIN,
                             .table = test_net_table,
                             .env = { .seed = 1 },
                             .recompute = CT__RECOMPUTE__BLOCKS };
        test_net kept, blocks = { .param = NULL };
        writer w;

        write_net(seed, true, &w);
        assert_int_equal(test_net_create(w.in_place.text, NULL, &kept), CT_OK);
        mark_blocks(&w, kept.param);
        setenv("CORTADO_POISON", "1", 1);
        assert_int_equal(ct_net_create(kept.param, &o, &blocks.net), CT_OK);
        unsetenv("CORTADO_POISON");
        check_regions(&blocks);
        for (int j = 0; j < blocks.net->n_backward; j++)
            n_again += (blocks.net->backward[j].kind == CT_STEP_AGAIN);
        n_less += (blocks.net->memory.peak_alive < kept.net->memory.peak_alive);
        if (seed % 5 == 0) {
            set_given(&kept);
            set_given(&blocks);
        }
        for (int step = 0; step < 3; step++) {
            double a = test_net_pass(&blocks, step, step == 2);
            double b = test_net_pass(&kept, step, step == 2);

            if (!isfinite(b) || (a != b))
                fail_msg("seed %d: %g and %g\n%s", (int)seed, a, b, w.in_place.text);
            same_gradients(&blocks, &kept);
        }
        test_net_destroy(&blocks);
        test_net_destroy(&kept);
        ct_text_destroy(&w.in_place);
        ct_text_destroy(&w.apart);
    }
    assert_true((n_again > 100) && (n_less > 10)); /* it was worth it */
}

/* ---- several passes in flight */

enum { MOST_IN_FLIGHT = 4, N_MICRO = 9 };

typedef struct flight {
    test_net t, alone; /* alone: one pass, with memory of its own for everything */
    ct_pass *pass[MOST_IN_FLIGHT];
    int n;
    double loss[N_MICRO], want[N_MICRO];
} flight;

static void open_flight(const char *text, writer *w, int n, bool again, flight *f)
{
    ct_net_options apart = { .phase = CT_TRAIN, .unshared = true };
    ct_net_options o = { .phase = CT_TRAIN,
                         .table = test_net_table,
                         .env = { .seed = 1 },
                         .recompute = again ? CT__RECOMPUTE__BLOCKS : CT__RECOMPUTE__NEVER,
                         .in_flight = n };

    *f = (flight){ .n = n };
    assert_int_equal(test_net_create(text, &apart, &f->alone), CT_OK);
    if (again) mark_blocks(w, f->alone.param);
    setenv("CORTADO_POISON", "1", 1);
    assert_int_equal(ct_net_create(f->alone.param, &o, &f->t.net), CT_OK);
    unsetenv("CORTADO_POISON");
    check_regions(&f->t);
    f->pass[0] = f->t.net->pass;
    for (int k = 1; k < n; k++) assert_int_equal(ct_pass_create(f->t.net, &f->pass[k]), CT_OK);
    /* what was planned is what is there */
    assert_int_equal(f->t.net->memory.allocated,
                     f->t.net->memory.planned + f->t.net->memory.weights);
}

static void close_flight(flight *f)
{
    for (int k = 1; k < f->n; k++) ct_pass_destroy(f->pass[k]);
    test_net_destroy(&f->t);
    test_net_destroy(&f->alone);
}

static void run_forward(flight *f, int m)
{
    ct_pass *pass = f->pass[m % f->n];

    pass->exec.micro_step = m;
    pass->exec.accumulate = (m > 0);
    assert_int_equal(ct_pass_forward(pass, &f->loss[m]), CT_OK);
}

static void run_backward(const flight *f, int m)
{
    f->pass[m % f->n]->exec.accumulate = (m > 0);
    assert_int_equal(ct_pass_backward(f->pass[m % f->n], NULL, NULL), CT_OK);
}

/* Micro-batches forward and backward, each in its order, in a random one otherwise. */
static void fly(flight *f, writer *w)
{
    int from = 0, back = 0;

    while (back < N_MICRO) {
        bool may = (from < N_MICRO) && (from - back < f->n);

        if (may && ((from == back) || (draw(w, 2) == 0)))
            run_forward(f, from++);
        else
            run_backward(f, back++);
    }
    for (int m = 0; m < N_MICRO; m++) f->want[m] = test_net_pass(&f->alone, m, m > 0);
}

static void compare_flight(const flight *f, uint64_t seed, const char *text)
{
    for (int m = 0; m < N_MICRO; m++) {
        if (!isfinite(f->want[m]) || (f->loss[m] != f->want[m]))
            fail_msg("seed %d, %d in flight: %g and %g\n%s", (int)seed, f->n, f->loss[m],
                     f->want[m], text);
    }
    same_gradients(&f->t, &f->alone);
}

static void passes_in_flight_give_the_same_numbers(void **state)
{
    int n_less = 0, n_shared = 0;

    (void)state;
    for (uint64_t seed = 5000; seed < 5080; seed++) {
        int n = 1 + (int)(seed % MOST_IN_FLIGHT);
        size_t single;
        test_net one;
        writer w;
        flight f;

        write_net(seed, true, &w);
        assert_int_equal(test_net_create(w.in_place.text, NULL, &one), CT_OK);
        single = one.net->memory.planned;
        test_net_destroy(&one);
        open_flight(w.in_place.text, &w, n, (seed / MOST_IN_FLIGHT) % 2 == 1, &f);
        if (seed % 5 == 0) {
            for (int k = 0; k < n; k++) set_given_of(f.pass[k]);
            set_given(&f.alone);
        }
        fly(&f, &w);
        compare_flight(&f, seed, w.in_place.text);
        assert_true(f.t.net->memory.planned <= (size_t)n * single);
        n_less += (f.t.net->memory.planned < (size_t)n * single);
        n_shared += (ct_net_impl_of(f.t.net)->shared_bytes > 0);
        close_flight(&f);
        ct_text_destroy(&w.in_place);
        ct_text_destroy(&w.apart);
    }
    assert_true((n_less > 40) && (n_shared > 40)); /* it was worth it: of 60 with several */
}

static double loss_at(test_net *t, float *w, float value)
{
    float old = *w;
    double loss;

    *w = value;
    assert_int_equal(ct_pass_forward(t->net->pass, &loss), CT_OK);
    *w = old;
    return loss;
}

/* The sum of the layers' values, each rounded once or a few times: what rounding may add to the
 * loss. */
static double noise_of(const test_net *t, double loss)
{
    return 64.0 * (double)FLT_EPSILON * t->net->n_layer * (1.0 + fabs(loss));
}

static void check_gradient(test_net *t, ct_param *p, int64_t e, double loss, int seed)
{
    float *w = &ct_blob_data(&p->blob)[e], h = 0x1p-7f;
    double g = (double)ct_blob_diff(&p->blob)[e];
    double d1 = (loss_at(t, w, *w + h) - loss_at(t, w, *w - h)) / (2.0 * (double)h);
    double d2 = (loss_at(t, w, *w + 2 * h) - loss_at(t, w, *w - 2 * h)) / (4.0 * (double)h);
    /* d2 - d1 is three times the h^2 term of d1; the h^4 term is taken to be smaller than that */
    double allowed = noise_of(t, loss) / (double)h + fabs(d2 - d1);

    if (!(fabs(g - d1) <= allowed))
        fail_msg("seed %d, %s element %d: %g by backward, %g by differences, %g allowed", seed,
                 p->key, (int)e, g, d1, allowed);
}

static void whole_nets_have_the_gradient_of_differences(void **state)
{
    int n_checked = 0;

    (void)state;
    for (uint64_t seed = 1000; seed < 1050; seed++) {
        test_net t;
        writer w;
        double loss;

        write_net(seed, false, &w);
        assert_int_equal(test_net_create(w.in_place.text, NULL, &t), CT_OK);
        if (seed % 5 == 0) set_given(&t);
        loss = test_net_pass(&t, 0, false);
        for (int k = 0; (loss < 1e3) && (k < t.net->n_param); k++) {
            if (!t.net->param[k].learns) continue;
            for (int64_t e = 0; e < t.net->param[k].count; e += 2) {
                check_gradient(&t, &t.net->param[k], e, loss, (int)seed);
                n_checked++;
            }
        }
        test_net_destroy(&t);
        ct_text_destroy(&w.in_place);
        ct_text_destroy(&w.apart);
    }
    assert_true(n_checked > 200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(poisoned_memory_gives_the_same_numbers),
        cmocka_unit_test(blocks_give_the_same_numbers),
        cmocka_unit_test(passes_in_flight_give_the_same_numbers),
        cmocka_unit_test(whole_nets_have_the_gradient_of_differences),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
