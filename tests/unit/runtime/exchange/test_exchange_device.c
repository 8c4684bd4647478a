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
    char id[CT_DEVICE_SUM_ID];
    int rank, n_rank, n_open, n_poll, n_given, n_drop;
    struct sum {
        float *data;
        int64_t n;
        bool followed;
    } sum[MOST];
    int n_sum;
} lib;

static bool lib_there(void)
{
    return true;
}

static ct_status lib_id(void *id)
{
    memset(id, 7, CT_DEVICE_SUM_ID);
    return CT_OK;
}

static ct_status lib_open(const ct_device *dev, const void *id, int rank, int n_rank,
                          void **group_p)
{
    memcpy(lib.id, id, sizeof(lib.id));
    (void)dev;
    lib.rank = rank;
    lib.n_rank = n_rank;
    lib.n_open++;
    *group_p = &lib;
    return CT_OK;
}

static void lib_close(void *group)
{
    if (group != NULL) lib.n_open--;
}

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

static ct_status lib_sum(void *group, ct_stream st, double *data, int64_t n)
{
    assert_ptr_equal(group, &lib);
    assert_ptr_equal(st, &lib.n_sum); /* the caller's */
    for (int64_t i = 0; i < n; i++) data[i] *= 2.0;
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

static const ct_device_sum_ops ops = { "made up", lib_there, lib_id,     lib_open,
                                       lib_close, lib_begin, lib_follow, lib_sum,
                                       lib_poll,  lib_given, lib_drop };

/* The group: rank 0's id to everyone. */
static ct_status its_max(void *ctx, int64_t *v, int n)
{
    (void)ctx, (void)v, (void)n;
    return CT_OK;
}

static ct_status its_broadcast(void *ctx, void *data, size_t bytes)
{
    (void)ctx, (void)data;
    assert_int_equal(bytes, CT_DEVICE_SUM_ID);
    return CT_OK;
}

static const ct_group_ops group_ops = { .max = its_max, .broadcast = its_broadcast };

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

/* lib_of NULL: one rank. */
static job open_job_of(const ct_device_sum_ops *lib_of, int64_t bucket_bytes)
{
    ct_net_options o = { .phase = CT_TRAIN, .env = { .n_rank = 1, .seed = 5 } };
    ct_group group = { .size = (lib_of != NULL) ? 2 : 1, .ops = &group_ops };
    job j = { .n_landed = 0 };

    memset(&lib, 0, sizeof(lib));
    assert_int_equal(ct_prototxt_parse(&ct__net_parameter__descriptor, "test", text, strlen(text),
                                       NULL, &j.message),
                     CT_OK);
    assert_int_equal(ct_net_create((const Ct__NetParameter *)j.message, &o, &j.net), CT_OK);
    assert_int_equal(ct_transport_device_create(j.net, lib_of, &group, bucket_bytes, &j.device),
                     CT_OK);
    ct_transport_device_open(j.device, &j.x);
    assert_true(j.x.records);
    return j;
}

static job open_job(int64_t bucket_bytes)
{
    return open_job_of(&ops, bucket_bytes);
}

static void close_job(job *j)
{
    ct_transport_device_destroy(j->device);
    assert_int_equal(lib.n_open, 0);
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
    assert_int_equal(lib.n_open, 1);
    assert_int_equal(lib.n_rank, 2);
    assert_int_equal(lib.id[CT_DEVICE_SUM_ID - 1], 7);
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

/* A layer's numbers are no gradients: the library gets them at once. */
static void sums_of_layers(void **state)
{
    job j = open_job(0);
    double v[3] = { 1.0, -0.5, 0x1p-60 };

    (void)state;
    assert_true(ct_transport_device_sums(j.device));
    assert_int_equal(ct_transport_device_begin(j.device), CT_OK);
    assert_int_equal(ct_transport_device_sum(j.device, &lib.n_sum, v, 3), CT_OK);
    assert_true((v[0] == 2.0) && (v[1] == -1.0) && (v[2] == 0x1p-59));
    assert_true((lib.n_sum == 0) && (bytes_sent(&j) == 0));
    close_job(&j);
}

/* Without a library, all gradients land as one, and nothing is sent. */
static void one_rank(void **state)
{
    job j = open_job_of(NULL, 1);

    (void)state;
    assert_false(ct_transport_device_sums(j.device));
    for (int step = 0; step < 2; step++) {
        j.n_landed = 0;
        assert_int_equal(ct_transport_device_begin(j.device), CT_OK);
        for (int i = 0; i < count_learned(j.net); i++)
            assert_int_equal(j.x.ops->ready(j.x.ctx, i), CT_OK);
        assert_int_equal(j.x.ops->poll(j.x.ctx), CT_OK);
        assert_int_equal(j.x.ops->finish(j.x.ctx, on_landed, &j), CT_OK);
        assert_int_equal(j.n_landed, j.net->n_param);
    }
    assert_int_equal(ct_transport_device_begin(j.device), CT_OK);
    assert_int_equal(j.x.ops->replay(j.x.ctx, CT_REPLAY_GIVEN), CT_OK);
    assert_true((lib.n_open == 0) && (lib.n_sum == 0) && (bytes_sent(&j) == 0));
    close_job(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_once), cmocka_unit_test(wrong_order_is_told),
        cmocka_unit_test(replays),   cmocka_unit_test(sums_of_layers),
        cmocka_unit_test(one_rank),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
