/* The next token: the largest score, what is drawn with which frequency, what top_p leaves out, and
 * probabilities. */
#include "tests/test.h"
#include "tests/log_capture.h"

#include "framework/text/sampler.h"

#include <math.h>
#include <string.h>

static ct_tokenizer *bytes;
static ct_sampler *sampler;
static float score[256];

static int open_sampler(void **state)
{
    (void)state;
    assert_int_equal(ct_tokenizer_open("bytes", NULL, &bytes), CT_OK);
    assert_int_equal(ct_sampler_create(bytes, &sampler), CT_OK);
    return 0;
}

static int close_sampler(void **state)
{
    (void)state;
    ct_sampler_destroy(sampler);
    ct_tokenizer_close(bytes);
    return 0;
}

/* All others are far below. */
static void set_scores(int n, const int *id, const double *probability)
{
    for (int i = 0; i < 256; i++) score[i] = -1000;
    for (int k = 0; k < n; k++) score[id[k]] = (float)log(probability[k]);
}

static int32_t choose(double temperature, double top_p, uint64_t seed, int64_t number)
{
    const ct_sampling how = { temperature, top_p, seed };
    int32_t id = -1;

    assert_int_equal(ct_sampler_choose(sampler, &how, number, score, &id), CT_OK);
    return id;
}

static void test_best(void **state)
{
    (void)state;
    for (int i = 0; i < 256; i++) score[i] = (float)((i * 37) % 100);
    score[200] = score[50] = 500;
    assert_int_equal(choose(0, 1, 1, 0), 50);
    score[200] = 501;
    assert_int_equal(choose(0, 1, 1, 0), 200);
    assert_int_equal(choose(1e-3, 1, 1, 0), 200);
}

/* The count of each of N draws lies within 5 standard deviations of N p. */
static void test_frequencies(void **state)
{
    enum { N = 20000 };
    static const int id[] = { 7, 90, 255, 3 };
    static const double p[] = { 0.4, 0.3, 0.2, 0.1 };
    const struct {
        double temperature, top_p, expected[4];
    } row[] = {
        { 1, 1, { 0.4, 0.3, 0.2, 0.1 } },
        { 1, 0.65, { 4 / 7.0, 3 / 7.0, 0, 0 } }, /* 0.4 + 0.3 are the first with 0.65 */
        { 1, 0.4 - 1e-6, { 1, 0, 0, 0 } },
        { 0.5, 1, { 16 / 30.0, 9 / 30.0, 4 / 30.0, 1 / 30.0 } }, /* squares */
    };

    (void)state;
    set_scores(4, id, p);
    for (size_t r = 0; r < sizeof(row) / sizeof(row[0]); r++) {
        int count[256] = { 0 };

        for (int i = 0; i < N; i++) count[choose(row[r].temperature, row[r].top_p, 11, i)]++;
        for (int k = 0; k < 4; k++) {
            double e = row[r].expected[k];

            if (!(fabs(count[id[k]] - N * e) <= 5 * sqrt(N * e * (1 - e)) + 1e-9))
                fail_msg("row %zu: %d of %d, expected %g", r, count[id[k]], N, N * e);
        }
    }
}

static void test_seeds(void **state)
{
    int same = 0;

    (void)state;
    for (int i = 0; i < 256; i++) score[i] = 0;
    for (int i = 0; i < 100; i++) {
        assert_int_equal(choose(1, 1, 5, i), choose(1, 1, 5, i));
        same += (choose(1, 1, 5, i) == choose(1, 1, 6, i));
    }
    assert_true(same < 10); /* of 256 tokens */
}

static void test_logprobs(void **state)
{
    static const int id[] = { 7, 90, 255, 3 };
    static const double p[] = { 0.4, 0.3, 0.2, 0.1 };
    ct_scored_id best[3];
    int n;

    (void)state;
    set_scores(4, id, p);
    assert_true(fabs(ct_sampler_logprobs(sampler, score, 255, 3, best, &n) - log(0.2)) < 1e-6);
    assert_int_equal(n, 3);
    for (int k = 0; k < 3; k++) {
        assert_int_equal(best[k].id, id[k]);
        assert_true(fabs(best[k].logprob - log(p[k])) < 1e-6);
    }
    assert_true(fabs(ct_sampler_logprobs(sampler, score, 3, 0, NULL, &n) - log(0.1)) < 1e-6);
    assert_int_equal(n, 0);
}

static void test_no_numbers(void **state)
{
    const ct_sampling how = { 1, 1, 1 };
    ct_scored_id best[4];
    int32_t id;
    int n;

    (void)state;
    for (int i = 0; i < 256; i++) score[i] = NAN;
    assert_int_equal(ct_sampler_choose(sampler, &how, 0, score, &id), CT_ERR_DATA);
    score[9] = INFINITY;
    assert_int_equal(ct_sampler_choose(sampler, &how, 0, score, &id), CT_ERR_DATA);
    score[9] = 1;
    assert_int_equal(ct_sampler_choose(sampler, &how, 0, score, &id), CT_OK);
    assert_int_equal(id, 9);
    score[20] = 0;
    score[5] = -INFINITY;
    assert_true(fabs(ct_sampler_logprobs(sampler, score, 9, 4, best, &n) + log1p(exp(-1))) < 1e-6);
    assert_int_equal(n, 2); /* no others have a score */
    assert_int_equal(best[0].id, 9);
    assert_int_equal(best[1].id, 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_best),       cmocka_unit_test(test_frequencies),
        cmocka_unit_test(test_seeds),      cmocka_unit_test(test_logprobs),
        cmocka_unit_test(test_no_numbers),
    };

    return cmocka_run_group_tests(tests, open_sampler, close_sampler);
}
