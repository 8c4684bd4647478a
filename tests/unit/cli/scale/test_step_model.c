/* The modelled timeline against sums done by hand, and the lists that studies are asked for with.
 */
#include "tests/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/codec/codec_types.h"
#include "comm/cost/cost.h"
#include "framework/base/text.h"
#include "cli/scale/scale.h"
#include "cli/scale/step_model.h"

/* Two layers: a (first, small) and b (last, large). Backward is ready with b first. Times in ms:
 * forward a 10, b 20; backward b 30, a 40; no update. */
enum { N_B = 4000000, N_A = 1000000 };

static ct_profile *make_profile(double update_ms)
{
    ct_profile *p = calloc(1, sizeof(*p));

    snprintf(p->net, sizeof(p->net), "two");
    p->batch = 4;
    p->ranks = 1;
    p->n_param = 2;
    p->param = calloc(2, sizeof(*p->param));
    p->param[0] = (ct_profile_param){ .key = strdup("b[0]"), .count = N_B };
    p->param[1] = (ct_profile_param){ .key = strdup("a[0]"), .offset = N_B, .count = N_A };
    p->n_forward = p->n_backward = 4;
    p->forward = calloc(4, sizeof(ct_step));
    p->backward = calloc(4, sizeof(ct_step));
    p->forward[0] = (ct_step){ .kind = CT_STEP_WAIT, .param = 1 };
    p->forward[1] = (ct_step){ .kind = CT_STEP_FORWARD, .layer = 0, .seconds = 0.010 };
    p->forward[2] = (ct_step){ .kind = CT_STEP_WAIT, .param = 0 };
    p->forward[3] = (ct_step){ .kind = CT_STEP_FORWARD, .layer = 1, .seconds = 0.020 };
    p->backward[0] = (ct_step){ .kind = CT_STEP_BACKWARD, .layer = 1, .seconds = 0.030 };
    p->backward[1] = (ct_step){ .kind = CT_STEP_BEGIN, .param = 0 };
    p->backward[2] = (ct_step){ .kind = CT_STEP_BACKWARD, .layer = 0, .seconds = 0.040 };
    p->backward[3] = (ct_step){ .kind = CT_STEP_BEGIN, .param = 1 };
    p->update_ms = update_ms;
    return p;
}

/* 4 nodes of one rank, links of so many bytes/s and no latency, and a ring over them. */
static ct_topo *make_topo(double bandwidth)
{
    char text[400];
    ct_machine *m = NULL;
    ct_topo *t = NULL;

    snprintf(text, sizeof(text),
             "name: \"m\" level { name: \"node\" size: 1 latency_us: 1 bandwidth_gbs: 100 } "
             "level { name: \"machine\" size: 4 latency_us: 0.001 bandwidth_gbs: %.9g }",
             bandwidth * 1e-9);
    assert_int_equal(ct_machine_parse("m", text, strlen(text), &m), CT_OK);
    assert_int_equal(ct_topo_place(m, 4, 1, "block", &t), CT_OK);
    ct_machine_destroy(m);
    return t;
}

static ct_grad_pipe_config ring_config(int64_t bucket_bytes)
{
    return (ct_grad_pipe_config){
        .bucket_bytes = bucket_bytes, .allreduce = "ring", .overlap = true, .codec = &ct_codec_none
    };
}

static double step_ms(double bandwidth, int64_t bucket, ct_step_timeline_overlap overlap,
                      double update_ms, ct_step_model *keep)
{
    ct_profile *p = make_profile(update_ms);
    ct_topo *t = make_topo(bandwidth);
    ct_grad_pipe_config config = ring_config(bucket);
    ct_step_model m;
    double ms;

    assert_int_equal(ct_step_model_run(p, t, &config, NULL, NULL, overlap, 1, &m), CT_OK);
    ms = 1e3 * m.step_s;
    if (keep != NULL)
        *keep = m;
    else
        ct_step_model_release(&m);
    ct_topo_destroy(t);
    ct_profile_destroy(p);
    return ms;
}

/* With one bucket each: what b and a take on the link. */
static void bucket_ms(double bandwidth, double *b, double *a)
{
    ct_step_model m;

    (void)step_ms(bandwidth, 4 * N_A, CT_STEP_TIMELINE_OFF, 0, &m);
    assert_int_equal(m.n_bucket, 2);
    *b = 1e3 * m.bucket[0].seconds;
    *a = 1e3 * m.bucket[1].seconds;
    /* a ring sends 2 (P-1)/P of the buffer */
    assert_true(fabs(*b - 1.5 * 4e3 * N_B / bandwidth) < 0.01 * *b);
    assert_true(fabs(m.bytes_sent - 1.5 * 4 * (N_A + N_B)) < 1);
    ct_step_model_release(&m);
}

