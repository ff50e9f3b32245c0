"""astrid:approval as guests call it: what is asked, who may answer, what is remembered, and how waits end."""

from __future__ import annotations

import gc
import threading
import uuid

import pytest
import trio
from people import (
    CLIENT,
    SOURCE,
    Says,
    Town,
    answer,
    asked_and_answered,
    call,
    in_no_time,
    payload_of,
    refused,
    request,
    town,
)

from astrid_host.errors import HostError
from astrid_host.hostcalls.approval import ANSWERS, TOPIC, Approval
from astrid_host.hostcalls.auditor import Auditor
from astrid_host.payloads import NIL_SOURCE, parse
from astrid_host.stores import Database
from astrid_host.stores.approvals import ApprovalStore, Holder
from astrid_host.stores.audit import AuditStore

WORKSPACE = "/work"
HOLDER = Holder("alice", WORKSPACE, "shell", "aa")


@pytest.fixture
def store(database: Database) -> ApprovalStore:
    return ApprovalStore(database)


def test_it_has_the_function_of_the_interface_and_it_waits(store: ApprovalStore) -> None:
    async def body(here: Town) -> None:
        functions = Approval(here.questions, store, WORKSPACE).functions()
        assert list(functions) == ["request-approval"]
        assert functions["request-approval"].waits
        target = functions["request-approval"].audited
        assert target is not None
        assert target(request("a", "b")) == "a: b"
        assert len(target(request("a" * 10**6, "b" * 10**6))) < 20_000

    in_no_time(body)


async def test_the_question_is_for_the_caller_from_the_kernel_and_shows_all_there_is(store: ApprovalStore) -> None:
    resource = "rm  -rf 'a b' && echo ü | tee $HOME/x " + "y" * 900
    async with town() as here:
        here.client(TOPIC)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(
                Approval(here.questions, store, WORKSPACE).request_approval, call(), request("rm", resource)
            )
            event = await here.heard()
            assert (event.topic, event.principal, event.source_id) == (TOPIC, "alice", NIL_SOURCE)
            question = payload_of(event)
            assert question == {
                "type": "approval_required",
                "request_id": str(uuid.UUID(question["request_id"])),
                "action": "rm",
                "resource": resource,
                "reason": "Capsule 'shell' requests approval",
            }
            here.say(ANSWERS + question["request_id"], answer(question))


@pytest.mark.parametrize(
    ("decision", "expected"),
    [
        ("approve", "approved"),
        ("approve_session", "approved-session"),
        ("approve_always", "approved-always"),
        ("deny", "denied"),
        ("", "denied"),
        ("Approve", "denied"),
        ("approve ", "denied"),
        ("approved", "denied"),
        ("yes", "denied"),
    ],
)
async def test_a_decision_is_one_of_the_words_and_everything_else_denies(
    store: ApprovalStore, decision: str, expected: str
) -> None:
    async with town() as here:
        here.client(TOPIC)
        assert await asked_and_answered(here, Approval(here.questions, store, WORKSPACE), decision) == expected


def test_what_is_no_answer_is_passed_over_and_the_wait_goes_on(store: ApprovalStore) -> None:
    async def body(here: Town) -> None:
        here.client(TOPIC)
        got = []

        async def ask() -> None:
            got.append((await Approval(here.questions, store, WORKSPACE).request_approval(call(), request())).decision)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            question = payload_of(await here.heard())
            topic, good = ANSWERS + question["request_id"], answer(question)
            for payload, principal, source in (
                (good, "alice", SOURCE),  # the asking capsule itself
                (good, "bob", CLIENT),
                (good, "anonymous", CLIENT),
                (good, None, NIL_SOURCE),
                ({**good, "request_id": str(uuid.uuid4())}, "alice", CLIENT),
                ({"type": "approval_response", "request_id": question["request_id"]}, "alice", CLIENT),
                ({"decision": "approve"}, "alice", CLIENT),
                ("approve", "alice", CLIENT),
                (None, "alice", CLIENT),
            ):
                here.say(topic, payload, principal, source)
            here.say(ANSWERS + str(uuid.uuid4()), good)
            await trio.sleep(59)
            assert got == []
            here.say(topic, good)
        assert got == ["approved"]

    assert in_no_time(body) == pytest.approx(59, abs=0.5)


