/* Layers of type Python, which this program computes in place of an interpreter. */
#include "tests/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "include/cortado/cortado.h"

/* Times param_str; "fail NAME" fails in that call. "learn 3" has the factor as a weight, "filler
 * TEXT" two of which the second has that filler, and "form" nine. */
typedef struct times {
    float factor;
    char fails[16];
    int n_weight;
    char filler[32];
    int64_t n;
} times;

static int n_open;

static int wrong(const times *t, const char *call, char *why, size_t n_why)
{
    if (strcmp(t->fails, call) != 0) return 0;
    snprintf(why, n_why, "%s does not want to", call);
    return 1;
}

static int open_layer(void *ctx, const cortado_layer *layer, void **made_p, char *why, size_t n_why)
{
    times *t = calloc(1, sizeof(*t));

    if ((t == NULL) || (strcmp(ctx, "ctx") != 0)) abort();
    if ((strcmp(layer->module, "here") != 0) || (strcmp(layer->layer, "Times") != 0)) abort();
    if ((strcmp(layer->name, "p") != 0) || (layer->n_bottom != 1) || (layer->n_top != 1)) abort();
    if (strncmp(layer->param_str, "fail ", 5) == 0)
        snprintf(t->fails, sizeof(t->fails), "%s", layer->param_str + 5);
    if ((layer->rank != 0) || (layer->n_rank != 1)) abort();
    t->factor = strtof(layer->param_str, NULL);
    if (sscanf(layer->param_str, "learn %f", &t->factor) == 1) t->n_weight = 1;
    if (sscanf(layer->param_str, "filler %31[^\n]", t->filler) == 1) t->n_weight = 2;
    if (strcmp(layer->param_str, "form") == 0) t->n_weight = CORTADO_MOST_WEIGHTS + 1;
    if (wrong(t, "open", why, n_why)) {
        free(t);
        return 1;
    }
    n_open++;
    *made_p = t;
    return 0;
}

static int setup(void *ctx, void *made, const cortado_blob *bottom, cortado_layer_form *form,
                 char *why, size_t n_why)
{
    times *t = made;

    (void)ctx;
    if ((bottom[0].count != 6) || (bottom[0].data != NULL)) abort();
    if (wrong(t, "setup", why, n_why)) return 1;
    form->n_weight = t->n_weight;
    form->weight[0].n_dim = (strcmp(t->fails, "weight") == 0) ? 9 : 0;
    if (strcmp(t->fails, "weight") == 0) form->n_weight = 1;
    form->weight[0].values = &t->factor;
    if (t->filler[0] == '\0') return 0;
    form->weight[1] = (cortado_layer_weight){ .n_dim = 2, .dim = { 2, 3 }, .filler = t->filler };
    return 0;
}

static int reshape(void *ctx, void *made, const cortado_blob *bottom, cortado_blob *top, char *why,
                   size_t n_why)
{
    times *t = made;

    (void)ctx;
    if ((bottom[0].data != NULL) || wrong(t, "reshape", why, n_why)) return 1;
    top[0] = bottom[0];
    if (strcmp(t->fails, "shape") == 0) top[0].dim[0] = -1;
    t->n = bottom[0].count;
    return 0;
}

static int forward(void *ctx, void *made, const cortado_blob *bottom, const cortado_blob *top,
                   const cortado_blob *weight, char *why, size_t n_why)
{
    const times *t = made;
    float factor = (t->n_weight > 0) ? weight[0].data[0] : t->factor;

    (void)ctx;
    if (wrong(t, "forward", why, n_why)) return 1;
    for (int64_t i = 0; i < t->n; i++) top[0].data[i] = factor * bottom[0].data[i];
    return 0;
}

static int backward(void *ctx, void *made, const cortado_blob *bottom, const cortado_blob *top,
                    const cortado_blob *weight, char *why, size_t n_why)
{
    const times *t = made;
    float factor = (t->n_weight > 0) ? weight[0].data[0] : t->factor;

    (void)ctx;
    if (wrong(t, "backward", why, n_why)) return 1;
    if (bottom[0].diff[0] != 0) abort();
    for (int64_t i = 0; i < t->n; i++) bottom[0].diff[i] = factor * top[0].diff[i];
    if (t->n_weight == 0) return 0;
    if ((weight[0].count != 1) || (weight[0].diff[0] != 0)) abort();
    for (int64_t i = 0; i < t->n; i++) weight[0].diff[0] += bottom[0].data[i] * top[0].diff[i];
    return 0;
}

static void close_layer(void *ctx, void *made)
{
    (void)ctx;
    n_open--;
    free(made);
}

static char ctx[] = "ctx";
static const cortado_layer_calls calls = { .ctx = ctx,
                                           .open = open_layer,
                                           .setup = setup,
                                           .reshape = reshape,
                                           .forward = forward,
                                           .backward = backward,
                                           .close = close_layer };

static const char *net_of(const char *param, char *text, size_t n)
{
    snprintf(text, n,
             "force_backward: true "
             "layer { name: 'in' type: 'Input' top: 'x' input_param { shape { dim: 2 dim: 3 } } }\n"
             "layer { name: 'p' type: 'Python' bottom: 'x' top: 'y' python_param { %s } }\n"
             "layer { name: 'l' type: 'Reduction' bottom: 'y' top: 'l' loss_weight: 1 }",
             param);
    return text;
}

static void opens_with(const char *param, cortado_status want, const char *part)
{
    char text[600];
    cortado_net *net = NULL;

    assert_int_equal(cortado_net_open_text(net_of(param, text, sizeof(text)), "n.prototxt", NULL,
                                           CORTADO_TEST, &net),
                     want);
    if (part != NULL && strstr(cortado_error(), part) == NULL)
        fail_msg("\"%s\" lacks \"%s\"", cortado_error(), part);
    cortado_net_close(net);
    assert_int_equal(n_open, 0);
}

