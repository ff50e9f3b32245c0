"""What a guest keeps, reads and asks for is bounded for each capsule and principal, and costs others no time."""

from __future__ import annotations

import itertools
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from guests_in_wat import RETURNED, Guest, capsule, good, good_still_answers, hosted, next_of
from hypothesis import given
from hypothesis import strategies as st

from astrid_host import BUNDLED, open_host
from astrid_host.errors import HostError, StoreError
from astrid_host.hostcalls.auditor import Auditor
from astrid_host.hostcalls.fs.content import append, check_room, copy_all, write_all
from astrid_host.hostcalls.interface import HostFunction
from astrid_host.hostcalls.threads import Place, Threads
from astrid_host.stores import Full, KvStore, Stores, storage_id
from astrid_host.stores.database import FILE, Database
from astrid_host.stores.schema import APPLICATION_ID, ROW_BYTES, STEPS

KIB, MIB = 1 << 10, 1 << 20
KV_SET = '(import "astrid:kv/host@1.0.0" "kv-set" (func $set (param i32 i32 i32 i32 i32)))'
CLEAR = '(import "astrid:kv/host@1.0.0" "kv-clear-prefix" (func $clear (param i32 i32 i32)))'
READ = '(import "astrid:fs/host@1.0.0" "read-file" (func $read (param i32 i32 i32)))'
COPY = '(import "astrid:fs/host@1.0.0" "fs-copy" (func $copy (param i32 i32 i32 i32 i32)))'


def store(quota: int = 1 << 62, of_all: int = 1 << 62) -> KvStore:
    return KvStore(Database.in_memory(), quota, of_all)


def fill(keys: KvStore, entries: list[tuple[str, str, bytes]]) -> None:
    for namespace, key, value in entries:
        keys.set(namespace, key, value)


def kept(namespace: str, keys: KvStore) -> int:
    row = keys._database.row("SELECT bytes FROM kv_usage WHERE namespace = ?", (namespace,))
    return 0 if row is None else int(row[0])


# Keys and values.


def test_a_namespace_has_a_quota_and_another_is_not_touched_by_it() -> None:
    keys = store(quota=MIB)
    with pytest.raises(Full, match=r"may keep 1048576 .\[host\] kv in host.toml"):
        fill(keys, [("a", f"{number}", bytes(100 * KIB)) for number in range(100)])
    assert MIB - 101 * KIB < kept("a", keys) <= MIB
    keys.set("b", "k", bytes(100 * KIB))
    keys.delete("a", "0")
    keys.set("a", "again", bytes(99 * KIB))


def test_all_namespaces_have_a_quota_together() -> None:
    keys = store(of_all=MIB)
    with pytest.raises(Full, match="kv_of_all"):
        fill(keys, [(f"{number}", "k", bytes(100 * KIB)) for number in range(100)])
    assert kept("", keys) <= MIB


def test_many_small_entries_count_for_what_they_take() -> None:
    keys = store(quota=128 * KIB)
    with pytest.raises(Full):
        fill(keys, [("a", f"{number}", b"") for number in range(10_000)])
    assert kept("a", keys) + 5 + ROW_BYTES >= 128 * KIB - ROW_BYTES - 5
    assert kept("a", keys) <= 128 * KIB


def test_one_that_is_full_may_still_make_a_value_smaller() -> None:
    keys = store(quota=128 * KIB)
    keys.set("a", "k", bytes(127 * KIB))
    with pytest.raises(Full):
        keys.set("a", "more", bytes(2 * KIB))
    with pytest.raises(Full):
        keys.cas("a", "more", None, bytes(2 * KIB))
    keys.set("a", "k", bytes(127 * KIB - 1))
    assert keys.cas("a", "k", bytes(127 * KIB - 1), b"")
    keys.set("a", "more", bytes(2 * KIB))


KEYS = st.sampled_from(["", "k", "kk", "\u20ac"])
CHANGES = st.lists(st.tuples(st.sampled_from("abc"), KEYS, st.none() | st.binary(max_size=30)), max_size=30)


@given(CHANGES)
def test_what_is_counted_is_what_is_there(changes: list[tuple[str, str, bytes | None]]) -> None:
    keys, model = store(), dict[tuple[str, str], bytes]()
    for namespace, key, value in changes:
        if value is None:
            keys.delete(namespace, key)
            model.pop((namespace, key), None)
        else:
            keys.set(namespace, key, value)
            model[namespace, key] = value
    for namespace in "abc":
        mine = [(key, value) for (space, key), value in model.items() if space == namespace]
        assert kept(namespace, keys) == sum(len(key.encode()) + len(value) + ROW_BYTES for key, value in mine)
    assert kept("", keys) == sum(kept(namespace, keys) for namespace in "abc")


def test_what_an_older_host_has_kept_is_counted(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / FILE, isolation_level=None)) as older:
        for statement in itertools.chain(*STEPS[:3]):
            older.execute(statement)
        older.execute("INSERT INTO kv (namespace, key, value) VALUES ('a', 'k', ?)", (bytes(1000),))
        older.execute(f"PRAGMA application_id={APPLICATION_ID}")
        older.execute("PRAGMA user_version=3")
    with closing(Database.open(tmp_path)) as database:
        assert kept("a", KvStore(database)) == 1001 + ROW_BYTES == kept("", KvStore(database))


