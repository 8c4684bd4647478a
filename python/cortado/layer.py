"""Layers written in Python: `type: "Python"` with python_param { module layer param_str }, in nets and solvers of this process.

    class Twice(cortado.Layer):
        def reshape(self, bottom, top):
            top[0].reshape(*bottom[0].shape)

        def forward(self, bottom, top):
            top[0].data[...] = 2 * bottom[0].data

        def backward(self, top, propagate_down, bottom):
            bottom[0].diff[...] = 2 * top[0].diff

The module is looked for as `import` does. setup() comes once, and says which weights there are (self.blobs.add_blob); then reshape()
before the net has memory, then forward() and backward() for each batch. A net is made anew, with its layers, when an input gets
another shape.
"""
import ctypes
import importlib
import itertools
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import numpy

from ._library import MOST_WEIGHTS, BlobStruct, FormStruct, LayerCalls, LayerStruct, check, fails, lib
from .axes import NamedAxes
from .netspec import message_text


def _view(address: Optional[int], shape: Tuple[int, ...]) -> numpy.ndarray:
    """The net's memory as an array."""
    count = int(numpy.prod(shape, dtype=numpy.int64))
    if count == 0:
        return numpy.zeros(shape, numpy.float32)
    return numpy.ctypeslib.as_array(ctypes.cast(address or 0, ctypes.POINTER(ctypes.c_float)), (count,)).reshape(shape)


class LayerBlob(NamedAxes):
    """A bottom or a top of a layer, while a call of the layer runs."""

    def __init__(self, struct: BlobStruct, shape: Optional[Tuple[int, ...]], runs: bool):
        self._struct, self._shape, self._runs = struct, shape, runs

    @property
    def shape(self) -> Tuple[int, ...]:
        return tuple(self._struct.dim[: self._struct.n_dim]) if self._shape is None else self._shape

    def _array(self, address: Optional[int]) -> numpy.ndarray:
        if not self._runs:  # there is no memory yet; its shape is what layers look at
            return numpy.zeros(self.shape, numpy.float32)
        return _view(address, self.shape)

    @property
    def data(self) -> numpy.ndarray:
        """Its values: the net's memory, float32, for as long as the call runs. Zeros in setup() and reshape()."""
        return self._array(self._struct.data)

    @property
    def diff(self) -> numpy.ndarray:
        """Its gradient, likewise. Raises where nobody wants it."""
        if self._runs and not self._struct.diff:
            raise ValueError("the blob has no gradient: propagate_down says where there is one")
        return self._array(self._struct.diff)

    @property
    def count(self) -> int:
        return int(numpy.prod(self.shape, dtype=numpy.int64))

    def reshape(self, *shape: int) -> None:
        """The shape of a top, in setup() or reshape()."""
        shape = tuple(int(n) for n in shape)
        if not self._runs:
            self._shape = shape
        elif shape != self.shape:
            raise ValueError(f"the blob has shape {self.shape} for as long as the net has its inputs' shapes, so it cannot get {shape}")


class LayerWeight(NamedAxes):
    """A weight of a layer."""

    def __init__(self, shape: Tuple[int, ...], filler: Optional[str]):
        self._shape = shape
        self._filler = None if filler is None else filler.encode()
        self._first = numpy.zeros(shape, numpy.float32) if filler is None else None  # until the net has its values
        self._struct: Optional[BlobStruct] = None
        self._unwanted: Optional[numpy.ndarray] = None

    @property
    def shape(self) -> Tuple[int, ...]:
        return self._shape

    @property
    def count(self) -> int:
        return int(numpy.prod(self._shape, dtype=numpy.int64))

    @property
    def data(self) -> numpy.ndarray:
        """Its values, float32: in setup() and reshape() the first ones, which are 0 as long as nobody writes others; then the net's
        memory."""
        if self._struct is not None:
            return _view(self._struct.data, self._shape)
        if self._first is None:
            raise ValueError("a layer has its weights in forward() and backward(), and in setup() those without a filler; net.params has "
                             "them between")
        return self._first

    @property
    def diff(self) -> numpy.ndarray:
        """Its gradient in backward(), 0 at first: that of this batch. Where nobody wants it, what is written is lost."""
        if self._struct is None:
            raise ValueError("the gradient of a weight is there in backward() alone")
        if self._struct.diff:
            return _view(self._struct.diff, self._shape)
        if self._unwanted is None:
            self._unwanted = numpy.zeros(self._shape, numpy.float32)
        return self._unwanted

    def reshape(self, *shape: int) -> None:
        """Its shape is that of add_blob()."""
        if tuple(shape) != self._shape:
            raise ValueError(f"the weight has shape {self._shape}, which it keeps")


