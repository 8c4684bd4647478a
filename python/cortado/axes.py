"""Caffe's names of the first four axes of a blob."""
from typing import Tuple


class NamedAxes:
    """What has a shape has them, too."""

    @property
    def shape(self) -> Tuple[int, ...]:
        raise NotImplementedError

    def _axis(self, axis: int) -> int:
        shape = self.shape
        if len(shape) > 4:
            raise ValueError(f"a blob of {len(shape)} axes: see .shape")
        return shape[axis] if axis < len(shape) else 1

    @property
    def num(self) -> int:
        """Axis 0; 1 where there is none."""
        return self._axis(0)

    @property
    def channels(self) -> int:
        """Axis 1; 1 where there is none."""
        return self._axis(1)

    @property
    def height(self) -> int:
        """Axis 2; 1 where there is none."""
        return self._axis(2)

    @property
    def width(self) -> int:
        """Axis 3; 1 where there is none."""
        return self._axis(3)
