/* What a trained net makes of a file of numbers: the values of one blob, a line each.
 *
 *     cc values.c $(pkg-config --cflags --libs cortado) -o values
 *     ./values deploy.prototxt net.caffemodel prob < numbers
 *
 * The numbers, as text, are those of the net's first input in plain order. Without any the input is
 * zero. WEIGHTS "-": as the net's fillers make them. */
#include <stdio.h>
#include <string.h>

#include <cortado/cortado.h>

static int fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, cortado_error());
    return 1;
}

int main(int argc, char **argv)
{
    cortado_net *net;
    cortado_blob in, out;

    if (argc != 4) {
        fprintf(stderr, "usage: %s NET WEIGHTS BLOB < NUMBERS\n", argv[0]);
        return 2;
    }
    if (cortado_net_open(argv[1], (strcmp(argv[2], "-") == 0) ? NULL : argv[2], CORTADO_TEST,
                         &net) != CORTADO_OK)
        return fail(argv[1]);
    if (cortado_net_input_name(net, 0) != NULL) {
        if (cortado_net_blob(net, cortado_net_input_name(net, 0), &in) != CORTADO_OK)
            return fail("the input");
        for (int64_t i = 0; i < in.count; i++) {
            if (scanf("%f", &in.data[i]) != 1) break;
        }
    }
    if (cortado_net_blob(net, argv[3], &out) != CORTADO_OK) return fail("the blob");
    if (cortado_net_forward(net, NULL, NULL) != CORTADO_OK) return fail("forward");
    for (int64_t i = 0; i < out.count; i++) printf("%.9g\n", (double)out.data[i]);
    cortado_net_close(net);
    return 0;
}
