"""cortado.caffe, used as Caffe's notebooks and programs use pycaffe. python -m unittest, with cortado and protobuf to be imported.

CORTADO_DIGITS: a folder with train_lmdb and test_lmdb, of 1 x 28 x 28 pixels and ten classes.
"""
import os
import tempfile
import unittest
import warnings

import numpy

import cortado
from cortado import caffe
from cortado.caffe import layers as L
from cortado.caffe import params as P
from cortado.caffe.proto import caffe_pb2
from google.protobuf import text_format

IMAGES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "images")
DEPLOY = """name: "small"
input: "data" input_shape { dim: 4 dim: 3 dim: 12 dim: 10 }
layer { name: "conv1" type: "Convolution" bottom: "data" top: "conv1"
  convolution_param { num_output: 6 kernel_size: 3 weight_filler { type: "msra" } } }
layer { name: "relu1" type: "ReLU" bottom: "conv1" top: "conv1" }
layer { name: "pool1" type: "Pooling" bottom: "conv1" top: "pool1" pooling_param { pool: AVE global_pooling: true } }
layer { name: "fc" type: "InnerProduct" bottom: "pool1" top: "fc" inner_product_param { num_output: 5 weight_filler { type: "xavier" } } }
layer { name: "prob" type: "Softmax" bottom: "fc" top: "prob" }
"""


class InFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def write(self, name, text):
        file = os.path.join(self.folder, name)
        with open(file, "w") as f:
            f.write(text)
        return file


