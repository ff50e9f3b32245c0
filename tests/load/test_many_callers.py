"""Many callers of one principal at once: every tool call gets its own answer, and none of them is an error."""

from __future__ import annotations

from pathlib import Path

import trio

from astrid_host import BUNDLED, open_host

CALLERS, CALLS_EACH = 200, 25


async def test_200_callers_of_one_principal_make_5000_calls_and_get_5000_answers(tmp_path: Path) -> None:
    """64 calls have room at the edge; the callers of all others wait for it."""
    places = [Path(BUNDLED) / "router", Path(BUNDLED) / "word-tools"]
    right = 0
    wrong: list[object] = []

    async def calls(caller: int) -> None:
        nonlocal right
        for n in range(caller, CALLERS * CALLS_EACH, CALLERS):
            answer = await host.tools.execute("word_count", {"text": "x " * (n % 97)}, call_id=f"{n}", timeout=50)
            if answer.is_error or answer.call_id != f"{n}" or f'"words":{n % 97},' not in answer.content:
                wrong.append(answer)
            else:
                right += 1

    async with open_host(places, trust=True, state_dir=":memory:", workspace=tmp_path) as host:
        async with trio.open_nursery() as nursery:
            for caller in range(CALLERS):
                nursery.start_soon(calls, caller)
    assert wrong == []
    assert right == CALLERS * CALLS_EACH
