"""astrid:sys as guests call it: configuration, caller, log, clocks, sleep, random bytes, capabilities."""

from __future__ import annotations

import datetime
import logging
import re
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from astrid_host.errors import HostError, StoreError
from astrid_host.hostcalls import sys as sys_hostcalls
from astrid_host.hostcalls.sys import (
    LOG_CHARACTERS,
    LOG_CHARACTERS_PER_S,
    LOG_LINES_PER_S,
    TRACE,
    Sys,
    configured,
    in_one_line,
)
from astrid_host.manifest import Capabilities, EnvField, Manifest, Package

SOURCE = "2f1c7d2e-7d3b-5e0a-9a55-0a1b2c3d4e5f"


def row(type: str = "text", default: Any = None, enum_values: tuple[str, ...] = ()) -> EnvField:  # noqa: A002
    return EnvField(type=type, default=default, has_default=default is not None, enum_values=enum_values)


def manifest(env: dict[str, EnvField] | None = None, **claims: Any) -> Manifest:
    return Manifest(Package("x", "1.0.0"), env=env or {}, capabilities=Capabilities(bind_workers=2, **claims))


class Capsule:
    """What a host function knows of the capsule that calls."""

    def __init__(self, manifest: Manifest) -> None:
        self.id = self.storage_id = "x"
        self.overlaid = True
        self.source_id = SOURCE
        self.manifest = manifest
        self.ready = 0

    def signal_ready(self) -> None:
        self.ready += 1


class Loaded:
    """One loaded capsule, found by its source UUID."""

    def __init__(self, capsule: Capsule) -> None:
        self.capsule = capsule

    def by_source(self, source: str) -> Capsule | None:
        return self.capsule if source == SOURCE else None


class Overlay:
    """What an operator set for alice and nobody else."""

    def __init__(self, **values: str) -> None:
        self.values = values

    def setting(self, call: Any, key: str) -> str | None:
        return self.values.get(key) if call.principal == "alice" else None


def call(of: Manifest | None = None, message: Any = None, principal: str = "alice") -> Any:
    return SimpleNamespace(principal=principal, capsule=Capsule(of or manifest()), message=message)


def hostcalls(of: Manifest | None = None, settings: Any = None) -> Sys:
    return Sys(Loaded(Capsule(of or manifest())), settings)


def test_it_has_every_function_of_the_interface_and_only_sleep_waits() -> None:
    functions = hostcalls().functions()
    assert sorted(functions) == [
        "check-capsule-capability",
        "clock-monotonic-ns",
        "clock-ms",
        "enumerate-capabilities",
        "get-caller",
        "get-config",
        "log",
        "random-bytes",
        "signal-ready",
        "sleep-ns",
    ]
    assert [name for name, function in functions.items() if function.waits] == ["sleep-ns"]


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        (None, None),
        (row(), ""),
        (row(default=""), ""),
        (row(default=".astrid"), ".astrid"),
        (row(default="ü \n"), "ü \n"),
        (row(default=128000), "128000"),
        (row(default=True), "true"),
        (row(default=0.5), "0.5"),
        (row(default=["a", "ü"]), '["a", "ü"]'),
        (row(default={"a": 1}), '{"a": 1}'),
        (row(default=datetime.date(2026, 8, 1)), '"2026-08-01"'),
        (row("select", default="a", enum_values=("a",)), "a"),
        (row("select", default="a", enum_values=("a", "b")), ""),
        (row("secret"), None),
        (row("secret", default="leaked"), None),
        (row("integer", default=7), "7"),
    ],
)
def test_a_key_that_nobody_set_is_what_the_manifest_says(declared: EnvField | None, value: str | None) -> None:
    of = manifest({} if declared is None else {"key": declared})
    assert hostcalls().get_config(call(of), "key") == value
    assert configured(of, "key") == value


def test_what_the_operator_set_wins_declared_or_not() -> None:
    of = manifest({"base_url": row(default="https://a"), "api_key": row("secret")})
    functions = hostcalls(settings=Overlay(base_url="http://b", api_key="s3cret", undeclared="7"))
    assert functions.get_config(call(of), "base_url") == "http://b"
    assert functions.get_config(call(of), "api_key") == "s3cret"
    assert functions.get_config(call(of), "undeclared") == "7"
    assert functions.get_config(call(of), "other") is None
    assert functions.get_config(call(of, principal="bob"), "base_url") == "https://a"
    assert functions.get_config(call(of, principal="bob"), "api_key") is None


def test_an_empty_setting_is_empty_and_an_empty_secret_is_none() -> None:
    of = manifest({"base_url": row(default="https://a"), "api_key": row("secret")})
    functions = hostcalls(settings=Overlay(base_url="", api_key="", undeclared=""))
    assert functions.get_config(call(of), "base_url") == ""
    assert functions.get_config(call(of), "api_key") is None
    assert functions.get_config(call(of), "undeclared") == ""


