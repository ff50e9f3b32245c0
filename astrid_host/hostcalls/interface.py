"""How a host function is written: a method of an `Interface`, on Python values, that raises `HostError`.

    class Kv(Interface):
        wit = ("astrid:kv/host@1.0.0",)

        @hostcall("kv-get")
        def kv_get(self, call: Running, key: str) -> bytes | None: ...

A `def` is *plain*: it runs to its end at once, on whatever thread runs the guest, and must not block. An `async def` is
*waiting*: it runs as a task of the trio loop while its guest is suspended; when the call ends early it is cancelled.
A plain function that has nothing to return yet may return a `Suspend` instead, if its decorator says `suspends=True`: the
guest then sleeps until `Suspend.wake` is called, without a task. Arguments and results are as `astrid_host.abi` maps them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

if TYPE_CHECKING:
    from astrid_host.bus.events import Event
    from astrid_host.manifest import Manifest

Method = TypeVar("Method", bound=Callable[..., Any])


class Caller(Protocol):
    """The capsule that makes a call, as far as host functions need to know it."""

    @property
    def id(self) -> str: ...
    @property
    def storage_id(self) -> str:
        """Under which what it keeps is filed: its name, and for one that did not come with the host where it is from."""
        ...

    @property
    def overlaid(self) -> bool:
        """Whether what was configured for its name in this run is for it, not for a bundled capsule of that name."""
        ...

    @property
    def source_id(self) -> str:
        """The UUID that stands on everything it publishes."""
        ...

    @property
    def manifest(self) -> Manifest: ...
    def signal_ready(self) -> None:
        """Its run loop has subscribed to what it needs."""
        ...


class Running(Protocol):
    """The running call, as far as host functions need to know it."""

    @property
    def capsule(self) -> Caller: ...
    @property
    def principal(self) -> str:
        """On whose behalf the guest runs: the event's principal, else the host's owner. In a run loop it follows the
        last message received."""
        ...

    @property
    def message(self) -> Event | None:
        """The event whose caller context the guest has; None in hooks and in a run loop that received nothing yet."""
        ...


def hostcall(
    name: str,
    *,
    suspends: bool = False,
    audited: Callable[..., str] | None = None,
    announced: bool = False,
    takes: int | None = None,
    stands: bool = False,
) -> Callable[[Method], Method]:
    """Mark a method as a host function.

    Args:
        name: a core name such as `kv-get` or `[method]subscription.recv`.
        suspends: it may return a `Suspend`.
        audited: each call is one row of the audit; given the arguments after the call, this names its target.
        announced: it is one row more, before anything is done. Of waiting functions only.
        takes: bytes that its arguments may take in the host, all together; by default what its package takes. What is longer is
            refused before it is copied.
        stands: what it gives stands also when its row cannot be written, which the log says: nothing was done by it, and what it
            leads to has a row of its own. Of waiting functions only.
    """

    def mark(method: Method) -> Method:
        method.__hostcall__ = (name, suspends, audited, announced, takes, stands)  # type: ignore[attr-defined]
        return method

    return mark


class HostFunction:
    """One host function, bound to its interface: what to run, whether a guest that calls it may be suspended, and how to name
    its target in the audit, if it is audited."""

    __slots__ = ("announced", "audited", "name", "run", "stands", "suspends", "takes", "waits")

    def __init__(
        self,
        name: str,
        run: Callable[..., Any],
        suspends: bool,
        audited: Callable[..., str] | None = None,
        announced: bool = False,
        takes: int | None = None,
        stands: bool = False,
    ) -> None:
        self.takes = takes
        self.stands = stands
        self.name = name
        self.run = run
        self.suspends = suspends
        self.audited = audited
        self.announced = announced
        self.waits = inspect.iscoroutinefunction(run)


class Interface:
    """The host functions of one WIT interface, or of several versions of it."""

    wit: ClassVar[tuple[str, ...]]

    def functions(self) -> Mapping[str, HostFunction]:
        """The host functions by core name."""
        found = {}
        for attribute in dir(type(self)):
            method = getattr(self, attribute)
            if mark := getattr(method, "__hostcall__", None):
                found[mark[0]] = HostFunction(mark[0], method, *mark[1:])
        return found
