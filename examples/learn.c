/* A loop of training of one's own: forward, backward, and a step against the gradient.
 *
 *     cc learn.c $(pkg-config --cflags --libs cortado) -o learn
 *     ./learn train_val.prototxt 20 0.01 learned.safetensors
 *
 * The net's own data layers give the batches. A line a step tells the loss. */
#include <stdio.h>
#include <stdlib.h>

#include <cortado/cortado.h>

static int fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, cortado_error());
    return 1;
}

static int step_against(cortado_net *net, float rate)
{
    for (int l = 0; l < cortado_net_layer_count(net); l++) {
        for (int i = 0; i < cortado_net_weight_count(net, l); i++) {
            cortado_blob w;

            if (cortado_net_weight(net, cortado_net_layer_name(net, l), i, &w) != CORTADO_OK)
                return fail("a weight");
            if (w.diff == NULL) continue;
            for (int64_t k = 0; k < w.count; k++) w.data[k] -= rate * w.diff[k];
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    cortado_net *net;

    if (argc != 5) {
        fprintf(stderr, "usage: %s NET STEPS RATE TO\n", argv[0]);
        return 2;
    }
    if (cortado_net_open(argv[1], NULL, CORTADO_TRAIN, &net) != CORTADO_OK) return fail(argv[1]);
    for (int i = 0; i < atoi(argv[2]); i++) {
        if (cortado_net_forward(net, NULL, NULL) != CORTADO_OK) return fail("forward");
        printf("step %d, loss = %.6f\n", i, cortado_net_loss(net));
        if (cortado_net_backward(net, NULL, NULL) != CORTADO_OK) return fail("backward");
        if (step_against(net, (float)atof(argv[3])) != 0) return 1;
    }
    if (cortado_net_save(net, argv[4]) != CORTADO_OK) return fail(argv[4]);
    cortado_net_close(net);
    return 0;
}
