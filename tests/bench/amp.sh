#!/bin/sh
# AMP's published profiles and measurements: its model and search computed again, ours beside them.
# Nothing is run but models: seconds. Fails where a figure is worse than docs/results has to show.
#   tests/bench/amp.sh [FOLDER]     with AMP's data as JSON; else CORTADO_AMP, else ../shared/data/amp
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
folder=${1:-${CORTADO_AMP:-$root/../shared/data/amp}}
[ -f "$folder/profiles.json" ] || { echo "amp.sh: no profiles.json in $folder" >&2; exit 2; }
make -s -C "$root" build/mpicc/tests/bench/bench_amp >&2
export OMP_NUM_THREADS=1
exec "$root/build/mpicc/tests/bench/bench_amp" "$folder"
