"""Every host function through the ABI: what the guest is told is what the host answered, and what the situation predicts.

The guest is written in Rust on wit-bindgen's bindings, so both ends of the ABI are somebody else's and ours.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from direct_calls import DirectCalls
from http_functions import answer, serving
from net_doors import PEERS, Door, hello
from probe_guest import Called, Notes, Probe, free_port, probing
from rust_debug import without_handles

from astrid_host.abi import HandleTable, Variant
from astrid_host.bundled import wit_folder
from astrid_host.host_functions import HostFunctions
from astrid_host.hostcalls.net import interfaces
from astrid_host.payloads import NIL_SOURCE, from_value
from astrid_host.wit import Packages, Resource

DENIED = "capability-denied"
PROCESS = [("spawn", DENIED), ("release-process", "no-such-process"), ("release-process", "invalid-input")]
NOT_IN_LIFECYCLE = [("elicit", "not-in-lifecycle")] * 4
WRITING_ONLY = [("[method]file-handle.read-at", "access")] * 2
READING_ONLY = [("[method]file-handle.write-at", "access"), ("[method]file-handle.set-len", "access")]
# What goes wrong, in order, in a capsule that may do all; everything else goes well.
ERRORS: dict[str, list[tuple[str, str]]] = {
    "approval": [("request-approval", "invalid-input")],
    "elicit": [*NOT_IN_LIFECYCLE, ("has-secret", "invalid-input")],
    "fs": [
        ("read-file", "not-found"),
        ("read-file", "boundary-escape"),
        ("fs-stat", "not-found"),
        *WRITING_ONLY,
        *READING_ONLY,
        ("fs-open", "not-found"),
        ("fs-readdir", "not-directory"),
        ("fs-unlink", "not-found"),
    ],
    "http10": [("http-request", "invalid-request"), ("[method]http-stream.read-chunk", "closed")],
    "http11": [("http-request-opts", "scheme-denied")],
    "identity": [
        ("identity-list-links", "user-not-found"),
        ("identity-unlink", "link-not-found"),
        ("identity-resolve", "link-not-found"),
    ],
    "io": [
        ("poll", "invalid-input"),
        ("[method]input-stream.blocking-read", "last-operation-failed"),
        ("[method]input-stream.read", "closed"),
    ],
    "ipc": [("subscribe", DENIED), ("publish", DENIED), ("publish", "invalid-input")],
    "kv": [("kv-get", "invalid-key"), ("kv-cas", "cas-mismatch")],
    "net": [
        ("lookup-host", DENIED),
        ("connect-tcp", DENIED),
        ("[method]tcp-stream.read-bytes", "would-block"),
        ("[method]tcp-stream.hop-limit", "not-tcp"),
        ("[method]udp-socket.send", "address-not-available"),
        ("[method]udp-socket.recv", "address-not-available"),
    ],
    "process10": PROCESS,
    "process11": PROCESS,
    "sys": [("sleep-ns", "too-large"), ("random-bytes", "too-large")],
    "uplink": [("uplink-send", "quota")] * 4 + [("uplink-send", "invalid-input")],
}
# Packages that need no right; and what a capsule without rights is told of others in place of `capability-denied`.
UNGATED = ("approval", "elicit", "kv", "sys")
BY_ID = {
    "attach",
    "close-stdin",
    "read-logs",
    "read-since",
    "release-process",
    "signal",
    "status",
    "stop",
    "unwatch",
    "wait",
    "watch",
    "write-stdin",
}
NO_PROCESSES = {"list-processes": "ok", "status-many": "ok", **dict.fromkeys(BY_ID, "no-such-process")}
OTHERWISE: dict[str, dict[str, str]] = {
    "fs": {},
    "http10": {},
    "http11": {},
    "identity": {},
    "io": {"poll": "invalid-input"},
    "net": {},
    "process10": NO_PROCESSES,
    "process11": NO_PROCESSES,
    "uplink": {},
}
# What is refused to anybody, before rights are looked at.
MALFORMED = {
    ("http-request", "invalid-request"),
    ("http-request-opts", "scheme-denied"),
    ("read-file", "boundary-escape"),
}
# Packages whose functions answer a second time as they did the first, and which of them only with the same case.
AGAIN = ("approval", "elicit", "fs", "identity", "kv", "sys", "uplink")
VARYING = (
    "[method]file-handle.stat",
    "clock-monotonic-ns",
    "clock-ms",
    "fs-stat",
    "fs-stat-symlink",
    "get-caller",
    "identity-list-links",
    "random-bytes",
)


# Of texts that are made up: each is written in JSON as it is.
LETTERS = "abc/.:-_ äß\u0301\u202e\u2028漢😀"


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> Notes:
    return Notes(monkeypatch)


@pytest.fixture(autouse=True)
def door(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Door:
    """Where capsules' Unix sockets are, which a host alone has none of."""
    door = Door(tmp_path_factory.mktemp("s"))

    def net(functions: HostFunctions) -> Any:
        return interfaces(functions._background, functions._airlock, door)

    monkeypatch.setattr(HostFunctions, "_net", net)
    return door


