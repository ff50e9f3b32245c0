"""Other processes talk to a running host over its socket: frames of an Astrid host, and what our own commands need."""

from __future__ import annotations

import json
import os
import struct
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from guests_in_wat import FAILED, RECV, RETURNED, SUBSCRIBE, Guest, capsule, good, next_of

from astrid_host import BUNDLED, Host, open_host
from astrid_host.control import client, limiter, peer, server
from astrid_host.control.client import Running
from astrid_host.control.frames import FRAME_BYTES
from astrid_host.control.places import locked
from astrid_host.control.policies import CallPolicies
from astrid_host.control.server import serve
from astrid_host.errors import AstridError, HostClosed
from astrid_host.hostcalls import approval
from astrid_host.topics import APPROVAL, APPROVAL_ANSWERS, REQUESTS

TOOLS = [Path(BUNDLED) / name for name in ("router", "dead-letter", "word-tools", "kv-notes")]


@asynccontextmanager
async def served(place: Path, tmp_path: Path) -> AsyncGenerator[tuple[Host, Path]]:
    policies = CallPolicies()
    with locked(tmp_path / "state") as path:
        async with (
            open_host(
                [*TOOLS, place], trust=True, state_dir=":memory:", workspace=tmp_path, approvals=policies
            ) as host,
            trio.open_nursery() as nursery,
        ):
            await nursery.start(serve, host, path, policies)
            yield host, path
            nursery.cancel_scope.cancel()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "capsules").mkdir()
    good(tmp_path / "capsules")
    return tmp_path / "capsules"


