"""`astrid-host run`: serve until Ctrl-C. One host at a time runs with a state folder; other commands use it."""

from __future__ import annotations

import logging
import re
import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn, TypeAlias

import typer

from astrid_host.cli import options
from astrid_host.cli.boot import USAGE, Boot, fail, run_with_host, told
from astrid_host.cli.provider import PROVIDER, provider_config
from astrid_host.cli.state import state_folder
from astrid_host.cli.tables import print_table
from astrid_host.cli.terminal import printable

if TYPE_CHECKING:
    from astrid_host.host import Host

log = logging.getLogger("astrid_host.run")
Metrics: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="ADDR", help="Serve Prometheus metrics at PORT, HOST:PORT or [IPv6]:PORT; port 0 takes any free one."
    ),
]
_PLACE = re.compile(r"(?:(?:\[(?P<v6>[^]]+)\]|(?P<host>[A-Za-z0-9._-]+)):)?(?P<port>[0-9]{1,5})")
ANSWERED_S = 0.1  # whoever asks it to stop is answered first
_THIS_MACHINE = "127.0.0.1"


def run(
    capsules: options.CapsulePlaces = None,
    no_bundled: options.NoBundled = False,
    workspace: options.Workspace = Path(),
    state_dir: options.StateDir = None,
    allow_local: options.AllowLocal = None,
    proxy_from_env: options.ProxyFromEnv = False,
    principal: options.Principal = "default",
    metrics: Metrics = None,
    memory: options.Memory = None,
    log_format: options.LogFormat = "pretty",
    debug: options.Debug = False,
) -> None:
    """Boot, show what loaded, and serve until Ctrl-C or SIGTERM.

    The key for the provider is what is set as openai-compat.api_key, or else the environment variable OPENAI_API_KEY.
    """
    if log_format not in ("pretty", "json"):
        fail(f"--log-format is 'pretty' or 'json'; given {log_format!r}", USAGE)
    place = None if metrics is None else _metrics_place(metrics)
    from astrid_host.cli import logs

    logs.set_up(log_format, logging.DEBUG if debug else logging.INFO)

    local = tuple(allow_local or ())
    boot = Boot(
        capsules or [], no_bundled, workspace, state_dir, principal, debug, local, proxy_from_env=proxy_from_env
    )
    boot = replace(boot, limits={} if memory is None else {"memory": memory})
    with told(debug):
        from astrid_host.control.places import locked

        with locked(state_folder(state_dir)) as path:
            config = provider_config(state_dir, None) if _has_provider(boot) else {}
            _serve(replace(boot, config=lambda: config), path, place)


def _has_provider(boot: Boot) -> bool:
    """Whether the provider's capsule is among what is loaded."""
    folders = (place if place.name == PROVIDER else place / PROVIDER for place in boot.places())
    return any((folder / "Capsule.toml").is_file() for folder in folders)


def _serve(boot: Boot, path: Path, place: tuple[str, int] | None) -> NoReturn:
    """Run a host that other processes may use over a socket at `path`, and that may serve metrics at a place."""
    from astrid_host.control.policies import CallPolicies

    about = boot.about(boot.config())
    policies = CallPolicies()

    async def body(host: Host) -> int:
        import trio

        from astrid_host.control.server import serve

        with nullcontext() if place is None else _served(host, *place) as url:
            async with trio.open_nursery() as nursery:
                asked = trio.Event()
                host.methods.shut_down = asked.set
                await nursery.start(serve, host, path, policies, about)
                show(host)
                sys.stdout.write(f"listening: {path}\n")
                if url is not None:
                    sys.stdout.write(f"metrics: {url}\n")
                sys.stdout.flush()
                await asked.wait()
                log.info("asked to stop: leaving")
                await trio.sleep(ANSWERED_S)
                nursery.cancel_scope.cancel()
        return 0

    run_with_host(boot, body, until_signal=True, approvals=policies)


def place_of(address: str) -> tuple[str, int]:
    """The host, without brackets, and the port that an ADDR names.

    Args:
        address: `PORT`, `HOST:PORT` or `[v6]:PORT`. Without a host it is this machine only.

    Raises:
        ValueError: it is none of these.
    """
    from ipaddress import IPv6Address

    found = _PLACE.fullmatch(address)
    if found is None or int(found["port"]) > 65535:
        raise ValueError(address)
    if found["v6"] is not None:
        return str(IPv6Address(found["v6"])), int(found["port"])
    return found["host"] or _THIS_MACHINE, int(found["port"])


def _metrics_place(address: str) -> tuple[str, int]:
    """Where metrics shall be served; leaves when they cannot be, before anything is booted."""
    try:
        place = place_of(address)
    except ValueError:
        fail(
            f"--metrics is PORT, HOST:PORT or [IPv6]:PORT, with a port of 0 to 65535; given {address!r}",
            USAGE,
        )
    try:
        import astrid_host.metrics  # noqa: F401 - whether it can be
    except ModuleNotFoundError as missing:
        fail(f"--metrics: {missing}", USAGE)
    return place


def _served(host: Host, name: str, port: int) -> AbstractContextManager[str]:
    from astrid_host.metrics import serve

    return serve(host.stats, name, port)


def show(host: Host) -> None:
    """On stdout, a table of what loaded, and why the rest did not."""
    loaded = list(host.capsules.values())
    shown = {(info.id, info.folder) for info in loaded}
    infos = [*loaded, *(info for info in host.refused if (info.id, info.folder) not in shown)]
    print_table(
        ("capsule", "version", "state", "tools", "handlers"),
        (
            (
                info.id,
                info.version or "-",
                "refused" if info.trust == "refused" else info.state,
                ", ".join(info.tools) or "-",
                str(len(info.handlers)),
            )
            for info in infos
        ),
    )
    for info in infos:
        if info.error:
            state = "refused" if info.trust == "refused" else info.state
            sys.stdout.write(f"{printable(info.id)}: {state}: {printable(info.error)}\n")
        if info.trust == "trusted" and info.state == "ready" and info.asks:
            sys.stdout.write(
                f"{printable(info.id)}: trusted: it {printable('; it '.join(ask.tells for ask in info.asks))}\n"
            )
        if info.state == "ready" and info.inactive:
            rows = ", ".join(info.inactive)
            sys.stdout.write(f"{printable(info.id)}: rows that are never called: {printable(rows)}\n")
        for row, why in info.unheard.items() if info.state == "ready" else ():
            sys.stdout.write(
                f"{printable(info.id)}: the row {printable(row)} does not count everywhere: {printable(why)}\n"
            )
    sys.stdout.flush()