class Yes:
    """Approves what runs something, and denies the rest."""

    def decide(self, asked: Any) -> bool:
        return bool(asked.action == "run")


@asynccontextmanager
async def world(
    notes: Notes, door: Door, place: Path, rights: bool = True
) -> AsyncIterator[tuple[Probe, dict[str, Any]]]:
    """The guest's host, what it needs of the outside, and what each action is given."""
    port = free_port()
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(serving(answer(b"hello", "content-type: text/plain")))
        peers = await stack.enter_async_context(trio.open_nursery())
        allow = [f"127.0.0.1:{port}", "localhost:9", f"127.0.0.1:{server.port}"]
        probe = await stack.enter_async_context(probing(notes, place, rights, allow_local=allow, approvals=Yes()))
        peers.start_soon(_visit, notes, str(door.folder / "probe.sock"))
        web = server.url("")
        own = probe.host.capsules["probe"].source_id
        yield probe, {"sys": own, "io": str(port), "net": str(port), "http10": web, "http11": web}
        peers.cancel_scope.cancel()
        while PEERS:
            PEERS.pop().socket.close()


async def _visit(notes: Notes, path: str) -> None:
    """Two peers connect as soon as the capsule listens."""
    await notes.reached("bind-unix").wait()
    await hello(path)
    await hello(path)


def errors(calls: list[Called]) -> list[tuple[str, str]]:
    return [(call.name, call.answer.case) for call in calls if not call.answer.good]


@pytest.mark.parametrize("action", ERRORS)
async def test_a_guest_is_told_what_the_host_answered(notes: Notes, door: Door, tmp_path: Path, action: str) -> None:
    async with world(notes, door, tmp_path) as (probe, given):
        calls, told = await probe.ask(action, given.get(action, ""))
    assert [(name, without_handles(text)) for name, text in told] == [(call.name, call.shown()) for call in calls]
    assert errors(calls) == ERRORS[action]


@pytest.mark.parametrize("action", OTHERWISE)
async def test_a_guest_without_rights_is_denied(notes: Notes, door: Door, tmp_path: Path, action: str) -> None:
    async with world(notes, door, tmp_path, rights=False) as (probe, given):
        calls, told = await probe.ask(action, given.get(action, ""))
    assert [(name, without_handles(text)) for name, text in told] == [(call.name, call.shown()) for call in calls]
    got = {(call.name, call.answer.case) for call in calls} - MALFORMED
    assert got == {(name, OTHERWISE[action].get(name, DENIED)) for name, _ in got}


@pytest.mark.parametrize("action", UNGATED)
async def test_what_needs_no_right_answers_a_guest_without_any(
    notes: Notes, door: Door, tmp_path: Path, action: str
) -> None:
    async with world(notes, door, tmp_path, rights=False) as (probe, given):
        calls, _ = await probe.ask(action, given.get(action, ""))
    assert errors(calls) == ERRORS[action]


