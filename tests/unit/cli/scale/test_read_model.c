/* The input term of modelled steps: published figures, bounds, and what is refused. */
#include "tests/test.h"

#include <string.h>

#include "cli/scale/step_model.h"
#include "tests/layer_harness.h"

static ct_read_model parse(const char *text)
{
    ct_read_model m = { 0 };

    assert_int_equal(ct_read_model_parse("read", text, &m), CT_OK);
    return m;
}

/* swCaffe's case: 256 images are 192 MB; 32 arrays. */
static void test_striping(void **state)
{
    ct_read_model one = parse("bytes=750000,file=4"), many = parse("bytes=750000,file=4,files=32");

    (void)state;
    for (int64_t nodes = 1; nodes <= 1024; nodes *= 2) {
        ct_read_times a = ct_read_model_run(&one, nodes, 256),
                      b = ct_read_model_run(&many, nodes, 256);

        /* 192 MB at 4 GB/s are 48 ms, once a node that meets there */
        assert_true((a.read_s > 0.048 * (double)nodes * (1 - 1e-12)) &&
                    (a.read_s < 0.048 * (double)nodes * (1 + 1e-12)));
        assert_int_equal(a.readers, nodes);
        assert_true((b.readers <= nodes) && (b.readers <= 2 * ((nodes + 31) / 32)));
        assert_true(b.read_s <= a.read_s);
        if (nodes >= 32) assert_true(b.read_s * 32 < a.read_s * (1 + 1e-12));
        assert_string_equal(b.bound, "file");
    }
}

static void test_bounds(void **state)
{
    ct_read_model m = parse("bytes=1e6,node=1,file=0.5,files=4,total=1");
    ct_read_times t = ct_read_model_run(&m, 1, 100);

    (void)state;
    assert_true((t.node_s == 0.1) && (t.file_s == 0.2) && (t.total_s == 0.1));
    assert_string_equal(t.bound, "file");
    t = ct_read_model_run(&m, 4, 100);
    assert_string_equal(t.bound, "system"); /* 0.4 s against 0.2 */
    m = parse("bytes=1e6,node=0.1,file=5");
    assert_string_equal(ct_read_model_run(&m, 2, 100).bound, "node");
    /* changes keep the rest */
    assert_int_equal(ct_read_model_parse("ablate", "files=16", &m), CT_OK);
    assert_true((m.files == 16) && (m.sample_bytes == 1e6) && (m.node == 0.1e9));
}

static void test_refused(void **state)
{
    static const char *const bad[] = { "",
                                       "bytes",
                                       "bytes=",
                                       "bytes=x",
                                       "bytes=1",
                                       "node=1",
                                       "bytes=0,node=1",
                                       "bytes=-5,node=1",
                                       "bytes=1,node=inf",
                                       "bytes=1,node=1,",
                                       "bytes=1,node=1 ,file=2",
                                       "bytes=1,disk=1",
                                       "bytes=1,node=1,files=1.5",
                                       "bytes=1,node=1,files=1e9" };

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        ct_read_model m = { 0 };
        const char *said;

        test_log_start();
        assert_int_equal(ct_read_model_parse("read", bad[i], &m), CT_ERR_CONFIG);
        said = test_log_stop();
        if (strstr(said, "--read=") == NULL) fail_msg("%s: %s", bad[i], said);
        assert_true(m.sample_bytes == 0); /* written only on success */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_striping),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
