"""A guest may do whatever WebAssembly can: it ends in a failure report, the host stays up, the next call works."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest
from guests_in_wat import (
    FAILED,
    HEAP,
    RECV,
    RESULT,
    RETURNED,
    Guest,
    allocator,
    bad,
    good_still_answers,
    hosted,
    next_of,
    publish_raw,
    report_of,
    spin,
)


class Case(NamedTuple):
    """What the handler does, and what is reported."""

    body: str
    reason: str
    detail: str


def result(offset: int, value: int) -> str:
    """Spoil one field of the record that the handler returns."""
    return f"(i32.store (i32.const {RESULT + offset}) (i32.const {value}))"


CASES = {
    "passes a pointer outside its memory": Case(publish_raw("(i32.const -16) (i32.const 8)"), "guest-fault", "memory"),
    "passes a huge length": Case(publish_raw(text="(i32.const 0) (i32.const 2147483647)"), "guest-fault", "memory"),
    "passes a length that wraps around": Case(publish_raw("(i32.const 16) (i32.const -8)"), "guest-fault", "memory"),
    "wants the result outside its memory": Case(publish_raw(returned=-16), "guest-fault", ""),
    "wants the result at an odd address": Case(
        publish_raw(returned=RETURNED + 1), "guest-fault", "not a multiple of 4"
    ),
    "passes text that is not UTF-8": Case(
        f"(i32.store (i32.const 3000) (i32.const -1)) {publish_raw('(i32.const 3000) (i32.const 4)')}",
        "guest-fault",
        "UTF-8",
    ),
    "returns a record outside its memory": Case("(return (i32.const -4))", "guest-fault", ""),
    "returns a record that ends behind its memory": Case(f"(return (i32.const {4 * 65536 - 4}))", "guest-fault", ""),
    "returns a record at an odd address": Case(
        f"(return (i32.const {RESULT + 2}))", "guest-fault", "not a multiple of 4"
    ),
    "returns an unknown discriminant": Case(result(8, 7), "guest-fault", ""),
    "returns an action outside its memory": Case(result(0, -4), "guest-fault", ""),
    "returns an action of 4 GiB": Case(result(4, -1), "guest-fault", ""),
    "returns data outside its memory": Case(result(8, 1) + result(12, -1) + result(16, 8), "guest-fault", ""),
    "returns an action that is not UTF-8": Case(
        f"(i32.store (i32.const 3000) (i32.const -1)) {result(0, 3000)} {result(4, 4)}", "guest-fault", "UTF-8"
    ),
    "returns an unknown action word": Case(result(4, 3), "guest-fault", "'con'"),
    "returns no action at all": Case(result(4, 0), "guest-fault", "''"),
    "traps": Case("(unreachable)", "trap", "unreachable"),
    "divides by zero": Case("(drop (i32.div_u (i32.const 1) (local.get $i)))", "trap", "divide by zero"),
    "reads outside its memory": Case("(drop (i32.load (i32.const -4)))", "trap", "out of bounds"),
    "calls an empty table": Case("(call_indirect (i32.const 0))", "trap", ""),
    "recurses without end": Case("(call $deeper)", "trap", "stack"),
    "loops without end": Case(spin(), "timeout", "0.2 s"),
    "loops over a host function": Case(f"(loop $on {publish_raw()} (br $on))", "timeout", "0.2 s"),
}


@pytest.mark.parametrize("name", CASES)
async def test_a_handler_that(name: str, tmp_path: Path) -> None:
    """Each is reported with its reason; the next call of this capsule fails the same way, of another it works."""
    case = CASES[name]
    guest = Guest("(table 1 funcref)" if "table" in name else "").handles(case.body)
    guest.add("(func $deeper (call $deeper) (call $deeper))")
    bad(tmp_path, guest)
    async with hosted(tmp_path) as host:
        for _ in range(2):
            report = await report_of(host, "bad.ask", {"n": 7})
            assert (report["reason"], report["capsule"], report["action"]) == (case.reason, "bad", "act")
            assert case.detail in report["detail"]
            assert (report["handlers"], report["done"], report["payload"]) == (1, 0, {"n": 7})
            await good_still_answers(host)


async def test_a_trap_names_the_functions_that_led_to_it(tmp_path: Path) -> None:
    guest = Guest().handles("(call $outer)")
    bad(tmp_path, guest.add("(func $outer (call $inner))", "(func $inner (unreachable))"))
    async with hosted(tmp_path) as host:
        detail = (await report_of(host, "bad.ask"))["detail"]
    assert detail.index("inner") < detail.index("outer")


async def test_what_was_published_before_a_trap_was_published(tmp_path: Path) -> None:
    guest = Guest()
    bad(tmp_path, guest.handles(guest.say("bad.said") + "(unreachable)"))
    async with hosted(tmp_path) as host, host.subscribe("bad.said") as events:
        report = await report_of(host, "bad.ask", {"n": 1})
        assert (report["reason"], report["published"]) == ("trap", ["bad.said"])
        assert (await next_of(events)).payload == {"n": 1}


async def test_a_guest_that_traps_once_gets_a_fresh_instance(tmp_path: Path) -> None:
    """What it wrote into its memory before the trap is gone."""
    guest = Guest("(global $calls (mut i32) (i32.const 0))")
    count = "(global.set $calls (i32.add (global.get $calls) (i32.const 1)))"
    again = "(if (i32.gt_u (global.get $calls) (i32.const 1)) (then (unreachable)))"
    bad(tmp_path, guest.handles(count + again + guest.say("bad.said")))
    async with hosted(tmp_path) as host, host.subscribe("bad.said") as events:
        for n in range(3):
            host.publish("bad.ask", n)
            assert (await next_of(events)).payload == n
            assert (await report_of(host, "bad.ask"))["reason"] == "trap"


async def test_an_endless_start_function_times_out(tmp_path: Path) -> None:
    guest = Guest().handles("").add(f"(func $begin {spin()})", "(start $begin)")
    bad(tmp_path, guest)
    async with hosted(tmp_path) as host:
        assert (await report_of(host, "bad.ask"))["reason"] == "timeout"
        await good_still_answers(host)


async def test_a_start_function_that_traps_is_a_trap_of_the_call(tmp_path: Path) -> None:
    bad(tmp_path, Guest().handles("").add("(func $begin (unreachable))", "(start $begin)"))
    async with hosted(tmp_path) as host:
        assert (await report_of(host, "bad.ask"))["reason"] == "trap"
        await good_still_answers(host)


async def test_initialize_runs_before_the_first_call_and_only_then(tmp_path: Path) -> None:
    guest = Guest("(global $made (mut i32) (i32.const 0))")
    guest.add('(func (export "_initialize") (global.set $made (i32.add (global.get $made) (i32.const 1))))')
    wrong = "(if (i32.ne (global.get $made) (i32.const 1)) (then (unreachable)))"
    bad(tmp_path, guest.handles(wrong + guest.say("bad.said")))
    async with hosted(tmp_path) as host, host.subscribe("bad.said") as events:
        for n in range(3):
            host.publish("bad.ask", n)
            assert (await next_of(events)).payload == n


# The allocator is guest code too.


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("(i32.const -8)", "guest-fault"),
        (f"(i32.const {4 * 65536 - 1})", "guest-fault"),
        ("(unreachable)", "trap"),
        (spin() + "(unreachable)", "trap"),
        (f"{publish_raw()} (i32.const 4096)", "guest-fault"),
    ],
    ids=["returns an address outside", "returns one that is too late", "traps", "never returns", "calls an import"],
)
async def test_an_allocator_that(body: str, reason: str, tmp_path: Path) -> None:
    bad(tmp_path, allocator(Guest().handles(""), body))
    async with hosted(tmp_path) as host:
        report = await report_of(host, "bad.ask")
        assert report["reason"] == reason
        await good_still_answers(host)


@pytest.mark.parametrize(
    ("body", "reason"),
    [("(unreachable)", "trap"), (spin(), "trap"), (publish_raw(), "guest-fault")],
    ids=["traps", "never returns", "calls an import"],
)
@pytest.mark.parametrize("waits", [False, True], ids=["plain", "waiting"])
async def test_a_post_return_function_that(body: str, reason: str, waits: bool, tmp_path: Path) -> None:
    guest = Guest(*([RECV] if waits else [])).handles("")
    guest.add(f'(func (export "cabi_post_astrid-hook-trigger") (param i32) {body})')
    bad(tmp_path, guest)
    async with hosted(tmp_path) as host:
        assert (await report_of(host, "bad.ask"))["reason"] == reason
        await good_still_answers(host)


async def test_the_post_return_function_gets_what_the_handler_returned(tmp_path: Path) -> None:
    guest = Guest("(global $seen (mut i32) (i32.const 0))")
    guest.add('(func (export "cabi_post_astrid-hook-trigger") (param i32) (global.set $seen (local.get 0)))')
    said = guest.say("bad.said", '"ok"')
    guest.handles(f"(if (i32.eq (global.get $seen) (i32.const {RESULT})) (then {said}))")
    bad(tmp_path, guest)
    async with hosted(tmp_path) as host, host.subscribe("bad.said") as events:
        host.publish("bad.ask", 1)
        host.publish("bad.ask", 2)
        assert (await next_of(events)).payload == "ok"


# What a guest may take.


async def test_memory_grows_to_its_limit_and_no_further(tmp_path: Path) -> None:
    """`memory.grow` is refused, which the guest sees; it goes on."""
    grow = "(br_if $on (i32.ne (memory.grow (i32.const 1)) (i32.const -1)))"
    guest = Guest()
    fits = f"(if (i32.eq (memory.size) (i32.const 10)) (then {guest.say('bad.said')}))"
    bad(tmp_path, guest.handles(f"(loop $on {grow}) {fits}"), limits={"memory_bytes": 10 * 65536})
    async with hosted(tmp_path) as host, host.subscribe("bad.said") as events:
        host.publish("bad.ask", 1)
        assert (await next_of(events)).payload == 1


async def test_json_nested_20_000_deep_is_refused_with_a_typed_error(tmp_path: Path) -> None:
    guest = Guest()
    depth = 20_000
    nest = (
        f"(memory.fill (i32.const {HEAP}) (i32.const {ord('[')}) (i32.const {depth}))"
        f"(memory.fill (i32.const {HEAP + depth}) (i32.const {ord(']')}) (i32.const {depth}))"
        f"(call $publish {guest.text('bad.said')} (i32.const {HEAP}) (i32.const {2 * depth}))"
    )
    bad(tmp_path, guest.handles(nest + told(guest, 1)))
    async with hosted(tmp_path) as host, host.subscribe("bad.said") as said, host.subscribe(FAILED + "*") as failed:
        host.publish("bad.ask", 1)
        assert (await next_of(said)).payload == "typed"
        report = (await next_of(failed)).payload
        assert (report["reason"], report["topic"], report["payload"]) == ("publish-denied", "bad.said", 1)
        await good_still_answers(host)


def told(guest: Guest, case: int) -> str:
    """Say `typed` when the last publish answered that case of `error-code`."""
    is_error = f"(i32.eq (i32.load8_u (i32.const {RETURNED})) (i32.const 1))"
    is_case = f"(i32.eq (i32.load8_u (i32.const {RETURNED + 4})) (i32.const {case}))"
    return f"(if (i32.and {is_error} {is_case}) (then {guest.say('bad.said', chr(34) + 'typed' + chr(34))}))"


@pytest.mark.parametrize(
    ("topic", "payload", "case", "detail"),
    [
        ("other.topic", "1", 0, "[publish]"),
        ("bad..said", "1", 1, ""),
        ("", "1", 1, ""),
        ("a.b.c.d.e.f.g.h.i", "1", 1, ""),
        ("x" * 300, "1", 1, ""),
        ("bad.said", "{", 1, ""),
        ("astrid.v1.dispatch.failed.good.ask", "1", 0, "only the host"),
    ],
    ids=["outside its rows", "an empty segment", "no topic", "nine segments", "300 bytes", "no JSON", "a kernel topic"],
)
async def test_a_refused_publish_is_a_typed_error_and_a_report(
    topic: str, payload: str, case: int, detail: str, tmp_path: Path
) -> None:
    guest = Guest()
    bad(tmp_path, guest.handles(guest.say(topic, payload) + told(guest, case)), publish=["bad.said", "astrid.v1.*"])
    async with hosted(tmp_path) as host, host.subscribe("bad.said") as said, host.subscribe(FAILED + "*") as failed:
        host.publish("bad.ask", {"n": 1})
        assert (await next_of(said)).payload == "typed"
        report = (await next_of(failed)).payload
        assert (report["reason"], report["capsule"], report["topic"]) == ("publish-denied", "bad", topic)
        assert report["payload"] == {"n": 1}
        assert detail in report["detail"]


async def test_the_abort_of_assemblyscript_is_read_from_its_memory(tmp_path: Path) -> None:
    guest = Guest('(import "env" "abort" (func $abort (param i32 i32 i32 i32)))')

    def utf16(text: str) -> str:
        raw = text.encode("utf-16-le")
        at = guest.text(len(raw).to_bytes(4, "little") + raw).split(")")[0]
        return f"(i32.add {at}) (i32.const 4))"

    bad(
        tmp_path,
        guest.handles(f"(call $abort {utf16('no more ideas')} {utf16('mind.ts')} (i32.const 3) (i32.const 9))"),
    )
    async with hosted(tmp_path) as host:
        report = await report_of(host, "bad.ask")
    assert report["reason"] == "trap"
    assert "no more ideas" in report["detail"]
    assert "mind.ts:3:9" in report["detail"]


@pytest.mark.parametrize("pointer", [0, 1, 4, -1, -2, 4 * 65536, 4 * 65536 - 1])
async def test_an_abort_with_a_bad_pointer_only_loses_its_text(pointer: int, tmp_path: Path) -> None:
    guest = Guest('(import "env" "abort" (func $abort (param i32 i32 i32 i32)))')
    bad(tmp_path, guest.handles(f"(call $abort {f'(i32.const {pointer})' * 2} (i32.const 3) (i32.const 9))"))
    async with hosted(tmp_path) as host:
        assert (await report_of(host, "bad.ask"))["reason"] == "trap"
        await good_still_answers(host)
