"""Serving metrics over HTTP: what a scrape gets, and that nothing is left when serving ends."""

from __future__ import annotations

import gzip
import logging
import re
import socket
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from astrid_host.metrics import IDLE_S, MOST_CONNECTIONS, serve
from astrid_host.stats import HostStats

HERE = "127.0.0.1"
BOUND_S = 10


def _stats(events: int = 0) -> HostStats:
    return HostStats(events, 0, {}, {}, {}, 0, 0, 0, 0, 0, (), {}, {})


def _port(url: str) -> int:
    found = re.fullmatch(r"http://.*:(\d+)/metrics", url)
    assert found is not None
    return int(found[1])


def _scrape(url: str, **headers: str) -> bytes:
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=BOUND_S) as answer:
        assert answer.status == 200
        body: bytes = answer.read()
    return body


def _values(url: str) -> dict[str, float]:
    """Samples without labels, by name."""
    found = text_string_to_metric_families(_scrape(url).decode())
    return {sample.name: sample.value for family in found for sample in family.samples if not sample.labels}


def test_each_scrape_asks_for_the_counts_anew() -> None:
    counts = iter(range(1, 10))
    with serve(lambda: _stats(next(counts)), HERE, 0) as url:
        assert _values(url)["astrid_bus_events_published_total"] == 1
        assert _values(url)["astrid_bus_events_published_total"] == 2


def test_a_scrape_may_be_compressed_or_ask_for_some_metrics_only() -> None:
    with serve(lambda: _stats(5), HERE, 0) as url:
        packed = _scrape(url, **{"Accept-Encoding": "gzip"})
        assert b"\nastrid_bus_events_published_total 5.0\n" in gzip.decompress(packed)
        assert list(_values(f"{url}?name[]=astrid_bus_events_published_total")) == ["astrid_bus_events_published_total"]


def test_the_process_is_measured_too() -> None:
    with serve(_stats, HERE, 0) as url:
        assert _values(url)["process_resident_memory_bytes"] > 1 << 20


def test_scrapes_do_not_wait_for_each_other() -> None:
    """Both ask for the counts before either of them gets any."""
    both = threading.Barrier(2, timeout=BOUND_S)

    def stats() -> HostStats:
        both.wait()
        return _stats(3)

    with serve(stats, HERE, 0) as url, ThreadPoolExecutor(2) as readers:
        found = list(readers.map(_values, [url, url]))
    assert [values["astrid_bus_events_published_total"] for values in found] == [3, 3]


def test_a_scrape_that_fails_is_logged_and_the_next_one_is_answered(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    counts: list[HostStats] = []
    with serve(counts.pop, HERE, 0) as url:
        with pytest.raises(urllib.error.HTTPError, match="500"):
            _scrape(url)
        counts.append(_stats(1))
        assert _values(url)["astrid_bus_events_published_total"] == 1
    logged = [(record.levelno, record.message) for record in caplog.records if record.name == "astrid_host.metrics"]
    assert logged == [(logging.ERROR, "a scrape failed")]
    assert capfd.readouterr() == ("", "")


def test_what_is_no_request_is_refused_in_silence(capfd: pytest.CaptureFixture[str]) -> None:
    with serve(_stats, HERE, 0) as url:
        with socket.create_connection((HERE, _port(url)), timeout=BOUND_S) as connection:
            connection.sendall(b"\x16\x03\x01 no request\r\n\r\n")
            assert b"400" in connection.recv(1000)
        assert _values(url)["astrid_bus_events_published_total"] == 0
    assert capfd.readouterr() == ("", "")


def test_leaving_frees_the_port_and_ends_all_threads() -> None:
    before = set(threading.enumerate())
    with serve(_stats, HERE, 0) as url:
        _scrape(url)
        assert set(threading.enumerate()) - before
    assert set(threading.enumerate()) - before == set()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((HERE, _port(url)), timeout=BOUND_S)
    with serve(_stats, HERE, _port(url)) as again:
        assert again == url
        _scrape(again)


def test_leaving_waits_for_no_reader() -> None:
    """One that never asks, and one that does not read the much that it asked for."""
    before = set(threading.enumerate())
    asked = threading.Event()

    def stats() -> HostStats:
        asked.set()
        return msgspec.structs.replace(_stats(), dropped={f"{number:05000}": 1 for number in range(3000)})

    with ExitStack() as readers:
        with serve(stats, HERE, 0) as url:
            silent, slow = (
                readers.enter_context(socket.create_connection((HERE, _port(url)), timeout=BOUND_S)) for _ in range(2)
            )
            slow.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            assert asked.wait(BOUND_S)
            begun = time.monotonic()
        assert time.monotonic() - begun < IDLE_S / 2
        assert set(threading.enumerate()) - before == set()
        assert silent.recv(1) == b""


def test_too_many_connections_are_closed_and_cost_no_thread() -> None:
    with serve(_stats, HERE, 0) as url:
        held = [socket.create_connection((HERE, _port(url)), timeout=BOUND_S) for _ in range(MOST_CONNECTIONS)]
        with socket.create_connection((HERE, _port(url)), timeout=BOUND_S) as one_more:
            assert one_more.recv(1) == b""
        for connection in held:
            connection.close()


def test_a_port_in_use_is_named() -> None:
    with serve(_stats, HERE, 0) as url:
        place = f"127.0.0.1:{_port(url)}"
        with pytest.raises(OSError, match=f"^metrics cannot be served at {place}: Address already in use; "):
            serve(_stats, HERE, _port(url)).__enter__()
        _scrape(url)


def test_a_name_that_no_machine_has_is_named() -> None:
    with pytest.raises(OSError, match=r"^metrics cannot be served at nowhere\.invalid:0: "):
        serve(_stats, "nowhere.invalid", 0).__enter__()


def test_an_ipv6_address_is_in_brackets_wherever_it_is_shown() -> None:
    """Also where this machine has no IPv6, and says so."""
    try:
        with serve(_stats, "::1", 0) as url:
            assert url.startswith("http://[::1]:")
            _scrape(url)
    except OSError as error:
        assert str(error).startswith("metrics cannot be served at [::1]:0: ")  # noqa: PT017 - either is right
