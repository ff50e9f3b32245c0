"""`astrid-host chat`: a conversation in the terminal, or one prompt of a script."""

from __future__ import annotations

import contextlib
import logging
import re
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from astrid_host.cli import options
from astrid_host.cli.boot import HOST_FAILURE, INTERRUPTED, SAID_NO, USAGE, Boot, fail, where
from astrid_host.cli.keyboard import Keyboard
from astrid_host.cli.provider import KEY, VARIABLE, key_of_environment, provider_config
from astrid_host.cli.screens import JsonScreen, TextScreen
from astrid_host.cli.served import run_with_served
from astrid_host.cli.terminal import printable

if TYPE_CHECKING:
    import trio

    from astrid_host.cli.conversation import Conversation, Decide, Ended, Screen
    from astrid_host.cli.served import Served
    from astrid_host.payloads.kinds import ApprovalRequired

PORTS = {"http": 80, "https": 443}
_MEND_KEY = f"Start `astrid-host run` with it, or set the key with `astrid-host config set {KEY}`"
_ASKER = re.compile(r"Capsule '([^']+)' requests approval")
_VISIBLE = re.compile(r"[!-~]+")


def chat(
    context: typer.Context,
    once: Annotated[str | None, typer.Option(metavar="PROMPT", help="Say only this, and leave.")] = None,
    session: Annotated[str | None, typer.Option(metavar="ID", help="Go on with this session; else a new one.")] = None,
    provider_url: Annotated[
        str | None, typer.Option(metavar="URL", help="An OpenAI-compatible server; also one on this machine.")
    ] = None,
    model: Annotated[str | None, typer.Option(metavar="NAME", help="Which model shall answer.")] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Approve what is asked for while the agent works; else a person is asked.")
    ] = False,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", help="How long a turn may take.")] = 600.0,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON object a line.")] = False,
    capsules: options.CapsulePlaces = None,
    no_bundled: options.NoBundled = False,
    workspace: options.Workspace = Path(),
    state_dir: options.StateDir = None,
    allow_local: options.AllowLocal = None,
    proxy_from_env: options.ProxyFromEnv = False,
    principal: options.Principal = "default",
    debug: options.Debug = False,
) -> None:
    """Talk to the agent. Ctrl-C ends what it is doing; Ctrl-D, or Ctrl-C again, leaves.

    The key for the provider is what is set as openai-compat.api_key, or else the environment variable OPENAI_API_KEY.
    """
    if not timeout > 0:
        fail(f"--timeout must be more than 0 seconds; given {timeout:g}", USAGE)
    if (once is not None and not once.strip()) or session == "":
        fail(f"{'--session' if session == '' else '--once'} needs a text", USAGE)
    local = [] if provider_url is None else [_place(provider_url)]
    from astrid_host.cli import logs

    logs.set_up("pretty", logging.DEBUG if debug else logging.ERROR)

    async def body(host: Served) -> int:
        from astrid_host.cli.conversation import Conversation, lacking, new_session

        if (what := await lacking(host)) is not None:
            fail(what, HOST_FAILURE)
        keyboard = Keyboard()
        screen: Screen = JsonScreen() if as_json else TextScreen()
        session_id = session or new_session()
        about = await host.about()
        if KEY not in about.given and key_of_environment(state_dir, principal):
            screen.note(f"{VARIABLE} is not used: the host that runs was started without it. {_MEND_KEY}")
        options = where(about.workspace, state_dir)
        talk = Conversation(
            host, screen, _decide(yes, keyboard, screen, principal, options), session_id, model, timeout
        )
        if once is None and keyboard.is_terminal:
            sys.stderr.write(f"session {printable(session_id)}: Ctrl-C ends a turn, Ctrl-D leaves\n")
        with keyboard.kept():
            code = await _converse(talk, screen, keyboard, once, timeout)
        if code == SAID_NO and not proxy_from_env:
            _tell_of_proxies(screen)
        return code

    boot = Boot(
        capsules or [],
        no_bundled,
        workspace,
        state_dir,
        principal,
        debug,
        (*(allow_local or ()), *local),
        lambda: provider_config(state_dir, principal, provider_url, model),
        proxy_from_env,
    )
    run_with_served(context, boot, body)


