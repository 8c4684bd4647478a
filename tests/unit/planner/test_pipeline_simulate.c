/* The event simulation of a pipeline's step against closed forms, steps worked out by hand, bounds,
 * and itself with longer times. */
#include "tests/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "planner/simulate.h"
#include "tests/log_capture.h"

enum { MOST_STAGE = 8, MOST_WORKER = 24, MOST_LINK = 64 };

/* A pipeline of `replicas` chains, replica j of a stage sends to replica j of the next. */
typedef struct pipe {
    int n_stage, replicas, n_micro;
    ct_pipeline_list *list;
    ct_pipeline_worker worker[MOST_WORKER];
    ct_pipeline_message message[MOST_WORKER];
    ct_pipeline_load load[2 * MOST_WORKER];
    double link[MOST_LINK];
    ct_pipeline_step step;
} pipe;

static void make_pipe(pipe *p, int n_stage, int replicas, int n_micro)
{
    memset(p, 0, sizeof(*p));
    p->n_stage = n_stage;
    p->replicas = replicas;
    p->n_micro = n_micro;
    assert_int_equal(ct_pipeline_lists_1f1b(n_stage, n_micro, &p->list), CT_OK);
    for (int s = 0; s < n_stage; ++s) {
        for (int j = 0; j < replicas; ++j) {
            int w = s * replicas + j;

            p->worker[w] = (ct_pipeline_worker){ &p->list[s], 1, 2 };
            p->message[w] = (ct_pipeline_message){ .from = w, .to = w + replicas };
        }
    }
    p->step = (ct_pipeline_step){ .n_worker = n_stage * replicas,
                                  .n_message = (n_stage - 1) * replicas,
                                  .worker = p->worker,
                                  .message = p->message,
                                  .link = p->link,
                                  .n_micro = n_micro };
}

static void drop_pipe(pipe *p)
{
    ct_pipeline_lists_destroy(p->list, p->n_stage);
}

/* Every message over a link of its own in each direction, of so many bytes/s. */
static void give_links(pipe *p, double bytes, double bandwidth)
{
    for (int i = 0; i < p->step.n_message; ++i) {
        for (int k = 0; k < 2; ++k) {
            ct_pipeline_flow flow = { .bytes = bytes, .n_load = 1, .load = &p->load[2 * i + k] };

            p->load[2 * i + k] = (ct_pipeline_load){ 2 * i + k, 1 };
            p->link[2 * i + k] = bandwidth;
            *(k ? &p->message[i].backward : &p->message[i].forward) = flow;
        }
    }
    p->step.n_link = 2 * p->step.n_message;
}

static double step_of(const pipe *p)
{
    ct_pipeline_times times;

    assert_int_equal(ct_pipeline_simulate(&p->step, &times, NULL), CT_OK);
    return times.step_s;
}

/* Equal stages without links: (m + S - 1) (f + b). Times are whole numbers, so sums are exact. */
static void test_equal_stages(void **state)
{
    (void)state;
    for (int n_stage = 1; n_stage <= MOST_STAGE; ++n_stage) {
        for (int n_micro = 1; n_micro <= 16; ++n_micro) {
            pipe p;

            make_pipe(&p, n_stage, 1, n_micro);
            assert_true(step_of(&p) == 3.0 * (n_micro + n_stage - 1));
            drop_pipe(&p);
        }
    }
}

/* One stage of unequal replicas: the slowest one's work. */
static void test_one_stage(void **state)
{
    pipe p;
    ct_pipeline_times times;
    double end_s[3];

    (void)state;
    make_pipe(&p, 1, 3, 5);
    p.worker[1].forward_s = 4;
    p.worker[2].backward_s = 0.5;
    assert_int_equal(ct_pipeline_simulate(&p.step, &times, end_s), CT_OK);
    assert_true(times.step_s == 30);
    assert_true(times.compute_s == 30);
    assert_true((end_s[0] == 15) && (end_s[1] == 30) && (end_s[2] == 7.5));
    drop_pipe(&p);
}

/* Two stages, m = 3, f = 1, b = 2, a latency of 4 each way.
 * Stage 0: F0 0-1, F1 1-2.               Stage 1: F0 5-6, B0 6-8, F1 8-9, B1 9-11.
 * Stage 0: B0 12-14, F2 14-15, B1 15-17. Stage 1: F2 19-20, B2 20-22.
 * Stage 0: B2 26-28. */
static void test_latency_by_hand(void **state)
{
    pipe p;

    (void)state;
    make_pipe(&p, 2, 1, 3);
    p.message[0].forward.latency_s = p.message[0].backward.latency_s = 4;
    assert_true(step_of(&p) == 28);
    drop_pipe(&p);
}