class LayerWeights(Sequence[LayerWeight]):
    """The weights of a layer, in the order of add_blob()."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._weights: List[LayerWeight] = []
        self._is_open = True

    def add_blob(self, *shape: int, filler: Optional[Mapping[str, Any]] = None) -> None:
        """In setup(): one more weight. filler: its first values, as dict(type="xavier") of a layer in C; without, what setup() writes
        to its .data, or 0."""
        if not self._is_open:
            raise ValueError("weights are added in setup() alone")
        if len(self._weights) == MOST_WEIGHTS:
            raise ValueError(f"a layer has at most {MOST_WEIGHTS} weights")
        sizes = tuple(int(n) for n in shape)
        if len(sizes) > len(BlobStruct().dim) or any(n < 0 for n in sizes):
            raise ValueError(f"a weight cannot have the shape {sizes}")
        text = None if filler is None else message_text("FillerParameter", f"filler of weight {len(self)} of {self._name}", filler)
        self._weights.append(LayerWeight(sizes, text))

    def __getitem__(self, i: Any) -> Any:
        return self._weights[i]

    def __len__(self) -> int:
        return len(self._weights)

    def __iter__(self) -> Iterator[LayerWeight]:
        return iter(self._weights)

    def _describe(self, form: FormStruct) -> None:
        """What setup() has added."""
        self._is_open = False
        form.n_weight = len(self)
        for weight, struct in zip(self, form.weight):
            struct.n_dim, struct.dim[: len(weight.shape)] = len(weight.shape), weight.shape
            if weight._filler is not None:
                struct.filler = weight._filler  # the weight keeps it
            elif weight._first is not None:
                struct.values = weight._first.ctypes.data

    def _lend(self, structs: Any) -> None:
        """The net's memory, while a call runs; None: it is over."""
        for i, weight in enumerate(self):
            weight._struct, weight._first = None if structs is None else structs[i], None


class Layer:
    """What a layer is; a class of its own has the four calls, or those that it needs. All but sums is set before setup().

    name, param_str    as the net says them
    phase              cortado.TRAIN or cortado.TEST
    blobs              its weights: setup() adds them with blobs.add_blob()
    rank, n_rank       on several ranks each has its own layer, which sees the samples of that rank
    sums               of a loss, on several ranks. False: a mean over the samples that it sees, as Caffe's losses are, which counts by
                       their share of all. True: a sum over them
    """

    name: str = ""
    param_str: str = ""
    phase: int = 0
    blobs: LayerWeights
    rank: int = 0
    n_rank: int = 1
    sums: bool = False

    def setup(self, bottom: Sequence[LayerBlob], top: Sequence[LayerBlob]) -> None:
        """Looks at param_str and at what it is given, and adds weights, once."""

    def reshape(self, bottom: Sequence[LayerBlob], top: Sequence[LayerBlob]) -> None:
        """Gives each top its shape."""

    def forward(self, bottom: Sequence[LayerBlob], top: Sequence[LayerBlob]) -> None:
        """Writes the tops' data."""
        raise NotImplementedError(f"{type(self).__name__} has no forward()")

    def backward(self, top: Sequence[LayerBlob], propagate_down: Sequence[bool], bottom: Sequence[LayerBlob]) -> None:
        """Writes the diff of each bottom whose propagate_down is true, and of each weight."""
        raise NotImplementedError(f"{type(self).__name__} has no backward()")


