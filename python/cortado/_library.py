"""libcortado's calls, by ctypes. A call lets other threads of Python run meanwhile."""
import ctypes
import operator
import os
import threading
import traceback
from typing import Any, Callable, Optional

_FILE = "libcortado.so.0"


def _load() -> ctypes.CDLL:
    """The library beside this file, as in a wheel; else that of CORTADO_LIBRARY; else where the system finds one."""
    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), _FILE)
    named = os.environ.get("CORTADO_LIBRARY")
    return ctypes.CDLL(named or (beside if os.path.exists(beside) else _FILE))


lib = _load()


class BlobStruct(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("diff", ctypes.c_void_p), ("count", ctypes.c_int64), ("n_dim", ctypes.c_int),
                ("dim", ctypes.c_int64 * 8)]


class ShapeStruct(ctypes.Structure):
    _fields_ = [("input", ctypes.c_char_p), ("n_dim", ctypes.c_int), ("dim", ctypes.c_int64 * 8)]


class ImageStruct(ctypes.Structure):
    _fields_ = [("pixels", ctypes.c_void_p), ("height", ctypes.c_int64), ("width", ctypes.c_int64), ("channels", ctypes.c_int)]


class ImagesStruct(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_void_p), ("floats", ctypes.c_void_p), ("n", ctypes.c_int64), ("channels", ctypes.c_int64),
                ("height", ctypes.c_int64), ("width", ctypes.c_int64)]


class LayerStruct(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("module", ctypes.c_char_p), ("layer", ctypes.c_char_p), ("param_str", ctypes.c_char_p),
                ("phase", ctypes.c_int), ("n_bottom", ctypes.c_int), ("n_top", ctypes.c_int), ("rank", ctypes.c_int),
                ("n_rank", ctypes.c_int)]


MOST_WEIGHTS = 8


class WeightStruct(ctypes.Structure):
    """cortado_layer_weight"""

    _fields_ = [("n_dim", ctypes.c_int), ("dim", ctypes.c_int64 * 8), ("filler", ctypes.c_char_p), ("values", ctypes.c_void_p)]


class FormStruct(ctypes.Structure):
    """cortado_layer_form"""

    _fields_ = [("n_weight", ctypes.c_int), ("weight", WeightStruct * MOST_WEIGHTS), ("sums", ctypes.c_int)]


class LayerCalls(ctypes.Structure):
    """cortado_layer_calls"""

    OPEN = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(LayerStruct), ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p,
                            ctypes.c_size_t)
    SETUP = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(BlobStruct), ctypes.POINTER(FormStruct),
                             ctypes.c_void_p, ctypes.c_size_t)
    RESHAPE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(BlobStruct), ctypes.POINTER(BlobStruct),
                               ctypes.c_void_p, ctypes.c_size_t)
    RUN = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(BlobStruct), ctypes.POINTER(BlobStruct),
                           ctypes.POINTER(BlobStruct), ctypes.c_void_p, ctypes.c_size_t)
    CLOSE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
    _fields_ = [("ctx", ctypes.c_void_p), ("open", OPEN), ("setup", SETUP), ("reshape", RESHAPE), ("forward", RUN), ("backward", RUN),
                ("close", CLOSE)]


class StepCalls(ctypes.Structure):
    """cortado_step_calls"""

    CALL = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
    _fields_ = [("ctx", ctypes.c_void_p), ("start", CALL), ("gradients", CALL)]


