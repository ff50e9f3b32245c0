"""Loading one capsule: manifest, integrity, module, exports, gates.

Whatever is wrong with a capsule ends in its `failed` state with a message; the host and the other capsules go on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import trio
from blake3 import blake3

from astrid_host.abi import ExportKind, export_kinds
from astrid_host.bus import Bus
from astrid_host.capsules.capsule import HOOK, RUN, Capsule
from astrid_host.capsules.denials import Denials
from astrid_host.capsules.files import Files, module_file
from astrid_host.dispatch import Dispatcher, Handler
from astrid_host.engine import Engine, Instances, Linker, Module, Pool, Prelinked, Source
from astrid_host.errors import LoadError, ModuleRefused
from astrid_host.gates import Rules
from astrid_host.hostcalls.ipc import Publisher
from astrid_host.limits import HostLimits
from astrid_host.manifest import Limits, Manifest, Meta, read_meta, read_module
from astrid_host.manifest.meta import META, meta_of
from astrid_host.payloads import source_id
from astrid_host.scheduler import Call
from astrid_host.wit.types import Field, Function, ListOf, OptionOf, Primitive, Record

log = logging.getLogger(__name__)

TEXT = Primitive("string")
CAPSULE_RESULT = Record("capsule-result", (Field("action", TEXT), Field("data", OptionOf(TEXT))))
EXPORTS = {
    HOOK: Function(HOOK, (Field("action", TEXT), Field("payload", ListOf(Primitive("u8")))), CAPSULE_RESULT),
    RUN: Function(RUN, (), None),
    "astrid-install": Function("astrid-install", (), None),
    "astrid-upgrade": Function("astrid-upgrade", (), None),
}
PAGE_BYTES = 1 << 16
WAITING = 32  # threads that wait for modules to be compiled; as many are compiled at once as there are cores
MANIFEST = "Capsule.toml"
# Which of the operator's ceilings each of a manifest's limits has.
CEILINGS = {"memory_bytes": "instance_memory", "timeout_secs": "call_secs", "concurrency": "concurrency"}


class Loader:
    """Turns a folder into something that can be called.

    Args:
        engine: compiles.
        linker: links to the host's functions.
        bus: where the capsule publishes.
        dispatcher: knows whether handlers have room.
        rules: the contract of each topic.
        instances: the host's count of instances.
        refused: hears of each publish that is refused to a guest.
        known: hears of each capsule's manifest before any of its guests runs.
        redacted: a text without the secrets in it, for what the log says of refusals.
        ceilings: of the host, above which no manifest's limits count.
    """

    def __init__(
        self,
        engine: Engine,
        linker: Linker,
        bus: Bus,
        dispatcher: Dispatcher,
        rules: Rules,
        instances: Instances,
        refused: Callable[[Call, str, str, str], None] = lambda *_: None,
        known: Callable[[str, Manifest], None] = lambda *_: None,
        redacted: Callable[[str], str] = str,
        ceilings: HostLimits | None = None,
    ) -> None:
        linker.refused = Denials(redacted).note
        self._engine = engine
        self._linker = linker
        self._bus = bus
        self._dispatcher = dispatcher
        self._rules = rules
        self._instances = instances
        self._refused = refused
        self._known = known
        self._ceilings = ceilings or HostLimits()
        self._compiling = trio.CapacityLimiter(WAITING)

    async def build(self, capsule: Capsule) -> ExportKind:
        """Read, check, compile and link its module; says what its `run` is.

        Raises:
            LoadError: its file cannot be read, is not the one it was installed with, or is not a capsule.

        A cancelled build leaves the capsule as it was.
        """
        manifest = capsule.manifest
        limits = capped(manifest, capsule.folder, self._ceilings)
        capsule.limited_by(limits)
        self._known(capsule.id, manifest)
        path = module_file(capsule.folder, manifest)
        files, capsule.files = capsule.files, None  # the bytes that were consented to, where there was a question
        try:
            read = await trio.to_thread.run_sync(self._read, capsule, path, files, abandon_on_cancel=True)
            capsule.wasm_hash = read.digest
            capsule.source_id = source_id(capsule.id, capsule.wasm_hash)
            module = read.module or await self._compile(capsule.id, read.source)
        except ModuleRefused as error:
            raise LoadError(f"{path}: {error}") from None
        linked = self._linker.prelink(module, EXPORTS)
        try:
            _check_exports(capsule.id, module, linked)
            _check_memory(capsule.id, module, limits.memory_bytes, self._ceilings)
            run = read.kinds[RUN] if RUN in linked.entries else ExportKind.STUB
        except BaseException:
            linked.close()
            raise
        publisher = Publisher(
            capsule.id, capsule.source_id, manifest, self._bus, self._rules, self._dispatcher, self._refused
        )
        pool = Pool(linked, limits.memory_bytes, self._instances)
        capsule.built(linked, pool, publisher)
        return run

    def _read(self, capsule: Capsule, path: Path, files: Files | None) -> _Read:
        """All that a file costs, but for compiling. On a thread, which may be abandoned: nothing is changed."""
        if files is None:
            wasm, meta = read_module(path), read_meta(capsule.folder)
        else:
            wasm = files.module
            meta = None if files.meta is None else meta_of(files.meta, capsule.folder / META)
        digest = blake3(wasm).hexdigest()
        _check_meta(capsule.id, meta, digest)
        source = self._engine.source(wasm)
        return _Read(digest, source, self._engine.cached(capsule.id, source), export_kinds(source.core))

    async def _compile(self, name: str, source: Source) -> Module:
        """Have it compiled. Cancelled, the process that does it is ended at once."""
        compilation = self._engine.compilation(name, source)
        try:
            return await trio.to_thread.run_sync(
                self._engine.compiled_by,
                compilation,
                name,
                source,
                abandon_on_cancel=True,
                limiter=self._compiling,
            )
        except trio.Cancelled:
            compilation.end()
            raise


class _Read(NamedTuple):
    """What reading a module's file gave; `module` when it was compiled before."""

    digest: str
    source: Source
    module: Module | None
    kinds: dict[str, ExportKind]


