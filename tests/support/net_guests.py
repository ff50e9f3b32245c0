"""Guests in WebAssembly text that open sockets and wait for them, in a real host."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from guests_in_wat import RETURNED, Guest

from astrid_host.hostcalls import Interface
from astrid_host.hostcalls.addresses import Airlock
from astrid_host.hostcalls.io import Background, Errors, Streams
from astrid_host.hostcalls.net import Doorway, interfaces
from astrid_host.imports import HostImports

NET, IO = "astrid:net/host@1.0.0", "astrid:io/poll@1.0.0"
CONNECT = f'(import "{NET}" "connect-tcp" (func $connect (param i32 i32 i32 i32)))'
LISTEN = f'(import "{NET}" "bind-tcp" (func $listen (param i32 i32 i32 i32)))'
ACCEPTABLE = f'(import "{NET}" "[method]tcp-listener.subscribe-readiness" (func $acceptable (param i32) (result i32)))'
READABLE = f'(import "{NET}" "[method]tcp-stream.subscribe-readable" (func $readable (param i32) (result i32)))'
BIND_UNIX = f'(import "{NET}" "bind-unix" (func $bind_unix (param i32)))'
ACCEPT_UNIX = f'(import "{NET}" "[method]unix-listener.accept" (func $accept_unix (param i32 i32)))'
POLL_ACCEPT_UNIX = f'(import "{NET}" "[method]unix-listener.poll-accept" (func $poll_accept (param i32 i64 i32)))'
READ_FRAME = f'(import "{NET}" "[method]tcp-stream.read" (func $read_frame (param i32 i32)))'
READ_BYTES = f'(import "{NET}" "[method]tcp-stream.read-bytes" (func $read_bytes (param i32 i32 i32)))'
DROP_STREAM = f'(import "{NET}" "[resource-drop]tcp-stream" (func $drop_stream (param i32)))'
POLL_MANY = f'(import "{IO}" "poll" (func $poll_many (param i32 i32 i32)))'
BLOCK = f'(import "{IO}" "[method]pollable.block" (func $block (param i32 i32)))'
IS_READY = f'(import "{IO}" "[method]pollable.ready" (func $is_ready (param i32) (result i32)))'
MESSAGES = '(import "astrid:ipc/host@1.0.0" "[method]subscription.subscribe-readiness" (func $messages (param i32) (result i32)))'
TEXT, LIST = 1280, 3 << 16  # where a number is as text, and a list of handles

SAY_NUMBER = f"""
  (func $number (param $topic i32) (param $topic_len i32) (param $n i32)
    (local.set $n (i32.add (local.get $n) (i32.const 1000)))
    (i32.store8 (i32.const {TEXT}) (i32.add (i32.const 48) (i32.div_u (local.get $n) (i32.const 1000))))
    (i32.store8 (i32.const {TEXT + 1})
      (i32.add (i32.const 48) (i32.rem_u (i32.div_u (local.get $n) (i32.const 100)) (i32.const 10))))
    (i32.store8 (i32.const {TEXT + 2})
      (i32.add (i32.const 48) (i32.rem_u (i32.div_u (local.get $n) (i32.const 10)) (i32.const 10))))
    (i32.store8 (i32.const {TEXT + 3}) (i32.add (i32.const 48) (i32.rem_u (local.get $n) (i32.const 10))))
    (call $publish (local.get $topic) (local.get $topic_len) (i32.const {TEXT}) (i32.const 4)))"""


def say_number(guest: Guest, topic: str, number: str) -> str:
    """An instruction that publishes 1000 and so much, below 1000."""
    return f"(call $number {guest.text(topic)} {number})"


def connect(guest: Guest, port: int) -> str:
    """An expression: connect to 127.0.0.1, and give the handle; trap when that fails."""
    return f"""(block (result i32)
      (call $connect {guest.text("127.0.0.1")} (i32.const {port}) (i32.const {RETURNED}))
      (if (i32.load8_u (i32.const {RETURNED})) (then unreachable))
      (i32.load (i32.const {RETURNED + 4})))"""


def poll(count: int) -> str:
    """Poll the first so many handles of the list; the result is at `RETURNED`: an error byte, where the indices are, how many."""
    return f"(call $poll_many (i32.const {LIST}) (i32.const {count}) (i32.const {RETURNED}))"


COUNT, FIRST = f"(i32.load (i32.const {RETURNED + 8}))", f"(i32.load (i32.load (i32.const {RETURNED + 4})))"


def with_net(monkeypatch: pytest.MonkeyPatch, *allow: str, doorway: Doorway | None = None) -> None:
    """Let hosts of this test have astrid:net, and let their guests connect to `allow`."""
    provide = HostImports.provide

    def provide_net(imports: HostImports, given: Iterable[Interface]) -> None:
        provide(imports, given)
        tasks = imports._tasks
        background = Background(tasks._scheduler, tasks._nursery)
        provide(imports, (*interfaces(background, Airlock(allow), doorway), Streams(), Errors()))

    monkeypatch.setattr(HostImports, "provide", provide_net)
