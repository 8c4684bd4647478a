"""Nets written in Python, as calls of layers.

    from cortado import NetSpec, layers as L, params as P

    n = NetSpec()
    n.data, n.label = L.Data(source="data/mnist/train_lmdb", backend=P.Data.LMDB, batch_size=64, ntop=2)
    n.conv1 = L.Convolution(n.data, kernel_size=5, num_output=20, weight_filler=dict(type="xavier"))
    n.relu1 = L.ReLU(n.conv1, in_place=True)
    n.score = L.InnerProduct(n.relu1, num_output=10, weight_filler=dict(type="xavier"))
    n.loss = L.SoftmaxWithLoss(n.score, n.label)
    net = cortado.Net.from_text(n.to_text(), phase=cortado.TRAIN)

A layer's name is that of its first top. Fields go to the message of the layer's type (convolution_param), else to the layer itself
(loss_weight, param, include); a name that ends in "param" is a message of its own. Wrong names and values raise a ValueError at once.
"""
import difflib
import numbers
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Tuple, Union

from ._schema import Enum, Field, Message, schema


def _near(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, known, 1)
    return f'; did you mean "{near[0]}"?' if near else ""


# ---- values in the text format

def _wrong(where: str, f: Field, value: Any, wanted: str) -> ValueError:
    return ValueError(f"{where}{f.name}: expected {wanted}, not {value!r}")


def _enum_text(where: str, f: Field, enum: Enum, value: Any) -> str:
    if isinstance(value, str):
        if value in enum.values:
            return value
    else:
        for name, number in enum.values.items():
            if number == value:
                return name
    raise _wrong(where, f, value, "one of " + ", ".join(enum.values))


def _string_text(value: bytes) -> str:
    text = "".join(chr(b) if 32 <= b < 127 and b not in b'"\\' else "\\%03o" % b for b in value)
    return f'"{text}"'


def _integer_text(where: str, f: Field, value: Any) -> str:
    low, high = (0 if f.type[0] == "u" else -2 ** 63), 2 ** 63
    if f.type.endswith("32"):
        low, high = (0, 2 ** 32) if f.type[0] == "u" else (-2 ** 31, 2 ** 31)
    whole = int(value) if isinstance(value, numbers.Real) else None  # type: ignore[call-overload]
    if whole is None or whole != value or not low <= whole < high:
        raise _wrong(where, f, value, "a whole number" + (", 0 or more" if low == 0 else ""))
    return str(whole)


def _scalar_text(where: str, f: Field, value: Any) -> str:
    if isinstance(f.of, Enum):
        return _enum_text(where, f, f.of, value)
    if f.type in ("string", "bytes"):
        if not isinstance(value, (str, bytes)):
            raise _wrong(where, f, value, "a string")
        return _string_text(value.encode() if isinstance(value, str) else value)
    if f.type == "bool":
        if value not in (True, False):
            raise _wrong(where, f, value, "True or False")
        return "true" if value else "false"
    if f.type in ("float", "double"):
        if not isinstance(value, numbers.Real):
            raise _wrong(where, f, value, "a number")
        return repr(float(value))
    return _integer_text(where, f, value)


def _lines(where: str, f: Field, value: Any, indent: str) -> Iterator[str]:
    """A field, or each element of one that is repeated, as lines of text."""
    many = isinstance(value, Iterable) and not isinstance(value, (str, bytes, Mapping))
    if many and not f.repeated:
        raise _wrong(where, f, value, "one value")
    for one in value if many else [value]:
        if not isinstance(f.of, Message):
            yield f"{indent}{f.name}: {_scalar_text(where, f, one)}"
            continue
        if not isinstance(one, Mapping):
            raise _wrong(where, f, one, "a dict of fields")
        yield f"{indent}{f.name} {{"
        yield from _message_lines(f"{where}{f.name}.", f.of, one, indent + "  ")
        yield indent + "}"


def _message_lines(where: str, message: Message, values: Mapping[str, Any], indent: str) -> Iterator[str]:
    for name, value in values.items():
        if name not in message.fields:
            raise ValueError(f"{where[:-1]}: there is no field {name!r}{_near(name, message.fields)}")
        yield from _lines(where, message.fields[name], value, indent)


def message_text(name: str, where: str, values: Mapping[str, Any]) -> str:
    """A message of that type, such as FillerParameter, in the text format. where: in front of what is wrong."""
    return "\n".join(_message_lines(where + ".", schema().messages[name], values, ""))


