"""The envelope in which events leave and enter the host: `IpcMessage`, as JSON; and the ids of who published them.

A frame from outside is untrusted: what is not an `IpcMessage` is a `PayloadError`. Its payload is read by the rules of
`parse`, so an unknown tag passes as custom data. (Astrid IPC, `IpcMessage`.)
"""

from __future__ import annotations

import datetime
import time
import uuid
from typing import Annotated, Literal, TypeAlias

import msgspec

from astrid_host.errors import PayloadError
from astrid_host.payloads.kinds import Tagged
from astrid_host.payloads.parsing import Payload, RawJson, check_depth, parse, raw_json, typed

NIL_SOURCE = "00000000-0000-0000-0000-000000000000"
_SOURCES = uuid.UUID("310714d5-9c6d-4c94-8187-75258f393bb6")
SEQ_MOST = (1 << 64) - 1

Origin: TypeAlias = Literal["local_socket", "remote_gateway", "system"]


def source_id(capsule: str, wasm_hash: str) -> str:
    """The UUID that stands on what a capsule publishes: one for all its instances and principals, across restarts.

    Args:
        capsule: its name.
        wasm_hash: the hash of its module, in hexadecimal as its `meta.json` has it.
    """
    return str(uuid.uuid5(_SOURCES, f"{capsule}\0{wasm_hash}"))


class IpcMessage(msgspec.Struct):
    """One event outside the host.

    Attributes:
        topic: as it came; its form is not checked here.
        payload: what a guest would receive, and whether it was `raw_json`.
        source_id: UUID of who published it, in its canonical form.
        timestamp: seconds since 1970.
        signature: bytes, or None.
        seq: the bus numbers events itself and overwrites it.
        principal: on whose behalf.
        device_key_id: which of the principal's devices.
        origin: how it came in.
    """

    topic: str
    payload: Payload
    source_id: str
    timestamp: float
    signature: bytes | None = None
    seq: int = 0
    principal: str | None = None
    device_key_id: str | None = None
    origin: Origin = "system"


class _Frame(msgspec.Struct):
    """`IpcMessage` on the wire, in its order."""

    topic: str
    payload: msgspec.Raw
    source_id: uuid.UUID
    signature: list[Annotated[int, msgspec.Meta(ge=0, le=255)]] | None = None
    timestamp: Annotated[datetime.datetime, msgspec.Meta(tz=True)] | msgspec.UnsetType = msgspec.UNSET
    seq: Annotated[int, msgspec.Meta(ge=0)] = 0
    principal: str | msgspec.UnsetType | None = msgspec.UNSET
    device_key_id: str | msgspec.UnsetType | None = msgspec.UNSET
    origin: str | msgspec.UnsetType | None = msgspec.UNSET


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Frame).decode


def encode_frame(message: IpcMessage) -> bytes:
    """An `IpcMessage` as JSON, without the length that goes before it on a socket. `origin` is left out when it is `system`.

    Raises:
        ValueError: `source_id` is no UUID, or `timestamp` no time of the years 1 to 9999.
    """
    try:
        when = datetime.datetime.fromtimestamp(message.timestamp, datetime.UTC)
    except (OverflowError, OSError) as error:
        raise ValueError(f"timestamp {message.timestamp!r} is no time of the years 1 to 9999") from error
    frame = _Frame(
        message.topic,
        msgspec.Raw(_tagged(message.payload)),
        uuid.UUID(message.source_id),
        None if message.signature is None else list(message.signature),
        when,
        message.seq,
        msgspec.UNSET if message.principal is None else message.principal,
        msgspec.UNSET if message.device_key_id is None else message.device_key_id,
        msgspec.UNSET if message.origin == "system" else message.origin,
    )
    return _encode(frame)


def _tagged(payload: Payload) -> bytes:
    """A payload with its tag, which guests do not see on custom data and `raw_json` objects."""
    guest = payload.guest
    if payload.form is typed or isinstance(payload.data, Tagged):
        return guest
    if payload.form is raw_json or isinstance(payload.data, RawJson):
        fields = msgspec.json.decode(guest, type=dict[str, msgspec.Raw])
        return _encode({"type": "raw_json", **fields})
    return b'{"type":"custom","data":' + guest + b"}"


def decode_frame(raw: bytes) -> IpcMessage:
    """Read an `IpcMessage` from JSON. It needs `topic`, `payload` and `source_id`; an unknown `origin` is `system`.

    Args:
        raw: UTF-8, without the length that goes before it on a socket.

    Raises:
        PayloadError: it is not JSON or nests deeper than 127; a field does not fit; `payload` is no object; `source_id` is
            no UUID; `timestamp` is not RFC 3339 with a zone.
    """
    try:
        check_depth(raw.decode())
        frame = _decode(raw)
    except UnicodeDecodeError as error:
        raise PayloadError(f"the frame is not UTF-8: {error.reason} at {error.start}") from None
    except msgspec.DecodeError as error:
        raise PayloadError(f"the frame is no IpcMessage: {error}") from None
    payload = bytes(frame.payload)
    if payload[:1] != b"{":
        raise PayloadError(f"the frame's payload must be a JSON object; it begins {payload[:16]!r}")
    if frame.seq > SEQ_MOST:
        raise PayloadError(f"the frame's seq must be below 2**64; it is {frame.seq}")
    return IpcMessage(
        frame.topic,
        parse(payload),
        str(frame.source_id),
        time.time() if frame.timestamp is msgspec.UNSET else frame.timestamp.timestamp(),
        None if frame.signature is None else bytes(frame.signature),
        frame.seq,
        frame.principal or None,
        frame.device_key_id or None,
        _origin(frame.origin),
    )


def _origin(word: str | msgspec.UnsetType | None) -> Origin:
    if word == "local_socket":
        return "local_socket"
    return "remote_gateway" if word == "remote_gateway" else "system"
