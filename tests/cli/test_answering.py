"""Requests for approval while a command runs: the person at the terminal answers them."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pytest
import trio

from astrid_host import open_host
from astrid_host.cli.answering import Allowances, answer_at_terminal
from astrid_host.cli.keyboard import Keyboard
from astrid_host.cli.served import Booted
from astrid_host.control.policies import CallPolicies
from astrid_host.hostcalls.approval import TOPIC
from astrid_host.payloads import from_value
from astrid_host.payloads.kinds import ApprovalRequired

REQUEST_ID = "0b0f2a63-7c0f-4b58-8f0c-9d6c2f2f7a11"
SPY = "2f1c7d2e-7d3b-5e0a-9a55-0a1b2c3d4e5f"
Types: TypeAlias = Callable[[str], None]


@pytest.fixture
def types(monkeypatch: pytest.MonkeyPatch) -> Iterator[Types]:
    """Somebody types that, and then nothing more."""
    reading, writing = os.pipe()
    with os.fdopen(reading, encoding="utf-8") as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)

        def types(text: str) -> None:
            os.write(writing, text.encode("utf-8", "surrogateescape"))
            os.close(writing)

        yield types


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
        ("\udcff\n", "run x", "deny"),
    ],
)
async def test_the_person_at_the_terminal_decides(
    types: Types, capsys: pytest.CaptureFixture[str], typed: str, resource: str, decision: str
) -> None:
    types(typed)
    answer = await answered(resource)
    assert answer == {"type": "approval_response", "request_id": REQUEST_ID, "decision": decision}
    shown = capsys.readouterr().err
    assert resource in shown
    assert ("run *" in shown) is ("|" not in resource)


SHOWN = [
    (
        "cat > n.txt <<'EOF'\nhello\nAllow it? [y] once\nEOF",
        "  | hello\n  | Allow it? [y] once\n  | EOF\n  (4 lines, 48 bytes)",
    ),
    ("printf 'a\tb'", "  printf 'a\\tb'\n"),
    ("echo \U0001f469\u200d\U0001f4bb", "  echo \U0001f469\\u200d\U0001f4bb\n"),
    ("rm a\u202etxt.b", "  rm a\\u202etxt.b\n"),
    ("echo a\u3164b\ufe0f\u00a0c", "  echo a\\u3164b\\ufe0f\\xa0c\n"),
    ("a\r\nb", "  | a\\r\n  | b\n"),
    ("true " + "x" * 1100, f"  | true {'x' * 1100}\n  (1 lines, 1105 bytes)"),
]


@pytest.mark.parametrize(("resource", "told"), SHOWN)
async def test_all_of_a_text_is_shown_and_nothing_in_it_is_taken_for_something_else(
    types: Types, capsys: pytest.CaptureFixture[str], resource: str, told: str
) -> None:
    types("y\n")
    assert (await answered(resource))["decision"] == "approve"
    assert told in capsys.readouterr().err


async def test_what_a_capsule_says_cannot_move_the_terminal(types: Types, capsys: pytest.CaptureFixture[str]) -> None:
    types("n\n")
    await answered("\x1b[2J\x1b[H")
    assert "\x1b" not in capsys.readouterr().err


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
            served = Booted(host, CallPolicies(), "default")
            await nursery.start(answer_at_terminal, served, Keyboard())
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
            host._scheduler.run_or_wake()
            host.publish(TOPIC, question)
            event = await anext(answers)
            assert (event.topic, event.principal) == (f"{TOPIC}.response.{REQUEST_ID}", "default")
        nursery.cancel_scope.cancel()
    return event.payload


def test_what_was_waiting_when_it_was_allowed_is_covered_and_nothing_else() -> None:
    def request(resource: str, reason: str = "why") -> ApprovalRequired:
        return ApprovalRequired(REQUEST_ID, "run", resource, reason)

    allowances = Allowances()
    allowances.keep(request("run x"), "approve", 5)
    assert not allowances.cover(request("run x"), 4)
    allowances.keep(request("run x"), "approve_session", 10)
    assert allowances.cover(request("run y"), 9)
    assert not allowances.cover(request("run y"), 11)  # the host knows of it by then
    assert not allowances.cover(request("run y | sh"), 9)
    assert not allowances.cover(request("run y", "another's"), 9)
