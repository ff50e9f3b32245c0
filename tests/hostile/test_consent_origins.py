"""What is stored belongs to a name and an origin: a namesake from elsewhere gets nothing of it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from guests_in_wat import RETURNED, Guest, capsule, next_of

from astrid_host import open_host
from astrid_host.stores import Stores, storage_id
from astrid_host.stores.approvals import Holder

CONFIG = '(import "astrid:sys/host@1.0.0" "get-config" (func $config (param i32 i32 i32)))'
GET = '(import "astrid:kv/host@1.0.0" "kv-get" (func $get (param i32 i32 i32)))'


def teller(place: Path, name: str, **tables: Any) -> Path:
    """A capsule that says its `key` on `told.config`, and what it keeps under `note` on `told.kv`, where there is any."""
    guest = Guest(CONFIG, GET)
    found = f"(i32.load (i32.const {RETURNED + 8})) (i32.load (i32.const {RETURNED + 12}))"
    guest.handles(
        f"""(call $config {guest.text("key")} (i32.const {RETURNED}))
        (if (i32.load8_u (i32.const {RETURNED + 4})) (then (call $publish {guest.text("told.config")} {found})))
        (call $get {guest.text("note")} (i32.const {RETURNED}))
        (if (i32.load8_u (i32.const {RETURNED + 4})) (then (call $publish {guest.text("told.kv")} {found})))
        {guest.say("told.end", "0")}"""
    )
    return capsule(place, name, guest, {"tell.me": "act"}, ["told.*"], env={"key": {"type": "text"}}, **tables)


async def told(tmp_path: Path, place: Path, **options: Any) -> dict[str, Any]:
    async with (
        open_host([place], state_dir=tmp_path / "state", workspace=place, **options) as host,
        host.subscribe("told.*") as events,
    ):
        host.publish("tell.me", {})
        heard = {}
        while (event := await next_of(events)).topic != "told.end":
            heard[event.topic] = event.payload
        return heard


def keep(state: Path, owner: str) -> None:
    with closing(Stores(state)) as stores:
        stores.settings.set("", owner, "key", '"set"')
        stores.kv.set(f"default:capsule:{owner}", "note", b'"kept"')


async def test_a_namesake_gets_neither_settings_nor_notes(tmp_path: Path) -> None:
    mine, other = teller(tmp_path / "mine", "notes"), teller(tmp_path / "other", "notes")
    keep(tmp_path / "state", storage_id("notes", mine))
    assert await told(tmp_path, mine) == {"told.config": "set", "told.kv": "kept"}
    assert await told(tmp_path, other) == {}


@pytest.mark.parametrize("trust", [False, True])
async def test_one_with_a_bundled_name_never_gets_what_the_bundled_one_keeps(tmp_path: Path, trust: bool) -> None:
    keep(tmp_path / "state", "kv-notes")
    assert await told(tmp_path, teller(tmp_path / "given", "kv-notes"), trust=trust) == {}


async def test_configuration_of_a_run_for_a_bundled_name_is_for_a_trusted_one_only(tmp_path: Path) -> None:
    folder = teller(tmp_path / "given", "openai-compat")
    config = {"openai-compat": {"key": '"secret"'}}
    assert await told(tmp_path, folder, config=config) == {}
    assert await told(tmp_path, folder, config=config, trust=[folder]) == {"told.config": "secret"}
    plain = teller(tmp_path / "more", "plain")
    assert await told(tmp_path, plain, config={"plain": {"key": '"mine"'}}) == {"told.config": "mine"}


def as_before(state: Path, name: str) -> None:
    """A database as the last version left it, with what it kept for a capsule."""
    with closing(Stores(state)) as stores:
        stores.settings.set("", name, "key", '"set"')
        stores.kv.set(f"default:capsule:{name}", "note", b'"kept"')
        stores.kv.set(f"alice:capsule:{name}", "note", b'"hers"')
        stores.secrets.set("", name, "token", "a very secret token")
        stores.installed.remember(name, "1.0.0", "aa", "source")
        stores.approvals.allow(Holder("default", "/work", name, "aa"), "git status", None)
    with closing(sqlite3.connect(state / "astrid.sqlite3")) as raw:
        raw.executescript("DROP TABLE trusted; DROP TABLE unclaimed; PRAGMA user_version=3")


async def test_an_older_database_goes_to_the_first_folder_of_the_name(tmp_path: Path) -> None:
    as_before(tmp_path / "state", "notes")
    mine, other = teller(tmp_path / "mine", "notes"), teller(tmp_path / "other", "notes")
    assert await told(tmp_path, mine) == {"told.config": "set", "told.kv": "kept"}
    assert await told(tmp_path, other) == {}
    owner = storage_id("notes", mine)
    with closing(Stores(tmp_path / "state")) as stores:
        assert stores.secrets.get("", owner, "token") == "a very secret token"
        assert stores.secrets.get("", "notes", "token") is None
        assert stores.kv.get(f"alice:capsule:{owner}", "note") == b'"hers"'
        assert stores.approvals.of(Holder("default", "/work", owner, "aa")) == [("git status", None)]
        assert stores.installed.find(owner) is not None


async def test_an_older_database_stays_with_a_bundled_capsule(tmp_path: Path) -> None:
    as_before(tmp_path / "state", "kv-notes")
    assert await told(tmp_path, teller(tmp_path / "given", "kv-notes"), trust=True) == {}
    with closing(Stores(tmp_path / "state")) as stores:
        assert stores.kv.get("default:capsule:kv-notes", "note") == b'"kept"'
        assert stores.secrets.get("", "kv-notes", "token") == "a very secret token"