def test_settings_that_cannot_be_read_are_unknown_to_the_guest() -> None:
    class Broken:
        def setting(self, _call: Any, _key: str) -> str | None:
            raise StoreError("/home/alice/astrid.sqlite3 is damaged")

    with pytest.raises(HostError) as caught:
        hostcalls(settings=Broken()).get_config(call(), "key")
    assert (caught.value.case, caught.value.payload) == ("unknown", "the configuration cannot be read")
    assert "is damaged" in caught.value.detail


def test_the_path_of_the_socket_is_the_hosts_to_say() -> None:
    """A row of that name in a manifest is ignored."""
    of = manifest({"ASTRID_SOCKET_PATH": row(default="/tmp/fake.sock")})
    assert hostcalls().get_config(call(of), "ASTRID_SOCKET_PATH") is None
    told = hostcalls(settings=Overlay(ASTRID_SOCKET_PATH="/run/astrid.sock"))
    assert told.get_config(call(of), "ASTRID_SOCKET_PATH") == "/run/astrid.sock"


def test_the_caller_is_who_caused_the_event() -> None:
    message = SimpleNamespace(principal="bob", source_id=SOURCE, time=1_700_000_000.25)
    caller = hostcalls().get_caller(call(message=message))
    assert (caller.principal, caller.source_id) == ("bob", SOURCE)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", caller.timestamp)
    assert datetime.datetime.fromisoformat(caller.timestamp).timestamp() == 1_700_000_000.25


def test_an_event_that_nobody_caused_has_no_principal() -> None:
    message = SimpleNamespace(principal=None, source_id="00000000-0000-0000-0000-000000000000", time=0.0)
    assert hostcalls().get_caller(call(message=message))[:2] == (None, "00000000-0000-0000-0000-000000000000")


def test_without_an_event_there_is_no_caller() -> None:
    assert hostcalls().get_caller(call()) == (None, "", "")


@pytest.mark.parametrize(
    ("level", "number"),
    [("trace", TRACE), ("debug", 10), ("info", 20), ("warn", 30), ("error", 40)],
)
def test_a_log_line_goes_to_the_capsules_logger(level: str, number: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(1, "astrid_host.capsule.x")
    hostcalls().log(call(), level, "100% done %s")
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("astrid_host.capsule.x", number)
    assert record.getMessage() == "100% done %s"
    assert record.__dict__["principal"] == "alice"


def test_a_level_that_is_off_costs_no_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "astrid_host.capsule.x")
    hostcalls().log(call(), "info", "quiet")
    assert caplog.records == []


