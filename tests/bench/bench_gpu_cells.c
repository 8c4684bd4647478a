/* LSTM and RNN on the GPU, forward and backward of a layer: our own steps, with products by cuBLAS
 * and by cuBLASLt, beside cuDNN's recurrent layers. A pass includes a sum of squares behind the
 * layer, and the wait for it. Needs CUDA=1 and a GPU: says so otherwise, and exits 77. */
#include "tests/test.h"
#include "tests/cuda_case.h"

#include "framework/base/clock.h"

#include <stdio.h>

enum { TURNS = 10, TEXT = 2048, N_WAY = 3 };

static const struct {
    const char *type;
    int steps, columns, inputs, hidden;
} job[] = {
    { "LSTM", 35, 20, 200, 200 },  { "LSTM", 35, 20, 650, 650 },  { "LSTM", 35, 20, 1500, 1500 },
    { "LSTM", 64, 128, 512, 512 }, { "RNN", 35, 20, 1500, 1500 },
};
static const char *const way[N_WAY] = { "blas", "lt", "cudnn" };

/* x is learned, so that its gradient is wanted, and nothing is copied to the device. */
static void write_net(size_t j, const char *name, char text[TEXT])
{
    snprintf(text, TEXT,
             "layer { name: 'x' type: 'Parameter' top: 'x' parameter_param { shape { dim: %d dim: "
             "%d dim: %d } } }\n"
             "layer { name: 'c' type: 'DummyData' top: 'c' dummy_data_param { shape { dim: %d dim: "
             "%d } data_filler { value: 1 } } }\n"
             "layer { name: 'r' type: '%s' bottom: 'x' bottom: 'c' top: 'r' recurrent_param { "
             "num_output: %d weight_filler { type: 'uniform' min: -0.04 max: 0.04 } } ct_kernel { "
             "forward: '%s' backward_data: '%s' backward_weight: '%s' } }\n"
             "layer { name: 'l' type: 'Reduction' bottom: 'r' top: 'l' loss_weight: 1 "
             "reduction_param { operation: SUMSQ } }\n",
             job[j].steps, job[j].columns, job[j].inputs, job[j].steps, job[j].columns, job[j].type,
             job[j].hidden, name, name, name);
}

/* Milliseconds of a pass, the best of three times TURNS; < 0: it cannot. */
static double time_of(size_t j, const char *name, const ct_device *dev,
                      Ct__SolverParameter__Precision precision)
{
    ct_net_options o = { .env = { .n_rank = 1, .precision = precision } };
    double best = 1e9;
    char text[TEXT];
    log_capture log;
    test_cuda_net t;

    write_net(j, name, text);
    if (test_cuda_net_try(text, dev, precision, &log) != CT_OK) return -1.0;
    test_cuda_net_open(text, dev, &o, NULL, &t);
    for (int k = 0; k < 4; k++) {
        double start = ct_clock_s(), seconds;

        for (int i = 0; i < TURNS; i++) (void)test_cuda_net_pass(&t, i, false);
        assert_int_equal(dev->sync(NULL), CT_OK);
        seconds = (ct_clock_s() - start) / TURNS;
        if ((k > 0) && (seconds < best)) best = seconds;
    }
    test_cuda_net_close(&t);
    return 1e3 * best;
}

int main(void)
{
    static const Ct__SolverParameter__Precision each[] = { CT__SOLVER_PARAMETER__PRECISION__F32,
                                                           CT__SOLVER_PARAMETER__PRECISION__TF32,
                                                           CT__SOLVER_PARAMETER__PRECISION__BF16,
                                                           CT__SOLVER_PARAMETER__PRECISION__FP16 };
    static const char *const bits[] = { "f32", "tf32", "bf16", "f16" };
    const ct_device *dev = test_cuda_there();

    if (dev == NULL) {
        printf("no GPU: nothing run\n");
        return 77;
    }
    printf("%-6s %5s %7s %6s %6s %5s %9s %9s %9s  ms forward and backward\n", "layer", "steps",
           "columns", "inputs", "hidden", "", way[0], way[1], way[2]);
    for (size_t j = 0; j < sizeof(job) / sizeof(job[0]); j++) {
        for (int p = 0; p < 4; p++) {
            printf("%-6s %5d %7d %6d %6d %5s", job[j].type, job[j].steps, job[j].columns,
                   job[j].inputs, job[j].hidden, bits[p]);
            for (int w = 0; w < N_WAY; w++) {
                double ms = time_of(j, way[w], dev, each[p]);

                if (ms < 0.0)
                    printf(" %9s", "-");
                else
                    printf(" %9.3f", ms);
            }
            printf("\n");
        }
    }
    return 0;
}
