"""Python values of WIT types that Python has no word for."""

from __future__ import annotations

from typing import Any


class _Wrapped:
    __slots__ = ("value",)

    def __init__(self, value: Any = None) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.value == self.value  # type: ignore[attr-defined]

    def __hash__(self) -> int:
        return hash((type(self), self.value))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.value!r})"


class Some(_Wrapped):
    """A present value of an option whose value may itself be None."""

    __slots__ = ()


class Ok(_Wrapped):
    """The good case of a `result` that is a value, not a function's outcome."""

    __slots__ = ()


class Err(_Wrapped):
    """The bad case of a `result` that is a value."""

    __slots__ = ()


class Variant:
    """One case of a variant; `value` is None for a case without payload."""

    __slots__ = ("case", "value")

    def __init__(self, case: str, value: Any = None) -> None:
        self.case = case
        self.value = value

    def __eq__(self, other: object) -> bool:
        return type(other) is Variant and (other.case, other.value) == (self.case, self.value)

    def __hash__(self) -> int:
        return hash((self.case, self.value))

    def __repr__(self) -> str:
        return f"Variant({self.case!r}, {self.value!r})"
