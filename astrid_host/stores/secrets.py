"""Secrets of capsules: in the operating system's keyring where one works, else in a file of mode 0600.

The file `secrets.json` in the state folder has the names of all secrets, and the values of those that no keyring keeps. It
is replaced as a whole, under a lock between processes, and never written when it could not be read. Values that were
loaded stay in memory, so reading one opens nothing and asks nobody. No guest's keys and values lie beside them.

A secret is for one principal, or for everybody, whose name here is empty.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from astrid_host.errors import StoreError
from astrid_host.stores.keyrings import Keyring, os_keyring
from astrid_host.stores.redaction import REDACTED, Redactor

log = logging.getLogger(__name__)

FILE = "secrets.json"
LOCK = "secrets.lock"
FORMAT = 1
LOCKED_S = 60.0  # another process may hold the lock for as long as it asks a keyring

Name: TypeAlias = tuple[str, str, str]  # principal, capsule, key
Place: TypeAlias = Literal["keyring", "file", "memory"]
__all__ = ["REDACTED", "Secret", "SecretStore"]
Stamp: TypeAlias = tuple[int, int, int] | None


class Secret(NamedTuple):
    """That there is a secret, and where."""

    principal: str
    capsule: str
    key: str
    place: Place


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    principal: str
    capsule: str
    key: str
    value: str | None = None  # None: the keyring has it


class _File(msgspec.Struct):
    format: int
    secrets: list[_Entry]


class SecretStore:
    """The secrets of one state folder. Any thread may use it.

    Args:
        folder: the state folder; None keeps secrets in memory, and in no keyring.
        keyring: finds the keyring when one is needed; raises StoreError when there is none.

    Attributes:
        redactor: takes them out of texts; from any thread, also before they are loaded.

    Every method raises StoreError when the file is damaged, or cannot be read or written.
    """

    def __init__(self, folder: Path | None, keyring: Callable[[], Keyring] = os_keyring) -> None:
        self._folder = folder
        self._keyring = keyring
        self._service = f"astrid-host:{folder.resolve()}" if folder is not None else ""
        self._lock = threading.RLock()
        self._loaded = folder is None
        self._stamp: Stamp = None
        self._places: dict[Name, Place] = {}
        self._values: dict[Name, str] = {}
        self._given: set[str] = set()
        self.redactor = Redactor()

    def load(self) -> None:
        """Read all secrets anew. May wait for the keyring, 10 s for each that it keeps; one that it does not give counts
        as not set, with a log line."""
        with self._lock:
            if self._folder is not None:
                self._stamp = self._stamp_now()
                self._take(self._read())

    def stale(self) -> bool:
        """Whether the file is another one than was loaded. Opens nothing."""
        return not self._loaded or (self._folder is not None and self._stamp_now() != self._stamp)

    def get(self, principal: str, capsule: str, key: str) -> str | None:
        """A secret's value, None for one that is not set."""
        if not self._loaded:
            self.load()
        return self._values.get((principal, capsule, key))

    def has(self, principal: str, capsule: str, key: str) -> bool:
        """Whether a secret is set."""
        return self.get(principal, capsule, key) is not None

    def all(self) -> list[Secret]:
        """Every secret's name and place, sorted by capsule, key and principal."""
        if not self._loaded:
            self.load()
        found = [Secret(*name, place) for name, place in self._places.items()]
        return sorted(found, key=lambda secret: (secret.capsule, secret.key, secret.principal))

    def set(self, principal: str, capsule: str, key: str, value: str) -> Place:
        """Keep a secret, instead of an earlier one of that name. May wait for the keyring; returns where it is kept."""
        name = (principal, capsule, key)
        if self._folder is None:
            with self._lock:
                self._keep(name, "memory", value)
            return "memory"
        with self._lock, self._alone() as file:
            entries = {(entry.principal, entry.capsule, entry.key): entry for entry in file.secrets}
            before = entries.get(name)
            in_keyring = self._put_in_keyring(name, value)
            if not in_keyring and before is not None and before.value is None:
                self._drop_from_keyring(name)
            entries[name] = _Entry(*name, None if in_keyring else value)
            self._write(list(entries.values()))
            place: Place = "keyring" if in_keyring else "file"
            self._keep(name, place, value)
        return place

    def unset(self, principal: str, capsule: str, key: str) -> bool:
        """Remove a secret; returns whether there was one."""
        name = (principal, capsule, key)
        if self._folder is None:
            with self._lock:
                return self._forget(name)
        with self._lock, self._alone() as file:
            kept = [entry for entry in file.secrets if (entry.principal, entry.capsule, entry.key) != name]
            if len(kept) == len(file.secrets):
                return False
            self._write(kept)
            if any(entry.value is None for entry in file.secrets if entry not in kept):
                self._drop_from_keyring(name)
            self._forget(name)
        return True

    def hide(self, value: str) -> None:
        """Take a secret out of texts that is kept nowhere, such as one that was given for this run only."""
        if value not in self._given:
            with self._lock:
                self._given.add(value)
                self._hide()

    def redacted(self, text: str) -> str:
        """The text with every secret in it replaced, its first 8,192 characters. See `Redactor.cut`."""
        return self.redactor.cut(text)

    def _keep(self, name: Name, place: Place, value: str) -> None:
        self._places[name] = place
        self._values[name] = value
        self._hide()

    def _forget(self, name: Name) -> bool:
        self._values.pop(name, None)
        found = self._places.pop(name, None) is not None
        self._hide()
        return found

    def _hide(self) -> None:
        self.redactor.hide((*self._values.values(), *self._given))

    def _take(self, file: _File) -> None:
        places: dict[Name, Place] = {}
        values: dict[Name, str] = {}
        keyring = self._find_keyring() if any(entry.value is None for entry in file.secrets) else None
        for entry in file.secrets:
            name = (entry.principal, entry.capsule, entry.key)
            places[name] = "file" if entry.value is not None else "keyring"
            value = entry.value if entry.value is not None else self._from_keyring(keyring, name)
            if value is not None:
                values[name] = value
        self._places, self._values, self._loaded = places, values, True
        self._hide()

    # The keyring.

    def _find_keyring(self) -> Keyring | None:
        try:
            return self._keyring()
        except StoreError as error:
            log.warning("secrets that are in a keyring cannot be read: %s", error)
            return None

    def _from_keyring(self, keyring: Keyring | None, name: Name) -> str | None:
        if keyring is None:
            return None
        try:
            value = keyring.get(self._service, _account(name))
        except StoreError as error:
            log.warning("the secret %s of %s cannot be read: %s", name[2], name[1], error)
            return None
        if value is None:
            log.warning("the secret %s of %s is no longer in the keyring: set it again", name[2], name[1])
        return value

    def _put_in_keyring(self, name: Name, value: str) -> bool:
        try:
            self._keyring().set(self._service, _account(name), value)
        except StoreError as error:
            log.info("the secret %s of %s is kept in %s: %s", name[2], name[1], FILE, error)
            return False
        return True

    def _drop_from_keyring(self, name: Name) -> None:
        try:
            self._keyring().delete(self._service, _account(name))
        except StoreError as error:
            log.warning("the secret %s of %s was left in the keyring: %s", name[2], name[1], error)

    # The file.

    @property
    def _path(self) -> Path:
        if self._folder is None:
            raise RuntimeError("secrets in memory have no file")
        return self._folder / FILE

    def _stamp_now(self) -> Stamp:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size

    @contextlib.contextmanager
    def _alone(self) -> Iterator[_File]:
        """What the file says, while no other process changes it. What it says is taken, and its stamp is new after."""
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(self._path.with_name(LOCK), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise _failed(self._path, error) from error
        try:
            self._lock_file(lock)
            file = self._read()
            if self.stale():
                self._take(file)
            yield file
            self._stamp = self._stamp_now()
        finally:
            os.close(lock)

    def _lock_file(self, lock: int) -> None:
        until = time.monotonic() + LOCKED_S
        while True:
            try:
                return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > until:
                    raise StoreError(
                        f"another process has kept {self._path} locked for {LOCKED_S:g} s: stop that process, or try again"
                    ) from None
                time.sleep(0.01)
            except OSError as error:
                raise _failed(self._path, error) from error

    def _read(self) -> _File:
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return _File(FORMAT, [])
        except OSError as error:
            raise _failed(self._path, error) from error
        with open(descriptor, "rb") as opened:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode) or found.st_uid != os.getuid():
                raise StoreError(
                    f"{self._path} is not this user's own plain file: move it away, and set its secrets again"
                )
            if found.st_mode & 0o077:
                os.fchmod(descriptor, 0o600)
                log.warning("%s could be read by others: its mode is 0600 now; change the secrets in it", self._path)
            content = opened.read()
        try:
            file = msgspec.json.decode(content, type=_File)
        except msgspec.DecodeError as error:
            raise StoreError(
                f"{self._path} is damaged ({error}): restore a copy, or move it away and set its secrets again"
            ) from None
        if file.format != FORMAT:
            raise StoreError(f"{self._path} has format {file.format}, and this astrid-host knows {FORMAT}: upgrade it")
        return file

    def _write(self, entries: list[_Entry]) -> None:
        content = msgspec.json.format(msgspec.json.encode(_File(FORMAT, entries)), indent=2)
        part = self._path.with_name(f"{FILE}.{os.getpid()}.part")
        try:
            part.unlink(missing_ok=True)
            descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with open(descriptor, "wb") as opened:
                opened.write(content)
                opened.flush()
                os.fsync(descriptor)
            part.replace(self._path)
        except OSError as error:
            with contextlib.suppress(OSError):  # what matters is what went wrong first
                part.unlink(missing_ok=True)
            raise _failed(self._path, error) from error


def _account(name: Name) -> str:
    return msgspec.json.encode(name).decode()


def _failed(path: Path, error: OSError) -> StoreError:
    return StoreError(
        f"secrets cannot be kept in {path}: {error.strerror or error}. Give a state folder of yours that can be written"
    )
