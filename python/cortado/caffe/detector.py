"""A net that tells what windows of pictures show, as R-CNN does."""
import os
from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy

from . import io
from .classifier import set_up
from .pycaffe import TEST, Net


class Detector(Net):
    """A net and what becomes of windows before it. context_pad: rows of the net's input around the window that show what is around it in
    the picture; beyond the picture the mean stands."""

    def __init__(self, model_file: "str | os.PathLike[str]", pretrained_file: "str | os.PathLike[str]", mean: Any = None,
                 input_scale: Optional[float] = None, raw_scale: Optional[float] = None, channel_swap: Optional[Sequence[int]] = None,
                 context_pad: Optional[int] = None):
        super().__init__(model_file, pretrained_file, TEST)
        self.transformer = set_up(self, mean, input_scale, raw_scale, channel_swap)
        self.context_pad = context_pad or 0

    def _beyond(self, size: Tuple[int, int]) -> numpy.ndarray:
        """What becomes zero in the net's input: a picture of the mean."""
        name = self.inputs[0]
        shape = self.blobs[name].shape
        return io.resize_image(self.transformer.deprocess(name, numpy.zeros(shape[1:], numpy.float32)), size)

    def crop(self, im: numpy.ndarray, window: Sequence[float]) -> numpy.ndarray:
        """A window (ymin, xmin, ymax, xmax) of a picture of H x W x K, with its context."""
        ymin, xmin, ymax, xmax = (float(v) for v in window)
        if self.context_pad:
            size = self.blobs[self.inputs[0]].shape[2]
            more = size / (size - 2.0 * self.context_pad)
            half_y, half_x = (ymax - ymin + 1) / 2 * more, (xmax - xmin + 1) / 2 * more
            middle_y, middle_x = (ymin + ymax + 1) / 2, (xmin + xmax + 1) / 2
            ymin, ymax, xmin, xmax = middle_y - half_y, middle_y + half_y, middle_x - half_x, middle_x + half_x
        box = [int(round(v)) for v in (ymin, xmin, ymax, xmax)]
        inside = [max(box[0], 0), max(box[1], 0), min(box[2], im.shape[0]), min(box[3], im.shape[1])]
        if inside[0] >= inside[2] or inside[1] >= inside[3]:
            raise ValueError(f"window {tuple(window)} of a picture of {im.shape[0]} x {im.shape[1]}")
        if inside == box:
            return im[box[0]:box[2], box[1]:box[3]]
        made = self._beyond((box[2] - box[0], box[3] - box[1]))
        made[inside[0] - box[0]:inside[2] - box[0], inside[1] - box[1]:inside[3] - box[1]] = im[inside[0]:inside[2], inside[1]:inside[3]]
        return made

    def detect_windows(self, images_windows: Sequence[Tuple[str, Sequence[Sequence[float]]]]) -> List[Dict[str, Any]]:
        """Scores of windows. images_windows: [(file, windows), ...]. Returns for each window its file, window and prediction."""
        name, found, made = self.inputs[0], [], []
        for file, windows in images_windows:
            picture = io.load_image(file)
            for window in windows:
                made.append(self.transformer.preprocess(name, self.crop(picture, window)))
                found.append({"window": window, "filename": file})
        if not found:
            return []
        batch: Dict[str, Any] = {name: numpy.stack(made)}
        scores = self.forward_all(**batch)[self.outputs[0]]
        return [{**one, "prediction": score} for one, score in zip(found, scores)]
