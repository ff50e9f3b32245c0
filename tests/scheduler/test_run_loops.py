"""A capsule whose `run` is real serves by receiving: its caller follows the message, its time starts anew at each wait."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from guests_in_wat import (
    FAILED,
    FIRST,
    MESSAGE,
    READY,
    RECEIVED,
    RECV,
    SUBSCRIBE,
    Guest,
    capsule,
    compute,
    good,
    good_still_answers,
    hosted,
    next_of,
    receive,
    spin,
)


def loop(place: Path, body: str = "", name: str = "loop", **more: Any) -> None:
    """Subscribes to `l.ask`, says that it is ready, and says each message again on `said.<name>`, after `body`."""
    guest = Guest(SUBSCRIBE, RECV, READY)
    guest.add(
        f"""(func (export "run") (local $i i32) (local $j i32)
          {guest.subscribe("l.ask")}
          (call $ready)
          (loop $again
            (global.set $heap (i32.const 65536))
            {receive()}
            (if {RECEIVED} (then
              {body}
              (call $publish {guest.text(f"said.{name}")}
                {MESSAGE})))
            (br $again)))"""
    )
    capsule(place, name, guest, {"l.ask": {}}, ["said.*"], **more)


def when_first_byte(byte: str, body: str) -> str:
    return f"(if (i32.eq (i32.load8_u (i32.load offset=8 {FIRST})) (i32.const {ord(byte)})) (then {body}))"


async def test_a_run_loop_receives_everybodys_messages_and_answers_on_their_behalf(tmp_path: Path) -> None:
    loop(tmp_path)
    async with hosted(tmp_path) as host, host.subscribe("said.loop") as said:
        assert host.capsules["loop"].state == "ready"
        for n in range(50):
            who = f"p{n % 3}"
            host.publish("l.ask", n, principal=who)
            event = await next_of(said)
            assert (event.payload, event.principal) == (n, who)


async def test_messages_that_came_while_it_was_at_work_are_not_lost(tmp_path: Path) -> None:
    loop(tmp_path)
    async with hosted(tmp_path) as host, host.subscribe("said.loop") as said:
        for n in range(200):
            host.publish("l.ask", n)
        assert [(await next_of(said)).payload for _ in range(200)] == list(range(200))


async def test_the_time_of_a_run_loop_starts_anew_at_each_wait(tmp_path: Path) -> None:
    """Together its messages take far longer than one may."""
    loop(tmp_path, compute(500_000), limits={"timeout_secs": 0.5})
    async with hosted(tmp_path) as host, host.subscribe("said.loop") as said:
        for n in range(2500):
            host.publish("l.ask", n)
            assert (await next_of(said)).payload == n


@pytest.mark.parametrize(
    ("body", "reason"), [("(unreachable)", "trap"), (spin(), "timeout")], ids=["traps", "computes without end"]
)
async def test_a_run_loop_that_fails_is_reported_on_its_message(body: str, reason: str, tmp_path: Path) -> None:
    loop(tmp_path, when_first_byte("9", body), limits={"timeout_secs": 0.05})
    good(tmp_path)
    async with hosted(tmp_path) as host, host.subscribe("said.loop") as said, host.subscribe(FAILED + "*") as failed:
        host.publish("l.ask", 1)
        assert (await next_of(said)).payload == 1
        host.publish("l.ask", 9, principal="bob")
        report = (await next_of(failed)).payload
        assert (report["reason"], report["topic"], report["capsule"]) == (reason, "l.ask", "loop")
        assert (report["principal"], report["payload"]) == ("bob", 9)
        assert host.capsules["loop"].state == "failed"
        assert "run loop failed" in (host.capsules["loop"].error or "")
        await good_still_answers(host)


async def test_the_report_of_a_run_loop_names_what_it_published_for_that_message_only(tmp_path: Path) -> None:
    loop(
        tmp_path,
        when_first_byte("9", "(call $publish_raw (i32.const 2048) (i32.const -1)" + " (i32.const 0)" * 3 + ")"),
    )
    async with hosted(tmp_path) as host, host.subscribe("said.loop") as said, host.subscribe(FAILED + "*") as failed:
        host.publish("l.ask", 1)
        await next_of(said)
        host.publish("l.ask", 9)
        report = (await next_of(failed)).payload
        assert (report["reason"], report["published"]) == ("guest-fault", [])


async def test_after_a_run_loop_failed_its_messages_have_no_receiver(tmp_path: Path) -> None:
    loop(tmp_path, when_first_byte("9", "(unreachable)"))
    async with hosted(tmp_path) as host, host.subscribe(FAILED + "l.ask") as failed:
        host.publish("l.ask", 9)
        assert (await next_of(failed)).payload["reason"] == "trap"
        host.publish("l.ask", 1)
        assert (await next_of(failed)).payload["reason"] == "no-handler"


async def test_a_refused_publish_of_a_run_loop_is_reported(tmp_path: Path) -> None:
    """On the message that it handled, when it looks for the next."""
    guest = Guest(SUBSCRIBE, RECV, READY)
    guest.add(
        f"""(func (export "run") (local $j i32)
          {guest.subscribe("l.ask")}
          (call $ready)
          (loop $again
            {receive()}
            {guest.say("else.where", "1")}
            (br $again)))"""
    )
    capsule(tmp_path, "loop", guest, {"l.ask": {}}, ["said.*"])
    async with hosted(tmp_path) as host, host.subscribe(FAILED + "*") as failed:
        host.publish("l.ask", 5)
        report = (await next_of(failed, 3)).payload
        assert (report["reason"], report["topic"], report["payload"]) == ("publish-denied", "else.where", 5)


async def test_a_run_that_returns_at_once_is_a_stub(tmp_path: Path) -> None:
    """Its capsule serves by its handlers, whether the stub can be told by its code or only by calling it."""
    for name, body in (("plain", ""), ("unsure", compute(1000))):
        guest = Guest()
        guest.handles(guest.say(f"said.{name}"))
        guest.add(f'(func (export "run") (local $i i32) {body})')
        capsule(tmp_path, name, guest, {f"{name}.ask": "act"}, ["said.*"])
    async with hosted(tmp_path) as host, host.subscribe("said.*") as said:
        for name in ("plain", "unsure"):
            host.publish(f"{name}.ask", 1)
            assert (await next_of(said)).topic == f"said.{name}"
            assert host.capsules[name].handlers == [f"{name}.ask"]


async def test_a_run_that_returns_after_it_reached_the_host_is_no_stub(tmp_path: Path) -> None:
    guest = Guest(READY)
    guest.handles(guest.say("said.x")).add('(func (export "run") (call $ready))')
    capsule(tmp_path, "x", guest, {"x.ask": "act"}, ["said.*"])
    async with hosted(tmp_path) as host:
        assert (host.capsules["x"].handlers, host.capsules["x"].inactive) == ([], ["x.ask"])


async def test_a_run_that_traps_at_once_fails_its_capsule_only(tmp_path: Path) -> None:
    guest = Guest().add('(func (export "run") (unreachable))')
    capsule(tmp_path, "bad", guest)
    good(tmp_path)
    async with hosted(tmp_path) as host:
        assert host.capsules["bad"].state == "failed"
        await good_still_answers(host)


async def test_a_run_that_computes_without_end_does_not_keep_the_host_from_starting(tmp_path: Path) -> None:
    guest = Guest().add(f'(func (export "run") {spin()})')
    capsule(tmp_path, "bad", guest, limits={"timeout_secs": 0.2})
    good(tmp_path)
    async with hosted(tmp_path) as host:
        assert host.capsules["bad"].state == "failed"
        await good_still_answers(host)