/* One micro-batch over S stages: nothing overlaps, so the step is the sum of everything. */
static void test_one_micro_batch(void **state)
{
    pipe p;

    (void)state;
    make_pipe(&p, 5, 1, 1);
    give_links(&p, 8, 2);
    assert_true(step_of(&p) == 5 * 3 + 2 * 4 * 4);
    p.step.sends_block = true;
    assert_true(step_of(&p) == 5 * 3 + 2 * 4 * 4);
    drop_pipe(&p);
}

/* Sends that block, two stages, messages of 1 second: stage 0 F0 0-1, sends till 2, F1 2-3, sends
 * till 4; stage 1 F0 2-3, B0 3-5, sends till 6, F1 6-7, B1 7-9, sends till 10; stage 0 B0 6-8, B1
 * 10-12. */
static void test_blocking_by_hand(void **state)
{
    pipe p;

    (void)state;
    make_pipe(&p, 2, 1, 2);
    give_links(&p, 3, 3);
    p.step.sends_block = true;
    assert_true(step_of(&p) == 12);
    p.step.sends_block = false; /* stage 1: F1 5-6, B1 6-8; stage 0: B0 6-8, B1 9-11 */
    assert_true(step_of(&p) == 11);
    drop_pipe(&p);
}

/* Two replicas send at once over one card of 2 bytes/s: each has half, so 8 bytes take 8 s. */
static void test_shared_card(void **state)
{
    pipe p;
    ct_pipeline_load card = { 0, 1 };

    (void)state;
    make_pipe(&p, 2, 2, 1);
    p.link[0] = 2;
    p.step.n_link = 1;
    for (int i = 0; i < 2; ++i)
        p.message[i].forward = (ct_pipeline_flow){ .bytes = 8, .n_load = 1, .load = &card };
    assert_true(step_of(&p) == 1 + 8 + 3 + 2);
    /* the second begins at 3: the first has sent 4 by then, its other 4 take 4 s; the second has 4
       left at 7 and the card to itself: 9. Its own backward takes longest: 9 + 3 + 2. */
    p.worker[1].forward_s = 3;
    assert_true(step_of(&p) == 9 + 3 + 2);
    /* two streams of one flow are as two flows */
    card.streams = 2;
    p.worker[1].forward_s = 1;
    assert_true(step_of(&p) == 1 + 16 + 3 + 2);
    /* the pair's own limit counts where it is lower: 8 bytes at 0.25 */
    p.message[0].forward.bandwidth = 0.25;
    assert_true(step_of(&p) == 1 + 32 + 3 + 2);
    drop_pipe(&p);
}

/* One stage, two replicas, m = 2: the last backward is 4-6. A sum of 6 bytes at 2 bytes/s behind it
 * ends at 9. In two buckets of a third and two thirds, the first there in the middle of backward:
 * 5-6 and 6-8. With replica 1 slower by 2 a micro-batch in backward its last one is 7-11, half of
 * it 9: 9-10, 11-13. */
static void test_sums_by_hand(void **state)
{
    static const ct_pipeline_bucket whole = { 1, 1 };
    static const ct_pipeline_bucket parts[] = { { 0.5, 1 / 3.0 }, { 1, 2 / 3.0 } };
    static const int member[] = { 0, 1 };
    ct_pipeline_load ring[] = { { 0, 1 }, { 1, 1 } };
    ct_pipeline_sum sum = { .n_member = 2, .member = member, .n_bucket = 1, .bucket = &whole };
    pipe p;

    (void)state;
    make_pipe(&p, 1, 2, 2);
    p.link[0] = 2;
    p.link[1] = 3; /* the slower edge counts */
    sum.flow = (ct_pipeline_flow){ .bytes = 6, .n_load = 2, .load = ring };
    p.step.n_link = 2;
    p.step.n_sum = 1;
    p.step.sum = &sum;
    assert_true(fabs(step_of(&p) - 9) < 1e-12);
    sum.n_bucket = 2;
    sum.bucket = parts;
    assert_true(fabs(step_of(&p) - 8) < 1e-12);
    p.worker[1].backward_s = 4;
    assert_true(fabs(step_of(&p) - 12) < 1e-12);
    drop_pipe(&p);
}

static double between(uint32_t *random, double low, double high)
{
    *random = *random * 1664525u + 1013904223u;
    return low + (high - low) * (*random >> 8) / 16777216.0;
}

