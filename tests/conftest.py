"""Async tests run under trio, with a bound: a test that hangs fails and says so."""

from __future__ import annotations

import inspect
from functools import partial

import pytest
import trio
from hypothesis import HealthCheck, settings

BOUND_S = 60

# Machines that run CI are shared: how long one example takes says nothing.
settings.register_profile("host", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("host")


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or fills the user's module cache; what one compiled the others of the run have."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))


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
