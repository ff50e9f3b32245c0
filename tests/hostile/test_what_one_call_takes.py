"""Texts and lists of one call: a function takes so many bytes of all its arguments, and refuses more before it copies."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from guests_in_wat import RESULT, RETURNED, Guest, bad, good_still_answers, hosted, next_of, report_of

MIB = 1 << 20
PAGES = 640  # 40 MiB: the default limit lets a guest have more
BIG = "(i32.const 131072) (i32.const 33554432)"  # 32 MiB that lie there

SET = '(import "astrid:kv/host@1.0.0" "kv-set" (func $set (param i32 i32 i32 i32 i32)))'
WRITE = '(import "astrid:fs/host@1.0.0" "write-file" (func $write (param i32 i32 i32 i32 i32)))'
STAT = '(import "astrid:fs/host@1.0.0" "fs-stat" (func $stat (param i32 i32 i32)))'
LOG = '(import "astrid:sys/host@1.0.0" "log" (func $log (param i32 i32 i32)))'
POLL = '(import "astrid:io/poll@1.0.0" "poll" (func $poll (param i32 i32 i32)))'
STATUS = '(import "astrid:process/host@1.1.0" "status-many" (func $status (param i32 i32 i32)))'
SUBSCRIBE = '(import "astrid:ipc/host@1.0.0" "subscribe" (func $subscribe (param i32 i32 i32)))'
SEND = '(import "astrid:uplink/host@1.0.0" "uplink-send" (func $send (param i32 i32 i32 i32 i32 i32 i32)))'
# A list of 400,000 texts that are all the same 32 MiB.
SAME = """
  (local.set $i (i32.const 34603008))
  (loop $fill (i32.store (local.get $i) (i32.const 131072)) (i32.store offset=4 (local.get $i) (i32.const 33554432))
    (br_if $fill (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 8))) (i32.const 37803008))))"""
TEXTS = "(i32.const 34603008) (i32.const 400000)"
ANSWERED = "(if (i32.ne (i32.load8_u (i32.const 1104)) (i32.const 1)) (then (unreachable)))"

TYPED = {
    "publishes a text": ("", f"(call $publish_raw (i32.const 2048) (i32.const 8) {BIG} (i32.const {RETURNED}))"),
    "publishes on a topic": ("", f"(call $publish_raw {BIG} (i32.const 2048) (i32.const 8) (i32.const {RETURNED}))"),
    "stores a value": (SET, f"(call $set (i32.const 2048) (i32.const 3) {BIG} (i32.const {RETURNED}))"),
    "stores under a key": (SET, f"(call $set {BIG} (i32.const 2048) (i32.const 3) (i32.const {RETURNED}))"),
    "writes a file": (WRITE, f"(call $write (i32.const 2048) (i32.const 3) {BIG} (i32.const {RETURNED}))"),
    "names a file": (STAT, f"(call $stat {BIG} (i32.const {RETURNED}))"),
    "subscribes": (SUBSCRIBE, f"(call $subscribe {BIG} (i32.const {RETURNED}))"),
    "asks for processes with many names": (STATUS, f"{SAME} (call $status {TEXTS} (i32.const {RETURNED}))"),
    "sends to another platform": (
        SEND,
        f"(call $send (i32.const 2048) (i32.const 3) (i32.const 2048) (i32.const 3) {BIG} (i32.const {RETURNED}))",
    ),
}
FAULTS = {
    "logs": (LOG, f"(call $log (i32.const 1) {BIG})"),
    "returns a text": (
        "",
        f"(i32.store8 (i32.const {RESULT + 8}) (i32.const 1)) (i32.store (i32.const {RESULT + 12}) "
        f"(i32.const 131072)) (i32.store (i32.const {RESULT + 16}) (i32.const 33554432))",
    ),
    "returns a word": (
        "",
        f"(i32.store (i32.const {RESULT}) (i32.const 131072)) "
        f"(i32.store (i32.const {RESULT + 4}) (i32.const 33554432))",
    ),
}


async def peak_of(place: Path, imports: str, body: str, *, ends: str) -> int:
    """Let the guest do it; the most that Python objects took meanwhile, in bytes."""
    guest = Guest(*([imports] if imports else []), pages=PAGES)
    guest.handles(body + guest.say("bad.said", "1"))
    rights: dict[str, Any] = {"fs_read": ["cwd://"], "fs_write": ["cwd://"], "uplink": True, "host_process": ["true"]}
    bad(place, guest, capabilities=rights, limits={"timeout_secs": 5})
    async with hosted(place, trust=True) as host, host.subscribe("bad.said") as said:
        await good_still_answers(host)
        tracemalloc.start()
        try:
            if ends == "answered":
                host.publish("bad.ask", 1)
                assert (await next_of(said)).payload == 1
            else:
                assert (await report_of(host, "bad.ask"))["reason"] == ends
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        await good_still_answers(host)
    return peak


@pytest.mark.parametrize("what", TYPED)
async def test_a_guest_that_gives_too_much_is_answered_with_an_error_and_nothing_is_copied(
    what: str, tmp_path: Path
) -> None:
    imports, call = TYPED[what]
    assert await peak_of(tmp_path, imports, call + ANSWERED, ends="answered") < 4 * MIB


@pytest.mark.parametrize("what", FAULTS)
async def test_a_guest_that_gives_too_much_where_no_error_can_be_told_ends_as_a_fault(
    what: str, tmp_path: Path
) -> None:
    imports, call = FAULTS[what]
    assert await peak_of(tmp_path, imports, call, ends="guest-fault") < 4 * MIB


async def test_the_operator_may_say_what_any_call_may_take(tmp_path: Path) -> None:
    """Within what its function takes, a value is refused when the host's ceiling is lower."""
    guest = Guest(SET, pages=64)
    call = f"(call $set (i32.const 2048) (i32.const 3) (i32.const 131072) (i32.const 1000000) (i32.const {RETURNED}))"
    guest.handles(call + ANSWERED + guest.say("bad.said", "1"))
    bad(tmp_path, guest)
    async with hosted(tmp_path, limits={"call_bytes": "512KiB"}) as host, host.subscribe("bad.said") as said:
        host.publish("bad.ask", 1)
        assert (await next_of(said)).payload == 1
