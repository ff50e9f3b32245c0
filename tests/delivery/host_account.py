"""What must be true of a host's events once nothing is under way: each was handled, or reported once with a good reason.

`check_account` knows nothing of the host but what the events told the handlers to do. It asserts for every event how many of
its handlers ended well, failed and never ran, and that its report, its settled event and what followed from it say so; for
every queue, that events came in order, and that one was refused when 64 waited, and only then.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from typing import NamedTuple

from host_tape import NEVER_RAN, Run, Tape, Who
from told_capsules import BY_TOPIC, CHAIN, LAST, MANY, RELOADED, ROLES, SINK, TWIN, Role

from astrid_host import HostEvent

ROOM = 64  # for events that entered, in one queue
TRAPS = 5  # of a capsule for one principal, that put it in quarantine


class Ends(NamedTuple):
    """How the handlers of an event ended."""

    handlers: int
    done: int
    failed: list[Role]
    skipped: list[Role]


def check_account(tape: Tape) -> None:
    """Assert all of it. Nothing may be open."""
    for event in tape.asked.values():
        ends = _ends_of_chain(tape, event) if event.topic == CHAIN[0].topic else _ends_of_copies(tape, event)
        _check_report(tape, event, ends)
        _check_settled(tape, event, ends)
        _check_refusals(tape, event)
    for found in (tape.reports, tape.refusals, tape.settled):
        assert not [seq for seq, told in found.items() if told and seq not in tape.asked], "told of what never was"
    _check_what_followed(tape)
    _check_order(tape)
    for role in ROLES:
        if role not in CHAIN[1:]:
            for who in {event.principal for event in tape.asked.values()}:
                _check_room(tape, role, who)


def _ends_of_copies(tape: Tape, event: HostEvent) -> Ends:
    roles = BY_TOPIC[event.topic]
    skipped = [role for role in roles if tape.run(event, role) is None]
    failed = [run.role for run in tape.runs_of(event) if run.failure]
    return Ends(len(roles), len(roles) - len(failed) - len(skipped), failed, skipped)


def _ends_of_chain(tape: Tape, event: HostEvent) -> Ends:
    """Follow it along its chain, and see that nothing ran after its end."""
    before: Run | None = None
    ends = Ends(1, 1, [], [])
    over = False
    for role in CHAIN:
        run = tape.run(event, role)
        if over:
            assert run is None, f"{run} after the end of its chain"
        elif run is None:
            if role != CHAIN[0]:
                _check_quarantine(tape, role, event.principal, event.seq)
            if not role.goes_on:
                over, ends = True, Ends(1, 0, [], [role])
        else:
            assert before is None or run.begun > (before.ended or before.begun), f"{run} before the end of {before}"
            before = run
            if run.failure == "deny" or (run.failure and not role.goes_on):
                over, ends = True, Ends(1, 0, [role], [])
            over = over or run.act == "final"
    return ends


def _check_report(tape: Tape, event: HostEvent, ends: Ends) -> None:
    reports = tape.reports[event.seq]
    bad = [*ends.failed, *ends.skipped]
    if len(reports) != bool(bad):
        raise AssertionError(f"{tape.told(event)} is reported {len(reports)} times: {ends}")
    if not bad:
        return
    (report,) = reports
    told = report.payload
    assert (told["handlers"], told["done"]) == (ends.handlers, ends.done), (
        f"{tape.told(event)}: {ends} is told as {told}"
    )
    assert (told["topic"], told["payload"], report.principal) == (event.topic, event.payload, event.principal)
    assert set(told["published"]) == _published(tape, event), f"{tape.told(event)}: {told}"
    for role in bad:
        run, reason = tape.run(event, role), _reason(report, role)
        assert reason in ((run.failure,) if run else NEVER_RAN), f"{tape.told(event)}: {reason} of {role.name}: {told}"


def _reason(report: HostEvent, role: Role) -> str:
    """Why a handler failed: a report tells of one, and names the others in its detail."""
    told = report.payload
    if (told["capsule"], told["action"]) == (role.capsule, str(role.at)):
        return str(told["reason"])
    named = re.search(rf"{role.capsule}/{role.at}: ([\w-]+)", told["detail"])
    assert named, f"{role.capsule}/{role.at} is not named in {told}"
    return named[1]


def _published(tape: Tape, event: HostEvent) -> set[str]:
    topics = set()
    for run in tape.runs_of(event):
        topics.add(f"w.said.begun.{run.role.capsule}")
        if run.failure != "trap":
            topics.add(f"w.said.ended.{run.role.capsule}")
        topics |= {
            "wait": {f"w.said.waits.{run.role.capsule}"},
            "pass_on": {LAST.topic},
            "half": {LAST.topic},
            "spread": {TWIN[0].topic},
            "many": {SINK.topic},
            "nobody": {"w.nobody"},
        }.get(run.act, set())
    return topics


def _check_settled(tape: Tape, event: HostEvent, ends: Ends) -> None:
    told = tape.settled[event.seq]
    assert len(told) == tape.asks(event), f"seq {event.seq} was told {len(told)} times to have settled"
    if told:
        counts = {
            "handlers": ends.handlers,
            "done": ends.done,
            "failed": len(ends.failed),
            "skipped": len(ends.skipped),
        }
        said = {**counts, "topic": event.topic, "seq": event.seq, "principal": event.principal}
        assert told[0].payload == said, f"{told[0].payload} is not {said}"
        before = [*tape.reports[event.seq], *tape.refusals[event.seq]]
        assert told[0].seq > max([other.seq for other in before], default=0), "settled before its reports"
        assert told[0].seq > max([run.ended or run.begun for run in tape.runs_of(event)], default=0)


def _check_refusals(tape: Tape, event: HostEvent) -> None:
    """A publish that was refused is told when the handler ended well, once a topic."""
    expected = sorted(run.role.capsule for run in tape.runs_of(event) if run.act == "refused")
    denied = [told.payload for told in tape.refusals[event.seq] if told.payload["topic"] != SINK.topic]
    assert sorted(told["capsule"] for told in denied) == expected, f"{denied} for the refusals of {expected}"
    for told in denied:
        assert (told["reason"], told["topic"], told["payload"]) == ("publish-denied", "w.secret", event.payload)


def _check_what_followed(tape: Tape) -> None:
    """What handlers published is there, no more and no less."""
    acts = Counter((run.event.principal, run.event.payload, run.act) for run in tape.runs.values())
    followed = Counter(
        (event.principal, event.payload, event.topic) for seq, event in tape.asked.items() if seq not in tape.entered
    )
    nobody = Counter((told.principal, told.payload["payload"]) for told in tape.nobody)
    refused = {(told.principal, told.payload["payload"]) for all_ in tape.refusals.values() for told in all_}
    for who, payload in {(who, payload) for who, payload, _ in [*acts, *followed]}:
        assert followed[who, payload, LAST.topic] == acts[who, payload, "pass_on"] + acts[who, payload, "half"]
        assert followed[who, payload, TWIN[0].topic] == acts[who, payload, "spread"]
        assert nobody[who, payload] == acts[who, payload, "nobody"]
        most = MANY * acts[who, payload, "many"]
        sunk = followed[who, payload, SINK.topic]
        assert sunk == most or (sunk < most and (who, payload) in refused), f"{sunk} of {most} events were published"


def _check_order(tape: Tape) -> None:
    for (capsule, who), runs in tape.by_queue.items():
        for role in ROLES:
            seqs = [run.event.seq for run in runs if run.role == role]
            assert seqs == sorted(seqs), f"{capsule} handled the events of {who} on {role.topic} in the order {seqs}"


def _check_room(tape: Tape, role: Role, who: Who) -> None:
    """Replay the queue into which a role's events go first: who entered, and how many waited then."""
    begun: list[int] = []  # when those that entered began to run, in order
    gone = 0  # that quarantine took out of the queue, or never let in
    for event in tape.asked.values():
        if event.topic != role.topic or event.principal != who:
            continue
        run = tape.run(event, role)
        entered = event.seq in tape.entered
        waited = len(begun) - bisect_right(begun, event.seq)
        if run is not None:
            if entered:
                # The first of those that seem to wait may have been taken, and not have said so yet.
                assert waited <= ROOM, f"{run} entered when {waited} waited"
                begun.append(run.begun)
        elif _reason(tape.reports[event.seq][0], role) == "quarantined":
            _check_quarantine(tape, role, who, event.seq)
            gone += 1
        elif entered:
            assert waited + gone >= ROOM, f"seq {event.seq} was refused by {role.capsule} when {waited} of {who} waited"
        else:
            assert role == SINK, f"seq {event.seq} follows from another: {role.capsule} has room for it"


def _check_quarantine(tape: Tape, role: Role, who: Who, seq: int) -> None:
    traps = sum(run.failure == "trap" for run in tape.by_queue[role.capsule, who])
    assert role.capsule not in RELOADED, f"{role.capsule} is never in quarantine, but did not handle seq {seq}"
    assert traps >= TRAPS, f"{role.capsule} trapped {traps} times for {who}, but did not handle seq {seq}"
