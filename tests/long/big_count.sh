#!/bin/sh
# A sum of 2^31 + 3 elements at 2 ranks, by messages, through shared memory and by MPI itself. Needs
# 24 GB of memory, and half of that in /dev/shm; some minutes.
set -u
free_kb=$(sed -n 's/^MemAvailable: *\([0-9]*\) kB/\1/p' /proc/meminfo)
shm_kb=$(df -kP /dev/shm 2>/dev/null | awk 'NR == 2 { print $4 }')
if [ "${free_kb:-0}" -lt 20000000 ] || [ "${shm_kb:-0}" -lt 10000000 ]; then
    echo "skip big_count: needs 20 GB of free memory and 10 GB in /dev/shm"
    exit 0
fi
$MPIRUN $MPIRUN_FLAGS -np 2 "$(dirname "$CORTADO")/tests/long/big_count" ring rhd hier impi
