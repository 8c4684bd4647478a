# One Python for many calls of a test. Each start of one that loads onnxruntime takes seconds where other tests run.
# Sourced after lib.sh. `one_python PYTHON MODULE...` starts it; then `sh ask SCRIPT ARGUMENT...` in $work is what
# `PYTHON SCRIPT ARGUMENT...` would be, also with - (a script on standard input) and -c for SCRIPT.
one_python() {
    mkfifo "$work/asked" "$work/answered"
    exec 3<>"$work/asked" # it ends when this test does
    "$1" "$ROOT/tests/cli/one_python.py" "$work" $(shift && echo "$@") <"$work/asked" 3>&- &
    cat >"$work/ask" <<'END'
here=$(dirname "$0")
if [ "$1" = - ]; then
    cat >"$here/asked.py"
    shift
    set -- "$here/asked.py" "$@"
fi
(printf '%s\037' "$PWD" "$@" && printf '\036') >"$here/asked"
{ read -r rc && cat && exit "$rc"; } <"$here/answered"
END
    python="sh $work/ask"
}
