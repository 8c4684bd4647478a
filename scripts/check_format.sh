#!/bin/sh
# The sources are formatted with clang-format 14 (other versions differ in details). scripts/setup.sh --test
# gets it from PyPI.
cd "$(dirname "$0")/.." || exit 1
for f in clang-format-14 clang-format build/venv/bin/clang-format; do
    case $($f --version 2>/dev/null) in *"version 14."*) break ;; esac
    f=
done
if [ -z "$f" ]; then
    echo "skip format: no clang-format 14"
    exit 0
fi
find framework layers comm topology planner serve runtime library include cli tests -name '*.[ch]' -print0 | xargs -0 $f --dry-run --Werror
