#!/bin/sh
# Eight parallel files of LeNet, CIFAR-10 quick, a small AlexNet and a GPT of four blocks against one
# rank: the first loss, the weights after a step, the loss and the accuracy after fifty, and twenty
# steps more under another file.
set -u
work=$(mktemp -d "${TMPDIR:-/tmp}/cortado-long.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
command -v python3 >/dev/null || { echo "skip plans: no python3"; exit 0; }
MPIRUN="$MPIRUN" MPIRUN_FLAGS="$MPIRUN_FLAGS" python3 "$ROOT/tests/long/plans.py" "$CORTADO" "$ROOT" "$work"
