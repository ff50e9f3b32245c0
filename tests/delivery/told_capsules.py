"""Capsules whose handlers do what the event tells them, and the words for it.

An event's payload is `"<number>|<letters>"`, with one letter for each handler of all capsules: what that one is to do. So an
event can be passed on as it is, and every handler on its way knows its part. A handler says `w.said.begun.<capsule>` first
and, unless it traps, `w.said.ended.<capsule>` last, both with the event's payload.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import tomli_w
from guests_in_wat import RECV, SUBSCRIBE, Guest, capsule, compute, receive

DROP = '(import "astrid:ipc/host@1.0.0" "[resource-drop]subscription" (func $drop (param i32)))'
MANY = 1100  # events of a flood: more than a queue has room for before its publisher is slowed down
BODY = len('"000000|')  # where the letters begin in a payload's JSON

GOES_WELL = {"go", "final", "compute", "wait", "pass_on", "nobody", "refused", "spread", "many"}
FAILS_AS = {"trap": "trap", "half": "trap", "deny": "deny", "odd": "guest-fault"}
LETTERS = {act: act[0] for act in [*GOES_WELL, *FAILS_AS]}
ACTS = {letter: act for act, letter in LETTERS.items()}
assert len(ACTS) == len(LETTERS), "two acts have one letter"


class Role(NamedTuple):
    """One handler: its letter's place, its name in the model, its capsule, and its row."""

    at: int
    name: str
    capsule: str
    topic: str
    priority: int = 100
    goes_on: bool = False


SOLO = Role(0, "solo", "solo", "w.ask.solo")
TWIN = (Role(1, "left", "left", "w.ask.twin"), Role(2, "right", "right", "w.ask.twin"))
CHAIN = (
    Role(3, "guard", "guard", "w.ask.chain", 10),
    Role(4, "maybe", "maybe", "w.ask.chain", 20, goes_on=True),
    Role(5, "end", "solo", "w.ask.chain", 30),
)
LAST = Role(6, "last", "last", "w.ask.last")
SINK = Role(7, "sink", "sink", "w.ask.sink")
ROLES = (SOLO, *TWIN, *CHAIN, LAST, SINK)
BY_TOPIC = {topic: tuple(r for r in ROLES if r.topic == topic) for topic in {role.topic for role in ROLES}}
RELOADED = {"right", "last", "sink"}  # capsules that are never in quarantine
ASKS_SETTLED = {"w.ask.twin", "w.ask.last", "w.ask.sink"}  # what guests publish there is told to have settled


def written(number: int, acts: Iterable[str]) -> str:
    """The payload: a number of six digits, and the acts of all roles."""
    return f"{number:06}|" + "".join(LETTERS[act] for act in acts)


def act_of(payload: str, role: Role) -> str:
    """What a payload tells a role to do."""
    return ACTS[payload[BODY - 1 + role.at]]  # without its quotes


def waits(guest: Guest, name: str) -> str:
    """Wait for somebody's `w.ask.wake`."""
    return f"""
    {guest.subscribe("w.ask.wake")}
    {guest.say(f"w.said.waits.{name}")}
    {receive()}
    (call $drop (local.get $j))"""


def floods(guest: Guest) -> str:
    """Publish more than a queue has room for."""
    return f"""
    (local.set $j (i32.const {MANY}))
    (loop $next {guest.say(SINK.topic)} (br_if $next (local.tee $j (i32.sub (local.get $j) (i32.const 1)))))"""


def told(name: str) -> Guest:
    """A guest that does what the event tells it."""
    guest = Guest(SUBSCRIBE, RECV, DROP)
    ended = guest.say(f"w.said.ended.{name}")
    bodies = {
        "go": "",
        "final": guest.answer("final"),
        "deny": guest.answer("deny", "told to"),
        "odd": guest.answer("perhaps"),
        "trap": "(unreachable)",
        "half": guest.say(LAST.topic) + "(unreachable)",
        "pass_on": guest.say(LAST.topic),
        "spread": guest.say("w.ask.twin"),
        "nobody": guest.say("w.nobody"),
        "refused": guest.say("w.secret"),
        "compute": compute(1_000_000),
        "wait": waits(guest, name),
        "many": floods(guest),
    }
    letter = f"(i32.load8_u (i32.add (local.get $payload) (i32.add (i32.const {BODY - 48}) (local.get $i))))"
    acts = "".join(
        f"(if (i32.eq (local.get $i) (i32.const {ord(LETTERS[act])})) (then {body}))"
        for act, body in bodies.items()
        if body
    )
    begun = guest.say(f"w.said.begun.{name}")
    # The action's first letter is the role's number. What a body leaves in $i is no letter.
    return guest.handles(
        f"{begun} (local.set $i (i32.load8_u (local.get $action))) (local.set $i {letter}) {acts} {ended}"
    )


def make_capsules(place: Path) -> None:
    """Write all of them below `place`."""
    for name in sorted({role.capsule for role in ROLES}):
        rows: dict[str, str | dict[str, object]] = {"w.ask.wake": {}}
        for role in ROLES:
            if role.capsule == name:
                more = {"on_error": "continue"} if role.goes_on else {}
                rows[role.topic] = {"handler": str(role.at), "priority": role.priority, **more}
        says = ["w.said.*", "w.nobody", "w.ask.twin", "w.ask.last", "w.ask.sink"]
        folder = capsule(place, name, told(name), rows, says, {"on_trap": "reload"} if name in RELOADED else None)
        manifest = tomllib.loads((folder / "Capsule.toml").read_text("utf-8"))
        for topic in ASKS_SETTLED:
            manifest["publish"][topic]["settle"] = True
        (folder / "Capsule.toml").write_text(tomli_w.dumps(manifest))
