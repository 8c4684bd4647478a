/** @file slept_net.h  Nets whose computation is replaced by sleep, for studies of what gradients as
 * large as a real net's cost between ranks: slept_steps and alternate_codecs.
 *
 * A net's large matrices are layers that sleep in place of computing: a given time a step on each
 * rank, a third of it forward, shared out by multiplications (a matrix of a convolution has as many
 * as its elements times the places of its output). While they sleep messages move, as they do while
 * layers compute. Everything else is real: buckets, messages, codecs, clipping, update rules.
 */
#ifndef CT_SLEPT_NET_H
#define CT_SLEPT_NET_H

#include <stdlib.h>
#include <string.h>

#include "framework/base/clock.h"
#include "framework/base/log.h"
#include "framework/base/thread.h"
#include "runtime/exchange/exchange_mpi.h"
#include "tests/net_layers.h"
#include "tests/solver_harness.h"

typedef struct matrix {
    int rows, columns;
    int places; /* of the output, whose products are the matrix's computation */
} matrix;

typedef struct matrices {
    int n; /* so often all of them, one behind the other; 0: the end */
    matrix m[5];
} matrices;

typedef struct shape {
    const char *name;
    matrices part[14];
} shape;

static const shape shapes[] = {
    { "gpt2",
      { { 1, { { 50257, 768, 1 }, { 1024, 768, 1 } } },
        { 12, { { 2304, 768, 1 }, { 768, 768, 1 }, { 3072, 768, 1 }, { 768, 3072, 1 } } } } },
    { "lstm",
      { { 1, { { 10000, 1500, 1 } } },
        { 4, { { 6000, 1500, 1 } } },
        { 1, { { 10000, 1500, 1 } } } } },
    { "alexnet",
      { { 1, { { 96, 363, 3025 }, { 256, 1200, 729 }, { 384, 2304, 169 }, { 384, 1728, 169 } } },
        { 1, { { 256, 1728, 169 }, { 4096, 9216, 1 }, { 4096, 4096, 1 }, { 1000, 4096, 1 } } } } },
    { "vgg16",
      { { 1, { { 64, 27, 50176 }, { 64, 576, 50176 } } },
        { 1, { { 128, 576, 12544 }, { 128, 1152, 12544 }, { 256, 1152, 3136 } } },
        { 2, { { 256, 2304, 3136 } } },
        { 1, { { 512, 2304, 784 } } },
        { 2, { { 512, 4608, 784 } } },
        { 3, { { 512, 4608, 196 } } },
        { 1, { { 4096, 25088, 1 }, { 4096, 4096, 1 }, { 1000, 4096, 1 } } } } },
    { "resnet50",
      { { 1, { { 64, 147, 12544 }, { 256, 64, 3136 } } },
        { 1, { { 64, 64, 3136 }, { 64, 576, 3136 }, { 256, 64, 3136 } } },
        { 2, { { 64, 256, 3136 }, { 64, 576, 3136 }, { 256, 64, 3136 } } },
        { 1, { { 512, 256, 784 }, { 128, 256, 784 }, { 128, 1152, 784 }, { 512, 128, 784 } } },
        { 3, { { 128, 512, 784 }, { 128, 1152, 784 }, { 512, 128, 784 } } },
        { 1, { { 1024, 512, 196 }, { 256, 512, 196 }, { 256, 2304, 196 }, { 1024, 256, 196 } } },
        { 5, { { 256, 1024, 196 }, { 256, 2304, 196 }, { 1024, 256, 196 } } },
        { 1, { { 2048, 1024, 49 }, { 512, 1024, 49 }, { 512, 4608, 49 }, { 2048, 512, 49 } } },
        { 2, { { 512, 2048, 49 }, { 512, 4608, 49 }, { 2048, 512, 49 } } },
        { 1, { { 1000, 2048, 1 } } } } },
};

/* ---- the layer: num_output x eltwise_param's coefficients say rows x columns, and seconds */

typedef struct sleeper {
    double forward_s, backward_s;
} sleeper;

static ct_status setup(ct_layer *l, const ct_shape *bottom)
{
    const Ct__EltwiseParameter *p = l->param->eltwise_param;
    sleeper *s = l->state;

    (void)bottom;
    if ((p == NULL) || (p->n_coeff != 3)) return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "needs 3 coeff");
    s->forward_s = (double)p->coeff[2] / 3;
    s->backward_s = (double)p->coeff[2] * 2 / 3;
    ct_layer_add_weight(l, &(ct_shape){ 2, { (int64_t)p->coeff[0], (int64_t)p->coeff[1] } }, NULL);
    return CT_OK;
}

