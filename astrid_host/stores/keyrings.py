"""The operating system's keyring, through the library `keyring`, which is optional and imported when it is needed.

A keyring may ask its user to unlock it, or wait for a service that does not answer: every question to it has 10 s, and
what goes wrong in a backend, whatever it raises, is a StoreError.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from astrid_host.errors import StoreError

log = logging.getLogger(__name__)
ANSWER_S = 10.0
INSTALL = "pip install 'astrid-host[keyring]'"

Answer = TypeVar("Answer")


class Keyring(Protocol):
    """Where secrets may be kept, each under a service and an account. All methods raise StoreError when it fails."""

    def get(self, service: str, account: str) -> str | None: ...
    def set(self, service: str, account: str, value: str) -> None: ...
    def delete(self, service: str, account: str) -> None: ...


class OsKeyring:
    """The keyring of this user's session.

    Args:
        library: the module `keyring`.

    Attributes:
        name: of its backend.
    """

    def __init__(self, library: Any) -> None:
        self._library = library
        self.name = str(library.get_keyring().name)

    def get(self, service: str, account: str) -> str | None:
        """A secret, None for one that is not there."""
        value = _asked(lambda: self._library.get_password(service, account), self.name)
        return value if isinstance(value, str) else None

    def set(self, service: str, account: str, value: str) -> None:
        """Keep a secret, and see that it is kept."""
        _asked(lambda: self._library.set_password(service, account, value), self.name)
        if self.get(service, account) != value:
            raise StoreError(f"the keyring {self.name} did not keep what it was given")

    def delete(self, service: str, account: str) -> None:
        """Remove a secret that is there."""
        _asked(lambda: self._library.delete_password(service, account), self.name)


def os_keyring() -> OsKeyring:
    """The keyring of this user's session.

    Raises:
        StoreError: there is none: the library is not installed, or it finds no backend that keeps anything.
    """
    try:
        import keyring
    except ModuleNotFoundError:
        raise StoreError(f"the library `keyring` is not installed: {INSTALL}") from None
    found = _asked(lambda: keyring.get_keyring(), "library")
    module = type(found).__module__
    if module in ("keyring.backends.fail", "keyring.backends.null") or found.priority <= 0:
        raise StoreError(
            "no keyring service answers in this session: start one (GNOME Keyring, KWallet), "
            "or do without: secrets are then kept in a file of mode 0600"
        )
    return _asked(lambda: OsKeyring(keyring), found.name)


def _asked(question: Callable[[], Answer], name: str) -> Answer:
    """The answer to one question, asked on a thread that is left behind when it does not return in time."""
    answers: list[Answer] = []
    errors: list[Exception] = []

    def ask() -> None:
        try:
            answers.append(question())
        except Exception as error:  # noqa: BLE001 - backends raise what they like
            errors.append(error)

    thread = threading.Thread(target=ask, name="astrid-keyring", daemon=True)
    thread.start()
    thread.join(ANSWER_S)
    if answers:
        return answers[0]
    if errors:
        raise StoreError(f"the keyring {name} failed: {errors[0]}") from errors[0]
    raise StoreError(f"the keyring {name} did not answer within {ANSWER_S:g} s: is it locked?")
