"""What is asked for: the request as it goes out, what it may cost, and what becomes of it when it is redirected.

Everything that a guest says is checked here, before anything is looked up or connected.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from astrid_host.abi import Variant
from astrid_host.errors import HostError
from astrid_host.hostcalls.http.decoding import ACCEPTED
from astrid_host.hostcalls.http.urls import Url, join, outline, read_url

BODY_BYTES = 10 << 20
HEADERS, HEADER_BYTES = 256, 64 << 10
REDIRECTS = 10
WHOLE_S, LONGEST_S = 30.0, 600.0
LONGEST_WAIT_S = 300.0  # for one thing that options may ask for
CONNECT_S, HEADERS_S, BETWEEN_S = 30.0, 120.0, 120.0
GET = "GET"

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}")
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
# The host frames the message itself, and keeps the connection to itself.
_HOSTS_OWN = frozenset(
    ("connection", "expect", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade")
)
_OF_A_BODY = frozenset(
    (
        "content-encoding",
        "content-language",
        "content-length",
        "content-location",
        "content-type",
        "digest",
        "transfer-encoding",
    )
)
# What another origin is told as well. Which other headers are secret, nobody can know.
_HARMLESS = frozenset(
    (
        "accept",
        "accept-charset",
        "accept-encoding",
        "accept-language",
        "cache-control",
        "content-encoding",
        "content-language",
        "content-length",
        "content-type",
        "if-match",
        "if-modified-since",
        "if-none-match",
        "if-range",
        "if-unmodified-since",
        "pragma",
        "range",
        "user-agent",
    )
)

Headers = list[tuple[str, str]]


class Pair(Protocol):
    """A `key-value-pair`."""

    @property
    def key(self) -> str: ...
    @property
    def value(self) -> str: ...


class RequestData(Protocol):
    """An `http-request-data`."""

    @property
    def url(self) -> str: ...
    @property
    def method(self) -> Variant: ...
    @property
    def headers(self) -> Sequence[Pair]: ...
    @property
    def body(self) -> bytes | None: ...


class Terms(msgspec.Struct, frozen=True, gc=False):
    """What a request may do and cost; times in seconds. `total_s` None: until the guest ends it. `received` bounds the body as
    it comes, `unfolded` as it is handed on, both in bytes; None: a stream, of which only a piece is here at a time."""

    total_s: float | None = None
    connect_s: float = CONNECT_S
    headers_s: float = HEADERS_S
    between_s: float = BETWEEN_S
    redirect: str = "follow"
    redirects: int = REDIRECTS
    received: int | None = None
    unfolded: int | None = None
    bomb: str = "body-too-large"  # the case when `unfolded` is exceeded
    decode: bool = True
    https_only: bool = False
    integrity: str | None = None
    version: str = "1.0"


WHOLE = Terms(total_s=WHOLE_S, received=BODY_BYTES, unfolded=BODY_BYTES)
STREAM = Terms()
WHOLE_1_1 = msgspec.structs.replace(WHOLE, version="1.1")
STREAM_1_1 = msgspec.structs.replace(STREAM, version="1.1")


def terms_of(options: Any, defaults: Terms) -> Terms:
    """What `request-options` ask for: below the limits of a whole response they may be anything, above them they are cut.

    Args:
        options: as lifted.
        defaults: for what they leave open.
    """
    times = options.timeouts
    total = defaults.total_s if times is None or times.total_ms is None else times.total_ms / 1000
    most = options.max_decompressed_bytes
    redirects = options.max_redirects
    return msgspec.structs.replace(
        defaults,
        total_s=total if defaults.total_s is None or total is None else min(total, LONGEST_S),
        connect_s=_seconds(times and times.connect_ms, defaults.connect_s),
        headers_s=_seconds(times and times.first_byte_ms, defaults.headers_s),
        between_s=_seconds(times and times.between_bytes_ms, defaults.between_s),
        redirect=options.redirect or defaults.redirect,
        redirects=defaults.redirects if redirects is None else min(redirects, REDIRECTS),
        received=_lower(options.max_response_bytes, defaults.received),
        unfolded=_lower(most, defaults.unfolded),
        bomb="body-too-large" if most is None else "decompression-bomb",
        decode=defaults.decode if options.auto_decompress is None else options.auto_decompress,
        https_only=bool(options.https_only),
        integrity=options.integrity,
    )


def _seconds(milliseconds: int | None, default: float) -> float:
    return default if milliseconds is None else min(milliseconds / 1000, LONGEST_WAIT_S)


def _lower(asked: int | None, most: int | None) -> int | None:
    if asked is None or most is None:
        return most if asked is None else asked
    return min(asked, most)


class Request(NamedTuple):
    """A request as it goes out. `body` None: it has none, or it is uploaded bit by bit, `uploads` says which."""

    method: str
    url: Url
    headers: Headers
    body: bytes | None
    uploads: bool = False

    def redirected(self, status: int, location: str) -> Request | None:
        """The request that follows a redirect; None when the body would have to be sent again and is gone.

        301, 302 and 303 make a GET of it (a HEAD stays one), without a body. Another origin gets the headers only that are known
        to be harmless. Whom to log in as is not for a server to say: what stands before an `@` in its URL means nothing.
        (Astrid, http: redirects.)

        Raises:
            HostError: as `read_url`; `scheme-denied` when a body that went over https would go over http.
        """
        url = read_url(join(self.url, location))
        dropped: frozenset[str] = frozenset(("host",))
        method, body = self.method, self.body
        if status in (301, 302, 303):
            if method not in (GET, "HEAD"):
                method = GET
            body, dropped = None, dropped | _OF_A_BODY
        elif self.uploads:
            return None
        elif body and self.url.scheme == "https" and url.scheme != "https":
            raise HostError(
                "scheme-denied", detail=f"a body is not sent again to {url.origin_text}, which is not https"
            )
        kept = [pair for pair in self.headers if pair[0] not in dropped]
        if url.origin != self.url.origin:
            kept = [pair for pair in kept if pair[0] in _HARMLESS]
        return Request(method, url, [("host", url.authority), *kept], body)


def read_request(data: RequestData, terms: Terms, uploads: bool = False) -> Request:
    """Check what a guest asks for.

    Raises:
        HostError: `invalid-request`, `scheme-denied`, or `body-too-large` for a body over 10 MiB.
    """
    url = read_url(data.url)
    if terms.https_only and url.scheme != "https":
        raise HostError("scheme-denied", detail=f"{outline(data.url)} is not https, and https-only was asked for")
    method = method_of(data.method)
    body = data.body
    if body is not None and len(body) > BODY_BYTES:
        raise HostError("body-too-large", detail=f"the request has {len(body)} bytes; {BODY_BYTES} are allowed")
    if uploads and body:
        raise HostError("invalid-request", detail="an upload's body is written to its sink: leave `body` out")
    headers, length = _read_headers(data.headers, url)
    names = {name for name, _ in headers}
    for name, value in (("user-agent", "astrid-host"), ("accept", "*/*")):
        if name not in names:
            headers.append((name, value))
    if terms.decode and "accept-encoding" not in names:
        headers.append(("accept-encoding", ACCEPTED))
    if url.authorization is not None and "authorization" not in names:
        headers.append(("authorization", url.authorization))
    if uploads:
        headers.append(("transfer-encoding", "chunked") if length is None else ("content-length", length))
    elif body or method in ("POST", "PUT", "PATCH"):
        headers.append(("content-length", str(len(body or b""))))
    return Request(method, url, headers, body or None, uploads)


def method_of(method: Variant) -> str:
    """An `http-method` as it is sent.

    Raises:
        HostError: `invalid-request` for what is none, and for CONNECT, which makes a tunnel.
    """
    name = str(method.value) if method.case == "other" else method.case.upper()
    if not _TOKEN.fullmatch(name) or name.upper() == "CONNECT":
        raise HostError("invalid-request", detail=f"{name[:64]!r} is not a method that can be sent")
    return name


def _read_headers(pairs: Sequence[Pair], url: Url) -> tuple[Headers, str | None]:
    """The headers to send, `host` first, and the `content-length` that was given."""
    found: Headers = [("host", url.authority)]
    length = None
    size = sum(len(pair.key) + len(pair.value.encode()) for pair in pairs)
    if len(pairs) > HEADERS or size > HEADER_BYTES:
        raise HostError(
            "invalid-request",
            detail=f"{len(pairs)} headers of {size} bytes; {HEADERS} of {HEADER_BYTES} are allowed",
        )
    for pair in pairs:
        name, value = pair.key.lower(), pair.value.strip(" \t")
        if not _TOKEN.fullmatch(name) or _UNPRINTABLE.search(value):
            raise HostError(
                "invalid-request", detail=f"{pair.key.partition(':')[0][:64]!r} is not a header, or its value is none"
            )
        if name == "host" and value.lower() != url.authority:
            raise HostError(
                "invalid-request", detail=f"the header Host is {value[:64]!r}, the URL's is {url.authority!r}"
            )
        if name == "content-length":
            if not (value.isascii() and value.isdecimal() and len(value) < 19):
                raise HostError("invalid-request", detail=f"{value[:64]!r} is no content-length")
            length = value
        elif name != "host" and name not in _HOSTS_OWN:
            found.append((name, value))
    return found, length
