"""WIT text as tokens. Comments are left out, except `///` and `/** */`, which are kept for what follows them.

A character that belongs to no token, a name that is none and a comment without end are a `WitError`.
(Component model, "WIT.md", "Lexical structure".)
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from astrid_host.errors import WitError

# The most frequent ones first: the order decides only between `//`, `/*` and `/`.
_TOKEN = re.compile(
    r"[ \t\r\n]*(?:"
    r"(?P<id>%?[A-Za-z][A-Za-z0-9-]*)"
    r"|(?P<sign>[:;,.{}()<>=@*_])"
    r"|(?P<line>//[^\n]*)"
    r"|(?P<arrow>->)"
    r"|(?P<version>(?:0|[1-9][0-9]*)\.(?:0|[1-9][0-9]*)\.(?:0|[1-9][0-9]*)"
    r"(?:-[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?)"
    r"|(?P<number>[0-9]+)"
    r"|(?P<block>/\*)"
    r"|(?P<slash>/)"
    r"|(?P<end>\Z)"
    r"|(?P<other>.))"
)
_COMMENT = re.compile(r"/\*|\*/")


class Token(NamedTuple):
    """One token: `kind` is `id`, `version`, `number`, `sign`, `slash`, `arrow` or `end`; `at` is its offset in the text."""

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
        """An error at an offset in the text."""
        line = self.text.count("\n", 0, at) + 1
        column = at - (self.text.rfind("\n", 0, at) + 1) + 1
        return WitError(message, self.file, line, column)


def tokens(source: Text) -> list[Token]:
    """All tokens, and one of kind `end`.

    Raises:
        WitError: there is a character that belongs to none, a name that is none, or a comment that does not end.
    """
    text, at, docs = source.text, 0, list[str]()
    match_at = _TOKEN.match
    found: list[Token] = []
    names = set[str]()
    while True:
        match = match_at(text, at)
        assert match is not None, "the last alternative is any character"
        kind = match.lastgroup or ""
        begin, at = match.span(kind)
        if kind == "line":
            if text.startswith("///", begin) and not text.startswith("////", begin):
                docs.append(text[begin + 3 : at].removeprefix(" ").rstrip())
            continue
        if kind == "block":
            at = _block_end(source, begin)
            if text.startswith("/**", begin) and at - begin > 4:
                docs.append(text[begin + 3 : at - 2].strip())
            continue
        if kind == "end":
            found.append(Token(kind, "the end of the text", begin))
            return found
        word = match[kind]
        if kind == "other":
            raise source.error(f"unexpected character {word!r}", begin)
        if kind == "id" and word not in names:
            if not _is_name(word):
                raise source.error(f"{word!r} is no name: expected words of one case, joined by single '-'", begin)
            names.add(word)
        found.append(Token(kind, word, begin, "\n".join(docs) if docs else ""))
        docs = []


def _is_name(word: str) -> bool:
    return all(part and part in (part.lower(), part.upper()) for part in word.split("-"))


def _block_end(source: Text, begin: int) -> int:
    """Where a block comment ends; they nest."""
    depth = 0
    for mark in _COMMENT.finditer(source.text, begin):
        depth += 1 if mark.group() == "/*" else -1
        if not depth:
            return mark.end()
    raise source.error("this comment does not end: expected '*/'", begin)
