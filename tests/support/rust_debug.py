"""Values of WIT types as Rust's `Debug` shows them, in the types that wit-bindgen makes."""

from __future__ import annotations

import re
import unicodedata
from typing import Any

from astrid_host.abi import Variant
from astrid_host.wit import types as wit

_HANDLE = re.compile(r" \{ handle: Resource \{ handle: \d+ \} \}")
_ESCAPED = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\0"}


def without_handles(text: str) -> str:
    """What Rust showed, with handles by their resource's name alone."""
    return _HANDLE.sub("", text)


def outcome(function: wit.Function, good: bool, value: Any) -> str:
    """What a function answers.

    Args:
        function: its declaration.
        good: whether it returned.
        value: what it returned, or else its error, as a `Variant`.
    """
    result = function.result
    if isinstance(result, wit.ResultOf):
        kind, word = (result.ok, "Ok") if good else (result.err, "Err")
        return f"{word}({_unit(kind, value)})"
    assert good, "a function without errors returns"
    return _unit(result, value)


def _unit(kind: wit.Type | None, value: Any) -> str:
    return "()" if kind is None else shown(kind, value)


def shown(kind: wit.Type, value: Any) -> str:
    """A value of a WIT type."""
    match kind:
        case wit.Primitive(name="string"):
            return f'"{"".join(map(_escaped, value))}"'
        case wit.Primitive():
            return str(value).lower()
        case wit.ListOf():
            return "[" + ", ".join(shown(kind.element, item) for item in value) + "]"
        case wit.OptionOf():
            return "None" if value is None else f"Some({shown(kind.some, value)})"
        case wit.Record():
            fields = (f"{field.name}: {shown(field.type, getattr(value, _snake(field.name)))}" for field in kind.fields)
            return f"{_camel(kind.name)} {{ {', '.join(fields)} }}"
        case wit.Enum():
            assert value in kind.cases
            return f"{_camel(kind.name)}::{_camel(value)}"
        case wit.Variant():
            return _variant(kind, value)
        case wit.Own() | wit.Borrow():
            return _camel(kind.resource.name)
        case _:
            raise TypeError(f"no host function returns a {kind}")


def _escaped(c: str) -> str:
    """A character in a text: what cannot be seen, or changes what stands before it, is a number."""
    if c in _ESCAPED:
        return _ESCAPED[c]
    return c if c.isprintable() and unicodedata.category(c) not in ("Mn", "Me") else f"\\u{{{ord(c):x}}}"


def _variant(kind: wit.Variant, value: Variant) -> str:
    case = next(case for case in kind.cases if case.name == value.case)
    word = f"{_camel(kind.name)}::{_camel(case.name)}"
    return word if case.type is None else f"{word}({shown(case.type, value.value)})"


def _snake(name: str) -> str:
    return name.replace("-", "_")


def _camel(name: str) -> str:
    return "".join(part.title() for part in name.split("-"))