class Clock:
    """Stands where a clock would."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(sys_hostcalls, "time", clock)
    return clock


def test_more_lines_than_a_second_may_have_are_dropped_and_that_is_said(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "astrid_host.capsule.x")
    functions = hostcalls()
    for number in range(LOG_LINES_PER_S + 50):
        functions.log(call(), "info", f"line {number}")
    lines = [record.getMessage() for record in caplog.records]
    assert lines[LOG_LINES_PER_S - 1] == f"line {LOG_LINES_PER_S - 1}"
    assert lines[LOG_LINES_PER_S:] == [
        "it logs more than 1000 lines or 1048576 characters a second: the rest of this second's is dropped"
    ]
    caplog.clear()
    clock.now += 1
    functions.log(call(), "info", "again")
    assert [record.getMessage() for record in caplog.records] == ["50 of its lines were dropped", "again"]


def test_long_lines_use_up_a_second_as_well(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "astrid_host.capsule.x")
    functions = hostcalls()
    for _ in range(100):
        functions.log(call(), "info", "x" * 1_000_000)
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == LOG_CHARACTERS_PER_S // LOG_CHARACTERS + 1
    assert told[-1].endswith("is dropped")


def test_lines_of_a_level_that_is_off_use_up_nothing(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "astrid_host.capsule.x")
    functions = hostcalls()
    for _ in range(LOG_LINES_PER_S * 2):
        functions.log(call(), "debug", "quiet")
    functions.log(call(), "info", "loud")
    assert [record.getMessage() for record in caplog.records] == ["loud"]


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("plain ü 字 \U0001f600", "plain ü 字 \U0001f600"),
        ("a\nERROR forged", "a\\nERROR forged"),
        ("\x1b[31mred\x07", "\\x1b[31mred\\x07"),
        ("\x9b31m", "\\x9b31m"),
        ("right\u202eleft", "right\\u202eleft"),
        ("a\u2028b\x00\t", "a\\u2028b\\x00\\t"),
    ],
)
def test_what_cannot_be_printed_is_escaped(message: str, line: str) -> None:
    assert in_one_line(message) == line


def test_a_long_message_is_cut_and_says_how_long_it_was() -> None:
    line = in_one_line("x" * 1_000_000)
    assert len(line) < LOG_CHARACTERS + 50
    assert line.endswith("… (1000000 characters)")
    assert in_one_line("x" * LOG_CHARACTERS) == "x" * LOG_CHARACTERS


@given(st.text())
def test_every_message_becomes_one_printable_line(message: str) -> None:
    assert in_one_line(message).isprintable()


def test_a_run_loop_says_that_it_is_ready() -> None:
    of = call()
    hostcalls().signal_ready(of)
    assert of.capsule.ready == 1


def test_clocks_tell_the_time_and_go_forward() -> None:
    functions = hostcalls()
    assert abs(functions.clock_ms(call()) / 1000 - datetime.datetime.now(datetime.UTC).timestamp()) < 5
    first = functions.clock_monotonic_ns(call())
    assert functions.clock_monotonic_ns(call()) >= first > 0


def test_a_sleep_takes_as_long_as_it_says() -> None:
    async def sleep(ns: int) -> float:
        before = trio.current_time()
        await hostcalls().sleep_ns(call(), ns)
        return trio.current_time() - before

    for ns in (0, 1, 1_500_000_000, 60_000_000_000):
        clock = trio.testing.MockClock(autojump_threshold=0)
        assert trio.run(sleep, ns, clock=clock) == pytest.approx(ns / 1e9)


async def test_more_than_a_minute_is_too_large_to_sleep() -> None:
    for ns in (60_000_000_001, 2**64 - 1):
        with pytest.raises(HostError) as caught:
            await hostcalls().sleep_ns(call(), ns)
        assert caught.value.case == "too-large"


async def test_a_sleep_ends_when_it_is_cancelled() -> None:
    with trio.move_on_after(0.001) as scope:
        await hostcalls().sleep_ns(call(), 60_000_000_000)
    assert scope.cancelled_caught


@pytest.mark.parametrize("length", [0, 1, 32, 4096])
def test_random_bytes_are_as_many_as_asked_for(length: int) -> None:
    functions = hostcalls()
    found = functions.random_bytes(call(), length)
    assert len(found) == length
    assert length < 16 or found != functions.random_bytes(call(), length)


@pytest.mark.parametrize("length", [4097, 2**64 - 1])
def test_more_than_4096_random_bytes_are_too_large(length: int) -> None:
    with pytest.raises(HostError) as caught:
        hostcalls().random_bytes(call(), length)
    assert caught.value.case == "too-large"


@pytest.mark.parametrize(
    ("source", "capability", "allowed"),
    [
        (SOURCE, "allow_prompt_injection", True),
        (SOURCE.upper(), "allow_prompt_injection", True),
        (SOURCE.replace("-", ""), "allow_prompt_injection", True),
        (SOURCE, "net", True),
        (SOURCE, "uplink", False),
        (SOURCE, "bind_workers", False),
        (SOURCE, "no_such", False),
        (SOURCE, "", False),
        ("00000000-0000-0000-0000-000000000000", "allow_prompt_injection", False),
        ("x", "allow_prompt_injection", False),
        ("", "allow_prompt_injection", False),
        (SOURCE + "0", "allow_prompt_injection", False),
    ],
)
def test_a_capability_is_checked_by_the_source_of_a_loaded_capsule(source: str, capability: str, allowed: bool) -> None:
    functions = hostcalls(manifest(allow_prompt_injection=True, net=("*",)))
    request = SimpleNamespace(source_uuid=source, capability=capability)
    assert functions.check_capsule_capability(call(), request).allowed is allowed


def test_while_capsules_are_loaded_one_that_is_not_found_is_not_refused() -> None:
    """It may be the next."""
    functions = Sys(Loaded(Capsule(manifest(net=("*",)))), complete=lambda: False)
    found = SimpleNamespace(source_uuid=SOURCE, capability="net")
    assert functions.check_capsule_capability(call(), found).allowed
    missing = SimpleNamespace(source_uuid=SOURCE.replace("2", "3"), capability="net")
    with pytest.raises(HostError) as caught:
        functions.check_capsule_capability(call(), missing)
    assert caught.value.case == "registry-unavailable"
    none = SimpleNamespace(source_uuid="x", capability="net")
    assert not functions.check_capsule_capability(call(), none).allowed


def test_capabilities_are_enumerated_by_name_sorted() -> None:
    of = manifest(uplink=True, fs_write=("cwd://",), allow_persistent=False, kv=("*",))
    assert hostcalls().enumerate_capabilities(call(of)) == ["fs_write", "kv", "uplink"]
