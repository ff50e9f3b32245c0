"""How an event reaches its handlers: alone, as independent copies, or along a chain; in order for each principal."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import trio
from guests_in_wat import (
    FAILED,
    Guest,
    capsule,
    compute,
    good,
    good_still_answers,
    hosted,
    next_of,
    report_of,
)

from astrid_host import Host


def says(place: Path, name: str, row: dict[str, Any] | str, body: str = "", topic: str = "a.ask", **more: Any) -> None:
    """A capsule that says what it got on `said.<its name>`, and then does `body`."""
    guest = Guest()
    guest.handles(guest.say(f"said.{name}") + body)
    capsule(place, name, guest, {topic: row}, ["said.*"], **more)


def ends(place: Path, name: str, row: dict[str, Any], word: str, data: str = "") -> None:
    """A capsule that says what it got, and then answers with that action word and data."""
    guest = Guest()
    guest.handles(guest.say(f"said.{name}") + guest.answer(word, data))
    capsule(place, name, guest, {"a.ask": row}, ["said.*"])


def row(priority: int = 100, **more: Any) -> dict[str, Any]:
    return {"handler": "act", "priority": priority, **more}


async def heard(host: Host, payload: Any, said: int = 1, reports: int = 0) -> list[tuple[str, Any]]:
    """What is said and reported when that is published. Twice, so that one too many would show in the second round."""
    rounds = []
    async with host.subscribe("said.*") as saying, host.subscribe(FAILED + "*") as failing:
        for _ in range(2):
            host.publish("a.ask", payload)
            events = [await next_of(saying) for _ in range(said)]
            failures = [(await next_of(failing)).payload for _ in range(reports)]
            rounds.append(
                [(event.topic.removeprefix("said."), event.payload) for event in events]
                + [(report["reason"], {**report, "seq": 0}) for report in failures]
            )
    assert sorted(map(repr, rounds[0])) == sorted(map(repr, rounds[1]))
    return rounds[0]


async def test_one_handler_gets_the_event(tmp_path: Path) -> None:
    says(tmp_path, "one", row())
    async with hosted(tmp_path) as host:
        assert await heard(host, {"n": 1}) == [("one", {"n": 1})]


async def test_an_event_that_nobody_receives_is_reported(tmp_path: Path) -> None:
    says(tmp_path, "one", row())
    async with hosted(tmp_path) as host:
        report = await report_of(host, "b.ask", {"n": 1})
        assert (report["reason"], report["topic"], report["handlers"]) == ("no-handler", "b.ask", 0)
        assert (report["capsule"], report["payload"]) == (None, {"n": 1})


async def test_a_subscription_receives_but_an_observer_does_not(tmp_path: Path) -> None:
    good(tmp_path)
    async with hosted(tmp_path) as host, host.subscribe(FAILED + "*") as failed:
        async with host.subscribe("b.*") as events:
            host.publish("b.ask", 1)
            assert (await next_of(events)).payload == 1
        async with host.subscribe("b.*", observe=True) as events:
            host.publish("b.ask", 2)
            assert (await next_of(events)).payload == 2
        assert (await next_of(failed)).payload["payload"] == 2


async def test_an_event_that_only_guards_match_is_reported_and_they_do_not_run(tmp_path: Path) -> None:
    says(tmp_path, "guard", row(guard=True))
    async with hosted(tmp_path) as host:
        assert [what for what, _ in await heard(host, 1, 0, 1)] == ["no-handler"]


async def test_a_topic_that_a_row_excepts_does_not_come_to_its_handler(tmp_path: Path) -> None:
    guest = Guest()
    guest.handles(guest.say("heard.it"))
    capsule(tmp_path, "x", guest, {"a.*": {"handler": "act", "except": ["a.b"]}}, ["heard.it"])
    async with hosted(tmp_path) as host, host.subscribe("heard.it") as heard, host.subscribe(FAILED + "*") as failed:
        host.publish("a.b", 1)
        assert (await next_of(failed)).payload["reason"] == "no-handler"
        host.publish("a.c", 2)
        assert (await next_of(heard)).payload == 2


async def test_a_guard_goes_before_what_it_guards(tmp_path: Path) -> None:
    ends(tmp_path, "guard", row(1, guard=True), "deny", "not today")
    says(tmp_path, "one", row())
    async with hosted(tmp_path) as host:
        said, (reason, report) = await heard(host, 5, 1, 1)
        assert said == ("guard", 5)
        assert (reason, report["detail"], report["capsule"]) == ("deny", "not today", "guard")


async def test_a_guard_goes_first_whatever_the_priorities(tmp_path: Path) -> None:
    ends(tmp_path, "guard", row(100, guard=True), "deny", "not today")
    says(tmp_path, "one", row(0))
    says(tmp_path, "two", row(100))
    async with hosted(tmp_path) as host:
        said, (reason, report) = await heard(host, 5, 1, 1)
        assert (said, reason) == (("guard", 5), "deny")
        assert (report["capsule"], report["handlers"], report["done"]) == ("guard", 1, 0)


async def test_what_a_guard_returns_does_not_replace_what_it_let_pass(tmp_path: Path) -> None:
    ends(tmp_path, "guard", row(1, guard=True), "continue", '{"changed":true}')
    ends(tmp_path, "second", row(2, guard=True), "continue", '{"changed":2}')
    says(tmp_path, "one", row())
    async with hosted(tmp_path) as host:
        assert await heard(host, 5, 3) == [("guard", 5), ("second", 5), ("one", 5)]


async def test_independent_copies_and_chains_behind_a_guard_are_what_they_are_without(tmp_path: Path) -> None:
    says(tmp_path, "guard", row(1, guard=True))
    says(tmp_path, "a", row())
    says(tmp_path, "b", row())
    async with hosted(tmp_path) as host:
        said = await heard(host, 5, 3)
        assert said[0] == ("guard", 5)
        assert sorted(said) == [("a", 5), ("b", 5), ("guard", 5)]
        assert host.stats().failures == {}


async def test_a_subscription_gets_an_event_once_its_guards_let_it_pass_and_not_before(tmp_path: Path) -> None:
    ends(tmp_path, "guard", row(guard=True), "continue")
    async with hosted(tmp_path) as host, host.subscribe("a.ask") as asked, host.subscribe("said.guard") as said:
        host.publish("a.ask", 1)
        assert (await next_of(asked)).payload == 1
        assert (await next_of(said)).payload == 1
    ends(tmp_path / "denying", "deny", row(guard=True), "deny", "no")
    async with (
        hosted(tmp_path / "denying") as host,
        host.subscribe("a.*") as events,
        host.subscribe(FAILED + "a.ask") as failed,
    ):
        host.publish("a.ask", 1)
        assert (await next_of(failed)).payload["reason"] == "deny"
        host.publish("a.other", 2)
        assert (await next_of(events)).topic == "a.other"


async def test_an_event_settles_once_with_the_account_of_those_behind_the_guard(tmp_path: Path) -> None:
    says(tmp_path, "guard", row(1, guard=True))
    says(tmp_path, "a", row())
    says(tmp_path, "b", row())
    async with hosted(tmp_path) as host, host.subscribe("astrid.v1.dispatch.settled.a.ask") as settled:
        for _ in range(2):
            host.publish("a.ask", 1, settle=True)
            told = (await next_of(settled)).payload
            assert (told["handlers"], told["done"], told["failed"], told["skipped"]) == (2, 2, 0, 0)


# Independent copies.


async def test_equal_priorities_are_independent_copies(tmp_path: Path) -> None:
    """What one of them answers changes nothing for the others."""
    ends(tmp_path, "a", row(), "continue", '{"changed":true}')
    ends(tmp_path, "b", row(), "final")
    says(tmp_path, "c", row())
    async with hosted(tmp_path) as host:
        assert sorted(await heard(host, 1, 3, 0)) == [("a", 1), ("b", 1), ("c", 1)]


async def test_copies_that_fail_make_one_report_that_names_them_all(tmp_path: Path) -> None:
    ends(tmp_path, "a", row(), "deny", "no")
    says(tmp_path, "b", row(), "(unreachable)")
    says(tmp_path, "c", row())
    async with hosted(tmp_path) as host:
        *said, (reason, report) = await heard(host, 1, 3, 1)
        assert sorted(said) == [("a", 1), ("b", 1), ("c", 1)]
        assert reason == "deny"
        assert (report["handlers"], report["done"], report["capsule"]) == (3, 1, "a")
        assert "b/act: trap" in report["detail"]
        assert sorted(report["published"]) == ["said.a", "said.b", "said.c"]


# Chains.


async def test_a_chain_goes_by_ascending_priority_with_each_payload_replaced(tmp_path: Path) -> None:
    ends(tmp_path, "last", row(30), "continue")
    ends(tmp_path, "first", row(10), "continue", '{"by":"first"}')
    ends(tmp_path, "mid", row(20), "continue", '{"by":"mid"}')
    async with hosted(tmp_path) as host:
        assert await heard(host, 1, 3, 0) == [("first", 1), ("mid", {"by": "first"}), ("last", {"by": "mid"})]


async def test_a_member_without_data_hands_on_what_it_got(tmp_path: Path) -> None:
    ends(tmp_path, "a", row(1), "continue", '"new"')
    ends(tmp_path, "b", row(2), "continue")
    ends(tmp_path, "c", row(3), "continue")
    async with hosted(tmp_path) as host:
        assert await heard(host, 1, 3, 0) == [("a", 1), ("b", "new"), ("c", "new")]


async def test_final_ends_a_chain_well(tmp_path: Path) -> None:
    ends(tmp_path, "a", row(1), "final", "whatever")
    says(tmp_path, "b", row(2))
    async with hosted(tmp_path) as host:
        assert await heard(host, 1) == [("a", 1)]


@pytest.mark.parametrize("word", ["deny", "abort"])
async def test_a_refusal_ends_a_chain_and_is_reported(word: str, tmp_path: Path) -> None:
    ends(tmp_path, "a", row(1, on_error="continue"), word, "because")
    says(tmp_path, "b", row(2))
    async with hosted(tmp_path) as host:
        said, (reason, report) = await heard(host, 1, 1, 1)
        assert said == ("a", 1)
        assert (reason, report["detail"], report["handlers"], report["done"]) == ("deny", "because", 1, 0)


async def test_a_trap_ends_a_chain_and_is_reported_once(tmp_path: Path) -> None:
    says(tmp_path, "a", row(1))
    says(tmp_path, "b", row(2), "(unreachable)")
    says(tmp_path, "c", row(3))
    async with hosted(tmp_path) as host:
        first, second, (reason, report) = await heard(host, 1, 2, 1)
        assert (first, second) == (("a", 1), ("b", 1))
        assert (reason, report["capsule"], report["published"]) == ("trap", "b", ["said.a", "said.b"])


async def test_on_error_continue_lets_a_chain_go_on_with_the_payload_as_it_was(tmp_path: Path) -> None:
    ends(tmp_path, "a", row(1), "continue", '"new"')
    says(tmp_path, "b", row(2, on_error="continue"), "(unreachable)")
    says(tmp_path, "c", row(3))
    async with hosted(tmp_path) as host:
        assert await heard(host, 1, 3, 0) == [("a", 1), ("b", "new"), ("c", "new")]


async def test_two_rows_of_one_capsule_are_members_of_one_chain(tmp_path: Path) -> None:
    guest = Guest()
    guest.handles(guest.when("x", guest.say("said.x")) + guest.when("y", guest.say("said.y")))
    rows = {"a.ask": {"handler": "y", "priority": 2}, "a.*": {"handler": "x", "priority": 1}}
    capsule(tmp_path, "both", guest, rows, ["said.*"])
    async with hosted(tmp_path) as host:
        assert await heard(host, 1, 2, 0) == [("x", 1), ("y", 1)]


# Replies.


async def test_what_a_handler_returns_is_published_where_its_row_says(tmp_path: Path) -> None:
    guest = Guest()
    capsule(tmp_path, "r", guest.handles(guest.answer("final", '{"n":2}')), {"a.ask": row(reply="said.r")}, ["said.*"])
    async with hosted(tmp_path) as host:
        assert await heard(host, 1) == [("r", {"n": 2})]


async def test_a_reply_that_may_not_be_published_is_reported(tmp_path: Path) -> None:
    guest = Guest()
    capsule(tmp_path, "r", guest.handles(guest.answer("final", "{")), {"a.ask": row(reply="said.r")}, ["said.*"])
    async with hosted(tmp_path) as host:
        ((reason, report),) = await heard(host, 1, 0, 1)
        assert (reason, report["topic"], report["capsule"]) == ("publish-denied", "said.r", "r")


async def test_a_refused_reply_publishes_nothing(tmp_path: Path) -> None:
    guest = Guest()
    capsule(tmp_path, "r", guest.handles(guest.answer("deny", "1")), {"a.ask": row(reply="said.r")}, ["said.*"])
    async with hosted(tmp_path) as host:
        assert [what for what, _ in await heard(host, 1, 0, 1)] == ["deny"]


# Order, room and concurrency.


async def test_events_of_one_principal_are_handled_in_order(tmp_path: Path) -> None:
    """200 events, published by guests at once, while every third call computes long enough to change threads."""
    guest = Guest()
    many = "".join(guest.say("a.ask", str(n)) for n in range(200))
    capsule(tmp_path, "many", guest.handles(many), {"go": "act"}, ["a.ask"])
    slow = "(if (i32.eq (i32.load8_u (local.get $payload)) (i32.const 51)) (then " + compute(2_000_000) + "))"
    says(tmp_path, "one", row(), slow)
    async with hosted(tmp_path) as host, host.subscribe("said.one", principal="alice") as said:
        async with host.subscribe("said.one", principal="bob") as others:
            host.publish("go", 1, principal="alice")
            host.publish("go", 1, principal="bob")
            assert [(await next_of(said)).payload for _ in range(200)] == list(range(200))
            assert [(await next_of(others)).payload for _ in range(200)] == list(range(200))


async def test_a_sixty_fifth_entering_event_is_dropped_and_reported(tmp_path: Path) -> None:
    """Published from the loop's thread while its turn cannot begin: one runs, 64 wait, each other is reported."""
    says(tmp_path, "one", row())
    async with hosted(tmp_path) as host, host.subscribe("said.*") as said, host.subscribe(FAILED + "*") as failed:
        published = threading.Thread(target=lambda: [host.publish("a.ask", n) for n in range(100)])
        published.start()
        published.join()  # the loop stands still meanwhile, so nothing is handled
        reports = [(await next_of(failed)).payload for _ in range(36)]
        assert {report["reason"] for report in reports} == {"queue-full"}
        assert [report["payload"] for report in reports] == list(range(64, 100))
        assert {(report["capsule"], report["handlers"], report["done"]) for report in reports} == {("one", 1, 0)}
        assert [(await next_of(said)).payload for _ in range(64)] == list(range(64))
        host.publish("no.body", 1)
        assert (await next_of(failed)).payload["topic"] == "no.body"


