"""Trying a capsule in a throw-away host: does it load, and does its guest answer to what its manifest names?

Used by `astrid-host check`. Nothing that the guest does there has an effect: every host function refuses.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import platformdirs
import trio

from astrid_host.bundled import APPLICATION, wit_folder
from astrid_host.bus import Bus
from astrid_host.capsules import Capsule, Loader
from astrid_host.capsules.probing import unknown_actions
from astrid_host.dispatch import Dispatcher
from astrid_host.engine import Engine, Instances, Linker
from astrid_host.errors import LoadError
from astrid_host.gates import Contracts, Rules
from astrid_host.hostcalls import Interface, Running, hostcall
from astrid_host.imports import HostImports
from astrid_host.manifest import Manifest, Problem
from astrid_host.scheduler import Accounts, Scheduler, Tasks
from astrid_host.wit import Packages

OWNER = "check"


class Harmless(Interface):
    """The few functions of astrid:sys that a guest needs to say anything at all."""

    wit = ("astrid:sys/host@1.0.0",)

    @hostcall("log")
    def log(self, _call: Running, _level: str, _message: str) -> None:
        """Nobody reads it."""

    @hostcall("random-bytes")
    def random_bytes(self, _call: Running, length: int) -> bytes:
        return os.urandom(min(length, 4096))

    @hostcall("clock-ms")
    def clock_ms(self, _call: Running) -> int:
        return time.time_ns() // 1_000_000

    @hostcall("clock-monotonic-ns")
    def clock_monotonic_ns(self, _call: Running) -> int:
        return time.monotonic_ns()


async def probe(folder: Path, manifest: Manifest) -> list[Problem]:
    """What is wrong with a capsule's module: it does not load, or does not know an action that a row names.

    Cancelled, the guest is stopped.
    """
    where = folder / "Capsule.toml"
    engine = Engine(Path(platformdirs.user_cache_dir(APPLICATION)) / "modules")
    bus, accounts = Bus(), Accounts()
    async with trio.open_nursery() as nursery:
        scheduler = Scheduler(engine, bus.lock, 1)
        try:
            dispatcher = Dispatcher(bus, scheduler, OWNER, accounts)
            imports = HostImports(Packages(wit_folder()), Tasks(scheduler, nursery))
            imports.provide([Harmless()])
            loader = Loader(engine, Linker(engine.wasmtime, imports), bus, dispatcher, Rules(Contracts()), Instances())
            capsule = Capsule(manifest.package.name, folder, False, OWNER, accounts)
            capsule.described_by(manifest)
            try:
                unknown = await unknown_actions(capsule, loader, scheduler)
            except LoadError as error:
                return [Problem("error", str(error), where, 1, 1, "")]
            finally:
                capsule.close()
        finally:
            await scheduler.close()
            nursery.cancel_scope.cancel()
    problems = []
    for row in manifest.handlers:
        if row.handler in unknown:
            text = f"the guest does not know the action {row.handler!r}, so events on {row.pattern!r} would be refused"
            mend = "name an action that the guest answers to, or build the guest with it"
            problems.append(Problem("error", text, where, row.line, 1, mend))
    return problems
