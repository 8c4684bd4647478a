# The Python package: its wheel in a clean environment passes its tests, those of cortado.caffe with protobuf
# beside it, and steps through it are those of `cortado train`.
. "$ROOT/tests/cli/lib.sh"
made=$("$ROOT/scripts/test_venv.sh" numpy setuptools wheel mypy 2>venv.log) || {
    not_ok venv "$(tail -n 3 venv.log)"
    finish
}
runs wheel 0 'dist/cortado-[0-9.]*-py3-none-.*\.whl' env PYTHON="$made" "$ROOT/scripts/wheel.sh" "$(dirname "$CORTADO")"
wheel=$(ls "$ROOT/dist/cortado-$(cat "$ROOT/VERSION")"-py3-none-*.whl)
runs environment 0 '' "${PYTHON:-python3}" -m venv clean
runs installs 0 '' clean/bin/python -m pip install -q --disable-pip-version-check "$wheel"
python=$work/clean/bin/python
runs imports 0 "^$(cat "$ROOT/VERSION")" "$python" -c 'import cortado; print(cortado.__version__)'
runs tests 0 'OK' "$python" "$ROOT/tests/python/test_cortado.py"
is many_tests test "$(sed -n 's/^Ran \([0-9]*\) tests.*/\1/p' out)" -ge 10

runs types_fit 0 'Success: no issues' "$made" -m mypy --cache-dir="$work/mypy" --disallow-untyped-defs --ignore-missing-imports "$ROOT/python/cortado"
runs installs_h5py 0 '' "$python" -m pip install -q --disable-pip-version-check h5py
runs snapshots 0 'OK$' "$python" "$ROOT/tests/python/test_cortado.py" -k snapshot
is many_tests_of_snapshots test "$(sed -n 's/^Ran \([0-9]*\) tests.*/\1/p' out)" -ge 3

# as pycaffe is used; without protobuf all but messages is there
"$CORTADO" convert digits --to=digits --count=1024 --seed=1 >/dev/null 2>&1
runs caffe_needs_numpy_alone 0 '^4 9$' "$python" -c 'from cortado import caffe
data = caffe.layers.Input(shape=dict(dim=[4, 9]))
print(*caffe.Net.from_text(data.to_text()).blobs["Input1"].shape)'
runs messages_say_what_they_need 1 "caffe_pb2 needs the package protobuf: pip install 'cortado.caffe.'" "$python" -c 'from cortado.caffe.proto import caffe_pb2'
runs installs_protobuf 0 '' "$python" -m pip install -q --disable-pip-version-check protobuf
runs caffe 0 'OK$' env CORTADO_DIGITS="$work/digits" "$python" "$ROOT/tests/python/test_caffe.py"
is many_tests_of_caffe test "$(sed -n 's/^Ran \([0-9]*\) tests.*/\1/p' out)" -ge 17

# 200 steps by twos, and from the verb
sed "s#data/mnist/\(train\|test\)_lmdb#digits/\1_lmdb#; s/batch_size: [0-9]*/batch_size: 8/" "$ROOT/models/lenet/train_val.prototxt" >net.prototxt
printf 'net: "net.prototxt" base_lr: 0.01 lr_policy: "fixed" momentum: 0.9 max_iter: 200 snapshot_prefix: "long" random_seed: 1 test_iter: 1 test_interval: 1000\n' >solver.prototxt
runs trains 0 '' "$CORTADO" train --solver=solver.prototxt
cat >steps.py <<'EOF'
import sys
import numpy, cortado
solver = cortado.Solver("solver.prototxt")
for _ in range(100):
    solver.step(2)
trained = cortado.Net("net.prototxt", sys.argv[1])
for layer, weights in trained.params.items():
    for mine, theirs in zip(weights, solver.net.params[layer]):
        numpy.testing.assert_array_equal(mine.data, theirs.data)
print(len(trained.params), "layers are equal, to the bit")
EOF
runs steps_are_those_of_train 0 '^4 layers are equal' "$python" steps.py "$(ls long_iter_200.caffemodel* | head -1)"
finish
