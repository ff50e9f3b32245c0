"""What stands in an event: the tagged `IpcPayload` union, and what a guest receives of it.

A JSON object whose `type` is a known tag and whose fields fit is typed: it is written anew, `type` first, with defaults filled
in and unknown fields left out. Everything else is custom and passes as it is. `{"type":"custom","data":X}` is delivered as
X, a `raw_json` object without its tag. A known tag with fields that do not fit is no error: the whole value is custom.
Text that is no JSON, or nests too deep, is a `PayloadError`. (Astrid IPC, `IpcPayload` and `to_guest_bytes`.)
"""

from __future__ import annotations

import re
import uuid
from typing import Any, Literal, TypeAlias

import msgspec

from astrid_host.errors import PayloadError

NIL_SOURCE = "00000000-0000-0000-0000-000000000000"
_SOURCES = uuid.UUID("310714d5-9c6d-4c94-8187-75258f393bb6")


class _Nested(msgspec.Struct, gc=False, omit_defaults=False):
    """A part of a payload."""


class OnboardingField(_Nested, omit_defaults=True):
    """A value that a capsule asks a person for. `field_type` is `"Text"`, `"Secret"`, `"Array"` or `{"Enum": [...]}`."""

    key: str
    prompt: str
    field_type: Literal["Text", "Secret", "Array"] | dict[Literal["Enum"], list[str]]
    description: str | None = None
    default: str | None = None
    placeholder: str | None = None


class ToolCall(_Nested):
    """A model's wish to call a tool."""

    id: str
    name: str
    arguments: Any


class ToolCallResult(_Nested):
    """What became of a tool call.

    Attributes:
        call_id: of the request.
        content: text for the model.
        is_error: the call failed; `content` says how.
    """

    call_id: str
    content: str
    is_error: bool = False


class Message(_Nested):
    """One message of a conversation: text, tool calls, a tool's result, or parts."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str | list[Any] | dict[str, Any]


class LlmToolDefinition(_Nested):
    """A tool as a model is told of it."""

    name: str
    input_schema: Any
    description: str | None = None


class Usage(_Nested):
    """Tokens."""

    input_tokens: int
    output_tokens: int


class LlmResponse(_Nested):
    """A model's whole answer."""

    message: Message
    has_tool_calls: bool
    stop_reason: Literal["EndTurn", "MaxTokens", "ToolUse", "StopSequence"]
    usage: Usage


class SelectionOption(_Nested, omit_defaults=True):
    """One of the things that a person may choose."""

    id: str
    label: str
    description: str | None = None


class _Tagged(msgspec.Struct, tag_field="type", gc=False):
    """A payload of a known kind."""


class UserInput(_Tagged, tag="user_input"):
    text: str
    session_id: str = "default"
    context: Any = msgspec.UNSET


class AgentResponse(_Tagged, tag="agent_response"):
    text: str
    is_final: bool
    session_id: str = "default"


class ApprovalRequired(_Tagged, tag="approval_required"):
    request_id: str
    action: str
    resource: str
    reason: str


class ApprovalResponse(_Tagged, tag="approval_response", omit_defaults=True):
    request_id: str
    decision: str
    reason: str | None = None


class GrantRequired(_Tagged, tag="grant_required"):
    request_id: str
    principal: str
    capsule_id: str


class OnboardingRequired(_Tagged, tag="onboarding_required"):
    capsule_id: str
    fields: list[OnboardingField]


class LlmRequest(_Tagged, tag="llm_request"):
    request_id: uuid.UUID
    model: str
    messages: list[Message]
    tools: list[LlmToolDefinition]
    system: str


class LlmStreamEvent(_Tagged, tag="llm_stream_event"):
    request_id: uuid.UUID
    event: Literal["Done"] | dict[str, Any]


class LlmResponsePayload(_Tagged, tag="llm_response"):
    request_id: uuid.UUID
    response: LlmResponse


class ToolExecuteRequest(_Tagged, tag="tool_execute_request"):
    call_id: str
    tool_name: str
    arguments: Any


class ToolExecuteResult(_Tagged, tag="tool_execute_result"):
    call_id: str
    result: ToolCallResult


class ToolCancelRequest(_Tagged, tag="tool_cancel_request"):
    call_ids: list[str]


class SelectionRequired(_Tagged, tag="selection_required"):
    request_id: str
    title: str
    options: list[SelectionOption]
    callback_topic: str


class ElicitRequest(_Tagged, tag="elicit_request"):
    request_id: uuid.UUID
    capsule_id: str
    field: OnboardingField


class ElicitResponse(_Tagged, tag="elicit_response", omit_defaults=True):
    request_id: uuid.UUID
    value: str | None = None
    values: list[str] | None = None


class Connect(_Tagged, tag="connect"):
    pass


