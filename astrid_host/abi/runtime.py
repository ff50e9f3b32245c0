"""What generated code calls for the cases that are not worth writing out: faults, refusals, and the rarer types."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from typing import Any, NoReturn

from astrid_host.abi.values import Err, Ok, Some, Variant
from astrid_host.errors import GuestFault, HostError

__all__ = ["Err", "GuestFault", "HostError", "Ok", "Some", "Variant"]

NAN = math.nan
# A list of empty elements takes no memory, so only this bounds it.
EMPTY_ELEMENTS = 1 << 16
# What is lifted or lowered in one piece: the canonical ABI's own bound for strings and lists.
MOST_BYTES = (1 << 28) - 1
# What the strings and lists of one call may cost the host, in bytes, where its function does not say less: elements of lists
# are Python objects, and may overlap in the guest.
HOST_BYTES = 128 << 20
RESULT_BYTES = 4 << 20  # the same of what a guest returns
HOST_BYTES_PER_GUEST_BYTE = 16

# Lifting: what the guest got wrong.


def bad_place(what: str, at: int, length: int, alignment: int, size: int) -> NoReturn:
    if at % alignment:
        raise GuestFault(f"{what}: the address {at:#x} is not a multiple of {alignment}")
    if at + length > size:
        raise GuestFault(f"{what}: {length} bytes at {at:#x} are not in the guest's memory of {size} bytes")
    raise GuestFault(f"{what}: {length} bytes in one piece: a string or list has at most {MOST_BYTES}")


def too_many(what: str, count: int) -> NoReturn:
    raise GuestFault(f"{what}: {count} empty elements: expected at most {EMPTY_ELEMENTS}")


def too_much(what: str, most: int, case: str | None) -> NoReturn:
    told = (
        f"{what}: in the host the texts and lists of this call take more than the {most} bytes that it takes, or more than "
        f"{HOST_BYTES_PER_GUEST_BYTE} times the guest's memory"
    )
    if case is not None:
        raise HostError(case, detail=told)
    raise GuestFault(told)


def not_utf8(what: str, error: UnicodeDecodeError) -> GuestFault:
    near = bytes(error.object[max(error.start - 16, 0) : error.start + 16])
    return GuestFault(f"{what}: a string is not UTF-8: {error.reason} at its byte {error.start}, near {near!r}")


def no_case(what: str, given: int, cases: int) -> NoReturn:
    raise GuestFault(f"{what}: there is no case {given}; there are {cases}, from 0")


def char(what: str, code: int) -> str:
    """A lifted char."""
    if code >= 0x110000 or 0xD800 <= code < 0xE000:
        raise GuestFault(f"{what}: {code:#x} is no Unicode scalar value")
    return chr(code)


def still_lent(what: str, index: int) -> NoReturn:
    raise GuestFault(f"{what}: the handle {index} is given away while it is lent to the same call")


def discard(reps: Iterable[Any]) -> None:
    """Close what handles held and nobody holds any more: all of it, then raise what the first failure raised."""
    failure: Exception | None = None
    for rep in reps:
        close = getattr(rep, "close", None)
        try:
            if close is not None:
                close()
        except Exception as error:  # noqa: BLE001 - raised below
            failure = failure or error
    if failure is not None:
        raise failure


def f32_of_i32(value: int) -> float:
    return float(struct.unpack("<f", struct.pack("<I", value & 0xFFFFFFFF))[0])


def f64_of_i64(value: int) -> float:
    return float(struct.unpack("<d", struct.pack("<Q", value & 0xFFFFFFFFFFFFFFFF))[0])


# Lowering: what the host's own value has wrong.


def wrong_type(path: str, value: Any, wanted: str) -> NoReturn:
    raise TypeError(f"{path} must be {wanted}; given {_short(value)}")


def integer(path: str, value: Any, low: int, high: int, kind: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        wrong_type(path, value, f"an int for {kind}")
    if not low <= value <= high:
        raise ValueError(f"{path} must be {low} to {high} for {kind}; given {_short(value)}")
    return int(value)


def real(path: str, value: Any, kind: str) -> float:
    """A number for f32 (rounded; what is too large for it is infinite) or f64."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        wrong_type(path, value, f"a float for {kind}")
    try:
        value = float(value)
    except OverflowError:
        raise ValueError(f"{path} is too large for {kind}; given {_short(value)}") from None
    if kind == "f64":
        return float(value)
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def character(path: str, value: Any) -> int:
    if not isinstance(value, str) or len(value) != 1:
        wrong_type(path, value, "a str of length 1 for char")
    code = ord(value)
    if 0xD800 <= code < 0xE000:
        raise ValueError(f"{path}: {code:#x} is a surrogate, which char cannot be")
    return code


