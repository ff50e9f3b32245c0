"""A guest that asks for approval through the real ABI: it waits on no thread, goes on with the answer, and can be cancelled."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import people
import pytest
import trio
from guests_in_wat import Guest
from linked_guests import ENTRIES, HOOK, MEMORY
from people import CLIENT, SOURCE, Town, engine, payload_of, town

from astrid_host.bundled import wit_folder
from astrid_host.engine import Instances, Linker, Pool, Prelinked
from astrid_host.errors import GuestCancelled
from astrid_host.hostcalls.approval import ANSWERS, TOPIC, Approval
from astrid_host.imports import HostImports
from astrid_host.scheduler import Tasks, call_once
from astrid_host.stores import Database
from astrid_host.stores.approvals import ApprovalStore
from astrid_host.wit import Packages

ASK = '(import "astrid:approval/host@1.0.0" "request-approval" (func $ask (param i32 i32 i32 i32 i32)))'


class Shell:
    """A capsule whose guest asks for approval of its payload, and answers `ok` or `error` with the case's number."""

    id = storage_id = "shell"
    wasm_hash = "aa"
    source_id = SOURCE

    def __init__(self, module: Prelinked) -> None:
        self.module = module
        self.pool = Pool(module, MEMORY, Instances(100))

    async def ask(self, here: Town, resource: bytes, principal: str = "alice") -> tuple[str, str]:
        entry = self.module.entries[HOOK.name]
        result = await call_once(here.scheduler, self, entry, ("act", resource), principal, 10.0)
        return result.action, result.data


def guest() -> Guest:
    made = Guest(ASK, publishes=False)
    return made.handles(f"""
        (call $ask {made.text("run")} (local.get $payload) (local.get $payload_len) (i32.const 1504))
        (i32.store8 (i32.const 1500) (i32.add (i32.const 48) (i32.load8_u (i32.const 1508))))
        (if (i32.load8_u (i32.const 1504))
          (then (call $answer {made.text("error")} (i32.const 1500) (i32.const 1)))
          (else (call $answer {made.text("ok")} (i32.const 1500) (i32.const 1))))""")


@asynccontextmanager
async def shell_town() -> AsyncIterator[tuple[Town, Shell]]:
    database = Database.in_memory()
    async with trio.open_nursery() as nursery, town() as here:
        imports = HostImports(Packages(wit_folder()), Tasks(here.scheduler, nursery))
        imports.provide([Approval(here.questions, ApprovalStore(database), "/work")])
        module = Linker(engine().wasmtime, imports).prelink(engine().module("shell", guest().wasm()), ENTRIES)
        here.client(TOPIC)
        yield here, Shell(module)
    database.close()


def answer(here: Town, question: Any, decision: str, principal: str = "alice", source_id: str = CLIENT) -> None:
    here.say(ANSWERS + question["request_id"], people.answer(question, decision), principal, source_id)


@pytest.mark.parametrize(
    ("decision", "number"), [("deny", "0"), ("approve", "1"), ("approve_session", "2"), ("approve_always", "3")]
)
async def test_a_guest_gets_the_decision_and_then_its_allowance(decision: str, number: str) -> None:
    async with shell_town() as (here, shell):
        got = []

        async def ask() -> None:
            got.append(await shell.ask(here, b"run x"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            question = payload_of(await here.heard())
            assert (question["action"], question["resource"]) == ("run", "run x")
            answer(here, question, "approve", source_id=SOURCE)
            answer(here, question, decision)
        assert got == [("ok", number)]
        if number in "23":
            assert await shell.ask(here, b"run y") == ("ok", "4")


async def test_a_guest_gets_the_typed_refusal_of_what_cannot_be_shown() -> None:
    async with shell_town() as (here, shell):
        assert await shell.ask(here, b"x" * 65_537) == ("error", "0")


async def test_fifty_guests_wait_at_once_and_no_thread_does() -> None:
    async with shell_town() as (here, shell):
        got = {}

        async def ask(number: int) -> None:
            got[number] = await shell.ask(here, b"run %d" % number, f"p{number}")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, 0)
            events = [await here.heard()]
            threads = threading.active_count()
            for number in range(1, 50):
                nursery.start_soon(ask, number)
            events += [await here.heard() for _ in range(49)]
            assert threading.active_count() <= threads + 1  # the one that computes, if a tick fell due
            assert got == {}
            for event in reversed(events):
                assert event.principal is not None
                answer(here, payload_of(event), "approve", event.principal)
        assert set(got.values()) == {("ok", "1")}
        assert len(got) == 50


async def test_a_cancelled_guest_asks_no_more_and_an_answer_wakes_nobody() -> None:
    async with shell_town() as (here, shell):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(shell.ask, here, b"run x")
            question = payload_of(await here.heard())
            nursery.cancel_scope.cancel()
        await trio.testing.wait_all_tasks_blocked()
        assert not here.listens(ANSWERS + question["request_id"])
        answer(here, question, "approve_always")
        assert shell.pool.instances.live + shell.pool.instances.waiting == 0


async def test_the_hosts_end_ends_the_wait() -> None:
    ended = []
    async with trio.open_nursery() as nursery:
        async with shell_town() as (here, shell):

            async def ask() -> None:
                with pytest.raises(GuestCancelled) as caught:
                    await shell.ask(here, b"run x")
                ended.append(str(caught.value))

            nursery.start_soon(ask)
            await here.heard()
    assert ended == ["the host stops"]
