"""WIT: parser and resolved types. A text that cannot be read is a `WitError` with file, line and column."""

from __future__ import annotations

from astrid_host.wit.packages import Packages, load_packages, read
from astrid_host.wit.parser import parse
from astrid_host.wit.resolve import resolve
from astrid_host.wit.syntax import ParsedFile
from astrid_host.wit.types import (
    Borrow,
    Case,
    Enum,
    Field,
    Flags,
    Function,
    FunctionKind,
    Interface,
    ListOf,
    OptionOf,
    Own,
    Package,
    Primitive,
    PrimitiveName,
    Record,
    Resource,
    ResultOf,
    TupleOf,
    Type,
    Variant,
    World,
)

__all__ = [
    "Borrow",
    "Case",
    "Enum",
    "Field",
    "Flags",
    "Function",
    "FunctionKind",
    "Interface",
    "ListOf",
    "OptionOf",
    "Own",
    "Package",
    "Packages",
    "ParsedFile",
    "Primitive",
    "PrimitiveName",
    "Record",
    "Resource",
    "ResultOf",
    "TupleOf",
    "Type",
    "Variant",
    "World",
    "load_packages",
    "parse",
    "read",
    "resolve",
]
