"""The capsule word-tools, as its built file answers on the canonical ABI, and with it the AssemblyScript SDK."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import wasmtime
from hypothesis import given
from hypothesis import strategies as st

FILE = Path(__file__).parents[2] / "capsules" / "word-tools" / "word-tools.wasm"
WHITE_SPACE = re.compile(r"[\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+")
CAPABILITY_DENIED = 0


class Guest:
    """One instance, with a host in small: it takes publishes and log lines, and `refuse` makes it deny a publish."""

    def __init__(self, engine: wasmtime.Engine, module: wasmtime.Module) -> None:
        self.published: list[tuple[str, str]] = []
        self.logged: list[tuple[int, str]] = []
        self.refuse = False
        self._store = wasmtime.Store(engine)
        functions: dict[str, Callable[..., None]] = {"publish": self._publish, "log": self._log, "abort": self._abort}
        imports = [
            wasmtime.Func(self._store, item.type, functions[str(item.name)])
            for item in module.imports
            if isinstance(item.type, wasmtime.FuncType)
        ]
        exports = wasmtime.Instance(self._store, module, imports).exports(self._store)
        memory = exports["memory"]
        assert isinstance(memory, wasmtime.Memory)
        self._memory = memory
        self._realloc = _function(exports, "cabi_realloc")
        self._trigger = _function(exports, "astrid-hook-trigger")
        self._post = _function(exports, "cabi_post_astrid-hook-trigger")

    @property
    def pages(self) -> int:
        return self._memory.size(self._store)

    def trigger(self, action: str, payload: bytes) -> tuple[str, str | None]:
        """Calls an action: the result's action and its data."""
        result = self._trigger(self._store, *self._lower(action.encode()), *self._lower(payload))
        pointer, length, some, data, data_length = struct.unpack("<5I", self._read(result, 20))
        answer = self._text(pointer, length), self._text(data, data_length) if some else None
        self._post(self._store, result)
        return answer

    def call(self, tool: str, arguments: object, call_id: str = "c1") -> tuple[str, bool]:
        """Calls a tool: the content of its one result, and whether it is an error."""
        self.published.clear()
        payload = {"type": "tool_execute_request", "call_id": call_id, "tool_name": tool, "arguments": arguments}
        assert self.trigger(f"tool_execute_{tool}", json.dumps(payload).encode()) == ("continue", None)
        [(topic, text)] = self.published
        assert topic == f"tool.v1.execute.{tool}.result"
        published = json.loads(text)
        result = published["result"]
        assert published == {"type": "tool_execute_result", "call_id": call_id, "result": result}
        assert sorted(result) == ["call_id", "content", "is_error"]
        assert result["call_id"] == call_id
        return result["content"], result["is_error"]

    def _lower(self, data: bytes) -> tuple[int, int]:
        pointer = self._realloc(self._store, 0, 0, 1, len(data))
        assert pointer > 0
        self._memory.write(self._store, data, pointer)
        return pointer, len(data)

    def _read(self, pointer: int, length: int) -> bytes:
        return bytes(self._memory.read(self._store, pointer, pointer + length))

    def _text(self, pointer: int, length: int) -> str:
        return self._read(pointer, length).decode()

    def _publish(self, topic: int, topic_length: int, payload: int, payload_length: int, area: int) -> None:
        if self.refuse:
            self._memory.write(self._store, bytes([1, 0, 0, 0, CAPABILITY_DENIED]), area)
            return
        self.published.append((self._text(topic, topic_length), self._text(payload, payload_length)))
        self._memory.write(self._store, b"\0", area)

    def _log(self, level: int, message: int, length: int) -> None:
        self.logged.append((level, self._text(message, length)))

    def _abort(self, message: int, file: int, line: int, column: int) -> None:
        (length,) = struct.unpack("<I", self._read(message - 4, 4))
        raise AssertionError(f"abort: {self._read(message, length).decode('utf-16-le')} ({file}:{line}:{column})")


def _function(exports: Any, name: str) -> wasmtime.Func:
    function = exports[name]
    assert isinstance(function, wasmtime.Func)
    return function


def _signature(kind: object) -> tuple[list[str], list[str]]:
    assert isinstance(kind, wasmtime.FuncType)
    return [str(param) for param in kind.params], [str(result) for result in kind.results]


@pytest.fixture(scope="module")
def engine() -> wasmtime.Engine:
    return wasmtime.Engine()


@pytest.fixture(scope="module")
def module(engine: wasmtime.Engine) -> wasmtime.Module:
    return wasmtime.Module.from_file(engine, str(FILE))


