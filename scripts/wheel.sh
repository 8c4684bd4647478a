#!/bin/sh
# Builds dist/cortado-VERSION-*.whl of the library and the Python package.
#   scripts/wheel.sh BUILD      BUILD/lib has the library
# Python's setuptools come from where pip finds packages, unless they are there already.
set -eu
cd "$(dirname "$0")/.."
library=$1/lib/$(readlink "$1/lib/libcortado.so")
work=$1/wheel
python=${PYTHON:-python3}
rm -rf "$work"
mkdir -p "$work" dist
cp -r python/cortado python/setup.py python/pyproject.toml VERSION "$work"
find "$work/cortado" -name __pycache__ -exec rm -rf {} +
cp "$library" framework/proto/cortado.proto "$work/cortado"
isolation=
if "$python" -c 'import setuptools, wheel' 2>/dev/null; then isolation=--no-build-isolation; fi
"$python" -m pip wheel -q --disable-pip-version-check --no-deps $isolation -w "$work/made" "$work"
mv "$work"/made/cortado-*.whl dist
ls dist/cortado-"$(cat VERSION)"-*.whl
