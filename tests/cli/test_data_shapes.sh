# --data_shape of several data layers, and shapes of data that is not there, guessed by what reads it.
. "$ROOT/tests/cli/lib.sh"
check="$CORTADO check --phase=TRAIN --model="
shape() { # NAME TOP SHAPE: of what was printed last
    is "$1" grep -Eq "^.* $2 +$3 \\(" out
}

# ---- targets of every kind, in one layer; 4 samples
cat >targets.prototxt <<'NET'
layer { name: "d" type: "HDF5Data" top: "data" top: "y" top: "parts" top: "halves" top: "hinge" top: "map" top: "w" hdf5_data_param { source: "none" batch_size: 4 } }
layer { name: "c" type: "Convolution" bottom: "data" top: "c" convolution_param { num_output: 4 kernel_size: 3 } }
layer { name: "ip" type: "InnerProduct" bottom: "c" top: "ip" inner_product_param { num_output: 28 } }
layer { name: "l" type: "EuclideanLoss" bottom: "ip" bottom: "y" top: "l" }
layer { name: "s" type: "Slice" bottom: "parts" top: "p1" top: "p2" slice_param { slice_point: 5 } }
layer { name: "i1" type: "InnerProduct" bottom: "c" top: "i1" inner_product_param { num_output: 5 } }
layer { name: "i2" type: "InnerProduct" bottom: "c" top: "i2" inner_product_param { num_output: 7 } }
layer { name: "l1" type: "SigmoidCrossEntropyLoss" bottom: "i1" bottom: "p1" top: "l1" }
layer { name: "x2" type: "Power" bottom: "p2" top: "x2" power_param { scale: 2 } }
layer { name: "l2" type: "SmoothL1Loss" bottom: "i2" bottom: "x2" top: "l2" }
layer { name: "h" type: "Slice" bottom: "halves" top: "h1" top: "h2" }
layer { name: "l3" type: "SoftmaxWithLoss" bottom: "i1" bottom: "h1" top: "l3" }
layer { name: "l4" type: "SoftmaxWithLoss" bottom: "i2" bottom: "h2" top: "l4" }
layer { name: "l5" type: "HingeLoss" bottom: "i2" bottom: "hinge" top: "l5" }
layer { name: "l6" type: "SoftmaxWithLoss" bottom: "c" bottom: "map" top: "l6" }
layer { name: "q" type: "Silence" bottom: "w" }
NET
runs targets 0 'top "y" of layer "d" \(HDF5Data\) has 28, as layer "l" \(EuclideanLoss\) needs it' ${check}targets.prototxt --data_shape=3,8,8
shape euclidean y '4 28'
shape sliced parts '4 12'
shape halves halves '4 2'
shape hinge hinge '4'
shape map map '4 1 6 6'
shape unread w '4'
is one_line test "$(grep -c guessed out)" = 1
is assumed grep -q 'top "w" of layer "d" (HDF5Data) has one number, which nothing tells' out
runs named_wins 2 'layer "l" \(EuclideanLoss\): bottoms 0 and 1 of shapes 4 28 \(112\) and 4 27' ${check}targets.prototxt --data_shape=3x8x8,y:27
runs input_open 2 'layer "d" \(HDF5Data\): none is not there, .* of top "data" .*--data_shape=data:C,H,W' ${check}targets.prototxt
is no_guess sh -c '! grep -q guessed out'
runs both_forms 0 '' ${check}targets.prototxt --data_shape=data=3,8,8,w=2,2 --data_shape=parts:12
shape list_first data '4 3 8 8'
shape list_second w '4 2 2'
runs in_a_list 0 '' ${check}targets.prototxt --data_shape=data:1x9x9,w:2x2x2
shape list_x data '4 1 9 9'
shape list_x_second w '4 2 2 2'

