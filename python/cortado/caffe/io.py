"""Pictures and messages as arrays, and what becomes of pictures before a net reads them."""
import os
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

import numpy

from ..image import read_image

Size = Union[Sequence[int], numpy.ndarray]  # height, width

# ---- messages; these need the package protobuf


def _messages() -> Any:
    from .proto import caffe_pb2

    return caffe_pb2


def blobproto_to_array(blob: Any, return_diff: bool = False) -> numpy.ndarray:
    """The values of a BlobProto, or its gradient; float32, in the shape that it says: today's, or N x C x H x W of old files."""
    values = numpy.array(blob.diff if return_diff else blob.data, numpy.float32)
    old = any(blob.HasField(name) for name in ("num", "channels", "height", "width"))
    return values.reshape((blob.num, blob.channels, blob.height, blob.width) if old else tuple(blob.shape.dim))


def array_to_blobproto(arr: numpy.ndarray, diff: Optional[numpy.ndarray] = None) -> Any:
    """An array of any shape as a BlobProto, with a gradient of the same shape where there is one."""
    arr = numpy.asarray(arr)
    blob = _messages().BlobProto()
    blob.shape.dim.extend(arr.shape)
    blob.data.extend(arr.astype(float).flat)
    if diff is not None:
        if numpy.shape(diff) != arr.shape:
            raise ValueError(f"values have shape {arr.shape}, and the gradient {numpy.shape(diff)}")
        blob.diff.extend(numpy.asarray(diff).astype(float).flat)
    return blob


def arraylist_to_blobprotovector_str(arraylist: Sequence[numpy.ndarray]) -> bytes:
    """Arrays as the bytes of a BlobProtoVector."""
    vector = _messages().BlobProtoVector()
    vector.blobs.extend([array_to_blobproto(one) for one in arraylist])
    return vector.SerializeToString()


def blobprotovector_str_to_arraylist(text: bytes) -> List[numpy.ndarray]:
    """The arrays in the bytes of a BlobProtoVector."""
    return [blobproto_to_array(blob) for blob in _messages().BlobProtoVector.FromString(text).blobs]


def array_to_datum(arr: numpy.ndarray, label: Optional[int] = None) -> Any:
    """An array of C x H x W as a Datum: bytes where it is uint8, else float_data."""
    if arr.ndim != 3:
        raise ValueError(f"a datum is of 3 axes, C x H x W, not of shape {arr.shape}")
    datum = _messages().Datum()
    datum.channels, datum.height, datum.width = arr.shape
    if arr.dtype == numpy.uint8:
        datum.data = arr.tobytes()
    else:
        datum.float_data.extend(arr.astype(float).flat)
    if label is not None:
        datum.label = label
    return datum


def datum_to_array(datum: Any) -> numpy.ndarray:
    """The values of a Datum, C x H x W: uint8 of its bytes, else float."""
    values = numpy.frombuffer(datum.data, numpy.uint8).copy() if len(datum.data) else numpy.array(datum.float_data, float)
    return values.reshape(datum.channels, datum.height, datum.width)


# ---- pictures

def load_image(filename: "str | os.PathLike[str]", color: bool = True) -> numpy.ndarray:
    """A JPEG or PNG file as float32 from 0 to 1: H x W x 3 (red, green, blue), or H x W x 1 (gray) where color is False."""
    return read_image(filename, color).astype(numpy.float32) / numpy.float32(255)


def _linear(im: numpy.ndarray, axis: int, size: int) -> numpy.ndarray:
    """Linear along one axis. Centres of pixels are aligned; beyond the outer ones the edge goes on."""
    n = im.shape[axis]
    at = numpy.clip((numpy.arange(size) + 0.5) * (n / size) - 0.5, 0, n - 1)
    low = at.astype(int)
    shape = [1] * im.ndim
    shape[axis] = size
    part = (at - low).reshape(shape)
    return numpy.take(im, low, axis) * (1 - part) + numpy.take(im, numpy.minimum(low + 1, n - 1), axis) * part


def resize_image(im: numpy.ndarray, new_dims: Size, interp_order: int = 1) -> numpy.ndarray:
    """An image of H x W x K with another height and width, as float32. interp_order 1: linear between the pixels around, without
    smoothing before; 0: the nearest one."""
    height, width = int(new_dims[0]), int(new_dims[1])
    if interp_order not in (0, 1):
        raise ValueError(f"interp_order {interp_order}: 0 takes the nearest pixel, 1 is linear")
    if interp_order == 0:
        rows = ((numpy.arange(height) + 0.5) * im.shape[0] / height).astype(int)
        columns = ((numpy.arange(width) + 0.5) * im.shape[1] / width).astype(int)
        return im[rows][:, columns].astype(numpy.float32)
    return _linear(_linear(im.astype(numpy.float64), 0, height), 1, width).astype(numpy.float32)


