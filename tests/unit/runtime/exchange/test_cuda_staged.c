/* Gradients of a device through the host (runtime/exchange/transports.h), around a transport that
 * makes twice of them, as two ranks with equal gradients would: copies, order, what lands, and
 * a step of the solver's. Skips where no CUDA device works. */
#include "tests/test.h"
#include "tests/cuda_case.h"

#include "framework/math/math.h"
#include "runtime/exchange/transports.h"

#include <stdlib.h>
#include <string.h>

enum { MOST = 16 };

/* The inner transport: what it was told, and where the gradients lie. */
typedef struct twice {
    const ct_net *net;
    float *arena;
    int ready[MOST], n_ready;
    int64_t doubled[MOST];      /* elements that parts were made of in this step */
    int n_part;                 /* in all */
    ct_transport_staged *hears; /* of parts; NULL: nobody does */
} twice;

static void twice_begin(twice *t)
{
    t->n_ready = 0;
    memset(t->doubled, 0, sizeof(t->doubled));
}

/* As far as it is there. */
static void make_twice(twice *t, int param, int64_t end)
{
    float *g = t->arena + t->net->param[param].offset;

    for (; t->doubled[param] < end; t->doubled[param]++) g[t->doubled[param]] *= 2.0f;
}

static ct_status twice_ready(void *ctx, int param)
{
    twice *t = ctx;

    t->ready[t->n_ready++] = param;
    make_twice(t, param, t->net->param[param].count);
    return CT_OK;
}

static ct_status twice_ready_to(void *ctx, int param, int64_t count)
{
    twice *t = ctx;

    assert_true((count > t->doubled[param]) && (count < t->net->param[param].count));
    t->n_part++;
    make_twice(t, param, count);
    return CT_OK;
}

static ct_status twice_poll(void *ctx)
{
    (void)ctx;
    return CT_OK;
}

/* In two buckets; with parts, the largest in three parts, and what is around it. */
static ct_status twice_finish(void *ctx, ct_landed_fn landed, void *landed_ctx)
{
    const twice *t = ctx;
    int n = t->net->n_param, half = n / 2, large = 0;
    int64_t third;

    assert_int_equal(t->n_ready, n); /* all were handed over before */
    if (t->hears == NULL) {
        CT_TRY(landed(landed_ctx, 0, half));
        return landed(landed_ctx, half, n - half);
    }
    for (int i = 1; i < n; i++)
        if (t->net->param[i].count > t->net->param[large].count) large = i;
    third = t->net->param[large].count / 3;
    CT_TRY(ct_transport_staged_part(t->hears, large, 2 * third,
                                    t->net->param[large].count - 2 * third));
    CT_TRY(ct_transport_staged_part(t->hears, large, 0, third));
    CT_TRY(landed(landed_ctx, large + 1, n - large - 1));
    CT_TRY(ct_transport_staged_part(t->hears, large, third, third));
    CT_TRY(landed(landed_ctx, large, 1));
    return landed(landed_ctx, 0, large);
}

static const ct_transport_ops whole = { .ready = twice_ready,
                                        .poll = twice_poll,
                                        .finish = twice_finish };
static const ct_transport_ops in_parts = {
    .ready = twice_ready, .ready_to = twice_ready_to, .poll = twice_poll, .finish = twice_finish
};

static const char text[] =
    "layer { name: 'data' type: 'DummyData' top: 'x' top: 'y' dummy_data_param { "
    "shape { dim: 5 dim: 7 } shape { dim: 5 } data_filler { type: 'gaussian' std: 1 } "
    "data_filler { value: 1 } } }\n"
    "layer { name: 'a' type: 'InnerProduct' bottom: 'x' top: 'a' inner_product_param { "
    "num_output: 21 weight_filler { type: 'xavier' } } }\n"
    "layer { name: 'r' type: 'TanH' bottom: 'a' top: 'a' }\n"
    "layer { name: 'b' type: 'InnerProduct' bottom: 'a' top: 'b' inner_product_param { "
    "num_output: 3 weight_filler { type: 'xavier' } } }\n"
    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'b' bottom: 'y' top: 'loss' }\n";

/* What the solver's side saw. */
typedef struct seen {
    const ct_net *net;
    bool landed[MOST];
    const float *plain; /* the gradients before, in the arena's order */
} seen;