def encoded(path: str, value: Any) -> bytes:
    if not isinstance(value, str):
        wrong_type(path, value, "a str for string")
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{path} has a lone surrogate at {error.start}, which UTF-8 cannot hold") from None


def octets(path: str, value: Any) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        wrong_type(path, value, "bytes for list<u8>")
    return bytes(value)


def sequence(path: str, value: Any, kind: str) -> list[Any] | tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        wrong_type(path, value, f"a list or tuple for {kind}")
    return value


def items(path: str, value: Any, count: int, kind: str) -> tuple[Any, ...]:
    """The parts of a tuple."""
    if len(sequence(path, value, kind)) != count:
        raise ValueError(f"{path} must have {count} items for {kind}; given {_short(value)}")
    return tuple(value)


def numbers(path: str, value: Any, kind: str, code: str, low: int, high: int) -> bytes:
    """A list of numbers or bools, as it is in memory."""
    given = tuple(sequence(path, value, f"list<{kind}>"))
    layout = f"<{len(given)}{code}"
    exact = bool if code == "?" else float if code in "fd" else int
    if all(type(item) is exact for item in given):
        try:
            return struct.pack(layout, *given)
        except (struct.error, OverflowError):  # one is out of range
            return struct.pack(layout, *_checked(path, given, kind, low, high))
    return struct.pack(layout, *_checked(path, given, kind, low, high))


def _checked(path: str, given: tuple[Any, ...], kind: str, low: int, high: int) -> list[Any]:
    if kind == "bool":
        return [boolean(f"{path}[{i}]", item) for i, item in enumerate(given)]
    if kind in ("f32", "f64"):
        return [real(f"{path}[{i}]", item, kind) for i, item in enumerate(given)]
    return [integer(f"{path}[{i}]", item, low, high, kind) for i, item in enumerate(given)]


def boolean(path: str, value: Any) -> bool:
    if not isinstance(value, bool):
        wrong_type(path, value, "a bool")
    return value


def too_large(path: str, length: int) -> NoReturn:
    raise ValueError(f"{path} takes {length} bytes; expected at most {MOST_BYTES}")


def bits(path: str, value: Any, known: dict[str, int], kind: str) -> int:
    """Flags, as one number."""
    if not isinstance(value, set | frozenset):
        wrong_type(path, value, f"a set of the flags of {kind}")
    number = 0
    for name in value:
        bit = known.get(name)
        if bit is None:
            raise ValueError(f"{path}: {_short(name)} is no flag of {kind}; there are {', '.join(known)}")
        number |= bit
    return number


def wrong_case(path: str, value: Any, kind: str, names: Iterable[str]) -> NoReturn:
    if not isinstance(value, str):
        wrong_type(path, value, f"a case of {kind} ({', '.join(names)})")
    raise ValueError(f"{path} must be a case of {kind} ({', '.join(names)}); given {_short(value)}")


def wrong_payload(path: str, value: Any) -> NoReturn:
    raise TypeError(f"{path} carries nothing: expected None; given {_short(value)}")


def wrong_record(path: str, value: Any, kind: str, fields: str, error: AttributeError) -> TypeError:
    return TypeError(f"{path} must have the attributes of {kind} ({fields}); given {_short(value)}: {error}")


def i32_of_f32(value: float) -> int:
    return int(struct.unpack("<I", struct.pack("<f", value))[0])


def i64_of_f64(value: float) -> int:
    return int(struct.unpack("<Q", struct.pack("<d", value))[0])


def _short(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - a message must not fail because of what it shows
        text = "(its repr fails)"
    return f"{type(value).__name__} {text if len(text) <= 80 else text[:80] + '…'}"
