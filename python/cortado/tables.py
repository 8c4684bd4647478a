"""What runs write, as NumPy arrays: metrics, traces, snapshots."""
import json
import os
import urllib.parse
from typing import Any, Dict, Iterable, List, Mapping

import numpy

Table = Dict[str, numpy.ndarray]


def _column(values: List[Any]) -> numpy.ndarray:
    """Whole numbers as int64, numbers as float64 with NaN where there is none, all else as objects."""
    there = [v for v in values if v is not None]
    if there and all(isinstance(v, bool) for v in there) and len(there) == len(values):
        return numpy.array(values, bool)
    if all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in there):
        if len(there) == len(values) and all(isinstance(v, int) and abs(v) < 2 ** 63 for v in there):
            return numpy.array(values, numpy.int64)
        return numpy.array([numpy.nan if v is None else v for v in values], numpy.float64)
    column = numpy.empty(len(values), object)
    column[:] = values
    return column


def _flat(record: Mapping[str, Any], prefix: str = "") -> Dict[str, Any]:
    """Fields of objects within get names with a dot."""
    flat: Dict[str, Any] = {}
    for name, value in record.items():
        if isinstance(value, Mapping):
            flat.update(_flat(value, f"{prefix}{name}."))
        else:
            flat[prefix + name] = value
    return flat


def _table(records: Iterable[Mapping[str, Any]]) -> Table:
    flat = [_flat(record) for record in records]
    names = dict.fromkeys(name for record in flat for name in record)
    return {name: _column([record.get(name) for record in flat]) for name in names}


def read_metrics(file: "str | os.PathLike[str]") -> Dict[str, Table]:
    """A file of --metrics: a table for each event ("train", "test", ...), which is a dict of columns of equal length.

        cortado.read_metrics("metrics.jsonl")["train"]["loss"]      # one number a display
        cortado.read_metrics("metrics.jsonl")["test"]["outputs.accuracy"]

    A column has NaN, or None, where a line lacks the field. A last line that a run is still writing is left out."""
    events: Dict[str, List[Dict[str, Any]]] = {}
    with open(file, encoding="utf-8") as f:
        for number, line in enumerate(f, 1):
            if not line.endswith("\n"):
                break
            try:
                record = json.loads(line)
                event = record.pop("event")
            except (ValueError, KeyError, TypeError, AttributeError):
                raise ValueError(f'{os.fspath(file)}:{number}: expected an object with "event", not {line[:60].rstrip()!r}') from None
            events.setdefault(event, []).append(record)
    return {event: _table(records) for event, records in events.items()}


def read_trace(file: "str | os.PathLike[str]") -> Table:
    """A file of --trace, a row for each span: rank, thread (its name), start_us, duration_us, category, name, and what else spans have:
    kind, iteration, type, bytes, ... Columns have NaN, or None, where a span lacks the field."""
    with open(file, encoding="utf-8") as f:
        try:
            events = json.load(f)["traceEvents"]
        except (ValueError, KeyError, TypeError):
            raise ValueError(f'{os.fspath(file)}: expected a trace, an object with "traceEvents"') from None
    threads = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    return _table({"rank": e["pid"], "thread": threads.get((e["pid"], e["tid"]), str(e["tid"])), "start_us": e["ts"],
                   "duration_us": e["dur"], "category": e["cat"], "name": e["name"], **e.get("args", {})}
                  for e in events if e["ph"] == "X")


# ---- snapshots

def _tree(group: Any) -> Dict[str, Any]:
    """A group of HDF5 as a dict: groups are dicts, scalars Python's own."""
    made: Dict[str, Any] = {}
    for key, value in group.items():
        name = urllib.parse.unquote(key)
        if hasattr(value, "items"):
            made[name] = _tree(value)
        else:
            content = value[()]
            made[name] = content.decode() if isinstance(content, bytes) else content.item() if content.ndim == 0 else content
    return made


