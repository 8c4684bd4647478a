"""Layers written in Python: `type: "Python"` with python_param { module layer param_str }, in nets and solvers of this process.

    class Twice(cortado.Layer):
        def reshape(self, bottom, top):
            top[0].reshape(*bottom[0].shape)

        def forward(self, bottom, top):
            top[0].data[...] = 2 * bottom[0].data

        def backward(self, top, propagate_down, bottom):
            bottom[0].diff[...] = 2 * top[0].diff

The module is looked for as `import` does. setup() comes once, then reshape() before the net has memory, then forward() and backward()
for each batch. A net is made anew, with its layers, when an input gets another shape.
"""
import ctypes
import importlib
import itertools
from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy

from ._library import BlobStruct, LayerCalls, LayerStruct, fails, lib
from .axes import NamedAxes


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
        memory = ctypes.cast(address or 0, ctypes.POINTER(ctypes.c_float))
        if not self.shape:
            return numpy.ctypeslib.as_array(memory, (1,)).reshape(())
        return numpy.ctypeslib.as_array(memory, self.shape) if self.count > 0 else numpy.zeros(self.shape, numpy.float32)

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


class Layer:
    """What a layer is; a class of its own has the four calls, or those that it needs. name, param_str and phase are set before setup()."""

    name: str = ""
    param_str: str = ""
    phase: int = 0

    def setup(self, bottom: Sequence[LayerBlob], top: Sequence[LayerBlob]) -> None:
        """Looks at param_str and at what it is given, once."""

    def reshape(self, bottom: Sequence[LayerBlob], top: Sequence[LayerBlob]) -> None:
        """Gives each top its shape."""

    def forward(self, bottom: Sequence[LayerBlob], top: Sequence[LayerBlob]) -> None:
        """Writes the tops' data."""
        raise NotImplementedError(f"{type(self).__name__} has no forward()")

    def backward(self, top: Sequence[LayerBlob], propagate_down: Sequence[bool], bottom: Sequence[LayerBlob]) -> None:
        """Writes the diff of each bottom whose propagate_down is true."""
        raise NotImplementedError(f"{type(self).__name__} has no backward()")


class _Made:
    """A layer that runs, with its tops' shapes as setup() and reshape() said them."""

    def __init__(self, layer: Any, n_bottom: int, n_top: int):
        self.layer, self.n_bottom, self.n_top = layer, n_bottom, n_top
        self.shapes: "List[Optional[Tuple[int, ...]]]" = [()] * n_top
        self.is_set_up = False

    def blobs(self, structs: Any, n: int, runs: bool) -> List[LayerBlob]:
        return [LayerBlob(structs[i], None, runs) for i in range(n)]

    def reshape(self, bottoms: Any, tops: Any) -> None:
        bottom = self.blobs(bottoms, self.n_bottom, False)
        top = [LayerBlob(tops[i], self.shapes[i], False) for i in range(self.n_top)]
        if not self.is_set_up:
            self.layer.setup(bottom, top)
            self.is_set_up = True
        self.layer.reshape(bottom, top)
        self.shapes = [blob.shape for blob in top]
        for struct, shape in zip((tops[i] for i in range(self.n_top)), self.shapes):
            if len(shape or ()) > len(struct.dim):
                raise ValueError(f"a top of {len(shape or ())} axes")
            struct.n_dim, struct.dim[: len(shape or ())] = len(shape or ()), shape

    def forward(self, bottoms: Any, tops: Any) -> None:
        self.layer.forward(self.blobs(bottoms, self.n_bottom, True), self.blobs(tops, self.n_top, True))

    def backward(self, bottoms: Any, tops: Any) -> None:
        bottom = self.blobs(bottoms, self.n_bottom, True)
        self.layer.backward(self.blobs(tops, self.n_top, True), [bool(blob._struct.diff) for blob in bottom], bottom)


_made: Dict[int, _Made] = {}
_numbers = itertools.count(1)


def _open(_ctx: Any, layer: Any, made_p: Any, why: Any, n_why: int) -> int:
    try:
        said: LayerStruct = layer.contents
        made = getattr(importlib.import_module(said.module.decode()), said.layer.decode())()
        made.name, made.param_str, made.phase = said.name.decode(), said.param_str.decode(), said.phase
        number = next(_numbers)
        _made[number] = _Made(made, said.n_bottom, said.n_top)
        made_p[0] = number
        return 0
    except BaseException as error:  # no exception may pass through the library
        return fails(why, n_why, error)


def _call(name: str) -> Any:
    def call(_ctx: Any, made: int, bottoms: Any, tops: Any, why: Any, n_why: int) -> int:
        try:
            getattr(_made[made], name)(bottoms, tops)
            return 0
        except BaseException as error:
            return fails(why, n_why, error)

    return call


def _close(_ctx: Any, made: int) -> None:
    _made.pop(made, None)


# the library keeps the addresses of these for as long as the process runs
_calls = LayerCalls(None, LayerCalls.OPEN(_open), *(LayerCalls.RUN(_call(name)) for name in ("reshape", "forward", "backward")),
                    LayerCalls.CLOSE(_close))
lib.cortado_layers_by(ctypes.byref(_calls))
