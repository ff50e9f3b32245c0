"""astrid:process through the real ABI: guests that wait for commands are suspended, and take them along when they end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import trio
from guests_in_wat import RETURNED, Guest, capsule, good, good_still_answers, hosted, next_of, report_of
from processes import family, gone

PROCESS = "astrid:process/host@1.0.0"
SPAWN = f'(import "{PROCESS}" "spawn" (func $spawn (param i32 i32)))'
BEGIN = f'(import "{PROCESS}" "spawn-background" (func $begin (param i32 i32)))'
ENDED = f'(import "{PROCESS}" "[method]process-handle.subscribe-exit" (func $ended (param i32) (result i32)))'
DROP = f'(import "{PROCESS}" "[resource-drop]process-handle" (func $drop_process (param i32)))'
BLOCK = '(import "astrid:io/poll@1.0.0" "[method]pollable.block" (func $block (param i32 i32)))'
REQUEST, ARGUMENTS, ANSWER = 1408, 1600, 1632  # 176 bytes, of which what is not set is none; two texts; 40 bytes
STDOUT = f"(i32.load (i32.const {ANSWER + 4})) (i32.load (i32.const {ANSWER + 8}))"
ALLOWED = {"capabilities": {"host_process": ["bash"]}}


def put(at: int, text: str) -> str:
    """Write a text's pointer and length, which `Guest.text` gives as two constants."""
    where, length = text.split(") (")
    return f"(i32.store (i32.const {at}) {where})) (i32.store (i32.const {at + 4}) ({length})"


def bash(guest: Guest, script: str) -> str:
    """Write a request for `bash -c script`; gives the operands of a spawn."""
    pair = f"(i32.store (i32.const {REQUEST + 8}) (i32.const {ARGUMENTS}))"
    list_of_two = f"{pair} (i32.store (i32.const {REQUEST + 12}) (i32.const 2))"
    arguments = put(ARGUMENTS, guest.text("-c")) + put(ARGUMENTS + 8, guest.text(script))
    return put(REQUEST, guest.text("bash")) + list_of_two + arguments


def runner(place: Path, script: str, **more: Any) -> None:
    """Says what `script` wrote on `said.got`."""
    guest = Guest(SPAWN)
    failed = f"(i32.load8_u (i32.const {ANSWER}))"
    guest.handles(
        bash(guest, script)
        + f"(call $spawn (i32.const {REQUEST}) (i32.const {ANSWER}))"
        + f"(if {failed} (then {guest.say('said.failed', '{}')}) (else (call $publish {guest.text('said.got')} {STDOUT})))"
    )
    capsule(place, "runner", guest, {"r.ask": "act"}, ["said.*"], **{**ALLOWED, **more})


async def test_a_guest_gets_what_a_command_wrote(tmp_path: Path) -> None:
    runner(tmp_path, "echo '{\"pwd\": \"'$PWD'\"}'")
    async with hosted(tmp_path) as host, host.subscribe("said.*") as events:
        host.publish("r.ask", {})
        assert (await next_of(events)).payload == {"pwd": str(tmp_path)}


async def test_a_guest_without_the_row_gets_a_typed_error(tmp_path: Path) -> None:
    runner(tmp_path, "true", capabilities={"host_process": ["ls"]})
    async with hosted(tmp_path) as host, host.subscribe("said.*") as events:
        host.publish("r.ask", {})
        assert (await next_of(events)).topic == "said.failed"


async def test_others_are_served_while_a_guest_waits_for_a_command(tmp_path: Path) -> None:
    runner(tmp_path, "until [ -e go ]; do sleep 0.01; done; echo '{}'")
    good(tmp_path)
    async with hosted(tmp_path) as host, host.subscribe("said.*") as events:
        host.publish("r.ask", {})
        for _ in range(3):
            await good_still_answers(host)
        (tmp_path / "go").touch()
        assert (await next_of(events)).topic == "said.got"


async def test_a_host_that_stops_takes_its_commands_along(tmp_path: Path) -> None:
    runner(tmp_path, "trap '' INT TERM; echo x > begun; sleep 86471")
    async with hosted(tmp_path) as host:
        host.publish("r.ask", {})
        while not (tmp_path / "begun").exists():
            await trio.sleep(0.005)
    assert not family("sleep 86471")


def beginner(place: Path, script: str, then: str, guest: Guest) -> None:
    """Starts `script` in the background, with the handle in `$j`, and goes on with `then`."""
    begun = f"(call $begin (i32.const {REQUEST}) (i32.const {RETURNED}))(local.set $j (i32.load (i32.const {RETURNED + 4})))"
    guest.handles(bash(guest, script) + begun + then)
    capsule(place, "beginner", guest, {"b.ask": "act"}, ["said.*"], **ALLOWED)


async def test_a_guest_blocks_until_a_process_has_ended(tmp_path: Path) -> None:
    guest = Guest(BEGIN, ENDED, BLOCK)
    then = (
        guest.say("said.begun", "{}")
        + f"(call $block (call $ended (local.get $j)) (i32.const {ANSWER}))"
        + guest.say("said.ended", "{}")
    )
    beginner(tmp_path, "until [ -e go ]; do sleep 0.01; done", then, guest)
    async with hosted(tmp_path) as host, host.subscribe("said.*") as events:
        host.publish("b.ask", {})
        assert (await next_of(events)).topic == "said.begun"
        (tmp_path / "go").touch()
        assert (await next_of(events)).topic == "said.ended"


async def test_dropping_the_handle_ends_the_process(tmp_path: Path) -> None:
    guest = Guest(BEGIN, DROP)
    beginner(tmp_path, "sleep 86472", "(call $drop_process (local.get $j))" + guest.say("said.dropped", "{}"), guest)
    async with hosted(tmp_path) as host, host.subscribe("said.*") as events:
        host.publish("b.ask", {})
        assert (await next_of(events)).topic == "said.dropped"
        await gone("sleep 86472")


async def test_a_trap_ends_the_processes_of_its_instance(tmp_path: Path) -> None:
    beginner(tmp_path, "sleep 86473", "unreachable", Guest(BEGIN))
    async with hosted(tmp_path) as host:
        assert (await report_of(host, "b.ask"))["reason"] == "trap"
        await gone("sleep 86473")


async def test_a_command_is_in_the_audit_before_it_runs(tmp_path: Path) -> None:
    runner(tmp_path, "until [ -e go ]; do sleep 0.01; done; echo '{}'")
    async with hosted(tmp_path) as host, host.subscribe("said.*") as events:
        host.publish("r.ask", {})
        with trio.fail_after(10):
            while not (rows := [row for row in audit_rows(host) if row.function == "process.spawn"]):
                await trio.sleep(0.005)
        assert [row.verdict for row in rows] == ["asked"]
        (tmp_path / "go").touch()
        await next_of(events)
        assert [row.verdict for row in audit_rows(host) if row.function == "process.spawn"] == ["asked", "ok"]


def audit_rows(host: Any) -> list[Any]:
    return [*host._functions._stores.audit.rows()]
