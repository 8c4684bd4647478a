# Old forms: read by every verb, and written anew by cortado convert net and convert solver.
. "$ROOT/tests/cli/lib.sh"
old="$ROOT/tests/golden/old"

runs net 0 '12 layers brought up' "$CORTADO" convert net --from="$old/alexnet_v0.prototxt" --to=new.prototxt
is written grep -q 'type: "Convolution"' new.prototxt
runs again 0 '' "$CORTADO" convert net --from=new.prototxt --to=same.prototxt
is unchanged cmp new.prototxt same.prototxt
runs exists 2 'new.prototxt exists already; --force replaces it' "$CORTADO" convert net --from=new.prototxt --to=new.prototxt
runs force 0 '' "$CORTADO" convert net --from=new.prototxt --to=same.prototxt --force
runs absent 3 'none.prototxt: No such file' "$CORTADO" convert net --from=none.prototxt --to=x.prototxt
runs no_folder 3 'nowhere' "$CORTADO" convert net --from=new.prototxt --to=nowhere/x.prototxt
runs needs_to 2 'to is missing' "$CORTADO" convert net --from=new.prototxt
runs solver 0 '' "$CORTADO" convert solver --from="$old/solver_old.prototxt" --to=solver.prototxt
is solver_type grep -q '^type: "AdaGrad"' solver.prototxt
is solver_net_kept grep -q '^net: "net.prototxt"' solver.prototxt
is solver_nothing_added sh -c '! grep -q snapshot_prefix solver.prototxt'
runs kind_misspelt 2 'unknown kind "nett"; did you mean "net"' "$CORTADO" convert nett --from=a --to=b

# binary: a V0 and a V1 layer in one message
printf '\n\003old\022\013\n\011\n\001r\022\004relu\022\005"\001t(\027' >old.bin
runs binary 0 '2 layers brought up' "$CORTADO" convert net --from=old.bin --to=new.bin
is binary_out sh -c 'tr -d "\000-\037" <new.bin | grep -aq ReLU'
head -c 17 old.bin >cut.bin
runs binary_cut 3 'no net, or a damaged file' "$CORTADO" convert net --from=cut.bin --to=x.bin

# an old net runs as it is
cat >lenet.prototxt <<'NET'
name: "old"
input: "data" input_dim: 2 input_dim: 1 input_dim: 12 input_dim: 12
layers { layer { name: "pad" type: "padding" pad: 2 } bottom: "data" top: "padded" }
layers { layer { name: "conv" type: "conv" num_output: 4 kernelsize: 5 blobs_lr: 1 blobs_lr: 2 } bottom: "padded" top: "conv" }
layers { layer { name: "ip" type: "innerproduct" num_output: 3 } bottom: "conv" top: "ip" }
NET
runs check_old 0 '^parameters  1835,' "$CORTADO" check --model=lenet.prototxt --phase=TEST
is padded grep -Eq '^conv +Convolution +conv +2 4 12 12 ' out
finish
