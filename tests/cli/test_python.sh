# The Python package: its wheel in a clean environment passes its tests, those of cortado.caffe with protobuf
# beside it, and steps through it are those of `cortado train`.
. "$ROOT/tests/cli/lib.sh"
made=$("$ROOT/scripts/test_venv.sh" numpy setuptools wheel mypy 2>venv.log) || {
    not_ok venv "$(tail -n 3 venv.log)"
    finish
}
runs wheel 0 'dist/cortado-[0-9.]*-py3-none-.*\.whl' env PYTHON="$made" "$ROOT/scripts/wheel.sh" "$(dirname "$CORTADO")"
wheel=$(ls "$ROOT/dist/cortado-$(cat "$ROOT/VERSION")"-py3-none-*.whl)
runs environment 0 '' "${PYTHON:-python3}" -m venv --without-pip clean
python=$work/clean/bin/python
install="$made -m pip --python $python install -q --disable-pip-version-check --no-compile" # what is imported compiles itself
runs installs 0 '' $install "$wheel"
runs imports 0 "^$(cat "$ROOT/VERSION")" "$python" -c 'import cortado; print(cortado.__version__)'
runs tests 0 'OK' "$python" "$ROOT/tests/python/test_cortado.py"
is many_tests test "$(sed -n 's/^Ran \([0-9]*\) tests.*/\1/p' out)" -ge 10

runs types_fit 0 'Success: no issues' "$made" -m mypy --cache-dir=/dev/null --no-incremental --disallow-untyped-defs --ignore-missing-imports "$ROOT/python/cortado"
runs installs_h5py 0 '' $install h5py
runs snapshots 0 'OK$' "$python" "$ROOT/tests/python/test_cortado.py" -k snapshot
is many_tests_of_snapshots test "$(sed -n 's/^Ran \([0-9]*\) tests.*/\1/p' out)" -ge 3

# as pycaffe is used; without protobuf all but messages is there
"$CORTADO" convert digits --to=digits --count=1024 --seed=1 >/dev/null 2>&1
runs caffe_needs_numpy_alone 0 '^4 9$' "$python" -c 'from cortado import caffe
data = caffe.layers.Input(shape=dict(dim=[4, 9]))
print(*caffe.Net.from_text(data.to_text()).blobs["Input1"].shape)'
runs messages_say_what_they_need 1 "caffe_pb2 needs the package protobuf: pip install 'cortado.caffe.'" "$python" -c 'from cortado.caffe.proto import caffe_pb2'
runs installs_protobuf 0 '' $install protobuf
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

# on the ranks of a communicator of mpi4py
cat >ranks.py <<'EOF'
import sys
import cortado
from mpi4py import MPI
comm = MPI.COMM_WORLD.Dup()
solver = cortado.Solver(sys.argv[1], settings={"max_iter": 20}, comm=comm)
comm.Free()  # the solver has its own
solver.step(20)
sums = MPI.COMM_WORLD.allgather(solver.checksum)
assert len(set(sums)) == 1, sums
if MPI.COMM_WORLD.rank == 0:
    print(f"iteration {solver.iteration}: checksum {sums[0]:016x}")
EOF
cat >wrong.py <<'EOF'
import cortado
from mpi4py import MPI
try:
    cortado.Solver("solver.prototxt", settings={"base_lt": 1}, comm=MPI.COMM_WORLD)
except cortado.Error as e:
    print(f"rank {MPI.COMM_WORLD.rank} has {e.status}: {e}", flush=True)
try:
    cortado.Solver("solver.prototxt", comm=5)
except TypeError as e:
    print(e, flush=True)
EOF
runs comm_needs_mpi4py 1 'ImportError: comm is a communicator of mpi4py.*pip install mpi4py' "$python" -c 'import cortado; cortado.Solver("solver.prototxt", comm=5)'
runs installs_mpi4py 0 '' $install 'mpi4py>=4.1'
sed 's/random_seed/deterministic: true random_seed/; s/max_iter: 200/max_iter: 20/; s/"long"/"ranks"/' solver.prototxt >ranks.prototxt
for n in 1 2; do
    runs "trains_on_$n" 0 'checksum' $JOB $n "$CORTADO" train --solver=ranks.prototxt
    want=$(sed -n 's/.*iteration 20: checksum //p' out)
    is "has_a_checksum_$n" test "${#want}" = 16
    runs "steps_on_$n" 0 "^iteration 20: checksum $want\$" $JOB $n "$python" ranks.py ranks.prototxt
