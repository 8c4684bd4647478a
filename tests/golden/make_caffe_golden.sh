#!/bin/sh
# Writes tests/golden/caffe: a small net trained by Caffe itself, with every solver type. Of each type
# the weights and the solver state after 4 iterations and the weights after 8; of two also as HDF5.
# Usage: tests/golden/make_caffe_golden.sh path/to/caffe     (BVLC Caffe 1.0 with HDF5)
set -eu
caffe=$(realpath "$1")
cd "$(dirname "$0")/caffe"
run() { # NAME FORMAT FIELDS
    name=$1 format=$2
    shift 2
    cat > "$name.tmp" <<END
net: "net.prototxt" base_lr: 0.05 lr_policy: "fixed" weight_decay: 0.01 delta: 0.001 max_iter: 8 snapshot: 4
random_seed: 3 solver_mode: CPU snapshot_prefix: "$name" snapshot_format: $format $*
END
    GLOG_minloglevel=2 "$caffe" train --solver="$name.tmp"
    rm -f "$name.tmp" "${name}_iter_8.solverstate"*
}
run sgd BINARYPROTO 'type: "SGD" momentum: 0.9'
run nesterov BINARYPROTO 'type: "Nesterov" momentum: 0.9'
run adagrad BINARYPROTO 'type: "AdaGrad"'
run rmsprop BINARYPROTO 'type: "RMSProp" rms_decay: 0.95'
run adadelta BINARYPROTO 'type: "AdaDelta" momentum: 0.9'
run adam BINARYPROTO 'type: "Adam" momentum: 0.9'
run sgd_h5 HDF5 'type: "SGD" momentum: 0.9'
run adam_h5 HDF5 'type: "Adam" momentum: 0.9'
