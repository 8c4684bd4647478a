#!/bin/sh
# SSD's noise_param: each field's values beside OpenCV's, the same bits on two ranks, and every refusal.
. "$ROOT/tests/cli/lib.sh"
export OMPI_MCA_rmaps_base_oversubscribe=1
for kind in png turbojpeg; do
    has "$kind" || { skip noise "built without $kind"; finish; }
done
python=$("$ROOT/scripts/test_venv.sh" numpy opencv-python-headless==5.0.0.93) || { skip noise "no numpy and OpenCV"; finish; }
"$python" "$ROOT/tests/cli/noise.py" make || not_ok made "OpenCV writes no files"
runs dumps 0 'batches of 2 samples written' "$CORTADO" time --data --model=net.prototxt --iterations=1 --dump_batches=one.npz
"$python" "$ROOT/tests/cli/noise.py" same one.npz >same 2>err || not_ok compared "$(tail -n 1 err)"
cat same
is all_compared [ "$(grep -c '^ok' same)" = 56 ]
sed 's/batch_size: 2/batch_size: 1/' net.prototxt >half.prototxt
runs dumps_on_two 0 'batches of 2 samples written' $JOB 2 "$CORTADO" time --data --model=half.prototxt --iterations=1 --dump_batches=two.npz
is same_on_two cmp one.npz two.npz

check() { # NAME EXIT-CODE PATTERN FIELDS
    cat >bad.prototxt <<EOP
layer { name: "in" type: "ImageData" top: "in" transform_param { noise_param { $4 } } image_data_param { source: "odd" batch_size: 2 } }
layer { name: "end" type: "Silence" bottom: "in" }
EOP
    runs "$1" "$2" "$3" "$CORTADO" time --data --model=bad.prototxt --iterations=1
}
check lab 2 'layer "in".*noise_param.convert_to_lab is refused: .*convert_to_hsv' 'convert_to_lab: true'
check quality 2 'noise_param.jpeg is 101' 'jpeg: 101'
check no_value 2 'saltpepper needs saltpepper_param' 'saltpepper: true saltpepper_param { fraction: 0.5 }'
check fraction 2 'fraction is 1.5, must be 0 to 1' 'saltpepper: true saltpepper_param { fraction: 1.5 value: 0 }'
check value 2 'value is 256, must be 0 to 255' 'saltpepper: true saltpepper_param { fraction: 0.5 value: 256 }'
check values 2 'has 2 value: give one, or one for each' 'saltpepper: true saltpepper_param { fraction: 0.5 value: 1 value: 2 }'
check chance 0 'noise_param.prob is 0.5 and has no effect' 'prob: 0.5 inverse: true'
window() { # NAME PATTERN FIELDS
    echo "layer { name: \"in\" type: \"WindowData\" top: \"in\" transform_param { $3 } window_data_param { source: \"odd\" batch_size: 2 } }" >bad.prototxt
    runs "$1" 2 "$2" "$CORTADO" time --data --model=bad.prototxt
}
window windows_noise 'transform_param.noise_param: windows are not augmented' 'crop_size: 20 noise_param { inverse: true }'
window windows_rectangle 'transform_param.crop_h: windows become squares' 'crop_h: 20 crop_w: 30'
finish