async def test_a_full_queue_is_full_for_its_principal_only(tmp_path: Path) -> None:
    says(tmp_path, "one", row())
    async with hosted(tmp_path) as host, host.subscribe("said.*", principal="bob") as said:
        published = threading.Thread(
            target=lambda: (
                [host.publish("a.ask", n, principal="alice") for n in range(80)]
                + [host.publish("a.ask", n, principal="bob") for n in range(64)]
            )
        )
        published.start()
        published.join()
        assert [(await next_of(said)).payload for _ in range(64)] == list(range(64))


async def test_events_that_follow_have_more_room_than_those_that_enter(tmp_path: Path) -> None:
    guest = Guest()
    capsule(tmp_path, "many", guest.handles(guest.say("a.ask") * 500), {"go": "act"}, ["a.ask"])
    says(tmp_path, "one", row())
    async with hosted(tmp_path) as host, host.subscribe("said.*") as said:
        host.publish("go", 7)
        assert [(await next_of(said)).payload for _ in range(500)] == [7] * 500


async def test_publishing_from_many_threads_loses_nothing(tmp_path: Path) -> None:
    good(tmp_path)
    async with hosted(tmp_path) as host, host.subscribe("good.said") as said:
        seqs: list[int] = []

        def publish(me: int) -> None:
            seqs.extend(host.publish("good.ask", [me, n], principal=f"{me}") for n in range(50))

        threads = [threading.Thread(target=publish, args=(me,)) for me in range(4)]
        for thread in threads:
            thread.start()
        events = [await next_of(said) for _ in range(200)]
        for thread in threads:
            thread.join()
        assert len(set(seqs)) == 200
        for me in range(4):
            assert [event.payload[1] for event in events if event.payload[0] == me] == list(range(50))
            assert {event.principal for event in events if event.payload[0] == me} == {f"{me}"}


