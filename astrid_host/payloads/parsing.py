"""From JSON text to what is published: `parse` for guests' text, `from_value` for the embedding program's values.

Both are total: what they cannot read is a `PayloadError`, whatever its size and depth. They run on guests' stacks, where
CPython's own guard against deep recursion does not reach on every version, so depth is bounded before anything recurses.
(Astrid IPC, `publish` and `to_guest_bytes`.)
"""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import accumulate
from typing import Any

import msgspec

from astrid_host.errors import PayloadError
from astrid_host.payloads.kinds import KINDS, TAGS

# What serde_json reads, and with it every guest written in Rust: a deeper payload would only fail further down.
DEPTH = 127
PAYLOAD_BYTES = 1 << 20  # what one event may carry. (Astrid IPC, limits.)
_SHORT = 2 * DEPTH  # JSON of so few characters cannot nest deeper


class RawJson(dict[str, Any]):
    """The fields of a `raw_json` payload, without its tag."""


class Payload(msgspec.Struct, gc=False):
    """What is published.

    Attributes:
        guest: the JSON bytes that a guest receives.
        data: the same, decoded: a struct of `payloads.kinds` for a typed payload, `RawJson` for one that was tagged
            `raw_json`, else the plain JSON value.
        form: decodes `guest` to the same `data` again; None where only the host's own object will do.
    """

    guest: bytes
    data: Any
    form: Callable[[bytes], Any] | None = None


class _Custom(msgspec.Struct, gc=False):
    """What is inside a `custom` payload, as it was written."""

    data: msgspec.Raw


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_decode_custom = msgspec.json.Decoder(_Custom).decode
_decode_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_convert = msgspec.convert


def parse(raw: bytes | str) -> Payload:
    """Read a payload as a guest publishes it.

    Args:
        raw: JSON; bytes must be UTF-8.

    Returns:
        The payload: typed when its tag is known and its fields fit, else custom. (Astrid IPC, `publish`.)

    Raises:
        PayloadError: it is not JSON or not UTF-8, has a number that is too large to read, or nests deeper than 127.
    """
    try:
        text = raw if isinstance(raw, str) else raw.decode()
        if len(text) > _SHORT:
            check_depth(text)
        value = _decode(text)
        if isinstance(value, dict):
            tag = value.get("type")
            if isinstance(tag, str) and tag in TAGS:
                payload = _tagged(tag, value, text)
                if payload is not None:
                    return payload
        return Payload(raw if isinstance(raw, bytes) else raw.encode(), value, _decode)
    except msgspec.DecodeError as error:
        raise PayloadError(f"the payload is not JSON: {error}") from None
    except (UnicodeDecodeError, UnicodeEncodeError) as error:
        raise PayloadError(f"the payload is not UTF-8: {error.reason} at {error.start}") from None
    except RecursionError:
        raise PayloadError("no stack is left to read the payload: publish it from a shallower call") from None


def _tagged(tag: str, value: dict[str, Any], text: str) -> Payload | None:
    """A payload whose `type` is a known tag; None when its fields do not fit, so that it is custom as a whole."""
    kind = KINDS.get(tag)
    if kind is not None:
        try:
            data = _convert(value, kind)
        except msgspec.ValidationError:
            return None
        return Payload(_encode(data), data, typed)
    if tag == "custom" and "data" in value:
        return Payload(bytes(_decode_custom(text).data), value["data"], _decode)
    if tag == "raw_json":
        fields = _decode_fields(text)
        del fields["type"], value["type"]
        return Payload(_encode(fields), RawJson(value), raw_json)
    return None


def canonical(payload: Payload) -> Payload:
    """The payload with what a guest receives written from what was read: a key that stood twice is there once, so that whoever
    checked a value and whoever receives it see the same one. A typed payload is written anew already."""
    if isinstance(payload.data, dict) and not isinstance(payload.data, RawJson):
        return Payload(_encode(payload.data), payload.data, _decode)
    return payload


def typed(guest: bytes) -> Any:
    """The form of a payload with a known tag: its struct."""
    return parse(guest).data


def raw_json(guest: bytes) -> Any:
    """The form of a payload that was tagged so: its fields."""
    return RawJson(_decode(guest))


def check_depth(text: str) -> None:
    """Refuse what nests deeper than `DEPTH`, without recursion, in a time that grows with the length only.

    Raises:
        PayloadError: it nests deeper.
    """
    if text.count("[") + text.count("{") <= DEPTH:
        return
    # Without escapes every quote begins or ends a string, and between strings only brackets count.
    plain = text.replace("\\\\", "").replace('\\"', "")
    steps = "".join(plain.split('"')[::2]).encode().translate(_STEPS, _NO_STEPS)
    if max(accumulate(memoryview(steps).cast("b")), default=0) > DEPTH:
        raise PayloadError(f"the payload nests deeper than {DEPTH}: flatten it")


_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")  # one in, or one out, as signed bytes
_NO_STEPS = bytes(byte for byte in range(256) if byte not in b"[{]}")


def from_value(value: object) -> Payload:
    """Read a payload as the embedding program gives it.

    Args:
        value: a JSON value; msgspec structs, dataclasses, UUIDs and what else msgspec writes as JSON may be in it.

    Returns:
        The payload, by the rules of `parse`. It shares nothing with `value`.

    Raises:
        PayloadError: it cannot be written as JSON, for which a float must be finite, or nests deeper than 127.
    """
    return parse(written(value))


def written(value: object) -> bytes:
    """A value of the embedding program as JSON bytes, which `parse` reads.

    Raises:
        PayloadError: as for `from_value`.
    """
    try:
        raw = _encode(value)
        if b"null" in raw:  # which is also what msgspec writes for a float that is no number
            json.dumps(msgspec.to_builtins(value, str_keys=True, enc_hook=_written), allow_nan=False)
        if len(raw) > _SHORT:
            check_depth(raw.decode())
    except RecursionError:
        raise PayloadError(f"the payload contains itself, or nests deeper than {DEPTH}: flatten it") from None
    except PayloadError:
        raise
    except (TypeError, ValueError, OverflowError, msgspec.MsgspecError) as error:
        raise PayloadError(f"the payload cannot be written as JSON: {error}") from None
    return raw


def _written(value: object) -> Any:
    """The value of JSON that is written already."""
    if isinstance(value, msgspec.Raw):
        return _decode(value)
    raise TypeError(f"{type(value).__name__} is no JSON value")
