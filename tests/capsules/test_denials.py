"""The log names the line of the manifest that would allow what a guest was refused: once for each."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from guests_in_wat import RETURNED, SUBSCRIBE, Guest, capsule, good, good_still_answers, hosted, report_of

from astrid_host.capsules import denials
from astrid_host.capsules.denials import Denials
from astrid_host.errors import HostError


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "astrid_host.denied"]


def a_call(name: str = "x") -> Any:
    return SimpleNamespace(capsule=SimpleNamespace(id=name))


async def test_a_guest_that_may_not_subscribe_is_told_of_once_with_the_row_to_add(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    guest = Guest(SUBSCRIBE)
    guest.handles(f"(call $subscribe {guest.text('secret.topic')} (i32.const {RETURNED}))" * 3 + "(unreachable)")
    capsule(tmp_path, "x", guest, {"x.ask": "act"})
    good(tmp_path)
    async with hosted(tmp_path) as host:
        for _ in range(2):
            await report_of(host, "x.ask")
        await good_still_answers(host)
    (line,) = lines(caplog)
    assert line.startswith("x was answered capability-denied: ")
    assert '"secret.topic"' in line


def test_other_errors_and_repeated_ones_are_not_said(caplog: pytest.LogCaptureFixture) -> None:
    told = Denials()
    for _ in range(3):
        told.note(a_call(), HostError("closed", detail="it is closed"))
        told.note(a_call(), HostError("capability-denied", detail="write in its Capsule.toml: this"))
    told.note(a_call("y"), HostError("capability-denied", detail="write in its Capsule.toml: this"))
    assert lines(caplog) == [
        f"{name} was answered capability-denied: write in its Capsule.toml: this" for name in ("x", "y")
    ]


def test_secrets_are_hidden_and_the_text_stays_on_its_line(caplog: pytest.LogCaptureFixture) -> None:
    told = Denials(lambda text: text.replace("hunter22", "***"))
    told.note(a_call(), HostError("capability-denied", detail="Capsule.toml: a\nb \ud800 hunter22 " + "x" * 5000))
    (line,) = lines(caplog)
    assert line.startswith("x was answered capability-denied: Capsule.toml: a b   *** xxx")
    assert len(line) < 2 * denials.LONGEST


def test_a_guest_that_makes_up_ever_new_ones_is_cut_off(caplog: pytest.LogCaptureFixture) -> None:
    told = Denials()
    for n in range(10 * denials.DETAILS):
        told.note(a_call(), HostError("capability-denied", detail=f"Capsule.toml: {n}"))
    assert len(lines(caplog)) == denials.DETAILS + 1
    assert "further ones are not said" in lines(caplog)[-1]