static void near(double is, double want)
{
    if (!(fabs(is - want) <= 1e-6 * want)) fail_msg("%.9g instead of %.9g", is, want);
}

static void test_overlap_off_adds_up(void **state)
{
    double b, a;

    (void)state;
    bucket_ms(1e9, &b, &a);
    near(step_ms(1e9, 4 * N_A, CT_STEP_TIMELINE_OFF, 0, NULL), 100 + a + b);
}

/* b leaves at 60, a at 100; b has the link for 40 before a takes it. */
static void test_overlap_backward(void **state)
{
    double b, a;

    (void)state;
    bucket_ms(4e8, &b, &a);
    assert_true(b > 40);
    near(step_ms(4e8, 4 * N_A, CT_STEP_TIMELINE_BACKWARD, 0, NULL), 100 + (b - 40) + a);
    bucket_ms(1e9, &b, &a);
    assert_true(b < 40);
    near(step_ms(1e9, 4 * N_A, CT_STEP_TIMELINE_BACKWARD, 0, NULL), 100 + a);
}

/* Under ZeRO, with updates of 8 ms, of which a rank has a quarter. bytes_p: sent by a rank. */
static double zero_ms(double bandwidth, int stage, int ahead, ct_step_timeline_overlap overlap,
                      double *bytes_p)
{
    const ct_profile_zero zero = { .stage = stage, .ahead = ahead };
    ct_profile *p = make_profile(8);
    ct_topo *t = make_topo(bandwidth);
    ct_grad_pipe_config config = ring_config(4 * N_A);
    ct_step_model m;
    double ms;

    assert_int_equal(ct_step_model_run(p, t, &config, NULL, &zero, overlap, 1, &m), CT_OK);
    ms = 1e3 * m.step_s;
    *bytes_p = m.bytes_sent;
    ct_step_model_release(&m);
    ct_topo_destroy(t);
    ct_profile_destroy(p);
    return ms;
}

/* A ring of 4 sends 3/4 of the buffer each way; an allgather goes the cheaper way, which on links
 * without latency takes as long. Nothing hides: both halves, and a quarter of the update. */
static void test_zero_off_adds_up(void **state)
{
    const double gb = 1e9, all = 4.0 * (N_A + N_B), one_way = 0.75e3 * all / gb;
    double bytes = 0, ms;

    (void)state;
    ms = zero_ms(gb, 1, 0, CT_STEP_TIMELINE_OFF, &bytes);
    assert_true(fabs(ms - (100 + 2 * one_way + 2)) < 0.01 * ms);
    assert_true(fabs(bytes - 1.5 * all) < 1);
    near(zero_ms(gb, 2, 0, CT_STEP_TIMELINE_OFF, &bytes), ms);
    assert_true(fabs(bytes - 1.5 * all) < 1);
}

/* Weights come twice, but those that forward read last: b with none ahead stays, and both do with
 * one ahead, so nothing but one way of each is sent. */
static void test_zero_3_gathers_for_forward_and_backward(void **state)
{
    const double gb = 1e9, all = 4.0 * (N_A + N_B), one_way = 0.75e3 * all / gb;
    const double a_way = 0.75e3 * 4.0 * N_A / gb;
    double bytes = 0, ms;

    (void)state;
    /* forward: a comes, 10, b comes, 20; backward: 30, a comes, 40; both sums, update */
    ms = zero_ms(gb, 3, 0, CT_STEP_TIMELINE_OFF, &bytes);
    assert_true(fabs(ms - (100 + 2 * one_way + a_way + 2)) < 0.01 * ms);
    assert_true(fabs(bytes - (1.5 * all + 0.75 * 4 * N_A)) < 1);
    /* b comes while a runs for 10 */
    ms = zero_ms(gb, 3, 1, CT_STEP_TIMELINE_OFF, &bytes);
    assert_true(fabs(ms - (100 + 2 * one_way - 10 + 2)) < 0.01 * ms);
    assert_true(fabs(bytes - 1.5 * all) < 1);
}

/* The reduce-scatter of b hides behind backward of a, its gather behind that of a, too, where the
 * link is quick enough; of a both show. */
static void test_zero_hides_behind_backward(void **state)
{
    const double fast = 4e9, a_way = 0.75e3 * 4.0 * N_A / fast;
    double bytes = 0, ms = zero_ms(fast, 1, 0, CT_STEP_TIMELINE_BACKWARD, &bytes);
    /* b is summed at 63 and told of when a is ready: its update, its gather come then */
    double b_way = 4 * a_way;

    (void)state;
    assert_true(b_way < 40);
    /* a's sum has the link from 100 on, before b's gather; updates go on meanwhile */
    assert_true(fabs(ms - (100 + 2 * a_way + b_way + 0.4)) < 0.03 * ms);
}

