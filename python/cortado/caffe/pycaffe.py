"""Nets and solvers under pycaffe's names."""
import os
import tempfile
import warnings
from collections import OrderedDict
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import numpy

from .. import net as native
from .. import solver as native_solver
from .._library import BlobStruct, set_random_seed
from ..axes import NamedAxes
from ..net import TEST, TRAIN


def set_mode_cpu() -> None:
    """The library runs on the CPU, so there is nothing to set."""


def set_mode_gpu() -> None:
    """Warns: the library runs on the CPU."""
    warnings.warn("the library of Cortado runs on the CPU; `cortado train` and the other verbs use GPUs", stacklevel=2)


def set_device(device: int) -> None:
    """Which GPU there is to use means nothing on the CPU."""


class Blob(native.Blob, NamedAxes):
    """Values and their gradient; .data and .diff are the net's memory."""

    _waits: "Optional[_Shapes]" = None  # a net's blobs: shapes that are to come

    def _look(self) -> BlobStruct:
        if self._waits is not None:
            self._waits.apply()
        return super()._look()

    @property
    def shape(self) -> Tuple[int, ...]:
        if self._waits is not None and self._name in self._waits.shapes:
            return self._waits.shapes[self._name]
        return super().shape

    def reshape(self, *shape: int) -> None:
        """Another shape for an input. The net takes it with its next forward, or where somebody looks at a blob, so that several inputs
        may change together."""
        if self._waits is None:
            raise ValueError(f'"{self._name}" is a weight, which keeps its shape')
        self._waits.add(self._name, shape)


class _Shapes:
    """Shapes of inputs that the net does not have yet."""

    def __init__(self, net: "Net"):
        self.handle, self.inputs = net._shared, net.inputs
        self.shapes: Dict[str, Tuple[int, ...]] = {}

    def add(self, name: str, shape: Sequence[int]) -> None:
        shape = tuple(int(n) for n in shape)
        now = native.Blob(self.handle, name).shape
        if name not in self.inputs:
            if shape != now:
                raise ValueError(f'"{name}" is no input of the net, so its shape follows from those: {", ".join(self.inputs)}')
        elif shape == now:
            self.shapes.pop(name, None)
        else:
            self.shapes[name] = shape

    def apply(self) -> None:
        shapes, self.shapes = self.shapes, {}
        if shapes:
            self.handle.reshape(shapes)


class _Named(OrderedDict):
    """A dict with the iterators of Python 2, which Caffe's notebooks use."""

    def iteritems(self) -> Iterator[Tuple[str, Any]]:
        return iter(self.items())

    def iterkeys(self) -> Iterator[str]:
        return iter(self)

    def itervalues(self) -> Iterator[Any]:
        return iter(self.values())


class _Arrays:
    """What a MemoryData layer reads, batch by batch."""

    def __init__(self, net: "Net", data: Any, labels: Any):
        if "MemoryData" not in net.layer_types:
            raise ValueError("the net has no layer of type MemoryData, which would read arrays")
        self.layer = net.layer_types.index("MemoryData")
        self.names, self.at = net.layer_names, 0
        self.tops = [net.blobs[name] for name in net.top_names[self.names[self.layer]]]
        self.data, self.labels = numpy.asarray(data, numpy.float32), numpy.asarray(labels, numpy.float32).reshape(-1)
        batch = self.tops[0].shape
        if self.data.shape[1:] != batch[1:]:
            raise ValueError(f"data of shape {self.data.shape}: N x {' x '.join(map(str, batch[1:]))}")
        if len(self.data) != len(self.labels):
            raise ValueError(f"{len(self.data)} images and {len(self.labels)} labels: as many of each")
        if len(self.data) == 0 or len(self.data) % batch[0] != 0:
            raise ValueError(f"{len(self.data)} images: a multiple of the batch_size, {batch[0]}")

    def runs(self, start: Optional[str], end: Optional[str]) -> bool:
        """Whether the layer is among those that run."""
        first = 0 if start is None else self.names.index(start)
        last = len(self.names) - 1 if end is None else self.names.index(end)
        return first <= self.layer <= last

    def feed(self) -> None:
        """The next batch."""
        size = self.tops[0].shape[0]
        for top, array in zip(self.tops, (self.data, self.labels)):
            top.data[...] = array[self.at:self.at + size]
        self.at = (self.at + size) % len(self.data)


