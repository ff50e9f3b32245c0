"""astrid:elicit as guests call it: only in install and upgrade, seen by old and new clients, secrets never handed out."""

from __future__ import annotations

import json
import threading
import uuid
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from people import CLIENT, SOURCE, Town, call, in_no_time, payload_of, town

from astrid_host.abi import Variant
from astrid_host.errors import HostError, StoreError
from astrid_host.hostcalls.elicit import ANSWERS, TOPIC, Elicit
from astrid_host.payloads import NIL_SOURCE


class Kept:
    """A store of secrets in memory; `fails` makes it one that does not work."""

    def __init__(self, fails: bool = False) -> None:
        self.secrets: dict[tuple[str, str, str], str] = {}
        self.fails = fails
        self.threads: set[int] = set()

    def set(self, principal: str, capsule: str, key: str, value: str) -> None:
        self._used()
        self.secrets[principal, capsule, key] = value

    def has(self, principal: str, capsule: str, key: str) -> bool:
        self._used()
        return (principal, capsule, key) in self.secrets

    def _used(self) -> None:
        self.threads.add(threading.get_ident())
        if self.fails:
            raise StoreError("the keyring is locked. Unlock it")


def elicit(here: Town, secrets: Kept | None = None, lifecycle: bool = True) -> Elicit:
    return Elicit(here.questions, secrets or Kept(), lambda _call: lifecycle)


def request(
    kind: str = "text",
    key: str = "base_url",
    description: str = "",
    options: list[str] | None = None,
    default_value: str | None = None,
) -> Any:
    return SimpleNamespace(kind=kind, key=key, description=description, options=options, default_value=default_value)


async def outcome(waiting: Any) -> Any:
    """What a function returned, or the case of its error."""
    try:
        return await waiting
    except HostError as error:
        return error.case if error.payload is None and error.detail else error


async def answered(here: Town, functions: Elicit, asked: Any, **answer: Any) -> Any:
    """Ask, answer, and return what the guest got."""
    got = []

    async def ask() -> None:
        got.append(await outcome(functions.elicit(call(), asked)))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        question = payload_of(await here.heard())
        payload = {"type": "elicit_response", "request_id": question["request_id"], **answer}
        here.say(ANSWERS + question["request_id"], payload)
    return got[0]


def test_it_has_every_function_of_the_interface() -> None:
    async def body(here: Town) -> None:
        assert sorted(elicit(here).functions()) == ["elicit", "has-secret"]

    in_no_time(body)


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        (request(), {"key": "base_url", "prompt": "base_url", "field_type": "Text"}),
        (
            request("text", "url", "Which server?", ["ignored"], "http://a"),
            {
                "key": "url",
                "prompt": "Which server?",
                "field_type": "Text",
                "description": "Which server?",
                "default": "http://a",
            },
        ),
        (
            request("secret", "token", "Its token", None, "never shown"),
            {"key": "token", "prompt": "Its token", "field_type": "Secret", "description": "Its token"},
        ),
        (
            request("select", "net", "", ["main", "test"], "test"),
            {"key": "net", "prompt": "net", "field_type": {"Enum": ["main", "test"]}, "default": "test"},
        ),
        (request("array", "relays"), {"key": "relays", "prompt": "relays", "field_type": "Array"}),
    ],
    ids=lambda value: value.kind if hasattr(value, "kind") else "",
)
async def test_the_question_goes_out_on_both_topics_as_clients_know_it(asked: Any, field: dict[str, Any]) -> None:
    async with town() as here:
        here.client(TOPIC)
        here.client(f"{TOPIC}.*")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(outcome, elicit(here).elicit(call(), asked))
            first, second = await here.heard(), await here.heard()
            question = payload_of(first)
            assert question == payload_of(second)
            request_id = question["request_id"]
            assert str(uuid.UUID(request_id)) == request_id
            assert (first.topic, second.topic) == (TOPIC, f"{TOPIC}.{request_id}")
            assert (first.principal, first.source_id) == ("alice", NIL_SOURCE)
            assert question == {
                "type": "elicit_request",
                "request_id": request_id,
                "capsule_id": "shell",
                "field": field,
            }
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize("pattern", [TOPIC, f"{TOPIC}.*"])
async def test_a_client_of_either_topic_can_answer(pattern: str) -> None:
    async with town() as here:
        here.client(pattern)
        assert await answered(here, elicit(here), request(), value="http://b") == Variant("value", "http://b")


SELECT = request("select", "net", "", ["main", "test"])


@pytest.mark.parametrize(
    ("asked", "answer", "expected"),
    [
        (request(), {"value": "ü\n"}, Variant("value", "ü\n")),
        (request(), {"value": ""}, Variant("value", "")),
        (request(), {}, "cancelled"),
        (request(), {"values": ["a"]}, "cancelled"),
        (SELECT, {"value": "test"}, Variant("value", "test")),
        (SELECT, {"value": "other"}, "invalid-input"),
        (SELECT, {}, "cancelled"),
        (request("array"), {"values": ["a", "b"]}, Variant("values", ["a", "b"])),
        (request("array"), {"values": []}, Variant("values", [])),
        (request("array"), {"value": "a"}, "cancelled"),
        (request("secret"), {"value": "s3cret"}, Variant("secret-stored", None)),
        (request("secret"), {"value": ""}, "invalid-input"),
        (request("secret"), {}, "cancelled"),
        (request("secret"), {"values": ["a"]}, "cancelled"),
    ],
)
async def test_an_answer_becomes_what_was_asked_for(asked: Any, answer: dict[str, Any], expected: Any) -> None:
    async with town() as here:
        here.client(TOPIC)
        secrets = Kept()
        assert await answered(here, elicit(here, secrets), asked, **answer) == expected
        stored = {("alice", "shell", asked.key): "s3cret"} if answer.get("value") == "s3cret" else {}
        assert secrets.secrets == stored


