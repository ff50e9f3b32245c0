"""Where a request goes. One reading of a URL serves the gate, the airlock, the connection and the `Host` header alike."""

from __future__ import annotations

import base64
import ipaddress
import re
from typing import NamedTuple
from urllib.parse import quote, unquote_to_bytes, urljoin, urlsplit

from astrid_host.errors import HostError
from astrid_host.hostcalls.addresses import NAME_BYTES, shown

URL_BYTES = 16 << 10
PORTS = {"http": 80, "https": 443}
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?\.?")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_HIERARCHY = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_LOCAL = re.compile(r"/(?![/\\])")  # a path on the same host
_UNTIL_PATH, _UNTIL_QUERY = re.compile(r"[/?#]"), re.compile(r"[?#]")
_HOST_PORT = re.compile(r"(?:\[[^\[\]]*\]|[^:\[\]]*)(?::[0-9]*)?")
# What may stand in a path or a query as it is; anything else is written in percents.
_PATH_SAFE = "/:@!$&'()*+,;=~%[]|^`{}\"<>"
_UNSAFE = re.compile(r"[\"<>`{}|^\\]")


class Url(NamedTuple):
    """A URL that can be fetched: `host` is lower-case ASCII, without brackets; `path` has the query and no fragment."""

    scheme: str
    host: str
    port: int
    path: str
    authorization: str | None

    @property
    def origin(self) -> tuple[str, str, int]:
        return self.scheme, self.host, self.port

    @property
    def authority(self) -> str:
        """As in a `Host` header: the port only where it is not the scheme's own."""
        text = shown(self.host, self.port)
        return text.removesuffix(f":{self.port}") if self.port == PORTS[self.scheme] else text

    @property
    def origin_text(self) -> str:
        """Scheme, host and port, as in a URL: what an error may tell of it."""
        return f"{self.scheme}://{self.authority}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path}"


def read_url(text: str) -> Url:
    """Read a URL.

    Raises:
        HostError: `scheme-denied` for a scheme other than http and https, `invalid-request` for what is no URL.
            (Astrid, http: schemes.)
    """
    if len(text) > URL_BYTES or len(text.encode()) > URL_BYTES or _CONTROL.search(text):
        raise _invalid(text, f"it has control characters, or more than {URL_BYTES} bytes")
    found = _SCHEME.match(text)
    scheme = found[0][:-1].lower() if found else ""
    if found and scheme not in PORTS:
        raise HostError("scheme-denied", detail=f"{outline(text)[:200]!r} is neither http:// nor https://")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:  # its text may have a password in it
        raise _invalid(text, "its host or port is none") from None
    if not found or not text[len(scheme) + 1 :].startswith("//") or "\\" in parts.netloc:
        raise _invalid(text, "expected such as https://example.org/path")
    if port == 0:
        raise _invalid(text, "there is no port 0")
    path = _escaped(parts.path or "/") + (f"?{_escaped(parts.query, '?')}" if parts.query else "")
    userinfo, at, _ = parts.netloc.rpartition("@")
    return Url(scheme, _read_host(text, parts.netloc), port or PORTS[scheme], path, _basic(userinfo) if at else None)


def join(base: Url, location: str) -> str:
    """What a `Location` means.

    Raises:
        HostError: `invalid-request` for what is no URL.
    """
    if _CONTROL.search(location):
        raise _invalid(location, "it has control characters")
    try:
        return urljoin(str(base), location)
    except ValueError:
        raise _invalid(location, "its host is none") from None


def outline(text: str) -> str:
    """A URL for an audit or a log: without its user, query and fragment, which may be secret, and whatever it is.

    It is not cut, so that secrets in the rest are found; one that is too long to be fetched is told by its length. What is no
    URL loses all before its last `@`.
    """
    if len(text) > URL_BYTES:
        return f"a URL of {len(text)} characters"
    scheme = _HIERARCHY.match(text)
    start = scheme[0] if scheme else ""
    rest = text[len(start) :]
    authority = _UNTIL_PATH.split(rest, maxsplit=1)[0]
    host = authority.rpartition("@")[2]
    if scheme and _HOST_PORT.fullmatch(host):
        rest = rest[len(authority) - len(host) :]
    elif scheme or not _LOCAL.match(text):
        rest = rest.rpartition("@")[2]
    return start + _UNTIL_QUERY.split(rest, maxsplit=1)[0]


def _read_host(text: str, netloc: str) -> str:
    host = netloc.rpartition("@")[2]
    if host.startswith("["):
        address, bracket, _ = host[1:].partition("]")
        try:
            found = ipaddress.IPv6Address(address)
        except ValueError:
            raise _invalid(text, f"{address!r} is no IPv6 address") from None
        if not bracket or found.scope_id is not None:
            raise _invalid(text, f"{address!r} is no IPv6 address without a scope")
        return str(found)
    name = host.partition(":")[0]
    if len(name) > NAME_BYTES:
        raise _invalid(text, f"a host has {NAME_BYTES} characters at most")
    if not name.isascii():
        name = _encoded(text, name)
    if not _NAME.fullmatch(name):
        raise _invalid(text, f"{name!r} is not the name of a host")
    return name.lower().removesuffix(".")


def _encoded(text: str, name: str) -> str:
    import idna

    try:
        return idna.encode(name, uts46=True).decode()
    except idna.IDNAError as error:
        raise _invalid(text, str(error)) from None


def _escaped(text: str, also: str = "") -> str:
    plain = quote(text, safe=_PATH_SAFE + also)
    return _UNSAFE.sub(lambda found: f"%{ord(found[0]):02X}", plain)


def _basic(userinfo: str) -> str:
    return "Basic " + base64.b64encode(unquote_to_bytes(userinfo)).decode()


def _invalid(text: str, why: str) -> HostError:
    return HostError("invalid-request", detail=f"{outline(text)[:200]!r} is no URL that can be fetched: {why}")
