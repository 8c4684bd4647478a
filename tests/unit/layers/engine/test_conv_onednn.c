/* oneDNN's convolutions as an engine, where it is built in (make ONEDNN=1): generated odd shapes,
 * in plain order and in blocks, against the definition; never chosen by the static rules. Without
 * it there is no such engine: no figure of ours counts with it. */
#include "tests/test.h"
#include "tests/conv_case.h"

#include "framework/base/simd.h"

#include <stdlib.h>

#ifdef CT_HAVE_ONEDNN
static bool compare(ct_conv_desc d, conv_direction dir)
{
    return conv_case_compare(d, dir, "onednn", conv_case_sum_limits);
}

/* Whether blocks of ours are blocks of its. */
static bool has_blocks(const ct_conv_desc *d)
{
    int64_t b = ct_simd_block();
    bool depthwise = (d->c == d->group) && (d->m == d->group);

    return ((b == 8) || (b == 16)) && ((d->group == 1) || depthwise ||
                                       ((d->c / d->group % b == 0) && (d->m / d->group % b == 0)));
}

static void test_odd_shapes(void **state)
{
    conv_draw r = { 4000 };
    int n_block = 0;

    (void)state;
    for (int i = 0; i < 60; i++) {
        ct_conv_desc d = conv_case_draw(&r, ct_simd_block(), 8, false), plain = d;

        if (i % 4 == 0) d.group = d.m = d.c = (d.c == 1) ? 2 : d.c; /* depthwise */
        d.winograd = 0;
        assert_true(conv_case_complete(&d));
        plain = conv_case_plain(&d);
        for (conv_direction dir = CONV_FORWARD; dir < N_CONV_DIRECTION; dir++) {
            assert_true(compare(plain, dir));
            if (has_blocks(&d)) assert_true(compare(d, dir));
        }
        n_block += has_blocks(&d);
    }
    assert_true((n_block > 20) || (ct_simd_block() < 8));
}

/* A rank without samples: its gradient is that of the steps before. */
static void test_no_samples(void **state)
{
    ct_conv_desc d = CONV_SHAPE(1, 1, 3, 5, 5, 4, 3, 3, 1, 1, 0, 0, 1, 1);
    ct_exec ex = { .dev = ct_device_cpu() };
    float dw[108], unused = 0.0f;
    ct_conv_args a = { .dweight = dw, .dy = &unused, .x = &unused, .beta = 1.0f };
    const ct_conv_impl *impl;

    (void)state;
    assert_true(conv_case_complete(&d));
    d.n = 0;
    impl = ct_conv_find(conv_case_table_of(CONV_WEIGHT), &d, "onednn");
    assert_non_null(impl);
    for (int i = 0; i < 108; i++) dw[i] = (float)i;
    assert_int_equal(impl->run(&d, &ex, &a), CT_OK);
    for (int i = 0; i < 108; i++) assert_true(dw[i] == (float)i);
    a.beta = 0.0f;
    assert_int_equal(impl->run(&d, &ex, &a), CT_OK);
    for (int i = 0; i < 108; i++) assert_true(dw[i] == 0.0f);
}

#endif

/* By name, or not at all; "auto" is what it is without it. */
static void test_asked_for(void **state)
{
    ct_conv_desc d = CONV_SHAPE(2, 1, 32, 9, 9, 48, 3, 3, 1, 1, 1, 1, 1, 1);

    (void)state;
    assert_true(conv_case_complete(&d));
    for (int block = 0; block <= ct_simd_block(); block += ct_simd_block()) {
        d.x_block = d.y_block = block;
        for (conv_direction dir = CONV_FORWARD; dir < N_CONV_DIRECTION; dir++) {
            const ct_conv_impl *by_name = ct_conv_find(conv_case_table_of(dir), &d, "onednn");
            const ct_conv_impl *by_rule = ct_conv_find(conv_case_table_of(dir), &d, "auto");

            assert_string_not_equal(by_rule->name, "onednn");
#ifdef CT_HAVE_ONEDNN
            assert_true((by_name != NULL) || ((block != 0) && (block < 8)));
#else
            assert_null(by_name);
#endif
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_asked_for),
#ifdef CT_HAVE_ONEDNN
        cmocka_unit_test(test_odd_shapes),
        cmocka_unit_test(test_no_samples),
#endif
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