class _Made:
    """A layer that runs, with its tops' shapes as setup() and reshape() said them."""

    def __init__(self, layer: Any, n_bottom: int, n_top: int):
        self.layer, self.n_bottom, self.n_top = layer, n_bottom, n_top
        self.weights = LayerWeights(layer.name)
        layer.blobs = self.weights
        self.shapes: "List[Optional[Tuple[int, ...]]]" = [()] * n_top

    def blobs(self, structs: Any, n: int, runs: bool) -> List[LayerBlob]:
        return [LayerBlob(structs[i], None, runs) for i in range(n)]

    def tops(self) -> List[LayerBlob]:
        """Before there is memory."""
        return [LayerBlob(BlobStruct(), shape, False) for shape in self.shapes]

    def setup(self, bottoms: Any, form: Any) -> None:
        top = self.tops()
        self.layer.setup(self.blobs(bottoms, self.n_bottom, False), top)
        self.shapes = [blob.shape for blob in top]
        self.weights._describe(form.contents)
        form.contents.sums = bool(getattr(self.layer, "sums", False))

    def reshape(self, bottoms: Any, tops: Any) -> None:
        top = self.tops()
        self.layer.reshape(self.blobs(bottoms, self.n_bottom, False), top)
        self.shapes = [blob.shape for blob in top]
        for struct, shape in zip((tops[i] for i in range(self.n_top)), self.shapes):
            if len(shape or ()) > len(struct.dim):
                raise ValueError(f"a top of {len(shape or ())} axes")
            struct.n_dim, struct.dim[: len(shape or ())] = len(shape or ()), shape

    def forward(self, bottoms: Any, tops: Any, weights: Any) -> None:
        self.weights._lend(weights)
        try:
            self.layer.forward(self.blobs(bottoms, self.n_bottom, True), self.blobs(tops, self.n_top, True))
        finally:
            self.weights._lend(None)

    def backward(self, bottoms: Any, tops: Any, weights: Any) -> None:
        bottom = self.blobs(bottoms, self.n_bottom, True)
        self.weights._lend(weights)
        try:
            self.layer.backward(self.blobs(tops, self.n_top, True), [bool(blob._struct.diff) for blob in bottom], bottom)
        finally:
            self.weights._lend(None)


_made: Dict[int, _Made] = {}
_numbers = itertools.count(1)


def _open(_ctx: Any, layer: Any, made_p: Any, why: Any, n_why: int) -> int:
    try:
        said: LayerStruct = layer.contents
        made = getattr(importlib.import_module(said.module.decode()), said.layer.decode())()
        made.name, made.param_str, made.phase = said.name.decode(), said.param_str.decode(), said.phase
        made.rank, made.n_rank = said.rank, said.n_rank
        number = next(_numbers)
        _made[number] = _Made(made, said.n_bottom, said.n_top)
        made_p[0] = number
        return 0
    except BaseException as error:  # no exception may pass through the library
        return fails(why, n_why, error)


def _call(name: str) -> Any:
    def call(_ctx: Any, made: int, *arguments: Any) -> int:
        *given, why, n_why = arguments
        try:
            getattr(_made[made], name)(*given)
            return 0
        except BaseException as error:
            return fails(why, n_why, error)

    return call


def _close(_ctx: Any, made: int) -> None:
    _made.pop(made, None)


# the library keeps the addresses of these for as long as the process runs
_calls = LayerCalls(None, LayerCalls.OPEN(_open), LayerCalls.SETUP(_call("setup")), LayerCalls.RESHAPE(_call("reshape")),
                    LayerCalls.RUN(_call("forward")), LayerCalls.RUN(_call("backward")), LayerCalls.CLOSE(_close))
check(lib.cortado_layers_by(ctypes.byref(_calls)))
