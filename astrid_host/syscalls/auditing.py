"""Host functions that are audited: each call makes one row, committed before the guest goes on.

A row says on whose behalf which capsule called what on which target, and how it ended: `ok`, what a person decided, the
case of the error that the guest got, `cancelled` when its call ended while it waited, or `failed` when the call ended by a
fault. Packages of which only refusals count (ipc, kv) make a row when they refuse. When the row of a call that went well
cannot be written, the guest gets `unknown`, and what it would have got is closed: nothing is done for guests in silence (a
function that has no errors ends its call instead). When it cannot be written for one that went wrong, the guest gets its
own error, and the log says so. (Astrid, host functions: every host call is audited.)
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import Any, Protocol

import trio

from astrid_host.engine import Suspend
from astrid_host.errors import HostError, StoreError
from astrid_host.syscalls.interface import HostFunction

log = logging.getLogger(__name__)

OK, CANCELLED, FAILED = "ok", "cancelled", "failed"
REFUSALS_ONLY = ("ipc", "kv")
NO_REFUSALS = ("cas-mismatch",)  # an answer like any other
UNWRITTEN = "the audit cannot be written"


class Audit(Protocol):
    """Where the rows go."""

    def append(self, principal: str, capsule: str, function: str, target: str, verdict: str) -> int:
        """Raises StoreError."""
        ...


class Auditing:
    """Makes rows of calls. Any thread may use it.

    Args:
        audit: where they go.
        redacted: takes secrets out of a target, which may be of any length: it is cut by whoever keeps it, afterwards.
    """

    def __init__(self, audit: Audit, redacted: Callable[[str], str] = str) -> None:
        self._audit = audit
        self._redacted = redacted

    def denied(self, call: Any, function: str, target: str, case: str) -> None:
        """Write that a call was refused. Raises nothing: the guest gets its refusal anyway.

        Args:
            call: the running call.
            function: `<package>.<function>`, such as `ipc.publish`.
            target: the topic, pattern or key.
            case: of the error that the guest gets.
        """
        self._told(call.principal, call.capsule.id, function, target, case)

    def audited(self, module: str, function: HostFunction) -> HostFunction:
        """A host function whose calls make rows; the function itself when it does not say how to name their targets.

        Args:
            module: the interface's id, such as `astrid:fs/host@1.0.0`.
            function: one of its functions.
        """
        if function.audited is None:
            return function
        package = module.partition(":")[2].partition("/")[0]
        name = function_name(package, function.name)
        make = self._refusals if package in REFUSALS_ONLY else self._waiting if function.waits else self._plain
        return HostFunction(function.name, make(name, function.run, function.audited), function.suspends)

    def _plain(self, name: str, inner: Callable[..., Any], target_of: Callable[..., str]) -> Callable[..., Any]:
        def run(call: Any, *arguments: Any) -> Any:
            who, capsule, target = call.principal, call.capsule.id, target_of(*arguments)

            def ended(give: Callable[[], Any]) -> Any:
                try:
                    value = give()
                except HostError as error:
                    self._told(who, capsule, name, target, error.case)
                    raise
                except BaseException:
                    self._told(who, capsule, name, target, FAILED)
                    raise
                if type(value) is not Suspend:
                    self._done(who, capsule, name, target, value)
                return value

            def cancelled(tell: Callable[[], None] | None) -> None:
                self._told(who, capsule, name, target, CANCELLED)
                if tell is not None:
                    tell()

            value = ended(lambda: inner(call, *arguments))
            if type(value) is Suspend:
                finish, tell = value.finish, value.cancel
                value.finish = lambda: ended(finish)
                value.cancel = lambda: cancelled(tell)
            return value

        return run

    def _waiting(self, name: str, inner: Callable[..., Any], target_of: Callable[..., str]) -> Callable[..., Any]:
        async def run(call: Any, *arguments: Any) -> Any:
            who, capsule, target = call.principal, call.capsule.id, target_of(*arguments)
            try:
                value = await inner(call, *arguments)
            except HostError as error:
                self._told(who, capsule, name, target, error.case)
                raise
            except BaseException as error:
                self._told(who, capsule, name, target, CANCELLED if _is_cancellation(error) else FAILED)
                raise
            self._done(who, capsule, name, target, value)
            return value

        return run

    def _refusals(self, name: str, inner: Callable[..., Any], target_of: Callable[..., str]) -> Callable[..., Any]:
        def run(call: Any, *arguments: Any) -> Any:
            try:
                return inner(call, *arguments)
            except HostError as error:
                if error.case not in NO_REFUSALS:
                    self._told(call.principal, call.capsule.id, name, target_of(*arguments), error.case)
                raise

        return run

    def _done(self, who: str, capsule: str, name: str, target: str, value: Any) -> None:
        verdict = getattr(value, "decision", OK)  # what a person decided says more than that the question was asked
        try:
            self._audit.append(who, capsule, name, self._redacted(target), verdict)
        except StoreError as error:
            close = getattr(value, "close", None)
            if close is not None:
                with contextlib.suppress(OSError):  # the guest hears of the audit
                    close()
            log.error("%s: %s is refused, because its row in the audit was not written: %s", capsule, name, error)
            raise HostError("unknown", UNWRITTEN, detail=str(error)) from error

    def _told(self, who: str, capsule: str, name: str, target: str, verdict: str) -> None:
        try:
            self._audit.append(who, capsule, name, self._redacted(target), verdict)
        except StoreError as error:
            log.error("%s: that %s ended with %s was not written into the audit: %s", capsule, name, verdict, error)


def _is_cancellation(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return error.split(trio.Cancelled)[1] is None
    return isinstance(error, trio.Cancelled)


def function_name(package: str, name: str) -> str:
    """A core name as the audit spells it: `[method]file-handle.read` of `fs` is `fs.file-handle.read`."""
    return f"{package}.{name.rpartition(']')[2]}"