class NetLayer:
    """A layer of a net: its type and its weights."""

    def __init__(self, type_name: str, blobs: List[Blob]):
        self.type, self.blobs = type_name, blobs


def _with_state(file: "str | os.PathLike[str]", level: int, stages: Sequence[str]) -> str:
    """The text of a net with the level and stages that it is to have."""
    with open(file, encoding="utf-8") as f:
        text = f.read()
    return text + "\nstate { level: %d %s }\n" % (level, " ".join(f'stage: "{s}"' for s in stages))


class Net(native.Net):
    """The net of a prototxt file, as caffe.Net(file, phase), caffe.Net(file, weights, phase), or
    caffe.Net(network_file, phase, level=0, stages=None, weights=None).

    blobs    name -> Blob, in the order in which layers make them
    params   layer -> [Blob, ...]
    """

    _blob = Blob

    def __init__(self, network_file: "str | os.PathLike[str]", *arguments: Any, phase: Optional[int] = None, level: int = 0,
                 stages: Optional[Sequence[str]] = None, weights: "str | os.PathLike[str] | None" = None):
        left = list(arguments)
        if left and not isinstance(left[0], int):
            weights = left.pop(0)
        if left:
            phase = left.pop(0)
        if left or phase not in (TRAIN, TEST):
            raise TypeError("caffe.Net(file, phase), or caffe.Net(file, weights, phase); a phase is caffe.TRAIN or caffe.TEST")
        if level == 0 and not stages:
            super().__init__(network_file, weights, phase)
        else:
            made = self.from_text(_with_state(network_file, level, stages or ()), weights, phase, os.fspath(network_file))
            self._take(made._shared)

    def _take(self, shared: native._Handle) -> None:
        super()._take(shared)
        self._waits = _Shapes(self)
        self.blobs = _Named((name, self.blobs[name]) for name in self.blobs)
        for blob in self.blobs.values():
            blob._waits = self._waits
        self.params = _Named(self.params)
        self.layers = [NetLayer(kind, self.params.get(name, [])) for name, kind in zip(self.layer_names, self.layer_types)]
        self.layer_dict = _Named(zip(self.layer_names, self.layers))
        self.bottom_names, self.top_names = _Named(self.bottom_names), _Named(self.top_names)
        self._layer_names, self._blob_names = self.layer_names, list(self.blobs)
        self._arrays: Optional[_Arrays] = None
        self._images = 0  # that were transformed

    @property
    def blob_loss_weights(self) -> "OrderedDict[str, float]":
        """What each blob counts by among the losses; 0: it is none."""
        return _Named((name, self.loss_weight(name)) for name in self.blobs)

    def reshape(self) -> None:  # type: ignore[override]
        """Takes the shapes that inputs were given. forward() does so, too."""
        self._waits.apply()

    def forward(self, blobs: Optional[Sequence[str]] = None, start: Optional[str] = None, end: Optional[str] = None,
                **inputs: Any) -> Dict[str, numpy.ndarray]:
        """Runs layers start to end, by name; without, all. Inputs by name: all of them or none, of the inputs' shapes, or such that fit
        them. Returns outputs, or the tops of `end`, and what `blobs` names: the net's memory."""
        if inputs and set(inputs) != set(self.inputs):
            raise ValueError(f'inputs given are {", ".join(sorted(inputs))}; those of the net are {", ".join(self.inputs)}')
        for name, value in inputs.items():
            value, data = native.as_array(value), self.blobs[name].data
            if value.shape[:1] != data.shape[:1]:
                raise ValueError(f'input "{name}" has shape {data.shape}, not {value.shape}')
            data[...] = value
        self._waits.apply()
        if self._arrays is not None and self._arrays.runs(start, end):
            self._arrays.feed()
        return super().forward(blobs or (), start, end)

    def set_input_arrays(self, data: Any, labels: Any) -> None:
        """The MemoryData layer takes its batches from here, over and over: images N x channels x height x width, and N labels. N is a
        multiple of its batch_size."""
        self._arrays = _Arrays(self, data, labels)
        if self._shared.solver is not None:
            self._shared.solver.watch(start=self._feed)

    def set_input_images(self, images: Any, labels: Any) -> None:
        """The same of images, uint8 or of floats, which the layer's transform_param transforms now, as Caffe's AddMatVector() does. Each
        call draws its crops and mirroring anew."""
        if "MemoryData" not in self.layer_types:
            raise ValueError("the net has no layer of type MemoryData, which would read images")
        made = self.transform(self.layer_names[self.layer_types.index("MemoryData")], images, self._images)
        self.set_input_arrays(made, labels)
        self._images += len(made)

    def _feed(self) -> None:
        if self._arrays is not None:
            self._arrays.feed()

    def clear_param_diffs(self) -> None:
        """Sets the gradients of weights to 0. Each backward writes them anew."""
        for param in self.params.values():
            for blob in param:
                if blob._look().diff:
                    blob.diff[...] = 0

    def backward(self, diffs: Optional[Sequence[str]] = None, start: Optional[str] = None, end: Optional[str] = None,
                 **tops: Any) -> Dict[str, numpy.ndarray]:
        """Runs backward through layers start down to end. Gradients of outputs may be given by name: of all of them or of none. Those of
        losses are their loss_weight; others are there where the net says force_backward. Returns the gradients of the inputs, or of the
        bottoms of `end`, and what `diffs` names, as far as there are some."""
        if tops and set(tops) != set(self.outputs):
            raise ValueError(f'gradients given are of {", ".join(sorted(tops))}; outputs are {", ".join(self.outputs)}')
        for name, value in tops.items():
            if self.blob_loss_weights[name] != 0:
                raise ValueError(f'the gradient of "{name}" is its loss_weight')
            value, diff = native.as_array(value), self.blobs[name].diff
            if value.shape[:1] != diff.shape[:1]:
                raise ValueError(f'the gradient of "{name}" has shape {diff.shape}, not {value.shape}')
            diff[...] = value
        wanted = self.inputs if end is None else self.bottom_names[end]
        there = [name for name in wanted if self.blobs[name]._look().diff]
        return super().backward(list(dict.fromkeys([*there, *(diffs or ())])), start, end)

    def _batches(self, arrays: Mapping[str, Any]) -> "Iterator[Tuple[Dict[str, Any], int]]":
        """Batches of the net's size, and how many samples of each are meant; the last one is filled up with zeros."""
        size, n = self.blobs[self.inputs[0]].shape[0], len(next(iter(arrays.values())))
        for at in range(0, n, size):
            batch: Dict[str, Any] = {}
            for name, value in arrays.items():
                part = numpy.asarray(value[at:at + size])
                rest = numpy.zeros((size - len(part),) + part.shape[1:], part.dtype)
                batch[name] = numpy.concatenate([part, rest])
            yield batch, min(size, n - at)

    def forward_all(self, blobs: Optional[Sequence[str]] = None, **inputs: Any) -> Dict[str, numpy.ndarray]:
        """forward() of any number of samples, in batches of the net's size. Returns copies."""
        gathered: Dict[str, List[numpy.ndarray]] = {}
        for batch, n in self._batches(inputs):
            for name, value in self.forward(blobs, **batch).items():
                gathered.setdefault(name, []).append(numpy.atleast_1d(value)[:n].copy())
        return {name: numpy.concatenate(parts) for name, parts in gathered.items()}

    def forward_backward_all(self, blobs: Optional[Sequence[str]] = None, diffs: Optional[Sequence[str]] = None,
                             **arrays: Any) -> Tuple[Dict[str, numpy.ndarray], Dict[str, numpy.ndarray]]:
        """forward() and backward() in batches. Arrays by name, of inputs, and of outputs whose gradients they are. Returns both, as
        copies."""
        values: Dict[str, List[numpy.ndarray]] = {}
        gradients: Dict[str, List[numpy.ndarray]] = {}
        for batch, n in self._batches(arrays):
            given = {name: batch.pop(name) for name in self.outputs if name in batch}
            for name, value in self.forward(blobs, **batch).items():
                values.setdefault(name, []).append(numpy.atleast_1d(value)[:n].copy())
            for name, value in self.backward(diffs, **given).items():
                gradients.setdefault(name, []).append(numpy.atleast_1d(value)[:n].copy())
        return tuple({name: numpy.concatenate(parts) for name, parts in all_of.items()} for all_of in (values, gradients))  # type: ignore

    # ---- files

    def copy_from(self, file: "str | os.PathLike[str]") -> None:
        """Copies weights by layer name from a file."""
        self.load(file)

    def _save_as(self, file: "str | os.PathLike[str]", suffix: str) -> None:
        """In the form that the suffix stands for, whatever the file is called."""
        folder, name = os.path.split(os.path.abspath(file))
        if name.endswith(suffix):
            super().save(file)
            return
        if not os.path.isdir(folder):
            raise FileNotFoundError(f"{file}: there is no folder {folder}")
        with tempfile.TemporaryDirectory(dir=folder) as beside:
            made = os.path.join(beside, "weights" + suffix)
            super().save(made)
            os.replace(made, file)

    def save(self, file: "str | os.PathLike[str]") -> None:
        """Writes the weights as a .caffemodel; in the forms of cortado.Net.save() where the suffix is one of theirs."""
        known = (".caffemodel.h5", ".npz", ".safetensors")
        self._save_as(file, next((s for s in known if os.fspath(file).endswith(s)), ".caffemodel"))

    def save_hdf5(self, file: "str | os.PathLike[str]") -> None:
        """Writes the weights as Caffe's HDF5."""
        self._save_as(file, ".caffemodel.h5")

    def load_hdf5(self, file: "str | os.PathLike[str]") -> None:
        """Copies weights by layer name from a file of HDF5."""
        self.load(file)