async def test_a_guest_that_fills_its_store_gets_quota_and_others_keep_writing(tmp_path: Path) -> None:
    guest = Guest(KV_SET, pages=4)
    guest.handles(
        f"""(loop $on
          (i32.store8 (i32.const 3000) (i32.add (i32.const 32) (local.tee $i (i32.add (local.get $i) (i32.const 1)))))
          (call $set (i32.const 3000) (i32.const 1) (i32.const 65536) (i32.const 65536) (i32.const {RETURNED}))
          (br_if $on (i32.eqz (i32.load8_u (i32.const {RETURNED})))))
        {guest.say("bad.said", "1")}"""
    )
    capsule(tmp_path, "bad", guest, {"bad.ask": "act"}, ["bad.said"])
    good(tmp_path)
    async with hosted(tmp_path, limits={"kv": MIB}) as host, host.subscribe("bad.said") as said:
        for who in ("mallory", "alice"):  # what one has filled is not another's loss
            host.publish("bad.ask", 1, principal=who)
            await next_of(said)
        await good_still_answers(host)


async def test_removing_very_many_keys_lets_the_loop_run(tmp_path: Path) -> None:
    namespace = f"default:capsule:{storage_id('bad', (tmp_path / 'capsules' / 'bad').resolve())}"
    with closing(Stores(tmp_path / "state")) as stores:
        database = stores.kv._database
        with database.transaction():
            for number in range(100_000):
                stores.kv.set(namespace, f"a{number}", b"x" * 200)
            stores.kv.set(namespace, "b", b"")
    guest = Guest(CLEAR)
    guest.handles(f"(call $clear {guest.text('a')} (i32.const {RETURNED})) {guest.say('bad.said', '1')}")
    capsule(tmp_path / "capsules", "bad", guest, {"bad.ask": "act"}, ["bad.said"], limits={"timeout_secs": 60})
    good(tmp_path / "capsules")
    from astrid_host import open_host

    async with (
        open_host([tmp_path / "capsules"], state_dir=tmp_path / "state", workspace=tmp_path / "capsules") as host,
        host.subscribe("bad.said") as said,
    ):
        host.publish("bad.ask", 1)
        worst, last = 0.0, trio.current_time()
        answered = trio.Event()

        async def wait() -> None:
            await next_of(said, 60)
            answered.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            while not answered.is_set():
                await trio.sleep(0.001)
                worst, last = max(worst, trio.current_time() - last), trio.current_time()
        assert worst < 0.25
        await good_still_answers(host)
    with closing(Stores(tmp_path / "state")) as stores:
        assert stores.kv.list_keys(namespace) == ["b"]


# Threads.


def call(principal: str, name: str = "capsule") -> Any:
    return SimpleNamespace(principal=principal, capsule=SimpleNamespace(id=name))


