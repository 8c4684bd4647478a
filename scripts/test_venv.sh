#!/bin/sh
# Prints the Python of a virtual environment below build/ that has the packages named, from PyPI. The
# first call makes it, later ones find it. Exits 1 with pip's words where that cannot be done.
#   scripts/test_venv.sh PACKAGE...      PYTHON names another interpreter than python3
set -eu
cd "$(dirname "$0")/.."
venv=$PWD/build/venv
mkdir -p build
exec 9>build/venv.lock
flock 9 2>/dev/null || true # two tests may want it at once
if [ ! -e "$venv/made" ]; then
    rm -rf "$venv"
    "${PYTHON:-python3}" -m venv "$venv" >&2
    : >"$venv/made"
fi
missing=
for package in "$@"; do
    grep -qx -- "$package" "$venv/made" || missing="$missing $package"
done
if [ -n "$missing" ]; then
    "$venv/bin/python" -m pip install -q --disable-pip-version-check --no-compile $missing >&2
    printf '%s\n' $missing >>"$venv/made"
fi
echo "$venv/bin/python"
