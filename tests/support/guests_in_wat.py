"""Guests written by hand in WebAssembly text, as capsule folders, and a host around them.

`Guest` collects data, imports and functions and writes the module. A handler's body is WAT that runs inside
`astrid-hook-trigger` with the locals `$action $action_len $payload $payload_len` (what it was called with) and `$i $j`
(free); it may call `$answer`, `$publish` and what else was added. The allocator is a bump pointer that each call resets.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import tomli_w
import trio

from astrid_host import Host, HostEvent, open_host
from astrid_host.engine import wat

IPC = "astrid:ipc/host@1.0.0"
FAILED = "astrid.v1.dispatch.failed."
RESULT, RETURNED, ENVELOPE, HEAP = 1024, 1104, 1200, 65536
PUBLISH = f'(import "{IPC}" "publish" (func $publish_raw (param i32 i32 i32 i32 i32)))'
SUBSCRIBE = f'(import "{IPC}" "subscribe" (func $subscribe (param i32 i32 i32)))'
RECV = f'(import "{IPC}" "[method]subscription.recv" (func $recv (param i32 i64 i32)))'
POLL = f'(import "{IPC}" "[method]subscription.poll" (func $poll (param i32 i32)))'
READY = '(import "astrid:sys/host@1.0.0" "signal-ready" (func $ready))'

# What `recv` writes at `ENVELOPE`: an error byte; at 8 where the messages are, how many, and how many were dropped.
FIRST = f"(i32.load (i32.const {ENVELOPE + 8}))"
RECEIVED = f"(i32.load (i32.const {ENVELOPE + 12}))"
MESSAGE = f"(i32.load offset=8 {FIRST}) (i32.load offset=12 {FIRST})"  # two operands: the payload of the first message

BUMP = """
  (func $alloc (param $old i32) (param $old_len i32) (param $align i32) (param $size i32) (result i32)
    (local $at i32)
    (local.set $at (i32.and
      (i32.add (global.get $heap) (i32.sub (local.get $align) (i32.const 1)))
      (i32.sub (i32.const 0) (local.get $align))))
    (global.set $heap (i32.add (local.get $at) (local.get $size)))
    (local.get $at))"""
ANSWER = f"""
  (func $answer (param $word i32) (param $word_len i32) (param $data i32) (param $data_len i32)
    (i32.store (i32.const {RESULT}) (local.get $word))
    (i32.store (i32.const {RESULT + 4}) (local.get $word_len))
    (i32.store8 (i32.const {RESULT + 8}) (i32.ne (local.get $data_len) (i32.const 0)))
    (i32.store (i32.const {RESULT + 12}) (local.get $data))
    (i32.store (i32.const {RESULT + 16}) (local.get $data_len)))"""
PUBLISHES = f"""
  (func $publish (param $topic i32) (param $topic_len i32) (param $text i32) (param $text_len i32)
    (call $publish_raw (local.get $topic) (local.get $topic_len) (local.get $text) (local.get $text_len)
      (i32.const {RETURNED})))"""


class Guest:
    """One module in the making.

    Args:
        imports: import declarations; `PUBLISH` is there already unless `publishes` is False.
        pages: memory, in pages of 64 KiB.
        publishes: import `publish`, and give it as `$publish topic len text len`.
    """

    def __init__(self, *imports: str, pages: int = 4, publishes: bool = True) -> None:
        self.imports = [*([PUBLISH] if publishes else []), *imports]
        self.functions = [PUBLISHES] if publishes else []
        self.pages = pages
        self.memory = '(memory (export "memory") {pages})'
        self.realloc = '(export "cabi_realloc" (func $alloc))'
        self.hook = ""
        self._data: list[str] = []
        self._free = 2048

    def text(self, text: str | bytes) -> str:
        """Two operands: where that text is in memory, and how long."""
        raw = text.encode() if isinstance(text, str) else text
        at, self._free = self._free, self._free + len(raw) + 8 & ~7
        assert self._free <= HEAP, "too much text for a small guest"
        escaped = "".join(f"\\{byte:02x}" for byte in raw)
        self._data.append(f'(data (i32.const {at}) "{escaped}")')
        return f"(i32.const {at}) (i32.const {len(raw)})"

    def say(self, topic: str, payload: str | None = None) -> str:
        """An instruction that publishes a text, or what the handler was called with."""
        what = "(local.get $payload) (local.get $payload_len)" if payload is None else self.text(payload)
        return f"(call $publish {self.text(topic)} {what})"

    def answer(self, word: str, data: str = "") -> str:
        """An instruction that sets what the handler returns."""
        return f"(call $answer {self.text(word)} {self.text(data)})"

    def subscribe(self, pattern: str, handle: str = "$j") -> str:
        """Instructions that subscribe, and keep the handle in a local."""
        return f"""(call $subscribe {self.text(pattern)} (i32.const {RETURNED}))
    (local.set {handle} (i32.load (i32.const {RETURNED + 4})))"""

    def when(self, action: str, body: str) -> str:
        """`body`, run when the handler was called with an action of that first letter."""
        return f"(if (i32.eq (i32.load8_u (local.get $action)) (i32.const {ord(action[0])})) (then {body}))"

    def handles(self, body: str) -> Guest:
        """Export `astrid-hook-trigger` with that body; it answers `continue` unless the body says otherwise."""
        self.hook = f"""
  (func (export "astrid-hook-trigger")
    (param $action i32) (param $action_len i32) (param $payload i32) (param $payload_len i32) (result i32)
    (local $i i32) (local $j i32)
    {self.answer("continue")}
    {body}
    (global.set $heap (i32.const {HEAP}))
    (i32.const {RESULT}))"""
        return self

    def add(self, *functions: str) -> Guest:
        self.functions += functions
        return self

    def source(self) -> str:
        parts = [
            *self.imports,
            self.memory.format(pages=self.pages),
            f"(global $heap (mut i32) (i32.const {HEAP}))",
            BUMP,
            ANSWER,
            self.realloc,
            *self.functions,
            self.hook,
            *self._data,
        ]
        return "(module\n" + "\n".join(parts) + ")"

    def wasm(self) -> bytes:
        return wat(self.source())


def receive(timeout_ms: int = 60_000, handle: str = "$j") -> str:
    """An instruction that waits for messages of a subscription."""
    return f"(call $recv (local.get {handle}) (i64.const {timeout_ms}) (i32.const {ENVELOPE}))"


def spin(before: str = "") -> str:
    """An endless loop."""
    return f"{before} (loop $for_ever (br $for_ever))"


def compute(rounds: int) -> str:
    """A loop of so many rounds; 10 million take some milliseconds."""
    return f"""(local.set $i (i32.const {rounds}))
    (loop $on (br_if $on (local.tee $i (i32.sub (local.get $i) (i32.const 1)))))"""


def capsule(
    place: Path,
    name: str,
    guest: Guest | bytes,
    subscribe: Mapping[str, str | dict[str, Any]] | None = None,
    publish: Sequence[str] | Mapping[str, Mapping[str, Any]] = (),
    limits: Mapping[str, Any] | None = None,
    **tables: Any,
) -> Path:
    """A capsule's folder below `place`. A row of `subscribe` is a handler's name, or all of the row; `publish` has topics, or
    rows by topic."""
    folder = place / name
    folder.mkdir(parents=True)
    rows = {
        pattern: {"wit": "opaque", **({"handler": row} if isinstance(row, str) else row)}
        for pattern, row in (subscribe or {}).items()
    }
    manifest = {
        "package": {"name": name, "version": "1.0.0", **tables.pop("package", {})},
        "component": [{"id": name, "file": f"{name}.wasm"}],
        "publish": dict(publish) if isinstance(publish, Mapping) else {topic: {"wit": "opaque"} for topic in publish},
        "subscribe": rows,
        **({"limits": dict(limits)} if limits else {}),
        **tables,
    }
    (folder / "Capsule.toml").write_text(tomli_w.dumps(manifest))
    (folder / f"{name}.wasm").write_bytes(guest if isinstance(guest, bytes) else guest.wasm())
    return folder


def good(place: Path) -> Path:
    """A capsule that does no harm: what it hears on `good.ask` it says on `good.said`."""
    guest = Guest()
    guest.handles(guest.say("good.said"))
    return capsule(place, "good", guest, {"good.ask": "echo"}, ["good.said"])


@asynccontextmanager
async def hosted(place: Path, **options: Any) -> AsyncIterator[Host]:
    """A host of what is below `place`, which trusts it, and waits for its modules however long they take to compile, unless the
    options say otherwise."""
    limits = {"start_secs": 60, **options.pop("limits", {})}
    given = {"trust": True, "limits": limits, **options}
    async with open_host([place], state_dir=":memory:", workspace=place, **given) as host:
        yield host


async def next_of(events: Any, seconds: float = 10) -> HostEvent:
    """The next event of a subscription."""
    with trio.fail_after(seconds):
        event: HostEvent = await anext(events)
    return event


async def good_still_answers(host: Host) -> None:
    """The host is up: a call of the good capsule works."""
    async with host.subscribe("good.said") as events:
        host.publish("good.ask", {"n": 1})
        assert (await next_of(events)).payload == {"n": 1}


async def report_of(host: Host, topic: str, payload: Any = None) -> dict[str, Any]:
    """Publish, and wait for the failure report."""
    async with host.subscribe(FAILED + topic) as events:
        host.publish(topic, {} if payload is None else payload)
        report: dict[str, Any] = (await next_of(events)).payload
    return report


# Guests that do harm.

OK_TEXT = "(i32.const 2048) (i32.const 8)"
NO_TIME = {"timeout_secs": 0.2}


def publish_raw(topic: str = OK_TEXT, text: str = OK_TEXT, returned: int = RETURNED) -> str:
    """A publish whose pointers may lead anywhere."""
    return f"(call $publish_raw {topic} {text} (i32.const {returned}))"


def allocator(guest: Guest, body: str) -> Guest:
    """Give the guest an allocator of its own."""
    guest.realloc = ""
    return guest.add(f'(func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) {body})')


def bad(place: Path, guest: Guest | bytes, **options: Any) -> Path:
    """The capsule `bad`, beside the good one: it handles `bad.ask`, may say `bad.said`, and compute for 200 ms."""
    good(place)
    options = {"limits": NO_TIME, "publish": ["bad.said"], "subscribe": {"bad.ask": "act"}, **options}
    return capsule(place, "bad", guest, **options)
