"""Work in the background: what goes wrong in it is a line in the log, and the loop that it ran on goes on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from astrid_host.hostcalls.io import Background


async def fails() -> None:
    raise ZeroDivisionError("a fault")


async def fails_among_others() -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep_forever)
        nursery.start_soon(fails)


async def fails_as_it_is_cancelled() -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep_forever)
        try:
            await trio.sleep_forever()
        finally:
            await fails()


@pytest.mark.parametrize("work", [fails, fails_among_others, fails_as_it_is_cancelled])
async def test_an_error_in_the_background_is_logged_and_ends_nothing_else(
    work: Any, caplog: pytest.LogCaptureFixture
) -> None:
    scheduler: Any = SimpleNamespace()
    async with trio.open_nursery() as nursery:
        background = Background(scheduler, nursery)
        background.start(work)
        await trio.testing.wait_all_tasks_blocked()
        others: list[str] = []

        async def other() -> None:
            others.append("runs")

        background.start(other)
        await trio.testing.wait_all_tasks_blocked()
        assert others == ["runs"]
        nursery.cancel_scope.cancel()
    assert "ZeroDivisionError: a fault" in caplog.text
