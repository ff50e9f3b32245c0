"""Who answers requests for approval while a command runs: the person at the terminal, or nobody."""

from __future__ import annotations

import io
import sys
from typing import Any

import pytest
import trio

from astrid_host import open_host
from astrid_host.cli.answering import TOPIC, Unattended, answer_at_terminal
from astrid_host.syscalls.approval import Asked


def asked(principal: str = "default", call_id: str | None = "c1", resource: str = "git status -s") -> Asked:
    return Asked("shell", principal, "git status", resource, call_id)


def test_without_yes_everything_is_denied_and_the_way_out_is_named() -> None:
    nobody = Unattended("c1", "default", yes=False)
    assert nobody.decide(asked()) is False
    (said,) = nobody.denied
    assert "--yes" in said
    assert "astrid-host approvals allow shell 'git status'" in said


def test_yes_approves_what_the_call_itself_asks_for_and_nothing_else() -> None:
    unattended = Unattended("c1", "default", yes=True)
    assert unattended.decide(asked()) is True
    for other in (asked(principal="bob"), asked(call_id="c2"), asked(call_id=None)):
        assert unattended.decide(other) is False
    assert len(unattended.denied) == 3
    assert Unattended(None, "default", yes=True).decide(asked(call_id=None)) is False


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
    ],
)
async def test_the_person_at_the_terminal_decides(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], typed: str, resource: str, decision: str
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
    answer = await answered(resource)
    assert answer == {"type": "approval_response", "request_id": "r1", "decision": decision}
    shown = capsys.readouterr().err
    assert resource in shown
    assert ("run *" in shown) is ("|" not in resource)


async def test_what_a_capsule_says_cannot_move_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("n\n"))
    await answered("\x1b[2J\x1b[H")
    assert "\x1b" not in capsys.readouterr().err


async def answered(resource: str) -> Any:
    """What the terminal answers a request with; a request of another principal and other payloads are passed over."""
    question = {"type": "approval_required", "request_id": "r1", "action": "run", "resource": resource, "reason": "why"}
    async with open_host([], state_dir=":memory:") as host, trio.open_nursery() as nursery:
        async with host.subscribe(f"{TOPIC}.response.*") as answers:
            nursery.start_soon(answer_at_terminal, host, "default")
            await trio.testing.wait_all_tasks_blocked()
            host.publish(TOPIC, question, principal="bob")
            host.publish(TOPIC, "something else")
            host.publish(TOPIC, {"type": "grant_required", "request_id": "g", "principal": "p", "capsule_id": "c"})
            host.publish(TOPIC, question)
            event = await anext(answers)
            assert (event.topic, event.principal) == (f"{TOPIC}.response.r1", "default")
        nursery.cancel_scope.cancel()
    return event.payload
