"""Who answers requests for approval while a command runs: the person at the terminal, or nobody."""

from __future__ import annotations

import io
import sys
import uuid
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from astrid_host import open_host
from astrid_host.cli.answering import TOPIC, Unattended, answer_at_terminal, provider
from astrid_host.payloads import from_value
from astrid_host.syscalls.approval import Asked

REQUEST_ID = "0b0f2a63-7c0f-4b58-8f0c-9d6c2f2f7a11"
SPY = "2f1c7d2e-7d3b-5e0a-9a55-0a1b2c3d4e5f"


def asked(principal: str = "default", call_id: str | None = "c1", capsule: str = "shell") -> Asked:
    return Asked(capsule, principal, "git status", "git status -s", call_id)


def test_without_yes_everything_is_denied_and_the_way_out_is_named() -> None:
    nobody = Unattended("c1", "default", yes=False)
    assert nobody.decide(asked()) is False
    (said,) = nobody.denied
    assert "--yes" in said
    assert "astrid-host approvals allow shell 'git status'" in said


def test_yes_approves_what_the_called_tool_asks_for_and_nothing_else() -> None:
    unattended = Unattended("c1", "default", yes=True)
    assert unattended.decide(asked()) is False, "whose tool it is is not known yet"
    unattended.capsule = "shell"
    assert unattended.decide(asked()) is True
    for other in (asked(principal="bob"), asked(call_id="c2"), asked(call_id=None), asked(capsule="spy")):
        assert unattended.decide(other) is False
    assert len(unattended.denied) == 5
    no_call = Unattended(None, "default", yes=True)
    no_call.capsule = "shell"
    assert no_call.decide(asked(call_id=None)) is False


def test_a_tool_is_provided_by_the_first_capsule_that_has_it() -> None:
    capsules = {
        name: SimpleNamespace(id=name, tools=tools) for name, tools in (("spy", []), ("a", ["run"]), ("b", ["run"]))
    }
    host: Any = SimpleNamespace(capsules=capsules)
    assert provider(host, "run") == "a"
    assert provider(host, "other") is None


@pytest.mark.parametrize(
    ("typed", "resource", "decision"),
    [
        ("y\n", "run x", "approve"),
        (" YES \n", "run x", "approve"),
        ("s\n", "run x", "approve_session"),
        ("always\n", "run x", "approve_always"),
        ("y\n", "run x | sh", "approve"),
        ("a\n", "run x | sh", "deny"),
        ("n\n", "run x", "deny"),
        ("\n", "run x", "deny"),
        ("yy\n", "run x", "deny"),
        ("", "run x", "deny"),
        ("\udcff", "run x", "deny"),
    ],
)
async def test_the_person_at_the_terminal_decides(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], typed: str, resource: str, decision: str
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
    answer = await answered(resource)
    assert answer == {"type": "approval_response", "request_id": REQUEST_ID, "decision": decision}
    shown = capsys.readouterr().err
    assert resource in shown
    assert ("run *" in shown) is ("|" not in resource)


async def test_what_a_capsule_says_cannot_move_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("n\n"))
    await answered("\x1b[2J\x1b[H")
    assert "\x1b" not in capsys.readouterr().err


async def test_a_terminal_that_is_not_utf_8_denies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff\n"), "utf-8"))
    assert (await answered("run x"))["decision"] == "deny"


async def answered(resource: str) -> Any:
    """What the terminal answers a request with; everything before it is none of the host's, or of another principal."""
    question: dict[str, Any] = {
        "type": "approval_required",
        "request_id": REQUEST_ID,
        "action": "run",
        "resource": resource,
        "reason": "why",
    }
    async with open_host([], state_dir=":memory:") as host, trio.open_nursery() as nursery:
        async with host.subscribe(f"{TOPIC}.response.*") as answers:
            nursery.start_soon(answer_at_terminal, host, "default")
            await trio.testing.wait_all_tasks_blocked()
            host.publish(TOPIC, question, principal="bob")
            for none in (
                "something else",
                None,
                ["approval_required"],
                {"type": "grant_required", "request_id": "g", "principal": "p", "capsule_id": "c"},
                {"type": "approval_required"},
                question | {"action": 5},
                question | {"request_id": "x..y"},
                question | {"request_id": REQUEST_ID.upper()},
                question | {"request_id": f"{{{REQUEST_ID}}}"},
            ):
                host.publish(TOPIC, none)
            forged = question | {"request_id": str(uuid.uuid4())}
            with host._bus.lock:
                host._bus.publish(TOPIC, from_value(forged), "default", SPY)
            host._turns.go()
            host.publish(TOPIC, question)
            event = await anext(answers)
            assert (event.topic, event.principal) == (f"{TOPIC}.response.{REQUEST_ID}", "default")
        nursery.cancel_scope.cancel()
    return event.payload
