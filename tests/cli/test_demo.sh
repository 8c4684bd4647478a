# `make demo` in small, and the installation.
. "$ROOT/tests/cli/lib.sh"
runs demo 0 'top-k, density 0.01' env ITERATIONS=120 MPIRUN="$MPIRUN" MPIRUN_FLAGS="$MPIRUN_FLAGS" "$ROOT/scripts/demo.sh"
# untrained, one digit in ten is right
is demo_learns awk '/^dense|^top-k/ { for (i = 1; i <= NF; i++) if ($i == "%" && $(i - 1) > 50) n++ } END { exit n != 2 }' out
is demo_compresses awk '/^dense/ { d = $(NF - 1) } /^top-k/ { c = $(NF - 1) } END { exit !(c > 0 && c < d / 10) }' out
finish
