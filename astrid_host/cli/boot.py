"""Booting a host for a command: where its capsules are, how it logs, and what its failures look like."""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from astrid_host.cli.state import state_folder

if TYPE_CHECKING:
    import trio

    from astrid_host.control.greeting import About
    from astrid_host.host import Host
    from astrid_host.hostcalls.approval import Policy

log = logging.getLogger("astrid_host.run")
SAID_NO, USAGE, HOST_FAILURE, INTERRUPTED = 1, 2, 3, 130
_PRINCIPAL = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True)
class Boot:
    """What the shared options say."""

    capsules: list[Path]
    no_bundled: bool
    workspace: Path
    state_dir: Path | None
    principal: str
    debug: bool
    allow_local: tuple[str, ...] = ()
    config: Callable[[], Mapping[str, Mapping[str, str]]] = dict
    proxy_from_env: bool = False
    limits: Mapping[str, Any] = field(default_factory=dict)

    def places(self) -> list[Path]:
        """Given folders first, then the drop-in folder if there is one, then what comes with the host."""
        from astrid_host.bundled import capsules_folder

        dropped_in = state_folder(self.state_dir) / "capsules"
        places = [*self.capsules, *([dropped_in] if dropped_in.is_dir() else [])]
        return places if self.no_bundled else [*places, capsules_folder()]

    def about(self, config: Mapping[str, Mapping[str, str]]) -> About:
        """What a host is told to have been started with."""
        from astrid_host.control.greeting import About

        given = [f"{capsule}.{key}" for capsule, row in config.items() for key in row]
        return About(str(self.workspace.resolve()), given)


def where(workspace: str, state_dir: Path | None) -> str:
    """The options with which a command that is given in this folder is about a host's workspace and state folder.

    Args:
        workspace: an absolute path; empty when it is not known.
        state_dir: as it was given.
    """
    from shlex import quote

    options = [] if not workspace or Path(workspace) == Path.cwd() else [f"--workspace {quote(workspace)}"]
    if state_dir is not None:
        options.append(f"--state-dir {quote(str(state_dir.absolute()))}")
    return " ".join(options)


def fail(message: str, code: int) -> NoReturn:
    """Say what went wrong on stderr and leave."""
    with suppress(OSError):  # where nobody can be told, the exit code still tells
        print(f"astrid-host: {message}", file=sys.stderr, flush=True)  # noqa: T201 - the command line speaks
    raise typer.Exit(code)


@contextmanager
def told(debug: bool) -> Generator[None]:
    """What goes wrong in the body, told in a line instead of a traceback (with `debug`, with it)."""
    from astrid_host.errors import AstridError

    try:
        yield
        _flush()
    except (typer.Exit, typer.Abort):
        _flush()
        raise
    except BaseException as error:
        found = _first(error)
        if isinstance(found, typer.Exit):
            raise found from None
        if isinstance(found, KeyboardInterrupt):
            raise typer.Exit(INTERRUPTED) from None
        if isinstance(found, SystemExit) and found.code == 0:  # a signal, while `run` begins
            raise typer.Exit from None
        if isinstance(found, BrokenPipeError | SystemExit):  # SystemExit is what rich makes of a broken pipe
            raise _nobody_reads() from None
        if debug:
            raise
        if isinstance(found, ValueError) and str(found).startswith(("allow_local", "config", "limits", "proxy")):
            fail(str(found), USAGE)
        if isinstance(found, OSError) and found.strerror and found.filename:
            fail(f"{os.fsdecode(found.filename)}: {found.strerror}", HOST_FAILURE)
        if isinstance(found, AstridError | OSError):
            fail(str(found), HOST_FAILURE)
        fail(f"{type(found).__name__}: {found} (a fault of the host; --debug shows where)", HOST_FAILURE)


def _flush() -> None:
    """What was printed is out, or it is said that it cannot be; a reader that is gone is nobody's fault."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise _nobody_reads() from None
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the interpreter tries again at its end
        fail(f"what was to be printed cannot be written: {error.strerror or error}", HOST_FAILURE)


def _nobody_reads() -> typer.Exit:
    """Leave quietly: whoever read the output is gone, and what is still buffered goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return typer.Exit(SAID_NO)


def _first(error: BaseException) -> BaseException:
    """The first exception in a group of groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def check_name(principal: str) -> None:
    """Leave when this is no name for a principal."""
    if not _PRINCIPAL.fullmatch(principal):
        fail(f"{principal!r} is no principal: 1 to 64 letters, digits, '-' or '_'", USAGE)


def run_with_host(
    boot: Boot,
    body: Callable[[Host], Awaitable[int]],
    *,
    until_signal: bool = False,
    approvals: Policy | None = None,
) -> NoReturn:
    """Boot a host, run `body` with it, and leave with the code that it returns.

    Args:
        boot: what the options say.
        body: gets the host.
        until_signal: leave with 0 on SIGINT and SIGTERM, also while capsules are loaded.
        approvals: answers capsules' requests for approval in place of a person.
    """
    check_name(boot.principal)
    with told(boot.debug):
        import trio

        from astrid_host.cli.consenting import asks_at_terminal
        from astrid_host.host import open_host

        trust = asks_at_terminal() or False

        async def serve() -> int:
            async with open_host(
                boot.places(),
                workspace=boot.workspace,
                state_dir=boot.state_dir,
                principal=boot.principal,
                config=boot.config(),
                allow_local=boot.allow_local,
                proxy_from_env=boot.proxy_from_env,
                approvals=approvals,
                trust=trust,
                limits=boot.limits,
            ) as host:
                return await body(host)

        code = trio.run(until_signalled, serve) if until_signal else trio.run(serve)
    raise typer.Exit(code)


async def until_signalled(serve: Callable[[], Awaitable[int]]) -> int:
    """Run `serve` until it returns, or is cancelled by SIGINT or SIGTERM; the code is 0 then."""
    import trio

    async def watch(numbers: AsyncIterator[int], scope: trio.CancelScope) -> None:
        async for number in numbers:
            log.info("%s: leaving", signal.Signals(number).name)
            scope.cancel()

    code = 0
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as numbers:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch, numbers, nursery.cancel_scope)
            code = await serve()
            nursery.cancel_scope.cancel()
    return code