_SINK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p)
_text, _object, _int = ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int
_CALLS = {
    # name: (result, arguments)
    "version": (_text, []),
    "error": (_text, []),
    "status_name": (_text, [_int]),
    "log_to": (None, [_SINK, ctypes.c_void_p, _int]),
    "set_threads": (_int, [_int]),
    "set_seed": (None, [ctypes.c_uint32]),
    "net_open": (_int, [_text, _text, _int, ctypes.POINTER(_object)]),
    "net_open_text": (_int, [_text, _text, _text, _int, ctypes.POINTER(_object)]),
    "net_close": (None, [_object]),
    "net_name": (_text, [_object]),
    "net_layer_count": (_int, [_object]),
    "net_layer_name": (_text, [_object, _int]),
    "net_layer_type": (_text, [_object, _int]),
    "net_bottom_name": (_text, [_object, _int, _int]),
    "net_top_name": (_text, [_object, _int, _int]),
    "net_weight_count": (_int, [_object, _int]),
    "net_blob_name": (_text, [_object, _int]),
    "net_input_name": (_text, [_object, _int]),
    "net_output_name": (_text, [_object, _int]),
    "net_loss_weight": (ctypes.c_double, [_object, _text]),
    "net_share": (_int, [_object, _object]),
    "net_blob": (_int, [_object, _text, ctypes.POINTER(BlobStruct)]),
    "net_weight": (_int, [_object, _text, _int, ctypes.POINTER(BlobStruct)]),
    "net_reshape_inputs": (_int, [_object, _int, ctypes.POINTER(ShapeStruct), ctypes.POINTER(_object)]),
    "kept_free": (None, [_object]),
    "net_forward": (_int, [_object, _text, _text]),
    "net_backward": (_int, [_object, _text, _text]),
    "net_loss": (ctypes.c_double, [_object]),
    "net_transform": (_int, [_object, _text, ctypes.POINTER(ImagesStruct), ctypes.c_int64, ctypes.c_void_p]),
    "net_load": (_int, [_object, _text]),
    "net_save": (_int, [_object, _text]),
    "layers_by": (_int, [ctypes.POINTER(LayerCalls)]),
    "image_read": (_int, [_text, _int, ctypes.POINTER(ImageStruct)]),
    "image_free": (None, [ctypes.POINTER(ImageStruct)]),
    "solver_open_on": (_int, [_text, ctypes.POINTER(_text), _int, _object, ctypes.POINTER(_object)]),
    "solver_watch": (_int, [_object, ctypes.POINTER(StepCalls)]),
    "solver_checksum": (_int, [_object, ctypes.POINTER(ctypes.c_uint64)]),
    "solver_close": (None, [_object]),
    "solver_step": (_int, [_object, ctypes.c_int64]),
    "solver_run": (_int, [_object]),
    "solver_iteration": (ctypes.c_int64, [_object]),
    "solver_load": (_int, [_object, _text]),
    "solver_snapshot": (_int, [_object]),
    "solver_restore": (_int, [_object, _text]),
    "solver_net": (_object, [_object]),
    "solver_test_net": (_object, [_object, _int]),
}
for _name, (_result, _arguments) in _CALLS.items():
    _call = getattr(lib, "cortado_" + _name)
    _call.restype, _call.argtypes = _result, _arguments


class Error(RuntimeError):
    """A call of the library failed. `status` has its name, such as CORTADO_ERR_CONFIG."""

    def __init__(self, text: str, status: str):
        super().__init__(text)
        self.status = status


class FileError(Error, OSError):
    """A file is missing, damaged, or cannot be written."""


class ArgumentError(Error, ValueError):
    """What a call was given is wrong."""


_KINDS = {"CORTADO_ERR_IO": FileError, "CORTADO_ERR_ARG": ArgumentError}


_raised = threading.local()  # .error: what Python raised in a call of this thread


def fails(why: Any, n_why: int, error: BaseException) -> int:
    """Hands an error over to the call of the library that it comes from, with the place where it was raised."""
    _raised.error = error
    at = traceback.extract_tb(error.__traceback__)[-1]
    text = f"{at.filename}:{at.lineno}: {type(error).__name__}: {error}".encode()[: n_why - 1]
    ctypes.memmove(why, text + b"\0", len(text) + 1)
    return 1


def check(status: int) -> None:
    """Raises what a status other than CORTADO_OK stands for."""
    if status != 0:
        cause: Optional[BaseException] = _raised.__dict__.pop("error", None)
        if isinstance(cause, (KeyboardInterrupt, SystemExit)):
            raise cause
        name = lib.cortado_status_name(status).decode()
        raise _KINDS.get(name, Error)(lib.cortado_error().decode(errors="replace"), name) from cause


def path(name: "str | bytes | os.PathLike[str] | None") -> Optional[bytes]:
    return None if name is None else c_text(os.fsencode(name))


def c_text(value: bytes) -> bytes:
    """As C takes it, which ends it at the first NUL."""
    if b"\0" in value:
        raise ValueError(f"a NUL in {value!r}")
    return value


def whole(what: str, value: Any, low: int, high: int) -> int:
    """A whole number within a range; TypeError and ValueError where it is none."""
    try:
        n = operator.index(value)
    except TypeError:
        raise TypeError(f"{what}: a whole number is expected, not {value!r}") from None
    if not low <= n <= high:
        raise ValueError(f"{what} {n}: {low} to {high}")
    return n


def version() -> str:
    """The library's version."""
    return lib.cortado_version().decode()


def set_threads(n: int) -> None:
    """Computing takes n threads from now on; 0: as OMP_NUM_THREADS says, or all cores of this process."""
    check(lib.cortado_set_threads(whole("threads", n, 0, 4096)))


def set_random_seed(seed: int) -> None:
    """Random numbers of nets that are opened from now on, and of solvers whose file gives no random_seed: fillers, Dropout."""
    lib.cortado_set_seed(whole("seed", seed, 0, 2**32 - 1))


_sink = None  # as long as the library has it
_LEVELS = ("error", "warn", "info", "debug")


def log_to(sink: Optional[Callable[[str], None]], level: str = "info") -> None:
    """Gives each line of the library's log to sink(line); None: to nobody, which is how it begins."""
    global _sink
    if level not in _LEVELS:
        raise ValueError(f"level {level!r}: one of {', '.join(_LEVELS)}")
    new = _SINK() if sink is None else _SINK(lambda _, line: sink(line.decode(errors="replace").rstrip("\n")))
    lib.cortado_log_to(new, None, _LEVELS.index(level))
    _sink = new
