# OpenBLAS is made to claim that it fell back to old kernels: the program starts itself again, once.
. "$ROOT/tests/cli/lib.sh"
unset OPENBLAS_CORETYPE

grep -qw avx2 /proc/cpuinfo 2>/dev/null || { skip blas_core "needs a CPU with AVX2"; finish; }
"$CORTADO" info --limits=false | grep -q 'DYNAMIC_ARCH' || { skip blas_core "this OpenBLAS has one kernel"; finish; }
if "$CORTADO" info --limits=false 2>&1 | grep -q Sanitizer || ldd "$CORTADO" | grep -q asan; then
    skip blas_core "a sanitizer wants to be the first library"
    finish
fi
cat >old.c <<'EOF'
#include <stdlib.h>
char *openblas_get_corename(void);
char *openblas_get_corename(void)
{
    return (getenv("OPENBLAS_CORETYPE") != NULL && getenv("STAY_OLD") == NULL) ? "SkylakeX" : "Prescott";
}
EOF
${CC:-cc} -shared -fPIC -o old.so old.c || { skip blas_core "no compiler"; finish; }
runs starts_again 0 'had picked its Prescott kernels; started again with OPENBLAS_CORETYPE=(SkylakeX|Haswell)' \
    env LD_PRELOAD=./old.so "$CORTADO" info --limits=false
is once test "$(grep -c 'started again' out)" = 1
runs never_twice 0 'runs its Prescott kernels, but this CPU could run' env LD_PRELOAD=./old.so STAY_OLD=1 "$CORTADO" info --limits=false
runs user_decides 0 '' env LD_PRELOAD=./old.so OPENBLAS_CORETYPE=Haswell "$CORTADO" info --limits=false
is user_stays test "$(grep -c 'started again' out)" = 0
finish
