"""The package: arrays that are the net's memory, runs, solvers, errors. python -m unittest, with cortado to be imported."""
import copy
import gc
import importlib.util
import os
import sys
import tempfile
import threading
import unittest

import numpy

import cortado
from cortado import layers as L
from cortado import params as P

NET = """name: "tiny"
layer { name: "in" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 dim: 8 dim: 6 } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 8 kernel_size: 3 pad: 1 weight_filler { type: "msra" } bias_filler { type: "gaussian" std: 0.1 } } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "pool" type: "Pooling" bottom: "conv" top: "pool" pooling_param { pool: AVE global_pooling: true } }
layer { name: "ip" type: "InnerProduct" bottom: "pool" top: "ip" inner_product_param { num_output: 5 weight_filler { type: "xavier" } } }
layer { name: "prob" type: "Softmax" bottom: "ip" top: "prob" }
"""
TWO = """layer { name: "a" type: "Input" top: "a" input_param { shape { dim: 1 dim: 2 } } }
layer { name: "b" type: "Input" top: "b" input_param { shape { dim: 1 dim: 2 } } }
layer { name: "sum" type: "Eltwise" bottom: "a" bottom: "b" top: "sum" }
"""
IMAGES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "images")
LEARNS = """net_param { layer { name: "in" type: "DummyData" top: "data" top: "label" dummy_data_param {
  shape { dim: 6 dim: 2 dim: 7 dim: 5 } shape { dim: 6 } data_filler { type: "gaussian" std: 1 } data_filler { value: 2 } } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 3 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" } }
base_lr: 0.02 lr_policy: "fixed" max_iter: 8 random_seed: 5 snapshot_after_train: false test_iter: 1 test_interval: 100
test_initialization: false snapshot_prefix: "s"
"""