class Held:
    """Work that goes on until it is let go, on as many threads as there are of it."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.running = 0

    def __call__(self) -> None:
        self.running += 1
        self.go.wait(30)


async def test_one_principal_never_has_all_threads() -> None:
    threads, held = Threads(), Held()
    async with trio.open_nursery() as nursery:
        for _ in range(64):
            nursery.start_soon(threads.run, call("mallory"), held)
        await trio.testing.wait_all_tasks_blocked(0.01)
        with trio.fail_after(5):
            assert await threads.run(call("alice"), lambda: "read") == "read"
        assert held.running == 3
        held.go.set()


async def test_one_capsule_never_has_all_threads() -> None:
    threads, held = Threads(), Held()
    async with trio.open_nursery() as nursery:
        for number in range(64):
            nursery.start_soon(threads.run, call(f"sybil{number}", "evil"), held)
        await trio.testing.wait_all_tasks_blocked(0.01)
        with trio.fail_after(5):
            assert await threads.run(call("alice", "plain"), lambda: "read") == "read"
        assert held.running == 6
        held.go.set()


async def test_who_waits_is_served_by_principal_in_turn() -> None:
    threads, held, order = Threads(most=1, of_principal=1, of_capsule=1), Held(), list[str]()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(threads.run, call("first"), held)
        await trio.testing.wait_all_tasks_blocked(0.01)
        for who in ("mallory", "mallory", "mallory", "alice", "bob"):
            nursery.start_soon(threads.run, call(who), lambda who=who: order.append(who))
            await trio.testing.wait_all_tasks_blocked(0.001)
        held.go.set()
    assert order == ["mallory", "alice", "bob", "mallory", "mallory"]


async def test_work_in_pieces_hands_its_thread_on_between_two_of_them() -> None:
    threads = Threads(most=1, of_principal=1, of_capsule=1)
    place: Place = threads.place(call("mallory"))
    done, began = threading.Event(), threading.Event()

    def long() -> None:
        began.set()
        until = time.monotonic() + 30
        while not done.is_set() and time.monotonic() < until:
            place.between_pieces()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(threads.run_in, place, long)
        while not began.is_set():
            await trio.sleep(0.001)
        with trio.fail_after(5):
            await threads.run(call("alice"), done.set)


async def test_a_place_that_is_given_up_is_free_again() -> None:
    threads, held = Threads(most=1, of_principal=1, of_capsule=1), Held()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(threads.run, call("first"), held)
        await trio.testing.wait_all_tasks_blocked(0.01)
        with trio.move_on_after(0.01) as bound:
            await threads.run(call("mallory"), held)
        assert bound.cancelled_caught
        held.go.set()
    assert not threads.contended
    with trio.fail_after(5):
        assert await threads.run(call("alice"), lambda: 1) == 1


async def test_a_read_does_not_wait_for_anothers_gigabytes(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "big").touch()
    os.truncate(work / "big", 512 * MIB)
    (work / "m").write_bytes(b"x" * MIB)
    copies = Guest(COPY)
    copies.handles(f"(call $copy {copies.text('big')} {copies.text('copy')} (i32.const {RETURNED}))")
    rights = {"fs_read": ["cwd://"], "fs_write": ["cwd://"]}
    limits = {"timeout_secs": 300, "concurrency": 16}
    capsule(tmp_path / "capsules", "bad", copies, {"bad.ask": "act"}, [], limits=limits, capabilities=rights)
    victim = Guest(READ, pages=64)
    victim.handles(f"(call $read {victim.text('m')} (i32.const {RETURNED})) {victim.say('v.said', '1')}")
    capsule(tmp_path / "capsules", "victim", victim, {"v.ask": "act"}, ["v.said"], capabilities={"fs_read": ["cwd://"]})
    from astrid_host import open_host

    async with (
        open_host([tmp_path / "capsules"], state_dir=":memory:", workspace=work) as host,
        host.subscribe("v.said") as said,
    ):
        for _ in range(16):
            host.publish("bad.ask", 1, principal="mallory")
        await trio.sleep(0.05)
        host.publish("v.ask", 1, principal="alice")
        await next_of(said, 5)


# A full disk.


class FullDisk:
    """An audit that cannot be written."""

    def append(self, *_row: str) -> int:
        raise StoreError("database or disk is full")


def audited(run: Callable[..., Any], **marks: Any) -> Callable[..., Any]:
    function = HostFunction("request-approval", run, False, lambda *_: "git push", **marks)
    return Auditor(FullDisk()).audited("astrid:approval/host@1.0.0", function).run


async def test_a_persons_answer_stands_when_its_row_cannot_be_written(caplog: pytest.LogCaptureFixture) -> None:
    async def answer(_call: object) -> str:
        return "approved"

    with caplog.at_level(logging.ERROR):
        assert await audited(answer, stands=True)(call("alice")) == "approved"
    assert "disk is full" in caplog.text


async def test_what_is_done_is_refused_before_it_when_its_row_cannot_be_written() -> None:
    done = []

    async def act(_call: object) -> None:
        done.append(1)

    with pytest.raises(HostError, match="disk is full"):
        await audited(act, announced=True)(call("alice"))
    assert not done


# The disk.


@pytest.mark.parametrize(("left", "fits"), [("64TiB", False), ("64KiB", True)])
async def test_a_guest_leaves_the_disk_as_much_free_as_the_operator_says(left: str, fits: bool, tmp_path: Path) -> None:
    places = [Path(BUNDLED) / name for name in ("router", "fs")]
    work = tmp_path / "work"
    work.mkdir()
    (work / "old.txt").write_text("old")
    limits = {"disk_free": left}
    async with open_host(places, state_dir=tmp_path / "state", workspace=work, limits=limits) as host:
        for path in ("new.txt", "old.txt"):
            done = await host.tools.execute("write_file", {"file_path": path, "content": "new"})
            assert done.is_error != fits, done.content
        read = await host.tools.execute("read_file", {"file_path": "old.txt"})
        assert not read.is_error
    assert (work / "old.txt").read_text() == ("new" if fits else "old")
    assert sorted(path.name for path in work.iterdir()) == (["new.txt", "old.txt"] if fits else ["old.txt"])


def test_every_way_to_write_leaves_it_free(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    folder, file = os.open(tmp_path, os.O_RDONLY), os.open(tmp_path / "a", os.O_RDWR)
    all_of_it = 1 << 60
    ways: tuple[Callable[[], object], ...] = (
        lambda: check_room(file, 1, all_of_it),
        lambda: write_all(file, b"b", all_of_it),
        lambda: append(folder, "a", b"b", True, all_of_it),
        lambda: copy_all(file, file, lambda: None, all_of_it),
    )
    try:
        for way in ways:
            with pytest.raises(HostError, match="disk_free in the"):
                way()
        check_room(file, 0, all_of_it)  # to empty a file is always allowed
    finally:
        os.close(folder)
        os.close(file)
    assert (tmp_path / "a").read_text() == "a"
