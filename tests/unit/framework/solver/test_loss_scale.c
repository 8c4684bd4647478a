/* The scale of a loss over steps whose gradients are finite or not. */
#include "tests/test.h"
#include "tests/solver_harness.h"

#include "framework/solver/train_step.h"

static ct_loss_scale open_scale(const char *text)
{
    Ct__SolverParameter *p = test_solver_parse(text);
    ct_loss_scale s = ct_loss_scale_open(p);

    protobuf_c_message_free_unpacked((ProtobufCMessage *)p, NULL);
    return s;
}

static void others_have_none(void **state)
{
    ct_loss_scale s = open_scale("precision: BF16 loss_scale: 1024");

    (void)state;
    assert_true(s.scale == 1.0f);
    assert_true(ct_loss_scale_step(&s, 0, false)); /* f32 goes on with whatever it has */
    assert_true(s.scale == 1.0f);
}

static void halves_and_doubles(void **state)
{
    ct_loss_scale s = open_scale("precision: FP16 loss_scale: 1024 loss_scale_window: 3");
    /* what comes, and the scale after it: a bad step begins the count anew */
    static const struct {
        bool finite;
        float after;
    } step[] = { { true, 1024 }, { true, 1024 },  { true, 2048 }, { true, 2048 },
                 { true, 2048 }, { false, 1024 }, { true, 1024 }, { true, 1024 },
                 { true, 2048 }, { false, 1024 }, { false, 512 } };

    (void)state;
    test_log_all_start();
    for (size_t i = 0; i < sizeof(step) / sizeof(step[0]); i++) {
        assert_int_equal(ct_loss_scale_step(&s, (int64_t)i, step[i].finite), step[i].finite);
        assert_true(s.scale == step[i].after);
    }
    test_log_holds("iteration 5: gradients are not finite, no weight changes; loss scale 1024");
    test_log_all_stop();
}

static void has_ends(void **state)
{
    ct_loss_scale s = open_scale("precision: FP16 loss_scale_window: 1"), fixed;

    (void)state;
    assert_true(s.scale == 65536.0f);
    for (int i = 0; i < 100; i++) assert_true(ct_loss_scale_step(&s, i, true));
    assert_true(s.scale == 0x1p24f);
    test_log_all_start();
    for (int i = 0; i < 100; i++) assert_false(ct_loss_scale_step(&s, i, false));
    test_log_all_stop();
    assert_true(s.scale == 0x1p-14f);
    fixed = open_scale("precision: FP16 loss_scale: 8 loss_scale_window: 0");
    for (int i = 0; i < 100; i++) assert_true(ct_loss_scale_step(&fixed, i, true));
    assert_true(fixed.scale == 8.0f);
}

static ct_status check(const char *fields)
{
    char text[512];
    Ct__SolverParameter *p;
    ct_status status;

    snprintf(text, sizeof(text), "base_lr: 1 lr_policy: 'fixed' max_iter: 1 %s", fields);
    p = test_solver_parse(text);
    status = ct_solver_check(p, NULL);
    protobuf_c_message_free_unpacked((ProtobufCMessage *)p, NULL);
    return status;
}

static void wrong_fields_are_refused(void **state)
{
    (void)state;
    assert_int_equal(check("loss_scale: 0.25 loss_scale_window: 0"), CT_OK);
    test_log_all_start();
    assert_int_equal(check("loss_scale: 1000"), CT_ERR_CONFIG);
    test_log_holds("loss_scale is 1000, needs a power of two");
    assert_int_equal(check("loss_scale: 0"), CT_ERR_CONFIG);
    assert_int_equal(check("loss_scale_window: -1"), CT_ERR_CONFIG);
    test_log_holds("loss_scale_window is -1, needs at least 0");
    assert_int_equal(check("precision: FP16 compression { type: TOPK }"), CT_ERR_CONFIG);
    test_log_holds("precision FP16 and compression do not go together");
    test_log_all_stop();
}

/* The CPU has neither. */
static void the_cpu_refuses(void **state)
{
    static const char *const name[] = { "FP16", "TF32" };

    (void)state;
    for (int k = 0; k < 2; k++) {
        char text[1024], says[256];
        test_solver t;

        snprintf(text, sizeof(text),
                 "base_lr: 1 lr_policy: 'fixed' max_iter: 1 solver_mode: CPU precision: %s "
                 "net_param { layer { name: 'd' type: 'DummyData' top: 'x' dummy_data_param { "
                 "shape { dim: 4 dim: 1 } } } }",
                 name[k]);
        snprintf(says, sizeof(says), "precision %s is for GPUs, and this run is on the CPU",
                 name[k]);
        test_log_all_start();
        assert_int_equal(test_solver_create(text, NULL, NULL, NULL, &t), CT_ERR_CONFIG);
        test_log_holds(says);
        test_log_all_stop();
        test_solver_destroy(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(others_have_none), cmocka_unit_test(halves_and_doubles),
        cmocka_unit_test(has_ends),         cmocka_unit_test(wrong_fields_are_refused),
        cmocka_unit_test(the_cpu_refuses),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
