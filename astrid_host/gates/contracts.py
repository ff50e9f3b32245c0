"""Topic contracts: whose word counts on a topic, told by role, as data that ships beside the conventions' capsules.

A `[publish]` row says what a capsule may utter; a contract says who is believed. `Contracts` is the data and the questions about
manifests; `Rules` is what the bus asks at each publish: it finds the contract of a topic once, and keeps the exchanges under way.
Nothing here knows what the topics mean. A file that cannot be read is a fault of the installation, and a `LoadError`.

An id in a payload is no proof: whoever answers must own the topic that the request was passed on under, and a request with an id
that another speaker has open is refused.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import msgspec

from astrid_host.errors import LoadError
from astrid_host.gates.exchanges import Exchanges, id_of
from astrid_host.topics import FAILED_TOPICS, SETTLED_TOPICS, TOPIC_BYTES, bus_matches, covers, overlap, pattern_of

if TYPE_CHECKING:
    from astrid_host.manifest import Manifest

KEPT_RULES = 8192
HANDLER = "handler:"
Interceptors = Literal["free", "own", "consent"]


class Speaker(Protocol):
    """A capsule, as contracts see it."""

    @property
    def id(self) -> str: ...
    @property
    def roles(self) -> Collection[str]:
        """The roles that it holds."""
        ...

    @property
    def owned(self) -> Collection[str]:
        """The topics that it has a row of exactly that name for, and keeps."""
        ...


class Role(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a role's holders may do, in plain words, and which bundled capsules hold it. With `consent` a capsule that wants the
    role does not load before the operator trusts it."""

    tells: str
    capsules: tuple[str, ...] = ()
    consent: bool = False


