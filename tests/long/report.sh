#!/bin/sh
# tests/cli/test_report.sh with scikit-learn, whose matrix and scores must be those of `cortado test --report`.
set -u
CORTADO_SKLEARN=$("$ROOT/scripts/test_venv.sh" scikit-learn) || {
    echo "skip report: no scikit-learn"
    exit 0
}
export CORTADO_SKLEARN
exec sh "$ROOT/tests/cli/test_report.sh"
