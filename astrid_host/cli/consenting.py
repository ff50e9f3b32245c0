"""Consent on the command line: who judges, how a question looks, and what a terminal answers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from astrid_host.cli.keyboard import Keyboard
from astrid_host.cli.terminal import printable

if TYPE_CHECKING:
    from astrid_host.capsules import Consent, TrustPolicy, TrustRequest
    from astrid_host.stores.trust import TrustStore

QUESTION = "Trust it with that? [y/N] "


def consent_with(records: TrustStore | None, state_dir: Path | None) -> Consent:
    """Judges capsules as a host with that state folder does, and asks nobody."""
    from shlex import quote

    from astrid_host.bundled import capsules_folder, contracts_files
    from astrid_host.capsules import Consent
    from astrid_host.gates import Contracts
    from astrid_host.tools import bound_once

    options = "" if state_dir is None else f"--state-dir {quote(str(state_dir.absolute()))}"
    contracts = Contracts.read(contracts_files())
    return Consent(contracts, bound_once, capsules_folder(), False, records, options)


def asks_at_terminal() -> TrustPolicy | None:
    """Asks the person at the terminal; None where there is none."""
    keyboard = Keyboard()
    if not keyboard.is_terminal:
        return None

    async def asked(request: TrustRequest) -> bool:
        sys.stderr.write(f"\n{shown(request)}\n")
        return await agreed(keyboard)

    return asked


async def agreed(keyboard: Keyboard) -> bool:
    """Ask whether what was shown is trusted; anything but a clear yes is a no. What was typed before is no answer."""
    keyboard.forget()
    sys.stderr.write(QUESTION)
    sys.stderr.flush()
    typed = await keyboard.answer()
    if not typed.endswith("\n"):
        sys.stderr.write("\n")
    return typed.strip().lower() in ("y", "yes")


def shown(request: TrustRequest) -> str:
    """What a capsule asks for, for people: what is new first, where it was trusted before."""
    lines = [f"{request.name} in {request.folder}" + (f": {request.change}" if request.change else " asks for trust:")]
    added = request.added
    kept = [ask for ask in request.asks if ask not in added]
    for mark, asks in (("+ " if request.previous else "", added), ("", kept)):
        for ask in asks:
            optional = "" if ask.needed else " (it loads without, and is not believed there)"
            lines += [f"  {mark}it {ask.tells}{optional}", f"      {ask.row}", f"      {ask.place}"]
    lines += [f"  - it no longer {ask.tells}: {ask.row}" for ask in request.dropped]
    return printable("\n".join(lines))