def _check_meta(name: str, meta: Meta | None, digest: str) -> None:
    if meta is None:
        return
    if not meta.wasm_hash:
        log.warning("%s: its meta.json has no wasm_hash, so nothing says that its module is the right one", name)
    elif meta.wasm_hash.lower() != digest:
        raise LoadError(
            f"{name}: its module is not the one that was installed: meta.json says BLAKE3 {meta.wasm_hash}, "
            f"the file has {digest}; install it again"
        )


def _check_exports(name: str, module: Module, linked: Prelinked) -> None:
    if HOOK in linked.entries and "cabi_realloc" not in module.exports:
        raise ModuleRefused(f"{name} exports {HOOK} but no cabi_realloc, so nothing can be passed to it")
    if HOOK not in linked.entries and RUN not in linked.entries:
        raise ModuleRefused(f"{name} exports neither {HOOK} nor {RUN}: it is not a capsule")


def capped(manifest: Manifest, folder: Path, ceilings: HostLimits) -> Limits:
    """A manifest's `[limits]`, none of them above the operator's; each that was is warned of."""
    limits = manifest.limits
    changed: dict[str, Any] = {}
    for field, ceiling in CEILINGS.items():
        most, wanted = getattr(ceilings, ceiling), getattr(limits, field)
        if wanted > most:
            changed[field] = most
            at = f"{folder / MANIFEST}:{manifest.line_of('limits', field)}"
            log.warning(
                "%s: %s = %s is more than this host allows: %s holds ([host] %s in host.toml)",
                at,
                field,
                wanted,
                most,
                ceiling,
            )
    return msgspec.structs.replace(limits, **changed) if changed else limits


def _check_memory(name: str, module: Module, memory_bytes: int, ceilings: HostLimits) -> None:
    """An instance that may not have the memory it begins with would trap at each call."""
    pages = module.exports["memory"].pages
    needed = pages[0] * PAGE_BYTES if pages is not None else 0
    if needed <= memory_bytes:
        return
    mend = f"write [limits] memory_bytes = {needed} or more in its Capsule.toml"
    if needed > ceilings.instance_memory:
        mend = f"raise instance_memory in the [host] table of host.toml to {needed} or more"
    raise LoadError(f"{name} begins with {needed} bytes of memory and may have {memory_bytes}: {mend}")


def handlers_of(capsule: Capsule, active: Callable[[str], bool]) -> list[Handler]:
    """Its `[subscribe]` rows that name a handler; those that are not active are noted on the capsule."""
    found = []
    for row in capsule.manifest.handlers:
        if not active(row.pattern):
            capsule.inactive.append(row.pattern)
            continue
        assert row.handler is not None, "a row without a handler has none"
        found.append(
            Handler(
                capsule,
                row.pattern,
                row.handler,
                row.priority,
                goes_on=row.on_error == "continue",
                reply=row.reply,
                guard=row.guard,
                excepted=row.excepted,
            )
        )
    return found
