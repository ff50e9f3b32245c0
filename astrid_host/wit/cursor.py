"""Reading tokens one by one: the questions that every rule of the grammar asks, and the words it keeps for itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from astrid_host.errors import WitError
from astrid_host.wit.lexer import Text, Token, tokens

T = TypeVar("T")

PRIMITIVES = frozenset(("bool", "u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64", "f32", "f64", "char", "string"))
GENERICS = frozenset(("list", "option", "result", "tuple", "own", "borrow"))
ASYNCHRONOUS = frozenset(("async", "error-context", "future", "stream"))
KEYWORDS = frozenset(
    (
        *(*PRIMITIVES, *GENERICS, *ASYNCHRONOUS),
        *("as", "constructor", "enum", "export", "flags", "from", "func", "import", "include", "interface", "package"),
        *("record", "resource", "static", "type", "use", "variant", "with", "world"),
    )
)


class Cursor:
    """A place in the tokens of a text.

    Raises:
        WitError: the text has something that is no token. So do most methods, for a token that is not what they expect.
    """

    def __init__(self, source: Text) -> None:
        self.source = source
        self._tokens = tokens(source)
        self._index = 0

    @property
    def token(self) -> Token:
        """The token that is read next."""
        return self._tokens[self._index]

    def next(self) -> Token:
        """Take a token; the end stays where it is."""
        token = self._tokens[self._index]
        if token.kind != "end":
            self._index += 1
        return token

    def stands(self, text: str) -> bool:
        """Whether this token comes next."""
        return self._tokens[self._index].text == text

    def accept(self, text: str) -> bool:
        """Take this token if it comes next."""
        if self._tokens[self._index].text == text:
            self._index += 1
            return True
        return False

    def expect(self, *texts: str) -> Token:
        """Take the next token, which has to be one of these."""
        token = self._tokens[self._index]
        if token.text not in texts:
            raise self.unexpected(" or ".join(map(repr, texts)))
        self._index += 1
        return token

    def unexpected(self, wanted: str) -> WitError:
        """The error for a token that is not what was wanted."""
        token = self.token
        given = token.text if token.kind == "end" else repr(token.text)
        return self.source.error(f"expected {wanted}, found {given}", token.at)

    def name(self, what: str) -> Token:
        """Take a name, without the `%` that may escape it.

        Args:
            what: what is named, for the message.
        """
        token = self._tokens[self._index]
        if token.kind != "id":
            raise self.unexpected(what)
        if token.text in KEYWORDS:
            raise self.source.error(
                f"expected {what}, found the keyword {token.text!r}: write %{token.text} to use it as a name", token.at
            )
        self._index += 1
        return token._replace(text=token.text[1:]) if token.text[0] == "%" else token

    def separated(self, close: str, item: Callable[[], T]) -> list[T]:
        """Items with commas between them, up to `close`; one comma may stand behind the last."""
        found: list[T] = []
        while not self.accept(close):
            found.append(item())
            if not self.accept(","):
                self.expect(",", close)
                break
        return found

    def gates(self) -> str:
        """Leave out feature gates; what the documentation before them says belongs to what they gate."""
        docs = self.token.docs
        while self.accept("@"):
            gate = self.expect("since", "unstable", "deprecated").text
            self.expect("(")
            self.expect("feature" if gate == "unstable" else "version")
            self.expect("=")
            if gate == "unstable":
                self.name("a feature's name")
            elif self.token.kind == "version":
                self.next()
            else:
                raise self.unexpected("a version such as 1.0.0")
            self.expect(")")
        return docs if self.token.docs == docs else "\n".join(filter(None, (docs, self.token.docs)))
