"""Taking secrets out of texts: of all that the host logs, reports, asks people about and keeps in the audit.

A secret is found as it is, in the forms in which it is sent (percent-encoded, quoted for JSON or a shell, in base64, in
hexadecimal), line by line where it has several, and broken by spaces and line ends. Each of a text's words that has an escape in
it is decoded and looked at as well. A secret that a guest takes apart otherwise, or logs in several lines of its own, is not
found.
"""

from __future__ import annotations

import base64
import json
import logging
import re
import threading
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote, quote_plus, unquote_plus

SHORTEST = 8  # characters; shorter secrets cannot be told from other text
HIDDEN = "***"
REDACTED = 8192  # characters of a text that are looked at where texts are cut; the rest is left out
LOGS = "astrid_host"

_SPACE = re.compile(r"(?:\s|\\[nrt])+")
_WORD = re.compile(r"[^\s\"'<>]+")
_ESCAPE = re.compile(r"\\u([0-9a-fA-F]{4})|\\x([0-9a-fA-F]{2})|\\(.)")


class Redactor:
    """Takes secrets out of texts. From any thread."""

    def __init__(self) -> None:
        self._needles: tuple[str, ...] = ()
        self._plain: tuple[str, ...] = ()
        self._compact: tuple[str, ...] = ()

    def hide(self, values: Iterable[str]) -> None:
        """Take these out from now on, and no others; those of fewer than 8 characters stay.

        Args:
            values: the secrets.
        """
        secrets = {value for value in values if len(value) >= SHORTEST}
        secrets |= {
            line.strip() for value in secrets for line in value.splitlines() if len(line.strip()) >= 2 * SHORTEST
        }
        needles = {form for value in secrets for form in _forms(value) if form}
        self._needles = tuple(sorted(needles, key=len, reverse=True))
        self._plain = tuple(sorted(secrets, key=len, reverse=True))
        compact = {_SPACE.sub("", needle) for needle in needles}
        self._compact = tuple(sorted((one for one in compact if len(one) >= SHORTEST), key=len, reverse=True))

    def whole(self, text: str) -> str:
        """The text with every secret in it replaced. It is not cut, so whoever cuts it does so afterwards."""
        if not self._needles:
            return text
        for needle in self._needles:
            if needle in text:
                text = text.replace(needle, HIDDEN)
        if "%" in text or "\\" in text or "+" in text:
            text = _WORD.sub(self._word, text)
        return self._joined(text)

    def cut(self, text: str) -> str:
        """As `whole`, of a text's first 8,192 characters. Of a longer one the end of these is left out too, which may be the
        beginning of a secret."""
        if len(text) <= REDACTED:
            return self.whole(text)
        needles = self._needles
        text = self.whole(text[:REDACTED])
        return text[: max(len(text) - len(needles[0]), 0)] if needles else text

    def _word(self, match: re.Match[str]) -> str:
        """A word, or nothing of it when it says a secret once it is decoded."""
        word = match[0]
        read = _ESCAPE.sub(_unescaped, word)
        for said in (read, unquote_plus(read), unquote_plus(word)):
            if said != word and any(secret in said for secret in self._plain):
                return HIDDEN
        return word

    def _joined(self, text: str) -> str:
        """The text without secrets that spaces and line ends break."""
        joined = _SPACE.sub("", text)
        if len(joined) == len(text):
            return text
        for needle in self._compact:
            if needle in joined:
                between = r"(?:\s|\\[nrt])*"
                text = re.sub(between.join(map(re.escape, needle)), HIDDEN, text)
        return text


def _unescaped(match: re.Match[str]) -> str:
    code = match[1] or match[2]
    return chr(int(code, 16)) if code else match[3]


def _forms(value: str) -> set[str]:
    """A secret as it may stand in a text: as it is, in a URL, in JSON, in a shell's quotes, and in base64."""
    raw = value.encode("utf-8", "surrogatepass")
    forms = {value, quote(raw, safe=""), quote(raw), quote(raw, safe="!'()*"), quote_plus(raw)}
    forms |= {json.dumps(value, ensure_ascii=ascii_only)[1:-1] for ascii_only in (False, True)}
    forms.add(value.replace("'", "'\"'\"'"))
    forms |= {raw.hex(), raw.hex().upper()}
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        forms.add(encode(raw).decode().rstrip("="))
        # Within something longer, such as `user:password`, the same bytes begin at another bit: what they alone decide stays.
        for before, first in enumerate((0, 2, 3)):
            last = (before + len(raw)) * 8 // 6
            forms.add(encode(bytes(before) + raw).decode()[first:last])
    return forms


# Log records: the one place through which all of them come, whoever listens.

_guarding: list[Redactor] = []
_lock = threading.Lock()
_installed = False


@contextmanager
def redacted_logs(redactor: Redactor) -> Iterator[None]:
    """While the body runs, no record of the host's loggers has a secret in it: not in its text, nor in a traceback.

    Args:
        redactor: knows the secrets; those that it learns meanwhile count at once.
    """
    with _lock:
        _install()
        _guarding.append(redactor)
    try:
        yield
    finally:
        with _lock:
            _guarding.remove(redactor)


def _install() -> None:
    """Records are made anew by what makes them for the whole process: handlers and filters of a logger do not see those of the
    loggers below it, and whoever embeds the host has handlers of their own."""
    global _installed
    if _installed:
        return
    _installed = True
    made_before = logging.getLogRecordFactory()

    def made(*args: Any, **more: Any) -> logging.LogRecord:
        record = made_before(*args, **more)
        name = record.name or ""  # `logging.makeLogRecord` makes one without a name and fills it in
        if _guarding and (name == LOGS or name.startswith(LOGS + ".")):
            _redact(record)
        return record

    logging.setLogRecordFactory(made)


def _redact(record: logging.LogRecord) -> None:
    try:
        text = record.getMessage()
    except Exception:  # noqa: BLE001 - a line that cannot be made is told by the handler that tries to
        return
    clean = _clean(text)
    if record.exc_info and record.exc_info[1] is not None:
        told = "".join(traceback.format_exception(*record.exc_info))
        if (safe := _clean(told)) != told:
            clean, record.exc_info = f"{clean}\n{safe.rstrip()}", None
    if clean != text:
        record.msg, record.args = clean, ()


def _clean(text: str) -> str:
    for redactor in tuple(_guarding):
        text = redactor.whole(text)
    return text
