"""What the strictest of the servers that speak chat completions take, in one place: `fault` says why they refuse a request.

Each rule is one that some server has: OpenAI and Azure of tool calls and their results, Mistral of the order of roles,
llama.cpp's templates of turns that alternate, Gemini and Ollama of the types in schemas.
"""

from __future__ import annotations

import json
import re
from typing import Any

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
TYPES = ("string", "number", "integer", "boolean", "array", "object")
FORMATS = ("date-time", "int32", "int64", "float", "double")
BOUNDS = {"minimum", "maximum", "minItems", "maxItems"}
WORDS = {"type", "description", "properties", "required", "items", "enum", "anyOf", "format", *BOUNDS}


def fault(body: Any) -> str | None:
    """Why a request is refused; None when it is taken."""
    return next(_faults(body), None)


def _faults(body: Any) -> Any:
    messages = body["messages"]
    rest = messages[1:] if messages and messages[0]["role"] == "system" else messages
    if not rest or rest[0]["role"] != "user":
        yield "the first message is not the user's"
    before: str | None = None
    waiting: list[str] = []
    for message in rest:
        role, calls = message["role"], message.get("tool_calls")
        if role not in ("user", "assistant", "tool"):
            yield f"a message in the middle has the role {role}"
        if role == "tool":
            if message["tool_call_id"] not in waiting:
                yield f"a result of {message['tool_call_id']!r}, which was not called"
            else:
                waiting.remove(message["tool_call_id"])
            if not isinstance(message["content"], str):
                yield "a result is no text"
        else:
            if waiting:
                yield f"calls without a result: {waiting}"
            if role == before:
                yield f"two messages in a row of the {role}"
            if role == "user" and before == "tool":
                yield "a user speaks after a tool"
            if not (calls or _says_something(message.get("content"))):
                yield f"an empty message of the {role}"
        yield from _calls(calls, role)
        waiting = waiting if role == "tool" else [call["id"] for call in calls or []]
        before = role
    if waiting:
        yield f"calls without a result: {waiting}"
    if before == "assistant":
        yield "nobody asks anything"
    for tool in body.get("tools", []):
        function = tool["function"]
        if not NAME.fullmatch(function["name"]):
            yield f"a tool named {function['name']!r}"
        if function["parameters"].get("type") != "object" or "properties" not in function["parameters"]:
            yield f"the parameters of {function['name']} are no object with properties"
        for why in _schema(function["parameters"]):
            yield f"{function['name']}: {why}"
    if body.get("tools") == []:
        yield "an empty list of tools"


def _calls(calls: Any, role: str) -> Any:
    if calls is None:
        return
    if role != "assistant" or not calls:
        yield "tool_calls without a call, or of another than the assistant"
    if len({call["id"] for call in calls}) < len(calls):
        yield "two calls of one id"
    for call in calls:
        if not (isinstance(call["id"], str) and call["id"]) or call["type"] != "function":
            yield "a call without an id or type"
        if not NAME.fullmatch(call["function"]["name"]):
            yield f"a call of {call['function']['name']!r}"
        if not isinstance(json.loads(call["function"]["arguments"]), dict):
            yield "arguments that are no object"


def _says_something(content: Any) -> bool:
    if isinstance(content, str):
        return bool(content.strip())
    return bool(content) and all(part.get("text", True) for part in content)


def _schema(schema: Any) -> Any:
    if not isinstance(schema, dict):
        yield f"{schema!r} is no schema"
        return
    if set(schema) - WORDS:
        yield f"unknown words {sorted(set(schema) - WORDS)}"
    if (schema.get("type") in TYPES) == ("anyOf" in schema):
        yield f"no one type, and no alternatives: {schema}"
    if schema.get("format", FORMATS[0]) not in FORMATS:
        yield f"the format {schema['format']}"
    properties = schema.get("properties", {})
    required = schema.get("required")
    if required is not None and (not required or len(set(required)) < len(required) or set(required) - set(properties)):
        yield f"required is {required}"
    if schema.get("type") == "array" and "items" not in schema:
        yield "an array of it does not say what"
    if not all(isinstance(value, str) for value in schema.get("enum", [])):
        yield f"enum of others than texts: {schema['enum']}"
    for inner in [*properties.values(), *schema.get("anyOf", []), *([schema["items"]] if "items" in schema else [])]:
        yield from _schema(inner)
