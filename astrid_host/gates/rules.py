"""What the bus asks of a topic's contract at each publish, and the exchanges that it keeps for that.

`Rules` finds the contract of a topic once and works it out into a `Rule`. An id in a payload is no proof: whoever answers must
own the topic that the request was passed on under, and a request with an id that another speaker has open is refused. This is on
the path of every call of a tool, so each kind of rule looks at no more than it needs.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from astrid_host.gates.contracts import HANDLER, Contract, Contracts, Speaker
from astrid_host.gates.exchanges import ID_CHARACTERS, Exchange, Exchanges, id_of
from astrid_host.topics import TOPIC_BYTES

KEPT_RULES = 8192


class Rule:
    """The contract of one topic, worked out. The bus's lock is held in `admit` and `note`.

    Attributes:
        reads: it looks into payloads.
    """

    __slots__ = ("_contract", "_contracts", "_owners", "_roles", "_topic")
    reads = False

    def __init__(self, contract: Contract, topic: str, contracts: Contracts) -> None:
        self._contract = contract
        self._contracts = contracts
        self._topic = topic
        self._roles = frozenset(contract.roles)
        first = topic.split(".")[_star(contract)]
        self._owners = frozenset(owner.replace("{1}", first) for owner in contract.owners)

    def doubts(self, speaker: Speaker) -> str | None:
        """Why a capsule's word does not count here, whatever it says; None when it may."""
        contract = self._contract
        if (
            contract.speakers is None
            or not self._roles.isdisjoint(speaker.roles)
            or not self._owners.isdisjoint(speaker.owned)
        ):
            return None
        believed = [*contract.roles, *(HANDLER + owner for owner in sorted(self._owners))]
        why = f"capsule {speaker.id!r} may publish on {self._topic!r}, but there {self._contracts.believed(believed)}"
        if not contract.roles:
            return why
        role = contract.roles[0]
        return (
            f'{why}; `astrid-host trust` with its folder would record: [roles] {speaker.id} = ["{role}"], '
            f"to {self._contracts.role(role).tells}"
        )

    def admit(self, data: Any, source_id: str, principal: str | None) -> str | None:
        """A capsule whose word may count publishes: why this does not count, or None. Then its exchange is another step on.

        Args:
            data: the payload, decoded.
            source_id: the UUID that the capsule publishes under.
            principal: on whose behalf.
        """
        return None

    def note(self, data: Any, source_id: str, principal: str | None) -> None:
        """The host itself published on this topic: its exchange is another step on, whatever state it was in."""


class _Cancels(Rule):
    """Only exchanges that the speaker opened."""

    __slots__ = ("_exchanges",)
    reads = True

    def __init__(self, contract: Contract, topic: str, contracts: Contracts, exchanges: Exchanges) -> None:
        super().__init__(contract, topic, contracts)
        self._exchanges = exchanges

    def admit(self, data: Any, source_id: str, principal: str | None) -> str | None:
        listed = _field(data, self._contract.cancels or "")
        for value in listed if isinstance(listed, list) else ():
            if self._exchanges.is_taken(principal, value, source_id):
                return f"{_shown(value)} was opened by another speaker: only who opened it, or the host, ends it"
        return None


class _Exchanging(Rule):
    """A rule about events that belong to an exchange by an id in their payload. An event without one belongs to none: nobody can
    take it for an answer."""

    __slots__ = ("_exchanges", "_get", "_key", "_under_way")
    reads = True

    def __init__(self, key: str, contract: Contract, topic: str, contracts: Contracts, exchanges: Exchanges) -> None:
        super().__init__(contract, topic, contracts)
        self._exchanges = exchanges
        self._under_way = exchanges.under_way
        self._key = key
        self._get = attrgetter(key)

    def _id(self, data: Any) -> str | None:
        """The id in a payload. Where it is read for each call of a tool, the common case is written out."""
        try:
            value = self._get(data)
        except AttributeError:  # no struct
            value = _field(data, self._key)
        return id_of(value)

    def _told(self, data: Any) -> str:
        return f"{self._key} {_shown(_field(data, self._key))}"

    def _unknown(self, data: Any, principal: str | None) -> str:
        return f"no exchange with {self._told(data)} is under way for {principal}: it is over, or nobody asked"


class _Opens(_Exchanging):
    """A request. Its id must not be one that another speaker has under way."""

    __slots__ = ()

    def admit(self, data: Any, source_id: str, principal: str | None) -> str | None:
        key = self._id(data)
        if key is None:
            return None
        exchange = self._under_way.get((principal, key))
        if exchange is not None and exchange.opener != source_id:
            return f"{self._told(data)} is in use by another speaker: use an id of your own, that nobody can guess"
        self._exchanges.open(principal, key, source_id)
        return None

    def note(self, data: Any, source_id: str, principal: str | None) -> None:
        try:
            key = self._get(data)
        except AttributeError:
            key = self._id(data)
        if type(key) is not str or len(key) > ID_CHARACTERS:
            key = id_of(key)
        under_way, named = self._under_way, (principal, key)
        if named not in under_way and len(under_way) < self._exchanges.full_at and key is not None:
            under_way[named] = Exchange(source_id)
        elif key is not None:
            self._exchanges.open(principal, key, source_id)


