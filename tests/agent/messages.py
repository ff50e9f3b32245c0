"""Messages of a conversation, as capsules tell them to each other."""

from __future__ import annotations

from typing import Any


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(content: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content}


def result(call_id: str, content: str, is_error: bool = False) -> dict[str, Any]:
    return {"role": "tool", "content": {"call_id": call_id, "content": content, "is_error": is_error}}


def called(*calls: tuple[str, str, Any]) -> dict[str, Any]:
    return assistant([{"id": call_id, "name": name, "arguments": arguments} for call_id, name, arguments in calls])
