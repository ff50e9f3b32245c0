"""How a conversation is shown: as text for a person, or as one JSON object a line for a program.

As text, what the agent says goes to stdout and everything else to stderr, so that a redirected stdout has the answer alone. What
models and tools say reaches a terminal without control characters, so it cannot style, move or clear it.
"""

from __future__ import annotations

import shutil
import sys
import unicodedata
from typing import TYPE_CHECKING, Any, TextIO

from astrid_host.cli.tables import printable

if TYPE_CHECKING:
    from astrid_host.payloads.kinds import ApprovalRequired

JOINERS = "\u200c\u200d"  # letters of several scripts, and emoji, are written with them


class TextScreen:
    """For people.

    Args:
        everything: where all of it goes; else what the agent says goes to stdout, and what it does to stderr.
    """

    def __init__(self, everything: TextIO | None = None) -> None:
        self._answers, self._deeds = everything or sys.stdout, everything or sys.stderr
        self._terminal = self._answers.isatty()
        self._said = ""  # in deltas, since the turn began
        self._since_call = 0  # where in it the agent went on after its last call of a tool
        self._open = False  # whether stdout is within a line
        self._names: dict[str, str] = {}

    def delta(self, text: str) -> None:
        self._said += text
        self._say(text)

    def tool_call(self, call_id: str, name: str, arguments: Any) -> None:
        import msgspec

        self._names[call_id] = name
        self._since_call = len(self._said)
        self._tell(f"-> {name} {msgspec.json.encode(arguments).decode()}")

    def tool_result(self, call_id: str, content: str, is_error: bool) -> None:
        name = self._names.pop(call_id, call_id)
        self._tell(f"<- {name}{' failed' if is_error else ''}: {content}")

    def approval(self, request: ApprovalRequired, decision: str) -> None:
        self._tell(f"?? {decision}: {request.action}: {request.resource}")

    def final(self, text: str) -> None:
        latest = self._said[self._since_call :]
        if not self._said.rstrip().endswith(text.strip()):
            if not latest or not text.startswith(latest):
                self._end_line()
                latest = ""
            self._say(text[len(latest) :])
        self._end_line()
        self._said, self._since_call = "", 0
        self._names.clear()

    def note(self, text: str) -> None:
        self._end_line()
        self._deeds.write(f"astrid-host: {printable(text)}\n")

    def _say(self, text: str) -> None:
        if text:
            self._answers.write(harmless(text) if self._terminal else text)
            self._answers.flush()
            self._open = not text.endswith("\n")

    def _end_line(self) -> None:
        if self._open:
            self._say("\n")

    def _tell(self, line: str) -> None:
        """A line on stderr that is no wider than the terminal."""
        self._end_line()
        self._deeds.write(shortened(line, shutil.get_terminal_size().columns) + "\n")
        self._deeds.flush()


class JsonScreen:
    """For programs: `delta`, `tool_call`, `tool_result`, `approval`, and at the end of a turn `final`."""

    def delta(self, text: str) -> None:
        _write({"delta": text})

    def tool_call(self, call_id: str, name: str, arguments: Any) -> None:
        _write({"tool_call": {"call_id": call_id, "name": name, "arguments": arguments}})

    def tool_result(self, call_id: str, content: str, is_error: bool) -> None:
        _write({"tool_result": {"call_id": call_id, "content": content, "is_error": is_error}})

    def approval(self, request: ApprovalRequired, decision: str) -> None:
        asked = {"request_id": request.request_id, "action": request.action, "resource": request.resource}
        _write({"approval": {**asked, "reason": request.reason, "decision": decision}})

    def final(self, text: str) -> None:
        _write({"final": text})

    def note(self, text: str) -> None:
        sys.stderr.write(f"astrid-host: {printable(text)}\n")


def _write(value: dict[str, Any]) -> None:
    import msgspec

    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")
    sys.stdout.flush()


def harmless(text: str) -> str:
    """The text with what could change the terminal or hide in it escaped; lines, tabs, and spaces of all kinds stay."""
    if text.isprintable():
        return text
    return "".join(c if c in "\n\t" or c in JOINERS or unicodedata.category(c) == "Zs" else printable(c) for c in text)


def shortened(text: str, width: int) -> str:
    """The text on one line of so many columns, with `…` at its end when there is more of it."""
    from rich.cells import cell_len, set_cell_size

    line = printable(" ".join(text[: 4 * width].split()))
    if cell_len(line) <= width and len(text) <= 4 * width:
        return line
    return set_cell_size(line, min(width - 1, cell_len(line))).rstrip() + "…"