@pytest.fixture
def guest(engine: wasmtime.Engine, module: wasmtime.Module) -> Guest:
    return Guest(engine, module)


@pytest.fixture(scope="module")
def shared(engine: wasmtime.Engine, module: wasmtime.Module) -> Guest:
    """One instance for all the examples of a property: what one call leaves behind must not matter to the next."""
    return Guest(engine, module)


def test_imports_are_the_two_host_functions_and_abort(module: wasmtime.Module) -> None:
    imports = {f"{item.module} {item.name}": _signature(item.type) for item in module.imports}
    assert imports == {
        "astrid:ipc/host@1.0.0 publish": (["i32"] * 5, []),
        "astrid:sys/host@1.0.0 log": (["i32"] * 3, []),
        "env abort": (["i32"] * 4, []),
    }


def test_exports_have_the_canonical_names_and_signatures(module: wasmtime.Module) -> None:
    exports = {item.name: item.type for item in module.exports}
    assert isinstance(exports.pop("memory"), wasmtime.MemoryType)
    assert {name: _signature(kind) for name, kind in exports.items()} == {
        "cabi_realloc": (["i32"] * 4, ["i32"]),
        "astrid-hook-trigger": (["i32"] * 4, ["i32"]),
        "cabi_post_astrid-hook-trigger": (["i32"], []),
    }


@pytest.mark.parametrize(
    ("text", "words", "characters", "lines"),
    [
        ("a b\nc", 3, 5, 2),
        ("", 0, 0, 0),
        (" ", 0, 1, 1),
        ("\n", 0, 1, 2),
        ("one", 1, 3, 1),
        ("  a  b  ", 2, 8, 1),
        ("a\r\nb\n", 2, 5, 3),
        ("😀 👩‍👧", 2, 5, 1),
        ("e\u0301", 1, 2, 1),
        ("a\u2003b\u00a0c\u3000d\u0085e", 5, 9, 1),
        ("a\u200bb", 1, 3, 1),
        ('"\\/\b\f\t\0', 2, 7, 1),
    ],
)
def test_word_count_counts_words_code_points_and_lines(
    guest: Guest, text: str, words: int, characters: int, lines: int
) -> None:
    content = f'{{"words":{words},"characters":{characters},"lines":{lines}}}'
    assert guest.call("word_count", {"text": text}) == (content, False)


@given(st.text())
def test_word_count_agrees_with_python(shared: Guest, text: str) -> None:
    words = len([word for word in WHITE_SPACE.split(text) if word])
    lines = text.count("\n") + 1 if text else 0
    content, is_error = shared.call("word_count", {"text": text})
    assert json.loads(content) == {"words": words, "characters": len(text), "lines": lines}
    assert not is_error


@given(st.text())
def test_reverse_text_reverses_code_points(shared: Guest, text: str) -> None:
    assert shared.call("reverse_text", {"text": text}) == (text[::-1], False)


@given(st.text())
def test_the_call_id_comes_back_as_it_was(shared: Guest, call_id: str) -> None:
    assert shared.call("reverse_text", {"text": "ab"}, call_id) == ("ba", False)


def test_escapes_and_plain_characters_mean_the_same(guest: Guest) -> None:
    escaped = r'"\u00e9\ud83d\uDE00\n\/\u0000"'
    payload = f'{{"call_id":"c","tool_name":"reverse_text","arguments":{{"text":{escaped}}}}}'
    guest.trigger("tool_execute_reverse_text", payload.encode())
    assert json.loads(guest.published[0][1])["result"]["content"] == "\0/\n😀é"


def test_a_text_of_half_a_mebibyte_is_answered(guest: Guest) -> None:
    text = "é😀" * 80_000
    assert guest.call("reverse_text", {"text": text}) == (text[::-1], False)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (None, "expected an object, got null"),
        ("text", "expected an object, got a string"),
        (["text"], "expected an object, got an array"),
        ({}, "missing field `text`"),
        ({"text": 5}, "field `text`: expected a string, got the number 5"),
        ({"text": None}, "field `text`: expected a string, got null"),
        ({"text": {}}, "field `text`: expected a string, got an object"),
    ],
)
def test_wrong_arguments_are_an_error_result(guest: Guest, arguments: object, problem: str) -> None:
    assert guest.call("word_count", arguments) == (f"failed to parse tool arguments: {problem}", True)


