"""Nets: blobs and weights as arrays, forward and backward."""
import ctypes
import os
import threading
import weakref
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import numpy

from ._library import BlobStruct, Error, ImagesStruct, ShapeStruct, c_text, check, lib, path, whole

TRAIN, TEST = 0, 1


def as_array(value: Any) -> numpy.ndarray:
    """Values of an array, a tensor of another package, a list or a number. Memory is shared where that is possible."""
    if hasattr(value, "__array__") or not hasattr(value, "__dlpack__"):
        return numpy.asarray(value)
    return numpy.from_dlpack(value)


class _Handle:
    """A net of the library. It is closed when nothing stands on it any more: no Net, Blob or array."""

    def __init__(self, value: "int | None", solver: Any = None):
        """solver: whose net it is, and who closes it; None: nobody's."""
        self.value, self.solver = value, solver
        # a net's calls come one after the other, whichever threads make them; layers in Python may call on
        self.lock = threading.RLock() if solver is None else solver.lock
        self.lenders: "List[_Handle]" = []  # of weights
        self.arrays: "weakref.WeakSet[_Memory]" = weakref.WeakSet()  # of blobs
        if solver is None:
            weakref.finalize(self, lib.cortado_net_close, value)

    def reshape(self, shapes: Mapping[str, Sequence[int]]) -> None:
        """Gives inputs other shapes. Arrays of blobs stay as they are, with memory of their own from then on."""
        structs, kept = (ShapeStruct * len(shapes))(), ctypes.c_void_p()
        for struct, (name, shape) in zip(structs, shapes.items()):
            if len(shape) > len(struct.dim):
                raise ValueError(f'input "{name}": a shape of {len(shape)} axes')
            struct.input, struct.n_dim, struct.dim[: len(shape)] = c_text(name.encode()), len(shape), shape
        with self.lock:
            check(lib.cortado_net_reshape_inputs(self.value, len(structs), structs, ctypes.byref(kept)))
            memory = _Kept(kept.value)
            for array in self.arrays:
                array.kept = memory
            self.arrays.clear()


class _Kept:
    """Memory of blobs that the net does not use any more. It is freed when no array stands on it."""

    def __init__(self, value: "int | None"):
        weakref.finalize(self, lib.cortado_kept_free, value)


class _Memory:
    """What an array stands on."""

    def __init__(self, owner: _Handle, address: int, shape: Sequence[int]):
        self.owner = owner
        self.kept: Optional[_Kept] = None
        self.__array_interface__ = {"version": 3, "data": (address, False), "shape": tuple(shape), "typestr": "<f4"}


class Blob:
    """Values, and where there is one the gradient of the loss by them, in plain order. A weight, or a blob by its name."""

    def __init__(self, handle: _Handle, name: str, weight: Optional[int] = None):
        self._handle, self._name, self._weight = handle, name, weight

    def _look(self) -> BlobStruct:
        b = BlobStruct()
        with self._handle.lock:
            if self._weight is None:
                check(lib.cortado_net_blob(self._handle.value, c_text(self._name.encode()), ctypes.byref(b)))
            else:
                check(lib.cortado_net_weight(self._handle.value, c_text(self._name.encode()), self._weight, ctypes.byref(b)))
        return b

    def _array(self, b: BlobStruct, address: int) -> numpy.ndarray:
        memory = _Memory(self._handle, address, b.dim[: b.n_dim])
        if self._weight is None:
            self._handle.arrays.add(memory)
        return numpy.asarray(memory)

    @property
    def data(self) -> numpy.ndarray:
        """Its values: the net's memory, float32, of the blob's shape."""
        b = self._look()
        return self._array(b, b.data)

    @property
    def diff(self) -> numpy.ndarray:
        """Its gradient, of the same shape. Raises where the net has none."""
        b = self._look()
        if not b.diff:
            raise Error(f'"{self._name}" has no gradient', "CORTADO_ERR_ARG")
        return self._array(b, b.diff)

    def __dlpack__(self, **how: Any) -> Any:
        """Its values for torch.from_dlpack() and the like: the net's memory, on the CPU."""
        return self.data.__dlpack__(**how)

    def __dlpack_device__(self) -> Tuple[int, int]:
        """The CPU's."""
        return (1, 0)

    @property
    def shape(self) -> Tuple[int, ...]:
        b = self._look()
        return tuple(b.dim[: b.n_dim])

    @property
    def count(self) -> int:
        """The number of its elements."""
        return self._look().count

    def reshape(self, *shape: int) -> None:
        """Gives an input another shape, and all that follows from it."""
        self._handle.reshape({self._name: shape})


