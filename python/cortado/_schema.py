"""What cortado.proto says: messages, their fields and enums. Read from the file itself, so that the package needs no protobuf."""
import functools
import os
import re
from dataclasses import dataclass, field
from typing import Dict, List, Optional, Union

_TOKEN = re.compile(r'//[^\n]*|"(?:[^"\\]|\\.)*"|[A-Za-z_][\w.]*|-?[\d.]+(?:e[-+]?\d+)?|[{}=;\[\],]', re.IGNORECASE)
SCALARS = {"double", "float", "int32", "int64", "uint32", "uint64", "bool", "string", "bytes"}


@dataclass
class Enum:
    name: str
    values: Dict[str, int] = field(default_factory=dict)


@dataclass
class Field:
    name: str
    number: int
    label: str  # "optional", "repeated", "required"
    type: str  # one of SCALARS, or a message's or enum's name as the file has it
    options: Dict[str, str] = field(default_factory=dict)
    of: Union["Message", Enum, None] = None  # a scalar: None

    @property
    def repeated(self) -> bool:
        return self.label == "repeated"


@dataclass
class Message:
    name: str
    fields: Dict[str, Field] = field(default_factory=dict)
    messages: Dict[str, "Message"] = field(default_factory=dict)
    enums: Dict[str, Enum] = field(default_factory=dict)


class _Reader:
    def __init__(self, text: str):
        self.tokens = [t for t in _TOKEN.findall(text) if not t.startswith("//")]
        self.at = 0

    def next(self, wanted: Optional[str] = None) -> str:
        token = self.tokens[self.at]
        self.at += 1
        if wanted is not None and token != wanted:
            raise ValueError(f"cortado.proto: {wanted!r} expected, not {token!r}")
        return token

    def enum(self) -> Enum:
        enum = Enum(self.next())
        self.next("{")
        while (name := self.next()) != "}":
            self.next("=")
            enum.values[name] = int(self.next())
            self.next(";")
        return enum

    def field(self, label: str) -> Field:
        kind, name = self.next(), self.next()
        self.next("=")
        made = Field(name, int(self.next()), label, kind)
        if self.next() == "[":
            while True:
                option = self.next()
                self.next("=")
                made.options[option] = self.next()
                if self.next() == "]":
                    break
            self.next(";")
        return made

    def body(self, message: Message) -> Message:
        """Up to the brace that ends it, or the end of the file."""
        while self.at < len(self.tokens):
            token = self.next()
            if token == "}":
                break
            if token == "message":
                inner = Message(self.next())
                self.next("{")
                message.messages[inner.name] = self.body(inner)
            elif token == "enum":
                enum = self.enum()
                message.enums[enum.name] = enum
            elif token in ("optional", "repeated", "required"):
                made = self.field(token)
                message.fields[made.name] = made
            else:  # syntax, package
                while self.next() != ";":
                    pass
        return message


def _resolve(message: Message, outer: List[Message]) -> None:
    scopes = [message] + outer
    for f in message.fields.values():
        if f.type in SCALARS:
            continue
        name = f.type.split(".")
        for scope in scopes:
            found: Union[Message, Enum, None] = scope
            for part in name:
                found = (found.messages.get(part) or found.enums.get(part)) if isinstance(found, Message) else None
            if found is not None:
                f.of = found
                break
        else:
            raise ValueError(f"cortado.proto: field {f.name} of {message.name} has the unknown type {f.type}")
    for inner in message.messages.values():
        _resolve(inner, scopes)


@functools.lru_cache(maxsize=None)
def schema() -> Message:
    """The file as a message without fields."""
    here = os.path.dirname(os.path.abspath(__file__))
    beside, source = (os.path.join(here, *way, "cortado.proto") for way in ((), ("..", "..", "framework", "proto")))
    with open(beside if os.path.exists(beside) else source, encoding="utf-8") as f:
        whole = _Reader(f.read()).body(Message(""))
    _resolve(whole, [])
    return whole