def test_the_first_answer_counts(store: ApprovalStore) -> None:
    async def body(here: Town) -> None:
        here.client(TOPIC)
        approval, got = Approval(here.questions, store, WORKSPACE), []

        async def ask() -> None:
            got.append((await approval.request_approval(call(), request())).decision)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            question = payload_of(await here.heard())
            for decision in ("deny", "approve_always", "approve"):
                here.say(ANSWERS + question["request_id"], answer(question, decision))
        assert got == ["denied"]
        assert store.all() == []

    in_no_time(body)


def test_without_an_answer_it_is_a_timeout_after_a_minute_and_nothing_is_left(store: ApprovalStore) -> None:
    topics = []

    async def body(here: Town) -> None:
        here.client(TOPIC)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(times_out, here)
            question = payload_of(await here.heard())
            topics.append(ANSWERS + question["request_id"])
            assert here.listens(topics[0])
        assert not here.listens(topics[0])
        here.say(topics[0], answer(question, "approve_always"))
        assert store.all() == []

    async def times_out(here: Town) -> None:
        case, detail = await refused(Approval(here.questions, store, WORKSPACE).request_approval(call(), request()))
        assert case == "timeout"
        assert "60 s" in detail

    assert in_no_time(body) == pytest.approx(60, abs=0.5)


@pytest.mark.parametrize("before", [True, False])
def test_an_answer_at_the_last_moment_counts_and_one_after_it_does_not(store: ApprovalStore, before: bool) -> None:
    """Told, but not yet woken: the time and the answer end the wait in the same step of the loop."""

    async def body(here: Town) -> None:
        here.client(TOPIC)
        got: list[str] = []

        async def ask() -> None:
            try:
                approval = Approval(here.questions, store, WORKSPACE)
                got.append((await approval.request_approval(call(), request())).decision)
            except HostError as error:
                got.append(error.case)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            question = payload_of(await here.heard())
            await trio.sleep_until(trio.current_time() + 60 - (0.0001 if before else -0.0001))
            with here.bus.lock:  # published, and nobody takes a turn
                here.bus.publish(
                    ANSWERS + question["request_id"],
                    parse(
                        f'{{"type":"approval_response","request_id":"{question["request_id"]}","decision":"approve"}}'
                    ),
                    "alice",
                    CLIENT,
                )
        assert got == ["approved" if before else "timeout"]

    in_no_time(body)


def test_a_cancelled_wait_leaves_nothing_and_an_answer_to_it_has_no_effect(store: ApprovalStore) -> None:
    async def body(here: Town) -> None:
        here.client(TOPIC)
        approval = Approval(here.questions, store, WORKSPACE)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(approval.request_approval, call(), request())
            question = payload_of(await here.heard())
            nursery.cancel_scope.cancel()
        topic = ANSWERS + question["request_id"]
        assert not here.listens(topic)
        here.say(topic, answer(question, "approve_always"))
        assert store.all() == []
        assert await asked_and_answered(here, approval, "deny") == "denied"

    in_no_time(body)


def test_fifty_wait_at_once_each_for_its_own_answer_and_no_thread_waits(store: ApprovalStore) -> None:
    async def body(here: Town) -> None:
        here.client(TOPIC)
        approval, got = Approval(here.questions, store, WORKSPACE), {}

        async def ask(number: int) -> None:
            decision = await approval.request_approval(call(f"p{number}"), request("run", f"run {number}"))
            got[number] = decision.decision

        threads = threading.active_count()
        async with trio.open_nursery() as nursery:
            for number in range(50):
                nursery.start_soon(ask, number)
            events = [await here.heard() for _ in range(50)]
            assert threading.active_count() == threads
            assert got == {}
            for event in reversed(events):
                question = payload_of(event)
                even = int(question["resource"].split()[1]) % 2 == 0
                decision = "approve" if even else "deny"
                here.say(ANSWERS + question["request_id"], answer(question, decision), event.principal)
        assert got == {number: "approved" if number % 2 == 0 else "denied" for number in range(50)}

    assert in_no_time(body) < 1


async def test_answers_come_from_any_thread(store: ApprovalStore) -> None:
    async with town() as here:
        here.client(TOPIC)
        approval = Approval(here.questions, store, WORKSPACE)
        async with trio.open_nursery() as nursery:
            for number in range(10):
                nursery.start_soon(approval.request_approval, call(), request("run", f"run {number}"))
            for _ in range(10):
                question = payload_of(await here.heard())
                topic, given = ANSWERS + question["request_id"], answer(question)
                await trio.to_thread.run_sync(here.say, topic, given)


