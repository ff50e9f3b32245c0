"""Events outside the host travel as `IpcMessage` frames; who published them is a UUID that survives restarts."""

from __future__ import annotations

import json
import time
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from astrid_host.errors import PayloadError
from astrid_host.payloads import NIL_SOURCE, IpcMessage, decode_frame, encode_frame, parse, source_id

ID = "0b8f7a52-6d3c-4f6e-9b1f-2f8f3c1f9a77"
MINIMAL: dict[str, Any] = {"topic": "a.b", "payload": {"type": "connect"}, "source_id": ID}


def decoded(**fields: Any) -> IpcMessage:
    return decode_frame(json.dumps({**MINIMAL, **fields}).encode())


def written(message: IpcMessage) -> Any:
    return json.loads(encode_frame(message))


def test_a_frame_needs_topic_payload_and_source_alone() -> None:
    before = time.time()
    message = decoded()
    assert before - 1e-6 <= message.timestamp <= time.time() + 1e-6
    assert (message.topic, message.source_id, message.payload) == ("a.b", ID, parse('{"type":"connect"}'))
    assert (message.signature, message.seq, message.principal, message.device_key_id) == (None, 0, None, None)
    assert message.origin == "system"


@pytest.mark.parametrize("name", list(MINIMAL))
def test_a_frame_without_one_of_them_is_refused(name: str) -> None:
    frame = {key: value for key, value in MINIMAL.items() if key != name}
    with pytest.raises(PayloadError, match=name):
        decode_frame(json.dumps(frame).encode())


def test_a_frame_is_written_in_the_order_of_the_envelope() -> None:
    message = IpcMessage("a.b", parse('{"type":"connect"}'), ID, 1796018787.5)
    assert encode_frame(message) == (
        b'{"topic":"a.b","payload":{"type":"connect"},"source_id":"0b8f7a52-6d3c-4f6e-9b1f-2f8f3c1f9a77",'
        b'"signature":null,"timestamp":"2026-11-30T06:06:27.500000Z","seq":0}'
    )


@pytest.mark.parametrize("origin", ["local_socket", "remote_gateway"])
def test_an_origin_other_than_system_is_written(origin: Any) -> None:
    message = decoded(origin=origin, principal="alice", device_key_id="k", seq=7, signature=[0, 255])
    assert (message.origin, message.principal, message.device_key_id) == (origin, "alice", "k")
    assert (message.seq, message.signature) == (7, b"\x00\xff")
    frame = written(message)
    assert (frame["origin"], frame["principal"], frame["device_key_id"]) == (origin, "alice", "k")
    assert (frame["seq"], frame["signature"]) == (7, [0, 255])


@pytest.mark.parametrize("origin", ["system", "moon", "", None])
def test_an_unknown_origin_is_the_system_and_the_system_is_left_out(origin: object) -> None:
    message = decoded(origin=origin)
    assert message.origin == "system"
    assert "origin" not in written(message)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01T00:00:00Z", 0.0),
        ("2026-11-30T06:06:27.25Z", 1796018787.25),
        ("2026-11-30T08:06:27+02:00", 1796018787.0),
        ("2026-11-30T06:06:27.250000000Z", 1796018787.25),
        ("0001-01-01T00:00:00Z", -62135596800.0),
    ],
)
def test_a_timestamp_is_read_from_any_zone(text: str, seconds: float) -> None:
    assert decoded(timestamp=text).timestamp == seconds


@pytest.mark.parametrize("payload", ['{"type":"custom","data":{"b":1}}', '{"type":"raw_json","method":"M"}'])
def test_a_payload_keeps_its_wrapping_on_the_wire(payload: str) -> None:
    message = decoded(payload=json.loads(payload))
    assert message.payload == parse(json.dumps(json.loads(payload)))
    assert written(message)["payload"] == json.loads(payload)


def test_a_payload_without_a_known_tag_is_custom() -> None:
    message = decoded(payload={"type": "no_such_kind", "a": 1})
    assert json.loads(message.payload.guest) == {"type": "no_such_kind", "a": 1}
    assert written(message)["payload"] == {"type": "custom", "data": {"type": "no_such_kind", "a": 1}}


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"topic": 1}, "topic"),
        ({"source_id": "somebody"}, "source_id"),
        ({"payload": [1]}, "object"),
        ({"payload": "x"}, "object"),
        ({"payload": None}, "object"),
        ({"seq": -1}, "seq"),
        ({"seq": 2**64}, "seq"),
        ({"seq": 1.5}, "seq"),
        ({"signature": [256]}, "signature"),
        ({"signature": "x"}, "signature"),
        ({"timestamp": "yesterday"}, "timestamp"),
        ({"timestamp": "2026-11-30T06:06:27"}, "timestamp"),
        ({"timestamp": 0}, "timestamp"),
        ({"origin": 1}, "origin"),
        ({"principal": 1}, "principal"),
    ],
)
def test_a_field_that_does_not_fit_is_named(fields: dict[str, Any], complaint: str) -> None:
    with pytest.raises(PayloadError, match=complaint):
        decoded(**fields)


@pytest.mark.parametrize(
    "raw",
    [b"", b"x", b"[]", b"{}", b"\xff", b"[" * 1_000_000, b'{"topic":' * 1000 + b"1" + b"}" * 1000],
    ids=len,
)
def test_what_is_no_frame_is_refused(raw: bytes) -> None:
    with pytest.raises(PayloadError):
        decode_frame(raw)


@given(st.binary() | st.text(alphabet='{}[]":,topicseq0').map(str.encode))
def test_reading_a_frame_has_no_other_failure(raw: bytes) -> None:
    with pytest.raises(PayloadError):
        decode_frame(raw)


@given(
    st.builds(
        IpcMessage,
        st.text(),
        st.sampled_from(['{"type":"connect"}', "null", '{"a":[1.5]}', '{"type":"raw_json","a":1}', '"x"']).map(parse),
        st.uuids().map(str),
        st.integers(-62135596800, 253402300799).map(float),
        st.none() | st.binary(),
        st.integers(0, 2**64 - 1),
        st.none() | st.text(min_size=1),
        st.none() | st.text(min_size=1),
        st.sampled_from(["local_socket", "remote_gateway", "system"]),
    )
)
def test_a_frame_that_is_written_is_read_as_it_was(message: IpcMessage) -> None:
    assert decode_frame(encode_frame(message)) == message


@pytest.mark.parametrize("seconds", [1e300, -1e300, float("nan"), float("inf")])
def test_a_time_outside_the_calendar_is_not_written(seconds: float) -> None:
    with pytest.raises(ValueError):
        encode_frame(IpcMessage("a", parse("1"), ID, seconds))


def test_a_source_id_is_a_uuid_of_the_capsule_and_its_module() -> None:
    """Computed by the definition of version 5: SHA-1 of the namespace and the name."""
    import hashlib

    namespace = uuid.UUID("310714d5-9c6d-4c94-8187-75258f393bb6")
    digest = bytearray(hashlib.sha1(namespace.bytes + b"word-tools\0" + b"ab" * 32).digest()[:16])
    digest[6], digest[8] = digest[6] & 0x0F | 0x50, digest[8] & 0x3F | 0x80
    assert source_id("word-tools", "ab" * 32) == str(uuid.UUID(bytes=bytes(digest)))


def test_source_ids_differ_by_capsule_and_by_module() -> None:
    assert source_id("a", "00") == source_id("a", "00")
    assert len({source_id("a", "00"), source_id("b", "00"), source_id("a", "01"), NIL_SOURCE}) == 4
    assert uuid.UUID(NIL_SOURCE).int == 0