/* Gradients in 16 bits: half of what a reduce-scatter sends, after a pass that encodes all; then a
 * rank decodes its quarter. A pass is 6 bytes an element. Other codecs send whole gradients. */
static void test_zero_with_a_cast(void **state)
{
    const double gb = 1e9, all = 4.0 * (N_A + N_B), one_way = 0.75e3 * all / gb;
    const ct_profile_zero zero = { .stage = 1 };
    ct_grad_pipe_config config = ring_config(4 * N_A);
    ct_profile *p = make_profile(8);
    ct_topo *t = make_topo(gb);
    double memory = 2e10, ms;
    ct_step_model m;

    (void)state;
    t->machine.coding = ct_coding_estimate(memory);
    t->machine.coding.measured = true;
    config.codec = &ct_codec_bf16;
    assert_int_equal(ct_step_model_run(p, t, &config, NULL, &zero, CT_STEP_TIMELINE_OFF, 1, &m),
                     CT_OK);
    ms = 100 + 1.5 * one_way + 2 + 1.25 * 1.5e3 * all / memory;
    assert_true(fabs(1e3 * m.step_s - ms) < 0.01 * ms);
    near(m.bytes_sent, 0.75 * 1.5 * all);
    assert_int_equal(m.n_coded, 2);
    ct_step_model_release(&m);
    config.codec = &ct_codec_topk;
    assert_int_equal(ct_step_model_run(p, t, &config, NULL, &zero, CT_STEP_TIMELINE_OFF, 1, &m),
                     CT_ERR_CONFIG);
    ct_step_model_release(&m);
    ct_topo_destroy(t);
    ct_profile_destroy(p);
}

/* a has the link first when both are under way; forward of a then hides what is left of b. */
static void test_overlap_both_puts_first_what_is_read_first(void **state)
{
    double b, a, left;

    (void)state;
    bucket_ms(4e8, &b, &a);
    left = b - 40 - 10; /* of b: backward of a and forward of a hide it, a itself is waited for */
    near(step_ms(4e8, 4 * N_A, CT_STEP_TIMELINE_BOTH, 0, NULL), 100 + a + ((left > 0) ? left : 0));
    bucket_ms(4e9, &b, &a);
    near(step_ms(4e9, 4 * N_A, CT_STEP_TIMELINE_BOTH, 0, NULL), 100 + a);
}

/* One bucket for all: nothing leaves before the end of backward, updates come after it. */
static void test_one_bucket(void **state)
{
    ct_step_model m;
    double ms = step_ms(1e9, (int64_t)1 << 40, CT_STEP_TIMELINE_BOTH, 7, &m);

    (void)state;
    assert_int_equal(m.n_bucket, 1);
    near(ms, 107 + 1e3 * m.bucket[0].seconds);
    near(1e3 * m.exposed_s, 1e3 * m.bucket[0].seconds);
    ct_step_model_release(&m);
}

/* With clipping forward waits for all before it reads a: b, too, which has 20 ms left when a
 * leaves. Of the norm a's part hides behind b's sum; b's part and the update come behind that. */
static void test_weights_that_wait_for_all(void **state)
{
    ct_profile *p = make_profile(7);
    ct_grad_pipe_config config = ring_config(4 * N_A);
    ct_topo *t = make_topo(4e8);
    double b, a;
    ct_step_model m;

    (void)state;
    bucket_ms(4e8, &b, &a);
    p->norm_ms = 5; /* 4 of b, 1 of a */
    assert_int_equal(ct_step_model_run(p, t, &config, NULL, NULL, CT_STEP_TIMELINE_BOTH, 1, &m),
                     CT_OK);
    near(1e3 * m.compute_s, 100 + 7);
    ct_step_model_release(&m);
    config.after_all = true;
    assert_int_equal(ct_step_model_run(p, t, &config, NULL, NULL, CT_STEP_TIMELINE_BOTH, 1, &m),
                     CT_OK);
    near(1e3 * m.step_s, 100 + a + (b - 40) + 4 + 7);
    near(1e3 * m.compute_s, 100 + 5 + 7);
    near(1e3 * m.exposed_s, a + (b - 40) - 1);
    ct_step_model_release(&m);
    /* the sum of b hides in backward, and its part of the norm behind the sum of a */
    ct_topo_destroy(t);
    t = make_topo(4e9);
    bucket_ms(4e9, &b, &a);
    assert_true(a < 4);
    assert_int_equal(ct_step_model_run(p, t, &config, NULL, NULL, CT_STEP_TIMELINE_BACKWARD, 1, &m),
                     CT_OK);
    near(1e3 * m.step_s, 100 + 5 + 7);
    ct_step_model_release(&m);
    p->norm_ms = 0; /* not measured: a fifth of the update */
    near(1e3 * ct_profile_norm_s(p), 7.0 / 5);
    ct_topo_destroy(t);
    ct_profile_destroy(p);
}

