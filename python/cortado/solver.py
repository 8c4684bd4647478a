"""Solvers: training as `cortado train` does it."""
import ctypes
import os
import threading
import weakref
from typing import Any, Callable, List, Mapping, Optional, Type

from ._library import StepCalls, c_text, check, fails, lib, path, whole
from .net import Net, _Handle


class _SolverHandle:
    """A solver of the library. It is closed when nothing stands on it or its nets any more."""

    def __init__(self, value: "int | None"):
        self.value = value
        self.lock = threading.RLock()  # of the solver and its nets: their calls come one after the other
        self.starts: List[Callable[[], object]] = []
        self.gradients: List[Callable[[], object]] = []
        self._calls: Optional[StepCalls] = None  # as long as the library has it
        weakref.finalize(self, lib.cortado_solver_close, value)

    def watch(self, start: Optional[Callable[[], object]] = None, gradients: Optional[Callable[[], object]] = None) -> None:
        """Adds calls to those of each step."""
        starts = self.starts + ([start] if start is not None else [])
        wanted = self.gradients + ([gradients] if gradients is not None else [])
        for function in starts + wanted:
            if not callable(function):
                raise TypeError(f"a call in each step is expected, not {function!r}")
        calls = StepCalls(None, _call(starts), _call(wanted))
        with self.lock:
            check(lib.cortado_solver_watch(self.value, ctypes.byref(calls)))
            self.starts, self.gradients, self._calls = starts, wanted, calls


def _call(functions: List[Callable[[], object]]) -> Any:
    """One after the other, as the library calls them; NULL: there are none."""
    if not functions:
        return StepCalls.CALL()

    def call(_ctx: Any, why: Any, n_why: int) -> int:
        try:
            for function in functions:
                function()
            return 0
        except BaseException as error:  # no exception may pass through the library
            return fails(why, n_why, error)

    return StepCalls.CALL(call)


def _texts(settings: Mapping[str, object]) -> ctypes.Array:
    """FIELD=VALUE, and NULL behind the last."""
    texts = [c_text(f"{name}={str(value).lower() if isinstance(value, bool) else value}".encode()) for name, value in settings.items()]
    return (ctypes.c_char_p * (len(texts) + 1))(*texts, None)


def _address(comm: object) -> Optional[int]:
    """Where the MPI_Comm behind a communicator of mpi4py is."""
    if comm is None:
        return None
    try:
        from mpi4py import MPI
    except ImportError as e:
        raise ImportError("comm is a communicator of mpi4py, which is not there: pip install mpi4py") from e
    if not isinstance(comm, MPI.Comm):
        raise TypeError(f"comm is a {type(comm).__name__}: a communicator of mpi4py, such as MPI.COMM_WORLD, or None")
    return MPI._addressof(comm)


class Solver:
    """The solver of a prototxt file, with its nets: `net`, which learns, and `test_nets`.

    keep: whether all blobs of the nets, and their gradients, are there between steps. Without it inputs, outputs and weights are, and
    steps are made as `cortado train` makes them.
    settings: what takes the place of the file's, as --set does: {"base_lr": 0.1, "comm.overlap": False}.
    comm: a communicator of mpi4py, whose ranks train the net together: each makes the same calls, lets the solver go at the
    same place, and has its own part of a batch. None: this process alone.
    """

    _net: Type[Net] = Net

    def __init__(self, file: "str | os.PathLike[str]", keep: bool = False, settings: Optional[Mapping[str, object]] = None,
                 comm: object = None):
        handle = ctypes.c_void_p()
        check(lib.cortado_solver_open_on(path(file), _texts(settings or {}), int(bool(keep)), _address(comm), ctypes.byref(handle)))
        self._shared = _SolverHandle(handle.value)
        self.net = self._show(lib.cortado_solver_net(handle))
        self.test_nets: List[Net] = []
        while (net := lib.cortado_solver_test_net(handle, len(self.test_nets))) is not None:
            self.test_nets.append(self._show(net))

    def _show(self, handle: int) -> Net:
        net = self._net.__new__(self._net)
        net._take(_Handle(handle, self._shared))
        return net

    @property
    def iteration(self) -> int:
        return lib.cortado_solver_iteration(self._shared.value)

    @property
    def checksum(self) -> int:
        """Of all weights, as `cortado train` prints it at its end."""
        value = ctypes.c_uint64()
        with self._shared.lock:
            check(lib.cortado_solver_checksum(self._shared.value, ctypes.byref(value)))
        return value.value

    def add_callback(self, on_start: Optional[Callable[[], object]] = None,
                     on_gradients_ready: Optional[Callable[[], object]] = None) -> None:
        """on_start is called before each step; what it writes to inputs counts in it. on_gradients_ready is called when the gradients of
        the weights are there, and before a weight changes; it may change them. For one process, without compression, memory,
        clip_gradients, LARS and LAMB."""
        self._shared.watch(on_start, on_gradients_ready)

    def step(self, n: int = 1) -> None:
        """Makes n steps, with the tests and snapshots that are due among them."""
        n = whole("steps", n, 0, 2**63 - 1)
        with self._shared.lock:
            check(lib.cortado_solver_step(self._shared.value, n))

    def solve(self) -> None:
        """All steps up to max_iter, the last snapshot and test."""
        with self._shared.lock:
            check(lib.cortado_solver_run(self._shared.value))

    def load(self, files: "str | os.PathLike[str]") -> None:
        """Copies weights by layer name from a file, or several with commas between."""
        with self._shared.lock:
            check(lib.cortado_solver_load(self._shared.value, path(files)))

    def snapshot(self) -> None:
        """Writes a snapshot set at snapshot_prefix."""
        with self._shared.lock:
            check(lib.cortado_solver_snapshot(self._shared.value))

    def restore(self, file: "str | os.PathLike[str]" = "auto") -> None:
        """Goes on from FILE.solverstate.h5, or from the newest good set of snapshot_prefix."""
        with self._shared.lock:
            check(lib.cortado_solver_restore(self._shared.value, path(file)))
