"""Names that are in a folder in another form than a guest gave: composed or decomposed letters, as different systems write
the same text, and bytes that are not UTF-8, which guests see as U+FFFD.

The exact name always comes first, and ASCII names are never looked for. A name that is there in no form stays as it was given.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import unicodedata

from astrid_host.errors import HostError
from astrid_host.hostcalls.fs.status import status_of

COMPARED = 4096  # names of a folder that one look compares: about a millisecond
_LIST = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def readable(name: str) -> str:
    """A name or path of the system as text: bytes that are not UTF-8 become U+FFFD."""
    return os.fsencode(name).decode("utf-8", "replace")


def in_its_form(fd: int, name: str) -> str:
    """A name as it is in a folder.

    Args:
        fd: the folder.
        name: as a guest gave it, and not in ASCII alone.

    Raises:
        HostError: `unknown`, with a text for people, when several names of the folder are this one in other forms.
        OSError: the folder cannot be looked into.
    """
    if status_of(fd, name) is not None:
        return name
    found = _others(fd, name)
    if len(found) > 1:
        shown = ", ".join(ascii(readable(other))[1:-1] for other in sorted(found)[:4])
        text = f"{len(found)} names are {name!r} in other forms of Unicode ({shown}), and none is in the form that was given"
        raise HostError("unknown", text, detail=text)
    return found[0] if found else name


def _others(fd: int, name: str) -> list[str]:
    wanted = unicodedata.normalize("NFC", name)
    quick = {wanted, unicodedata.normalize("NFD", name)} - {name}
    found = [form for form in quick if _is_there(fd, form)]
    with contextlib.suppress(OSError):  # a folder that may not be listed has the two forms above
        folder = os.open(".", _LIST, dir_fd=fd)
        try:
            with os.scandir(folder) as entries:
                listed = [entry.name for entry in itertools.islice(entries, COMPARED)]
        finally:
            os.close(folder)
        found += [other for other in listed if not other.isascii() and _form(other) == wanted]
    return list(dict.fromkeys(found))


def _form(name: str) -> str:
    return unicodedata.normalize("NFC", readable(name))


def _is_there(fd: int, name: str) -> bool:
    try:
        return status_of(fd, name) is not None
    except OSError:  # a form that is too long, say
        return False
