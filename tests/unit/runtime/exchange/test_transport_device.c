/* Gradients that a device's library adds up (runtime/exchange/transports.h), with a made-up
 * library that makes twice of them, as two ranks with equal gradients would, when it is followed.
 */
#include "tests/test.h"
#include "tests/log_capture.h"

#include "framework/proto/prototxt.h"
#include "runtime/exchange/transports.h"

#include <stdlib.h>
#include <string.h>

enum { MOST = 16 };

/* What the library was asked for. */
static struct library {
    int n_poll, n_given, n_drop;
    struct sum {
        float *data;
        int64_t n;
        bool followed;
    } sum[MOST];
    int n_sum;
} lib;

static ct_status lib_begin(void *group, ct_stream st, float *data, int64_t n, void **ticket_p)
{
    (void)st;
    assert_ptr_equal(group, &lib);
    assert_true(lib.n_sum < MOST);
    lib.sum[lib.n_sum] = (struct sum){ data, n, false };
    *ticket_p = &lib.sum[lib.n_sum++];
    return CT_OK;
}

static ct_status lib_follow(void *group, ct_stream st, void *ticket)
{
    struct sum *s = ticket;

    (void)group, (void)st;
    assert_false(s->followed);
    s->followed = true;
    for (int64_t i = 0; i < s->n; i++) s->data[i] *= 2.0f;
    return CT_OK;
}

static ct_status lib_poll(void *group)
{
    (void)group;
    lib.n_poll++;
    return CT_OK;
}

static ct_status lib_given(void *group)
{
    (void)group;
    lib.n_given++;
    return CT_OK;
}

static void lib_drop(void *group, void *ticket)
{
    struct sum *s = ticket;

    (void)group;
    assert_false(s->followed);
    s->followed = true;
    lib.n_drop++;
}

static const ct_device_sum_ops ops = { .name = "made up",
                                       .begin = lib_begin,
                                       .follow = lib_follow,
                                       .poll = lib_poll,
                                       .given = lib_given,
                                       .drop = lib_drop };

static const char text[] =
    "layer { name: 'data' type: 'DummyData' top: 'x' top: 'y' dummy_data_param { "
    "shape { dim: 5 dim: 7 } shape { dim: 5 } data_filler { type: 'gaussian' std: 1 } "
    "data_filler { value: 1 } } }\n"
    "layer { name: 'a' type: 'InnerProduct' bottom: 'x' top: 'a' inner_product_param { "
    "num_output: 21 weight_filler { type: 'xavier' } } }\n"
    "layer { name: 'n' type: 'BatchNorm' bottom: 'a' top: 'n' }\n"
    "layer { name: 'b' type: 'InnerProduct' bottom: 'n' top: 'b' inner_product_param { "
    "num_output: 3 weight_filler { type: 'xavier' } } }\n"
    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'b' bottom: 'y' top: 'loss' }\n";

typedef struct job {
    ct_net *net;
    ProtobufCMessage *message;
    ct_transport_device *device;
    ct_transport x;
    int landed[MOST], n_landed; /* parameters, in the order in which they landed */
} job;

static job open_job(int64_t bucket_bytes)
{
    ct_net_options o = { .phase = CT_TRAIN, .env = { .n_rank = 1, .seed = 5 } };
    job j = { .n_landed = 0 };

    memset(&lib, 0, sizeof(lib));
    assert_int_equal(ct_prototxt_parse(&ct__net_parameter__descriptor, "test", text, strlen(text),
                                       NULL, &j.message),
                     CT_OK);
    assert_int_equal(ct_net_create((const Ct__NetParameter *)j.message, &o, &j.net), CT_OK);
    assert_int_equal(ct_transport_device_create(j.net, &ops, &lib, bucket_bytes, &j.device, &j.x),
                     CT_OK);
    assert_true(j.x.records);
    return j;
}

static void close_job(job *j)
{
    ct_transport_device_destroy(j->device);
    ct_net_destroy(j->net);
    protobuf_c_message_free_unpacked(j->message, NULL);
}

static ct_status on_landed(void *ctx, int first, int n)
{
    job *j = ctx;

    for (int i = first; i < first + n; i++) j->landed[j->n_landed++] = i;
    return CT_OK;
}

static int count_learned(const ct_net *net)
{
    int n = 0;

    for (int i = 0; i < net->n_param; i++) n += net->param[i].learns;
    return n;
}

/* Each step: gradients leave as they get ready, the sums of those before are all that a wait lands,
 * and every gradient is summed once, whatever the buckets. */
