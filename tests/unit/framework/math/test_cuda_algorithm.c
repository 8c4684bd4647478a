/* Algorithms that a library's heuristics name and that fail when they run: another does it from
 * then on, where nothing is lost and CUDA goes on. Stand-ins fail on request: skips where CUDA is
 * not emulated. */
#include "tests/test.h"
#include "tests/cuda_case.h"
#include "tests/cuda_train.h"
#include "tests/log_capture.h"
#include "tests/solver_harness.h"

#include "framework/math/fused.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Of tests/emulated_cuda: an error that stays is gone. */
extern void ct_emulated_mend(void) __attribute__((weak));

static const ct_device *device(void)
{
    const ct_device *dev = test_cuda();

    if (ct_emulated_mend == NULL) skip();
    return dev;
}

/* ---- products */

enum { M = 5, N = 8, K = 6 };

/* Whole numbers: sums have one value, whatever the order. */
static float whole(int i, int by)
{
    return (float)(i * by % 7 - 3);
}

typedef struct product {
    const ct_device *dev;
    ct_fused *f;
    ct_fused_args g;
} product;

static product open_product(float beta)
{
    product p = { .dev = device() };
    ct_fused_desc d = { .m = M, .n = N, .k = K };
    float a[M * K], b[K * N];

    for (int i = 0; i < M * K; i++) a[i] = whole(i, 3);
    for (int i = 0; i < K * N; i++) b[i] = whole(i, 5);
    assert_int_equal(p.dev->math->fused->create(&d, &p.f), CT_OK);
    p.g = (ct_fused_args){ .a = test_cuda_put(p.dev, a, sizeof(a)),
                           .b = test_cuda_put(p.dev, b, sizeof(b)),
                           .c = test_cuda_put(p.dev, NULL, M * N * sizeof(float)),
                           .beta = beta };
    p.g.work = test_cuda_put(p.dev, NULL, p.dev->math->fused->workspace(p.f, -1));
    return p;
}

/* failing: what the stand-in is told, as in emulated_cublaslt.cu. */
static ct_status run_product(const product *p, const char *failing)
{
    float c[M * N];
    ct_status status;

    for (int i = 0; i < M * N; i++) c[i] = whole(i, 2);
    assert_int_equal(p->dev->from_host(NULL, p->g.c, c, sizeof(c)), CT_OK);
    if (failing != NULL) setenv("CORTADO_EMULATED_LT_FAIL", failing, 1);
    status = p->dev->math->fused->run(p->f, NULL, &p->g);
    unsetenv("CORTADO_EMULATED_LT_FAIL");
    ct_emulated_mend();
    if (status != CT_OK) return status;
    assert_int_equal(p->dev->to_host(NULL, c, p->g.c, sizeof(c)), CT_OK);
    for (int i = 0; i < M * N; i++) {
        float want = p->g.beta * whole(i, 2);

        for (int k = 0; k < K; k++) want += whole(i / N * K + k, 3) * whole(k * N + i % N, 5);
        assert_true(c[i] == want);
    }
    return CT_OK;
}

static void close_product(product *p)
{
    p->dev->math->fused->destroy(p->f);
    p->dev->mem_release((void *)p->g.a), p->dev->mem_release((void *)p->g.b);
    p->dev->mem_release(p->g.c), p->dev->mem_release(p->g.work);
}

/* One line says which took whose place, and it stays there: what failed is not tried again. */
static void products_go_over(void **state)
{
    product p = open_product(0.0f);
    log_capture log;

    (void)state;
    log_capture_start(&log);
    assert_int_equal(run_product(&p, "11"), CT_OK);
    assert_int_equal(log.n_error, 0);
    assert_non_null(strstr(log.warning, ":11."));
    assert_non_null(strstr(log.warning, "(cuBLAS status 13)"));
    assert_non_null(strstr(log.warning, ":13."));
    log_capture_start(&log);
    assert_int_equal(run_product(&p, NULL), CT_OK);
    assert_string_equal(log.warning, "");
    /* it has run: now this is an error like any other */
    assert_int_equal(run_product(&p, "13"), CT_ERR_DEVICE);
    assert_non_null(strstr(log.error, ":13."));
    log_capture_stop();
    close_product(&p);
}

/* What may have been added to is not added to again, but where nothing was done; and an error of
 * CUDA's that stays is nobody's turn. */
static void products_fail(void **state)
{
    static const struct {
        float beta;
        const char *failing;
        ct_status end;
    } each[] = {
        { 1.0f, "11", CT_ERR_DEVICE },
        { 1.0f, "11 unmade", CT_OK },
        { 0.0f, "11 13 14", CT_ERR_DEVICE },
        { 0.0f, "11 stays", CT_ERR_DEVICE },
    };
    log_capture log;

    (void)state;
    for (size_t i = 0; i < sizeof(each) / sizeof(each[0]); i++) {
        product p = open_product(each[i].beta);

        log_capture_start(&log);
        assert_int_equal(run_product(&p, each[i].failing), each[i].end);
        assert_true((log.n_error > 0) == (each[i].end != CT_OK));
        assert_true((log.warning[0] != '\0') == ((i == 1) || (i == 2)));
        log_capture_stop();
        close_product(&p);
    }
}