@pytest.mark.parametrize(
    "asked",
    [
        request(key=""),
        request(key="a\nb"),
        request(key="a" * 257),
        request(description="d" * 4097),
        request(default_value="d" * 4097),
        request("select"),
        request("select", options=[]),
        request("select", options=["a"] * 257),
        request("select", options=["a" * 4097]),
    ],
)
async def test_what_cannot_be_asked_is_refused_and_not_published(asked: Any) -> None:
    async with town() as here:
        here.client(TOPIC)
        published = here.bus.seq
        assert await outcome(elicit(here).elicit(call(), asked)) == "invalid-input"
        assert here.bus.seq == published


async def test_options_of_other_kinds_count_for_nothing() -> None:
    async with town() as here:
        here.client(TOPIC)
        asked = request("text", options=["a" * 5000] * 500)
        assert await answered(here, elicit(here), asked, value="b") == Variant("value", "b")


async def test_outside_of_install_and_upgrade_nobody_is_asked() -> None:
    async with town() as here:
        here.client(TOPIC)
        published = here.bus.seq
        for asked in (request(), request("secret"), request(key="")):
            assert await outcome(elicit(here, lifecycle=False).elicit(call(), asked)) == "not-in-lifecycle"
        assert here.bus.seq == published


def test_without_an_answer_it_is_a_timeout_after_two_minutes_and_nothing_is_left() -> None:
    async def body(here: Town) -> None:
        here.client(TOPIC)
        got = []

        async def ask() -> None:
            got.append(await outcome(elicit(here).elicit(call(), request())))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            question = payload_of(await here.heard())
            topic = ANSWERS + question["request_id"]
            assert here.listens(topic)
        assert got == ["timeout"]
        assert not here.listens(topic)

    assert in_no_time(body) == pytest.approx(120, abs=0.5)


def test_nobody_else_answers_and_the_capsule_does_not_either() -> None:
    async def body(here: Town) -> None:
        here.client(TOPIC)
        got = []

        async def ask() -> None:
            got.append(await outcome(elicit(here).elicit(call(), request())))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            question = payload_of(await here.heard())
            topic = ANSWERS + question["request_id"]
            good = {"type": "elicit_response", "request_id": question["request_id"], "value": "stolen"}
            here.say(topic, good, "bob")
            here.say(topic, good, None)
            here.say(topic, good, "alice", SOURCE)
            here.say(topic, {**good, "request_id": str(uuid.uuid4())})
            here.say(topic, {"value": "stolen"})
            await trio.sleep(119)
            assert got == []
            here.say(topic, {**good, "value": "mine"}, "alice", CLIENT)
        assert got == [Variant("value", "mine")]

    in_no_time(body)


def test_a_question_that_nobody_receives_is_cancelled_at_once(caplog: pytest.LogCaptureFixture) -> None:
    async def body(here: Town) -> None:
        here.client("astrid.v1.other.*")
        published = here.bus.seq
        assert await outcome(elicit(here).elicit(call(), request())) == "cancelled"
        assert here.bus.seq == published
        assert "astrid-host config set shell.base_url" in caplog.text

    assert in_no_time(body) < 0.1


def test_a_cancelled_wait_leaves_nothing() -> None:
    async def body(here: Town) -> None:
        here.client(TOPIC)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(elicit(here).elicit, call(), request())
            question = payload_of(await here.heard())
            nursery.cancel_scope.cancel()
        assert not here.listens(ANSWERS + question["request_id"])

    in_no_time(body)


async def test_a_secret_is_stored_on_another_thread_and_never_said_again() -> None:
    async with town() as here:
        here.client(TOPIC)
        secrets = Kept()
        functions = elicit(here, secrets)
        got = await answered(here, functions, request("secret", "token"), value="s3cret")
        assert "s3cret" not in json.dumps(got.case) + str(got.value)
        assert await functions.has_secret(call(), "token")
        assert threading.get_ident() not in secrets.threads


async def test_a_secret_is_there_for_its_capsule_and_principal_at_any_time() -> None:
    async with town() as here:
        secrets = Kept()
        secrets.set("alice", "shell", "token", "s")
        functions = elicit(here, secrets, lifecycle=False)
        assert await functions.has_secret(call(), "token")
        for who, key in ((call("bob"), "token"), (call(id="other"), "token"), (call(), "Token")):
            assert not await functions.has_secret(who, key)
        for key in ("", "a\0", "k" * 257):
            assert await outcome(functions.has_secret(call(), key)) == "invalid-input"


async def test_a_store_that_fails_is_a_typed_error() -> None:
    async with town() as here:
        here.client(TOPIC)
        functions = elicit(here, Kept(fails=True))
        assert await answered(here, functions, request("secret"), value="s") == "store-unavailable"
        assert await outcome(functions.has_secret(call(), "token")) == "store-unavailable"