done
# layers in Python on ranks: the weights of one rank that has the whole batch, to the order of sums; what one
# of them raises ends the job, and each rank's last line says where
cat >layers_here.py <<'EOF'
import numpy
import cortado


class Dense(cortado.Layer):
    def setup(self, bottom, top):
        n, k = int(self.param_str), bottom[0].count // bottom[0].num
        self.blobs.add_blob(n, k)
        self.blobs.add_blob(n)
        self.blobs[0].data[...] = numpy.random.default_rng(5 + self.rank).uniform(-0.1, 0.1, (n, k))  # rank 0's count

    def reshape(self, bottom, top):
        top[0].reshape(bottom[0].num, self.blobs[0].shape[0])

    def forward(self, bottom, top):
        top[0].data[...] = bottom[0].data @ self.blobs[0].data.T + self.blobs[1].data

    def backward(self, top, propagate_down, bottom):
        self.blobs[0].diff[...] = top[0].diff.T @ bottom[0].data
        self.blobs[1].diff[...] = top[0].diff.sum(axis=0)


class Euclid(cortado.Layer):
    n = 0

    def reshape(self, bottom, top):
        top[0].reshape()

    def forward(self, bottom, top):
        self.n += 1
        if self.param_str == str(self.n) and self.rank == 1:
            raise ValueError("no more of it")
        self.d = bottom[0].data - bottom[1].data
        top[0].data[...] = (self.d ** 2).sum() / bottom[0].num / 2

    def backward(self, top, propagate_down, bottom):
        bottom[0].diff[...] = self.d / bottom[0].num
EOF
cat >computed.py <<'EOF'
import sys, traceback
import numpy, cortado
from cortado import layers as L
from mpi4py import MPI
comm = MPI.COMM_WORLD
n = cortado.NetSpec()
rows = 12 // comm.size
n.data, n.want = L.DummyData(ntop=2, shape=[dict(dim=[rows, 4]), dict(dim=[rows, 3])], data_filler=dict(type="gaussian"))
n.ip = L.Python(n.data, module="layers_here", layer="Dense", param_str="3")
n.relu = L.ReLU(n.ip, in_place=True)
n.top = L.InnerProduct(n.relu, num_output=3, weight_filler=dict(type="xavier"))
n.loss = L.Python(n.top, n.want, module="layers_here", layer="Euclid", loss_weight=1, param_str=sys.argv[1])
if comm.rank == 0:
    with open("computed.prototxt", "w") as f:
        f.write(n.to_text())
    with open("computed_solver.prototxt", "w") as f:
        f.write('net: "computed.prototxt" base_lr: 0.05 lr_policy: "fixed" momentum: 0.9 max_iter: 20 random_seed: 3 snapshot_after_train: false')
comm.Barrier()
solver = cortado.Solver("computed_solver.prototxt", comm=comm)
try:
    solver.step(20)
except cortado.Error:
    traceback.print_exc()  # of all ranks: mpirun ends the others as soon as one has ended
    comm.Barrier()
    raise
made = [w.data.copy() for layer in solver.net.params.values() for w in layer]
if comm.rank == 0 and comm.size == 1:
    numpy.savez("alone.npz", *made)
elif comm.rank == 0:
    for mine, theirs in zip(made, numpy.load("alone.npz").values()):
        numpy.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)
    print(len(made), "weights are near")
EOF
runs layers_on_1 0 '' env PYTHONPATH=. $JOB 1 "$python" computed.py 0
runs layers_on_2 0 '^4 weights are near' env PYTHONPATH=. $JOB 2 "$python" computed.py 0
runs layers_on_3 0 '^4 weights are near' env PYTHONPATH=. $JOB 3 "$python" computed.py 0
runs a_layer_raises 1 'Error: rank 1 says: layer "loss" .Python.: .*layers_here.py:32: ValueError: no more of it' timeout 60 env PYTHONPATH=. $JOB 2 "$python" computed.py 3
runs wrong_setting_on_ranks 0 'rank 1 has CORTADO_ERR_CONFIG: rank 0 says: .*base_lr' $JOB 2 "$python" wrong.py
is wrong_on_rank_0 grep -q 'rank 0 has CORTADO_ERR_CONFIG: .*base_lr' out
is comm_is_no_number grep -q '^comm is a int: a communicator of mpi4py' out
finish
