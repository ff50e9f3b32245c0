"""Exchanges: requests under way, by principal and id, so that one answers only what was put to it.

A request opens an exchange, passing it on names the topic whose owner may answer, one answer comes back, one result closes it.
The table knows ids and topics, not what they are about: contracts say which event does what. It holds a bounded number for one
speaker on behalf of one principal; above that the speaker's own oldest one is forgotten, never somebody else's. The bus's lock is
held in every function.
"""

from __future__ import annotations

from hashlib import sha256

from astrid_host.payloads import NIL_SOURCE

OF_A_CAPSULE, OF_THE_HOST = 4096, 65_536
ID_CHARACTERS = 128  # a longer id is kept as its hash


def id_of(value: object) -> str | None:
    """The id that a payload's value is; None when it is no text, so that nothing belongs together by it."""
    if not isinstance(value, str):
        return None
    return value if len(value) <= ID_CHARACTERS else sha256(value.encode("utf-8", "surrogatepass")).hexdigest()


class Exchange:
    """What is under way with one id: who opened it, how many requests have no result yet, and the topics under which they were
    passed on and not answered. A speaker may use its own id again before the first result is there."""

    __slots__ = ("opener", "requests", "topics")

    def __init__(self, opener: str) -> None:
        self.opener = opener
        self.requests = 1
        self.topics: list[str] = []


class Exchanges:
    """The exchanges of one host."""

    __slots__ = ("_by_opener", "_open")

    def __init__(self) -> None:
        self._open: dict[tuple[str | None, str], Exchange] = {}
        self._by_opener: dict[tuple[str, str | None], dict[str, None]] = {}

    def __len__(self) -> int:
        return len(self._open)

    def find(self, principal: str | None, id: str) -> Exchange | None:  # noqa: A002 - the field's own word
        """The exchange under way with that id."""
        return self._open.get((principal, id))

    def open(self, principal: str | None, id: str, opener: str) -> Exchange:  # noqa: A002
        """Begin one; or add a request to it, if it is under way."""
        exchange = self._open.get((principal, id))
        if exchange is not None:
            exchange.requests += 1
            return exchange
        exchange = self._open[principal, id] = Exchange(opener)
        own = self._by_opener.setdefault((opener, principal), {})
        if len(own) >= (OF_THE_HOST if opener == NIL_SOURCE else OF_A_CAPSULE):
            oldest = next(iter(own))
            del own[oldest], self._open[principal, oldest]
        own[id] = None
        return exchange

    def close(self, principal: str | None, id: str) -> None:  # noqa: A002
        """One of its requests has its result; with the last one it is over."""
        exchange = self._open.get((principal, id))
        if exchange is None:
            return
        exchange.requests -= 1
        if exchange.requests > 0:
            return
        del self._open[principal, id]
        own = self._by_opener[exchange.opener, principal]
        del own[id]
        if not own:
            del self._by_opener[exchange.opener, principal]