class Disconnect(_Tagged, tag="disconnect", omit_defaults=True):
    reason: str | None = None


Typed: TypeAlias = (
    UserInput
    | AgentResponse
    | ApprovalRequired
    | ApprovalResponse
    | GrantRequired
    | OnboardingRequired
    | LlmRequest
    | LlmStreamEvent
    | LlmResponsePayload
    | ToolExecuteRequest
    | ToolExecuteResult
    | ToolCancelRequest
    | SelectionRequired
    | ElicitRequest
    | ElicitResponse
    | Connect
    | Disconnect
)


class _Tag(msgspec.Struct, gc=False):
    type: Any = None


class _StreamEvent(msgspec.Struct, gc=False, forbid_unknown_fields=True, omit_defaults=True):
    """The shapes that a stream event may have: one field exactly."""

    TextDelta: str | msgspec.UnsetType = msgspec.UNSET
    ToolCallStart: dict[Literal["id", "name"], str] | msgspec.UnsetType = msgspec.UNSET
    ToolCallDelta: dict[Literal["id", "args_delta"], str] | msgspec.UnsetType = msgspec.UNSET
    ToolCallEnd: dict[Literal["id"], str] | msgspec.UnsetType = msgspec.UNSET
    ReasoningDelta: str | msgspec.UnsetType = msgspec.UNSET
    Usage: dict[Literal["input_tokens", "output_tokens"], int] | msgspec.UnsetType = msgspec.UNSET
    Error: str | msgspec.UnsetType = msgspec.UNSET


class Payload:
    """A parsed payload.

    Attributes:
        guest: the JSON bytes that a guest receives.
        data: the same, decoded: a struct for a known tag, else the plain JSON value.
    """

    __slots__ = ("data", "guest")

    def __init__(self, guest: bytes, data: Any) -> None:
        self.guest = guest
        self.data = data


encode = msgspec.json.Encoder().encode
_decode_typed = msgspec.json.Decoder(Typed).decode
_decode_any = msgspec.json.Decoder().decode
# What looks like a known tag somewhere in the text: only then is it worth trying to read it as typed.
_TAGS = re.compile(r'"type"\s*:')
_KNOWN = frozenset(
    kind.__struct_config__.tag for kind in Typed.__args__  # type: ignore[attr-defined]
) | {"custom", "raw_json"}


def parse(raw: str | bytes) -> Payload:
    """Read what somebody publishes.

    Raises:
        PayloadError: it is no JSON, or nests too deep.
    """
    text = raw if isinstance(raw, str) else _decoded(raw)
    try:
        if '"type"' in text:
            try:
                data = _decode_typed(text)
            except msgspec.ValidationError:
                return _custom(text)
            if type(data) is LlmStreamEvent and not _is_stream_event(data.event):
                return _custom(text)
            return Payload(encode(data), data)
        return Payload(text.encode(), _decode_any(text))
    except msgspec.DecodeError as error:
        raise PayloadError(f"the payload is not JSON: {error}") from None
    except RecursionError:
        raise PayloadError("the payload nests too deep to be read") from None
    except UnicodeEncodeError:
        raise PayloadError("the payload has a lone surrogate, which UTF-8 cannot hold") from None


def from_value(value: Any) -> Payload:
    """The same for a JSON value of Python.

    Raises:
        PayloadError: it cannot be written as JSON, or nests too deep.
    """
    try:
        return parse(encode(value))
    except (TypeError, ValueError, OverflowError) as error:
        raise PayloadError(f"the payload cannot be written as JSON: {error}") from None
    except RecursionError:
        raise PayloadError("the payload nests too deep to be written") from None


def _decoded(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise PayloadError(f"the payload is not UTF-8: {error.reason} at its byte {error.start}") from None


def _custom(text: str) -> Payload:
    data = _decode_any(text)
    if isinstance(data, dict):
        tag = data.get("type")
        if tag == "custom" and "data" in data:
            inner = data["data"]
            return Payload(encode(inner), inner)
        if tag == "raw_json":
            inner = {key: value for key, value in data.items() if key != "type"}
            return Payload(encode(inner), inner)
    return Payload(text.encode(), data)


def _is_stream_event(event: Any) -> bool:
    if event == "Done":
        return True
    try:
        msgspec.convert(event, _StreamEvent)
    except msgspec.ValidationError:
        return False
    return len(event) == 1


def source_id(capsule: str, wasm_hash: str) -> str:
    """The UUID that stands on what a capsule publishes: the same for all instances and principals, across restarts.

    Args:
        capsule: its id.
        wasm_hash: BLAKE3 of its module, in hexadecimal.
    """
    return str(uuid.uuid5(_SOURCES, f"{capsule}\0{wasm_hash}"))
