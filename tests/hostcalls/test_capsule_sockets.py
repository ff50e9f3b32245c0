"""A capsule's own Unix socket in a real host: it learns the path, peers need a token, what it publishes for them is theirs."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest
import trio
from guests_in_wat import RETURNED, Guest, capsule, next_of
from net_doors import answer, hello
from net_functions import frame

from astrid_host import open_host

NET = "astrid:net/host@1.0.0"
BIND = f'(import "{NET}" "bind-unix" (func $bind (param i32)))'
ACCEPT = f'(import "{NET}" "[method]unix-listener.accept" (func $accept (param i32 i32)))'
READ = f'(import "{NET}" "[method]tcp-stream.read" (func $read (param i32 i32)))'
CONFIG = '(import "astrid:sys/host@1.0.0" "get-config" (func $config (param i32 i32 i32)))'
PUBLISH_AS = '(import "astrid:ipc/host@1.0.0" "publish-as" (func $publish_as (param i32 i32 i32 i32 i32 i32 i32)))'


def uplink(place: Path) -> None:
    """Says where its socket is, takes one peer, and publishes each of its frames for it as `said.frame`."""
    guest = Guest(BIND, ACCEPT, READ, CONFIG, PUBLISH_AS)
    guest.handles(
        f"""(call $config {guest.text("ASTRID_SOCKET_PATH")} (i32.const {RETURNED}))
        (i32.store8 (i32.const 60000) (i32.const 34))
        (memory.copy (i32.const 60001) (i32.load (i32.const {RETURNED + 8})) (i32.load (i32.const {RETURNED + 12})))
        (i32.store8 (i32.add (i32.const 60001) (i32.load (i32.const {RETURNED + 12}))) (i32.const 34))
        (local.set $i (i32.add (i32.const 2) (i32.load (i32.const {RETURNED + 12}))))
        (call $bind (i32.const {RETURNED}))
        (if (i32.load8_u (i32.const {RETURNED})) (then unreachable))
        (local.set $j (i32.load (i32.const {RETURNED + 4})))
        (call $publish {guest.text("said.path")} (i32.const 60000) (local.get $i))
        (call $accept (local.get $j) (i32.const {RETURNED}))
        (local.set $j (i32.load (i32.const {RETURNED + 4})))
        (loop $again
          (call $read (local.get $j) (i32.const {RETURNED}))
          (if (i32.load8_u (i32.const {RETURNED})) (then (return (i32.const 1024))))
          (if (i32.eqz (i32.load8_u (i32.const {RETURNED + 4}))) (then
            (call $publish_as {guest.text("said.frame")}
              (i32.load (i32.const {RETURNED + 8})) (i32.load (i32.const {RETURNED + 12}))
              {guest.text("somebody")} (i32.const {RETURNED}))))
          (br $again))"""
    )
    capabilities: dict[str, Any] = {"net_bind": ["unix:*"], "uplink": True}
    capsule(place, "uplink", guest, {"u.ask": "act"}, ["said.*"], capabilities=capabilities)


@pytest.mark.parametrize("claim", [None, "alice"])
async def test_what_an_uplink_publishes_for_a_peer_is_of_the_principal_that_it_works_as(
    claim: str | None, tmp_path: Path
) -> None:
    uplink(tmp_path / "capsules")
    state = tmp_path / "state"
    async with (
        open_host([tmp_path / "capsules"], trust=True, state_dir=state, principal="owner", workspace=tmp_path) as host,
        host.subscribe("said.*") as said,
    ):
        host.publish("u.ask", {})
        path = Path((await next_of(said)).payload)
        assert path.parent == state / "run"
        assert path.name != "control.sock"
        token = (state / "run" / "system.token").read_text()
        peer = await hello(str(path), token=token, **({"claimed_principal": claim} if claim else {}))
        told = await answer(peer)
        assert told["status"] == "ok"
        if claim:
            text = b'{"token":"","protocol_version":1,"signature":"00"}'
            await peer.send_all(frame(text))
            assert (await answer(peer))["status"] == "ok"
        await peer.send_all(frame(b'{"n":1}'))
        event = await next_of(said)
        assert (event.topic, event.payload, event.principal) == ("said.frame", {"n": 1}, claim or "owner")
        for file in (state / "run", path, state / "run" / "system.token"):
            assert stat.S_IMODE(file.stat().st_mode) & 0o077 == 0
        await peer.aclose()


async def test_a_peer_without_the_token_is_not_let_in(tmp_path: Path) -> None:
    uplink(tmp_path / "capsules")
    async with (
        open_host([tmp_path / "capsules"], trust=True, state_dir=tmp_path / "state", workspace=tmp_path) as host,
        host.subscribe("said.*") as said,
    ):
        host.publish("u.ask", {})
        path = (await next_of(said)).payload
        peer = await hello(path, token="00" * 32)
        assert (await answer(peer))["status"] == "error"
        await peer.aclose()
        with trio.move_on_after(0):
            await next_of(said)
