"""One child: from its start to the moment when nothing of it is left.

Its task reads what it writes, follows what its supervisor tells, and ends it when its time is up. When that task is cancelled,
because the host closes, the child's whole family is killed first, and reaped.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, TypeAlias

import trio

from astrid_host.errors import HostError
from astrid_host.hostcalls.io.poll import Signal
from astrid_host.hostcalls.process.control import Failed, Started, Word, words
from astrid_host.hostcalls.process.input import Input
from astrid_host.hostcalls.process.launching import REAP_S, SupervisedProcess, number_of
from astrid_host.hostcalls.process.rings import Ring
from astrid_host.hostcalls.process.shapes import ExitInfo

if TYPE_CHECKING:
    from astrid_host.hostcalls.process.commands import Command
    from astrid_host.hostcalls.process.launching import Spawner
    from astrid_host.hostcalls.process.places import Folder, Grants
    from astrid_host.scheduler import Scheduler

log = logging.getLogger(__name__)

READ_BYTES = 64 << 10
SWEEP_S = 10.0  # how long a supervisor may take to end what its child left behind
DRAIN_S = 1.0  # how long output is awaited from whoever got hold of a dead child's pipes
GRACE_S = 5.0

Kind: TypeAlias = Literal["foreground", "background", "persistent"]


class Child:
    """One child. Made by the tracker, whose nursery runs it.

    Args:
        process_id: under which its capsule and principal find it.
        kind: who it ends with: its call, its handle, or nobody.
        command: what is run.
        principal, capsule: whose it is.
        call_id: of the tool call that waits for it, if one does.
        scheduler: who wakes guests.
        told: called on the trio thread with the child and `log-ready` or `stdin-drained`.

    Attributes:
        lock: guards all that host functions see.
        started, exited, gone: it runs (or failed to); it has ended; and nothing of it is left, its output is complete.
        exit_signal, log_signal: the same for guests: it has ended; there is output to read.
        failure: why it could not be run.
        reason: why it ended: `self-exit`, `killed`, `reaped-ttl`, `reaped-shutdown`.
        interrupted: it was, because its call or capsule ended.
        waiting: how many calls wait for its end.
        quiet: nobody was told of its output since it was read.
        watched: the end of the topics on which it is told of, and the source in whose name, if it is.
    """

    def __init__(
        self,
        process_id: str,
        kind: Kind,
        command: Command,
        principal: str,
        capsule: str,
        call_id: str | None,
        scheduler: Scheduler,
        told: Callable[[Child, str], None],
    ) -> None:
        self.id = process_id
        self.kind = kind
        self.command = command
        self.principal = principal
        self.capsule = capsule
        self.call_id = call_id
        self.rings = [Ring(command.ring_bytes, command.waits and kind != "foreground") for _ in range(2)]
        self.started, self.exited, self.gone = trio.Event(), trio.Event(), trio.Event()
        self.released = trio.Event()
        self.exit_signal, self.log_signal = Signal(scheduler), Signal(scheduler)
        self._doomed = Signal(scheduler)
        self._token = trio.lowlevel.current_trio_token()
        self.failure: HostError | None = None
        self.exit: ExitInfo | None = None
        self.reason = "self-exit"
        self.os_pid: int | None = None
        self.cpu_ms: int | None = None
        self.peak_bytes: int | None = None
        self.born = self.touched = time.monotonic()
        self.told = told
        self.watched: tuple[str, str] | None = None
        self.interrupted = False
        self.input = Input(None)
        self.waiting = 0
        self.quiet = True
        self._supervised: SupervisedProcess | None = None
        self.lock = scheduler.lock
        self._room = trio.lowlevel.ParkingLot()

    @property
    def live(self) -> bool:
        """Whether it has not ended yet."""
        return not self.exited.is_set()

    @property
    def present(self) -> bool:
        """Whether there may be something left of it."""
        return not self.gone.is_set()

    def touch(self) -> None:
        """It is in use. From any thread."""
        self.touched = time.monotonic()

    def signal(self, number: int) -> None:
        """Signal its group. From any thread; nothing happens when it has ended."""
        with self.lock:
            if self._supervised is not None and self.exit is None and self.started.is_set():
                self._supervised.signal(number)

    def kill(self, reason: str = "killed") -> None:
        """Kill its family, as soon as it is there. From any thread."""
        with self.lock:
            if self.exit is None and not self._doomed.is_set:
                self.reason = reason
            if self._supervised is not None:
                self._supervised.hang_up()
        self._doomed.set()

    def abandon(self) -> None:
        """Kill its family soon. From any thread and at any time: takes no lock."""
        with contextlib.suppress(trio.RunFinishedError):  # it has been killed at the end of the loop
            self._token.run_sync_soon(self.kill)

    async def interrupt(self, grace_s: float) -> None:
        """Interrupt its group, and kill its family after a while. Once is enough; cancelled, it is killed at once."""
        if not self.interrupted:
            self.interrupted = True
            await self._end(signal.SIGINT, grace_s, "killed")

    async def stop(self, grace_s: float) -> None:
        """Ask it to end, kill it after a while, and wait until it is gone. Cancelled, it is killed at once."""
        await self._end(signal.SIGTERM, grace_s, "killed")
        await self.gone.wait()

    async def wait(self, seconds: float, complete: bool) -> ExitInfo:
        """Wait for its end, and with `complete` for all its output.

        Raises:
            HostError: `wait-timeout`.
        """
        event = self.gone if complete else self.exited
        self.waiting += 1
        try:
            with trio.move_on_after(seconds):
                await event.wait()
        finally:
            self.waiting -= 1
            self.touch()
        if self.exit is None or not event.is_set():
            raise HostError("wait-timeout", detail=f"it has not ended within {seconds:g} seconds")
        return self.exit

    async def _end(self, number: int, grace_s: float, reason: str) -> None:
        if not self.present:
            return
        if self.live:
            self.reason = reason
        try:
            with trio.move_on_after(grace_s):
                await self.started.wait()
                self.signal(number)
                await self.gone.wait()
        finally:
            self.kill(reason)

    # Its life.

    async def run(self, spawner: Spawner, folder: Folder, grants: Grants) -> None:
        """All of it. `gone` is set when this returns. Cancelled, it is killed first."""
        try:
            supervised = await spawner.start(self.command, folder, grants)
        except HostError as error:
            self.fail(error)
            return
        with self.lock:
            self._supervised = supervised
            self.input = Input(supervised.take_stdin())
            self.command.files, self.command.fixed = [], []
        try:
            if self._doomed.is_set:
                supervised.hang_up()
            await self._live(supervised)
        finally:
            with trio.CancelScope(shield=True):
                await self._bury(supervised)

    def fail(self, error: HostError) -> None:
        """It could not be run."""
        self.failure = error
        self._is_over()

    def _is_over(self) -> None:
        for event in (self.started, self.exited, self.gone):
            event.set()
        self.exit_signal.set()
        self.log_signal.set()

    async def _live(self, supervised: SupervisedProcess) -> None:
        await trio.lowlevel.checkpoint()
        async with trio.open_nursery() as nursery:
            done = [trio.Event(), trio.Event()]
            for number, ring in enumerate(self.rings):
                nursery.start_soon(self._drain, supervised.outputs[number], ring, done[number])
            nursery.start_soon(self._insist, supervised)
            nursery.start_soon(self._hurry, supervised)
            with trio.CancelScope() as listening:
                nursery.start_soon(self._outlive, supervised, listening)
                await self._listen(supervised, nursery)
            supervised.hang_up(listen=False)
            with trio.move_on_after(DRAIN_S):
                for event in done:
                    await event.wait()
            nursery.cancel_scope.cancel()

    async def _listen(self, supervised: SupervisedProcess, nursery: trio.Nursery) -> None:
        request, supervised.request = supervised.request, b""
        async with contextlib.aclosing(words(supervised.control, request)) as heard:
            del request
            async for word in heard:
                if not supervised.may_have_said(word):
                    log.warning(
                        "%s: %r speaks for its supervisor, and is killed", self.capsule, self.command.argv[0][:256]
                    )
                    self.kill()
                    return
                self._heard(word, supervised, nursery)

    def _heard(self, word: Word, supervised: SupervisedProcess, nursery: trio.Nursery) -> None:
        if isinstance(word, Started):
            supervised.child = word.child
            self.os_pid = number_of(word.child) if word.child is not None else word.pid
            self.started.set()
            nursery.start_soon(self._feed)
            nursery.start_soon(self._expire)
        elif isinstance(word, Failed):
            self.failure = word.error(self.command.argv[0])
        else:
            self.cpu_ms, self.peak_bytes = word.cpu_ms, word.peak_bytes
            self._exited(word.how)

    async def _insist(self, supervised: SupervisedProcess) -> None:
        """Once it is to be killed, do not rely on its supervisor for long."""
        await self._doomed.wait()
        with trio.move_on_after(REAP_S):
            await self.exited.wait()
            return
        await supervised.force()

    async def _hurry(self, supervised: SupervisedProcess) -> None:
        """Nor once it has ended; this is cancelled when its supervisor has."""
        await self.exited.wait()
        await trio.sleep(SWEEP_S)
        supervised.hang_up()
        await supervised.force()

    async def _outlive(self, supervised: SupervisedProcess, listening: trio.CancelScope) -> None:
        """When the supervisor has ended, do not listen to whoever else has its socket."""
        await supervised.ended()
        await trio.sleep(DRAIN_S)
        listening.cancel()

    def _exited(self, how: ExitInfo) -> None:
        with self.lock:
            self.exit = how
            self.os_pid = None
            if self.reason == "self-exit" and how.signal is not None:
                self.reason = "killed"
            for ring in self.rings:
                ring.complete()
        self.make_room()
        self.exited.set()
        self.exit_signal.set()

    async def _drain(self, descriptor: int, ring: Ring, done: trio.Event) -> None:
        os.set_blocking(descriptor, False)
        try:
            while True:
                while not ring.room:
                    await self._room.park()
                try:
                    data = os.read(descriptor, min(READ_BYTES, ring.room))
                except BlockingIOError:
                    await trio.lowlevel.wait_readable(descriptor)
                    continue
                if not data:
                    return
                with self.lock:
                    ring.add(data)
                    fresh, self.quiet = self.quiet, False
                self.log_signal.set()
                if fresh:
                    self.told(self, "log-ready")
                await trio.lowlevel.checkpoint()
        finally:
            with self.lock:
                ring.ended = True
            self.log_signal.set()
            done.set()

    def make_room(self) -> None:
        """Something was read: go on reading. On the trio thread."""
        self._room.unpark_all()

    async def _feed(self) -> None:
        stdin, self.command.stdin = self.command.stdin, None
        if await self.input.feed(stdin or b"", self.command.stdin_open) and stdin:
            self.told(self, "stdin-drained")

    async def _expire(self) -> None:
        while True:
            due = self.born + self.command.lifetime_s
            if self.kind == "persistent":
                used = time.monotonic() if self.waiting else self.touched
                due = min(due, used + self.command.idle_s)
            left = due - time.monotonic()
            if left <= 0:
                break
            await trio.sleep(left)
        await self._end(signal.SIGTERM, GRACE_S, "reaped-ttl")

    async def _bury(self, supervised: SupervisedProcess) -> None:
        """Make sure that nothing of it is left."""
        if self.exit is None and self.failure is None and self.started.is_set() and self.reason == "self-exit":
            self.reason = "reaped-shutdown"
        supervised.hang_up()
        if not await supervised.reaped():
            await supervised.force()
        if self.exit is None and self.failure is None:
            self._lost(supervised)
        self.input.close()
        with self.lock:
            self._supervised = None
            supervised.close()
        self._is_over()

    def _lost(self, supervised: SupervisedProcess) -> None:
        """Its supervisor ended without a word."""
        supervised.kill_child()
        said = supervised.said()
        if self.started.is_set() or self._doomed.is_set:
            self._exited(ExitInfo(None, int(signal.SIGKILL)))
            if said and not self._doomed.is_set:
                log.warning("the supervisor of %r ended: %s", self.command.argv[0], said)
            return
        self.failure = HostError("unknown", "the process could not be started", detail=f"its sandbox failed: {said}")
