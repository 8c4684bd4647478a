#!/bin/sh
# Caffe's notebooks 00-classification and 01-learning-lenet, cell by cell, with the import lines changed. Some minutes.
# CAFFE_SOURCE names a checkout of Caffe. What the notebooks fetch from the network is replaced: CaffeNet's weights by
# random ones, names of classes by numbers, MNIST by made-up digits. Accuracies so say nothing of MNIST.
. "$ROOT/tests/cli/lib.sh"
[ -f "${CAFFE_SOURCE:-}/examples/00-classification.ipynb" ] || {
    echo "skip notebooks: CAFFE_SOURCE names no checkout of Caffe"
    exit 0
}
python=$("$ROOT/scripts/test_venv.sh" numpy matplotlib protobuf setuptools wheel 2>venv.log) || {
    not_ok venv "$(tail -n 3 venv.log)"
    finish
}
runs wheel 0 'dist/cortado-' env PYTHON="$python" "$ROOT/scripts/wheel.sh" "$(dirname "$CORTADO")"
mkdir site
runs installs 0 '' "$python" -m pip install -q --disable-pip-version-check --no-deps --target=site "$(ls "$ROOT/dist/cortado-$(cat "$ROOT/VERSION")"-py3-none-*.whl)"
PYTHONPATH=$PWD/site
export PYTHONPATH

# a tree as Caffe's, of what the cells read
mkdir -p caffe/examples/mnist caffe/data/ilsvrc12 caffe/models caffe/python/caffe/imagenet
cp -r "$CAFFE_SOURCE/models/bvlc_reference_caffenet" caffe/models/
cp -r "$CAFFE_SOURCE/examples/images" caffe/examples/
cp "$CAFFE_SOURCE/examples/mnist/lenet_auto_solver.prototxt" caffe/examples/mnist/
cp "$CAFFE_SOURCE/python/caffe/imagenet/ilsvrc_2012_mean.npy" caffe/python/caffe/imagenet/
cp "$CAFFE_SOURCE/examples/images/cat.jpg" caffe/examples/image.jpg
seq 1000 | sed 's/.*/class &/' >caffe/data/ilsvrc12/synset_words.txt
"$CORTADO" convert digits --to=digits --count=4096 --seed=1 >/dev/null 2>&1
mv digits/train_lmdb caffe/examples/mnist/mnist_train_lmdb
mv digits/test_lmdb caffe/examples/mnist/mnist_test_lmdb
runs weights 0 '' "$python" -c 'import os
import numpy
from cortado import caffe
model, random = "caffe/models/bvlc_reference_caffenet/", numpy.random.default_rng(1)
net = caffe.Net(model + "deploy.prototxt", caffe.TEST)
for weight, bias in net.params.values():
    weight.data[...] = random.normal(0, numpy.sqrt(2 / weight.data[0].size), weight.data.shape)
net.save(model + "bvlc_reference_caffenet.caffemodel")'

cd caffe/examples || exit 1
runs classification 0 '^21 of 21 cells run$' "$python" "$ROOT/tests/long/notebooks.py" "$CAFFE_SOURCE/examples/00-classification.ipynb"
runs learning 0 '^19 of 19 cells run$' "$python" "$ROOT/tests/long/notebooks.py" "$CAFFE_SOURCE/examples/01-learning-lenet.ipynb"
grep accuracy out
is lenet_learns test "$(sed -n 's/.*: accuracy 0\.\([0-9]*\)$/\1/p' out | head -n 1)" -ge 900
finish