def reference(data, params):
    """The net of NET, by NumPy."""
    w, b = (p.data for p in params["conv"])
    padded = numpy.pad(data, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = numpy.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    conv = numpy.maximum(numpy.einsum("nchwij,kcij->nkhw", windows, w, dtype=numpy.float64) + b[:, None, None], 0)
    w, b = (p.data for p in params["ip"])
    scores = conv.mean(axis=(2, 3)) @ w.T.astype(numpy.float64) + b
    e = numpy.exp(scores - scores.max(axis=1, keepdims=True))
    return conv, e / e.sum(axis=1, keepdims=True)


class Nets(unittest.TestCase):
    def setUp(self):
        self.random = numpy.random.default_rng(1)

    def test_names(self):
        net = cortado.Net.from_text(NET)
        self.assertEqual(net.name, "tiny")
        self.assertEqual(list(net.blobs), ["data", "conv", "pool", "ip", "prob"])
        self.assertEqual((net.inputs, net.outputs), (["data"], ["prob"]))
        self.assertEqual(net.layer_names, ["in", "conv", "relu", "pool", "ip", "prob"])
        self.assertEqual(net.layer_types[1], "Convolution")
        self.assertEqual(list(net.params), ["conv", "ip"])
        self.assertEqual(net.params["conv"][0].shape, (8, 3, 3, 3))
        self.assertEqual(net.blobs["conv"].shape, (2, 8, 8, 6))

    def test_forward_is_numpys(self):
        net = cortado.Net.from_text(NET)
        data = self.random.standard_normal((2, 3, 8, 6)).astype(numpy.float32)
        out = net.forward(data=data)
        conv, prob = reference(data, net.params)
        numpy.testing.assert_allclose(out["prob"], prob, rtol=1e-5)
        numpy.testing.assert_allclose(net.blobs["conv"].data, conv, rtol=1e-4, atol=1e-5)
        self.assertEqual(out["prob"].dtype, numpy.float32)
        # what is written to memory counts
        net.blobs["data"].data[...] = 2 * data
        net.params["ip"][1].data[...] = numpy.arange(5)
        out = net.forward(blobs=["pool"])
        numpy.testing.assert_allclose(out["prob"], reference(2 * data, net.params)[1], rtol=1e-5)
        self.assertEqual(out["pool"].shape, (2, 8, 1, 1))
        # from a layer on
        net.blobs["ip"].data[...] = 0
        numpy.testing.assert_allclose(net.forward(start="prob")["prob"], 0.2, rtol=1e-6)
        self.assertEqual(list(net.forward(end="pool")), ["pool"])

    def test_arrays_keep_the_net(self):
        net = cortado.Net.from_text(NET)
        prob = net.forward(data=self.random.standard_normal((2, 3, 8, 6)))["prob"]
        kept = prob.copy()
        del net
        gc.collect()
        numpy.testing.assert_array_equal(prob, kept)

    def test_reshape(self):
        net = cortado.Net.from_text(NET)
        held = net.blobs["data"].data
        held[...] = 3
        with self.assertRaisesRegex(cortado.Error, 'input "data": axis 2 of -4 elements'):
            net.blobs["data"].reshape(5, 3, -4, 4)
        net.blobs["data"].reshape(5, 3, 4, 4)
        self.assertEqual((held.shape, float(held.sum())), ((2, 3, 8, 6), 3 * 288))
        self.assertEqual(net.blobs["data"].shape, (5, 3, 4, 4))
        data = self.random.standard_normal((5, 3, 4, 4)).astype(numpy.float32)
        numpy.testing.assert_allclose(net.forward(data=data)["prob"], reference(data, net.params)[1], rtol=1e-5)
        with self.assertRaisesRegex(ValueError, r'input "data" has shape \(5, 3, 4, 4\), not \(1,\)'):
            net.forward(data=[1])
        with self.assertRaisesRegex(ValueError, 'the net has no input "image": data'):
            net.forward(image=[1])

    def test_dlpack(self):
        class Tensor:
            """What has DLPack alone."""

            def __init__(self, values):
                self.values = values

            def __dlpack__(self, **how):
                return self.values.__dlpack__(**how)

            def __dlpack_device__(self):
                return self.values.__dlpack_device__()

        net = cortado.Net.from_text(NET)
        shared = numpy.from_dlpack(net.blobs["data"])
        net.blobs["data"].data[...] = 4
        self.assertEqual((float(shared.mean()), shared.shape), (4, (2, 3, 8, 6)))
        numpy.testing.assert_array_equal(numpy.from_dlpack(net.params["ip"][0]), net.params["ip"][0].data)
        data = self.random.standard_normal((2, 3, 8, 6)).astype(numpy.float32)
        numpy.testing.assert_array_equal(net.forward(data=Tensor(data))["prob"].copy(), net.forward(data=data)["prob"])
        net.blobs["data"].reshape(1, 3, 8, 6)
        del net
        gc.collect()
        numpy.testing.assert_array_equal(shared, data)

    def test_inputs_change_together(self):
        net = cortado.Net.from_text(TWO)
        with self.assertRaisesRegex(cortado.Error, "shape"):
            net.reshape("a", (4, 2))
        net.reshape({"a": (4, 2), "b": (4, 2)})
        numpy.testing.assert_array_equal(net.forward(a=numpy.ones((4, 2)), b=numpy.ones((4, 2)))["sum"], 2)

    def test_pictures(self):
        image = cortado.read_image(os.path.join(IMAGES, "plain.jpg"))
        gray = cortado.read_image(os.path.join(IMAGES, "plain.jpg"), color=False)
        self.assertEqual((image.dtype, image.shape[2], gray.shape), (numpy.uint8, 3, image.shape[:2] + (1,)))
        numpy.testing.assert_allclose(gray[..., 0], image @ [0.299, 0.587, 0.114], atol=3)
        with self.assertRaisesRegex(OSError, "/nowhere/cat.jpg"):
            cortado.read_image("/nowhere/cat.jpg")
        with self.assertRaisesRegex(cortado.Error, "test_cortado.py"):
            cortado.read_image(__file__)

    def test_weights_in_files(self):
        net, other = cortado.Net.from_text(NET), cortado.Net.from_text(NET)
        net.params["conv"][0].data[...] = 3
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "w.npz")
            net.save(file)
            with numpy.load(file) as arrays:
                numpy.testing.assert_array_equal(arrays["conv/0"], net.params["conv"][0].data)
            other.load(file)
        numpy.testing.assert_array_equal(other.params["conv"][0].data, 3)

    def test_errors(self):
        with self.assertRaisesRegex(OSError, "nowhere/net.prototxt"):
            cortado.Net("/nowhere/net.prototxt")
        with self.assertRaisesRegex(cortado.Error, "x.prototxt:1:.*did you mean") as e:
            cortado.Net.from_text('layer { name: "a" typ: "Input" }', name="x.prototxt")
        self.assertEqual(e.exception.status, "CORTADO_ERR_CONFIG")
        net = cortado.Net.from_text(NET)
        with self.assertRaisesRegex(ValueError, 'did you mean "conv"'):
            net.blobs["con"]
        with self.assertRaisesRegex(cortado.Error, "forward alone"):
            net.backward()
        with self.assertRaisesRegex(cortado.Error, "has no gradient"):
            net.blobs["conv"].diff
        lines = []
        cortado.log_to(lines.append)
        with self.assertRaises(OSError):
            net.load("/nowhere/w.npz")
        cortado.log_to(None)
        self.assertTrue(any("/nowhere/w.npz" in line for line in lines))
        with self.assertRaises(ValueError):
            cortado.set_threads(-1)
        with self.assertRaisesRegex(ValueError, "error, warn, info, debug"):
            cortado.log_to(print, "loud")