# ---- a data layer of images and one of their labels; one shape without a name is the images'
cat >pixels.prototxt <<'NET'
layer { name: "im" type: "Data" top: "data" data_param { source: "none" batch_size: 2 } }
layer { name: "lab" type: "Data" top: "label" data_param { source: "none" batch_size: 2 } }
layer { name: "c" type: "Convolution" bottom: "data" top: "c" convolution_param { num_output: 4 kernel_size: 3 } }
layer { name: "l" type: "SoftmaxWithLoss" bottom: "c" bottom: "label" top: "l" }
NET
runs pixels 0 'top "label" of layer "lab" \(Data\) has 1x6x6, as layer "l" \(SoftmaxWithLoss\) needs it' ${check}pixels.prototxt --data_shape=3,8,8
shape pixels_input data '2 3 8 8'
shape pixels_label label '2 1 6 6'
runs by_layer 0 '' ${check}pixels.prototxt --data_shape=im:3x10x10
shape by_layer_label label '2 1 8 8'
runs by_layer_wrong 2 'bottom 1 \(labels\) has shape 2 2 9 9' ${check}pixels.prototxt --data_shape=im:3x8x8,lab:2x9x9
runs no_such_name 2 'no layer that reads data is called "lag" or has a top of that name' ${check}pixels.prototxt --data_shape=3,8,8 --data_shape=lag:1x8x8
sed 's/top: "label" data_param/top: "label" transform_param { crop_size: 6 } data_param/' pixels.prototxt >cropped.prototxt
runs cropped_labels 0 '' ${check}cropped.prototxt --data_shape=3,8,8
shape cropped_channel label '2 1 6 6'
# what a net compares with its own input is no guess
cat >again.prototxt <<'NET'
layer { name: "d" type: "Data" top: "data" data_param { source: "none" batch_size: 2 } }
layer { name: "f" type: "Flatten" bottom: "data" top: "f" }
layer { name: "ip" type: "InnerProduct" bottom: "f" top: "ip" inner_product_param { num_output: 12 } }
layer { name: "l" type: "EuclideanLoss" bottom: "ip" bottom: "f" top: "l" }
NET
runs autoencoder 0 '' ${check}again.prototxt --data_shape=3,2,2
is autoencoder_given sh -c '! grep -q guessed out'
runs autoencoder_open 2 '--data_shape=data:C,H,W' ${check}again.prototxt

# ---- words of a recurrent net by their marks; labels along axis 2
cat >words.prototxt <<'NET'
layer { name: "d" type: "HDF5Data" top: "cont" top: "in" top: "out" hdf5_data_param { source: "none" batch_size: 5 } }
layer { name: "e" type: "Embed" bottom: "in" top: "e" embed_param { input_dim: 10 num_output: 6 } }
layer { name: "r" type: "LSTM" bottom: "e" bottom: "cont" top: "r" recurrent_param { num_output: 7 } }
layer { name: "ip" type: "InnerProduct" bottom: "r" top: "ip" inner_product_param { num_output: 10 axis: 2 } }
layer { name: "l" type: "SoftmaxWithLoss" bottom: "ip" bottom: "out" top: "l" softmax_param { axis: 2 } }
NET
runs words 0 '' ${check}words.prototxt --data_shape=cont:3
shape words_in in '5 3'
shape words_out out '5 3'

# ---- of another phase: its data layer says the size
cat >phases.prototxt <<'NET'
layer { name: "d" type: "Data" top: "data" top: "label" include { phase: TEST } transform_param { crop_size: 9 } data_param { source: "none" batch_size: 2 } }
layer { name: "t" type: "Data" top: "data" top: "label" include { phase: TRAIN } data_param { source: "none" batch_size: 2 } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 12 } }
layer { name: "l" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "l" }
NET
runs other_phase 0 'top "data" of layer "t" \(Data\) has 3x9x9, as layer "d" \(Data\)' ${check}phases.prototxt
runs label_of_data 0 '' ${check}phases.prototxt --data_shape=label:1
runs label_too_many 2 'top "label" of layer "t" \(Data\) is one label a sample, not 4 \(4\)' ${check}phases.prototxt --data_shape=label:4

# ---- what is no shape
for bad in 3,x x 3x 3, :3 a:3,b: a:,3 0,2 a:1x1x1x1x1x1x1x1; do
    runs "bad_$bad" 2 'expected CHANNELS,HEIGHT,WIDTH' ${check}pixels.prototxt --data_shape=$bad
done

# ---- a solver's nets: a name may be of one of them alone; time and plan take the option, too
printf 'train_net: "pixels.prototxt" test_net: "words.prototxt" test_iter: 1 test_interval: 1 base_lr: 1 lr_policy: "fixed" max_iter: 1\n' >s.prototxt
runs of_solver 0 '' "$CORTADO" check --solver=s.prototxt --data_shape=im:3x8x8,cont:3
shape of_solver_test in '5 3'
runs of_time 0 'top "y" of layer "d" \(HDF5Data\) has 28, as layer "l"' \
    "$CORTADO" time --model=targets.prototxt --iterations=1 --limits=false --data_shape=3,8,8
runs of_plan 0 'top "y" of layer "d" \(HDF5Data\) has 28, as layer "l"' \
    "$CORTADO" plan --model=targets.prototxt --ranks=2 --machine=ethernet_100g --limits=50,10 --global_batch_size=8 --data_shape=3,8,8
finish
