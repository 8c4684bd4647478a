/* The plan of the nets under models/, at their full size: placed in numbers only, no memory. */
#include "tests/test.h"
#include "tests/layer_harness.h"
#include "tests/net_layers.h"

#include "framework/net/net_impl.h"
#include "framework/proto/upgrade.h"

#include <string.h>

static void planned_near_the_peak(void **state)
{
    static const char *const name[] = {
        "lenet",    "quick", "resnet20", "alexnet",      "googlenet",   "vgg16",
        "resnet50", "lstm",  "senet50",  "inception_v3", "densenet121", "mobilenet_v2"
    };

    (void)state;
    for (size_t i = 0; i < sizeof(name) / sizeof(name[0]); i++) {
        ct_net_options o = { .phase = CT_TRAIN, .no_data = true };
        Ct__NetParameter *param;
        const ct_net_impl *m;
        ct_net *net;
        char path[128];
        double ratio;

        snprintf(path, sizeof(path), "models/%s/train_val.prototxt", name[i]);
        assert_int_equal(ct_net_read(path, NULL, &param), CT_OK);
        if (ct_net_create(param, &o, &net) != CT_OK) fail_msg("%s cannot be made", path);
        m = ct_net_impl_of(net);
        for (int k = 0; k < m->n_region; k++) {
            for (int e = 0; e < k; e++) {
                const ct_region *a = &m->region[k], *b = &m->region[e];

                assert_true((a->first > b->last) || (b->first > a->last) ||
                            (a->offset >= b->offset + b->bytes) ||
                            (b->offset >= a->offset + a->bytes));
            }
        }
        ratio = (double)net->memory.planned / (double)net->memory.peak_alive;
        print_message("%-9s %4d regions, planned %7.1f MiB, %.4f x peak, %.2f x unshared\n",
                      name[i], m->n_region, (double)net->memory.planned / 1048576.0, ratio,
                      (double)net->memory.planned / (double)net->memory.unshared);
        assert_true((ratio >= 1.0) && (ratio <= 1.1));
        ct_net_destroy(net);
        ct__net_parameter__free_unpacked(param, NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(planned_near_the_peak) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
