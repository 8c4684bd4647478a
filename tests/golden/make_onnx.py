#!/usr/bin/env python3
"""Small ONNX files: operators that nets of other programs have, and files that are refused.

Usage: make_onnx.py FOLDER      writes NAME.onnx for each case; prints the names.
       make_onnx.py FOLDER bad  writes those that are refused; prints "NAME|EXIT CODE|PATTERN of the message".
"""
import sys

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

rng = numpy.random.default_rng(7)


def floats(*shape):
    return rng.standard_normal(shape).astype("f4")


def ints(*values):
    return numpy.array(values, "i8")


def case(name, nodes, constants=None, shape=(2, 4, 7, 6), opset=17, inputs=None, outputs=("y",), domain=""):
    """nodes: (op, "in in", "out out", {attributes}); the input x has that shape."""
    made = [helper.make_node(op, ["" if n == "-" else n for n in i.split()], o.split(), name=f"{o.split()[0] if o else op}_node", domain=domain, **a)
            for op, i, o, a in nodes]
    given = [helper.make_tensor_value_info(n, t, s) for n, t, s in (inputs or [("x", TensorProto.FLOAT, shape)])]
    graph = helper.make_graph(made, name, given, [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in outputs],
                              [v if isinstance(v, TensorProto) else numpy_helper.from_array(v, k) for k, v in (constants or {}).items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    with open(f"{sys.argv[1]}/{name}.onnx", "wb") as f:
        f.write(model.SerializeToString())
    return name


def one(name, op, constants=None, shape=(2, 4, 7, 6), opset=17, **attributes):
    inputs = " ".join(["x"] + list(constants or {}))
    return case(name, [(op, inputs, "y", attributes)], constants, shape, opset)


def taken():
    names = [
        # windows whose pads differ at both sides, by numbers and by auto_pad
        one("conv", "Conv", {"w": floats(5, 4, 3, 3), "b": floats(5)}, pads=[1, 0, 2, 1], strides=[2, 1]),
        one("conv_same", "Conv", {"w": floats(6, 2, 2, 4)}, group=2, auto_pad="SAME_UPPER", strides=[2, 2]),
        one("conv_lower", "Conv", {"w": floats(6, 4, 2, 4)}, auto_pad="SAME_LOWER"),
        one("conv_dilated", "Conv", {"w": floats(3, 4, 2, 2)}, dilations=[2, 3], pads=[0, 3, 0, 0]),
        one("conv_transpose", "ConvTranspose", {"w": floats(4, 3, 3, 2), "b": floats(3)}, strides=[2, 1], pads=[1, 0, 1, 0]),
        one("conv_transpose_more", "ConvTranspose", {"w": floats(4, 3, 3, 3), "b": floats(3)}, strides=[2, 3], pads=[1, 1, 1, 1],
            output_padding=[1, 2]),
        one("conv_transpose_beyond", "ConvTranspose", {"w": floats(4, 2, 2, 3), "b": floats(4)}, group=2, strides=[3, 2], dilations=[1, 2],
            output_padding=[2, 1]),
        one("conv_transpose_sides", "ConvTranspose", {"w": floats(4, 3, 4, 3)}, strides=[2, 2], pads=[2, 0, 0, 1]),
        case("pad_conv", [("Pad", "x p", "padded", {}), ("Conv", "padded w", "y", {"pads": [1, 0, 0, 0]})],
             {"p": ints(0, 0, 1, 2, 0, 0, 0, 1), "w": floats(3, 4, 3, 3)}),
        case("pad_conv_old", [("Pad", "x", "padded", {"pads": [0, 0, 0, 1, 0, 0, 1, 0]}), ("Conv", "padded w", "y", {})],
             {"w": floats(3, 4, 3, 3)}, opset=10),
        one("max_pool", "MaxPool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        one("max_pool_ceil", "MaxPool", kernel_shape=[3, 2], strides=[2, 2], ceil_mode=1),
        one("max_pool_sides", "MaxPool", kernel_shape=[3, 3], strides=[2, 2], pads=[0, 1, 1, 0]),
        one("mean_pool", "AveragePool", kernel_shape=[3, 2], strides=[2, 2]),
        one("mean_pool_pads", "AveragePool", kernel_shape=[3, 3], strides=[1, 1], pads=[1, 1, 1, 1], count_include_pad=1),
        one("norm", "BatchNormalization", {"s": floats(4), "b": floats(4), "m": floats(4), "v": abs(floats(4)) + 1}, epsilon=1e-3),
        one("norm_7", "BatchNormalization", {"s": floats(4), "b": floats(4), "m": floats(4), "v": abs(floats(4)) + 1}, opset=7),
        one("lrn", "LRN", size=3, alpha=0.5, beta=0.6, bias=2.0),
        # functions
        one("clip_6", "Clip", opset=7, min=0.0, max=6.0),
        one("clip_low", "Clip", {"low": numpy.float32(-0.5)}),
        one("leaky", "LeakyRelu", alpha=0.2),
        one("hard_sigmoid", "HardSigmoid", alpha=0.3, beta=0.4),
        one("prelu", "PRelu", {"s": floats(4, 1, 1)}),
        one("gelu_20", "Gelu", opset=20, approximate="tanh"),
        one("neg", "Neg"), one("elu", "Elu"), one("log_softmax", "LogSoftmax", axis=1),
        case("roots", [("Abs", "x", "a", {}), ("Sqrt", "a", "b", {}), ("Exp", "b", "c", {}), ("Reciprocal", "c", "y", {})]),
        # sums and products that broadcast, constants in front and behind
        one("add_channels", "Add", {"c": floats(4, 1, 1)}), one("sub_columns", "Sub", {"c": floats(6)}),
        one("mul_cross", "Mul", {"c": floats(4, 1, 6)}), one("div_number", "Div", {"c": numpy.float32(3)}),
        case("number_minus", [("Sub", "c x", "y", {})], {"c": floats(7, 1)}),
        case("number_over", [("Abs", "x", "a", {}), ("Add", "a one", "b", {}), ("Div", "c b", "y", {})],
             {"c": floats(4, 7, 6), "one": numpy.float32(1)}),
        one("power", "Pow", {"c": numpy.float32(3)}),
        case("gates", [("GlobalAveragePool", "x", "g", {}), ("Sigmoid", "g", "s", {}), ("Mul", "x s", "y", {})]),
        case("columns", [("ReduceMean", "x", "m", {"axes": [2], "keepdims": 1}), ("Sub", "x m", "y", {})]),
        case("both_ways", [("ReduceMean", "x", "m", {"axes": [1]}), ("ReduceSum", "x a", "n", {}), ("Add", "m n", "y", {})],
             {"a": ints(3)}),
        case("max_of", [("Max", "x z c", "y", {})], {"c": floats(7, 6)},
             inputs=[("x", TensorProto.FLOAT, [2, 4, 7, 6]), ("z", TensorProto.FLOAT, [2, 4, 1, 6])]),
        # shapes
        case("view", [("Shape", "x", "s", {}), ("Gather", "s zero", "n", {"axis": 0}), ("Unsqueeze", "n zeros", "n1", {}),
                      ("Concat", "n1 rest", "t", {"axis": 0}), ("Reshape", "x t", "y", {})],
             {"zero": numpy.array(0, "i8"), "zeros": ints(0), "rest": ints(-1, 6)}),
        case("parts", [("Split", "x sizes", "a b", {"axis": 1}), ("Concat", "b a", "y", {"axis": 1})], {"sizes": ints(1, 3)}),
        case("halves", [("Split", "x", "a b", {"axis": 3}), ("Mul", "a b", "y", {})], opset=11),
        case("slices", [("Slice", "x f t a s", "p", {}), ("Transpose", "p", "y", {"perm": [0, 2, 3, 1]})],
             {"f": ints(1, -3, 0), "t": ints(3, 1000, 6), "a": ints(1, 2, 3), "s": ints(1, 1, 2)}),
        case("first", [("Gather", "x i", "r", {"axis": 2}), ("Squeeze", "r", "y", {"axes": [1]})], {"i": numpy.array(-1, "i8")},
             shape=(2, 1, 7, 6), opset=11),
        case("spread", [("Expand", "x s", "e", {}), ("Tile", "e t", "y", {})], {"s": ints(2, 4, 3, 6), "t": ints(1, 2, 1, 1)},
             shape=(2, 4, 1, 6)),
        case("upsample", [("Upsample", "x f", "y", {"mode": "nearest"})], {"f": numpy.array([1, 1, 2, 3], "f4")}, opset=9),
        case("resize", [("Resize", "x - f", "y", {"mode": "nearest", "coordinate_transformation_mode": "asymmetric",
                                                  "nearest_mode": "floor"})], {"f": numpy.array([1, 1, 2, 3], "f4")}),
        case("handed_on", [("Relu", "x", "r", {}), ("Identity", "r", "y", {}), ("Dropout", "r", "z", {})], outputs=("y", "z")),
        # products
        case("gemm", [("Flatten", "x", "f", {}), ("Gemm", "f w c", "y", {"alpha": 0.5, "beta": 2.0})], {"w": floats(168, 5), "c": floats(1, 5)}),
        case("matmul", [("MatMul", "x w", "m", {}), ("Add", "b m", "y", {})], {"w": floats(6, 5), "b": floats(5)}),
        case("matmul_spread", [("Transpose", "x", "t", {"perm": [0, 1, 3, 2]}), ("MatMul", "w x", "a", {}), ("MatMul", "a t", "y", {})],
             {"w": floats(3, 7)}),
        case("softmax_7", [("Softmax", "x", "y", {})], opset=7), one("softmax", "Softmax"),
        one("layer_norm", "LayerNormalization", {"s": floats(6), "b": floats(6)}, epsilon=1e-3),
        case("layer_norm_old", [("ReduceMean", "x", "m", {"axes": [-1]}), ("Sub", "x m", "d", {}), ("Pow", "d two", "q", {}),
                                ("ReduceMean", "q", "v", {"axes": [-1]}), ("Add", "v eps", "w", {}), ("Sqrt", "w", "r", {}),
                                ("Div", "d r", "n", {}), ("Mul", "n s", "o", {}), ("Add", "o b", "y", {})],
             {"two": numpy.float32(2), "eps": numpy.float32(1e-3), "s": floats(6), "b": floats(6)}),
        case("gelu_old", [("Div", "x r", "d", {}), ("Erf", "d", "e", {}), ("Add", "e one", "p", {}), ("Mul", "x p", "q", {}),
                          ("Mul", "q half", "y", {})],
             {"r": numpy.float32(2 ** 0.5), "one": numpy.float32(1), "half": numpy.float32(0.5)}),
        # an LSTM from zeros, as PyTorch writes it; with states in and out; its last state alone
        case("lstm", [("LSTM", "x w r b", "h", {"hidden_size": 5}), ("Squeeze", "h one", "y", {})],
             {"w": floats(1, 20, 6), "r": floats(1, 20, 5), "b": floats(1, 40), "one": ints(1)}, shape=(7, 3, 6)),
        case("lstm_states", [("LSTM", "x w r - - h0 c0", "y hn cn", {"hidden_size": 5})], {"w": floats(1, 20, 6), "r": floats(1, 20, 5)},
             inputs=[("x", TensorProto.FLOAT, [7, 3, 6]), ("h0", TensorProto.FLOAT, [1, 3, 5]), ("c0", TensorProto.FLOAT, [1, 3, 5])],
             outputs=("y", "hn", "cn")),
        case("lstm_last", [("LSTM", "x w r b - h0", "h y", {"hidden_size": 5})],
             {"w": floats(1, 20, 6), "r": floats(1, 20, 5), "b": floats(1, 40), "h0": floats(1, 3, 5)}, shape=(7, 3, 6)),
        # backwards, and both ways: from zeros, with states in and out, the last states alone, one step
        case("lstm_back", [("LSTM", "x w r b", "h", {"hidden_size": 5, "direction": "reverse"}), ("Squeeze", "h one", "y", {})],
             {"w": floats(1, 20, 6), "r": floats(1, 20, 5), "b": floats(1, 40), "one": ints(1)}, shape=(7, 3, 6)),
        case("lstm_back_states", [("LSTM", "x w r - - h0 c0", "y hn cn", {"hidden_size": 5, "direction": "reverse"})], {"w": floats(1, 20, 6), "r": floats(1, 20, 5)},
             inputs=[("x", TensorProto.FLOAT, [7, 3, 6]), ("h0", TensorProto.FLOAT, [1, 3, 5]), ("c0", TensorProto.FLOAT, [1, 3, 5])],
             outputs=("y", "hn", "cn")),
        case("lstm_both", [("LSTM", "x w r b", "y", {"hidden_size": 5, "direction": "bidirectional"})],
             {"w": floats(2, 20, 6), "r": floats(2, 20, 5), "b": floats(2, 40)}, shape=(7, 3, 6)),
        case("lstm_both_states", [("LSTM", "x w r b - h0 c0", "y hn cn", {"hidden_size": 5, "direction": "bidirectional"})],
             {"w": floats(2, 20, 6), "r": floats(2, 20, 5), "b": floats(2, 40)},
             inputs=[("x", TensorProto.FLOAT, [4, 3, 6]), ("h0", TensorProto.FLOAT, [2, 3, 5]), ("c0", TensorProto.FLOAT, [2, 3, 5])],
             outputs=("y", "hn", "cn")),
        case("lstm_both_last", [("LSTM", "x w r - - h0", "h y", {"hidden_size": 5, "direction": "bidirectional"})],
             {"w": floats(2, 20, 6), "r": floats(2, 20, 5), "h0": floats(2, 3, 5)}, shape=(3, 3, 6)),
        case("lstm_one_step", [("LSTM", "x w r", "y", {"hidden_size": 5, "direction": "bidirectional"})], {"w": floats(2, 20, 6), "r": floats(2, 20, 5)}, shape=(1, 3, 6)),
        # truth, as masks have it
        case("mask", [("Greater", "x zero", "g", {}), ("Not", "g", "n", {}), ("Where", "n x low", "y", {})],
             {"zero": numpy.float32(0), "low": numpy.array(-1e30, "f4")}),
        # constants in all the types that are taken, computed before the net is
        case("types", [("Cast", "h", "h32", {"to": 1}), ("Cast", "d", "d32", {"to": 1}), ("Cast", "i", "i32", {"to": 1}),
                       ("Add", "h32 d32", "a", {}), ("Mul", "a i32", "b", {}), ("Add", "x b", "y", {})],
             {"h": floats(6).astype("f2"), "d": floats(7, 1).astype("f8"), "i": numpy.array([[3], [-2], [5], [1]], "i4").reshape(4, 1, 1)}),
        case("range", [("Range", "a b c", "r", {}), ("Cast", "r", "f", {"to": 1}), ("Mul", "x f", "y", {})],
             {"a": numpy.array(1, "i8"), "b": numpy.array(13, "i8"), "c": numpy.array(2, "i8")}),
        case("triangle", [("Trilu", "c k", "t", {"upper": 0}), ("Mul", "x t", "y", {})], {"c": floats(7, 6), "k": numpy.array(1, "i8")}),
        case("constants", [("Constant", "", "c", {"value_floats": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]}), ("Mul", "x c", "y", {})]),
        case("typed_lists", [("Add", "x c", "y", {})], {"c": helper.make_tensor("c", TensorProto.FLOAT, [6], [1, 2, 3, 4, 5, 6])}),
    ]
    for name in names:
        print(name)


def lstm(name, rows, **attributes):
    return case(name, [("LSTM", "x w r", "y", attributes)], {"w": floats(1, rows, 6), "r": floats(1, rows, 5)}, shape=(7, 3, 6))


def bad():  # of each what its message says
    rows = [
        (case("op", [("Sin", "x", "y", {})]), 'node "y_node" \\(Sin\\): this operator has no layers'),
        (one("attribute", "Relu", speed=3), 'node "y_node" \\(Relu\\): attribute "speed" is not taken; there are none'),
        (one("pool_mode", "MaxPool", kernel_shape=[2, 2], dilations=[2, 2]), "\\(MaxPool\\): dilations and Indices"),
        (one("mean_pads", "AveragePool", kernel_shape=[3, 3], pads=[1, 1, 1, 1]), "a layer's mean counts its pads"),
        (one("kernel", "Conv", {"w": floats(3, 4, 3, 3)}, kernel_shape=[2, 2]), "kernel_shape is 2 x 2, the weights"),
        (one("channels", "Conv", {"w": floats(3, 5, 3, 3)}), "weights of shape 3 5 3 3"),
        (one("transposed_pads", "ConvTranspose", {"w": floats(4, 3, 3, 3)}, auto_pad="SAME_UPPER"), "attribute auto_pad: NOTSET is taken"),
        (one("transposed_more", "ConvTranspose", {"w": floats(4, 3, 3, 3)}, strides=[2, 2], output_padding=[0, 2]), "output_padding of 2; less than"),
        (one("transposed_away", "ConvTranspose", {"w": floats(4, 3, 3, 3)}, pads=[9, 0, 9, 0]), "pads of 9 and 9 leave nothing of 9"),
        (one("transposed_channels", "ConvTranspose", {"w": floats(5, 3, 3, 3)}), "weights of shape 5 3 3 3"),
        (case("detections", [("NonMaxSuppression", "x s", "y", {})], shape=(2, 7, 4),
              inputs=[("x", TensorProto.FLOAT, (2, 7, 4)), ("s", TensorProto.FLOAT, (2, 3, 7))]), "\\(NonMaxSuppression\\): detections are taken as"),
        (one("aspect", "Resize", {"roi": floats(0), "f": floats(0), "s": ints(2, 4, 14, 12)}, opset=18,
             keep_aspect_ratio_policy="not_larger"), "attribute keep_aspect_ratio_policy: stretch is taken"),
        (case("triangle_of", [("Trilu", "x", "y", {})]), "\\(Trilu\\): it is taken of constants alone"),
        (case("computed", [("Conv", "x z", "y", {})],
              inputs=[("x", TensorProto.FLOAT, [2, 4, 7, 6]), ("z", TensorProto.FLOAT, [2, 4, 3, 3])]), "the weights are computed"),
        (lstm("direction", 20, direction="sideways"), "direction: forward, reverse and bidirectional are taken"),
        (lstm("directions", 20, direction="bidirectional"), "W is computed, or of shape 1 20 6"),
        (case("lstm_back_long", [("LSTM", "x w r", "y", {"hidden_size": 5, "direction": "reverse"})], {"w": floats(1, 20, 1), "r": floats(1, 20, 5)},
              shape=(4097, 1, 1)), "4097 steps backwards; at most 4096 are taken"),
        (lstm("lstm_layout", 20, layout=1), "layout 0 and input_forget 0 are taken"),
        (lstm("lstm_clip", 20, clip=1.0), "a layer has sigmoid and tanh"),
        (lstm("lstm_rows", 21), "W is computed, or of shape 1 21 6"),
        (lstm("lstm_size", 20, hidden_size=4), "hidden_size is another than that of R, 5"),
        (case("lstm_lengths", [("LSTM", "x w r - n", "y", {})],
              {"w": floats(1, 20, 6), "r": floats(1, 20, 5), "n": numpy.array([7, 7, 7], "i4")}, shape=(7, 3, 6)), "neither lengths"),
        (case("lstm_state", [("LSTM", "x w r - - h", "y", {})],
              {"w": floats(1, 20, 6), "r": floats(1, 20, 5), "h": floats(1, 2, 5)}, shape=(7, 3, 6)), "1 3 5 is wanted"),
        (case("lstm_bias", [("LSTM", "x w r b", "y", {})],
              {"w": floats(1, 20, 6), "r": floats(1, 20, 5), "b": floats(1, 20)}, shape=(7, 3, 6)), "B is computed, or of shape 1 20"),
        (case("lstm_long", [("LSTM", "x w r", "y", {})], {"w": floats(1, 20, 1), "r": floats(1, 20, 5)}, shape=(4000000000, 1, 1)),
         'its constant "cont" has shape 4000000000 1.*at most 268435456 values'),
        (case("gru", [("GRU", "x w r", "y", {})], {"w": floats(1, 15, 6), "r": floats(1, 15, 5)}, shape=(7, 3, 6)),
         "\\(GRU\\): this operator has no layers"),
        (case("order", [("Relu", "later", "y", {}), ("Relu", "x", "later", {})]), 'input 0, "later", is made by no node before'),
        (case("twice", [("Relu", "x", "y", {}), ("Tanh", "x", "y", {})]), 'two values are called "y"'),
        (case("domain", [("Relu", "x", "y", {})], domain="com.other"), 'an operator of "com.other"'),
        (case("opset", [("Relu", "x", "y", {})], opset=6), "opset 6; those of 7 to 21"),
        (case("count", [("Add", "x", "y", {})]), "1 inputs; 2 to 2 are taken"),
        (case("no_output", [("Relu", "x", "z", {})]), 'output "y" is made by no node'),
        (case("pad_relu", [("Pad", "x p", "q", {}), ("Relu", "q", "y", {})], {"p": ints(0, 0, 1, 1, 0, 0, 1, 1)}),
         "it reads a Pad; that is taken before Conv alone"),
        (case("pad_value", [("Pad", "x p v", "y", {})], {"p": ints(0, 0, 1, 1, 0, 0, 1, 1), "v": numpy.float32(1)}),
         "mode constant with the value 0"),
        (case("open", [("Relu", "x", "y", {})], shape=("n", "t")), 'axis 1 of input "x" has no size, but the name "t"; give it by --sizes'),
        (case("shapes", [("Add", "x c", "y", {})], {"c": floats(5)}), "shapes 2 4 7 6 .* and 5 .* do not go together"),
        (case("fill", [("Reshape", "x s", "y", {})], {"s": ints(5, -1)}), "do not fill"),
        (case("axes", [("Transpose", "x", "y", {"perm": [0, 1, 1, 2]})]), "perm is not an order of 4 axes"),
        (case("large", [("Expand", "c s", "e", {}), ("Add", "x e", "y", {})], {"c": floats(1), "s": ints(1 << 30, 1 << 30)}), "has a size of"),
        (case("type", [("Add", "x c", "y", {})], {"c": helper.make_tensor("c", TensorProto.UINT32, [1], [1])}), 'initializer "c" has the type 12'),
        (case("short", [("Add", "x c", "y", {})], {"c": TensorProto(name="c", dims=[3], data_type=1, raw_data=b"1234")}),
         'initializer "c" has 4 bytes, its shape and type 12'),
        (case("outside", [("Add", "x c", "y", {})], {"c": TensorProto(
            name="c", dims=[3], data_type=1, data_location=1,
            external_data=[onnx.StringStringEntryProto(key="location", value="../c")])}), "a name without folders"),
        (case("length", [("Add", "x c", "y", {})], {"c": TensorProto(
            name="c", dims=[3], data_type=1, data_location=1,
            external_data=[onnx.StringStringEntryProto(key="location", value="none.bin"),
                           onnx.StringStringEntryProto(key="length", value="8")])}), 'has 8 bytes in "none.bin", its shape and type 12'),
        (case("beside", [("Add", "x c", "y", {})], {"c": TensorProto(
            name="c", dims=[3], data_type=1, data_location=1,
            external_data=[onnx.StringStringEntryProto(key="location", value="none.bin")])}), "wants 12 bytes from byte 0"),
        (one("argmax", "ArgMax", axis=1), "select_last_index is 0"),
        (one("power_of", "Pow", {"c": floats(6)}), "a power is one constant number"),
    ]
    damaged = {"twice", "no_output", "large", "short", "outside", "beside", "length"}  # files, not nets: exit code 3
    for name, pattern in rows:
        print(f"{name}|{3 if name in damaged else 2}|{pattern}")


bad() if len(sys.argv) > 2 else taken()
