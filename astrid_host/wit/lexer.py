"""WIT text as tokens. Comments are left out, except `///` and `/** */`, which are kept for what follows them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from astrid_host.errors import WitError

_TOKEN = re.compile(
    r"(?P<space>[ \t\r\n]+)"
    r"|(?P<line>//[^\n]*)"
    r"|(?P<block>/\*)"
    r"|(?P<arrow>->)"
    r"|(?P<id>%?[A-Za-z][A-Za-z0-9]*(?:-[A-Za-z0-9]+)*)"
    r"|(?P<version>[0-9]+\.[0-9]+\.[0-9]+(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?)"
    r"|(?P<number>[0-9]+)"
    r"|(?P<sign>[:;,.{}()<>=@/*_])"
)
_COMMENT = re.compile(r"/\*|\*/")


@dataclass(frozen=True, slots=True)
class Token:
    """One token: `kind` is `id`, `version`, `number`, `sign`, `arrow` or `end`."""

    kind: str
    text: str
    at: int
    docs: str = ""


class Text:
    """A WIT text, which knows where things are in it."""

    def __init__(self, text: str, file: Path | None) -> None:
        self.text = text
        self.file = file

    def error(self, message: str, at: int) -> WitError:
        """An error at a place in the text."""
        line = self.text.count("\n", 0, at) + 1
        column = at - (self.text.rfind("\n", 0, at) + 1) + 1
        return WitError(message, self.file, line, column)


def tokens(source: Text) -> list[Token]:
    """All tokens, and one of kind `end`.

    Raises:
        WitError: there is a character that belongs to none, or a comment does not end.
    """
    text, at, docs = source.text, 0, list[str]()
    found: list[Token] = []
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise source.error(f"unexpected character {text[at]!r}", at)
        kind = match.lastgroup
        assert kind is not None, "every alternative has a name"
        end = match.end()
        if kind == "line":
            if match.group().startswith("///"):
                docs.append(match.group()[3:].strip())
        elif kind == "block":
            end = _block_end(source, at)
            if text.startswith("/**", at) and end - at > 4:
                docs.append(text[at + 3 : end - 2].strip())
        elif kind != "space":
            found.append(Token(kind, match.group(), at, "\n".join(docs)))
            docs = []
        at = end
    found.append(Token("end", "the end of the text", len(text)))
    return found


def _block_end(source: Text, begin: int) -> int:
    """Where a block comment ends; they nest."""
    depth = 0
    for mark in _COMMENT.finditer(source.text, begin):
        depth += 1 if mark.group() == "/*" else -1
        if not depth:
            return mark.end()
    raise source.error("this comment does not end: expected '*/'", begin)