/* What a run says of clipping, and what a study sets. */
static void test_profile_of_clipping(void **state)
{
    static const char text[] =
        "{\"profile\":1,\"net\":\"n\",\"net_hash\":\"0\",\"batch\":1,\"ranks\":1,\"threads\":1,"
        "\"images_per_s\":1,\"step_ms\":9,\"update_ms\":2,\"norm_ms\":0.25,\"after_all\":true,"
        "\"params\":[{\"key\":\"w\",\"offset\":0,\"count\":4}],"
        "\"forward\":[{\"kind\":\"forward\",\"layer\":0,\"ms\":1}],"
        "\"backward\":[{\"kind\":\"ready\",\"param\":0}]}";
    Ct__SolverParameter solver = CT__SOLVER_PARAMETER__INIT;
    ct_profile *p = NULL;

    (void)state;
    assert_int_equal(ct_profile_parse("p.json", text, strlen(text), &p), CT_OK);
    near(1e3 * ct_profile_norm_s(p), 0.25);
    assert_true(ct_profile_after_all(p, &solver));
    solver.has_clip_gradients = 1; /* below 0: never */
    assert_false(ct_profile_after_all(p, &solver));
    p->after_all = false;
    solver.clip_gradients = 1;
    assert_true(ct_profile_after_all(p, &solver));
    ct_profile_scale(p, 0, 2);
    near(1e3 * ct_profile_norm_s(p), 0.5);
    ct_profile_destroy(p);
}

static void test_rank_alone_only_computes(void **state)
{
    ct_profile *p = make_profile(5);
    ct_grad_pipe_config config = ring_config(0);
    ct_topo *t = NULL;
    ct_step_model m;

    (void)state;
    assert_int_equal(ct_topo_from_string("1x1", 1, &t), CT_OK);
    assert_int_equal(ct_step_model_run(p, t, &config, NULL, NULL, CT_STEP_TIMELINE_BOTH, 1.5, &m),
                     CT_OK);
    near(1e3 * m.step_s, 1.5 * 105);
    assert_true(m.exposed_s == 0);
    ct_step_model_release(&m);
    ct_topo_destroy(t);
    ct_profile_destroy(p);
}

static void test_slowest_of_many(void **state)
{
    ct_profile p = { .n_sample = 3 };
    double samples[] = { 100, 300, 200 };

    (void)state;
    p.sample_ms = samples;
    near(ct_step_model_mean(&p), 1);
    near(ct_step_model_slowest(&p, 1), 1);
    /* of two: 0.5 with 1/9, 1 with 3/9, 1.5 with 5/9 */
    near(ct_step_model_slowest(&p, 2), 0.5 / 9 + 3.0 / 9 + 1.5 * 5 / 9);
    near(ct_step_model_slowest(&p, 100000), 1.5);
}

/* A step's sums through the network: b and a of 16 and 4 MB over links of 1 GB/s take 24 and 6 ms
 * by a ring. The network takes 1 ms and 1 GB/s: it has both, but not what must be in order. */
static void test_in_network(void **state)
{
    ct_profile *p = make_profile(0);
    ct_topo *t = make_topo(1e9);
    ct_grad_pipe_config config = ring_config(4 * N_A);
    ct_step_model m, without;

    (void)state;
    config.allreduce = "auto";
    assert_int_equal(
        ct_step_model_run(p, t, &config, NULL, NULL, CT_STEP_TIMELINE_OFF, 1, &without), CT_OK);
    assert_string_not_equal(without.bucket[0].algorithm, "impi");
    t->machine.in_network = (ct_in_network){ .latency_s = 1e-3, .bandwidth = 1e9 };
    assert_int_equal(ct_step_model_run(p, t, &config, NULL, NULL, CT_STEP_TIMELINE_OFF, 1, &m),
                     CT_OK);
    assert_int_equal(m.n_bucket, 2);
    assert_string_equal(m.bucket[0].algorithm, "impi");
    assert_string_equal(m.bucket[1].algorithm, "impi");
    near(1e3 * m.step_s, 100 + 1 + 16 + 1 + 4);
    ct_step_model_release(&m);
    config.deterministic = true;
    assert_int_equal(ct_step_model_run(p, t, &config, NULL, NULL, CT_STEP_TIMELINE_OFF, 1, &m),
                     CT_OK);
    assert_string_equal(m.bucket[0].algorithm, without.bucket[0].algorithm);
    near(m.step_s, without.step_s);
    ct_step_model_release(&m);
    ct_step_model_release(&without);
    ct_topo_destroy(t);
    ct_profile_destroy(p);
}

