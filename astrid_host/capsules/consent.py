"""Consent: what a capsule that did not come with the host asks for is given only after the operator said so, once.

A capsule counts as the host's own when its folder is one of those that came with the host, or when its manifest and module are
an exact copy of one of these. Any other is *plain* when it asks for nothing that needs consent, and loads; else it is trusted, by
the program that opened the host, by a record of exactly its bytes, or by the answer to a question, or it is refused. Names prove
nothing: paths and bytes do. What was judged is what is loaded: the bytes go on with the verdict.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from shlex import quote
from typing import TypeAlias

import msgspec
import trio

from astrid_host.capsules.discovery import MANIFEST, find_folders
from astrid_host.capsules.files import Files, ReadManifest, read_files, read_manifest
from astrid_host.errors import LoadError
from astrid_host.gates import Ask, Contracts, asks_of
from astrid_host.manifest import Manifest
from astrid_host.stores import storage_id
from astrid_host.stores.trust import AskedFor, TrustRecord, TrustStore

SHOWN_ASKS = 8  # in one message


class TrustRequest(msgspec.Struct, frozen=True):
    """A question for consent.

    Attributes:
        name: of the capsule's package, which proves nothing.
        folder: where it lies, absolute and without links.
        asks: all that it asks for; those that are `needed` are why it is asked about.
        previous: what was consented to before, when the folder's files are others now.
        wasm_hash: of its module, BLAKE3 in hexadecimal.
    """

    name: str
    folder: Path
    asks: tuple[Ask, ...]
    previous: TrustRecord | None
    wasm_hash: str

    @property
    def added(self) -> list[Ask]:
        """What it asks for now and did not before; all of it when nothing was consented to before."""
        before = {(ask.kind, ask.tells, ask.row) for ask in self.previous.asks} if self.previous else set()
        return [ask for ask in self.asks if ask.same not in before]

    @property
    def dropped(self) -> list[AskedFor]:
        """What it asked for before and does no more."""
        now = {ask.same for ask in self.asks}
        before = self.previous.asks if self.previous else ()
        return [ask for ask in before if (ask.kind, ask.tells, ask.row) not in now]

    @property
    def change(self) -> str:
        """How it differs from what was consented to before, in words; empty the first time."""
        if self.previous is None:
            return ""
        if self.added:
            return "it changed since you trusted it, and asks for more"
        fewer = "less" if self.dropped else "the same powers"
        if self.previous.wasm_hash != self.wasm_hash:
            return f"it changed since you trusted it: {fewer}, another module"
        return f"it changed since you trusted it: {fewer}, the same module, another manifest"


TrustPolicy: TypeAlias = Callable[[TrustRequest], "bool | Awaitable[bool]"]
Trust: TypeAlias = "bool | str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | TrustPolicy"


class Verdict(msgspec.Struct, frozen=True):
    """What became of a capsule that did not come with the host.

    Attributes:
        trusted: it may have all that it asks for.
        original: it is an exact copy of a bundled one.
        asks: what it asks for.
        files: the bytes that were judged, where there was need to look at them.
        refused: the question that was not answered with yes; it does not load.
        storage_id: under which what belongs to it is kept.
    """

    trusted: bool
    asks: tuple[Ask, ...]
    storage_id: str
    original: bool = False
    files: Files | None = None
    refused: TrustRequest | None = None


class Found(msgspec.Struct, frozen=True):
    """A capsule that a host would load: where it is, what its manifest says, and under which what it keeps is filed."""

    folder: Path
    manifest: Manifest
    storage_id: str

    @property
    def is_given(self) -> bool:
        """It did not come with the host."""
        return self.storage_id != self.manifest.package.name


class Consent:
    """Judges the capsules of one host.

    Args:
        contracts: whose word counts on which topics.
        bound_once: whether a topic may be bound by one capsule only.
        bundled: the folder of the capsules that come with the host.
        trust: True for all that did not, folders that are such capsules or contain some, or who is asked.
        records: what was consented to before; None for a host that keeps nothing.
        options: of the command that records consent, such as `--state-dir /x`.
    """

    def __init__(
        self,
        contracts: Contracts,
        bound_once: Callable[[str], bool],
        bundled: Path,
        trust: Trust = False,
        records: TrustStore | None = None,
        options: str = "",
    ) -> None:
        self._contracts = contracts
        self._bound_once = bound_once
        self._bundled = bundled.resolve()
        self._all = trust is True
        self._policy: TrustPolicy | None = trust if callable(trust) else None
        self._folders = frozenset() if isinstance(trust, bool) or callable(trust) else _resolved(trust)
        self._records = records
        self._options = options

    def is_bundled(self, folder: Path) -> bool:
        """Whether a folder came with the host. It is looked at where it really is."""
        return folder.resolve().parent == self._bundled

    def is_bundled_name(self, name: str) -> bool:
        """Whether a capsule that came with the host has that name."""
        return bool(name) and "/" not in name and (self._bundled / name / MANIFEST).is_file()

    async def decide(self, read: ReadManifest, manifest: Manifest, bundled: Iterable[Manifest]) -> Verdict:
        """Judge a capsule, and ask about it where that is needed and somebody can be asked. A yes is recorded.

        Args:
            read: its manifest, which has no errors, in its real folder.
            manifest: what it says.
            bundled: the manifests of the bundled capsules that take part.

        Raises:
            LoadError: what lies in the folder cannot be read.
            StoreError: the records cannot be read or written.

        Cancelled while it asks, nothing is recorded.
        """
        asks = self.asks(manifest, bundled)
        if not asks and not self.is_bundled_name(manifest.package.name):
            return self._plain(read.folder, manifest, asks)
        verdict = await trio.to_thread.run_sync(self._judge, read, manifest, asks, abandon_on_cancel=True)
        request, files = verdict.refused, verdict.files
        if request is None or files is None or self._policy is None:
            return verdict
        answer = self._policy(request)
        if inspect.isawaitable(answer):
            answer = await answer
        if answer is not True:
            return verdict
        if self._records is not None:
            await trio.to_thread.run_sync(self.record, request, files)
        return msgspec.structs.replace(verdict, trusted=True, refused=None)

    def judge(self, read: ReadManifest, manifest: Manifest, bundled: Iterable[Manifest]) -> Verdict:
        """The same as `decide`, without asking anybody. It may wait for the disk."""
        return self._judge(read, manifest, self.asks(manifest, bundled))

    def asks(self, manifest: Manifest, bundled: Iterable[Manifest]) -> tuple[Ask, ...]:
        """All that a capsule asks for."""
        return asks_of(manifest, bundled, self._contracts, self._bound_once)

    def bundled_manifests(self) -> list[Manifest]:
        """The manifests of all capsules that come with the host."""
        found = [read_manifest(folder).manifest for folder in find_folders([self._bundled])]
        return [manifest for manifest in found if manifest is not None]

    def question(self, read: ReadManifest, manifest: Manifest, verdict: Verdict) -> tuple[TrustRequest, Files]:
        """What there is to consent to, also where the capsule would load without, and the bytes that it is about.

        Raises:
            LoadError: what lies in the folder cannot be read.
        """
        files = verdict.files or read_files(read.folder, read.text, manifest)
        if verdict.refused is not None:
            return verdict.refused, files
        name = manifest.package.name
        record = self._records.find(read.folder, name) if self._records is not None else None
        return TrustRequest(name, read.folder, verdict.asks, record, files.wasm_hash), files

    def survey(self, places: Iterable[Path]) -> dict[str, Found]:
        """The capsules that a host would load from these places, by name, without asking anybody. One that is not trusted is
        there only where no other has its name.

        Raises:
            LoadError: a place does not exist.
        """
        folders = list(dict.fromkeys(folder.resolve() for folder in find_folders(places)))
        reads = [read for folder in folders if (read := read_manifest(folder)).manifest is not None]
        own = [(read, read.manifest) for read in reads if read.manifest and self.is_bundled(read.folder)]
        bundled = [manifest for _read, manifest in own]
        found: dict[str, Found] = {}
        refused: dict[str, Found] = {}
        for read in reads:
            if read.manifest is None or self.is_bundled(read.folder):
                continue
            name = read.manifest.package.name
            try:
                verdict = self.judge(read, read.manifest, bundled)
            except LoadError:  # there is no module yet
                verdict = self._plain(read.folder, read.manifest, ())
            kept = found if verdict.refused is None else refused
            kept.setdefault(name, Found(read.folder, read.manifest, verdict.storage_id))
        for read, manifest in own:
            found.setdefault(manifest.package.name, Found(read.folder, manifest, manifest.package.name))
        return {**refused, **found}

    def record(self, request: TrustRequest, files: Files) -> None:
        """Keep the operator's consent to exactly these files. It may wait for other processes."""
        assert self._records is not None, "there is a state folder"
        asked = tuple(AskedFor(*ask.same) for ask in request.asks)
        self._records.keep(request.folder, request.name, files.digest, files.wasm_hash, asked)

    def refusal(self, request: TrustRequest) -> str:
        """Why a capsule does not load, what it asks for, and the command that allows it."""
        named = request.added or request.asks
        needed = [ask for ask in named if ask.needed] or [ask for ask in request.asks if ask.needed]
        told = "; ".join(str(ask) for ask in needed[:SHOWN_ASKS])
        more = f"; and {len(needed) - SHOWN_ASKS} things more" if len(needed) > SHOWN_ASKS else ""
        why = request.change or "it asks for what only your consent gives"
        return (
            f"{request.name} is not trusted: {why}: it {told}{more}. To look at it and allow it: {self.command(request.folder)}"
            + ("" if self._records is not None else "; this host keeps no records: open_host(trust=[its folder])")
        )

    def command(self, folder: Path) -> str:
        """The command that shows what a capsule asks for, and records consent."""
        return " ".join(filter(None, ("astrid-host trust", _quoted(folder), self._options)))

    def _judge(self, read: ReadManifest, manifest: Manifest, asks: tuple[Ask, ...]) -> Verdict:
        folder, name = read.folder, manifest.package.name
        if self.is_bundled_name(name) and (files := self._copied(read, manifest)) is not None:
            return Verdict(True, (), storage_id(name, None), original=True, files=files)
        if self._all or self._is_named(folder):
            return Verdict(True, asks, storage_id(name, folder))
        record = self._records.find(folder, name) if self._records is not None and asks else None
        if record is None and not any(ask.needed for ask in asks):
            return self._plain(folder, manifest, asks)
        files = read_files(folder, read.text, manifest)
        if record is not None and record.digest == files.digest:
            return Verdict(True, asks, storage_id(name, folder), files=files)
        request = TrustRequest(name, folder, asks, record, files.wasm_hash)
        if not any(ask.needed for ask in asks):
            return self._plain(folder, manifest, asks)
        return Verdict(False, asks, storage_id(name, folder), files=files, refused=request)

    def _plain(self, folder: Path, manifest: Manifest, asks: tuple[Ask, ...]) -> Verdict:
        return Verdict(self._all or self._is_named(folder), asks, storage_id(manifest.package.name, folder))

    def _is_named(self, folder: Path) -> bool:
        return folder in self._folders or folder.parent in self._folders

    def _copied(self, read: ReadManifest, manifest: Manifest) -> Files | None:
        """The files of a folder that has the manifest and the module of a bundled capsule, byte by byte."""
        original = read_manifest(self._bundled / manifest.package.name)
        if original.manifest is None or not original.text or original.text != read.text:
            return None
        try:
            files = read_files(read.folder, read.text, manifest)
            same = read_files(original.folder, original.text, original.manifest).module == files.module
        except LoadError:
            return None  # whoever loads it says what is wrong
        return files if same else None


def _resolved(places: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> frozenset[Path]:
    given = [places] if isinstance(places, str | os.PathLike) else places
    return frozenset(Path(place).resolve() for place in given)


def _quoted(folder: Path) -> str:
    """A path as a shell reads it, in characters that can be seen."""
    text = os.fspath(folder)
    if text.isprintable():
        return quote(text)
    shown = (
        sign if sign.isprintable() and sign not in "'\\" else "".join(f"\\x{byte:02x}" for byte in os.fsencode(sign))
        for sign in text
    )
    return f"$'{''.join(shown)}'"
