# Weights of Caffe and NumPy, solver states of Caffe, and what goes back to them; solver types with
# codecs. CORTADO_CAFFE names a caffe (BVLC 1.0, HDF5) that is then asked itself.
. "$ROOT/tests/cli/lib.sh"
golden="$ROOT/tests/golden/caffe"
cp "$golden"/net.prototxt "$golden"/adam_* "$golden"/sgd_* .

runs list 0 '  ip1/0  4 3 \(12\)' "$CORTADO" convert model --from=adam_iter_8.caffemodel
runs to_npz 0 'wrote a.npz' "$CORTADO" convert model --from=adam_iter_8.caffemodel --to=a.npz
runs to_h5 0 '' "$CORTADO" convert model --from=a.npz --to=a.caffemodel.h5
runs with_net 0 '' "$CORTADO" convert model --from=a.caffemodel.h5 --to=b.caffemodel --net=net.prototxt
runs back 0 '' "$CORTADO" convert model --from=b.caffemodel --to=b.npz
runs again 0 '' "$CORTADO" convert model --from=a.caffemodel.h5 --to=c.npz
is same_values cmp b.npz c.npz
runs copy 0 '' "$CORTADO" convert model --from=adam_iter_8.caffemodel --to=copy.caffemodel
is same_bytes cmp adam_iter_8.caffemodel copy.caffemodel
runs kept 2 'exists already; --force' "$CORTADO" convert model --from=a.npz --to=copy.caffemodel
runs suffix 2 'the end of the name' "$CORTADO" convert model --from=a.npz --to=a.bin
runs missing 3 '[]] none.npz: No such file or directory' "$CORTADO" convert model --from=none.npz --to=x.npz
head -c 400 a.npz >cut.npz
runs cut 3 'broken or cut zip file' "$CORTADO" convert model --from=cut.npz --to=x.npz
head -c 400 adam_iter_8.caffemodel >cut.caffemodel
runs cut_binary 3 'neither HDF5 nor a whole binary' "$CORTADO" convert model --from=cut.caffemodel --to=x.npz
sed 's/num_output: 4/num_output: 5/' net.prototxt >wide.prototxt
runs other_net 2 'shape 4 3 \(12\) in the file, 5 3 \(15\) in the net' \
    "$CORTADO" convert model --from=a.npz --to=x.caffemodel --net=wide.prototxt

solver() { # FIELDS
    cat >solver.prototxt <<END
net: "net.prototxt" base_lr: 0.05 lr_policy: "fixed" weight_decay: 0.01 delta: 0.001 random_seed: 3
solver_mode: CPU snapshot_prefix: "o" $*
END
}
solver 'max_iter: 8 type: "Adam" momentum: 0.9 snapshot: 4 snapshot_format: BINARYPROTO'
runs caffe_state 0 'resuming after 4 iterations of Caffe' \
    "$CORTADO" train --solver=solver.prototxt --snapshot=adam_iter_4.solverstate
runs caffe_state_h5 0 'resuming after 4 iterations of Caffe' \
    "$CORTADO" train --solver=solver.prototxt --snapshot=adam_h5_iter_4.solverstate.h5
runs other_type 3 'type "Adam" with this net has 2' \
    "$CORTADO" train --solver=solver.prototxt --snapshot=sgd_iter_4.solverstate
runs several_files 0 'weights of 3 layers' \
    "$CORTADO" train --solver=solver.prototxt --weights=a.npz,adam_iter_8.caffemodel
is binary_set test -s o_iter_8.caffemodel -a -s o_iter_8.solverstate -a -s o_iter_8.solverstate.h5
runs on_ranks 0 'resuming after 4 iterations of Caffe' \
    $JOB 2 "$CORTADO" train --solver=solver.prototxt --snapshot=adam_iter_4.solverstate

solver 'max_iter: 4 type: "Adam" momentum: 0.9'
runs plain_codec 0 'Optimization Done' $JOB 2 "$CORTADO" train --solver=solver.prototxt --compression=bf16
runs corrected 2 'puts the momentum of SGD or Nesterov in front' \
    "$CORTADO" train --solver=solver.prototxt --compression=redsync:momentum_correction=true
runs uncorrected 0 'Optimization Done' $JOB 2 "$CORTADO" train --solver=solver.prototxt \
    --compression=redsync:min_bytes=0,density=0.1
solver 'max_iter: 4 solver_type: NESTEROV momentum: 0.9'
runs old_type 0 'Optimization Done' "$CORTADO" train --solver=solver.prototxt

if [ -z "${CORTADO_CAFFE:-}" ]; then
    skip caffe_itself "CORTADO_CAFFE names no caffe"
    finish
fi
solver 'max_iter: 8 type: "Adam" momentum: 0.9 snapshot: 4 snapshot_format: BINARYPROTO'
runs ours 0 '' "$CORTADO" train --solver=solver.prototxt
sed 's/"o"/"r"/' solver.prototxt >theirs.prototxt
runs caffe_goes_on 0 '' "$CORTADO_CAFFE" train --solver=theirs.prototxt --snapshot=o_iter_4.solverstate
runs caffe_reads_h5 0 '' "$CORTADO_CAFFE" test --model=net.prototxt --weights=a.caffemodel.h5 --iterations=1
finish
