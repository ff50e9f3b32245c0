"""Async tests run under trio, with a bound: a test that hangs fails and says so."""

from __future__ import annotations

import inspect
import os
import signal
import sys
from collections.abc import Generator
from functools import partial
from pathlib import Path

import pytest
import trio
from hypothesis import HealthCheck, settings

BOUND_S = 60

# The suite starts several hundred Python programs. Where the surroundings keep Python from writing bytecode, each of them would
# compile the whole package again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A shell starts a background job with SIGINT ignored, children inherit that, and programs under test are ended by it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Machines that run CI are shared: how long one example takes says nothing.
settings.register_profile("host", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("host")


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for compiled modules that all processes of the run share."""
    base = tmp_path_factory.getbasetemp()
    return (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "cache"


@pytest.fixture(autouse=True)
def own_cache(shared_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or fills the user's module cache; what one compiled the others of the run have."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(shared_cache))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    test = pyfuncitem.obj
    if not inspect.iscoroutinefunction(test):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    arguments = {name: pyfuncitem.funcargs[name] for name in names}

    async def bounded() -> None:
        with trio.fail_after(BOUND_S):
            await partial(test, **arguments)()

    trio.run(bounded, strict_exception_groups=True)
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Captured output crosses from worker processes as UTF-8, and names of files need not be that."""
    report = yield
    report.sections = [
        (name, text.encode("utf-8", "backslashreplace").decode("utf-8")) for name, text in report.sections
    ]
    return report