def _layer_message() -> Message:
    return schema().messages["LayerParameter"]


def _own_field(type_name: str) -> "Field | None":
    """convolution_param for Convolution; None: no message has the type's name."""
    for f in _layer_message().fields.values():
        if f.name.endswith("_param") and f.type == type_name + "Parameter":
            return f
    return None


# ---- layers and tops

class Top:
    """A blob that a layer makes."""

    def __init__(self, layer: "Layer", index: int):
        self.layer, self.index = layer, index

    def to_text(self) -> str:
        """The net of the layers that this blob needs."""
        return to_text(self)

    def to_proto(self) -> Any:
        """The same as a NetParameter of cortado.caffe.proto.caffe_pb2."""
        return to_proto(self)


class Layer:
    """A layer: its type, the tops that it reads, and its fields. ntop: how many it makes; in_place: onto what it reads."""

    def __init__(self, type_name: str, bottoms: Tuple[Top, ...], fields: Dict[str, Any]):
        for bottom in bottoms:
            if not isinstance(bottom, Top):
                raise ValueError(f"{type_name}: a bottom is the top of a layer, not {bottom!r}")
        self.type, self.bottoms = type_name, bottoms
        self.fields = dict(fields)
        self.n_top = int(self.fields.pop("ntop", 1))
        self.in_place = bool(self.fields.pop("in_place", False))
        if self.in_place and self.n_top != len(bottoms):
            raise ValueError(f"{type_name}: in_place with {len(bottoms)} bottoms and {self.n_top} tops")
        self.tops = tuple(Top(self, i) for i in range(self.n_top))
        self._sorted()

    def update(self, fields: Mapping[str, Any]) -> None:
        """Sets more fields, or other values."""
        self.fields.update(fields)
        self._sorted()

    def _sorted(self) -> "Tuple[Dict[str, Any], Dict[str, Any]]":
        """The fields of the layer, and of its type's message; checked."""
        layer, own = _layer_message(), _own_field(self.type)
        inner = own.of.fields if own is not None and isinstance(own.of, Message) else {}
        of_layer: Dict[str, Any] = {}
        of_type: Dict[str, Any] = {}
        for name, value in self.fields.items():
            if name in inner and not name.endswith("param"):
                of_type[name] = value
            elif name in layer.fields:
                of_layer[name] = value
            else:
                raise ValueError(f"{self.type}: there is no field {name!r}{_near(name, list(inner) + list(layer.fields))}")
        list(_message_lines(self.type + ".", layer, of_layer, ""))
        if own is not None and isinstance(own.of, Message):
            list(_message_lines(self.type + ".", own.of, of_type, ""))
        return of_layer, of_type

    def _text(self, name: str, bottoms: List[str], tops: List[str]) -> List[str]:
        of_layer, of_type = self._sorted()
        named: Dict[str, Any] = {"name": of_layer.pop("name", name), "type": self.type, "bottom": bottoms, "top": tops}
        own = _own_field(self.type)
        if of_type and own is not None:
            of_layer[own.name] = {**of_layer.get(own.name, {}), **of_type}
        return ["layer {", *_message_lines(self.type + ".", _layer_message(), {**named, **of_layer}, "  "), "}"]


Made = Union[Top, Layer, Tuple[Top, ...]]


class _Layers:
    """layers.Convolution(bottom, ..., num_output=20): a Top, a tuple of Tops where ntop is more, the Layer where it is 0."""

    def __getattr__(self, type_name: str) -> Any:
        if type_name.startswith("_"):
            raise AttributeError(type_name)

        def make(*bottoms: Top, **fields: Any) -> Any:
            made = Layer(type_name, bottoms, fields)
            return made.tops[0] if made.n_top == 1 else made.tops if made.n_top > 1 else made

        make.__name__ = type_name
        return make


class _Values:
    def __init__(self, message: Message):
        for enum in message.enums.values():
            self.__dict__.update(enum.values)


class _Params:
    """params.Pooling.MAX: the value of an enum of PoolingParameter."""

    def __getattr__(self, name: str) -> Any:
        message = schema().messages.get(name + "Parameter")
        if message is None or name.startswith("_"):
            raise AttributeError(f"there is no message {name}Parameter")
        return _Values(message)


layers, params = _Layers(), _Params()


# ---- nets