class Peer:
    """A client that knows the wire only."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream

    async def send(self, value: Any) -> None:
        await self.raw(value if isinstance(value, bytes) else json.dumps(value).encode())

    async def raw(self, text: bytes) -> None:
        await self.stream.send_all(struct.pack(">I", len(text)) + text)

    async def receive(self) -> Any:
        with trio.fail_after(5):
            (length,) = struct.unpack(">I", await self._exactly(4))
            return json.loads(await self._exactly(length))

    async def _exactly(self, size: int) -> bytes:
        got = b""
        while len(got) < size:
            data = await self.stream.receive_some(size - len(got))
            if not data:
                raise EOFError
            got += data
        return got


@asynccontextmanager
async def peering(path: Path, **greeting: Any) -> AsyncGenerator[Peer]:
    async with await trio.open_unix_socket(str(path)) as stream:
        peer = Peer(stream)
        await peer.send({"token": "", "protocol_version": 1, "client_version": "test", **greeting})
        yield peer


def frame(topic: str, payload: dict[str, Any]) -> dict[str, Any]:
    return {"topic": topic, "payload": payload, "source_id": "00000000-0000-0000-0000-000000000000"}


async def test_a_front_end_of_astrids_shakes_hands_publishes_and_is_sent_what_concerns_it(
    place: Path, tmp_path: Path
) -> None:
    async with served(place, tmp_path) as (host, path), host.subscribe("user.v1.prompt") as prompts:
        async with peering(path, claimed_principal="alice") as peer:
            answer = await peer.receive()
            assert (answer["status"], answer["protocol_version"]) == ("ok", 1)
            await peer.send(frame("user.v1.prompt", {"type": "user_input", "text": "hi", "session_id": "s"}))
            event = await next_of(prompts)
            assert (event.principal, event.payload["text"]) == ("alice", "hi")
            final = {"type": "agent_response", "text": "ho", "is_final": True, "session_id": "s"}
            host.publish("agent.v1.response", final, principal="bob")
            host.publish("agent.v1.response", final, principal="alice")
            got = await peer.receive()
            assert (got["topic"], got["payload"], got["principal"]) == ("agent.v1.response", final, "alice")
            await peer.send(frame("astrid.v1.request.one", {"type": "raw_json", "method": "GetStatus"}))
            status = await peer.receive()
            assert status["topic"] == "astrid.v1.response.one"
            data = status["payload"]["data"]["data"]
            assert (data["connected_clients"], data["connections_by_principal"]) == (
                1,
                [{"principal": "alice", "count": 1}],
            )


@pytest.mark.parametrize(
    ("greeting", "why"),
    [
        ({"protocol_version": 2}, "protocol version 2"),
        ({"claimed_principal": ""}, "principal"),
        ({"claimed_principal": "x" * 300}, "principal"),
        ({"subscribe": ["a..b"]}, "a..b"),
        ({"token": 1}, "not a handshake"),
        ({"more": "x" * 5000}, "4096"),
    ],
)
async def test_a_peer_that_is_not_let_in_is_told_why(
    greeting: dict[str, Any], why: str, place: Path, tmp_path: Path
) -> None:
    async with served(place, tmp_path) as (_, path):
        async with peering(path, **greeting) as peer:
            answer = await peer.receive()
            assert answer["status"] == "error"
            assert why in answer["reason"]
            with pytest.raises(EOFError):
                await peer.receive()


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (b"{", "no IpcMessage"),
        (b"\xff", "UTF-8"),
        (frame("a..b", {}), "a..b"),
        (frame("astrid.v1.request.a..b", {"type": "raw_json", "method": "GetStatus"}), "a..b"),
        (frame("astrid.v1.request.a..b", {"type": "raw_json", "method": "DescribeTools"}), "a..b"),
        (frame("astrid.v1.request." + "x" * 300, {"type": "raw_json", "method": "GetStatus"}), "256"),
        (frame("a." * 200, {}), "a."),
        (frame("astrid.v1.dispatch.failed.x", {}), "only the host itself"),
        ({"topic": "a", "payload": [], "source_id": "x"}, "no IpcMessage"),
        (frame("a", {"type": "custom", "data": "x" * (1 << 20)}), "1048576"),
    ],
)
async def test_what_cannot_be_published_is_told_and_the_peer_goes_on(
    sent: Any, why: str, place: Path, tmp_path: Path
) -> None:
    async with served(place, tmp_path) as (host, path), host.subscribe("x.y") as events:
        async with peering(path) as peer:
            await peer.receive()
            await peer.send(sent)
            told = await peer.receive()
            assert told["topic"] == "astrid.v1.control.refused"
            assert why in told["payload"]["data"]["reason"]
            await peer.send(frame("x.y", {"n": 1}))
            assert (await next_of(events)).payload == {"n": 1}


async def test_a_peer_that_announces_more_than_a_frame_may_have_is_cut_off(place: Path, tmp_path: Path) -> None:
    async with served(place, tmp_path) as (_, path):
        async with peering(path) as peer:
            await peer.receive()
            await peer.stream.send_all(struct.pack(">I", FRAME_BYTES + 1))
            with pytest.raises(EOFError):
                await peer.receive()
            assert "good" in await Running(path, "default").ask("ListCapsules")


async def test_peers_that_say_nothing_keep_nobody_else_out(place: Path, tmp_path: Path) -> None:
    async with served(place, tmp_path) as (_, path):
        silent = [await trio.open_unix_socket(str(path)) for _ in range(40)]
        assert "good" in await Running(path, "default").ask("ListCapsules")
        for stream in silent:
            await stream.aclose()


async def test_a_tool_is_called_and_described_over_the_socket(place: Path, tmp_path: Path) -> None:
    async with served(place, tmp_path) as (host, path):
        running = Running(path, "alice")
        done = await running.execute("word_count", {"text": "a b"}, call_id="c", timeout=5, approvals="deny")
        assert (done.result.call_id, done.result.is_error, done.denied) == ("c", False, [])
        assert json.loads(done.result.content)["words"] == 2
        assert host.stats().principals["alice"].calls > 0
        assert await running.describe() == await host.tools.describe(principal="alice")
        failed = await running.execute("nope", {}, call_id="d", timeout=5, approvals="deny")
        assert failed.result.is_error


def stuck(place: Path) -> None:
    guest = Guest(SUBSCRIBE, RECV)
    guest.handles(f"""
      (call $subscribe {guest.text("never.said")} (i32.const {RETURNED}))
      (local.set $j (i32.load (i32.const {RETURNED + 4})))
      {guest.say("stuck.began")}
      (call $recv (local.get $j) (i64.const 60000) (i32.const {RETURNED + 96}))""")
    rows: dict[str, Any] = {"tool.v1.execute.stuck": "act", "never.said": {}}
    capsule(place, "stuck", guest, rows, ["stuck.began", "tool.v1.execute.*.result"])


async def test_a_client_that_goes_away_cancels_its_call(place: Path, tmp_path: Path) -> None:
    stuck(place)
    async with (
        served(place, tmp_path) as (host, path),
        host.subscribe("stuck.began") as began,
        host.subscribe(FAILED + "tool.v1.execute.stuck") as failed,
    ):
        async with trio.open_nursery() as nursery:

            async def call() -> None:
                await Running(path, "default").execute("stuck", {}, call_id="c", timeout=60, approvals="deny")

            nursery.start_soon(call)
            await next_of(began)
            nursery.cancel_scope.cancel()
        assert (await next_of(failed)).payload["reason"] == "cancelled"


async def test_events_are_published_and_followed_over_the_socket(place: Path, tmp_path: Path) -> None:
    async with served(place, tmp_path) as (host, path):
        alice, everybody = Running(path, "alice"), Running(path, "default")
        async with (
            alice.subscribe("good.said") as mine,
            everybody.subscribe(observe=["good.*"], everybody=True) as all_of_them,
        ):
            seq = await alice.publish("good.ask", {"n": 1})
            asked = await next_of(all_of_them)
            assert (asked.seq, asked.topic, asked.principal) == (seq, "good.ask", "alice")
            assert (await next_of(all_of_them)).topic == "good.said"
            said = await next_of(mine)
            assert (said.payload, said.principal) == ({"n": 1}, "alice")
            assert said.source_id == host.capsules["good"].source_id
            assert abs(said.timestamp.timestamp() - time.time()) < 60
        with pytest.raises(AstridError, match="only the host itself"):
            await alice.publish("astrid.v1.dispatch.failed.x", {})
        with pytest.raises(AstridError, match="segment"):
            await alice.publish("a..b", {})


async def test_a_client_is_told_when_the_host_stops(place: Path, tmp_path: Path) -> None:
    async with served(place, tmp_path) as (_, path):
        running = Running(path, "default")
        connected = running.subscribe("good.said")
        stack = AsyncExitStack()
        events = await stack.enter_async_context(connected)
    with pytest.raises(HostClosed, match="has stopped"):
        async with stack:
            await next_of(events)
    with pytest.raises(FileNotFoundError):
        await running.ask("ListCapsules")


async def test_the_socket_is_its_users_alone(place: Path, tmp_path: Path) -> None:
    async with served(place, tmp_path) as (_, path):
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.parent.stat().st_mode & 0o777 == 0o700


async def test_a_slow_client_holds_up_nobody(place: Path, tmp_path: Path) -> None:
    async with served(place, tmp_path) as (host, path):
        async with peering(path, subscribe=[], observe=["good.*"]) as peer:
            await peer.receive()
            for n in range(200):  # 20 MB that nobody reads
                host.publish("good.ask", {"n": n, "x": "x" * 100_000})
                await trio.lowlevel.checkpoint()
            other = Running(path, "default")
            with trio.fail_after(5):
                assert (
                    await other.execute("word_count", {"text": "a"}, call_id="c", timeout=5, approvals="deny")
                ).result


async def test_of_what_a_peer_asks_for_so_much_is_under_way_and_all_ends_when_it_goes(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer, "UNDER_WAY", 2)
    monkeypatch.setattr(peer, "LOOK_S", 0.05)
    stuck(place)
    async with (
        served(place, tmp_path) as (host, path),
        host.subscribe("stuck.began") as began,
        host.subscribe(FAILED + "tool.v1.execute.stuck") as failed,
        host.subscribe("x.y") as events,
    ):
        async with peering(path, subscribe=[]) as one:
            await one.receive()
            for n in range(3):
                params = {"name": "stuck", "call_id": f"c{n}", "approvals": "deny"}
                ask = {"type": "raw_json", "method": "ExecuteTool", "params": params}
                await one.send(frame(f"astrid.v1.request.{n}", ask))
            await one.send(frame("x.y", {}))
            await next_of(began)
            await trio.testing.wait_all_tasks_blocked()
        for _ in range(2):
            assert (await next_of(failed)).payload["reason"] == "cancelled"
        async with Running(path, "default").subscribe("never.said"):
            with trio.move_on_after(0.1) as none:
                await anext(events)
        assert none.cancelled_caught  # what came after is not read


@pytest.mark.parametrize("silent_s", [60.0, 0.0])
async def test_who_finds_no_place_is_told_unless_a_silent_one_gives_way(
    silent_s: float, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "ConnectionLimiter", lambda: limiter.ConnectionLimiter(2))
    monkeypatch.setattr(limiter, "SILENT_S", silent_s)
    async with served(place, tmp_path) as (_, path), AsyncExitStack() as stack:
        silent = await stack.enter_async_context(peering(path, subscribe=[]))
        await silent.receive()
        listens = await stack.enter_async_context(peering(path, observe=["good.*"]))
        await listens.receive()
        if silent_s:
            with pytest.raises(AstridError, match="full"):
                await Running(path, "default").ask("ListCapsules")
        else:
            assert "good" in await Running(path, "default").ask("ListCapsules")
            with pytest.raises(EOFError):
                await silent.receive()


async def test_a_host_of_another_user_is_told_nothing(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(place, tmp_path) as (_, path):
        me = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: me + 1)
        with pytest.raises(AstridError, match="not a folder of this user's own"):
            await Running(path, "default").ask("ListCapsules")
        monkeypatch.setattr(client, "_check_owner", lambda _folder: None)
        with pytest.raises(AstridError, match="another user's"):
            await Running(path, "default").ask("ListCapsules")
        monkeypatch.setattr(os, "geteuid", lambda: me)


def test_a_client_has_the_topics_of_the_host() -> None:
    assert (REQUESTS, APPROVAL, APPROVAL_ANSWERS) == ("astrid.v1.request.", approval.TOPIC, approval.ANSWERS)