class Misuse(unittest.TestCase):
    """Whatever a program does, it gets an error, and goes on."""

    def test_arguments(self):
        net = cortado.Net.from_text(NET)
        for kind, text, call in ((ValueError, "a NUL in b'a", lambda: cortado.Net("a\0b")),
                                 (ValueError, "a NUL in", lambda: net.load("w\0.npz")),
                                 (ValueError, "a NUL in", lambda: net.forward(start="prob\0")),
                                 (ValueError, "phase 7: 0 to 1", lambda: cortado.Net.from_text(NET, phase=7)),
                                 (TypeError, "phase: a whole number is expected, not 'TEST'", lambda: cortado.Net.from_text(NET, phase="TEST")),
                                 (TypeError, "a blob's name is expected, not 3", lambda: net.blobs[3]),
                                 (TypeError, "whose weights it is to have is a int", lambda: net.share_with(3)),
                                 (ValueError, "threads 1099511627776: 0 to 4096", lambda: cortado.set_threads(2 ** 40)),
                                 (TypeError, "seed: a whole number", lambda: cortado.set_random_seed(1.5)),
                                 (cortado.Error, "too large", lambda: net.reshape("data", (1 << 62, 3, 8, 6))),
                                 (cortado.Error, "neither HDF5 nor", lambda: net.load(__file__)),
                                 (OSError, "/proc/nowhere/w.npz", lambda: net.save("/proc/nowhere/w.npz"))):
            with self.assertRaisesRegex(kind, text):
                call()
        self.assertTrue(numpy.isnan(net.forward(data=numpy.full((2, 3, 8, 6), numpy.nan))["prob"]).all())
        self.assertTrue(numpy.isfinite(net.forward(data=numpy.ones((2, 3, 8, 6)))["prob"]).all())
        with self.assertRaises(TypeError):  # a copy would stand on a net that it does not keep
            copy.deepcopy(net)

    def test_nets_in_threads(self):
        """Nets of their own run at the same time; calls on one come one after the other."""
        data = numpy.random.default_rng(1).standard_normal((2, 3, 8, 6)).astype(numpy.float32)
        nets = [cortado.Net.from_text(NET) for _ in range(2)]
        want, wrong = nets[0].forward(data=data)["prob"].copy(), []

        def run(net):
            for i in range(60):
                if not numpy.array_equal(net.forward(blobs=["pool"], data=data)["prob"], want):
                    wrong.append(i)
                try:
                    net.blobs["con"]
                except ValueError as e:
                    wrong.extend([e] if "conv" not in str(e) else [])

        threads = [threading.Thread(target=run, args=(nets[i % 2],)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_files_that_change(self):
        """A net has its weights, whatever becomes of the file; what is cut off is an error."""
        data = numpy.random.default_rng(1).standard_normal((2, 3, 8, 6)).astype(numpy.float32)
        net = cortado.Net.from_text(NET)
        want = net.forward(data=data)["prob"].copy()
        with tempfile.TemporaryDirectory() as folder:
            for suffix in ("safetensors", "npz", "caffemodel", "caffemodel.h5"):
                file = os.path.join(folder, "w." + suffix)
                net.save(file)
                other = cortado.Net.from_text(NET, file)
                with open(file, "r+b") as f:
                    f.truncate(os.path.getsize(file) // 2)
                numpy.testing.assert_array_equal(other.forward(data=data)["prob"], want)
                with self.assertRaisesRegex(cortado.Error, "w." + suffix):
                    other.load(file)
                numpy.testing.assert_array_equal(other.forward()["prob"], want)


class Specs(unittest.TestCase):
    """Nets written in Python."""

    def test_a_net_is_written_and_runs(self):
        n = cortado.NetSpec()
        n.data = L.Input(shape=dict(dim=[2, 3, 8, 6]))
        n.conv = L.Convolution(n.data, num_output=8, kernel_size=3, pad=1, weight_filler=dict(type="msra"), param=[dict(lr_mult=1)])
        n.relu = L.ReLU(n.conv, in_place=True)
        n.pool = L.Pooling(n.relu, pool=P.Pooling.AVE, global_pooling=True)
        n.prob = L.Softmax(L.InnerProduct(n.pool, num_output=5, weight_filler=dict(type="xavier")))
        text = n.to_text("spec")
        self.assertIn('name: "conv"\n  type: "Convolution"\n  bottom: "data"\n  top: "conv"\n', text)
        self.assertIn("pool: AVE", text)
        self.assertEqual(str(n), n.to_text())
        net = cortado.Net.from_text(text)
        self.assertEqual(net.name, "spec")
        self.assertEqual(net.layer_names, ["data", "conv", "relu", "pool", "InnerProduct1", "prob"])
        self.assertEqual(list(net.blobs), ["data", "conv", "pool", "InnerProduct1", "prob"])
        data = numpy.random.default_rng(1).standard_normal((2, 3, 8, 6)).astype(numpy.float32)
        net.params["ip"] = net.params["InnerProduct1"]
        numpy.testing.assert_allclose(net.forward(data=data)["prob"], reference(data, net.params)[1], rtol=1e-5)

    def test_layers_of_no_and_of_several_tops(self):
        n = cortado.NetSpec()
        n.a, n.b = L.DummyData(ntop=2, shape=[dict(dim=[2, 3]), dict(dim=2)], data_filler=dict(type="constant", value=0.5))
        n.quiet = L.Silence(n.b, ntop=0)
        n.loss = L.EuclideanLoss(n.a, n.a, loss_weight=3, include=dict(phase=0))
        n.update("loss", dict(loss_weight=2.5))
        text = n.to_text()
        self.assertIn('name: "quiet"\n  type: "Silence"\n  bottom: "b"\n}', text)
        self.assertIn("loss_weight: 2.5\n  include {\n    phase: TRAIN\n  }", text)
        self.assertEqual(text.count("shape {"), 2)
        self.assertEqual(cortado.Net.from_text(text, phase=cortado.TRAIN).forward()["loss"], 0)

    def test_deep_nets(self):
        top = L.Input(shape=dict(dim=[1, 2]))
        for _ in range(3000):
            top = L.ReLU(top)
        self.assertEqual(top.to_text().count("layer {"), 3001)

    def test_errors(self):
        data = L.Input(shape=dict(dim=[1]))
        for text, make in ((r"Convolution: there is no field 'num_outputs'; did you mean \"num_output\"", lambda: L.Convolution(data, num_outputs=2)),
                           (r"Convolution.weight_filler: there is no field 'typ'; did you mean \"type\"", lambda: L.Convolution(data, weight_filler=dict(typ="x"))),
                           ("Pooling.pool: expected one of MAX, AVE, STOCHASTIC, not 'MIN'", lambda: L.Pooling(data, pool="MIN")),
                           ("Convolution.num_output: expected a whole number, 0 or more, not -1", lambda: L.Convolution(data, num_output=-1)),
                           ("Convolution.num_output: expected one value", lambda: L.Convolution(data, num_output=[1, 2])),
                           ("Dropout.dropout_ratio: expected a number, not 'a'", lambda: L.Dropout(data, dropout_ratio="a")),
                           ("Data.source: expected a string, not 3", lambda: L.Data(source=3)),
                           ("InnerProduct.bias_term: expected True or False, not 'no'", lambda: L.InnerProduct(data, bias_term="no")),
                           ("Convolution.weight_filler: expected a dict of fields, not 3", lambda: L.Convolution(data, weight_filler=3)),
                           ("ReLU: a bottom is the top of a layer, not 'data'", lambda: L.ReLU("data")),
                           ("Eltwise: in_place with 2 bottoms and 1 tops", lambda: L.Eltwise(data, data, in_place=True))):
            with self.assertRaisesRegex(ValueError, text):
                make()
        n = cortado.NetSpec()
        n.conv = L.ReLU(data)
        with self.assertRaisesRegex(AttributeError, 'no blob \'conf\'; did you mean "conv"'):
            n.conf
        with self.assertRaisesRegex(ValueError, "x: a top of a layer is expected"):
            n.x = L.DummyData(ntop=2)
        with self.assertRaisesRegex(AttributeError, "there is no message PoolParameter"):
            P.Pool


LAYERS = """
import numpy
import cortado


class Euclid(cortado.Layer):
    '''Half the mean squared distance of two bottoms.'''

    def setup(self, bottom, top):
        if len(bottom) != 2:
            raise ValueError("two bottoms, please")

    def reshape(self, bottom, top):
        self.distance = numpy.zeros_like(bottom[0].data)
        top[0].reshape()

    def forward(self, bottom, top):
        self.distance[...] = bottom[0].data - bottom[1].data
        top[0].data[...] = (self.distance ** 2).sum() / bottom[0].num / 2

    def backward(self, top, propagate_down, bottom):
        for i, sign in ((0, 1), (1, -1)):
            if propagate_down[i]:
                bottom[i].diff[...] = sign * self.distance / bottom[i].num


class Count:
    '''Batches of param_str samples: the number of the batch.'''

    def setup(self, bottom, top):
        self.n = 0
        top[0].reshape(int(self.param_str), 2)

    def reshape(self, bottom, top):
        pass

    def forward(self, bottom, top):
        top[0].data[...] = self.n
        self.n += 1


class Dense(cortado.Layer):
    '''InnerProduct: param_str outputs of all that a sample has.'''

    def setup(self, bottom, top):
        n, k = int(self.param_str), bottom[0].count // bottom[0].num
        self.blobs.add_blob(n, k, filler=dict(type="xavier"))
        self.blobs.add_blob(n)

    def reshape(self, bottom, top):
        top[0].reshape(bottom[0].num, self.blobs[0].shape[0])

    def forward(self, bottom, top):
        self.x = bottom[0].data.reshape(bottom[0].num, -1)
        top[0].data[...] = self.x @ self.blobs[0].data.T + self.blobs[1].data

    def backward(self, top, propagate_down, bottom):
        self.blobs[0].diff[...] = top[0].diff.T @ self.x
        self.blobs[1].diff[...] += top[0].diff.sum(axis=0)
        if propagate_down[0]:
            bottom[0].diff[...] = (top[0].diff @ self.blobs[0].data).reshape(bottom[0].shape)


class Curve:
    '''As Caffe's classes are written: y = a tanh(b x), a and b a column each.'''

    def setup(self, bottom, top):
        for value in (0.5, 1.25):
            self.blobs.add_blob(bottom[0].shape[1])
            self.blobs[len(self.blobs) - 1].data[...] = value + 0.1 * numpy.arange(bottom[0].shape[1])

    def reshape(self, bottom, top):
        assert self.blobs[0].data[0] == 0.5
        top[0].reshape(*bottom[0].shape)

    def forward(self, bottom, top):
        a, b = (blob.data for blob in self.blobs)
        top[0].data[...] = a * numpy.tanh(b * bottom[0].data)

    def backward(self, top, propagate_down, bottom):
        a, b = (blob.data for blob in self.blobs)
        t = numpy.tanh(b * bottom[0].data)
        self.blobs[0].diff[...] += (top[0].diff * t).sum(axis=0)
        self.blobs[1].diff[...] += (top[0].diff * a * (1 - t * t) * bottom[0].data).sum(axis=0)
        bottom[0].diff[...] = top[0].diff * a * b * (1 - t * t)


class Wrong(cortado.Layer):
    '''What param_str says, in setup().'''

    def setup(self, bottom, top):
        exec(self.param_str)

    def reshape(self, bottom, top):
        top[0].reshape(*bottom[0].shape)

    def forward(self, bottom, top):
        exec(self.param_str.replace("setup", "forward"))


class Bad(cortado.Layer):
    def reshape(self, bottom, top):
        top[0].reshape(*bottom[0].shape)

    def forward(self, bottom, top):
        if self.param_str == "stop":
            raise KeyboardInterrupt
        if self.param_str == "shape":
            top[0].reshape(1)
        bottom[0].diff
"""


class PythonLayers(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        with open(os.path.join(folder.name, "layers_of_test.py"), "w") as f:
            f.write(LAYERS)
        sys.path.insert(0, folder.name)
        self.addCleanup(sys.path.remove, folder.name)
        self.addCleanup(sys.modules.pop, "layers_of_test", None)
        self.folder = folder.name

    def python(self, layer, *bottoms, **fields):
        return L.Python(*bottoms, module="layers_of_test", layer=layer, **fields)

    def learner(self, layer):
        n = cortado.NetSpec()
        n.data, n.want = L.DummyData(ntop=2, shape=[dict(dim=[6, 4]), dict(dim=[6, 3])], data_filler=dict(type="gaussian"))
        n.ip = L.InnerProduct(n.data, num_output=3, weight_filler=dict(type="xavier"))
        n.loss = layer(n.ip, n.want)
        with open(os.path.join(self.folder, "net.prototxt"), "w") as f:
            f.write(n.to_text())
        file = os.path.join(self.folder, "solver.prototxt")
        with open(file, "w") as f:
            f.write(f'net: "{self.folder}/net.prototxt" base_lr: 0.1 lr_policy: "fixed" max_iter: 5 random_seed: 3 snapshot_after_train: false')
        solver = cortado.Solver(file, keep=True)
        solver.step(5)
        return solver

    def test_a_loss_learns_as_the_one_in_c(self):
        mine = self.learner(lambda *bottoms: self.python("Euclid", *bottoms, loss_weight=1))
        theirs = self.learner(L.EuclideanLoss)
        numpy.testing.assert_allclose(mine.net.params["ip"][0].data, theirs.net.params["ip"][0].data, rtol=1e-4, atol=1e-6)
        numpy.testing.assert_allclose(mine.net.blobs["loss"].data, theirs.net.blobs["loss"].data, rtol=1e-5)
        numpy.testing.assert_allclose(mine.net.blobs["ip"].diff, theirs.net.blobs["ip"].diff, rtol=1e-4, atol=1e-7)

    def solver(self, make, more="", seed=3):
        """A solver of the net that make(data) ends; data is the same in all."""
        n = cortado.NetSpec()
        n.data, n.want = L.DummyData(ntop=2, shape=[dict(dim=[6, 4]), dict(dim=[6, 3])], data_filler=dict(type="gaussian"))
        n.top = make(n.data)
        n.loss = L.EuclideanLoss(n.top, n.want)
        with open(os.path.join(self.folder, "net.prototxt"), "w") as f:
            f.write(n.to_text())
        file = os.path.join(self.folder, "solver.prototxt")
        with open(file, "w") as f:
            f.write(f'net: "{self.folder}/net.prototxt" base_lr: 0.1 lr_policy: "fixed" momentum: 0.9 weight_decay: 0.001 max_iter: 9 '
                    f'snapshot_prefix: "{self.folder}/s" random_seed: {seed} snapshot_after_train: false {more}')
        return cortado.Solver(file, keep=True)

    def test_weights_learn_as_those_of_c(self):
        """An InnerProduct in Python beside the one in C: the same first bits; then NumPy's products round otherwise."""
        for more in ("", "iter_size: 3"):
            mine = self.solver(lambda x: self.python("Dense", x, name="ip", param_str="3", param=[dict(lr_mult=1), dict(lr_mult=2)]), more)
            theirs = self.solver(lambda x: L.InnerProduct(x, name="ip", num_output=3, weight_filler=dict(type="xavier"),
                                                          param=[dict(lr_mult=1), dict(lr_mult=2)]), more)
            self.assertEqual([w.shape for w in mine.net.params["ip"]], [(3, 4), (3,)])
            first = mine.net.params["ip"][0].data.copy()
            numpy.testing.assert_array_equal(first, theirs.net.params["ip"][0].data)
            for _ in range(9):
                mine.step(1)
                theirs.step(1)
                for a, b in zip(mine.net.params["ip"], theirs.net.params["ip"]):
                    numpy.testing.assert_allclose(a.data, b.data, rtol=1e-5, atol=1e-6)
                    numpy.testing.assert_allclose(a.diff, b.diff, rtol=1e-5, atol=1e-6)
            self.assertGreater(numpy.abs(first - mine.net.params["ip"][0].data).max(), 0.05)

    def test_gradients_of_weights(self):
        """Central differences in the weights of a layer, and in what it reads."""
        n = cortado.NetSpec()
        n.x = L.Input(shape=dict(dim=[5, 3]))
        n.y = self.python("Curve", n.x)
        n.loss = L.Reduction(L.Power(n.y, power=2), operation=P.Reduction.SUM, loss_weight=1)
        net = cortado.Net.from_text("force_backward: true\n" + n.to_text())
        random = numpy.random.default_rng(2)
        net.blobs["x"].data[...] = random.standard_normal((5, 3))
        net.forward()
        net.backward()
        for values, got in [(w.data, w.diff.copy()) for w in net.params["y"]] + [(net.blobs["x"].data, net.blobs["x"].diff.copy())]:
            want, h = numpy.zeros_like(got), 1e-2
            for i in numpy.ndindex(*values.shape):
                kept, ends = values[i], []
                for sign in (1, -1):
                    values[i] = kept + numpy.float32(sign * h)
                    net.forward()
                    y = net.blobs["y"].data.astype(numpy.float64)
                    ends.append((y ** 2).sum())
                values[i] = kept
                want[i] = (ends[0] - ends[1]) / (2 * h)
            # differences of h = 0.01 are off by h^2 / 6 of a third derivative, here below 20; sums of squares by 1e-7 / h
            numpy.testing.assert_allclose(got, want, rtol=2e-3, atol=2e-3)

    def test_weights_that_are_shared_add_up(self):
        """Two layers of one weight, as one layer that is read twice."""
        names = [dict(name="w"), dict(name="b")]
        def twice(make):
            def top(x):
                return L.Eltwise(make(x, name="ip"), make(L.Power(x, scale=0.5), name="again"))
            return top
        mine = self.solver(twice(lambda x, name: self.python("Dense", x, name=name, param_str="3", param=names)))
        theirs = self.solver(twice(lambda x, name: L.InnerProduct(x, name=name, num_output=3, weight_filler=dict(type="xavier"), param=names)))
        mine.step(4)
        theirs.step(4)
        for a, b in zip(mine.net.params["ip"], theirs.net.params["ip"]):
            numpy.testing.assert_allclose(a.data, b.data, rtol=1e-5, atol=1e-6)

    def test_weights_are_the_nets(self):
        """Snapshots, files, other nets: as of any layer."""
        solver = self.solver(lambda x: self.python("Curve", self.python("Dense", x, param_str="3", name="ip"), name="curve"))
        numpy.testing.assert_allclose(solver.net.params["curve"][1].data, [1.25, 1.35, 1.45])
        solver.step(3)
        solver.snapshot()
        solver.step(2)
        other = cortado.Solver(os.path.join(self.folder, "solver.prototxt"))
        other.restore()
        other.step(2)
        self.assertEqual(other.checksum, solver.checksum)
        file = os.path.join(self.folder, "w.caffemodel")
        solver.net.save(file)
        net = cortado.Net(os.path.join(self.folder, "net.prototxt"), file)
        for layer in ("ip", "curve"):
            for a, b in zip(net.params[layer], solver.net.params[layer]):
                numpy.testing.assert_array_equal(a.data, b.data)
        lent = cortado.Net(os.path.join(self.folder, "net.prototxt"))
        lent.share_with(net)
        net.params["curve"][0].data[...] = 7
        numpy.testing.assert_array_equal(lent.params["curve"][0].data, 7)
        self.assertLess(numpy.abs(lent.forward(blobs=["top"])["top"]).max(), 7.0001)
        numpy.testing.assert_array_equal(lent.blobs["top"].data, net.forward(blobs=["top"])["top"])

    def test_weights_that_do_not_learn(self):
        solver = self.solver(lambda x: self.python("Dense", x, name="ip", param_str="3", param=[dict(lr_mult=0), dict(lr_mult=1)]))
        first = [w.data.copy() for w in solver.net.params["ip"]]
        solver.step(3)
        numpy.testing.assert_array_equal(solver.net.params["ip"][0].data, first[0])
        self.assertGreater(numpy.abs(solver.net.params["ip"][1].data - first[1]).min(), 0)

    def test_wrong_weights(self):
        x = L.Input(shape=dict(dim=[1, 2]))
        for code, text in (("self.blobs.add_blob(-3)", r"a weight cannot have the shape \(-3,\)"),
                           ("self.blobs.add_blob(*[1] * 9)", "a weight cannot have the shape"),
                           ("for _ in range(9): self.blobs.add_blob(1)", "a layer has at most 8 weights"),
                           ("self.blobs.add_blob(1 << 40, 1 << 40, filler=dict(type='msra'))", "weight 0 got no shape that a blob may have"),
                           ("self.blobs.add_blob(2, filler=dict(typ='xavier'))", "there is no field 'typ'; did you mean \"type\""),
                           ("self.blobs.add_blob(2, filler=dict(type='xavierr'))", r'layer "y" \(Python\): .*xavierr'),
                           ("self.blobs.add_blob(2); self.blobs[0].diff", "the gradient of a weight is there in backward"),
                           ("self.blobs.add_blob(2); self.blobs[0].reshape(3)", r"the weight has shape \(2,\), which it keeps"),
                           ("self.blobs.add_blob(2, filler=dict(type='msra')); self.blobs[0].data", "in setup.. those without a filler")):
            n = cortado.NetSpec()
            n.y = self.python("Wrong", x, param_str=code)
            with self.assertRaisesRegex((cortado.Error, MemoryError), text, msg=code):
                cortado.Net.from_text(n.to_text())
        n = cortado.NetSpec()
        n.y = self.python("Wrong", x, param_str="import builtins; builtins.held = self\nif False: forward\n")
        net = cortado.Net.from_text(n.to_text())
        held = __import__("builtins").__dict__.pop("held")
        with self.assertRaisesRegex(ValueError, "weights are added in setup"):
            held.blobs.add_blob(1)
        with self.assertRaisesRegex(cortado.Error, "param entries, but it has 0 weight blobs"):
            cortado.Net.from_text(self.python("Wrong", x, param_str="0", param=[dict(lr_mult=1)]).to_text())
        del net

    def test_a_layer_has_its_weights_while_it_runs(self):
        n = cortado.NetSpec()
        n.y = self.python("Curve", L.Input(shape=dict(dim=[2, 3])))
        made = []
        sys.modules.pop("layers_of_test", None)
        import layers_of_test

        setup = layers_of_test.Curve.setup
        layers_of_test.Curve.setup = lambda layer, bottom, top: (made.append(layer), setup(layer, bottom, top))[1]
        net = cortado.Net.from_text(n.to_text())
        net.forward()
        with self.assertRaisesRegex(ValueError, "net.params has them between"):
            made[0].blobs[0].data

    def test_a_source_of_samples(self):
        n = cortado.NetSpec()
        n.count = self.python("Count", param_str="3")
        n.twice = L.Power(n.count, scale=2)
        n.last = L.Power(n.twice, shift=1)
        net = cortado.Net.from_text(n.to_text())
        self.assertEqual(net.blobs["twice"].shape, (3, 2))
        self.assertEqual([float(net.forward()["last"].mean()) for _ in range(3)], [1, 3, 5])
        self.assertEqual(float(net.blobs["twice"].data[0, 0]), 4)

    def test_errors(self):
        x = L.Input(shape=dict(dim=[1, 2]))
        for layer, text in ((self.python("Euclid", x, loss_weight=1), r'layer "loss" \(Python\): .*layers_of_test.py:11: ValueError: two bottoms'),
                            (self.python("Nothing", x), "has no attribute 'Nothing'"),
                            (L.Python(x, module="no_such_module", layer="A"), "No module named 'no_such_module'"),
                            (L.Python(x, module="no_such_module"), "python_param.module and python_param.layer must be given")):
            n = cortado.NetSpec()
            n.loss = layer
            with self.assertRaisesRegex(cortado.Error, text):
                cortado.Net.from_text(n.to_text())
        for param, text in (("", "the blob has no gradient"), ("shape", r"the blob has shape \(1, 2\).*cannot get \(1,\)")):
            with self.assertRaisesRegex(cortado.Error, text) as caught:
                cortado.Net.from_text(self.python("Bad", x, param_str=param).to_text()).forward()
            self.assertIsInstance(caught.exception.__cause__, ValueError)
        with self.assertRaises(KeyboardInterrupt):
            cortado.Net.from_text(self.python("Bad", x, param_str="stop").to_text()).forward()
        with self.assertRaisesRegex(cortado.Error, "NotImplementedError: Layer has no forward"):
            cortado.Net.from_text(L.Python(L.DummyData(shape=dict(dim=1)), module="cortado", layer="Layer").to_text()).forward()


class Tables(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = os.path.join(folder.name, "file")

    def write(self, text):
        with open(self.file, "w") as f:
            f.write(text)
        return self.file

    def test_metrics(self):
        made = cortado.read_metrics(self.write('''{"event":"train","iter":0,"loss":2.5,"epoch":null}
{"event":"test","iter":0,"outputs":{"accuracy":0.25}}
{"event":"train","iter":2,"loss":1,"epoch":0.5,"status":"good"}
{"event":"train","iter":4,"lo'''))
        self.assertEqual((list(made), list(made["train"])), (["train", "test"], ["iter", "loss", "epoch", "status"]))
        numpy.testing.assert_array_equal(made["train"]["iter"], [0, 2])
        self.assertEqual((made["train"]["iter"].dtype, made["train"]["loss"].dtype), (numpy.int64, numpy.float64))
        numpy.testing.assert_array_equal(made["train"]["loss"], [2.5, 1])
        numpy.testing.assert_array_equal(made["train"]["epoch"], [numpy.nan, 0.5])
        self.assertEqual(list(made["train"]["status"]), [None, "good"])
        numpy.testing.assert_array_equal(made["test"]["outputs.accuracy"], [0.25])
        for line in ("no", "[1]", "{}", "3"):
            with self.assertRaisesRegex(ValueError, 'file:2: expected an object with "event"'):
                cortado.read_metrics(self.write('{"event":"a"}\n' + line + "\n"))

    def test_traces(self):
        made = cortado.read_trace(self.write('''{"displayTimeUnit":"ms","traceEvents":[
{"ph":"M","name":"thread_name","pid":1,"tid":0,"args":{"name":"steps"}},
{"ph":"X","pid":1,"tid":0,"ts":5.5,"dur":2,"cat":"forward","name":"conv1","args":{"iteration":1,"type":"Convolution"}},
{"ph":"X","pid":1,"tid":3,"ts":9.5,"dur":1,"cat":"send","name":"b","args":{"iteration":1,"bytes":64}}]}'''))
        self.assertEqual(list(made), ["rank", "thread", "start_us", "duration_us", "category", "name", "iteration", "type", "bytes"])
        self.assertEqual((list(made["thread"]), list(made["type"])), (["steps", "3"], ["Convolution", None]))
        numpy.testing.assert_array_equal(made["start_us"], [5.5, 9.5])
        numpy.testing.assert_array_equal(made["bytes"], [numpy.nan, 64])
        for text in ("[]", "{", "{}"):
            with self.assertRaisesRegex(ValueError, "file: expected a trace"):
                cortado.read_trace(self.write(text))

    def test_missing_files_are_named(self):
        readers = [cortado.read_metrics, cortado.read_trace] + [cortado.read_snapshot] * bool(importlib.util.find_spec("h5py"))
        for read in readers:
            with self.assertRaisesRegex(FileNotFoundError, "/nowhere/x.h5"):
                read("/nowhere/x.h5")

    @unittest.skipUnless(importlib.util.find_spec("h5py"), "h5py is not there")
    def test_what_is_no_snapshot(self):
        import h5py

        with self.assertRaisesRegex(ValueError, "file: expected HDF5"):
            cortado.read_snapshot(self.write("nothing"))
        with h5py.File(self.file, "w") as f:
            f["x"] = 1
        with self.assertRaisesRegex(ValueError, "file: expected a snapshot, with /iter"):
            cortado.read_snapshot(self.file)
        os.rename(self.file, self.file + ".caffemodel.h5")
        self.addCleanup(os.remove, self.file + ".caffemodel.h5")
        with self.assertRaisesRegex(ValueError, "expected weights, a group /data"):
            cortado.read_snapshot(self.file + ".caffemodel.h5")


class Solvers(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.file = os.path.join(self.folder.name, "solver.prototxt")
        with open(self.file, "w") as f:
            f.write(LEARNS.replace('"s"', '"%s/s"' % self.folder.name))

    def test_steps(self):
        solver, other = cortado.Solver(self.file), cortado.Solver(self.file)
        solver.step()
        first = float(solver.net.blobs["loss"].data)
        solver.step(7)
        self.assertLess(float(solver.net.blobs["loss"].data), first)
        other.solve()
        self.assertEqual((solver.iteration, other.iteration), (8, 8))
        numpy.testing.assert_array_equal(solver.net.params["ip"][0].data, other.net.params["ip"][0].data)
        self.assertEqual(len(solver.test_nets), 1)
        self.assertLess(float(solver.test_nets[0].forward()["loss"]), first)

    def test_gradients(self):
        solver = cortado.Solver(self.file, keep=True)
        w = solver.net.params["ip"][0]
        before = w.data.copy()
        solver.step()
        numpy.testing.assert_allclose(w.data, before - 0.02 * w.diff, rtol=1e-5, atol=1e-7)
        # the gradient of the scores is probability less one at the label, over the batch
        ip = solver.net.blobs["ip"]
        e = numpy.exp(ip.data)
        want = (e / e.sum(axis=1, keepdims=True) - numpy.eye(3)[2]) / 6
        numpy.testing.assert_allclose(ip.diff, want, rtol=1e-4, atol=1e-7)

    def test_snapshots(self):
        solver, other = cortado.Solver(self.file), cortado.Solver(self.file)
        solver.step(3)
        solver.snapshot()
        solver.step(2)
        other.restore()
        self.assertEqual(other.iteration, 3)
        other.step(2)
        numpy.testing.assert_array_equal(solver.net.params["ip"][0].data, other.net.params["ip"][0].data)

    @unittest.skipUnless(importlib.util.find_spec("h5py"), "h5py is not there")
    def test_snapshots_are_read(self):
        solver = cortado.Solver(self.file, settings={"momentum": 0.9, "average.type": "EMA", "average.decay": 0.5})
        solver.step(3)
        solver.snapshot()
        made = cortado.read_snapshot(os.path.join(self.folder.name, "s_iter_3.solverstate.h5"))
        self.assertEqual((made["iter"], made["seed"], list(made["weights"])), (3, 5, ["ip"]))
        for mine, theirs in zip(made["weights"]["ip"], solver.net.params["ip"]):
            numpy.testing.assert_array_equal(mine, theirs.data)
        self.assertEqual(made["history"]["momentum"]["ip[0]"].shape, (3, 70))
        self.assertEqual(made["average"]["ip"][0].shape, (3, 70))
        alone = cortado.read_snapshot(os.path.join(self.folder.name, made["learned_net"]))
        numpy.testing.assert_array_equal(alone["weights"]["ip"][0], made["weights"]["ip"][0])

    def test_settings(self):
        solver = cortado.Solver(self.file, settings={"base_lr": 0, "comm.overlap": False})
        before = solver.net.params["ip"][0].data.copy()
        solver.step(2)
        numpy.testing.assert_array_equal(solver.net.params["ip"][0].data, before)
        with self.assertRaisesRegex(cortado.Error, "base_lr"):
            cortado.Solver(self.file, settings={"base_lt": 0})

    def test_misuse(self):
        solver = cortado.Solver(self.file)
        for kind, text, call in ((TypeError, "steps: a whole number is expected, not 1.5", lambda: solver.step(1.5)),
                                 (ValueError, "steps -1: 0 to", lambda: solver.step(-1)),
                                 (ValueError, "steps 1180591620717411303424", lambda: solver.step(2 ** 70)),
                                 (TypeError, "a call in each step is expected, not 3", lambda: solver.add_callback(3)),
                                 (ValueError, "keeps weights of its own", lambda: solver.net.share_with(cortado.Net.from_text(NET))),
                                 (ValueError, "keeps its shapes", lambda: solver.net.reshape("data", (1,))),
                                 (ValueError, "a NUL in", lambda: cortado.Solver(self.file, settings={"type": "S\0"}))):
            with self.assertRaisesRegex(kind, text):
                call()
        solver.step(1)
        other = cortado.Solver(self.file)
        other.net.params["ip"][0].data[...] = numpy.nan
        for _ in range(2):
            with self.assertRaisesRegex(cortado.Error, "loss of iteration 0 is not finite"):
                other.step(1)
        self.assertEqual(solver.iteration, 1)

    def test_nets_keep_the_solver(self):
        net = cortado.Solver(self.file).net
        gc.collect()
        self.assertTrue(numpy.isfinite(net.forward()["loss"]))


if __name__ == "__main__":
    unittest.main()