def _read_h5(file: str) -> Dict[str, Any]:
    try:
        import h5py
    except ImportError as error:
        raise ImportError("read_snapshot() needs the package h5py: pip install 'cortado[snapshots]'") from error
    with open(file, "rb"):  # an error of its own where it is not there
        pass
    try:
        with h5py.File(file, "r") as f:
            return _tree(f)
    except OSError as error:
        raise ValueError(f"{file}: expected HDF5: {error}") from None


def _weights(file: str) -> Dict[str, List[numpy.ndarray]]:
    layers = _read_h5(file).get("data")
    if layers is None:
        raise ValueError(f"{file}: expected weights, a group /data")
    return {layer: [arrays[index] for index in sorted(arrays, key=int)] for layer, arrays in layers.items()}


def _message(kind: str, file: str) -> Any:
    """A file of one message, as Caffe writes it."""
    from .caffe.proto import caffe_pb2  # first: it says what it needs
    from google.protobuf.message import DecodeError

    with open(file, "rb") as f:
        content = f.read()
    try:
        return getattr(caffe_pb2, kind).FromString(content)
    except DecodeError as error:
        raise ValueError(f"{file}: expected Caffe's {kind}: {error}") from None


def _caffe_weights(file: str) -> Dict[str, List[numpy.ndarray]]:
    from .caffe.io import blobproto_to_array

    net = _message("NetParameter", file)
    return {layer.name: [blobproto_to_array(blob) for blob in layer.blobs] for layer in (*net.layer, *net.layers) if layer.blobs}


def _caffe_state(file: str) -> Dict[str, Any]:
    from .caffe.io import blobproto_to_array

    state = _message("SolverState", file)
    made = {"iter": state.iter, "current_step": state.current_step, "learned_net": state.learned_net,
            "history": [blobproto_to_array(blob) for blob in state.history]}
    for weights in (state.learned_net, os.path.join(os.path.dirname(file), os.path.basename(state.learned_net))):
        if weights.endswith(".caffemodel") and os.path.isfile(weights):
            return {**made, "weights": _caffe_weights(weights)}
        if weights.endswith(".h5") and os.path.isfile(weights):
            return {**made, "weights": _weights(weights)}
    return made


def read_snapshot(file: "str | os.PathLike[str]") -> Dict[str, Any]:
    """PREFIX_iter_N.solverstate.h5 with the files of its set, or a .caffemodel.h5 alone. A dict:

        weights    layer -> [array, ...]
        average    the same, of the average of the weights; where there is one
        history    state of the update rule -> parameter -> array
        ranks      rank -> what that rank's own file has; where there are such files
        iter, seed, global_batch, ...    numbers and texts

    Needs the package h5py.

    Caffe's binary files: PREFIX_iter_N.solverstate gives iter, current_step, learned_net, history as a list of arrays in Caffe's
    order, and weights where that file is there, as named or beside this one; a .caffemodel alone gives weights. Needs the package
    protobuf."""
    name = os.fspath(file)
    if name.endswith(".solverstate"):
        return _caffe_state(name)
    if name.endswith(".caffemodel"):
        return {"weights": _caffe_weights(name)}
    if name.endswith(".caffemodel.h5"):
        return {"weights": _weights(name)}
    state = _read_h5(name)
    if "iter" not in state:
        raise ValueError(f"{name}: expected a snapshot, with /iter")
    folder, made = os.path.dirname(name), dict(state)
    for line in state.get("parts", "").splitlines():
        part = os.path.join(folder, line.rsplit(" ", 2)[0])
        if part.endswith(".average.caffemodel.h5"):
            made["average"] = _weights(part)
        elif part.endswith(".caffemodel.h5"):
            made["weights"] = _weights(part)
        else:
            rank = part[part.rindex(".rank") + len(".rank"):-len(".h5")]
            made.setdefault("ranks", {})[int(rank)] = _read_h5(part)
    return made
