"""Audited host functions: each call is one row, written before the guest goes on, however the call ends."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from astrid_host.errors import HostError, StoreError
from astrid_host.hostcalls.auditor import Auditor, function_name
from astrid_host.hostcalls.interface import HostFunction, Interface, hostcall

FS = "astrid:fs/host@1.0.0"


class Rows:
    """An audit that keeps its rows in a list, and can be full."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, str, str, str, str]] = []
        self.full = False

    def append(self, *row: str) -> int:
        if self.full:
            raise StoreError("the disk is full")
        self.rows.append(row)  # type: ignore[arg-type]
        return len(self.rows)


class Opened:
    """What a host function gives to its guest."""

    def __init__(self) -> None:
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


class Fs(Interface):
    """Functions of every kind, which do as they are told."""

    wit = (FS,)

    def __init__(self, act: Callable[[], Any]) -> None:
        self.act = act

    @hostcall("fs-open", audited=lambda path, *_: path)
    def fs_open(self, _call: Any, _path: str, _mode: str) -> Any:
        return self.act()

    @hostcall("fs-copy", audited=lambda path: path)
    async def copy(self, _call: Any, _path: str) -> Any:
        await trio.lowlevel.checkpoint()
        return self.act()

    @hostcall("fs-quiet")
    def quiet(self, _call: Any) -> Any:
        return self.act()


@pytest.fixture
def rows() -> Rows:
    return Rows()


def call(principal: str = "alice") -> Any:
    return SimpleNamespace(
        principal=principal, capsule=SimpleNamespace(id="fs-tools", storage_id="fs-tools"), message=None
    )


def wrapped(rows: Rows, name: str, act: Callable[[], Any], module: str = FS) -> HostFunction:
    return Auditor(rows).audited(module, Fs(act).functions()[name])


def failing(error: BaseException) -> Callable[[], Any]:
    def act() -> Any:
        raise error

    return act


OUTCOMES: list[tuple[BaseException | None, str]] = [
    (None, "ok"),
    (HostError("not-found", detail="there is no such file"), "not-found"),
    (HostError("unknown", "some text"), "unknown"),
    (ZeroDivisionError("a fault of the host"), "failed"),
    (KeyboardInterrupt(), "failed"),
]


@pytest.mark.parametrize(("error", "verdict"), OUTCOMES)
def test_a_plain_call_is_one_row_with_its_verdict(rows: Rows, error: BaseException | None, verdict: str) -> None:
    function = wrapped(rows, "fs-open", failing(error) if error is not None else lambda: "opened")
    assert (function.waits, function.suspends) == (False, False)
    if error is None:
        assert function.run(call(), "cwd://a", "r") == "opened"
    else:
        with pytest.raises(type(error)) as caught:
            function.run(call(), "cwd://a", "r")
        assert caught.value is error
    assert rows.rows == [("alice", "fs-tools", "fs.fs-open", "cwd://a", verdict)]


@pytest.mark.parametrize(("error", "verdict"), OUTCOMES[:-1])
async def test_a_waiting_call_is_one_row_when_it_ends(rows: Rows, error: BaseException | None, verdict: str) -> None:
    function = wrapped(rows, "fs-copy", failing(error) if error is not None else lambda: None)
    assert function.waits
    if error is None:
        await function.run(call(), "cwd://a")
    else:
        with pytest.raises(type(error)):
            await function.run(call(), "cwd://a")
    assert rows.rows == [("alice", "fs-tools", "fs.fs-copy", "cwd://a", verdict)]


async def test_a_waiting_call_that_is_cancelled_says_so(rows: Rows) -> None:
    with trio.CancelScope() as scope:
        scope.cancel()
        await wrapped(rows, "fs-copy", lambda: None).run(call(), "cwd://a")
    assert scope.cancelled_caught
    assert [row[4] for row in rows.rows] == ["cancelled"]


async def test_a_waiting_call_whose_tasks_are_cancelled_says_so(rows: Rows) -> None:
    async def inner(_call: Any) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            await trio.sleep_forever()

    function = Auditor(rows).audited(FS, HostFunction("fs-copy", inner, False, lambda: ""))
    with trio.CancelScope() as scope:
        scope.cancel()
        await function.run(call())
    assert [row[4] for row in rows.rows] == ["cancelled"]


def test_a_function_that_names_no_target_is_left_as_it_is(rows: Rows) -> None:
    function = Fs(lambda: 1).functions()["fs-quiet"]
    assert Auditor(rows).audited(FS, function) is function


@pytest.mark.parametrize("module", ["astrid:kv/host@1.0.0", "astrid:ipc/host@1.0.0"])
@pytest.mark.parametrize(
    ("error", "verdicts"),
    [(None, []), (HostError("invalid-key"), ["invalid-key"]), (HostError("cas-mismatch"), [])],
)
def test_of_some_packages_only_refusals_are_rows(
    rows: Rows, module: str, error: HostError | None, verdicts: list[str]
) -> None:
    function = wrapped(rows, "fs-open", failing(error) if error is not None else lambda: None, module)
    if error is None:
        function.run(call(), "key", "")
    else:
        with pytest.raises(HostError):
            function.run(call(), "key", "")
    assert [row[4] for row in rows.rows] == verdicts


def test_a_refusal_may_be_told_directly(rows: Rows) -> None:
    Auditor(rows).denied(call(), "ipc.publish", "secret.topic", "capability-denied")
    assert rows.rows == [("alice", "fs-tools", "ipc.publish", "secret.topic", "capability-denied")]
    rows.full = True
    Auditor(rows).denied(call(), "ipc.publish", "secret.topic", "capability-denied")


def test_secrets_do_not_get_into_a_target(rows: Rows) -> None:
    auditor = Auditor(rows, lambda text: text.replace("s3cret", "***"))
    auditor.audited(FS, Fs(lambda: None).functions()["fs-open"]).run(call(), "cwd://s3cret", "r")
    auditor.denied(call(), "kv.kv-get", "s3cret", "invalid-key")
    assert [row[3] for row in rows.rows] == ["cwd://***", "***"]


async def test_what_cannot_be_audited_is_not_given(rows: Rows, caplog: pytest.LogCaptureFixture) -> None:
    rows.full = True
    opened = [Opened() for _ in range(2)]
    with pytest.raises(HostError) as caught:
        wrapped(rows, "fs-open", lambda: opened[0]).run(call(), "cwd://a", "r")
    assert (caught.value.case, caught.value.payload) == ("unknown", "it was done, but the audit cannot be written")
    with pytest.raises(HostError):
        await wrapped(rows, "fs-copy", lambda: opened[1]).run(call(), "cwd://a")
    assert [one.closed for one in opened] == [1, 1]
    assert caplog.text.count("the disk is full") == 2


def test_an_error_that_cannot_be_audited_is_still_the_guests(rows: Rows, caplog: pytest.LogCaptureFixture) -> None:
    rows.full = True
    with pytest.raises(HostError) as caught:
        wrapped(rows, "fs-open", failing(HostError("not-found"))).run(call(), "cwd://a", "r")
    assert caught.value.case == "not-found"
    assert "the disk is full" in caplog.text


@pytest.mark.parametrize(
    ("name", "spelt"),
    [
        ("fs-open", "fs.fs-open"),
        ("[method]file-handle.read", "fs.file-handle.read"),
        ("[static]file-handle.make", "fs.file-handle.make"),
        ("[constructor]file-handle", "fs.file-handle"),
    ],
)
def test_functions_are_spelt_with_their_package(name: str, spelt: str) -> None:
    assert function_name("fs", name) == spelt
