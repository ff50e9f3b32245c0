"""Host functions that are audited: each call makes one row, committed before the guest goes on.

A row says on whose behalf which capsule called what on which target, and how it ended: `ok`, what a person decided, the
case of the error that the guest got, `cancelled` when its call ended while it waited, or `failed` when the call ended by a
fault. Packages of which only refusals count (ipc, kv) make a row when they refuse. (Astrid, host functions: every host call
is audited.)

While another process has the database locked, the call waits, and its guest sleeps: what a plain function could not write, and
then its row, are tried again in the order in which they came, for 5 s at most. Rows come last, so they tell how a call
ended; nothing that was done is undone because its row is late, and none is lost because its call is cancelled meanwhile. A
refusal of ipc or kv does not wait for its row, which has its place in that order all the same.

When the row of a call that went well cannot be written, because the disk is full or the database was locked for all that time,
the guest gets `unknown` with a text that says that it was done (a function that has no errors ends its call instead), what
it would have got is closed, and the log says what to do: nothing is done for guests in silence. When it cannot be written
for one that went wrong, the guest gets its own error, and the log says so. What a person answered stands as well: the call
that it was asked for has a row of its own, without which that is not done.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, NoReturn, Protocol, TypeAlias

import trio

from astrid_host.engine import Suspend
from astrid_host.errors import HostError, StoreError
from astrid_host.hostcalls.interface import HostFunction
from astrid_host.hostcalls.lock_retry import LockRetry, over
from astrid_host.stores import Locked

log = logging.getLogger(__name__)

ASKED, OK, CANCELLED, FAILED = "asked", "ok", "cancelled", "failed"
REFUSALS_ONLY = ("ipc", "kv")
NO_REFUSALS = ("cas-mismatch",)  # an answer like any other
UNWRITTEN = "it was done, but the audit cannot be written"


class Audit(Protocol):
    """Where the rows go."""

    def append(self, principal: str, capsule: str, function: str, target: str, verdict: str) -> int:
        """Raises StoreError; Locked when the same may be tried again."""
        ...


# A row without its verdict: principal, capsule, function, target. A plain tuple, because one is made at each call.
Row: TypeAlias = tuple[str, str, str, str]


class Auditor:
    """Makes rows of calls. Any thread may use it.

    Args:
        audit: where they go.
        redacted: takes secrets out of a target, which may be of any length: it is cut by whoever keeps it, afterwards.
        patience: lets calls wait while another process has the database locked; None for a database that no other can lock.
    """

    def __init__(self, audit: Audit, redacted: Callable[[str], str] = str, patience: LockRetry | None = None) -> None:
        self._audit = audit
        self._redacted = redacted
        self._patience = patience

    def denied(self, call: Any, function: str, target: str, case: str) -> None:
        """Write that a call was refused. Raises nothing, and waits for nothing: the guest gets its refusal anyway.

        Args:
            call: the running call.
            function: `<package>.<function>`, such as `ipc.publish`.
            target: the topic, pattern or key.
            case: of the error that the guest gets.
        """
        self.told(self._row(call, function, target), case)

    def audited(self, module: str, function: HostFunction) -> HostFunction:
        """A host function whose calls make rows; the function itself when it does not say how to name their targets.

        Args:
            module: the interface's id, such as `astrid:fs/host@1.0.0`.
            function: one of its functions. Where calls may have to wait, a plain one may suspend its guest then; of ipc and
                kv, one that says so.
        """
        if function.audited is None:
            return function
        package = module.partition(":")[2].partition("/")[0]
        name = function_name(package, function.name)
        inner, target_of = function.run, function.audited
        if function.waits and package in REFUSALS_ONLY:
            return HostFunction(function.name, self._waiting_refusals(name, inner, target_of), False)
        if function.waits:
            run = self._waiting(name, inner, target_of, function.announced, function.stands)
            return HostFunction(function.name, run, False)
        refusals_only = package in REFUSALS_ONLY
        if function.suspends and not refusals_only:
            raise RuntimeError(f"{name} ends on its guest's stack, where no row can wait")
        patience = self._patience if function.suspends or not refusals_only else None
        make = self._refusals if refusals_only else self._plain
        return HostFunction(function.name, make(name, inner, target_of, patience), patience is not None)

    def _plain(
        self, name: str, inner: Callable[..., Any], target_of: Callable[..., str], patience: LockRetry | None
    ) -> Callable[..., Any]:
        def run(call: Any, *arguments: Any) -> Any:
            row = self._row(call, name, target_of(*arguments))
            try:
                value = inner(call, *arguments)
            except HostError as error:
                if patience is not None and _was_locked(error):
                    return _Held(self, row, True, partial(inner, call, *arguments), error).asleep(patience, call)
                late = self.told(row, error.case)
                if late is None or patience is None:
                    raise
                return patience.asleep(call, late, partial(_raise, error))
            except BaseException:
                self.told(row, FAILED)
                raise
            late = self._done(row, value)
            if late is None or patience is None:
                return value
            return patience.asleep(call, late, partial(self._settled, row, value, late), partial(_close, value))

        return run

    def _waiting(
        self, name: str, inner: Callable[..., Any], target_of: Callable[..., str], announced: bool, stands: bool
    ) -> Callable[..., Any]:
        async def run(call: Any, *arguments: Any) -> Any:
            row = self._row(call, name, target_of(*arguments))
            if announced:
                await self._announced(row)
            try:
                value = await inner(call, *arguments)
            except BaseException as error:
                late = self.told(row, _verdict(error))
                if late is not None:
                    await over(late)
                raise
            if stands:
                late = self.told(row, getattr(value, "decision", OK))
                if late is not None:
                    await over(late)
                return value
            late = self._done(row, value)
            if late is not None:
                await over(late)
                self._settled(row, value, late)
            return value

        return run

    def _refusals(
        self, name: str, inner: Callable[..., Any], target_of: Callable[..., str], patience: LockRetry | None
    ) -> Callable[..., Any]:
        def run(call: Any, *arguments: Any) -> Any:
            try:
                return inner(call, *arguments)
            except HostError as error:
                row = self._row(call, name, target_of(*arguments))
                if patience is not None and _was_locked(error):
                    return _Held(self, row, False, partial(inner, call, *arguments), error).asleep(patience, call)
                if _is_refusal(error.case):
                    self.told(row, error.case)
                raise

        return run

    def _waiting_refusals(
        self, name: str, inner: Callable[..., Any], target_of: Callable[..., str]
    ) -> Callable[..., Any]:
        async def run(call: Any, *arguments: Any) -> Any:
            try:
                return await inner(call, *arguments)
            except HostError as error:
                if _is_refusal(error.case):
                    self.told(self._row(call, name, target_of(*arguments)), error.case)
                raise

        return run

    # Rows.

    def _row(self, call: Any, function: str, target: str) -> Row:
        return call.principal, call.capsule.id, function, target

    def append(self, row: Row, verdict: str) -> None:
        """Write a row, at once. Raises StoreError."""
        principal, capsule, function, target = row
        self._audit.append(principal, capsule, function, self._redacted(target), verdict)

    def _written(self, row: Row, verdict: str) -> Future[object] | None:
        """Write a row; returns the future of one that is late. Raises StoreError."""
        if self._patience is None:
            self.append(row, verdict)
            return None
        return self._patience.attempt(self.append, row, verdict)

    def _done(self, row: Row, value: Any) -> Future[object] | None:
        """Write the row of a call that went well; returns the future of one that is late."""
        try:
            # What a person decided says more than that the question was asked.
            return self._written(row, getattr(value, "decision", OK))
        except StoreError as error:
            raise _unwritten(row, value, error) from error

    async def _announced(self, row: Row) -> None:
        """Write the row of a call that has yet to begin, which it does not when that cannot be written."""
        try:
            late = self._written(row, ASKED)
            if late is not None:
                await over(late)
                late.result()
        except StoreError as error:
            log.error("%s: %s is not done, because its row in the audit was not written: %s", row[1], row[2], error)
            raise HostError("unknown", "the audit cannot be written", detail=str(error)) from error

    def _settled(self, row: Row, value: Any, late: Future[object]) -> Any:
        """What that call gives, now that its row is written, or cannot be."""
        error = late.exception()
        if error is not None:
            raise _unwritten(row, value, error) from error
        return value

    def told(self, row: Row, verdict: str) -> Future[object] | None:
        """Write the row of a call that went wrong, which is told anyway; returns the future of one that is late."""

        def lost(error: BaseException) -> None:
            log.error(
                "%s: that %s ended with %s was not written into the audit: %s",
                row[1],
                row[2],
                verdict,
                error,
            )

        def ended(written: Future[object]) -> None:
            if (error := written.exception()) is not None:
                lost(error)

        try:
            late = self._written(row, verdict)
        except StoreError as error:
            lost(error)
            return None
        if late is not None:
            late.add_done_callback(ended)
        return late


class _Held:
    """A plain call whose work found the database locked. On the thread that tries it again the work is done, then its row.

    Args:
        rows: who writes it.
        row: without its verdict.
        every: whether every end makes a row, or only a refusal.
        work: gives the call's result, or raises.
        refusal: what it raised, and what the guest gets when the database stays locked.
    """

    def __init__(self, rows: Auditor, row: Row, every: bool, work: Callable[[], Any], refusal: HostError) -> None:
        self._rows = rows
        self._row = row
        self._every = every
        self._work = work
        self._gone = threading.Event()
        self._verdict: str | None = None  # until the work is done
        self._value: Any = None
        self._error: BaseException = refusal

    def asleep(self, patience: LockRetry, call: Any) -> Suspend:
        late = patience.later(self._attempt)
        return patience.asleep(call, late, partial(self._finish, late), self._cancel)

    def _attempt(self) -> None:
        verdict = self._verdict = self._verdict or self._end()
        if self._every:
            self._rows.append(self._row, verdict)
        elif _is_refusal(verdict):
            self._rows.told(self._row, verdict)

    def _end(self) -> str:
        if self._gone.is_set():
            return CANCELLED
        try:
            self._value = self._work()
        except HostError as error:
            if _was_locked(error):
                raise Locked(str(error.__cause__)) from error
            self._error = error
            return error.case
        except BaseException as error:  # noqa: BLE001 - raised again on the guest's own call
            self._error = error
            return FAILED
        if self._gone.is_set():
            _close(self._value)
        return OK

    def _cancel(self) -> None:
        """What was not done yet will not be."""
        self._gone.set()
        if self._verdict is not None:
            _close(self._value)

    def _finish(self, late: Future[None]) -> Any:
        failed = late.exception()
        if self._verdict == OK:
            if failed is not None:
                raise _unwritten(self._row, self._value, failed) from failed
            return self._value
        if failed is not None:  # perhaps it can be written by now; if not, that is said
            self._rows.told(self._row, _verdict(self._error))
        raise self._error


def _is_refusal(verdict: str) -> bool:
    return verdict not in (OK, CANCELLED, *NO_REFUSALS)


def _verdict(error: BaseException) -> str:
    if isinstance(error, HostError):
        return error.case
    return CANCELLED if _is_cancellation(error) else FAILED


def _is_cancellation(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return error.split(trio.Cancelled)[1] is None
    return isinstance(error, trio.Cancelled)


def _was_locked(error: HostError) -> bool:
    """Whether a store could not do what it was asked to, because another process writes: then it has done nothing."""
    return isinstance(error.__cause__, Locked)


def _raise(error: BaseException) -> NoReturn:
    raise error


def _unwritten(row: Row, value: Any, error: BaseException) -> HostError:
    _close(value)
    log.error("%s: %s was done, but its row in the audit was not written: %s", row[1], row[2], error)
    return HostError("unknown", UNWRITTEN, detail=f"{UNWRITTEN}: {error}")


def _close(value: Any) -> None:
    """The guest will not have it."""
    close = getattr(value, "close", None)
    if close is not None:
        with contextlib.suppress(OSError):  # the guest hears of something else, or is gone
            close()


def function_name(package: str, name: str) -> str:
    """A core name as the audit spells it: `[method]file-handle.read` of `fs` is `fs.file-handle.read`."""
    return f"{package}.{name.rpartition(']')[2]}"
