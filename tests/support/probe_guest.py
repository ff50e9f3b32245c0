"""The guest that calls every host function, in a host that notes what is called and what is answered."""

from __future__ import annotations

import shutil
import socket
import tomllib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import tomli_w
import trio
from guests_in_wat import next_of
from rust_debug import outcome

from astrid_host import Host, open_host
from astrid_host.abi import Variant
from astrid_host.abi.resources import HandleTable
from astrid_host.engine import Import, Suspend
from astrid_host.errors import HostError
from astrid_host.hostcalls import HostFunction, Interface
from astrid_host.imports import DROP, HostImports
from astrid_host.wit import types as wit

FOLDER = Path(__file__).parents[1] / "guests" / "probe"
SAID = "probe.said"


class Answer(NamedTuple):
    """What a host function returned, or its error as a `Variant`."""

    good: bool
    value: Any

    @classmethod
    def of(cls, error: HostError) -> Answer:
        return cls(False, Variant(error.case, error.payload))

    @property
    def case(self) -> str:
        """`ok`, or the case of the error."""
        return "ok" if self.good else str(self.value.case)


class Called:
    """One call of a host function."""

    def __init__(self, module: str, declared: wit.Function, arguments: tuple[Any, ...]) -> None:
        self.module = module
        self.declared = declared
        self.name = declared.core_name
        self.arguments = arguments
        self.ended: Answer | None = None

    @property
    def answer(self) -> Answer:
        assert self.ended is not None, f"{self.name} has not ended"
        return self.ended

    def shown(self, answer: Answer | None = None) -> str:
        """An answer, by default its own, as Rust shows it."""
        return outcome(self.declared, *(answer or self.answer))


class Notes:
    """What the guests of one test call.

    Attributes:
        calls: in order.
        dropped: resources of which handles were dropped.
        tables: the handles of each instance.
        offered: what the host offers to guests, by package.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[Called] = []
        self.dropped: set[wit.Resource] = set()
        self.tables: list[HandleTable] = []
        self.offered: dict[str, Callable[[], Iterable[Interface]]] = {}
        self._awaited: dict[str, trio.Event] = {}
        find, offer, drop, init = HostImports.find, HostImports.offer, HandleTable.drop, HandleTable.__init__

        def noting(imports: HostImports, module: str, name: str) -> Import | None:
            found = find(imports, module, name)
            return found if found is None or name.startswith(DROP) else self._noted(module, found)

        def offering(imports: HostImports, package: str, make: Callable[[], Iterable[Interface]]) -> None:
            self.offered[package] = make
            offer(imports, package, make)

        def dropping(table: HandleTable, resource: wit.Resource, index: int) -> None:
            self.dropped.add(resource)
            drop(table, resource, index)

        def made(table: HandleTable) -> None:
            init(table)
            self.tables.append(table)

        monkeypatch.setattr(HostImports, "find", noting)
        monkeypatch.setattr(HostImports, "offer", offering)
        monkeypatch.setattr(HandleTable, "drop", dropping)
        monkeypatch.setattr(HandleTable, "__init__", made)

    def _noted(self, module: str, found: Import) -> Import:
        declared, inner = found.declared, found.run
        assert isinstance(declared, wit.Function)

        def run(call: Any, *arguments: Any) -> Any:
            called = Called(module, declared, arguments)
            self.calls.append(called)

            def ended(give: Callable[[], Any]) -> Any:
                try:
                    value = give()
                except HostError as error:
                    called.ended = Answer.of(error)
                    raise
                if type(value) is Suspend:
                    finish = value.finish
                    value.finish = lambda: ended(finish)
                    return value
                called.ended = Answer(True, value)
                self.reached(called.name).set()
                return value

            return ended(lambda: inner(call, *arguments))

        return Import(declared, run, found.waits)

    def taken(self) -> list[Called]:
        """The calls since the last time, without those by which the guest tells of them."""
        calls, self.calls = self.calls, []
        return [call for call in calls if call.name != "publish" or call.arguments[0] != SAID]

    def reached(self, name: str) -> trio.Event:
        """Set when a function of that name has returned to its guest."""
        return self._awaited.setdefault(name, trio.Event())

    def functions(self) -> Mapping[tuple[str, str], HostFunction]:
        """All that the host offers, by interface and name, as it is written."""
        return {
            (module, name): function
            for make in self.offered.values()
            for interface in make()
            for module in interface.wit
            for name, function in interface.functions().items()
        }


class Probe:
    """A running host with the guest."""

    def __init__(self, host: Host, notes: Notes) -> None:
        self.host = host
        self.notes = notes

    async def ask(self, action: str, given: object = "") -> tuple[list[Called], list[tuple[str, str]]]:
        """Let it call the functions of a package: what was called, and what it was told, as (function, text)."""
        self.notes.taken()
        async with self.host.subscribe(SAID) as said:
            self.host.publish(f"probe.do.{action}", given)
            told = (await next_of(said)).payload
        return self.notes.taken(), [(name, text) for name, text in told]


@asynccontextmanager
async def probing(notes: Notes, place: Path, rights: bool = True, **options: Any) -> AsyncIterator[Probe]:
    """A host of the guest alone.

    Args:
        notes: of the test.
        place: a folder; its `work` is the workspace, where `link` leads to a file that the guest makes.
        rights: with what its manifest claims; without, it may do nothing.
        options: of `open_host`.
    """
    capsule, work = place / "capsules" / "probe", place / "work"
    shutil.copytree(FOLDER, capsule)
    work.mkdir()
    (work / "link").symlink_to("made/ä.txt")
    if not rights:
        manifest = tomllib.loads((capsule / "Capsule.toml").read_text())
        del manifest["capabilities"]
        (capsule / "Capsule.toml").write_text(tomli_w.dumps(manifest))
    options = {"state_dir": ":memory:", "workspace": work, "strict": True, **options}
    async with open_host([capsule], trust=True, **options) as host:
        yield Probe(host, notes)


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
    return port