async def _converse(talk: Conversation, screen: Screen, keyboard: Keyboard, once: str | None, timeout: float) -> int:
    """Take turns until the person leaves; the exit code."""
    import trio

    code = 0
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
        async with trio.open_nursery() as nursery:
            left: list[int] = []
            nursery.start_soon(_interrupt, signals, talk, screen, nursery.cancel_scope, left, once is None)
            if once is not None:
                code = _code(await talk.turn(once), screen, timeout)
            else:
                while (text := await keyboard.prompt()) is not None:
                    if text.strip():
                        _code(await talk.turn(text), screen, timeout)
            nursery.cancel_scope.cancel()
    if keyboard.is_terminal and once is None:
        with contextlib.suppress(OSError):  # the terminal is gone
            sys.stderr.write("\n")
            sys.stderr.flush()
    return left[0] if left else code


async def _interrupt(
    signals: AsyncIterator[int],
    talk: Conversation,
    screen: Screen,
    scope: trio.CancelScope,
    left: list[int],
    prompts: bool,
) -> None:
    """Ctrl-C ends the turn; at the prompt, or again, it leaves."""
    async for number in signals:
        if number == signal.SIGINT and (talk.in_turn or not prompts):
            screen.interrupted()
        if number == signal.SIGINT and talk.in_turn and not talk.cancelled:
            await talk.cancel()
            continue
        at_prompt = prompts and not talk.in_turn
        left.append(128 + number if number != signal.SIGINT else 0 if at_prompt else INTERRUPTED)
        scope.cancel()
        return


def _tell_of_proxies(screen: Screen) -> None:
    """Say that proxies are not used: the turn may have failed for that."""
    from astrid_host.hostcalls.http.proxies import in_environment

    if names := in_environment():
        screen.note(f"{' and '.join(names)} of the environment is not used: --proxy-from-env asks servers through it")


def _code(ended: Ended, screen: Screen, timeout: float) -> int:
    """What a turn's end is for a script."""
    if ended == "silent":
        screen.silent(timeout)
    if ended in ("silent", "failed"):
        return SAID_NO
    return INTERRUPTED if ended == "cancelled" else 0


def _decide(yes: bool, keyboard: Keyboard, screen: Screen, principal: str, options: str) -> Decide:
    """Who decides on requests for approval: --yes, the person, or nobody, which denies them.

    `options` are those of `approvals allow` for the host.
    """
    from astrid_host.cli.conversation import Decided

    async def decide(request: ApprovalRequired) -> Decided:
        if yes:
            return Decided("approve")
        if keyboard.is_terminal:
            from astrid_host.cli.answering import decided_by

            return Decided(await decided_by(keyboard, request, screen.question), typed=True)
        screen.note(_denied(request, principal, options))
        return Decided("deny")

    return decide


def _denied(request: ApprovalRequired, principal: str, options: str) -> str:
    from astrid_host.hostcalls.approval import Asked, mend

    found = _ASKER.fullmatch(request.reason)
    asked = Asked(found[1] if found else "CAPSULE", principal, request.action, request.resource, None)
    return f"{asked.capsule} asked to {asked.action!r} on {asked.resource!r} and was denied: {mend(asked, options)}"


def _place(url: str) -> str:
    """The HOST:PORT of a URL; leaves when it has none."""
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or PORTS[parts.scheme]
    except (ValueError, KeyError):
        host = None
    if not host or not _VISIBLE.fullmatch(url):
        fail(
            f"--provider-url is a URL such as http://localhost:11434/v1 or https://api.openai.com; given {url!r}", USAGE
        )
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