static void make_random(pipe *p, uint32_t *random)
{
    int n_stage = 1 + (int)between(random, 0, 7.99), n_micro = 1 + (int)between(random, 0, 11.99);

    make_pipe(p, n_stage, 1 + (int)between(random, 0, 2.99), n_micro);
    give_links(p, 1, 1);
    for (int w = 0; w < p->step.n_worker; ++w) {
        p->worker[w].forward_s = between(random, 0.1, 2);
        p->worker[w].backward_s = between(random, 0.1, 3);
    }
    for (int i = 0; i < p->step.n_message; ++i) {
        p->message[i].forward.bytes = between(random, 0, 2);
        p->message[i].backward.bytes = between(random, 0, 2);
        p->message[i].forward.latency_s = between(random, 0, 0.1);
    }
    p->step.sends_block = (between(random, 0, 1) < 0.5);
}

/* No step is shorter than a stage's work behind the shortest way to it and back, nor than what a
 * link carries. */
static double bound_of(const pipe *p)
{
    double most = 0;

    for (int j = 0; j < p->replicas; ++j) {
        double way = 0;

        for (int s = 0; s < p->n_stage; ++s) {
            int w = s * p->replicas + j;
            double own = p->worker[w].forward_s + p->worker[w].backward_s;

            most = fmax(most, way + p->n_micro * own);
            if (s + 1 == p->n_stage) break;
            most = fmax(most, p->n_micro * p->message[w].forward.bytes);
            most = fmax(most, p->n_micro * p->message[w].backward.bytes);
            way += own + p->message[w].forward.bytes + p->message[w].backward.bytes +
                   p->message[w].forward.latency_s;
        }
    }
    return most;
}

static void test_lower_bound(void **state)
{
    uint32_t random = 7;

    (void)state;
    for (int round = 0; round < 500; ++round) {
        double bound, step;
        pipe p;

        make_random(&p, &random);
        bound = bound_of(&p);
        step = step_of(&p);
        assert_true(step >= bound * (1 - 1e-12));
        assert_true(step == step_of(&p)); /* the same bits again */
        drop_pipe(&p);
    }
}

/* Where each message has links of its own and none waits for another of its kind, longer times make
 * no step shorter. */
static void test_monotonic(void **state)
{
    uint32_t random = 3;

    (void)state;
    for (int round = 0; round < 300; ++round) {
        double step;
        int w;
        pipe p;

        make_random(&p, &random);
        for (int i = 0; i < p.step.n_message; ++i) { /* latencies alone share nothing */
            p.message[i].forward.latency_s += p.message[i].forward.bytes;
            p.message[i].backward.latency_s += p.message[i].backward.bytes;
            p.message[i].forward.bytes = p.message[i].backward.bytes = 0;
        }
        step = step_of(&p);
        w = (int)between(&random, 0, p.step.n_worker - 0.01);
        if (round % 2)
            p.worker[w].forward_s += between(&random, 0, 2);
        else
            p.worker[w].backward_s += between(&random, 0, 2);
        assert_true(step_of(&p) >= step * (1 - 1e-12));
        step = step_of(&p);
        if (p.step.n_message > 0) {
            w = (int)between(&random, 0, p.step.n_message - 0.01);
            p.message[w].backward.latency_s += 1;
            assert_true(step_of(&p) >= step * (1 - 1e-12));
        }
        drop_pipe(&p);
    }
}

static void test_circle(void **state)
{
    ct_pipeline_item held;
    ct_pipeline_times times = { -1, -1 };
    ct_status status;
    pipe p;

    (void)state;
    make_pipe(&p, 2, 1, 2);
    for (int s = 0; s < 2; ++s) { /* F0 B0 F1 B1 and F0 F1 B0 B1 wait for each other */
        held = p.list[s].item[1];
        p.list[s].item[1] = p.list[s].item[2];
        p.list[s].item[2] = held;
    }
    log_capture_start(NULL);
    status = ct_pipeline_simulate(&p.step, &times, NULL);
    log_capture_stop();
    assert_int_equal(status, CT_ERR_CONFIG);
    assert_true(times.step_s == -1);
    drop_pipe(&p);
}

static void test_endless_message(void **state)
{
    ct_pipeline_times times = { -1, -1 };
    ct_status status;
    pipe p;

    (void)state;
    make_pipe(&p, 2, 1, 2);
    give_links(&p, INFINITY, 1);
    log_capture_start(NULL);
    status = ct_pipeline_simulate(&p.step, &times, NULL);
    log_capture_stop();
    assert_int_equal(status, CT_ERR_CONFIG);
    assert_true(times.step_s == -1);
    drop_pipe(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equal_stages),     cmocka_unit_test(test_one_stage),
        cmocka_unit_test(test_latency_by_hand),  cmocka_unit_test(test_one_micro_batch),
        cmocka_unit_test(test_blocking_by_hand), cmocka_unit_test(test_shared_card),
        cmocka_unit_test(test_sums_by_hand),     cmocka_unit_test(test_lower_bound),
        cmocka_unit_test(test_monotonic),        cmocka_unit_test(test_circle),
        cmocka_unit_test(test_endless_message),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
