/* Where updates of states in host memory are made: seconds by hand, and what is measured. */
#include "tests/test.h"

#include <math.h>

#include "runtime/update_place.h"

static void near(double got, double want)
{
    assert_true(fabs(got - want) <= 1e-12 * want);
}

static void test_seconds(void **state)
{
    const ct_host_link fast_host = { 16e9, 1e15 }, fast_link = { 1e15, 100e9 };

    (void)state;
    /* the link alone: a state each way, or a gradient down and a weight up */
    near(ct_update_on_device_s(&fast_host, 2), 8 / 16e9);
    near(ct_update_on_host_s(&fast_host, 2), 4 / 16e9);
    /* host memory alone: a state is read, written and copied twice; on the host 28 + 8 a state */
    near(ct_update_on_device_s(&fast_link, 2), 48 / 100e9);
    near(ct_update_on_host_s(&fast_link, 2), 44 / 100e9);
    /* what is assumed: Adam on the host, SGD with momentum on the device */
    assert_true(ct_update_on_host_s(&ct_host_link_assumed, 2) <
                ct_update_on_device_s(&ct_host_link_assumed, 2));
    assert_true(ct_update_on_host_s(&ct_host_link_assumed, 1) >
                ct_update_on_device_s(&ct_host_link_assumed, 1));
}

static void test_measured(void **state)
{
    ct_host_link l = { 0, 0 };
    const ct_device *dev;

    (void)state;
    if (ct_device_count("cuda") == 0) skip();
    assert_int_equal(ct_device_open("cuda", 0, &dev), CT_OK);
    assert_int_equal(ct_host_link_measure(dev, &l), CT_OK);
    assert_true(isfinite(l.link) && (l.link > 0) && isfinite(l.host) && (l.host > 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_seconds),
                                        cmocka_unit_test(test_measured) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
