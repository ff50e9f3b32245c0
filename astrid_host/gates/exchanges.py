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
    """One request under way: who opened it, the topic it was passed on under ("" before that), and whether it was answered."""

    __slots__ = ("answered", "opener", "topic")

    def __init__(self, opener: str, topic: str) -> None:
        self.opener = opener
        self.topic = topic
        self.answered = False


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

    def open(self, principal: str | None, id: str, opener: str, topic: str = "") -> None:  # noqa: A002
        """Begin one. The same speaker's older one with that id is forgotten."""
        self.close(principal, id)
        self._open[principal, id] = Exchange(opener, topic)
        own = self._by_opener.get((opener, principal))
        if own is None:
            own = self._by_opener[opener, principal] = {}
        elif len(own) >= (OF_THE_HOST if opener == NIL_SOURCE else OF_A_CAPSULE):
            self.close(principal, next(iter(own)))
            own = self._by_opener.setdefault((opener, principal), own)
        own[id] = None

    def close(self, principal: str | None, id: str) -> None:  # noqa: A002
        """End one, if it is under way."""
        exchange = self._open.pop((principal, id), None)
        if exchange is None:
            return
        own = self._by_opener[exchange.opener, principal]
        del own[id]
        if not own:
            del self._by_opener[exchange.opener, principal]