/* The last of 4 nodes has a link of half the speed: a ring goes as fast as that one. On half the
 * speed of computing, a step takes twice as long beside it, which is the caller's factor. */
static void test_unlike_nodes(void **state)
{
    static const char text[] =
        "name: \"m\" level { name: \"node\" size: 1 latency_us: 1 bandwidth_gbs: 100 } "
        "level { name: \"machine\" size: 4 latency_us: 0.001 bandwidth_gbs: 2 } "
        "node_class { name: \"a\" nodes: \"0-2\" } "
        "node_class { name: \"b\" nodes: \"3\" speed: 0.5 inject_gbs: 1 }";
    ct_profile *p = make_profile(0);
    ct_grad_pipe_config config = ring_config(4 * N_A);
    ct_machine *m = NULL;
    ct_topo *t = NULL;
    ct_step_model r;
    double b, a;

    (void)state;
    bucket_ms(1e9, &b, &a);
    assert_int_equal(ct_machine_parse("m", text, strlen(text), &m), CT_OK);
    assert_int_equal(ct_topo_place(m, 4, 1, "block", &t), CT_OK);
    assert_true(ct_topo_speed(t, ct_topo_slowest_node(t)) == 0.5);
    assert_int_equal(
        ct_step_model_run(p, t, &config, NULL, NULL, CT_STEP_TIMELINE_OFF, 1 / 0.5, &r), CT_OK);
    near(1e3 * r.step_s, 2 * 100 + a + b);
    ct_step_model_release(&r);
    ct_topo_destroy(t);
    ct_machine_destroy(m);
    ct_profile_destroy(p);
}

static void test_unknown_algorithm(void **state)
{
    ct_profile *p = make_profile(0);
    ct_grad_pipe_config config = ring_config(0);
    ct_topo *t = make_topo(1e9);
    ct_step_model m;

    (void)state;
    config.allreduce = "nonsense";
    assert_int_equal(ct_step_model_run(p, t, &config, NULL, NULL, CT_STEP_TIMELINE_BOTH, 1, &m),
                     CT_ERR_CONFIG);
    ct_step_model_release(&m);
    ct_topo_destroy(t);
    ct_profile_destroy(p);
}

static void test_lists_of_numbers(void **state)
{
    static const char *const bad[] = {
        "",      "1,",    "0",       "-1",        "2,1",     "1,1",          "a",
        "1,...", "...,4", "1,...,4", "2,3,...,9", "1,2,...", "1,2,...,...,8"
    };
    int64_t v[CT_SCALE_MAX_POINT];
    int n = 0;

    (void)state;
    assert_int_equal(ct_scale_numbers("x", "1,2,...,1024", v, &n), CT_OK);
    assert_int_equal(n, 11);
    assert_int_equal(v[10], 1024);
    assert_int_equal(ct_scale_numbers("x", "1,3,…,100,4096", v, &n), CT_OK);
    assert_int_equal(n, 7); /* 1 3 9 27 81 100 4096 */
    assert_int_equal(v[4], 81);
    assert_int_equal(v[5], 100);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(ct_scale_numbers("x", bad[i], v, &n), CT_ERR_CONFIG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_overlap_off_adds_up),
        cmocka_unit_test(test_overlap_backward),
        cmocka_unit_test(test_zero_off_adds_up),
        cmocka_unit_test(test_zero_with_a_cast),
        cmocka_unit_test(test_zero_3_gathers_for_forward_and_backward),
        cmocka_unit_test(test_zero_hides_behind_backward),
        cmocka_unit_test(test_overlap_both_puts_first_what_is_read_first),
        cmocka_unit_test(test_one_bucket),
        cmocka_unit_test(test_weights_that_wait_for_all),
        cmocka_unit_test(test_profile_of_clipping),
        cmocka_unit_test(test_rank_alone_only_computes),
        cmocka_unit_test(test_slowest_of_many),
        cmocka_unit_test(test_in_network),
        cmocka_unit_test(test_unlike_nodes),
        cmocka_unit_test(test_unknown_algorithm),
        cmocka_unit_test(test_lists_of_numbers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