class Solver(native_solver.Solver):
    """The solver of a prototxt file. All blobs of its nets are kept, with their gradients."""

    _net = Net
    _type: Optional[str] = None  # None: as the file says

    def __init__(self, file: "str | os.PathLike[str]"):
        settings = {"solver_mode": "CPU"}  # Caffe asks set_mode_gpu(), too, and not the file
        if self._type is not None:
            settings["type"] = self._type
        super().__init__(file, keep=True, settings=settings)

    @property
    def iter(self) -> int:
        """Steps made so far."""
        return self.iteration

    def share_weights(self, net: Net) -> None:
        """The net takes the weights of the one that learns."""
        net.share_with(self.net)

    def solve(self, resume_file: "str | os.PathLike[str] | None" = None) -> None:
        """All steps up to max_iter, from a snapshot where one is given."""
        if resume_file is not None:
            self.restore(resume_file)
        super().solve()


class SGDSolver(Solver):
    """The solver of a file, with the rule SGD whatever the file says."""

    _type = "SGD"


class NesterovSolver(Solver):
    """The same with the rule Nesterov."""

    _type = "Nesterov"


class AdaGradSolver(Solver):
    """The same with the rule AdaGrad."""

    _type = "AdaGrad"


class RMSPropSolver(Solver):
    """The same with the rule RMSProp."""

    _type = "RMSProp"


class AdaDeltaSolver(Solver):
    """The same with the rule AdaDelta."""

    _type = "AdaDelta"


class AdamSolver(Solver):
    """The same with the rule Adam."""

    _type = "Adam"


def get_solver(file: "str | os.PathLike[str]") -> Solver:
    """The solver of a file, with the rule that the file says."""
    return Solver(file)
