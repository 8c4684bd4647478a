"""A net that tells what pictures show."""
import os
from typing import Any, Dict, Optional, Sequence

import numpy

from . import io
from .pycaffe import TEST, Net


def set_up(net: Net, mean: Any, input_scale: Optional[float], raw_scale: Optional[float],
           channel_swap: Optional[Sequence[int]]) -> io.Transformer:
    """The transformer of a net's first input."""
    name = net.inputs[0]
    made = io.Transformer({name: net.blobs[name].shape})
    made.set_transpose(name, (2, 0, 1))
    if mean is not None:
        made.set_mean(name, mean)
    if input_scale is not None:
        made.set_input_scale(name, input_scale)
    if raw_scale is not None:
        made.set_raw_scale(name, raw_scale)
    if channel_swap is not None:
        made.set_channel_swap(name, channel_swap)
    return made


class Classifier(Net):
    """A net and what becomes of pictures before it. image_dims: the size that pictures get, of which the net's input is cut; None: that
    of the input."""

    def __init__(self, model_file: "str | os.PathLike[str]", pretrained_file: "str | os.PathLike[str]",
                 image_dims: Optional[Sequence[int]] = None, mean: Any = None, input_scale: Optional[float] = None,
                 raw_scale: Optional[float] = None, channel_swap: Optional[Sequence[int]] = None):
        super().__init__(model_file, pretrained_file, TEST)
        self.transformer = set_up(self, mean, input_scale, raw_scale, channel_swap)
        self.crop_dims = numpy.array(self.blobs[self.inputs[0]].shape[2:])
        self.image_dims = numpy.array(image_dims) if image_dims else self.crop_dims

    def predict(self, inputs: Sequence[numpy.ndarray], oversample: bool = True) -> numpy.ndarray:
        """Probabilities of pictures of H x W x K: N x classes. oversample: the mean over the corners, the centre, and these mirrored; else
        of the centre alone."""
        sized = [io.resize_image(picture, self.image_dims) for picture in inputs]
        crops = io.oversample(sized, self.crop_dims)
        if not oversample:
            crops = crops[4::10]
        name = self.inputs[0]
        batch: Dict[str, Any] = {name: numpy.stack([self.transformer.preprocess(name, crop) for crop in crops])}
        scores = self.forward_all(**batch)[self.outputs[0]]
        return scores.reshape((len(inputs), 10, -1)).mean(1) if oversample else scores