class _Writer:
    """Layers in the order in which they need each other, each with its names."""

    def __init__(self, names: Dict[Top, str]):
        self.names = names
        self.layers: Dict[Layer, str] = {}
        self.made: Dict[str, int] = {}
        self.lines: List[str] = []

    def _automatic(self, type_name: str) -> str:
        self.made[type_name] = self.made.get(type_name, 0) + 1
        return type_name + str(self.made[type_name])

    def _name(self, top: Top) -> str:
        """The blob's."""
        while top.layer.in_place:
            top = top.layer.bottoms[top.index]
        if top not in self.names:
            self.names[top] = self._automatic(top.layer.type)
        return self.names[top]

    def _write(self, layer: Layer, named: "str | None") -> None:
        bottoms, tops = [self._name(b) for b in layer.bottoms], [self._name(t) for t in layer.tops]
        if named is None:
            first = layer.tops[0] if layer.tops else None
            if first is not None and not layer.in_place:
                named = tops[0]
            else:
                named = self.names.get(first) if first is not None else None
        self.layers[layer] = named or self._automatic(layer.type)
        self.lines += layer._text(self.layers[layer], bottoms, tops)

    def add(self, made: "Top | Layer", named: "str | None" = None) -> None:
        last = made if isinstance(made, Layer) else made.layer
        stack = [last]
        while stack:
            layer = stack[-1]
            waits = [b.layer for b in layer.bottoms if b.layer not in self.layers]
            if layer in self.layers:
                stack.pop()
            elif waits:
                stack += reversed(waits)
            else:
                self._write(layer, named if layer is last and isinstance(made, Layer) else None)
                stack.pop()


def _text(writer: _Writer, name: "str | None") -> str:
    head = [] if name is None else [f"name: {_string_text(name.encode())}"]
    return "".join(line + "\n" for line in head + writer.lines)


def to_text(*tops: Top, name: "str | None" = None) -> str:
    """The net of the layers that these tops need, in the text format. Names are made."""
    writer = _Writer({})
    for top in tops:
        writer.add(top)
    return _text(writer, name)


def _proto(text: str) -> Any:
    """A text as a message of protobuf's; the package itself does not need protobuf."""
    from google.protobuf import text_format

    from .caffe.proto import caffe_pb2

    return text_format.Parse(text, caffe_pb2.NetParameter())


def to_proto(*tops: Top) -> Any:
    """The same as a NetParameter of cortado.caffe.proto.caffe_pb2; needs the package protobuf."""
    return _proto(to_text(*tops))


class NetSpec:
    """A net: what is assigned to its attributes or items are its blobs, by name."""

    def __init__(self) -> None:
        self.__dict__["tops"] = {}

    def __setattr__(self, name: str, value: Made) -> None:
        if not isinstance(value, (Top, Layer)):
            raise ValueError(f"{name}: a top of a layer is expected, not {value!r}; of layers with several tops each gets a name")
        self.tops[name] = value

    def __getattr__(self, name: str) -> Any:
        try:
            return self.tops[name]
        except KeyError:
            raise AttributeError(f"the net has no blob {name!r}{_near(name, self.tops)}") from None

    def __setitem__(self, name: str, value: Made) -> None:
        self.__setattr__(name, value)

    def __getitem__(self, name: str) -> Any:
        return self.tops[name]

    def __delattr__(self, name: str) -> None:
        del self.tops[name]

    def __delitem__(self, name: str) -> None:
        del self.tops[name]

    def __contains__(self, name: object) -> bool:
        return name in self.tops

    def keys(self) -> List[str]:
        return list(self.tops)

    def vals(self) -> List[Any]:
        return list(self.tops.values())

    def update(self, name: str, fields: Mapping[str, Any]) -> None:
        """Sets fields of the layer that makes a blob."""
        made = self.tops[name]
        (made if isinstance(made, Layer) else made.layer).update(fields)

    def to_text(self, name: "str | None" = None) -> str:
        """The net in the text format, as a file has it. name: the net's."""
        writer = _Writer({top: blob for blob, top in self.tops.items() if isinstance(top, Top)})
        for blob, made in self.tops.items():
            writer.add(made, blob)
        return _text(writer, name)

    __str__ = to_text

    def to_proto(self) -> Any:
        """The same as a NetParameter of cortado.caffe.proto.caffe_pb2; needs the package protobuf."""
        return _proto(self.to_text())
