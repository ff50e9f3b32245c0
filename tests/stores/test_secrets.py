"""Secrets: in the keyring where one works, else in a file of mode 0600; each for one principal, capsule and key."""

from __future__ import annotations

import fcntl
import json
import os
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import keyring.backend
import keyring.backends.fail
import keyring.backends.null
import pytest

from astrid_host.errors import StoreError
from astrid_host.stores import keyrings, secrets
from astrid_host.stores.keyrings import OsKeyring
from astrid_host.stores.secrets import FILE, LOCK, SecretStore


class InMemory:
    """A keyring, counted."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], str] = {}
        self.asked = 0
        self.broken = False

    def get(self, service: str, account: str) -> str | None:
        self._count()
        return self.kept.get((service, account))

    def set(self, service: str, account: str, value: str) -> None:
        self._count()
        self.kept[service, account] = value

    def delete(self, service: str, account: str) -> None:
        self._count()
        del self.kept[service, account]

    def _count(self) -> None:
        self.asked += 1
        if self.broken:
            raise StoreError("the keyring is locked")


def no_keyring() -> InMemory:
    raise StoreError("there is none")


@pytest.fixture
def vault() -> InMemory:
    return InMemory()


@pytest.fixture
def store(tmp_path: Path) -> SecretStore:
    return SecretStore(tmp_path, no_keyring)


def test_without_a_keyring_a_secret_is_in_a_file_of_this_user_alone(tmp_path: Path, store: SecretStore) -> None:
    assert store.set("alice", "x", "api_key", "s3cret") == "file"
    path = tmp_path / FILE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert json.loads(path.read_text())["secrets"] == [
        {"principal": "alice", "capsule": "x", "key": "api_key", "value": "s3cret"}
    ]
    assert SecretStore(tmp_path, no_keyring).get("alice", "x", "api_key") == "s3cret"


def test_with_a_keyring_the_file_has_its_name_only(tmp_path: Path, vault: InMemory) -> None:
    store = SecretStore(tmp_path, lambda: vault)
    assert store.set("alice", "x", "api_key", "s3cret-value") == "keyring"
    assert "s3cret" not in (tmp_path / FILE).read_text()
    assert list(vault.kept.values()) == ["s3cret-value"]
    assert SecretStore(tmp_path, lambda: vault).get("alice", "x", "api_key") == "s3cret-value"


def test_a_state_folder_does_not_see_the_secrets_of_another(tmp_path: Path, vault: InMemory) -> None:
    for name in ("one", "two"):
        SecretStore(tmp_path / name, lambda: vault).set("", "x", "k", f"of {name}")
    assert SecretStore(tmp_path / "one", lambda: vault).get("", "x", "k") == "of one"
    assert len(vault.kept) == 2


def test_a_keyring_that_fails_is_done_without(tmp_path: Path, vault: InMemory) -> None:
    vault.broken = True
    store = SecretStore(tmp_path, lambda: vault)
    assert store.set("alice", "x", "k", "value") == "file"
    assert store.get("alice", "x", "k") == "value"


def test_a_secret_that_the_keyring_does_not_give_counts_as_not_set(
    tmp_path: Path, vault: InMemory, caplog: pytest.LogCaptureFixture
) -> None:
    SecretStore(tmp_path, lambda: vault).set("alice", "x", "k", "value")
    vault.broken = True
    store = SecretStore(tmp_path, lambda: vault)
    assert store.get("alice", "x", "k") is None
    assert "locked" in caplog.text
    assert [secret.place for secret in store.all()] == ["keyring"]


def test_a_secret_moves_out_of_a_keyring_that_is_gone(tmp_path: Path, vault: InMemory) -> None:
    SecretStore(tmp_path, lambda: vault).set("alice", "x", "k", "old")
    later = SecretStore(tmp_path, no_keyring)
    assert later.set("alice", "x", "k", "new") == "file"
    assert SecretStore(tmp_path, no_keyring).get("alice", "x", "k") == "new"


def test_reading_opens_nothing_and_asks_nobody(
    tmp_path: Path, vault: InMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SecretStore(tmp_path, lambda: vault)
    store.set("alice", "x", "k", "value")
    asked = vault.asked

    def opened(*_given: Any, **_named: Any) -> int:
        raise AssertionError("a file was opened")

    monkeypatch.setattr(os, "open", opened)
    assert store.get("alice", "x", "k") == "value"
    assert store.get("bob", "x", "k") is None
    assert not store.stale()
    assert vault.asked == asked


@pytest.mark.parametrize("other", [("bob", "x", "k"), ("alice", "y", "k"), ("alice", "x", "j"), ("", "x", "k")])
def test_a_secret_is_for_one_principal_capsule_and_key(store: SecretStore, other: tuple[str, str, str]) -> None:
    store.set("alice", "x", "k", "mine")
    assert store.get(*other) is None
    assert not store.has(*other)
    assert not store.unset(*other)
    store.set(*other, "theirs")
    assert store.get("alice", "x", "k") == "mine"
    assert store.unset(*other)
    assert store.has("alice", "x", "k")


def test_names_with_separators_are_told_apart(tmp_path: Path, vault: InMemory) -> None:
    store = SecretStore(tmp_path, lambda: vault)
    store.set("a/b", "c", "d", "one")
    store.set("a", "b/c", "d", "two")
    store.load()
    assert (store.get("a/b", "c", "d"), store.get("a", "b/c", "d")) == ("one", "two")


@pytest.mark.parametrize("in_keyring", [True, False])
def test_what_was_unset_is_gone_everywhere(tmp_path: Path, vault: InMemory, in_keyring: bool) -> None:
    store = SecretStore(tmp_path, (lambda: vault) if in_keyring else no_keyring)
    store.set("alice", "x", "k", "s3cret")
    assert store.unset("alice", "x", "k")
    assert not store.unset("alice", "x", "k")
    assert store.get("alice", "x", "k") is None
    assert store.all() == []
    assert vault.kept == {}
    assert "s3cret" not in (tmp_path / FILE).read_text()


def test_what_another_process_set_is_seen_after_it_is_loaded(tmp_path: Path, store: SecretStore) -> None:
    store.load()
    assert not store.stale()
    SecretStore(tmp_path, no_keyring).set("alice", "x", "k", "new")
    assert store.stale()
    store.load()
    assert not store.stale()
    assert store.get("alice", "x", "k") == "new"


def test_two_processes_do_not_undo_each_others_secrets(tmp_path: Path, store: SecretStore) -> None:
    store.set("", "x", "one", "1")
    SecretStore(tmp_path, no_keyring).set("", "x", "two", "2")
    store.set("", "x", "three", "3")
    assert [secret.key for secret in SecretStore(tmp_path, no_keyring).all()] == ["one", "three", "two"]
    assert store.get("", "x", "two") == "2"


def test_many_threads_set_secrets(tmp_path: Path, store: SecretStore) -> None:
    def work(of: int) -> None:
        for number in range(5):
            store.set("", "x", f"{of}-{number}", "v")

    threads = [threading.Thread(target=work, args=(of,)) for of in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(SecretStore(tmp_path, no_keyring).all()) == 20


def test_a_host_in_memory_touches_neither_disk_nor_keyring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = SecretStore(None, no_keyring)
    assert store.set("alice", "x", "k", "value") == "memory"
    assert store.get("alice", "x", "k") == "value"
    assert not store.stale()
    assert store.unset("alice", "x", "k")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b'{"format":1}',
        b'{"format":1,"secrets":[{"principal":1}]}',
        b'{"format":9,"secrets":[]}',
        b"\xff",
    ],
)
def test_a_damaged_file_is_told_and_left_as_it_is(tmp_path: Path, store: SecretStore, content: bytes) -> None:
    path = tmp_path / FILE
    path.write_bytes(content)
    path.chmod(0o600)
    for use in (lambda: store.get("a", "x", "k"), lambda: store.set("a", "x", "k", "v"), store.all, store.load):
        with pytest.raises(StoreError, match=r"damaged|format 9"):
            use()
    assert path.read_bytes() == content


def test_a_file_that_others_could_read_is_closed_to_them(
    tmp_path: Path, store: SecretStore, caplog: pytest.LogCaptureFixture
) -> None:
    store.set("alice", "x", "k", "value")
    (tmp_path / FILE).chmod(0o644)
    again = SecretStore(tmp_path, no_keyring)
    assert again.get("alice", "x", "k") == "value"
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600
    assert "could be read by others" in caplog.text


def test_a_link_in_place_of_the_file_is_not_followed(tmp_path: Path, store: SecretStore) -> None:
    (tmp_path / "elsewhere").write_text('{"format":1,"secrets":[]}')
    (tmp_path / FILE).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match="cannot be kept"):
        store.set("alice", "x", "k", "value")
    assert "value" not in (tmp_path / "elsewhere").read_text()


def test_secrets_are_taken_out_of_texts(store: SecretStore) -> None:
    assert store.redacted("nothing is known") == "nothing is known"
    store.set("alice", "x", "k", "sk-123/456 789")
    store.set("alice", "x", "j", "short")
    assert store.redacted("GET /?key=sk-123%2F456%20789&a=sk-123/456 789&b=short") == "GET /?key=***&a=***&b=short"
    store.unset("alice", "x", "k")
    assert store.redacted("sk-123/456 789") == "sk-123/456 789"


def test_a_lock_that_is_never_given_back_is_named(
    tmp_path: Path, store: SecretStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secrets, "LOCKED_S", 0.02)
    with open(tmp_path / LOCK, "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(StoreError, match="another process has kept"):
            store.set("alice", "x", "k", "value")
    assert store.set("alice", "x", "k", "value") == "file"


class Library(ModuleType):
    """The module `keyring`, as far as it is used."""

    def __init__(self, answer: Any) -> None:
        super().__init__("keyring")
        self.answer = answer

    def get_keyring(self) -> Any:
        return type("Backend", (), {"name": "test", "priority": 1})()

    def get_password(self, _service: str, _account: str) -> Any:
        return self.answer()

    def set_password(self, _service: str, _account: str, _value: str) -> None:
        """Keeps nothing."""

    def delete_password(self, _service: str, _account: str) -> None:
        raise KeyError("no such password")


def test_what_a_backend_raises_is_an_error_of_the_store() -> None:
    def fail() -> str:
        raise RuntimeError("dbus went away")

    session = OsKeyring(Library(fail))
    with pytest.raises(StoreError, match="the keyring test failed: dbus went away"):
        session.get("s", "a")
    with pytest.raises(StoreError, match="no such password"):
        session.delete("s", "a")


def test_a_backend_that_keeps_nothing_is_noticed() -> None:
    with pytest.raises(StoreError, match="did not keep"):
        OsKeyring(Library(lambda: None)).set("s", "a", "value")


def test_a_keyring_that_waits_for_somebody_to_unlock_it_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyrings, "ANSWER_S", 0.01)
    unlocked = threading.Event()
    session = OsKeyring(Library(lambda: unlocked.wait(30)))
    with pytest.raises(StoreError, match=r"did not answer within 0\.01 s: is it locked"):
        session.get("s", "a")
    unlocked.set()


def test_without_the_library_it_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "keyring", None)
    with pytest.raises(StoreError, match=r"pip install 'astrid-host\[keyring\]'"):
        keyrings.os_keyring()


class Backend(keyring.backend.KeyringBackend):
    """A keyring of the library's kind, in memory."""

    priority = 1.0

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.kept: dict[tuple[str, str], str] = {}

    def get_password(self, service: str, username: str) -> str | None:
        return self.kept.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self.kept[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        del self.kept[service, username]


@pytest.fixture
def of_session() -> Iterator[Callable[[keyring.backend.KeyringBackend], None]]:
    """Makes a backend that of the session; afterwards it is the one that it was."""
    before = keyring.get_keyring()
    yield keyring.set_keyring
    keyring.set_keyring(before)


def test_the_keyring_of_the_session_keeps_secrets(
    tmp_path: Path, of_session: Callable[[keyring.backend.KeyringBackend], None]
) -> None:
    backend = Backend()
    of_session(backend)
    assert SecretStore(tmp_path).set("alice", "x", "k", "value") == "keyring"
    assert list(backend.kept.items()) == [((f"astrid-host:{tmp_path}", '["alice","x","k"]'), "value")]
    later = SecretStore(tmp_path)
    assert later.get("alice", "x", "k") == "value"
    assert later.unset("alice", "x", "k")
    assert backend.kept == {}


@pytest.mark.parametrize("backend", [keyring.backends.fail.Keyring, keyring.backends.null.Keyring])
def test_a_session_without_a_keyring_keeps_secrets_in_the_file(
    tmp_path: Path,
    of_session: Callable[[keyring.backend.KeyringBackend], None],
    backend: type[keyring.backend.KeyringBackend],
) -> None:
    of_session(backend())
    assert SecretStore(tmp_path).set("alice", "x", "k", "value") == "file"