static void run_steps(int64_t bucket_bytes, int least_sums, int most_sums)
{
    job j = open_job(bucket_bytes);
    ct_net *net = j.net;
    int learned = count_learned(net), sums = 0;
    float *plain = malloc((size_t)net->grad_count * sizeof(*plain));

    assert_non_null(plain);
    assert_true((learned == 4) && (net->n_param > learned)); /* BatchNorm's statistics */
    for (int step = 0; step < 3; step++) {
        lib.n_sum = 0;
        j.n_landed = 0;
        for (int64_t i = 0; i < net->grad_count; i++) plain[i] = (float)(i % 11) - 5.0f;
        memcpy(net->grad_arena, plain, (size_t)net->grad_count * sizeof(*plain));
        assert_int_equal(ct_transport_device_begin(j.device), CT_OK);
        for (int i = 0; i < learned; i++) assert_int_equal(j.x.ops->ready(j.x.ctx, i), CT_OK);
        sums = lib.n_sum; /* they left while backward ran */
        lib.n_poll = 0;
        assert_int_equal(j.x.ops->poll(j.x.ctx), CT_OK);
        assert_int_equal(lib.n_poll, 1);
        assert_int_equal(j.x.ops->wait(j.x.ctx, 0, 1, on_landed, &j), CT_OK);
        assert_true(j.n_landed >= 1);
        if (sums > 1) assert_true(j.n_landed < net->n_param);
        assert_int_equal(j.x.ops->finish(j.x.ctx, on_landed, &j), CT_OK);
        assert_int_equal(j.n_landed, net->n_param);
        for (int i = 0; i < net->n_param; i++) assert_int_equal(j.landed[i], i);
        for (int i = 0; i < learned; i++) {
            const ct_param *p = &net->param[i];

            for (int64_t k = p->offset; k < p->offset + p->count; k++)
                assert_true(net->grad_arena[k] == 2.0f * plain[k]);
        }
        assert_int_equal(j.x.ops->finish(j.x.ctx, on_landed, &j),
                         CT_OK); /* free, and nothing twice */
        assert_int_equal(j.n_landed, net->n_param);
    }
    assert_true((sums >= least_sums) && (sums <= most_sums));
    free(plain);
    close_job(&j);
}

static void sums_once(void **state)
{
    (void)state;
    run_steps(0, 1, 1);
    run_steps(1, 4, 4);  /* each by itself */
    run_steps(80, 2, 3); /* neighbours together */
}

/* What leaves too early or never is said. */
static void wrong_order_is_told(void **state)
{
    job j = open_job(1);
    log_capture log;

    (void)state;
    log_capture_start(&log);
    assert_int_equal(ct_transport_device_begin(j.device), CT_OK);
    assert_int_equal(j.x.ops->ready(j.x.ctx, 1), CT_OK);
    assert_int_equal(lib.n_sum, 0); /* the same order on all ranks: not before the first */
    assert_int_equal(j.x.ops->finish(j.x.ctx, on_landed, &j), CT_ERR_ARG);
    assert_non_null(strstr(log.error, "is waited for and has not left"));
    assert_int_equal(ct_transport_device_begin(j.device), CT_ERR_ARG);
    assert_int_equal(j.x.ops->ready(j.x.ctx, 99), CT_ERR_ARG);
    log_capture_stop();
    close_job(&j);
}

static int64_t bytes_sent(const job *j)
{
    return ct_transport_device_bytes(j->device);
}

/* Recorded in vain: nothing of it is left, and the calls come again. Given again: as if they had
 * come, and the library looks for other ranks' errors. */
static void replays(void **state)
{
    job j = open_job(80);
    int learned = count_learned(j.net), sums, whole = 0;
    int64_t bytes;

    (void)state;
    assert_non_null(j.x.ops->replay);
    for (int early = 0; early <= learned; early++) { /* how far the recording came */
        lib.n_sum = lib.n_drop = j.n_landed = 0;
        bytes = bytes_sent(&j);
        assert_int_equal(ct_transport_device_begin(j.device), CT_OK);
        for (int i = 0; i < early; i++) assert_int_equal(j.x.ops->ready(j.x.ctx, i), CT_OK);
        sums = lib.n_sum;
        if (early == learned) assert_int_equal(j.x.ops->wait(j.x.ctx, 0, 1, on_landed, &j), CT_OK);
        assert_int_equal(j.x.ops->replay(j.x.ctx, CT_REPLAY_DROPPED), CT_OK);
        assert_int_equal(lib.n_drop, sums - (early == learned));
        assert_true(bytes_sent(&j) == bytes);
        lib.n_sum = j.n_landed = 0;
        for (int i = 0; i < learned; i++) assert_int_equal(j.x.ops->ready(j.x.ctx, i), CT_OK);
        assert_int_equal(j.x.ops->finish(j.x.ctx, on_landed, &j), CT_OK);
        assert_int_equal(j.n_landed, j.net->n_param);
        for (int i = 0; i < lib.n_sum; i++) assert_true(lib.sum[i].followed);
        whole = lib.n_sum;
        bytes = bytes_sent(&j) - bytes;
    }
    assert_true((whole >= 2) && (lib.n_given == 0));
    lib.n_sum = j.n_landed = 0;
    for (int step = 0; step < 3; step++) {
        int64_t before = bytes_sent(&j);

        assert_int_equal(ct_transport_device_begin(j.device), CT_OK);
        assert_int_equal(j.x.ops->replay(j.x.ctx, CT_REPLAY_GIVEN), CT_OK);
        assert_int_equal(j.x.ops->finish(j.x.ctx, on_landed, &j), CT_OK);
        assert_int_equal(lib.n_given, step + 1);
        assert_true(bytes_sent(&j) - before == bytes);
    }
    assert_true((lib.n_sum == 0) && (j.n_landed == 0));
    close_job(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(sums_once),
                                        cmocka_unit_test(wrong_order_is_told),
                                        cmocka_unit_test(replays) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