static ct_status reshape(const ct_layer *l, ct_instance *in)
{
    (void)l;
    ct_blob_set_shape(in->top[0], &in->bottom[0]->data.shape);
    return CT_OK;
}

static ct_status sleep_until(double end, ct_exec *ex)
{
    while (ct_clock_s() < end) {
        ct_nap(2e-4);
        CT_TRY(ct_exec_poll(ex));
    }
    return CT_OK;
}

static ct_status forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const sleeper *s = l->state;

    ct_blob_data(in->top[0])[0] = ct_blob_data(in->bottom[0])[0];
    return sleep_until(ct_clock_s() + s->forward_s, ex);
}

/* Gradients of one size whose signs change, so that codecs have something to choose from. */
static ct_status backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const sleeper *s = l->state;
    double end = ct_clock_s() + s->backward_s;
    int64_t n = ct_tensor_count(&in->weight[0].data);
    float *g = ct_blob_diff(&in->weight[0]);

    for (int64_t i = 0; i < n; i++) g[i] = (float)((i * 7 + ex->micro_step) % 11 - 5) * 1e-3f;
    if (ct_blob_diff(in->bottom[0]) != NULL)
        ct_blob_diff(in->bottom[0])[0] = ct_blob_diff(in->top[0])[0];
    return sleep_until(end, ex);
}

static const ct_layer_ops slept = { .type = "Slept",
                                    .min_bottom = 1,
                                    .max_bottom = 1,
                                    .min_top = 1,
                                    .max_top = 1,
                                    .params = "eltwise_param",
                                    .state_size = sizeof(sleeper),
                                    .setup = setup,
                                    .reshape = reshape,
                                    .forward = forward,
                                    .backward = backward };

/* ---- the solver */

typedef struct written {
    ct_text text;
    double seconds;            /* of a step */
    double elements, products; /* of all matrices: 0 while these are counted */
    int part, n;               /* of rows; layers so far */
} written;

static int rows_of(const written *w, matrix m)
{
    return (m.rows + w->part - 1) / w->part;
}

static void write_matrix(written *w, matrix m)
{
    double s = w->seconds * rows_of(w, m) * m.columns * m.places / w->products;

    ct_text_add(&w->text,
                "layer { name: 'm%d' type: 'Slept' bottom: 'x%d' top: 'x%d' eltwise_param { coeff: "
                "%d coeff: %d coeff: %.6f } } ",
                w->n, w->n, w->n + 1, rows_of(w, m), m.columns, s);
    w->n += 1;
}

static void count_matrix(written *w, matrix m)
{
    double elements = (double)rows_of(w, m) * m.columns;

    w->elements += elements;
    w->products += elements * m.places;
}

static void each_matrix(written *w, const shape *s, void (*take)(written *w, matrix m))
{
    for (const matrices *p = s->part; p->n > 0; p++)
        for (int i = 0; i < p->n; i++)
            for (int k = 0; (k < 5) && (p->m[k].rows > 0); k++) take(w, p->m[k]);
}

/* The solver of a net by its name, or "name/16" with a 16th of the rows; more: rule, and the rest
 * of its text. To be destroyed. */
static ct_status slept_solver(const char *net, double seconds, const char *more, ct_text *out)
{
    size_t length = strcspn(net, "/");
    const shape *s = NULL;
    written w = { .seconds = seconds, .part = (net[length] == '/') ? atoi(net + length + 1) : 1 };

    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
        if ((strlen(shapes[i].name) == length) && (strncmp(shapes[i].name, net, length) == 0))
            s = &shapes[i];
    if ((s == NULL) || (w.part < 1))
        return CT_FAIL(CT_ERR_CONFIG, "no net \"%s\": gpt2, lstm, alexnet, vgg16, resnet50", net);
    each_matrix(&w, s, count_matrix);
    ct_text_add(
        &w.text,
        "max_iter: 100000 display: 0 random_seed: 7 solver_mode: CPU snapshot: 0 "
        "snapshot_after_train: false %s net_param { name: 'slept' layer { name: 'in' type: "
        "'DummyData' top: 'x0' top: 'y' dummy_data_param { shape { dim: 1 dim: 1 } shape { dim: 1 "
        "dim: 1 } } } ",
        more);
    each_matrix(&w, s, write_matrix);
    ct_text_add(
        &w.text,
        "layer { name: 'loss' type: 'EuclideanLoss' bottom: 'x%d' bottom: 'y' top: 'loss' } }",
        w.n);
    *out = w.text;
    if (w.text.failed) return CT_FAIL(CT_ERR_NOMEM, "no memory for a net");
    CT_INFO("%s: %d layers, %.1f M weights", net, w.n, 1e-6 * w.elements);
    return CT_OK;
}

#endif
