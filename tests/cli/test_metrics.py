"""`astrid-host run --metrics ADDR`: serves metrics where it says, and says at once why it cannot."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from typing import TypeAlias

import pytest
from prometheus_client.parser import text_string_to_metric_families

from astrid_host.cli.run import place_of

Astrid: TypeAlias = Callable[..., subprocess.CompletedProcess[str]]
Start: TypeAlias = Callable[..., subprocess.Popen[str]]
WITHOUT_CLIENT = """
import sys
sys.modules["prometheus_client"] = None
from astrid_host.cli import main
sys.argv = ["astrid-host", *{arguments!r}]
main()
"""


@pytest.mark.parametrize(
    ("address", "place"),
    [
        ("9464", ("127.0.0.1", 9464)),
        ("0", ("127.0.0.1", 0)),
        ("65535", ("127.0.0.1", 65535)),
        ("localhost:80", ("localhost", 80)),
        ("0.0.0.0:9464", ("0.0.0.0", 9464)),
        ("metrics-1.example.org:9464", ("metrics-1.example.org", 9464)),
        ("[::1]:9464", ("::1", 9464)),
        ("[::]:0", ("::", 0)),
        ("[2001:DB8:0::1]:9464", ("2001:db8::1", 9464)),
    ],
)
def test_an_address_names_a_host_and_a_port(address: str, place: tuple[str, int]) -> None:
    assert place_of(address) == place


@pytest.mark.parametrize(
    "address",
    [
        "",
        "localhost",
        ":9464",
        "localhost:",
        "65536",
        "-1",
        "+1",
        " 9464",
        "9464\n",
        "٩٤٦٤",
        "1_000",
        "::1:9464",
        "::1",
        "[::1]",
        "[]:9464",
        "[localhost]:9464",
        "[127.0.0.1]:9464",
        "[::1:9464",
        "http://localhost:9464",
        "localhost:9464/metrics",
        "user@localhost:9464",
        "local host:9464",
    ],
)
def test_what_names_no_host_and_port_is_no_address(address: str) -> None:
    with pytest.raises(ValueError):
        place_of(address)


def test_a_wrong_address_is_wrong_usage(astrid: Astrid) -> None:
    done = astrid("run", "--metrics", "localhost")
    expected = "--metrics is PORT, HOST:PORT or [IPv6]:PORT, with a port of 0 to 65535; given 'localhost'"
    assert (done.returncode, done.stderr, done.stdout) == (2, f"astrid-host: {expected}\n", "")


def test_without_the_client_the_extra_is_named(surroundings: dict[str, str]) -> None:
    program = WITHOUT_CLIENT.format(arguments=["run", "--metrics", "0"])
    done = subprocess.run(
        [sys.executable, "-c", program], env=surroundings, capture_output=True, text=True, timeout=30, check=False
    )
    expected = "--metrics: metrics need prometheus-client, which is not installed: pip install 'astrid-host[metrics]'"
    assert (done.returncode, done.stderr, done.stdout) == (2, f"astrid-host: {expected}\n", "")


def test_without_the_client_all_else_works(surroundings: dict[str, str]) -> None:
    program = WITHOUT_CLIENT.format(arguments=["call", "word_count", '{"text": "a b"}'])
    done = subprocess.run(
        [sys.executable, "-c", program], env=surroundings, capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_help_does_not_load_the_client(surroundings: dict[str, str]) -> None:
    program = "import sys; from astrid_host.cli import app; print('prometheus_client' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], env=surroundings, capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.returncode, done.stdout) == (0, "False\n")


def test_a_port_in_use_ends_the_host_with_the_reason(astrid: Astrid) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        done = astrid("run", "--no-bundled", "--metrics", place)
    assert done.returncode == 3
    expected = (
        f"metrics cannot be served at {place}: Address already in use; give another address, or port 0 for any free one"
    )
    assert done.stderr.splitlines()[-1] == f"astrid-host: {expected}"
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_a_running_host_is_scraped_where_it_says_and_leaves_on_a_signal(start: Start, number: signal.Signals) -> None:
    process = start("run", "--metrics", "0")
    url = _url(process)
    with urllib.request.urlopen(url, timeout=30) as answer:
        found = list(text_string_to_metric_families(answer.read().decode()))
    capsules = {
        s.labels["capsule"] for family in found if family.name == "astrid_capsule_calls" for s in family.samples
    }
    assert capsules >= {"router", "word-tools"}
    assert {"astrid_bus_events_published", "astrid_guest_instances"} <= {family.name for family in found}
    process.send_signal(number)
    _, logged = process.communicate(timeout=30)
    assert (process.returncode, "Traceback" in logged) == (0, False)


def test_without_the_option_nothing_is_served(start: Start) -> None:
    process = start("run")
    assert process.stdout is not None
    shown = [next(process.stdout)]
    process.send_signal(signal.SIGTERM)
    shown += process.communicate(timeout=30)[0].splitlines()
    assert [line for line in shown if line.startswith("metrics: ")] == []


def _url(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("metrics: "):
            found = re.fullmatch(r"metrics: (http://127\.0\.0\.1:[1-9]\d*/metrics)\n", line)
            assert found is not None
            return found[1]
    raise AssertionError(f"it ended before it served: {process.stderr.read() if process.stderr else ''}")
