"""The gatekeeper: who is asked before a tool runs, about what, and what becomes of the call."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from guests_in_wat import Guest, capsule, next_of, spin

from astrid_host import BUNDLED, Host, open_host
from astrid_host.gates.allowances import first_unclear, has_operator, request_fault

BUNDLED_CAPSULES = [Path(BUNDLED) / name for name in ("router", "dead-letter", "gatekeeper")]
FS = Path(BUNDLED) / "fs"
ASKED, ANSWERS = "astrid.v1.approval", "astrid.v1.approval.response."
REQUEST, RESULT = "tool.v1.request.execute", "tool.v1.execute.result"
DESCRIBE, DESCRIBED = "tool.v1.request.describe", "tool.v1.response.describe.self"
LOADED = "astrid.v1.capsules_loaded"
WRITE = {"file_path": "a.txt", "content": "hi"}


class Answering:
    """A policy that always answers the same, and keeps what it was asked."""

    def __init__(self, approves: bool) -> None:
        self.approves = approves
        self.asked: list[tuple[str, str]] = []

    def decide(self, asked: Any) -> bool:
        assert asked.capsule == "gatekeeper"
        self.asked.append((asked.action, asked.resource))
        return self.approves


@asynccontextmanager
async def gated(
    work: Path, *more: Path, approves: bool | None = True, **options: Any
) -> AsyncIterator[tuple[Host, list[tuple[str, str]]]]:
    """A host with the gatekeeper, and what its policy was asked; without a policy people are asked."""
    policy = Answering(approves) if approves is not None else None
    config = {"gatekeeper": options.pop("config", {})}
    options = {"state_dir": ":memory:", "workspace": work, "approvals": policy, "config": config, **options}
    async with open_host([*BUNDLED_CAPSULES, *more], trust=True, **options) as host:
        yield host, policy.asked if policy is not None else []


def tool(
    place: Path, name: str, says: dict[str, Any] | None = None, *, describes: str | None = None, **row: Any
) -> Path:
    """A capsule `name` with the tool `name`, which answers calls with the id `c1`; it describes itself as `says` has it."""
    guest = Guest()
    result = {"call_id": "c1", "content": "done", "is_error": False}
    answers = json.dumps({"type": "tool_execute_result", "call_id": "c1", "result": result})
    told = json.dumps({"tools": [{"name": name, "description": "", "input_schema": {}, **(says or {})}]})
    body = guest.when("e", guest.say(f"tool.v1.execute.{name}.result", answers))
    body += guest.when("d", describes or guest.say(DESCRIBED, told))
    rows = {f"tool.v1.execute.{name}": "execute", DESCRIBE: "describe"}
    tables: dict[str, Any] = {"tool": [{"name": name, **row}]} if row else {}
    return capsule(place, name, guest.handles(body), rows, ["tool.v1.execute.*.result", DESCRIBED], **tables)


async def decided(host: Host, events: Any, *decisions: str) -> list[dict[str, Any]]:
    """Answer as many questions as there are decisions, once all of them were asked."""
    questions = [await next_of(events) for _ in decisions]
    for question, decision in zip(questions, decisions, strict=True):
        request_id = question.payload["request_id"]
        answer = {"type": "approval_response", "request_id": request_id, "decision": decision}
        host.publish(ANSWERS + request_id, answer, principal=question.principal)
    return [question.payload for question in questions]


def request(call_id: str, name: str = "write_file", arguments: Any = None) -> dict[str, Any]:
    arguments = WRITE if arguments is None else arguments
    return {"type": "tool_execute_request", "call_id": call_id, "tool_name": name, "arguments": arguments}


async def test_only_tools_that_change_something_are_asked_about_and_as_they_are_called(tmp_path: Path) -> None:
    async with gated(tmp_path, FS) as (host, asked):
        assert not (await host.tools.execute("write_file", WRITE)).is_error
        assert not (await host.tools.execute("read_file", {"file_path": "a.txt"})).is_error
        assert not (await host.tools.execute("list_directory", {"dir_path": "."})).is_error
    assert asked == [("write_file", 'write_file {"file_path":"a.txt","content":"hi"}')]


async def test_a_denied_call_does_nothing_and_gets_one_result_that_says_who_denied(tmp_path: Path) -> None:
    async with gated(tmp_path, FS, approves=False) as (host, asked), host.subscribe(RESULT, observe=True) as results:
        for number in range(3):
            result = await host.tools.execute("write_file", WRITE, call_id=f"c{number}")
            assert result.is_error
            assert result.content == "Denied: the gatekeeper asked for approval of write_file, and it was not given."
        await host.tools.execute("read_file", {"file_path": "a.txt"}, call_id="last")
        told = [(await next_of(results)).payload["call_id"] for _ in range(4)]
    assert told == ["c0", "c1", "c2", "last"]
    assert len(asked) == 3
    assert not (tmp_path / "a.txt").exists()


async def test_where_nobody_can_be_asked_a_call_is_denied(tmp_path: Path) -> None:
    async with gated(tmp_path, FS, approves=None) as (host, _):
        result = await host.tools.execute("write_file", WRITE)
    assert result.is_error
    assert result.content.startswith("Denied: ")


@pytest.mark.parametrize(("decision", "questions"), [("approve", 3), ("approve_session", 1), ("approve_always", 1)])
async def test_a_person_allows_a_tool_once_or_for_longer(decision: str, questions: int, tmp_path: Path) -> None:
    async with gated(tmp_path, FS, approves=None) as (host, _), host.subscribe(ASKED) as events:
        for number in range(3):
            arguments = {"file_path": f"{number}.txt", "content": "a; b && $(c) | <d>\nпривет"}
            async with trio.open_nursery() as nursery:
                if number < questions:
                    nursery.start_soon(decided, host, events, decision)
                assert not (await host.tools.execute("write_file", arguments)).is_error
    assert len(list(tmp_path.glob("*.txt"))) == 3


@pytest.mark.parametrize(
    ("word", "asks"), [("never", []), ("mutable", ["write_file"]), ("always", ["write_file", "read_file"])]
)
async def test_the_configuration_says_what_is_asked_about(word: str, asks: list[str], tmp_path: Path) -> None:
    async with gated(tmp_path, FS, config={"approval": word}) as (host, asked):
        await host.tools.execute("write_file", WRITE)
        await host.tools.execute("read_file", {"file_path": "a.txt"})
    assert [action for action, _ in asked] == asks


async def test_an_unknown_word_counts_as_always_and_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    async with gated(tmp_path, FS, config={"approval": "sometimes"}) as (host, asked):
        for _ in range(2):
            await host.tools.execute("list_directory", {"dir_path": "."})
    assert len(asked) == 2
    told = [line for line in caplog.messages if "approval must be" in line]
    assert [line.split(": ")[-1] for line in told] == [
        'approval must be never, mutable or always; it is "sometimes" and counts as always'
    ]


async def test_fifty_calls_wait_for_a_person_at_once(tmp_path: Path) -> None:
    async with gated(tmp_path, FS, approves=None) as (host, _), host.subscribe(ASKED) as events:
        async with trio.open_nursery() as nursery:
            for number in range(50):
                nursery.start_soon(host.tools.execute, "write_file", {**WRITE, "file_path": f"{number}.txt"})
            await decided(host, events, *["approve"] * 50)
    assert len(list(tmp_path.glob("*.txt"))) == 50


async def test_calls_at_once_are_described_for_once_and_decided_each_by_itself(tmp_path: Path) -> None:
    results: dict[int, bool] = {}

    async def call(number: int) -> None:
        result = await host.tools.execute("write_file", {**WRITE, "file_path": f"{number}.txt"}, principal="alice")
        results[number] = result.is_error

    async with gated(tmp_path, FS, approves=None) as (host, _), host.subscribe(ASKED) as events:
        async with host.subscribe(DESCRIBE, principal="alice", observe=True) as describes:
            async with trio.open_nursery() as nursery:
                for number in range(8):
                    nursery.start_soon(call, number)
                questions = await decided(host, events, *["approve", "deny"] * 4)
            with trio.move_on_after(0):
                assert len([await anext(describes) for _ in range(2)]) == 1
        assert not (await host.tools.execute("list_directory", {"dir_path": "."}, principal="alice")).is_error
    denied = {int(q["resource"].split('"')[3][0]) for q in questions[1::2]}
    assert {number for number, failed in results.items() if failed} == denied
    assert len(results) == 8
    assert {int(file.stem) for file in tmp_path.glob("*.txt")} == set(range(8)) - denied


@pytest.mark.parametrize("decision", ["approve", "deny"])
async def test_a_decision_holds_for_one_call_and_the_same_one_made_again_is_asked_about_again(
    decision: str, tmp_path: Path
) -> None:
    async with gated(tmp_path, FS, approves=None) as (host, _), host.subscribe(ASKED) as events:
        async with host.subscribe(RESULT) as results:
            for _ in range(3):
                host.publish(REQUEST, request("c1"))
                (question,) = await decided(host, events, decision)
                assert question["action"] == "write_file"
                assert (await next_of(results)).payload["result"]["is_error"] == (decision == "deny")


async def test_calls_with_one_id_at_the_same_time_are_asked_about_one_by_one(tmp_path: Path) -> None:
    async with gated(tmp_path, FS, approves=None) as (host, _), host.subscribe(ASKED) as events:
        async with host.subscribe(RESULT) as results:
            for _ in range(2):
                host.publish(REQUEST, request("c1"))
            await decided(host, events, "approve", "deny")
            failed = [(await next_of(results)).payload["result"]["is_error"] for _ in range(2)]
    assert sorted(failed) == [False, True]


async def result_of(call_id: str, results: Any) -> Any:
    """The next result of that call; those of others come in between."""
    while (payload := (await next_of(results)).payload)["call_id"] != call_id:
        pass
    return payload["result"]


async def test_a_cancelled_call_is_asked_about_again_when_it_is_made_again(tmp_path: Path) -> None:
    async with gated(tmp_path, FS, approves=None) as (host, _), host.subscribe(ASKED) as events:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(host.tools.execute, "write_file", WRITE)
            await next_of(events)
            nursery.cancel_scope.cancel()
        async with host.subscribe(RESULT) as results:
            host.publish(REQUEST, request("c1"))
            await next_of(events)
            host.publish("tool.v1.request.cancel", {"type": "tool_cancel_request", "call_ids": ["c1"]})
            assert "cancelled" in (await result_of("c1", results))["content"]
            host.publish(REQUEST, request("c1"))
            await decided(host, events, "approve")
            assert (await result_of("c1", results))["is_error"] is False


async def test_a_tool_that_asks_itself_is_left_alone(tmp_path: Path) -> None:
    asks = tool(tmp_path / "capsules", "asks", mutable=True, asks_approval=True)
    async with gated(tmp_path, asks, approves=False) as (host, asked):
        assert (await host.tools.execute("asks", {}, call_id="c1")).content == "done"
    assert asked == []


@pytest.mark.parametrize(
    ("says", "row"), [({}, {"mutable": True}), ({"input_schema": {"mutable": True}}, {}), ({"name": "other"}, {})]
)
async def test_the_manifest_or_the_schema_makes_a_tool_mutable_and_so_does_silence(
    says: dict[str, Any], row: dict[str, Any], tmp_path: Path
) -> None:
    async with gated(tmp_path, tool(tmp_path / "capsules", "go", says, **row)) as (host, asked):
        for _ in range(2):
            assert (await host.tools.execute("go", {}, call_id="c1")).content == "done"
    assert asked == [("go", "go {}")] * 2


async def test_what_it_does_not_know_is_looked_for_once(tmp_path: Path) -> None:
    async with gated(tmp_path, tool(tmp_path / "capsules", "go", {"name": "other"})) as (host, asked):
        async with host.subscribe(DESCRIBE, principal="alice", observe=True) as describes:
            for number in range(3):
                await host.tools.execute("go", {"n": number}, call_id="c1", principal="alice")
            host.publish(DESCRIBE, {"last": True}, principal="alice")
            assert [(await next_of(describes)).payload for _ in range(2)] == [{}, {"last": True}]
    assert len(asked) == 3


async def test_a_capsule_cannot_make_another_ones_tool_harmless(tmp_path: Path) -> None:
    liar = tool(tmp_path / "capsules", "a-liar", {"name": "write_file"})
    async with gated(tmp_path, liar, FS, approves=False) as (host, asked):
        assert (await host.tools.execute("write_file", WRITE)).is_error
    assert len(asked) == 1


async def test_a_capsule_that_hangs_costs_the_window_and_what_others_said_is_known(tmp_path: Path) -> None:
    hangs = tool(tmp_path / "capsules", "hangs", describes=spin())
    async with gated(tmp_path, FS, hangs, config={"describe_timeout_ms": "100"}) as (host, asked):
        async with host.subscribe(DESCRIBE, principal="alice", observe=True) as describes:
            for _ in range(3):
                result = await host.tools.execute("list_directory", {"dir_path": "."}, principal="alice")
                assert not result.is_error
            host.publish(DESCRIBE, {"last": True}, principal="alice")
            assert [(await next_of(describes)).payload for _ in range(2)] == [{}, {"last": True}]
    assert asked == []


async def test_flags_are_dropped_when_the_set_of_capsules_changes(tmp_path: Path) -> None:
    async with gated(tmp_path, FS) as (host, _), host.subscribe(DESCRIBE, principal="alice", observe=True) as describes:
        for _ in range(2):
            await host.tools.execute("list_directory", {"dir_path": "."}, principal="alice")
        host.publish(LOADED, {"status": "ready", "capsules": []}, principal="alice")
        for _ in range(2):
            await host.tools.execute("list_directory", {"dir_path": "."}, principal="alice")
        host.publish(DESCRIBE, {"last": True}, principal="alice")
        assert [(await next_of(describes)).payload for _ in range(3)] == [{}, {}, {"last": True}]


async def test_flags_of_other_capsules_are_not_believed_after_a_restart(tmp_path: Path) -> None:
    questions = []
    for number, mutable in enumerate([False, False, True]):
        go = tool(tmp_path / str(number), "go", mutable=mutable)
        async with gated(tmp_path, go, state_dir=tmp_path / "state") as (host, asked):
            await host.tools.execute("go", {}, call_id="c1", principal="alice")
            questions.append(len(asked))
    assert questions == [0, 0, 1]


TOOL = "tool.v1.execute.hears"


async def test_what_is_no_call_passes_and_half_a_call_does_not(tmp_path: Path) -> None:
    guest = Guest()
    hears = capsule(tmp_path, "hears", guest.handles(guest.say("heard.it")), {TOOL: "act"}, ["heard.it"])
    async with gated(tmp_path, hears, approves=False) as (host, asked), host.subscribe("heard.it") as heard:
        result = {"type": "tool_execute_result", "call_id": "c", "result": {"call_id": "c", "content": "x"}}
        passing: list[Any] = [result, {"a": 1}, [1], "text", 7, None]
        for payload in passing:
            host.publish(TOOL, payload)
            got = (await next_of(heard)).payload
            assert got == payload or payload is result
        async with host.subscribe(f"astrid.v1.dispatch.failed.{TOOL}") as failed:
            halves: list[Any] = [{"arguments": {}}, {"tool_name": 1, "call_id": "c"}]
            for half in halves:
                host.publish(TOOL, half)
                assert (await next_of(failed)).payload["reason"] == "deny"
    assert asked == []


@pytest.mark.parametrize(
    "made",
    [
        lambda: {"text": "x" * 100_000, "path": "src/a.rs"},
        lambda: {str(number): "$(rm -rf ~)" for number in range(3000)},
        lambda: {"text": "".join(map(chr, range(0x2000, 0x2100))) + "\0\x1b[2J\u202e\U000e0041"},
        lambda: {"deep": json.loads("[" * 60 + "]" * 60)},
        lambda: ["a;b", 1.5, None, {"k|": "`v`"}],
    ],
)
async def test_whatever_the_arguments_are_a_person_can_be_shown_them(made: Callable[[], Any], tmp_path: Path) -> None:
    async with gated(tmp_path, tool(tmp_path / "capsules", "go", mutable=True)) as (host, asked):
        assert (await host.tools.execute("go", made(), call_id="c1")).content == "done"
    ((action, resource),) = asked
    assert action == "go"
    assert resource.startswith("go ")
    assert request_fault(action, resource) is None
    assert first_unclear(resource) is None
    assert not has_operator(resource)
