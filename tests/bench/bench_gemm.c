/* Matrix products: the packed ones beside BLAS; gemm_bench.h says how. */
#include "tests/bench/gemm_bench.h"

int main(int argc, char **argv)
{
    return bench_main(argc, argv, "-", NULL);
}
