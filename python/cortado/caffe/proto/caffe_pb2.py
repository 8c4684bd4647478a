"""The messages and enums of Caffe, and Cortado's own, as classes of protobuf's: NetParameter, SolverParameter, Datum, BlobProto, ...

They are made of cortado.proto when the module is imported, in a pool of their own, so Caffe's own module may be there, too.
"""
from typing import Any, Dict, List, Union

try:
    from google.protobuf import descriptor_pb2 as _descriptor
    from google.protobuf import descriptor_pool as _pool
    from google.protobuf import message_factory as _factory
except ImportError as error:
    raise ImportError("caffe_pb2 needs the package protobuf: pip install 'cortado[caffe]'") from error
from ..._schema import Enum as _Enum
from ..._schema import Field as _Field
from ..._schema import Message as _Message
from ..._schema import schema as _schema

_PACKAGE = "cortado_caffe"


def _add_enum(to: Any, enum: _Enum) -> None:
    made = to.enum_type.add(name=enum.name)
    for name, number in enum.values.items():
        made.value.add(name=name, number=number)


def _add_field(to: Any, f: _Field, full: Dict[int, str]) -> None:
    kinds = _descriptor.FieldDescriptorProto
    made = to.field.add(name=f.name, number=f.number, label=getattr(kinds, "LABEL_" + f.label.upper()))
    if f.of is None:
        made.type = getattr(kinds, "TYPE_" + f.type.upper())
    else:
        made.type, made.type_name = kinds.TYPE_ENUM if isinstance(f.of, _Enum) else kinds.TYPE_MESSAGE, full[id(f.of)]
    if "default" in f.options:
        made.default_value = f.options["default"].strip('"')
    if f.options.get("packed") == "true":
        made.options.packed = True


def _add_message(to: Any, message: _Message, full: Dict[int, str]) -> None:
    to.name = message.name
    for f in message.fields.values():
        _add_field(to, f, full)
    for enum in message.enums.values():
        _add_enum(to, enum)
    for inner in message.messages.values():
        _add_message(to.nested_type.add(), inner, full)


def _full_names(message: _Message, prefix: str, full: Dict[int, str]) -> None:
    inner: List[Union[_Enum, _Message]] = [*message.enums.values(), *message.messages.values()]
    for one in inner:
        full[id(one)] = f"{prefix}.{one.name}"
        if isinstance(one, _Message):
            _full_names(one, full[id(one)], full)


def _classes() -> Dict[str, Any]:
    """Name -> class of a message, or number of an enum's value."""
    whole = _schema()
    full: Dict[int, str] = {}
    _full_names(whole, "." + _PACKAGE, full)
    file = _descriptor.FileDescriptorProto(name="cortado_caffe.proto", package=_PACKAGE, syntax="proto2")
    for enum in whole.enums.values():
        _add_enum(file, enum)
    for message in whole.messages.values():
        _add_message(file.message_type.add(), message, full)
    pool = _pool.DescriptorPool()
    pool.Add(file) if not hasattr(pool, "AddSerializedFile") else pool.AddSerializedFile(file.SerializeToString())
    made: Dict[str, Any] = {}
    for name in whole.messages:
        described = pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")
        made[name] = (_factory.GetMessageClass(described) if hasattr(_factory, "GetMessageClass")
                      else _factory.MessageFactory(pool).GetPrototype(described))
    for enum in whole.enums.values():
        made.update(enum.values)
    return made


globals().update(_classes())


def __getattr__(name: str) -> Any:  # for type checkers: what there is was made above
    raise AttributeError(f"cortado.proto has no {name}")