/* ---- convolutions: the library's plans are the process's, so each test has its own shape */

#define CONVOLUTION(outputs)                                                                       \
    "layer { name: 'data' type: 'DummyData' top: 'data' top: 'label' dummy_data_param { shape { "  \
    "dim: 6 dim: 3 dim: 9 dim: 9 } shape { dim: 6 } data_filler { type: 'gaussian' std: 1 } "      \
    "data_filler { value: 2 } } } "                                                                \
    "layer { name: 'c' type: 'Convolution' bottom: 'data' top: 'c' convolution_param { "           \
    "num_output: " outputs " kernel_size: 3 weight_filler { type: 'xavier' } } } "                 \
    "layer { name: 'e' type: 'Convolution' bottom: 'c' top: 'e' convolution_param { "              \
    "num_output: " outputs " kernel_size: 5 weight_filler { type: 'xavier' } } } "                 \
    "layer { name: 'f' type: 'InnerProduct' bottom: 'e' top: 'f' inner_product_param { "           \
    "num_output: 5 weight_filler { type: 'xavier' } } } "                                          \
    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'f' bottom: 'label' top: 'loss' } "

/* Trains while the stand-in fails as it is told (emulated_cudnn.cu). */
static ct_status train(const char *layers, const char *fields, const char *failing)
{
    ct_status status;

    setenv("CORTADO_EMULATED_CUDNN_FAIL", failing, 1);
    status = test_cuda_train(layers, fields, "", 3);
    unsetenv("CORTADO_EMULATED_CUDNN_FAIL");
    ct_emulated_mend();
    return status;
}

/* In a process of its own, whose library has no algorithm that fails. */
static trained trained_apart(const char *layers, const char *fields)
{
    trained t;
    int way[2], end = 0;
    size_t got = 0;
    pid_t child;

    assert_int_equal(pipe(way), 0);
    child = fork();
    if (child == 0) {
        t = test_cuda_trained(layers, fields, "", 5, NULL);
        _exit((write(way[1], &t, sizeof(t)) == (ssize_t)sizeof(t)) ? 0 : 1);
    }
    assert_true(child > 0);
    close(way[1]);
    while (got < sizeof(t)) {
        ssize_t n = read(way[0], (char *)&t + got, sizeof(t) - got);

        assert_true(n > 0);
        got += (size_t)n;
    }
    close(way[0]);
    assert_int_equal(waitpid(child, &end, 0), child);
    assert_true(WIFEXITED(end) && (WEXITSTATUS(end) == 0));
    return t;
}

/* The stand-in's algorithms are one, so the weights are those of a run in which none fails, though
 * what failed had spoilt its output; also where the workspace has rounded operands behind the
 * algorithm's part. Graphs are recorded all the same. */
static void convolutions_go_over(void **state)
{
    static const char *const fields[] = { "solver_mode: GPU", "solver_mode: GPU precision: BF16" };
    trained none[2], failing;

    (void)state;
    (void)device();
    test_log_all_start();
    for (int k = 0; k < 2; k++) none[k] = trained_apart(CONVOLUTION("4"), fields[k]);
    test_log_all_stop();
    for (int k = 0; k < 2; k++) {
        test_log_all_start();
        setenv("CORTADO_EMULATED_CUDNN_FAIL", "0", 1);
        failing = test_cuda_trained(CONVOLUTION("4"), fields[k], "", 5, NULL);
        unsetenv("CORTADO_EMULATED_CUDNN_FAIL");
        test_log_holds("cuDNN's algorithm 0 does not do a convolution that");
        test_log_holds("cuDNN's algorithm 0 does not do a convolution by weight that");
        test_log_holds("cuDNN's algorithm 0 does not do a convolution by data that");
        test_log_holds("(execution failed): algorithm 2 does it from here on");
        test_log_holds("in 1 graph, with the update");
        test_log_all_stop();
        test_cuda_same(&failing, &none[k], fields[k]);
    }
}

static void convolutions_fail(void **state)
{
    (void)state;
    (void)device();
    test_log_all_start();
    assert_int_equal(train(CONVOLUTION("8"), "solver_mode: GPU", "0s"), CT_ERR_DEVICE);
    assert_null(strstr(test_log_all(), "does it from here on"));
    assert_int_equal(train(CONVOLUTION("10"), "solver_mode: GPU", "02"), CT_ERR_DEVICE);
    test_log_holds("algorithm 2 does it from here on");
    test_log_holds("execution failed");
    test_log_all_stop();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(convolutions_go_over), /* first: it forks */
        cmocka_unit_test(convolutions_fail),
        cmocka_unit_test(products_go_over),
        cmocka_unit_test(products_fail),
    };

    setenv("CORTADO_EMULATED_CUDNN", "1", 1); /* looked for once */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
