"""Topic contracts: whose word counts on a topic, told by role, as data that ships beside the conventions' capsules.

A `[publish]` row says what a capsule may utter; a contract says who is believed. Here are the data and the questions about
manifests; `rules` has what the bus asks at each publish. Nothing here knows what the topics mean. A file that cannot be read is a
fault of the installation, and a `LoadError`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from astrid_host.errors import LoadError
from astrid_host.topics import FAILED_TOPICS, SETTLED_TOPICS, bus_matches, covers, overlap, pattern_of

if TYPE_CHECKING:
    from astrid_host.manifest import Manifest

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
        return [row.pattern for row in manifest.handlers if self._intercepts(row.pattern, subtree=False)]

    def overheard(self, pattern: str) -> bool:
        """Whether a guest that subscribes by a row of that pattern hears what is meant for others: only consent allows that."""
        reports = (pattern_of(f"{prefix}*") for prefix in (FAILED_TOPICS, SETTLED_TOPICS))
        wanted = pattern_of(pattern)
        return self._intercepts(pattern, subtree=True) or any(covers(wanted, report) for report in reports)

    def _intercepts(self, pattern: str, *, subtree: bool) -> bool:
        for prefix in (FAILED_TOPICS, SETTLED_TOPICS):
            if pattern.startswith(prefix):
                return self._intercepts(pattern.removeprefix(prefix), subtree=subtree)
        return any(
            contract.interceptors == "consent" or (contract.interceptors == "own" and "*" in pattern.split("."))
            for contract in self._reached(pattern, subtree=subtree)
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