class _Passes(_Exchanging):
    """A request passed on under a topic, whose owner may answer it from now on."""

    __slots__ = ("_name", "_named")

    def __init__(self, key: str, contract: Contract, topic: str, contracts: Contracts, exchanges: Exchanges) -> None:
        super().__init__(key, contract, topic, contracts, exchanges)
        self._name = ".".join(topic.split(".")[_star(contract) :])
        self._named = attrgetter(contract.names) if contract.names is not None else None

    def admit(self, data: Any, source_id: str, principal: str | None) -> str | None:
        if self._named is not None:
            try:
                name = self._named(data)
            except AttributeError:
                name = _field(data, self._contract.names or "")
            if name != self._name:
                named = f"its {self._contract.names} is {_shown(name)}"
                return f"{named}, and the topic says {self._name!r}: publish each under its own name"
        try:
            key = self._get(data)
        except AttributeError:
            key = self._id(data)
        if type(key) is not str or len(key) > ID_CHARACTERS:
            key = id_of(key)
        if key is None:
            return None
        exchange = self._under_way.get((principal, key))
        if exchange is not None and len(exchange.topics) < exchange.requests:
            exchange.topics = (*exchange.topics, self._topic)
            return None
        if exchange is not None and exchange.opener != source_id:
            return f"{self._told(data)} was passed on already: each request is passed on once"
        self.note(data, source_id, principal)
        return None

    def note(self, data: Any, source_id: str, principal: str | None) -> None:
        key = self._id(data)
        if key is None:
            return
        exchange = self._under_way.get((principal, key))
        if exchange is None or len(exchange.topics) >= exchange.requests:
            exchange = self._exchanges.open(principal, key, source_id)
        exchange.topics = (*exchange.topics, self._topic)


class _Answers(_Exchanging):
    """An answer, of the owner of the topic that the request was passed on under; one for each request."""

    __slots__ = ("_same",)

    def __init__(self, key: str, contract: Contract, topic: str, contracts: Contracts, exchanges: Exchanges) -> None:
        super().__init__(key, contract, topic, contracts, exchanges)
        self._same = tuple((path, attrgetter(path)) for path in contract.same)

    def admit(self, data: Any, source_id: str, principal: str | None) -> str | None:
        try:
            key = self._get(data)
        except AttributeError:
            key = self._id(data)
        if type(key) is not str or len(key) > ID_CHARACTERS:
            key = id_of(key)
        for path, get in self._same:
            try:
                named = get(data)
            except AttributeError:
                named = _field(data, path)
            if named != key and named is not None and (key is None or id_of(named) != key):
                return f"its {path} is {_shown(named)} and its {self._told(data)}: they must be the same"
        if key is None:
            return None
        exchange = self._under_way.get((principal, key))
        if exchange is None:
            return self._unknown(data, principal)
        for topic in exchange.topics:
            if topic in self._owners:
                exchange.answered(topic)
                return None
        owners = " or ".join(sorted(self._owners))
        return (
            f"the exchange with {self._told(data)} was not passed on under {owners}, or was answered: one answer counts"
        )

    def note(self, data: Any, source_id: str, principal: str | None) -> None:
        key = self._id(data)
        exchange = None if key is None else self._under_way.get((principal, key))
        for topic in () if exchange is None else exchange.topics:
            if exchange is not None and topic in self._owners:
                exchange.answered(topic)
                return


class _Closes(_Exchanging):
    """The result that ends an exchange."""

    __slots__ = ()

    def admit(self, data: Any, source_id: str, principal: str | None) -> str | None:
        try:
            key = self._get(data)
        except AttributeError:
            key = self._id(data)
        if type(key) is not str or len(key) > ID_CHARACTERS:
            key = id_of(key)
        if key is not None and not self._exchanges.close(principal, key):
            return self._unknown(data, principal)
        return None

    def note(self, data: Any, source_id: str, principal: str | None) -> None:
        key = self._id(data)
        if key is not None:
            self._exchanges.close(principal, key)


def _rule_of(contract: Contract, topic: str, contracts: Contracts, exchanges: Exchanges) -> Rule:
    kinds = (
        (contract.opens, _Opens),
        (contract.passes, _Passes),
        (contract.answers, _Answers),
        (contract.closes, _Closes),
    )
    for key, kind in kinds:
        if key is not None:
            return kind(key, contract, topic, contracts, exchanges)
    if contract.cancels is not None:
        return _Cancels(contract, topic, contracts, exchanges)
    return Rule(contract, topic, contracts)


class Rules(dict[str, "Rule | None"]):
    """The rule of each topic, worked out at its first publish: `rules[topic]` is None where no contract holds.

    Args:
        contracts: of the host.
    """

    __slots__ = ("_contracts", "exchanges")

    def __init__(self, contracts: Contracts) -> None:
        super().__init__()
        self._contracts = contracts
        self.exchanges = Exchanges()

    def __missing__(self, topic: str) -> Rule | None:
        contract = self._contracts.of(topic)
        rule = None if contract is None else _rule_of(contract, topic, self._contracts, self.exchanges)
        if len(topic) <= TOPIC_BYTES:
            if len(self) >= KEPT_RULES:  # topics may carry ids
                self.clear()
            self[topic] = rule
        return rule


def _star(contract: Contract) -> int:
    """Which segment of its topics the first `*` of a contract's pattern covers; 0 where it has none."""
    segments = contract.topic.split(".")
    return segments.index("*") if "*" in segments else 0


def _field(data: Any, path: str) -> Any:
    """A value inside a decoded payload, by its keys with dots between them; None where there is none."""
    for key in path.split("."):
        data = data.get(key) if isinstance(data, dict) else getattr(data, key, None)
    return data


def _shown(value: object) -> str:
    return repr(value[:64] if isinstance(value, str) else value)[:80]
