"""Python values of WIT types that Python has no word for.

They are immutable, compare by value, and work in `match` statements.
"""

from __future__ import annotations

from typing import Any

import msgspec


class Some(msgspec.Struct, frozen=True):
    """A present value of an option whose value may itself be None."""

    value: Any = None


class Ok(msgspec.Struct, frozen=True):
    """The good case of a `result` that is a value, not a function's outcome."""

    value: Any = None


class Err(msgspec.Struct, frozen=True):
    """The bad case of a `result` that is a value."""

    value: Any = None


class Variant(msgspec.Struct, frozen=True):
    """One case of a variant, by its WIT name; `value` is None for a case without payload."""

    case: str
    value: Any = None