async def test_publishing_on_the_loops_thread_is_handled_before_it_returns(tmp_path: Path) -> None:
    good(tmp_path)
    async with hosted(tmp_path) as host:
        host.publish("good.ask", 1)
        assert host.capsules["good"].calls == 1


@pytest.mark.parametrize("topic", ["", "a..b", ".a", "a.b.c.d.e.f.g.h.i", "x" * 257])
async def test_the_host_publishes_on_no_malformed_topic(topic: str, tmp_path: Path) -> None:
    good(tmp_path)
    async with hosted(tmp_path) as host:
        with pytest.raises(ValueError):
            host.publish(topic, 1)
        with pytest.raises(ValueError, match="only the host itself"):
            host.publish(FAILED + "x", 1)
        await good_still_answers(host)


async def test_calls_and_traps_are_counted(tmp_path: Path) -> None:
    says(tmp_path, "one", row(), "(unreachable)")
    good(tmp_path)
    async with hosted(tmp_path) as host:
        for _ in range(3):
            await report_of(host, "a.ask")
        await good_still_answers(host)
        while host.capsules["good"].calls == 0 or host.capsules["one"].calls < 3:  # a call ends after what it publishes
            await trio.lowlevel.checkpoint()
        assert (host.capsules["one"].calls, host.capsules["one"].traps) == (3, 3)
        assert (host.capsules["good"].calls, host.capsules["good"].traps) == (1, 0)
