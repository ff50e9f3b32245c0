"""Proxies that requests go through where the operator says so: those that the environment names.

`HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY` are read as everybody reads them, small letters first. What is on this
machine (`localhost`, loopback addresses) is never asked through a proxy: there it would be another machine.

The airlock holds for what is proxied, as far as the host can know where it leads: an address in a URL is judged as always, and
so is each address of a name that resolves here. A name that does not is left to the proxy, which the operator trusts with that.
The proxy itself may have any address: the operator named it. Only `http://` proxies are spoken to; another kind is refused in
words.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib import request

from astrid_host.errors import HostError
from astrid_host.hostcalls.http.urls import Url, outline, read_url

VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")


class Proxy(NamedTuple):
    """Where a proxy is, and what it is told of who asks."""

    host: str
    port: int
    authorization: str | None


class Proxies:
    """Which proxy a URL is asked through.

    Args:
        by_scheme: URLs of proxies by `http`, `https` and `all`; under `no` what is asked without one.

    Raises:
        ValueError: a proxy is none that can be spoken to; the message says which and why.
    """

    def __init__(self, by_scheme: Mapping[str, str]) -> None:
        self._bypass = {"no": by_scheme.get("no", "")}
        self._found = {
            scheme: _proxy(scheme, by_scheme[scheme]) for scheme in ("http", "https", "all") if by_scheme.get(scheme)
        }

    @classmethod
    def of_environment(cls) -> Proxies:
        """Those of the environment.

        Raises:
            ValueError: as the class.
        """
        return cls(request.getproxies_environment())

    def of(self, url: Url) -> Proxy | None:
        """The proxy for a URL; None: it is asked directly."""
        proxy = self._found.get(url.scheme) or self._found.get("all")
        if proxy is None or _is_here(url.host):
            return None
        bypasses: Any = request.proxy_bypass_environment  # type: ignore[attr-defined] # which its stubs leave out
        return None if bypasses(f"{url.host}:{url.port}", self._bypass) else proxy


def in_environment() -> list[str]:
    """The names of the variables that name a proxy."""
    return [name for name in VARIABLES if os.environ.get(name) or os.environ.get(name.lower())]


def _proxy(scheme: str, text: str) -> Proxy:
    given = text if "://" in text else f"http://{text}"
    try:
        url = read_url(given)
    except HostError as error:
        raise ValueError(f"proxy: {scheme.upper()}_PROXY cannot be used: {error.detail or error}") from None
    if url.scheme != "http":
        raise ValueError(f"proxy: {scheme.upper()}_PROXY is {outline(given)!r}; only http:// proxies are spoken to")
    return Proxy(url.host, url.port, url.authorization)


def _is_here(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
