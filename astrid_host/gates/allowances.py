"""What a person allowed before: whether an earlier "session" or "always" covers a request, by the very text that is to run.

An allowance covers what begins with the words that were allowed, where the action that is asked for are words with which it
begins as well; or one resource only. Neither covers a text in which a shell would find more than one command, or in which a
person does not see each character as itself: with an operator, a line's end or an unclear character in it, every request is asked
about anew. Texts are compared as they are: nothing is trimmed, cut, folded or unescaped, so what matches here is what runs.
Everything is pure and has an answer for every text. (Astrid, approval: allowances.)
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import NamedTuple

ACTION_BYTES = 4 << 10
RESOURCE_BYTES = 64 << 10

# What makes a shell run more than the one command that the text begins with: lists, pipes, redirections, substitutions (in zsh
# also those of `=(…)` and of glob qualifiers). Line ends and other control characters count as well.
OPERATORS = frozenset(";&|`$<>()")
_UNSEEN = ("Cc", "Cf", "Zl", "Zp", "Cs")
_JOINERS = "\u200c\u200d"  # letters of several scripts, and emoji, are written with them
# What fonts show as nothing, whatever its category: Unicode's Default_Ignorable_Code_Point, and the empty pattern of Braille.
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u2800\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)


class Allowance(NamedTuple):
    """What a person allowed for good, or for a session.

    Attributes:
        action: the words that were allowed.
        resource: None allows every resource that is the action, or begins with it and a space, when asked for by an action of
            which the same is true; else the only resource for which the action is allowed.
    """

    action: str
    resource: str | None = None

    def covers(self, action: str, resource: str) -> bool:
        """Whether `action` on `resource` was allowed.

        Args:
            action: what a capsule asks to do.
            resource: what it asks to do it on; of a command, all of it.
        """
        if has_operator(resource) or first_unclear(resource) is not None:
            return False
        if self.resource is not None:
            return action == self.action and resource == self.resource
        # A person is shown both, so an action that says something else than the resource was not what was allowed.
        return _begins(resource, self.action) and _begins(resource, action)

    def __str__(self) -> str:
        """As people read it: `git status *`, or `write_file: cwd://a.txt`."""
        return f"{self.action} *" if self.resource is None else f"{self.action}: {self.resource}"


def allowance_for(action: str, resource: str) -> Allowance | None:
    """What to remember when a person allows a request for longer than once.

    Returns:
        The allowance of all that begins with the action where the resource does, else of this resource alone; None when nothing
        can be remembered, because the resource has an operator, a line's end or an unclear character in it. What is returned
        covers the request.
    """
    for allowance in (Allowance(action), Allowance(action, resource)):
        if allowance.covers(action, resource):
            return allowance
    return None


def _begins(text: str, words: str) -> bool:
    return bool(words) and (text == words or text.startswith(words + " "))


def covered(allowances: Iterable[Allowance], action: str, resource: str) -> bool:
    """Whether one of the allowances covers a request."""
    return any(allowance.covers(action, resource) for allowance in allowances)


def has_operator(text: str) -> bool:
    """Whether a shell could find more in a text than one command and its words."""
    return not OPERATORS.isdisjoint(text) or (not text.isprintable() and any(map(_ends_command, text)))


def _ends_command(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Zl", "Zp")


def request_fault(action: str, resource: str) -> str | None:
    """Why a request cannot be put to a person; None when it can.

    Whatever the text is, all of it is shown: several lines, and escapes for what would not be seen. So only its size counts:
    4 KiB of action and 64 KiB of resource.
    """
    for name, text, most in (("action", action, ACTION_BYTES), ("resource", resource, RESOURCE_BYTES)):
        size = len(text.encode("utf-8", "surrogatepass"))
        if size > most:
            return f"its {name} has {size} bytes, and a person is shown {most} at most: nothing is cut off"
    return None


def first_hidden(text: str) -> int | None:
    """Where the first character of a name is that is not seen as itself; None when there is none. Names may have joiners,
    variation selectors and any space: scripts and emoji need them."""
    if text.isprintable():
        return None
    for at, character in enumerate(text):
        if unicodedata.category(character) in _UNSEEN and character not in _JOINERS:
            return at
    return None


def first_unclear(text: str) -> int | None:
    """Where the first character is that a person would not see as itself in a text that is to be approved, where nothing but a
    plain space may look like nothing; None when there is none. Line ends are among them."""
    if text.isascii() and text.isprintable():
        return None
    return next((at for at, character in enumerate(text) if is_unclear(character)), None)


def is_unclear(character: str) -> bool:
    """Whether a character is not seen as itself, moves others, or looks like a space and is none."""
    category = unicodedata.category(character)
    return category in _UNSEEN or (category == "Zs" and character != " ") or _INVISIBLE.match(character) is not None