def test_a_request_that_nobody_receives_is_denied_at_once_and_not_published(
    store: ApprovalStore, caplog: pytest.LogCaptureFixture
) -> None:
    async def body(here: Town) -> None:
        here.client(TOPIC, "bob")
        here.client("astrid.v1.other")
        published = here.bus.seq
        response = await Approval(here.questions, store, WORKSPACE).request_approval(call(), request())
        assert response.decision == "denied"
        assert here.bus.seq == published
        assert "astrid-host approvals allow shell 'git status'" in caplog.text
        assert "--yes" in caplog.text

    assert in_no_time(body) < 0.1


def test_a_secret_is_in_no_log_line_and_in_no_row_of_the_audit(
    database: Database, store: ApprovalStore, caplog: pytest.LogCaptureFixture
) -> None:
    def redacted(text: str) -> str:
        return text.replace("s3cret-token", "***")

    what = request("x" * 5000 + "s3cret-token", "curl s3cret-token")

    async def body(here: Town) -> None:
        approval = Approval(here.questions, store, WORKSPACE, redacted=redacted)
        await approval.request_approval(call(), request("write", "cwd://s3cret-token"))
        rows = AuditStore(database)
        run = Auditor(rows, redacted).audited(Approval.wit[0], approval.functions()["request-approval"]).run
        with pytest.raises(HostError):
            await run(call(), what)
        (row,) = rows.rows()
        assert "s3cret" not in row.target

    in_no_time(body)
    assert "***" in caplog.text
    assert "s3cret" not in caplog.text


UNCLEAR_TEXTS = ["a\nb", "a\r", "\0", "a\tb", "\x1b[2J", "\x7f", "\x85", "\u2028", "\u202ea", "\u200b"]


@pytest.mark.parametrize(("action", "resource"), [("a" * 4097, "ls"), ("ls", "a" * 65_537), ("ls", "a" * 1_000_000)])
async def test_what_is_too_long_to_be_shown_is_refused_whoever_would_allow_it(
    store: ApprovalStore, action: str, resource: str
) -> None:
    async with town() as here:
        here.client(TOPIC)
        published = here.bus.seq
        approval = Approval(here.questions, store, WORKSPACE, Says(True))
        case, detail = await refused(approval.request_approval(call(), request(action, resource)))
        assert case == "invalid-input"
        assert detail.isprintable()
        assert here.bus.seq == published


@pytest.mark.parametrize("text", UNCLEAR_TEXTS)
async def test_what_is_not_seen_is_asked_about_each_time_and_never_remembered(store: ApprovalStore, text: str) -> None:
    async with town() as here:
        here.client(TOPIC)
        approval = Approval(here.questions, store, WORKSPACE)
        for _ in range(2):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(approval.request_approval, call(), request("ls", f"ls {text}"))
                question = payload_of(await here.heard())
                assert question["resource"] == f"ls {text}"
                here.say(ANSWERS + question["request_id"], answer(question, "approve_always"))


async def test_the_longest_texts_and_no_action_are_asked_as_they_are(store: ApprovalStore) -> None:
    async with town() as here:
        here.client(TOPIC)
        approval = Approval(here.questions, store, WORKSPACE)
        for what in (request("a" * 4096, "ü" * 32_768), request("", ""), request("  a ", "  a  b ")):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(approval.request_approval, call(), what)
                question = payload_of(await here.heard())
                assert (question["action"], question["resource"]) == (what.action, what.target_resource)
                here.say(ANSWERS + question["request_id"], answer(question))


def test_waits_that_ended_hold_nothing(store: ApprovalStore) -> None:
    def held() -> int:
        gc.collect()
        return sum(type(thing).__module__.startswith("astrid_host.") for thing in gc.get_objects())

    async def body(here: Town) -> None:
        here.client(TOPIC)
        approval = Approval(here.questions, store, WORKSPACE)
        await asked_and_answered(here, approval, "deny")
        before = held()
        for _ in range(50):
            await asked_and_answered(here, approval, "deny")
        assert held() <= before

    in_no_time(body)
