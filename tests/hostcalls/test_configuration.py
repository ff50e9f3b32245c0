"""What `get-config` answers from: the run's overlay, then what is stored, then the manifest; secrets apart from the rest."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from astrid_host.errors import HostError, StoreError
from astrid_host.hostcalls.configuration import FOLLOW_S, Configuration
from astrid_host.hostcalls.sys import Sys
from astrid_host.manifest import EnvField, Manifest, Package
from astrid_host.stores import Stores
from astrid_host.stores.secrets import SecretStore

ENV = {
    "base_url": EnvField(default="https://default", has_default=True),
    "model": EnvField(),
    "api_key": EnvField(type="secret"),
}


def no_keyring() -> Any:
    raise StoreError("there is none")


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    with closing(Stores(tmp_path)) as stores:
        stores.secrets = SecretStore(tmp_path, no_keyring)
        yield stores


def configuration(stores: Stores, overlay: Any = None) -> Configuration:
    return Configuration(stores.settings, stores.secrets, overlay)


def call(principal: str = "alice", capsule: str = "x") -> Any:
    manifest = Manifest(Package(capsule, "1.0.0"), env=ENV)
    return SimpleNamespace(
        principal=principal,
        capsule=SimpleNamespace(id=capsule, storage_id=capsule, overlaid=True, manifest=manifest),
        message=None,
    )


def get(configuration: Configuration, key: str, principal: str = "alice", capsule: str = "x") -> str | None:
    nothing: Any = None
    return Sys(nothing, configuration).get_config(call(principal, capsule), key)


def test_each_source_is_asked_in_its_order(stores: Stores) -> None:
    assert get(configuration(stores), "base_url") == "https://default"
    stores.settings.set("", "x", "base_url", "of all")
    assert get(configuration(stores), "base_url") == "of all"
    stores.settings.set("alice", "x", "base_url", "of alice")
    assert get(configuration(stores), "base_url") == "of alice"
    assert get(configuration(stores), "base_url", "bob") == "of all"
    given = configuration(stores, {"x": {"base_url": "of this run"}})
    assert get(given, "base_url") == "of this run"
    assert get(given, "base_url", capsule="y") == "https://default"
    given.tell("x", "base_url", "of the host")
    assert get(given, "base_url") == "of the host"
    given.tell("x", "base_url", None)
    assert get(given, "base_url") == "of this run"


@pytest.mark.parametrize(
    ("key", "value"),
    [("base_url", "https://default"), ("model", ""), ("api_key", None), ("undeclared", None), ("prev_version", None)],
)
def test_what_nobody_set_is_what_the_manifest_says(stores: Stores, key: str, value: str | None) -> None:
    assert get(configuration(stores), key) == value


def test_a_secret_is_the_principals_or_else_everybodys(stores: Stores) -> None:
    stores.secrets.set("", "x", "api_key", "of all")
    stores.secrets.set("alice", "x", "api_key", "of alice")
    found = configuration(stores)
    assert (get(found, "api_key"), get(found, "api_key", "bob")) == ("of alice", "of all")
    assert get(found, "api_key", capsule="y") is None


def test_a_key_is_read_only_from_where_its_type_is_kept(stores: Stores) -> None:
    stores.settings.set("", "x", "api_key", "plain")
    stores.secrets.set("", "x", "model", "hidden")
    stores.settings.set("", "x", "undeclared", "plain")
    stores.secrets.set("alice", "x", "token", "hidden")
    found = configuration(stores)
    assert get(found, "api_key") is None
    assert get(found, "model") == ""
    assert get(found, "undeclared") == "plain"
    assert get(found, "token") == "hidden"


def test_what_is_given_for_a_run_may_be_any_json_and_secret(stores: Stores) -> None:
    found = configuration(stores, {"x": {"api_key": "s3cret", "model": ["ü", 1], "undeclared": None, "base_url": ""}})
    assert get(found, "api_key") == "s3cret"
    assert get(found, "model") == '["ü", 1]'
    assert get(found, "undeclared") == "null"
    assert get(found, "base_url") == ""


@pytest.mark.parametrize(
    ("overlay", "said"),
    [
        ({"x": {"ASTRID_SOCKET_PATH": "/tmp/s"}}, r"x\.ASTRID_SOCKET_PATH is the host's to say"),
        ({"x": {"prev_version": "1"}}, r"x\.prev_version is the host's to say"),
        ({"x": {"k": {1, 2}}}, r"x\.k is a text or a JSON value"),
    ],
)
def test_what_cannot_be_given_for_a_run_is_refused_by_name(stores: Stores, overlay: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        configuration(stores, overlay)


def test_what_only_the_host_knows_is_told_to_one_capsule_and_cannot_be_stored(stores: Stores) -> None:
    stores.settings.set("", "x", "prev_version", "forged")
    stores.settings.set("", "x", "ASTRID_SOCKET_PATH", "/tmp/forged")
    found = configuration(stores)
    assert get(found, "prev_version") is None
    assert get(found, "ASTRID_SOCKET_PATH") is None
    found.tell("x", "prev_version", "0.9.0")
    found.tell("x", "ASTRID_SOCKET_PATH", "/run/x.sock")
    assert get(found, "prev_version", "bob") == "0.9.0"
    assert get(found, "ASTRID_SOCKET_PATH") == "/run/x.sock"
    assert get(found, "prev_version", capsule="y") is None


def test_no_key_of_a_guest_configures_it(stores: Stores) -> None:
    stores.kv.set("alice:capsule:x", "base_url", b"http://evil")
    assert get(configuration(stores), "base_url") == "https://default"


def test_reading_opens_no_file_and_asks_no_database(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    stores.settings.set("", "x", "base_url", "stored")
    stores.secrets.set("", "x", "api_key", "s3cret")
    found = configuration(stores)
    found.load()

    def used(*_given: Any, **_named: Any) -> Any:
        raise AssertionError("something was opened")

    monkeypatch.setattr(os, "open", used)
    monkeypatch.setattr(stores.settings, "all", used)
    monkeypatch.setattr(stores.settings, "version", used)
    for key, value in (("base_url", "stored"), ("api_key", "s3cret"), ("model", ""), ("undeclared", None)):
        assert get(found, key) == value


def test_what_cannot_be_read_is_unknown_to_the_guest(stores: Stores) -> None:
    stores.close()
    with pytest.raises(HostError) as caught:
        get(configuration(stores), "base_url")
    assert (caught.value.case, caught.value.payload) == ("unknown", "the configuration cannot be read")


def test_a_secret_of_this_run_is_taken_out_of_texts_and_other_values_are_not(stores: Stores) -> None:
    found = configuration(stores, {"x": {"api_key": "run-only-secret", "model": "the-large-model"}})
    assert get(found, "api_key") == "run-only-secret"
    assert get(found, "model") == "the-large-model"
    assert stores.secrets.redacted("run-only-secret of the-large-model") == "*** of the-large-model"


def test_what_another_process_sets_is_seen_within_a_second(stores: Stores, tmp_path: Path) -> None:
    found = configuration(stores)
    found.load()

    async def follow() -> float:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(found.follow)
            with closing(Stores(tmp_path)) as other:
                other.settings.set("", "x", "base_url", "new")
            SecretStore(tmp_path, no_keyring).set("", "x", "api_key", "s3cret")
            assert get(found, "base_url") == "https://default"
            begun = trio.current_time()
            while get(found, "base_url") != "new" or get(found, "api_key") != "s3cret":
                await trio.sleep(0.1)
            nursery.cancel_scope.cancel()
            return trio.current_time() - begun

    clock = trio.testing.MockClock(rate=10, autojump_threshold=0.001)
    assert trio.run(follow, clock=clock) < FOLLOW_S * 3


def test_what_can_no_longer_be_read_stays_as_it_was(
    stores: Stores, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stores.secrets.set("", "x", "api_key", "s3cret")
    found = configuration(stores)
    found.load()
    (tmp_path / "secrets.json").write_text("{")

    async def follow() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(found.follow)
            with trio.fail_after(1000 * FOLLOW_S):
                while "damaged" not in caplog.text:
                    await trio.sleep(FOLLOW_S)
            await trio.sleep(5 * FOLLOW_S)
            nursery.cancel_scope.cancel()

    trio.run(follow, clock=trio.testing.MockClock(rate=10, autojump_threshold=0.001))
    assert get(found, "api_key") == "s3cret"
    assert caplog.text.count("damaged") == 1, "it is told once, not every second"
