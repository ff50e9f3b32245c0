"""Every exception that the package raises.

    AstridError                  anything that went wrong for a reason a person can be told
    ├── WitError                 a WIT text that cannot be read; has file, line and column
    ├── ManifestError            a Capsule.toml that cannot be used; has all its problems
    ├── LoadError                a capsule that cannot be loaded
    │   ├── ModuleRefused        its WebAssembly is not what a capsule has to be
    │   └── ImportsMissing       it imports what the host does not have; names all of it
    ├── PayloadError             a payload that is not JSON, or too deep to read (also a ValueError)
    ├── StoreError               a database that cannot be opened or written
    ├── HostClosed               the host has stopped, or was never started
    └── GuestFailed              a call of a guest that did not end well
        ├── Trap                 the guest trapped; has its backtrace
        ├── GuestFault           what the guest passed or returned cannot be lifted
        ├── GuestTimeout         it computed for longer than it may
        ├── GuestCancelled       somebody who may do so ended it
        └── NoInstance           no room for one more instance

    HostError                    what a host function answers to a guest: one case of its interface's `error-code`

Messages say what was given, what was expected and how to mend it. `HostError` is not an `AstridError`: it never leaves
the call that it answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from astrid_host.manifest import Problem


class AstridError(Exception):
    """Anything that went wrong for a reason a person can be told."""


class WitError(AstridError):
    """A WIT text that cannot be read.

    Args:
        message: what was found and what was expected there.
        file: the file, or None for a text without one.
        line: counted from 1.
        column: in characters, counted from 1.
    """

    def __init__(self, message: str, file: Path | None, line: int, column: int) -> None:
        super().__init__(f"{file or '<text>'}:{line}:{column}: {message}")
        self.message = message
        self.file = file
        self.line = line
        self.column = column


class ManifestError(AstridError):
    """A Capsule.toml that cannot be used: `problems` has all that is wrong with it, warnings included."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = tuple(problems)


class LoadError(AstridError):
    """A capsule that cannot be loaded."""


class ModuleRefused(LoadError):
    """Its WebAssembly is not what a capsule has to be: the message says in what, and what to build for."""


class ImportsMissing(LoadError):
    """The module imports what the host does not have.

    Args:
        message: all that is missing, a line each, with the nearest known name.
        missing: (module, name) of each.
    """

    def __init__(self, message: str, missing: Sequence[tuple[str, str]]) -> None:
        super().__init__(message)
        self.missing = tuple(missing)


class PayloadError(AstridError, ValueError):
    """A payload that is not JSON, or too deep to read."""


class StoreError(AstridError):
    """A database that cannot be opened or written."""


class HostClosed(AstridError):
    """The host has stopped, or was never started."""


class GuestFailed(AstridError):
    """A call of a guest that did not end well. `reason` is the word that failure reports use."""

    reason = "trap"


class Trap(GuestFailed):
    """The guest trapped.

    Args:
        message: what the engine says, without the backtrace.
        backtrace: the guest's frames, innermost first.
    """

    def __init__(self, message: str, backtrace: Sequence[str] = ()) -> None:
        super().__init__("\n".join((message, *(f"  at {frame}" for frame in backtrace))))
        self.message = message
        self.backtrace = tuple(backtrace)


class GuestFault(GuestFailed):
    """What the guest passed or returned cannot be lifted: a pointer, length, alignment, text, discriminant or handle."""

    reason = "guest-fault"


class GuestTimeout(GuestFailed):
    """The guest computed for longer than it may."""

    reason = "timeout"


class GuestCancelled(GuestFailed):
    """The call was ended by somebody who may do so: its caller, a reload, the host's end."""

    reason = "cancelled"


class NoInstance(GuestFailed):
    """There is no room for one more instance."""

    reason = "no-instance"


class HostError(Exception):
    """What a host function answers to a guest instead of a value: one case of its interface's `error-code`.

    Args:
        case: the case's WIT name, such as `capability-denied`.
        payload: what the case carries: the text of `unknown`, or a value of its type; None for cases that carry nothing.
        detail: for the host's log and its failure reports; guests never see it.
    """

    def __init__(self, case: str, payload: Any = None, *, detail: str = "") -> None:
        super().__init__(detail or (case if payload is None else f"{case}: {payload}"))
        self.case = case
        self.payload = payload
        self.detail = detail
