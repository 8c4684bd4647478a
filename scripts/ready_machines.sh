#!/bin/sh
# Prints C source that holds the given machine files as text. Usage: ready_machines.sh FILE...
set -eu
printf '%s\n\n' '#include "topology/machine.h"' 'const ct_ready_machine ct_ready_machine_table[] = {'
for f in "$@"; do
    printf '    { "%s",\n' "$(basename "$f" .prototxt)"
    sed 's/\\/\\\\/g; s/"/\\"/g; s/^/      "/; s/$/\\n"/' "$f"
    printf '    },\n'
done
printf '    { NULL, NULL },\n};\n'
