"""What `get-config` answers from: what was set for a capsule, in memory, followed as it changes on disk.

A key's value is the first that there is: what the host itself says (where a socket is, which version was installed before),
what was given for this run, what is stored for the call's principal, what is stored for everybody. Keys that the manifest
types as secret are stored only as secrets, and others only as settings; a key that it does not declare may be either. What was
given for this run to a key that the manifest types as secret is taken out of texts as stored secrets are.
What was given for this run to a bundled capsule's name, no other capsule of that name gets, unless it is trusted; what is stored
belongs to a name and an origin. (Astrid, env resolution.)
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import trio

from astrid_host.errors import StoreError
from astrid_host.stores.settings import EVERYBODY, RESERVED

if TYPE_CHECKING:
    from astrid_host.hostcalls.interface import Running
    from astrid_host.manifest import Manifest
    from astrid_host.stores.settings import Setting

log = logging.getLogger(__name__)

FOLLOW_S = 1.0
SECRET = "secret"

Overlay: TypeAlias = Mapping[str, Mapping[str, Any]]


class Stored(Protocol):
    """Where plain values are kept. Methods raise StoreError."""

    def all(self) -> list[Setting]: ...
    def version(self) -> int:
        """Another number after another process has written."""
        ...


class Secrets(Protocol):
    """Where secrets are kept. Methods raise StoreError."""

    def get(self, principal: str, capsule: str, key: str) -> str | None: ...
    def hide(self, value: str) -> None:
        """Have a secret that is not stored taken out of texts as well."""
        ...

    def load(self) -> None: ...
    def stale(self) -> bool: ...


class Configuration:
    """The configuration of every capsule of one host.

    Args:
        stored: plain values.
        secrets: and the others.
        overlay: what was given for this run, by capsule and key. A value that is no text counts as its JSON, as with
            the manifest's defaults.

    Raises:
        ValueError: the overlay sets what only the host says, or a value that is not JSON.
    """

    def __init__(self, stored: Stored, secrets: Secrets, overlay: Overlay | None = None) -> None:
        self._stored = stored
        self._secrets = secrets
        self._overlay = {(name, key): text for name, row in (overlay or {}).items() for key, text in _texts(name, row)}
        self._said: dict[tuple[str, str], str] = {}
        self._sayers: dict[str, Callable[[Running], str | None]] = {}
        self._values: dict[tuple[str, str, str], str] = {}
        self._version: int | None = None

    def load(self) -> None:
        """Read everything that is stored. May wait for a keyring: call it on a thread that may.

        Raises:
            StoreError: it cannot be read.
        """
        version = self._stored.version()  # first: what is written meanwhile is read again
        self._values = {(row.principal, row.capsule, row.key): row.value for row in self._stored.all()}
        self._version = version
        if self._secrets.stale():
            self._secrets.load()

    def hide_given(self, capsule: str, manifest: Manifest) -> None:
        """Have what was given for this run to a capsule's secret keys taken out of texts, before any guest has asked for it."""
        for key, row in manifest.env.items():
            given = self._overlay.get((capsule, key))
            if given is not None and row.type == SECRET:
                self._secrets.hide(given)

    async def follow(self) -> None:
        """Once a second, read again what another process has changed; ends only when it is cancelled. What cannot be read
        is a log line, and what was read before stays."""
        told = ""
        while True:
            await trio.sleep(FOLLOW_S)
            try:
                if self._stored.version() != self._version or self._secrets.stale():
                    # It only reads, within bounds of its own, so it may outlive the host's end.
                    await trio.to_thread.run_sync(self.load, abandon_on_cancel=True)
                told = ""
            except StoreError as error:
                if str(error) != told:
                    log.error("the configuration stays as it was: %s", error)
                told = str(error)

    def tell(self, capsule: str, key: str, value: str | None) -> None:
        """Say what only the host knows: before everything else, to every principal; None takes it back.

        Args:
            capsule: who is told.
            key: such as `prev_version` or `ASTRID_SOCKET_PATH`.
            value: what `get-config` answers.
        """
        if value is None:
            self._said.pop((capsule, key), None)
        else:
            self._said[capsule, key] = value

    def answer(self, key: str, sayer: Callable[[Running], str | None]) -> None:
        """Let `sayer` say, for each call that asks, what only the host knows."""
        self._sayers[key] = sayer

    def setting(self, call: Running, key: str) -> str | None:
        """The value of a key for the call's capsule and principal; None when nobody set it.

        Raises:
            StoreError: nothing was loaded yet, and it cannot be.
        """
        capsule = call.capsule.id
        sayer = self._sayers.get(key)
        said = self._said.get((capsule, key)) if sayer is None else sayer(call)
        if said is not None or key in RESERVED:
            return said
        row = call.capsule.manifest.env.get(key)
        given = self._overlay.get((capsule, key)) if call.capsule.overlaid else None
        if given is not None:
            if row is not None and row.type == SECRET:
                self._secrets.hide(given)  # before a guest knows it
            return given
        if self._version is None:
            self.load()
        principal, capsule = call.principal, call.capsule.storage_id
        if row is None or row.type != SECRET:
            values = self._values
            value = values.get((principal, capsule, key))
            if value is None:
                value = values.get((EVERYBODY, capsule, key))
            if value is not None or row is not None:
                return value
        value = self._secrets.get(principal, capsule, key)
        return value if value is not None else self._secrets.get(EVERYBODY, capsule, key)


def _texts(capsule: str, row: Mapping[str, Any]) -> list[tuple[str, str]]:
    found = []
    for key, value in row.items():
        if key in RESERVED:
            raise ValueError(f"config: {capsule}.{key} is the host's to say and cannot be set")
        try:
            found.append((key, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)))
        except (TypeError, ValueError) as error:
            raise ValueError(f"config: {capsule}.{key} is a text or a JSON value; given {value!r} ({error})") from None
    return found
