#!/bin/sh
# The tutorial: each of its commands works and prints what the page says.
. "$ROOT/tests/cli/lib.sh"
has libmicrohttpd || { skip tutorial "built without libmicrohttpd"; finish; }
command -v curl >/dev/null || { skip tutorial "no curl"; finish; }
mkdir bin
ln -s "$(realpath "$CORTADO")" bin/cortado
printf '#!/bin/sh\nexec %s %s "$@"\n' "$(command -v "$MPIRUN")" "$MPIRUN_FLAGS" >bin/mpirun
chmod +x bin/mpirun
mkdir empty && cd empty || exit 1
PATH=$work/bin:$PATH CORTADO_HOME=$ROOT python3 "$ROOT/tests/cli/tutorial.py" "$ROOT/docs/tutorial.md" || failed=1
finish
