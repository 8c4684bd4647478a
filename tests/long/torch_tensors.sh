#!/bin/sh
# PyTorch's tensors in and out of nets of the Python package, through DLPack, without a copy where they are read.
# CORTADO_TRANSFORMERS names a Python that has torch and numpy; where it is not set they come from PyPI.
. "$ROOT/tests/cli/lib.sh"
python=${CORTADO_TRANSFORMERS:-$("$ROOT/scripts/test_venv.sh" numpy torch setuptools wheel)} || {
    echo "skip torch_tensors: no Python with torch"
    exit 0
}
runs wheel 0 'dist/cortado-' env PYTHON="$python" "$ROOT/scripts/wheel.sh" "$(dirname "$CORTADO")"
runs installs 0 '' "$python" -m pip install -q --disable-pip-version-check --no-deps --target=site "$(ls "$ROOT/dist/cortado-$(cat "$ROOT/VERSION")"-py3-none-*.whl)"
cat >net.prototxt <<'EOF'
name: "Tensors"
layer { name: "in" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 dim: 5 dim: 4 } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 4 kernel_size: 3 pad: 1 weight_filler { type: "xavier" } bias_filler { type: "uniform" } } }
EOF
PYTHONPATH=$PWD/site "$python" - >log 2>&1 <<'EOF'
import cortado, torch
net = cortado.Net("net.prototxt")
torch.manual_seed(3)
data = torch.randn(2, 3, 5, 4)
def is_close(name, a, b):
    print("ok" if torch.allclose(a, b, rtol=1e-5, atol=1e-6) else "not ok", name)
weight, bias = (torch.from_dlpack(net.params["conv"][i]) for i in (0, 1))
out = torch.from_dlpack(net.blobs["conv"])
net.forward(data=data)
is_close("torch_in_and_out", out, torch.nn.functional.conv2d(data, weight, bias, padding=1))
torch.from_dlpack(net.blobs["data"]).mul_(2)  # the net's own memory
weight.zero_()
net.forward()
is_close("torch_writes_to_the_net", out, bias.view(1, 4, 1, 1).expand(2, 4, 5, 4))
print("ok" if float(abs(net.blobs["data"].data - 2 * data.numpy()).max()) == 0 else "not ok", "torch_shares_memory")
del net
is_close("tensors_outlive_the_net", out[0], out[1])
EOF
is torch_ended [ $? = 0 ]
cat log
is torch_all_four [ "$(grep -c '^ok ' log)" = 4 ]
finish
