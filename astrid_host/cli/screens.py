"""How a conversation is shown: as text for a person, or as one JSON object a line for a program.

As text, what the agent says goes to stdout and everything else to stderr, so that a redirected stdout has the answer alone. What
models and tools say reaches a terminal without control characters, so it cannot style, move or clear it.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, TextIO

from astrid_host.cli.answering import shown
from astrid_host.cli.terminal import harmless, printable

if TYPE_CHECKING:
    from astrid_host.payloads.kinds import ApprovalRequired

__all__ = ["JsonScreen", "TextScreen", "harmless", "shortened"]
DECISIONS = {
    "approve": "approved",
    "approve_session": "approved for this session",
    "approve_always": "approved for good",
    "deny": "denied",
    "undecided": "not decided here",
}
CUTS = {
    "length": "it was cut off where it was too long (length); more tokens may be allowed with openai-compat.max_output_tokens",
    "content_filter": "the model provider withheld the rest (content_filter)",
    "error": "the model provider broke off in the middle of it (error)",
}


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
        self._question = ""  # that waits for an answer
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

    def approval(self, request: ApprovalRequired, decision: str, typed: bool) -> None:
        if not typed:
            self._tell(f"?? {DECISIONS.get(decision, decision)}: {request.action}: {request.resource}")

    @contextmanager
    def question(self, text: str) -> Generator[None]:
        self._end_line()
        self._question = text
        try:
            with shown(text):
                yield
        finally:
            self._question = ""

    def interrupted(self) -> None:
        if self._answers.isatty() and not self._question:
            self._deeds.write("\n")
            self._open = False

    def final(self, text: str, failed: bool = False, cut: str | None = None) -> None:
        if failed:
            self._end_line()
            self._deeds.write(harmless(text).rstrip("\n") + "\n")
        else:
            self._last(text)
            if cut is not None:
                self.note(f"the answer is not whole: {CUTS.get(cut, f'it was cut off ({cut})')}")
        self._said, self._since_call = "", 0
        self._names.clear()

    def silent(self, seconds: float) -> None:
        self.note(f"no final answer came within {seconds:g} s: the turn was cancelled")
        self._said, self._since_call = "", 0
        self._names.clear()

    def _last(self, text: str) -> None:
        latest = self._said[self._since_call :]
        if not self._said.rstrip().endswith(text.strip()):
            if not latest or not text.startswith(latest):
                self._end_line()
                latest = ""
            self._say(text[len(latest) :])
        self._end_line()

    def note(self, text: str) -> None:
        with self._beside_the_question():
            self._deeds.write(f"astrid-host: {printable(text)}\n")
            self._deeds.flush()

    def _say(self, text: str) -> None:
        if text:
            self._answers.write(harmless(text) if self._terminal else text)
            self._answers.flush()
            self._open = not text.endswith("\n")

    def _end_line(self) -> None:
        if self._open:
            self._say("\n")

    def _tell(self, line: str) -> None:
        """A line on stderr; on a terminal, one that is no wider."""
        width = shutil.get_terminal_size().columns if self._deeds.isatty() else None
        with self._beside_the_question():
            self._deeds.write(shortened(line, width) + "\n")
            self._deeds.flush()

    @contextmanager
    def _beside_the_question(self) -> Generator[None]:
        """The body writes a line; the question that waits for an answer is asked again after it."""
        self._end_line()
        if self._question:
            self._deeds.write("\n")
        yield
        if self._question:
            self._deeds.write(self._question)
            self._deeds.flush()


class JsonScreen:
    """For programs: `delta`, `tool_call`, `tool_result`, `approval`, and at the end of a turn `final`, with `cut` where it
    was cut off."""

    def delta(self, text: str) -> None:
        _write({"delta": text})

    def tool_call(self, call_id: str, name: str, arguments: Any) -> None:
        _write({"tool_call": {"call_id": call_id, "name": name, "arguments": arguments}})

    def tool_result(self, call_id: str, content: str, is_error: bool) -> None:
        _write({"tool_result": {"call_id": call_id, "content": content, "is_error": is_error}})

    def approval(self, request: ApprovalRequired, decision: str, typed: bool) -> None:
        asked = {"request_id": request.request_id, "action": request.action, "resource": request.resource}
        _write({"approval": {**asked, "reason": request.reason, "decision": decision}})

    def question(self, text: str) -> AbstractContextManager[None]:
        return shown(text)

    def interrupted(self) -> None:
        if sys.stderr.isatty():
            sys.stderr.write("\n")

    def final(self, text: str, failed: bool = False, cut: str | None = None) -> None:
        line = {"final": text, "error": True} if failed else {"final": text}
        _write(line if cut is None else {**line, "cut": cut})

    def silent(self, seconds: float) -> None:
        self.note(f"no final answer came within {seconds:g} s: the turn was cancelled")
        _write({"final": None, "error": "timeout"})

    def note(self, text: str) -> None:
        sys.stderr.write(f"astrid-host: {printable(text)}\n")


def _write(value: dict[str, Any]) -> None:
    import msgspec

    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")
    sys.stdout.flush()


def shortened(text: str, width: int | None) -> str:
    """The text on one line of so many columns, with `…` at its end when there is more of it; all of it without a width."""
    if width is None:
        return printable(" ".join(text.split()))
    from rich.cells import cell_len, set_cell_size

    line = printable(" ".join(text[: 4 * width].split()))
    if cell_len(line) <= width and len(text) <= 4 * width:
        return line
    return set_cell_size(line, min(width - 1, cell_len(line))).rstrip() + "…"
