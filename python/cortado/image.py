"""Pictures in files as arrays."""
import ctypes
import os

import numpy

from ._library import ImageStruct, check, lib, path


def read_image(file: "str | os.PathLike[str]", color: bool = True) -> numpy.ndarray:
    """The pixels of a JPEG or PNG file: uint8, height x width x 3 (red, green, blue), or x 1 (gray) where color is False. Turned as EXIF
    says; transparency is dropped."""
    image = ImageStruct()
    check(lib.cortado_image_read(path(file), 3 if color else 1, ctypes.byref(image)))
    try:
        pixels = ctypes.cast(image.pixels, ctypes.POINTER(ctypes.c_uint8))
        return numpy.ctypeslib.as_array(pixels, (image.height, image.width, image.channels)).copy()
    finally:
        lib.cortado_image_free(ctypes.byref(image))
