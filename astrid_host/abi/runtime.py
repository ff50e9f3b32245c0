"""What generated code calls for the cases that are not worth writing out."""

from __future__ import annotations

import math
import struct
from typing import Any, NoReturn

from astrid_host.abi.values import Err, Ok, Some, Variant
from astrid_host.errors import GuestFault

__all__ = ["Err", "GuestFault", "Ok", "Some", "Variant"]

NAN = math.nan
# A list of empty elements takes no memory, so only this bounds what a guest can make the host allocate for it.
EMPTY_ELEMENTS = 1 << 16


def out_of_range(what: str, at: int, length: int, size: int) -> NoReturn:
    raise GuestFault(f"{what}: {length} bytes at {at:#x} are not in the guest's memory of {size} bytes")


def misaligned(what: str, at: int, alignment: int) -> NoReturn:
    raise GuestFault(f"{what}: the address {at:#x} is not a multiple of {alignment}")


def too_much(what: str) -> NoReturn:
    raise GuestFault(f"{what}: its parts overlap so much that together they are larger than the guest's memory")


def not_utf8(what: str, error: UnicodeDecodeError) -> GuestFault:
    return GuestFault(f"{what}: a string is not UTF-8: {error.reason} at its byte {error.start}")


def no_case(what: str, given: int, cases: int) -> NoReturn:
    raise GuestFault(f"{what}: there is no case {given}; there are {cases}")


def char(what: str, code: int) -> str:
    """A lifted char."""
    if code >= 0x110000 or 0xD800 <= code < 0xE000:
        raise GuestFault(f"{what}: {code:#x} is no Unicode scalar value")
    return chr(code)


def integer(what: str, value: Any, low: int, high: int, kind: str) -> int:
    """An integer to lower."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{what} must be an int for {kind}; given {_short(value)}")
    if not low <= value <= high:
        raise ValueError(f"{what} must be {low} to {high} for {kind}; given {value}")
    return int(value)


def boolean(what: str, value: Any) -> int:
    if not isinstance(value, bool):
        raise TypeError(f"{what} must be a bool; given {_short(value)}")
    return int(value)


def single(what: str, value: Any) -> float:
    return f32(real(what, value))


def f32(value: float) -> float:
    """Rounded to single precision; what does not fit is infinite."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def real(what: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{what} must be a float; given {_short(value)}")
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{what} is too large for a float") from None


def character(what: str, value: Any) -> int:
    if not isinstance(value, str) or len(value) != 1:
        raise TypeError(f"{what} must be a str of length 1 for char; given {_short(value)}")
    code = ord(value)
    if 0xD800 <= code < 0xE000:
        raise ValueError(f"{what}: {code:#x} is no Unicode scalar value")
    return code


def encoded(what: str, value: Any) -> bytes:
    if not isinstance(value, str):
        raise TypeError(f"{what} must be a str; given {_short(value)}")
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{what} has a lone surrogate, which UTF-8 cannot hold") from None


def octets(what: str, value: Any) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise TypeError(f"{what} must be bytes for list<u8>; given {_short(value)}")
    return bytes(value)


def sequence(what: str, value: Any, length: int = -1) -> Any:
    if not isinstance(value, list | tuple):
        raise TypeError(f"{what} must be a list or tuple; given {_short(value)}")
    if length >= 0 and len(value) != length:
        raise ValueError(f"{what} must have {length} items; given {len(value)}")
    return value


def bits(what: str, value: Any, known: dict[str, int], kind: str) -> int:
    """Flags to lower, as one number."""
    if not isinstance(value, set | frozenset):
        raise TypeError(f"{what} must be a set of the flags of {kind}; given {_short(value)}")
    number = 0
    for name in value:
        bit = known.get(name)
        if bit is None:
            raise ValueError(f"{what}: {name!r} is no flag of {kind}; there are {', '.join(known)}")
        number |= bit
    return number


def wrong_case(what: str, value: Any, kind: str, names: str) -> NoReturn:
    raise ValueError(f"{what} must be a case of {kind} ({names}); given {_short(value)}")


def wrong_record(what: str, value: Any, kind: str, error: AttributeError) -> TypeError:
    return TypeError(f"{what} must have the fields of {kind}; given {_short(value)} ({error})")


def i32_of_f32(value: float) -> int:
    return int(struct.unpack("<I", struct.pack("<f", value))[0])


def i64_of_f64(value: float) -> int:
    return int(struct.unpack("<Q", struct.pack("<d", value))[0])


def f32_of_i32(value: int) -> float:
    return float(struct.unpack("<f", struct.pack("<I", value & 0xFFFFFFFF))[0])


def f64_of_i64(value: int) -> float:
    return float(struct.unpack("<d", struct.pack("<Q", value & 0xFFFFFFFFFFFFFFFF))[0])


def _short(value: Any) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 80 else text[:80] + '…'}"