@pytest.mark.parametrize(
    ("payload", "problem"),
    [
        (b"", "the text ends where a value should be at line 1 column 1"),
        (b"{", "expected a key in quotes at line 1 column 2"),
        (b"[]", "expected an object"),
        (b'{"tool_name":"t","arguments":{}}', "missing field `call_id`"),
        (b'{"call_id":1,"tool_name":"t","arguments":{}}', "field `call_id`: expected a string"),
        (b'{"call_id":"c","arguments":{}}', "missing field `tool_name`"),
        (b'{"call_id":"c","tool_name":null,"arguments":{}}', "field `tool_name`: expected a string"),
        (b'{"call_id":"c","tool_name":"t"}', "missing field `arguments`"),
        (b'"\xff"', "the bytes are no UTF-8 at line 1 column 2"),
        (b'"\\ud800"', "half of a surrogate pair in a string at line 1 column 2"),
        (b"{} {}", "unexpected text after the value at line 1 column 4"),
    ],
)
def test_a_payload_that_is_no_call_is_denied_and_nothing_published(guest: Guest, payload: bytes, problem: str) -> None:
    denied = guest.trigger("tool_execute_word_count", payload)
    assert denied == ("deny", f"failed to parse tool execute payload: {problem}")
    assert guest.published == []


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'[{"a":'])
def test_deep_nesting_is_denied_and_the_next_call_works(guest: Guest, opening: bytes) -> None:
    action, reason = guest.trigger("tool_execute_word_count", opening * 150_000)
    assert action == "deny"
    assert reason is not None
    assert "nested deeper than 128 levels" in reason
    assert guest.call("reverse_text", {"text": "ab"}) == ("ba", False)


def test_deep_arguments_within_the_bound_are_ignored_where_the_schema_does_not_name_them(guest: Guest) -> None:
    deep: object = 1
    for _ in range(120):
        deep = [deep]
    assert guest.call("reverse_text", {"text": "ab", "deep": deep}) == ("ba", False)


@given(st.binary() | st.text().map(str.encode))
def test_no_payload_ends_the_instance(shared: Guest, payload: bytes) -> None:
    action, _ = shared.trigger("tool_execute_word_count", payload)
    assert action == "deny"


@pytest.mark.parametrize("action", ["", "word_count", "tool_execute_", "tool_execute_other", "TOOL_DESCRIBE", "é😀"])
def test_an_unknown_action_is_denied_by_name(guest: Guest, action: str) -> None:
    assert guest.trigger(action, b"{}") == ("deny", f"unknown hook action: {action}")


@pytest.mark.parametrize("payload", [b"", b"{}", b"nonsense"])
def test_describe_publishes_the_tools_and_returns_the_same(guest: Guest, payload: bytes) -> None:
    action, data = guest.trigger("tool_describe", payload)
    assert action == "continue"
    assert guest.published == [("tool.v1.response.describe.self", data)]
    assert data is not None
    described = json.loads(data)
    assert sorted(described) == ["description", "tools"]
    assert [tool["name"] for tool in described["tools"]] == ["word_count", "reverse_text"]


def test_the_described_schemas_hold_in_draft_7_and_in_2020_12(guest: Guest) -> None:
    _, data = guest.trigger("tool_describe", b"{}")
    assert data is not None
    for tool in json.loads(data)["tools"]:
        assert sorted(tool) == ["description", "input_schema", "name"]
        assert tool["description"]
        schema = tool["input_schema"]
        # Words that mean the same in both drafts, and no others.
        assert sorted(schema) == ["$schema", "properties", "required", "title", "type"]
        assert schema["$schema"] == "http://json-schema.org/draft-07/schema#"
        assert schema["type"] == "object"
        assert schema["required"] == list(schema["properties"]) == ["text"]
        assert schema["properties"]["text"]["type"] == "string"


def test_a_result_that_may_not_be_published_is_logged_as_an_error(guest: Guest) -> None:
    guest.refuse = True
    payload = b'{"call_id":"c9","tool_name":"word_count","arguments":{"text":""}}'
    assert guest.trigger("tool_execute_word_count", payload) == ("continue", None)
    message = "the result of call c9 is lost: tool.v1.execute.word_count.result: capability-denied"
    assert guest.logged == [(4, message)]


def test_memory_stays_flat_over_ten_thousand_calls(guest: Guest) -> None:
    def one_round() -> None:
        guest.call("word_count", {"text": "some words " * 20})
        guest.call("reverse_text", {"text": 7})
        guest.trigger("tool_describe", b"{}")
        guest.trigger("nonsense", b"x" * 1000)
        guest.published.clear()

    for _ in range(100):
        one_round()
    pages = guest.pages
    for _ in range(2_500):
        one_round()
    assert guest.pages == pages
