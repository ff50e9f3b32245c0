"""The kinds of payload that have a tag, and the parts that they are made of, as structs.

Field names and order are the wire's. A field with a default may be missing or null on input; null options are left out on
output, other defaults are written. Fields that are not declared are dropped. (Astrid IPC, `IpcPayload`.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec

Count = Annotated[int, msgspec.Meta(ge=0)]


class Part(msgspec.Struct, omit_defaults=True, gc=False):
    """What payloads are made of."""


class EnumField(Part, forbid_unknown_fields=True, rename={"choices": "Enum"}):
    """A choice among texts, as the type of an `OnboardingField`."""

    choices: list[str]


class OnboardingField(Part):
    """A value that a capsule asks a person for."""

    key: str
    prompt: str
    # Astrid declares `description` first; required fields lead here, and nothing depends on the order of keys.
    field_type: Literal["Text", "Secret", "Array"] | EnumField
    description: str | None = None
    default: str | None = None
    placeholder: str | None = None


class ToolCall(Part):
    """A model's wish to call a tool; `name` may be `server:tool`."""

    id: str
    name: str
    arguments: Any


class ToolCallResult(msgspec.Struct, gc=False):
    """What became of a tool call.

    Attributes:
        call_id: of the request.
        content: text for the model.
        is_error: the call failed, and `content` says how.
    """

    call_id: str
    content: str
    is_error: bool = False


class TextPart(Part, tag_field="type", tag="text"):
    """Text in a message of several parts."""

    text: str


class ImagePart(Part, tag_field="type", tag="image"):
    """A picture in a message of several parts: base64."""

    data: str
    media_type: str


class Message(Part):
    """One message of a conversation. `content` is text, a tool's result, or a list: all tool calls, or all parts."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str | ToolCallResult | list[Any]

    def __post_init__(self) -> None:
        """Read a list as tool calls, else as parts; an empty one is both.

        Raises:
            msgspec.ValidationError: it is neither.
        """
        if isinstance(self.content, list):
            try:
                self.content = msgspec.convert(self.content, list[ToolCall])
            except msgspec.ValidationError:
                self.content = msgspec.convert(self.content, list[TextPart | ImagePart])


class LlmToolDefinition(Part):
    """A tool as a model is told of it; `input_schema` is JSON Schema."""

    name: str
    input_schema: Any
    description: str | None = None


class Usage(Part):
    """How many tokens a model read and wrote."""

    input_tokens: Count
    output_tokens: Count


class ToolCallStart(Part):
    """A model began to write a tool call."""

    id: str
    name: str


class ToolCallDelta(Part):
    """A piece of the JSON text of a tool call's arguments."""

    id: str
    args_delta: str


class ToolCallEnd(Part):
    """A tool call is complete."""

    id: str


class StreamEvent(Part, forbid_unknown_fields=True, rename="pascal"):
    """A piece of a model's answer: exactly one of the fields. The last piece is the bare word `Done` instead."""

    text_delta: str | msgspec.UnsetType = msgspec.UNSET
    tool_call_start: ToolCallStart | msgspec.UnsetType = msgspec.UNSET
    tool_call_delta: ToolCallDelta | msgspec.UnsetType = msgspec.UNSET
    tool_call_end: ToolCallEnd | msgspec.UnsetType = msgspec.UNSET
    reasoning_delta: str | msgspec.UnsetType = msgspec.UNSET
    usage: Usage | msgspec.UnsetType = msgspec.UNSET
    error: str | msgspec.UnsetType = msgspec.UNSET

    def __post_init__(self) -> None:
        """Check that there is one field.

        Raises:
            ValueError: there is none, or more than one.
        """
        given = [name for name in self.__struct_fields__ if getattr(self, name) is not msgspec.UNSET]
        if len(given) != 1:
            raise ValueError(f"a stream event has exactly one field; given: {', '.join(given) or 'none'}")


class LlmResponse(Part):
    """A model's whole answer."""

    message: Message
    has_tool_calls: bool
    stop_reason: Literal["EndTurn", "MaxTokens", "ToolUse", "StopSequence"]
    usage: Usage


class SelectionOption(Part):
    """One of the things that a person may choose."""

    id: str
    label: str
    description: str | None = None


class Tagged(msgspec.Struct, omit_defaults=True, gc=False, tag_field="type"):
    """A payload of a known kind."""


def _default_session() -> str:
    # A factory, because a default that is not null is written and `omit_defaults` would leave out a plain one.
    return "default"


class UserInput(Tagged, tag="user_input"):
    """What a person said."""

    text: str
    session_id: str = msgspec.field(default_factory=_default_session)
    context: Any = None


class AgentResponse(Tagged, tag="agent_response"):
    """What an agent answers, whole or in pieces."""

    text: str
    is_final: bool
    session_id: str = msgspec.field(default_factory=_default_session)


class ApprovalRequired(Tagged, tag="approval_required"):
    """A capsule wants to do what a person must allow."""

    request_id: str
    action: str
    resource: str
    reason: str


class ApprovalResponse(Tagged, tag="approval_response"):
    """What the person decided."""

    request_id: str
    decision: str
    reason: str | None = None


class GrantRequired(Tagged, tag="grant_required"):
    """A principal wants a capsule that it has no grant for."""

    request_id: str
    principal: str
    capsule_id: str


class OnboardingRequired(Tagged, tag="onboarding_required"):
    """A capsule lacks settings that only a person can give."""

    capsule_id: str
    fields: list[OnboardingField]


class LlmRequest(Tagged, tag="llm_request"):
    """A conversation for a model to go on with."""

    request_id: UUID
    model: str
    messages: list[Message]
    tools: list[LlmToolDefinition]
    system: str


class LlmStreamEvent(Tagged, tag="llm_stream_event"):
    """A piece of a model's answer."""

    request_id: UUID
    event: Literal["Done"] | StreamEvent


class LlmResponsePayload(Tagged, tag="llm_response"):
    """A model's whole answer to one request."""

    request_id: UUID
    response: LlmResponse


class ToolExecuteRequest(Tagged, tag="tool_execute_request"):
    """A tool call; `arguments` is any JSON value."""

    call_id: str
    tool_name: str
    arguments: Any


class ToolExecuteResult(Tagged, tag="tool_execute_result"):
    """A tool call's answer."""

    call_id: str
    result: ToolCallResult


class ToolCancelRequest(Tagged, tag="tool_cancel_request"):
    """Tool calls that nobody waits for any more."""

    call_ids: list[str]


class SelectionRequired(Tagged, tag="selection_required"):
    """A person is to choose; the choice goes to `callback_topic`."""

    request_id: str
    title: str
    options: list[SelectionOption]
    callback_topic: str


class ElicitRequest(Tagged, tag="elicit_request"):
    """A capsule asks a person for a value."""

    request_id: UUID
    capsule_id: str
    field: OnboardingField


class ElicitResponse(Tagged, tag="elicit_response"):
    """The person's answer; neither field means that it was refused."""

    request_id: UUID
    value: str | None = None
    values: list[str] | None = None


class Connect(Tagged, tag="connect"):
    """A client has come."""


class Disconnect(Tagged, tag="disconnect"):
    """A client goes."""

    reason: str | None = None


KINDS: Mapping[str, type[Tagged]] = {str(kind.__struct_config__.tag): kind for kind in Tagged.__subclasses__()}
# The last two only wrap what a guest receives, which is any JSON value, and has no struct.
TAGS = frozenset((*KINDS, "custom", "raw_json"))
