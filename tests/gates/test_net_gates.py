"""Gates of the network: which rows cover which hosts and ports, and the line that would allow it."""

from __future__ import annotations

from typing import Any

import pytest

from astrid_host.gates.net import may_bind, may_bind_unix, may_connect, may_fetch
from astrid_host.manifest import Capabilities, Manifest, Package


def manifest(**claims: Any) -> Manifest:
    return Manifest(Package("x", "1.0.0"), capabilities=Capabilities(**claims))


FETCHED = [
    ("example.com", "example.com"),
    ("example.com", "a.b.example.com"),
    ("example.com", "EXAMPLE.com."),
    ("Example.com.", "example.com"),
    ("*", "anything"),
    ("*", "10.0.0.1"),
    ("::1", "::1"),
    ("[::1]", "::1"),
    ("10.0.0.1", "10.0.0.1"),
]
NOT_FETCHED = [
    ("example.com", "notexample.com"),
    ("example.com", "example.com.evil.org"),
    ("a.example.com", "example.com"),
    ("*.example.com", "a.example.com"),
    ("example.com:443", "example.com"),
    ("https://example.com", "example.com"),
    ("", "example.com"),
    (".", "example.com"),
    ("*", ""),
    ("com.", "evilcom"),
]


@pytest.mark.parametrize(("row", "host"), FETCHED)
def test_a_row_of_net_covers_its_host_and_those_below(row: str, host: str) -> None:
    assert may_fetch(manifest(net=("unrelated.example", row)), host) is None


@pytest.mark.parametrize(("row", "host"), NOT_FETCHED)
def test_a_row_of_net_covers_nothing_else(row: str, host: str) -> None:
    denial = may_fetch(manifest(net=(row,)), host)
    assert denial is not None
    assert denial.case == "capability-denied"


CONNECTED = [
    ("a:80", "a", 80),
    ("a:*", "A.", 9),
    ("[::1]:80", "::1", 80),
    ("::1:*", "[::1]", 1),
    ("127.0.0.1:80", "127.0.0.1", 80),
]
NOT_CONNECTED = [
    ("a:80", "a", 81),
    ("a:80", "b.a", 80),
    ("*:80", "a", 80),
    ("*", "a", 80),
    ("a", "a", 80),
    (":80", "", 80),
]


@pytest.mark.parametrize(("row", "host", "port"), CONNECTED)
def test_a_row_names_host_and_port(row: str, host: str, port: int) -> None:
    assert may_connect(manifest(net_connect=(row,)), host, port) is None
    assert may_bind(manifest(net_bind=(row,)), host, port) is None


@pytest.mark.parametrize(("row", "host", "port"), NOT_CONNECTED)
def test_a_host_is_never_a_wildcard(row: str, host: str, port: int) -> None:
    assert may_connect(manifest(net_connect=(row,)), host, port) is not None
    assert may_bind(manifest(net_bind=(row,)), host, port) is not None


def test_a_unix_socket_needs_a_row_of_its_own() -> None:
    assert may_bind_unix(manifest(net_bind=("a:80", "unix:x"))) is None
    assert may_bind_unix(manifest(net_bind=("a:*", "unix:"))) is not None


def test_a_denial_names_the_line_to_write() -> None:
    denials = [
        (may_fetch(manifest(net=("a",)), "b"), '[capabilities] net = ["a", "b"]'),
        (may_connect(manifest(), "::1", 80), '[capabilities] net_connect = ["[::1]:80"]'),
        (may_bind(manifest(), "127.0.0.1", 80), '[capabilities] net_bind = ["127.0.0.1:80"]'),
        (may_bind_unix(manifest()), '[capabilities] net_bind = ["unix:*"]'),
    ]
    for denial, line in denials:
        assert denial is not None
        assert denial.detail.endswith(f"write in its Capsule.toml: {line}")
        assert "'x'" in denial.detail
