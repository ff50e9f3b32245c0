"""The host that a command works with: one that runs already with that state folder, or one that is booted for it.

Commands are written once, for a `Served`. A host that runs is used unless an option is given that only makes sense for booting;
then the command boots its own beside it.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import typer

from astrid_host.cli.boot import HOST_FAILURE, Boot, check_name, fail, run_with_host, told, until_signalled
from astrid_host.cli.state import state_folder

if TYPE_CHECKING:
    from astrid_host.control.client import Running
    from astrid_host.control.executed import Approvals, Executed
    from astrid_host.control.greeting import About
    from astrid_host.control.policies import CallPolicies
    from astrid_host.host import Host
    from astrid_host.payloads.outside import HostEvent, Tool

BOOTING = ("capsules", "no_bundled", "workspace", "allow_local", "provider_url", "proxy_from_env")
READY_S = 60.0
LOOK_S = 0.05


class Served(Protocol):
    """A host, as a command sees it; everything is done on behalf of one principal.

    Raises, whatever is asked of it:
        AstridError: it is refused, and why.
        HostClosed: the host has stopped.
    """

    @property
    def principal(self) -> str:
        """On whose behalf."""
        ...

    async def ask(self, method: str, **params: Any) -> Any:
        """Ask for one of the kernel's methods; the answer's data."""
        ...

    async def execute(
        self, name: str, arguments: Any, *, call_id: str, timeout: float, approvals: Approvals
    ) -> Executed:
        """Call a tool; see `Tools.execute`. `approvals` says who answers what it asks for. Cancelled, the call is cancelled."""
        ...

    async def describe(self) -> list[Tool]:
        """Its tools; see `Tools.describe`."""
        ...

    async def about(self) -> About:
        """What it was started with."""
        ...

    async def publish(self, topic: str, payload: Any) -> int:
        """Publish an event; its `seq`."""
        ...

    def subscribe(
        self, *patterns: str, observe: Sequence[str] = (), everybody: bool = False
    ) -> AbstractAsyncContextManager[AsyncIterator[HostEvent]]:
        """Receive events, those of the principal or everybody's, in the order of `seq`; what matches `observe` is only
        watched."""
        ...


class Booted:
    """A host of the command's own.

    Args:
        host: made with these policies.
        policies: answer what its calls ask for.
        principal: on whose behalf everything is done.
        about: what it was started with.
    """

    def __init__(self, host: Host, policies: CallPolicies, principal: str, about: About | None = None) -> None:
        self._host = host
        self._about = about
        self._policies = policies
        self.principal = principal

    async def ask(self, method: str, **params: Any) -> Any:
        from astrid_host.errors import AstridError
        from astrid_host.payloads import NIL_SOURCE
        from astrid_host.topics import REQUESTS, RESPONSES

        ident = str(uuid.uuid4())
        async with self._host.subscribe(f"{RESPONSES}{ident}", principal=self.principal) as answers:
            await self.publish(f"{REQUESTS}{ident}", {"type": "raw_json", "method": method, "params": params})
            while (event := await anext(answers)).source_id != NIL_SOURCE:
                pass
        if event.payload["status"] == "Error":
            raise AstridError(str(event.payload["data"]))
        return event.payload["data"]

    async def execute(
        self, name: str, arguments: Any, *, call_id: str, timeout: float, approvals: Approvals
    ) -> Executed:
        return await self._policies.execute(
            self._host.tools,
            name,
            arguments,
            principal=self.principal,
            call_id=call_id,
            timeout=timeout,
            approvals=approvals,
        )

    async def describe(self) -> list[Tool]:
        return await self._host.tools.describe(principal=self.principal)

    async def about(self) -> About:
        from astrid_host.control.greeting import About

        return self._about or About()

    async def publish(self, topic: str, payload: Any) -> int:
        from astrid_host.errors import AstridError

        try:
            return self._host.publish(topic, payload, principal=self.principal)
        except ValueError as error:
            raise AstridError(str(error)) from error

    @asynccontextmanager
    async def subscribe(
        self, *patterns: str, observe: Sequence[str] = (), everybody: bool = False
    ) -> AsyncGenerator[AsyncIterator[HostEvent]]:
        from astrid_host.control.merging import merged

        async with merged(self._host, patterns, observe, None if everybody else self.principal) as events:
            yield events


def run_with_served(context: typer.Context, boot: Boot, body: Callable[[Served], Awaitable[int]]) -> NoReturn:
    """Run `body` with the host that runs, or one of its own, and leave with the code that it returns.

    Args:
        context: of the command: which options were given.
        boot: what they say.
        body: gets the host.
    """
    check_name(boot.principal)
    with told(boot.debug):
        from astrid_host.control.places import running_pid

        if not _boots(context) and (pid := running_pid(state_folder(boot.state_dir))) is not None:
            _run_with(pid, boot.state_dir, boot.principal, body, until_signal=False)
        from astrid_host.control.policies import CallPolicies

        config = boot.config()
        about = boot.about(config)
        policies = CallPolicies()

        async def own(host: Host) -> int:
            return await body(Booted(host, policies, boot.principal, about))

        run_with_host(replace(boot, config=lambda: config), own, approvals=policies)


def run_with_running(
    state_dir: Path | None,
    principal: str,
    debug: bool,
    body: Callable[[Served], Awaitable[int]],
    *,
    until_signal: bool = False,
) -> NoReturn:
    """The same with the host that runs; leaves when there is none.

    Args:
        state_dir: of that host.
        principal: on whose behalf.
        debug: log everything, and show tracebacks.
        body: gets the host.
        until_signal: leave with 0 on SIGINT and SIGTERM.
    """
    check_name(principal)
    with told(debug):
        from astrid_host.control.places import running_pid

        state = state_folder(state_dir)
        pid = running_pid(state)
        if pid is None:
            fail(f"no host runs with the state folder {state}: start `astrid-host run`", HOST_FAILURE)
        _run_with(pid, state_dir, principal, body, until_signal)


def _run_with(
    pid: int, state_dir: Path | None, principal: str, body: Callable[[Served], Awaitable[int]], until_signal: bool
) -> NoReturn:
    import trio

    from astrid_host.control.client import GONE, Running
    from astrid_host.control.places import socket_path
    from astrid_host.errors import HostClosed

    state = state_folder(state_dir)
    running = Running(socket_path(state), principal)

    async def serve() -> int:
        await _is_up(running, state, pid)
        try:
            return await body(running)
        except* (FileNotFoundError, ConnectionRefusedError) as error:
            raise HostClosed(GONE) from error

    raise typer.Exit(trio.run(until_signalled, serve) if until_signal else trio.run(serve))


async def _is_up(running: Running, state: Path, pid: int) -> None:
    """Wait for a host that has begun to boot."""
    import trio

    from astrid_host.control.client import GONE
    from astrid_host.control.places import running_pid
    from astrid_host.errors import HostClosed

    with trio.move_on_after(READY_S):
        while True:
            try:
                await running.ask("GetStatus")
            except (FileNotFoundError, ConnectionRefusedError):
                if running_pid(state) is None:
                    raise HostClosed(GONE) from None
                await trio.sleep(LOOK_S)
            else:
                return
    raise HostClosed(f"the host that runs (process {pid}) is not up within {READY_S:g} s: see what it logs")


def _boots(context: typer.Context) -> bool:
    """Whether an option was given that only makes sense for booting."""
    sources = (context.get_parameter_source(name) for name in BOOTING)
    return any(source is not None and source.name == "COMMANDLINE" for source in sources)