def oversample(images: Sequence[numpy.ndarray], crop_dims: Size) -> numpy.ndarray:
    """Crops of images of H x W x K: four corners, the centre, and these five mirrored. Returns 10 N x height x width x K."""
    height, width = int(crop_dims[0]), int(crop_dims[1])
    crops = []
    for im in images:
        down, right = im.shape[0] - height, im.shape[1] - width
        if down < 0 or right < 0:
            raise ValueError(f"a crop of {height} x {width} from an image of {im.shape[0]} x {im.shape[1]}")
        places = [(0, 0), (0, right), (down, 0), (down, right), (int(im.shape[0] / 2 - height / 2), int(im.shape[1] / 2 - width / 2))]
        five = [im[y:y + height, x:x + width] for y, x in places]
        crops += five + [crop[:, ::-1] for crop in five]
    return numpy.asarray(crops, numpy.float32)


class Transformer:
    """What becomes of a picture before a net reads it. inputs: name of an input -> its shape, N x C x H x W.

    In this order: resize, transpose, channel_swap, raw_scale, mean, input_scale. deprocess() goes back, but for the size."""

    def __init__(self, inputs: Dict[str, Sequence[int]]):
        self.inputs = {name: tuple(shape) for name, shape in inputs.items()}
        self.transpose: Dict[str, Tuple[int, ...]] = {}
        self.channel_swap: Dict[str, Tuple[int, ...]] = {}
        self.raw_scale: Dict[str, float] = {}
        self.mean: Dict[str, numpy.ndarray] = {}
        self.input_scale: Dict[str, float] = {}

    def _shape(self, in_: str) -> Tuple[int, ...]:
        if in_ not in self.inputs:
            raise ValueError(f'"{in_}" is none of the inputs: {", ".join(self.inputs)}')
        return self.inputs[in_]

    def set_transpose(self, in_: str, order: Sequence[int]) -> None:
        """Which axis of the picture becomes which: (2, 0, 1) makes K x H x W of H x W x K."""
        if sorted(order) != list(range(len(self._shape(in_)) - 1)):
            raise ValueError(f'order {tuple(order)} of "{in_}": each of its {len(self._shape(in_)) - 1} axes once')
        self.transpose[in_] = tuple(order)

    def set_channel_swap(self, in_: str, order: Sequence[int]) -> None:
        """Another order of channels, which stand first then: (2, 1, 0) makes blue, green, red of red, green, blue."""
        if len(order) != self._shape(in_)[1]:
            raise ValueError(f'order {tuple(order)} of "{in_}", which has {self._shape(in_)[1]} channels')
        self.channel_swap[in_] = tuple(order)

    def set_raw_scale(self, in_: str, scale: float) -> None:
        """A factor before the mean goes off: 255 for nets whose pixels go from 0 to 255."""
        self._shape(in_)
        self.raw_scale[in_] = scale

    def set_mean(self, in_: str, mean: Any) -> None:
        """What goes off: a value for each channel, or C x H x W, or H x W, of the input's size."""
        shape, mean = self._shape(in_), numpy.asarray(mean)
        if mean.ndim == 1:
            if mean.shape[0] not in (1, shape[1]):
                raise ValueError(f'a mean of {mean.shape[0]} channels for "{in_}", which has {shape[1]}')
            mean = mean[:, None, None]
        elif ((1,) + mean.shape if mean.ndim == 2 else mean.shape) not in (shape[1:], (1,) + shape[2:]):
            raise ValueError(f'a mean of shape {mean.shape} for "{in_}" of shape {shape[1:]}')
        self.mean[in_] = mean

    def set_input_scale(self, in_: str, scale: float) -> None:
        """A factor at the end."""
        self._shape(in_)
        self.input_scale[in_] = scale

    def preprocess(self, in_: str, data: numpy.ndarray) -> numpy.ndarray:
        """A picture of H' x W' x K as the net's input has it, float32."""
        size = self._shape(in_)[2:]
        made = numpy.asarray(data).astype(numpy.float32)
        if made.shape[:2] != size:
            made = resize_image(made, size)
        if in_ in self.transpose:
            made = made.transpose(self.transpose[in_])
        if in_ in self.channel_swap:
            made = made[list(self.channel_swap[in_])]
        made = made * numpy.float32(self.raw_scale.get(in_, 1))
        if in_ in self.mean:
            made = made - self.mean[in_]
        return (made * numpy.float32(self.input_scale.get(in_, 1))).astype(numpy.float32)

    def deprocess(self, in_: str, data: numpy.ndarray) -> numpy.ndarray:
        """The picture of an input, H x W x K."""
        self._shape(in_)
        made = numpy.array(data).squeeze() / numpy.float32(self.input_scale.get(in_, 1))
        if in_ in self.mean:
            made = made + self.mean[in_]
        made = made / numpy.float32(self.raw_scale.get(in_, 1))
        if in_ in self.channel_swap:
            made = made[list(numpy.argsort(self.channel_swap[in_]))]
        if in_ in self.transpose:
            made = made.transpose(numpy.argsort(self.transpose[in_]))
        return made