class Contract(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whose word counts on the topics of one pattern. The keys are explained in the file that holds them."""

    topic: str
    speakers: tuple[str, ...] | None = None
    opens: str | None = None
    passes: str | None = None
    answers: str | None = None
    closes: str | None = None
    cancels: str | None = None
    same: tuple[str, ...] = ()
    names: str | None = None
    interceptors: Interceptors = "consent"

    @property
    def roles(self) -> tuple[str, ...]:
        return tuple(word for word in self.speakers or () if not word.startswith(HANDLER))

    @property
    def owners(self) -> tuple[str, ...]:
        """Topics whose handlers are speakers, as they are written."""
        return tuple(word.removeprefix(HANDLER) for word in self.speakers or () if word.startswith(HANDLER))


class _File(msgspec.Struct, forbid_unknown_fields=True):
    role: dict[str, Role] = {}
    contract: tuple[Contract, ...] = ()


class Contracts:
    """The contracts of one host.

    Args:
        roles: by name.
        contracts: in order; the first that covers a topic holds.
    """

    def __init__(self, roles: Mapping[str, Role] | None = None, contracts: Iterable[Contract] = ()) -> None:
        self._roles = dict(roles or {})
        self._contracts = tuple(contracts)

    @classmethod
    def read(cls, files: Iterable[Path]) -> Contracts:
        """Read files of contracts, which hold in the order of the files.

        Raises:
            LoadError: one cannot be read, or names a role that none of them declares.
        """
        roles: dict[str, Role] = {}
        contracts: list[Contract] = []
        where: dict[str, Path] = {}
        for path in files:
            try:
                file = msgspec.convert(tomllib.loads(path.read_text()), _File)
            except (OSError, ValueError) as error:
                raise LoadError(f"{path} cannot be read: {error}; install the host again") from None
            roles.update(file.role)
            contracts.extend(file.contract)
            where.update((role, path) for contract in file.contract for role in contract.roles)
        unknown = sorted(set(where) - set(roles))
        if unknown:
            raise LoadError(f"{where[unknown[0]]} names the role {unknown[0]!r}, which no file of contracts declares")
        return cls(roles, contracts)

    def role(self, name: str) -> Role:
        """What is said of a role."""
        return self._roles[name]

    def roles_of(self, bundled: str) -> frozenset[str]:
        """The roles of a capsule that comes with the host."""
        return frozenset(name for name, role in self._roles.items() if bundled in role.capsules)

    def of(self, topic: str) -> Contract | None:
        """The contract of a topic, or None: then nobody owns its word."""
        return next((contract for contract in self._contracts if bus_matches(topic, contract.topic)), None)

    def wanted(self, manifest: Manifest) -> dict[str, list[str]]:
        """The roles without which rows of `[publish]` do not count, each with these rows. One role is named for each contract
        that a row reaches, even where several would do."""
        handled = [row.pattern for row in manifest.subscribe]
        reached = [
            (row, contract)
            for row in manifest.publish
            for contract in self._meant(row)
            if contract.speakers is not None and contract.roles and not _may_own(contract, handled)
        ]
        found: dict[str, list[str]] = {}
        for row, contract in sorted(reached, key=lambda pair: len(pair[1].roles)):  # those that leave no choice first
            role = next((role for role in contract.roles if role in found), contract.roles[0])
            rows = found.setdefault(role, [])
            if row not in rows:
                rows.append(row)
        return found

    def unheard(self, manifest: Manifest, roles: Collection[str]) -> dict[str, str]:
        """Rows of `[publish]` that reach a topic on which the capsule's word does not count: why, by row.

        Args:
            manifest: the capsule's.
            roles: that it holds.
        """
        handled = [row.pattern for row in manifest.subscribe]
        found: dict[str, str] = {}
        for row in manifest.publish:
            for contract in self._meant(row):
                if (
                    contract.speakers is None
                    or _may_own(contract, handled)
                    or not set(contract.roles).isdisjoint(roles)
                ):
                    continue
                found.setdefault(row, f"on {contract.topic} only {self.believed(contract.speakers)}")
        return found

    def believed(self, speakers: Iterable[str]) -> str:
        """Whose word counts, in words."""
        told = [
            f"the capsule that handles {word.removeprefix(HANDLER)}" if word.startswith(HANDLER) else f"the role {word}"
            for word in speakers
        ]
        return f"{' or '.join(told)} is believed" if told else "the host is believed"

    def intercepted(self, manifest: Manifest) -> list[str]:
        """The patterns of handlers that come between others, or hear what is meant for them: only consent allows these."""
        return [row.pattern for row in manifest.handlers if self._intercepts(row.pattern)]

    def _intercepts(self, pattern: str) -> bool:
        for prefix in (FAILED_TOPICS, SETTLED_TOPICS):
            if pattern.startswith(prefix):
                return self._intercepts(pattern.removeprefix(prefix))
        return any(
            contract.interceptors == "consent" or (contract.interceptors == "own" and "*" in pattern.split("."))
            for contract in self._reached(pattern, subtree=False)
        )

    def _meant(self, row: str) -> list[Contract]:
        """The contracts that a row of `[publish]` is about: the one that covers it whole, or all that it reaches. A row may cover
        exceptions of its contract as well; nothing is claimed by that."""
        reached = self._reached(row, subtree=True)
        last = reached[-1:]
        return last if last and covers(pattern_of(last[0].topic), pattern_of(row)) else reached

    def _reached(self, pattern: str, *, subtree: bool) -> list[Contract]:
        """The contracts that hold for some topic that a pattern covers."""
        wanted = pattern_of(pattern, subtree=subtree)
        found = []
        for contract in self._contracts:
            held = pattern_of(contract.topic)
            if overlap(held, wanted):
                found.append(contract)
            if covers(held, wanted):
                break
        return found


def _may_own(contract: Contract, handled: Collection[str]) -> bool:
    """Whether a capsule with rows of these names is the owner that a contract speaks of, for one of its topics."""
    for owner in contract.owners:
        held = pattern_of(owner.replace("{1}", "*"), subtree=False)
        if any("*" not in row.split(".") and covers(held, pattern_of(row, subtree=False)) for row in handled):
            return True
    return False


class Rule:
    """The contract of one topic, worked out: asked at each publish on it. The bus's lock is held in both functions.

    Attributes:
        notes: its events begin, pass on or end exchanges.
        reads: it looks into payloads.
    """

    __slots__ = (
        "_contract",
        "_contracts",
        "_exchanges",
        "_key",
        "_name",
        "_owners",
        "_roles",
        "_topic",
        "notes",
        "reads",
    )

    def __init__(self, contract: Contract, topic: str, contracts: Contracts, exchanges: Exchanges) -> None:
        segments = topic.split(".")
        star = contract.topic.split(".").index("*") if "*" in contract.topic.split(".") else 0
        self._contract = contract
        self._contracts = contracts
        self._exchanges = exchanges
        self._topic = topic
        self._roles = frozenset(contract.roles)
        self._owners = tuple(owner.replace("{1}", segments[star]) for owner in contract.owners)
        self._name = ".".join(segments[star:]) if contract.names else None
        self._key = contract.opens or contract.passes or contract.answers or contract.closes
        self.notes = self._key is not None
        self.reads = self.notes or contract.names is not None or contract.cancels is not None

    def refuses(self, speaker: Speaker, source_id: str, data: Any, principal: str | None) -> str | None:
        """Why a capsule's word does not count here, or None. Nothing is changed.

        Args:
            speaker: the capsule.
            source_id: the UUID that it publishes under.
            data: the payload, decoded.
            principal: on whose behalf.
        """
        contract = self._contract
        if contract.speakers is not None and self._roles.isdisjoint(speaker.roles):
            owned = speaker.owned
            for owner in self._owners:
                if owner in owned:
                    break
            else:
                return self._not_believed(speaker)
        if self._name is not None and (named := _field(data, contract.names)) != self._name:
            return f"its {contract.names} is {_shown(named)}, and the topic says {self._name!r}: publish each under its own name"
        if contract.cancels is not None:
            return self._refuses_cancel(_field(data, contract.cancels), source_id, principal)
        if self._key is None:
            return None
        return self._refuses_exchange(data, source_id, principal)

    def _not_believed(self, speaker: Speaker) -> str:
        contract = self._contract
        believed = [*contract.roles, *(HANDLER + owner for owner in self._owners)]
        why = f"capsule {speaker.id!r} may publish on {self._topic!r}, but there {self._contracts.believed(believed)}"
        if not contract.roles:
            return why
        role = contract.roles[0]
        return (
            f'{why}; `astrid-host trust` with its folder would record: [roles] {speaker.id} = ["{role}"], '
            f"to {self._contracts.role(role).tells}"
        )

    def _refuses_exchange(self, data: Any, source_id: str, principal: str | None) -> str | None:
        contract = self._contract
        value = _field(data, self._key)
        for other in contract.same:
            named = _field(data, other)
            if named is not None and named != value:
                return f"its {other} is {_shown(named)} and its {self._key} {_shown(value)}: they must be the same"
        key = id_of(value)
        if key is None:
            return None  # nobody can take it for an answer
        exchange = self._exchanges.find(principal, key)
        if contract.opens is not None or contract.passes is not None:
            waits = exchange is None or (contract.passes is not None and len(exchange.topics) < exchange.requests)
            if waits or exchange is None or exchange.opener == source_id:
                return None
            return f"{self._key} {_shown(value)} is in use by another speaker: use an id of your own, that nobody can guess"
        if exchange is None:
            return f"no exchange with {self._key} {_shown(value)} is under way for {principal}: it is over, or nobody asked"
        if contract.closes is not None or not self._owners or any(owner in exchange.topics for owner in self._owners):
            return None
        return (
            f"the exchange with {self._key} {_shown(value)} is not one that was passed on under {' or '.join(self._owners)} and "
            "waits for an answer"
        )

    def _refuses_cancel(self, listed: Any, source_id: str, principal: str | None) -> str | None:
        for key in listed if isinstance(listed, list) else ():
            named = id_of(key)
            exchange = None if named is None else self._exchanges.find(principal, named)
            if exchange is not None and exchange.opener != source_id:
                return f"{_shown(key)} was opened by another speaker: only who opened it, or the host, ends it"
        return None

    def note(self, data: Any, source_id: str, principal: str | None) -> None:
        """An event of this topic is published: what it does to its exchange."""
        key = id_of(_field(data, self._key))
        if key is None:
            return
        contract, exchanges = self._contract, self._exchanges
        if contract.closes is not None:
            exchanges.close(principal, key)
        elif contract.opens is not None:
            exchanges.open(principal, key, source_id)
        elif contract.passes is not None:
            exchange = exchanges.find(principal, key)
            if exchange is None or (exchange.opener == source_id and len(exchange.topics) >= exchange.requests):
                exchange = exchanges.open(principal, key, source_id)
            exchange.topics.append(self._topic)
        elif (exchange := exchanges.find(principal, key)) is not None:
            for owner in self._owners:
                if owner in exchange.topics:
                    exchange.topics.remove(owner)


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
        rule = None if contract is None else Rule(contract, topic, self._contracts, self.exchanges)
        if len(topic) <= TOPIC_BYTES:
            if len(self) >= KEPT_RULES:  # topics may carry ids
                self.clear()
            self[topic] = rule
        return rule


def _field(data: Any, path: str | None) -> Any:
    """A value inside a decoded payload, by its keys with dots between them; None where there is none."""
    for key in (path or "").split("."):
        data = data.get(key) if isinstance(data, dict) else getattr(data, key, None)
    return data


def _shown(value: object) -> str:
    return repr(value[:64] if isinstance(value, str) else value)[:80]