class Classification(InFolder):
    """The way of 00-classification: a deploy net, a transformer, pictures, what is inside."""

    def setUp(self):
        super().setUp()
        self.model, self.weights = self.write("deploy.prototxt", DEPLOY), os.path.join(self.folder, "net.caffemodel")
        caffe.Net(self.model, caffe.TEST).save(self.weights)

    def transformer(self, net, mean):
        made = caffe.io.Transformer({"data": net.blobs["data"].data.shape})
        made.set_transpose("data", (2, 0, 1))
        made.set_mean("data", mean)
        made.set_raw_scale("data", 255)
        made.set_channel_swap("data", (2, 1, 0))
        return made

    def test_the_notebook(self):
        caffe.set_mode_cpu()
        net = caffe.Net(self.model, self.weights, caffe.TEST)
        mean = numpy.array([104.0, 117.0, 123.0])
        transformer = self.transformer(net, mean)
        net.blobs["data"].reshape(50, 3, 12, 10)
        image = caffe.io.load_image(os.path.join(IMAGES, "plain.jpg"))
        self.assertEqual((image.dtype, image.ndim, image.shape[2]), (numpy.float32, 3, 3))
        self.assertTrue(0 <= image.min() < image.max() <= 1)
        transformed = transformer.preprocess("data", image)
        sized = caffe.io.resize_image(image, (12, 10))
        numpy.testing.assert_allclose(transformed, (sized[..., ::-1] * 255 - mean).transpose(2, 0, 1), atol=1e-3)
        numpy.testing.assert_allclose(transformer.deprocess("data", transformed), sized, atol=1e-5)
        net.blobs["data"].data[...] = transformed
        output = net.forward()
        self.assertEqual(output["prob"].shape, (50, 5))
        numpy.testing.assert_array_equal(output["prob"][0], output["prob"][49])
        top = output["prob"][0].argsort()[::-1][:5]
        self.assertEqual(sorted(top), [0, 1, 2, 3, 4])
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            caffe.set_device(0)
            caffe.set_mode_gpu()
        self.assertIn("CPU", str(said[0].message))
        self.assertEqual([(name, blob.data.shape) for name, blob in net.blobs.iteritems()],
                         [("data", (50, 3, 12, 10)), ("conv1", (50, 6, 10, 8)), ("pool1", (50, 6, 1, 1)), ("fc", (50, 5)), ("prob", (50, 5))])
        self.assertEqual([(name, param[0].data.shape, param[1].data.shape) for name, param in net.params.iteritems()],
                         [("conv1", (6, 3, 3, 3), (6,)), ("fc", (5, 6), (5,))])
        filters, first = net.params["conv1"][0].data, net.blobs["conv1"].data[0, :4]
        windows = numpy.lib.stride_tricks.sliding_window_view(transformed, (3, 3), axis=(1, 2))
        want = numpy.maximum(numpy.einsum("chwij,kcij->khw", windows, filters, dtype=numpy.float64), 0)[:4]
        numpy.testing.assert_allclose(first, want, rtol=1e-4, atol=1e-3)

    def test_what_a_net_says(self):
        net = caffe.Net(network_file=self.model, phase=caffe.TEST, weights=self.weights)
        self.assertEqual((net.inputs, net.outputs), (["data"], ["prob"]))
        self.assertEqual(net._layer_names[1:], ["conv1", "relu1", "pool1", "fc", "prob"])
        self.assertEqual([layer.type for layer in net.layers][1:3], ["Convolution", "ReLU"])
        self.assertEqual(net.layer_dict["fc"].blobs[0].shape, (5, 6))
        self.assertEqual((net.top_names["relu1"], net.bottom_names["fc"]), (["conv1"], ["pool1"]))
        blob = net.blobs["data"]
        self.assertEqual((blob.num, blob.channels, blob.height, blob.width, blob.count), (4, 3, 12, 10, 1440))
        self.assertEqual((net.blobs["fc"].width, list(net.blobs["fc"].shape)), (1, [4, 5]))
        for wrong in ((), (self.weights,), (self.weights, 7), (self.weights, caffe.TEST, 1)):
            with self.assertRaisesRegex(TypeError, "a phase is caffe.TRAIN or caffe.TEST"):
                caffe.Net(self.model, *wrong)
        with self.assertRaisesRegex(OSError, "nowhere.caffemodel"):
            caffe.Net(self.model, "/nowhere.caffemodel", caffe.TEST)
        with self.assertRaisesRegex(OSError, "nowhere.prototxt"):
            caffe.Net("/nowhere.prototxt", caffe.TEST)

    def test_stages(self):
        more = DEPLOY + 'layer { name: "twice" type: "Power" bottom: "prob" top: "twice" power_param { scale: 2 } include { stage: "more" } }'
        file = self.write("staged.prototxt", more)
        self.assertEqual(caffe.Net(file, caffe.TEST).outputs, ["prob"])
        self.assertEqual(caffe.Net(file, caffe.TEST, stages=["more"], weights=self.weights).outputs, ["twice"])

    def test_forward(self):
        net = caffe.Net(self.model, self.weights, caffe.TEST)
        data = numpy.random.default_rng(1).standard_normal((11, 3, 12, 10))
        self.assertEqual(list(net.forward(blobs=["fc"], data=data[:4])), ["prob", "fc"])
        self.assertEqual(list(net.forward(end="pool1")), ["pool1"])
        prob = net.blobs["prob"].data.copy()
        net.blobs["fc"].data[...] = 1
        numpy.testing.assert_allclose(net.forward(start="prob")["prob"], 0.2, rtol=1e-6)
        every = net.forward_all(blobs=["pool1"], data=data)
        self.assertEqual((every["prob"].shape, every["pool1"].shape), ((11, 5), (11, 6, 1, 1)))
        numpy.testing.assert_allclose(every["prob"][:4], prob, rtol=1e-5)
        numpy.testing.assert_allclose(every["prob"][8:], net.forward(data=numpy.concatenate([data[8:], data[:1]]))["prob"][:3], rtol=1e-5)
        with self.assertRaisesRegex(ValueError, "inputs given are image; those of the net are data"):
            net.forward(image=data[:4])
        with self.assertRaisesRegex(ValueError, r'input "data" has shape \(4, 3, 12, 10\)'):
            net.forward(data=data)

    def test_reshape(self):
        two = """layer { name: "a" type: "Input" top: "a" input_param { shape { dim: 1 dim: 2 } } }
            layer { name: "b" type: "Input" top: "b" input_param { shape { dim: 1 dim: 2 } } }
            layer { name: "sum" type: "Eltwise" bottom: "a" bottom: "b" top: "sum" }"""
        net = caffe.Net(self.write("two.prototxt", two), caffe.TEST)
        held = net.forward()["sum"]
        net.blobs["a"].reshape(3, 2)
        self.assertEqual((net.blobs["a"].shape, net.blobs["a"].num), ((3, 2), 3))
        net.blobs["b"].reshape(3, 2)
        net.blobs["a"].data[...], net.blobs["b"].data[...] = 1, 2
        net.reshape()
        numpy.testing.assert_array_equal(net.forward()["sum"], numpy.full((3, 2), 3))
        self.assertEqual(held.shape, (1, 2))
        net.blobs["sum"].reshape(3, 2)
        with self.assertRaisesRegex(ValueError, '"sum" is no input of the net, so its shape follows from those: a, b'):
            net.blobs["sum"].reshape(4, 2)
        with self.assertRaisesRegex(ValueError, "a weight, which keeps its shape"):
            caffe.Net(self.model, caffe.TEST).params["fc"][0].reshape(2, 2)

    def test_weights_in_files(self):
        net, other = caffe.Net(self.model, caffe.TEST), caffe.Net(self.model, caffe.TEST)
        w = net.params["fc"][0].data
        for i, (save, load, name) in enumerate(((net.save, other.copy_from, "w.caffemodel"), (net.save, other.copy_from, "w"),
                                                (net.save_hdf5, other.load_hdf5, "w.h5"), (net.save, other.copy_from, "w.npz"))):
            w[...] = i + 1
            file = os.path.join(self.folder, name)
            save(file)
            load(file)
            numpy.testing.assert_array_equal(other.params["fc"][0].data, i + 1)
        message = caffe_pb2.NetParameter()
        with open(os.path.join(self.folder, "w"), "rb") as f:
            message.ParseFromString(f.read())
        fc = next(layer for layer in message.layer if layer.name == "fc")
        numpy.testing.assert_array_equal(caffe.io.blobproto_to_array(fc.blobs[0]), numpy.full((5, 6), 2))
        with self.assertRaisesRegex(FileNotFoundError, "/proc/nowhere/w"):
            net.save("/proc/nowhere/w")

    def test_classifier(self):
        net = caffe.Classifier(self.model, self.weights, image_dims=(16, 14), mean=numpy.array([104, 117, 123]), raw_scale=255,
                               channel_swap=(2, 1, 0))
        pictures = [caffe.io.load_image(os.path.join(IMAGES, name)) for name in ("plain.jpg", "palette.png", "gray.jpg")]
        scores = net.predict(pictures)
        self.assertEqual(scores.shape, (3, 5))
        numpy.testing.assert_allclose(scores.sum(1), 1, rtol=1e-5)
        centre = net.predict(pictures, oversample=False)
        sized = caffe.io.resize_image(pictures[1], (16, 14))
        crops = caffe.io.oversample([sized], (12, 10))
        self.assertEqual(crops.shape, (10, 12, 10, 3))
        numpy.testing.assert_array_equal(crops[4], sized[2:14, 2:12])
        numpy.testing.assert_array_equal(crops[5], sized[:12, 9::-1])
        one = numpy.stack([net.transformer.preprocess("data", crop) for crop in crops])
        numpy.testing.assert_allclose(net.forward_all(data=one)["prob"].mean(0), scores[1], rtol=1e-4)
        numpy.testing.assert_allclose(net.forward_all(data=one[4:5])["prob"][0], centre[1], rtol=1e-4)

    def test_detector(self):
        file = os.path.join(IMAGES, "plain.jpg")
        picture = caffe.io.load_image(file)
        h, w = picture.shape[:2]
        net = caffe.Detector(self.model, self.weights, mean=numpy.array([104, 117, 123]), raw_scale=255, channel_swap=(2, 1, 0))
        windows = [(0, 0, h, w), (1, 2, h - 1, w - 2)]
        found = net.detect_windows([(file, windows)])
        self.assertEqual([one["window"] for one in found], windows)
        want = net.forward_all(data=numpy.stack([net.transformer.preprocess("data", p) for p in (picture, picture[1:-1, 2:-2])]))["prob"]
        numpy.testing.assert_allclose([one["prediction"] for one in found], want, rtol=1e-4)
        padded = caffe.Detector(self.model, self.weights, mean=numpy.array([0.5, 0.25, 0.125]), context_pad=2)
        around = padded.crop(picture, (0, 0, h - 1, w - 1))
        numpy.testing.assert_allclose(around[0, 0], [0.5, 0.25, 0.125], rtol=1e-5)
        numpy.testing.assert_array_equal(around[around.shape[0] // 2, around.shape[1] // 2].shape, (3,))
        self.assertGreater(around.shape[0], h)
        self.assertEqual(net.detect_windows([]), [])
        with self.assertRaisesRegex(ValueError, "of a picture of"):
            net.crop(picture, (h + 5, 0, h + 9, 4))


def lenet(source, batch_size):
    n = caffe.NetSpec()
    n.data, n.label = L.Data(batch_size=batch_size, backend=P.Data.LMDB, source=source, transform_param=dict(scale=1.0 / 255), ntop=2)
    n.conv1 = L.Convolution(n.data, kernel_size=5, num_output=10, weight_filler=dict(type="xavier"))
    n.pool1 = L.Pooling(n.conv1, kernel_size=2, stride=2, pool=P.Pooling.MAX)
    n.conv2 = L.Convolution(n.pool1, kernel_size=5, num_output=20, weight_filler=dict(type="xavier"))
    n.pool2 = L.Pooling(n.conv2, kernel_size=2, stride=2, pool=P.Pooling.MAX)
    n.fc1 = L.InnerProduct(n.pool2, num_output=100, weight_filler=dict(type="xavier"))
    n.relu1 = L.ReLU(n.fc1, in_place=True)
    n.score = L.InnerProduct(n.relu1, num_output=10, weight_filler=dict(type="xavier"))
    n.loss = L.SoftmaxWithLoss(n.score, n.label)
    return n.to_proto()


@unittest.skipUnless("CORTADO_DIGITS" in os.environ, "CORTADO_DIGITS names no folder")
class Learning(InFolder):
    """The way of 01-learning-lenet: nets and a solver written in Python, steps, what is looked at between them."""

    def setUp(self):
        super().setUp()
        for phase, size in (("train", 32), ("test", 50)):
            self.write(phase + ".prototxt", str(lenet(os.path.join(os.environ["CORTADO_DIGITS"], phase + "_lmdb"), size)))
        s = caffe_pb2.SolverParameter()
        s.random_seed = 0xCAFFE
        s.train_net = os.path.join(self.folder, "train.prototxt")
        s.test_net.append(os.path.join(self.folder, "test.prototxt"))
        s.test_interval, s.max_iter, s.display, s.snapshot = 500, 12, 1000, 5000
        s.test_iter.append(4)
        s.type, s.base_lr, s.momentum, s.weight_decay = "SGD", 0.01, 0.9, 5e-4
        s.lr_policy, s.gamma, s.power = "inv", 0.0001, 0.75
        s.snapshot_prefix = os.path.join(self.folder, "lenet")
        s.solver_mode = caffe_pb2.SolverParameter.GPU
        self.solver = self.write("solver.prototxt", str(s))
        s.type = "Adam"
        self.adam = self.write("adam.prototxt", str(s))

    def test_the_notebook(self):
        solver = caffe.SGDSolver(self.solver)
        self.assertEqual([(k, v.data.shape) for k, v in solver.net.blobs.items()],
                         [("data", (32, 1, 28, 28)), ("label", (32,)), ("conv1", (32, 10, 24, 24)), ("pool1", (32, 10, 12, 12)),
                          ("conv2", (32, 20, 8, 8)), ("pool2", (32, 20, 4, 4)), ("fc1", (32, 100)), ("score", (32, 10)), ("loss", ())])
        self.assertEqual([(k, v[0].data.shape) for k, v in solver.net.params.items()],
                         [("conv1", (10, 1, 5, 5)), ("conv2", (20, 10, 5, 5)), ("fc1", (100, 320)), ("score", (10, 100))])
        for net in (solver.net, solver.test_nets[0]):
            self.assertTrue(1.5 < float(net.forward()["loss"]) < 4)
        picture = solver.net.blobs["data"].data[:8, 0].transpose(1, 0, 2).reshape(28, 8 * 28)
        self.assertTrue(0 <= picture.min() < picture.max() <= 1)
        self.assertTrue(set(solver.net.blobs["label"].data) <= set(range(10)))
        solver.step(1)
        tiles = solver.net.params["conv1"][0].diff[:, 0].reshape(2, 5, 5, 5).transpose(0, 2, 1, 3).reshape(2 * 5, 5 * 5)
        self.assertGreater(numpy.abs(tiles).max(), 0)
        losses, output = numpy.zeros(60), numpy.zeros((60, 8, 10))
        for it in range(60):
            solver.step(1)
            losses[it] = solver.net.blobs["loss"].data
            solver.test_nets[0].forward(start="conv1")
            output[it] = solver.test_nets[0].blobs["score"].data[:8]
        self.assertLess(losses[-10:].mean(), losses[:10].mean() / 2)
        self.assertGreater(numpy.abs(output[-1] - output[0]).max(), 0.1)
        correct = 0
        for _ in range(4):
            solver.test_nets[0].forward()
            correct += sum(solver.test_nets[0].blobs["score"].data.argmax(1) == solver.test_nets[0].blobs["label"].data)
        self.assertGreater(correct, 140)  # of 200; 20 are right by chance
        self.assertEqual(solver.iter, 61)

    def test_rules(self):
        """get_solver() takes the file's rule, a class its own; the first step of Adam is base_lr long wherever there is a gradient."""
        longest = []
        for solver in (caffe.get_solver(self.adam), caffe.AdamSolver(self.solver), caffe.SGDSolver(self.adam)):
            w = solver.net.params["fc1"][0]
            before = w.data.copy()
            solver.step(1)
            longest.append(float(numpy.abs(w.data - before).max()))
        numpy.testing.assert_allclose(longest[:2], 0.01, rtol=1e-3)
        self.assertNotAlmostEqual(longest[2], 0.01, places=4)

    def test_snapshots(self):
        solver, other = caffe.get_solver(self.solver), caffe.get_solver(self.solver)
        solver.step(3)
        solver.snapshot()
        state = next(os.path.join(self.folder, f) for f in os.listdir(self.folder) if f.startswith("lenet_iter_3.solverstate"))
        other.restore(state)
        self.assertEqual(other.iter, 3)
        solver.step(2)
        other.step(2)
        numpy.testing.assert_array_equal(solver.net.params["score"][0].data, other.net.params["score"][0].data)
        third = caffe.get_solver(self.solver)
        third.net.copy_from(next(os.path.join(self.folder, f) for f in os.listdir(self.folder) if f.startswith("lenet_iter_3.caffemodel")))
        third.solve(state)
        self.assertEqual(third.iter, 12)

    def test_backward(self):
        """The gradient of the scores is probability less one at the label, over the batch."""
        net = caffe.Net(self.write("n.prototxt", 'force_backward: true ' + DEPLOY + 'layer { name: "label" type: "Input" top: "label" '
                                   'input_param { shape { dim: 4 } } } layer { name: "loss" type: "SoftmaxWithLoss" bottom: "fc" '
                                   'bottom: "label" top: "loss" }'), caffe.TRAIN)
        net.blobs["data"].data[...] = numpy.random.default_rng(2).standard_normal((4, 3, 12, 10))
        net.blobs["label"].data[...] = [0, 1, 2, 3]
        net.forward()
        diffs = net.backward(diffs=["fc"])
        e = numpy.exp(net.blobs["fc"].data)
        numpy.testing.assert_allclose(diffs["fc"], (e / e.sum(1, keepdims=True) - numpy.eye(5)[:4]) / 4, rtol=1e-4, atol=1e-6)
        self.assertEqual(diffs["data"].shape, (4, 3, 12, 10))
        net.blobs["pool1"].diff[...] = numpy.arange(24).reshape(4, 6, 1, 1)
        within = net.backward(start="pool1", end="pool1")
        numpy.testing.assert_allclose(within["conv1"], numpy.broadcast_to(net.blobs["pool1"].diff / 80, (4, 6, 10, 8)), rtol=1e-5)
        with self.assertRaisesRegex(ValueError, "gradients given are of loss; outputs are prob, loss"):
            net.backward(loss=2)
        with self.assertRaisesRegex(ValueError, 'the gradient of "loss" is its loss_weight'):
            net.backward(prob=numpy.zeros((4, 5)), loss=2)
        self.assertEqual([name for name, weight in net.blob_loss_weights.items() if weight != 0], ["loss"])
        data = numpy.random.default_rng(3).standard_normal((8, 3, 12, 10))
        values, gradients = net.forward_backward_all(blobs=["fc"], data=data, label=numpy.arange(8) % 5)
        self.assertEqual((values["fc"].shape, gradients["data"].shape), ((8, 5), (8, 3, 12, 10)))


class Backward(InFolder):
    """From outputs and from inside, of nets without a loss."""

    def setUp(self):
        super().setUp()
        self.file = self.write("forced.prototxt", "force_backward: true " + DEPLOY)
        self.net = caffe.Net(self.file, caffe.TEST)
        self.random = numpy.random.default_rng(4)
        self.data = self.random.standard_normal((4, 3, 12, 10), numpy.float32)

    def test_from_outputs(self):
        given = self.random.standard_normal((4, 5))
        prob = self.net.forward(data=self.data)["prob"].astype(numpy.float64)
        gradients = self.net.backward(diffs=["fc"], prob=given)
        want = prob * (given - (given * prob).sum(1, keepdims=True))
        numpy.testing.assert_allclose(gradients["fc"], want, rtol=1e-4, atol=1e-6)
        w = self.net.params["fc"][0].data.astype(numpy.float64)
        numpy.testing.assert_allclose(self.net.blobs["pool1"].diff[..., 0, 0], want @ w, rtol=1e-4, atol=1e-6)
        numpy.testing.assert_allclose(self.net.params["fc"][1].diff, want.sum(0), rtol=1e-4, atol=1e-6)
        self.assertGreater(numpy.abs(gradients["data"]).max(), 0)
        self.net.clear_param_diffs()
        self.assertEqual(numpy.abs(self.net.params["fc"][1].diff).max(), 0)
        _, in_batches = self.net.forward_backward_all(data=self.data, prob=given)
        numpy.testing.assert_allclose(in_batches["data"], gradients["data"], rtol=1e-5)
        with self.assertRaisesRegex(ValueError, r'the gradient of "prob" has shape \(4, 5\), not \(3, 5\)'):
            self.net.backward(prob=given[:3])

    def test_nobody_gave_a_gradient(self):
        self.net.forward(data=self.data)
        self.assertEqual(numpy.abs(self.net.backward()["data"]).max(), 0)

    def test_dreams(self):
        """The way of DeepDream: pictures of other sizes, a gradient that a blob gives itself, steps along the input's."""
        for h, w in ((12, 10), (16, 14), (20, 17)):
            source = self.net.blobs["data"]
            source.reshape(1, 3, h, w)
            source.data[0] = self.random.standard_normal((3, h, w))
            least = 0.0  # what the squares of conv1 add up to is convex in the picture, so a step along half its gradient has a bound
            for _ in range(3):
                self.net.forward(end="relu1")
                at = self.net.blobs["conv1"]
                self.assertEqual(at.shape, (1, 6, h - 2, w - 2))
                length = float((at.data.astype(numpy.float64) ** 2).sum())
                self.assertGreater(length, least * (1 - 1e-5))
                at.diff[:] = at.data
                gradient = self.net.backward(start="relu1")["data"]
                self.assertEqual(gradient.shape, (1, 3, h, w))
                least = length + 2 * 0.01 * float((gradient.astype(numpy.float64) ** 2).sum())
                source.data[:] += 0.01 * gradient

    def test_reshaped_nets_keep_their_weights(self):
        w = self.net.params["conv1"][0].data
        self.net.blobs["data"].reshape(2, 3, 9, 9)
        self.net.forward(data=self.data[:2, :, :9, :9])
        w *= 2
        doubled = self.net.forward()["prob"].copy()
        self.net.backward(prob=numpy.eye(5)[:2])
        self.assertGreater(numpy.abs(self.net.params["conv1"][0].diff).max(), 0)
        other = caffe.Net(self.file, caffe.TEST)
        other.blobs["data"].reshape(2, 3, 9, 9)
        self.assertGreater(numpy.abs(other.forward(data=self.data[:2, :, :9, :9])["prob"] - doubled).max(), 1e-4)
        self.net.save(os.path.join(self.folder, "w.caffemodel"))
        other.copy_from(os.path.join(self.folder, "w.caffemodel"))
        numpy.testing.assert_array_equal(other.forward()["prob"], doubled)
        flat = self.write("flat.prototxt", 'input: "data" input_shape { dim: 2 dim: 4 } layer { name: "ip" type: "InnerProduct" '
                          'bottom: "data" top: "ip" inner_product_param { num_output: 2 } }')
        net = caffe.Net(flat, caffe.TRAIN)
        net.blobs["data"].reshape(2, 5)
        with self.assertRaisesRegex(caffe.Error, r'layer "ip" .InnerProduct.: weight blob 0 has the shape'):
            net.reshape()
        self.assertEqual(net.blobs["data"].data.shape, (2, 4))


class Weights(InFolder):
    def test_share_with(self):
        file = self.write("deploy.prototxt", DEPLOY)
        more = self.write("more.prototxt", DEPLOY + 'layer { name: "own" type: "InnerProduct" bottom: "prob" top: "own" '
                          'inner_product_param { num_output: 2 weight_filler { type: "xavier" } } }')
        data = numpy.random.default_rng(5).standard_normal((4, 3, 12, 10))
        source, net = caffe.Net(file, caffe.TEST), caffe.Net(more, caffe.TEST)
        net.forward(data=data)
        before, own = net.params["fc"][0].data, net.params["own"][0].data.copy()
        conv = net.blobs["conv1"].data.copy()
        source.params["conv1"][0].data[...] *= 3
        net.share_with(source)
        source.params["fc"][0].data[...] = 2
        numpy.testing.assert_array_equal(net.params["fc"][0].data, 2)
        self.assertNotEqual(float(before[0, 0]), 2)
        numpy.testing.assert_array_equal(net.params["own"][0].data, own)
        prob = source.forward(data=data)["prob"]
        net.forward(data=data)
        numpy.testing.assert_array_equal(net.blobs["prob"].data, prob)
        numpy.testing.assert_allclose(net.blobs["conv1"].data, 3 * conv, rtol=1e-4, atol=1e-4)
        source.params["fc"][1].data[0] = 100
        del source
        self.assertEqual(net.forward()["own"].shape, (4, 2))
        self.assertEqual(int(net.blobs["prob"].data.argmax(1).max()), 0)
        other = caffe.Net(self.write("other.prototxt", DEPLOY.replace("num_output: 5", "num_output: 7")), caffe.TEST)
        with self.assertRaisesRegex(caffe.Error, r'layer "fc".*weight blob 0 has the shape'):
            other.share_with(net)
        with self.assertRaisesRegex(ValueError, "has its own weights already"):
            net.share_with(net)

    def test_nets_that_learn_share_weights(self):
        """Two nets that run backward: one set of weights, each with gradients of its own."""
        file = self.write("back.prototxt", "force_backward: true\n" + DEPLOY)
        data, top = numpy.random.default_rng(5).standard_normal((4, 3, 12, 10)), numpy.eye(5)[:4]
        first = caffe.Net(file, caffe.TRAIN)
        caffe.set_random_seed(9)
        self.addCleanup(caffe.set_random_seed, 1)
        second = caffe.Net(file, caffe.TRAIN)
        second.share_with(first)
        with self.assertRaisesRegex(ValueError, "a forward comes before the first backward"):
            second.backward(prob=top)
        for net in (first, second):
            net.forward(data=data)
            net.backward(prob=top)
        for a, b in ((p, second.params[name][i]) for name in first.params for i, p in enumerate(first.params[name])):
            self.assertTrue(numpy.shares_memory(a.data, b.data))
            self.assertFalse(numpy.shares_memory(a.diff, b.diff))
            numpy.testing.assert_array_equal(a.diff, b.diff)
        self.assertGreater(numpy.abs(first.params["conv1"][0].diff).max(), 0)
        second.forward(data=2 * data)
        second.backward(prob=top)
        self.assertGreater(numpy.abs(first.params["conv1"][0].diff - second.params["conv1"][0].diff).max(), 0)
        # steps of one are steps of both; with the first gone, too
        for net in (first, second):
            for p in net.params["fc"]:
                p.data[...] -= 0.5 * p.diff
        prob = first.forward(data=data)["prob"].copy()
        del first, net, a, p
        numpy.testing.assert_array_equal(second.forward(data=data)["prob"], prob)

    def test_random_seed(self):
        file, made = self.write("deploy.prototxt", DEPLOY), []
        self.addCleanup(caffe.set_random_seed, 1)
        for seed in (7, 7, 8):
            caffe.set_random_seed(seed)
            made.append(caffe.Net(file, caffe.TEST).params["fc"][0].data.copy())
        numpy.testing.assert_array_equal(made[0], made[1])
        self.assertGreater(numpy.abs(made[0] - made[2]).max(), 0)
        with self.assertRaisesRegex(ValueError, "seed -1"):
            caffe.set_random_seed(-1)


class Arrays(InFolder):
    """MemoryData, and calls of a solver's steps."""

    def setUp(self):
        super().setUp()
        self.net = self.write("memory.prototxt", """layer { name: "in" type: "MemoryData" top: "data" top: "label"
              memory_data_param { batch_size: 2 channels: 1 height: 1 width: 3 } }
            layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
              inner_product_param { num_output: 2 weight_filler { type: "xavier" } } }
            layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }""")
        self.data, self.labels = numpy.arange(12, dtype=numpy.float32).reshape(4, 1, 1, 3) / 12, numpy.array([0, 1, 1, 0])

    def solver(self, more=""):
        return caffe.get_solver(self.write("solver.prototxt", f'net: "{self.net}" base_lr: 0.1 lr_policy: "fixed" max_iter: 10 '
                                           f"random_seed: 3 snapshot_after_train: false {more}"))

    def test_batches(self):
        net = caffe.Net(self.net, caffe.TRAIN)
        self.assertEqual(net.inputs, [])
        net.set_input_arrays(self.data, self.labels)
        for at in (0, 2, 0):
            net.forward()
            numpy.testing.assert_array_equal(net.blobs["data"].data, self.data[at:at + 2])
            numpy.testing.assert_array_equal(net.blobs["label"].data, self.labels[at:at + 2])
            net.forward(start="ip")
        for text, data, labels in ((r"data of shape \(4, 3\): N x 1 x 1 x 3", self.data[:, 0, 0], self.labels),
                                   ("4 images and 3 labels", self.data, self.labels[:3]),
                                   ("3 images: a multiple of the batch_size, 2", self.data[:3], self.labels[:3])):
            with self.assertRaisesRegex(ValueError, text):
                net.set_input_arrays(data, labels)
        with self.assertRaisesRegex(ValueError, "no layer of type MemoryData"):
            caffe.Net(self.write("deploy.prototxt", DEPLOY), caffe.TEST).set_input_arrays(self.data, self.labels)

    def test_images(self):
        """They are transformed, in TEST from their middle."""
        file = self.write("images.prototxt", """layer { name: "in" type: "MemoryData" top: "data" top: "label"
              transform_param { crop_size: 2 mirror: true mean_value: 1 mean_value: 2 scale: 0.5 }
              memory_data_param { batch_size: 2 channels: 2 height: 2 width: 2 } }
            layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 2 } }
            layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }""")
        images = numpy.arange(4 * 2 * 4 * 4, dtype=numpy.uint8).reshape(4, 2, 4, 4)
        values = (images.astype(numpy.float32) - numpy.array([1, 2], numpy.float32).reshape(2, 1, 1)) / 2

        def windows(image, places):
            return [image[:, y:y + 2, x:x + 2][:, :, ::m] for y in places for x in places for m in (1, -1)]

        for phase, places in ((caffe.TEST, (1,)), (caffe.TRAIN, (0, 1, 2))):
            net, seen = caffe.Net(file, phase), set()
            for given in (images, images.astype(numpy.float32)) * 2:
                net.set_input_images(given, self.labels)
                for at in (0, 2, 0):
                    net.forward()
                    for k in (0, 1):
                        fits = [i for i, w in enumerate(windows(values[at + k], places)) if (w == net.blobs["data"].data[k]).all()]
                        self.assertEqual(len(fits), 1)
                        seen.add(fits[0])
                    numpy.testing.assert_array_equal(net.blobs["label"].data, self.labels[at:at + 2])
            self.assertGreater(len(seen), len(places) ** 2 // 2)
            first = net.transform("in", images)
            numpy.testing.assert_array_equal(net.transform("in", images[2:], 2), first[2:])
        for text, given in (("N x channels x height x width", images[0]), (r"pad 0, crop_size 2", images[:, :, :1]),
                            ("give one, or one each", images[:, :1].repeat(3, 1))):
            with self.assertRaisesRegex((ValueError, cortado.Error), text):
                net.set_input_images(given, self.labels)
        with self.assertRaisesRegex(cortado.Error, 'layer "ip" is a InnerProduct: images are transformed for MemoryData'):
            net.transform("ip", images)
        with self.assertRaisesRegex(ValueError, 'no layer "up"'):
            net.transform("up", images)
        with self.assertRaisesRegex(ValueError, "no layer of type MemoryData"):
            caffe.Net(self.write("deploy.prototxt", DEPLOY), caffe.TEST).set_input_images(images, self.labels)

    def test_steps(self):
        """Each takes the next batch: they are those of a loop in NumPy."""
        solver = self.solver()
        w, b = (p.data.astype(numpy.float64) for p in solver.net.params["ip"])
        solver.net.set_input_arrays(self.data, self.labels)
        solver.step(3)
        for at in (0, 2, 0):
            x, label = self.data[at:at + 2, 0, 0].astype(numpy.float64), self.labels[at:at + 2]
            e = numpy.exp(x @ w.T + b)
            d = (e / e.sum(1, keepdims=True) - numpy.eye(2)[label]) / 2
            w, b = w - 0.1 * d.T @ x, b - 0.1 * d.sum(0)
        numpy.testing.assert_allclose(solver.net.params["ip"][0].data, w, rtol=1e-5)
        numpy.testing.assert_allclose(solver.net.params["ip"][1].data, b, rtol=1e-4, atol=1e-6)
        test = caffe.Net(self.net, caffe.TEST)
        solver.share_weights(test)
        numpy.testing.assert_array_equal(test.params["ip"][0].data, solver.net.params["ip"][0].data)

    def test_binary_snapshots_are_read(self):
        solver = self.solver(f"momentum: 0.9 snapshot_format: BINARYPROTO snapshot_prefix: '{self.folder}/s'")
        solver.net.set_input_arrays(self.data, self.labels)
        w = solver.net.params["ip"][0]
        before = w.data.copy()
        solver.step(1)
        solver.snapshot()
        file = os.path.join(self.folder, "s_iter_1.solverstate")
        read = cortado.read_snapshot(file)
        self.assertEqual(read["iter"], 1)
        numpy.testing.assert_array_equal(read["weights"]["ip"][0], w.data)
        numpy.testing.assert_array_equal(read["weights"]["ip"][1], solver.net.params["ip"][1].data)
        numpy.testing.assert_allclose(read["history"][0].reshape(w.shape), before - w.data, rtol=1e-4, atol=1e-7)  # V, as w -= V
        numpy.testing.assert_array_equal(cortado.read_snapshot(read["learned_net"])["weights"]["ip"][0], w.data)
        moved = os.path.join(self.folder, "moved")
        os.mkdir(moved)
        for name in ("s_iter_1.solverstate", "s_iter_1.caffemodel"):
            os.rename(os.path.join(self.folder, name), os.path.join(moved, name))
        again = cortado.read_snapshot(os.path.join(moved, "s_iter_1.solverstate"))
        numpy.testing.assert_array_equal(again["weights"]["ip"][0], w.data)
        os.remove(os.path.join(moved, "s_iter_1.caffemodel"))
        self.assertNotIn("weights", cortado.read_snapshot(os.path.join(moved, "s_iter_1.solverstate")))
        wrong = self.write("wrong.solverstate", "no message")
        with self.assertRaisesRegex(ValueError, "wrong.solverstate: expected Caffe's SolverState"):
            cortado.read_snapshot(wrong)
        with self.assertRaises(FileNotFoundError):
            cortado.read_snapshot("/nowhere/a.solverstate")

    def test_callbacks(self):
        solver, seen = self.solver(), []
        solver.net.set_input_arrays(self.data, self.labels)
        w = solver.net.params["ip"][0]
        solver.add_callback(lambda: seen.append(("start", w.data.copy())),
                            lambda: seen.append(("gradients", w.data.copy(), w.diff.copy())))
        solver.step(2)
        self.assertEqual([one[0] for one in seen], ["start", "gradients"] * 2)
        numpy.testing.assert_array_equal(seen[0][1], seen[1][1])
        numpy.testing.assert_allclose(seen[2][1], seen[0][1] - 0.1 * seen[1][2], rtol=1e-5)

        def clear():
            solver.net.clear_param_diffs()

        solver.add_callback(None, clear)
        before = w.data.copy()
        solver.step(2)
        numpy.testing.assert_array_equal(w.data, before)

        def refuses():
            raise KeyError("no step")

        solver.add_callback(refuses)
        with self.assertRaisesRegex(caffe.Error, "at the start of a step: .*KeyError: 'no step'") as raised:
            solver.step(1)
        self.assertIsInstance(raised.exception.__cause__, KeyError)
        for more, text in (("clip_gradients: 1", "clip_gradients"), ("type: 'LARS' momentum: 0.9", "type LARS or LAMB"),
                           ("compression { type: TOPK density: 0.5 }", "compression")):
            with self.assertRaisesRegex(caffe.Error, text + " and a look at gradients"):
                self.solver(more).add_callback(None, clear)


class Messages(unittest.TestCase):
    def test_messages(self):
        text = 'name: "n" layer { name: "d" type: "Data" include { phase: TEST } data_param { backend: LMDB batch_size: 3 } }'
        net = text_format.Parse(text, caffe_pb2.NetParameter())
        self.assertEqual((net.layer[0].include[0].phase, net.layer[0].data_param.backend), (caffe_pb2.TEST, P.Data.LMDB))
        self.assertEqual(net.layer[0].data_param.prefetch, 4)  # a default
        self.assertEqual(caffe_pb2.NetParameter.FromString(net.SerializeToString()), net)
        self.assertEqual(caffe_pb2.SolverParameter.GPU, 1)

    def test_to_proto(self):
        data = L.Input(shape=dict(dim=[1, 2]))
        net = caffe.to_proto(L.ReLU(L.InnerProduct(data, num_output=3), in_place=True))
        self.assertEqual([layer.name for layer in net.layer], ["Input1", "InnerProduct1", "ReLU1"])
        self.assertEqual(list(net.layer[2].top), ["InnerProduct1"])
        self.assertEqual(net.layer[1].inner_product_param.num_output, 3)

    def test_arrays(self):
        random = numpy.random.default_rng(1)
        floats, pixels = random.standard_normal((2, 3, 4)), random.integers(0, 256, (3, 4, 5), numpy.uint8)
        numpy.testing.assert_allclose(caffe.io.datum_to_array(caffe.io.array_to_datum(floats)), floats, rtol=1e-6)
        datum = caffe.io.array_to_datum(pixels, 7)
        self.assertEqual((datum.channels, datum.height, datum.width, datum.label), (3, 4, 5, 7))
        numpy.testing.assert_array_equal(caffe.io.datum_to_array(datum), pixels)
        blob = caffe.io.array_to_blobproto(floats, 2 * floats)
        numpy.testing.assert_allclose(caffe.io.blobproto_to_array(blob), floats, rtol=1e-6)
        numpy.testing.assert_allclose(caffe.io.blobproto_to_array(blob, True), 2 * floats, rtol=1e-6)
        old = caffe_pb2.BlobProto(num=1, channels=2, height=1, width=2, data=[1, 2, 3, 4])
        self.assertEqual(caffe.io.blobproto_to_array(old).shape, (1, 2, 1, 2))
        text = caffe.io.arraylist_to_blobprotovector_str([floats, floats[0]])
        self.assertEqual([a.shape for a in caffe.io.blobprotovector_str_to_arraylist(text)], [(2, 3, 4), (3, 4)])
        for make in (lambda: caffe.io.array_to_datum(floats[0]), lambda: caffe.io.array_to_blobproto(floats, floats[0])):
            with self.assertRaises(ValueError):
                make()

    def test_resize(self):
        ramp = numpy.arange(8, dtype=numpy.float32)[:, None, None] * numpy.ones((1, 6, 2), numpy.float32)
        half = caffe.io.resize_image(ramp, (4, 3))
        numpy.testing.assert_allclose(half[:, 0, 0], [0.5, 2.5, 4.5, 6.5])
        twice = caffe.io.resize_image(ramp, (16, 6))
        numpy.testing.assert_allclose(twice[:4, 0, 0], [0, 0.25, 0.75, 1.25])
        numpy.testing.assert_array_equal(caffe.io.resize_image(ramp, (4, 3), 0)[:, 0, 0], [1, 3, 5, 7])
        with self.assertRaisesRegex(ValueError, "interp_order 3"):
            caffe.io.resize_image(ramp, (4, 3), 3)

    def test_transformer_says_what_is_wrong(self):
        made = caffe.io.Transformer({"data": (1, 3, 4, 5)})
        for text, call in (('"image" is none of the inputs: data', lambda: made.set_raw_scale("image", 1)),
                           ("each of its 3 axes once", lambda: made.set_transpose("data", (0, 1))),
                           ("which has 3 channels", lambda: made.set_channel_swap("data", (0, 1))),
                           ("a mean of 2 channels", lambda: made.set_mean("data", numpy.zeros(2))),
                           (r"a mean of shape \(3, 9, 9\)", lambda: made.set_mean("data", numpy.zeros((3, 9, 9))))):
            with self.assertRaisesRegex(ValueError, text):
                call()
        made.set_mean("data", numpy.ones((4, 5)))
        made.set_input_scale("data", 2)
        made.set_transpose("data", (2, 0, 1))
        numpy.testing.assert_array_equal(made.preprocess("data", numpy.full((4, 5, 3), 3)), numpy.full((3, 4, 5), 4))


if __name__ == "__main__":
    unittest.main()
