/* As bench_gemm, with oneDNN's sgemm besides. */
#include <oneapi/dnnl/dnnl.h>

#include "tests/bench/gemm_bench.h"

static void product(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const float *a, int64_t lda,
                    const float *b, int64_t ldb, float *c)
{
    dnnl_sgemm(ta ? 'T' : 'N', tb ? 'T' : 'N', m, n, k, 1.0f, a, lda, b, ldb, 0.0f, c, n);
}

int main(int argc, char **argv)
{
    return bench_main(argc, argv, "dnnl", product);
}