#define TIMES "module: 'here' layer: 'Times' param_str: "

static void the_program_computes(void **state)
{
    char text[600];
    cortado_net *net = NULL;
    cortado_blob x, y;

    (void)state;
    cortado_layers_by(&calls);
    assert_int_equal(cortado_net_open_text(net_of(TIMES "'3'", text, sizeof(text)), "n.prototxt",
                                           NULL, CORTADO_TEST, &net),
                     CORTADO_OK);
    assert_int_equal(n_open, 1);
    assert_int_equal(cortado_net_blob(net, "x", &x), CORTADO_OK);
    for (int i = 0; i < 6; i++) x.data[i] = (float)i;
    assert_int_equal(cortado_net_forward(net, NULL, NULL), CORTADO_OK);
    assert_int_equal(cortado_net_blob(net, "y", &y), CORTADO_OK);
    assert_int_equal(y.count, 6);
    for (int i = 0; i < 6; i++) assert_true(y.data[i] == 3.0f * (float)i);
    assert_true(cortado_net_loss(net) == 45);
    assert_int_equal(cortado_net_backward(net, NULL, NULL), CORTADO_OK);
    for (int i = 0; i < 6; i++) assert_true(x.diff[i] == 3);
    assert_int_equal(n_open, 1);
    cortado_net_close(net);
    assert_int_equal(n_open, 0);
}

/* Its first value is the program's; its gradient is that of each batch alone. */
static void a_weight_is_the_nets(void **state)
{
    char text[600];
    cortado_net *net = NULL;
    cortado_blob x, w;

    (void)state;
    assert_int_equal(cortado_layers_by(&calls), CORTADO_OK);
    assert_int_equal(cortado_net_open_text(net_of(TIMES "'learn 3'", text, sizeof(text)),
                                           "n.prototxt", NULL, CORTADO_TRAIN, &net),
                     CORTADO_OK);
    assert_int_equal(cortado_net_weight(net, "p", 0, &w), CORTADO_OK);
    assert_int_equal(w.n_dim, 0);
    assert_true(w.data[0] == 3);
    assert_int_equal(cortado_net_blob(net, "x", &x), CORTADO_OK);
    for (int i = 0; i < 6; i++) x.data[i] = (float)i;
    for (int turn = 0; turn < 2; turn++) {
        assert_int_equal(cortado_net_forward(net, NULL, NULL), CORTADO_OK);
        assert_int_equal(cortado_net_backward(net, NULL, NULL), CORTADO_OK);
        assert_true(cortado_net_loss(net) == 15.0 * (double)w.data[0]);
        assert_true(w.diff[0] == 15);
        assert_true(x.diff[5] == w.data[0]);
        w.data[0] = 4;
    }
    cortado_net_close(net);
    opens_with(TIMES "'filler type: \"xavier\"'", CORTADO_OK, NULL);
    opens_with(TIMES "'filler typ: \"xavier\"'", CORTADO_ERR_CONFIG,
               "layer \"p\" (Python): weight 1: filler:1:1: ");
    opens_with(TIMES "'form'", CORTADO_ERR_CONFIG, "9 weights: at most 8");
    opens_with(TIMES "'fail weight'", CORTADO_ERR_SHAPE, "weight 0 got no shape");
    cortado_layers_by(NULL);
}

static void failures_are_told(void **state)
{
    cortado_layer_calls none = calls;
    char text[600];
    cortado_net *net = NULL;

    (void)state;
    none.setup = NULL;
    assert_int_equal(cortado_layers_by(&none), CORTADO_ERR_ARG);
    assert_non_null(strstr(cortado_error(), "none of them may be NULL"));
    cortado_layers_by(NULL);
    opens_with(TIMES "'3'", CORTADO_ERR_CONFIG, "it runs in programs of Python alone");
    cortado_layers_by(&calls);
    opens_with("module: 'here'", CORTADO_ERR_CONFIG,
               "n.prototxt:2: layer \"p\" (Python): "
               "python_param.module and python_param.layer");
    opens_with(TIMES "'fail open'", CORTADO_ERR_CONFIG, "(Python): open does not want to");
    opens_with(TIMES "'fail setup'", CORTADO_ERR_CONFIG, "(Python): setup does not want to");
    opens_with(TIMES "'fail reshape'", CORTADO_ERR_SHAPE, "(Python): reshape does not want to");
    opens_with(TIMES "'fail shape'", CORTADO_ERR_SHAPE, "top 0 got no shape that a blob may have");
    for (int back = 0; back < 2; back++) {
        const char *param = (back != 0) ? TIMES "'fail backward'" : TIMES "'fail forward'";

        assert_int_equal(cortado_net_open_text(net_of(param, text, sizeof(text)), "n.prototxt",
                                               NULL, CORTADO_TEST, &net),
                         CORTADO_OK);
        assert_int_equal(cortado_net_forward(net, NULL, NULL),
                         (back != 0) ? CORTADO_OK : CORTADO_ERR_DATA);
        if (back != 0) assert_int_equal(cortado_net_backward(net, NULL, NULL), CORTADO_ERR_DATA);
        assert_non_null(strstr(cortado_error(), "layer \"p\" (Python): "));
        assert_non_null(strstr(cortado_error(), "ward does not want to"));
        cortado_net_close(net);
    }
    cortado_layers_by(NULL);
}

int main(void)
{
    const struct CMUnitTest test[] = {
        cmocka_unit_test(the_program_computes),
        cmocka_unit_test(a_weight_is_the_nets),
        cmocka_unit_test(failures_are_told),
    };

    return cmocka_run_group_tests(test, NULL, NULL);
}