async def test_a_guest_that_calls_everything_holds_nothing_in_the_end(notes: Notes, door: Door, tmp_path: Path) -> None:
    packages = Packages(wit_folder())
    found = [interface for module in packages.interfaces() if (interface := packages.interface(module)) is not None]
    called: set[tuple[str, str]] = set()
    async with world(notes, door, tmp_path) as (probe, given):
        for action in ERRORS:
            calls, _ = await probe.ask(action, given.get(action, ""))
            called |= {(call.module, call.name) for call in calls}
        assert [len(table) for table in notes.tables] == [0] * len(notes.tables)
    assert called == {(interface.id, name) for interface in found for name in interface.functions}
    resources = {of for interface in found for of in interface.types.values() if isinstance(of, Resource)}
    assert notes.dropped == resources


async def told_again(notes: Notes, door: Door, place: Path, calls: list[Called]) -> None:
    """Make the calls on the host functions themselves, in another host: they answer as they did."""
    async with world(notes, door, place) as (probe, _):
        caller = SimpleNamespace(
            principal=probe.host.principal,
            capsule=probe.host._registry.capsules["probe"],
            message=None,
            entry=SimpleNamespace(name="astrid-hook-trigger"),
            instance=SimpleNamespace(handles=HandleTable()),
        )
        direct = DirectCalls(notes.functions(), caller)
        for call in calls:
            answered = await direct.again(call)
            assert answered.case == call.answer.case, call.name
            if call.name not in VARYING:
                assert direct.theirs(call.shown(answered)) == call.shown(), call.name
        direct.close()


@pytest.mark.parametrize("action", AGAIN)
async def test_the_same_calls_without_a_guest_answer_the_same(
    notes: Notes, door: Door, tmp_path: Path, action: str
) -> None:
    async with world(notes, door, tmp_path / "first") as (probe, given):
        calls, _ = await probe.ask(action, given.get(action, ""))
    await told_again(notes, door, tmp_path / "second", calls)


async def test_texts_of_all_kinds_mean_the_same_with_a_guest_and_without(
    notes: Notes, door: Door, tmp_path: Path
) -> None:
    made = random.Random(5)
    texts = ["".join(made.choices(LETTERS, k=made.randrange(20))) for _ in range(60)]
    calls: list[Called] = []
    async with world(notes, door, tmp_path / "first") as (probe, _):
        for text in texts:
            called, told = await probe.ask("text", text)
            assert [without_handles(text) for _, text in told] == [call.shown() for call in called]
            assert {call.arguments[0] for call in called if call.name != "kv-list-keys-page"} == {text}
            calls += called
    assert len({(call.name, call.answer.case) for call in calls}) > len({call.name for call in calls})
    await told_again(notes, door, tmp_path / "second", calls)


async def test_a_guest_asks_for_values_when_it_is_installed(
    notes: Notes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each kind of value comes back as its case of `elicit-response`; a secret does not come back."""
    init = HostFunctions.__init__
    values: dict[str, Any] = {"Text": {"value": "ä"}, "Secret": {"value": "hidden"}, "Array": {"values": ["a", "b"]}}
    events: list[Any] = []

    def made(functions: HostFunctions, bus: Any, scheduler: Any, *rest: Any, **more: Any) -> None:
        init(functions, bus, scheduler, *rest, **more)

        def publish(asked: Any) -> None:
            kind = asked.field.field_type
            value = values[kind] if isinstance(kind, str) else {"value": kind.choices[1]}
            payload = {"type": "elicit_response", "request_id": str(asked.request_id), **value}
            with bus.lock:
                topic = f"astrid.v1.elicit.response.{asked.request_id}"
                bus.publish(topic, from_value(payload), "default", NIL_SOURCE)
            scheduler.run_or_wake()

        bus.observe("astrid.v1.elicit", lambda event: scheduler.call_soon(lambda: publish(event.data)))
        bus.observe("probe.said", lambda event: events.append(event.data))

    monkeypatch.setattr(HostFunctions, "__init__", made)
    async with probing(notes, tmp_path, state_dir=tmp_path / "state"):
        calls = notes.taken()
    got = [call.answer.value for call in calls if call.name == "elicit"]
    assert got == [
        Variant("value", "ä"),
        Variant("secret-stored", None),
        Variant("value", "grün"),
        Variant("values", ["a", "b"]),
    ]
    (told,) = events
    assert [(name, without_handles(text)) for name, text in told] == [(call.name, call.shown()) for call in calls]
    assert dict(told)["has-secret"].startswith("Err")
    assert "Ok(true)" in [text for _, text in told]
