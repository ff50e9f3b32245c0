"""Exchanges: requests under way, by principal and id, so that one answers only what was put to it.

A request opens an exchange, passing it on names the topic whose owner may answer, one answer comes back, one result closes it.
The table knows ids and topics, not what they are about: contracts say which event does what. It holds a bounded number for one
speaker on behalf of one principal; above that the speaker's own oldest one is forgotten, never somebody else's. The bus's lock is
held in every function.
"""

from __future__ import annotations

from hashlib import sha256

import msgspec

from astrid_host.payloads import NIL_SOURCE

OF_A_CAPSULE, OF_THE_HOST = 4096, 65_536
ID_CHARACTERS = 128  # a longer id is kept as its hash


def id_of(value: object) -> str | None:
    """The id that a payload's value is; None when it is no text, so that nothing belongs together by it."""
    if not isinstance(value, str):
        return None
    return value if len(value) <= ID_CHARACTERS else sha256(value.encode("utf-8", "surrogatepass")).hexdigest()


class Exchange(msgspec.Struct, gc=False):
    """What is under way with one id. A speaker may use its own id again before the first result is there.

    Attributes:
        opener: the UUID of who opened it.
        requests: how many have no result yet.
        topics: those under which they were passed on and not answered; nearly always one at most.
    """

    opener: str
    requests: int = 1
    topics: tuple[str, ...] = ()

    def answered(self, topic: str) -> None:
        """A request that was passed on under a topic has its answer."""
        at = self.topics.index(topic)
        self.topics = self.topics[:at] + self.topics[at + 1 :]


class Exchanges:
    """The exchanges of one host.

    Attributes:
        under_way: by principal and id. Rules look into it themselves: it is done several times for each call of a tool.
        full_at: how many there may be before some have to be forgotten.
    """

    __slots__ = ("full_at", "under_way")

    def __init__(self) -> None:
        self.under_way: dict[tuple[str | None, str], Exchange] = {}
        self.full_at = OF_A_CAPSULE

    def is_taken(self, principal: str | None, id: object, opener: str) -> bool:  # noqa: A002 - the field's own word
        """Whether another speaker has an exchange with that id under way."""
        named = id_of(id)
        exchange = None if named is None else self.under_way.get((principal, named))
        return exchange is not None and exchange.opener != opener

    def open(self, principal: str | None, id: str, opener: str) -> Exchange:  # noqa: A002 - the field's own word
        """Begin one; or add a request to it, if it is under way."""
        under_way = self.under_way
        exchange = under_way.get((principal, id))
        if exchange is not None:
            exchange.requests += 1
            return exchange
        if len(under_way) >= self.full_at:
            self._forget_some()
        exchange = under_way[principal, id] = Exchange(opener)
        return exchange

    def close(self, principal: str | None, id: str) -> bool:  # noqa: A002
        """One of its requests has its result; with the last one it is over. False when none is under way."""
        exchange = self.under_way.pop((principal, id), None)
        if exchange is None:
            return False
        if exchange.requests > 1:
            exchange.requests -= 1
            self.under_way[principal, id] = exchange
        return True

    def _forget_some(self) -> None:
        """Of each speaker and principal that has too many, the oldest ones go. The rest may grow by half before the next look,
        so that looking costs little for each."""
        own: dict[tuple[str, str | None], list[tuple[str | None, str]]] = {}
        for key, exchange in self.under_way.items():
            own.setdefault((exchange.opener, key[0]), []).append(key)
        for (opener, _), keys in own.items():
            most = OF_THE_HOST if opener == NIL_SOURCE else OF_A_CAPSULE
            for key in keys[: max(0, len(keys) - most // 2)] if len(keys) >= most else ():
                del self.under_way[key]
        self.full_at = max(OF_A_CAPSULE, len(self.under_way) * 3 // 2)
