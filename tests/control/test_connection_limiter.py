"""Who has a place at the control socket, and who gives way."""

from __future__ import annotations

import errno
import logging
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from astrid_host.control.limiter import SILENT_S, ConnectionLimiter
from astrid_host.control.server import _accepted


class Client:
    def __init__(self, silent_since: float | None) -> None:
        self.scope = trio.CancelScope()
        self.silent_since = silent_since

    @property
    def sent_away(self) -> bool:
        return self.scope.cancel_called


def test_a_full_room_sends_away_who_was_silent_for_longest() -> None:
    async def main() -> None:
        long, longer, busy = Client(5.0), Client(1.0), Client(None)
        limiter = ConnectionLimiter(peers=3)
        assert all(limiter.let_in(client) for client in (long, longer, busy))
        assert not limiter.let_in(Client(None))  # nobody was silent for long enough
        clock.jump(SILENT_S + 2)
        assert limiter.let_in(Client(None))
        assert (long.sent_away, longer.sent_away, busy.sent_away) == (False, True, False)
        assert not limiter.let_in(Client(None))
        limiter.has_left(busy)
        assert limiter.let_in(Client(None))

    clock = MockClock()
    trio.run(main, clock=clock)


async def test_at_the_door_the_one_that_came_first_gives_way() -> None:
    first, second, third = Client(None), Client(None), Client(None)
    limiter = ConnectionLimiter(shaking=2)
    with limiter.shaking_hands(first), limiter.shaking_hands(second), limiter.shaking_hands(third):
        assert (first.sent_away, second.sent_away, third.sent_away) == (True, False, False)
    with limiter.shaking_hands(Client(None)), limiter.shaking_hands(Client(None)):
        assert not second.sent_away


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ECONNABORTED])
async def test_where_there_is_no_room_for_a_connection_it_is_waited_for(
    number: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("astrid_host.control.server.PAUSE_S", 0.001)
    monkeypatch.setattr(logging.getLogger("astrid_host"), "propagate", True)

    class Listening:
        faults = 3

        async def accept(self) -> tuple[str, str]:
            if self.faults:
                self.faults -= 1
                raise OSError(number, "no room")
            return "a connection", ""

    listening: Any = Listening()
    assert await _accepted(listening, ConnectionLimiter()) == "a connection"  # type: ignore[comparison-overlap]
    told = [record for record in caplog.records if "lets nobody in for now" in record.message]
    assert len(told) == (0 if number == errno.ECONNABORTED else 1)


async def test_what_is_wrong_with_the_socket_itself_is_told() -> None:
    class Listening:
        async def accept(self) -> tuple[str, str]:
            raise OSError(errno.EBADF, "closed")

    listening: Any = Listening()
    with pytest.raises(OSError, match="closed"):
        await _accepted(listening, ConnectionLimiter())
