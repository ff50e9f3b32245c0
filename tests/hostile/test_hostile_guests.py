"""A guest may do whatever WebAssembly can: it ends in a failure report, the host stays up, the next call works.

What could take the whole process down runs in one of its own, so that an abort fails one test.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import trio
from guests_in_wat import (
    FAILED,
    HEAP,
    IPC,
    POLL,
    RECV,
    RESULT,
    RETURNED,
    SUBSCRIBE,
    Guest,
    capsule,
    good,
    good_still_answers,
    hosted,
    next_of,
    report_of,
    spin,
)

ASK = {"bad.ask": "act"}
OK_TEXT = "(i32.const 2048) (i32.const 8)"
NO_TIME = {"timeout_secs": 0.05}


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))


class Case(NamedTuple):
    """What the handler does, and what is reported."""

    body: str
    reason: str
    detail: str


def publish_raw(topic: str = OK_TEXT, text: str = OK_TEXT, returned: int = RETURNED) -> str:
    return f"(call $publish_raw {topic} {text} (i32.const {returned}))"


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
    "loops without end": Case(spin(), "timeout", "0.05 s"),
    "loops over a host function": Case(f"(loop $on {publish_raw()} (br $on))", "timeout", "0.05 s"),
}


def bad(place: Path, guest: Guest, **options: object) -> Path:
    """The capsule `bad`, beside the good one."""
    good(place)
    options = {"limits": NO_TIME, "publish": ["bad.said"], "subscribe": ASK, **options}
    return capsule(place, "bad", guest, **options)  # type: ignore[arg-type]


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

ALLOC = "(param i32 i32 i32 i32) (result i32)"


def allocator(guest: Guest, body: str) -> Guest:
    guest.realloc = ""
    return guest.add(f'(func (export "cabi_realloc") {ALLOC} {body})')


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


async def test_a_module_that_begins_above_its_limit_is_reported(tmp_path: Path) -> None:
    bad(tmp_path, Guest(pages=100).handles(""), limits={"memory_bytes": 10 * 65536})
    async with hosted(tmp_path) as host:
        report = await report_of(host, "bad.ask")
        assert report["reason"] == "trap"
        assert "memory" in report["detail"]
        await good_still_answers(host)


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


# What a module may be.

Make = Callable[[], Guest | bytes]


def without_memory() -> Guest:
    guest = Guest().handles("")
    guest.memory = "(memory {pages})"
    return guest


def imports_memory() -> Guest:
    guest = Guest('(import "env" "memory" (memory 4))').handles("")
    guest.memory = '(export "memory" (memory 0))'
    return guest


def without_allocator() -> Guest:
    guest = Guest().handles("")
    guest.realloc = ""
    return guest


def with_hook(signature: str) -> Guest:
    return Guest().add(f'(func (export "astrid-hook-trigger") {signature} (unreachable))')


def with_allocator(signature: str) -> Guest:
    guest = without_allocator()
    return guest.add(f'(func (export "cabi_realloc") {signature} (unreachable))')


def with_post(signature: str) -> Guest:
    return Guest().handles("").add(f'(func (export "cabi_post_astrid-hook-trigger") {signature} (unreachable))')


REFUSED: dict[str, tuple[Make, tuple[str, ...]]] = {
    "is no WebAssembly": (lambda: b"hello", ("no WebAssembly",)),
    "is cut off": (lambda: Guest().handles("").wasm()[:-9], ("malformed",)),
    "exports no memory": (without_memory, ("memory",)),
    "exports no hook": (Guest, ("astrid-hook-trigger",)),
    "exports no allocator": (without_allocator, ("cabi_realloc",)),
    "has a hook of another signature": (lambda: with_hook("(param i32) (result i64)"), ("astrid-hook-trigger",)),
    "has a hook with many results": (lambda: with_hook("(param i32 i32 i32 i32) (result i32 i32)"), ("i32, i32",)),
    "has an allocator of another signature": (lambda: with_allocator("(param i64) (result i32)"), ("cabi_realloc",)),
    "has an allocator that takes references": (
        lambda: with_allocator("(param externref externref externref externref) (result i32)"),
        ("cabi_realloc",),
    ),
    "has an allocator with many results": (
        lambda: with_allocator(f"(param i32 i32 i32 i32) (result {'i64 ' * 100})"),
        ("cabi_realloc",),
    ),
    "has a post-return function of another signature": (
        lambda: with_post(f"(param i32) (result {'i64 ' * 100})"),
        ("cabi_post_astrid-hook-trigger",),
    ),
    "imports what nobody has": (
        lambda: Guest(
            f'(import "{IPC}" "publishh" (func))',
            '(import "astrid:nothing/host@1.0.0" "x" (func))',
            '(import "env" "fork" (func))',
        ).handles(""),
        ("publishh: did you mean", f"{IPC} publish?", "astrid:nothing/host@1.0.0 x", "env fork"),
    ),
    "imports with another signature": (
        lambda: Guest(f'(import "{IPC}" "publish" (func (param i32)))', publishes=False).handles(""),
        ("publish", "(i32)", "wit/"),
    ),
    "imports a memory": (imports_memory, ("env memory",)),
    "imports WASI": (
        lambda: Guest(
            '(import "wasi_snapshot_preview1" "fd_write" (func (param i32 i32 i32 i32) (result i32)))'
        ).handles(""),
        ("wasi_snapshot_preview1 fd_write", "wasm32-unknown-unknown"),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_a_module_that(name: str, tmp_path: Path) -> None:
    """It is kept as failed, with all that is wrong; the others load."""
    make, told_of = REFUSED[name]
    bad(tmp_path, make())  # type: ignore[arg-type]
    async with hosted(tmp_path) as host:
        found = host.capsules["bad"]
        assert found.state == "failed"
        for text in told_of:
            assert text in (found.error or "")
        await good_still_answers(host)


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


# What once took the process down, each in a process of its own.


async def waits_in_its_allocator(place: Path) -> None:
    body = f"(call $recv (i32.const 1) (i64.const 1000) (i32.const {RETURNED})) (i32.const 4096)"
    bad(place, allocator(Guest(RECV).handles(""), body))
    async with hosted(place) as host:
        report = await report_of(host, "bad.ask")
        assert report["reason"] == "guest-fault"
        assert "cabi_realloc" in report["detail"]
        await good_still_answers(host)


async def waits_in_its_post_return_function(place: Path) -> None:
    guest = Guest(RECV).handles("")
    body = f"(call $recv (i32.const 1) (i64.const 1000) (i32.const {RETURNED}))"
    bad(place, guest.add(f'(func (export "cabi_post_astrid-hook-trigger") (param i32) {body})'))
    async with hosted(place) as host:
        assert (await report_of(host, "bad.ask"))["reason"] == "guest-fault"
        await good_still_answers(host)


async def waits_in_its_allocator_during_a_wait(place: Path) -> None:
    """The result of a wait is lowered by the allocator, which waits."""
    guest = Guest(SUBSCRIBE, RECV, "(global $armed (mut i32) (i32.const 0))")
    wait = f"(call $recv (i32.load (i32.const {RETURNED + 4})) (i64.const 5000) (i32.const 1200))"
    arm = "(global.set $armed (i32.const 1))"
    subscribe = f"(call $subscribe {guest.text('bad.more')} (i32.const {RETURNED}))"
    guest.handles(subscribe + arm + guest.say("bad.said") + wait)
    allocator(
        guest,
        f"(if (global.get $armed) (then {wait}))(call $alloc (local.get 0) (local.get 1) (local.get 2) (local.get 3))",
    )
    bad(place, guest, subscribe={**ASK, "bad.more": {}})
    async with hosted(place) as host, host.subscribe("bad.said") as said, host.subscribe(FAILED + "bad.ask") as failed:
        host.publish("bad.ask", 1)
        await next_of(said)
        host.publish("bad.more", 2)
        assert (await next_of(failed)).payload["reason"] == "guest-fault"
        await good_still_answers(host)


async def never_returns_from_an_allocator_of_a_module_that_waits(place: Path) -> None:
    bad(place, allocator(Guest(RECV).handles(""), spin() + "(unreachable)"))
    async with hosted(place) as host:
        assert (await report_of(host, "bad.ask"))["reason"] == "trap"
        await good_still_answers(host)


async def recurses_in_an_allocator_from_a_host_function(place: Path) -> None:
    guest = Guest(SUBSCRIBE, POLL, "(global $armed (mut i32) (i32.const 0))")
    poll = f"(call $poll (i32.load (i32.const {RETURNED + 4})) (i32.const 1200))"
    subscribe = f"(call $subscribe {guest.text('bad.said')} (i32.const {RETURNED}))"
    guest.handles(subscribe + guest.say("bad.said") + "(global.set $armed (i32.const 1))" + poll)
    guest.add(f"(func $deeper {ALLOC} (call $deeper (local.get 0) (local.get 1) (local.get 2) (local.get 3)))")
    args = "(local.get 0) (local.get 1) (local.get 2) (local.get 3)"
    allocator(guest, f"(if (result i32) (global.get $armed) (then (call $deeper {args})) (else (call $alloc {args})))")
    bad(place, guest, subscribe={**ASK, "bad.said": {}})
    async with hosted(place) as host:
        assert (await report_of(host, "bad.ask"))["reason"] == "trap"
        await good_still_answers(host)


async def publishes_deep_json_from_deep_recursion(place: Path) -> None:
    """The host function runs on what the guest left of its stack."""
    guest = Guest()
    depth = 20_000
    down = "(if (local.get 0) (then (call $deep (i32.sub (local.get 0) (i32.const 1)))) (else {}))"
    nested = f"(call $publish {guest.text('bad.said')} (i32.const {HEAP}) (i32.const {depth}))"
    guest.add(f"(func $deep (param i32) {down.format(nested)})")
    fill = f"(memory.fill (i32.const {HEAP}) (i32.const {ord('[')}) (i32.const {depth}))"
    bad(place, guest.handles(fill + "(call $deep (i32.const 10000))"))
    async with hosted(place) as host, host.subscribe(FAILED + "*") as failed:
        host.publish("bad.ask", 1)
        assert (await next_of(failed)).payload["reason"] in ("publish-denied", "trap")
        await good_still_answers(host)


ALONE: list[Callable[[Path], Awaitable[None]]] = [
    waits_in_its_allocator,
    waits_in_its_post_return_function,
    waits_in_its_allocator_during_a_wait,
    never_returns_from_an_allocator_of_a_module_that_waits,
    recurses_in_an_allocator_from_a_host_function,
    publishes_deep_json_from_deep_recursion,
]


def test_guests_that_could_take_the_process_down_do_not(tmp_path: Path) -> None:
    """Each in a process of its own; all at once, because a start takes longer than the test."""
    support = Path(sys.modules["guests_in_wat"].__file__ or "").parent
    environment = {**os.environ, "PYTHONPATH": str(support)}
    running = {
        act.__name__: subprocess.Popen(
            [sys.executable, __file__, act.__name__, str(tmp_path / act.__name__)],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for act in ALONE
    }
    ended = {name: (process.communicate(timeout=50)[1], process.returncode) for name, process in running.items()}
    assert {name: said for name, (said, code) in ended.items() if code} == {}


if __name__ == "__main__":
    scenario = next(act for act in ALONE if act.__name__ == sys.argv[1])
    trio.run(scenario, Path(sys.argv[2]))