class _Blobs(Mapping[str, Blob]):
    def __init__(self, handle: _Handle, make: Callable[..., Blob]):
        self._handle, self._make, self._names = handle, make, _names(lib.cortado_net_blob_name, handle.value)

    def __getitem__(self, name: str) -> Blob:
        if not isinstance(name, str):
            raise TypeError(f"a blob's name is expected, not {name!r}")
        blob = self._make(self._handle, name)
        if name not in self._names:
            blob._look()  # says which name may be meant
        return blob

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _names(call: Callable[..., Any], *arguments: Any) -> List[str]:
    names: List[str] = []
    while (name := call(*arguments, len(names))) is not None:
        names.append(name.decode())
    return names


class Net:
    """The net of a prototxt file. weights: a file, or several with commas between; None: as the net's fillers make them.

    blobs    name -> Blob, in the order in which layers make them
    params   layer -> [Blob, …], of the layers that have weights
    inputs, outputs, layer_names, layer_types    lists of names
    """

    _blob = Blob

    def __init__(self, file: "str | os.PathLike[str]", weights: "str | os.PathLike[str] | None" = None, phase: int = TEST):
        handle = ctypes.c_void_p()
        check(lib.cortado_net_open(path(file), path(weights), whole("phase", phase, TRAIN, TEST), ctypes.byref(handle)))
        self._take(_Handle(handle.value))

    @classmethod
    def from_text(cls, text: str, weights: "str | os.PathLike[str] | None" = None, phase: int = TEST, name: str = "text") -> "Net":
        """The same of a net in memory; name stands for the file in messages."""
        handle = ctypes.c_void_p()
        check(lib.cortado_net_open_text(c_text(text.encode()), c_text(name.encode()), path(weights), whole("phase", phase, TRAIN, TEST),
                                        ctypes.byref(handle)))
        net = cls.__new__(cls)
        net._take(_Handle(handle.value))
        return net

    def _take(self, shared: _Handle) -> None:
        self._shared, handle = shared, shared.value
        n = range(lib.cortado_net_layer_count(handle))
        self.inputs, self.outputs = _names(lib.cortado_net_input_name, handle), _names(lib.cortado_net_output_name, handle)
        self.layer_names = [lib.cortado_net_layer_name(handle, i).decode() for i in n]
        self.layer_types = [lib.cortado_net_layer_type(handle, i).decode() for i in n]
        self.bottom_names = {name: _names(lib.cortado_net_bottom_name, handle, i) for i, name in enumerate(self.layer_names)}
        self.top_names = {name: _names(lib.cortado_net_top_name, handle, i) for i, name in enumerate(self.layer_names)}
        self.blobs: Mapping[str, Blob] = _Blobs(shared, self._blob)
        self.params: Dict[str, List[Blob]] = {}
        for i, name in enumerate(self.layer_names):
            count = lib.cortado_net_weight_count(handle, i)
            if count > 0:
                self.params[name] = [self._blob(shared, name, k) for k in range(count)]

    @property
    def name(self) -> str:
        return lib.cortado_net_name(self._shared.value).decode()

    @property
    def loss(self) -> float:
        """The weighted loss of the last forward; 0 without a loss."""
        return lib.cortado_net_loss(self._shared.value)

    def loss_weight(self, name: str) -> float:
        """What a blob counts by among the losses; 0: it is none."""
        return lib.cortado_net_loss_weight(self._shared.value, name.encode())

    def share_with(self, other: "Net") -> None:
        """From now on layers have the weights of those of `other` with the same names, in the same memory; gradients are the net's own.
        Ask for weights again. Raises where a solver has the net, and where shapes differ."""
        if not isinstance(other, Net):
            raise TypeError(f"the net whose weights it is to have is a {type(other).__name__}")
        first, second = sorted((self._shared, other._shared), key=id)
        with first.lock, second.lock:
            check(lib.cortado_net_share(self._shared.value, other._shared.value))
            self._shared.lenders.append(other._shared)

    def forward(self, blobs: Sequence[str] = (), start: Optional[str] = None, end: Optional[str] = None,
                **inputs: Any) -> Dict[str, numpy.ndarray]:
        """Runs layers `start` to `end`, by name; without, all. Inputs may be given by name, as arrays or CPU tensors of the
        input's shape.

        Returns the outputs, or where it ends early the tops of `end`, and what `blobs` names, as arrays of the net's memory."""
        for name, value in inputs.items():
            if name not in self.inputs:
                raise ValueError(f'the net has no input "{name}": {", ".join(self.inputs)}')
            data = self.blobs[name].data
            value = as_array(value)
            if value.shape != data.shape:
                raise ValueError(f'input "{name}" has shape {data.shape}, not {value.shape}')
            data[...] = value
        with self._shared.lock:
            check(lib.cortado_net_forward(self._shared.value, path(start), path(end)))
        wanted = list(self.outputs if end is None else self.top_names[end])
        return {name: self.blobs[name].data for name in dict.fromkeys(wanted + list(blobs))}

    def backward(self, diffs: Sequence[str] = (), start: Optional[str] = None, end: Optional[str] = None) -> Dict[str, numpy.ndarray]:
        """Runs backward through layers `start` down to `end`, by name; without, all. Returns the gradients of the blobs that `diffs`
        names."""
        with self._shared.lock:
            check(lib.cortado_net_backward(self._shared.value, path(start), path(end)))
        return {name: self.blobs[name].diff for name in diffs}

    def reshape(self, name: "str | Mapping[str, Sequence[int]]", shape: Optional[Sequence[int]] = None) -> None:
        """Gives an input another shape, or several at once: reshape({"data": (3, 1, 28, 28), "label": (3,)}). Blobs are to be asked for
        again. Arrays of before keep what they have."""
        self._shared.reshape(name if isinstance(name, Mapping) else {name: shape or ()})

    def transform(self, layer: str, images: Any, first: int = 0) -> numpy.ndarray:
        """Images N x channels x height x width, uint8 or of floats, transformed as transform_param of a MemoryData layer says: N samples
        of its first top. first: the place of the first one in the stream, by which crops and mirroring are drawn."""
        images = as_array(images)
        if images.ndim != 4:
            raise ValueError(f"images of shape {images.shape}: N x channels x height x width")
        if layer not in self.top_names:
            raise ValueError(f'the net has no layer "{layer}"')
        is_bytes = images.dtype == numpy.uint8
        images = numpy.ascontiguousarray(images, numpy.uint8 if is_bytes else numpy.float32)
        made = numpy.empty((len(images), *self.blobs[self.top_names[layer][0]].shape[1:]), numpy.float32)
        address = images.ctypes.data
        struct = ImagesStruct(address if is_bytes else None, None if is_bytes else address, *images.shape)
        first = whole("first", first, 0, 2**63 - 1)
        with self._shared.lock:
            check(lib.cortado_net_transform(self._shared.value, layer.encode(), ctypes.byref(struct), first, made.ctypes.data))
        return made

    def load(self, files: "str | os.PathLike[str]") -> None:
        """Copies weights by layer name from a file, or several with commas between."""
        with self._shared.lock:
            check(lib.cortado_net_load(self._shared.value, path(files)))

    def save(self, file: "str | os.PathLike[str]") -> None:
        """Writes the weights; the suffix says how: .caffemodel, .caffemodel.h5, .npz or .safetensors."""
        with self._shared.lock:
            check(lib.cortado_net_save(self._shared.value, path(file)))