static ct_status on_landed(void *ctx, int first, int n)
{
    seen *s = ctx;

    for (int i = first; i < first + n; i++) {
        const ct_param *p = &s->net->param[i];
        float *g = malloc((size_t)p->count * sizeof(*g));

        assert_non_null(g);
        assert_false(s->landed[i]);
        s->landed[i] = true;
        assert_int_equal(
            s->net->options.dev->to_host(NULL, g, p->blob.diff.data, (size_t)p->count * sizeof(*g)),
            CT_OK);
        for (int64_t k = 0; k < p->count; k++) assert_true(g[k] == 2.0f * s->plain[p->offset + k]);
        free(g);
    }
    return CT_OK;
}

/* with_parts: the inner exchange takes parts of gradients. */
static void check_twice(const char *net_text, bool with_parts)
{
    const ct_device *dev = test_cuda();
    ct_transport_staged *staged;
    test_cuda_net made;
    ct_net *net;
    ct_transport out;
    twice t = { .net = NULL };
    int64_t down, up;

    test_cuda_net_open(net_text, dev, NULL, NULL, &made);
    net = made.net;
    t.net = net;
    assert_int_equal(ct_transport_staged_create(
                         net, &(ct_transport){ .ctx = &t, .ops = with_parts ? &in_parts : &whole },
                         &staged, &t.arena, &out),
                     CT_OK);
    t.hears = with_parts ? staged : NULL;
    assert_false(out.records);
    for (int step = 0; step < 3; step++) {
        seen s = { net, { false }, NULL };
        float *plain;

        (void)test_cuda_net_pass(&made, step, false);
        s.plain = plain = test_cuda_net_gradients(&made);
        /* backward has used the memory of what forward made: the same forward again */
        assert_int_equal(ct_pass_forward(net->pass, NULL), CT_OK);
        twice_begin(&t);
        assert_int_equal(ct_pass_backward(net->pass, out.ops->ready, out.ctx), CT_OK);
        assert_int_equal(out.ops->poll(out.ctx), CT_OK);
        assert_int_equal(out.ops->finish(out.ctx, on_landed, &s), CT_OK);
        for (int i = 0; i < net->n_param; i++) {
            assert_int_equal(t.ready[i], i); /* in the order of backward, which is the arena's */
            assert_true(s.landed[i]);
        }
        free(plain);
    }
    ct_transport_staged_bytes(staged, &down, &up);
    {
        int64_t learned = 0;

        for (int i = 0; i < net->n_param; i++) learned += net->param[i].count;
        assert_int_equal(down, 3 * 4 * learned); /* each gradient once a step, and no byte more */
        assert_true((up >= down) &&
                    (up <= 3 * 4 * net->grad_count)); /* with padding between them */
    }
    /* 1 048 576 floats at a time, of 1025 x 1024: one part a step before the rest */
    assert_int_equal(t.n_part, with_parts ? 3 : 0);
    ct_transport_staged_destroy(staged);
    test_cuda_net_close(&made);
}

static const char large_text[] =
    "layer { name: 'data' type: 'DummyData' top: 'x' top: 'y' dummy_data_param { "
    "shape { dim: 5 dim: 1024 } shape { dim: 5 } data_filler { type: 'gaussian' std: 1 } "
    "data_filler { value: 1 } } }\n"
    "layer { name: 'a' type: 'InnerProduct' bottom: 'x' top: 'a' inner_product_param { "
    "num_output: 1025 weight_filler { type: 'xavier' } } }\n"
    "layer { name: 'r' type: 'TanH' bottom: 'a' top: 'a' }\n"
    "layer { name: 'b' type: 'InnerProduct' bottom: 'a' top: 'b' inner_product_param { "
    "num_output: 3 weight_filler { type: 'xavier' } } }\n"
    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'b' bottom: 'y' top: 'loss' }\n";

static void twice_of_everything(void **unused)
{
    (void)unused;
    check_twice(text, false);
    check_twice(large_text, false);
}

static void twice_in_parts(void **unused)
{
    (void)unused;
    check_twice(large_text, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(twice_of_everything),
                                        cmocka_unit_test(twice_in_parts) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
